"""What is wrong with a control plane, told from its objects alone. Pure: `planform doctor` reads them.

Three things are found: what works unchanged, what differs from Crossplane, and what is stuck, with what to do about it.
Every check is a generator over one or all objects; there is no order between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from planform.api.annotations import is_paused
from planform.api.conditions import condition_message, condition_reason, condition_status
from planform.api.kinds import Object, gvk_of
from planform.api.metadata import deleted_at, finalizers_of, labels_of, name_of, namespace_of
from planform.api.names import (
    BLUEPRINT,
    BLUEPRINTS_GROUP,
    COMPOSITION,
    COMPOSITION_REVISION,
    CRD,
    EXTENSIONS_GROUP,
    FUNCTION,
    FUNCTION_REVISION,
    NOP_GROUP,
    OPERATIONS_GROUP,
    PACKAGE_LABEL,
    PACKAGES_GROUP,
    PROTECTION_GROUP,
    ROLLOUT,
    XRD,
)
from planform.cli.objects.problems import holder, running_call, status_problems
from planform.clock import parse_timestamp
from planform.pipeline.modes import unused_part
from planform.rollouts.under_way import active, unreleased

Level = Literal["works", "differs", "stuck"]

LINGERS: Final = timedelta(minutes=5)
"""A deletion that takes longer waits for somebody."""
EXPIRES_SOON: Final = timedelta(days=14)
"""Certificates that renew themselves have been renewed by then."""

_OUR_GROUPS: Final = frozenset(
    {EXTENSIONS_GROUP, PACKAGES_GROUP, PROTECTION_GROUP, OPERATIONS_GROUP, NOP_GROUP, BLUEPRINTS_GROUP}
)
_UNKNOWN: Final[Mapping[tuple[str, str], str]] = {
    (PACKAGES_GROUP, "ControllerConfig"): "use a DeploymentRuntimeConfig",
    ("secrets.crossplane.io", "StoreConfig"): "connection details are kept in Secrets only",
    (EXTENSIONS_GROUP, "ManagedResourceDefinition"): "CRDs of providers are all active",
    (EXTENSIONS_GROUP, "ManagedResourceActivationPolicy"): "CRDs of providers are all active",
}
"""Kinds of Crossplane that planform does not have, and what there is instead."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know. `about` is the object as people name it, or what else it is about; `details` tell the rest."""

    level: Level
    check: str
    about: str
    message: str
    hint: str = ""
    details: tuple[str, ...] = ()

    def value(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"level": self.level, "check": self.check, "about": self.about, "message": self.message}
        return (
            shown | ({"hint": self.hint} if self.hint else {}) | ({"details": [*self.details]} if self.details else {})
        )


@dataclass(frozen=True)
class Patient:
    """What is looked at. A directory of manifests has no status, and nothing is said about what it would show."""

    objects: Sequence[Object]
    now: datetime
    is_live: bool = True
    certificates: Mapping[str, datetime] = field(default_factory=dict)
    """When each ends, by the Secret it is in."""

    def of(self, kind: Any) -> list[Object]:
        """The objects of a kind, in whatever version."""
        wanted = (kind.group, kind.kind)
        return [obj for obj in self.objects if (gvk_of(obj).group, obj["kind"]) == wanted]

    def instances(self) -> list[Object]:
        """XRs and claims."""
        kinds = {
            (xrd["spec"]["group"], names["kind"])
            for xrd in self.of(XRD)
            for names in (xrd["spec"].get("names"), xrd["spec"].get("claimNames"))
            if names
        }
        return [obj for obj in self.objects if (gvk_of(obj).group, obj["kind"]) in kinds]


def examine(patient: Patient) -> list[Finding]:
    """Everything there is to say, what is stuck first."""
    found = [*_compatibility(patient), *_pipelines(patient), *_blueprints(patient)]
    if patient.is_live:
        found += [*_lingering(patient), *_definitions(patient), *_packages(patient), *_instances(patient)]
        found += [*_revisions(patient), *_rollouts(patient), *_certificates(patient)]
    wrong = {finding.about for finding in found if finding.level == "stuck"}
    found += _unchanged(patient, wrong | {finding.about for finding in found})
    order = {"stuck": 0, "differs": 1, "works": 2}
    return sorted(dict.fromkeys(found), key=lambda finding: (order[finding.level], finding.check, finding.about))


# -- what works, and what differs


def _unchanged(patient: Patient, mentioned: set[str]) -> Iterator[Finding]:
    """How many objects of each kind there is nothing to say about."""
    counts: dict[str, int] = {}
    instances = {id(obj) for obj in patient.instances()}
    for obj in patient.objects:
        kind = gvk_of(obj)
        if (kind.group in _OUR_GROUPS or id(obj) in instances) and named(obj) not in mentioned:
            counts[f"{kind.kind}.{kind.group}"] = counts.get(f"{kind.kind}.{kind.group}", 0) + 1
    for kind_name, count in sorted(counts.items()):
        yield Finding("works", "unchanged", kind_name, f"{count} work{'s' if count == 1 else ''} unchanged")


def _compatibility(patient: Patient) -> Iterator[Finding]:
    for obj in patient.objects:
        kind = gvk_of(obj)
        instead = _UNKNOWN.get((kind.group, kind.kind))
        if instead:
            yield Finding("differs", "unknown-kind", named(obj), f"planform has no {kind.kind}", instead)
        if kind.kind == COMPOSITION.kind and kind.group == COMPOSITION.group:
            yield from _composition_differences(obj)
    for function in patient.of(FUNCTION):
        package = str((function.get("spec") or {}).get("package") or "")
        if package and _is_builtin(package):
            message = f"{package} is built in: the package is neither fetched nor run"
            yield Finding("differs", "built-in-function", named(function), message)


def _composition_differences(composition: Object) -> Iterator[Finding]:
    spec = composition.get("spec") or {}
    if spec.get("resources") and not spec.get("pipeline"):
        hint = "planform convert writes the pipeline down, so that Crossplane v2 runs it too"
        yield Finding("differs", "resources-mode", named(composition), "runs as a step of patch-and-transform", hint)
    if unused := unused_part(spec):
        yield Finding("differs", "resources-and-pipeline", named(composition), unused, "take out the other one")
    if spec.get("publishConnectionDetailsWithStoreConfigRef"):
        message = "publishConnectionDetailsWithStoreConfigRef is ignored: details go to Secrets"
        yield Finding("differs", "store-config", named(composition), message)


def _pipelines(patient: Patient) -> Iterator[Finding]:
    """Steps whose function nobody would answer for."""
    installed = {name_of(obj) for obj in patient.of(FUNCTION)}
    for composition in patient.of(COMPOSITION):
        for step in (composition.get("spec") or {}).get("pipeline") or ():
            name = str(((step.get("functionRef") or {}).get("name")) or "") if isinstance(step, Mapping) else ""
            if name and name not in installed and not _is_builtin(name):
                message = f'step "{step.get("step")}" calls function "{name}", which is neither installed nor built in'
                hint = "install it: planform xpkg install function PACKAGE"
                yield Finding("stuck", "function-missing", named(composition), message, hint)


def _blueprints(patient: Patient) -> Iterator[Finding]:
    blueprints = patient.of(BLUEPRINT)
    if not blueprints:
        return
    from planform.blueprints.contract import PhaseEnvironment
    from planform.blueprints.shipped import shipped_catalogue
    from planform.blueprints.validation import blueprint_findings

    catalogue = shipped_catalogue()
    for blueprint in blueprints:
        findings = blueprint_findings(blueprint, catalogue, PhaseEnvironment(engine="kubernetes"))
        for error in findings.errors:
            hint = "planform blueprint validate tells all; planform phase-functions lists the versions there are"
            yield Finding("stuck", "blueprint", named(blueprint), str(error), hint)
        for warning in findings.warnings:
            yield Finding("differs", "blueprint", named(blueprint), warning)


# -- what is stuck


def _lingering(patient: Patient) -> Iterator[Finding]:
    for obj in patient.objects:
        since = _moment(deleted_at(obj))
        if since is None or patient.now < since + LINGERS:
            continue
        finalizers = ", ".join(finalizers_of(obj)) or "none"
        message = f"is being deleted since {deleted_at(obj)}; finalizers: {finalizers}"
        held = tuple(f"{each}: {holder(each)}" for each in finalizers_of(obj))
        yield Finding("stuck", "finalizer", named(obj), message, _finalizer_hint(obj), held)


def _finalizer_hint(obj: Mapping[str, Any]) -> str:
    finalizers = finalizers_of(obj)
    if "foregroundDeletion" in finalizers:
        return "what it owns is not gone yet: planform trace shows that"
    if any("crossplane.io" in each or "planform.dev" in each for each in finalizers):
        return "do the controllers run? `planform describe` tells why they wait"
    return "whoever set the finalizer has to take it away; is its controller installed and running?"


def _definitions(patient: Patient) -> Iterator[Finding]:
    for crd in patient.of(CRD):
        if condition_status(crd, "Established") != "True":
            yield Finding("stuck", "crd", named(crd), f"is not established{_why(crd, 'NamesAccepted')}")
    for xrd in patient.of(XRD):
        expected = ["Established", *(["Offered"] if xrd["spec"].get("claimNames") else [])]
        for type_ in expected:
            if condition_status(xrd, type_) != "True":
                yield Finding("stuck", "definition", named(xrd), f"is not {type_}{_why(xrd, type_)}")
                break  # claims wait for the XRs


def _packages(patient: Patient) -> Iterator[Finding]:
    for package in patient.objects:
        if gvk_of(package).group != PACKAGES_GROUP or not (package.get("spec") or {}).get("package"):
            continue
        if package["kind"].endswith("Revision"):
            continue
        for type_ in ("Installed", "Healthy"):
            if condition_status(package, type_) not in ("True", ""):
                hint = f"planform describe {package['kind'].lower()} {name_of(package)}"
                yield Finding("stuck", "package", named(package), f"is not {type_}{_why(package, type_)}", hint)
    active = {
        str(labels_of(each).get(PACKAGE_LABEL) or "")
        for each in patient.of(FUNCTION_REVISION)
        if (each.get("spec") or {}).get("desiredState") == "Active"
    }
    for function in patient.of(FUNCTION):
        name = name_of(function)
        if name not in active and not _is_builtin(str((function.get("spec") or {}).get("package") or "")):
            hint = f"activate one: planform function activate {name} --revision NAME"
            yield Finding("stuck", "no-active-revision", named(function), "none of its revisions is active", hint)


def _instances(patient: Patient) -> Iterator[Finding]:
    for obj in patient.instances():
        if is_paused(obj):
            hint = "remove the annotation crossplane.io/paused when it may go on"
            yield Finding("stuck", "paused", named(obj), "is paused", hint)
            continue
        for type_ in ("Synced", "Ready"):
            if condition_status(obj, type_) not in ("True", ""):
                where = f" -n {namespace_of(obj)}" if namespace_of(obj) else ""
                hint = f"planform trace {obj['kind'].lower()} {name_of(obj)}{where}"
                message = f"is not {type_}{_why(obj, type_)}"
                yield Finding("stuck", f"not-{type_.lower()}", named(obj), message, hint, tuple(status_problems(obj)))
                break
        for call in running_call(obj, patient.now):
            hint = "planform function logs FUNCTION shows what it says; its step's timeout ends the call"
            yield Finding("stuck", "running-call", named(obj), call, hint)
        if not (obj.get("status") or {}).get("conditions"):
            hint = "do the controllers run? On a cluster: kubectl get lease -A | grep planform"
            yield Finding("stuck", "not-seen", named(obj), "no controller has said anything of it", hint)


def _revisions(patient: Patient) -> Iterator[Finding]:
    for revision in patient.of(COMPOSITION_REVISION):
        if condition_status(revision, "ValidPipeline") == "False":
            message = f"its pipeline cannot run{_why(revision, 'ValidPipeline')}"
            yield Finding("stuck", "revision", named(revision), message)


def _rollouts(patient: Patient) -> Iterator[Finding]:
    """What Crossplane would not go on with: there, every XR that follows by itself would move at once."""
    for name in active(patient.of(ROLLOUT)):
        message = "is under way: on Crossplane all of its XRs would move at once"
        hint = f"before you go back to Crossplane, let it end: planform rollout status {name}"
        yield Finding("differs", "rollout-under-way", f"{ROLLOUT.kind}.{ROLLOUT.group} {name}", message, hint)
    for name in unreleased(patient.of(COMPOSITION_REVISION)):
        message = "its newest revision is not released: on Crossplane its XRs would move there at once"
        hint = "before you go back to Crossplane, release it, or put the Composition back to what its XRs run"
        yield Finding(
            "differs", "revision-not-released", f"{COMPOSITION.kind}.{COMPOSITION.group} {name}", message, hint
        )


def _certificates(patient: Patient) -> Iterator[Finding]:
    for secret, end in sorted(patient.certificates.items()):
        left = end - patient.now
        if left < EXPIRES_SOON:
            found = "has expired" if left < timedelta() else f"expires in {left.days} days"
            hint = "certificates of planform renew themselves while controllers run; others are yours to renew"
            yield Finding("stuck", "certificate", f"Secret {secret}", f"the certificate {found}", hint)


# -- reading objects


def named(obj: Mapping[str, Any]) -> str:
    """As people name an object: `XApp.example.org web` or `App.example.org team/web`."""
    kind = gvk_of(obj)
    place = f"{namespace_of(obj)}/" if namespace_of(obj) else ""
    return f"{kind.kind}{f'.{kind.group}' if kind.group else ''} {place}{name_of(obj)}"


def _why(obj: Mapping[str, Any], type_: str) -> str:
    said = (condition_reason(obj, type_), condition_message(obj, type_))
    message = ": ".join(part for part in said if part)
    return f": {message}" if message else ""


def _moment(text: Any) -> datetime | None:
    try:
        return parse_timestamp(str(text)) if text else None
    except ValueError:
        return None


def _is_builtin(reference: str) -> bool:
    from planform.builtin.catalogue import find_builtin_name

    return find_builtin_name(reference) is not None


def sandbox_findings(metrics: str) -> Iterator[Finding]:
    """What a control plane's metrics say of how functions and scripts are confined."""
    from planform.sandbox.report import METRIC, warning_of

    line = next((line for line in metrics.splitlines() if line.startswith(METRIC + "{")), "")
    found = dict(re.findall(r'(\w+)="([^"]*)"', line))
    if not found:
        return
    if warning := warning_of(found):
        yield Finding("differs" if found["unconfined"] == "allowed" else "stuck", "sandbox", "functions", warning)
    held = ", ".join(f"{name} by {found[name]}" for name in ("pids", "memory", "cpu"))
    yield Finding(
        "works",
        "sandbox",
        "functions",
        f"confined by {found['isolation']}; limits: {held}; network of functions: {found['function_network']}",
    )
