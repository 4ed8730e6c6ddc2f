"""Packages from files, for a control plane on this machine: no registry is asked, and none is needed.

The package goes into the directory where the control plane keeps what it pulled, and is named by its digest: what is
there already is not asked for. The name it gets says no place that exists, only which package this is a version of.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from planform.api.kinds import Object
from planform.cli.functions.logs import data_directory
from planform.cli.packages.access import named
from planform.errors import PlanformError, UsageError
from planform.packages.blobs import BlobStore
from planform.packages.references import Reference
from planform.packages.tarballs import read_image
from planform.packages.xpkg import Package, read_package

LOCAL: Final = "local.planform.dev"
"""The registry that packages from files are named after; nobody serves it."""


class NoLocalControlPlane(PlanformError):
    """The control plane that answers keeps its packages somewhere else than on this machine."""

    reason = "NoLocalControlPlane"

    def __init__(self, data: Path) -> None:
        super().__init__(f"{data} is not the data directory of a control plane")
        self.hint = "a file can be installed where `planform up` runs: say --data DIR, or push it to a registry"


def stored(file: Path, *, tag: str, kubeconfig: Path | None, data: Path | None) -> tuple[Reference, Package]:
    """Put a package's file where the control plane looks first. Raises UsageError, NoLocalControlPlane."""
    home = data or data_directory(kubeconfig)
    if not (home / "logs").is_dir() and not (home / "packages").is_dir():
        raise NoLocalControlPlane(home)
    directory = home / "packages"
    directory.mkdir(mode=0o700, exist_ok=True)
    image = read_image(file, BlobStore(directory / "blobs"))
    package = read_package(image)
    reference = named(f"{LOCAL}/{package.name}:{tag or image.digest.rpartition(':')[2][:12]}")
    return reference.pinned(image.digest), package


def tag_option(command: Any) -> Any:
    command = click.option("--tag", default="", metavar="VERSION", help="Which version a FILE or DIR is: v0.2.0.")(
        command
    )
    return click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        envvar="PLANFORM_DATA",
        help="Where the control plane keeps its data, for a FILE.  [default: where its kubeconfig is]",
    )(command)


def with_labels(obj: Object, labels: tuple[str, ...]) -> Object:
    """The object with KEY=VALUE words as labels, which the revision gets, too."""
    found = {}
    for word in labels:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UsageError(f'--label "{word}" must be KEY=VALUE')
        found[key] = value
    return {**obj, "metadata": {**obj["metadata"], "labels": found}} if found else obj
