"""BackupData and its kin: files to the location of the action's profile and back, with checksums.

How Kanister's arguments are read here:

    includePath           on Kubernetes a directory in the container, which needs `tar`; on the embedded engine a
                          directory of this machine that the operator opened to phases
    namespace, pod, container     where that directory is; on the embedded engine they only describe the source
    backupArtifactPrefix  the repository, a path below the profile's prefix; a leading bucket name is dropped
    backupTag, backupID, backupIdentifier   the id of a backup: here they are one
    restorePath           where to put the files; by default where they came from
    volume, volumes       claims that a pod of `image` mounts; on the embedded engine `volume` is a directory
    insecureTLS           taken and not needed: the profile says whether any certificate will do

v0.0.0 keeps each backup as an archive of its own. v1.0.0 keeps files in pieces that backups share, so that a second
backup stores only what changed, and reads what v0.0.0 wrote.
"""

from __future__ import annotations

from typing import Any, Final

from planform.blueprints.arguments import Arguments
from planform.blueprints.contract import PhaseContext, phase_function
from planform.blueprints.errors import ArgumentInvalid
from planform.blueprints.functions.backups import (
    DEFAULT_IMAGE,
    WHICH,
    back_up,
    one_of,
    opened,
    path_below,
    restore,
    verify,
)
from planform.blueprints.functions.locations import open_location
from planform.blueprints.functions.pods import CONTAINER, mounting, open_pod
from planform.blueprints.functions.policy import Policy
from planform.blueprints.functions.repository import RepositoryMissing, WrongKey

_POD: Final = ("podOverride", "podAnnotations", "podLabels")
_KEYS: Final = ("encryptionKey", "insecureTLS")
_SOURCE: Final = ("namespace", "pod", "container", "includePath", "backupArtifactPrefix")
_TARGET: Final = ("pod", "volumes", "container", "restorePath", "backupPath")


@phase_function("BackupData", required=_SOURCE, arguments=_KEYS, resumable=True)
async def backup_data(
    context: PhaseContext,
    args: Arguments,
    *,
    policy: Policy = Policy(),  # noqa: B008  # frozen
) -> dict[str, Any]:
    """Keeps a directory as one archive."""
    return await back_up(context, args, policy, as_files=False)


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
    return await back_up(context, args, policy, as_files=True)


@phase_function(
    "RestoreData",
    required=["namespace", "image", "backupArtifactPrefix"],
    arguments=[*WHICH, *_TARGET, *_KEYS, *_POD],
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
    return await restore(context, args, policy, formats=("archive",))


@phase_function(
    "RestoreData",
    version="v1.0.0",
    stable=True,
    required=["backupArtifactPrefix"],
    arguments=["namespace", "image", *WHICH, *_TARGET, *_KEYS, *_POD],
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
    return await restore(context, args, policy, formats=("archive", "files"))


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
    which = one_of(args, "backupID", "backupTag")
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
                    await verify(repository, manifest)
    except WrongKey:
        wrong = True
    except RepositoryMissing:
        missing = True
    spelled = {True: "true", False: "false"}
    return {"passwordIncorrect": spelled[wrong], "repoUnavailable": spelled[missing], "version": context.version}


@phase_function(
    "CopyVolumeData",
    required=["namespace", "volume", "dataArtifactPrefix"],
    arguments=["image", "mountPath", *_KEYS, *_POD],
    resumable=True,
)
async def copy_volume_data(
    context: PhaseContext,
    args: Arguments,
    *,
    policy: Policy = Policy(),  # noqa: B008  # frozen
) -> dict[str, Any]:
    """Keeps all of a volume: a claim, which a pod mounts, or on the embedded engine a directory."""
    namespace, volume = args.text("namespace"), args.text("volume")
    prefix = "/".join([args.text("dataArtifactPrefix").rstrip("/"), namespace, volume.strip("/")])
    path = args.text("mountPath", f"/mnt/vol_data/{volume}")
    given = Arguments({**args, "backupArtifactPrefix": prefix, "includePath": volume}, of=args.of)
    if context.here.engine == "kubernetes":
        task = mounting(namespace, args.text("image", DEFAULT_IMAGE), {volume: path})
        async with open_pod(context, args, task) as (target, _):
            given |= {"includePath": path, "pod": target.name, "container": CONTAINER}
            made = await back_up(context, given, policy, as_files=True)
    else:
        made = await back_up(context, given, policy, as_files=True)
    return {**made, "backupRoot": given["includePath"], "backupArtifactLocation": prefix}


@phase_function("LocationDelete", required=["artifact"], resumable=True)
async def location_delete(
    context: PhaseContext,
    args: Arguments,
    *,
    policy: Policy = Policy(),  # noqa: B008  # frozen
) -> None:
    """Deletes what is stored under a path of the location, and all below it."""
    async with open_location(context, policy) as location:
        path = path_below(context, args.text("artifact"))
        found = [each for each in await location.list(path) if each.key == path or each.key.startswith(f"{path}/")]
        for index, each in enumerate(found):
            await location.delete(each.key)
            context.progress(100 * index / len(found))
