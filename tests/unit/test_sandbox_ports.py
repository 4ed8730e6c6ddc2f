"""Children that listen on all addresses do so on the loopback instead, each at a port of its own."""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any

import pytest

from planform.sandbox import Ended, Isolation, Limits, Network, available_isolation, run_once
from planform.sandbox.once import Finished

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine not in ("x86_64", "aarch64"), reason="the kernel cannot tell"
)
every_way = pytest.mark.parametrize("way", available_isolation())

LISTEN = """
import json, socket, sys, threading

def listen(family, host, port):
    server = socket.socket(family)
    server.bind((host, port))
    server.listen()
    told.append(server.getsockname()[:2])
    servers.append(server)

told, servers = [], []
for address in json.load(sys.stdin):
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    # Go's programs ask from whichever thread comes along.
    thread = threading.Thread(target=listen, args=(family, *address))
    thread.start()
    thread.join()
json.dump(told, sys.stdout)
"""


async def run(script: str, stdin: bytes = b"", *, way: Isolation, only_loopback: bool = True) -> Finished:
    limits = Limits(network=Network.HOST, only_loopback=only_loopback)
    return await run_once([sys.executable, "-I", "-S", "-c", script], stdin, limits, isolation=way)


async def listening(addresses: list[tuple[str, int]], *, way: Isolation) -> list[tuple[str, int]]:
    done = await run(LISTEN, json.dumps(addresses).encode(), way=way)
    assert done.ok, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return [(str(host), int(port)) for host, port in found]


@every_way
async def test_a_port_of_all_addresses_becomes_a_free_one_of_the_loopback(way: Isolation) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = int(taken.getsockname()[1])
        (first, one), (second, two) = await listening([("0.0.0.0", port), ("::", port)], way=way)
    assert (first, second) == ("127.0.0.1", "::ffff:127.0.0.1")
    assert len({port, one, two}) == 3


@every_way
async def test_an_address_that_is_asked_for_by_name_is_taken_as_it_is(way: Isolation) -> None:
    with socket.socket() as ours:
        ours.bind(("127.0.0.1", 0))
        address = ("127.0.0.7", int(ours.getsockname()[1]))
        assert await listening([address], way=way) == [address]


@every_way
async def test_input_output_exit_code_and_signal_are_those_of_the_command(way: Isolation) -> None:
    done = await run("import sys; print(sys.stdin.read()[::-1]); sys.exit(3)", b"abc", way=way)
    assert (done.stdout, done.code, done.why) == (b"cba\n", 3, Ended.EXITED)
    killed = await run("import os; os.kill(os.getpid(), 15)", way=way)
    assert (killed.code, killed.why) == (-15, Ended.KILLED)
    lost = await run_once(["/no/such"], b"", Limits(only_loopback=True), isolation=way)
    assert b"cannot run /no/such" in lost.stderr


@every_way
async def test_without_it_a_port_that_is_taken_is_taken(way: Isolation) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        addresses = json.dumps([taken.getsockname()]).encode()
        done = await run(LISTEN, addresses, way=way, only_loopback=False)
    assert done.stdout == b"[]"
