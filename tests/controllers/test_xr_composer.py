"""What becomes of a pipeline's answer on live XRs: names, places, references and deletion, on both engines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planform.api.kinds import Object, gvk
from planform.api.names import RECONCILE_REQUESTED_ANNOTATION
from planform.api.xr import COMPOSITE_LABEL, RESOURCE_NAME_ANNOTATION
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import (
    CONFIG_MAP,
    NAMESPACE,
    Platform,
    a_platform,
    annotated,
    auto_ready,
    becomes,
    config_map,
    from_xr,
    script,
    templates,
)
from tests.harness.contexts import all_controllers, condition_of

pytestmark = pytest.mark.timeout(120)

CLUSTER_ROLE = gvk("rbac.authorization.k8s.io/v1", "ClusterRole")


def desiring(**resources: Object) -> Object:
    """A step that desires exactly these, whatever was desired before."""
    desired = {"resources": {key: {"resource": obj, "ready": True} for key, obj in resources.items()}}
    return script(f'def main(req):\n    return {{"desired": json.decode({json.dumps(json.dumps(desired))})}}\n')


def named_config_map(name: str, **metadata: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}


def references(xr: Object) -> list[Object]:
    return list((xr["spec"].get("crossplane") or {}).get("resourceRefs") or [])


def problems(xr: Object) -> list[Object]:
    return list(xr["status"]["planform"]["problems"])


async def test_each_point_of_failure_has_its_own_words_and_leaves_no_reference_behind(
    context: ControllerContext, unique: str
) -> None:
    secret = {"name": "it", "source": "Secret", "secretRef": {"namespace": NAMESPACE, "name": f"{unique}-none"}}
    shared = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": NAMESPACE, "name": f"{unique}-none"}
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "theirs", "uid": "123", "controller": True}
    without_input = {"step": "it", "functionRef": {"name": "function-patch-and-transform"}}
    nothing = templates(config_map("a"))
    cases: dict[str, tuple[Object, str]] = {
        "input": (without_input, "nput"),
        "input-ref": ({**without_input, "inputRef": shared}, f'"{unique}-none" does not exist'),
        "credential": ({**nothing, "credentials": [secret]}, f'Secret "{unique}-none" in namespace "default"'),
        "run": (script('def main(req):\n    fail("broken on purpose")\n'), "broken on purpose"),
        "function": ({"step": "it", "functionRef": {"name": f"function-{unique}"}}, f'"function-{unique}"'),
        "kind": (desiring(a={"metadata": {"name": "x"}}), 'desired resource "a" has no apiVersion'),
        "owner": (desiring(a=named_config_map("x", ownerReferences=[owner])), "names another controller"),
        "name": (desiring(a=named_config_map("Not_A_Name")), 'has the name "Not_A_Name"'),
        "scope": (desiring(a={"apiVersion": "v1", "kind": "Namespace"}), "cluster-scoped Namespace"),
    }
    async with a_platform(context, unique) as platform:
        xrs = {}
        for case, (step, _) in cases.items():
            await platform.compose(step, name=f"{unique}-{case}")
            xrs[case] = await platform.create(case, compositionRef={"name": f"{unique}-{case}"})
        for case, (_, words) in cases.items():
            xr = await platform.failed(xrs[case], words)
            [problem] = problems(xr)
            assert words in problem["message"], case
            assert not references(xr) and not await platform.composed(xr), case
        unserved = desiring(a={"apiVersion": f"{unique}.example.com/v1", "kind": "Nothing"}, b=named_config_map(unique))
        await platform.compose(unserved, name=f"{unique}-unserved")
        xr = await platform.create("unserved", compositionRef={"name": f"{unique}-unserved"})
        xr = await platform.failed(xr, "Unsynced resources: a")
        assert {each["kind"] for each in references(xr)} == {"Nothing", "ConfigMap"}
        assert (await platform.composed(xr)).keys() == {"b"}


async def test_an_invalid_resource_holds_up_no_other_but_every_deletion(
    context: ControllerContext, unique: str
) -> None:
    bad = named_config_map(f"{unique}-bad") | {"data": {"no key!": "x"}}
    async with a_platform(context, unique) as platform:
        await platform.compose(desiring(a=named_config_map(f"{unique}-a"), old=named_config_map(f"{unique}-old")))
        xr = await platform.ready(await platform.create())
        await platform.compose(desiring(a=named_config_map(f"{unique}-a") | {"data": {"x": "1"}}, bad=bad))
        xr = await platform.failed(xr, "Unsynced resources: bad")
        assert problems(xr)[0]["resource"] == "bad" and "no key!" in problems(xr)[0]["message"]
        ready = condition_of(xr, "Ready")
        assert ready is not None and ready["status"] == "True"  # as the function says
        composed = await platform.composed(xr)
        assert composed.keys() == {"a", "old"} and composed["a"]["data"] == {"x": "1"}
        assert len(references(xr)) == 3  # with the old one, which is not gone
        worse = {f"bad{each}": {**bad, "metadata": {"name": f"{unique}-bad{each}"}} for each in ("", "2")}
        await platform.compose(desiring(a=named_config_map(f"{unique}-a") | {"data": {"x": "1"}}, **worse))
        xr = await platform.failed(xr, "Unsynced resources: bad, bad2")
        await platform.until_event(xr, "ComposeResources", 'cannot compose resource "bad2"')
        for token in ("again", "and again"):  # what fails as before is no news
            await platform.merge(xr, annotated(**{RECONCILE_REQUESTED_ANNOTATION: token}))
            await platform.until(xr, lambda xr: xr["status"].get("lastHandledReconcileAt") == token, token)  # noqa: B023
        told = [each["message"] for each in await platform.events(xr) if each["reason"] == "ComposeResources"]
        assert len(told) == 2 and len({each.partition(":")[0] for each in told}) == 2
        await platform.compose(desiring(a=named_config_map(f"{unique}-a")))
        await becomes(lambda: _keys(platform, xr), {"a"}, "the old one is gone")
        assert len(references(await platform.until(xr, lambda xr: len(references(xr)) == 1, "one is left"))) == 1
        assert (condition_of((await platform.at_rest(xr))[0], "Synced") or {})["status"] == "True"


async def _keys(platform: Platform, xr: Object) -> set[str]:
    return set(await platform.composed(xr))


async def test_references_without_name_or_object_are_skipped_and_what_is_anothers_is_left_alone(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        client = platform.client
        theirs = await client.create(named_config_map(f"{unique}-theirs", namespace=NAMESPACE))
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": theirs["metadata"]["name"], "controller": True}
        owner["uid"] = theirs["metadata"]["uid"]
        annotations = {RESOURCE_NAME_ANNOTATION: "a"}
        foreign = named_config_map(
            f"{unique}-foreign", namespace=NAMESPACE, ownerReferences=[owner], annotations=annotations
        )
        free = named_config_map(f"{unique}-free", namespace=NAMESPACE, annotations={RESOURCE_NAME_ANNOTATION: "b"})
        before = [await client.create(foreign), await client.create(free)]
        given = [{"apiVersion": "v1", "kind": "ConfigMap", "name": f"{unique}-{each}"} for each in ("gone", "foreign")]
        given += [{"apiVersion": "v1", "kind": "ConfigMap"}, {**given[0], "name": f"{unique}-free"}]
        await platform.compose(templates(config_map("a", x="1")))
        xr = await platform.ready(await platform.create(resourceRefs=given))
        [reference] = references(xr)
        assert reference["name"] not in {each.get("name") for each in given}
        found = [await client.get(CONFIG_MAP, each["metadata"]["name"], namespace=NAMESPACE) for each in before]
        assert found == before
        # One of ours that forgot which it is stops everything until it knows again.
        [mine] = (await platform.composed(xr)).values()
        await platform.edit(CONFIG_MAP, mine, {"metadata": {"annotations": {RESOURCE_NAME_ANNOTATION: None}}})
        await platform.failed(xr, f"has no annotation {RESOURCE_NAME_ANNOTATION}")
        await platform.edit(CONFIG_MAP, mine, {"metadata": {"annotations": {RESOURCE_NAME_ANNOTATION: "a"}}})
        await platform.until(xr, lambda xr: (condition_of(xr, "Synced") or {})["status"] == "True", "synced again")
        # An object of a wanted name that somebody else controls is not taken, even if the composition would adopt it.
        adopt = named_config_map(f"{unique}-foreign", annotations={"planform.dev/adopt": "true"})
        await platform.compose(desiring(a=adopt), name=f"{unique}-adopting")
        thief = await platform.create("thief", compositionRef={"name": f"{unique}-adopting"})
        await platform.failed(thief, "Unsynced resources: a")
        assert "is controlled by ConfigMap" in problems(await platform.get(thief))[0]["message"]


async def test_what_has_no_controller_is_not_deleted_and_what_goes_slowly_is_let_go_first(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        await platform.compose(templates(config_map("keep"), config_map("free"), config_map("slow")))
        xr = await platform.ready(await platform.create())
        composed = await platform.composed(xr)
        await platform.merge(xr, {"metadata": {"annotations": {"crossplane.io/paused": "true"}}})
        await platform.until(xr, lambda xr: _reason(xr, "Synced") == "ReconcilePaused", "it pauses")
        await platform.edit(CONFIG_MAP, composed["free"], {"metadata": {"ownerReferences": None}})
        await platform.edit(CONFIG_MAP, composed["slow"], {"metadata": {"finalizers": ["example.org/slow"]}})
        await platform.compose(templates(config_map("keep")))
        await platform.merge(xr, {"metadata": {"annotations": {"crossplane.io/paused": None}}})
        await becomes(lambda: _keys(platform, xr), {"keep", "free"}, "the slow one is no longer the XR's")
        slow = await platform.until_deleting(CONFIG_MAP, composed["slow"])
        assert COMPOSITE_LABEL not in slow["metadata"].get("labels", {})
        names = {each["name"] for each in references((await platform.at_rest(xr))[0])}
        assert names == {composed[each]["metadata"]["name"] for each in ("keep", "slow")}
        await platform.edit(CONFIG_MAP, slow, {"metadata": {"finalizers": None}})
        await platform.until(xr, lambda xr: len(references(xr)) == 1, "the reference goes with it")
        free = await platform.client.get(CONFIG_MAP, composed["free"]["metadata"]["name"], namespace=NAMESPACE)
        assert "deletionTimestamp" not in free["metadata"]


def _reason(xr: Object, type_: str) -> str:
    return str((condition_of(xr, type_) or {}).get("reason"))


async def test_namespaced_xrs_keep_their_resources_beside_them_under_names_of_their_own(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        long = "k" * 80
        elsewhere = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "kube-system"}}
        here = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": NAMESPACE}}
        await platform.compose(
            desiring(elsewhere=elsewhere, here=here, **{long: {"apiVersion": "v1", "kind": "ConfigMap"}})
        )
        xr = await platform.ready(await platform.create("n" * 50))
        composed = await platform.composed(xr)
        assert composed.keys() == {"elsewhere", "here", long}
        for each in composed.values():
            assert each["metadata"]["namespace"] == NAMESPACE and len(each["metadata"]["name"]) <= 63
        warning = await platform.until_event(xr, "NamespaceOverridden")
        assert warning["type"] == "Warning" and '"elsewhere"' in warning["message"]
        warnings = [each for each in await platform.events(xr) if each["reason"] == "NamespaceOverridden"]
        assert len(warnings) == 1
        assert all("namespace" not in each for each in references(xr))
        assert references(xr) == sorted(references(xr), key=lambda each: (each["kind"], each["name"]))
        before = {each["metadata"]["name"] for each in composed.values()}
        await platform.client.delete(platform.kind, xr["metadata"]["name"], namespace=NAMESPACE)
        await platform.gone(xr)
        second = await platform.ready(await platform.create("n" * 50))
        names = {each["name"] for each in references(second)}
        assert len(names) == 3 and not names & before


async def test_a_cluster_scoped_xr_composes_both_scopes_and_refers_with_namespaces(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique, scope="Cluster") as platform:
        role: Object = {"_key": "role", "apiVersion": CLUSTER_ROLE.api_version, "kind": "ClusterRole", "rules": []}
        settings = {**config_map("settings", x="1"), "metadata": {"namespace": NAMESPACE}}
        await platform.compose(templates(role, settings))
        xr = await platform.ready(await platform.create())
        [role] = (await platform.composed(xr, CLUSTER_ROLE)).values()
        [settings] = (await platform.composed(xr)).values()
        assert references(xr) == [
            {"apiVersion": CLUSTER_ROLE.api_version, "kind": "ClusterRole", "name": role["metadata"]["name"]},
            {"apiVersion": "v1", "kind": "ConfigMap", "name": settings["metadata"]["name"], "namespace": NAMESPACE},
        ]
        await platform.edit(CONFIG_MAP, settings, {"data": {"x": "2"}})
        await becomes(lambda: _data(platform, xr), {"x": "1"}, "drift in a namespace is corrected")


async def _data(platform: Platform, xr: Object) -> object:
    [found] = (await platform.composed(xr)).values()
    return found["data"]


async def test_nested_xrs_are_composed_and_their_state_comes_back_to_their_parent(
    context: ControllerContext, unique: str
) -> None:
    async with all_controllers(context) as controllers:
        outer = Platform(context.client, f"{unique}a", controllers=controllers)
        inner = Platform(context.client, f"{unique}b", controllers=controllers)
        await outer.define()
        await inner.define()
        await inner.compose(templates(config_map("leaf", from_xr("spec.size", "data.size"))))
        child: Object = {"_key": "child", "apiVersion": inner.kind.api_version, "kind": "App", "spec": {}}
        child["_patches"] = [
            from_xr("spec.size", "spec.size"),
            {
                "type": "ToCompositeFieldPath",
                "fromFieldPath": "spec.crossplane.compositionRef.name",
                "toFieldPath": "status.words",
            },
        ]
        await outer.compose(templates(child, ready=False), auto_ready())
        parent = await outer.ready(await outer.create(spec={"size": "big"}))
        [nested] = (await outer.composed(parent, inner.kind)).values()
        assert parent["status"]["words"] == f"{inner.unique}-apps"
        assert (condition_of(nested, "Ready") or {})["status"] == "True"

        async def leaves() -> list[Object]:
            uid = nested["metadata"]["uid"]
            found = (await context.client.list(CONFIG_MAP, namespace=NAMESPACE)).items
            return [
                each["data"]
                for each in found
                if any(owner["uid"] == uid for owner in each["metadata"].get("ownerReferences") or ())
            ]

        assert await leaves() == [{"size": "big"}]
        await outer.merge(parent, {"spec": {"size": "small"}})
        await becomes(leaves, [{"size": "small"}], "the change reaches the leaf")
