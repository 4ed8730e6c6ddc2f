"""Subresources other than status: scale, a namespace's finalize. (Tokens are issued in `tokens`, on the wire only.)"""

from __future__ import annotations

from typing import Any

import orjson

from planform.api.kinds import Object
from planform.apimachinery import patches
from planform.apiserver.crds.registry import ServedKind
from planform.apiserver.verbs import applies, reads, writes
from planform.apiserver.verbs.core import Core, key_of
from planform.apiserver.verbs.requests import Request
from planform.apiserver.verbs.scale import scale_of, scaled
from planform.client.protocol import PatchType
from planform.errors import BadRequest, NotFound


async def get(core: Core, served: ServedKind, namespace: str, name: str, subresource: str) -> Object:
    _check_served(served, subresource)
    obj = await reads.get_object(core, served, namespace, name)
    return scale_of(served, obj) if subresource == "scale" else obj


async def update(
    core: Core, served: ServedKind, namespace: str, name: str, subresource: str, body: Object, request: Request
) -> Object:
    """Replace the Scale, or the spec.finalizers of a namespace."""
    _check_served(served, subresource)
    key = key_of(served, namespace, name)
    if subresource == "finalize":
        written = await writes.modify(
            core, served, key, lambda now: _finalized(now, body), request, subresource="finalize"
        )
        return _decoded(written.value)
    written = await writes.modify(
        core, served, key, lambda now: scaled(served, now, body), request, subresource="scale"
    )
    return scale_of(served, _decoded(written.value))


async def patch(
    core: Core,
    served: ServedKind,
    namespace: str,
    name: str,
    subresource: str,
    patch_type: PatchType,
    body: Any,
    request: Request,
) -> Object:
    """Patch the Scale as if it were an object of its own."""
    _check_served(served, subresource)
    if subresource != "scale":
        raise BadRequest(f"the {subresource} subresource takes no patches")

    def change(current: Object) -> Object:
        scale = scale_of(served, current)
        try:
            if patch_type is PatchType.JSON:
                wanted = patches.json_patch(scale, body)
            else:
                wanted = patches.merge_patch(scale, body)
        except patches.PatchError as error:
            raise BadRequest(f"error decoding patch: {error}") from error
        if type(wanted) is not dict:
            raise BadRequest("the patch does not leave a Scale behind")
        return scaled(served, current, wanted)

    key = key_of(served, namespace, name)
    written = await writes.modify(core, served, key, change, request, subresource="scale", patching=True)
    return scale_of(served, _decoded(written.value))


async def apply_scale(
    core: Core, served: ServedKind, namespace: str, name: str, body: Object, request: Request, *, force: bool
) -> Object:
    """Server-side apply of a Scale: this manager wants the replica count, and owns nothing else."""
    _check_served(served, "scale")
    wanted = scaled(served, {"metadata": {"name": name}}, body)
    config = {"apiVersion": served.api_version, "kind": served.kind.kind, **wanted}
    written = await applies.apply(core, served, namespace, name, config, request, force=force, subresource="scale")
    return scale_of(served, _decoded(written.value))


def _finalized(current: Object, body: Object) -> Object:
    sent, wanted = body.get("metadata") or {}, body.get("spec") or {}
    if type(sent) is not dict or type(wanted) is not dict:
        raise BadRequest("metadata and spec of a Namespace must be objects")
    spec = {**current.get("spec", {})}
    if wanted.get("finalizers"):
        spec["finalizers"] = wanted["finalizers"]
    else:
        spec.pop("finalizers", None)
    version = sent.get("resourceVersion") or current["metadata"]["resourceVersion"]
    return {**current, "metadata": {**current["metadata"], "resourceVersion": version}, "spec": spec}


def _check_served(served: ServedKind, subresource: str) -> None:
    if subresource not in served.kind.subresources:
        raise NotFound("the server could not find the requested resource")


def _decoded(value: bytes) -> Object:
    obj: Object = orjson.loads(value)
    return obj
