"""What the journal is told of a run: a value made from the pipeline's outcome. Pure; it shares every object with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType

from planform.api.kinds import Object
from planform.api.metadata import generation_of, name_of, namespace_of, uid_of
from planform.functions.sending import without_server_metadata
from planform.functions.values import Condition, FunctionRequest, Ready, Resource, Result, State
from planform.journal.records import Part, Planned, Read, Rejected, Run, RunRecord, StepCondition, StepResult, StepRun
from planform.pipeline.pipeline import PipelineOutcome, StepTrace
from planform.pipeline.plan import Plan


def run_record(
    xr: Object,
    outcome: PipelineOutcome,
    plan: Plan | None,
    *,
    started: datetime,
    seconds: float,
    trigger: str,
    composition_revision: str = "",
    composition: str = "",
    failure: str = "",
    secrets: Iterable[bytes] = (),
    errors: Mapping[str, str] = MappingProxyType({}),
) -> RunRecord:
    """The record of a run for an object; `xr` may also be an Operation.

    `failure` says what went wrong beside the pipeline, such as a plan that could not be made. Secret values are found
    in what the functions were sent and answered; `secrets` adds those that only the caller knows. `errors` says of
    each resource, by its name in the composition, why what was planned for it could not be done.
    """
    observed = next((trace.calls[0].request.observed for trace in outcome.steps if trace.calls), None)
    run = Run(
        uid=uid_of(xr),
        api_version=xr["apiVersion"],
        kind=xr["kind"],
        name=name_of(xr),
        namespace=namespace_of(xr),
        generation=generation_of(xr),
        started=started,
        seconds=seconds,
        trigger=trigger,
        composition=composition,
        composition_revision=composition_revision,
        failure=str(outcome.failure) if outcome.failure is not None else failure,
        ttl=outcome.ttl,
        observed_composite=Part(without_server_metadata(xr) if observed is None else observed.composite.resource),
        observed=_parts(observed.resources) if observed is not None else {},
        steps=tuple(_step(trace) for trace in outcome.steps),
        plan=None if plan is None else tuple(_planned(plan, errors)),
        warnings=() if plan is None else tuple(plan.warnings),
    )
    return RunRecord(run, frozenset(secrets).union(_secrets(outcome.steps)))


def _step(trace: StepTrace) -> StepRun:
    request = trace.calls[-1].request if trace.calls else None
    response = trace.calls[-1].response if trace.calls else None
    changes, resolution = trace.changes, trace.resolution
    accepted = response if trace.error is None or changes else None
    return StepRun(
        step=trace.step,
        function=trace.function,
        revision=resolution.revision.name if resolution else "",
        digest=resolution.revision.digest if resolution else "",
        rule=str(resolution.rule) if resolution else "",
        rejected=tuple(Rejected(id=each.id, why=each.why) for each in resolution.rejected) if resolution else (),
        iterations=trace.iterations,
        cache=str(trace.cache) if trace.cache is not None else "",
        seconds=trace.seconds,
        input=Part(request.input) if request is not None and request.input is not None else None,
        reads=_reads(trace, request),
        added=changes.added,
        changed=changes.changed,
        removed=changes.removed,
        changed_composite=changes.composite,
        changed_context=changes.context,
        composite=Part(accepted.desired.composite.resource) if accepted else None,
        resources=_parts(accepted.desired.resources) if accepted else {},
        ready=_ready(accepted.desired) if accepted else {},
        context=Part(accepted.context) if accepted else None,
        results=tuple(map(_result, response.results)) if response else (),
        conditions=tuple(map(_condition, response.conditions)) if response else (),
        warnings=trace.warnings,
        error=trace.error.detail if trace.error is not None else "",
    )


def _parts(resources: dict[str, Resource]) -> dict[str, Part]:
    return {key: Part(each.resource) for key, each in resources.items()}


def _ready(desired: State) -> dict[str, bool]:
    return {
        key: each.ready is Ready.TRUE
        for key, each in sorted(desired.resources.items())
        if each.ready is not Ready.UNSPECIFIED
    }


def _reads(trace: StepTrace, request: FunctionRequest | None) -> dict[str, Read]:
    if not trace.reads:
        return {}
    served = {**request.extra_resources, **request.required_resources} if request is not None else {}
    return {
        name: Read(
            api_version=selector.api_version,
            kind=selector.kind,
            name=selector.match_name,
            labels=None if selector.match_labels is None else dict(selector.match_labels),
            namespace=selector.namespace or "",
            found=tuple(Part(each.resource) for each in served.get(name, ())),
        )
        for name, selector in trace.reads.items()
    }


def _result(result: Result) -> StepResult:
    return StepResult(severity=result.severity.name.title(), message=result.message, reason=result.reason)


def _condition(each: Condition) -> StepCondition:
    return StepCondition(type=each.type, status=each.status.name.title(), reason=each.reason, message=each.message)


def _planned(plan: Plan, errors: Mapping[str, str]) -> Iterator[Planned]:
    for composed in plan.apply:
        action, error = "apply" if composed.exists else "create", errors.get(composed.key, "")
        yield _named(composed.key, action, composed.object, ready=composed.ready, error=error)
    for deletion in plan.delete:
        yield _named(deletion.key, "delete", deletion.object, error=errors.get(deletion.key, ""))


def _named(key: str, action: str, obj: Object, *, ready: bool = False, error: str = "") -> Planned:
    return Planned(
        resource=key,
        action=action,
        api_version=obj["apiVersion"],
        kind=obj["kind"],
        name=name_of(obj),
        namespace=namespace_of(obj),
        ready=ready,
        error=error,
    )


def _secrets(traces: Iterable[StepTrace]) -> Iterator[bytes]:
    """Connection details and credentials that went through the steps, which hand most of what they hold to the next."""
    states: dict[int, State] = {}
    for trace in traces:
        for call in trace.calls:
            for data in call.request.credentials.values():
                yield from data.values()
            for state in (call.request.observed, call.request.desired, call.response.desired):
                states[id(state)] = state
    for state in states.values():
        for resource in (state.composite, *state.resources.values()):
            if resource.connection_details:
                yield from resource.connection_details.values()
