"""The functions that templates get on top of Go's and sprig's.

Those that look something up take the request (`.`) as templates know it; without it they look in the request that is
being rendered, as the design of composition functions writes it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Final

from planform.builtin.environment import EXTRA_RESOURCES_KEY
from planform.builtin.go_templating.conditions import ResourceCondition
from planform.builtin.go_templating.yaml_text import from_yaml, to_yaml
from planform.builtin.seeds import moment
from planform.functions.values import Object
from planform.gotemplate import Function, FunctionError, NilList, NilMap
from planform.gotemplate.functions import Library
from planform.gotemplate.runtime import State
from planform.gotemplate.values import Value

NAME_ANNOTATION: Final = "gotemplating.fn.crossplane.io/composition-resource-name"
_EXTERNAL_NAME: Final = "crossplane.io/external-name"
_rendered: ContextVar[Object] = ContextVar("rendered request")

library: Final = Library()
_LOOKUP: Final = "func(...interface {}) interface {}"


@contextmanager
def rendering(data: Object) -> Iterator[None]:
    """While a template is rendered over this data."""
    token = _rendered.set(data)
    try:
        yield
    finally:
        _rendered.reset(token)


def creation_time() -> datetime | None:
    """When the XR that is being rendered for was created; None if nobody says."""
    metadata = _at(_rendered.get({}), "observed", "composite", "resource", "metadata")
    return moment(metadata.get("creationTimestamp"))


@library.add("func(interface {}) interface {}", "getCompositeResource")
def get_composite_resource(request: Value) -> Value:
    return _at(request, "observed", "composite", "resource")


@library.add(_LOOKUP, "getComposedResource")
def get_composed_resource(*arguments: Value) -> Value:
    request, name = _request_and_name("getComposedResource", arguments)
    return _at(request, "observed", "resources", name, "resource")


@library.add(_LOOKUP, "getComposedConnectionDetails")
def get_composed_connection_details(*arguments: Value) -> Value:
    request, name = _request_and_name("getComposedConnectionDetails", arguments)
    return _at(request, "observed", "resources", name, "connectionDetails")


@library.add(_LOOKUP, "getExtraResources")
def get_extra_resources(*arguments: Value) -> Value:
    request, name = _request_and_name("getExtraResources", arguments)
    for source in ("extraResources", "requiredResources"):
        found = _at(request, source, name).get("items")
        if isinstance(found, list):
            return found
    return NilList()


@library.add(_LOOKUP, "getExtraResourcesFromContext")
def get_extra_resources_from_context(*arguments: Value) -> Value:
    """Whichever of the two shapes a step before has left there."""
    request, name = _request_and_name("getExtraResourcesFromContext", arguments)
    left = _at(request, "context", EXTRA_RESOURCES_KEY).get(name)
    if isinstance(left, list):
        return [{"resource": each} for each in left]
    items = left.get("items") if isinstance(left, dict) else None
    return items if isinstance(items, list) else NilList()


@library.add(_LOOKUP, "getCredentialData")
def get_credential_data(*arguments: Value) -> Value:
    request, name = _request_and_name("getCredentialData", arguments)
    found = _at(request, "credentials", name, "credentialData", "data")
    try:
        return found and {key: base64.b64decode(value) for key, value in found.items()}
    except (binascii.Error, TypeError) as error:
        raise FunctionError(f'credential "{name}": {error}') from None


@library.add("func(string, map[string]interface {}) interface {}", "getResourceCondition")
def get_resource_condition(kind: str, resource: Object) -> Value:
    """Of an object, or of an object in its wrapper."""
    inner = resource.get("resource")
    conditions = _at(inner if isinstance(inner, dict) else resource, "status").get("conditions")
    for condition in conditions if isinstance(conditions, list) else []:
        if isinstance(condition, dict) and condition.get("type") == kind:
            return ResourceCondition(condition)
    return ResourceCondition({"type": kind, "status": "Unknown"})


@library.add("func(map[string]interface {}) interface {}", "getExternalName")
def get_external_name(resource: Object) -> Value:
    """The external name of an object, empty if it has none."""
    return _at(resource, "metadata", "annotations").get(_EXTERNAL_NAME, "")


@library.add("func(string) string", "setResourceNameAnnotation")
def set_resource_name_annotation(name: str) -> str:
    return f"{NAME_ANNOTATION}: {name}"


@library.add("func(...string) (string, error)", "randomChoice", stateful=True)
def random_choice(state: State, *choices: str) -> str:
    """One of them: the same one whenever the same template is rendered for the same XR."""
    if not choices:
        raise FunctionError("there is nothing to choose from")
    return state.random.choice(choices)


LOOKUPS: Final[Mapping[str, Function]] = {
    **library,
    "toYaml": Function(to_yaml, "func(interface {}) (string, error)", stateful=True),
    "fromYaml": Function(from_yaml, "func(string) (interface {}, error)", stateful=True),
}


def _request_and_name(function: str, arguments: tuple[Value, ...]) -> tuple[Value, str]:
    match arguments:
        case (str() as name,):
            return _rendered.get(), name
        case (dict() as request, str() as name):
            return request, name
        case _:
            raise FunctionError(f"{function} takes the request and a name: {function} . NAME")


def _at(value: Value, *names: str) -> Any:
    """The map below these names, or a nil map."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else NilMap()
