"""Packages that planform makes are packages to others' tools, and the other way round.

Others are crossplane-runtime (parser, linters, builder), go-containerregistry (files and registries) and cosign
(signatures), all from their Go modules, in the program of `xpkg_oracle/`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from planform.apimachinery import yaml_loader
from planform.packages.blobs import BlobStore, Image
from planform.packages.building import Program, assemble, read_source
from planform.packages.credentials import Credentials
from planform.packages.errors import SignatureInvalid
from planform.packages.layers import File
from planform.packages.payloads import Payload, RuntimeKind
from planform.packages.programs import executable_program
from planform.packages.references import Reference, parse_reference
from planform.packages.registry import RegistryClient
from planform.packages.signatures import verify_image
from planform.packages.tarballs import read_image, write_xpkg
from planform.packages.xpkg import encode_package, read_examples, read_package
from tests.e2e.registries import serving_registry
from tests.harness.programs import programs
from tests.unit.archives import FUNCTION_META, crd
from tests.unit.signing import key_pair

XRD = {
    "apiVersion": "apiextensions.crossplane.io/v2",
    "kind": "CompositeResourceDefinition",
    "metadata": {"name": "greetings.example.org"},
    "spec": {
        "group": "example.org",
        "names": {"kind": "Greeting", "plural": "greetings"},
        "scope": "Namespaced",
        "versions": [
            {"name": "v1", "served": True, "referenceable": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    },
}
COMPOSITION = {
    "apiVersion": "apiextensions.crossplane.io/v1",
    "kind": "Composition",
    "metadata": {"name": "greeting"},
    "spec": {
        "compositeTypeRef": {"apiVersion": "example.org/v1", "kind": "Greeting"},
        "mode": "Pipeline",
        "pipeline": [{"step": "greet", "functionRef": {"name": "function-greet"}}],
    },
}
PACKAGES: dict[str, list[dict[str, Any]]] = {
    "Function": [FUNCTION_META, crd()],
    "Function v1beta1": [{**FUNCTION_META, "apiVersion": "meta.pkg.crossplane.io/v1beta1"}, crd()],
    "Provider": [
        {
            "apiVersion": "meta.pkg.crossplane.io/v1",
            "kind": "Provider",
            "metadata": {"name": "provider-greet", "labels": {"family": "greet"}},
            "spec": {"controller": {"permissionRequests": []}, "capabilities": ["safe-start"]},
        },
        crd("greeters"),
    ],
    "Configuration": [
        {
            "apiVersion": "meta.pkg.crossplane.io/v1",
            "kind": "Configuration",
            "metadata": {"name": "platform", "annotations": {"meta.crossplane.io/description": "über: 'quoted' #1\nx"}},
            "spec": {
                "crossplane": {"version": ">=v1.14.0-0 <v3"},
                "dependsOn": [{"function": "registry.example.org/function-greet", "version": "v1.x"}],
            },
        },
        XRD,
        COMPOSITION,
    ],
}


def ask(*words: str | Path) -> str:
    """Ask the others' tools; a refusal is an AssertionError with what they said."""
    program = programs("xpkg-oracle") / "xpkg-oracle"
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def written(directory: Path, objects: list[dict[str, Any]]) -> Path:
    root = directory / "package"
    (root / "examples").mkdir(parents=True)
    for number, obj in enumerate(objects):
        (root / f"{number}.yaml").write_text(yaml_loader.dump(obj))
    (root / "examples" / "xr.yaml").write_text("apiVersion: example.org/v1\nkind: Greeting\nmetadata:\n  name: ada\n")
    return root


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving_registry(tmp_path_factory.mktemp("registry")) as served:
        yield served


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


@pytest.mark.parametrize("kind", PACKAGES)
def test_upstreams_parser_accepts_what_we_build(kind: str, blobs: BlobStore, tmp_path: Path) -> None:
    objects = PACKAGES[kind]
    image = assemble(blobs, read_source(written(tmp_path, objects)))
    write_xpkg(image, tmp_path / "ours.xpkg")
    said = json.loads(ask("parse", tmp_path / "ours.xpkg"))
    assert said["kind"] == kind.partition(" ")[0]
    assert said["objects"] == [obj["kind"] for obj in objects[1:]]
    assert said["lint"] == ""


def test_upstreams_parser_accepts_a_function_with_its_program(blobs: BlobStore, tmp_path: Path) -> None:
    script = tmp_path / "greet"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    image = assemble(blobs, read_source(written(tmp_path, PACKAGES["Function"])), executable_program(script))
    write_xpkg(image, tmp_path / "ours.xpkg")
    assert json.loads(ask("parse", tmp_path / "ours.xpkg"))["lint"] == ""


@pytest.mark.parametrize("kind", PACKAGES)
def test_package_that_upstream_builds_is_read_here(kind: str, blobs: BlobStore, tmp_path: Path) -> None:
    root = written(tmp_path, PACKAGES[kind])
    ask("build", root, tmp_path / "theirs.xpkg")
    image = read_image(tmp_path / "theirs.xpkg", blobs)
    theirs, ours = read_package(image), read_source(root).package
    assert (theirs.kind, theirs.name, theirs.dependencies) == (ours.kind, ours.name, ours.dependencies)
    assert [obj["kind"] for obj in theirs.objects] == [obj["kind"] for obj in ours.objects]
    assert theirs.annotations == ours.annotations
    assert b"kind: Greeting" in read_examples(image)


def registry_client(blobs: BlobStore) -> RegistryClient:
    return RegistryClient(blobs, Credentials())


def build(blobs: BlobStore, directory: Path) -> Image:
    program = Program(Payload(RuntimeKind.PROCESS, ("bin/greet",)), (File("bin/greet", b"x", executable=True),))
    return assemble(blobs, read_source(written(directory, PACKAGES["Function"])), program)


async def test_upstream_reads_what_we_push_under_the_same_digest(
    address: str, blobs: BlobStore, tmp_path: Path
) -> None:
    image = build(blobs, tmp_path)
    async with registry_client(blobs) as registry:
        await registry.push(image, parse_reference(f"{address}/ours:v1"))
    said = json.loads(ask("pull", f"{address}/ours:v1"))
    assert (said["digest"], said["kind"], said["lint"]) == (image.digest, "Function", "")


async def test_what_upstream_pushes_is_pulled_here(address: str, blobs: BlobStore, tmp_path: Path) -> None:
    root = written(tmp_path, PACKAGES["Configuration"])
    ask("build", root, tmp_path / "theirs.xpkg")
    ask("push", tmp_path / "theirs.xpkg", f"{address}/theirs:v1")
    async with registry_client(blobs) as registry:
        image = await registry.pull(parse_reference(f"{address}/theirs:v1"))
    assert read_package(image).name == "platform"
    assert json.loads(ask("pull", f"{address}/theirs:v1"))["digest"] == image.digest


@pytest.mark.parametrize("form", ["sign", "bundle"])
async def test_signature_that_cosign_makes_is_checked_here(
    form: str, address: str, blobs: BlobStore, tmp_path: Path
) -> None:
    private, public = key_pair()
    _, stranger = key_pair()
    (tmp_path / "key.pem").write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    image = build(blobs, tmp_path)
    reference = Reference(address, f"signed-by-{form}", "v1")
    async with registry_client(blobs) as registry:
        await registry.push(image, reference)
        ask(form, f"{reference.source}@{image.digest}", tmp_path / "key.pem")
        assert (await verify_image(registry, reference, image.digest, {"us": public})).authority == "us"
        with pytest.raises(SignatureInvalid, match="another key"):
            await verify_image(registry, reference, image.digest, {"them": stranger})


def test_streams_of_both_hold_the_same_objects(blobs: BlobStore, tmp_path: Path) -> None:
    root = written(tmp_path, PACKAGES["Function"])
    ask("build", root, tmp_path / "theirs.xpkg")
    theirs = read_package(read_image(tmp_path / "theirs.xpkg", blobs))
    assert yaml_loader.load(encode_package(theirs).split(b"---\n")[1]) == theirs.meta
