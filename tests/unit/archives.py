"""Archives and packages made by hand, so that tests do not rely on what they test."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planform.apimachinery import yaml_loader
from planform.packages.blobs import BlobStore
from planform.packages.oci import OCI_LAYER_GZIP, Descriptor

FUNCTION_META = {
    "apiVersion": "meta.pkg.crossplane.io/v1",
    "kind": "Function",
    "metadata": {"name": "function-greet", "annotations": {"meta.crossplane.io/maintainer": "Ada"}},
    "spec": {"capabilities": ["composition"], "crossplane": {"version": ">=v1.14.0"}},
}


@dataclass(frozen=True)
class Entry:
    """One entry of a tar archive, whatever it is."""

    name: str
    content: bytes = b""
    kind: bytes = tarfile.REGTYPE
    link: str = ""
    mode: int = 0o644
    claims: int | None = None
    """The size that its header claims."""


def tar(*entries: Entry) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for entry in entries:
            header = tarfile.TarInfo(entry.name)
            header.type, header.linkname, header.mode = entry.kind, entry.link, entry.mode
            header.size = len(entry.content)
            archive.addfile(header, io.BytesIO(entry.content))
    return out.getvalue()


def layer(blobs: BlobStore, *entries: Entry, mark: str = "") -> Descriptor:
    body = gzip.compress(tar(*entries), mtime=0)
    return Descriptor(OCI_LAYER_GZIP, blobs.add(body), len(body), {"io.crossplane.xpkg": mark} if mark else {})


def crd(plural: str = "inputs", group: str = "greet.example.org") -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": "Input", "plural": plural},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                }
            ],
        },
    }


def package_yaml(*objects: Mapping[str, Any]) -> bytes:
    return b"---\n" + b"".join(yaml_loader.dump(obj).encode() + b"---\n" for obj in objects)


def hex_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def upstream_xpkg(package: bytes, *, examples: bytes = b"", below: Sequence[bytes] = ()) -> bytes:
    """A package file laid out as `crossplane xpkg build` does it."""
    layers = [gzip.compress(each, mtime=0) for each in below]
    marks = {}
    for name, content, mark in (("package.yaml", package, "base"), (".up/examples.yaml", examples, "upbound")):
        if content:
            layers.append(gzip.compress(tar(Entry(name, content)), mtime=0))
            marks[f"io.crossplane.xpkg:sha256:{hex_of(layers[-1])}"] = mark
    diffs = [f"sha256:{hex_of(gzip.decompress(each))}" for each in layers]
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": "0001-01-01T00:00:00Z",
            "config": {"Labels": marks},
            "rootfs": {"type": "layers", "diff_ids": diffs},
        }
    ).encode()
    names = [f"{hex_of(each)}.tar.gz" for each in layers]
    listing = [{"Config": f"sha256:{hex_of(config)}", "RepoTags": None, "Layers": names}]
    return tar(
        Entry(f"sha256:{hex_of(config)}", config),
        *(Entry(name, body) for name, body in zip(names, layers, strict=True)),
        Entry("manifest.json", json.dumps(listing).encode()),
    )
