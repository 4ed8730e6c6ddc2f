"""How other tools and the designs spell what planform has: scripts that were written for them keep working."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

ALIASES: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    ("composition", "render"): ("render",),
    ("alpha", "render"): ("render",),
    ("beta", "render"): ("render",),
    ("resource", "validate"): ("validate",),
    ("beta", "validate"): ("validate",),
    ("alpha", "validate"): ("validate",),
    ("beta", "convert", "pipeline-composition"): ("convert",),
    ("beta", "convert"): ("convert",),
    ("composition", "convert"): ("convert",),
    ("resource", "trace"): ("trace",),
    ("beta", "trace"): ("trace",),
    ("alpha", "trace"): ("trace",),
    ("init", "function"): ("function", "init"),
    ("build", "function"): ("function", "build"),
    ("push", "function"): ("function", "push"),
    ("init", "configuration"): ("xpkg", "init", "--kind", "configuration"),
    ("init", "provider"): ("xpkg", "init", "--kind", "provider"),
    ("build", "configuration"): ("xpkg", "build"),
    ("build", "provider"): ("xpkg", "build"),
    ("push", "configuration"): ("xpkg", "push"),
    ("push", "provider"): ("xpkg", "push"),
    ("install", "function"): ("xpkg", "install", "function"),
    ("install", "configuration"): ("xpkg", "install", "configuration"),
    ("install", "provider"): ("xpkg", "install", "provider"),
    ("alpha", "xpkg"): ("xpkg",),
    ("beta", "xpkg"): ("xpkg",),
    ("completions",): ("completion",),
}


def respelled(words: Sequence[str]) -> list[str]:
    """A command line in planform's own words."""
    if tuple(words[:2]) == ("compat", "crossplane") and words[2:] and not words[2].startswith("-"):
        words = words[2:]
    for theirs, ours in ALIASES.items():
        if tuple(words[: len(theirs)]) == theirs:
            return [*ours, *words[len(theirs) :]]
    return list(words)
