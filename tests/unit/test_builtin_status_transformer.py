"""status-transformer: which conditions of resources make which conditions of the XR."""

from __future__ import annotations

from typing import Any

import pytest

from planform.builtin.status_transformer import function
from planform.functions.values import (
    Condition,
    FunctionRequest,
    FunctionResponse,
    Object,
    Resource,
    Result,
    Severity,
    State,
    Status,
    Target,
)

SUCCESS = Condition("StatusTransformationSuccess", Status.TRUE, "Available", "", Target.COMPOSITE)


def thing(*conditions: tuple[str, str, str, str]) -> Object:
    members = ("type", "status", "reason", "message")
    return {"status": {"conditions": [dict(zip(members, each, strict=True)) for each in conditions]}}


def entered(*hooks: Object) -> Object:
    group = "function-status-transformer.fn.crossplane.io/v1beta1"
    return {"apiVersion": group, "kind": "StatusTransformation", "statusConditionHooks": list(hooks)}


def hook(matcher: Object | None, *, kind: str = "DatabaseReady", message: str = "", **more: Any) -> Object:
    """Sets a condition if the matcher matches."""
    made = {"type": kind, "status": "False", "reason": "Broken", "message": message}
    return {"matchers": [matcher] if matcher else [], "setConditions": [{"condition": made, **more}]}


def run(spec: Object | None, *, xr: Object | None = None, context: Object | None = None) -> FunctionResponse:
    observed = State(
        Resource(xr or {}),
        {
            "sql-1": Resource(
                thing(("Synced", "False", "ReconcileError", "cannot create: quota"), ("Ready", "False", "", ""))
            ),
            "sql-2": Resource(
                thing(("Synced", "False", "ReconcileError", "cannot create: zone"), ("Ready", "True", "", ""))
            ),
            "net": Resource(thing(("Synced", "True", "ReconcileSuccess", ""))),
            "bare": Resource({"status": None}),
        },
    )
    answer = function(FunctionRequest(observed=observed, input=spec, context=context or {}))
    assert answer.fatal is None
    return answer


def matches(matcher: Object, **more: Any) -> bool:
    *made, success = run(entered(hook(matcher)), **more).conditions
    assert success == SUCCESS
    return bool(made)


FAILING = {"type": "Synced", "status": "False"}
ALWAYS: Object = {"resources": [{"name": "net"}], "conditions": [{"type": "Synced", "message": "(?P<All>.*)"}]}
READY = {"type": "Ready", "status": "True"}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("AllResourcesMatchAllConditions", False),
        ("AllResourcesMatchAnyCondition", True),
        ("AnyResourceMatchesAllConditions", True),
        ("AnyResourceMatchesAnyCondition", True),
        (None, False),
    ],
)
def test_resources_and_conditions_match_all_or_any(kind: str | None, expected: bool) -> None:
    matcher = {"resources": [{"name": "sql-\\d"}], "conditions": [FAILING, READY]} | ({"type": kind} if kind else {})
    assert matches(matcher) == expected


@pytest.mark.parametrize(
    ("matcher", "expected"),
    [
        ({"resources": [{"name": "ne"}], "conditions": [{"type": "Synced"}]}, True),
        ({"resources": [{"name": "^ne$"}], "conditions": [{"type": "Synced"}]}, False),
        ({"resources": [{"name": "net"}], "conditions": [{"type": "Synced", "reason": "ReconcileError"}]}, False),
        ({"resources": [{"name": "sql"}], "conditions": [{"type": "Synced", "message": "^cannot .*: "}]}, True),
        ({"resources": [{"name": "bare"}], "conditions": [{"type": "Synced", "status": "Unknown"}]}, True),
        (
            {"resources": [{"name": "bare"}], "conditions": [{"type": "Synced", "status": "Unknown", "reason": ""}]},
            True,
        ),
        ({"resources": [{"name": "net"}], "conditions": []}, False),
        ({"resources": [], "conditions": [FAILING]}, False),
        ({"includeCompositeAsResource": True, "conditions": [{"type": "Late", "status": "True"}]}, True),
        ({"resources": [{"name": "composite"}], "conditions": [{"type": "Late"}]}, False),
        ({"resources": [{"name": "extra-resource.vpc.*"}], "conditions": [FAILING]}, False),
        (
            {
                "resources": [{"name": "^extra-resource.vpc.ec2.example.org.VPC..main$"}],
                "includeExtraResources": True,
                "conditions": [FAILING],
            },
            True,
        ),
        (
            {"resources": [{"name": "extra-resource.theirs"}], "includeExtraResources": True, "conditions": [FAILING]},
            True,
        ),
    ],
)
def test_a_matcher_chooses_resources_and_looks_at_their_conditions(matcher: Object, expected: bool) -> None:
    vpc = {
        **thing(("Synced", "False", "", "")),
        "apiVersion": "ec2.example.org/v1",
        "kind": "VPC",
        "metadata": {"name": "main"},
    }
    extra = {"vpc": [vpc], "theirs": {"items": [{"resource": vpc}]}}
    context = {"apiextensions.crossplane.io/extra-resources": extra}
    assert matches(matcher, xr=thing(("Late", "True", "", "")), context=context) == expected


def test_what_a_pattern_caught_can_be_told() -> None:
    matcher = {
        "resources": [{"name": "sql-1"}],
        "conditions": [{"type": "Synced", "message": "cannot create: (?P<Error>.+)"}],
    }
    spec = hook(matcher, message="the database: {{ .Error | upper }}", target="CompositeAndClaim")
    spec["createEvents"] = [
        {"target": "CompositeAndClaim", "event": {"type": "Warning", "reason": "R", "message": "saw {{ .Error }}"}},
        {"event": {"message": "plain"}},
    ]
    answer = run(entered(spec))
    broken = Condition("DatabaseReady", Status.FALSE, "Broken", "the database: QUOTA", Target.COMPOSITE_AND_CLAIM)
    assert answer.conditions == [broken, SUCCESS]
    assert answer.results == [
        Result(Severity.WARNING, "saw quota", "R", Target.COMPOSITE_AND_CLAIM),
        Result(Severity.NORMAL, "plain", "", Target.COMPOSITE),
    ]


def test_the_first_to_set_a_condition_wins_unless_a_later_one_forces_it() -> None:
    hooks = [hook(ALWAYS, message="first"), hook(ALWAYS, message="second"), hook(ALWAYS, kind="Other", message="third")]
    assert [each.message for each in run(entered(*hooks)).conditions] == ["first", "third", ""]
    forced = [*hooks, hook(ALWAYS, message="fourth", force=True)]
    assert [each.message for each in run(entered(*forced)).conditions] == ["fourth", "third", ""]


@pytest.mark.parametrize(
    ("spec", "reason", "problem"),
    [
        (None, "InputFailure", "the step has no input"),
        ({**entered(), "hooks": []}, "InputFailure", 'unknown field "hooks"'),
        (
            entered({"matchers": [ALWAYS], "createEvents": [{"event": {"type": "Loud"}}]}),
            "SetConditionFailure",
            "cannot create event, statusConditionHookIndex: 0, createEventIndex: 0: invalid type Loud",
        ),
        (
            entered(hook({"resources": [{"name": "(?!a)"}], "conditions": [FAILING]})),
            "MatchFailure",
            "cannot match resources, statusConditionHookIndex: 0, matchConditionIndex: 0: "
            "cannot compile resource key regex, resourcesIndex: 0: error parsing regexp: "
            "invalid or unsupported Perl syntax: `(?!`",
        ),
        (
            entered(hook(ALWAYS, message="{{ }")),
            "SetConditionFailure",
            "cannot set condition, statusConditionHookIndex: 0, setConditionIndex: 0: cannot parse template: ",
        ),
        (entered(hook(ALWAYS, kind="Ready")), "SetConditionFailure", "Ready is set by the system alone"),
        (
            entered({"matchers": [ALWAYS], "createEvents": [{"event": {"message": "{{ fail `x` }}"}}]}),
            "SetConditionFailure",
            "x",
        ),
    ],
)
def test_what_goes_wrong_is_a_condition_and_never_fails_the_pipeline(
    spec: Object | None, reason: str, problem: str
) -> None:
    told = run(spec).conditions[-1]
    assert (told.type, told.status, told.reason) == ("StatusTransformationSuccess", Status.FALSE, reason)
    assert problem in told.message


def test_a_hook_that_fails_does_not_keep_others_from_their_work() -> None:
    broken = hook({"resources": [{"name": "("}], "conditions": [FAILING]})
    answer = run(entered(broken, hook(ALWAYS, message="fine")))
    assert answer.conditions[0].message == "fine"
    assert answer.conditions[-1].reason == "MatchFailure"


def test_a_hook_without_matchers_does_not_fire() -> None:
    assert run(entered(hook(None))).conditions == [SUCCESS]


def test_a_message_is_a_template_only_where_a_pattern_caught_something() -> None:
    plain = {"resources": [{"name": "net"}], "conditions": [{"type": "Synced"}]}
    assert run(entered(hook(plain, message="{{ not a template"))).conditions[0].message == "{{ not a template"
    unnamed = {"resources": [{"name": "net"}], "conditions": [{"type": "Synced", "message": "(.*)"}]}
    assert run(entered(hook(unnamed, message="{{ len . }}"))).conditions[0].message == "1"


@pytest.mark.parametrize(
    ("extra", "problem"),
    [
        (1, "unexpected extra-resources type: float64"),
        ({"vpc": 1}, "unexpected extra-resources value type for vpc: float64"),
        ({"vpc": ["x"]}, "unexpected extra-resources value type for vpc [0]: string"),
    ],
)
def test_extra_resources_that_cannot_be_read_are_an_input_failure(extra: Any, problem: str) -> None:
    [told] = run(entered(hook(ALWAYS)), context={"apiextensions.crossplane.io/extra-resources": extra}).conditions
    assert (told.status, told.reason) == (Status.FALSE, "InputFailure")
    assert told.message == f"cannot load extra-resources: {problem}"
