"""The small platform that `planform demo` shows: an XRD, a Composition in two versions, and five XRs."""

from __future__ import annotations

from typing import Any, Final

from planform.api.kinds import GroupVersionKind, Object
from planform.apimachinery import yaml_loader

APP: Final = GroupVersionKind("demo.planform.dev", "v1", "App")
NAMESPACE: Final = "default"
COMPOSITION_NAME: Final = "app"

_DEFINITION: Final = """
apiVersion: apiextensions.crossplane.io/v2
kind: CompositeResourceDefinition
metadata: {name: apps.demo.planform.dev}
spec:
  group: demo.planform.dev
  names: {kind: App, plural: apps}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      referenceable: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                size: {type: string, enum: [small, medium, large], default: small}
"""

_COMPOSITION: Final = f"""
apiVersion: apiextensions.crossplane.io/v1
kind: Composition
metadata: {{name: {COMPOSITION_NAME}}}
spec:
  compositeTypeRef: {{apiVersion: demo.planform.dev/v1, kind: App}}
  mode: Pipeline
  pipeline:
    - step: resources
      functionRef: {{name: function-patch-and-transform}}
      input: {{apiVersion: pt.fn.crossplane.io/v1beta1, kind: Resources, resources: []}}
"""

_SECONDS: Final = {
    "bucket": {"small": 1, "medium": 2, "large": 2},
    "database": {"small": 2, "medium": 4, "large": 5},
    "cache": {"small": 1, "medium": 2, "large": 3},
}
"""How long each resource takes to become ready, by the size of its App: there should be something to watch."""

POLICIES: Final = {
    "blog": "Automatic",
    "mail": "Automatic",
    "search": "Automatic",
    "shop": "Automatic",
    "wiki": "Manual",
}
_SIZES: Final = {"search": "medium", "shop": "large"}


def definition() -> Object:
    xrd: Object = yaml_loader.load(_DEFINITION)
    return xrd


def composition(*resources: str) -> Object:
    """The Composition with these resources; each set of them is a revision of its own."""
    found: Object = yaml_loader.load(_COMPOSITION)
    found["spec"]["pipeline"][0]["input"]["resources"] = [_resource(name) for name in resources]
    return found


def apps() -> list[Object]:
    return [
        {
            "apiVersion": APP.api_version,
            "kind": APP.kind,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"size": _SIZES.get(name, "small"), "crossplane": {"compositionUpdatePolicy": policy}},
        }
        for name, policy in POLICIES.items()
    ]


def _resource(name: str) -> Object:
    conditions = [
        {"time": "0s", "conditionType": "Ready", "conditionStatus": "False", "conditionReason": "Creating"},
        {"time": "0s", "conditionType": "Ready", "conditionStatus": "True", "conditionReason": "Available"},
    ]
    times = {size: f"{seconds}s" for size, seconds in _SECONDS[name].items()}
    return {
        "name": name,
        "base": {
            "apiVersion": "nop.crossplane.io/v1alpha1",
            "kind": "NopResource",
            "spec": {"forProvider": {"conditionAfter": conditions}},
        },
        "patches": [
            _patch(
                "metadata.name", "metadata.name", {"type": "string", "string": {"type": "Format", "fmt": f"%s-{name}"}}
            ),
            _patch("spec.size", "spec.forProvider.conditionAfter[1].time", {"type": "map", "map": times}),
        ],
    }


def _patch(source: str, target: str, transform: dict[str, Any]) -> Object:
    return {"fromFieldPath": source, "toFieldPath": target, "transforms": [transform]}
