"""Section 7: query options, paging, resource versions of lists, selectors."""

from __future__ import annotations

import base64
import json

import pytest

from tests.contract.engines import Engine, Object, case
from tests.contract.kinds import at, config_map, planet, widget

ROOT_CA = "kube-root-ca.crt"


@pytest.fixture
def five(engine: Engine, ns: str) -> str:
    """A namespace with widgets p1 to p5."""
    for number in range(1, 6):
        labels = {"n": str(number), "parity": "odd" if number % 2 else "even", **({"empty": ""} if number == 1 else {})}
        color = "red" if number < 3 else "blue"
        engine.post(at("widgets", ns), widget(f"p{number}", {"color": color}, labels=labels)).ok(201)
    return ns


def names(engine: Engine, ns: str, **query: str) -> list[str]:
    items = engine.get(at("widgets", ns), query=query).ok()["items"]
    return [item["metadata"]["name"] for item in items]


@pytest.mark.parametrize(
    ("method", "options"),
    [("POST", "CreateOptions"), ("PUT", "UpdateOptions"), ("PATCH", "PatchOptions"), ("DELETE", "DeleteOptions")],
)
@case("7-dry-run-values")
def test_only_all_is_a_dry_run(engine: Engine, ns: str, method: str, options: str) -> None:
    engine.post(at("configmaps", ns), config_map("c")).ok(201)
    path = at("configmaps", ns) if method == "POST" else at("configmaps", ns, "c")
    headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else None
    body = None if method == "DELETE" else config_map("c")
    status = engine.http(method, path, body, query={"dryRun": "true"}, headers=headers).refused(422, "Invalid")
    assert status["message"] == (
        f'{options}.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["true"]: supported values: "All"'
    )


@case("7-dry-run-delete-body")
def test_dry_runs_of_changes_leave_no_trace(engine: Engine, ns: str) -> None:
    before = engine.post(at("configmaps", ns), config_map("c", {"a": "1"})).ok(201)
    path = at("configmaps", ns, "c")
    assert engine.delete(path, {"dryRun": ["All"]}).ok()["status"] == "Success"
    engine.delete(path, query={"dryRun": "All"}).ok()
    changed = engine.patch(path, {"data": {"a": "2"}}, query={"dryRun": "All"}).ok()
    assert changed["data"] == {"a": "2"}
    assert changed["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    engine.put(path, before | {"data": {"a": "3"}}, query={"dryRun": "All"}).ok()
    engine.apply(at("configmaps", ns, "new"), config_map("new"), query={"dryRun": "All"}).ok(201)
    assert engine.get(path).ok() == before
    engine.get(at("configmaps", ns, "new")).refused(404)


@case("7-field-manager")
def test_a_field_manager_is_short_and_needed_for_apply(engine: Engine, ns: str) -> None:
    engine.post(at("configmaps", ns), config_map("c"), query={"fieldManager": "m" * 128}).ok(201)
    engine.post(at("configmaps", ns), config_map("d"), query={"fieldManager": "m" * 129}).refused(
        422, "Invalid", "fieldManager: Too long: may not be more than 128 bytes"
    )
    engine.patch(at("configmaps", ns, "c"), config_map("c"), "apply").refused(
        422, "Invalid", "fieldManager: Required value: is required for apply patch"
    )


@case("7-force")
def test_force_is_for_apply_only(engine: Engine, ns: str) -> None:
    engine.post(at("configmaps", ns), config_map("c")).ok(201)
    engine.patch(at("configmaps", ns, "c"), {}, query={"force": "true"}).refused(
        422, "Invalid", "force: Forbidden: may not be specified for non-apply patch"
    )


@case("7-field-validation-values")
def test_field_validation_has_three_values(engine: Engine, ns: str) -> None:
    engine.post(at("configmaps", ns), config_map("c"), query={"fieldValidation": "Sometimes"}).refused(
        422, "Invalid", 'fieldValidation: Unsupported value: "Sometimes": supported values: '
    )


UNKNOWN = widget("w", {"size": 1, "zork": 1, "plain": [{"name": "a", "b": 1}]}, foo=1)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
@pytest.mark.parametrize("level", ["Strict", "Warn", "", "Ignore"])
@case("7-strict", "7-warn", "1-11-warn-is-default")
def test_unknown_fields_are_refused_reported_or_dropped(engine: Engine, ns: str, method: str, level: str) -> None:
    path = at("widgets", ns)
    body = json.loads(json.dumps(UNKNOWN))
    if method != "POST":
        created = engine.post(path, widget("w")).ok(201)
        path = at("widgets", ns, "w")
        body["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"]
    headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else None
    query = {"fieldValidation": level} if level else None
    response = engine.http(method, path, body, query=query, headers=headers)
    fields = ["metadata.foo", "spec.plain[0].b", "spec.zork"]
    if level == "Strict":
        status = response.refused(422 if method == "PATCH" else 400)
        if method == "PATCH":
            assert status["details"]["causes"][0]["field"] == "patch"
        assert "strict decoding error: " in status["message"]
        for field in fields:
            assert f'unknown field "{field}"' in status["message"]
        return
    written = response.ok()
    assert "zork" not in written["spec"] and written["spec"]["plain"] == [{"name": "a", "n": 7}]
    reported = [] if level == "Ignore" else [f'unknown field "{field}"' for field in fields]
    assert sorted(response.warnings) == reported


@case("7-duplicate-fields")
def test_duplicate_fields_are_found(engine: Engine, ns: str) -> None:
    body = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1","a":"2"}}'
    path, headers = at("configmaps", ns), {"Content-Type": "application/json"}
    strict = engine.http("POST", path, body, query={"fieldValidation": "Strict"}, headers=headers)
    strict.refused(400, "BadRequest", 'strict decoding error: duplicate field "data.a"')
    warned = engine.http("POST", path, body, headers=headers)
    assert warned.ok(201)["data"] == {"a": "2"}
    assert warned.warnings == ['duplicate field "data.a"']


@case("7-limit")
def test_a_limit_is_a_number_and_a_negative_one_is_none(engine: Engine, five: str) -> None:
    assert names(engine, five, limit="-1") == names(engine, five) == ["p1", "p2", "p3", "p4", "p5"]
    assert names(engine, five, limit="0") == names(engine, five)
    engine.get(at("widgets", five), query={"limit": "many"}).refused(400, "BadRequest")


@case("7-continue", "7-remaining")
def test_pages_are_one_snapshot(engine: Engine, five: str) -> None:
    path = at("widgets", five)
    first = engine.get(path, query={"limit": 2}).ok()
    assert first["metadata"]["remainingItemCount"] == 3
    engine.post(path, widget("p2b")).ok(201)
    engine.delete(f"{path}/p3").ok()
    second = engine.get(path, query={"limit": 2, "continue": first["metadata"]["continue"]}).ok()
    third = engine.get(path, query={"limit": 2, "continue": second["metadata"]["continue"]}).ok()
    pages = [first, second, third]
    assert [[item["metadata"]["name"] for item in page["items"]] for page in pages] == [
        ["p1", "p2"],
        ["p3", "p4"],
        ["p5"],
    ]
    assert {page["metadata"]["resourceVersion"] for page in pages} == {first["metadata"]["resourceVersion"]}
    assert not third["metadata"].get("continue") and "remainingItemCount" not in third["metadata"]
    selected = engine.get(path, query={"limit": 1, "labelSelector": "parity"}).ok()
    assert selected["metadata"]["continue"] and "remainingItemCount" not in selected["metadata"]


@case("7-continue-with-version", "7-continue-garbage")
def test_a_continue_token_stands_alone_and_must_be_ours(engine: Engine, five: str) -> None:
    path = at("widgets", five)
    token = engine.get(path, query={"limit": 2}).ok()["metadata"]["continue"]
    engine.get(path, query={"limit": 2, "continue": token, "resourceVersion": "1"}).refused(
        400, "", "specifying resource version is not allowed when using continue"
    )
    engine.get(path, query={"limit": 2, "continue": "garbage"}).refused(400, "BadRequest", "continue key is not valid")


@case("7-continue-inconsistent", "7-continue-shape")
def test_an_inconsistent_continuation_goes_on_with_what_there_is_now(engine: Engine, five: str) -> None:
    path = at("widgets", five)
    first = engine.get(path, query={"limit": 2}).ok()["metadata"]
    token = first["continue"]
    content = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    assert content["v"] == "meta.k8s.io/v1" and str(content["rv"]) == first["resourceVersion"]
    assert content["start"].endswith("p2\x00")
    engine.post(path, widget("p2b")).ok(201)
    content["rv"] = -1
    token = base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")
    page = engine.get(path, query={"limit": 2, "continue": token}).ok()
    assert [item["metadata"]["name"] for item in page["items"]] == ["p2b", "p3"]
    rest = engine.get(path, query={"continue": page["metadata"]["continue"]}).ok()
    assert [item["metadata"]["name"] for item in rest["items"]] == ["p4", "p5"]


@case("7-version-not-older", "7-version-future", "13-504")
def test_lists_are_as_new_as_asked_for(engine: Engine, five: str) -> None:
    path = at("widgets", five)
    now = engine.get(path).ok()["metadata"]["resourceVersion"]
    for query in ({"resourceVersion": "0"}, {"resourceVersion": now}):
        assert len(engine.get(path, query=query).ok()["items"]) == 5
    engine.post(path, widget("later")).ok(201)
    assert len(engine.get(path, query={"resourceVersion": now}).ok()["items"]) in (5, 6)
    exact = engine.get(path, query={"resourceVersion": now, "resourceVersionMatch": "Exact"}).ok()
    assert len(exact["items"]) == 5 and exact["metadata"]["resourceVersion"] == now
    limited = engine.get(path, query={"resourceVersion": now, "limit": 10}).ok()
    assert len(limited["items"]) in (5, 6)
    future = str(int(now) + 100_000_000)
    status = engine.get(path, query={"resourceVersion": future}).refused(504, "Timeout")
    assert f"Too large resource version: {future}, current: " in status["message"]
    assert status["details"]["causes"] == [
        {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    ]
    assert status["details"]["retryAfterSeconds"] == 1


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"resourceVersionMatch": "Exact"}, "resourceVersionMatch is forbidden unless resourceVersion is provided"),
        ({"resourceVersion": "0", "resourceVersionMatch": "Exact"}, 'forbidden for resourceVersion "0"'),
        ({"resourceVersion": "1", "resourceVersionMatch": "Sometimes"}, "resourceVersionMatch: Unsupported value"),
        ({"sendInitialEvents": "true"}, "sendInitialEvents is forbidden for list"),
    ],
)
@case("7-version-match", "7-send-initial-events-on-list")
def test_options_that_contradict_each_other_are_refused(engine: Engine, ns: str, query: Object, text: str) -> None:
    engine.get(at("widgets", ns), query=query).refused(422, "Invalid", text)


@case("7-unknown-parameters")
def test_unknown_parameters_are_ignored(engine: Engine, five: str) -> None:
    assert len(names(engine, five, colour="red", timeout="32s")) == 5


@case("7-order", "7-list-kinds")
def test_lists_are_sorted_and_name_their_kind(engine: Engine) -> None:
    stem = engine.fresh("order")
    spaces = [f"{stem}-b", f"{stem}-a", f"{stem}-c"]
    for space in spaces:
        engine.post("/api/v1/namespaces", {"metadata": {"name": space}}).ok(201)
        for name in ("b", "a.b", "a-b", "a"):
            engine.post(at("widgets", space), widget(name, labels={"order": stem})).ok(201)
    listed = engine.get(at("widgets"), query={"labelSelector": f"order={stem}"}).ok()
    assert listed["kind"] == "WidgetList"
    found = [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in listed["items"]]
    assert found == sorted(found) and len(found) == 12
    assert {(item["kind"], item["apiVersion"]) for item in listed["items"]} == {("Widget", "shop.example.org/v1")}
    maps = engine.get(at("configmaps", spaces[0])).ok()
    assert maps["kind"] == "ConfigMapList"
    assert not any({"kind", "apiVersion"} & set(item) for item in maps["items"])


LABELS = {
    "n=1": ["p1"],
    "n==1": ["p1"],
    "n!=1": ["p2", "p3", "p4", "p5"],
    "absent!=1": ["p1", "p2", "p3", "p4", "p5"],
    "n in (1,3)": ["p1", "p3"],
    "n notin (1,3)": ["p2", "p4", "p5"],
    "absent notin (x)": ["p1", "p2", "p3", "p4", "p5"],
    "empty": ["p1"],
    "!empty": ["p2", "p3", "p4", "p5"],
    "n>3": ["p4", "p5"],
    "n<3": ["p1", "p2"],
    "empty=": ["p1"],
    "parity=odd,n!=1": ["p3", "p5"],
}


@case("7-label-selectors")
def test_label_selectors_select(engine: Engine, five: str) -> None:
    for selector, expected in LABELS.items():
        assert names(engine, five, labelSelector=selector) == expected, selector


@case("7-label-selectors-bad")
def test_a_bad_label_selector_is_the_parsers_complaint(engine: Engine, ns: str) -> None:
    for selector, text in (
        ("a b", "found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in (b", "found '', expected: ',' or ')'"),
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        ("a>b", "values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be an integer"),
    ):
        status = engine.get(at("widgets", ns), query={"labelSelector": selector}).refused(400, "BadRequest")
        assert status["message"] in (text, f"unable to parse requirement: {text}"), status["message"]


FIELDS = {
    "metadata.name=p2": ["p2"],
    "metadata.name==p2": ["p2"],
    "metadata.name!=p2": ["p1", "p3", "p4", "p5"],
    "metadata.name=p2,metadata.name=p2": ["p2"],
    "metadata.name=p2,metadata.name=p3": [],
    "spec.color=red": ["p1", "p2"],
    "spec.color!=red": ["p3", "p4", "p5"],
}


@case("7-field-selectors")
def test_field_selectors_select(engine: Engine, five: str) -> None:
    for selector, expected in FIELDS.items():
        assert names(engine, five, fieldSelector=selector) == expected, selector
    everywhere = engine.get(at("widgets"), query={"fieldSelector": f"metadata.namespace={five}"}).ok()["items"]
    assert len(everywhere) == 5


@case("7-field-selectors-per-kind")
def test_built_in_kinds_have_fields_of_their_own(engine: Engine, ns: str) -> None:
    engine.post(at("secrets", ns), {"metadata": {"name": "s"}, "type": "example.org/kind"}).ok(201)
    found = engine.get(at("secrets", ns), query={"fieldSelector": "type=example.org/kind"}).ok()["items"]
    assert [item["metadata"]["name"] for item in found] == ["s"]
    query = {"fieldSelector": f"status.phase=Active,metadata.name={ns}"}
    assert len(engine.get("/api/v1/namespaces", query=query).ok()["items"]) == 1
    query = {"fieldSelector": f"status.phase=Terminating,metadata.name={ns}"}
    assert engine.get("/api/v1/namespaces", query=query).ok()["items"] == []
    port: Object = {"ports": [{"port": 80}]}
    engine.post(at("services", ns), {"metadata": {"name": "s"}, "spec": port | {"clusterIP": "None"}}).ok(201)
    for selector in ("spec.clusterIP=None", "spec.type=ClusterIP"):
        assert len(engine.get(at("services", ns), query={"fieldSelector": selector}).ok()["items"]) == 1, selector
    assert (
        engine.get(at("pods", ns), query={"fieldSelector": "spec.nodeName=x,status.phase=Running"}).ok()["items"] == []
    )


@case("7-field-selectors-unknown")
def test_other_fields_cannot_be_selected_by(engine: Engine, ns: str) -> None:
    status = engine.get(at("configmaps", ns), query={"fieldSelector": "data.a=1"}).refused(400, "BadRequest")
    assert '"data.a" is not a known field selector: only "metadata.name", "metadata.namespace"' in status["message"]
    status = engine.get(at("widgets", ns), query={"fieldSelector": "spec.size=1"}).refused(400, "BadRequest")
    assert "field label not supported: spec.size" in status["message"]


@case("1-4-query-booleans")
def test_only_false_and_zero_are_false(engine: Engine) -> None:
    name = engine.fresh("planet")
    engine.post("/apis/shop.example.org/v1/planets", planet(name)).ok(201)
    for value in ("1", "true", "True", "yes", ""):
        path = "/apis/shop.example.org/v1/planets"
        with engine.watch(path, watch=value, fieldSelector=f"metadata.name={name}") as events:
            assert events.next()["type"] == "ADDED", value
    for value in ("0", "false", "False", "FALSE"):
        response = engine.get("/apis/shop.example.org/v1/planets", query={"watch": value})
        assert response.ok()["kind"] == "PlanetList", value
