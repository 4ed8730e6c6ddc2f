"""What of a run a reader may see who may not read everything that its functions were sent. Pure.

A run shows the XR, what it composes, what its steps read, and their input. Who may read the XR is shown the run; an
object that they may not read is left as its kind and name, and where something that a step read is left out, so is the
context, which may hold it. Secrets need no right: none of their values is in the journal.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import msgspec

from planform.api.metadata import namespace_of
from planform.journal.records import Part, Read, Run, StepRun


class Shown(NamedTuple):
    """Objects of one kind in one namespace, of which a run shows some."""

    api_version: str
    kind: str
    namespace: str


REVISION = Shown("apiextensions.crossplane.io/v1", "CompositionRevision", "")
"""Where the inputs of steps are written."""


def xr_of(run: Run) -> Shown:
    return Shown(run.api_version, run.kind, run.namespace)


def shown_by(run: Run) -> frozenset[Shown]:
    """Everything that the run shows beside the XR."""
    found = {_of(part, run) for part in run.observed.values()}
    for step in run.steps:
        found |= {_of(part, run) for part in step.resources.values()}
        found |= {_of(part, run) for read in step.reads.values() for part in read.found}
        if step.input is not None:
            found.add(REVISION)
    return frozenset(each for each in found if each is not None and (each.api_version, each.kind) != ("v1", "Secret"))


def withheld(run: Run, forbidden: Collection[Shown]) -> Run:
    """The run without what is of these kinds, there."""
    if not forbidden:
        return run
    return msgspec.structs.replace(
        run,
        observed=_parts(run.observed, run, forbidden),
        steps=tuple(_step(step, run, forbidden) for step in run.steps),
    )


def _step(step: StepRun, run: Run, forbidden: Collection[Shown]) -> StepRun:
    reads = {name: _read(read, run, forbidden) for name, read in step.reads.items()}
    lacks_a_read = any(
        _of(part, run) in forbidden for each in run.steps for read in each.reads.values() for part in read.found
    )
    return msgspec.structs.replace(
        step,
        reads=reads,
        resources=_parts(step.resources, run, forbidden),
        input=None if REVISION in forbidden else step.input,
        context=None if lacks_a_read else step.context,
    )


def _parts(parts: Mapping[str, Part], run: Run, forbidden: Collection[Shown]) -> dict[str, Part]:
    return {key: _name_only(part) if _of(part, run) in forbidden else part for key, part in parts.items()}


def _read(read: Read, run: Run, forbidden: Collection[Shown]) -> Read:
    found = tuple(_name_only(part) if _of(part, run) in forbidden else part for part in read.found)
    return msgspec.structs.replace(read, found=found)


def _name_only(part: Part) -> Part:
    metadata = part.value.get("metadata") or {}
    kept = {name: metadata[name] for name in ("name", "namespace") if name in metadata}
    return Part({**{name: part.value.get(name) for name in ("apiVersion", "kind")}, "metadata": kept})


def _of(part: Part, run: Run) -> Shown | None:
    value: Any = part.value
    if not isinstance(value, dict) or not value.get("kind"):
        return None
    namespace = namespace_of(value) or run.namespace
    return Shown(str(value.get("apiVersion") or ""), str(value["kind"]), str(namespace))
