"""The tenants of examples/saas-tenants: 200 of them become what they should be, and nobody sees what is not theirs.

The page itself is followed by tests/e2e/test_examples.py; here are the attempts that it has no room for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.control_plane import Program, RunningPlane, manifest, running_plane
from tests.e2e.test_tutorial import ROOT

EXAMPLE = ROOT / "examples" / "saas-tenants"
TENANTS = 200
PATIENCE_SECONDS = 120.0
DATABASES = "databases.saas.example.org"

pytestmark = [pytest.mark.xdist_group("saas-tenants"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlane]:
    directory = tmp_path_factory.mktemp("tenants")
    with running_plane(directory, "--data", str(directory / "data")) as plane:
        plane.planform("apply", "-f", str(EXAMPLE / "platform"))
        established = ("xrd/tenants.saas.example.org", f"xrd/{DATABASES}", "--for", "condition=Established")
        plane.planform("wait", *established)
        sam = somebody(plane, "sam", "--group", "sales")
        for first in range(0, TENANTS, 50):
            sam("apply", "-f", "-", stdin=manifest(*(tenant(number) for number in range(first, first + 50))))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (ready := count_of_ready(plane)) < TENANTS:
            assert time.monotonic() < deadline, f"{ready} of {TENANTS} tenants are ready"
            time.sleep(0.5)
        yield plane


def count_of_ready(plane: RunningPlane) -> int:
    found = plane.kubectl("get", "tenants.saas.example.org", "-o", "json").json()["items"]
    return sum(("Ready", "True") in ((c["type"], c["status"]) for c in conditions(each)) for each in found)


def tenant(number: int) -> dict[str, object]:
    spec = {"owner": f"user-{number}", "plan": "business" if number % 2 else "free"}
    metadata = {"name": f"t{number}"}
    return {"apiVersion": "saas.example.org/v1", "kind": "Tenant", "metadata": metadata, "spec": spec}


def database(name: str, size: str = "small") -> str:
    metadata = {"name": name}
    return manifest(
        {"apiVersion": "saas.example.org/v1", "kind": "Database", "metadata": metadata, "spec": {"size": size}}
    )


def somebody(plane: RunningPlane, user: str, *more: str) -> Program:
    """kubectl with an identity of its own."""
    file = plane.directory / f"{user}.kubeconfig"
    if not file.exists():
        data = ("--data", str(plane.directory / "data"))
        plane.planform("kubeconfig", "create", "--user", user, *more, "--file", str(file), *data)
    return plane.kubectl.with_("--kubeconfig", str(file))


def test_each_of_200_tenants_has_namespace_rights_quota_and_a_ready_database(plane: RunningPlane) -> None:
    namespaces = {f"tenant-t{number}" for number in range(TENANTS)}
    for kind, name in (("role", "tenant"), ("rolebinding", "tenant"), ("resourcequota", "plan"), (DATABASES, "main")):
        found = plane.kubectl("get", kind, "--all-namespaces", "-o", "json").json()["items"]
        assert {each["metadata"]["namespace"] for each in found if each["metadata"]["name"] == name} == namespaces
    ready = [each for each in found if ("Ready", "True") in ((c["type"], c["status"]) for c in conditions(each))]
    assert len(ready) == TENANTS
    sizes = {each["metadata"]["namespace"]: each["spec"]["size"] for each in found}
    assert (sizes["tenant-t0"], sizes["tenant-t1"]) == ("small", "large")


def conditions(obj: dict[str, Any]) -> list[dict[str, str]]:
    return list((obj.get("status") or {}).get("conditions") or ())


def test_an_owner_works_in_the_own_namespace_and_in_no_other(plane: RunningPlane) -> None:
    owner = somebody(plane, "user-1")
    owner("apply", "-n", "tenant-t1", "-f", "-", stdin=database("mine"))
    owner("delete", "-n", "tenant-t1", f"{DATABASES}/mine", "--wait=false")
    owner("get", "secrets,configmaps,resourcequotas", "-n", "tenant-t1")
    for attempt in (
        ("get", DATABASES, "-n", "tenant-t2"),
        ("get", DATABASES, "--all-namespaces"),
        ("get", "secrets", "-n", "tenant-t2"),
        ("delete", f"{DATABASES}/main", "-n", "tenant-t2"),
        ("get", "tenants.saas.example.org"),
        ("patch", "tenants.saas.example.org/t1", "--type", "merge", "-p", '{"spec": {"plan": "business"}}'),
        ("label", "namespace", "tenant-t1", "saas.example.org/plan=business", "--overwrite"),
        ("delete", "resourcequota/plan", "-n", "tenant-t1"),
        ("create", "rolebinding", "more", "--clusterrole", "admin", "--user", "user-1", "-n", "tenant-t1"),
        ("get", "compositions"),
    ):
        assert "forbidden" in owner(*attempt, code=1).err.lower(), attempt
    assert "forbidden" in owner("create", "-n", "tenant-t2", "-f", "-", stdin=database("theirs"), code=1).err.lower()


def test_sales_makes_tenants_and_sees_nothing_in_their_namespaces(plane: RunningPlane) -> None:
    sales = somebody(plane, "sam")
    assert len(sales("get", "tenants.saas.example.org", "-o", "name").lines) == TENANTS
    for attempt in (
        ("get", DATABASES, "-n", "tenant-t1"),
        ("get", "secrets", "-n", "tenant-t1"),
        ("get", "namespaces"),
        ("delete", "tenants.saas.example.org/t1"),
        ("create", "clusterrolebinding", "more", "--clusterrole", "cluster-admin", "--user", "sam"),
    ):
        assert "forbidden" in sales(*attempt, code=1).err.lower(), attempt


def test_a_plan_bounds_what_an_owner_may_ask_for(plane: RunningPlane) -> None:
    said = somebody(plane, "user-2")("create", "-n", "tenant-t2", "-f", "-", stdin=database("big", "large"), code=1).err
    assert "the plan free has small databases only" in said


def test_an_owner_who_is_replaced_loses_the_rights(plane: RunningPlane) -> None:
    before, after = somebody(plane, "user-5"), somebody(plane, "heir")
    before("get", DATABASES, "-n", "tenant-t5")
    change = ("--type", "merge", "-p", '{"spec": {"owner": "heir"}}')
    somebody(plane, "sam")("patch", "tenants.saas.example.org/t5", *change)
    goal = "jsonpath={.subjects[0].name}=heir"
    plane.planform("wait", "rolebinding/tenant", "-n", "tenant-t5", "--for", goal)
    after("get", DATABASES, "-n", "tenant-t5")
    assert "forbidden" in before("get", DATABASES, "-n", "tenant-t5", code=1).err.lower()
