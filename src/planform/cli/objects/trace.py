"""`planform trace`: the tree of an XR, a claim or anything else that refers to other objects."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from pathlib import Path

import click
import orjson

from planform.api.kinds import Kind
from planform.api.metadata import name_of, uid_of
from planform.cli import completing
from planform.cli.connection import Connected, connection_options, run
from planform.cli.dashboard_links import say_link, xr_path
from planform.cli.objects.drawing import as_dot, as_text, as_value
from planform.cli.objects.showing import none_found
from planform.cli.output import is_terminal, output_option, say, table, write_data
from planform.client.resource_tree import Looking, Node, Target, changing_trees
from planform.clock import SystemClock
from planform.errors import ApiError, Forbidden, NotFound, UsageError

_CLEAR = "\x1b[H\x1b[J"


@click.command()
@click.argument("kind", shell_complete=completing.objects)
@click.argument("name", default="", shell_complete=completing.objects)
@click.option(
    "-n", "--namespace", default="", help="Namespace.  [default: the context's]", shell_complete=completing.namespaces
)
@click.option("-s", "--show-connection-secrets", is_flag=True, help="Show connection secrets, without their values.")
@click.option("-w", "--watch", "watching", is_flag=True, help="Draw again on every change, until the object is gone.")
@click.option(
    "--concurrency", type=click.IntRange(1, 100), default=8, show_default=True, help="Requests at the same time."
)
@output_option("table", "wide", "json", "yaml", "dot")
@connection_options
def trace(
    kind: str,
    name: str,
    namespace: str,
    show_connection_secrets: bool,
    watching: bool,
    concurrency: int,
    output: str,
    kubeconfig: Path | None,
    context: str,
) -> None:
    """Show what an object is made of: `planform trace xbucket logs`, `planform trace xbucket/logs`.

    Follows XRs, claims, Operations, Compositions and Functions to everything they refer to, and shows the state of
    each, and below the tree what is wrong with whom: problems in full, a function call that has not ended, and who
    holds a deletion up. Without a name, all objects of the kind. With a name and -o wide, json or yaml, also which
    revision of which function ran each step of an XR last. Exits with 0 whether they are ready or not.
    """
    word, slash, after = kind.partition("/")
    if slash and name:
        raise UsageError("the name is given twice", hint="planform trace KIND NAME, or planform trace KIND/NAME")
    name = after or name
    if watching and not name:
        raise UsageError("--watch needs a name", hint=f"planform trace {word} NAME --watch")
    if watching and output not in ("table", "wide"):
        raise UsageError(f"--watch draws tables, not {output}")

    async def act(connected: Connected) -> None:
        found = await connected.find_kind(word)
        place = (namespace or connected.namespace) if found.namespaced else ""
        looking = Looking(connected.client, show_connection_secrets, asyncio.Semaphore(concurrency))
        if watching:
            await _watch(looking, Target(found.gvk, place, name), wide=output == "wide")
        else:
            roots = await _roots(connected, looking, found, place, name)
            steps = await _steps(connected, roots[0]) if name and output not in ("table", "dot") else []
            _show(roots, output, single=bool(name), steps=steps)
            if name and output in ("table", "wide") and roots[0].revision:  # an XR
                await say_link(connected, xr_path(found.gvk, place, name))

    run(kubeconfig, context, act)


async def _roots(connected: Connected, looking: Looking, kind: Kind, namespace: str, name: str) -> list[Node]:
    names = [name]
    if not name:
        listed = await connected.client.list(kind.gvk, namespace=namespace)
        names = [name_of(obj) for obj in listed.items]
        if not names:
            say(none_found(kind, namespace))
    return await asyncio.gather(*(looking.tree(Target(kind.gvk, namespace, each)) for each in names))


async def _steps(connected: Connected, root: Node) -> list[Mapping[str, str]]:
    """Which revision of which function ran each step of an XR last; nothing where no journal tells."""
    if root.object is None or not root.revision:
        return []
    from planform.journal.serving import PATH  # with it comes the journal, which the plain tree does without

    try:
        path = f"{PATH}/{uid_of(root.object)}/steps"
        found = orjson.loads(await connected.ask_control_plane(path, namespace=root.target.namespace))
    except (NotFound, Forbidden):
        return []
    steps: list[Mapping[str, str]] = found["items"]
    return steps


def _show(roots: Sequence[Node], output: str, *, single: bool, steps: Sequence[Mapping[str, str]]) -> None:
    match output:
        case "json" | "yaml":
            values = [as_value(root, _now()) for root in roots]
            if steps:
                values[0]["pipeline"] = list(steps)
            write_data(values[0] if single else {"items": values}, output)
        case "dot":
            click.echo(as_dot(roots))
        case _:
            if roots:
                click.echo(as_text(roots, wide=output == "wide", colour=is_terminal(), now=_now()))
            if steps:
                rows = [(each["step"], each["function"], each["revision"], each["rule"]) for each in steps]
                click.echo("\n" + table(("STEP", "FUNCTION", "REVISION", "BY RULE"), rows))


async def _watch(looking: Looking, target: Target, *, wide: bool) -> None:
    colour, shown = is_terminal(), ""

    def lost(error: ApiError | None) -> None:
        nonlocal shown
        if error is None:
            shown = ""  # what was said below the tree is to go
            say("the server is back")
        else:
            say(f"lost the server: {error.message}; trying again, the tree is as it was last")

    async with aclosing(changing_trees(looking, target, lost)) as trees:
        async for tree in trees:
            text = as_text([tree], wide=wide, colour=colour, now=_now())
            if text != shown:
                click.echo(f"{_CLEAR}{_fitting(text)}" if colour else f"{text}\n")
                sys.stdout.flush()
                shown = text
    say(f"{target} is gone")


def _now() -> datetime:
    return SystemClock().now()


def _fitting(text: str) -> str:
    """As many lines as the terminal has: a tree that scrolls cannot be drawn again in its place."""
    lines, room = text.split("\n"), shutil.get_terminal_size().lines - 2
    return text if len(lines) <= room else "\n".join([*lines[: room - 1], f"... and {len(lines) - room + 1} more"])
