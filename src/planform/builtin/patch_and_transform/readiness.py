"""Readiness checks: whether an observed resource is ready. All of a template's checks must pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from planform.apimachinery.fieldpath import FieldNotFound, FieldPathError, parse_path
from planform.builtin.patch_and_transform.inputs import ReadinessCheck
from planform.functions.values import Object

Check = Callable[[Object], bool]
"""Raises FieldPathError if the value is not of the type that the check compares."""


class CheckFailed(Exception):
    """A check cannot tell whether the resource is ready."""


def compile_checks(checks: Sequence[ReadinessCheck]) -> Check:
    """Whether all of them pass; without any, the condition Ready must be true. Raises CheckFailed."""
    compiled = [_compile_check(check) for check in checks] or [_condition("Ready", "True")]

    def ready(observed: Object) -> bool:
        for index, check in enumerate(compiled):
            try:
                if not check(observed):
                    return False
            except FieldPathError as error:
                raise CheckFailed(f"cannot run readiness check at index {index}: {error}") from None
        return True

    return ready


def _compile_check(check: ReadinessCheck) -> Check:
    """A path that does not parse is told when the check is made: until then there is nothing to be ready."""
    try:
        return CHECKS[check.type](check)
    except FieldPathError as error:
        problem = str(error)

    def fail(observed: Object) -> bool:
        raise FieldPathError(problem)

    return fail


def _none(_: ReadinessCheck) -> Check:
    return lambda observed: True


def _non_empty(spec: ReadinessCheck) -> Check:
    """Present is enough: even an empty text and null count."""
    get = parse_path(spec.field_path).get

    def check(observed: Object) -> bool:
        try:
            get(observed)
        except FieldNotFound:
            return False
        return True

    return check


def _equals(spec: ReadinessCheck, wanted: Any, kind: type, message: str) -> Check:
    get = parse_path(spec.field_path).get

    def check(observed: Object) -> bool:
        try:
            value = get(observed)
        except FieldNotFound:
            return False
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not kind:
            raise FieldPathError(f"{spec.field_path}: {message}")
        return bool(value == wanted)

    return check


def _condition(kind: str, wanted: str) -> Check:
    def check(observed: Object) -> bool:
        return condition_status(observed, kind) == wanted

    return check


def condition_status(observed: Object, kind: str) -> str:
    """The status of a condition; Unknown if it is missing, and empty if the resource has no status at all."""
    status = observed.get("status")
    if not isinstance(status, dict):
        return ""
    conditions = status.get("conditions")
    for condition in conditions if isinstance(conditions, list) else ():
        if isinstance(condition, dict) and condition.get("type") == kind:
            found = condition.get("status")
            return found if isinstance(found, str) else ""
    return "Unknown"


CHECKS: Final[dict[str, Callable[[ReadinessCheck], Check]]] = {
    "None": _none,
    "NonEmpty": _non_empty,
    "MatchString": lambda spec: _equals(spec, spec.match_string, str, "not a string"),
    "MatchInteger": lambda spec: _equals(spec, spec.match_integer, int, "not a (int64) number"),
    "MatchTrue": lambda spec: _equals(spec, True, bool, "not a bool"),
    "MatchFalse": lambda spec: _equals(spec, False, bool, "not a bool"),
    "MatchCondition": lambda spec: _condition(spec.match_condition.type, spec.match_condition.status),
}
