"""What a package is, as people and programs read it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from planform.api.metadata import name_of
from planform.cli.output import table
from planform.packages.blobs import Image
from planform.packages.payloads import is_planform_only, payload_of
from planform.packages.tarballs import MARK, marked
from planform.packages.xpkg import Package


def described(image: Image, package: Package) -> dict[str, Any]:
    """A package as data: a contract, only ever added to."""
    payload = payload_of(image)
    return {
        "name": package.name,
        "kind": package.kind.value,
        "digest": image.digest,
        "size": image.size,
        "platform": str(image.platform) if image.platform.architecture else None,
        "runtime": payload.kind.value if payload is not None else None,
        "planformOnly": is_planform_only(image),
        "crossplane": package.crossplane_constraint or None,
        "capabilities": list(package.capabilities),
        "dependencies": [
            {"package": each.package, "kind": each.kind, "version": each.constraint} for each in package.dependencies
        ],
        "objects": [
            {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": name_of(obj)} for obj in package.objects
        ],
        "layers": [
            {"digest": layer.digest, "size": layer.size, "mark": layer.annotations.get(MARK)}
            for layer in marked(image.manifest.layers, image.labels)
        ],
        "annotations": dict(package.annotations),
    }


def as_text(image: Image, package: Package) -> str:
    """A package as words, its objects and dependencies as tables."""
    return "\n".join(_lines(described(image, package)))


def _lines(shown: dict[str, Any]) -> Iterator[str]:
    yield f"{shown['kind']} {shown['name']}"
    only = ", planform only" if shown["planformOnly"] else ""
    for title, value in (
        ("digest", shown["digest"]),
        ("size", f"{shown['size']} bytes in {len(shown['layers'])} layers"),
        ("platform", shown["platform"]),
        ("runtime", f"{shown['runtime']}{only}" if shown["runtime"] else None),
        ("crossplane", shown["crossplane"]),
        ("capabilities", ", ".join(shown["capabilities"])),
    ):
        if value:
            yield f"  {title + ':':<14}{value}"
    if shown["dependencies"]:
        yield ""
        rows = [(each["package"], each["kind"], each["version"]) for each in shown["dependencies"]]
        yield table(("NEEDS", "KIND", "VERSION"), rows)
    if shown["objects"]:
        yield ""
        yield table(("OBJECT", "KIND"), [(each["name"], each["kind"]) for each in shown["objects"]])
