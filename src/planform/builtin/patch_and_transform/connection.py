"""Connection details: what the XR tells its users about reaching what it composes, and the Secret that holds it.

An XR of the older kind gets its Secret from whoever carries out the plan. A newer one, recognised by
`spec.crossplane`, has none of its own: here one is composed for it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from planform.api.names import CONNECTION_SECRET_TYPE
from planform.apimachinery.fieldpath import FieldNotFound, FieldPathError, parse_path
from planform.builtin.compiled import Refused
from planform.builtin.patch_and_transform.conversion import TransformFailed, go_json
from planform.builtin.patch_and_transform.inputs import ConnectionDetail, ConnectionSecret
from planform.builtin.patch_and_transform.patches import COMBINING, compile_apply
from planform.builtin.patch_and_transform.values import PatchFailed
from planform.functions.values import Object, Ready, Resource

Extract = Callable[[Resource], bytes | None]

DETAIL_FIELDS: Final[dict[str, Callable[[ConnectionDetail], tuple[str, str | None]]]] = {
    "FromConnectionSecretKey": lambda detail: ("fromConnectionSecretKey", detail.from_connection_secret_key),
    "FromFieldPath": lambda detail: ("fromFieldPath", detail.from_field_path),
    "FromValue": lambda detail: ("value", detail.value),
}
"""The types of a connection detail, and the member that each needs."""


def detail_type(detail: ConnectionDetail) -> str:
    """The type as given, or else the one whose member is given; empty if that is not clear."""
    if detail.type:
        return detail.type
    given = [kind for kind, member in DETAIL_FIELDS.items() if member(detail)[1] is not None]
    return given[0] if len(given) == 1 else ""


def compile_details(details: Sequence[ConnectionDetail]) -> Callable[[Resource], dict[str, bytes]]:
    """What a template's observed resource contributes; a detail that cannot be read is left out."""
    extractors = [(detail.name or detail.from_connection_secret_key or "", _extract(detail)) for detail in details]

    def collect(observed: Resource) -> dict[str, bytes]:
        found = ((name, extract(observed)) for name, extract in extractors)
        return {name: value for name, value in found if value is not None}

    return collect


def _extract(detail: ConnectionDetail) -> Extract:
    match detail_type(detail):
        case "FromConnectionSecretKey":
            key = detail.from_connection_secret_key or ""
            return lambda observed: observed.connection_details.get(key)
        case "FromFieldPath":
            return _from_field(detail.from_field_path or "")
    literal = (detail.value or "").encode()
    return lambda observed: literal


def _from_field(text: str) -> Extract:
    get = parse_path(text).get

    def extract(observed: Resource) -> bytes | None:
        try:
            value = get(observed.resource)
            return (value if isinstance(value, str) else go_json(value)).encode()
        except (FieldPathError, TransformFailed):
            return None

    return extract


def compile_secret(spec: ConnectionSecret) -> Callable[[Object, Mapping[str, bytes]], tuple[str, Resource] | None]:
    """Makes the Secret of an XR, with the name under which it is composed; None for an XR that needs none."""
    patches = [(patch, compile_apply(patch)) for patch in spec.patches]

    def placed(xr: Object) -> dict[str, Any]:
        name, namespace = _metadata(xr)
        given = xr["spec"].get("writeConnectionSecretToRef")
        if isinstance(given, dict):
            place: dict[str, Any] = {key: given.get(key) for key in ("name", "namespace")}
        elif spec.name or spec.namespace:
            place = {"name": spec.name, "namespace": spec.namespace}
        else:
            place = {"name": f"{name}-connection", "namespace": namespace}
        for index, (patch, apply) in enumerate(patches):
            patched: dict[str, Any] = {}
            try:
                apply(xr, patched)
            except (FieldNotFound, PatchFailed) as error:
                if patch.type not in COMBINING and patch.policy.from_field_path == "Optional":
                    continue
                raise Refused(
                    f'cannot compose connection secret: "{patch.type}" patch at index {index}: {error}'
                ) from None
            place |= {key: value for key, value in patched.items() if isinstance(value, str)}
        return place

    def compose(xr: Object, details: Mapping[str, bytes]) -> tuple[str, Resource] | None:
        if not details or not _composes_own_secret(xr):
            return None
        place = placed(xr)
        # The namespace of a namespaced XR is that of all it composes, so that nothing has to name it.
        if not place["namespace"] and not _metadata(xr)[1]:
            raise Refused(
                "cannot compose connection secret: the composite resource is cluster scoped and nothing says which "
                "namespace the Secret goes to: set writeConnectionSecretToRef.namespace"
            )
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {key: value for key, value in place.items() if value},
            "type": CONNECTION_SECRET_TYPE,
            "data": {key: base64.b64encode(details[key]).decode() for key in sorted(details)},
        }
        return f"{_metadata(xr)[0]}-connection-secret", Resource(secret, ready=Ready.TRUE)

    return compose


def _composes_own_secret(xr: Object) -> bool:
    spec = xr.get("spec")
    return isinstance(spec, dict) and "crossplane" in spec


def _metadata(xr: Object) -> tuple[str, str]:
    metadata = xr.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    return str(found.get("name") or ""), str(found.get("namespace") or "")
