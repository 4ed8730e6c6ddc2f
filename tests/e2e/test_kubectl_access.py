"""Who one is and what one may do, as kubectl asks it."""

from __future__ import annotations

import pytest

from tests.e2e.control_plane import Program, RunningPlane, manifest

pytestmark = pytest.mark.xdist_group("e2e")


def test_the_administrator_may_do_everything(plane: RunningPlane) -> None:
    who = plane.kubectl("auth", "whoami", "-o", "json").json()["status"]["userInfo"]
    assert who["username"] == "planform-admin"
    assert "system:masters" in who["groups"]
    assert plane.kubectl("auth", "can-i", "*", "*", "--all-namespaces").out == "yes\n"
    assert plane.kubectl("auth", "can-i", "get", "/metrics").out == "yes\n"


def test_others_may_do_what_roles_say(plane: RunningPlane, kubectl: Program, namespace: str) -> None:
    ann = kubectl.with_("--as=ann", "--as-group=readers")
    assert ann("auth", "can-i", "list", "configmaps", code=1).out == "no\n"
    kubectl("create", "rolebinding", "r", "--clusterrole=view", "--group=readers")
    assert ann("auth", "can-i", "list", "configmaps").out == "yes\n"
    assert ann("auth", "can-i", "list", "secrets", code=1).out == "no\n"
    assert ann("auth", "can-i", "delete", "configmaps/c", code=1).out == "no\n"
    assert plane.kubectl("--as=ann", "auth", "can-i", "list", "configmaps", "-n", "default", code=1).out == "no\n"
    listed = [line.split()[0] for line in ann("auth", "can-i", "--list", "--no-headers").lines]
    assert "configmaps" in listed
    assert "secrets" not in listed
    who = ann("auth", "whoami", "-o", "json").json()["status"]["userInfo"]
    assert (who["username"], "readers" in who["groups"]) == ("ann", True)


def test_nobody_can_grant_what_they_do_not_have(kubectl: Program, namespace: str) -> None:
    kubectl("create", "role", "clerk", "--verb=create", "--resource=roles,rolebindings")
    kubectl("create", "rolebinding", "clerk", "--role=clerk", "--user=bob")
    bob = kubectl.with_("--as=bob")
    refused = bob("create", "role", "king", "--verb=*", "--resource=secrets", code=1).err
    assert 'user "bob"' in refused
    assert "is attempting to grant RBAC permissions not currently held" in refused
    refused = bob("create", "rolebinding", "king", "--clusterrole=cluster-admin", "--user=bob", code=1).err
    assert "is attempting to grant RBAC permissions not currently held" in refused


def test_reconcile_brings_roles_up_to_date(kubectl: Program, namespace: str) -> None:
    role = (
        f"apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: r, namespace: {namespace}}}\n"
        "rules: [{apiGroups: [''], resources: [pods], verbs: [%s]}]\n"
    )
    kubectl("create", "-f", "-", stdin=role % "get")
    assert "reconciled" in kubectl("auth", "reconcile", "-f", "-", stdin=role % "get, list").out
    assert kubectl("get", "role", "r", "-o", "jsonpath={.rules[*].verbs}").out.count("list") == 1


def test_reviews_can_be_created_from_files(kubectl: Program, namespace: str) -> None:
    """kubectl checks such kinds on its own side, with the older OpenAPI document in protobuf."""
    kubectl("create", "rolebinding", "r", "--clusterrole=view", "--user=eve")
    for verb, allowed in (("list", True), ("delete", False)):
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": "eve",
                "resourceAttributes": {"namespace": namespace, "verb": verb, "resource": "configmaps"},
            },
        }
        answer = kubectl("create", "-f", "-", "-o", "json", stdin=manifest(review)).json()
        assert answer["status"]["allowed"] is allowed
