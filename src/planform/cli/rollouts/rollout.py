"""`planform rollout`: see how changes reach a fleet, and decide about them."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from planform.api.kinds import Object, gvk_of
from planform.api.names import COMPOSITION, ROLLOUT, ROLLOUT_ACTION, ROLLOUT_POLICY
from planform.api.rollouts import FINAL
from planform.cli import completing
from planform.cli.connection import MANAGER, Connected, connection_options, run
from planform.cli.dashboard_links import rollout_path, say_link
from planform.cli.durations import duration_option
from planform.cli.grouping import CommandGroup
from planform.cli.objects.waiting import Goal, WaitTimedOut
from planform.cli.output import output_option, say, table, write_data
from planform.cli.rollouts.drawing import change_of, listed, phase_of, picture
from planform.cli.rollouts.drawing import history as history_table
from planform.client.informer import list_pages
from planform.errors import Conflict, NotFound

FAILED_CODE: Final = 1
_PATIENCE: Final = 30.0
_BACK: Final = frozenset({"Aborted", "Undone", "Failed"})
_GOAL: Final = Goal("its end", "over", lambda obj: obj is not None and phase_of(obj) in FINAL)


@click.group(cls=CommandGroup)
def rollout() -> None:
    """See how changes reach a fleet, wave by wave, and decide about them.

    A RolloutPolicy makes a Rollout of every new revision of the Compositions that it holds. NAME is a Rollout, or a
    Composition, which means its latest Rollout.
    """


_reason_option = click.option("--reason", default="", metavar="TEXT", help="Why, for the history.")
_timeout_option = duration_option("--timeout", default="1h", help="How long to wait.")


@rollout.command("list")
@click.option("--active", is_flag=True, help="Only those that have not ended.")
@output_option()
@connection_options
def list_(active: bool, output: str, kubeconfig: Path | None, context: str) -> None:
    """List Rollouts, the latest last."""

    async def act(connected: Connected) -> list[Object]:
        found = await _all(connected)
        return [each for each in found if not active or phase_of(each) not in FINAL]

    found = run(kubeconfig, context, act)
    if output != "table":
        write_data(found, output)
    elif found:
        click.echo(listed(found))
    else:
        say("no rollouts: they come with a RolloutPolicy and a changed Composition")


@rollout.command()
@click.argument("name", shell_complete=completing.names_of("rollouts"))
@output_option()
@connection_options
def status(name: str, output: str, kubeconfig: Path | None, context: str) -> None:
    """Show how a Rollout goes: its waves, what it waits for, and which XRs failed."""

    async def act(connected: Connected) -> Object:
        found = await _get(connected, name)
        if output == "table":
            click.echo("\n".join(picture(found, datetime.now(UTC))))
            await say_link(connected, rollout_path(found["metadata"]["name"]))
        return found

    found = run(kubeconfig, context, act)
    if output != "table":
        write_data(found, output)


@rollout.command()
@click.argument("name", shell_complete=completing.names_of("rollouts"))
@_timeout_option
@connection_options
def watch(name: str, timeout: float, kubeconfig: Path | None, context: str) -> None:
    """Show how a Rollout goes until it has ended. Exits with 0 if it is completed, else with 1, or with 3 in time."""

    async def act(connected: Connected) -> Object:
        found = await _get(connected, name)
        await say_link(connected, rollout_path(found["metadata"]["name"]))
        return await _followed(connected, found, timeout)

    found = run(kubeconfig, context, act, timeout=max(_PATIENCE, timeout))
    if phase_of(found) != "Completed":
        raise click.exceptions.Exit(FAILED_CODE)


@rollout.command()
@click.argument("policy", shell_complete=completing.names_of("rolloutpolicies"))
@click.option("--composition", default="", help="Only of this Composition.")
@output_option()
@connection_options
def plan(policy: str, composition: str, output: str, kubeconfig: Path | None, context: str) -> None:
    """Print the waves that a policy makes of the XRs that there are, without starting anything."""
    found = run(kubeconfig, context, lambda connected: _planned(connected, policy, composition))
    if output != "table":
        write_data(found, output)
        return
    rows = [(each["wave"], each["part"], each["xrs"], ", ".join(each["examples"])) for each in found["waves"]]
    click.echo(table(("WAVE", "PART", "XRS", "FOR EXAMPLE"), rows))
    if not found["waves"]:
        say(f'policy "{policy}" holds no Composition with XRs')


@rollout.command("history")
@click.argument("name", shell_complete=completing.names_of("rollouts"))
@output_option()
@connection_options
def history(name: str, output: str, kubeconfig: Path | None, context: str) -> None:
    """Show what was decided about a Rollout: when, by whom and why."""
    found = run(kubeconfig, context, lambda connected: _get(connected, name))
    if output == "table":
        click.echo(history_table(found))
    else:
        write_data((found.get("status") or {}).get("history") or [], output)


def _action(command: str, action: str, words: str, done: str, *, wave: bool = False, wait: str = "") -> None:
    """Add the command that makes one kind of RolloutAction."""

    def act(name: str, reason: str, kubeconfig: Path | None, context: str, **more: Any) -> None:
        asked = "PromoteFull" if more.get("full") else "SkipGate" if more.get("skip_gate") else action

        async def make(connected: Connected) -> Object:
            found = await _get(connected, name)
            _check(found, asked)
            spec = {"rollout": found["metadata"]["name"], "action": asked}
            spec |= {key: value for key, value in (("reason", reason), ("wave", more.get("wave") or "")) if value}
            await connected.client.create(
                {
                    "apiVersion": ROLLOUT_ACTION.api_version,
                    "kind": ROLLOUT_ACTION.kind,
                    "metadata": {
                        "generateName": f"{found['metadata']['name']}-",
                        "ownerReferences": [_owner(found)],
                    },
                    "spec": spec,
                },
                manager=MANAGER,
            )
            return await _ended(connected, found, more["timeout"]) if more.get("wait") else found

        found = run(kubeconfig, context, make, timeout=max(_PATIENCE, more.get("timeout") or 0.0))
        click.echo(f"rollout/{found['metadata']['name']} {phase_of(found).lower() if more.get('wait') else done}")

    act.__doc__ = words
    decorated: Any = connection_options(_reason_option(act))
    if wave:
        decorated = click.option("--wave", default="", help="Which wave.  [default: the one under way]")(decorated)
    if wait:
        decorated = _timeout_option(decorated)
        decorated = click.option("--wait", is_flag=True, help=wait)(decorated)
    if command == "promote":
        decorated = click.option("--full", is_flag=True, help="All waves at once, without gates.")(decorated)
        decorated = click.option("--skip-gate", is_flag=True, help="Only go without the gates of the wave.")(decorated)
    decorated = click.argument("name", shell_complete=completing.names_of("rollouts"))(decorated)
    rollout.command(command)(decorated)


_WAIT: Final = "Wait until all XRs are back."
_action("start", "Promote", "Begin a Rollout whose policy says `start: Manual`.", "started")
_action("pause", "Pause", "Move nobody more; XRs that are on their way go on.", "paused")
_action("resume", "Resume", "Go on after a pause, accepting what had failed by then.", "resumed")
_action("approve", "Approve", "Approve the beginning of a Rollout, or of a wave.", "approved", wave=True)
_action("promote", "Promote", "Do not wait any longer: end the soak and the gates of a wave.", "promoted", wave=True)
_action("abort", "Abort", "Stop a Rollout: every XR goes back by itself, at once.", "is being aborted", wait=_WAIT)
_action("undo", "Undo", "Take back a completed Rollout: every XR goes back, at once.", "is being undone", wait=_WAIT)
_action("retry", "Retry", "Begin an aborted or undone Rollout once more, with all its waves.", "is begun again")


def _check(found: Object, action: str) -> None:
    """Refuse what could have no effect, with what would."""
    phase, name = phase_of(found), found["metadata"]["name"]
    hint: str | None = None
    if action == "Undo" and phase != "Completed":
        hint = f"planform rollout abort {name}" if phase not in FINAL else "planform rollout list"
        raise Conflict(f'Rollout "{name}" is {phase}: only a completed one can be undone', hint=hint)
    if action == "Retry" and phase not in ("Aborted", "Undone", "Failed"):
        raise Conflict(f'Rollout "{name}" is {phase}: there is nothing to begin again')
    if action not in ("Undo", "Retry") and phase in FINAL:
        hint = f"planform rollout undo {name}" if phase == "Completed" and action == "Abort" else None
        raise Conflict(f'Rollout "{name}" has ended: it is {phase}', hint=hint)


async def _all(connected: Connected) -> list[Object]:
    listed = [each async for page in list_pages(connected.client, ROLLOUT) for each in page.items]
    return sorted(listed, key=lambda each: (each["metadata"]["creationTimestamp"], _order(each)))


def _order(found: Object) -> tuple[Any, ...]:
    change = found["spec"]["changes"][0]
    return change["composition"], change["toNumber"], found["spec"].get("attempt") or 1


async def _get(connected: Connected, name: str) -> Object:
    """The Rollout of this name, or the latest of the Composition of this name."""
    name = name.removeprefix("rollout/")
    try:
        return await connected.client.get(ROLLOUT, name)
    except NotFound as error:
        found = [
            each
            for each in await _all(connected)
            if any(change["composition"] == name for change in each["spec"]["changes"])
        ]
        if found:
            return max(found, key=_order)
        error.hint = "see them all: planform rollout list"
        raise


def _owner(found: Object) -> Object:
    metadata = found["metadata"]
    return {"apiVersion": ROLLOUT.api_version, "kind": ROLLOUT.kind, "name": metadata["name"], "uid": metadata["uid"]}


async def _ended(connected: Connected, found: Object, timeout: float) -> Object:
    """Wait until everybody is back."""
    name = found["metadata"]["name"]
    try:
        async with asyncio.timeout(timeout):
            while phase_of(found) not in _BACK:
                await asyncio.sleep(0.2)
                found = await connected.client.get(ROLLOUT, name)
    except TimeoutError as error:
        raise WaitTimedOut(f"rollout/{name}", _GOAL, found, timeout) from error
    return found


async def _followed(connected: Connected, found: Object, timeout: float) -> Object:
    show = _drawn() if sys.stderr.isatty() else _lines()
    name = found["metadata"]["name"]
    try:
        async with asyncio.timeout(timeout):
            while True:
                show(found)
                if phase_of(found) in FINAL:
                    return found
                at = str(found["metadata"]["resourceVersion"])
                watched = connected.client.watch(ROLLOUT, fields=f"metadata.name={name}", resource_version=at)
                async with watched as changes:
                    async for change in changes:
                        found = change.object
                        show(found)
                        if phase_of(found) in FINAL or change.type == "DELETED":
                            return found
                found = await connected.client.get(ROLLOUT, name)
    except TimeoutError as error:
        late = WaitTimedOut(f"rollout/{name}", _GOAL, found, timeout)
        late.hint = f"it goes on: planform rollout status {name}"
        raise late from error


def _lines() -> Callable[[Object], None]:
    """A line for each change, for logs and pipes."""
    last = ""

    def show(found: Object) -> None:
        nonlocal last
        counts = (found.get("status") or {}).get("counts") or {}
        wave = (found.get("status") or {}).get("wave") or {}
        place = f" {wave['name']} {wave['state']}" if wave and phase_of(found) not in FINAL else ""
        moved = f"{counts.get('target', 0)}/{counts.get('xrs', 0)} moved, {counts.get('ready', 0)} ready"
        line = f"{change_of(found)}: {phase_of(found)}{place}, {moved}, {counts.get('failed', 0)} failed"
        if line != last:
            say(line)
            last = line

    return show


def _drawn() -> Callable[[Object], None]:
    """The whole picture, drawn over what was drawn before."""
    drawn = 0

    def show(found: Object) -> None:
        nonlocal drawn
        size = shutil.get_terminal_size()
        lines = [each[: size.columns] for each in picture(found, datetime.now(UTC))][: size.lines - 1]
        up = f"\x1b[{drawn}A\x1b[J" if drawn else ""
        click.echo(up + "\n".join(lines), err=True, color=not os.environ.get("NO_COLOR"))
        drawn = len(lines)

    return show


async def _planned(connected: Connected, policy: str, composition: str) -> Object:
    """The waves of all XRs that a policy's Compositions have."""
    import msgspec

    from planform.api.rollouts import RolloutPolicy
    from planform.compositions.released import policy_for
    from planform.rollouts.waves import Member, Placement, place, waves_of
    from planform.rollouts.xr_facts import read_xr

    client = connected.client
    held = msgspec.convert(await client.get(ROLLOUT_POLICY, policy), RolloutPolicy)
    members, names = list[Member](), dict[str, str]()
    namespaces = {
        each["metadata"]["name"]: each["metadata"].get("labels") or {} for each in (await client.list(_NAMESPACE)).items
    }
    for found in (await client.list(COMPOSITION)).items:
        name = found["metadata"]["name"]
        if composition not in ("", name) or policy_for(found, [held])[0] is None:
            continue
        kind = gvk_of(found["spec"]["compositeTypeRef"])
        try:
            pages = [page async for page in list_pages(client, kind)]
        except NotFound:
            continue
        for xr in (each for page in pages for each in page.items):
            view = read_xr(xr, kind=f"{kind.kind}.{kind.group}")
            if view.composition == name and not view.deleted:
                labels = namespaces.get(view.home) if view.home else None
                members.append(Member(view.uid, view.labels, labels, view.owner))
                names[view.uid] = "/".join(filter(None, (view.key.namespace, view.key.name)))
    if composition and not members:
        await client.get(COMPOSITION, composition)
    waves = waves_of(held.spec)
    groups: dict[Placement, list[str]] = {}
    for uid, at in place(held.spec, members, seed=policy, waves=waves).items():
        groups.setdefault(at, []).append(names[uid])
    return {
        "policy": policy,
        "waves": [
            {
                "wave": waves[at.wave].name,
                "part": at.part + 1,
                "xrs": len(groups[at]),
                "examples": sorted(groups[at])[:3],
            }
            for at in sorted(groups)
        ],
    }


_NAMESPACE: Final = gvk_of({"apiVersion": "v1", "kind": "Namespace"})
