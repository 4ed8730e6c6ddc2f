"""Drafts: XRDs from examples, Compositions for XRDs, a whole platform. What is drafted works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planform.apimachinery import yaml_loader
from planform.apimachinery.schema import compile_schema
from planform.cli.compositions.inference import composition_for, plural_of, schema_of_values, xrd_from
from planform.cli.dev.platform import example_of, platform
from planform.cli.functions.scaffold import scaffold
from planform.errors import UsageError
from tests.unit.test_render_command import Run, run

__all__ = ["run"]  # a fixture


def example(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "one", "namespace": "default"}
    return {"apiVersion": "example.org/v1", "kind": "Database", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("kind", "plural"),
    [("Database", "databases"), ("Policy", "policies"), ("Gateway", "gateways"), ("Box", "boxes"), ("Dish", "dishes")],
)
def test_plurals_are_english(kind: str, plural: str) -> None:
    assert plural_of(kind) == plural


def test_an_example_fits_the_schema_that_is_drafted_from_it() -> None:
    given = example(size=3, ratio=0.5, on=True, tags=["a"], nested={"since": "2024-01-01T00:00:00Z"}, rules=[{"a": 1}])
    xrd = xrd_from([given])
    schema = xrd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert not compile_schema(schema, root=True).admit(yaml_loader.load(yaml_loader.dump(given))).errors
    spec = schema["properties"]["spec"]["properties"]
    assert {name: each["type"] for name, each in spec.items()} == {
        "size": "integer",
        "ratio": "number",
        "on": "boolean",
        "tags": "array",
        "nested": "object",
        "rules": "array",
    }
    assert spec["nested"]["properties"]["since"]["format"] == "date-time"
    assert xrd["metadata"]["name"] == "databases.example.org"
    assert xrd["spec"]["scope"] == "Namespaced"


def test_what_every_example_has_is_required() -> None:
    xrd = xrd_from([example(size=1, region="eu"), example(size=2)])
    spec = xrd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["required"] == ["size"]
    assert schema_of_values([1, 2.5]) == {"type": "number"}


@pytest.mark.parametrize(
    ("examples", "problem"),
    [
        pytest.param([example(a=1), example(a="x")], "a: examples differ: integer and string", id="types"),
        pytest.param([example(a={"b": 1}), example(a={"b": []})], "a.b: examples differ", id="nested"),
        pytest.param([example(), {**example(), "kind": "Other"}], "2 kinds", id="kinds"),
        pytest.param([{**example(), "apiVersion": "v1"}], "has no group", id="group"),
    ],
)
def test_examples_that_are_not_of_one_kind_are_refused(examples: list[dict[str, Any]], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        xrd_from(examples)


def test_a_drafted_composition_renders(run: Run) -> None:
    given = example(size=3, region="eu", backup={"on": True})
    Path("xr.yaml").write_text(yaml_loader.dump(given))
    assert run("xrd", "generate", "xr.yaml", "-f", "xrd.yaml").code == 0
    assert run("composition", "generate", "xrd.yaml", "-f", "composition.yaml").code == 0
    rendered = run("render", "xr.yaml", "composition.yaml", "xrd.yaml")
    assert rendered.code == 0, rendered.err
    assert rendered.documents[1]["data"] == {"size": "3", "region": "eu", "backup-on": "true"}
    assert run("xrd", "generate", "xr.yaml", "-f", "xrd.yaml").code == 2, "it exists already"


def test_functions_are_steps_and_readiness_is_last() -> None:
    made = composition_for(xrd_from([example(size=1)]), functions=["function-a", "function-b"])
    assert [step["functionRef"]["name"] for step in made["spec"]["pipeline"]] == [
        "function-a",
        "function-b",
        "function-auto-ready",
    ]


@pytest.mark.parametrize("more", [[], ["--kind", "Database", "--group", "data.example.com"]], ids=["App", "Database"])
def test_the_tests_of_a_new_platform_pass(run: Run, more: list[str]) -> None:
    assert run("init", "mine", *more).code == 0
    tested = run("test", "mine", "-v")
    assert tested.code == 0, tested.out
    assert "2 passed" in tested.out
    assert run("init", "mine").code == 2, "it is not empty any more"


def test_a_platform_can_begin_with_an_example(run: Run) -> None:
    given = {**example(engine="postgres", size=3), "metadata": {"name": "orders"}}
    Path("xr.yaml").write_text(yaml_loader.dump(given))
    assert run("init", "mine", "--example", "xr.yaml").code == 0
    assert yaml_loader.load(Path("mine/apis/xrd.yaml").read_text())["spec"]["scope"] == "Cluster"
    assert run("test", "mine").code == 0


def test_a_function_of_a_new_platform_passes_its_own_tests(tmp_path: Path) -> None:
    files = platform("mine", example_of("App", "platform.example.org"))
    scope: dict[str, Any] = {"__name__": "function"}
    exec(files["functions/compose-app/function.py"], scope)
    from planform_sdk.testing import converge

    assert converge(scope["compose"], xr={"spec": {"team": "a", "size": "small"}}).ready == {"settings"}


@pytest.mark.parametrize(("kind", "group"), [("app", "example.org"), ("App", "org"), ("My App", "example.org")])
def test_names_that_no_api_could_have_are_refused(kind: str, group: str) -> None:
    with pytest.raises(UsageError):
        example_of(kind, group)


def test_a_function_in_go_names_its_sdk_at_an_exact_version() -> None:
    files = scaffold("function-greet", "go")
    assert "require github.com/crossplane/function-sdk-go v" in files["go.mod"]
    assert {"main.go", "fn.go", "fn_test.go", "package/crossplane.yaml", "example/xr.yaml"} <= files.keys()
    assert "function.py" not in files
