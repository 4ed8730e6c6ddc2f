"""Partial matches: what is expected must be there, more may be. For tests of compositions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def differences(expected: Any, found: Any, path: str = "") -> Iterator[str]:
    """One line for each place where `found` lacks or contradicts what is expected; lists must match item by item."""
    if isinstance(expected, dict):
        if not isinstance(found, dict):
            yield f"{path or 'it'}: expected an object, found {_shown(found)}"
            return
        for key, value in expected.items():
            where = f"{path}.{key}" if path else str(key)
            if key not in found:
                yield f"{where}: expected {_shown(value)}, found nothing"
            else:
                yield from differences(value, found[key], where)
    elif isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            yield f"{path or 'it'}: expected {_shown(expected)}, found {_shown(found)}"
            return
        for index, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif isinstance(expected, bool) is not isinstance(found, bool) or expected != found:
        yield f"{path or 'it'}: expected {_shown(expected)}, found {_shown(found)}"


def _shown(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 200 else f"{text[:197]}..."
