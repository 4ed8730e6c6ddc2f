"""status-transformer: sets conditions of the XR, and tells events, where conditions of resources match.

Reads `StatusTransformation` of `function-status-transformer.fn.crossplane.io/v1beta1`. It never fails a pipeline: the
condition StatusTransformationSuccess says how it went.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from planform.builtin.compiled import CompiledFunction, Program
from planform.builtin.environment import EXTRA_RESOURCES_KEY
from planform.builtin.inputs import InputError, check_kind, convert_input
from planform.builtin.patterns import compile_pattern
from planform.builtin.status_transformer.inputs import (
    ConditionMatcher,
    CreateEvent,
    Hook,
    Input,
    Matcher,
    SetCondition,
    input_errors,
)
from planform.functions.values import (
    Condition,
    FunctionRequest,
    FunctionResponse,
    Object,
    Result,
    Severity,
    Status,
    Target,
)
from planform.gotemplate import Limits, Template, TemplateError

SUCCESS: Final = "StatusTransformationSuccess"
COMPOSITE_NAME: Final = "composite-resource"
_LIMITS: Final = Limits(steps=2_000, output=8_192, items=200)
_STATUSES: Final = {"True": Status.TRUE, "False": Status.FALSE}
_TARGETS: Final = {"Composite": Target.COMPOSITE, "CompositeAndClaim": Target.COMPOSITE_AND_CLAIM}
_RESERVED: Final = frozenset({"Ready", "Synced", "Healthy", "UpToDate"})


class _Failed(Exception):
    """A hook that could not do its work: the reason, and the text."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class _CompiledHook:
    spec: Hook
    matchers: tuple[_CompiledMatcher, ...]

    def groups(self, resources: Mapping[str, Object]) -> dict[str, str] | None:
        """What the named groups of all its patterns have caught; None if one of the matchers does not match."""
        caught: dict[str, str] = {}
        for matcher in self.matchers:
            found = matcher.groups(resources)
            if found is None:
                return None
            caught |= found
        return caught


@dataclass(frozen=True, slots=True)
class _CompiledMatcher:
    spec: Matcher
    names: tuple[Any, ...]
    messages: tuple[Any, ...]

    def groups(self, resources: Mapping[str, Object]) -> dict[str, str] | None:
        chosen = [each for name, each in sorted(resources.items()) if self._chooses(name)]
        if not chosen or not self.spec.conditions:
            return None
        kind = self.spec.type
        found = [self._matches(each, every=kind.endswith("AllConditions")) for each in chosen]
        if kind.startswith("All") and None in found:
            return None
        caught = [each for each in found if each is not None]
        return {key: text for each in reversed(caught) for key, text in each.items()} if caught else None

    def _chooses(self, name: str) -> bool:
        if name == COMPOSITE_NAME:
            return self.spec.include_composite_as_resource
        if name.startswith("extra-resource.") and not self.spec.include_extra_resources:
            return False
        return any(pattern.search(name) for pattern in self.names)

    def _matches(self, resource: Object, *, every: bool) -> dict[str, str] | None:
        found = [
            _caught(matcher, message, resource)
            for matcher, message in zip(self.spec.conditions, self.messages, strict=True)
        ]
        if every and None in found:
            return None
        caught = [each for each in found if each is not None]
        return {key: text for each in reversed(caught) for key, text in each.items()} if caught else None


def _caught(matcher: ConditionMatcher, message: Any, resource: Object) -> dict[str, str] | None:
    """What a condition's message gives for the groups of a pattern; None if the condition is another."""
    condition = _condition(resource, matcher.type)
    for member, wanted in (("status", matcher.status), ("reason", matcher.reason)):
        if wanted is not None and condition.get(member, "") != wanted:
            return None
    if message is None:
        return {}
    match = message.search(str(condition.get("message", "")))
    return None if match is None else {key: text or "" for key, text in match.groupdict().items()}


def _condition(resource: Object, kind: str) -> Object:
    """A condition that is not there is Unknown, without reason and message."""
    status = resource.get("status")
    listed = status.get("conditions") if isinstance(status, dict) else None
    for condition in listed if isinstance(listed, list) else []:
        if isinstance(condition, dict) and condition.get("type") == kind:
            return condition
    return {"type": kind, "status": "Unknown"}


def _compile(value: Any) -> Program:
    try:
        check_kind(value, ("function-status-transformer.fn.crossplane.io/v1beta1", "StatusTransformation"))
        spec = convert_input(value, Input)
        problems = "; ".join(map(str, input_errors(spec)))
    except InputError as error:
        problems = str(error)
    if problems:
        return lambda request, response: _report(response, "InputFailure", [problems])
    compiled = [_compile_hook(index, hook) for index, hook in enumerate(spec.status_condition_hooks)]

    def run(request: FunctionRequest, response: FunctionResponse) -> None:
        resources = dict(_resources(request))
        set_here: dict[str, Condition] = {}
        failures: list[_Failed] = []
        for index, hook in enumerate(compiled):
            if isinstance(hook, _Failed):
                failures.append(hook)
                continue
            groups = hook.groups(resources)
            if groups is not None:
                failures += _act(index, hook.spec, groups, set_here, response)
        response.conditions += set_here.values()
        reason = failures[-1].reason if failures else "Available"
        _report(response, reason, [str(failure) for failure in failures])

    return run


def _act(
    index: int, hook: Hook, groups: Mapping[str, str], set_here: dict[str, Condition], response: FunctionResponse
) -> Iterator[_Failed]:
    for number, wanted in enumerate(hook.set_conditions):
        if wanted.condition.type in set_here and not wanted.force:
            continue
        where = f"failed to set condition, statusConditionHookIndex: {index}, setConditionIndex: {number}"
        if wanted.condition.type in _RESERVED:
            yield _Failed("SetConditionFailure", f"{where}: {wanted.condition.type} is set by the system alone")
            continue
        try:
            set_here[wanted.condition.type] = _made_condition(wanted, groups)
        except TemplateError as error:
            yield _Failed("SetConditionFailure", f"{where}: {error.message}")
    for number, created in enumerate(hook.create_events):
        try:
            response.results.append(_made_event(created, groups))
        except TemplateError as error:
            where = f"failed to create event, statusConditionHookIndex: {index}, createEventIndex: {number}"
            yield _Failed("CreateEventFailure", f"{where}: {error.message}")


def _made_condition(wanted: SetCondition, groups: Mapping[str, str]) -> Condition:
    made = wanted.condition
    status = _STATUSES.get(made.status, Status.UNKNOWN)
    return Condition(made.type, status, made.reason, _rendered(made.message, groups), _TARGETS[wanted.target])


def _made_event(wanted: CreateEvent, groups: Mapping[str, str]) -> Result:
    severity = Severity.WARNING if wanted.event.type == "Warning" else Severity.NORMAL
    return Result(severity, _rendered(wanted.event.message, groups), wanted.event.reason, _TARGETS[wanted.target])


def _rendered(text: str, groups: Mapping[str, str]) -> str:
    return Template(text, limits=_LIMITS).render(dict(groups)) if "{{" in text else text


def _resources(request: FunctionRequest) -> Iterator[tuple[str, Object]]:
    """What matchers choose from: composed resources by their names, others by names that no composed one has."""
    for name, resource in request.observed.resources.items():
        yield name, resource.resource
    yield COMPOSITE_NAME, request.observed.composite.resource
    extra = request.context.get(EXTRA_RESOURCES_KEY)
    for into, found in extra.items() if isinstance(extra, dict) else ():
        for each in _listed(found):
            metadata = each.get("metadata")
            metadata = metadata if isinstance(metadata, dict) else {}
            group = str(each.get("apiVersion") or "").rpartition("/")[0]
            parts = (group, each.get("kind"), metadata.get("namespace"), metadata.get("name"))
            yield ".".join(["extra-resource", into, *(str(part or "") for part in parts)]), each


def _listed(found: Any) -> Iterator[Object]:
    """Either shape that steps leave in the context."""
    if isinstance(found, dict):
        items = found.get("items")
        found = [each.get("resource") for each in items if isinstance(each, dict)] if isinstance(items, list) else []
    for each in found if isinstance(found, list) else []:
        if isinstance(each, dict):
            yield each


def _compile_hook(index: int, hook: Hook) -> _CompiledHook | _Failed:
    matchers = []
    for number, matcher in enumerate(hook.matchers):
        try:
            names = tuple(compile_pattern(resource.name) for resource in matcher.resources)
            messages = tuple(
                compile_pattern(condition.message) if condition.message is not None else None
                for condition in matcher.conditions
            )
        except ValueError as error:
            where = f"error when matching, statusConditionHookIndex: {index}, matcherIndex: {number}"
            return _Failed("MatchFailure", f"{where}: {error}")
        matchers.append(_CompiledMatcher(matcher, names, messages))
    return _CompiledHook(hook, tuple(matchers))


def _report(response: FunctionResponse, reason: str, problems: Sequence[str]) -> None:
    status = Status.FALSE if problems else Status.TRUE
    response.conditions.append(Condition(SUCCESS, status, reason, "; ".join(problems), Target.COMPOSITE))


function: Final = CompiledFunction("status-transformer", _compile)
