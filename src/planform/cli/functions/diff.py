"""`planform function diff`: what another revision of a function would change, before it changes anything.

A view of a Preview: the control plane runs every XR that has a step of the function with either revision, and this
shows what comes out differently, as of the function.
"""

from __future__ import annotations

import difflib
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from planform.api.kinds import Object
from planform.api.metadata import labels_of, name_of
from planform.api.names import COMPOSITION_REVISION, FUNCTION_REVISION, PACKAGE_LABEL
from planform.api.previews import ChangeClass, ObjectChange, Summary, XrEntry
from planform.apimachinery.fieldpath import FieldPathError, parse_path
from planform.cli.connection import Connected, connection_options, run
from planform.cli.output import is_terminal, output_option, say, write_data
from planform.cli.previews.answers import Answer, diff_lines
from planform.cli.previews.asking import create, followed, read_answer
from planform.client.informer import list_pages
from planform.client.protocol import Client
from planform.errors import Forbidden, NotFound, UsageError
from planform.packages.revisions import VERSION_LABEL

DIFFERENT: Final = 1
"""With --exit-code, the code that says so: as of `git diff`."""

_TTL: Final = "1h"
_TIMEOUT: Final = 600.0
_MANY: Final = 25
_NAMED: Final = 3
_COLOURS: Final = {"+": "green", "-": "red", "±": "magenta", "!": "red", "~": "yellow"}
_OUTCOMES: Final = {"Unchanged": "unchanged", "Changed": "changed", "Failed": "failed", "Mended": "mended"}
_ACTIONS: Final = {
    "Create": "added",
    "Delete": "removed",
    "Update": "changed",
    "Recreate": "recreated",
    "Fail": "refused",
}
_BOTH_FAIL: Final = "fails with the change and without: "
_RIGHTS: Final = (
    "a ClusterRole has to let you create and get previews of rollout.planform.dev, and list the XRs; to see diffs also"
    " list previewreports"
)

Item = Mapping[str, Any]


@click.command()
@click.argument("old")
@click.argument("new")
@click.option("--xr", "xrs", multiple=True, metavar="KIND/NAME", help="Only this XR.  [repeatable; default: all]")
@click.option("-n", "--namespace", default="", help="Only XRs in this namespace.  [default: all]")
@click.option("--exit-code", is_flag=True, help="Exit with 1 if anything would be different, as `git diff` does.")
@click.option("--summary", is_flag=True, help="Only say how many XRs there are of each sort.")
@output_option("text", "json", "yaml", default="text")
@connection_options
def diff(
    old: str,
    new: str,
    xrs: tuple[str, ...],
    namespace: str,
    exit_code: bool,
    summary: bool,
    output: str,
    kubeconfig: Path | None,
    context: str,
) -> None:
    """Show what the revision NEW of a function would do differently from OLD, for every XR that uses the function.

    The control plane runs a Preview: the pipeline of each XR with OLD and with NEW, on what is there now, and compares
    what would be applied. Nothing is applied. A revision is given by name, as FUNCTION:NUMBER or as FUNCTION:VERSION;
    an inactive one is run for as long as it takes. XRs that cannot be run are counted apart.
    """

    async def act(connected: Connected) -> dict[str, Any]:
        revisions = [each async for page in list_pages(connected.client, FUNCTION_REVISION) for each in page.items]
        before, after = (_named(revisions, word) for word in (old, new))
        return await _compare(connected, before, after, xrs, namespace)

    answer = run(kubeconfig, context, act, timeout=_TIMEOUT)
    if summary:
        answer.pop("items")
    if output != "text":
        write_data(answer, output)
    else:
        for line in _lines(answer):
            click.echo(line)
    if exit_code and answer["summary"]["changed"] + answer["summary"]["failed"] + answer["summary"]["mended"]:
        raise click.exceptions.Exit(DIFFERENT)


def _named(revisions: Sequence[Object], word: str) -> Object:
    """The revision that a user means."""
    for each in revisions:
        if word in _spellings(each):
            return each
    close = difflib.get_close_matches(word, [name for each in revisions for name in _spellings(each)], n=1)
    hint = f'did you mean "{close[0]}"? ' if close else ""
    raise UsageError(f'there is no function revision "{word}"', hint=f"{hint}To see all: planform function list")


def _spellings(revision: Object) -> list[str]:
    labels, number = labels_of(revision), revision["spec"].get("revision")
    function, version = labels.get(PACKAGE_LABEL, ""), labels.get(VERSION_LABEL)
    return [name_of(revision), f"{function}:{number}", *([f"{function}:{version}"] if version else [])]


# -- asking the control plane


async def _compare(
    connected: Connected, old: Object, new: Object, wanted: Sequence[str], namespace: str
) -> dict[str, Any]:
    function, other = (labels_of(each).get(PACKAGE_LABEL, "") for each in (old, new))
    if function != other:
        raise UsageError(
            f'"{name_of(old)}" is a revision of "{function}", "{name_of(new)}" one of "{other}"',
            hint="compare two revisions of one function",
        )
    for word in wanted:
        if "/" not in word:
            raise UsageError(f'"{word}" names no XR', hint="planform function diff OLD NEW --xr KIND/NAME")
    answer = await _previewed(connected, function, name_of(old), name_of(new), namespace)
    items = [item async for item in _items(connected.client, answer, function)]
    items = [each for each in items if _is_wanted(each, wanted, namespace)]
    items.sort(key=lambda each: (each["kind"], each["namespace"], each["name"]))
    summary = _counted(items)
    if answer.notes and answer.summary.xrs:  # of whose reports the caller sees nothing
        if wanted:
            raise Forbidden("you may not read PreviewReports, without which single XRs cannot be told apart")
        summary = _summary_of(answer.summary)
    for word in wanted:
        if not any(_means(word, each) for each in items):
            raise UsageError(f'no XR "{word}" has a step of function "{function}"')
    told: dict[str, Any] = {
        "function": function,
        "old": name_of(old),
        "new": name_of(new),
        "preview": answer.preview,
        "summary": summary,
        "items": items,
    }
    if answer.notes:
        told["notes"] = answer.notes
        told["classes"] = [
            {"xrs": each.xrs, "change": each.change, "examples": each.examples} for each in answer.classes
        ]
    return told


async def _previewed(connected: Connected, function: str, old: str, new: str, namespace: str) -> Answer:
    """What a Preview of it says. Raises what says why there is none."""
    scope: Object = {"includeManual": True} | ({"namespaces": [namespace]} if namespace else {})
    change = {"functionRevision": {"function": function, "name": new, "from": old}}
    progress = _Progress()
    try:
        made = await create(connected.client, {"change": change, "scope": scope, "ttl": _TTL})
        found = await followed(connected.client, name_of(made), progress.show)
    except NotFound as error:
        raise UsageError(
            f"{connected.server} has no Previews to compare with",
            hint="function diff asks planform: planform up, or planform controllers",
        ) from error
    except Forbidden as error:
        error.hint = _RIGHTS
        raise
    finally:
        progress.end()
    return await read_answer(connected.client, found)


async def _items(client: Client, answer: Answer, function: str) -> AsyncIterator[Object]:
    """Every XR that was looked at, as of the function."""
    classes = {each.id: each for each in answer.classes}
    known: dict[str, tuple[str, str]] = {}
    for entry in answer.xrs:
        if entry.revision not in known:
            known[entry.revision] = await _about(client, entry.revision, function)
        version, steps = known[entry.revision]
        yield {
            "uid": entry.uid,
            "apiVersion": version,
            "kind": entry.kind.partition(".")[0],
            "group": entry.kind.partition(".")[2],
            "namespace": entry.namespace,
            "name": entry.name,
            **_outcome(entry, classes.get(entry.class_), steps),
        }


async def _about(client: Client, revision: str, function: str) -> tuple[str, str]:
    """The apiVersion of the XRs of a CompositionRevision, and which of its steps call the function."""
    try:
        spec = (await client.get(COMPOSITION_REVISION, revision))["spec"] if revision else {}
    except (Forbidden, NotFound):
        spec = {}
    named = [each["step"] for each in spec.get("pipeline") or () if each["functionRef"]["name"] == function]
    return str((spec.get("compositeTypeRef") or {}).get("apiVersion") or ""), ", ".join(named)


def _outcome(entry: XrEntry, class_: ChangeClass | None, steps: str) -> Object:
    if entry.outcome in ("NotPreviewed", "Invalid"):
        return {"outcome": "skipped", "reason": entry.message}
    if entry.message.startswith(_BOTH_FAIL):
        return {"outcome": "skipped", "reason": f"both revisions fail: {entry.message.removeprefix(_BOTH_FAIL)}"}
    told: Object = {"outcome": _OUTCOMES[entry.outcome]}
    if entry.outcome == "Failed":
        return told | {"error": entry.message}
    if entry.outcome == "Mended":
        return told | {"was": entry.message.removeprefix("no longer: ")}
    if entry.outcome == "Unchanged" or class_ is None:
        return told
    changes = [_own(change, entry) for change in class_.changes]
    lost = [each.resource for each in changes if each.action == "Delete"]
    return told | {"lost": lost, "changes": [_change(each, steps) for each in changes], "class": entry.class_}


def _own(change: ObjectChange, entry: XrEntry) -> ObjectChange:
    """The change of a class as it is for one of its XRs."""
    text = msgspec.json.encode(change).decode()
    for name in ("name", "namespace", "uid"):
        text = text.replace(f"{{{name}}}", getattr(entry, name))
    return msgspec.json.decode(text, type=ObjectChange)


def _change(change: ObjectChange, steps: str) -> Object:
    told: Object = {
        "step": steps,
        "part": "resource" if change.resource else "composite",
        "resource": change.resource,
        "kind": change.kind,
        "action": _ACTIONS[change.action],
        **{side: {"object": _object(change, side)} for side in ("before", "after") if _has(change, side)},
        "lines": diff_lines(change),
    }
    return told | ({"message": change.message} if change.message else {})


def _has(change: ObjectChange, side: str) -> bool:
    return change.action not in ({"before": "Create", "after": "Delete"}[side], "Fail")


def _object(change: ObjectChange, side: str) -> Object:
    """What differs of an object, where it stands in it."""
    found: Object = {"kind": change.kind}
    for field in change.fields:
        value = getattr(field, side)
        if value is not msgspec.UNSET:
            try:
                parse_path(field.path).set(found, value)
            except FieldPathError:  # below an item of a list of which only later ones differ
                found[field.path] = value
    return found


def _counted(items: Sequence[Item]) -> dict[str, int]:
    counts = Counter(each["outcome"] for each in items)
    counted = {outcome: counts[outcome] for outcome in ("unchanged", "changed", "failed", "mended", "skipped")}
    return {"xrs": len(items), **counted, "losingResources": sum(bool(each.get("lost")) for each in items)}


def _summary_of(summary: Summary) -> dict[str, int]:
    return {
        "xrs": summary.xrs,
        "unchanged": summary.unchanged,
        "changed": summary.changed,
        "failed": summary.failed,
        "mended": summary.mended,
        "skipped": summary.not_previewed + summary.invalid,
        "losingResources": summary.deletes,
    }


def _is_wanted(item: Item, wanted: Sequence[str], namespace: str) -> bool:
    return (not namespace or item["namespace"] == namespace) and (
        not wanted or any(_means(word, item) for word in wanted)
    )


def _means(word: str, item: Item) -> bool:
    """Whether `app/one`, `apps/one` or `App.example.org/one` means an XR."""
    kind, _, name = word.rpartition("/")
    singular = item["kind"].lower()
    asked, _, of = kind.lower().partition(".")
    return name == item["name"] and asked in (singular, f"{singular}s", f"{singular}es") and of in ("", item["group"])


class _Progress:
    """How far it is, on a terminal; elsewhere how much there is to do, if it is much."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._last = ""

    def show(self, done: int, total: int) -> None:
        text = f"compared {done} of {total} XRs" if self._shown else f"comparing {total} XRs" if total > _MANY else ""
        if not text or text == self._last:
            return
        if self._shown:
            click.echo(f"\r\x1b[K{text}", nl=False, err=True)
        elif not self._last:
            say(text)
        self._last = text

    def end(self) -> None:
        if self._shown and self._last:
            click.echo("\r\x1b[K", nl=False, err=True)


# -- words for people


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    if not answer["summary"]["xrs"]:
        say(f'no XR has a step of function "{answer["function"]}"')
    for texts, items in _alike(answer.get("items", ())):
        yield click.style(_names(items), bold=True)
        yield from (_painted(line) for line in texts)
        yield ""
    yield from _unnamed(answer)
    counts = answer["summary"]
    yield f"{answer['function']}: {answer['old']} -> {answer['new']}, {counts['xrs']} XRs"
    yield f"  {counts['unchanged']} unchanged"
    losing = counts["losingResources"]
    yield f"  {counts['changed']} changed" + (f", of which {losing} would lose resources" if losing else "")
    if counts["failed"]:
        yield f"  {counts['failed']} would fail"
    if counts["mended"]:
        yield f"  {counts['mended']} fail now, and would not"
    if counts["skipped"]:
        yield f"  {counts['skipped']} not compared"


def _unnamed(answer: Mapping[str, Any]) -> Iterator[str]:
    """What is known of XRs whose diffs the caller may not read."""
    for note in answer.get("notes", ()):
        say(note)
    for each in answer.get("classes", ()) if "items" in answer else ():
        more = " …" if each["xrs"] > len(each["examples"]) else ""
        yield str(each["change"])
        yield f"  in {each['xrs']} XRs: {', '.join(each['examples'])}{more}"
        yield ""


def _alike(items: Iterable[Item]) -> Iterator[tuple[list[str], list[Item]]]:
    """What there is to show, with the XRs to which the same happens; names within are the first's."""
    found: dict[tuple[str, ...], tuple[list[str], list[Item]]] = {}
    for item in items:
        texts = list(_shown(item))
        if texts:
            key = (item["class"],) if "class" in item else tuple(texts)
            found.setdefault(key, (texts, []))[1].append(item)
    yield from found.values()


def _shown(item: Item) -> Iterator[str]:
    match item["outcome"]:
        case "changed":
            for change in item["changes"]:
                yield from change["lines"]
        case "failed":
            yield f"would fail: {item['error']}"
        case "mended":
            yield f"would no longer fail: {item['was']}"
        case "skipped":
            yield f"not compared: {item['reason']}"
        case _:
            return


def _names(items: Sequence[Item]) -> str:
    names = [
        f"{each['kind']}/{each['name']}" + (f" ({each['namespace']})" if each["namespace"] else "") for each in items
    ]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _painted(line: str) -> str:
    colour = _COLOURS.get(line[:1])
    return click.style(line, fg=colour) if colour and is_terminal() else line
