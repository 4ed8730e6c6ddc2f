"""Objects to Struct bytes and back: the laws, checked against protobuf's own implementation."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from google.protobuf import json_format, struct_pb2
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from planform_sdk.structs import RecentlyUsed, StructCodec

TEXT = st.text(st.characters(codec="utf-8"), max_size=150)
SCALARS = (
    st.none() | st.booleans() | TEXT | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4))
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=6)


def as_sent(value: Any) -> Any:
    """What a value is after the wire: integral numbers are integers."""
    if isinstance(value, dict):
        return {key: as_sent(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_sent(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    return value


@given(OBJECTS)
def test_decoding_undoes_encoding_and_numbers_that_are_integral_become_integers(value: dict[str, Any]) -> None:
    codec = StructCodec()
    assert codec.decode(codec.encode(value)) == as_sent(value)
    assert codec.decode(codec.encode(value)) == as_sent(value)  # now from memory


@given(OBJECTS)
def test_the_bytes_are_what_protobuf_reads_as_the_same_object(value: dict[str, Any]) -> None:
    theirs = json_format.ParseDict(value, struct_pb2.Struct())
    assert struct_pb2.Struct.FromString(StructCodec().encode(value)) == theirs
    assert StructCodec().decode(theirs.SerializeToString()) == as_sent(value)


@given(OBJECTS, st.randoms(use_true_random=False))
def test_bytes_do_not_depend_on_the_order_of_keys(value: dict[str, Any], randomness: random.Random) -> None:
    keys = list(value)
    randomness.shuffle(keys)
    assert StructCodec().encode({key: value[key] for key in keys}) == StructCodec().encode(value)


@settings(max_examples=300)
@given(OBJECTS, st.data())
def test_damaged_bytes_are_read_as_protobuf_reads_them_or_refused_as_protobuf_refuses(
    value: dict[str, Any], data: st.DataObject
) -> None:
    encoded = bytearray(StructCodec().encode(value))
    for _ in range(data.draw(st.integers(0, 3))):
        if encoded:
            encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(encoded[: data.draw(st.integers(0, len(encoded)))])
    try:
        theirs = struct_pb2.Struct.FromString(damaged)
    except DecodeError:
        with pytest.raises(ValueError):
            StructCodec().decode(damaged)
        return
    ours = StructCodec().decode(damaged)
    assert StructCodec().decode(theirs.SerializeToString(deterministic=True)) == ours


def test_an_entry_in_an_unusual_layout_is_read_all_the_same() -> None:
    value_first = b"\x0a\x08" + b"\x12\x03\x1a\x01v" + b"\x0a\x01k"
    unknown_field = value_first + b"\x7a\x01x"
    assert StructCodec().decode(value_first) == {"k": "v"}
    assert StructCodec().decode(unknown_field) == {"k": "v"}


def test_nesting_deeper_than_the_stack_is_refused_not_a_crash() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"a": deep}
    data = StructCodec().encode(deep)
    assert StructCodec().decode(data) == deep
    for _ in range(5000):
        deep = {"a": deep}
        value = b"\x2a" + _length(len(data)) + data
        entry = b"\x0a\x01a\x12" + _length(len(value)) + value
        data = b"\x0a" + _length(len(entry)) + entry
    with pytest.raises(ValueError, match="nested too deeply"):
        StructCodec().encode(deep)
    with pytest.raises(ValueError, match="not an encoded object"):
        StructCodec().decode(data)


def _length(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        pytest.param(3.0, 3, id="integral floats are integers"),
        pytest.param(0.5, 0.5, id="fractions stay"),
        pytest.param(1e300, 1e300, id="beyond 64 bits they stay floats"),
        pytest.param(2**70, float(2**70), id="an integer beyond 64 bits is a double"),
        pytest.param(math.nan, None, id="NaN is null, as in JSON"),
        pytest.param(b"hunter2", "aHVudGVyMg==", id="bytes are base64, as in Secrets"),
        pytest.param(datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z", id="a datetime is RFC 3339"),
        pytest.param((1, "a"), [1, "a"], id="a tuple is a list"),
        pytest.param({1: "a"}, {"1": "a"}, id="YAML's integer keys are strings"),
        pytest.param({}, {}, id="an empty object stays"),
        pytest.param([], [], id="an empty list stays"),
        pytest.param([None, [True, False]], [None, [True, False]], id="nulls and booleans in lists stay"),
    ],
)
def test_values_that_are_not_plain_go_out_as_json_has_them(value: Any, sent: Any) -> None:
    codec = StructCodec()
    assert codec.decode(codec.encode({"x": value})) == {"x": sent}
    assert codec.decode(codec.encode({"x": [value]})) == {"x": [sent]}


def test_what_json_cannot_express_is_refused() -> None:
    with pytest.raises(TypeError):
        StructCodec().encode({"x": object()})


def test_one_and_true_and_one_point_zero_are_told_apart_by_the_memory() -> None:
    codec = StructCodec()
    for value in (1, True, 1.5, False, 0, None, "1"):
        assert codec.decode(codec.encode({"x": value}))["x"] is value or isinstance(value, float | int | str)
        assert type(codec.decode(codec.encode({"x": value}))["x"]) is type(value)


def test_a_decoded_object_belongs_to_whoever_asked() -> None:
    codec = StructCodec()
    data = codec.encode({"spec": {"a": [1]}})
    codec.decode(data)["spec"]["a"].append(2)
    assert codec.decode(data) == {"spec": {"a": [1]}}


def test_a_field_that_comes_again_is_the_same_bytes_whatever_else_changes() -> None:
    codec = StructCodec()
    spec = {"size": [1, 2.5, None], "name": "x" * 200}
    for turn in range(3):
        value = {"spec": spec, "status": {"turn": turn}, "kind": "Bucket"}
        assert codec.decode(codec.encode(value)) == value


def test_an_object_that_was_changed_in_place_is_encoded_anew() -> None:
    codec = StructCodec()
    value = {"a": 1}
    before = codec.encode(value)
    value["a"] = 2
    assert codec.encode(value) != before


def test_an_object_seen_under_the_same_version_is_not_looked_at() -> None:
    codec = StructCodec()
    first = codec.encode({"a": 1}, version=("uid", "7"))
    assert codec.encode({"not": "read"}, version=("uid", "7")) is first
    assert codec.encode({"a": 2}, version=("uid", "8")) != first


def test_memory_is_bounded_and_keeps_what_is_used() -> None:
    memory: RecentlyUsed[int] = RecentlyUsed(100)
    memory.put(-1, b"x")
    for number in range(1000):
        memory.put(number, b"x")
        assert memory.get(-1) == b"x"
    kept = [number for number in range(1000) if memory.get(number) is not None]
    assert len(kept) <= 100
    assert 999 in kept


def test_a_model_is_encoded_as_its_fields() -> None:
    class Port(msgspec.Struct):
        number: int

    codec = StructCodec()
    assert codec.decode(codec.encode({"port": Port(80)})) == {"port": {"number": 80}}
