"""Transforms as closures, compiled once: what a patch does to a value between reading and writing it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from planform.builtin.patch_and_transform.conversion import TransformFailed, compile_convert
from planform.builtin.patch_and_transform.formatting import MISFIT
from planform.builtin.patch_and_transform.inputs import Match, MatchPattern, Math, Transform
from planform.builtin.patch_and_transform.strings import compile_string
from planform.builtin.patch_and_transform.values import PatchFailed, characters, fresh, integral
from planform.builtin.patterns import compile_pattern
from planform.gotemplate.errors import LimitReached
from planform.gotemplate.values import INT64_MAX, INT64_MIN, type_name

Step = Callable[[Any], Any]
Chain = Callable[[Any], tuple[Any, str | None]]
"""Gives the value and, if one was used that did not fit, the format that left `%!` in the text."""


def compile_chain(transforms: Sequence[Transform]) -> Chain | None:
    """All transforms of a patch, first to last; None if there are none. A chain raises PatchFailed."""
    if not transforms:
        return None
    steps = [(transform.type, _compile(transform), _format_of(transform)) for transform in transforms]

    def run(value: Any) -> tuple[Any, str | None]:
        misfit = None
        for index, (kind, step, template) in enumerate(steps):
            try:
                value = step(value)
            except (TransformFailed, LimitReached) as error:
                problem = characters(str(error))
                raise PatchFailed(
                    f"transform at index {index} returned error: {kind} transform could not resolve: {problem}"
                ) from None
            if template is not None and MISFIT in value:
                misfit = template
        return characters(value) if type(value) is str else value, misfit

    return run


def _compile(transform: Transform) -> Step:
    match transform.type:
        case "math" if transform.math is not None:
            return _compile_math(transform.math)
        case "map" if transform.map is not None:
            return _compile_map(transform.map)
        case "match" if transform.match is not None:
            return _compile_match(transform.match)
        case "string" if transform.string is not None:
            return compile_string(transform.string)
        case "convert" if transform.convert is not None:
            return compile_convert(transform.convert.to_type, transform.convert.format)
    raise AssertionError(f"{transform.type} transform passed validation")


def _format_of(transform: Transform) -> str | None:
    string = transform.string if transform.type == "string" else None
    return string.fmt if string is not None and string.type == "Format" else None


def _compile_math(spec: Math) -> Step:
    def number(value: Any) -> int | float:
        if type(value) is int or type(value) is float:
            return value
        raise TransformFailed(f"input is required to be a number for math transformer, got {type_name(value)}")

    factor, minimum, maximum = spec.multiply or 0, spec.clamp_min or 0, spec.clamp_max or 0

    def multiply(value: Any) -> int | float:
        product = number(value) * factor
        if type(product) is float:
            return integral(product)
        if not INT64_MIN <= product <= INT64_MAX:
            raise TransformFailed(f"{value} times {factor} overflows a 64-bit integer")
        return product

    # A fraction is cut off for the comparison only, as in Go, where bounds are integers.
    def clamp_min(value: Any) -> int | float:
        return minimum if int(number(value)) < minimum else number(value)

    def clamp_max(value: Any) -> int | float:
        return maximum if int(number(value)) > maximum else number(value)

    return {"Multiply": multiply, "ClampMin": clamp_min, "ClampMax": clamp_max}[spec.type]


def _compile_map(pairs: dict[str, Any]) -> Step:
    def look_up(value: Any) -> Any:
        if type(value) is not str:
            raise TransformFailed(f"type {type_name(value)} is not supported for map transform")
        if value not in pairs:
            raise TransformFailed(f"key {value} is not found in map")
        found = pairs[value]
        if found is None:
            raise TransformFailed(f"value for key {value} is not valid JSON")
        return fresh(found)

    return look_up


def _compile_match(spec: Match) -> Step:
    patterns = [(_compile_pattern(pattern), pattern.result) for pattern in spec.patterns]

    def match(value: Any) -> Any:
        if type(value) is not str:
            raise TransformFailed(f"cannot match pattern at index 0: unsupported input type '{type_name(value)}'")
        for matches, result in patterns:
            if matches(value):
                return fresh(result)
        if spec.fallback_to == "Value":
            return fresh(spec.fallback_value)
        if spec.fallback_value is not None:
            raise TransformFailed("cannot set both a fallback value and the fallback to input flag")
        return value

    return match


def _compile_pattern(pattern: MatchPattern) -> Callable[[str], object]:
    if pattern.type == "literal":
        literal = pattern.literal
        return lambda text: text == literal
    search: Callable[[str], object] = compile_pattern(pattern.regexp or "").search
    return lambda text: search(characters(text))
