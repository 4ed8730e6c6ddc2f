"""What a save changed: the difference between two trees of objects, in lines that people read."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from planform.api.kinds import Object
from planform.apimachinery import yaml_loader
from planform.client.resource_tree import Node, Target

_NOISE: Final = frozenset(
    {"resourceVersion", "managedFields", "generation", "uid", "creationTimestamp", "ownerReferences", "finalizers"}
)
_MOMENTS: Final = frozenset({"lastTransitionTime", "observedGeneration", "lastPublishedTime", "generation"})

Known = Mapping[Target, Object]
"""The objects of all trees."""


def objects_of(trees: Mapping[Target, Node]) -> dict[Target, Object]:
    return {node.target: node.object for tree in trees.values() for node in tree.walk() if node.object is not None}


def changes(before: Known, after: Known) -> Iterator[str]:
    """What is new, what went, and what differs in the rest."""
    for target in sorted({*before, *after}, key=str):
        if target not in before:
            yield f"+ {target}"
        elif target not in after:
            yield f"- {target}"
        elif lines := list(_differences(before[target], after[target])):
            yield f"~ {target}"
            yield from (f"    {line}" for line in lines)


def _differences(before: Object, after: Object) -> Iterator[str]:
    old, new = (yaml_loader.dump(_shown(obj)).splitlines() for obj in (before, after))
    for line in difflib.unified_diff(old, new, lineterm="", n=0):
        if not line.startswith(("---", "+++", "@@")):
            yield line


def _shown(obj: Object) -> Object:
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _NOISE}
    return {**{name: _calm(value) for name, value in obj.items()}, "metadata": metadata}


def _calm(value: Any) -> Any:
    """Without what differs each time and means nothing."""
    if isinstance(value, dict):
        return {name: _calm(each) for name, each in value.items() if name not in _MOMENTS}
    if isinstance(value, list):
        return [_calm(each) for each in value]
    return value
