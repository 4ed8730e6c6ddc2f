"""A bench for Operations: functions whose answers a test decides, pipelines of them, and nothing left behind."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.names import CRON_OPERATION, EVENT, OPERATION, WATCH_OPERATION
from planform.client.protocol import Patch, PatchType
from planform.clock import timestamp
from planform.functions.cache import ResponseCache
from planform.functions.inprocess import InProcessRunner
from planform.functions.resolution import Catalogue, Version
from planform.functions.values import FunctionRequest, FunctionResponse, Resource, Result, Severity, respond
from planform.pipeline.running import ClientReader, Pipelines, SecretCredentials, resolver_of
from planform.reconcile.context import ControllerContext
from tests.harness.contexts import condition_of

CONFIG_MAP = GroupVersionKind("", "v1", "ConfigMap")
BOTH = frozenset({"composition", "operation"})
NOON = datetime(2026, 6, 1, 12, 0, 30, tzinfo=UTC)


class Calls:
    """A function whose answers a test decides, one after the other; the last one is repeated."""

    deterministic = True

    def __init__(self, name: str, *answers: Callable[[FunctionRequest], FunctionResponse]) -> None:
        self.name = name
        self.requests: list[FunctionRequest] = []
        self._answers = answers or (respond,)
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def run(self, request: FunctionRequest, /, *, timeout: float, max_answer_size: int = 0) -> FunctionResponse:
        self.requests.append(request)
        if self.meanwhile is not None:
            await self.meanwhile()
        return self._answers[min(len(self.requests), len(self._answers)) - 1](request)


def fatal(message: str) -> Callable[[FunctionRequest], FunctionResponse]:
    return lambda request: dataclasses.replace(respond(request), results=[Result(Severity.FATAL, message)])


def config_map(name: str, *, labels: dict[str, str] | None = None, **data: str) -> Object:
    metadata: Object = {"name": name, "namespace": "default", **({"labels": labels} if labels else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def wanting(*objects: Object, **fields: Any) -> Callable[[FunctionRequest], FunctionResponse]:
    def answer(request: FunctionRequest) -> FunctionResponse:
        response = dataclasses.replace(respond(request), **fields)
        response.desired.resources.update({f"r{index}": Resource(obj) for index, obj in enumerate(objects)})
        return response

    return answer


def pipelines(context: ControllerContext, *functions: Any, capabilities: frozenset[str] | None = BOTH) -> Pipelines:
    catalogue = Catalogue(
        Version(each.name, f"{each.name}-1", number=1, capabilities=capabilities, deterministic=each.deterministic)
        for each in functions
    )
    return Pipelines(
        resolver=resolver_of(lambda: catalogue, context.features),
        runner=InProcessRunner(functions),
        reader=ClientReader(context.client),
        credentials=SecretCredentials(context.client),
        clock=context.clock,
        cache=ResponseCache(context.clock),
    )


def pipeline(function: str, **step: Any) -> Object:
    return {"mode": "Pipeline", "pipeline": [{"step": "only", "functionRef": {"name": function}, **step}]}


def operation(name: str, function: str, *, retry_limit: int | None = None, **step: Any) -> Object:
    spec = pipeline(function, **step) | ({} if retry_limit is None else {"retryLimit": retry_limit})
    return {"apiVersion": OPERATION.api_version, "kind": "Operation", "metadata": {"name": name}, "spec": spec}


async def patched(context: ControllerContext, obj: Object, body: Object, *, subresource: str = "") -> Object:
    metadata = obj["metadata"]
    return await context.client.patch(
        gvk_of(obj),
        metadata["name"],
        Patch(PatchType.MERGE, body),
        namespace=metadata.get("namespace") or "",
        subresource=subresource,
    )


async def stored(context: ControllerContext, obj: Object) -> Object:
    metadata = obj["metadata"]
    return await context.client.get(gvk_of(obj), metadata["name"], namespace=metadata.get("namespace") or "")


def says(obj: Object, type_: str) -> tuple[str, str]:
    """Status and reason of a condition."""
    condition = condition_of(obj, type_) or {}
    return condition.get("status", ""), condition.get("reason", "")


async def operations(context: ControllerContext) -> list[Object]:
    return (await context.client.list(OPERATION)).items


async def said(context: ControllerContext, about: Object) -> list[tuple[str, str, str]]:
    """Type, reason and message of the events about an object."""
    await context.events.written()
    found = (await context.client.list(EVENT, namespace="default")).items
    uid = about["metadata"]["uid"]
    return sorted(
        (event["type"], event["reason"], event["message"])
        for event in found
        if event["involvedObject"].get("uid") == uid
    )


async def finish(context: ControllerContext, name: str, status: str = "True", *, at: datetime = NOON) -> None:
    condition = {
        "type": "Succeeded",
        "status": status,
        "reason": "PipelineSuccess" if status == "True" else "PipelineError",
        "lastTransitionTime": timestamp(at),
    }
    found = await context.client.get(OPERATION, name)
    await patched(context, found, {"status": {"conditions": [condition]}}, subresource="status")


@asynccontextmanager
async def swept(context: ControllerContext, unique: str) -> AsyncIterator[ControllerContext]:
    """Operations are cluster-scoped, and a test's functions are gone after it: nothing of it may stay."""
    yield context
    for name in context.manager.names:
        if name.partition("/")[0] in ("operations", "cronoperations", "watchoperations"):
            await context.manager.stop(name)
    for kind in (CRON_OPERATION, WATCH_OPERATION, OPERATION):
        await context.client.delete_collection(kind)
    for found in (await context.client.list(CONFIG_MAP, namespace="default")).items:
        if found["metadata"]["name"].startswith(unique):
            await context.client.delete(CONFIG_MAP, found["metadata"]["name"], namespace="default")
