"""Changes of live XRs that are easily lost: what comes back, what comes at the wrong moment, what nobody expects."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import CLUSTER_ROLE, CRD, SECRET, XRD
from planform.api.xr import composition_fields
from planform.client.protocol import Client, ObjectList, Patch, PatchType
from planform.errors import ServiceUnavailable
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import (
    CONFIG_MAP,
    NAMESPACE,
    a_platform,
    config_map,
    from_xr,
    python,
    script,
    templates,
)
from tests.harness.contexts import eventually, read, until_condition

pytestmark = pytest.mark.timeout(120)


async def test_a_resource_gets_what_another_one_told_the_xr(context: ControllerContext, unique: str) -> None:
    async with a_platform(context, unique) as platform:
        up = {"type": "ToCompositeFieldPath", "fromFieldPath": "data.x", "toFieldPath": "status.words"}
        taking = config_map("taking", from_xr("status.words", "data.y"))
        await platform.compose(templates(config_map("giving", up, x="told"), taking))
        xr = await platform.create()

        async def told() -> bool:
            found = (await platform.composed(xr)).get("taking") or {}
            return (found.get("data") or {}).get("y") == "told"

        await eventually(told, "the value went through the XR's status")


async def test_a_drift_that_comes_back_at_once_is_put_right_again(context: ControllerContext, unique: str) -> None:
    async with a_platform(context, unique) as platform:
        await platform.compose(templates(config_map("a", x="good")))
        xr = await platform.create()
        await platform.ready(xr)
        await platform.at_rest(xr)
        found = (await platform.composed(xr))["a"]

        async def value() -> str:
            now = await platform.client.get(CONFIG_MAP, found["metadata"]["name"], namespace=platform.namespace)
            return str(now["data"]["x"])

        for _ in range(3):  # a rival that answers each correction at once
            await platform.edit(CONFIG_MAP, found, {"data": {"x": "bad"}})
            async with asyncio.timeout(20):
                while await value() != "good":  # noqa: ASYNC110  (the rival must not be late)
                    await asyncio.sleep(0)


async def test_connection_details_follow_their_secret_and_the_keys_of_the_xrd(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique, scope="LegacyCluster", xrd={"connectionSecretKeys": ["one"]}) as platform:
        step = templates({**config_map("a"), "metadata": {"namespace": NAMESPACE}})
        step["input"]["resources"][0]["connectionDetails"] = [
            {"name": name, "type": "FromValue", "value": "word"} for name in ("one", "two")
        ]
        await platform.compose(step)
        name = f"{unique}-details"
        xr = await platform.create(writeConnectionSecretToRef={"name": name, "namespace": NAMESPACE})

        async def publishes(*keys: str) -> None:
            async def same() -> bool:
                found = await read(platform.client, SECRET, name, NAMESPACE)
                return found is not None and found["data"].keys() == set(keys)

            await eventually(same, f"{keys} are published")

        await publishes("one")
        await platform.at_rest(xr)
        await platform.client.delete(SECRET, name, namespace=NAMESPACE)
        await publishes("one")
        more = Patch(PatchType.MERGE, {"spec": {"connectionSecretKeys": ["one", "two"]}})
        await platform.client.patch(XRD, f"apps.{platform.group}", more)
        await publishes("one", "two")


class RestlessClient:
    """The bench's client, but what is read under one name changes right after it was read, once it is awaited."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name
        self.changed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def get(self, kind: GroupVersionKind, name: str, *, namespace: str = "") -> Object:
        found = await self._client.get(kind, name, namespace=namespace)
        if name == self._name and not self.changed:
            self.changed = True
            async with self._client.watch(kind, namespace=namespace, resource_version=_version(found)) as events:
                later = Patch(PatchType.MERGE, {"data": {"x": "later"}})
                await self._client.patch(kind, name, later, namespace=namespace)
                await anext(aiter(events))
            await asyncio.sleep(0.1)  # the controllers' own watch has told it as well
        return found


async def test_a_change_right_after_a_function_read_the_object_is_not_lost(
    context: ControllerContext, unique: str
) -> None:
    late = f"{unique}-late"
    client = RestlessClient(context.client, late)
    async with a_platform(replace(context, client=cast(Client, client)), unique) as platform:
        await platform.client.create(a_config_map(late, x="now"))
        which = await platform.client.create(a_config_map(f"{unique}-which", x=""))
        await platform.compose(script(FOLLOWING.replace("WHICH", f"{unique}-which")))
        xr = await platform.create()
        await platform.until(xr, lambda found: words(found) == "", "it has seen the first")
        await platform.at_rest(xr)
        assert not client.changed
        await platform.edit(CONFIG_MAP, which, {"data": {"x": late}})
        await platform.until(xr, lambda found: words(found) == "later", "it has seen the change")


FOLLOWING = """
def by(name):
    return {'apiVersion': 'v1', 'kind': 'ConfigMap', 'matchName': name, 'namespace': 'default'}
def value(req, key):
    found = req['requiredResources'].get(key, {}).get('items', [])
    return found[0]['resource']['data']['x'] if found else ''
def main(req):
    wanted = {'which': by('WHICH')}
    name = value(req, 'which')
    if name:
        wanted['late'] = by(name)
    word = value(req, 'late')
    word = '' if word == 'now' else word
    desired = req['desired']
    desired['composite']['resource'] = {'status': {'words': word}}
    return {'desired': desired, 'requirements': {'resources': wanted}}
"""


def a_config_map(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE}, "data": data}


def words(xr: Object) -> object:
    return (xr.get("status") or {}).get("words")


def _version(obj: Object) -> str:
    return str(obj["metadata"]["resourceVersion"])


async def test_a_changed_schema_wakes_the_xrs_whose_functions_looked_at_it(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        await platform.compose(python(READING_A_SCHEMA.replace("GROUP", f"things.{unique}.example.org")))
        xr = await platform.create()
        await platform.until(xr, lambda found: words(found) == "none", "there is no such kind yet")
        await platform.at_rest(xr)
        definition = a_definition(f"things.{unique}.example.org")
        await platform.client.create(definition)
        await platform.until(xr, lambda found: words(found) == "spec", "it has seen the schema")
        await platform.at_rest(xr)
        more = {"size": {"type": "integer"}}
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] |= more
        await platform.client.apply(definition, manager="author", force=True)
        await platform.until(xr, lambda found: words(found) == "size,spec", "it has seen the changed schema")
        await platform.client.delete(CRD, definition["metadata"]["name"])


READING_A_SCHEMA = """
def compose(req, rsp):
    rsp.requirements.schemas["thing"].api_version = "GROUP/v1"
    rsp.requirements.schemas["thing"].kind = "Thing"
    found = req.required_schemas["thing"] if "thing" in req.required_schemas else None
    properties = found.openapi_v3["properties"] if found is not None and found.HasField("openapi_v3") else {}
    words = sorted(each for each in properties if each in ("spec", "size"))
    rsp.desired.composite.resource.update({"status": {"words": ",".join(words) or "none"}})
"""


def a_definition(group: str) -> Object:
    """Of a kind `Thing`."""
    schema = {"type": "object", "properties": {"spec": {"type": "object"}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": CRD.api_version,
        "kind": CRD.kind,
        "metadata": {"name": f"things.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"},
            "versions": [version],
        },
    }


HOSTILE = {
    'composed resource "a" cannot be written as JSON: Integer exceeds': "{'data': {'x': 1%s}}" % ("0" * 30),
    'composed resource "a" cannot be written as JSON: Recursion': "{'data': deep(400)}",
    "the status that the functions want for the XR cannot be written as JSON": "{}|{'words': deep(252)}",
    "the status that the functions want for the XR is not an object": "{}|['x']",
    'composed resource "a": metadata.labels is not an object': "{'metadata': {'labels': ['x']}}",
    'composed resource "a": metadata.name is not a text': "{'metadata': {'name': 5}}",
    'composed resource "a": metadata.ownerReferences has': "{'metadata': {'ownerReferences': ['x']}}",
}


async def test_answers_that_cannot_be_applied_are_told_and_recorded(context: ControllerContext, unique: str) -> None:
    async with a_platform(context, unique) as platform:
        xrs = {}
        for number, (words, answer) in enumerate(HOSTILE.items()):
            resource, _, status = answer.partition("|")
            text = ANSWERING.replace("RESOURCE", resource).replace("STATUS", status or "{}")
            await platform.compose(script(text), name=f"{unique}-{number}")
            xrs[words] = await platform.create(f"x{number}", compositionRef={"name": f"{unique}-{number}"})
        for words, xr in xrs.items():
            await platform.failed(xr, words)
        await platform.at_rest(*xrs.values())
        for xr in xrs.values():
            assert 1 <= await platform.runs(xr) <= 2  # the second looks at what the first has told


ANSWERING = """
def deep(n):
    found = {}
    for _ in range(n):
        found = {'in': found}
    return found
def main(req):
    obj = {'apiVersion': 'v1', 'kind': 'ConfigMap'} | RESOURCE
    desired = req['desired']
    desired['resources'] = {'a': {'resource': obj}}
    desired['composite']['resource'] = {'status': STATUS}
    return {'desired': desired}
"""


async def test_what_is_cluster_scoped_is_composed_without_the_namespace_that_a_function_gave(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique, scope="Cluster") as platform:
        role: Object = {"_key": "role", "apiVersion": CLUSTER_ROLE.api_version, "kind": CLUSTER_ROLE.kind}
        rules = [{"apiGroups": [unique], "resources": ["things"], "verbs": ["get"]}]
        await platform.compose(
            templates({**role, "metadata": {"name": unique, "namespace": NAMESPACE}, "rules": rules})
        )
        xr = await platform.create()
        await platform.ready(xr)
        await platform.at_rest(xr)
        found = await platform.client.get(CLUSTER_ROLE, unique)
        await platform.edit(CLUSTER_ROLE, found, {"rules": []})

        async def again() -> bool:
            return bool((await platform.client.get(CLUSTER_ROLE, unique))["rules"] == rules)

        await eventually(again, "the change is seen, and put right")


async def test_a_cluster_scoped_xr_says_which_namespaced_resource_lacks_a_namespace(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique, scope="Cluster") as platform:
        await platform.compose(templates(config_map("lost", x="1")))
        xr = await platform.failed(await platform.create(), 'composed resource "lost" is a namespaced ConfigMap (v1)')
        assert not await platform.composed(xr), "it is nowhere, also not in the namespace called default"
        await platform.compose(templates({**config_map("lost", x="1"), "metadata": {"namespace": NAMESPACE}}))
        await platform.ready(xr)
        found = (await platform.composed(xr))["lost"]
        [reference] = composition_fields(await platform.get(xr), "modern")["resourceRefs"]
        assert (found["metadata"]["namespace"], reference["namespace"]) == (NAMESPACE, NAMESPACE)


class BusyClient:
    """The bench's client, but the server cannot be asked for a list of one group's kinds the first few times."""

    def __init__(self, client: Client, group: str, times: int) -> None:
        self._client = client
        self._group = group
        self.left = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def list(self, kind: GroupVersionKind, **more: Any) -> ObjectList:
        if kind.group == self._group and self.left:
            self.left -= 1
            raise ServiceUnavailable("the server is busy")
        return await self._client.list(kind, **more)


async def test_xrs_are_counted_also_if_they_cannot_be_listed_at_first(context: ControllerContext, unique: str) -> None:
    client = BusyClient(context.client, f"{unique}.example.org", 4)
    async with a_platform(replace(context, client=cast(Client, client), xr_client=None), unique) as platform:
        controllers = platform.controllers
        assert controllers is not None

        async def complete() -> bool:
            return not client.left and controllers.usage_index.complete()

        await eventually(complete, "all XRs are known")


async def test_a_claims_secret_that_is_deleted_or_changed_comes_back(context: ControllerContext, unique: str) -> None:
    offered = {"claimNames": {"kind": "AppClaim", "plural": "appclaims"}}
    async with a_platform(context, unique, scope="LegacyCluster", xrd=offered) as platform:
        step = templates({**config_map("a"), "metadata": {"namespace": NAMESPACE}})
        step["input"]["resources"][0]["connectionDetails"] = [{"name": "one", "type": "FromValue", "value": "word"}]
        await platform.compose(step, writeConnectionSecretsToNamespace=NAMESPACE)
        name = f"{unique}-details"
        claim = {
            "apiVersion": platform.kind.api_version,
            "kind": "AppClaim",
            "metadata": {"name": unique, "namespace": NAMESPACE},
            "spec": {"writeConnectionSecretToRef": {"name": name}},
        }
        xrd = {**platform.xrd(), "apiVersion": XRD.api_version}
        await until_condition(platform.client, xrd, "Offered")
        await platform.client.create(claim)

        async def published() -> bool:
            found = await read(platform.client, SECRET, name, NAMESPACE)
            return found is not None and (found.get("data") or {}) == {"one": "d29yZA=="}

        await eventually(published, "the claim has its Secret")
        await until_condition(platform.client, claim, "Ready")
        await platform.client.delete(SECRET, name, namespace=NAMESPACE)
        await eventually(published, "the Secret is back")
        changed = Patch(PatchType.MERGE, {"data": {"one": "b3RoZXI="}})
        await platform.client.patch(SECRET, name, changed, namespace=NAMESPACE)
        await eventually(published, "the Secret says again what it should")
