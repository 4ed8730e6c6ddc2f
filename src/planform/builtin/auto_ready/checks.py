"""When the kinds that Kubernetes itself brings are ready; they say so in their own fields, not in a condition Ready."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from planform.functions.values import Object

Check = Callable[[Object], bool]


def _part(value: Object, member: str) -> Mapping[str, Any]:
    found = value.get(member)
    return found if isinstance(found, dict) else {}


def _conditions(value: Object) -> list[tuple[Any, Any]]:
    """Type and status of each condition, in their order."""
    found = _part(value, "status").get("conditions")
    listed = found if isinstance(found, list) else ()
    return [(each.get("type"), each.get("status")) for each in listed if isinstance(each, dict)]


def _number(part: Mapping[str, Any], member: str, default: int = 0) -> int:
    found = part.get(member)
    return found if type(found) is int else default


def has_condition(value: Object, kind: str) -> bool:
    """Whether a condition is true."""
    return (kind, "True") in _conditions(value)


def _exists(value: Object) -> bool:
    return True


def _has_address(value: Object) -> bool:
    balancer = _part(value, "status").get("loadBalancer")
    return isinstance(balancer, dict) and bool(balancer.get("ingress"))


def _service(value: Object) -> bool:
    return _part(value, "spec").get("type") != "LoadBalancer" or _has_address(value)


def _claim(value: Object) -> bool:
    return _part(value, "status").get("phase") == "Bound"


def _pod(value: Object) -> bool:
    phase = _part(value, "status").get("phase")
    if phase == "Succeeded":
        return True
    always = _part(value, "spec").get("restartPolicy") == "Always"
    return phase == "Running" and always and has_condition(value, "Ready")


def _replicas(value: Object) -> int:
    return _number(_part(value, "spec"), "replicas", default=1)


def _counts(value: Object, wanted: int, *members: str) -> bool:
    """Whether all counters show what is wanted; one that is absent counts as zero, but only where zero is wanted."""
    status = _part(value, "status")
    return all(status.get(member, 0 if wanted == 0 else None) == wanted for member in members)


def _deployment(value: Object) -> bool:
    wanted = _replicas(value)
    return _counts(value, wanted, "updatedReplicas", "availableReplicas") and has_condition(value, "Available")


def _stateful_set(value: Object) -> bool:
    status = _part(value, "status")
    return (
        _counts(value, _replicas(value), "readyReplicas", "currentReplicas")
        and status.get("currentRevision") is not None
        and status.get("currentRevision") == status.get("updateRevision")
    )


def _daemon_set(value: Object) -> bool:
    wanted = _part(value, "status").get("desiredNumberScheduled")
    return type(wanted) is int and _counts(value, wanted, "numberReady", "updatedNumberScheduled", "numberAvailable")


def _replica_set(value: Object) -> bool:
    status = _part(value, "status")
    seen = _number(status, "observedGeneration") >= _number(_part(value, "metadata"), "generation")
    enough = _number(status, "availableReplicas") >= _replicas(value)
    return seen and enough and not has_condition(value, "ReplicaFailure")


def _first_true(value: Object, bad: frozenset[str], good: frozenset[str]) -> bool:
    """Whether the first true condition that tells anything tells something good."""
    for kind, status in _conditions(value):
        if status == "True" and isinstance(kind, str) and kind in bad | good:
            return kind in good
    return False


def _job(value: Object) -> bool:
    return _first_true(value, frozenset({"Failed", "Suspended"}), frozenset({"Complete"}))


def _autoscaler(value: Object) -> bool:
    bad = frozenset({"FailedGetScale", "FailedUpdateScale", "FailedGetResourceMetric", "InvalidSelector"})
    return _first_true(value, bad, frozenset({"ScalingActive", "ScalingLimited"}))


def _cron_job(value: Object) -> bool:
    if _part(value, "spec").get("suspend") is True:
        return True
    status = _part(value, "status")
    scheduled = _time(status.get("lastScheduleTime"))
    if scheduled is None:
        return False
    succeeded = _time(status.get("lastSuccessfulTime"))
    return bool(status.get("active")) or (succeeded is not None and succeeded >= scheduled)


def _time(text: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


CHECKS: Final[dict[tuple[str, str], Check]] = {
    ("v1", "ConfigMap"): _exists,
    ("v1", "Secret"): _exists,
    ("v1", "ServiceAccount"): _exists,
    ("v1", "Namespace"): _exists,
    ("v1", "Service"): _service,
    ("v1", "PersistentVolumeClaim"): _claim,
    ("v1", "Pod"): _pod,
    ("apps/v1", "Deployment"): _deployment,
    ("apps/v1", "StatefulSet"): _stateful_set,
    ("apps/v1", "DaemonSet"): _daemon_set,
    ("apps/v1", "ReplicaSet"): _replica_set,
    ("batch/v1", "Job"): _job,
    ("batch/v1", "CronJob"): _cron_job,
    ("autoscaling/v2", "HorizontalPodAutoscaler"): _autoscaler,
    ("networking.k8s.io/v1", "Ingress"): _has_address,
    ("networking.k8s.io/v1", "NetworkPolicy"): _exists,
    ("policy/v1", "PodDisruptionBudget"): _exists,
    ("storage.k8s.io/v1", "StorageClass"): _exists,
    ("rbac.authorization.k8s.io/v1", "Role"): _exists,
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): _exists,
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): _exists,
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): _exists,
}
"""By the api version and kind of what is observed."""
