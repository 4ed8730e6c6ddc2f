"""PostgresBackup and PostgresRestore: a database to the location of the action's profile and back.

`pg_dump` and `pg_restore` of this machine run in the sandbox. What they need to connect goes through the environment,
so that no password is on a command line and no argument can be taken for an option. A restore is one transaction: it
happens whole, or the database is as it was.
"""

from __future__ import annotations

import asyncio
import io
import shutil
import tarfile
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final

from planform.blueprints.arguments import Arguments
from planform.blueprints.contract import PhaseContext, PhaseEnvironment, phase_function
from planform.blueprints.errors import PhaseFailed
from planform.blueprints.functions.archives import fetch, store_files
from planform.blueprints.functions.backups import backed_up, backup_id, opened
from planform.blueprints.functions.durations import seconds_of
from planform.blueprints.functions.policy import Policy
from planform.blueprints.functions.processes import limits_for, run_process
from planform.clock import timestamp

_CONNECTION: Final = ("host", "port", "username", "password", "sslMode")
_DUMP: Final = "database.dump"
_SECONDS: Final = 6 * 3600.0
_SOURCE: Final = "postgresql"


def _missing(program: str) -> Any:
    def unavailable(here: PhaseEnvironment) -> str:
        return "" if shutil.which(program) else f"{program} is not installed on this machine"

    return unavailable


@phase_function(
    "PostgresBackup",
    required=["database", "backupArtifactPrefix"],
    arguments=[*_CONNECTION, "encryptionKey", "timeout"],
    resumable=True,
    unavailable=_missing("pg_dump"),
)
async def postgres_backup(
    context: PhaseContext,
    args: Arguments,
    *,
    policy: Policy = Policy(),  # noqa: B008  # frozen
) -> dict[str, Any]:
    """Keeps a PostgreSQL database, as one moment saw it."""
    async with _workplace(context) as directory:
        dump = directory / _DUMP
        command = ["pg_dump", "--format=custom", "--no-password", f"--file={dump}"]
        await _run(context, args, command, directory, {"PGDATABASE": args.text("database")})
        total = dump.stat().st_size
        with tempfile.TemporaryFile(prefix="planform-backup-") as stream:
            await asyncio.to_thread(_wrapped, dump, stream)
            async with opened(context, args, policy, create=True) as repository:
                manifest = await store_files(
                    repository,
                    stream,
                    backup_id(context),
                    created=timestamp(context.clock.now()),
                    source=_SOURCE,
                    on_progress=lambda done, _: context.progress(100 * done / max(total, 1), uploaded=done),
                )
    digest = ",".join(manifest.entries[0].chunks)
    return {**backed_up(context, manifest), "database": args.text("database"), "checksum": digest[:64]}


@phase_function(
    "PostgresRestore",
    required=["database", "backupArtifactPrefix", "backupID"],
    arguments=[*_CONNECTION, "encryptionKey", "timeout"],
    resumable=True,
    unavailable=_missing("pg_restore"),
    reads={"PostgresBackup": "<1.0.0"},
)
async def postgres_restore(
    context: PhaseContext,
    args: Arguments,
    *,
    policy: Policy = Policy(),  # noqa: B008  # frozen
) -> dict[str, Any]:
    """Makes a PostgreSQL database what it was; objects that the backup has replace those that are there."""
    async with _workplace(context) as directory:
        with tempfile.TemporaryFile(prefix="planform-restore-") as stream:
            async with opened(context, args, policy) as repository:
                manifest = await repository.manifest(args.text("backupID"))
                if manifest.source != _SOURCE:
                    raise PhaseFailed(f'backup "{manifest.id}" is no PostgreSQL database')
                await fetch(
                    repository,
                    manifest,
                    stream,
                    on_progress=lambda done, total: context.progress(50 * done / max(total, 1), downloaded=done),
                )
            await asyncio.to_thread(_unwrapped, stream, directory / _DUMP)
        database = args.text("database").replace("\\", "\\\\").replace("'", "\\'")
        command = [
            "pg_restore",
            "--clean",
            "--if-exists",
            "--single-transaction",
            "--exit-on-error",
            "--no-owner",
            "--no-password",
            f"--dbname=dbname='{database}'",
            str(directory / _DUMP),
        ]
        await _run(context, args, command, directory, {})
    return {"size": str(manifest.size), "version": context.version}


@asynccontextmanager
async def _workplace(context: PhaseContext) -> AsyncIterator[Path]:
    """A directory for the dump. Its name follows from the run, so that a run after a crash removes what was left."""
    directory = Path(tempfile.gettempdir()) / f"planform-postgres-{backup_id(context)}"
    await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
    try:
        directory.mkdir(mode=0o700)
    except OSError as error:
        raise PhaseFailed(f"cannot make {directory}: {error.strerror}") from error
    try:
        yield directory
    finally:
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)


async def _run(
    context: PhaseContext, args: Arguments, command: list[str], directory: Path, environment: Mapping[str, str]
) -> None:
    given = {
        "PGHOST": args.text("host", "127.0.0.1"),
        "PGPORT": str(args.integer("port", 5432)),
        "PGUSER": args.text("username", "postgres"),
        "PGPASSWORD": args.text("password", ""),
        "PGSSLMODE": args.text("sslMode", ""),
        "PGCONNECT_TIMEOUT": "15",
        **environment,
    }
    limits = replace(limits_for(context, seconds=seconds_of(args, "timeout", _SECONDS)), writable=(directory,))
    ended = await run_process(
        command,
        limits,
        output=lambda chunk: context.log(chunk.decode(errors="replace").rstrip()),
        log=context.log,
        environment={key: value for key, value in given.items() if value},
    )
    ended.check(command[0])


def _wrapped(dump: Path, into: IO[bytes]) -> None:
    """One file as a tar stream, which is what repositories keep."""
    with tarfile.open(fileobj=into, mode="w|", format=tarfile.PAX_FORMAT) as tar, dump.open("rb") as source:
        info = tarfile.TarInfo(_DUMP)
        info.size = dump.stat().st_size
        tar.addfile(info, source)


def _unwrapped(stream: IO[bytes], dump: Path) -> None:
    with tarfile.open(fileobj=stream, mode="r:") as tar:
        source = tar.extractfile(_DUMP) or io.BytesIO()
        with source, dump.open("wb") as target:
            shutil.copyfileobj(source, target)
