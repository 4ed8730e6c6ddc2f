"""What the operator of a control plane lets phases reach beyond its API: directories, and addresses for HTTP.

Blueprints are written by one group of people, ActionSets by another, and their options end up in paths and addresses.
So both are closed until the operator opens them. The policy is bound to the functions when they are registered.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from planform.blueprints.contract import PhaseContext
from planform.blueprints.errors import PhaseFailed

DIRECTORIES: Final = "PLANFORM_PHASE_DIRECTORIES"
ADDRESSES: Final = "PLANFORM_PHASE_ADDRESSES"
VARIABLES: Final[Mapping[str, str]] = {
    DIRECTORIES: "Directories of the machine that phases may read and write, a list as in `PATH`.",
    ADDRESSES: "Networks and hosts that HTTPRequest may call although they are not public, a list with commas.",
}
"""What the operator sets in the environment of a control plane, and what it opens."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What is open. Without any, phases use directories of the control plane's own, and public addresses."""

    directories: tuple[Path, ...] = ()
    """Where phases may read and write files on this machine."""
    addresses: tuple[str, ...] = ()
    """Networks (`10.0.0.0/8`) and hosts (`hooks.internal`, `localhost:8080`) that HTTP may reach although private."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Policy:
        """Directories are separated as in PATH, addresses by commas."""
        directories = (Path(each) for each in environ.get(DIRECTORIES, "").split(os.pathsep) if each)
        addresses = (each.strip() for each in environ.get(ADDRESSES, "").split(","))
        return cls(tuple(directories), tuple(filter(None, addresses)))

    def directory(self, context: PhaseContext, path: str, *, below: str) -> Path:
        """The directory, if phases may use it; a relative path is one of the control plane's own, in `below`.

        Raises PhaseFailed. Links are followed before anything is compared.
        """
        own = context.here.data
        if not Path(path).is_absolute():
            if own is None:
                raise PhaseFailed(f'"{path}" must be an absolute path: this control plane keeps no files')
            root = (own / below).resolve()
            found = (root / path).resolve()
            if not found.is_relative_to(root):
                raise PhaseFailed(f'"{path}" leads out of {root}')
            return found
        found = Path(path).resolve()
        if any(found.is_relative_to(each.resolve()) for each in self.directories):
            return found
        raise PhaseFailed(
            f'phases may not use the directory "{path}"',
            hint=f"the operator opens directories with {DIRECTORIES}, a list as in PATH",
        )
