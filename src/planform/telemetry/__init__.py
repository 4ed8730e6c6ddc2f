"""What planform says about itself: metrics, logs, traces, and how late the event loop runs.

Nothing here is global. `app.py` makes one of each and passes it on; whoever is given none works without.
"""
