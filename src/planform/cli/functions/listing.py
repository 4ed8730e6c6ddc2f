"""`planform function list`: which functions a control plane has, in which revisions, and how they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from planform.api.kinds import GroupVersionKind, Object
from planform.api.metadata import label, labels_of, name_of
from planform.api.names import FUNCTION, FUNCTION_REVISION, PACKAGE_LABEL
from planform.cli.connection import Connected, connection_options, run
from planform.cli.output import output_option, say, table, write_data
from planform.client.informer import list_pages
from planform.errors import NotFound

_HEADERS = ("FUNCTION", "REVISION", "NUMBER", "STATE", "HEALTHY", "ENDPOINT", "PACKAGE")


@click.command("list")
@click.option("--all", "with_builtins", is_flag=True, help="Also the built-in functions, which need no installing.")
@output_option("table", "json", "yaml")
@connection_options
def list_functions(with_builtins: bool, output: str, kubeconfig: Path | None, context: str) -> None:
    """Show the functions there are, with their revisions: which are active, which are healthy, where they serve.

    The newest revision comes first; `*` marks the one that the Function means now.
    """
    functions, revisions = run(kubeconfig, context, _read)
    found = describe(functions, revisions)
    if with_builtins:
        found += describe_builtins({each["name"] for each in found})
    if output != "table":
        write_data(found, output)
        return
    if found:
        click.echo(table(_HEADERS, _rows(found)))
    else:
        say("no functions are installed; to see the built-in ones: planform function list --all")
    for function in found:
        if function["message"]:
            say(f"{function['name']}: {function['message']}")


async def _read(connected: Connected) -> tuple[list[Object], list[Object]]:
    return await _all(connected, FUNCTION), await _all(connected, FUNCTION_REVISION)


async def _all(connected: Connected, gvk: GroupVersionKind) -> list[Object]:
    found: list[Object] = []
    try:
        async for page in list_pages(connected.client, gvk):
            found += page.items
    except NotFound:
        return []  # a control plane that does not serve the kind has none of it
    return found


def describe(functions: Iterable[Object], revisions: Iterable[Object]) -> list[dict[str, Any]]:
    """Functions by name, each with its revisions, the newest first; also revisions that no Function has made."""
    found: dict[str, dict[str, Any]] = {}
    current: set[str] = set()
    for function in functions:
        status, name = function.get("status") or {}, name_of(function)
        conditions = _conditions(status)
        current.add(str(status.get("currentRevision") or ""))
        found[name] = _function(
            name,
            package=function["spec"]["package"],
            installed=_status_of(conditions, "Installed"),
            healthy=_status_of(conditions, "Healthy"),
            message=_message(conditions, "Installed") or _message(conditions, "Healthy"),
        )
    for revision in sorted(revisions, key=lambda each: -int(each["spec"].get("revision") or 0)):
        name = label(revision, PACKAGE_LABEL)
        if not name:
            continue
        image = revision["spec"].get("image") or ""
        function = found.setdefault(name, _function(name, package=image, installed=None, healthy=None))
        function["revisions"].append(_revision(revision, current))
    return [found[name] for name in sorted(found)]


def describe_builtins(hidden: set[str]) -> list[dict[str, Any]]:
    """The functions that ship with planform, but for those whose every name means an installed one."""
    from planform.builtin import list_builtins
    from planform.packages.endpoints import builtin_endpoint
    from planform.packages.function_catalogue import BUILTIN_REVISION, names_of

    shown = []
    for builtin in list_builtins():
        names = [name for name in names_of(builtin) if name not in hidden]
        if not names:
            continue
        revision = {
            "name": BUILTIN_REVISION,
            "number": 0,
            "state": "Active",
            "current": True,
            "healthy": True,
            "endpoint": builtin_endpoint(builtin.name),
            "labels": {},
        }
        function = _function(names[0], package="", installed=True, healthy=True)
        shown.append({**function, "names": names, "purpose": builtin.purpose, "revisions": [revision]})
    return shown


def _function(
    name: str, *, package: str, installed: bool | None, healthy: bool | None, message: str = ""
) -> dict[str, Any]:
    return {
        "name": name,
        "package": package,
        "installed": installed,
        "healthy": healthy,
        "message": message,
        "revisions": [],
    }


def _revision(revision: Object, current: set[str]) -> dict[str, Any]:
    spec, status = revision["spec"], revision.get("status") or {}
    conditions = _conditions(status)
    healthy = [
        each for type_ in ("RevisionHealthy", "RuntimeHealthy") if (each := _status_of(conditions, type_)) is not None
    ]
    return {
        "name": name_of(revision),
        "number": spec.get("revision"),
        "state": spec.get("desiredState"),
        "current": name_of(revision) in current,
        "healthy": all(healthy) if healthy else None,
        "endpoint": status.get("endpoint") or "",
        "image": spec.get("image") or "",
        "labels": labels_of(revision),
    }


def _rows(functions: Iterable[Mapping[str, Any]]) -> Iterable[tuple[object, ...]]:
    for function in functions:
        if not function["revisions"]:
            yield function["name"], "", "", "", function["healthy"], "", function["package"]
        for revision in function["revisions"]:
            mark = "*" if revision["current"] and len(function["revisions"]) > 1 else ""
            package = revision.get("image", "")
            state, healthy, endpoint = revision["state"], revision["healthy"], revision["endpoint"]
            yield function["name"], revision["name"] + mark, revision["number"], state, healthy, endpoint, package


def _conditions(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {each["type"]: each for each in status.get("conditions") or ()}


def _status_of(conditions: Mapping[str, Mapping[str, Any]], type_: str) -> bool | None:
    """What a condition says; None if it does not know, or is not there."""
    return {"True": True, "False": False}.get(str(conditions.get(type_, {}).get("status")))


def _message(conditions: Mapping[str, Mapping[str, Any]], type_: str) -> str:
    return str(conditions.get(type_, {}).get("message") or "")
