"""Cycles are searched at rest, and once after much was made."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from planform.memory import MOST_BEFORE_A_SEARCH, WORTH_A_SEARCH, Searches, search_seldom


class Knot:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    search_seldom()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_a_cycle_is_found_at_rest_after_work_and_nothing_is_searched_again() -> None:
    knot = weakref.ref(Knot())
    searches = Searches()
    assert not searches.at_rest(), "next to nothing was made"
    assert knot() is not None
    made: list[list[int]] = [[] for _ in range(2 * WORTH_A_SEARCH)]
    assert searches.at_rest()
    assert knot() is None
    assert not searches.at_rest()
    del made


def test_those_who_survived_are_searched_too_after_many_searches() -> None:
    old = Knot()
    knot = weakref.ref(old)
    times, searches = 0, Searches()
    while knot() is not None and times < 200:
        made: list[list[int]] = [[] for _ in range(2 * WORTH_A_SEARCH)]
        assert searches.at_rest()
        times += 1
        if times == 1:
            assert knot() is not None
            del old  # after it has grown older by a search
        del made
    assert 10 < times < 20


def test_without_rest_python_searches_when_very_much_was_made() -> None:
    knot = weakref.ref(Knot())
    made: list[list[int]] = [[] for _ in range(MOST_BEFORE_A_SEARCH + WORTH_A_SEARCH)]
    assert knot() is None
    del made
