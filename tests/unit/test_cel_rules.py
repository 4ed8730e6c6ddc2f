"""The CEL rules of CRD schemas: what they say about objects, and which rules a CRD may have."""

from __future__ import annotations

from typing import Any

import pytest

from planform.apimachinery.cel import CelError, cel_errors, compile_rules

Json = dict[str, Any]
TEXT: Json = {"type": "string", "maxLength": 100}
INTEGER: Json = {"type": "integer"}


def rules(*texts: str | Json) -> list[Json]:
    return [text if isinstance(text, dict) else {"rule": text} for text in texts]


def obj(properties: Json, *texts: str | Json, **more: Any) -> Json:
    return {"type": "object", "properties": properties, "x-kubernetes-validations": rules(*texts), **more}


def crd(spec: Json) -> Json:
    return {"type": "object", "properties": {"spec": spec}}


def found(schema: Json, value: Any, old: Any = None) -> list[str]:
    """What the rules of `spec` say."""
    before = None if old is None else {"spec": old}
    return [str(error) for error in compile_rules(crd(schema)).check({"spec": value}, before)]


@pytest.mark.parametrize(
    ("schema", "value", "errors"),
    [
        pytest.param(
            obj({"min": INTEGER, "max": INTEGER}, "self.min <= self.max"),
            {"min": 2, "max": 1},
            ["spec: Invalid value: failed rule: self.min <= self.max"],
            id="a failed rule names itself",
        ),
        pytest.param(
            obj({"min": INTEGER}, {"rule": "self.min > 0", "message": "min must be positive"}),
            {"min": 0},
            ["spec: Invalid value: min must be positive"],
            id="message",
        ),
        pytest.param(
            obj({"min": INTEGER}, {"rule": "self.min > 0", "messageExpression": "'min is ' + string(self.min)"}),
            {"min": -1},
            ["spec: Invalid value: min is -1"],
            id="messageExpression",
        ),
        pytest.param(
            obj(
                {"l": {"type": "array", "items": INTEGER}},
                {"rule": "false", "message": "m", "messageExpression": "string(self.l[9])"},
            ),
            {"l": []},
            ["spec: Invalid value: m"],
            id="a messageExpression that fails leaves the message",
        ),
        pytest.param(
            obj({"x": {**TEXT, "x-kubernetes-validations": rules("self.startsWith('a')")}}),
            {"x": "b"},
            ["spec.x: Invalid value: \"b\": failed rule: self.startsWith('a')"],
            id="scalars are shown",
        ),
        pytest.param(
            obj(
                {"x": TEXT},
                {"rule": "has(self.x)", "reason": "FieldValueRequired", "fieldPath": ".x", "message": "give x"},
            ),
            {},
            ["spec.x: Required value: give x"],
            id="reason and fieldPath",
        ),
        pytest.param(
            obj({"x": TEXT}, {"rule": "!has(self.x)", "reason": "FieldValueForbidden", "message": "no x"}),
            {"x": "1"},
            ["spec: Forbidden: no x"],
            id="forbidden",
        ),
        pytest.param(
            obj({"x": {**TEXT, "x-kubernetes-validations": rules({"rule": "false", "reason": "FieldValueDuplicate"})}}),
            {"x": "1"},
            ['spec.x: Duplicate value: "1"'],
            id="duplicate",
        ),
        pytest.param(
            obj({"l": {"type": "array", "items": obj({"n": INTEGER}, "self.n > 0")}}),
            {"l": [{"n": 1}, {"n": 0}]},
            ["spec.l[1]: Invalid value: failed rule: self.n > 0"],
            id="rules of items",
        ),
        pytest.param(
            obj({"m": {"type": "object", "additionalProperties": obj({"n": INTEGER}, "self.n > 0")}}),
            {"m": {"a.b": {"n": 0}}},
            ["spec.m[a.b]: Invalid value: failed rule: self.n > 0"],
            id="rules of map values",
        ),
        pytest.param(
            obj({"x": TEXT}, {"rule": "self.x == 'a'", "message": "x is a"}),
            {},
            ['spec: Invalid value: "object": no such key: x evaluating rule: x is a'],
            id="an error of a rule is an error of the object",
        ),
        pytest.param(
            obj({"x": {"x-kubernetes-int-or-string": True}}, "self.x + 1 > 0"),
            {"x": "a"},
            [
                "spec: Invalid value: \"object\": 'no such overload: _+_(string, int)': call arguments did not match a "
                "supported operator, function or macro signature for rule: self.x + 1 > 0"
            ],
            id="types that show late",
        ),
        pytest.param(
            obj({"x": {**TEXT, "nullable": True}}, "!has(self.x)"), {"x": None}, [], id="null is as good as absent"
        ),
        pytest.param(
            obj(
                {"my-name": TEXT, "a.b/c": TEXT, "namespace": TEXT, "x__y": TEXT},
                "self.my__dash__name + self.a__dot__b__slash__c + self.__namespace__ + "
                "self.x__underscores__y == 'abcd'",
            ),
            {"my-name": "a", "a.b/c": "b", "namespace": "c", "x__y": "d"},
            [],
            id="escaped names",
        ),
        pytest.param(
            obj(
                {"at": {"type": "string", "format": "date-time"}, "for": {"type": "string", "format": "duration"}},
                "self.at + self.__for__ < timestamp('2024-01-02T00:00:00Z')",
            ),
            {"at": "2024-01-01T00:00:00Z", "for": "1h"},
            [],
            id="formats are values of their own types",
        ),
        pytest.param(
            obj(
                {"times": {"type": "array", "items": {"type": "string", "format": "date-time"}}},
                "self.times.isSorted()",
            ),
            {"times": ["2024-01-01T23:00:00-02:00", "2024-01-02T00:30:00Z"]},
            ["spec: Invalid value: failed rule: self.times.isSorted()"],
            id="formats inside lists",
        ),
        pytest.param(
            obj({"b": {"type": "string", "format": "byte"}}, "size(self.b) == 2"), {"b": "aGk="}, [], id="bytes"
        ),
        pytest.param(
            obj({"n": {"type": "number"}}, "self.n * 2.0 == 6.0"), {"n": 3}, [], id="an integral number is a double"
        ),
        pytest.param(
            obj({"s": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT}}, "self.s == ['a', 'b']"),
            {"s": ["b", "a"]},
            [],
            id="sets are equal in any order",
        ),
        pytest.param(
            obj(
                {
                    "e": {
                        "type": "object",
                        "x-kubernetes-embedded-resource": True,
                        "x-kubernetes-preserve-unknown-fields": True,
                        "x-kubernetes-validations": rules("self.kind == 'Pod' && self.metadata.name.startsWith('a')"),
                    }
                }
            ),
            {"e": {"kind": "Pod", "metadata": {"name": "b"}}},
            ["spec.e: Invalid value: failed rule: self.kind == 'Pod' && self.metadata.name.startsWith('a')"],
            id="embedded resources have kind and name",
        ),
    ],
)
def test_rules_speak_for_every_level(schema: Json, value: Any, errors: list[str]) -> None:
    assert found(schema, value) == errors


def test_rules_of_the_root_see_the_name_and_have_no_field() -> None:
    schema = crd({"type": "object"}) | {"x-kubernetes-validations": rules("self.metadata.name == self.kind")}
    (error,) = compile_rules(schema).check({"kind": "A", "metadata": {"name": "b"}})
    assert str(error) == "<nil>: Invalid value: failed rule: self.metadata.name == self.kind"


def test_a_path_may_be_put_before_all_fields() -> None:
    (error,) = compile_rules(obj({"x": INTEGER}, "self.x > 0"), root=False).check({"x": 0}, path="spec.y")
    assert error.field == "spec.y"


IMMUTABLE = obj(
    {"x": {**TEXT, "x-kubernetes-validations": rules({"rule": "self == oldSelf", "message": "x is immutable"})}}
)
KEYED = obj(
    {
        "l": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": obj({"name": TEXT, "n": INTEGER}, {"rule": "self.n >= oldSelf.n", "message": "n only grows"}),
        }
    }
)


@pytest.mark.parametrize(
    ("schema", "old", "new", "errors"),
    [
        pytest.param(IMMUTABLE, None, {"x": "a"}, [], id="not on create"),
        pytest.param(IMMUTABLE, {}, {"x": "a"}, [], id="not when the old value is absent"),
        pytest.param(IMMUTABLE, {"x": "a"}, {"x": "a"}, [], id="unchanged"),
        pytest.param(IMMUTABLE, {"x": "a"}, {"x": "b"}, ['spec.x: Invalid value: "b": x is immutable'], id="changed"),
        pytest.param(
            KEYED,
            {"l": [{"name": "a", "n": 5}, {"name": "b", "n": 1}]},
            {"l": [{"name": "c", "n": 0}, {"name": "b", "n": 2}, {"name": "a", "n": 4}]},
            ["spec.l[2]: Invalid value: n only grows"],
            id="items of map lists are found by key",
        ),
        pytest.param(
            obj({"m": {"type": "object", "additionalProperties": obj({"n": INTEGER}, "self.n == oldSelf.n")}}),
            {"m": {"a": {"n": 1}}},
            {"m": {"a": {"n": 2}, "b": {"n": 3}}},
            ["spec.m[a]: Invalid value: failed rule: self.n == oldSelf.n"],
            id="map values are found by key",
        ),
        pytest.param(
            obj(
                {
                    "x": {
                        **TEXT,
                        "x-kubernetes-validations": rules(
                            {"rule": "oldSelf.hasValue() || self == 'new'", "optionalOldSelf": True, "message": "m"}
                        ),
                    }
                }
            ),
            None,
            {"x": "other"},
            ['spec.x: Invalid value: "other": m'],
            id="optionalOldSelf also on create",
        ),
        pytest.param(
            obj(
                {
                    "x": {
                        **TEXT,
                        "x-kubernetes-validations": rules(
                            {"rule": "oldSelf.orValue(self) == self", "optionalOldSelf": True, "message": "m"}
                        ),
                    }
                }
            ),
            {"x": "a"},
            {"x": "b"},
            ['spec.x: Invalid value: "b": m'],
            id="optionalOldSelf on update",
        ),
        pytest.param(
            obj({"a": INTEGER, "x": {**INTEGER, "x-kubernetes-validations": rules("self > 0")}}),
            {"a": 1, "x": 0},
            {"a": 2, "x": 0},
            [],
            id="a fault that was there before is not held against the update",
        ),
    ],
)
def test_transition_rules(schema: Json, old: Any, new: Any, errors: list[str]) -> None:
    assert found(schema, new, old) == errors


def test_an_object_has_one_budget_for_all_its_rules() -> None:
    schema = obj({"l": {"type": "array", "items": {**INTEGER, "x-kubernetes-validations": rules("self >= 0")}}})
    errors = compile_rules(crd(schema)).check({"spec": {"l": list(range(100))}}, budget=50)
    assert [str(error) for error in errors] == [
        'spec.l[16]: Invalid value: "integer": validation failed due to running out of cost budget, no further '
        "validation rules will be run"
    ]


def test_a_single_rule_that_costs_too_much_ends_the_check() -> None:
    numbers: Json = {"type": "array", "items": INTEGER}
    schema = obj({"l": numbers}, "self.l.all(a, self.l.all(b, self.l.all(c, a + b + c >= 0)))", "false")
    (error,) = compile_rules(schema).check({"l": list(range(200))})
    assert "actual cost limit exceeded" in error.detail


def test_a_schema_without_rules_has_nothing_to_check() -> None:
    compiled = compile_rules(crd({"type": "object"}))
    assert not compiled.any
    assert compiled.check({"spec": {}}) == []


def test_rules_are_compiled_once_for_equal_schemas() -> None:
    schema = obj({"x": INTEGER}, "self.x > 0")
    assert compile_rules(schema) is compile_rules(dict(schema))


def test_compiling_a_bad_rule_is_an_error() -> None:
    with pytest.raises(CelError, match="undefined field 'y'"):
        compile_rules(obj({"x": INTEGER}, "self.y > 0"))


def complaints(schema: Json) -> list[str]:
    return [str(error) for error in cel_errors(schema, "s")]


@pytest.mark.parametrize(
    ("schema", "start"),
    [
        pytest.param(
            obj({"x": INTEGER}, "self.y > 0"),
            's.x-kubernetes-validations[0].rule: Invalid value: {"Rule":"self.y \\u003e '
            '0","Message":"","MessageExpression":"",'
            '"Reason":null,"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: '
            "<input>:1:5: undefined field "
            "'y'\n | self.y > 0\n | ....^",
            id="undefined field",
        ),
        pytest.param(
            obj({"x": INTEGER}, "self.x >"), "s.x-kubernetes-validations[0].rule: Invalid value: ", id="syntax"
        ),
        pytest.param(
            obj({"x": INTEGER}, "self.x == 'a'"), "s.x-kubernetes-validations[0].rule: Invalid value: ", id="types"
        ),
        pytest.param(
            obj({"x": INTEGER}, "self.x"), "s.x-kubernetes-validations[0].rule: Invalid value: ", id="not a bool"
        ),
        pytest.param(
            obj({"x": {"x-kubernetes-preserve-unknown-fields": True}}, "self.x == 1"),
            "s.x-kubernetes-validations[0].rule: Invalid value: ",
            id="data without a schema cannot be seen",
        ),
        pytest.param(
            obj({"x": INTEGER}, {"rule": "true", "messageExpression": "self.x"}),
            "s.x-kubernetes-validations[0].messageExpression: Invalid value: ",
            id="messageExpression is not a string",
        ),
        pytest.param(
            obj(
                {
                    "l": {
                        "type": "array",
                        "maxItems": 5,
                        "items": {**INTEGER, "x-kubernetes-validations": rules("self > oldSelf")},
                    }
                }
            ),
            's.properties[l].items.x-kubernetes-validations[0].rule: Invalid value: "self > oldSelf": '
            "oldSelf cannot be "
            "used on the uncorrelatable portion of the schema within s.properties[l]",
            id="oldSelf in an ordinary list",
        ),
        pytest.param(
            obj({"x": INTEGER}, {"rule": "true", "optionalOldSelf": True}),
            "s.x-kubernetes-validations[0].optionalOldSelf: Invalid value: true: may not be set if "
            "oldSelf is not used in rule",
            id="optionalOldSelf without oldSelf",
        ),
        pytest.param(
            obj({"l": {"type": "array", "items": TEXT}}, "self.l.all(a, self.l.all(b, a != b))"),
            "s.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by "
            "factor of more than 100x "
            "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, "
            "maps, and strings "
            "are declared)",
            id="two loops over an unbounded list",
        ),
        pytest.param(
            obj({"s": {"type": "string"}}, "self.s.contains(self.s)"),
            "s.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by "
            "factor of more than 100x",
            id="unbounded strings",
        ),
        pytest.param(
            obj({"l": {"type": "array", "items": obj({"s": {"type": "string"}}, "self.s.startsWith(self.s)")}}),
            "s.properties[l].items.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget",
            id="a rule inside an unbounded list",
        ),
    ],
)
def test_a_crd_with_such_a_rule_is_refused(schema: Json, start: str) -> None:
    assert complaints(schema)[0].startswith(start)


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(obj({"l": {"type": "array", "items": INTEGER}}, "self.l.all(a, a > 0)"), id="one loop"),
        pytest.param(
            obj(
                {"l": {"type": "array", "maxItems": 100, "items": TEXT}}, "self.l.all(a, self.l.exists_one(b, a == b))"
            ),
            id="two loops over a bounded list",
        ),
        pytest.param(obj({"s": TEXT}, "self.s.matches('^[a-z]+$')"), id="a pattern on a bounded text"),
        pytest.param(obj({"s": {"type": "string"}}, "self.s.size() < 10"), id="size of an unbounded text"),
        pytest.param(
            KEYED | {"properties": {"l": KEYED["properties"]["l"] | {"maxItems": 50}}}, id="oldSelf in a map list"
        ),
    ],
)
def test_a_crd_with_a_sound_rule_is_accepted(schema: Json) -> None:
    assert complaints(schema) == []


def test_many_dear_rules_are_too_dear_together() -> None:
    loop = "self.l.all(a, self.l.all(b, a != b))"
    items: Json = {"type": "array", "maxItems": 300, "items": {"type": "string", "maxLength": 100}}
    schema = obj({"l": items}, *[loop] * 40)
    texts = complaints(schema)
    assert texts[-1].startswith(
        "s: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget"
    )
