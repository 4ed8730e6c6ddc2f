"""`planform random list|rotate`: which XRs' random values anybody could compute, and new ones for them."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any, Final

import click

from planform.api.kinds import GroupVersionKind, Object
from planform.api.metadata import name_of, namespace_of
from planform.api.names import SYSTEM_NAMESPACE, XRD
from planform.builtin.seeds import MARK, PUBLIC, Keyring, KeyUnavailable, seeding_of
from planform.cli.connection import MANAGER, Connected, connection_options, run
from planform.cli.output import output_option, table, write_data
from planform.client.informer import list_pages
from planform.client.protocol import Patch, PatchType
from planform.definitions.crds import xr_kind
from planform.errors import NotFound, UsageError

_PLACES: Final = (SYSTEM_NAMESPACE, "planform-system")
_key_namespace = click.option(
    "--key-namespace", default="", metavar="NAME", help=f"Where the key is.  [default: {' or '.join(_PLACES)}]"
)


@click.group()
def random() -> None:
    """See and renew what templates draw at random for XRs."""


@random.command("list")
@_key_namespace
@output_option("table", "json", "yaml", default="table")
@connection_options
def list_(key_namespace: str, output: str, kubeconfig: Path | None, context: str) -> None:
    """List XRs and what their random values are made with.

    Those that say `public` are older than the control plane's key: whoever reads such an XR and its template can
    compute its passwords. All others are made with the key that is named.
    """

    async def act(connected: Connected) -> list[dict[str, str]]:
        ring = await _ring(connected, key_namespace)
        return [{**_named(kind, xr), "madeWith": seeding_of(xr, ring)} for kind, xr in await _xrs(connected)]

    found = run(kubeconfig, context, act)
    if output == "table":
        columns = ("NAMESPACE", "XR", "MADE WITH")
        rows = [(each["namespace"] or "-", f"{each['kind']}/{each['name']}", each["madeWith"]) for each in found]
        click.echo(table(columns, rows))
    else:
        write_data(found, output)


@random.command()
@click.argument("xrs", nargs=-1, metavar="[KIND/NAME]...")
@click.option("--namespace", "-n", default="", metavar="NAME", help="Where these XRs are.")
@click.option("--all-public", is_flag=True, help="All XRs whose values anybody could compute.")
@_key_namespace
@output_option("text", "json", "yaml", default="text")
@connection_options
def rotate(
    xrs: tuple[str, ...],
    namespace: str,
    all_public: bool,
    key_namespace: str,
    output: str,
    kubeconfig: Path | None,
    context: str,
) -> None:
    """Have templates draw new random values for XRs, with the control plane's key.

    Passwords, keys and certificates that templates made for these XRs change with their next reconcile, at once.
    """
    if bool(xrs) == all_public:
        raise UsageError("name the XRs as KIND/NAME, or give --all-public", hint="to see them: planform random list")

    async def act(connected: Connected) -> list[dict[str, str]]:
        ring = await _ring(connected, key_namespace)
        done = []
        for kind, xr in _chosen(await _xrs(connected), xrs, namespace, ring):
            mark = {"metadata": {"annotations": {MARK: f"{ring.current}/{uuid.uuid4()}"}}}
            await connected.client.patch(
                kind,
                name_of(xr),
                Patch(PatchType.MERGE, mark),
                namespace=namespace_of(xr),
                manager=MANAGER,
            )
            done.append({**_named(kind, xr), "madeWith": ring.current})
        return done

    changed = run(kubeconfig, context, act)
    if output == "text":
        for each in changed:
            where = f"{each['namespace']}/" if each["namespace"] else ""
            click.echo(f"{each['kind']} {where}{each['name']} gets new random values")
    else:
        write_data(changed, output)


def _chosen(
    known: list[tuple[GroupVersionKind, Object]], wanted: tuple[str, ...], namespace: str, ring: Keyring
) -> list[tuple[GroupVersionKind, Object]]:
    """Raises UsageError for an XR that is not there."""
    if not wanted:
        return [(kind, xr) for kind, xr in known if seeding_of(xr, ring) == PUBLIC]
    found = []
    for each in wanted:
        matching = [
            (kind, xr)
            for kind, xr in known
            if f"{kind.kind}/{name_of(xr)}".lower() == each.lower() and (not namespace or namespace_of(xr) == namespace)
        ]
        if len(matching) != 1:
            problem = "there are several of that name" if matching else "there is none"
            raise UsageError(f'cannot choose XR "{each}": {problem}', hint="to see all: planform random list")
        found += matching
    return found


async def _xrs(connected: Connected) -> list[tuple[GroupVersionKind, Object]]:
    found: list[tuple[GroupVersionKind, Object]] = []
    for xrd in (await connected.client.list(XRD)).items:
        kind = xr_kind(xrd)
        async for page in list_pages(connected.client, kind):
            found += [(kind, xr) for xr in page.items]
    return found


async def _ring(connected: Connected, namespace: str) -> Keyring:
    from planform.pipeline.random_keys import CONFIG, CONFIG_MAP, StoredRandomKeys

    for place in (namespace,) if namespace else _PLACES:
        try:
            await connected.client.get(CONFIG_MAP, CONFIG, namespace=place)
        except NotFound:
            continue
        try:
            return await StoredRandomKeys(connected.client, place).keyring("")
        except KeyUnavailable as error:
            raise UsageError(str(error)) from None
    raise UsageError(
        "no control plane has made a random key here yet", hint="say where it is with --key-namespace, or start one"
    )


def _named(kind: GroupVersionKind, xr: Object) -> dict[str, Any]:
    return {"kind": kind.kind, "namespace": namespace_of(xr), "name": name_of(xr)}
