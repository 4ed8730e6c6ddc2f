"""`planform function diff`: what another revision of a function would change, before it changes anything."""

from __future__ import annotations

import asyncio
import difflib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import orjson

from planform.api.kinds import Object
from planform.api.metadata import labels_of, name_of
from planform.api.names import FUNCTION_REVISION, PACKAGE_LABEL
from planform.apimachinery import yaml_loader
from planform.cli.connection import Connected, connection_options, run
from planform.cli.output import is_terminal, output_option, say, write_data
from planform.client.informer import list_pages
from planform.errors import Forbidden, NotFound, UsageError
from planform.packages.revisions import VERSION_LABEL
from planform.preview import FUNCTION_DIFFS_PATH as PATH

DIFFERENT: Final = 1
"""With --exit-code, the code that says so: as of `git diff`."""

_AT_A_TIME: Final = 25
_QUESTIONS: Final = 2
_TIMEOUT: Final = 600.0
_NAMED: Final = 3
_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}

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

    Both are sent what the function was last sent for each XR, with Secrets as they are now, and their answers are
    compared. Nothing is applied. A revision is given by name, as FUNCTION:NUMBER or as FUNCTION:VERSION; an inactive
    one is run for as long as it takes. Later steps of the pipeline are not run: the answers of the step itself are
    compared. XRs whose last run cannot be repeated are counted apart.
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


def _named(revisions: Sequence[Object], word: str) -> str:
    """The name of the revision that a user means."""
    for each in revisions:
        if word in _spellings(each):
            return name_of(each)
    close = difflib.get_close_matches(word, [name for each in revisions for name in _spellings(each)], n=1)
    hint = f'did you mean "{close[0]}"? ' if close else ""
    raise UsageError(f'there is no function revision "{word}"', hint=f"{hint}To see all: planform function list")


def _spellings(revision: Object) -> list[str]:
    labels, number = labels_of(revision), revision["spec"].get("revision")
    function, version = labels.get(PACKAGE_LABEL, ""), labels.get(VERSION_LABEL)
    return [name_of(revision), f"{function}:{number}", *([f"{function}:{version}"] if version else [])]


async def _compare(connected: Connected, old: str, new: str, wanted: Sequence[str], namespace: str) -> dict[str, Any]:
    listed = await _ask(connected, f"{PATH}/{old}/{new}")
    chosen = [each for each in listed["items"] if _is_wanted(each, wanted, namespace)]
    _check_all_found(wanted, chosen, listed["function"])
    items = [{**each, "outcome": "skipped"} for each in chosen if "uid" not in each]
    uids = [each["uid"] for each in chosen if "uid" in each]
    with _Progress(len(chosen)) as progress:
        progress.advance(len(items))
        slots = asyncio.Semaphore(_QUESTIONS)

        async def some(part: list[str]) -> None:
            async with slots:
                answered = await _ask(connected, f"{PATH}/{old}/{new}", xr=",".join(part))
                items.extend(answered["items"])
                progress.advance(len(part))

        parts = [uids[at : at + _AT_A_TIME] for at in range(0, len(uids), _AT_A_TIME)]
        await asyncio.gather(*map(some, parts))
    items.sort(key=lambda each: (each["kind"], each["namespace"], each["name"]))
    counts = Counter(each["outcome"] for each in items)
    counted = {outcome: counts[outcome] for outcome in ("unchanged", "changed", "failed", "mended", "skipped")}
    losing = sum(bool(each.get("lost")) for each in items)
    return {
        "function": listed["function"],
        "old": old,
        "new": new,
        "summary": {"xrs": len(items), **counted, "losingResources": losing},
        "items": items,
    }


async def _ask(connected: Connected, path: str, **query: str) -> Any:
    try:
        return orjson.loads(await connected.ask_control_plane(path, **query))
    except NotFound as error:
        if "function revision" in error.message:
            raise
        raise UsageError(
            f"{connected.server} keeps no record of runs to compare with",
            hint="function diff asks planform: planform up, or planform controllers with --webhook-listen",
        ) from error
    except Forbidden as error:
        error.hint = f"runs show what functions were sent; let a ClusterRole `get` the nonResourceURL {PATH}/*"
        raise


def _is_wanted(item: Item, wanted: Sequence[str], namespace: str) -> bool:
    return (not namespace or item["namespace"] == namespace) and (
        not wanted or any(_means(word, item) for word in wanted)
    )


def _means(word: str, item: Item) -> bool:
    """Whether `app/one`, `apps/one` or `App.example.org/one` means an XR."""
    kind, _, name = word.rpartition("/")
    singular, _, group = item["kind"].lower().partition(".")
    asked, _, of = kind.lower().partition(".")
    return name == item["name"] and asked in (singular, f"{singular}s", f"{singular}es") and of in ("", group)


def _check_all_found(wanted: Sequence[str], chosen: Sequence[Item], function: str) -> None:
    for word in wanted:
        if "/" not in word:
            raise UsageError(f'"{word}" names no XR', hint="planform function diff OLD NEW --xr KIND/NAME")
        if not any(_means(word, each) for each in chosen):
            raise UsageError(f'no XR "{word}" has a step of function "{function}"')


class _Progress:
    """How far it is, on a terminal; elsewhere how much there is to do, if it is much."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._done = 0
        self._shown = sys.stderr.isatty()

    def __enter__(self) -> _Progress:
        if not self._shown and self._count > _AT_A_TIME:
            say(f"comparing {self._count} XRs")
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)

    def advance(self, by: int) -> None:
        self._done += by
        if self._shown:
            click.echo(f"\rcompared {self._done} of {self._count} XRs", nl=False, err=True)


# -- words for people


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    if not answer["summary"]["xrs"]:
        say(f'no XR has a step of function "{answer["function"]}"')
    for texts, items in _alike(answer.get("items", ())):
        yield click.style(_names(items), bold=True)
        yield from (_painted(line) for line in texts)
        yield ""
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


def _alike(items: Sequence[Item]) -> Iterator[tuple[list[str], list[Item]]]:
    """What there is to show, with the XRs for which the same lines come and go; what surrounds these is the first's."""
    found: dict[tuple[str, ...], tuple[list[str], list[Item]]] = {}
    for item in items:
        texts = list(_shown(item))
        if texts:
            key = tuple(line for line in texts if not line.startswith((" ", "@@")))
            found.setdefault(key, (texts, []))[1].append(item)
    yield from found.values()


def _shown(item: Item) -> Iterator[str]:
    match item["outcome"]:
        case "changed":
            for change in item["changes"]:
                yield from _change_lines(change)
        case "failed":
            yield f"would fail: {item['error']}"
        case "mended":
            yield f"would no longer fail: {item['was']}"
        case "skipped":
            yield f"not compared: {item['reason']}"
        case _:
            return


def _change_lines(change: Mapping[str, Any]) -> Iterator[str]:
    what = f'resource "{change["resource"]}"' if change["part"] == "resource" else _WHAT[change["part"]]
    where = f'step "{change["step"]}", {what}'
    before, after = (_document(change.get(side), change["part"]) for side in ("before", "after"))
    if before == after:
        yield f"{where}: secret values differ"
        return
    yield from difflib.unified_diff(before, after, f"{where} (old)", f"{where} (new)", lineterm="", n=2)
    if change.get("secretValuesDiffer"):
        yield f"{where}: secret values differ as well"


_WHAT: Final = {"composite": "the XR", "conditions": "conditions", "context": "context"}


def _document(shown: Mapping[str, Any] | None, part: str) -> list[str]:
    if shown is None:
        return []
    if part not in ("composite", "resource"):
        return yaml_loader.dump(dict(shown)).splitlines()
    lines = yaml_loader.dump(shown["object"]).splitlines()
    lines += [f"# ready: {str(shown['ready']).lower()}"] if "ready" in shown else []
    lines += [f"# connection detail: {key}" for key in shown.get("connectionDetails", ())]
    return lines


def _names(items: Sequence[Item]) -> str:
    names = [
        f"{each['kind'].partition('.')[0]}/{each['name']}" + (f" ({each['namespace']})" if each["namespace"] else "")
        for each in items
    ]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _painted(line: str) -> str:
    colour = _COLOURS.get(line[:1])
    return click.style(line, fg=colour) if colour and is_terminal() else line
