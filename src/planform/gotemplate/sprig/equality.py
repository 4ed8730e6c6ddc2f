"""Deep equality, as Go's reflect.DeepEqual has it: values of different types are never equal."""

from __future__ import annotations

from typing import Final

from planform.gotemplate.functions import Library
from planform.gotemplate.runtime import State
from planform.gotemplate.values import NIL_CONTAINERS, Value, type_name

equality: Final = Library()


def deep_equal(first: Value, second: Value) -> bool:
    if type(first) is not type(second):
        return type_name(first) == type_name(second) and not isinstance(first, NIL_CONTAINERS) and first == second
    if isinstance(first, list):
        return len(first) == len(second) and all(map(deep_equal, first, second))
    if isinstance(first, dict):
        return len(first) == len(second) and all(
            key in second and deep_equal(value, second[key]) for key, value in first.items()
        )
    return bool(first == second)


@equality.add("func(interface {}, interface {}) bool", "deepEqual", stateful=True)
def deep_equal_function(state: State, first: Value, second: Value) -> bool:
    state.weigh(first, second)
    return deep_equal(first, second)
