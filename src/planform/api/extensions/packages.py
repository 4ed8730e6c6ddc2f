"""Functions, Providers and Configurations that are installed from packages, and each of their versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    record,
    root,
    rule,
    status,
    text,
    version,
)
from planform.api.kinds import Object
from planform.api.names import (
    CONFIGURATION,
    CONFIGURATION_REVISION,
    FUNCTION,
    FUNCTION_REVISION,
    PACKAGES_GROUP,
    PROVIDER,
    PROVIDER_REVISION,
)

_PACKAGE_COLUMNS: Final = [
    condition_column("Installed"),
    condition_column("Healthy"),
    column("PACKAGE", ".spec.package"),
]
_REVISION_COLUMNS: Final = [
    condition_column("RevisionHealthy", "HEALTHY"),
    condition_column("RuntimeHealthy", "RUNTIME-HEALTHY"),
    column("IMAGE", ".spec.image"),
    column("STATE", ".spec.desiredState"),
    column("REVISION", ".spec.revision", "integer", priority=1),
    column("DEP-FOUND", ".status.foundDependencies", "integer", priority=1),
    column("DEP-INSTALLED", ".status.installedDependencies", "integer", priority=1),
]
_FULL_NAME: Final = rule(
    "oldSelf.hasValue() && oldSelf.value() == self || self.matches('^([^./]+([.][^./]+)+|localhost(:[0-9]+)?)"
    "(/[^/:@]+)+(:[^:@]+(@sha256.+)?|@sha256.+)$')",
    "must be a fully qualified image name, including the registry, repository, and tag or digest. For example,"
    " 'registry.example.com/repo/package:tag' or 'registry.example.com/repo/package[:tag]@sha256:"
    "1234567890abcdef1234567890abcdef1234567890abcdef1234567890abcdef'.",
    whether_new=True,
)
"""What was stored with a shorter name, when those were taken, stays valid until somebody changes it."""


def function() -> Object:
    """An installed function."""
    limits = rule(
        "!has(self.activeRevisionLimit) || !has(self.revisionHistoryLimit) || self.revisionHistoryLimit == 0 "
        "|| self.activeRevisionLimit <= self.revisionHistoryLimit",
        "activeRevisionLimit must not exceed revisionHistoryLimit, unless that is 0",
    )
    fields = {
        "activeRevisionLimit": number("How many of the newest revisions are active at once.", least=1),
        "inUsePolicy": text(
            "Whether a revision that live XRs or phases choose stays active above the limit; if absent, it does.",
            one_of=["Deactivate", "Retain"],
        ),
        **_runtime(),
    }
    active = record(
        "One revision that is active.",
        {
            "name": text("Its name."),
            "revision": number("Its number."),
            "healthy": flag("Whether it can be called."),
            "endpoint": text("Where it serves."),
            "users": number("How many XRs have a step, or Blueprints and ActionSets a phase, that chooses it."),
        },
        required=["name", "revision"],
    )
    told = {
        "servedBy": text("What serves: the package, a function that ships with planform, or somebody else."),
        "endpoint": text("Where the newest active revision serves."),
        "activeRevisions": many("The revisions that serve, newest first.", active),
    }
    schema = _package("A function that pipelines can call, installed from a package.", fields, told, [limits])
    columns = [*_PACKAGE_COLUMNS, column("SERVED-BY", ".status.servedBy")]
    return _served(FUNCTION.kind, schema, columns, "pkg", beta=True)


def provider() -> Object:
    """An installed provider."""
    schema = _package(
        "A controller of managed resources, installed from a package.", {**_one_active(), **_runtime()}, {}
    )
    return _served(PROVIDER.kind, schema, _PACKAGE_COLUMNS, "pkg")


def configuration() -> Object:
    """An installed configuration."""
    schema = _package("Definitions and compositions, installed from a package.", _one_active(), {})
    return _served(CONFIGURATION.kind, schema, _PACKAGE_COLUMNS, "pkg")


def function_revision() -> Object:
    """One version of an installed function."""
    told = {
        "endpoint": text("Where the function listens."),
        "users": number("How many XRs have a step, or Blueprints and ActionSets a phase, that chooses this revision."),
        **_certificates(),
    }
    schema = _revision("One version of a function. Several can be active at once.", _runtime(), told)
    return _served(FUNCTION_REVISION.kind, schema, _REVISION_COLUMNS, "pkgrev", beta=True)


def provider_revision() -> Object:
    """One version of an installed provider."""
    schema = _revision("One version of a provider.", _runtime(), _certificates())
    return _served(PROVIDER_REVISION.kind, schema, _REVISION_COLUMNS, "pkgrev")


def configuration_revision() -> Object:
    """One version of an installed configuration."""
    columns = [each for each in _REVISION_COLUMNS if each["name"] != "RUNTIME-HEALTHY"]
    return _served(CONFIGURATION_REVISION.kind, _revision("One version of a configuration.", {}, {}), columns, "pkgrev")


def _package(
    says: str, fields: Mapping[str, Schema], told: Mapping[str, Schema], rules: Sequence[Object] = ()
) -> Schema:
    spec = {
        "package": text(
            "The package: an image with its registry, and with tag or digest.", shortest=1, rules=[_FULL_NAME]
        ),
        "revisionActivationPolicy": text(
            "Whether new revisions become active by themselves.", one_of=["Automatic", "Manual"], default="Automatic"
        ),
        "revisionHistoryLimit": number("How many inactive revisions to keep; 0 keeps all.", least=0, default=1),
        **fields,
        **_common(),
    }
    status_fields = {
        "currentRevision": text("Name of the revision that the package means now."),
        "currentIdentifier": text("The package as it was when that was found out."),
        "resolvedPackage": text("The package after image configurations."),
        "appliedImageConfigRefs": _applied_image_configs(),
        **told,
    }
    return root(
        says,
        {
            "spec": record("What to install.", spec, required=["package"], rules=list(rules)),
            "status": status("What has become of the installation.", status_fields),
        },
        required=["spec"],
    )


def _revision(says: str, fields: Mapping[str, Schema], told: Mapping[str, Schema]) -> Schema:
    spec = {
        "image": text("The image that it is installed from.", shortest=1),
        "revision": number("The number of the revision; the highest one is the newest."),
        "desiredState": text("Whether the revision is in use.", one_of=["Active", "Inactive"]),
        "tlsServerSecretName": text("The Secret with its own certificate."),
        "tlsClientSecretName": text("The Secret with the certificate of whoever calls it."),
        **fields,
        **_common(),
    }
    status_fields = {
        "capabilities": many("What it can be used for.", text("One use, such as composition.")),
        "resolvedImage": text("The image after image configurations."),
        "appliedImageConfigRefs": _applied_image_configs(),
        "foundDependencies": number("How many dependencies the package has."),
        "installedDependencies": number("How many of them are installed."),
        "invalidDependencies": number("How many of them are installed in a version that does not fit."),
        "objectRefs": many("Objects that came with the package.", _object_ref()),
        "permissionRequests": many("Permissions that the package asks for.", free("One rule.")),
        **told,
    }
    return root(
        says,
        {
            "spec": record("What to run.", spec, required=["desiredState", "image", "revision"]),
            "status": status("What has become of the revision.", status_fields),
        },
        required=["spec"],
    )


def _one_active() -> dict[str, Schema]:
    """Several active versions make sense only where they install nothing that they would have to share."""
    only = rule("self == 1", "activeRevisionLimit must be 1: only Functions can have several active revisions")
    return {"activeRevisionLimit": number("Always 1.", rules=[only])}


def _object_ref() -> Schema:
    fields = {
        "apiVersion": text("API version of the object."),
        "kind": text("Kind of the object."),
        "name": text("Name of the object."),
        "namespace": text("Namespace of the object, if its kind is namespaced."),
        "uid": text("UID of the object."),
    }
    return record("One object.", fields, required=["apiVersion", "kind", "name"])


def _certificates() -> dict[str, Schema]:
    return {
        "tlsServerSecretName": text("The Secret with its own certificate."),
        "tlsClientSecretName": text("The Secret with the certificate of whoever calls it."),
    }


def _served(kind: str, schema: Schema, columns: list[Object], category: str, *, beta: bool = False) -> Object:
    if not beta:
        versions = [version("v1", schema, columns, storage=True)]
        return crd(PACKAGES_GROUP, kind, versions, categories=["crossplane", category])
    versions = [version("v1", schema, columns, storage=True), version("v1beta1", schema, columns)]
    return crd(PACKAGES_GROUP, kind, versions, categories=["crossplane", category])


def _runtime() -> dict[str, Schema]:
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
        "runtimeConfigRef": {**runtime_config, "default": {"name": "default"}},
        "controllerConfigRef": record("Deprecated and ignored.", {"name": text("Name of the configuration.")}),
    }


def _common() -> dict[str, Schema]:
    pull_secret = record("A Secret.", {"name": text("Name of the Secret.")})
    return {
        "packagePullPolicy": text(
            "When to look for the image again.", one_of=["Always", "Never", "IfNotPresent"], default="IfNotPresent"
        ),
        "packagePullSecrets": many("Secrets for private registries.", pull_secret),
        "skipDependencyResolution": flag("Whether to leave dependencies alone.", default=False),
        "ignoreCrossplaneConstraints": flag(
            "Whether to ignore which versions the package was made for.", default=False
        ),
        "commonLabels": labels("Labels for all that is made for the package."),
        "commonAnnotations": labels("Annotations for all that is made for the package."),
    }


def _applied_image_configs() -> Schema:
    one = record(
        "An image configuration.",
        {"name": text("Its name."), "reason": text("What it was used for.")},
        required=["name", "reason"],
    )
    return many("Image configurations that were used.", one)
