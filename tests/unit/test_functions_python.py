"""The inline Python function: what scripts can do, and that whatever they do wrong ends in a fatal result."""

from __future__ import annotations

from typing import Any

import pytest

from planform.builtin.python import InlinePython, function
from planform.functions.errors import FunctionAnswerTooLarge
from planform.functions.values import FunctionRequest, FunctionResponse, Ready, Resource, State
from planform.sandbox import Isolation, Limits, detect_isolation


def request(script: str, **fields: Any) -> FunctionRequest:
    observed = State(Resource({"kind": "XBucket", "metadata": {"uid": "u"}, "spec": {"region": "eu"}}))
    return FunctionRequest(
        observed=observed,
        desired=State(resources={"kept": Resource({"apiVersion": "v1", "kind": "Kept"})}),
        input={"apiVersion": "python.fn.crossplane.io/v1beta1", "kind": "Script", "script": script},
        context={"key": 1},
        tag="t",
        **fields,
    )


async def run(script: str, runs: InlinePython = function, timeout: float = 20) -> FunctionResponse:
    return await runs.run(request(script), timeout=timeout)


async def test_a_script_composes_with_the_protocols_messages() -> None:
    response = await run(
        """
import sys
def compose(req, rsp):
    print("chatter")
    region = req.observed.composite.resource["spec"]["region"]
    rsp.desired.resources["bucket"].resource.update(
        {"apiVersion": "example.org/v1", "kind": "Bucket", "spec": {"region": region, "size": 3}}
    )
    rsp.desired.resources["bucket"].ready = 1
"""
    )
    assert response.results == []
    assert response.desired.resources["bucket"] == Resource(
        {"apiVersion": "example.org/v1", "kind": "Bucket", "spec": {"region": "eu", "size": 3}}, {}, Ready.TRUE
    )
    assert "kept" in response.desired.resources
    assert (response.context, response.tag, response.ttl) == ({"key": 1}, "t", 60.0)


async def test_an_async_script_with_upstreams_imports_runs_unchanged() -> None:
    response = await run(
        """
from crossplane.function.proto.v1 import run_function_pb2 as fnv1

async def compose(req: fnv1.RunFunctionRequest, rsp: fnv1.RunFunctionResponse):
    rsp.results.append(fnv1.Result(severity=fnv1.SEVERITY_NORMAL, message="hello"))
"""
    )
    assert [result.message for result in response.results] == ["hello"]


FINE = "def compose(req, rsp):\n"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("def compose(req, rsp:\n", "the script cannot be read: line 1: "),
        ("import nothing_like_it\n", "cannot be loaded: line 1, in <module>: ModuleNotFoundError"),
        ("x = 1\n", "not neither"),
        (FINE + "  pass\ndef operate(req, rsp):\n  pass\n", "not both"),
        (FINE + "  x = {}\n  x['a']\n", "the script failed: line 3, in compose: KeyError: 'a'"),
        (FINE + "  raise SystemExit(0)\n", "SystemExit: 0"),
        (FINE + "  import os\n  os._exit(0)\n", "ended with code 0 and without an answer"),
        (FINE + "  x = bytearray(2 << 30)\n", "MemoryError"),
        pytest.param(
            FINE + "  open('/etc/planform', 'w')\n",
            "Error: [Errno ",
            marks=pytest.mark.skipif(detect_isolation() is Isolation.LIMITS_ONLY, reason="needs user namespaces"),
        ),
        ("   ", "script: Required value"),
    ],
    ids=["syntax", "import", "neither", "both", "exception", "exit", "_exit", "memory", "files", "empty"],
)
async def test_what_a_script_does_wrong_is_a_fatal_result(script: str, message: str) -> None:
    response = await run(script)
    assert response.fatal is not None
    assert message in response.fatal.message
    assert list(response.desired.resources) == ["kept"], "the desired state is left as it was"


@pytest.mark.parametrize(
    ("script", "size"),
    [
        pytest.param("  rsp.desired.resources['a'].resource['x'] = 'y' * (5 << 20)\n", "is 5.0 MiB", id="one value"),
        pytest.param(
            "  for n in range(500):\n    rsp.desired.resources[str(n)].resource['x'] = 'y' * 10_000\n",
            "is 4.8 MiB",
            id="500 resources",
        ),
    ],
)
async def test_an_answer_beyond_the_limit_names_size_limit_and_setting(script: str, size: str) -> None:
    with pytest.raises(FunctionAnswerTooLarge) as refused:
        await run(FINE + script)
    assert f"the answer {size}" in str(refused.value)
    assert "at most 4 MiB are taken (annotation planform.dev/max-answer-size of a Function" in str(refused.value)


async def test_a_script_that_never_ends_is_ended() -> None:
    response = await run(FINE + "  while True: pass\n", timeout=1.0)
    assert response.fatal is not None
    assert "timed out" in response.fatal.message


async def test_nothing_stays_from_one_call_to_the_next() -> None:
    script = """
import sys
calls = getattr(sys, "calls", [])
sys.calls = calls
def compose(req, rsp):
    calls.append(1)
    rsp.context["calls"] = len(calls)
"""
    assert [(await run(script)).context["calls"] for _ in range(2)] == [1, 1]


async def test_it_can_be_switched_off_and_needs_a_script() -> None:
    off = await run(FINE + "  pass\n", InlinePython(enabled=False))
    assert off.fatal is not None
    assert "switched off" in off.fatal.message
    other = await InlinePython(Limits()).run(FunctionRequest(input={"apiVersion": "a", "kind": "B"}), timeout=1)
    assert other.fatal is not None
    assert "script: Required value" in other.fatal.message
