"""Wait: until conditions on objects hold.

    timeout: 5m
    conditions:
      anyOf: [{condition: "...", objectReference: {apiVersion: v1, resource: pods, name: p, namespace: n}}, ...]
      allOf: [...]

It is done when one condition of `anyOf`, or every one of `allOf`, renders to `true`. A condition that cannot be
evaluated, as that of an object which is not there yet, does not hold.

v0.0.0 puts the values of `{ $.json.path }` of the object into the text, and renders that over the parameters.
v1.0.0 renders the condition over the object itself (`{{ eq .status.phase "Ready" }}`). `WaitV2` is its older name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from planform.api.kinds import Object
from planform.apimachinery.jsonpath import JsonPathError, compile_jsonpath
from planform.blueprints.arguments import Arguments
from planform.blueprints.contract import PhaseContext, phase_function
from planform.blueprints.errors import ArgumentInvalid, PhaseFailed
from planform.blueprints.functions.durations import seconds_of
from planform.blueprints.functions.observing import Reference, reference, until
from planform.errors import ApiError
from planform.gotemplate.errors import TemplateError

Evaluate = Callable[[PhaseContext, str, Object], str]

_SNIPPET: Final = re.compile(r"\{\s*\$[^{}]*\}")
_REQUIRED: Final = ("timeout", "conditions")


@dataclass(frozen=True, slots=True)
class Condition:
    """A text, and the object that it is about."""

    text: str
    target: Mapping[str, Any]


def _problems(args: Mapping[str, Any]) -> Iterable[str]:
    conditions = args.get("conditions")
    if not isinstance(conditions, Mapping):
        return ["conditions must be a map with anyOf or allOf"] if conditions is not None else []
    unknown = sorted(set(map(str, conditions)) - {"anyOf", "allOf"})
    found = [f'conditions: "{key}" is not anyOf or allOf' for key in unknown]
    return found if conditions.get("anyOf") or conditions.get("allOf") else [*found, "conditions are empty"]


@phase_function(
    "Wait",
    stable=True,
    required=_REQUIRED,
    renders_itself=True,
    resumable=True,
    validate=_problems,
    description="Waits for conditions that quote values of objects as { $.json.path }",
)
async def wait_v0(context: PhaseContext, args: Arguments) -> None:
    timeout = seconds_of(Arguments({"timeout": context.render(args.get("timeout"))}, of=args.of), "timeout")
    await _wait(context, args, timeout, _over_parameters)


@phase_function(
    "WaitV2",
    required=_REQUIRED,
    renders_itself=True,
    resumable=True,
    validate=_problems,
    description="Waits for conditions that are templates over objects; the older name of Wait v1.0.0",
)
@phase_function(
    "Wait",
    version="v1.0.0",
    required=_REQUIRED,
    renders_itself=True,
    resumable=True,
    validate=_problems,
    description="Waits for conditions that are templates over objects",
)
async def wait_v1(context: PhaseContext, args: Arguments) -> None:
    await _wait(context, args, seconds_of(args, "timeout"), _over_object)


def _over_parameters(context: PhaseContext, condition: str, obj: Object) -> str:
    def value(match: re.Match[str]) -> str:
        found = compile_jsonpath(match[0])(obj)
        return " ".join(each if isinstance(each, str) else orjson.dumps(each).decode() for each in found)

    return str(context.render(_SNIPPET.sub(value, condition), missing_key="zero"))


def _over_object(context: PhaseContext, condition: str, obj: Object) -> str:
    return str(context.render(condition, data=obj, missing_key="zero"))


async def _wait(context: PhaseContext, args: Arguments, seconds: float, evaluate: Evaluate) -> None:
    conditions = args.table("conditions")
    any_of, all_of = (_conditions(context, conditions, key, args.of) for key in ("anyOf", "allOf"))
    if not any_of and not all_of:
        raise ArgumentInvalid(f"{args.of}: conditions are empty")
    failing = ""
    known: dict[int, Reference] = {}

    async def met(condition: Condition) -> bool:
        nonlocal failing
        try:
            target = known.get(id(condition))
            if target is None:
                target = await reference(context, condition.target, of=args.of, namespace=context.namespace)
                known[id(condition)] = target
            obj = await context.client.get(target.gvk, target.name, namespace=target.namespace)
            rendered = evaluate(context, condition.text, obj).strip()
        except (ApiError, TemplateError, PhaseFailed, JsonPathError) as error:
            if isinstance(error, ArgumentInvalid):
                raise
            failing = str(error)
            return False
        if rendered != "true":
            failing = f"a condition on {target} renders to {rendered[:60]!r}"
        return rendered == "true"

    async def holds() -> bool:
        for condition in any_of:
            if await met(condition):
                return True
        return bool(all_of) and all([await met(condition) for condition in all_of])

    targets = []
    for condition in (*any_of, *all_of):
        try:
            targets.append(await reference(context, condition.target, of=args.of, namespace=context.namespace))
        except ApiError:
            continue  # the kind is not served yet
    await until(context, targets, holds, seconds=seconds, what=lambda: failing or "the conditions hold")


def _conditions(context: PhaseContext, table: Mapping[str, Any], key: str, of: str) -> list[Condition]:
    given = table.get(key) or []
    if not isinstance(given, list):
        raise ArgumentInvalid(f"{of}: conditions.{key} must be a list")
    found = []
    for each in given:
        if not isinstance(each, Mapping) or not isinstance(each.get("condition"), str):
            raise ArgumentInvalid(f"{of}: conditions.{key} must hold maps with condition and objectReference")
        target = each.get("objectReference")
        if not isinstance(target, Mapping):
            raise ArgumentInvalid(f"{of}: a condition in {key} has no objectReference")
        found.append(Condition(each["condition"], context.render(dict(target))))
    return found
