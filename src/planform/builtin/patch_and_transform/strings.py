"""The string transform: every input becomes text first, the way Go's `%v` prints it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from planform.builtin.patch_and_transform.conversion import TransformFailed, go_json
from planform.builtin.patch_and_transform.formatting import format_values
from planform.builtin.patch_and_transform.inputs import String, StringRegexp
from planform.builtin.patch_and_transform.values import characters
from planform.builtin.patterns import compile_pattern
from planform.gotemplate.printing import show
from planform.gotemplate.values import from_bytes, to_bytes

StringTransform = Callable[[Any], str]
"""Texts between transforms may hold bytes that are no characters, as surrogate escapes: Go's strings are bytes."""


def compile_string(spec: String) -> StringTransform:
    """The transform that a validated `string` describes."""
    match spec.type:
        case "Format":
            return partial(_format, spec.fmt or "")
        case "Convert":
            return CONVERSIONS[spec.convert or ""]
        case "TrimPrefix":
            return partial(_trim_prefix, spec.trim or "")
        case "TrimSuffix":
            return partial(_trim_suffix, spec.trim or "")
        case "Regexp" if spec.regexp is not None:
            return _compile_regexp(spec.regexp)
        case "Join" if spec.join is not None:
            return partial(_join, spec.join.separator)
        case "Replace" if spec.replace is not None:
            return partial(_replace, spec.replace.search, spec.replace.replace)
    raise AssertionError(f"string transform {spec.type} passed validation")


def _format(template: str, value: Any) -> str:
    return format_values(template, (value,))


def _trim_prefix(prefix: str, value: Any) -> str:
    return show(value).removeprefix(prefix)


def _trim_suffix(suffix: str, value: Any) -> str:
    return show(value).removesuffix(suffix)


def _replace(search: str, replacement: str, value: Any) -> str:
    return show(value).replace(search, replacement)


def _join(separator: str, value: Any) -> str:
    if type(value) is not list:
        raise TransformFailed("could not parse input array")
    return separator.join(map(show, value))


def _compile_regexp(spec: StringRegexp) -> StringTransform:
    pattern, group = compile_pattern(spec.match), spec.group

    def extract(value: Any) -> str:
        match = pattern.search(characters(show(value)))
        if match is None or group > pattern.groups:
            raise TransformFailed(f'regexp "{spec.match}" had no matches for group {group}')
        return match.group(group) or ""

    return extract


def _by_rune(change: Callable[[str], str]) -> StringTransform:
    """Go changes case rune by rune: what would become several characters stays as it is."""

    def convert(value: Any) -> str:
        text = characters(show(value))
        changed = change(text)
        if len(changed) == len(text):
            return changed
        return "".join(other if len(other := change(char)) == 1 else char for char in text)

    return convert


def _to_base64(value: Any) -> str:
    return base64.b64encode(to_bytes(show(value))).decode()


def _from_base64(value: Any) -> str:
    text = show(value).replace("\r", "").replace("\n", "")
    try:
        return from_bytes(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        raise TransformFailed("string is not valid base64") from None


def _content(value: Any) -> bytes:
    """What a hash is made of: a text itself, or anything else as JSON."""
    return to_bytes(value if type(value) is str else go_json(value))


CONVERSIONS: Final[dict[str, StringTransform]] = {
    "ToUpper": _by_rune(str.upper),
    "ToLower": _by_rune(str.lower),
    "ToBase64": _to_base64,
    "FromBase64": _from_base64,
    "ToJson": go_json,
    "ToSha1": lambda value: hashlib.sha1(_content(value), usedforsecurity=False).hexdigest(),
    "ToSha256": lambda value: hashlib.sha256(_content(value)).hexdigest(),
    "ToSha512": lambda value: hashlib.sha512(_content(value)).hexdigest(),
    "ToAdler32": lambda value: str(zlib.adler32(_content(value))),
}
