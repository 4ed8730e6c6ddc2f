"""Ten thousand clients that hold a connection and say nothing: memory stays bounded and others are served as before."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.load import PATIENCE_SECONDS, PlaneProcess, allow_descriptors, running_plane

CONNECTIONS = 10_000
MAX_BYTES_EACH = 64 * 1024
SLOWEST_GET_SECONDS = 0.25  # on a machine that is busy with other tests; typically it is below 5 ms


def open_idle(plane: PlaneProcess, count: int, stack: ExitStack) -> list[ssl.SSLSocket]:
    """Connections with TLS in place, as clients have them between two requests.

    All but the first resume its session, which saves the signatures: a third of the time, and no difference afterwards.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    def shake_hands(session: ssl.SSLSession | None = None) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", plane.port), timeout=PATIENCE_SECONDS)
        return context.wrap_socket(plain, server_hostname="127.0.0.1", session=session)

    first = stack.enter_context(shake_hands())
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(shake_hands, first.session) for _ in range(count - 1)]
        return [first, *(stack.enter_context(future.result()) for future in futures)]


async def slowest_get(plane: PlaneProcess, seconds: float) -> float:
    """The longest that a small request took among those of so many seconds."""
    slowest = 0.0
    async with plane.connection() as connection:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.perf_counter()
            answer = await connection.request("GET", "/api/v1/namespaces/default")
            assert answer.status == 200
            slowest = max(slowest, time.perf_counter() - began)
    return slowest


@pytest.mark.xdist_group("idle connections")
async def test_ten_thousand_idle_connections_cost_little_and_hold_nobody_up(tmp_path: Path) -> None:
    allow_descriptors(CONNECTIONS + 500)
    async with running_plane(tmp_path) as plane:
        before = plane.resident_bytes()
        with ExitStack() as stack:
            idle = await asyncio.to_thread(open_idle, plane, CONNECTIONS, stack)
            each = (plane.resident_bytes(peak=True) - before) / CONNECTIONS
            slowest = await slowest_get(plane, 0.5)
            print(
                f"{plane.resident_bytes(peak=True) >> 20} MiB at most, {each / 1024:.1f} KiB for each connection, "
                f"slowest get {slowest * 1000:.1f} ms"
            )
            assert each < MAX_BYTES_EACH
            assert slowest < SLOWEST_GET_SECONDS
            for connection in idle[:: CONNECTIONS // 20]:  # they are still usable
                connection.sendall(b"GET /livez HTTP/1.1\r\nhost: plane\r\n\r\n")
                assert connection.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")
        assert await slowest_get(plane, 0.3) < SLOWEST_GET_SECONDS  # while ten thousand are closed
        assert plane.log() == ""
