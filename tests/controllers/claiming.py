"""Databases that are offered to namespaces, for the tests of claims on both engines.

The tests play the part of the XR's own controller: they write its status and its Secret.
"""

from __future__ import annotations

import uuid
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from planform.api.kinds import Object, gvk_of
from planform.api.names import COMPOSITE_MANAGER, CONNECTION_SECRET_TYPE, EVENT
from planform.claims.claims import Offer, offer_of, xr_name
from planform.claims.controller import ClaimController, ClaimControllers, controller_name
from planform.client.informer import ObjectKey
from planform.client.protocol import Client, Patch, PatchType
from planform.definitions.crds import claim_crd, composite_crd
from planform.errors import AlreadyExists, NotFound
from planform.reconcile.context import ControllerContext
from tests.harness.contexts import eventually, read, until_condition

GROUP: Final = f"t{uuid.uuid4().hex[:8]}.example.org"
NAME: Final = f"xdatabases.{GROUP}"


def xrd(*, referenceable: str = "v1", generation: int = 1, **spec: Any) -> Object:
    properties = {
        "spec": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"size": {"type": "integer"}, "region": {"type": "string"}},
        },
        "status": {"type": "object", "properties": {"address": {"type": "string"}, "nodes": {"type": "integer"}}},
    }
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    versions = [
        {"name": name, "served": True, "referenceable": name == referenceable, "schema": schema}
        for name in ("v1", "v2")
    ]
    return {
        "apiVersion": "apiextensions.crossplane.io/v1",
        "kind": "CompositeResourceDefinition",
        "metadata": {"name": NAME, "uid": "0a", "generation": generation},
        "spec": {
            "group": GROUP,
            "names": {"kind": "XDatabase", "plural": "xdatabases"},
            "claimNames": {"kind": "Database", "plural": "databases"},
            "versions": versions,
            **spec,
        },
    }


@dataclass
class Databases:
    """Databases are offered in one namespace; their claims are looked after."""

    context: ControllerContext
    controllers: ClaimControllers
    namespace: str
    offer: Offer

    @property
    def client(self) -> Client:
        return self.context.client

    def key(self, claim: Object) -> ObjectKey:
        return ObjectKey(self.namespace, claim["metadata"]["name"])

    def controller(self, client: Client | None = None) -> ClaimController:
        """A controller to be driven by hand."""
        context = self.context if client is None else replace(self.context, client=client)
        return ClaimController(context, self.offer, controller_name(NAME))

    async def stop(self) -> None:
        await self.controllers.stop(NAME)

    async def start(self, definition: Object | None = None) -> None:
        await self.controllers.start(definition or xrd())
        await self.context.manager.synced(controller_name(NAME))

    async def claim(self, name: str, spec: Object | None = None, **metadata: Any) -> Object:
        kind = self.offer.claim
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec or {}}
        body["metadata"] = {"name": name, "namespace": self.namespace, **metadata}
        return await self.client.create(body)

    async def xr(self, name: str, spec: Object | None = None, **metadata: Any) -> Object:
        kind = self.offer.composite
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec or {}}
        return await self.client.create({**body, "metadata": {"name": name, **metadata}}, manager="somebody")

    async def merge(self, obj: Object, body: Object, *, subresource: str = "", manager: str = "") -> Object:
        metadata = obj["metadata"]
        return await self.client.patch(
            gvk_of(obj),
            metadata["name"],
            Patch(PatchType.MERGE, body),
            namespace=metadata.get("namespace") or "",
            subresource=subresource,
            manager=manager,
        )

    async def now(self, obj: Object) -> Object:
        found = await self.find(obj)
        assert found is not None, obj["metadata"]["name"]
        return found

    async def find(self, obj: Object) -> Object | None:
        metadata = obj["metadata"]
        return await read(self.client, gvk_of(obj), metadata["name"], metadata.get("namespace") or "")

    async def xr_of(self, claim: Object) -> Object:
        """The claim's XR, once there is one."""
        return await self.until_xr(claim, lambda xr: True)

    async def until_xr(self, claim: Object, check: Callable[[Object], bool]) -> Object:
        async def found() -> Object | None:
            xr = await read(self.client, self.offer.composite, xr_name(await self.now(claim)))
            return xr if xr is not None and check(xr) else None

        return await eventually(found, f"XR of {claim['metadata']['name']}")

    async def until(self, obj: Object, check: Callable[[Object], bool], what: str) -> Object:
        async def found() -> Object | None:
            now = await self.find(obj)
            return now if now is not None and check(now) else None

        return await eventually(found, what)

    async def until_gone(self, obj: Object) -> None:
        async def gone() -> bool:
            return await self.find(obj) is None

        await eventually(gone, f"{obj['metadata']['name']} gone")

    async def synced(self, claim: Object, status: str = "True", **more: str) -> Object:
        return await until_condition(self.client, claim, "Synced", status, **more)

    async def ready(self, claim: Object, status: str = "True", **more: str) -> Object:
        return await until_condition(self.client, claim, "Ready", status, **more)

    async def compose(self, xr: Object, *, ready: bool = True, spec: Object | None = None, **status: Any) -> Object:
        """What the XR's own controller would write."""
        if spec:
            xr = await self.merge(xr, {"spec": spec}, manager=COMPOSITE_MANAGER)
        said = ("True", "Available", "") if ready else ("False", "Creating", "Unready resources: disk")
        conditions = [condition("Synced", "True", "ReconcileSuccess"), condition("Ready", *said)]
        body = {"conditions": conditions + status.pop("conditions", []), **status}
        return await self.merge(xr, {"status": body}, subresource="status", manager=COMPOSITE_MANAGER)

    async def publish(self, xr: Object, data: dict[str, str], *, at: str, owned: bool = True) -> Object:
        """Connection details as the XR's own controller would publish them, and the XR Ready."""
        body = secret(self.namespace, f"{xr['metadata']['name']}-details", data)
        if owned:
            body["metadata"]["ownerReferences"] = [controlled_by(xr)]
        existing = await self.find(body)
        if existing is None:
            await self.client.create(body)
        else:
            await self.client.update({**existing, "data": body["data"]})
        reference = {key: body["metadata"][key] for key in ("name", "namespace")}
        details = {"lastPublishedTime": at}
        return await self.compose(xr, spec={"writeConnectionSecretToRef": reference}, connectionDetails=details)

    async def events(self, claim: Object) -> list[tuple[str, str]]:
        await self.context.events.written()
        found = await self.client.list(EVENT, namespace=self.namespace)
        uid = claim["metadata"]["uid"]
        return [(event["type"], event["reason"]) for event in found.items if event["involvedObject"].get("uid") == uid]


def condition(type_: str, status: str, reason: str, message: str = "") -> Object:
    stamp = "2026-01-02T03:04:05Z"
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": stamp}


def secret(namespace: str, name: str, data: dict[str, str], type_: str = CONNECTION_SECRET_TYPE) -> Object:
    encoded = {key: b64encode(value.encode()).decode() for key, value in data.items()}
    metadata: Object = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": type_, "data": encoded}


def controlled_by(obj: Object) -> Object:
    owner = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "controller": True, "blockOwnerDeletion": True}
    return {**owner, "name": obj["metadata"]["name"], "uid": obj["metadata"]["uid"]}


def versions(*objects: Object) -> list[str]:
    return [obj["metadata"]["resourceVersion"] for obj in objects]


def reference(xr: Object) -> Object:
    return {"apiVersion": xr["apiVersion"], "kind": xr["kind"], "name": xr["metadata"]["name"]}


def revision_of(obj: Object) -> str | None:
    return (obj["spec"].get("compositionRevisionRef") or {}).get("name")


@asynccontextmanager
async def offered_databases(context: ControllerContext, namespace: str) -> AsyncIterator[Databases]:
    """Databases in a namespace of their own, with their controller running; leaving takes away what was made."""
    client = context.client
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for crd in (composite_crd(xrd()), claim_crd(xrd())):
        assert crd is not None
        del crd["metadata"]["ownerReferences"]
        try:
            await client.create(crd)
        except AlreadyExists:
            pass  # an earlier test on the same cluster
        await until_condition(client, {**crd, "metadata": {"name": crd["metadata"]["name"]}}, "Established")
    databases = Databases(context, ClaimControllers(context), namespace, offer_of(xrd()))
    await databases.start()
    yield databases
    await databases.stop()
    for kind in (databases.offer.claim, databases.offer.composite):
        for obj in (await client.list(kind)).items:
            await databases.merge(obj, {"metadata": {"finalizers": None}})
            try:
                await client.delete(kind, obj["metadata"]["name"], namespace=obj["metadata"].get("namespace") or "")
            except NotFound:
                pass


class Crash(BaseException):
    """The process ends here."""


class Intercepted:
    """A client that notes reads and writes, refuses some, and ends the process before or after one of them."""

    WRITES = frozenset({"apply", "create", "delete", "patch", "update"})

    def __init__(
        self,
        client: Client,
        *,
        crash_at: int = 0,
        after: bool = False,
        refuse: dict[str, Exception] | None = None,
        before_apply: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._client = client
        self._crash_at = crash_at
        self._after = after
        self._refuse = refuse or {}
        self._before_apply = before_apply
        self.writes: list[str] = []
        self.read: list[str] = []

    def __getattr__(self, verb: str) -> Any:
        call: Callable[..., Awaitable[Any]] = getattr(self._client, verb)
        if verb == "get":
            return lambda gvk, name, **options: self._note(name, call(gvk, name, **options))
        return call if verb not in self.WRITES else lambda *args, **options: self._write(verb, call, *args, **options)

    def _note(self, name: str, answer: Awaitable[Any]) -> Awaitable[Any]:
        self.read.append(name)
        return answer

    async def _write(self, verb: str, call: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
        if verb in self._refuse:
            raise self._refuse[verb]
        if verb == "apply" and self._before_apply is not None:
            await self._before_apply()
        self.writes.append(verb)
        crash = len(self.writes) == self._crash_at
        if crash and not self._after:
            raise Crash
        answer = await call(*args, **options)
        if crash:
            raise Crash
        return answer
