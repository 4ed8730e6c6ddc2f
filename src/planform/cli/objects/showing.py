"""What `planform get` prints: tables that the server draws, objects, names, and changes as they come."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from planform.api.kinds import Kind, Object
from planform.api.metadata import labels_of, name_of, namespace_of
from planform.cli.connection import Connected
from planform.cli.objects.printing import printed, shown_labels, sort_key
from planform.cli.output import say, table, write_data

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def full_name(kind: Kind, obj: Object) -> str:
    """`widget.example.org/a`, as kubectl names objects."""
    group = f".{kind.group}" if kind.group else ""
    return f"{kind.singular or kind.kind.lower()}{group}/{name_of(obj)}"


def none_found(kind: Kind, namespace: str, labels: str = "") -> str:
    place = f" in namespace {namespace}" if namespace else ""
    return f"no {kind.plural}{place}" + (f" with labels {labels}" if labels else "")


def as_list(objects: Sequence[Object]) -> Object:
    """Several objects as the one that kubectl prints and reads."""
    return {"apiVersion": "v1", "kind": "List", "items": list(objects)}


async def list_kinds(connected: Connected, output: str) -> None:
    """Every kind that the control plane serves."""
    kinds = sorted(await connected.client.kinds(), key=lambda kind: (kind.group, kind.plural, kind.version))
    if output in ("json", "yaml"):
        fields = ("group", "version", "kind", "plural", "namespaced")
        write_data([{field: getattr(kind, field) for field in fields} for kind in kinds], output)
        return
    rows = [(k.plural, ",".join(k.short_names), k.api_version, str(k.namespaced).lower(), k.kind) for k in kinds]
    click.echo(table(("NAME", "SHORT", "API VERSION", "NAMESPACED", "KIND"), rows))


async def show_tables(
    connected: Connected,
    kind: Kind,
    namespace: str,
    names: Sequence[str],
    labels: str,
    fields: str,
    wide: bool,
    all_namespaces: bool,
    *,
    sort_by: str = "",
    show_labels: bool = False,
    label_columns: Sequence[str] = (),
) -> None:
    """The server's own columns for a kind, or for some objects of it."""
    from planform.client.discovery import path_of

    pages = []
    whole = {"includeObject": "Object"} if sort_by else {}
    if names:
        for name in names:
            pages.append(await _table(connected, path_of(kind, namespace, name), whole))
    else:
        query = {"labelSelector": labels, "fieldSelector": fields, **whole}
        pages.append(await _table(connected, path_of(kind, namespace), {k: v for k, v in query.items() if v}))
    columns = [
        (index, column["name"].upper())
        for index, column in enumerate(pages[0]["columnDefinitions"])
        if wide or not column.get("priority")
    ]
    rows = [row for page in pages for row in page["rows"]]
    if not rows:
        say(none_found(kind, namespace, labels))
        return
    if sort_by:
        key = sort_key(sort_by)
        rows.sort(key=lambda row: key(row["object"]))
    spaced = all_namespaces and kind.namespaced
    headers = [
        *(["NAMESPACE"] if spaced else []),
        *(name for _, name in columns),
        *(label.rpartition("/")[2].upper() for label in label_columns),
        *(["LABELS"] if show_labels else []),
    ]
    shown = [
        [
            *([namespace_of(row["object"])] if spaced else []),
            *(row["cells"][index] for index, _ in columns),
            *(labels_of(row["object"]).get(label, "") for label in label_columns),
            *([shown_labels(row["object"])] if show_labels else []),
        ]
        for row in rows
    ]
    click.echo(table(headers, shown))


async def _table(connected: Connected, path: str, query: dict[str, str]) -> Any:
    answer = await connected.transport.request("GET", path, query=query, accept=_TABLE, repeatable=True)
    return answer.json()


async def show_objects(
    connected: Connected,
    places: Sequence[tuple[Kind, str]],
    names: Sequence[str],
    labels: str,
    fields: str,
    output: str,
    sort_by: str = "",
) -> None:
    """Objects of each kind in its namespace: one document, of whatever kinds they are."""
    found: list[Object] = []
    for kind, namespace in places:
        if names:
            mine = [await connected.client.get(kind.gvk, name, namespace=namespace) for name in names]
        else:
            mine = (await connected.client.list(kind.gvk, namespace=namespace, labels=labels, fields=fields)).items
        if sort_by:
            mine.sort(key=sort_key(sort_by))
        if output == "name":
            for obj in mine:
                click.echo(full_name(kind, obj))
        found += mine
    if output == "name":
        return
    for obj in found:
        obj["metadata"].pop("managedFields", None)
    document = found[0] if len(names) == len(places) == 1 else as_list(found)
    text = printed(output, document, found)
    if text is None:
        write_data(document, output)
    else:
        click.echo(text, nl=False)


async def version_of(connected: Connected, kind: Kind, namespace: str) -> str:
    """The resource version that all objects of a kind have been read at, if they are read from now on."""
    return (await connected.client.list(kind.gvk, namespace=namespace, limit=1)).resource_version


async def show_changes(
    connected: Connected,
    kind: Kind,
    namespace: str,
    names: Sequence[str],
    labels: str,
    fields: str,
    output: str,
    since: str,
) -> None:
    """Every change after a resource version, of all objects or of the one that is named."""
    if names:
        fields = f"metadata.name={names[0]}"
    async with connected.client.watch(
        kind.gvk, namespace=namespace, labels=labels, fields=fields, resource_version=since
    ) as changes:
        async for change in changes:
            if output in ("json", "yaml"):
                change.object["metadata"].pop("managedFields", None)
                write_data(change.object, output)
                sys.stdout.flush()
            elif (text := printed(output, change.object, [change.object])) is not None:
                click.echo(text, nl=not text.endswith("\n"))
                sys.stdout.flush()
            else:
                click.echo(f"{change.type:10}{full_name(kind, change.object)}")
