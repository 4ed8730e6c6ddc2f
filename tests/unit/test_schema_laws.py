"""Laws of admission over generated schemas and objects, and a second opinion from another validator."""

from __future__ import annotations

import copy
import random
from typing import Any

import jsonschema_rs
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planform.apimachinery.schema import compile_schema
from planform.apimachinery.structural import structural_errors

Json = dict[str, Any]
NAMES = ("a", "b", "c", "my-name")
WORDS = ("", "x", "red", "blue", "äö", "2024-01-01")


def make_schema(draw: random.Random, depth: int) -> Json:
    """A structural schema for the keywords that both validators understand alike."""
    kind = draw.choice(["string", "integer", "number", "boolean"] + (["object", "map", "array"] * 2 if depth else []))
    schema: Json = {"type": "object" if kind == "map" else kind}
    if draw.random() < 0.15:
        schema["nullable"] = True
    match kind:
        case "string":
            schema |= draw.choice(
                [{}, {"minLength": 1}, {"maxLength": 3}, {"enum": ["red", "blue"]}, {"pattern": "^[a-z]*$"}]
            )
        case "integer" | "number":
            schema |= draw.choice(
                [
                    {},
                    {"minimum": 0},
                    {"maximum": 3},
                    {"multipleOf": 2},
                    {"enum": [1, 2]},
                    {"anyOf": [{"minimum": 5}, {"maximum": 0}]},
                ]
            )
        case "object":
            names = draw.sample(NAMES, draw.randint(1, 3))
            schema["properties"] = {name: make_schema(draw, depth - 1) for name in names}
            if draw.random() < 0.5:
                schema["required"] = draw.sample(names, 1)
            if draw.random() < 0.2:
                schema["oneOf"] = [{"required": [name]} for name in names]
            if draw.random() < 0.2:
                schema["not"] = {"required": [names[0]]}
            if draw.random() < 0.2:
                schema["minProperties"] = draw.randint(0, 2)
        case "map":
            schema["additionalProperties"] = make_schema(draw, depth - 1)
            schema |= draw.choice([{}, {"maxProperties": 2}, {"minProperties": 1}])
        case "array":
            schema["items"] = make_schema(draw, depth - 1)
            schema |= draw.choice([{}, {"minItems": 1}, {"maxItems": 2}])
    return schema


def with_defaults(draw: random.Random, schema: Json) -> Json:
    """Give some properties a default that is valid for them."""
    for sub in [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]:
        if not isinstance(sub, dict):
            continue
        with_defaults(draw, sub)
    for sub in schema.get("properties", {}).values():
        if draw.random() < 0.5:
            value = make_value(draw, sub, faults=0)
            tried = {**sub, "default": value}
            if value is not None and not structural_errors({"type": "object", "properties": {"x": tried}}, "s"):
                sub["default"] = value
    return schema


def make_value(draw: random.Random, schema: Json, faults: float) -> Any:
    """A value that mostly fits the schema; `faults` is how often it does not."""
    if draw.random() < faults:
        return draw.choice([None, True, 1, -7, 2.5, "x", [], {}, ["x"], {"zork": 1}])
    match schema["type"]:
        case "string":
            return draw.choice(schema.get("enum") or WORDS)
        case "integer":
            return draw.choice(schema.get("enum") or [0, 2, 4, 10])
        case "number":
            return draw.choice(schema.get("enum") or [0, 2, 6.5, 10])
        case "boolean":
            return draw.choice([True, False])
        case "array":
            return [make_value(draw, schema["items"], faults) for _ in range(draw.randint(0, 3))]
    if "additionalProperties" in schema:
        keys = draw.sample(NAMES, draw.randint(0, 3))
        return {key: make_value(draw, schema["additionalProperties"], faults) for key in keys}
    required = schema.get("required", [])
    made = {
        name: make_value(draw, sub, faults)
        for name, sub in schema.get("properties", {}).items()
        if name in required or draw.random() < 0.6
    }
    if draw.random() < faults:
        made["zork"] = {"deep": 1}
    return made


def make_case(seed: int, *, faults: float, defaults: bool) -> tuple[Json, Json]:
    draw = random.Random(seed)
    schema: Json = {"type": "object", "properties": {"spec": make_schema(draw, 3)}}
    if defaults:
        with_defaults(draw, schema)
    return schema, {"spec": make_value(draw, schema["properties"]["spec"], faults)}


seeds = st.integers(min_value=0, max_value=2**32)
laws = settings(max_examples=300, deadline=None, derandomize=True)


@laws
@given(seeds)
def test_admitting_twice_is_admitting_once(seed: int) -> None:
    schema, obj = make_case(seed, faults=0.1, defaults=True)
    compiled = compile_schema(schema, root=True)
    first = compiled.admit(obj)
    settled = copy.deepcopy(obj)
    second = compiled.admit(obj)
    assert obj == settled
    assert second.unknown == []
    assert {str(error) for error in second.errors} <= {str(error) for error in first.errors}


@laws
@given(seeds)
def test_a_pruned_object_has_nothing_unknown_and_pruning_alone_finds_the_same(seed: int) -> None:
    schema, obj = make_case(seed, faults=0.2, defaults=False)
    compiled = compile_schema(schema, root=True)
    pruned = copy.deepcopy(obj)
    unknown = compiled.prune(pruned)
    assert compiled.prune(pruned) == []
    assert compiled.admit(obj).unknown == unknown


@laws
@given(seeds)
def test_an_object_that_was_admitted_stays_valid_and_needs_no_more_defaults(seed: int) -> None:
    schema, obj = make_case(seed, faults=0, defaults=True)
    compiled = compile_schema(schema, root=True)
    if compiled.admit(obj).valid:
        assert not compiled.default(obj)
        assert compiled.admit(copy.deepcopy(obj), null_errors=True).valid


@laws
@given(seeds)
def test_defaults_on_read_are_those_of_a_write(seed: int) -> None:
    schema, obj = make_case(seed, faults=0, defaults=True)
    compiled = compile_schema(schema, root=True)
    read = copy.deepcopy(obj)
    compiled.default(read)
    compiled.admit(obj)
    assert read == obj


@laws
@given(seeds, st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=4))
def test_a_schema_that_was_used_finds_what_a_new_one_finds(seed: int, uses: list[tuple[bool, bool]]) -> None:
    schema, obj = make_case(seed, faults=0.1, defaults=True)
    used = compile_schema(schema, root=True)
    for null_errors, collect_unknown in uses:
        again, fresh = copy.deepcopy(obj), copy.deepcopy(obj)
        found = used.admit(again, null_errors=null_errors, collect_unknown=collect_unknown)
        new = compile_schema(schema, root=True)
        assert found == new.admit(fresh, null_errors=null_errors, collect_unknown=collect_unknown)
        assert orjson.dumps(again) == orjson.dumps(fresh)


@pytest.mark.parametrize("null_errors", [False, True], ids=["written", "applied"])
@pytest.mark.parametrize("used", [False, True], ids=["at first", "later"])
def test_a_null_inside_a_default_is_dropped(null_errors: bool, used: bool) -> None:
    inner = {"type": "object", "default": {"c": None}, "properties": {"c": {"type": "string"}}}
    outer = {"type": "object", "default": {}, "properties": {"b": inner}}
    schema = compile_schema({"type": "object", "properties": {"a": outer}}, root=True)
    if used:
        schema.admit({}, null_errors=not null_errors)
    obj: dict[str, Any] = {}
    assert schema.admit(obj, null_errors=null_errors).valid
    assert obj == {"a": {"b": {}}}


@laws
@given(seeds)
def test_an_unchanged_object_is_never_refused(seed: int) -> None:
    schema, obj = make_case(seed, faults=0.2, defaults=False)
    compiled = compile_schema(schema, root=True)
    compiled.admit(obj)
    assert compiled.admit(copy.deepcopy(obj), old=obj).errors == []


def mixed(draw: random.Random, old: Any, other: Any) -> Any:
    """The old value with parts of another; what it keeps is the old value's own."""
    if draw.random() < 0.2:
        return other
    if isinstance(old, list) and isinstance(other, list):
        return old if draw.random() < 0.5 else [*old, *other]
    if not isinstance(old, dict) or not isinstance(other, dict) or draw.random() < 0.2:
        return old
    kept = {name: value for name, value in old.items() if draw.random() < 0.9}
    return kept | {
        name: mixed(draw, old[name], value) if name in old else value
        for name, value in other.items()
        if draw.random() < 0.6
    }


@laws
@given(seeds, st.booleans())
def test_parts_of_an_admitted_object_need_no_second_look(seed: int, null_errors: bool) -> None:
    schema, old = make_case(seed, faults=0.1, defaults=True)
    compiled = compile_schema(schema, root=True)
    compiled.admit(old)
    draw = random.Random(seed)
    new = mixed(draw, old, {"spec": make_value(draw, schema["properties"]["spec"], 0.1)})
    apart, before = copy.deepcopy(new), copy.deepcopy(old)
    expected = compiled.admit(apart, old=before, null_errors=null_errors)
    found = compiled.admit(new, old=old, null_errors=null_errors, admitted=old)
    assert found == expected
    assert orjson.dumps(new) == orjson.dumps(apart)
    assert orjson.dumps(old) == orjson.dumps(before)


def test_what_only_compares_equal_to_an_admitted_part_is_looked_at() -> None:
    sizes = {"type": "object", "additionalProperties": {"type": "integer"}}
    spec = {"type": "object", "properties": {"sizes": sizes}}
    compiled = compile_schema({"type": "object", "properties": {"spec": spec}}, root=True)
    old: Json = {"spec": {"sizes": {"a": 1}}}
    new: Json = {"spec": {"sizes": {"a": True}}}
    assert old == new
    assert [error.field for error in compiled.admit(new, old=old, admitted=old).errors] == ["spec.sizes.a"]


def in_json_schema(schema: Json) -> Json:
    """The same schema in JSON Schema's words; OpenAPI's nullable is its own."""
    translated = {key: value for key, value in schema.items() if key not in ("nullable", "default")}
    if "properties" in schema:
        translated["properties"] = {name: in_json_schema(sub) for name, sub in schema["properties"].items()}
        translated["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            translated[key] = in_json_schema(schema[key])
    return {"anyOf": [{"type": "null"}, translated]} if schema.get("nullable") else translated


@settings(max_examples=1500, deadline=None, derandomize=True)
@given(seeds)
def test_another_validator_agrees(seed: int) -> None:
    schema, obj = make_case(seed, faults=0.08, defaults=False)
    compiled = compile_schema(schema, root=True)
    expected = jsonschema_rs.validator_for(in_json_schema(schema)).is_valid(obj)
    found = compiled.admit(copy.deepcopy(obj), null_errors=True)
    assert (found.valid and not found.unknown) == expected, (schema, obj, found)


@pytest.mark.parametrize("seed", range(0, 200, 10))
def test_generated_schemas_are_structural(seed: int) -> None:
    schema, _ = make_case(seed, faults=0, defaults=True)
    assert structural_errors(schema, "s") == []
