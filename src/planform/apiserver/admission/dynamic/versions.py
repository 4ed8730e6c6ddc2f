"""An object in the version of its resource that a webhook or a policy wants to see, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from planform.api.kinds import Object
from planform.apiserver.admission.dynamic.attributes import Attributes
from planform.apiserver.crds.registry import ServedKind
from planform.errors import InternalError

if TYPE_CHECKING:
    from planform.apiserver.verbs.core import Core


async def in_version(core: Core, attributes: Attributes, obj: Object | None, wanted: ServedKind) -> Object | None:
    """The object in this version of its kind; itself if it is in it. Raises InternalError."""
    if obj is None or wanted is attributes.served or attributes.subresource == "scale":
        return obj
    return await converted(core, obj, attributes.served, wanted)


async def converted(core: Core, obj: Object, given: ServedKind, wanted: ServedKind) -> Object:
    if obj.get("apiVersion") == wanted.api_version:
        return obj
    if given.conversion is not None:
        if core.webhooks is None:
            raise InternalError(f"{given.kind.resource} needs a conversion webhook, and none can be called")
        [made] = await core.webhooks.convert(given, [obj], wanted.api_version)
        return made
    copy: Object = orjson.loads(orjson.dumps(obj))
    if given.to_storage is not None:
        copy = given.to_storage(copy)
    if wanted.from_storage is not None:
        copy = wanted.from_storage(copy)
    copy["apiVersion"] = wanted.api_version
    if not wanted.builtin and wanted.schema is not None:
        wanted.schema.default(copy)
    return copy
