"""`planform get`: the command that is run most, so it imports only what it needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from planform.cli import completing
from planform.cli.connection import Connected, connection_options, namespace_options, run
from planform.cli.objects.printing import printing_option
from planform.cli.objects.showing import list_kinds, show_changes, show_objects, show_tables, version_of
from planform.errors import UsageError


@click.command()
@click.argument("what", nargs=-1, shell_complete=completing.objects)
@click.option("-l", "--selector", default="", help="Label selector.")
@click.option("--field-selector", default="", help="Field selector.")
@click.option("-w", "--watch", "watching", is_flag=True, help="Go on and show changes.")
@click.option("--kinds", is_flag=True, help="List the kinds that are served.")
@click.option("--sort-by", default="", metavar="PATH", help="Order by a field: .metadata.creationTimestamp.")
@click.option("--show-labels", is_flag=True, help="Add a column with all labels.")
@click.option("-L", "--label-columns", multiple=True, metavar="LABEL", help="Add a column with this label's value.")
@namespace_options
@printing_option("table", "wide", "json", "yaml", "name")
@connection_options
def get(
    what: Sequence[str],
    selector: str,
    field_selector: str,
    watching: bool,
    kinds: bool,
    sort_by: str,
    show_labels: bool,
    label_columns: Sequence[str],
    namespace: str,
    all_namespaces: bool,
    output: str,
    kubeconfig: Path | None,
    context: str,
) -> None:
    """Show objects: `planform get configmaps`, `planform get cm/app`, `planform get cm app other`."""
    if kinds:
        run(kubeconfig, context, lambda connected: list_kinds(connected, output))
        return
    words, names = named_objects(what)
    if watching and (len(words) > 1 or len(names) > 1):
        raise UsageError(
            "--watch follows all objects of one kind, or one of them", hint=f"planform get {words[0]} --watch"
        )

    async def act(connected: Connected) -> None:
        where = "" if all_namespaces else namespace or connected.namespace
        kinds = [await connected.find_kind(word) for word in words]
        places = [(kind, where if kind.namespaced else "") for kind in kinds]
        # Asked for before anything is shown: a change meanwhile is rather shown twice than never.
        since = await version_of(connected, *places[0]) if watching else ""
        if output in ("table", "wide"):
            for number, (kind, place) in enumerate(places):
                if number:
                    click.echo()
                await show_tables(
                    connected,
                    kind,
                    place,
                    names,
                    selector,
                    field_selector,
                    output == "wide",
                    all_namespaces,
                    sort_by=sort_by,
                    show_labels=show_labels,
                    label_columns=label_columns,
                )
        else:
            await show_objects(connected, places, names, selector, field_selector, output, sort_by)
        if watching:
            await show_changes(connected, *places[0], names, selector, field_selector, output, since)

    run(kubeconfig, context, act)


def named_objects(what: Sequence[str]) -> tuple[list[str], list[str]]:
    """`cm/app`, `cm app other` or `cm,secrets`: the kinds and the names."""
    if not what:
        raise UsageError("which kind?", hint="planform get KIND [NAME...], or planform get --kinds")
    if "/" in what[0]:
        pairs = [word.partition("/") for word in what]
        if len({kind for kind, _, _ in pairs}) != 1 or not all(name for _, _, name in pairs):
            raise UsageError("give KIND/NAME words of one kind, or KIND NAME NAME")
        return [pairs[0][0]], [name for _, _, name in pairs]
    return what[0].split(","), list(what[1:])
