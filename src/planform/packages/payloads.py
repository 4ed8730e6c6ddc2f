"""How the program of a package is run, as the package itself says it.

Packages that others built bring an image whose program serves: a container. Ours may say more, in labels of the
image's configuration: that a layer holds what runs as a process here, or that the image is run once for each call with
JSON on its input and output. Labels are ignored by whoever does not know them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from planform.packages.blobs import Image
from planform.packages.errors import InvalidPackage
from planform.packages.extraction import Links, extract_layers
from planform.packages.oci import canonical_json, parse_json, this_platform
from planform.packages.streams import ArchiveLimits
from planform.packages.xpkg import marked_layers

RUNTIME_LABEL: Final = "planform.dev/runtime"
ONLY_LABEL: Final = "planform.dev/only"
"""Set on packages that no other control plane can run."""
PAYLOAD: Final = "planform"
"""The mark of the layer that holds the files of a process."""
PAYLOAD_ROOT: Final = "function"
"""Where in the image these files are."""
PYTHON: Final = "python"
"""As the first word of a command: the Python interpreter of whoever runs it."""

PAYLOAD_LIMITS: Final = ArchiveLimits(unpacked_bytes=2 << 30, entries=100_000)


class RuntimeKind(StrEnum):
    """How a package's program is run."""

    PROCESS = "process"
    CONTAINER = "container"
    ONESHOT = "oneshot"


@dataclass(frozen=True, slots=True)
class Payload:
    """A program in a package. `command`, `paths` and `python` are about processes only.

    `command` is run in the payload's directory, with flags such as --address appended. `paths` are directories below
    it that Python looks for modules in. `python` is the version that compiled parts were made for; empty if it does
    not matter.
    """

    kind: RuntimeKind
    command: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    python: str = ""

    def encode(self) -> str:
        value: dict[str, Any] = {"kind": self.kind.value}
        if self.command:
            value["command"] = list(self.command)
        if self.paths:
            value["paths"] = list(self.paths)
        if self.python:
            value["python"] = self.python
        return canonical_json(value).decode()


@dataclass(frozen=True, slots=True)
class Command:
    """What to start, where, and with which additions to its environment."""

    arguments: tuple[str, ...]
    directory: Path
    environment: Mapping[str, str] = field(default_factory=dict)


def payload_of(image: Image) -> Payload | None:
    """The program in an image; None if it has none, as in packages of type Configuration."""
    label = image.labels.get(RUNTIME_LABEL)
    if label is not None:
        return _parsed(label)
    if image.settings.get("Entrypoint") or image.settings.get("Cmd"):
        return Payload(RuntimeKind.CONTAINER)
    return None


def is_planform_only(image: Image) -> bool:
    return image.labels.get(ONLY_LABEL) == "true"


def unpack_process(image: Image, directory: Path, *, limits: ArchiveLimits = PAYLOAD_LIMITS) -> Command:
    """Put the files of a process package into a new directory, and say what to start there.

    Raises InvalidPackage if it has none or cannot run here; UnsafePackage and PackageTooLarge as extraction does.
    """
    payload = payload_of(image)
    if payload is None or payload.kind is not RuntimeKind.PROCESS:
        what = "no program" if payload is None else f"a program that runs as {payload.kind}"
        raise InvalidPackage(f"package {image.digest} has {what}, not one that runs as a process")
    _check_host(image, payload)
    layers = marked_layers(image, PAYLOAD)
    if not layers:
        raise InvalidPackage(f"package {image.digest} says that it runs as a process, and has no layer for it")
    extract_layers(image.blobs, layers, directory, links=Links.BELOW, limits=limits)
    root = directory.resolve() / PAYLOAD_ROOT
    if not root.is_dir():
        raise InvalidPackage(f"package {image.digest} has no files in {PAYLOAD_ROOT}/")
    return command_in(payload, root)


def command_in(payload: Payload, root: Path) -> Command:
    """The command of a payload that has been unpacked to `root`."""
    program, *rest = payload.command
    first = sys.executable if program == PYTHON else str(root / program)
    environment = {}
    if payload.paths:
        environment["PYTHONPATH"] = ":".join(str(root / path) for path in payload.paths)
    if program == PYTHON:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    return Command((first, *rest), root, environment)


def _check_host(image: Image, payload: Payload) -> None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if payload.python and payload.python != here:
        raise InvalidPackage(
            f"the package was built for Python {payload.python}, and this is Python {here}",
            hint="build it again with this Python, or run it as a container: planform function build --base-image",
        )
    made_for, machine = image.platform, this_platform()
    if made_for.architecture and (made_for.os, made_for.architecture) != (machine.os, machine.architecture):
        raise InvalidPackage(f"the package was built for {made_for}, and this machine is {machine}")


def _parsed(label: str) -> Payload:
    where = f"label {RUNTIME_LABEL}"
    value = parse_json(label.encode(), where)
    if not isinstance(value, dict) or value.get("kind") not in tuple(RuntimeKind):
        raise InvalidPackage(f"{where} says {label[:100]!r}, which is no runtime that is known here")
    payload = Payload(
        RuntimeKind(value["kind"]),
        _texts(value, "command", where),
        _texts(value, "paths", where),
        str(value.get("python") or ""),
    )
    if payload.kind is RuntimeKind.PROCESS and not payload.command:
        raise InvalidPackage(f"{where} names no command")
    program = payload.command[0] if payload.command else ""
    for path in (program, *payload.paths):
        if path.startswith("/") or ".." in path.split("/"):
            raise InvalidPackage(f"{where}: {path} is not in the package")
    return payload


def _texts(value: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    texts = value.get(key) or []
    if not isinstance(texts, list) or not all(isinstance(text, str) and "\0" not in text for text in texts):
        raise InvalidPackage(f"{where}: {key} must be a list of texts")
    return tuple(texts)
