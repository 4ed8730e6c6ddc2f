"""Controller machinery: watch events become keys, keys are worked off fairly, and whatever fails is tried again.

sources    one watch for everybody who wants it; events become keys
catchup    what a subscriber that comes late is told
queue      each key once, with one worker at a time, later after a failure
limiter    a few reconciles compute at a time, and controllers share its slots
controller one loop: take a key, reconcile it, decide when to come back
manager    controllers that start and stop at run time, and a shutdown that ends
election   of several replicas on one cluster, one works
"""
