"""Claims of live XRs and the connection details of legacy ones, end to end, on both engines."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from planform.api.kinds import GroupVersionKind, Object, gvk
from planform.api.names import CLUSTER_NOP_RESOURCE, RECONCILE_REQUESTED_ANNOTATION, SECRET
from planform.client.protocol import Patch, PatchType
from planform.features import FeatureGates
from planform.reconcile.context import ControllerContext
from planform.xrs.observing import observe
from tests.controllers.composing import (
    NAMESPACE,
    NOP,
    Platform,
    a_platform,
    annotated,
    becomes,
    from_xr,
    reading,
    script,
)
from tests.harness.contexts import read, until_condition

pytestmark = pytest.mark.timeout(120)


def database(secret: str, user: str, kind: GroupVersionKind = CLUSTER_NOP_RESOURCE) -> Object:
    """A step that composes a resource with a connection secret, and passes what is in it on."""
    thing = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "spec": {
            "forProvider": {
                "conditionAfter": [{"time": "0s", "conditionType": "Ready", "conditionStatus": "True"}],
                "connectionDetails": [{"name": "user", "value": user}, {"name": "password", "value": "secret"}],
            },
            "writeConnectionSecretToRef": {"name": secret, "namespace": NAMESPACE},
        },
    }
    details = [
        {"name": each, "type": "FromConnectionSecretKey", "fromConnectionSecretKey": each}
        for each in ("user", "password")
    ]
    size = from_xr("spec.size", "metadata.annotations[size]")
    resource = {"name": "database", "base": thing, "connectionDetails": details, "patches": [size]}
    return {
        "step": "compose",
        "functionRef": {"name": "function-patch-and-transform"},
        "input": {"apiVersion": "pt.fn.crossplane.io/v1beta1", "kind": "Resources", "resources": [resource]},
    }


async def data_of(platform: Platform, name: str) -> dict[str, str] | None:
    found = await read(platform.client, SECRET, name, NAMESPACE)
    if found is None:
        return None
    return {key: base64.b64decode(value).decode() for key, value in (found.get("data") or {}).items()}


async def test_a_claim_is_composed_connected_changed_and_deleted_through_its_xr(
    context: ControllerContext, unique: str
) -> None:
    xrd: Object = {"claimNames": {"kind": "Database", "plural": "databases"}}
    async with a_platform(context, unique, scope="LegacyCluster", xrd=xrd) as platform:
        client, kind = platform.client, gvk(platform.kind.api_version, "Database")
        await platform.compose(
            database(f"{unique}-of-resource", "me"),
            reading({}),
            writeConnectionSecretsToNamespace=NAMESPACE,
        )
        claim: Object = {
            "apiVersion": kind.api_version,
            "kind": "Database",
            "metadata": {"name": f"claim-{unique}", "namespace": NAMESPACE},
            "spec": {"size": "small", "writeConnectionSecretToRef": {"name": f"{unique}-of-claim"}},
        }
        await client.create(claim)
        claim = await until_condition(client, claim, "Ready")
        user = {"user": "me", "password": "secret"}
        assert await data_of(platform, f"{unique}-of-claim") == user
        xr = await client.get(platform.kind, claim["spec"]["resourceRef"]["name"])
        assert xr["spec"]["writeConnectionSecretToRef"] == {"name": xr["metadata"]["uid"], "namespace": NAMESPACE}
        assert await data_of(platform, xr["metadata"]["uid"]) == user
        assert claim["spec"]["compositionRef"] == xr["spec"]["compositionRef"]
        assert claim["status"]["seen"] == []
        assert xr["status"]["connectionDetails"]["lastPublishedTime"]
        [thing] = (await platform.composed(xr, CLUSTER_NOP_RESOURCE)).values()
        labels = thing["metadata"]["labels"]
        assert labels["crossplane.io/claim-name"] == f"claim-{unique}"
        assert labels["crossplane.io/claim-namespace"] == NAMESPACE
        await platform.edit(kind, claim, {"spec": {"size": "large"}})

        async def size() -> str:
            [thing] = (await platform.composed(xr, CLUSTER_NOP_RESOURCE)).values()
            return str(thing["metadata"]["annotations"]["size"])

        await becomes(size, "large", "the change of the claim reaches the resource")
        # What the resource says of its connection reaches the claim by way of the XR.
        await platform.compose(
            database(f"{unique}-of-resource", "you"), reading({}), writeConnectionSecretsToNamespace=NAMESPACE
        )
        changed = {"user": "you", "password": "secret"}
        await becomes(lambda: data_of(platform, f"{unique}-of-claim"), changed, "the claim has the new user")
        assert await data_of(platform, xr["metadata"]["uid"]) == changed
        await client.delete(kind, f"claim-{unique}", namespace=NAMESPACE)
        await platform.gone(xr)


async def test_connection_secrets_are_filtered_kept_and_never_taken_from_others(
    context: ControllerContext, unique: str
) -> None:
    said = script(
        "def main(req):\n"
        "    details = {'user': 'bWU=', 'password': 'c2VjcmV0'}\n"
        "    return {'desired': {'composite': {'connectionDetails': details}}}\n"
    )
    xrd: Object = {"connectionSecretKeys": ["user"]}
    async with a_platform(context, unique, scope="LegacyCluster", xrd=xrd) as platform:
        await platform.compose(said)
        plain = await platform.create("plain")

        def to(name: str) -> Any:
            return {"writeConnectionSecretToRef": {"name": f"{unique}-{name}", "namespace": NAMESPACE}}

        foreign = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": f"{unique}-theirs", "namespace": NAMESPACE},
        }
        before = await platform.client.create(foreign)
        filtered = await platform.create("filtered", **to("filtered"))
        refused = await platform.create("refused", **to("theirs"))
        for xr in (plain, filtered):
            await platform.ready(xr)
        assert "writeConnectionSecretToRef" not in (await platform.get(plain))["spec"]
        assert await data_of(platform, f"{unique}-filtered") == {"user": "me"}
        await platform.failed(refused, "is not controlled by this XR")
        assert await platform.client.get(SECRET, f"{unique}-theirs", namespace=NAMESPACE) == before
        [resting] = await platform.at_rest(filtered)
        secret = await platform.client.get(SECRET, f"{unique}-filtered", namespace=NAMESPACE)
        await platform.merge(filtered, annotated(**{RECONCILE_REQUESTED_ANNOTATION: "now"}))
        await platform.until(filtered, lambda xr: xr["status"].get("lastHandledReconcileAt") == "now", "it ran again")
        assert await platform.client.get(SECRET, f"{unique}-filtered", namespace=NAMESPACE) == secret
        published = resting["status"]["connectionDetails"]
        assert (await platform.get(filtered))["status"]["connectionDetails"] == published
        # A Secret that somebody changed or took away is set right.
        await platform.edit(SECRET, secret, {"data": {"user": "eW91"}})
        await becomes(lambda: data_of(platform, f"{unique}-filtered"), {"user": "me"}, "it is set right")
        await platform.client.delete(SECRET, f"{unique}-filtered", namespace=NAMESPACE)
        await becomes(lambda: data_of(platform, f"{unique}-filtered"), {"user": "me"}, "it is made again")
        await platform.client.delete(SECRET, f"{unique}-theirs", namespace=NAMESPACE)
        await becomes(lambda: data_of(platform, f"{unique}-theirs"), {"user": "me"}, "it could be published at last")


async def test_a_modern_xr_publishes_connection_details_in_a_secret_that_it_composes(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        await platform.compose(database(f"{unique}-inner", "me", NOP))
        xr = await platform.create()
        name = f"{xr['metadata']['name']}-connection"
        await becomes(lambda: data_of(platform, name), {"user": "me", "password": "secret"}, "it is composed")
        await platform.compose(database(f"{unique}-inner", "you", NOP))
        await becomes(lambda: data_of(platform, name), {"user": "you", "password": "secret"}, "it follows")
        xr = await platform.ready(xr)
        assert "writeConnectionSecretToRef" not in xr["spec"]["crossplane"] and "connectionDetails" not in xr["status"]
        references = {(each["kind"], each["name"]) for each in xr["spec"]["crossplane"]["resourceRefs"]}
        assert ("Secret", name) in references
        await platform.client.delete(SECRET, name, namespace=NAMESPACE)
        await becomes(lambda: data_of(platform, name), {"user": "you", "password": "secret"}, "it is made again")


def telling(secret: Object) -> Object:
    """A step that composes a resource with a connection secret, and puts the keys that it sees into the status."""
    thing = {
        "apiVersion": NOP.api_version,
        "kind": NOP.kind,
        "spec": {"forProvider": {}, "writeConnectionSecretToRef": secret},
    }
    return script(
        f"THING = json.decode({json.dumps(json.dumps(thing))})\n"
        "def main(req):\n"
        "    found = req['observed'].get('resources', {})\n"
        "    seen = found.get('it', {}).get('connectionDetails', {})\n"
        "    said = {'status': {'seen': sorted(seen.keys()), 'words': ' '.join(found.keys())}}\n"
        "    desired = {'composite': {'resource': said}, 'resources': {'it': {'resource': THING}}}\n"
        "    return {'desired': desired}\n"
    )


def a_namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def a_secret(name: str, namespace: str) -> Object:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"password": "c2VjcmV0"}}


@pytest.mark.parametrize(
    ("confined", "at_home", "seen"),
    [
        pytest.param(True, False, [], id="confined, elsewhere"),
        pytest.param(True, True, ["password"], id="confined, at home"),
        pytest.param(False, False, ["password"], id="elsewhere"),
    ],
)
async def test_a_confined_xr_gets_connection_details_of_its_own_namespace_only(
    context: ControllerContext, unique: str, confined: bool, at_home: bool, seen: list[str]
) -> None:
    gates = FeatureGates({"ConfineNamespacedReads": confined})
    await context.client.create(a_namespace(unique))
    namespace = NAMESPACE if at_home else unique
    async with a_platform(context, unique, features=gates) as platform:
        await platform.client.create(a_secret(f"{unique}-theirs", namespace))
        await platform.compose(telling({"name": f"{unique}-theirs", "namespace": namespace}))
        xr = await platform.create()
        told = await platform.until(
            xr, lambda xr: (xr.get("status") or {}).get("words") == "it", "the resource is observed"
        )
        assert told["status"]["seen"] == seen
    await context.client.delete(SECRET, f"{unique}-theirs", namespace=namespace)
    await context.client.delete(gvk("v1", "Namespace"), unique)


async def test_what_an_xr_refers_to_and_does_not_control_has_no_connection_details(
    context: ControllerContext, unique: str
) -> None:
    await context.client.create(a_namespace(unique))
    await context.client.create(a_secret("theirs", unique))
    bait = await context.client.create(
        {
            "apiVersion": NOP.api_version,
            "kind": NOP.kind,
            "metadata": {
                "name": f"{unique}-bait",
                "namespace": NAMESPACE,
                "annotations": {"crossplane.io/composition-resource-name": "it"},
            },
            "spec": {"forProvider": {}, "writeConnectionSecretToRef": {"name": "theirs", "namespace": unique}},
        }
    )
    reference = {"apiVersion": NOP.api_version, "kind": NOP.kind, "name": f"{unique}-bait"}
    xr = {
        "apiVersion": "example.org/v1",
        "kind": "App",
        "metadata": {"name": "one", "namespace": NAMESPACE, "uid": unique},
        "spec": {"crossplane": {"resourceRefs": [reference]}},
    }
    seen = await observe(context.client, xr, "modern", lambda _: None)
    assert list(seen.state.resources) == ["it"] and not seen.state.resources["it"].connection_details
    owner = {"apiVersion": xr["apiVersion"], "kind": "App", "name": "one", "uid": unique, "controller": True}
    patch = Patch(PatchType.MERGE, {"metadata": {"ownerReferences": [owner]}})
    await context.client.patch(NOP, bait["metadata"]["name"], patch, namespace=NAMESPACE)
    seen = await observe(context.client, xr, "modern", lambda _: None)
    assert seen.state.resources["it"].connection_details == {"password": b"secret"}
    await context.client.delete(NOP, bait["metadata"]["name"], namespace=NAMESPACE)
    await context.client.delete(gvk("v1", "Namespace"), unique)
