"""CRDs that change, convert and go while objects of theirs live."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from aiohttp import web

from planform.api.kinds import gvk
from planform.apiserver.crds.conversion import Webhooks
from planform.client import Patch, PatchType
from planform.errors import Forbidden, InternalError, Invalid, NotFound
from tests.harness.embedded import CONFIG_MAP, CRD, NAMESPACE, embedded_engine, version, widget, widget_crd
from tests.harness.pki import write_pki

WIDGET = gvk("example.org/v1", "Widget")
WIDGET_V2 = gvk("example.org/v2", "Widget")
SIZE = {"size": {"type": "integer"}}


async def test_a_new_default_shows_on_objects_that_were_stored_before_it() -> None:
    async with embedded_engine() as engine:
        await engine.establish(widget_crd(version("v1", SIZE)))
        before = await engine.client.create(widget(size=1))
        await engine.establish(widget_crd(version("v1", {**SIZE, "color": {"type": "string", "default": "red"}})))
        found = await engine.client.get(WIDGET, "w", namespace="default")
        assert found["spec"] == {"size": 1, "color": "red"}
        assert found["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_a_field_that_leaves_the_schema_is_pruned_on_read() -> None:
    async with embedded_engine() as engine:
        await engine.establish(widget_crd(version("v1", {**SIZE, "color": {"type": "string"}})))
        await engine.client.create(widget(size=1, color="red"))
        await engine.establish(widget_crd(version("v1", SIZE)))
        assert (await engine.client.get(WIDGET, "w", namespace="default"))["spec"] == {"size": 1}
        listed = await engine.client.list(WIDGET)
        assert [item["spec"] for item in listed.items] == [{"size": 1}]


async def test_a_tightened_schema_refuses_new_values_but_not_a_finalizer_on_an_old_object() -> None:
    async with embedded_engine() as engine:
        await engine.establish(widget_crd(version("v1", SIZE)))
        await engine.client.create(widget(size=50))
        await engine.establish(widget_crd(version("v1", {"size": {"type": "integer", "maximum": 10}})))
        patch = Patch(PatchType.MERGE, {"metadata": {"finalizers": ["example.org/hold"]}})
        held = await engine.client.patch(WIDGET, "w", patch, namespace="default")
        assert held["metadata"]["finalizers"] == ["example.org/hold"]
        with pytest.raises(Invalid, match="should be less than or equal to 10"):
            await engine.client.patch(WIDGET, "w", Patch(PatchType.MERGE, {"spec": {"size": 51}}), namespace="default")


async def test_a_default_in_another_version_than_the_stored_one_never_shows_on_read() -> None:
    async with embedded_engine() as engine:
        newer = version("v2", {**SIZE, "color": {"type": "string", "default": "red"}}, storage=False)
        await engine.establish(widget_crd(version("v1", {**SIZE, "color": {"type": "string"}}), newer))
        await engine.client.create(widget(size=1))
        found = await engine.client.get(WIDGET_V2, "w", namespace="default")
        assert found["apiVersion"] == "example.org/v2"
        assert found["spec"] == {"size": 1}


async def test_moving_the_storage_version_keeps_old_objects_readable_in_both() -> None:
    async with embedded_engine() as engine:
        await engine.establish(widget_crd(version("v1", SIZE), version("v2", SIZE, storage=False)))
        await engine.client.create(widget(size=1))
        await engine.establish(widget_crd(version("v1", SIZE, storage=False), version("v2", SIZE)))
        await engine.client.create(widget("x", api_version="example.org/v2", size=2))
        for kind in (WIDGET, WIDGET_V2):
            items = (await engine.client.list(kind)).items
            assert [(item["apiVersion"], item["spec"]["size"]) for item in items] == [
                (kind.api_version, 1),
                (kind.api_version, 2),
            ]
        crd = await engine.client.get(CRD, "widgets.example.org")
        assert crd["status"]["storedVersions"] == ["v1", "v2"]
        with pytest.raises(Invalid, match=r"status.storedVersions\[0\]"):
            await engine.client.apply(widget_crd(version("v2", SIZE)), manager="test", force=True)


async def test_a_watch_in_another_version_than_the_stored_one_shows_that_version() -> None:
    async with embedded_engine() as engine:
        await engine.establish(widget_crd(version("v1", SIZE), version("v2", SIZE, storage=False)))
        async with engine.client.watch(WIDGET_V2) as changes:
            await engine.client.create(widget(size=1))
            event = await anext(changes)
            assert (event.type, event.object["apiVersion"]) == ("ADDED", "example.org/v2")


async def test_deleting_a_crd_deletes_its_objects_and_a_finalizer_holds_it() -> None:
    async with embedded_engine() as engine:
        await engine.establish(widget_crd(version("v1", SIZE)))
        held = widget(size=1)
        held["metadata"]["finalizers"] = ["example.org/hold"]
        await engine.client.create(held)
        await engine.client.create(widget("free", size=1))
        await engine.client.delete(CRD, "widgets.example.org")
        await engine.gone(WIDGET, "free")
        with pytest.raises(Forbidden, match="terminating"):
            await engine.client.create(widget("late", size=1))
        crd = await engine.client.get(CRD, "widgets.example.org")
        assert crd["metadata"]["deletionTimestamp"]
        await engine.client.patch(
            WIDGET, "w", Patch(PatchType.MERGE, {"metadata": {"finalizers": None}}), namespace="default"
        )
        await engine.gone(CRD, "widgets.example.org", "")
        with pytest.raises(NotFound):
            await engine.client.list(WIDGET)


async def test_a_name_in_use_is_not_accepted_until_it_is_free() -> None:
    async with embedded_engine() as engine:
        await engine.establish(widget_crd(version("v1", SIZE)))
        rival = widget_crd(version("v1", SIZE))
        rival["metadata"]["name"] = "gadgets.example.org"
        rival["spec"]["names"] = {"plural": "gadgets", "kind": "Widget"}
        await engine.client.create(rival)
        async with engine.client.watch(CRD, fields="metadata.name=gadgets.example.org") as changes:
            async for change in changes:
                conditions = {c["type"]: c for c in change.object["status"]["conditions"]}
                if "NamesAccepted" in conditions:
                    break
            assert (conditions["NamesAccepted"]["status"], conditions["NamesAccepted"]["reason"]) == (
                "False",
                "ListKindConflict",
            )
            await engine.client.delete(CRD, "widgets.example.org")
            async for change in changes:
                conditions = {c["type"]: c for c in change.object["status"]["conditions"]}
                if conditions["NamesAccepted"]["status"] == "True":
                    break
        assert (await engine.client.kind(WIDGET)).plural == "gadgets"


async def test_kinds_are_served_again_after_a_restart(tmp_path: Any) -> None:
    async with embedded_engine(tmp_path / "data") as engine:
        await engine.establish(widget_crd(version("v1", SIZE)))
        await engine.client.create(widget(size=1))
    async with embedded_engine(tmp_path / "data") as engine:
        before = engine.core.store.revision
        assert (await engine.client.get(WIDGET, "w", namespace="default"))["spec"] == {"size": 1}
        await engine.client.list(CONFIG_MAP)
        assert engine.core.store.revision == before


# -- conversion by webhook


class Converter:
    """A conversion webhook: v1 has `size`, v2 has `dimensions.width`."""

    def __init__(self) -> None:
        self.calls = 0
        self.fails = False
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def handle(self, request: web.Request) -> web.Response:
        self.calls += 1
        if self.meanwhile is not None:
            await self.meanwhile()
        review = await request.json()
        asked = review["request"]
        result = {"status": "Failure", "message": "no"} if self.fails else {"status": "Success"}
        converted = [self.convert(obj, asked["desiredAPIVersion"]) for obj in asked["objects"]]
        response = {"uid": asked["uid"], "result": result, "convertedObjects": converted}
        return web.json_response({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})

    @staticmethod
    def convert(obj: dict[str, Any], wanted: str) -> dict[str, Any]:
        spec = obj["spec"]
        if wanted.endswith("v2") and "size" in spec:
            spec = {"dimensions": {"width": spec["size"]}}
        elif wanted.endswith("v1") and "dimensions" in spec:
            spec = {"size": spec["dimensions"]["width"]}
        return {**obj, "apiVersion": wanted, "spec": spec}


@asynccontextmanager
async def converting() -> AsyncIterator[tuple[Converter, dict[str, Any]]]:
    converter = Converter()
    app = web.Application()
    app.router.add_post("/convert", converter.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    with TemporaryDirectory() as directory:
        pki = Path(directory) / "pki"
        write_pki(pki)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(pki / "server.crt", pki / "server.key")
        bundle = base64.b64encode((pki / "ca.crt").read_bytes()).decode()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    config = {"url": f"https://127.0.0.1:{port}/convert", "caBundle": bundle}
    conversion = {
        "strategy": "Webhook",
        "webhook": {"clientConfig": config, "conversionReviewVersions": ["v1"]},
    }
    dimensions = {"dimensions": {"type": "object", "properties": {"width": {"type": "integer"}}}}
    crd = widget_crd(version("v1", SIZE), version("v2", dimensions, storage=False), conversion=conversion)
    try:
        yield converter, crd
    finally:
        await runner.cleanup()


async def test_a_webhook_converts_writes_reads_lists_watches_and_patches() -> None:
    webhooks = Webhooks()
    async with converting() as (converter, crd), embedded_engine(webhooks=webhooks) as engine:
        await engine.establish(crd)
        created = await engine.client.create(widget("a", api_version="example.org/v2", dimensions={"width": 3}))
        assert created["spec"] == {"dimensions": {"width": 3}}
        assert (await engine.client.get(WIDGET, "a", namespace="default"))["spec"] == {"size": 3}
        await engine.client.create(widget("b", size=5))
        listed = await engine.client.list(WIDGET_V2)
        assert [item["spec"]["dimensions"]["width"] for item in listed.items] == [3, 5]
        async with engine.client.watch(WIDGET_V2, resource_version=listed.resource_version) as changes:
            wider = Patch(PatchType.MERGE, {"spec": {"dimensions": {"width": 8}}})
            patched = await engine.client.patch(WIDGET_V2, "b", wider, namespace="default")
            assert patched["spec"] == {"dimensions": {"width": 8}}
            assert (await anext(changes)).object["spec"] == {"dimensions": {"width": 8}}
        assert (await engine.client.get(WIDGET, "b", namespace="default"))["spec"] == {"size": 8}
        assert converter.calls
        await webhooks.close()


async def test_a_failing_webhook_is_named_and_nothing_is_stored() -> None:
    webhooks = Webhooks()
    async with converting() as (converter, crd), embedded_engine(webhooks=webhooks) as engine:
        await engine.establish(crd)
        converter.fails = True
        with pytest.raises(InternalError, match=r"conversion webhook for widgets\.example\.org failed: no"):
            await engine.client.create(widget("a", api_version="example.org/v2", dimensions={"width": 3}))
        assert (await engine.client.list(WIDGET)).items == []
        await webhooks.close()


@pytest.mark.parametrize("gone", ["namespace", "kind"])
async def test_nothing_is_created_where_namespace_or_kind_went_while_the_webhook_converted(gone: str) -> None:
    webhooks = Webhooks()
    async with converting() as (converter, crd), embedded_engine(webhooks=webhooks) as engine:
        await engine.establish(crd)
        await engine.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})

        async def delete() -> None:
            if gone == "namespace":
                await engine.client.delete(NAMESPACE, "team")
                await engine.gone(NAMESPACE, "team", "")
            else:
                await engine.client.delete(CRD, "widgets.example.org")
                await engine.gone(CRD, "widgets.example.org", "")

        converter.meanwhile = delete
        late = widget("late", api_version="example.org/v2", dimensions={"width": 3})
        late["metadata"]["namespace"] = "team"
        with pytest.raises((NotFound, Forbidden)):
            await engine.client.create(late)
        assert engine.core.store.list("widgets.example.org") == []
        await webhooks.close()
