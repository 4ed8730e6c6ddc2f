"""`planform function revisions|describe`: the versions of one function, who uses them, and how they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from msgspec import UNSET

from planform.api.conditions import conditions_of
from planform.api.extensions.packages import FunctionRevisionStatus, FunctionSpec, FunctionStatus, RevisionSpec
from planform.api.kinds import Object
from planform.api.metadata import labels_of, name_of
from planform.api.names import FUNCTION, FUNCTION_REVISION, PACKAGE_LABEL
from planform.api.objects import spec_of, status_of
from planform.cli import completing
from planform.cli.connection import Connected, connection_options, run
from planform.cli.output import output_option, table, write_data
from planform.errors import NotFound, UsageError

_HEADERS = ("REVISION", "NUMBER", "STATE", "HEALTHY", "USERS", "VERSION", "DIGEST", "ENDPOINT")
_SYSTEM = "pkg.crossplane.io/"
_HEALTH = ("RevisionHealthy", "RuntimeHealthy")


@click.command()
@click.argument("name", shell_complete=completing.names_of("functions"))
@output_option("table", "json", "yaml", "name")
@connection_options
def revisions(name: str, output: str, kubeconfig: Path | None, context: str) -> None:
    """Show the revisions of the function NAME, the newest first; `*` marks the one that it means now.

    USERS counts the XRs that have a step which chooses the revision, and the Blueprints and ActionSets that have a
    phase which is bound to it.
    """
    function, found = run(kubeconfig, context, lambda connected: _read(connected, name))
    shown = [summary(each, function) for each in found]
    if output == "name":
        for each in shown:
            click.echo(each["name"])
    elif output == "table":
        click.echo(table(_HEADERS, _rows(shown)))
    else:
        write_data(shown, output)


@click.command()
@click.argument("name", shell_complete=completing.names_of("functions"))
@output_option("text", "json", "yaml", default="text")
@connection_options
def describe(name: str, output: str, kubeconfig: Path | None, context: str) -> None:
    """Show all about the function NAME: what it is installed from, its limits, and each of its revisions."""
    function, found = run(kubeconfig, context, lambda connected: _read(connected, name))
    info = {"name": name, **_about(function), "revisions": [summary(each, function) for each in found]}
    if output != "text":
        write_data(info, output)
        return
    for line in lines(info):
        click.echo(line)


async def _read(connected: Connected, name: str) -> tuple[Object, list[Object]]:
    """The Function, if there is one, and its revisions, the newest first. Raises UsageError if there is neither."""
    try:
        function = await connected.client.get(FUNCTION, name)
    except NotFound:
        function = {}
    found = (await connected.client.list(FUNCTION_REVISION, labels=f"{PACKAGE_LABEL}={name}")).items
    if not function and not found:
        from planform.cli.functions.listing import describe_builtins

        if any(name in each["names"] for each in describe_builtins(set())):
            raise UsageError(
                f'function "{name}" comes with planform: it needs no package, and has no revisions',
                hint="docs/reference/functions tells what it does",
            )
        raise UsageError(f'there is no function "{name}"', hint="to see all: planform function list --all")
    return function, sorted(found, key=lambda each: spec_of(each, RevisionSpec).revision, reverse=True)


def summary(revision: Object, function: Object) -> dict[str, Any]:
    """What there is to say of one revision."""
    spec, status = spec_of(revision, RevisionSpec), status_of(revision, FunctionRevisionStatus)
    labels = labels_of(revision)
    info = [each for each in status.conditions or () if each.type in _HEALTH]
    return {
        "name": name_of(revision),
        "number": spec.revision,
        "state": spec.desired_state,
        "current": name_of(revision) == status_of(function, FunctionStatus).current_revision,
        "healthy": all(each.status == "True" for each in info) if info else None,
        "problems": [each.message for each in info if each.status != "True" and each.message],
        "remarks": [each.message for each in info if each.status == "True" and each.message],
        "users": None if status.users is UNSET else status.users,
        "version": labels.get(f"{_SYSTEM}version", ""),
        "digest": labels.get(f"{_SYSTEM}digest", ""),
        "endpoint": status.endpoint or "",
        "image": spec.image,
        "capabilities": list(status.capabilities or ()),
        "labels": {key: value for key, value in labels.items() if not key.startswith(_SYSTEM)},
    }


def _about(function: Object) -> dict[str, Any]:
    spec = spec_of(function, FunctionSpec) if function else FunctionSpec(package="")
    return {
        "package": spec.package,
        "policy": spec.revision_activation_policy or "",
        "activeRevisionLimit": spec.active_revision_limit or 1,
        "revisionHistoryLimit": spec.history_limit,
        "conditions": [
            {key: each.get(key, "") for key in ("type", "status", "reason", "message")}
            for each in conditions_of(function)
        ],
    }


def _rows(shown: Iterable[Mapping[str, Any]]) -> Iterable[tuple[object, ...]]:
    for each in shown:
        name = each["name"] + ("*" if each["current"] else "")
        yield (
            name,
            each["number"],
            each["state"],
            each["healthy"],
            "" if each["users"] is None else each["users"],
            each["version"],
            each["digest"],
            each["endpoint"],
        )


def lines(info: Mapping[str, Any]) -> Iterable[str]:
    """What `describe` shows, for people."""
    yield f"Name:      {info['name']}"
    yield f"Package:   {info['package'] or 'none: its revisions were made by hand'}"
    if info["package"]:
        yield f"Policy:    {info['policy']}, {info['activeRevisionLimit']} active, {info['revisionHistoryLimit']} kept"
    for each in info["conditions"]:
        yield f"{each['type'] + ':':<11}{each['status']} ({each['reason']}) {each['message']}".rstrip()
    for each in info["revisions"]:
        current = ", current" if each["current"] else ""
        yield ""
        yield f"Revision {each['number']}: {each['name']} ({each['state']}{current})"
        yield f"  Image:         {each['image']}"
        yield f"  Endpoint:      {each['endpoint'] or 'none'}"
        if each["users"] is not None:
            who = "XRs, Blueprints and ActionSets" if "phase" in each["capabilities"] else "XRs"
            yield f"  Used by:       {each['users']} {who}"
        if each["capabilities"]:
            yield f"  Capabilities:  {', '.join(each['capabilities'])}"
        if each["labels"]:
            yield f"  Labels:        {', '.join(f'{key}={value}' for key, value in sorted(each['labels'].items()))}"
        for problem in each["problems"]:
            yield f"  Problem:       {problem}"
        for remark in each["remarks"]:
            yield f"  Note:          {remark}"
