"""Phase functions out of packages: installed, called over gRPC by phases of ActionSets, versioned, and taken away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import Object
from planform.api.names import FUNCTION
from planform.blueprints.discovery import function_list
from planform.controllers.actions import PhaseFunctions
from planform.controllers.actionsets import ActionSetController
from planform.controllers.packaged_phases import PackagedPhases
from planform.controllers.pipelines import ClientReader, Pipelines, SecretCredentials, resolver_of
from planform.features import FeatureGates
from tests.controllers.acting import SECRET, Theatre, action, phase
from tests.harness.packaging import REPOSITORY, Installation, installing, meta, server_program
from tests.harness.planes import embedded_bench, eventually

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
        bench = theatre.bench
        self.phases = PhaseFunctions()
        pipelines = Pipelines(
            resolver=resolver_of(lambda: installation.live.catalogue, FeatureGates({})),
            runner=installation.run,
            reader=ClientReader(bench.client),
            credentials=SecretCredentials(bench.client),
            clock=bench.clock,
        )
        PackagedPhases(installation.live, pipelines, self.phases).start()
        ActionSetController(bench, self.phases.catalogue, here=self.phases.here).start()

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
        embedded_bench() as bench,
        installing(bench, tmp_path) as installation,
        Theatre.open(bench, unique, start=False) as theatre,
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
