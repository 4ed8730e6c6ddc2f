"""Which revision an XR takes where revisions may be withheld: the rule as a law over generated histories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planform.api.kinds import Object
from planform.compositions.revisions import newest_first
from planform.compositions.selection import NotReleased, choose_revision, is_validated, release_of

COMPOSITION = "db"
UID = "c-uid"
REASONS = ("Held", "InRollout", "Superseded", "Aborted", "Undone")


def revision(number: int, valid: str | None, released: str | None) -> Object:
    conditions = []
    if valid is not None:
        conditions.append({"type": "ValidPipeline", "status": valid, "reason": "x"})
    if released is not None:
        status = "True" if released == "Released" else "False"
        conditions.append({"type": "Released", "status": status, "reason": released})
    owner = {
        "apiVersion": "apiextensions.crossplane.io/v1",
        "kind": "Composition",
        "name": COMPOSITION,
        "uid": UID,
        "controller": True,
    }
    return {
        "metadata": {
            "name": f"db-{number}",
            "labels": {"crossplane.io/composition-name": COMPOSITION},
            "ownerReferences": [owner],
        },
        "spec": {"revision": number},
        "status": {"conditions": conditions},
    }


def choose(revisions: Sequence[Object], ref: str, policy: str = "Automatic") -> Any:
    fields: Object = {"compositionUpdatePolicy": policy}
    if ref:
        fields["compositionRevisionRef"] = {"name": ref}
    xr = {"apiVersion": "example.org/v1", "kind": "App", "metadata": {"name": "x"}, "spec": {"crossplane": fields}}
    return choose_revision(xr, {}, COMPOSITION, list(revisions), style="modern", composition_uid=UID)


VALID = st.sampled_from([None, "True", "False"])
REFS = st.sampled_from(["", "db-1", "db-2", "db-3", "db-4", "db-9"])


@given(st.lists(VALID, min_size=1, max_size=6), REFS)
def test_without_a_released_condition_everything_is_as_it_was(valid: list[str | None], ref: str) -> None:
    revisions = [revision(number, each, None) for number, each in enumerate(valid, 1)]
    newest = newest_first(revisions)
    before = next(filter(is_validated, newest), newest[0])
    assert choose(revisions, ref).revision is before


@given(
    st.lists(st.tuples(VALID, st.sampled_from([None, "Released", *REASONS])), min_size=1, max_size=6),
    REFS,
)
def test_nobody_comes_to_a_revision_that_is_withheld_or_not_validated(
    history: list[tuple[str | None, str | None]], ref: str
) -> None:
    revisions = [revision(number, valid, released) for number, (valid, released) in enumerate(history, 1)]
    try:
        choice = choose(revisions, ref)
    except NotReleased:
        assert ref not in {each["metadata"]["name"] for each in revisions}
        assert not any(is_validated(each) and _is_open(each) for each in revisions)
        return
    if choice.name != ref:
        assert _is_open(choice.revision)
        assert is_validated(choice.revision) or not any(is_validated(each) and _is_open(each) for each in revisions)


def _is_open(each: Object) -> bool:
    release = release_of(each)
    return release is None or not release.withholds


@pytest.mark.parametrize(
    ("history", "ref", "wanted"),
    [
        pytest.param(["Released", "Held"], "db-1", "db-1", id="a held one moves nobody"),
        pytest.param(["Released", "InRollout"], "db-2", "db-2", id="who was admitted stays"),
        pytest.param(["Released", "Aborted"], "db-2", "db-1", id="an abort brings back"),
        pytest.param(["Released", "Undone"], "db-2", "db-1", id="an undo brings back"),
        pytest.param(["Released", "Superseded", "Held"], "db-2", "db-2", id="superseded waits for the next one"),
        pytest.param(["Released", "Superseded", "Aborted"], "db-2", "db-1", id="and goes back if that is aborted"),
        pytest.param(["Released", "InRollout", "Released"], "db-2", "db-3", id="a newer released one is taken"),
        pytest.param(["Aborted"], "db-1", "db-1", id="no way back: it stays"),
        pytest.param(["Released", "Released"], "", "db-2", id="a new XR takes the newest released"),
        pytest.param(["Released", "InRollout"], "", "db-1", id="a new XR takes the stable one"),
    ],
)
def test_the_rule_by_example(history: list[str], ref: str, wanted: str) -> None:
    revisions = [revision(number, "True", released) for number, released in enumerate(history, 1)]
    assert choose(revisions, ref).name == wanted


def test_who_goes_back_prefers_a_revision_that_can_be_run() -> None:
    revisions = [revision(1, "True", "Released"), revision(2, "False", "Released"), revision(3, "True", "Aborted")]
    assert choose(revisions, "db-3").name == "db-1"
    assert choose(revisions, "db-1").name == "db-2"


def test_an_xr_that_cannot_go_back_says_so() -> None:
    assert choose([revision(1, "True", "Aborted")], "db-1").no_way_back
    assert not choose([revision(1, "True", "InRollout")], "db-1").no_way_back
