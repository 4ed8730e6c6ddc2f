"""The corners of `planform render` and `planform validate`: inputs that almost fit."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_render_command import READY, Run, bucket, composition, patches, run, write, xr

__all__ = ["run"]

NAME = "crossplane.io/composition-resource-name"


def function(name: str = "function-patch-and-transform", api_version: str = "pkg.crossplane.io/v1") -> dict[str, Any]:
    package = "xpkg.crossplane.io/crossplane-contrib/function-patch-and-transform:v0.9.0"
    return {"apiVersion": api_version, "kind": "Function", "metadata": {"name": name}, "spec": {"package": package}}


def observed(name: str = "live", key: str | None = "bucket", **metadata: Any) -> dict[str, Any]:
    annotations = {NAME: key} if key else {}
    return {
        "apiVersion": "s3.example.org/v1",
        "kind": "Bucket",
        "metadata": {"name": name, "annotations": annotations, **metadata},
    }


@pytest.fixture(autouse=True)
def files(run: Run) -> None:
    write("xr.yaml", xr())
    write("composition.yaml", composition(patches(bucket())))


def test_a_selector_that_the_composition_does_not_match_is_named(run: Run) -> None:
    selecting = xr(crossplane={"compositionSelector": {"matchLabels": {"tier": "gold"}}})
    write("xr.yaml", selecting)
    assert "has no such label" in run("render", "xr.yaml", "composition.yaml").err
    labelled = composition(patches(bucket()))
    labelled["metadata"]["labels"] = {"tier": "silver"}
    write("composition.yaml", labelled)
    assert "tier=silver" in run("render", "xr.yaml", "composition.yaml").err


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"mode": "Pipeline", "pipeline": []}, "spec.pipeline is empty"),
        ({"mode": "Magic", "pipeline": [READY]}, 'no mode "Magic"'),
        ({"pipeline": [READY, READY]}, "Duplicate value"),
        ({"pipeline": [{"functionRef": {"name": "auto-ready"}}]}, "a step needs a name"),
    ],
)
def test_a_pipeline_that_cannot_run_is_explained(run: Run, spec: dict[str, Any], problem: str) -> None:
    write("composition.yaml", composition(**spec))
    ran = run("render", "xr.yaml", "composition.yaml")
    assert ran.code != 0
    assert problem in ran.err


def test_functions_of_the_older_version_count_and_a_name_may_stand_only_once(run: Run) -> None:
    write("functions.yaml", function(api_version="pkg.crossplane.io/v1beta1"))
    assert run("render", "xr.yaml", "composition.yaml", "functions.yaml").code == 0
    write("functions.yaml", function(), function())
    assert "two functions are called" in run("render", "xr.yaml", "composition.yaml", "functions.yaml").err


def test_a_directory_gives_the_yaml_files_directly_in_it(run: Run) -> None:
    Path("functions/nested").mkdir(parents=True)
    assert "no YAML files" in run("render", "xr.yaml", "composition.yaml", "functions").err
    write("functions/a.yaml", function())
    Path("functions/nested/broken.yaml").write_text(": not yaml :\n- [")
    Path("functions/comments.yaml").write_text("# nothing but a comment\n---\n# and another\n")
    assert run("render", "xr.yaml", "composition.yaml", "functions").code == 0


def test_a_package_that_cannot_be_had_says_how_to_run_the_function_otherwise(run: Run) -> None:
    other = function("function-other")
    other["spec"]["package"] = "127.0.0.1:9/acme/function-other:v1"
    write("functions.yaml", other)
    write("composition.yaml", composition({"step": "other", "functionRef": {"name": "function-other"}}))
    ran = run("render", "xr.yaml", "composition.yaml", "functions.yaml")
    assert ran.code == 1
    assert "127.0.0.1:9" in ran.err
    assert "--function function-other=HOST:PORT" in ran.err


@pytest.mark.parametrize(
    ("package", "annotations"),
    [
        (f"127.0.0.1:9/crossplane-contrib/function-patch-and-transform@sha256:{'0' * 64}", {}),
        ("127.0.0.1:9/crossplane-contrib/function-patch-and-transform:v0.9.0", {"planform.dev/runtime": "Package"}),
        ("127.0.0.1:9/acme/function-patch-and-transform:v0.9.0", {}),
    ],
    ids=["a digest", "asked for", "somebody else's"],
)
def test_a_package_that_the_built_in_cannot_be_is_pulled_and_not_replaced(
    run: Run, package: str, annotations: dict[str, str]
) -> None:
    named = function()
    named["spec"]["package"] = package
    named["metadata"]["annotations"] = annotations
    write("functions.yaml", named)
    ran = run("render", "xr.yaml", "composition.yaml", "functions.yaml")
    assert ran.code == 1
    assert "127.0.0.1:9" in ran.err


def test_a_version_that_the_built_in_is_not_is_told_beside_the_pipeline(run: Run) -> None:
    named = function()
    named["spec"]["package"] = "127.0.0.1:9/crossplane-contrib/function-patch-and-transform:v0.9.0"
    write("functions.yaml", named)
    ran = run("render", "xr.yaml", "composition.yaml", "functions.yaml", "--show-pipeline")
    assert ran.code == 0
    assert "spec.package names v0.9.0, and what serves is planform's own patch-and-transform" in ran.err


@pytest.mark.parametrize(
    ("resources", "problem"),
    [
        ([observed(key=None)], f"has no annotation {NAME}"),
        ([observed("a"), observed("b")], 'two observed resources are called "bucket"'),
        ([observed(namespace="elsewhere")], 'is in namespace "elsewhere"'),
        ([observed(ownerReferences=[{"uid": "x", "controller": True}])], "is controlled by another object"),
    ],
)
def test_an_observed_resource_that_cannot_be_ours_is_refused(
    run: Run, resources: list[dict[str, Any]], problem: str
) -> None:
    write("observed.yaml", *resources)
    ran = run("render", "xr.yaml", "composition.yaml", "-o", "observed.yaml")
    assert ran.code == 2
    assert problem in ran.err


def test_an_observed_resource_without_a_name_has_the_one_it_would_have_been_created_with(run: Run) -> None:
    new = run("render", "xr.yaml", "composition.yaml").documents[-1]["metadata"]["name"]
    write("observed.yaml", observed(name=""))
    assert run("render", "xr.yaml", "composition.yaml", "-o", "observed.yaml").documents[-1]["metadata"]["name"] == new


def test_a_context_value_wins_over_a_file_and_may_be_a_scalar(run: Run) -> None:
    Path("context.yaml").write_text("from: file\n")
    words = ("--context-files", "k=context.yaml", "--context-files", "f=context.yaml", "--context-values", "k=plain")
    fields = run("render", "xr.yaml", "composition.yaml", "-c", *words).documents[-1]["fields"]
    assert (fields["k"], fields["f"]) == ("plain", {"from": "file"})
    ran = run("render", "xr.yaml", "composition.yaml", "--context-values", "k={broken")
    assert ran.code == 2
    assert "--context-values k" in ran.err


@pytest.mark.parametrize(
    ("secrets", "problem"),
    [
        ([{"stringData": {"token": "x"}}], ""),
        ([{"data": {"token": "eA=="}}], ""),
        ([{"data": {"token": "not base64!"}}], "data is not base64"),
        ([{"namespace": "other", "stringData": {"token": "x"}}], 'Secret "creds" in namespace "ns" does not exist'),
        ([], "no credentials were given"),
    ],
)
def test_credentials_come_from_secrets_by_namespace_and_name(
    run: Run, secrets: list[dict[str, Any]], problem: str
) -> None:
    reference = {"name": "c", "source": "Secret", "secretRef": {"namespace": "ns", "name": "creds"}}
    write("composition.yaml", composition({**patches(bucket()), "credentials": [reference]}))
    words = ["render", "xr.yaml", "composition.yaml"]
    if secrets:
        documents = [
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "creds", "namespace": secret.pop("namespace", "ns")},
                **secret,
            }
            for secret in [dict(one) for one in secrets]
        ]
        write("secrets.yaml", *documents)
        words += ["--function-credentials", "secrets.yaml"]
    ran = run(*words)
    assert (ran.code == 0) is (problem == "")
    assert problem in ran.err


def test_generated_names_are_valid_whatever_the_resource_is_called(run: Run) -> None:
    long = xr()
    long["metadata"]["name"] = "a" * 63
    write("xr.yaml", long)
    write("composition.yaml", composition(patches(bucket("Upper.and.dots"), bucket("x" * 200))))
    composed = run("render", "xr.yaml", "composition.yaml").documents[1:]
    for one in composed:
        assert len(one["metadata"]["name"]) <= 63
        assert one["metadata"]["name"] == one["metadata"]["name"].lower()
    assert len({one["metadata"]["name"] for one in composed}) == 2


def test_the_full_xr_merges_objects_and_replaces_lists(run: Run) -> None:
    given = {**xr(tags=["a", "b"]), "status": {"conditions": [{"type": "Old", "status": "True"}], "kept": 1}}
    write("xr.yaml", given)
    shown = run("render", "xr.yaml", "composition.yaml", "-x").documents[0]
    assert shown["spec"]["tags"] == ["a", "b"]
    assert shown["status"]["kept"] == 1
    assert "Old" not in {condition["type"] for condition in shown["status"]["conditions"]}


# -- validate


def crd(kind: str, *versions: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.lower()}s.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": {"plural": f"{kind.lower()}s", "kind": kind},
            "versions": [
                {
                    "name": name,
                    "served": True,
                    "storage": index == 0,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {"spec": {"type": "object", "properties": properties}},
                        }
                    },
                }
                for index, (name, properties) in enumerate(versions)
            ],
        },
    }


def test_each_version_has_its_own_schema_and_the_last_definition_wins(run: Run) -> None:
    text, number = {"a": {"type": "string"}}, {"a": {"type": "integer"}}
    write("crd.yaml", crd("App", ("v1", text), ("v2", number)))
    write("objects.yaml", {**xr(), "spec": {"a": "x"}}, {**xr(), "apiVersion": "example.org/v2", "spec": {"a": "x"}})
    ran = run("validate", "crd.yaml", "objects.yaml")
    assert ran.out.splitlines()[-1] == "Total 2 resources: 0 missing schemas, 1 success cases, 1 failure cases"
    write("crd.yaml", crd("App", ("v1", number)), crd("App", ("v1", text)))
    write("objects.yaml", {**xr(), "spec": {"a": "x"}})
    assert run("validate", "crd.yaml", "objects.yaml").code == 0


def test_defaults_apply_before_validation_and_unknown_fields_are_kept_where_the_schema_says_so(run: Run) -> None:
    properties = {
        "size": {"type": "integer", "default": 1},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "maybe": {"type": "string", "nullable": True},
    }
    write("crd.yaml", crd("App", ("v1", properties)))
    write("objects.yaml", {**xr(), "spec": {"free": {"anything": 1}, "maybe": None, "size": None}})
    ran = run("validate", "crd.yaml", "objects.yaml")
    assert ran.code == 0, ran.out


def test_only_one_side_can_come_from_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("validate", "-", "-").code == 2

    class Stdin:
        buffer = io.BytesIO(Path("xr.yaml").read_bytes())

    write("crd.yaml", crd("App", ("v1", {"region": {"type": "string"}})))
    monkeypatch.setattr(sys, "stdin", Stdin())
    assert run("validate", "crd.yaml", "-").code == 0


def test_a_missing_schema_is_a_failure_only_when_asked(run: Run) -> None:
    write("crd.yaml", crd("Other", ("v1", {})))
    assert run("validate", "crd.yaml", "xr.yaml").code == 0
    assert run("validate", "crd.yaml", "xr.yaml", "--error-on-missing-schemas").code == 1
