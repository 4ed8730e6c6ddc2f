"""The built-ins answer as the published Go functions do: generated requests, documented examples, and what is listed.

An ordinary run asks each function a sample. The long one asks thousands from three seeds; other seeds are named by
`PLANFORM_SEEDS=1,2,3`.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from planform.functions.jsonform import response_to_json
from planform.functions.values import FunctionRequest, FunctionResponse, Object, Resource, State
from tests.interop import test_auto_ready_differential, test_patch_and_transform_differential
from tests.interop.comparing import IMPROVEMENTS, RULES, compare, differences, listed
from tests.interop.generated import NAME, filters, templates
from tests.interop.published import PublishedFunction, serving
from tests.interop.test_recorded_answers import FUNCTIONS as RECORDED
from tests.interop.test_upstream_tables import FUNCTIONS, answer, compared_tables
from tests.unit.test_builtin_docs import RESULTS, ask, examples

FEW = 60
MANY = 2_000
SEEDS = [int(seed) for seed in os.environ.get("PLANFORM_SEEDS", "81000119,82000241,83000357").split(",")]
OFTEN = 12
TEMPLATES = [entry for entry in IMPROVEMENTS if "template" in entry]

Question = Callable[[FunctionRequest, PublishedFunction], Awaitable[tuple[list[str], set[str]]]]
"""Puts a request to both; gives what differs, and the entries that do not count as such."""

pytestmark = pytest.mark.xdist_group("go-functions")


def question(name: str) -> Question:
    async def asked(request: FunctionRequest, published: PublishedFunction) -> tuple[list[str], set[str]]:
        case, used = compare(name, request, answer(name, request), response_to_json(await published(request)))
        return list(differences(case.ours, case.theirs)), used

    return asked


async def compositions(request: FunctionRequest, published: PublishedFunction) -> tuple[list[str], set[str]]:
    """By the rules that also look at what formats and conversions made of numbers."""
    case = await test_patch_and_transform_differential.compared(request, published)
    changed = [part for part in case.ours if case.ours[part] != case.theirs[part]]
    return [f"{part}: upstream {case.theirs[part]}, planform {case.ours[part]}" for part in changed], case.used


GENERATED: dict[str, tuple[Callable[[int], FunctionRequest], Question]] = {
    "patch-and-transform": (test_patch_and_transform_differential.asked_for, compositions),
    "go-templating": (templates, question("go-templating")),
    "auto-ready": (test_auto_ready_differential.request, question("auto-ready")),
    "cel-filter": (filters, question("cel-filter")),
}


async def compared(name: str, seeds: range, directory: Path) -> tuple[list[str], set[str]]:
    make, put = GENERATED[name]
    found: list[str] = []
    used: set[str] = set()
    async with serving(f"function-{name}", directory) as published:
        for seed in seeds:
            differing, rules = await put(make(seed), published)
            found += [f"seed {seed}: {each}" for each in differing]
            used |= rules
    return found, used


@pytest.mark.parametrize("name", FUNCTIONS)
async def test_generated_requests_have_the_same_answer_from_both_and_what_is_listed_is_seen(
    name: str, tmp_path: Path
) -> None:
    found, used = await compared(name, range(FEW), tmp_path)
    assert found == []
    asked_by_tests = {entry["id"] for entry in listed(name) if shown_by(entry)}
    _, in_tables = compared_tables(name, tmp_path)
    about = {entry["id"] for entry in listed(name)}
    assert used | in_tables <= about
    assert about - asked_by_tests <= used | in_tables, "what is listed must be seen"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", FUNCTIONS)
async def test_thousands_of_requests_have_the_same_answer_from_both(name: str, seed: int, tmp_path: Path) -> None:
    found, used = await compared(name, range(seed, seed + MANY), tmp_path)
    assert found == []
    assert used <= {entry["id"] for entry in listed(name)}


@pytest.mark.parametrize("name", FUNCTIONS)
async def test_documented_examples_have_the_same_answer_from_both(name: str, tmp_path: Path) -> None:
    found = []
    async with serving(f"function-{name}", tmp_path) as published:
        for title, parts in examples(name):
            request = FunctionRequest()
            for role, content in parts:
                if not role.startswith(RESULTS):
                    ask(request, role, content)
            differing, _ = await question(name)(request, published)
            found += [f"{title}: {each}" for each in differing]
    assert found == []


@pytest.mark.parametrize("entry", TEMPLATES, ids=lambda entry: entry["id"])
async def test_what_templates_do_otherwise_is_as_listed(entry: Object, tmp_path: Path) -> None:
    assert entry["function"] == "go-templating" and entry["upstream"] != entry["planform"]
    request = rendering(entry["template"], short=entry.get("short", False))
    async with serving("function-go-templating", tmp_path) as published:
        theirs = {rendered(await published(request)) for _ in range(OFTEN)}
    ours = {rendered(answer("go-templating", request)) for _ in range(OFTEN)}
    for found, expected in ((theirs, entry["upstream"]), (ours, entry["planform"])):
        match expected:
            case {"varies": True}:
                assert len(found) > 1
            case {"fatal": words}:
                assert all(words in each for each in found)
            case {"to": text}:
                assert found == {text}


def rendering(template: str, *, short: bool) -> FunctionRequest:
    """A request for a resource with a member that is what a template renders, as text."""
    lines = ["apiVersion: example.org/v1", "kind: Thing", "metadata:", "  annotations:", f"    {NAME}: thing", "spec:"]
    lines += ['  to: {{ include "to" . | quote }}', f'{{{{ define "to" }}}}{template}{{{{ end }}}}']
    given = {"apiVersion": "gotemplating.fn.crossplane.io/v1beta1", "kind": "GoTemplate", "source": "Inline"}
    xr = {"apiVersion": "example.org/v1", "kind": "XR", "metadata": {"name": "xr"}}
    text = "\n".join(lines)
    return FunctionRequest(
        observed=State(Resource(xr)), input={**given, "inline": text if short else {"template": text}}, tag="tag"
    )


def rendered(response: FunctionResponse) -> str:
    """The member, or why there is none."""
    if response.fatal is not None:
        return response.fatal.message
    return str(response.desired.resources["thing"].resource["spec"]["to"])


def shown_by(entry: Object) -> str:
    """How an entry brings its own request, which a test puts to both functions; empty for what is seen in others."""
    return next((member for member in ("patch", "observed", "template") if member in entry), "")


def test_every_entry_of_the_list_is_put_to_the_test() -> None:
    for entry in IMPROVEMENTS:
        names = set(entry["function"].split(", "))
        assert names <= {*FUNCTIONS, *RECORDED}, entry["id"]
        assert entry["why"] and (shown_by(entry) or entry["id"] in RULES), entry["id"]
        assert not shown_by(entry) or len(names) == 1, entry["id"]


def test_no_id_stands_twice_on_the_list() -> None:
    ids = [entry["id"] for entry in IMPROVEMENTS]
    assert sorted(set(ids)) == sorted(ids)
