"""RolloutPolicy, Rollout and RolloutAction: how a change of logic reaches a fleet, declared once.

A RolloutPolicy is what people keep in Git. A Rollout is one change on its way, made by the control plane with a
snapshot of the policy, so that editing a policy changes no Rollout that runs. A RolloutAction is what somebody, or the
control plane itself, decided about a Rollout: create-only, so that nothing that heals itself can take it back.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from planform.api.crds import column, condition_column, crd, version
from planform.api.declarations import Declared, described, immutable, rule, ruled, schema_of
from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import ROLLOUT, ROLLOUT_ACTION, ROLLOUT_POLICY
from planform.api.objects import Status, TypedObject
from planform.api.references import LabelSelector, NameRef
from planform.api.rollout_gates import DURATION, Gate, GateStatus, Notification

MAX_FAILING: Final = 20
"""So many failing XRs a Rollout names; of the others it only knows how many there are."""
MAX_HISTORY: Final = 100

Action = Literal[
    "Pause",
    "Resume",
    "Approve",
    "Promote",
    "PromoteFull",
    "SkipGate",
    "Abort",
    "Undo",
    "Retry",
    "Complete",
    "Supersede",
    "Fail",
]
OWN_ACTIONS: Final = ("Complete", "Supersede", "Fail")
"""What only the control plane decides; people may do the rest."""
Phase = Literal[
    "Pending",
    "Previewing",
    "AwaitingApproval",
    "Running",
    "Paused",
    "Aborting",
    "Aborted",
    "Superseded",
    "Completed",
    "Undoing",
    "Undone",
    "Failed",
]
FINAL: Final = frozenset({"Aborted", "Superseded", "Completed", "Undone", "Failed"})
"""Phases in which a Rollout moves nobody, unless somebody acts on it again."""


# -- whom a policy is for


class CompositionsHeld(Declared, frozen=True, kw_only=True):
    """Compositions, by name or by label; neither means all of them."""

    names: (
        Annotated[list[Annotated[str, described("A name.")]], described("Names of Compositions.", distinct=True)]
        | UnsetType
    ) = UNSET
    match_labels: (
        Annotated[dict[str, str], described("Labels that Compositions have; all of them if empty.")] | UnsetType
    ) = UNSET


class NamesHeld(Declared, frozen=True, kw_only=True):
    """Objects, by name; without names, all of them."""

    names: (
        Annotated[list[Annotated[str, described("A name.")]], described("Their names.", distinct=True)] | UnsetType
    ) = UNSET


class PolicyScope(Declared, frozen=True, kw_only=True):
    """What a policy is for. Of several policies the most specific one wins: names, then labels, then all."""

    SCHEMA: ClassVar = ruled(
        rule(
            "has(self.compositions) || has(self.functions) || has(self.definitions)",
            "a policy is for compositions, functions or definitions; `compositions: {}` means all of them",
        ),
        rule("!has(self.definitions)", "definitions are not held yet: leave them out"),
    )

    compositions: Annotated[CompositionsHeld, described("The Compositions that it holds.")] | UnsetType = UNSET
    functions: (
        Annotated[
            NamesHeld,
            described(
                "The functions whose new revisions make new revisions of these Compositions, which pin them; all that"
                " the Compositions call if absent. Without `compositions`: all Compositions that call one of them."
            ),
        ]
        | UnsetType
    ) = UNSET
    definitions: (
        Annotated[NamesHeld, described("Not held yet, and refused: XRDs whose changed schemas it holds.")] | UnsetType
    ) = UNSET


# -- how a change moves


class Spread(Declared, frozen=True, kw_only=True):
    """How the parts of a wave are spread over the values of a label."""

    label: Annotated[str, described("The label, such as topology.example.org/region.", min_length=1)]
    order: (
        Annotated[
            Literal["Together", "Serial"],
            described("Together: every part takes from each value; Serial: one value after the other."),
        ]
        | UnsetType
    ) = UNSET


class Approval(Declared, frozen=True, kw_only=True):
    """Who has to approve."""

    count: Annotated[int, described("By how many different users.", minimum=1, maximum=10)] | UnsetType = UNSET
    groups: (
        Annotated[
            list[Annotated[str, described("A group.")]],
            described("They must be in one of these groups; any user may if empty.", distinct=True),
        ]
        | UnsetType
    ) = UNSET


class Wave(Declared, frozen=True, kw_only=True):
    """Some of the XRs, which move together. An XR belongs to the first wave that takes it."""

    SCHEMA: ClassVar = ruled(
        rule("!has(self.percent) || self.percent.all(p, p > 0 && p <= 100)", "percentages are above 0 and at most 100"),
        rule(
            "self.name != 'rest' && self.name != 'already-failing' && self.name != 'superseded'",
            "planform adds waves named rest, superseded and already-failing itself: choose another name",
        ),
    )

    name: Annotated[str, described("Its name.", min_length=1, max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    xrs: Annotated[LabelSelector, described("Labels of the XRs, or of their claims.")] | UnsetType = UNSET
    namespaces: Annotated[LabelSelector, described("Labels of the XRs' namespaces.")] | UnsetType = UNSET
    max: Annotated[int, described("At most so many XRs; the others go on.", minimum=1)] | UnsetType = UNSET
    percent: (
        Annotated[
            list[Annotated[int, described("A share.", format="int32")]],
            described("In parts: the share of the wave that has moved after each; the last one is 100.", max_items=20),
        ]
        | UnsetType
    ) = UNSET
    spread: Annotated[Spread, described("How its parts are spread.")] | UnsetType = UNSET
    soak: Annotated[str, described("How long to wait when all have settled.", pattern=DURATION)] | UnsetType = UNSET
    max_failures: Annotated[int, described("So many of its XRs may fail.", minimum=0)] | UnsetType = UNSET
    approval: Annotated[Approval, described("What it takes to begin the wave.")] | UnsetType = UNSET
    gates: (
        Annotated[
            list[Annotated[str, described("Name of a gate.")]],
            described("The gates after this wave; all of the policy if absent.", distinct=True),
        ]
        | UnsetType
    ) = UNSET


class Budget(Declared, frozen=True, kw_only=True):
    """How much may go wrong."""

    max_failures: Annotated[int, described("So many XRs of a wave may fail; 0 if absent.", minimum=0)] | UnsetType = (
        UNSET
    )
    max_failures_total: (
        Annotated[int | str, described("So many may fail in all, as a number or a share such as 2%.")] | UnsetType
    ) = UNSET
    progress_deadline: (
        Annotated[str, described("An XR that has not settled by then has failed; 10m if absent.", pattern=DURATION)]
        | UnsetType
    ) = UNSET


class PreviewDemand(Declared, frozen=True, kw_only=True):
    """What a preview has to say before anything moves."""

    accept: (
        Annotated[
            list[Annotated[str, described("A CEL expression.")]],
            described(
                "CEL over `summary`; if one of them is false somebody has to approve. If absent, nothing may be"
                " deleted, recreated, fail or become invalid.",
                max_items=32,
            ),
        ]
        | UnsetType
    ) = UNSET
    max_age: (
        Annotated[str, described("How old it may be when the first wave begins; 24h if absent.", pattern=DURATION)]
        | UnsetType
    ) = UNSET
    on_deviation: (
        Annotated[
            Literal["Hold", "Accept", "Abort"],
            described(
                "What happens to an XR whose plan is no subset of its preview. Hold, if absent: nothing is written,"
                " and the Rollout waits at its end. Accept: it is counted. Abort: everybody goes back."
            ),
        ]
        | UnsetType
    ) = UNSET


class Rollback(Declared, frozen=True, kw_only=True):
    """How far back the way is open: moving there needs no waves."""

    revisions: Annotated[int, described("Released revisions to keep; 3 if absent.", minimum=0)] | UnsetType = UNSET
    max_age: (
        Annotated[str, described("How long ago they may have been released; 168h if absent.", pattern=DURATION)]
        | UnsetType
    ) = UNSET


class Strategy(Declared, frozen=True, kw_only=True):
    """How a change moves: a policy without whom it is for, and what a Rollout keeps of it."""

    start: (
        Annotated[
            Literal["Automatic", "WhenApproved", "Manual"],
            described("Whether a change begins to move by itself, once approved, or once somebody starts it."),
        ]
        | UnsetType
    ) = UNSET
    preview: Annotated[PreviewDemand, described("What a preview has to say first.")] | UnsetType = UNSET
    waves: (
        Annotated[
            list[Wave],
            described("One after the other; what none takes is `rest`.", by="name", max_items=50),
        ]
        | UnsetType
    ) = UNSET
    unit: (
        Annotated[Literal["XR", "Root"], described("Root: nested XRs move with the root of their tree.")] | UnsetType
    ) = UNSET
    concurrency: (
        Annotated[int, described("So many XRs are on their way at a time; 50 if absent.", minimum=1)] | UnsetType
    ) = UNSET
    budget: Annotated[Budget, described("How much may go wrong.")] | UnsetType = UNSET
    min_ready: (
        Annotated[str, described("How long an XR has to be ready to count as settled.", pattern=DURATION)] | UnsetType
    ) = UNSET
    already_failing: (
        Annotated[
            Literal["Last", "Skip", "Include"],
            described("What becomes of XRs that are not well when it is their turn; Last if absent."),
        ]
        | UnsetType
    ) = UNSET
    new_xrs: (
        Annotated[
            Literal["Stable", "Target"],
            described("Which revision an XR begins with that is created while a Rollout is Running; Stable if absent."),
        ]
        | UnsetType
    ) = msgspec.field(name="newXRs", default=UNSET)
    manual_xrs: (
        Annotated[
            Literal["Leave", "Advance"],
            described("Whether XRs with compositionUpdatePolicy Manual are moved; Leave if absent."),
        ]
        | UnsetType
    ) = msgspec.field(name="manualXRs", default=UNSET)
    max_hold: (
        Annotated[
            str,
            described(
                "How far owners may postpone an XR by the label rollout.planform.dev/not-before; 14d if absent.",
                pattern=DURATION,
            ),
        ]
        | UnsetType
    ) = UNSET
    shuffle: (
        Annotated[bool, described("Whether other XRs come first in each Rollout; the same ones if absent.")] | UnsetType
    ) = UNSET
    gates: (
        Annotated[list[Gate], described("Measured after each wave; `ready` is always.", by="name", max_items=20)]
        | UnsetType
    ) = UNSET
    on_failure: (
        Annotated[Literal["Abort", "Pause"], described("What a failure leads to; Abort if absent.")] | UnsetType
    ) = UNSET
    on_new_revision: (
        Annotated[
            Literal["Supersede", "Queue"],
            described("What a newer revision does to a Rollout that runs; Supersede if absent."),
        ]
        | UnsetType
    ) = UNSET
    rollback: Annotated[Rollback, described("How far back the way is open.")] | UnsetType = UNSET
    notify: Annotated[list[Notification], described("Whom to tell.", max_items=20)] | UnsetType = UNSET


class RolloutPolicySpec(Strategy, frozen=True, kw_only=True):
    """Whom the policy is for, and how changes move."""

    SCHEMA: ClassVar = ruled(required=["for"])

    for_: Annotated[PolicyScope, described("What the policy is for.")] = msgspec.field(name="for")


class PolicyStatus(Status, frozen=True, kw_only=True):
    """What the policy holds."""

    compositions: Annotated[int, described("How many Compositions it holds.")] | UnsetType = UNSET
    observed_generation: Annotated[int, described("The generation that this is said about.")] | UnsetType = UNSET


class RolloutPolicy(TypedObject, frozen=True, kw_only=True):
    """How changes of Compositions, functions and XRDs reach the XRs that follow them."""

    gvk: ClassVar = ROLLOUT_POLICY

    spec: RolloutPolicySpec
    status: PolicyStatus | UnsetType = UNSET


# -- one change on its way


class Cause(Declared, frozen=True, kw_only=True):
    """Why there is a new revision, if not because its Composition was changed."""

    function: Annotated[str, described("The function that has a new revision.")] | UnsetType = UNSET
    revision: Annotated[str, described("That revision.")] | UnsetType = UNSET
    rollback: (
        Annotated[bool, described("Whether the Composition came back to what was released before.")] | UnsetType
    ) = UNSET
    release: (
        Annotated[str, described("Another release of planform, named after the versions of its built-in functions.")]
        | UnsetType
    ) = UNSET


class RevisionChange(Declared, frozen=True, kw_only=True):
    """A Composition, the revision that is released now, and the one to come."""

    composition: Annotated[str, described("Name of the Composition.", min_length=1)]
    uid: Annotated[str, described("The Composition's uid.")] | UnsetType = UNSET
    from_: Annotated[str, described("The revision that is released; empty if none is.")] | UnsetType = msgspec.field(
        name="from", default=UNSET
    )
    from_number: Annotated[int, described("Its number.")] | UnsetType = UNSET
    to: Annotated[str, described("The revision to come.", min_length=1)]
    to_number: Annotated[int, described("Its number when the Rollout began.")]
    cause: Annotated[Cause, described("Why there is one.")] | UnsetType = UNSET

    @property
    def is_release(self) -> bool:
        """Whether it is planform itself that changes, and no revision."""
        return bool(self.cause and self.cause.release)


class RolloutSpec(Declared, frozen=True, kw_only=True):
    """What changes and how it moves: never changed once it is made."""

    SCHEMA: ClassVar = ruled(immutable("the spec of a Rollout"))

    policy: Annotated[str, described("The policy whose snapshot the strategy is.")] | UnsetType = UNSET
    changes: Annotated[list[RevisionChange], described("What changes.", by="composition", min_items=1, max_items=200)]
    attempt: Annotated[int, described("Counts the Rollouts of the same change.", minimum=1)] | UnsetType = UNSET
    preview_ref: Annotated[NameRef, described("The Preview that is enforced.")] | UnsetType = UNSET
    strategy: Annotated[Strategy, described("How it moves.")]


class WavePosition(Declared, frozen=True, kw_only=True):
    """Where a Rollout is."""

    index: Annotated[int, described("Which wave, from 0.")]
    name: Annotated[str, described("Its name.")]
    part: Annotated[int, described("Which part of the wave, from 1.")]
    state: Annotated[
        Literal["Waiting", "Admitting", "Settling", "Soaking", "Gating", "Done"], described("What happens there.")
    ]
    until: Annotated[str, described("When the soak ends, at the earliest.", format="date-time")] | UnsetType = UNSET


class Waiting(Declared, frozen=True, kw_only=True):
    """What a Rollout waits for."""

    for_: Annotated[
        str,
        described("In a word: Preview, Approval, Start, Window, Concurrency, FunctionRevision, Deviation ..."),
    ] = msgspec.field(name="for")
    message: Annotated[str, described("In a sentence, with what to do.")]


class Counts(Declared, frozen=True, kw_only=True):
    """How many XRs there are, and where they are. All numbers count XRs."""

    xrs: Annotated[int, described("That the change is for.")] = 0
    target: Annotated[int, described("That refer to the revision to come.")] = 0
    ready: Annotated[int, described("Of these, those that have settled.")] = 0
    in_flight: Annotated[int, described("Of these, those that are on their way.")] = 0
    failed: Annotated[int, described("Of these, those that failed.")] = 0
    put_off: Annotated[int, described("That were not well when it was their turn.")] = 0
    deviated: Annotated[int, described("Whose plan is no subset of their preview.")] = 0
    skipped: Annotated[int, described("That are left out: paused, or their reference is another manager's.")] = 0
    pinned: Annotated[int, described("With compositionUpdatePolicy Manual.")] = 0
    unmatched: Annotated[int, described("That no wave of the policy takes.")] = 0
    by_hand: Annotated[int, described("That somebody moved to the revision by hand.")] = 0


class WaveStatus(Declared, frozen=True, kw_only=True):
    """How a wave goes."""

    name: Annotated[str, described("The wave.")]
    xrs: Annotated[int, described("Its XRs.")] = 0
    target: Annotated[int, described("Those that refer to the revision to come.")] = 0
    ready: Annotated[int, described("Those that have settled.")] = 0
    in_flight: Annotated[int, described("Those that are on their way.")] = 0
    failed: Annotated[int, described("Those that failed.")] = 0
    parts: Annotated[int, described("How many of its parts are done.")] = 0
    started: Annotated[str, described("When its first XR moved.", format="date-time")] | UnsetType = UNSET
    settled: (
        Annotated[str, described("When the XRs of the part that is under way had settled.", format="date-time")]
        | UnsetType
    ) = UNSET
    finished: Annotated[str, described("When its last part was done.", format="date-time")] | UnsetType = UNSET
    gates: Annotated[list[GateStatus], described("What the gates said.", by="name")] | UnsetType = UNSET


class Failing(Declared, frozen=True, kw_only=True):
    """An XR that failed."""

    xr: Annotated[str, described("Which one: XDatabase.example.org team-a/pay.")]
    wave: Annotated[str, described("Its wave.")] | UnsetType = UNSET
    since: Annotated[str, described("Since when.", format="date-time")] | UnsetType = UNSET
    message: Annotated[str, described("What it says of itself.")] = ""


class HistoryEntry(Declared, frozen=True, kw_only=True):
    """Something that somebody did, and what came of it."""

    time: Annotated[str, described("When.", format="date-time")]
    by: Annotated[str, described("Who.")]
    action: Annotated[str, described("What.")]
    reason: Annotated[str, described("Why, as they said.")] | UnsetType = UNSET
    wave: Annotated[str, described("The wave that it was about.")] | UnsetType = UNSET
    part: Annotated[int, described("The part of that wave.")] | UnsetType = UNSET
    failures: Annotated[int, described("How many XRs had failed by then, which a Resume accepts.")] | UnsetType = UNSET
    outcome: Annotated[str, described("What came of it, unless it was done: why it was ignored.")] | UnsetType = UNSET
    uid: Annotated[str, described("The RolloutAction's uid.")]


class RolloutStatus(Status, frozen=True, kw_only=True):
    """How the change goes: counts and examples, never a list of all XRs."""

    phase: Annotated[Phase, described("In a word.")] | UnsetType = UNSET
    reason: Annotated[str, described("Why it is in this phase, as one word for programs.")] | UnsetType = UNSET
    message: Annotated[str, described("Why, as a sentence for people.")] | UnsetType = UNSET
    wave: Annotated[WavePosition, described("Where it is.")] | UnsetType = UNSET
    waiting: Annotated[Waiting, described("What it waits for.")] | UnsetType = UNSET
    counts: Annotated[Counts, described("Where the XRs are.")] | UnsetType = UNSET
    waves: Annotated[list[WaveStatus], described("How the waves go.", by="name")] | UnsetType = UNSET
    failing: (
        Annotated[list[Failing], described("XRs that failed; at most 20 of them.", max_items=MAX_FAILING)] | UnsetType
    ) = UNSET
    history: (
        Annotated[list[HistoryEntry], described("What was done, the latest last.", max_items=MAX_HISTORY)] | UnsetType
    ) = UNSET
    started: Annotated[str, described("When the first wave began.", format="date-time")] | UnsetType = UNSET
    finished: Annotated[str, described("When it came to an end.", format="date-time")] | UnsetType = UNSET


class Rollout(TypedObject, frozen=True, kw_only=True):
    """One change of logic on its way to the XRs that follow it."""

    gvk: ClassVar = ROLLOUT

    spec: RolloutSpec
    status: RolloutStatus | UnsetType = UNSET

    @property
    def phase(self) -> str:
        return (self.status.phase or "Pending") if self.status else "Pending"


# -- what somebody decides about it


class RolloutActionSpec(Declared, frozen=True, kw_only=True):
    """What is to be done with which Rollout."""

    SCHEMA: ClassVar = ruled(immutable("a RolloutAction"))

    rollout: Annotated[str, described("Name of the Rollout.", min_length=1)]
    action: Annotated[Action, described("What to do.")]
    reason: Annotated[str, described("Why.", max_length=1024)] | UnsetType = UNSET
    wave: (
        Annotated[str, described("The wave that is meant, for Approve, Promote and SkipGate; else the one under way.")]
        | UnsetType
    ) = UNSET
    by: Annotated[str, described("Who says so; the server writes it.")] | UnsetType = UNSET
    groups: (
        Annotated[list[Annotated[str, described("A group.")]], described("Their groups; the server writes them.")]
        | UnsetType
    ) = UNSET
    at: Annotated[str, described("When; the server writes it.", format="date-time")] | UnsetType = UNSET


class RolloutAction(TypedObject, frozen=True, kw_only=True):
    """Something that somebody decided about a Rollout: it is made once and never changed."""

    gvk: ClassVar = ROLLOUT_ACTION

    spec: RolloutActionSpec


# -- their CustomResourceDefinitions


def rollout_policy() -> Object:
    columns = [
        column("START", ".spec.start"),
        column("COMPOSITIONS", ".status.compositions", "integer"),
        condition_column("Conflict"),
    ]
    return _served(ROLLOUT_POLICY, RolloutPolicy, columns)


def rollout() -> Object:
    columns = [
        column("PHASE", ".status.phase"),
        column("WAVE", ".status.wave.name"),
        column("STATE", ".status.wave.state"),
        column("MOVED", ".status.counts.target", "integer"),
        column("XRS", ".status.counts.xrs", "integer"),
        column("FAILED", ".status.counts.failed", "integer"),
        column("WAITING FOR", ".status.waiting.for"),
        column("MESSAGE", ".status.message", priority=1),
    ]
    return _served(ROLLOUT, Rollout, columns)


def rollout_action() -> Object:
    columns = [
        column("ROLLOUT", ".spec.rollout"),
        column("ACTION", ".spec.action"),
        column("BY", ".spec.by"),
        column("REASON", ".spec.reason"),
    ]
    return _served(ROLLOUT_ACTION, RolloutAction, columns, status=False)


def _served(
    gvk: GroupVersionKind, declared: type[TypedObject], columns: list[Object], *, status: bool = True
) -> Object:
    served = version(gvk.version, schema_of(declared), columns, storage=True, status=status)
    plural = f"{gvk.kind.lower()[:-1]}ies" if gvk.kind.endswith("y") else ""
    return crd(gvk.group, gvk.kind, [served], categories=["planform"], plural=plural)
