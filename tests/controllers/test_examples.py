"""The platforms of `examples/` on both engines: applied as their pages say, until everything is ready."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from planform.api.kinds import Object, gvk, gvk_of
from planform.api.names import SECRET
from planform.cli.objects.manifests import read_manifests
from planform.pipeline.modes import to_pipeline_mode
from planform.reconcile.context import ControllerContext
from tests.controllers.stage import Stage, open_stage
from tests.harness.contexts import condition_of, eventually, read

pytestmark = pytest.mark.timeout(120)

EXAMPLES = Path(__file__).parents[2] / "examples"
NOP = ("nop.crossplane.io/v1alpha1", "NopResource")
CLUSTER_NOP = ("nop.crossplane.io/v1alpha1", "ClusterNopResource")


@pytest.fixture
async def stage(context: ControllerContext) -> AsyncIterator[Stage]:
    async with open_stage(context) as stage:
        yield stage


def manifests(*paths: str) -> list[Object]:
    return read_manifests([str(EXAMPLES / path) for path in paths])


async def install(stage: Stage, *paths: str) -> list[Object]:
    """Apply files and directories; gives the objects as they were made."""
    return [await stage.apply(obj) for obj in manifests(*paths)]


async def decoded(stage: Stage, name: str) -> dict[str, str]:
    secret = await stage.client.get(SECRET, name, namespace="default")
    return {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}


async def behind(stage: Stage, claim: Object) -> Object:
    """The XR of a claim."""
    reference = (await stage.get(claim))["spec"]["resourceRef"]
    return await stage.client.get(gvk(reference["apiVersion"], reference["kind"]), reference["name"])


# -- app


async def test_an_app_becomes_ready_with_database_bucket_and_the_secret_between(stage: Stage) -> None:
    await install(stage, "app/platform")
    [shop] = await install(stage, "app/shop.yaml")
    shop = await stage.ready(shop)
    assert shop["status"]["url"] == "https://default-shop-assets.s3.example.org"
    assert await decoded(stage, "shop-connection") == {
        "DATABASE_HOST": "shop.us-east-1.db.example.org",
        "DATABASE_USER": "app",
        "DATABASE_PASSWORD": "not-a-real-one",
    }
    [deployment] = (await stage.composed(shop, "apps/v1", "Deployment")).values()
    assert deployment["spec"]["replicas"] == 3
    clouds = await stage.composed(shop, *NOP, count=2)
    assert deployment["metadata"]["creationTimestamp"] >= clouds["database"]["metadata"]["creationTimestamp"]


async def test_an_app_of_defaults_becomes_ready_and_takes_everything_with_it_when_it_goes(stage: Stage) -> None:
    await install(stage, "app/platform")
    [blog] = await install(stage, "app/blog.yaml")
    blog = await stage.ready(blog)
    assert blog["spec"]["size"] == "small" and blog["spec"]["database"] == {"storageGB": 20}
    references = blog["spec"]["crossplane"]["resourceRefs"]
    assert len(references) == 5
    await stage.client.delete(gvk_of(blog), "blog", namespace="default")

    async def gone() -> bool:
        kinds = [(gvk(each["apiVersion"], each["kind"]), each["name"]) for each in references]
        left = [await read(stage.client, kind, name, "default") for kind, name in [(gvk_of(blog), "blog"), *kinds]]
        return not any(left)

    # A cluster's garbage collector looks for new kinds twice a minute, and App is one.
    await eventually(gone, "nothing is left of the app", seconds=90)


# -- clusters


async def test_a_claimed_cluster_becomes_ready_with_its_network_pools_and_secret(stage: Stage) -> None:
    await install(stage, "clusters/platform")
    [production] = await install(stage, "clusters/production.yaml")
    production = await stage.ready(production)
    cluster = await behind(stage, production)
    [network] = (await stage.composed(cluster, "platform.example.org/v1alpha1", "XNetwork")).values()
    assert condition_of(network, "Ready")["status"] == "True"  # type: ignore[index]
    assert network["status"]["subnets"] == ["us-east-1a", "us-east-1b"]
    assert (await stage.composed(network, *CLUSTER_NOP, count=3)).keys() == {"network", "subnet-a", "subnet-b"}
    parts = await stage.composed(cluster, *CLUSTER_NOP, count=3)
    assert parts.keys() == {"control-plane", "pool-general", "pool-memory"}
    fields = parts["control-plane"]["spec"]["forProvider"]["fields"]
    assert fields["networkId"] == network["status"]["networkId"]
    assert production["status"]["endpoint"] == fields["endpoint"]

    async def told() -> bool:
        wanted = {"endpoint": fields["endpoint"], "kubeconfig": "not-a-real-one"}
        found = await read(stage.client, SECRET, "production-cluster", "default")
        return found is not None and await decoded(stage, "production-cluster") == wanted

    await eventually(told, "the claim's Secret says how to reach the cluster")


async def test_a_node_pool_added_to_a_claim_is_added_to_the_cluster_and_one_left_out_goes(stage: Stage) -> None:
    await install(stage, "clusters/platform")
    [claim] = await install(stage, "clusters/development.yaml")
    claim = await stage.ready(claim)
    cluster = await behind(stage, claim)
    before = await stage.composed(cluster, *CLUSTER_NOP, count=2)
    await stage.merge(claim, {"spec": {"parameters": {"nodePools": [{"name": "general"}, {"name": "spot"}]}}})
    more = await stage.composed(cluster, *CLUSTER_NOP, count=3)
    assert {name: each["metadata"]["uid"] for name, each in more.items() if name != "pool-spot"} == {
        name: each["metadata"]["uid"] for name, each in before.items()
    }
    await stage.merge(claim, {"spec": {"parameters": {"nodePools": [{"name": "spot"}]}}})
    assert (await stage.composed(cluster, *CLUSTER_NOP, count=2)).keys() == {"control-plane", "pool-spot"}


# -- resources-to-pipeline


def test_the_pipeline_of_the_migration_is_what_convert_makes() -> None:
    [before], [after] = manifests("resources-to-pipeline/before.yaml"), manifests("resources-to-pipeline/after.yaml")
    assert to_pipeline_mode(before) == after


async def test_the_pipeline_is_adopted_by_the_automatic_bucket_and_not_by_the_manual_one(stage: Stage) -> None:
    await install(stage, "resources-to-pipeline/platform", "resources-to-pipeline/before.yaml")
    [reports, ledger] = await install(stage, "resources-to-pipeline/buckets.yaml")
    first = await stage.revision("bucket", 1)
    reports, ledger = await stage.ready(reports), await stage.ready(ledger)
    parts = await stage.composed(reports, *CLUSTER_NOP, count=2)
    assert {each["metadata"]["labels"]["owner"] for each in parts.values()} == {"platform-team"}
    # All is said, and nothing moves any more.
    reports = await stage.until(reports, lambda each: (each.get("status") or {}).get("address"), "has an address")
    ledger = await stage.until(ledger, lambda each: (each.get("status") or {}).get("address"), "has an address")
    assert reports["spec"]["compositionRevisionRef"] == {"name": first["metadata"]["name"]}

    await install(stage, "resources-to-pipeline/after.yaml")
    second = await stage.revision("bucket", 2)
    newest = {"name": second["metadata"]["name"]}
    await stage.until(reports, lambda each: each["spec"]["compositionRevisionRef"] == newest, "follows")
    await stage.until(second, lambda each: (each.get("status") or {}).get("composites") == 1, "is used by one")
    after = await stage.composed(reports, *CLUSTER_NOP, count=2)
    versions = {name: each["metadata"]["resourceVersion"] for name, each in after.items()}
    assert versions == {name: each["metadata"]["resourceVersion"] for name, each in parts.items()}
    assert (await stage.get(ledger))["metadata"]["resourceVersion"] == ledger["metadata"]["resourceVersion"]

    await stage.merge(ledger, {"spec": {"compositionRevisionRef": newest}})
    await stage.until(second, lambda each: (each.get("status") or {}).get("composites") == 2, "is used by both")
    await stage.ready(ledger)
