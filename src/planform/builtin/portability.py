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
    """String transforms without a type, wherever they stand; the published function has no default for it."""
    if isinstance(value, dict):
        string = value.get("string")
        if value.get("type") == "string" and isinstance(string, dict) and "type" not in string:
            yield f"{path}.string.type: has no default there".lstrip(".")
        for key, member in value.items():
            if key != "base":
                yield from _of_patches(member, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _of_patches(item, f"{path}[{index}]")
