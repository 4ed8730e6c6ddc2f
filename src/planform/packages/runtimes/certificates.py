"""The certificates of each revision that runs here: one identity per revision, all of the control plane's authority.

A function's directory holds `tls.crt`, `tls.key` and `ca.crt`, as functions read them:

    DIRECTORY/REVISION/current -> 1        replaced in one step, so that key and certificate change together
    DIRECTORY/REVISION/tls.crt -> current/tls.crt
    DIRECTORY/REVISION/issued.json         names and expiry, so that a start parses no certificate
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

import msgspec

from planform.apiserver.auth.pki import ClientCredential, ServerCredential
from planform.apiserver.auth.private_files import make_private_directory, write_private
from planform.clock import Clock
from planform.functions.endpoints import ClientTls

LIFETIME: Final = timedelta(days=365)
RENEW_BEFORE: Final = timedelta(days=30)
CALLER: Final = "planform:functions"
"""The user that the control plane is to functions; it has no rights of its own at the API."""

_FILES: Final = ("tls.crt", "tls.key", "ca.crt")


class Authority(Protocol):
    """Whoever signs: the control plane's own authority."""

    def issue_server(self, names: Sequence[str], expires: timedelta) -> ServerCredential: ...

    def kept_client(self, name: str, user: str, groups: Sequence[str]) -> ClientCredential: ...


class _Issued(msgspec.Struct):
    names: list[str]
    not_after: datetime
    generation: int


class RevisionCertificates:
    """Issues and keeps them below one private directory. Its methods wait for the disk: call them from a thread."""

    def __init__(self, authority: Authority, directory: Path, *, clock: Clock) -> None:
        self._authority = authority
        self._directory = directory
        self._clock = clock

    def directory_of(self, revision: str) -> Path:
        return self._directory / revision

    def ensure(self, revision: str, names: Sequence[str] = ()) -> int:
        """Have a certificate for the revision's name (and these); gives its generation, which grows when it is issued
        anew: because it nears its end, or because the names or the authority are others."""
        wanted = list(dict.fromkeys((revision, *names)))
        directory = self.directory_of(revision)
        issued = _read(directory)
        if (
            issued is not None
            and issued.names == wanted
            and self._clock.now() < issued.not_after - RENEW_BEFORE
            and all((directory / name).is_file() for name in _FILES)
            and (directory / "ca.crt").read_bytes() == self.caller().authority
        ):
            return issued.generation
        credential = self._authority.issue_server(wanted, LIFETIME)
        generation = issued.generation + 1 if issued is not None else 1
        _write(directory, credential, generation)
        return generation

    def renewal_of(self, revision: str) -> datetime | None:
        """When the certificate is to be issued anew; None if there is none."""
        issued = _read(self.directory_of(revision))
        return None if issued is None else issued.not_after - RENEW_BEFORE

    def caller(self) -> ClientTls:
        """What the control plane shows to functions; another one once it nears its end."""
        kept = self._authority.kept_client("functions", CALLER, ())
        return ClientTls(kept.authority.encode(), kept.certificate.encode(), kept.key.encode())

    def remove(self, revision: str) -> None:
        shutil.rmtree(self.directory_of(revision), ignore_errors=True)


def _read(directory: Path) -> _Issued | None:
    try:
        return msgspec.json.decode((directory / "issued.json").read_bytes(), type=_Issued)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _write(directory: Path, credential: ServerCredential, generation: int) -> None:
    """A crash leaves the old files or the new ones, and a note that is true of them or makes them be issued again."""
    fresh = directory / str(generation)
    shutil.rmtree(fresh, ignore_errors=True)
    make_private_directory(fresh)
    for name, content in zip(_FILES, (credential.certificate, credential.key, credential.authority), strict=True):
        write_private(fresh / name, content.encode())
    _point(directory / "current", str(generation))
    for name in _FILES:
        if not (directory / name).is_symlink():
            _point(directory / name, f"current/{name}")
    issued = _Issued(list(credential.names), credential.not_after, generation)
    write_private(directory / "issued.json", msgspec.json.encode(issued))
    for old in directory.iterdir():
        if old.is_dir() and not old.is_symlink() and old.name != str(generation):
            shutil.rmtree(old, ignore_errors=True)


def _point(link: Path, target: str) -> None:
    fresh = link.with_name(f".{link.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(link)
