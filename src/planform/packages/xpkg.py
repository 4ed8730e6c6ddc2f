"""Packages: what an image says about itself, and the objects it brings.

One layer, marked `base`, holds `package.yaml`: a YAML stream of one object about the package and the objects it
installs. Function and Provider packages usually bring the program to run as well: either the image's other layers, or
a layer of ours that holds what runs as a process on this machine (see `payloads`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, BinaryIO, Final

from planform.api.annotations import annotations_of
from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.metadata import labels_of, name_of
from planform.apimachinery import yaml_loader
from planform.apimachinery.names import subdomain_problems
from planform.packages.blobs import BlobStore, Image, chunks_of
from planform.packages.errors import InvalidPackage, PackageTooLarge
from planform.packages.oci import LAYERS, Descriptor
from planform.packages.references import DIGEST
from planform.packages.streams import ArchiveLimits, open_archive
from planform.packages.tarballs import MARK, marked

META_GROUP: Final = "meta.pkg.crossplane.io"
PACKAGE_FILE: Final = "package.yaml"
EXAMPLES_FILE: Final = ".up/examples.yaml"
BASE: Final = "base"
EXAMPLES: Final = "upbound"

PACKAGE_BYTES: Final = 64 << 20
"""The largest `package.yaml`; the largest provider families have a few MiB."""
_SEPARATOR: Final = re.compile(rb"^---(?=\s|\Z)", re.MULTILINE)
MAX_OBJECTS: Final = 10_000
MAX_VALUES: Final = 2_000_000
"""Values that a `package.yaml` may hold. A short text can be very many of them, each of which takes its memory."""


class PackageKind(StrEnum):
    """What a package installs."""

    CONFIGURATION = "Configuration"
    FUNCTION = "Function"
    PROVIDER = "Provider"


_META_VERSIONS: Final = {
    PackageKind.FUNCTION: ("v1", "v1beta1"),
    PackageKind.PROVIDER: ("v1", "v1beta1", "v1alpha1"),
    PackageKind.CONFIGURATION: ("v1", "v1beta1", "v1alpha1"),
}

_EXTENSIONS: Final = "apiextensions.crossplane.io"
_CRDS: Final = frozenset(
    GroupVersionKind("apiextensions.k8s.io", v, "CustomResourceDefinition") for v in ("v1", "v1beta1")
)
_XRDS: Final = frozenset(GroupVersionKind(_EXTENSIONS, v, "CompositeResourceDefinition") for v in ("v1", "v2"))
_OPERATIONS: Final = frozenset(
    GroupVersionKind("ops.crossplane.io", "v1alpha1", kind) for kind in ("Operation", "CronOperation", "WatchOperation")
)
_WEBHOOKS: Final = frozenset(
    GroupVersionKind("admissionregistration.k8s.io", "v1", kind)
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
)
_COMPOSITION: Final = GroupVersionKind(_EXTENSIONS, "v1", "Composition")
_MANAGED: Final = GroupVersionKind(_EXTENSIONS, "v1alpha1", "ManagedResourceDefinition")
_ACTIVATION: Final = GroupVersionKind(_EXTENSIONS, "v1alpha1", "ManagedResourceActivationPolicy")

INSTALLED_KINDS: Final[Mapping[PackageKind, frozenset[GroupVersionKind]]] = {
    PackageKind.CONFIGURATION: frozenset({*_XRDS, _COMPOSITION, _ACTIVATION, *_OPERATIONS}),
    PackageKind.PROVIDER: frozenset({*_CRDS, _MANAGED, *_WEBHOOKS}),
    PackageKind.FUNCTION: _CRDS,
}
"""What a package of each kind may bring."""

KNOWN_KINDS: Final = frozenset().union(*INSTALLED_KINDS.values())
"""What any package may bring; anything else is not a package."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """Another package that this one needs: which, and in which versions (a range, or one digest)."""

    package: str
    kind: str
    api_version: str
    constraint: str

    @property
    def is_digest(self) -> bool:
        return bool(DIGEST.match(self.constraint))


@dataclass(frozen=True, slots=True)
class Package:
    """The content of `package.yaml`."""

    kind: PackageKind
    meta: Object
    objects: tuple[Object, ...]

    @property
    def name(self) -> str:
        return name_of(self.meta)

    @property
    def labels(self) -> Mapping[str, str]:
        return labels_of(self.meta)

    @property
    def annotations(self) -> Mapping[str, str]:
        return annotations_of(self.meta)

    @property
    def spec(self) -> Mapping[str, Any]:
        return self.meta.get("spec") or {}

    @property
    def capabilities(self) -> tuple[str, ...]:
        return tuple(self.spec.get("capabilities") or ())

    @property
    def crossplane_constraint(self) -> str:
        """The range of versions of the control plane that the package was made for; empty for any."""
        return str((self.spec.get("crossplane") or {}).get("version") or "")

    @property
    def dependencies(self) -> tuple[Dependency, ...]:
        return tuple(_dependency(each, number) for number, each in enumerate(self.spec.get("dependsOn") or ()))

    def misplaced(self) -> tuple[str, ...]:
        """Objects of kinds that a package of this kind does not install, as words; installing leaves them out."""
        allowed = INSTALLED_KINDS[self.kind]
        return tuple(
            f"{kind.kind} ({kind.api_version}) {name_of(obj)}"
            for obj in self.objects
            if (kind := gvk_of(obj)) not in allowed
        )


def parse_package(text: bytes, *, where: str = PACKAGE_FILE) -> Package:
    """The package that a YAML stream is. Raises InvalidPackage, naming the document, or PackageTooLarge."""
    if len(text) > PACKAGE_BYTES:
        raise PackageTooLarge(f"{where} has more than {PACKAGE_BYTES} bytes")
    if sum(text.count(mark) for mark in (b"\n", b",", b"[", b"{")) > MAX_VALUES:
        raise PackageTooLarge(f"{where} has more than {MAX_VALUES} values")
    return package_of(_documents(text, where))


def _documents(text: bytes, where: str) -> Iterator[tuple[str, Any]]:
    """The documents of a stream, parsed one by one: providers bring more than is parsed at once elsewhere."""
    number = 0
    for part in _SEPARATOR.split(text):
        try:
            found = [document for document in yaml_loader.load_all(part) if document is not None]
        except ValueError as error:
            raise InvalidPackage(f"{where}, document {number + 1}: {error}") from error
        for document in found:
            number += 1
            yield f"{where}, document {number}", document


def package_of(documents: Iterable[tuple[str, Any]]) -> Package:
    """The package that documents make together, each with where it is from."""
    metas: list[tuple[str, Object]] = []
    objects: list[Object] = []
    for where, document in documents:
        if not isinstance(document, dict):
            raise InvalidPackage(f"{where} is not an object")
        kind = gvk_of(document)
        if kind.group == META_GROUP:
            metas.append((where, document))
        elif kind in KNOWN_KINDS:
            _check_metadata(document, where)
            objects.append(document)
        else:
            named = f"{kind.kind} of {kind.api_version}" if kind.kind and kind.version else "an object without kind"
            meant = kind.group.startswith("meta.") and kind.kind in tuple(PackageKind)
            hint = f"what a package is stands in {META_GROUP}/v1" if meant else None
            raise InvalidPackage(f"{where} is {named}, which no package can bring", hint=hint)
        if len(objects) > MAX_OBJECTS:
            raise PackageTooLarge(f"the package has more than {MAX_OBJECTS} objects")
    if not metas:
        raise InvalidPackage(
            f"no object says what the package is: there must be one of {META_GROUP}",
            hint=f"crossplane.yaml: apiVersion {META_GROUP}/v1, kind Function, Provider or Configuration",
        )
    if len(metas) > 1:
        listed = " and ".join(f"{meta.get('kind')} in {where}" for where, meta in metas[:3])
        raise InvalidPackage(f"{len(metas)} objects say what the package is, and there must be one: {listed}")
    [(where, meta)] = metas
    package = Package(_kind_of(meta, where), meta, tuple(objects))
    _check_meta(package, where)
    return package


def encode_package(package: Package) -> bytes:
    """The YAML stream of a package: each document followed by a line of three dashes."""
    parts = [f"{yaml_loader.dump(obj)}---\n" for obj in (package.meta, *package.objects)]
    return ("---\n" + "".join(parts)).encode()


def read_package(image: Image) -> Package:
    """The package in an image. Raises InvalidPackage, PackageTooLarge."""
    base = marked_layers(image, BASE)
    if len(base) > 1:
        raise InvalidPackage(f"{len(base)} layers are marked as the one with {PACKAGE_FILE}")
    if base:
        return parse_package(_only_file(image.blobs, base[0]))
    for layer in reversed(image.manifest.layers):  # an image that nobody marked: what lies on top counts
        if layer.media_type in LAYERS and (text := _file(image.blobs, layer, PACKAGE_FILE, anywhere=True)) is not None:
            return parse_package(text)
    raise InvalidPackage(f"no layer of {image.digest} holds {PACKAGE_FILE}: this is no package")


def read_examples(image: Image) -> bytes:
    """The examples that come with a package, as a YAML stream; empty if there are none."""
    for layer in marked_layers(image, EXAMPLES):
        return _file(image.blobs, layer, EXAMPLES_FILE) or b""
    return b""


def marked_layers(image: Image, mark: str) -> Sequence[Descriptor]:
    """The layers with a mark, whether it is on the layer or, as in files, in the configuration."""
    layers = marked(image.manifest.layers, image.labels)
    return [layer for layer in layers if layer.annotations.get(MARK) == mark]


def _only_file(blobs: BlobStore, layer: Descriptor) -> bytes:
    text = _file(blobs, layer, PACKAGE_FILE, anywhere=True)
    if text is None:
        raise InvalidPackage(f"layer {layer.digest} is marked as the one with {PACKAGE_FILE}, and holds none")
    return text


def _file(blobs: BlobStore, layer: Descriptor, name: str, *, anywhere: bool = False) -> bytes | None:
    """A file of a layer, by its path; `anywhere` takes one in a directory as well, if there is only one."""
    if layer.media_type not in LAYERS:
        raise InvalidPackage(f"layer {layer.digest} is of type {layer.media_type or 'nothing'}, not a tar archive")
    limits = ArchiveLimits(unpacked_bytes=4 << 30)
    other_files: dict[str, bytes] = {}
    with blobs.open(layer.digest) as file, open_archive(file, limits, where=f"layer {layer.digest}") as entries:
        for entry, content in entries:
            path = entry.name.removeprefix("./").lstrip("/")
            if content is None:
                continue
            if path == name:
                return _limited(content, path)
            if anywhere and path.rpartition("/")[2] == name:
                other_files[path] = _limited(content, path)
                if len(other_files) > 1:
                    raise InvalidPackage(f"layer {layer.digest} holds {' and '.join(other_files)}: which one counts?")
    return next(iter(other_files.values()), None)


def _limited(content: BinaryIO, path: str) -> bytes:
    body = bytearray()
    for chunk in chunks_of(content):
        body += chunk
        if len(body) > PACKAGE_BYTES:
            raise PackageTooLarge(f"{path} has more than {PACKAGE_BYTES} bytes")
    return bytes(body)


def _kind_of(meta: Object, where: str) -> PackageKind:
    kind = gvk_of(meta)
    try:
        found = PackageKind(kind.kind)
    except ValueError:
        known = ", ".join(PackageKind)
        raise InvalidPackage(f"{where}: {META_GROUP} has no kind {kind.kind!r} (it has {known})") from None
    if kind.version not in _META_VERSIONS[found]:
        known = ", ".join(_META_VERSIONS[found])
        raise InvalidPackage(f"{where}: {found} has no version {kind.version!r} (it has {known})")
    return found


def _check_metadata(obj: Object, where: str) -> None:
    metadata = obj.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name:
        raise InvalidPackage(f"{where}: {obj['kind']} has no metadata.name")


def _check_meta(package: Package, where: str) -> None:
    meta = package.meta
    _check_metadata(meta, where)
    for problem in subdomain_problems(package.name):
        raise InvalidPackage(f"{where}: metadata.name {package.name!r}: {problem}")
    for field in ("labels", "annotations"):
        texts = meta["metadata"].get(field)
        if texts is not None and not (
            isinstance(texts, dict) and all(isinstance(text, str) for text in texts.values())
        ):
            raise InvalidPackage(f"{where}: metadata.{field} must be texts by name")
    spec = meta.get("spec")
    if spec is not None and not isinstance(spec, dict):
        raise InvalidPackage(f"{where}: spec is not an object")
    crossplane = package.spec.get("crossplane")
    if crossplane is not None and not isinstance(crossplane, dict):
        raise InvalidPackage(f"{where}: spec.crossplane is not an object")
    if (constraint := package.crossplane_constraint) and not is_constraint(constraint):
        raise InvalidPackage(f"{where}: spec.crossplane.version {constraint!r} is no range of versions")
    for field, kind in (("capabilities", str), ("dependsOn", dict)):
        listed = package.spec.get(field)
        if listed is not None and not (isinstance(listed, list) and all(isinstance(one, kind) for one in listed)):
            raise InvalidPackage(f"{where}: spec.{field} is not what it should be")
    _ = package.dependencies


def _dependency(value: Mapping[str, Any], number: int) -> Dependency:
    where = f"spec.dependsOn[{number}]"
    constraint = str(value.get("version") or "")
    if not DIGEST.match(constraint) and not is_constraint(constraint):
        raise InvalidPackage(f"{where}: version {constraint!r} is neither a range of versions nor a digest")
    if value.get("package"):
        if not value.get("kind") or not value.get("apiVersion"):
            raise InvalidPackage(f"{where}: a package by name needs its apiVersion and kind")
        return Dependency(str(value["package"]), str(value["kind"]), str(value["apiVersion"]), constraint)
    for kind in PackageKind:
        if value.get(kind.lower()):
            return Dependency(str(value[kind.lower()]), kind.value, "pkg.crossplane.io/v1", constraint)
    raise InvalidPackage(f"{where} names no package", hint="say provider, function or configuration")


_VERSION: Final = r"v?(?:\d+|[xX*])(?:\.(?:\d+|[xX*])){0,2}(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?"
_TERM: Final = rf"(?:=|==|!=|>|>=|=>|<|<=|=<|~|~>|\^)?\s*{_VERSION}"
_ALL_OF: Final = rf"\s*(?:{_VERSION}\s+-\s+{_VERSION}|{_TERM})(?:\s*(?:,|\s)\s*{_TERM})*\s*"
_RANGE: Final = re.compile(rf"{_ALL_OF}(?:\|\|{_ALL_OF})*\Z")


def is_constraint(text: str) -> bool:
    """Whether this is a range of versions: `>=v1.14.0, <2`, `^1.2`, `1.x || 2.x`, `1.2 - 1.4`."""
    return len(text) <= 256 and bool(_RANGE.match(text))
