"""Fields that no schema has, found in patches and templates before they silently do nothing."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from planform.api.kinds import GroupVersionKind, Object, gvk
from planform.app import Settings, open_control_plane
from planform.cli.main import root
from planform.client.kubeconfig import find_connection
from planform.client.kubernetes import KubernetesClient
from planform.clock import SystemClock
from planform.compositions.field_lints import field_lints, kinds_in
from planform.pipeline.running import builtin_schema
from tests.harness.contexts import until_condition

XR = gvk("example.org/v1", "App")
SCHEMA: Object = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer"},
                "engine": {"type": "object", "properties": {"version": {"type": "string"}}},
                "users": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
                "tags": {"type": "object", "additionalProperties": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "status": {"type": "object", "properties": {"address": {"type": "string"}}},
    },
}


def schema_of(kind: GroupVersionKind) -> Object | None:
    return SCHEMA if kind == XR else builtin_schema(kind)


def composition(*pipeline: Object) -> Object:
    return {
        "compositeTypeRef": {"apiVersion": "example.org/v1", "kind": "App"},
        "mode": "Pipeline",
        "pipeline": list(pipeline),
    }


def patching(*patches: Object, kind: str = "ConfigMap", version: str = "v1", **more: Any) -> Object:
    resource = {"name": "one", "base": {"apiVersion": version, "kind": kind}, "patches": list(patches)}
    given = {"apiVersion": "pt.fn.crossplane.io/v1beta1", "kind": "Resources", "resources": [resource], **more}
    return {"step": "patch", "functionRef": {"name": "function-patch-and-transform"}, "input": given}


def template(text: str) -> Object:
    given = {
        "apiVersion": "gotemplating.fn.crossplane.io/v1beta1",
        "kind": "GoTemplate",
        "source": "Inline",
        "inline": {"template": text},
    }
    return {"step": "render", "functionRef": {"name": "function-go-templating"}, "input": given}


def patch(source: str, target: str = "data.x", type: str = "FromCompositeFieldPath") -> Object:
    return {"type": type, "fromFieldPath": source, "toFieldPath": target}


PATCHES: list[tuple[Object, list[str]]] = [
    (patch("spec.size"), []),
    (patch("spec.tags[a.b/c]"), []),
    (patch("spec.free.what.ever"), []),
    (patch("spec.users[0].name"), []),
    (patch("metadata.labels[team]"), []),
    (patch("metadata.uid"), []),
    (patch("spec.siez"), ['App has no field spec.siez; did you mean "spec.size"?']),
    (
        patch("spec.engine.versoin"),
        ['App has no field spec.engine.versoin; did you mean "spec.engine.version"?'],
    ),
    (patch("spec.users[0].nam"), ['App has no field spec.users[0].nam; did you mean "spec.users[0].name"?']),
    (patch("metadata.lables.x"), ['App has no field metadata.lables.x; did you mean "metadata.labels.x"?']),
    (patch("spec.size", "dato.x"), ['ConfigMap has no field dato.x; did you mean "data.x"?']),
    (patch("data.x", "status.adress", "ToCompositeFieldPath"), ["status.adress"]),
    (patch("spec.[", "data.x"), []),
    ({"type": "CombineFromComposite", "combine": {"variables": [{"fromFieldPath": "spec.no"}]}}, ["spec.no"]),
    ({"fromFieldPath": "spec.zzz", "toFieldPath": "data.x"}, ["spec.zzz"]),
]


@pytest.mark.parametrize(("one", "told"), PATCHES)
def test_a_patch_is_told_which_field_it_means(one: Object, told: list[str]) -> None:
    found = [str(each) for each in field_lints(composition(patching(one)), schema_of)]
    assert len(found) == len(told)
    assert all(words in line for words, line in zip(told, found, strict=True))


def test_patch_sets_and_the_environment_are_looked_at() -> None:
    spec = composition(
        patching(
            {"type": "PatchSet", "patchSetName": "shared"},
            patchSets=[{"name": "shared", "patches": [patch("spec.siez")]}],
            environment={"patches": [patch("spec.tugs", "x")]},
        )
    )
    assert [each.path for each in field_lints(spec, schema_of)] == ["spec.siez", "spec.tugs"]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("{{ .observed.composite.resource.spec.size }}", []),
        ("a\n{{ .observed.composite.resource.spec.siez }}", [".observed.composite.resource.spec.siez"]),
        ("{{ $xr := .observed.composite.resource }}{{ $xr.spec.siez }}{{ $xr.spec.size }}", ["$xr.spec.siez"]),
        ("{{ with .observed.composite.resource.spec }}{{ .siez }}{{ $.observed.x }}{{ end }}", [".siez"]),
        ("{{ range .observed.composite.resource.spec.users }}{{ .nam }}{{ .name }}{{ end }}", [".nam"]),
        ("{{ range $i, $u := .observed.composite.resource.spec.users }}{{ $u.nam }}{{ $i }}{{ end }}", ["$u.nam"]),
        ("{{ if .observed.composite.resource.spec.siez }}x{{ end }}", [".observed.composite.resource.spec.siez"]),
        ('{{ (dig 1 .) .x }}{{ index .context "a" }}{{ .desired.anything }}', []),
        ("{{ default 1 (.observed.composite.resource.spec.siez) }}", [".observed.composite.resource.spec.siez"]),
        ('{{ define "t" }}{{ .siez }}{{ end }}{{ template "t" . }}', []),
        ("{{ $x := .observed.composite.resource.spec }}{{ $x = .desired }}{{ $x.siez }}", []),
        ("{{ range .observed.composite.resource.spec.tags }}{{ . }}{{ end }}", []),
        ("{{ not a template", []),
    ],
)
def test_a_template_is_told_which_fields_it_means(text: str, paths: list[str]) -> None:
    assert [each.path for each in field_lints(composition(template(text)), schema_of)] == paths


def test_a_line_of_a_template_is_named_with_what_was_meant() -> None:
    [lint] = field_lints(composition(template("a: 1\nb: {{ $.observed.composite.resource.spec.siez }}")), schema_of)
    assert str(lint).startswith('step "render", line 2: App has no field $.observed.composite.resource.spec.siez')
    assert str(lint).endswith('did you mean "$.observed.composite.resource.spec.size"?')


@pytest.mark.parametrize("spec", [{}, {"compositeTypeRef": 1}, {"pipeline": 1, "compositeTypeRef": {"kind": "x"}}])
def test_what_is_no_composition_has_no_lints(spec: Object) -> None:
    assert field_lints(spec, schema_of) == []


def test_kinds_that_nobody_knows_are_left_alone() -> None:
    spec = composition(patching(patch("spec.siez", "spec.what.ever"), kind="Thing", version="x.org/v1"))
    assert [each.path for each in field_lints(spec, schema_of)] == ["spec.siez"]
    assert field_lints(spec, lambda _: None) == []
    assert kinds_in(spec) == {XR, gvk("x.org/v1", "Thing")}


XRD: Object = {
    "apiVersion": "apiextensions.crossplane.io/v2",
    "kind": "CompositeResourceDefinition",
    "metadata": {"name": "apps.example.org"},
    "spec": {
        "group": "example.org",
        "names": {"kind": "App", "plural": "apps"},
        "scope": "Namespaced",
        "versions": [
            {"name": "v1", "served": True, "referenceable": True, "schema": {"openAPIV3Schema": SCHEMA}},
        ],
    },
}
COMPOSITION: Object = {
    "apiVersion": "apiextensions.crossplane.io/v1",
    "kind": "Composition",
    "metadata": {"name": "app"},
    "spec": composition(patching(patch("spec.siez"))),
}
TOLD = 'step "patch", resource "one", patches[0]: App has no field spec.siez; did you mean "spec.size"?'


def test_validate_lists_them(tmp_path: Path) -> None:
    (tmp_path / "xrd.yaml").write_text(yaml.safe_dump(XRD))
    (tmp_path / "composition.yaml").write_text(yaml.safe_dump(COMPOSITION))
    files = [str(tmp_path / "xrd.yaml"), str(tmp_path / "composition.yaml")]
    assert f'[!] Composition "app", {TOLD}' in CliRunner().invoke(root, ["validate", *files]).output
    data = yaml.safe_load(CliRunner().invoke(root, ["validate", *files, "-o", "yaml"]).output)
    assert data["unknownFields"] == [f'Composition "app", {TOLD}']


async def test_an_author_is_warned_when_applying(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = SystemClock()
    async with open_control_plane(Settings(data=None)) as plane:
        await plane.client.create(XRD)
        await until_condition(plane.client, XRD, "Established")
        connection = find_connection(clock=clock, path=plane.kubeconfig)
        async with KubernetesClient(connection, clock=clock, rng=Random(1)) as client:
            await client.create(COMPOSITION)
    assert TOLD in caplog.text
