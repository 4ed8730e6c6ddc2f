"""The table of CEL functions: signatures for the checker, implementations for programs, sizes for cost.

A function is declared by its signature as text: `string.find(string): string` for a method, `isIP(string): bool`
for a plain function and `math::abs(int): int` for one with a namespace. Where arguments are dynamic, a call tries the
overloads in order at run time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from planform.apimachinery.cel_types import Type, parse_type

Estimate = Callable[[list[int]], float]
"""The cost of a call from the greatest sizes of its arguments, the target first."""

F = TypeVar("F", bound=Callable[..., Any])

STRING_COST = 0.1
REGEX_COST = 0.25


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function. `size` says how large the result can be, by the arguments' sizes."""

    name: str
    member: bool
    params: tuple[Type, ...]
    result: Type
    run: Callable[..., Any]
    cost: Estimate
    size: Estimate | None = None


FUNCTIONS: dict[tuple[str, bool], list[Overload]] = {}
_SIGNATURE = re.compile(r"(?:(?P<target>.+?)\.)?(?P<name>[^\s.(]+)\((?P<params>.*)\): (?P<result>.+)")


def constant(_: list[int]) -> float:
    return 1


def traverses(sizes: list[int]) -> float:
    """One pass over the target's characters."""
    return sizes[0] * STRING_COST


def visits(sizes: list[int]) -> float:
    """One step for each item of the target."""
    return sizes[0]


def searches(sizes: list[int]) -> float:
    """A regular expression (second) over a text (first)."""
    return (1 + sizes[0]) * STRING_COST * max(1.0, sizes[1] * REGEX_COST)


def pairs(sizes: list[int]) -> float:
    """Each item of the one against each of the other."""
    return sizes[0] * sizes[1]


def declare(*signatures: str, cost: Estimate = constant, size: Estimate | None = None) -> Callable[[F], F]:
    """Enter a Python function under these signatures."""

    def enter(run: F) -> F:
        for signature in signatures:
            matched = _SIGNATURE.fullmatch(signature)
            if matched is None:
                raise ValueError(f"not a signature: {signature!r}")
            target, name = matched["target"], matched["name"]
            params = [parse_type(part) for part in _parameters(matched["params"])]
            if target is not None:
                params.insert(0, parse_type(target))
            name, member = name.replace("::", "."), target is not None
            overload = Overload(name, member, tuple(params), parse_type(matched["result"]), run, cost, size)
            FUNCTIONS.setdefault((name, member), []).append(overload)
        return run

    return enter


def _parameters(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for position, char in enumerate(text):
        depth += (char == "<") - (char == ">")
        if char == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [part for part in [*parts, text[start:]] if part.strip()]
