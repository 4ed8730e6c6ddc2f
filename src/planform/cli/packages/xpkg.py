"""`planform xpkg`: packages of functions, providers and configurations."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from planform.api.kinds import GroupVersionKind, Object
from planform.api.metadata import name_of, resource_version_of
from planform.api.names import PACKAGES_GROUP
from planform.apimachinery import yaml_loader
from planform.apimachinery.names import label_problems
from planform.cli.connection import MANAGER, Connected, connection_options, run
from planform.cli.durations import parse_duration
from planform.cli.grouping import CommandGroup
from planform.cli.objects.waiting import WaitTimedOut, parse_goal
from planform.cli.output import output_option, say, write_data
from planform.cli.packages.access import find_image, is_file, named, options_from, registry_options, store_for
from planform.cli.packages.building import build
from planform.cli.packages.local import stored, tag_option, with_labels
from planform.cli.packages.showing import as_text, described
from planform.cli.packages.transfer import pull, push
from planform.errors import UsageError
from planform.packages.references import package_name
from planform.packages.xpkg import META_GROUP, PackageKind, read_package

_KINDS = click.Choice([kind.value.lower() for kind in PackageKind], case_sensitive=False)


@click.group(cls=CommandGroup)
def xpkg() -> None:
    """Build, look into, move and install packages."""


for command in (build, push, pull):
    xpkg.add_command(command)


@xpkg.command()
@click.argument("name")
@click.option("--kind", type=_KINDS, default="configuration", show_default=True, help="What it is to be.")
@click.option("--directory", type=click.Path(file_okay=False, path_type=Path), help="Where.  [default: ./NAME]")
@output_option("text", "json", "yaml", default="text")
def init(name: str, kind: str, directory: Path | None, output: str) -> None:
    """Start a package: a directory with its crossplane.yaml. For functions in Python: `planform function init`."""
    for problem in label_problems(name):
        raise UsageError(f'"{name}" cannot be the name of a package: {problem}')
    target = directory or Path(name)
    if target.exists() and any(target.iterdir()):
        raise UsageError(f"{target} is not empty", hint="choose another --directory")
    meta: Object = {
        "apiVersion": f"{META_GROUP}/v1",
        "kind": PackageKind(kind.capitalize()).value,
        "metadata": {"name": name, "annotations": {"meta.crossplane.io/description": f"What {name} is for."}},
        "spec": {"capabilities": ["composition"]} if kind == "function" else {},
    }
    (target / "examples").mkdir(parents=True)
    (target / "crossplane.yaml").write_text(yaml_loader.dump(meta))
    say(f"{target} is ready: put the objects it installs beside crossplane.yaml, then")
    say(f"  planform xpkg build -f {target}")
    if output != "text":
        write_data({"directory": str(target), "kind": meta["kind"], "name": name}, output)


@xpkg.command()
@click.argument("package")
@click.option("--platform", default="", metavar="OS/ARCH", help="Which one of a package for several platforms.")
@output_option("text", "json", "yaml", default="text")
@registry_options
def inspect(package: str, platform: str, output: str, **flags: Any) -> None:
    """Show what a package is and brings: PACKAGE is a file, or its name in a registry."""
    options = options_from(flags)
    with store_for(options, package) as blobs:
        image = asyncio.run(find_image(package, blobs, options, platform=platform))
        found = read_package(image)
    if output == "text":
        click.echo(as_text(image, found))
    else:
        write_data(described(image, found), output)


@xpkg.command()
@click.argument("kind")
@click.argument("reference", default="")
@click.argument("name", default="")
@tag_option
@click.option("--runtime-config", default="", metavar="NAME", help="The DeploymentRuntimeConfig to run it with.")
@click.option("-m", "--manual-activation", is_flag=True, help="Let people activate new revisions.")
@click.option("--package-pull-secrets", multiple=True, metavar="NAME", help="Secrets with logins for its registry.")
@click.option(
    "-r", "--revision-history-limit", type=click.IntRange(0), help="How many old revisions to keep; 0 keeps all."
)
@click.option("-w", "--wait", default="", metavar="DURATION", help="Wait so long for it to be healthy.")
@output_option("text", "json", "yaml", default="text")
@connection_options
def install(
    kind: str,
    reference: str,
    name: str,
    tag: str,
    data: Path | None,
    output: str,
    kubeconfig: Path | None,
    context: str,
    **flags: Any,
) -> None:
    """Install a package into a control plane.

    `planform xpkg install function HOST/PATH:TAG [NAME]` has it pulled from a registry.

    `planform xpkg install FILE [NAME]` takes a file, for a control plane on this machine: no registry is asked.
    Installing another file is an upgrade.
    """
    if is_file(kind) or Path(kind).suffix == ".xpkg":
        install_file(
            Path(kind), reference, tag=tag, data=data, output=output, kubeconfig=kubeconfig, context=context, **flags
        )
        return
    if kind.lower() not in _KINDS.choices:
        raise UsageError(
            f'"{kind}" is no file, and no kind of package', hint=f"one of {', '.join(_KINDS.choices)}, or FILE"
        )
    if not reference:
        raise UsageError("which package?", hint=f"planform xpkg install {kind.lower()} HOST/PATH:TAG [NAME]")
    if is_file(reference):
        install_file(
            Path(reference), name, tag=tag, data=data, output=output, kubeconfig=kubeconfig, context=context, **flags
        )
        return
    made = package_object(PackageKind(kind.capitalize()), reference, name, **flags)
    _install(made, output=output, kubeconfig=kubeconfig, context=context, wait=flags["wait"], upgrades=False)


def install_file(
    file: Path,
    name: str,
    *,
    tag: str,
    data: Path | None,
    output: str,
    kubeconfig: Path | None,
    context: str,
    labels: tuple[str, ...] = (),
    active_revision_limit: int | None = None,
    **flags: Any,
) -> None:
    """Install a package's file, or upgrade to it."""
    if not file.is_file():
        raise UsageError(f"there is no file {file}")
    reference, package = stored(file, tag=tag, kubeconfig=kubeconfig, data=data)
    made = with_labels(package_object(package.kind, str(reference), name or package.name, **flags), labels)
    if active_revision_limit is not None:
        made["spec"]["activeRevisionLimit"] = active_revision_limit
        made["spec"].setdefault("revisionHistoryLimit", active_revision_limit + 2)  # not less than may be active
    _install(made, output=output, kubeconfig=kubeconfig, context=context, wait=flags["wait"], upgrades=True)


def _install(made: Object, *, output: str, kubeconfig: Path | None, context: str, wait: str, upgrades: bool) -> None:
    seconds = parse_duration(wait).total_seconds() if wait else 0.0
    word = f"{made['kind'].lower()}.{PACKAGES_GROUP}/{name_of(made)}"

    async def act(connected: Connected) -> Object:
        if upgrades:
            installed = await connected.client.apply(made, manager=MANAGER, force=True)
            say(f"{word} is {made['spec']['package'].partition('@')[0]}")
        else:
            installed = await connected.client.create(made, manager=MANAGER)
            say(f"{word} created")
        return await _healthy(connected, installed, word, seconds) if seconds else installed

    installed = run(kubeconfig, context, act, timeout=max(30.0, seconds))
    if output == "text":
        click.echo(word)
    else:
        write_data(installed, output)


def package_object(kind: PackageKind, reference: str, name: str, **flags: Any) -> Object:
    """The object that installs a package. What the user left out is left out, so that its defaults hold."""
    parsed = named(reference)
    spec: Object = {"package": str(parsed)}
    if flags.get("manual_activation"):
        spec["revisionActivationPolicy"] = "Manual"
    if flags.get("revision_history_limit") is not None:
        spec["revisionHistoryLimit"] = flags["revision_history_limit"]
    if flags.get("package_pull_secrets"):
        spec["packagePullSecrets"] = [{"name": secret} for secret in flags["package_pull_secrets"]]
    if flags.get("runtime_config"):
        if kind is PackageKind.CONFIGURATION:
            raise UsageError("a Configuration runs nothing, so --runtime-config has no meaning for it")
        spec["runtimeConfigRef"] = {"name": flags["runtime_config"]}
    metadata = {"name": name or package_name(parsed)}
    return {"apiVersion": f"{PACKAGES_GROUP}/v1", "kind": kind.value, "metadata": metadata, "spec": spec}


async def _healthy(connected: Connected, obj: Object, word: str, seconds: float) -> Object:
    """Follow the object until it is healthy; raises WaitTimedOut with what it looked like at the end."""
    goal, last = parse_goal("condition=Healthy"), obj
    kind = GroupVersionKind(PACKAGES_GROUP, "v1", obj["kind"])
    fields, at = f"metadata.name={name_of(obj)}", resource_version_of(obj)
    say(f"waiting for {word} to be healthy")
    try:
        async with asyncio.timeout(seconds):
            while not goal.is_met(last):
                async with connected.client.watch(kind, fields=fields, resource_version=at) as changes:
                    async for change in changes:
                        last, at = change.object, resource_version_of(change.object)
                        if goal.is_met(last):
                            break
    except TimeoutError as error:
        raise WaitTimedOut(word, goal, last, seconds) from error
    return last
