"""Requests and responses as scripts have them: dicts with the names of protobuf's JSON, read in either spelling."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, TypeVar

from planform.builtin.compiled import Refused
from planform.functions.values import (
    Condition,
    FunctionRequest,
    FunctionResponse,
    Object,
    Ready,
    Requirements,
    Resource,
    ResourceSelector,
    Result,
    SchemaSelector,
    Severity,
    State,
    Status,
    Target,
)
from planform.gotemplate import FunctionError
from planform.gotemplate.gotime import parse_duration

Named = TypeVar("Named", bound=IntEnum)


def request_dict(request: FunctionRequest) -> Object:
    """The whole request. What scripts always look at is always there, so that the first run needs no special care."""
    return {
        "meta": {"tag": request.tag},
        "observed": _state_dict(request.observed),
        "desired": _state_dict(request.desired),
        "input": _whole(request.input or {}),
        "context": _whole(request.context),
        "requiredResources": {
            name: {"items": [_resource_dict(each) for each in found]}
            for name, found in (*request.extra_resources.items(), *request.required_resources.items())
        },
        "credentials": {
            name: {"credentialData": {"data": _encoded(data)}} for name, data in request.credentials.items()
        },
    }


def read_response(answer: Any, response: FunctionResponse) -> None:
    """Put what a script returned into the response, which passes on the rest. Raises Refused with a path."""
    whole = _Fields(answer, "", "meta desired results context requirements conditions output")
    if (desired := whole.get("desired")) is not None:
        response.desired = _state(_Fields(desired, "desired", "composite resources"))
    if (context := whole.get("context")) is not None:
        response.context = _object(context, "context")
    meta = whole.part("meta", "tag ttl")
    response.ttl = _ttl(meta.get("ttl"))
    response.results += [
        Result(
            _named(each.get("severity"), Severity, each.at("severity")),
            each.text("message"),
            each.text("reason"),
            _named(each.get("target", "Composite"), Target, each.at("target")),
        )
        for each in whole.items("results", "severity message reason target")
    ]
    response.conditions += [
        Condition(
            each.text("type"),
            _named(each.get("status", "Unknown"), Status, each.at("status")),
            each.text("reason"),
            each.text("message"),
            _named(each.get("target", "Composite"), Target, each.at("target")),
        )
        for each in whole.items("conditions", "type status reason message target")
    ]
    response.requirements = _requirements(whole.part("requirements", "resources extraResources schemas"))
    if (output := whole.get("output")) is not None:
        response.output = _object(output, "output")


class _Fields:
    """A dict of the answer whose members are known; None counts as absent."""

    def __init__(self, value: Any, path: str, known: str) -> None:
        if not isinstance(value, dict):
            what = path or "what main(req) returns"
            raise Refused(f"{what} must be a dict, not {type(value).__name__}")
        self.path = path
        self._members: Object = {}
        for name, member in value.items():
            spelled = re.sub(r"_([a-z])", lambda match: match[1].upper(), str(name))
            if spelled not in known.split():
                raise Refused(f"{self.at(str(name))}: unknown; there are {', '.join(known.split())}")
            if member is not None:
                self._members[spelled] = member

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def get(self, name: str, default: Any = None) -> Any:
        return self._members.get(name, default)

    def text(self, name: str) -> str:
        value = self.get(name, "")
        if not isinstance(value, str):
            raise Refused(f"{self.at(name)} must be a string")
        return value

    def part(self, name: str, known: str) -> _Fields:
        return _Fields(self.get(name, {}), self.at(name), known)

    def parts(self, name: str, known: str) -> Iterator[tuple[str, _Fields]]:
        for key, value in _object(self.get(name, {}), self.at(name)).items():
            yield key, _Fields(value, f"{self.at(name)}.{key}", known)

    def items(self, name: str, known: str) -> Iterator[_Fields]:
        value = self.get(name, [])
        if not isinstance(value, list):
            raise Refused(f"{self.at(name)} must be a list")
        for index, item in enumerate(value):
            yield _Fields(item, f"{self.at(name)}[{index}]", known)


_RESOURCE: Final = "resource connectionDetails ready"


def _state(fields: _Fields) -> State:
    return State(
        _resource(fields.part("composite", _RESOURCE)),
        {name: _resource(each) for name, each in fields.parts("resources", _RESOURCE)},
    )


def _resource(fields: _Fields) -> Resource:
    details = {}
    for key, value in _object(fields.get("connectionDetails", {}), fields.at("connectionDetails")).items():
        try:
            details[key] = base64.b64decode(value, validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise Refused(f"{fields.at('connectionDetails')}.{key} must be base64 text") from None
    ready = fields.get("ready", Ready.UNSPECIFIED)
    if isinstance(ready, bool):
        ready = str(ready)
    return Resource(
        _object(fields.get("resource", {}), fields.at("resource")), details, _named(ready, Ready, fields.at("ready"))
    )


def _requirements(fields: _Fields) -> Requirements:
    def selectors(name: str) -> dict[str, ResourceSelector]:
        found = fields.parts(name, "apiVersion kind matchName matchLabels namespace")
        return {key: _selector(each) for key, each in found}

    schemas = fields.parts("schemas", "apiVersion kind")
    return Requirements(
        selectors("resources"),
        selectors("extraResources"),
        {key: SchemaSelector(each.text("apiVersion"), each.text("kind")) for key, each in schemas},
    )


def _selector(fields: _Fields) -> ResourceSelector:
    """Labels may be given as the protocol nests them, or plainly."""
    labels = fields.get("matchLabels")
    if isinstance(labels, dict) and isinstance(labels.get("labels"), dict):
        labels = labels["labels"]
    if labels is not None:
        labels = _object(labels, fields.at("matchLabels"))
    return ResourceSelector(
        fields.text("apiVersion"), fields.text("kind"), fields.text("matchName"), labels, fields.get("namespace")
    )


def _named(value: Any, kind: type[Named], path: str) -> Named:
    """A member of an enumeration by its number, its name on the wire or its name as people write it."""
    if isinstance(value, int) and not isinstance(value, bool):
        with_number = {member.value: member for member in kind}
        if value in with_number:
            return with_number[value]
    if isinstance(value, str):
        plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", value).upper()
        plain = re.sub(r"^(READY|SEVERITY|TARGET|STATUS_CONDITION)_", "", plain)
        if plain in kind.__members__:
            return kind[plain]
    raise Refused(f"{path}: {value!r} is none of {', '.join(name.capitalize() for name in kind.__members__)}")


def _ttl(value: Any) -> float | None:
    if value is None:
        return None
    try:
        if isinstance(value, str):
            value = parse_duration(value) / 1e9
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
            return float(value)
    except (FunctionError, ValueError):
        pass
    raise Refused(f"meta.ttl must be a duration such as 1m, or a number of seconds, not {value!r}")


def _object(value: Any, path: str) -> Object:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise Refused(f"{path} must be a dict whose keys are strings")
    found: Object = _whole(value)
    return found


def _state_dict(state: State) -> Object:
    return {
        "composite": _resource_dict(state.composite),
        "resources": {name: _resource_dict(each) for name, each in state.resources.items()},
    }


def _resource_dict(resource: Resource) -> Object:
    found: Object = {"resource": _whole(resource.resource)}
    if resource.connection_details:
        found["connectionDetails"] = _encoded(resource.connection_details)
    if resource.ready is not Ready.UNSPECIFIED:
        found["ready"] = f"READY_{resource.ready.name}"
    return found


def _encoded(details: Mapping[str, bytes]) -> dict[str, str]:
    return {key: base64.b64encode(value).decode() for key, value in details.items()}


def _whole(value: Any) -> Any:
    """A copy in which whole numbers are integers."""
    if isinstance(value, dict):
        return {key: _whole(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value
