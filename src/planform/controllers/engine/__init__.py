"""The chores that a real cluster does itself, for the embedded engine only.

They follow the store's committed batches directly instead of watching kind by kind: one callback sees every change,
so that a chore costs something only when there is something to do.
"""

from planform.controllers.engine.chores import Chores, start_chores

__all__ = ["Chores", "start_chores"]
