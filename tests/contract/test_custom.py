"""Section 14: how objects of custom kinds are pruned, defaulted, validated and converted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.engines import Engine, Object, case
from tests.contract.kinds import CRDS, GROUP, TEXT, at, crd, establish, version, widget


def spec_of(engine: Engine, ns: str, spec: Object) -> Any:
    """What becomes of a widget's spec."""
    return engine.post(at("widgets", ns), widget(engine.fresh("w"), spec)).ok(201)["spec"]


def refuse(engine: Engine, ns: str, spec: Object, *texts: str) -> Any:
    return engine.post(at("widgets", ns), widget("w", spec)).refused(422, "Invalid", *texts)


@case("14-pruning")
def test_unknown_fields_are_pruned_at_every_level_but_where_preserved(engine: Engine, ns: str) -> None:
    spec = spec_of(
        engine,
        ns,
        {
            "zork": 1,
            "plain": [{"name": "a", "zork": 1}],
            "struct": {"x": "1", "zork": 1},
            "free": {"zork": {"deep": [1]}},
            "embedded": {
                "apiVersion": "v1",
                "kind": "Thing",
                "metadata": {"name": "x", "labels": {"a": "b"}, "zork": 1},
                "spec": "s",
                "zork": 1,
            },
        },
    )
    assert spec == {
        "mode": "auto",
        "plain": [{"name": "a", "n": 7}],
        "struct": {"x": "1", "y": "why"},
        "free": {"zork": {"deep": [1]}},
        "embedded": {
            "apiVersion": "v1",
            "kind": "Thing",
            "metadata": {"name": "x", "labels": {"a": "b"}},
            "spec": "s",
        },
    }


@case("14-defaulting", "14-defaults-in-absent-parents")
def test_defaults_fill_what_is_absent_or_null_but_not_absent_parents(engine: Engine, ns: str) -> None:
    spec = spec_of(engine, ns, {"mode": None, "nullable": None, "color": None, "plain": [{"name": "a"}]})
    assert spec == {"mode": "auto", "nullable": None, "plain": [{"name": "a", "n": 7}]}
    assert "struct" not in spec


@case("14-null-in-apply")
def test_a_null_without_a_default_cannot_be_applied(engine: Engine, ns: str) -> None:
    response = engine.apply(at("widgets", ns, "w"), widget("w", {"color": None}))
    response.refused(422, "Invalid", 'spec.color: Invalid value: "null": spec.color in body must be of type string')


@case("14-null-in-default")
@pytest.mark.parametrize(
    ("field", "refused"),
    [
        pytest.param(TEXT, True, id="text"),
        pytest.param({**TEXT, "nullable": True}, False, id="nullable"),
        pytest.param({**TEXT, "default": "x"}, True, id="with a default of its own"),
    ],
)
def test_a_default_may_hold_a_null_only_where_one_may_stand(engine: Engine, field: Object, refused: bool) -> None:
    word = engine.fresh("n").replace("-", "")
    inner: Object = {"type": "object", "default": {"c": None}, "properties": {"c": field}}
    spec: Object = {"type": "object", "properties": {"b": inner}}
    definition = crd(word, word.capitalize(), group="nulls.example.org", scope="Cluster", spec=spec)
    answer = engine.post(CRDS, definition, query={"dryRun": "All"})
    if refused:
        answer.refused(
            422, "Invalid", 'properties[b].default.c: Invalid value: "null": c in body must be of type string'
        )
    else:
        answer.ok(201)


@case("14-default-on-read")
def test_a_default_added_later_shows_on_read(engine: Engine) -> None:
    word = engine.fresh("d").replace("-", "")
    definition = crd(
        word,
        word.capitalize(),
        group="later.example.org",
        scope="Cluster",
        spec={"type": "object", "properties": {"a": TEXT}},
    )
    establish(engine, definition)
    path = f"/apis/later.example.org/v1/{word}"
    body: Object = {"apiVersion": "later.example.org/v1", "kind": word.capitalize(), "metadata": {"name": "x"}}
    before = engine.post(path, body | {"spec": {}}).ok(201)
    late = version("v1", spec={"type": "object", "properties": {"a": {"type": "string", "default": "late"}}})
    engine.patch(f"{CRDS}/{definition['metadata']['name']}", {"spec": {"versions": [late]}}).ok()
    after = engine.eventually(
        f"{path}/x", lambda response: response.status == 200 and response.json()["spec"] == {"a": "late"}
    )
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    engine.delete(f"{CRDS}/{definition['metadata']['name']}").ok()


@case("14-int-or-string", "14-integer")
def test_numbers_are_judged_by_their_value(engine: Engine, ns: str) -> None:
    assert spec_of(engine, ns, {"port": 80})["port"] == 80
    assert spec_of(engine, ns, {"port": "http"})["port"] == "http"
    refuse(engine, ns, {"port": 1.5}, "spec.port: Invalid value: ", "must be of type integer,string")
    engine.http(
        "POST",
        at("widgets", ns),
        f'{{"apiVersion":"{GROUP}/v1","kind":"Widget","metadata":{{"name":"float"}},"spec":{{"size":1.0}}}}',
    ).ok(201)
    assert '"size":1}' in engine.get(at("widgets", ns, "float")).text.replace('"size":1,', '"size":1}')


@case("14-embedded")
def test_an_embedded_resource_is_one(engine: Engine, ns: str) -> None:
    refuse(
        engine,
        ns,
        {"embedded": {"spec": "x"}},
        "spec.embedded.apiVersion: Required value",
        "spec.embedded.kind",
    )
    wrong: Object = {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": 1}}
    response = engine.post(at("widgets", ns), widget("w", {"embedded": wrong}))
    assert response.status in (400, 422) and "metadata" in response.json()["message"], response.text


@case("14-list-types")
def test_sets_and_maps_hold_everything_once(engine: Engine, ns: str) -> None:
    refuse(engine, ns, {"set": ["a", "a"]}, 'spec.set[1]: Duplicate value: "a"')
    doubled: Object = {"map": [{"name": "a"}, {"name": "a"}]}
    status = refuse(engine, ns, doubled, 'spec.map[1]: Duplicate value: {"name":"a"}')
    assert status["details"]["causes"][0]["reason"] == "FieldValueDuplicate"


@case("14-formats")
def test_formats_are_checked_where_they_are_known(engine: Engine, ns: str) -> None:
    refuse(engine, ns, {"when": "yesterday"}, 'spec.when in body must be of type date-time: "yesterday"')
    assert spec_of(engine, ns, {"when": "2026-01-01T00:00:00Z", "odd": "anything"})["odd"] == "anything"


CAUSES: dict[str, tuple[Object, str, str, str]] = {
    "not supported": (
        {"color": "pink"},
        "FieldValueNotSupported",
        'Unsupported value: "pink": supported values: "red", "green", "blue"',
        "spec.color",
    ),
    "minimum": (
        {"size": -1},
        "FieldValueInvalid",
        "Invalid value: -1: spec.size in body should be greater than or equal to 0",
        "spec.size",
    ),
    "type": (
        {"size": "big"},
        "FieldValueTypeInvalid",
        'Invalid value: "string": spec.size in body must be of type integer: "string"',
        "spec.size",
    ),
    "required": ({"plain": [{}]}, "FieldValueRequired", "Required value", "spec.plain[0].name"),
}


@pytest.mark.parametrize("row", CAUSES)
@case("13-causes", "13-422", "14-order-of-processing")
def test_every_complaint_is_a_cause(engine: Engine, ns: str, row: str) -> None:
    spec, reason, message, field = CAUSES[row]
    status = refuse(engine, ns, spec)
    assert status["details"]["causes"][0] == {"reason": reason, "message": message, "field": field}
    assert status["details"] | {"causes": []} == {"name": "w", "group": GROUP, "kind": "Widget", "causes": []}


@case("13-several-causes", "14-rules-skipped")
def test_several_complaints_are_bracketed_and_rules_are_skipped(engine: Engine, ns: str) -> None:
    status = refuse(engine, ns, {"size": -1, "color": "pink", "low": 2, "high": 1})
    assert status["message"].startswith('Widget.shop.example.org "w" is invalid: [') and status["message"].endswith("]")
    causes = status["details"]["causes"]
    assert {cause["field"] for cause in causes} == {"spec.size", "spec.color", "<nil>"}
    [skipped] = [cause for cause in causes if cause["field"] == "<nil>"]
    assert "some validation rules were not checked because the object was invalid" in skipped["message"]


@case("14-rules-run-beside-bounds")
def test_a_value_out_of_bounds_does_not_keep_rules_from_running(engine: Engine, ns: str) -> None:
    status = refuse(engine, ns, {"size": -1, "low": 2, "high": 1})
    assert {cause["field"] for cause in status["details"]["causes"]} == {"spec.size", "spec.low"}


@case("14-cel")
def test_rules_complain_where_and_how_they_say(engine: Engine, ns: str) -> None:
    status = refuse(engine, ns, {"low": 2, "high": 1})
    assert status["details"]["causes"] == [
        {"reason": "FieldValueForbidden", "message": "Forbidden: low is above high", "field": "spec.low"}
    ]
    status = refuse(engine, ns, {"url": "no url"})
    assert status["details"]["causes"][0]["message"] == 'Invalid value: "no url": no URL'
    assert spec_of(engine, ns, {"url": "https://example.org/x", "low": 1, "high": 1})["low"] == 1


@case("14-cel-transition")
def test_a_transition_rule_needs_an_old_value(engine: Engine, ns: str) -> None:
    path = at("widgets", ns, "w")
    engine.post(at("widgets", ns), widget("w")).ok(201)
    engine.patch(path, {"spec": {"fixed": "a"}}).ok()
    engine.patch(path, {"spec": {"fixed": "b"}}).refused(
        422, "Invalid", 'spec.fixed: Invalid value: "b": fixed is fixed'
    )
    engine.patch(path, {"spec": {"fixed": None}}).ok()
    engine.patch(path, {"spec": {"fixed": "b"}}).ok()


RULES = {
    "'abc'.charAt(1) == 'b' && 'a-b'.split('-') == ['a', 'b']": True,
    "'a1b2'.find('[0-9]') == '1' && 'a1b2'.findAll('[0-9]') == ['1', '2']": True,
    "[1, 2].isSorted() && [1, 2].sum() == 3 && [3, 1].min() == 1 && [3, 1].max() == 3 && [1, 2].indexOf(2) == 1": True,
    "url('https://example.org:80/p').getHost() == 'example.org:80'": True,
    "quantity('1Gi').isGreaterThan(quantity('1Mi'))": True,
    "ip('10.0.0.1').family() == 4 && cidr('10.0.0.0/8').containsIP('10.1.1.1')": True,
    "!format.dns1123Label().validate('abc').hasValue()": True,
    "semver('1.2.3').isLessThan(semver('1.10.0'))": True,
    "sets.contains([1, 2], [1])": True,
    "optional.of(1).orValue(2) == 1": True,
    "[1, 2].all(i, v, v == i + 1)": True,
    "'%s-%d'.format(['a', 1]) == 'a-1'": True,
    "size(self) > 100": False,
}


@case("14-cel-libraries")
def test_rules_have_the_libraries_of_kubernetes(engine: Engine) -> None:
    word = engine.fresh("c").replace("-", "")
    properties = {
        f"r{number}": {"type": "string", "maxLength": 10, "x-kubernetes-validations": [{"rule": rule}]}
        for number, rule in enumerate(RULES)
    }
    group = "rules.example.org"
    spec: Object = {"type": "object", "properties": properties}
    definition = crd(word, word.capitalize(), group=group, scope="Cluster", spec=spec)
    establish(engine, definition)
    body: Object = {"apiVersion": f"{group}/v1", "kind": word.capitalize(), "metadata": {"name": "x"}}
    status = engine.post(f"/apis/{group}/v1/{word}", body | {"spec": dict.fromkeys(properties, "abc")}).refused(422)
    broken = [f"spec.r{number}" for number, holds in enumerate(RULES.values()) if not holds]
    assert [cause["field"] for cause in status["details"]["causes"]] == broken, status["message"]
    engine.delete(f"{CRDS}/{definition['metadata']['name']}").ok()


@case("14-versions")
def test_versions_share_one_store_whose_schema_rules(engine: Engine, ns: str) -> None:
    body: Object = {
        "apiVersion": f"{GROUP}/v2",
        "kind": "Multi",
        "metadata": {"name": "m"},
        "spec": {"a": "1", "b": "2"},
    }
    created = engine.post(at("multis", ns, version="v2"), body).ok(201)
    assert created["apiVersion"] == f"{GROUP}/v2"
    assert created["spec"] == {"a": "1"}, "only the stored version's fields are kept"
    read = engine.get(at("multis", ns, "m")).ok()
    assert (read["apiVersion"], read["spec"]) == (f"{GROUP}/v1", {"a": "1"})
    assert engine.get(at("multis", ns, "m", version="v1beta1")).status == 404, "not served"


@case("14-deprecated")
def test_a_deprecated_version_warns(engine: Engine, ns: str) -> None:
    response = engine.get(at("multis", ns, version="v1alpha1"))
    response.ok()
    assert response.warnings == [f"{GROUP}/v1alpha1 Multi is deprecated; use {GROUP}/v2 Multi"]
    assert engine.get(at("multis", ns, version="v2")).warnings == []
