"""Test functions without a control plane: build a request in a line, run, say what must be in the answer.

    def test_the_bucket_is_in_the_region_of_the_xr():
        response = run(buckets, xr={"spec": {"region": "eu"}})
        assert_resource(response, "bucket", {"spec": {"region": "eu"}})

    def test_it_settles():
        assert converge(buckets, xr={"spec": {"region": "eu"}}).ready == {"bucket"}

Requests and responses pass through their encoding, so what a control plane would see is what the test sees.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planform_sdk.functions import Function
from planform_sdk.resource import copy_object
from planform_sdk.types import (
    ENVIRONMENT,
    Capability,
    Object,
    RequestMeta,
    Resource,
    ResourceMap,
    ResourceSelector,
    RunFunctionRequest,
    RunFunctionResponse,
    Schema,
    Severity,
    State,
)
from planform_sdk.wire import Codec

MAX_CALLS = 6  # one, and five more while the requirements change

Simulation = Callable[[str, Object, int], Object | None]


def request(
    xr: Object | None = None,
    *,
    observed: Mapping[str, Object | Resource] | None = None,
    desired: Mapping[str, Object | Resource] | None = None,
    desired_xr: Object | None = None,
    input: Object | None = None,
    context: Object | None = None,
    environment: Object | None = None,
    credentials: Mapping[str, Mapping[str, bytes]] | None = None,
    required: Mapping[str, Object | Sequence[Object]] | None = None,
    schemas: Mapping[str, Object | None] | None = None,
    tag: str = "test",
    capabilities: Sequence[Capability] = tuple(Capability)[1:],
) -> RunFunctionRequest:
    """Build a request. Whatever is not said is empty, and the caller supports all there is."""
    context = dict(context or {})
    if environment is not None:
        context[ENVIRONMENT] = environment
    return RunFunctionRequest(
        meta=RequestMeta(tag, list(capabilities)),
        observed=State(Resource(xr or {}), _resources(observed)),
        desired=State(Resource(desired_xr or {}), _resources(desired)),
        input=input,
        context=context,
        credentials={name: dict(data) for name, data in (credentials or {}).items()},
        required_resources={
            name: [Resource(each) for each in ([found] if isinstance(found, dict) else found)]
            for name, found in (required or {}).items()
        },
        required_schemas={name: Schema(schema) for name, schema in (schemas or {}).items()},
    )


def run(
    function: Function,
    given: RunFunctionRequest | None = None,
    /,
    *,
    cluster: Sequence[Object] | None = None,
    **fields: Any,
) -> RunFunctionResponse:
    """Run a function on a request, or on what `request(**fields)` makes; from sync tests (others `await f.run(...)`).

    With a `cluster`, a list of objects, what the function requires is looked up there, and it is called again until
    it requires nothing new. Raises DidNotConverge if it never ceases to.
    """
    if given is not None and fields:
        raise TypeError("give a request, or the fields of one, not both")
    return asyncio.run(_run(function, given if given is not None else request(**fields), cluster))


@dataclass(frozen=True)
class Convergence:
    """Where a pipeline came to rest: the last response, what was observed by then, and after how many rounds."""

    response: RunFunctionResponse
    observed: State
    rounds: int

    @property
    def ready(self) -> set[str]:
        """Names of the composed resources that the functions call ready."""
        return {name for name, resource in self.response.desired.resources.items() if resource.ready}


class DidNotConverge(AssertionError):
    """The pipeline still changed its mind at the end."""


def becomes_ready(name: str, desired: Object, round: int) -> Object:
    """What is observed of a resource once it was applied: itself, with a name and the conditions of a healthy one."""
    observed = copy_object(desired)
    observed.setdefault("metadata", {}).setdefault("name", name)
    status = observed.setdefault("status", {})
    status["conditions"] = [{"type": kind, "status": "True", "reason": "Available"} for kind in ("Ready", "Synced")]
    return observed


def converge(
    functions: Function | Sequence[Function],
    given: RunFunctionRequest | None = None,
    /,
    *,
    simulate: Simulation = becomes_ready,
    cluster: Sequence[Object] = (),
    limit: int = 10,
    **fields: Any,
) -> Convergence:
    """Run a pipeline again and again, on what its own answers would lead to, until nothing changes any more.

    After each round, `simulate(name, desired object, round)` says what is observed of each desired resource (None:
    not there yet); the status that the functions want for the XR becomes its status. Raises DidNotConverge after
    `limit` rounds, naming what still changes.
    """
    start = given if given is not None else request(**fields)
    steps = [functions] if isinstance(functions, Function) else list(functions)
    return asyncio.run(_converge(steps, start, simulate, cluster, limit))


def assert_resource(response: RunFunctionResponse, name: str, expected: Object) -> Resource:
    """Say that a desired resource is there and holds at least this; give it."""
    found = response.desired.resources.get(name)
    if found is None:
        there = ", ".join(sorted(response.desired.resources)) or "none"
        raise AssertionError(f'no desired resource "{name}" (there are: {there}){_results(response)}')
    _assert_holds(f'desired resource "{name}"', expected, found.resource)
    return found


def assert_xr(response: RunFunctionResponse, expected: Object) -> None:
    """Say that the desired XR holds at least this, for instance `{"status": {"url": "..."}}`."""
    _assert_holds("desired XR", expected, response.desired.composite.resource)


def assert_result(response: RunFunctionResponse, severity: Severity, containing: str) -> None:
    """Say that there is a result of this severity whose message contains this."""
    if not any(each.severity == severity and containing in each.message for each in response.results):
        raise AssertionError(f'no {severity.name} result with "{containing}"{_results(response) or "; there are none"}')


def differences(expected: Any, actual: Any, path: str = "") -> list[str]:
    """What of `expected` is not in `actual`, a line each.

    Objects may hold more than expected; lists must be as long; anything else must be equal.
    """
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        lines = []
        for key, value in expected.items():
            where = _join(path, str(key))
            lines += (
                differences(value, actual[key], where) if key in actual else [f"{where}: missing, expected {value!r}"]
            )
        return lines
    if isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            return [f"{path}: {len(actual)} items, expected {len(expected)}: {actual!r}"]
        return [
            line
            for index, (one, other) in enumerate(zip(expected, actual, strict=True))
            for line in differences(one, other, f"{path}[{index}]")
        ]
    same = expected == actual and isinstance(expected, bool) == isinstance(actual, bool)
    return [] if same else [f"{path or 'value'}: {actual!r}, expected {expected!r}"]


def _join(path: str, key: str) -> str:
    simple = not set(key) & set(".[]/")
    return f"{path}.{key}".lstrip(".") if simple else f"{path}[{key}]"


def _assert_holds(what: str, expected: Object, actual: Object) -> None:
    lines = differences(expected, actual)
    if lines:
        raise AssertionError("\n  ".join([f"{what} is not as expected:", *lines]))


def _results(response: RunFunctionResponse) -> str:
    lines = [f"{each.severity.name}: {each.message}" for each in response.results]
    return "\n  ".join(["; results:", *lines]) if lines else ""


def _resources(given: Mapping[str, Object | Resource] | None) -> ResourceMap:
    resources = ResourceMap()
    for name, value in (given or {}).items():
        resources[name] = value
    return resources


async def _run(function: Function, given: RunFunctionRequest, cluster: Sequence[Object] | None) -> RunFunctionResponse:
    codec = Codec()
    for _ in range(MAX_CALLS):
        sent = codec.decode_request(codec.encode_request(given))
        response = codec.decode_response(codec.encode_response(await function.run(sent)))
        if cluster is None or any(each.severity is Severity.FATAL for each in response.results):
            return response
        wanted = response.requirements
        resources = {name: _find(selector, cluster) for name, selector in wanted.resources.items()}
        extra = {name: _find(selector, cluster) for name, selector in wanted.extra_resources.items()}
        found = {**given.required_resources, **resources}
        if found == given.required_resources and extra == given.extra_resources:
            return response
        given.required_resources, given.extra_resources = found, extra
        given.context = response.context
    raise DidNotConverge(f'function "{function.name}" required something new in each of {MAX_CALLS} calls')


def _find(selector: ResourceSelector, cluster: Sequence[Object]) -> list[Resource]:
    """What a control plane would find, in its order."""
    found = []
    for each in cluster:
        metadata = each.get("metadata", {})
        labels = metadata.get("labels", {})
        if (
            (each.get("apiVersion"), each.get("kind")) == (selector.api_version, selector.kind)
            and selector.namespace in (None, metadata.get("namespace"))
            and selector.match_name in (None, metadata.get("name"))
            and all(labels.get(key) == value for key, value in (selector.match_labels or {}).items())
        ):
            found.append(Resource(copy_object(each)))
    return sorted(found, key=lambda each: (each.get("metadata.namespace", ""), each.name))


async def _converge(
    steps: Sequence[Function],
    start: RunFunctionRequest,
    simulate: Simulation,
    cluster: Sequence[Object],
    limit: int,
) -> Convergence:
    observed, last = start.observed.copy(), None
    changed: list[str] = []
    for round in range(1, limit + 1):
        response = await _run_steps(steps, start, observed, cluster)
        if any(each.severity is Severity.FATAL for each in response.results):
            return Convergence(response, observed, round)
        following = _simulated(observed, response.desired, simulate, round)
        missing = sorted(response.desired.resources.keys() - following.resources.keys())
        if last is not None and not missing and response.desired == last.desired and following == observed:
            return Convergence(response, observed, round)
        changed = _changes(last.desired if last else State(), response.desired) + _changes(observed, following)
        changed += [f'resource "{name}" is not there' for name in missing]
        observed, last = following, response
    raise DidNotConverge("\n  ".join([f"still changing after {limit} rounds:", *dict.fromkeys(changed)]))


async def _run_steps(
    steps: Sequence[Function], start: RunFunctionRequest, observed: State, cluster: Sequence[Object]
) -> RunFunctionResponse:
    desired, context = start.desired, start.context
    for step in steps:
        given = RunFunctionRequest(
            meta=start.meta,
            observed=observed.copy(),
            desired=desired,
            input=start.input,
            context=context,
            credentials=start.credentials,
            required_resources=dict(start.required_resources),
            required_schemas=start.required_schemas,
        )
        response = await _run(step, given, cluster)
        desired, context = response.desired, response.context
        if any(each.severity is Severity.FATAL for each in response.results):
            break
    return response


def _simulated(observed: State, desired: State, simulate: Simulation, round: int) -> State:
    xr = observed.composite.copy()
    if status := desired.composite.resource.get("status"):
        xr.merge({"status": copy_object(status)})
    resources = ResourceMap()
    for name, resource in desired.resources.items():
        seen = simulate(name, copy_object(resource.resource), round)
        if seen is not None:
            resources[name] = seen
    return State(xr, resources)


def _changes(before: State, after: State) -> list[str]:
    """What differs between two states, by name."""
    names = sorted(before.resources.keys() | after.resources.keys())
    changed = [f'resource "{name}"' for name in names if before.resources.get(name) != after.resources.get(name)]
    return (["XR"] if before.composite != after.composite else []) + changed
