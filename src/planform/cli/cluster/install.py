"""`planform install`, `upgrade` and `uninstall`: the controllers on a Kubernetes cluster, without Helm."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planform.api.metadata import name_of
from planform.cli.connection import Connected, connection_options, run
from planform.cli.durations import duration_option
from planform.cli.output import output_option, say, write_data
from planform.errors import UsageError

if TYPE_CHECKING:
    from planform.api.kinds import Object
    from planform.cli.cluster.installing import Step

NAMESPACE = "planform-system"

_namespace_option = click.option(
    "-n", "--namespace", default=NAMESPACE, show_default=True, help="Where the controllers run."
)


def _placing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What install and upgrade have in common."""
    for option in reversed(
        (
            _namespace_option,
            click.option("--image", metavar="REPOSITORY:TAG", help="The image to run.  [default: the chart's]"),
            click.option(
                "-f",
                "--values",
                "files",
                multiple=True,
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                help="A YAML file with values of the chart.  [repeatable]",
            ),
            click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="One value.  [repeatable]"),
            click.option("--take-over", is_flag=True, help="Put a Crossplane that works in the cluster to rest first."),
            click.option("--force", is_flag=True, help="Take fields over that somebody else set."),
            click.option("--dry-run", is_flag=True, help="Only say what would be done; with -o, print the objects."),
            click.option("--wait/--no-wait", default=True, help="Wait until the controllers run.  [default: wait]"),
            duration_option("--timeout", default="5m", help="How long to wait."),
            output_option("text", "yaml", "json", default="text"),
            connection_options,
        )
    ):
        command = option(command)
    return command


@click.command()
@_placing_options
def install(**options: Any) -> None:
    """Install planform's controllers on a Kubernetes cluster.

    Applies what the Helm chart in deploy/helm describes, and brings the CRDs. Doing it again is an error; `upgrade`
    changes an installation.
    """
    _put(options, upgrading=False)


@click.command()
@_placing_options
def upgrade(**options: Any) -> None:
    """Bring an installation to this version of planform, or change its values.

    Values of the installation stay unless given anew. CRDs are upgraded; a version in which objects are stored stays.
    """
    _put(options, upgrading=True)


@click.command()
@_namespace_option
@click.option("--leave-objects", is_flag=True, help="Go even if XRs and claims are left, which nobody reconciles then.")
@click.option(
    "--crds", "with_crds", is_flag=True, help="Take away the CRDs too, and with them everything of our kinds."
)
@click.option("--give-back", is_flag=True, help="Wake the Crossplane that --take-over put to rest.")
@click.option("--force", is_flag=True, help="With --give-back: although Rollouts are under way or revisions are held.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@connection_options
def uninstall(
    namespace: str,
    leave_objects: bool,
    with_crds: bool,
    give_back: bool,
    force: bool,
    dry_run: bool,
    kubeconfig: Path | None,
    context: str,
) -> None:
    """Take planform's controllers off a Kubernetes cluster.

    Refuses while there are XRs or claims. The CRDs and the namespace stay.
    """
    from planform.cli.cluster.installing import (
        CONFIG_MAP,
        INVENTORY,
        StillInUse,
        delete_all,
        find_installation,
        objects_in_use,
        our_crds,
        refuse_helm_release,
        remove_our_finalizers,
    )
    from planform.cluster import takeover
    from planform.rollouts.under_way import refuse_unreleased

    if leave_objects and with_crds:
        raise UsageError("--crds deletes all objects of our kinds, and --leave-objects keeps them", hint="give one")

    async def act(connected: Connected) -> None:
        client = connected.client
        await refuse_helm_release(client, namespace)
        installed = await find_installation(client, namespace)
        if installed is None:
            raise UsageError(f'planform is not installed in namespace "{namespace}"', hint="name it with --namespace")
        used = await objects_in_use(client)
        if used and not leave_objects:
            raise StillInUse(used)
        if give_back and not force:
            await refuse_unreleased(client)
        doomed = [obj for obj in reversed(installed.objects) if obj["kind"] != "Namespace"]
        steps = await delete_all(client, doomed, dry_run=dry_run)
        if not dry_run:
            await remove_our_finalizers(client)
        steps += await delete_all(client, our_crds() if with_crds else (), dry_run=dry_run)
        _report(steps, dry_run)
        if not dry_run:
            await client.delete(CONFIG_MAP, INVENTORY, namespace=namespace)
            if give_back:
                for workload in await takeover.give_back(client):
                    say(f"{name_of(workload)} has {workload['spec']['replicas']} replicas again")
            say(f'the controllers are gone; namespace "{namespace}" stays' + ("" if with_crds else ", and the CRDs do"))

    run(kubeconfig, context, act)


def _put(options: Mapping[str, Any], *, upgrading: bool) -> None:
    from planform.cli.cluster.chart import find_chart, merged, render

    chart, namespace = find_chart(), str(options["namespace"])
    given = _values(options)
    if options["dry_run"] and options["output"] != "text":
        _show(render(chart, _in_namespace(given), namespace=namespace), options["output"])
        return

    async def act(connected: Connected) -> None:
        from planform.cli.cluster import installing
        from planform.clock import SystemClock
        from planform.cluster.takeover import require_sole_control
        from planform.definitions.own_crds import ensure_crds

        client, clock, dry_run = connected.client, SystemClock(), bool(options["dry_run"])
        await installing.refuse_helm_release(client, namespace)
        before = await installing.find_installation(client, namespace)
        _check_presence(before is not None, upgrading=upgrading, namespace=namespace)
        if not dry_run:
            await require_sole_control(client, take_over=options["take_over"], clock=clock)
        values = merged(before.values if before else {}, given)
        served = {kind.api_version for kind in await client.kinds(refresh=True)}
        objects = render(chart, _in_namespace(values), namespace=namespace, api_versions=sorted(served))
        if not dry_run:
            written = await ensure_crds(client, clock=clock)
            say(f"CRDs: {written} written" if written else "CRDs: unchanged")
        steps = await installing.apply_all(client, objects, dry_run=dry_run, force=options["force"])
        gone = installing.no_longer_wanted(before.objects, objects) if before else []
        steps += await installing.delete_all(client, gone, dry_run=dry_run)
        _report(steps, dry_run)
        if dry_run:
            return
        remembered = installing.inventory(namespace, chart.version, values, objects)
        await client.apply(remembered, manager=installing.MANAGER, force=True)
        if options["output"] != "text":
            _show([step.object for step in steps if step.outcome != "deleted"], options["output"])
        if options["wait"]:
            say("waiting for the controllers to run")
            workload = installing.workload_of(objects)
            await installing.until_running(client, workload, clock=clock, seconds=options["timeout"])
            say(f'planform {chart.version} runs in namespace "{namespace}"')

    run(options["kubeconfig"], options["context"], act)


def _check_presence(present: bool, *, upgrading: bool, namespace: str) -> None:
    if present and not upgrading:
        raise UsageError(
            f'planform is installed in namespace "{namespace}" already', hint="change it with planform upgrade"
        )
    if upgrading and not present:
        raise UsageError(
            f'planform is not installed in namespace "{namespace}"',
            hint="planform install does that; name another namespace with --namespace",
        )


def _values(options: Mapping[str, Any]) -> dict[str, Any]:
    """What files and options say; what comes later wins."""
    from planform.apimachinery import yaml_loader
    from planform.cli.cluster.chart import merged, parse_setting

    values: dict[str, Any] = {}
    for file in options["files"]:
        try:
            read = yaml_loader.load(file.read_bytes()) or {}
        except ValueError as error:
            raise UsageError(f"{file}: {error}") from error
        if not isinstance(read, dict):
            raise UsageError(f"{file} must hold one mapping of values")
        values = merged(values, read)
    for setting in options["settings"]:
        values = merged(values, parse_setting(setting))
    if options["image"]:
        values = merged(values, {"image": _image(options["image"])})
    return values


def _image(text: str) -> dict[str, str]:
    """REPOSITORY, REPOSITORY:TAG or REPOSITORY@DIGEST; a port of the registry is no tag."""
    repository, at, digest = text.partition("@")
    head, colon, tag = repository.rpartition(":")
    if colon and "/" not in tag:
        repository = head
    else:
        tag = ""
    return {"repository": repository, "tag": tag, "digest": digest if at else ""}


def _in_namespace(values: Mapping[str, Any]) -> dict[str, Any]:
    """The namespace is ours to make, unless told otherwise: there is no --create-namespace here."""
    from planform.cli.cluster.chart import merged

    return merged({"namespace": {"create": True}}, values)


def _show(objects: Iterable[Object], form: str) -> None:
    if form == "json":
        write_data({"apiVersion": "v1", "kind": "List", "items": list(objects)}, form)
        return
    for obj in objects:
        click.echo("---")
        write_data(obj, form)


def _report(steps: Iterable[Step], dry_run: bool) -> None:
    for step in steps:
        say(f"{step} (dry run)" if dry_run else str(step))
