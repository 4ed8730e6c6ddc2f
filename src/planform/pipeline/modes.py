"""Resources mode is sugar: a Composition with `resources` runs as a one-step pipeline of patch-and-transform.

The reconciler and `render` run what `pipeline_of` gives; `planform convert` writes it down, so that both always agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planform.api.kinds import Object
from planform.api.metadata import name_of
from planform.errors import PlanformError

PATCH_AND_TRANSFORM: Final = "function-patch-and-transform"
SHIPPED_PATCH_AND_TRANSFORM: Final = "builtin/patch-and-transform"
"""What Resources mode runs: no Function can have this name, so that none can stand in its place."""
ENVIRONMENT_CONFIGS: Final = "function-environment-configs"
_RESOURCES_FIELDS: Final = ("resources", "patchSets", "environment")


class InvalidComposition(PlanformError):
    """A Composition that says nothing that could be run, or two things at once."""

    reason = "InvalidComposition"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def mode_of(spec: Mapping[str, Any], name: str = "") -> str:
    """`Pipeline` or `Resources`; when `mode` is absent, whichever of the two fields is given."""
    where = f'composition "{name}"' if name else "the composition"
    mode = spec.get("mode")
    if mode is None:
        mode = "Resources" if spec.get("resources") and not spec.get("pipeline") else "Pipeline"
    if mode not in ("Pipeline", "Resources"):
        raise InvalidComposition(f'{where}: spec.mode: there is no mode "{mode}"', hint="use Pipeline or Resources")
    wanted = "pipeline" if mode == "Pipeline" else "resources"
    if not spec.get(wanted):
        raise InvalidComposition(f"{where}: spec.{wanted} is empty", hint=f"mode {mode} needs at least one entry")
    return str(mode)


def pipeline_of(spec: Mapping[str, Any], name: str = "") -> list[Object]:
    """The steps that a Composition's spec means, whatever its mode."""
    if mode_of(spec, name) == "Pipeline":
        return [dict(step) for step in spec["pipeline"]]
    return [_patch_and_transform_step(spec, SHIPPED_PATCH_AND_TRANSFORM)]


def unused_part(spec: Mapping[str, Any]) -> str:
    """What of a Composition that says two things at once does not run, in words; empty if it says one."""
    if not spec.get("resources") or not spec.get("pipeline"):
        return ""
    unused, runs = ("pipeline", "resources") if spec.get("mode") == "Resources" else ("resources", "pipeline")
    return f"spec.{unused} is not used: spec.{runs} runs, and a Composition has one of them"


def to_pipeline_mode(composition: Mapping[str, Any]) -> Object:
    """The same Composition written as a pipeline; one that is a pipeline already comes back as it is.

    Environment configs become a step of their own, as upstream's functions expect it.
    """
    spec: Object = dict(composition["spec"])
    if mode_of(spec, name_of(composition)) == "Pipeline":
        return dict(composition)
    steps: list[Object] = []
    environment = dict(spec.get("environment") or {})
    configs = environment.pop("environmentConfigs", None)
    defaults = environment.pop("defaultData", None)
    policy = environment.pop("policy", None)
    if configs or defaults:
        asked: Object = {"environmentConfigs": configs or []}
        asked |= {field: value for field, value in (("defaultData", defaults), ("policy", policy)) if value}
        steps.append(
            {
                "step": "environment-configs",
                "functionRef": {"name": ENVIRONMENT_CONFIGS},
                "input": {
                    "apiVersion": "environmentconfigs.fn.crossplane.io/v1beta1",
                    "kind": "Input",
                    "spec": asked,
                },
            }
        )
    steps.append(_patch_and_transform_step({**spec, "environment": environment or None}, PATCH_AND_TRANSFORM))
    kept = {field: value for field, value in spec.items() if field not in (*_RESOURCES_FIELDS, "mode", "pipeline")}
    return {**composition, "spec": {**kept, "mode": "Pipeline", "pipeline": steps}}


def _patch_and_transform_step(spec: Mapping[str, Any], function: str) -> Object:
    sections = {field: spec[field] for field in _RESOURCES_FIELDS if spec.get(field)}
    sections["resources"] = [
        {**resource, "name": resource.get("name") or f"resource-{index}"}
        for index, resource in enumerate(sections["resources"])
    ]
    return {
        "step": "patch-and-transform",
        "functionRef": {"name": function},
        "input": {"apiVersion": "pt.fn.crossplane.io/v1beta1", "kind": "Resources", **sections},
    }
