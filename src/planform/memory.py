"""When Python looks for cycles: while there is nothing else to do, or when very much has piled up.

What planform does leaves hardly a cycle behind, so a search finds next to nothing. But in a storm, tens of thousands of
values come and go with every commit, and by its own measure Python would search hundreds of times, each for several
milliseconds in which the loop stands: one part in fourteen of all the time that a thousand new XRs took.
"""

from __future__ import annotations

import gc
from typing import Final

MOST_BEFORE_A_SEARCH: Final = 30_000
"""New containers after which a search does not wait for rest: it holds the loop for some 12 ms."""
WORTH_A_SEARCH: Final = 10_000
_SEARCHES_BEFORE_OLDER: Final = 10
"""After so many searches among the young, those who survived them are searched as well, and so on: at rest."""
_MOST_BEFORE_OLDER: Final = 100
"""After so many, that does not wait for rest either."""


def search_seldom() -> None:
    """Leave out what start-up made, and search for cycles by the measure of this module."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(MOST_BEFORE_A_SEARCH, _MOST_BEFORE_OLDER, _SEARCHES_BEFORE_OLDER)


def search_at_rest() -> bool:
    """To be called when there is nothing to do; whether it searched. After work, it does so once."""
    young, middle, old = gc.get_count()
    if young < WORTH_A_SEARCH:
        return False
    gc.collect(2 if old > _SEARCHES_BEFORE_OLDER else 1 if middle > _SEARCHES_BEFORE_OLDER else 0)
    return True
