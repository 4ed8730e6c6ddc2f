"""CompositeResourceDefinition: v1 as it was, and v2 without claims. One stored object, read through either version.

Controllers read and write v2, also for XRDs that were made as v1. So v2 accepts scope LegacyCluster with all that
belongs to it where it is already there, and refuses to have it set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from planform.api.extensions.vocabulary import (
    Schema,
    condition_column,
    crd,
    flag,
    free,
    immutable,
    kind_ref,
    label_selector,
    labels,
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
from planform.api.names import EXTENSIONS_GROUP, XRD

Version = Literal["v1", "v2"]

_MAX_VERSIONS: Final = 50
_COLUMNS: Final = [condition_column("Established"), condition_column("Offered")]
_WARNING: Final = f"{EXTENSIONS_GROUP}/v1 {XRD.kind} is deprecated; use {EXTENSIONS_GROUP}/v2 {XRD.kind}"


def composite_resource_definition() -> Object:
    """The API of a kind of XRs."""
    return crd(
        EXTENSIONS_GROUP,
        XRD.kind,
        [
            version("v1", _root("v1"), _COLUMNS, storage=True, deprecated=_WARNING),
            version("v2", _root("v2"), _COLUMNS),
        ],
        short=["xrd", "xrds"],
    )


def _root(api: Version) -> Schema:
    types = {
        "compositeResourceType": kind_ref("The kind of XRs that is being reconciled."),
        "compositeResourceClaimType": kind_ref("The kind of claims that is being reconciled."),
    }
    return root(
        "The API of a kind of composite resources (XRs): its names, versions and schemas. A CRD is made of it.",
        {
            "spec": _spec(api),
            "status": status(
                "What has become of the definition.",
                {"controllers": record("The kinds whose controllers run.", types)},
            ),
        },
        required=["spec"],
        rules=[
            rule(
                "self.metadata.name == self.spec.names.plural + '.' + self.spec.group",
                "metadata.name must be spec.names.plural, a dot and spec.group",
            )
        ],
    )


def _spec(api: Version) -> Schema:
    policy: dict[str, Any] = {"one_of": ["Automatic", "Manual"]}
    fields = {
        "group": text("API group of the XRs.", min_length=1, max_length=253, rules=[immutable("group")]),
        "names": _names("The names of the kind of XRs.", immutable("names")),
        "scope": _scope(api),
        "claimNames": _names("LegacyCluster: the names of the kind of claims.", immutable("claimNames")),
        "connectionSecretKeys": many(
            "LegacyCluster: the connection details to publish; all if empty.",
            text("A key.", max_length=253),
            maximum=1000,
        ),
        "defaultCompositeDeletePolicy": text(
            "LegacyCluster: how a claim's XR is deleted if the claim does not say.",
            one_of=["Background", "Foreground"],
            default="Background" if api == "v1" else None,
        ),
        "defaultCompositionRef": name_ref("The Composition of XRs that have neither a reference nor a selector."),
        "defaultCompositionRevisionSelector": label_selector(
            "The revision selector of XRs that have neither a revision reference nor a revision selector."
        ),
        "enforcedCompositionRef": name_ref(
            "The Composition of all XRs, whatever they say.", rules=[immutable("enforcedCompositionRef")]
        ),
        "defaultCompositionUpdatePolicy": text(
            "Whether XRs follow new revisions if they do not say.", default="Automatic", **policy
        ),
        "enforceCompositionUpdatePolicy": text("Whether XRs follow new revisions, whatever they say.", **policy),
        "versions": _versions(),
        "conversion": _conversion(api),
        "metadata": record(
            "What the CRDs that are made of this carry.",
            {"labels": labels("Labels."), "annotations": labels("Annotations.")},
        ),
    }
    return record("The API of the XRs.", fields, required=["group", "names", "versions"], rules=_claim_rules())


def _scope(api: Version) -> Schema:
    rules = [immutable("scope")]
    if api == "v2":
        rules.append(
            rule(
                "self != 'LegacyCluster' || oldSelf.hasValue()",
                "scope LegacyCluster exists only in v1; use Namespaced or Cluster",
                whether_new=True,
            )
        )
    return text(
        "Where XRs live. LegacyCluster is how Crossplane v1 had it: cluster scoped, with claims.",
        one_of=["LegacyCluster", "Namespaced", "Cluster"],
        default="LegacyCluster" if api == "v1" else "Namespaced",
        rules=rules,
    )


def _claim_rules() -> list[Object]:
    """Claims belong to legacy XRs, and their names may not be the XRs'. What may not vanish is kept by its parent."""
    differ = " && ".join(
        [
            *(f"self.claimNames.{name} != self.names.{name}" for name in ("kind", "plural")),
            *(
                f"(!has(self.claimNames.{name}) || !has(self.names.{name}) "
                f"|| self.claimNames.{name} != self.names.{name})"
                for name in ("singular", "listKind")
            ),
        ]
    )
    kept = ("claimNames", "enforcedCompositionRef")
    return [
        rule(
            "self.scope == 'LegacyCluster' || (!has(self.claimNames) && !has(self.connectionSecretKeys))",
            "only scope LegacyCluster has claimNames and connectionSecretKeys",
        ),
        rule(
            f"!has(self.claimNames) || ({differ})",
            "kind, plural, singular and listKind of claimNames must differ from those of names",
        ),
        rule(
            " && ".join(f"(!has(oldSelf.{name}) || has(self.{name}))" for name in kept),
            f"{' and '.join(kept)} are immutable once set",
        ),
    ]


def _names(description: str, *rules: Object) -> Schema:
    fields = {
        "kind": text("The kind, such as XBucket.", min_length=1, max_length=63),
        "listKind": text("The kind of a list of it.", max_length=63),
        "plural": text("Name in URLs, such as xbuckets.", min_length=1, max_length=63),
        "singular": text("Name on command lines, such as xbucket.", max_length=63),
        "shortNames": many("Abbreviations for command lines.", text("An abbreviation.", max_length=63), maximum=50),
        "categories": many("Groups that `kubectl get` knows.", text("A group.", max_length=63), maximum=50),
    }
    lower: Sequence[Object] = [
        rule("self.plural == self.plural.lowerAscii()", "plural must be lower case"),
        rule("!has(self.singular) || self.singular == self.singular.lowerAscii()", "singular must be lower case"),
    ]
    return record(description, fields, required=["kind", "plural"], rules=[*rules, *lower])


def _versions() -> Schema:
    scale = record(
        "Where the scale subresource finds its numbers.",
        {
            "specReplicasPath": text("Path of the wanted number."),
            "statusReplicasPath": text("Path of the actual number."),
            "labelSelectorPath": text("Path of the label selector."),
        },
        required=["specReplicasPath", "statusReplicasPath"],
    )
    printed = record(
        "A column.",
        {
            "name": text("Heading of the column."),
            "type": text("OpenAPI type of the values."),
            "format": text("OpenAPI format of the values."),
            "description": text("What the column shows."),
            "priority": {**number("Columns above 0 are shown only on request."), "format": "int32"},
            "jsonPath": text("Where the values are."),
        },
        required=["jsonPath", "name", "type"],
    )
    fields = {
        "name": text("Name of the version, such as v1alpha1.", min_length=1, max_length=63),
        "referenceable": flag("Whether Compositions refer to this version; it is also the stored one."),
        "served": flag("Whether the version can be used."),
        "deprecated": flag("Whether users of the version are warned."),
        "deprecationWarning": text("The warning.", max_length=256),
        "schema": record(
            "The schema of the version.",
            {"openAPIV3Schema": free("The schema; spec and status are taken from it.")},
        ),
        "additionalPrinterColumns": many("Columns for `kubectl get`.", printed, maximum=100),
        "subresources": record("Subresources besides status.", {"scale": scale}),
    }
    one = record("A version of the API.", fields, required=["name", "referenceable", "served"])
    return many(
        "The versions of the API.",
        one,
        by="name",
        minimum=1,
        maximum=_MAX_VERSIONS,
        rules=[rule("self.exists_one(v, v.referenceable)", "exactly one version must be referenceable")],
    )


def _conversion(api: Version) -> Schema:
    service = record(
        "A Service in the cluster.",
        {
            "name": text("Name of the Service."),
            "namespace": text("Namespace of the Service."),
            "path": text("Path of the URL."),
            "port": {**number("Port of the Service; 443 if absent."), "format": "int32"},
        },
        required=["name", "namespace"],
    )
    client = record(
        "How to reach the webhook.",
        {
            "url": text("URL of the webhook."),
            "caBundle": {
                "type": "string",
                "format": "byte",
                "description": "Certificates that the webhook's chains to.",
            },
            "service": service,
        },
    )
    webhook = record(
        "A webhook that converts.",
        {
            "clientConfig": client,
            "conversionReviewVersions": many("Versions of ConversionReview that it knows.", text("A version.")),
        },
        required=["conversionReviewVersions"],
    )
    needs_webhook = rule(
        "self.strategy == 'Webhook' && has(self.webhook)", "the strategy must be Webhook, and the webhook be given"
    )
    return record(
        "How objects are converted between versions; copied to the CRDs.",
        {"strategy": text("How: None or Webhook.", one_of=["None", "Webhook"]), "webhook": webhook},
        required=["strategy"],
        rules=[needs_webhook] if api == "v1" else [],
    )
