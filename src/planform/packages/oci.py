"""The OCI image format: descriptors, manifests, indexes and configurations, as values.

Whatever comes from outside is checked here once: sizes, counts, digests and types. What is written is canonical, so
that the same content always has the same digest. Consumers take OCI's media types and Docker's; we write OCI's.
"""

from __future__ import annotations

import hashlib
import platform as machine
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from planform.packages.errors import InvalidPackage, PackageTooLarge
from planform.packages.references import DIGEST

OCI_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX: Final = "application/vnd.oci.image.index.v1+json"
OCI_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
OCI_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
OCI_LAYER_GZIP: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
OCI_EMPTY: Final = "application/vnd.oci.empty.v1+json"
DOCKER_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX: Final = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_LAYER_GZIP: Final = "application/vnd.docker.image.rootfs.diff.tar.gzip"
DOCKER_LAYER: Final = "application/vnd.docker.image.rootfs.diff.tar"

MANIFESTS: Final = (OCI_MANIFEST, DOCKER_MANIFEST)
INDEXES: Final = (OCI_INDEX, DOCKER_INDEX)
LAYERS: Final = (OCI_LAYER, OCI_LAYER_GZIP, DOCKER_LAYER, DOCKER_LAYER_GZIP)

MANIFEST_BYTES: Final = 4 << 20
"""The largest manifest or index; registries promise no more than this."""
CONFIG_BYTES: Final = 4 << 20
MAX_LAYERS: Final = 256
MAX_MANIFESTS: Final = 256


@dataclass(frozen=True, slots=True)
class Platform:
    """Where an image runs, such as linux/amd64."""

    os: str
    architecture: str
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)

    def to_json(self) -> dict[str, str]:
        parts = {"architecture": self.architecture, "os": self.os, "variant": self.variant}
        return {key: value for key, value in parts.items() if value}


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Bytes by their digest, with what is said about them from outside."""

    media_type: str
    digest: str
    size: int
    annotations: Mapping[str, str] = field(default_factory=dict)
    platform: Platform | None = None
    artifact_type: str = ""

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"mediaType": self.media_type, "digest": self.digest, "size": self.size}
        if self.annotations:
            value["annotations"] = dict(self.annotations)
        if self.platform is not None:
            value["platform"] = self.platform.to_json()
        if self.artifact_type:
            value["artifactType"] = self.artifact_type
        return value


@dataclass(frozen=True, slots=True)
class Manifest:
    """One image: its configuration and its layers, lowest first."""

    config: Descriptor
    layers: tuple[Descriptor, ...]
    annotations: Mapping[str, str] = field(default_factory=dict)
    media_type: str = OCI_MANIFEST
    artifact_type: str = ""
    subject: Descriptor | None = None

    def encode(self) -> bytes:
        value: dict[str, Any] = {
            "schemaVersion": 2,
            "mediaType": self.media_type,
            "config": self.config.to_json(),
            "layers": [layer.to_json() for layer in self.layers],
        }
        if self.annotations:
            value["annotations"] = dict(self.annotations)
        if self.artifact_type:
            value["artifactType"] = self.artifact_type
        if self.subject is not None:
            value["subject"] = self.subject.to_json()
        return canonical_json(value)


@dataclass(frozen=True, slots=True)
class Index:
    """Several manifests under one name, usually one for each platform."""

    manifests: tuple[Descriptor, ...]
    annotations: Mapping[str, str] = field(default_factory=dict)
    media_type: str = OCI_INDEX

    def encode(self) -> bytes:
        value: dict[str, Any] = {
            "schemaVersion": 2,
            "mediaType": self.media_type,
            "manifests": [manifest.to_json() for manifest in self.manifests],
        }
        if self.annotations:
            value["annotations"] = dict(self.annotations)
        return canonical_json(value)


def parse_manifest(body: bytes, media_type: str = "", *, where: str = "the manifest") -> Manifest | Index:
    """The manifest or index in these bytes. Raises InvalidPackage or PackageTooLarge, naming `where`.

    `media_type` is what a registry said it is; the bytes must not say otherwise, or one content would mean two things.
    """
    if len(body) > MANIFEST_BYTES:
        raise PackageTooLarge(f"{where} has {len(body)} bytes; at most {MANIFEST_BYTES} are taken")
    value = _mapping(parse_json(body, where), where)
    declared = value.get("mediaType")
    kind = declared or media_type or (OCI_INDEX if "manifests" in value else OCI_MANIFEST)
    if media_type in (*MANIFESTS, *INDEXES) and declared and declared != media_type:
        raise InvalidPackage(f"{where} is served as {media_type} and says that it is {declared}")
    if kind in INDEXES and "layers" not in value:
        found = _descriptors(value, "manifests", MAX_MANIFESTS, where)
        return Index(found, _texts(value, "annotations", where), kind)
    if kind in MANIFESTS and "manifests" not in value:
        subject = value.get("subject")
        return Manifest(
            _descriptor(value.get("config"), f"{where}: config"),
            _descriptors(value, "layers", MAX_LAYERS, where),
            _texts(value, "annotations", where),
            kind,
            str(value.get("artifactType") or ""),
            None if subject is None else _descriptor(subject, f"{where}: subject"),
        )
    raise InvalidPackage(f"{where} is of type {kind}, which is neither an image nor an index of images")


def parse_json(body: bytes, where: str) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidPackage(f"{where} is not JSON: {error}") from error


def choose(index: Index, platform: Platform | None = None) -> Descriptor:
    """The manifest of an index for a platform; an index of one manifest has no other choice.

    Without a platform, this machine's is taken, else linux/amd64: packages without a program are the same everywhere.
    """
    images = [
        each
        for each in index.manifests
        if each.media_type in (*MANIFESTS, "") and (each.platform is None or each.platform.os != "unknown")
    ]  # what is for nowhere are notes on how the others were built
    if not images:
        raise InvalidPackage("the index names no image")
    if len(images) == 1:
        return images[0]
    by_platform = {(each.platform.os, each.platform.architecture): each for each in images if each.platform is not None}
    for wanted in [platform] if platform is not None else [this_platform(), Platform("linux", "amd64")]:
        if (found := by_platform.get((wanted.os, wanted.architecture))) is not None:
            return found
    there = ", ".join(sorted(str(each.platform) for each in by_platform.values())) or "none"
    raise InvalidPackage(f"the index has no image for {platform or this_platform()} (there: {there})")


def this_platform() -> Platform:
    """Where this process runs, in the words of images."""
    names = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
    return Platform("linux", names.get(machine.machine().lower(), machine.machine().lower()))


def parse_platform(text: str) -> Platform:
    """`linux/amd64` or `linux/arm64/v8`."""
    parts = text.split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise InvalidPackage(f'"{text}" is no platform', hint="write it as linux/amd64")
    return Platform(*parts)


def digest_of(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def canonical_json(value: Any) -> bytes:
    """Sorted keys, no spaces: equal values are equal bytes."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _descriptors(value: Mapping[str, Any], key: str, maximum: int, where: str) -> tuple[Descriptor, ...]:
    items = value.get(key)
    if not isinstance(items, Sequence) or isinstance(items, str):
        raise InvalidPackage(f"{where}: {key} is not a list")
    if len(items) > maximum:
        raise PackageTooLarge(f"{where} has {len(items)} {key}; at most {maximum} are taken")
    return tuple(_descriptor(item, f"{where}: {key}[{number}]") for number, item in enumerate(items))


def _descriptor(value: Any, where: str) -> Descriptor:
    value = _mapping(value, where)
    digest, size = value.get("digest"), value.get("size")
    if not isinstance(digest, str) or not DIGEST.match(digest):
        raise InvalidPackage(f"{where}: {str(digest)[:80]!r} is no sha256 digest")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise InvalidPackage(f"{where}: {str(size)[:80]!r} is no size")
    return Descriptor(
        str(value.get("mediaType") or ""),
        digest,
        size,
        _texts(value, "annotations", where),
        _platform(value.get("platform"), where),
        str(value.get("artifactType") or ""),
    )


def _platform(value: Any, where: str) -> Platform | None:
    if value is None:
        return None
    value = _mapping(value, f"{where}: platform")
    return Platform(str(value.get("os") or ""), str(value.get("architecture") or ""), str(value.get("variant") or ""))


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidPackage(f"{where} is not an object")
    return value


def _texts(value: Mapping[str, Any], key: str, where: str) -> dict[str, str]:
    texts = value.get(key)
    if texts is None:
        return {}
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise InvalidPackage(f"{where}: {key} must be texts by name")
    return texts
