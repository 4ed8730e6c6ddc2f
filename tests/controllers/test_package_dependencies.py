"""Configurations, and what packages need of each other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planform.api.names import (
    COMPOSITION,
    CONFIGURATION,
    CONFIGURATION_REVISION,
    FUNCTION,
    LOCK,
    PROVIDER,
)
from planform.features import FeatureGates
from planform.packages.providers import ProviderController
from planform.reconcile.context import ControllerContext
from tests.controllers.test_packages import input_crd
from tests.harness.contexts import condition_of, embedded_context, eventually, read, until_condition
from tests.harness.packaging import Installation, composition, installing, meta, server_program

HOME = "registry.example.org/acme"


@pytest.fixture
async def installation(context: ControllerContext, tmp_path: Path) -> AsyncIterator[Installation]:
    async with installing(context, tmp_path / "data") as installation:
        yield installation


def configuration(installation: Installation, reference: str, *objects: Any, **needed: str) -> None:
    depends = [{"function": f"{HOME}/{name}", "version": version} for name, version in needed.items()]
    about = meta("Configuration", "conf", dependsOn=depends)
    installation.publish(f"{HOME}/{reference}", None, about=about, objects=objects)


async def until_resolved(installation: Installation, status: str) -> str:
    lock = await installation.until("Resolved", status, name="lock", kind=LOCK)
    condition = condition_of(lock, "Resolved")
    assert condition is not None
    return str(condition.get("message") or "")


async def test_what_a_configuration_needs_is_installed_first_and_then_its_objects(installation: Installation) -> None:
    for version in ("v1.0.0", "v1.1.0", "v2.0.0"):
        installation.publish(f"{HOME}/fn:{version}", server_program(version))
    configuration(installation, "conf:v1.0.0", composition("app"), fn="^1")
    await installation.install(f"{HOME}/conf:v1.0.0", kind="Configuration", name="conf")
    await installation.until("Healthy", "True", name="conf", kind=CONFIGURATION)
    function = await installation.until("Healthy", "True", name="acme-fn")
    assert function["spec"]["package"] == f"{HOME}/fn:v1.1.0"
    found = await installation.context.client.get(COMPOSITION, "app")
    assert [each["kind"] for each in found["metadata"]["ownerReferences"]] == ["ConfigurationRevision", "Configuration"]
    [revision] = (await installation.context.client.list(CONFIGURATION_REVISION)).items
    status = revision["status"]
    assert (status["foundDependencies"], status["installedDependencies"], status["invalidDependencies"]) == (1, 1, 0)
    assert condition_of(revision, "RuntimeHealthy") is None
    lock = await installation.context.client.get(LOCK, "lock")
    assert {each["source"]: each["version"] for each in lock["packages"]} == {
        f"{HOME}/conf": "v1.0.0",
        f"{HOME}/fn": "v1.1.0",
    }
    await installation.context.client.delete(FUNCTION, "acme-fn")

    async def again() -> bool:
        found = await read(installation.context.client, FUNCTION, "acme-fn")
        return found is not None and found["metadata"]["uid"] != function["metadata"]["uid"]

    await eventually(again, "what is still needed is installed again")


async def test_a_function_may_depend_on_providers_and_configurations(
    installation: Installation, tmp_path: Path
) -> None:
    client, packaging = installation.context.client, installation.packaging
    # It installs what a Provider brings, and starts no program: where that runs is not what is asked here.
    ProviderController(installation.context, packaging, None, tmp_path / "providers", None).start()
    gadgets = input_crd("gadgets")
    for version in ("v0.9.0", "v1.2.0"):
        about = meta("Provider", "provider-gadgets")
        installation.publish(f"{HOME}/provider-gadgets:{version}", None, about=about, objects=[gadgets])
    configuration(installation, "conf:v1.0.0", composition("app"))
    depends = [
        {"provider": f"{HOME}/provider-gadgets", "version": ">=v1.0.0"},
        {"apiVersion": "pkg.crossplane.io/v1", "kind": "Configuration", "package": f"{HOME}/conf", "version": "v1.0.0"},
    ]
    about = meta("Function", "fn", dependsOn=depends)
    installation.publish(f"{HOME}/fn:v1.0.0", server_program("v1.0.0"), about=about)
    await installation.install(f"{HOME}/fn:v1.0.0")
    await installation.until("Healthy", "True")
    provider = await client.get(PROVIDER, "acme-provider-gadgets")
    assert provider["spec"]["package"] == f"{HOME}/provider-gadgets:v1.2.0"
    await installation.until("Healthy", "True", name="acme-conf", kind=CONFIGURATION)
    await until_condition(client, gadgets, "Established")
    await client.get(COMPOSITION, "app")
    [revision] = await installation.revisions()
    status = revision["status"]
    assert (status["foundDependencies"], status["installedDependencies"], status["invalidDependencies"]) == (2, 2, 0)
    await installation.until_called("v1.0.0")


async def test_a_function_waits_for_a_provider_that_cannot_be_had(installation: Installation) -> None:
    about = meta("Function", "fn", dependsOn=[{"provider": f"{HOME}/lost", "version": "*"}])
    installation.publish(f"{HOME}/fn:v1.0.0", server_program("v1.0.0"), about=about)
    await installation.install(f"{HOME}/fn:v1.0.0")

    async def says_so() -> bool:
        condition = condition_of(await installation.context.client.get(FUNCTION, "fn"), "Healthy") or {}
        return f"missing dependencies: {HOME}/lost" in condition.get("message", "")

    await eventually(says_so, "what is missing is named")
    assert f"nobody answers for {HOME}/lost" in await until_resolved(installation, "False")


async def test_a_newer_configuration_takes_its_dependency_along_and_the_objects_over(
    installation: Installation,
) -> None:
    for version in ("v1.0.0", "v2.0.0", "v2.1.0"):
        installation.publish(f"{HOME}/fn:{version}", server_program(version))
    configuration(installation, "conf:v1.0.0", composition("app"), fn="^1")
    configuration(installation, "conf:v2.0.0", composition("app"), composition("more"), fn=">=v2.0.0")
    await installation.install(f"{HOME}/conf:v1.0.0", kind="Configuration", name="conf")
    await installation.until("Healthy", "True", name="conf", kind=CONFIGURATION)
    await installation.install(f"{HOME}/conf:v2.0.0", kind="Configuration", name="conf")

    async def upgraded() -> bool:
        function = await installation.context.client.get(FUNCTION, "acme-fn")
        more = await read(installation.context.client, COMPOSITION, "more")
        return function["spec"]["package"] == f"{HOME}/fn:v2.0.0" and more is not None

    await eventually(upgraded, "the dependency and the objects of the new version")
    configuration_object = await installation.until("Healthy", "True", name="conf", kind=CONFIGURATION)
    found = await installation.context.client.get(COMPOSITION, "app")
    controllers = [each["name"] for each in found["metadata"]["ownerReferences"] if each.get("controller")]
    assert controllers == [configuration_object["status"]["currentRevision"]]


async def test_one_bad_package_does_not_hold_up_another(installation: Installation) -> None:
    installation.publish(f"{HOME}/fn:v1.0.0", server_program("v1"))
    configuration(installation, "good:v1.0.0", composition("good"), fn="*")
    configuration(installation, "bad:v1.0.0", composition("bad"), fn=">=v7", lost="*")
    for name in ("bad", "good"):
        await installation.install(f"{HOME}/{name}:v1.0.0", kind="Configuration", name=name)
    message = await until_resolved(installation, "False")
    assert f"nobody answers for {HOME}/lost" in message

    async def missing() -> bool:
        bad = await installation.until("Healthy", "False", name="bad", kind=CONFIGURATION)
        condition = condition_of(bad, "Healthy")
        return condition is not None and "missing dependencies" in condition["message"]

    await eventually(missing, "what is missing")
    await installation.install(f"{HOME}/fn:v1.0.0")
    await installation.until("Healthy", "True", name="good", kind=CONFIGURATION)
    assert await read(installation.context.client, COMPOSITION, "bad") is None

    async def explained() -> bool:
        said = await until_resolved(installation, "False")
        return f'Function "fn" is v1.0.0: {HOME}/bad needs >=v7; {HOME}/good needs *; change its spec.package' in said

    await eventually(explained, "who needs what")


@pytest.mark.parametrize(
    ("gate", "installed", "needed", "expected"),
    [
        ("DependencyVersionUpgrades", "v1.0.0", ">=v1.1.0", "v1.1.0"),
        ("DependencyVersionUpgrades", "v2.0.0", "<v2.0.0", "v2.0.0"),
        ("DependencyVersionDowngrades", "v2.0.0", "<v2.0.0", "v1.1.0"),
        ("DependencyVersionDowngrades", "v1.0.0", ">=v1.1.0", "v1.1.0"),
    ],
    ids=["raised to the lowest that fits", "not lowered", "lowered to the highest that fits", "raised by both"],
)
async def test_what_was_installed_by_hand_follows_what_is_needed_if_a_gate_says_so(
    tmp_path: Path, gate: str, installed: str, needed: str, expected: str
) -> None:
    async with (
        embedded_context() as context,
        installing(replace(context, features=FeatureGates({gate: True})), tmp_path / "data") as installation,
    ):
        for version in ("v1.0.0", "v1.1.0", "v2.0.0"):
            installation.publish(f"{HOME}/fn:{version}", server_program(version))
        await installation.install(f"{HOME}/fn:{installed}", name="fn")
        await installation.until("Healthy", "True")
        configuration(installation, "conf:v1.0.0", composition("app"), fn=needed)
        await installation.install(f"{HOME}/conf:v1.0.0", kind="Configuration", name="conf")
        if expected == installed:
            said = await until_resolved(installation, "False")
            assert said == f'Function "fn" is {installed}: {HOME}/conf needs {needed}; change its spec.package'
        else:
            await installation.until("Healthy", "True", name="conf", kind=CONFIGURATION)
        function = await installation.context.client.get(FUNCTION, "fn")
        assert function["spec"]["package"] == f"{HOME}/fn:{expected}"


async def test_a_function_that_ships_with_planform_needs_no_registry(installation: Installation) -> None:
    about = meta(
        "Configuration",
        "conf",
        dependsOn=[{"function": "example.org/crossplane-contrib/function-auto-ready", "version": ">=v0.2.1"}],
    )
    installation.publish(f"{HOME}/conf:v1.0.0", None, about=about, objects=[composition("app")])
    await installation.install(f"{HOME}/conf:v1.0.0", kind="Configuration", name="conf")
    await installation.until("Healthy", "True", name="conf", kind=CONFIGURATION)
    function = await installation.until("Healthy", "True", name="crossplane-contrib-function-auto-ready")
    assert function["status"]["endpoint"] == "builtin:auto-ready"
    assert await until_resolved(installation, "True") == ""


async def test_an_object_of_another_package_is_not_taken_over(installation: Installation) -> None:
    for name in ("one", "two"):
        configuration(installation, f"{name}:v1.0.0", composition("app"))
    await installation.install(f"{HOME}/one:v1.0.0", kind="Configuration", name="one")
    await installation.until("Healthy", "True", name="one", kind=CONFIGURATION)
    await installation.install(f"{HOME}/two:v1.0.0", kind="Configuration", name="two")
    two = await installation.until("Healthy", "False", name="two", kind=CONFIGURATION)
    condition = condition_of(two, "Healthy")
    assert condition is not None
    assert (
        "cannot establish control of object: Composition app is controlled by ConfigurationRevision one-"
        in (condition["message"])
    )


async def test_a_package_that_skips_dependencies_needs_none(installation: Installation) -> None:
    configuration(installation, "conf:v1.0.0", composition("app"), lost="*")
    await installation.install(f"{HOME}/conf:v1.0.0", kind="Configuration", name="conf", skipDependencyResolution=True)
    await installation.until("Healthy", "True", name="conf", kind=CONFIGURATION)
    assert await until_resolved(installation, "True") == ""
    lock = await installation.context.client.get(LOCK, "lock")
    assert [each["dependencies"] for each in lock["packages"]] == [[]]


async def test_going_back_brings_the_objects_of_the_older_version_back(installation: Installation) -> None:
    for version in ("v1.0.0", "v2.0.0"):
        app = composition("app")
        app["metadata"]["annotations"] = {"version": version}
        configuration(installation, f"conf:{version}", app)
    for version in ("v1.0.0", "v2.0.0", "v1.0.0"):
        await installation.install(f"{HOME}/conf:{version}", kind="Configuration", name="conf")

        async def brought(version: str = version) -> bool:
            found = await read(installation.context.client, COMPOSITION, "app")
            return found is not None and found["metadata"]["annotations"]["version"] == version

        await eventually(brought, f"the objects of {version}")
