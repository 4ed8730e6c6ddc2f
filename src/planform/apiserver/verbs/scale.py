"""The scale subresource: an object's replica count behind one shape, whatever the kind."""

from __future__ import annotations

from typing import Any

from planform.api.kinds import Object
from planform.apimachinery.selectors import LabelSelector
from planform.apiserver.crds.registry import Scale, ServedKind
from planform.errors import BadRequest, Conflict, FieldError, InternalError, Invalid, naming


def scale_of(served: ServedKind, obj: Object) -> Object:
    """The autoscaling/v1 Scale of an object; raises InternalError while the spec path is absent."""
    paths = _paths(served)
    replicas = _get(obj, paths.spec_replicas)
    if replicas is None:
        if not served.builtin:
            raise InternalError(f"the spec replicas field {paths.spec_replicas!r} does not exist")
        replicas = 1
    metadata = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: dict[str, Any] = {"replicas": _get(obj, paths.status_replicas) or 0}
    selector = _get(obj, paths.selector) if paths.selector else None
    if isinstance(selector, str) and selector:
        status["selector"] = selector
    elif isinstance(selector, dict) and served.builtin:
        status["selector"] = str(LabelSelector.from_object(selector))
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": {"replicas": replicas},
        "status": status,
    }


def scaled(served: ServedKind, obj: Object, scale: Object) -> Object:
    """The object with the replica count that a Scale asks for; raises Invalid, BadRequest or Conflict."""
    if scale.get("kind") not in (None, "Scale"):
        raise BadRequest(f"the scale subresource takes a Scale, not a {scale['kind']}")
    metadata, spec = scale.get("metadata") or {}, scale.get("spec") or {}
    if type(metadata) is not dict or type(spec) is not dict:
        raise BadRequest("metadata and spec of a Scale must be objects")
    name = obj["metadata"]["name"]
    if metadata.get("name", name) != name:
        raise BadRequest(f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})")
    wanted = metadata.get("resourceVersion")
    if wanted and wanted != obj["metadata"].get("resourceVersion", wanted):
        raise Conflict(
            f'Operation cannot be fulfilled on {served.kind.resource} "{name}": the object has been modified; '
            "please apply your changes to the latest version and try again",
            details=naming(served.kind.group, served.kind.plural, name),
        )
    replicas = spec.get("replicas", 0)
    if type(replicas) is not int:
        raise BadRequest("spec.replicas of a Scale must be an integer")
    if replicas < 0:
        error = FieldError(
            "spec.replicas", "FieldValueInvalid", f"Invalid value: {replicas}: must be greater than or equal to 0"
        )
        raise Invalid.of("autoscaling", "Scale", name, [error])
    _set(obj, _paths(served).spec_replicas, replicas)
    return obj


def _paths(served: ServedKind) -> Scale:
    if served.scale is not None:
        return served.scale
    return Scale(".spec.replicas", ".status.replicas", ".spec.selector")


def _get(obj: Any, path: str) -> Any:
    for part in path.strip(".").split("."):
        if not isinstance(obj, dict):
            return None
        obj = obj.get(part)
    return obj


def _set(obj: Any, path: str, value: int) -> None:
    *parents, last = path.strip(".").split(".")
    for part in parents:
        if not isinstance(obj.get(part), dict):  # absent or null
            obj[part] = {}
        obj = obj[part]
    obj[last] = value
