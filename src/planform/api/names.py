"""The kinds that controllers name: one spelling for each, in the version in which it is read and written."""

from __future__ import annotations

from typing import Final

from planform.api.kinds import GroupVersionKind

EXTENSIONS_GROUP: Final = "apiextensions.crossplane.io"
PACKAGES_GROUP: Final = "pkg.crossplane.io"
PROTECTION_GROUP: Final = "protection.crossplane.io"
OPERATIONS_GROUP: Final = "ops.crossplane.io"
NOP_GROUP: Final = "nop.crossplane.io"
BLUEPRINTS_GROUP: Final = "cr.kanister.io"
JOURNAL_GROUP: Final = "journal.planform.dev"
ROLLOUT_GROUP: Final = "rollout.planform.dev"

JOURNAL_REVIEW: Final = GroupVersionKind(JOURNAL_GROUP, "v1alpha1", "JournalReview")
XRD: Final = GroupVersionKind(EXTENSIONS_GROUP, "v2", "CompositeResourceDefinition")
COMPOSITION: Final = GroupVersionKind(EXTENSIONS_GROUP, "v1", "Composition")
COMPOSITION_REVISION: Final = GroupVersionKind(EXTENSIONS_GROUP, "v1", "CompositionRevision")
ENVIRONMENT_CONFIG: Final = GroupVersionKind(EXTENSIONS_GROUP, "v1beta1", "EnvironmentConfig")
FUNCTION: Final = GroupVersionKind(PACKAGES_GROUP, "v1", "Function")
FUNCTION_REVISION: Final = GroupVersionKind(PACKAGES_GROUP, "v1", "FunctionRevision")
PROVIDER: Final = GroupVersionKind(PACKAGES_GROUP, "v1", "Provider")
PROVIDER_REVISION: Final = GroupVersionKind(PACKAGES_GROUP, "v1", "ProviderRevision")
CONFIGURATION: Final = GroupVersionKind(PACKAGES_GROUP, "v1", "Configuration")
CONFIGURATION_REVISION: Final = GroupVersionKind(PACKAGES_GROUP, "v1", "ConfigurationRevision")
LOCK: Final = GroupVersionKind(PACKAGES_GROUP, "v1beta1", "Lock")
IMAGE_CONFIG: Final = GroupVersionKind(PACKAGES_GROUP, "v1beta1", "ImageConfig")
RUNTIME_CONFIG: Final = GroupVersionKind(PACKAGES_GROUP, "v1beta1", "DeploymentRuntimeConfig")
USAGE: Final = GroupVersionKind(PROTECTION_GROUP, "v1beta1", "Usage")
CLUSTER_USAGE: Final = GroupVersionKind(PROTECTION_GROUP, "v1beta1", "ClusterUsage")
LEGACY_USAGE: Final = GroupVersionKind(EXTENSIONS_GROUP, "v1beta1", "Usage")
"""What a ClusterUsage was called before; deprecated, and served."""
MANAGED_DEFINITION: Final = GroupVersionKind(EXTENSIONS_GROUP, "v1alpha1", "ManagedResourceDefinition")
ACTIVATION_POLICY: Final = GroupVersionKind(EXTENSIONS_GROUP, "v1alpha1", "ManagedResourceActivationPolicy")
OPERATION: Final = GroupVersionKind(OPERATIONS_GROUP, "v1alpha1", "Operation")
CRON_OPERATION: Final = GroupVersionKind(OPERATIONS_GROUP, "v1alpha1", "CronOperation")
WATCH_OPERATION: Final = GroupVersionKind(OPERATIONS_GROUP, "v1alpha1", "WatchOperation")
NOP_RESOURCE: Final = GroupVersionKind(NOP_GROUP, "v1alpha1", "NopResource")
CLUSTER_NOP_RESOURCE: Final = GroupVersionKind(NOP_GROUP, "v1alpha1", "ClusterNopResource")

BLUEPRINT: Final = GroupVersionKind(BLUEPRINTS_GROUP, "v1alpha1", "Blueprint")
ACTION_SET: Final = GroupVersionKind(BLUEPRINTS_GROUP, "v1alpha1", "ActionSet")
PROFILE: Final = GroupVersionKind(BLUEPRINTS_GROUP, "v1alpha1", "Profile")

PREVIEW: Final = GroupVersionKind(ROLLOUT_GROUP, "v1alpha1", "Preview")
PREVIEW_REPORT: Final = GroupVersionKind(ROLLOUT_GROUP, "v1alpha1", "PreviewReport")
CHANGE_WINDOW: Final = GroupVersionKind(ROLLOUT_GROUP, "v1alpha1", "ChangeWindow")
ROLLOUT_POLICY: Final = GroupVersionKind(ROLLOUT_GROUP, "v1alpha1", "RolloutPolicy")
ROLLOUT: Final = GroupVersionKind(ROLLOUT_GROUP, "v1alpha1", "Rollout")
ROLLOUT_ACTION: Final = GroupVersionKind(ROLLOUT_GROUP, "v1alpha1", "RolloutAction")

CRD: Final = GroupVersionKind("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
SECRET: Final = GroupVersionKind("", "v1", "Secret")
EVENT: Final = GroupVersionKind("", "v1", "Event")
CLUSTER_ROLE: Final = GroupVersionKind("rbac.authorization.k8s.io", "v1", "ClusterRole")

SYSTEM_NAMESPACE: Final = "crossplane-system"
"""Where pull secrets, keys and the accounts of providers are, as package objects have no namespace, and where published
manifests have connection secrets written."""

PAUSED_ANNOTATION: Final = "crossplane.io/paused"
POLL_INTERVAL_ANNOTATION: Final = "crossplane.io/poll-interval"
RECONCILE_REQUESTED_ANNOTATION: Final = "crossplane.io/reconcile-requested-at"
EXTERNAL_NAME_ANNOTATION: Final = "crossplane.io/external-name"

COMPOSITE_FINALIZER: Final = "composite.apiextensions.crossplane.io"
CLAIM_FINALIZER: Final = "finalizer.apiextensions.crossplane.io"
DEFINED_FINALIZER: Final = "defined.apiextensions.crossplane.io"
OFFERED_FINALIZER: Final = "offered.apiextensions.crossplane.io"
USAGE_FINALIZER: Final = "usage.apiextensions.crossplane.io"
ACTION_SET_FINALIZER: Final = "planform.dev/actionset"
ROLLOUT_FINALIZER: Final = "rollout.planform.dev/abort"
IN_USE_FINALIZER: Final = "rollout.planform.dev/in-use"
"""Of Compositions that a RolloutPolicy holds, and of their revisions."""

COMPOSITE_MANAGER: Final = "apiextensions.crossplane.io/composite"
CLAIM_MANAGER: Final = "apiextensions.crossplane.io/claim"
COMPOSITION_NAME_LABEL: Final = "crossplane.io/composition-name"
COMPOSITION_HASH_LABEL: Final = "crossplane.io/composition-hash"
COMPOSITION_SPEC_HASH_LABEL: Final = "crossplane.io/composition-spec-hash"
CONNECTION_SECRET_TYPE: Final = "connection.crossplane.io/v1alpha1"
PACKAGE_LABEL: Final = "pkg.crossplane.io/package"
PREVIEW_LABEL: Final = "rollout.planform.dev/preview"
"""On a PreviewReport: the name of its Preview."""
