"""Which fields of the XR an input makes patch-and-transform look at.

Patches say where they read by the same tables that run them; a type that is in neither is taken to read everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from planform.builtin.patch_and_transform.inputs import Patch, Resources
from planform.builtin.patch_and_transform.patches import (
    COMBINING,
    ENVIRONMENT_ROUTES,
    TEMPLATE_ROUTES,
    Place,
    Route,
)
from planform.builtin.patch_and_transform.validation import PATCH_SET

EVERYTHING: Final = ""
"""The path of the whole XR."""

_SECRET_FIELDS: Final = ("spec.crossplane", "spec.writeConnectionSecretToRef")
"""What decides whether an XR gets a Secret of its own, and where."""


def fields_read(spec: Resources) -> Iterator[str]:
    """The field paths of the XR that a call with this input may look at; EVERYTHING where that is not known."""
    for template in spec.resources:
        yield from _read_by(template.patches, TEMPLATE_ROUTES)
        if template.connection_details:
            yield from _SECRET_FIELDS
    for patch_set in spec.patch_sets:
        yield from _read_by(patch_set.patches, TEMPLATE_ROUTES)
    yield from _read_by(spec.environment.patches, ENVIRONMENT_ROUTES)
    for config in spec.environment.environment_configs:
        for label in config.selector.match_labels if config.selector is not None else ():
            if label.type != "Value":
                yield label.value_from_field_path or EVERYTHING
    for patch in spec.write_connection_secret_to_ref.patches:  # these read the XR, whatever they call themselves
        yield from _paths(patch)


def _read_by(patches: Iterable[Patch], routes: dict[str, Route]) -> Iterator[str]:
    for patch in patches:
        route = routes.get(patch.type)
        if route is None:
            if patch.type != PATCH_SET:  # whose patches are looked at themselves
                yield EVERYTHING
        elif route[0] is Place.COMPOSITE:
            yield from _paths(patch)


def _paths(patch: Patch) -> Iterator[str]:
    if patch.type not in COMBINING:
        yield patch.from_field_path or EVERYTHING
    elif patch.combine is not None:
        yield from (variable.from_field_path or EVERYTHING for variable in patch.combine.variables)
