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
from planform.builtin.inputs import InputError, convert_input, given_object
from planform.builtin.patterns import compile_pattern
from planform.builtin.status_transformer.inputs import (
    ConditionMatcher,
    CreateEvent,
    Hook,
    Input,
    Matcher,
    SetCondition,
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
_LIMITS: Final = Limits(steps=2_000, output=8_192, items=200)
_STATUSES: Final = {"True": Status.TRUE, "False": Status.FALSE}
_SEVERITIES: Final = {"Normal": Severity.NORMAL, "Warning": Severity.WARNING}
_RESERVED: Final = frozenset({"Ready", "Synced", "Healthy", "UpToDate"})


class _Failed(Exception):
    """A hook that could not do its work: the reason, and the text."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A pattern, or why it is none, which is told when somebody first needs it."""

    compiled: Any
    problem: str = ""

    def search(self, text: str, what: str) -> Any:
        if self.compiled is None:
            raise _Failed("MatchFailure", f"cannot compile {what}: {self.problem}")
        return self.compiled.search(text)


@dataclass(frozen=True, slots=True)
class _Candidates:
    """What matchers choose from: composed resources by their names, others by names that tell where they come from."""

    composed: Mapping[str, Object]
    composite: Object
    extra: Mapping[str, Object]

    def chosen(self, matcher: Matcher, names: Sequence[_Pattern]) -> list[Object]:
        """In the order of their names, the XR last."""
        offered = {**self.extra, **self.composed} if matcher.include_extra_resources else self.composed
        for index, pattern in enumerate(names):
            pattern.search("", f"resource key regex, resourcesIndex: {index}")
        found = [each for name, each in sorted(offered.items()) if any(pattern.search(name, "") for pattern in names)]
        return [*found, self.composite] if matcher.include_composite_as_resource else found


@dataclass(frozen=True, slots=True)
class _CompiledMatcher:
    spec: Matcher
    names: tuple[_Pattern, ...]
    messages: tuple[_Pattern | None, ...]

    def groups(self, candidates: _Candidates) -> dict[str, str] | None:
        """What the groups of its patterns have caught; None if it does not match. Raises _Failed."""
        chosen = candidates.chosen(self.spec, self.names)
        if not chosen or not self.spec.conditions:
            return None
        if self.spec.type.startswith("AnyResource"):
            every = self.spec.type == "AnyResourceMatchesAllConditions"
            return next((found for each in chosen if (found := self._caught(each, every=every)) is not None), None)
        caught: dict[str, str] = {}
        for each in chosen:
            found = self._caught(each, every=self.spec.type != "AllResourcesMatchAnyCondition")
            if found is None:
                return None
            caught |= found
        return caught

    def _caught(self, resource: Object, *, every: bool) -> dict[str, str] | None:
        """Of one resource. Where any condition will do and any resource, the first that matches is enough."""
        caught: dict[str, str] | None = None
        for matcher, message in zip(self.spec.conditions, self.messages, strict=True):
            found = _caught(matcher, message, resource)
            if found is None and every:
                return None
            if found is not None:
                caught = {**(caught or {}), **found}
                if self.spec.type == "AnyResourceMatchesAnyCondition":
                    return caught
        return caught


def _caught(matcher: ConditionMatcher, message: _Pattern | None, resource: Object) -> dict[str, str] | None:
    """What a condition's message gives for the groups of a pattern; None if the condition is another."""
    condition = _condition(resource, matcher.type)
    for member, wanted in (("status", matcher.status), ("reason", matcher.reason)):
        if wanted is not None and condition.get(member, "") != wanted:
            return None
    if message is None:
        return {}
    match = message.search(str(condition.get("message", "")), "message regex")
    if match is None:
        return None
    names = {number: name for name, number in match.re.groupindex.items()}
    return {names.get(number, ""): text or "" for number, text in enumerate(match.groups(), start=1)}


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
        spec = convert_input(given_object(value), Input)
    except InputError as error:
        problem = str(error)
        return lambda request, response: _report(response, "InputFailure", [problem])
    compiled = [tuple(map(_compile_matcher, hook.matchers)) for hook in spec.status_condition_hooks]

    def run(request: FunctionRequest, response: FunctionResponse) -> None:
        try:
            candidates = _candidates(request)
        except _Failed as error:
            _report(response, error.reason, [str(error)])
            return
        set_here: dict[str, Condition] = {}
        failures: list[_Failed] = []
        for index, (hook, matchers) in enumerate(zip(spec.status_condition_hooks, compiled, strict=True)):
            try:
                groups = _groups(index, matchers, candidates)
            except _Failed as error:
                failures.append(error)
                continue
            if groups is not None:
                failures += _act(index, hook, groups, set_here, response)
        response.conditions += set_here.values()
        reason = failures[-1].reason if failures else "Available"
        _report(response, reason, [str(failure) for failure in failures])

    return run


def _groups(index: int, matchers: Sequence[_CompiledMatcher], candidates: _Candidates) -> dict[str, str] | None:
    """What all matchers of a hook have caught; None if one of them does not match, or there is none."""
    caught: dict[str, str] = {}
    for number, matcher in enumerate(matchers):
        try:
            found = matcher.groups(candidates)
        except _Failed as error:
            where = f"cannot match resources, statusConditionHookIndex: {index}, matchConditionIndex: {number}"
            raise _Failed(error.reason, f"{where}: {error}") from None
        if found is None:
            return None
        caught |= found
    return caught if matchers else None


def _act(
    index: int, hook: Hook, groups: Mapping[str, str], set_here: dict[str, Condition], response: FunctionResponse
) -> Iterator[_Failed]:
    for number, wanted in enumerate(hook.set_conditions):
        if wanted.condition.type in set_here and not wanted.force:
            continue
        where = f"cannot set condition, statusConditionHookIndex: {index}, setConditionIndex: {number}"
        if wanted.condition.type in _RESERVED:
            yield _Failed("SetConditionFailure", f"{where}: {wanted.condition.type} is set by the system alone")
            continue
        try:
            set_here[wanted.condition.type] = _made_condition(wanted, groups)
        except _Failed as error:
            yield _Failed("SetConditionFailure", f"{where}: {error}")
    for number, created in enumerate(hook.create_events):
        try:
            response.results.append(_made_event(created, groups))
        except _Failed as error:
            where = f"cannot create event, statusConditionHookIndex: {index}, createEventIndex: {number}"
            yield _Failed("SetConditionFailure", f"{where}: {error}")


def _made_condition(wanted: SetCondition, groups: Mapping[str, str]) -> Condition:
    made = wanted.condition
    status = _STATUSES.get(made.status, Status.UNKNOWN)
    return Condition(made.type, status, made.reason, _rendered(made.message, groups), _target(wanted.target))


def _made_event(wanted: CreateEvent, groups: Mapping[str, str]) -> Result:
    severity = _SEVERITIES.get(wanted.event.type)
    if severity is None:
        raise _Failed("", f"invalid type {wanted.event.type}, must be one of [Normal, Warning]")
    return Result(severity, _rendered(wanted.event.message, groups), wanted.event.reason, _target(wanted.target))


def _target(name: str) -> Target:
    return Target.COMPOSITE_AND_CLAIM if name == "CompositeAndClaim" else Target.COMPOSITE


def _rendered(text: str, groups: Mapping[str, str]) -> str:
    """A text is a template only where patterns have caught something to fill in."""
    if not groups or "{{" not in text:
        return text
    try:
        template = Template(text, name="", limits=_LIMITS)
    except TemplateError as error:
        raise _Failed("", f"cannot parse template: {error.message}") from None
    try:
        return template.render(dict(groups))
    except TemplateError as error:
        raise _Failed("", f"cannot execute template: {error.message}") from None


def _candidates(request: FunctionRequest) -> _Candidates:
    """Raises _Failed where what the context holds of extra resources cannot be read."""
    composed = {name: each.resource for name, each in request.observed.resources.items()}
    return _Candidates(composed, request.observed.composite.resource, dict(_extra(request.context)))


def _extra(context: Object) -> Iterator[tuple[str, Object]]:
    given = context.get(EXTRA_RESOURCES_KEY, {})
    if not isinstance(given, dict):
        raise _Failed("InputFailure", f"cannot load extra-resources: unexpected extra-resources type: {_word(given)}")
    for into, found in given.items():
        for index, each in enumerate(_listed(into, found)):
            if not isinstance(each, dict):
                where = f"unexpected extra-resources value type for {into} [{index}]: {_word(each)}"
                raise _Failed("InputFailure", f"cannot load extra-resources: {where}")
            metadata = each.get("metadata")
            metadata = metadata if isinstance(metadata, dict) else {}
            group = str(each.get("apiVersion") or "").rpartition("/")[0]
            parts = (group, each.get("kind"), metadata.get("namespace"), metadata.get("name"))
            yield ".".join(["extra-resource", into, *(str(part or "") for part in parts)]), each


def _listed(into: str, found: Any) -> list[Any]:
    """Either shape that steps leave in the context."""
    if isinstance(found, dict) and isinstance(items := found.get("items"), list):
        return [each.get("resource") if isinstance(each, dict) else each for each in items]
    if not isinstance(found, list):
        where = f"unexpected extra-resources value type for {into}: {_word(found)}"
        raise _Failed("InputFailure", f"cannot load extra-resources: {where}")
    return found


def _word(value: Any) -> str:
    """What a JSON value is called in Go, whose words upstream's messages have."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "bool"
        case int() | float():
            return "float64"
        case str():
            return "string"
        case list():
            return "[]interface {}"
    return "map[string]interface {}"


def _compile_matcher(matcher: Matcher) -> _CompiledMatcher:
    messages = (None if each.message is None else _pattern(each.message) for each in matcher.conditions)
    return _CompiledMatcher(matcher, tuple(_pattern(each.name) for each in matcher.resources), tuple(messages))


def _pattern(text: str) -> _Pattern:
    try:
        return _Pattern(compile_pattern(text))
    except ValueError as error:
        return _Pattern(None, str(error))


def _report(response: FunctionResponse, reason: str, problems: Sequence[str]) -> None:
    status = Status.FALSE if problems else Status.TRUE
    response.conditions.append(Condition(SUCCESS, status, reason, "; ".join(problems), Target.COMPOSITE))


function: Final = CompiledFunction("status-transformer", _compile)
