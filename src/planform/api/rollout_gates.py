"""What a RolloutPolicy asks before it goes on, whom it tells, and when changes may happen at all.

`Gate`, `Notification` and `GateStatus` are parts of RolloutPolicies and Rollouts; `ChangeWindow` is a kind of its own.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from planform.api.crds import column, crd, version
from planform.api.declarations import Declared, described, rule, ruled, schema_of
from planform.api.kinds import Object
from planform.api.names import CHANGE_WINDOW
from planform.api.objects import Status, TypedObject
from planform.api.references import LabelSelector, SecretRef

NOT_BEFORE_LABEL: Final = "rollout.planform.dev/not-before"
"""On an XR or a claim: the day before which its owner wants no rollout to move it."""

DURATION: Final = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$"
"""Go's durations, such as 1m30s, and days, such as 14d."""
_EXPRESSION: Final = 4096
_URL: Final = "^https?://[^ ]+$"
_CA_BUNDLE: Final = "PEM certificates that the server's must be signed by, instead of those that the system trusts."
_TIME_OF_DAY: Final = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"
_END_OF_DAY: Final = r"^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$"

Duration = Annotated[str, described("A duration, such as 1m30s.", pattern=DURATION, max_length=32)]


class Header(Declared, frozen=True, kw_only=True):
    """One header of a request."""

    name: Annotated[str, described("Its name.", min_length=1, max_length=128, pattern="^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]
    value: Annotated[str, described("Its value.", max_length=4096, pattern=r"^[^\r\n]*$")]


class PrometheusGate(Declared, frozen=True, kw_only=True):
    """An instant query. No data, and a value that is no number, are inconclusive."""

    address: Annotated[str, described("URL of Prometheus, without /api/v1.", pattern=_URL, max_length=2048)]
    query: Annotated[str, described("The query, in PromQL.", min_length=1, max_length=_EXPRESSION)]
    success: Annotated[
        str,
        described(
            "CEL that is true if the measurement is good. `result` is the value, or a list of values if the query "
            "gives several series.",
            min_length=1,
            max_length=_EXPRESSION,
        ),
    ]
    secret_ref: (
        Annotated[SecretRef, described("A Secret with `token`, or with `username` and `password`.")] | UnsetType
    ) = UNSET
    ca_bundle: Annotated[str, described(_CA_BUNDLE, max_length=65536)] | UnsetType = UNSET
    headers: Annotated[list[Header], described("More headers, such as X-Scope-OrgID.", max_items=16)] | UnsetType = (
        UNSET
    )


class HttpGate(Declared, frozen=True, kw_only=True):
    """An HTTP request whose answer decides. Redirects are not followed."""

    url: Annotated[str, described("Where to ask.", pattern=_URL, max_length=2048)]
    method: Annotated[Literal["GET", "HEAD", "POST", "PUT"], described("How to ask.", default="GET")] | UnsetType = (
        UNSET
    )
    headers: Annotated[list[Header], described("Headers of the request.", max_items=16)] | UnsetType = UNSET
    body: (
        Annotated[
            str,
            described(
                "Body of a POST or PUT; without one the rollout, the wave and its counts are sent as JSON.",
                max_length=65536,
            ),
        ]
        | UnsetType
    ) = UNSET
    success: (
        Annotated[
            str,
            described(
                "CEL that is true if the answer is good, over `response.status`, `response.body`, which is decoded if "
                "it is JSON, and `response.headers`. Without it, a status from 200 to 299 is.",
                min_length=1,
                max_length=_EXPRESSION,
            ),
        ]
        | UnsetType
    ) = UNSET
    secret_ref: (
        Annotated[SecretRef, described("A Secret with `token`, or with `username` and `password`.")] | UnsetType
    ) = UNSET
    ca_bundle: Annotated[str, described(_CA_BUNDLE, max_length=65536)] | UnsetType = UNSET


class OperationTemplate(Declared, frozen=True, kw_only=True):
    """The Operation to run."""

    metadata: Annotated[dict[str, Any], described("Labels and annotations of the Operation.")] | UnsetType = UNSET
    spec: Annotated[dict[str, Any], described("What an Operation's spec says: mode, pipeline, retryLimit.")]


class OperationGate(Declared, frozen=True, kw_only=True):
    """An Operation that is run for each measurement, with the rights of the policy's author. It is good if it succeeds,
    and is deleted afterwards."""

    template: OperationTemplate


class JobTemplate(Declared, frozen=True, kw_only=True):
    """The Job to run."""

    metadata: Annotated[dict[str, Any], described("Labels and annotations of the Job.")] | UnsetType = UNSET
    spec: Annotated[dict[str, Any], described("What a Job's spec says.")]


class JobGate(Declared, frozen=True, kw_only=True):
    """A Job that is run for each measurement, with the rights of the policy's author: on Kubernetes only."""

    namespace: Annotated[str, described("Where to run it.", min_length=1, max_length=63)]
    template: JobTemplate


class Gate(Declared, frozen=True, kw_only=True):
    """What must hold after a wave before the next one begins. Each measurement passes, fails, is inconclusive or is an
    error; too many failures fail the rollout, too many of the others pause it until somebody decides."""

    SCHEMA: ClassVar = ruled(
        rule(
            "[has(self.cel), has(self.prometheus), has(self.http), has(self.operation), has(self.job)]"
            ".filter(given, given).size() == 1",
            "a gate has exactly one of cel, prometheus, http, operation and job",
        )
    )

    name: Annotated[
        str,
        described("Its name among the gates.", min_length=1, max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
    ]
    cel: (
        Annotated[
            str,
            described(
                "CEL over the XRs that were moved: `wave.name`, `wave.part`, `wave.xrs`.",
                min_length=1,
                max_length=_EXPRESSION,
            ),
        ]
        | UnsetType
    ) = UNSET
    prometheus: PrometheusGate | UnsetType = UNSET
    http: HttpGate | UnsetType = UNSET
    operation: OperationGate | UnsetType = UNSET
    job: JobGate | UnsetType = UNSET
    interval: (
        Annotated[str, described("Time between two measurements.", default="30s", pattern=DURATION, max_length=32)]
        | UnsetType
    ) = UNSET
    count: (
        Annotated[int, described("How many measurements must pass or fail.", default=1, minimum=1, maximum=1000)]
        | UnsetType
    ) = UNSET
    failure_limit: (
        Annotated[int, described("How many failures are tolerated.", default=0, minimum=0, maximum=1000)] | UnsetType
    ) = UNSET
    inconclusive_limit: (
        Annotated[
            int,
            described(
                "How many inconclusive measurements are tolerated before the rollout is paused; they do not count as "
                "measured.",
                default=3,
                minimum=0,
                maximum=1000,
            ),
        ]
        | UnsetType
    ) = UNSET
    consecutive_error_limit: (
        Annotated[
            int,
            described(
                "How many errors in a row are tolerated before the rollout is paused; they do not count as measured.",
                default=4,
                minimum=0,
                maximum=1000,
            ),
        ]
        | UnsetType
    ) = UNSET
    timeout: (
        Annotated[
            str,
            described(
                "How long one measurement may take. 30s if absent, and 10m for an Operation or a Job.",
                pattern=DURATION,
                max_length=32,
            ),
        ]
        | UnsetType
    ) = UNSET
    during: (
        Annotated[bool, described("Whether it goes on measuring while later waves move.", default=False)] | UnsetType
    ) = UNSET


GateVerdict = Literal["Running", "Passed", "Failed", "Inconclusive", "Error", "Skipped"]


class GateStatus(Declared, frozen=True, kw_only=True):
    """How a gate stands in a wave."""

    name: Annotated[str, described("Name of the gate.")]
    verdict: Annotated[
        GateVerdict,
        described("Running until it is decided; Inconclusive and Error once they are beyond their limits."),
    ]
    value: Annotated[str, described("What was measured last.", max_length=256)] | UnsetType = UNSET
    threshold: Annotated[str, described("What it is held against.", max_length=256)] | UnsetType = UNSET
    query: Annotated[str, described("What was asked.", max_length=256)] | UnsetType = UNSET
    message: Annotated[str, described("Why the last measurement is what it is.", max_length=1024)] | UnsetType = UNSET
    measured: Annotated[int, described("How many measurements passed or failed.", minimum=0)] = 0
    passed: Annotated[int, described("How many passed.", minimum=0)] = 0
    failed: Annotated[int, described("How many failed.", minimum=0)] = 0
    inconclusive: Annotated[int, described("How many were inconclusive.", minimum=0)] = 0
    errors: Annotated[int, described("How many errors came last in a row.", minimum=0)] = 0
    since: (
        Annotated[datetime, described("The move that it is about: what was measured before it does not count.")]
        | UnsetType
    ) = UNSET
    last_measured: Annotated[datetime, described("When it was measured last.")] | UnsetType = UNSET


NotificationEvent = Annotated[
    Literal["Started", "Waiting", "Failed", "Aborted", "Completed"], described("What happened to a Rollout.")
]
NOTIFICATION_EVENTS: Final[tuple[NotificationEvent, ...]] = ("Started", "Waiting", "Failed", "Aborted", "Completed")


class Notification(Declared, frozen=True, kw_only=True):
    """Whom to tell about a Rollout, by HTTP."""

    SCHEMA: ClassVar = ruled(
        rule("has(self.url) || has(self.secretRef)", "a notification needs a url, or a Secret that holds it")
    )

    url: Annotated[str, described("Where to POST to.", pattern=_URL, max_length=2048)] | UnsetType = UNSET
    secret_ref: (
        Annotated[
            SecretRef,
            described(
                "A Secret with `key`, by which each request is signed (header X-Planform-Signature), and, where the "
                "address itself is a secret, with `url`. It is read with the rights of the policy's author."
            ),
        ]
        | UnsetType
    ) = UNSET
    on: (
        Annotated[
            list[NotificationEvent], described("Of what to tell; of everything if absent.", distinct=True, max_items=5)
        ]
        | UnsetType
    ) = UNSET
    format: (
        Annotated[
            Literal["JSON", "Slack"],
            described("The body: all there is to know, or what Slack and those like it take.", default="JSON"),
        ]
        | UnsetType
    ) = UNSET
    ca_bundle: Annotated[str, described(_CA_BUNDLE, max_length=65536)] | UnsetType = UNSET


class WindowSubjects(Declared, frozen=True, kw_only=True):
    """Whom a window is about: XRs that every selector given matches."""

    namespaces: (
        Annotated[
            LabelSelector, described("Labels of the namespace of the claim, or of the XR. Absent: any, or none at all.")
        ]
        | UnsetType
    ) = UNSET
    xrs: Annotated[LabelSelector, described("Labels of the claim or of the XR. Absent: any.")] | UnsetType = UNSET


Weekday = Annotated[Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], described("A day of the week.")]


class RecurringRange(Declared, frozen=True, kw_only=True):
    """A time of day, on some days of the week."""

    days: (
        Annotated[list[Weekday], described("On which days it begins; on all if absent.", distinct=True, max_items=7)]
        | UnsetType
    ) = UNSET
    from_: Annotated[str, described("When it begins, such as 09:00.", pattern=_TIME_OF_DAY)] = msgspec.field(
        name="from"
    )
    to: Annotated[
        str,
        described(
            "When it ends, such as 15:00 or 24:00; on the next day if that is not after the begin.", pattern=_END_OF_DAY
        ),
    ]


class OnceRange(Declared, frozen=True, kw_only=True):
    """A time that does not come again."""

    from_: Annotated[datetime, described("When it begins; it always has if absent.")] | UnsetType = msgspec.field(
        name="from", default=UNSET
    )
    to: Annotated[datetime, described("When it ends.")]


class ChangeWindowSpec(Declared, frozen=True, kw_only=True):
    """When XRs may be moved, or may not."""

    SCHEMA: ClassVar = ruled(
        rule("has(self.recurring) || has(self.once)", "a window needs recurring or once"),
        rule(
            "!has(self.once) || !has(self.once.from) || self.once.from < self.once.to",
            "once.from must be before once.to",
        ),
    )

    effect: Annotated[
        Literal["Allow", "Deny"],
        described(
            "Deny: no XR is moved while it is open, whatever others say. Allow: XRs that it is about are moved only "
            "while it, or another Allow that is about them, is open."
        ),
    ]
    for_: Annotated[WindowSubjects, described("Which XRs it is about; all if absent.")] | UnsetType = msgspec.field(
        name="for", default=UNSET
    )
    time_zone: (
        Annotated[
            str,
            described(
                "The time zone of `recurring`, such as Europe/Zurich.",
                default="UTC",
                max_length=64,
                pattern=r"^[A-Za-z0-9_+\-]+(/[A-Za-z0-9_+\-]+)*$",
            ),
        ]
        | UnsetType
    ) = UNSET
    recurring: (
        Annotated[list[RecurringRange], described("Ranges that come every week.", min_items=1, max_items=64)]
        | UnsetType
    ) = UNSET
    once: OnceRange | UnsetType = UNSET
    reason: (
        Annotated[str, described("Why there is this window; whoever waits for it reads it.", max_length=1024)]
        | UnsetType
    ) = UNSET


class ChangeWindowStatus(Status, frozen=True, kw_only=True):
    """Whether it is open, and until when that is so."""

    open: Annotated[bool, described("Whether it is open now.")] | UnsetType = UNSET
    next_open: (
        Annotated[datetime, described("When it opens next; absent if it is open, or never does.")] | UnsetType
    ) = UNSET
    next_close: (
        Annotated[datetime, described("When it closes next; absent if it is closed, or never does.")] | UnsetType
    ) = UNSET
    reason: Annotated[str, described("In a sentence, what that means for those it is about.")] | UnsetType = UNSET


class ChangeWindow(TypedObject, frozen=True, kw_only=True):
    """When Rollouts may move XRs. XRs that are being moved go on, and a way back is never held up."""

    gvk: ClassVar = CHANGE_WINDOW

    spec: ChangeWindowSpec
    status: ChangeWindowStatus | UnsetType = UNSET


def change_window() -> Object:
    """The CustomResourceDefinition of ChangeWindows."""
    columns = [
        column("EFFECT", ".spec.effect"),
        column("OPEN", ".status.open", "boolean"),
        column("NEXT OPEN", ".status.nextOpen"),
        column("NEXT CLOSE", ".status.nextClose"),
        column("ZONE", ".spec.timeZone", priority=1),
        column("REASON", ".status.reason", priority=1),
    ]
    served = version(CHANGE_WINDOW.version, schema_of(ChangeWindow), columns, storage=True)
    return crd(CHANGE_WINDOW.group, CHANGE_WINDOW.kind, [served], categories=["planform"])
