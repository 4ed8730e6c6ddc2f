"""The audit log of a real API server: who wrote what, when, and on which version of it.

Reads are not in it, nor what belongs to no replica of ours. Each line stands when the answer has been sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

WRITES = ("create", "update", "patch", "delete", "deletecollection")
_REPLICA = re.compile(r"planform-controllers/\S+ \((?P<identity>[^)]*)\)")
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "omitManagedFields": True,
    "rules": [
        {"level": "RequestResponse", "verbs": list(WRITES)},
        {"level": "None"},
    ],
}


@dataclass(frozen=True)
class Write:
    """One request that could change something, as the server saw it."""

    verb: str
    replica: str  # the identity of ours that sent it; empty for anybody else
    user: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    received: datetime
    manager: str  # whom the server holds for the owner of the fields
    request: Any
    response: Any

    @property
    def is_bookkeeping(self) -> bool:
        """Leases and Events: beside the work."""
        return self.resource in ("leases.coordination.k8s.io", "events", "events.events.k8s.io")

    @property
    def is_guarded(self) -> bool:
        """Whether it can only hit the object it was decided on: by uid or version, or because it makes a new one."""
        if self.verb == "create" or self.code == 201:
            return True
        body = self.request if isinstance(self.request, dict) else {}
        if self.verb == "delete":
            guards = body.get("preconditions") or {}
            return bool(guards.get("uid") or guards.get("resourceVersion"))
        metadata = body.get("metadata") or {}
        return bool(metadata.get("uid") or metadata.get("resourceVersion"))

    def __str__(self) -> str:
        what = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{self.received:%H:%M:%S.%f} {self.replica} {self.verb} {what} {self.namespace}/{self.name} {self.code}"


class Audit:
    """The log of one cluster; `since` a mark, so that tests can share the cluster."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "audit.log"
        self._policy = directory / "audit-policy.json"

    def flags(self) -> list[str]:
        """What kube-apiserver must be started with."""
        self._policy.parent.mkdir(parents=True, exist_ok=True)
        self._policy.write_text(json.dumps(_POLICY))
        return [f"--audit-policy-file={self._policy}", f"--audit-log-path={self._file}", "--audit-log-mode=blocking"]

    def mark(self) -> int:
        return self._file.stat().st_size if self._file.exists() else 0

    def writes(self, since: int = 0, *, ours: bool = True) -> list[Write]:
        """What was written since the mark, by replicas of ours or by all, Leases and Events included."""
        found = [_write(event) for event in self._events(since)]
        return [write for write in found if write.replica or not ours]

    def work(self, since: int = 0) -> list[Write]:
        """What our replicas wrote, Leases and Events apart."""
        return [write for write in self.writes(since) if not write.is_bookkeeping]

    def _events(self, since: int) -> Iterator[dict[str, Any]]:
        with self._file.open("rb") as file:
            file.seek(since)
            for line in file:
                if line.endswith(b"\n"):
                    yield json.loads(line)


def _write(event: dict[str, Any]) -> Write:
    reference = event.get("objectRef") or {}
    group = reference.get("apiGroup") or ""
    resource = str(reference.get("resource") or "")
    body = event.get("requestObject")
    match = _REPLICA.match(event.get("userAgent") or "")
    name = reference.get("name") or ((event.get("responseObject") or {}).get("metadata") or {}).get("name") or ""
    return Write(
        verb=event["verb"],
        replica=match["identity"] if match else "",
        user=(event.get("user") or {}).get("username") or "",
        resource=f"{resource}.{group}" if group else resource,
        subresource=reference.get("subresource") or "",
        namespace=reference.get("namespace") or "",
        name=name,
        code=int((event.get("responseStatus") or {}).get("code") or 0),
        received=datetime.fromisoformat(event["requestReceivedTimestamp"]),
        manager=parse_qs(urlsplit(event.get("requestURI") or "").query).get("fieldManager", [""])[0],
        request=body,
        response=event.get("responseObject"),
    )


def counted(writes: Sequence[Write]) -> dict[str, int]:
    """How often each kind of write occurs, for messages: `patch widgets.example.org/status`."""
    counts: dict[str, int] = {}
    for write in writes:
        what = f"{write.resource}/{write.subresource}" if write.subresource else write.resource
        counts[f"{write.verb} {what}"] = counts.get(f"{write.verb} {what}", 0) + 1
    return dict(sorted(counts.items()))
