"""Structural schemas: one table for each thing that admission does, in the wording that clients see."""

from __future__ import annotations

from typing import Any

import pytest

from planform.apimachinery.schema import InvalidSchema, compile_schema

Json = dict[str, Any]
TEXT: Json = {"type": "string"}
NUMBER: Json = {"type": "number"}
INTEGER: Json = {"type": "integer"}


def spec(**properties: Json) -> Json:
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}


def complaints(schema: Json, value: Any, **options: Any) -> list[str]:
    """What admitting `spec.x: value` complains about."""
    found = compile_schema(spec(x=schema), root=True).admit({"spec": {"x": value}}, **options)
    return [str(error) for error in found.errors]


def listed(*items: Any, **more: Any) -> Json:
    return {"type": "array", "items": {"type": "string"}, **more}


@pytest.mark.parametrize(
    ("schema", "value", "errors"),
    [
        pytest.param(
            INTEGER,
            "a",
            ['spec.x: Invalid value: "string": spec.x in body must be of type integer: "string"'],
            id="string for integer",
        ),
        pytest.param(
            INTEGER,
            1.5,
            [
                'spec.x: Invalid value: "number": spec.x in body must be of type integer: "number"',
                '<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.x',
            ],
            id="fraction for integer",
        ),
        pytest.param(
            INTEGER,
            True,
            ['spec.x: Invalid value: "boolean": spec.x in body must be of type integer: "boolean"'],
            id="a boolean is not an integer",
        ),
        pytest.param(
            {"type": "integer", "format": "int32"},
            1.5,
            [
                'spec.x: Invalid value: "float64": spec.x in body must be of type int32: "float64"',
                '<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.x',
            ],
            id="with a format the format is named",
        ),
        pytest.param(
            {"type": "integer", "format": "int32"},
            2**31,
            ['<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.x'],
            id="int32 range",
        ),
        pytest.param(
            INTEGER,
            2**63,
            [
                'spec.x: Invalid value: "number": spec.x in body must be of type integer: "number"',
                '<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.x',
            ],
            id="int64 range",
        ),
        pytest.param(
            {"x-kubernetes-int-or-string": True},
            1.5,
            ['spec.x: Invalid value: "number": spec.x in body must be of type integer,string: "number"'],
            id="fraction for int-or-string",
        ),
        pytest.param(
            {"type": "boolean"},
            1,
            ['spec.x: Invalid value: "integer": spec.x in body must be of type boolean: "integer"'],
            id="an integer is not a boolean",
        ),
        pytest.param(
            {"type": "object"},
            [],
            ['spec.x: Invalid value: "array": spec.x in body must be of type object: "array"'],
            id="array for object",
        ),
        pytest.param(
            listed(),
            {},
            ['spec.x: Invalid value: "object": spec.x in body must be of type array: "object"'],
            id="object for array",
        ),
        pytest.param(
            listed(),
            ["a", 1],
            ['spec.x[1]: Invalid value: "integer": spec.x[1] in body must be of type string: "integer"'],
            id="wrong item",
        ),
        pytest.param(
            listed(),
            ["a", None],
            ['spec.x[1]: Invalid value: "null": spec.x[1] in body must be of type string: "null"'],
            id="null item",
        ),
        pytest.param(
            {"type": "string", "format": "date-time"},
            3,
            ['spec.x: Invalid value: "int64": spec.x in body must be of type date-time: "int64"'],
            id="integer for a formatted string",
        ),
        pytest.param(
            {"type": "string", "format": "date-time"},
            "soon",
            ['spec.x: Invalid value: "soon": spec.x in body must be of type date-time: "soon"'],
            id="bad date-time",
        ),
        pytest.param({"type": "string", "format": "no-such-format"}, "x", [], id="unknown formats are ignored"),
        pytest.param(
            {"type": "string", "enum": ["red", "blue"]},
            "pink",
            ['spec.x: Unsupported value: "pink": supported values: "red", "blue"'],
            id="enum",
        ),
        pytest.param(
            {"type": "string", "enum": ["red"]},
            1,
            [
                'spec.x: Invalid value: "integer": spec.x in body must be of type string: "integer"',
                'spec.x: Unsupported value: 1: supported values: "red"',
            ],
            id="enum of a wrong type says both",
        ),
        pytest.param(
            {"type": "integer", "enum": [1, 2]},
            3,
            ['spec.x: Unsupported value: 3: supported values: "1", "2"'],
            id="enum of numbers",
        ),
        pytest.param(
            {"x-kubernetes-preserve-unknown-fields": True, "enum": [1, {"a": 1}]},
            True,
            ['spec.x: Unsupported value: true: supported values: "1", "{\\"a\\":1}"'],
            id="true is not 1 in an enum",
        ),
        pytest.param(
            {"type": "string", "maxLength": 2},
            "abc",
            ["spec.x: Too long: may not be more than 2 bytes"],
            id="maxLength",
        ),
        pytest.param(
            {"type": "string", "maxLength": 1},
            "ab",
            ["spec.x: Too long: may not be more than 1 byte"],
            id="maxLength 1",
        ),
        pytest.param({"type": "string", "maxLength": 2}, "äö", [], id="lengths count code points"),
        pytest.param(
            {"type": "string", "minLength": 3},
            "ab",
            ['spec.x: Invalid value: "ab": spec.x in body should be at least 3 chars long'],
            id="minLength",
        ),
        pytest.param(
            {"type": "string", "pattern": "^[a-z]+$"},
            "A1",
            ["spec.x: Invalid value: \"A1\": spec.x in body should match '^[a-z]+$'"],
            id="pattern",
        ),
        pytest.param({"type": "string", "pattern": "b"}, "abc", [], id="a pattern may match anywhere"),
        pytest.param(
            {"type": "integer", "minimum": 1},
            0,
            ["spec.x: Invalid value: 0: spec.x in body should be greater than or equal to 1"],
            id="minimum",
        ),
        pytest.param(
            {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
            1,
            ["spec.x: Invalid value: 1: spec.x in body should be greater than 1"],
            id="exclusive minimum",
        ),
        pytest.param(
            {"type": "integer", "maximum": 1000000},
            1000001,
            ["spec.x: Invalid value: 1000001: spec.x in body should be less than or equal to 1000000"],
            id="maximum",
        ),
        pytest.param(
            {"type": "number", "maximum": 1.5, "exclusiveMaximum": True},
            1.5,
            ["spec.x: Invalid value: 1.5: spec.x in body should be less than 1.5"],
            id="exclusive maximum",
        ),
        pytest.param(
            {"type": "integer", "multipleOf": 5},
            7,
            ["spec.x: Invalid value: 7: spec.x in body should be a multiple of 5"],
            id="multipleOf",
        ),
        pytest.param(
            listed(minItems=2),
            ["a"],
            ["spec.x: Invalid value: 1: spec.x in body should have at least 2 items"],
            id="minItems",
        ),
        pytest.param(listed(maxItems=1), ["a", "b"], ["spec.x: Too many: 2: must have at most 1 item"], id="maxItems"),
        pytest.param(
            listed(uniqueItems=True),
            ["a", "a"],
            ['spec.x: Invalid value: "": spec.x in body shouldn\'t contain duplicates'],
            id="uniqueItems",
        ),
        pytest.param(
            {"type": "object", "additionalProperties": TEXT, "minProperties": 2},
            {"a": "1"},
            ["spec.x: Invalid value: 1: spec.x in body should have at least 2 properties"],
            id="minProperties",
        ),
        pytest.param(
            {"type": "object", "additionalProperties": TEXT, "maxProperties": 1},
            {"a": "1", "b": "2"},
            ["spec.x: Too many: 2: must have at most 1 item"],
            id="maxProperties",
        ),
        pytest.param(
            {"type": "object", "required": ["a", "b"], "properties": {"a": TEXT, "b": TEXT}},
            {"b": "1"},
            ["spec.x.a: Required value"],
            id="required",
        ),
        pytest.param(
            {"type": "object", "additionalProperties": TEXT},
            {"k": 1},
            ['spec.x.k: Invalid value: "integer": spec.x.k in body must be of type string: "integer"'],
            id="values of maps",
        ),
        pytest.param(
            listed(**{"x-kubernetes-list-type": "set"}),
            ["a", "a", "b", "a"],
            ['spec.x[1]: Duplicate value: "a"'],
            id="a set reports each value once",
        ),
        pytest.param(
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {"name": TEXT}},
            },
            [{"name": "a"}, {"name": "a"}],
            ['spec.x[1]: Duplicate value: {"name":"a"}'],
            id="map list",
        ),
        pytest.param(
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["port", "proto"],
                "items": {"type": "object", "properties": {"port": INTEGER, "proto": {**TEXT, "default": "TCP"}}},
            },
            [{"port": 1}, {"port": 1, "proto": "TCP"}, {"port": 1, "proto": "UDP"}],
            ['spec.x[1]: Duplicate value: {"port":1,"proto":"TCP"}'],
            id="keys of map lists are defaulted first",
        ),
        pytest.param(
            {"type": "object", "additionalProperties": listed(**{"x-kubernetes-list-type": "set"})},
            {"k": ["a", "a"]},
            ['spec.x[k][1]: Duplicate value: "a"'],
            id="duplicates below a map key",
        ),
        pytest.param(
            {"type": "integer", "anyOf": [{"minimum": 10}, {"maximum": 1}]},
            5,
            [
                '<nil>: Invalid value: "": "spec.x" must validate at least one schema (anyOf)',
                "spec.x: Invalid value: 5: spec.x in body should be greater than or equal to 10",
            ],
            id="anyOf",
        ),
        pytest.param(
            {"type": "integer", "oneOf": [{"minimum": 1}, {"maximum": 9}]},
            5,
            [
                '<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). '
                "Found 2 valid alternatives"
            ],
            id="oneOf with two",
        ),
        pytest.param(
            {
                "type": "object",
                "properties": {"a": TEXT, "b": TEXT},
                "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
            },
            {},
            [
                '<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found none valid',
                "spec.x.a: Required value",
            ],
            id="oneOf with none",
        ),
        pytest.param(
            {"type": "integer", "allOf": [{"minimum": 5}, {"maximum": 9}]},
            10,
            [
                "spec.x: Invalid value: 10: spec.x in body should be less than or equal to 9",
                '<nil>: Invalid value: "": "spec.x" must validate all the schemas (allOf)',
            ],
            id="allOf",
        ),
        pytest.param(
            {"type": "string", "not": {"enum": ["root"]}},
            "root",
            ['<nil>: Invalid value: "": "spec.x" must not validate the schema (not)'],
            id="not",
        ),
        pytest.param(
            {
                "type": "object",
                "properties": {"a": {**INTEGER, "default": 1}, "b": TEXT},
                "not": {"properties": {"a": {"maximum": 0}}},
            },
            {},
            [],
            id="junctors see defaults",
        ),
        pytest.param(
            {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
            {},
            ["spec.x.apiVersion: Required value", "spec.x.kind: Required value"],
            id="embedded, empty",
        ),
        pytest.param(
            {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
            {"apiVersion": "a/b/c", "kind": "K", "metadata": {"labels": {"a": 1}}},
            [
                'spec.x.metadata.labels.a: Invalid value: "integer": spec.x.metadata.labels.a in body must be of '
                'type string: "integer"',
                'spec.x.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c',
            ],
            id="embedded metadata is validated",
        ),
    ],
)
def test_values_are_judged_in_the_words_of_kubernetes(schema: Json, value: Any, errors: list[str]) -> None:
    assert complaints(schema, value) == errors


@pytest.mark.parametrize(
    ("schema", "before", "after", "unknown"),
    [
        pytest.param(
            spec(a=TEXT),
            {"spec": {"a": "1", "b": 2}, "zork": {"x": 1}},
            {"spec": {"a": "1"}},
            ["spec.b", "zork"],
            id="unknown fields at every level",
        ),
        pytest.param(
            spec(plain={"type": "array", "items": {"type": "object", "properties": {"a": TEXT}}}),
            {"spec": {"plain": [{"a": "1", "b": 2}]}},
            {"spec": {"plain": [{"a": "1"}]}},
            ["spec.plain[0].b"],
            id="inside list items",
        ),
        pytest.param(
            spec(m={"type": "object", "additionalProperties": {"type": "object", "properties": {"a": TEXT}}}),
            {"spec": {"m": {"k": {"a": "1", "b": 2}}}},
            {"spec": {"m": {"k": {"a": "1"}}}},
            ["spec.m.k.b"],
            id="inside maps",
        ),
        pytest.param(
            spec(
                any={
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                    "properties": {"known": {"type": "object", "properties": {"a": TEXT}}},
                }
            ),
            {"spec": {"any": {"b": {"c": None}, "known": {"a": "1", "d": 2}}}},
            {"spec": {"any": {"b": {"c": None}, "known": {"a": "1"}}}},
            ["spec.any.known.d"],
            id="kept under preserve-unknown-fields, not below a described field",
        ),
        pytest.param(
            spec(e={"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": TEXT}}),
            {"spec": {"e": {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n", "foo": 1}, "bar": 1}}},
            {"spec": {"e": {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n"}}}},
            ["spec.e.bar", "spec.e.metadata.foo"],
            id="embedded metadata is pruned",
        ),
        pytest.param(
            spec(a=TEXT),
            {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n", "odd": 1}, "spec": {}},
            {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n", "odd": 1}, "spec": {}},
            [],
            id="apiVersion, kind and metadata of the root are left alone",
        ),
        pytest.param(
            spec(m={"type": "object", "properties": {"a": TEXT}, "additionalProperties": True}),
            {"spec": {"m": {"a": "1", "b": 2, "c": {"d": 1}}}},
            {"spec": {"m": {"a": "1", "b": 2, "c": {}}}},
            ["spec.m.c.d"],
            id="additionalProperties true describes no inner fields",
        ),
    ],
)
def test_unknown_fields_are_pruned_and_named(schema: Json, before: Json, after: Json, unknown: list[str]) -> None:
    compiled = compile_schema(schema, root=True)
    found = compiled.admit(before)
    assert (before, found.unknown, found.errors) == (after, unknown, [])


def test_an_object_where_none_belongs_is_emptied_and_refused() -> None:
    obj: Json = {"spec": {"x": {"a": 1}, "l": [{"b": 2}]}}
    found = compile_schema(spec(x=TEXT, l={"type": "array", "items": TEXT}), root=True).admit(obj)
    assert obj == {"spec": {"x": {}, "l": [{}]}}
    assert found.unknown == ["spec.l[0].b", "spec.x.a"]
    assert [error.field for error in found.errors] == ["spec.x", "spec.l[0]"]


def test_prune_alone_names_the_same_fields_and_leaves_the_rest() -> None:
    obj = {"metadata": {"x": 1}, "spec": {"l": [{"a": 1, "b": 2}], "zork": 1}}
    schema = compile_schema(
        spec(l={"type": "array", "items": {"type": "object", "properties": {"a": TEXT}}}), root=True
    )
    assert schema.prune(obj) == ["spec.l[0].b", "spec.zork"]
    assert obj == {"metadata": {"x": 1}, "spec": {"l": [{"a": 1}]}}


def test_unknown_fields_are_dropped_silently_when_nobody_asks_for_them() -> None:
    obj: Json = {"spec": {"b": 1}}
    assert compile_schema(spec(a=TEXT), root=True).admit(obj, collect_unknown=False).unknown == []
    assert obj == {"spec": {}}


NESTED = {"type": "object", "properties": {"size": {**INTEGER, "default": 3}}}


@pytest.mark.parametrize(
    ("schema", "before", "after"),
    [
        pytest.param({**TEXT, "default": "d"}, {}, {"x": "d"}, id="absent becomes the default"),
        pytest.param({**TEXT, "default": "d"}, {"x": None}, {"x": "d"}, id="null becomes the default"),
        pytest.param({**TEXT, "default": "d", "nullable": True}, {"x": None}, {"x": None}, id="nullable null stays"),
        pytest.param({**TEXT, "nullable": True}, {"x": None}, {"x": None}, id="nullable null without default stays"),
        pytest.param(TEXT, {"x": None}, {}, id="null without default is dropped"),
        pytest.param(
            {"type": "object", "additionalProperties": TEXT},
            {"x": {"k": None}},
            {"x": {}},
            id="null value of a map is dropped",
        ),
        pytest.param(NESTED, {}, {}, id="no default inside an absent parent"),
        pytest.param(NESTED, {"x": {}}, {"x": {"size": 3}}, id="default inside a present parent"),
        pytest.param({**NESTED, "default": {}}, {}, {"x": {"size": 3}}, id="default inside a defaulted parent"),
        pytest.param(
            {"type": "array", "items": NESTED},
            {"x": [{}, {"size": 1}]},
            {"x": [{"size": 3}, {"size": 1}]},
            id="default inside list items",
        ),
        pytest.param(
            {"type": "object", "additionalProperties": NESTED},
            {"x": {"k": {}}},
            {"x": {"k": {"size": 3}}},
            id="default inside map values",
        ),
        pytest.param({**INTEGER, "default": 0}, {}, {"x": 0}, id="a default may be falsy"),
    ],
)
def test_defaults_and_nulls(schema: Json, before: Json, after: Json) -> None:
    compiled = compile_schema(spec(x=schema), root=True)
    obj: Json = {"spec": before}
    assert compiled.admit(obj).errors == []
    assert obj == {"spec": after}


def test_null_is_an_error_under_apply_unless_a_default_or_nullable_takes_it() -> None:
    message = 'spec.x: Invalid value: "null": spec.x in body must be of type string: "null"'
    assert complaints(TEXT, None, null_errors=True) == [message]
    assert complaints({**TEXT, "nullable": True}, None, null_errors=True) == []
    assert complaints({**TEXT, "default": "d"}, None, null_errors=True) == []


@pytest.mark.parametrize(
    ("schema", "value"),
    [(INTEGER, 1.0), (NUMBER, 1.0), ({"x-kubernetes-int-or-string": True}, 1.0), ({**INTEGER, "format": "int32"}, 1.0)],
)
def test_an_integral_float_is_stored_as_an_integer(schema: Json, value: float) -> None:
    obj = {"spec": {"x": value}}
    assert compile_schema(spec(x=schema), root=True).admit(obj).errors == []
    assert type(obj["spec"]["x"]) is int


@pytest.mark.parametrize("value", [1, "50%"])
def test_int_or_string_takes_both_with_and_without_the_pattern(value: object) -> None:
    pattern: Json = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert complaints(pattern, value) == []
    assert complaints({"x-kubernetes-int-or-string": True, "allOf": [{"anyOf": pattern["anyOf"]}]}, value) == []


def test_default_on_read_says_whether_it_changed_anything() -> None:
    schema = compile_schema(spec(a={**TEXT, "default": "d"}, l={"type": "array", "items": NESTED}, c=TEXT), root=True)
    obj: Json = {"spec": {"l": [{}]}}
    assert schema.has_defaults
    assert schema.default(obj)
    assert obj == {"spec": {"a": "d", "l": [{"size": 3}]}}
    assert not schema.default(obj)


def test_a_schema_without_defaults_says_so() -> None:
    schema = compile_schema(spec(a=TEXT), root=True)
    assert not schema.has_defaults
    assert not schema.default({"spec": {}})


def test_each_object_gets_its_own_copy_of_a_default() -> None:
    schema = compile_schema(spec(x={"type": "array", "items": TEXT, "default": ["a"]}), root=True)
    one: Json = {"spec": {}}
    other: Json = {"spec": {}}
    schema.admit(one)
    one["spec"]["x"].append("b")
    schema.admit(other)
    assert other == {"spec": {"x": ["a"]}}


def test_rules_about_the_name_hold_at_the_root() -> None:
    schema = {
        "type": "object",
        "properties": {"metadata": {"type": "object", "properties": {"name": {**TEXT, "maxLength": 3}}}},
    }
    found = compile_schema(schema, root=True).admit({"metadata": {"name": "abcd", "odd": 1}})
    assert [str(error) for error in found.errors] == ["metadata.name: Too long: may not be more than 3 bytes"]
    assert found.unknown == []


RATCHET = spec(
    a={"type": "integer", "maximum": 5},
    b=TEXT,
    items={
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "properties": {"name": TEXT, "n": {"type": "integer", "maximum": 5}}},
    },
    plain={"type": "array", "items": {"type": "integer", "maximum": 5}},
)


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        pytest.param({"a": 9}, {"a": 9, "b": "x"}, [], id="an old fault does not block another edit"),
        pytest.param({"a": 9}, {"a": 8}, ["spec.a"], id="a changed value is judged"),
        pytest.param({"a": 1}, {"a": True}, ["spec.a"], id="true is a change from 1"),
        pytest.param(
            {"items": [{"name": "p", "n": 9}]},
            {"items": [{"name": "q", "n": 1}, {"name": "p", "n": 9}]},
            [],
            id="items of map lists are found by key",
        ),
        pytest.param({"plain": [9]}, {"plain": [9, 1]}, ["spec.plain[0]"], id="items of other lists cannot be matched"),
        pytest.param({"plain": [9]}, {"plain": [9], "b": "x"}, [], id="a whole list that stayed the same"),
    ],
)
def test_an_update_is_not_blamed_for_what_it_did_not_change(old: Json, new: Json, fields: list[str]) -> None:
    found = compile_schema(RATCHET, root=True).admit({"spec": new}, old={"spec": old})
    assert [error.field for error in found.errors] == fields


def test_a_reference_may_have_siblings() -> None:
    leaf: Json = {"type": "object", "properties": {"n": {**INTEGER, "default": 1}}}
    schema = compile_schema(
        spec(x={"allOf": [{"$ref": "#/leaf"}], "default": {}, "description": "d"}, y={"$ref": "#/leaf"}),
        resolve={"#/leaf": leaf}.__getitem__,
    )
    obj: Json = {"spec": {}}
    schema.admit(obj)
    assert obj == {"spec": {"x": {"n": 1}}}


def test_a_recursive_schema_is_walked_as_deep_as_the_object_goes() -> None:
    tree: Json = {
        "type": "object",
        "properties": {"n": {**INTEGER, "default": 1}, "kids": {"type": "array", "items": {"$ref": "t"}}},
    }
    schema = compile_schema({"$ref": "t"}, resolve=lambda reference: tree)
    obj: Json = {"kids": [{"kids": [{"n": "x", "zork": 1}]}]}
    found = schema.admit(obj)
    assert [error.field for error in found.errors] == ["kids[0].kids[0].n"]
    assert found.unknown == ["kids[0].kids[0].zork"]
    assert obj == {"n": 1, "kids": [{"n": 1, "kids": [{"n": "x"}]}]}
    assert schema.has_defaults


def test_an_object_that_is_nested_too_deeply_is_refused() -> None:
    schema = compile_schema(
        {"$ref": "t"}, resolve=lambda reference: {"type": "object", "properties": {"x": {"$ref": "t"}}}
    )
    obj: Json = {}
    for _ in range(2000):
        obj = {"x": obj}
    assert [error.detail for error in schema.admit(obj).errors] == ['Invalid value: "": object is nested too deeply']


def test_a_reference_that_nobody_resolves_is_refused() -> None:
    with pytest.raises(InvalidSchema, match="#/x"):
        compile_schema({"$ref": "#/x"})


def test_a_pattern_that_re2_cannot_run_is_refused() -> None:
    with pytest.raises(InvalidSchema, match="regular expression"):
        compile_schema({"type": "string", "pattern": "(?=a)b"})


def test_patterns_take_linear_time() -> None:
    assert complaints({"type": "string", "pattern": "^(a+)+$"}, "a" * 5000 + "b") != []
