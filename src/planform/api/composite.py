"""`CompositeResource`: any XR, claim or composed object, seen through one typed face; its user's spec stays raw.

Modern XRs keep composition fields under `spec.crossplane`, legacy ones directly under `spec`: whoever reads one through
this view need not know which. It is a view and holds no copy: what is written goes to the API server as a patch or an
apply of the fields meant, for which `body_of` finds the place.

    xr = CompositeResource(obj, definition.style)
    if xr.composition_revision_ref == revision.metadata.name and xr.is_true("Ready"): ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from planform.api import conditions, metadata, owners
from planform.api.annotations import annotation, annotations_of, is_paused
from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.objects import Condition
from planform.api.xr import RESOURCE_NAME_ANNOTATION, Style, composition_fields, name_prefix, style_of

UpdatePolicy = Literal["Automatic", "Manual"]
_NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class ObjectView:
    """An object of any kind: what all objects have is typed, the rest is raw."""

    raw: Mapping[str, Any]

    @property
    def gvk(self) -> GroupVersionKind:
        return gvk_of(self.raw)

    @property
    def name(self) -> str:
        return metadata.name_of(self.raw)

    @property
    def namespace(self) -> str:
        """Empty for what is cluster scoped."""
        return metadata.namespace_of(self.raw)

    @property
    def uid(self) -> str:
        """Empty for what is not stored yet, as in a rendering."""
        return metadata.uid_of(self.raw)

    @property
    def resource_version(self) -> str:
        return metadata.resource_version_of(self.raw)

    @property
    def generation(self) -> int:
        return metadata.generation_of(self.raw)

    @property
    def is_deleted(self) -> bool:
        return metadata.is_deleted(self.raw)

    @property
    def is_paused(self) -> bool:
        return is_paused(self.raw)

    @property
    def labels(self) -> Mapping[str, str]:
        return metadata.labels_of(self.raw)

    @property
    def annotations(self) -> Mapping[str, str]:
        return annotations_of(self.raw)

    @property
    def finalizers(self) -> Sequence[str]:
        return metadata.finalizers_of(self.raw)

    @property
    def owners(self) -> Sequence[Mapping[str, Any]]:
        return owners.owners_of(self.raw)

    @property
    def spec(self) -> Mapping[str, Any]:
        """As its user wrote it, with what the API server and the control plane added."""
        return self.raw.get("spec") or _NOTHING

    @property
    def status(self) -> Mapping[str, Any]:
        return self.raw.get("status") or _NOTHING

    @property
    def conditions(self) -> Sequence[Mapping[str, Any]]:
        return conditions.conditions_of(self.raw)

    def condition(self, type_: str) -> Condition | None:
        return conditions.condition_of(self.raw, type_)

    def is_true(self, type_: str) -> bool:
        return conditions.is_true(self.raw, type_)

    def annotation(self, name: str) -> str:
        """The value of an annotation; empty without it."""
        return annotation(self.raw, name)

    def is_controlled_by(self, owner: Mapping[str, Any]) -> bool:
        return owners.is_controlled_by(self.raw, owner)


@dataclass(frozen=True, slots=True)
class ComposedResource(ObjectView):
    """An object that an XR is composed of."""

    @property
    def resource_name(self) -> str:
        """The name by which the Composition knows it."""
        return self.annotation(RESOURCE_NAME_ANNOTATION)


@dataclass(frozen=True, slots=True, init=False)
class CompositeResource(ObjectView):
    """An XR, or a claim, which has its fields where a legacy XR has them. `style`: the XRD's, or what it shows."""

    style: Style

    def __init__(self, raw: Mapping[str, Any], style: Style | None = None) -> None:
        object.__setattr__(self, "raw", raw)
        object.__setattr__(self, "style", style or style_of(raw))

    @property
    def fields(self) -> Mapping[str, Any]:
        """The composition fields as they stand, for those who copy or compare them as a whole."""
        return composition_fields(self.raw, self.style)

    @property
    def composition_ref(self) -> str:
        """The name of the Composition; empty until one is chosen."""
        return self._name("compositionRef")

    @property
    def composition_selector(self) -> Mapping[str, str]:
        """The labels of the Composition to choose; empty without a selector."""
        return (self.fields.get("compositionSelector") or _NOTHING).get("matchLabels") or _NOTHING

    @property
    def composition_revision_ref(self) -> str:
        """The name of the CompositionRevision: the only record of what the XR runs. Empty until one is chosen."""
        return self._name("compositionRevisionRef")

    @property
    def composition_revision_selector(self) -> Mapping[str, Any] | None:
        """A label selector, as it is written."""
        return self.fields.get("compositionRevisionSelector")

    @property
    def composition_update_policy(self) -> UpdatePolicy | None:
        """What the XR itself says; its XRD may enforce something else."""
        return self.fields.get("compositionUpdatePolicy") or None

    @property
    def resource_refs(self) -> Sequence[Mapping[str, Any]]:
        """References to the composed resources that have a name."""
        return [each for each in self.fields.get("resourceRefs") or () if each.get("name")]

    @property
    def claim_ref(self) -> Mapping[str, Any] | None:
        """The claim of a legacy XR."""
        return (self.fields.get("claimRef") or None) if self.style == "legacy" else None

    @property
    def connection_secret_ref(self) -> Mapping[str, Any] | None:
        """Where connection details are written; of legacy XRs and of claims, also where the style is not known."""
        return self.spec.get("writeConnectionSecretToRef") or None

    @property
    def name_prefix(self) -> str:
        """What composed resources are named after."""
        return name_prefix(self.raw)

    def path_of(self, field: str) -> str:
        """Where a composition field is, for messages."""
        return f"spec.crossplane.{field}" if self.style == "modern" else f"spec.{field}"

    def body_of(self, fields: Mapping[str, Any]) -> Object:
        """The body of a patch that sets these composition fields; None removes one."""
        return {"spec": {"crossplane": dict(fields)} if self.style == "modern" else dict(fields)}

    def with_fields(self, fields: Mapping[str, Any]) -> Object:
        """A copy of the object with these composition fields, as for a run that is not stored."""
        spec = dict(self.spec)
        if self.style == "modern":
            spec["crossplane"] = {**(spec.get("crossplane") or {}), **fields}
        else:
            spec |= fields
        return {**self.raw, "spec": spec}

    def _name(self, field: str) -> str:
        return str((self.fields.get(field) or _NOTHING).get("name") or "")
