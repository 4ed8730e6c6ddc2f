"""What doctor says about authors and tenants."""

from __future__ import annotations

from typing import Any

import pytest

from planform.api.authors import AUTHOR_ANNOTATION
from planform.api.kinds import Object
from planform.cli.diagnosis.tenancy import unrecorded, wants_tenants

RBAC = "rbac.authorization.k8s.io/v1"
XRD: Object = {
    "apiVersion": "apiextensions.crossplane.io/v2",
    "kind": "CompositeResourceDefinition",
    "metadata": {"name": "apps.example.org"},
    "spec": {"group": "example.org", "names": {"plural": "apps", "kind": "App"}},
}


def composition(**metadata: Any) -> Object:
    return {
        "apiVersion": "apiextensions.crossplane.io/v1",
        "kind": "Composition",
        "metadata": {"name": "apps", **metadata},
        "spec": {},
    }


def action_set(state: str) -> Object:
    metadata = {"name": "backup", "namespace": "team"}
    status = {"state": state} if state else {}
    return {"apiVersion": "cr.kanister.io/v1alpha1", "kind": "ActionSet", "metadata": metadata, "status": status}


def test_what_acts_without_an_author_is_listed_until_it_is_over() -> None:
    package = {"apiVersion": "pkg.crossplane.io/v1", "kind": "ConfigurationRevision", "name": "p", "controller": True}
    known = composition(annotations={AUTHOR_ANNOTATION: '{"user":"alice"}'})
    brought = composition(ownerReferences=[package])
    found = [*unrecorded([composition(), known, brought, action_set(""), action_set("complete"), XRD])]
    assert [finding.about for finding in found] == [
        "Composition.apiextensions.crossplane.io apps",
        "ActionSet.cr.kanister.io team/backup",
    ]


def role(name: str, group: str, resource: str, verb: str, **more: Any) -> Object:
    rules = [{"apiGroups": [group], "resources": [resource], "verbs": [verb]}]
    return {"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": name, **more}, "rules": rules}


def binding(role: str, kind: str, name: str) -> Object:
    return {
        "apiVersion": RBAC,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{role}-{name}"},
        "roleRef": {"kind": "ClusterRole", "name": role},
        "subjects": [{"kind": kind, "name": name}],
    }


GATHERING: Object = {
    "apiVersion": RBAC,
    "kind": "ClusterRole",
    "metadata": {"name": "edit"},
    "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "edit"}}]},
}


@pytest.mark.parametrize(
    ("rbac", "told"),
    [
        pytest.param([role("r", "example.org", "apps", "create"), binding("r", "User", "alice")], True, id="xrs"),
        pytest.param(
            [role("r", "apiextensions.crossplane.io", "*", "patch"), binding("r", "Group", "devs")],
            True,
            id="compositions",
        ),
        pytest.param(
            [GATHERING, role("r", "example.org", "apps", "*", labels={"to": "edit"}), binding("edit", "User", "alice")],
            True,
            id="aggregated",
        ),
        pytest.param([role("r", "example.org", "apps", "get"), binding("r", "User", "alice")], False, id="readers"),
        pytest.param([role("r", "*", "*", "*"), binding("r", "User", "root")], False, id="administrators"),
        pytest.param(
            [role("r", "example.org", "apps", "*"), binding("r", "ServiceAccount", "x")], False, id="controllers"
        ),
        pytest.param([binding("gone", "User", "alice")], False, id="no role"),
    ],
)
def test_tenants_are_noticed_by_what_they_may_write(rbac: list[Object], told: bool) -> None:
    assert bool([*wants_tenants([XRD], rbac, is_on=False)]) is told
    assert not [*wants_tenants([XRD], rbac, is_on=True)]
