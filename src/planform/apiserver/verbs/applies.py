"""Server-side apply: a write that says which fields its manager wants, of an object that need not be there yet."""

from __future__ import annotations

from planform.api.kinds import Object
from planform.apimachinery.apply import apply as apply_fields
from planform.apimachinery.typed import TypedError
from planform.apiserver.crds.registry import ServedKind
from planform.apiserver.verbs import metadata as meta
from planform.apiserver.verbs.core import Core, key_of
from planform.apiserver.verbs.identity import check_named, conflict, place
from planform.apiserver.verbs.requests import Request
from planform.apiserver.verbs.staging import Written, settle
from planform.apiserver.verbs.writes import MODIFIED, create, is_current, may_share, modify
from planform.clock import timestamp
from planform.errors import AlreadyExists, BadRequest, NotFound


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
    check_named(metadata, name)
    if metadata["name"] != name:
        raise BadRequest(f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})")
    if (config.get("apiVersion"), config.get("kind")) != (served.api_version, served.kind.kind):
        group, _, version = str(config.get("apiVersion") or "").rpartition("/")
        raise BadRequest(f"invalid object type: {group}/{version}, Kind={config.get('kind') or ''}")
    place(served, metadata, namespace)
    if request.validation == "Strict" and unknown:
        raise BadRequest(f'strict decoding error: unknown field "{unknown[0]}"')
    key = key_of(served, metadata.get("namespace", ""), name)
    now = timestamp(core.clock.now())

    def applied(current: Object | None) -> Object:
        wanted_version = metadata.get("resourceVersion")
        if current is not None and wanted_version and wanted_version != current["metadata"]["resourceVersion"]:
            raise conflict(served, key.name, MODIFIED)
        if current is not None and metadata.get("uid") and metadata["uid"] != current["metadata"]["uid"]:
            raise conflict(served, key.name, "the UID in the patch does not match the UID of the object")
        entry = core.store.head(key)
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
                sets_fit=is_current(served, entry),
                share=may_share(served, entry),
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
            try:
                return await create(core, served, applied(None), request, namespace=namespace, patching=True)
            except AlreadyExists:  # somebody created it while webhooks were asked: this manager's fields go into that
                if core.store.head(key) is None:
                    raise
    return await modify(
        core, served, key, applied, request, subresource=subresource, unknown=unknown, patching=True, applying=True
    )
