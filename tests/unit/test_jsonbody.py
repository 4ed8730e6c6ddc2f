"""JSON bodies: what is refused, and which fields were given twice."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planform.apimachinery.jsonbody import MAX_DEPTH, JsonBodyError, loads, loads_reporting_duplicates


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"NaN", id="NaN"),
        pytest.param(b'{"a": Infinity}', id="infinity"),
        pytest.param(b"1e400", id="beyond a double"),
        pytest.param(b"\xef\xbb\xbf{}", id="byte order mark"),
        pytest.param(rb'"\ud800"', id="lone high surrogate"),
        pytest.param(rb'"\udc00"', id="lone low surrogate"),
        pytest.param(b'"\xff"', id="not UTF-8"),
        pytest.param(b'{"a": 1} x', id="something after it"),
        pytest.param(b"{'a': 1}", id="single quotes"),
        pytest.param(b'{"a": 1,}', id="trailing comma"),
        pytest.param(b"01", id="leading zero"),
        pytest.param(b"[" * 100_000, id="very deep and open"),
    ],
)
def test_what_is_not_strict_json_is_refused(data: bytes) -> None:
    with pytest.raises(JsonBodyError):
        loads(data)
    with pytest.raises(JsonBodyError):
        loads_reporting_duplicates(data)


def nested(depth: int) -> bytes:
    return b'{"a":[' * (depth // 2) + b"1" + b"]}" * (depth // 2)


def test_depth_has_a_limit_that_is_exact() -> None:
    assert loads(nested(MAX_DEPTH)) == orjson.loads(nested(MAX_DEPTH))
    with pytest.raises(JsonBodyError, match="nest deeper than 128 levels"):
        loads(nested(MAX_DEPTH + 2))
    with pytest.raises(JsonBodyError, match="nest deeper than 1 levels"):
        loads(b"[[]]", max_depth=1)
    assert loads(b"[]", max_depth=1) == []
    assert loads(b"1", max_depth=0) == 1


@pytest.mark.parametrize(
    ("data", "value", "duplicates"),
    [
        (b'{"a": 1, "b": 2}', {"a": 1, "b": 2}, []),
        (b'{"data": {"a": 1, "a": 2}}', {"data": {"a": 2}}, ["data.a"]),
        (b'{"a": 1, "a": 2, "a": 3}', {"a": 3}, ["a"]),
        (b'{"l": [{"x": 1}, {"x": 1, "x": 2}]}', {"l": [{"x": 1}, {"x": 2}]}, ["l[1].x"]),
        (b'{"a": {"b": 1, "b": 2}, "a": {"b": 3}}', {"a": {"b": 3}}, ["a.b", "a"]),
        (rb'{"a": "\u0022\u0022", "a": "\""}', {"a": '"'}, ["a"]),
        (rb'{"x": "\u0022\u0022\u0022\u0022", "a": 1, "a": 2}', {"x": '""""', "a": 2}, ["a"]),
        (rb'{"a": "\\u0022", "b": "\"a\":1,\"a\":2"}', {"a": "\\u0022", "b": '"a":1,"a":2'}, []),
        (rb'{"a": 1, "\u0061": 2}', {"a": 2}, ["a"]),
        (b'["a", "a"]', ["a", "a"], []),
    ],
)
def test_fields_given_twice_are_reported_by_path(data: bytes, value: Any, duplicates: list[str]) -> None:
    assert loads_reporting_duplicates(data) == (value, duplicates)
    assert loads(data) == value


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=4)),
    max_leaves=15,
)


@given(JSON)
def test_what_was_written_once_is_never_called_a_duplicate(value: Any) -> None:
    assert loads_reporting_duplicates(orjson.dumps(value)) == (value, [])
    assert loads_reporting_duplicates(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()) == (value, [])


@given(st.dictionaries(st.text(max_size=4), JSON, min_size=1, max_size=4), JSON)
def test_a_second_value_is_always_noticed(members: dict[str, Any], extra: Any) -> None:
    key = next(iter(members))
    body = orjson.dumps(members)[:-1] + b"," + orjson.dumps(key) + b":" + orjson.dumps(extra) + b"}"
    assert loads_reporting_duplicates(body) == (members | {key: extra}, [key])
