"""The reference pages of the built-in functions tell the truth: their examples run, and they name every member."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from planform.builtin import find_builtin
from planform.builtin.auto_ready import Input as AutoReady
from planform.builtin.cel_filter import Input as CelFilter
from planform.builtin.cel_validation import Input as CelValidation
from planform.builtin.environment_configs import Spec as EnvironmentConfigs
from planform.builtin.extra_resources import Spec as ExtraResources
from planform.builtin.go_templating.inputs import GoTemplate
from planform.builtin.kcl import Spec as Kcl
from planform.builtin.patch_and_transform.inputs import Resources
from planform.builtin.python import Input as Python
from planform.builtin.sequencer import Input as Sequencer
from planform.builtin.starlark import Input as Starlark
from planform.builtin.status_transformer.inputs import Input as StatusTransformer
from planform.builtin.tag_manager import Input as TagManager
from planform.functions.values import Condition, FunctionRequest, FunctionResponse, Ready, Resource

PAGES = Path(__file__).parents[2] / "docs" / "reference" / "functions"
INPUTS: dict[str, type[msgspec.Struct]] = {
    "auto-ready": AutoReady,
    "cel-filter": CelFilter,
    "cel-validation": CelValidation,
    "environment-configs": EnvironmentConfigs,
    "extra-resources": ExtraResources,
    "go-templating": GoTemplate,
    "kcl": Kcl,
    "patch-and-transform": Resources,
    "python": Python,
    "sequencer": Sequencer,
    "starlark": Starlark,
    "status-transformer": StatusTransformer,
    "tag-manager": TagManager,
}
EXAMPLES = 3
RESULTS = ("gives", "says", "sets", "fails")


def examples(name: str) -> list[tuple[str, list[tuple[str, Any]]]]:
    """Title and parts of each; a part is what its first line says it is, and its content."""
    text = (PAGES / f"{name}.md").read_text().partition("## Examples")[2].partition("\n## ")[0]
    found = []
    for section in text.split("\n### ")[1:]:
        blocks = re.findall(r"```yaml\n# (.*?)\n(.*?)```", section, re.DOTALL)
        found.append((section.partition("\n")[0], [(role, yaml.safe_load(content)) for role, content in blocks]))
    return found


def ask(request: FunctionRequest, role: str, content: Any) -> None:
    role, _, ready = role.partition(", ")
    made = Resource(content, ready=Ready.TRUE if ready == "ready" else Ready.UNSPECIFIED)
    match role.split():
        case ["XR"]:
            request.observed.composite = made
        case ["input"]:
            request.input = content
        case ["context"]:
            request.context = content
        case ["observed", name]:
            request.observed.resources[name] = made
        case ["desired", name]:
            request.desired.resources[name] = made
        case ["required", name]:
            request.required_resources[name] = [Resource(each) for each in content]
        case _:
            raise AssertionError(f"an example cannot hold {role!r}")


def check(response: FunctionResponse, role: str, content: Any) -> None:
    role, _, ready = role.partition(", ")
    match role.split():
        case ["gives", "XR"]:
            assert response.desired.composite.resource == content
        case ["gives", "context"]:
            assert response.context == content
        case ["gives", "no", name]:
            assert name not in response.desired.resources
        case ["gives", name]:
            assert response.desired.resources[name].resource == content
            assert not ready or (response.desired.resources[name].ready is Ready.TRUE) == (ready == "ready")
        case ["says"]:
            assert [result.message for result in response.results] == content
        case ["fails"]:
            assert response.fatal is not None and response.fatal.message == content
        case ["sets", "conditions"]:
            assert [shown(condition) for condition in response.conditions] == content
        case _:
            raise AssertionError(f"an example cannot check {role!r}")


def shown(condition: Condition) -> dict[str, str]:
    found = {"type": condition.type, "status": condition.status.name.capitalize(), "reason": condition.reason}
    return found | ({"message": condition.message} if condition.message else {})


def answer(name: str, request: FunctionRequest) -> FunctionResponse:
    function = find_builtin(name)
    assert function is not None
    if not callable(function):
        return asyncio.run(function.run(request, timeout=20))
    response: FunctionResponse = function(request)
    return response


@pytest.mark.parametrize("name", INPUTS)
def test_the_examples_give_what_the_page_says(name: str) -> None:
    if name == "starlark":
        pytest.importorskip("starlark", reason="the extra `starlark` is not installed")
    found = examples(name)
    assert len(found) == EXAMPLES
    for title, parts in found:
        request = FunctionRequest()
        expected = [part for part in parts if part[0].startswith(RESULTS)]
        for role, content in parts:
            if (role, content) not in expected:
                ask(request, role, content)
        response = answer(name, request)
        assert response.fatal is None or any(role == "fails" for role, _ in expected), f"{title}: {response.fatal}"
        assert expected, f"{title} shows no result"
        for role, content in expected:
            check(response, role, content)
        if not any(role in ("says", "fails") for role, _ in expected):
            assert response.results == [], title


def members(part: Any, seen: set[Any]) -> Iterator[str]:
    """The names of all members of an input, to any depth, as users write them."""
    if isinstance(part, type) and issubclass(part, msgspec.Struct):
        if part in seen:
            return
        seen.add(part)
        for field in msgspec.structs.fields(part):
            yield field.encode_name
            yield from members(field.type, seen)
    else:
        for argument in getattr(part, "__args__", ()):
            yield from members(argument, seen)


@pytest.mark.parametrize(("name", "part"), INPUTS.items())
def test_every_member_of_an_input_is_on_its_page(name: str, part: type[msgspec.Struct]) -> None:
    reference = (PAGES / f"{name}.md").read_text().partition("\n## Input")[2]
    if name == "patch-and-transform":  # its configs are those of the page it refers to
        reference += (PAGES / "environment-configs.md").read_text()
    spelled = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", reference))))
    assert set(members(part, set())) - {"apiVersion", "kind", "metadata"} - spelled == set()


def test_every_builtin_here_has_a_page() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} >= set(INPUTS)
