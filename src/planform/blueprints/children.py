"""ActionSets made from others: to restore what a backup left, say. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from planform.api.kinds import Object
from planform.api.metadata import name_of, namespace_of
from planform.api.names import ACTION_SET
from planform.blueprints.errors import BlueprintError

_INHERITED: Final = (
    "configMaps",
    "secrets",
    "profile",
    "options",
    "podOverride",
    "podLabels",
    "podAnnotations",
    "preferredVersion",
)


class NoChild(BlueprintError):
    """The ActionSet has nothing that another one could go on from."""

    reason = "NoChild"


def child_of(
    parent: Mapping[str, Any], action: str, *, changes: Mapping[str, Any] | None = None, only: Sequence[str] = ()
) -> Object:
    """An ActionSet that runs `action` on what a complete one was about, with the artifacts that it left.

    Everything else is as the parent had it, its preferred version and overrides too; `changes` come on top of each
    action. `only` names the parent's actions to go on from; all of them if it is empty. Raises NoChild.
    """
    status, spec = parent.get("status") or {}, parent.get("spec") or {}
    if status.get("state") != "complete":
        raise NoChild(f'ActionSet "{name_of(parent)}" is {status.get("state") or "pending"}, not complete')
    actions = []
    for wire, entry in zip(spec.get("actions") or (), status.get("actions") or (), strict=True):
        if only and entry["name"] not in only:
            continue
        made: Object = {"name": action, "blueprint": entry["blueprint"], "object": dict(entry.get("object") or {})}
        made |= {name: wire[name] for name in _INHERITED if wire.get(name)}
        if entry.get("artifacts"):
            made["artifacts"] = dict(entry["artifacts"])
        actions.append({**made, **(changes or {})})
    if not actions:
        raise NoChild(f'ActionSet "{name_of(parent)}" has no action to go on from')
    return {
        "apiVersion": ACTION_SET.api_version,
        "kind": ACTION_SET.kind,
        "metadata": {"generateName": f"{action}-{name_of(parent)}-"[:55], "namespace": namespace_of(parent)},
        "spec": {"actions": actions},
    }
