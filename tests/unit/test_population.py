"""Who uses which revision, as XRs come, move and go."""

from __future__ import annotations

import pytest

from planform.controllers.population import Population, XrKey
from planform.telemetry.metrics import Registry


def key(name: str, kind: str = "XApp.example.org") -> XrKey:
    return XrKey(kind, "", name)


@pytest.fixture
def population() -> Population:
    return Population(Registry())


def test_xrs_are_counted_by_revision_and_move_between_them(population: Population) -> None:
    population.set(key("a"), "gcp", "gcp-1")
    population.set(key("b"), "gcp", "gcp-1")
    assert population.users("gcp") == {"gcp-1": 2}
    population.set(key("b"), "gcp", "gcp-2")
    assert population.users("gcp") == {"gcp-1": 1, "gcp-2": 1}
    population.set(key("a"), "aws", "aws-1")
    assert population.users("gcp") == {"gcp-2": 1}
    population.forget(key("b"))
    assert population.users("gcp") == {} and population.users("aws") == {"aws-1": 1}


def test_an_xr_without_a_revision_counts_for_none_but_its_selector_holds(population: Population) -> None:
    population.set(key("a"), "gcp", "", {"channel": "stable"})
    assert population.users("gcp") == {}
    assert list(population.selectors("gcp")) == [{"channel": "stable"}]


def test_each_selector_is_told_once_and_only_while_somebody_has_it(population: Population) -> None:
    for name in "ab":
        population.set(key(name), "gcp", "gcp-1", {"channel": "stable"})
    population.set(key("c"), "gcp", "gcp-1")
    assert list(population.selectors("gcp")) == [{"channel": "stable"}]
    population.forget(key("a"))
    population.forget(key("b"))
    assert list(population.selectors("gcp")) == []


def test_nothing_is_complete_before_the_start_and_before_every_expected_kind_was_heard_of(
    population: Population,
) -> None:
    completed: list[bool] = []
    population.subscribe(lambda _: None, lambda: completed.append(population.complete()))
    population.expect("XApp.example.org")
    population.expect("XNet.example.org")
    population.heard("XApp.example.org")
    population.started()
    assert not population.complete() and completed == []
    population.leave("XNet.example.org")
    assert population.complete() and completed == [True]
    population.started()
    population.heard("XApp.example.org")
    assert completed == [True]


def test_what_a_list_says_does_not_undo_what_was_said_since(population: Population) -> None:
    population.expect("XApp.example.org")
    population.set(key("moved"), "gcp", "gcp-2")
    population.set(key("gone"), "gcp", "gcp-1")
    population.forget(key("gone"))
    for name in ("moved", "gone", "resting"):
        population.seed(key(name), "gcp", "gcp-1")
    assert population.users("gcp") == {"gcp-1": 1, "gcp-2": 1}
    population.heard("XApp.example.org")
    population.set(key("gone"), "gcp", "gcp-1")  # made again
    assert population.users("gcp") == {"gcp-1": 2, "gcp-2": 1}


def test_a_kind_that_goes_takes_its_xrs_with_it(population: Population) -> None:
    population.set(key("a"), "gcp", "gcp-1")
    population.set(key("a", "XNet.example.org"), "gcp", "gcp-1")
    population.leave("XApp.example.org")
    assert population.users("gcp") == {"gcp-1": 1}


def test_only_changes_are_told_and_to_both_compositions_of_a_move(population: Population) -> None:
    told: list[str] = []
    population.subscribe(told.append, lambda: None)
    population.set(key("a"), "gcp", "gcp-1")
    population.set(key("a"), "gcp", "gcp-1")
    population.forget(key("nobody"))
    assert told == ["gcp"]
    population.set(key("a"), "aws", "aws-1")
    assert sorted(told[1:]) == ["aws", "gcp"]


def test_the_gauge_shows_the_xrs_of_each_revision_and_forgets_empty_ones() -> None:
    metrics = Registry()
    population = Population(metrics)
    population.set(key("a"), "gcp", "gcp-1")
    population.set(key("b"), "gcp", "gcp-1")
    line = 'planform_composition_revision_composites{composition="gcp",revision="gcp-1"} 2'
    assert line in metrics.render()
    population.set(key("a"), "gcp", "gcp-2")
    population.forget(key("b"))
    assert "gcp-1" not in metrics.render()
