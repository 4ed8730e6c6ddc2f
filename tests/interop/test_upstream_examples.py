"""The examples of the published functions run on the built-ins and on those functions, call by call, with one outcome.

Each example is rendered twice: once the answers of the built-ins go on to the next step, once those of the published
functions do. Every call is put to both. What differs is an entry of improvements.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import yaml

from planform.builtin.catalogue import find_builtin_name
from planform.cli.compositions.render_inputs import FileCredentials, FileReader, read_documents
from planform.cli.functions.local import catalogue_of, functions_from, running
from planform.clock import SystemClock
from planform.functions.jsonform import response_to_json
from planform.functions.runner import FunctionRevision, FunctionRunner
from planform.functions.values import FunctionRequest, FunctionResponse, Object
from planform.pipeline.pipeline import resolver_for
from planform.pipeline.render import RenderContext, render
from tests.interop.comparing import compare, differences
from tests.interop.published import PublishedFunction, serving
from tests.interop.test_upstream_tables import FUNCTIONS, unpacked

EXAMPLES = (
    ("patch-and-transform", "composition.yaml"),
    ("cel-filter", "composition.yaml"),
    ("auto-ready", "basic/composition.yaml"),
    ("auto-ready", "basic/composition-k8s.yaml"),
    ("auto-ready", "cel-healthcheck/composition.yaml"),
    ("go-templating", "conditions/composition.yaml"),
    ("go-templating", "context/composition.yaml"),
    ("go-templating", "custom-delims/composition.yaml"),
    ("go-templating", "environment/composition.yaml"),
    ("go-templating", "extra-resources/composition.yaml"),
    ("go-templating", "filesystem/composition-fs.yaml"),
    ("go-templating", "functions/fromYaml/composition.yaml"),
    ("go-templating", "functions/getComposedResource/composition.yaml"),
    ("go-templating", "functions/getCompositeResource/composition.yaml"),
    ("go-templating", "functions/getCredentialData/composition.yaml"),
    ("go-templating", "functions/getExtraResources/composition.yaml"),
    ("go-templating", "functions/getExtraResourcesFromContext/composition.yaml"),
    ("go-templating", "functions/getResourceCondition/composition.yaml"),
    ("go-templating", "functions/include/composition.yaml"),
    ("go-templating", "functions/toYaml/composition.yaml"),
    ("go-templating", "inline-templates/composition.yaml"),
    ("go-templating", "inline/composition.yaml"),
    ("go-templating", "recursive/composition-real.yaml"),
    ("go-templating", "recursive/composition-wrapper.yaml"),
)
FAILING = {"filesystem/composition-fs.yaml": "no-files"}
"""Examples that fail on the built-in, and the entry that says so."""

pytestmark = pytest.mark.xdist_group("go-functions")


class BesideEachOther:
    """Asks the built-in and the published function, and notes where they differ; the answers of one of them count."""

    def __init__(
        self,
        builtins: FunctionRunner,
        names: Mapping[str, str],
        published: Mapping[str, PublishedFunction],
        *,
        published_counts: bool,
    ) -> None:
        self._builtins, self._names, self._published = builtins, names, published
        self._published_counts = published_counts
        self.asked: list[str] = []
        self.used: set[str] = set()
        self.differences: list[str] = []

    async def run(self, revision: FunctionRevision, request: FunctionRequest, /, *, timeout: float) -> FunctionResponse:
        ours = await self._builtins.run(revision, request, timeout=timeout)
        name = self._names[revision.name]
        published = self._published.get(name)
        if published is None:
            return ours
        theirs = await published(request)
        case, used = compare(name, request, ours, response_to_json(theirs))
        self.asked.append(name)
        self.used |= used
        self.differences += [f"{name}: {each}" for each in differences(case.ours, case.theirs)]
        return theirs if self._published_counts else ours


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    return {name: unpacked(name, tmp_path_factory.mktemp(name)) / "example" for name in FUNCTIONS}


def read_composition(file: Path) -> Object:
    """The Composition, with the templates that a kustomization beside it would add."""
    [composition] = read_documents(file)
    for patch in sorted(file.parent.glob("templates/*.patch.yaml")):
        for operation in yaml.safe_load(patch.read_text()):
            assert operation["op"] == "add" and operation["path"] == "/spec/pipeline/0/input/inline/templates/-"
            composition["spec"]["pipeline"][0]["input"]["inline"]["templates"].append(operation["value"])
    return composition


def read_xr(folder: Path, composition: Object) -> Object:
    """The example's XR, or one like its claim, or the least that there can be."""
    found = [
        each for name in ("xr.yaml", "claim.yaml") if (folder / name).exists() for each in read_documents(folder / name)
    ]
    return {"metadata": {"name": "example"}, **(found[0] if found else {}), **composition["spec"]["compositeTypeRef"]}


def documents(folder: Path, pattern: str) -> list[Object]:
    return [each for file in sorted(folder.glob(pattern)) for each in read_documents(file)]


@pytest.mark.parametrize("published_counts", [False, True], ids=["built-ins", "published"])
@pytest.mark.parametrize(("name", "example"), EXAMPLES, ids=lambda each: str(each).removesuffix(".yaml"))
async def test_an_example_of_a_published_function_runs_alike_on_both(
    name: str,
    example: str,
    published_counts: bool,
    folders: Mapping[str, Path],
    tmp_path: Path,
) -> None:
    file = folders[name] / example
    folder, composition = file.parent, read_composition(file)
    named = {step["functionRef"]["name"] for step in composition["spec"]["pipeline"]}
    used = functions_from([], [f"{each}={each.removeprefix('crossplane-contrib-')}" for each in sorted(named)])
    builtins = {function.id: find_builtin_name(function.where) for function in used}
    names = {revision: builtin.name for revision, builtin in builtins.items() if builtin is not None}
    assert set(names) == set(builtins), "every function of the examples is built in"
    async with running(used) as runner, AsyncExitStack() as stack:
        published = {
            each: await stack.enter_async_context(serving(f"function-{each}", tmp_path))
            for each in FUNCTIONS
            if each in names.values()
        }
        beside = BesideEachOther(runner, names, published, published_counts=published_counts)
        rendered = await render(
            read_xr(folder, composition),
            composition,
            documents(folder, "observed*.yaml"),
            RenderContext(
                resolver=resolver_for(catalogue_of(used)),
                runner=beside,
                reader=FileReader(documents(folder, "e[xn][tv]*.yaml"), {}),
                clock=SystemClock(),
                credentials=FileCredentials(documents(folder, "credentials.yaml")),
            ),
        )
    assert beside.differences == []
    assert name in beside.asked
    if example in FAILING:
        assert FAILING[example] in beside.used
    else:
        assert rendered.outcome.failure is None


def test_no_example_is_left_out(folders: Mapping[str, Path]) -> None:
    found = {
        (name, str(file.relative_to(folder)))
        for name, folder in folders.items()
        for file in folder.glob("**/composition*.yaml")
    }
    assert found == set(EXAMPLES)
