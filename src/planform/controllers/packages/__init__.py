"""Packages: installing functions, providers and configurations.

controller     packages and their revisions, whatever their kind
contents       what revisions carry: fetched, checked, and brought to the engine
locking        what packages need of each other
configurations  packages of which nothing runs
opening        all of it, put together
"""
