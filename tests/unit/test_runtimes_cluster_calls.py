"""Calls of revisions whose pods end, move or are not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from planform.clock import VirtualClock
from planform.functions.endpoints import Remote
from planform.functions.errors import FunctionCrashed, FunctionError, FunctionUnavailable
from planform.functions.runner import FunctionRevision
from planform.functions.values import FunctionRequest, FunctionResponse
from planform.packages.runtimes.cluster_calls import ClusterRunner
from planform.packages.runtimes.host import RuntimeStatus

REVISION = FunctionRevision("fn", "fn-1", "digest")


class Calls:
    """Pods as their watch knows them, and the functions in them: each call has an outcome of the test's."""

    def __init__(self, *outcomes: Callable[[Calls], None], runs_here: bool = True) -> None:
        self.outcomes = list(outcomes)
        self.runs_here = runs_here
        self.target = "ipv4:10.0.0.1:9443"
        self.counted: list[int] = []
        self.waits = 0
        self.no_network = ""
        self._under_way = 0

    def runtime_status(self, revision: str) -> RuntimeStatus | None:
        return RuntimeStatus(ready=True) if self.runs_here else None

    def remote(self, revision: str) -> Remote | None:
        return Remote(self.target)

    def why_no_network(self, revision: str) -> str:
        return self.no_network

    @contextmanager
    def calling(self, revision: str) -> Iterator[None]:
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    async def answering(self, revision: str, seconds: float) -> None:
        self.waits += 1

    async def run(self, revision: FunctionRevision, request: FunctionRequest, /, *, timeout: float) -> FunctionResponse:
        self.counted.append(self._under_way)
        self.outcomes.pop(0)(self)
        return FunctionResponse()


def answers(_: Calls) -> None:
    """It works."""


def crashes(_: Calls) -> None:
    raise FunctionCrashed("the connection ended before the answer", revision=REVISION)


def is_gone(_: Calls) -> None:
    raise FunctionUnavailable("nobody answers at its endpoint", revision=REVISION)


def has_moved(calls: Calls) -> None:
    calls.target = "ipv4:10.0.0.2:9443"
    is_gone(calls)


async def call(calls: Calls) -> None:
    await ClusterRunner(calls, calls, VirtualClock()).run(REVISION, FunctionRequest(tag="t"), timeout=5)


async def test_a_failed_call_of_a_function_without_network_names_the_setting() -> None:
    calls = Calls(is_gone)
    calls.no_network = "the control plane runs with --function-network=none"
    with pytest.raises(FunctionUnavailable, match=r"without network: .* --function-network=none"):
        await call(calls)


@pytest.mark.parametrize(
    ("outcomes", "error"),
    [
        ([answers], None),
        ([crashes, answers], None),
        ([crashes, crashes], FunctionCrashed),
        ([has_moved, answers], None),
        ([is_gone], FunctionUnavailable),
    ],
    ids=["works", "crashed-once", "crashes-always", "moved", "gone"],
)
async def test_a_call_is_repeated_once_if_its_pod_ended_or_moved(
    outcomes: list[Callable[[Calls], None]], error: type[FunctionError] | None
) -> None:
    calls = Calls(*outcomes)
    if error is None:
        await call(calls)
    else:
        with pytest.raises(error):
            await call(calls)
    assert calls.outcomes == []
    assert calls.counted == [1] * len(outcomes), "nothing is taken away in the middle of it"
    assert calls.waits >= 1


async def test_what_does_not_run_in_the_cluster_is_passed_on_as_it_is() -> None:
    calls = Calls(answers, runs_here=False)
    await call(calls)
    assert (calls.counted, calls.waits) == ([0], 0)
