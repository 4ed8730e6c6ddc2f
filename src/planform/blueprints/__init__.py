"""Day-two actions: Blueprints say what to do in phases, ActionSets do it, and every phase runs a version of a function.

contract        what a phase function is, and what it is given when it runs
arguments       a phase's arguments as a function reads them
registry        the functions of this process, and those that plug-ins bring
versions        the versions file: which release knows which version of a function, and what state it is in
catalogue       registry and versions file together: which version of a function a phase runs
shipped         the catalogue of this build
model           Blueprints and ActionSets as they are written
parameters      what templates see, and `rendering` what they make of it
validation      what is wrong with a Blueprint before anything runs
planning        what an ActionSet will run, decided before any of it runs; `reading` finds what that needs
execution       the phases of an ActionSet, in order; `calling` calls one function once
action_status   what is written down about a run, as it changes
logs            what phases told; discovery: the functions of this process over HTTP; children: ActionSets from others

The functions that come with planform are in `functions`.
"""

from typing import Final

FUNCTIONS_PREFIX: Final = ("v1", "functions")
FUNCTIONS_PATH: Final = "/" + "/".join(FUNCTIONS_PREFIX)
"""Where a control plane answers which phase functions it has."""

LOGS_PREFIX: Final = ("planform", "v1", "actionsets")
LOGS_PATH: Final = "/" + "/".join(LOGS_PREFIX)
"""Where it answers what the phases of an ActionSet have told."""
