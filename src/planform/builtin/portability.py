"""What of an input only the built-in understands: it will not run on Crossplane. Pure; `planform validate` asks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

_OWN_FUNCTIONS: Final = re.compile(r"\bgetExternalName\b|\bget(?:Composed\w+|ExtraResources\w*|CredentialData)\s+[\"`]")


def own_ways(function: str, given: Any) -> Iterator[str]:
    """Each a path and what the published function makes of it; `function` is the name of a built-in."""
    if not isinstance(given, dict):
        return
    match function:
        case "go-templating":
            yield from _of_templates(given)
        case "tag-manager":
            yield from _of_tags(given)
        case "environment-configs":
            if "extraResourceSelectors" in given:
                yield "extraResourceSelectors: the published function reads spec"
        case "patch-and-transform":
            yield from _of_patches(given, "")


def _of_templates(given: dict[str, Any]) -> Iterator[str]:
    inline = given.get("inline")
    if isinstance(inline, str):
        yield "inline: must be an object with a template there"
    for text in re.findall(_OWN_FUNCTIONS, str(inline)):
        yield f"inline.template: {text.split()[0]} is not there, or wants the request first"


def _of_tags(given: dict[str, Any]) -> Iterator[str]:
    if given.get("resources"):
        yield "resources: is not known there"
    for member in ("addTags", "ignoreTags", "removeTags"):
        for index, entry in enumerate(given.get(member) or ()):
            if isinstance(entry, dict) and "field" in entry:
                yield f"{member}[{index}].field: is not known there, which has tags alone"


def _of_patches(value: Any, path: str) -> Iterator[str]:
    """Transforms and connection details that leave out what the published function has no default for."""
    if isinstance(value, dict):
        yield from (f"{path}.{member}: has no default there".lstrip(".") for member in _left_out(value))
        for key, member in value.items():
            if key != "base":
                yield from _of_patches(member, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _of_patches(item, f"{path}[{index}]")


def _left_out(value: dict[str, Any]) -> Iterator[str]:
    """Of a transform or a template, the members that it should have."""
    for kind in ("string", "math"):
        transform = value.get(kind)
        if value.get("type") == kind and isinstance(transform, dict) and "type" not in transform:
            yield f"{kind}.type"
    match = value.get("match")
    if value.get("type") == "match" and isinstance(match, dict):
        yield from _without(match.get("patterns"), "match.patterns", "type")
    yield from _without(value.get("connectionDetails"), "connectionDetails", "type")
    yield from _without(value.get("connectionDetails"), "connectionDetails", "name")


def _without(entries: Any, path: str, member: str) -> Iterator[str]:
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict) and member not in entry:
            yield f"{path}[{index}].{member}"
