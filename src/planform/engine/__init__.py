"""The built-in controllers that a real cluster has itself, for the embedded engine only.

They follow the store's committed batches directly instead of watching kind by kind: one callback sees every change,
so that a controller costs something only when there is something to do.
"""
