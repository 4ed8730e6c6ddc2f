"""starlark: what scripts are given, what they may answer, and what keeps them in bounds."""

from __future__ import annotations

import asyncio
import sys
import time
from copy import deepcopy
from typing import Any

import pytest

from planform.builtin.starlark import SECONDS, STEPS, function
from planform.functions.values import (
    Condition,
    FunctionRequest,
    FunctionResponse,
    Object,
    Ready,
    Requirements,
    Resource,
    ResourceSelector,
    Result,
    SchemaSelector,
    Severity,
    State,
    Status,
    Target,
)

pytest.importorskip("starlark", reason="the extra `starlark` is not installed")

DESIGN = """
# main is passed a RunFunctionRequest as a (Python-like) dictionary.
# It must return a RunFunctionResponse-shaped dictionary.
def main(req):
  rsp = {"desired": req["desired"]}
  xr = req["observed"]["composite"]["resource"]

  for i in range(int(xr["spec"]["count"])):
    name = "robot-{}".format(i)

    # We already created this one during a previous reconcile.
    if name in req["observed"]["resources"]:
      rsp["desired"]["resources"][name] = req["observed"]["resources"][name]
      continue

    # This robot should exist, but doesn't.
    rsp["desired"]["resources"][name] = {
      "resource": {
        "apiVersion": "iam.dummy.upbound.io/v1alpha1",
        "kind": "Robot",
        "metadata": {
          "annotations": {
            "crossplane.io/external-name": "{parent}-robot-{number}".format(
              parent=xr["metadata"]["annotations"]["crossplane.io/external-name"],
              number=i,
            )
          },
        },
        "spec": {
          "forProvider": {
            # Starlark is deterministic so these Robots are always purple. :)
            "color": "purple",
          },
        },
      }
    }

  return rsp
"""


def entered(script: str, **more: Any) -> Object:
    return {"apiVersion": "starlark.fn.planform.dev/v1", "kind": "StarlarkScript", "script": script, **more}


def call(script: str | Object, **more: Any) -> FunctionResponse:
    """What a worker answers, without one; the request stays as it was."""
    asked = FunctionRequest(input=entered(script) if isinstance(script, str) else script, tag="tag", **more)
    before = deepcopy(asked)
    answer = function.call(asked)
    assert asked == before
    assert answer.tag == "tag"
    if answer.fatal is not None:
        assert (answer.desired, answer.context) == (asked.desired, asked.context)
    return answer


def returning(expression: str, **more: Any) -> FunctionResponse:
    answer = call(f"def main(req):\n  return {expression}\n", **more)
    assert answer.fatal is None, answer.fatal
    return answer


def value(expression: str, **more: Any) -> Any:
    output = returning(f"{{'output': {{'value': {expression}}}}}", **more).output
    assert output is not None
    return output["value"]


def fatal(script: str | Object, **more: Any) -> str:
    answer = call(script, **more)
    assert answer.fatal is not None
    return answer.fatal.message


def run(script: str, *, timeout: float = 20) -> FunctionResponse:
    return asyncio.run(function.run(FunctionRequest(input=entered(script), tag="tag"), timeout=timeout))


def test_the_script_of_the_design_runs_with_its_one_mistake_mended() -> None:
    xr = {"metadata": {"annotations": {"crossplane.io/external-name": "shop"}}, "spec": {"count": 2.0}}
    observed = State(Resource(xr), {"robot-0": Resource({"kind": "Robot", "spec": {"color": "red"}})})
    printed = {**entered(DESIGN), "apiVersion": "example.org/v1"}
    answer = call(printed, observed=observed)
    assert answer.fatal is None
    assert answer.desired.resources["robot-0"].resource == {"kind": "Robot", "spec": {"color": "red"}}
    robot = answer.desired.resources["robot-1"].resource
    assert robot["metadata"]["annotations"] == {"crossplane.io/external-name": "shop-robot-1"}
    assert robot["spec"] == {"forProvider": {"color": "purple"}}
    mistaken = DESIGN.replace('{"desired": req["desired"]}', '{desired=req["desired"]}')
    assert fatal(mistaken) == "script.star:5:17: Parse error: unexpected symbol '=' here, expected one of \":\""


def test_an_empty_request_has_everything_that_scripts_look_at() -> None:
    assert value("[req['observed']['composite']['resource'], req['observed']['resources'], req['context']]") == [
        {},
        {},
        {},
    ]
    assert value("[req['desired']['composite']['resource'], req['desired']['resources']]") == [{}, {}]


def test_whole_numbers_stay_whole_and_bytes_are_base64() -> None:
    xr = {"spec": {"three": 3, "also": 3.0, "half": 0.5, "big": 2**53 + 1}}
    observed = State(Resource(xr, {"password": b"secret"}))
    assert value("req['observed']['composite']['resource']['spec']", observed=observed) == {
        "three": 3, "also": 3, "half": 0.5, "big": 2**53 + 1
    }  # fmt: skip
    assert value("[type(x) for x in req['observed']['composite']['resource']['spec'].values()]", observed=observed) == [
        "int", "int", "float", "int"
    ]  # fmt: skip
    assert value("req['observed']['composite']['connectionDetails']", observed=observed) == {"password": "c2VjcmV0"}
    assert value("4 / 2") == 2 and isinstance(value("4 / 2"), int)


def test_what_is_required_or_secret_is_there() -> None:
    more: dict[str, Any] = {
        "required_resources": {"vpc": [Resource({"id": 1})]},
        "credentials": {"aws": {"token": b"t"}},
        "context": {"k": "v"},
    }
    assert value("req['requiredResources']['vpc']['items'][0]['resource']['id']", **more) == 1
    assert value("req['credentials']['aws']['credentialData']['data']['token']", **more) == "dA=="
    assert value("req['context']['k']", **more) == "v"


def test_what_a_script_leaves_out_stays_as_it_was() -> None:
    desired = State(
        Resource({"status": {"a": 1}}, ready=Ready.TRUE), {"a": Resource({"kind": "A"}, {"k": b"v"}, Ready.FALSE)}
    )
    kept = returning("{}", desired=desired, context={"a": 1})
    assert (kept.desired, kept.context) == (desired, {"a": 1})
    passed_on = returning("{'desired': req['desired'], 'context': req['context']}", desired=desired, context={"a": 1})
    assert (passed_on.desired, passed_on.context) == (desired, {"a": 1})
    cleared = returning("{'desired': {}, 'context': {}}", desired=desired, context={"a": 1})
    assert (cleared.desired, cleared.context) == (State(), {})


def test_a_script_may_change_its_own_copy_of_the_request() -> None:
    script = "def main(req):\n  req['context']['a'] = 2\n  req['desired'] = None\n  return {'context': req['context']}"
    assert call(script, context={"a": 1}).context == {"a": 2}


@pytest.mark.parametrize("names", [("connectionDetails", "matchName"), ("connection_details", "match_name")])
def test_everything_can_be_answered_in_either_spelling(names: tuple[str, str]) -> None:
    details, match_name = names
    answer = returning(
        "{'meta': {'ttl': '90s'},"
        f"'desired': {{'composite': {{'ready': True, '{details}': {{'k': 'dg=='}}}},"
        "'resources': {'a': {'resource': {'kind': 'A', 'snake_case': 1}, 'ready': 'READY_FALSE'}}},"
        "'results': [{'severity': 'Warning', 'message': 'm', 'reason': 'r'}, {'severity': 3, 'message': 'n'}],"
        "'conditions': [{'type': 'T', 'status': 'True', 'reason': 'R', 'message': 'm', 'target': 'CompositeAndClaim'}],"
        f"'requirements': {{'resources': {{'a': {{'apiVersion': 'v1', 'kind': 'A', '{match_name}': 'n'}},"
        "'b': {'api_version': 'v1', 'kind': 'B', 'matchLabels': {'labels': {'x': 'y'}}, 'namespace': 'here'},"
        "'c': {'apiVersion': 'v1', 'kind': 'C', 'matchLabels': {'x': 'y'}}},"
        "'schemas': {'s': {'apiVersion': 'v1', 'kind': 'S'}}},"
        "'output': {'o': 1}}"
    )
    assert answer == FunctionResponse(
        desired=State(
            Resource({}, {"k": b"v"}, Ready.TRUE),
            {"a": Resource({"kind": "A", "snake_case": 1}, ready=Ready.FALSE)},
        ),
        results=[
            Result(Severity.WARNING, "m", "r", Target.COMPOSITE),
            Result(Severity.NORMAL, "n", "", Target.COMPOSITE),
        ],
        conditions=[Condition("T", Status.TRUE, "R", "m", Target.COMPOSITE_AND_CLAIM)],
        requirements=Requirements(
            {
                "a": ResourceSelector("v1", "A", "n"),
                "b": ResourceSelector("v1", "B", match_labels={"x": "y"}, namespace="here"),
                "c": ResourceSelector("v1", "C", match_labels={"x": "y"}),
            },
            schemas={"s": SchemaSelector("v1", "S")},
        ),
        output={"o": 1},
        ttl=90,
        tag="tag",
    )


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("[1]", "script.star: what main(req) returns must be a dict, not list"),
        ("None", "script.star: what main(req) returns must be a dict, not NoneType"),
        ("{'desird': {}}", "script.star: desird: unknown; there are meta, desired, results"),
        ("{'desired': {'resources': {'a': {'spec': 1}}}}", "desired.resources.a.spec: unknown; there are resource,"),
        ("{'desired': {'resources': {'a': {'resource': 1}}}}", "desired.resources.a.resource must be a dict"),
        ("{'desired': {'resources': {'a': {'ready': 'maybe'}}}}", "desired.resources.a.ready: 'maybe' is none of"),
        ("{'desired': {'composite': {'connectionDetails': {'a': '?'}}}}", "connectionDetails.a must be base64 text"),
        ("{'context': {1: 2}}", "context must be a dict whose keys are strings"),
        ("{'results': {}}", "results must be a list"),
        ("{'results': [{'message': 'm'}]}", "results[0].severity: None is none of"),
        ("{'meta': {'ttl': 'soon'}}", "meta.ttl must be a duration such as 1m"),
        ("main", "not supported on type `function`"),
    ],
)
def test_an_answer_of_another_shape_is_told_with_its_path(expression: str, problem: str) -> None:
    assert problem in fatal(f"def main(req):\n  return {expression}\n")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("def main(req):\n  fail('no', 'luck')", "no luck"),
        ("def main(req):\n  return req['x']", 'script.star:2:10: Key `"x"` was not found'),
        (
            "def inner(x):\n  y = x['a']\n  return y\ndef outer(x):\n  y = inner(x)\n  return y\n"
            "def main(req):\n  return outer({})",
            'script.star:2:7: Key `"a"` was not found; called from outer (script.star:5), main (script.star:8)',
        ),
        ("x = 1", "script.star: there is no function main(req)"),
        ("def main(req):\n  return nope", "script.star:2:10: Variable `nope` not found"),
        ("def main():\n  return {}", "Found 1 extra positional argument(s) for call to script.star.main"),
        ("def f(x):\n  return f(x)\ndef main(req):\n  return f(1)", "script.star:2:10: Starlark call stack overflow"),
        ("load('lib.star', 'a')\ndef main(req):\n  return {}", 'script.star:1:1: there is no module "lib.star"'),
    ],
)
def test_what_goes_wrong_in_a_script_is_told_with_its_place(script: str, message: str) -> None:
    assert fatal(script).startswith(message)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (entered(""), "script: Required value"),
        (entered("x", scripts=1), 'object contains unknown field "scripts"'),
        (entered("x", modules={"script.star": ""}), "is what the script itself is called"),
    ],
)
def test_an_input_that_makes_no_sense_is_refused(given: Object, problem: str) -> None:
    assert problem in fatal(given)
    asked = FunctionRequest(input=given)
    assert asyncio.run(function.run(asked, timeout=5)).fatal == function.call(asked).fatal


def test_modules_can_be_loaded_and_can_load_each_other() -> None:
    modules = {"a.star": "load('b.star', 'b')\na = b + 1", "b.star": "b = 1"}
    answer = call(entered("load('a.star', 'a')\ndef main(req):\n  return {'output': {'a': a}}", modules=modules))
    assert answer.output == {"a": 2}
    loop = {"a.star": "load('b.star', 'b')\na = 1", "b.star": "load('a.star', 'a')\nb = 1"}
    assert 'module "a.star" loads itself' in fatal(entered("load('a.star', 'a')\ndef main(req):\n  pass", modules=loop))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("get({'a': [{'b': 1}]}, 'a.0.b')", 1),
        ("get({'a': None}, 'a', 'd')", "d"),
        ("get({'a': 1}, 'a.b.c')", None),
        ("get_condition({'status': {'conditions': [{'type': 'A', 'status': 'True'}]}}, 'A')['status']", "True"),
        ("get_condition({'resource': {}}, 'A')['status']", "Unknown"),
        ("json.decode(json.encode({'a': [1]}))", {"a": [1]}),
        ("struct(a = 1).a", 1),
        ("[x for x in map(lambda x: x + 1, [1, 2])]", [2, 3]),
        ("(lambda x: f'{x}')(7)", "7"),
        ("print('nothing happens')", None),
    ],
)
def test_scripts_have_conveniences(expression: str, expected: Any) -> None:
    assert value(expression) == expected


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("def main(req):\n  for i in range(1000000000):\n    pass", f"the script takes more than {STEPS:,} steps"),
        ("x = [i for i in range(1000000000)]\ndef main(req):\n  return {}", "it ended its own process"),
        ("def main(req):\n  x = 'a'\n  for i in range(50):\n    x = x + x", "it ended its own process"),
        ("def main(req):\n  return {'output': {'x': 'a' * 1000000000}}", "it ended its own process"),
    ],
)
def test_bombs_end_with_a_fatal_result_in_bounded_time_and_memory(script: str, problem: str) -> None:
    started = time.monotonic()
    answer = run(script)
    assert answer.fatal is not None and problem in answer.fatal.message
    assert time.monotonic() - started < SECONDS
    assert run("def main(req):\n  return {'context': {'a': 1}}").context == {"a": 1}


def test_what_takes_longer_than_the_step_may_is_stopped() -> None:
    run("def main(req):\n  return {}")  # a worker is there
    answer = run("def main(req):\n  for i in range(100000000):\n    pass", timeout=0.05)
    assert answer.fatal is not None
    assert answer.fatal.message == "cannot run the script: it took longer than 0.05 s and was stopped"


def test_a_worker_answers_what_the_function_itself_answers() -> None:
    asked = FunctionRequest(
        observed=State(Resource({"a": 1.5, "b": 2, "c": None, "d": "é"}, {"k": b"\xff\x00"}), {"x": Resource({})}),
        desired=State(resources={"y": Resource({"n": 3}, {}, Ready.TRUE)}),
        context={"c": [1, 2.5]},
        input=entered("def main(req):\n  return {'desired': req['observed'], 'context': {'all': req}}"),
        tag="tag",
    )
    assert asyncio.run(function.run(asked, timeout=20)) == function.call(asked)


def test_the_loop_goes_on_while_a_script_runs() -> None:
    async def with_a_clock_beside() -> float:
        slow = entered("def main(req):\n  for i in range(5000000):\n    pass\n  return {}")
        running = asyncio.create_task(function.run(FunctionRequest(input=slow), timeout=20))
        longest, last = 0.0, time.perf_counter()
        while not running.done():
            await asyncio.sleep(0.001)
            longest, last = max(longest, time.perf_counter() - last), time.perf_counter()
        assert running.result().fatal is None
        return longest

    assert asyncio.run(with_a_clock_beside()) < 0.25


def test_without_the_library_the_answer_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "starlark", None)
    monkeypatch.setattr("planform.builtin.starlark.engine.find_spec", lambda name: None)
    answer = run("def main(req):\n  return {}")
    assert answer.fatal is not None
    assert "starlark-pyo3: install planform with its extra `starlark`" in answer.fatal.message
