"""What a schema's rules cannot say, for API servers that know admission policies.

Rules of a CRD see no labels. Those of a CompositionRevision decide which XRs select it, so they stay as they are.
"""

from __future__ import annotations

from typing import Final

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import (
    COMPOSITION_HASH_LABEL,
    COMPOSITION_NAME_LABEL,
    COMPOSITION_SPEC_HASH_LABEL,
    EXTENSIONS_GROUP,
)

POLICY: Final = GroupVersionKind("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy")
BINDING: Final = GroupVersionKind("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding")

OWN_LABELS: Final = (COMPOSITION_NAME_LABEL, COMPOSITION_HASH_LABEL, COMPOSITION_SPEC_HASH_LABEL)
"""The labels of a CompositionRevision that a controller may add where they are missing: others made it without them."""
LABELS_STAY: Final = "the labels of a CompositionRevision are immutable, as XRs select it by them"
_NAME: Final = "compositionrevision-labels.planform.dev"


def policies() -> list[Object]:
    """The policy and what puts it into force, complete as a server gives them back."""
    own = ", ".join(f"'{label}'" for label in OWN_LABELS)
    policy: Object = {
        "apiVersion": POLICY.api_version,
        "kind": POLICY.kind,
        "metadata": {"name": _NAME},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": {},
                "objectSelector": {},
                "resourceRules": [
                    {
                        "apiGroups": [EXTENSIONS_GROUP],
                        "apiVersions": ["*"],
                        "operations": ["UPDATE"],
                        "resources": ["compositionrevisions"],
                        "scope": "*",
                    }
                ],
            },
            "variables": [
                {"name": "before", "expression": "has(oldObject.metadata.labels) ? oldObject.metadata.labels : {}"},
                {"name": "after", "expression": "has(object.metadata.labels) ? object.metadata.labels : {}"},
            ],
            "validations": [
                {
                    "expression": (
                        "variables.before.all(key, key in variables.after && "
                        "variables.after[key] == variables.before[key]) && "
                        f"variables.after.all(key, key in variables.before || key in [{own}])"
                    ),
                    "message": LABELS_STAY,
                    "reason": "Invalid",
                }
            ],
        },
    }
    binding: Object = {
        "apiVersion": BINDING.api_version,
        "kind": BINDING.kind,
        "metadata": {"name": _NAME},
        "spec": {"policyName": _NAME, "validationActions": ["Deny"]},
    }
    return [policy, binding]
