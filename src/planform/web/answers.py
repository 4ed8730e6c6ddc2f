"""What the page's API answers, as types. The OpenAPI document, and by it the page's own types, follow from these.

Fields are only ever added. Times are RFC 3339 texts as Kubernetes writes them.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Health = Literal["Ready", "NotReady", "NotSynced", "Deviating", "Paused", "Deleting", "Missing", "Present", "Unknown"]
"""How an object is, in one word; the worst that is known of it."""


class _Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """camelCase, every field present: the page never asks whether a field is there."""


class Session(_Answer, frozen=True, kw_only=True):
    """Who looks, at what, and what this server lets them do."""

    user: str
    groups: tuple[str, ...] = ()
    server: str
    engine: Literal["embedded", "kubernetes"]
    version: str
    read_only: bool
    csrf: str
    journal: bool
    rollouts: bool
    links: dict[str, str] = {}


class Condition(_Answer, frozen=True, kw_only=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: str = ""


class XrRow(_Answer, frozen=True, kw_only=True):
    """An XR in a list."""

    id: str
    kind: str
    group: str
    namespace: str
    name: str
    health: Health
    reason: str = ""
    message: str = ""
    since: str = ""
    created: str = ""
    composition: str = ""
    revision: str = ""
    revision_number: int = 0
    labels: dict[str, str] = {}
    claim: str = ""


class RevisionCount(_Answer, frozen=True, kw_only=True):
    name: str
    number: int
    count: int
    newest: bool


class KindSummary(_Answer, frozen=True, kw_only=True):
    """The XRs of one kind, counted."""

    id: str
    kind: str
    group: str
    definition: str
    total: int
    health: dict[str, int]
    compositions: tuple[str, ...]
    revisions: tuple[RevisionCount, ...]


class Problem(_Answer, frozen=True, kw_only=True):
    """Something that keeps this server from showing all there is."""

    what: str
    message: str
    hint: str = ""


class RolloutBrief(_Answer, frozen=True, kw_only=True):
    name: str
    phase: str
    composition: str
    target: int
    total: int
    waiting: str = ""


class Overview(_Answer, frozen=True, kw_only=True):
    """The whole fleet in numbers."""

    as_of: str
    synced: bool
    total: int
    health: dict[str, int]
    kinds: tuple[KindSummary, ...]
    rollouts: tuple[RolloutBrief, ...]
    packages_unhealthy: tuple[str, ...]
    problems: tuple[Problem, ...]
    definitions: int


class XrPage(_Answer, frozen=True, kw_only=True):
    """A page of XRs; `next` is empty on the last one."""

    rows: tuple[XrRow, ...]
    next: str
    matching: int
    total: int
    event: str


class TreeNode(_Answer, frozen=True, kw_only=True):
    """An object below an XR. `resource` is its name in the composition."""

    id: str
    kind: str
    group: str
    api_version: str
    namespace: str
    name: str
    resource: str
    health: Health
    state: str
    created: str
    revision: str
    link: str
    error: str
    children: tuple[TreeNode, ...]


class EventRow(_Answer, frozen=True, kw_only=True):
    type: str
    reason: str
    message: str
    count: int
    last: str
    source: str


class RunRow(_Answer, frozen=True, kw_only=True):
    id: int
    uid: str
    started: str
    seconds: float
    trigger: str
    revision: str
    failure: str


class Allowed(_Answer, frozen=True, kw_only=True):
    """Whether the user may do something, and if not, why."""

    action: str
    label: str
    allowed: bool
    why: str
    command: str
    needs_reason: bool = False
    danger: bool = False
    detail: str = ""


class Reference(_Answer, frozen=True, kw_only=True):
    kind: str
    namespace: str
    name: str
    link: str


class XrDetail(_Answer, frozen=True, kw_only=True):
    """One XR with what it is made of."""

    row: XrRow
    uid: str
    api_version: str
    generation: int
    plural: str
    conditions: tuple[Condition, ...]
    tree: TreeNode
    nodes: int
    events: tuple[EventRow, ...]
    runs: tuple[RunRow, ...]
    runs_note: str
    paused: bool
    deleting: str
    budget_token: str
    update_policy: str
    newest_revision: str
    newest_number: int
    held_by: str
    parents: tuple[Reference, ...]
    claim: Reference | None
    actions: tuple[Allowed, ...]
    links: dict[str, str]


class FieldDiff(_Answer, frozen=True, kw_only=True):
    path: str
    before: str
    after: str
    kind: Literal["added", "changed", "removed"]


class ResourceDiff(_Answer, frozen=True, kw_only=True):
    key: str
    kind: str
    change: Literal["added", "changed", "removed"]
    fields: tuple[FieldDiff, ...]
    more: int = 0


class ReadRow(_Answer, frozen=True, kw_only=True):
    name: str
    kind: str
    found: tuple[str, ...]


class ResultRow(_Answer, frozen=True, kw_only=True):
    severity: str
    reason: str
    message: str


class StepLane(_Answer, frozen=True, kw_only=True):
    """One step of a run. `start` is seconds since the run began."""

    step: str
    function: str
    revision: str
    rule: str
    rejected: tuple[tuple[str, str], ...]
    iterations: int
    cache: str
    start: float
    seconds: float
    changes: tuple[ResourceDiff, ...]
    reads: tuple[ReadRow, ...]
    results: tuple[ResultRow, ...]
    ready: dict[str, bool]
    warnings: tuple[str, ...]
    error: str


class PlannedRow(_Answer, frozen=True, kw_only=True):
    resource: str
    action: str
    kind: str
    name: str
    namespace: str
    ready: bool


class RunDetail(_Answer, frozen=True, kw_only=True):
    id: int
    uid: str
    kind: str
    group: str
    namespace: str
    name: str
    link: str
    started: str
    seconds: float
    trigger: str
    composition: str
    revision: str
    failure: str
    steps: tuple[StepLane, ...]
    plan: tuple[PlannedRow, ...]
    planned: bool
    warnings: tuple[str, ...]
    older: int
    newer: int


class RunPage(_Answer, frozen=True, kw_only=True):
    rows: tuple[RunRow, ...]


class PinnedStep(_Answer, frozen=True, kw_only=True):
    step: str
    function: str
    pin: str


class RevisionRow(_Answer, frozen=True, kw_only=True):
    """A CompositionRevision on the timeline. `released` is empty where no policy holds."""

    name: str
    number: int
    created: str
    users: int
    newest: bool
    released: str
    valid: str
    message: str
    steps: tuple[PinnedStep, ...]
    collectable: bool
    keeps: str


class Sample(_Answer, frozen=True, kw_only=True):
    """How many XRs used each revision at one moment, in the order of `RevisionUsage.revisions`."""

    time: str
    counts: tuple[int, ...]


class RevisionUsage(_Answer, frozen=True, kw_only=True):
    revisions: tuple[str, ...]
    samples: tuple[Sample, ...]
    source: str


class CompositionRow(_Answer, frozen=True, kw_only=True):
    name: str
    kind: str
    group: str
    users: int
    revisions: int
    behind: int
    rollout: str
    created: str
    valid: str


class CompositionPage(_Answer, frozen=True, kw_only=True):
    rows: tuple[CompositionRow, ...]


class CompositionDetail(_Answer, frozen=True, kw_only=True):
    row: CompositionRow
    revisions: tuple[RevisionRow, ...]
    usage: RevisionUsage
    functions: tuple[str, ...]
    history_limit: int
    rollouts: tuple[RolloutBrief, ...]
    conditions: tuple[Condition, ...]
    actions: tuple[Allowed, ...]


class TwoTexts(_Answer, frozen=True, kw_only=True):
    before: str
    after: str
    before_name: str
    after_name: str


class FunctionRevisionRow(_Answer, frozen=True, kw_only=True):
    name: str
    number: int
    package: str
    state: str
    healthy: str
    message: str
    users: int
    created: str
    calls: int
    errors: int
    milliseconds: float
    actions: tuple[Allowed, ...]


class FunctionRow(_Answer, frozen=True, kw_only=True):
    name: str
    package: str
    healthy: str
    active: str
    revisions: int
    users: int
    calls: int
    errors: int
    milliseconds: float
    cache_hits: int
    cache_lookups: int
    builtin: bool


class FunctionPage(_Answer, frozen=True, kw_only=True):
    rows: tuple[FunctionRow, ...]
    metrics: bool


class FunctionDetail(_Answer, frozen=True, kw_only=True):
    row: FunctionRow
    conditions: tuple[Condition, ...]
    policy: str
    revisions: tuple[FunctionRevisionRow, ...]
    compositions: tuple[str, ...]
    metrics: bool


class GateRow(_Answer, frozen=True, kw_only=True):
    name: str
    verdict: str
    value: str
    threshold: str
    query: str
    message: str
    measured: int
    series: tuple[float, ...]


class WaveRow(_Answer, frozen=True, kw_only=True):
    name: str
    part: int
    parts: int
    xrs: int
    target: int
    ready: int
    failed: int
    started: str
    finished: str
    state: str
    until: str
    soak: str
    approval: str
    gates: tuple[GateRow, ...]


class HistoryRow(_Answer, frozen=True, kw_only=True):
    time: str
    by: str
    action: str
    reason: str
    outcome: str = ""


class FailingRow(_Answer, frozen=True, kw_only=True):
    xr: str
    link: str
    since: str
    message: str


class RolloutRow(_Answer, frozen=True, kw_only=True):
    name: str
    phase: str
    compositions: tuple[str, ...]
    cause: str
    created: str
    target: int
    total: int
    failed: int
    waiting: str


class RolloutPage(_Answer, frozen=True, kw_only=True):
    rows: tuple[RolloutRow, ...]
    served: bool


class ChangeRow(_Answer, frozen=True, kw_only=True):
    composition: str
    before: str
    after: str
    cause: str


class RolloutDetail(_Answer, frozen=True, kw_only=True):
    row: RolloutRow
    changes: tuple[ChangeRow, ...]
    counts: dict[str, int]
    waves: tuple[WaveRow, ...]
    waiting_for: str
    waiting_message: str
    message: str = ""
    failing: tuple[FailingRow, ...]
    history: tuple[HistoryRow, ...]
    preview: str
    policy: str
    conditions: tuple[Condition, ...]
    actions: tuple[Allowed, ...]


class PreviewRow(_Answer, frozen=True, kw_only=True):
    name: str
    phase: str
    created: str
    verdict: str
    change: str
    xrs: int
    changed: int
    deletes: int


class PreviewPage(_Answer, frozen=True, kw_only=True):
    rows: tuple[PreviewRow, ...]
    served: bool


class ChangeClass(_Answer, frozen=True, kw_only=True):
    """XRs that would all change the same way."""

    id: str
    xrs: int
    risk: str
    change: str
    diff: str
    examples: tuple[Reference, ...]


class NotPreviewed(_Answer, frozen=True, kw_only=True):
    xr: str
    link: str
    reason: str


class PreviewDetail(_Answer, frozen=True, kw_only=True):
    row: PreviewRow
    summary: dict[str, int]
    classes: tuple[ChangeClass, ...]
    more_classes: int
    blast_namespaces: int
    blast_kinds: dict[str, int]
    blast_teams: dict[str, int]
    conditions: tuple[Condition, ...]
    inputs: dict[str, str]
    not_previewed: tuple[NotPreviewed, ...]
    drifting: tuple[str, ...]
    unstable: tuple[str, ...]
    markdown: str
    reports_note: str
    actions: tuple[Allowed, ...]


class PolicyRow(_Answer, frozen=True, kw_only=True):
    name: str
    selects: str
    start: str
    waves: tuple[str, ...]
    gates: tuple[str, ...]
    conditions: tuple[Condition, ...]


class WindowSpan(_Answer, frozen=True, kw_only=True):
    begin: str
    end: str


class WindowRow(_Answer, frozen=True, kw_only=True):
    name: str
    effect: str
    selects: str
    time_zone: str
    open: bool
    reason: str
    next: str
    spans: tuple[WindowSpan, ...]


class Policies(_Answer, frozen=True, kw_only=True):
    policies: tuple[PolicyRow, ...]
    windows: tuple[WindowRow, ...]
    served: bool
    begin: str
    end: str


class PhaseRow(_Answer, frozen=True, kw_only=True):
    name: str
    state: str
    progress: str
    detail: str


class OperationRow(_Answer, frozen=True, kw_only=True):
    """An Operation, CronOperation, WatchOperation or ActionSet."""

    kind: str
    namespace: str
    name: str
    state: str
    message: str
    created: str
    progress: str
    schedule: str
    last: str
    phases: tuple[PhaseRow, ...]
    actions: tuple[Allowed, ...]


class Operations(_Answer, frozen=True, kw_only=True):
    rows: tuple[OperationRow, ...]
    problems: tuple[Problem, ...]


class QueueRow(_Answer, frozen=True, kw_only=True):
    controller: str
    waiting: int
    delayed: int
    active: int
    oldest: float
    total: int
    failed: int
    milliseconds: float


class FindingRow(_Answer, frozen=True, kw_only=True):
    level: str
    subject: str
    message: str
    hint: str


class PackageRow(_Answer, frozen=True, kw_only=True):
    kind: str
    name: str
    package: str
    installed: str
    healthy: str
    message: str


class Figure(_Answer, frozen=True, kw_only=True):
    name: str
    value: float
    unit: str
    note: str


class ControlPlane(_Answer, frozen=True, kw_only=True):
    server: str
    engine: str
    version: str
    figures: tuple[Figure, ...]
    queues: tuple[QueueRow, ...]
    watches: dict[str, int]
    objects: dict[str, int]
    findings: tuple[FindingRow, ...]
    packages: tuple[PackageRow, ...]
    problems: tuple[Problem, ...]


class Found(_Answer, frozen=True, kw_only=True):
    kind: str
    name: str
    namespace: str
    health: str
    link: str


class SearchPage(_Answer, frozen=True, kw_only=True):
    found: tuple[Found, ...]
    more: int


class Done(_Answer, frozen=True, kw_only=True):
    """What an action did, in a sentence."""

    message: str


class Refusal(_Answer, frozen=True, kw_only=True):
    """Every answer that is no success."""

    code: int
    reason: str
    message: str
    hint: str = ""


class Login(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A one-time code, or a bearer token of the control plane."""

    code: str = ""
    token: str = ""


class Link(_Answer, frozen=True, kw_only=True):
    """A code that opens one session, once, within a minute."""

    code: str


class Act(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something to do to one object. `confirm` is its name, as the user saw it when they said yes."""

    action: str
    kind: str = ""
    namespace: str = ""
    name: str
    confirm: str
    reason: str = ""
    value: str = ""


class StreamChange(_Answer, frozen=True, kw_only=True):
    """One change of the stream; `row` is there for XRs that still exist."""

    topic: str
    id: str
    gone: bool = False
    row: XrRow | None = None


class Changes(_Answer, frozen=True, kw_only=True):
    changes: tuple[StreamChange, ...]
    as_of: str


class Live(_Answer, frozen=True, kw_only=True):
    """Whether the stream hears the control plane."""

    live: bool
    message: str = ""


def plain(value: Any) -> Any:
    return msgspec.to_builtins(value)
