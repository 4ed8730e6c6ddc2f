"""JSONPath: what it finds, what it refuses, and templates around it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planform.apimachinery.jsonpath import JsonPathError, JsonPathTemplate, compile_jsonpath

DOC: dict[str, Any] = {
    "metadata": {"name": "web", "annotations": {"example.org/zone": "eu", "a.b": "dotted"}, "labels": None},
    "spec": {
        "replicas": 3,
        "on": True,
        "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}, {"port": 9}],
        "rows": [[1, 2], [3]],
    },
    "status": {
        "conditions": [
            {"type": "Synced", "status": "True", "count": 1},
            {"type": "Ready", "status": "False", "count": 2, "same": "Ready", "ok": True},
        ]
    },
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".metadata.name", ["web"]),
        ("metadata.name", ["web"]),
        ("$.metadata.name", ["web"]),
        ("{.metadata.name}", ["web"]),
        ("{$.metadata.name}", ["web"]),
        ("@.metadata.name", ["web"]),
        (".metadata.labels", [None]),
        (".metadata.labels.x", []),
        (".missing.name", []),
        (".metadata.name.x", []),
        (r".metadata.annotations.example\.org/zone", ["eu"]),
        (r"metadata.annotations.a\.b", ["dotted"]),
        (".metadata.annotations['a.b']", ["dotted"]),
        ('.metadata.annotations["example.org/zone"]', ["eu"]),
        ("['metadata']['name']", ["web"]),
        (".spec.ports[0].port", [80]),
        (".spec.ports[-1].port", [9]),
        (".spec.ports[3]", []),
        (".spec.ports[-4]", []),
        (".spec.ports[*].port", [80, 443, 9]),
        (".spec.ports[*].name", ["http", "https"]),
        (".spec.ports[0,2].port", [80, 9]),
        (".spec.ports[0:2].port", [80, 443]),
        (".spec.ports[1:].port", [443, 9]),
        (".spec.ports[-1:].port", [9]),
        (".spec.ports[:1].port", [80]),
        (".spec.ports[0:3:2].port", [80, 9]),
        (".metadata['name','missing']", ["web"]),
        (".spec.rows[*][0]", [1, 3]),
        (".spec.rows[*][*]", [1, 2, 3]),
        (".metadata.annotations.*", ["eu", "dotted"]),
        ("..port", [80, 443, 9]),
        (".spec..name", ["http", "https"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["False"]),
        (".status.conditions[?(@.type=='Ready')].status", ["False"]),
        ('.status.conditions[?( @.type == "Ready" )].status', ["False"]),
        ('.status.conditions[?(@.type!="Ready")].status', ["True"]),
        (".status.conditions[?(@.count>1)].type", ["Ready"]),
        (".status.conditions[?(@.count>=1)].type", ["Synced", "Ready"]),
        (".status.conditions[?(@.count<2)].type", ["Synced"]),
        (".status.conditions[?(@.count<=1.5)].type", ["Synced"]),
        (".status.conditions[?(@.ok)].type", ["Ready"]),
        (".status.conditions[?(@.ok==true)].type", ["Ready"]),
        (".status.conditions[?(@.count==true)].type", []),
        (".status.conditions[?(@.type==@.same)].type", ["Ready"]),
        (".status.conditions[?(@.status>1)].type", []),
        (".spec.rows[?(@[0]==3)]", [[3]]),
        ("..[?(@.port==80)].name", ["http"]),
        (".spec.replicas[?(@.x==1)]", []),
        (".", [DOC]),
        ("$", [DOC]),
    ],
)
def test_a_path_finds_what_kubectl_finds(path: str, expected: list[Any]) -> None:
    assert compile_jsonpath(path)(DOC) == expected


@pytest.mark.parametrize(
    "path",
    [
        ".a[",
        ".a[]",
        ".a[0",
        ".a[x]",
        ".a['x]",
        ".a[?(@.b==]",
        ".a[?@.b]",
        '.a[?(@.b=="x"]',
        ".a[?(b)]",
        ".a[?(@.b==x)]",
        ".a[::0]",
        ".a[1:2:-1]",
        ".a.",
        ".a b",
        ".a{b}",
        ".a|b",
        "." + "a" * 5000,
        ".a[?(@.a" * 500,
    ],
)
def test_a_mistake_is_found_when_the_path_is_compiled(path: str) -> None:
    with pytest.raises(JsonPathError):
        compile_jsonpath(path)


def test_an_error_names_the_path_and_the_place() -> None:
    with pytest.raises(JsonPathError) as caught:
        compile_jsonpath(".a[x]")
    assert str(caught.value) == (
        "cannot parse JSONPath '.a[x]': an index, a slice, a quoted name or '*' is missing at position 3"
    )


def test_a_path_that_multiplies_what_it_finds_is_stopped() -> None:
    doc: Any = 1
    for _ in range(100):
        doc = {"a": doc}
    with pytest.raises(JsonPathError, match="more than 100000 values"):
        compile_jsonpath("..[*]..[*]..[*]..[*]")(doc)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r'{.metadata.name}{"\n"}', "web\n"),
        (r"{.metadata.name}{'\t'}{.spec.replicas}", "web\t3"),
        ("name: {.metadata.name}, on: {.spec.on}", "name: web, on: true"),
        ("{.spec.ports[*].port}", "80 443 9"),
        ("{.spec.rows[0]}", "[1,2]"),
        ("{.metadata.annotations}", '{"example.org/zone":"eu","a.b":"dotted"}'),
        ("{.missing}|", "|"),
        ("{.metadata.labels}", "<nil>"),
        ("plain", "plain"),
        ("{ .metadata.name }", "web"),
        ("{range .spec.ports[*]}<{.port}>{end}!", "<80><443><9>!"),
        ("{range .spec.ports[*]}{range .name}{@}{end},{end}", "http,https,,"),
        (r'{"{}\u00e9\\"}', "{}é\\"),
        ('{.status.conditions[?(@.type=="}")].status}', ""),
        ("", ""),
    ],
)
def test_a_template_prints_what_its_paths_find(text: str, expected: str) -> None:
    assert JsonPathTemplate(text).render(DOC) == expected


@pytest.mark.parametrize("text", ["{.a", "a}", "{range .items[*]}{.a}", "{end}", "{range }{end}", "{.a[}", '{"a"b}'])
def test_a_bad_template_is_refused(text: str) -> None:
    with pytest.raises(JsonPathError):
        JsonPathTemplate(text)


@given(st.text(alphabet=".a*[]0:,?(@)='$\\ ", max_size=12))
def test_any_text_is_a_path_or_a_path_error(text: str) -> None:
    try:
        find = compile_jsonpath(text)
    except JsonPathError:
        return
    assert isinstance(find({"a": [{"a": 1}, [0]]}), list)
