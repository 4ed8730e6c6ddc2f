"""What a RolloutPolicy pins in revisions of Compositions, and what that makes of their identity and release."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planform.api.rollouts import Rollout, RolloutAction, RolloutPolicy
from planform.compositions.pinning import changed_functions, frozen_spec, held_spec, is_made_again, pins_of
from planform.compositions.released import derive, kept_revisions, policy_for, records_of
from planform.compositions.revisions import identity_of, newest_first, plan_revisions, revision_name
from planform.functions.resolution import Catalogue, Version

Object = dict[str, Any]


def step(name: str = "a", function: str = "f", **more: Any) -> Object:
    return {"step": name, "functionRef": {"name": function}, **more}


def composition(*steps: Object, **spec: Any) -> Object:
    return {
        "apiVersion": "apiextensions.crossplane.io/v1",
        "kind": "Composition",
        "metadata": {"name": "example", "uid": "uid", "labels": {}},
        "spec": {
            "compositeTypeRef": {"apiVersion": "example.org/v1", "kind": "XDatabase"},
            "mode": "Pipeline",
            "pipeline": list(steps or [step()]),
            **spec,
        },
    }


def version(number: int, function: str = "f", **more: Any) -> Version:
    return Version(function, f"{function}-{number}", number=number, **more)


def pinned(spec: Object, *versions: Version, last: Object | None = None, held: list[str] | None = None) -> list[str]:
    found = held_spec(spec, Catalogue(versions), held=held, last=last or {})
    return [(each.get("functionRevisionRef") or {}).get("name", "") for each in found["pipeline"]]


LAST = {"f": frozenset({"f-2"})}


@pytest.mark.parametrize(
    ("spec", "versions", "last", "wanted"),
    [
        pytest.param(composition()["spec"], [version(1), version(2)], {}, "f-2", id="the highest that is ready"),
        pytest.param(
            composition()["spec"], [version(1), version(2, ready=False)], {}, "f-1", id="not one that is not ready"
        ),
        pytest.param(
            composition()["spec"], [version(1), version(2, ready=False)], LAST, "f-2", id="what was healthy once stays"
        ),
        pytest.param(
            composition()["spec"], [version(1), version(2, active=False)], LAST, "f-2", id="also while it is inactive"
        ),
        pytest.param(composition()["spec"], [version(2, active=False)], LAST, "f-2", id="also where nothing serves"),
        pytest.param(composition()["spec"], [version(1)], LAST, "f-1", id="one that is gone is not pinned"),
        pytest.param(
            composition()["spec"], [version(3), version(2)], LAST, "f-3", id="a higher number that is ready wins"
        ),
        pytest.param(
            composition()["spec"],
            [version(2), version(1, labels={"planform.dev/stable": "true"})],
            LAST,
            "f-1",
            id="a mark is somebody's decision",
        ),
        pytest.param(composition()["spec"], [version(1, ready=False)], {}, "", id="nothing has been healthy yet"),
        pytest.param(composition()["spec"], [], {}, "", id="nobody installed it"),
        pytest.param(composition()["spec"], [version(0)], {}, "", id="a built-in follows the release"),
        pytest.param(
            composition(step(functionRevisionSelector={"matchLabels": {"channel": "old"}}))["spec"],
            [version(1, labels={"channel": "old"}), version(2)],
            LAST,
            "f-1",
            id="a selector is kept to",
        ),
        pytest.param(
            composition(step(functionRevisionRef={"name": "f-1"}))["spec"],
            [version(1), version(2)],
            LAST,
            "f-1",
            id="what the author named stays",
        ),
        pytest.param(composition(pinFunctions=True)["spec"], [version(1)], {}, "", id="who pins decides when"),
    ],
)
def test_pins_follow_the_highest_number_that_has_been_healthy(
    spec: Object, versions: list[Version], last: Object, wanted: str
) -> None:
    before = copy.deepcopy(spec)
    assert pinned(spec, *versions, last=last) == [wanted]
    assert spec == before


def test_a_policy_for_some_functions_pins_only_those() -> None:
    spec = composition(step("a", "f"), step("b", "g"))["spec"]
    assert pinned(spec, version(1), version(1, "g"), held=["g"]) == ["", "g-1"]
    assert pinned(spec, version(1), version(1, "g")) == ["f-1", "g-1"]


REGIONS = st.text(alphabet="abc", max_size=3)
STEPS = st.lists(
    st.builds(lambda name, region: step(name, "f", input={"region": region}), st.text("xyz", min_size=1), REGIONS),
    min_size=1,
    max_size=4,
)


@given(STEPS, st.dictionaries(st.sampled_from(["tier", "team"]), REGIONS))
def test_without_a_policy_a_revision_is_what_it_was(steps: list[Object], labels: dict[str, str]) -> None:
    found = composition(*steps)
    found["metadata"]["labels"] = labels
    for held in (None, found["spec"], held_spec(found["spec"], Catalogue([version(0)]), held=None, last={})):
        plan = plan_revisions(found, [], held_spec=held)
        assert plan.create is not None
        assert plan.create["metadata"]["name"] == revision_name("example", identity_of(found))
        assert "annotations" not in plan.create["metadata"]
        assert plan.create["spec"] == {**found["spec"], "revision": 1}


def test_the_name_of_a_revision_is_the_one_that_earlier_releases_gave_it() -> None:
    assert revision_name("example", identity_of(composition())) == "example-4c0db5cdfd60"


def test_pins_are_part_of_the_identity_and_going_back_finds_the_former_revision() -> None:
    found, revisions = composition(), list[Object]()
    names = []
    for pins in ([], [version(1)], [version(2)], [version(1)], []):
        held = held_spec(found["spec"], Catalogue(pins), held=None, last={})
        plan = plan_revisions(found, revisions, held_spec=held)
        if plan.create is not None:
            revisions.append(plan.create)
        else:
            assert plan.current is not None and plan.renumber is not None
            plan.current["spec"]["revision"] = plan.renumber
        names.append(newest_first(revisions)[0]["metadata"]["name"])
        assert not plan_revisions(found, revisions, held_spec=held).changes
    assert (names[3], names[4]) == (names[1], names[0])
    assert len(set(names)) == 3
    annotations = [(each["metadata"].get("annotations") or {}) for each in revisions]
    unpinned = {"planform.dev/unpinned-revision": names[0]}
    assert annotations == [{}, unpinned, unpinned]


def test_a_policy_that_is_gone_leaves_the_pins_of_a_rollout_that_goes_on() -> None:
    spec = composition()["spec"]
    held = held_spec(spec, Catalogue([version(2)]), held=None, last={})
    assert frozen_spec(spec, pins_of({"spec": held})) == held
    assert frozen_spec(spec, {}) == spec


# -- released or not


def revision(number: int, *pins: str, text: str = "", status: str | None = None) -> Object:
    """A revision of `composition()` whose only step is pinned to this; `status` is what it says of its release."""
    found = composition(step(input={"text": text}))
    held = found["spec"]
    if pins:
        held = {**held, "pipeline": [{**held["pipeline"][0], "functionRevisionRef": {"name": pins[0]}}]}
    made = plan_revisions(found, [], held_spec=held).create
    assert made is not None
    made["spec"]["revision"] = number
    if status is not None:
        conditions: list[Object] = [{"type": "ValidPipeline", "status": "True", "reason": "x"}]
        if status:
            released = "True" if status == "Released" else "False"
            conditions.append({"type": "Released", "status": released, "reason": status})
        made["status"] = {"conditions": conditions}
    return made


def name(revision: Object) -> str:
    return str(revision["metadata"]["name"])


def judged(*revisions: Object, held: bool = True) -> tuple[str, dict[int, str]]:
    derived = derive(revisions, [], held=held)
    numbers = {name(each): each["spec"]["revision"] for each in revisions}
    return derived.stable, {numbers[each]: condition.reason for each, condition in derived.conditions.items()}


def test_what_runs_is_made_again_and_released_at_once_and_what_comes_then_is_held() -> None:
    plain, first, second = revision(1, status=""), revision(2, "f-1"), revision(3, "f-2")
    assert is_made_again(plain, first) and not is_made_again(first, second) and not is_made_again(first, plain)
    assert judged(plain, first) == (name(first), {1: "Released", 2: "Released"})
    assert judged(plain, first, second) == (name(first), {1: "Released", 2: "Released", 3: "Held"})
    wiped = [{**each, "status": {}} for each in (plain, first, second)]
    assert judged(*wiped) == (name(first), {1: "Released", 2: "Released", 3: "Held"}), "a restore is fail-closed"


def test_a_changed_composition_is_held_though_it_is_pinned_for_the_first_time() -> None:
    plain, changed = revision(1, status=""), revision(2, "f-1", text="changed")
    assert not is_made_again(plain, changed)
    assert judged(plain, changed) == (name(plain), {1: "Released", 2: "Held"})


def test_the_note_of_which_revision_it_would_be_is_not_believed_against_its_content() -> None:
    plain, forged = revision(1, status=""), revision(2, "f-1", text="changed")
    forged["metadata"]["annotations"] = {"planform.dev/unpinned-revision": name(plain)}
    assert not is_made_again(plain, forged)


def test_functions_that_are_pinned_otherwise_are_what_has_changed() -> None:
    assert changed_functions(revision(1, "f-1"), revision(2, "f-2")) == {"f": "f-2"}
    assert changed_functions(revision(1), revision(2, "f-2")) == {}
    assert changed_functions(None, revision(2, "f-2")) == {}


def rollout(of: Object, to: Object, *actions: str, attempt: int = 1) -> tuple[Rollout, list[RolloutAction]]:
    change = {"composition": "example", "uid": "uid", "to": name(to), "toNumber": to["spec"]["revision"]}
    change |= {"from": name(of), "fromNumber": of["spec"]["revision"]}
    called = f"example-{attempt}"
    made = {
        "metadata": {"name": called, "uid": called},
        "spec": {"changes": [change], "attempt": attempt, "strategy": {}},
    }
    acted = [{"metadata": {"name": each, "uid": each}, "spec": {"rollout": called, "action": each}} for each in actions]
    return msgspec.convert(made, Rollout), msgspec.convert(acted, list[RolloutAction])


def test_what_was_superseded_with_another_composition_and_is_still_the_newest_waits_again() -> None:
    before, after = revision(2, "f-1", status="Released"), revision(3, "f-2", status="InRollout")
    found, actions = rollout(before, after, "Supersede")
    records = records_of("example", "uid", [found], {found.metadata.name: actions})
    derived = derive([before, after], records, held=True)
    assert (derived.stable, derived.awaits) == (name(before), name(after))
    assert derived.conditions[name(after)].reason == "Held"
    assert name(before) in kept_revisions([after, before], records, rollback=0)


def policies(**scopes: Object) -> list[RolloutPolicy]:
    return [
        msgspec.convert({"metadata": {"name": each}, "spec": {"for": scope}}, RolloutPolicy)
        for each, scope in scopes.items()
    ]


@pytest.mark.parametrize(
    ("scopes", "wanted"),
    [
        pytest.param({"a": {"functions": {"names": ["f"]}}}, "a", id="a function that it calls"),
        pytest.param({"a": {"functions": {"names": ["g"]}}}, "", id="a function that it does not call"),
        pytest.param({"a": {"functions": {}}}, "a", id="all functions"),
        pytest.param({"a": {"compositions": {}}, "b": {"functions": {"names": ["f"]}}}, "b", id="rather than all"),
        pytest.param(
            {"a": {"functions": {"names": ["f"]}}, "b": {"compositions": {"names": ["example"]}}},
            "b",
            id="but not rather than its name",
        ),
        pytest.param(
            {"a": {"compositions": {"names": ["other"]}, "functions": {"names": ["f"]}}},
            "",
            id="of other Compositions only",
        ),
    ],
)
def test_a_policy_for_functions_holds_the_compositions_that_call_them(scopes: Object, wanted: str) -> None:
    found, _ = policy_for(composition(), policies(**scopes))
    assert (found.metadata.name if found is not None else "") == wanted
