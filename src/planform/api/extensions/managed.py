"""ManagedResourceDefinition and ManagedResourceActivationPolicy: kinds of managed resources, and which are served."""

from __future__ import annotations

from planform.api.extensions.vocabulary import (
    Schema,
    column,
    condition_column,
    crd,
    flag,
    free,
    immutable,
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
from planform.api.names import ACTIVATION_POLICY, EXTENSIONS_GROUP, MANAGED_DEFINITION

_STATES = ("Active", "Inactive")


def managed_resource_definition() -> Object:
    """A CustomResourceDefinition that waits until somebody wants its kind."""
    fields = {
        "connectionDetails": many(
            "What the provider writes to the connection secrets of the kind's resources.",
            record(
                "One of the values.",
                {"name": text("Name of the value."), "description": text("What it is.")},
                required=["name", "description"],
            ),
        ),
        "conversion": free("How objects are converted between versions, as a CustomResourceDefinition has it."),
        "group": text("The kind's API group.", rules=[immutable("group")]),
        "names": _names(),
        "preserveUnknownFields": flag("Whether fields without a schema are kept; deprecated."),
        "scope": text(
            "Whether the kind's objects have a namespace.",
            one_of=("Namespaced", "Cluster"),
            default="Namespaced",
            rules=[immutable("scope")],
        ),
        "state": text(
            "Whether the kind is to be served.",
            one_of=_STATES,
            default="Inactive",
            rules=[rule("self == oldSelf || oldSelf != 'Active'", "state cannot be changed once it becomes Active")],
        ),
        "versions": many("The kind's versions.", _version()),
    }
    spec = record("The kind, and whether it is served.", fields, required=["group", "names", "scope", "versions"])
    schema = root(
        "Defines a kind of managed resources, whose CustomResourceDefinition is made once the kind is activated.",
        {"spec": spec, "status": status("What has become of the kind.")},
    )
    columns = [column("STATE", ".spec.state"), condition_column("Established")]
    served = version(MANAGED_DEFINITION.version, schema, columns, storage=True)
    return crd(EXTENSIONS_GROUP, MANAGED_DEFINITION.kind, [served], short=["mrd", "mrds"])


def activation_policy() -> Object:
    """Which definitions shall become active."""
    patterns = many(
        "Names of definitions; `*` stands for any characters, as in `*.aws.crossplane.io`.", text("A name.")
    )
    spec = record("What to activate.", {"activate": {**patterns, "minItems": 1}}, required=["activate"])
    activated = many("The definitions that this policy activates.", text("Name of a definition."))
    schema = root(
        "Activates definitions of managed resources by their names.",
        {"spec": spec, "status": status("What has become of the policy.", {"activated": activated})},
    )
    served = version(ACTIVATION_POLICY.version, schema, storage=True)
    plural = "managedresourceactivationpolicies"
    return crd(EXTENSIONS_GROUP, ACTIVATION_POLICY.kind, [served], short=["mrap"], plural=plural)


def _names() -> Schema:
    fields = {
        "categories": many("Groups of kinds that it belongs to.", text("A category.")),
        "kind": text("Name of the kind."),
        "listKind": text("Name of a list of it."),
        "plural": text("Name in URLs."),
        "shortNames": many("Short names for command lines.", text("A short name.")),
        "singular": text("Name of one object."),
    }
    rules = [
        immutable("names"),
        rule("self.plural == self.plural.lowerAscii()", "the plural name must be lowercase"),
        rule(
            "!has(self.singular) || self.singular == self.singular.lowerAscii()", "the singular name must be lowercase"
        ),
    ]
    return record("What the kind is called.", fields, required=["kind", "plural"], rules=rules)


def _version() -> Schema:
    printed = record(
        "A column of tables.",
        {
            "description": text("What it shows."),
            "format": text("Format of its values."),
            "jsonPath": text("Where its values are."),
            "name": text("Its title."),
            "priority": number("Above 0 it is left out of narrow tables."),
            "type": text("Type of its values."),
        },
        required=["jsonPath", "name", "type"],
    )
    selectable = record("A field.", {"jsonPath": text("Where it is.")}, required=["jsonPath"])
    fields = {
        "additionalPrinterColumns": many("Columns of tables.", printed),
        "deprecated": flag("Whether users of the version are warned."),
        "deprecationWarning": text("The warning."),
        "name": text("Name of the version."),
        "schema": record("The version's schema.", {"openAPIV3Schema": free("The schema itself.")}),
        "selectableFields": many("Fields that field selectors may use.", selectable),
        "served": flag("Whether the version is served."),
        "storage": flag("Whether objects are stored in it."),
        "subresources": free("The subresources of the version, as a CustomResourceDefinition has them."),
    }
    return record("One version.", fields, required=["name", "served", "storage"])
