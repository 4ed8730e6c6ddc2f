"""Decoding of large bodies in a process of its own, so that nobody waits for somebody else's 3 MiB of YAML.

A thread would not do: it shares the interpreter with the loop. The process starts with the first large body, does one
after the other, and is killed when one takes longer than it may; it ends when nothing came for a while, or with the
control plane, whose end closes its standard input. It answers in JSON, which the loop reads a hundred times faster
than YAML.

    request:  u32 length of the body, u8 format (0 JSON, 1 YAML), u8 whether duplicates are reported, body
    answer:   u8 whether it failed, u32 and u32 lengths, then: duplicates as JSON and the value as JSON,
              or nothing and what was wrong
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import sys
from typing import Any, BinaryIO

import orjson

from planform.apimachinery import jsonbody, yaml_loader
from planform.errors import BadRequest, TooManyRequests

LARGE_YAML = 64 * 1024
LARGE_JSON = 1024 * 1024
MAX_VALUES = 50_000
"""How many values (objects, lists and what they hold) one body may have: what is done with an object after decoding
happens on the loop and takes time by their number, not by their size. The largest CRDs have about 20,000."""
_REQUEST = struct.Struct("<IBB")
_ANSWER = struct.Struct("<BII")


class Offload:
    """The one worker. Bodies wait their turn, a bounded number of them; more are refused with TooManyRequests."""

    def __init__(self, *, deadline: float = 5.0, idle: float = 30.0, waiting: int = 32) -> None:
        self.deadline = deadline
        self._idle = idle
        self._places = waiting
        self._lock = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._ending: asyncio.TimerHandle | None = None

    async def decode(self, data: bytes, *, yaml: bool, reporting: bool) -> tuple[Any, tuple[str, ...]]:
        """The value and the paths of fields given twice; raises ValueError, and BadRequest when it takes too long."""
        if self._places == 0:
            raise TooManyRequests("too many large requests are being decoded", details={"retryAfterSeconds": 1})
        self._places -= 1
        try:
            async with self._lock:
                return await self._decode_next(data, yaml=yaml, reporting=reporting)
        finally:
            self._places += 1

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    async def close(self) -> None:
        """End the process."""
        if self._ending is not None:
            self._ending.cancel()
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _decode_next(self, data: bytes, *, yaml: bool, reporting: bool) -> tuple[Any, tuple[str, ...]]:
        if self._ending is not None:
            self._ending.cancel()
        answered = False
        try:
            async with asyncio.timeout(self.deadline):
                process = await self._running()
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(_REQUEST.pack(len(data), yaml, reporting) + data)
                failed, first, second = _ANSWER.unpack(await process.stdout.readexactly(_ANSWER.size))
                head, tail = await process.stdout.readexactly(first), await process.stdout.readexactly(second)
                answered = True
        except TimeoutError as error:
            raise BadRequest(f"the body took longer than {self.deadline:g} s to decode") from error
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise BadRequest("the body could not be decoded: its decoding ended unexpectedly") from error
        finally:
            if not answered:  # cancelled as well: what it would still answer belongs to nobody
                await self.close()
        self._ending = asyncio.get_running_loop().call_later(self._idle, self._end_idle)
        if failed:
            raise ValueError(tail.decode())
        return orjson.loads(tail), tuple(orjson.loads(head))

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            pipe = asyncio.subprocess.PIPE
            command = (sys.executable, "-m", "planform.apiserver.wire.offload")
            self._process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        return self._process

    def _end_idle(self) -> None:
        if self._process is not None and self._process.stdin is not None and not self._lock.locked():
            self._process.stdin.close()
            self._process = None


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """The worker: answer what comes until nothing does."""
    while head := requests.read(_REQUEST.size):
        size, yaml, reporting = _REQUEST.unpack(head)
        try:
            value, duplicates = decode(requests.read(size), yaml=bool(yaml), reporting=bool(reporting))
            first, second, failed = orjson.dumps(duplicates), _encode(value), False
        except (ValueError, RecursionError) as error:
            first, second, failed = b"", str(error).encode("utf-8", "replace"), True
        answers.write(_ANSWER.pack(failed, len(first), len(second)) + first + second)
        answers.flush()


def decode(data: bytes, *, yaml: bool, reporting: bool) -> tuple[Any, list[str]]:
    """The value and the paths of fields given twice, here and now; raises ValueError."""
    duplicates: list[str] = []
    if yaml:
        value = yaml_loader.load(data, duplicates=duplicates if reporting else None)
    elif reporting:
        value, duplicates = jsonbody.loads_reporting_duplicates(data)
    else:
        value = jsonbody.loads(data)
    # All but the first value of a list or object need two bytes each, unless they are aliases of others.
    if (len(data) > 2 * MAX_VALUES or (yaml and b"*" in data)) and has_more_values(value, MAX_VALUES):
        raise ValueError(f"it has more than {MAX_VALUES} values")
    return value, duplicates


def has_more_values(value: Any, limit: int) -> bool:
    """Whether a value and all that it holds are more than `limit` values; does not recurse."""
    containers = [value] if isinstance(value, (dict, list)) else []
    count = 1
    while containers and count <= limit:
        container = containers.pop()
        count += len(container)
        children = container.values() if isinstance(container, dict) else container
        containers += [child for child in children if isinstance(child, (dict, list))]
    return count > limit


def _encode(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer beyond 64 bits, which YAML can say
        return json.dumps(value).encode()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
