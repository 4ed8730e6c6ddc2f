"""Deciding once which function revisions a pipeline runs: `spec.pinFunctions` of a Composition.

A step's choice is made anew in every run, so that a revision of a Composition behaves differently once functions do.
With `pinFunctions` the choice is made when the revision is, and stands in it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planform.errors import PlanformError
from planform.functions.errors import ResolutionError
from planform.functions.resolution import Catalogue, Request, resolve
from planform.functions.values import Object
from planform.pipeline.modes import mode_of


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


def _pinned_step(step: Mapping[str, Any], functions: Catalogue) -> Object:
    if (step.get("functionRevisionRef") or {}).get("name"):
        return dict(step)
    selector = step.get("functionRevisionSelector")
    wanted = None if selector is None else selector.get("matchLabels") or {}
    try:
        version = resolve(functions, Request(step["functionRef"]["name"], "composition", selector=wanted)).version
    except ResolutionError as error:
        raise FunctionsNotPinned(str(step["step"]), error) from error
    if not version.number:
        return dict(step)
    kept = {key: value for key, value in step.items() if key != "functionRevisionSelector"}
    return {**kept, "functionRevisionRef": {"name": version.id}}
