"""`planform phase-functions`: which functions Blueprints can use, in which versions, and how long those will last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from planform.api.kinds import Object
from planform.blueprints import FUNCTIONS_PATH as PATH
from planform.blueprints.discovery import function_list
from planform.blueprints.shipped import shipped_catalogue
from planform.cli.connection import Connected, connection_options, run
from planform.cli.grouping import CommandGroup
from planform.cli.output import output_option, table, write_data
from planform.errors import Forbidden, NotFound, PlanformError, UsageError
from planform.functions.semver import parse_semver

F = TypeVar("F")


class PhaseFunctionNotFound(PlanformError):
    """There is no such phase function, or it never had such a version."""

    reason = "PhaseFunctionNotFound"
    hint = "planform phase-functions list shows all"


@click.group("phase-functions", cls=CommandGroup)
def phase_functions() -> None:
    """See which functions the phases of Blueprints can use, and in which versions."""


def _source_options(command: F) -> F:
    """Where to look: a control plane, or what is installed here."""
    local = click.option("--local", is_flag=True, help="Those of this installation; asks no control plane.")
    return local(connection_options(command))  # type: ignore[type-var]  # click's decorators keep what they get


@phase_functions.command("list")
@output_option("table", "json", "yaml")
@_source_options
def list_(output: str, local: bool, kubeconfig: Path | None, context: str) -> None:
    """Show every function with its stable version and the others that it has."""
    found = _functions(local, kubeconfig, context)
    if output != "table":
        write_data(found, output)
        return
    click.echo(table(("FUNCTION", "STABLE", "OTHER VERSIONS", "PURPOSE"), (_row(each) for each in found)))


@phase_functions.command()
@click.argument("name")
@output_option("table", "json", "yaml")
@_source_options
def versions(name: str, output: str, local: bool, kubeconfig: Path | None, context: str) -> None:
    """Show every version that function NAME ever had, the newest first, and what becomes of each."""
    function = _named(_functions(local, kubeconfig, context), name)
    if output != "table":
        write_data(function["versions"], output)
        return
    headers = ("VERSION", "STATE", "SINCE", "REMOVED IN", "REPLACEMENT", "ENGINES", "IN USE BY")
    click.echo(table(headers, (_version_row(each) for each in function["versions"])))


@phase_functions.command()
@click.argument("name")
@click.argument("version", default="")
@output_option("text", "json", "yaml", default="text")
@_source_options
def describe(name: str, version: str, output: str, local: bool, kubeconfig: Path | None, context: str) -> None:
    """Show what a version of function NAME does and takes; its stable one unless VERSION is given."""
    function = _named(_functions(local, kubeconfig, context), name)
    found = _version(function, version)
    if output != "text":
        write_data({"name": name, "stable": function["stable"], **found}, output)
    else:
        click.echo("\n".join(_lines(function, found)))


def _functions(local: bool, kubeconfig: Path | None, context: str) -> list[Object]:
    if local:
        return function_list(shipped_catalogue())

    async def act(connected: Connected) -> list[Object]:
        try:
            return list((await connected.raw(PATH))["functions"])
        except NotFound as error:
            raise UsageError(
                f"{connected.server} tells of no phase functions", hint="--local shows those of this installation"
            ) from error
        except Forbidden as error:
            error.hint = f"let a ClusterRole `get` the nonResourceURLs {PATH} and {PATH}/*"
            raise

    return run(kubeconfig, context, act)


def _named(functions: Iterable[Object], name: str) -> Object:
    known = {each["name"]: each for each in functions}
    if name not in known:
        import difflib

        error = PhaseFunctionNotFound(f'there is no phase function "{name}"')
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        error.hint = f'did you mean "{close[0]}"? {error.hint}' if close else error.hint
        raise error
    return known[name]


def _version(function: Mapping[str, Any], wanted: str) -> Object:
    """The version that is asked for, else the stable one, else the newest."""
    number = parse_semver(wanted or function["stable"])
    for each in function["versions"]:
        if parse_semver(each["version"]) == number or not (wanted or function["stable"]):
            return dict(each)
    raise PhaseFunctionNotFound(f'phase function "{function["name"]}" has no version "{wanted}"')


def _row(function: Mapping[str, Any]) -> tuple[str, str, str, str]:
    others = [
        f"{each['version']} ({each['state']})" for each in function["versions"] if each["version"] != function["stable"]
    ]
    return function["name"], function["stable"], ", ".join(others), function["description"]


def _version_row(version: Mapping[str, Any]) -> tuple[object, ...]:
    used = version.get("inUseBy") or {}
    counts = [f"{count} {name}" for name, count in sorted(used.items()) if count]
    return (
        version["version"],
        version["state"],
        version.get("since"),
        version.get("removedIn"),
        version.get("replacement") or version.get("note"),
        ", ".join(version.get("engines") or ()),
        ", ".join(counts),
    )


def _lines(function: Mapping[str, Any], version: Mapping[str, Any]) -> Iterator[str]:
    stable = " (stable)" if version["version"] == function["stable"] else ""
    yield f"{function['name']} {version['version']}{stable}"
    described = version.get("description") or function["description"]
    if described:
        yield f"  {described}"
    yield ""
    facts: Sequence[tuple[str, object]] = (
        ("State", version["state"]),
        ("Since release", version.get("since")),
        ("Deprecated in", version.get("deprecatedIn")),
        ("Removed in", version.get("removedIn")),
        ("Replacement", version.get("replacement")),
        ("Note", version.get("note")),
        ("Engines", ", ".join(version.get("engines") or ())),
        ("Required arguments", ", ".join(version.get("requiredArgs") or ())),
        ("Other arguments", _arguments(version)),
        ("Reads artifacts of", ", ".join(f"{name} {range_}" for name, range_ in (version.get("reads") or {}).items())),
        ("Labels", ", ".join(f"{name}={value}" for name, value in (version.get("labels") or {}).items())),
    )
    for name, value in facts:
        if value:
            yield f"{name + ':':<20} {value}"


def _arguments(version: Mapping[str, Any]) -> str:
    if "arguments" in version and version["arguments"] is None:
        return "any"
    return ", ".join(version.get("arguments") or ())
