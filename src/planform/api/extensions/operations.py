"""Operation, CronOperation and WatchOperation: pipelines that run once, by the clock, or when something changes."""

from __future__ import annotations

from typing import Final

from planform.api.extensions.pipeline import pipeline
from planform.api.extensions.vocabulary import (
    Schema,
    column,
    condition_column,
    crd,
    free,
    immutable,
    labels,
    many,
    moment,
    number,
    object_ref,
    record,
    root,
    status,
    text,
    version,
)
from planform.api.kinds import Object
from planform.api.names import CRON_OPERATION, OPERATION, OPERATIONS_GROUP, WATCH_OPERATION

_TIMES: Final = [
    column("LAST SCHEDULE", ".status.lastScheduleTime", "date"),
    column("LAST SUCCESS", ".status.lastSuccessfulTime", "date"),
]


def operation() -> Object:
    """A pipeline that runs once."""
    result = record(
        "What a step said.", {"step": text("Name of the step."), "output": free("Its output.")}, required=["step"]
    )
    reads = record(
        "The revision of a function that a step is bound to.",
        {
            "step": text("Name of the step."),
            "function": text("Name of the function."),
            "revision": text("Name of its revision."),
        },
        required=["step", "revision"],
    )
    told = {
        "failures": number("How often the pipeline has failed."),
        "pipeline": many("What the steps said.", result),
        "appliedResourceRefs": many("What was applied.", object_ref("One resource.")),
        "functionRevisions": many("The revisions of functions that this run uses, also when it is repeated.", reads),
    }
    schema = root(
        "A pipeline of functions that runs once.",
        {"spec": _operation_spec(), "status": status("How the run goes.", told)},
        required=["spec"],
    )
    return _served(OPERATION.kind, schema, [condition_column("Synced"), condition_column("Succeeded")], "ops")


def cron_operation() -> Object:
    """Operations by the clock."""
    fields = {
        "schedule": text("When to run: minute, hour, day of the month, month and day of the week.", shortest=1),
        "startingDeadlineSeconds": number("How late a run may start; without limit if absent.", least=0),
        **_template_fields(),
    }
    schema = root(
        "Creates Operations by the clock.",
        {
            "spec": record("What to run when.", fields, required=["operationTemplate", "schedule"]),
            "status": status("How the runs go.", _runs()),
        },
        required=["spec"],
    )
    columns = [
        column("SCHEDULE", ".spec.schedule"),
        condition_column("Synced"),
        condition_column("Scheduling"),
        *_TIMES,
    ]
    return _served(CRON_OPERATION.kind, schema, columns, "cronops")


def watch_operation() -> Object:
    """Operations when something changes."""
    watch = record(
        "The resources to watch.",
        {
            "apiVersion": text("API version of the resources.", longest=317, rules=[immutable("apiVersion")]),
            "kind": text("Kind of the resources.", longest=63, rules=[immutable("kind")]),
            "namespace": text("Namespace of the resources; all if absent."),
            "matchLabels": labels("Labels of the resources; all if absent."),
        },
        required=["apiVersion", "kind"],
    )
    told = {**_runs(), "watchingResources": number("How many resources are watched.")}
    schema = root(
        "Creates an Operation whenever a resource changes, which its functions find under a well-known name.",
        {
            "spec": record(
                "What to run for which resources.",
                {"watch": watch, **_template_fields()},
                required=["operationTemplate", "watch"],
            ),
            "status": status("How the runs go.", told),
        },
        required=["spec"],
    )
    columns = [
        column("KIND", ".spec.watch.kind"),
        column("COUNT", ".status.watchingResources", "integer"),
        condition_column("Synced"),
        condition_column("Watching"),
        *_TIMES,
    ]
    return _served(WATCH_OPERATION.kind, schema, columns, "watchops")


def _served(kind: str, schema: Schema, columns: list[Object], short: str) -> Object:
    return crd(OPERATIONS_GROUP, kind, [version("v1alpha1", schema, columns, storage=True)], short=[short])


def _operation_spec() -> Schema:
    fields = {
        "mode": text("Only pipelines exist.", one_of=["Pipeline"], default="Pipeline"),
        "pipeline": pipeline(),
        "retryLimit": number("How often the pipeline may fail before it is given up; 5 if absent.", least=0),
    }
    return record("What to run.", fields, required=["mode", "pipeline"])


def _template_fields() -> dict[str, Schema]:
    metadata = record(
        "What the Operations carry.", {"labels": labels("Labels."), "annotations": labels("Annotations.")}
    )
    return {
        "concurrencyPolicy": text(
            "Whether a run may start while another one runs: Replace ends the other one.",
            one_of=["Allow", "Forbid", "Replace"],
            default="Allow",
        ),
        "successfulHistoryLimit": number("How many Operations that succeeded are kept.", least=0, default=3),
        "failedHistoryLimit": number("How many Operations that failed are kept.", least=0, default=1),
        "operationTemplate": record(
            "The Operations to create.", {"metadata": metadata, "spec": _operation_spec()}, required=["spec"]
        ),
    }


def _runs() -> dict[str, Schema]:
    running = record("An Operation.", {"name": text("Its name.")}, required=["name"])
    return {
        "runningOperationRefs": many("Operations that run now.", running),
        "lastScheduleTime": moment("When an Operation was last created."),
        "lastSuccessfulTime": moment("When an Operation last succeeded."),
    }
