"""The environment: an object in the pipeline's context that EnvironmentConfigs fill and patches read and write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planform.functions.values import Object

ENVIRONMENT_KEY: Final = "apiextensions.crossplane.io/environment"
EXTRA_RESOURCES_KEY: Final = "apiextensions.crossplane.io/extra-resources"


def environment_of(context: Mapping[str, Any]) -> Object:
    """The environment of a context, with api version and kind; a value that is no object counts as empty."""
    found = context.get(ENVIRONMENT_KEY)
    return typed_environment(found if isinstance(found, dict) else {})


def typed_environment(environment: Object) -> Object:
    if environment.get("apiVersion") or environment.get("kind"):
        return environment
    return {**environment, "apiVersion": "internal.crossplane.io/v1alpha1", "kind": "Environment"}


def merged(under: Any, over: Any) -> Any:
    """Objects merged to any depth, everything else replaced. Shares what it can and changes neither argument."""
    if type(under) is not dict or type(over) is not dict:
        return over
    result = dict(under)
    for key, value in over.items():
        result[key] = merged(result[key], value) if key in result else value
    return result
