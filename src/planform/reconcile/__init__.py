"""Controller machinery: watch events become keys, keys are worked off fairly, and whatever fails is tried again.

sources    one watch for everybody who wants it; events become keys
catchup    what a subscriber that comes late is told
queue      each key once, in one pair of hands at a time, later after a failure
gate       a few reconciles compute at a time, and controllers take turns
controller one loop: take a key, reconcile it, decide when to come back
plane      controllers that start and stop at run time, and a shutdown that ends
election   of several planes on one cluster, one works
"""
