"""`planform test` and `planform function`, as an author uses them."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from planform.cli.functions.logs import data_directory
from planform.cli.functions.scaffold import scaffold
from planform.cli.paths import default_data_directory
from planform.errors import UsageError
from planform.functions.jsonform import request_from_json, response_to_json
from planform.functions.values import (
    FunctionResponse,
    Ready,
    Requirements,
    Resource,
    ResourceSelector,
    Result,
    Severity,
    State,
)
from tests.unit.test_render_command import Run, bucket, composition, patches, run, write, xr

__all__ = ["run"]


def suite(*cases: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "test.planform.dev/v1alpha1",
        "kind": "CompositionTest",
        "common": {"xr": "xr.yaml", "composition": "composition.yaml"},
        "cases": list(cases),
    }


@pytest.fixture
def files(run: Run) -> None:
    write("xr.yaml", xr())
    write("composition.yaml", composition(patches(bucket()), {"step": "ready", "functionRef": {"name": "auto-ready"}}))


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("case", "problem"),
    [
        ({"expect": {"resources": [{"kind": "Bucket", "spec": {"region": "eu"}}], "count": 1}}, ""),
        ({"expect": {"resources": [{"kind": "Bucket", "spec": {"region": "us"}}]}}, 'expected "us", found "eu"'),
        ({"expect": {"resources": [{"kind": "Table"}]}}, "no resource matches Table (composed: Bucket/bucket)"),
        ({"expect": {"absent": ["bucket"]}}, 'resource "bucket" is composed, and was to be absent'),
        ({"expect": {"count": 3}}, "expected 3 resources, found 1: bucket"),
        ({"expect": {"fails": "boom"}}, 'the pipeline was to fail with "boom", and did not'),
        ({"expect": {"xr": {"status": {"url": "x"}}}}, 'xr: status.url: expected "x", found nothing'),
        ({"assertions": ["composed.bucket.spec.region == xr.spec.region"]}, ""),
        ({"assertions": ["composed.bucket.spec.region == 'us'"]}, "assertion is False"),
        ({"assertions": ["composed.nothing.spec.region == 'us'"]}, "assertion cannot be evaluated"),
        ({"untilStable": True, "assertions": ["xr.status.conditions.all(c, c.status == 'True')"]}, ""),
        ({"expectt": {}}, 'the case has a field "expectt" that means nothing; "expect"?'),
        ({"composition": "missing.yaml"}, "cannot read"),
    ],
)
def test_a_case_passes_or_says_what_is_wrong(run: Run, case: dict[str, Any], problem: str) -> None:
    write("app_test.yaml", suite({"name": "the case", **case}))
    ran = run("test")
    assert ran.code == (1 if problem else 0), ran.out
    assert problem in ran.out
    assert ran.out.splitlines()[-1] == ("0 passed, 1 failed" if problem else "1 passed, 0 failed")


@pytest.mark.usefixtures("files")
def test_golden_files_are_written_on_request_and_then_compared(run: Run) -> None:
    write("app_test.yaml", suite({"name": "golden", "expect": {"golden": "golden.yaml"}}))
    assert "--update writes it" in run("test").out
    assert run("test", "--update").code == 0
    assert run("test").code == 0
    Path("golden.yaml").write_text(Path("golden.yaml").read_text().replace("region: eu", "region: us"))
    ran = run("test")
    assert ran.code == 1
    assert "+  region: eu" in ran.out


@pytest.mark.usefixtures("files")
def test_reports_for_machines(run: Run) -> None:
    write("app_test.yaml", suite({"name": "good"}, {"name": "bad", "expect": {"count": 9}}))
    ran = run("test", "-o", "json", "--junit", "report.xml")
    assert [(one["name"], one["result"]) for one in json.loads(ran.out)] == [("good", "passed"), ("bad", "failed")]
    found = ElementTree.parse("report.xml").getroot().find("testsuite")
    assert found is not None
    assert (found.get("tests"), found.get("failures")) == ("2", "1")
    assert "1 passed, 0 failed" in run("test", "--run", "good").out


def test_a_directory_without_tests_is_wrong_usage(run: Run) -> None:
    assert run("test").code == 2


def test_a_built_in_answers_a_partial_request(run: Run) -> None:
    asked = {
        "observed": {"composite": {"resource": xr()}},
        "input": patches(bucket())["input"],
    }
    write("request.yaml", asked)
    ran = run("function", "test", "patch-and-transform", "request.yaml", "--repeat", "3")
    assert ran.code == 0, ran.err
    answer = json.loads(ran.out)
    assert answer["desired"]["resources"]["bucket"]["resource"]["spec"] == {"region": "eu"}
    write("expected.yaml", {"desired": {"resources": {"bucket": {"resource": {"spec": {"region": "us"}}}}}})
    ran = run("function", "test", "patch-and-transform", "request.yaml", "--expect", "expected.yaml")
    assert ran.code == 1
    assert 'expected "us", found "eu"' in ran.err


def test_a_fatal_answer_fails_the_command(run: Run) -> None:
    broken = {"apiVersion": "pt.fn.crossplane.io/v1beta1", "kind": "Resources", "resources": [{"name": "x"}]}
    write("request.yaml", {"observed": {"composite": {"resource": xr()}}, "input": broken})
    ran = run("function", "test", "patch-and-transform", "request.yaml")
    assert ran.code == 1
    assert json.loads(ran.out)["results"][0]["severity"] == "SEVERITY_FATAL"


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], "the request must be an object"),
        ({"observed": {"resources": []}}, "observed.resources must be an object"),
        ({"requiredResources": {"a": {"items": {}}}}, "requiredResources.a.items must be a list"),
        ({"observed": {"composite": {"ready": "MAYBE"}}}, "there is no readiness 'MAYBE'"),
        ({"observed": {"composite": {"connectionDetails": {"a": "!"}}}}, "must be base64"),
    ],
)
def test_a_request_that_is_none_is_explained(document: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        request_from_json(document)


def test_either_spelling_of_a_name_is_read() -> None:
    for spelling in ("requiredResources", "required_resources"):
        request = request_from_json({spelling: {"a": {"items": [{"resource": {"kind": "K"}}]}}, "meta": {"tag": "t"}})
        assert request.required_resources["a"][0].resource == {"kind": "K"}
        assert request.tag == "t"


def test_a_response_is_written_without_what_is_empty() -> None:
    assert response_to_json(FunctionResponse()) == {}
    response = FunctionResponse(
        desired=State(resources={"a": Resource({"kind": "K"}, {"p": b"q"}, Ready.TRUE)}),
        results=[Result(Severity.WARNING, "careful")],
        requirements=Requirements({"r": ResourceSelector("v1", "Pod", match_labels={"a": "b"})}),
        ttl=60.0,
    )
    assert response_to_json(response) == {
        "meta": {"ttl": "60s"},
        "desired": {
            "resources": {"a": {"resource": {"kind": "K"}, "connectionDetails": {"p": "cQ=="}, "ready": "READY_TRUE"}}
        },
        "results": [{"severity": "SEVERITY_WARNING", "message": "careful"}],
        "requirements": {
            "resources": {"r": {"apiVersion": "v1", "kind": "Pod", "matchLabels": {"labels": {"a": "b"}}}}
        },
    }


@pytest.mark.parametrize("name", ["Function_Greet", "-x", "a" * 64, ""])
def test_a_name_that_no_package_could_have_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a function"):
        scaffold(name)


def test_other_tools_spellings_are_understood(run: Run) -> None:
    write("xr.yaml", xr())
    write("composition.yaml", composition(patches(bucket())))
    expected = run("render", "xr.yaml", "composition.yaml").out
    assert run("composition", "render", "composition.yaml", "xr.yaml").out == expected
    assert run("beta", "validate", "composition.yaml", "xr.yaml").code == 0


def test_models_are_python_that_reads_what_the_schema_describes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {
        "type": "object",
        "title": "Settings",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer"},
            "forProvider": {"type": "object", "properties": {"region": {"type": "string"}}},
        },
    }
    write("schema.yaml", schema)
    ran = run("models", "generate", "schema.yaml", "--output-file", "models_made.py")
    assert ran.code == 0, ran.err
    monkeypatch.syspath_prepend(str(Path.cwd()))
    made = importlib.import_module("models_made")
    settings = msgspec.convert({"size": 3, "forProvider": {"region": "eu"}}, made.Settings)
    assert (settings.size, settings.for_provider.region) == (3, "eu")
    write("other.yaml", {"kind": "Thing"})
    assert run("models", "generate", "other.yaml").code == 2


def test_logs_are_looked_for_beside_the_kubeconfig_of_the_control_plane_that_answers(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "planform-ephemeral-1" / "kubeconfig"
    assert data_directory(kubeconfig) == default_data_directory()
    (kubeconfig.parent / "logs").mkdir(parents=True)
    assert data_directory(kubeconfig) == kubeconfig.parent
