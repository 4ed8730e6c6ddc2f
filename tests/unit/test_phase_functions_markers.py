"""Phase output in what commands print."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planform.blueprints.errors import OutputInvalid
from planform.blueprints.functions.markers import MARKER, MAX_LINE_LENGTH, MarkerReader


def read(*chunks: bytes) -> tuple[dict[str, str], list[str]]:
    told: list[str] = []
    reader = MarkerReader(told.append)
    for chunk in chunks:
        reader.feed(chunk)
    return reader.end(), told


def marked(key: str, value: str) -> bytes:
    return f"{MARKER} {json.dumps({'key': key, 'value': value})}".encode()


def test_lines_with_a_marker_are_output_and_others_are_told() -> None:
    assert read(b"starting\n" + marked("rows", "42") + b"\nbye\n") == ({"rows": "42"}, ["starting", "bye"])


def test_a_last_line_without_an_end_counts() -> None:
    assert read(marked("a", "1"))[0] == {"a": "1"}


@given(st.lists(st.integers(1, 60), max_size=20))
def test_a_marker_may_be_cut_anywhere(cuts: list[int]) -> None:
    text = b"before\n" + marked("a", "x\u00e9") + b"\nmiddle " + marked("b", "2") + b"\n"
    chunks, at = [], 0
    for cut in cuts:
        chunks.append(text[at : at + cut])
        at += cut
    assert read(*chunks, text[at:])[0] == {"a": "x\u00e9", "b": "2"}


def test_two_markers_may_share_a_line_and_a_later_value_wins() -> None:
    assert read(marked("a", "1") + b" " + marked("a", "2") + marked("b", "3") + b"\r\n")[0] == {"a": "2", "b": "3"}


def test_lines_beyond_64_kib_are_put_together_again() -> None:
    value = "x" * (300 << 10)
    line = marked("big", value) + b"\n"
    assert read(*(line[at : at + 4096] for at in range(0, len(line), 4096)))[0] == {"big": value}


def test_endless_lines_cost_no_memory_unless_they_are_output() -> None:
    told: list[str] = []
    reader = MarkerReader(told.append)
    for _ in range(3 * (MAX_LINE_LENGTH >> 16)):
        reader.feed(b"y" * (1 << 16))
    assert len(reader._rest) <= MAX_LINE_LENGTH + (1 << 16)
    with pytest.raises(OutputInvalid, match="longer than"):
        read(MARKER.encode() + b" " * (MAX_LINE_LENGTH + 1))


@pytest.mark.parametrize(
    ("after", "complaint"),
    [
        (b"{not json}", "is not JSON"),
        (b"", "is not JSON"),
        (b'{"key": "a"}', 'with "key" and "value"'),
        (b'["a", "b"]', 'with "key" and "value"'),
        (b'{"key": "a-b", "value": "1"}', "letters, digits and underscores"),
        (b'{"key": "", "value": "1"}', "letters, digits and underscores"),
        (b'{"key": "a", "value": 1}', "must be a text"),
        (b'{"key": "a", "value": null}', "must be a text"),
        (b'{"key": "a", "value": "1"} {"key": "b", "value": "2"}', "more than one"),
    ],
    ids=["no JSON", "nothing", "no value", "a list", "dash", "empty key", "number", "null", "two objects"],
)
def test_malformed_output_fails_with_what_is_wrong(after: bytes, complaint: str) -> None:
    with pytest.raises(OutputInvalid, match=complaint):
        read(MARKER.encode() + after + b"\n")
