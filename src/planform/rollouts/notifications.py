"""Tells people and their tools about Rollouts, by signed webhooks.

A loop of its own beside that of Rollouts, so that no receiver holds up a Rollout. What was delivered is recorded on the
Rollout, after it was: a crash in between sends it again, with the same id. What cannot be delivered is tried again,
less and less often; then it is given up, which an event says. No secret and no address of a Secret is in any message.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from planform.api.kinds import Object
from planform.api.names import ROLLOUT
from planform.api.objects import ObjectMeta
from planform.api.rollouts import Rollout
from planform.client.informer import ObjectKey
from planform.client.protocol import Patch, PatchType
from planform.client.web_requests import AddressRefused, RequestFailed, WebRequest, shown
from planform.clock import timestamp
from planform.errors import NotFound, PlanformError
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Result
from planform.reconcile.sources import Source, to_self
from planform.rollouts.gates.tools import GateTools, SecretUnusable
from planform.rollouts.notification_bodies import (
    EVENT_HEADER,
    ID_HEADER,
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    Delivery,
    body_of,
    due,
    signature,
)

NAME: Final = "rolloutnotifications"
MANAGER: Final = f"planform-{NAME}"
DELIVERED_ANNOTATION: Final = "rollout.planform.dev/notified"
"""Ids of what was told, or given up."""
ATTEMPTS: Final = 8
FIRST_PAUSE: Final = 2.0
LAST_PAUSE: Final = 300.0
_SECONDS: Final = 10.0
_KEPT: Final = 200
_RETRIED: Final = frozenset({408, 425, 429})


class DeliveryFailed(PlanformError):
    """A receiver did not take a notification. `for_good`: asking again would not help."""

    reason = "DeliveryFailed"

    def __init__(self, message: str, *, for_good: bool = False) -> None:
        super().__init__(message)
        self.for_good = for_good


class NotificationController:
    """Delivers what is due, for every Rollout whose policy names receivers."""

    def __init__(self, context: ControllerContext, tools: GateTools) -> None:
        self._context = context
        self._tools = tools
        self._attempts: dict[str, int] = {}
        self._sent = context.metrics.counter(
            "planform_rollout_notifications_total", "Notifications about Rollouts.", ["event", "outcome"]
        )

    def start(self) -> None:
        self._context.manager.start(self._context.controller(NAME, self.reconcile), [Source(ROLLOUT, to_self)])

    async def reconcile(self, key: ObjectKey) -> Result:
        try:
            stored = await self._context.client.get(ROLLOUT, key.name)
        except NotFound:
            return Result()
        rollout = msgspec.convert(stored, Rollout, strict=False)
        if not rollout.spec.strategy.notify:
            return Result()
        delivered = _delivered(rollout.metadata)
        waiting = due(rollout, frozenset(delivered))
        if not waiting:
            return Result()
        outcomes = await asyncio.gather(*(self._try(stored, rollout, each) for each in waiting))
        done = [each.id for each, is_done in zip(waiting, outcomes, strict=True) if is_done]
        if done:
            await self._record(rollout.metadata, [*delivered, *done][-_KEPT:])
            for each in done:
                self._attempts.pop(each, None)
        left = [self._pause(each.id) for each in waiting if each.id not in done]
        return Result(requeue_after=min(left, default=None))

    async def _record(self, metadata: ObjectMeta, ids: list[str]) -> None:
        """Nobody else writes this annotation, so that it is written over whatever changed meanwhile: a Rollout that
        moves is written often, and what was delivered should not be again."""
        noted = {"uid": metadata.uid, "annotations": {DELIVERED_ANNOTATION: " ".join(ids)}}
        change = Patch(PatchType.MERGE, {"metadata": noted})
        try:
            await self._context.client.patch(ROLLOUT, metadata.name, change, manager=MANAGER)
        except NotFound:
            pass

    def _pause(self, id_: str) -> float:
        return min(FIRST_PAUSE * 2.0 ** (self._attempts.get(id_, 1) - 1), LAST_PAUSE)

    async def _try(self, stored: Object, rollout: Rollout, delivery: Delivery) -> bool:
        """Whether it was delivered, or given up."""
        event = delivery.happened.event
        try:
            await deliver(delivery, stored, rollout, self._tools)
        except DeliveryFailed as error:
            tries = self._attempts[delivery.id] = self._attempts.get(delivery.id, 0) + 1
            if tries < ATTEMPTS and not error.for_good:
                self._sent.labels(event, "retried").inc()
                return False
            self._sent.labels(event, "given_up").inc()
            message = f"notify[{delivery.index}] was not told of {event}: {error}"
            self._context.events.record(stored, "Warning", "NotificationFailed", message, by=NAME)
            return True
        self._sent.labels(event, "delivered").inc()
        return True


async def deliver(delivery: Delivery, stored: Object, rollout: Rollout, tools: GateTools) -> None:
    """Send one notification once. Raises DeliveryFailed."""
    from planform.client.guarded_http import send  # takes long to import

    notification = delivery.notification
    try:
        held = await tools.secret(stored, notification.secret_ref) if notification.secret_ref else {}
    except SecretUnusable as error:
        raise DeliveryFailed(str(error)) from error
    url = notification.url or held.get("url", "").strip()
    # An address that comes from a Secret is one: only its receiver may see it.
    receiver = shown(url) if notification.url else "the receiver"
    if not url:
        raise DeliveryFailed('there is no address: neither "url" nor a Secret with "url"')
    now = tools.clock.now()
    body, stamp = body_of(delivery, rollout, time=timestamp(now)), str(int(now.timestamp()))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "planform",
        EVENT_HEADER: delivery.happened.event,
        ID_HEADER: delivery.id,
        TIMESTAMP_HEADER: stamp,
    }
    if key := held.get("key"):
        headers[SIGNATURE_HEADER] = signature(key, stamp, body)
    request = WebRequest(
        url=url,
        method="POST",
        headers=headers,
        body=body,
        seconds=_SECONDS,
        max_bytes=65536,
        ca_bundle=notification.ca_bundle or "",
    )
    try:
        answer = await send(request, tools.reach)
    except AddressRefused as error:
        hint = f" ({error.hint})" if error.hint else ""
        raise DeliveryFailed(
            f"{error}{hint}" if notification.url else "its address may not be called", for_good=True
        ) from error
    except RequestFailed as error:
        raise DeliveryFailed(str(error) if notification.url else f"{receiver}: {error.reason}") from error
    if not 200 <= answer.status < 300:
        permanent = 300 <= answer.status < 500 and answer.status not in _RETRIED
        raise DeliveryFailed(f"{receiver} answered {answer.status}", for_good=permanent)


def _delivered(metadata: ObjectMeta) -> list[str]:
    return metadata.annotation(DELIVERED_ANNOTATION).split()
