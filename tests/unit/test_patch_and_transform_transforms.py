"""Transforms: every table of the specification, one row a case."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planform.apimachinery.quantity import parse_quantity
from planform.functions.values import Object
from tests.unit.composing import (
    fatal,
    patched,
    resources,
    run,
    template,
    transform_failure,
    transformed,
    warnings,
)


def math(**spec: Any) -> Object:
    return {"type": "math", "math": spec}


def string(**spec: Any) -> Object:
    return {"type": "string", "string": spec}


def convert(to_type: str, form: str | None = None) -> Object:
    return {"type": "convert", "convert": {"toType": to_type} | ({"format": form} if form else {})}


def match(*patterns: Object, **more: Any) -> Object:
    return {"type": "match", "match": {"patterns": list(patterns), **more}}


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same JSON types: 1, 1.0 and true differ."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


# --- math -------------------------------------------------------------------------------------------------------------

MULTIPLY, CLAMP_MIN, CLAMP_MAX = math(multiply=3), math(type="ClampMin", clampMin=2), math(type="ClampMax", clampMax=2)


@pytest.mark.parametrize(
    ("value", "multiplied", "at_least", "at_most"),
    [
        (3, 9, 3, 2),
        (1, 3, 2, 1),
        (-4, -12, 2, -4),
        (1.9, 1.9 * 3, 2, 1.9),
        (2.9, 2.9 * 3, 2.9, 2.9),
        (3.5, 10.5, 3.5, 2),
        (0.5, 1.5, 2, 0.5),
        (2.0, 6, 2, 2),
    ],
)
def test_math_multiplies_and_clamps(value: Any, multiplied: Any, at_least: Any, at_most: Any) -> None:
    assert same(transformed(value, MULTIPLY), multiplied)
    assert same(transformed(value, CLAMP_MIN), at_least)
    assert same(transformed(value, CLAMP_MAX), at_most)


@pytest.mark.parametrize("transform", [MULTIPLY, CLAMP_MIN, CLAMP_MAX])
@pytest.mark.parametrize(
    ("value", "kind"),
    [("3", "string"), (True, "bool"), (None, "<nil>"), ([1], "[]interface {}"), ({}, "map[string]interface {}")],
)
def test_math_needs_a_number(transform: Object, value: Any, kind: str) -> None:
    assert transform_failure(value, transform) == (
        'cannot render composed resource "thing" "FromCompositeFieldPath" patch at index 0: transform at index 0 '
        "returned error: math transform could not resolve: input is required to be a number for math transformer, "
        f"got {kind}"
    )


def test_a_product_that_overflows_is_an_error_and_does_not_wrap() -> None:
    assert transform_failure(2**62, math(multiply=2)).endswith("4611686018427387904 times 2 overflows a 64-bit integer")
    assert transformed(2**62 - 1, math(multiply=2)) == 2**63 - 2
    assert transformed(-(2**62), math(multiply=2)) == -(2**63)


def test_a_product_without_a_fraction_is_an_integer() -> None:
    assert transformed(0.5, math(multiply=4), string(fmt="%d")) == "2"


# --- map and match ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", ["x", 1, 1.5, True, [1, None], {"a": {"b": None}}, ""])
def test_map_gives_any_json(result: Any) -> None:
    assert same(transformed("k", {"type": "map", "map": {"k": result, "K": "other"}}), result)


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        ("z", "key z is not found in map"),
        ("K", "key K is not found in map"),
        ("n", "value for key n is not valid JSON"),
        (1, "type int64 is not supported for map transform"),
        (None, "type <nil> is not supported for map transform"),
        (["k"], "type []interface {} is not supported for map transform"),
    ],
)
def test_map_needs_a_known_key(value: Any, cause: str) -> None:
    failure = transform_failure(value, {"type": "map", "map": {"k": "v", "n": None}})
    assert failure.endswith(f"transform at index 0 returned error: map transform could not resolve: {cause}")


A = {"type": "literal", "literal": "a", "result": "literal"}
B = {"type": "regexp", "regexp": "^b", "result": {"n": 1}}


@pytest.mark.parametrize(
    ("value", "transform", "result"),
    [
        ("a", match(A, B), "literal"),
        ("bcd", match(A, B), {"n": 1}),
        ("xa", match({"type": "regexp", "regexp": "a", "result": 1}), 1),
        ("a", match({"literal": "a", "result": "untyped"}), "untyped"),
        ("a", match({"literal": "a"}), None),
        ("a", match(A, {"literal": "a", "result": "second"}), "literal"),
        ("A", match(A), None),
        ("z", match(A), None),
        ("z", match(A, fallbackValue=5), 5),
        ("z", match(A, fallbackTo="Value", fallbackValue={"x": []}), {"x": []}),
        ("z", match(A, fallbackTo="Input"), "z"),
        ("a", match(A, fallbackTo="Input", fallbackValue="x"), "literal"),
        ("", match({"literal": "", "result": "empty"}), "empty"),
    ],
)
def test_match_takes_the_first_pattern_or_falls_back(value: Any, transform: Object, result: Any) -> None:
    assert same(transformed(value, transform), result)


@pytest.mark.parametrize(
    ("value", "transform", "cause"),
    [
        (
            "z",
            match(A, fallbackTo="Input", fallbackValue="x"),
            "cannot set both a fallback value and the fallback to input flag",
        ),
        (1, match(A, fallbackValue=1), "cannot match pattern at index 0: unsupported input type 'int64'"),
        (None, match(A), "cannot match pattern at index 0: unsupported input type '<nil>'"),
    ],
)
def test_match_fails(value: Any, transform: Object, cause: str) -> None:
    assert transform_failure(value, transform).endswith(f"match transform could not resolve: {cause}")


def test_what_a_map_or_match_gives_is_not_shared_between_resources() -> None:
    transform = {"type": "map", "map": {"k": {"list": []}}}
    copy = {"fromFieldPath": "spec.from", "toFieldPath": "spec.to", "transforms": [transform]}
    append = {"fromFieldPath": "spec.from", "toFieldPath": "spec.to.list[0]"}
    spec = resources(template(copy, append, name="one"), template(copy, name="two"))
    for _ in range(2):
        response = run(spec, xr={"spec": {"from": "k"}})
        assert response.desired.resources["one"].resource["spec"] == {"to": {"list": ["k"]}}
        assert response.desired.resources["two"].resource["spec"] == {"to": {"list": []}}


# --- string -----------------------------------------------------------------------------------------------------------

TEXTS: list[tuple[Any, Object, str]] = [
    ("a", {"type": "Format", "fmt": "x-%s"}, "x-a"),
    ("a", {"fmt": "x-%s"}, "x-a"),
    (3, {"fmt": "%d|%v|%03d"}, "3|%!v(MISSING)|%!d(MISSING)"),
    ("Ab", {"type": "Convert", "convert": "ToUpper"}, "AB"),
    ("straße", {"type": "Convert", "convert": "ToUpper"}, "STRAßE"),
    ("Ab", {"type": "Convert", "convert": "ToLower"}, "ab"),
    ("hi", {"type": "Convert", "convert": "ToBase64"}, "aGk="),
    ("aGk=", {"type": "Convert", "convert": "FromBase64"}, "hi"),
    ("aG\nk=\r", {"type": "Convert", "convert": "FromBase64"}, "hi"),
    ("4oJoaf8=", {"type": "Convert", "convert": "FromBase64"}, "\ufffd\ufffdhi\ufffd"),
    (5, {"type": "Convert", "convert": "ToUpper"}, "5"),
    ("Crossplane", {"type": "Convert", "convert": "ToSha1"}, "3b683dc8ff44122b331a5e4f253dd69d90726d75"),
    ("Crossplane", {"type": "Convert", "convert": "ToAdler32"}, "373097499"),
    ("a<b>&c", {"type": "Convert", "convert": "ToJson"}, '"a\\u003cb\\u003e\\u0026c"'),
    ({"b": 1.0, "a": [None, True]}, {"type": "Convert", "convert": "ToJson"}, '{"a":[null,true],"b":1}'),
    ([1e21, 1e-7, 1.5], {"type": "Convert", "convert": "ToJson"}, "[1e+21,1e-7,1.5]"),
    (None, {"type": "Convert", "convert": "ToJson"}, "null"),
    ("aab", {"type": "TrimPrefix", "trim": "a"}, "ab"),
    ("baa", {"type": "TrimSuffix", "trim": "a"}, "ba"),
    ("b", {"type": "TrimPrefix", "trim": "a"}, "b"),
    (12, {"type": "TrimPrefix", "trim": "1"}, "2"),
    ("a-12-b", {"type": "Regexp", "regexp": {"match": "[0-9]+"}}, "12"),
    ("a-12-b", {"type": "Regexp", "regexp": {"match": "(a)-([0-9]+)", "group": 2}}, "12"),
    ("ac", {"type": "Regexp", "regexp": {"match": "a(b)?c", "group": 1}}, ""),
    ("k=v", {"type": "Regexp", "regexp": {"match": "(?P<key>.)=(?P<value>.)", "group": 2}}, "v"),
    ("änder", {"type": "Regexp", "regexp": {"match": "[[:alpha:]]+|\\pL+", "group": 0}}, "änder"),
    (["a", "b"], {"type": "Join", "join": {"separator": ","}}, "a,b"),
    (["a", "b"], {"type": "Join", "join": {"separator": ", "}}, "a, b"),
    ([1, 1.5, None, True, ["x", 2]], {"type": "Join", "join": {"separator": "-"}}, "1-1.5-<nil>-true-[x 2]"),
    ([], {"type": "Join", "join": {"separator": ","}}, ""),
    (["a"], {"type": "Join", "join": {}}, "a"),
    ("a.b.c", {"type": "Replace", "replace": {"search": ".", "replace": "-"}}, "a-b-c"),
    ("a.b", {"type": "Replace", "replace": {"search": "."}}, "ab"),
    (None, {"type": "TrimPrefix", "trim": "<"}, "nil>"),
]


@pytest.mark.parametrize(("value", "spec", "text"), TEXTS)
def test_string_transforms(value: Any, spec: Object, text: str) -> None:
    assert transformed(value, string(**spec)) == text


def test_a_hash_of_a_number_is_that_of_its_text() -> None:
    for kind in ("ToSha1", "ToSha256", "ToSha512", "ToAdler32"):
        spec = string(type="Convert", convert=kind)
        assert transformed(1234, spec) == transformed("1234", spec)
        assert transformed({"b": 1, "a": 2}, spec) == transformed('{"a":2,"b":1}', spec)


@pytest.mark.parametrize(
    ("value", "spec", "cause"),
    [
        ("!!", {"type": "Convert", "convert": "FromBase64"}, "string is not valid base64"),
        ("aGk", {"type": "Convert", "convert": "FromBase64"}, "string is not valid base64"),
        ("x", {"type": "Join", "join": {"separator": ","}}, "could not parse input array"),
        (None, {"type": "Join", "join": {"separator": ","}}, "could not parse input array"),
        ("x", {"type": "Regexp", "regexp": {"match": "y"}}, 'regexp "y" had no matches for group 0'),
        ("x", {"type": "Regexp", "regexp": {"match": "(x)", "group": 2}}, 'regexp "(x)" had no matches for group 2'),
    ],
)
def test_string_transforms_fail(value: Any, spec: Object, cause: str) -> None:
    assert transform_failure(value, string(**spec)).endswith(f"string transform could not resolve: {cause}")


def test_a_pathological_pattern_returns_quickly() -> None:
    spec = string(type="Regexp", regexp={"match": "(a+)+$"})
    assert transform_failure("a" * 50_000 + "b", spec).endswith('regexp "(a+)+$" had no matches for group 0')


@pytest.mark.parametrize(
    ("template_", "values", "text"),
    [
        ("%s", [3], "%!s(int64=3)"),
        ("%s", [2.5], "%!s(float64=2.5)"),
        ("%d", ["x"], "%!d(string=x)"),
        ("%d", [3.0], "3"),
        ("%s", [None], "%!s(<nil>)"),
        ("%v", [None], "<nil>"),
        ("%v", [["a", 1.5, None, True]], "[a 1.5 <nil> true]"),
        ("%v", [{"b": "x", "a": 1}], "map[a:1 b:x]"),
        ("%s", [["a", "b"]], "[a b]"),
        ("%s", [True], "%!s(bool=true)"),
        ("%s-%s", ["a"], "a-%!s(MISSING)"),
        ("x", ["y"], "x%!(EXTRA string=y)"),
        ("%z", [1], "%!z(int64=1)"),
        ("%5s|%-5s|", ["a", "b"], "    a|b    |"),
        ("%[2]s-%[1]s", ["a", "b"], "b-a"),
        ("%q", ["a"], '"a"'),
        ("%x", ["hi"], "6869"),
        ("%t", [True], "true"),
        ("%T", [1], "int64"),
        ("%05d", [42], "00042"),
        ("%*d", [5, 42], "   42"),
        ("%d%%", [5], "5%"),
        ("%c%U", [65, 65], "AU+0041"),
        ("%v", [1234567], "1234567"),
        ("%v", [1234567.5], "1.2345675e+06"),
        ("%.2f", [1.005], "1.00"),
    ],
)
def test_formatting_is_gos(template_: str, values: list[Any], text: str) -> None:
    variables = [{"fromFieldPath": f"spec.from[{index}]"} for index in range(len(values))]
    combine = {"strategy": "string", "variables": variables, "string": {"fmt": template_}}
    assert patched(values, {"type": "CombineFromComposite", "combine": combine}) == text


@pytest.mark.parametrize(
    ("template_", "value", "text"),
    [("%.2f", 3, "3.00"), ("%g", 3, "3"), ("%e", 150, "1.500000e+02"), ("%.0f", 10**6, "1000000")],
)
def test_an_integer_also_fits_the_verbs_of_floats(template_: str, value: int, text: str) -> None:
    assert transformed(value, string(fmt=template_)) == text


def test_a_format_that_does_not_fit_is_a_warning() -> None:
    patch = {"fromFieldPath": "spec.from", "toFieldPath": "spec.to", "transforms": [string(fmt="%d")]}
    response = run(resources(template(patch)), xr={"spec": {"from": "x"}})
    assert response.desired.resources["thing"].resource["spec"] == {"to": "%!d(string=x)"}
    assert warnings(response) == [
        'composed resource "thing" "FromCompositeFieldPath" patch at index 0: the format "%d" does not fit the values '
        "it is given"
    ]


# --- convert ----------------------------------------------------------------------------------------------------------

CONVERSIONS: list[tuple[Any, str, str | None, Any]] = [
    ("x", "string", None, "x"),
    ("x", "string", "json", "x"),
    ("12", "int64", None, 12),
    ("+12", "int64", None, 12),
    ("-12", "int", None, -12),
    ("9223372036854775807", "int64", None, 2**63 - 1),
    ("1e3", "float64", None, 1000),
    (".5", "float64", None, 0.5),
    ("5.", "float64", None, 5),
    ("1_000.5", "float64", None, 1000.5),
    ("0x1p-2", "float64", None, 0.25),
    ("-1.5", "float64", None, -1.5),
    *[(text, "bool", None, True) for text in ("1", "t", "T", "true", "TRUE", "True")],
    *[(text, "bool", None, False) for text in ("0", "f", "F", "false", "FALSE", "False")],
    ('{"a":[1,2.0]}', "object", "json", {"a": [1, 2]}),
    ("[1]", "array", "json", [1]),
    ("null", "array", "json", None),
    ("null", "object", "json", None),
    (7, "string", None, "7"),
    (7, "int64", None, 7),
    (7, "int64", "quantity", 7),
    (7, "float64", "quantity", 7),
    (7, "float64", None, 7),
    (1, "bool", None, True),
    (0, "bool", None, False),
    (2, "bool", None, False),
    (1.5, "string", None, "1.5"),
    (1e21, "string", None, "1000000000000000000000"),
    (1e-7, "string", None, "0.0000001"),
    (1.9, "int64", None, 1),
    (-1.9, "int64", None, -1),
    (1.5, "float64", None, 1.5),
    (1.5, "bool", None, False),
    (True, "string", None, "true"),
    (False, "string", None, "false"),
    (True, "int64", None, 1),
    (False, "int64", None, 0),
    (True, "float64", None, 1),
    (True, "bool", None, True),
    ("1000m", "float64", "quantity", 1),
    ("1Gi", "float64", "quantity", 1073741824),
    ("1.5k", "float64", "quantity", 1500),
    ("-1", "float64", "quantity", -1),
    ("2e3", "float64", "quantity", 2000),
    ("1n", "float64", "quantity", 1e-9),
    ("100Ei", "float64", "quantity", float(2**63 - 1)),
    ({"a": 1}, "object", None, {"a": 1}),
    ([1], "array", None, [1]),
    ({"b": 1, "a": "<"}, "string", "json", '{"a":"\\u003c","b":1}'),
    ([1, 2.0], "string", "json", "[1,2]"),
]


@pytest.mark.parametrize(("value", "to_type", "form", "result"), CONVERSIONS)
def test_convert(value: Any, to_type: str, form: str | None, result: Any) -> None:
    assert same(transformed(value, convert(to_type, form)), result)


UNSUPPORTED = [
    *[(value, to, None) for value in (1, 1.5, True) for to in ("object", "array")],
    *[("x", to, None) for to in ("object", "array")],
    ("x", "int64", "json"),
    ("x", "int64", "quantity"),
    (1, "string", "json"),
    (True, "float64", "quantity"),
    (True, "string", "quantity"),
]


@pytest.mark.parametrize(("value", "to_type", "form"), UNSUPPORTED)
def test_a_pair_that_cannot_be_converted_names_both_types_and_the_format(
    value: Any, to_type: str, form: str | None
) -> None:
    names = {str: "string", int: "int64", float: "float64", bool: "bool", list: "array", dict: "object"}
    cause = f"conversion from {names[type(value)]} to {to_type} is not supported with format {form or 'none'}"
    assert transform_failure(value, convert(to_type, form)).endswith(f"convert transform could not resolve: {cause}")


@pytest.mark.parametrize(
    ("value", "to_type", "form", "cause"),
    [
        *[([1], to, None, "invalid input type []interface {}") for to in ("string", "bool")],
        ({"a": 1}, "int64", None, "invalid input type map[string]interface {}"),
        ({"a": 1}, "array", None, "invalid input type map[string]interface {}"),
        ({"a": 1}, "string", "quantity", "invalid input type map[string]interface {}"),
        ([1], "object", "json", "invalid input type []interface {}"),
        *[(None, to, None, "invalid input type <nil>") for to in ("string", "int64", "float64", "bool", "object")],
        *[
            (text, "int64", None, f'strconv.ParseInt: parsing "{text}": invalid syntax')
            for text in ("", " 1", "1 ", "1_0", "0x1", "1.0", "1e3", "--1")
        ],
        ("9223372036854775808", "int64", None, 'parsing "9223372036854775808": value out of range'),
        *[
            (text, "float64", None, f'strconv.ParseFloat: parsing "{text}": invalid syntax')
            for text in ("", " 1", "1 ", "abc", "1__0", "0x1")
        ],
        ("1e400", "float64", None, 'strconv.ParseFloat: parsing "1e400": value out of range'),
        *[
            (text, "bool", None, f'strconv.ParseBool: parsing "{text}": invalid syntax')
            for text in ("yes", "on", "", "tRUE", " true")
        ],
        *[
            (text, "float64", "quantity", "quantities must match the regular expression")
            for text in ("", "1000 blabla", " 1")
        ],
        ("1kk", "float64", "quantity", "unable to parse quantity's suffix"),
        ("[1]", "object", "json", "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        ('{"a":1}', "array", "json", "json: cannot unmarshal object into Go value of type []interface {}"),
        ("{", "object", "json", "the text is not JSON"),
        (1e300, "int64", None, "out of range of int64"),
    ],
)
def test_convert_fails(value: Any, to_type: str, form: str | None, cause: str) -> None:
    failure = transform_failure(value, convert(to_type, form))
    assert "transform at index 0 returned error: convert transform could not resolve: " in failure
    assert cause in failure


@pytest.mark.parametrize(("text", "shown"), [("NaN", "NaN"), ("inf", "+Inf"), ("-Infinity", "-Inf"), ("+Inf", "+Inf")])
def test_numbers_that_json_does_not_have_cannot_be_written(text: str, shown: str) -> None:
    failure = transform_failure(text, convert("float64"))
    assert failure.endswith(f"patch at index 0: cannot marshal value to JSON: json: unsupported value: {shown}")


def test_a_float_stays_one_until_the_end_of_the_transforms() -> None:
    assert transformed("3", convert("float64"), string(fmt="%.1f")) == "3.0"
    assert same(transformed("3", convert("float64")), 3)


def test_transforms_run_in_order_and_name_the_one_that_fails() -> None:
    assert transformed("5", convert("int64"), math(multiply=2), string(fmt="n%d")) == "n10"
    failure = transform_failure("5", convert("int64"), string(fmt="n%d"), math(multiply=2))
    assert "transform at index 2 returned error: math transform could not resolve: " in failure


def test_a_failing_transform_is_fatal_even_where_the_source_is_optional() -> None:
    patch = {
        "fromFieldPath": "spec.from",
        "toFieldPath": "spec.to",
        "policy": {"fromFieldPath": "Optional"},
        "transforms": [convert("int64")],
    }
    assert "ParseInt" in fatal(run(resources(template(patch)), xr={"spec": {"from": "x"}}))


# --- laws -------------------------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_a_patch_without_transforms_changes_no_value(value: Any) -> None:
    assert same(patched(value, {}), value)


@given(st.lists(json_values, max_size=3) | st.dictionaries(st.text(max_size=3), json_values, max_size=3))
def test_json_text_and_back_is_the_same_value(value: Any) -> None:
    kind = "array" if isinstance(value, list) else "object"
    assert same(transformed(value, convert("string", "json"), convert(kind, "json")), value)


@given(st.integers(-(2**63), 2**63 - 1))
def test_an_integer_as_text_and_back_is_the_same_integer(number: int) -> None:
    assert same(transformed(number, convert("string"), convert("int64")), number)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_as_text_and_back_is_the_same_number(number: float) -> None:
    assert transformed(number, string(fmt="%v"), convert("float64")) == number


@given(st.text(max_size=20))
def test_base64_and_back_is_the_same_text(text: str) -> None:
    there, back = (string(type="Convert", convert=kind) for kind in ("ToBase64", "FromBase64"))
    assert transformed(text, there, back) == text


@given(st.binary(max_size=20))
def test_bytes_that_are_no_text_survive_between_transforms(content: bytes) -> None:
    back, there, digest = (string(type="Convert", convert=kind) for kind in ("FromBase64", "ToBase64", "ToSha256"))
    encoded = base64.b64encode(content).decode()
    assert transformed(encoded, back, there) == encoded
    assert transformed(encoded, back, digest) == hashlib.sha256(content).hexdigest()
    transformed(encoded, back).encode()  # an answer holds nothing that has no UTF-8 form


def test_bytes_that_are_no_text_are_told_as_go_tells_them() -> None:
    back = string(type="Convert", convert="FromBase64")
    assert transformed("true", back, string(type="Convert", convert="ToJson")) == '"\\ufffd\\ufffd\\ufffd"'
    assert transformed("true", back, string(type="Convert", convert="ToUpper")) == "\ufffd\ufffd\ufffd"
    assert transformed("trph", back, string(type="Regexp", regexp={"match": "a"})) == "a"


@given(st.integers(-(10**15), 10**15), st.integers(-1000, 1000))
def test_clamping_gives_a_value_within_bounds(number: int, bound: int) -> None:
    assert transformed(number, math(type="ClampMin", clampMin=bound)) == max(number, bound)
    assert transformed(number, math(type="ClampMax", clampMax=bound)) == min(number, bound)


@given(st.integers(0, 10**6), st.sampled_from(["", "m", "k", "M", "Ki", "Mi"]))
def test_a_quantity_is_what_the_api_machinery_takes_it_for(number: int, suffix: str) -> None:
    text = f"{number}{suffix}"
    assert transformed(text, convert("float64", "quantity")) == float(parse_quantity(text))
