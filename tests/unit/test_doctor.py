"""The doctor names what is stuck and why, leaves the healthy alone, and its bundle shows no secret."""

from __future__ import annotations

import asyncio
import base64
import json
import tarfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from planform.api.kinds import Object
from planform.api.names import COMPOSITION
from planform.apiserver.auth.certificates import authority
from planform.app import Settings, open_control_plane
from planform.cli.diagnosis.doctor import Read, certificates_in
from planform.cli.diagnosis.findings import Finding, Patient, examine
from planform.cli.diagnosis.support_bundle import write_bundle
from planform.cli.main import root
from tests.harness.contexts import eventually

NOW = datetime(2026, 6, 1, tzinfo=UTC)
LONG_AGO, JUST_NOW = "2026-05-01T00:00:00Z", "2026-05-31T23:59:00Z"


def an_object(api_version: str, kind: str, name: str, **more: Any) -> Object:
    metadata = {"name": name, **more.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **more}


def conditions(**statuses: str) -> Object:
    told = [
        {"type": type_, "status": status, "reason": "Because", "message": "so"} for type_, status in statuses.items()
    ]
    return {"conditions": told}


def an_xrd(**more: Any) -> Object:
    names = {"names": {"kind": "XApp", "plural": "xapps"}, "claimNames": {"kind": "App", "plural": "apps"}}
    spec = {"group": "example.org", **names, "versions": []}
    status = more.pop("status", conditions(Established="True", Offered="True"))
    return an_object(
        "apiextensions.crossplane.io/v2", "CompositeResourceDefinition", "xapps.example.org", spec=spec, status=status
    )


def an_xr(name: str = "web", **more: Any) -> Object:
    return an_object("example.org/v1", "XApp", name, **more)


def a_composition(**spec: Any) -> Object:
    return an_object("apiextensions.crossplane.io/v1", "Composition", "apps", spec=spec)


def a_function(package: str = "registry.example.org/acme/function-web:v1", **more: Any) -> Object:
    return an_object("pkg.crossplane.io/v1", "Function", "web", spec={"package": package}, **more)


def a_function_revision(state: str) -> Object:
    labels = {"labels": {"pkg.crossplane.io/package": "web"}}
    return an_object("pkg.crossplane.io/v1", "FunctionRevision", "web-1", metadata=labels, spec={"desiredState": state})


def a_blueprint(function: str) -> Object:
    phase = {"name": "one", "func": function, "args": {}}
    return an_object("cr.kanister.io/v1alpha1", "Blueprint", "b", actions={"backup": {"phases": [phase]}})


READY = conditions(Synced="True", Ready="True")
FINALIZERS = {"finalizers": ["composite.apiextensions.crossplane.io"]}
CASES: dict[str, tuple[list[Object], str, str]] = {
    "not-synced": ([an_xrd(), an_xr(status=conditions(Synced="False"))], "not-synced", "is not Synced: Because: so"),
    "not-ready": (
        [an_xrd(), an_xr(status=conditions(Synced="True", Ready="False"))],
        "not-ready",
        "is not Ready: Because: so",
    ),
    "not-seen": ([an_xrd(), an_xr()], "not-seen", "no controller has said anything"),
    "paused": (
        [an_xrd(), an_xr(metadata={"annotations": {"crossplane.io/paused": "true"}}, status=READY)],
        "paused",
        "is paused",
    ),
    "finalizer": (
        [an_xrd(), an_xr(metadata={"deletionTimestamp": LONG_AGO, **FINALIZERS}, status=READY)],
        "finalizer",
        "finalizers: composite.apiextensions.crossplane.io",
    ),
    "definition": ([an_xrd(status=conditions(Established="False"))], "definition", "is not Established: Because: so"),
    "crd": (
        [
            an_object(
                "apiextensions.k8s.io/v1", "CustomResourceDefinition", "x", status=conditions(NamesAccepted="False")
            )
        ],
        "crd",
        "is not established: Because: so",
    ),
    "package": (
        [a_function(status=conditions(Installed="True", Healthy="False")), a_function_revision("Active")],
        "package",
        "is not Healthy: Because: so",
    ),
    "no-active-revision": (
        [a_function(status=conditions(Healthy="True")), a_function_revision("Inactive")],
        "no-active-revision",
        "none of its revisions is active",
    ),
    "function-missing": (
        [a_composition(pipeline=[{"step": "one", "functionRef": {"name": "acme-web"}}])],
        "function-missing",
        'calls function "acme-web"',
    ),
    "revision": (
        [
            an_object(
                "apiextensions.crossplane.io/v1", "CompositionRevision", "r", status=conditions(ValidPipeline="False")
            )
        ],
        "revision",
        "its pipeline cannot run: Because: so",
    ),
    "blueprint": ([a_blueprint("NoSuchFunction")], "blueprint", "NoSuchFunction"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_stuck_is_named_with_its_reason(case: str) -> None:
    objects, check, message = CASES[case]
    [finding] = [each for each in examine(Patient(objects, NOW)) if each.level == "stuck"]
    assert finding.check == check
    assert message in finding.message


def test_nothing_is_said_against_what_is_healthy() -> None:
    objects = [
        an_xrd(),
        an_xr(status=READY),
        an_xr("going", metadata={"deletionTimestamp": JUST_NOW, **FINALIZERS}, status=READY),
        a_composition(pipeline=[{"step": "one", "functionRef": {"name": "web"}}]),
        a_function(status=conditions(Installed="True", Healthy="True")),
        a_function_revision("Active"),
    ]
    found = examine(Patient(objects, NOW))
    assert {each.level for each in found} == {"works"}
    assert ("XApp.example.org", "2 work unchanged") in {(each.about, each.message) for each in found}


DIFFERENCES: dict[str, tuple[Object, str]] = {
    "resources-mode": (a_composition(resources=[{}]), "runs as a step of patch-and-transform"),
    "resources-and-pipeline": (
        a_composition(mode="Pipeline", resources=[{"name": "a"}], pipeline=[{"step": "one"}]),
        "spec.resources",
    ),
    "store-config": (a_composition(publishConnectionDetailsWithStoreConfigRef={"name": "x"}), "is ignored"),
    "unknown-kind": (an_object("secrets.crossplane.io/v1alpha1", "StoreConfig", "x"), "planform has no StoreConfig"),
    "built-in-function": (a_function("x/crossplane-contrib/function-auto-ready:v0.4"), "is built in"),
}


@pytest.mark.parametrize("case", DIFFERENCES)
def test_what_differs_from_crossplane_is_told(case: str) -> None:
    obj, message = DIFFERENCES[case]
    [finding] = [each for each in examine(Patient([obj], NOW, is_live=False)) if each.level == "differs"]
    assert finding.check == case
    assert message in finding.message


def a_revision(name: str, number: int, released: str) -> Object:
    owner = {"apiVersion": COMPOSITION.api_version, "kind": "Composition", "name": "apps", "controller": True}
    return an_object(
        COMPOSITION.api_version,
        "CompositionRevision",
        name,
        metadata={"ownerReferences": [owner]},
        spec={"revision": number},
        status=conditions(ValidPipeline="True", Released=released),
    )


def test_what_crossplane_would_move_at_once_is_told() -> None:
    group = "rollout.planform.dev/v1alpha1"
    rollouts = [
        an_object(group, "Rollout", "apps-r2", status={"phase": "Running"}),
        an_object(group, "Rollout", "apps-r1", status={"phase": "Completed"}),
    ]
    revisions = [a_revision("apps-1", 1, "True"), a_revision("apps-2", 2, "False")]
    found = examine(Patient([*rollouts, *revisions], NOW))
    assert [(each.check, each.about) for each in found if each.level == "differs"] == [
        ("revision-not-released", "Composition.apiextensions.crossplane.io apps"),
        ("rollout-under-way", "Rollout.rollout.planform.dev apps-r2"),
    ]
    revisions = [a_revision("apps-1", 1, "False"), a_revision("apps-2", 2, "True")]
    assert not [each for each in examine(Patient([*rollouts[1:], *revisions], NOW)) if each.level == "differs"]


def test_of_files_nothing_is_said_that_only_a_running_control_plane_shows() -> None:
    found = examine(Patient([an_xrd(status={}), an_xr()], NOW, is_live=False))
    assert {each.level for each in found} == {"works"}


def test_certificates_are_looked_at_before_they_end() -> None:
    made = authority("it", NOW - timedelta(days=90), NOW + timedelta(days=3))
    secret = a_secret("tls", {"tls.crt": made.certificate})
    found = examine(Patient([], NOW, certificates=certificates_in([secret, a_secret("none", {"tls.crt": b"no"})])))
    assert [(each.about, each.message) for each in found] == [
        ("Secret default/tls", "the certificate expires in 3 days")
    ]


# -- the bundle


VALUES = {"password": b"correct-horse-battery", "key": b"-----BEGIN KEY-----\nMIIEvQIBADAN\n-----END KEY-----\n"}


def a_secret(name: str, data: dict[str, bytes]) -> Object:
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return an_object("v1", "Secret", name, metadata={"namespace": "default"}, data=encoded, type="Opaque")


def check_bundle(path: Path, values: dict[str, bytes]) -> dict[str, str]:
    """No value of a Secret is in any file, in no spelling; gives the files."""
    with tarfile.open(path) as archive:
        files = {
            member.name: stream.read().decode()
            for member in archive
            if (stream := archive.extractfile(member)) is not None
        }
    for name, text in files.items():
        for value in values.values():
            for spelling in (value.decode(), base64.b64encode(value).decode(), json.dumps(value.decode())[1:-1]):
                assert spelling not in text, name
    assert path.stat().st_mode & 0o077 == 0
    return files


def test_a_bundle_has_everything_but_secrets(tmp_path: Path) -> None:
    leaky = an_xr(
        spec={"leaked": VALUES["password"].decode(), "inside": f"a {VALUES['key'].decode()} z", "size": 3},
        metadata={"annotations": {"kubectl.kubernetes.io/last-applied-configuration": VALUES["password"].decode()}},
        status={"encoded": base64.b64encode(VALUES["password"]).decode()},
    )
    token = b"of-another-cluster"
    foreign = a_secret("elsewhere", {"token": token})
    wrapping = an_object("k.example.org/v1", "Object", "o", spec={"manifest": foreign}, status={"said": token.decode()})
    seen = Read(
        objects=[leaky, wrapping],
        secrets=[a_secret("login", VALUES)],
        events=[an_object("v1", "Event", "e", message="hello")],
    )
    findings = [Finding("stuck", "not-ready", "XApp web", f"failed with {VALUES['password'].decode()}")]
    write_bundle(tmp_path / "bundle.tar.gz", seen, findings, about={"planform": "0"}, now=NOW)
    files = check_bundle(tmp_path / "bundle.tar.gz", {**VALUES, "token": token})
    objects = {"objects/Object.yaml", "objects/XApp.yaml"}
    assert set(files) == {"about.yaml", "events.yaml", "findings.yaml", "secrets.yaml"} | objects
    assert yaml.safe_load(files["secrets.yaml"])["keys"] == ["key", "password"]
    assert yaml.safe_load(files["objects/XApp.yaml"])["spec"]["size"] == 3
    assert "hello" in files["events.yaml"]


async def test_a_running_control_plane_is_examined_by_command(tmp_path: Path) -> None:
    async with open_control_plane(Settings(data=None)) as plane:
        await plane.client.create(a_secret("login", VALUES))
        await plane.client.create(
            a_composition(
                compositeTypeRef={"apiVersion": "example.org/v1", "kind": "XApp"},
                mode="Pipeline",
                pipeline=[{"step": "one", "functionRef": {"name": "acme-web"}}],
            )
        )

        async def said() -> bool:
            found = await plane.client.get(COMPOSITION, "apps")
            return bool((found.get("status") or {}).get("conditions"))

        await eventually(said, "the Composition was looked at")
        kubeconfig = ("--kubeconfig", str(plane.kubeconfig))
        bundle = tmp_path / "bundle.tar.gz"
        done = await asyncio.to_thread(
            CliRunner().invoke, root, ["doctor", *kubeconfig, "-o", "json", "--bundle", str(bundle)]
        )
        assert done.exit_code == 1, done.output
        report = json.loads(done.stdout)
        assert [each["check"] for each in report["findings"] if each["level"] == "stuck"] == ["function-missing"]
        assert report["unread"] == []
    files = check_bundle(bundle, VALUES)
    assert "acme-web" in files["objects/Composition.yaml"]


def test_a_directory_of_manifests_is_examined_by_command(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all([an_xrd(), a_composition(resources=[{}])]))
    done = CliRunner().invoke(root, ["doctor", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "Composition.apiextensions.crossplane.io apps: runs as a step of patch-and-transform" in done.output
    assert "CompositeResourceDefinition.apiextensions.crossplane.io: 1 works unchanged" in done.output


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_examined(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("{{ not yaml }}: [")
    (tmp_path / "b.yaml").write_text("kind: Nameless\n---\n- no\n- object\n")
    legacy = a_composition(resources=[{}])
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(legacy))
    done = CliRunner().invoke(root, ["doctor", str(tmp_path), "-o", "json"])
    told = json.loads(done.stdout)
    assert [Path(one.split(",")[0].split(":")[0]).name for one in told["unread"]] == ["a.yaml", "b.yaml", "b.yaml"]
    assert any("Composition" in finding["about"] for finding in told["findings"])
