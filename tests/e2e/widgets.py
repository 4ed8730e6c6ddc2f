"""A kind of our own for tests, with everything that a definition can bring: columns, status, scale, defaults, rules."""

from __future__ import annotations

from typing import Any

GROUP = "e2e.planform.dev"

WIDGETS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"widgets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wg"], "categories": ["all"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                },
                "additionalPrinterColumns": [
                    {"name": "Colour", "type": "string", "jsonPath": ".spec.colour"},
                    {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas", "priority": 1},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "description": "A thing that exists for tests.",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "description": "What the widget should be.",
                                "properties": {
                                    "colour": {
                                        "type": "string",
                                        "description": "How it looks.",
                                        "enum": ["red", "green", "blue"],
                                    },
                                    "replicas": {"type": "integer", "minimum": 0, "default": 1},
                                    "note": {"type": "string"},
                                },
                                "x-kubernetes-validations": [
                                    {
                                        "rule": "self.colour != 'red' || self.replicas <= 3",
                                        "message": "red widgets come in threes at most",
                                    }
                                ],
                            },
                            "status": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                                "properties": {"replicas": {"type": "integer"}},
                            },
                        },
                    }
                },
            }
        ],
    },
}


def widget(name: str, *, colour: str = "red", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": {"colour": colour, **spec},
    }
