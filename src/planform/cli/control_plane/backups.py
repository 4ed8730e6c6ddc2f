"""`planform backup` and `planform restore`: a whole control plane as one file.

A backup is a tar archive of the database, copied while the control plane runs, and of the `pki` directory: without the
certificate authority, the token key and the encryption keys, a restored control plane would know nobody.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import Final

import click

from planform.cli.output import say
from planform.cli.paths import default_data_directory
from planform.errors import UsageError

_DATABASE: Final = "planform.db"
_MEMBERS: Final = frozenset({_DATABASE, "pki"})

_data_option = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="The data directory.  [default: ~/.local/share/planform]",
)


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_data_option
def backup(file: Path, data: Path | None) -> None:
    """Copy a running or stopped control plane's data into one file.

    The file holds private keys and secrets: keep it as you keep those. It is made readable by you alone.
    """
    from planform.store.backup import copy_database
    from planform.store.database import connect
    from planform.store.directory import DATABASE

    directory = data or default_data_directory()
    source = directory / "store" / DATABASE
    if not source.exists():
        raise UsageError(f"{directory} holds no control plane", hint="name its directory with --data")
    if file.exists():
        raise UsageError(f"{file} exists already", hint="choose a new name for each backup")
    with tempfile.TemporaryDirectory(dir=file.absolute().parent, prefix=".backup-") as scratch:
        copy = Path(scratch) / _DATABASE
        copy_database(source, copy, connect)
        partial = Path(scratch) / file.name
        partial.touch(mode=0o600)
        with tarfile.open(partial, mode="w") as archive:
            archive.add(copy, arcname=_DATABASE)
            archive.add(directory / "pki", arcname="pki")
        partial.rename(file)
    say(f"backed up {directory} to {file} ({file.stat().st_size / 1e6:.1f} MB)")


def _extract(archive: tarfile.TarFile, directory: Path) -> None:
    """Files and directories as a backup has them; raises TarError for anything else."""
    for member in archive:
        path = PurePosixPath(member.name)
        if ".." in path.parts or not (member.isreg() or member.isdir()):
            raise tarfile.ExtractError(f'"{member.name}" does not belong into one')
        place = directory / path
        if member.isdir():
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        content = archive.extractfile(member)
        assert content is not None, "a regular file has content"
        with content, place.open("wb") as file:
            shutil.copyfileobj(content, file)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_data_option
def restore(file: Path, data: Path | None) -> None:
    """Make a data directory from a backup. The directory must not hold a control plane yet."""
    from planform.apiserver.auth.private_files import make_private_directory
    from planform.store import restore_backup

    directory = data or default_data_directory()
    if (directory / "store").exists() or (directory / "pki").exists():
        raise UsageError(
            f"{directory} holds a control plane already", hint="restore into a new directory, or move the old one away"
        )
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".restore-") as scratch:
        try:
            with tarfile.open(file, mode="r:") as archive:
                names = {member.name.split("/")[0] for member in archive.getmembers()}
                if _DATABASE not in names or names - _MEMBERS:
                    raise UsageError(f"{file} is not a backup of a control plane")
                _extract(archive, Path(scratch))
        except tarfile.TarError as error:
            raise UsageError(f"{file} is not a backup of a control plane: {error}") from error
        make_private_directory(directory)
        restore_backup(Path(scratch) / _DATABASE, directory / "store")
        pki = directory / "pki"
        (Path(scratch) / "pki").rename(pki)
        pki.chmod(0o700)
        for path in pki.rglob("*"):
            path.chmod(0o700 if path.is_dir() else 0o600)
    say(f"restored {file} into {directory}; start it with: planform up --data {directory}")
