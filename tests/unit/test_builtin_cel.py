"""cel-filter and cel-validation: what stays, what fails, what warns."""

from __future__ import annotations

from typing import Any

import pytest

from planform.builtin.cel_filter import function as cel_filter
from planform.builtin.cel_validation import function as cel_validation
from planform.functions.values import FunctionRequest, FunctionResponse, Object, Ready, Resource, Severity, State


def request(entered: Object | None, **more: Any) -> FunctionRequest:
    xr = {"spec": {"env": "prod", "replicas": 42.0, "public": True}}
    return FunctionRequest(
        observed=State(Resource(xr, {"user": b"ada"}), {"a": Resource({"spec": {"size": 1}}, ready=Ready.TRUE)}),
        desired=State(
            Resource({}, ready=Ready.TRUE),
            {name: Resource({"kind": "Thing", "spec": {"size": size}}) for size, name in enumerate(["a", "ab", "b"])},
        ),
        context={"feature": {"on": False}},
        input=entered,
        tag="tag",
        **more,
    )


def filters(*pairs: tuple[str, str]) -> Object:
    listed = [{"name": name, "expression": expression} for name, expression in pairs]
    return {"apiVersion": "cel.fn.crossplane.io/v1beta1", "kind": "Filters", "filters": listed}


def kept(*pairs: tuple[str, str]) -> list[str]:
    answer = cel_filter(request(filters(*pairs)))
    assert answer.fatal is None, answer.fatal
    assert answer.desired.composite.ready is Ready.TRUE
    return list(answer.desired.resources)


def fatal(answer: FunctionResponse) -> str:
    assert answer.fatal is not None
    assert list(answer.desired.resources) == ["a", "ab", "b"], "the desired state stays as it was"
    return answer.fatal.message


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], ["a", "ab", "b"]),
        ([("a", "false")], ["ab", "b"]),
        ([("a|b", "false")], ["ab"]),
        ([("a.*", "false")], ["b"]),
        ([("a", "true"), ("a.*", "observed.composite.resource.spec.env == 'dev'")], ["b"]),
        ([("a", "false"), ("a", "true")], ["ab", "b"]),
        ([("a", "observed.composite.resource.spec.replicas == 42")], ["a", "ab", "b"]),
        ([("a", "observed.composite.connection_details['user'] == b'ada'")], ["a", "ab", "b"]),
        ([("a", "observed.resources['a'].ready == 1")], ["a", "ab", "b"]),
        ([("a", "'x' in observed.resources")], ["ab", "b"]),
        ([("a", "has(observed.resources.x) && observed.resources.x.resource.ok")], ["ab", "b"]),
        ([("a", "context.feature.on == true")], ["ab", "b"]),
        ([("a", "desired.resources['b'].resource.spec.size == 2")], ["a", "ab", "b"]),
    ],
)
def test_a_resource_stays_if_all_filters_that_match_it_are_true(
    pairs: list[tuple[str, str]], expected: list[str]
) -> None:
    assert kept(*pairs) == expected


@pytest.mark.parametrize(
    ("pair", "problem"),
    [
        (("a", "observed.composite.resource.spec.public"), "but will return dyn instead; compare it with something"),
        (("a", "1 + 1"), "must return a boolean, but will return int instead"),
        (("a", "nope == 1"), 'cannot evaluate CEL expression "nope == 1" for filter 0: cannot parse expression: '),
        (("a", "(("), "cannot parse expression: "),
        (("(", "true"), 'cannot compile regular expression "^($" for filter 0: error parsing regexp'),
        (("a", ""), 'cannot evaluate CEL expression "" for filter 0: cannot parse expression: '),
        (("nothing", "observed.resources['x'].ready == 1"), "for filter 0: cannot evaluate CEL program: "),
    ],
)
def test_an_expression_that_cannot_be_relied_on_is_refused(pair: tuple[str, str], problem: str) -> None:
    assert problem in fatal(cel_filter(request(filters(pair))))


def test_an_expression_that_costs_too_much_is_stopped() -> None:
    asked = request(filters(("a", "context.long.all(x, context.long.all(y, x + y >= 0))")))
    asked.context = {"long": list(range(2000))}
    assert "cost limit exceeded" in fatal(cel_filter(asked))


def test_filters_of_any_kind_are_read_and_none_are_refused() -> None:
    other = {**filters(("a", "false")), "apiVersion": "example.org/v1", "kind": "Filter"}
    assert "a" not in cel_filter(request(other)).desired.resources
    assert "the step has no input" in fatal(cel_filter(request(None)))


# -- cel-validation


def validations(*rules: Object) -> Object:
    return {"apiVersion": "cel.fn.planform.dev/v1", "kind": "Validations", "rules": list(rules)}


def checked(*rules: Object) -> FunctionResponse:
    return cel_validation(request(validations(*rules)))


def test_rules_that_hold_change_and_say_nothing() -> None:
    asked = request(validations({"name": "size", "resources": ".*", "expression": "resource.spec.size < 3"}))
    answer = cel_validation(asked)
    assert (answer.desired, answer.context, answer.results) == (asked.desired, asked.context, [])


def test_everything_that_is_wrong_is_told_at_once() -> None:
    message = fatal(
        checked(
            {"name": "small", "resources": "a.*", "expression": "resource.spec.size < 1", "message": "too big"},
            {"name": "few", "expression": "size(desired.resources) < 3"},
            {
                "name": "named",
                "expression": "false",
                "messageExpression": "'env is ' + string(observed.composite.resource.spec.env)",
            },
        )
    )
    assert message == (
        'small, resource "ab": too big; few: failed rule: size(desired.resources) < 3; named: env is prod'
    )


def test_a_warning_lets_the_pipeline_go_on() -> None:
    answer = checked({"name": "n", "severity": "Warning", "expression": "false", "message": "m"})
    assert answer.fatal is None
    assert [(each.severity, each.message) for each in answer.results] == [(Severity.WARNING, "n: m")]
    assert list(answer.desired.resources) == ["a", "ab", "b"]


def test_a_rule_is_checked_only_when_it_should_be() -> None:
    assert checked({"name": "n", "when": "context.feature.on == true", "expression": "false"}).results == []
    assert "n: " in fatal(checked({"name": "n", "when": "context.feature.on == false", "expression": "false"}))


def test_a_rule_sees_what_exists_beside_what_is_desired() -> None:
    rule = {
        "name": "n",
        "resources": ".*",
        "expression": "existing == null || existing.spec.size <= resource.spec.size",
    }
    assert fatal(checked(rule)) == f'n, resource "a": failed rule: {rule["expression"]}'
    assert fatal(checked({**rule, "expression": "name != 'b'"})) == "n, resource \"b\": failed rule: name != 'b'"


def test_a_rule_that_cannot_be_evaluated_does_not_hold() -> None:
    broken = {"name": "n", "expression": "observed.resources['x'].ready == 1"}
    assert fatal(checked(broken)).startswith("n: ")
    answer = checked({**broken, "severity": "Warning"})
    assert answer.fatal is None and len(answer.results) == 1


def test_the_design_runs_it_without_input() -> None:
    answer = cel_validation(request(None))
    assert [each.message for each in answer.results] == ["cel-validation has no input, so it checks nothing"]


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"expression": "true"}, "rules[0].name: Required value"),
        ({"name": "n"}, "rules[0].expression: Required value"),
        ({"name": "n", "expression": "1"}, "must give bool, but gives int"),
        ({"name": "n", "expression": "true", "when": "'a'"}, "rules[0].when"),
        ({"name": "n", "expression": "true", "messageExpression": "1"}, "must give string, but gives int"),
        ({"name": "n", "expression": "resource.a == 1"}, "rules[0].expression: Invalid value"),
        ({"name": "n", "expression": "true", "resources": "("}, "rules[0].resources"),
        ({"name": "n", "expression": "true", "severity": "Info"}, "must be Fatal or Warning"),
        ({"name": "n", "expression": "true", "level": 1}, 'unknown field "level"'),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(rule: Object, problem: str) -> None:
    assert problem in fatal(checked(rule))
    assert "rules: Required value" in fatal(checked())
