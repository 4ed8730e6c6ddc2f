"""The objects that make a cluster run a revision, as values: nothing is read or written here.

What a DeploymentRuntimeConfig says comes first; what it leaves open is filled in, as strictly as pods may be run; and
what says who the revision is, and how it is reached, is always ours. Several revisions of one package run at once, if
only for the moment of a hand-over, so a name that a configuration gives to a Deployment or Service is the beginning of
theirs. A ServiceAccount, which others give rights to by its name, keeps the one it was given and serves all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from planform.api.kinds import GroupVersionKind, Object
from planform.api.metadata import uid_of
from planform.api.names import SECRET
from planform.packages.runtimes.executables import RUNTIME_CONTAINER

DEPLOYMENT: Final = GroupVersionKind("apps", "v1", "Deployment")
SERVICE: Final = GroupVersionKind("", "v1", "Service")
SERVICE_ACCOUNT: Final = GroupVersionKind("", "v1", "ServiceAccount")
NETWORK_POLICY: Final = GroupVersionKind("networking.k8s.io", "v1", "NetworkPolicy")
ENDPOINT_SLICE: Final = GroupVersionKind("discovery.k8s.io", "v1", "EndpointSlice")
KINDS: Final = (DEPLOYMENT, SERVICE, SERVICE_ACCOUNT, NETWORK_POLICY, SECRET)
"""Whatever a revision may own, in the order in which it is taken away."""

REVISION_LABEL: Final = "pkg.crossplane.io/revision"
CERTIFICATE_ANNOTATION: Final = "planform.dev/certificate"
"""On pods: which certificate they were started with, so that another one starts others."""
APPLIED_ANNOTATION: Final = "planform.dev/applied"
"""On what is made for a revision: a digest of what was applied."""
CALLER_LABELS: Final = {"app.kubernetes.io/name": "planform"}
"""The pods that may call functions: those of the control plane, in the same namespace."""
PORT: Final = 9443
STARTING: Final = "its pods are being started"

_USER: Final = 2000
_SERVER_CERTS: Final = "/tls/server"
_CLIENT_CERTS: Final = "/tls/client"
_MAX_NAME_LENGTH: Final = 63
_SPARE_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class Deployed:
    """A revision that shall run in the cluster, and how. `config` is the spec of its DeploymentRuntimeConfig."""

    package: str
    revision: str
    uid: str
    image: str
    owner: Mapping[str, Any]
    """The reference to the revision, which controls everything that is made for it."""
    parent: Mapping[str, Any]
    """The reference to the package, which owns what its revisions share."""
    provider: bool = False
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    why_no_network: str = ""
    """Who decided that its pods open no connections; empty if they may."""

    @property
    def labels(self) -> dict[str, str]:
        role = "provider" if self.provider else "function"
        return {REVISION_LABEL: self.revision, f"pkg.crossplane.io/{role}": self.package}

    @property
    def service(self) -> str:
        return self._name("serviceTemplate")

    @property
    def deployment(self) -> str:
        return self._name("deploymentTemplate")

    @property
    def account(self) -> str:
        return _metadata(self.config, "serviceAccountTemplate").get("name") or self.revision

    @property
    def server_secret(self) -> str:
        return f"{self.revision}-tls-server"

    @property
    def client_secret(self) -> str:
        return f"{self.revision}-tls-client"

    def server_names(self, namespace: str) -> tuple[str, ...]:
        """What its certificate says; `server_name` is what callers look for."""
        return (self.service, server_name(self.service, namespace), f"{self.service}.{namespace}.svc")

    def _name(self, template: str) -> str:
        given = str(_metadata(self.config, template).get("name") or "")
        if not given:
            return self.revision
        suffix = self.revision.rpartition("-")[2]
        return f"{given[: _MAX_NAME_LENGTH - 1 - len(suffix)].rstrip('-')}-{suffix}"


def server_name(service: str, namespace: str) -> str:
    return f"{service}.{namespace}"


def objects_of(wanted: Deployed, namespace: str, *, certificate: str, drain_seconds: int) -> list[Object]:
    """Everything but Secrets, in the order in which it is needed. `certificate` names the one that pods start with."""
    made = [_service(wanted)]
    if not wanted.provider:
        made.append(_network_policy(wanted))
    if _account_of_pods(wanted) == wanted.account:
        made.append(_service_account(wanted))
    made.append(_deployment(wanted, certificate, drain_seconds))
    for obj in made:
        obj["metadata"]["namespace"] = namespace
    return made


def deployment_of(wanted: Deployed, namespace: str, *, replicas: int) -> Object:
    """The Deployment alone, with so many pods, whatever the configuration says."""
    made = _deployment(wanted, "", 0)
    made["metadata"]["namespace"] = namespace
    made["spec"]["replicas"] = replicas
    return made


def secret_of(wanted: Deployed, name: str, namespace: str, data: Mapping[str, str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {**_about(wanted, name), "namespace": namespace},
        "type": "kubernetes.io/tls",
        "data": dict(data),
    }


def unavailable(deployment: Mapping[str, Any], *, some_serve: bool = False) -> str:
    """Why a Deployment is not available; empty if it is, or was once and some of its pods still serve."""
    conditions = {each["type"]: each for each in (deployment.get("status") or {}).get("conditions") or ()}
    available, progressing = conditions.get("Available") or {}, conditions.get("Progressing") or {}
    rolled_out = progressing.get("reason") == "NewReplicaSetAvailable"
    if available.get("status") == "True" or (rolled_out and some_serve):
        return ""
    failure = conditions.get("ReplicaFailure") or {}
    wrong = [
        *([failure] if failure.get("status") == "True" else []),
        *([progressing] if progressing.get("status") == "False" else []),
        available,
    ]
    message = next((str(each["message"]) for each in wrong if each.get("message")), "")
    return f"its Deployment is not available: {message}" if message else STARTING


def stamped(obj: Object) -> Object:
    """The object with a digest of itself, so that it is seen later if something was taken out of it since."""
    digest = hashlib.sha256(msgspec.json.encode(obj, order="sorted")).hexdigest()[:16]
    metadata = obj["metadata"]
    annotations = {**(metadata.get("annotations") or {}), APPLIED_ANNOTATION: digest}
    return {**obj, "metadata": {**metadata, "annotations": annotations}}


def identified(obj: Object, present: Mapping[str, Any] | None) -> Object:
    """The object as it is sent to replace the present one: that one and no namesake."""
    return obj if present is None else {**obj, "metadata": {**obj["metadata"], "uid": uid_of(present)}}


def covers(live: Any, wanted: Any) -> bool:
    """Whether what is there has all that is wanted; an API server fills in more, and leaves out what is empty."""
    if isinstance(wanted, Mapping):
        if not wanted:
            return True
        return isinstance(live, Mapping) and all(covers(live.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return not wanted or (
            isinstance(live, list) and all(any(covers(there, each) for there in live) for each in wanted)
        )
    return wanted is None or bool(live == wanted)


# -- the objects


def _about(wanted: Deployed, name: str, template: str = "") -> Object:
    given = _metadata(wanted.config, template) if template else {}
    about: Object = {
        "name": name,
        "labels": {**(given.get("labels") or {}), **wanted.labels},
        "ownerReferences": [dict(wanted.owner)],
    }
    if given.get("annotations"):
        about["annotations"] = dict(given["annotations"])
    return about


def _service(wanted: Deployed) -> Object:
    name = "webhook" if wanted.provider else "grpc"
    port = {"name": name, "port": PORT, "targetPort": name, "protocol": "TCP", "appProtocol": "tls"}
    spec: Object = {"selector": wanted.labels, "ports": [port]}
    if not wanted.provider:  # callers find its pods themselves; API servers call webhooks by an address of the service
        spec["clusterIP"] = "None"
    return {**_kind(SERVICE), "metadata": _about(wanted, wanted.service, "serviceTemplate"), "spec": spec}


def _network_policy(wanted: Deployed) -> Object:
    """Who may call its pods; a policy for egress without a rule also lets them call nobody."""
    return {
        **_kind(NETWORK_POLICY),
        "metadata": _about(wanted, wanted.revision),
        "spec": {
            "podSelector": {"matchLabels": wanted.labels},
            "policyTypes": ["Ingress", "Egress"] if wanted.why_no_network else ["Ingress"],
            "ingress": [
                {
                    "from": [{"podSelector": {"matchLabels": dict(CALLER_LABELS)}}],
                    "ports": [{"port": "grpc", "protocol": "TCP"}],
                }
            ],
        },
    }


def _service_account(wanted: Deployed) -> Object:
    about = _about(wanted, wanted.account, "serviceAccountTemplate")
    if wanted.account != wanted.revision:
        about["ownerReferences"] = [{**wanted.parent, "controller": False}]
        about["labels"].pop(REVISION_LABEL)
    account: Object = {**_kind(SERVICE_ACCOUNT), "metadata": about}
    if wanted.pull_secrets:
        account["imagePullSecrets"] = [{"name": name} for name in wanted.pull_secrets]
    return account


def _deployment(wanted: Deployed, certificate: str, drain_seconds: int) -> Object:
    spec: Object = deepcopy((wanted.config.get("deploymentTemplate") or {}).get("spec") or {})
    template = spec.setdefault("template", {})
    about = template.setdefault("metadata", {})
    about["labels"] = {**(about.get("labels") or {}), **wanted.labels}
    started_with = {CERTIFICATE_ANNOTATION: certificate} if certificate else {}
    about["annotations"] = {**(about.get("annotations") or {}), **started_with}
    if wanted.provider:
        scraped = {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"}
        about["annotations"] = {**scraped, **about["annotations"]}
    spec["selector"] = {"matchLabels": wanted.labels}
    # The old pods of a function go once the new ones answer. Two of a provider would both create what is missing.
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    spec.setdefault("strategy", {"type": "Recreate"} if wanted.provider else rolling)
    template["spec"] = _pod(wanted, template.get("spec") or {}, drain_seconds)
    return {**_kind(DEPLOYMENT), "metadata": _about(wanted, wanted.deployment, "deploymentTemplate"), "spec": spec}


def _pod(wanted: Deployed, pod: Object, drain_seconds: int) -> Object:
    pod.setdefault("serviceAccountName", wanted.account)
    security = {
        "runAsNonRoot": True,
        "runAsUser": _USER,
        "runAsGroup": _USER,
        "fsGroup": _USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    pod["securityContext"] = {**security, **(pod.get("securityContext") or {})}
    if wanted.pull_secrets:
        given = pod.get("imagePullSecrets") or []
        pod["imagePullSecrets"] = _added(given, [{"name": name} for name in wanted.pull_secrets])
    if not wanted.provider:
        pod.setdefault("automountServiceAccountToken", False)
        pod.setdefault("terminationGracePeriodSeconds", drain_seconds + _SPARE_SECONDS)
    containers = pod.get("containers") or []
    runtime: Object = next((each for each in containers if each.get("name") == RUNTIME_CONTAINER), {})
    others = [each for each in containers if each is not runtime]
    volumes = [_secret_volume("tls-server-certs", wanted.server_secret)]
    if wanted.provider:
        volumes.append(_secret_volume("tls-client-certs", wanted.client_secret))
    container = _container(wanted, runtime, drain_seconds)
    if any(each["name"] == "scratch" for each in container["volumeMounts"]):
        volumes.append({"name": "scratch", "emptyDir": {}})
    pod["containers"] = [container, *others]
    pod["volumes"] = _added(pod.get("volumes") or [], volumes)
    return pod


def _container(wanted: Deployed, container: Object, drain_seconds: int) -> Object:
    container["name"] = RUNTIME_CONTAINER
    container.setdefault("image", wanted.image)
    container.setdefault("imagePullPolicy", wanted.pull_policy)
    security = {
        "runAsNonRoot": True,
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    if not wanted.provider:  # some providers unpack tools beside themselves
        security["readOnlyRootFilesystem"] = True
    security = container["securityContext"] = {**security, **(container.get("securityContext") or {})}
    container.setdefault("resources", {"requests": {"cpu": "50m", "memory": "64Mi"}})
    ports = [{"name": "metrics", "containerPort": 8080, "protocol": "TCP"}]
    ports.append({"name": "webhook" if wanted.provider else "grpc", "containerPort": PORT, "protocol": "TCP"})
    container["ports"] = _added(ports, container.get("ports") or [])  # somebody else's port may be named as ours is
    container["env"] = _added(container.get("env") or [], _environment(wanted))
    mounts = [{"name": "tls-server-certs", "mountPath": _SERVER_CERTS, "readOnly": True}]
    if wanted.provider:
        mounts.append({"name": "tls-client-certs", "mountPath": _CLIENT_CERTS, "readOnly": True})
    given = container.get("volumeMounts") or []
    if security.get("readOnlyRootFilesystem") and all(each.get("mountPath") != "/tmp" for each in given):
        mounts.append({"name": "scratch", "mountPath": "/tmp"})
    container["volumeMounts"] = _added(given, mounts, key="mountPath")
    if not wanted.provider:
        answers = {"tcpSocket": {"port": "grpc"}}
        container.setdefault("startupProbe", {**answers, "periodSeconds": 1, "failureThreshold": 120})
        container.setdefault("readinessProbe", {**answers, "periodSeconds": 10})
        # Few functions end their calls when they are told to end. Callers leave once the pod is being deleted, so all
        # that it takes is to go on serving for a while, which needs no shell in the image.
        container.setdefault("lifecycle", {"preStop": {"sleep": {"seconds": drain_seconds}}})
    return container


def _environment(wanted: Deployed) -> list[Object]:
    label = {"fieldRef": {"fieldPath": f"metadata.labels['{REVISION_LABEL}']"}}
    common: list[Object] = [
        {"name": "REVISION_NAME", "valueFrom": label},
        {"name": "REVISION_UID", "value": wanted.uid},
        {"name": "TLS_SERVER_CERTS_DIR", "value": _SERVER_CERTS},
    ]
    if not wanted.provider:
        return [{"name": "FUNCTION_NAME", "value": wanted.package}, *common]
    return [
        {"name": "PROVIDER_NAME", "value": wanted.package},
        {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        *common,
        {"name": "WEBHOOK_TLS_CERT_DIR", "value": _SERVER_CERTS},
        {"name": "TLS_CLIENT_CERTS_DIR", "value": _CLIENT_CERTS},
    ]


def _account_of_pods(wanted: Deployed) -> str:
    spec = (wanted.config.get("deploymentTemplate") or {}).get("spec") or {}
    pod = (spec.get("template") or {}).get("spec") or {}
    return str(pod.get("serviceAccountName") or wanted.account)


def _secret_volume(name: str, secret: str) -> Object:
    return {"name": name, "secret": {"secretName": secret, "defaultMode": 0o440}}


def _added(given: Iterable[Object], ours: list[Object], *, key: str = "name") -> list[Object]:
    """Both; of two with the same key, ours counts."""
    taken = {each[key] for each in ours}
    return [*(each for each in given if each.get(key) not in taken), *ours]


def _metadata(config: Mapping[str, Any], template: str) -> Mapping[str, Any]:
    return (config.get(template) or {}).get("metadata") or {}


def _kind(gvk: GroupVersionKind) -> Object:
    return {"apiVersion": gvk.api_version, "kind": gvk.kind}
