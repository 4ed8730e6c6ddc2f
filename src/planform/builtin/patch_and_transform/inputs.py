"""The input of patch-and-transform, as users write it; what is absent here is checked and completed elsewhere."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from planform.builtin.inputs import InputObject, Part
from planform.builtin.selection import SelectedConfig, SelectionPolicy

FREE_FORM: Final = frozenset({"base", "map", "result", "fallbackValue", "defaultData"})
"""Members whose content is any JSON, nulls included."""


class CombineVariable(Part, frozen=True, kw_only=True):
    from_field_path: str = ""


class CombineString(Part, frozen=True, kw_only=True):
    fmt: str = ""


class Combine(Part, frozen=True, kw_only=True):
    variables: tuple[CombineVariable, ...] = ()
    strategy: str = ""
    string: CombineString | None = None


class Policy(Part, frozen=True, kw_only=True):
    from_field_path: str = "Optional"
    to_field_path: str = "Replace"


class Math(Part, frozen=True, kw_only=True):
    type: str = "Multiply"
    multiply: int | None = None
    clamp_min: int | None = None
    clamp_max: int | None = None


class MatchPattern(Part, frozen=True, kw_only=True):
    type: str = "literal"
    literal: str | None = None
    regexp: str | None = None
    result: Any = None


class Match(Part, frozen=True, kw_only=True):
    patterns: tuple[MatchPattern, ...] = ()
    fallback_value: Any = None
    fallback_to: str = "Value"


class StringRegexp(Part, frozen=True, kw_only=True):
    match: str = ""
    group: int = 0


class StringJoin(Part, frozen=True, kw_only=True):
    separator: str = ""


class StringReplace(Part, frozen=True, kw_only=True):
    search: str = ""
    replace: str = ""


class String(Part, frozen=True, kw_only=True):
    type: str = "Format"
    fmt: str | None = None
    convert: str | None = None
    trim: str | None = None
    regexp: StringRegexp | None = None
    join: StringJoin | None = None
    replace: StringReplace | None = None


class Convert(Part, frozen=True, kw_only=True):
    to_type: str = ""
    format: str = "none"


class Transform(Part, frozen=True, kw_only=True):
    type: str = ""
    math: Math | None = None
    map: dict[str, Any] | None = None
    match: Match | None = None
    string: String | None = None
    convert: Convert | None = None


class Patch(Part, frozen=True, kw_only=True):
    type: str = "FromCompositeFieldPath"
    from_field_path: str = ""
    to_field_path: str | None = None
    combine: Combine | None = None
    patch_set_name: str = ""
    transforms: tuple[Transform, ...] = ()
    policy: Policy = Policy()


class PatchSet(Part, frozen=True, kw_only=True):
    name: str = ""
    patches: tuple[Patch, ...] = ()


class ConnectionDetail(Part, frozen=True, kw_only=True):
    name: str = ""
    type: str = ""
    from_connection_secret_key: str | None = None
    from_field_path: str | None = None
    value: str | None = None


class MatchCondition(Part, frozen=True, kw_only=True):
    type: str = "Ready"
    status: str = "True"


class ReadinessCheck(Part, frozen=True, kw_only=True):
    type: str = ""
    field_path: str = ""
    match_string: str | None = None
    match_integer: int | None = None
    match_condition: MatchCondition = MatchCondition()


class Template(Part, frozen=True, kw_only=True):
    name: str = ""
    base: Any = None
    patches: tuple[Patch, ...] = ()
    connection_details: tuple[ConnectionDetail, ...] = ()
    readiness_checks: tuple[ReadinessCheck, ...] = ()


class Environment(Part, frozen=True, kw_only=True):
    """`environmentConfigs`, `defaultData` and `policy` are what a Composition's own environment had."""

    patches: tuple[Patch, ...] = ()
    environment_configs: tuple[SelectedConfig, ...] = ()
    default_data: dict[str, Any] = msgspec.field(default_factory=dict)
    policy: SelectionPolicy = SelectionPolicy()


class ConnectionSecret(Part, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""
    patches: tuple[Patch, ...] = ()


class Resources(InputObject, frozen=True, kw_only=True):
    patch_sets: tuple[PatchSet, ...] = ()
    environment: Environment = Environment()
    resources: tuple[Template, ...] = ()
    write_connection_secret_to_ref: ConnectionSecret = ConnectionSecret()
