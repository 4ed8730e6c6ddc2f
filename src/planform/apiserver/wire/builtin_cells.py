"""What one cell of `kubectl get` says of one built-in object. Pure text-making; `builtin_columns` gives it headings.

The wording is what people know from a cluster, down to `<none>`, `<unset>` and `N/A`, since scripts match on it.
Objects may be of any age and shape, so nothing is assumed to be there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, Final

from planform.api.kinds import Object
from planform.apimachinery.age import UNKNOWN, human_duration
from planform.clock import parse_timestamp

NONE: Final = "<none>"
UNSET: Final = "<unset>"

TextOf = Callable[[Object], str]


def at(value: Any, *path: str) -> Any:
    """What is found along the path, None where it breaks off."""
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def joined(values: Iterable[Any], absent: str = "") -> str:
    return ",".join(map(str, values)) or absent


def first_of(values: Sequence[str], shown: int, separator: str = ",") -> str:
    more = f" + {len(values) - shown} more..." if len(values) > shown else ""
    return (separator.join(values[:shown]) or NONE) + more


def spelled(absent: str, *path: str) -> TextOf:
    """Any value as text; zero is a value."""

    def cell(obj: Object) -> str:
        value = at(obj, *path)
        return absent if value is None else str(value)

    return cell


def labels(value: Any) -> str:
    return joined((f"{key}={value[key]}" for key in sorted(value)), NONE) if value else NONE


def label_selector(value: Any) -> str:
    """A LabelSelector as the command line would spell it, in order of the labels' names."""
    demands = [(key, f"{key}={found}") for key, found in (at(value, "matchLabels") or {}).items()]
    for demand in at(value, "matchExpressions") or ():
        key, values = demand.get("key", ""), joined(sorted(demand.get("values") or ()))
        match demand.get("operator"):
            case "In":
                demands.append((key, f"{key} in ({values})"))
            case "NotIn":
                demands.append((key, f"{key} notin ({values})"))
            case "Exists":
                demands.append((key, key))
            case "DoesNotExist":
                demands.append((key, f"!{key}"))
    return joined((text for _, text in sorted(demands, key=itemgetter(0))), NONE)


def true_conditions(obj: Object) -> set[str]:
    return {entry.get("type", "") for entry in at(obj, "status", "conditions") or () if entry.get("status") == "True"}


def counted(*fields: str) -> Callable[[Object], int]:
    """How many entries these maps have together."""
    return lambda obj: sum(len(at(obj, field) or ()) for field in fields)


# -- pods and what makes them

_POD_SPECS: Final = (
    ("spec", "jobTemplate", "spec", "template", "spec"),
    ("spec", "template", "spec"),
    ("template", "spec"),
)


def pod_spec(obj: Object) -> Any:
    """The pod spec inside a workload's template."""
    return next((found for path in _POD_SPECS if (found := at(obj, *path)) is not None), None)


def containers(field: str) -> TextOf:
    return lambda obj: joined(container.get(field, "") for container in at(pod_spec(obj), "containers") or ())


def ready_of_wanted(obj: Object) -> str:
    return f"{at(obj, 'status', 'readyReplicas') or 0}/{at(obj, 'spec', 'replicas') or 0}"


def pod_ready(obj: Object) -> str:
    statuses = at(obj, "status", "containerStatuses") or ()
    return f"{sum(1 for status in statuses if status.get('ready'))}/{len(at(obj, 'spec', 'containers') or ())}"


def pod_status(obj: Object) -> str:
    """The most telling word: going away, why a container does not run, or the phase."""
    if at(obj, "metadata", "deletionTimestamp"):
        return "Unknown" if at(obj, "status", "reason") == "NodeLost" else "Terminating"
    for status in at(obj, "status", "containerStatuses") or ():
        reason = at(status, "state", "waiting", "reason") or at(status, "state", "terminated", "reason")
        if reason:
            return str(reason)
    return str(at(obj, "status", "reason") or at(obj, "status", "phase") or "Unknown")


def pod_restarts(obj: Object) -> str:
    return str(sum(status.get("restartCount", 0) for status in at(obj, "status", "containerStatuses") or ()))


def readiness_gates(obj: Object) -> str:
    gates = [gate.get("conditionType") for gate in at(obj, "spec", "readinessGates") or ()]
    return f"{len(true_conditions(obj).intersection(gates))}/{len(gates)}" if gates else NONE


_JOB_WORDS: Final = ("Complete", "Failed", "Terminating", "Suspended", "FailureTarget", "SuccessCriteriaMet")


def job_status(obj: Object) -> str:
    """The first of these words that is true of the job; all but one are conditions."""
    true = true_conditions(obj)
    if at(obj, "metadata", "deletionTimestamp"):
        true.add("Terminating")
    return next((word for word in _JOB_WORDS if word in true), "Running")


def job_completions(obj: Object) -> str:
    succeeded, completions = at(obj, "status", "succeeded") or 0, at(obj, "spec", "completions")
    if completions is not None:
        return f"{succeeded}/{completions}"
    parallelism = at(obj, "spec", "parallelism") or 0
    return f"{succeeded}/1" + (f" of {parallelism}" if parallelism > 1 else "")


def job_duration(obj: Object, now: datetime) -> str:
    started, ended = at(obj, "status", "startTime"), at(obj, "status", "completionTime")
    if not started:
        return ""
    end = parse_timestamp(ended) if ended else now
    return human_duration((end - parse_timestamp(started)).total_seconds())


def suspended(obj: Object) -> str:
    value = at(obj, "spec", "suspend")
    return UNSET if value is None else str(bool(value))


def scale_target(obj: Object) -> str:
    return f"{at(obj, 'spec', 'scaleTargetRef', 'kind')}/{at(obj, 'spec', 'scaleTargetRef', 'name')}"


_METRIC_SOURCES: Final = {
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}


def scale_metrics(obj: Object) -> str:
    """Each metric as measured/wanted, as in `cpu: 40%/80%`; at most two of them."""
    measured = at(obj, "status", "currentMetrics") or []
    shown = []
    for position, metric in enumerate(at(obj, "spec", "metrics") or ()):
        source = _METRIC_SOURCES.get(metric.get("type", ""))
        if source is None:
            shown.append("<unknown type>")
            continue
        current = at(measured[position], source, "current") if position < len(measured) else None
        shown.append(_metric(metric[source], current, named=source.lower().endswith("resource"), averaging=source))
    return first_of(shown, 2, ", ")


def _metric(metric: Mapping[str, Any], current: Any, *, named: bool, averaging: str) -> str:
    target = at(metric, "target")
    prefix = f"{metric.get('name', '')}: " if named else ""
    if (average := at(target, "averageValue")) is not None:
        suffix = " (avg)" if averaging in ("object", "external") else ""
        return f"{prefix}{at(current, 'averageValue') or UNKNOWN}/{average}{suffix}"
    if not named:
        return f"{at(current, 'value') or UNKNOWN}/{at(target, 'value')}"
    use, wanted = at(current, "averageUtilization"), at(target, "averageUtilization")
    return f"{prefix}{UNKNOWN if use is None else f'{use}%'}/{'<auto>' if wanted is None else f'{wanted}%'}"


# -- networks and storage


def _points(obj: Object) -> list[str]:
    ingress = at(obj, "status", "loadBalancer", "ingress") or ()
    return [point.get("ip") or point.get("hostname", "") for point in ingress]


def external_ip(obj: Object) -> str:
    external = at(obj, "spec", "externalIPs") or []
    match at(obj, "spec", "type"):
        case "ExternalName":
            return str(at(obj, "spec", "externalName") or "")
        case "LoadBalancer":
            return joined([*_points(obj), *external], "<pending>")
        case _:
            return joined(external, NONE)


def service_ports(obj: Object) -> str:
    ports = []
    for port in at(obj, "spec", "ports") or ():
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        ports.append(f"{port.get('port')}{node}/{port.get('protocol') or 'TCP'}")
    return joined(ports, NONE)


def endpoints(obj: Object) -> str:
    found = []
    for subset in at(obj, "subsets") or ():
        addresses = [address.get("ip", "") for address in subset.get("addresses") or ()]
        ports = subset.get("ports")
        if not ports:
            found += addresses
        for port in ports or ():
            found += [f"[{ip}]:{port['port']}" if ":" in ip else f"{ip}:{port['port']}" for ip in addresses]
    return first_of(found, 3)


def ingress_hosts(obj: Object) -> str:
    hosts = [rule["host"] for rule in at(obj, "spec", "rules") or () if rule.get("host")]
    return first_of(hosts, 3) if hosts else "*"


def ingress_address(obj: Object) -> str:
    return joined(_points(obj))


def ingress_ports(obj: Object) -> str:
    return "80, 443" if at(obj, "spec", "tls") else "80"


_ACCESS_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def claim_status(obj: Object) -> str:
    return "Terminating" if at(obj, "metadata", "deletionTimestamp") else str(at(obj, "status", "phase") or "")


def access_modes(obj: Object) -> str:
    """Those of the volume, once there is one."""
    modes = at(obj, "status", "accessModes") or () if at(obj, "spec", "volumeName") else ()
    return joined(short for mode, short in _ACCESS_MODES.items() if mode in modes)


def quota(*, limits: bool) -> TextOf:
    """Used and allowed amounts; those of limits go to a column of their own."""

    def cell(obj: Object) -> str:
        hard, used = at(obj, "status", "hard") or at(obj, "spec", "hard") or {}, at(obj, "status", "used") or {}
        chosen = [name for name in sorted(hard) if name.startswith("limits.") == limits]
        return ", ".join(f"{name}: {used.get(name, 0)}/{hard[name]}" for name in chosen)

    return cell


# -- events, definitions and rights


def event_object(field: str) -> TextOf:
    def cell(obj: Object) -> str:
        kind, name = str(at(obj, field, "kind") or "").lower(), at(obj, field, "name")
        return f"{kind}/{name}" if name else kind

    return cell


def event_source(source: str, controller: str) -> TextOf:
    def cell(obj: Object) -> str:
        who = at(obj, source, "component") or at(obj, controller) or ""
        where = at(obj, source, "host") or at(obj, "reportingInstance") or ""
        return f"{who}, {where}" if where else str(who)

    return cell


def served_versions(obj: Object) -> str:
    """The versions of a definition that clients may use, and which of them is stored."""
    served = (version for version in at(obj, "spec", "versions") or () if version.get("served"))
    return joined(sorted(str(entry.get("name")) + ("(storage)" if entry.get("storage") else "") for entry in served))


def established(obj: Object) -> bool:
    return "Established" in true_conditions(obj)


def role_reference(obj: Object) -> str:
    return f"{at(obj, 'roleRef', 'kind')}/{at(obj, 'roleRef', 'name')}"


def subjects(kind: str) -> TextOf:
    def cell(obj: Object) -> str:
        chosen = [subject for subject in at(obj, "subjects") or () if subject.get("kind") == kind]
        if kind == "ServiceAccount":
            return ", ".join(f"{subject.get('namespace', '')}/{subject.get('name', '')}" for subject in chosen)
        return ", ".join(str(subject.get("name", "")) for subject in chosen)

    return cell


def param_kind(policy: Object) -> str:
    kind = at(policy, "spec", "paramKind")
    return f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else UNSET


def param_ref(binding: Object) -> str:
    """The parameters of a policy binding; of one without a namespace, it is that of whatever is written."""
    reference = at(binding, "spec", "paramRef")
    if not reference:
        return UNSET
    if reference.get("name"):
        return f"{reference.get('namespace') or '*'}/{reference['name']}"
    return label_selector(reference.get("selector"))
