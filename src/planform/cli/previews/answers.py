"""What a preview found out, whoever ran it, as every form of output reads it."""

from __future__ import annotations

from typing import Any

import msgspec

from planform.api.previews import Blast, ChangeClass, ObjectChange, Summary, XrEntry, verdict
from planform.apimachinery.cel import CelError, compile_expression
from planform.errors import UsageError
from planform.preview.sessions import Findings


class Answer(msgspec.Struct, kw_only=True, rename="camel"):
    """The answer to one preview. `preview` is the name of the object, if there is one."""

    preview: str = ""
    verdict: str = ""
    summary: Summary = msgspec.field(default_factory=Summary)
    classes: list[ChangeClass] = []
    more_classes: int = 0
    blast: Blast = msgspec.field(default_factory=Blast)
    findings: list[str] = []
    xrs: list[XrEntry] = []
    notes: list[str] = []
    """What could not be looked at, and why, of the preview as a whole."""
    server: str = ""

    @property
    def complete(self) -> bool:
        return not self.summary.not_previewed


def answer_of(findings: Findings, *, server: str = "") -> Answer:
    classes = findings.classes
    return Answer(
        verdict=verdict(classes.summary),
        summary=classes.summary,
        classes=classes.classes(),
        blast=classes.blast,
        findings=findings.notes,
        xrs=findings.entries,
        server=server,
    )


def broken_rules(answer: Answer, rules: tuple[str, ...]) -> list[str]:
    """The rules that hold, each of which is to fail the command: CEL over `summary` and `blast`."""
    values: dict[str, Any] = msgspec.to_builtins({"summary": answer.summary, "blast": answer.blast})
    found = []
    for rule in rules:
        try:
            if compile_expression(rule, dict.fromkeys(values, "dyn")).evaluate(values) is True:
                found.append(rule)
        except CelError as error:
            raise UsageError(
                f"--fail-on {rule}: {error}",
                hint="it is CEL over the counts, as summary.deletes > 0 || summary.failed > 0",
            ) from error
    return found


def shown_change(change: ObjectChange) -> str:
    return f'{change.kind} "{change.resource}"' if change.resource else f"{change.kind} (the XR itself)"


def diff_lines(change: ObjectChange) -> list[str]:
    """One object as lines of a diff."""
    signs = {"Create": "+", "Delete": "-", "Recreate": "±", "Update": "~", "Fail": "!"}
    lines = [f"{signs[change.action]} {shown_change(change)}  {change.action.lower()}"]
    if change.forced_by:
        lines[0] += f", as {change.forced_by} cannot be changed in place"
    if change.message and change.action == "Fail":
        lines.append(f"    {change.message}")
    for field in change.fields:
        if field.before is not msgspec.UNSET:
            lines += _side("-", field.path, field.before)
        if field.after is not msgspec.UNSET:
            lines += _side("+", field.path, field.after)
    return lines


def _side(sign: str, path: str, value: Any) -> list[str]:
    if isinstance(value, dict) and value:
        return [line for key, each in value.items() for line in _side(sign, f"{path}.{key}", each)]
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    first, *rest = text.splitlines() or [""]
    return [f"{sign}   {path}: {first}", *(f"{sign}     {each}" for each in rest)]
