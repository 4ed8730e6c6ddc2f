"""Section 8: what a watch sends, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.engines import TABLE, Engine, Object, case
from tests.contract.kinds import GROUP, at, config_map, widget


def told(events: list[Object]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


@pytest.fixture
def widgets(engine: Engine, ns: str) -> Callable[..., Any]:
    """Creates a widget in the test's namespace."""

    def create(name: str, **labels: str) -> Any:
        return engine.post(at("widgets", ns), widget(name, labels=labels)).ok(201)

    return create


@case("8-from-version", "8-wire")
def test_a_watch_tells_every_change_after_a_version_in_order(
    engine: Engine, ns: str, widgets: Callable[..., Any]
) -> None:
    start = widgets("a")["metadata"]["resourceVersion"]
    widgets("b")
    engine.patch(at("widgets", ns, "a"), {"spec": {"size": 2}}).ok()
    with engine.watch(at("widgets", ns), resourceVersion=start) as events:
        assert events.status == 200 and events.headers["Content-Type"].startswith("application/json")
        assert told(events.take(2)) == [("ADDED", "b"), ("MODIFIED", "a")]
        engine.delete(at("widgets", ns, "b")).ok()
        widgets("c")
        assert told(events.take(2)) == [("DELETED", "b"), ("ADDED", "c")]


@pytest.mark.parametrize("version", ["", "0"])
@case("8-from-nothing")
def test_without_a_version_everything_comes_as_added_first(
    engine: Engine, ns: str, widgets: Callable[..., Any], version: str
) -> None:
    widgets("a")
    widgets("b")
    query = {"resourceVersion": version} if version else {}
    with engine.watch(at("widgets", ns), **query) as events:
        assert sorted(told(events.take(2))) == [("ADDED", "a"), ("ADDED", "b")]
        widgets("c")
        assert told(events.take(1)) == [("ADDED", "c")]


STREAMING: dict[str, Any] = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}


@case("8-streaming-list", "1-9-streaming-list")
def test_a_streaming_list_ends_with_an_annotated_bookmark(engine: Engine, ns: str, widgets: Callable[..., Any]) -> None:
    path = at("widgets", ns)
    with engine.watch(path, allowWatchBookmarks="true", **STREAMING) as events:
        bookmark = events.next()
        assert bookmark["type"] == "BOOKMARK"
        assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    widgets("a")
    with engine.watch(path, allowWatchBookmarks="true", **STREAMING) as events:
        added, bookmark = events.take(2)
        assert told([added]) == [("ADDED", "a")]
        end = bookmark["object"]
        assert (end["kind"], end["apiVersion"]) == ("Widget", f"{GROUP}/v1")
        assert end["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(end["metadata"]["resourceVersion"]) >= int(added["object"]["metadata"]["resourceVersion"])
        widgets("b")
        assert told(events.take(1)) == [("ADDED", "b")]


@case("8-streaming-list-without-bookmarks")
def test_a_streaming_list_without_bookmarks_has_none(engine: Engine, ns: str, widgets: Callable[..., Any]) -> None:
    widgets("a")
    with engine.watch(at("widgets", ns), **STREAMING) as events:
        assert told(events.take(1)) == [("ADDED", "a")]
        widgets("b")
        assert told(events.take(1)) == [("ADDED", "b")]


@pytest.mark.parametrize(
    "query",
    [{"sendInitialEvents": "true"}, {"resourceVersionMatch": "NotOlderThan"}, {"sendInitialEvents": "false"}],
)
@case("8-streaming-list-options")
def test_initial_events_and_a_version_match_go_together(engine: Engine, ns: str, query: Object) -> None:
    response = engine.get(at("widgets", ns), query={"watch": "true", "timeoutSeconds": "1", **query})
    response.refused(422, "Invalid", "resourceVersionMatch")


@case("8-no-initial-events")
def test_initial_events_can_be_declined(engine: Engine, ns: str, widgets: Callable[..., Any]) -> None:
    widgets("a")
    options: dict[str, Any] = STREAMING | {"sendInitialEvents": "false", "resourceVersion": "0"}
    with engine.watch(at("widgets", ns), **options) as events:
        widgets("b")
        seen = told(events.until(lambda event: event["object"]["metadata"]["name"] == "b"))
        assert ("ADDED", "b") in seen


@case("8-bookmarks")
def test_a_bookmark_comes_before_the_timeout(engine: Engine, ns: str, widgets: Callable[..., Any]) -> None:
    start = widgets("a")["metadata"]["resourceVersion"]
    options: dict[str, Any] = {"allowWatchBookmarks": "true", "timeoutSeconds": 4}
    with engine.watch(at("widgets", ns), resourceVersion=start, **options) as events:
        engine.post(at("widgets", engine.new_namespace()), widget("elsewhere")).ok(201)
        bookmarks = events.rest()
    assert {event["type"] for event in bookmarks} == {"BOOKMARK"}
    for event in bookmarks:
        assert event["object"]["metadata"].keys() == {"resourceVersion"}
        assert (event["object"]["kind"], event["object"]["apiVersion"]) == ("Widget", f"{GROUP}/v1")
        assert int(event["object"]["metadata"]["resourceVersion"]) >= int(start)


@case("8-future")
def test_a_future_version_is_waited_for_in_silence(engine: Engine, ns: str, widgets: Callable[..., Any]) -> None:
    now = int(widgets("a")["metadata"]["resourceVersion"])
    with engine.watch(at("widgets", ns), resourceVersion=str(now + 100_000_000), timeoutSeconds=1) as events:
        widgets("b")
        assert events.status == 200
        assert events.rest() == []


@case("8-not-a-number")
def test_a_version_that_is_no_number_is_refused_before_streaming(engine: Engine, ns: str) -> None:
    response = engine.get(at("widgets", ns), query={"watch": "1", "resourceVersion": "new", "timeoutSeconds": "1"})
    response.refused(engine.expected("8-not-a-number"), "", 'resourceVersion: Invalid value: "new"')


@case("8-timeout", "8-limit-ignored")
def test_a_watch_ends_cleanly_after_its_time(engine: Engine, ns: str, widgets: Callable[..., Any]) -> None:
    widgets("a")
    widgets("b")
    with engine.watch(at("widgets", ns), timeoutSeconds=1, limit=1) as events:
        assert len(events.rest()) == 2


@case("8-table")
def test_a_table_watch_sends_one_row_tables(engine: Engine, ns: str, widgets: Callable[..., Any]) -> None:
    widgets("a")
    with engine.watch(at("widgets", ns), accept=TABLE, allowWatchBookmarks="true", **STREAMING) as events:
        first, bookmark = events.take(2)
        table = first["object"]
        assert (first["type"], table["kind"]) == ("ADDED", "Table")
        assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Size", "Ready", "Mode", "Age"]
        [row] = table["rows"]
        assert row["cells"][:2] == ["a", 1] and row["object"]["metadata"]["name"] == "a"
        assert (bookmark["type"], bookmark["object"]["kind"]) == ("BOOKMARK", "Table")
        [row] = bookmark["object"]["rows"]
        assert row["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert bookmark["object"]["metadata"]["resourceVersion"]
        widgets("b")
        assert events.next()["object"]["rows"][0]["cells"][0] == "b"


@case("8-bad-selector")
def test_a_bad_selector_is_refused_before_streaming(engine: Engine, ns: str) -> None:
    for query in ({"labelSelector": "a b"}, {"fieldSelector": "spec.size=1"}):
        engine.get(at("widgets", ns), query={"watch": "true", "timeoutSeconds": "1", **query}).refused(
            400, "BadRequest"
        )


@case("1-10-selector-transitions", "8-selector-transitions")
def test_objects_come_and_go_with_what_is_selected(engine: Engine, ns: str, widgets: Callable[..., Any]) -> None:
    start = widgets("a", tier="gold")["metadata"]["resourceVersion"]
    path = at("widgets", ns, "a")
    with engine.watch(at("widgets", ns), resourceVersion=start, labelSelector="tier=gold") as events:
        engine.patch(path, {"spec": {"size": 2}}).ok()
        left = engine.patch(path, {"metadata": {"labels": {"tier": "tin"}}}).ok()
        engine.patch(path, {"spec": {"size": 3}}).ok()
        engine.patch(path, {"metadata": {"labels": {"tier": "gold"}}}).ok()
        seen = events.take(3)
        assert [event["type"] for event in seen] == ["MODIFIED", "DELETED", "ADDED"]
        assert seen[1]["object"]["metadata"]["labels"] == {"tier": "gold"}, "the last state that matched"
        assert seen[1]["object"]["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]
    with engine.watch(at("widgets", ns), resourceVersion=start, fieldSelector="spec.color=red") as events:
        engine.patch(path, {"spec": {"color": "red"}}).ok()
        engine.patch(path, {"spec": {"color": "blue"}}).ok()
        assert told(events.take(2)) == [("ADDED", "a"), ("DELETED", "a")]


@case("8-deleted-state")
def test_deleted_carries_the_last_state_and_its_own_version(engine: Engine, ns: str) -> None:
    body = config_map("c", {"a": "1"}, finalizers=["e.org/f"])
    created = engine.post(at("configmaps", ns), body).ok(201)
    start = created["metadata"]["resourceVersion"]
    with engine.watch(at("configmaps", ns), resourceVersion=start, fieldSelector="metadata.name=c") as events:
        marked = engine.delete(at("configmaps", ns, "c")).ok()
        last = engine.patch(at("configmaps", ns, "c"), {"metadata": {"finalizers": None}}).ok()
        modified, deleted = events.take(2)
    assert (modified["type"], deleted["type"]) == ("MODIFIED", "DELETED")
    assert modified["object"] == marked
    gone = deleted["object"]
    assert gone["data"] == {"a": "1"} and gone["metadata"]["finalizers"] == ["e.org/f"]
    assert int(gone["metadata"]["resourceVersion"]) > int(marked["metadata"]["resourceVersion"])
    assert last["metadata"]["resourceVersion"] == marked["metadata"]["resourceVersion"]


@case("8-old-paths")
def test_the_old_watch_paths_still_work(engine: Engine, ns: str) -> None:
    engine.post(at("configmaps", ns), config_map("c")).ok(201)
    query = {"timeoutSeconds": "1", "fieldSelector": "metadata.name=c"}
    response = engine.get(f"/api/v1/watch/namespaces/{ns}/configmaps", query=query)
    assert '"type":"ADDED"' in response.text
