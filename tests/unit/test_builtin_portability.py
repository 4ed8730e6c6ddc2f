"""`planform validate` says what of an input only the built-in functions understand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from planform.builtin.portability import own_ways
from planform.cli.compositions.validate import validate


@pytest.mark.parametrize(
    ("function", "given", "ways"),
    [
        ("go-templating", {"inline": "x"}, ["inline: must be an object with a template there"]),
        ("go-templating", {"inline": {"template": "{{ getComposedResource . `a` }}"}}, []),
        (
            "go-templating",
            {"inline": {"template": "{{ getComposedResource `a` }}"}},
            ["inline.template: getComposedResource is not there, or wants the request first"],
        ),
        ("tag-manager", {"addTags": [{"tags": {}}, {"field": "Labels"}]}, ["addTags[1].field: is not known there"]),
        ("environment-configs", {"extraResourceSelectors": {}}, ["extraResourceSelectors: the published"]),
        (
            "patch-and-transform",
            {"resources": [{"patches": [{"transforms": [{"type": "string", "string": {"fmt": "%s"}}]}]}]},
            ["resources[0].patches[0].transforms[0].string.type: has no default there"],
        ),
        (
            "patch-and-transform",
            {"resources": [{"patches": [{"transforms": [{"type": "math", "math": {"multiply": 2}}]}]}]},
            ["resources[0].patches[0].transforms[0].math.type: has no default there"],
        ),
        (
            "patch-and-transform",
            {
                "resources": [
                    {"patches": [{"transforms": [{"type": "match", "match": {"patterns": [{"literal": "a"}]}}]}]}
                ]
            },
            ["resources[0].patches[0].transforms[0].match.patterns[0].type: has no default there"],
        ),
        (
            "patch-and-transform",
            {"resources": [{"connectionDetails": [{"name": "a", "value": "b"}, {"type": "FromConnectionSecretKey"}]}]},
            [
                "resources[0].connectionDetails[0].type: has no default there",
                "resources[0].connectionDetails[1].name: has no default there",
            ],
        ),
        ("auto-ready", None, []),
    ],
)
def test_what_only_we_understand_is_found(function: str, given: Any, ways: list[str]) -> None:
    found = list(own_ways(function, given))
    assert [each[: len(way)] for each, way in zip(found, ways, strict=True)] == ways


def test_validate_warns_of_it_and_still_succeeds(tmp_path: Path) -> None:
    step = {
        "step": "tags",
        "functionRef": {"name": "function-tag-manager"},
        "input": {"apiVersion": "tag-manager.fn.crossplane.io/v1beta1", "kind": "ManagedTags", "resources": ["a"]},
    }
    composition = {
        "apiVersion": "apiextensions.crossplane.io/v1",
        "kind": "Composition",
        "metadata": {"name": "app"},
        "spec": {"compositeTypeRef": {"apiVersion": "a/v1", "kind": "A"}, "mode": "Pipeline", "pipeline": [step]},
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(composition))
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "none.yaml").write_text(
        yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    )
    done = CliRunner().invoke(validate, [str(tmp_path / "x"), str(tmp_path / "c.yaml")])
    assert done.exit_code == 0, done.output
    assert (
        '[!] will not run on Crossplane: Composition "app", step "tags": resources: is not known there' in done.output
    )
