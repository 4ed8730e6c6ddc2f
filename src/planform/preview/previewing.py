"""Previewing XRs: baseline and candidate of each are run, and the difference is what the change causes.

Used by the controller of Previews, by `planform preview` against clusters without planform, and by Rollouts for a
single XR whose preview is stale.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from planform.api.annotations import is_paused
from planform.api.kinds import GroupVersionKind, Object
from planform.api.owners import controller_of
from planform.api.previews import ObjectChange, Scope
from planform.apimachinery.selectors import LabelSelector
from planform.client.informer import list_pages
from planform.errors import Forbidden, NotFound, PlanformError
from planform.functions.runner import BUILTIN_DIGEST, CredentialSource
from planform.pipeline.expectation import input_digest
from planform.preview.candidates import Reach
from planform.preview.classes import TEAM_LABELS, XrResult
from planform.preview.field_diffs import content_of, field_changes
from planform.preview.overlay import Place, place_of
from planform.preview.patience import NoLongerCalled
from planform.preview.schema_changes import SchemaChange
from planform.preview.side_runs import RunWith, SideRun, run_side, unstable_paths
from planform.preview.sides import Choice, Side, composed_type
from planform.preview.subtraction import CannotPreview, as_it_is, result_of
from planform.xrs.index import Definition

MAX_DEPTH: Final = 10
_NAMESPACE: Final = GroupVersionKind("", "v1", "Namespace")


@dataclass
class Previewer:
    """Both sides of one change. `pinned` counts XRs that do not follow it."""

    baseline: Side
    candidate: Side
    reach: Reach
    around: RunWith
    include_manual: bool = False
    pinned: int = 0
    followed: set[Place] = field(default_factory=set)
    """Nested XRs that were looked at with their parents."""
    _teams: dict[str, str] = field(default_factory=dict)
    _schemas: dict[str, SchemaChange] = field(default_factory=dict)

    def bound_credentials(self, bound: Callable[[CredentialSource], CredentialSource]) -> None:
        """Let steps have credentials only through this."""
        self.around = replace(self.around, bound=bound)

    async def xrs(self, scope: Scope) -> AsyncIterator[tuple[Definition, Object] | None]:
        """The XRs that the change may reach, those that nobody composes first.

        None stands where all before must be through first: an XR may change those that it composes, which then are
        looked at with it.
        """
        selector = LabelSelector.from_object(scope.xrs or {})
        later: list[tuple[Definition, Object]] = []
        for definition in list(self.baseline.definitions.values()):
            if not self._may_reach(definition):
                continue
            taken = 0
            async for xr in self._of_kind(definition, scope, selector):
                if scope.sample and taken >= scope.sample:
                    break
                if not self._is_reached(definition, xr):
                    continue
                taken += 1
                owner = controller_of(xr)
                if owner is not None and self.baseline.definition_of(owner) is not None:
                    later.append((definition, xr))
                else:
                    yield definition, xr
        for place, new in self.reach.xrs.items():
            its = self.candidate.definition_of(new) if new is not None else None
            if new is not None and its is not None and not await self._exists(its, place):
                yield its, new
        for level in _levels(later):
            yield None
            for definition, xr in level:
                if place_of(xr) not in self.followed:
                    yield definition, xr

    async def preview(self, definition: Definition, xr: Object) -> list[XrResult]:
        """What the change does to the XR, and to existing XRs that it composes and that change with it."""
        try:
            return await self._preview(definition, xr, xr, self.baseline, self.candidate, 0)
        except PlanformError as error:  # of the engine: the other XRs may still be looked at
            failed = SideRun(failure=CannotPreview(str(error)))
            return [result_of(definition, xr, failed, failed, team=await self._team(xr))]

    async def _preview(
        self, definition: Definition, xr: Object, wanted: Object, before: Side, after: Side, depth: int
    ) -> list[XrResult]:
        place = place_of(xr)
        team = await self._team(xr)
        target = after.definitions.get(definition.group_kind)
        if place in self.reach.xrs and depth == 0:
            changed = self.reach.xrs[place]
            if changed is None:
                return [await self._deleted(definition, xr, before, team)]
            wanted = changed
            if place in self.reach.refused:
                return [self._invalid(definition, xr, str(self.reach.refused[place]), team)]
        if target is None:
            return [await self._deleted(definition, xr, before, team)]
        schema = self._schema(definition, target)
        wanted, verdict = schema.upgraded(wanted) if schema is not None else (wanted, None)
        if verdict is not None and verdict.invalid:
            return [self._invalid(definition, xr, "; ".join(verdict.invalid), team)]
        is_new = depth == 0 and not await self._exists(definition, place) if place in self.reach.xrs else False
        follows = self.include_manual
        if self.reach.release:
            candidate = await run_side(after, target, wanted, self.around, like=SideRun(), follows=follows)
            baseline = as_it_is(xr, candidate)
        else:
            baseline = SideRun(stable=True) if is_new else await run_side(before, definition, xr, self.around)
            candidate = await run_side(after, target, wanted, self.around, like=baseline, follows=follows)
        self._give_up(baseline, candidate)
        result = result_of(definition, xr, baseline, candidate, team=team)
        if (result.changes or result.drifting) and not (baseline.deterministic and candidate.deterministic):
            unstable = await self._unstable(definition, target, xr, wanted, before, after, baseline, candidate, is_new)
            result = result_of(definition, xr, baseline, candidate, unstable=unstable, team=team)
        own = [] if verdict is None else [ObjectChange(kind=target.kind.kind, action="Update", fields=verdict.fields)]
        if wanted is not xr and not is_new and verdict is None:
            fields = field_changes(content_of(xr), content_of(wanted))
            own = [ObjectChange(kind=target.kind.kind, action="Update", fields=fields)] if fields else []
        if own and own[0].fields:
            result = _with(result, own, candidate)
        if is_new:
            result = _with(result, [ObjectChange(kind=target.kind.kind, action="Create")], candidate)
        if is_paused(xr) and result.outcome == "Changed":
            result = replace(result, waits=(*result.waits, "the XR is paused: nothing happens until it is not"))
        nested, below = await self._nested(result, baseline, candidate, before, after, depth)
        return [_with(result, nested, candidate) if nested else result, *below]

    async def _unstable(
        self,
        definition: Definition,
        target: Definition,
        xr: Object,
        wanted: Object,
        before: Side,
        after: Side,
        baseline: SideRun,
        candidate: SideRun,
        is_new: bool,
    ) -> Mapping[str, frozenset[str]]:
        """Fields that functions answer differently each time, found by asking again."""
        found: dict[str, frozenset[str]] = {}
        pairs: list[tuple[SideRun, SideRun]] = []
        if not baseline.deterministic and not is_new and not self.reach.release:
            pairs.append((baseline, await run_side(before, definition, xr, self.around, cached=False)))
        if not candidate.deterministic:
            again = await run_side(
                after, target, wanted, self.around, like=baseline, follows=self.include_manual, cached=False
            )
            pairs.append((candidate, again))
        for one, other in pairs:
            for differing in (unstable_paths(one.wanted, other.wanted), one.restless, other.restless):
                for key, paths in differing.items():
                    found[key] = found.get(key, frozenset()) | paths
            status = field_changes({"status": one.status}, {"status": other.status})
            if status:
                found[""] = found.get("", frozenset()) | {each.path for each in status}
        return found

    async def _nested(
        self, result: XrResult, baseline: SideRun, candidate: SideRun, before: Side, after: Side, depth: int
    ) -> tuple[list[ObjectChange], list[XrResult]]:
        """What becomes of XRs that this one composes: of existing ones results of their own, of those that come or go
        all that they compose."""
        if depth >= MAX_DEPTH or candidate.failure is not None:
            return [], []
        changes: list[ObjectChange] = []
        below: list[XrResult] = []
        upper = replace(before, client=baseline.client or before.client)
        lower = replace(after, client=candidate.client or after.client)
        for change in result.changes:
            old, new = baseline.results.get(change.resource), candidate.results.get(change.resource)
            child = before.definition_of(old) if old is not None else None
            coming = after.definition_of(new) if new is not None else None
            if change.action == "Update" and child is not None and old is not None and new is not None:
                self.followed.add(place_of(old))
                below += await self._preview(
                    child, old, {**new, "status": old.get("status") or {}}, upper, lower, depth + 1
                )
                continue
            if child is not None and old is not None and change.action in ("Delete", "Recreate"):
                self.followed.add(place_of(old))
                gone = await run_side(upper, child, old, self.around)
                changes += [
                    ObjectChange(kind=obj["kind"], action="Delete", resource=f"{change.resource}/{key}")
                    for key, obj in sorted((gone.observed or {}).items())
                ]
            if coming is not None and new is not None and change.action in ("Create", "Recreate"):
                made = await run_side(lower, coming, new, self.around)
                if made.failure is not None:
                    text = str(made.failure)
                    changes.append(
                        ObjectChange(kind=new["kind"], action="Fail", resource=change.resource, message=text)
                    )
                changes += [
                    ObjectChange(kind=obj["kind"], action="Create", resource=f"{change.resource}/{key}")
                    for key, obj in sorted(made.results.items())
                ]
        return changes, below

    async def _deleted(self, definition: Definition, xr: Object, before: Side, team: str) -> XrResult:
        """The XR goes, and with it all that it composes."""
        baseline = await run_side(before, definition, xr, self.around)
        gone = SideRun(stable=True, observed=dict(baseline.observed), choice=baseline.choice)
        result = result_of(definition, xr, replace(baseline, failure=None), gone, team=team)
        changes = tuple(
            ObjectChange(kind=obj["kind"], action="Delete", resource=key)
            for key, obj in sorted(baseline.observed.items())
        )
        itself = ObjectChange(kind=definition.kind.kind, action="Delete")
        return replace(result, outcome="Changed", changes=(itself, *changes), message="")

    def _invalid(self, definition: Definition, xr: Object, message: str, team: str) -> XrResult:
        metadata = xr["metadata"]
        return XrResult(
            kind=definition.group_kind,
            namespace=metadata.get("namespace") or "",
            name=metadata["name"],
            uid=metadata.get("uid", ""),
            outcome="Invalid",
            input=input_digest(xr, definition.style),
            message=message,
            team=team,
            own={metadata["name"]: "{name}"},
        )

    def _give_up(self, *runs: SideRun) -> None:
        """A function that is no longer called says nothing of this XR."""
        for run in runs:
            if isinstance(run.failure, NoLongerCalled):
                run.failure = CannotPreview(str(run.failure))
            elif isinstance(run.failure, Forbidden):
                run.failure = CannotPreview(f"a read is not permitted: {run.failure}")

    def _schema(self, definition: Definition, target: Definition) -> SchemaChange | None:
        if definition.group_kind not in self.reach.definitions or definition is target:
            return None
        known = self._schemas.get(definition.group_kind)
        if known is None:
            known = self._schemas[definition.group_kind] = SchemaChange(definition, target)
        return known

    # -- which XRs

    def reached_definitions(self) -> list[Definition]:
        """The XRDs whose XRs the change may reach."""
        return [each for each in self.baseline.definitions.values() if self._may_reach(each)]

    def _may_reach(self, definition: Definition) -> bool:
        reach = self.reach
        if reach.release or reach.others or definition.group_kind in reach.definitions:
            return True
        if any(place[:2] == (definition.kind.group, definition.kind.kind) for place in reach.xrs):
            return True
        if self.baseline.resolver is not self.candidate.resolver:
            return True
        return any(
            composed_type(composition) == (definition.kind.group, definition.kind.kind)
            for name in reach.compositions
            for composition in (self.baseline.compositions.get(name), self.candidate.compositions.get(name))
            if composition is not None
        )

    async def _of_kind(self, definition: Definition, scope: Scope, selector: LabelSelector) -> AsyncIterator[Object]:
        namespaces = scope.namespaces if definition.namespaced and scope.namespaces else ("",)
        sampled: list[Object] = []
        for namespace in namespaces:
            try:
                async for page in list_pages(self.baseline.client, definition.kind, namespace=namespace):
                    for xr in page.items:
                        if xr["metadata"].get("deletionTimestamp") or not selector.matches(
                            xr["metadata"].get("labels") or {}
                        ):
                            continue
                        if scope.sample:
                            sampled.append(xr)
                        else:
                            yield xr
            except NotFound:
                continue  # its kind is not served yet
        for xr in sorted(sampled, key=_lot):
            yield xr

    def _is_reached(self, definition: Definition, xr: Object) -> bool:
        reach = self.reach
        if place_of(xr) in reach.xrs or definition.group_kind in reach.definitions:
            return True
        before, after = self._choice(self.baseline, definition, xr), self._choice(self.candidate, definition, xr)
        composition = _composition_of(before) or _composition_of(after)
        if reach.others:
            return True
        if reach.release:
            called = _resolved(self.candidate, after) if reach.only in ("", composition) else ()
            return any(digest.startswith(BUILTIN_DIGEST) for digest in called)
        if reach.function:
            return any(_calls(choice, reach.function) for choice in (before, after))
        if _resolved(self.baseline, before) != _resolved(self.candidate, after):
            return True
        if before == after or (isinstance(before, Choice) and isinstance(after, Choice) and _same(before, after)):
            if composition in reach.compositions and self.baseline.is_pinned(definition, xr):
                follower = self._choice(self.candidate, definition, xr, follows=True)
                if isinstance(follower, Choice) and isinstance(before, Choice) and not _same(before, follower):
                    self.pinned += not self.include_manual
                    return self.include_manual
            return composition in reach.compositions and not self.baseline.is_pinned(definition, xr)
        return True

    def _choice(self, side: Side, definition: Definition, xr: Object, *, follows: bool = False) -> Choice | str:
        target = side.definitions.get(definition.group_kind)
        if target is None:
            return "no such kind"
        try:
            return side.choose(target, xr, follows=follows)
        except PlanformError as error:
            return str(error)

    async def _exists(self, definition: Definition, place: Place) -> bool:
        try:
            await self.baseline.client.get(definition.kind, place[3], namespace=place[2])
        except NotFound:
            return False
        return True

    async def _team(self, xr: Object) -> str:
        metadata = xr["metadata"]
        own = team_of(metadata.get("labels") or {})
        namespace = metadata.get("namespace") or ""
        if own or not namespace:
            return own
        if namespace not in self._teams:
            try:
                found = await self.baseline.client.get(_NAMESPACE, namespace)
                self._teams[namespace] = team_of(found["metadata"].get("labels") or {})
            except (NotFound, Forbidden):
                self._teams[namespace] = ""
        return self._teams[namespace]


def _levels(composed: list[tuple[Definition, Object]]) -> list[list[tuple[Definition, Object]]]:
    """XRs that others compose, those first whose owners are not among them, then those that they own, and so on."""
    owners = {each["metadata"].get("uid"): (controller_of(each) or {}).get("uid") for _, each in composed}

    def depth(xr: Object) -> int:
        uid, found = xr["metadata"].get("uid"), 0
        while (uid := owners.get(uid)) in owners and found < MAX_DEPTH:
            found += 1
        return found

    levels: dict[int, list[tuple[Definition, Object]]] = {}
    for definition, xr in composed:
        levels.setdefault(depth(xr), []).append((definition, xr))
    return [levels[each] for each in sorted(levels)]


def team_of(labels: Mapping[str, str]) -> str:
    """Whose XR it is, as labels say: `team`, or any label whose name is `team` below somebody's domain."""
    for name in TEAM_LABELS[:1]:
        if labels.get(name):
            return labels[name]
    return next((value for key, value in sorted(labels.items()) if key.endswith("/team")), "")


def _with(result: XrResult, changes: list[ObjectChange], candidate: SideRun) -> XrResult:
    """The result with further changes."""
    outcome = result.outcome
    if outcome == "Unchanged" and candidate.failure is None:
        outcome = "Changed"
    if any(each.action == "Fail" for each in changes):
        outcome = "Failed"
    return replace(result, outcome=outcome, changes=(*result.changes, *changes))


def _same(one: Choice, other: Choice) -> bool:
    return one.revision == other.revision and one.choice.revision["spec"].get("pipeline") == other.choice.revision[
        "spec"
    ].get("pipeline")


def _resolved(side: Side, choice: Choice | str) -> tuple[str, ...]:
    if isinstance(choice, str):
        return ()
    try:
        return tuple(side.resolver(step).revision.digest for step in choice.steps)
    except PlanformError as error:
        return (str(error),)


def _calls(choice: Choice | str, function: str) -> bool:
    return isinstance(choice, Choice) and any(step.function == function for step in choice.steps)


def _composition_of(choice: Choice | str) -> str:
    return choice.composition if isinstance(choice, Choice) else ""


def _lot(xr: Mapping[str, Any]) -> bytes:
    """The same sample each time, whatever the names."""
    return hashlib.blake2b(str(xr["metadata"].get("uid")).encode(), digest_size=8).digest()
