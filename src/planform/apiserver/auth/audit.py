"""The audit log: one JSON line for each request, who did what to which object and how it ended.

Events have the shape of audit.k8s.io/v1 at level Metadata: no bodies, so no secrets. The loop only notes the facts;
encoding and writing happen in a thread. When the disk is slower than the requests, at most `buffered` events wait and
later ones are lost, counted and logged: an audit log must not stop the control plane, nor pretend to be complete.
"""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec
import orjson

from planform.apiserver.auth.authentication import ImpersonatingUser
from planform.apiserver.auth.private_files import make_private_directory
from planform.apiserver.auth.reviews import user_info
from planform.apiserver.verbs.requests import Attributes, User
from planform.clock import Clock, micro_timestamp

if TYPE_CHECKING:
    from planform.apiserver.wire.http import HttpRequest, HttpResponse

log = logging.getLogger(__name__)

_MAX_URI_LENGTH = 4096
_MAX_AGENT_LENGTH = 256


class _Facts(NamedTuple):
    """What is noted on the loop; everything else is derived from it in the thread."""

    answered: datetime
    method: str
    target: bytes
    agent: bytes
    remote: str
    user: User
    attributes: Attributes | None
    status: int
    reason: str
    streams: bool
    annotations: Mapping[str, str]


class _Failure(msgspec.Struct):
    reason: str = ""


_decode_failure = msgspec.json.Decoder(_Failure).decode


class AuditLog:
    """An Observer that writes. Enter it to start, leave it to write what waits and stop."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        max_bytes: int = 100 << 20,
        backups: int = 10,
        buffered: int = 10_000,
    ) -> None:
        self._path = path
        self._clock = clock
        self._max_bytes = max_bytes
        self._backups = backups
        self._buffered = buffered
        self._waiting: list[_Facts] = []
        self._wake = asyncio.Event()
        self._written = asyncio.Event()
        self._written.set()
        self._closing = False
        self._task: asyncio.Task[None] | None = None
        self.lost = 0
        """Events that were never written, since the start."""

    async def __aenter__(self) -> Self:
        make_private_directory(self._path.parent)
        self._task = asyncio.create_task(self._write_all(), name="audit log")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await self._task

    def answered(
        self, request: HttpRequest, user: User, attributes: Attributes | None, response: HttpResponse, /
    ) -> None:
        """Note a request; never waits."""
        if len(self._waiting) >= self._buffered:
            self.lost += 1
            return
        self._waiting.append(
            _Facts(
                self._clock.now(),
                request.method,
                request.target[:_MAX_URI_LENGTH],
                request.headers.get(b"user-agent", b"")[:_MAX_AGENT_LENGTH],
                request.remote,
                user,
                attributes,
                response.status,
                _reason(response) if response.status >= 400 else "",
                response.chunks is not None,
                response.annotations,
            )
        )
        self._written.clear()
        self._wake.set()

    async def flush(self) -> None:
        """Wait until everything noted so far has been written or was lost."""
        await self._written.wait()

    async def _write_all(self) -> None:
        reported = 0
        while not self._closing or self._waiting:
            await self._wake.wait()
            self._wake.clear()
            batch, self._waiting = self._waiting, []
            if batch:
                try:
                    await asyncio.to_thread(self._append, batch)
                except OSError as error:
                    self.lost += len(batch)
                    log.error("cannot write the audit log %s: %s", self._path, error)
            if self.lost > reported:
                log.warning("the audit log lacks %d events", self.lost - reported)
                reported = self.lost
            if not self._waiting:
                self._written.set()
            if self._closing:
                self._wake.set()

    # -- in the thread

    def _append(self, batch: list[_Facts]) -> None:
        content = b"".join(orjson.dumps(_event(facts), option=orjson.OPT_APPEND_NEWLINE) for facts in batch)
        if self._path.exists() and self._path.stat().st_size + len(content) > self._max_bytes:
            self._rotate()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(content)

    def _rotate(self) -> None:
        """`audit.log` becomes `audit.log.1`, and so on; the oldest goes."""
        for number in range(self._backups, 0, -1):
            older = self._numbered(number)
            newer = self._numbered(number - 1) if number > 1 else self._path
            if newer.exists():
                newer.replace(older)
        if not self._backups:
            self._path.unlink(missing_ok=True)

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


def _event(facts: _Facts) -> dict[str, Any]:
    moment = micro_timestamp(facts.answered)
    user, attributes = facts.user, facts.attributes
    real = user.by if isinstance(user, ImpersonatingUser) else user
    event: dict[str, Any] = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": str(uuid.uuid4()),
        "stage": "ResponseStarted" if facts.streams else "ResponseComplete",
        "requestURI": facts.target.decode("utf-8", "replace"),
        "verb": attributes.verb if attributes is not None else facts.method.lower(),
        "user": user_info(real),
    }
    if real is not user:
        event["impersonatedUser"] = user_info(user)
    if facts.remote:
        event["sourceIPs"] = [facts.remote]
    if facts.agent:
        event["userAgent"] = facts.agent.decode("utf-8", "replace")
    if attributes is not None and not attributes.path:
        event["objectRef"] = _object_ref(attributes)
    outcome: dict[str, Any] = {"metadata": {}, "code": facts.status}
    if facts.status >= 400:
        outcome["status"] = "Failure"
    if facts.reason:
        outcome["reason"] = facts.reason
    event["responseStatus"] = outcome
    if facts.annotations:
        event["annotations"] = dict(facts.annotations)
    event["requestReceivedTimestamp"] = moment
    event["stageTimestamp"] = moment
    return event


def _object_ref(attributes: Attributes) -> dict[str, str]:
    fields = {
        "resource": attributes.resource,
        "namespace": attributes.namespace,
        "name": attributes.name,
        "apiGroup": attributes.group,
        "apiVersion": attributes.version,
        "subresource": attributes.subresource,
    }
    return {name: value for name, value in fields.items() if value}


def _reason(response: HttpResponse) -> str:
    """Why it failed, as the Status says; not its message, which may quote a value that was sent."""
    try:
        return _decode_failure(response.body).reason
    except msgspec.DecodeError:
        return ""
