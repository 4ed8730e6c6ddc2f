"""The functions that Go templates have without any library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote_plus

from planform.gotemplate.errors import CallFailed
from planform.gotemplate.functions import Library
from planform.gotemplate.printf import sprintf
from planform.gotemplate.printing import show, sprint, sprintln
from planform.gotemplate.quoting import is_printable
from planform.gotemplate.runtime import State
from planform.gotemplate.values import (
    NIL_CONTAINERS,
    Int,
    Record,
    StringMap,
    Uint8,
    Value,
    byte_length,
    from_bytes,
    is_integer,
    kind_name,
    to_bytes,
    type_name,
)

builtins: Final = Library()


def _compiled(*values: Value) -> Value:
    raise AssertionError("the compiler has its own way with this function")


for _name in ("and", "or"):
    builtins.add("func(reflect.Value, ...reflect.Value) reflect.Value", _name, special=_name)(_compiled)
builtins.add("func(reflect.Value) bool", "not", special="not")(_compiled)


# --- comparison ------------------------------------------------------------------------------------------------------

_BASIC: Final = {str: "string", bool: "bool", float: "float", complex: "complex"}


def _basic_kind(value: Value) -> str:
    """The kinds that compare with each other; empty for those that do not compare by value."""
    known = _BASIC.get(type(value))
    if known is not None:
        return known
    return "int" if isinstance(value, int) else ""


@builtins.add("func(reflect.Value, ...reflect.Value) (bool, error)", special="==")
def eq(first: Value, *others: Value) -> bool:
    """Whether the first equals any of the others."""
    if not others:
        raise CallFailed("missing argument for comparison")
    kind = _basic_kind(first)
    for other in others:
        if type(first) is type(other) and kind:
            if first == other:
                return True
            continue
        other_kind = _basic_kind(other)
        if kind != other_kind:
            if first is not None and other is not None:
                raise CallFailed(f"incompatible types for comparison: {type_name(first)} and {type_name(other)}")
        elif kind:
            if first == other:
                return True
        elif _equal_by_identity(first, other):
            return True
    return False


def _equal_by_identity(first: Value, other: Value) -> bool:
    """Comparison of what is no basic value: nil equals nil, and most of the rest refuses."""
    if first is not None and other is not None and kind_name(first) != kind_name(other):
        shown = f"{sprintf('%s', [first])}: {type_name(first)}, {type_name(other)}: {show(other)}"
        raise CallFailed(f"non-comparable types {shown}")
    if _is_nil(first) or _is_nil(other):
        return _is_nil(first) == _is_nil(other)
    if not isinstance(other, Record) or not isinstance(first, Record):
        raise CallFailed(f"non-comparable type {sprintf('%s', [other])}: {type_name(other)}")
    return first == other


def _is_nil(value: Value) -> bool:
    return value is None or isinstance(value, NIL_CONTAINERS)


@builtins.add("func(reflect.Value, reflect.Value) (bool, error)", special="!=")
def ne(first: Value, second: Value) -> bool:
    return not eq(first, second)


@builtins.add("func(reflect.Value, reflect.Value) (bool, error)", special="<")
def lt(first: Value, second: Value) -> bool:
    kind, other_kind = _basic_kind(first), _basic_kind(second)
    if not kind or not other_kind:
        raise CallFailed("invalid type for comparison")
    if kind != other_kind:
        raise CallFailed(f"incompatible types for comparison: {type_name(first)} and {type_name(second)}")
    if kind == "string":
        return to_bytes(first) < to_bytes(second)
    if kind in ("bool", "complex"):
        raise CallFailed("invalid type for comparison")
    return bool(first < second)


@builtins.add("func(reflect.Value, reflect.Value) (bool, error)", special="<=")
def le(first: Value, second: Value) -> bool:
    return lt(first, second) or eq(first, second)


@builtins.add("func(reflect.Value, reflect.Value) (bool, error)", special=">")
def gt(first: Value, second: Value) -> bool:
    return not le(first, second)


@builtins.add("func(reflect.Value, reflect.Value) (bool, error)", special=">=")
def ge(first: Value, second: Value) -> bool:
    return not lt(first, second)


# --- parts of values -------------------------------------------------------------------------------------------------


@builtins.add("func(reflect.Value) (int, error)", "len")
def length(value: Value) -> Int:
    if isinstance(value, (list, dict, bytes)):
        return Int(len(value))
    if isinstance(value, str):
        return Int(byte_length(value))
    if value is None:
        raise CallFailed("len of nil pointer")
    raise CallFailed(f"len of type {type_name(value).removeprefix('*')}")


@builtins.add("func(reflect.Value, ...reflect.Value) (reflect.Value, error)")
def index(value: Value, *keys: Value) -> Value:
    """An element of an element of ...; a key that a map does not have gives nil, an index out of range an error."""
    if value is None:
        raise CallFailed("index of untyped nil")
    for key in keys:
        if isinstance(value, dict):
            value = _map_entry(value, key)
        elif isinstance(value, (list, bytes)):
            position = _index_argument(key, len(value))
            if position == len(value):
                raise CallFailed("reflect: slice index out of range")
            value = Uint8(value[position]) if isinstance(value, bytes) else _element(value, position)
        elif isinstance(value, str):
            data = to_bytes(value)
            position = _index_argument(key, len(data))
            if position == len(data):
                raise CallFailed("reflect: string index out of range")
            value = Uint8(data[position])
        elif value is None:
            raise CallFailed("index of nil pointer")
        else:
            raise CallFailed(f"can't index item of type {type_name(value).removeprefix('*')}")
    return value


def _element(values: Sequence[Value], position: int) -> Value:
    value = values[position]
    return Int(value) if type(value) is int and type_name(values) == "[]int" else value


def _map_entry(mapping: dict[str, Any], key: Value) -> Value:
    if not isinstance(key, str):
        if key is None:
            raise CallFailed("value is nil; should be of type string")
        raise CallFailed(f"value has type {type_name(key)}; should be string")
    return mapping.get(key, "" if isinstance(mapping, StringMap) else None)


def _index_argument(key: Value, maximum: int) -> int:
    if key is None:
        raise CallFailed("cannot index slice/array with nil")
    if not is_integer(key):
        raise CallFailed(f"cannot index slice/array with type {type_name(key)}")
    if not 0 <= key <= maximum:
        raise CallFailed(f"index out of range: {key}")
    return int(key)


@builtins.add("func(reflect.Value, ...reflect.Value) (reflect.Value, error)", "slice")
def slice_(value: Value, *bounds: Value) -> Value:
    """`value[a:b]` of a string, in bytes, or of a list."""
    if value is None:
        raise CallFailed("slice of untyped nil")
    if len(bounds) > 3:
        raise CallFailed(f"too many slice indexes: {len(bounds)}")
    if isinstance(value, str):
        if len(bounds) == 3:
            raise CallFailed("cannot 3-index slice a string")
        data: Any = to_bytes(value)
    elif isinstance(value, (list, bytes)):
        data = value
    else:
        raise CallFailed(f"can't slice item of type {type_name(value)}")
    numbers = [_index_argument(bound, len(data)) for bound in bounds]
    start, stop = (numbers + [0, len(data)][len(numbers) :])[:2]
    if start > stop:
        raise CallFailed(f"invalid slice index: {start} > {stop}")
    if len(numbers) == 3 and stop > numbers[2]:
        raise CallFailed(f"invalid slice index: {stop} > {numbers[2]}")
    part = data[start:stop]
    return from_bytes(part) if isinstance(value, str) else part if isinstance(part, bytes) else type(value)(part)


@builtins.add("func(reflect.Value, ...reflect.Value) (reflect.Value, error)", special="call")
def call(name: str, function: Value, *arguments: Value) -> Value:
    """Data holds no functions, so there is nothing to call; `name` is how the template wrote it."""
    if function is None:
        raise CallFailed("call of nil")
    raise CallFailed(f"non-function {name} of type {type_name(function)}")


# --- text ------------------------------------------------------------------------------------------------------------


@builtins.add("func(...interface {}) string", "print", stateful=True)
def print_(state: State, *values: Value) -> str:
    return _paid(state, sprint(values, state.meter()))


@builtins.add("func(...interface {}) string", stateful=True)
def println(state: State, *values: Value) -> str:
    return _paid(state, sprintln(values, state.meter()))


@builtins.add("func(string, ...interface {}) string", stateful=True)
def printf(state: State, template: str, *values: Value) -> str:
    return _paid(state, sprintf(template, values, state.meter()))


def _paid(state: State, text: str) -> str:
    state.reserve_text(len(text))
    return text


def _joined(state: State, values: Sequence[Value]) -> str:
    """What the escapers escape: one string as it is, or everything as `print` prints it, nil as `<no value>`."""
    if len(values) == 1 and type(values[0]) is str:
        return values[0]
    return _paid(state, sprint(["<no value>" if value is None else value for value in values], state.meter()))


_HTML: Final = str.maketrans({'"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;", "\0": "\ufffd"})


@builtins.add("func(...interface {}) string", stateful=True)
def html(state: State, *values: Value) -> str:
    return _joined(state, values).translate(_HTML)


@builtins.add("func(...interface {}) string", stateful=True)
def js(state: State, *values: Value) -> str:
    return "".join(map(_escape_for_script, _joined(state, values)))


_SCRIPT: Final = {"\\": "\\\\", "'": "\\'", '"': '\\"', "<": "\\u003C", ">": "\\u003E", "&": "\\u0026", "=": "\\u003D"}


def _escape_for_script(char: str) -> str:
    known = _SCRIPT.get(char)
    if known is not None:
        return known
    if char < " ":
        return f"\\u{ord(char):04X}"
    if char < "\x80" or is_printable(char) or "\ud800" <= char <= "\udfff":
        return char
    return f"\\u{ord(char):04X}"


@builtins.add("func(...interface {}) string", stateful=True)
def urlquery(state: State, *values: Value) -> str:
    return quote_plus(to_bytes(_joined(state, values)), safe="")
