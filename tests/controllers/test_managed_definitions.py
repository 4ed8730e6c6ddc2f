"""Definitions of managed resources: served once a policy activates them, and not before, on both engines."""

from __future__ import annotations

from typing import Any

import pytest

from planform.api.kinds import Object
from planform.api.names import ACTIVATION_POLICY, CRD, MANAGED_DEFINITION
from planform.client.informer import ObjectKey
from planform.client.protocol import Patch, PatchType
from planform.controllers.managed_definitions import (
    DEFAULT_POLICY,
    ActivationPolicyController,
    ManagedDefinitionController,
    activates,
    ensure_default_policy,
)
from planform.controllers.workbench import Workbench
from planform.errors import Invalid, NotFound
from planform.reconcile.controller import Result
from tests.harness.planes import eventually, until_condition


def definition(unique: str, **spec: Any) -> Object:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "string"}}}}}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    return {
        "apiVersion": MANAGED_DEFINITION.api_version,
        "kind": MANAGED_DEFINITION.kind,
        "metadata": {"name": f"buckets.{unique}.example.org"},
        "spec": {
            "group": f"{unique}.example.org",
            "names": {"kind": "Bucket", "plural": "buckets"},
            "scope": "Namespaced",
            "versions": versions,
            **spec,
        },
    }


def policy(name: str, *patterns: str) -> Object:
    return {
        "apiVersion": ACTIVATION_POLICY.api_version,
        "kind": ACTIVATION_POLICY.kind,
        "metadata": {"name": name},
        "spec": {"activate": list(patterns)},
    }


def start(bench: Workbench) -> None:
    ManagedDefinitionController(bench).start()
    ActivationPolicyController(bench).start()


async def crd_of(bench: Workbench, obj: Object) -> Object | None:
    try:
        return await bench.client.get(CRD, obj["metadata"]["name"])
    except NotFound:
        return None


async def withdraw(bench: Workbench, made: Object, *policies: Object) -> None:
    for each in policies:
        await bench.client.delete(ACTIVATION_POLICY, each["metadata"]["name"])
    await bench.client.delete(MANAGED_DEFINITION, made["metadata"]["name"])
    if await crd_of(bench, made):  # a real API server alone has nobody who collects garbage
        try:
            await bench.client.delete(CRD, made["metadata"]["name"])
        except NotFound:
            pass


async def test_a_definition_is_served_once_a_policy_activates_it_and_stays_so(bench: Workbench, unique: str) -> None:
    start(bench)
    made = await bench.client.create(definition(unique))
    waiting = await until_condition(bench.client, made, "Established", "False", reason="InactiveManagedResource")
    assert waiting["spec"]["state"] == "Inactive" and await crd_of(bench, made) is None
    broad = await bench.client.create(policy(f"{unique}-broad", f"*.{unique}.example.org"))
    await until_condition(bench.client, made, "Established", reason="EstablishedManagedResource")
    told = await until_condition(bench.client, broad, "Healthy", reason="Running")
    assert told["status"]["activated"] == [made["metadata"]["name"]]
    crd = await crd_of(bench, made)
    assert crd is not None and crd["spec"]["names"]["kind"] == "Bucket"
    assert [owner["kind"] for owner in crd["metadata"]["ownerReferences"]] == [MANAGED_DEFINITION.kind]
    await bench.client.delete(ACTIVATION_POLICY, broad["metadata"]["name"])
    assert (await bench.client.get(MANAGED_DEFINITION, made["metadata"]["name"]))["spec"]["state"] == "Active"
    with pytest.raises(Invalid, match="state cannot be changed once it becomes Active"):
        change = Patch(PatchType.MERGE, {"spec": {"state": "Inactive"}})
        await bench.client.patch(MANAGED_DEFINITION, made["metadata"]["name"], change)
    await withdraw(bench, made)


async def test_an_active_definition_keeps_its_crd_as_it_says(bench: Workbench, unique: str) -> None:
    start(bench)
    made = await bench.client.create(definition(unique, state="Active"))
    await until_condition(bench.client, made, "Established", reason="EstablishedManagedResource")
    changed = definition(unique, state="Active")
    changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] = {"spec": {"type": "object"}}
    await bench.client.apply(changed, manager="user", force=True)

    async def is_narrower() -> bool:
        crd = await crd_of(bench, made)
        assert crd is not None
        served = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        return bool(served["properties"]["spec"] == {"type": "object"})

    await eventually(is_narrower, "a field that the definition has no more is not in its CRD")
    crd = await crd_of(bench, made)
    assert crd is not None
    categories = Patch(PatchType.MERGE, {"spec": {"versions": [{**crd["spec"]["versions"][0], "served": False}]}})
    await bench.client.patch(CRD, made["metadata"]["name"], categories)

    async def is_served() -> bool:
        found = await crd_of(bench, made)
        return found is not None and bool(found["spec"]["versions"][0]["served"])

    await eventually(is_served, "what somebody changed in the CRD is changed back")
    await withdraw(bench, made)


async def test_what_cannot_be_a_crd_says_why(bench: Workbench, unique: str) -> None:
    start(bench)
    wrong = definition(unique, state="Active")
    wrong["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": {"type": "string"}}
    made = await bench.client.create(wrong)
    told = await until_condition(bench.client, made, "Established", "False", reason="PendingManagedResource")
    message = next(each["message"] for each in told["status"]["conditions"] if each["type"] == "Established")
    assert "openAPIV3Schema" in message
    await withdraw(bench, made)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": {"kind": "Bucket", "plural": "Buckets"}}, "the plural name must be lowercase"),
        ({"group": "other.example.org"}, "group is immutable"),
        ({"scope": "Cluster"}, "scope is immutable"),
    ],
)
async def test_what_a_definition_is_called_cannot_change(
    bench: Workbench, unique: str, change: Object, message: str
) -> None:
    made = await bench.client.create(definition(unique))
    with pytest.raises(Invalid, match=message):
        await bench.client.patch(MANAGED_DEFINITION, made["metadata"]["name"], Patch(PatchType.MERGE, {"spec": change}))
    await withdraw(bench, made)


async def test_at_rest_neither_controller_writes(bench: Workbench, unique: str) -> None:
    definitions, policies = ManagedDefinitionController(bench), ActivationPolicyController(bench)
    definitions.start()
    policies.start()
    made = await bench.client.create(definition(unique))
    chosen = await bench.client.create(policy(unique, made["metadata"]["name"]))
    await until_condition(bench.client, made, "Established", reason="EstablishedManagedResource")
    settled = await until_condition(bench.client, chosen, "Healthy")
    assert settled["status"]["activated"] == [made["metadata"]["name"]]

    async def versions() -> list[str]:
        found = [
            await bench.client.get(CRD, made["metadata"]["name"]),
            await bench.client.get(MANAGED_DEFINITION, made["metadata"]["name"]),
            await bench.client.get(ACTIVATION_POLICY, unique),
        ]
        return [each["metadata"]["resourceVersion"] for each in found]

    before = await versions()
    assert await definitions.reconcile(ObjectKey("", made["metadata"]["name"])) == Result()
    assert await policies.reconcile(ObjectKey("", unique)) == Result()
    assert await versions() == before
    await withdraw(bench, made, chosen)


async def test_the_default_policy_is_made_once_and_left_as_it_is(bench: Workbench) -> None:
    await ensure_default_policy(bench.client, [])
    with pytest.raises(NotFound):
        await bench.client.get(ACTIVATION_POLICY, DEFAULT_POLICY)
    await ensure_default_policy(bench.client, ["*"])
    narrowed = {"spec": {"activate": ["*.example.org"]}}
    await bench.client.patch(ACTIVATION_POLICY, DEFAULT_POLICY, Patch(PatchType.MERGE, narrowed))
    await ensure_default_policy(bench.client, ["*"])
    assert (await bench.client.get(ACTIVATION_POLICY, DEFAULT_POLICY))["spec"] == narrowed["spec"]
    await bench.client.delete(ACTIVATION_POLICY, DEFAULT_POLICY)


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("*", True),
        ("*.aws.example.org", True),
        ("buckets.aws.example.org", True),
        ("bucket?.aws.*", True),
        ("[a-c]uckets.*", True),
        ("[^a-c]uckets.*", False),
        ("*.gcp.example.org", False),
        ("Buckets.aws.example.org", False),
    ],
)
def test_patterns_are_those_of_file_names(pattern: str, matches: bool) -> None:
    assert activates([pattern], "buckets.aws.example.org") is matches
