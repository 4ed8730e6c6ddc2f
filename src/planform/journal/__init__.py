"""The record of pipeline runs: its own SQLite file, asynchronous and bounded.

`open_journal` opens it; controllers `record` runs and `remember` small states; `serving` answers who asks over HTTP.
"""

from planform.journal.journal import Journal, open_journal
from planform.journal.records import Part, Run, RunRecord, RunSummary, StepRun
from planform.journal.tables import Limits

__all__ = ["Journal", "Limits", "Part", "Run", "RunRecord", "RunSummary", "StepRun", "open_journal"]
