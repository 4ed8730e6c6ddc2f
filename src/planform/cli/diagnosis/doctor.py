"""`planform doctor`: what works, what differs and what is stuck, in a control plane or in files; and a bundle of it."""

from __future__ import annotations

import asyncio
import base64
import binascii
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planform.api.metadata import name_of, namespace_of
from planform.cli.cluster.install import NAMESPACE
from planform.cli.connection import Connected, connection_options, hush_warnings, run
from planform.cli.output import output_option, say, write_data
from planform.errors import ApiError, Forbidden, NotFound

if TYPE_CHECKING:
    from planform.api.kinds import GroupVersionKind, Object
    from planform.cli.diagnosis.findings import Finding

STUCK_CODE = 1


@dataclass
class Read:
    """What was read, and what could not be."""

    objects: list[Object] = field(default_factory=list)
    events: list[Object] = field(default_factory=list)
    secrets: list[Object] = field(default_factory=list)
    """Only to look at certificates, and to know what must not be shown."""
    unread: list[str] = field(default_factory=list)
    extra: list[Finding] = field(default_factory=list)
    server: dict[str, Any] = field(default_factory=dict)


@click.command()
@click.argument("files", metavar="[FILE|DIRECTORY]...", nargs=-1)
@click.option("--bundle", type=click.Path(dir_okay=False, path_type=Path), help="Also write all that was read, masked.")
@click.option(
    "-n", "--namespace", default=NAMESPACE, show_default=True, help="On a cluster, where the controllers run."
)
@output_option("text", "json", "yaml", default="text")
@connection_options
def doctor(
    files: tuple[str, ...],
    bundle: Path | None,
    namespace: str,
    output: str,
    kubeconfig: Path | None,
    context: str,
) -> None:
    """Say what works unchanged, what differs from Crossplane, and what is stuck and why.

    Reads a cluster or a running control plane; or, of FILES, what can be told without one. The bundle is a tar.gz for
    those who help you: without Secrets, and with every value of one replaced wherever else it stands. Exits with 1 if
    something is stuck.
    """
    from planform.cli.diagnosis.findings import Patient, examine
    from planform.clock import SystemClock

    hush_warnings()
    now = SystemClock().now()
    if files:
        from planform.cli.objects.manifests import read_manifests

        seen = Read()
        seen.objects = read_manifests(files, generated_names=True, unread=seen.unread)
        patient = Patient(seen.objects, now, is_live=False)
    else:
        seen = run(kubeconfig, context, lambda connected: read_control_plane(connected, namespace, now))
        patient = Patient(seen.objects, now, certificates=certificates_in(seen.secrets))
    findings = [*examine(patient), *seen.extra]
    if bundle is not None:
        from planform.cli.diagnosis.support_bundle import write_bundle

        write_bundle(bundle, seen, findings, about=_about(seen), now=now)
        say(f"wrote {bundle}: look through it before you pass it on")
    _show(findings, seen.unread, output)
    if any(finding.level == "stuck" for finding in findings):
        raise click.exceptions.Exit(STUCK_CODE)


async def read_control_plane(connected: Connected, namespace: str, now: datetime) -> Read:
    """All objects that say something of a control plane's health; what may not be read is noted."""
    from planform.api.extensions import crds
    from planform.api.kinds import GroupVersionKind
    from planform.api.names import CRD, EVENT, SECRET, XRD
    from planform.definitions.crds import claim_kind, xr_kind

    seen = Read(server=await connected.raw("/version"))
    kinds = []
    for crd in crds():
        version = next(each["name"] for each in crd["spec"]["versions"] if each["storage"])
        kinds.append(GroupVersionKind(crd["spec"]["group"], version, crd["spec"]["names"]["kind"]))
    await asyncio.gather(*(_take(connected, kind, seen, seen.objects) for kind in [CRD, *kinds]))
    for xrd in [obj for obj in seen.objects if obj["kind"] == XRD.kind]:
        for kind in (xr_kind(xrd), claim_kind(xrd)):
            if kind is not None:
                await _take(connected, kind, seen, seen.objects)
    await _look_at_rights(connected, seen)
    await _take(connected, EVENT, seen, seen.events)
    await _take(connected, SECRET, seen, seen.secrets)
    if "planform" not in str(seen.server.get("gitVersion") or ""):
        await _look_at_cluster(connected, namespace, seen)
    else:
        await _look_at_sandbox(connected, seen)
    return seen


async def _take(connected: Connected, kind: GroupVersionKind, seen: Read, into: list[Object]) -> None:
    from planform.client.informer import list_pages

    try:
        async for page in list_pages(connected.client, kind):
            into += page.items
    except NotFound:
        return  # it is not served here
    except Forbidden:
        seen.unread.append(f"{kind.kind}.{kind.group} (not allowed)" if kind.group else f"{kind.kind} (not allowed)")


async def _look_at_rights(connected: Connected, seen: Read) -> None:
    """Whose objects act, and whether others than administrators are here."""
    from planform.api.kinds import GroupVersionKind
    from planform.cli.diagnosis.tenancy import unrecorded, wants_tenants
    from planform.features import FOR_TENANTS

    rbac: list[Object] = []
    for kind in ("ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding"):
        await _take(connected, GroupVersionKind("rbac.authorization.k8s.io", "v1", kind), seen, rbac)
    try:
        metrics = await connected.text("/metrics")
    except ApiError:
        metrics = ""
    is_on = all(f'planform_feature_enabled{{name="{gate}"}} 1' in metrics for gate in FOR_TENANTS)
    seen.extra += [*unrecorded(seen.objects), *wants_tenants(seen.objects, rbac, is_on=is_on)]


async def _look_at_cluster(connected: Connected, namespace: str, seen: Read) -> None:
    """Who reconciles there."""
    from planform.cli.diagnosis.findings import Finding
    from planform.cluster.running import LEASE_NAME
    from planform.cluster.takeover import crossplane_alive
    from planform.reconcile.election import LEASE

    try:
        found = await crossplane_alive(connected.client)
        if found is not None:
            hint = "planform install --take-over puts it to rest; --give-back wakes it again"
            message = "reconciles these kinds: planform's controllers do not start beside it"
            seen.extra.append(Finding("differs", "crossplane", str(found), message, hint))
        try:
            lease = await connected.client.get(LEASE, LEASE_NAME, namespace=namespace)
            holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
        except NotFound:
            holder = ""
        if not holder and found is None:
            hint = "planform install, or planform controllers; --namespace says where they run"
            about = f"Lease {namespace}/{LEASE_NAME}"
            seen.extra.append(Finding("stuck", "no-controllers", about, "nobody reconciles on this cluster", hint))
    except ApiError as error:
        seen.unread.append(f"who reconciles here ({error.message})")


async def _look_at_sandbox(connected: Connected, seen: Read) -> None:
    """How functions and scripts are confined there, which the control plane says in its metrics."""
    from planform.cli.diagnosis.findings import sandbox_findings

    try:
        answer = await connected.transport.request("GET", "/metrics")
        seen.extra += sandbox_findings(answer.body.decode(errors="replace"))
    except ApiError as error:
        seen.unread.append(f"how functions are confined ({error.message})")


def certificates_in(secrets: Iterable[Object]) -> dict[str, datetime]:
    """When the certificate in each Secret ends."""
    from cryptography import x509

    ends: dict[str, datetime] = {}
    for secret in secrets:
        pem = (secret.get("data") or {}).get("tls.crt")
        if not pem:
            continue
        try:
            parsed = x509.load_pem_x509_certificate(base64.b64decode(pem))
        except (ValueError, binascii.Error):
            continue
        ends[f"{namespace_of(secret)}/{name_of(secret)}"] = parsed.not_valid_after_utc
    return ends


def _about(seen: Read) -> dict[str, Any]:
    import planform

    return {
        "planform": planform.__version__,
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
        "server": seen.server,
        "unread": seen.unread,
    }


def _show(findings: Sequence[Finding], unread: Sequence[str], output: str) -> None:
    if output != "text":
        counts = {level: sum(each.level == level for each in findings) for level in ("works", "differs", "stuck")}
        write_data({"summary": counts, "findings": [each.value() for each in findings], "unread": list(unread)}, output)
        return
    titles = {"stuck": "Stuck", "differs": "Differs", "works": "Works unchanged"}
    colours = {"works": "green", "differs": "yellow", "stuck": "red"}
    for level, title in titles.items():
        shown = [finding for finding in findings if finding.level == level]
        if shown:
            click.echo(click.style(title, fg=colours[level], bold=True))
        for finding in shown:
            click.echo(f"  {finding.about}: {finding.message}")
            for detail in finding.details:
                click.echo(f"    - {detail}")
            if finding.hint:
                click.echo(f"    {finding.hint}")
    if not findings:
        click.echo("Nothing of a control plane is there.")
    for what in unread:
        say(f"not read: {what}")
