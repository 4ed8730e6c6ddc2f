"""Holding answers of a built-in against those of the function it stands for, but for what improvements.yaml lists.

Both answers are looked at in the protocol's JSON form. A rule has the id of an entry of the list, and takes away from
both answers what that entry is about; what is left must be equal. Rules that found something to take away are told, so
that a test can see that the list is neither too short nor too long.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from planform.builtin.environment import ENVIRONMENT_KEY, EXTRA_RESOURCES_KEY
from planform.functions.jsonform import response_to_json
from planform.functions.values import FunctionRequest, FunctionResponse, Object

IMPROVEMENTS: Final[list[Object]] = yaml.safe_load((Path(__file__).parent / "improvements.yaml").read_text())
IDS: Final = frozenset(entry["id"] for entry in IMPROVEMENTS)

Words = tuple[str, str]
"""Patterns of one message, ours and theirs, that say the same; what is in groups must be equal."""

_MISTAKES: Final = {
    "sequencer": (r'usageVersion: ".*" is neither v2 nor v1, and counts as v2',),
    "environment-configs": (r"spec\.environmentConfigs\[\d+\]\.selector\.maxMatch: 0 selects nothing",),
    "extra-resources": (
        r"spec\.extraResources\[\d+\]\.selector\.maxMatch: 0 selects nothing",
        r'spec\.extraResources\[\d+\]\.into: ".*" is used twice, and both find what the last one asks for',
    ),
    "go-templating": (
        r'document \d+ \(.*, ClaimConditions\): conditions\[\d+\]\.target ".*" is not CompositeAndClaim, and counts as '
        r"Composite",
    ),
}
"""The warnings of each function about what upstream accepts in silence."""

_SEQUENCE: Final = r'cannot evaluate condition ".*" for sequence \[.*\]: '
_FILTER: Final = r'cannot evaluate CEL expression ".*" for filter \d+: '
_UNKNOWN_MEMBER: Final[Words] = (
    r"cannot get Function input: object contains unknown field .*",
    r"cannot get Function input from \*v1\.RunFunctionRequest: .*: unknown (?:object member )?name .*",
)
_OWN_WORDS: Final[dict[str, tuple[Words, ...]]] = {
    "sequencer": (
        (
            rf"({_SEQUENCE}cannot parse CEL condition: ERROR: <input>:\d+:\d+: Syntax error: ).*",
            rf"({_SEQUENCE}cannot parse CEL condition: ERROR: <input>:\d+:\d+: Syntax error: ).*?",
        ),
        (rf"({_SEQUENCE}cannot evaluate CEL condition: .*) evaluating expression: .*", rf"({_SEQUENCE}.*)"),
        (r"(cannot compile regex .*: error parsing regexp: [^`]*)`(.*)`", r"(cannot compile regex [^`]*)`(.*)\$`"),
    ),
    "tag-manager": (_UNKNOWN_MEMBER,),
    "status-transformer": (_UNKNOWN_MEMBER,),
    "environment-configs": (
        (
            r'(cannot merge environment data: cannot get data from environment config ".*": )data: not an object',
            r"(cannot merge .*: )cannot unmarshal value from JSON: .*: cannot unmarshal \w+ into Go value of type .*",
        ),
    ),
    "cel-filter": (
        (rf"({_FILTER}cannot evaluate CEL program: .*) evaluating expression: .*", rf"({_FILTER}.*)"),
        (
            rf'({_FILTER}expression ".*" must return a boolean, but will return )\S+ instead; .*',
            rf'({_FILTER}expression ".*" must return a boolean, but will return )\S+ instead',
        ),
        (
            rf"({_FILTER})cannot parse expression(: ERROR: .* undeclared reference to .*)",
            rf"({_FILTER})cannot type-check expression(: ERROR: .*)",
        ),
        (
            rf"({_FILTER}cannot parse expression: ERROR: <input>:\d+:\d+: Syntax error: ).*",
            rf"({_FILTER}cannot parse expression: ERROR: <input>:\d+:\d+: Syntax error: ).*",
        ),
    ),
    "patch-and-transform": (
        (
            r"cannot get Function input: the step has no input",
            r"invalid Function input: resources: Required value: resources is required",
        ),
    ),
}
_WORDS_ABOUT_TEMPLATES: Final[tuple[Words, ...]] = (
    (r'(".*" template is missing required ".*" annotation): document \d+ \(.*\)', r'(".*" template .* annotation)'),
    (r'document \d+ \(.*\): (duplicate extra resource key ".*")', r"(duplicate extra resource key .*)"),
    (
        r'invalid Function input: options\[\d+\]: Invalid value: "(.*)": must be missingkey=.*',
        r"cannot apply template options: panic occurred while applying template options: unrecognized option: (.*)",
    ),
    (
        r'(invalid function input: invalid ".*" annotation value ".*") in document \d+ \(.*\)(: must be True, .*)',
        r'(invalid function input: invalid ".*" annotation value ".*")(: must be True, .*)',
    ),
    (
        r"invalid Function input: inline\.template: Required value: .*",
        r"invalid function input: inline\.template or inline\.templates should be provided",
    ),
    (
        r"cannot decode manifest: document \d+ \(.*\): (Object '\w+' is missing)",
        r"cannot decode manifest: (Object '\w+' is missing) in '.*'",
    ),
    (r"cannot get Function input: the step has no input", r"invalid function input: source is required"),
    (
        r'invalid function input: cannot get the template: environment key "(.*)" is not in the environment',
        r"invalid function input: cannot read tmpl from the environment: key: (.*) does not exist",
    ),
    (
        r'invalid function input: cannot get the template: environment key ".*" is not in the environment',
        r"invalid function input: cannot read tmpl .*: apiextensions\.crossplane\.io/environment key does not exist .*",
    ),
    (
        r'cannot set ClaimCondition type: "(.*)" is a reserved condition type',
        r"cannot set ClaimCondition type: (.*) is a reserved Crossplane Condition",
    ),
    (
        r"invalid Function input: environment\.key: Required value: .*",
        r"invalid function input: environment\.key should be provided",
    ),
    (r'(invalid kind ".*" for apiVersion ".*" - must be one of ).*', r"(invalid kind .* - must be one of ).*"),
    (
        r"document \d+ \(.*, Context\): data must be an object",
        r"cannot get Contexts from input: cannot unmarshal value from JSON: .*: cannot unmarshal \w+ into Go value .*",
    ),
    (
        r'invalid Function input: source: Invalid value: "(.*)": must be Inline or Environment',
        r"invalid function input: invalid source: (.*)",
    ),
    (
        r"cannot decode manifest: error on line \d+ \(document \d+, line \d+\) near: '.*': (.*)",
        r"cannot decode manifest: error converting YAML to JSON: yaml: line \d+: (.*)",
    ),
    (
        r"cannot decode manifest: error on line \d+ \((document \d+), line \d+\) near: '.*': (.*)",
        r"cannot decode manifest: error converting YAML to JSON: yaml: line \d+ \((document \d+), line \d+\) near: "
        r"'.*': (.*)",
    ),
)
_NO_FILES: Final = (
    r'invalid Function input: source: Invalid value: "FileSystem": is not supported: .*',
    r"cannot get Function input: the step has no input",
)
_MISSING: Final = r'verifying and sorting extra resources: cannot find expected extra resource "(.*)"'
_RANDOM_NOTICE: Final = (
    "random values are not those that a control plane makes: these follow from the XR and the template alone"
)
_TYPE_OF_ENVIRONMENT: Final = {"apiVersion": "internal.crossplane.io/v1alpha1", "kind": "Environment"}
_TOO_EARLY: Final = re.compile(
    r"cannot merge environment data: .*|cannot get selected environment configs: .*"
    r'|verifying and sorting extra resources: (cannot find expected extra resource|Required extra resource) ".*'
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
RULES: Final[dict[str, Rule]] = {}


def rule(name: str) -> Callable[[Rule], Rule]:
    """Register the rule of an entry, for the functions that the entry lists."""

    def register(made: Rule) -> Rule:
        RULES[name] = made
        return made

    return register


def listed(function: str) -> Iterator[Object]:
    """The entries about a function."""
    return (entry for entry in IMPROVEMENTS if function in entry["function"].split(", "))


def compare(function: str, request: FunctionRequest, ours: FunctionResponse, theirs: Object) -> tuple[Case, set[str]]:
    """What is left of both answers, and the ids of the entries that they differed by."""
    case = Case(function, _request_json(request), plain(_as_json(ours)), plain(theirs))
    for answer in case.both():
        _drop_empty(answer)
    used: set[str] = set()
    about = {entry["id"] for entry in listed(function)}
    for name, apply in RULES.items():
        if case.ours == case.theirs:
            break
        if name not in about:
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


def _only_fatal(answer: Object) -> str | None:
    """The fatal message of an answer that has no other result."""
    return _fatal(answer) if len(answer.get("results", ())) == 1 else None


@rule("no-ttl")
def _no_ttl(case: Case) -> None:
    if "ttl" not in case.ours.get("meta", {}):
        case.theirs.get("meta", {}).pop("ttl", None)


@rule("told-mistakes")
def _told_mistakes(case: Case) -> None:
    patterns = _MISTAKES[case.function]
    told = [
        each
        for each in case.ours.get("results", ())
        if each["severity"] == "SEVERITY_WARNING" and any(re.fullmatch(known, each["message"]) for known in patterns)
    ]
    if told:
        case.ours["results"] = [each for each in case.ours["results"] if each not in told]


@rule("own-words")
def _own_words(case: Case) -> None:
    _take_words_away(case, _OWN_WORDS[case.function])


def _take_words_away(case: Case, words: Sequence[Words]) -> None:
    """Of messages that say the same at the same place, and of them only."""
    for member in ("results", "conditions"):
        for one, other in zip(case.ours.get(member, ()), case.theirs.get(member, ()), strict=False):
            texts = one.get("message", ""), other.get("message", "")
            if texts[0] != texts[1] and any(_say_the_same(pair, *texts) for pair in words):
                one["message"] = other["message"] = "..."


def _say_the_same(pair: Words, ours: str, theirs: str) -> bool:
    found = [re.fullmatch(each, text, re.DOTALL) for each, text in zip(pair, (ours, theirs), strict=True)]
    return found[0] is not None and found[1] is not None and found[0].groups() == found[1].groups()


@rule("no-files")
def _no_files(case: Case) -> None:
    """The upstream function also has a folder of its own, which counts where the input says nothing."""
    refusal = _only_fatal(case.ours) or ""
    source = (case.request["input"] or {}).get("source")
    if source == "FileSystem":
        refused = re.fullmatch(_NO_FILES[0], refusal)
    else:
        folder = "cannot read tmpl from the folder" in (_fatal(case.theirs) or "")
        refused = re.fullmatch(_NO_FILES[1], refusal) if not source and folder else None
    if refused:
        case.ours = case.theirs = {}


@rule("own-words-about-templates")
def _own_words_about_templates(case: Case) -> None:
    _take_words_away(case, _WORDS_ABOUT_TEMPLATES)


@rule("length-of-nothing")
def _length_of_nothing(case: Case) -> None:
    calling = r"(cannot execute template: .*: error calling len: )"
    _take_words_away(
        case, ((rf"{calling}len of nil pointer", rf"{calling}reflect: call of reflect\.Value\.Type on zero Value"),)
    )


@rule("sorted-keys")
def _sorted_keys(case: Case) -> None:
    """Of a member that is made of keys: the same words in both, in any order."""
    for member in _members_made_with(case, r"\| keys\b"):
        mine, yours = (_things(answer, member) for answer in case.both())
        if mine is not None and yours is not None and _words(mine[member]) == _words(yours[member]):
            del mine[member], yours[member]


@rule("steady-random-values")
def _steady_random_values(case: Case) -> None:
    """Where both chose from what a template says, and our notice about it."""
    text = _template_of(case)
    for member, choices in re.findall(r'(\w+): .*\brandomChoice((?: "\w+")+)', text):
        mine, yours = (answer.get("desired", {}).get("resources", {}) for answer in case.both())
        for name in mine.keys() & yours.keys():
            for one, other in zip(_holders(mine[name], member), _holders(yours[name], member), strict=False):
                if f'"{one[member]}"' in choices and f'"{other[member]}"' in choices:
                    one[member] = other[member]
        case.ours["results"] = [each for each in case.ours.get("results", ()) if each["message"] != _RANDOM_NOTICE]


def _holders(value: Any, member: str) -> Iterator[Object]:
    """The objects in a value that have a member."""
    if isinstance(value, dict):
        if member in value:
            yield value
        for each in value.values():
            yield from _holders(each, member)


def _words(value: Any) -> list[str]:
    return sorted(re.findall(r"\w+", json.dumps(value)))


def _template_of(case: Case) -> str:
    inline = (case.request["input"] or {}).get("inline")
    return str(inline.get("template", "")) if isinstance(inline, dict) else ""


def _members_made_with(case: Case, expression: str) -> list[str]:
    """Members of the spec of a generated resource whose line in the template holds an expression."""
    text = _template_of(case)
    return re.findall(rf"(?m)^  (\w+): .*{expression}", text)


def _things(answer: Object, member: str) -> Object | None:
    """The spec that has a member, of the only generated resource."""
    thing = answer.get("desired", {}).get("resources", {}).get("thing", {}).get("resource", {})
    spec = thing.get("spec") if isinstance(thing, dict) else None
    return spec if isinstance(spec, dict) and member in spec else None


@rule("printed-conditions")
def _printed_conditions(case: Case) -> None:
    members = _members_made_with(case, r"getResourceCondition[^|]*\| printf `%[^v]")
    failures = _only_fatal(case.ours), _only_fatal(case.theirs)
    if members and [bool(each and "cannot decode manifest" in each) for each in failures].count(True) == 1:
        case.ours = case.theirs = {}  # what is printed stands in YAML without quotes, and one of them is none
    for member in members:
        for answer in case.both():
            if (spec := _things(answer, member)) is not None:
                del spec[member]


@rule("no-empty-annotations")
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


@rule("asked-once")
def _asked_once(case: Case) -> None:
    case.theirs.get("requirements", {}).pop("extraResources", None)


@rule("typed-environment")
def _typed_environment(case: Case) -> None:
    mine, yours = (answer.get("context", {}).get(ENVIRONMENT_KEY) for answer in case.both())
    if yours is None and mine == _TYPE_OF_ENVIRONMENT:
        del case.ours["context"][ENVIRONMENT_KEY]
    elif isinstance(mine, dict) and isinstance(yours, dict) and "apiVersion" not in yours:
        mine.pop("apiVersion", None), mine.pop("kind", None)


@rule("unready-xr")
def _unready_xr(case: Case) -> None:
    waits = any("not adding new composed resource" in each["message"] for each in case.ours.get("results", ()))
    if waits and "ready" not in case.theirs.get("desired", {}).get("composite", {}):
        case.ours.get("desired", {}).get("composite", {}).pop("ready", None)


@rule("results-have-a-target")
def _results_have_a_target(case: Case) -> None:
    for one, other in zip(case.ours.get("results", ()), case.theirs.get("results", ()), strict=False):
        if "target" not in other:
            one.pop("target", None)


@rule("broken-pattern-is-fatal")
def _broken_pattern(case: Case) -> None:
    failure = case.theirs.get("rpcError")
    if (
        failure is not None
        and "error parsing regexp" in failure
        and "error parsing regexp" in (_fatal(case.ours) or "")
    ):
        case.ours = case.theirs = {}


@rule("replay-deletion")
def _replay_deletion(case: Case) -> None:
    for answer in case.both():
        for each in answer.get("desired", {}).get("resources", {}).values():
            spec = each.get("resource", {}).get("spec", {})
            if "replayDeletion" in spec and "replayDeletion" not in case.request["input"]:
                del spec["replayDeletion"]


@rule("waits-for-all")
def _waits_for_all(case: Case) -> None:
    """Something was given, not all of it, and upstream fails already where we say nothing yet."""
    given = case.request["required"]
    wanted = case.ours.get("requirements", {}).get("resources", {})
    is_early = bool(given) and any(name not in given for name in wanted)
    if is_early and not case.ours.get("results") and _TOO_EARLY.fullmatch(_only_fatal(case.theirs) or ""):
        del case.theirs["results"]


@rule("default-data-alone")
def _default_data_alone(case: Case) -> None:
    """What stands in our environment, from the default data, where upstream has nothing."""
    default = case.request["input"].get("spec", {}).get("defaultData") or {}
    mine, yours = (answer.get("context", {}).get(ENVIRONMENT_KEY) for answer in case.both())
    if case.ours.get("requirements") or not isinstance(mine, dict):
        return
    for key in default:
        if key not in (yours or {}) and mine.get(key) == default[key]:
            del mine[key]
    if yours is None and mine in ({}, _TYPE_OF_ENVIRONMENT):
        del case.ours["context"][ENVIRONMENT_KEY]


@rule("selector-without-labels")
def _selector_without_labels(case: Case) -> None:
    """A name that nothing is asked for has an empty list here; upstream has no such name, or fails over it."""
    spec = case.request["input"].get("spec", {})
    asked = set(case.ours.get("requirements", {}).get("resources", {}))
    left = {
        entry["into"]
        for entry in spec.get("extraResources") or ()
        if entry.get("type") == "Selector" and entry.get("into", "") not in asked
    }
    key = (spec.get("context") or {}).get("key") or EXTRA_RESOURCES_KEY
    found = case.ours.get("context", {}).get(key)
    if not left or not isinstance(found, dict) or any(found.get(name) != [] for name in left):
        return
    missing = re.fullmatch(_MISSING, _only_fatal(case.theirs) or "")
    if missing is not None and missing[1] in left:
        del case.theirs["results"]
        del case.ours["context"][key]
    elif not case.request["required"] and key not in case.theirs.get("context", {}) and set(found) == left:
        del case.ours["context"][key]


@rule("wrong-tag-types")
def _wrong_tag_types(case: Case) -> None:
    """A value that is no text, in the XR or on the resource itself, and what upstream makes of it."""
    for mine, yours, _ in _tagged(case):
        for key in {**mine, **yours}:
            if yours.get(key) == "" and (key not in mine or not isinstance(mine[key], str)):
                mine.pop(key, None)
                del yours[key]


@rule("no-null-tags")
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


@rule("asks-for-schemas")
def _asks_for_schemas(case: Case) -> None:
    case.ours.get("requirements", {}).pop("schemas", None)


@rule("one-condition-each")
def _one_condition_each(case: Case) -> None:
    """The last of each type counts, in any order."""
    for answer in case.both():
        if "conditions" in answer:
            last = {each["type"]: each for each in answer["conditions"]}
            if len(last) < len(answer["conditions"]):
                case.ours["conditions"] = sorted(case.ours["conditions"], key=lambda each: str(each["type"]))
                answer["conditions"] = sorted(last.values(), key=lambda each: str(each["type"]))


@rule("all-failures-told")
def _all_failures_told(case: Case) -> None:
    for one, other in zip(case.ours.get("conditions", ()), case.theirs.get("conditions", ()), strict=False):
        if one["type"] == other["type"] == "StatusTransformationSuccess":
            mine, yours = one.get("message", ""), other.get("message", "")
            if mine != yours and mine.endswith(f"; {yours}"):
                one["message"] = yours
