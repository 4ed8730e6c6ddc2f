"""BackupDataAll and its kin: the same directory of several pods, each in a repository of its own below the prefix.

`BackupAllInfo`, the output of a backup, is what the others take as `backupInfo`: JSON, by pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from planform.blueprints.arguments import Arguments
from planform.blueprints.contract import PhaseContext, phase_function
from planform.blueprints.errors import ArgumentInvalid
from planform.blueprints.functions.backups import back_up, opened, restore
from planform.blueprints.functions.policy import Policy

_POD: Final = ("podOverride", "podAnnotations", "podLabels")
_KEYS: Final = ("encryptionKey", "insecureTLS")
_WORKLOADS: Final = ("StatefulSet", "Deployment", "DeploymentConfig")


@phase_function(
    "BackupDataAll",
    required=["namespace", "container", "includePath", "backupArtifactPrefix"],
    arguments=["pods", *_KEYS],
    engines=["kubernetes"],
    resumable=True,
)
async def backup_data_all(
    context: PhaseContext,
    args: Arguments,
    *,
    policy: Policy = Policy(),  # noqa: B008  # frozen
) -> dict[str, Any]:
    """Keeps a directory of each pod: those given, or all of the action's workload."""
    info = {}
    for pod in _pods(context, args):
        made = await back_up(context, _of(args, pod, pod=pod), policy, as_files=True)
        info[pod] = {"PodName": pod, "BackupID": made["backupID"], "BackupTag": made["backupTag"]}
    return {"BackupAllInfo": orjson.dumps(info).decode(), "version": context.version}


@phase_function(
    "RestoreDataAll",
    required=["namespace", "image", "backupArtifactPrefix", "backupInfo"],
    arguments=["restorePath", "pods", "container", *_KEYS, *_POD],
    engines=["kubernetes"],
    resumable=True,
    reads={"BackupDataAll": "<1.0.0"},
)
async def restore_data_all(
    context: PhaseContext,
    args: Arguments,
    *,
    policy: Policy = Policy(),  # noqa: B008  # frozen
) -> dict[str, Any]:
    """Puts the files of each pod back into a pod of the same name."""
    info = _info(args)
    wanted = args.text("pods", "").split() or list(info)
    for pod in wanted:
        if pod not in info:
            raise ArgumentInvalid(f'{args.of}: backupInfo has no pod "{pod}" (it has: {", ".join(info)})')
        given = _of(args, pod, pod=pod, backupTag=info[pod])
        await restore(context, given, policy, formats=("archive", "files"))
    return {"version": context.version}


@phase_function(
    "DeleteDataAll",
    required=["namespace", "backupArtifactPrefix", "backupInfo"],
    arguments=["image", "reclaimSpace", *_KEYS, *_POD],
    resumable=True,
)
async def delete_data_all(
    context: PhaseContext,
    args: Arguments,
    *,
    policy: Policy = Policy(),  # noqa: B008  # frozen
) -> dict[str, Any]:
    """Forgets the backups of all pods."""
    freed = 0
    for pod, backup in _info(args).items():
        async with opened(context, _of(args, pod), policy) as repository:
            freed += await repository.delete(
                await repository.manifest(backup), reclaim=args.flag("reclaimSpace", False)
            )
    return {"spaceFreed": str(freed)}


def _of(args: Arguments, name: str, **more: str) -> Arguments:
    """The arguments for one pod."""
    prefix = f"{args.text('backupArtifactPrefix').rstrip('/')}/{name}"
    return Arguments({**args, "backupArtifactPrefix": prefix, **more}, of=args.of)


def _pods(context: PhaseContext, args: Arguments) -> list[str]:
    given = args.text("pods", "").split()
    for root in _WORKLOADS:
        workload = context.params.get(root)
        if not given and isinstance(workload, Mapping):
            given = [str(pod) for pod in workload.get("Pods") or ()]
    if not given:
        raise ArgumentInvalid(f'{args.of}: argument "pods" is needed, since the action is about no workload with pods')
    return given


def _info(args: Arguments) -> dict[str, str]:
    """The id of each pod's backup."""
    table = args.table("backupInfo")
    try:
        return {str(pod): str(each.get("BackupTag") or each["BackupID"]) for pod, each in table.items()}
    except (AttributeError, KeyError, TypeError) as error:
        raise ArgumentInvalid(f'{args.of}: argument "backupInfo" is not what BackupDataAll gave') from error
