"""Our kinds on either engine: installed once, complete, and refusing what would not work."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

import planform
from planform.api.extensions import crds, policies
from planform.api.kinds import Object, gvk_of
from planform.api.names import COMPOSITION_REVISION, CRD, XRD
from planform.app import Settings, open_control_plane
from planform.client.kubeconfig import find_connection
from planform.client.kubernetes import KubernetesClient
from planform.client.protocol import Client, Patch, PatchType
from planform.clock import SystemClock, VirtualClock
from planform.definitions.own_crds import VERSION_ANNOTATION, KindsNotServed, ensure_crds
from planform.errors import Conflict, Invalid
from planform.reconcile.context import ControllerContext
from tests.controllers.conftest import ENGINES
from tests.controllers.stage import printed
from tests.harness.contexts import embedded_context, eventually
from tests.harness.embedded import embedded_engine

HERE = Path(__file__).parent
EXAMPLES: list[Object] = yaml.safe_load((HERE / "kinds.yaml").read_text())
PRINTED = {
    "functions design: Composition of resources": "functions-resources",
    "functions design: v2alpha1 Composition of two functions": "functions-pipeline",
    "functions design: v1beta1 Function": "functions-function",
    "functions design: v1beta1 Function with an endpoint in its status": "functions-function-endpoint",
    "functions design: v2alpha1 Composition with Go templates": "functions-go-templates",
    "functions design: v2alpha1 Composition with a Starlark script": "functions-starlark",
    "functions design: Composition that calls patch-and-transform": "functions-patch-and-transform",
    "revisions design: Composition of resources": "revisions-composition",
    "revisions design: v1alpha1 CompositionRevision": "revisions-revision",
    "rollout design: Function with two active revisions": "rollout-function",
    "rollout design: labelled Function": "rollout-labelled-function",
    "rollout design: Composition that selects a function revision, with an empty input": "rollout-composition",
    "extra resources design: Composition with an environment": "extra-resources-environment",
    "extra resources design: Composition whose steps have names": "extra-resources-pipeline",
    "extra resources design: Composition of one step that has a name": "extra-resources-one-step",
    "extra resources design: Composition with allowed resources": "extra-resources-allowed",
}
"""What each manifest of `designs/` is."""


def _named(example: Object, unique: str) -> Object:
    found: Object = yaml.safe_load(yaml.safe_dump(example).replace("NAME", unique))
    return found


def _example(kind: str, unique: str, version: str = "") -> Object:
    found = [each for each in EXAMPLES if each["kind"] == kind and each["apiVersion"].endswith(version)]
    return _named(found[0], unique)


async def _exists(client: Client, obj: Object) -> Object:
    return await client.get(gvk_of(obj), obj["metadata"]["name"], namespace=obj["metadata"].get("namespace") or "")


async def _remove(client: Client, obj: Object) -> None:
    await client.delete(gvk_of(obj), obj["metadata"]["name"], namespace=obj["metadata"].get("namespace") or "")


# -- installing


async def test_a_second_start_writes_nothing_and_leaves_every_crd_as_it_was(context: ControllerContext) -> None:
    before = [(await context.client.get(CRD, crd["metadata"]["name"]))["metadata"] for crd in crds()]
    assert await ensure_crds(context.client, clock=context.clock) == 0
    after = [(await context.client.get(CRD, crd["metadata"]["name"]))["metadata"] for crd in crds()]
    assert [each["resourceVersion"] for each in before] == [each["resourceVersion"] for each in after]


async def test_what_somebody_changed_is_set_right_with_one_write(context: ControllerContext) -> None:
    crd = await context.client.get(CRD, "clusterusages.protection.crossplane.io")
    crd["spec"]["versions"][0]["additionalPrinterColumns"] = []
    crd["metadata"]["annotations"]["note"] = "keep me"
    await context.client.update(crd)
    assert await ensure_crds(context.client, clock=context.clock) == 1
    found = await context.client.get(CRD, crd["metadata"]["name"])
    assert [column["name"] for column in found["spec"]["versions"][0]["additionalPrinterColumns"]][-1] == "AGE"
    assert found["metadata"]["annotations"]["note"] == "keep me"
    assert await ensure_crds(context.client, clock=context.clock) == 0


async def test_the_crd_of_a_newer_planform_is_left_alone(context: ControllerContext) -> None:
    name = "clusterusages.protection.crossplane.io"
    crd = await context.client.get(CRD, name)
    crd["spec"]["versions"][0]["additionalPrinterColumns"] = []
    crd["metadata"]["annotations"][VERSION_ANNOTATION] = "999.0.0"
    newer = await context.client.update(crd)
    assert await ensure_crds(context.client, clock=context.clock) == 0
    assert (await context.client.get(CRD, name))["spec"] == newer["spec"]
    newer = await context.client.get(CRD, name)
    newer["metadata"]["annotations"][VERSION_ANNOTATION] = planform.__version__
    await context.client.update(newer)
    assert await ensure_crds(context.client, clock=context.clock) == 1


async def test_a_version_in_which_objects_are_stored_is_kept_when_planform_no_longer_has_it(
    context: ControllerContext,
) -> None:
    name = "clusterusages.protection.crossplane.io"
    crd = await context.client.get(CRD, name)
    old = copy.deepcopy(crd["spec"]["versions"][0])
    crd["spec"]["versions"][0]["storage"] = False
    crd["spec"]["versions"].append({**old, "name": "v1alpha9", "storage": True})
    await context.client.update(crd)
    assert await ensure_crds(context.client, clock=context.clock) == 1
    found = await context.client.get(CRD, name)
    assert {each["name"]: each["storage"] for each in found["spec"]["versions"]} == {"v1beta1": True, "v1alpha9": False}
    assert "v1alpha9" in found["status"]["storedVersions"]
    assert await ensure_crds(context.client, clock=context.clock) == 0
    found["status"]["storedVersions"] = ["v1beta1"]
    await context.client.update(found, subresource="status")
    assert await ensure_crds(context.client, clock=context.clock) == 1
    left = await context.client.get(CRD, name)
    assert [each["name"] for each in left["spec"]["versions"]] == ["v1beta1"]


async def test_processes_that_start_at_once_write_each_crd_once(context: ControllerContext) -> None:
    for name in ("clusterusages.protection.crossplane.io", "usages.protection.crossplane.io"):
        crd = await context.client.get(CRD, name)
        crd["spec"]["versions"][0]["additionalPrinterColumns"] = []
        await context.client.update(crd)
    writes = await asyncio.gather(*(ensure_crds(context.client, clock=context.clock) for _ in range(4)))
    assert sum(writes) == 2


async def test_first_start_of_the_embedded_engine_writes_each_crd_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []

    async def counted(client: Client, *, clock: Any) -> int:
        starts = await asyncio.gather(*(ensure_crds(client, clock=clock) for _ in range(3)))
        written.extend(starts)
        return sum(starts)

    monkeypatch.setattr("tests.harness.contexts.ensure_crds", counted)
    async with embedded_context():
        assert sum(written) == len(crds()) + len(policies())


async def test_a_crd_that_is_being_deleted_is_made_anew_once_it_is_gone(context: ControllerContext) -> None:
    name = "watchoperations.ops.crossplane.io"
    crd = await context.client.get(CRD, name)
    crd["metadata"]["finalizers"] = ["example.org/hold"]
    await context.client.update(crd)
    await context.client.delete(CRD, name)
    start = asyncio.create_task(ensure_crds(context.client, clock=context.clock))
    await asyncio.sleep(0)
    await context.client.patch(CRD, name, Patch(PatchType.MERGE, {"metadata": {"finalizers": None}}))
    assert await start == 1
    assert (await context.client.get(CRD, name))["metadata"]["uid"] != crd["metadata"]["uid"]


async def _settled(client: Client) -> bool:
    conditions = [(crd.get("status") or {}).get("conditions") for crd in (await client.list(CRD)).items]
    return len(conditions) > len(crds()) and all(conditions)


async def test_kinds_that_are_not_served_in_time_are_named_with_the_reason() -> None:
    clock = VirtualClock()
    taken = copy.deepcopy(next(crd for crd in crds() if crd["spec"]["names"]["kind"] == "Usage"))
    taken["metadata"]["name"] = "uses.protection.crossplane.io"
    taken["spec"]["names"] |= {"plural": "uses", "singular": "use", "listKind": "UseList"}  # and the kind Usage
    async with embedded_engine(clock=clock) as engine:
        await engine.establish(taken)
        start = asyncio.create_task(ensure_crds(engine.client, clock=clock))
        await eventually(lambda: _settled(engine.client), "all names are accepted or refused")
        await clock.advance(31)
        with pytest.raises(KindsNotServed, match=r"usages\.protection\.crossplane\.io \(.*already in use\)"):
            await start


# -- what is accepted


@pytest.mark.parametrize("example", [pytest.param(each, id=f"{gvk_of(each)}") for each in EXAMPLES])
async def test_every_field_of_a_full_example_comes_back(
    context: ControllerContext, unique: str, example: Object
) -> None:
    wanted = _named(example, unique)
    await context.client.create(wanted)
    try:
        found = await _exists(context.client, wanted)
        for section in ("spec", "data"):
            for name, value in (wanted.get(section) or {}).items():
                assert found[section][name] == value, name
    finally:
        await _remove(context.client, wanted)


@pytest.mark.parametrize("which", PRINTED)
async def test_manifest_of_a_design_is_accepted_as_printed(context: ControllerContext, which: str) -> None:
    wanted = printed(PRINTED[which])
    if which == "revisions design: v1alpha1 CompositionRevision":
        wanted["metadata"]["ownerReferences"][0]["uid"] = (
            "8b1f2f0e-0000-4000-8000-000000000000"  # no API takes it without
        )
    if which == "extra resources design: Composition with allowed resources":
        wanted["spec"]["compositeTypeRef"] = {"apiVersion": "example.org/v1", "kind": "XR"}  # printed without: a sketch
    made = await context.client.create(wanted, dry_run=True)
    for name, value in wanted["spec"].items():
        assert made["spec"][name] == value


async def test_alias_and_current_version_are_one_object(context: ControllerContext, unique: str) -> None:
    old = {**_example("Composition", unique), "apiVersion": "apiextensions.crossplane.io/v2alpha1"}
    await context.client.create(old)
    try:
        found = await context.client.get(gvk_of(_example("Composition", unique)), unique)
        assert found["apiVersion"] == "apiextensions.crossplane.io/v1" and found["spec"] == old["spec"]
    finally:
        await _remove(context.client, old)


@pytest.fixture(params=ENGINES)
async def wire(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """A client that speaks HTTP to either engine."""
    clock, rng = SystemClock(), Random(7)
    if request.param == "kubernetes":
        path: Path = request.getfixturevalue("kubernetes_engine").kubeconfig
        async with KubernetesClient(find_connection(clock=clock, path=path), clock=clock, rng=rng) as client:
            await ensure_crds(client, clock=clock)
            yield client
        return
    async with open_control_plane(Settings(data=None)) as plane:
        connection = find_connection(clock=clock, path=plane.kubeconfig)
        async with KubernetesClient(connection, clock=clock, rng=rng) as client:
            await ensure_crds(client, clock=clock)
            yield client


async def test_old_versions_warn_on_the_wire_and_say_what_to_use(
    wire: Client, unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    aliases = {
        "Composition": ["v2alpha1"],
        "CompositionRevision": ["v1alpha1", "v1beta1"],
        "EnvironmentConfig": ["v1alpha1"],
        "CompositeResourceDefinition": ["v1"],
    }
    with caplog.at_level(logging.WARNING, logger="planform.client.transport"):
        for kind, versions in aliases.items():
            for version in versions:
                obj = _example(kind, unique)
                group = obj["apiVersion"].partition("/")[0]
                await wire.create({**obj, "apiVersion": f"{group}/{version}"}, dry_run=True)
                assert f"{group}/{version} {kind} is deprecated; use {group}/" in caplog.text


# -- what is refused

Change = Callable[[Object], object]
LEGACY, MODERN = ("CompositeResourceDefinition", "v1"), ("CompositeResourceDefinition", "v2")


def _pod(config: Object) -> Object:
    found: Object = config["spec"]["deploymentTemplate"]["spec"]["template"]["spec"]
    return found


def _container(config: Object) -> Object:
    found: Object = _pod(config)["containers"][0]
    return found


REFUSED: dict[str, tuple[tuple[str, str], Change, str]] = {
    "an XRD whose name is not plural and group": (MODERN, lambda o: o["spec"].update(group="other.org"), "plural"),
    "an XRD with an upper-case plural": (MODERN, lambda o: o["spec"]["names"].update(singular="Thing"), "lower case"),
    "claims of a modern XRD": (
        MODERN,
        lambda o: o["spec"].update(claimNames={"kind": "C", "plural": "cs"}),
        "claimNames",
    ),
    "connection keys of a modern XRD": (
        MODERN,
        lambda o: o["spec"].update(connectionSecretKeys=["a"]),
        "connectionSecretKeys",
    ),
    "a new v2 XRD of legacy scope": (MODERN, lambda o: o["spec"].update(scope="LegacyCluster"), "LegacyCluster"),
    "an unknown scope": (MODERN, lambda o: o["spec"].update(scope="Galaxy"), "Unsupported value"),
    "no version": (MODERN, lambda o: o["spec"].update(versions=[]), "versions"),
    "no referenceable version": (
        MODERN,
        lambda o: o["spec"]["versions"][0].update(referenceable=False),
        "exactly one version must be referenceable",
    ),
    "two referenceable versions": (
        MODERN,
        lambda o: o["spec"]["versions"][1].update(referenceable=True),
        "exactly one version must be referenceable",
    ),
    "two versions of one name": (MODERN, lambda o: o["spec"]["versions"][1].update(name="v1"), "Duplicate value"),
    "a long deprecation warning": (
        MODERN,
        lambda o: o["spec"]["versions"][0].update(deprecationWarning="x" * 257),
        "256",
    ),
    "a claim of the XR's kind": (LEGACY, lambda o: o["spec"]["claimNames"].update(kind="XLegacy"), "must differ"),
    "a claim of the XR's plural": (
        LEGACY,
        lambda o: o["spec"]["claimNames"].update(plural="legacies"),
        "must differ",
    ),
    "a claim of the XR's singular": (
        LEGACY,
        lambda o: o["spec"]["claimNames"].update(singular="xlegacy"),
        "must differ",
    ),
    "a v1 conversion that is no webhook": (
        LEGACY,
        lambda o: o["spec"].update(conversion={"strategy": "None"}),
        "Webhook",
    ),
    "claims of a namespaced v1 XRD": (
        LEGACY,
        lambda o: o["spec"].update(scope="Namespaced"),
        "only scope LegacyCluster",
    ),
    "no pipeline": (("Composition", ""), lambda o: o["spec"].pop("pipeline"), "pipeline"),
    "an empty pipeline": (("Composition", ""), lambda o: o["spec"].update(pipeline=[]), "pipeline"),
    "neither mode nor steps": (
        ("Composition", ""),
        lambda o: (o["spec"].pop("pipeline"), o["spec"].pop("mode")),
        "needs a pipeline",
    ),
    "mode Resources without any": (("Composition", ""), lambda o: o["spec"].update(mode="Resources"), "one resource"),
    "an unknown mode": (("Composition", ""), lambda o: o["spec"].update(mode="Magic"), "Unsupported value"),
    "duplicate steps": (
        ("Composition", ""),
        lambda o: o["spec"]["pipeline"][1].update(name="first"),
        "a name of its own",
    ),
    "a step without a name": (("Composition", ""), lambda o: o["spec"]["pipeline"][1].pop("name"), "needs a name"),
    "a step with two names": (
        ("Composition", ""),
        lambda o: o["spec"]["pipeline"][0].update(name="x"),
        "alias of step",
    ),
    "a step without a function": (
        ("Composition", ""),
        lambda o: o["spec"]["pipeline"][0].pop("functionRef"),
        "Required",
    ),
    "input and inputRef": (
        ("Composition", ""),
        lambda o: o["spec"]["pipeline"][1].update(input={"apiVersion": "a/v1", "kind": "B"}),
        "exclude each other",
    ),
    "an input without a kind": (("Composition", ""), lambda o: o["spec"]["pipeline"][0]["input"].pop("kind"), "kind"),
    "credentials without a secretRef": (
        ("Composition", ""),
        lambda o: o["spec"]["pipeline"][0]["credentials"][0].pop("secretRef"),
        "secretRef",
    ),
    "a requirement by name and labels": (
        ("Composition", ""),
        lambda o: o["spec"]["pipeline"][0]["requirements"]["requiredResources"][0].update(matchLabels={}),
        "exclude each other",
    ),
    "a timeout that is no duration": (
        ("Composition", ""),
        lambda o: o["spec"]["pipeline"][0].update(timeout="5"),
        "timeout",
    ),
    "a share above 100": (("Composition", ""), lambda o: o["spec"]["deletionBudget"].update(maxShare=101), "100"),
    "a revision without a number": (("CompositionRevision", ""), lambda o: o["spec"].pop("revision"), "Required value"),
    "more active revisions than are kept": (
        ("Function", ""),
        lambda o: o["spec"].update(activeRevisionLimit=5),
        "must not exceed",
    ),
    "a usage of nothing": (("Usage", ""), lambda o: o["spec"]["of"].pop("resourceRef"), "is needed"),
    "a usage without by and reason": (
        ("Usage", ""),
        lambda o: (o["spec"].pop("by"), o["spec"].pop("reason")),
        "by and reason",
    ),
    "a runtime configuration with a word for a number": (
        ("DeploymentRuntimeConfig", ""),
        lambda o: o["spec"]["deploymentTemplate"]["spec"].update(replicas="two"),
        "replicas",
    ),
    "a runtime configuration with a limit that is no quantity": (
        ("DeploymentRuntimeConfig", ""),
        lambda o: _container(o)["resources"]["limits"].update(memory="plenty"),
        "memory",
    ),
    "a runtime configuration with a container twice": (
        ("DeploymentRuntimeConfig", ""),
        lambda o: _pod(o).update(containers=[_container(o), _container(o)]),
        "Duplicate value",
    ),
    "a condition after no duration": (
        ("NopResource", ""),
        lambda o: o["spec"]["forProvider"]["conditionAfter"][0].update(time="soon"),
        "time",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_refuses(context: ControllerContext, unique: str, what: str) -> None:
    (kind, version), change, words = REFUSED[what]
    obj = _example(kind, unique, version)
    await context.client.create(obj, dry_run=True)
    change(obj)
    with pytest.raises(Invalid, match=words):
        await context.client.create(obj, dry_run=True)


IMMUTABLE: dict[str, tuple[tuple[str, str], Change]] = {
    "names of an XRD": (MODERN, lambda o: o["spec"]["names"].update(kind="Other")),
    "scope of an XRD": (MODERN, lambda o: o["spec"].update(scope="Namespaced")),
    "claimNames of an XRD": (LEGACY, lambda o: o["spec"]["claimNames"].update(kind="Other")),
    "claimNames of an XRD, once set": (LEGACY, lambda o: o["spec"].pop("claimNames")),
    "enforcedCompositionRef of an XRD": (LEGACY, lambda o: o["spec"]["enforcedCompositionRef"].update(name="other")),
    "compositeTypeRef of a Composition": (
        ("Composition", ""),
        lambda o: o["spec"]["compositeTypeRef"].update(kind="Other"),
    ),
    "watched kind of a WatchOperation": (("WatchOperation", ""), lambda o: o["spec"]["watch"].update(kind="Secret")),
}


@pytest.mark.parametrize("what", IMMUTABLE)
async def test_immutable(context: ControllerContext, unique: str, what: str) -> None:
    (kind, version), change = IMMUTABLE[what]
    made = await context.client.create(_example(kind, unique, version))
    try:
        changed = copy.deepcopy(made)
        change(changed)
        with pytest.raises(Invalid, match="immutable"):
            await context.client.update(changed)
    finally:
        await _remove(context.client, made)


async def test_a_pipeline_belongs_to_whoever_applied_it_last_as_a_whole(
    context: ControllerContext, unique: str
) -> None:
    def wanting(step: str) -> Object:
        made = _example("Composition", unique)
        made["spec"] = {
            "compositeTypeRef": made["spec"]["compositeTypeRef"],
            "pipeline": [{"step": step, "functionRef": {"name": "function-a"}}],
        }
        return made

    made = await context.client.apply(wanting("one"), manager="first")
    try:
        with pytest.raises(Conflict, match=r"spec\.pipeline"):
            await context.client.apply(wanting("two"), manager="second")
        forced = await context.client.apply(wanting("two"), manager="second", force=True)
        assert [step["step"] for step in forced["spec"]["pipeline"]] == ["two"]
    finally:
        await _remove(context.client, made)


async def test_legacy_xrd_can_be_written_through_v2_and_stays_legacy(context: ControllerContext, unique: str) -> None:
    made = await context.client.create(_example("CompositeResourceDefinition", unique, "v1"))
    try:
        found = await context.client.get(XRD, made["metadata"]["name"])
        assert found["spec"]["scope"] == "LegacyCluster" and found["spec"]["claimNames"]["kind"] == "Legacy"
        found["metadata"]["labels"] = {"written": "through-v2"}
        found["spec"]["defaultCompositionRef"] = {"name": "other"}
        written = await context.client.update(found)
        assert (
            written["spec"]["scope"] == "LegacyCluster" and written["spec"]["defaultCompositionRef"]["name"] == "other"
        )
    finally:
        await _remove(context.client, made)


@pytest.mark.parametrize(("version", "scope"), [("v1", "LegacyCluster"), ("v2", "Namespaced")])
async def test_scope_that_is_not_given_depends_on_the_version(
    context: ControllerContext, unique: str, version: str, scope: str
) -> None:
    xrd = _example("CompositeResourceDefinition", unique, "v2")
    xrd["apiVersion"] = f"apiextensions.crossplane.io/{version}"
    del xrd["spec"]["scope"], xrd["spec"]["conversion"]
    made = await context.client.create(xrd)
    try:
        for each in ("v1", "v2"):
            found = await context.client.get(XRD._replace(version=each), made["metadata"]["name"])
            assert found["spec"]["scope"] == scope
            assert found["spec"]["defaultCompositionUpdatePolicy"] == "Automatic"
    finally:
        await _remove(context.client, made)


# -- CompositionRevisions never change

CHANGES: dict[str, Change] = {
    "a value deep inside the input of a step": lambda o: o["spec"]["pipeline"][0]["input"]["deep"][0]["er"].update(
        {"and": 2}
    ),
    "a new field in the input of a step": lambda o: o["spec"]["pipeline"][0]["input"].update(new=1),
    "a field that leaves the input of a step": lambda o: o["spec"]["pipeline"][0]["input"].pop("deep"),
    "metadata of the input of a step": lambda o: o["spec"]["pipeline"][0]["input"]["metadata"].update(name="j"),
    "kind of the input of a step": lambda o: o["spec"]["pipeline"][0]["input"].update(kind="Other"),
    "no input at all": lambda o: o["spec"]["pipeline"][0].pop("input"),
    "one more step": lambda o: o["spec"]["pipeline"].append({"step": "c", "functionRef": {"name": "f"}}),
    "one step less": lambda o: o["spec"]["pipeline"].pop(),
    "another order of steps": lambda o: o["spec"]["pipeline"].reverse(),
    "a function": lambda o: o["spec"]["pipeline"][0]["functionRef"].update(name="other"),
    "a label selector": lambda o: o["spec"]["pipeline"][0]["functionRevisionSelector"]["matchLabels"].update(
        channel="b"
    ),
    "the kind of XRs": lambda o: o["spec"]["compositeTypeRef"].update(kind="Other"),
    "a field that is added": lambda o: o["spec"].update(environment={"defaultData": {"a": 1}}),
    "a field that is removed": lambda o: o["spec"].pop("deletionBudget"),
    "a lower number": lambda o: o["spec"].update(revision=2),
}


@pytest.mark.parametrize("what", CHANGES)
async def test_revision_refuses(context: ControllerContext, unique: str, what: str) -> None:
    made = await context.client.create(_example("CompositionRevision", unique))
    try:
        changed = copy.deepcopy(made)
        CHANGES[what](changed)
        assert changed != made
        with pytest.raises(Invalid):
            await context.client.update(changed)
        assert await context.client.get(COMPOSITION_REVISION, made["metadata"]["name"]) == made
    finally:
        await _remove(context.client, made)


async def test_revision_in_resources_mode_refuses_a_change_inside_a_base(
    context: ControllerContext, unique: str
) -> None:
    example = next(each for each in EXAMPLES if each["metadata"]["name"] == "NAME-resources")
    revision = _named({**example, "kind": "CompositionRevision"}, unique)
    revision["spec"]["revision"] = 1
    made = await context.client.create(revision)
    try:
        changes: list[Change] = [
            lambda o: o["spec"]["resources"][0]["base"]["data"].update(a="c"),
            lambda o: o["spec"]["resources"][0]["patches"][1]["transforms"][0]["convert"].update(toType="int"),
            lambda o: o["spec"]["environment"]["defaultData"]["a"].update(b=2),
        ]
        for change in changes:
            changed = copy.deepcopy(made)
            change(changed)
            with pytest.raises(Invalid, match="immutable"):
                await context.client.update(changed)
    finally:
        await _remove(context.client, made)


async def test_revision_takes_a_higher_number_owners_annotations_and_a_status(
    context: ControllerContext, unique: str
) -> None:
    owner = await context.client.create(_example("Composition", unique))
    made = await context.client.create(_example("CompositionRevision", unique))
    try:
        made["spec"]["revision"] = 7
        made["metadata"]["annotations"] = {"a": "b"}
        made["metadata"]["ownerReferences"] = [
            {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": unique, "uid": owner["metadata"]["uid"]}
        ]
        written = await context.client.update(made)
        assert written["spec"]["revision"] == 7
        written["status"] = {"composites": 3}
        assert (await context.client.update(written, subresource="status"))["status"] == {"composites": 3}
    finally:
        await _remove(context.client, made)
        await _remove(context.client, owner)


async def test_revision_keeps_its_labels_where_admission_policies_exist(
    context: ControllerContext, unique: str
) -> None:
    made = await context.client.create(_example("CompositionRevision", unique))
    name = made["metadata"]["name"]

    def label(**labels: str | None) -> Any:
        patch = Patch(PatchType.MERGE, {"metadata": {"labels": labels}})
        return context.client.patch(COMPOSITION_REVISION, name, patch, dry_run=True)

    async def refused() -> bool:
        try:
            await label(channel="alpha")
        except Invalid:
            return True
        return False

    try:
        await eventually(refused, "the policy is in force")
        with pytest.raises(Invalid, match="labels of a CompositionRevision are immutable"):
            await label(**{"crossplane.io/composition-name": None})
        with pytest.raises(Invalid, match="labels of a CompositionRevision are immutable"):
            await label(**{"crossplane.io/composition-name": "other"})
        await label(**{"crossplane.io/composition-spec-hash": "1"})
    finally:
        await _remove(context.client, made)
