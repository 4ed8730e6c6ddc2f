"""Who may decide about Rollouts and refer to revisions that are not released, as the embedded chain and the webhook
ask."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from planform.api.kinds import Kind, Object
from planform.api.names import ROLLOUT, ROLLOUT_ACTION
from planform.apiserver.admission.chain import Admission
from planform.apiserver.verbs.requests import CONTROL_PLANE, Request, User
from planform.client.rights import Access
from planform.clock import VirtualClock
from planform.errors import Forbidden
from planform.rollouts.admission import RolloutGuard, questions

ALICE = User("alice", ("platform-leads",))
ACTIONS = Kind(ROLLOUT_ACTION.group, ROLLOUT_ACTION.version, ROLLOUT_ACTION.kind, "rolloutactions", namespaced=False)
ROLLOUTS = Kind(ROLLOUT.group, ROLLOUT.version, ROLLOUT.kind, "rollouts", namespaced=False)
APPS = Kind("example.org", "v1", "App", "apps", namespaced=True)
HELD = {"status": {"conditions": [{"type": "Released", "status": "False", "reason": "InRollout"}]}}
OPEN = {"status": {"conditions": [{"type": "Released", "status": "True", "reason": "Released"}]}}


def guard(*verbs: str, revision: Object | None = None) -> RolloutGuard:
    def allows(_: User, access: Access) -> bool:
        return access.verb in verbs and access.resource == "rollouts"

    return RolloutGuard(allows, lambda _: revision, VirtualClock(datetime(2026, 1, 2, tzinfo=UTC)))


def write(kind: Kind, spec: Object, *, user: User = ALICE, old: Object | None = None) -> Admission:
    new: Object = {"metadata": {"name": "one"}, "spec": spec}
    before = None if old is None else {"metadata": {"name": "one"}, "spec": old}
    operation: Any = "CREATE" if old is None else "UPDATE"
    return Admission(operation, kind, "", "one", new, before, "", Request(user=user))


def test_the_server_says_who_acts_whatever_the_action_says() -> None:
    action = write(ACTIONS, {"rollout": "r", "action": "Abort", "by": "mallory", "groups": ["root"], "at": "1999"})
    guard("abort").admit(action)
    assert action.new is not None
    spec = action.new["spec"]
    assert (spec["by"], spec["groups"], spec["at"]) == ("alice", ["platform-leads"], "2026-01-02T00:00:00.000000Z")


@pytest.mark.parametrize(
    ("action", "verb"),
    [
        ("Pause", "pause"),
        ("Resume", "resume"),
        ("Approve", "approve"),
        ("Promote", "promote"),
        ("PromoteFull", "promote"),
        ("SkipGate", "skipgate"),
        ("Abort", "abort"),
        ("Undo", "undo"),
        ("Retry", "retry"),
    ],
)
def test_each_action_needs_its_verb(action: str, verb: str) -> None:
    everything_else = {"pause", "resume", "approve", "promote", "skipgate", "abort", "undo", "retry"} - {verb}
    with pytest.raises(Forbidden, match=verb):
        guard(*everything_else).admit(write(ACTIONS, {"rollout": "r", "action": action}))
    guard(verb).admit(write(ACTIONS, {"rollout": "r", "action": action}))


@pytest.mark.parametrize("action", ["Complete", "Supersede", "Fail"])
def test_only_the_control_plane_completes_supersedes_and_fails(action: str) -> None:
    spec = {"rollout": "r", "action": action}
    with pytest.raises(Forbidden):
        guard("abort", "approve", "promote", action.lower()).admit(write(ACTIONS, dict(spec)))
    own = write(ACTIONS, {**spec, "by": "planform"}, user=CONTROL_PLANE)
    guard().admit(own)
    assert own.new is not None and own.new["spec"]["by"] == "planform" and own.new["spec"]["at"]


def test_only_the_control_plane_and_a_restore_make_rollouts() -> None:
    with pytest.raises(Forbidden, match="restore"):
        guard("abort").admit(write(ROLLOUTS, {}))
    guard("restore").admit(write(ROLLOUTS, {}))
    guard().admit(write(ROLLOUTS, {}, user=CONTROL_PLANE))


@pytest.mark.parametrize("legacy", [False, True], ids=["modern", "legacy or claim"])
def test_a_revision_that_is_not_released_is_referred_to_only_with_adopt(legacy: bool) -> None:
    def spec(name: str) -> Object:
        reference = {"compositionRevisionRef": {"name": name}}
        return reference if legacy else {"crossplane": reference}

    with pytest.raises(Forbidden, match="adopt"):
        guard(revision=HELD).admit(write(APPS, spec("new")))
    with pytest.raises(Forbidden, match="adopt"):
        guard(revision=HELD).admit(write(APPS, spec("new"), old=spec("old")))
    guard("adopt", revision=HELD).admit(write(APPS, spec("new")))
    guard(revision=HELD).admit(write(APPS, {**spec("new"), "size": 2}, old=spec("new")))
    guard(revision=OPEN).admit(write(APPS, spec("new")))
    guard(revision=None).admit(write(APPS, spec("new")))
    guard(revision=HELD).admit(write(APPS, spec("new"), user=CONTROL_PLANE))


def test_the_webhook_asks_exactly_what_the_plugin_needs_to_know() -> None:
    asked = list(questions(write(ACTIONS, {"rollout": "r", "action": "Undo"}), ()))
    assert {each.verb for each in asked} == {"restore", "undo"}
    assert [each.name for each in asked if each.verb == "undo"] == ["r"]
    moved = write(APPS, {"crossplane": {"compositionRevisionRef": {"name": "new"}}})
    assert [each.verb for each in questions(moved, ())] == ["adopt"]
    assert list(questions(write(APPS, {"size": 1}), ())) == []
    assert list(questions(moved, (ALICE.name,))) == []
