"""What a run did, told from its record: which step added, changed or removed what, field by field. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from planform.api.metadata import name_of
from planform.journal.records import Part, Planned, Run, StepRun

XR: Final = ""
"""The key under which changes of the desired XR itself stand; no composed resource has it."""

_IDENTITY: Final = ("apiVersion", "kind")  # functions may write them on the XR or not; they change nothing


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field that came (`had` is False), went (`has` is False) or changed."""

    path: str
    before: Any
    after: Any
    had: bool
    has: bool

    def __str__(self) -> str:
        if not self.had:
            return f"{self.path}: + {_shown(self.after)}"
        if not self.has:
            return f"{self.path}: - {_shown(self.before)}"
        return f"{self.path}: {_shown(self.before)} -> {_shown(self.after)}"

    def value(self) -> dict[str, Any]:
        value = {"path": self.path}
        return value | ({"before": self.before} if self.had else {}) | ({"after": self.after} if self.has else {})


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """What a step made of a resource: `added`, `changed` or `removed`. `object` is what it was then, or was last."""

    key: str
    action: str
    object: Mapping[str, Any]
    fields: tuple[FieldChange, ...] = ()

    @property
    def kind(self) -> str:
        kind, version = self.object.get("kind", ""), self.object.get("apiVersion", "")
        return f"{kind} ({version})" if version else str(kind)


def changes_by_step(run: Run) -> list[tuple[StepRun, list[ResourceChange]]]:
    """Every step, and what it changed, the XR first."""
    explained: list[tuple[StepRun, list[ResourceChange]]] = []
    resources: Mapping[str, Part] = {}
    composite: Any = {}
    for step in run.steps:
        changes: list[ResourceChange] = []
        if step.composite is not None:
            found = field_changes(composite, step.composite.value)
            fields = tuple(field for field in found if field.path not in _IDENTITY)
            changes += [ResourceChange(XR, "changed", step.composite.value, fields)] if fields else []
            changes += _resource_changes(resources, step.resources)
            resources, composite = step.resources, step.composite.value
        explained.append((step, changes))
    return explained


def ready_by_step(run: Run) -> list[dict[str, bool]]:
    """For every step, of which resources it said something new: that they are ready, or not."""
    result: list[dict[str, bool]] = []
    before: Mapping[str, bool] = {}
    for step in run.steps:
        result.append({key: ready for key, ready in step.ready.items() if before.get(key) is not ready})
        before = step.ready or before
    return result


def history_of(run: Run, key: str) -> list[tuple[StepRun, ResourceChange]]:
    """The steps that added, changed or removed a resource, in order: why it exists, and why it looks as it does."""
    return [(step, change) for step, changes in changes_by_step(run) for change in changes if change.key == key]


def keys_of(run: Run) -> list[str]:
    """Every resource that the run knew, by its name in the composition."""
    keys = set(run.observed)
    for step in run.steps:
        keys |= set(step.resources)
    return sorted(keys)


def find_key(run: Run, word: str) -> str | None:
    """The resource that a user means: by its name in the composition, its own name, or `kind/name`."""
    if word in keys_of(run):
        return word
    kind, slash, name = word.rpartition("/")
    for planned in run.plan or ():
        if planned.name == name and (not slash or planned.kind.lower() == kind.lower()):
            return planned.resource
    for key, part in run.observed.items():
        observed = part.value
        if name_of(observed) == name and kind.lower() in ("", observed["kind"].lower()):
            return key
    return None


def planned_for(run: Run, key: str) -> tuple[Planned, ...]:
    return tuple(planned for planned in run.plan or () if planned.resource == key)


def field_changes(before: Any, after: Any, path: str = "") -> Iterator[FieldChange]:
    """The fields that differ, in order; items of a list are compared by their place."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys(), key=str):
            yield from _compared(before, after, key, key in before, key in after, _joined(path, key))
    elif isinstance(before, list) and isinstance(after, list):
        for index in range(max(len(before), len(after))):
            yield from _compared(before, after, index, index < len(before), index < len(after), f"{path}[{index}]")
    elif type(before) is not type(after) or before != after:
        yield FieldChange(path, before, after, True, True)


def explanation(run: Run) -> dict[str, Any]:
    """All of it as one JSON-shaped value."""
    steps = []
    for (step, changes), ready in zip(changes_by_step(run), ready_by_step(run), strict=True):
        explained = {
            "step": step.step,
            "function": step.function,
            "revision": step.revision,
            "rule": step.rule,
            "rejected": [{"id": each.id, "why": each.why} for each in step.rejected],
            "iterations": step.iterations,
            "cache": step.cache,
            "seconds": step.seconds,
            "reads": {
                name: {"apiVersion": read.api_version, "kind": read.kind, "found": [_name(each) for each in read.found]}
                for name, read in step.reads.items()
            },
            "composite": [field.value() for change in changes if change.key == XR for field in change.fields],
            "resources": {change.key: _value(change) for change in changes if change.key != XR},
            "ready": ready,
            "context": list(step.changed_context),
            "results": [
                {"severity": result.severity, "reason": result.reason, "message": result.message}
                for result in step.results
            ],
            "warnings": list(step.warnings),
            "error": step.error,
        }
        steps.append(explained)
    return {
        "id": run.id,
        "apiVersion": run.api_version,
        "kind": run.kind,
        "namespace": run.namespace,
        "name": run.name,
        "uid": run.uid,
        "started": run.started.isoformat(),
        "seconds": run.seconds,
        "trigger": run.trigger,
        "compositionRevision": run.composition_revision,
        "failure": run.failure,
        "steps": steps,
        "plan": [
            {"resource": each.resource, "action": each.action, "kind": each.kind, "name": each.name}
            | ({"error": each.error} if each.error else {})
            for each in run.plan or ()
        ],
    }


def _resource_changes(before: Mapping[str, Part], after: Mapping[str, Part]) -> Iterator[ResourceChange]:
    for key in sorted(before.keys() | after.keys()):
        if key not in before:
            yield ResourceChange(key, "added", after[key].value)
        elif key not in after:
            yield ResourceChange(key, "removed", before[key].value)
        else:
            fields = tuple(field_changes(before[key].value, after[key].value))
            if fields:
                yield ResourceChange(key, "changed", after[key].value, fields)


def _compared(before: Any, after: Any, key: Any, had: bool, has: bool, path: str) -> Iterator[FieldChange]:
    if had and has:
        yield from field_changes(before[key], after[key], path)
    else:
        yield FieldChange(path, before[key] if had else None, after[key] if has else None, had, has)


def _joined(path: str, key: object) -> str:
    text = str(key)
    if any(sign in text for sign in "./[]"):
        return f"{path}[{text}]"
    return f"{path}.{text}" if path else text


def _value(change: ResourceChange) -> dict[str, Any]:
    value: dict[str, Any] = {"action": change.action, "kind": change.kind}
    if change.action == "changed":
        return value | {"fields": [field.value() for field in change.fields]}
    return value | {"object": change.object}


def _name(part: Part) -> str:
    metadata = part.value.get("metadata", {}) if isinstance(part.value, dict) else {}
    return "/".join(str(metadata[key]) for key in ("namespace", "name") if metadata.get(key))


def _shown(value: Any) -> str:
    text = orjson.dumps(value, default=str).decode()
    return text if len(text) <= 100 else f"{text[:97]}..."
