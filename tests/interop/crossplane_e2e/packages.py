"""The packages that Crossplane's end-to-end tests install, pushed to a registry.

provider-nop below 0.5.0 is the program of 0.5.0 with the kind that those releases had: NopResource in the cluster.
"""

from __future__ import annotations

import asyncio
import io
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import yaml
from cryptography.hazmat.primitives.asymmetric import ec

from planform.packages.blobs import BlobStore, Image, store_image
from planform.packages.building import Program, Source, assemble
from planform.packages.credentials import Credentials
from planform.packages.layers import File, make_layer
from planform.packages.oci import Descriptor
from planform.packages.payloads import Payload, RuntimeKind
from planform.packages.programs import executable_program
from planform.packages.references import parse_reference
from planform.packages.registry import RegistryClient
from planform.packages.signatures import SIMPLE_SIGNING, signature_tag
from planform.packages.tarballs import MARK
from planform.packages.xpkg import BASE, PACKAGE_FILE, encode_package, package_of
from tests.harness.packaging import meta
from tests.harness.programs import programs
from tests.unit.signing import payload_for, signed_with

HERE = Path(__file__).parent
CHANGES: Mapping[str, Any] = yaml.safe_load((HERE / "changes.yaml").read_text())
NOP = "crossplane-contrib/provider-nop"
NOP_OLD_TAGS = ("v0.2.0", "v0.2.1", "v0.3.0", "v0.3.1", "v0.4.0")
FUNCTIONS = (
    ("crossplane-contrib/function-dummy", ("v0.3.0", "v0.4.0", "v0.4.1"), "dummy"),
    ("crossplane-contrib/function-python", ("v0.4.0",), "python"),
)
TRANSITIVE = ("config1", "config2", "dep1", "dep2", "transitive")


def unpack_tree(target: Path) -> Path:
    """Crossplane's manifests and CRDs, as the tree of its module has them; gives the root."""
    program = programs("crossplane-e2e-tree") / "crossplane-e2e-tree"
    archive = subprocess.run([program], capture_output=True, check=True, timeout=60).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        for member in opened.getmembers():
            opened.extract(member, target, set_attrs=False)
    return target


@dataclass
class Publisher:
    """Assembles images and pushes them, and keeps which name got which digest."""

    registry: RegistryClient
    address: str
    digests: dict[str, str]

    async def push(self, name: str, documents: Sequence[Mapping[str, Any]], program: Program | None = None) -> Image:
        source = Source(package_of([("package", dict(document)) for document in documents]))
        image = assemble(self.registry.blobs, source, program)
        return await self.tag(name, image)

    async def tag(self, name: str, image: Image) -> Image:
        await self.registry.push(image, parse_reference(f"{self.address}/{name}"))
        self.digests[name] = image.digest
        return image

    async def sign(self, name: str, image: Image, private: ec.EllipticCurvePrivateKey) -> None:
        payload = payload_for(image.digest)
        blobs = self.registry.blobs
        layer = Descriptor(SIMPLE_SIGNING, blobs.add(payload), len(payload), signed_with(private, payload))
        signature = store_image(blobs, {"rootfs": {"diff_ids": []}}, [layer])
        repository = name.partition(":")[0]
        await self.registry.push(
            signature, parse_reference(f"{self.address}/{repository}:{signature_tag(image.digest)}")
        )


def publish(
    address: str, scratch: Path, tree: Path, private: ec.EllipticCurvePrivateKey, *, providers: bool
) -> dict[str, str]:
    """Push everything; gives the digest of each name. Without providers, it takes no Go program."""
    return asyncio.run(_publish(address, scratch, tree, private, _nop_documents() if providers else []))


async def _publish(
    address: str,
    scratch: Path,
    tree: Path,
    private: ec.EllipticCurvePrivateKey,
    nop: Sequence[Mapping[str, Any]],
) -> dict[str, str]:
    async with RegistryClient(BlobStore(scratch), Credentials({}), rng=Random(1)) as registry:
        publisher = Publisher(registry, address, {})
        for repository, tags, which in FUNCTIONS:
            for tag in tags:
                about = meta("Function", repository.rpartition("/")[2], capabilities=["composition", "operation"])
                about["metadata"]["annotations"] = {"version": tag}
                await publisher.push(f"{repository}:{tag}", [about], _python_program(which))
        if nop:
            await _publish_nop(publisher, nop)
        folder = tree / "test/e2e/manifests/pkg"
        for package in CHANGES["packages"]:
            text = replaced((folder / package["from"]).read_text(), publisher.digests)
            if "text" in package:
                assert package["text"][0] in text, package
                text = text.replace(*package["text"])
            image = await publisher.push(package["name"], list(yaml.safe_load_all(text)))
            if package.get("signed"):
                await publisher.sign(package["name"], image, private)
        for each in TRANSITIVE:
            for tag in ("v0.0.1", "v0.0.2", "v0.0.3"):
                text = (folder / f"dependency-upgrade/transitive/packages/{each}/{tag}/crossplane.yaml").read_text()
                await publisher.push(f"crossplane/e2e-transitive-{each}:{tag}", list(yaml.safe_load_all(text)))
        return publisher.digests


def _python_program(which: str) -> Program:
    files = (File("app/functions.py", (HERE / "functions.py").read_bytes()),)
    return Program(Payload(RuntimeKind.PROCESS, ("python", "app/functions.py", which), ("app",)), files)


def _nop_documents() -> list[dict[str, Any]]:
    """What the package of provider-nop holds, as its authors publish it."""
    program = programs("provider-nop-package") / "provider-nop-package"
    said = subprocess.run([program], capture_output=True, check=True, timeout=30).stdout
    return [document for document in yaml.safe_load_all(said) if document]


async def _publish_nop(publisher: Publisher, documents: Sequence[Mapping[str, Any]]) -> None:
    program = executable_program(programs("provider-nop") / "provider-nop")
    newest = await publisher.push(f"{NOP}:v0.5.0", documents, program)
    for tag in NOP_OLD_TAGS:
        await publisher.tag(f"{NOP}:{tag}", _with_program_of(newest, _old(documents, tag)))
    private = _with_program_of(newest, _old(documents, "private"))
    await publisher.tag("crossplane/e2e-private-provider:v0.1.0", private)


def _with_program_of(image: Image, documents: Sequence[Mapping[str, Any]]) -> Image:
    """Another package with the same program, whose layer is large: it is packed once for all."""
    text = encode_package(package_of([("package", dict(document)) for document in documents]))
    about = make_layer(image.blobs, [File(PACKAGE_FILE, text)], with_directories=False)
    program, *_ = image.manifest.layers
    labels = {key: mark for key, mark in image.labels.items() if not (key.startswith(f"{MARK}:") and mark == BASE)}
    labels[f"{MARK}:{about.descriptor.digest}"] = BASE
    config = {
        **image.config,
        "config": {**image.settings, "Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": [image.config["rootfs"]["diff_ids"][0], about.diff_id]},
    }
    return store_image(image.blobs, config, [program, replace(about.descriptor, annotations={MARK: BASE})])


def _old(documents: Sequence[Mapping[str, Any]], tag: str) -> list[dict[str, Any]]:
    """The package as it was before NopResources moved into namespaces."""
    about = deepcopy(dict(documents[0]))
    about["spec"].pop("capabilities", None)
    about["metadata"].setdefault("annotations", {})["version"] = tag
    crd = deepcopy(next(dict(each) for each in documents if _name(each) == "nopresources.nop.crossplane.io"))
    crd["spec"]["scope"] = "Cluster"
    return [about, crd]


def _name(document: Mapping[str, Any]) -> str:
    return str((document.get("metadata") or {}).get("name"))


def replaced(text: str, digests: Mapping[str, str]) -> str:
    """The text with digests of ours for theirs, as far as the images that stand for them are there."""
    for theirs, name in CHANGES["digests"].items():
        if name in digests:
            ours = digests[name].removeprefix("sha256:")
            text = text.replace(str(theirs), ours[: len(str(theirs))]).replace(str(theirs)[:12], ours[:12])
    return text
