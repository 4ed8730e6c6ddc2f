"""`planform demo`: a control plane composes before your eyes, in seconds, leaving nothing behind."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Final

import click

from planform.api.kinds import Object
from planform.api.metadata import name_of
from planform.api.names import COMPOSITION_REVISION, XRD
from planform.cli.control_plane import demo_platform as platform
from planform.cli.control_plane.demo_rollout import roll_out_in_waves
from planform.cli.objects.drawing import as_text
from planform.cli.output import is_terminal, table
from planform.client import Client
from planform.client.resource_tree import Looking, Node, Target, changing_trees
from planform.errors import PlanformError

_PATIENCE_SECONDS: Final = 60.0
_MANAGER: Final = "demo"
_NEXT: Final = {
    "planform up": "a control plane of your own, kept in ~/.local/share/planform",
    "kubectl get xrd": "or any Kubernetes client; planform up says which KUBECONFIG",
    "planform trace KIND NAME": "what anything is made of, as a tree; planform explain-run tells why",
    "docs/tutorial/compose-your-first-api.md": "make what you just saw, in ten minutes",
}

Trees = Mapping[str, Node]
"""The trees of the XRs by name."""


class DemoStuck(PlanformError):
    """The demonstration did not come to its end in time."""

    reason = "TimedOut"

    def __init__(self) -> None:
        super().__init__(f"not all Apps were ready within {_PATIENCE_SECONDS:.0f} s")
        self.hint = "is the machine very busy? what is shown above is how far they came"


@click.command()
def demo() -> None:
    """Watch a control plane compose, in seconds and without leaving a trace.

    Starts an ephemeral control plane, defines an API, composes five instances of it, and rolls out a second revision
    of the composition, which those that follow it adopt and the one that is pinned does not. Then a policy rolls out a
    bad change to five of fifty, stops it and brings them back, and a good one goes through.
    """
    from planform.app import run_loop
    from planform.telemetry.logs import set_up_logging

    set_up_logging(sys.stderr, level="error", format="text")
    run_loop(_demo())


async def _demo() -> None:
    from planform.app import Settings, open_control_plane

    begun, failure = time.monotonic(), None
    _step("Starting an ephemeral control plane")
    async with open_control_plane(Settings(data=None)) as running:
        _done(f"ready at {running.url} after {running.started_in:.2f} s: one process, no cluster, no containers")
        try:
            await _play(running.client)
        except PlanformError as error:  # raised below: the task groups of the control plane would wrap it
            failure = error
    if failure is not None:
        raise failure
    _step(f"That took {time.monotonic() - begun:.0f} s, and nothing is left of it. To go on:")
    for command, text in _NEXT.items():
        click.echo(f"  {click.style(command.ljust(max(map(len, _NEXT))), fg='cyan')}  {text}")


async def _play(client: Client) -> None:
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await _define(client)
            await _roll_out(client, await _compose(client))
            await roll_out_in_waves(client, step=_step, done=_done)
    except TimeoutError as error:
        raise DemoStuck from error


async def _define(client: Client) -> None:
    _step("Defining an API (XRD) and what it is made of (Composition)")
    xrd = await client.create(platform.definition())
    async with client.watch(XRD, fields=f"metadata.name={name_of(xrd)}") as changes:
        async for change in changes:
            conditions = change.object.get("status", {}).get("conditions", [])
            if any(found["type"] == "Established" and found["status"] == "True" for found in conditions):
                break
    _done("App (demo.planform.dev/v1) is served")
    await client.apply(platform.composition("bucket", "database"), manager=_MANAGER)
    _done("an App is a bucket and a database, of a kind that only pretends")


async def _compose(client: Client) -> Trees:
    _step("Creating five Apps: four follow new revisions of the Composition, wiki is pinned")
    for app in platform.apps():
        await client.create(app)
    return await _follow(client, {}, lambda trees: all(tree.ready == "True" for tree in trees.values()))


async def _roll_out(client: Client, before: Trees) -> None:
    _step("Changing the Composition: an App gets a cache as well")
    await client.apply(platform.composition("bucket", "cache", "database"), manager=_MANAGER)
    followers = {name for name, policy in platform.POLICIES.items() if policy == "Automatic"}
    moved = {before[name].revision for name in followers}

    def adopted(trees: Trees) -> bool:
        return all(tree.revision not in moved and _is_ready(tree) for name, tree in trees.items() if name in followers)

    after = await _follow(client, before, adopted)
    numbers = await _numbers(client)
    _step("Which App is on which revision of the Composition, before and after")
    rows = [
        (
            f"App/{name}",
            platform.POLICIES[name],
            f"{numbers[before[name].revision]} -> {numbers[after[name].revision]}",
            f"{len(before[name].children)} -> {len(after[name].children)}",
            "adopted" if before[name].revision != after[name].revision else "unchanged, as asked for",
        )
        for name in sorted(after)
    ]
    for line in table(("NAME", "POLICY", "REVISION", "RESOURCES", "NEW REVISION"), rows).splitlines():
        click.echo(f"  {line}")


async def _numbers(client: Client) -> dict[str, int]:
    """The number of each composition revision."""
    listed = await client.list(COMPOSITION_REVISION)
    return {name_of(each): each["spec"]["revision"] for each in listed.items}


def _is_ready(tree: Node) -> bool:
    return all(node.ready == "True" for node in tree.walk())


# -- watching


async def _follow(client: Client, known: Trees, enough: Callable[[Trees], bool]) -> Trees:
    """Show how the trees of all Apps differ from what is known, until it is enough; gives them as they are then."""
    looking = Looking(client)
    trees: dict[str, Node] = {}
    changed = asyncio.Event()

    async def follow(app: Object) -> None:
        target = Target(platform.APP, platform.NAMESPACE, name_of(app))
        async with aclosing(changing_trees(looking, target)) as found:
            async for tree in found:
                trees[target.name] = tree
                changed.set()

    tasks = [asyncio.create_task(follow(app)) for app in platform.apps()]
    try:
        with _picture(known) as show:
            while len(trees) < len(tasks) or not enough(trees):
                await changed.wait()
                changed.clear()
                show({name: trees[name] for name in sorted(trees)})
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return trees


@contextmanager
def _picture(known: Trees) -> Iterator[Callable[[Trees], None]]:
    """Draws trees over each other on a terminal; elsewhere says in a line what became of what."""
    if not is_terminal():
        yield _Telling(known)
        return
    click.echo("\x1b[?25l\x1b[?7l", nl=False)  # no cursor, and lines that are too long are cut instead of wrapped
    try:
        yield _Drawing()
    finally:
        click.echo("\x1b[?25h\x1b[?7h", nl=False)


class _Drawing:
    """A picture that is drawn again in its place."""

    def __init__(self) -> None:
        self._height = 0

    def __call__(self, trees: Trees) -> None:
        lines = as_text(list(trees.values()), colour=True).split("\n")
        room = shutil.get_terminal_size().lines - 2
        if len(lines) > room:
            lines = [*lines[: room - 1], f"... and {len(lines) - room + 1} more"]
        back = f"\x1b[{self._height}F" if self._height else ""
        click.echo(back + "".join(f"  {line}\x1b[K\n" for line in lines) + "\x1b[J", nl=False)
        self._height = len(lines)


class _Telling:
    """A line when an XR is composed or moves to another revision, and when anything becomes ready."""

    def __init__(self, known: Trees) -> None:
        self._known = {node.target: node for tree in known.values() for node in tree.walk()}

    def __call__(self, trees: Trees) -> None:
        for tree in trees.values():
            for node in reversed([*tree.walk()]):  # an XR is ready after its resources
                self._print_node(node)
                self._known[node.target] = node

    def _print_node(self, node: Node) -> None:
        before = self._known.get(node.target, Node(node.target, None))
        if before.revision and before.revision != node.revision:
            _done(f"{_name(node)} moved to revision {node.revision}")
        new = [_name(child) for child in node.children if child.target not in {each.target for each in before.children}]
        if new:
            _done(
                f"{_name(node)} is made of {', '.join(new)}" if not before.children else f"{_name(node)} gets {new[0]}"
            )
        if node.ready == "True" and before.ready != "True":
            _done(f"{_name(node)} is ready")


def _name(node: Node) -> str:
    return f"{node.target.gvk.kind}/{node.target.name}"


def _step(text: str) -> None:
    click.secho(f"\n{text}", bold=True)


def _done(text: str) -> None:
    click.echo(click.style("  ✓ ", fg="green") + text)
