"""patch-and-transform: composes resources from templates, patched with values of the XR and of each other.

Reads `Resources` of `pt.fn.crossplane.io/v1beta1`, and of `apiextensions.crossplane.io/v1` as a Composition in
Resources mode wrote them. From the input to the answer it goes through `inputs` (typed parts), `validation`,
`rendering` (templates, in order), and below that `patches`, `transforms`, `readiness` and `connection`.
"""

from __future__ import annotations

from typing import Any, Final

from planform.builtin.bookkeeping import patches_see_bookkeeping
from planform.builtin.compiled import CompiledFunction, Program
from planform.builtin.inputs import check_kind, convert_input, refuse_invalid
from planform.builtin.patch_and_transform.inputs import FREE_FORM, Resources
from planform.builtin.patch_and_transform.native import modernise
from planform.builtin.patch_and_transform.rendering import compile_program
from planform.builtin.patch_and_transform.validation import input_errors

_CURRENT: Final = ("pt.fn.crossplane.io/v1beta1", "Resources")
_NATIVE: Final = ("apiextensions.crossplane.io/v1", "Resources")


def _compile(value: Any) -> Program:
    if check_kind(value, _CURRENT, _NATIVE) == _NATIVE:
        value = modernise(value)
    spec = convert_input(value, Resources, free_form=FREE_FORM)
    refuse_invalid(input_errors(spec))
    return compile_program(spec)


def _sees_bookkeeping(value: Any) -> bool:
    """Whether some patch takes from the XR what the control plane keeps there; True of an input that is none."""
    try:
        sections = [*value.get("resources", ()), *value.get("patchSets", ()), value.get("environment") or {}]
        return any(patches_see_bookkeeping(each.get("patches") or ()) for each in sections)
    except (AttributeError, TypeError):
        return True


function: Final = CompiledFunction("patch-and-transform", _compile, sees_bookkeeping=_sees_bookkeeping)
