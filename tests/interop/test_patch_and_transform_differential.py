"""The built-in patch-and-transform answers as the published Go function does, but for what improvements.yaml lists."""

from __future__ import annotations

import base64
import copy
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
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

_NEEDLESS_CONVERSION = re.compile(
    r'composed resource "(?P<name>[^"]*)" "\w+" patch at index (?P<patch>\d+): transform at index (?P<transform>\d+) '
    r"returned error: convert transform could not resolve: (invalid input type (map\[string\]|\[\])interface \{\}"
    r"|conversion from int64 to float64 is not supported with format quantity)$"
)
_HASHES = frozenset({"ToSha1", "ToSha256", "ToSha512", "ToAdler32"})
_MAX_REWRITES = 8

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
        self._let_pass()

    def _let_pass(self) -> None:
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


async def compared(request: FunctionRequest, published: PublishedFunction) -> Comparison:
    """Both answers to a request, and where they differ, to one that asks for the same in words that both know.

    Such a request says without a conversion what needs none, and without a hash what a format made of a number: our
    answer to it must be the one we gave, or differ from theirs by what the hash hid.
    """
    first = Comparison(request, function(request), await published(request))
    case, used = first, set[str]()
    request = with_patch_sets_resolved(request)
    for _ in range(_MAX_REWRITES):
        if case.ours == case.theirs:
            case.used |= used
            return case
        fatal = (await published(request)).fatal
        needless = _NEEDLESS_CONVERSION.search(fatal.message) if fatal else None
        if needless is not None:
            rewritten, rule = without_conversion(request, needless)
            if function(rewritten).desired != function(request).desired:
                return first
        else:
            rewritten, rule = without_hashed_formats(request), "whole-numbers"
            if rewritten.input == request.input:
                return first
        used.add(rule)
        request = rewritten
        case = Comparison(request, function(request), await published(request))
        if rule == "whole-numbers" and rule not in case.used:
            return first
    return first


def with_patch_sets_resolved(request: FunctionRequest) -> FunctionRequest:
    given = copy.deepcopy(request.input or {})
    sets = {each["name"]: each["patches"] for each in given.pop("patchSets", ())}
    for template in given["resources"]:
        template["patches"] = [
            patch
            for each in template["patches"]
            for patch in (copy.deepcopy(sets[each["patchSetName"]]) if each.get("type") == "PatchSet" else [each])
        ]
    return replace(request, input=given)


def without_conversion(request: FunctionRequest, found: re.Match[str]) -> tuple[FunctionRequest, str]:
    """The same without the conversion that upstream's error is about, and the entry that lists it."""
    given = copy.deepcopy(request.input or {})
    template = next(each for each in given["resources"] if each["name"] == found["name"])
    transforms = template["patches"][int(found["patch"])]["transforms"]
    index = int(found["transform"])
    if transforms[index]["convert"]["toType"] == "string":
        transforms[index] = {"type": "string", "string": {"type": "Convert", "convert": "ToJson"}}
        return replace(request, input=given), "object-to-json"
    del transforms[index]
    return replace(request, input=given), "same-type"


def without_hashed_formats(request: FunctionRequest) -> FunctionRequest:
    """The same without hashes of texts that a format made, in which the name of a number's type may stand."""
    given = copy.deepcopy(request.input or {})
    for template in given["resources"]:
        for patch in template["patches"]:
            kept, formatted = [], "combine" in patch
            for each in patch.get("transforms", ()):
                string = each.get("string", {})
                if not (formatted and string.get("convert") in _HASHES):
                    kept.append(each)
                formatted = formatted or string.get("type") == "Format"
            if "transforms" in patch:
                patch["transforms"] = kept
    return replace(request, input=given)


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
        request = asked_for(seed)
        case = await compared(request, published)
        assert case.ours == case.theirs, f"seed {seed}"
        used |= case.used
        fatal += function(request).fatal is not None
    assert used <= RULES, "what is let pass must be listed"
    assert fatal < len(SEEDS) / 2, "most requests must get as far as a desired state"


async def test_the_published_function_answers_the_same_over_mutual_tls(
    tmp_path: Path, issue: Callable[[str], Path]
) -> None:
    request = next(request for request in map(asked_for, SEEDS) if function(request).fatal is None)
    async with serving("function-patch-and-transform", tmp_path, issue("localhost")) as served:
        case = Comparison(request, function(request), await served(request))
    assert case.ours == case.theirs


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["name"])
async def test_what_we_do_otherwise_is_as_listed(entry: Object, published: PublishedFunction) -> None:
    request = asked(entry)
    check(await published(request), entry["upstream"])
    check(function(request), entry["planform"])


def test_every_improvement_says_why_and_differs() -> None:
    for entry in ENTRIES:
        assert entry["why"]
        assert entry["upstream"] != entry["planform"], entry["name"]


def asked_for(seed: int) -> FunctionRequest:
    return Author(seed).request()


def asked(entry: Object) -> FunctionRequest:
    base = entry.get("base", {"apiVersion": "example.org/v1", "kind": "Thing"})
    template = {
        "name": "thing",
        "patches": [entry["patch"]],
        **({} if base is None else {"base": base}),
        **entry.get("with", {}),
    }
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
