"""A Composition's pipeline as typed values, checked whole before any of it runs.

`parse_pipeline` reads the `spec` of a Composition, CompositionRevision or Operation and reports the errors of every
step at once, with the path of the field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from planform.errors import FieldError, PlanformError
from planform.functions.read_policy import AllowedResource, Pattern, PatternInvalid
from planform.functions.requirements import DEFAULT_MAX_ITERATIONS, UNLIMITED, Bootstrap
from planform.functions.values import Object, ResourceSelector, SchemaSelector
from planform.gotemplate.errors import CallFailed
from planform.gotemplate.gotime import parse_duration

MAX_STEPS: Final = 99
DEFAULT_TIMEOUT: Final = 60.0


class PipelineInvalid(PlanformError):
    """The pipeline cannot be run as it is written; `errors` has one for each field."""

    reason = "PipelineInvalid"

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = tuple(errors)


@dataclass(frozen=True, slots=True)
class InputRef:
    """An object that holds the input of several steps or Compositions."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Credential:
    """A Secret whose content goes to the step's function under a name."""

    name: str
    namespace: str
    secret: str


@dataclass(frozen=True, slots=True)
class Step:
    """One function call of a pipeline. `revision_ref` wins over `revision_selector`."""

    name: str
    function: str
    revision_ref: str = ""
    revision_selector: Mapping[str, str] | None = None
    input: Object | None = None
    input_ref: InputRef | None = None
    credentials: tuple[Credential, ...] = ()
    bootstrap: Bootstrap = field(default_factory=Bootstrap)
    allowed: tuple[AllowedResource, ...] | None = None
    max_iterations: int = DEFAULT_MAX_ITERATIONS
    timeout: float = DEFAULT_TIMEOUT
    warnings: tuple[str, ...] = ()
    """What is accepted but should be written differently."""


def parse_pipeline(spec: Mapping[str, Any]) -> tuple[Step, ...]:
    """The steps of `spec.pipeline`. Raises PipelineInvalid with all that is wrong."""
    written = spec.get("pipeline")
    if not isinstance(written, list) or not written:
        raise PipelineInvalid([FieldError("spec.pipeline", "FieldValueRequired", "Required value: at least one step")])
    errors: list[FieldError] = []
    if len(written) > MAX_STEPS:
        errors.append(_invalid("spec.pipeline", f"has {len(written)} steps, at most {MAX_STEPS} are allowed"))
    steps: list[Step] = []
    for index, each in enumerate(written):
        path = f"spec.pipeline[{index}]"
        try:
            wire = msgspec.convert(each, _WireStep, strict=True)
        except msgspec.ValidationError as error:
            errors.append(_from_msgspec(path, error))
            continue
        reading = _StepReader(path, wire)
        steps.append(reading.step())
        errors += reading.errors
    errors += _duplicates("spec.pipeline", ((index, step.name) for index, step in enumerate(steps)), "step")
    if errors:
        raise PipelineInvalid(errors)
    return tuple(steps)


class _Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """As users write it; unknown fields are pruned by the API's schema and ignored here."""


class _NameRef(_Wire, frozen=True, kw_only=True, rename="camel"):
    name: str


class _Labels(_Wire, frozen=True, kw_only=True, rename="camel"):
    match_labels: dict[str, str] = {}


class _WireInputRef(_Wire, frozen=True, kw_only=True, rename="camel"):
    api_version: str
    kind: str
    name: str
    namespace: str = ""


class _SecretRef(_Wire, frozen=True, kw_only=True, rename="camel"):
    name: str
    namespace: str


class _WireCredential(_Wire, frozen=True, kw_only=True, rename="camel"):
    name: str
    source: str = "Secret"
    secret_ref: _SecretRef | None = None


class _RequiredResource(_Wire, frozen=True, kw_only=True, rename="camel"):
    requirement_name: str
    api_version: str
    kind: str
    namespace: str | None = None
    name: str | None = None
    match_labels: dict[str, str] | None = None


class _RequiredSchema(_Wire, frozen=True, kw_only=True, rename="camel"):
    requirement_name: str
    api_version: str
    kind: str


class _WireRequirements(_Wire, frozen=True, kw_only=True, rename="camel"):
    required_resources: list[_RequiredResource] = []
    required_schemas: list[_RequiredSchema] = []


class _Allowed(_Wire, frozen=True, kw_only=True, rename="camel"):
    api_version: str
    kind: str
    name: str | None = None
    match_name: str | None = None
    match_labels: dict[str, str] | None = None


class _WireStep(_Wire, frozen=True, kw_only=True, rename="camel"):
    step: str = ""
    name: str = ""
    function_ref: _NameRef
    function_revision_ref: _NameRef | None = None
    function_revision_selector: _Labels | None = None
    input: dict[str, Any] | None = None
    input_ref: _WireInputRef | None = None
    credentials: list[_WireCredential] = []
    requirements: _WireRequirements = _WireRequirements()
    allowed_extra_resources: list[_Allowed] | None = None
    max_iterations: int = DEFAULT_MAX_ITERATIONS
    timeout: str | None = None


class _StepReader:
    """Reads one step and gathers what is wrong with it."""

    def __init__(self, path: str, wire: _WireStep) -> None:
        self._path = path
        self._wire = wire
        self.errors: list[FieldError] = []

    def step(self) -> Step:
        wire = self._wire
        warnings = []
        name = wire.step or wire.name
        if not name:
            self._add_error("step", "Required value: a step needs a name", reason="FieldValueRequired")
        elif wire.name:
            if wire.step and wire.step != wire.name:
                self._add_error(
                    "name", f'"{wire.name}" differs from step "{wire.step}"; `name` is only an alias of `step`'
                )
            warnings.append(f"{self._path}.name is deprecated: write `step`")
        selector = wire.function_revision_selector
        if wire.function_revision_ref and selector:
            warnings.append(f"{self._path}: functionRevisionSelector is ignored, as functionRevisionRef is set")
        if wire.max_iterations < UNLIMITED:
            self._add_error("maxIterations", f"{wire.max_iterations} must be -1 (until the timeout), 0 or more")
        return Step(
            name=name,
            function=wire.function_ref.name,
            revision_ref=wire.function_revision_ref.name if wire.function_revision_ref else "",
            revision_selector=selector.match_labels if selector else None,
            input=self._input(),
            input_ref=_input_ref(wire.input_ref),
            credentials=self._credentials(),
            bootstrap=self._bootstrap(),
            allowed=self._allowed(),
            max_iterations=wire.max_iterations,
            timeout=self._timeout(),
            warnings=tuple(warnings),
        )

    def _input(self) -> Object | None:
        value = self._wire.input
        if value is None:
            return None
        if self._wire.input_ref is not None:
            self._add_error("inputRef", "may not be set together with `input`", reason="FieldValueForbidden")
        for key in ("apiVersion", "kind"):
            if not isinstance(value.get(key), str) or not value[key]:
                self._add_error(f"input.{key}", "Required value", reason="FieldValueRequired")
        return value

    def _credentials(self) -> tuple[Credential, ...]:
        found = []
        for index, each in enumerate(self._wire.credentials):
            if each.source == "None":
                continue
            if each.source != "Secret" or each.secret_ref is None:
                self._add_error(
                    f"credentials[{index}]",
                    'the source must be "None", or "Secret" with a secretRef of namespace and name',
                )
                continue
            found.append(Credential(each.name, each.secret_ref.namespace, each.secret_ref.name))
        self.errors += _duplicates(f"{self._path}.credentials", enumerate(each.name for each in found), "name")
        return tuple(found)

    def _bootstrap(self) -> Bootstrap:
        written = self._wire.requirements
        resources: dict[str, ResourceSelector] = {}
        for index, each in enumerate(written.required_resources):
            if each.name is not None and each.match_labels is not None:
                self._add_error(f"requirements.requiredResources[{index}]", "has both `name` and `matchLabels`")
            resources[each.requirement_name] = ResourceSelector(
                each.api_version, each.kind, each.name or "", each.match_labels, each.namespace
            )
        for field_name, names in (
            ("requiredResources", [each.requirement_name for each in written.required_resources]),
            ("requiredSchemas", [each.requirement_name for each in written.required_schemas]),
        ):
            path = f"{self._path}.requirements.{field_name}"
            self.errors += _duplicates(path, enumerate(names), "requirementName")
        schemas = {
            each.requirement_name: SchemaSelector(each.api_version, each.kind) for each in written.required_schemas
        }
        return Bootstrap(resources, schemas)

    def _allowed(self) -> tuple[AllowedResource, ...] | None:
        written = self._wire.allowed_extra_resources
        if written is None:
            return None
        found = []
        for index, each in enumerate(written):
            path = f"allowedExtraResources[{index}]"
            name = each.match_name if each.match_name is not None else each.name
            if each.match_name is not None and each.name is not None and each.match_name != each.name:
                self._add_error(path, "has both `matchName` and its alias `name`")
            if name is not None and each.match_labels is not None:
                self._add_error(path, "has both a name and `matchLabels`")
            try:
                labels = each.match_labels
                found.append(
                    AllowedResource(
                        each.api_version,
                        each.kind,
                        None if name is None else Pattern(name),
                        None if labels is None else {key: Pattern(value) for key, value in labels.items()},
                    )
                )
            except PatternInvalid as error:
                self._add_error(path, str(error))
        return tuple(found)

    def _timeout(self) -> float:
        text = self._wire.timeout
        if text is None:
            return DEFAULT_TIMEOUT
        try:
            seconds = parse_duration(text) / 1e9
        except CallFailed:
            seconds = 0.0
        if seconds <= 0:
            self._add_error("timeout", f'"{text}" is not a duration above zero, such as "30s"')
        return seconds

    def _add_error(self, path: str, detail: str, *, reason: str = "FieldValueInvalid") -> None:
        self.errors.append(FieldError(f"{self._path}.{path}", reason, detail))


def _input_ref(written: _WireInputRef | None) -> InputRef | None:
    return InputRef(written.api_version, written.kind, written.name, written.namespace) if written else None


def _invalid(path: str, detail: str) -> FieldError:
    return FieldError(path, "FieldValueInvalid", detail)


def _duplicates(path: str, names: Iterable[tuple[int, str]], key: str) -> list[FieldError]:
    seen: set[str] = set()
    errors = []
    for index, name in names:
        if name and name in seen:
            errors.append(FieldError(f"{path}[{index}].{key}", "FieldValueDuplicate", f'Duplicate value: "{name}"'))
        seen.add(name)
    return errors


_AT: Final = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<where>.*)`)?\Z", re.DOTALL)


def _from_msgspec(path: str, error: msgspec.ValidationError) -> FieldError:
    match = _AT.match(str(error))
    assert match is not None  # the pattern takes every text
    return _invalid(path + (match["where"] or ""), match["what"])
