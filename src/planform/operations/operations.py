"""What an Operation, CronOperation or WatchOperation is to do next, decided from the objects alone.

An Operation runs its pipeline once to completion. Its status is the only record of that: an attempt is announced
before it begins, so one that a crash cut short is known as such, counts, and is tried again up to the limit; an
Operation that has succeeded or failed for good is never touched again. What spawns Operations names them after what
they are for, so that the same cause can never make two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import orjson

from planform.api.annotations import annotations_of
from planform.api.authors import AUTHOR_ANNOTATION, SERVICE_ACCOUNT_ANNOTATION, authority_annotations
from planform.api.conditions import condition_of
from planform.api.extensions.operations import FAILED_HISTORY_LIMIT, RETRY_LIMIT, SUCCESSFUL_HISTORY_LIMIT
from planform.api.kinds import Object
from planform.api.metadata import created_at, labels_of, name_of, namespace_of, uid_of
from planform.api.names import OPERATION
from planform.api.owners import controller_reference, owners_of
from planform.apimachinery.names import LABEL_LENGTH, SUBDOMAIN_LENGTH, child_name
from planform.clock import parse_timestamp
from planform.functions.sending import without_server_metadata
from planform.pipeline.pipeline import PipelineOutcome

CRON_LABEL: Final = "ops.crossplane.io/cronoperation"
WATCH_LABEL: Final = "ops.crossplane.io/watchoperation"
WATCHED_RESOURCE: Final = "ops.crossplane.io/watched-resource"
"""The requirement under which each step of a WatchOperation's Operation gets the object that changed."""
DELETED_VERSION: Final = "ops.crossplane.io/synthetic-deleted"
"""Stands for the resource version of a watched object that is gone."""

MAX_SECONDS_BETWEEN_ATTEMPTS: Final = 60.0
MAX_OUTPUT_BYTES: Final = 512 << 10
"""What the outputs of all steps may take of the Operation's status; an object has to fit into the store."""

_FIELD_MANAGER: Final = "ops.crossplane.io/operation/"


class Phase(StrEnum):
    """How far an Operation has come."""

    NEW = "New"
    ATTEMPTING = "Attempting"  # an attempt was announced; if none is under way, a crash cut it short
    RETRYING = "Retrying"  # the last attempt failed and another follows
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def over(self) -> bool:
        return self in (Phase.SUCCEEDED, Phase.FAILED)


class Reason(StrEnum):
    """Reasons of the condition Succeeded; while it is Unknown, PipelineError means that another attempt follows."""

    RUNNING = "PipelineRunning"
    SUCCESS = "PipelineSuccess"
    ERROR = "PipelineError"


@dataclass(frozen=True, slots=True)
class Progress:
    """What an Operation's status says about it. `since` is when it came into this phase."""

    phase: Phase
    failures: int = 0
    since: datetime | None = None


def progress_of(operation: Mapping[str, Any]) -> Progress:
    """How far an Operation has come."""
    status = operation.get("status") or {}
    condition = condition_of(operation, "Succeeded")
    failures = int(status.get("failures") or 0)
    if condition is None:
        return Progress(Phase.NEW, failures)
    since = parse_timestamp(condition.last_transition_time)
    if condition.status == "True":
        return Progress(Phase.SUCCEEDED, failures, since)
    if condition.status == "False":
        return Progress(Phase.FAILED, failures, since)
    return Progress(Phase.ATTEMPTING if condition.reason == Reason.RUNNING else Phase.RETRYING, failures, since)


def attempts_allowed(spec: Mapping[str, Any]) -> int:
    """How often the pipeline may be tried. A limit of 0 forbids failures, not the first attempt."""
    limit = spec.get("retryLimit")
    return max(1, RETRY_LIMIT if limit is None else int(limit))


def retry_delay(failures: int) -> float:
    """Seconds between a failed attempt and the next: 1, 2, 4 and so on up to a minute."""
    return float(min(2.0 ** min(max(0, failures - 1), 10), MAX_SECONDS_BETWEEN_ATTEMPTS))


# -- what an attempt gives


def outputs_of(outcome: PipelineOutcome) -> tuple[list[Object], list[str]]:
    """What each step said for the record, and the names of steps whose output is too large to keep."""
    kept: list[Object] = []
    dropped: list[str] = []
    left = MAX_OUTPUT_BYTES
    for trace in outcome.steps:
        output = trace.calls[-1].response.output if trace.calls else None
        if output is None:
            continue
        size = len(orjson.dumps(output))
        if size > left:
            dropped.append(trace.step)
            continue
        left -= size
        kept.append({"step": trace.step, "output": output})
    return kept, dropped


def resources_to_apply(outcome: PipelineOutcome) -> list[Object]:
    """What the pipeline wants applied, in the order of its names in the pipeline."""
    return [
        without_server_metadata(outcome.desired.resources[key].resource) for key in sorted(outcome.desired.resources)
    ]


def unnamed(outcome: PipelineOutcome) -> str:
    """What is wrong with the desired resources: an Operation has nothing to derive a name from. Empty if nothing is."""
    for key in sorted(outcome.desired.resources):
        obj = outcome.desired.resources[key].resource
        if not name_of(obj):
            return f'desired resource "{key}" ({obj["kind"]}) has no metadata.name'
    return ""


def field_manager(operation: Mapping[str, Any]) -> str:
    """The name under which an Operation applies: its own, so that no Operation takes back what another applied."""
    return _FIELD_MANAGER + uid_of(operation)


def is_earlier_operation(manager: str, current: str) -> bool:
    """Whether a field manager is an Operation, and another than the current one."""
    return manager.startswith(_FIELD_MANAGER) and manager != current


def reference_to(obj: Mapping[str, Any]) -> Object:
    """A reference to an applied object, as `status.appliedResourceRefs` has it."""
    reference = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": name_of(obj)}
    return {**reference, "namespace": namespace_of(obj)} if namespace_of(obj) else reference


def merged_references(before: Iterable[Object], more: Iterable[Object]) -> list[Object]:
    """Both, each reference once, in a fixed order."""
    found = {tuple(sorted(reference.items())): reference for reference in (*before, *more)}
    return [found[key] for key in sorted(found)]


# -- what spawns Operations


class Concurrency(StrEnum):
    """What happens when an Operation is due while another of the same origin is not over."""

    ALLOW = "Allow"
    FORBID = "Forbid"
    REPLACE = "Replace"


def concurrency_of(spec: Mapping[str, Any]) -> Concurrency:
    return Concurrency(spec.get("concurrencyPolicy") or Concurrency.ALLOW)


@dataclass(frozen=True, slots=True)
class Family:
    """The Operations that one CronOperation or WatchOperation made, by how far they are; each oldest first."""

    unfinished: tuple[Object, ...]
    succeeded: tuple[Object, ...]
    failed: tuple[Object, ...]

    @property
    def running_references(self) -> list[Object]:
        return [{"name": name} for name in sorted(name_of(each) for each in self.unfinished)]

    @property
    def last_success(self) -> str:
        """When the latest of them succeeded; empty if none has."""
        stamps = [_since(each) for each in self.succeeded]
        return max(stamps, default="")

    def expired(self, spec: Mapping[str, Any]) -> list[Object]:
        """Those that are over and more than the history limits allow to keep."""
        keep_succeeded = _limit(spec.get("successfulHistoryLimit"), SUCCESSFUL_HISTORY_LIMIT)
        keep_failed = _limit(spec.get("failedHistoryLimit"), FAILED_HISTORY_LIMIT)
        return [
            *self.succeeded[: max(0, len(self.succeeded) - keep_succeeded)],
            *self.failed[: max(0, len(self.failed) - keep_failed)],
        ]


def family_of(owner: Mapping[str, Any], operations: Iterable[Object]) -> Family:
    """Sort out the Operations that this object controls."""
    uid = uid_of(owner)
    by_phase: dict[Phase, list[Object]] = {phase: [] for phase in Phase}
    for operation in sorted(operations, key=_age):
        owners = owners_of(operation)
        if any(each.get("controller") and each["uid"] == uid for each in owners):
            by_phase[progress_of(operation).phase].append(operation)
    unfinished = [each for phase in Phase if not phase.over for each in by_phase[phase]]
    return Family(tuple(sorted(unfinished, key=_age)), tuple(by_phase[Phase.SUCCEEDED]), tuple(by_phase[Phase.FAILED]))


def scheduled_name(cron: Mapping[str, Any], due: datetime) -> str:
    """The name of the Operation for one moment of a schedule."""
    moment = str(int(due.timestamp()))
    name = f"{name_of(cron)}-{moment}"
    return name if len(name) <= SUBDOMAIN_LENGTH else child_name(name_of(cron), uid_of(cron), moment)


def watched_name(watch: Mapping[str, Any], watched_uid: str, resource_version: str) -> str:
    """The name of the Operation for one version of a watched object."""
    return child_name(name_of(watch), uid_of(watch), watched_uid, resource_version)


def origin_label(name: str) -> str:
    """The value of the label that names the origin of an Operation; names may be longer than labels."""
    return name if len(name) <= LABEL_LENGTH else child_name(name, name)


def operation_from(
    owner: Mapping[str, Any],
    name: str,
    label: str,
    *,
    annotations: Mapping[str, str] | None = None,
    watched: Mapping[str, Any] | None = None,
) -> Object:
    """The Operation to create from the owner's template; every step of it requires the `watched` object, if any."""
    template = owner["spec"]["operationTemplate"]
    spec = dict(template["spec"])
    if watched is not None:
        spec["pipeline"] = [_requiring(step, watched) for step in spec.get("pipeline") or ()]
    metadata: Object = {
        "name": name,
        "labels": {**labels_of(template), label: origin_label(name_of(owner))},
        "ownerReferences": [controller_reference(owner)],
    }
    rights = (AUTHOR_ANNOTATION, SERVICE_ACCOUNT_ANNOTATION)  # the owner's own: a template cannot lend others
    said = {name: value for name, value in annotations_of(template).items() if name not in rights}
    noted = {**said, **(annotations or {}), **authority_annotations(owner)}
    if noted:
        metadata["annotations"] = noted
    return {"apiVersion": OPERATION.api_version, "kind": OPERATION.kind, "metadata": metadata, "spec": spec}


def watched_annotations(watched: Mapping[str, Any], resource_version: str) -> dict[str, str]:
    """What an Operation says about the object whose change it is for."""
    said = {
        "apiversion": watched["apiVersion"],
        "kind": watched["kind"],
        "name": name_of(watched),
        "namespace": namespace_of(watched),
        "resourceversion": resource_version,
    }
    return {f"{WATCHED_RESOURCE}-{key}": value for key, value in said.items() if value}


def _requiring(step: Mapping[str, Any], watched: Mapping[str, Any]) -> Object:
    requirements = step.get("requirements") or {}
    others = [
        each for each in requirements.get("requiredResources") or () if each.get("requirementName") != WATCHED_RESOURCE
    ]
    entry = {"requirementName": WATCHED_RESOURCE, **reference_to(watched)}
    return {**step, "requirements": {**requirements, "requiredResources": [*others, entry]}}


def _since(operation: Mapping[str, Any]) -> str:
    condition = condition_of(operation, "Succeeded")
    return condition.last_transition_time if condition is not None else ""


def _age(operation: Mapping[str, Any]) -> tuple[str, str]:
    return created_at(operation), name_of(operation)


def _limit(written: Any, default: int) -> int:
    return default if written is None else max(0, int(written))
