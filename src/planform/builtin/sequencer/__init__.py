"""sequencer: holds resources back until those before them in a sequence are ready, and deletes them in reverse.

It runs after whatever says which resources are ready. Reads `Input` of `sequencer.fn.crossplane.io/v1beta1`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from planform.apimachinery.cel_syntax import CelError
from planform.builtin.cel_state import VARIABLES, bindings, evaluate
from planform.builtin.compiled import CompiledFunction, Program, Refused, normal, warn
from planform.builtin.durations import seconds
from planform.builtin.inputs import InputError, InputObject, Part, convert_input, given_object
from planform.builtin.patterns import compile_pattern
from planform.builtin.sequencer.usages import VERSIONS, usage
from planform.functions.values import FunctionRequest, FunctionResponse, Ready, Resource
from planform.gotemplate.errors import CallFailed
from planform.gotemplate.quoting import quote

if TYPE_CHECKING:  # CEL takes as long to import as all of a plain render; who has an expression waits for it
    from planform.apimachinery.cel import Expression


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


@dataclass(frozen=True, slots=True)
class _Entry:
    """One place in a sequence: the names of resources that its text means, as a pattern or literally."""

    text: str
    matches: Callable[[str], object] | None
    problem: str = ""
    """Why the text is no pattern, told when it is first needed."""

    def among(self, names: Iterable[str]) -> list[str]:
        if self.matches is None:
            raise Refused(self.problem)
        return [name for name in names if self.matches(name)]


@dataclass(frozen=True, slots=True)
class _CompiledRule:
    spec: Rule
    entries: tuple[_Entry, ...]
    condition: Expression | None
    problem: str = ""
    """Why the condition is none."""

    @property
    def sequence(self) -> str:
        return f"[{' '.join(self.spec.sequence)}]"

    def applies(self, request: FunctionRequest) -> bool:
        if not self.spec.condition:
            return True
        detail = f"cannot evaluate condition {quote(self.spec.condition)} for sequence {self.sequence}"
        if self.condition is None:
            raise Refused(f"{detail}: {self.problem}")
        try:
            found = evaluate(self.condition, bindings(request))
        except CelError as error:
            raise Refused(f"{detail}: cannot evaluate CEL condition: {error}") from None
        if not isinstance(found, bool):
            raise Refused(f"{detail}: CEL condition result is not bool")
        return found


def _compile(value: Any) -> Program:
    spec = convert_input(given_object(value), Input)
    try:
        ttl = seconds(spec.cache_ttl)
    except (CallFailed, ValueError) as error:
        raise InputError(f"cannot set cacheTTL: {error}") from None
    rules = [_compile_rule(rule) for rule in spec.rules]

    def run(request: FunctionRequest, response: FunctionResponse) -> None:
        response.ttl = ttl
        if spec.usage_version not in VERSIONS:
            warn(
                response, f'usageVersion: "{spec.usage_version}" is neither {" nor ".join(VERSIONS)}, and counts as v2'
            )
        for rule in rules:
            if rule.spec.create_only and rule.spec.delete_only:
                detail = "cannot have both deleteOnly and createOnly set to true"
                raise Refused(f"rule for sequence {rule.sequence} {detail}")
            if not rule.applies(request):
                detail = f"condition {quote(rule.spec.condition)} evaluated to false"
                normal(response, f"Skipping sequence {rule.sequence}: {detail}")
            elif not rule.spec.delete_only:
                _hold_back(rule, request, response, resets=spec.reset_composite_readiness)
        # Usages come last: the pattern of a later rule may match their names, and they must not wait for anything.
        for rule in rules:
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
        normal(response, f'Delaying creation of resource(s) matching "{entry.text}" because {reason}')
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
    entries = tuple(map(_compile_entry, rule.sequence))
    if not rule.condition:
        return _CompiledRule(rule, entries, None)
    from planform.apimachinery.cel import compile_expression

    try:
        condition = compile_expression(rule.condition, VARIABLES)
    except CelError as error:
        return _CompiledRule(rule, entries, None, f"cannot parse CEL condition: {error}")
    if str(condition.type) not in ("bool", "dyn"):
        return _CompiledRule(rule, entries, None, f"CEL condition must evaluate to bool, got {condition.type}")
    return _CompiledRule(rule, entries, condition)


def _compile_entry(text: str) -> _Entry:
    """A text without anchors of its own means whole names."""
    try:
        compile_pattern(text)
        anchored = text if text.startswith("^") or text.endswith("$") else f"^(?:{text})$"
        return _Entry(text, compile_pattern(anchored).search)
    except ValueError as error:
        return _Entry(text, None, f"cannot compile regex {text}: {error}")


function: Final = CompiledFunction("sequencer", _compile)
