"""Patches as closures: read from one object, transform, write into another.

Each patch knows where it reads and where it writes; whoever runs it gives it the objects. Patches
read what is observed and write what is desired, except that the environment is both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from planform.apimachinery.fieldpath import FieldNotFound, FieldPath, FieldPathError, parse_path
from planform.builtin.patch_and_transform.formatting import MISFIT, format_values
from planform.builtin.patch_and_transform.inputs import Patch
from planform.builtin.patch_and_transform.merging import POLICIES, Merging
from planform.builtin.patch_and_transform.transforms import Chain, compile_chain
from planform.builtin.patch_and_transform.values import PatchFailed, fresh, integral
from planform.functions.values import Object
from planform.gotemplate.errors import LimitReached

Apply = Callable[[Any, Object], str | None]
"""Reads from the first and writes into the second. Gives the format that did not fit what it formatted, if one did not.

Raises FieldNotFound if the source has no such field, PatchFailed if anything else stands in the way.
"""


class Place(Enum):
    COMPOSITE = auto()
    COMPOSED = auto()
    ENVIRONMENT = auto()


Route = tuple[Place, Place]

TEMPLATE_ROUTES: Final[dict[str, Route]] = {
    "FromCompositeFieldPath": (Place.COMPOSITE, Place.COMPOSED),
    "CombineFromComposite": (Place.COMPOSITE, Place.COMPOSED),
    "FromEnvironmentFieldPath": (Place.ENVIRONMENT, Place.COMPOSED),
    "CombineFromEnvironment": (Place.ENVIRONMENT, Place.COMPOSED),
    "ToCompositeFieldPath": (Place.COMPOSED, Place.COMPOSITE),
    "CombineToComposite": (Place.COMPOSED, Place.COMPOSITE),
    "ToEnvironmentFieldPath": (Place.COMPOSED, Place.ENVIRONMENT),
    "CombineToEnvironment": (Place.COMPOSED, Place.ENVIRONMENT),
}
"""From where to where the patches of a template go."""

ENVIRONMENT_ROUTES: Final[dict[str, Route]] = {
    "FromCompositeFieldPath": (Place.COMPOSITE, Place.ENVIRONMENT),
    "ToEnvironmentFieldPath": (Place.COMPOSITE, Place.ENVIRONMENT),
    "CombineFromComposite": (Place.COMPOSITE, Place.ENVIRONMENT),
    "ToCompositeFieldPath": (Place.ENVIRONMENT, Place.COMPOSITE),
    "FromEnvironmentFieldPath": (Place.ENVIRONMENT, Place.COMPOSITE),
    "CombineToComposite": (Place.ENVIRONMENT, Place.COMPOSITE),
}
"""The same words in `environment.patches` mean the environment in place of a composed resource."""

COMBINING: Final = frozenset(
    {"CombineFromComposite", "CombineFromEnvironment", "CombineToComposite", "CombineToEnvironment"}
)


@dataclass(frozen=True, slots=True)
class CompiledPatch:
    """One patch; `label` names it in messages by its type and its index after patch sets were put in."""

    label: str
    source: Place
    target: Place
    required: bool
    apply: Apply


def compile_patches(patches: Sequence[Patch], routes: dict[str, Route]) -> tuple[CompiledPatch, ...]:
    return tuple(_compile(patch, index, *routes[patch.type]) for index, patch in enumerate(patches))


def compile_apply(patch: Patch) -> Apply:
    """What a validated patch does, without where."""
    chain = compile_chain(patch.transforms)
    if patch.type in COMBINING:
        return _combine(patch, chain)
    to = patch.to_field_path if patch.to_field_path is not None else patch.from_field_path
    return _copy(parse_path(patch.from_field_path).get, chain, _compile_write(to, patch, expands="[*]" in to))


def _compile(patch: Patch, index: int, source: Place, target: Place) -> CompiledPatch:
    label = f'"{patch.type}" patch at index {index}'
    required = patch.policy.from_field_path == "Required"
    return CompiledPatch(label, source, target, required, compile_apply(patch))


def _copy(get: Callable[[Any], Any], chain: Chain | None, write: Callable[[Object, Any], None]) -> Apply:
    def apply(source: Any, target: Object) -> str | None:
        value, misfit = _read(get, source), None
        if chain is not None:
            value, misfit = chain(value)
        write(target, fresh(value))
        return misfit

    return apply


def _combine(patch: Patch, chain: Chain | None) -> Apply:
    assert patch.combine is not None and patch.combine.string is not None, "checked by validation"
    template = patch.combine.string.fmt
    getters = [parse_path(variable.from_field_path).get for variable in patch.combine.variables]
    write = _compile_write(patch.to_field_path or "", patch, expands=False)

    def apply(source: Any, target: Object) -> str | None:
        values = [_read(get, source) for get in getters]
        try:
            value: Any = format_values(template, values)
        except LimitReached as error:
            raise PatchFailed(f"cannot combine variables: {error}") from None
        misfit = template if MISFIT in value else None
        if chain is not None:
            value, later = chain(value)
            misfit = misfit or later
        write(target, fresh(value))
        return misfit

    return apply


def _read(get: Callable[[Any], Any], source: Any) -> Any:
    """The value, not copied yet; of a container, whole numbers become integers when it is written."""
    try:
        value = get(source)
    except FieldNotFound:
        raise
    except FieldPathError as error:
        raise PatchFailed(str(error)) from None
    return integral(value) if type(value) is float else value


def _compile_write(to: str, patch: Patch, *, expands: bool) -> Callable[[Object, Any], None]:
    """Puts a value that nobody else holds where the path leads to, or to all places that it stands for."""
    path, merge = parse_path(to), POLICIES[patch.policy.to_field_path]

    def write(target: Object, value: Any) -> None:
        try:
            _put(path, merge, target, value)
        except (FieldPathError, PatchFailed) as error:
            raise PatchFailed(f"cannot patch to object: {error}") from None

    def write_each(target: Object, value: Any) -> None:
        try:
            paths = path.expand(target)
            for each in paths:
                _put(each, merge, target, fresh(value))
        except FieldNotFound:
            raise
        except FieldPathError as error:
            raise PatchFailed(str(error)) from None
        if not paths:
            raise PatchFailed(f"cannot expand ToFieldPath {to}")

    return write_each if expands else write


def _put(path: FieldPath, merge: Merging | None, target: Object, value: Any) -> None:
    if merge is not None:
        try:
            value = merge(path.get(target), value)
        except FieldNotFound:
            pass
    path.set(target, value)
