"""`kubectl planform ...`, and command lines of the designs as they stand there, by the real kubectl."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.controllers.test_containers import root_of_shell, save_image
from tests.e2e.control_plane import PLANFORM, Program, RunningPlane, config_map, manifest, planform
from tests.harness.programs import container_runtime, programs

pytestmark = pytest.mark.xdist_group("e2e-cli")
EXAMPLE = Path(__file__).parents[2] / "examples" / "seven-steps"


def path_with(*directories: Path) -> str:
    return os.pathsep.join([*map(str, directories), os.environ["PATH"]])


@pytest.fixture
def plugged(kubectl: Program) -> Program:
    """kubectl in the test's namespace, beside the scripts that are installed with planform."""
    return kubectl.with_(env={"PATH": path_with(PLANFORM.parent)})


def without_namespace(program: Program) -> Program:
    """kubectl takes no options before the name of a plugin."""
    return Program(program.command[:1], program.env, program.directory)


def test_kubectl_runs_planform_as_a_plugin(plugged: Program, namespace: str) -> None:
    plugin = without_namespace(plugged)
    assert str(PLANFORM.with_name("kubectl-planform")) in plugin("plugin", "list").out
    plugged("apply", "-f", "-", stdin=manifest(config_map("left")))
    assert "ConfigMap/left" in plugin("planform", "trace", "cm/left", "-n", namespace).out
    assert "hint: kubectl planform get --help" in plugin("planform", "get", "--no-such", code=2).err


def test_kubectl_completes_the_words_of_the_plugin(plugged: Program, namespace: str) -> None:
    plugin = without_namespace(plugged)
    plugged("apply", "-f", "-", stdin=manifest(config_map("left")))
    offered = plugin("__complete", "planform", "get", "-n", namespace, "cm", "le").lines
    assert offered == ["left", ":4"]
    assert (
        "explain-run\tShow what each step of a pipeline run did, and why."
        in plugin("__complete", "planform", "ex").lines
    )


def test_a_plugin_asks_whom_kubectl_asks(plane: RunningPlane, tmp_path: Path) -> None:
    """Where nothing else is said that is ~/.kube/config, whatever runs on the machine beside it."""
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(plane.kubeconfig.read_text())
    local = tmp_path / ".local" / "share" / "planform" / "kubeconfig"
    local.parent.mkdir(parents=True)
    local.write_text("{}")
    plugin = Program(plane.kubectl.command, planform(tmp_path).env, tmp_path).with_(
        env={"PATH": path_with(PLANFORM.parent)}
    )
    assert "default" in plugin("planform", "get", "namespaces").out


@pytest.fixture
def author(tmp_path: Path) -> Program:
    """A shell in an empty directory of somebody who made a link named kubectl-crossplane that leads to planform."""
    links = tmp_path / "bin"
    links.mkdir()
    (links / "kubectl-crossplane").symlink_to(PLANFORM)
    (links / "crossplane").symlink_to(PLANFORM)
    (tmp_path / "here").mkdir()
    env = {**planform(tmp_path).env, "PATH": path_with(links, programs("kubectl"))}
    return Program(("sh", "-c"), env, tmp_path / "here")


def test_spelling_of_the_design_starts_a_function(author: Program, tmp_path: Path) -> None:
    """The template of the design lies on GitHub, which git is told to find on this machine."""
    template = tmp_path / "function-template-go"
    template.mkdir()
    for name in ("crossplane.yaml", "fn.go", "fn_test.go", "go.mod", "main.go"):
        (template / name).write_text("\n")
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first"],
    ):
        subprocess.run(["git", *words], cwd=template, check=True, env=dict(author.env))
    author(
        'kubectl crossplane init function --template="github.com/crossplane/fn-template-go"',
        env={
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"url.file://{tmp_path}/.insteadOf",
            "GIT_CONFIG_VALUE_0": "https://github.com/crossplane/",
        },
    )
    assert author("ls").out.split() == ["crossplane.yaml", "fn.go", "fn_test.go", "go.mod", "main.go"]


@pytest.mark.parametrize(
    "line",
    [
        "kubectl crossplane composition render composition.yaml xr.yaml",
        "crossplane composition render composition.yaml xr.yaml",
        "crossplane render xr.yaml composition.yaml",
        "crossplane beta render xr.yaml composition.yaml",
        shlex.join([str(PLANFORM), "compat", "crossplane", "composition", "render", "composition.yaml", "xr.yaml"]),
    ],
    ids=["design", "link", "GA", "beta", "compat"],
)
def test_spellings_of_rendering_show_the_same(author: Program, line: str) -> None:
    for name in ("xr.yaml", "composition.yaml"):
        (author.directory / name).write_text((EXAMPLE / name).read_text())
    expected = author(f"{PLANFORM} render xr.yaml composition.yaml")
    assert author(line).out == expected.out
    assert "kind: Platform" in expected.out


@pytest.mark.programs
def test_spellings_of_the_design_build_push_and_test_a_function(author: Program, address: str, tmp_path: Path) -> None:
    """The design's registry is this test's; else its lines stand here as they are there."""
    root = root_of_shell(tmp_path / "root", "/bin/sh", "/bin/cat")
    answer = {"desired": {"resources": {"one": {"resource": {"apiVersion": "v1", "kind": "ConfigMap"}}}}}
    (root / "run.sh").write_text(f"cat >/dev/null\nprintf '%s' '{json.dumps(answer)}'\n")
    saved = save_image(root, tmp_path / "image.tar", Entrypoint=["/bin/sh", "/run.sh"])
    author(f"gzip -c {saved} > function.tgz")
    (author.directory / "crossplane.yaml").write_text(
        "{apiVersion: meta.pkg.crossplane.io/v1, kind: Function, metadata: {name: function-labelizer}}"
    )
    (author.directory / "run-function-request.json").write_text("{}")
    author("kubectl crossplane function build --from-oci-tarball=function.tgz")
    author(f"kubectl crossplane function push {address}/negz/function-labelizer:v0.1.0")
    tested = author(
        f"kubectl crossplane function test {address}/negz/function-labelizer:v0.1.0 run-function-request.json",
        env={"PATH": path_with(container_runtime(), tmp_path / "bin", programs("kubectl"))},
    )
    assert tested.json()["desired"]["resources"]["one"]["resource"]["kind"] == "ConfigMap"


def test_spellings_are_listed(author: Program) -> None:
    listed = author(f"{PLANFORM} compat crossplane -o json").json()
    assert {"crossplane": "beta trace", "planform": "trace"} in listed
    assert "CROSSPLANE" in author(f"{PLANFORM} compat crossplane").lines[0]
