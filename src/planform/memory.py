"""When Python looks for cycles: while there is nothing else to do, or when very much has piled up.

What planform does leaves few cycles behind, so a search finds next to nothing. But in a storm, tens of thousands of
values come and go with every commit, and by its own measure Python would search hundreds of times, each for several
milliseconds in which the loop stands: one part in fourteen of all the time that a thousand new XRs took.
"""

from __future__ import annotations

import gc
from typing import Final

MOST_BEFORE_A_SEARCH: Final = 100_000
"""New containers after which a search does not wait for rest. A storm has half of that in its hands at a time."""
WORTH_A_SEARCH: Final = 10_000
_SEARCHES_BEFORE_OLDER: Final = 3
"""After so many, those who survived them are searched as well: soon, for it takes as long as there are many of them."""
_SEARCHES_BEFORE_OLDEST: Final = 100
"""After so many searches among survivors, everything is searched; at rest, after a tenth of that."""


def search_seldom() -> None:
    """Leave out what start-up made, and search for cycles by the measure of this module."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(MOST_BEFORE_A_SEARCH, _SEARCHES_BEFORE_OLDER, _SEARCHES_BEFORE_OLDEST)


def search_at_rest() -> bool:
    """To be called when there is nothing to do; whether it searched. After work, it does so once."""
    young, _, old = gc.get_count()
    if young < WORTH_A_SEARCH:
        return False
    gc.collect(2 if 10 * old > _SEARCHES_BEFORE_OLDEST else 1)
    return True
