"""The functions that Helm adds to sprig's and that templates elsewhere have come to expect.

`lookup` is not among them: a template sees the data that it is given and nothing else.
"""

from __future__ import annotations

from typing import Any, Final

from planform.gotemplate.errors import CallFailed
from planform.gotemplate.functions import Library
from planform.gotemplate.gojson import decode
from planform.gotemplate.goyaml import dump_yaml, load_yaml
from planform.gotemplate.runtime import State
from planform.gotemplate.values import Value

helm: Final = Library()


@helm.add("func(string, interface {}) (string, error)", stateful=True)
def include(state: State, name: str, data: Value) -> str:
    """A named template as a string, so that it can be piped on."""
    return state.renderer.include(state, name, data)


@helm.add("func(string, interface {}) (string, error)", stateful=True)
def tpl(state: State, text: str, data: Value) -> str:
    """A string as a template."""
    return state.renderer.tpl(state, text, data)


@helm.add("func(string, interface {}) (interface {}, error)")
def required(message: str, value: Value) -> Value:
    if value is None or (isinstance(value, str) and not value):
        raise CallFailed(message)
    return value


@helm.add("func(interface {}) string", "toYaml", stateful=True)
def to_yaml(state: State, value: Value) -> str:
    try:
        return must_to_yaml(state, value)
    except CallFailed:
        return ""


@helm.add("func(interface {}) (string, error)", "mustToYaml", stateful=True)
def must_to_yaml(state: State, value: Value) -> str:
    """YAML without a line break at its end."""
    state.weigh(value)
    text = dump_yaml(value, state.meter()).removesuffix("\n")
    state.reserve_text(len(text))
    return text


def _loaded(state: State, text: str, kind: type, failure: Any) -> Any:
    state.reserve_text(len(text) * 8)  # reading YAML is slow
    try:
        value = load_yaml(text)
    except CallFailed as error:
        return failure(f"error converting YAML to JSON: {error}")
    if value is None:
        return kind()
    if not isinstance(value, kind):
        wanted = "map[string]interface {}" if kind is dict else "[]interface {}"
        problem = f"json: cannot unmarshal {_json_kind(value)} into Go value of type {wanted}"
        return failure(f"error unmarshaling JSON: while decoding JSON: {problem}")
    return value


def _json_kind(value: Value) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


@helm.add("func(string) map[string]interface {}", "fromYaml", stateful=True)
def from_yaml(state: State, text: str) -> dict[str, Any]:
    """A mapping; what is wrong with the text is its only entry, `Error`."""
    loaded: dict[str, Any] = _loaded(state, text, dict, lambda reason: {"Error": reason})
    return loaded


@helm.add("func(string) []interface {}", "fromYamlArray", stateful=True)
def from_yaml_array(state: State, text: str) -> list[Any]:
    loaded: list[Any] = _loaded(state, text, list, lambda reason: [reason])
    return loaded


@helm.add("func(string) []interface {}", "fromJsonArray")
def from_json_array(text: str) -> list[Any]:
    try:
        value = decode(text)
    except CallFailed as error:
        return [str(error)]
    return (
        value
        if isinstance(value, list)
        else [f"json: cannot unmarshal {_json_kind(value)} into Go value of type []interface {{}}"]
    )
