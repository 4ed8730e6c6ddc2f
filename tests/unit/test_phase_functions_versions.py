"""The built-in phase functions and the versions file: what runs in this release, what warns, what is gone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from planform.blueprints.catalogue import Ask, PhaseCatalogue
from planform.blueprints.contract import PhaseEnvironment
from planform.blueprints.functions import FAMILIES, Policy, builtin_functions
from planform.blueprints.registry import PhaseFunctionRegistry
from planform.functions.errors import VersionRemoved
from planform.functions.resolution import Rule

KANISTER = {
    "KubeTask": {"image", "command"},
    "MultiContainerRun": {"backgroundImage", "backgroundCommand", "outputImage", "outputCommand"},
    "KubeExec": {"namespace", "pod", "command"},
    "KubeExecAll": {"namespace", "pods", "containers", "command"},
    "PrepareData": {"namespace", "image", "command"},
    "ScaleWorkload": {"replicas"},
    "KubeOps": {"operation"},
    "WaitV2": {"timeout", "conditions"},
    "Wait": {"timeout", "conditions"},
    "LocationDelete": {"artifact"},
    "BackupData": {"namespace", "pod", "container", "includePath", "backupArtifactPrefix"},
    "RestoreData": {"namespace", "image", "backupArtifactPrefix"},
    "DeleteData": {"namespace", "backupArtifactPrefix"},
    "BackupDataStats": {"namespace", "backupArtifactPrefix", "backupID"},
    "CheckRepository": {"backupArtifactPrefix"},
    "BackupDataAll": {"namespace", "container", "includePath", "backupArtifactPrefix"},
    "RestoreDataAll": {"namespace", "image", "backupArtifactPrefix", "backupInfo"},
    "DeleteDataAll": {"namespace", "backupArtifactPrefix", "backupInfo"},
    "CopyVolumeData": {"namespace", "volume", "dataArtifactPrefix"},
    "CreateCSISnapshot": {"pvc", "namespace", "snapshotClass"},
    "CreateRDSSnapshot": {"instanceID"},
}
"""Required arguments of the functions that published blueprints use, at v0.0.0."""


@pytest.fixture
def catalogue() -> PhaseCatalogue:
    registry = PhaseFunctionRegistry(plugins=lambda: ())
    registry.register(builtin_functions(Policy()))
    return PhaseCatalogue(registry)


def test_code_and_versions_file_agree(catalogue: PhaseCatalogue) -> None:
    assert len(catalogue.functions) > 30  # making the catalogue has checked every version of every function


def test_published_blueprints_find_their_functions_with_their_arguments(catalogue: PhaseCatalogue) -> None:
    for name, required in KANISTER.items():
        function = catalogue.registry.find(name, "v0.0.0")
        assert function is not None and set(function.required) == required, name


def test_what_a_stable_version_takes_includes_what_the_one_before_took(catalogue: PhaseCatalogue) -> None:
    """A blueprint that pins nothing moves with the stable version, so it must go on working."""
    for name in catalogue.functions:
        if not any(each.stable for each in catalogue.describe(name)):
            continue
        stable, first = catalogue.resolve(Ask(name)).function, catalogue.registry.find(name, "v0.0.0")
        assert first is not None
        assert {*first.required, *(first.arguments or ())} <= {*stable.required, *(stable.arguments or ())}, name
        assert set(stable.required) <= set(first.required), name


def test_at_least_four_functions_have_versions_that_take_other_arguments(catalogue: PhaseCatalogue) -> None:
    differing = [
        name
        for name in catalogue.functions
        if len({(each.required, each.arguments) for each in catalogue.registry.functions.get(name, {}).values()}) > 1
    ]
    assert differing == ["BackupData", "KubeExec", "KubeOps", "KubeTask", "RestoreData", "ScaleWorkload"]


def test_previews_run_only_by_name(catalogue: PhaseCatalogue) -> None:
    for name in ("KubeTask", "KubeExec", "KubeOps", "ScaleWorkload"):
        assert catalogue.resolve(Ask(name)).version == "v0.0.0"
        pinned = catalogue.resolve(Ask(name, pin="v0.1.0"))
        assert (pinned.rule, [warning.code for warning in pinned.warnings]) == (Rule.PIN, ["VersionPreview"])


def test_deprecated_versions_warn_with_their_end(catalogue: PhaseCatalogue) -> None:
    for name in ("BackupData", "RestoreData"):
        (warning,) = catalogue.resolve(Ask(name, pin="v0.0.0")).warnings
        assert warning.message == f"{name} v0.0.0: deprecated since 0.1, stops working in 0.3, move to v1.0.0"
        assert catalogue.resolve(Ask(name)).version == "v1.0.0"


def test_a_promotion_to_come_is_announced(catalogue: PhaseCatalogue) -> None:
    chosen = catalogue.resolve(Ask("Wait"))
    assert (chosen.version, [each.code for each in chosen.warnings]) == ("v0.0.0", ["StableWillChange"])
    assert catalogue.coming_stable("Wait") == catalogue.registry.find("Wait", "v1.0.0")


def test_functions_that_kanister_dropped_are_known_to_be_gone(catalogue: PhaseCatalogue) -> None:
    for name in ("CreateVolumeSnapshot", "BackupDataUsingKopiaServer"):
        with pytest.raises(VersionRemoved, match=r"removed in 0\.1"):
            catalogue.resolve(Ask(name, pin="v0.0.0"))


def test_functions_that_cannot_run_here_say_why_before_anything_runs(catalogue: PhaseCatalogue) -> None:
    for name in ("CreateCSISnapshot", "RestoreRDSSnapshot", "DeleteCSISnapshotContent"):
        function = catalogue.resolve(Ask(name)).function
        assert function.unavailable is not None
        assert all(
            "here" in function.unavailable(PhaseEnvironment(engine=engine)) for engine in ("embedded", "kubernetes")
        )


def test_functions_of_containers_are_for_kubernetes_alone(catalogue: PhaseCatalogue) -> None:
    for name, version in (("KubeExec", "v0.0.0"), ("KubeExec", "v0.1.0"), ("KubeExecAll", ""), ("PrepareData", "")):
        assert catalogue.resolve(Ask(name, pin=version)).function.engines == ("kubernetes",)
    assert catalogue.resolve(Ask("KubeTask")).function.engines == ("embedded", "kubernetes")


def test_a_program_that_is_missing_is_told(catalogue: PhaseCatalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    unavailable = catalogue.resolve(Ask("PostgresBackup")).function.unavailable
    assert unavailable is not None
    monkeypatch.setenv("PATH", "/nowhere")
    assert unavailable(PhaseEnvironment()) == "pg_dump is not installed on this machine"


@pytest.mark.parametrize(
    ("name", "args", "problems"),
    [
        ("KubeOps", {"operation": "destroy"}, ['operation "destroy" is not one of create, patch, delete']),
        ("KubeOps", {"operation": "{{ .Options.op }}"}, []),
        ("Wait", {"conditions": {}}, ["conditions are empty"]),
        (
            "Wait",
            {"conditions": {"noneOf": []}},
            ['conditions: "noneOf" is not anyOf or allOf', "conditions are empty"],
        ),
        ("Wait", {"conditions": []}, ["conditions must be a map with anyOf or allOf"]),
    ],
)
def test_arguments_are_checked_before_they_are_rendered(
    catalogue: PhaseCatalogue, name: str, args: Mapping[str, Any], problems: list[str]
) -> None:
    validate = catalogue.resolve(Ask(name)).function.validate
    assert validate is not None and list(validate(args)) == problems


def test_every_family_is_a_module_and_every_function_says_what_it_does(catalogue: PhaseCatalogue) -> None:
    directory = Path(__file__).parents[2] / "src" / "planform" / "blueprints" / "functions"
    assert all((directory / f"{family}.py").exists() for family in FAMILIES)
    assert all(function.description for function in catalogue.registry)


def test_the_policy_comes_from_the_environment() -> None:
    policy = Policy.from_environment(
        {"PLANFORM_PHASE_DIRECTORIES": "/a:/b", "PLANFORM_PHASE_ADDRESSES": "10.0.0.0/8, hooks.internal"}
    )
    assert policy == Policy((Path("/a"), Path("/b")), ("10.0.0.0/8", "hooks.internal"))
    assert Policy.from_environment({}) == Policy()
