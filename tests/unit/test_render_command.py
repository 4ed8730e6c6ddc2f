"""`planform render`, `validate` and `convert` as an author uses them, with built-in functions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planform.apimachinery import yaml_loader

Run = Callable[..., "Ran"]


class Ran:
    """How a command ended and what it printed."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [document for document in yaml_loader.load_all(self.out) if document is not None]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    from planform.cli import main

    monkeypatch.chdir(tmp_path)

    def run_it(*words: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        captured = capsys.readouterr()
        return Ran(int(ended.value.code or 0), captured.out, captured.err)

    return run_it


def write(name: str, *documents: dict[str, Any]) -> None:
    Path(name).write_text(yaml_loader.dump_all(documents))


def xr(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.org/v1",
        "kind": "App",
        "metadata": {"name": "my-app", "namespace": "default"},
        "spec": {"region": "eu", **spec},
    }


def bucket(name: str = "bucket") -> dict[str, Any]:
    return {
        "name": name,
        "base": {"apiVersion": "s3.example.org/v1", "kind": "Bucket", "spec": {}},
        "patches": [{"fromFieldPath": "spec.region", "toFieldPath": "spec.region"}],
    }


def patches(*resources: dict[str, Any], step: str = "compose") -> dict[str, Any]:
    return {
        "step": step,
        "functionRef": {"name": "function-patch-and-transform"},
        "input": {"apiVersion": "pt.fn.crossplane.io/v1beta1", "kind": "Resources", "resources": list(resources)},
    }


READY = {"step": "ready", "functionRef": {"name": "function-auto-ready"}}


def composition(*steps: dict[str, Any], kind: str = "App", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.crossplane.io/v1",
        "kind": "Composition",
        "metadata": {"name": f"{kind.lower()}-composition"},
        "spec": {
            "compositeTypeRef": {"apiVersion": "example.org/v1", "kind": kind},
            **({"mode": "Pipeline", "pipeline": list(steps)} if steps else {}),
            **spec,
        },
    }


def test_the_xr_comes_first_and_then_its_resources_by_name(run: Run) -> None:
    write("xr.yaml", xr())
    write("composition.yaml", composition(patches(bucket("b"), bucket("a")), READY))
    ran = run("render", "xr.yaml", "composition.yaml")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("---\n")
    shown, *composed = ran.documents
    assert [one["metadata"]["annotations"]["crossplane.io/composition-resource-name"] for one in composed] == ["a", "b"]
    assert [ref["name"] for ref in shown["spec"]["crossplane"]["resourceRefs"]] == sorted(
        one["metadata"]["name"] for one in composed
    )
    conditions = {one["type"]: one for one in shown["status"]["conditions"]}
    assert conditions["Ready"]["message"] == "Unready resources: a, b"
    assert {one["lastTransitionTime"] for one in conditions.values()} == {"2024-01-01T00:00:00Z"}
    assert composed[0]["spec"] == {"region": "eu"}


def test_two_runs_print_the_same_bytes_and_the_order_of_files_does_not_matter(run: Run) -> None:
    write("xr.yaml", xr())
    write("composition.yaml", composition(patches(bucket())))
    assert run("render", "xr.yaml", "composition.yaml").out == run("render", "composition.yaml", "xr.yaml").out


def test_resources_mode_renders_like_its_conversion(run: Run) -> None:
    write("xr.yaml", xr())
    write("resources.yaml", composition(resources=[bucket()]))
    converted = run("convert", "resources.yaml")
    Path("pipeline.yaml").write_text(converted.out)
    assert run("render", "xr.yaml", "resources.yaml").out == run("render", "xr.yaml", "pipeline.yaml").out
    assert "1 resources became one step" in converted.err


def test_an_observed_resource_keeps_its_name_and_can_make_the_xr_ready(run: Run) -> None:
    observed = {
        "apiVersion": "s3.example.org/v1",
        "kind": "Bucket",
        "metadata": {"name": "live", "annotations": {"crossplane.io/composition-resource-name": "bucket"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    gone = {**observed, "metadata": {"name": "old", "annotations": {"crossplane.io/composition-resource-name": "gone"}}}
    write("xr.yaml", xr())
    write("composition.yaml", composition(patches(bucket()), READY))
    write("observed.yaml", observed, gone)
    ran = run("render", "xr.yaml", "composition.yaml", "-o", "observed.yaml", "--show-deleted")
    shown, one, deleted = ran.documents
    assert one["metadata"]["name"] == "live"
    assert {c["type"]: c["status"] for c in shown["status"]["conditions"]} == {"Synced": "True", "Ready": "True"}
    assert (deleted["kind"], deleted["name"]) == ("Deleted", "gone")
    assert "would delete Bucket/old (gone)" in ran.err


def test_until_stable_simulates_readiness(run: Run) -> None:
    write("xr.yaml", xr())
    write("composition.yaml", composition(patches(bucket()), READY))
    ran = run("render", "xr.yaml", "composition.yaml", "--until-stable")
    assert "stable after 3 iterations" in ran.err
    assert {c["type"]: c["status"] for c in ran.documents[0]["status"]["conditions"]}["Ready"] == "True"


def test_a_fatal_step_ends_with_3_and_shows_how_far_it_came(run: Run) -> None:
    broken = patches({**bucket(), "patches": [{"type": "Nonsense"}]}, step="broken")
    write("xr.yaml", xr())
    write("composition.yaml", composition(patches(bucket(), step="fine"), broken, READY))
    ran = run("render", "xr.yaml", "composition.yaml", "-r")
    assert ran.code == 3
    assert "broken" in ran.err
    assert "fine" in ran.err
    assert [one["kind"] for one in ran.documents] == ["App", "Bucket", "Result"]
    assert ran.documents[-1]["severity"] == "Fatal"
    synced = next(c for c in ran.documents[0]["status"]["conditions"] if c["type"] == "Synced")
    assert synced["status"] == "False"


def test_context_and_the_full_xr_are_shown_when_asked_for(run: Run) -> None:
    write("xr.yaml", xr(size=3))
    write("composition.yaml", composition(patches(bucket())))
    ran = run("render", "xr.yaml", "composition.yaml", "-x", "-c", "--context-values", 'example.org/key={"a": 1}')
    assert ran.documents[0]["spec"]["size"] == 3
    assert ran.documents[0]["spec"]["crossplane"]["resourceRefs"]
    assert ran.documents[-1]["fields"]["example.org/key"] == {"a": 1}


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha1"])
def test_required_resources_reach_the_function_that_asks(run: Run, version: str) -> None:
    environment = {
        "apiVersion": f"apiextensions.crossplane.io/{version}",
        "kind": "EnvironmentConfig",
        "metadata": {"name": "dev"},
        "data": {"region": "from-environment"},
    }
    step = {
        "step": "environment",
        "functionRef": {"name": "function-environment-configs"},
        "input": {
            "apiVersion": "environmentconfigs.fn.crossplane.io/v1beta1",
            "kind": "Input",
            "spec": {"environmentConfigs": [{"type": "Reference", "ref": {"name": "dev"}}]},
        },
    }
    from_environment = {"type": "FromEnvironmentFieldPath", "fromFieldPath": "region", "toFieldPath": "spec.region"}
    write("xr.yaml", xr())
    write("composition.yaml", composition(step, patches({**bucket(), "patches": [from_environment]})))
    write("required.yaml", environment)
    ran = run("render", "xr.yaml", "composition.yaml", "-e", "required.yaml")
    assert ran.documents[1]["spec"]["region"] == "from-environment", ran.err


def test_nested_xrs_are_rendered_when_asked_for(run: Run) -> None:
    child = {"name": "child", "base": {"apiVersion": "example.org/v1", "kind": "Part", "spec": {"region": "nested"}}}
    write("xr.yaml", xr())
    write("outer.yaml", composition(patches(child)))
    write("inner.yaml", composition(patches(bucket()), kind="Part"))
    ran = run("render", "xr.yaml", "outer.yaml", "inner.yaml", "--recursive")
    assert [one["kind"] for one in ran.documents] == ["App", "Part", "Part", "Bucket"]
    assert ran.documents[-1]["spec"]["region"] == "nested"


def test_an_xrd_gives_defaults_and_shape(run: Run) -> None:
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"region": {"type": "string", "default": "us"}}}},
    }
    xrd = {
        "apiVersion": "apiextensions.crossplane.io/v1",
        "kind": "CompositeResourceDefinition",
        "metadata": {"name": "apps.example.org"},
        "spec": {
            "group": "example.org",
            "names": {"plural": "apps", "kind": "App"},
            "versions": [{"name": "v1", "served": True, "referenceable": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    cluster = {"apiVersion": "example.org/v1", "kind": "App", "metadata": {"name": "my-app"}, "spec": {}}
    write("xr.yaml", cluster)
    write("composition.yaml", composition(patches(bucket())))
    write("xrd.yaml", xrd)
    shown, one = run("render", "xr.yaml", "composition.yaml", "--xrd", "xrd.yaml").documents
    assert one["spec"]["region"] == "us"
    assert shown["spec"]["resourceRefs"]


def test_json_is_one_list(run: Run) -> None:
    write("xr.yaml", xr())
    write("composition.yaml", composition(patches(bucket())))
    body = json.loads(run("render", "xr.yaml", "composition.yaml", "-o", "json").out)
    assert [item["kind"] for item in body["items"]] == ["App", "Bucket"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param({"kind": "Other"}, "composes App (example.org/v1), and the XR is a Other", id="kind"),
        pytest.param({"apiVersion": "example.org/v2"}, "the XR is a App (example.org/v2)", id="version"),
        pytest.param({"metadata": {}}, "the XR has no metadata.name", id="no name"),
    ],
)
def test_an_xr_that_does_not_fit_is_refused_with_a_reason(run: Run, change: dict[str, Any], problem: str) -> None:
    write("xr.yaml", {**xr(), **change})
    write("composition.yaml", composition(patches(bucket())))
    ran = run("render", "xr.yaml", "composition.yaml")
    assert ran.code != 0
    assert problem in ran.err


def test_an_unknown_function_is_named_with_its_step(run: Run) -> None:
    write("xr.yaml", xr())
    write("composition.yaml", composition({"step": "first", "functionRef": {"name": "function-nowhere"}}))
    ran = run("render", "xr.yaml", "composition.yaml")
    assert ran.code == 3
    assert 'step "first": function "function-nowhere": no such function is installed' in ran.err
    assert "hint: say where it is: --function function-nowhere=FILE.py" in ran.err


def test_validate_reports_each_object_and_a_total(run: Run) -> None:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {"size": {"type": "integer", "maximum": 3}},
                "x-kubernetes-validations": [{"rule": "self.size > 0", "message": "must be positive"}],
            }
        },
    }
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "apps.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": {"plural": "apps", "kind": "App"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    other = {"apiVersion": "x.org/v1", "kind": "Unknown", "metadata": {"name": "u"}}
    objects = [{**xr(), "spec": spec} for spec in ({"size": 1}, {"size": 9}, {"size": 0}, {"size": 1, "zork": 1})]
    write("crd.yaml", crd)
    write("objects.yaml", *objects, other)
    ran = run("validate", "crd.yaml", "objects.yaml")
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert lines[0] == "[✓] example.org/v1, Kind=App, my-app validated successfully"
    assert lines[1].startswith(
        "[x] schema validation error example.org/v1, Kind=App, my-app : spec.size: Invalid value"
    )
    assert "CEL validation error" in lines[2]
    assert "must be positive" in lines[2]
    assert 'unknown field: "spec.zork"' in lines[3]
    assert lines[4] == "[!] could not find CRD/XRD for: x.org/v1, Kind=Unknown"
    assert lines[5] == "Total 5 resources: 1 missing schemas, 1 success cases, 3 failure cases"
    summary = json.loads(run("validate", "crd.yaml", "objects.yaml", "-o", "json").out)["summary"]
    assert summary == {"total": 5, "valid": 1, "invalid": 3, "missingSchemas": 1}
