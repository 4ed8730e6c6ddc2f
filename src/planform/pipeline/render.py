"""Rendering: one reconcile of a composition over one XR, with everything given and nothing written.

It is the reconciler's own observe, run and plan with files in place of an API server, so what `render` shows is what
a control plane would do.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from planform.api.annotations import annotations_of
from planform.api.conditions import XrCondition, set_conditions
from planform.api.kinds import Object
from planform.api.metadata import labels_of, name_of, namespace_of, uid_of
from planform.api.xr import (
    COMPOSITE_LABEL,
    RESOURCE_NAME_ANNOTATION,
    Style,
    composition_fields,
    name_prefix,
    style_of,
)
from planform.apimachinery.names import child_name
from planform.clock import Clock
from planform.errors import UsageError
from planform.functions.cache import ResponseCache
from planform.functions.runner import CredentialSource, FunctionRunner, ResourceReader
from planform.functions.values import Resource, Severity, State
from planform.pipeline.modes import InvalidComposition, pipeline_of
from planform.pipeline.pipeline import PipelineOutcome, ReadSettings, StepResolver, run_pipeline
from planform.pipeline.plan import Plan, plan, readiness
from planform.pipeline.steps import parse_pipeline
from planform.pipeline.xr_status import custom_conditions

FROZEN_TIME: Final = "2024-01-01T00:00:00Z"
_IDENTITY: Final = uuid.uuid5(uuid.NAMESPACE_DNS, "render.planform.dev")


@dataclass(frozen=True)
class RenderContext:
    """What a run needs besides XR and composition."""

    resolver: StepResolver
    runner: FunctionRunner
    reader: ResourceReader
    clock: Clock
    credentials: CredentialSource | None = None
    cache: ResponseCache | None = None
    reads: ReadSettings = field(default_factory=ReadSettings)
    context: Object = field(default_factory=dict)
    scope_of: Mapping[tuple[str, str], bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Rendered:
    """What one reconcile gives. After a failure, `xr` and `composed` show how far the pipeline had come."""

    xr: Object
    """Identity, references to composed resources, and status."""
    composed: tuple[Object, ...]
    deleted: tuple[Object, ...]
    results: tuple[Object, ...]
    context: Object
    outcome: PipelineOutcome
    plan: Plan | None
    given: Object
    """The XR that was given, with the identity it was rendered under."""


async def render(
    xr: Object,
    composition: Object,
    observed: Sequence[Object],
    around: RenderContext,
    *,
    style: Style | None = None,
) -> Rendered:
    """Run the pipeline once. Raises UsageError, InvalidComposition or PipelineInvalid for inputs that do not fit."""
    check_match(xr, composition)
    xr = with_identity(xr)
    style = style or style_of(xr)
    existing = observed_by_key(xr, observed)
    spec = composition["spec"]
    steps = parse_pipeline({**spec, "pipeline": pipeline_of(spec, name_of(composition))})
    state = State(Resource(xr), {key: Resource(obj) for key, obj in existing.items()})
    outcome = await run_pipeline(
        steps,
        observed=state,
        resolver=around.resolver,
        runner=around.runner,
        reader=around.reader,
        clock=around.clock,
        credentials=around.credentials,
        cache=around.cache,
        reads=around.reads,
        context=dict(around.context),
    )
    if outcome.failure is not None:
        return _failed(xr, style, outcome)
    decided = plan(xr, existing, outcome.desired, style=style, scope_of=around.scope_of)
    conditions = [
        XrCondition("Synced", "True", "ReconcileSuccess"),
        readiness(decided, outcome.desired.composite.ready),
    ]
    return Rendered(
        xr=_shown_xr(xr, style, decided.references, decided.status, [*conditions, *custom_conditions(outcome)]),
        composed=tuple(composed.object for composed in decided.apply),
        deleted=tuple(deletion.object for deletion in decided.delete),
        results=_results(outcome, decided),
        context=outcome.context,
        outcome=outcome,
        plan=decided,
        given=xr,
    )


async def render_until_stable(
    xr: Object,
    composition: Object,
    observed: Sequence[Object],
    around: RenderContext,
    *,
    style: Style | None = None,
    max_iterations: int = 10,
) -> list[Rendered]:
    """Render until it repeats, each reconcile observing what the last one composed as created and ready."""
    xr = with_identity(xr)
    done: list[Rendered] = []
    for _ in range(max_iterations):
        rendered = await render(xr, composition, observed, around, style=style)
        done.append(rendered)
        if rendered.outcome.failure is not None:
            break
        if len(done) > 1 and _same(done[-2], rendered):
            break
        observed = [_as_created(obj, _find(observed, obj)) for obj in rendered.composed]
        xr = {**xr, "status": rendered.xr.get("status", {})}
    return done


def check_match(xr: Object, composition: Object) -> None:
    """Refuse an XR that the composition is not for."""
    reference = (composition.get("spec") or {}).get("compositeTypeRef") or {}
    name = name_of(composition)
    wanted = (reference.get("apiVersion"), reference.get("kind"))
    if wanted != (xr.get("apiVersion"), xr.get("kind")):
        raise InvalidComposition(
            f'composition "{name}" composes {wanted[1]} ({wanted[0]}), and the XR is a {xr.get("kind")} '
            f"({xr.get('apiVersion')})",
            hint="spec.compositeTypeRef must equal the XR's apiVersion and kind",
        )
    selector = composition_fields(xr, style_of(xr)).get("compositionSelector") or {}
    labels = labels_of(composition)
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            found = f"{key}={labels[key]}" if key in labels else "no such label"
            raise InvalidComposition(
                f'the XR selects compositions with {key}={value}, and composition "{name}" has {found}'
            )


def with_identity(xr: Object) -> Object:
    """The XR with a UID and its own label: generated names follow from both, so they must not change between runs."""
    metadata = dict(xr.get("metadata") or {})
    if not metadata.get("name"):
        raise UsageError(
            "the XR has no metadata.name", hint="give it a name: names of composed resources follow from it"
        )
    if not metadata.get("uid"):
        text = "/".join((str(xr["apiVersion"]), str(xr["kind"]), metadata.get("namespace", ""), metadata["name"]))
        metadata["uid"] = str(uuid.uuid5(_IDENTITY, text))
    metadata["labels"] = {COMPOSITE_LABEL: metadata["name"], **(metadata.get("labels") or {})}
    return {**xr, "metadata": metadata}


def observed_by_key(xr: Object, observed: Sequence[Object]) -> dict[str, Object]:
    """Observed resources by their names in the composition; raises UsageError for what cannot be this XR's."""
    found: dict[str, Object] = {}
    for obj in observed:
        metadata = obj.get("metadata") or {}
        shown = f"observed {obj.get('kind')}/{metadata.get('name', '')}"
        key = (metadata.get("annotations") or {}).get(RESOURCE_NAME_ANNOTATION)
        if not key:
            raise UsageError(
                f"{shown} has no annotation {RESOURCE_NAME_ANNOTATION}", hint="it says which resource it is"
            )
        if not metadata.get("name"):  # upstream's examples leave it out; a control plane would have given it this one
            name = child_name(f"{name_prefix(xr)}-", uid_of(xr), str(key))
            metadata = {**metadata, "name": name}
            obj = {**obj, "metadata": metadata}
        if key in found:
            raise UsageError(f'two observed resources are called "{key}"')
        home = namespace_of(xr)
        if home and metadata.get("namespace") not in (None, home):
            raise UsageError(f'{shown} is in namespace "{metadata["namespace"]}", and the XR in "{home}"')
        owners = metadata.get("ownerReferences") or []
        uid = uid_of(xr)
        if any(owner.get("controller") and owner.get("uid") not in (uid, "") for owner in owners):
            raise UsageError(f"{shown} is controlled by another object")
        if not owners:
            owner = {"apiVersion": xr["apiVersion"], "kind": xr["kind"], "name": name_of(xr), "uid": uid}
            obj = {**obj, "metadata": {**metadata, "ownerReferences": [{**owner, "controller": True}]}}
        found[str(key)] = obj
    return found


def _failed(xr: Object, style: Style, outcome: PipelineOutcome) -> Rendered:
    """How far it came: what the steps before the failing one desire, not named and not to be applied."""
    assert outcome.failure is not None
    synced = XrCondition("Synced", "False", "ReconcileError", str(outcome.failure))
    status = dict(outcome.desired.composite.resource.get("status") or {})
    composed = []
    for key, resource in sorted(outcome.desired.resources.items()):
        metadata = dict(resource.resource.get("metadata") or {})
        metadata["annotations"] = {**(metadata.get("annotations") or {}), RESOURCE_NAME_ANNOTATION: key}
        composed.append({**resource.resource, "metadata": metadata})
    return Rendered(
        xr=_shown_xr(xr, style, (), status, [synced, *custom_conditions(outcome)]),
        composed=tuple(composed),
        deleted=(),
        results=_results(outcome, None),
        context=outcome.context,
        outcome=outcome,
        plan=None,
        given=xr,
    )


def _shown_xr(
    xr: Object, style: Style, references: Sequence[Object], status: Object, conditions: Sequence[XrCondition]
) -> Object:
    metadata = {name: xr["metadata"][name] for name in ("name", "namespace") if name in xr["metadata"]}
    shown: Object = {"apiVersion": xr["apiVersion"], "kind": xr["kind"], "metadata": metadata}
    if references:
        refs: Object = {"resourceRefs": list(references)}
        shown["spec"] = {"crossplane": refs} if style == "modern" else refs
    existing = status.get("conditions") or []
    shown["status"] = {
        **status,
        "conditions": set_conditions(
            existing, conditions, now=FROZEN_TIME, generation=xr["metadata"].get("generation")
        ),
    }
    return shown


def _results(outcome: PipelineOutcome, decided: Plan | None) -> tuple[Object, ...]:
    results = [
        _result(
            "Normal" if one.result.severity is Severity.NORMAL else "Warning",
            one.result.reason or "ComposeResources",
            f'Pipeline step "{one.step}": {one.result.message}',
            one.step,
        )
        for one in outcome.results
    ]
    if decided is not None:
        results += [_result("Warning", "NamespaceOverridden", warning, "") for warning in decided.warnings]
    if outcome.failure is not None:
        results.append(_result("Fatal", outcome.failure.reason, str(outcome.failure), outcome.failure.step))
    return tuple(results)


def _result(severity: str, reason: str, message: str, step: str) -> Object:
    result: Object = {
        "apiVersion": "render.crossplane.io/v1beta1",
        "kind": "Result",
        "severity": severity,
        "reason": reason,
        "message": message,
    }
    return {**result, "step": step} if step else result


def _same(before: Rendered, after: Rendered) -> bool:
    return (before.xr, before.composed, before.context) == (after.xr, after.composed, after.context)


def _find(observed: Sequence[Object], wanted: Object) -> Object | None:
    key = annotations_of(wanted)[RESOURCE_NAME_ANNOTATION]
    for obj in observed:
        if annotations_of(obj).get(RESOURCE_NAME_ANNOTATION) == key:
            return obj
    return None


def _as_created(obj: Object, before: Object | None) -> Object:
    """The resource as it would be observed once it exists and is ready, keeping any status that was given."""
    metadata = {**obj["metadata"], "uid": str(uuid.uuid5(_IDENTITY, f"{obj['kind']}/{name_of(obj)}"))}
    status = dict((before or {}).get("status") or {})
    ready = [XrCondition("Ready", "True", "Available"), XrCondition("Synced", "True", "ReconcileSuccess")]
    status["conditions"] = set_conditions(status.get("conditions") or [], ready, now=FROZEN_TIME, generation=None)
    return {**obj, "metadata": metadata, "status": status}
