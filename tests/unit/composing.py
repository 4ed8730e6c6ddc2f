"""Requests for patch-and-transform in a line or two, for its tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planform.builtin.patch_and_transform import function
from planform.functions.values import FunctionRequest, FunctionResponse, Object, Resource, Severity, State

XR: Object = {"apiVersion": "example.org/v1", "kind": "XR", "metadata": {"name": "xr"}}
BASE: Object = {"apiVersion": "example.org/v1", "kind": "Thing"}


def resources(*templates: Object, **more: Any) -> Object:
    return {
        "apiVersion": "pt.fn.crossplane.io/v1beta1",
        "kind": "Resources",
        **({"resources": list(templates)} if templates else {}),
        **more,
    }


def template(*patches: Object, name: str = "thing", base: Any = BASE, **more: Any) -> Object:
    made = {"name": name, "patches": list(patches), **more}
    return made if base is None else {**made, "base": base}


def request(
    spec: Object | None,
    *,
    xr: Object | None = None,
    observed: Mapping[str, Object | Resource] | None = None,
    desired: Mapping[str, Object | Resource] | None = None,
    desired_xr: Resource | None = None,
    context: Object | None = None,
) -> FunctionRequest:
    return FunctionRequest(
        observed=State(Resource({**XR, **(xr or {})}), _resources(observed)),
        desired=State(desired_xr or Resource({}), _resources(desired)),
        input=spec,
        context=context or {},
        tag="t",
    )


def run(spec: Object | None, **more: Any) -> FunctionResponse:
    return function(request(spec, **more))


def rendered(response: FunctionResponse, name: str = "thing") -> Object:
    """A desired resource of an answer that must not be fatal."""
    assert response.fatal is None, response.fatal
    return response.desired.resources[name].resource


def fatal(response: FunctionResponse) -> str:
    assert response.fatal is not None, response.results
    return response.fatal.message


def warnings(response: FunctionResponse) -> list[str]:
    return [result.message for result in response.results if result.severity is Severity.WARNING]


def patched(source: Any, patch: Object, target: Any = None) -> Any:
    """What one patch makes of `spec.to` of a new resource, reading from `spec` of the XR."""
    base = {**BASE, "spec": {} if target is None else {"to": target}}
    full = {"fromFieldPath": "spec.from", "toFieldPath": "spec.to", **patch}
    response = run(resources(template(full, base=base)), xr={"spec": {"from": source}})
    return rendered(response).get("spec", {}).get("to")


def transformed(value: Any, *transforms: Object) -> Any:
    return patched(value, {"transforms": list(transforms)})


def transform_failure(value: Any, *transforms: Object) -> str:
    patch = {"fromFieldPath": "spec.from", "toFieldPath": "spec.to", "transforms": list(transforms)}
    return fatal(run(resources(template(patch)), xr={"spec": {"from": value}}))


def _resources(found: Mapping[str, Object | Resource] | None) -> dict[str, Resource]:
    return {name: each if isinstance(each, Resource) else Resource(each) for name, each in (found or {}).items()}
