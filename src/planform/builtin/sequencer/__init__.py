"""sequencer: holds resources back until those before them in a sequence are ready, and deletes them in reverse.

It runs after whatever says which resources are ready. Reads `Input` of `sequencer.fn.crossplane.io/v1beta1`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from planform.builtin.compiled import CompiledFunction, Program, Refused, tell
from planform.builtin.durations import duration_errors, seconds
from planform.builtin.inputs import InputObject, Part, check_kind, convert_input, refuse_invalid
from planform.builtin.patterns import compile_pattern, pattern_errors
from planform.builtin.sequencer.usages import VERSIONS, usage
from planform.errors import FieldError
from planform.functions.values import FunctionRequest, FunctionResponse, Object, Ready, Resource, State
from planform.machinery.cel import CelError, Expression, compile_expression
from planform.machinery.names import invalid


class Rule(Part, frozen=True, kw_only=True):
    sequence: tuple[str, ...] = ()
    condition: str = ""
    create_only: bool = False
    delete_only: bool = False


class Input(InputObject, frozen=True, kw_only=True):
    rules: tuple[Rule, ...] = ()
    cache_ttl: str = msgspec.field(default="", name="cacheTTL")
    enable_deletion_sequencing: bool = False
    replay_deletion: bool = True
    usage_version: str = "v2"
    reset_composite_readiness: bool = False


_VARIABLES: Final = {"observed": "dyn", "desired": "dyn", "context": "dyn"}


@dataclass(frozen=True, slots=True)
class _Entry:
    """One place in a sequence: the names of resources that its text means, as a pattern or literally."""

    text: str
    matches: Callable[[str], object]

    def among(self, names: Iterator[str] | Sequence[str]) -> list[str]:
        return [name for name in names if self.matches(name)]


@dataclass(frozen=True, slots=True)
class _CompiledRule:
    spec: Rule
    entries: tuple[_Entry, ...]
    condition: Expression | None

    def applies(self, request: FunctionRequest) -> bool:
        if self.condition is None:
            return True
        state = {"observed": request.observed, "desired": request.desired}
        bindings = {name: _as_object(each) for name, each in state.items()}
        try:
            return self.condition.evaluate({**bindings, "context": request.context}) is True
        except CelError as error:
            raise Refused(f"cannot evaluate the condition of a rule: {error}") from None


def _compile(value: Any) -> Program:
    check_kind(value, ("sequencer.fn.crossplane.io/v1beta1", "Input"))
    spec = convert_input(value, Input)
    refuse_invalid(_errors(spec))
    rules = [_compile_rule(rule) for rule in spec.rules]

    def run(request: FunctionRequest, response: FunctionResponse) -> None:
        response.ttl = seconds(spec.cache_ttl)
        for rule in rules:
            if not rule.spec.delete_only:
                if rule.applies(request):
                    _hold_back(rule, request, response, resets=spec.reset_composite_readiness)
                else:
                    tell(response, f"Skipping a sequence because its condition is false: {rule.spec.condition}")
            if spec.enable_deletion_sequencing and not rule.spec.create_only:
                _protect(rule, request, response, spec)

    return run


def _hold_back(rule: _CompiledRule, request: FunctionRequest, response: FunctionResponse, *, resets: bool) -> None:
    """Take out of the desired state what must wait; what exists already stays, or it would be deleted."""
    observed, desired = request.observed.resources, response.desired.resources
    for position, entry in enumerate(rule.entries[1:], start=1):
        if entry.text in observed:
            continue
        reason = next(filter(None, (_unready(before, desired) for before in rule.entries[:position])), None)
        if reason is None:
            continue
        tell(response, f'Delaying creation of resource(s) matching "{entry.text}" because {reason}')
        for name in entry.among(list(desired)):
            if name not in observed:
                del desired[name]
                if resets:
                    response.desired.composite.ready = Ready.FALSE


def _unready(entry: _Entry, desired: dict[str, Resource]) -> str | None:
    names = entry.among(list(desired))
    if not names:
        return f'"{entry.text}" does not exist yet'
    ready = sum(desired[name].ready is Ready.TRUE for name in names)
    return None if ready == len(names) else f'"{entry.text}" is not fully ready ({ready} of {len(names)})'


def _protect(rule: _CompiledRule, request: FunctionRequest, response: FunctionResponse, spec: Input) -> None:
    """Desire usages that keep each resource from being deleted while one that comes after it is still there."""
    observed, desired = request.observed.resources, response.desired.resources
    for before, after in zip(rule.entries, rule.entries[1:], strict=False):
        protected = [name for name in before.among(list(observed)) if name in desired]
        for user in after.among(list(observed)):
            for used in protected:
                made = usage(
                    of=observed[used].resource,
                    by=observed[user].resource,
                    version=spec.usage_version,
                    replay_deletion=spec.replay_deletion,
                )
                if made is not None:
                    desired[f"{user}-{used}-usage"] = Resource(made, ready=Ready.TRUE)


def _compile_rule(rule: Rule) -> _CompiledRule:
    entries = tuple(_Entry(text, compile_pattern(_anchored(text)).search) for text in rule.sequence)
    condition = compile_expression(rule.condition, _VARIABLES) if rule.condition else None
    return _CompiledRule(rule, entries, condition)


def _anchored(text: str) -> str:
    """A text without anchors of its own means whole names."""
    return text if text.startswith("^") or text.endswith("$") else f"^(?:{text})$"


def _as_object(state: State) -> Object:
    """A state as CEL sees it: the members of the protocol's message."""

    def shown(resource: Resource) -> Object:
        details = dict(resource.connection_details)
        return {"resource": resource.resource, "connection_details": details, "ready": int(resource.ready)}

    resources = {name: shown(resource) for name, resource in state.resources.items()}
    return {"composite": shown(state.composite), "resources": resources}


def _errors(spec: Input) -> Iterator[FieldError]:
    for index, rule in enumerate(spec.rules):
        path = f"rules[{index}]"
        for position, text in enumerate(rule.sequence):
            yield from pattern_errors(f"{path}.sequence[{position}]", text)
        if rule.create_only and rule.delete_only:
            yield invalid(f"{path}.deleteOnly", True, "createOnly and deleteOnly exclude each other")
        if rule.condition:
            yield from _condition_errors(f"{path}.condition", rule.condition)
    if spec.usage_version not in VERSIONS:
        yield invalid("usageVersion", spec.usage_version, f"must be {' or '.join(VERSIONS)}")
    yield from duration_errors("cacheTTL", spec.cache_ttl)


def _condition_errors(path: str, text: str) -> Iterator[FieldError]:
    try:
        kind = str(compile_expression(text, _VARIABLES).type)
    except CelError as error:
        yield invalid(path, text, str(error))
        return
    if kind not in ("bool", "dyn"):
        yield invalid(path, text, f"must be a condition, but gives {kind}")


function: Final = CompiledFunction("sequencer", _compile)
