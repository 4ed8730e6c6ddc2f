"""A support bundle: what a control plane looks like, without what it keeps secret.

Secrets are not in it: only their names and keys. Every value of one that is long enough to be told from a common word
is replaced wherever else it stands, as it is or in base64.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import os
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from planform.api.kinds import Object
from planform.api.metadata import name_of, namespace_of
from planform.apimachinery import yaml_loader
from planform.errors import UsageError
from planform.journal.masking import RunMask

if TYPE_CHECKING:
    from planform.cli.diagnosis.doctor import Read
    from planform.cli.diagnosis.findings import Finding

_HIDDEN: Final = ("managedFields", "kubectl.kubernetes.io/last-applied-configuration")


def write_bundle(
    path: Path, seen: Read, findings: Sequence[Finding], *, about: Mapping[str, Any], now: datetime
) -> None:
    """Write the bundle, readable by its owner alone. It must not exist yet."""
    if path.exists():
        raise UsageError(f"{path} exists already", hint="choose a new name for each bundle")
    files = {
        "about.yaml": [dict(about)],
        "findings.yaml": [finding.value() for finding in findings],
        "secrets.yaml": [_keys_only(secret) for secret in seen.secrets],
        "events.yaml": [_bare(event) for event in seen.events],
    }
    for obj in seen.objects:
        files.setdefault(f"objects/{obj['kind']}.yaml", []).append(_bare(obj))
    written = {name: [_canonical(document) for document in documents] for name, documents in files.items()}
    # Objects that wrap a Secret's manifest give the mask its values, whether or not such a Secret is here.
    mask = RunMask(set(_values(seen.secrets)), [raw for documents in written.values() for raw in documents])
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with (
        os.fdopen(descriptor, "wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=int(now.timestamp())) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for name, documents in sorted(written.items()):
            content = yaml_loader.dump_all(orjson.loads(mask.part(raw)) for raw in documents).encode()
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(content), 0o600, int(now.timestamp())
            archive.addfile(member, io.BytesIO(content))


def _canonical(document: Any) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


def _values(secrets: Iterable[Object]) -> Iterator[bytes]:
    for secret in secrets:
        for text in (secret.get("data") or {}).values():
            try:
                yield base64.b64decode(text)
            except (binascii.Error, ValueError, TypeError):
                continue


def _keys_only(secret: Object) -> Object:
    return {
        "namespace": namespace_of(secret),
        "name": name_of(secret),
        "type": secret.get("type"),
        "keys": sorted(secret.get("data") or {}),
    }


def _bare(obj: Object) -> Object:
    """An object without what nobody reads, and without the copy of itself that kubectl puts in."""
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _HIDDEN}
    if annotations := metadata.get("annotations"):
        metadata["annotations"] = {name: value for name, value in annotations.items() if name not in _HIDDEN}
    return {**obj, "metadata": metadata}
