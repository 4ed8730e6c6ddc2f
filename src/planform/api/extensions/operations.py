"""Operation, CronOperation and WatchOperation: pipelines that run once, by the clock, or when something changes."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from msgspec import UNSET, UnsetType

from planform.api.crds import column, condition_column, crd, version
from planform.api.declarations import Declared, described, immutable, ruled, schema_of
from planform.api.extensions.pipeline import Pipeline
from planform.api.kinds import Object
from planform.api.names import CRON_OPERATION, OPERATION, OPERATIONS_GROUP, WATCH_OPERATION
from planform.api.objects import Free, Status, TypedObject
from planform.api.references import ObjectRef

ConcurrencyPolicy = Literal["Allow", "Forbid", "Replace"]

SUCCESSFUL_HISTORY_LIMIT: Final = 3
FAILED_HISTORY_LIMIT: Final = 1
RETRY_LIMIT: Final = 5
"""What holds where nobody says otherwise."""

_TIMES: Final = [
    column("LAST SCHEDULE", ".status.lastScheduleTime", "date"),
    column("LAST SUCCESS", ".status.lastSuccessfulTime", "date"),
]


# -- Operation


class OperationSpec(Declared, frozen=True, kw_only=True):
    """What to run."""

    SCHEMA: ClassVar = ruled(required=["mode", "pipeline"])

    mode: Annotated[Literal["Pipeline"], described("Only pipelines exist.", default="Pipeline")] = "Pipeline"
    pipeline: Pipeline
    retry_limit: (
        Annotated[
            int,
            described(f"How often the pipeline may fail before it is given up; {RETRY_LIMIT} if absent.", minimum=0),
        ]
        | UnsetType
    ) = UNSET


class StepOutput(Declared, frozen=True, kw_only=True):
    """What a step said."""

    step: Annotated[str, described("Name of the step.")]
    output: Annotated[Free, described("Its output.")] | UnsetType = UNSET


class BoundRevision(Declared, frozen=True, kw_only=True):
    """The revision of a function that a step is bound to."""

    step: Annotated[str, described("Name of the step.")]
    function: Annotated[str, described("Name of the function.")] | UnsetType = UNSET
    revision: Annotated[str, described("Name of its revision.")]


class OperationStatus(Status, frozen=True, kw_only=True):
    """How the run goes."""

    failures: Annotated[int, described("How often the pipeline has failed.")] | UnsetType = UNSET
    pipeline: Annotated[list[StepOutput], described("What the steps said.")] | UnsetType = UNSET
    applied_resource_refs: (
        Annotated[list[Annotated[ObjectRef, described("One resource.")]], described("What was applied.")] | UnsetType
    ) = UNSET
    function_revisions: (
        Annotated[
            list[BoundRevision],
            described("The revisions of functions that this run uses, also when it is repeated."),
        ]
        | UnsetType
    ) = UNSET


class Operation(TypedObject, frozen=True, kw_only=True):
    """A pipeline of functions that runs once."""

    gvk: ClassVar = OPERATION

    spec: OperationSpec
    status: OperationStatus | UnsetType = UNSET


# -- what makes Operations


class TemplateMetadata(Declared, frozen=True, kw_only=True):
    """What the Operations carry."""

    labels: Annotated[dict[str, str], described("Labels.")] | UnsetType = UNSET
    annotations: Annotated[dict[str, str], described("Annotations.")] | UnsetType = UNSET


class OperationTemplate(Declared, frozen=True, kw_only=True):
    """The Operations to create."""

    metadata: TemplateMetadata | UnsetType = UNSET
    spec: OperationSpec


class FamilySpec(Declared, frozen=True, kw_only=True):
    """What everything says that makes Operations."""

    concurrency_policy: (
        Annotated[
            ConcurrencyPolicy,
            described("Whether a run may start while another one runs: Replace ends the other one.", default="Allow"),
        ]
        | UnsetType
    ) = UNSET
    successful_history_limit: (
        Annotated[
            int, described("How many Operations that succeeded are kept.", minimum=0, default=SUCCESSFUL_HISTORY_LIMIT)
        ]
        | UnsetType
    ) = UNSET
    failed_history_limit: (
        Annotated[int, described("How many Operations that failed are kept.", minimum=0, default=FAILED_HISTORY_LIMIT)]
        | UnsetType
    ) = UNSET
    operation_template: OperationTemplate


class RunningOperation(Declared, frozen=True, kw_only=True):
    """An Operation."""

    name: Annotated[str, described("Its name.")]


class FamilyStatus(Status, frozen=True, kw_only=True):
    """How the runs go."""

    running_operation_refs: Annotated[list[RunningOperation], described("Operations that run now.")] | UnsetType = UNSET
    last_schedule_time: (
        Annotated[str, described("When an Operation was last created.", format="date-time")] | UnsetType
    ) = UNSET
    last_successful_time: (
        Annotated[str, described("When an Operation last succeeded.", format="date-time")] | UnsetType
    ) = UNSET


class CronOperationSpec(FamilySpec, frozen=True, kw_only=True):
    """What to run when."""

    schedule: Annotated[
        str, described("When to run: minute, hour, day of the month, month and day of the week.", min_length=1)
    ]
    starting_deadline_seconds: (
        Annotated[int, described("How late a run may start; without limit if absent.", minimum=0)] | UnsetType
    ) = UNSET


class CronOperation(TypedObject, frozen=True, kw_only=True):
    """Creates Operations by the clock."""

    gvk: ClassVar = CRON_OPERATION

    spec: CronOperationSpec
    status: FamilyStatus | UnsetType = UNSET


class WatchedResources(Declared, frozen=True, kw_only=True):
    """The resources to watch."""

    api_version: Annotated[
        str, described("API version of the resources.", max_length=317, rules=[immutable("apiVersion")])
    ]
    kind: Annotated[str, described("Kind of the resources.", max_length=63, rules=[immutable("kind")])]
    namespace: Annotated[str, described("Namespace of the resources; all if absent.")] | UnsetType = UNSET
    match_labels: Annotated[dict[str, str], described("Labels of the resources; all if absent.")] | UnsetType = UNSET


class WatchOperationSpec(FamilySpec, frozen=True, kw_only=True):
    """What to run for which resources."""

    watch: WatchedResources


class WatchOperationStatus(FamilyStatus, frozen=True, kw_only=True):
    """How the runs go."""

    watching_resources: Annotated[int, described("How many resources are watched.")] | UnsetType = UNSET


class WatchOperation(TypedObject, frozen=True, kw_only=True):
    """Creates an Operation whenever a resource changes, which its functions find under a well-known name."""

    gvk: ClassVar = WATCH_OPERATION

    spec: WatchOperationSpec
    status: WatchOperationStatus | UnsetType = UNSET


# -- CRDs


def operation() -> Object:
    """A pipeline that runs once."""
    return _served(Operation, [condition_column("Synced"), condition_column("Succeeded")], "ops")


def cron_operation() -> Object:
    """Operations by the clock."""
    columns = [
        column("SCHEDULE", ".spec.schedule"),
        condition_column("Synced"),
        condition_column("Scheduling"),
        *_TIMES,
    ]
    return _served(CronOperation, columns, "cronops")


def watch_operation() -> Object:
    """Operations when something changes."""
    columns = [
        column("KIND", ".spec.watch.kind"),
        column("COUNT", ".status.watchingResources", "integer"),
        condition_column("Synced"),
        condition_column("Watching"),
        *_TIMES,
    ]
    return _served(WatchOperation, columns, "watchops")


def _served(kind: type[TypedObject], columns: list[Object], short: str) -> Object:
    versions = [version("v1alpha1", schema_of(kind), columns, storage=True)]
    return crd(OPERATIONS_GROUP, kind.gvk.kind, versions, short=[short])
