"""The built-in patch-and-transform answers as the published Go function does, but for what improvements.yaml lists."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from planform.builtin.patch_and_transform import function
from planform.functions.values import FunctionRequest, FunctionResponse, Object, Ready, Resource, Severity, State
from tests.interop.compositions import ENVIRONMENT, Author
from tests.interop.published import PublishedFunction, serving

SEEDS = range(100)
ENTRIES = [
    entry
    for entry in yaml.safe_load((Path(__file__).parent / "improvements.yaml").read_text())
    if entry["function"] == "patch-and-transform" and "patch" in entry
]
RULES = {entry["id"] for entry in ENTRIES}

_UNDECODABLE = re.compile(
    r"could not resolve: (string is not valid base64|the text is not JSON|invalid character|unexpected end of JSON).*"
)

_NAMED_RESOURCE = re.compile(r' \(composed resource "[^"]*"\)')

pytestmark = pytest.mark.xdist_group("go-patch-and-transform")


@pytest.fixture
async def published(tmp_path: Path) -> AsyncIterator[PublishedFunction]:
    async with serving("function-patch-and-transform", tmp_path) as served:
        yield served


class Comparison:
    """Both answers to one request, made comparable by the rules of improvements.yaml; `used` names those that were."""

    def __init__(self, request: FunctionRequest, ours: FunctionResponse, theirs: FunctionResponse) -> None:
        self.request = request
        self.used: set[str] = set()
        self.ours, self.theirs = self._shown(ours), self._shown(theirs)
        self._let_pass(ours, theirs)

    def _let_pass(self, ours: FunctionResponse, theirs: FunctionResponse) -> None:
        kept = [result for result in self.ours["results"] if "does not fit the values it is given" not in result[1]]
        self._apply("misfit-warning", "results", kept, self.theirs["results"])
        assert self.request.input is not None
        bases = {template["name"]: "base" in template for template in self.request.input["resources"]}
        for name, (_, ready) in self.theirs["resources"].items():
            earlier = self.request.desired.resources.get(name)
            mine = self.ours["resources"].get(name)
            inherited = earlier is not None and mine is not None and mine[1] == earlier.ready.name != ready
            if inherited and not bases.get(name, True):
                self.used.add("kept-readiness")
                self.ours["resources"][name] = (mine[0], ready)
        if any("not adding new composed resource" in text for _, text in self.ours["results"]):
            self._apply("unready-xr", "xr_ready", Ready.UNSPECIFIED.name, self.theirs["xr_ready"])
        fatal = theirs.fatal.message if theirs.fatal else ""
        if self.ours != self.theirs and re.search(r"invalid input type (map\[string\]|\[\])interface \{\}$", fatal):
            self.used.add("same-type")
            self.ours = self.theirs

    def _apply(self, rule: str, part: str, changed: Any, wanted: Any) -> None:
        if self.ours[part] != changed == wanted:
            self.used.add(rule)
            self.ours[part] = changed

    def _shown(self, response: FunctionResponse) -> dict[str, Any]:
        return {
            "resources": {
                name: (self._plain(each.resource), each.ready.name) for name, each in response.desired.resources.items()
            },
            "xr": self._plain(response.desired.composite.resource),
            "xr_ready": response.desired.composite.ready.name,
            "details": dict(response.desired.composite.connection_details),
            "context": self._plain(response.context),
            "results": [(result.severity.name, self._plain(result.message)) for result in response.results],
            "tag": response.tag,
        }

    def _plain(self, value: Any) -> Any:
        """Texts in which only the name of a number's type, or the words about undecodable text, may differ."""
        if isinstance(value, dict):
            return {key: self._plain(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._plain(item) for item in value]
        if not isinstance(value, str):
            return value
        named = _NAMED_RESOURCE.sub("", value)
        if named != value:
            self.used.add("names-the-resource")
        value = named
        text = _encoded(value).replace("float64", "int64")
        words = _UNDECODABLE.sub("could not resolve: the text cannot be decoded", text)
        if text != value:
            self.used.add("whole-numbers")
        if words != text:
            self.used.add("decoding-errors")
        return words


def _encoded(text: str) -> str:
    """What base 64 hides of the name of a number's type."""
    try:
        found = base64.b64decode(text, validate=True)
    except ValueError:
        return text
    return found.decode(errors="replace") if b"int64=" in found or b"float64=" in found else text


async def test_a_hundred_generated_requests_have_the_same_answer_from_both(published: PublishedFunction) -> None:
    used: set[str] = set()
    fatal = 0
    for seed in SEEDS:
        request = _request(seed)
        ours, theirs = function(request), await published(request)
        compared = Comparison(request, ours, theirs)
        assert compared.ours == compared.theirs, f"seed {seed}"
        used |= compared.used
        fatal += ours.fatal is not None
    assert used <= RULES, "what is let pass must be listed"
    assert fatal < len(SEEDS) / 2, "most requests must get as far as a desired state"


async def test_the_published_function_answers_the_same_over_mutual_tls(
    tmp_path: Path, issue: Callable[[str], Path]
) -> None:
    request = next(request for request in map(_request, SEEDS) if function(request).fatal is None)
    async with serving("function-patch-and-transform", tmp_path, issue("localhost")) as served:
        compared = Comparison(request, function(request), await served(request))
    assert compared.ours == compared.theirs


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["name"])
async def test_what_we_do_otherwise_is_as_listed(entry: Object, published: PublishedFunction) -> None:
    request = asked(entry)
    check(await published(request), entry["upstream"])
    check(function(request), entry["planform"])


def test_every_improvement_says_why_and_differs() -> None:
    for entry in ENTRIES:
        assert entry["why"]
        assert entry["upstream"] != entry["planform"], entry["name"]


def _request(seed: int) -> FunctionRequest:
    return Author(seed).request()


def asked(entry: Object) -> FunctionRequest:
    base = entry.get("base", {"apiVersion": "example.org/v1", "kind": "Thing"})
    template = {"name": "thing", "patches": [entry["patch"]], **({} if base is None else {"base": base})}
    xr = {"apiVersion": "example.org/v1", "kind": "XR", "metadata": {"name": "xr"}, **entry.get("xr", {})}
    earlier = entry.get("desired")
    desired = {"thing": Resource(earlier["resource"], ready=Ready.TRUE)} if earlier else {}
    return FunctionRequest(
        observed=State(Resource(xr)),
        desired=State(resources=desired),
        input={"apiVersion": "pt.fn.crossplane.io/v1beta1", "kind": "Resources", "resources": [template]},
    )


def check(response: FunctionResponse, expected: Object) -> None:
    if "fatal" in expected:
        assert response.fatal is not None
        assert expected["fatal"] in response.fatal.message
        return
    assert response.fatal is None, response.fatal
    thing = response.desired.resources.get("thing")
    assert (thing.resource.get("spec", {}).get("to") if thing else None) == expected["to"]
    warnings = [result.message for result in response.results if result.severity is Severity.WARNING]
    if "warnings" in expected:
        assert warnings == expected["warnings"]
    if "ready" in expected:
        assert thing is not None and thing.ready.name == expected["ready"]
    if "xr_ready" in expected:
        assert response.desired.composite.ready.name == expected["xr_ready"]
    if "environment" in expected:
        assert response.context[ENVIRONMENT] == expected["environment"]
