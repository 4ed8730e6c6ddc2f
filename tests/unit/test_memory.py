"""Cycles are searched at rest, and once after much was made."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from planform.memory import (
    GROWTH_WORTH_COLLECTING,
    GROWTH_WORTH_GIVING_BACK,
    MAX_BEFORE_COLLECTION,
    WORTH_COLLECTING,
    IdleCollector,
    collect_seldom,
)


class Knot:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    collect_seldom()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_a_cycle_is_found_at_rest_after_work_and_nothing_is_searched_again() -> None:
    knot = weakref.ref(Knot())
    collector = IdleCollector()
    assert not collector.when_idle(), "next to nothing was made"
    assert knot() is not None
    made: list[list[int]] = [[] for _ in range(2 * WORTH_COLLECTING)]
    assert collector.when_idle()
    assert knot() is None
    assert not collector.when_idle()
    del made


def test_those_who_survived_are_searched_too_after_many_searches() -> None:
    old = Knot()
    knot = weakref.ref(old)
    times, collector = 0, IdleCollector()
    while knot() is not None and times < 200:
        made: list[list[int]] = [[] for _ in range(2 * WORTH_COLLECTING)]
        assert collector.when_idle()
        times += 1
        if times == 1:
            assert knot() is not None
            del old  # after it has grown older by a search
        del made
    assert 10 < times < 20


def test_at_rest_everything_is_searched_once_if_the_process_stays_large(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [100 << 20]
    monkeypatch.setattr("planform.memory.resident_bytes", lambda: sizes[0])
    collector, old = IdleCollector(), Knot()
    knot = weakref.ref(old)
    gc.collect(1)  # it has grown old
    del old
    sizes[0] += 2 * GROWTH_WORTH_COLLECTING
    assert collector.when_idle(), "it has grown, so the young are searched"
    assert knot() is not None
    assert collector.when_idle(), "and it is no smaller for that"
    assert knot() is None
    assert not collector.when_idle()


def test_at_rest_a_process_that_has_grown_a_little_gives_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, given = [100 << 20], []
    monkeypatch.setattr("planform.memory.resident_bytes", lambda: sizes[0])
    monkeypatch.setattr("planform.memory._give_back", lambda: given.append(sizes[0]))
    collector = IdleCollector()
    assert not collector.when_idle()
    sizes[0] += 2 * GROWTH_WORTH_GIVING_BACK
    assert collector.when_idle()
    assert not collector.when_idle(), "what is still held is in use"
    assert given == sizes


def test_without_rest_python_searches_when_very_much_was_made() -> None:
    knot = weakref.ref(Knot())
    made: list[list[int]] = [[] for _ in range(MAX_BEFORE_COLLECTION + WORTH_COLLECTING)]
    assert knot() is None
    del made
