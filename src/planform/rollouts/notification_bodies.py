"""What is told about a Rollout, to whom and when: decided from its status alone. Pure.

Events are levels, not edges: whatever a status says has happened and was not told yet is due, so that a restart loses
nothing. Each has an id that stays the same however often it is sent.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import orjson

from planform.api.rollout_gates import Notification, NotificationEvent
from planform.api.rollouts import Rollout, RolloutStatus

SIGNATURE_HEADER: Final = "X-Planform-Signature"
TIMESTAMP_HEADER: Final = "X-Planform-Timestamp"
EVENT_HEADER: Final = "X-Planform-Event"
ID_HEADER: Final = "Idempotency-Key"
_QUIET: Final = frozenset({"Concurrency"})
"""What a Rollout waits for without anybody's doing."""
_MARKS: Final = {"Completed": "✅", "Failed": "❌", "Aborted": "↩️", "Waiting": "✋", "Started": "▶️"}


@dataclass(frozen=True)
class Happened:
    """Something that happened to a Rollout; `about` tells two of the same kind apart."""

    event: NotificationEvent
    text: str
    about: str = ""


@dataclass(frozen=True)
class Delivery:
    """One thing to be told to one receiver; `id` is what the receiver knows a repetition by."""

    id: str
    happened: Happened
    notification: Notification
    index: int


def happened(rollout: Rollout) -> Iterator[Happened]:
    """All that the status of a Rollout says has happened."""
    status = rollout.status
    if not status:
        return
    phase, name = rollout.phase, _shown(rollout)
    if status.started:
        yield Happened("Started", f"{name} started: {_xrs(status)}")
    position = status.wave
    place = f"{position.name}/{position.part}" if position else ""
    if status.waiting and status.waiting.for_ not in _QUIET and phase in ("AwaitingApproval", "Running", "Paused"):
        what = status.waiting.for_
        yield Happened("Waiting", f"{name} waits for {what}: {status.waiting.message}", f"{what}/{place}")
    elif phase == "Paused":
        reason = status.reason or "Paused"
        yield Happened("Waiting", f"{name} is paused: {status.message or reason}", f"{reason}/{place}")
    if status.reason == "Failed" and phase in ("Paused", "Aborting", "Aborted", "Failed"):
        yield Happened("Failed", f"{name} failed: {status.message or 'no reason'}", place)
    elif phase == "Failed":
        yield Happened("Failed", f"{name} failed: {status.message or status.reason or 'no reason'}", place)
    if phase in ("Aborted", "Undone"):
        yield Happened("Aborted", f"{name} was {phase.lower()}: {status.message or 'everything is back'}", phase)
    if phase == "Completed":
        yield Happened("Completed", f"{name} completed: {_xrs(status)}")


def due(rollout: Rollout, delivered: frozenset[str]) -> list[Delivery]:
    """What is to be told and was not yet."""
    found: list[Delivery] = []
    for index, notification in enumerate(rollout.spec.strategy.notify or ()):
        for each in happened(rollout):
            if notification.on and each.event not in notification.on:
                continue
            id_ = delivery_id(rollout, index, each)
            if id_ not in delivered:
                found.append(Delivery(id_, each, notification, index))
    return found


def delivery_id(rollout: Rollout, index: int, event: Happened) -> str:
    """Short, since a Rollout keeps those that were delivered."""
    parts = (rollout.metadata.uid, str(index), event.event, event.about)
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=9).hexdigest()


def body_of(delivery: Delivery, rollout: Rollout, *, time: str) -> bytes:
    """What is sent: for Slack and those like it a text alone, else all there is to know."""
    text = f"{_MARKS[delivery.happened.event]} {delivery.happened.text}"
    if delivery.notification.format == "Slack":
        return orjson.dumps({"text": _escaped(text)})
    status = rollout.status or RolloutStatus()
    body: dict[str, Any] = {
        "id": delivery.id,
        "event": delivery.happened.event,
        "text": text,
        "time": time,
        "rollout": rollout.metadata.name,
        "policy": rollout.spec.policy or "",
        "phase": rollout.phase,
        "changes": [msgspec.to_builtins(each) for each in rollout.spec.changes],
        "wave": msgspec.to_builtins(status.wave) if status.wave else None,
        "counts": msgspec.to_builtins(status.counts) if status.counts else None,
        "message": status.message or "",
    }
    return orjson.dumps(body)


def signature(key: str, stamp: str, body: bytes) -> str:
    """What the header says: over the time as well, so that an old request cannot be sent again as a new one."""
    return "sha256=" + hmac.new(key.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def _shown(rollout: Rollout) -> str:
    compositions = ", ".join(each.composition for each in rollout.spec.changes[:3])
    more = f" and {len(rollout.spec.changes) - 3} more" if len(rollout.spec.changes) > 3 else ""
    return f"Rollout {rollout.metadata.name} of {compositions}{more}"


def _xrs(status: RolloutStatus) -> str:
    counts = status.counts
    return f"{counts.target} of {counts.xrs} XRs moved, {counts.failed} failed" if counts else "no XRs counted yet"


def _escaped(text: str) -> str:
    """Slack takes these for links and mentions, which a name or a message must not make."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
