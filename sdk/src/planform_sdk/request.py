"""What a function is given: the XR, what was observed, its input, and the means to ask for more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from planform_sdk.resource import copy_object
from planform_sdk.types import (
    ENVIRONMENT,
    Capability,
    Object,
    Requirements,
    Resource,
    ResourceRef,
    ResourceSelector,
    RunFunctionRequest,
    SchemaSelector,
    State,
)

I = TypeVar("I")  # noqa: E741


class Request(Generic[I]):
    """One call of the function. What it holds is the function's own copy, but only the response counts.

    `input` is the model that `@function(input=...)` names, or the plain input object (empty if the step has none).
    """

    def __init__(self, plain: RunFunctionRequest, input: I, requirements: Requirements) -> None:
        self.plain = plain
        self.input = input
        self._requirements = requirements
        self._observed: State | None = None
        self._desired: State | None = None
        self._context: Object | None = None

    @property
    def tag(self) -> str:
        return self.plain.meta.tag

    @property
    def observed(self) -> State:
        """The XR and its composed resources as they are."""
        if self._observed is None:
            self._observed = self.plain.observed.copy()
        return self._observed

    @property
    def desired(self) -> State:
        """What earlier steps want. To want something else, change the response's `desired`."""
        if self._desired is None:
            self._desired = self.plain.desired.copy()
        return self._desired

    @property
    def xr(self) -> Resource:
        """The XR as it is."""
        return self.observed.composite

    @property
    def context(self) -> Object:
        """What earlier steps left in the context. To leave something there, change the response's `context`."""
        if self._context is None:
            self._context = copy_object(self.plain.context or {})
        return self._context

    @property
    def environment(self) -> Object:
        """The environment that an earlier step put into the context; empty if none did."""
        environment = self.context.get(ENVIRONMENT)
        return environment if isinstance(environment, dict) else {}

    def credentials(self, name: str) -> Mapping[str, bytes]:
        """Give the credentials that the step calls by this name; empty if it has none such."""
        return self.plain.credentials.get(name, {})

    def supports(self, capability: Capability) -> bool | None:
        """Whether the caller supports something; None if it is too old to say."""
        capabilities = self.plain.meta.capabilities
        if capability in capabilities:
            return True
        return False if Capability.CAPABILITIES in capabilities else None

    def require(
        self,
        key: str,
        /,
        *,
        api_version: str,
        kind: str,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        namespace: str | None = None,
    ) -> Resource | None:
        """Ask for an object by name, or for the first with these labels; None if there is none, or not yet.

        The first call of a function that asks usually gets None: the control plane then reads what was asked for and
        calls again. So return early, without an error. `looked_up` tells "not there" from "not yet looked".
        """
        found = self.require_all(key, api_version=api_version, kind=kind, name=name, labels=labels, namespace=namespace)
        return found[0] if found else None

    def require_all(
        self,
        key: str,
        /,
        *,
        api_version: str,
        kind: str,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        namespace: str | None = None,
    ) -> list[Resource]:
        """Ask for all objects of a kind, those with these labels, or one by name. Empty if none, or not yet."""
        if name is not None and labels is not None:
            raise ValueError(f'requirement "{key}": give a name or labels, not both')
        selector = ResourceSelector(api_version, kind, name, labels, namespace)
        self._requirements.resources[key] = selector
        # A caller from before required resources knows only the older field; one that cannot say gets both.
        if not self.supports(Capability.REQUIRED_RESOURCES):
            self._requirements.extra_resources[key] = selector
        return self.required(key)

    def required(self, key: str) -> list[Resource]:
        """Give what was found for a requirement, of this function or of the step in the composition."""
        plain = self.plain
        found = plain.required_resources.get(key)
        if found is None:
            found = plain.extra_resources.get(key, [])
        return [resource.copy() for resource in found]

    def looked_up(self, key: str) -> bool:
        """Whether the control plane has already looked for a requirement, with or without success."""
        return key in self.plain.required_resources or key in self.plain.extra_resources

    def require_schema(self, key: str, /, *, api_version: str, kind: str) -> Object | None:
        """Ask for the OpenAPI schema of a kind; None if it has none, or not yet."""
        self._requirements.schemas[key] = SchemaSelector(api_version, kind)
        schema = self.plain.required_schemas.get(key)
        return schema.openapi_v3 if schema is not None else None

    def watch(self, *, api_version: str, kind: str, name: str) -> None:
        """Have the function run again when this object changes. Control planes that do not know of it ignore it."""
        self._requirements.watch_resources.append(ResourceRef(api_version, kind, name))
