"""Which revisions of a package may go, which stay though they are too many, and which labels they share with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planform.packages.revisions import (
    Known,
    active_revisions,
    copied_labels,
    retained_revisions,
    stale_labels,
    surplus_revisions,
)


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


def test_one_that_is_used_is_retained_only_if_that_is_wanted() -> None:
    revisions = known(1, 2, 3, active=(1, 2, 3), used=(1,))
    assert active_revisions(revisions, limit=1, retain=False) == {"r3"}
    assert active_revisions(revisions, limit=1, retain=True) == {"r3", "r1"}


def test_what_a_policy_pins_is_active_whatever_the_limit_says_and_is_never_deleted() -> None:
    plain = known(1, 2, 3, active=(1, 3), used=(1,))
    pinned = [replace(each, pinned=each.number == 1) for each in plain]
    assert active_revisions(pinned, limit=1, retain=False) == {"r3", "r1"}
    assert retained_revisions(plain, limit=1) == ("r1",)
    assert retained_revisions(pinned, limit=1) == (), "it does not count towards the limit"
    inactive = [replace(each, active=False, users=0) for each in pinned]
    assert surplus_revisions(inactive, "r3", history=1) == ("r2",)


def test_system_labels_are_never_copied_and_what_is_no_longer_copied_is_stale() -> None:
    mine = {"pkg.crossplane.io/package": "another", "channel": "alpha", "team": "a"}
    assert copied_labels({"channel": "stable"}, mine) == {"channel": "alpha", "team": "a"}
    assert list(stale_labels({"team": "a", "own": "1"}, "channel,team", {"channel": "alpha"})) == ["team"]
