"""What a release is made of: versions with hashes, licences, and the bill of materials."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import zipfile
from email.message import Message
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("supply_chain", ROOT / "tools" / "supply_chain.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["supply_chain"] = module
    spec.loader.exec_module(module)
    return module


def test_the_constraints_of_a_release_are_exact_hashed_and_complete(tool: Any) -> None:
    assert tool.lock_problems(tool.RELEASE.read_text()) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ((r"^click==\S+", "click==1.0.0"), "click is 1.0.0, but constraints.txt has"),
        ((r"^click==(.*)\n(?:    .*\n)*", ""), "click is missing, which planform requires"),
        ((r"^(click==\S+) \\\n(?:    --hash.*\n)*", r"\1\n"), "click has no hash"),
        ((r"\A", "left-pad==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\n"), "left-pad is not required by anything"),
    ],
    ids=["another version", "missing", "no hash", "too much"],
)
def test_constraints_that_do_not_fit_are_found(tool: Any, change: tuple[str, str], problem: str) -> None:
    text = re.sub(change[0], change[1].replace("\\\n", "\\\\\n"), tool.RELEASE.read_text(), count=1, flags=re.MULTILINE)
    assert [each for each in tool.lock_problems(text) if each.startswith(problem)]


def test_every_dependency_has_a_licence_that_we_take(tool: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.licences(show=False) == 0, capsys.readouterr().out
    assert "all allowed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [
        ("MIT", True),
        ("MPL-2.0 AND (Apache-2.0 OR MIT)", True),
        ("GPL-3.0-only OR MIT", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-3.0-only", False),
        ("MIT AND AGPL-3.0", False),
        ("GNU General Public License v3 (GPLv3)", False),
        ("Proprietary", False),
        ("unknown", False),
    ],
)
def test_a_licence_is_taken_if_allowed_ones_alone_can_meet_it(tool: Any, licence: str, allowed: bool) -> None:
    assert tool.is_allowed(licence) is allowed


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ([("License-Expression", "MIT OR Apache-2.0"), ("License", "other")], "MIT OR Apache-2.0"),
        ([("Classifier", "License :: OSI Approved :: BSD License")], "BSD"),
        ([("License", "Apache License 2.0\n\nand a long text")], "Apache-2.0"),
        ([], "unknown"),
    ],
)
def test_the_licence_is_what_a_package_says(tool: Any, fields: list[tuple[str, str]], licence: str) -> None:
    about = Message()
    for name, value in fields:
        about[name] = value
    assert tool.licence_of(about) == licence


def test_the_bill_of_materials_names_every_package_with_version_licence_and_hashes(tool: Any, tmp_path: Path) -> None:
    wheel = tmp_path / "planform-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("planform/__init__.py", "")
    bill = tool.bill_of_materials(wheel)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/planform@0.1.0"
    components = {each["name"]: each for each in bill["components"] if each["purl"].startswith("pkg:pypi/")}
    assert set(components) == set(tool.required(*tool.RELEASED_EXTRAS))
    assert {"orjson", "grpcio", "starlark-pyo3", "cffi"} <= set(components)
    for each in components.values():
        assert each["version"] == tool.pins().get(each["name"], each["version"])
        assert each["licenses"] and each["externalReferences"][0]["hashes"], each["name"]
    refs = {each["bom-ref"] for each in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    depends = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    assert set(depends) == refs and all(set(each) <= refs for each in depends.values())
    assert any(ref.startswith("pkg:pypi/aiohttp@") for ref in depends["pkg:pypi/planform@0.1.0"])
    assert tool.bill_of_materials(wheel) == bill, "the same wheel has the same bill"


@pytest.mark.long
def test_pip_takes_the_constraints_with_hashes(tool: Any, tmp_path: Path) -> None:
    """Every file that pip would install here is one whose hash is listed. Needs a package index."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--require-hashes"]
    command += ["--disable-pip-version-check", "-r", str(tool.RELEASE), "--target", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if "Could not find a version" in done.stderr or "Connection" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr


def test_packages_of_the_page_have_a_digest_and_a_licence_that_we_take(tool: Any) -> None:
    page = {each.name: each for each in tool.page_packages()}
    assert page["preact"].is_shipped
    assert not page["vite"].is_shipped
    assert page["@preact/signals"].purl.startswith("pkg:npm/%40preact/signals@")
    assert all(re.fullmatch("[0-9a-f]{128}", each.sha512) for each in page.values())
    assert [each.name for each in page.values() if not tool.is_allowed(each.licence)] == []


def test_a_package_of_the_page_with_another_licence_fails(
    tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "package-lock.json"
    about = '{"version": "1.0.0", "integrity": "sha512-AA==", "license": "GPL-3.0-only"}'
    lock.write_text('{"packages": {"": {}, "node_modules/chart": ' + about + "}}")
    found = tool.page_packages(lock)
    monkeypatch.setattr(tool, "page_packages", lambda: found)
    assert tool.licences(show=False) == 1
    assert "chart 1.0.0: its licence is not among those we take: GPL-3.0-only" in capsys.readouterr().out


def test_the_bill_of_materials_names_what_the_page_is_made_of(tool: Any, tmp_path: Path) -> None:
    wheel = tmp_path / "planform-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"")
    bill = tool.bill_of_materials(wheel)
    named = {each["name"] for each in bill["components"]}
    assert {"preact", "@preact/signals"} <= named
    assert "vite" not in named, "what only builds the page is not in it"
