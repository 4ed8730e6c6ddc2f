"""A preview for a terminal: the verdict, then the classes with the risky ones first, then what was not looked at."""

from __future__ import annotations

from collections.abc import Iterator

import click

from planform.api.previews import ChangeClass
from planform.cli.previews.answers import Answer, diff_lines

_COLOURS = {"+": "green", "-": "red", "±": "magenta", "!": "red", "~": "yellow"}
_MAX_LINES = 12
_MAX_CLASSES = 20


def text_lines(answer: Answer, *, colour: bool, full: bool = False) -> Iterator[str]:
    """Every line; a diff is folded after a few unless `full`."""

    def paint(text: str, fg: str, *, bold: bool = False) -> str:
        return click.style(text, fg=fg, bold=bold) if colour else text

    risky = [each for each in answer.classes if each.risk]
    yield paint(answer.verdict or "no XR is reached by this change", "red" if risky else "green", bold=True)
    shown = answer.classes if full else answer.classes[:_MAX_CLASSES]
    for each in shown:
        yield ""
        head = f"{each.risk.upper()}  " if each.risk else f"{each.outcome.lower()}  "
        yield paint(head, "red" if each.risk else "yellow", bold=True) + f"{_count(each)}  {each.change}"
        lines = [line for change in each.changes for line in diff_lines(change)]
        kept = lines if full else lines[:_MAX_LINES]
        for line in kept:
            yield "  " + paint(line, _COLOURS.get(line[:1], "white"))
        if len(lines) > len(kept):
            yield f"  … {len(lines) - len(kept)} more lines: --full shows them"
        yield f"  in {', '.join(each.examples)}{' …' if each.xrs > len(each.examples) else ''}"
    hidden = len(answer.classes) - len(shown) + answer.more_classes
    if hidden > 0:
        yield f"\n… and {hidden} more kinds of change: --full, or -o json, has them"
    yield from _rest(answer)


def _rest(answer: Answer) -> Iterator[str]:
    summary = answer.summary
    said = [
        (summary.drifting, "drifting: they would change without this change, too"),
        (summary.unstable, "unstable: their functions answer differently each time, which is not blamed on the change"),
        (summary.pinned, "pinned to a revision: not looked at (--include-manual looks at them)"),
    ]
    lines = [f"{count} {words}" for count, words in said if count]
    for entry in answer.xrs:
        name = f"{entry.namespace}/{entry.name}" if entry.namespace else entry.name
        lines += [f"{name} is drifting: {each}" for each in entry.drifting[:1]]
        lines += [f"{name} is unstable: {each}" for each in entry.unstable[:1]]
        lines += [f"{name} waits: {each}" for each in entry.waits[:1]]
        if len(lines) > 12:
            break
    lines += answer.findings + answer.notes
    if lines:
        yield ""
        yield from lines
    blast = answer.blast
    if blast.kinds:
        parts = [f"{count} {kind}" for kind, count in sorted(blast.kinds.items(), key=lambda each: -each[1])[:6]]
        teams = [f"{team} {count}" for team, count in sorted(blast.teams.items(), key=lambda each: -each[1])[:6]]
        yield ""
        yield f"reaches {blast.namespaces} namespaces: {', '.join(parts)}" + (
            f"; teams: {', '.join(teams)}" if teams else ""
        )


def _count(each: ChangeClass) -> str:
    return f"{each.xrs} XR{'s' if each.xrs != 1 else ''}"
