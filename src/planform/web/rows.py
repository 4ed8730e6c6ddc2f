"""From objects to the rows that the page shows. Pure: nothing here reads or waits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from planform.api.annotations import is_paused
from planform.api.kinds import Object, gvk_of
from planform.api.names import COMPOSITION_NAME_LABEL
from planform.api.xr import CLAIM_NAME_LABEL, CLAIM_NAMESPACE_LABEL, composition_fields, style_of
from planform.client.resource_tree import Node
from planform.web.answers import Condition, Health, TreeNode, XrRow

MAX_MESSAGE: Final = 2000
MAX_LABELS: Final = 12
_READY: Final = ("Ready", "Available", "Succeeded", "Healthy", "RevisionHealthy", "Established")
_TOKEN: Final = re.compile(r"planform\.dev/confirm-deletion=([0-9a-f]{12})")


def mapping(value: object) -> Mapping[str, Any]:
    """The value if it is a mapping: what users write may have any shape."""
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def text(value: object, limit: int = MAX_MESSAGE) -> str:
    if value is None or isinstance(value, dict | list):
        return ""
    found = str(value)
    return found if len(found) <= limit else found[: limit - 1] + "…"


def number(value: object) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0


def conditions_of(obj: Mapping[str, Any]) -> tuple[Condition, ...]:
    found = sequence(mapping(obj.get("status")).get("conditions"))
    return tuple(
        Condition(
            type=text(each.get("type")),
            status=text(each.get("status")),
            reason=text(each.get("reason")),
            message=text(each.get("message")),
            since=text(each.get("lastTransitionTime")),
        )
        for each in found
        if isinstance(each, dict)
    )


def condition_of(obj: Mapping[str, Any], *types: str) -> Condition | None:
    """The condition of the first of these types that there is."""
    found = {each.type: each for each in conditions_of(obj)}
    return next((found[each] for each in types if each in found), None)


def health_of(obj: Mapping[str, Any]) -> tuple[Health, Condition | None]:
    """How an object is, and the condition that says so."""
    metadata = mapping(obj.get("metadata"))
    synced, ready = condition_of(obj, "Synced"), condition_of(obj, *_READY)
    if metadata.get("deletionTimestamp"):
        return "Deleting", synced if synced is not None and synced.status != "True" else None
    if is_paused(obj):
        return "Paused", synced
    if synced is not None and synced.status != "True":
        return ("Deviating" if synced.reason == "PlanDeviates" else "NotSynced"), synced
    if ready is None:
        return ("Unknown" if synced is not None else "Present"), synced
    return ("Ready" if ready.status == "True" else "NotReady"), ready


def link_of(group: str, kind: str, namespace: str, name: str) -> str:
    """Where the page shows an XR."""
    return f"/xr/{kind}.{group}/{namespace or '-'}/{name}"


def xr_id(group: str, kind: str, namespace: str, name: str) -> str:
    return f"{kind}.{group}/{namespace or '-'}/{name}"


def xr_row(xr: Object, numbers: Mapping[str, int]) -> XrRow:
    """An XR as a row. `numbers` are those of the revisions, by name."""
    metadata = mapping(xr.get("metadata"))
    kind = gvk_of(xr)
    fields = composition_fields(xr, style_of(xr))
    labels = mapping(metadata.get("labels"))
    health, condition = health_of(xr)
    revision = text(mapping(fields.get("compositionRevisionRef")).get("name"))
    claim = labels.get(CLAIM_NAME_LABEL)
    namespace, name = text(metadata.get("namespace")), text(metadata.get("name"))
    return XrRow(
        id=xr_id(kind.group, kind.kind, namespace, name),
        kind=kind.kind,
        group=kind.group,
        namespace=namespace,
        name=name,
        health="NotReady" if health == "Present" else health,
        reason=condition.reason if condition is not None else "",
        message=text(condition.message, 300) if condition is not None else "",
        since=condition.since if condition is not None else text(metadata.get("creationTimestamp")),
        created=text(metadata.get("creationTimestamp")),
        composition=text(mapping(fields.get("compositionRef")).get("name")),
        revision=revision,
        revision_number=numbers.get(revision, 0),
        labels={text(key): text(value) for key, value in list(labels.items())[:MAX_LABELS]},
        claim=f"{labels.get(CLAIM_NAMESPACE_LABEL, '')}/{claim}" if claim else "",
    )


def revision_brief(revision: Object) -> tuple[str, int, str]:
    """Of a CompositionRevision: its composition, its number, and whether it is released."""
    labels = mapping(mapping(revision.get("metadata")).get("labels"))
    released = condition_of(revision, "Released")
    said = "" if released is None else (released.reason or released.status)
    return text(labels.get(COMPOSITION_NAME_LABEL)), number(mapping(revision.get("spec")).get("revision")), said


def budget_token(obj: Mapping[str, Any]) -> str:
    """The word that confirms the deletions which wait, if any do."""
    for condition in conditions_of(obj):
        if found := _TOKEN.search(condition.message):
            return found[1]
    return ""


def tree_node(node: Node, xr_kinds: frozenset[tuple[str, str]]) -> TreeNode:
    """A tree as the page shows it. What could not be read is Missing, or says why."""
    target = node.target
    health: Health
    state = ""
    if node.object is None:
        health = "Missing" if getattr(node.error, "code", 0) == 404 else "Unknown"
    else:
        health, condition = health_of(node.object)
        if condition is not None:
            state = f"{condition.reason}: {condition.message}" if condition.message else condition.reason
    group, kind = target.gvk.group, target.gvk.kind
    is_xr = (group, kind) in xr_kinds
    return TreeNode(
        id=f"{target.gvk.api_version}/{kind}/{target.namespace}/{target.name}",
        kind=kind,
        group=group,
        api_version=target.gvk.api_version,
        namespace=target.namespace,
        name=target.name,
        resource=node.resource,
        health=health,
        state=text(state),
        created=text(mapping((node.object or {}).get("metadata")).get("creationTimestamp")),
        revision=node.revision,
        link=link_of(group, kind, target.namespace, target.name) if is_xr else "",
        error=text(node.error.message) if node.error is not None else "",
        children=tuple(tree_node(child, xr_kinds) for child in node.children),
    )
