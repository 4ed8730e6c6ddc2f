"""Reading a function's input: strictly, since nobody but the function itself ever checks it.

A member that is not known, or of another type than it should be, is an error that names its path. Nulls count as
absent, except inside members that hold any JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from planform.errors import FieldError

T = TypeVar("T")


class InputError(ValueError):
    """The input cannot be read, or is not valid."""


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A part of an input, as the user wrote it; its subclasses set defaults for all their members."""


class InputObject(Part, frozen=True, kw_only=True):
    """The members that every input may have."""

    api_version: str = ""
    kind: str = ""
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


def convert_input(value: Any, part: type[T], *, free_form: frozenset[str] = frozenset()) -> T:
    """The input as typed parts; `free_form` names the members whose content is anything. Raises InputError."""
    try:
        return msgspec.convert(_plain(value, free_form), part)
    except msgspec.ValidationError as error:
        raise InputError(f"cannot get Function input: {_located(str(error))}") from None


def given_object(value: Any) -> dict[str, Any]:
    """The input that a step must have. Its api version and kind may be any: upstream's functions never look at them,
    and what people publish is often an older or a made-up one. Raises InputError if there is none."""
    if not isinstance(value, dict):
        raise InputError("cannot get Function input: the step has no input")
    return value


def refuse_invalid(errors: Iterable[FieldError]) -> None:
    """Raise InputError if there are errors: all of them, in one line."""
    texts = list(dict.fromkeys(map(str, errors)))
    if texts:
        text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        raise InputError(f"invalid Function input: {text}")


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(field, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def duplicate(field: str, value: str) -> FieldError:
    return FieldError(field, "FieldValueDuplicate", f'Duplicate value: "{value}"')


def _plain(value: Any, free_form: frozenset[str]) -> Any:
    """Without nulls, and with whole numbers as integers."""
    if isinstance(value, dict):
        return {
            key: member if key in free_form else _plain(member, free_form)
            for key, member in value.items()
            if member is not None
        }
    if isinstance(value, list):
        return [_plain(item, free_form) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


_TYPES: Final = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
"""What JSON calls the types that msgspec names as Python does."""


def _in_words_of_json(found: re.Match[str]) -> str:
    """A type, or several, or something that is none and stays in quotes."""
    names = found[1].split(" | ")
    if not all(name in _TYPES for name in names):
        return f'"{found[1]}"'
    return " or ".join(_TYPES[name] for name in names if name != "null" or len(names) == 1)


def _located(text: str) -> str:
    """msgspec's message with the path in front, as the other errors of an input have it."""
    match = re.fullmatch(r"(.*?)(?: - at `(?:key in )?\$\.?(.*)`)?", text, re.DOTALL)
    detail, path = (match[1], match[2]) if match else (text, None)
    detail = detail[:1].lower() + re.sub("`([^`]*)`", _in_words_of_json, detail[1:])
    return f"{path}: {detail}" if path else detail
