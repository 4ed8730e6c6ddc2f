"""Which deletions stop for a human."""

from __future__ import annotations

from typing import Any

import pytest

from planform.pipeline.plan import Deletion, Plan
from planform.xrs.budget import CONFIRM_ANNOTATION, DeletionBudgetExceeded, check_budget


def resource(key: str, *, going: bool = False) -> dict[str, Any]:
    metadata = {"name": key, "uid": f"uid-{key}"}
    return {"metadata": metadata | {"deletionTimestamp": "2026-01-01T00:00:00Z"} if going else metadata}


def check(there: str, doomed: str, *, going: str = "", confirmed: str = "", **more: Any) -> None:
    """`there` and `doomed` name a composed resource by each letter."""
    observed = {key: resource(key, going=key in going) for key in there}
    plan = Plan(apply=(), delete=tuple(Deletion(key, observed[key]) for key in doomed), references=(), status={})
    xr = {"metadata": {"annotations": {CONFIRM_ANNOTATION: confirmed}}}
    settings = {"answered_nothing": False, "spec_changed": False} | more
    check_budget(xr, plan, observed=observed, **settings)


@pytest.mark.parametrize(
    ("there", "doomed", "more"),
    [
        pytest.param("ab", "", {"answered_nothing": True}, id="nothing would be deleted"),
        pytest.param("a", "a", {}, id="one of one"),
        pytest.param("abc", "ab", {}, id="some"),
        pytest.param("ab", "ab", {"spec_changed": True}, id="all, and the XR was changed"),
        pytest.param("abcd", "a", {"max_share": 25}, id="just the share"),
        pytest.param("ab", "ab", {"going": "ab"}, id="all are going already"),
        pytest.param("abc", "abc", {"going": "ab"}, id="one is left of those that are not going yet"),
        pytest.param("ab", "ab", {"going": "ab", "answered_nothing": True}, id="no answer, but all are going already"),
    ],
)
def test_passes(there: str, doomed: str, more: dict[str, Any]) -> None:
    check(there, doomed, **more)


@pytest.mark.parametrize(
    ("there", "doomed", "more", "words"),
    [
        pytest.param("ab", "ab", {}, "all composed resources would vanish although the XR did not change", id="all"),
        pytest.param("ab", "ab", {"spec_changed": None}, "whether the XR changed is not known (a, b)", id="unknown"),
        pytest.param("a", "a", {"answered_nothing": True}, "no desired state at all (a)", id="no answer"),
        pytest.param(
            "a", "a", {"answered_nothing": True, "spec_changed": True}, "no desired state", id="even if changed"
        ),
        pytest.param(
            "abcd", "ab", {"max_share": 25}, "2 of 4 composed resources would vanish, more than 25 %", id="share"
        ),
        pytest.param("ab", "a", {"max_share": 0}, "1 of 2", id="a share of nothing"),
        pytest.param("abcd", "ab", {"max_share": 25, "spec_changed": True}, "2 of 4", id="a share even if changed"),
        pytest.param("abc", "abc", {"going": "c"}, "(a, b)", id="those that are not going yet"),
    ],
)
def test_stops_until_exactly_that_is_confirmed(there: str, doomed: str, more: dict[str, Any], words: str) -> None:
    with pytest.raises(DeletionBudgetExceeded) as stopped:
        check(there, doomed, **more)
    assert words in str(stopped.value)
    assert stopped.value.hint == (f"if this is meant, annotate the XR with {CONFIRM_ANNOTATION}={stopped.value.token}")
    check(there, doomed, confirmed=stopped.value.token, **more)
    with pytest.raises(DeletionBudgetExceeded):
        check(there + "x", doomed + "x", confirmed=stopped.value.token, **more)
