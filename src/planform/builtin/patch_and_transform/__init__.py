"""patch-and-transform: composes resources from templates, patched with values of the XR and of each other.

Reads `Resources` of `pt.fn.crossplane.io/v1beta1`, and of `apiextensions.crossplane.io/v1` as a Composition in
Resources mode wrote them. From the input to the answer it goes through `inputs` (typed parts), `validation`,
`rendering` (templates, in order), and below that `patches`, `transforms`, `readiness` and `connection`.
"""

from __future__ import annotations

from typing import Any, Final

from planform.builtin.compiled import CompiledFunction, Program
from planform.builtin.control_plane_fields import reads_control_plane_fields
from planform.builtin.inputs import InputError, convert_input, given_object, refuse_invalid
from planform.builtin.patch_and_transform.inputs import FREE_FORM, Resources
from planform.builtin.patch_and_transform.native import modernise
from planform.builtin.patch_and_transform.reads import fields_read
from planform.builtin.patch_and_transform.rendering import compile_program
from planform.builtin.patch_and_transform.validation import input_errors

_NATIVE: Final = "apiextensions.crossplane.io/v1"


def _parse(value: Any) -> Resources:
    given = given_object(value)
    if given.get("apiVersion") == _NATIVE:
        given = modernise(given)
    return convert_input(given, Resources, free_form=FREE_FORM)


def _compile(value: Any) -> Program:
    spec = _parse(value)
    refuse_invalid(input_errors(spec))
    return compile_program(spec)


def _reads_control_plane_fields(value: Any) -> bool:
    """Whether some patch takes from the XR what the control plane keeps there; True of an input that is none."""
    try:
        return any(map(reads_control_plane_fields, fields_read(_parse(value))))
    except InputError:
        return True


function: Final = CompiledFunction(
    "patch-and-transform", _compile, reads_control_plane_fields=_reads_control_plane_fields
)
