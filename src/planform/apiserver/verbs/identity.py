"""Whether an object is what its request says: its kind, name and namespace, and whether it may be there at all."""

from __future__ import annotations

import orjson

from planform.api.kinds import Object
from planform.apiserver.crds.registry import ServedKind
from planform.apiserver.verbs import metadata as meta
from planform.apiserver.verbs.core import Core
from planform.apiserver.verbs.staging import settle
from planform.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    FieldError,
    Forbidden,
    Invalid,
    NotFound,
    naming,
    qualified,
)
from planform.store import Entry, Key


def check_named(metadata: Object, name: str) -> None:
    if not metadata.get("name"):
        raise BadRequest(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")


def check_identity(served: ServedKind, obj: Object) -> None:
    """apiVersion and kind are those of the URL; built-in kinds may leave them out."""
    kind, version = obj.get("kind"), obj.get("apiVersion")
    if not kind or not version:
        if not served.builtin:
            missing = "Kind" if not kind else "apiVersion"
            raise BadRequest(f"Object '{missing}' is missing in the body of the request")
        obj["apiVersion"] = version = version or served.api_version
        obj["kind"] = kind = kind or served.kind.kind
    if version != served.api_version:
        raise BadRequest(
            f"the API version in the data ({version}) does not match the expected API version ({served.api_version})"
        )
    if kind != served.kind.kind:
        if served.builtin:
            raise BadRequest(f"the kind in the data ({kind}) does not match the expected kind ({served.kind.kind})")
        error = FieldError("kind", "FieldValueInvalid", f'Invalid value: "{kind}": must be {served.kind.kind}')
        name = str((obj.get("metadata") or {}).get("name", ""))
        raise Invalid.of(served.kind.group, kind, name, [error])


def place(served: ServedKind, metadata: Object, namespace: str) -> None:
    """The namespace is the URL's; an object may repeat it but not contradict it."""
    if not served.kind.namespaced:
        if metadata.get("namespace"):
            raise BadRequest("namespace is not allowed on a cluster-scoped object")
        metadata.pop("namespace", None)
        return
    sent = metadata.get("namespace")
    if sent and namespace and sent != namespace:
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
    if not namespace and not sent:  # which cannot be said over HTTP, where it stands in the URL
        name = metadata.get("name") or metadata.get("generateName") or ""
        raise BadRequest(f'{served.kind.resource} "{name}": a namespaced object needs a namespace')
    metadata["namespace"] = namespace or sent


def check_kind_stays(served: ServedKind, name: str) -> None:
    if served.terminating:
        raise Forbidden(
            f"{_shown(served, name)} is forbidden: create not allowed while custom resource definition is terminating",
            details=naming(served.kind.group, served.kind.plural, name),
        )


async def check_namespace(core: Core, served: ServedKind, namespace: str, name: str) -> None:
    key = Key("namespaces", "", namespace)
    entry = core.store.head(key)
    if entry is not None and (
        b'"deletionTimestamp"' not in entry.value or not meta.is_terminating(orjson.loads(entry.value))
    ):
        return  # without having waited: what is staged next rests on this
    await settle(core, key)
    if entry is None:
        raise NotFound.of("", "namespaces", namespace)
    text = f"unable to create new content in namespace {namespace} because it is being terminated"
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    raise Forbidden(
        f"{_shown(served, name)} is forbidden: {text}",
        details=naming(served.kind.group, served.kind.plural, name) | {"causes": [cause]},
    )


def already_exists(served: ServedKind, key: Key, there: Entry) -> AlreadyExists:
    text = f"{_shown(served, key.name)} already exists"
    if b'"deletionTimestamp"' in there.value and meta.is_terminating(orjson.loads(there.value)):
        text = f"object is being deleted: {text}"
    return AlreadyExists(text, details=naming(served.kind.group, served.kind.plural, key.name))


def conflict(served: ServedKind, name: str, text: str) -> Conflict:
    return Conflict(
        f"Operation cannot be fulfilled on {_shown(served, name)}: {text}",
        details=naming(served.kind.group, served.kind.plural, name),
    )


def _shown(served: ServedKind, name: str) -> str:
    return f'{qualified(served.kind.group, served.kind.plural)} "{name}"'
