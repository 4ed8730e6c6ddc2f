"""What templates see: the roots of an action's parameters, made from objects that somebody else has read. Pure.

Names and shapes are those that Kanister's blueprints know: Go's field names for what is typed there, the object's own
keys for `.Object`. Data of Secrets are bytes, so that blueprints say `toString`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from planform.api.annotations import annotations_of
from planform.api.metadata import labels_of, name_of, namespace_of, uid_of
from planform.blueprints.model import ActionRequest, Artifact
from planform.gotemplate.values import StringMap
from planform.journal.masking import values_within

WORKLOADS: Final = {"deployment": "Deployment", "statefulset": "StatefulSet", "deploymentconfig": "DeploymentConfig"}
KNOWN_KINDS: Final = frozenset({*WORKLOADS, "pvc", "namespace", "unstructured"})
"""Kinds that need no apiVersion and resource beside them, in lower case."""


@dataclass(frozen=True)
class Found:
    """The objects that one action's request names, as they were read."""

    object: Mapping[str, Any]
    pods: Sequence[Mapping[str, Any]] = ()
    secrets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    config_maps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    profile: Mapping[str, Any] | None = None
    profile_secrets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The Secrets of the profile's credential, by `namespace/name`."""


def go_timestamp(moment: datetime) -> str:
    """RFC 3339 as Go writes it with nanoseconds: no zeros at the end, Z."""
    text = moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f").rstrip("0").rstrip(".")
    return f"{text}Z"


def parameters(request: ActionRequest, found: Found, time: str) -> dict[str, Any]:
    """The roots for an action before its first phase."""
    kind = request.object.kind.lower()
    namespace = namespace_of(found.object) or request.object.namespace
    roots: dict[str, Any] = dict.fromkeys((*WORKLOADS.values(), "PVC", "Namespace"))
    if kind in WORKLOADS:
        roots[WORKLOADS[kind]] = _workload(name_of(found.object), namespace, found.pods)
    elif kind == "pvc":
        roots["PVC"] = {"Name": name_of(found.object), "Namespace": namespace}
    elif kind == "namespace":
        name = request.object.namespace or name_of(found.object)
        roots["Namespace"] = {"Name": name, "Namespace": name}
    return {
        **roots,
        "Object": found.object,
        "ArtifactsIn": {name: artifact_root(each) for name, each in request.artifacts.items()},
        "ConfigMaps": {alias: config_map_root(each) for alias, each in found.config_maps.items()},
        "Secrets": {alias: secret_root(each) for alias, each in found.secrets.items()},
        "Profile": None if found.profile is None else _profile(found.profile, found.profile_secrets),
        "Options": StringMap(request.options),
        "Time": time,
        "Phases": {},
        "DeferPhase": None,
        "CurrentPhase": None,
        "PodOverride": dict(request.pod_override),
        "PodLabels": StringMap(request.pod_labels),
        "PodAnnotations": StringMap(request.pod_annotations),
    }


def phase_root(
    secrets: Mapping[str, Mapping[str, Any]], config_maps: Mapping[str, Mapping[str, Any]], output: Any = None
) -> dict[str, Any]:
    """What `.Phases.NAME` is."""
    return {
        "Secrets": {alias: secret_root(each) for alias, each in secrets.items()},
        "ConfigMaps": {alias: config_map_root(each) for alias, each in config_maps.items()},
        "Output": output or {},
    }


def secret_values(roots: Mapping[str, Any]) -> Iterator[bytes]:
    """What templates can reach that came from Secrets: those of the action and its phases, those that its object is or
    wraps, and the profile's."""
    yield from values_within(roots.get("Object"))
    phases = [*(roots.get("Phases") or {}).values(), roots.get("DeferPhase"), roots.get("CurrentPhase")]
    for holder in (roots, *filter(None, phases)):
        for secret in (holder.get("Secrets") or {}).values():
            yield from _texts(secret["Data"])
    profile = roots.get("Profile") or {}
    for name in ("KeyPair", "Secret", "KopiaServerSecret"):
        held = (profile.get("Credential") or {}).get(name) or {}
        yield from _texts(held.get("Data") if name == "Secret" else held)


def _texts(value: Any) -> Iterator[bytes]:
    if isinstance(value, str):
        yield value.encode("utf-8", "surrogateescape")
    elif isinstance(value, bytes):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)


def artifact_root(artifact: Artifact) -> dict[str, Any]:
    return {"KeyValue": StringMap(artifact.key_value), "KopiaSnapshot": artifact.kopia_snapshot}


def secret_root(secret: Mapping[str, Any]) -> dict[str, Any]:
    data = {key: _decoded(value) for key, value in (secret.get("data") or {}).items()}
    # A map of texts to Go's templates, so that a key that `index` does not find is empty and not nil.
    return {**_metadata_root(secret), "Type": secret.get("type") or "", "Data": StringMap(data)}


def config_map_root(config_map: Mapping[str, Any]) -> dict[str, Any]:
    binary = {key: _decoded(value) for key, value in (config_map.get("binaryData") or {}).items()}
    return {
        **_metadata_root(config_map),
        "Data": StringMap(config_map.get("data") or {}),
        "BinaryData": StringMap(binary),
    }


def _metadata_root(obj: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "Kind": obj.get("kind") or "",
        "APIVersion": obj.get("apiVersion") or "",
        "Name": name_of(obj),
        "Namespace": namespace_of(obj),
        "UID": uid_of(obj),
        "Labels": StringMap(labels_of(obj)),
        "Annotations": StringMap(annotations_of(obj)),
    }


def _workload(name: str, namespace: str, pods: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    claims: dict[str, Any] = {}
    for pod in pods:
        mounts = _mounts(pod)
        if mounts:
            claims[name_of(pod)] = StringMap(mounts)
    return {
        "Name": name,
        "Namespace": namespace,
        "Pods": [name_of(pod) for pod in pods],
        "Containers": [[each["name"] for each in pod["spec"].get("containers") or ()] for pod in pods],
        "PersistentVolumeClaims": claims,
    }


def _mounts(pod: Mapping[str, Any]) -> dict[str, str]:
    """The paths at which a pod's containers see its claims; the first container that mounts one counts."""
    claims = {
        volume["name"]: volume["persistentVolumeClaim"]["claimName"]
        for volume in pod["spec"].get("volumes") or ()
        if volume.get("persistentVolumeClaim")
    }
    found: dict[str, str] = {}
    for container in pod["spec"].get("containers") or ():
        for mount in container.get("volumeMounts") or ():
            if mount["name"] in claims:
                found.setdefault(claims[mount["name"]], mount["mountPath"])
    return found


def _profile(profile: Mapping[str, Any], secrets: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    location, credential = profile.get("location") or {}, profile.get("credential") or {}
    pair, server = credential.get("keyPair"), credential.get("kopiaServerSecret")
    made: dict[str, Any] = {
        "Type": credential.get("type") or "",
        "KeyPair": None,
        "Secret": None,
        "KopiaServerSecret": None,
    }
    if pair:
        data = _data(secrets, pair.get("secret"))
        made["KeyPair"] = {
            "ID": _text(data, pair.get("idField")),
            "Secret": _text(data, pair.get("secretField")),
        }
    if credential.get("secret"):
        made["Secret"] = secret_root(secrets.get(secret_key(credential["secret"])) or {})
    if server:
        made["KopiaServerSecret"] = _kopia(server, secrets)
    return {
        "Name": name_of(profile),
        "Location": {
            **{key[:1].upper() + key[1:]: value for key, value in location.items()},
            **{name: location.get(name.lower()) or "" for name in ("Type", "Bucket", "Endpoint", "Prefix", "Region")},
        },
        "Credential": made,
        "SkipSSLVerify": bool(profile.get("skipSSLVerify")),
    }


def _kopia(server: Mapping[str, Any], secrets: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    password, certificate = server.get("userPassphrase") or {}, server.get("tlsCert") or {}
    return {
        "Username": server.get("username") or "",
        "Hostname": server.get("hostname") or "",
        "Password": _text(_data(secrets, password.get("secret")), password.get("key")),
        "Cert": _text(_data(secrets, certificate.get("secret")), certificate.get("key")),
        "ConnectOptions": server.get("connectOptions") or {},
    }


def profile_secret_references(profile: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The Secrets that a profile's credential is made of."""
    credential = profile.get("credential") or {}
    server = credential.get("kopiaServerSecret") or {}
    candidates = [
        (credential.get("keyPair") or {}).get("secret"),
        credential.get("secret"),
        (server.get("userPassphrase") or {}).get("secret"),
        (server.get("tlsCert") or {}).get("secret"),
    ]
    return [each for each in candidates if each]


def secret_key(reference: Mapping[str, Any]) -> str:
    return f"{reference.get('namespace') or ''}/{reference.get('name') or ''}"


def _data(secrets: Mapping[str, Mapping[str, Any]], reference: Mapping[str, Any] | None) -> Mapping[str, bytes]:
    secret = secrets.get(secret_key(reference)) if reference else None
    return {key: _decoded(value) for key, value in ((secret or {}).get("data") or {}).items()}


def _text(data: Mapping[str, bytes], key: str | None) -> str:
    return data.get(key or "", b"").decode("utf-8", "surrogateescape")


def _decoded(value: Any) -> bytes:
    try:
        return base64.b64decode(str(value), validate=False)
    except (binascii.Error, ValueError):
        return b""
