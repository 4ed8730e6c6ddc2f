"""Functions, Providers and Configurations that are installed from packages, and each of their versions."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import UNSET, UnsetType

from planform.api.crds import column, condition_column, crd, version
from planform.api.declarations import Declared, described, rule, ruled, schema_of
from planform.api.kinds import Object
from planform.api.names import (
    CONFIGURATION,
    CONFIGURATION_REVISION,
    FUNCTION,
    FUNCTION_REVISION,
    PACKAGES_GROUP,
    PROVIDER,
    PROVIDER_REVISION,
    RUNTIME_CONFIG,
)
from planform.api.objects import Free, Status, TypedObject

ActivationPolicy = Literal["Automatic", "Manual"]
DesiredState = Literal["Active", "Inactive"]
PullPolicy = Literal["Always", "Never", "IfNotPresent"]

HISTORY_LIMIT: Final = 1
"""How many inactive revisions of a package are kept if it does not say."""

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


class RuntimeConfigRef(Declared, frozen=True, kw_only=True):
    """How to run it."""

    api_version: (
        Annotated[str, described("API version of the configuration.", default=RUNTIME_CONFIG.api_version)] | UnsetType
    ) = UNSET
    kind: Annotated[str, described("Kind of the configuration.", default=RUNTIME_CONFIG.kind)] | UnsetType = UNSET
    name: Annotated[str, described("Name of the configuration.", min_length=1)]


class ControllerConfigRef(Declared, frozen=True, kw_only=True):
    """Deprecated and ignored."""

    name: Annotated[str, described("Name of the configuration.")] | UnsetType = UNSET


RuntimeConfig = Annotated[RuntimeConfigRef, described("How to run it.", default={"name": "default"})]


class RuntimeRef(Declared, frozen=True, kw_only=True):
    """What packages and revisions that have a program say about how it runs."""

    runtime_config_ref: RuntimeConfig | UnsetType = UNSET

    @property
    def runtime_config(self) -> str:
        """The name of the DeploymentRuntimeConfig."""
        return self.runtime_config_ref.name if self.runtime_config_ref else "default"


class PullSecret(Declared, frozen=True, kw_only=True):
    """A Secret."""

    name: Annotated[str, described("Name of the Secret.")] | UnsetType = UNSET


class AppliedImageConfig(Declared, frozen=True, kw_only=True):
    """An image configuration."""

    name: Annotated[str, described("Its name.")]
    reason: Annotated[str, described("What it was used for.")]


AppliedImageConfigs = Annotated[list[AppliedImageConfig], described("Image configurations that were used.")]


class CommonSpec(Declared, frozen=True, kw_only=True):
    """What a package says, and all of its revisions repeat."""

    package_pull_policy: (
        Annotated[PullPolicy, described("When to look for the image again.", default="IfNotPresent")] | UnsetType
    ) = UNSET
    package_pull_secrets: Annotated[list[PullSecret], described("Secrets for private registries.")] | UnsetType = UNSET
    skip_dependency_resolution: (
        Annotated[bool, described("Whether to leave dependencies alone.", default=False)] | UnsetType
    ) = UNSET
    ignore_crossplane_constraints: (
        Annotated[bool, described("Whether to ignore which versions the package was made for.", default=False)]
        | UnsetType
    ) = UNSET
    common_labels: Annotated[dict[str, str], described("Labels for all that is made for the package.")] | UnsetType = (
        UNSET
    )
    common_annotations: (
        Annotated[dict[str, str], described("Annotations for all that is made for the package.")] | UnsetType
    ) = UNSET

    @property
    def pull_policy(self) -> PullPolicy:
        return self.package_pull_policy or "IfNotPresent"

    @property
    def pull_secrets(self) -> tuple[str, ...]:
        """The names of the Secrets for private registries."""
        return tuple(each.name or "" for each in self.package_pull_secrets or ())


# -- packages


class PackageSpec(CommonSpec, frozen=True, kw_only=True):
    """What to install."""

    package: Annotated[
        str,
        described("The package: an image with its registry, and with tag or digest.", min_length=1, rules=[_FULL_NAME]),
    ]
    revision_activation_policy: (
        Annotated[
            ActivationPolicy,
            described("Whether new revisions become active by themselves.", default="Automatic"),
        ]
        | UnsetType
    ) = UNSET
    revision_history_limit: (
        Annotated[int, described("How many inactive revisions to keep; 0 keeps all.", minimum=0, default=HISTORY_LIMIT)]
        | UnsetType
    ) = UNSET

    @property
    def history_limit(self) -> int:
        """How many inactive revisions are kept; 0 keeps all."""
        return HISTORY_LIMIT if self.revision_history_limit is UNSET else self.revision_history_limit

    @property
    def is_automatic(self) -> bool:
        """Whether a new revision becomes active by itself."""
        return (self.revision_activation_policy or "Automatic") == "Automatic"


class RuntimePackageSpec(PackageSpec, frozen=True, kw_only=True):
    """What to install, and how its program runs."""

    runtime_config_ref: RuntimeConfig | UnsetType = UNSET
    controller_config_ref: ControllerConfigRef | UnsetType = UNSET


OneActive = Annotated[
    int,
    described(
        "Always 1.",
        rules=[rule("self == 1", "activeRevisionLimit must be 1: only Functions can have several active revisions")],
    ),
]
"""Several active versions make sense only where they install nothing that they would have to share."""


class FunctionSpec(RuntimePackageSpec, frozen=True, kw_only=True):
    """What to install."""

    SCHEMA: ClassVar = ruled(
        rule(
            "!has(self.activeRevisionLimit) || !has(self.revisionHistoryLimit) || self.revisionHistoryLimit == 0 "
            "|| self.activeRevisionLimit <= self.revisionHistoryLimit",
            "activeRevisionLimit must not exceed revisionHistoryLimit, unless that is 0",
        )
    )

    active_revision_limit: (
        Annotated[int, described("How many of the newest revisions are active at once.", minimum=1)] | UnsetType
    ) = UNSET
    in_use_policy: (
        Annotated[
            Literal["Deactivate", "Retain"],
            described(
                "Whether a revision that live XRs or phases choose stays active above the limit; if absent, it does."
            ),
        ]
        | UnsetType
    ) = UNSET


class ProviderSpec(RuntimePackageSpec, frozen=True, kw_only=True):
    """What to install."""

    active_revision_limit: OneActive | UnsetType = UNSET


class ConfigurationSpec(PackageSpec, frozen=True, kw_only=True):
    """What to install."""

    active_revision_limit: OneActive | UnsetType = UNSET


class PackageStatus(Status, frozen=True, kw_only=True):
    """What has become of the installation."""

    current_revision: Annotated[str, described("Name of the revision that the package means now.")] | UnsetType = UNSET
    current_identifier: Annotated[str, described("The package as it was when that was found out.")] | UnsetType = UNSET
    resolved_package: Annotated[str, described("The package after image configurations.")] | UnsetType = UNSET
    applied_image_config_refs: AppliedImageConfigs | UnsetType = UNSET


class ActiveRevision(Declared, frozen=True, kw_only=True):
    """One revision that is active."""

    name: Annotated[str, described("Its name.")]
    revision: Annotated[int, described("Its number.")]
    healthy: Annotated[bool, described("Whether it can be called.")] | UnsetType = UNSET
    endpoint: Annotated[str, described("Where it serves.")] | UnsetType = UNSET
    users: (
        Annotated[int, described("How many XRs have a step, or Blueprints and ActionSets a phase, that chooses it.")]
        | UnsetType
    ) = UNSET


class FunctionStatus(PackageStatus, frozen=True, kw_only=True):
    """What has become of the installation."""

    served_by: (
        Annotated[str, described("What serves: the package, a function that ships with planform, or somebody else.")]
        | UnsetType
    ) = UNSET
    endpoint: Annotated[str, described("Where the newest active revision serves.")] | UnsetType = UNSET
    active_revisions: (
        Annotated[list[ActiveRevision], described("The revisions that serve, newest first.")] | UnsetType
    ) = UNSET


class Package(TypedObject, frozen=True, kw_only=True):
    """What all kinds of packages have."""

    spec: PackageSpec
    status: PackageStatus | UnsetType = UNSET


class Function(Package, frozen=True, kw_only=True):
    """A function that pipelines can call, installed from a package."""

    gvk: ClassVar = FUNCTION

    spec: FunctionSpec
    status: FunctionStatus | UnsetType = UNSET


class Provider(Package, frozen=True, kw_only=True):
    """A controller of managed resources, installed from a package."""

    gvk: ClassVar = PROVIDER

    spec: ProviderSpec


class Configuration(Package, frozen=True, kw_only=True):
    """Definitions and compositions, installed from a package."""

    gvk: ClassVar = CONFIGURATION

    spec: ConfigurationSpec


# -- revisions


class RevisionSpec(CommonSpec, frozen=True, kw_only=True):
    """What to run."""

    SCHEMA: ClassVar = ruled(required=["desiredState", "image", "revision"])

    image: Annotated[str, described("The image that it is installed from.", min_length=1)]
    revision: Annotated[int, described("The number of the revision; the highest one is the newest.")]
    desired_state: Annotated[DesiredState, described("Whether the revision is in use.")]
    tls_server_secret_name: Annotated[str, described("The Secret with its own certificate.")] | UnsetType = UNSET
    tls_client_secret_name: (
        Annotated[str, described("The Secret with the certificate of whoever calls it.")] | UnsetType
    ) = UNSET

    @property
    def is_active(self) -> bool:
        return self.desired_state == "Active"


class RuntimeRevisionSpec(RevisionSpec, frozen=True, kw_only=True):
    """What to run."""

    runtime_config_ref: RuntimeConfig | UnsetType = UNSET
    controller_config_ref: ControllerConfigRef | UnsetType = UNSET


class InstalledObject(Declared, frozen=True, kw_only=True):
    """One object."""

    api_version: Annotated[str, described("API version of the object.")]
    kind: Annotated[str, described("Kind of the object.")]
    name: Annotated[str, described("Name of the object.")]
    namespace: Annotated[str, described("Namespace of the object, if its kind is namespaced.")] | UnsetType = UNSET
    uid: Annotated[str, described("UID of the object.")] | UnsetType = UNSET


class RevisionStatus(Status, frozen=True, kw_only=True):
    """What has become of the revision."""

    capabilities: (
        Annotated[
            list[Annotated[str, described("One use, such as composition.")]], described("What it can be used for.")
        ]
        | UnsetType
    ) = UNSET
    resolved_image: Annotated[str, described("The image after image configurations.")] | UnsetType = UNSET
    applied_image_config_refs: AppliedImageConfigs | UnsetType = UNSET
    found_dependencies: Annotated[int, described("How many dependencies the package has.")] | UnsetType = UNSET
    installed_dependencies: Annotated[int, described("How many of them are installed.")] | UnsetType = UNSET
    invalid_dependencies: (
        Annotated[int, described("How many of them are installed in a version that does not fit.")] | UnsetType
    ) = UNSET
    object_refs: Annotated[list[InstalledObject], described("Objects that came with the package.")] | UnsetType = UNSET
    permission_requests: (
        Annotated[list[Annotated[Free, described("One rule.")]], described("Permissions that the package asks for.")]
        | UnsetType
    ) = UNSET


class ProviderRevisionStatus(RevisionStatus, frozen=True, kw_only=True):
    """What has become of the revision."""

    tls_server_secret_name: Annotated[str, described("The Secret with its own certificate.")] | UnsetType = UNSET
    tls_client_secret_name: (
        Annotated[str, described("The Secret with the certificate of whoever calls it.")] | UnsetType
    ) = UNSET


class FunctionRevisionStatus(ProviderRevisionStatus, frozen=True, kw_only=True):
    """What has become of the revision."""

    endpoint: Annotated[str, described("Where the function listens.")] | UnsetType = UNSET
    users: (
        Annotated[
            int,
            described("How many XRs have a step, or Blueprints and ActionSets a phase, that chooses this revision."),
        ]
        | UnsetType
    ) = UNSET


class PackageRevision(TypedObject, frozen=True, kw_only=True):
    """What the revisions of all kinds of packages have."""

    spec: RevisionSpec
    status: RevisionStatus | UnsetType = UNSET


class FunctionRevision(PackageRevision, frozen=True, kw_only=True):
    """One version of a function. Several can be active at once."""

    gvk: ClassVar = FUNCTION_REVISION

    spec: RuntimeRevisionSpec
    status: FunctionRevisionStatus | UnsetType = UNSET


class ProviderRevision(PackageRevision, frozen=True, kw_only=True):
    """One version of a provider."""

    gvk: ClassVar = PROVIDER_REVISION

    spec: RuntimeRevisionSpec
    status: ProviderRevisionStatus | UnsetType = UNSET


class ConfigurationRevision(PackageRevision, frozen=True, kw_only=True):
    """One version of a configuration."""

    gvk: ClassVar = CONFIGURATION_REVISION


# -- CRDs


def function() -> Object:
    """An installed function."""
    return _served(Function, [*_PACKAGE_COLUMNS, column("SERVED-BY", ".status.servedBy")], "pkg", beta=True)


def provider() -> Object:
    """An installed provider."""
    return _served(Provider, _PACKAGE_COLUMNS, "pkg")


def configuration() -> Object:
    """An installed configuration."""
    return _served(Configuration, _PACKAGE_COLUMNS, "pkg")


def function_revision() -> Object:
    """One version of an installed function."""
    return _served(FunctionRevision, _REVISION_COLUMNS, "pkgrev", beta=True)


def provider_revision() -> Object:
    """One version of an installed provider."""
    return _served(ProviderRevision, _REVISION_COLUMNS, "pkgrev")


def configuration_revision() -> Object:
    """One version of an installed configuration."""
    columns = [each for each in _REVISION_COLUMNS if each["name"] != "RUNTIME-HEALTHY"]
    return _served(ConfigurationRevision, columns, "pkgrev")


def _served(kind: type[TypedObject], columns: list[dict[str, Any]], category: str, *, beta: bool = False) -> Object:
    schema = schema_of(kind)
    versions = [version("v1", schema, columns, storage=True)]
    if beta:
        versions.append(version("v1beta1", schema, columns))
    return crd(PACKAGES_GROUP, kind.gvk.kind, versions, categories=["crossplane", category])
