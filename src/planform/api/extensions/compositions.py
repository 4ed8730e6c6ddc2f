"""Composition, CompositionRevision (a Composition as it was at one moment, numbered) and EnvironmentConfig."""

from __future__ import annotations

from typing import Final

from planform.api.extensions.pipeline import pipeline
from planform.api.extensions.vocabulary import (
    Schema,
    column,
    conditions,
    crd,
    embedded,
    flag,
    free,
    immutable,
    kind_ref,
    many,
    name_ref,
    number,
    record,
    root,
    rule,
    status,
    text,
    version,
)
from planform.api.kinds import Object
from planform.api.names import COMPOSITION, COMPOSITION_REVISION, EXTENSIONS_GROUP

_MODE: Final = rule(
    "(has(self.mode) ? self.mode == 'Pipeline' : has(self.pipeline)) "
    "? has(self.pipeline) : (has(self.resources) && size(self.resources) > 0)",
    "mode Pipeline needs a pipeline, mode Resources at least one resource",
)
_XR_COLUMNS: Final = [
    column("XR-KIND", ".spec.compositeTypeRef.kind"),
    column("XR-APIVERSION", ".spec.compositeTypeRef.apiVersion"),
]


def composition() -> Object:
    """How XRs of one kind become resources."""
    fields = {
        "latestRevision": record(
            "The newest revision.",
            {"name": text("Name of the revision."), "revision": number("Its number.")},
            required=["name", "revision"],
        ),
        "revisions": number("How many revisions are kept."),
        "composites": number("How many XRs use any of the revisions."),
    }
    schema = root(
        "How XRs of one kind become resources: a pipeline of functions. Every change is kept as a CompositionRevision.",
        {
            "spec": record("What to compose.", _spec(), required=["compositeTypeRef"], rules=[_MODE]),
            "status": status("What has become of the Composition.", fields),
        },
        required=["spec"],
    )
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
    fields = _spec()
    same = " && ".join(
        f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})"
        for name in fields
        if name != "compositeTypeRef"  # which is always there, and has a rule of its own
    )
    fields["revision"] = number(
        "The number of the revision; the highest one is the newest.",
        least=1,
        rules=[rule("self >= oldSelf", "the number of a CompositionRevision only grows")],
    )
    schema = root(
        "A Composition as it was at one time. XRs follow, pin or select it; only its number ever changes.",
        {
            "spec": record(
                "The Composition's spec, and a number.",
                fields,
                required=["compositeTypeRef", "revision"],
                rules=[rule(same, "a CompositionRevision is immutable: only its number may change")],
            ),
            "status": status(
                "What has become of the revision.", {"composites": number("How many XRs use this revision.")}
            ),
        },
        required=["spec"],
    )
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
    schema = root(
        "Data for functions to read, such as facts about a region or a stage.",
        {
            "data": {
                "type": "object",
                "description": "The data, of any shape.",
                "additionalProperties": {"x-kubernetes-preserve-unknown-fields": True},
            },
            "status": record("Reserved.", {"conditions": conditions()}),
        },
    )
    return crd(
        EXTENSIONS_GROUP,
        "EnvironmentConfig",
        [
            version("v1beta1", schema, storage=True),
            version("v1alpha1", schema, deprecated=_moved("v1alpha1", "EnvironmentConfig", "v1beta1")),
        ],
        short=["envcfg"],
    )


def _moved(old: str, kind: str, new: str = "v1") -> str:
    return f"{EXTENSIONS_GROUP}/{old} {kind} is deprecated; use {EXTENSIONS_GROUP}/{new} {kind}"


def _spec() -> dict[str, Schema]:
    share = number("The most composed resources, in percent, that one reconcile may delete unasked.", least=0, most=100)
    return {
        "compositeTypeRef": kind_ref("The kind of XRs that this composes.", rules=[immutable("compositeTypeRef")]),
        "mode": text(
            "Pipeline runs functions; Resources is short for one step of patch-and-transform.",
            one_of=["Pipeline", "Resources"],
        ),
        "pipeline": pipeline(),
        "resources": many("Mode Resources: what to compose.", _resource(), most=500),
        "patchSets": many("Mode Resources: patches that several resources share.", _patch_set(), most=500),
        "environment": _environment(),
        "writeConnectionSecretsToNamespace": text("Where connection Secrets of legacy XRs go.", longest=63),
        "publishConnectionDetailsWithStoreConfigRef": record(
            "Deprecated and ignored.", {"name": text("Name of the store.")}
        ),
        "revisionHistoryLimit": number("How many unused revisions to keep; 10 if absent, 0 keeps all.", least=0),
        "pinFunctions": flag("Whether each revision keeps to the function revisions that were there when it was made."),
        "deletionBudget": record("When to stop and ask instead of deleting.", {"maxShare": share}),
    }


def _resource() -> Schema:
    fields = {
        "name": text("Name of the resource in this Composition.", longest=253),
        "base": embedded("What the resource looks like before patches."),
        "patches": many("What to copy from and to the XR.", _patch()),
        "connectionDetails": many("What to publish of the resource's connection.", free("One detail.")),
        "readinessChecks": many("What makes the resource ready; all must hold.", free("One check.")),
    }
    return record("A composed resource.", fields, required=["base"])


def _patch_set() -> Schema:
    fields = {
        "name": text("Name of the set, which patches of type PatchSet refer to.", longest=253),
        "patches": many("The patches.", _patch()),
    }
    return record("Patches under one name.", fields, required=["name", "patches"])


def _patch() -> Schema:
    return {
        **record(
            "One patch.",
            {
                "type": text("What kind of patch; FromCompositeFieldPath if absent."),
                "fromFieldPath": text("Where the value comes from."),
                "toFieldPath": text("Where it goes; the same path if absent."),
                "patchSetName": text("The set of patches that stands here."),
                "combine": free("Several values made into one."),
                "transforms": many("How the value is changed on its way, one after the other.", free("One transform.")),
                "policy": free("What happens if the value is absent, and how it is merged."),
            },
        ),
        "x-kubernetes-preserve-unknown-fields": True,
    }


def _environment() -> Schema:
    source = record(
        "One EnvironmentConfig, by name or by labels.",
        {
            "type": text("How it is found; Reference if absent.", one_of=["Reference", "Selector"]),
            "ref": name_ref("Reference: its name."),
            "selector": free("Selector: labels to match, how many to take and in which order."),
        },
    )
    fields = {
        "defaultData": free("What is there before any EnvironmentConfig."),
        "environmentConfigs": many("What the environment is made of; later ones win.", source, most=100),
        "patches": many("Patches between the XR and the environment.", _patch()),
        "policy": free("When EnvironmentConfigs are looked up, and whether they must be there."),
    }
    return record("Mode Resources: data from EnvironmentConfigs for patches to use.", fields)
