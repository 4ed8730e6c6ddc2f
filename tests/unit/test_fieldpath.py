"""Field paths: reading them, and reading, writing, removing and expanding what they name."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planform.apimachinery.fieldpath import FieldNotFound, FieldPath, FieldPathError, Segment, format_path, parse_path


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("", ()),
        ("a.b", ("a", "b")),
        ("a[b]", ("a", "b")),
        ("a['b']", ("a", "b")),
        ('a["b.c"]', ("a", "b.c")),
        ("'a'.b", ("a", "b")),
        ("metadata.annotations[x.io/y]", ("metadata", "annotations", "x.io/y")),
        ("a[0].b", ("a", 0, "b")),
        ("a[0]b", ("a", 0, "b")),
        ("[0].a", (0, "a")),
        ("a[0][1]", ("a", 0, 1)),
        ("a['0']", ("a", "0")),
        ("a.0", ("a", "0")),
        ("a[-1]", ("a", "-1")),
        ("a[4294967295]", ("a", 4294967295)),
        ("a[4294967296]", ("a", "4294967296")),
        ("a[*].b", ("a", "*", "b")),
        ("a.*.b", ("a", "*", "b")),
    ],
)
def test_a_path_is_read_into_segments(text: str, segments: tuple[Segment, ...]) -> None:
    assert parse_path(text).segments == segments


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (".a", "unexpected '.' at position 0"),
        ("a.", "unexpected '.' at position 1"),
        ("a..b", "unexpected '.' at position 2"),
        ("a[]", "unexpected ']' at position 2"),
        ("a[0", "unterminated '[' at position 1"),
        ("a]b", "unexpected ']' at position 1"),
        ("a.[0]", "unexpected '[' at position 2"),
        ("a[[0]]", "unexpected '[' at position 2"),
        ("é..b", "unexpected '.' at position 3"),
    ],
)
def test_a_text_that_is_no_path_says_where(text: str, problem: str) -> None:
    with pytest.raises(FieldPathError) as caught:
        parse_path(text)
    assert str(caught.value) == f'cannot parse path "{text}": {problem}'


@pytest.mark.parametrize(
    ("doc", "path", "expected"),
    [
        ({"a": {"b": 1}}, "a.b", 1),
        ({"a": [{"b": 1}]}, "a[0].b", 1),
        ({"a": None}, "a", None),
        ({"a": {"0": 1}}, "a['0']", 1),
        ({"a": {"*": 1}}, "a[*]", 1),
        ({"a": 1}, "", None),
        ([1, 2], "[1]", 2),
    ],
)
def test_what_is_there_can_be_read(doc: Any, path: str, expected: Any) -> None:
    assert parse_path(path).get(doc) == expected


@pytest.mark.parametrize(
    ("doc", "path", "kind", "message"),
    [
        ({}, "a.b.c", FieldNotFound, "a: no such field"),
        ({"a": {}}, "a.b.c", FieldNotFound, "a.b: no such field"),
        ({"a": [1]}, "a[1]", FieldNotFound, "a[1]: no such element"),
        ({"a": None}, "a.b", FieldNotFound, "a: expected map, got nil"),
        ({"a": None}, "a[0]", FieldPathError, "a: not an array"),
        ({"a": "s"}, "a.b", FieldPathError, "a: not an object"),
        ({"a": "s"}, "a[0]", FieldPathError, "a: not an array"),
        ({"a": [1]}, "a.b", FieldPathError, "a: not an object"),
        ({"a": {"0": 1}}, "a[0]", FieldPathError, "a: not an array"),
        ({"a": {"b.c": {}}}, "a[b.c].d", FieldNotFound, "a[b.c].d: no such field"),
    ],
)
def test_what_is_not_there_says_what_stood_in_the_way(doc: Any, path: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(FieldPathError) as caught:
        parse_path(path).get(doc)
    assert (type(caught.value), str(caught.value)) == (kind, message)


@pytest.mark.parametrize(
    ("doc", "path", "expected"),
    [
        ({}, "a.b[2].c", {"a": {"b": [None, None, {"c": 1}]}}),
        ({"a": [None]}, "a[0].x", {"a": [{"x": 1}]}),
        ({"a": None}, "a", {"a": 1}),
        ({"a": [7]}, "a[0]", {"a": [1]}),
        ({"a": [7]}, "a[3]", {"a": [7, None, None, 1]}),
        ({}, "a[x.io/y]", {"a": {"x.io/y": 1}}),
        ({}, "", {}),
    ],
)
def test_setting_makes_what_is_missing(doc: Any, path: str, expected: Any) -> None:
    parse_path(path).set(doc, 1)
    assert doc == expected


@pytest.mark.parametrize(
    ("doc", "path", "message"),
    [
        ({"a": None}, "a.b", "a is not an object"),
        ({"a": "s"}, "a.b", "a is not an object"),
        ({"a": {}}, "a[0]", "a is not an array"),
        ({}, "a[1025]", "index 1025 is greater than max allowed index 1024"),
    ],
)
def test_setting_never_replaces_what_is_of_another_kind(doc: Any, path: str, message: str) -> None:
    with pytest.raises(FieldPathError) as caught:
        parse_path(path).set(doc, 1)
    assert str(caught.value) == message


def test_the_largest_index_is_1024() -> None:
    doc: dict[str, Any] = {}
    parse_path("a[1024]").set(doc, 1)
    assert len(doc["a"]) == 1025


def test_deleting_says_whether_something_was_there() -> None:
    doc: dict[str, Any] = {"a": {"b": [1, 2, 3]}, "n": None}
    assert parse_path("a.b[1]").delete(doc) and doc["a"] == {"b": [1, 3]}
    assert not parse_path("a.b[7]").delete(doc)
    assert not parse_path("a.x.y").delete(doc)
    assert not parse_path("n.x").delete(doc)
    assert parse_path("a").delete(doc) and doc == {"n": None}
    assert not parse_path("").delete(doc)
    with pytest.raises(FieldPathError, match=r"^a is not an object$"):
        parse_path("a.b").delete({"a": [1]})


@pytest.mark.parametrize(
    ("doc", "path", "expected"),
    [
        ({"a": [{"b": 1}, {"c": 2}]}, "a[*].b", ["a[0].b"]),
        ({"a": []}, "a[*].b", []),
        ({}, "a[*].b", []),
        ({"a": {"y.z": {"b": 2}, "x": {"b": 1}}}, "a[*].b", ["a.x.b", "a[y.z].b"]),
        ({"a": [[1, 2], [3]]}, "a[*][*]", ["a[0][0]", "a[0][1]", "a[1][0]"]),
        ({"a": {"b": 1}}, "a.b", ["a.b"]),
        ({"a": {"b": 1}}, "a.c", []),
    ],
)
def test_a_wildcard_stands_for_each_path_that_exists(doc: Any, path: str, expected: list[str]) -> None:
    assert [str(found) for found in parse_path(path).expand(doc)] == expected


@pytest.mark.parametrize(
    ("doc", "kind", "message"),
    [
        ({"a": None}, FieldNotFound, "a[*]: no such field"),
        ({"a": "s"}, FieldPathError, "a[*]: unexpected wildcard usage"),
        ({"a": [1]}, FieldPathError, "a[0]: not an object"),
    ],
)
def test_a_wildcard_over_what_has_no_members_is_an_error(doc: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(FieldPathError) as caught:
        parse_path("a[*].b").expand(doc)
    assert (type(caught.value), str(caught.value)) == (kind, message)


FIELD = st.from_regex(r"[a-z0-9_/-]([a-z0-9_./-]{0,4}[a-z0-9_/-])?", fullmatch=True).filter(
    lambda text: not text.isdigit()
)
SEGMENTS = st.lists(st.one_of(FIELD, st.just("*"), st.integers(0, 6)), min_size=1, max_size=6)


@given(SEGMENTS)
def test_a_written_path_reads_back(segments: list[Segment]) -> None:
    assert parse_path(format_path(segments)) == FieldPath(segments)


@given(SEGMENTS, st.integers())
def test_what_was_set_can_be_read_and_taken_away_again(segments: list[Segment], value: int) -> None:
    doc: Any = [] if isinstance(segments[0], int) else {}
    path = FieldPath(segments)
    path.set(doc, value)
    assert path.get(doc) == value
    once = copy.deepcopy(doc)
    path.set(doc, value)
    assert doc == once
    assert path.delete(doc)
    with pytest.raises(FieldNotFound):
        path.get(doc)


@given(st.text(alphabet="a.[]'\"*0", max_size=10))
def test_any_text_is_a_path_or_a_path_error(text: str) -> None:
    try:
        path = parse_path(text)
    except FieldPathError:
        return
    assert all(isinstance(segment, str | int) for segment in path.segments)
