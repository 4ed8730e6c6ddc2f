"""Composition, CompositionRevision (a Composition as it was at one moment, numbered) and EnvironmentConfig."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from planform.api.crds import column, crd, version
from planform.api.declarations import PRESERVE, Declared, described, immutable, rule, ruled, schema_of
from planform.api.extensions.pipeline import Pipeline
from planform.api.kinds import Object
from planform.api.names import COMPOSITION, COMPOSITION_REVISION, ENVIRONMENT_CONFIG, EXTENSIONS_GROUP
from planform.api.objects import Free, Status, TypedObject
from planform.api.references import KindRef, NameRef

_MODE: Final = rule(
    "(has(self.mode) ? self.mode == 'Pipeline' : has(self.pipeline)) "
    "? has(self.pipeline) : (has(self.resources) && size(self.resources) > 0)",
    "mode Pipeline needs a pipeline, mode Resources at least one resource",
)
_XR_COLUMNS: Final = [
    column("XR-KIND", ".spec.compositeTypeRef.kind"),
    column("XR-APIVERSION", ".spec.compositeTypeRef.apiVersion"),
]


class ResourcePatch(Declared, frozen=True, kw_only=True):
    """One patch."""

    SCHEMA: ClassVar = {PRESERVE: True}

    type: Annotated[str, described("What kind of patch; FromCompositeFieldPath if absent.")] | UnsetType = UNSET
    from_field_path: Annotated[str, described("Where the value comes from.")] | UnsetType = UNSET
    to_field_path: Annotated[str, described("Where it goes; the same path if absent.")] | UnsetType = UNSET
    patch_set_name: Annotated[str, described("The set of patches that stands here.")] | UnsetType = UNSET
    combine: Annotated[Free, described("Several values made into one.")] | UnsetType = UNSET
    transforms: (
        Annotated[
            list[Annotated[Free, described("One transform.")]],
            described("How the value is changed on its way, one after the other."),
        ]
        | UnsetType
    ) = UNSET
    policy: Annotated[Free, described("What happens if the value is absent, and how it is merged.")] | UnsetType = UNSET


class ComposedTemplate(Declared, frozen=True, kw_only=True):
    """A composed resource."""

    name: Annotated[str, described("Name of the resource in this Composition.", max_length=253)] | UnsetType = UNSET
    base: Annotated[
        Free | None, described("What the resource looks like before patches.", embedded=True, nullable=True)
    ]
    patches: Annotated[list[ResourcePatch], described("What to copy from and to the XR.")] | UnsetType = UNSET
    connection_details: (
        Annotated[
            list[Annotated[Free, described("One detail.")]],
            described("What to publish of the resource's connection."),
        ]
        | UnsetType
    ) = UNSET
    readiness_checks: (
        Annotated[
            list[Annotated[Free, described("One check.")]],
            described("What makes the resource ready; all must hold."),
        ]
        | UnsetType
    ) = UNSET


class PatchSet(Declared, frozen=True, kw_only=True):
    """Patches under one name."""

    name: Annotated[str, described("Name of the set, which patches of type PatchSet refer to.", max_length=253)]
    patches: Annotated[list[ResourcePatch], described("The patches.")]


class EnvironmentSource(Declared, frozen=True, kw_only=True):
    """One EnvironmentConfig, by name or by labels."""

    type: (
        Annotated[Literal["Reference", "Selector"], described("How it is found; Reference if absent.")] | UnsetType
    ) = UNSET
    ref: Annotated[NameRef, described("Reference: its name.")] | UnsetType = UNSET
    selector: (
        Annotated[Free, described("Selector: labels to match, how many to take and in which order.")] | UnsetType
    ) = UNSET


class Environment(Declared, frozen=True, kw_only=True):
    """Mode Resources: data from EnvironmentConfigs for patches to use."""

    default_data: Annotated[Free, described("What is there before any EnvironmentConfig.")] | UnsetType = UNSET
    environment_configs: (
        Annotated[
            list[EnvironmentSource],
            described("What the environment is made of; later ones win.", max_items=100),
        ]
        | UnsetType
    ) = UNSET
    patches: Annotated[list[ResourcePatch], described("Patches between the XR and the environment.")] | UnsetType = (
        UNSET
    )
    policy: (
        Annotated[Free, described("When EnvironmentConfigs are looked up, and whether they must be there.")] | UnsetType
    ) = UNSET


class StoreConfigRef(Declared, frozen=True, kw_only=True):
    """Deprecated and ignored."""

    name: Annotated[str, described("Name of the store.")] | UnsetType = UNSET


class DeletionBudget(Declared, frozen=True, kw_only=True):
    """When to stop and ask instead of deleting."""

    max_share: (
        Annotated[
            int,
            described(
                "The most composed resources, in percent, that one reconcile may delete unasked.",
                minimum=0,
                maximum=100,
            ),
        ]
        | UnsetType
    ) = UNSET


class CompositionSpec(Declared, frozen=True, kw_only=True):
    """What to compose."""

    SCHEMA: ClassVar = ruled(_MODE)

    composite_type_ref: Annotated[
        KindRef, described("The kind of XRs that this composes.", rules=[immutable("compositeTypeRef")])
    ]
    mode: (
        Annotated[
            Literal["Pipeline", "Resources"],
            described("Pipeline runs functions; Resources is short for one step of patch-and-transform."),
        ]
        | UnsetType
    ) = UNSET
    pipeline: Pipeline | UnsetType = UNSET
    resources: (
        Annotated[list[ComposedTemplate], described("Mode Resources: what to compose.", max_items=500)] | UnsetType
    ) = UNSET
    patch_sets: (
        Annotated[list[PatchSet], described("Mode Resources: patches that several resources share.", max_items=500)]
        | UnsetType
    ) = UNSET
    environment: Environment | UnsetType = UNSET
    write_connection_secrets_to_namespace: (
        Annotated[str, described("Where connection Secrets of legacy XRs go.", max_length=63)] | UnsetType
    ) = UNSET
    publish_connection_details_with_store_config_ref: StoreConfigRef | UnsetType = UNSET
    revision_history_limit: (
        Annotated[int, described("How many unused revisions to keep; 10 if absent, 0 keeps all.", minimum=0)]
        | UnsetType
    ) = UNSET
    pin_functions: (
        Annotated[
            bool,
            described("Whether each revision keeps to the function revisions that were there when it was made."),
        ]
        | UnsetType
    ) = UNSET
    deletion_budget: DeletionBudget | UnsetType = UNSET


class LatestRevision(Declared, frozen=True, kw_only=True):
    """The newest revision."""

    name: Annotated[str, described("Name of the revision.")]
    revision: Annotated[int, described("Its number.")]


class CompositionStatus(Status, frozen=True, kw_only=True):
    """What has become of the Composition."""

    latest_revision: LatestRevision | UnsetType = UNSET
    stable_revision: (
        Annotated[NameRef, described("Under a RolloutPolicy: the revision that was released last.")] | UnsetType
    ) = UNSET
    revisions: Annotated[int, described("How many revisions are kept.")] | UnsetType = UNSET
    composites: Annotated[int, described("How many XRs use any of the revisions.")] | UnsetType = UNSET


class Composition(TypedObject, frozen=True, kw_only=True):
    """How XRs of one kind become resources: a pipeline of functions. Every change is kept as a CompositionRevision."""

    gvk: ClassVar = COMPOSITION

    spec: CompositionSpec
    status: CompositionStatus | UnsetType = UNSET


def _same(names: list[str]) -> str:
    return " && ".join(
        f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})"
        for name in names
        if name != "compositeTypeRef"  # which is always there, and has a rule of its own
    )


class CompositionRevisionSpec(CompositionSpec, frozen=True, kw_only=True):
    """The Composition's spec, and a number."""

    SCHEMA: ClassVar = ruled(
        rule(
            _same([each.encode_name for each in msgspec.structs.fields(CompositionSpec)]),
            "a CompositionRevision is immutable: only its number may change",
        )
    )

    revision: Annotated[
        int,
        described(
            "The number of the revision; the highest one is the newest.",
            minimum=1,
            rules=[rule("self >= oldSelf", "the number of a CompositionRevision only grows")],
        ),
    ]


class CompositionRevisionStatus(Status, frozen=True, kw_only=True):
    """What has become of the revision."""

    composites: Annotated[int, described("How many XRs use this revision.")] | UnsetType = UNSET


class CompositionRevision(TypedObject, frozen=True, kw_only=True):
    """A Composition as it was at one time. XRs follow, pin or select it; only its number ever changes."""

    gvk: ClassVar = COMPOSITION_REVISION

    spec: CompositionRevisionSpec
    status: CompositionRevisionStatus | UnsetType = UNSET


class EnvironmentConfigStatus(Status, frozen=True, kw_only=True):
    """Reserved."""


class EnvironmentConfig(TypedObject, frozen=True, kw_only=True):
    """Data for functions to read, such as facts about a region or a stage."""

    gvk: ClassVar = ENVIRONMENT_CONFIG

    data: (
        Annotated[
            dict[str, Any],
            described("The data, of any shape.", extra={PRESERVE: None, "additionalProperties": {PRESERVE: True}}),
        ]
        | UnsetType
    ) = UNSET
    status: EnvironmentConfigStatus | UnsetType = UNSET


def composition() -> Object:
    """How XRs of one kind become resources."""
    schema = schema_of(Composition)
    columns = [*_XR_COLUMNS, column("REVISION", ".status.latestRevision.revision", "integer", priority=1)]
    return crd(
        EXTENSIONS_GROUP,
        COMPOSITION.kind,
        [
            version("v1", schema, columns, storage=True),
            version("v2alpha1", schema, columns, deprecated=_moved("v2alpha1", COMPOSITION.kind)),
        ],
        short=["comp"],
    )


def composition_revision() -> Object:
    """One Composition as it was at one time."""
    schema = schema_of(CompositionRevision)
    columns = [
        column("REVISION", ".spec.revision", "integer"),
        *_XR_COLUMNS,
        column("XRS", ".status.composites", "integer"),
    ]
    return crd(
        EXTENSIONS_GROUP,
        COMPOSITION_REVISION.kind,
        [
            version("v1", schema, columns, storage=True),
            *(
                version(old, schema, columns, deprecated=_moved(old, COMPOSITION_REVISION.kind))
                for old in ("v1beta1", "v1alpha1")
            ),
        ],
        short=["comprev"],
    )


def environment_config() -> Object:
    """Data that compositions share."""
    schema = schema_of(EnvironmentConfig)
    return crd(
        EXTENSIONS_GROUP,
        ENVIRONMENT_CONFIG.kind,
        [
            version("v1beta1", schema, storage=True),
            version("v1alpha1", schema, deprecated=_moved("v1alpha1", ENVIRONMENT_CONFIG.kind, "v1beta1")),
        ],
        short=["envcfg"],
    )


def _moved(old: str, kind: str, new: str = "v1") -> str:
    return f"{EXTENSIONS_GROUP}/{old} {kind} is deprecated; use {EXTENSIONS_GROUP}/{new} {kind}"
