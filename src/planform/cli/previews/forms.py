"""A preview as a document: a comment on a pull request, a JUnit file, a page of its own."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from xml.sax.saxutils import quoteattr

from planform.cli.previews.answers import Answer, diff_lines

_MAX_CLASSES = 25
_MAX_LINES = 60


def markdown(answer: Answer) -> str:
    """For a comment: one line of verdict, a table, and a folded diff for each kind of change."""
    return "\n".join(_markdown(answer)) + "\n"


def _markdown(answer: Answer) -> Iterator[str]:
    mark = "🔴" if any(each.risk for each in answer.classes) else "🟢"
    yield f"{mark} **planform preview:** {answer.verdict or 'no XR is reached by this change'}"
    if answer.classes:
        yield ""
        yield "| | XRs | change | examples |"
        yield "|---|---:|---|---|"
        for each in answer.classes[:_MAX_CLASSES]:
            cells = (each.risk or each.outcome, str(each.xrs), each.change, ", ".join(each.examples[:3]))
            yield "| " + " | ".join(_cell(cell) for cell in cells) + " |"
        for each in answer.classes[:_MAX_CLASSES]:
            lines = [line for change in each.changes for line in diff_lines(change)]
            if not lines:
                continue
            yield ""
            yield f"<details><summary>{escape(each.change)} ({each.xrs} XRs)</summary>"
            yield ""
            fence = "```" if not any("```" in line for line in lines) else "~~~~~~"
            yield f"{fence}diff"
            yield from lines[:_MAX_LINES]
            if len(lines) > _MAX_LINES:
                yield f"… {len(lines) - _MAX_LINES} more lines"
            yield fence
            yield "</details>"
        hidden = max(0, len(answer.classes) - _MAX_CLASSES) + answer.more_classes
        if hidden:
            yield f"\n… and {hidden} more kinds of change"
    summary = answer.summary
    notes = [
        f"{count} {words}"
        for count, words in (
            (summary.drifting, "drifting (would change anyway)"),
            (summary.unstable, "unstable (answers differ each time)"),
            (summary.not_previewed, "not previewed"),
            (summary.pinned, "pinned"),
        )
        if count
    ]
    if notes:
        yield ""
        yield "XRs besides: " + ", ".join(notes)
    for note in (*answer.findings, *answer.notes):
        yield f"- {_cell(note)}"
    if answer.preview:
        yield ""
        yield (
            "Valid until the Composition, its functions or these XRs change. Start it:"
            f" `planform rollout start --preview {answer.preview}`"
        )


def junit(answer: Answer, broken: list[str]) -> str:
    """One test for each kind of change; what is risky fails, and so does each rule that is broken."""
    cases = []
    for each in answer.classes:
        name = quoteattr(f"{each.change} ({each.xrs} XRs)")
        if each.risk:
            body = escape("\n".join(line for change in each.changes for line in diff_lines(change)))
            inner = f"<failure message={quoteattr(each.risk)}>{body}</failure>"
            cases.append(f'  <testcase classname="preview" name={name}>{inner}</testcase>')
        else:
            cases.append(f'  <testcase classname="preview" name={name}/>')
    for rule in broken:
        inner = f"<failure message={quoteattr('the rule holds: ' + rule)}/>"
        cases.append(f'  <testcase classname="rules" name={quoteattr(rule)}>{inner}</testcase>')
    failures = sum("<failure" in each for each in cases)
    head = f'<testsuite name="planform preview" tests="{len(cases)}" failures="{failures}">'
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', head, *cases, "</testsuite>"]) + "\n"


_STYLE = """
:root{color-scheme:light dark;--line:#8883;--red:#c62828;--green:#2e7d32;--amber:#b26a00}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}
h1{font-size:1.3rem}h2{font-size:1rem;margin-top:2rem}
table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid var(--line);padding:.35rem;text-align:left}
td:nth-child(2){text-align:right}
details{margin:.5rem 0;border:1px solid var(--line);border-radius:6px;padding:.4rem .7rem}
summary{cursor:pointer}pre{overflow:auto;margin:.5rem 0}.risk{color:var(--red);font-weight:600}
.add{color:var(--green)}.del{color:var(--red)}.bar{fill:#4a7fd4}text{fill:currentColor;font-size:12px}
"""


def html(answer: Answer) -> str:
    """A page that needs nothing else: no script, no font, no picture from anywhere."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width,initial-scale=1">',
        f"<title>{escape(answer.verdict)}</title><style>{_STYLE}</style>",
        f"<h1>{escape(answer.verdict or 'no XR is reached by this change')}</h1>",
    ]
    if answer.classes:
        parts.append("<h2>Changes</h2>")
    for each in answer.classes:
        risk = f"<span class=risk>{escape(each.risk)}</span> " if each.risk else ""
        lines = "\n".join(_html_line(line) for change in each.changes for line in diff_lines(change))
        opened = " open" if each.risk else ""
        parts.append(
            f"<details{opened}><summary>{risk}{each.xrs} XRs: {escape(each.change)}</summary><pre>{lines}</pre>"
            f"<p>in {escape(', '.join(each.examples))}</p></details>"
        )
    for title, counts in (
        ("Kinds that change", answer.blast.kinds),
        ("Namespaces reached", answer.blast.by_namespace),
        ("Teams reached", answer.blast.teams),
    ):
        if counts:
            parts.append(f"<h2>{title}</h2>{_chart(title, counts)}")
    rest = [*answer.findings, *answer.notes]
    if rest:
        parts.append("<h2>Besides</h2><ul>" + "".join(f"<li>{escape(each)}" for each in rest) + "</ul>")
    return "\n".join(parts) + "</html>\n"


def _chart(title: str, counts: dict[str, int]) -> str:
    largest = sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:20]
    widest, height = max(count for _, count in largest), 22 * len(largest)
    bars = "".join(
        f'<text x="0" y="{22 * row + 15}">{escape(name[:28])}</text>'
        f'<rect class=bar x="220" y="{22 * row + 3}" width="{max(2, 480 * count // widest)}" height="15" rx="3"/>'
        f'<text x="{228 + max(2, 480 * count // widest)}" y="{22 * row + 15}">{count}</text>'
        for row, (name, count) in enumerate(largest)
    )
    return f'<svg role=img aria-label="{escape(title)}" viewBox="0 0 760 {height}" width="100%">{bars}</svg>'


def _html_line(line: str) -> str:
    kind = {"+": "add", "-": "del"}.get(line[:1])
    return f"<span class={kind}>{escape(line)}</span>" if kind else escape(line)


def _cell(text: str) -> str:
    return escape(text, quote=False).replace("|", "\\|").replace("\n", " ")
