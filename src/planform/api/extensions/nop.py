"""NopResource and ClusterNopResource: managed resources that manage nothing, for demos and tests."""

from __future__ import annotations

from planform.api.extensions.vocabulary import (
    DURATION,
    Schema,
    condition_column,
    crd,
    free,
    many,
    number,
    record,
    root,
    status,
    text,
    version,
)
from planform.api.kinds import Object
from planform.api.names import CLUSTER_NOP_RESOURCE, NOP_GROUP, NOP_RESOURCE

_CATEGORIES = ["crossplane", "managed", "nop"]
_COLUMNS = [condition_column("Ready"), condition_column("Synced")]


def nop_resource() -> Object:
    """The namespaced one."""
    versions = [version("v1alpha1", _schema(), _COLUMNS, storage=True)]
    return crd(NOP_GROUP, NOP_RESOURCE.kind, versions, scope="Namespaced", categories=_CATEGORIES)


def cluster_nop_resource() -> Object:
    """The cluster-scoped one."""
    versions = [version("v1alpha1", _schema(), _COLUMNS, storage=True)]
    return crd(NOP_GROUP, CLUSTER_NOP_RESOURCE.kind, versions, categories=_CATEGORIES)


def _schema() -> Schema:
    fields = {
        "forProvider": _parameters(),
        "deletionPolicy": text("What happens to what is managed.", one_of=["Orphan", "Delete"], default="Delete"),
        "managementPolicies": {
            **many("What the provider may do.", text("One action.", one_of=_ACTIONS)),
            "default": ["*"],
        },
        "providerConfigRef": {
            **record(
                "How the provider is configured.",
                {
                    "name": text("Name of the configuration."),
                    "kind": text("Kind of the configuration."),
                    "policy": free("How the reference is resolved."),
                },
                required=["name"],
            ),
            "default": {"name": "default"},
        },
        "writeConnectionSecretToRef": record(
            "Where connection details go.",
            {
                "name": text("Name of the Secret.", min_length=1),
                "namespace": text("Namespace of the Secret; that of this object if absent."),
            },
            required=["name"],
        ),
        "publishConnectionDetailsTo": free("Deprecated and ignored."),
    }
    status_fields = {
        "atProvider": record("What was observed.", {"fields": free("Anything.")}),
        "observedGeneration": number("The generation that this is said about."),
    }
    return root(
        "A managed resource that manages nothing and says of itself what it is told to say.",
        {
            "spec": record("What to say when.", fields, required=["forProvider"]),
            "status": status("What the resource says of itself.", status_fields),
        },
        required=["spec"],
    )


_ACTIONS = ["Observe", "Create", "Update", "Delete", "LateInitialize", "*"]


def _parameters() -> Schema:
    after = record(
        "A condition to set.",
        {
            "time": text("How long after the creation, such as 10s.", pattern=DURATION),
            "conditionType": text("Type of the condition, such as Ready.", min_length=1),
            "conditionStatus": text("Status of the condition.", one_of=["True", "False", "Unknown"]),
            "conditionReason": text("Reason of the condition."),
        },
        required=["conditionStatus", "conditionType", "time"],
    )
    detail = record(
        "A connection detail.",
        {"name": text("Its key.", min_length=1), "value": text("Its value.")},
        required=["name", "value"],
    )
    fields = {
        "conditionAfter": many("Conditions to set, each at its time.", after),
        "connectionDetails": many("Connection details to publish.", detail),
        "fields": free("Anything, to patch from and to."),
    }
    return record("What the resource is told.", fields)
