"""Giving a function what it asks for: call it, read what it requires, call it again, until it asks for nothing new.

Before the first call it gets what the Composition requires for the step (bootstrap) and what it asked for in the XR's
last run (seeds), so that mostly one call is enough. Only the latest requirements are served, and only to the step that
has them. Each further call sees the context of the answer before it; desired state is that of the step's first call.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from planform.clock import Clock
from planform.errors import PlanformError
from planform.functions.calling import Call
from planform.functions.errors import FunctionTimedOut, RequirementDenied, RequirementUnreadable, UnstableRequirements
from planform.functions.read_policy import ReadPolicy, describe
from planform.functions.runner import ResourceReader
from planform.functions.sending import tag_of, without_server_metadata
from planform.functions.values import (
    FunctionRequest,
    FunctionResponse,
    Object,
    Requirements,
    Resource,
    ResourceSelector,
    SchemaSelector,
    WatchedResource,
)

DEFAULT_MAX_ITERATIONS = 5
UNLIMITED = -1

T = TypeVar("T")
_NOTHING = Requirements()
_Key = tuple[str, str, str, tuple[tuple[str, str], ...] | None, str | None]


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """What a Composition requires for a step, by requirement name."""

    resources: Mapping[str, ResourceSelector] = field(default_factory=dict)
    schemas: Mapping[str, SchemaSelector] = field(default_factory=dict)


class RunReader:
    """Reads each selector once per pipeline run, so that all steps and iterations of it see one state of the world."""

    def __init__(self, reader: ResourceReader) -> None:
        self._reader = reader
        self._resources: dict[_Key, list[Resource]] = {}
        self._schemas: dict[SchemaSelector, Object | None] = {}

    async def read(self, selector: ResourceSelector) -> list[Resource]:
        key = _key(selector)
        known = self._resources.get(key)
        if known is None:
            found = await self._reader.read(selector)
            known = self._resources[key] = [Resource(without_server_metadata(each)) for each in found]
        return known

    async def schema(self, selector: SchemaSelector) -> Object | None:
        if selector not in self._schemas:
            self._schemas[selector] = await self._reader.schema(selector)
        return self._schemas[selector]


@dataclass(slots=True)
class _Served:
    """What a step's function is shown of the world; the three maps of a request."""

    required: dict[str, list[Resource]] = field(default_factory=dict)
    extra: dict[str, list[Resource]] = field(default_factory=dict)
    schemas: dict[str, Object | None] = field(default_factory=dict)

    def overlaid(self, other: _Served) -> _Served:
        return _Served(self.required | other.required, self.extra | other.extra, self.schemas | other.schemas)


class RequirementsLoop:
    """The calls of one step. `calls` and `asked` stay readable when `run` raises."""

    def __init__(
        self,
        call: Callable[[FunctionRequest, float], Awaitable[Call]],
        *,
        reader: RunReader,
        policy: ReadPolicy,
        clock: Clock,
        deadline: float,
        observed_digest: bytes,
        bootstrap: Bootstrap = Bootstrap(),  # noqa: B008  # frozen and empty
        seeds: Requirements | None = None,
        max_iterations: int = DEFAULT_MAX_ITERATIONS,
    ) -> None:
        """`call` asks once within that many seconds; `deadline` is on the clock's monotonic time."""
        self._call = call
        self._reader = reader
        self._policy = policy
        self._clock = clock
        self._deadline = deadline
        self._observed_digest = observed_digest
        self._bootstrap = bootstrap
        self._seeds = seeds or _NOTHING
        self._max_iterations = max_iterations
        self._may_watch: set[tuple[str, str, str]] = set()
        self.calls: list[Call] = []
        self.asked: dict[str, ResourceSelector] = {}
        """Everything this step asked for in any iteration, bootstrap included."""

    async def run(self, request: FunctionRequest) -> FunctionResponse:
        """Give the answer of the last call: a fatal one, or one whose requirements were met. The request is taken over:
        what the function is shown goes into it.

        Raises UnstableRequirements, RequirementDenied, RequirementUnreadable, FunctionTimedOut, and what `call` raises.
        """
        base = await self._served_first()
        served, previous = base, None
        while True:
            request.required_resources = served.required
            request.extra_resources = served.extra
            request.required_schemas = served.schemas
            request.tag = tag_of(request, self._observed_digest)
            call = await self._call(request, self._time_left())
            self.calls.append(call)
            response = call.response
            if response.fatal is not None:
                return response
            wanted = response.requirements
            if wanted.empty if previous is None else _same(wanted, previous):
                break
            fetched = base.overlaid(await self._fetch(wanted))
            if previous is None and fetched == served:
                break  # it was sent already all that it asks for
            self._check_may_go_on(wanted)
            served, previous = fetched, wanted
            request = dataclasses.replace(request, context=response.context)
        self._check_watched(response.requirements.watch_resources)
        return response

    async def _served_first(self) -> _Served:
        """What is there before the first call; a name of the Composition wins over a seed."""
        served = _Served()
        seeds, policy = self._seeds, self._policy
        if seeds is _NOTHING and not self._bootstrap.resources and not self._bootstrap.schemas:
            return served
        for name, selector in self._bootstrap.resources.items():
            policy.check_enabled(f'requirement "{name}" ({describe(selector)})')
            served.required[name] = await self._resources(name, selector)
        for name, schema in self._bootstrap.schemas.items():
            policy.check_enabled(f'requirement "{name}" (schema of {schema.kind})')
            served.schemas[name] = await self._schema(name, schema)
        # A seed is a guess: what may not or cannot be read is left out, and the function asks for it if it must.
        for target, selectors in ((served.required, seeds.resources), (served.extra, seeds.extra_resources)):
            for name, selector in selectors.items():
                if name not in target:
                    with suppress(RequirementDenied, RequirementUnreadable):
                        await policy.check(name, selector)
                        target[name] = await self._resources(name, selector)
        for name, schema in seeds.schemas.items():
            if name not in served.schemas and policy.requirements_enabled:
                with suppress(RequirementUnreadable):
                    served.schemas[name] = await self._schema(name, schema)
        return served

    async def _fetch(self, wanted: Requirements) -> _Served:
        """Read what is wanted now. All of it is checked before any of it is read."""
        for selectors in (wanted.resources, wanted.extra_resources):
            for name, selector in selectors.items():
                await self._policy.check(name, selector)
        if wanted.schemas:
            name, schema = next(iter(wanted.schemas.items()))
            self._policy.check_enabled(f'requirement "{name}" (schema of {schema.kind})')
        return _Served(
            {name: await self._resources(name, selector) for name, selector in sorted(wanted.resources.items())},
            {name: await self._resources(name, selector) for name, selector in sorted(wanted.extra_resources.items())},
            {name: await self._schema(name, schema) for name, schema in sorted(wanted.schemas.items())},
        )

    async def _resources(self, name: str, selector: ResourceSelector) -> list[Resource]:
        found = await self._read(name, describe(selector), self._reader.read(selector))
        self.asked[name] = selector
        self._may_watch.update(_identity(each.resource) for each in found)
        if selector.match_name:
            self._may_watch.add((selector.api_version, selector.kind, selector.match_name))
        return found

    async def _schema(self, name: str, selector: SchemaSelector) -> Object | None:
        group, slash, version = selector.api_version.rpartition("/")
        if not version or "/" in group or bool(slash) != bool(group):
            raise RequirementUnreadable(
                f'requirement "{name}" (schema of {selector.kind}): "{selector.api_version}" is no apiVersion',
                hint="one looks like v1 or apps/v1",
            )
        return await self._read(
            name, f"schema of {selector.kind} ({selector.api_version})", self._reader.schema(selector)
        )

    async def _read(self, name: str, what: str, reading: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(max(0.0, self._deadline - self._clock.monotonic())):
                return await reading
        except TimeoutError as error:
            raise RequirementUnreadable(
                f'requirement "{name}" ({what}) could not be read before the step\'s deadline'
            ) from error
        except PlanformError as error:
            raise RequirementUnreadable(
                f'requirement "{name}" ({what}) could not be read: {error.message}', hint=error.hint
            ) from error

    def _time_left(self) -> float:
        left = self._deadline - self._clock.monotonic()
        if left <= 0:
            raise FunctionTimedOut("no answer within the step's deadline")
        return left

    def _check_may_go_on(self, wanted: Requirements) -> None:
        if self._max_iterations == UNLIMITED:
            if self._clock.monotonic() < self._deadline:
                return
            spent = "until the step's deadline"
        elif len(self.calls) <= self._max_iterations:
            return
        else:
            spent = f"in {self._max_iterations} further calls (maxIterations)"
        raise UnstableRequirements(f"did not settle what it requires {spent}; last it asked for {_list(wanted)}")

    def _check_watched(self, watched: list[WatchedResource]) -> None:
        for each in watched:
            if (each.api_version, each.kind, each.name) not in self._may_watch:
                raise RequirementDenied(
                    f'may not watch {each.kind} ({each.api_version}) "{each.name}": this step did not request it',
                    hint="a function may watch only what it requires",
                )


def _same(one: Requirements, other: Requirements) -> bool:
    """Whether both ask for the same; what is to be watched needs no data and so no further call."""
    return (one.resources, one.extra_resources, one.schemas) == (other.resources, other.extra_resources, other.schemas)


def _list(wanted: Requirements) -> str:
    parts = [
        f'"{name}": {describe(each)}' for name, each in sorted((wanted.resources | wanted.extra_resources).items())
    ]
    parts += [f'"{name}": schema of {each.kind} ({each.api_version})' for name, each in sorted(wanted.schemas.items())]
    return "; ".join(parts) or "nothing"


def _identity(obj: Object) -> tuple[str, str, str]:
    metadata = obj.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else ""
    return str(obj.get("apiVersion", "")), str(obj.get("kind", "")), str(name or "")


def _key(selector: ResourceSelector) -> _Key:
    labels = selector.match_labels
    return (
        selector.api_version,
        selector.kind,
        selector.match_name,
        None if labels is None else tuple(sorted(labels.items())),
        selector.namespace,
    )
