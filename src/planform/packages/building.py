"""Building packages: from what an author has on disk to an image that registries and control planes take.

    source (crossplane.yaml and objects)  ─┐
    examples                               ├─> assemble ─> Image ─> file or registry
    program (see `programs`), base image  ─┘

Nothing that differs between machines or days goes in, so the same input has the same digest.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from planform.apimachinery import yaml_loader
from planform.packages.blobs import BlobStore, Image, store_image
from planform.packages.errors import BuildFailed, InvalidPackage
from planform.packages.layers import File, Layer, make_layer
from planform.packages.oci import (
    DOCKER_LAYER,
    DOCKER_LAYER_GZIP,
    OCI_LAYER,
    OCI_LAYER_GZIP,
    Descriptor,
    Platform,
)
from planform.packages.payloads import ONLY_LABEL, PAYLOAD, PAYLOAD_ROOT, PYTHON, RUNTIME_LABEL, Payload, RuntimeKind
from planform.packages.tarballs import MARK
from planform.packages.xpkg import (
    BASE,
    EXAMPLES,
    EXAMPLES_FILE,
    PACKAGE_FILE,
    Package,
    encode_package,
    marked_layers,
    package_of,
)

_EPOCH: Final = "1970-01-01T00:00:00Z"
_ENDINGS: Final = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Source:
    """What an author wrote about a package."""

    package: Package
    examples: bytes = b""


@dataclass(frozen=True, slots=True)
class Program:
    """A program to put into a package: how it is run, its files below the payload's root, and where it can run."""

    payload: Payload
    files: tuple[File, ...] = ()
    platform: Platform | None = None


def read_source(root: Path, *, examples: Path | None = None, ignore: Sequence[str] = ()) -> Source:
    """Read the YAML files below a directory as a package; examples are kept apart. Raises what `package_of` does.

    A disallowed kind is an error here, while whoever installs a package only leaves it out.
    """
    if not root.is_dir():
        raise BuildFailed(f"there is no directory {root}")
    where = examples if examples is not None else root / "examples"
    documents = [
        (f"{path}, document {number}", document)
        for path in _yaml_files(root, ignore)
        if not path.is_relative_to(where)
        for number, document in enumerate(_documents(path), start=1)
        if document is not None
    ]
    if not documents:
        raise BuildFailed(f"{root} has no YAML files", hint="a package needs a crossplane.yaml: planform xpkg init")
    package = package_of(documents)
    if misplaced := package.misplaced():
        raise InvalidPackage(f"a {package.kind} cannot bring {', '.join(misplaced)}")
    return Source(package, _examples(where, ignore) if where.is_dir() else b"")


def assemble(blobs: BlobStore, source: Source, program: Program | None = None, *, base: Image | None = None) -> Image:
    """Make the image of a package: the base image's layers, the program, the package, the examples.

    A program that runs as a process gets an entrypoint in the image if there is a base to run it in; without one, the
    image is marked as being for planform only.
    """
    made: list[tuple[Layer, str]] = []
    if program is not None and program.files:
        files = (File(f"{PAYLOAD_ROOT}/{file.path}", file.content, file.executable) for file in program.files)
        made.append((make_layer(blobs, files), PAYLOAD))
    text = File(PACKAGE_FILE, encode_package(source.package))
    made.append((make_layer(blobs, [text], with_directories=False), BASE))
    if source.examples:
        shown = File(EXAMPLES_FILE, source.examples)
        made.append((make_layer(blobs, [shown], with_directories=False), EXAMPLES))
    layers = [replace(layer.descriptor, annotations={MARK: mark}) for layer, mark in made]
    return store_image(blobs, _config(program, base, made), [*_below(base), *layers])


def file_name(image: Image, package: Package) -> str:
    """What a package file is called: the package's name and the beginning of the image's digest."""
    return f"{package.name}-{image.digest.removeprefix('sha256:')[:12]}.xpkg"


def _below(base: Image | None) -> list[Descriptor]:
    """The layers of the base image, under OCI's names for their types: an image should not mix two standards."""
    if base is None:
        return []
    if any(label.startswith(f"{MARK}:") for label in base.labels) or marked_layers(base, BASE):
        raise BuildFailed(f"the base image {base.digest} is a package itself", hint="name the image it was built from")
    plain = {DOCKER_LAYER: OCI_LAYER, DOCKER_LAYER_GZIP: OCI_LAYER_GZIP}
    return [replace(each, media_type=plain.get(each.media_type, each.media_type)) for each in base.manifest.layers]


def _config(program: Program | None, base: Image | None, made: Sequence[tuple[Layer, str]]) -> dict[str, Any]:
    """The configuration of the image: the base's, with what comes on top."""
    config: dict[str, Any] = dict(base.config) if base is not None else {"created": _EPOCH}
    settings = dict(base.settings) if base is not None else {}
    labels = dict(base.labels) if base is not None else {}
    labels |= {f"{MARK}:{layer.descriptor.digest}": mark for layer, mark in made}
    platform = base.platform if base is not None else Platform("linux", "")
    if program is not None:
        labels[RUNTIME_LABEL] = program.payload.encode()
        if base is None or program.payload.kind is RuntimeKind.ONESHOT:
            labels[ONLY_LABEL] = "true"
        elif program.payload.kind is RuntimeKind.PROCESS:
            settings |= _started(program.payload, settings)
        platform = _platform(program, base) or platform
    settings["Labels"] = labels
    rootfs = config.get("rootfs")
    below = list(rootfs.get("diff_ids") or ()) if isinstance(rootfs, dict) else []
    config["rootfs"] = {"type": "layers", "diff_ids": [*below, *(layer.diff_id for layer, _ in made)]}
    if config.get("history"):
        config["history"] = [*config["history"], *({"created": _EPOCH, "created_by": "planform"} for _ in made)]
    config |= {"config": settings, "os": platform.os, "architecture": platform.architecture}
    return config


def _started(payload: Payload, settings: Mapping[str, Any]) -> dict[str, Any]:
    """How the image starts a program whose files are below the payload's root."""
    root = f"/{PAYLOAD_ROOT}"
    program, *rest = payload.command
    first = program if program == PYTHON else f"{root}/{program}"
    kept = [text for text in settings.get("Env") or () if not text.startswith("PYTHONPATH=")]
    paths = [f"PYTHONPATH={':'.join(f'{root}/{path}' for path in payload.paths)}"] if payload.paths else []
    return {"Entrypoint": [first, *rest], "Cmd": None, "WorkingDir": root, "Env": [*kept, *paths]}


def _platform(program: Program, base: Image | None) -> Platform | None:
    wanted = program.platform
    if wanted is None or base is None or not base.platform.architecture:
        return wanted
    if wanted.architecture != base.platform.architecture:
        raise BuildFailed(f"the program was made for {wanted}, and the base image is for {base.platform}")
    return base.platform


def _yaml_files(root: Path, ignore: Sequence[str]) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        hidden = any(part.startswith(".") for part in inside.parts)
        ignored = any(fnmatch.fnmatch(str(inside), pattern) for pattern in ignore)
        if path.suffix in _ENDINGS and path.is_file() and not hidden and not ignored:
            yield path


def _documents(path: Path) -> list[Any]:
    try:
        return list(yaml_loader.load_all(path.read_bytes()))
    except ValueError as error:
        raise BuildFailed(f"{path}: {error}") from error


def _examples(root: Path, ignore: Sequence[str]) -> bytes:
    found = [obj for path in _yaml_files(root, ignore) for obj in _documents(path) if obj is not None]
    return yaml_loader.dump_all(found).encode() if found else b""
