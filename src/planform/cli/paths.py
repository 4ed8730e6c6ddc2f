"""Where things are on a user's machine."""

from __future__ import annotations

import os
from pathlib import Path

from planform.errors import UsageError


class NoControlPlane(UsageError):
    """Nothing says where a control plane is, so there most likely is none."""

    def __init__(self) -> None:
        super().__init__(
            "no control plane is known here: there is no kubeconfig",
            hint="start one with `planform up`, or name one with --kubeconfig or KUBECONFIG",
        )


def default_data_directory() -> Path:
    """Where `planform up` keeps its data unless told otherwise."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "planform"


def find_kubeconfig(given: Path | None) -> Path:
    """The kubeconfig to use: the given one, the environment's, the local control plane's, kubectl's."""
    if given is not None:
        return given
    for variable in ("PLANFORM_KUBECONFIG", "KUBECONFIG"):
        first = os.environ.get(variable, "").split(os.pathsep)[0]
        if first:
            return Path(first)
    for path in (default_data_directory() / "kubeconfig", Path.home() / ".kube" / "config"):
        if path.exists():
            return path
    raise NoControlPlane
