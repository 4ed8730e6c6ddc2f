"""Functions that answer with more than is taken: refused by size before anything is decoded, and nothing stays."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from planform.clock import SystemClock
from planform.functions.endpoints import FixedEndpoints, Remote
from planform.functions.errors import FunctionAnswerTooLarge, FunctionRequestTooLarge
from planform.functions.grpc_transport import GrpcRunner
from planform.functions.refusals import RefusalCountingRunner
from planform.functions.resolution import Catalogue, Version
from planform.functions.runner import FunctionRunner
from planform.functions.values import Resource, State
from planform.memory import IdleCollector, collect_seldom, resident_bytes
from planform.pipeline.pipeline import PipelineOutcome, resolver_for, run_pipeline
from planform.pipeline.steps import parse_pipeline
from planform.telemetry.metrics import MetricsRegistry
from tests.faults.test_function_faults import Nothing
from tests.harness.function_server import FunctionServer, function_server

HUGE = 50 << 20
ALLOWED = 64 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FunctionServer]:
    with function_server(tmp_path_factory.mktemp("fn"), "fn", "--max-receive", str(4 << 20)) as server:
        yield server


@pytest.fixture
def metrics() -> MetricsRegistry:
    return MetricsRegistry()


@pytest.fixture
async def runner(server: FunctionServer, metrics: MetricsRegistry) -> AsyncIterator[GrpcRunner]:
    async with GrpcRunner(FixedEndpoints({"fn": Remote(server.target)}), metrics=metrics) as runner:
        yield runner


@pytest.fixture
def searches() -> Iterator[IdleCollector]:
    """Cycles are searched as a control plane does it."""
    thresholds = gc.get_threshold()
    collect_seldom()
    yield IdleCollector()
    gc.unfreeze()
    gc.set_threshold(*thresholds)


async def run(runner: FunctionRunner, *, limit: int | None = None, resources: int = 1, **mode: Any) -> PipelineOutcome:
    version = Version("fn", "fn-1") if limit is None else Version("fn", "fn-1", max_answer_size=limit)
    step = {"step": "ask", "functionRef": {"name": "fn"}, "timeout": "30s"}
    if mode:
        step["input"] = {"apiVersion": "t/v1", "kind": "Mode", **mode}
    bucket = {"apiVersion": "v1", "kind": "Bucket", "spec": {"text": "x" * 10_000}}
    return await run_pipeline(
        parse_pipeline({"pipeline": [step]}),
        observed=State(Resource({"apiVersion": "t/v1", "kind": "XR", "metadata": {"name": "xr", "uid": "xr"}})),
        desired=State(resources={f"bucket-{n}": Resource(bucket) for n in range(resources)}),
        resolver=resolver_for(Catalogue([version])),
        runner=runner,
        reader=Nothing(),
        clock=SystemClock(),
    )


async def refuse(runner: FunctionRunner, searches: IdleCollector, times: int) -> int:
    """How much larger this process is after so many refused answers, all of whose outcomes somebody keeps."""
    assert (await run(runner)).failure is None
    gc.collect()
    before = resident_bytes()
    kept = []
    for _ in range(times):
        outcome = await run(runner, mode="babble", size=HUGE)
        assert type(outcome.failure) is FunctionAnswerTooLarge
        kept.append(outcome)
    searches.when_idle()
    assert len(kept) == times
    return resident_bytes() - before


async def test_twenty_refused_answers_of_50_mb_leave_nothing_behind(
    runner: GrpcRunner, searches: IdleCollector
) -> None:
    assert await refuse(runner, searches, 20) < ALLOWED


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_a_thousand_refused_answers_of_50_mb_leave_nothing_behind(
    runner: GrpcRunner, searches: IdleCollector
) -> None:
    assert await refuse(runner, searches, 1000) < ALLOWED


async def test_an_answer_beyond_the_limit_names_size_limit_and_setting(runner: GrpcRunner) -> None:
    failure = (await run(runner, mode="babble", size=5 << 20)).failure
    assert type(failure) is FunctionAnswerTooLarge
    assert str(failure) == (
        'step "ask": function "fn" (revision "fn-1"): the answer is 5.0 MiB, and at most 4 MiB are taken'
        " (annotation planform.dev/max-answer-size of the Function)"
    )
    assert "planform.dev/max-answer-size" in str(failure.hint)


async def test_a_large_xr_is_told_size_limit_and_setting(runner: GrpcRunner) -> None:
    """The 4.8 MiB of 500 resources are more than this function takes; 350 and something on top more than we take."""
    failure = (await run(runner, resources=350, mode="babble", size=2 << 20)).failure
    assert type(failure) is FunctionAnswerTooLarge
    assert "the answer is 5.4 MiB, and at most 4 MiB are taken" in str(failure)
    refused = (await run(runner, resources=500)).failure
    assert type(refused) is FunctionRequestTooLarge
    assert "the request is 4.8 MiB, and the function takes at most 4 MiB" in str(refused)
    assert "--max-recv-message-size" in str(refused.hint)


async def test_the_limit_is_each_functions_own_and_follows_a_change(runner: GrpcRunner) -> None:
    assert (await run(runner, limit=8 << 20, mode="babble", size=3 << 20)).failure is None
    failure = (await run(runner, limit=1 << 20, mode="babble", size=3 << 20)).failure
    assert "the answer is 3.0 MiB, and at most 1 MiB are taken" in str(failure)
    assert (await run(runner, limit=8 << 20, mode="babble", size=3 << 20)).failure is None


async def test_an_object_no_store_takes_is_judged_before_anything_is_decoded(runner: GrpcRunner) -> None:
    failure = (await run(runner, limit=64 << 20, mode="babble", size=20 << 20)).failure
    assert type(failure) is FunctionAnswerTooLarge
    assert "output is 20.0 MiB, and no object may be larger than 4 MiB" in str(failure)


async def test_refused_calls_are_counted(runner: GrpcRunner, metrics: MetricsRegistry) -> None:
    counting = RefusalCountingRunner(runner, metrics=metrics)
    await run(counting, mode="babble", size=5 << 20)
    await run(counting, limit=64 << 20, mode="babble", size=5 << 20)
    await run(counting, mode="garbage")
    text = metrics.render()
    name = "function_run_function_refused_answers_total"
    labels = 'function_name="fn",function_revision="fn-1"'
    assert f'{name}{{{labels},reason="FunctionAnswerTooLarge"}} 2' in text
    assert f'{name}{{{labels},reason="FunctionAnswerInvalid"}} 1' in text


async def test_an_error_does_not_keep_what_it_is_about(runner: GrpcRunner) -> None:
    """Whoever keeps the outcome of a run keeps its error: neither frames nor causes may hang on it."""
    for mode in ({"mode": "babble", "size": 5 << 20}, {"mode": "garbage"}, {"mode": "broken_object"}):
        failure = (await run(runner, limit=64 << 20, **mode)).failure
        assert failure is not None
        assert failure.__traceback__ is None
        assert failure.__cause__ is None or failure.__cause__.__traceback__ is None
        assert failure.__context__ is None or failure.__context__.__traceback__ is None


def test_memory_is_looked_at_by_bytes(searches: IdleCollector) -> None:
    """Few containers that hold much are worth a search, too."""

    class Knot:
        def __init__(self) -> None:
            self.itself, self.weight = self, b"x" * (96 << 20)

    searches.when_idle()
    before = resident_bytes()
    Knot()
    assert resident_bytes() - before > (90 << 20)
    assert searches.when_idle()
    assert resident_bytes() - before < ALLOWED
    assert not searches.when_idle()


def test_resident_bytes_are_those_of_this_process() -> None:
    status = Path("/proc/self/status").read_text()
    told = int(status.partition("VmRSS:")[2].split()[0]) << 10
    assert abs(resident_bytes() - told) < (8 << 20)
