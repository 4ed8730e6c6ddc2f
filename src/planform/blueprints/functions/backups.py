"""Backups as phases make and read them: where the files are, which repository, which backup.

On Kubernetes files are read and written by `tar` in a container that runs; on the embedded engine they are in a
directory of this machine that the operator opened to phases.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import PurePosixPath
from typing import IO, Any, Final

from planform.blueprints.arguments import Arguments
from planform.blueprints.contract import PhaseContext
from planform.blueprints.errors import ArgumentInvalid, PhaseFailed
from planform.blueprints.functions.archives import OnProgress, fetch, pack, store_archive, store_files, unpack
from planform.blueprints.functions.cluster import open_cluster
from planform.blueprints.functions.commands import exec_command
from planform.blueprints.functions.locations import open_location
from planform.blueprints.functions.pods import CONTAINER, mounting, open_pod
from planform.blueprints.functions.policy import Policy
from planform.blueprints.functions.repository import Damaged, Manifest, Repository, open_repository
from planform.clock import timestamp

DEFAULT_IMAGE: Final = "docker.io/library/busybox:stable"
"""For pods that only mount volumes: it has `sh` and `tar`."""
WHICH: Final = ("backupTag", "backupIdentifier")


@asynccontextmanager
async def opened(
    context: PhaseContext, args: Arguments, policy: Policy, *, create: bool = False
) -> AsyncIterator[Repository]:
    """The repository that the arguments name."""
    async with open_location(context, policy) as location:
        prefix = path_below(context, args.text("backupArtifactPrefix"))
        yield await open_repository(location, prefix, args.text("encryptionKey", ""), create=create)


def backup_id(context: PhaseContext) -> str:
    """Follows from the run of the phase: one that runs again replaces what it began, and leaves nothing behind."""
    identity = "\0".join([context.uid, str(context.action_index), context.action, context.phase])
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def backed_up(context: PhaseContext, manifest: Manifest) -> dict[str, Any]:
    """The output of whatever made a backup."""
    return {
        "backupID": manifest.id,
        "backupTag": manifest.id,
        "fileCount": str(manifest.files),
        "size": str(manifest.size),
        "phySize": str(manifest.stored),
        "version": context.version,
    }


async def back_up(context: PhaseContext, args: Arguments, policy: Policy, *, as_files: bool) -> dict[str, Any]:
    """Keep the directory that the arguments name, as files that backups share or as an archive."""

    def on_progress(done: int, total: int) -> None:
        context.progress(100 * done / total if total else 100, uploaded=done, upload_total=total)

    store = store_files if as_files else store_archive
    with tempfile.TemporaryFile(prefix="planform-backup-") as stream:
        source = await _packed(context, args, policy, stream)
        async with opened(context, args, policy, create=True) as repository:
            created = timestamp(context.clock.now())
            manifest = await store(
                repository, stream, backup_id(context), created=created, source=source, on_progress=on_progress
            )
    return backed_up(context, manifest)


async def restore(
    context: PhaseContext, args: Arguments, policy: Policy, *, formats: tuple[str, ...]
) -> dict[str, Any]:
    """Put a backup of one of the formats where the arguments say."""
    which = one_of(args, *WHICH)
    with tempfile.TemporaryFile(prefix="planform-restore-") as stream:
        async with opened(context, args, policy) as repository:
            manifest = await repository.manifest(which)
            if manifest.format not in formats:
                raise PhaseFailed(
                    f'backup "{which}" is of format {manifest.format}, which {args.of} does not read',
                    hint="set funcVersion: v1.0.0",
                )
            await fetch(repository, manifest, stream, on_progress=_downloads(context))
        await _unpacked(context, args, policy, stream, manifest)
    return {"fileCount": str(manifest.files), "size": str(manifest.size), "version": context.version}


async def _packed(context: PhaseContext, args: Arguments, policy: Policy, stream: IO[bytes]) -> str:
    """Fill a tar stream from where the arguments say; gives the path it came from."""
    path = args.text("includePath")
    if context.here.engine == "kubernetes":
        async with open_cluster(context) as cluster:
            command = ["tar", "-C", path, "-cf", "-", "."]
            ended = await exec_command(
                context,
                cluster,
                args.text("namespace"),
                args.text("pod"),
                args.text("container", ""),
                command,
                lambda chunk: _ignored(stream.write(chunk)),
            )
        ended.check(f'tar in pod "{args.text("pod")}"')
    else:
        await asyncio.to_thread(pack, policy.directory(context, path, below="directories"), stream)
    return path


async def _unpacked(
    context: PhaseContext, args: Arguments, policy: Policy, stream: IO[bytes], manifest: Manifest
) -> None:
    claims = {claim: str(path) for claim, path in args.table("volumes", {}).items()}
    path = args.text("restorePath", "") or (next(iter(claims.values())) if len(claims) == 1 else manifest.source)
    if not path or path == "/":
        raise ArgumentInvalid(f'{args.of}: argument "restorePath" is needed')
    if context.here.engine != "kubernetes":
        if claims:
            raise ArgumentInvalid(f'{args.of}: argument "volumes" is for Kubernetes, set restorePath')
        await asyncio.to_thread(unpack, stream, policy.directory(context, path, below="directories"))
    elif claims:
        if args.get("pod"):
            raise ArgumentInvalid(f"{args.of}: exactly one of pod and volumes is needed")
        task = mounting(args.text("namespace"), args.text("image", DEFAULT_IMAGE), claims)
        async with open_pod(context, args, task) as (target, _):
            await _untarred(context, target.namespace, target.name, CONTAINER, path, stream)
    else:
        await _untarred(context, args.text("namespace"), args.text("pod"), args.text("container", ""), path, stream)


async def _untarred(
    context: PhaseContext, namespace: str, pod: str, container: str, path: str, stream: IO[bytes]
) -> None:
    async with open_cluster(context) as cluster:
        ended = await exec_command(
            context,
            cluster,
            namespace,
            pod,
            container,
            ["tar", "-C", path, "-xf", "-"],
            lambda chunk: context.log(chunk.decode(errors="replace")),
            stdin=stream,
        )
    ended.check(f'tar in pod "{pod}"')


async def verify(repository: Repository, manifest: Manifest) -> None:
    """Read every piece of a backup. Raises Damaged."""
    with tempfile.TemporaryFile(prefix="planform-verify-") as stream:
        try:
            await fetch(repository, manifest, stream, on_progress=lambda done, total: None)
        except Damaged as error:
            raise Damaged(f'backup "{manifest.id}": {error}') from error


def _ignored(_: int) -> None:
    """Of the bytes written: a file takes all of them."""


def _downloads(context: PhaseContext) -> OnProgress:
    def on_progress(done: int, total: int) -> None:
        context.progress(100 * done / total if total else 100, downloaded=done, download_total=total)

    return on_progress


def path_below(context: PhaseContext, given: str) -> str:
    """A path below the profile's prefix. Kanister's blueprints begin it with the bucket, and often the prefix."""
    location = (context.params.get("Profile") or {}).get("Location") or {}
    path = given.partition("://")[2] if "://" in given else given
    path = path.strip("/")
    for known in (str(location.get("Bucket") or ""), str(location.get("Prefix") or "")):
        known = known.strip("/")
        if known and (path == known or path.startswith(f"{known}/")):
            path = path[len(known) :].strip("/")
    if not path or ".." in PurePosixPath(path).parts:
        raise PhaseFailed(f'"{given}" names nothing below the location\'s prefix')
    return path


def one_of(args: Arguments, *names: str) -> str:
    given = [name for name in names if args.get(name)]
    if len(given) != 1:
        raise ArgumentInvalid(f"{args.of}: exactly one of {' and '.join(names)} is needed")
    return args.text(given[0])
