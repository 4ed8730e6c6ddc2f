"""Functions that are installed from packages and run as processes of the control plane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import GroupVersionKind
from planform.api.names import CRD, FUNCTION, FUNCTION_REVISION, IMAGE_CONFIG, RUNTIME_CONFIG
from planform.client.informer import ObjectKey
from planform.client.protocol import Patch, PatchType
from planform.definitions.own_crds import ensure_crds
from planform.errors import Invalid
from planform.features import FeatureGates
from planform.functions.errors import FunctionError
from planform.packages.contents import PackageContents
from planform.packages.deliveries import Deliveries
from planform.packages.revision_objects import DIGEST_ANNOTATION
from planform.packages.revisions import DIGEST_LABEL, NUMBER_LABEL, VERSION_LABEL
from planform.reconcile.context import ControllerContext
from tests.controllers.conftest import LONG_ON_KUBERNETES
from tests.harness.contexts import condition_of, embedded_context, eventually, read
from tests.harness.packaging import REPOSITORY, Installation, installing, meta, server_program


@pytest.fixture
async def installation(context: ControllerContext, tmp_path: Path) -> AsyncIterator[Installation]:
    async with installing(context, tmp_path / "data") as installation:
        yield installation


def publish(installation: Installation, *versions: str) -> None:
    for version in versions:
        installation.publish(f"{REPOSITORY}:{version}", server_program(version))


def input_crd(name: str = "settings") -> dict[str, Any]:
    schema = {"type": "object", "properties": {"size": {"type": "integer"}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{name}.fn.example.org"},
        "spec": {
            "group": "fn.example.org",
            "names": {"kind": "Setting", "plural": name},
            "scope": "Cluster",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


async def test_a_package_is_installed_and_called_over_its_own_endpoint(installation: Installation) -> None:
    about = meta("Function", "fn", capabilities=["composition"])
    digest = installation.publish(f"{REPOSITORY}:v1.2.0", server_program("v1"), about=about, objects=[input_crd()])
    await installation.install("v1.2.0")
    function = await installation.until("Healthy", "True")
    [revision] = await installation.revisions()
    labels, status = revision["metadata"]["labels"], revision["status"]
    assert labels[DIGEST_LABEL] == digest.removeprefix("sha256:")[:12]
    assert (labels[VERSION_LABEL], labels[NUMBER_LABEL]) == ("v1.2.0", "1")
    assert status["capabilities"] == ["composition"]
    assert status["endpoint"].startswith("ipv4:127.0.0.1:")
    crd = await installation.context.client.get(CRD, "settings.fn.example.org")
    assert status["objectRefs"] == [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "name": "settings.fn.example.org",
            "uid": crd["metadata"]["uid"],
        }
    ]
    assert function["status"]["endpoint"] == status["endpoint"]
    assert [each["name"] for each in function["status"]["activeRevisions"]] == [revision["metadata"]["name"]]
    assert (await installation.call())["version"] == "v1"
    assert [(each["kind"], each["controller"]) for each in crd["metadata"]["ownerReferences"]] == [
        ("FunctionRevision", True),
        ("Function", False),
    ]
    kind = GroupVersionKind("fn.example.org", "v1", "Setting")

    async def served() -> bool:
        await installation.context.client.kind(kind)
        return True

    assert await eventually(served, "the kind that came with the function")


async def test_of_two_active_revisions_the_newer_one_keeps_its_objects(installation: Installation) -> None:
    """Whoever looks first, as after a start: the older one does not take them back."""
    crd = input_crd()
    for version in ("v1", "v2"):
        crd["metadata"]["annotations"] = {"version": version}
        installation.publish(f"{REPOSITORY}:{version}", server_program(version), objects=[crd])
        await installation.install(version, revisionHistoryLimit=2, activeRevisionLimit=2)
        await installation.until_called(version)
    old, new = await installation.until_states({1: "Active", 2: "Active"})
    context = installation.context
    after_a_start = PackageContents(installation.source, context.client, Deliveries(context.manager, context.clock))
    for revision in (new, old):
        await after_a_start.establish(revision, await after_a_start.fetched(revision))
        found = await installation.context.client.get(CRD, "settings.fn.example.org")
        assert found["metadata"]["annotations"]["version"] == "v2"


@LONG_ON_KUBERNETES
async def test_during_an_upgrade_no_call_fails_and_the_old_revision_ends_after_it(installation: Installation) -> None:
    publish(installation, "v1", "v2")
    await installation.install("v1")
    await installation.until("Healthy", "True")
    [old] = [each["metadata"]["name"] for each in await installation.revisions()]
    seen: list[str] = []
    failures: list[FunctionError] = []
    over = asyncio.Event()

    async def load() -> None:
        while not over.is_set():
            try:
                seen.append((await installation.call())["version"])
            except FunctionError as error:
                failures.append(error)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(load())
        await installation.install("v2")
        await installation.until_states({1: "Inactive", 2: "Active"})

        async def stopped() -> bool:
            return installation.host.runtime_status(old) is None

        await eventually(stopped, "the old revision has stopped")
        over.set()
    assert failures == []
    assert seen[0] == "v1"
    assert seen[-1] == "v2"

    async def cleared() -> bool:
        revision = await installation.context.client.get(FUNCTION_REVISION, old)
        return bool(revision["status"]["endpoint"] == "")

    await eventually(cleared, "the endpoint of the old revision is cleared")


@LONG_ON_KUBERNETES
async def test_as_long_as_a_new_revision_does_not_work_the_old_one_serves(installation: Installation) -> None:
    publish(installation, "v1")
    installation.publish(f"{REPOSITORY}:v2", server_program("v2", "print('no luck')\nraise SystemExit(7)"))
    await installation.install("v1")
    await installation.until("Healthy", "True")
    await installation.install("v2")
    function = await installation.until("Healthy", "False")
    await installation.until_states({1: "Active", 2: "Active"})

    async def told() -> bool:
        condition = condition_of(await installation.until("Healthy", "False"), "Healthy")
        return condition is not None and "exit code 7); stderr ended with: no luck" in condition["message"]

    await eventually(told, "why the new one does not work")
    assert (await installation.call())["version"] == "v1"
    await installation.install("v1")
    await installation.until("Healthy", "True")
    await installation.until_states({2: "Inactive", 3: "Active"})
    assert function["status"]["currentRevision"]


@LONG_ON_KUBERNETES
async def test_the_worked_states_of_the_design(installation: Installation) -> None:
    """Each row: what is installed, and which revisions are then active, inactive and there."""
    publish(installation, *(f"v{number}" for number in range(1, 7)))
    limits: dict[str, Any] = {"revisionHistoryLimit": 4, "activeRevisionLimit": 2}
    await installation.install("v1", **limits)
    await installation.until_states({1: "Active"})
    await installation.install("v2", **limits)
    await installation.until_states({1: "Active", 2: "Active"})
    await installation.install("v3", **limits)
    await installation.until_states({1: "Inactive", 2: "Active", 3: "Active"})
    for version in ("v4", "v5"):
        await installation.install(version, **limits)
        number = int(version[1:])
        states = {each: "Active" if each > number - 2 else "Inactive" for each in range(1, number + 1)}
        await installation.until_states(states)
    await installation.install("v6", **limits)
    rows = await installation.until_states({2: "Inactive", 3: "Inactive", 4: "Inactive", 5: "Active", 6: "Active"})
    fourth = rows[2]["metadata"]["name"]
    await installation.install("v4", **limits)
    rows = await installation.until_states({2: "Inactive", 3: "Inactive", 5: "Inactive", 6: "Active", 7: "Active"})
    assert rows[-1]["metadata"]["name"] == fourth
    await installation.until_called("v4")
    await installation.install("v4", revisionHistoryLimit=4, activeRevisionLimit=1)
    await installation.until_states({2: "Inactive", 3: "Inactive", 5: "Inactive", 6: "Inactive", 7: "Active"})
    await installation.install("v4", revisionHistoryLimit=4, activeRevisionLimit=3)
    await installation.until_states({2: "Inactive", 3: "Inactive", 5: "Active", 6: "Active", 7: "Active"})
    await installation.until_called("v6", selector={VERSION_LABEL: "v6"})


async def test_the_same_content_under_another_tag_is_the_same_revision(installation: Installation) -> None:
    publish(installation, "v1")
    await installation.install("v1")
    [before] = await installation.until_states({1: "Active"})
    installation.publish(f"{REPOSITORY}:stable", server_program("v1"))
    await installation.install("stable")

    async def followed() -> bool:
        [revision] = await installation.revisions()
        return bool(revision["spec"]["image"] == f"{REPOSITORY}:stable")

    await eventually(followed, "the revision's image")
    [after] = await installation.revisions()
    assert after["metadata"]["name"] == before["metadata"]["name"]
    assert after["metadata"]["labels"][VERSION_LABEL] == "stable"


@pytest.mark.parametrize(
    ("about", "objects", "message"),
    [
        (meta("Provider", "p"), (), "the package is a Provider, not a Function"),
        (
            meta("Function", "f", crossplane={"version": ">=v99"}),
            (),
            "the package needs Crossplane >=v99",
        ),
    ],
    ids=["another-kind", "another-control-plane"],
)
async def test_a_package_that_does_not_fit_says_why_and_does_not_run(
    installation: Installation, about: dict[str, Any], objects: tuple[Any, ...], message: str
) -> None:
    installation.publish(f"{REPOSITORY}:v1", server_program("v1"), about=about, objects=objects)
    await installation.install("v1")
    function = await installation.until("Healthy", "False", reason="UnhealthyPackageRevision")
    condition = condition_of(function, "Healthy")
    assert condition is not None
    assert message in condition["message"]
    [revision] = await installation.revisions()
    assert installation.host.runtime_status(revision["metadata"]["name"]) is None


async def test_a_label_reaches_the_current_revision_though_no_registry_answers(installation: Installation) -> None:
    publish(installation, "v1")
    await installation.install("v1", labels={"channel": "alpha"})
    await installation.until("Healthy", "True")
    # From now on the registry is asked each time, and there is none.
    await installation.install("v1", labels={"channel": "stable"}, packagePullPolicy="Always")

    async def relabelled() -> bool:
        [revision] = await installation.revisions()
        return bool(revision["metadata"]["labels"].get("channel") == "stable")

    await eventually(relabelled, "the label is there")
    assert (await installation.call(selector={"channel": "stable"}))["version"] == "v1"


async def test_a_package_must_have_a_full_name_unless_it_was_stored_before(installation: Installation) -> None:
    client, short = installation.context.client, "crossplane-contrib/function-auto-ready:v0.5.0"
    about = {"apiVersion": "pkg.crossplane.io/v1", "kind": "Function", "metadata": {"name": "short"}}
    with pytest.raises(Invalid, match="must be a fully qualified image name"):
        await client.create({**about, "spec": {"package": short}})
    for name in ("registry.example.org/a/b:v1", "localhost:5000/a:v1", "127.0.0.1:5000/a/b@sha256:" + "0" * 64):
        await client.create({**about, "spec": {"package": name}}, dry_run=True)
    definition = await client.get(CRD, "functions.pkg.crossplane.io")
    for version in definition["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["package"].pop(
            "x-kubernetes-validations"
        )
    await client.update(definition)

    async def stored() -> dict[str, Any] | None:
        try:
            return await client.create({**about, "spec": {"package": short}})
        except Invalid:
            return None  # a real API server needs a moment

    await eventually(stored, "a short name is stored, as it could be before")
    await ensure_crds(client, clock=installation.context.clock)

    async def refused() -> bool:
        try:
            await client.create({**about, "metadata": {"name": "other"}, "spec": {"package": short}}, dry_run=True)
        except Invalid:
            return True
        return False

    await eventually(refused, "the rule holds again")
    label = Patch(PatchType.MERGE, {"metadata": {"labels": {"still": "valid"}}})
    await client.patch(FUNCTION, "short", label)
    with pytest.raises(Invalid, match="must be a fully qualified image name"):
        await client.patch(FUNCTION, "short", Patch(PatchType.MERGE, {"spec": {"package": f"{short}-other"}}))
    await client.delete(FUNCTION, "short")


async def test_a_package_that_is_not_here_and_must_not_be_pulled_says_so(installation: Installation) -> None:
    await installation.install("v9", packagePullPolicy="Never")
    function = await installation.until("Installed", "False", reason="UnpackingPackage")
    condition = condition_of(function, "Installed")
    assert condition is not None
    assert condition["message"] == f"{REPOSITORY}:v9 is not stored here, and must not be pulled"


async def test_a_runtime_configuration_is_followed_without_a_failed_call(installation: Installation) -> None:
    publish(installation, "v1")
    container = {"name": "package-runtime", "env": [{"name": "LEVEL", "value": "one"}]}
    config = {
        "apiVersion": RUNTIME_CONFIG.api_version,
        "kind": RUNTIME_CONFIG.kind,
        "metadata": {"name": "mine"},
        "spec": {"deploymentTemplate": {"spec": {"replicas": 2, "template": {"spec": {"containers": [container]}}}}},
    }
    await installation.install("v1", runtimeConfigRef={"name": "mine"})
    function = await installation.until("Healthy", "False")
    condition = condition_of(function, "Healthy")
    assert condition is not None
    assert 'there is no DeploymentRuntimeConfig "mine"' in condition["message"]
    await installation.context.client.apply(config, manager="user")
    await installation.until("Healthy", "True")
    asked: dict[str, Any] = {"given": {"environment": ["LEVEL"]}}
    assert (await installation.call(**asked))["environment"] == {"LEVEL": "one"}
    container["env"] = [{"name": "LEVEL", "value": "two"}]
    await installation.context.client.apply(config, manager="user", force=True)

    async def moved() -> bool:
        return bool((await installation.call(**asked))["environment"] == {"LEVEL": "two"})

    await eventually(moved, "the new setting")


async def test_another_runtime_configuration_is_the_same_revision_and_fails_no_call(installation: Installation) -> None:
    publish(installation, "v1")
    await installation.install("v1")
    await installation.until("Healthy", "True")
    [before] = await installation.revisions()
    client, pinned = installation.context.client, before["metadata"]["name"]
    container = {"name": "package-runtime", "env": [{"name": "LEVEL", "value": "one"}]}
    await client.apply(
        {
            "apiVersion": RUNTIME_CONFIG.api_version,
            "kind": RUNTIME_CONFIG.kind,
            "metadata": {"name": "mine"},
            "spec": {
                "deploymentTemplate": {"spec": {"replicas": 2, "template": {"spec": {"containers": [container]}}}}
            },
        },
        manager="user",
        force=True,
    )
    asked: dict[str, Any] = {"given": {"environment": ["LEVEL"]}, "ref": pinned}
    over, seen = asyncio.Event(), list[Any]()

    async def load() -> None:
        while not over.is_set():
            seen.append((await installation.call(**asked))["environment"])

    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(load())
        await installation.install("v1", runtimeConfigRef={"name": "mine"})

        async def moved() -> bool:
            return bool(seen) and seen[-1] == {"LEVEL": "one"}

        await eventually(moved, "it runs as it is told")
        over.set()
    assert seen[0] == {"LEVEL": ""}, "what ran before served until then"
    [after] = await installation.revisions()
    assert (after["metadata"]["uid"], after["spec"]["revision"]) == (before["metadata"]["uid"], 1)
    assert after["spec"]["runtimeConfigRef"] == {"name": "mine", **after["spec"]["runtimeConfigRef"]}
    assert after["spec"]["desiredState"] == "Active"


async def test_another_runtime_configuration_is_another_revision_if_a_gate_says_so(tmp_path: Path) -> None:
    gates = FeatureGates({"RevisionPerRuntimeConfig": True})
    async with (
        embedded_context() as context,
        installing(replace(context, features=gates), tmp_path / "data") as installation,
    ):
        publish(installation, "v1")
        config = {"apiVersion": RUNTIME_CONFIG.api_version, "kind": RUNTIME_CONFIG.kind}
        await context.client.create({**config, "metadata": {"name": "mine"}, "spec": {}})
        await installation.install("v1")
        [first] = await installation.until_states({1: "Active"})
        await installation.until_called("v1")
        await installation.install("v1", runtimeConfigRef={"name": "mine"})
        [_, second] = await installation.until_states({1: "Inactive", 2: "Active"})
        assert second["spec"]["runtimeConfigRef"]["name"] == "mine"
        digests = {each["metadata"]["annotations"][DIGEST_ANNOTATION] for each in (first, second)}
        assert len(digests) == 1, "the content is the same"
        function = await context.client.get(FUNCTION, "fn")
        assert function["status"]["currentRevision"] == second["metadata"]["name"]
        await installation.install("v1", runtimeConfigRef={"name": "default"})
        [_, again] = await installation.until_states({2: "Inactive", 3: "Active"})
        assert again["metadata"]["uid"] == first["metadata"]["uid"], "the configuration of before is the one of before"
        await installation.until_called("v1")


async def test_a_revision_that_an_older_control_plane_named_otherwise_is_the_same(installation: Installation) -> None:
    publish(installation, "v1")
    await installation.install("v1")
    await installation.until("Healthy", "True")
    client, controller = installation.context.client, installation.controller
    await installation.context.manager.stop("functions")
    [revision] = await installation.revisions()
    metadata = {key: revision["metadata"][key] for key in ("labels", "annotations", "ownerReferences")}
    await client.delete(FUNCTION_REVISION, revision["metadata"]["name"])
    await client.create({**revision, "metadata": {**metadata, "name": "fn-0123456789ab"}})
    await controller.reconcile(ObjectKey("", "fn"))
    assert [each["metadata"]["name"] for each in await installation.revisions()] == ["fn-0123456789ab"]


async def test_what_does_not_apply_of_a_runtime_configuration_is_told_of_the_revision_and_changes_no_process(
    installation: Installation,
) -> None:
    publish(installation, "v1")
    client, container = installation.context.client, {"name": "package-runtime", "args": list[str]()}
    pod: dict[str, Any] = {"containers": [container]}
    config = {
        "apiVersion": RUNTIME_CONFIG.api_version,
        "kind": RUNTIME_CONFIG.kind,
        "metadata": {"name": "mine"},
        "spec": {"deploymentTemplate": {"spec": {"selector": {}, "template": {"spec": pod}}}},
    }
    await client.apply(config, manager="user", force=True)
    await installation.install("v1", runtimeConfigRef={"name": "mine"})
    await installation.until("Healthy", "True")
    [revision] = await installation.revisions()
    name = revision["metadata"]["name"]

    async def told(wanted: str) -> dict[str, Any] | None:
        condition = condition_of(await client.get(FUNCTION_REVISION, name), "RuntimeHealthy") or {}
        return condition if condition["status"] == "True" and condition.get("message", "") == wanted else None

    await eventually(lambda: told(""), "nothing to tell")
    before = installation.host.pids(name)
    pod["nodeSelector"] = {"disk": "fast"}
    await client.apply(config, manager="user", force=True)
    message = "of its DeploymentRuntimeConfig, this does not apply on this machine: nodeSelector of the pod"
    await eventually(lambda: told(message), "what does not apply")
    assert installation.host.pids(name) == before
    version = (await client.get(FUNCTION_REVISION, name))["metadata"]["resourceVersion"]
    await installation.controller.reconcile(ObjectKey("", "fn"))
    assert (await client.get(FUNCTION_REVISION, name))["metadata"]["resourceVersion"] == version, "it is told once"


async def test_rules_for_images_say_where_a_package_is_and_are_named_as_long_as_they_do(
    installation: Installation,
) -> None:
    publish(installation, "v1")
    client = installation.context.client
    await installation.install("upstream.example.com/acme/fn:v1", packagePullPolicy="Never")
    await installation.until("Installed", "False", reason="UnpackingPackage")
    rule = {
        "apiVersion": IMAGE_CONFIG.api_version,
        "kind": IMAGE_CONFIG.kind,
        "metadata": {"name": "mirror"},
        "spec": {
            "matchImages": [{"type": "Prefix", "prefix": "upstream.example.com/"}],
            "rewriteImage": {"prefix": "registry.example.org/"},
        },
    }
    await client.create(rule)
    function = await installation.until("Healthy", "True")
    assert function["status"]["resolvedPackage"] == f"{REPOSITORY}:v1"
    assert function["status"]["appliedImageConfigRefs"] == [{"name": "mirror", "reason": "RewriteImage"}]
    [revision] = await installation.revisions()
    assert revision["spec"]["image"] == "upstream.example.com/acme/fn:v1"
    await client.delete(IMAGE_CONFIG, "mirror")

    async def cleared() -> bool:
        status = (await client.get(FUNCTION, "fn"))["status"]
        return not status["appliedImageConfigRefs"]

    await eventually(cleared, "the rule that is gone is no longer named")
    assert (await installation.call())["version"] == "v1"


async def test_a_rule_for_images_says_how_a_program_runs(installation: Installation) -> None:
    publish(installation, "v1")
    client = installation.context.client
    container = {"name": "package-runtime", "args": ["--own-flag"]}
    template = {"spec": {"template": {"spec": {"containers": [container]}}}}
    for kind, name, spec in (
        (RUNTIME_CONFIG, "flagged", {"deploymentTemplate": template}),
        (
            IMAGE_CONFIG,
            "acme",
            {"matchImages": [{"prefix": "registry.example.org/"}], "runtime": {"configRef": {"name": "flagged"}}},
        ),
    ):
        metadata = {"name": name}
        await client.create({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec})
    await installation.install("v1")
    await installation.until("Healthy", "True")
    assert (await installation.call())["arguments"][0] == "--own-flag"


async def test_under_manual_users_activate_what_shall_run(installation: Installation) -> None:
    publish(installation, "v1", "v2")
    limits: dict[str, Any] = {"revisionActivationPolicy": "Manual", "revisionHistoryLimit": 2}
    await installation.install("v1", **limits)
    await installation.until("Installed", "False", reason="InactivePackageRevision")
    [first] = await installation.until_states({1: "Inactive"})
    assert installation.host.runtime_status(first["metadata"]["name"]) is None
    await installation.install("v2", **limits)
    _, second = await installation.until_states({1: "Inactive", 2: "Inactive"})
    for revision in (first, second):
        change = Patch(PatchType.MERGE, {"spec": {"desiredState": "Active"}})
        await installation.context.client.patch(FUNCTION_REVISION, revision["metadata"]["name"], change)
    await installation.until_called("v1", selector={VERSION_LABEL: "v1"})
    await installation.until_called("v2", ref=second["metadata"]["name"])


async def test_an_uninstalled_function_stops_and_leaves_no_files(installation: Installation) -> None:
    publish(installation, "v1")
    await installation.install("v1")
    await installation.until("Healthy", "True")
    [revision] = await installation.revisions()
    name = revision["metadata"]["name"]
    await installation.context.client.delete(FUNCTION, "fn")

    async def gone() -> bool:
        left = list((installation.data / "packages" / "files").iterdir())
        revisions = await installation.revisions()
        return installation.host.runtime_status(name) is None and not revisions and not left

    await eventually(gone, "everything of it is gone")
    assert not (installation.data / "certificates" / name).exists()
    assert await read(installation.context.client, FUNCTION_REVISION, name) is None


async def test_at_rest_and_after_a_restart_nothing_is_written_but_where_it_serves(
    installation: Installation,
) -> None:
    publish(installation, "v1")
    await installation.install("v1", packagePullPolicy="Never")
    await installation.until("Healthy", "True")
    client = installation.context.client

    async def versions() -> list[str]:
        objects = [await client.get(FUNCTION, "fn"), *await installation.revisions()]
        return [each["metadata"]["resourceVersion"] for each in objects]

    before = await versions()
    for _ in range(2):
        await installation.controller.reconcile(ObjectKey("", "fn"))
    assert await versions() == before


@pytest.mark.parametrize(
    ("kind", "spec", "message"),
    [
        ("Function", {"activeRevisionLimit": 2, "revisionHistoryLimit": 1}, "must not exceed revisionHistoryLimit"),
        ("Function", {"activeRevisionLimit": 0}, "greater than or equal to 1"),
        ("Function", {"revisionHistoryLimit": -1}, "greater than or equal to 0"),
        ("Provider", {"activeRevisionLimit": 2}, "activeRevisionLimit must be 1"),
        ("Configuration", {"activeRevisionLimit": 2}, "activeRevisionLimit must be 1"),
    ],
)
async def test_limits_that_make_no_sense_are_refused(
    installation: Installation, kind: str, spec: dict[str, Any], message: str
) -> None:
    wanted = {
        "apiVersion": "pkg.crossplane.io/v1",
        "kind": kind,
        "metadata": {"name": "x"},
        "spec": {"package": f"{REPOSITORY}:v1", **spec},
    }
    with pytest.raises(Invalid) as refused:
        await installation.context.client.create(wanted)
    assert message in str(refused.value)
