"""The design of controlled rollout as it is printed, with packages that were built, pushed and pulled for real.

Two versions of a function in Python lie in a registry. The manifests name them where the design does; a rule for images
says that they are to be had from the registry of the test. Each runs as a process of its own, and is called over TLS
that asks for a certificate on either side.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from planform.api.kinds import Object, gvk
from planform.api.names import FUNCTION, FUNCTION_REVISION, IMAGE_CONFIG, PACKAGE_LABEL
from planform.app import ControlPlane, Settings, open_control_plane
from planform.functions.errors import ResolutionError
from planform.functions.resolution import Request, resolve
from tests.controllers.stage import Stage, printed
from tests.e2e.python_functions import build_and_push
from tests.e2e.registries import serving_registry
from tests.harness.contexts import eventually, until_condition

pytestmark = pytest.mark.timeout(180)

NAME = "function-patch-and-transform"
PUBLISHED = "xpkg.crossplane.io/crossplane-contrib"
OLD, NEW = "v0.8.1", "v0.8.2"
CONFIG_MAP = gvk("v1", "ConfigMap")


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry that has both versions."""
    directory = tmp_path_factory.mktemp("rollout")
    with serving_registry(directory / "registry") as address:
        for version in (OLD, NEW):
            build_and_push(directory, f"{address}/crossplane-contrib/{NAME}:{version}")
        yield address


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    async with open_control_plane(Settings(data=tmp_path / "data")) as running:
        yield running


@pytest.fixture
def stage(plane: ControlPlane) -> Stage:
    return Stage(plane.client, plane.controllers.journal)


def rewrite(address: str) -> Object:
    return {
        "apiVersion": IMAGE_CONFIG.api_version,
        "kind": IMAGE_CONFIG.kind,
        "metadata": {"name": "mirror"},
        "spec": {
            "matchImages": [{"type": "Prefix", "prefix": "xpkg.crossplane.io/"}],
            "rewriteImage": {"prefix": f"{address}/"},
        },
    }


async def installed(stage: Stage, function: Object) -> Object:
    applied = await stage.apply(function)
    generation = applied["metadata"]["generation"]
    return await until_condition(stage.client, applied, "Healthy", observedGeneration=generation)


async def revisions(stage: Stage) -> list[Object]:
    found = await stage.client.list(FUNCTION_REVISION, labels=f"{PACKAGE_LABEL}={NAME}")
    return sorted(found.items, key=lambda each: int(each["spec"]["revision"]))


async def until_made_by(stage: Stage, versions: dict[str, str]) -> None:
    """Wait until each of these XRs is composed by that version of the function."""

    async def check() -> bool:
        for xr, version in versions.items():
            made = (await stage.client.list(CONFIG_MAP, labels=f"crossplane.io/composite={xr}")).items
            if [each["data"]["version"] for each in made] != [version]:
                return False
        return True

    await eventually(check, f"XRs made by {versions}")


async def test_manifests_of_the_design_roll_out_a_function_pulled_from_a_registry(stage: Stage, mirror: str) -> None:
    await stage.define("custom-api.example.org/v1alpha1", "AcmeBucket")
    await stage.apply(rewrite(mirror))
    before = printed("rollout-labelled-function")
    before["metadata"]["labels"]["release-channel"] = "stable"
    before["spec"]["package"] = f"{PUBLISHED}/{NAME}:{OLD}"
    await installed(stage, before)
    composition = printed("rollout-composition")
    composition["metadata"]["labels"]["release-channel"] = "stable"
    [step] = composition["spec"]["pipeline"]
    step["functionRevisionSelector"]["matchLabels"]["release-channel"] = "stable"
    await stage.apply(composition)
    await stage.revision("example", 1)
    for name, channel in (("my-bucket", "stable"), ("careful-bucket", "stable")):
        xr = printed("rollout-xr")
        xr["metadata"]["name"] = name
        xr["spec"]["compositionRevisionSelector"]["matchLabels"]["release-channel"] = channel
        await stage.ready(await stage.apply(xr))
    await until_made_by(stage, {"my-bucket": OLD, "careful-bucket": OLD})

    function = await installed(stage, printed("rollout-labelled-function"))
    await stage.apply(printed("rollout-composition"))
    await stage.revision("example", 2)
    await stage.apply(printed("rollout-xr"))
    await until_made_by(stage, {"my-bucket": NEW, "careful-bucket": OLD})

    assert function["status"]["resolvedPackage"] == f"{mirror}/crossplane-contrib/{NAME}:{NEW}"
    old, new = await revisions(stage)
    assert [each["spec"]["image"] for each in (old, new)] == [f"{PUBLISHED}/{NAME}:{each}" for each in (OLD, NEW)]
    assert [each["spec"]["desiredState"] for each in (old, new)] == ["Active", "Active"]
    for bucket, revision in (("my-bucket", new), ("careful-bucket", old)):
        xr = printed("rollout-xr")
        xr["metadata"]["name"] = bucket
        assert await stage.functions(await stage.get(xr)) == {"patch-and-transform": revision["metadata"]["name"]}

    async def counted() -> bool:
        return [each["status"].get("users") for each in await revisions(stage)] == [1, 1]

    await eventually(counted, "each revision has one user")
    endpoints = [each["status"]["endpoint"] for each in (old, new)]
    assert len(set(endpoints)) == 2
    for revision in (old, new):
        await asks_for_a_certificate(revision["status"]["endpoint"], revision["metadata"]["name"])

    # Going back is installing what was installed before: its revision is there, becomes the newest, and serves.
    await installed(stage, before)
    assert [each["metadata"]["name"] for each in await revisions(stage)] == [
        new["metadata"]["name"],
        old["metadata"]["name"],
    ]
    await until_made_by(stage, {"my-bucket": NEW, "careful-bucket": OLD})


async def asks_for_a_certificate(endpoint: str, revision: str) -> None:
    """A server shows a certificate for exactly this revision, and does not talk to whoever shows none."""
    host, _, port = endpoint.removeprefix("ipv4:").rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    shown: Any = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    names = x509.load_der_x509_certificate(shown).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert revision in names.value.get_values_for_type(x509.DNSName)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        async with asyncio.timeout(20):
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            if not await reader.read(1):
                raise ConnectionResetError("closed without a word")
    writer.close()


async def test_function_that_a_rule_rewrites_is_not_the_one_that_ships_with_planform(
    stage: Stage, plane: ControlPlane, mirror: str
) -> None:
    function = printed("rollout-function")
    await installed(stage, function)
    [builtin] = await revisions(stage)
    assert builtin["status"]["endpoint"] == "builtin:patch-and-transform"
    await stage.apply(rewrite(mirror))

    async def pulled() -> bool:
        status = (await stage.client.get(FUNCTION, NAME))["status"]
        return bool(status["endpoint"].startswith("ipv4:127.0.0.1:"))

    await eventually(pulled, "the package of the mirror serves")
    await stage.client.delete(IMAGE_CONFIG, "mirror")

    async def back() -> bool:
        return bool((await stage.client.get(FUNCTION, NAME))["status"]["endpoint"] == builtin["status"]["endpoint"])

    await eventually(back, "the built-in serves again")


async def test_until_a_rewritten_function_is_pulled_no_built_in_stands_in_for_it(
    stage: Stage, plane: ControlPlane
) -> None:
    await stage.apply(rewrite("127.0.0.1:1"))
    await stage.apply(printed("rollout-function"))
    function = await until_condition(stage.client, printed("rollout-function"), "Installed", "False")
    assert "127.0.0.1:1 cannot be reached" in str(function["status"])
    with pytest.raises(ResolutionError):
        resolve(plane.controllers.functions.catalogue, Request(NAME))
