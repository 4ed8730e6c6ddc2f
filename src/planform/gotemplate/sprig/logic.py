"""Emptiness, defaults and what type a value has."""

from __future__ import annotations

from typing import Final

from planform.gotemplate.errors import CallFailed
from planform.gotemplate.functions import Library
from planform.gotemplate.values import Record, Value, kind_name, type_name

logic: Final = Library()


@logic.add("func(interface {}) bool", "empty")
def is_empty(value: Value) -> bool:
    return not value and not isinstance(value, Record)


@logic.add("func(interface {}, ...interface {}) interface {}")
def default(fallback: Value, *given: Value) -> Value:
    return fallback if not given or is_empty(given[0]) else given[0]


@logic.add("func(...interface {}) interface {}")
def coalesce(*values: Value) -> Value:
    return next((value for value in values if not is_empty(value)), None)


@logic.add("func(...interface {}) bool", "all")
def all_(*values: Value) -> bool:
    return not any(map(is_empty, values))


@logic.add("func(...interface {}) bool", "any")
def any_(*values: Value) -> bool:
    return not all(map(is_empty, values))


@logic.add("func(interface {}, interface {}, bool) interface {}")
def ternary(yes: Value, no: Value, condition: bool) -> Value:
    return yes if condition else no


@logic.add("func(string) (string, error)")
def fail(message: str) -> str:
    raise CallFailed(message)


@logic.add("func(interface {}) string", "typeOf")
def type_of(value: Value) -> str:
    return type_name(value)


@logic.add("func(string, interface {}) bool", "typeIs")
def type_is(name: str, value: Value) -> bool:
    return name == type_name(value)


@logic.add("func(string, interface {}) bool", "typeIsLike")
def type_is_like(name: str, value: Value) -> bool:
    return type_name(value) in (name, "*" + name)


@logic.add("func(interface {}) string", "kindOf")
def kind_of(value: Value) -> str:
    return kind_name(value)


@logic.add("func(string, interface {}) bool", "kindIs")
def kind_is(name: str, value: Value) -> bool:
    return name == kind_name(value)
