"""`planform test` beyond cases: the XRD's word on an XR, what tests reach, and what they do not notice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from planform.cli.compositions.mutation import mutants
from tests.unit.test_render_command import READY, Run, bucket, composition, patches, run, write, xr

__all__ = ["run"]  # a fixture


def xrd() -> dict[str, Any]:
    spec = {
        "type": "object",
        "required": ["region"],
        "properties": {
            "region": {"type": "string", "enum": ["eu", "us"]},
            "size": {"type": "integer", "default": 3, "maximum": 9},
            "note": {"type": "string"},
        },
    }
    return {
        "apiVersion": "apiextensions.crossplane.io/v2",
        "kind": "CompositeResourceDefinition",
        "metadata": {"name": "apps.example.org"},
        "spec": {
            "group": "example.org",
            "names": {"kind": "App", "plural": "apps"},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "referenceable": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
                }
            ],
        },
    }


def suite(*cases: dict[str, Any], **common: Any) -> None:
    write("xrd.yaml", xrd())
    sized = bucket()
    sized["patches"] += [
        {"fromFieldPath": "spec.size", "toFieldPath": "spec.size"},
        {"fromFieldPath": "spec.note", "toFieldPath": "spec.note"},
    ]
    write("composition.yaml", composition(patches(sized), READY))
    write(
        "app_test.yaml",
        {
            "apiVersion": "test.planform.dev/v1alpha1",
            "kind": "CompositionTest",
            "common": {"composition": "composition.yaml", "xrd": "xrd.yaml", **common},
            "cases": list(cases),
        },
    )


def test_defaults_of_the_xrd_hold_before_the_pipeline_runs(run: Run) -> None:
    suite({"name": "one", "xr": xr(), "expect": {"resources": [{"kind": "Bucket", "spec": {"size": 3}}]}})
    ran = run("test")
    assert ran.code == 0, ran.out


@pytest.mark.parametrize(
    ("given", "expect", "problem"),
    [
        pytest.param(xr(size=10), {}, "the XR is invalid: ", id="invalid"),
        pytest.param(xr(size=10), {"invalid": "size"}, "", id="as expected"),
        pytest.param(xr(size=10), {"invalid": "region"}, 'was to be refused with "region", and was with', id="other"),
        pytest.param(xr(), {"invalid": "size"}, "and is valid", id="valid"),
        pytest.param({**xr(), "kind": "Other"}, {}, "no XRD of Other", id="another kind"),
    ],
)
def test_the_xrd_has_a_word_on_the_xr(run: Run, given: dict[str, Any], expect: dict[str, Any], problem: str) -> None:
    suite({"name": "one", "xr": given, "expect": expect})
    ran = run("test")
    assert ran.code == (1 if problem else 0), ran.out
    assert problem in ran.out


def test_what_no_case_reaches_is_named_with_its_line(run: Run) -> None:
    suite({"name": "one", "xr": xr()})
    ran = run("test", "--coverage", "--coverage-xml", "c.xml", "--coverage-html", "c.html")
    assert ran.code == 0
    [missed] = [line for line in ran.out.splitlines() if "no test reaches" in line]
    assert missed.endswith('no test reaches patch spec.note of "bucket"')
    line = int(missed.split(":")[1])
    assert "spec.note" in "".join(Path("composition.yaml").read_text().splitlines()[line - 1 : line + 1])
    assert "coverage: 4 of 5 steps and patches (80%)" in ran.out
    lines = ElementTree.parse("c.xml").getroot().findall(".//line")
    assert {each.get("number"): each.get("hits") for each in lines}[str(line)] == "0"
    assert 'class="missed"' in Path("c.html").read_text()
    assert run("test", "--fail-under", "81").code == 1
    assert run("test", "--fail-under", "80").code == 0


def test_a_field_that_no_case_notices_is_named(run: Run) -> None:
    expect = {"resources": [{"kind": "Bucket", "spec": {"size": 5}}]}
    suite({"name": "size only", "xr": xr(size=5, note="x"), "expect": expect})
    ran = run("test", "--mutate")
    assert ran.code == 0
    assert "no case notices spec.note: all would pass whatever it is" in ran.out
    assert "spec.size" not in ran.out
    assert "spec.region" not in ran.out, "another region is refused by the XRD"
    [result] = json.loads(run("test", "--mutate", "-o", "json").out)
    assert result["unnoticed"] == ["spec.note"]


def test_each_mutant_differs_in_one_value_of_the_spec() -> None:
    given = xr(size=1, on=True, tags=["a", {"b": "c"}], crossplane={"compositionRef": {"name": "x"}})
    found = dict(mutants(given))
    assert list(found) == ["spec.region", "spec.size", "spec.on", "spec.tags[0]", "spec.tags[1].b"]
    assert found["spec.tags[1].b"]["spec"]["tags"] == ["a", {"b": "c-other"}]
    assert found["spec.on"]["spec"]["on"] is False
    assert given["spec"]["tags"] == ["a", {"b": "c"}]


def test_validate_knows_our_kinds_and_inputs_of_built_in_functions_and_goes_on(run: Run) -> None:
    good, bad = patches(bucket()), patches({**bucket(), "patches": [{"fromFieldPth": "spec.region"}]})
    write("xrd.yaml", xrd())
    Path("resources").mkdir()
    write("resources/a.yaml", composition(good))
    write("resources/b.yaml", composition({**bad, "step": "wrong"}))
    Path("resources/c.yaml").write_text("a: }")
    write("resources/d.yaml", {**composition(good), "spec": {"compositeTypeRef": {}, "mode": "Sideways"}})
    write("resources/e.yaml", xr(size=10))
    ran = run("validate", "xrd.yaml", "resources")
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert any("[✓]" in line and "app-composition/compose" in line for line in lines)
    assert any("[x]" in line and "app-composition/wrong" in line and "fromFieldPth" in line for line in lines)
    assert any("[x] resources/c.yaml" in line for line in lines)
    assert any("[x]" in line and "Kind=Composition" in line and "Sideways" in line for line in lines)
    assert any("[x]" in line and "Kind=App" in line for line in lines), "the last file was checked, too"
    assert "0 missing schemas" in ran.out


def test_without_arguments_three_things_to_do_next_are_shown(run: Run) -> None:
    ran = run()
    assert ran.code == 0
    assert [line.split()[:2] for line in ran.out.splitlines() if line.startswith("  ")] == [
        ["planform", "demo"],
        ["planform", "init"],
        ["planform", "up"],
    ]
