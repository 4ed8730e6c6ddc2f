"""A plane under strace: in which order it wrote to its write-ahead log, synced it, and answered.

The traced plane answers in plain text, so that the trace shows which write an answer acknowledges. A call has a begin
and an end, since other threads go on meanwhile; places in the trace are line numbers.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.load import PATIENCE_SECONDS, TOKEN, PlaneProcess, spawn
from tests.harness.programs import programs

CALLS = "pwrite64,pwritev,fdatasync,fsync,ftruncate,write,writev,sendto,sendmsg"

# A whole plane whose handler is also reached without TLS. It dies with strace, as that dies with us.
PLAIN_PLANE = """
import asyncio, ctypes, pathlib, sys
from planform.app import Settings, open_control_plane, run_loop
from planform.apiserver.wire.http import HttpServer

async def main():
    ctypes.CDLL(None).prctl(1, 9)
    data, tokens = map(pathlib.Path, sys.argv[1:])
    async with open_control_plane(Settings(data=data, token_file=tokens)) as plane:
        server = HttpServer(plane.server.handler, plane.server.refusal)
        port = await server.start("127.0.0.1", 0)
        print(f"planform is ready at http://127.0.0.1:{port}", file=sys.stderr, flush=True)
        await asyncio.Event().wait()

run_loop(main())
"""


@asynccontextmanager
async def traced_plane(directory: Path) -> AsyncIterator[PlaneProcess]:
    """A plane on `directory/data` whose calls go to `directory/trace`; it is killed at the end, and the trace whole."""
    tokens = directory / "tokens.csv"
    tokens.write_text(f'{TOKEN},load,load,"system:masters"\n')
    strace = programs("strace") / "strace"
    command = [str(strace), "-f", "-y", "-s", "1000000", "-o", str(directory / "trace"), "-e", f"trace={CALLS}"]
    command += [sys.executable, "-c", PLAIN_PLANE, str(directory / "data"), str(tokens)]
    plane = PlaneProcess(*spawn(command, directory))
    try:
        await plane.ready()
        yield plane
    finally:
        kill_traced(plane)


def kill_traced(plane: PlaneProcess) -> None:
    """Kill the plane and let strace end by itself, which completes the trace."""
    pid = plane.process.pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        os.kill(int(child), signal.SIGKILL)
    plane.process.wait(PATIENCE_SECONDS)


@dataclass(frozen=True)
class Call:
    """One system call on a file or a socket; `arguments` are as strace prints them."""

    name: str
    path: str
    arguments: str
    begin: int
    end: int
    result: int


_BEGIN = re.compile(r"(\d+) +(\w+)\(\d+<([^>]*)>(.*?)(?:\) += (-?\d+).*|<unfinished \.\.\.>.*|\) += \?.*)")
_END = re.compile(r"(\d+) +<\.\.\. \w+ resumed>.*\) += (-?\d+).*")


def read_trace(path: Path) -> Iterator[Call]:
    """All calls in the order in which they ended; those that the kill cut short come last and failed."""
    unfinished: dict[str, tuple[str, str, str, int]] = {}
    number = 0
    for number, line in enumerate(path.read_text().splitlines()):
        if begun := _BEGIN.fullmatch(line):
            thread, name, file, arguments, result = begun.groups()
            if result is None:
                unfinished[thread] = (name, file, arguments, number)
            else:
                yield Call(name, file, arguments, number, number, int(result))
        elif (ended := _END.fullmatch(line)) and ended[1] in unfinished:
            name, file, arguments, begin = unfinished.pop(ended[1])
            yield Call(name, file, arguments, begin, number, int(ended[2]))
    for name, file, arguments, begin in unfinished.values():
        yield Call(name, file, arguments, begin, number + 1, -1)


@dataclass(frozen=True)
class Sync:
    """A sync of the write-ahead log that succeeded: `size` is how much of it had been written when it began."""

    size: int
    begin: int
    end: int


@dataclass(frozen=True)
class Acknowledgement:
    """An answer that says that an object was written; `rv` is 0 where it does not say which version it then had."""

    name: str
    rv: int
    begin: int


@dataclass
class Order:
    """What a trace tells of the objects whose names begin with `prefix`."""

    prefix: str
    rows: dict[str, dict[int, int]] = field(default_factory=dict)
    """By name and resource version: where the first write of that row to the write-ahead log ended."""
    syncs: list[Sync] = field(default_factory=list)
    acknowledgements: list[Acknowledgement] = field(default_factory=list)
    other_writes: list[Call] = field(default_factory=list)
    """Writes after the first row that a recovery from the log alone would not see: to the database, or a new log."""

    @classmethod
    def of(cls, trace: Path, prefix: str) -> Order:
        order = cls(prefix)
        size = 0
        for call in sorted(read_trace(trace), key=lambda call: call.begin):
            if call.path.endswith("-wal"):
                size = order._note_log(call, size)
            elif call.path.endswith("planform.db") and call.name.startswith("pwrite") and order.rows:
                order.other_writes.append(call)
            elif call.path.startswith("socket:"):
                order._note_answer(call)
        return order

    def _note_log(self, call: Call, size: int) -> int:
        if call.name in ("fdatasync", "fsync"):
            if call.result == 0:
                self.syncs.append(Sync(size, call.begin, call.end))
            return size
        assert call.name == "pwrite64", call.name
        offset = int(call.arguments.rpartition(", ")[2])
        if offset == 0 and self.rows:
            self.other_writes.append(call)
        for name, rv in self._objects(call.arguments):
            self.rows.setdefault(name, {}).setdefault(rv, call.end)
        return max(size, offset + call.result)

    def _note_answer(self, call: Call) -> None:
        if "HTTP/1.1 20" not in call.arguments:
            return
        found = self._objects(call.arguments)
        deleted = re.findall(rf'"details":{{"name":"({self.prefix}[\w-]+)"', unescaped(call.arguments))
        found += [(name, 0) for name in deleted]
        self.acknowledgements += [Acknowledgement(name, rv, call.begin) for name, rv in found]

    def _objects(self, arguments: str) -> list[tuple[str, int]]:
        """Objects in a page or an answer. Their JSON holds no control character, and rows of a page always do."""
        text = unescaped(arguments)
        pattern = rf'"metadata":{{"name":"({self.prefix}[\w-]+)"[^\x00-\x1f]*?"resourceVersion":"(\d+)"'
        return [(name, int(rv)) for name, rv in re.findall(pattern, text)]

    def sync_before(self, place: int) -> Sync | None:
        """The last sync that had ended there."""
        return max((sync for sync in self.syncs if sync.end < place), key=lambda sync: sync.end, default=None)


def unescaped(text: str) -> str:
    """A string as strace prints it, one character for each byte."""
    return text.encode("latin-1").decode("unicode_escape")
