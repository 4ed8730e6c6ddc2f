"""helm installs, upgrades, rolls back and uninstalls a chart with a definition, a hook, RBAC and workloads."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.e2e.control_plane import Program, RunningPlane

pytestmark = pytest.mark.xdist_group("e2e")

CHART = str(Path(__file__).parent / "chart")


@pytest.fixture
def helm(plane: RunningPlane, namespace: str) -> Program:
    return plane.helm.with_("--namespace", namespace)


def names(kubectl: Program) -> set[str]:
    kinds = "configmaps,deployments,services,shelves,serviceaccounts,roles,rolebindings"
    return set(kubectl("get", kinds, "-l", "app.kubernetes.io/managed-by=Helm", "-o", "name").lines)


OF_THE_CHART = {
    "configmap/shop-settings",
    "deployment.apps/shop",
    "service/shop",
    "shelf.shop.e2e.planform.dev/shop",
    "serviceaccount/shop",
    "role.rbac.authorization.k8s.io/shop",
    "rolebinding.rbac.authorization.k8s.io/shop",
}


def test_a_release_is_installed_upgraded_rolled_back_and_uninstalled(helm: Program, kubectl: Program) -> None:
    installed = helm("install", "shop", CHART)
    assert "STATUS: deployed" in installed.out
    assert names(kubectl) == OF_THE_CHART
    password = kubectl("get", "secret", "shop-login", "-o", "jsonpath={.data.password}").out
    assert base64.b64decode(password) == b"open sesame"
    assert kubectl("get", "configmap", "shop-before-install", "-o", "name").out, "the hook ran"

    helm("upgrade", "shop", CHART, "--set", "colour=blue,replicas=3")
    assert names(kubectl) == OF_THE_CHART | {"configmap/shop-blues"}
    state = "jsonpath={.items[*].spec.replicas}{.items[*].spec.length}"
    assert kubectl("get", "deployments,shelves", "-o", state).out == "34"

    helm("rollback", "shop", "1")
    assert names(kubectl) == OF_THE_CHART
    assert kubectl("get", "deployments,shelves", "-o", state).out == "12"
    assert kubectl("get", "configmap", "shop-settings", "-o", "jsonpath={.data.colour}").out == "red"
    history = helm("history", "shop", "-o", "json").json()
    assert [(entry["revision"], entry["status"]) for entry in history] == [
        (1, "superseded"),
        (2, "superseded"),
        (3, "deployed"),
    ]
    assert [release["name"] for release in helm("list", "-o", "json").json()] == ["shop"]
    assert 'colour: "red"' in helm("get", "manifest", "shop").out

    assert helm("uninstall", "shop").out == 'release "shop" uninstalled\n'
    assert names(kubectl) == set()
    assert kubectl("get", "secrets", "-o", "name").out == ""
    assert helm("list", "-o", "json").json() == []


def test_helm_says_that_workloads_are_stored_and_not_run(helm: Program) -> None:
    warned = helm("install", "shop", CHART).err
    assert "this control plane stores Deployment objects but does not run them" in warned


def test_a_release_whose_object_is_taken_is_refused_and_can_be_retried(helm: Program, kubectl: Program) -> None:
    kubectl("create", "configmap", "shop-settings")
    refused = helm("install", "shop", CHART, code=1).err
    assert "ConfigMap" in refused
    assert "cannot be imported into the current release" in refused
    kubectl("delete", "configmap", "shop-settings")
    helm("upgrade", "--install", "shop", CHART)
    assert names(kubectl) == OF_THE_CHART


def test_a_chart_is_checked_against_the_server_without_being_installed(helm: Program, kubectl: Program) -> None:
    rendered = helm("install", "shop", CHART, "--dry-run=server")
    assert "planform" in rendered.out, "the template sees the server's version"
    assert names(kubectl) == set()
