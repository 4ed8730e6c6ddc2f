"""One XR, reconciled on one side of a preview until nothing changes any more; nothing is written.

It is the reconcile's own choose, observe, run and plan on an overlay. What would be applied goes through a dry run, so
that defaults, rules, immutable fields, admission and Usages have their say; the result is taken as created and ready,
and the XR is looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from planform.api.conditions import XrCondition, set_conditions
from planform.api.kinds import Object, gvk_of
from planform.api.names import COMPOSITE_MANAGER
from planform.api.xr import Style
from planform.clock import timestamp
from planform.errors import ApiError, BadRequest, Forbidden, Invalid, NotFound, PlanformError
from planform.functions.cache import ResponseCache
from planform.functions.runner import CredentialSource, FunctionRunner
from planform.pipeline.pipeline import PipelineOutcome, ReadSettings, run_pipeline
from planform.pipeline.plan import Composed, Plan, plan
from planform.pipeline.running import ClientReader, Pipelines, SecretCredentials
from planform.preview.dry_runs import DryRuns
from planform.preview.field_diffs import content_of, field_changes
from planform.preview.overlay import OverlayClient, assumed_uid, place_of
from planform.preview.schema_applies import SchemaApplies
from planform.preview.sides import Choice, Side
from planform.reconcile.writes import upon
from planform.xrs.budget import DeletionBudgetExceeded, check_budget
from planform.xrs.carrying_out import check_free, composed_manager
from planform.xrs.context import is_deterministic
from planform.xrs.index import Definition
from planform.xrs.last_run import contains
from planform.xrs.observing import Observed, observe
from planform.xrs.scopes import Scopes

MAX_RECONCILES: Final = 10
_NOT_DRY: Final = ("dryRun", "dry run", "dry-run", "side effects")


@dataclass(frozen=True)
class RunWith:
    """What runs of both sides share."""

    dry_runs: DryRuns
    schemas: SchemaApplies
    pipelines: Pipelines
    reads: ReadSettings
    runner: FunctionRunner
    bound: Callable[[CredentialSource], CredentialSource] = lambda source: source
    """What bounds the Secrets that steps get."""
    dry_run: bool = True
    """Whether the API server is asked what it would make of an object."""


@dataclass
class SideRun:
    """What came of it. Objects are by their names in the composition."""

    choice: Choice | None = None
    failure: PlanformError | None = None
    """Why it could not be run, or planned."""
    observed: dict[str, Object] = field(default_factory=dict)
    """What is there of the XR's resources before the first reconcile."""
    results: dict[str, Object] = field(default_factory=dict)
    """What is there in the end."""
    wanted: dict[str, Composed] = field(default_factory=dict)
    """What the last reconcile applies."""
    desired: dict[str, list[Object]] = field(default_factory=dict)
    """What each reconcile would apply, in order, without repetition."""
    refusals: dict[str, PlanformError] = field(default_factory=dict)
    status: Object = field(default_factory=dict)
    """What the functions want in the XR's status."""
    unchecked: dict[str, str] = field(default_factory=dict)
    """Of resources that were not sent through a dry run, why."""
    held: str = ""
    """Why the deletion budget would hold it."""
    deterministic: bool = True
    stable: bool = False
    restless: dict[str, frozenset[str]] = field(default_factory=dict)
    """Fields that a function which is not deterministic answered differently in every reconcile."""
    secrets: set[bytes] = field(default_factory=set)
    functions: tuple[str, ...] = ()
    """Digests of the function revisions that its steps call."""
    xr: Object = field(default_factory=dict)
    """The XR in the end."""
    client: OverlayClient | None = None


async def run_side(
    side: Side,
    definition: Definition,
    xr: Object,
    around: RunWith,
    *,
    like: SideRun | None = None,
    follows: bool = False,
    cached: bool = True,
) -> SideRun:
    """Reconcile until it rests. `like` is the run of the other side: what it wanted as well, and is there, needs no
    dry run. Raises nothing that is the XR's own: see `failure`."""
    run = SideRun(xr=xr)
    try:
        run.choice = side.choose(definition, xr, follows=follows)
        run.functions = tuple(side.resolver(step).revision.digest for step in run.choice.steps)
    except PlanformError as error:
        run.failure = error
        return run
    client = run.client = OverlayClient(side.client)
    try:
        await _reconcile(run, client, definition, around, side, like, cached)
    except PlanformError as error:
        run.failure = error
    else:
        await _check_status(run, xr, around, client)
    return run


_UNDECLARED: Final = "field not declared in schema"


async def _check_status(run: SideRun, xr: Object, around: RunWith, client: OverlayClient) -> None:
    """Have the API server look at what the functions want in the XR's status: a field that no schema has is refused."""
    if not run.status or contains(xr.get("status") or {}, run.status) or not around.dry_run:
        return
    if client.serves(gvk_of(xr)) or "resourceVersion" not in xr["metadata"]:
        return  # the schema, or the XR, is the change's own
    names = {name: xr["metadata"][name] for name in ("name", "namespace") if xr["metadata"].get(name)}
    body = {"apiVersion": xr["apiVersion"], "kind": xr["kind"], "metadata": names, "status": run.status}
    try:
        await around.dry_runs.apply(body, manager=COMPOSITE_MANAGER, subresource="status")
    except NotFound:
        return  # an XR that only the overlay has
    except ApiError as error:
        # A real API server calls a field that no schema has an error of its own: it answers 500.
        if not isinstance(error, (Invalid, BadRequest, Forbidden)) and _UNDECLARED not in str(error):
            raise
        if _is_about_dry_runs(error):
            run.unchecked[""] = _is_about_dry_runs(error)
        else:
            run.refusals[""] = error


async def _reconcile(
    run: SideRun,
    client: OverlayClient,
    definition: Definition,
    around: RunWith,
    side: Side,
    like: SideRun | None,
    cached: bool,
) -> None:
    assert run.choice is not None
    scopes, reader = Scopes(client), ClientReader(client)
    source = around.bound(SecretCredentials(client))
    reads = replace(around.reads, is_namespaced=scopes.is_namespaced)
    if reads.confined_to:
        reads = replace(reads, confined_to=run.xr["metadata"].get("namespace") or "")
    applied: dict[str, bytes] = {}
    moved: dict[str, frozenset[str]] = {}
    for reconcile in range(MAX_RECONCILES):
        observed = await observe(
            client, run.xr, definition.style, _unheard, one_by_one=True, confined=bool(reads.confined_to)
        )
        if reconcile == 0:
            run.observed = dict(observed.resources)
        outcome = await run_pipeline(
            run.choice.steps,
            observed=observed.state,
            resolver=side.resolver,
            runner=around.runner,
            reader=reader,
            clock=around.pipelines.clock,
            credentials=source,
            cache=_cache(around.pipelines) if cached else None,
            reads=reads,
        )
        _note(run, outcome)
        if outcome.failure is not None:
            raise outcome.failure
        decided = plan(
            run.xr,
            observed.resources,
            outcome.desired,
            style=definition.style,
            scope_of=await scopes.of_desired(outcome.desired),
            leftovers=observed.leftovers,
        )
        _check_budget(run, decided, observed, outcome)
        changed = await _apply(run, decided, observed, client, around, like, applied)
        before, run.wanted = run.wanted, {each.key: each for each in decided.apply}
        folded = _fold(run, decided, client, definition.style)
        last, moved = moved, unstable_paths(before, run.wanted)
        if not run.deterministic and reconcile > 1 and moved and moved == last:
            # The same fields twice in a row, and nothing else: no further reconcile would bring it to rest.
            run.stable, run.restless = True, moved
            return
        if folded or changed:
            continue
        run.stable = True
        return


async def _apply(
    run: SideRun,
    decided: Plan,
    observed: Observed,
    client: OverlayClient,
    around: RunWith,
    like: SideRun | None,
    applied: dict[str, bytes],
) -> bool:
    """Apply the plan to the overlay; gives whether anything is different then."""
    changed = False
    run.refusals.clear()
    for composed in decided.apply:
        key = composed.key
        found = observed.resources.get(key) if composed.exists else None
        seen = run.desired.setdefault(key, [])
        if not seen or seen[-1] != composed.object:
            seen.append(composed.object)
        if found is not None and contains(found, composed.object) and _is_settled(composed, like, applied):
            run.results[key] = found
            continue
        try:
            result = await _dry_run(run, composed, found, client, around)
        except PlanformError as error:
            run.refusals[key] = error
            if found is not None:
                run.results[key] = found
            continue
        applied[key] = composed.digest
        if found is None or content_of(result) != content_of(found):
            changed = True
            result = _as_ready(result, found, around)
        else:
            result = found
        run.results[key] = client.put(result)
    for deletion in decided.delete:
        if run.results.get(deletion.key) is None or _is_same(run.results[deletion.key], deletion.object):
            run.results.pop(deletion.key, None)
        client.remove(deletion.object)
        changed = True
    return changed


def _is_settled(composed: Composed, like: SideRun | None, applied: Mapping[str, bytes]) -> bool:
    """Whether what is there is known to be what comes of applying this: it holds all that is wanted, and nothing is to
    go that was wanted before."""
    if composed.key in applied:
        return applied[composed.key] == composed.digest
    if like is None:
        return True
    other = like.wanted.get(composed.key)
    return other is not None and other.digest == composed.digest


async def _dry_run(
    run: SideRun, composed: Composed, found: Object | None, client: OverlayClient, around: RunWith
) -> Object:
    """What would be stored. Raises what the API server would refuse it with."""
    there = found if found is not None else await check_free(client, run.xr, composed)
    wanted = composed.object
    reason = _undryable(wanted, client, around)
    if not reason:
        try:
            # The manager is the reconcile's own, so that fields it no longer wants go.
            return await around.dry_runs.apply(upon(there, wanted), manager=composed_manager(run.xr))
        except (Forbidden, BadRequest) as error:
            reason = _is_about_dry_runs(error)
            if not reason:
                raise
        except NotFound as error:
            reason = _is_only_in_overlay(error, wanted, client)
            if not reason:
                raise
    run.unchecked[composed.key] = reason
    by_schema = None
    if not client.serves(gvk_of(wanted)):
        by_schema = await around.schemas.apply(upon(there, wanted), there, manager=composed_manager(run.xr))
    result: Object = _merged(there or {}, wanted) if by_schema is None else by_schema
    return result


def _undryable(wanted: Object, client: OverlayClient, around: RunWith) -> str:
    if not around.dry_run:
        return "dry runs were not asked for"
    if client.serves(gvk_of(wanted)):
        return "its kind is changed by the same change"
    return ""


def _is_about_dry_runs(error: PlanformError) -> str:
    """Why no dry run was made of it; empty if it was, and was refused."""
    text = str(error)
    if isinstance(error, Forbidden) and any(word in text for word in ("cannot patch", "cannot create resource")):
        return "you may not write it, which a dry run needs"
    if isinstance(error, BadRequest) and any(word in text for word in _NOT_DRY):
        return "an admission webhook has side effects"
    return ""


def _is_only_in_overlay(error: PlanformError, wanted: Object, client: OverlayClient) -> str:
    namespace = wanted["metadata"].get("namespace")
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    if namespace and client.holds(home):
        return "its namespace is created by the same change"
    return ""


def _merged(there: Any, wanted: Any) -> Any:
    """As near to an apply as one gets without a schema: maps are merged, the rest is replaced."""
    if not isinstance(there, dict) or not isinstance(wanted, dict):
        return wanted
    return {**there, **{key: _merged(there.get(key), value) for key, value in wanted.items()}}


def _as_ready(obj: Object, found: Object | None, around: RunWith) -> Object:
    """The resource as it would be observed once it is there and ready; one that exists keeps its status."""
    metadata = {**obj["metadata"]}
    if found is None:
        metadata["uid"] = assumed_uid(place_of(obj))
    status = dict((found or {}).get("status") or {})
    existing = status.get("conditions") or []
    if found is None or existing:
        ready = [XrCondition("Synced", "True", "ReconcileSuccess"), XrCondition("Ready", "True", "Available")]
        now = timestamp(around.pipelines.clock.now())
        status["conditions"] = set_conditions(existing, ready, now=now, generation=None)
    return {**obj, "metadata": metadata, **({"status": status} if status else {})}


def _fold(run: SideRun, decided: Plan, client: OverlayClient, style: Style) -> bool:
    """Have the XR say what the plan says; gives whether functions may see a difference."""
    before, run.status = run.status, decided.status
    spec = dict(run.xr.get("spec") or {})
    fields = {"resourceRefs": list(decided.references)}
    spec = (
        {**spec, "crossplane": {**(spec.get("crossplane") or {}), **fields}}
        if style == "modern"
        else {**spec, **fields}
    )
    status = _merged(run.xr.get("status") or {}, decided.status)
    changed = status != (run.xr.get("status") or {}) and before != decided.status
    run.xr = client.put({**run.xr, "spec": spec, **({"status": status} if status else {})})
    return changed


def _check_budget(run: SideRun, decided: Plan, observed: Observed, outcome: PipelineOutcome) -> None:
    assert run.choice is not None
    try:
        check_budget(
            run.xr,
            decided,
            observed=observed.resources,
            answered_nothing=not outcome.desired.resources and not outcome.desired.composite.resource,
            spec_changed=False,
            max_share=(run.choice.choice.revision["spec"].get("deletionBudget") or {}).get("maxShare"),
        )
    except DeletionBudgetExceeded as error:
        run.held = str(error)


def _note(run: SideRun, outcome: PipelineOutcome) -> None:
    if outcome.secrets is not None:
        run.secrets |= outcome.secrets.values()
    run.deterministic = run.deterministic and all(map(is_deterministic, outcome.steps))


def _cache(pipelines: Pipelines) -> ResponseCache | None:
    return pipelines.cache


def _is_same(one: Object, other: Object) -> bool:
    return place_of(one) == place_of(other)


def _unheard(_: object) -> None:
    """A preview follows nothing."""


def unstable_paths(one: Mapping[str, Composed], other: Mapping[str, Composed]) -> dict[str, frozenset[str]]:
    """Fields that two runs of the same side answered differently, by resource; the whole object if one lacks it."""
    found: dict[str, frozenset[str]] = {}
    for key in one.keys() | other.keys():
        if key not in one or key not in other:
            found[key] = frozenset({""})
        elif one[key].digest != other[key].digest:
            found[key] = frozenset(each.path for each in field_changes(one[key].object, other[key].object))
    return found


def immutable_field(error: PlanformError) -> str:
    """The field that a refusal says cannot be changed; empty if it says something else."""
    if not isinstance(error, Invalid):
        return ""
    causes: Collection[Mapping[str, Any]] = (error.details or {}).get("causes") or ()
    if causes:  # what is wrong besides would be wrong with a new object, too
        immutable = [each for each in causes if "immutable" in str(each.get("message", "")).lower()]
        return ", ".join(str(each.get("field") or "") for each in immutable) if len(immutable) == len(causes) else ""
    return "a field" if "immutable" in str(error).lower() else ""
