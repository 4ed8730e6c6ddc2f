"""What is refused when a CRD is created, schema by schema."""

from __future__ import annotations

from typing import Any

import pytest

from planform.apimachinery.structural import field_path, structural_errors

Json = dict[str, Any]
TEXT: Json = {"type": "string"}


def of(x: Json, **more: Any) -> Json:
    return {"type": "object", "properties": {"x": x}, **more}


def complaints(schema: Json) -> list[str]:
    return [str(error) for error in structural_errors(schema, "s")]


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(of(TEXT), id="plain"),
        pytest.param(
            of({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
            id="the int-or-string pattern may have types",
        ),
        pytest.param(
            of(
                {
                    "x-kubernetes-int-or-string": True,
                    "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"pattern": "^a"}],
                }
            ),
            id="the int-or-string pattern inside allOf",
        ),
        pytest.param(of({"x-kubernetes-preserve-unknown-fields": True}), id="anything"),
        pytest.param(of({"type": "object", "properties": {"a": TEXT}, "additionalProperties": True}), id="open object"),
        pytest.param(
            {"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": TEXT}}}},
            id="metadata.name",
        ),
        pytest.param(
            of(
                {
                    "type": "object",
                    "properties": {"a": TEXT, "b": TEXT},
                    "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
                }
            ),
            id="junctors about described fields",
        ),
        pytest.param(
            of(
                {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name", "proto"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": TEXT, "proto": {**TEXT, "default": "TCP"}},
                    },
                }
            ),
            id="map list",
        ),
        pytest.param(of({**TEXT, "default": "a", "enum": ["a"]}), id="valid default"),
        pytest.param(of({**TEXT, "x-kubernetes-validations": [{"rule": "self != ''"}]}), id="rule"),
    ],
)
def test_a_good_schema_is_accepted(schema: Json) -> None:
    assert complaints(schema) == []


@pytest.mark.parametrize(
    ("schema", "errors"),
    [
        pytest.param({"type": "string"}, ['s.type: Invalid value: "string": must be object at the root'], id="root"),
        pytest.param({}, ["s.type: Required value: must not be empty at the root"], id="root without type"),
        pytest.param(
            of({}), ["s.properties[x].type: Required value: must not be empty for specified object fields"], id="field"
        ),
        pytest.param(
            of({"type": "array", "items": {}}),
            ["s.properties[x].items.type: Required value: must not be empty for specified array items"],
            id="items without type",
        ),
        pytest.param(
            of({"type": "array"}),
            ["s.properties[x].items: Required value: must be specified"],
            id="array without items",
        ),
        pytest.param(
            of({"type": "array", "items": [TEXT]}),
            ["s.properties[x].items: Forbidden: items must be a schema object and not an array"],
            id="list of items",
        ),
        pytest.param(
            of({"$ref": "#/x", **TEXT}), ["s.properties[x].$ref: Forbidden: $ref is not supported"], id="reference"
        ),
        pytest.param(
            of({"type": "text"}),
            [
                's.properties[x].type: Unsupported value: "text": supported values: "array", "boolean", "integer", '
                '"number", "object", "string"'
            ],
            id="unknown type",
        ),
        pytest.param(
            of({**TEXT, "anyOf": [{"type": "string"}]}),
            ["s.properties[x].anyOf[0].type: Forbidden: must be empty to be structural"],
            id="type inside anyOf",
        ),
        pytest.param(
            of({**TEXT, "not": {"default": "a", "nullable": True}}),
            [
                "s.properties[x].not.default: Forbidden: must be undefined to be structural",
                "s.properties[x].not.nullable: Forbidden: must be false to be structural",
            ],
            id="structure inside not",
        ),
        pytest.param(
            of(TEXT, oneOf=[{"properties": {"b": {"minLength": 1}}}]),
            ["s.properties[b]: Required value: because it is defined in s.oneOf[0].properties[b]"],
            id="junctor about an undescribed field",
        ),
        pytest.param(
            {
                "type": "object",
                "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}},
            },
            [
                "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but "
                "metadata is implicitly specified"
            ],
            id="metadata.labels",
        ),
        pytest.param(
            {"type": "object", "properties": {"kind": {"type": "integer"}}},
            ['s.properties[kind].type: Invalid value: "integer": must be string'],
            id="kind",
        ),
        pytest.param(
            {"type": "object", "additionalProperties": TEXT},
            ["s.additionalProperties: Forbidden: must not be used at the root"],
            id="root map",
        ),
        pytest.param(
            of({"type": "object", "properties": {"a": TEXT}, "additionalProperties": TEXT}),
            [
                "s.properties[x].additionalProperties: Forbidden: additionalProperties and properties are mutual "
                "exclusive"
            ],
            id="object and map",
        ),
        pytest.param(
            of({"type": "integer", "default": "one"}),
            [
                's.properties[x].default: Invalid value: "string":  in body must be of type integer: "string"',
            ],
            id="default of a wrong type",
        ),
        pytest.param(
            of({"type": "object", "properties": {"a": TEXT}, "default": {"b": 1}}),
            ['s.properties[x].default: Invalid value: {"b":1}: must not have unknown fields'],
            id="default with unknown fields",
        ),
        pytest.param(
            of({"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}),
            [
                "s.properties[x].x-kubernetes-list-map-keys: Required value: must not be empty if "
                "x-kubernetes-list-type is map"
            ],
            id="map list without keys",
        ),
        pytest.param(
            of(
                {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "properties": {"name": TEXT}},
                }
            ),
            [
                "s.properties[x].items.properties[name].default: Required value: this property is in "
                "x-kubernetes-list-map-keys, so it must have a default or be a required property"
            ],
            id="key neither required nor defaulted",
        ),
        pytest.param(
            of({"type": "array", "items": TEXT, "x-kubernetes-list-map-keys": ["name"]}),
            [
                "s.properties[x].x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is "
                "non-empty"
            ],
            id="keys without map list",
        ),
        pytest.param(
            of({"type": "object", "x-kubernetes-list-type": "set"}),
            ['s.properties[x].type: Invalid value: "object": must be array if x-kubernetes-list-type is specified'],
            id="list type on an object",
        ),
        pytest.param(
            of({"type": "array", "items": TEXT, "uniqueItems": True}),
            [
                "s.properties[x].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime "
                "complexity becomes quadratic"
            ],
            id="uniqueItems",
        ),
        pytest.param(
            of({"type": "object", "x-kubernetes-embedded-resource": True}),
            [
                "s.properties[x].properties: Required value: must not be empty if x-kubernetes-embedded-resource is "
                "true without x-kubernetes-preserve-unknown-fields"
            ],
            id="embedded resource without properties",
        ),
        pytest.param(
            of({**TEXT, "x-kubernetes-validations": [{"rule": " "}]}),
            ["s.properties[x].x-kubernetes-validations[0].rule: Required value: rule is not specified"],
            id="empty rule",
        ),
        pytest.param(
            of({**TEXT, "x-kubernetes-validations": [{"rule": "true", "reason": "Odd"}]}),
            [
                's.properties[x].x-kubernetes-validations[0].reason: Unsupported value: "Odd": supported values: '
                '"FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"'
            ],
            id="reason",
        ),
        pytest.param(
            of(TEXT, **{"x-kubernetes-validations": [{"rule": "true", "fieldPath": ".y"}]}),
            ['s.x-kubernetes-validations[0].fieldPath: Invalid value: ".y": must be a valid path'],
            id="fieldPath",
        ),
        pytest.param(
            of(TEXT, nullable=True), ["s.nullable: Forbidden: nullable cannot be true at the root"], id="nullable"
        ),
    ],
)
def test_a_bad_schema_is_refused_and_the_place_is_named(schema: Json, errors: list[str]) -> None:
    assert complaints(schema) == errors


def test_a_pattern_that_re2_cannot_run_is_refused() -> None:
    (error,) = complaints(of({**TEXT, "pattern": "(?=a)"}))
    assert error.startswith('s.properties[x].pattern: Invalid value: "(?=a)": must be a valid regular expression, but')


def test_a_default_is_judged_before_the_defaults_inside_of_it() -> None:
    inner = {"type": "object", "required": ["a"], "properties": {"a": {**TEXT, "default": "x"}}, "default": {}}
    assert complaints(of(inner)) == ["s.properties[x].default.a: Required value"]


def test_all_faults_are_reported_at_once() -> None:
    schema = of({"type": "object", "properties": {"a": {}, "b": {"type": "array"}}})
    assert [error.field for error in structural_errors(schema, "s")] == [
        "s.properties[x].properties[a].type",
        "s.properties[x].properties[b].items",
    ]


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        (".x", ".x"),
        ("['x']", ".x"),
        (".m.a", ".m[a]"),
        (".m['a.b']", ".m[a.b]"),
        ("x", None),
        (".no", None),
        (".x.y", None),
    ],
)
def test_a_field_path_is_followed_through_the_schema(text: str, rendered: str | None) -> None:
    schema = {"type": "object", "properties": {"x": TEXT, "m": {"type": "object", "additionalProperties": TEXT}}}
    assert field_path(schema, text) == rendered


def test_a_schema_deeper_than_anybody_needs_is_refused() -> None:
    schema: Json = {"type": "string"}
    for _ in range(400):
        schema = {"type": "object", "properties": {"x": schema}}
    assert complaints(schema) == ["s: Forbidden: schema must not be nested deeper than 100 levels"]
    for _ in range(320):
        schema = schema["properties"]["x"]
    assert complaints(schema) == []
