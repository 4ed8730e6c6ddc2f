"""What is wrong with an input, all of it, before anything runs.

No API server checks the input of a step, so the function does: what this lets pass compiles. Paths are those of the
input as the user wrote it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from planform.apimachinery.names import invalid
from planform.builtin.inputs import required
from planform.builtin.patch_and_transform.connection import DETAIL_FIELDS, detail_type
from planform.builtin.patch_and_transform.conversion import FORMATS, TYPES
from planform.builtin.patch_and_transform.inputs import (
    Combine,
    ConnectionDetail,
    Match,
    Math,
    Patch,
    PatchSet,
    ReadinessCheck,
    Resources,
    String,
    Template,
    Transform,
)
from planform.builtin.patch_and_transform.merging import POLICIES
from planform.builtin.patch_and_transform.patches import COMBINING, ENVIRONMENT_ROUTES, TEMPLATE_ROUTES
from planform.builtin.patch_and_transform.readiness import CHECKS
from planform.builtin.patch_and_transform.strings import CONVERSIONS
from planform.builtin.patterns import pattern_errors
from planform.builtin.selection import path_errors, selection_errors
from planform.errors import FieldError

Errors = Iterator[FieldError]

PATCH_SET = "PatchSet"
SECRET_PATCHES = ("FromCompositeFieldPath", "CombineFromComposite")
SECRET_TARGETS = ("name", "namespace")


def input_errors(spec: Resources) -> Errors:
    yield from _names((one.name for one in spec.patch_sets), "patchSets")
    for index, patch_set in enumerate(spec.patch_sets):
        yield from _patch_list(patch_set.patches, TEMPLATE_ROUTES, f"patchSets[{index}]", "invalid patch type in a set")
    environment = spec.environment
    if not (spec.resources or environment.patches or environment.environment_configs):
        yield required("resources", "resources or environment patches are required")
    yield from _names((one.name for one in spec.resources), "resources")
    for index, template in enumerate(spec.resources):
        for error in _template_errors(template, spec.patch_sets, f"resources[{index}]"):
            yield FieldError(error.field, error.reason, f'{error.detail} (composed resource "{template.name}")')
    yield from _patch_list(environment.patches, ENVIRONMENT_ROUTES, "environment", "invalid environment patch type")
    for index, entry in enumerate(environment.environment_configs):
        yield from selection_errors(entry, f"environment.environmentConfigs[{index}]")
    yield from _secret_errors(spec.write_connection_secret_to_ref.patches, "writeConnectionSecretToRef")


def mistakes(spec: Resources) -> Iterator[str]:
    """What is accepted and cannot be meant."""
    for path, names in (
        ("patchSets", [one.name for one in spec.patch_sets]),
        ("resources", [one.name for one in spec.resources]),
    ):
        for index, name in enumerate(names):
            if name in names[:index]:
                yield f'{path}[{index}].name: "{name}" is used twice, and the last one of that name counts'


def _names(names: Iterator[str], path: str) -> Errors:
    for index, name in enumerate(names):
        if not name:
            yield required(f"{path}[{index}].name", "name is required")


def _template_errors(template: Template, patch_sets: Sequence[PatchSet], path: str) -> Errors:
    known = {patch_set.name for patch_set in patch_sets}
    for index, patch in enumerate(template.patches):
        at = f"{path}.patches[{index}]"
        if patch.type != PATCH_SET:
            yield from _patch_errors(patch, TEMPLATE_ROUTES, at, "invalid patch type")
        elif not patch.patch_set_name:
            yield required(f"{at}.patchSetName", "patchSetName must be set for patch type PatchSet")
        elif patch.patch_set_name not in known:
            problem = f"cannot resolve PatchSets: cannot find PatchSet by name {patch.patch_set_name}"
            yield invalid(f"{at}.patchSetName", patch.patch_set_name, problem)
    for index, detail in enumerate(template.connection_details):
        yield from _detail_errors(detail, f"{path}.connectionDetails[{index}]")
    for index, check in enumerate(template.readiness_checks):
        yield from _readiness_errors(check, f"{path}.readinessChecks[{index}]")


def _patch_list(patches: Sequence[Patch], allowed: Collection[str], path: str, wrong_type: str) -> Errors:
    for index, patch in enumerate(patches):
        yield from _patch_errors(patch, allowed, f"{path}.patches[{index}]", wrong_type)


def _patch_errors(patch: Patch, allowed: Collection[str], path: str, wrong_type: str) -> Errors:
    if patch.type not in allowed:
        yield invalid(f"{path}.type", patch.type, wrong_type)
        return
    if patch.type in COMBINING:
        yield from _combine_errors(patch.combine, f"{path}.combine")
        if patch.to_field_path is None:
            yield required(f"{path}.toFieldPath", f"toFieldPath must be set for patch type {patch.type}")
    elif not patch.from_field_path:
        yield required(f"{path}.fromFieldPath", f"fromFieldPath must be set for patch type {patch.type}")
    else:
        yield from path_errors(f"{path}.fromFieldPath", patch.from_field_path)
    if patch.to_field_path == "":
        yield invalid(f"{path}.toFieldPath", "", "an empty path writes nothing: leave it out, or name a field")
    elif patch.to_field_path is not None:
        yield from path_errors(f"{path}.toFieldPath", patch.to_field_path)
    if patch.policy.from_field_path not in ("Optional", "Required"):
        yield invalid(f"{path}.policy.fromFieldPath", patch.policy.from_field_path, "must be Optional or Required")
    if patch.policy.to_field_path not in POLICIES:
        problem = f"must be one of {', '.join(POLICIES)}"
        yield invalid(f"{path}.policy.toFieldPath", patch.policy.to_field_path, problem)
    for index, transform in enumerate(patch.transforms):
        yield from _transform_errors(transform, f"{path}.transforms[{index}]")


def _combine_errors(combine: Combine | None, path: str) -> Errors:
    if combine is None:
        yield required(path, "combine must be set for a Combine patch")
        return
    if not combine.variables:
        yield required(f"{path}.variables", "at least one variable is required")
    for index, variable in enumerate(combine.variables):
        at = f"{path}.variables[{index}].fromFieldPath"
        if not variable.from_field_path:
            yield required(at, "fromFieldPath must be set")
        yield from path_errors(at, variable.from_field_path)
    if not combine.strategy:
        yield required(f"{path}.strategy", "the only strategy is string")
    elif combine.strategy != "string":
        yield invalid(f"{path}.strategy", combine.strategy, "must be string")
    if combine.string is None:
        yield required(f"{path}.string", "string must be set for strategy string")


def _transform_errors(transform: Transform, path: str) -> Errors:
    def missing(member: str) -> FieldError:
        return required(f"{path}.{member}", f"given transform type {transform.type} requires configuration")

    match transform.type:
        case "math":
            yield from [missing("math")] if transform.math is None else _math_errors(transform.math, f"{path}.math")
        case "map":
            if not transform.map:
                yield missing("map") if transform.map is None else required(f"{path}.map", "map has no pairs")
        case "match":
            yield from (
                [missing("match")] if transform.match is None else _match_errors(transform.match, f"{path}.match")
            )
        case "string":
            yield from (
                [missing("string")] if transform.string is None else _string_errors(transform.string, f"{path}.string")
            )
        case "convert":
            if transform.convert is None:
                yield missing("convert")
            else:
                if not transform.convert.to_type:
                    yield required(f"{path}.convert.toType", "toType must be set")
                elif transform.convert.to_type not in TYPES:
                    yield invalid(
                        f"{path}.convert.toType", transform.convert.to_type, f"must be one of {', '.join(TYPES)}"
                    )
                if transform.convert.format not in FORMATS:
                    yield invalid(
                        f"{path}.convert.format", transform.convert.format, f"must be one of {', '.join(FORMATS)}"
                    )
        case "":
            yield required(f"{path}.type", "transform type is required")
        case other:
            yield invalid(f"{path}.type", other, "unknown transform type")


def _math_errors(spec: Math, path: str) -> Errors:
    values = {
        "Multiply": ("multiply", spec.multiply),
        "ClampMin": ("clampMin", spec.clamp_min),
        "ClampMax": ("clampMax", spec.clamp_max),
    }
    if spec.type not in values:
        yield invalid(f"{path}.type", spec.type, "unknown math transform type")
        return
    member, value = values[spec.type]
    if value is None:
        yield required(f"{path}.{member}", "must specify a value if the type needs one")


def _match_errors(spec: Match, path: str) -> Errors:
    if not spec.patterns:
        yield required(f"{path}.patterns", "at least one pattern must be specified if a match transform is specified")
    for index, pattern in enumerate(spec.patterns):
        at = f"{path}.patterns[{index}]"
        match pattern.type:
            case "literal":
                if pattern.literal is None:
                    yield required(f"{at}.literal", "literal pattern type requires a literal")
            case "regexp":
                if pattern.regexp is None:
                    yield required(f"{at}.regexp", "regexp pattern type requires a regexp")
                else:
                    yield from pattern_errors(f"{at}.regexp", pattern.regexp)
            case other:
                yield invalid(f"{at}.type", other, "unknown pattern type")
    if spec.fallback_to not in ("Value", "Input"):
        yield invalid(f"{path}.fallbackTo", spec.fallback_to, "must be Value or Input")


def _string_errors(spec: String, path: str) -> Errors:  # noqa: C901  (a table)
    def missing(member: str) -> FieldError:
        return required(f"{path}.{member}", f"string transform {spec.type} requires it")

    match spec.type:
        case "Format":
            if spec.fmt is None:
                yield missing("fmt")
        case "Convert":
            if spec.convert is None:
                yield missing("convert")
            elif spec.convert not in CONVERSIONS:
                problem = f"type {spec.convert} is not supported for string convert"
                yield invalid(f"{path}.convert", spec.convert, problem)
        case "TrimPrefix" | "TrimSuffix":
            if spec.trim is None:
                yield missing("trim")
        case "Regexp":
            if spec.regexp is None or not spec.regexp.match:
                yield missing("regexp" if spec.regexp is None else "regexp.match")
            else:
                yield from pattern_errors(f"{path}.regexp.match", spec.regexp.match)
                if spec.regexp.group < 0:
                    yield invalid(f"{path}.regexp.group", spec.regexp.group, "must not be negative")
        case "Join":
            if spec.join is None:
                yield missing("join")
        case "Replace":
            if spec.replace is None or not spec.replace.search:
                yield missing("replace" if spec.replace is None else "replace.search")
        case other:
            yield invalid(f"{path}.type", other, "unknown string transform type")


def _detail_errors(detail: ConnectionDetail, path: str) -> Errors:
    kind = detail_type(detail)
    if not detail.name and not (kind == "FromConnectionSecretKey" and detail.from_connection_secret_key):
        yield required(f"{path}.name", "name is required")
    if not kind:
        yield required(f"{path}.type", "type is required")
    elif kind not in DETAIL_FIELDS:
        yield invalid(f"{path}.type", kind, "unknown connection detail type")
    else:
        member, value = DETAIL_FIELDS[kind](detail)
        if value is None or (not value and kind != "FromValue"):
            yield required(f"{path}.{member}", f"{member} must be set for connection detail type {kind}")
        elif kind == "FromFieldPath":
            yield from path_errors(f"{path}.{member}", value)


def _readiness_errors(check: ReadinessCheck, path: str) -> Errors:
    if not check.type:
        yield required(f"{path}.type", "type is required")
        return
    if check.type not in CHECKS:
        yield invalid(f"{path}.type", check.type, "unknown readiness check type")
        return
    if check.type == "MatchCondition":
        for member, value in (("type", check.match_condition.type), ("status", check.match_condition.status)):
            if not value:
                yield required(f"{path}.matchCondition.{member}", f"{member} is required")
    elif check.type != "None" and not check.field_path:
        yield required(f"{path}.fieldPath", f"fieldPath must be set for readiness check type {check.type}")
    if check.type == "MatchString" and check.match_string is None:
        yield required(f"{path}.matchString", "matchString must be set for readiness check type MatchString")
    if check.type == "MatchInteger" and check.match_integer is None:
        yield required(f"{path}.matchInteger", "matchInteger must be set for readiness check type MatchInteger")


def _secret_errors(patches: Sequence[Patch], path: str) -> Errors:
    yield from _patch_list(patches, SECRET_PATCHES, path, "must be FromCompositeFieldPath or CombineFromComposite")
    for index, patch in enumerate(patches):
        target = patch.to_field_path if patch.to_field_path is not None else patch.from_field_path
        if target and target not in SECRET_TARGETS:
            yield invalid(f"{path}.patches[{index}].toFieldPath", target, "must be name or namespace")
