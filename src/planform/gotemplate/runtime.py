"""What compiled templates call while they run: fields, ranges, argument checks, printing, and the bill."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol

from planform.gotemplate.errors import Fault, LimitReached
from planform.gotemplate.functions import can_be_nil
from planform.gotemplate.printing import MAX_NESTING, Meter, show
from planform.gotemplate.values import (
    MISSING,
    Int,
    Ints,
    Lists,
    NilList,
    NilMap,
    NilStrings,
    Record,
    StringMap,
    Strings,
    Value,
    is_integer,
    type_name,
)

BIG: Final = 4096  # strings longer than this are paid for when a function takes them
_INDEXES: Final = [Int(i) for i in range(1024)]

# A compiled template: it writes its text into the list.
Body = Callable[["State", list[str], Value], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one render may use; nothing that a template says can exceed it."""

    steps: int = 2_000_000  # nodes evaluated, and a share for long values
    output: int = 16 << 20  # characters, of the result and of any string on the way
    items: int = 1_000_000  # elements of any list on the way
    depth: int = 100  # templates that invoke templates


class Renderer(Protocol):
    """What `include` and `tpl` need of the set a template belongs to."""

    def include(self, state: State, name: str, data: Value) -> str: ...

    def tpl(self, state: State, text: str, data: Value) -> str: ...


class State:
    """One render in progress."""

    __slots__ = ("bodies", "clock", "depth", "limits", "random", "renderer", "steps", "zone")

    def __init__(
        self,
        bodies: Mapping[str, Body],
        renderer: Renderer,
        limits: Limits,
        *,
        clock: Callable[[], float],
        rng: random.Random,
        zone: str,
    ) -> None:
        self.bodies = bodies
        self.renderer = renderer
        self.limits = limits
        self.steps = limits.steps
        self.depth = 0
        self.clock = clock
        self.random = rng
        self.zone = zone

    def spend(self, steps: int) -> None:
        """Pay for work; raises when there is nothing left."""
        self.steps -= steps
        if self.steps < 0:
            raise LimitReached(f"template takes more than {self.limits.steps} steps")

    def enter(self, weight: int) -> None:
        """Begin a template of so many nodes; it ends with `depth -= 1`."""
        self.depth += 1
        if self.depth > self.limits.depth:
            raise LimitReached(f"exceeded maximum template depth ({self.limits.depth})")
        self.spend(weight)

    def reserve_text(self, characters: int) -> None:
        """Ask before making a string of this length."""
        if characters > self.limits.output:
            raise LimitReached(f"string is longer than {self.limits.output} characters")
        if characters > BIG:
            self.spend(characters >> 6)

    def reserve_items(self, items: int) -> None:
        """Ask before making a list of this length."""
        if items > self.limits.items:
            raise LimitReached(f"list is longer than {self.limits.items} items")
        if items > 64:
            self.spend(items >> 3)

    def meter(self) -> Meter:
        """What may still be printed at once: no more than the output, nor than the steps that are left pay for."""
        return Meter(min(self.limits.output, self.steps << 4))

    def weigh(self, *values: Value) -> None:
        """Pay for a function that walks through all of its arguments; shared parts count as often as they are met."""
        for value in values:
            if isinstance(value, (list, dict)):
                self.spend(_count(value, self.steps, 0))

    def finish(self, parts: list[str]) -> str:
        """The text of what a template wrote."""
        if sum(map(len, parts)) > self.limits.output:
            raise LimitReached(f"output is longer than {self.limits.output} characters")
        return "".join(parts)


def _count(value: list[Any] | dict[str, Any], maximum: int, depth: int) -> int:
    if depth > MAX_NESTING:
        raise LimitReached(f"value is nested more than {MAX_NESTING} deep")
    total = len(value)
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, (list, dict)):
            total += _count(item, maximum, depth + 1)
        if total > maximum:
            raise LimitReached("value is too large to walk through")
    return total


# --- fields ----------------------------------------------------------------------------------------------------------


def missing_by_default(receiver: dict[str, Any], name: str) -> Value:
    return MISSING


def missing_is_zero(receiver: dict[str, Any], name: str) -> Value:
    return "" if isinstance(receiver, StringMap) else None


def missing_is_error(receiver: dict[str, Any], name: str) -> Value:
    raise Fault(f'map has no entry for key "{name}"')


MISSING_KEY: Final[Mapping[str, Callable[[dict[str, Any], str], Value]]] = {
    "default": missing_by_default,
    "invalid": missing_by_default,
    "zero": missing_is_zero,
    "error": missing_is_error,
}


def known_as(value: Value, container: Value) -> str:
    """The type that Go knows a value by: found in a list or map of anything, it is an interface.

    `container` is where it was found, True if that was a map, or False if it stood by itself.
    """
    boxed = container is True or type(container) in (list, dict)
    return "interface {}" if boxed else type_name(value)


def field_reader(missing_key: str) -> Callable[[Value, str, Value], Value]:
    """The slow way to `.name`: what compiled code calls when the receiver is not a plain dict that has it."""
    absent = MISSING_KEY[missing_key]

    def field(receiver: Value, name: str, container: Value) -> Value:
        if isinstance(receiver, dict):
            return receiver[name] if name in receiver else absent(receiver, name)
        if receiver is MISSING:
            if missing_key == "error":
                raise Fault(f'nil data; no entry for key "{name}"')
            return MISSING
        if receiver is None:
            raise Fault(f"nil pointer evaluating interface {{}}.{name}")
        if isinstance(receiver, Record):
            return _record_member(receiver, name)
        raise Fault(f"can't evaluate field {name} in type {known_as(receiver, container)}")

    return field


def _record_member(receiver: Record, name: str) -> Value:
    if name in receiver.fields:
        return receiver.fields[name](receiver)
    if name in receiver.methods:
        return method(receiver, name, False)()
    raise Fault(f"can't evaluate field {name} in type {receiver.go_type}")


def method(receiver: Value, name: str, container: Value) -> Callable[..., Value]:
    """The method behind `.name argument`; everything but a method of a record is refused before its arguments run."""
    if isinstance(receiver, dict):
        raise Fault(f"{name} is not a method but has arguments")
    if receiver is MISSING:
        return lambda *arguments: MISSING
    if receiver is None:
        raise Fault(f"nil pointer evaluating interface {{}}.{name}")
    if not isinstance(receiver, Record):
        raise Fault(f"can't evaluate field {name} in type {known_as(receiver, container)}")
    if name in receiver.fields:
        raise Fault(f"{name} has arguments but cannot be invoked as function")
    if name not in receiver.methods:
        raise Fault(f"can't evaluate field {name} in type {receiver.go_type}")
    call, types = receiver.methods[name]

    def bound(*arguments: Value) -> Value:
        if len(arguments) != len(types):
            raise Fault(f"wrong number of args for {name}: want {len(types)} got {len(arguments)}")
        for argument, go_type in zip(arguments, types, strict=True):
            if type_name(argument) != go_type:
                wrong(argument, go_type)
        return call(receiver, *arguments)

    return bound


# --- ranges ----------------------------------------------------------------------------------------------------------


class _Count:
    """`range 1000000`: numbers that are made and paid for as they are used."""

    __slots__ = ("number", "state", "weight")

    def __init__(self, state: State, number: int, weight: int) -> None:
        self.state, self.number, self.weight = state, number, weight

    def __iter__(self) -> Iterator[int]:
        make = type(self.number)
        for i in range(self.number):
            self.state.spend(self.weight)
            yield make(i)


def elements(state: State, value: Value, weight: int) -> Iterable[Value]:
    """What `range` goes through; false if that is nothing. `weight` is the price of one round."""
    if isinstance(value, list):
        state.spend(len(value) * weight)
        return value
    if isinstance(value, dict):
        state.spend(len(value) * weight)
        return [value[key] for key in sorted(value)]
    if value is MISSING or value is None:
        return ()
    if is_integer(value):
        return _Count(state, value, weight) if value > 0 else ()
    if isinstance(value, bytes):
        return list(value)
    raise Fault(f"range can't iterate over {show(value, state.meter())}")


def pairs(state: State, value: Value, weight: int) -> Iterable[tuple[Value, Value]]:
    """What `range $key, $value :=` goes through; false if that is nothing."""
    if isinstance(value, list):
        state.spend(len(value) * weight)
        if len(value) <= len(_INDEXES):
            return list(zip(_INDEXES, value, strict=False))
        return list(zip(map(Int, range(len(value))), value, strict=True))
    if isinstance(value, dict):
        state.spend(len(value) * weight)
        return [(key, value[key]) for key in sorted(value)]
    if is_integer(value):
        raise Fault(f"can't use {value} to iterate over more than one variable")
    if isinstance(value, bytes):
        return list(zip(map(Int, range(len(value))), value, strict=True))
    elements(state, value, weight)
    return ()


# --- arguments -------------------------------------------------------------------------------------------------------


def wrong(value: Value, go_type: str) -> NoReturn:
    """The error about an argument of another type than the parameter."""
    if value is MISSING:
        raise Fault(f"invalid value; expected {go_type}")
    got = "interface {}" if value is None else type_name(value)
    raise Fault(f"wrong type for value; expected {go_type}; got {got}")


def text_argument(state: State, value: Value) -> str:
    """A string that is long, or something else."""
    if type(value) is str:
        state.reserve_text(len(value))
        return value
    wrong(value, "string")


_EXACT: Final[Mapping[str, tuple[type, ...]]] = {
    "int": (Int,),
    "int64": (int,),
    "float64": (float,),
    "bool": (bool,),
    "map[string]interface {}": (dict, NilMap),
    "map[string]string": (StringMap,),
    "[]interface {}": (list, NilList),
    "[]string": (Strings, NilStrings),
    "[]int": (Ints,),
    "[][]interface {}": (Lists,),
    "[]uint8": (bytes,),
}


def argument(value: Value, go_type: str) -> Value:
    """A value for a parameter of any type that has no quicker check."""
    if type(value) in _EXACT.get(go_type, ()) or (isinstance(value, Record) and value.go_type == go_type):
        return value
    if value is MISSING and can_be_nil(go_type):
        return nil_of(go_type)
    wrong(value, go_type)


def nil_of(go_type: str) -> Value:
    """The zero value of a type that can be nil."""
    if go_type.startswith("map["):
        return NilMap()
    return NilList() if go_type.startswith("[]") else None


# --- output ----------------------------------------------------------------------------------------------------------


def text(state: State, value: Value) -> str:
    """What an action prints for a value that is not a string."""
    if value is None or value is MISSING:
        return "<no value>"
    if isinstance(value, (list, dict)):
        printed = show(value, state.meter())
        state.reserve_text(len(printed))
        return printed
    return show(value)


def lookup(state: State, name: str) -> Body:
    body = state.bodies.get(name)
    if body is None:
        raise Fault(f'template "{name}" not defined')
    return body


def refuse(message: str) -> NoReturn:
    """Raise what the compiler knew would go wrong here."""
    raise Fault(message)
