"""Connection details of an XR that functions give as an object: keys with values in base64."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from planform.builtin.compiled import warn
from planform.functions.values import FunctionResponse


def add_connection_details(response: FunctionResponse, data: Mapping[str, Any], *, where: str = "") -> None:
    """Add them to those that the XR has; what is no base64 is left out with a warning."""
    composite = response.desired.composite
    details = dict(composite.connection_details)
    for key, value in data.items():
        try:
            details[key] = base64.b64decode(value, validate=True)
        except (binascii.Error, TypeError, ValueError):
            of = f" of {where}" if where else ""
            warn(response, f'connection detail "{key}"{of} is left out: its value must be base64')
    composite.connection_details = details
