"""Packages that a control plane installs from real registries: logins, mirrors, signatures, versions, and bad days."""

from __future__ import annotations

import base64
import json
import os
import resource
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import (
    COMPOSITION,
    CONFIGURATION,
    FUNCTION,
    FUNCTION_REVISION,
    IMAGE_CONFIG,
    LOCK,
    PACKAGE_LABEL,
    SECRET,
    SYSTEM_NAMESPACE,
)
from planform.app import ControlPlane, Settings, open_control_plane
from planform.client.protocol import Patch, PatchType
from planform.packages.blobs import BlobStore, Image, store_image
from planform.packages.building import Source, assemble
from planform.packages.credentials import Credentials, Login
from planform.packages.fetching import CannotUnpack, RegistryPackages
from planform.packages.oci import Descriptor
from planform.packages.references import parse_reference
from planform.packages.registry import RegistryClient
from planform.packages.signatures import SIMPLE_SIGNING, signature_tag
from planform.packages.xpkg import package_of
from tests.e2e.registries import PASSWORD, USER, serving_registry
from tests.harness.contexts import condition_of, embedded_context, eventually, read
from tests.harness.packaging import meta, server_program
from tests.harness.processes import free_ports
from tests.unit.signing import key_pair, payload_for, signed_with

pytestmark = pytest.mark.timeout(400)

PATIENCE_SECONDS = 150.0
"""A registry that was away is asked again after a minute at the latest."""


@dataclass(frozen=True)
class Author:
    """Builds packages and pushes them, as somebody who may."""

    directory: Path

    @asynccontextmanager
    async def registry(self, address: str) -> AsyncIterator[RegistryClient]:
        credentials = Credentials({address: Login(USER, PASSWORD)})
        async with RegistryClient(BlobStore(self.directory), credentials, rng=Random(1)) as registry:
            yield registry

    async def push(self, reference: str, *, program: str = "", about: Object | None = None, **objects: Object) -> Image:
        """A function that says so much of itself, or a package without a program."""
        documents = [("meta", about or meta("Function", "fn"))]
        documents += objects.items()
        named = parse_reference(reference)
        async with self.registry(named.registry) as registry:
            payload = server_program(program or named.tag) if about is None else None
            image = assemble(registry.blobs, Source(package_of(documents)), payload)
            await registry.push(image, named)
        return image

    async def sign(self, reference: str, image: Image, private: Any) -> None:
        payload = payload_for(image.digest)
        named = parse_reference(reference)
        async with self.registry(named.registry) as registry:
            layer = Descriptor(SIMPLE_SIGNING, registry.blobs.add(payload), len(payload), signed_with(private, payload))
            signature = store_image(registry.blobs, {"rootfs": {"diff_ids": []}}, [layer])
            await registry.push(signature, named.tagged(signature_tag(image.digest)))


@dataclass(frozen=True)
class Operator:
    """Whoever runs the control plane."""

    plane: ControlPlane

    async def install(self, package: str, name: str = "fn", kind: GroupVersionKind = FUNCTION, **spec: Any) -> None:
        wanted = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}
        await self.plane.client.apply({**wanted, "spec": {"package": package, **spec}}, manager="user", force=True)

    async def look_again(self, name: str = "fn") -> None:
        """What users do who do not want to wait: any edit has the package looked at."""
        number = (await self.plane.client.get(FUNCTION, name))["metadata"]["resourceVersion"]
        change = {"metadata": {"annotations": {"example.org/looked-at": number}}}
        await self.plane.client.patch(FUNCTION, name, Patch(PatchType.MERGE, change))

    async def until(
        self, type_: str, status: str, words: str = "", *, name: str = "fn", kind: GroupVersionKind = FUNCTION
    ) -> Object:
        """Wait until the object says so of itself, in these words."""
        seen: list[object] = []

        async def check() -> Object | None:
            found = await read(self.plane.client, kind, name)
            condition = condition_of(found or {}, type_)
            seen[:] = [condition]
            is_so = condition is not None and condition["status"] == status
            return found if is_so and condition is not None and words in condition.get("message", "") else None

        try:
            return await eventually(check, f"{type_}={status} {words!r} of {name}", seconds=PATIENCE_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}; it says {seen}") from error

    async def healthy(self, package: str, name: str = "fn", kind: GroupVersionKind = FUNCTION) -> Object:
        """Wait until exactly this package is installed and works."""

        async def check() -> Object | None:
            found = await self.until("Healthy", "True", name=name, kind=kind)
            return found if found["status"]["currentIdentifier"] == package else None

        return await eventually(check, f"{package} works", seconds=PATIENCE_SECONDS)

    async def revisions(self, name: str = "fn") -> list[Object]:
        found = await self.plane.client.list(FUNCTION_REVISION, labels=f"{PACKAGE_LABEL}={name}")
        return sorted(found.items, key=lambda each: int(each["spec"]["revision"]))

    async def secret(self, name: str, data: Mapping[str, bytes]) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}}
        await self.plane.client.apply(namespace, manager="user")
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        about = {"name": name, "namespace": SYSTEM_NAMESPACE}
        await self.plane.client.apply(
            {"apiVersion": "v1", "kind": SECRET.kind, "metadata": about, "data": encoded}, manager="user", force=True
        )

    async def login(self, name: str, address: str, password: str) -> None:
        """As `kubectl create secret docker-registry` makes it."""
        config = {"auths": {address: {"username": USER, "password": password}}}
        await self.secret(name, {".dockerconfigjson": json.dumps(config).encode()})

    async def rule(self, name: str, prefix: str, **spec: Any) -> None:
        about = {"apiVersion": IMAGE_CONFIG.api_version, "kind": IMAGE_CONFIG.kind, "metadata": {"name": name}}
        matched = {"matchImages": [{"type": "Prefix", "prefix": prefix}]}
        await self.plane.client.apply({**about, "spec": {**matched, **spec}}, manager="user", force=True)


@pytest.fixture
def author(tmp_path: Path) -> Author:
    return Author(tmp_path / "author")


@asynccontextmanager
async def operating(data: Path) -> AsyncIterator[Operator]:
    async with open_control_plane(Settings(data=data)) as plane:
        yield Operator(plane)


@pytest.fixture
async def operator(tmp_path: Path) -> AsyncIterator[Operator]:
    async with operating(tmp_path / "data") as running:
        yield running


# -- logins and mirrors


async def test_login_that_is_missing_or_wrong_is_explained_and_followed_once_it_is_right(
    operator: Operator, author: Author, guarded: str
) -> None:
    package = f"{guarded}/team/private:v1"
    await author.push(package)
    await operator.install(package)
    refused = await operator.until("Installed", "False", "401")
    assert PASSWORD not in json.dumps(refused)
    await operator.install(package, packagePullSecrets=[{"name": "registry-login"}])
    await operator.until("Installed", "False", f"there is no Secret registry-login in namespace {SYSTEM_NAMESPACE}")
    await operator.login("registry-login", guarded, "wrong")
    await operator.until("Installed", "False", "401")
    await operator.login("registry-login", guarded, PASSWORD)
    await operator.healthy(package)


async def test_revision_whose_content_was_lost_says_that_the_login_is_wrong_until_it_is_right(
    tmp_path: Path, author: Author, guarded: str
) -> None:
    package = f"{guarded}/team/lost:v1"
    await author.push(package)
    async with operating(tmp_path / "data") as operator:
        await operator.login("registry-login", guarded, PASSWORD)
        await operator.install(package, packagePullSecrets=[{"name": "registry-login"}])
        await operator.healthy(package)
        await operator.login("registry-login", guarded, "expired")
    shutil.rmtree(tmp_path / "data" / "packages")
    async with operating(tmp_path / "data") as operator:
        await operator.until("Installed", "False", "401")
        [revision] = await operator.revisions()
        name = revision["metadata"]["name"]
        await operator.until("RevisionHealthy", "False", "401", name=name, kind=FUNCTION_REVISION)
        await operator.login("registry-login", guarded, PASSWORD)
        await operator.until("RevisionHealthy", "True", name=name, kind=FUNCTION_REVISION)
        await operator.healthy(package)


async def test_rule_for_images_leads_to_a_mirror_and_another_gives_the_login_for_it(
    operator: Operator, author: Author, guarded: str
) -> None:
    await author.push(f"{guarded}/mirror/team/fn:v1")
    await operator.install("upstream.example.invalid/team/fn:v1")
    await operator.until("Installed", "False", "upstream.example.invalid")
    await operator.rule("mirror", "upstream.example.invalid/", rewriteImage={"prefix": f"{guarded}/mirror/"})
    await operator.until("Installed", "False", "401")
    await operator.login("mirror-login", guarded, PASSWORD)
    pull_secret = {"authentication": {"pullSecretRef": {"name": "mirror-login"}}}
    await operator.rule("login", f"{guarded}/mirror/", registry=pull_secret)
    function = await operator.healthy("upstream.example.invalid/team/fn:v1")
    assert function["status"]["resolvedPackage"] == f"{guarded}/mirror/team/fn:v1"
    assert function["status"]["appliedImageConfigRefs"] == [
        {"name": "mirror", "reason": "RewriteImage"},
        {"name": "login", "reason": "SetImagePullSecret"},
    ]
    [revision] = await operator.revisions()
    assert revision["spec"]["image"] == "upstream.example.invalid/team/fn:v1"


# -- signatures


async def test_package_runs_only_if_it_is_signed_with_a_key_that_counts_also_after_a_restart_without_a_registry(
    tmp_path: Path, author: Author
) -> None:
    private, public = key_pair()
    _, stranger = key_pair()
    [port] = free_ports(1)
    package = f"127.0.0.1:{port}/team/signed:v1"
    key = {"secretRef": {"name": "keys", "key": "cosign.pub"}}
    verification = {"provider": "Cosign", "cosign": {"authorities": [{"name": "us", "key": key}]}}
    async with operating(tmp_path / "data") as operator:
        with serving_registry(tmp_path / "registry", port=port):
            image = await author.push(package)
            await operator.rule("signed", f"127.0.0.1:{port}/", verification=verification)
            await operator.install(package)
            await operator.until("Installed", "False", "Secret keys of authority us has no cosign.pub")
            await operator.secret("keys", {"cosign.pub": public})
            await operator.until("Installed", "False", f"{image.digest} is not signed")
            assert await operator.revisions() == []
            await author.sign(package, image, private)
            await operator.look_again()
            function = await operator.healthy(package)
            assert {"name": "signed", "reason": "VerifyImage"} in function["status"]["appliedImageConfigRefs"]
            await operator.secret("keys", {"cosign.pub": stranger})
            await operator.until("Healthy", "False", "")
            await operator.until("Installed", "False", "made with another key than us's")
            await operator.secret("keys", {"cosign.pub": public})
            await operator.healthy(package)
    async with operating(tmp_path / "data") as operator:
        await operator.healthy(package)
        [revision] = await operator.revisions()
        assert revision["status"]["endpoint"].startswith("ipv4:127.0.0.1:")
        await operator.secret("keys", {"cosign.pub": stranger})
        await operator.until("Installed", "False", "cannot be reached")


# -- versions


def composition(name: str) -> Object:
    return {
        "apiVersion": COMPOSITION.api_version,
        "kind": COMPOSITION.kind,
        "metadata": {"name": name},
        "spec": {
            "compositeTypeRef": {"apiVersion": "example.org/v1", "kind": "App"},
            "mode": "Pipeline",
            "pipeline": [{"step": "ready", "functionRef": {"name": "function-auto-ready"}}],
        },
    }


async def configuration(author: Author, reference: str, **needed: str) -> None:
    home = parse_reference(reference).source.rpartition("/")[0]
    depends = [{"function": f"{home}/{name}", "version": version} for name, version in needed.items()]
    await author.push(reference, about=meta("Configuration", "conf", dependsOn=depends), app=composition("app"))


async def test_versions_that_a_configuration_needs_are_found_by_the_tags_of_a_registry_that_asks_for_a_login(
    operator: Operator, author: Author, guarded: str
) -> None:
    home = f"{guarded}/platform"
    for tag in ("v1.0.0", "v1.1.0", "v2.0.0", "v3.0.0-rc.1", "latest", "v1"):
        await author.push(f"{home}/fn:{tag}")
    await configuration(author, f"{home}/conf:v1.0.0", fn="^1")
    await configuration(author, f"{home}/conf:v2.0.0", fn=">=v2.0.0")
    await operator.login("registry-login", guarded, PASSWORD)
    login: dict[str, Any] = {"packagePullSecrets": [{"name": "registry-login"}]}
    for conf, fn in (("v1.0.0", "v1.1.0"), ("v2.0.0", "v2.0.0"), ("v1.0.0", "v1.1.0")):  # up, and down again
        await operator.install(f"{home}/conf:{conf}", "conf", CONFIGURATION, **login)
        await operator.healthy(f"{home}/conf:{conf}", "conf", CONFIGURATION)
        await operator.healthy(f"{home}/fn:{fn}", "platform-fn")
    lock = await operator.plane.client.get(LOCK, "lock")
    assert {each["source"]: each["version"] for each in lock["packages"]} == {
        f"{home}/conf": "v1.0.0",
        f"{home}/fn": "v1.1.0",
    }


async def test_bad_dependencies_and_packages_hold_up_nobody_else(
    operator: Operator, author: Author, address: str
) -> None:
    home = f"{address}/mixed"
    await author.push(f"{home}/fn:v1.0.0")
    await configuration(author, f"{home}/good:v1.0.0", fn="*")
    await configuration(author, f"{home}/bad:v1.0.0", lost="*")
    for name in ("bad", "good"):
        await operator.install(f"{home}/{name}:v1.0.0", name, CONFIGURATION)
    await operator.install(f"{home}/no-such:v1.0.0", "no-such")
    await operator.install("127.0.0.1:1/nobody/there:v1.0.0", "nobody")
    await operator.until("Installed", "False", "does not exist", name="no-such")
    await operator.until("Installed", "False", "cannot be reached", name="nobody")
    await operator.healthy(f"{home}/good:v1.0.0", "good", CONFIGURATION)
    await operator.until("Healthy", "False", f"missing dependencies: {home}/lost", name="bad", kind=CONFIGURATION)
    await operator.until("Resolved", "False", f"{home}/lost", name="lock", kind=LOCK)


async def test_moved_tag_counts_as_the_pull_policy_says_and_never_for_a_digest(
    operator: Operator, author: Author, address: str
) -> None:
    package = f"{address}/team/moving:stable"
    first = await author.push(package, program="first")
    pinned = f"{package}@{first.digest}"
    await operator.install(package, "tagged")
    await operator.install(pinned, "pinned", packagePullPolicy="Always")
    await operator.install(package, "always", packagePullPolicy="Always")
    await operator.install(f"{address}/team/other:v1", "never", packagePullPolicy="Never")
    for name in ("tagged", "always"):
        await operator.healthy(package, name)
    await operator.healthy(pinned, "pinned")
    await operator.until("Installed", "False", "is not stored here, and must not be pulled", name="never")
    second = await author.push(package, program="second")
    await operator.install(package, "never", packagePullPolicy="Never")
    await operator.healthy(package, "never")
    for name in ("tagged", "pinned", "always"):
        await operator.look_again(name)

    async def digests(name: str) -> list[str]:
        return [each["metadata"]["annotations"]["planform.dev/digest"] for each in await operator.revisions(name)]

    async def followed() -> bool:
        return await digests("always") == [first.digest, second.digest]

    await eventually(followed, "the moved tag is noticed")
    for name in ("tagged", "pinned", "never"):
        assert await digests(name) == [first.digest]


# -- bad days


async def test_registry_that_is_away_is_asked_again_and_others_go_on(
    tmp_path: Path, operator: Operator, author: Author, address: str
) -> None:
    [port] = free_ports(1)
    package, other = f"127.0.0.1:{port}/team/late:v1", f"{address}/team/early:v1"
    await author.push(other)
    await operator.install(package, "late")
    await operator.until("Installed", "False", "cannot be reached", name="late")
    await operator.install(other, "early")
    await operator.healthy(other, "early")
    with serving_registry(tmp_path / "registry", port=port):
        await author.push(package)
        await operator.healthy(package, "late")


async def test_what_was_pulled_serves_without_a_registry_after_a_restart_and_under_another_name(
    tmp_path: Path, author: Author
) -> None:
    [port] = free_ports(1)
    package = f"127.0.0.1:{port}/team/offline:v1"
    async with operating(tmp_path / "data") as operator:
        with serving_registry(tmp_path / "registry", port=port):
            await author.push(package)
            await operator.install(package)
            await operator.healthy(package)
    async with operating(tmp_path / "data") as operator:
        await operator.install(package, "again")
        for name in ("fn", "again"):
            found = await operator.healthy(package, name)
            assert found["status"]["endpoint"].startswith("ipv4:127.0.0.1:")


async def test_disk_that_takes_no_more_is_told_and_left_as_it_was(tmp_path: Path, author: Author, address: str) -> None:
    package = f"{address}/team/large:v1"
    await author.push(package, program=Random(1).randbytes(150_000).hex())
    async with embedded_context() as context:
        source = RegistryPackages(tmp_path / "packages", context.client, clock=context.clock, rng=context.rng)
        located = await source.locate(package)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))  # as if there were no room for more
        try:
            with pytest.raises(CannotUnpack, match="large:v1 cannot be kept on this machine: File too large"):
                await source.fetch(located)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert not (tmp_path / "packages" / "files").exists()
        assert (await source.fetch(located)).executable is not None


async def test_what_nobody_needs_any_more_is_deleted_and_nothing_else(
    tmp_path: Path, operator: Operator, author: Author, address: str
) -> None:
    one, two = f"{address}/team/one:v1", f"{address}/team/two:v1"
    images = {"one": await author.push(one, program="one"), "two": await author.push(two, program="two")}
    for name, package in (("one", one), ("two", two)):
        await operator.install(package, name)
        await operator.healthy(package, name)
    packages = tmp_path / "data" / "packages"
    blobs = packages / "blobs" / "blobs" / "sha256"
    for file in blobs.iterdir():
        os.utime(file, (0, 0))  # it came long ago
    await operator.plane.client.delete(FUNCTION, "one")

    left = images["two"]
    parts = (left.descriptor, left.manifest.config, *left.manifest.layers)

    async def swept() -> bool:
        files = {each.name for each in (packages / "files").iterdir()}
        content = {f"sha256:{each.name}" for each in blobs.iterdir()}
        names = len(list((packages / "blobs" / "names").iterdir()))
        expected = {left.digest.removeprefix("sha256:")}, {each.digest for each in parts}, 1
        return (files, content, names) == expected

    await eventually(swept, "only what is installed is left")
    await operator.look_again("two")
    await operator.healthy(two, "two")
