"""Definitions of managed resources: served once a policy activates them, and not before, on both engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import Object
from planform.api.names import ACTIVATION_POLICY, CRD, MANAGED_DEFINITION, PROVIDER, PROVIDER_REVISION
from planform.client.informer import ObjectKey
from planform.client.protocol import Patch, PatchType
from planform.errors import Invalid, NotFound
from planform.packages.managed_definitions import (
    DEFAULT_POLICY,
    ActivationPolicyController,
    ManagedDefinitionController,
    activates,
    ensure_default_policy,
)
from planform.packages.providers import ProviderController
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Result
from tests.harness.contexts import condition_of, eventually, until_condition
from tests.harness.packaging import installing, meta


@pytest.fixture
async def context(context: ControllerContext) -> ControllerContext:
    """Without policies: tests of a worker share its cluster, and control planes before left theirs, which means all."""
    await context.client.delete_collection(ACTIVATION_POLICY)
    return context


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


def start(context: ControllerContext) -> None:
    ManagedDefinitionController(context).start()
    ActivationPolicyController(context).start()


async def crd_of(context: ControllerContext, obj: Object) -> Object | None:
    try:
        return await context.client.get(CRD, obj["metadata"]["name"])
    except NotFound:
        return None


async def withdraw(context: ControllerContext, made: Object, *policies: Object) -> None:
    for each in policies:
        await context.client.delete(ACTIVATION_POLICY, each["metadata"]["name"])
    await context.client.delete(MANAGED_DEFINITION, made["metadata"]["name"])
    if await crd_of(context, made):  # a real API server alone has nobody who collects garbage
        try:
            await context.client.delete(CRD, made["metadata"]["name"])
        except NotFound:
            pass


async def test_a_definition_is_served_once_a_policy_activates_it_and_stays_so(
    context: ControllerContext, unique: str
) -> None:
    start(context)
    made = await context.client.create(definition(unique))
    waiting = await until_condition(context.client, made, "Established", "False", reason="InactiveManagedResource")
    assert waiting["spec"]["state"] == "Inactive" and await crd_of(context, made) is None
    broad = await context.client.create(policy(f"{unique}-broad", f"*.{unique}.example.org"))
    await until_condition(context.client, made, "Established", reason="EstablishedManagedResource")
    told = await until_condition(context.client, broad, "Healthy", reason="Running")
    assert told["status"]["activated"] == [made["metadata"]["name"]]
    crd = await crd_of(context, made)
    assert crd is not None and crd["spec"]["names"]["kind"] == "Bucket"
    assert [owner["kind"] for owner in crd["metadata"]["ownerReferences"]] == [MANAGED_DEFINITION.kind]
    await context.client.delete(ACTIVATION_POLICY, broad["metadata"]["name"])
    assert (await context.client.get(MANAGED_DEFINITION, made["metadata"]["name"]))["spec"]["state"] == "Active"
    with pytest.raises(Invalid, match="state cannot be changed once it becomes Active"):
        change = Patch(PatchType.MERGE, {"spec": {"state": "Inactive"}})
        await context.client.patch(MANAGED_DEFINITION, made["metadata"]["name"], change)
    await withdraw(context, made)


async def test_an_active_definition_keeps_its_crd_as_it_says(context: ControllerContext, unique: str) -> None:
    start(context)
    made = await context.client.create(definition(unique, state="Active"))
    await until_condition(context.client, made, "Established", reason="EstablishedManagedResource")
    changed = definition(unique, state="Active")
    changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] = {"spec": {"type": "object"}}
    await context.client.apply(changed, manager="user", force=True)

    async def is_narrower() -> bool:
        crd = await crd_of(context, made)
        assert crd is not None
        served = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        return bool(served["properties"]["spec"] == {"type": "object"})

    await eventually(is_narrower, "a field that the definition has no more is not in its CRD")
    crd = await crd_of(context, made)
    assert crd is not None
    categories = Patch(PatchType.MERGE, {"spec": {"versions": [{**crd["spec"]["versions"][0], "served": False}]}})
    await context.client.patch(CRD, made["metadata"]["name"], categories)

    async def is_served() -> bool:
        found = await crd_of(context, made)
        return found is not None and bool(found["spec"]["versions"][0]["served"])

    await eventually(is_served, "what somebody changed in the CRD is changed back")
    await withdraw(context, made)


async def test_what_cannot_be_a_crd_says_why(context: ControllerContext, unique: str) -> None:
    start(context)
    wrong = definition(unique, state="Active")
    wrong["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": {"type": "string"}}
    made = await context.client.create(wrong)
    told = await until_condition(context.client, made, "Established", "False", reason="PendingManagedResource")
    message = next(each["message"] for each in told["status"]["conditions"] if each["type"] == "Established")
    assert "openAPIV3Schema" in message
    await withdraw(context, made)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": {"kind": "Bucket", "plural": "Buckets"}}, "the plural name must be lowercase"),
        ({"group": "other.example.org"}, "group is immutable"),
        ({"scope": "Cluster"}, "scope is immutable"),
    ],
)
async def test_what_a_definition_is_called_cannot_change(
    context: ControllerContext, unique: str, change: Object, message: str
) -> None:
    made = await context.client.create(definition(unique))
    with pytest.raises(Invalid, match=message):
        await context.client.patch(
            MANAGED_DEFINITION, made["metadata"]["name"], Patch(PatchType.MERGE, {"spec": change})
        )
    await withdraw(context, made)


async def test_at_rest_neither_controller_writes(context: ControllerContext, unique: str) -> None:
    definitions, policies = ManagedDefinitionController(context), ActivationPolicyController(context)
    definitions.start()
    policies.start()
    made = await context.client.create(definition(unique))
    chosen = await context.client.create(policy(unique, made["metadata"]["name"]))
    await until_condition(context.client, made, "Established", reason="EstablishedManagedResource")
    settled = await until_condition(context.client, chosen, "Healthy")
    assert settled["status"]["activated"] == [made["metadata"]["name"]]

    async def versions() -> list[str]:
        found = [
            await context.client.get(CRD, made["metadata"]["name"]),
            await context.client.get(MANAGED_DEFINITION, made["metadata"]["name"]),
            await context.client.get(ACTIVATION_POLICY, unique),
        ]
        return [each["metadata"]["resourceVersion"] for each in found]

    before = await versions()
    assert await definitions.reconcile(ObjectKey("", made["metadata"]["name"])) == Result()
    assert await policies.reconcile(ObjectKey("", unique)) == Result()
    assert await versions() == before
    await withdraw(context, made, chosen)


async def test_the_default_policy_is_made_once_and_left_as_it_is(context: ControllerContext) -> None:
    await ensure_default_policy(context.client, [])
    with pytest.raises(NotFound):
        await context.client.get(ACTIVATION_POLICY, DEFAULT_POLICY)
    await ensure_default_policy(context.client, ["*"])
    narrowed = {"spec": {"activate": ["*.example.org"]}}
    await context.client.patch(ACTIVATION_POLICY, DEFAULT_POLICY, Patch(PatchType.MERGE, narrowed))
    await ensure_default_policy(context.client, ["*"])
    assert (await context.client.get(ACTIVATION_POLICY, DEFAULT_POLICY))["spec"] == narrowed["spec"]
    await context.client.delete(ACTIVATION_POLICY, DEFAULT_POLICY)


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


async def test_a_safe_start_provider_waits_for_activation(
    context: ControllerContext, unique: str, tmp_path: Path
) -> None:
    start(context)
    client, name = context.client, f"provider-{unique}"
    made = definition(unique)
    crd = {**made, "apiVersion": CRD.api_version, "kind": CRD.kind}
    reference = f"registry.example.org/acme/{name}:v1.0.0"
    about = meta("Provider", name, capabilities=["safe-start"])
    async with installing(context, tmp_path / "data") as installation:
        # It starts no program: that it would is said as the reason why it is not healthy.
        ProviderController(context, installation.packaging, None, tmp_path / "providers", None).start()
        installation.publish(reference, None, about=about, objects=[crd])
        provider = await installation.install(reference, kind="Provider", name=name)
        provider = await until_condition(client, provider, "Healthy", reason="AwaitingActivation")
        revision = await client.get(PROVIDER_REVISION, provider["status"]["currentRevision"])
        await until_condition(client, revision, "RuntimeActive", "False", reason="AwaitingActivation")
        await until_condition(client, revision, "RuntimeHealthy")
        assert (await client.get(MANAGED_DEFINITION, made["metadata"]["name"]))["spec"]["state"] == "Inactive"
        assert await crd_of(context, made) is None
        activating = await client.create(policy(unique, f"*.{unique}.example.org"))
        await until_condition(client, made, "Established")

        async def shall_run() -> bool:
            found = condition_of(await client.get(PROVIDER, name), "Healthy") or {}
            return "providers run in the cluster" in found.get("message", "")

        await eventually(shall_run, "it is to be started")
        await context.manager.stop("providers")
        await withdraw(context, made, activating)
        await client.delete(PROVIDER, name)
        await client.delete_collection(PROVIDER_REVISION)
