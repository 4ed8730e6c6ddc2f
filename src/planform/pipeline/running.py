"""What controllers run pipelines with: functions, and an API server's resources, schemas and Secrets as the pipeline
reads them. One value of it serves XRs and operations alike.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from planform.api.builtin import resolve as builtin_component
from planform.api.builtin import schema_name
from planform.api.kinds import GroupVersionKind, Object, gvk
from planform.api.metadata import name_of, namespace_of
from planform.api.names import CRD, SECRET
from planform.client.informer import list_pages
from planform.client.protocol import Client
from planform.clock import Clock
from planform.errors import NotFound
from planform.features import FeatureGates
from planform.functions.cache import ResponseCache
from planform.functions.errors import CredentialsUnavailable
from planform.functions.resolution import Catalogue, Resolution
from planform.functions.runner import CredentialSource, FunctionRevision, FunctionRunner, ResourceReader
from planform.functions.values import Requirements, ResourceSelector, SchemaSelector, State
from planform.pipeline.pipeline import PipelineOutcome, ReadSettings, StepResolver, resolver_for, run_pipeline
from planform.pipeline.steps import Step

Capability = Literal["composition", "operation"]

_RESOLVED = 2048


@dataclass(frozen=True)
class Pipelines:
    """Everything a controller needs to run a pipeline."""

    resolver: Callable[[Capability], StepResolver]
    """Looks steps up among the functions as they are at that moment; asked once for each run."""
    runner: FunctionRunner
    reader: ResourceReader
    credentials: CredentialSource
    clock: Clock
    cache: ResponseCache | None = None
    ignores_control_plane_fields: Callable[[FunctionRevision, Object | None], bool] = lambda _revision, _input: False
    """Whether a function with this input certainly does not look at what the control plane keeps in the XR."""

    def acting(self, client: Client) -> Pipelines:
        """The same, whose functions read with the rights of this client. Schemas are no secret."""
        reader = _ReaderFor(ClientReader(client), self.reader)
        return replace(self, reader=reader, credentials=SecretCredentials(client))

    async def run(
        self,
        steps: Sequence[Step],
        *,
        observed: State,
        capability: Capability = "composition",
        cached: bool = True,
        reads: ReadSettings = ReadSettings(),  # noqa: B008  (frozen)
        seeds: Mapping[str, Requirements] | None = None,
        context: Object | None = None,
        resolver: StepResolver | None = None,
    ) -> PipelineOutcome:
        """Run the steps in order; the outcome's `failure` says what went wrong. Without `cached` every function is
        asked, whatever it answered before; `resolver` is for those who have resolved the steps already."""
        return await run_pipeline(
            steps,
            observed=observed,
            resolver=resolver or self.resolver(capability),
            runner=self.runner,
            reader=self.reader,
            clock=self.clock,
            credentials=self.credentials,
            cache=self.cache if cached else None,
            reads=reads,
            seeds=seeds,
            context=context,
        )


def resolver_of(catalogue: Callable[[], Catalogue], features: FeatureGates) -> Callable[[Capability], StepResolver]:
    """The `resolver` of Pipelines over a catalogue that changes. While it does not, a fleet's steps, which are the same
    objects again and again, are resolved once."""
    selectors_enabled = features.enabled("FunctionRevisionSelectors")
    current: tuple[Catalogue, dict[Capability, StepResolver]] | None = None

    def resolver(capability: Capability) -> StepResolver:
        nonlocal current
        versions = catalogue()
        if current is None or current[0] is not versions:
            current = versions, {}
        known = current[1]
        if capability not in known:
            fresh = resolver_for(versions, capability=capability, selectors_enabled=selectors_enabled)
            known[capability] = _remembering(fresh)
        return known[capability]

    return resolver


def _remembering(resolve: StepResolver) -> StepResolver:
    """The same resolver, which is asked once for each step. Its answers are its own: a run that began before the
    catalogue changed goes on with the old ones, and must not lend them to runs that came later."""
    known: dict[int, tuple[Step, Resolution]] = {}

    def resolve_step(step: Step) -> Resolution:
        found = known.get(id(step))
        if found is None:
            if len(known) >= _RESOLVED:
                known.clear()
            found = known[id(step)] = (step, resolve(step))  # who is kept cannot lend its id to another
        return found[1]

    return resolve_step


class ClientReader:
    """Reads what functions ask for from an API server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read(self, selector: ResourceSelector, /) -> Sequence[Object]:
        """The objects, sorted by namespace and name; empty if there are none or the kind is not served."""
        wanted = gvk(selector.api_version, selector.kind)
        try:
            kind = await self._client.kind(wanted)
            namespace = (selector.namespace or "") if kind.namespaced else ""
            if not selector.match_name:
                return await self._list(wanted, namespace, selector.match_labels)
            if kind.namespaced and not namespace:
                return []  # a name alone means no object of a kind that lives in namespaces
            return [await self._client.get(wanted, selector.match_name, namespace=namespace)]
        except NotFound:
            return []

    async def _list(self, wanted: GroupVersionKind, namespace: str, labels: Mapping[str, str] | None) -> list[Object]:
        text = ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items()))
        found: list[Object] = []
        async for page in list_pages(self._client, wanted, namespace=namespace, labels=text):
            found += page.items
        return sorted(found, key=_place)

    async def schema(self, selector: SchemaSelector, /) -> Object | None:
        """The OpenAPI v3 schema of a kind with references inlined; None if it is not served.

        A custom kind's is that of its definition, a built-in kind's that of the Kubernetes release we ship.
        """
        wanted = gvk(selector.api_version, selector.kind)
        try:
            kind = await self._client.kind(wanted)
        except NotFound:
            return None
        try:
            definition = await self._client.get(CRD, kind.resource)
        except NotFound:
            return builtin_schema(wanted)
        for version in definition["spec"]["versions"]:
            if version["name"] == wanted.version:
                schema: Object | None = (version.get("schema") or {}).get("openAPIV3Schema")
                return schema
        return None


@dataclass(frozen=True)
class _ReaderFor:
    """Reads objects for somebody, and schemas for anybody."""

    objects: ResourceReader
    schemas: ResourceReader

    async def read(self, selector: ResourceSelector, /) -> Sequence[Object]:
        return await self.objects.read(selector)

    async def schema(self, selector: SchemaSelector, /) -> Object | None:
        return await self.schemas.schema(selector)


class SecretCredentials:
    """Reads the Secrets that steps send to their functions, anew each time, so that a rotated one counts at once."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read(self, namespace: str, name: str, /) -> Mapping[str, bytes] | None:
        """What the Secret holds; None if there is none."""
        try:
            secret = await self._client.get(SECRET, name, namespace=namespace)
        except NotFound:
            return None
        try:
            return {key: base64.b64decode(value, validate=True) for key, value in (secret.get("data") or {}).items()}
        except (binascii.Error, TypeError, ValueError) as error:
            raise CredentialsUnavailable(
                f'the data of Secret "{name}" in namespace "{namespace}" is not base64'
            ) from error


def _place(obj: Object) -> tuple[str, str]:
    return namespace_of(obj), name_of(obj)


@cache
def builtin_schema(wanted: GroupVersionKind) -> Object | None:
    """That of a kind that Kubernetes has itself, with references inlined; None of any other."""
    try:
        schema: Object = _inlined(builtin_component(schema_name(wanted)), ())
    except KeyError:
        return None
    return schema


def _inlined(schema: Any, above: tuple[str, ...]) -> Any:
    """The schema with what it refers to in place; where it would contain itself, it says only that there is more."""
    if isinstance(schema, list):
        return [_inlined(item, above) for item in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if not isinstance(reference, str):  # a schema of schemas has a property of that name
        return {key: _inlined(value, above) for key, value in schema.items()}
    if reference in above:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return _inlined(builtin_component(reference), (*above, reference))
