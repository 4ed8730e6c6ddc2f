"""Lists. None of these functions changes the list it is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from planform.gotemplate.errors import CallFailed
from planform.gotemplate.functions import Library
from planform.gotemplate.runtime import State
from planform.gotemplate.sprig.equality import deep_equal
from planform.gotemplate.sprig.logic import is_empty
from planform.gotemplate.sprig.numbers import to_int
from planform.gotemplate.values import Lists, NilList, Uint8, Value, kind_name

lists: Final = Library()

NIL_POINTER: Final = "runtime error: invalid memory address or nil pointer dereference"


def elements_of(value: Value, message: str) -> Sequence[Value]:
    """The elements of a list; `message` says what cannot be done to a value of another kind."""
    if isinstance(value, list):
        return value
    if isinstance(value, bytes):
        return [Uint8(byte) for byte in value]
    if value is None:
        raise CallFailed(NIL_POINTER)
    raise CallFailed(f"{message} {kind_name(value)}")


@lists.add("func(...interface {}) []interface {}", "list", "tuple")
def list_(*values: Value) -> list[Value]:
    return list(values)


@lists.add("func(interface {}) interface {}", "first")
@lists.add("func(interface {}) (interface {}, error)", "mustFirst")
def first(value: Value) -> Value:
    items = elements_of(value, "Cannot find first on type")
    return items[0] if items else None


@lists.add("func(interface {}) interface {}", "last")
@lists.add("func(interface {}) (interface {}, error)", "mustLast")
def last(value: Value) -> Value:
    items = elements_of(value, "Cannot find last on type")
    return items[-1] if items else None


@lists.add("func(interface {}) []interface {}", "rest", stateful=True)
@lists.add("func(interface {}) ([]interface {}, error)", "mustRest", stateful=True)
def rest(state: State, value: Value) -> list[Value]:
    items = _paid(state, elements_of(value, "Cannot find rest on type"))
    return list(items[1:]) if items else NilList()


@lists.add("func(interface {}) []interface {}", "initial", stateful=True)
@lists.add("func(interface {}) ([]interface {}, error)", "mustInitial", stateful=True)
def initial(state: State, value: Value) -> list[Value]:
    items = _paid(state, elements_of(value, "Cannot find initial on type"))
    return list(items[:-1]) if items else NilList()


def _paid(state: State, items: Sequence[Value]) -> Sequence[Value]:
    state.reserve_items(len(items))
    return items


@lists.add("func(interface {}, interface {}) []interface {}", "append", "push", stateful=True)
@lists.add("func(interface {}, interface {}) ([]interface {}, error)", "mustAppend", "mustPush", stateful=True)
def append(state: State, value: Value, item: Value) -> list[Value]:
    return [*_paid(state, elements_of(value, "Cannot push on type")), item]


@lists.add("func(interface {}, interface {}) []interface {}", "prepend", stateful=True)
@lists.add("func(interface {}, interface {}) ([]interface {}, error)", "mustPrepend", stateful=True)
def prepend(state: State, value: Value, item: Value) -> list[Value]:
    return [item, *_paid(state, elements_of(value, "Cannot prepend on type"))]


@lists.add("func(...interface {}) interface {}", stateful=True)
def concat(state: State, *values: Value) -> list[Value]:
    joined: list[Value] = []
    for value in values:
        if value is not None and not isinstance(value, (list, bytes)):
            raise CallFailed(f"Cannot concat type {kind_name(value)} as list")
        joined.extend(elements_of(value, ""))
        state.reserve_items(len(joined))
    return joined or NilList()


@lists.add("func(interface {}) []interface {}", "reverse", stateful=True)
@lists.add("func(interface {}) ([]interface {}, error)", "mustReverse", stateful=True)
def reverse(state: State, value: Value) -> list[Value]:
    return list(reversed(_paid(state, elements_of(value, "Cannot find reverse on type"))))


@lists.add("func(interface {}) []interface {}", "compact", stateful=True)
@lists.add("func(interface {}) ([]interface {}, error)", "mustCompact", stateful=True)
def compact(state: State, value: Value) -> list[Value]:
    items = _paid(state, elements_of(value, "Cannot compact on type"))
    return [item for item in items if not is_empty(item)]


@lists.add("func(interface {}) []interface {}", "uniq", stateful=True)
@lists.add("func(interface {}) ([]interface {}, error)", "mustUniq", stateful=True)
def uniq(state: State, value: Value) -> list[Value]:
    kept: list[Value] = []
    for item in elements_of(value, "Cannot find uniq on type"):
        if not _is_in(state, kept, item):
            kept.append(item)
    return kept


def _is_in(state: State, items: Sequence[Value], wanted: Value) -> bool:
    state.spend(len(items) >> 2)
    if isinstance(wanted, (list, dict)):
        state.weigh(wanted, items)
    return any(deep_equal(item, wanted) for item in items)


@lists.add("func(interface {}, ...interface {}) []interface {}", "without", stateful=True)
@lists.add("func(interface {}, ...interface {}) ([]interface {}, error)", "mustWithout", stateful=True)
def without(state: State, value: Value, *unwanted: Value) -> list[Value]:
    items = elements_of(value, "Cannot find without on type")
    return [item for item in items if not _is_in(state, unwanted, item)]


@lists.add("func(interface {}, interface {}) bool", "has", stateful=True)
@lists.add("func(interface {}, interface {}) (bool, error)", "mustHas", stateful=True)
def has(state: State, wanted: Value, value: Value) -> bool:
    if value is None:
        return False
    return _is_in(state, elements_of(value, "Cannot find has on type"), wanted)


@lists.add("func(interface {}, ...interface {}) interface {}", "slice", stateful=True)
@lists.add("func(interface {}, ...interface {}) (interface {}, error)", "mustSlice", stateful=True)
def slice_(state: State, value: Value, *bounds: Value) -> Value:
    items = _paid(state, elements_of(value, "list should be type of slice or array but"))
    if not items:
        return None
    start = to_int(bounds[0]) if bounds else 0
    end = to_int(bounds[1]) if len(bounds) > 1 else len(items)
    if not 0 <= start <= end <= len(items):
        raise CallFailed("reflect.Value.Slice: slice index out of bounds")
    return value[start:end] if isinstance(value, bytes) else type(value)(items[start:end])


@lists.add("func(int, interface {}) [][]interface {}", "chunk", stateful=True)
@lists.add("func(int, interface {}) ([][]interface {}, error)", "mustChunk", stateful=True)
def chunk(state: State, size: int, value: Value) -> Lists:
    items: Sequence[Any] = _paid(state, elements_of(value, "Cannot chunk type"))
    if size < 0 and (len(items) - 1) // size == -1:
        return Lists()
    if size <= 0:
        raise CallFailed("runtime error: makeslice: len out of range")
    return Lists([list(items[start : start + size]) for start in range(0, len(items), size)])
