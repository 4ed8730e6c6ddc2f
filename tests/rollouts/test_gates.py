"""Measurements of gates against real servers and the real engine: four verdicts, and never one for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

from planform.api.authors import AUTHOR_ANNOTATION, Author, encode_author
from planform.api.names import OPERATION
from planform.client.protocol import Client
from planform.client.rights import Access
from planform.client.web_requests import Reach
from planform.clock import SystemClock
from planform.errors import Forbidden
from planform.operations.controller import OperationController
from planform.reconcile.context import ControllerContext
from planform.rollouts.gates.background import open_measurements
from planform.rollouts.gates.measurements import Measurement, Verdict
from planform.rollouts.gates.measuring import measure
from planform.rollouts.gates.runs import run_name
from tests.controllers.operating import Calls, fatal, pipeline, pipelines
from tests.harness.contexts import embedded_context, eventually
from tests.rollouts.gating import ROLLOUT, Site, facts, gate, secret, site, tools, xr


@pytest.fixture
async def context() -> AsyncIterator[ControllerContext]:
    async with embedded_context() as opened:
        yield opened


@pytest.fixture
async def server() -> AsyncIterator[Site]:
    async with site() as served:
        yield served


def said(found: Measurement) -> tuple[str, str]:
    return found.verdict.value, found.value


# -- the XRs themselves


@pytest.mark.parametrize(
    ("expression", "verdict", "message"),
    [
        ("wave.xrs.all(x, has(x.status.endpoint))", "Failed", "asked of 2 XRs"),
        ("wave.xrs.exists(x, has(x.status.endpoint))", "Passed", "asked of 2 XRs"),
        ("wave.name == 'canary' && wave.part == 0", "Passed", ""),
        ("wave.xrs.all(x, x.status.endpoint != '')", "Error", "no such key: endpoint"),
        ("wave.xrs.size()", "Error", "must give true or false"),
        ("wave.xrs.all(x", "Error", "Syntax error"),
        ("waves.size() > 0", "Error", "undeclared reference"),
    ],
)
async def test_xrs_are_asked_by_cel(context: ControllerContext, expression: str, verdict: str, message: str) -> None:
    wave = facts(xr("a", endpoint="db"), xr("b"))
    found = await measure(gate(cel=expression), wave, tools(context.client, context.clock))
    assert found.verdict == verdict
    assert message.lower() in found.message.lower()


async def test_nobody_and_whoever_has_not_settled_prove_nothing(context: ControllerContext) -> None:
    on = tools(context.client, context.clock)
    of = gate(cel="wave.xrs.all(x, has(x.status.endpoint))")
    assert (await measure(of, facts(), on)).verdict == Verdict.INCONCLUSIVE
    unsettled = await measure(of, facts(xr("a", endpoint="db"), unsettled=3), on)
    assert (unsettled.verdict, unsettled.message) == (
        Verdict.INCONCLUSIVE,
        "3 XRs have not settled since they were moved",
    )


async def test_an_expression_over_many_xrs_leaves_the_event_loop_and_one_that_costs_too_much_ends(
    context: ControllerContext,
) -> None:
    on = tools(context.client, context.clock)
    many = facts(*(xr(f"x{number}", endpoint="db") for number in range(1000)))
    found = await measure(gate(cel="wave.xrs.all(x, x.status.endpoint == 'db')"), many, on)
    assert said(found) == ("Passed", "true")
    costly = "wave.xrs.all(x, wave.xrs.all(y, wave.xrs.exists(z, z.metadata.name == x.metadata.name)))"
    late = 0.0
    measuring = asyncio.ensure_future(measure(gate(cel=costly), many, on))
    clock = asyncio.get_running_loop().time
    while not measuring.done():
        before = clock()
        await asyncio.sleep(0.01)
        late = max(late, clock() - before)
    found = await measuring
    assert found.verdict == Verdict.ERROR
    assert late < 1.0, "the loop stood still"


# -- HTTP


async def test_an_answer_of_200_passes_and_another_fails(context: ControllerContext, server: Site) -> None:
    on = tools(context.client, context.clock)
    assert said(await measure(gate(http={"url": f"{server.url}/ok"}), facts(), on)) == ("Passed", "200")

    async def down(_: web.Request) -> web.Response:
        return web.Response(status=503, text="no")

    server.answer = down
    assert said(await measure(gate(http={"url": f"{server.url}/ok"}), facts(), on)) == ("Failed", "503")
    expected = gate(http={"url": f"{server.url}/ok", "success": "response.status == 503 && response.body == 'no'"})
    assert said(await measure(expected, facts(), on)) == ("Passed", "503")


async def test_a_service_is_told_what_it_decides_about(context: ControllerContext, server: Site) -> None:
    asked = gate(
        http={
            "url": f"{server.url}/cab?board=1",
            "method": "POST",
            "headers": [{"name": "X-Team", "value": "db"}],
            "success": "response.body.ok",
        }
    )
    found = await measure(asked, facts(counts={"xrs": 5}), tools(context.client, context.clock))
    assert (found.verdict, found.query) == (Verdict.PASSED, f"POST {server.url}/cab")
    [(method, path, headers, body)] = server.heard
    assert (method, path, headers["X-Team"]) == ("POST", "/cab?board=1", "db")
    assert body == b'{"rollout":"db-r7","wave":"canary","part":0,"since":"2026-01-01T00:00:00Z","counts":{"xrs":5}}'


async def test_a_slow_service_is_an_error_after_the_timeout(context: ControllerContext, server: Site) -> None:
    async def never(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    server.answer = never
    of = gate(http={"url": server.url}, timeout="1s")
    async with asyncio.timeout(20):
        found = await measure(of, facts(), tools(context.client, context.clock))
    assert found.verdict == Verdict.ERROR
    assert "took longer than 1 s" in found.message


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(
            lambda: web.Response(status=302, headers={"Location": "http://169.254.169.254/latest"}),
            "",
            id="a redirect is not followed",
        ),
        pytest.param(lambda: web.Response(body=b"x" * (2 << 20)), "larger than 1048576 bytes", id="too large"),
    ],
)
async def test_an_answer_cannot_lead_elsewhere_or_flood(
    context: ControllerContext, server: Site, answer: Any, message: str
) -> None:
    async def respond(_: web.Request) -> Any:
        return answer()

    server.answer = respond
    found = await measure(gate(http={"url": server.url}), facts(), tools(context.client, context.clock))
    assert found.verdict in (Verdict.ERROR, Verdict.FAILED)
    assert message in found.message
    assert len(server.heard) == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/",
        "http://localhost:1/",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]:1/",
        "http://10.0.0.1/",
        "http://0x7f.1/",
        "http://[::ffff:169.254.169.254]/",
    ],
)
async def test_what_the_operator_did_not_open_is_not_called(context: ControllerContext, url: str) -> None:
    closed = tools(context.client, context.clock, reach=Reach(whose="rollouts", opened_by="--rollout-addresses"))
    for asked in (gate(http={"url": url}), gate(prometheus={"address": url, "query": "up", "success": "true"})):
        found = await measure(asked, facts(), closed)
        assert found.verdict == Verdict.ERROR
        assert "is no public address" in found.message


async def test_credentials_come_from_a_secret_and_show_nowhere(context: ControllerContext, server: Site) -> None:
    await context.client.create(secret("prom", token="s3cr3t-t0k3n"))
    await context.client.create(secret("pair", username="u", password="s3cr3t-t0k3n"))
    await context.client.create(secret("none", key="s3cr3t-t0k3n"))
    on = tools(context.client, context.clock)

    async def echo(request: web.Request) -> web.Response:
        return web.Response(status=401, text=request.headers["Authorization"])

    server.answer = echo
    for name, header in (("prom", "Bearer s3cr3t-t0k3n"), ("pair", "Basic dTpzM2NyM3QtdDBrM24=")):
        asked = gate(http={"url": server.url, "secretRef": {"namespace": "default", "name": name}})
        found = await measure(asked, facts(), on)
        assert server.heard[-1][2]["Authorization"] == header
        assert said(found) == ("Failed", "401")
        assert "s3cr3t" not in repr(found)
        assert header.partition(" ")[2] not in repr(found)
    for name, message in (("none", 'neither "token"'), ("missing", "is not there")):
        found = await measure(
            gate(http={"url": server.url, "secretRef": {"namespace": "default", "name": name}}), facts(), on
        )
        assert found.verdict == Verdict.ERROR
        assert message in found.message


class Nobody:
    """Rights of somebody who has none."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def acting(self, author: Author, /) -> Client:
        raise Forbidden(f'"{author.user}" cannot get secrets')

    async def allows(self, author: Author, access: Access, /) -> bool:
        return False


async def test_a_gate_can_do_no_more_than_the_author_of_its_policy(context: ControllerContext, server: Site) -> None:
    await context.client.create(secret("prom", token="s3cr3t"))
    mallory = {AUTHOR_ANNOTATION: encode_author(Author("mallory"))}
    rollout = {**ROLLOUT, "metadata": {**ROLLOUT["metadata"], "annotations": mallory}}
    on = tools(context.client, context.clock, rights=Nobody(context.client))
    asked = gate(http={"url": server.url, "secretRef": {"namespace": "default", "name": "prom"}})
    found = await measure(asked, facts(rollout=rollout), on)
    assert found.verdict == Verdict.ERROR
    assert "rights of the policy's author" in found.message
    assert not server.heard
    found = await measure(gate(operation={"template": {"spec": pipeline("probe")}}), facts(rollout=rollout), on)
    assert found.verdict == Verdict.ERROR
    assert '"mallory", who wrote the policy, cannot create operations' in found.message
    assert not (await context.client.list(OPERATION)).items


# -- what is run


@pytest.fixture
async def rollout(context: ControllerContext) -> Any:
    """Something that a run may belong to; gates ask no more of a Rollout."""
    return await context.client.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "db-r7", "namespace": "default"}}
    )


async def test_an_operation_that_succeeds_passes_and_is_gone_afterwards(
    context: ControllerContext, rollout: Any
) -> None:
    probe = Calls("probe")
    OperationController(context, pipelines(context, probe)).start()
    of = gate(operation={"template": {"metadata": {"labels": {"a": "b"}}, "spec": pipeline("probe")}})
    found = await measure(of, facts(rollout=rollout), tools(context.client, context.clock))
    assert said(found) == ("Passed", "Succeeded")
    assert len(probe.requests) == 1
    assert not (await context.client.list(OPERATION)).items


async def test_an_operation_that_fails_for_good_fails_the_gate_and_says_why(
    context: ControllerContext, rollout: Any
) -> None:
    OperationController(context, pipelines(context, Calls("probe", fatal("port 5432 is closed")))).start()
    spec = {**pipeline("probe"), "retryLimit": 1}
    found = await measure(
        gate(operation={"template": {"spec": spec}}), facts(rollout=rollout), tools(context.client, context.clock)
    )
    assert found.verdict == Verdict.FAILED
    assert "port 5432 is closed" in found.message


async def test_an_operation_that_never_ends_is_an_error_and_is_deleted(
    context: ControllerContext, rollout: Any
) -> None:
    of = gate(operation={"template": {"spec": pipeline("nobody")}}, timeout="1s")
    found = await measure(of, facts(rollout=rollout), tools(context.client, context.clock))
    assert found.verdict == Verdict.ERROR
    assert "did not end within 1 s" in found.message
    assert not (await context.client.list(OPERATION)).items


async def test_after_a_restart_the_same_operation_is_found_again(context: ControllerContext, rollout: Any) -> None:
    of = gate(operation={"template": {"spec": pipeline("probe")}})
    on, wave = tools(context.client, context.clock), facts(rollout=rollout)
    killed = asyncio.ensure_future(measure(of, wave, on))
    [before] = await eventually(lambda: _operations(context), "the Operation")
    killed.cancel()
    await asyncio.gather(killed, return_exceptions=True)
    probe = Calls("probe")
    OperationController(context, pipelines(context, probe)).start()
    assert (await measure(of, wave, on)).verdict == Verdict.PASSED
    assert before["metadata"]["name"] == run_name(of, wave)
    assert len(probe.requests) == 1
    assert run_name(of, replace(wave, number=1)) != run_name(of, wave)
    assert run_name(of, replace(wave, since=wave.since + timedelta(seconds=1))) != run_name(of, wave)


async def _operations(context: ControllerContext) -> list[Any]:
    return (await context.client.list(OPERATION)).items


async def test_a_job_needs_kubernetes(context: ControllerContext) -> None:
    of = gate(job={"namespace": "default", "template": {"spec": {"template": {}}}})
    found = await measure(of, facts(), tools(context.client, context.clock))
    assert (found.verdict, found.message) == (
        Verdict.ERROR,
        "Jobs run on Kubernetes only; an `operation` gate runs here, too",
    )


# -- beside the loop


async def test_measurements_are_taken_in_the_background_once_and_wake_their_rollout(
    context: ControllerContext, server: Site
) -> None:
    woken: asyncio.Queue[str] = asyncio.Queue()
    gone = asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        await gone.wait()
        return web.Response()

    server.answer = slow
    of, wave = gate(http={"url": server.url}), facts()
    async with open_measurements(tools(context.client, context.clock), woken.put_nowait) as measurements:
        assert measurements.ask(of, wave) is None
        assert measurements.ask(of, wave) is None, "it is being taken"
        gone.set()
        assert await asyncio.wait_for(woken.get(), 10) == "db-r7"
        found = measurements.ask(of, wave)
        assert found is not None
        assert found.verdict == Verdict.PASSED
        assert len(server.heard) == 1
        assert measurements.ask(of, replace(wave, number=1)) is None, "the next one is another"
        await asyncio.wait_for(woken.get(), 10)


async def test_an_abort_ends_what_is_being_measured_and_deletes_what_runs(
    context: ControllerContext, rollout: Any
) -> None:
    of = gate(operation={"template": {"spec": pipeline("nobody")}})
    async with open_measurements(tools(context.client, context.clock), lambda _: None) as measurements:
        assert measurements.ask(of, facts(rollout=rollout)) is None
        await eventually(lambda: _operations(context), "the Operation")
        async with asyncio.timeout(5):
            await measurements.end(rollout)
        assert not await _operations(context)


async def test_the_real_clock_is_asked_when_a_measurement_is_taken(context: ControllerContext, server: Site) -> None:
    before = SystemClock().now()
    found = await measure(gate(http={"url": server.url}), facts(), tools(context.client, SystemClock()))
    assert found.at >= before
