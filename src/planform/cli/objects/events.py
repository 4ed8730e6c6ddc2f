"""`planform events`: what happened to objects, as those who acted on them told it."""

from __future__ import annotations

from pathlib import Path

import click

from planform.api.kinds import Object
from planform.api.metadata import created_at
from planform.api.names import EVENT
from planform.cli.connection import Connected, connection_options, namespace_options, run
from planform.cli.objects.showing import as_list
from planform.cli.output import output_option, say, table, write_data
from planform.errors import UsageError


@click.command()
@click.option("--for", "target", default="", metavar="KIND/NAME", help="Only what concerns this object.")
@click.option("-w", "--watch", "watching", is_flag=True, help="Go on and show new ones.")
@namespace_options
@output_option("table", "json", "yaml")
@connection_options
def events(
    target: str,
    watching: bool,
    namespace: str,
    all_namespaces: bool,
    output: str,
    kubeconfig: Path | None,
    context: str,
) -> None:
    """Show what happened, newest last."""
    word, _, named = target.partition("/")
    if target and not (word and named):
        raise UsageError(f'"{target}" is not KIND/NAME', hint="planform events --for KIND/NAME")

    async def act(connected: Connected) -> None:
        where = "" if all_namespaces else namespace or connected.namespace
        fields = ""
        if target:
            kind = await connected.find_kind(word)
            fields = f"involvedObject.kind={kind.kind},involvedObject.name={named}"
        found = await connected.client.list(EVENT, namespace=where, fields=fields)
        ordered = sorted(found.items, key=_last_seen)
        for event in ordered:
            event["metadata"].pop("managedFields", None)
        if output != "table":
            write_data(as_list(ordered), output)
        elif ordered:
            click.echo(table(("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"), [_event_row(e) for e in ordered]))
        elif not watching:
            say("no events")
        if watching:
            async with connected.client.watch(
                EVENT, namespace=where, fields=fields, resource_version=found.resource_version
            ) as changes:
                async for change in changes:
                    if change.type in ("ADDED", "MODIFIED"):
                        click.echo("   ".join(_event_row(change.object)))

    run(kubeconfig, context, act)


def _last_seen(event: Object) -> str:
    for field in ("lastTimestamp", "eventTime", "firstTimestamp"):
        if event.get(field):
            return str(event[field])
    return created_at(event)


def _event_row(event: Object) -> list[str]:
    involved = event.get("involvedObject") or {}
    return [
        f"{_last_seen(event)[:19]}Z",
        str(event.get("type") or ""),
        str(event.get("reason") or ""),
        f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}",
        str(event.get("message") or ""),
    ]
