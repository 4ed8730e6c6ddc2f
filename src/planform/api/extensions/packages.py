"""Function and FunctionRevision: an installed function, and each of its versions."""

from __future__ import annotations

from typing import Final

from planform.api.extensions.vocabulary import (
    Schema,
    column,
    condition_column,
    crd,
    flag,
    free,
    labels,
    many,
    number,
    object_ref,
    record,
    root,
    rule,
    status,
    text,
    version,
)
from planform.api.kinds import Object
from planform.api.names import FUNCTION, FUNCTION_REVISION, PACKAGES_GROUP

_FUNCTION_COLUMNS: Final = [
    condition_column("Installed"),
    condition_column("Healthy"),
    column("PACKAGE", ".spec.package"),
]
_REVISION_COLUMNS: Final = [
    condition_column("RevisionHealthy", "HEALTHY"),
    condition_column("RuntimeHealthy", "RUNTIME"),
    column("REVISION", ".spec.revision", "integer"),
    column("IMAGE", ".spec.image"),
    column("STATE", ".spec.desiredState"),
    column("DEP-FOUND", ".status.foundDependencies", "integer"),
    column("DEP-INSTALLED", ".status.installedDependencies", "integer"),
]


def function() -> Object:
    """An installed function."""
    fields = {
        "package": text("The package: an image, with tag or digest.", shortest=1),
        "revisionActivationPolicy": text(
            "Whether new revisions become active by themselves.", one_of=["Automatic", "Manual"], default="Automatic"
        ),
        "revisionHistoryLimit": number("How many inactive revisions to keep; 0 keeps all.", least=0, default=1),
        "activeRevisionLimit": number("How many of the newest revisions are active at once.", least=1),
        **_common(),
    }
    limits = rule(
        "!has(self.activeRevisionLimit) || !has(self.revisionHistoryLimit) || self.revisionHistoryLimit == 0 "
        "|| self.activeRevisionLimit <= self.revisionHistoryLimit",
        "activeRevisionLimit must not exceed revisionHistoryLimit, unless that is 0",
    )
    told = {
        "currentRevision": text("Name of the revision that the package means now."),
        "currentIdentifier": text("The package as it was when that was found out."),
        "resolvedPackage": text("The package after image configurations."),
        "appliedImageConfigRefs": _applied_image_configs(),
        "endpoint": text("Deprecated: see the status of the revisions."),
    }
    schema = root(
        "A function that pipelines can call, installed from a package.",
        {
            "spec": record("What to install.", fields, required=["package"], rules=[limits]),
            "status": status("What has become of the installation.", told),
        },
        required=["spec"],
    )
    return _served(FUNCTION.kind, schema, _FUNCTION_COLUMNS, "pkg")


def function_revision() -> Object:
    """One version of an installed function."""
    fields = {
        "image": text("The image that the function runs from.", shortest=1),
        "revision": number("The number of the revision; the highest one is the newest."),
        "desiredState": text("Whether the revision can be called.", one_of=["Active", "Inactive"]),
        "tlsServerSecretName": text("The Secret with the function's own certificate."),
        "tlsClientSecretName": text("The Secret with the certificate of whoever calls it."),
        **_common(),
    }
    told = {
        "endpoint": text("Where the function listens."),
        "capabilities": many("What the function can be used for.", text("One use, such as composition.")),
        "resolvedImage": text("The image after image configurations."),
        "appliedImageConfigRefs": _applied_image_configs(),
        "tlsServerSecretName": text("The Secret with the function's own certificate."),
        "tlsClientSecretName": text("The Secret with the certificate of whoever calls it."),
        "foundDependencies": number("How many dependencies the package has."),
        "installedDependencies": number("How many of them are installed."),
        "invalidDependencies": number("How many of them are installed in a version that does not fit."),
        "objectRefs": many("Objects that came with the package.", object_ref("One object.")),
        "permissionRequests": many("Permissions that the package asks for.", free("One rule.")),
    }
    schema = root(
        "One version of a function. Several can be active at once.",
        {
            "spec": record("What to run.", fields, required=["desiredState", "image", "revision"]),
            "status": status("What has become of the revision.", told),
        },
        required=["spec"],
    )
    return _served(FUNCTION_REVISION.kind, schema, _REVISION_COLUMNS, "pkgrev")


def _served(kind: str, schema: Schema, columns: list[Object], category: str) -> Object:
    warning = f"{PACKAGES_GROUP}/v1beta1 {kind} is deprecated; use {PACKAGES_GROUP}/v1 {kind}"
    versions = [
        version("v1", schema, columns, storage=True),
        version("v1beta1", schema, columns, deprecated=warning),
    ]
    return crd(PACKAGES_GROUP, kind, versions, categories=["crossplane", category])


def _common() -> dict[str, Schema]:
    pull_secret = record("A Secret.", {"name": text("Name of the Secret.")})
    runtime_config = record(
        "How to run it.",
        {
            "apiVersion": text("API version of the configuration.", default="pkg.crossplane.io/v1beta1"),
            "kind": text("Kind of the configuration.", default="DeploymentRuntimeConfig"),
            "name": text("Name of the configuration.", shortest=1),
        },
        required=["name"],
    )
    return {
        "packagePullPolicy": text(
            "When to look for the image again.", one_of=["Always", "Never", "IfNotPresent"], default="IfNotPresent"
        ),
        "packagePullSecrets": many("Secrets for private registries.", pull_secret),
        "skipDependencyResolution": flag("Whether to leave dependencies alone.", default=False),
        "ignoreCrossplaneConstraints": flag(
            "Whether to ignore which versions the package was made for.", default=False
        ),
        "runtimeConfigRef": {**runtime_config, "default": {"name": "default"}},
        "commonLabels": labels("Labels for all that is made for the package."),
        "commonAnnotations": labels("Annotations for all that is made for the package."),
        "controllerConfigRef": record("Deprecated and ignored.", {"name": text("Name of the configuration.")}),
    }


def _applied_image_configs() -> Schema:
    one = record(
        "An image configuration.",
        {"name": text("Its name."), "reason": text("What it was used for.")},
        required=["name", "reason"],
    )
    return many("Image configurations that were used.", one)
