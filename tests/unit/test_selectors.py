"""Label and field selectors: grammar, meaning, messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planform.apimachinery.selectors import (
    EVERYTHING,
    NOTHING,
    FieldSelector,
    FieldTerm,
    LabelSelector,
    Operator,
    Requirement,
    SelectorError,
    parse_fields,
    parse_labels,
)

MATCHES: list[tuple[str, dict[str, str], bool]] = [
    ("a=b", {"a": "b"}, True),
    ("a==b", {"a": "b"}, True),
    ("a=b", {"a": "c"}, False),
    ("a=b", {}, False),
    ("a=", {"a": ""}, True),
    ("a=", {}, False),
    ("a!=b", {"a": "b"}, False),
    ("a!=b", {"a": "c"}, True),
    ("a!=b", {}, True),
    ("a in (x,y)", {"a": "y"}, True),
    ("a in (x,y)", {"a": "z"}, False),
    ("a in (x,y)", {}, False),
    ("a in (,x)", {"a": ""}, True),
    ("a in (x,)", {"a": ""}, True),
    ("a notin (x,y)", {"a": "y"}, False),
    ("a notin (x)", {}, True),
    ("a", {"a": ""}, True),
    ("a", {}, False),
    ("!a", {}, True),
    ("! a", {"a": ""}, False),
    ("a>1", {"a": "2"}, True),
    ("a>1", {"a": "1"}, False),
    ("a>1", {"a": "x"}, False),
    ("a>1", {}, False),
    ("a<2", {"a": "-7"}, True),
    ("a<2", {"a": "99999999999999999999"}, False),
    (" a = b ,\tc ", {"a": "b", "c": ""}, True),
    ("a=b,a=b", {"a": "b"}, True),
    ("a=b,a=c", {"a": "b"}, False),
    ("x.io/y in (in, notin)", {"x.io/y": "in"}, True),
    ("in in (in)", {"in": "in"}, True),
    ("", {"a": "b"}, True),
    ("  ", {"a": "b"}, True),
]


@pytest.mark.parametrize(("text", "labels", "expected"), MATCHES)
def test_a_label_selector_means_what_kubernetes_means(text: str, labels: dict[str, str], expected: bool) -> None:
    assert parse_labels(text).matches(labels) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("a=b,", "found '', expected: identifier after ','"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("a in (=)", "unable to parse requirement: found '=', expected: ',', or identifier"),
        ("a=(", "unable to parse requirement: found '(', expected: identifier"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        (
            "a in ()",
            "unable to parse requirement: values: Invalid value: []: "
            "for 'in', 'notin' operators, values set can't be empty",
        ),
        (
            "a>x",
            'unable to parse requirement: values[0]: Invalid value: "x": '
            "for 'Gt', 'Lt' operators, the value must be an integer",
        ),
    ],
)
def test_a_bad_label_selector_is_refused_in_the_words_of_kubernetes(text: str, message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_labels(text)
    assert str(caught.value) == message


def test_keys_and_values_of_a_selector_must_be_possible_labels() -> None:
    with pytest.raises(
        SelectorError, match=r'^unable to parse requirement: <nil>: Invalid value: "a/b/c": a qualified name'
    ):
        parse_labels("a/b/c=d")
    with pytest.raises(
        SelectorError, match=r'^unable to parse requirement: values\[0\]\[a\]: Invalid value: "-": a valid'
    ):
        parse_labels("a=-")


def test_an_absent_selector_matches_nothing_and_an_empty_one_everything() -> None:
    assert LabelSelector.from_object(None) is NOTHING
    assert not NOTHING.matches({}) and not NOTHING.empty
    assert LabelSelector.from_object({}) == EVERYTHING != NOTHING
    assert EVERYTHING.matches({"a": "b"}) and EVERYTHING.empty
    assert parse_labels("").empty and not parse_labels("a").empty


def test_a_selector_object_means_the_same_as_its_text() -> None:
    expressions = [
        {"key": "b", "operator": "In", "values": ["y", "x"]},
        {"key": "c", "operator": "NotIn", "values": ["z"]},
        {"key": "d", "operator": "Exists"},
        {"key": "e", "operator": "DoesNotExist", "values": []},
    ]
    selector = LabelSelector.from_object({"matchLabels": {"a": "1"}, "matchExpressions": expressions})
    assert str(selector) == "a=1,b in (x,y),c notin (z),d,!e"
    assert selector == parse_labels(str(selector))
    assert hash(selector) == hash(parse_labels(str(selector)))


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        (
            {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
            '"Gt" is not a valid label selector operator',
        ),
        ({"matchExpressions": [{"key": "a"}]}, '"None" is not a valid label selector operator'),
        (
            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["1"]}]},
            'matchExpressions[0].values: Invalid value: ["1"]: values set must be empty for exists and does not exist',
        ),
        (
            {"matchLabels": {"a": 1}},
            "matchLabels.values[0][a]: Invalid value: 1: must be a string",
        ),
    ],
)
def test_a_bad_selector_object_says_what_is_wrong(selector: dict[str, Any], message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        LabelSelector.from_object(selector)
    assert str(caught.value) == message


def test_the_only_possible_value_of_a_key_is_known() -> None:
    assert parse_labels("a=b,c!=d").exact("a") == "b"
    assert parse_labels("a in (b)").exact("a") == "b"
    assert parse_labels("a in (b,c)").exact("a") is None
    assert parse_labels("a!=b").exact("a") is None
    assert parse_fields("metadata.name=x").exact("metadata.name") == "x"
    assert parse_fields("metadata.name!=x").exact("metadata.name") is None


WORD = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,8}[A-Za-z0-9])?", fullmatch=True)
VALUES = st.lists(st.one_of(WORD, st.just("")), min_size=1, max_size=4)
REQUIREMENTS = st.one_of(
    st.builds(lambda key, op: Requirement(key, op), WORD, st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST])),
    st.builds(
        lambda key, op, values: Requirement(key, op, tuple(sorted(set(values)))),
        WORD,
        st.sampled_from([Operator.IN, Operator.NOT_IN]),
        VALUES,
    ),
    st.builds(
        lambda key, op, value: Requirement(key, op, (value,)),
        WORD,
        st.sampled_from([Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.NOT_EQUALS]),
        WORD,
    ),
    st.builds(
        lambda key, op, value: Requirement(key, op, (str(value),)),
        WORD,
        st.sampled_from([Operator.GREATER_THAN, Operator.LESS_THAN]),
        st.integers(min_value=0, max_value=2**63 - 1),
    ),
)


@given(st.lists(REQUIREMENTS, max_size=5))
def test_parsing_a_written_selector_gives_it_back(requirements: list[Requirement]) -> None:
    selector = LabelSelector(requirements)
    assert parse_labels(str(selector)) == selector


@given(st.text(alphabet="ab=!(),<> in", max_size=12))
def test_any_text_is_a_selector_or_a_selector_error(text: str) -> None:
    try:
        selector = parse_labels(text)
    except SelectorError:
        return
    assert selector.matches({"a": "b"}) in (True, False)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", ()),
        (",", ()),
        ("metadata.name=x", (("metadata.name", True, "x"),)),
        ("metadata.name==x", (("metadata.name", True, "x"),)),
        ("metadata.name!=x", (("metadata.name", False, "x"),)),
        ("b=1,a=2,", (("a", True, "2"), ("b", True, "1"))),
        ("a=x,a=x", (("a", True, "x"), ("a", True, "x"))),
        ("a=", (("a", True, ""),)),
        (r"a=x\,y\=z\\", (("a", True, "x,y=z\\"),)),
    ],
)
def test_a_field_selector_is_split_into_terms(text: str, terms: tuple[tuple[str, bool, str], ...]) -> None:
    assert parse_fields(text).terms == terms


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "invalid selector: 'a'; can't understand 'a'"),
        ("a=b,c", "invalid selector: 'a=b,c'; can't understand 'c'"),
        (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
        ("a=\\", "invalid field selector: invalid escape sequence: \\"),
        ("a=b=c", "invalid field selector: unescaped character in value: ="),
    ],
)
def test_a_bad_field_selector_is_refused(text: str, message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_fields(text)
    assert str(caught.value) == message


def test_a_field_selector_asks_for_each_of_its_fields() -> None:
    fields = {"metadata.name": "x", "spec.type": "A"}
    assert parse_fields("metadata.name=x,spec.type!=B").matches(lambda name: fields.get(name, ""))
    assert not parse_fields("metadata.name=x,spec.type!=A").matches(lambda name: fields.get(name, ""))
    assert parse_fields("metadata.name=x,metadata.name=x").matches(lambda name: fields.get(name, ""))
    assert parse_fields("").matches(lambda name: "") and parse_fields("").empty


@given(
    st.lists(
        st.builds(FieldTerm, st.from_regex(r"[a-z]+(\.[a-z]+)*", fullmatch=True), st.booleans(), st.text()), max_size=4
    )
)
def test_parsing_a_written_field_selector_gives_it_back(terms: list[FieldTerm]) -> None:
    assert sorted(parse_fields(str(FieldSelector(terms))).terms) == sorted(terms)
