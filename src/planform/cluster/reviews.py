"""Admission reviews: an API server's question in its own words, put to the plugins of the embedded engine."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import msgspec
import orjson

from planform.api.annotations import annotations_of
from planform.api.kinds import Kind, Object
from planform.apiserver.admission.chain import Admission, AdmissionPlugin, Operation
from planform.apiserver.verbs.requests import Request, User
from planform.client.protocol import Propagation
from planform.errors import ApiError, BadRequest

API_VERSION = "admission.k8s.io/v1"


class _Named(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""
    resource: str = ""


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    kind: _Named
    resource: _Named
    operation: Operation
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: _User = _User()
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    dry_run: bool = False
    options: dict[str, Any] | None = None


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: _Request


@dataclass
class Verdict:
    """How a review ended, and the write that it was about."""

    admission: Admission
    uid: str
    refusal: ApiError | None = None
    patch: list[Object] = field(default_factory=list)

    def encode(self) -> bytes:
        response: Object = {"uid": self.uid, "allowed": self.refusal is None}
        if self.refusal is not None:
            response["status"] = self.refusal.to_status()
        elif self.patch:
            response |= {"patchType": "JSONPatch", "patch": base64.b64encode(orjson.dumps(self.patch)).decode()}
        if self.admission.request.warnings:
            response["warnings"] = self.admission.request.warnings
        return orjson.dumps({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


def parse(body: bytes) -> tuple[Admission, str]:
    """The write that a review is about, and the review's uid; raises BadRequest for what is no review."""
    try:
        asked = msgspec.json.decode(body, type=_Review)
    except msgspec.DecodeError as error:
        raise BadRequest(f"not an AdmissionReview: {error}") from error
    if asked.api_version != API_VERSION or asked.kind != "AdmissionReview":
        raise BadRequest(f"not an AdmissionReview of {API_VERSION}: {asked.kind} of {asked.api_version}")
    return _admission(asked.request), asked.request.uid


def validate(admission: Admission, uid: str, plugins: Sequence[AdmissionPlugin]) -> Verdict:
    """Ask the plugins in order; the first that refuses decides.

    What a plugin amends becomes a patch, which an API server takes from a mutating webhook only.
    """
    before, spec = deepcopy(_annotations(admission.new)), (admission.new or {}).get("spec")
    verdict = Verdict(admission, uid)
    try:
        for plugin in plugins:
            plugin.admit(admission)
    except ApiError as error:
        verdict.refusal = error
    verdict.patch = _patch(before, _annotations(admission.new))
    if admission.new is not None and admission.new.get("spec") is not spec:  # a plugin that amends it replaces it
        verdict.patch.append({"op": "add", "path": "/spec", "value": admission.new["spec"]})
    return verdict


def _admission(request: _Request) -> Admission:
    user, options = request.user_info, request.options or {}
    kind, old, new = request.kind, request.old_object, request.object
    policy = options.get("propagationPolicy") or ("Orphan" if options.get("orphanDependents") else "")
    metadata = (new or old or {}).get("metadata") or {}
    return Admission(
        operation=request.operation,
        kind=Kind(kind.group, kind.version, kind.kind, request.resource.resource, bool(request.namespace)),
        namespace=request.namespace,
        name=request.name or str(metadata.get("name") or metadata.get("generateName") or ""),
        new=new,
        old=old,
        subresource=request.sub_resource,
        request=Request(
            user=User(user.username, user.groups, user.uid, user.extra),
            manager=str(options.get("fieldManager") or ""),
            dry_run=request.dry_run,
        ),
        propagation=Propagation(policy) if policy in tuple(Propagation) else None,
    )


def _annotations(obj: Object | None) -> Mapping[str, str]:
    """What our plugins amend of an object, beside the spec of RolloutActions."""
    return annotations_of(obj)


def _patch(before: Mapping[str, str], after: Mapping[str, str]) -> list[Object]:
    if before == after:
        return []
    if not after:
        return [{"op": "remove", "path": "/metadata/annotations"}]
    return [{"op": "add", "path": "/metadata/annotations", "value": after}]
