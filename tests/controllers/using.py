"""Resources, and Usages of them: made, marked, deleted, and a bench whose admission chain has the guard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from planform.api.kinds import Object, gvk_of
from planform.api.names import CLUSTER_NOP_RESOURCE, CLUSTER_USAGE, NOP_RESOURCE, USAGE
from planform.client.protocol import Patch, PatchType, Propagation
from planform.clock import Clock
from planform.reconcile.context import ControllerContext
from planform.usages.controller import UsageController, UsageGuard
from planform.usages.usages import ATTEMPT_ANNOTATION, IN_USE_LABEL
from tests.harness.contexts import embedded_context, eventually, read

HOLD = "test.planform.dev/hold"


def nop(name: str, namespace: str = "default", **metadata: Any) -> Object:
    kind = NOP_RESOURCE if namespace else CLUSTER_NOP_RESOURCE
    place = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, **place, **metadata},
        "spec": {"forProvider": {}},
    }


def side(name: str = "", *, cluster: bool = False, namespace: str = "", **selector: Any) -> Object:
    kind = CLUSTER_NOP_RESOURCE if cluster else NOP_RESOURCE
    found: Object = {"apiVersion": kind.api_version, "kind": kind.kind}
    elsewhere = {"namespace": namespace} if namespace else {}
    if name:
        found["resourceRef"] = {"name": name, **elsewhere}
    if selector:
        found["resourceSelector"] = {**selector, **elsewhere}
    return found


def usage(name: str, *, cluster: bool = False, labels: Object | None = None, **spec: Any) -> Object:
    kind = CLUSTER_USAGE if cluster else USAGE
    place = {} if cluster else {"namespace": "default"}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "labels": labels or {}, **place},
        "spec": spec,
    }


async def pair(context: ControllerContext, unique: str, namespace: str = "default") -> tuple[Object, Object]:
    """Something to use and its user: `<unique>-of` and `<unique>-by`."""
    used = await context.client.create(nop(f"{unique}-of", namespace))
    return used, await context.client.create(nop(f"{unique}-by", namespace))


async def stored(context: ControllerContext, obj: Object) -> Object | None:
    metadata = obj["metadata"]
    return await read(context.client, gvk_of(obj), metadata["name"], metadata.get("namespace") or "")


async def merged(context: ControllerContext, obj: Object, body: Object) -> Object:
    metadata = obj["metadata"]
    return await context.client.patch(
        gvk_of(obj), metadata["name"], Patch(PatchType.MERGE, body), namespace=metadata.get("namespace") or ""
    )


async def deleted(context: ControllerContext, obj: Object, propagation: Propagation | None = None) -> None:
    metadata = obj["metadata"]
    await context.client.delete(
        gvk_of(obj), metadata["name"], namespace=metadata.get("namespace") or "", propagation=propagation
    )


async def until_gone(context: ControllerContext, obj: Object) -> None:
    async def gone() -> bool:
        return await stored(context, obj) is None

    await eventually(gone, f"{obj['kind']} {obj['metadata']['name']} is gone")


async def until_marked(context: ControllerContext, obj: Object, marked: bool = True) -> Object:
    async def check() -> Object | None:
        found = await stored(context, obj)
        return found if found and is_marked(found) is marked else None

    return await eventually(check, f"{obj['metadata']['name']} is {'' if marked else 'not '}marked as in use")


def is_marked(obj: Object) -> bool:
    return (obj["metadata"].get("labels") or {}).get(IN_USE_LABEL) == "true"


def attempt(obj: Object | None) -> str | None:
    assert obj is not None
    found: str | None = (obj["metadata"].get("annotations") or {}).get(ATTEMPT_ANNOTATION)
    return found


async def idle(rounds: int = 100) -> None:
    """Let everything that can happen without time passing happen."""
    for _ in range(rounds):
        await asyncio.sleep(0.001)


@asynccontextmanager
async def guarded(directory: Path | None = None, *, clock: Clock | None = None) -> AsyncIterator[ControllerContext]:
    guard = UsageGuard()
    async with embedded_context(directory, clock=clock, admission=[guard]) as context:
        UsageController(context, guard).start()
        yield context
