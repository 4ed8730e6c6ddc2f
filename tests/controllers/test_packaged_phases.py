"""Phase functions out of packages: installed, called over gRPC by phases of ActionSets, versioned, and taken away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import Object
from planform.api.names import BLUEPRINT, FUNCTION, FUNCTION_REVISION
from planform.app import Settings, open_control_plane
from planform.blueprints.actions import PhaseFunctions
from planform.blueprints.controller import ActionSetController
from planform.blueprints.discovery import function_list
from planform.blueprints.packaged_phases import PackagedPhases
from planform.errors import Invalid
from planform.features import FeatureGates
from planform.packages.blobs import BlobStore
from planform.packages.building import Source, assemble
from planform.packages.revisions import VERSION_LABEL
from planform.packages.xpkg import package_of
from planform.pipeline.running import ClientReader, Pipelines, SecretCredentials, resolver_of
from tests.controllers.acting import SECRET, Theatre, action, phase
from tests.harness.contexts import condition_of, embedded_context, eventually
from tests.harness.packaging import REPOSITORY, Installation, installing, meta, server_program

SERVER = '''"""Greets, and tells what it was sent."""

import sys
from typing import Any

from planform_sdk import Request, Response, function
from planform_sdk.__main__ import serve


@function
async def greet(req: Request[Any], rsp: Response) -> None:
    given, about = req.input or {}, req.context["planform.dev/phase"]
    if given.get("fail"):
        rsp.fatal(given["fail"])
        return
    if given.get("wants"):
        rsp.desired.resources["x"] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    rsp.normal(f"greeting {given['name']}")
    rsp.output = {
        "greeting": f"hello {given['name']}, says VERSION",
        "about": [about["action"], about["phase"], about["version"], about["object"]["name"], about["options"]],
        "secret": {key: value.decode() for key, value in req.credentials("login").items()},
    }


serve(greet, sys.argv[1:])
'''

pytestmark = pytest.mark.timeout(120)


class Stage:
    """A control plane that installs packages and runs ActionSets."""

    def __init__(self, theatre: Theatre, installation: Installation) -> None:
        self.theatre = theatre
        self.installation = installation
        context = theatre.context
        self.phases = PhaseFunctions()
        pipelines = Pipelines(
            resolver=resolver_of(lambda: installation.live.catalogue, FeatureGates({})),
            runner=installation.run,
            reader=ClientReader(context.client),
            credentials=SecretCredentials(context.client),
            clock=context.clock,
        )
        PackagedPhases(installation.live, pipelines, self.phases).start()
        ActionSetController(context, self.phases.catalogue, here=self.phases.here).start()

    async def install(self, version: str) -> None:
        """Install a version of the function; it need not serve yet."""
        self.publish(version, "phase")
        await self.installation.install(version, name="greet")
        await self.until(lambda: version in self.versions)

    def publish(self, version: str, capability: str) -> None:
        about = meta("Function", "greet", capabilities=[capability])
        self.installation.publish(f"{REPOSITORY}:{version}", server_program(version, SERVER), about=about)

    @property
    def versions(self) -> list[str]:
        """Those of the function that phases can call, the newest first."""
        listed = (each for each in function_list(self.phases.catalogue) if each["name"] == "greet")
        return [each["version"] for found in listed for each in found["versions"]]

    async def until(self, holds: Any) -> None:
        async def check() -> bool:
            return bool(holds())

        await eventually(check, f"other functions than {self.versions}", seconds=60)

    async def output(self, request: str | Object) -> Object:
        done = await self.theatre.run(request)
        assert done["status"]["state"] == "complete", done["status"]
        found: Object = done["status"]["actions"][0]["phases"][0]["output"]
        return found


@pytest.fixture
async def stage(tmp_path: Path, unique: str) -> AsyncIterator[Stage]:
    async with (
        embedded_context() as context,
        installing(context, tmp_path) as installation,
        Theatre.open(context, unique, start=False) as theatre,
    ):
        yield Stage(theatre, installation)


async def test_a_phase_calls_a_function_of_a_package_with_its_arguments_and_secrets(stage: Stage) -> None:
    await stage.install("v1.2.0")
    theatre = stage.theatre
    await theatre.create(SECRET, "login", data={"key": "aHVzaA=="})
    await theatre.blueprint({"hail": action(phase("p", "greet", {"name": "{{ .Object.metadata.name }}"}))})
    secrets = {"login": {"name": "login", "namespace": theatre.namespace}}
    request = theatre.request("hail", options={"mode": "fast"}, secrets=secrets)
    assert await stage.output(request) == {
        "greeting": "hello target, says v1.2.0",
        "about": ["hail", "p", "v1.2.0", "target", {"mode": "fast"}],
        "secret": {"key": "hush"},
    }


async def test_an_upgrade_moves_who_pins_nothing_and_leaves_a_pin_with_nothing_to_run(stage: Stage) -> None:
    theatre, args = stage.theatre, {"name": "you"}
    await stage.install("v1.0.0")
    await theatre.blueprint(
        {"plain": action(phase("p", "greet", args)), "old": action(phase("p", "greet", args, funcVersion="v1.0.0"))}
    )
    assert (await stage.output("plain"))["greeting"] == "hello you, says v1.0.0"
    assert (await stage.output("old"))["greeting"] == "hello you, says v1.0.0"
    await stage.install("v2.0.0")
    await stage.until(lambda: stage.versions == ["v2.0.0"])
    assert (await stage.output("plain"))["greeting"] == "hello you, says v2.0.0"
    failed = await theatre.run("old")
    assert theatre.errors(failed) == [("p", "VersionNotFound")]
    assert "has no version v1.0.0 (it has: v2.0.0)" in failed["status"]["error"]["message"]


async def test_a_fatal_result_or_objects_to_apply_fail_the_phase(stage: Stage) -> None:
    await stage.install("v1.0.0")
    theatre = stage.theatre
    await theatre.blueprint(
        {
            "fails": action(phase("p", "greet", {"fail": "no luck today"}), defer=phase("d", "Echo", {"message": "x"})),
            "wants": action(phase("p", "greet", {"name": "x", "wants": True})),
        }
    )
    failed = await theatre.run("fails")
    assert theatre.states(failed) == ["failed", "complete"]
    assert "no luck today" in failed["status"]["error"]["message"]
    wants = await theatre.run("wants")
    assert "wants objects applied, which a phase does not do" in wants["status"]["error"]["message"]


async def test_only_functions_for_phases_are_there_and_only_as_long_as_they_are_installed(stage: Stage) -> None:
    theatre = stage.theatre
    await stage.install("v1.0.0")
    stage.publish("v2.0.0", "composition")
    await stage.installation.install("v2.0.0", name="greet")
    await stage.until(lambda: stage.versions == [])
    await stage.install("v3.0.0")
    await theatre.client.delete(FUNCTION, "greet")
    await stage.until(lambda: stage.versions == [])
    await theatre.blueprint({"plain": action(phase("p", "greet", {"name": "x"}))})
    failed = await theatre.run("plain")
    assert theatre.errors(failed) == [("p", "FunctionNotFound")]


async def test_a_revision_that_a_blueprint_or_a_run_is_bound_to_is_in_use_and_can_be_kept(tmp_path: Path) -> None:
    data = tmp_path / "data"
    about = meta("Function", "greet", capabilities=["phase"])
    blobs = BlobStore(data / "packages" / "blobs")
    for version in ("v1.0.0", "v2.0.0"):
        image = assemble(blobs, Source(package_of([("meta", about)])), server_program(version, SERVER))
        blobs.remember(f"{REPOSITORY}:{version}", image.descriptor)

    async with open_control_plane(Settings(data=data)) as plane:
        client = plane.client

        async def install(version: str) -> None:
            spec = {"package": f"{REPOSITORY}:{version}", "inUsePolicy": "Retain"}
            function = {"apiVersion": FUNCTION.api_version, "kind": FUNCTION.kind, "metadata": {"name": "greet"}}
            await client.apply({**function, "spec": spec}, manager="user", force=True)

        async def until(wanted: dict[str, tuple[str, int, str]]) -> None:
            """Wait until these versions have such a state, so many users and that said of their use."""
            found: dict[str, tuple[str, int, str]] = {}

            async def check() -> bool:
                found.clear()
                for each in (await client.list(FUNCTION_REVISION)).items:
                    version, status = each["metadata"]["labels"][VERSION_LABEL], each.get("status") or {}
                    reason = (condition_of(each, "InUse") or {}).get("reason", "")
                    found[version] = each["spec"]["desiredState"], status.get("users", -1), reason
                return found == wanted

            try:
                await eventually(check, f"revisions {wanted}", seconds=60)
            except AssertionError as error:
                raise AssertionError(f"{error}: there are {found}") from error

        await install("v1.0.0")
        await until({"v1.0.0": ("Active", 0, "NotChosen")})
        pinned = phase("p", "greet", {"name": "you"}, funcVersion="v1.0.0")
        blueprint = {"apiVersion": BLUEPRINT.api_version, "kind": BLUEPRINT.kind, "actions": {"hail": action(pinned)}}

        async def written() -> bool:
            try:
                await client.create({**blueprint, "metadata": {"name": "greetings", "namespace": "default"}})
            except Invalid:  # the function is not known to phases yet
                return False
            return True

        await eventually(written, "the Blueprint", seconds=60)
        await until({"v1.0.0": ("Active", 1, "BoundToPhases")})
        await install("v2.0.0")
        await until({"v1.0.0": ("Active", 1, "BoundToPhases"), "v2.0.0": ("Active", 0, "NotChosen")})
        await client.delete(BLUEPRINT, "greetings", namespace="default")
        await until({"v1.0.0": ("Inactive", 0, "NotChosen"), "v2.0.0": ("Active", 0, "NotChosen")})
