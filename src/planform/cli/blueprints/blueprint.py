"""`planform blueprint`: look at Blueprints before anything runs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import click

from planform.api.kinds import Object, gvk_of
from planform.api.metadata import name_of
from planform.api.names import ACTION_SET, BLUEPRINT, PROFILE
from planform.blueprints.catalogue import PhaseCatalogue
from planform.blueprints.contract import Engine, PhaseEnvironment
from planform.blueprints.errors import BlueprintInvalid
from planform.blueprints.functions import builtin_functions
from planform.blueprints.model import Blueprint, parse_blueprint
from planform.blueprints.registry import PhaseFunctionRegistry, installed_plugins
from planform.blueprints.shipped import shipped_catalogue
from planform.blueprints.validation import Findings, action_set_findings, blueprint_findings, profile_findings
from planform.blueprints.versions import State, Versions, embedded_versions
from planform.cli.connection import Connected, connection_options, run
from planform.cli.grouping import CommandGroup
from planform.cli.objects.manifests import ENDINGS, read_manifests
from planform.cli.output import output_option, say, write_data
from planform.errors import UsageError
from planform.functions.semver import parse_semver

FAILED_CODE = 1
_NOT_THERE = (State.COMING, State.REMOVED)


@click.group(cls=CommandGroup)
def blueprint() -> None:
    """Check Blueprints."""


@blueprint.command()
@click.argument("what", metavar="FILE|NAME", nargs=-1, required=True)
@click.option("--release", default="", help="As if planform were of this coming release.  [default: its own]")
@click.option("--overlay", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Overlay of versions.")
@click.option(
    "--engine", type=click.Choice(("embedded", "kubernetes")), default="embedded", show_default=True, help="Where."
)
@click.option("--warnings-as-errors", is_flag=True, help="Fail also for what is only unwise.")
@click.option("-n", "--namespace", default="", help="Namespace of a NAME.  [default: the context's]")
@output_option("text", "json", "yaml", default="text")
@connection_options
def validate(
    what: Sequence[str],
    release: str,
    overlay: Path | None,
    engine: str,
    warnings_as_errors: bool,
    namespace: str,
    output: str,
    kubeconfig: Path | None,
    context: str,
) -> None:
    """Check Blueprints with the functions of this installation: templates, functions, versions and arguments.

    FILE is a file, a directory or - for standard input, and nothing else is asked; NAME is a Blueprint of a control
    plane. ActionSets and Profiles in the files are checked with them; what else is in a directory is left out. Exits
    with 1 if anything is wrong.
    """
    known = _catalogue(release)
    if overlay is not None:
        known.load_overlay(overlay.read_text(encoding="utf-8"), source=str(overlay))
    found = _objects(what, namespace, kubeconfig, context)
    here = PhaseEnvironment(engine=cast(Engine, engine))
    checked = [(each, _findings(each.obj, _beside(each, found), known, here)) for each in found]
    if output != "text":
        write_data([_value(each, findings) for each, findings in checked], output)
    else:
        several = len({each.file for each in found}) > 1
        for each, findings in checked:
            _report(each.title(with_file=several), findings)
    if any(findings.errors or (warnings_as_errors and findings.warnings) for _, findings in checked):
        raise click.exceptions.Exit(FAILED_CODE)


@dataclass(frozen=True)
class _Found:
    """An object to check, and where it was found: a file, or nothing for a control plane."""

    obj: Object
    file: str = ""

    @property
    def name(self) -> str:
        metadata = self.obj["metadata"]
        return str(metadata.get("name") or f"{metadata['generateName']}...")

    def title(self, *, with_file: bool) -> str:
        shown = f"{self.obj['kind'].lower()}/{self.name}"
        return f"{self.file}: {shown}" if with_file and self.file else shown


def _objects(what: Sequence[str], namespace: str, kubeconfig: Path | None, context: str) -> list[_Found]:
    files = [each for each in what if each == "-" or Path(each).exists() or "/" in each or "." in Path(each).suffix]
    names = [each for each in what if each not in files]
    found = [each for file in files for each in _in_files(file)]
    if files and not found:
        raise UsageError(f"no Blueprint, ActionSet or Profile in {', '.join(files)}")

    async def act(connected: Connected) -> list[_Found]:
        place = namespace or connected.namespace
        return [_Found(await connected.client.get(BLUEPRINT, name, namespace=place)) for name in names]

    return [*found, *(run(kubeconfig, context, act) if names else [])]


def _in_files(name: str) -> Iterator[_Found]:
    """What is to be checked in a file, or in those of a directory; others may be there too, values of a chart say."""
    if name == "-" or not Path(name).is_dir():
        yield from _in_file(name)
        return
    for file in sorted(Path(name).rglob("*")):
        if file.suffix in ENDINGS and file.is_file():
            try:
                yield from _in_file(str(file))
            except UsageError as error:
                say(f"left out: {error}")


def _in_file(name: str) -> list[_Found]:
    found = read_manifests([name], generated_names=True)
    return [_Found(obj, name) for obj in found if gvk_of(obj) in (BLUEPRINT, ACTION_SET, PROFILE)]


def _beside(one: _Found, found: Sequence[_Found]) -> list[Object]:
    """All objects, of which those of its own file, and then of its directory, come last and so win over their likes."""

    def near(other: _Found) -> tuple[bool, bool]:
        return other.file == one.file, Path(other.file).parent == Path(one.file).parent

    return [each.obj for each in sorted(found, key=near)]


def _findings(obj: Object, all_: Sequence[Object], known: PhaseCatalogue, here: PhaseEnvironment) -> Findings:
    if gvk_of(obj) == BLUEPRINT:
        return blueprint_findings(obj, known, here)
    if gvk_of(obj) == PROFILE:
        return profile_findings(obj)
    return action_set_findings(obj, _parsed(all_), known)


def _parsed(objects: Sequence[Object]) -> dict[str, Blueprint | None]:
    """The Blueprints among the objects; those that cannot be read are told about by their own findings."""
    found: dict[str, Blueprint | None] = {}
    for obj in objects:
        if gvk_of(obj) == BLUEPRINT:
            try:
                found[name_of(obj)] = parse_blueprint(obj)
            except BlueprintInvalid:
                continue
    return found


def _catalogue(release: str) -> PhaseCatalogue:
    """The functions of this installation as they will be in a release. Raises VersionsInvalid or UsageError."""
    own = shipped_catalogue()
    if not release:
        return own
    listed = embedded_versions()
    position = listed.position(release)
    if position < listed.position(own.release):
        raise UsageError(
            f"release {release} is over: what it had is not in this installation", hint=f"this is {own.release}"
        )
    then = {}
    for name, function in listed.functions.items():
        stable = function.stable_at(position)
        then[name] = replace(function, stable_mark=stable.version if stable is not None else "")
    registry = PhaseFunctionRegistry(installed_plugins)
    for each in builtin_functions():
        function_ = listed.functions.get(each.name)
        number = parse_semver(each.version)
        version = function_.versions.get(number) if function_ is not None and number is not None else None
        if function_ is None or version is None or function_.state_at(version, position) not in _NOT_THERE:
            registry.register(replace(each, stable=False))
    return PhaseCatalogue(registry, versions=Versions(listed.releases, then, listed.source), release=release)


def _value(found: _Found, findings: Findings) -> Object:
    return {
        "kind": found.obj["kind"],
        "name": found.name,
        "file": found.file,
        "valid": not findings.errors,
        "errors": [{"field": each.field, "message": each.detail} for each in findings.errors],
        "warnings": list(findings.warnings),
    }


def _report(shown: str, findings: Findings) -> None:
    for warning in findings.warnings:
        say(click.style("warning: ", fg="yellow", bold=True) + f"{shown}: {warning}")
    for error in findings.errors:
        say(click.style("error: ", fg="red", bold=True) + f"{shown}: {error}")
    if not findings.errors:
        click.echo(f"{shown} is valid")
