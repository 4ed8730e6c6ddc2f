"""The type tree: what a schema says about ownership."""

from __future__ import annotations

from typing import Any

import pytest

from planform.apimachinery.typed import DEDUCED, TypedError, TypeNode, compile_type, type_errors

TEXT = {"type": "string"}


def at(node: TypeNode, *path: str) -> TypeNode:
    for name in path:
        node = node.item if name == "[]" else node.child(name)
    return node


def of(schema: dict[str, Any]) -> TypeNode:
    """The type of a field with this schema."""
    return at(compile_type({"type": "object", "properties": {"x": schema}}), "x")


@pytest.mark.parametrize(
    ("schema", "granular", "associative"),
    [
        pytest.param(TEXT, False, False, id="scalar"),
        pytest.param({"type": "object"}, True, False, id="object"),
        pytest.param({"type": "object", "x-kubernetes-map-type": "granular"}, True, False, id="granular map"),
        pytest.param({"type": "object", "x-kubernetes-map-type": "atomic"}, False, False, id="atomic map"),
        pytest.param({"type": "array", "items": TEXT}, False, False, id="lists are atomic unless they say otherwise"),
        pytest.param({"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"}, False, True, id="set"),
        pytest.param({"type": "array", "x-kubernetes-list-type": "atomic"}, False, False, id="atomic list"),
        pytest.param({"x-kubernetes-int-or-string": True}, False, False, id="int or string"),
        pytest.param(
            {"type": "string", "format": "int-or-string"}, False, False, id="int or string, built-in spelling"
        ),
        pytest.param({"x-kubernetes-preserve-unknown-fields": True}, True, False, id="no type"),
        pytest.param({}, True, False, id="nothing at all"),
        pytest.param(
            {"type": "array", "items": TEXT, "x-kubernetes-patch-strategy": "merge"},
            False,
            True,
            id="older marker: set",
        ),
        pytest.param(
            {
                "type": "array",
                "x-kubernetes-patch-strategy": "merge,retainKeys",
                "x-kubernetes-patch-merge-key": "name",
            },
            False,
            True,
            id="older marker: map list",
        ),
    ],
)
def test_a_schema_says_what_is_descended_into(schema: dict[str, Any], granular: bool, associative: bool) -> None:
    node = of(schema)
    assert (node.granular, node.associative) == (granular, associative)


PORTS = of(
    {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["protocol", "port", "zone"],
        "items": {
            "type": "object",
            "properties": {"port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "zone": TEXT},
        },
    }
)
NAMED = of({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]})
SET = of({"type": "array", "x-kubernetes-list-type": "set"})


@pytest.mark.parametrize(
    ("node", "item", "key"),
    [
        pytest.param(
            PORTS, {"port": 80, "zone": "z"}, 'k:{"port":80,"protocol":"TCP","zone":"z"}', id="sorted, defaulted"
        ),
        pytest.param(PORTS, {"port": 80}, 'k:{"port":80,"protocol":"TCP"}', id="a key may be missing"),
        pytest.param(NAMED, {"name": 'a"\n\\é'}, 'k:{"name":"a\\"\\n\\\\é"}', id="escaped"),
        pytest.param(NAMED, {"name": 1}, 'k:{"name":1}', id="a number"),
        pytest.param(NAMED, {"other": 1}, None, id="not all keys may be missing"),
        pytest.param(NAMED, "x", None, id="not a map"),
        pytest.param(SET, "p", 'v:"p"', id="text in a set"),
        pytest.param(SET, True, "v:true", id="a boolean in a set"),
        pytest.param(SET, None, None, id="null in a set"),
        pytest.param(SET, {}, None, id="a map in a set"),
    ],
)
def test_items_are_named_by_their_keys_or_value(node: TypeNode, item: Any, key: str | None) -> None:
    assert node.item_key(item) == key


def test_a_list_with_a_nameless_item_has_no_names() -> None:
    assert NAMED.item_keys([{"name": "a"}, {}]) is None
    assert NAMED.item_keys([{"name": "a"}, {"name": "a"}]) == ['k:{"name":"a"}'] * 2


def test_unknown_keys_are_deduced_or_an_error() -> None:
    struct = of({"type": "object", "properties": {"a": TEXT}})
    assert struct.element is None
    assert of({"type": "object"}).element is DEDUCED
    assert of({"type": "object", "properties": {"a": TEXT}, "additionalProperties": True}).element is DEDUCED
    assert of({"type": "object", "additionalProperties": False}).element is None
    kept = of({"type": "object", "properties": {"a": TEXT}, "x-kubernetes-preserve-unknown-fields": True})
    assert kept.element is DEDUCED


def test_keeping_unknown_fields_reaches_inline_schemas_below_and_not_beside() -> None:
    inner = {"type": "object", "properties": {"a": TEXT}}
    node = compile_type(
        {
            "type": "object",
            "properties": {
                "kept": {"type": "object", "properties": {"in": inner}, "x-kubernetes-preserve-unknown-fields": True},
                "strict": {"type": "object", "properties": {"in": inner}},
            },
        }
    )
    assert type_errors(node, {"kept": {"in": {"z": 1}}}) == []
    assert type_errors(node, {"strict": {"in": {"z": 1}}}) == [".strict.in.z: field not declared in schema"]


def test_metadata_is_known_whatever_the_schema_says() -> None:
    for node in (compile_type(None), compile_type({"type": "object", "properties": {"metadata": {"type": "object"}}})):
        metadata = at(node, "metadata")
        assert at(metadata, "labels").granular
        assert at(metadata, "finalizers").item_key("f") == 'v:"f"'
        owners = at(metadata, "ownerReferences")
        assert (owners.item_key({"uid": "u"}), owners.item.granular) == ('k:{"uid":"u"}', False)
        assert type_errors(node, {"metadata": {"zork": 1}}) == [".metadata.zork: field not declared in schema"]


def test_without_a_schema_everything_else_is_deduced() -> None:
    node = compile_type(None)
    assert at(node, "spec", "anything").granular
    assert type_errors(node, {"spec": {"a": [1, {"b": None}], "c": True}}) == []


def test_an_embedded_resource_has_a_type_and_metadata() -> None:
    embedded = of({"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": TEXT}})
    assert type_errors(embedded, {"apiVersion": "v1", "kind": "K", "metadata": {"labels": {"l": "1"}}}) == []
    assert type_errors(embedded, {"metadata": {"labels": {"l": 1}}}) == [".metadata.labels.l: expected string, got 1"]


def test_a_recursive_schema_ends_and_each_reference_is_compiled_once() -> None:
    schemas: dict[str, Any] = {
        "#/Props": {
            "type": "object",
            "properties": {
                "not": {"$ref": "#/Props"},
                "properties": {"type": "object", "additionalProperties": {"allOf": [{"$ref": "#/Props"}]}},
                "whole": {"$ref": "#/Props", "x-kubernetes-map-type": "atomic"},
                "name": TEXT,
            },
        }
    }
    asked: list[str] = []

    def resolve(reference: str) -> Any:
        asked.append(reference)
        return schemas[reference]

    node = compile_type({"type": "object", "properties": {"p": {"$ref": "#/Props"}}}, resolve=resolve)
    assert asked == ["#/Props"]  # what is deeper waits until a walk gets there
    deep = at(node, "p", "not", "properties", "any", "not")
    assert deep is at(node, "p")
    assert not at(node, "p", "whole").granular
    assert type_errors(node, {"p": {"not": {"not": {"zork": 1}}}}) == [".p.not.not.zork: field not declared in schema"]
    assert len(asked) == 2


def test_a_reference_that_leads_nowhere_is_an_error() -> None:
    with pytest.raises(TypedError, match='cannot resolve schema reference "#/Gone"'):
        compile_type({"$ref": "#/Gone"})
    with pytest.raises(TypedError, match='cannot resolve schema reference "#/Loop"'):
        compile_type({"$ref": "#/Loop"}, resolve=lambda _: {"$ref": "#/Loop"})


def test_raw_extensions_are_leaves() -> None:
    node = of({"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.runtime.RawExtension"})
    assert not node.granular


@pytest.mark.parametrize(
    ("schema", "value", "complaint"),
    [
        (TEXT, 1, "expected string, got 1"),
        ({"type": "integer"}, True, "expected numeric, got true"),
        ({"type": "integer"}, 1.5, None),
        ({"type": "boolean"}, 0, "expected boolean, got 0"),
        ({"type": "array", "items": TEXT}, ["a", 1], None),
        ({"x-kubernetes-int-or-string": True}, {"a": 1}, 'expected boolean or numeric or string, got {"a":1}'),
        (TEXT, None, None),
    ],
    ids=str,
)
def test_scalars_and_shapes_are_checked_and_null_is_always_allowed(
    schema: dict[str, Any], value: Any, complaint: str | None
) -> None:
    node = compile_type({"type": "object", "properties": {"x": schema}})
    expected = [] if complaint is None else [f".x: {complaint}"]
    if isinstance(value, list):
        expected = [".x[1]: expected string, got 1"]
    assert type_errors(node, {"x": value}) == expected


def test_asking_for_an_attribute_that_no_type_has_fails_as_usual() -> None:
    with pytest.raises(AttributeError):
        of(TEXT).zork  # noqa: B018
