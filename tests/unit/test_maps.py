"""The maps of the house are true: what they name exists, and every folder stands on them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "planform"
PAGES = ("CONTRIBUTING.md", "README.md", "docs/explanation/architecture.md", "docs/explanation/where-things-go.md")
_PATH = re.compile(r"`((?:[a-z_.0-9-]+/)+[A-Za-z_.0-9-]*|[a-z_]+\.py)`")
_EACH_SUBJECTS = {"controller.py"}


def named_paths(text: str) -> list[str]:
    return [
        path
        for path in _PATH.findall(text)
        if not path.startswith(("./", "../", "/", "planform/", "~")) and path not in _EACH_SUBJECTS
    ]


def map_of_contributing() -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    return text.split("## The map of the house")[1].split("\n## ")[0]


def on_the_map() -> set[str]:
    """The folders and modules below src/planform that the map names at the beginning of a line."""
    drawn = map_of_contributing().split("    src/planform/\n")[1].split("\n    sdk/")[0]
    lines = [line for line in drawn.splitlines() if re.match(r" {6}\S", line)]
    names = [name for line in lines for name in re.split(r"\s{2,}", line.strip())[0].split()]
    return {name.rstrip("/") for name in names}


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    missing = [path for path in named_paths(text) if not (ROOT / path).exists() and not (SOURCE / path).exists()]
    assert missing == []


def test_every_folder_of_the_source_is_on_the_map() -> None:
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    modules = {path.name for path in SOURCE.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert on_the_map() == folders | modules


def test_every_layer_of_the_architecture_page_is_a_folder() -> None:
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    table = text.split("## The layers")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    names = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}
    assert {name for name in names if not (SOURCE / name).is_dir() and not (SOURCE / f"{name}.py").exists()} == set()
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert folders - names == set()


def test_twenty_changes_have_their_place() -> None:
    text = (ROOT / "docs" / "explanation" / "where-things-go.md").read_text()
    rows = re.findall(r"^\| (\d+)\. .* \| (.*) \|$", text, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 21))
    assert all(named_paths(files) for _, files in rows)
