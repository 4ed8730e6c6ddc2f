"""What the journal keeps of a run, and how it is written down.

A run names its large values (objects, inputs, contexts) as `Part`s. Written, a part is a number, its place among the
parts of the run; the content stands apart, once for however many runs share it. Served, a part is its value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec


class Part:
    """A JSON-shaped value that is kept by its content. Nobody changes it after it was given to a run."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Part) and self.value == other.value

    def __repr__(self) -> str:
        return f"Part({self.value!r})"

    __hash__ = None  # type: ignore[assignment]  # its value can be a dict


class _Written(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The form of everything below: camelCase, without what is empty."""


class Rejected(_Written, frozen=True, kw_only=True):
    """A version of the function that was not taken, and why."""

    id: str
    why: str


class Read(_Written, frozen=True, kw_only=True):
    """What a step asked to be shown, and the objects it was shown."""

    api_version: str
    kind: str
    name: str = ""
    labels: dict[str, str] | None = None
    namespace: str = ""
    found: tuple[Part, ...] = ()


class StepResult(_Written, frozen=True, kw_only=True):
    """A result of a function."""

    severity: str
    message: str
    reason: str = ""


class StepCondition(_Written, frozen=True, kw_only=True):
    """A condition that a function set."""

    type: str
    status: str
    reason: str
    message: str = ""


class StepRun(_Written, frozen=True, kw_only=True):
    """One step. `composite`, `resources` and `context` are the state after it; before it was that after the step
    before. A step that failed left none."""

    step: str
    function: str
    revision: str = ""
    digest: str = ""
    rule: str = ""
    """What chose the revision: Ref, Selector, Stable, Latest, ..."""
    rejected: tuple[Rejected, ...] = ()
    iterations: int = 0
    cache: str = ""
    seconds: float = 0.0
    input: Part | None = None
    reads: dict[str, Read] = {}
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed_composite: bool = False
    changed_context: tuple[str, ...] = ()
    composite: Part | None = None
    resources: dict[str, Part] = {}
    ready: dict[str, bool] = {}
    """What the functions have said so far; resources that none spoke of are not in it."""
    context: Part | None = None
    results: tuple[StepResult, ...] = ()
    conditions: tuple[StepCondition, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str = ""


class Planned(_Written, frozen=True, kw_only=True):
    """What was planned for a resource: to `create`, `apply` or `delete` it, under which name."""

    resource: str
    action: str
    api_version: str
    kind: str
    name: str
    namespace: str = ""
    ready: bool = False
    error: str = ""
    """Why it could not be done."""


class Run(_Written, frozen=True, kw_only=True):
    """One execution of a pipeline for one object. `id` grows with every run of this control plane."""

    id: int = 0
    uid: str
    api_version: str
    kind: str
    name: str
    namespace: str = ""
    generation: int = 0
    started: datetime
    seconds: float = 0.0
    trigger: str = ""
    """What made the controller run: a change of the XR, of a composed resource, an expired TTL, ..."""
    composition: str = ""
    composition_revision: str = ""
    failure: str = ""
    ttl: float | None = None
    observed_composite: Part | None = None
    observed: dict[str, Part] = {}
    steps: tuple[StepRun, ...] = ()
    plan: tuple[Planned, ...] | None = None
    """None if it did not come to a plan."""
    warnings: tuple[str, ...] = ()

    @property
    def group_kind(self) -> str:
        return group_kind(self.api_version, self.kind)

    def parts(self) -> list[Part]:
        """Every part, shared ones as often as they are named."""
        found = [self.observed_composite, *self.observed.values()]
        for step in self.steps:
            found += (step.input, step.composite, step.context)
            for read in step.reads.values():
                found += read.found
            found += step.resources.values()
        return [part for part in found if part is not None]


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run to be recorded, and the secret values that went through it beside those of Secret objects."""

    run: Run
    secrets: frozenset[bytes] = frozenset()


class RunSummary(_Written, frozen=True, kw_only=True):
    """A run without its parts: a line in a list."""

    id: int
    uid: str
    kind: str
    """With the group: `XBucket.example.org`."""
    name: str
    namespace: str = ""
    started: datetime
    seconds: float = 0.0
    trigger: str = ""
    composition_revision: str = ""
    failure: str = ""


def group_kind(api_version: str, kind: str) -> str:
    """`XBucket.example.org`, or just `ConfigMap` in the core group."""
    group = api_version.rpartition("/")[0]
    return f"{kind}.{group}" if group else kind


def encode_run(run: Run, place_of: Callable[[Part], int]) -> bytes:
    """The run as JSON, with the place of each part where the part stands."""
    return msgspec.json.encode(run, enc_hook=place_of)


def decode_run(data: bytes, contents: Sequence[Any]) -> Run:
    """What `encode_run` wrote, given the values at the places. Raises msgspec.DecodeError."""
    return msgspec.json.decode(data, type=Run, dec_hook=lambda wanted, place: Part(contents[place]))


def served(value: Run | RunSummary | Mapping[str, Any]) -> bytes:
    """As JSON for readers, parts in full."""
    return msgspec.json.encode(value, enc_hook=lambda part: part.value)


def read_run(data: bytes) -> Run:
    """What `served` gave of a run. Raises msgspec.DecodeError."""
    return msgspec.json.decode(data, type=Run, dec_hook=lambda wanted, value: Part(value))


def read_summaries(data: bytes) -> list[RunSummary]:
    """What `served` gave of `{"items": summaries}`. Raises msgspec.DecodeError."""
    return msgspec.json.decode(data, type=dict[str, list[RunSummary]])["items"]
