"""The record of pipeline runs: its own SQLite file, asynchronous and bounded.

`open_journal` opens it; controllers `record` runs and `remember` small states; `serving` answers who asks over HTTP.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from planform.journal.journal import Journal, open_journal
    from planform.journal.records import Part, Run, RunRecord, RunSummary, StepRun
    from planform.journal.tables import Limits

__all__ = ["Journal", "Limits", "Part", "Run", "RunRecord", "RunSummary", "StepRun", "open_journal"]

_HOMES: Final = {"Journal": "journal", "open_journal": "journal", "Limits": "tables"}


def __getattr__(name: str) -> Any:
    """Found when asked for: `render` masks as the journal does, and pays for no store."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'records')}"), name)
