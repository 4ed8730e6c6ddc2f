"""What is wrong with a Blueprint, an ActionSet or a Profile before anything runs. Pure; admission and `planform
blueprint validate` ask here.

A Blueprint is looked at as it would run now: each phase with the version it pins, else with the stable one. What its
functions will be in a later release, and what is only unwise, are warnings.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from planform.blueprints.action_status import COMPLETE, OVER, PENDING, RUNNING, STATES
from planform.blueprints.catalogue import Ask, Chosen, PhaseCatalogue
from planform.blueprints.contract import PhaseEnvironment, PhaseFunction
from planform.blueprints.errors import BlueprintInvalid
from planform.blueprints.model import Action, Blueprint, Phase, parse_action_set, parse_blueprint
from planform.blueprints.planning import argument_errors, bound_version, target_problem, unable
from planform.blueprints.rendering import template_errors
from planform.errors import FieldError
from planform.functions.errors import ResolutionError

MAX_WARNING_BYTES: Final = 4096
_PHASE_USED: Final = re.compile(r"""\.Phases\.(\w+)|index\s+\.Phases\s+["`]([^"`]+)["`]""")
_NAME_USED: Final = {
    "configMapNames": re.compile(r"\.ConfigMaps\.(\w+)"),
    "secretNames": re.compile(r"(?<!Phase)(?<!\w)\.Secrets\.(\w+)"),
    "inputArtifactNames": re.compile(r"\.ArtifactsIn\.(\w+)"),
}


@dataclass
class Findings:
    """Errors refuse an object; warnings are told to whoever wrote it."""

    errors: list[FieldError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def wrong(self, path: str, detail: str) -> None:
        self.errors.append(FieldError(path, "FieldValueInvalid", f"Invalid value: {detail}"))

    def warn(self, text: str) -> None:
        """Add a warning once, as long as all of them together stay small enough for a header."""
        size = sum(len(each.encode()) for each in self.warnings)
        if text not in self.warnings and size + len(text.encode()) <= MAX_WARNING_BYTES:
            self.warnings.append(text)


def blueprint_findings(obj: Mapping[str, Any], catalogue: PhaseCatalogue, here: PhaseEnvironment) -> Findings:
    """Everything about a Blueprint."""
    findings = Findings()
    try:
        blueprint = parse_blueprint(obj)
    except BlueprintInvalid as error:
        findings.errors += error.errors
        return findings
    for name, action in blueprint.actions.items():
        _check_action(findings, f"actions.{name}", action, blueprint, catalogue, here)
    counts = Counter(
        name for action in blueprint.actions.values() for name in {phase.name for phase in action.all_phases}
    )
    shared = sorted(name for name, count in counts.items() if count > 1)
    if shared:
        findings.warn(f"phase names are used by several actions: {', '.join(shared)}")
    return findings


def _check_action(
    findings: Findings,
    path: str,
    action: Action,
    blueprint: Blueprint,
    catalogue: PhaseCatalogue,
    here: PhaseEnvironment,
) -> None:
    names = [phase.name for phase in action.all_phases]
    for index, phase in enumerate(action.all_phases):
        where = f"{path}.deferPhase" if phase is action.defer else f"{path}.phases[{index}]"
        if phase.name in names[:index]:
            findings.errors.append(
                FieldError(f"{where}.name", "FieldValueDuplicate", f'Duplicate value: "{phase.name}"')
            )
        _check_templates(findings, where, phase, names[:index])
        chosen = _chosen(findings, where, phase, action, blueprint, catalogue)
        if chosen is not None:
            _check_function(findings, where, phase, chosen, catalogue, here)
    for template, problem in template_errors(dict(action.outputs), f"{path}.outputArtifacts"):
        findings.wrong(template, problem)
    _check_declared(findings, path, action)


def _check_templates(findings: Findings, where: str, phase: Phase, earlier: Sequence[str]) -> None:
    for template, problem in template_errors(dict(phase.args), f"{where}.args"):
        findings.wrong(template, problem)
    for template, problem in template_errors(dict(phase.objects), f"{where}.objects"):
        findings.wrong(template, problem)
    for text in _texts(phase.objects):
        if _PHASE_USED.search(text):
            findings.wrong(f"{where}.objects", "objects are read before any phase runs: .Phases is empty then")
    for text in _texts(phase.args):
        for found in _PHASE_USED.finditer(text):
            used = found[1] or found[2]
            if used not in (*earlier, phase.name):
                findings.warn(f'{where}.args: no phase "{used}" runs before "{phase.name}"')
    if "{{" in phase.pin:
        findings.wrong(f"{where}.funcVersion", "a version is never a template")


def _chosen(
    findings: Findings, where: str, phase: Phase, action: Action, blueprint: Blueprint, catalogue: PhaseCatalogue
) -> Chosen | None:
    if "{{" in phase.pin:
        return None
    try:
        lock = bound_version(blueprint, action, phase)
        return catalogue.resolve(Ask(phase.function, pin=phase.pin, lock=lock))
    except ResolutionError as error:
        findings.wrong(f"{where}.funcVersion" if phase.pin else f"{where}.func", str(error))
        return None


def _check_function(
    findings: Findings,
    where: str,
    phase: Phase,
    chosen: Chosen,
    catalogue: PhaseCatalogue,
    here: PhaseEnvironment,
) -> None:
    for problem in argument_errors(phase.args, chosen.function):
        findings.wrong(f"{where}.args", problem)
    for warning in chosen.warnings:
        findings.warn(warning.message)
    for problem_ in unable(chosen.function, here):
        findings.warn(str(problem_))
    coming = catalogue.coming_stable(phase.function)
    if coming is not None and not phase.pin and coming.version != chosen.version:
        _check_coming(findings, where, phase, coming)


def _check_coming(findings: Findings, where: str, phase: Phase, coming: PhaseFunction) -> None:
    for problem in argument_errors(phase.args, coming):
        findings.warn(f"{where}.args will be wrong once {coming.version} is stable: {problem}")


def _check_declared(findings: Findings, path: str, action: Action) -> None:
    declared = {
        "configMapNames": action.config_maps,
        "secretNames": action.secrets,
        "inputArtifactNames": action.inputs,
    }
    texts = [
        text
        for part in (*(phase.args for phase in action.all_phases), *(phase.objects for phase in action.all_phases))
        for text in _texts(part)
    ]
    for name, pattern in _NAME_USED.items():
        used = {found[1] for text in texts for found in pattern.finditer(text)}
        for missing in sorted(used - set(declared[name])):
            findings.warn(f'{path}: templates use "{missing}", which {name} does not declare')


def action_set_findings(
    obj: Mapping[str, Any], blueprints: Mapping[str, Blueprint | None], catalogue: PhaseCatalogue
) -> Findings:
    """Everything about an ActionSet. `blueprints` are those it names; None for one that is not there (yet)."""
    findings = Findings()
    try:
        wanted = parse_action_set(obj)
    except BlueprintInvalid as error:
        findings.errors += error.errors
        return findings
    for index, request in enumerate(wanted.actions):
        path = f"spec.actions[{index}]"
        if problem := target_problem(request):
            findings.wrong(f"{path}.object", problem)
        if request.blueprint in blueprints and blueprints[request.blueprint] is None:
            findings.warn(f'{path}: Blueprint "{request.blueprint}" does not exist')
        blueprint = blueprints.get(request.blueprint)
        action = blueprint.actions.get(request.name) if blueprint is not None else None
        if blueprint is None:
            continue
        if action is None:
            findings.warn(f'{path}: Blueprint "{request.blueprint}" has no action "{request.name}"')
            continue
        for phase in action.all_phases:
            ask = Ask(
                phase.function,
                pin=phase.pin,
                hint=request.preferred_version,
                lock=bound_version(blueprint, action, phase),
            )
            try:
                for warning in catalogue.resolve(ask).warnings:
                    findings.warn(warning.message)
            except ResolutionError as error:
                findings.warn(f'{path}: phase "{phase.name}": {error}')
    return findings


def status_errors(obj: Mapping[str, Any]) -> Iterator[FieldError]:
    """Where the status of an ActionSet contradicts itself or the spec."""
    status, spec = obj.get("status") or {}, obj.get("spec") or {}
    actions = status.get("actions")
    if not status or not isinstance(actions, list):
        return
    state = status.get("state")
    if state not in STATES:
        yield _unsupported("status.state", state)
    if len(actions) != len(spec.get("actions") or ()):
        yield FieldError("status.actions", "FieldValueInvalid", "Invalid value: must have an entry for each action")
    for index, action in enumerate(actions):
        before = COMPLETE
        for place, phase in enumerate(action.get("phases") or ()):
            path, now = f"status.actions[{index}].phases[{place}].state", phase.get("state")
            if now not in STATES:
                yield _unsupported(path, now)
            elif before != COMPLETE and now != PENDING:
                yield FieldError(path, "FieldValueInvalid", f'Invalid value: "{now}": the phase before is not complete')
            if state == COMPLETE and now in (PENDING, RUNNING):
                yield FieldError(path, "FieldValueInvalid", f'Invalid value: "{now}": the ActionSet is complete')
            before = now


def is_over(obj: Mapping[str, Any]) -> bool:
    return (obj.get("status") or {}).get("state") in OVER


def profile_findings(obj: Mapping[str, Any]) -> Findings:
    """What a Profile lacks; functions that use it may still know what to do."""
    findings = Findings()
    location, credential = obj.get("location") or {}, obj.get("credential") or {}
    if location.get("type") == "s3Compliant":
        for name in ("bucket", "region"):
            if not location.get(name):
                findings.warn(f"location.{name} is missing, which s3Compliant needs")
    pair = credential.get("keyPair") or {}
    if credential.get("type") == "keyPair":
        for name in ("idField", "secretField"):
            if not pair.get(name):
                findings.warn(f"credential.keyPair.{name} is missing")
        if not (pair.get("secret") or {}).get("name"):
            findings.warn("credential.keyPair.secret.name is missing")
    if credential.get("type") == "secret":
        for name in ("name", "namespace"):
            if not (credential.get("secret") or {}).get(name):
                findings.warn(f"credential.secret.{name} is missing")
    return findings


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if "{{" in value:
            yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _texts(str(key))
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _unsupported(path: str, value: Any) -> FieldError:
    known = ", ".join(f'"{state}"' for state in STATES)
    return FieldError(path, "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {known}')
