"""`planform window list|status`: when Rollouts may move XRs, as it is now."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import CHANGE_WINDOW
from planform.cli.connection import Connected, connection_options, run
from planform.cli.output import output_option, table, write_data
from planform.client.informer import list_pages
from planform.clock import parse_timestamp, timestamp
from planform.errors import UsageError
from planform.rollouts.windows import Decision, Window, XrFacts, admits, explained, next_admission, state, window_of

_NAMESPACE = GroupVersionKind("", "v1", "Namespace")


@click.group()
def window() -> None:
    """See when Rollouts may move XRs."""


@window.command("list")
@output_option("table", "json", "yaml", "name", default="table")
@connection_options
def list_(output: str, kubeconfig: Path | None, context: str) -> None:
    """List ChangeWindows, and whether they are open now."""

    async def act(connected: Connected) -> list[Object]:
        return [each async for page in list_pages(connected.client, CHANGE_WINDOW) for each in page.items]

    now = datetime.now(UTC)
    found = [described(each, now) for each in run(kubeconfig, context, act)]
    if output == "table":
        columns = ("NAME", "EFFECT", "OPEN", "CHANGES", "FOR", "REASON")
        rows = [
            (each["name"], each["effect"], "yes" if each["open"] else "no", each["changes"], each["for"], each["why"])
            for each in found
        ]
        click.echo(table(columns, rows))
    elif output == "name":
        for each in found:
            click.echo(f"changewindow.rollout.planform.dev/{each['name']}")
    else:
        write_data(found, output)


@window.command()
@click.argument("name", required=False)
@click.option("--namespace", "-n", default="", metavar="NAME", help="Whether XRs of this namespace may be moved.")
@click.option("--xr-labels", default="", metavar="LABELS", help="Labels that such an XR has: app=pay,tier=gold.")
@click.option("--at", default="", metavar="TIME", help="At this moment rather than now: 2027-01-04T08:00:00Z.")
@output_option("text", "json", "yaml", default="text")
@connection_options
def status(
    name: str | None, namespace: str, xr_labels: str, at: str, output: str, kubeconfig: Path | None, context: str
) -> None:
    """Say how one window stands, or whether an XR may be moved.

    With NAME it is about that ChangeWindow. Without, it is about an XR in a namespace, with labels, or about any XR.
    """
    if name and (namespace or xr_labels):
        raise UsageError("name a window, or describe an XR by --namespace and --xr-labels")
    now = _moment(at)
    labels = _labels(xr_labels)

    async def act(connected: Connected) -> dict[str, Any]:
        if name:
            return described(await connected.client.get(CHANGE_WINDOW, name), now)
        listed = [each async for page in list_pages(connected.client, CHANGE_WINDOW) for each in page.items]
        home = await connected.client.get(_NAMESPACE, namespace) if namespace else None
        facts = XrFacts(labels, (home["metadata"].get("labels") or {}) if home is not None else None)
        windows = [window_of(each) for each in listed]
        return verdict(admits(windows, facts, now, held_since=now), windows, facts, now)

    found = run(kubeconfig, context, act)
    if output == "text":
        click.echo(found["message"])
    else:
        write_data(found, output)


def described(obj: Object, now: datetime) -> dict[str, Any]:
    """A window as it stands at a moment."""
    read = window_of(obj)
    found = state(read, now)
    return {
        "name": read.name,
        "effect": read.effect if not read.invalid else str(obj["spec"].get("effect") or "-"),
        "open": found.open,
        "changes": None if found.changes is None else timestamp(found.changes),
        "for": _subjects(read),
        "why": read.why or read.invalid,
        "message": explained(read, found),
    }


def verdict(decision: Decision, windows: list[Window], facts: XrFacts, now: datetime) -> dict[str, Any]:
    """Whether an XR may be moved, and if not, when it may be next."""
    opens = None if decision.admitted else next_admission(windows, facts, now, held_since=now)
    then = f"; next at {timestamp(opens)}" if opens is not None else ""
    return {
        "admitted": decision.admitted,
        "window": decision.window or None,
        "next": None if opens is None else timestamp(opens),
        "message": "may be moved" if decision.admitted else f"may not be moved: {decision.message}{then}",
    }


def _subjects(read: Window) -> str | None:
    parts = [
        f"{what} {selector}" if str(selector) else f"any {what}"
        for what, selector in (("namespaces", read.namespaces), ("xrs", read.xrs))
        if selector is not None
    ]
    return ", ".join(parts) or None


def _moment(text: str) -> datetime:
    if not text:
        return datetime.now(UTC)
    try:
        return parse_timestamp(text)
    except ValueError as error:
        raise UsageError(f'--at "{text}" is no time', hint="write 2027-01-04T08:00:00Z") from error


def _labels(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        key, equals, value = part.partition("=")
        if not equals:
            raise UsageError(f'--xr-labels: "{part}" is no label', hint="write KEY=VALUE, with commas between them")
        found[key] = value
    return found
