"""Keeps CompositionRevisions as they were made, and pipelines that cannot run out of the API.

An admission plugin. The rules of the CRDs say the same as far as rules can; the guard also sees labels and who asks,
and reads a pipeline the way the reconciler does, so that its author hears of a mistake at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from planform.api.extensions.policies import LABELS_STAY, OWN_LABELS
from planform.api.names import (
    COMPOSITION,
    COMPOSITION_REVISION,
    CRON_OPERATION,
    EXTENSIONS_GROUP,
    OPERATION,
    OPERATIONS_GROUP,
    WATCH_OPERATION,
)
from planform.apiserver.admission.chain import Admission
from planform.apiserver.verbs.requests import CONTROL_PLANE, User
from planform.compositions.field_lints import SchemaOf, field_lints
from planform.errors import FieldError, Invalid
from planform.pipeline.modes import InvalidComposition, mode_of
from planform.pipeline.steps import PipelineInvalid, Step, parse_pipeline

_GROUPS: Final = frozenset({EXTENSIONS_GROUP, OPERATIONS_GROUP})
_REVISIONS: Final = (EXTENSIONS_GROUP, COMPOSITION_REVISION.kind)
_COMPOSITIONS: Final = (EXTENSIONS_GROUP, COMPOSITION.kind)
_OPERATIONS: Final = (OPERATIONS_GROUP, OPERATION.kind)
_MAX_LINTS: Final = 10
_TEMPLATES: Final = ((OPERATIONS_GROUP, CRON_OPERATION.kind), (OPERATIONS_GROUP, WATCH_OPERATION.kind))


class RevisionGuard:
    """`controllers` are the names of the users that may number revisions: those that the control plane runs as."""

    def __init__(
        self, controllers: Collection[str] = (CONTROL_PLANE.name,), schema_of: SchemaOf = lambda _: None
    ) -> None:
        self._controllers = frozenset(controllers)
        self._schema_of = schema_of

    def admit(self, admission: Admission, /) -> None:
        """Refuse with all that is wrong at once, as an Invalid with a cause for each field."""
        new, old = admission.new, admission.old
        if admission.kind.group not in _GROUPS or new is None or admission.subresource:
            return
        which = (admission.kind.group, admission.kind.kind)
        errors: list[FieldError] = []
        if which == _REVISIONS and old is not None:
            errors = [
                *_spec_changes(new.get("spec"), old.get("spec")),
                *self._number_changes(new.get("spec"), old.get("spec"), admission.request.user),
                *_label_changes(_labels(new), _labels(old)),
            ]
        elif new.get("spec") != (old or {}).get("spec"):
            errors = list(_pipeline_errors(which, new.get("spec"), admission))
            if which == _COMPOSITIONS and not errors:
                self._warn_of_fields(new.get("spec"), admission)
        if errors:
            raise Invalid.of(admission.kind.group, admission.kind.kind, admission.name, errors)

    def _warn_of_fields(self, spec: Any, admission: Admission) -> None:
        """Fields that no schema has: perhaps the schema comes later, so it is no error."""
        lints = field_lints(spec, self._schema_of) if isinstance(spec, Mapping) else []
        for lint in lints[:_MAX_LINTS]:
            admission.request.warn(str(lint))
        if len(lints) > _MAX_LINTS:
            admission.request.warn(f"and {len(lints) - _MAX_LINTS} more fields: planform validate lists all")

    def _number_changes(self, new: Any, old: Any, user: User) -> Iterator[FieldError]:
        if not isinstance(new, Mapping) or not isinstance(old, Mapping):
            return
        after, before = new.get("revision"), old.get("revision")
        if after == before or not isinstance(after, int) or not isinstance(before, int):
            return
        if after < before:
            yield FieldError(
                "spec.revision", "FieldValueInvalid", f"Invalid value: {after}: must not be lower than {before}"
            )
        elif user.name not in self._controllers:
            yield FieldError(
                "spec.revision", "FieldValueForbidden", "Forbidden: only the control plane numbers revisions"
            )


def _spec_changes(new: Any, old: Any) -> Iterator[FieldError]:
    if not isinstance(new, Mapping) or not isinstance(old, Mapping):
        if new != old:
            yield _frozen("spec")
        return
    for field in sorted((new.keys() | old.keys()) - {"revision"}):
        if (field in new) != (field in old) or new.get(field) != old.get(field):
            yield _frozen(f"spec.{field}")


def _frozen(field: str) -> FieldError:
    return FieldError(
        field, "FieldValueForbidden", "Forbidden: a CompositionRevision is immutable: only its number may change"
    )


def _labels(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = obj.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    return labels if isinstance(labels, Mapping) else {}


def _label_changes(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    for label in sorted(new.keys() | old.keys()):
        is_first = label not in old and label in OWN_LABELS
        if new.get(label) != old.get(label) and not is_first:
            yield FieldError(f"metadata.labels[{label}]", "FieldValueForbidden", f"Forbidden: {LABELS_STAY}")


def _pipeline_errors(which: tuple[str, str], spec: Any, admission: Admission) -> Iterator[FieldError]:
    """What keeps the object's pipeline from running; what should be written differently becomes a warning."""
    prefix = ""
    if which in _TEMPLATES:
        template = spec.get("operationTemplate") if isinstance(spec, Mapping) else None
        spec = template.get("spec") if isinstance(template, Mapping) else None
        prefix = "spec.operationTemplate."
    if not isinstance(spec, Mapping) or which not in (_COMPOSITIONS, _OPERATIONS, *_TEMPLATES):
        return  # without a spec the schema reports it
    try:
        steps = _steps(which, spec)
    except InvalidComposition as error:
        yield FieldError("spec", "FieldValueInvalid", f"Invalid value: {error}")
    except PipelineInvalid as error:
        yield from (replace(each, field=f"{prefix}{each.field}") for each in error.errors)
    else:
        for step in steps:
            for warning in step.warnings:
                admission.request.warn(f"{prefix}{warning}")


def _steps(which: tuple[str, str], spec: Mapping[str, Any]) -> tuple[Step, ...]:
    if which == _COMPOSITIONS and mode_of(spec) == "Resources":
        return ()
    return parse_pipeline(spec)
