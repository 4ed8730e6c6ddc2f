"""What a current kubectl shows: discovery, documentation, tables, selections, watches."""

from __future__ import annotations

import pytest

from tests.e2e.control_plane import Program, RunningPlane, config_map, manifest
from tests.e2e.widgets import widget

pytestmark = pytest.mark.xdist_group("e2e")


def test_version_names_client_and_server(plane: RunningPlane) -> None:
    found = plane.kubectl("version", "-o", "json").json()
    assert found["serverVersion"]["major"] == found["clientVersion"]["major"]
    assert "planform" in found["serverVersion"]["gitVersion"]


def test_api_resources_lists_kinds_with_short_names_and_scope(plane: RunningPlane, widgets: None) -> None:
    rows = [line.split() for line in plane.kubectl("api-resources", "--no-headers").lines]
    assert ["configmaps", "cm", "v1", "true", "ConfigMap"] in rows
    assert ["deployments", "deploy", "apps/v1", "true", "Deployment"] in rows
    assert ["widgets", "wg", "e2e.planform.dev/v1", "true", "Widget"] in rows


def test_api_resources_can_be_asked_for_verbs_and_groups(plane: RunningPlane, widgets: None) -> None:
    only = plane.kubectl("api-resources", "--api-group=e2e.planform.dev", "--verbs=watch,patch", "-o", "name")
    assert only.out == "widgets.e2e.planform.dev\n"


def test_api_versions_lists_every_group(plane: RunningPlane, widgets: None) -> None:
    versions = plane.kubectl("api-versions").lines
    assert {"v1", "apps/v1", "rbac.authorization.k8s.io/v1", "e2e.planform.dev/v1"} <= set(versions)


def test_explain_describes_built_in_and_defined_kinds(plane: RunningPlane, widgets: None) -> None:
    assert "FIELD: image <string>" in plane.kubectl("explain", "deployment.spec.template.spec.containers.image").out
    explained = plane.kubectl("explain", "widgets.spec").out
    assert "What the widget should be." in explained
    assert "How it looks." in explained
    assert "enum: red, green, blue" in explained
    assert "replicas" in plane.kubectl("explain", "wg", "--recursive").out


def test_explain_of_an_unknown_field_fails(plane: RunningPlane) -> None:
    assert 'field "colour" does not exist' in plane.kubectl("explain", "configmap.colour", code=1).err


def test_get_shows_tables_and_the_wide_ones_show_more(kubectl: Program, widgets: None) -> None:
    kubectl("create", "-f", "-", stdin=manifest(widget("a", replicas=2), widget("b", colour="blue")))
    narrow = [line.split() for line in kubectl("get", "widgets").lines]
    assert narrow[0] == ["NAME", "COLOUR", "AGE"]
    assert [row[:2] for row in narrow[1:]] == [["a", "red"], ["b", "blue"]]
    wide = [line.split() for line in kubectl("get", "wg", "-o", "wide").lines]
    assert wide[0] == ["NAME", "COLOUR", "REPLICAS", "AGE"]
    assert [row[:3] for row in wide[1:]] == [["a", "red", "2"], ["b", "blue", "1"]]


def test_get_knows_kinds_by_category_and_several_at_once(kubectl: Program, widgets: None) -> None:
    kubectl("create", "-f", "-", stdin=manifest(widget("a")))
    kubectl("create", "configmap", "c", "--from-literal=k=v")
    assert "widget.e2e.planform.dev/a" in kubectl("get", "all").out
    assert kubectl("get", "cm/c", "widget/a", "-o", "name").lines == ["configmap/c", "widget.e2e.planform.dev/a"]


def test_get_prints_yaml_json_jsonpath_columns_and_templates(kubectl: Program) -> None:
    kubectl("create", "-f", "-", stdin=manifest(config_map("c", {"colour": "red"}, labels={"tier": "web"})))
    yaml = kubectl("get", "configmap", "c", "-o", "yaml").out
    assert yaml.startswith("apiVersion: v1\ndata:\n  colour: red\nkind: ConfigMap\n")
    assert "managedFields" not in yaml
    assert "managedFields" in kubectl("get", "cm", "c", "-o", "yaml", "--show-managed-fields").out
    assert kubectl("get", "cm", "c", "-o", "json").json()["data"] == {"colour": "red"}
    assert kubectl("get", "cm", "c", "-o", "jsonpath={.metadata.labels.tier}-{.data.colour}").out == "web-red"
    columns = kubectl("get", "cm", "c", "-o", "custom-columns=N:.metadata.name,C:.data.colour").lines
    assert [line.split() for line in columns] == [["N", "C"], ["c", "red"]]
    assert kubectl("get", "cm", "c", "-o", "go-template={{.data.colour}}").out == "red"


def test_get_of_what_is_not_there_fails_unless_told_to_ignore_it(kubectl: Program) -> None:
    gone = kubectl("get", "configmap", "gone", code=1)
    assert gone.err == 'Error from server (NotFound): configmaps "gone" not found\n'
    assert kubectl("get", "configmap", "gone", "--ignore-not-found").out == ""
    assert 'the server doesn\'t have a resource type "gadgets"' in kubectl("get", "gadgets", code=1).err


def test_get_of_an_empty_namespace_says_so(kubectl: Program, namespace: str) -> None:
    assert kubectl("get", "secrets").err == f"No resources found in {namespace} namespace.\n"


@pytest.fixture
def five(kubectl: Program) -> Program:
    """kubectl in a namespace with five ConfigMaps that have a tier and a sixth that has none."""
    tiers = ["web", "db", "web", "db", "cache"]
    tiered = [config_map(f"c{n}", {"n": str(9 - n)}, labels={"tier": tier}) for n, tier in enumerate(tiers)]
    kubectl("create", "-f", "-", stdin=manifest(*tiered, config_map("c5", labels={"odd": ""})))
    return kubectl


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        pytest.param("tier=web", ["c0", "c2"], id="equal"),
        pytest.param("tier!=web,tier!=db", ["c4", "c5"], id="unequal-matches-absent"),
        pytest.param("tier in (db,cache)", ["c1", "c3", "c4"], id="in"),
        pytest.param("tier notin (db),tier", ["c0", "c2", "c4"], id="notin"),
        pytest.param("!tier,odd", ["c5"], id="absent"),
    ],
)
def test_label_selectors_choose(five: Program, selector: str, found: list[str]) -> None:
    names = [line.removeprefix("configmap/") for line in five("get", "cm", "-l", selector, "-o", "name").lines]
    assert names == found


def test_field_selectors_choose_and_refuse_what_has_no_index(five: Program, namespace: str) -> None:
    assert five("get", "cm", "--field-selector", "metadata.name=c3", "-o", "name").out == "configmap/c3\n"
    others = five("get", "cm", "--field-selector", f"metadata.namespace={namespace},metadata.name!=c3", "-o", "name")
    assert "configmap/c3" not in others.lines
    assert "configmap/c0" in others.lines
    refused = five("get", "cm", "--field-selector", "data.n=1", code=1).err
    assert '"data.n" is not a known field selector: only "metadata.name", "metadata.namespace"' in refused


def test_sort_by_orders_rows(five: Program) -> None:
    rows = five("get", "cm", "-l", "tier", "--sort-by=.data.n", "--no-headers").lines
    assert [row.split()[0] for row in rows] == ["c4", "c3", "c2", "c1", "c0"]


def test_all_namespaces_shows_where_things_are(plane: RunningPlane, five: Program, namespace: str) -> None:
    rows = [line.split()[:2] for line in plane.kubectl("get", "cm", "-A", "-l", "tier in (cache)").lines]
    assert rows[0] == ["NAMESPACE", "NAME"]
    assert [namespace, "c4"] in rows


def test_chunked_lists_show_everything_once(five: Program) -> None:
    whole = five("get", "cm", "--no-headers", "--chunk-size=0", "-o", "name").out
    chunked = five("get", "cm", "--chunk-size=2", "-o", "name", "-v=6")
    assert chunked.out == whole
    assert "limit=2" in chunked.err
    assert "continue=" in chunked.err


def test_label_columns_and_show_labels_add_columns(five: Program) -> None:
    assert five("get", "cm", "c0", "-L", "tier", "--no-headers").out.split()[-1] == "web"
    assert five("get", "cm", "c0", "--show-labels", "--no-headers").out.split()[-1] == "tier=web"


def test_watch_shows_what_is_there_and_what_comes(kubectl: Program, widgets: None) -> None:
    kubectl("create", "-f", "-", stdin=manifest(widget("a")))
    with kubectl.following("get", "widgets", "-w", "--output-watch-events") as watch:
        assert watch.until("a ").split()[:3] == ["ADDED", "a", "red"]
        kubectl("patch", "widget", "a", "--type=merge", "-p", '{"spec":{"colour":"blue"}}')
        assert watch.until("MODIFIED").split()[:3] == ["MODIFIED", "a", "blue"]
        kubectl("delete", "widget", "a")
        assert watch.until("DELETED").split()[:3] == ["DELETED", "a", "blue"]


def test_watch_only_shows_what_is_new(kubectl: Program) -> None:
    kubectl("create", "configmap", "old")
    with kubectl.following("get", "configmaps", "--watch-only", "-o", "name", "-l", "new") as watch:
        # The watch has begun once it shows a change, so changes are made until it does.
        for attempt in range(50):
            kubectl("create", "-f", "-", stdin=manifest(config_map(f"new-{attempt}", labels={"new": ""})))
            if watch.has_line(0.2):
                break
        assert watch.until("configmap/new-").startswith("configmap/new-")
    assert "configmap/old" not in watch.seen


def test_describe_shows_fields_and_events(kubectl: Program, namespace: str, widgets: None) -> None:
    kubectl("create", "-f", "-", stdin=manifest(widget("a", note="hello")))
    uid = kubectl("get", "widget", "a", "-o", "jsonpath={.metadata.uid}").out
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "a.1"},
        "involvedObject": {
            "apiVersion": "e2e.planform.dev/v1",
            "kind": "Widget",
            "name": "a",
            "namespace": namespace,
            "uid": uid,
        },
        "type": "Warning",
        "reason": "Squeaks",
        "message": "needs oil",
        "source": {"component": "ear"},
        "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    kubectl("create", "-f", "-", stdin=manifest(event))
    described = kubectl("describe", "widget", "a").out
    assert "Note:      hello" in described
    assert "Squeaks" in described
    assert "needs oil" in described
    row = kubectl("events", "--for", "widget/a", "--no-headers").out
    assert row.split()[1:4] == ["Warning", "Squeaks", "Widget/a"]
    assert "Squeaks" in kubectl("events", "--types=Warning").out
    assert "Squeaks" not in kubectl("events", "--types=Normal").out
    assert "needs oil" in kubectl("get", "events", "--field-selector", "involvedObject.name=a,type=Warning").out


@pytest.mark.parametrize("kind", ["namespace", "clusterrole", "crd", "serviceaccount", "configmap"])
def test_describe_knows_built_in_kinds(kubectl: Program, kind: str, widgets: None) -> None:
    kubectl("create", "configmap", "c")
    name = kubectl("get", kind, "-o", "jsonpath={.items[0].metadata.name}").out
    assert kubectl("describe", kind, name).lines[0].split() == ["Name:", name]


def test_cluster_info_finds_the_server(plane: RunningPlane) -> None:
    assert plane.url in plane.kubectl("cluster-info").out


def test_raw_paths_answer(plane: RunningPlane) -> None:
    assert plane.kubectl("get", "--raw", "/readyz").out == "ok"
    assert plane.kubectl("get", "--raw", "/livez").out == "ok"
    assert "[+]" in plane.kubectl("get", "--raw", "/readyz?verbose").out
