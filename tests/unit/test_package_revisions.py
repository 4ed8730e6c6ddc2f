"""Which revisions of a package are active, which go, and what they are numbered: the worked states of the design.

`revisionHistoryLimit: 4, activeRevisionLimit: 2`, policy Automatic, one row for each event.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from planform.packages.revisions import (
    Known,
    active_revisions,
    copied_labels,
    number_of,
    stale_labels,
    surplus_revisions,
    system_labels,
)

HISTORY = 4


class Package:
    """A package and its revisions, each named after the version it was made of."""

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}
        self.current = ""

    def install(self, version: str, *, active: int = 2) -> None:
        self.current = version
        number = number_of(version, list(self.known.values()))
        self.known[version] = Known(version, number, active=True)
        self.settle(active)

    def settle(self, active: int) -> None:
        chosen = active_revisions(list(self.known.values()), limit=active)
        self.known = {name: replace(each, active=name in chosen) for name, each in self.known.items()}
        for name in surplus_revisions(list(self.known.values()), self.current, history=HISTORY):
            del self.known[name]

    def states(self) -> tuple[list[int], list[int]]:
        """The numbers of the active ones, and of the others."""
        active = sorted(each.number for each in self.known.values() if each.active)
        return active, sorted(each.number for each in self.known.values() if not each.active)


def test_the_worked_states_of_the_design() -> None:
    package = Package()
    package.install("v1")
    assert package.states() == ([1], [])
    package.install("v2")
    assert package.states() == ([1, 2], [])
    package.install("v3")
    assert package.states() == ([2, 3], [1])
    for version in ("v4", "v5", "v6"):
        package.install(version)
    assert package.states() == ([5, 6], [2, 3, 4]), "1 is deleted: the bound is the limit and one more"
    package.install("v4")
    assert package.states() == ([6, 7], [2, 3, 5])
    assert package.known["v4"].number == 7, "its revision is renumbered"
    package.settle(active=1)
    assert package.states() == ([7], [2, 3, 5, 6])
    package.settle(active=3)
    assert package.states() == ([5, 6, 7], [2, 3])


def known(*numbers: int, active: tuple[int, ...] = (), used: tuple[int, ...] = ()) -> list[Known]:
    return [Known(f"r{each}", each, each in active, users=int(each in used)) for each in numbers]


@pytest.mark.parametrize(
    ("revisions", "current", "history", "gone"),
    [
        pytest.param(known(1, 2, 3, active=(3,)), "r3", 1, ("r1",), id="the oldest goes"),
        pytest.param(known(1, 2, 3, 4, active=(4,)), "r4", 1, ("r1", "r2"), id="as many as are too many"),
        pytest.param(known(1, 2, 3, active=(3,)), "r3", 0, (), id="0 keeps all"),
        pytest.param(known(1, 2, 3, active=(1, 3)), "r3", 1, ("r2",), id="an active one stays"),
        pytest.param(known(1, 2, 3, active=(3,)), "r1", 1, ("r2",), id="the one it goes back to stays"),
        pytest.param(known(1, 2, 3, active=(3,), used=(1,)), "r3", 1, ("r2",), id="one in use stays"),
        pytest.param(known(1, 2, 3, active=(1, 2, 3)), "r3", 1, (), id="none can go"),
    ],
)
def test_only_what_is_inactive_unused_and_not_current_is_deleted(
    revisions: list[Known], current: str, history: int, gone: tuple[str, ...]
) -> None:
    assert surplus_revisions(revisions, current, history=history) == gone


def test_as_long_as_the_new_ones_do_not_work_the_newest_that_does_stays_active() -> None:
    revisions = [Known("r1", 1, active=True), Known("r2", 2, active=True), Known("r3", 3, active=True, works=False)]
    assert active_revisions(revisions, limit=1) == {"r3", "r2"}
    assert active_revisions([replace(each, works=True) for each in revisions], limit=1) == {"r3"}


def test_one_that_is_used_is_retained_only_if_that_is_wanted() -> None:
    revisions = known(1, 2, 3, active=(1, 2, 3), used=(1,))
    assert active_revisions(revisions, limit=1) == {"r3"}
    assert active_revisions(revisions, limit=1, retain=True) == {"r3", "r1"}


def test_system_labels_are_never_copied_and_what_is_no_longer_copied_is_stale() -> None:
    mine = {"pkg.crossplane.io/package": "another", "channel": "alpha", "team": "a"}
    assert copied_labels({"channel": "stable"}, mine) == {"channel": "alpha", "team": "a"}
    assert list(stale_labels({"team": "a", "own": "1"}, "channel,team", {"channel": "alpha"})) == ["team"]


@pytest.mark.parametrize(
    ("image", "labels"),
    [
        ("r.io/a/fn:v1.2.0", {"pkg.crossplane.io/version": "v1.2.0"}),
        ("r.io:5000/a/fn:v1@sha256:" + "a" * 64, {"pkg.crossplane.io/version": "v1"}),
        ("r.io:5000/a/fn@sha256:" + "a" * 64, {}),
        ("r.io/a/fn:" + "x" * 70, {}),
    ],
)
def test_the_tag_is_a_label_if_it_can_be_one(image: str, labels: dict[str, str]) -> None:
    assert system_labels("fn", image) == {"pkg.crossplane.io/package": "fn", **labels}
