"""Packages in corners: going back, retagging, names that clash, settings that vanish, pauses, and hostile content.

Each test is about a row of "Edge cases worth a test"; what is decided without an engine is tested where it is decided
(unit/test_functions_resolution, test_dependencies, test_package_revisions, test_xpkg, test_packages_hostile,
test_registry_hostile).
"""

from __future__ import annotations

import gzip
import os
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import Object
from planform.api.names import (
    COMPOSITION,
    CONFIGURATION,
    CONFIGURATION_REVISION,
    FUNCTION,
    FUNCTION_REVISION,
    LOCK,
    PACKAGE_LABEL,
    PAUSED_ANNOTATION,
    RUNTIME_CONFIG,
)
from planform.client.protocol import Patch, PatchType
from planform.packages.blobs import store_image
from planform.packages.oci import OCI_LAYER_GZIP, Descriptor
from planform.packages.payloads import Payload, RuntimeKind
from tests.harness.contexts import condition_of, embedded_context, eventually, read
from tests.harness.packaging import REPOSITORY, Installation, composition, installing, meta, server_program
from tests.unit.archives import FUNCTION_META, Entry, layer, package_yaml, tar

HOME = "registry.example.org/acme"


@pytest.fixture
async def installation(tmp_path: Path) -> AsyncIterator[Installation]:
    async with embedded_context() as context, installing(context, tmp_path / "data") as installation:
        yield installation


def publish(installation: Installation, *versions: str, package: str = REPOSITORY) -> None:
    for version in versions:
        installation.publish(f"{package}:{version}", server_program(version))


def configuration(installation: Installation, reference: str, needed: dict[str, str], *objects: Object) -> None:
    depends = [{"function": source, "version": constraint} for source, constraint in needed.items()]
    about = meta("Configuration", "conf", dependsOn=depends)
    installation.publish(f"{HOME}/{reference}", None, about=about, objects=objects or [composition("app")])


async def annotate(installation: Installation, kind: Any, name: str, **annotations: str | None) -> None:
    patch = Patch(PatchType.MERGE, {"metadata": {"annotations": annotations}})
    await installation.context.client.patch(kind, name, patch)


def message_of(obj: Object, type_: str) -> str:
    return str((condition_of(obj, type_) or {}).get("message") or "")


# -- revisions


async def until_numbers(installation: Installation, wanted: dict[int, str]) -> dict[int, Object]:
    """Wait until the Configuration has exactly these revisions, which are given by their numbers."""
    found: dict[int, Object] = {}

    async def check() -> bool:
        found.clear()
        for each in (await installation.context.client.list(CONFIGURATION_REVISION)).items:
            found[int(each["spec"]["revision"])] = each
        return {number: each["spec"]["desiredState"] for number, each in found.items()} == wanted

    await eventually(check, f"revisions {wanted}")
    return found


async def install_one_after_the_other(installation: Installation, history: int) -> dict[int, Object]:
    """Install three versions of a Configuration."""
    wanted: dict[int, str] = {}
    for number in (1, 2, 3):
        configuration(installation, f"conf:v{number}", {}, composition(f"app{number}"))
        await install_configuration(installation, f"v{number}", revisionHistoryLimit=history)
        wanted = {**dict.fromkeys(wanted, "Inactive"), number: "Active"}
        found = await until_numbers(installation, wanted)
    return found


async def install_configuration(installation: Installation, version: str, **spec: Any) -> None:
    await installation.install(f"{HOME}/conf:{version}", kind="Configuration", name="conf", **spec)


async def test_going_back_to_the_oldest_that_is_kept_survives_a_smaller_history(installation: Installation) -> None:
    before = await install_one_after_the_other(installation, history=2)
    await install_configuration(installation, "v1", revisionHistoryLimit=1)
    after = await until_numbers(installation, {3: "Inactive", 4: "Active"})
    assert after[4]["metadata"]["uid"] == before[1]["metadata"]["uid"]


async def test_a_history_of_zero_never_deletes(installation: Installation) -> None:
    before = await install_one_after_the_other(installation, history=0)
    await install_configuration(installation, "v1", revisionHistoryLimit=0)
    after = await until_numbers(installation, {2: "Inactive", 3: "Inactive", 4: "Active"})
    assert {each["metadata"]["uid"] for each in after.values()} == {each["metadata"]["uid"] for each in before.values()}


async def test_a_name_with_tag_and_digest_means_the_digest(installation: Installation) -> None:
    digest = installation.publish(f"{REPOSITORY}:v1", server_program("the first"))
    installation.publish(f"{REPOSITORY}:v1", server_program("the second"))
    await installation.install(f"{REPOSITORY}:v1@{digest}")
    await installation.until("Healthy", "True")
    assert (await installation.call())["version"] == "the first"


async def test_labels_leave_the_current_revision_with_the_function_and_stay_on_older_ones(
    installation: Installation,
) -> None:
    publish(installation, "v1", "v2")
    await installation.install("v1", labels={"channel": "stable"}, activeRevisionLimit=2, revisionHistoryLimit=2)
    await installation.until("Healthy", "True")
    await installation.install("v2", labels={"channel": "alpha"}, activeRevisionLimit=2, revisionHistoryLimit=2)
    await installation.until_states({1: "Active", 2: "Active"})
    await installation.install("v2", labels={}, activeRevisionLimit=2, revisionHistoryLimit=2)

    async def unlabelled() -> bool:
        old, new = await installation.revisions()
        return old["metadata"]["labels"]["channel"] == "stable" and "channel" not in new["metadata"]["labels"]

    await eventually(unlabelled, "the label is taken off the newest revision alone")


async def test_a_label_cannot_make_a_revision_another_functions(installation: Installation) -> None:
    publish(installation, "v1")
    publish(installation, "v9", package=f"{HOME}/evil")
    await installation.install("v1")
    await installation.install(f"{HOME}/evil:v9", name="evil", labels={PACKAGE_LABEL: "fn"})
    await installation.until("Healthy", "True")
    await installation.until("Healthy", "True", name="evil")
    assert (await installation.call())["version"] == "v1"
    [revision] = await installation.revisions("evil")
    assert revision["metadata"]["labels"][PACKAGE_LABEL] == "evil"


async def test_under_manual_health_is_told_though_nothing_runs(installation: Installation) -> None:
    publish(installation, "v1")
    await installation.install("v1", revisionActivationPolicy="Manual")
    function = await installation.until("Installed", "False", reason="InactivePackageRevision")
    assert (condition_of(function, "Healthy") or {})["status"] == "True"
    await installation.install("lost", revisionActivationPolicy="Manual", packagePullPolicy="Never")
    function = await installation.until("Installed", "False", reason="UnpackingPackage")
    assert (condition_of(function, "Healthy") or {})["status"] == "False"


# -- several packages


async def test_a_retagged_package_is_looked_at_again_by_those_who_need_it(installation: Installation) -> None:
    publish(installation, "v1.0.0")
    configuration(installation, "conf:v1.0.0", {REPOSITORY: ">=v2"})
    await installation.install("v1.0.0")
    await installation.until("Healthy", "True")
    await installation.install(f"{HOME}/conf:v1.0.0", kind="Configuration", name="conf")

    async def incompatible() -> bool:
        found = await installation.until("Healthy", "False", name="conf", kind=CONFIGURATION)
        return "incompatible" in message_of(found, "Healthy")

    await eventually(incompatible, "v1.0.0 is not enough")
    installation.publish(f"{REPOSITORY}:v2.0.0", server_program("v1.0.0"))
    await installation.install("v2.0.0")
    await installation.until("Healthy", "True", name="conf", kind=CONFIGURATION)
    await installation.until_states({1: "Active"})
    lock = await installation.context.client.get(LOCK, "lock")
    assert {each["source"]: each["version"] for each in lock["packages"]}[REPOSITORY] == "v2.0.0"


async def test_what_is_needed_from_another_registry_does_not_replace_its_namesake(installation: Installation) -> None:
    publish(installation, "v1.0.0")
    publish(installation, "v1.0.0", package="mirror.example.com/acme/fn")
    configuration(installation, "conf:v1.0.0", {"mirror.example.com/acme/fn": "*"})
    await installation.install("v1.0.0", name="acme-fn")
    await installation.until("Healthy", "True", name="acme-fn")
    await installation.install(f"{HOME}/conf:v1.0.0", kind="Configuration", name="conf")
    lock = await installation.until("Resolved", "False", name="lock", kind=LOCK)
    assert message_of(lock, "Resolved") == (
        "mirror.example.com/acme/fn:v1.0.0 cannot be installed:"
        f' Function "acme-fn" is there already, and is {REPOSITORY}:v1.0.0'
    )
    function = await installation.context.client.get(FUNCTION, "acme-fn")
    assert function["spec"]["package"] == f"{REPOSITORY}:v1.0.0"


async def test_two_functions_of_one_package_serve_and_hold_up_nobody(installation: Installation) -> None:
    publish(installation, "v1.0.0", "v2.0.0")
    configuration(installation, "conf:v1.0.0", {REPOSITORY: ">=v2"})
    await installation.install("v1.0.0", name="one")
    await installation.install("v2.0.0", name="two")
    for name, version in (("one", "v1.0.0"), ("two", "v2.0.0")):
        await installation.until("Healthy", "True", name=name)
        assert (await installation.call(name=name))["version"] == version
    await installation.install(f"{HOME}/conf:v1.0.0", kind="Configuration", name="conf")
    await installation.until("Healthy", "True", name="conf", kind=CONFIGURATION)
    assert await read(installation.context.client, COMPOSITION, "app") is not None


# -- how it runs


async def test_a_runtime_configuration_that_is_deleted_is_missed_and_the_function_serves_on(
    installation: Installation,
) -> None:
    publish(installation, "v1")
    sidecar, own = {"name": "sidecar", "args": ["--wrong"]}, {"name": "package-runtime", "args": ["--own-flag"]}
    template = {"spec": {"template": {"spec": {"containers": [sidecar, own]}}}}
    await installation.context.client.create(
        {
            "apiVersion": RUNTIME_CONFIG.api_version,
            "kind": RUNTIME_CONFIG.kind,
            "metadata": {"name": "mine"},
            "spec": {"deploymentTemplate": template},
        }
    )
    await installation.install("v1", runtimeConfigRef={"name": "mine"})
    await installation.until("Healthy", "True")
    assert (await installation.call())["arguments"][0] == "--own-flag"
    await installation.context.client.delete(RUNTIME_CONFIG, "mine")
    function = await installation.until("Healthy", "False")
    assert 'there is no DeploymentRuntimeConfig "mine"' in message_of(function, "Healthy")
    [revision] = await installation.revisions()
    assert revision["status"]["endpoint"]
    assert (await installation.call())["version"] == "v1"


async def test_a_paused_function_goes_on_where_it_was_and_says_nothing_of_the_pause(
    installation: Installation,
) -> None:
    publish(installation, "v1", "v2")
    await installation.install("v1")
    await installation.until("Healthy", "True")
    await annotate(installation, FUNCTION, "fn", **{PAUSED_ANNOTATION: "true"})
    await installation.until("Synced", "False", reason="ReconcilePaused")
    await installation.install("v2")

    async def heard() -> bool:
        condition = condition_of(await installation.context.client.get(FUNCTION, "fn"), "Synced") or {}
        return condition.get("observedGeneration") == 2

    await eventually(heard, "that something else is wanted, and not yet")
    await installation.until_states({1: "Active"})
    await annotate(installation, FUNCTION, "fn", **{PAUSED_ANNOTATION: None})
    await installation.until_states({1: "Inactive", 2: "Active"})
    function = await installation.until("Healthy", "True")
    assert condition_of(function, "Synced") is None


async def test_a_paused_revision_is_left_as_it_is_until_it_goes_on(installation: Installation) -> None:
    publish(installation, "v1")
    await installation.install("v1")
    await installation.until("Healthy", "True")
    [revision] = await installation.revisions()
    name = revision["metadata"]["name"]
    await annotate(installation, FUNCTION_REVISION, name, **{PAUSED_ANNOTATION: "true"})
    await installation.until("Synced", "False", name=name, kind=FUNCTION_REVISION, reason="ReconcilePaused")
    change = Patch(PatchType.MERGE, {"spec": {"revisionActivationPolicy": "Manual"}})
    await installation.context.client.patch(FUNCTION, "fn", change)
    change = Patch(PatchType.MERGE, {"spec": {"desiredState": "Inactive"}})
    await installation.context.client.patch(FUNCTION_REVISION, name, change)
    await installation.until("Installed", "False", reason="InactivePackageRevision")
    assert installation.host.pids(name), "it was not stopped"
    await annotate(installation, FUNCTION_REVISION, name, **{PAUSED_ANNOTATION: None})

    async def stopped() -> bool:
        revision = await installation.context.client.get(FUNCTION_REVISION, name)
        return installation.host.runtime_status(name) is None and condition_of(revision, "Synced") is None

    await eventually(stopped, "it follows again")


# -- hostile content


def bytes_below(directory: Path) -> int:
    return sum(file.lstat().st_size for file in directory.rglob("*") if file.is_file() and not file.is_symlink())


def bomb() -> bytes:
    return gzip.compress(tar(Entry("function/zeros", b"\0" * (64 << 20))), 9, mtime=0)


TWO_METAS = package_yaml(FUNCTION_META, FUNCTION_META)
UNKNOWN = package_yaml(FUNCTION_META, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}})
GOOD = package_yaml(FUNCTION_META)


@pytest.mark.parametrize(
    ("package", "program", "problem"),
    [
        pytest.param(TWO_METAS, Entry("function/a"), "2 objects say what the package is", id="two-metas"),
        pytest.param(UNKNOWN, Entry("function/a"), "is Secret of v1, which no package", id="unknown-kind"),
        pytest.param(GOOD, Entry("../../escape", b"x"), "leads out of the package", id="traversal"),
        pytest.param(
            GOOD,
            Entry("function/link", kind=tarfile.SYMTYPE, link="/etc/passwd"),
            "outside of the package",
            id="link",
        ),
        pytest.param(
            GOOD,
            Entry("function/link", kind=tarfile.LNKTYPE, link="/etc/passwd"),
            "is an absolute path",
            id="hard-link",
        ),
        pytest.param(GOOD, bomb(), "more than 200 times its size", id="bomb"),
        pytest.param(GOOD, Entry("elsewhere/main.py", os.urandom(100_000)), "has no files in function/", id="nothing"),
    ],
)
async def test_a_hostile_package_is_refused_with_a_reason_and_takes_no_disk(
    installation: Installation, package: bytes, program: Entry | bytes, problem: str
) -> None:
    blobs = installation.source.published
    base = layer(blobs, Entry("package.yaml", package), mark="base")
    if isinstance(program, Entry):
        files = layer(blobs, program, mark="planform")
    else:
        files = Descriptor(OCI_LAYER_GZIP, blobs.add(program), len(program), {"io.crossplane.xpkg": "planform"})
    runs = Payload(RuntimeKind.PROCESS, ("python", "main.py")).encode()
    image = store_image(blobs, {"config": {"Labels": {"planform.dev/runtime": runs}}}, [base, files])
    blobs.remember(f"{REPOSITORY}:v1", image.descriptor)
    configuration(installation, "conf:v1", {})
    before = bytes_below(installation.data)
    await installation.install("v1")
    await install_configuration(installation, "v1")
    function = await installation.until("Installed", "False", reason="UnpackingPackage")
    assert problem in message_of(function, "Installed")
    await installation.until("Healthy", "True", name="conf", kind=CONFIGURATION)

    async def clean() -> bool:
        unpacked = list((installation.data / "packages" / "files").iterdir())
        return not unpacked and bytes_below(installation.data) - before < 100_000

    await eventually(clean, "nothing half unpacked is left")
    assert await installation.revisions() == []
    assert not (installation.data.parent / "escape").exists()
