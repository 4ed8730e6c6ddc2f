"""YAML as Helm's functions write and read it: by way of JSON, so keys are sorted and numbers read are floats."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from planform.gotemplate.errors import CallFailed
from planform.gotemplate.printing import Meter
from planform.gotemplate.values import NilList, NilMap, Record, Value
from planform.machinery import yamlish


def dump_yaml(value: Value, meter: Meter) -> str:
    """One document, with a line break at its end."""
    return yamlish.dump(_plain(value, meter))


def _plain(value: Value, meter: Meter) -> Any:
    """The JSON value that the template's value stands for."""
    meter.spend(1)
    if isinstance(value, dict):
        return None if isinstance(value, NilMap) else {key: _plain(value[key], meter) for key in sorted(value)}
    if isinstance(value, list):
        return None if isinstance(value, NilList) else [_plain(item, meter) for item in value]
    if isinstance(value, str):
        meter.spend(len(value))
        return value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 1e21 else value
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return value.go_json() if isinstance(value, Record) else None


def load_yaml(text: str) -> Value:
    """The value of one document. Raises CallFailed."""
    try:
        return _floated(yamlish.load(text))
    except (yamlish.YamlError, UnicodeError) as error:
        raise CallFailed(f"yaml: {error}") from None


def _floated(value: Any) -> Value:
    if isinstance(value, dict):
        return {key: _floated(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_floated(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
