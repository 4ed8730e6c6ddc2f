"""Requests and responses as JSON, spelled as protobuf's JSON mapping spells them; either spelling of a name is read.

For `planform function test` and for recorded runs. A partial request is fine: what is missing is empty.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from planform.errors import UsageError
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
    State,
)


def request_from_json(document: Any) -> FunctionRequest:
    """A request; raises UsageError with the path of what is wrong."""
    whole = _Fields(document, "")
    meta = whole.part("meta")
    return FunctionRequest(
        observed=_state(whole.part("observed")),
        desired=_state(whole.part("desired")),
        input=whole.object("input"),
        context=whole.object("context") or {},
        credentials={name: _credentials(part) for name, part in whole.parts("credentials").items()},
        required_resources=_required(whole, "requiredResources"),
        extra_resources=_required(whole, "extraResources"),
        required_schemas={name: part.object("openapiV3") for name, part in whole.parts("requiredSchemas").items()},
        tag=meta.text("tag"),
    )


def request_to_json(request: FunctionRequest) -> Object:
    """A request without what is empty; credentials are left out, which nobody should write down."""
    document: Object = {
        "meta": {"tag": request.tag} if request.tag else {},
        "observed": _state_json(request.observed),
        "desired": _state_json(request.desired),
        "input": request.input,
        "context": request.context,
        "requiredResources": _required_json(request.required_resources),
        "extraResources": _required_json(request.extra_resources),
        "requiredSchemas": {name: {"openapiV3": schema} for name, schema in request.required_schemas.items()},
    }
    return {name: value for name, value in document.items() if value}


def response_to_json(response: FunctionResponse) -> Object:
    """A response without what is empty."""
    meta: Object = {"tag": response.tag}
    if response.ttl is not None:
        meta["ttl"] = f"{response.ttl:g}s"
    document: Object = {
        "meta": {name: value for name, value in meta.items() if value},
        "desired": _state_json(response.desired),
        "results": [_result_json(result) for result in response.results],
        "context": response.context,
        "requirements": _requirements_json(response.requirements),
        "conditions": [_condition_json(condition) for condition in response.conditions],
        "output": response.output,
    }
    return {name: value for name, value in document.items() if value}


class _Fields:
    """An object of the document, read by either spelling of its names."""

    def __init__(self, value: Any, path: str) -> None:
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise UsageError(f"{path or 'the request'} must be an object, not {type(value).__name__}")
        self._value = value
        self._path = path

    def get(self, name: str) -> Any:
        snake = re.sub(r"([A-Z0-9]+)", r"_\1", name).lower()
        return self._value.get(name, self._value.get(snake))

    def part(self, name: str) -> _Fields:
        return _Fields(self.get(name), self._at(name))

    def parts(self, name: str) -> dict[str, _Fields]:
        whole = self.part(name)
        return {str(key): _Fields(value, f"{whole._path}.{key}") for key, value in whole._value.items()}

    def items(self, name: str) -> list[_Fields]:
        value = self.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise UsageError(f"{self._at(name)} must be a list")
        return [_Fields(item, f"{self._at(name)}[{index}]") for index, item in enumerate(value)]

    def object(self, name: str) -> Object | None:
        value = self.get(name)
        return dict(self.part(name)._value) if value is not None else None

    def text(self, name: str) -> str:
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise UsageError(f"{self._at(name)} must be a text")
        return value or ""

    def bytes(self, name: str) -> dict[str, bytes]:
        found = {}
        for key, value in self.part(name)._value.items():
            try:
                found[str(key)] = base64.b64decode(str(value), validate=True)
            except binascii.Error as error:
                raise UsageError(f"{self._at(name)}.{key} must be base64: {error}") from error
        return found

    def ready(self) -> Ready:
        value = self.get("ready")
        if value is None:
            return Ready.UNSPECIFIED
        try:
            return Ready[str(value).removeprefix("READY_")] if isinstance(value, str) else Ready(value)
        except (KeyError, ValueError) as error:
            raise UsageError(f"{self._at('ready')}: there is no readiness {value!r}") from error

    def _at(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name


def _state(fields: _Fields) -> State:
    return State(
        _resource(fields.part("composite")), {name: _resource(part) for name, part in fields.parts("resources").items()}
    )


def _resource(fields: _Fields) -> Resource:
    return Resource(fields.object("resource") or {}, fields.bytes("connectionDetails"), fields.ready())


def _required(whole: _Fields, name: str) -> dict[str, list[Resource]]:
    return {key: [_resource(item) for item in part.items("items")] for key, part in whole.parts(name).items()}


def _credentials(fields: _Fields) -> Mapping[str, bytes]:
    return fields.part("credentialData").bytes("data")


def _required_json(required: Mapping[str, list[Resource]]) -> Object:
    return {key: {"items": [_resource_json(each) for each in items]} for key, items in required.items()}


def _state_json(state: State) -> Object:
    document: Object = {}
    composite = _resource_json(state.composite)
    if composite:
        document["composite"] = composite
    if state.resources:
        document["resources"] = {name: _resource_json(one) for name, one in sorted(state.resources.items())}
    return document


def _resource_json(resource: Resource) -> Object:
    document: Object = {}
    if resource.resource:
        document["resource"] = resource.resource
    if resource.connection_details:
        document["connectionDetails"] = {
            key: base64.b64encode(value).decode() for key, value in resource.connection_details.items()
        }
    if resource.ready is not Ready.UNSPECIFIED:
        document["ready"] = f"READY_{resource.ready.name}"
    return document


def _result_json(result: Result) -> Object:
    document: Object = {"severity": f"SEVERITY_{result.severity.name}", "message": result.message}
    if result.reason:
        document["reason"] = result.reason
    if result.target:
        document["target"] = f"TARGET_{result.target.name}"
    return document


def _condition_json(condition: Condition) -> Object:
    document: Object = {
        "type": condition.type,
        "status": f"STATUS_CONDITION_{condition.status.name}",
        "reason": condition.reason,
    }
    if condition.message:
        document["message"] = condition.message
    if condition.target:
        document["target"] = f"TARGET_{condition.target.name}"
    return document


def _requirements_json(requirements: Requirements) -> Object:
    document: Object = {
        "resources": {name: _selector_json(one) for name, one in requirements.resources.items()},
        "extraResources": {name: _selector_json(one) for name, one in requirements.extra_resources.items()},
        "schemas": {
            name: {"apiVersion": one.api_version, "kind": one.kind} for name, one in requirements.schemas.items()
        },
        "watchResources": [
            {"apiVersion": one.api_version, "kind": one.kind, "name": one.name} for one in requirements.watch_resources
        ],
    }
    return {name: value for name, value in document.items() if value}


def _selector_json(selector: ResourceSelector) -> Object:
    document: Object = {"apiVersion": selector.api_version, "kind": selector.kind}
    if selector.match_name:
        document["matchName"] = selector.match_name
    elif selector.match_labels is not None:
        document["matchLabels"] = {"labels": dict(selector.match_labels)}
    if selector.namespace is not None:
        document["namespace"] = selector.namespace
    return document
