"""Usage and ClusterUsage, and the Usage they replace: who uses a resource, and why it must not be deleted."""

from __future__ import annotations

from planform.api.extensions.vocabulary import (
    Schema,
    column,
    condition_column,
    crd,
    flag,
    labels,
    record,
    root,
    rule,
    status,
    text,
    version,
)
from planform.api.kinds import Object
from planform.api.names import CLUSTER_USAGE, EXTENSIONS_GROUP, LEGACY_USAGE, PROTECTION_GROUP, USAGE

_AT_HOME = (
    "has(self.by) || ((!has(self.of.resourceRef) || !has(self.of.resourceRef.__namespace__)) && "
    "(!has(self.of.resourceSelector) || !has(self.of.resourceSelector.__namespace__)))"
)
_COLUMNS = [column("DETAILS", r".metadata.annotations.crossplane\.io/usage-details"), condition_column("Ready")]


def usage() -> Object:
    """Protects namespaced resources."""
    schema = _schema("Keeps a resource from being deleted while it is used.", other_namespaces=True)
    return crd(PROTECTION_GROUP, USAGE.kind, [version("v1beta1", schema, _COLUMNS, storage=True)], scope="Namespaced")


def cluster_usage() -> Object:
    """Protects cluster-scoped resources."""
    schema = _schema("Keeps a cluster-scoped resource from being deleted while it is used.", other_namespaces=False)
    return crd(PROTECTION_GROUP, CLUSTER_USAGE.kind, [version("v1beta1", schema, _COLUMNS, storage=True)])


def legacy_usage() -> Object:
    """What ClusterUsage was called before, for the manifests and functions that still make it."""
    schema = _schema("Keeps a cluster-scoped resource from being deleted while it is used.", other_namespaces=False)
    versions = [
        version(name, schema, _COLUMNS, storage=name == LEGACY_USAGE.version, deprecated=_MOVED.format(name))
        for name in ("v1alpha1", LEGACY_USAGE.version)
    ]
    return crd(EXTENSIONS_GROUP, LEGACY_USAGE.kind, versions)


_MOVED = (
    f"{EXTENSIONS_GROUP}/{{}} {LEGACY_USAGE.kind} is deprecated; "
    f"use {CLUSTER_USAGE.api_version} {USAGE.kind} or {CLUSTER_USAGE.kind}"
)


def _schema(description: str, *, other_namespaces: bool) -> Schema:
    fields = {
        "of": _side("The resource that is used.", other_namespaces=other_namespaces),
        "by": _side("The resource that uses it; what it uses can go once it is gone.", other_namespaces=False),
        "reason": text("Why the resource must stay, for whoever tries to delete it.", min_length=1),
        "replayDeletion": flag("Whether a deletion that was refused is repeated once it is allowed."),
    }
    rules = [rule("has(self.by) || has(self.reason)", "one of by and reason is needed")]
    if other_namespaces:
        rules.append(rule(_AT_HOME, "a resource of another namespace can only be protected with by"))
    spec = record("What uses what.", fields, required=["of"], rules=rules)
    return root(description, {"spec": spec, "status": status("What has become of the usage.")}, required=["spec"])


def _side(description: str, *, other_namespaces: bool) -> Schema:
    reference = {"name": text("Name of the resource.", min_length=1)}
    selector = {
        "matchControllerRef": flag("Whether it must have the same controller as this object."),
        "matchLabels": labels("The labels that it must have."),
    }
    if other_namespaces:
        reference["namespace"] = text("Namespace of the resource; that of this object if absent.")
        selector["namespace"] = text("Namespace of the resource; that of this object if absent.")
    fields = {
        "apiVersion": text("API version of the resource."),
        "kind": text("Kind of the resource."),
        "resourceRef": record("Its name.", reference, required=["name"]),
        "resourceSelector": record("How its name is found, once, if there is no reference.", selector),
    }
    one_of = rule(
        "has(self.resourceRef) || has(self.resourceSelector)", "a resourceRef or a resourceSelector is needed"
    )
    return record(description, fields, required=["apiVersion", "kind"], rules=[one_of])
