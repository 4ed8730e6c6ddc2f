"""The built-in kinds' own rules: what each fills in, refuses, and can be selected by."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import orjson

from planform.api.kinds import Object
from planform.apimachinery.names import label_problems, path_segment_problems
from planform.apiserver.crds.strategies import Strategy
from planform.apiserver.verbs.metadata import name_of
from planform.errors import BadRequest, FieldError, Forbidden, naming

PROTECTED_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})
_DATA_LIMIT = 1024 * 1024
_SURELY_FITS = _DATA_LIMIT // 4  # so many characters are never more bytes than the limit
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}$")
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)$")
_SECRET_KEYS: Mapping[str, tuple[str, ...]] = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


def invalid(field: str, value: object, detail: str) -> FieldError:
    shown = f'"{value}"' if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {shown}: {detail}")


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(field, "FieldValueRequired", f"Required value{': ' + detail if detail else ''}")


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {detail}")


@lru_cache(maxsize=4096)
def _is_data_key(key: str) -> bool:
    return _DATA_KEY.match(key) is not None


class Plain(Strategy):
    """Kinds that are data only: no generations, unconditional updates allowed."""

    counts_generations: ClassVar[bool] = False
    allows_unconditional_update: ClassVar[bool] = True
    allows_bare_finalizers: ClassVar[bool] = False


class Counted(Plain):
    """Kinds that are data only, but count the changes of their spec."""

    counts_generations: ClassVar[bool] = True


class Namespaces(Plain):
    """Begin Active with the finalizer `kubernetes`, end when the namespace controller has emptied them."""

    keeps_status_on_create: ClassVar[bool] = True
    selectable: ClassVar[Mapping[str, str]] = {"status.phase": "status.phase"}

    def name_problems(self, name: str) -> list[str]:
        return label_problems(name)

    def prepare(self, new: Object, old: Object | None, subresource: str) -> None:
        new["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name_of(new)
        if old is None:
            new["status"] = {"phase": "Active"}
            spec = new.get("spec") or {}
            wanted = (spec.get("finalizers") or []) if isinstance(spec, dict) else None
            if isinstance(wanted, list):  # the schema refuses anything else
                new["spec"] = {"finalizers": [*(name for name in wanted if name != "kubernetes"), "kubernetes"]}
        elif subresource != "finalize":
            if "spec" in old:
                new["spec"] = old["spec"]
            else:
                new.pop("spec", None)

    def begin_delete(self, obj: Object) -> bool:
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        return True

    def holds(self, obj: Object) -> bool:
        return bool((obj.get("spec") or {}).get("finalizers"))

    def may_be_deleted(self, obj: Object) -> None:
        if name_of(obj) in PROTECTED_NAMESPACES:
            raise Forbidden(
                f'namespaces "{name_of(obj)}" is forbidden: this namespace may not be deleted',
                details=naming("", "namespaces", name_of(obj)),
            )


class ConfigMaps(Plain):
    def validate(self, new: Object, old: Object | None, subresource: str) -> Sequence[FieldError]:
        data, binary = new.get("data") or {}, new.get("binaryData") or {}
        if (
            not binary
            and old is None
            and all(map(_is_data_key, data))
            and sum(map(len, data.values())) < _SURELY_FITS
            and "." not in data
            and ".." not in data
        ):
            return ()
        errors = [*_key_errors("data", data), *_key_errors("binaryData", binary)]
        errors += [
            invalid(f"data[{key}]", key, "duplicate of key present in binaryData") for key in data if key in binary
        ]
        _check_base64("ConfigMap", "binaryData", binary)
        size = sum(len(value.encode()) for value in data.values()) + sum(len(v) * 3 // 4 for v in binary.values())
        if size > _DATA_LIMIT:
            errors.append(FieldError("", "FieldValueTooLong", f"Too long: may not be more than {_DATA_LIMIT} bytes"))
        return [*errors, *_immutable_errors(new, old, ("data", "binaryData"))]


class Secrets(Plain):
    selectable: ClassVar[Mapping[str, str]] = {"type": "type"}

    def prepare(self, new: Object, old: Object | None, subresource: str) -> None:
        plain, data = new.get("stringData") or {}, new.get("data") or {}
        if isinstance(data, dict) and isinstance(plain, dict) and _are_texts(plain.values()):
            new.pop("stringData", None)  # whatever has another type stays, for the schema to refuse
            if plain:
                encoded = {
                    key: base64.b64encode(value.encode()).decode() for key, value in plain.items() if value is not None
                }
                new["data"] = {**data, **encoded}
        if not new.get("type"):
            new["type"] = (old or {}).get("type") or "Opaque"

    def validate(self, new: Object, old: Object | None, subresource: str) -> Sequence[FieldError]:
        data = new.get("data") or {}
        _check_base64("Secret", "data", data)
        errors = list(_key_errors("data", data))
        if sum(len(value) * 3 // 4 for value in data.values()) > _DATA_LIMIT:
            errors.append(
                FieldError("data", "FieldValueTooLong", f"Too long: may not be more than {_DATA_LIMIT} bytes")
            )
        errors += [required(f"data[{key}]") for key in _SECRET_KEYS.get(new["type"], ()) if key not in data]
        if new["type"] == "kubernetes.io/basic-auth" and not data.keys() & {"username", "password"}:
            errors += [required("data[username]"), required("data[password]")]
        if old is not None and new["type"] != old.get("type"):
            errors.append(invalid("type", new["type"], "field is immutable"))
        return [*errors, *_immutable_errors(new, old, ("data",))]


class ServiceAccounts(Plain):
    pass


class Leases(Plain):
    allows_unconditional_update: ClassVar[bool] = False

    def validate(self, new: Object, old: Object | None, subresource: str) -> Sequence[FieldError]:
        spec = new.get("spec") or {}
        for field in ("acquireTime", "renewTime"):
            value = spec.get(field)
            if value is not None and not _MICRO_TIME.match(str(value)):
                raise BadRequest(f'Lease in version "v1": spec.{field}: "{value}" is not a time with six decimals')
        errors = [
            invalid(f"spec.{field}", spec[field], "must be greater than 0")
            for field in ("leaseDurationSeconds",)
            if spec.get(field) is not None and spec[field] <= 0
        ]
        if (spec.get("leaseTransitions") or 0) < 0:
            errors.append(
                invalid("spec.leaseTransitions", spec["leaseTransitions"], "must be greater than or equal to 0")
            )
        return errors


class Events(Plain):
    selectable: ClassVar[Mapping[str, str]] = {
        **{
            f"involvedObject.{field}": f"involvedObject.{field}"
            for field in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
        },
        "reason": "reason",
        "reportingComponent": "reportingComponent",
        "source": "source.component",
        "type": "type",
    }

    def validate(self, new: Object, old: Object | None, subresource: str) -> Sequence[FieldError]:
        involved = new.get("involvedObject") or new.get("regarding") or {}
        field = "involvedObject" if "involvedObject" in new else "regarding"
        namespace, where = involved.get("namespace") or "", new["metadata"].get("namespace") or ""
        if namespace != where and not (namespace == "" and where == "default"):
            return [invalid(f"{field}.namespace", namespace, "does not match event.namespace")]
        return ()


class NewEvents(Events):
    """events.k8s.io: the same objects in another shape, and stricter about what they must say."""

    selectable: ClassVar[Mapping[str, str]] = {
        **{
            f"regarding.{field}": f"involvedObject.{field}"
            for field in ("kind", "namespace", "name", "uid", "apiVersion")
        },
        "reason": "reason",
        "reportingController": "reportingComponent",
        "type": "type",
    }

    def validate(self, new: Object, old: Object | None, subresource: str) -> Sequence[FieldError]:
        errors = list(super().validate(new, old, subresource))
        if old is None:
            if not new.get("eventTime"):
                errors.append(required("eventTime"))
            if new.get("type") not in ("Normal", "Warning"):
                errors.append(invalid("type", new.get("type", ""), "has invalid value"))
        return errors


_EVENT_NAMES = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("reportingComponent", "reportingController"),
)


def event_to_core(event: Object) -> Object:
    """An events.k8s.io Event as the core Event that is stored."""
    return _renamed(event, {new: old for old, new in _EVENT_NAMES}, "v1")


def event_from_core(event: Object) -> Object:
    """A stored core Event in the shape of events.k8s.io."""
    return _renamed(event, dict(_EVENT_NAMES), "events.k8s.io/v1")


def _renamed(event: Object, names: Mapping[str, str], api_version: str) -> Object:
    renamed = {names.get(field, field): value for field, value in event.items()}
    return {**renamed, "apiVersion": api_version, "metadata": {**event["metadata"]}}


class Roles(Plain):
    def name_problems(self, name: str) -> list[str]:
        return path_segment_problems(name)

    def validate(self, new: Object, old: Object | None, subresource: str) -> Sequence[FieldError]:
        errors = []
        for index, rule in enumerate(new.get("rules") or ()):
            if not rule.get("verbs"):
                errors.append(required(f"rules[{index}].verbs", "verbs must contain at least one value"))
            if rule.get("nonResourceURLs"):
                if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                    errors.append(
                        invalid(
                            f"rules[{index}].nonResourceURLs",
                            rule["nonResourceURLs"],
                            "rules cannot apply to both regular resources and non-resource URLs",
                        )
                    )
                if new["kind"] == "Role":
                    errors.append(
                        invalid(
                            f"rules[{index}].nonResourceURLs",
                            rule["nonResourceURLs"],
                            "namespaced rules cannot apply to non-resource URLs",
                        )
                    )
            else:
                errors += [
                    required(f"rules[{index}].{field}", f"resource rules must supply at least one {word}")
                    for field, word in (("apiGroups", "api group"), ("resources", "resource"))
                    if not rule.get(field)
                ]
        return errors


class RoleBindings(Plain):
    def name_problems(self, name: str) -> list[str]:
        return path_segment_problems(name)

    def prepare(self, new: Object, old: Object | None, subresource: str) -> None:
        ref = new.get("roleRef")
        if isinstance(ref, dict) and not ref.get("apiGroup"):
            ref["apiGroup"] = "rbac.authorization.k8s.io"
        for subject in _listed(new.get("subjects")):
            if isinstance(subject, dict) and not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
                subject["apiGroup"] = "rbac.authorization.k8s.io"

    def validate(self, new: Object, old: Object | None, subresource: str) -> Sequence[FieldError]:
        ref = new.get("roleRef") or {}
        errors = [] if ref.get("name") else [required("roleRef.name")]
        kinds = ("ClusterRole",) if new["kind"] == "ClusterRoleBinding" else ("Role", "ClusterRole")
        if ref.get("kind") not in kinds:
            supported = ", ".join(f'"{kind}"' for kind in kinds)
            text = f'Unsupported value: "{ref.get("kind") or ""}": supported values: {supported}'
            errors.append(FieldError("roleRef.kind", "FieldValueNotSupported", text))
        if old is not None and ref != old.get("roleRef"):
            errors.append(invalid("roleRef", ref, "field is immutable"))
        for index, subject in enumerate(new.get("subjects") or ()):
            if not subject.get("name"):
                errors.append(required(f"subjects[{index}].name"))
            if subject.get("kind") not in ("User", "Group", "ServiceAccount"):
                errors.append(
                    FieldError(
                        f"subjects[{index}].kind",
                        "FieldValueNotSupported",
                        f'Unsupported value: "{subject.get("kind", "")}": supported values: "ServiceAccount", '
                        '"User", "Group"',
                    )
                )
        return errors


class Services(Strategy):
    counts_generations: ClassVar[bool] = False
    allows_unconditional_update: ClassVar[bool] = True
    allows_bare_finalizers: ClassVar[bool] = False
    selectable: ClassVar[Mapping[str, str]] = {"spec.clusterIP": "spec.clusterIP", "spec.type": "spec.type"}

    def prepare(self, new: Object, old: Object | None, subresource: str) -> None:
        spec = new.get("spec")
        if not isinstance(spec, dict) or subresource:
            return
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        spec.setdefault("internalTrafficPolicy", "Cluster")
        for port in _listed(spec.get("ports")):
            if isinstance(port, dict):
                port.setdefault("protocol", "TCP")
                if "port" in port:
                    port.setdefault("targetPort", port["port"])
        if old is not None and not spec.get("clusterIP") and (old.get("spec") or {}).get("clusterIP"):
            spec["clusterIP"] = old["spec"]["clusterIP"]

    def warnings(self, new: Object, old: Object | None) -> Sequence[str]:
        return _stored_only(old, "Service", "no address is assigned and nothing is routed")


class Workloads(Strategy):
    """Deployments and their like: stored for those who compose them, run by nobody here."""

    allows_unconditional_update: ClassVar[bool] = True
    allows_bare_finalizers: ClassVar[bool] = False

    def prepare(self, new: Object, old: Object | None, subresource: str) -> None:
        spec = new.get("spec")
        if isinstance(spec, dict) and not subresource:
            _workload_defaults(new.get("kind", ""), spec)

    def validate(self, new: Object, old: Object | None, subresource: str) -> Sequence[FieldError]:
        if new["kind"] not in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet") or subresource:
            return ()
        spec = new.get("spec") or {}
        errors = []
        selector = (spec.get("selector") or {}).get("matchLabels")
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
        if not spec.get("selector"):
            errors.append(required("spec.selector"))
        elif selector and any(labels.get(key) != value for key, value in selector.items()):
            errors.append(
                invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
            )
        if old is not None and spec.get("selector") != (old.get("spec") or {}).get("selector"):
            errors.append(invalid("spec.selector", spec.get("selector"), "field is immutable"))
        replicas = spec.get("replicas")
        if isinstance(replicas, int) and replicas < 0:
            errors.append(invalid("spec.replicas", replicas, "must be greater than or equal to 0"))
        return errors

    def warnings(self, new: Object, old: Object | None) -> Sequence[str]:
        return _stored_only(old, str(new["kind"]), "no pods are started")


class Pods(Workloads):
    counts_generations: ClassVar[bool] = True
    selectable: ClassVar[Mapping[str, str]] = {
        "spec.nodeName": "spec.nodeName",
        "spec.restartPolicy": "spec.restartPolicy",
        "spec.serviceAccountName": "spec.serviceAccountName",
        "status.phase": "status.phase",
        "status.podIP": "status.podIP",
    }

    def prepare(self, new: Object, old: Object | None, subresource: str) -> None:
        spec = new.get("spec")
        if isinstance(spec, dict) and not subresource:
            _pod_defaults(spec)


def _workload_defaults(kind: str, spec: dict[str, Any]) -> None:
    """What the real controllers' API fills in, so that diffs against manifests look the same here."""
    template = spec.get("template")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        _pod_defaults(template["spec"])
    match kind:
        case "Deployment":
            spec.setdefault("replicas", 1)
            spec.setdefault("revisionHistoryLimit", 10)
            spec.setdefault("progressDeadlineSeconds", 600)
            strategy = spec.setdefault("strategy", {})
            if isinstance(strategy, dict) and strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
                rolling = strategy.get("rollingUpdate")
                if not isinstance(rolling, dict):
                    rolling = strategy["rollingUpdate"] = {}
                rolling.setdefault("maxSurge", "25%")
                rolling.setdefault("maxUnavailable", "25%")
        case "ReplicaSet":
            spec.setdefault("replicas", 1)
        case "StatefulSet":
            spec.setdefault("replicas", 1)
            spec.setdefault("revisionHistoryLimit", 10)
            spec.setdefault("podManagementPolicy", "OrderedReady")
            spec.setdefault("updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
        case "DaemonSet":
            spec.setdefault("revisionHistoryLimit", 10)


def _pod_defaults(spec: dict[str, Any]) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    if isinstance(spec.get("serviceAccountName"), str):
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    for field in ("containers", "initContainers"):
        for container in _listed(spec.get(field)):
            if isinstance(container, dict):
                _container_defaults(container)


def _container_defaults(container: dict[str, Any]) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("resources", {})
    image = container.get("image")
    if isinstance(image, str):
        tag = image.rpartition("/")[2].partition(":")[2]
        container.setdefault(
            "imagePullPolicy", "Always" if tag in ("", "latest") and "@" not in image else "IfNotPresent"
        )
    for port in _listed(container.get("ports")):
        if isinstance(port, dict):
            port.setdefault("protocol", "TCP")


def _are_texts(values: Iterable[object]) -> bool:
    return all(value is None or isinstance(value, str) for value in values)


def _listed(values: object) -> Sequence[Any]:
    """The items of a list; none of anything else, which the schema refuses."""
    return values if isinstance(values, list) else ()


def _stored_only(old: Object | None, kind: str, consequence: str) -> Sequence[str]:
    if old is not None:
        return ()
    return (f"this control plane stores {kind} objects but does not run them: {consequence}",)


def _key_errors(field: str, data: Mapping[str, Any]) -> Iterator[FieldError]:
    for key in data:
        if not _DATA_KEY.match(key) or key in (".", ".."):
            yield invalid(
                f"{field}[{key}]",
                key,
                "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
                "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
            )


def _check_base64(kind: str, field: str, data: Mapping[str, Any]) -> None:
    for key, value in data.items():
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise BadRequest(
                f'{kind} in version "v1" cannot be handled as a {kind}: illegal base64 data in {field}.{key}: {error}'
            ) from error


def _immutable_errors(new: Object, old: Object | None, fields: Sequence[str]) -> Iterator[FieldError]:
    if old is None or not old.get("immutable"):
        return
    if not new.get("immutable"):
        yield forbidden("immutable", "field is immutable when `immutable` is set")
    for field in fields:
        if (new.get(field) or {}) != (old.get(field) or {}):
            yield forbidden(field, "field is immutable when `immutable` is set")


STRATEGIES: Mapping[str, Strategy] = {
    "namespaces": Namespaces(),
    "configmaps": ConfigMaps(),
    "secrets": Secrets(),
    "serviceaccounts": ServiceAccounts(),
    "events": Events(),
    "events.events.k8s.io": NewEvents(),
    "leases.coordination.k8s.io": Leases(),
    "roles.rbac.authorization.k8s.io": Roles(),
    "clusterroles.rbac.authorization.k8s.io": Roles(),
    "rolebindings.rbac.authorization.k8s.io": RoleBindings(),
    "clusterrolebindings.rbac.authorization.k8s.io": RoleBindings(),
    "horizontalpodautoscalers.autoscaling": Counted(),
    "ingresses.networking.k8s.io": Counted(),
    "networkpolicies.networking.k8s.io": Counted(),
    "poddisruptionbudgets.policy": Counted(),
    "services": Services(),
    "pods": Pods(),
    "deployments.apps": Workloads(),
    "replicasets.apps": Workloads(),
    "statefulsets.apps": Workloads(),
    "daemonsets.apps": Workloads(),
    "jobs.batch": Workloads(),
    "cronjobs.batch": Workloads(),
}
PLAIN = Plain()
