"""Functions that Kanister has and this control plane knows by name only, so that a Blueprint with them fails by name.

They drive storage and clouds that neither engine has an interface to. Pre-flight refuses them before anything runs.
"""

from __future__ import annotations

from typing import Final

from planform.blueprints.contract import PhaseEnvironment, PhaseFunction
from planform.blueprints.errors import EngineNotSupported

_RDS: Final = ("credentialsSource", "credentialsSecret", "region")
_EXPORT: Final = (
    "username",
    "password",
    "backupArtifactPrefix",
    "databases",
    "securityGroupID",
    "dbSubnetGroup",
    "image",
    "podAnnotations",
    "podLabels",
    *_RDS,
)

_CSI: Final = (
    "CSI snapshots are not managed here; create VolumeSnapshot objects with KubeOps and wait for them with Wait"
)
_CLOUD: Final = "Amazon RDS is not managed here; a KubeTask with an image that has the AWS tools can call it"

_NAMES: Final = {
    "CreateCSISnapshot": (("pvc", "namespace", "snapshotClass"), ("name", "labels"), _CSI),
    "CreateCSISnapshotStatic": (("name", "namespace", "driver", "handle", "snapshotClass"), (), _CSI),
    "RestoreCSISnapshot": (
        ("name", "pvc", "namespace", "storageClass", "restoreSize"),
        ("accessModes", "volumeMode", "labels"),
        _CSI,
    ),
    "DeleteCSISnapshot": (("name", "namespace"), (), _CSI),
    "DeleteCSISnapshotContent": (("name",), (), _CSI),
    "CreateRDSSnapshot": (("instanceID",), ("dbEngine", *_RDS), _CLOUD),
    "ExportRDSSnapshotToLocation": (("namespace", "instanceID", "snapshotID", "dbEngine"), _EXPORT, _CLOUD),
    "RestoreRDSSnapshot": (("instanceID",), ("snapshotID", "backupID", "namespace", "dbEngine", *_EXPORT), _CLOUD),
    "DeleteRDSSnapshot": ((), ("snapshotID", "dbEngine", *_RDS), _CLOUD),
}


def _unavailable(name: str, why: str) -> PhaseFunction:
    def refuse(here: PhaseEnvironment) -> str:
        return why

    async def run(context: object, args: object) -> None:
        raise EngineNotSupported(f"{name}: {why}")

    required, arguments, _ = _NAMES[name]
    return PhaseFunction(
        name=name, run=run, required=required, arguments=arguments, unavailable=refuse, description=f"Not here: {why}"
    )


FUNCTIONS: Final = tuple(_unavailable(name, why) for name, (_, _, why) in sorted(_NAMES.items()))
