"""Day-two actions: Blueprints say what to do in phases, ActionSets do it, and every phase runs a version of a function.

contract     what a phase function is, and what it is given when it runs
arguments    a phase's arguments as a function reads them
registry     the functions of this process, and those that plug-ins bring
versions     the versions file: which releases know which version of a function, and what state it is in
catalogue    registry and versions file together: which version of a function a phase runs
model        Blueprints and ActionSets as they are written
rendering    templates of a Blueprint over the parameters of an action
validation   what is wrong with a Blueprint before anything runs
execution    the phases of one action, in order, and what they leave
discovery    the functions of this process over HTTP

The functions that come with planform are in `functions`.
"""
