"""What the designs of composition revisions and of the rollout of functions print runs as printed, on both engines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from planform.api.kinds import Object, gvk
from planform.api.names import COMPOSITION_REVISION, FUNCTION_REVISION
from planform.reconcile.context import ControllerContext
from tests.controllers.stage import Stage, an_xr, open_stage, printed
from tests.harness.contexts import eventually, until_condition

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def stage(context: ControllerContext) -> AsyncIterator[Stage]:
    async with open_stage(context) as stage:
        yield stage


CLOUD_SQL = ("database.gcp.crossplane.io/v1beta1", "CloudSQLInstance")
CLUSTER_NOP = ("nop.crossplane.io/v1alpha1", "ClusterNopResource")

# -- Composition Revisions


@pytest.fixture
async def databases(stage: Stage) -> Stage:
    """What the revisions design takes for granted: the API, its claims, and the managed resource."""
    await stage.serve(*CLOUD_SQL)
    await stage.namespace("crossplane-system")
    await stage.define("database.example.org/v1alpha1", "CompositePostgreSQLInstance", claim="PostgreSQLInstance")
    return stage


async def test_revisions_design_resources_mode_composition_makes_the_printed_revision(databases: Stage) -> None:
    composition = await databases.apply(printed("revisions-composition"))
    revision = await databases.revision("example", 1)
    wanted = printed("revisions-revision")
    assert revision["spec"] == wanted["spec"]
    labels = revision["metadata"]["labels"]
    assert labels.keys() >= wanted["metadata"]["labels"].keys()
    assert labels["crossplane.io/composition-name"] == "example"
    assert len(labels["crossplane.io/composition-spec-hash"]) == len("707e5bf63687fce7")
    assert revision["metadata"]["name"].startswith("example-")
    [owner] = revision["metadata"]["ownerReferences"]
    assert owner.items() >= wanted["metadata"]["ownerReferences"][0].items()
    assert owner["uid"] == composition["metadata"]["uid"]
    # The same object, read as the design's version has it.
    old = await databases.client.get(gvk(wanted["apiVersion"], "CompositionRevision"), revision["metadata"]["name"])
    assert old["apiVersion"] == wanted["apiVersion"] and old["spec"] == wanted["spec"]


async def test_revisions_design_composition_that_says_nothing_new_makes_no_revision(databases: Stage) -> None:
    await databases.apply(printed("revisions-composition"))
    first = await databases.revision("example", 1)
    changed = printed("revisions-composition")
    changed["spec"]["resources"][0]["base"]["spec"]["forProvider"]["region"] = "europe-west1"
    await databases.apply(changed)
    second = await databases.revision("example", 2)
    await databases.apply(printed("revisions-composition"))
    again = await databases.revision("example", 3)
    assert again["metadata"]["uid"] == first["metadata"]["uid"]
    hash_label = "crossplane.io/composition-spec-hash"
    assert second["metadata"]["labels"][hash_label] != first["metadata"]["labels"][hash_label]
    assert len(await databases.revisions("example")) == 2


async def test_revisions_design_printed_revision_can_be_pinned_once_its_owner_has_a_uid(databases: Stage) -> None:
    composition = await databases.apply(printed("revisions-composition"))
    revision = printed("revisions-revision")
    revision["metadata"]["ownerReferences"][0]["uid"] = composition["metadata"]["uid"]
    await databases.client.create(revision)
    await until_condition(
        databases.client, {**revision, "apiVersion": COMPOSITION_REVISION.api_version}, "ValidPipeline"
    )
    pinned = await databases.apply(
        an_xr(
            "database.example.org/v1alpha1",
            "CompositePostgreSQLInstance",
            {
                "parameters": {"storageGB": 20},
                "compositionRef": {"name": "example"},
                "compositionRevisionRef": {"name": "example-fklem2"},
                "compositionUpdatePolicy": "Manual",
            },
        )
    )
    [instance] = (await databases.composed(pinned, *CLOUD_SQL)).values()
    assert instance["spec"]["forProvider"]["settings"]["dataDiskSizeGb"] == 20
    assert (await databases.get(pinned))["spec"]["compositionRevisionRef"] == {"name": "example-fklem2"}


def gcp_composition(region: str = "us-central1") -> Object:
    """The design's Composition as its claim selects it: by another name, and with a label."""
    composition = printed("revisions-composition")
    composition["metadata"] = {"name": "example-gcp", "labels": {"provider": "gcp"}}
    composition["spec"]["resources"][0]["base"]["spec"]["forProvider"]["region"] = region
    return composition


async def region_of(stage: Stage, xr: Object) -> str:
    [instance] = (await stage.composed(xr, *CLOUD_SQL)).values()
    return str(instance["spec"]["forProvider"]["region"])


async def composite_of(stage: Stage, claim: Object) -> Object:
    """The claim's XR; the claim names it before it is made."""
    found = await stage.until(claim, lambda each: each["spec"].get("resourceRef"), "has an XR")
    reference = found["spec"]["resourceRef"]
    named = {key: reference[key] for key in ("apiVersion", "kind")} | {"metadata": {"name": reference["name"]}}
    return await stage.until(named, lambda each: True, "is there")


async def test_revisions_design_claim_under_policy_automatic_adopts_every_new_revision(databases: Stage) -> None:
    await databases.apply(gcp_composition())
    first = await databases.revision("example-gcp", 1)
    claim = await databases.apply(printed("revisions-claim"))
    made = await composite_of(databases, claim)

    def uses(revision: Object) -> Any:
        return lambda each: each["spec"].get("compositionRevisionRef") == {"name": revision["metadata"]["name"]}

    # The revision that the claim names as an example does not exist: under Automatic it is only what was used last.
    await databases.until(made, uses(first), "uses the first revision")
    assert await region_of(databases, made) == "us-central1"
    await databases.apply(gcp_composition("europe-west1"))
    second = await databases.revision("example-gcp", 2)
    await databases.until(made, uses(second), "uses the second revision")
    await databases.until(claim, uses(second), "says so as well")

    async def moved() -> bool:
        return await region_of(databases, made) == "europe-west1"

    await eventually(moved, "the instance is in the region of the second revision")
    [instance] = (await databases.composed(made, *CLOUD_SQL)).values()
    assert instance["spec"]["forProvider"]["settings"]["dataDiskSizeGb"] == 20
    await databases.provide(instance)
    await databases.ready(claim)


async def test_revisions_design_claim_under_policy_manual_adopts_the_revision_it_is_told(databases: Stage) -> None:
    await databases.apply(gcp_composition())
    first = await databases.revision("example-gcp", 1)
    claim = printed("revisions-claim")
    claim["spec"] |= {
        "compositionUpdatePolicy": "Manual",
        "compositionRevisionRef": {"name": first["metadata"]["name"]},
    }
    await databases.apply(claim)
    made = await composite_of(databases, claim)
    assert await region_of(databases, made) == "us-central1"
    await databases.apply(gcp_composition("europe-west1"))
    second = await databases.revision("example-gcp", 2)
    # Another XR shows that the second revision is out; this one has not moved.
    follower = await databases.apply(
        an_xr(made["apiVersion"], made["kind"], {"compositionRef": {"name": "example-gcp"}})
    )
    assert await region_of(databases, follower) == "europe-west1"
    assert await region_of(databases, made) == "us-central1"
    reference = {"name": second["metadata"]["name"]}
    await databases.merge(claim, {"spec": {"compositionRevisionRef": reference}})
    await databases.until(
        made, lambda each: each["spec"]["compositionRevisionRef"] == reference, "uses the second revision"
    )

    async def moved() -> bool:
        return await region_of(databases, made) == "europe-west1"

    await eventually(moved, "the instance is in the region of the second revision")


async def test_revisions_design_claim_finds_its_composition_by_label(databases: Stage) -> None:
    other = gcp_composition("nowhere")
    other["metadata"] = {"name": "example-other", "labels": {"provider": "other"}}
    await databases.apply(other)
    await databases.apply(gcp_composition())
    claim = printed("revisions-claim")
    del claim["spec"]["compositionRef"], claim["spec"]["compositionRevisionRef"]
    await databases.apply(claim)
    made = await composite_of(databases, claim)
    assert await region_of(databases, made) == "us-central1"
    await databases.until(
        claim, lambda each: each["spec"].get("compositionRef") == {"name": "example-gcp"}, "has its composition"
    )


# -- Controlled Rollout of Composition Functions

PATCH_AND_TRANSFORM = "function-patch-and-transform"


async def function_revisions(stage: Stage, count: int) -> list[Object]:
    """The revisions of the design's function, the oldest first, once so many are active."""

    async def look() -> list[Object] | None:
        listed = await stage.client.list(FUNCTION_REVISION, labels=f"pkg.crossplane.io/package={PATCH_AND_TRANSFORM}")
        found = sorted(listed.items, key=lambda each: int(each["spec"]["revision"]))
        serving = [
            each
            for each in found
            if each["spec"]["desiredState"] == "Active" and (each.get("status") or {}).get("endpoint")
        ]
        return found if len(serving) == count else None

    return await eventually(look, f"{count} active revisions")


def bucket_composition() -> Object:
    """The design's Composition with the input that it leaves out for brevity."""
    composition = printed("rollout-composition")
    ready = {"time": "0s", "conditionType": "Ready", "conditionStatus": "True"}
    base = {"apiVersion": CLUSTER_NOP[0], "kind": CLUSTER_NOP[1], "spec": {"forProvider": {"conditionAfter": [ready]}}}
    composition["spec"]["pipeline"][0]["input"] = {
        "apiVersion": "pt.fn.crossplane.io/v1beta1",
        "kind": "Resources",
        "resources": [{"name": "bucket", "base": base}],
    }
    return composition


async def test_rollout_design_functions_keep_two_revisions_active_and_label_the_newer(stage: Stage) -> None:
    older = printed("rollout-function")
    older["spec"]["package"] = older["spec"]["package"].replace("v0.8.2", "v0.8.1")
    await stage.apply(older)
    await function_revisions(stage, 1)
    await stage.apply(printed("rollout-labelled-function"))
    first, second = await function_revisions(stage, 2)
    assert "release-channel" not in first["metadata"]["labels"]
    assert second["metadata"]["labels"]["release-channel"] == "alpha"
    assert second["spec"]["image"] == printed("rollout-function")["spec"]["package"]


async def test_rollout_design_function_labelled_later_labels_the_revision_it_has(stage: Stage) -> None:
    await stage.apply(printed("rollout-function"))
    await function_revisions(stage, 1)
    await stage.apply(printed("rollout-labelled-function"))  # of the same version of the package

    async def labelled() -> bool:
        [revision] = await function_revisions(stage, 1)
        return bool(revision["metadata"]["labels"].get("release-channel") == "alpha")

    await eventually(labelled, "the revision has the label")


async def test_rollout_design_composition_as_printed_says_that_its_input_was_left_out(stage: Stage) -> None:
    await stage.define("custom-api.example.org/v1alpha1", "AcmeBucket")
    await stage.apply(printed("rollout-labelled-function"))
    await function_revisions(stage, 1)
    await stage.apply(printed("rollout-composition"))
    problem = await stage.failure(await stage.apply(printed("rollout-xr")))
    assert problem["step"] == "patch-and-transform" and "the step has no input" in problem["message"]


async def test_rollout_design_step_without_a_matching_function_revision_fails_until_there_is_one(stage: Stage) -> None:
    await stage.define("custom-api.example.org/v1alpha1", "AcmeBucket")
    await stage.apply(printed("rollout-function"))
    await function_revisions(stage, 1)
    await stage.apply(bucket_composition())
    bucket = await stage.apply(printed("rollout-xr"))
    assert "release-channel=alpha" in (await stage.failure(bucket))["message"]
    await stage.apply(printed("rollout-labelled-function"))
    await stage.ready(bucket)


async def test_rollout_design_xr_under_policy_manual_runs_the_function_revision_of_its_label(stage: Stage) -> None:
    await stage.define("custom-api.example.org/v1alpha1", "AcmeBucket")
    older = printed("rollout-function")
    older["spec"]["package"] = older["spec"]["package"].replace("v0.8.2", "v0.8.1")
    await stage.apply(older)
    [old] = await function_revisions(stage, 1)
    stable = bucket_composition()
    stable["metadata"]["labels"] = {"release-channel": "stable"}
    [step] = stable["spec"]["pipeline"]
    del step["functionRevisionSelector"]
    step["functionRevisionRef"] = {"name": old["metadata"]["name"]}
    await stage.apply(stable)
    await stage.revision("example", 1)
    await stage.apply(printed("rollout-labelled-function"))
    _, new = await function_revisions(stage, 2)
    await stage.apply(bucket_composition())
    alpha = await stage.revision("example", 2)
    bucket = await stage.ready(await stage.apply(printed("rollout-xr")))
    assert bucket["spec"]["compositionRevisionRef"] == {"name": alpha["metadata"]["name"]}
    careful = printed("rollout-xr")
    careful["metadata"]["name"] = "careful-bucket"
    careful["spec"]["compositionRevisionSelector"]["matchLabels"]["release-channel"] = "stable"
    careful = await stage.ready(await stage.apply(careful))
    assert careful["spec"]["compositionRevisionRef"] != bucket["spec"]["compositionRevisionRef"]
    assert await stage.functions(bucket) == {"patch-and-transform": new["metadata"]["name"]}
    assert await stage.functions(careful) == {"patch-and-transform": old["metadata"]["name"]}
