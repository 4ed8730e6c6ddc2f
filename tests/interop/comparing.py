"""Holding answers of a built-in against those of the function it stands for, but for what improvements.yaml lists.

Both answers are looked at in the protocol's JSON form. A rule has the id of an entry of the list, and takes away from
both answers what that entry is about; what is left must be equal. Rules that found something to take away are told, so
that a test can see that the list is neither too short nor too long.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from planform.builtin.environment import ENVIRONMENT_KEY
from planform.functions.jsonform import response_to_json
from planform.functions.values import FunctionRequest, FunctionResponse, Object

IMPROVEMENTS: Final[list[Object]] = yaml.safe_load((Path(__file__).parent / "improvements.yaml").read_text())
IDS: Final = frozenset(entry["id"] for entry in IMPROVEMENTS)

_MISTAKES: Final = re.compile(
    r"is used twice|selects nothing|is missing, so|does nothing|counts as|nothing has an empty"
)
_WORDS: Final = re.compile(
    r"cannot get (Function|function) input|invalid Function input: resources: Required|cannot unmarshal"
    r"|CEL condition: |cannot compile regex|data: not an object|cannot evaluate CEL expression|get filters from"
)

_TEMPLATE_WORDS: Final = re.compile(
    r"invalid function input|invalid Function input|cannot get Function input|cannot apply template options"
    r"|cannot decode manifest|template is missing required|duplicate extra resource key|reserved|invalid kind"
    r"|cannot get (Contexts|Conditions|extra resources)|must be (an object|a list)|document \d+"
    r"|invalid annotations in resource|cannot (execute|parse)"
)


@dataclass(slots=True)
class Case:
    """One request with both answers, each the rules' to change."""

    function: str
    request: Object
    ours: Object
    theirs: Object

    def both(self) -> tuple[Object, Object]:
        return self.ours, self.theirs


Rule = Callable[[Case], None]
RULES: Final[dict[str, tuple[frozenset[str], Rule]]] = {}


def rule(name: str, *functions: str) -> Callable[[Rule], Rule]:
    """Register a rule for functions, or for all of them."""

    def register(made: Rule) -> Rule:
        RULES[name] = (frozenset(functions), made)
        return made

    return register


def compare(function: str, request: FunctionRequest, ours: FunctionResponse, theirs: Object) -> tuple[Case, set[str]]:
    """What is left of both answers, and the ids of the entries that they differed by."""
    case = Case(function, _request_json(request), plain(_as_json(ours)), plain(theirs))
    for answer in case.both():
        _drop_empty(answer)
    used: set[str] = set()
    for name, (functions, apply) in RULES.items():
        if functions and function not in functions:
            continue
        before = copy.deepcopy(case.both())
        apply(case)
        for answer in case.both():
            _drop_empty(answer)
        if case.both() != before:
            used.add(name)
    return case, used


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Where two answers differ, for a message."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(set(ours) | set(theirs)):
            yield from differences(ours.get(key), theirs.get(key), f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif ours != theirs:
        yield f"{path}: upstream {json.dumps(theirs)[:300]}, planform {json.dumps(ours)[:300]}"


def plain(value: Any) -> Any:
    """The wire has no integers: whole numbers as such, in a copy."""
    if isinstance(value, dict):
        return {key: plain(member) for key, member in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if type(value) is int and abs(value) > 2**53:
        value = float(value)  # which is all that the wire has
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _as_json(response: FunctionResponse) -> Object:
    found: Object = json.loads(json.dumps(response_to_json(response)))
    return found


def _request_json(request: FunctionRequest) -> Object:
    return {
        "desired": {name: each.resource for name, each in request.desired.resources.items()},
        "required": sorted(request.required_resources),
        "context": request.context,
        "input": request.input,
    }


def _drop_empty(answer: Object) -> None:
    """The wire does not tell an empty member of an answer from none."""
    desired = answer.get("desired", {})
    if desired.get("composite", {}).get("resource") == {}:
        del desired["composite"]["resource"]
    for each in desired.get("resources", {}).values():
        if each.get("resource") == {}:
            del each["resource"]
    for member in [member for member, value in desired.items() if value == {}]:
        del desired[member]
    for selectors in answer.get("requirements", {}).values():
        for selector in selectors.values():
            if selector.get("matchLabels") == {"labels": {}}:
                selector["matchLabels"] = {}
    for member in ("meta", "requirements", "desired", "context", "results", "conditions"):
        if answer.get(member) in ({}, []):
            del answer[member]


def _fatal(answer: Object) -> str | None:
    return next((each["message"] for each in answer.get("results", ()) if each["severity"] == "SEVERITY_FATAL"), None)


@rule("no-ttl")
def _no_ttl(case: Case) -> None:
    if "ttl" not in case.ours.get("meta", {}):
        case.theirs.get("meta", {}).pop("ttl", None)


@rule("told-mistakes")
def _told_mistakes(case: Case) -> None:
    results = case.ours.get("results", [])
    told = [each for each in results if each["severity"] == "SEVERITY_WARNING" and _MISTAKES.search(each["message"])]
    if told:
        case.ours["results"] = [each for each in results if each not in told]


@rule("own-words")
def _own_words(case: Case) -> None:
    for listed in ("results", "conditions"):
        for one, other in zip(case.ours.get(listed, ()), case.theirs.get(listed, ()), strict=False):
            texts = one.get("message", ""), other.get("message", "")
            if texts[0] != texts[1] and all(_WORDS.search(text) for text in texts):
                one["message"] = other["message"] = "..."


@rule("no-files", "go-templating")
def _no_files(case: Case) -> None:
    """The upstream function also has a folder of its own, which counts where the input says nothing."""
    source = (case.request["input"] or {}).get("source")
    if source == "FileSystem" or (not source and "from the folder" in (_fatal(case.theirs) or "")):
        case.ours = case.theirs = {}


@rule("own-words-about-templates", "go-templating")
def _own_words_about_templates(case: Case) -> None:
    """Where both refuse, and both say so about the input or the manifests."""
    texts = _fatal(case.ours), _fatal(case.theirs)
    if all(texts) and texts[0] != texts[1] and all(_TEMPLATE_WORDS.search(text or "") for text in texts):
        for answer in case.both():
            answer["results"] = [{"severity": "SEVERITY_FATAL", "message": "..."}]


@rule("printed-conditions", "go-templating")
def _printed_conditions(case: Case) -> None:
    text = ((case.request["input"] or {}).get("inline") or {}).get("template", "")
    members = re.findall(r"(?m)^  (\w+): .*getResourceCondition[^|]*\| printf `%[^v]", text)
    if members and (_fatal(case.ours) is None) != (_fatal(case.theirs) is None):
        case.ours = case.theirs = {}  # what is printed stands in YAML without quotes, and one of them is none
    for member in members:
        for answer in case.both():
            for each in answer.get("desired", {}).get("resources", {}).values():
                spec = each.get("resource", {}).get("spec")
                if isinstance(spec, dict):
                    spec.pop(member, None)


@rule("no-empty-annotations", "go-templating")
def _no_empty_annotations(case: Case) -> None:
    for each in case.theirs.get("desired", {}).get("resources", {}).values():
        metadata = each.get("resource", {}).get("metadata", {})
        if isinstance(metadata, dict) and metadata.get("annotations") == {}:
            del metadata["annotations"]
            if not metadata:
                del each["resource"]["metadata"]
    for each in case.ours.get("desired", {}).get("resources", {}).values():
        if each.get("resource", {}).get("metadata") == {}:
            del each["resource"]["metadata"]


@rule("asked-once", "go-templating")
def _asked_once(case: Case) -> None:
    case.theirs.get("requirements", {}).pop("extraResources", None)


@rule("typed-environment", "patch-and-transform")
def _typed_environment(case: Case) -> None:
    mine, yours = (answer.get("context", {}).get(ENVIRONMENT_KEY) for answer in case.both())
    if isinstance(mine, dict) and isinstance(yours, dict) and "apiVersion" not in yours:
        mine.pop("apiVersion", None), mine.pop("kind", None)


@rule("unready-xr", "patch-and-transform")
def _unready_xr(case: Case) -> None:
    waits = any("not adding new composed resource" in each["message"] for each in case.ours.get("results", ()))
    if waits and "ready" not in case.theirs.get("desired", {}).get("composite", {}):
        case.ours.get("desired", {}).get("composite", {}).pop("ready", None)


@rule("results-have-a-target", "patch-and-transform")
def _results_have_a_target(case: Case) -> None:
    for one, other in zip(case.ours.get("results", ()), case.theirs.get("results", ()), strict=False):
        if "target" not in other:
            one.pop("target", None)


@rule("broken-pattern-is-fatal", "sequencer")
def _broken_pattern(case: Case) -> None:
    failure = case.theirs.get("rpcError")
    if (
        failure is not None
        and "error parsing regexp" in failure
        and "error parsing regexp" in (_fatal(case.ours) or "")
    ):
        case.ours = case.theirs = {}


@rule("replay-deletion", "sequencer")
def _replay_deletion(case: Case) -> None:
    for answer in case.both():
        for each in answer.get("desired", {}).get("resources", {}).values():
            spec = each.get("resource", {}).get("spec", {})
            if "replayDeletion" in spec and "replayDeletion" not in case.request["input"]:
                del spec["replayDeletion"]


@rule("waits-for-all", "environment-configs", "extra-resources")
def _waits_for_all(case: Case) -> None:
    wanted = case.ours.get("requirements", {}).get("resources", {})
    if case.request["required"] and any(name not in case.request["required"] for name in wanted):
        case.ours.pop("context", None), case.theirs.pop("context", None)
        case.ours.pop("results", None), case.theirs.pop("results", None)


@rule("default-data-alone", "environment-configs")
def _default_data_alone(case: Case) -> None:
    if case.request["input"].get("spec", {}).get("defaultData") and not case.ours.get("requirements"):
        for answer in case.both():
            answer.get("context", {}).pop(ENVIRONMENT_KEY, None)


@rule("selector-without-labels", "extra-resources")
def _selector_without_labels(case: Case) -> None:
    """Everything that was asked for came, and upstream still misses something, or has not begun."""
    names = {entry.get("into", "") for entry in case.request["input"].get("spec", {}).get("extraResources") or ()}
    if names - set(case.ours.get("requirements", {}).get("resources", {})):
        missing = "cannot find expected extra resource" in (_fatal(case.theirs) or "")
        if missing or not case.request["required"]:
            for answer in case.both():
                answer.pop("results", None)
                answer.pop("context", None)


@rule("wrong-tag-types", "tag-manager")
def _wrong_tag_types(case: Case) -> None:
    """A value that is no text, in the XR or on the resource itself, and what upstream makes of it."""
    for mine, yours, _ in _tagged(case):
        for key in {**mine, **yours}:
            if yours.get(key) == "" and (key not in mine or not isinstance(mine[key], str)):
                mine.pop(key, None)
                del yours[key]


@rule("no-null-tags", "tag-manager")
def _no_null_tags(case: Case) -> None:
    """Only where nobody put a tag."""
    for mine, yours, holders in _tagged(case):
        if not mine and not yours:
            for holder in holders:
                holder.pop("tags", None)


def _tagged(case: Case) -> Iterator[tuple[Object, Object, tuple[Object, Object]]]:
    """The tags of each resource in both answers, and the objects that hold them."""
    mine = case.ours.get("desired", {}).get("resources", {})
    for name, other in case.theirs.get("desired", {}).get("resources", {}).items():
        holders = tuple(each["resource"].get("spec", {}).get("forProvider") for each in (mine[name], other))
        tags = tuple((holder.get("tags") or {}) if isinstance(holder, dict) else None for holder in holders)
        if isinstance(tags[0], dict) and isinstance(tags[1], dict):
            yield tags[0], tags[1], (holders[0], holders[1])


@rule("asks-for-schemas", "tag-manager")
def _asks_for_schemas(case: Case) -> None:
    case.ours.get("requirements", {}).pop("schemas", None)


@rule("one-condition-each", "status-transformer")
def _one_condition_each(case: Case) -> None:
    """The last of each type counts, in any order."""
    for answer in case.both():
        if "conditions" in answer:
            last = {each["type"]: each for each in answer["conditions"]}
            if len(last) < len(answer["conditions"]):
                case.ours["conditions"] = sorted(case.ours["conditions"], key=lambda each: str(each["type"]))
                answer["conditions"] = sorted(last.values(), key=lambda each: str(each["type"]))


@rule("all-failures-told", "status-transformer")
def _all_failures_told(case: Case) -> None:
    for one, other in zip(case.ours.get("conditions", ()), case.theirs.get("conditions", ()), strict=False):
        if one["type"] == other["type"] == "StatusTransformationSuccess":
            mine, yours = one.get("message", ""), other.get("message", "")
            if mine != yours and mine.endswith(f"; {yours}"):
                one["message"] = yours
