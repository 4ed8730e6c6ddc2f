"""BackupData and its kin: files to the location of the action's profile and back, with checksums.

How Kanister's arguments are read here:

    includePath           on Kubernetes a directory in the container, which needs `tar`; on the embedded engine a
                          directory of this machine that the operator opened to phases
    namespace, pod, container     where that directory is; on the embedded engine they only describe the source
    backupArtifactPrefix  the repository, a path below the profile's prefix; a leading bucket name is dropped
    backupTag, backupID, backupIdentifier   the id of a backup: here they are one
    restorePath           where to put the files; by default where they came from
    image, insecureTLS, pod*      taken and not needed: no tool runs in a pod

v0.0.0 keeps each backup as an archive of its own. v1.0.0 keeps files in pieces that backups share, so that a second
backup stores only what changed, and reads what v0.0.0 wrote.
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
from planform.blueprints.contract import PhaseContext, phase_function
from planform.blueprints.errors import ArgumentInvalid, PhaseFailed
from planform.blueprints.functions.archives import Tell, fetch, pack, store_archive, store_files, unpack
from planform.blueprints.functions.cluster import open_cluster
from planform.blueprints.functions.commands import exec_command
from planform.blueprints.functions.locations import open_location
from planform.blueprints.functions.policy import Policy
from planform.blueprints.functions.repository import (
    Damaged,
    Manifest,
    Repository,
    RepositoryMissing,
    WrongKey,
    open_repository,
)
from planform.clock import timestamp

_POD: Final = ("podOverride", "podAnnotations", "podLabels")
_KEYS: Final = ("encryptionKey", "insecureTLS")
_SOURCE: Final = ("namespace", "pod", "container", "includePath", "backupArtifactPrefix")
_WHICH: Final = ("backupTag", "backupIdentifier")
_TARGET: Final = ("pod", "volumes", "container", "restorePath", "backupPath")


@phase_function("BackupData", required=_SOURCE, arguments=_KEYS, resumable=True)
async def backup_data(
    context: PhaseContext,
    args: Arguments,
    *,
    policy: Policy = Policy(),  # noqa: B008  # frozen
) -> dict[str, Any]:
    """Keeps a directory as one archive."""
    return await _backup(context, args, policy, as_files=False)


@phase_function(
    "BackupData",
    version="v1.0.0",
    stable=True,
    required=["includePath", "backupArtifactPrefix"],
    arguments=["namespace", "pod", "container", *_KEYS],
    resumable=True,
)
async def backup_data_v1(
    context: PhaseContext,
    args: Arguments,
    *,
    policy: Policy = Policy(),  # noqa: B008  # frozen
) -> dict[str, Any]:
    """Keeps what changed of a directory since its last backup."""
    return await _backup(context, args, policy, as_files=True)


@phase_function(
    "RestoreData",
    required=["namespace", "image", "backupArtifactPrefix"],
    arguments=[*_WHICH, *_TARGET, *_KEYS, *_POD],
    resumable=True,
    reads={"BackupData": "<1.0.0"},
)
async def restore_data(
    context: PhaseContext,
    args: Arguments,
    *,
    policy: Policy = Policy(),  # noqa: B008  # frozen
) -> dict[str, Any]:
    """Puts the files of an archive back."""
    return await _restore(context, args, policy, formats=("archive",))


@phase_function(
    "RestoreData",
    version="v1.0.0",
    stable=True,
    required=["backupArtifactPrefix"],
    arguments=["namespace", "image", *_WHICH, *_TARGET, *_KEYS, *_POD],
    resumable=True,
    reads={"BackupData": "<2.0.0"},
)
async def restore_data_v1(
    context: PhaseContext,
    args: Arguments,
    *,
    policy: Policy = Policy(),  # noqa: B008  # frozen
) -> dict[str, Any]:
    """Puts the files of a backup back, whichever version made it."""
    return await _restore(context, args, policy, formats=("archive", "files"))


@phase_function(
    "DeleteData",
    required=["namespace", "backupArtifactPrefix"],
    arguments=["backupID", "backupTag", "image", "reclaimSpace", *_KEYS, *_POD],
    resumable=True,
)
async def delete_data(
    context: PhaseContext,
    args: Arguments,
    *,
    policy: Policy = Policy(),  # noqa: B008  # frozen
) -> dict[str, Any]:
    """Forgets a backup; `reclaimSpace` also drops pieces that no other backup needs."""
    which = _one_of(args, "backupID", "backupTag")
    async with opened(context, args, policy) as repository:
        freed = await repository.delete(await repository.manifest(which), reclaim=args.flag("reclaimSpace", False))
    return {"spaceFreed": str(freed)}


@phase_function(
    "BackupDataStats",
    required=["namespace", "backupArtifactPrefix", "backupID"],
    arguments=["statsMode", "mode", "image", *_KEYS, *_POD],
    resumable=True,
)
async def backup_data_stats(
    context: PhaseContext,
    args: Arguments,
    *,
    policy: Policy = Policy(),  # noqa: B008  # frozen
) -> dict[str, Any]:
    """Tells the size of a backup: of its files (`restore-size`), or of what it stored (`raw-data`)."""
    mode = args.text("statsMode", args.text("mode", "restore-size"))
    if mode not in ("restore-size", "raw-data"):
        raise ArgumentInvalid(f'{args.of}: statsMode "{mode}" is not restore-size or raw-data')
    async with opened(context, args, policy) as repository:
        manifest = await repository.manifest(args.text("backupID"))
    size = manifest.size if mode == "restore-size" else manifest.stored
    return {"mode": mode, "fileCount": str(manifest.files), "size": str(size), "version": context.version}


@phase_function(
    "CheckRepository", required=["backupArtifactPrefix"], arguments=["image", "verify", *_KEYS, *_POD], resumable=True
)
async def check_repository(
    context: PhaseContext,
    args: Arguments,
    *,
    policy: Policy = Policy(),  # noqa: B008  # frozen
) -> dict[str, Any]:
    """Tells whether there are backups and the key fits; with `verify` every piece is read and compared as well."""
    wrong = missing = False
    try:
        async with opened(context, args, policy) as repository:
            if args.flag("verify", False):
                for manifest in await repository.manifests():
                    await _verified(repository, manifest)
    except WrongKey:
        wrong = True
    except RepositoryMissing:
        missing = True
    told = {True: "true", False: "false"}
    return {"passwordIncorrect": told[wrong], "repoUnavailable": told[missing], "version": context.version}


@phase_function("LocationDelete", required=["artifact"], resumable=True)
async def location_delete(
    context: PhaseContext,
    args: Arguments,
    *,
    policy: Policy = Policy(),  # noqa: B008  # frozen
) -> None:
    """Deletes what is stored under a path of the location, and all below it."""
    async with open_location(context, policy) as location:
        path = _path(context, args.text("artifact"))
        found = [each for each in await location.list(path) if each.key == path or each.key.startswith(f"{path}/")]
        for index, each in enumerate(found):
            await location.delete(each.key)
            context.progress(100 * index / len(found))


@asynccontextmanager
async def opened(
    context: PhaseContext, args: Arguments, policy: Policy, *, create: bool = False
) -> AsyncIterator[Repository]:
    """The repository that the arguments name."""
    async with open_location(context, policy) as location:
        prefix = _path(context, args.text("backupArtifactPrefix"))
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


async def _backup(context: PhaseContext, args: Arguments, policy: Policy, *, as_files: bool) -> dict[str, Any]:
    def tell(done: int, total: int) -> None:
        context.progress(100 * done / total if total else 100, uploaded=done, upload_total=total)

    store = store_files if as_files else store_archive
    with tempfile.TemporaryFile(prefix="planform-backup-") as stream:
        source = await _packed(context, args, policy, stream)
        async with opened(context, args, policy, create=True) as repository:
            created = timestamp(context.clock.now())
            manifest = await store(repository, stream, backup_id(context), created=created, source=source, tell=tell)
    return backed_up(context, manifest)


async def _restore(
    context: PhaseContext, args: Arguments, policy: Policy, *, formats: tuple[str, ...]
) -> dict[str, Any]:
    which = _one_of(args, *_WHICH)
    with tempfile.TemporaryFile(prefix="planform-restore-") as stream:
        async with opened(context, args, policy) as repository:
            manifest = await repository.manifest(which)
            if manifest.format not in formats:
                raise PhaseFailed(
                    f'backup "{which}" is of format {manifest.format}, which {args.of} does not read',
                    hint="set funcVersion: v1.0.0",
                )
            await fetch(repository, manifest, stream, tell=_downloads(context))
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
    path = args.text("restorePath", "") or manifest.source
    if not path or path == "/":
        raise ArgumentInvalid(f'{args.of}: argument "restorePath" is needed')
    if args.get("volumes"):
        raise ArgumentInvalid(f'{args.of}: argument "volumes" is not supported, name a running pod that mounts them')
    if context.here.engine == "kubernetes":
        async with open_cluster(context) as cluster:
            command = ["tar", "-C", path, "-xf", "-"]
            ended = await exec_command(
                context,
                cluster,
                args.text("namespace"),
                args.text("pod"),
                args.text("container", ""),
                command,
                lambda chunk: context.log(chunk.decode(errors="replace")),
                stdin=stream,
            )
        ended.check(f'tar in pod "{args.text("pod")}"')
    else:
        await asyncio.to_thread(unpack, stream, policy.directory(context, path, below="directories"))


async def _verified(repository: Repository, manifest: Manifest) -> None:
    with tempfile.TemporaryFile(prefix="planform-verify-") as stream:
        try:
            await fetch(repository, manifest, stream, tell=lambda done, total: None)
        except Damaged as error:
            raise Damaged(f'backup "{manifest.id}": {error}') from error


def _ignored(_: int) -> None:
    """Of the bytes written: a file takes all of them."""


def _downloads(context: PhaseContext) -> Tell:
    def tell(done: int, total: int) -> None:
        context.progress(100 * done / total if total else 100, downloaded=done, download_total=total)

    return tell


def _path(context: PhaseContext, given: str) -> str:
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


def _one_of(args: Arguments, *names: str) -> str:
    given = [name for name in names if args.get(name)]
    if len(given) != 1:
        raise ArgumentInvalid(f"{args.of}: exactly one of {' and '.join(names)} is needed")
    return args.text(given[0])
