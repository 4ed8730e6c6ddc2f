"""Compositions and their revisions, on both engines: made, reused, adopted, judged, counted and collected."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import yaml

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import (
    COMPOSITION,
    COMPOSITION_HASH_LABEL,
    COMPOSITION_NAME_LABEL,
    COMPOSITION_REVISION,
    COMPOSITION_SPEC_HASH_LABEL,
    EVENT,
    FUNCTION_REVISION,
    PACKAGE_LABEL,
)
from planform.api.owners import controller_reference
from planform.client.informer import ObjectKey
from planform.client.protocol import Client, Patch, PatchType
from planform.clock import VirtualClock
from planform.compositions.controller import COUNTS_EVERY, CompositionController
from planform.compositions.revisions import composition_label, number_of
from planform.compositions.usage_index import UsageIndex, XrKey
from planform.errors import Conflict
from planform.packages.function_catalogue import LiveFunctions
from planform.pipeline.matching import differences
from planform.pipeline.revision_selectors import RevisionSelector
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Result
from planform.reconcile.events import open_events
from tests.harness.contexts import condition_of, eventually, read, until_condition

DESIGN = """
apiVersion: apiextensions.crossplane.io/v1
kind: Composition
metadata:
  name: example
spec:
  compositeTypeRef:
    apiVersion: database.example.org/v1alpha1
    kind: CompositePostgreSQLInstance
  writeConnectionSecretsToNamespace: crossplane-system
  resources:
    - name: cloudsqlinstance
      base:
        apiVersion: database.gcp.crossplane.io/v1beta1
        kind: CloudSQLInstance
        spec:
          forProvider:
            databaseVersion: POSTGRES_9_6
            region: us-central1
            settings:
              tier: db-custom-1-3840
              dataDiskType: PD_SSD
      patches:
        - fromFieldPath: "spec.parameters.storageGB"
          toFieldPath: "spec.forProvider.settings.dataDiskSizeGb"
"""
DESIGN_REVISION = """
apiVersion: apiextensions.crossplane.io/v1alpha1
kind: CompositionRevision
metadata:
  labels:
    crossplane.io/composition-name: example
  ownerReferences:
  - apiVersion: apiextensions.crossplane.io/v1
    kind: Composition
    name: example
    controller: true
spec:
  revision: 1
"""


@dataclass
class Setting:
    """The controller on one engine, and a Composition's name of its own."""

    context: ControllerContext
    name: str
    usage_index: UsageIndex
    functions: LiveFunctions
    controller: CompositionController

    @property
    def client(self) -> Client:
        return self.context.client

    def composition(self, region: str = "eu", *, labels: Object | None = None, **spec: Any) -> Object:
        step = {
            "step": "compose",
            "functionRef": {"name": f"function-of-{self.name}"},
            "input": {"apiVersion": "example.org/v1", "kind": "Input", "region": region},
        }
        return {
            "apiVersion": COMPOSITION.api_version,
            "kind": COMPOSITION.kind,
            "metadata": {"name": self.name, "labels": labels or {}},
            "spec": {
                "compositeTypeRef": {"apiVersion": f"{self.name}.example.org/v1", "kind": "XApp"},
                "mode": "Pipeline",
                "pipeline": [step],
                **spec,
            },
        }

    async def apply(self, region: str = "eu", **more: Any) -> Object:
        """Have the Composition like this, and wait until its newest revision is."""
        wanted = self.composition(region, **more)
        await self.client.apply(wanted, manager="test", force=True)
        return await self.until_newest(region, wanted["metadata"]["labels"])

    async def until_newest(self, region: str, labels: Mapping[str, str] | None = None) -> Object:
        async def check() -> Object | None:
            found = await self.revisions()
            newest = found[-1] if found else None
            composition = await self.client.get(COMPOSITION, self.name)
            latest = ((composition.get("status") or {}).get("latestRevision") or {}).get("name")
            return (
                newest
                if newest is not None
                and latest == newest["metadata"]["name"]
                and region_of(newest) == region
                and (labels or {}).items() <= newest["metadata"]["labels"].items()
                and condition_of(newest, "ValidPipeline")
                else None
            )

        return await eventually(check, f"a newest revision for {region}")

    async def revisions(self) -> list[Object]:
        """The newest last."""
        listed = await self.client.list(COMPOSITION_REVISION, labels=f"{COMPOSITION_NAME_LABEL}={self.name}")
        return sorted(listed.items, key=number_of)

    async def numbers(self) -> dict[str, int]:
        return {region_of(each): number_of(each) for each in await self.revisions()}

    async def patch(self, gvk: GroupVersionKind, name: str, body: Object) -> Object:
        return await self.client.patch(gvk, name, Patch(PatchType.MERGE, body))

    async def reconciled(self) -> None:
        """A reconcile of the controller over the Composition, now; the running one may have been there first."""
        while True:
            try:
                await self.controller.reconcile(ObjectKey("", self.name))
                return
            except Conflict:
                await asyncio.sleep(0.01)

    async def at_rest(self) -> dict[str, str]:
        """Settled; the version of each object that the controller writes."""

        async def check() -> dict[str, str] | None:
            before = await self._versions()
            await self.reconciled()
            return before if await self._versions() == before else None

        return await eventually(check, "nothing to write")

    async def _versions(self) -> dict[str, str]:
        found = [await self.client.get(COMPOSITION, self.name), *await self.revisions()]
        return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in found}

    async def events(self, reason: str) -> list[str]:
        await self.context.events.written()
        listed = await self.client.list(EVENT, namespace="default")
        return [
            each["message"]
            for each in listed.items
            if each.get("reason") == reason and each["involvedObject"].get("name", "").startswith(self.name)
        ]

    def xr(self, name: str) -> XrKey:
        return XrKey(f"XApp.{self.name}.example.org", "", name)


def region_of(revision: Object) -> str:
    return str(revision["spec"]["pipeline"][0]["input"]["region"])


@pytest.fixture
async def setting(context: ControllerContext, unique: str) -> AsyncIterator[Setting]:
    async with LiveFunctions(context) as functions:
        usage_index = UsageIndex(context.metrics)
        controller = CompositionController(context, usage_index, functions)
        controller.start()
        controller.start()
        setting = Setting(context, unique, usage_index, functions, controller)
        yield setting
        for gvk in (COMPOSITION, FUNCTION_REVISION):
            for each in (await context.client.list(gvk)).items:
                if unique in each["metadata"]["name"]:
                    await context.client.delete(gvk, each["metadata"]["name"])


# Making them


async def test_the_composition_of_the_revisions_design_becomes_the_revision_that_is_printed_there(
    setting: Setting,
) -> None:
    composition, printed = yaml.safe_load(DESIGN), yaml.safe_load(DESIGN_REVISION)
    composition["metadata"]["name"] = setting.name
    printed["metadata"]["labels"][COMPOSITION_NAME_LABEL] = setting.name
    printed["metadata"]["ownerReferences"][0]["name"] = setting.name
    printed["spec"] = {**composition["spec"], **printed["spec"]}
    await setting.client.create(composition)
    await until_condition(setting.client, composition, "Synced")
    [made] = await setting.revisions()
    shown = await setting.client.get(COMPOSITION_REVISION._replace(version="v1alpha1"), made["metadata"]["name"])
    assert list(differences(printed, shown)) == []
    assert shown["spec"] == printed["spec"]
    assert re.fullmatch(r"[0-9a-f]{16}", shown["metadata"]["labels"][COMPOSITION_SPEC_HASH_LABEL])
    assert re.fullmatch(setting.name + r"-[0-9a-f]{12}", shown["metadata"]["name"])


async def test_a_composition_tells_its_newest_revision_and_how_many_there_are(setting: Setting) -> None:
    await setting.apply("eu")
    newest = await setting.apply("us")
    found = await setting.client.get(COMPOSITION, setting.name)
    assert found["status"]["latestRevision"] == {"name": newest["metadata"]["name"], "revision": 2}
    assert found["status"]["revisions"] == 2
    assert (condition_of(found, "Synced") or {})["status"] == "True"
    assert await setting.events("CreateRevision") and len(await setting.events("CreateRevision")) == 2


async def test_an_unchanged_composition_gets_no_revision_and_no_write(setting: Setting) -> None:
    await setting.apply("eu")
    await setting.client.apply(setting.composition("eu"), manager="test", force=True)
    before = await setting.at_rest()
    restarted = CompositionController(setting.context, setting.usage_index, setting.functions)
    await restarted.reconcile(ObjectKey("", setting.name))
    assert await setting.at_rest() == before
    assert await setting.numbers() == {"eu": 1}


async def test_a_changed_label_makes_a_revision_that_carries_it(setting: Setting) -> None:
    first = await setting.apply("eu", labels={"channel": "dev"})
    second = await setting.apply("eu", labels={"channel": "stable"})
    labels = [each["metadata"]["labels"] for each in (first, second)]
    assert [each["channel"] for each in labels] == ["dev", "stable"]
    assert len({each[COMPOSITION_HASH_LABEL] for each in labels}) == 2
    assert len({each[COMPOSITION_SPEC_HASH_LABEL] for each in labels}) == 1
    assert [number_of(each) for each in await setting.revisions()] == [1, 2]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"metadata": {"annotations": {"note": "new"}}}, id="an annotation"),
        pytest.param({"metadata": {"labels": {"helm.sh/chart": "app-1.2.3"}}}, id="a label of a tool"),
        pytest.param({"spec": {"revisionHistoryLimit": 3}}, id="the history limit"),
    ],
)
async def test_what_does_not_change_the_composition_makes_no_revision_where_the_specs_list_counts_annotations(
    setting: Setting, body: Object
) -> None:
    made = await setting.apply("eu")
    await setting.patch(COMPOSITION, setting.name, body)
    await setting.reconciled()
    assert [each["metadata"]["name"] for each in await setting.revisions()] == [made["metadata"]["name"]]


async def test_a_rollback_reuses_the_first_revision_under_the_highest_number(setting: Setting) -> None:
    first = await setting.apply("eu")
    await setting.apply("us")
    again = await setting.apply("eu")
    assert again["metadata"]["uid"] == first["metadata"]["uid"]
    assert await setting.numbers() == {"us": 2, "eu": 3}
    assert len(await setting.events("CreateRevision")) == 2


async def test_a_revision_somebody_deleted_is_made_again_under_a_new_number(setting: Setting) -> None:
    made = await setting.apply("eu")
    await setting.client.delete(COMPOSITION_REVISION, made["metadata"]["name"])

    async def check() -> bool:
        return await setting.numbers() == {"eu": 2}

    await eventually(check, "the revision again, numbered 2")


async def test_two_controllers_that_overlap_make_each_revision_once(setting: Setting) -> None:
    await setting.context.manager.stop("compositions")
    await setting.client.create(setting.composition("eu"))
    both = [CompositionController(setting.context, setting.usage_index, setting.functions) for _ in range(2)]
    ended = await asyncio.gather(
        *(each.reconcile(ObjectKey("", setting.name)) for each in both), return_exceptions=True
    )
    assert all(isinstance(each, Result | Conflict) for each in ended), ended
    await setting.at_rest()
    assert await setting.numbers() == {"eu": 1}


async def test_a_composition_whose_name_is_too_long_for_a_label_has_revisions_as_well(setting: Setting) -> None:
    setting.name = f"{setting.name}-{'long' * 20}"
    await setting.client.create(setting.composition("eu"))
    found = await until_condition(setting.client, setting.composition(), "Synced")
    name = found["status"]["latestRevision"]["name"]
    made = await setting.client.get(COMPOSITION_REVISION, name)
    assert made["metadata"]["labels"][COMPOSITION_NAME_LABEL] == composition_label(setting.name)
    assert len(name) == 63


async def test_a_paused_composition_makes_no_revision_until_it_goes_on(setting: Setting) -> None:
    await setting.apply("eu")
    await setting.patch(COMPOSITION, setting.name, {"metadata": {"annotations": {"crossplane.io/paused": "true"}}})
    await setting.client.apply(setting.composition("us"), manager="test", force=True)
    await until_condition(setting.client, setting.composition(), "Synced", "False", reason="ReconcilePaused")
    await setting.reconciled()
    assert await setting.numbers() == {"eu": 1}
    await setting.patch(COMPOSITION, setting.name, {"metadata": {"annotations": {"crossplane.io/paused": None}}})
    await setting.until_newest("us")


# Whose they are


async def test_revisions_without_owner_as_a_backup_restores_them_are_adopted_with_their_numbers(
    setting: Setting,
) -> None:
    await setting.apply("eu")
    await setting.apply("us")
    for each in await setting.revisions():
        await setting.patch(COMPOSITION_REVISION, each["metadata"]["name"], {"metadata": {"ownerReferences": None}})

    async def check() -> bool:
        return all(each["metadata"].get("ownerReferences") for each in await setting.revisions())

    await eventually(check, "both adopted")
    assert await setting.numbers() == {"eu": 1, "us": 2}


async def test_a_revision_that_somebody_else_controls_is_told_and_left_alone(setting: Setting) -> None:
    made = await setting.apply("eu")
    await setting.apply("us")
    other = setting.composition("other")
    other["metadata"]["name"] += "-other"
    owner = controller_reference(await setting.client.create(other))
    await setting.patch(COMPOSITION_REVISION, made["metadata"]["name"], {"metadata": {"ownerReferences": [owner]}})
    found = await until_condition(setting.client, setting.composition(), "Synced", "False", reason="ReconcileError")
    message = str((condition_of(found, "Synced") or {})["message"])
    assert message.endswith(f'is controlled by Composition "{setting.name}-other"')
    assert await setting.events("RevisionNotOurs") == [message]
    assert found["status"]["latestRevision"]["revision"] == 2


async def test_the_revisions_of_a_deleted_composition_go_with_it_and_a_namesake_starts_anew(setting: Setting) -> None:
    await setting.apply("eu")
    first = await setting.apply("us")
    await setting.client.delete(COMPOSITION, setting.name)
    await setting.client.create(setting.composition("us"))
    await until_condition(setting.client, setting.composition(), "Synced")
    made = await setting.until_newest("us")
    assert made["metadata"]["uid"] != first["metadata"]["uid"]

    async def check() -> bool:
        return [each["metadata"]["uid"] for each in await setting.revisions()] == [made["metadata"]["uid"]]

    await eventually(check, "one revision, of the new composition", seconds=90)
    await until_condition(setting.client, setting.composition(), "Synced")


async def test_a_composition_that_is_being_deleted_gets_no_more_revisions_and_one_that_is_gone_needs_nothing(
    setting: Setting,
) -> None:
    await setting.apply("eu")
    await setting.patch(COMPOSITION, setting.name, {"metadata": {"finalizers": ["example.org/held"]}})
    await setting.client.delete(COMPOSITION, setting.name)
    await setting.client.apply(setting.composition("us"), manager="test", force=True)
    before = await setting.client.get(COMPOSITION, setting.name)
    await setting.reconciled()
    assert await setting.numbers() == {"eu": 1}
    assert await setting.client.get(COMPOSITION, setting.name) == before
    await setting.patch(COMPOSITION, setting.name, {"metadata": {"finalizers": None}})

    async def gone() -> bool:
        return await read(setting.client, COMPOSITION, setting.name) is None

    await eventually(gone, "the Composition is gone")
    await setting.reconciled()
    assert "us" not in await setting.numbers()


# Whether their pipelines are valid


async def function_revision(setting: Setting, number: int, *, capabilities: list[str], state: str = "Active") -> Object:
    function = f"function-of-{setting.name}"
    made = await setting.client.create(
        {
            "apiVersion": FUNCTION_REVISION.api_version,
            "kind": FUNCTION_REVISION.kind,
            "metadata": {"name": f"{function}-{number}", "labels": {PACKAGE_LABEL: function}},
            "spec": {"image": "example/function:v1.0.0", "revision": number, "desiredState": state},
        }
    )
    body = {"status": {"capabilities": capabilities, "endpoint": "unix:/nowhere"}}
    return await setting.client.patch(
        FUNCTION_REVISION, made["metadata"]["name"], Patch(PatchType.MERGE, body), subresource="status"
    )


async def test_a_function_that_is_not_installed_does_not_make_a_pipeline_invalid(setting: Setting) -> None:
    made = await setting.apply("eu")
    assert [(each["type"], each["status"]) for each in made["status"]["conditions"]] == [
        ("Synced", "True"),
        ("ValidPipeline", "True"),
    ]


async def test_the_function_revision_that_a_step_chooses_must_be_able_to_compose_and_is_named_if_not(
    setting: Setting,
) -> None:
    made = await setting.apply("eu")
    await function_revision(setting, 1, capabilities=["composition"])
    await function_revision(setting, 2, capabilities=["operation"], state="Inactive")
    lacking = await function_revision(setting, 3, capabilities=["operation"])
    name = lacking["metadata"]["name"]
    refused = await until_condition(setting.client, made, "ValidPipeline", "False", reason="MissingCapabilities")
    message = f'without the capability "composition": "{name}" of function "function-of-{setting.name}"'
    assert (condition_of(refused, "ValidPipeline") or {})["message"] == message
    await setting.at_rest()
    assert await setting.events("MissingCapabilities") == [message]
    async with open_events(setting.client, clock=setting.context.clock, metrics=setting.context.metrics) as events:
        context = replace(setting.context, events=events)
        restarted = CompositionController(context, setting.usage_index, setting.functions)
        await restarted.reconcile(ObjectKey("", setting.name))
    assert await setting.events("MissingCapabilities") == [message]  # not again after a restart
    await setting.patch(FUNCTION_REVISION, name, {"spec": {"desiredState": "Inactive"}})
    await until_condition(setting.client, made, "ValidPipeline", "True")

    async def told() -> list[str]:
        return await setting.events("ValidPipeline")

    assert len(await eventually(told, "an event tells that the pipeline is valid again")) == 1


async def test_a_function_that_declares_no_capability_can_compose(setting: Setting) -> None:
    await function_revision(setting, 1, capabilities=[])
    made = await setting.apply("eu")
    assert (condition_of(made, "ValidPipeline") or {})["status"] == "True"


# Who uses them


async def test_a_composition_with_resources_and_a_pipeline_is_told_which_of_them_runs(setting: Setting) -> None:
    both = [{"name": "a", "base": {"apiVersion": "v1", "kind": "ConfigMap"}}]
    await setting.apply("r1")
    assert await setting.events("UnusedResources") == []
    await setting.apply("r2", resources=both)
    told = "spec.resources is not used: spec.pipeline runs, and a Composition has one of them"
    assert await setting.events("UnusedResources") == [told]


async def test_old_revisions_go_but_never_the_newest_one_in_use_or_one_whose_labels_an_xr_selects(
    setting: Setting,
) -> None:
    await setting.apply("r1", revisionHistoryLimit=1)
    await setting.apply("r2", revisionHistoryLimit=1, labels={"channel": "stable"})
    used = await setting.apply("r3", revisionHistoryLimit=1)
    for region in ("r4", "r5", "r6"):
        await setting.apply(region, revisionHistoryLimit=1)
    setting.usage_index.expect("XApp")
    setting.usage_index.set(setting.xr("a"), setting.name, used["metadata"]["name"])
    stable = RevisionSelector.of({"matchLabels": {"channel": "stable"}})
    setting.usage_index.set(setting.xr("b"), setting.name, "", stable)
    setting.usage_index.started()
    await setting.reconciled()
    assert len(await setting.revisions()) == 6  # not all kinds of XRs have been heard of
    setting.usage_index.heard("XApp")

    async def check() -> bool:
        return set(await setting.numbers()) == {"r2", "r3", "r5", "r6"}

    await eventually(check, "the others collected")

    async def told() -> bool:
        return len(await setting.events("DeleteRevision")) == 2

    await eventually(told, "both deletions are told")
    setting.usage_index.forget(setting.xr("a"))
    setting.usage_index.forget(setting.xr("b"))

    async def one_left() -> bool:
        return set(await setting.numbers()) == {"r5", "r6"}

    await eventually(one_left, "what was in use collected as well")
    await setting.at_rest()
    assert (await setting.client.get(COMPOSITION, setting.name))["status"]["revisions"] == 2


async def test_statuses_say_how_many_xrs_use_each_revision_once_all_xrs_are_known(setting: Setting) -> None:
    first = await setting.apply("eu")
    second = await setting.apply("us")
    names = [each["metadata"]["name"] for each in (first, second)]
    setting.usage_index.set(setting.xr("a"), setting.name, names[0])
    setting.usage_index.set(setting.xr("b"), setting.name, names[1])
    setting.usage_index.set(setting.xr("c"), setting.name, names[1])
    await setting.reconciled()
    assert "composites" not in (await setting.client.get(COMPOSITION, setting.name))["status"]
    setting.usage_index.started()

    async def counted() -> list[int] | None:
        composition = await setting.client.get(COMPOSITION, setting.name)
        found = [composition, *await setting.revisions()]
        counts = [each["status"].get("composites") for each in found]
        return counts if counts == [3, 1, 2] else None

    await eventually(counted, "3 XRs, 1 on the first and 2 on the second")


async def test_a_thousand_xrs_that_move_cost_one_write_of_counts_a_second_and_none_at_rest(setting: Setting) -> None:
    clock = VirtualClock()
    usage_index = UsageIndex(setting.context.metrics)
    usage_index.started()
    first, second = await setting.apply("eu"), await setting.apply("us")
    await setting.context.manager.stop("compositions")
    controller = CompositionController(replace(setting.context, clock=clock), usage_index, setting.functions)
    key, versions, wait = ObjectKey("", setting.name), set(), None
    for number in range(1000):
        usage_index.set(setting.xr(str(number)), setting.name, first["metadata"]["name"])
    await controller.reconcile(key)
    for number in range(1000):
        usage_index.set(setting.xr(str(number)), setting.name, second["metadata"]["name"])
        if number % 50 == 0:
            wait = (await controller.reconcile(key)).requeue_after
            found = await read(setting.client, COMPOSITION_REVISION, second["metadata"]["name"])
            versions.add((found or {})["metadata"]["resourceVersion"])
    assert len(versions) == 1 and wait == COUNTS_EVERY
    await clock.advance(COUNTS_EVERY)
    assert (await controller.reconcile(key)).requeue_after is None
    counts = {each["metadata"]["name"]: each["status"]["composites"] for each in await setting.revisions()}
    assert counts == {first["metadata"]["name"]: 0, second["metadata"]["name"]: 1000}
    assert (await controller.reconcile(key)).requeue_after is None
