"""What a declared kind becomes: the schema of its CRD, whole and structural, and equal to what was served before."""

from __future__ import annotations

import hashlib
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import orjson
import pytest
import yaml
from msgspec import UNSET, UnsetType

from planform.api.declarations import Declared, Schema, described, immutable, rule, ruled, schema_of
from planform.api.extensions import crds
from planform.api.objects import Status, TypedObject
from planform.apimachinery.structural import structural_errors

FROZEN = Path(__file__).parents[1] / "golden" / "crds.yaml"


def digest(crd: Schema) -> str:
    return hashlib.sha256(orjson.dumps(crd, option=orjson.OPT_SORT_KEYS)).hexdigest()


@pytest.mark.parametrize(("name", "frozen"), sorted(yaml.safe_load(FROZEN.read_text()).items()))
def test_a_crd_is_byte_for_byte_what_it_was(name: str, frozen: str) -> None:
    [crd] = [each for each in crds() if each["metadata"]["name"] == name]
    assert digest(crd) == frozen, "if the change is meant, tools/public_names.py writes the file again"


class Colour(StrEnum):
    RED = "Red"
    BLUE = "Blue"


class Part(Declared, frozen=True, kw_only=True):
    """A part."""

    SCHEMA: ClassVar = ruled(rule("self.size > 0", "a part has a size"))

    name: Annotated[str, described("Its name.", min_length=1)]
    size: Annotated[int, described("Its size.", format="int32")] | UnsetType = UNSET


@pytest.mark.parametrize(
    ("declared", "schema"),
    [
        pytest.param(str, {"type": "string"}, id="text"),
        pytest.param(int, {"type": "integer", "format": "int64"}, id="whole number"),
        pytest.param(float, {"type": "number"}, id="number"),
        pytest.param(datetime, {"type": "string", "format": "date-time"}, id="time"),
        pytest.param(Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, id="closed set"),
        pytest.param(Colour, {"type": "string", "enum": ["Red", "Blue"]}, id="enumeration"),
        pytest.param(int | str, {"x-kubernetes-int-or-string": True}, id="int or string"),
        pytest.param(Any, {"x-kubernetes-preserve-unknown-fields": True}, id="any value"),
        pytest.param(dict[str, Any], {"type": "object", "x-kubernetes-preserve-unknown-fields": True}, id="any object"),
        pytest.param(dict[str, str], {"type": "object", "additionalProperties": {"type": "string"}}, id="map of texts"),
        pytest.param(
            list[str], {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"}, id="list"
        ),
        pytest.param(
            frozenset[str], {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}, id="set"
        ),
        pytest.param(
            Annotated[dict[str, Any] | None, described("It.", embedded=True, nullable=True)] | UnsetType,
            {
                "type": "object",
                "description": "It.",
                "x-kubernetes-preserve-unknown-fields": True,
                "x-kubernetes-embedded-resource": True,
                "nullable": True,
            },
            id="embedded object",
        ),
        pytest.param(
            Annotated[str, msgspec.Meta(max_length=3, pattern="^a", extra_json_schema={"default": "abc"})],
            {"type": "string", "default": "abc", "maxLength": 3, "pattern": "^a"},
            id="limits of msgspec",
        ),
        pytest.param(
            Annotated[list[int], msgspec.Meta(min_length=1)],
            {
                "type": "array",
                "items": {"type": "integer", "format": "int64"},
                "x-kubernetes-list-type": "atomic",
                "minItems": 1,
            },
            id="length of a list",
        ),
        pytest.param(
            Annotated[list[Part], described("Parts.", by="name", rules=[immutable("parts")])],
            {
                "type": "array",
                "description": "Parts.",
                "items": {
                    "type": "object",
                    "description": "A part.",
                    "properties": {
                        "name": {"type": "string", "description": "Its name.", "minLength": 1},
                        "size": {"type": "integer", "format": "int32", "description": "Its size."},
                    },
                    "required": ["name"],
                    "x-kubernetes-validations": [{"rule": "self.size > 0", "message": "a part has a size"}],
                },
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "parts is immutable"}],
            },
            id="list map",
        ),
    ],
)
def test_a_type_has_its_schema(declared: Any, schema: Schema) -> None:
    assert schema_of(declared) == schema
    assert list(schema_of(declared)) == list(schema)  # in the order in which people read it


def test_what_a_field_says_stands_before_what_its_struct_says() -> None:
    schema = schema_of(Annotated[Part, described("The main part.", rules=[immutable("part")])])
    assert schema["description"] == "The main part."
    assert [each["message"] for each in schema["x-kubernetes-validations"]] == [
        "part is immutable",
        "a part has a size",
    ]


class Widget(TypedObject, frozen=True, kw_only=True):
    """A widget."""

    parts: list[Part] | UnsetType = UNSET
    status: Status | UnsetType = UNSET


def test_a_whole_object_is_structural_and_leaves_metadata_to_the_server() -> None:
    schema = schema_of(Widget)
    assert list(schema["properties"]) == ["apiVersion", "kind", "metadata", "parts", "status"]
    assert schema["properties"]["metadata"] == {"type": "object"}
    assert "required" not in schema
    assert structural_errors(schema, "schema") == []


def test_a_limit_is_the_servers_to_check_and_no_reason_not_to_read_an_object() -> None:
    assert msgspec.convert({"name": ""}, Part).name == ""


class Tree(Declared, frozen=True, kw_only=True):
    """A tree."""

    branches: list[Tree] | UnsetType = UNSET


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        pytest.param(Tree, "Tree contains itself", id="recursion"),
        pytest.param(int | bool, "alternatives", id="union"),
        pytest.param(complex, "no structural schema is known", id="no JSON"),
    ],
)
def test_what_a_structural_schema_cannot_say_is_refused(declared: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        schema_of(declared)
