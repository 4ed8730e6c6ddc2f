"""Live XRs are looked at when something they rest on changes, and only then, on both engines."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import Object, gvk
from planform.api.names import COMPOSITION, CRD, ENVIRONMENT_CONFIG, SECRET, XRD
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import (
    CONFIG_MAP,
    NAMESPACE,
    Platform,
    a_platform,
    a_process,
    becomes,
    config_map,
    python,
    reading,
    script,
    templates,
)
from tests.harness.contexts import eventually, read, until_condition

pytestmark = pytest.mark.timeout(120)


def a_config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> Object:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def by_name(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "matchName": name, "namespace": NAMESPACE}


async def seen(platform: Platform, xr: Object, *wanted: str) -> None:
    def saw(xr: Object) -> bool:
        return (xr.get("status") or {}).get("seen") == sorted(wanted)

    await platform.until(xr, saw, f"it saw {wanted}")


async def test_what_a_step_required_wakes_the_xr_and_nothing_else_does(context: ControllerContext, unique: str) -> None:
    async with a_platform(context, unique) as platform:
        client = platform.client
        named = await client.create(a_config_map(f"{unique}-named", x="1"))
        await client.create(a_config_map(f"{unique}-a", {"of": unique}, x="1"))
        config = {"apiVersion": ENVIRONMENT_CONFIG.api_version, "kind": ENVIRONMENT_CONFIG.kind}
        wanted = {
            "named": by_name(f"{unique}-named"),
            "labelled": {"apiVersion": "v1", "kind": "ConfigMap", "matchLabels": {"labels": {"of": unique}}},
            # A namespace means nothing for a kind that has none.
            "wide": {**config, "matchName": f"{unique}-wide", "namespace": NAMESPACE},
            "all": {**config, "namespace": NAMESPACE, "matchLabels": {"labels": {"of": unique}}},
        }
        await platform.compose(reading(wanted))
        xr = await platform.create()
        before = [f"named/{unique}-named=1", f"labelled/{unique}-a=1"]
        await seen(platform, xr, *before)
        await platform.edit(CONFIG_MAP, named, {"data": {"x": "2"}})
        await seen(platform, xr, f"named/{unique}-named=2", f"labelled/{unique}-a=1")
        late = await client.create(a_config_map(f"{unique}-b", x="1"))
        await platform.at_rest(xr)
        await platform.edit(CONFIG_MAP, late, {"metadata": {"labels": {"of": unique}}})
        more = [f"named/{unique}-named=2", f"labelled/{unique}-a=1", f"labelled/{unique}-b=1"]
        await seen(platform, xr, *more)
        await platform.edit(CONFIG_MAP, late, {"metadata": {"labels": {"of": None}}})
        await seen(platform, xr, *more[:2])
        wide = await client.create({**config, "metadata": {"name": f"{unique}-wide"}, "data": {"x": "1"}})
        await seen(platform, xr, *more[:2], f"wide/{unique}-wide=1")
        await platform.edit(ENVIRONMENT_CONFIG, wide, {"metadata": {"labels": {"of": unique}}})
        await seen(platform, xr, *more[:2], f"wide/{unique}-wide=1", f"all/{unique}-wide=1")
        await client.delete(ENVIRONMENT_CONFIG, f"{unique}-wide")
        await seen(platform, xr, *more[:2])
        await platform.at_rest(xr)
        runs = await platform.runs(xr)
        await client.create(a_config_map(f"{unique}-stranger", x="1"))
        await platform.edit(CONFIG_MAP, late, {"data": {"x": "9"}})
        await platform.at_rest(xr)
        assert await platform.runs(xr) == runs
        # What nobody depends on any more is no longer watched.
        controller = f"composite/apps.{platform.group}"
        plane = context.manager
        assert ENVIRONMENT_CONFIG in {source.gvk for source in plane.sources(controller)}  # type: ignore[attr-defined]
        await platform.compose(reading({}))
        await seen(platform, xr)

        async def watched() -> set[Any]:
            return {source.gvk for source in plane.sources(controller)}  # type: ignore[attr-defined]

        await becomes(watched, {platform.kind}, "only the XRs themselves are watched")


async def test_inputs_and_credentials_wake_the_xrs_that_use_them(context: ControllerContext, unique: str) -> None:
    async with a_platform(context, unique) as platform:
        text = "def main(req):\n    return {'desired': {'composite': {'resource': {'status': {'words': %s}}}}}\n"
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": f"{unique}-key", "namespace": NAMESPACE},
            "stringData": {"word": "one"},
        }
        made = await platform.client.create(secret)
        credentials = [
            {"name": "key", "source": "Secret", "secretRef": {"namespace": NAMESPACE, "name": f"{unique}-key"}}
        ]
        told = text % "req['credentials']['key']['credentialData']['data']['word']"
        await platform.compose({**script(told), "credentials": credentials}, name=f"{unique}-secret")
        xr = await platform.create("secret", compositionRef={"name": f"{unique}-secret"})

        def says(word: str) -> Any:
            return lambda xr: (xr.get("status") or {}).get("words") == base64.b64encode(word.encode()).decode()

        await platform.until(xr, says("one"), "it has the credential")
        await platform.edit(SECRET, made, {"stringData": {"word": "two"}})
        await platform.until(xr, says("two"), "it has the new credential")
        await platform.client.delete(SECRET, f"{unique}-key", namespace=NAMESPACE)
        await platform.failed(xr, f'Secret "{unique}-key"')
        await platform.client.create(secret)
        await platform.until(xr, says("one"), "it recovers by itself")
        await platform.client.create(SCRIPTS)
        await until_condition(platform.client, SCRIPTS, "Established")
        reference = {"apiVersion": "example.org/v1", "kind": "StarlarkScript", "name": unique}
        step = {"step": "it", "functionRef": {"name": "function-starlark"}, "inputRef": reference}
        await platform.compose(step, name=f"{unique}-input")
        other = await platform.create("input", compositionRef={"name": f"{unique}-input"})
        await platform.failed(other, f'"{unique}" does not exist')
        given = {"apiVersion": "example.org/v1", "kind": "StarlarkScript", "metadata": {"name": unique}}
        await platform.client.create({**given, "script": text % "'one'"})
        await platform.until(other, lambda xr: (xr.get("status") or {}).get("words") == "one", "it is there")
        await platform.edit(gvk("example.org/v1", "StarlarkScript"), given, {"script": text % "'two'"})
        await platform.until(other, lambda xr: xr["status"].get("words") == "two", "the changed input is used")
        await platform.client.delete(CRD, "starlarkscripts.example.org")


SCRIPTS: Object = {
    "apiVersion": CRD.api_version,
    "kind": CRD.kind,
    "metadata": {"name": "starlarkscripts.example.org"},
    "spec": {
        "group": "example.org",
        "scope": "Cluster",
        "names": {"kind": "StarlarkScript", "listKind": "Scripts", "plural": "starlarkscripts", "singular": "script"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


async def test_what_functions_want_watched_is_in_the_status_and_wakes_the_xr(
    context: ControllerContext, unique: str
) -> None:
    text = """
def compose(req, rsp):
    wanted = rsp.requirements.resources["it"]
    wanted.api_version, wanted.kind, wanted.match_name, wanted.namespace = "v1", "ConfigMap", NAME, "default"
    rsp.requirements.watch_resources.add(api_version="v1", kind="ConfigMap", name=WATCHED)
    items = req.required_resources["it"].items
    x = items[0].resource["data"]["x"] if items else "none"
    rsp.desired.composite.resource.update({"status": {"words": x}})
    rsp.meta.ttl.seconds = 3600
"""
    async with a_platform(context, unique) as platform:
        own, other = f"{unique}-watched", f"{unique}-other"
        fine = text.replace("NAME", repr(own)).replace("WATCHED", repr(own))
        await platform.compose(python(fine))
        xr = await platform.create()
        xr = await platform.until(xr, lambda xr: (xr.get("status") or {}).get("words") == "none", "it is not there")
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": own, "namespace": NAMESPACE}
        assert xr["status"]["watchedResourceRefs"] == [reference]
        made = await platform.client.create(a_config_map(own, x="1"))
        await platform.until(xr, lambda xr: xr["status"].get("words") == "1", "long before its TTL")
        await platform.edit(CONFIG_MAP, made, {"data": {"x": "2"}})
        await platform.until(xr, lambda xr: xr["status"].get("words") == "2", "and again")
        await platform.compose(python(text.replace("NAME", repr(own)).replace("WATCHED", repr(other))))
        xr = await platform.failed(xr, f'may not watch ConfigMap (v1) "{other}"')
        await platform.compose(reading({}))
        await platform.until(xr, lambda xr: "watchedResourceRefs" not in xr["status"], "nothing is watched any more")


async def test_a_restart_costs_no_write_and_no_call_and_still_knows_who_wakes_whom(
    context: ControllerContext, unique: str, tmp_path: Path
) -> None:
    async with a_process(context, unique, tmp_path) as platform:
        await platform.define()
        required = await platform.client.create(a_config_map(f"{unique}-it", x="1"))
        steps = templates(config_map("a", x="1"), config_map("b")), reading({"it": by_name(f"{unique}-it")})
        await platform.compose(*steps)
        xrs = [await platform.create(each) for each in ("one", "two")]
        for xr in xrs:
            await seen(platform, xr, f"it/{unique}-it=1")
        before = await platform.at_rest(*xrs)
        runs = [await platform.runs(xr) for xr in xrs]
        composed = [await platform.composed(xr) for xr in xrs]
        compositions = [*(await platform.client.list(COMPOSITION)).items, *await platform.revisions()]
        events = {each["metadata"]["name"] for xr in xrs for each in await platform.events(xr)}
    async with a_process(context, unique, tmp_path) as platform:
        late = await platform.create("late")  # once this one is ready, the others have been looked at
        await platform.ready(late)
        assert await platform.at_rest(*xrs) == before
        assert [await platform.runs(xr) for xr in xrs] == runs
        assert [await platform.composed(xr) for xr in xrs] == composed
        found = [*(await platform.client.list(COMPOSITION)).items, *await platform.revisions()]
        assert [_spec(each) for each in found] == [_spec(each) for each in compositions]
        assert {each["metadata"]["name"] for xr in xrs for each in await platform.events(xr)} == events
        await platform.edit(CONFIG_MAP, required, {"data": {"x": "2"}})
        for xr in xrs:
            await seen(platform, xr, f"it/{unique}-it=2")
        # A restart after a crash that lost the memory runs each pipeline once more, and writes nothing either.
        before = await platform.at_rest(*xrs)
    async with a_process(context, unique, tmp_path / "other") as platform:

        async def ran() -> bool:
            return all([await platform.runs(xr) for xr in xrs])

        await eventually(ran, "their pipelines were run")
        assert await platform.at_rest(*xrs) == before
        await platform.client.delete(XRD, f"apps.{platform.group}")

        async def gone() -> bool:
            return not [
                each for each in (await platform.client.list(XRD)).items if each["spec"]["group"] == platform.group
            ]

        await eventually(gone, "the XRD is gone")
        await platform.client.delete(COMPOSITION, f"{unique}-apps")


def _spec(obj: Object) -> Object:
    """Without its statistics, which count the late XR as well."""
    return {"metadata": {**obj["metadata"], "resourceVersion": "", "managedFields": []}, "spec": obj["spec"]}


def a_kind(group: str) -> Object:
    """The definition of a cluster-scoped kind `Thing`."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": CRD.api_version,
        "kind": CRD.kind,
        "metadata": {"name": f"things.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Thing", "listKind": "ThingList", "plural": "things", "singular": "thing"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": free}}],
        },
    }


async def test_kinds_may_come_go_and_come_again_while_xrs_require_and_compose_them(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        client, kind = platform.client, gvk(f"{unique}.example.net/v1", "Thing")
        composed = {"_key": "thing", "apiVersion": kind.api_version, "kind": "Thing", "spec": {"x": "1"}}
        await platform.compose(templates(composed), reading({"all": {"apiVersion": kind.api_version, "kind": "Thing"}}))
        xr = await platform.failed(await platform.create(), "Unsynced resources: thing")
        definition = a_kind(kind.group)
        for turn in ("first", "second"):
            await client.create(definition)
            await until_condition(client, definition, "Established")
            await until_condition(client, xr, "Synced")
            [made] = (await platform.composed(xr, kind)).values()
            name = made["metadata"]["name"]
            await seen(platform, xr, f"all/{name}=None")
            given = {"apiVersion": kind.api_version, "kind": "Thing", "data": {"x": turn}}
            await client.create({**given, "metadata": {"name": unique, "namespace": NAMESPACE}})
            await seen(platform, xr, f"all/{name}=None", f"all/{unique}={turn}")
            await client.delete(kind, name, namespace=NAMESPACE)

            async def again() -> bool:
                return made["metadata"]["uid"] not in {  # noqa: B023
                    each["metadata"]["uid"] for each in (await platform.composed(xr, kind)).values()
                } and bool(await platform.composed(xr, kind))

            await eventually(again, "it is made again")
            await client.delete(CRD, definition["metadata"]["name"])

            async def gone() -> bool:
                return await read(client, CRD, definition["metadata"]["name"]) is None

            await eventually(gone, "the kind is gone")
            await platform.failed(xr, "Unsynced resources: thing")
