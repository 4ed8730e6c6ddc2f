"""Slash-separated paths, as text: nothing looks at a file system. The `os` variants are the same on Unix."""

from __future__ import annotations

from typing import Final

from planform.gotemplate.functions import Library

paths: Final = Library()


@paths.add("func(string) string", "clean", "osClean")
def clean(path: str) -> str:
    """The shortest equivalent path; empty becomes a dot."""
    rooted = path.startswith("/")
    parts: list[str] = []
    for part in path.split("/"):
        if part in ("", "."):
            continue
        if part != "..":
            parts.append(part)
        elif parts and parts[-1] != "..":
            parts.pop()
        elif not rooted:
            parts.append(part)
    return ("/" if rooted else "") + "/".join(parts) or "."


@paths.add("func(string) string", "base", "osBase")
def base(path: str) -> str:
    if not path:
        return "."
    return path.rstrip("/").rpartition("/")[2] or "/"


@paths.add("func(string) string", "dir", "osDir")
def dir_(path: str) -> str:
    head, slash, _ = path.rpartition("/")
    return clean(head + slash)


@paths.add("func(string) string", "ext", "osExt")
def ext(path: str) -> str:
    name = path.rpartition("/")[2]
    dot = name.rfind(".")
    return name[dot:] if dot >= 0 else ""


@paths.add("func(string) bool", "isAbs", "osIsAbs")
def is_abs(path: str) -> bool:
    return path.startswith("/")
