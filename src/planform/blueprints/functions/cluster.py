"""What the API of objects does not do: commands in containers, and their logs, over the API server's streams.

Exec speaks `v5.channel.k8s.io` over a WebSocket, in which every message begins with the number of its channel.
aiohttp is imported when a stream is opened: it takes long, and an embedded control plane needs none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import quote

import orjson

from planform.blueprints.contract import PhaseContext
from planform.blueprints.errors import PhaseFailed
from planform.client.kubeconfig import Connection
from planform.client.rights import impersonation_headers

if TYPE_CHECKING:
    import aiohttp
    from multidict import CIMultiDict
    from yarl import URL

Listener = Callable[[bytes], None]

WITH_HALF_CLOSE: Final = "v5.channel.k8s.io"
WITHOUT: Final = "v4.channel.k8s.io"
_STDIN, _STDOUT, _STDERR, _ERROR, _CLOSE = 0, 1, 2, 3, 255
_PIECE: Final = 64 << 10
_HANDSHAKE_SECONDS: Final = 30.0


class LogBroken(PhaseFailed):
    """A log ended without its container; reading it again may help."""


@dataclass(frozen=True)
class Cluster:
    """Streams of one API server."""

    connection: Connection
    session: aiohttp.ClientSession
    headers: CIMultiDict[str]

    async def exec(
        self,
        namespace: str,
        pod: str,
        container: str,
        command: Sequence[str],
        *,
        stdout: Listener,
        stderr: Listener,
        stdin: IO[bytes] | None = None,
    ) -> int:
        """The exit code of a command in a container; its output goes to the listeners as it comes.

        Raises PhaseFailed if it cannot be started or the stream breaks. Cancelling closes the stream; what the command
        does then is up to the node.
        """
        import aiohttp

        query = [("command", word) for word in command] + [("stdout", "true"), ("stderr", "true")]
        query += [("container", container)] + ([("stdin", "true")] if stdin is not None else [])
        protocols = (WITH_HALF_CLOSE,) if stdin is not None else (WITH_HALF_CLOSE, WITHOUT)
        where = f'container "{container}" of pod "{namespace}/{pod}"'
        try:
            async with (
                asyncio.timeout(_HANDSHAKE_SECONDS) as handshake,
                self.session.ws_connect(
                    self._url(namespace, pod, "exec", query),
                    protocols=protocols,
                    headers=self.headers,
                    max_msg_size=0,
                    **self._named(),
                ) as socket,
            ):
                handshake.reschedule(None)
                feeding = asyncio.create_task(_feed(socket, stdin)) if stdin is not None else None
                try:
                    return await _listen(socket, stdout, stderr, where)
                finally:
                    if feeding is not None:
                        feeding.cancel()
                        await asyncio.gather(feeding, return_exceptions=True)
        except aiohttp.WSServerHandshakeError as error:
            raise PhaseFailed(f"cannot run a command in {where}: HTTP {error.status} {error.message}") from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise PhaseFailed(f"cannot run a command in {where}: {str(error) or type(error).__name__}") from error

    async def follow_log(self, namespace: str, pod: str, container: str, listener: Listener) -> None:
        """Pass on what a container prints, from its start until it ends. Raises LogBroken if the stream does first."""
        import aiohttp

        from planform.client.transport import error_of

        query = [("container", container), ("follow", "true")]
        try:
            async with self.session.get(
                self._url(namespace, pod, "log", query), headers=self.headers, **self._named()
            ) as response:
                if response.status >= 400:
                    raise error_of(response.status, await response.read(), f"log of pod {namespace}/{pod}")
                async for chunk in response.content.iter_any():
                    listener(chunk)
        except aiohttp.ClientError as error:
            raise LogBroken(f'the log of pod "{namespace}/{pod}" broke off: {error}') from error

    def _url(self, namespace: str, pod: str, what: str, query: Sequence[tuple[str, str]]) -> URL:
        from yarl import URL

        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/{what}"
        return URL(self.connection.server + path, encoded=True).with_query(query)

    def _named(self) -> dict[str, Any]:
        name = self.connection.tls_server_name
        return {"server_hostname": name} if name else {}


@asynccontextmanager
async def open_cluster(context: PhaseContext) -> AsyncIterator[Cluster]:
    """The cluster that the phase runs in. Raises PhaseFailed where there is none."""
    import aiohttp
    from multidict import CIMultiDict

    from planform.client.transport import tls_context

    connection = context.here.connection
    if connection is None:
        raise PhaseFailed(f"{context.function} needs a Kubernetes cluster, and this control plane has none")
    identity = await connection.credentials.current()
    trust = tls_context(connection, identity) if connection.server.startswith("https:") else True
    headers = CIMultiDict([("User-Agent", "planform")])
    if identity.authorization:
        headers.add("Authorization", identity.authorization)
    if context.author is not None:
        headers.extend(impersonation_headers(context.author))
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, ssl=trust), timeout=timeout) as session:
        yield Cluster(connection, session, headers)


async def _feed(socket: aiohttp.ClientWebSocketResponse, source: IO[bytes]) -> None:
    while piece := await asyncio.to_thread(source.read, _PIECE):
        await socket.send_bytes(bytes([_STDIN]) + piece)
    await socket.send_bytes(bytes([_CLOSE, _STDIN]))


async def _listen(socket: aiohttp.ClientWebSocketResponse, stdout: Listener, stderr: Listener, where: str) -> int:
    from aiohttp import WSMsgType

    status: dict[str, Any] | None = None
    async for message in socket:
        if message.type is not WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel == _STDOUT and data:
            stdout(data)
        elif channel == _STDERR and data:
            stderr(data)
        elif channel == _ERROR and data:
            status = orjson.loads(data)
    if status is None:
        raise PhaseFailed(f"the stream of {where} broke off before the command ended")
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise PhaseFailed(f"the command in {where} failed: {status.get('message') or status.get('reason')}")
