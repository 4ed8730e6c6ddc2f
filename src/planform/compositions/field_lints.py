"""Field paths in a Composition's patches and Go templates that no schema has. Pure.

A typo there is no error for anybody: a patch from a field that is never set does nothing, and one to a field that the
API server prunes is lost. Whoever knows the schemas can tell: `planform validate`, the preview, and admission.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from planform.api.kinds import GroupVersionKind, Object, gvk
from planform.apimachinery.fieldpath import FieldPathError, format_path, parse_path
from planform.builtin import find_builtin_name
from planform.builtin.patch_and_transform.patches import ENVIRONMENT_ROUTES, TEMPLATE_ROUTES, Place, Route
from planform.compositions.template_lints import template_fields
from planform.compositions.typed_schema import UNKNOWN, Typed, at, metadata_of, typed
from planform.errors import PlanformError
from planform.pipeline.modes import pipeline_of

SchemaOf = Callable[[GroupVersionKind], Object | None]
"""The OpenAPI schema of a kind, with references inlined; None if nobody knows."""

_PATCH_AND_TRANSFORM: Final = "patch-and-transform"
_GO_TEMPLATING: Final = "go-templating"


@dataclass(frozen=True, slots=True)
class FieldLint:
    """One field that does not exist. `where` says which step and patch or line asks for it."""

    where: str
    path: str
    kind: str
    hint: str = ""

    def __str__(self) -> str:
        hint = f'; did you mean "{self.hint}"?' if self.hint else ""
        return f"{self.where}: {self.kind} has no field {self.path}{hint}"


def kinds_in(spec: Mapping[str, Any]) -> frozenset[GroupVersionKind]:
    """The kinds whose schemas `field_lints` asks for."""
    asked: set[GroupVersionKind] = set()

    def note(kind: GroupVersionKind) -> Object | None:
        asked.add(kind)
        return None

    list(field_lints(spec, note))
    return frozenset(asked)


def field_lints(spec: Mapping[str, Any], schema_of: SchemaOf) -> list[FieldLint]:
    """All of them, in order; nothing about kinds that nobody knows, and nothing of what is wrong in other ways."""
    reference = spec.get("compositeTypeRef")
    if not isinstance(reference, Mapping):
        return []
    xr = _kind(reference)
    if xr is None:
        return []
    composite = _schema(xr, schema_of)
    try:
        steps = pipeline_of(spec, "")
    except PlanformError:
        return []
    found: list[FieldLint] = []
    for step in steps:
        builtin = find_builtin_name(str((step.get("functionRef") or {}).get("name") or ""))
        given, name = step.get("input"), f'step "{step.get("step", "")}"'
        if builtin is None or not isinstance(given, Mapping):
            continue
        if builtin.name == _PATCH_AND_TRANSFORM:
            found += _patch_lints(given, name, xr, composite, schema_of)
        elif builtin.name == _GO_TEMPLATING:
            root = {"observed": {"composite": {"resource": composite}}}
            for line, path, hint in template_fields(given, root):
                found.append(FieldLint(f"{name}, line {line}", path, xr.kind, hint))
    return list(dict.fromkeys(found))


def _patch_lints(
    given: Mapping[str, Any], step: str, xr: GroupVersionKind, composite: Typed, schema_of: SchemaOf
) -> Iterator[FieldLint]:
    sets = {each.get("name"): each.get("patches") for each in _maps(given.get("patchSets"))}
    for resource in _maps(given.get("resources")):
        base = resource.get("base")
        kind = _kind(base) if isinstance(base, Mapping) else None
        composed = UNKNOWN if kind is None else _schema(kind, schema_of)
        places = {Place.COMPOSITE: (xr.kind, composite), Place.COMPOSED: (kind.kind if kind else "", composed)}
        for index, patch in enumerate(_maps(resource.get("patches"))):
            where = f'{step}, resource "{resource.get("name", "")}", patches[{index}]'
            yield from _one(patch, where, TEMPLATE_ROUTES, places)
            if patch.get("type") == "PatchSet":
                name = patch.get("patchSetName")
                for number, shared in enumerate(_maps(sets.get(name))):
                    where = f'{step}, resource "{resource.get("name", "")}", patch set "{name}"[{number}]'
                    yield from _one(shared, where, TEMPLATE_ROUTES, places)
    environment = given.get("environment")
    for index, patch in enumerate(_maps(environment.get("patches") if isinstance(environment, Mapping) else None)):
        where = f"{step}, environment.patches[{index}]"
        yield from _one(patch, where, ENVIRONMENT_ROUTES, {Place.COMPOSITE: (xr.kind, composite)})


def _one(
    patch: Mapping[str, Any], where: str, routes: Mapping[str, Route], places: Mapping[Place, tuple[str, Typed]]
) -> Iterator[FieldLint]:
    route = routes.get(str(patch.get("type") or "FromCompositeFieldPath"))
    if route is None:
        return
    source, target = route
    combine = patch.get("combine")
    variables = _maps(combine.get("variables")) if isinstance(combine, Mapping) else ()
    read = [patch.get("fromFieldPath"), *(each.get("fromFieldPath") for each in variables)]
    # A patch without a target writes to where it reads.
    written = [patch.get("toFieldPath") or (patch.get("fromFieldPath") if not variables else None)]
    for place, paths in ((source, read), (target, written)):
        kind, schema = places.get(place, ("", UNKNOWN))
        for path in paths:
            if isinstance(path, str) and path:
                yield from _missing(path, where, kind, schema)


def _missing(path: str, where: str, kind: str, schema: Typed) -> Iterator[FieldLint]:
    try:
        segments = tuple(parse_path(path).segments)
    except FieldPathError:
        return  # the function says what is wrong with it
    here = schema
    for index, segment in enumerate(segments):
        below = at(here, segment)
        if below is None:
            known = here.names()
            close = difflib.get_close_matches(str(segment), known, n=1)
            hint = format_path([*segments[:index], close[0], *segments[index + 1 :]]) if close else ""
            yield FieldLint(where, path, kind, hint)
            return
        here = below


def _schema(kind: GroupVersionKind, schema_of: SchemaOf) -> Typed:
    found = schema_of(kind)
    is_custom = "." in kind.group and not kind.group.endswith(".k8s.io")
    return UNKNOWN if found is None else metadata_of(typed(found, is_custom=is_custom))


def _kind(obj: Mapping[str, Any]) -> GroupVersionKind | None:
    version, kind = obj.get("apiVersion"), obj.get("kind")
    return gvk(version, kind) if isinstance(version, str) and isinstance(kind, str) and version and kind else None


def _maps(value: Any) -> Iterable[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list | tuple) else ()
