"""Create, update and patch; `modify` changes what is there, for these and for others.

Every write is decided on the staged head of the store without waiting in between, so two writers never see the same
version; it is answered after the commit that made it durable. A refusal that rests on a version not yet durable waits
for that version first, since it would be a lie if the commit failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from planform.api.kinds import Object
from planform.apimachinery import names, patches
from planform.apimachinery.apply import same_but_server_metadata, track_update
from planform.apimachinery.merging import fresh, share_unchanged
from planform.apimachinery.strategic import strategic_merge
from planform.apiserver.admission import validation
from planform.apiserver.admission.chain import Operation
from planform.apiserver.admission.dynamic.attributes import Attributes
from planform.apiserver.crds.registry import ServedKind
from planform.apiserver.verbs import metadata as meta
from planform.apiserver.verbs.core import Core, decode, decode_any, key_of, raw_any
from planform.apiserver.verbs.identity import (
    already_exists,
    check_identity,
    check_kind_stays,
    check_named,
    check_namespace,
    conflict,
    place,
)
from planform.apiserver.verbs.requests import Request
from planform.apiserver.verbs.scale import scale_of, scaled
from planform.apiserver.verbs.staging import Written, encode, finish, in_storage_version, settle, stage, unmoved
from planform.client.protocol import PatchType
from planform.clock import timestamp
from planform.errors import ApiError, BadRequest, FieldError, Invalid, NotFound, UnsupportedMediaType, naming
from planform.store import Entry, Key

if TYPE_CHECKING:
    from planform.apiserver.admission.dynamic.dispatch import Relevant

Change = Callable[[Object], Object]
"""Turns a private copy of the current object into the wanted one."""

_TRIES_FOR_A_NAME = 8
_TRIES_FOR_A_VERSION = 32
"""How often a write is computed anew because webhooks took time in which others wrote."""
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


async def create(  # noqa: C901  (the order of a write is the contract)
    core: Core, served: ServedKind, obj: Object, request: Request, *, namespace: str = "", patching: bool = False
) -> Written:
    """Store a new object. `obj` becomes the engine's; raises AlreadyExists, Invalid, NotFound (namespace) and more.

    `patching` says that an apply made it, and promises that its metadata are clean.
    """
    unknown: list[str] = []
    metadata = obj["metadata"] if patching else meta.clean(obj, unknown)
    check_identity(served, obj)
    if metadata.pop("resourceVersion", None) and not patching:
        raise BadRequest("resourceVersion should not be set on objects to be created")
    place(served, metadata, namespace)
    namespace = metadata.get("namespace", "")
    client_managed = metadata.pop("managedFields", None)
    for name in meta.NEVER_KEPT_ON_CREATE:
        metadata.pop(name, None)
    if served.kind.namespaced:
        await check_namespace(core, served, namespace, metadata.get("name", ""))
    check_kind_stays(served, metadata.get("name", ""))
    if served.has_status and not served.strategy.keeps_status_on_create:
        obj.pop("status", None)

    asked = _relevant(core, served, "CREATE", "")
    tracked = patching
    if asked is not None and asked.mutating:
        obj = await _mutated_on_create(core, served, obj, request, asked, unknown, client_managed, patching=patching)
        metadata, unknown, tracked = obj["metadata"], [], True
        place(served, metadata, namespace)
        client_managed = metadata.pop("managedFields", None)
        request = _without_repeated_warnings(request)

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
    if not tracked:
        _track(core, served, obj, None, request, "")
    if asked is not None:
        await _validated(core, served, obj, None, request, asked, "")
    stored = obj if served.is_storage else await in_storage_version(core, served, obj)
    if served.conversion is not None or asked is not None:
        # Webhooks took time, in which namespace or kind may have gone, and what plugins look at may be another.
        check_kind_stays(core.registry.find(served.kind.gvk), metadata["name"])
        if served.kind.namespaced:
            await check_namespace(core, served, namespace, metadata["name"])
        if asked is not None:
            validation.ask_plugins(core, served, obj, None, request, "")

    tries = _TRIES_FOR_A_NAME if generated else 1
    while (there := core.store.head(key := key_of(served, namespace, metadata["name"]))) is not None:
        tries -= 1
        if not tries:
            await settle(core, key)
            raise already_exists(served, key, there)
        stored["metadata"]["name"] = metadata["name"] = names.generate_name(metadata["generateName"], core.rng)
    if request.dry_run:
        return Written(encode(obj), created=True)
    return Written(await stage(core, served, key, obj, stored), created=True, object=obj)


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
    check_identity(served, obj)
    name = name or metadata.get("name", "")
    check_named(metadata, name)
    if metadata["name"] != name:
        raise BadRequest(f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})")
    place(served, metadata, namespace)
    if not metadata.get("resourceVersion") and not served.strategy.allows_unconditional_update:
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
                    result = _apart(patches.json_patch(current, body), body)
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
        result = {**result, "metadata": {**after}}
        check_identity(served, result)
        return result

    # A merge patch puts what it changes in new maps. The other kinds of patch may also move things.
    sharing = patch_type is PatchType.MERGE
    return await modify(
        core, served, key, patched, request, subresource=subresource, unknown=[], patching=True, sharing=sharing
    )


def _apart(result: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """The result of a JSON patch with nothing in two places, as a copied map is: admission changes maps in place."""
    if all(operation["op"] != "copy" for operation in operations):
        return result
    try:
        return fresh(result)
    except orjson.JSONEncodeError:  # nested too deeply, as will be said in its turn
        return result


async def modify(  # noqa: C901  (the same)
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
    sharing: bool = False,
) -> Written:
    """Change an existing object on its newest version; the loop turns only where webhooks take time.

    `replacing` and `applying` promise that `change` makes a new object with clean metadata, `sharing` that it changes
    nothing in place. Of the object it was given, a replacement has no part, an apply as much as `may_share` allows, and
    what only shares all that it left alone; each part is where it was.
    """
    findings = [] if unknown is None else unknown
    asked = _relevant(core, served, "UPDATE", subresource)
    for _ in range(_TRIES_FOR_A_VERSION):
        entry = core.store.head(key)
        if entry is None:
            await settle(core, key)
            raise NotFound.of(served.kind.group, served.kind.plural, key.name)
        fits, shares = is_current(served, entry), may_share(served, entry)
        try:
            if served.conversion is None:
                old = decode(served, entry)
                safe = applying or replacing or (sharing and shares)
                current = old if safe else decode(served, entry)
            else:
                old, current = [(await decode_any(core, served, [entry]))[0] for _ in range(2)]
            new = change(current)
            found, call, tracked = list(findings), request, applying
            sent = new["metadata"] if replacing or applying else meta.clean(new, found)
            _check_metadata(served, key, old, sent)
            _settle(served, new, old, sent, subresource, applying=applying)
            if asked is not None and asked.mutating:
                validation.shape(
                    served,
                    new,
                    old,
                    request,
                    unknown=found,
                    subresource=subresource,
                    patching=patching,
                    applying=applying,
                    current=fits,
                )
                if not applying:
                    _track(core, served, new, old, request, subresource, sets_fit=fits)
                new = await _mutated_on_update(core, served, key, new, old, request, asked, subresource)
                found, call, tracked = [], _without_repeated_warnings(request), True
            if shares and not sharing and not applying:
                share_unchanged(old, new)
            validation.admit(
                core,
                served,
                new,
                old,
                call,
                unknown=found,
                subresource=subresource,
                patching=patching,
                applying=applying,
                current=fits,
            )
            _check_finalizers(served, key, new, old)
            if not tracked:
                _track(core, served, new, old, request, subresource, sets_fit=fits)
            _count_generation(served, new, old)
            if asked is not None:
                await _validated(core, served, new, old, request, asked, subresource)
                if not unmoved(core, key, entry):  # it is computed anew, and asked about
                    continue
        except ApiError:
            await settle(core, key)
            raise
        if same_but_server_metadata(old, new):
            await settle(core, key)
            return Written(await raw_any(core, served, entry))
        stored = new if served.is_storage else await in_storage_version(core, served, new)
        if not unmoved(core, key, entry):  # a conversion webhook takes time
            continue
        if asked is not None:
            try:
                validation.ask_plugins(core, served, new, old, request, subresource)
            except ApiError:
                await settle(core, key)
                raise
        finished = meta.is_terminating(new) and not _is_held(served, new)
        if request.dry_run:
            return Written(encode(new), gone=finished)
        if finished:
            return await finish(core, served, key, entry, new, old, stored)
        return Written(await stage(core, served, key, new, stored), object=new)
    raise conflict(served, key.name, MODIFIED)


def _relevant(core: Core, served: ServedKind, operation: Operation, subresource: str) -> Relevant | None:
    """What users configured to be asked about such a write; None, nearly always, if there is nothing."""
    if core.dynamic_admission is None:
        return None
    return core.dynamic_admission.relevant(served, operation, subresource)


def _without_repeated_warnings(request: Request) -> Request:
    """The request for a second look at its object: what a client did wrong has been said, and webhooks are forgiven."""
    return msgspec.structs.replace(request, validation="Ignore", duplicates=())


async def _mutated_on_create(
    core: Core,
    served: ServedKind,
    obj: Object,
    request: Request,
    asked: Relevant,
    unknown: list[str],
    managed: list[Object] | None,
    *,
    patching: bool,
) -> Object:
    """The object as mutating webhooks leave it. They see it with its managers, and before it has a uid."""
    assert core.dynamic_admission is not None
    validation.shape(served, obj, None, request, unknown=unknown, patching=patching, applying=patching)
    metadata = obj["metadata"]
    if managed:
        metadata["managedFields"] = managed
    if not patching:
        _track(core, served, obj, None, request, "")
    namespace, name = metadata.get("namespace", ""), metadata.get("name", "")
    attributes = Attributes(served, "CREATE", namespace, name, "", obj, None, request)
    if not await core.dynamic_admission.mutate(asked, attributes):
        return obj
    changed = attributes.object
    assert changed is not None
    metadata = meta.clean(changed, [])
    _keep_managers(metadata, obj["metadata"])
    check_identity(served, changed)
    for field in (*meta.NEVER_KEPT_ON_CREATE, "resourceVersion"):
        metadata.pop(field, None)
    if served.has_status and not served.strategy.keeps_status_on_create:
        changed.pop("status", None)
    return changed


async def _mutated_on_update(
    core: Core,
    served: ServedKind,
    key: Key,
    new: Object,
    old: Object,
    request: Request,
    asked: Relevant,
    subresource: str,
) -> Object:
    assert core.dynamic_admission is not None
    attributes = _update_attributes(served, new, old, request, subresource)
    if not await core.dynamic_admission.mutate(asked, attributes):
        return new
    changed = attributes.object
    assert changed is not None
    if subresource == "scale":
        return scaled(served, new, changed)
    sent = meta.clean(changed, [])
    _keep_managers(sent, new["metadata"])
    check_identity(served, changed)
    after = (sent.get("name"), sent.get("namespace", ""))
    if after != (key.name, key.namespace):
        raise BadRequest("the name or namespace of an object cannot be changed by an admission webhook")
    _check_metadata(served, key, old, sent)
    _settle(served, changed, old, sent, subresource, applying=False)
    return changed


def _keep_managers(changed: Object, before: Object) -> None:
    """A webhook may take away who manages what, but not make it up."""
    if changed.get("managedFields") and "managedFields" in before:
        changed["managedFields"] = before["managedFields"]
    else:
        changed.pop("managedFields", None)


async def _validated(
    core: Core,
    served: ServedKind,
    new: Object,
    old: Object | None,
    request: Request,
    asked: Relevant,
    subresource: str,
) -> None:
    """Raises what policies and validating webhooks have against the object as it would be stored."""
    assert core.dynamic_admission is not None
    if old is None:
        metadata = new["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        attributes = Attributes(served, "CREATE", namespace, name, "", new, None, request)
    else:
        attributes = _update_attributes(served, new, old, request, subresource)
    await core.dynamic_admission.validate(asked, attributes)


def _update_attributes(served: ServedKind, new: Object, old: Object, request: Request, subresource: str) -> Attributes:
    metadata = old["metadata"]
    if subresource == "scale":
        new, old = scale_of(served, new), scale_of(served, old)
    return Attributes(served, "UPDATE", metadata.get("namespace", ""), metadata["name"], subresource, new, old, request)


def _settle(served: ServedKind, new: Object, old: Object, sent: Object, subresource: str, *, applying: bool) -> None:
    """Leave in `new`, in place, only what a write of this subresource may change."""
    if subresource == "status":
        _take_status(new, old, sent, applying=applying)
        return
    new["metadata"] = _settled_metadata(old, sent, applying=applying)
    if served.has_status and subresource == "":
        _keep_status(new, old)


def _check_metadata(served: ServedKind, key: Key, old: Object, sent: Object) -> None:
    stored = old["metadata"]
    wanted = sent.get("resourceVersion")
    if wanted and wanted != "0" and wanted != stored["resourceVersion"]:
        raise conflict(served, key.name, MODIFIED)
    ending = sent.get("deletionTimestamp")
    if ending and ending != stored.get("deletionTimestamp"):
        error = names.invalid("metadata.deletionTimestamp", ending, "field is immutable")
        raise Invalid.of(served.kind.group, served.kind.kind, key.name, [error])


def _settled_metadata(old: Object, sent: Object, *, applying: bool) -> Object:
    """The new object's metadata: what clients own from what the client sent, everything else from the stored object."""
    merged = {name: value for name, value in old["metadata"].items() if name not in meta.CLIENT_OWNED}
    for name in meta.CLIENT_OWNED:
        if sent.get(name):
            merged[name] = sent[name]
    managed = sent.get("managedFields")
    if managed or (applying and managed is not None):
        merged["managedFields"] = managed
    elif applying:
        merged.pop("managedFields", None)
    return merged


def is_current(served: ServedKind, entry: Entry | None) -> bool:
    """Whether an object was written under the present schema, in this very version."""
    return entry is not None and served.is_storage and entry.rv > served.schema_rv


def may_share(served: ServedKind, entry: Entry | None) -> bool:
    """Whether what a write leaves alone may be the stored object's own, because nothing will change it in place.

    What the present schema admitted once, it admits as it is. The strategies of built-in kinds fill in what they like.
    """
    return not served.builtin and is_current(served, entry)


def _take_status(new: Object, old: Object, sent: Object, *, applying: bool) -> None:
    """A status write changes only the status, and who manages what."""
    status, managed = new.get("status"), sent.get("managedFields")
    for name in [name for name in new if name not in old]:
        del new[name]
    new.update(old)
    new["metadata"] = {**old["metadata"]}
    if managed or (applying and managed is not None):
        new["metadata"]["managedFields"] = managed
    if status is None:
        new.pop("status", None)
    else:
        new["status"] = status


def _keep_status(new: Object, old: Object) -> None:
    """Any other write never changes the status, where the kind separates them."""
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
