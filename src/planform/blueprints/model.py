"""Blueprints and ActionSets as they are written: parsed once, here, into values that do not change.

Templates stay as they are. What cannot be understood is an error that names its field; what only looks odd is for
`validation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import orjson

from planform.api.annotations import annotations_of
from planform.api.metadata import name_of
from planform.blueprints.errors import BlueprintInvalid
from planform.errors import FieldError
from planform.gotemplate.errors import CallFailed
from planform.gotemplate.gotime import parse_duration

LOCKS_ANNOTATION: Final = "planform.dev/function-versions"
"""On a Blueprint whose versionPolicy is Lock: the versions that its phases were bound to, as JSON."""

CANCEL_ANNOTATION: Final = "planform.dev/cancel"
"""On an ActionSet, with the value `true`: end its phases as a deletion would, and keep it."""

FIRST_BACKOFF: Final = 1.0
MAX_BACKOFF: Final = 300.0


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """One object; `api_version` is the version alone, as in `v1`."""

    api_version: str = ""
    group: str = ""
    resource: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Artifact:
    """What an action leaves for others, and who made it."""

    key_value: Mapping[str, str] = field(default_factory=dict)
    kopia_snapshot: str = ""
    produced_by: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Retry:
    """How often, and after how many seconds, a phase that failed is tried again."""

    limit: int = 0
    backoff: float = FIRST_BACKOFF

    def delay(self, failures: int) -> float:
        return min(self.backoff * 2.0 ** min(failures - 1, 30), MAX_BACKOFF)


@dataclass(frozen=True, slots=True)
class Phase:
    """One call of a function, as its Blueprint has it."""

    name: str
    function: str
    pin: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)
    objects: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    timeout: float | None = None
    retry: Retry = field(default_factory=Retry)


@dataclass(frozen=True, slots=True)
class Action:
    """The phases of one action. `wire` is what it was parsed from, for snapshots."""

    name: str
    phases: tuple[Phase, ...] = ()
    defer: Phase | None = None
    outputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    kind: str = ""
    config_maps: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    wire: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def all_phases(self) -> tuple[Phase, ...]:
        """Those in order, and the deferPhase last."""
        return self.phases if self.defer is None else (*self.phases, self.defer)

    @property
    def digest(self) -> str:
        return digest_of(self.wire)


@dataclass(frozen=True, slots=True)
class Blueprint:
    """The actions of one Blueprint, and the versions that its phases are bound to, by `action/phase`."""

    name: str
    actions: Mapping[str, Action]
    locks_versions: bool = False
    locks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ActionRequest:
    """One action that an ActionSet asks for."""

    name: str
    blueprint: str
    object: ObjectReference
    artifacts: Mapping[str, Artifact] = field(default_factory=dict)
    config_maps: Mapping[str, ObjectReference] = field(default_factory=dict)
    secrets: Mapping[str, ObjectReference] = field(default_factory=dict)
    profile: ObjectReference | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    pod_override: Mapping[str, Any] = field(default_factory=dict)
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    pod_annotations: Mapping[str, str] = field(default_factory=dict)
    preferred_version: str = ""


@dataclass(frozen=True, slots=True)
class ActionSet:
    """What an ActionSet asks for."""

    actions: tuple[ActionRequest, ...]
    sequential: bool = False


def digest_of(value: Any) -> str:
    """A digest of a JSON value that does not depend on the order of keys."""
    return sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def parse_blueprint(obj: Mapping[str, Any]) -> Blueprint:
    """Raises BlueprintInvalid with everything that cannot be understood."""
    reading = _Reading()
    actions = {
        str(name): reading.action(f"actions.{name}", str(name), wire)
        for name, wire in reading.map("actions", obj.get("actions")).items()
    }
    annotations = annotations_of(obj)
    reading.finish()
    return Blueprint(
        name_of(obj),
        actions,
        obj.get("versionPolicy") == "Lock",
        _locks(annotations.get(LOCKS_ANNOTATION)),
    )


def parse_action(name: str, wire: Mapping[str, Any]) -> Action:
    """One action by itself, as snapshots keep it."""
    reading = _Reading()
    action = reading.action(f"actions.{name}", name, wire)
    reading.finish()
    return action


def parse_action_set(obj: Mapping[str, Any]) -> ActionSet:
    """Raises BlueprintInvalid with everything that cannot be understood."""
    reading = _Reading()
    spec = obj.get("spec")
    if not isinstance(spec, Mapping):
        raise BlueprintInvalid([FieldError("spec", "FieldValueRequired", "Required value")])
    actions = tuple(
        reading.request(f"spec.actions[{index}]", wire)
        for index, wire in enumerate(reading.list("spec.actions", spec.get("actions")))
    )
    reading.finish()
    return ActionSet(actions, spec.get("actionOrder") == "Sequential")


def is_cancelled(obj: Mapping[str, Any]) -> bool:
    """Whether somebody asked for the end of an ActionSet."""
    return annotations_of(obj).get(CANCEL_ANNOTATION) == "true"


def encode_locks(locks: Mapping[str, str]) -> str:
    """The annotation that keeps them."""
    return orjson.dumps(dict(locks), option=orjson.OPT_SORT_KEYS).decode()


def _locks(text: Any) -> Mapping[str, str]:
    try:
        locks = orjson.loads(text) if isinstance(text, str) else {}
    except orjson.JSONDecodeError:
        return {}
    return {str(key): str(value) for key, value in locks.items()} if isinstance(locks, dict) else {}


class _Reading:
    """One object on its way in: gathers all errors before it refuses."""

    def __init__(self) -> None:
        self._errors: list[FieldError] = []

    def finish(self) -> None:
        if self._errors:
            raise BlueprintInvalid(self._errors)

    def wrong(self, path: str, detail: str) -> None:
        self._errors.append(FieldError(path, "FieldValueInvalid", f"Invalid value: {detail}"))

    def map(self, path: str, value: Any) -> Mapping[str, Any]:
        if value is None or isinstance(value, Mapping):
            return value or {}
        self.wrong(path, "must be a map")
        return {}

    def list(self, path: str, value: Any) -> list[Any]:
        if value is None or isinstance(value, list):
            return value or []
        self.wrong(path, "must be a list")
        return []

    def text(self, path: str, value: Any, *, required: bool = False) -> str:
        if required and (value is None or value == ""):
            self._errors.append(FieldError(path, "FieldValueRequired", "Required value"))
        if value is None or isinstance(value, str):
            return value or ""
        scalar = isinstance(value, bool | int | float)
        quoted = f", and {str(value).lower()} is none without quotes" if scalar else ""
        self.wrong(path, f"must be a text{quoted}")
        return ""

    def texts(self, path: str, value: Any) -> dict[str, str]:
        return {str(key): self.text(f"{path}.{key}", each) for key, each in self.map(path, value).items()}

    def seconds(self, path: str, value: Any) -> float | None:
        text = self.text(path, value)
        if not text:
            return None
        try:
            length = parse_duration(text) / 1e9
        except (CallFailed, ValueError):
            length = 0.0
        if length <= 0:
            self.wrong(path, f'"{text}" is not a duration above zero, such as "30s"')
            return None
        return length

    def action(self, path: str, name: str, wire: Any) -> Action:
        given = self.map(path, wire)
        phases = [
            self.phase(f"{path}.phases[{index}]", each)
            for index, each in enumerate(self.list(f"{path}.phases", given.get("phases")))
        ]
        defer = given.get("deferPhase")
        outputs = self.map(f"{path}.outputArtifacts", given.get("outputArtifacts"))
        for key, each in outputs.items():
            self.artifact(f"{path}.outputArtifacts.{key}", each)
        return Action(
            name,
            tuple(phases),
            None if defer is None else self.phase(f"{path}.deferPhase", defer),
            {key: each or {} for key, each in outputs.items()},
            self.text(f"{path}.kind", given.get("kind")),
            self._names(f"{path}.configMapNames", given.get("configMapNames")),
            self._names(f"{path}.secretNames", given.get("secretNames")),
            self._names(f"{path}.inputArtifactNames", given.get("inputArtifactNames")),
            given,
        )

    def phase(self, path: str, wire: Any) -> Phase:
        given = self.map(path, wire)
        retry = self.map(f"{path}.retry", given.get("retry"))
        limit = retry.get("limit") or 0
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
            self.wrong(f"{path}.retry.limit", "must be a whole number, 0 or more")
            limit = 0
        objects = self.map(f"{path}.objects", given.get("objects"))
        for alias, reference in objects.items():
            self.reference(f"{path}.objects.{alias}", reference)
        return Phase(
            self.text(f"{path}.name", given.get("name"), required=True),
            self.text(f"{path}.func", given.get("func"), required=True),
            self.text(f"{path}.funcVersion", given.get("funcVersion")),
            self.map(f"{path}.args", given.get("args")),
            {alias: each or {} for alias, each in objects.items()},
            self.seconds(f"{path}.timeout", given.get("timeout")),
            Retry(limit, self.seconds(f"{path}.retry.backoff", retry.get("backoff")) or FIRST_BACKOFF),
        )

    def request(self, path: str, wire: Any) -> ActionRequest:
        given = self.map(path, wire)

        def references(name: str) -> dict[str, ObjectReference]:
            found = self.map(f"{path}.{name}", given.get(name))
            return {alias: self.reference(f"{path}.{name}.{alias}", each) for alias, each in found.items()}

        profile = given.get("profile")
        target = self.reference(f"{path}.object", given.get("object"))
        artifacts = self.map(f"{path}.artifacts", given.get("artifacts"))
        return ActionRequest(
            name=self.text(f"{path}.name", given.get("name"), required=True),
            blueprint=self.text(f"{path}.blueprint", given.get("blueprint"), required=True),
            object=target,
            artifacts={name: self.artifact(f"{path}.artifacts.{name}", each) for name, each in artifacts.items()},
            config_maps=references("configMaps"),
            secrets=references("secrets"),
            profile=None if not profile else self.reference(f"{path}.profile", profile),
            options=self.texts(f"{path}.options", given.get("options")),
            pod_override=self.map(f"{path}.podOverride", given.get("podOverride")),
            pod_labels=self.texts(f"{path}.podLabels", given.get("podLabels")),
            pod_annotations=self.texts(f"{path}.podAnnotations", given.get("podAnnotations")),
            preferred_version=self.text(f"{path}.preferredVersion", given.get("preferredVersion")),
        )

    def reference(self, path: str, wire: Any) -> ObjectReference:
        given = self.map(path, wire)
        names = ("apiVersion", "group", "resource", "kind", "name", "namespace")
        return ObjectReference(*(self.text(f"{path}.{name}", given.get(name)) for name in names))

    def artifact(self, path: str, wire: Any) -> Artifact:
        given = self.map(path, wire)
        makers = self.list(f"{path}.producedBy", given.get("producedBy"))
        return Artifact(
            self.texts(f"{path}.keyValue", given.get("keyValue")),
            self.text(f"{path}.kopiaSnapshot", given.get("kopiaSnapshot")),
            tuple(self.texts(f"{path}.producedBy[{index}]", each) for index, each in enumerate(makers)),
        )

    def _names(self, path: str, value: Any) -> tuple[str, ...]:
        return tuple(self.text(f"{path}[{index}]", each) for index, each in enumerate(self.list(path, value)))


def reference_of(wire: Mapping[str, Any]) -> ObjectReference:
    """A reference whose templates have been rendered."""
    reading = _Reading()
    found = reading.reference("object", wire)
    reading.finish()
    return found
