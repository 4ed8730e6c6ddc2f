"""Images in files: what `docker save` and `crossplane xpkg build` write, and OCI layouts, packed or not.

A package file (`.xpkg`) is the first of these: `manifest.json`, the configuration as `sha256:HEX` and the layers as
`HEX.tar.gz`. It has no place for annotations, so marks of layers travel as labels of the configuration; reading puts
them back onto the layers. The digest of an image is therefore the same in a file and in a registry.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from planform.packages.blobs import BlobStore, Image, chunks_of, load_image, store_image
from planform.packages.errors import InvalidPackage, PackageTooLarge
from planform.packages.oci import (
    CONFIG_BYTES,
    INDEXES,
    LAYERS,
    MANIFEST_BYTES,
    OCI_LAYER,
    OCI_LAYER_GZIP,
    Descriptor,
    Index,
    Platform,
    canonical_json,
    choose,
    parse_json,
    parse_manifest,
)
from planform.packages.references import DIGEST
from planform.packages.streams import ArchiveLimits, open_archive

MARK: Final = "io.crossplane.xpkg"
"""The annotation of a layer that says what it is for; as a label its key goes on with a colon and the digest."""

FILE_LIMITS: Final = ArchiveLimits(unpacked_bytes=4 << 30, entries=4096)
_GZIP: Final = b"\x1f\x8b"


def read_image(path: Path, blobs: BlobStore, *, platform: Platform | None = None) -> Image:
    """Copy the image in a file or layout directory into the store; of several, the one for the platform."""
    if path.is_dir():
        return _from_layout(_Directory(path), blobs, str(path), platform)
    if not path.is_file():
        raise InvalidPackage(f"there is no file {path}")
    files = _Files(blobs, str(path))
    with open_archive(path, FILE_LIMITS, where=str(path)) as entries:
        for entry, content in entries:
            files.add(entry, content)
    if files.has("manifest.json"):
        return _from_docker(files, blobs, str(path))
    if files.has("index.json"):
        return _from_layout(files, blobs, str(path), platform)
    raise InvalidPackage(f"{path} holds no image: it has neither manifest.json nor index.json")


def write_xpkg(image: Image, path: Path) -> None:
    """Write an image as a package file; the same image gives the same bytes. The file appears when it is whole."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open("wb") as file, tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            config = image.manifest.config
            _add(archive, config.digest, image.blobs, config)
            names, written = [], set[str]()
            for layer in image.manifest.layers:
                ending = ".tar" if layer.media_type == OCI_LAYER else ".tar.gz"
                names.append(f"{layer.digest.removeprefix('sha256:')}{ending}")
                if names[-1] not in written:
                    _add(archive, names[-1], image.blobs, layer)
                    written.add(names[-1])
            listing = canonical_json([{"Config": config.digest, "RepoTags": None, "Layers": names}])
            archive.addfile(_header("manifest.json", len(listing)), io.BytesIO(listing))
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def marked(layers: Sequence[Descriptor], labels: Mapping[str, Any]) -> tuple[Descriptor, ...]:
    """The layers with the annotations that labels of the configuration keep for them."""
    return tuple(
        Descriptor(layer.media_type, layer.digest, layer.size, {**layer.annotations, MARK: mark})
        if isinstance(mark := labels.get(f"{MARK}:{layer.digest}"), str)
        else layer
        for layer in layers
    )


class _Files:
    """The files of an archive: small JSON in memory, everything else in the store, by name."""

    def __init__(self, blobs: BlobStore, where: str) -> None:
        self._blobs = blobs
        self._where = where
        self._found: dict[str, tuple[str, int, bool]] = {}

    def add(self, entry: tarfile.TarInfo, content: BinaryIO | None) -> None:
        name = entry.name.removeprefix("./")
        if entry.issym() and name.endswith("layer.tar"):  # older `docker save` shares layers by links
            parent = name.rpartition("/")[0].rpartition("/")[0]
            target = entry.linkname.removeprefix("../")
            found = self._found.get(f"{parent}/{target}" if parent else target)
            if found is not None:
                self._found[name] = found
        if content is None:
            return
        start = content.read(2)
        parts = (part for source in ([start], chunks_of(content)) for part in source)
        digest, size = self._blobs.add_stream(parts, where=f"{self._where}: {name}")
        if name.startswith("blobs/sha256/") and name.rpartition("/")[2] != digest.removeprefix("sha256:"):
            raise InvalidPackage(f"{self._where}: {name} holds other content than its name says: {digest}")
        self._found[name] = (digest, size, start == _GZIP)

    def has(self, name: str) -> bool:
        return name in self._found

    def read(self, name: str, limit: int) -> bytes:
        return self._blobs.read(self.entry(name)[0], limit)

    def entry(self, name: str) -> tuple[str, int, bool]:
        """Digest and size of a file, and whether it is compressed."""
        if name not in self._found:
            raise InvalidPackage(f"{self._where} names {name[:100]}, and has no such file")
        return self._found[name]

    def need(self, descriptor: Descriptor) -> None:
        self.entry(f"blobs/sha256/{descriptor.digest.removeprefix('sha256:')}")


class _Directory:
    """An unpacked layout; only what an image needs is copied."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, name: str, limit: int) -> bytes:
        try:
            with (self._path / name).open("rb") as file:
                body = file.read(limit + 1)
        except FileNotFoundError as error:
            raise InvalidPackage(f"{self._path} has no {name}") from error
        if len(body) > limit:
            raise PackageTooLarge(f"{self._path / name} has more than {limit} bytes")
        return body

    def copy(self, descriptor: Descriptor, blobs: BlobStore) -> None:
        name = f"blobs/sha256/{descriptor.digest.removeprefix('sha256:')}"
        try:
            with (self._path / name).open("rb") as file:
                digest, _ = blobs.add_stream(chunks_of(file), limit=descriptor.size, where=str(self._path / name))
        except FileNotFoundError as error:
            raise InvalidPackage(f"{self._path} has no {name}") from error
        if digest != descriptor.digest:
            raise InvalidPackage(f"{self._path / name} holds other content than its name says: {digest}")


def _from_docker(files: _Files, blobs: BlobStore, where: str) -> Image:
    listing = parse_json(files.read("manifest.json", MANIFEST_BYTES), f"{where}: manifest.json")
    if not isinstance(listing, list) or len(listing) != 1 or not isinstance(listing[0], dict):
        count = len(listing) if isinstance(listing, list) else 0
        raise InvalidPackage(f"{where} holds {count} images; a package is one")
    config_name, layer_names = listing[0].get("Config"), listing[0].get("Layers")
    if not isinstance(config_name, str) or not isinstance(layer_names, list):
        raise InvalidPackage(f"{where}: manifest.json names no Config or no Layers")
    config_digest, _, _ = files.entry(config_name)
    if DIGEST.match(config_name) and config_name != config_digest:
        raise InvalidPackage(f"{where}: {config_name} holds other content than its name says: {config_digest}")
    body = blobs.read(config_digest, CONFIG_BYTES)
    config = parse_json(body, f"{where}: {config_name}")
    if not isinstance(config, dict):
        raise InvalidPackage(f"{where}: {config_name} is not an object")
    layers = []
    for name in layer_names:
        digest, size, compressed = files.entry(str(name))
        layers.append(Descriptor(OCI_LAYER_GZIP if compressed else OCI_LAYER, digest, size))
    settings = config.get("config")
    labels = settings.get("Labels") if isinstance(settings, dict) else None
    return store_image(blobs, body, marked(layers, labels if isinstance(labels, dict) else {}))


def _from_layout(files: _Files | _Directory, blobs: BlobStore, where: str, platform: Platform | None) -> Image:
    index = parse_manifest(files.read("index.json", MANIFEST_BYTES), where=f"{where}: index.json")
    if not isinstance(index, Index):
        raise InvalidPackage(f"{where}: index.json is no index")
    chosen = _only(index, platform, where)
    _bring(files, chosen, blobs)
    while chosen.media_type in INDEXES:
        inner = parse_manifest(blobs.read(chosen.digest, MANIFEST_BYTES), chosen.media_type, where=where)
        assert isinstance(inner, Index)
        chosen = choose(inner, platform)
        _bring(files, chosen, blobs)
        if chosen.media_type in INDEXES:
            raise InvalidPackage(f"{where}: an index within an index within an index")
    manifest = parse_manifest(blobs.read(chosen.digest, MANIFEST_BYTES), chosen.media_type, where=where)
    if isinstance(manifest, Index):
        raise InvalidPackage(f"{where} names an index as an image")
    for descriptor in (manifest.config, *manifest.layers):
        if descriptor is not manifest.config and descriptor.media_type not in LAYERS:
            raise InvalidPackage(f"{where}: layer {descriptor.digest} is of type {descriptor.media_type}")
        _bring(files, descriptor, blobs)
    return load_image(blobs, chosen.digest)


def _only(index: Index, platform: Platform | None, where: str) -> Descriptor:
    if len(index.manifests) == 1:
        return index.manifests[0]
    if not index.manifests:
        raise InvalidPackage(f"{where} holds no image")
    return choose(index, platform)


def _bring(files: _Files | _Directory, descriptor: Descriptor, blobs: BlobStore) -> None:
    if isinstance(files, _Files):
        files.need(descriptor)
    else:
        files.copy(descriptor, blobs)


def _add(archive: tarfile.TarFile, name: str, blobs: BlobStore, descriptor: Descriptor) -> None:
    with blobs.open(descriptor.digest) as file:
        archive.addfile(_header(name, descriptor.size), file)


def _header(name: str, size: int) -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.size, header.mode = size, 0o644
    return header
