"""Gates that run something to its end: an Operation of ours, or a Job where there are any.

Its name follows from the Rollout, the wave, the gate and the number of the measurement, so that a controller that was
killed finds what it had started. It belongs to the Rollout and is deleted once its outcome is known, or when that
ends; after a crash in between it may be run once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from planform.api.authors import AUTHOR_ANNOTATION, SERVICE_ACCOUNT_ANNOTATION, author_of, authority_annotations
from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import OPERATION, OPERATIONS_GROUP
from planform.api.owners import controller_reference
from planform.api.rollout_gates import Gate, JobGate, OperationGate
from planform.apimachinery.names import LABEL_LENGTH, child_name
from planform.client.protocol import Client, Propagation
from planform.client.rights import Access
from planform.clock import timestamp
from planform.errors import AlreadyExists, NotFound, PlanformError
from planform.rollouts.gates.measurements import Measurement, Verdict, WaveFacts
from planform.rollouts.gates.tools import GateTools

JOB: Final = GroupVersionKind("batch", "v1", "Job")
ROLLOUT_LABEL: Final = "rollout.planform.dev/rollout"
GATE_LABEL: Final = "rollout.planform.dev/gate"
MANAGER: Final = "planform-rollout-gates"
_FIRST_LOOK: Final = 0.2
_LAST_LOOK: Final = 5.0

Outcome = tuple[Verdict, str] | None
"""How a run ended, and what it said; None while it runs."""


async def run_operation(
    gate: Gate, run: OperationGate, facts: WaveFacts, tools: GateTools, *, limit: timedelta
) -> Measurement:
    """Run an Operation with the rights of the policy's author. Never raises but when cancelled, which leaves it to
    `end_runs`."""
    author = author_of(facts.rollout)
    access = Access("create", OPERATIONS_GROUP, "operations")
    name, now = run_name(gate, facts), tools.clock.now()
    if author is not None and not await tools.rights.allows(author, access):
        message = f'user "{author.user}", who wrote the policy, cannot {access}'
        return Measurement(Verdict.ERROR, now, query=f"Operation {name}", message=message)
    obj = _made(OPERATION, name, gate, facts, run.template.metadata or {}, run.template.spec)
    obj["metadata"]["annotations"] |= authority_annotations(facts.rollout)
    return await _until_over(OPERATION, obj, tools.client, facts, tools, limit, operation_outcome)


async def run_job(gate: Gate, run: JobGate, facts: WaveFacts, tools: GateTools, *, limit: timedelta) -> Measurement:
    """Run a Job, created with the rights of the policy's author. Never raises but when cancelled."""
    name, now = run_name(gate, facts), tools.clock.now()
    if not tools.jobs:
        message = "Jobs run on Kubernetes only; an `operation` gate runs here, too"
        return Measurement(Verdict.ERROR, now, query=f"Job {run.namespace}/{name}", message=message)
    obj = _made(JOB, name, gate, facts, run.template.metadata or {}, run.template.spec)
    obj["metadata"]["namespace"] = run.namespace
    # The gate counts failures: a Job that retries by itself would hide them.
    obj["spec"] = {"backoffLimit": 0, "activeDeadlineSeconds": max(1, int(limit.total_seconds())), **obj["spec"]}
    try:
        client = await tools.acting(facts.rollout)
    except PlanformError as error:
        return Measurement(Verdict.ERROR, now, query=f"Job {run.namespace}/{name}", message=str(error))
    return await _until_over(JOB, obj, client, facts, tools, limit, job_outcome)


def run_name(gate: Gate, facts: WaveFacts) -> str:
    """The name of what one measurement runs."""
    metadata = facts.rollout["metadata"]
    identity = (metadata["uid"], facts.wave, str(facts.part), gate.name, timestamp(facts.since), str(facts.number))
    return child_name(f"{metadata['name']}-{gate.name}", *identity)


async def end_runs(rollout: Object, tools: GateTools) -> None:
    """Delete what gates of this Rollout still run, or have left behind: it has ended, or somebody aborted it."""
    labels = f"{ROLLOUT_LABEL}={_label(rollout)}"
    for kind in (OPERATION, JOB) if tools.jobs else (OPERATION,):
        for found in (await tools.client.list(kind, labels=labels)).items:
            owners = found["metadata"].get("ownerReferences") or ()
            if any(each.get("uid") == rollout["metadata"]["uid"] for each in owners):
                await _delete(tools.client, kind, found)


def operation_outcome(operation: Mapping[str, Any]) -> Outcome:
    """An Operation retries by itself, as often as its template says; only its end counts."""
    succeeded = _condition(operation, "Succeeded")
    if succeeded.get("status") == "True":
        return Verdict.PASSED, _outputs(operation)
    if succeeded.get("status") == "False":
        return Verdict.FAILED, str(succeeded.get("message") or succeeded.get("reason") or "")
    return None


def job_outcome(job: Mapping[str, Any]) -> Outcome:
    if _condition(job, "Complete").get("status") == "True":
        return Verdict.PASSED, ""
    failed = _condition(job, "Failed")
    if failed.get("status") == "True":
        return Verdict.FAILED, str(failed.get("message") or failed.get("reason") or "")
    return None


async def _until_over(
    kind: GroupVersionKind,
    obj: Object,
    client: Client,
    facts: WaveFacts,
    tools: GateTools,
    limit: timedelta,
    outcome: Callable[[Mapping[str, Any]], Outcome],
) -> Measurement:
    metadata = obj["metadata"]
    name, namespace = metadata["name"], metadata.get("namespace", "")
    query = f"{kind.kind} {namespace + '/' if namespace else ''}{name}"

    def measured(verdict: Verdict, message: str, value: str = "") -> Measurement:
        return Measurement(verdict, tools.clock.now(), value, "succeeds", query, message)

    try:
        found = await _create_once(client, kind, obj)
        began, pause = tools.clock.monotonic(), _FIRST_LOOK
        while (ended := outcome(found)) is None:
            if tools.clock.monotonic() - began >= limit.total_seconds():
                await _delete(client, kind, found)
                waiting = _waiting(found)
                return measured(Verdict.ERROR, f"it did not end within {limit.total_seconds():g} s{waiting}", "Running")
            await tools.clock.sleep(pause)
            pause = min(pause * 1.5, _LAST_LOOK)
            found = await client.get(kind, name, namespace=namespace)
        await _delete(client, kind, found)
    except NotFound:
        return measured(Verdict.ERROR, "somebody deleted it before it ended")
    except PlanformError as error:
        return measured(Verdict.ERROR, str(error))
    verdict, message = ended
    return measured(verdict, message, "Succeeded" if verdict is Verdict.PASSED else "Failed")


async def _create_once(client: Client, kind: GroupVersionKind, obj: Object) -> Object:
    """Create it, or find what was created before a restart. Raises AlreadyExists if that is somebody else's."""
    try:
        return await client.create(obj, manager=MANAGER)
    except AlreadyExists:
        metadata = obj["metadata"]
        found = await client.get(kind, metadata["name"], namespace=metadata.get("namespace", ""))
        owner = metadata["ownerReferences"][0]["uid"]
        if not any(each.get("uid") == owner for each in found["metadata"].get("ownerReferences") or ()):
            raise
        return found


async def _delete(client: Client, kind: GroupVersionKind, obj: Object) -> None:
    metadata = obj["metadata"]
    try:
        await client.delete(
            kind,
            metadata["name"],
            namespace=metadata.get("namespace") or "",
            propagation=Propagation.BACKGROUND,
            uid=metadata["uid"],
        )
    except NotFound:
        pass


def _made(
    kind: GroupVersionKind,
    name: str,
    gate: Gate,
    facts: WaveFacts,
    written: Mapping[str, Any],
    spec: Mapping[str, Any],
) -> Object:
    rights = (AUTHOR_ANNOTATION, SERVICE_ACCOUNT_ANNOTATION)  # the policy's own: a template cannot lend others
    annotations = {key: value for key, value in (written.get("annotations") or {}).items() if key not in rights}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": name,
            "labels": {**(written.get("labels") or {}), ROLLOUT_LABEL: _label(facts.rollout), GATE_LABEL: gate.name},
            "annotations": annotations,
            "ownerReferences": [controller_reference(facts.rollout)],
        },
        "spec": dict(spec),
    }


def _label(rollout: Mapping[str, Any]) -> str:
    name = str(rollout["metadata"]["name"])
    return name if len(name) <= LABEL_LENGTH else child_name(name, name)


def _condition(obj: Mapping[str, Any], type_: str) -> Mapping[str, Any]:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == type_), {})


def _waiting(obj: Mapping[str, Any]) -> str:
    """What a run that did not end said of itself."""
    for each in (obj.get("status") or {}).get("conditions") or ():
        if each.get("status") != "True" and each.get("message"):
            return f": {each['message']}"
    return ""


def _outputs(operation: Mapping[str, Any]) -> str:
    steps = (operation.get("status") or {}).get("pipeline") or ()
    return ", ".join(str(each.get("step")) for each in steps)
