"""A resource tree as text, JSON and dot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import click

from planform.cli.objects.problems import problems_of
from planform.cli.output import table
from planform.client.resource_tree import Node

SHOWN: Final = 64
"""Characters of a status that fit beside the tree; of a longer one the end is shown, where the cause mostly stands.

Only a hint stands behind it, after a semicolon: that goes first.
"""

_COLOURS: Final = {"True": "green", "False": "red", "Unknown": "yellow"}


def as_text(roots: Sequence[Node], *, wide: bool = False, colour: bool = False, now: datetime | None = None) -> str:
    """A table whose first column is the tree; below it, with `now`, what is wrong with each object, in full."""
    headers = (
        ("NAME", "RESOURCE", "SYNCED", "READY", "REVISION", "STATUS") if wide else ("NAME", "SYNCED", "READY", "STATUS")
    )
    rows = [_row(branch, node, wide=wide) for root in roots for branch, node in _branches(root)]
    text = table(headers, rows)
    text = _coloured(text, rows, headers) if colour else text
    return text if now is None else "\n".join([text, *_causes(roots, now, wide=wide, colour=colour)])


def _causes(roots: Sequence[Node], now: datetime, *, wide: bool, colour: bool) -> Iterator[str]:
    """Of every object that is not well, all that is known: nothing of it is cut off, however narrow the terminal."""
    for node in (node for root in roots for node in root.walk()):
        found = problems_of(node.object, now)
        state = " ".join(node.state.split())
        if not wide and shortened(state) != state and not any(each in state for each in found):
            found = [state, *found]
        if found:
            name = str(node.target)
            yield ""
            yield click.style(name, bold=True) if colour else name
            yield from (f"  {each}" for each in found)


def as_value(node: Node, now: datetime | None = None) -> dict[str, Any]:
    """`{object, error?, problems?, children?}`; of what could not be read, the object is its kind and name."""
    target = node.target
    metadata = {"name": target.name} | ({"namespace": target.namespace} if target.namespace else {})
    absent = {"apiVersion": target.gvk.api_version, "kind": target.gvk.kind, "metadata": metadata}
    value: dict[str, Any] = {"object": absent if node.object is None else node.object}
    if node.error is not None:
        value["error"] = {"reason": node.error.reason, "message": node.error.message}
    if now is not None and (found := problems_of(node.object, now)):
        value["problems"] = found
    if node.children:
        value["children"] = [as_value(child, now) for child in node.children]
    return value


def as_dot(roots: Sequence[Node]) -> str:
    """An undirected graph for graphviz, with a box for each object."""
    lines = ["graph {", "  node [shape=box];"]
    number = 0

    def draw(node: Node, parent: int | None) -> None:
        nonlocal number
        mine, number = number, number + 1
        target = node.target
        label = [f"{target.gvk.kind}/{target.name}", f"apiVersion: {target.gvk.api_version}"]
        label += [f"namespace: {target.namespace}"] if target.namespace else []
        label += [f"resource: {node.resource}"] if node.resource else []
        label += [f"synced: {node.synced}", f"ready: {node.ready}"]
        label += [node.state] if node.state else []
        lines.append(f"  n{mine} [label={_quoted(label)}, color={_colour_of(node) or 'gray'}];")
        if parent is not None:
            lines.append(f"  n{parent} -- n{mine};")
        for child in node.children:
            draw(child, mine)

    for root in roots:
        draw(root, None)
    return "\n".join([*lines, "}"])


def shortened(text: str) -> str:
    """The end of a long text, on one line: of what is wrong, not of what to do about it."""
    text = " ".join(text.split())
    if len(text) <= SHOWN:
        return text
    cause = text.rpartition("; ")[0]
    left, after = (cause, "; ...") if cause else (text, "")
    return (left if len(left) <= SHOWN else f"...{left[-SHOWN:]}") + after


def _branches(root: Node) -> Iterator[tuple[str, Node]]:
    """Each node with the lines that lead to it."""

    def below(node: Node, indent: str) -> Iterator[tuple[str, Node]]:
        for index, child in enumerate(node.children):
            last = index == len(node.children) - 1
            yield indent + ("└─ " if last else "├─ "), child
            yield from below(child, indent + ("   " if last else "│  "))

    yield "", root
    yield from below(root, "")


def _row(branch: str, node: Node, *, wide: bool) -> tuple[str, ...]:
    name = f"{branch}{node.target}"
    if wide:
        return name, node.resource, node.synced, node.ready, node.revision, " ".join(node.state.split())
    return name, node.synced, node.ready, shortened(node.state)


def _coloured(text: str, rows: Sequence[Sequence[str]], headers: Sequence[str]) -> str:
    """Statuses in colours, which say nothing that the words do not."""
    head, *lines = text.split("\n")
    starts = [head.index(name) for name in headers]
    columns = [
        starts[headers.index(name)] for name in ("READY", "SYNCED")
    ]  # from the right: colours shift what follows
    painted = []
    for line, row in zip(lines, rows, strict=True):
        state = starts[-1]
        if row[-1].startswith(("Error: ", "Deleting")):
            line = line[:state] + click.style(line[state:], fg="red" if row[-1] != "Deleting" else "yellow")
        for column in columns:
            word = line[column:].split(" ", 1)[0]
            if word in _COLOURS:
                line = line[:column] + click.style(word, fg=_COLOURS[word]) + line[column + len(word) :]
        painted.append(line)
    return "\n".join([click.style(head, bold=True), *painted])


def _colour_of(node: Node) -> str:
    if node.error is not None or "False" in (node.synced, node.ready):
        return "red"
    return "green" if node.ready == "True" else ""


def _quoted(lines: Sequence[str]) -> str:
    return '"' + "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") for line in lines) + '"'
