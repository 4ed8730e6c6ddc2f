"""Where a function failed, as it says itself: a result beside the fatal one, with a traceback in it.

Whoever runs a pipeline stops at the fatal result, so that this one becomes neither event nor condition, on Crossplane
as here; the journal and authors' commands show it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

TRACEBACK: Final = "Traceback"
"""The reason of that result."""


class _Result(Protocol):
    @property
    def reason(self) -> str: ...

    @property
    def message(self) -> str: ...


def traceback_lines(results: Iterable[_Result]) -> list[str]:
    """The lines of the traceback among the results of one call."""
    return [line for result in results if result.reason == TRACEBACK for line in result.message.splitlines()]
