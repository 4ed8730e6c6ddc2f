"""Packages are read and written as upstream's tools do it, and the same input gives the same bytes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planform.apimachinery import yaml_loader
from planform.packages.blobs import BlobStore, Image, store_image
from planform.packages.building import Program, Source, assemble, file_name, read_source
from planform.packages.errors import BuildFailed, InvalidPackage
from planform.packages.layers import File, make_layer
from planform.packages.payloads import (
    Payload,
    RuntimeKind,
    is_planform_only,
    payload_of,
    unpack_process,
)
from planform.packages.programs import Vendoring, executable_program, python_program
from planform.packages.tarballs import read_image, write_xpkg
from planform.packages.xpkg import (
    PackageKind,
    encode_package,
    is_constraint,
    package_of,
    parse_package,
    read_examples,
    read_package,
)
from tests.unit.archives import FUNCTION_META, Entry, crd, layer, package_yaml, tar, upstream_xpkg

XRD = {"apiVersion": "apiextensions.crossplane.io/v2", "kind": "CompositeResourceDefinition", "metadata": {"name": "x"}}
CONFIGURATION = {
    "apiVersion": "meta.pkg.crossplane.io/v1",
    "kind": "Configuration",
    "metadata": {"name": "platform"},
    "spec": {
        "dependsOn": [
            {"function": "registry.example.org/team/function-greet", "version": ">=v0.2.0"},
            {
                "apiVersion": "pkg.crossplane.io/v1",
                "kind": "Provider",
                "package": "registry.example.org/team/provider",
                "version": f"sha256:{'a' * 64}",
            },
        ]
    },
}


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A package as authors keep it on disk."""
    root = tmp_path / "package"
    (root / "input").mkdir(parents=True)
    (root / "examples").mkdir()
    (root / "crossplane.yaml").write_text(yaml_loader.dump(FUNCTION_META))
    (root / "input" / "crd.yaml").write_text("---\n" + yaml_loader.dump(crd()) + "---\n# nothing\n")
    (root / "examples" / "xr.yaml").write_text("apiVersion: example.org/v1\nkind: Greeting\nmetadata: {name: ada}\n")
    return root


def source(*objects: dict[str, Any]) -> Source:
    return Source(package_of((str(number), obj) for number, obj in enumerate(objects)))


def script(tmp_path: Path, text: str = "#!/bin/sh\necho hello\n") -> Path:
    path = tmp_path / "greet"
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_what_is_built_reads_back(project: Path, blobs: BlobStore, tmp_path: Path) -> None:
    built = assemble(blobs, read_source(project))
    file = tmp_path / "out.xpkg"
    write_xpkg(built, file)
    found = read_image(file, BlobStore(tmp_path / "elsewhere"))
    package = read_package(found)
    assert found.digest == built.digest
    assert (package.kind, package.name, package.capabilities) == (
        PackageKind.FUNCTION,
        "function-greet",
        ("composition",),
    )
    assert [obj["kind"] for obj in package.objects] == ["CustomResourceDefinition"]
    assert b"Greeting" in read_examples(found)
    assert file_name(found, package) == f"function-greet-{found.digest[7:19]}.xpkg"


def test_package_file_is_laid_out_as_upstream_does_it(project: Path, blobs: BlobStore, tmp_path: Path) -> None:
    image = assemble(blobs, read_source(project))
    write_xpkg(image, tmp_path / "out.xpkg")
    with tarfile.open(tmp_path / "out.xpkg") as archive:
        names = archive.getnames()
        [listing] = json.load(archive.extractfile("manifest.json") or io.BytesIO())
        config = json.load(archive.extractfile(listing["Config"]) or io.BytesIO())
    assert listing["RepoTags"] is None
    assert sorted(names) == sorted([listing["Config"], *listing["Layers"], "manifest.json"])
    assert all(name.endswith(".tar.gz") for name in listing["Layers"])
    marks = {
        label: mark for label, mark in config["config"]["Labels"].items() if label.startswith("io.crossplane.xpkg:")
    }
    assert marks == {
        f"io.crossplane.xpkg:sha256:{name.removesuffix('.tar.gz')}": mark
        for name, mark in zip(listing["Layers"], ["base", "upbound"], strict=True)
    }
    assert [each.annotations for each in image.manifest.layers] == [
        {"io.crossplane.xpkg": "base"},
        {"io.crossplane.xpkg": "upbound"},
    ]


def test_package_in_upstreams_format_is_read(blobs: BlobStore, tmp_path: Path) -> None:
    runtime = tar(Entry("usr/bin/function", b"program", mode=0o755))
    (tmp_path / "theirs.xpkg").write_bytes(
        upstream_xpkg(package_yaml(FUNCTION_META, crd()), examples=b"a: 1\n", below=[runtime])
    )
    image = read_image(tmp_path / "theirs.xpkg", blobs)
    assert read_package(image).name == "function-greet"
    assert read_examples(image) == b"a: 1\n"
    assert [each.annotations.get("io.crossplane.xpkg") for each in image.manifest.layers] == [None, "base", "upbound"]


def test_image_without_marks_is_looked_through_from_the_top(blobs: BlobStore) -> None:
    older = package_yaml({**FUNCTION_META, "metadata": {"name": "older"}})
    layers = [
        layer(blobs, Entry("package.yaml", older)),
        layer(blobs, Entry("./package.yaml", package_yaml(FUNCTION_META))),
    ]
    assert read_package(store_image(blobs, {}, layers)).name == "function-greet"


def test_package_yaml_may_be_in_a_directory_if_it_is_the_only_one(blobs: BlobStore) -> None:
    text = package_yaml(FUNCTION_META)
    found = store_image(blobs, {}, [layer(blobs, Entry("pkg/package.yaml", text), mark="base")])
    assert read_package(found).name == "function-greet"
    two = [layer(blobs, Entry("a/package.yaml", text), Entry("b/package.yaml", text), mark="base")]
    with pytest.raises(InvalidPackage, match="which one counts"):
        read_package(store_image(blobs, {}, two))


def test_same_input_gives_the_same_digest(project: Path, tmp_path: Path) -> None:
    def build(where: str) -> tuple[str, bytes]:
        image = assemble(BlobStore(tmp_path / where), read_source(project), executable_program(script(tmp_path)))
        write_xpkg(image, tmp_path / f"{where}.xpkg")
        return image.digest, (tmp_path / f"{where}.xpkg").read_bytes()

    first = build("first")
    for file in project.rglob("*.yaml"):
        os.utime(file, (1, 1))
        file.chmod(0o600)
    assert build("second") == first


@pytest.mark.parametrize(
    ("objects", "problem"),
    [
        pytest.param([crd()], "no object says what the package is", id="no-meta"),
        pytest.param([FUNCTION_META, CONFIGURATION], "2 objects say what the package is", id="two-metas"),
        pytest.param(
            [FUNCTION_META, {"apiVersion": "v1", "kind": "Secret"}], "is Secret of v1, which no package", id="unknown"
        ),
        pytest.param([FUNCTION_META, {"a": 1}], "an object without kind", id="no-kind"),
        pytest.param([{**FUNCTION_META, "kind": "Widget"}], "has no kind 'Widget'", id="unknown-meta"),
        pytest.param(
            [{**FUNCTION_META, "apiVersion": "meta.pkg.crossplane.io/v7"}], "no version 'v7'", id="meta-version"
        ),
        pytest.param([{**FUNCTION_META, "metadata": {}}], "no metadata.name", id="no-name"),
        pytest.param([{**FUNCTION_META, "metadata": {"name": "Not/This"}}], "metadata.name 'Not/This'", id="bad-name"),
        pytest.param(
            [{**FUNCTION_META, "spec": {"crossplane": {"version": "soon"}}}], "'soon' is no range", id="bad-range"
        ),
        pytest.param(
            [{**FUNCTION_META, "spec": {"dependsOn": [{"provider": "r.io/p", "version": "x y"}]}}],
            r"dependsOn\[0\]: version 'x y'",
            id="bad-dependency",
        ),
        pytest.param(
            [{**FUNCTION_META, "spec": {"dependsOn": [{"version": "1"}]}}], "names no package", id="empty-dependency"
        ),
        pytest.param([FUNCTION_META, {**crd(), "metadata": {}}], "no metadata.name", id="nameless-object"),
    ],
)
def test_what_is_no_package_is_refused_with_a_reason(objects: list[dict[str, Any]], problem: str) -> None:
    with pytest.raises(InvalidPackage, match=problem):
        parse_package(package_yaml(*objects))


def test_encoding_and_parsing_are_inverse() -> None:
    package = parse_package(package_yaml(FUNCTION_META, crd()))
    assert parse_package(encode_package(package)) == package
    assert encode_package(package).startswith(b"---\n")
    assert encode_package(package).endswith(b"---\n")


def test_package_may_be_larger_than_any_one_document_of_it() -> None:
    large = {**crd(), "description": "x" * 600_000}
    objects = [{**large, "metadata": {"name": f"crd-{number}"}} for number in range(30)]
    assert len(parse_package(package_yaml(FUNCTION_META, *objects)).objects) == 30


def test_dashes_within_a_text_separate_nothing() -> None:
    text = "first\n---\n--- second\n"
    meta = {**FUNCTION_META, "metadata": {"name": "f", "annotations": {"meta.crossplane.io/readme": text}}}
    assert parse_package(package_yaml(meta)).annotations["meta.crossplane.io/readme"] == text


def test_dependencies_are_read_in_both_spellings() -> None:
    first, second = parse_package(package_yaml(CONFIGURATION, XRD)).dependencies
    assert (first.package, first.kind, first.constraint) == (
        "registry.example.org/team/function-greet",
        "Function",
        ">=v0.2.0",
    )
    assert (second.kind, second.is_digest) == ("Provider", True)


def test_a_function_cannot_bring_an_xrd(project: Path) -> None:
    (project / "xrd.yaml").write_text(yaml_loader.dump(XRD))
    with pytest.raises(InvalidPackage, match="a Function cannot bring CompositeResourceDefinition"):
        read_source(project)
    assert read_source(project, ignore=["xrd.yaml"]).package.name == "function-greet"


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        *(
            (text, True)
            for text in (">=v1.14.0", "^1.2", "~1.2.3", "1.x || 2.x", "1.2 - 1.4", ">=1.0.0, <2", ">=1 <2", "*")
        ),
        *((text, False) for text in ("", "latest", "1.2.3.4", ">=", "1 ||", "v1.0.0 and more")),
    ],
)
def test_ranges_of_versions_are_recognised(text: str, holds: bool) -> None:
    assert is_constraint(text) is holds


def test_executable_becomes_a_process_of_planform_only(blobs: BlobStore, tmp_path: Path) -> None:
    image = assemble(blobs, source(FUNCTION_META), executable_program(script(tmp_path)))
    assert is_planform_only(image)
    command = unpack_process(image, tmp_path / "unpacked")
    assert command.arguments == (str(tmp_path / "unpacked" / "function" / "bin" / "greet"),)
    assert os.access(command.arguments[0], os.X_OK)


def base_image(blobs: BlobStore) -> Image:
    root = make_layer(blobs, [File("usr/bin/python3", b"interpreter", executable=True)])
    config = {
        "os": "linux",
        "architecture": "amd64",
        "config": {"Env": ["PATH=/usr/bin", "PYTHONPATH=/old"], "User": "2000"},
        "rootfs": {"type": "layers", "diff_ids": [root.diff_id]},
        "history": [{"created_by": "somebody"}],
    }
    return store_image(blobs, config, [root.descriptor])


def test_with_a_base_image_the_package_also_runs_as_a_container(blobs: BlobStore) -> None:
    payload = Payload(RuntimeKind.PROCESS, ("python", "-m", "planform_sdk", "serve", "app/f.py"), ("lib", "app"))
    image = assemble(
        blobs, source(FUNCTION_META), Program(payload, (File("app/f.py", b"pass"),)), base=base_image(blobs)
    )
    assert not is_planform_only(image)
    assert image.settings["Entrypoint"] == ["python", "-m", "planform_sdk", "serve", "app/f.py"]
    assert image.settings["WorkingDir"] == "/function"
    assert image.settings["Env"] == ["PATH=/usr/bin", "PYTHONPATH=/function/lib:/function/app"]
    assert image.settings["User"] == "2000"
    assert len(image.config["rootfs"]["diff_ids"]) == len(image.manifest.layers) == len(image.config["history"]) == 3
    assert payload_of(image) == payload


def test_run_to_completion_container_is_for_planform_only(blobs: BlobStore) -> None:
    image = assemble(blobs, source(FUNCTION_META), Program(Payload(RuntimeKind.ONESHOT)), base=base_image(blobs))
    assert is_planform_only(image)
    assert payload_of(image) == Payload(RuntimeKind.ONESHOT)


def test_package_cannot_be_the_base_of_another(blobs: BlobStore) -> None:
    package = assemble(blobs, source(FUNCTION_META))
    with pytest.raises(BuildFailed, match="is a package itself"):
        assemble(blobs, source(FUNCTION_META), base=package)


def wheel(directory: Path, name: str, *files: tuple[str, str], version: str = "1.0") -> None:
    """A wheel made by hand, of a package that needs nothing."""
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files:
            archive.writestr(path, text)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{name} = {name}:main\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def python_project(tmp_path: Path) -> Callable[[], Path]:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    serve = "import sys; sys.path.insert(0, 'app'); import runpy; runpy.run_path(sys.argv[2], run_name='__main__')"
    wheel(wheels, "planform_sdk", ("planform_sdk/__init__.py", ""), ("planform_sdk/__main__.py", serve))
    wheel(wheels, "greetings", ("greetings.py", "HELLO = 'hello from a dependency'\n"))

    def make() -> Path:
        root = tmp_path / "greeter"
        (root / "tests").mkdir(parents=True)
        (root / "words").mkdir()
        (root / "function.py").write_text("import greetings, words.who\nprint(greetings.HELLO, words.who.WHO)\n")
        (root / "words" / "who.py").write_text("WHO = 'to you'\n")
        (root / "tests" / "test_function.py").write_text("")
        (root / ".env").write_text("SECRET=1")
        (root / "pyproject.toml").write_text(
            '[project]\nname = "greeter"\nversion = "1"\ndependencies = ["planform-sdk", "greetings"]\n'
        )
        return root

    return make


def vendoring(tmp_path: Path) -> Vendoring:
    return Vendoring(find_links=(str(tmp_path / "wheels"),), offline=True)


def test_python_project_runs_from_its_package_with_its_dependencies(
    python_project: Callable[[], Path], blobs: BlobStore, tmp_path: Path
) -> None:
    program = python_program(python_project(), tmp_path / "scratch", vendoring=vendoring(tmp_path))
    paths = {file.path for file in program.files}
    assert {"app/function.py", "app/words/who.py", "lib/greetings.py", "lib/planform_sdk/__main__.py"} <= paths
    private = ("tests", ".env", "__pycache__", "RECORD", "lib/bin")
    assert not [path for path in paths if any(part in path for part in private)]
    command = unpack_process(assemble(blobs, source(FUNCTION_META), program), tmp_path / "unpacked")
    done = subprocess.run(
        command.arguments,
        cwd=command.directory,
        env={"PATH": os.environ["PATH"], **command.environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "hello from a dependency to you\n"
    again = python_program(tmp_path / "greeter", tmp_path / "scratch2", vendoring=vendoring(tmp_path))
    digests = {assemble(blobs, source(FUNCTION_META), each).digest for each in (program, again)}
    assert len(digests) == 1


def test_project_with_a_script_of_its_own_is_installed_and_started_by_it(
    blobs: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As functions written with other SDKs are: a build system, and one script that serves."""
    pytest.importorskip("setuptools", reason="builds the project without an index")
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # pip's way to say: with what is installed here
    root = tmp_path / "theirs"
    (root / "served").mkdir(parents=True)
    (root / "served" / "__init__.py").write_text("def cli():\n    print('served')\n    return 7\n")
    (root / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "theirs"\nversion = "1"\n[project.scripts]\nfunction = "served:cli"\n'
        '[tool.setuptools]\npackages = ["served"]\n'
    )
    program = python_program(root, tmp_path / "scratch", vendoring=Vendoring(offline=True))
    assert program.payload.paths == ("lib",)
    command = unpack_process(assemble(blobs, source(FUNCTION_META), program), tmp_path / "unpacked")
    done = subprocess.run(
        command.arguments, cwd=command.directory, env=dict(command.environment), capture_output=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (7, b"served\n")


@pytest.mark.parametrize("wanted", ["planform-sdk", "planform-sdk>=0.1", "planform-sdk[reflection]~=0.1"])
def test_sdk_that_no_index_has_is_taken_from_this_interpreter(
    python_project: Callable[[], Path], tmp_path: Path, wanted: str
) -> None:
    root, wheels = python_project(), tmp_path / "wheels"
    project = (root / "pyproject.toml").read_text()
    (root / "pyproject.toml").write_text(project.replace('"planform-sdk"', f'"{wanted}"'))
    (wheels / "planform_sdk-1.0-py3-none-any.whl").unlink()
    for name in ("grpcio", "grpcio_reflection", "protobuf", "msgspec"):
        wheel(wheels, name, version="99.0")
    program = python_program(root, tmp_path / "scratch", vendoring=vendoring(tmp_path))
    paths = {file.path for file in program.files}
    assert {"lib/planform_sdk/__main__.py", "lib/planform_sdk/proto/__init__.py", "lib/greetings.py"} <= paths


def test_missing_dependency_is_told_in_pips_words(python_project: Callable[[], Path], tmp_path: Path) -> None:
    root = python_project()
    (root / "pyproject.toml").write_text(
        '[project]\nname = "g"\nversion = "1"\ndependencies = ["nowhere-to-be-found"]\n'
    )
    with pytest.raises(BuildFailed, match="nowhere-to-be-found"):
        python_program(root, tmp_path / "scratch", vendoring=vendoring(tmp_path))


def test_project_without_our_sdk_must_say_how_it_starts(tmp_path: Path) -> None:
    (tmp_path / "function.py").write_text("")
    with pytest.raises(BuildFailed, match="does not depend on planform-sdk") as caught:
        python_program(tmp_path, tmp_path / "scratch")
    assert "scripts" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (Payload(RuntimeKind.PROCESS, ("bin/x",), python="2.7"), "built for Python 2.7, and this is"),
        (Payload(RuntimeKind.CONTAINER), "a program that runs as container"),
        (Payload(RuntimeKind.PROCESS, ("../../bin/sh",)), "is not in the package"),
        (Payload(RuntimeKind.PROCESS, ("/bin/sh",)), "is not in the package"),
        (Payload(RuntimeKind.PROCESS, ("bin/x",)), "no layer for it"),
    ],
)
def test_package_that_cannot_run_here_says_why(
    payload: Payload, problem: str, blobs: BlobStore, tmp_path: Path
) -> None:
    image = assemble(blobs, source(FUNCTION_META), Program(payload))
    with pytest.raises(InvalidPackage, match=problem):
        unpack_process(image, tmp_path / "unpacked")


def test_python_of_the_command_is_the_one_that_runs_us(blobs: BlobStore, tmp_path: Path) -> None:
    payload = Payload(RuntimeKind.PROCESS, ("python", "-m", "x"), ("lib",))
    image = assemble(blobs, source(FUNCTION_META), Program(payload, (File("lib/x.py", b""),)))
    command = unpack_process(image, tmp_path / "unpacked")
    assert command.arguments == (sys.executable, "-m", "x")
    assert command.environment["PYTHONPATH"] == str(tmp_path / "unpacked" / "function" / "lib")
