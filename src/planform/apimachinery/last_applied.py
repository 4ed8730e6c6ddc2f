"""The annotation in which client-side apply remembers what it sent, as far as server-side apply cares.

Users move from `kubectl apply` to `kubectl apply --server-side` and back. So that the first such apply does not
conflict with what the same user applied from the client, fields that still are as the annotation says are up for the
taking; and so that the way back works, the annotation follows. Both only for the manager that kubectl uses by default.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from planform.apimachinery.managed_fields import Fields, difference, union
from planform.apimachinery.objects import Object
from planform.apimachinery.ownership import applied, changed
from planform.apimachinery.typed import TypeNode

ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"
KUBECTL: Final = "kubectl"
ANNOTATIONS_LIMIT: Final = 256 * 1024


def fields_still_as_applied(live: Object, node: TypeNode) -> Fields:
    """What client-side apply sent last and nobody changed since; empty if that is not known for this version."""
    try:
        sent = orjson.loads(_annotations(live).get(ANNOTATION) or b"null")
    except orjson.JSONDecodeError:
        return {}
    if type(sent) is not dict or sent.get("apiVersion") != live.get("apiVersion"):
        return {}
    written, removed = changed(node, sent, live)
    return difference(applied(node, sent) or {}, union(written or {}, removed or {}))


def follow(obj: Object, config: Object) -> None:
    """Make the annotation of `obj`, if it has one, say what was applied now; drop it if there is no room for it."""
    annotations = {**_annotations(obj)}  # which a write of the status shares with the live object
    if not annotations.get(ANNOTATION):
        return
    sent = orjson.loads(orjson.dumps(config))
    _annotations(sent).pop(ANNOTATION, None)
    annotations[ANNOTATION] = orjson.dumps(sent, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE).decode()
    if sum(len(text.encode()) for item in annotations.items() for text in item) > ANNOTATIONS_LIMIT:
        del annotations[ANNOTATION]
    obj["metadata"]["annotations"] = annotations


def _annotations(obj: Object) -> dict[str, Any]:
    return (obj.get("metadata") or {}).get("annotations") or {}
