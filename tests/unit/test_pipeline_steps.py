"""Reading a Composition's pipeline."""

from __future__ import annotations

from typing import Any

import pytest

from planform.functions.values import ResourceSelector
from planform.pipeline.steps import Credential, InputRef, PipelineInvalid, parse_pipeline

OK = {"step": "one", "functionRef": {"name": "fn"}}


def test_every_field_of_a_step_is_read() -> None:
    (step,) = parse_pipeline(
        {
            "pipeline": [
                {
                    "step": "one",
                    "functionRef": {"name": "fn"},
                    "functionRevisionSelector": {"matchLabels": {"channel": "alpha"}},
                    "inputRef": {"apiVersion": "x/v1", "kind": "In", "name": "shared"},
                    "credentials": [
                        {"name": "aws", "source": "Secret", "secretRef": {"namespace": "ns", "name": "keys"}}
                    ],
                    "requirements": {
                        "requiredResources": [
                            {"requirementName": "env", "apiVersion": "v1", "kind": "ConfigMap", "name": "env"}
                        ]
                    },
                    "allowedExtraResources": [
                        {"apiVersion": "v1", "kind": "ConfigMap", "matchLabels": {"env": "(dev|prod)"}}
                    ],
                    "maxIterations": -1,
                    "timeout": "1m30s",
                }
            ]
        }
    )
    assert (step.name, step.function, step.revision_selector) == ("one", "fn", {"channel": "alpha"})
    assert step.input_ref == InputRef("x/v1", "In", "shared")
    assert step.credentials == (Credential("aws", "ns", "keys"),)
    assert step.bootstrap.resources == {"env": ResourceSelector("v1", "ConfigMap", "env")}
    assert step.allowed is not None
    assert step.allowed[0].allows(ResourceSelector("v1", "ConfigMap", "", {"env": "dev", "x": "y"}))
    assert (step.max_iterations, step.timeout) == (-1, 90.0)


def test_name_is_a_deprecated_alias_of_step() -> None:
    (step,) = parse_pipeline({"pipeline": [{"name": "one", "functionRef": {"name": "fn"}}]})
    assert step.name == "one"
    assert "deprecated" in step.warnings[0]


@pytest.mark.parametrize(
    ("pipeline", "complaint"),
    [
        (None, "spec.pipeline: Required value: at least one step"),
        ([], "spec.pipeline: Required value: at least one step"),
        ([OK] * 100, "has 100 steps, at most 99"),
        ([OK, OK], 'spec.pipeline[1].step: Duplicate value: "one"'),
        ([{"functionRef": {"name": "fn"}}], "spec.pipeline[0].step: Required value"),
        ([{"step": "one"}], "spec.pipeline[0]: Object missing required field `functionRef`"),
        ([OK | {"functionRef": {"name": 3}}], "spec.pipeline[0].functionRef.name: Expected `str`, got `int`"),
        ([OK | {"name": "two"}], "spec.pipeline[0].name"),
        ([OK | {"input": {"kind": "x"}}], "spec.pipeline[0].input.apiVersion: Required value"),
        (
            [
                OK
                | {"input": {"apiVersion": "a", "kind": "x"}, "inputRef": {"apiVersion": "a", "kind": "b", "name": "c"}}
            ],
            "may not be set together with `input`",
        ),
        ([OK | {"credentials": [{"name": "a", "source": "File"}]}], "spec.pipeline[0].credentials[0]"),
        ([OK | {"credentials": [{"name": "a", "source": "Secret"}]}], "with a secretRef"),
        ([OK | {"maxIterations": -2}], "spec.pipeline[0].maxIterations"),
        ([OK | {"timeout": "soon"}], 'spec.pipeline[0].timeout: "soon" is not a duration'),
        ([OK | {"timeout": "0s"}], "not a duration above zero"),
        (
            [OK | {"allowedExtraResources": [{"apiVersion": "v1", "kind": "A", "matchName": "("}]}],
            'spec.pipeline[0].allowedExtraResources[0]: "(" is not a pattern: missing ): (',
        ),
        (
            [OK | {"allowedExtraResources": [{"apiVersion": "v1", "kind": "A", "name": "x", "matchLabels": {}}]}],
            "has both a name and `matchLabels`",
        ),
        (
            [
                OK
                | {
                    "requirements": {
                        "requiredResources": [
                            {
                                "requirementName": "a",
                                "apiVersion": "v1",
                                "kind": "A",
                                "name": "x",
                                "matchLabels": {"a": "b"},
                            }
                        ]
                    }
                }
            ],
            "has both `name` and `matchLabels`",
        ),
    ],
)
def test_what_is_wrong_is_said_with_the_path_of_its_field(pipeline: Any, complaint: str) -> None:
    with pytest.raises(PipelineInvalid) as caught:
        parse_pipeline({"pipeline": pipeline})
    assert complaint in str(caught.value)


def test_everything_wrong_is_said_at_once() -> None:
    with pytest.raises(PipelineInvalid) as caught:
        parse_pipeline({"pipeline": [{"step": "a"}, OK | {"timeout": "x", "maxIterations": -9}]})
    assert [error.field for error in caught.value.errors] == [
        "spec.pipeline[0]",
        "spec.pipeline[1].maxIterations",
        "spec.pipeline[1].timeout",
    ]
