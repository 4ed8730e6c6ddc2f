"""Create, update, patch and apply.

Every write is decided on the staged head of the store without waiting in between, so two writers never see the same
version; it is answered after the commit that made it durable. A refusal that rests on a version not yet durable waits
for that version first, since it would be a lie if the commit failed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import orjson

from planform.api.kinds import Object
from planform.apiserver import metadata as meta
from planform.apiserver import validation
from planform.apiserver.core import Core, answer_for, decode, decode_any, key_of, raw_any
from planform.apiserver.registry import ServedKind
from planform.apiserver.requests import Request
from planform.client.protocol import PatchType
from planform.clock import timestamp
from planform.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    FieldError,
    Forbidden,
    Invalid,
    NotFound,
    StoreError,
    UnsupportedMediaType,
    naming,
    qualified,
)
from planform.machinery import names, patches
from planform.machinery.apply import apply as apply_fields
from planform.machinery.apply import same_but_bookkeeping, track_update
from planform.machinery.jsonbody import to_keep
from planform.machinery.strategic import strategic_merge
from planform.machinery.typed import TypedError
from planform.store import Entry, Key

Change = Callable[[Object], Object]
"""Turns a private copy of the current object into the wanted one."""

_TRIES_FOR_A_NAME = 8
_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


@dataclass(frozen=True, slots=True)
class Written:
    """The object as it is now, in the version asked for. `gone` when this write removed the last finalizer."""

    value: bytes
    created: bool = False
    gone: bool = False
    object: Object | None = None
    """The same, decoded, where it was at hand; its fieldsV1 are shared with others."""


async def create(
    core: Core, served: ServedKind, obj: Object, request: Request, *, namespace: str = "", patching: bool = False
) -> Written:
    """Store a new object. `obj` becomes the engine's; raises AlreadyExists, Invalid, NotFound (namespace) and more."""
    unknown: list[str] = []
    metadata = meta.clean(obj, unknown)
    _check_identity(served, obj)
    if metadata.pop("resourceVersion", None) and not patching:
        raise BadRequest("resourceVersion should not be set on objects to be created")
    _place(served, metadata, namespace)
    namespace = metadata.get("namespace", "")
    client_managed = metadata.pop("managedFields", None)
    for name in (*meta.SERVER_OWNED, "selfLink"):
        metadata.pop(name, None)
    if served.kind.namespaced:
        await _check_namespace(core, served, namespace, metadata.get("name", ""))
    _check_kind_stays(served, metadata.get("name", ""))
    if served.has_status and not served.strategy.keeps_status_on_create:
        obj.pop("status", None)

    generated = not metadata.get("name") and bool(metadata.get("generateName"))
    if generated:
        metadata["name"] = names.generate_name(metadata["generateName"], core.rng)
    now = timestamp(core.clock.now())
    metadata["uid"] = names.new_uid(core.rng)
    metadata["creationTimestamp"] = now
    if served.strategy.counts_generations:
        metadata["generation"] = 1
    validation.admit(core, served, obj, None, request, unknown=unknown, patching=patching, applying=patching)
    if client_managed:
        metadata["managedFields"] = client_managed
    if not patching:
        _track(core, served, obj, None, request, "")
    stored = await _in_storage_version(core, served, obj)
    if served.conversion is not None:  # the webhook took time, in which namespace or kind may have gone
        _check_kind_stays(core.registry.find(served.kind.gvk), metadata["name"])
        if served.kind.namespaced:
            await _check_namespace(core, served, namespace, metadata["name"])

    tries = _TRIES_FOR_A_NAME if generated else 1
    while (there := core.store.head(key := key_of(served, namespace, metadata["name"]))) is not None:
        tries -= 1
        if not tries:
            await settle(core, key)
            raise _already_exists(served, key, there)
        stored["metadata"]["name"] = metadata["name"] = names.generate_name(metadata["generateName"], core.rng)
    if request.dry_run:
        return Written(encode(obj), created=True)
    return Written(await _stage(core, served, key, obj, stored), created=True, object=obj)


async def update(
    core: Core,
    served: ServedKind,
    obj: Object,
    request: Request,
    *,
    namespace: str = "",
    name: str = "",
    subresource: str = "",
) -> Written:
    """Replace an object (or its status) with what the client sent."""
    unknown: list[str] = []
    metadata = meta.clean(obj, unknown)
    _check_identity(served, obj)
    name = name or metadata.get("name", "")
    _check_named(metadata, name)
    if metadata["name"] != name:
        raise BadRequest(f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})")
    _place(served, metadata, namespace)
    if not metadata.get("resourceVersion") and not served.strategy.allows_blind_update:
        error = FieldError(
            "metadata.resourceVersion",
            "FieldValueInvalid",
            "Invalid value: 0: must be specified for an update",
        )
        raise Invalid.of(served.kind.group, served.kind.plural, name, [error])
    key = key_of(served, metadata.get("namespace", ""), name)

    def replaced(current: Object) -> Object:
        if metadata.get("uid") and metadata["uid"] != current["metadata"]["uid"]:
            raise conflict(
                served,
                key.name,
                f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: "
                f"{current['metadata']['uid']}",
            )
        fresh: Object = {**obj, "metadata": {**metadata}}
        return fresh

    return await modify(core, served, key, replaced, request, subresource=subresource, unknown=unknown, replacing=True)


async def patch(
    core: Core,
    served: ServedKind,
    namespace: str,
    name: str,
    patch_type: PatchType,
    body: Any,
    request: Request,
    *,
    subresource: str = "",
) -> Written:
    """Change what the patch says. Never loses a race: it is computed on the newest version."""
    key = key_of(served, namespace, name)
    if patch_type is PatchType.STRATEGIC and not served.builtin:
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        )

    def patched(current: Object) -> Object:
        before = current["metadata"]
        try:
            match patch_type:
                case PatchType.JSON:
                    result = patches.json_patch(current, body)
                case PatchType.MERGE:
                    result = patches.merge_patch(current, body)
                case PatchType.STRATEGIC:
                    result = strategic_merge(current, body, served.openapi or {}, resolve=served.resolve)
        except patches.MalformedPatch as error:
            raise BadRequest(f"error decoding patch: {error}") from error
        except patches.PatchError as error:
            raise Invalid(
                f"the server rejected our request due to an error in our request: {error}",
                details=naming(served.kind.group, served.kind.plural, name),
            ) from error
        if type(result) is not dict or type(result.get("metadata")) is not dict:
            raise BadRequest("the patch does not leave an object with metadata behind")
        after = result["metadata"]
        if after.get("name", name) != name or after.get("namespace", "") != before.get("namespace", ""):
            raise BadRequest("the name or namespace of an object cannot be changed by a patch")
        if after.get("uid", before["uid"]) != before["uid"]:
            error_ = FieldError(
                "metadata.uid", "FieldValueInvalid", f'Invalid value: "{after["uid"]}": field is immutable'
            )
            raise Invalid.of(served.kind.group, served.kind.kind, name, [error_])
        _check_identity(served, result)
        return result

    return await modify(core, served, key, patched, request, subresource=subresource, unknown=[], patching=True)


async def apply(
    core: Core,
    served: ServedKind,
    namespace: str,
    name: str,
    config: Object,
    request: Request,
    *,
    force: bool = False,
    subresource: str = "",
) -> Written:
    """Server-side apply: this manager wants exactly these fields."""
    unknown: list[str] = []
    metadata = config.get("metadata")
    if type(metadata) is dict and metadata.get("managedFields"):
        raise BadRequest("metadata.managedFields must be nil")
    metadata = meta.clean(config, unknown)
    _check_named(metadata, name)
    if metadata["name"] != name:
        raise BadRequest(f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})")
    if (config.get("apiVersion"), config.get("kind")) != (served.api_version, served.kind.kind):
        group, _, version = str(config.get("apiVersion") or "").rpartition("/")
        raise BadRequest(f"invalid object type: {group}/{version}, Kind={config.get('kind') or ''}")
    _place(served, metadata, namespace)
    if request.validation == "Strict" and unknown:
        raise BadRequest(f'strict decoding error: unknown field "{unknown[0]}"')
    key = key_of(served, metadata.get("namespace", ""), name)
    now = timestamp(core.clock.now())

    def applied(current: Object | None) -> Object:
        wanted_version = metadata.get("resourceVersion")
        if current is not None and wanted_version and wanted_version != current["metadata"]["resourceVersion"]:
            raise conflict(served, key.name, _MODIFIED)
        if current is not None and metadata.get("uid") and metadata["uid"] != current["metadata"]["uid"]:
            raise conflict(served, key.name, "the UID in the patch does not match the UID of the object")
        try:
            return apply_fields(
                current,
                config,
                node=served.node,
                manager=request.manager,
                api_version=served.api_version,
                subresource=subresource,
                force=force,
                now=now,
                status_subresource=served.has_status,
                sets_fit=_is_current(served, core.store.head(key)),
            )
        except TypedError as error:
            raise BadRequest(str(error)) from error

    if core.store.head(key) is None:
        await settle(core, key)
        if core.store.head(key) is None:
            if subresource:
                raise NotFound.of(served.kind.group, served.kind.plural, name)
            if metadata.get("uid"):
                raise conflict(served, key.name, f"uid mismatch: the provided object specified uid {metadata['uid']}")
            return await create(core, served, applied(None), request, namespace=namespace, patching=True)
    return await modify(
        core, served, key, applied, request, subresource=subresource, unknown=unknown, patching=True, applying=True
    )


async def modify(
    core: Core,
    served: ServedKind,
    key: Key,
    change: Change,
    request: Request,
    *,
    subresource: str = "",
    unknown: list[str] | None = None,
    patching: bool = False,
    applying: bool = False,
    replacing: bool = False,
) -> Written:
    """Change an existing object on its newest version; the loop turns only for kinds with a conversion webhook.

    `replacing` promises that `change` makes a new object, with metadata that have been cleaned.
    """
    findings = [] if unknown is None else unknown
    while True:
        entry = core.store.head(key)
        if entry is None:
            await settle(core, key)
            raise NotFound.of(served.kind.group, served.kind.plural, key.name)
        try:
            if served.conversion is None:
                old = decode(served, entry)
                # An apply shares nothing with what it is given, and a replacement takes nothing from it.
                current = old if applying or replacing else decode(served, entry)
            else:
                old, current = [(await decode_any(core, served, [entry]))[0] for _ in range(2)]
            new = change(current)
            found = list(findings)
            sent = new["metadata"] if replacing else meta.clean(new, found)
            _settle_metadata(served, key, new, old, sent, applying=applying)
            _confine(served, new, old, subresource)
            validation.admit(
                core,
                served,
                new,
                old,
                request,
                unknown=found,
                subresource=subresource,
                patching=patching,
                applying=applying,
                settled=_settled(served, entry, new, old),
            )
            _check_finalizers(served, key, new, old)
            if not applying:
                _track(core, served, new, old, request, subresource, sets_fit=_is_current(served, entry))
            _count_generation(served, new, old)
        except ApiError:
            await settle(core, key)
            raise
        if same_but_bookkeeping(old, new):
            await settle(core, key)
            return Written(await raw_any(core, served, entry))
        stored = await _in_storage_version(core, served, new)
        if not unmoved(core, key, entry):
            continue
        finished = meta.is_terminating(new) and not _is_held(served, new)
        if request.dry_run:
            return Written(encode(new), gone=finished)
        if finished:
            return await _finish(core, served, key, entry, new, old, stored)
        return Written(await _stage(core, served, key, new, stored), object=new)


def unmoved(core: Core, key: Key, entry: Entry) -> bool:
    """Whether nobody staged another version meanwhile."""
    head = core.store.head(key)
    return head is not None and head.rv == entry.rv


def _settle_metadata(served: ServedKind, key: Key, new: Object, old: Object, sent: Object, *, applying: bool) -> None:
    """The new object's metadata: what clients own from what the client sent, everything else from the stored object."""
    stored = old["metadata"]
    wanted = sent.get("resourceVersion")
    if wanted and wanted != "0" and wanted != stored["resourceVersion"]:
        raise conflict(served, key.name, _MODIFIED)
    ending = sent.get("deletionTimestamp")
    if ending and ending != stored.get("deletionTimestamp"):
        error = names.invalid("metadata.deletionTimestamp", ending, "field is immutable")
        raise Invalid.of(served.kind.group, served.kind.kind, key.name, [error])
    merged = {name: value for name, value in stored.items() if name not in meta.CLIENT_OWNED}
    for name in meta.CLIENT_OWNED:
        if sent.get(name):
            merged[name] = sent[name]
    managed = sent.get("managedFields")
    if managed or (applying and managed is not None):
        merged["managedFields"] = managed
    elif applying:
        merged.pop("managedFields", None)
    new["metadata"] = merged


def _is_current(served: ServedKind, entry: Entry | None) -> bool:
    """Whether an object was written under the present schema, in this very version."""
    return entry is not None and served.is_storage and entry.rv > served.schema_rv


def _settled(served: ServedKind, entry: Entry, new: Object, old: Object) -> Collection[str]:
    """The top-level fields that a write left as they were admitted under the present schema."""
    if not _is_current(served, entry):
        return ()
    return [name for name, value in new.items() if name != "metadata" and value is old.get(name)]


def _confine(served: ServedKind, new: Object, old: Object, subresource: str) -> None:
    """A status write changes only the status, and any other write never does, where the kind separates them."""
    if subresource == "status":
        status, managed = new.get("status"), new["metadata"].get("managedFields")
        new_metadata = {**old["metadata"]}
        if managed is not None:
            new_metadata["managedFields"] = managed
        for name in [name for name in new if name not in old]:
            del new[name]
        new.update({name: value for name, value in old.items() if name not in ("status", "metadata")})
        new["metadata"] = new_metadata
        if status is None:
            new.pop("status", None)
        else:
            new["status"] = status
    elif served.has_status and subresource == "":
        if "status" in old:
            new["status"] = old["status"]
        else:
            new.pop("status", None)


def _track(
    core: Core,
    served: ServedKind,
    new: Object,
    old: Object | None,
    request: Request,
    subresource: str,
    *,
    sets_fit: bool = False,
) -> None:
    managed = track_update(
        old,
        new,
        node=served.node,
        manager=request.manager,
        api_version=served.api_version,
        subresource=subresource if subresource in ("status", "scale") else "",
        now=timestamp(core.clock.now()),
        status_subresource=served.has_status,
        sets_fit=sets_fit,
    )
    if managed:
        new["metadata"]["managedFields"] = managed
    else:
        new["metadata"].pop("managedFields", None)


def _count_generation(served: ServedKind, new: Object, old: Object) -> None:
    if not served.strategy.counts_generations:
        return
    same = served.strategy.same(old, new)
    if same and not served.has_status:
        same = old.get("status") == new.get("status")
    if not same:
        new["metadata"]["generation"] = int(old["metadata"].get("generation", 0)) + 1


def _check_finalizers(served: ServedKind, key: Key, new: Object, old: Object) -> None:
    if not meta.is_terminating(old):
        return
    before = old["metadata"].get("finalizers", ())
    added = [finalizer for finalizer in new["metadata"].get("finalizers", ()) if finalizer not in before]
    if added:
        found = ", ".join(f'"{finalizer}"' for finalizer in added)
        error = FieldError(
            "metadata.finalizers",
            "FieldValueForbidden",
            "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers "
            f"[]string{{{found}}}",
        )
        raise Invalid.of(served.kind.group, served.kind.kind, key.name, [error])


def _is_held(served: ServedKind, obj: Object) -> bool:
    return bool(obj["metadata"].get("finalizers")) or served.strategy.holds(obj)


async def _finish(
    core: Core, served: ServedKind, key: Key, entry: Entry, new: Object, old: Object, stored: Object
) -> Written:
    """The write that removed the last finalizer deletes: its event shows the state before, its answer keeps the RV."""
    last = orjson.loads(entry.value)
    last["metadata"]["resourceVersion"] = str(core.store.next_revision())
    await commit(core.store.stage(key, None, last=encode(last)))
    new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
    return Written(encode(new), gone=True)


async def _stage(core: Core, served: ServedKind, key: Key, obj: Object, stored: Object) -> bytes:
    version = str(core.store.next_revision())
    stored["metadata"]["resourceVersion"] = version
    value = encode(stored)
    future = core.store.stage(key, value)
    if stored is not obj:
        obj["metadata"]["resourceVersion"] = version
        answer = encode(obj)
    else:
        answer = value
    await commit(future)
    return answer


async def commit(future: Any) -> None:
    try:
        await future
    except StoreError as error:
        raise answer_for(error) from error


async def settle(core: Core, key: Key) -> None:
    try:
        await core.store.settled(key)
    except StoreError as error:
        raise answer_for(error) from error


async def _in_storage_version(core: Core, served: ServedKind, obj: Object) -> Object:
    if served.is_storage:
        return obj
    if served.to_storage is not None:
        return served.to_storage(obj)
    if served.conversion is None or core.webhooks is None:
        return {**obj, "apiVersion": served.storage_api_version, "metadata": {**obj["metadata"]}}
    [converted] = await core.webhooks.convert(served, [obj], served.storage_api_version)
    if served.storage_schema is not None:
        served.storage_schema.prune(converted)
        served.storage_schema.default(converted)
    return converted


def encode(obj: Object) -> bytes:
    """Canonical bytes: apiVersion, kind and metadata first, so that a version can be told from the first bytes."""
    try:
        value = orjson.dumps({"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": obj["metadata"], **obj})
    except (TypeError, orjson.JSONEncodeError) as error:
        raise BadRequest(f"the object cannot be stored as JSON: {error}") from error
    return to_keep(value)


def _check_named(metadata: Object, name: str) -> None:
    if not metadata.get("name"):
        raise BadRequest(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")


def _check_identity(served: ServedKind, obj: Object) -> None:
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


def _place(served: ServedKind, metadata: Object, namespace: str) -> None:
    """The namespace is the URL's; an object may repeat it but not contradict it."""
    if not served.kind.namespaced:
        if metadata.get("namespace"):
            raise BadRequest("namespace is not allowed on a cluster-scoped object")
        metadata.pop("namespace", None)
        return
    sent = metadata.get("namespace")
    if sent and namespace and sent != namespace:
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
    metadata["namespace"] = namespace or sent or "default"


def _check_kind_stays(served: ServedKind, name: str) -> None:
    if served.terminating:
        raise Forbidden(
            f"{_shown(served, name)} is forbidden: create not allowed while custom resource definition is terminating",
            details=naming(served.kind.group, served.kind.plural, name),
        )


async def _check_namespace(core: Core, served: ServedKind, namespace: str, name: str) -> None:
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


def _already_exists(served: ServedKind, key: Key, there: Entry) -> AlreadyExists:
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
