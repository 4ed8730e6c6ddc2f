"""Section 9: tables, their columns and cells."""

from __future__ import annotations

import re

import pytest

from tests.contract.engines import TABLE, Engine, Object, case
from tests.contract.kinds import CRDS, at, config_map, plain, widget

COLUMNS: dict[str, tuple[str, list[str], list[str]]] = {
    "9-config-map": ("/api/v1/configmaps", ["Name", "Data", "Age"], []),
    "9-secret": ("/api/v1/secrets", ["Name", "Type", "Data", "Age"], []),
    "9-namespace": ("/api/v1/namespaces", ["Name", "Status", "Age"], []),
    "9-service-account": ("/api/v1/serviceaccounts", ["Name", "Age"], []),
    "9-service": (
        "/api/v1/services",
        ["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age"],
        ["Selector"],
    ),
    "9-event": (
        "/api/v1/events",
        ["Last Seen", "Type", "Reason", "Object", "Message"],
        ["Subobject", "Source", "First Seen", "Count", "Name"],
    ),
    "9-lease": ("/apis/coordination.k8s.io/v1/leases", ["Name", "Holder", "Age"], []),
    "9-deployment": (
        "/apis/apps/v1/deployments",
        ["Name", "Ready", "Up-to-date", "Available", "Age"],
        ["Containers", "Images", "Selector"],
    ),
    "9-replica-set": (
        "/apis/apps/v1/replicasets",
        ["Name", "Desired", "Current", "Ready", "Age"],
        ["Containers", "Images", "Selector"],
    ),
    "9-pod": (
        "/api/v1/pods",
        ["Name", "Ready", "Status", "Restarts", "Age"],
        ["IP", "Node", "Nominated Node", "Readiness Gates"],
    ),
    "9-crd": (CRDS, ["Name", "Scope", "Versions", "Created At"], ["Group", "Kind", "ShortNames", "Established"]),
    "9-role": ("/apis/rbac.authorization.k8s.io/v1/roles", ["Name", "Created At"], []),
    "9-role-binding": (
        "/apis/rbac.authorization.k8s.io/v1/rolebindings",
        ["Name", "Role", "Age"],
        ["Users", "Groups", "ServiceAccounts"],
    ),
    "9-custom": ("/apis/shop.example.org/v1/widgets", ["Name", "Size", "Ready", "Age"], ["Mode"]),
}


@pytest.mark.parametrize("row", COLUMNS)
@case(*COLUMNS)
def test_each_kind_has_its_columns(engine: Engine, row: str) -> None:
    path, narrow, wide = COLUMNS[row]
    table = engine.get(path, query={"limit": 1}, accept=TABLE).ok()
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    columns = table["columnDefinitions"]
    assert [column["name"] for column in columns if column["priority"] == 0] == narrow
    assert [column["name"] for column in columns if column["priority"] > 0] == wide
    [name] = [column for column in columns if column["name"] == "Name"]
    assert (name["type"], name["format"]) == ("string", "name")


@case("9-include-object", "9-shape")
def test_rows_carry_metadata_nothing_or_the_object(engine: Engine, ns: str) -> None:
    engine.post(at("configmaps", ns), config_map("c", {"a": "1"})).ok(201)
    path = at("configmaps", ns, "c")

    def row(include: str) -> Object:
        query = {"includeObject": include} if include else None
        return dict(engine.get(path, query=query, accept=TABLE).ok()["rows"][0])

    for include in ("", "Metadata"):
        assert row(include)["object"]["kind"] == "PartialObjectMetadata" and "data" not in row(include)["object"]
    assert row("None")["object"] is None
    assert row("Object")["object"]["data"] == {"a": "1"}
    assert row("")["cells"][:2] == ["c", 1]
    engine.get(path, query={"includeObject": "Half"}, accept=TABLE).refused(400, "BadRequest")


@case("9-paging", "4-get")
def test_a_table_pages_like_a_list(engine: Engine, ns: str) -> None:
    for name in ("a", "b", "c"):
        engine.post(at("widgets", ns), widget(name)).ok(201)
    first = engine.get(at("widgets", ns), query={"limit": 2}, accept=TABLE).ok()
    assert [row["cells"][0] for row in first["rows"]] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 1 and first["metadata"]["resourceVersion"]
    query = {"limit": 2, "continue": first["metadata"]["continue"]}
    second = engine.get(at("widgets", ns), query=query, accept=TABLE).ok()
    assert [row["cells"][0] for row in second["rows"]] == ["c"]


@case("9-cells", "9-age")
def test_cells_of_custom_kinds_follow_their_paths(engine: Engine, ns: str) -> None:
    engine.post(at("widgets", ns), widget("w", {"size": 4})).ok(201)
    [row] = engine.get(at("widgets", ns, "w"), accept=TABLE).ok()["rows"]
    assert row["cells"][:4] == ["w", 4, None, "auto"] and re.fullmatch(r"\d+s", row["cells"][4])
    conditions = [{"type": "Synced", "status": "False"}, {"type": "Ready", "status": "True"}]
    engine.patch(at("widgets", ns, "w", "status"), {"status": {"conditions": conditions}}).ok()
    [row] = engine.get(at("widgets", ns, "w"), accept=TABLE).ok()["rows"]
    assert row["cells"][2] == "True"


@case("9-custom-default")
def test_a_kind_without_columns_shows_name_and_age(engine: Engine, ns: str) -> None:
    engine.post(at("plains", ns), plain("p")).ok(201)
    table = engine.get(at("plains", ns), accept=TABLE).ok()
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Age"]


@case("9-created-at")
def test_created_at_is_the_timestamp(engine: Engine) -> None:
    path = f"{CRDS}/widgets.shop.example.org"
    created = engine.get(path).ok()["metadata"]["creationTimestamp"]
    [row] = engine.get(path, accept=TABLE).ok()["rows"]
    assert row["cells"][:4] == ["widgets.shop.example.org", "Namespaced", row["cells"][2], created]
    assert row["cells"][2] in ("v1(storage)", "v1")
