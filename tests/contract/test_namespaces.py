"""Section 12: the life and end of namespaces. An empty one takes a real cluster five seconds, so all end together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.contract.engines import Engine, case
from tests.contract.kinds import at, config_map, widget

CONDITIONS = {
    "NamespaceDeletionDiscoveryFailure",
    "NamespaceDeletionGroupVersionParsingFailure",
    "NamespaceDeletionContentFailure",
    "NamespaceContentRemaining",
    "NamespaceFinalizersRemaining",
}


@dataclass(frozen=True)
class Ending:
    """Namespaces whose end has begun: one full of objects, one held by a finalizer, with what DELETE answered."""

    full: str
    stuck: str
    answer: Any


@pytest.fixture(scope="module")
def ending(engine: Engine) -> Ending:
    full, stuck = engine.new_namespace(), engine.new_namespace()
    for number in range(5):
        engine.post(at("configmaps", full), config_map(f"c{number}")).ok(201)
        engine.post(at("widgets", full), widget(f"w{number}")).ok(201)
    engine.post(at("configmaps", stuck), config_map("held", finalizers=["e.org/hold"])).ok(201)
    engine.post(at("configmaps", stuck), config_map("free")).ok(201)
    answer = engine.delete(f"/api/v1/namespaces/{full}").ok()
    engine.delete(f"/api/v1/namespaces/{stuck}").ok()
    return Ending(full, stuck, answer)


@case("12-namespace-created")
def test_a_namespace_begins_active_with_its_label_and_finalizer(engine: Engine, ns: str) -> None:
    found = engine.get(f"/api/v1/namespaces/{ns}").ok()
    assert found["metadata"]["labels"] == {"kubernetes.io/metadata.name": ns}
    assert found["spec"] == {"finalizers": ["kubernetes"]} and found["status"] == {"phase": "Active"}


@case("12-namespace-delete")
def test_deleting_a_namespace_answers_it_terminating(ending: Ending) -> None:
    assert ending.answer["kind"] == "Namespace" and ending.answer["status"]["phase"] == "Terminating"
    assert ending.answer["metadata"]["deletionTimestamp"]


@case("6.1-namespace-terminating", "13-403")
def test_nothing_new_is_created_in_a_terminating_namespace(engine: Engine, ending: Ending) -> None:
    for resource, body, shown in (
        ("configmaps", config_map("new"), "configmaps"),
        ("widgets", widget("new"), "widgets.shop.example.org"),
    ):
        status = engine.post(at(resource, ending.stuck), body).refused(403, "Forbidden")
        assert status["message"] == (
            f'{shown} "new" is forbidden: unable to create new content in namespace {ending.stuck} '
            "because it is being terminated"
        )
        assert status["details"]["causes"] == [
            {
                "reason": "NamespaceTerminating",
                "message": f"namespace {ending.stuck} is being terminated",
                "field": "metadata.namespace",
            }
        ]


@case("12-namespace-end")
def test_a_namespace_takes_its_content_with_it(engine: Engine, ending: Ending) -> None:
    engine.gone(f"/api/v1/namespaces/{ending.full}")
    assert engine.get(at("configmaps", ending.full)).ok()["items"] == []
    assert engine.get(at("widgets", ending.full)).ok()["items"] == []


@case("12-namespace-conditions")
def test_a_stuck_namespace_says_why_and_ends_once_unstuck(engine: Engine, ending: Ending) -> None:
    path = f"/api/v1/namespaces/{ending.stuck}"

    def explained(response: Any) -> bool:
        conditions = response.json()["status"].get("conditions") or ()
        found = {condition["type"]: condition for condition in conditions}
        remaining = found.get("NamespaceFinalizersRemaining", {})
        return remaining.get("status") == "True" and set(found) == CONDITIONS

    status = engine.eventually(path, explained)["status"]
    found = {condition["type"]: condition for condition in status["conditions"]}
    assert status["phase"] == "Terminating"
    assert found["NamespaceFinalizersRemaining"]["reason"] == "SomeFinalizersRemain"
    assert "e.org/hold in 1 resource instances" in found["NamespaceFinalizersRemaining"]["message"]
    assert found["NamespaceContentRemaining"]["status"] == "True"
    assert "configmaps. has 1 resource instances" in found["NamespaceContentRemaining"]["message"]
    assert found["NamespaceDeletionContentFailure"]["status"] == "False"
    engine.gone(at("configmaps", ending.stuck, "free"))
    engine.patch(at("configmaps", ending.stuck, "held"), {"metadata": {"finalizers": None}}).ok()
    engine.gone(path)


@case("12-namespace-finalize")
def test_the_spec_finalizer_goes_through_finalize(engine: Engine) -> None:
    name = engine.fresh()
    body = {"metadata": {"name": name}, "spec": {"finalizers": ["e.org/mine", "kubernetes"]}}
    created = engine.post("/api/v1/namespaces", body).ok(201)
    assert sorted(created["spec"]["finalizers"]) == ["e.org/mine", "kubernetes"]
    path = f"/api/v1/namespaces/{name}"
    kept = engine.put(path, created | {"spec": {"finalizers": ["kubernetes"]}}).ok()
    assert sorted(kept["spec"]["finalizers"]) == ["e.org/mine", "kubernetes"], "the main path cannot change them"
    changed = engine.put(f"{path}/finalize", kept | {"spec": {"finalizers": ["kubernetes"]}}).ok()
    assert changed["spec"]["finalizers"] == ["kubernetes"]
