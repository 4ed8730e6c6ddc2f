"""Gates that ask by HTTP: any service, and Prometheus."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

import orjson

from planform.api.references import SecretRef
from planform.api.rollout_gates import Header, HttpGate, PrometheusGate
from planform.client.guarded_http import send
from planform.client.web_requests import Answer, RequestFailed, WebRequest, shown
from planform.clock import timestamp
from planform.rollouts.gates.expressions import ExpressionFailed
from planform.rollouts.gates.measurements import Measurement, Verdict, WaveFacts, short
from planform.rollouts.gates.tools import GateTools, SecretUnusable, credentials

MAX_BYTES: Final = 1 << 20
MAX_SERIES: Final = 1000
_OK: Final = "response.status >= 200 && response.status < 300"
_COMPARISON: Final = re.compile(r"\s*result\s*((?:<=?|>=?|==|!=)\s*[^&|?]+?)\s*")


async def ask_prometheus(gate: PrometheusGate, facts: WaveFacts, tools: GateTools, *, seconds: float) -> Measurement:
    """One instant query, of now: answers older than the move cannot come back. Never raises but when cancelled."""
    now = tools.clock.now()
    comparison = _COMPARISON.fullmatch(gate.success)
    measured = _Measured(now, query=gate.query, threshold=comparison[1] if comparison else gate.success)
    request = {"query": gate.query, "time": f"{now.timestamp():.3f}", "timeout": f"{seconds:g}s"}
    try:
        answer = await _send(
            tools,
            facts,
            url=f"{gate.address.rstrip('/')}/api/v1/query",
            method="POST",
            body=urlencode(request).encode(),
            headers={"Content-Type": "application/x-www-form-urlencoded", **_headers(gate.headers or ())},
            secret=gate.secret_ref or None,
            ca_bundle=gate.ca_bundle or "",
            seconds=seconds,
        )
        found = _values(answer)
    except (RequestFailed, SecretUnusable, _NoAnswer) as error:
        return measured(Verdict.ERROR, message=str(error))
    if not found:
        return measured(Verdict.INCONCLUSIVE, message="the query gave no data")
    if any(math.isnan(value) for value in found):
        return measured(Verdict.INCONCLUSIVE, value="NaN", message="the query gave what is no number")
    value = ", ".join(f"{each:.6g}" for each in found)
    try:
        good = await tools.expressions.holds(gate.success, {"result": found[0] if len(found) == 1 else found})
    except ExpressionFailed as error:
        several = f" (the query gave {len(found)} series, so result is a list)" if len(found) > 1 else ""
        return measured(Verdict.ERROR, value=value, message=f"{error}{several}")
    return measured(Verdict.PASSED if good else Verdict.FAILED, value=value)


async def ask_http(gate: HttpGate, facts: WaveFacts, tools: GateTools, *, seconds: float) -> Measurement:
    """One request. Never raises but when cancelled."""
    success = gate.success or _OK
    method = gate.method or "GET"
    measured = _Measured(tools.clock.now(), query=f"{method} {shown(gate.url)}", threshold=success)
    headers = _headers(gate.headers or ())
    body: bytes | None = None
    if method in ("POST", "PUT"):
        body = gate.body.encode() if gate.body else orjson.dumps(_described(facts))
        if "content-type" not in {name.lower() for name in headers}:
            headers["Content-Type"] = "application/json"
    try:
        answer = await _send(
            tools,
            facts,
            url=gate.url,
            method=method,
            body=body,
            headers=headers,
            secret=gate.secret_ref or None,
            ca_bundle=gate.ca_bundle or "",
            seconds=seconds,
        )
    except (RequestFailed, SecretUnusable) as error:
        return measured(Verdict.ERROR, message=str(error))
    response = {"status": answer.status, "headers": dict(answer.headers), "body": _body(answer.body)}
    value = str(answer.status)
    try:
        good = await tools.expressions.holds(success, {"response": response}, large=len(answer.body) > 16384)
    except ExpressionFailed as error:
        return measured(Verdict.ERROR, value=value, message=str(error))
    return measured(Verdict.PASSED if good else Verdict.FAILED, value=value)


class _NoAnswer(Exception):
    """Prometheus answered, and not with a value."""


class _Measured:
    """A measurement of one moment and question."""

    def __init__(self, at: datetime, *, query: str, threshold: str) -> None:
        self._at, self._query, self._threshold = at, query, threshold

    def __call__(self, verdict: Verdict, *, value: str = "", message: str = "") -> Measurement:
        return Measurement(verdict, self._at, value, self._threshold, self._query, message)


async def _send(
    tools: GateTools,
    facts: WaveFacts,
    *,
    url: str,
    method: str,
    body: bytes | None,
    headers: Mapping[str, str],
    secret: SecretRef | None,
    ca_bundle: str,
    seconds: float,
) -> Answer:
    proof = await credentials(tools, facts.rollout, secret) if secret is not None else {}
    request = WebRequest(
        url=url,
        method=method,
        headers={"User-Agent": "planform", **headers, **proof},
        body=body,
        seconds=seconds,
        max_bytes=MAX_BYTES,
        ca_bundle=ca_bundle,
    )
    return await send(request, tools.reach)


def _values(answer: Answer) -> list[float]:
    """The numbers of an answer of Prometheus. Raises _NoAnswer."""
    try:
        body = orjson.loads(answer.body)
        if answer.status != 200 or body["status"] != "success":
            raise _NoAnswer(f"Prometheus answered {answer.status}: {short(str(body.get('error') or ''), 200)}")
        kind, result = body["data"]["resultType"], body["data"]["result"]
        match kind:
            case "scalar":
                return [float(result[1])]
            case "vector":
                if len(result) > MAX_SERIES:
                    raise _NoAnswer(f"the query gave {len(result)} series: aggregate them, as with sum() or max()")
                return [float(each["value"][1]) for each in result]
    except (orjson.JSONDecodeError, KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        raise _NoAnswer(f"the answer ({answer.status}) is not one of Prometheus") from error
    raise _NoAnswer(f"the query gives a {kind}: a gate needs numbers of one moment, as from rate(...[5m])")


def _headers(given: Iterable[Header]) -> dict[str, str]:
    return {each.name: each.value for each in given}


def _body(content: bytes) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return content.decode(errors="replace")


def _described(facts: WaveFacts) -> dict[str, Any]:
    """What is sent to a service that decides whether a rollout goes on."""
    metadata = facts.rollout.get("metadata") or {}
    return {
        "rollout": metadata.get("name"),
        "wave": facts.wave,
        "part": facts.part,
        "since": timestamp(facts.since),
        "counts": dict(facts.counts),
    }
