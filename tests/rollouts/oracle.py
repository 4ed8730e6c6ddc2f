"""What must hold of every history of Rollouts, whatever was killed, lost, doubled or changed in between.

The history is what an API server stored, object after object in the order of its writes: of CompositionRevisions,
Rollouts, RolloutActions and XRs. Nothing here asks a controller; who moved an XR is read from its managed fields.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import COMPOSITION_REVISION, ROLLOUT, ROLLOUT_ACTION
from planform.client.protocol import Client
from planform.rollouts.xr_facts import MANAGER
from tests.harness.contexts import condition_of, eventually

DEFAULT_CONCURRENCY = 50
_STOPS = frozenset({"Abort", "Fail", "Supersede"})
_PASSED = ("Passed", "Skipped")


@dataclass(frozen=True)
class Stored:
    """One write, as the API server has it."""

    obj: Object
    deleted: bool = False

    @property
    def version(self) -> int:
        return int(self.obj["metadata"]["resourceVersion"])


@dataclass
class Oracle:
    """Sees one write after the other; `wrong` says what should not have happened."""

    xr_kind: str
    wrong: list[str] = field(default_factory=list)
    admissions: Counter[str] = field(default_factory=Counter)
    """By the name of the Rollout."""
    late: Counter[str] = field(default_factory=Counter)
    """Of these, the ones that were stored after a stop was: they had begun before."""
    _xrs: dict[str, Object] = field(default_factory=dict)
    _revisions: dict[str, Object] = field(default_factory=dict)
    _rollouts: dict[str, Object] = field(default_factory=dict)
    _actions: dict[str, set[str]] = field(default_factory=dict)

    def see(self, stored: Stored, *, at_first: bool = False) -> None:
        """`at_first`: it was like this before the history began."""
        obj, kind, name = stored.obj, stored.obj["kind"], stored.obj["metadata"]["name"]
        known = {self.xr_kind: self._xrs, COMPOSITION_REVISION.kind: self._revisions, ROLLOUT.kind: self._rollouts}
        if kind == ROLLOUT_ACTION.kind:
            if not stored.deleted:
                self._actions.setdefault(obj["spec"]["rollout"], set()).add(obj["spec"]["action"])
        elif kind in known:
            before = known[kind].get(name)
            if stored.deleted:
                known[kind].pop(name, None)
                return
            known[kind][name] = obj
            if at_first:
                return
            if kind == self.xr_kind:
                self._moved(before, obj)
            elif kind == ROLLOUT.kind:
                self._at_most_one_is_active(obj)

    def judge(self) -> None:
        """Raise AssertionError with everything that was wrong."""
        for name, count in self.late.items():
            rollout = self._rollouts.get(name)
            if rollout is not None and count > _concurrency(rollout):
                self.wrong.append(f"{count} admissions of {name} were stored after it was stopped")
        assert not self.wrong, "\n".join(self.wrong)

    # -- one XR moves

    def _moved(self, before: Object | None, xr: Object) -> None:
        old, new = _revision(before or {}), _revision(xr)
        if new in ("", old):
            return
        name = xr["metadata"]["name"]
        if _owner(xr) != MANAGER:
            released = condition_of(self._revisions.get(new) or {}, "Released")
            if released is not None and released["status"] == "False":
                self.wrong.append(f"{name} took {new} by itself, which was {released['reason']}")
            return
        rollout = self._rollout_to(new)
        if rollout is None:
            self.wrong.append(f"{name} was moved to {new}, to which there is no Rollout")
            return
        self._admitted(xr, rollout, new)

    def _admitted(self, xr: Object, rollout: Object, target: str) -> None:
        name, own = xr["metadata"]["name"], rollout["metadata"]["name"]
        actions = self._actions.get(own, set())
        self.admissions[own] += 1
        if actions & _STOPS or {"Complete", "Undo"} <= actions:
            self.late[own] += 1
            return
        moving = [each for each in self._xrs.values() if _revision(each) == target and not _has_settled(each, target)]
        if len(moving) > _concurrency(rollout):
            self.wrong.append(f"{len(moving)} were on their way to {target} when {name} was moved")
        if "PromoteFull" not in actions:
            self._in_turn(xr, rollout, target, actions)

    def _in_turn(self, xr: Object, rollout: Object, target: str, actions: set[str]) -> None:
        """Every wave that stands before this XR's is done: its XRs have settled on the target, its gates passed."""
        strategy = rollout["spec"]["strategy"]
        waves: Sequence[Mapping[str, Any]] = strategy.get("waves") or ()
        place = _wave_of(xr, waves)
        reports = {each["name"]: each for each in (rollout.get("status") or {}).get("waves") or ()}
        for wave in waves[:place]:
            report = reports.get(wave["name"]) or {}
            who = [each for each in self._xrs.values() if _wave_of(each, waves) < place and _is_followed(each)]
            left = [each["metadata"]["name"] for each in who if not _has_settled(each, target)]
            if left:
                self.wrong.append(f'{xr["metadata"]["name"]} was moved before {left} of wave "{wave["name"]}" settled')
            states = {each["name"]: each.get("verdict") for each in report.get("gates") or ()}
            wanted = [each["name"] for each in strategy.get("gates") or ()]
            if "SkipGate" not in actions and "Promote" not in actions:
                missing = [each for each in wanted if who and states.get(each) not in _PASSED]
                if missing:
                    self.wrong.append(f'{xr["metadata"]["name"]} was moved before {missing} of "{wave["name"]}" passed')
        if place < len(waves) and waves[place].get("approval") and not actions & {"Approve", "Promote"}:
            self.wrong.append(f"{xr['metadata']['name']} was moved without an approval")

    def _rollout_to(self, target: str) -> Object | None:
        """The latest to this revision."""
        found = [each for each in self._rollouts.values() if each["spec"]["changes"][0]["to"] == target]
        return max(found, key=_order, default=None)

    def _at_most_one_is_active(self, rollout: Object) -> None:
        change = rollout["spec"]["changes"][0]
        same = [
            each
            for each in self._rollouts.values()
            if each["spec"]["changes"][0]["composition"] == change["composition"] and _order(each) == _order(rollout)
        ]
        if len(same) > 1:
            self.wrong.append(f"two Rollouts of one revision: {[each['metadata']['name'] for each in same]}")


def _order(rollout: Object) -> tuple[int, int]:
    return rollout["spec"]["changes"][0]["toNumber"], rollout["spec"].get("attempt", 1)


def _concurrency(rollout: Object) -> int:
    return int(rollout["spec"]["strategy"].get("concurrency") or DEFAULT_CONCURRENCY)


def _revision(xr: Object) -> str:
    fields = (xr.get("spec") or {}).get("crossplane") or {}
    return str((fields.get("compositionRevisionRef") or {}).get("name") or "")


def _owner(xr: Object) -> str:
    for entry in xr["metadata"].get("managedFields") or ():
        fields = ((entry.get("fieldsV1") or {}).get("f:spec") or {}).get("f:crossplane") or {}
        if "f:name" in (fields.get("f:compositionRevisionRef") or {}) and not entry.get("subresource"):
            return str(entry.get("manager") or "")
    return ""


def _is_followed(xr: Object) -> bool:
    fields = (xr.get("spec") or {}).get("crossplane") or {}
    return fields.get("compositionUpdatePolicy") != "Manual" and not xr["metadata"].get("deletionTimestamp")


def _has_settled(xr: Object, target: str) -> bool:
    """By what was found after the move, for the generation that it made; an older word for Ready does not count."""
    if _revision(xr) != target:
        return False
    own = ((xr.get("status") or {}).get("planform") or {}).get("composedBy") or {}
    current = own.get("revision") == target and own.get("generation") == xr["metadata"].get("generation")
    well = all((condition_of(xr, each) or {}).get("status") == "True" for each in ("Synced", "Ready"))
    return bool(current and ((own.get("observed") and well) or own.get("failures", 0) >= 3))


def _wave_of(xr: Object, waves: Sequence[Mapping[str, Any]]) -> int:
    """By labels alone; a wave without a selector takes everybody who is left."""
    labels = xr["metadata"].get("labels") or {}
    for index, wave in enumerate(waves):
        wanted = ((wave.get("xrs") or {}).get("matchLabels") or {}).items()
        if all(labels.get(key) == value for key, value in wanted):
            return index
    return len(waves)


# -- a history by watches, on whichever engine


@asynccontextmanager
async def judged(client: Client, xr_kind: GroupVersionKind) -> AsyncIterator[Oracle]:
    """Everything that is stored within the block is judged at its end, by an oracle that may be asked for counts."""
    oracle, seen = Oracle(xr_kind.kind), list[Stored]()
    kinds = (COMPOSITION_REVISION, ROLLOUT, ROLLOUT_ACTION, xr_kind)
    versions: dict[GroupVersionKind, str] = {}
    for kind in kinds:
        listed = await client.list(kind)
        versions[kind] = listed.resource_version
        for obj in listed.items:
            named = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
            oracle.see(Stored(named), at_first=True)
    tasks = [asyncio.create_task(_record(client, kind, versions[kind], seen)) for kind in kinds]
    try:
        yield oracle
        last = {kind: int((await client.list(kind)).resource_version) for kind in kinds}
        count = -1

        async def told() -> bool:
            nonlocal count
            before, count = count, len(seen)
            await asyncio.sleep(0.2)
            return before == count == len(seen)

        await eventually(told, f"the watches have told everything up to {last}")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for stored in sorted(seen, key=lambda each: each.version):
        oracle.see(stored)
    oracle.judge()


async def _record(client: Client, kind: GroupVersionKind, version: str, seen: list[Stored]) -> None:
    """A watch that goes on where it was cut."""
    while True:
        async with client.watch(kind, resource_version=version) as events:
            async for event in events:
                version = event.object["metadata"]["resourceVersion"]
                if event.type in ("ADDED", "MODIFIED", "DELETED"):
                    named = {"apiVersion": kind.api_version, "kind": kind.kind, **event.object}
                    seen.append(Stored(named, deleted=event.type == "DELETED"))
