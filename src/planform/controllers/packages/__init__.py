"""Packages: installing functions, providers and configurations.

controller      packages and their revisions, whatever their kind
contents        what revisions carry: fetched, checked, and brought to the engine
deliveries      what they brought, and what of it has to be brought again
locking         what packages need of each other
configurations  packages of which nothing runs
providers       packages whose controller runs here and talks to the API
opening         all of it, put together

Functions are in `controllers.functions`, as they can be had without any of this.
"""
