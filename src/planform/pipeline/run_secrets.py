"""What is secret in a run, and the mask over all that the run says.

Functions are given credentials, connection details and Secrets, and say what they like: results, conditions, errors,
the end of their standard error. The API server quotes what it refuses. All of that becomes status, events, log lines,
spans and journal, which more people may read than the Secrets. So every text of a run passes one mask, by value, before
it leaves the run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from planform.functions.values import FunctionRequest, Object, Resource, State
from planform.journal.masking import NOTHING_SECRET, RunMask, values_of_secret, values_within

if TYPE_CHECKING:
    from planform.pipeline.pipeline import PipelineOutcome, StepCondition, StepResult, StepTrace


class RunSecrets:
    """The secret values that a run has met so far. The mask is made when something is to be said, and then kept."""

    def __init__(self, observed: State) -> None:
        self._states = [observed]
        self._requests: list[FunctionRequest] = []
        self._credentials: list[Mapping[str, bytes]] = []
        self._searched: dict[int, tuple[Object, tuple[bytes, ...]]] = {}
        """Objects by identity, with what was found within: steps hand most of them on as they are."""
        self._mask: RunMask | None = None

    def sent(self, credentials: Mapping[str, bytes]) -> None:
        self._credentials.append(credentials)
        self._mask = None

    def asked(self, requests: Iterable[FunctionRequest]) -> None:
        """Functions were called with these, and what they required."""
        self._requests += [each for each in requests if each.required_resources or each.extra_resources]
        self._mask = None

    def desired(self, state: State) -> None:
        self._states.append(state)
        self._mask = None

    @property
    def mask(self) -> RunMask:
        if self._mask is None:
            values = self._without_names({*self._held(), *self._wrapped()})
            self._mask = RunMask(values, ()) if values else NOTHING_SECRET
        return self._mask

    def text(self, text: str) -> str:
        return self.mask.text(text) if text else text

    def values(self) -> frozenset[bytes]:
        """Every value but those of Secrets within other objects, which the journal finds by itself."""
        return self._without_names(set(self._held()))

    def _without_names(self, found: set[bytes]) -> frozenset[bytes]:
        """All but those that are names of what the run is about: anybody reads these elsewhere."""
        return frozenset(found - set(self._names())) if found else frozenset()

    def _held(self) -> Iterator[bytes]:
        for credentials in self._credentials:
            yield from credentials.values()
        for resource in self._resources():
            yield from resource.connection_details.values()
            yield from values_of_secret(resource.resource)

    def _wrapped(self) -> Iterator[bytes]:
        """What Secrets hold that other objects wrap, as those do that create manifests elsewhere."""
        for resource in self._resources():
            obj = resource.resource
            known = self._searched.get(id(obj))
            if known is None or known[0] is not obj:
                known = self._searched[id(obj)] = obj, tuple(values_within(obj))
            yield from known[1]

    def _resources(self) -> Iterator[Resource]:
        for state in self._states:
            yield state.composite
            yield from state.resources.values()
        for request in self._requests:
            for group in (*request.required_resources.values(), *request.extra_resources.values()):
                yield from group

    def _names(self) -> Iterator[bytes]:
        for state in self._states:
            yield from (name.encode() for name in state.resources)
            for resource in (state.composite, *state.resources.values()):
                yield from _names_of(resource.resource)


def _names_of(obj: Object) -> Iterator[bytes]:
    metadata = obj.get("metadata")
    for field in ("name", "namespace", "uid"):
        name = metadata.get(field) if isinstance(metadata, dict) else None
        if isinstance(name, str):
            yield name.encode()


def mask_of(outcome: PipelineOutcome) -> RunMask:
    """For what is said of a run after it."""
    return outcome.secrets.mask if outcome.secrets is not None else NOTHING_SECRET


def masked_results(results: Iterable[StepResult], mask: RunMask) -> tuple[StepResult, ...]:
    return tuple(
        msgspec.structs.replace(each, result=_with_text(each.result, mask, "message", "reason")) for each in results
    )


def masked_conditions(conditions: Iterable[StepCondition], mask: RunMask) -> tuple[StepCondition, ...]:
    return tuple(
        msgspec.structs.replace(each, condition=_with_text(each.condition, mask, "message", "reason"))
        for each in conditions
    )


def masked_warnings(step: StepTrace, mask: RunMask) -> StepTrace:
    if not step.warnings:
        return step
    return msgspec.structs.replace(step, warnings=tuple(map(mask.text, step.warnings)))


def _with_text(value: Any, mask: RunMask, *fields: str) -> Any:
    changed = {field: text for field in fields if (text := mask.text(getattr(value, field))) != getattr(value, field)}
    if not changed:
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **changed)
    return msgspec.structs.replace(value, **changed)
