"""`planform xpkg` and `planform function build`, as authors use them; registries are in the end-to-end tests."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from planform.cli.packages.xpkg import package_object
from planform.errors import UsageError
from planform.packages.blobs import BlobStore
from planform.packages.references import package_name, parse_reference
from planform.packages.tarballs import write_xpkg
from planform.packages.xpkg import PackageKind
from tests.unit.archives import FUNCTION_META, crd
from tests.unit.test_render_command import Run, composition, run, write, xr
from tests.unit.test_xpkg import base_image

__all__ = ["run"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def greeter(run: Run) -> Path:
    """A function that is one executable: it serves with this interpreter and our SDK."""
    Path("package").mkdir()
    write("package/crossplane.yaml", FUNCTION_META)
    write("package/crd.yaml", crd())
    source = (
        "from planform_sdk import Request, Response, function, serve\n\n\n"
        "@function\n"
        "def greet(req: Request, rsp: Response) -> None:\n"
        '    rsp.desired.resources["greeting"] = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"hello": "you"}}\n'
        "\n\n"
        'if __name__ == "__main__":\n'
        "    serve(greet)\n"
    )
    Path("served.py").write_text(source)
    script = Path("greet").absolute()
    script.write_text(f"#!{sys.executable}\n{source}")  # whole in one file: no other file of this machine is seen
    script.chmod(0o755)
    return script


def built(ran: Any) -> dict[str, Any]:
    assert ran.code == 0, ran.err
    data: dict[str, Any] = json.loads(ran.out)
    return data


@pytest.mark.usefixtures("greeter")
def test_executable_is_packaged_shown_and_rendered(run: Run) -> None:
    made = run("function", "build", "--executable", "greet", "-o", "json")
    data = built(made)
    assert (data["name"], data["runtime"], data["planformOnly"]) == ("function-greet", "process", True)
    assert "is for planform only, and does not run on Crossplane: it has no --base-image" in made.err
    shown = run("xpkg", "inspect", data["file"])
    assert "runtime:      process, planform only" in shown.out
    assert "inputs.greet.example.org" in shown.out
    assert built(run("xpkg", "inspect", data["file"], "-o", "json"))["digest"] == data["digest"]
    write("xr.yaml", xr())
    write("composition.yaml", composition({"step": "greet", "functionRef": {"name": "greet"}}))
    rendered = run("render", "xr.yaml", "composition.yaml", "--function", f"greet={data['file']}")
    assert rendered.code == 0, rendered.err
    assert "hello: you" in rendered.out


@pytest.mark.usefixtures("greeter")
def test_building_twice_gives_the_same_file(run: Run) -> None:
    first = built(run("function", "build", "--executable", "greet", "-o", "json", "--package-file", "a.xpkg"))
    second = built(run("function", "build", "--executable", "greet", "-o", "json", "--package-file", "b.xpkg"))
    assert first["digest"] == second["digest"]
    assert Path("a.xpkg").read_bytes() == Path("b.xpkg").read_bytes()


@pytest.mark.usefixtures("greeter")
def test_base_image_makes_a_package_for_crossplane_too(run: Run, tmp_path: Path) -> None:
    write_xpkg(base_image(BlobStore(tmp_path / "blobs")), Path("base.tar"))
    made = run("function", "build", "--executable", "greet", "--base-image", "base.tar", "-o", "json")
    data = built(made)
    assert (data["planformOnly"], data["runtime"], data["platform"]) == (False, "process", "linux/amd64")
    assert "planform only" not in made.err


@pytest.mark.usefixtures("greeter")
def test_function_without_a_program_is_built_with_a_word_of_warning(run: Run) -> None:
    made = run("xpkg", "build", "-f", "package", "-o", "json")
    assert built(made)["runtime"] is None
    assert "brings no program, so nobody can run it" in made.err


@pytest.mark.usefixtures("greeter")
def test_provider_of_one_executable_is_packaged(run: Run) -> None:
    meta = {"apiVersion": "meta.pkg.crossplane.io/v1", "kind": "Provider", "metadata": {"name": "provider-greet"}}
    write("package/crossplane.yaml", meta)
    data = built(run("xpkg", "build", "-f", "package", "--executable", "greet", "-o", "json"))
    assert (data["kind"], data["runtime"], data["planformOnly"]) == ("Provider", "process", True)


@pytest.mark.parametrize(
    ("flag", "runtime", "only"),
    [("--from-oci-tarball", "oneshot", True), ("--embed-runtime-image-tarball", "container", False)],
)
@pytest.mark.usefixtures("greeter")
def test_image_in_a_file_becomes_a_function(run: Run, tmp_path: Path, flag: str, runtime: str, only: bool) -> None:
    write_xpkg(base_image(BlobStore(tmp_path / "blobs")), Path("image.tar"))
    data = built(run("function", "build", flag, "image.tar", "-o", "json"))
    assert (data["runtime"], data["planformOnly"], len(data["layers"])) == (runtime, only, 2)


def test_configuration_is_started_built_and_shown(run: Run) -> None:
    assert built(run("xpkg", "init", "platform", "-o", "json")) == {
        "directory": "platform",
        "kind": "Configuration",
        "name": "platform",
    }
    write(
        "platform/xrd.yaml",
        {
            "apiVersion": "apiextensions.crossplane.io/v2",
            "kind": "CompositeResourceDefinition",
            "metadata": {"name": "xs.example.org"},
        },
    )
    data = built(run("xpkg", "build", "-f", "platform", "-o", "json"))
    assert (data["kind"], data["runtime"], data["planformOnly"]) == ("Configuration", None, False)
    assert [obj["name"] for obj in data["objects"]] == ["xs.example.org"]


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (("xpkg", "inspect", "nothing.xpkg"), 2, "there is no file nothing.xpkg"),
        (("xpkg", "inspect", "greet"), 1, "not a tar archive"),
        (("xpkg", "inspect", "nowhere"), 2, "names no registry"),
        (("xpkg", "push", "r.io/f"), 2, "neither tag nor digest"),
        (("xpkg", "push", "r.io/f:v1"), 2, "there is no .xpkg here"),
        (("xpkg", "pull", "r.io/f:v1", "--offline"), 1, "must not be pulled"),
        (("xpkg", "pull", "r.io/f:v1", "--offline", "--key", "greet"), 2, "--offline asks none"),
        (("xpkg", "init", "Not_a_name"), 2, "cannot be the name of a package"),
        (("function", "build", "package/.."), 1, "does not depend on planform-sdk"),
        (("function", "build", "--executable", "served.py"), 1, "is not executable"),
        (("function", "build", "--executable", "greet", "--from-oci-tarball", "greet"), 2, "a package has one"),
        (("function", "build", "--from-oci-tarball", "greet", "--base-image", "x"), 2, "not images themselves"),
        (("xpkg", "build", "-f", "empty"), 1, "has no YAML files"),
        (("render", "served.py", "--function", "greet=nothing.xpkg"), 2, ""),
    ],
)
@pytest.mark.usefixtures("greeter")
def test_mistakes_are_explained(run: Run, words: tuple[str, ...], code: int, problem: str) -> None:
    Path("empty").mkdir()
    Path("function.py").write_text("")
    ran = run(*words)
    assert (ran.code, ran.out) == (code, "")
    assert problem in ran.err


def test_what_installs_a_package_leaves_out_what_nobody_said() -> None:
    made = package_object(PackageKind.FUNCTION, "r.io/team/function-greet:v1", "")
    assert made == {
        "apiVersion": "pkg.crossplane.io/v1",
        "kind": "Function",
        "metadata": {"name": "team-function-greet"},
        "spec": {"package": "r.io/team/function-greet:v1"},
    }
    full = package_object(
        PackageKind.PROVIDER,
        "r.io/p:v1",
        "mine",
        manual_activation=True,
        revision_history_limit=0,
        package_pull_secrets=("s",),
        runtime_config="big",
    )
    assert full["spec"] == {
        "package": "r.io/p:v1",
        "revisionActivationPolicy": "Manual",
        "revisionHistoryLimit": 0,
        "packagePullSecrets": [{"name": "s"}],
        "runtimeConfigRef": {"name": "big"},
    }
    with pytest.raises(UsageError, match="runs nothing"):
        package_object(PackageKind.CONFIGURATION, "r.io/p:v1", "", runtime_config="big")


@pytest.mark.parametrize(
    ("repository", "name"),
    [
        ("crossplane-contrib/function-auto-ready", "crossplane-contrib-function-auto-ready"),
        ("a_b/c.d", "ab-c-d"),
        ("x" * 80, "x" * 63),
    ],
)
def test_name_of_an_installed_package_comes_from_its_repository(repository: str, name: str) -> None:
    assert package_name(parse_reference(f"r.io/{repository}:v1")) == name


def test_package_without_a_program_for_this_machine_cannot_be_rendered(run: Run, tmp_path: Path) -> None:
    Path("package").mkdir()
    write("package/crossplane.yaml", FUNCTION_META)
    write_xpkg(base_image(BlobStore(tmp_path / "blobs")), Path("image.tar"))
    data = built(run("function", "build", "--embed-runtime-image-tarball", "image.tar", "-o", "json"))
    write("xr.yaml", xr())
    write("composition.yaml", composition({"step": "greet", "functionRef": {"name": "greet"}}))
    ran = run("render", "xr.yaml", "composition.yaml", "--function", f"greet={data['file']}")
    assert ran.code == 1
    assert "the package does not say which program to run: its image has no entrypoint" in ran.err
