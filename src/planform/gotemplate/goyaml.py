"""YAML as Helm's functions write and read it: by way of JSON, so that numbers read are floats.

What is written is what Go's YAML library writes: strings that would read as something else in double quotes, text of
several lines as a block, keys in an order that counts numbers as numbers, long lines folded at 80.
"""

from __future__ import annotations

import math
import re
from base64 import b64encode
from functools import cmp_to_key
from typing import Any, Final

import yaml

from planform.apimachinery import yaml_loader
from planform.gotemplate.errors import CallFailed
from planform.gotemplate.floats import format_float
from planform.gotemplate.printing import Meter
from planform.gotemplate.values import NIL_CONTAINERS, Record, Value, type_name

_TEXT_TAG: Final = "tag:yaml.org,2002:str"
_NO_CHARACTER: Final = re.compile("[\ud800-\udfff]")
_READS_AS_OTHER: Final = re.compile(
    r"""
    |~|null|Null|NULL|<<
    |y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF|true|True|TRUE|false|False|FALSE
    |[-+]?(?:0b[01_]+|0o[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)
    |[-+]?(?:\.[0-9][0-9_]*|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?
    |[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)
    |[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?
    |[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:[Tt]|[ ]+)[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]*)?
     (?:[ ]*(?:Z|[-+][0-9]{1,2}(?::[0-9]{2})?))?)?
    """,
    re.VERBOSE,
)


def dump_yaml(value: Value, meter: Meter) -> str:
    """One document, with a line break at its end. Raises CallFailed for numbers that JSON does not have."""
    text: str = yaml.dump(_plain(value, meter), Dumper=_Dumper, default_flow_style=False, allow_unicode=True)
    return text.removesuffix("...\n")


class _Dumper(yaml.SafeDumper):
    """Leaves it to the representers below what is quoted: to the emitter, every scalar is text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def check_simple_key(self) -> bool:
        return bool(getattr(self.event, "value", None) == "" or super().check_simple_key())


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    if _READS_AS_OTHER.fullmatch(text) or (not text.isascii() and max(text) > "\uffff"):
        style = '"'
    return dumper.represent_scalar(_TEXT_TAG, text, style=style)


def _represent_number(dumper: yaml.SafeDumper, number: float) -> yaml.ScalarNode:
    text = str(number) if isinstance(number, int) else format_float(number, "g", None)
    return dumper.represent_scalar(_TEXT_TAG, text)


def _represent_constant(dumper: yaml.SafeDumper, constant: bool | None) -> yaml.ScalarNode:
    return dumper.represent_scalar(_TEXT_TAG, {None: "null", True: "true", False: "false"}[constant])


def _represent_map(dumper: yaml.SafeDumper, mapping: dict[str, Any]) -> yaml.MappingNode:
    ordered = sorted(mapping.items(), key=lambda item: _KEY_ORDER(item[0]))
    return dumper.represent_mapping("tag:yaml.org,2002:map", ordered)


_Dumper.yaml_implicit_resolvers = {}
_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(int, _represent_number)
_Dumper.add_representer(float, _represent_number)
_Dumper.add_representer(bool, _represent_constant)
_Dumper.add_representer(type(None), _represent_constant)
_Dumper.add_representer(dict, _represent_map)


def _compare_keys(first: str, second: str) -> int:
    """Letters after everything else, and runs of digits by their value: `a2` before `a10`."""
    for at, (one, other) in enumerate(zip(first, second, strict=False)):
        if one == other:
            continue
        if one.isalpha() or other.isalpha():
            if one.isalpha() and other.isalpha():
                return -1 if one < other else 1
            return -1 if other.isalpha() else 1
        ours, theirs = _digits(first, at), _digits(second, at)
        lead = "1" if "0" in (one, other) and re.search(r"[1-9]0*\Z", first[:at]) else ""
        values = int(lead + ours or "0"), int(lead + theirs or "0")
        if values[0] != values[1]:
            return -1 if values[0] < values[1] else 1
        if len(ours) != len(theirs):
            return -1 if len(ours) < len(theirs) else 1
        return -1 if one < other else 1
    return len(first) - len(second)


def _digits(text: str, at: int) -> str:
    match = re.compile("[0-9]{0,18}").match(text, at)
    return match[0] if match else ""


_KEY_ORDER: Final = cmp_to_key(_compare_keys)


def _plain(value: Value, meter: Meter) -> Any:
    """The JSON value that the template's value stands for."""
    meter.spend(1)
    if isinstance(value, dict):
        return None if isinstance(value, NIL_CONTAINERS) else {key: _plain(item, meter) for key, item in value.items()}
    if isinstance(value, list):
        return None if isinstance(value, NIL_CONTAINERS) else [_plain(item, meter) for item in value]
    if isinstance(value, str):
        meter.spend(len(value))
        return value if value.isascii() else _NO_CHARACTER.sub("\ufffd", value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise CallFailed(f"error marshaling into JSON: json: unsupported value: {format_float(value, 'g', None)}")
        return int(value) if value.is_integer() and -(2**63) <= value < 2**64 else value
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Record):
        return _plain(value.go_value(), meter)
    raise CallFailed(f"error marshaling into JSON: json: unsupported type: {type_name(value)}")


def load_yaml(text: str) -> Value:
    """The value of one document. Raises CallFailed."""
    try:
        return _floated(yaml_loader.load(text))
    except (yaml_loader.YamlError, UnicodeError) as error:
        raise CallFailed(f"yaml: {error}") from None


def _floated(value: Any) -> Value:
    if isinstance(value, dict):
        return {key: _floated(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_floated(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
