"""go-templating: what templates see, what they can call, and what becomes of what they render."""

from __future__ import annotations

import asyncio
import json
import time
from copy import deepcopy
from typing import Any

import pytest

from planform.builtin.go_templating import FULL, MAX_IN_PROCESS, function
from planform.functions.values import (
    Condition,
    FunctionRequest,
    FunctionResponse,
    Object,
    Ready,
    Resource,
    ResourceSelector,
    Severity,
    State,
    Status,
    Target,
)

XR: Object = {
    "apiVersion": "example.org/v1",
    "kind": "XApp",
    "metadata": {"name": "shop", "uid": "1234"},
    "spec": {"count": 2, "region": "eu"},
}
ENVIRONMENT = "apiextensions.crossplane.io/environment"
EXTRA = "apiextensions.crossplane.io/extra-resources"
NAMED = 'metadata: {annotations: {gotemplating.fn.crossplane.io/composition-resource-name: "%s"}}'


def entered(template: str | None = None, **more: Any) -> Object:
    given = {"source": "Inline", "inline": {"template": template}} if template is not None else {}
    return {"apiVersion": "gotemplating.fn.crossplane.io/v1beta1", "kind": "GoTemplate", **given, **more}


def request(template: str | Object, *, observed: dict[str, Object] | None = None, **more: Any) -> FunctionRequest:
    resources = {name: Resource(each) for name, each in (observed or {}).items()}
    return FunctionRequest(
        observed=State(Resource(XR), resources),
        input=template if isinstance(template, dict) else entered(template),
        tag="tag",
        **more,
    )


def run(asked: FunctionRequest) -> FunctionResponse:
    """The answer, which must be the one that a worker gives, and leave the request as it was."""
    before = deepcopy(asked)
    answer = asyncio.run(function.run(asked, timeout=20))
    assert asked == before
    assert answer == function.call(asked)
    assert answer.tag == "tag"
    if answer.fatal is not None:
        assert answer.desired == asked.desired
        assert answer.context == asked.context
    return answer


def rendered(template: str | Object, **more: Any) -> FunctionResponse:
    answer = run(request(template, **more))
    assert answer.fatal is None, answer.fatal
    return answer


def value(expression: str, **more: Any) -> Any:
    """What an expression prints, read as YAML."""
    text = f"apiVersion: v1\nkind: Note\n{NAMED % 'note'}\nvalue: {expression}\n"
    return rendered(text, **more).desired.resources["note"].resource["value"]


def fatal(template: str | Object, **more: Any) -> str:
    answer = run(request(template, **more))
    assert answer.fatal is not None
    return answer.fatal.message


# -- the input


def test_a_resource_is_composed_under_the_name_in_its_annotation() -> None:
    answer = rendered(
        """
        apiVersion: v1
        kind: Bucket
        metadata:
          name: {{ .observed.composite.resource.metadata.name }}-data
          labels: {a: b}
          annotations:
            {{ setResourceNameAnnotation "bucket" }}
            gotemplating.fn.crossplane.io/ready: "True"
        """
    )
    bucket = answer.desired.resources["bucket"]
    assert bucket.ready is Ready.TRUE
    assert bucket.resource == {
        "apiVersion": "v1",
        "kind": "Bucket",
        "metadata": {"name": "shop-data", "labels": {"a": "b"}},
    }


@pytest.mark.parametrize(
    "more",
    [
        {"inline": "kind: A\n" + NAMED % "a"},
        {"inline": {"template": "kind: A\n" + NAMED % "a"}},
        {"inline": {"templates": ["kind: A\n" + NAMED % "a"]}},
        {"inline": {"template": "kind: A\n" + NAMED % "a", "templates": ["kind: B\n" + NAMED % "b"]}},
        {"inline": "kind: A\n" + NAMED % "a", "apiVersion": "example.org/v1"},
        {"source": "Environment", "environment": {"key": "text"}},
    ],
    ids=["string", "template", "templates", "template before templates", "as the design writes it", "environment"],
)
def test_templates_can_be_given_in_several_ways(more: Object) -> None:
    context = {ENVIRONMENT: {"text": "kind: A\n" + NAMED % "a"}}
    answer = rendered({**entered(), "source": "Inline", **more}, context=context)
    assert list(answer.desired.resources) == ["a"]


def test_a_list_of_templates_is_one_text_with_separators() -> None:
    templates = ["kind: A\n" + NAMED % "a", "kind: B\n" + NAMED % "b"]
    assert list(rendered(entered(source="Inline", inline={"templates": templates})).desired.resources) == ["a", "b"]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "source is required"),
        ({"source": "Inline"}, "inline.template: Required value"),
        ({"source": "Inline", "inline": {}}, "inline.template: Required value"),
        ({"source": "Remote", "remote": "git://x"}, '"Remote": is not supported: a pipeline does not fetch'),
        ({"source": "FileSystem", "fileSystem": {"dirPath": "/"}}, '"FileSystem": is not supported: a built-in'),
        ({"source": "Elsewhere"}, "must be Inline or Environment"),
        ({"source": "Environment"}, "environment.key: Required value"),
        ({"source": "Environment", "environment": {"key": "gone"}}, 'key "gone" is not in the environment'),
        ({"source": "Environment", "environment": {"key": "five"}}, 'key "five" is not a string'),
        ({"source": "Inline", "inline": "a", "options": ["missingkey=never"]}, "options[0]: Invalid value"),
        ({"source": "Inline", "inline": {"template": "a", "options": []}}, 'object contains unknown field "options"'),
    ],
)
def test_an_input_that_makes_no_sense_is_refused(given: Object, problem: str) -> None:
    assert problem in fatal({**entered(), **given}, context={ENVIRONMENT: {"five": 5}})


def test_a_step_without_input_is_refused() -> None:
    answer = run(FunctionRequest(tag="tag"))
    assert answer.fatal is not None and "the step has no input" in answer.fatal.message


def test_delimiters_count_only_as_a_pair() -> None:
    note = "kind: Note\n" + NAMED % "note" + "\nvalue: "
    both = entered(note + "'[[ 1 ]]{{ 2 }}'", delims={"left": "[[", "right": "]]"})
    assert rendered(both).desired.resources["note"].resource["value"] == "1{{ 2 }}"
    one = entered(note + "{{ 2 }}", delims={"left": "[["})
    assert rendered(one).desired.resources["note"].resource["value"] == 2


def test_a_missing_key_is_what_the_option_says() -> None:
    assert value("'{{ .nope }}'") == "<no value>"
    strict = entered("{{ .nope }}", options=["missingkey=error"])
    assert 'map has no entry for key "nope"' in fatal(strict)


@pytest.mark.parametrize(
    ("ttl", "annotation", "expected"),
    [("", None, None), ("90s", None, 90), ("90s", "2m", 120), ("soon", None, None), ("90s", "soon", 90)],
)
def test_the_answer_may_be_kept_as_long_as_input_or_xr_say(
    ttl: str, annotation: str | None, expected: float | None
) -> None:
    asked = request(entered("", ttl=ttl, inline="#"))
    if annotation:
        metadata = {"annotations": {"gotemplating.fn.crossplane.io/ttl": annotation}}
        asked.observed.composite = Resource({**XR, "metadata": metadata})
    assert run(asked).ttl == expected


# -- what templates see


def test_the_request_is_seen_as_protobuf_json_without_what_is_empty() -> None:
    assert value("{{ toJson .observed.composite }}") == {"resource": XR}
    assert value("'{{ .observed.resources }}{{ .desired.resources }}'") == "<no value><no value>"
    assert "index of untyped nil" in fatal('{{ index .observed.resources "x" }}')
    assert value("{{ .meta.tag }}") == "tag"
    desired = State(resources={"a": Resource({"kind": "A"}, {"k": b"v"}, Ready.TRUE)})
    assert value("{{ toJson .desired.resources.a }}", desired=desired) == {
        "resource": {"kind": "A"},
        "connectionDetails": {"k": "dg=="},
        "ready": "READY_TRUE",
    }


def test_extra_resources_are_those_that_were_required() -> None:
    found = {"vpcs": [Resource({"kind": "VPC", "id": 1})]}
    assert value("{{ (index .extraResources.vpcs.items 0).resource.id }}", required_resources=found) == 1
    assert value("{{ (index .requiredResources.vpcs.items 0).resource.id }}", required_resources=found) == 1


def test_a_template_cannot_change_the_request_nor_reach_python() -> None:
    changing = '{{ $_ := set .observed.composite.resource "spec" 1 }}{{ .observed.composite.resource.spec }}'
    assert value(changing) == 1
    assert "can't evaluate field upper in type" in fatal("{{ .observed.composite.resource.kind.upper }}")


# -- what templates can call

WEB = {
    "metadata": {"annotations": {"crossplane.io/external-name": "web-1"}},
    "spec": {"color": "red"},
    "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Up", "message": "fine"}]},
}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("{{ (getCompositeResource .).spec.region }}", "eu"),
        ('{{ (getComposedResource . "web").spec.color }}', "red"),
        ('{{ ("web" | getComposedResource).spec.color }}', "red"),
        ('{{ if getComposedResource . "nope" }}yes it is{{ else }}nope{{ end }}', "nope"),
        ('{{ len (getComposedResource . "nope") }}', 0),
        ('"{{ (getComposedResource . "nope").spec }}"', "<no value>"),
        ('{{ (getComposedConnectionDetails . "web").key | b64dec }}', "secret"),
        ('{{ (index (getExtraResources . "vpcs") 0).resource.id }}', 7),
        ('{{ len (getExtraResources . "nope") }}', 0),
        ('{{ (index (getExtraResourcesFromContext . "ours") 0).resource.id }}', 1),
        ('{{ (index (getExtraResourcesFromContext . "theirs") 0).resource.id }}', 2),
        ('{{ len (getExtraResourcesFromContext . "nope") }}', 0),
        ('{{ (getCredentialData . "aws").token | toString }}', "t0ken"),
        ('{{ (getResourceCondition "Ready" (getComposedResource . "web")).Status | quote }}', "True"),
        ('{{ (getResourceCondition "Ready" .observed.resources.web).Reason }}', "Up"),
        ('{{ (getResourceCondition "Synced" .observed.resources.web).Status }}', "Unknown"),
        ('{{ (getResourceCondition "Ready" (getComposedResource . "nope")).Status }}', "Unknown"),
        ('{{ (getComposedResource . "web") | getExternalName }}', "web-1"),
        ("'{{ getCompositeResource . | getExternalName }}'", ""),
        ('{{ define "t" }}x{{ . }}{{ end }}{{ include "t" 1 | upper }}', "X1"),
        ('{{ (fromYaml "a: [1, yes]").a | toJson }}', [1, "yes"]),
        ('{{ (fromYaml "a: 0o17").a | printf "%T" }}', "int"),
        ('{{ (fromYaml "a: 1e3").a | printf "%T" }}', "float64"),
        ('{{ "{\\"a\\": 1}" | fromJson | toJson }}', {"a": 1}),
    ],
)
def test_functions_find_things(expression: str, expected: Any) -> None:
    asked: dict[str, Any] = {
        "observed": {"web": WEB},
        "context": {EXTRA: {"ours": [{"id": 1}], "theirs": {"items": [{"resource": {"id": 2}}]}}},
        "credentials": {"aws": {"token": b"t0ken"}},
        "required_resources": {"vpcs": [Resource({"id": 7})]},
    }
    text = f"apiVersion: v1\nkind: Note\n{NAMED % 'note'}\nvalue: {expression}\n"
    made = request(text, **asked)
    made.observed.resources["web"].connection_details = {"key": b"secret"}
    answer = run(made)
    assert answer.fatal is None, answer.fatal
    assert answer.desired.resources["note"].resource["value"] == expected


def test_to_yaml_is_written_as_the_go_function_writes_it() -> None:
    given: Object = {
        "b": [1, {"x": "yes", "y": 1.5}],
        "a": "t: x",
        "c": {},
        "d": "2\nlines",
        "e": [],
        "f": "1e3",
        "g": None,
    }
    asked = request(
        "kind: Note\n" + NAMED % "note" + "\nvalue: {{ toYaml .observed.composite.resource.spec | toJson }}"
    )
    asked.observed.composite = Resource({**XR, "spec": given})
    assert run(asked).desired.resources["note"].resource["value"] == (
        'a: \'t: x\'\nb:\n    - 1\n    - x: "yes"\n      "y": 1.5\nc: {}\nd: |-\n    2\n    lines\n'
        'e: []\nf: "1e3"\ng: null\n'
    )


def test_from_yaml_refuses_what_is_given_twice() -> None:
    assert 'mapping key "a" already defined' in fatal('{{ fromYaml "a: 1\\na: 2" }}')


def test_a_random_choice_stays_what_it_was_for_the_same_xr() -> None:
    template = '[{{ range until 20 }}{{ randomChoice "red" "green" "blue" }}, {{ end }}{{ randAlphaNum 8 }}]'
    assert value(template) == value(template)
    assert {"red", "green", "blue"} <= set(value(template))
    other = request("kind: Note\n" + NAMED % "note" + "\nvalue: " + template)
    other.observed.composite = Resource({**XR, "metadata": {"name": "other"}})
    assert run(other).desired.resources["note"].resource["value"] != value(template)
    assert "nothing to choose from" in fatal("{{ randomChoice }}")


def test_an_answer_stays_valid_unless_the_template_asked_for_the_time() -> None:
    asked = request("kind: Note\n" + NAMED % "note" + '\nvalue: {{ now | date "2006" | quote }}')
    answer = asyncio.run(function.run(asked, timeout=20))
    assert (answer.deterministic, answer.ttl) == (False, 60)
    assert answer.desired.resources["note"].resource["value"] >= "2024"
    assert (rendered("# {{ randAlpha 5 }}").deterministic, rendered("# text").ttl) == (True, None)


# -- what becomes of what they render


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("value: |\n  a\n  ---\n  b\n", "a\n---\nb\n"),
        ("value: a\r", "a"),
        ("value: a\n---\n", "a"),
        ("value: 12:30", "12:30"),
        ("value: y", True),
        ("value: 2020-01-01", "2020-01-01"),
        ("value: 1e3", 1000),
        ("value: 0777", 511),
        ("value: 1\nvalue: 2", 2),
        ("value: x # with a comment\n--- # and another\n# alone", "x"),
    ],
)
def test_output_is_read_as_kubernetes_reads_it(text: str, expected: Any) -> None:
    note = f"kind: Note\n{NAMED % 'note'}\n"
    assert rendered(note + text).desired.resources["note"].resource["value"] == expected


@pytest.mark.parametrize("text", ["{{/* a comment */}}", "\n\n", "# only a comment", "---\n---\n", "null"])
def test_output_without_objects_changes_nothing(text: str) -> None:
    desired = State(Resource({"status": {"a": 1}}, ready=Ready.TRUE), {"a": Resource({"kind": "A"})})
    answer = rendered(entered(source="Inline", inline=text), desired=desired)
    assert answer.desired == desired


def test_json_objects_may_follow_each_other() -> None:
    one = (
        '{"kind": "A", "metadata": {"annotations": {"gotemplating.fn.crossplane.io/composition-resource-name": "%s"}}}'
    )
    assert list(rendered(one % "a" + "\n" + one % "b").desired.resources) == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "kind: A\n" + NAMED % "a" + "\n---\nkind: B\n  bad: indent",
            "cannot decode manifest: error on line 5 (document 2, line 2) near: 'bad: indent': ",
        ),
        ("a: b", "document 1 (line 1): Object 'Kind' is missing"),
        ("kind: A\n" + NAMED % "a" + "\n---\n- 1", "document 2 (line 4) is no object"),
        ("kind: A\nmetadata: {annotations: {m: 5}}", 'annotation "m" of A must be a string: put 5 in quotes'),
        ("kind: A\nmetadata: {annotations: [1]}", "metadata.annotations of A must be an object"),
        ("kind: A", '"A" template is missing required "gotemplating.fn.crossplane.io/composition-resource-name"'),
        (
            "kind: A\nmetadata: {annotations: {gotemplating.fn.crossplane.io/ready: 'true'}}",
            'annotation value "true" in document 1 (line 1, A): must be True, False, or Unspecified',
        ),
        ("{{ upper", "cannot parse the provided templates: template: manifests:1: unclosed action"),
        ("\n\n {{ .a | upper }}", 'cannot execute template: template: manifests:3:9: executing "manifests" at <upper>'),
        ('{{ fail "no luck" }}', "error calling fail: no luck"),
        ("{{ env `HOME` }}", "error calling env: it is refused: "),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, problem: str) -> None:
    assert problem in fatal(text)


def test_a_resource_replaces_an_earlier_one_whole() -> None:
    desired = State(resources={"a": Resource({"kind": "A", "spec": 1}, {"k": b"v"}, Ready.TRUE), "b": Resource({})})
    answer = rendered("kind: A\n" + NAMED % "a", desired=desired)
    assert answer.desired.resources == {"a": Resource({"kind": "A", "metadata": {}}), "b": Resource({})}


def test_objects_of_the_xrs_kind_merge_their_status_and_nothing_else() -> None:
    template = """
apiVersion: example.org/v1
kind: XApp
metadata: {name: other}
spec: {ignored: true}
status: {a: {x: 1}, list: [1]}
---
apiVersion: example.org/v1
kind: XApp
status: {a: {z: 2}, list: [2]}
---
apiVersion: example.org/v1
kind: XApp
status: null
"""
    desired = State(Resource({"status": {"before": True, "list": [0]}}, ready=Ready.TRUE))
    answer = rendered(template, desired=desired)
    assert answer.desired.composite == Resource(
        {
            "status": {"before": True, "a": {"x": 1, "z": 2}, "list": [2]},
        },
        ready=Ready.TRUE,
    )


def test_the_xrs_readiness_can_be_said() -> None:
    ready = "metadata: {annotations: {gotemplating.fn.crossplane.io/ready: 'False'}}"
    assert rendered(f"apiVersion: example.org/v1\nkind: XApp\n{ready}").desired.composite.ready is Ready.FALSE


def test_an_object_of_the_xrs_kind_with_a_name_is_composed() -> None:
    answer = rendered("apiVersion: example.org/v1\nkind: XApp\n" + NAMED % "inner")
    assert list(answer.desired.resources) == ["inner"]
    assert answer.desired.composite == Resource({})


def meta(kind: str, rest: str) -> str:
    return f"apiVersion: meta.gotemplating.fn.crossplane.io/v1alpha1\nkind: {kind}\n{rest}\n---\n"


def test_connection_details_are_decoded_and_bad_ones_told() -> None:
    answer = rendered(meta("CompositeConnectionDetails", "data: {user: YWRh, bad: '?'}"))
    assert answer.desired.composite.connection_details == {"user": b"ada"}
    assert [(each.severity, each.message) for each in answer.results] == [
        (
            Severity.WARNING,
            'connection detail "bad" of document 1 (line 1, CompositeConnectionDetails) is left out:'
            " its value must be base64",
        )
    ]


def test_conditions_are_set_but_for_those_of_the_system() -> None:
    entries = "[{type: A, status: 'True', reason: R, message: m, target: CompositeAndClaim}, {type: B, status: maybe}]"
    assert rendered(meta("ClaimConditions", f"conditions: {entries}")).conditions == [
        Condition("A", Status.TRUE, "R", "m", Target.COMPOSITE_AND_CLAIM),
        Condition("B", Status.UNKNOWN, "", "", Target.COMPOSITE),
    ]
    assert '"Ready" is a reserved condition type' in fatal(meta("ClaimConditions", "conditions: [{type: Ready}]"))
    lenient = rendered(meta("ClaimConditions", "conditions: [{type: A, target: Claim, why: b}]"))
    assert [each.target for each in lenient.conditions] == [Target.COMPOSITE]
    assert "is not CompositeAndClaim, and counts as Composite" in lenient.results[0].message


def test_the_context_is_merged_key_by_key() -> None:
    template = meta("Context", f"data: {{{ENVIRONMENT}: {{a: {{x: 1}}}}, mine: 1}}") + meta(
        "Context", f"data: {{{ENVIRONMENT}: {{a: {{w: 2}}}}, mine: 2}}"
    )
    answer = rendered(template, context={ENVIRONMENT: {"a": {"z": 0}}, "other": True})
    assert answer.context == {ENVIRONMENT: {"a": {"x": 1, "w": 2, "z": 0}}, "mine": 2, "other": True}


def test_resources_can_be_required_by_name_or_labels_in_a_namespace_or_all() -> None:
    wanted = """requirements:
  one: {apiVersion: v1, kind: A, matchName: a}
  some: {apiVersion: v1, kind: A, matchLabels: {x: z}, namespace: here}
  all: {apiVersion: v1, kind: A}"""
    answer = rendered(meta("ExtraResources", wanted))
    assert answer.requirements.resources == {
        "one": ResourceSelector("v1", "A", "a"),
        "some": ResourceSelector("v1", "A", match_labels={"x": "z"}, namespace="here"),
        "all": ResourceSelector("v1", "A", match_labels={}),
    }
    assert 'duplicate extra resource key "one"' in fatal(meta("ExtraResources", wanted) * 2)
    lenient = rendered(meta("ExtraResources", "requirements: {a: {kind: A}}"))
    assert "requirements.a: apiVersion or kind is missing" in lenient.results[0].message


def test_required_resources_are_left_in_the_context_for_later_steps() -> None:
    found = {"a": [Resource({"id": 1})], "b": list[Resource]()}
    answer = rendered("# nothing", required_resources=found, context={EXTRA: {"c": [{"id": 3}]}})
    assert answer.context == {EXTRA: {"a": {"items": [{"resource": {"id": 1}}]}, "b": {}, "c": [{"id": 3}]}}


@pytest.mark.parametrize(
    ("kind", "rest", "problem"),
    [
        ("Helm", "", 'invalid kind "Helm"'),
        ("Context", "data: [1]", "data must be an object"),
        ("ClaimConditions", "conditions: {}", "conditions must be a list"),
    ],
)
def test_special_kinds_that_do_not_exist_or_fit_are_refused(kind: str, rest: str, problem: str) -> None:
    assert problem in fatal(meta(kind, rest))


# -- bounds


@pytest.mark.parametrize(
    ("bomb", "problem"),
    [
        ("{{ range until 100000000 }}{{ . }}{{ end }}", "list is longer than"),
        ('{{ define "a" }}{{ include "a" . }}{{ end }}{{ include "a" . }}', "maximum template depth"),
        ('{{ repeat 1000000000 "a" }}', f"string is longer than {FULL.output} characters"),
        ("{{ range 1000000 }}{{ range 1000000 }}{{ end }}{{ end }}", f"more than {FULL.steps} steps"),
    ],
)
def test_bombs_end_with_a_fatal_result_in_bounded_time(bomb: str, problem: str) -> None:
    assert problem in fatal(bomb)


def test_a_long_render_leaves_the_loop_to_others() -> None:
    template = "{{ range 300000 }}{{ end }}kind: A\n" + NAMED % "a"

    async def with_a_clock_beside() -> tuple[FunctionResponse, float]:
        running = asyncio.create_task(function.run(request(template), timeout=20))
        longest, last = 0.0, time.perf_counter()
        while not running.done():
            await asyncio.sleep(0.001)
            longest, last = max(longest, time.perf_counter() - last), time.perf_counter()
        return running.result(), longest

    asyncio.run(function.run(request("{{ range 300000 }}{{ end }}"), timeout=20))  # a worker is there
    answer, longest = asyncio.run(with_a_clock_beside())
    assert list(answer.desired.resources) == ["a"]
    assert answer == function.call(request(template))
    assert longest < 0.25


def test_a_very_long_template_gives_what_a_short_one_gives() -> None:
    long = "kind: A\n" + NAMED % "a" + "{{/* " + "x" * MAX_IN_PROCESS + " */}}"
    assert list(rendered(long).desired.resources) == ["a"]


def test_what_takes_too_long_is_stopped_in_time() -> None:
    asked = request("{{ range 1900000 }}{{ end }}")
    answer = asyncio.run(function.run(asked, timeout=0.05))
    assert answer.fatal is not None
    assert answer.fatal.message == "cannot execute template: it took longer than 0.05 s and was stopped"
    assert asyncio.run(function.run(request("{{ range 10000 }}{{ end }}"), timeout=20)).fatal is None


def test_a_cancelled_call_does_not_harm_the_next() -> None:
    async def cancel_one() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await function.run(request("{{ range 1900000 }}{{ end }}"), timeout=20)
        assert (await function.run(request("{{ range 10000 }}{{ end }}"), timeout=20)).fatal is None

    asyncio.run(cancel_one())


# -- the design

PRINTED = """
{{- range $i := until ( . desired.composite.resource.spec.count ) }}
color: {{ randomChoice "red" "green" "blue }}
{{- end }}
"""


def test_the_template_of_the_design_is_refused_at_each_of_its_mistakes() -> None:
    assert 'manifests:2: function "desired" not defined' in fatal({**entered(PRINTED), "apiVersion": "example.org/v1"})
    joined = PRINTED.replace(". desired.composite", ".observed.composite")
    assert "manifests:3: unterminated quoted string" in fatal(joined)
    ended = joined.replace('"blue }}', '"blue" }}')
    assert "expected int; got int64" in fatal(ended)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a:\tb", "string b"),
        ("a: [1,\t2]", "[]interface {} [1 2]"),
        ("a: !Ref bar", "string bar"),
        ("a: !Sub {x: 1}", "map[string]interface {} map[x:1]"),
        ("a: .inf", "float64 +Inf"),
        ("a: -.INF", "float64 -Inf"),
        ("a: 9223372036854775808", "uint64 9223372036854775808"),
        ("a: 18446744073709551616", "float64 1.8446744073709552e+19"),
        ("a: 0x7fffffffffffffff1", "string 0x7fffffffffffffff1"),
        ("a: !!str 5", "string 5"),
        ("a: !!int '5'", "int 5"),
        ("a: !!binary aGk=", "string hi"),
        ("x: &x {a: 1, b: 2}\n<<: *x\nb: 3", "int 1"),
    ],
)
def test_yaml_is_read_as_go_reads_it(text: str, shown: str) -> None:
    value = f"{{{{ $v := (fromYaml {json.dumps(text)}).a }}}}"
    template = f"{value}kind: A\n{NAMED % 'a'}\nv: {{{{ printf `%T %v` $v $v | toJson }}}}"
    assert rendered(template).desired.resources["a"].resource["v"] == shown
