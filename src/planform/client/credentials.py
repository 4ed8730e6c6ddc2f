"""Who we are to an API server: a token, a token file that is rotated, a certificate, or a program that knows.

`current` gives what to present now and `renew` what to present after the server has refused that with 401. Nothing
here prints a secret: their fields are left out of every repr.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import orjson

from planform.clock import Clock, parse_timestamp
from planform.errors import Unauthorized

TOKEN_FILE_SECONDS = 60.0
"""A token file is read again after so long; the kubelet replaces it long before the token in it expires."""

EXEC_SECONDS = 60.0
"""A credential plugin that has not answered by then is ended."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What is presented to the server: an Authorization header, a client certificate, both or neither."""

    authorization: str = field(default="", repr=False)
    certificate: bytes = field(default=b"", repr=False)  # PEM, the chain
    key: bytes = field(default=b"", repr=False)  # PEM


class Credentials(Protocol):
    """Where an identity comes from."""

    async def current(self) -> Identity: ...

    async def renew(self) -> Identity | None:
        """Another identity after this one was refused; None if there is no other."""
        ...


@dataclass(frozen=True, slots=True)
class FixedCredentials:
    """An identity that never changes."""

    identity: Identity

    async def current(self) -> Identity:
        return self.identity

    async def renew(self) -> Identity | None:
        return None


class TokenFile:
    """A bearer token in a file that somebody else keeps fresh."""

    def __init__(self, path: Path, *, clock: Clock, base: Identity) -> None:
        self._path = path
        self._clock = clock
        self._base = base
        self._identity: Identity | None = None
        self._read_at = 0.0

    async def current(self) -> Identity:
        if self._identity is not None and self._clock.monotonic() - self._read_at < TOKEN_FILE_SECONDS:
            return self._identity
        return self._read()

    async def renew(self) -> Identity | None:
        before = self._identity
        after = self._read()
        return after if after != before else None

    def _read(self) -> Identity:
        try:
            token = self._path.read_text().strip()
        except OSError as error:
            raise Unauthorized(f"cannot read the token file {self._path}: {error.strerror}") from error
        if not token:
            raise Unauthorized(f"the token file {self._path} is empty")
        self._identity = Identity(f"Bearer {token}", self._base.certificate, self._base.key)
        self._read_at = self._clock.monotonic()
        return self._identity


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A credential plugin as a kubeconfig names it; `cluster` is what it is told about the server, if it asked."""

    api_version: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = None


class ExecCredentials:
    """An identity that a program gives out, kept until it expires. Callers that come together share one run."""

    def __init__(self, plugin: ExecPlugin, *, clock: Clock) -> None:
        self._plugin = plugin
        self._clock = clock
        self._identity: Identity | None = None
        self._expires: datetime | None = None
        self._running = asyncio.Lock()

    async def current(self) -> Identity:
        async with self._running:
            if self._identity is None or (self._expires is not None and self._clock.now() >= self._expires):
                await self._run()
            assert self._identity is not None
            return self._identity

    async def renew(self) -> Identity | None:
        refused = self._identity
        async with self._running:
            if self._identity is refused:
                await self._run()
            return self._identity

    async def _run(self) -> None:
        plugin = self._plugin
        info: dict[str, Any] = {
            "apiVersion": plugin.api_version,
            "kind": "ExecCredential",
            "spec": {"interactive": False},
        }
        if plugin.cluster is not None:
            info["spec"]["cluster"] = dict(plugin.cluster)
        env = {**os.environ, **plugin.env, "KUBERNETES_EXEC_INFO": orjson.dumps(info).decode()}
        try:
            process = await asyncio.create_subprocess_exec(
                plugin.command,
                *plugin.args,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=env,
            )
        except OSError as error:
            raise Unauthorized(
                f"cannot run the credential plugin {plugin.command}: {error.strerror}", hint=plugin.install_hint or None
            ) from error
        try:
            async with asyncio.timeout(EXEC_SECONDS):
                output, stderr = await process.communicate()
        except TimeoutError as error:
            raise self._unusable(f"gave no answer within {EXEC_SECONDS:g} s") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            last = (stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
            raise self._unusable(f"failed with exit code {process.returncode}: {last}")
        self._accept(output)

    def _accept(self, output: bytes) -> None:
        try:
            answer = orjson.loads(output)
            kind, version, status = answer["kind"], answer["apiVersion"], answer.get("status") or {}
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise self._unusable("did not answer with an ExecCredential") from error
        if (kind, version) != ("ExecCredential", self._plugin.api_version):
            raise self._unusable(f"answered with {kind} {version}, not ExecCredential {self._plugin.api_version}")
        token = str(status.get("token") or "")
        certificate = str(status.get("clientCertificateData") or "").encode()
        key = str(status.get("clientKeyData") or "").encode()
        if not token and not certificate:
            raise self._unusable("gave neither a token nor a certificate")
        if bool(certificate) != bool(key):
            raise self._unusable("gave only one of certificate and key")
        expires = status.get("expirationTimestamp")
        try:
            self._expires = parse_timestamp(expires) if expires else None
        except (ValueError, TypeError) as error:
            raise self._unusable(f"gave an expirationTimestamp that is no time: {expires!r}") from error
        self._identity = Identity(f"Bearer {token}" if token else "", certificate, key)

    def _unusable(self, what: str) -> Unauthorized:
        return Unauthorized(f"the credential plugin {self._plugin.command} {what}")


def basic_authorization(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
