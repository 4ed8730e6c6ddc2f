"""`planform apply|describe|delete|wait`: with `get` and `events`, enough for a user who has no kubectl."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

import click

from planform.api.kinds import GroupVersionKind, Kind, Object, gvk_of
from planform.api.metadata import name_of, namespace_of, resource_version_of, uid_of
from planform.api.names import EVENT
from planform.cli import completing
from planform.cli.connection import MANAGER, Connected, connection_options, run
from planform.cli.durations import duration_option
from planform.cli.objects.describing import describe_object
from planform.cli.objects.getting import named_objects
from planform.cli.objects.manifests import read_manifests
from planform.cli.objects.problems import problems_of
from planform.cli.objects.showing import (
    as_list,
    full_name,
    none_found,
)
from planform.cli.objects.waiting import Goal, WaitTimedOut, parse_goal
from planform.cli.output import output_option, say, write_data
from planform.client.protocol import Propagation
from planform.clock import SystemClock
from planform.errors import ApiError, ApplyConflict, NotFound, PlanformError, UsageError


@click.command()
@click.option("-f", "--filename", "files", multiple=True, required=True, help="File, directory or - for stdin.")
@click.option("-n", "--namespace", default="", help="Namespace of objects that name none.")
@click.option("--force-conflicts", is_flag=True, help="Take over fields that other managers own.")
@click.option("--field-manager", default=MANAGER, show_default=True, help="In whose name to apply.")
@click.option("--dry-run", is_flag=True, help="Check everything, change nothing.")
@output_option("name", "json", "yaml", default="name")
@connection_options
def apply(
    files: Sequence[str],
    namespace: str,
    force_conflicts: bool,
    field_manager: str,
    dry_run: bool,
    output: str,
    kubeconfig: Path | None,
    context: str,
) -> None:
    """Create or change objects from files, by server-side apply.

    Definitions and namespaces go first. What fails is reported; the rest is applied all the same.
    """
    objects = read_manifests(files)

    async def act(connected: Connected) -> list[Object]:
        done: list[Object] = []
        failures: list[PlanformError] = []
        defining = any(obj["kind"].endswith("ResourceDefinition") for obj in objects)
        for obj in objects:
            shown = f"{obj.get('kind')}/{name_of(obj)}"
            try:
                kind = await _served(connected, gvk_of(obj), patient=defining)
                if kind.namespaced and not namespace_of(obj):
                    obj["metadata"]["namespace"] = namespace or connected.namespace
                before = await _present(connected, kind, obj)
                applied = await connected.client.apply(
                    obj, manager=field_manager, force=force_conflicts, dry_run=dry_run
                )
            except ApplyConflict as error:
                error.hint = "--force-conflicts takes the fields over"
                failures.append(_about(shown, error))
                continue
            except PlanformError as error:
                failures.append(_about(shown, error))
                continue
            done.append(applied)
            if output == "name":
                verb = "created" if before is None else "unchanged" if _same(before, applied) else "configured"
                click.echo(f"{full_name(kind, applied)} {verb}{' (dry run)' if dry_run else ''}")
        _report(failures)
        return done

    done = run(kubeconfig, context, act)
    if output != "name":
        write_data(done[0] if len(done) == 1 else as_list(done), output)


@click.command()
@click.argument("what", nargs=-1, required=True, shell_complete=completing.objects)
@click.option(
    "-n", "--namespace", default="", help="Namespace.  [default: the context's]", shell_complete=completing.namespaces
)
@connection_options
def describe(what: Sequence[str], namespace: str, kubeconfig: Path | None, context: str) -> None:
    """Show one object with its conditions and events: `planform describe cm app`."""
    words, names = named_objects(what)
    if not names or len(words) != 1:
        raise UsageError("describe needs a kind and a name", hint="planform describe KIND NAME")

    async def act(connected: Connected) -> None:
        kind = await connected.find_kind(words[0])
        place = (namespace or connected.namespace) if kind.namespaced else ""
        for number, name in enumerate(names):
            obj = await connected.client.get(kind.gvk, name, namespace=place)
            fields = f"involvedObject.uid={uid_of(obj)}"
            happened = await connected.client.list(EVENT, namespace=place, fields=fields)
            click.echo(("\n" if number else "") + describe_object(obj, happened.items))

    run(kubeconfig, context, act)


@click.command()
@click.argument("what", nargs=-1, shell_complete=completing.objects)
@click.option("-f", "--filename", "files", multiple=True, help="Delete what stands in these files.")
@click.option("-l", "--selector", default="", help="Label selector.")
@click.option("--all", "everything", is_flag=True, help="All objects of the kind in the namespace.")
@click.option(
    "--cascade",
    type=click.Choice([policy.value.lower() for policy in Propagation]),
    default="background",
    show_default=True,
    help="What happens to dependents.",
)
@click.option("--ignore-not-found", is_flag=True, help="What is not there counts as deleted.")
@click.option("--no-wait", is_flag=True, help="Do not wait until the objects are gone.")
@duration_option("--timeout", default="60s", help="How long to wait.")
@click.option(
    "-n", "--namespace", default="", help="Namespace.  [default: the context's]", shell_complete=completing.namespaces
)
@connection_options
def delete(
    what: Sequence[str],
    files: Sequence[str],
    selector: str,
    everything: bool,
    cascade: str,
    ignore_not_found: bool,
    no_wait: bool,
    timeout: float,
    namespace: str,
    kubeconfig: Path | None,
    context: str,
) -> None:
    """Delete objects, and wait until they are gone.

    What fails is reported; the rest is deleted all the same.
    """
    policy = Propagation(cascade.capitalize())
    objects = list(reversed(read_manifests(files))) if files else []
    words, names = named_objects(what) if what else ([], [])
    if words and not (names or selector or everything):
        raise UsageError(
            "delete needs names, --selector or --all", hint=f"all of them: planform delete {what[0]} --all"
        )
    if not words and not objects:
        raise UsageError("nothing to delete", hint="planform delete KIND NAME, or planform delete -f FILE")

    async def act(connected: Connected) -> None:
        targets: list[tuple[Kind, str, str]] = []
        failures: list[PlanformError] = []
        for obj in objects:
            try:
                kind = await _served(connected, gvk_of(obj))
            except NotFound as error:  # its definition may have gone before it
                if not ignore_not_found:
                    failures.append(_about(f"{obj['kind']}/{name_of(obj)}", error))
                continue
            place = namespace_of(obj) or namespace or connected.namespace
            targets.append((kind, place if kind.namespaced else "", name_of(obj)))
        for word in words:
            kind = await connected.find_kind(word)
            place = (namespace or connected.namespace) if kind.namespaced else ""
            if names:
                targets += [(kind, place, name) for name in names]
            else:
                found = await connected.client.list(kind.gvk, namespace=place, labels=selector)
                targets += [(kind, place, name_of(item)) for item in found.items]
                if not found.items:
                    say(none_found(kind, place, selector))
        for kind, place, name in targets:
            try:
                left = await connected.client.delete(kind.gvk, name, namespace=place, propagation=policy)
            except ApiError as error:
                if not (ignore_not_found and isinstance(error, NotFound)):
                    failures.append(error)
                continue
            click.echo(f"{kind.singular}/{name} deleted")
            if left is not None and not no_wait:
                say(f"waiting for {kind.singular}/{name}: {', '.join(left['metadata'].get('finalizers', ['-']))}")
                await _until(connected, kind, place, name, parse_goal("delete"), timeout, announced=True)
        _report(failures)

    run(kubeconfig, context, act)


@click.command()
@click.argument("what", nargs=-1, required=True, shell_complete=completing.objects)
@click.option(
    "--for",
    "goal",
    required=True,
    metavar="GOAL",
    help="condition=TYPE[=STATUS], jsonpath={PATH}[=VALUE], create or delete.",
)
@duration_option("--timeout", default="30s", help="How long to wait.")
@click.option("-l", "--selector", default="", help="Label selector instead of names.")
@click.option("--all", "everything", is_flag=True, help="All objects of the kind in the namespace.")
@click.option(
    "-n", "--namespace", default="", help="Namespace.  [default: the context's]", shell_complete=completing.namespaces
)
@connection_options
def wait(
    what: Sequence[str],
    goal: str,
    timeout: float,
    selector: str,
    everything: bool,
    namespace: str,
    kubeconfig: Path | None,
    context: str,
) -> None:
    """Wait for a condition, a field or a deletion: `planform wait widget/a --for condition=Ready`.

    Exits with 3 when the time is over.
    """
    words, names = named_objects(what)
    wanted = parse_goal(goal)
    if everything and (names or selector):
        raise UsageError("--all goes with a kind alone", hint=f"planform wait {words[0]} --all --for {goal}")

    async def act(connected: Connected) -> None:
        for word in words:
            kind = await connected.find_kind(word)
            place = (namespace or connected.namespace) if kind.namespaced else ""
            targets = names
            if not names:
                found = await connected.client.list(kind.gvk, namespace=place, labels=selector)
                targets = [name_of(item) for item in found.items]
                if not targets and not wanted.is_met(None):
                    raise PlanformError(none_found(kind, place, selector))
            for name in targets:
                await _until(connected, kind, place, name, wanted, timeout)
                click.echo(f"{kind.singular}/{name} {wanted.met}")

    run(kubeconfig, context, act, timeout=max(30.0, timeout))


# -- the parts


async def _served(connected: Connected, wanted: GroupVersionKind, *, patient: bool = False) -> Kind:
    """The kind; who is patient waits a moment for one whose definition was applied just before."""
    for seconds in (0.05, 0.1, 0.2, 0.4, 0.8, 1.6) if patient else ():
        try:
            return await connected.client.kind(wanted)
        except NotFound:
            await asyncio.sleep(seconds)
    try:
        return await connected.client.kind(wanted)
    except NotFound as error:
        error.hint = await connected.nearest_kind(wanted)
        raise


async def _present(connected: Connected, kind: Kind, obj: Object) -> Object | None:
    """What is there before an apply."""
    try:
        return await connected.client.get(kind.gvk, name_of(obj), namespace=namespace_of(obj))
    except NotFound:
        return None


def _same(before: Object, after: Object) -> bool:
    """Whether an apply changed nothing. A dry run leaves the resource version alone, so the rest must tell."""
    return _content(before) == _content(after)


def _content(obj: Object) -> Object:
    return {**obj, "metadata": {name: value for name, value in obj["metadata"].items() if name != "managedFields"}}


def _report(failures: Sequence[PlanformError]) -> None:
    """Explain each failure and end with 1, if there is any."""
    from planform.cli.main import explain

    for failure in failures:
        explain(failure)
    if failures:
        raise click.exceptions.Exit(1)


def _about(shown: str, error: PlanformError) -> PlanformError:
    explained = PlanformError(f"{shown}: {error.message}")
    explained.hint = error.hint
    return explained


async def _until(
    connected: Connected, kind: Kind, namespace: str, name: str, goal: Goal, timeout: float, *, announced: bool = False
) -> None:
    """Follow one object until the goal is met, saying so unless somebody was told already.

    Raises WaitTimedOut or NotFound.
    """
    last: Object | None = None
    printed: set[str] = set()
    try:
        async with asyncio.timeout(timeout):
            while True:
                at = ""
                try:
                    last = await connected.client.get(kind.gvk, name, namespace=namespace)
                    at = resource_version_of(last)
                except NotFound:
                    last = None
                    if goal.is_met(None):
                        return
                    if not goal.waits_for_creation:
                        raise
                if last is not None and goal.is_met(last):
                    return
                if not announced:
                    say(f"waiting for {kind.singular}/{name}: {goal.text}")
                    announced = True
                _say_problems(last, printed)
                async with connected.client.watch(
                    kind.gvk, namespace=namespace, fields=f"metadata.name={name}", resource_version=at
                ) as changes:
                    async for change in changes:
                        last = None if change.type == "DELETED" else change.object
                        if goal.is_met(last):
                            return
                        _say_problems(last, printed)
                        if last is None and not goal.waits_for_creation:
                            break
    except TimeoutError as error:
        raise WaitTimedOut(f"{kind.singular}/{name}", goal, last, timeout) from error


def _say_problems(obj: Object | None, printed: set[str]) -> None:
    """What is wrong with an object that somebody waits for, each thing once."""
    for each in problems_of(obj, SystemClock().now()):
        words = re.sub(r" (for|in|passed) \d\S*", "", each)  # that it takes longer is no news
        if words not in printed:
            printed.add(words)
            say(f"  {each}")
