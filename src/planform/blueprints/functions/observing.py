"""Objects that phases name, and waiting until something holds of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple

from planform.api.builtin import BUILTIN_KINDS
from planform.api.kinds import GroupVersionKind
from planform.api.names import CRD
from planform.blueprints.contract import PhaseContext
from planform.blueprints.errors import ArgumentInvalid, PhaseFailed
from planform.client.protocol import Client
from planform.client.waits import time_limit
from planform.errors import ApiError, NotFound

LOOK_AGAIN_SECONDS: Final = 5.0
"""Conditions may depend on the time, and kinds may appear that nobody watches yet."""

_PLURALS: Final = {(kind.group, kind.plural): kind.kind for kind in BUILTIN_KINDS}
_GROUPS: Final = {kind.plural: kind.group for kind in BUILTIN_KINDS}


class Reference(NamedTuple):
    """One object."""

    gvk: GroupVersionKind
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        return f'{self.gvk.kind} "{self.namespace}/{self.name}"' if self.namespace else f'{self.gvk.kind} "{self.name}"'


async def reference(context: PhaseContext, given: Mapping[str, Any], *, of: str, namespace: str = "") -> Reference:
    """The object that `{apiVersion, group, resource or kind, name, namespace}` means.

    `apiVersion` is a version, or a group with its version as objects have it. Raises ArgumentInvalid for what names
    nothing, and NotFound if no such kind is served.
    """
    fields = {
        key: str(given.get(key) or "") for key in ("apiVersion", "group", "resource", "kind", "name", "namespace")
    }
    if not fields["name"]:
        raise ArgumentInvalid(f"{of}: an object reference needs a name")
    group_in_version, slash, version = fields["apiVersion"].rpartition("/")
    resource = fields["resource"]
    group = fields["group"] or (group_in_version if slash else "")
    version = version or "v1"
    kind = fields["kind"]
    if not kind:
        if not resource:
            raise ArgumentInvalid(f'{of}: the reference to "{fields["name"]}" needs a resource or a kind')
        kind = await _kind(context.client, group, resource)
    served = await context.client.kind(GroupVersionKind(group, version, kind))
    return Reference(served.gvk, fields["name"], (fields["namespace"] or namespace) if served.namespaced else "")


async def _kind(client: Client, group: str, resource: str) -> str:
    """The kind behind a plural; what is not built in has a CRD that tells."""
    found = _PLURALS.get((group, resource))
    if found is not None:
        return found
    if not group:
        other = _GROUPS.get(resource)
        raise NotFound(
            f'no kind is called "{resource}" in the core group',
            hint=f"set group: {other}" if other else "set the resource's group",
        )
    crd = await client.get(CRD, f"{resource}.{group}")
    return str(crd["spec"]["names"]["kind"])


async def until(
    context: PhaseContext,
    objects: Iterable[Reference],
    holds: Callable[[], Awaitable[bool]],
    *,
    seconds: float,
    what: Callable[[], str],
) -> None:
    """Wait until `holds` says so, asked after every change of one of the objects. Raises PhaseFailed with `what`."""
    changed = asyncio.Event()
    try:
        async with time_limit(context.clock, seconds), AsyncExitStack() as stack:
            for each in sorted(set(objects)):
                watching = asyncio.create_task(_watch(context, each, changed), name=f"watch {each}")
                stack.push_async_callback(_ended, watching)
            while True:
                changed.clear()
                if await holds():
                    return
                await _either(changed, context)
    except TimeoutError as error:
        raise PhaseFailed(f"not within {seconds:g} s: {what()}") from error


async def _either(changed: asyncio.Event, context: PhaseContext) -> None:
    """Wait for a change, or a while."""
    waits = {asyncio.create_task(changed.wait()), asyncio.create_task(context.clock.sleep(LOOK_AGAIN_SECONDS))}
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()


async def _watch(context: PhaseContext, target: Reference, changed: asyncio.Event) -> None:
    while True:
        try:
            async with context.client.watch(
                target.gvk, namespace=target.namespace, fields=f"metadata.name={target.name}"
            ) as events:
                async for _ in events:
                    changed.set()
        except ApiError:
            pass  # `holds` looks for itself now and then, and meets the same error
        await context.clock.sleep(1.0)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
