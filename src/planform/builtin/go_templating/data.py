"""What a template sees as `.`: the request, spelled as protobuf's JSON spells it, without what is empty."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from planform.functions.values import FunctionRequest, Object, Ready, Resource, State

_CHANGES_MAPS: Final = re.compile(r"\b(?:set|unset|tpl|(?:mustM|m)erge(?:Overwrite)?)\b").search
"""Functions that change a map they are given, and the one that can run a text made up while rendering."""


def changes_maps(template: str) -> bool:
    """Whether a template may change what it is given, so that it must have a copy; a comment is enough for a yes."""
    return _CHANGES_MAPS(template) is not None


def template_data(request: FunctionRequest, *, copied: bool) -> Object:
    """The data of one render. Unless `copied`, it shares its objects with the request."""
    data: Object = {
        "meta": {"tag": request.tag} if request.tag else {},
        "observed": _state(request.observed),
        "desired": _state(request.desired),
        "input": request.input or {},
        "context": request.context,
    }
    required = {name: _items(found) for name, found in request.required_resources.items()}
    extra = {name: _items(found) for name, found in request.extra_resources.items()} or required
    credentials = {name: {"credentialData": {"data": _text(found)}} for name, found in request.credentials.items()}
    more = {"requiredResources": required, "extraResources": extra, "credentials": credentials}
    data |= {name: value for name, value in more.items() if value}
    copy: Object = _copy(data) if copied else data
    return copy


def _state(state: State) -> Object:
    found: Object = {}
    if composite := _resource(state.composite):
        found["composite"] = composite
    if state.resources:
        found["resources"] = {name: _resource(each) for name, each in state.resources.items()}
    return found


def _resource(resource: Resource) -> Object:
    found: Object = {}
    if resource.resource:
        found["resource"] = resource.resource
    if resource.connection_details:
        found["connectionDetails"] = _text(resource.connection_details)
    if resource.ready is not Ready.UNSPECIFIED:
        found["ready"] = f"READY_{resource.ready.name}"
    return found


def _items(found: Sequence[Resource]) -> Object:
    return {"items": [_resource(each) for each in found]} if found else {}


def _text(details: Mapping[str, bytes]) -> dict[str, str]:
    return {key: base64.b64encode(value).decode() for key, value in details.items()}


def _copy(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copy(member) for key, member in value.items()}
    return [_copy(item) for item in value] if type(value) is list else value
