"""`planform freeze`: a ChangeWindow that forbids changes until a date."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from planform.api.kinds import Object
from planform.api.names import CHANGE_WINDOW
from planform.apimachinery.selectors import LabelSelector, Operator, SelectorError, parse_labels
from planform.cli.connection import MANAGER, Connected, connection_options, run
from planform.cli.output import output_option, write_data
from planform.clock import timestamp
from planform.errors import AlreadyExists, UsageError
from planform.rollouts.local_time import first_moment, time_zone

_EXPRESSIONS: Final = {
    Operator.IN: "In",
    Operator.NOT_IN: "NotIn",
    Operator.NOT_EQUALS: "NotIn",
    Operator.EXISTS: "Exists",
    Operator.DOES_NOT_EXIST: "DoesNotExist",
}


@click.command()
@click.argument("name", required=False)
@click.option(
    "--for", "namespaces", metavar="LABELS", help="XRs and claims in namespaces with these labels: tier=gold."
)
@click.option("--xrs", metavar="LABELS", help="XRs and claims with these labels.")
@click.option("--all", "everybody", is_flag=True, help="All XRs.")
@click.option("--from", "begin", metavar="DATE", help="When it begins; at once if absent.")
@click.option("--until", required=True, metavar="DATE", help="When it ends: 2027-01-04, or 2027-01-04T08:00.")
@click.option("--time-zone", default="UTC", show_default=True, metavar="ZONE", help="The time zone of these dates.")
@click.option("--reason", required=True, metavar="TEXT", help="Why; whoever waits reads it.")
@click.option("--dry-run", is_flag=True, help="Make nothing, only show what would be made.")
@output_option("text", "json", "yaml", "name", default="text")
@connection_options
def freeze(
    name: str | None,
    namespaces: str | None,
    xrs: str | None,
    everybody: bool,
    begin: str | None,
    until: str,
    time_zone: str,
    reason: str,
    dry_run: bool,
    output: str,
    kubeconfig: Path | None,
    context: str,
) -> None:
    """Let no Rollout move XRs for a while.

    Makes a ChangeWindow with effect Deny. XRs that are being moved settle, and an abort or an undo passes always. To
    end it before its time: planform delete changewindow NAME.
    """
    if everybody == bool(namespaces or xrs):
        raise UsageError(
            "say whom to freeze: --for LABELS, --xrs LABELS, or --all",
            hint="planform freeze --for tier=gold --until 2027-01-04 --reason 'year end'",
        )
    window = frozen(
        name or "", namespaces or "", xrs or "", begin=begin or "", until=until, zone=time_zone, reason=reason
    )

    async def act(connected: Connected) -> Object:
        try:
            return await connected.client.create(window, manager=MANAGER, dry_run=dry_run)
        except AlreadyExists as error:
            shown = window["metadata"]["name"]
            raise UsageError(
                f'there is a ChangeWindow "{shown}" already',
                hint=f"name another, or see it: planform window status {shown}",
            ) from error

    made = run(kubeconfig, context, act)
    shown = made["metadata"]["name"]
    if output == "text":
        whom = "all XRs" if everybody else " and ".join(filter(None, [namespaces and f"namespaces {namespaces}", xrs]))
        would = "would be frozen" if dry_run else "frozen"
        click.echo(f"{whom} {would} until {window['spec']['once']['to']} by ChangeWindow {shown}")
    elif output == "name":
        click.echo(f"changewindow.rollout.planform.dev/{shown}")
    else:
        write_data(made, output)


def frozen(
    name: str, namespaces: str, xrs: str, *, begin: str, until: str, zone: str, reason: str, now: datetime | None = None
) -> Object:
    """The ChangeWindow to create. Raises UsageError for dates, zones and labels that mean nothing."""
    now = now or datetime.now(UTC)
    once: Object = {"to": timestamp(ends := moment(until, zone, "--until"))}
    if begin:
        once = {"from": timestamp(begins := moment(begin, zone, "--from")), **once}
        if begins >= ends:
            raise UsageError(f"--from {begin} is not before --until {until}")
    if ends <= now:
        raise UsageError(f"--until {until} is in the past", hint=f"now it is {timestamp(now)}")
    subjects: Object = {}
    for field, text, option in (("namespaces", namespaces, "--for"), ("xrs", xrs, "--xrs")):
        if text:
            subjects[field] = _selector(text, option)
    spec: Object = {"effect": "Deny", "once": once, "reason": reason, **({"for": subjects} if subjects else {})}
    chosen = name or f"freeze-{_word(namespaces or xrs or 'all')}-{ends:%Y%m%d}"
    return {
        "apiVersion": CHANGE_WINDOW.api_version,
        "kind": CHANGE_WINDOW.kind,
        "metadata": {"name": chosen},
        "spec": spec,
    }


def moment(text: str, zone: str, option: str) -> datetime:
    """A day or a time of this zone, or a moment with an offset of its own. Raises UsageError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f'{option} "{text}" is no date', hint="write 2027-01-04, 2027-01-04T08:00 or 2027-01-04T08:00:00Z"
        ) from error
    if found.tzinfo is not None:
        return found.astimezone(UTC)
    try:
        return first_moment(found, time_zone(zone))
    except ValueError as error:
        raise UsageError(str(error), hint="write a name such as Europe/Zurich or UTC") from error


def _selector(text: str, option: str) -> Object:
    """A selector as kubectl takes it, as the API has it."""
    try:
        selector: LabelSelector = parse_labels(text)
    except SelectorError as error:
        raise UsageError(
            f"{option}: {error}", hint="write labels as kubectl takes them: tier=gold,env in (a,b)"
        ) from error
    exact: dict[str, str] = {}
    expressions: list[dict[str, Any]] = []
    for each in selector.requirements:
        if len(each.values) == 1 and each.operator not in (Operator.NOT_IN, Operator.NOT_EQUALS):
            if each.operator in (Operator.GREATER_THAN, Operator.LESS_THAN):
                raise UsageError(f"{option}: a window cannot compare numbers: {each}")
            exact[each.key] = each.values[0]
        else:
            listed = {"values": list(each.values)} if each.values else {}
            expressions.append({"key": each.key, "operator": _EXPRESSIONS[each.operator], **listed})
    return {
        **({"matchLabels": exact} if exact else {}),
        **({"matchExpressions": expressions} if expressions else {}),
    }


def _word(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-") or "some"
