"""When a function that ships with planform serves in place of a package, and what is told of that.

A published manifest runs offline because the built-in stands in for its package. It is another program, with a version
of its own, so whoever named a version hears what serves instead, and can have the package itself: one Function by its
annotation `planform.dev/runtime`, all of them by a setting. What is named by its digest is never replaced unasked: the
built-in cannot be those bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from planform.builtin import BuiltinName, find_builtin_name
from planform.features import BuiltInUse
from planform.packages.endpoints import BUILT_IN, PACKAGE, RUNTIME_ANNOTATION

SERVED: Final = "PackageServed"
"""The condition that says whether what serves is what the package's name and version stand for."""


def stand_in(reference: str, annotations: Mapping[str, str], use: BuiltInUse) -> BuiltinName | None:
    """The built-in that serves for a package; None if there is none, or the package itself is wanted."""
    entry = find_builtin_name(reference)
    runtime = annotations.get(RUNTIME_ANNOTATION)
    if entry is None or runtime == PACKAGE:
        return None
    if runtime == BUILT_IN or not _is_package(reference):
        return entry
    if "@" in reference or use is BuiltInUse.NEVER:
        return None
    return entry if use is BuiltInUse.ALWAYS or is_alike(entry, reference) else None


def is_alike(entry: BuiltinName, reference: str) -> bool:
    """Whether a package is the version that the built-in is held against."""
    return bool(entry.like) and _tag(reference) == entry.like and "@" not in reference


def difference(entry: BuiltinName, reference: str) -> str:
    """What to tell of a built-in that serves for a package; empty if it was asked for by its own name, or is alike."""
    if not _is_package(reference) or is_alike(entry, reference):
        return ""
    digest = reference.partition("@")[2]
    named = f"the digest {digest[:19]}…" if digest else _tag(reference) or "no version"
    held = f", which behaves like {entry.like}" if entry.like else ""
    return (
        f"spec.package names {named}, and what serves is planform's own {entry.name} {entry.version}{held}. To run the"
        f" package itself, annotate the Function with {RUNTIME_ANNOTATION}: {PACKAGE}"
    )


def _is_package(reference: str) -> bool:
    """Whether it could be pulled; a built-in's own name could not."""
    return "/" in reference


def _tag(reference: str) -> str:
    return reference.partition("@")[0].rpartition("/")[2].partition(":")[2]
