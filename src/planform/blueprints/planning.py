"""What an ActionSet will run, decided before any of it runs. Pure.

Every phase of every action gets its version here, and every name, argument and template that can be looked at is
looked at: a mistake in the last phase of the last action must not be found after the first has deleted something.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from planform.blueprints.arguments import argument_problems
from planform.blueprints.catalogue import Ask, Chosen, PhaseCatalogue
from planform.blueprints.contract import PhaseEnvironment, PhaseFunction
from planform.blueprints.errors import (
    ArgumentInvalid,
    ArtifactIncompatible,
    BlueprintError,
    EngineNotSupported,
    PreflightFailed,
)
from planform.blueprints.model import Action, ActionRequest, Blueprint, Phase
from planform.blueprints.parameters import KNOWN_KINDS
from planform.blueprints.rendering import RenderFailed, template_errors
from planform.errors import PlanformError
from planform.functions.errors import ResolutionError
from planform.gotemplate import FunctionError
from planform.gotemplate.sprig.semver import semver_compare


@dataclass(frozen=True, slots=True)
class ActionError:
    """One thing that went wrong, and where."""

    error: PlanformError
    action: str = ""
    phase: str = ""


@dataclass(frozen=True, slots=True)
class PlannedPhase:
    """A phase and the version that it runs; or, in a run that goes on, why that version runs no more."""

    phase: Phase
    chosen: Chosen | None
    gone: ResolutionError | None = None

    def function(self) -> PhaseFunction:
        """What runs; raises what keeps it from running."""
        if self.chosen is None:
            raise self.gone or PreflightFailed(f'phase "{self.phase.name}" has no function')
        return self.chosen.function


@dataclass(frozen=True, slots=True)
class PlannedAction:
    """An action as it will run."""

    request: ActionRequest
    action: Action
    phases: tuple[PlannedPhase, ...]
    defer: PlannedPhase | None = None

    @property
    def all_phases(self) -> tuple[PlannedPhase, ...]:
        return self.phases if self.defer is None else (*self.phases, self.defer)


@dataclass(frozen=True)
class Plan:
    """What runs, or everything that keeps it from running."""

    actions: tuple[PlannedAction, ...] = ()
    action_errors: tuple[ActionError, ...] = field(default=())


def plan(
    requests: Sequence[ActionRequest],
    blueprints: Mapping[str, Blueprint],
    catalogue: PhaseCatalogue,
    here: PhaseEnvironment,
) -> Plan:
    """Decide about all actions. `blueprints` are those that exist, of the ones that are asked for."""
    planned: list[PlannedAction] = []
    action_errors: list[ActionError] = []
    for request in requests:
        try:
            blueprint, action = _action(request, blueprints)
        except PreflightFailed as error:
            action_errors.append(ActionError(error, request.name))
            continue
        action_errors += _request_errors(request, action)
        phases: list[PlannedPhase] = []
        for phase in action.all_phases:
            try:
                chosen = catalogue.resolve(_ask(phase, blueprint, action, request))
            except ResolutionError as error:
                action_errors.append(ActionError(error, request.name, phase.name))
                continue
            phases.append(PlannedPhase(phase, chosen))
            found = _phase_errors(phase, chosen.function, request, here)
            action_errors += [ActionError(error, request.name, phase.name) for error in found]
        defer = phases.pop() if action.defer is not None and phases else None
        planned.append(PlannedAction(request, action, tuple(phases), defer))
    return Plan(tuple(planned), tuple(action_errors))


def plan_again(
    requests: Sequence[ActionRequest],
    actions: Sequence[Action],
    locks: Sequence[Sequence[str]],
    catalogue: PhaseCatalogue,
) -> tuple[PlannedAction, ...]:
    """The same for a run that goes on: the actions are those it began with, each phase bound to its version.

    `locks` are the versions of each action's phases, the deferPhase last. A version that is gone fails its own phase.
    """
    planned = []
    for request, action, versions in zip(requests, actions, locks, strict=True):
        phases = []
        for phase, version in zip(action.all_phases, versions, strict=True):
            try:
                phases.append(PlannedPhase(phase, catalogue.resolve(Ask(phase.function, lock=version))))
            except ResolutionError as error:
                phases.append(PlannedPhase(phase, None, error))
        defer = phases.pop() if action.defer is not None else None
        planned.append(PlannedAction(request, action, tuple(phases), defer))
    return tuple(planned)


def lock_key(action: Action, phase: Phase) -> str:
    """Under what a Blueprint keeps the version that a phase is bound to."""
    return f"{action.name}/{phase.name}/{phase.function}"


def bound_version(blueprint: Blueprint, action: Action, phase: Phase) -> str:
    """The version that a Blueprint whose policy is Lock binds a phase to; a phase's own funcVersion comes first."""
    if phase.pin or not blueprint.locks_versions:
        return ""
    return blueprint.locks.get(lock_key(action, phase), "")


def locks_wanted(blueprint: Blueprint, catalogue: PhaseCatalogue) -> dict[str, str]:
    """The versions that a Blueprint whose policy is Lock has to bind its phases to: those it has, else those of now.

    A phase whose function cannot be resolved is left out.
    """
    wanted = {}
    for action in blueprint.actions.values() if blueprint.locks_versions else ():
        for phase in action.all_phases:
            if phase.pin:
                continue
            key = lock_key(action, phase)
            try:
                wanted[key] = blueprint.locks.get(key) or catalogue.resolve(Ask(phase.function)).version
            except ResolutionError:
                continue
    return wanted


def _ask(phase: Phase, blueprint: Blueprint, action: Action, request: ActionRequest) -> Ask:
    lock = bound_version(blueprint, action, phase)
    return Ask(phase.function, pin=phase.pin, hint=request.preferred_version, lock=lock)


def _action(request: ActionRequest, blueprints: Mapping[str, Blueprint]) -> tuple[Blueprint, Action]:
    if not request.blueprint:
        raise PreflightFailed(f'action "{request.name}" names no Blueprint')
    blueprint = blueprints.get(request.blueprint)
    if blueprint is None:
        raise PreflightFailed(f'Blueprint "{request.blueprint}" not found')
    action = blueprint.actions.get(request.name)
    if action is None:
        known = ", ".join(sorted(blueprint.actions)) or "none"
        raise PreflightFailed(f'Blueprint "{blueprint.name}" has no action "{request.name}" (it has: {known})')
    return blueprint, action


def _request_errors(request: ActionRequest, action: Action) -> Iterator[ActionError]:
    problem = target_problem(request)
    if problem:
        yield ActionError(PreflightFailed(problem), request.name)
    for what, declared, given in (
        ("ConfigMap", action.config_maps, request.config_maps),
        ("Secret", action.secrets, request.secrets),
        ("artifact", action.inputs, request.artifacts),
    ):
        for name in declared:
            if name not in given:
                text = f'action "{action.name}" needs the {what} "{name}", which the ActionSet does not give'
                yield ActionError(PreflightFailed(text), request.name)
    names = [phase.name for phase in action.all_phases]
    for name in sorted({name for name in names if names.count(name) > 1}):
        text = f'action "{action.name}" has more than one phase "{name}"'
        yield ActionError(PreflightFailed(text), request.name, name)
    for where, problem in template_errors(dict(action.outputs), "outputArtifacts"):
        yield ActionError(RenderFailed(f"{where}: {problem}"), request.name)


def target_problem(request: ActionRequest) -> str:
    """What is wrong with what an action is about; empty if nothing is."""
    target = request.object
    if target.kind.lower() in KNOWN_KINDS:
        return "" if target.kind.lower() != "unstructured" or target.resource else "object.resource is missing"
    if target.api_version and target.resource:
        return ""
    return f'object of kind "{target.kind}" needs apiVersion and resource'


def _phase_errors(
    phase: Phase, function: PhaseFunction, request: ActionRequest, here: PhaseEnvironment
) -> Iterator[BlueprintError]:
    yield from unable(function, here)
    for name, artifact in sorted(request.artifacts.items()):
        for maker in artifact.produced_by:
            wanted = function.reads.get(maker.get("func", ""))
            if wanted and not _in_range(maker.get("funcVersion", ""), wanted):
                yield ArtifactIncompatible(
                    f'{function.title} reads what {maker["func"]} {wanted} made, and the artifact "{name}" was made by'
                    f" {maker['func']} {maker.get('funcVersion', '')}",
                    hint="ask for the version that made it with preferredVersion",
                )
    for where, problem in (
        *template_errors(dict(phase.args), "args"),
        *template_errors(dict(phase.objects), "objects"),
    ):
        yield RenderFailed(f"{where}: {problem}")
    for problem in argument_errors(phase.args, function):
        yield ArgumentInvalid(problem)


def unable(function: PhaseFunction, here: PhaseEnvironment) -> Iterator[EngineNotSupported]:
    """Why a function cannot run here."""
    if here.engine not in function.engines:
        engines = " and ".join(function.engines)
        yield EngineNotSupported(f"{function.title} runs on the {engines} engine, and this is the {here.engine} engine")
    elif function.unavailable is not None and (why := function.unavailable(here)):
        yield EngineNotSupported(f"{function.title} cannot run here: {why}")


def argument_errors(args: Mapping[str, Any], function: PhaseFunction) -> list[str]:
    """What can be known to be wrong with arguments before they are rendered; names that are templates are not known."""
    if any("{{" in name for name in args):
        return []
    problems = argument_problems(function.title, args, required=function.required, supported=function.arguments)
    if not problems and function.validate is not None:
        problems = [f"{function.title}: {problem}" for problem in function.validate(args)]
    return problems


def _in_range(version: str, wanted: str) -> bool:
    try:
        return semver_compare(wanted, version)
    except FunctionError:
        return False
