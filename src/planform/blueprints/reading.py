"""Reads what an action needs before it runs: its target with its pods, Secrets, ConfigMaps and the profile."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from planform.api.builtin import BUILTIN_KINDS
from planform.api.kinds import GroupVersionKind, Object
from planform.api.metadata import is_deleted, name_of, namespace_of
from planform.api.names import CRD, PROFILE, SECRET
from planform.blueprints.errors import PreflightFailed
from planform.blueprints.model import ActionRequest, ObjectReference
from planform.blueprints.parameters import WORKLOADS, Found, profile_secret_references, secret_key
from planform.client.protocol import Client
from planform.errors import NotFound, PlanformError

CONFIG_MAP: Final = GroupVersionKind("", "v1", "ConfigMap")
POD: Final = GroupVersionKind("", "v1", "Pod")

_TARGETS: Final = {
    "deployment": GroupVersionKind("apps", "v1", "Deployment"),
    "statefulset": GroupVersionKind("apps", "v1", "StatefulSet"),
    "deploymentconfig": GroupVersionKind("apps.openshift.io", "v1", "DeploymentConfig"),
    "pvc": GroupVersionKind("", "v1", "PersistentVolumeClaim"),
    "namespace": GroupVersionKind("", "v1", "Namespace"),
}
_PLURALS: Final = {(kind.group, kind.plural): kind.kind for kind in BUILTIN_KINDS}


async def read_action(client: Client, request: ActionRequest, namespace: str) -> Found:
    """Everything that a request names. Raises PreflightFailed that says what is not there, or an error to try again."""
    target, secrets, config_maps, profile = await asyncio.gather(
        _target(client, request.object, namespace),
        _by_alias(client, SECRET, request.secrets, namespace),
        _by_alias(client, CONFIG_MAP, request.config_maps, namespace),
        _profile(client, request.profile, namespace),
    )
    pods = await _pods(client, target) if request.object.kind.lower() in WORKLOADS else []
    found_profile, profile_secrets = profile
    return Found(target, pods, secrets, config_maps, found_profile, profile_secrets)


async def read_objects(
    client: Client, references: Mapping[str, ObjectReference], namespace: str
) -> tuple[dict[str, Object], dict[str, Object]]:
    """The Secrets and ConfigMaps of a phase by alias; other kinds are not read."""
    by_kind: dict[str, dict[str, ObjectReference]] = {"secret": {}, "configmap": {}}
    for alias, reference in references.items():
        if reference.kind.lower() in by_kind:
            by_kind[reference.kind.lower()][alias] = reference
    secrets, config_maps = await asyncio.gather(
        _by_alias(client, SECRET, by_kind["secret"], namespace),
        _by_alias(client, CONFIG_MAP, by_kind["configmap"], namespace),
    )
    return secrets, config_maps


async def _by_alias(
    client: Client, gvk: GroupVersionKind, references: Mapping[str, ObjectReference], namespace: str
) -> dict[str, Object]:
    found = await asyncio.gather(
        *(_get(client, gvk, each.name, each.namespace or namespace) for each in references.values())
    )
    return dict(zip(references, found, strict=True))


async def _profile(
    client: Client, reference: ObjectReference | None, namespace: str
) -> tuple[Object | None, dict[str, Object]]:
    if reference is None:
        return None, {}
    profile = await _get(client, PROFILE, reference.name, reference.namespace or namespace)
    wanted = profile_secret_references(profile)
    found = await asyncio.gather(
        *(_get(client, SECRET, str(each.get("name")), str(each.get("namespace") or "")) for each in wanted)
    )
    return profile, {secret_key(each): secret for each, secret in zip(wanted, found, strict=True)}


async def _target(client: Client, reference: ObjectReference, namespace: str) -> Object:
    """What an action is about; in the ActionSet's own namespace if it does not say another one."""
    gvk = _TARGETS.get(reference.kind.lower()) or await _kind_of(client, reference)
    if gvk == _TARGETS["namespace"]:
        return await _get(client, gvk, reference.namespace or reference.name, "")
    try:
        kind = await client.kind(gvk)
    except PlanformError as error:
        raise _failure(f'cannot read {gvk.kind} "{reference.name}"', error) from error
    return await _get(client, gvk, reference.name, (reference.namespace or namespace) if kind.namespaced else "")


async def _kind_of(client: Client, reference: ObjectReference) -> GroupVersionKind:
    """The kind behind a plural name; what is not built in has a CRD that tells."""
    kind = _PLURALS.get((reference.group, reference.resource))
    if kind is None and reference.group:
        crd = await _get(client, CRD, f"{reference.resource}.{reference.group}", "")
        kind = str(crd["spec"]["names"]["kind"])
    if kind is None:
        raise PreflightFailed(f'no kind is called "{reference.resource}" in API version {reference.api_version}')
    return GroupVersionKind(reference.group, reference.api_version, kind)


async def _pods(client: Client, workload: Object) -> list[Object]:
    """The pods of a workload by name, those on their way out aside."""
    selector = (workload.get("spec") or {}).get("selector") or {}
    wanted = selector.get("matchLabels", selector)  # a DeploymentConfig has the labels themselves
    if not wanted or not all(isinstance(value, str) for value in wanted.values()):
        return []
    labels = ",".join(f"{key}={value}" for key, value in sorted(wanted.items()))
    try:
        found = await client.list(POD, namespace=namespace_of(workload), labels=labels)
    except PlanformError as error:
        raise _failure(f'cannot list the pods of "{name_of(workload)}"', error) from error
    return [pod for pod in found.items if not is_deleted(pod)]


async def _get(client: Client, gvk: GroupVersionKind, name: str, namespace: str) -> Object:
    shown = f'{gvk.kind} "{namespace}/{name}"' if namespace else f'{gvk.kind} "{name}"'
    try:
        return await client.get(gvk, name, namespace=namespace)
    except NotFound as error:
        raise PreflightFailed(f"{shown} not found") from error
    except PlanformError as error:
        raise _failure(f"cannot read {shown}", error) from error


def _failure(what: str, error: PlanformError) -> PlanformError:
    """What to raise: an engine that cannot answer now may answer soon, which is nobody's mistake."""
    return error if error.retryable else PreflightFailed(f"{what}: {error}")
