"""Gates that ask a real Prometheus: values, no data, no number, several series, wrong queries, and none at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from planform.clock import SystemClock
from planform.reconcile.context import ControllerContext
from planform.rollouts.gates.measurements import Measurement
from planform.rollouts.gates.measuring import measure
from tests.harness.contexts import embedded_context
from tests.harness.metrics_target import metrics_target
from tests.harness.processes import free_ports
from tests.harness.prometheus import Prometheus, prometheus
from tests.rollouts.gating import Site, facts, gate, secret, site, tools

METRICS = """
db_errors_total{region="eu"} 2
db_errors_total{region="us"} 8
db_requests_total{region="eu"} 1000
db_requests_total{region="us"} 1000
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with metrics_target(METRICS) as target, prometheus(tmp_path_factory.mktemp("prometheus"), [target]) as running:
        running.until("db_requests_total")
        yield running


@pytest.fixture
async def context() -> AsyncIterator[ControllerContext]:
    async with embedded_context() as opened:
        yield opened


async def ask(context: ControllerContext, address: str, query: str, success: str, **more: Any) -> Measurement:
    of = gate(prometheus={"address": address, "query": query, "success": success, **more}, timeout="3s")
    return await measure(of, facts(), tools(context.client, SystemClock()))


@pytest.mark.programs
@pytest.mark.parametrize(
    ("query", "success", "verdict", "value", "message"),
    [
        pytest.param(
            "sum(db_errors_total)/sum(db_requests_total)", "result < 0.01", "Passed", "0.005", "", id="within"
        ),
        pytest.param(
            "sum(db_errors_total)/sum(db_requests_total)", "result < 0.001", "Failed", "0.005", "", id="beyond"
        ),
        pytest.param("42", "result == 42.0", "Passed", "42", "", id="a scalar"),
        pytest.param("nothing_of_the_kind", "result < 1", "Inconclusive", "", "gave no data", id="no series"),
        pytest.param("sum(nothing) / sum(other)", "result < 1", "Inconclusive", "", "gave no data", id="no quotient"),
        pytest.param("vector(0) / 0", "result < 1", "Inconclusive", "NaN", "no number", id="nought by nought"),
        pytest.param("vector(1) / 0", "result < 1", "Failed", "inf", "", id="infinity is a number"),
        pytest.param(
            "db_errors_total / db_requests_total", "result.all(r, r < 0.1)", "Passed", "0.002, 0.008", "", id="series"
        ),
        pytest.param(
            "db_errors_total", "result < 1", "Error", "2, 8", "gave 2 series, so result is a list", id="no list"
        ),
        pytest.param("sum(rate(", "result < 1", "Error", "", "Prometheus answered 400", id="a wrong query"),
        pytest.param("db_errors_total[5m]", "result < 1", "Error", "", "gives a matrix", id="a range"),
        pytest.param("db_errors_total{region='eu'}", "result", "Error", "2", "true or false", id="no condition"),
    ],
)
async def test_a_query_is_measured(
    context: ControllerContext,
    server: Prometheus,
    query: str,
    success: str,
    verdict: str,
    value: str,
    message: str,
) -> None:
    found = await ask(context, server.address, query, success)
    assert (found.verdict, found.value) == (verdict, value), found
    assert message in found.message
    assert found.query == query


@pytest.mark.programs
async def test_the_threshold_is_shown_without_the_word_result(context: ControllerContext, server: Prometheus) -> None:
    assert (await ask(context, server.address, "vector(1)", "result < 0.01")).threshold == "< 0.01"
    both = "result > 0 && result < 3"
    assert (await ask(context, f"{server.address}/", "vector(1)", both)).threshold == both


@pytest.mark.programs
async def test_a_prometheus_that_died_is_an_error(context: ControllerContext, tmp_path: Path) -> None:
    with prometheus(tmp_path) as running:
        assert (await ask(context, running.address, "vector(1)", "result == 1.0")).verdict == "Passed"
        running.child.stop()
        found = await ask(context, running.address, "vector(1)", "result == 1.0")
    assert found.verdict == "Error"
    assert urlsplit(running.address).netloc in found.message


async def test_nobody_at_the_address_is_an_error(context: ControllerContext) -> None:
    [port] = free_ports(1)
    assert (await ask(context, f"http://127.0.0.1:{port}", "up", "result == 1.0")).verdict == "Error"


async def test_a_prometheus_that_is_slow_or_speaks_otherwise_is_an_error(context: ControllerContext) -> None:
    async with site() as served:
        assert "is not one of Prometheus" in (await ask(context, served.url, "up", "true")).message

        async def never(_: web.Request) -> web.Response:
            await asyncio.sleep(60)
            return web.Response()

        served.answer = never
        assert "took longer than 3 s" in (await ask(context, served.url, "up", "true")).message


async def test_prometheus_is_asked_with_credentials_and_tenant(context: ControllerContext) -> None:
    await context.client.create(secret("prom", token="t0k3n"))
    async with site() as served:
        await ask(
            context,
            served.url,
            "up",
            "true",
            secretRef={"namespace": "default", "name": "prom"},
            headers=[{"name": "X-Scope-OrgID", "value": "db"}],
        )
        assert _last(served) == ("Bearer t0k3n", "db")


def _last(served: Site) -> tuple[str, str]:
    headers = served.heard[-1][2]
    return headers["Authorization"], headers["X-Scope-OrgID"]
