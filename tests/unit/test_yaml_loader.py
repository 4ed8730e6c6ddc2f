"""YAML in kubectl's dialect: every vector of the spec, hostile input, and that what is written reads back."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from planform.apimachinery import yaml_loader
from planform.apimachinery.yaml_loader import YamlError, dump, dump_all, load, load_all

WORDS = [
    (spelling, value)
    for value, words in ((True, ("y", "yes", "on", "true")), (False, ("n", "no", "off", "false")))
    for word in words
    for spelling in (word, word.capitalize(), word.upper())
]
SCALARS: list[tuple[str, Any]] = [
    *WORDS,
    ("tRUE", "tRUE"),
    ("yEs", "yEs"),
    ("0777", 511),
    ("0o777", 511),
    ("0O17", 15),
    ("0x1F", 31),
    ("-0x1F", -31),
    ("0b11", 3),
    ("1_000", 1000),
    ("1_000.5", 1000.5),
    ("1e3", 1000),
    ("1E-2", 0.01),
    ("1.0", 1),
    ("-0.0", 0),
    ("1.5", 1.5),
    (".5", 0.5),
    ("5.", 5),
    ("+5", 5),
    ("-5", -5),
    ("08", 8),
    ("0", 0),
    ("12:30:45", "12:30:45"),
    ("2024-01-02", "2024-01-02"),
    ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z"),
    ("~", None),
    ("null", None),
    ("Null", None),
    ("NULL", None),
    ("", None),
    ("9223372036854775807", 2**63 - 1),
    ("-9223372036854775808", -(2**63)),
    ("9223372036854775808", 9.223372036854775808e18),
    ("18446744073709551616", 1.8446744073709552e19),
    ("0xFFFFFFFFFFFFFFFF", 1.8446744073709552e19),
    ("0x1FFFFFFFFFFFFFFFFF", "0x1FFFFFFFFFFFFFFFFF"),
    ("1e21", 1e21),
    ("1e400", "1e400"),
    ("9" * 400, "9" * 400),
    ("1.2.3", "1.2.3"),
    ("1a", "1a"),
    ("-", None),
    ("--", "--"),
    (".", "."),
    ("+", "+"),
    ("0x", "0x"),
    ("'yes'", "yes"),
    ('"1"', "1"),
    ("'~'", "~"),
    ("a b", "a b"),
    ("!!str 1", "1"),
    ("!!str", ""),
    ("!!int '7'", 7),
    ("!!float '7.5'", 7.5),
    ("!!bool 'yes'", True),
    ("!!null ''", None),
    ("!!binary aGVsbG8=", "hello"),
    ("!!timestamp 2024-01-02", "2024-01-02"),
    ("!custom 1", "1"),
    ("! 1", "1"),
]


@pytest.mark.parametrize(("text", "value"), SCALARS, ids=[text[:24] or "empty" for text, _ in SCALARS])
def test_a_scalar_means_what_it_means_to_kubectl(text: str, value: Any) -> None:
    if text == "-":  # a sequence indicator, not a scalar
        assert load("a:\n-") == {"a": [None]}
        return
    found = load(f"a: {text}")["a"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("1", "1"),
        ("true", "true"),
        ("yes", "true"),
        ("off", "false"),
        ("1.5", "1.5"),
        ("0x1F", "31"),
        ("2024-01-02", "2024-01-02"),
    ],
)
def test_keys_become_texts(key: str, text: str) -> None:
    assert load(f"{key}: x") == {text: "x"}


@pytest.mark.parametrize("text", ["a: .inf", "a: -.INF", "a: .nan", "[.inf]"])
def test_infinity_and_nan_cannot_be_said(text: str) -> None:
    with pytest.raises(YamlError, match="cannot be said in JSON"):
        load(text)


def test_documents_are_separated_by_three_dashes_and_empty_ones_vanish() -> None:
    assert load_all("---\na: 1\n---\n---\n# nothing\n---\nb: 2\n...\n") == [{"a": 1}, {"b": 2}]
    assert load_all("") == load_all("# only a comment\n") == []
    assert load("") is None
    with pytest.raises(YamlError, match="expected one document, found 2"):
        load("a: 1\n---\nb: 1")


def test_anchors_expand_into_copies() -> None:
    value = load("a: &x {k: [1]}\nb: *x\nc: &y 7\nd: *y\n")
    assert value == {"a": {"k": [1]}, "b": {"k": [1]}, "c": 7, "d": 7}
    value["a"]["k"].append(2)
    assert value["b"] == {"k": [1]}


def test_an_anchor_may_be_set_again_and_ends_with_its_document() -> None:
    assert load("[&x 1, *x, &x 2, *x]") == [1, 1, 2, 2]
    with pytest.raises(YamlError, match="unknown anchor 'x' referenced"):
        load_all("&x 1\n---\n*x")


def test_merge_keys_fill_in_what_the_mapping_does_not_say() -> None:
    text = """
    base: &base {a: 1, b: 1}
    more: &more {b: 2, c: 2}
    one: {<<: *base, a: 0}
    before: {a: 0, <<: *base}
    both: {<<: [*more, *base], d: 3}
    text: {"<<": 1}
    """
    value = load(text)
    assert value["one"] == value["before"] == {"a": 0, "b": 1}
    assert value["both"] == {"a": 1, "b": 2, "c": 2, "d": 3}
    assert value["text"] == {"<<": 1}
    with pytest.raises(YamlError, match="map merge requires map or sequence of maps as the value"):
        load("<<: 1")


def test_the_last_of_two_values_for_a_key_counts() -> None:
    found: list[str] = []
    text = "data:\n  a: 1\n  a: 2\nlist:\n- x: 1\n- x: 1\n  x: 2\n  x: 3\n"
    assert load(text, duplicates=found) == {"data": {"a": 2}, "list": [{"x": 1}, {"x": 3}]}
    assert found == ["data.a", "list[1].x"]


def test_strict_reading_refuses_a_key_given_twice_and_says_where() -> None:
    with pytest.raises(YamlError) as caught:
        load("data:\n  a: 1\n  a: 2\n", strict=True)
    assert str(caught.value) == 'line 3, column 3: key "a" already set in map'
    assert (caught.value.line, caught.value.column) == (3, 3)
    with pytest.raises(YamlError, match='key "1" already set in map'):
        load('1: a\n"1": b\n', strict=True)
    with pytest.raises(YamlError, match=r'key "a\.b" already set in map'):
        load('{"a": {"b": 1, "b": 2}}', strict=True)
    assert load("base: &b {a: 1}\nx: {<<: *b, a: 2}", strict=True)["x"] == {"a": 2}


def test_json_is_yaml() -> None:
    text = '{"a": [1, 1.5, "yes", null, true], "b": "\\u00e9"}'
    assert load(text) == load(text.encode()) == json.loads(text)
    assert load("{a: 1, b: [yes]}") == {"a": 1, "b": [True]}
    found: list[str] = []
    assert load('{"a": 1, "a": 2}', duplicates=found) == {"a": 2}
    assert found == ["a"]


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("a: b: c", 1, 5),
        ("a:\n\t- b", 2, 1),
        ("a: [1, 2", 2, 1),
        ('a: "x', 1, 6),
        ("a: 1\n b: 2", 2, 3),
        ("a: *x", 1, 4),
        ("a: &x [*x]", 1, 8),
        ("[a, b]: 1", 1, 1),
        ("? {a: 1}\n: 2", 1, 3),
        ("~: 1", 1, 1),
        ("a: !!int x", 1, 4),
        ("a: !!binary '*'", 1, 4),
    ],
)
def test_what_is_wrong_is_shown_by_line_and_column(text: str, line: int, column: int) -> None:
    with pytest.raises(YamlError) as caught:
        load(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert str(caught.value).startswith(f"line {line}, column {column}: ")


@pytest.mark.parametrize("text", [b"a: \xff", "a: \x00", "a: \ud800", b"\xff\xfea\x00"])
def test_what_is_not_text_is_refused(text: str | bytes) -> None:
    with pytest.raises(YamlError):
        load(text)


def test_a_byte_order_mark_is_skipped() -> None:
    assert load(b"\xef\xbb\xbfa: 1") == {"a": 1}


def test_an_alias_bomb_is_refused_before_it_goes_off() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    with pytest.raises(YamlError, match="document contains excessive aliasing"):
        load("\n".join(lines))


def test_a_long_text_weighs_more_than_a_short_one() -> None:
    bomb = "a: &a " + "x" * 100_000 + "\nb: [" + ", ".join(["*a"] * 1000) + "]"
    with pytest.raises(YamlError, match="excessive aliasing"):
        load(bomb)
    assert len(load("a: &a x\nb: [" + ", ".join(["*a"] * 1000) + "]")["b"]) == 1000


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5000,
        "[" * 200 + "]" * 200,
        "- " * 200,
        "? " * 200,
        "".join(" " * n + "a:\n" for n in range(200)),
        "{a: " * 200,
    ],
)
def test_depth_is_bounded(text: str) -> None:
    with pytest.raises(YamlError):
        load(text)


def test_aliases_cannot_go_deeper_than_the_limit() -> None:
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 140))]
    with pytest.raises(YamlError, match="nest deeper than 128 levels"):
        load("\n".join(lines))


def test_size_is_bounded() -> None:
    with pytest.raises(YamlError, match="longer than 10 bytes"):
        load_all("a" * 11, max_bytes=10)


def test_without_libyaml_the_same_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: &x {k: [1, yes]}\nb: *x\nc: |\n  line\n"
    expected = load(text)
    monkeypatch.setattr(yaml_loader, "_LOADER", yaml.SafeLoader)
    assert load(text) == expected == {"a": {"k": [1, True]}, "b": {"k": [1, True]}, "c": "line\n"}
    with pytest.raises(YamlError, match=r"^line 1, column 5: "):
        load("a: b: c")


def test_what_is_written_looks_as_kubectl_writes_it() -> None:
    value = {
        "apiVersion": "v1",
        "metadata": {"name": "web", "labels": {"app.kubernetes.io/name": "x", "on": "yes"}, "annotations": {}},
        "spec": {
            "ports": [{"port": 80, "name": "http"}, {"port": 443}],
            "args": ["--a=b", "c: d", "", "1", "12:30:45", "1.2.3"],
            "rows": [[1, [2]], []],
            "script": "set -e\necho hi\n",
            "cut": "a\nb",
            "kept": "a\n\n",
            "none": None,
            "ratio": 0.5,
        },
    }
    assert (
        dump(value)
        == """\
apiVersion: v1
metadata:
  name: web
  labels:
    app.kubernetes.io/name: x
    "on": "yes"
  annotations: {}
spec:
  ports:
  - port: 80
    name: http
  - port: 443
  args:
  - "--a=b"
  - "c: d"
  - ""
  - "1"
  - "12:30:45"
  - 1.2.3
  rows:
  - - 1
    - - 2
  - []
  script: |
    set -e
    echo hi
  cut: |-
    a
    b
  kept: |+
    a

  none: null
  ratio: 0.5
"""
    )
    assert load(dump(value)) == value


def test_shared_values_are_written_out_each_time() -> None:
    shared = {"a": [1]}
    assert dump({"x": shared, "z": shared}) == "x:\n  a:\n  - 1\nz:\n  a:\n  - 1\n"
    assert load_all(dump_all([shared, 1, "a"])) == [shared, 1, "a"]


@pytest.mark.parametrize("value", [float("inf"), float("nan"), {1: 2}, {"a": object()}, "\ud800"])
def test_what_json_cannot_say_is_not_written(value: Any) -> None:
    with pytest.raises(YamlError):
        dump(value)


def test_a_value_that_is_too_deep_is_not_written() -> None:
    value: Any = []
    for _ in range(5000):
        value = [value]
    with pytest.raises(YamlError, match="nests too deep"):
        dump(value)


TRICKY = st.sampled_from(
    [text for text, _ in SCALARS]
    + [
        "<<",
        "=",
        "---",
        "...",
        "- a",
        "a: b",
        "a #b",
        "#",
        "!x",
        "&x",
        "*x",
        "@x",
        "`x`",
        "%x",
        "|",
        ">",
        "{a}",
        "[a]",
        "?",
        ": ",
        "a:",
    ]
    + [
        "\n",
        " a",
        "a ",
        "a\n",
        "a\n\n",
        "\na",
        " a\nb",
        "a\n b\n",
        "a\n\tb",
        "a\t",
        "a\r\nb",
        "a\n  \nb",
        "a\n#b\n",
        "---\na",
        "\x85",
        "\u2028",
    ]
    + ["\ufeff", "é", "日本", "🙂", "\x00", "\x7f", "\\n", '"', "'", "a" * 2000, "?" * 1100, "\n".join("ab" * 700)]
)
TEXTS = st.one_of(TRICKY, st.text(max_size=8), st.text(alphabet="a :#-\n\t'\"|>0", max_size=8))
JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        TEXTS,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)


@given(JSON)
def test_what_is_written_reads_back(value: Any) -> None:
    text = dump(value)
    assert load(text, strict=True) == value
    assert load("---\n" + text) == value


@given(st.dictionaries(TEXTS, JSON, min_size=1, max_size=4))
def test_other_readers_see_texts_as_texts(value: dict[str, Any]) -> None:
    def texts(item: Any) -> Any:
        if isinstance(item, dict):
            return {key: texts(child) for key, child in item.items()}
        if isinstance(item, list):
            return [texts(child) for child in item]
        return item if isinstance(item, str) else "-"

    only_texts = texts(value)
    assert yaml.load(dump(only_texts), Loader=yaml.CSafeLoader) == only_texts


@given(st.text(alphabet="a1:-[]{},&*x \n#|>'\"!?<", max_size=20))
def test_any_text_is_yaml_or_a_yaml_error(text: str) -> None:
    try:
        documents = load_all(text)
    except YamlError:
        return
    json.dumps(documents, allow_nan=False)
