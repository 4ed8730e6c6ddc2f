"""`planform label|annotate|patch|edit|diff`: changing what is there, and seeing a change beforehand."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from planform.api.kinds import Kind, Object, gvk_of
from planform.api.metadata import name_of, namespace_of, resource_version_of
from planform.cli import completing
from planform.cli.connection import MANAGER, Connected, connection_options, run
from planform.cli.objects.getting import named_objects
from planform.cli.objects.manifests import read_manifests
from planform.cli.objects.showing import full_name, none_found
from planform.cli.output import is_terminal, output_option, say, write_data
from planform.client.protocol import Patch, PatchType
from planform.errors import ApiError, Conflict, NotFound, PlanformError, UsageError

_PATCHES: Final = {"merge": PatchType.MERGE, "json": PatchType.JSON, "strategic": PatchType.STRATEGIC}
_SERVERS_OWN: Final = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink")
DIFFERENT: Final = 1
"""The exit code of `planform diff` where there is a difference, as of diff itself."""


def _changes_of(member: str) -> click.Command:
    """`planform label` and `planform annotate`: the same command about another member of the metadata."""
    verb, past = ("label", "labeled") if member == "labels" else ("annotate", "annotated")

    @click.command(verb)
    @click.argument("what", nargs=-1, required=True, shell_complete=completing.objects)
    @click.option("-l", "--selector", default="", help="Label selector instead of names.")
    @click.option("--all", "everything", is_flag=True, help="All objects of the kind in the namespace.")
    @click.option("--overwrite", is_flag=True, help="Change values that are there already.")
    @click.option("--dry-run", is_flag=True, help="Check everything, change nothing.")
    @click.option(
        "-n",
        "--namespace",
        default="",
        help="Namespace.  [default: the context's]",
        shell_complete=completing.namespaces,
    )
    @output_option("name", "json", "yaml", default="name")
    @connection_options
    def command(
        what: Sequence[str],
        selector: str,
        everything: bool,
        overwrite: bool,
        dry_run: bool,
        namespace: str,
        output: str,
        kubeconfig: Path | None,
        context: str,
    ) -> None:
        targets, wanted = _split(what, verb)
        words, names = named_objects(targets)
        if not (names or selector or everything):
            raise UsageError(f"{verb} needs names, --selector or --all", hint=f"planform {verb} KIND NAME KEY=VALUE")

        async def act(connected: Connected) -> None:
            for kind, place, obj in await _found(connected, words, names, namespace, selector):
                present = obj["metadata"].get(member) or {}
                for key, value in wanted.items():
                    if not overwrite and value is not None and present.get(key, value) != value:
                        raise UsageError(
                            f"{full_name(kind, obj)} has {key}={present[key]} already", hint="--overwrite changes it"
                        )
                changed = {key: value for key, value in wanted.items() if present.get(key) != value}
                if changed:
                    patch = Patch(PatchType.MERGE, {"metadata": {member: changed}})
                    obj = await _patch(connected, kind, place, name_of(obj), patch, dry_run=dry_run)
                _report(kind, obj, past if changed else "unchanged", output, dry_run)

        run(kubeconfig, context, act)

    command.help = (
        f"{verb.capitalize()} objects: `planform {verb} app blog team=web`; `team-` removes it.\n\n"
        "Values that are there already are changed only with --overwrite."
    )
    return command


label = _changes_of("labels")
annotate = _changes_of("annotations")


@click.command()
@click.argument("what", nargs=-1, required=True, shell_complete=completing.objects)
@click.option("-p", "--patch", "text", required=True, help="The patch, in JSON or YAML.")
@click.option("--type", "form", type=click.Choice(list(_PATCHES)), default="merge", show_default=True, help="Its form.")
@click.option("--subresource", type=click.Choice(["status", "scale"]), help="Patch this instead of the object.")
@click.option("--dry-run", is_flag=True, help="Check everything, change nothing.")
@click.option(
    "-n", "--namespace", default="", help="Namespace.  [default: the context's]", shell_complete=completing.namespaces
)
@output_option("name", "json", "yaml", default="name")
@connection_options
def patch(
    what: Sequence[str],
    text: str,
    form: str,
    subresource: str | None,
    dry_run: bool,
    namespace: str,
    output: str,
    kubeconfig: Path | None,
    context: str,
) -> None:
    """Change fields of an object: `planform patch app blog -p '{"spec": {"size": "large"}}'`."""
    from planform.apimachinery import yaml_loader

    words, names = named_objects(what)
    if not names:
        raise UsageError("patch needs a name", hint="planform patch KIND NAME -p PATCH")
    body = yaml_loader.load(text)
    if not isinstance(body, list if form == "json" else dict):
        shape = "a list of operations" if form == "json" else "an object"
        raise UsageError(f"a patch of type {form} is {shape}", hint="--type says which form it has")

    async def act(connected: Connected) -> None:
        for kind, place, obj in await _found(connected, words, names, namespace, ""):
            change = Patch(_PATCHES[form], body)
            after = await _patch(
                connected, kind, place, name_of(obj), change, dry_run=dry_run, subresource=subresource or ""
            )
            _report(kind, after, "unchanged" if _plain(obj) == _plain(after) else "patched", output, dry_run)

    run(kubeconfig, context, act)


@click.command()
@click.argument("what", nargs=-1, required=True, shell_complete=completing.objects)
@click.option(
    "-n", "--namespace", default="", help="Namespace.  [default: the context's]", shell_complete=completing.namespaces
)
@connection_options
def edit(what: Sequence[str], namespace: str, kubeconfig: Path | None, context: str) -> None:
    """Change an object in your editor: `planform edit app blog`.

    VISUAL or EDITOR says which. What the control plane refuses is shown again, with the reason; leaving the text as it
    is ends it.
    """
    words, names = named_objects(what)
    if len(names) != 1 or len(words) != 1:
        raise UsageError("edit takes one object", hint="planform edit KIND NAME")

    async def act(connected: Connected) -> None:
        ((kind, _, obj),) = await _found(connected, words, names, namespace, "")
        text = _as_text(obj)
        refusal = ""
        while True:
            edited = click.edit(_with_remarks(refusal) + text, extension=".yaml")
            if edited is None or _without_remarks(edited) == text:
                say("nothing was changed")
                return
            text = _without_remarks(edited)
            try:
                after = await connected.client.update(_replacing(obj, text), manager=MANAGER)
            except Conflict as error:
                error.hint = "somebody else changed it meanwhile; edit it again"
                raise
            except PlanformError as error:
                refusal = error.message
                continue
            click.echo(f"{full_name(kind, after)} edited")
            return

    run(kubeconfig, context, act)


@click.command()
@click.option("-f", "--filename", "files", multiple=True, required=True, help="File, directory or - for stdin.")
@click.option("-n", "--namespace", default="", help="Namespace of objects that name none.")
@click.option("--field-manager", default=MANAGER, show_default=True, help="In whose name it would be applied.")
@connection_options
def diff(files: Sequence[str], namespace: str, field_manager: str, kubeconfig: Path | None, context: str) -> None:
    """Show what applying files would change, field by field, as the server would store it.

    Exits with 0 if nothing would change, with 1 if something would.
    """
    objects = read_manifests(files)

    async def act(connected: Connected) -> bool:
        different = False
        for obj in objects:
            kind = await connected.client.kind(gvk_of(obj))
            if kind.namespaced and not namespace_of(obj):
                obj["metadata"]["namespace"] = namespace or connected.namespace
            place = namespace_of(obj)
            try:
                before: Object | None = await connected.client.get(kind.gvk, name_of(obj), namespace=place)
            except NotFound:
                before = None
            after = await connected.client.apply(obj, manager=field_manager, force=True, dry_run=True)
            for line in _difference(full_name(kind, obj), before, after):
                different = True
                click.echo(line)
        return different

    if run(kubeconfig, context, act):
        raise click.exceptions.Exit(DIFFERENT)


# -- the parts


def _split(what: Sequence[str], verb: str) -> tuple[list[str], dict[str, str | None]]:
    """Kind and names, and the values to set; None removes one."""
    wanted: dict[str, str | None] = {}
    targets: list[str] = []
    for word in what:
        key, equals, value = word.partition("=")
        if equals:
            wanted[key] = value
        elif word.endswith("-") and targets:
            wanted[word.removesuffix("-")] = None
        else:
            targets.append(word)
    if not wanted:
        raise UsageError(f"what to {verb}?", hint=f"planform {verb} KIND NAME KEY=VALUE, or KEY- to remove it")
    return targets, wanted


async def _found(
    connected: Connected, words: Sequence[str], names: Sequence[str], namespace: str, selector: str
) -> list[tuple[Kind, str, Object]]:
    found: list[tuple[Kind, str, Object]] = []
    for word in words:
        kind = await connected.find_kind(word)
        place = (namespace or connected.namespace) if kind.namespaced else ""
        if names:
            objects = [await connected.client.get(kind.gvk, name, namespace=place) for name in names]
        else:
            objects = (await connected.client.list(kind.gvk, namespace=place, labels=selector)).items
            if not objects:
                say(none_found(kind, place, selector))
        found += [(kind, place, obj) for obj in objects]
    return found


async def _patch(
    connected: Connected, kind: Kind, place: str, name: str, change: Patch, *, dry_run: bool, subresource: str = ""
) -> Object:
    try:
        return await connected.client.patch(
            kind.gvk, name, change, namespace=place, manager=MANAGER, dry_run=dry_run, subresource=subresource
        )
    except ApiError as error:
        if change.type is PatchType.STRATEGIC and error.reason == "UnsupportedMediaType":
            error.hint = "custom kinds take no strategic merge patches: --type merge"
        raise


def _report(kind: Kind, obj: Object, verb: str, output: str, dry_run: bool) -> None:
    if output == "name":
        click.echo(f"{full_name(kind, obj)} {verb}{' (dry run)' if dry_run else ''}")
        return
    obj["metadata"].pop("managedFields", None)
    write_data(obj, output)


def _plain(obj: Object) -> Object:
    """An object without what only the server writes."""
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _SERVERS_OWN}
    return {**obj, "metadata": metadata}


def _as_text(obj: Object) -> str:
    from planform.apimachinery import yaml_loader

    return str(
        yaml_loader.dump({**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "managedFields"}})
    )


def _replacing(obj: Object, text: str) -> Object:
    """The edited object, which must still be the one that was opened, and replaces no later version."""
    from planform.apimachinery import yaml_loader

    edited: Any = yaml_loader.load(text)
    if not isinstance(edited, dict) or not isinstance(edited.get("metadata"), dict):
        raise UsageError("the text is no object any more")
    for field in ("apiVersion", "kind"):
        if edited.get(field) != obj[field]:
            raise UsageError(f"{field} cannot be edited")
    edited["metadata"].setdefault("resourceVersion", resource_version_of(obj))
    return edited


def _with_remarks(refusal: str) -> str:
    remarks = "# Lines that begin with # are left out. Leave everything as it is to change nothing.\n"
    return remarks + "".join(f"# refused: {line}\n" for line in refusal.splitlines())


def _without_remarks(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))


def _difference(name: str, before: Object | None, after: Object) -> Iterator[str]:
    from planform.apimachinery import yaml_loader

    old = yaml_loader.dump(_plain(before)).splitlines() if before is not None else []
    new = yaml_loader.dump(_plain(after)).splitlines()
    colours = {"+": "green", "-": "red", "@": "cyan"} if is_terminal() else {}
    for line in difflib.unified_diff(old, new, f"live/{name}", f"merged/{name}", lineterm=""):
        yield click.style(line, fg=colours.get(line[:1]))
