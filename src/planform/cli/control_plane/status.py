"""`planform status`: is it there, is it well, what does it hold."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from planform.api.kinds import Kind
from planform.cli.connection import Connected, connection_options, hush_warnings, run
from planform.cli.output import output_option, table, write_data
from planform.errors import Forbidden, MethodNotAllowed, NotFound


@click.command()
@output_option("table", "json", "yaml")
@connection_options
def status(output: str, kubeconfig: Path | None, context: str) -> None:
    """Show whether a control plane runs, and what it holds. Exits with 1 if it cannot be reached."""
    hush_warnings()
    found = run(kubeconfig, context, _look, timeout=10.0)
    if output != "table":
        write_data(found, output)
        return
    click.echo(f"{found['server']}  {found['version']}  {'ready' if found['ready'] else 'not ready'}")
    for check in found["checks"]:
        click.echo(f"  {check}")
    if found["objects"]:
        click.echo("")
        rows = [(count["kind"], count["apiVersion"], count["count"]) for count in found["objects"]]
        click.echo(table(("KIND", "API VERSION", "OBJECTS"), rows))


async def _look(connected: Connected) -> dict[str, Any]:
    from planform.client.discovery import path_of

    version = await connected.raw("/version")
    health = (await connected.transport.request("GET", "/readyz", query={"verbose": ""}, accept="*/*")).body.decode()
    lines = health.splitlines()
    kinds: dict[tuple[str, str], Kind] = {}
    for kind in await connected.client.kinds():
        if "list" in kind.verbs and (kind.group, kind.plural) != ("events.k8s.io", "events"):
            kinds.setdefault((kind.group, kind.plural), kind)
    limit = asyncio.Semaphore(8)

    async def count(kind: Kind) -> int:
        async with limit:
            try:
                answer = await connected.transport.request("GET", path_of(kind, ""), query={"limit": "1"})
            except (Forbidden, NotFound, MethodNotAllowed):
                return 0
        page = answer.json()
        return len(page["items"]) + int(page["metadata"].get("remainingItemCount") or 0)

    counts = await asyncio.gather(*(count(kind) for kind in kinds.values()))
    return {
        "server": connected.server,
        "version": version["gitVersion"],
        "ready": lines[-1].endswith("passed"),
        "checks": [line for line in lines[:-1] if line.startswith("[")],
        "objects": [
            {"kind": kind.kind, "apiVersion": kind.api_version, "count": number}
            for kind, number in zip(kinds.values(), counts, strict=True)
            if number
        ],
    }
