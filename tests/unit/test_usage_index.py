"""Who uses which revision, as XRs come, move and go."""

from __future__ import annotations

import pytest

from planform.compositions.usage_index import UsageIndex, XrKey
from planform.pipeline.revision_selectors import RevisionSelector
from planform.telemetry.metrics import MetricsRegistry

STABLE = RevisionSelector.of({"matchLabels": {"channel": "stable"}})


def key(name: str, kind: str = "XApp.example.org") -> XrKey:
    return XrKey(kind, "", name)


@pytest.fixture
def usage_index() -> UsageIndex:
    return UsageIndex(MetricsRegistry())


def test_xrs_are_counted_by_revision_and_move_between_them(usage_index: UsageIndex) -> None:
    usage_index.set(key("a"), "gcp", "gcp-1")
    usage_index.set(key("b"), "gcp", "gcp-1")
    assert usage_index.users("gcp") == {"gcp-1": 2}
    usage_index.set(key("b"), "gcp", "gcp-2")
    assert usage_index.users("gcp") == {"gcp-1": 1, "gcp-2": 1}
    usage_index.set(key("a"), "aws", "aws-1")
    assert usage_index.users("gcp") == {"gcp-2": 1}
    usage_index.forget(key("b"))
    assert usage_index.users("gcp") == {} and usage_index.users("aws") == {"aws-1": 1}


def test_an_xr_without_a_revision_counts_for_none_but_its_selector_holds(usage_index: UsageIndex) -> None:
    usage_index.set(key("a"), "gcp", "", STABLE)
    assert usage_index.users("gcp") == {}
    assert list(usage_index.selectors("gcp")) == [STABLE]


def test_each_selector_is_told_once_and_only_while_somebody_has_it(usage_index: UsageIndex) -> None:
    for name in "ab":
        usage_index.set(key(name), "gcp", "gcp-1", STABLE)
    usage_index.set(key("c"), "gcp", "gcp-1")
    assert list(usage_index.selectors("gcp")) == [STABLE]
    usage_index.forget(key("a"))
    usage_index.forget(key("b"))
    assert list(usage_index.selectors("gcp")) == []


def test_nothing_is_complete_before_the_start_and_before_every_expected_kind_was_heard_of(
    usage_index: UsageIndex,
) -> None:
    completed: list[bool] = []
    usage_index.subscribe(lambda _: None, lambda: completed.append(usage_index.complete()))
    usage_index.expect("XApp.example.org")
    usage_index.expect("XNet.example.org")
    usage_index.heard("XApp.example.org")
    usage_index.started()
    assert not usage_index.complete() and completed == []
    usage_index.leave("XNet.example.org")
    assert usage_index.complete() and completed == [True]
    usage_index.started()
    usage_index.heard("XApp.example.org")
    assert completed == [True]


def test_what_a_list_says_does_not_undo_what_was_said_since(usage_index: UsageIndex) -> None:
    usage_index.expect("XApp.example.org")
    usage_index.set(key("moved"), "gcp", "gcp-2")
    usage_index.set(key("gone"), "gcp", "gcp-1")
    usage_index.forget(key("gone"))
    for name in ("moved", "gone", "resting"):
        usage_index.seed(key(name), "gcp", "gcp-1")
    assert usage_index.users("gcp") == {"gcp-1": 1, "gcp-2": 1}
    usage_index.heard("XApp.example.org")
    usage_index.set(key("gone"), "gcp", "gcp-1")  # made again
    assert usage_index.users("gcp") == {"gcp-1": 2, "gcp-2": 1}


def test_a_kind_that_goes_takes_its_xrs_with_it(usage_index: UsageIndex) -> None:
    usage_index.set(key("a"), "gcp", "gcp-1")
    usage_index.set(key("a", "XNet.example.org"), "gcp", "gcp-1")
    usage_index.leave("XApp.example.org")
    assert usage_index.users("gcp") == {"gcp-1": 1}


def test_only_changes_are_told_and_to_both_compositions_of_a_move(usage_index: UsageIndex) -> None:
    told: list[str] = []
    usage_index.subscribe(told.append, lambda: None)
    usage_index.set(key("a"), "gcp", "gcp-1")
    usage_index.set(key("a"), "gcp", "gcp-1")
    usage_index.forget(key("nobody"))
    assert told == ["gcp"]
    usage_index.set(key("a"), "aws", "aws-1")
    assert sorted(told[1:]) == ["aws", "gcp"]


def test_the_gauge_shows_the_xrs_of_each_revision_and_forgets_empty_ones() -> None:
    metrics = MetricsRegistry()
    usage_index = UsageIndex(metrics)
    usage_index.set(key("a"), "gcp", "gcp-1")
    usage_index.set(key("b"), "gcp", "gcp-1")
    line = 'planform_composition_revision_composites{composition="gcp",revision="gcp-1"} 2'
    assert line in metrics.render()
    usage_index.set(key("a"), "gcp", "gcp-2")
    usage_index.forget(key("b"))
    assert "gcp-1" not in metrics.render()
