"""Large bodies are decoded elsewhere: with the same result, for a bounded time, and by one worker for all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from planform.apiserver.wire.negotiation import decode_body
from planform.apiserver.wire.offload import MAX_VALUES, Offload, decode, has_more_values
from planform.errors import BadRequest, TooManyRequests


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen")


async def test_a_large_body_means_the_same_there_as_here() -> None:
    offload = Offload()
    try:
        for yaml, data in (
            (True, b"a: [1, 2.5, yes, ~, text]\nb: {c: 0x10, c: 12345678901234567890123}\n"),
            (False, b'{"a":[1,2.5,true,null,"\\u00e9"],"b":1,"b":2}'),
        ):
            value, duplicates = await offload.decode(data, yaml=yaml, reporting=True)
            here, duplicates_here = decode(data, yaml=yaml, reporting=True)
            assert (value, list(duplicates)) == (here, duplicates_here)
            assert duplicates
    finally:
        await offload.close()


async def test_only_large_bodies_start_the_worker() -> None:
    offload = Offload()
    try:
        small = await decode_body(b"a: 1", "application/yaml", offload=offload)
        assert (small.value, offload.running) == ({"a": 1}, False)
        large = await decode_body(b"a: " + b"x" * 100_000, "application/yaml", offload=offload)
        assert (large.value, offload.running) == ({"a": "x" * 100_000}, True)
        with pytest.raises(BadRequest, match="error decoding YAML: line 2, column 1"):
            await decode_body(b"a: [" + b"x" * 100_000, "application/yaml", offload=offload)
    finally:
        await offload.close()
    assert not offload.running


async def test_a_worker_that_takes_too_long_is_killed_and_the_next_body_gets_another() -> None:
    offload = Offload(deadline=0.5)
    try:
        with pytest.raises(BadRequest, match=r"longer than 0\.5 s"):
            await offload.decode(b"- a\n" * 2_000_000, yaml=True, reporting=False)
        assert not offload.running
        offload.deadline = 30
        assert await offload.decode(b"{}", yaml=False, reporting=False) == ({}, ())
    finally:
        await offload.close()


async def test_whoever_gives_up_waiting_leaves_no_answer_behind_for_the_next() -> None:
    offload = Offload()
    try:
        waiting = asyncio.ensure_future(offload.decode(b"- a\n" * 300_000, yaml=True, reporting=False))
        await until(lambda: offload.running)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert await offload.decode(b"[1]", yaml=False, reporting=False) == ([1], ())
    finally:
        await offload.close()


async def test_more_than_may_wait_are_refused() -> None:
    offload = Offload(waiting=2)
    try:
        bodies = [offload.decode(b"[]", yaml=False, reporting=False) for _ in range(5)]
        results = await asyncio.gather(*bodies, return_exceptions=True)
        assert [type(result) for result in results] == [tuple, tuple, *[TooManyRequests] * 3]
    finally:
        await offload.close()


async def test_a_worker_that_nobody_needs_ends() -> None:
    offload = Offload(idle=0.05)
    try:
        await offload.decode(b"[]", yaml=False, reporting=False)
        await until(lambda: not offload.running)
        assert await offload.decode(b"[2]", yaml=False, reporting=False) == ([2], ())
    finally:
        await offload.close()


@pytest.mark.parametrize(("count", "more"), [(MAX_VALUES - 1, False), (MAX_VALUES, True)])
def test_values_are_counted_at_every_depth(count: int, more: bool) -> None:
    assert has_more_values({"a": [0] * (count - 1)}, MAX_VALUES) is more


async def test_aliases_count_as_what_they_stand_for() -> None:
    lines = ["a: &a [" + "x, " * 999 + "x]", "b: [" + "*a, " * 59 + "*a]"]
    with pytest.raises(BadRequest, match="more than 50000 values"):
        await decode_body("\n".join(lines).encode(), "application/yaml")
