"""Delete one object or many. Deletion starts here; finalizers and controllers decide when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from planform.api.kinds import Object
from planform.apiserver.admission.chain import Admission
from planform.apiserver.admission.dynamic.attributes import Attributes
from planform.apiserver.crds.registry import ServedKind
from planform.apiserver.verbs.core import Core, decode, decode_any, key_of
from planform.apiserver.verbs.identity import conflict
from planform.apiserver.verbs.reads import Options, list_entries
from planform.apiserver.verbs.requests import Preconditions, Request, Selection
from planform.apiserver.verbs.staging import commit, encode, settle, unmoved
from planform.client.protocol import Propagation
from planform.clock import timestamp
from planform.errors import ApiError, BadRequest, FieldError, Invalid, NotFound

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
_SLICE = 50


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """How to delete."""

    propagation: Propagation | None = None
    preconditions: Preconditions = field(default_factory=Preconditions)


@dataclass(frozen=True, slots=True)
class Deleted:
    """What is left: `gone` with the last state, or the object that now waits for its finalizers."""

    value: bytes
    gone: bool


def parse_options(body: Mapping[str, Any], query: Mapping[str, str]) -> tuple[DeleteOptions, bool]:
    """DeleteOptions from body and query, the body first; and whether it is a dry run. Raises Invalid or BadRequest."""
    policy = body.get("propagationPolicy") or query.get("propagationPolicy") or None
    orphan = body.get("orphanDependents")
    if orphan is None and "orphanDependents" in query:
        orphan = query["orphanDependents"].lower() not in ("0", "false")
    problems: list[FieldError] = []
    if policy is not None and orphan is not None:
        text = f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'
        problems.append(FieldError("propagationPolicy", "FieldValueInvalid", text))
    elif policy is not None and policy not in tuple(Propagation):
        text = f'Unsupported value: "{policy}": supported values: "Foreground", "Background", "Orphan", "nil"'
        problems.append(FieldError("propagationPolicy", "FieldValueNotSupported", text))
    dry_run = body.get("dryRun") or []
    if dry_run not in ([], ["All"]):
        shown = orjson.dumps(dry_run).decode()
        text = f'Unsupported value: {shown}: supported values: "All"'
        problems.append(FieldError("dryRun", "FieldValueNotSupported", text))
    required = body.get("preconditions") or {}
    if type(required) is not dict:
        raise BadRequest("DeleteOptions: preconditions must be an object")
    if problems:
        raise Invalid.of("meta.k8s.io", "DeleteOptions", "", problems)
    if policy is not None:
        propagation: Propagation | None = Propagation(policy)
    elif orphan is not None:
        propagation = Propagation.ORPHAN if orphan else Propagation.BACKGROUND
    else:
        propagation = None
    return (
        DeleteOptions(
            propagation,
            Preconditions(str(required.get("uid") or ""), str(required.get("resourceVersion") or "")),
        ),
        dry_run == ["All"],
    )


def given_options(body: Mapping[str, Any], options: DeleteOptions, *, dry_run: bool) -> dict[str, Any]:
    """The options as they are shown to whoever is asked whether the deletion may be."""
    given = {name: body[name] for name in ("gracePeriodSeconds", "orphanDependents") if body.get(name) is not None}
    if body.get("preconditions"):
        given["preconditions"] = body["preconditions"]
    if options.propagation is not None and "orphanDependents" not in given:
        given["propagationPolicy"] = options.propagation.value
    return {**given, "dryRun": ["All"]} if dry_run else given


async def delete(
    core: Core, served: ServedKind, namespace: str, name: str, options: DeleteOptions, request: Request
) -> Deleted:
    """Start deleting; raises NotFound, Conflict (preconditions) or what admission says."""
    key = key_of(served, namespace, name)
    while True:  # it turns only where webhooks take time, in which others write
        entry = core.store.head(key)
        if entry is None:
            await settle(core, key)
            raise NotFound.of(served.kind.group, served.kind.plural, name)
        try:
            if served.conversion is None:
                obj = decode(served, entry)
            else:
                [obj] = await decode_any(core, served, [entry])
                if not unmoved(core, key, entry):
                    continue
            _check_preconditions(served, name, obj, options.preconditions)
            served.strategy.may_be_deleted(obj)
            if core.dynamic_admission is not None and (asked := core.dynamic_admission.relevant(served, "DELETE", "")):
                attributes = Attributes(served, "DELETE", key.namespace, name, "", None, obj, request)
                await core.dynamic_admission.mutate(asked, attributes)
                await core.dynamic_admission.validate(asked, attributes)
                if not unmoved(core, key, entry):
                    continue
            core.admit(
                Admission("DELETE", served.kind, key.namespace, name, None, obj, "", request, options.propagation)
            )
        except ApiError:
            await settle(core, key)
            raise
        break
    stored: Object = orjson.loads(entry.value)
    held = _begin(core, served, stored, options)
    if not held:
        if request.dry_run:
            return Deleted(entry.value, gone=True)
        stored["metadata"]["resourceVersion"] = str(core.store.next_revision())
        await commit(core.store.stage(key, None, last=encode(stored)))
        return Deleted(entry.value, gone=True)
    if stored == orjson.loads(entry.value):
        await settle(core, key)
    elif not request.dry_run:
        stored["metadata"]["resourceVersion"] = str(core.store.next_revision())
        await commit(core.store.stage(key, encode(stored)))
    if served.is_storage:
        return Deleted(encode(stored), gone=False)
    return Deleted(encode({**obj, "metadata": stored["metadata"]}), gone=False)


def _begin(core: Core, served: ServedKind, obj: Object, options: DeleteOptions) -> bool:
    """Mark the object as terminating, in place; False if nothing holds it and it can go at once."""
    metadata = obj["metadata"]
    finalizers: list[str] = list(metadata.get("finalizers", ()))
    if options.propagation is not None:
        wanted = {Propagation.FOREGROUND: FOREGROUND, Propagation.ORPHAN: ORPHAN}.get(options.propagation)
        finalizers = [name for name in finalizers if name not in (FOREGROUND, ORPHAN) or name == wanted]
        if wanted is not None and wanted not in finalizers:
            finalizers.append(wanted)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    first = "deletionTimestamp" not in metadata
    held = (served.strategy.begin_delete(obj) if first else served.strategy.holds(obj)) or bool(
        metadata.get("finalizers")
    )
    if held and first:
        metadata["deletionTimestamp"] = timestamp(core.clock.now())
        metadata["deletionGracePeriodSeconds"] = 0
        if served.strategy.counts_generations:
            metadata["generation"] = int(metadata.get("generation", 0)) + 1
    return held


def _check_preconditions(served: ServedKind, name: str, obj: Object, required: Preconditions) -> None:
    metadata = obj["metadata"]
    for label, wanted, found in (
        ("UID", required.uid, metadata["uid"]),
        ("ResourceVersion", required.resource_version, metadata["resourceVersion"]),
    ):
        if wanted and wanted != found:
            raise conflict(
                served,
                name,
                f"the {label} in the precondition ({wanted}) does not match the {label} in record ({found}). "
                "The object might have been deleted and then recreated",
            )


async def delete_collection(
    core: Core, served: ServedKind, selection: Selection, options: DeleteOptions, request: Request
) -> list[bytes]:
    """Delete everything selected, in slices that share commits and let others through; answers what was deleted.

    Raises the first refusal, once the slice that it happened in is done.
    """
    found = await list_entries(core, served, selection, Options())
    deleted: list[bytes] = []
    for start in range(0, len(found.entries), _SLICE):
        keys = [key for key, _ in found.entries[start : start + _SLICE]]
        results = await asyncio.gather(
            *(delete(core, served, key.namespace, key.name, options, request) for key in keys), return_exceptions=True
        )
        for result in results:
            if isinstance(result, Deleted):
                deleted.append(result.value)
            elif not isinstance(result, NotFound):
                raise result
        await asyncio.sleep(0)
    return deleted
