"""Deciding once which function revisions a pipeline runs, and writing them into a revision of a Composition. Pure.

A step's choice is made anew in every run, so that a revision of a Composition behaves differently once functions do.
There are two ways to have it made once:

- `spec.pinFunctions` of a Composition: the choice is made when the revision is, and stands in it.
- A RolloutPolicy that holds the Composition: functions roll out through its revisions. A new function revision makes a
  new revision of the Composition, whose identity includes what it pins. One that pins nothing is what it would be
  without a policy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from planform.api.annotations import annotation
from planform.api.metadata import name_of
from planform.api.rollouts import RolloutPolicy
from planform.errors import PlanformError
from planform.functions.errors import ResolutionError
from planform.functions.resolution import Catalogue, Request, Rule, Version, resolve
from planform.functions.values import Object
from planform.pipeline.modes import InvalidComposition, mode_of, pipeline_of

UNPINNED_ANNOTATION: Final = "planform.dev/unpinned-revision"
"""On a revision that a policy pins: the name that it would have without its pins."""

_CHOICES: Final = ("functionRevisionRef", "functionRevisionSelector")

Pins = Mapping[str, frozenset[str]]
"""By function, the revisions of it that the steps of a pipeline name."""


class FunctionsNotPinned(PlanformError):
    """A Composition wants its functions pinned, and for a step there is none to pin."""

    reason = "FunctionsNotPinned"

    def __init__(self, step: str, error: ResolutionError) -> None:
        super().__init__(f'cannot pin the function of step "{step}": {error}')
        self.hint = error.hint


def is_pinned(spec: Mapping[str, Any]) -> bool:
    """Whether the Composition wants its functions pinned. In Resources mode there is nothing to choose."""
    return bool(spec.get("pinFunctions")) and mode_of(spec) == "Pipeline"


def pinned(spec: Mapping[str, Any], functions: Catalogue) -> Object:
    """The same spec, each step of which names the function revision that it would run now.

    Functions that ship with planform have no revision to name unless they were installed: those follow the release.
    Raises FunctionsNotPinned.
    """
    return {**spec, "pipeline": [_pinned_step(step, functions) for step in spec["pipeline"]]}


# -- under a RolloutPolicy


def functions_of(spec: Mapping[str, Any]) -> frozenset[str]:
    """The functions that a Composition's steps call; none if it says nothing that could be run."""
    try:
        return frozenset(function for function, _ in _called(pipeline_of(spec)))
    except InvalidComposition:
        return frozenset()


def functions_held(policy: RolloutPolicy) -> Collection[str] | None:
    """The functions whose revisions a policy pins; None if those are all."""
    scope = policy.spec.for_.functions
    return (scope.names or None) if scope else None


def pins_of(revision: Mapping[str, Any] | None) -> Pins:
    """What the steps of a revision name, whoever wrote it there."""
    found: dict[str, set[str]] = {}
    for function, step in _called((revision or {"spec": {}})["spec"].get("pipeline") or ()):
        if reference := _reference(step):
            found.setdefault(function, set()).add(reference)
    return {function: frozenset(names) for function, names in found.items()}


def held_spec(spec: Mapping[str, Any], functions: Catalogue, *, held: Collection[str] | None, last: Pins) -> Object:
    """The spec as a policy has a revision hold it: steps of the functions `held`, or of all, name what they run.

    `last` is what the newest revision pins. Pins follow the highest-numbered function revision that has been healthy
    once: what is pinned stays so while it does not serve, until a higher-numbered one does. A step keeps what its
    author named; one that nothing serves, or what nobody installed, names nothing.
    """
    if not _is_for_policies(spec):
        return dict(spec)
    steps = [_held_step(step, functions, held, last) for step in spec["pipeline"]]
    return dict(spec) if steps == spec["pipeline"] else {**spec, "pipeline": steps}


def frozen_spec(spec: Mapping[str, Any], last: Pins) -> Object:
    """The spec with what the newest revision pins, while a Rollout goes on whose policy is gone."""
    if not _is_for_policies(spec):
        return dict(spec)
    steps = [
        step if _reference(step) or len(names := last.get(_function(step), frozenset())) != 1 else _naming(step, *names)
        for step in spec["pipeline"]
    ]
    return {**spec, "pipeline": steps}


def unpinned_name(revision: Mapping[str, Any]) -> str:
    """The name that the revision would have without what a policy pins."""
    return annotation(revision, UNPINNED_ANNOTATION) or name_of(revision)


def is_made_again(stable: Mapping[str, Any], revision: Mapping[str, Any]) -> bool:
    """Whether a revision is the stable one with more pins: it names what ran when it was made, and changes nothing."""
    if unpinned_name(stable) != unpinned_name(revision) or _without_choices(stable) != _without_choices(revision):
        return False
    steps = zip(_steps(stable), _steps(revision), strict=True)
    return all(not _reference(before) or _reference(before) == _reference(after) for before, after in steps)


def changed_functions(stable: Mapping[str, Any] | None, target: Mapping[str, Any]) -> Mapping[str, str]:
    """The functions that the target pins otherwise than the stable revision, each with a revision that is new."""
    before, after = pins_of(stable), pins_of(target)
    found = {name: sorted(after[name] - before[name]) for name in after.keys() & before.keys()}
    return {name: revisions[0] for name, revisions in sorted(found.items()) if revisions}


def _is_for_policies(spec: Mapping[str, Any]) -> bool:
    """Whether a policy may pin: where the author does, new function revisions come with new versions of the
    Composition and not otherwise."""
    try:
        return mode_of(spec) == "Pipeline" and not spec.get("pinFunctions")
    except InvalidComposition:
        return False


def _held_step(step: Mapping[str, Any], functions: Catalogue, held: Collection[str] | None, last: Pins) -> Object:
    function = _function(step)
    if _reference(step) or (held is not None and function not in held):
        return dict(step)
    selector = step.get("functionRevisionSelector")
    wanted = None if selector is None else selector.get("matchLabels") or {}
    kept = _kept_version(functions, function, wanted, last)
    try:
        found = resolve(functions, Request(function, "composition", selector=wanted))
    except ResolutionError:
        return dict(step) if kept is None else _naming(step, kept.id)
    if kept is not None and (not found.version.ready or _is_behind(found.version, found.rule, kept)):
        return _naming(step, kept.id)
    if not found.version.number or not found.version.ready:
        return dict(step)
    return _naming(step, found.version.id)


def _kept_version(functions: Catalogue, function: str, wanted: Mapping[str, str] | None, last: Pins) -> Version | None:
    """The newest version that is pinned already and that the step may have, whether or not it serves."""
    for each in functions.versions(function):
        if each.id in last.get(function, ()) and (wanted or {}).items() <= each.labels.items():
            return each
    return None


def _is_behind(found: Version, rule: Rule, kept: Version) -> bool:
    """Whether a version comes only because the one that is pinned does not serve. A mark is somebody's decision."""
    return rule is not Rule.STABLE and found.number < kept.number


def _pinned_step(step: Mapping[str, Any], functions: Catalogue) -> Object:
    if _reference(step):
        return dict(step)
    selector = step.get("functionRevisionSelector")
    wanted = None if selector is None else selector.get("matchLabels") or {}
    try:
        version = resolve(functions, Request(step["functionRef"]["name"], "composition", selector=wanted)).version
    except ResolutionError as error:
        raise FunctionsNotPinned(str(step["step"]), error) from error
    if not version.number:
        return dict(step)
    return _naming(step, version.id)


def _naming(step: Mapping[str, Any], revision: str) -> Object:
    kept = {key: value for key, value in step.items() if key != "functionRevisionSelector"}
    return {**kept, "functionRevisionRef": {"name": revision}}


def _without_choices(revision: Mapping[str, Any]) -> Object:
    """What a revision holds, but for its number and which function revisions its steps choose."""
    steps = [{key: value for key, value in step.items() if key not in _CHOICES} for step in _steps(revision)]
    return {**{key: value for key, value in revision["spec"].items() if key != "revision"}, "pipeline": steps}


def _steps(revision: Mapping[str, Any]) -> list[Object]:
    found: list[Object] = revision["spec"].get("pipeline") or []
    return found


def _called(steps: Collection[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for step in steps:
        if function := _function(step):
            yield function, step


def _function(step: Mapping[str, Any]) -> str:
    return str((step.get("functionRef") or {}).get("name") or "")


def _reference(step: Mapping[str, Any]) -> str:
    return str((step.get("functionRevisionRef") or {}).get("name") or "")
