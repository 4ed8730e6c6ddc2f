"""The documentation is true: links lead somewhere, the reference is what the code says, and nothing is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tools import reference

from planform.app import Settings, open_control_plane
from planform.cli.main import root
from planform.features import FEATURES

ROOT = Path(__file__).parents[2]
SUBJECTS = (
    "blueprints",
    "claims",
    "compositions",
    "definitions",
    "engine",
    "operations",
    "packages",
    "pipeline",
    "reconcile",
    "usages",
    "xrs",
)
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
DECISIONS = sorted((DOCS / "adr").glob("[0-9]*.md"))

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """The files and anchors of ours that a page refers to."""
    for target in _LINK.findall(_FENCED.sub("", page.read_text())):
        if not re.match(r"[a-z]+:", target):
            file, _, anchor = target.partition("#")
            yield (page.parent / file).resolve() if file else page, anchor


def anchors(page: Path) -> set[str]:
    """What can stand after the # of a link, as the usual renderers make it from headings."""
    headings = _HEADING.findall(_FENCED.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, anchor in links(page):
        assert target.exists(), f"{name(page)} refers to {target}"
        assert not anchor or anchor in anchors(target), f"{name(page)} refers to #{anchor} of {name(target)}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    found, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page.suffix == ".md" and page not in found:
            found.add(page)
            waiting += [target for target, _ in links(page)]
    assert sorted(map(name, set(PAGES) - found)) == [], "run tools/reference.py if the page is a guide or reference"


def test_reference_says_what_the_code_says() -> None:
    made = reference.pages()
    stale = [name(page) for page, text in made.items() if not page.exists() or page.read_text() != text]
    assert len(made) > 5
    assert stale == [], "run tools/reference.py"


def test_every_command_has_its_section() -> None:
    text = (DOCS / "reference" / "cli.md").read_text()

    def missing(group: click.Group, path: str) -> Iterator[str]:
        for command_name in group.list_commands(click.Context(group)):
            command = group.get_command(click.Context(group), command_name)
            if f"\n## {path} {command_name}\n" not in text:
                yield f"{path} {command_name}"
            if isinstance(command, click.Group):
                yield from missing(command, f"{path} {command_name}")

    assert list(missing(root, "planform")) == []


def test_every_setting_has_its_row() -> None:
    text = (DOCS / "reference" / "settings.md").read_text()
    up = root.get_command(click.Context(root), "up")
    assert up is not None
    flags = {flag for option in up.params for flag in option.opts}
    assert {flag for flag in flags if f"`{flag}`" not in text} == set()


def test_every_reason_has_its_row() -> None:
    text = (DOCS / "reference" / "errors.md").read_text()
    found = {
        (path.name, match)
        for path in (ROOT / "src" / "planform").rglob("*.py")
        for match in re.findall(
            r'^    (?:code, )?reason(?:: str)? = (?:\d+, )?"(\w+)"$', path.read_text(), re.MULTILINE
        )
    }
    assert len(found) > 30
    assert {(file, reason) for file, reason in found if f"| `{reason}` |" not in text and reason != "Error"} == set()


def test_every_annotation_label_and_finalizer_is_explained() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    source = ROOT / "src" / "planform"
    files = [source / "api" / "names.py"]
    files += [path for folder in SUBJECTS for path in (source / folder).rglob("*.py")]
    words = {
        (path.name, word)
        for path in files
        for word in re.findall(r'^\w*(?:ANNOTATION|LABEL|FINALIZER): Final = "(\S+)"$', path.read_text(), re.MULTILINE)
        if path.name != "names.py" or "crossplane.io" in word
    }
    assert len(words) > 20
    assert sorted((file, word) for file, word in words if f"`{word}`" not in text) == []


def test_every_feature_gate_has_its_row() -> None:
    text = (DOCS / "reference" / "features.md").read_text()
    assert [gate for gate in FEATURES if f"| `{gate}` |" not in text] == []


async def test_every_metric_of_a_running_plane_has_its_row() -> None:
    text = (DOCS / "reference" / "metrics.md").read_text()
    async with open_control_plane(Settings(data=None)) as plane:
        served = re.findall(r"^# TYPE (\S+) (\S+)$", plane.metrics.render(), re.MULTILINE)
    assert len(served) > 10
    assert [metric for metric, kind in served if f"| `{metric}` | {kind} |" not in text] == []


def test_every_folder_of_the_house_is_on_its_map() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    source = ROOT / "src" / "planform"
    folders = [path.parent.name for path in source.glob("*/__init__.py")] + ["sdk", "tests", "bench", "tools", "docs"]
    assert [folder for folder in sorted(folders) if f"{folder}/" not in text] == []


@pytest.mark.parametrize("record", DECISIONS, ids=name)
def test_a_decision_says_why_and_what_it_cost(record: Path) -> None:
    text = record.read_text()
    number, title = record.stem.split("-", 1)
    assert re.match(rf"# {number}\. \S", text), f"{title}: the heading begins with the number"
    for part in ("Status: ", "## Context", "## Decision", "## What we gave up"):
        assert part in text, f"{record.name} has no {part.strip('# :')}"


def test_every_decision_has_a_number_of_its_own() -> None:
    """Gaps are fine: decisions about one subject stand together, and subjects are worked on at the same time."""
    numbers = [int(record.name[:4]) for record in DECISIONS]
    assert len(set(numbers)) == len(numbers)
    index = (DOCS / "adr" / "index.md").read_text()
    assert [record.name for record in DECISIONS if f"({record.name})" not in index] == []
