"""What a fresh plane holds, and that looking again writes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from planform.api.builtin import BUILTIN_KINDS
from planform.api.kinds import gvk
from planform.apiserver.auth.bootstrap import AUTOUPDATE, bootstrap_objects, ensure_bootstrap
from planform.apiserver.auth.rbac import GROUP, Rbac
from planform.apiserver.engine import open_engine
from planform.apiserver.local import LocalClient
from planform.apiserver.verbs.requests import ANONYMOUS, AUTHENTICATED, MASTERS, Attributes, User
from planform.clock import VirtualClock
from planform.store import Store, open_store

ROLE, BINDING = gvk(f"{GROUP}/v1", "ClusterRole"), gvk(f"{GROUP}/v1", "ClusterRoleBinding")
ANYONE = User("anyone", (AUTHENTICATED,))


@dataclass
class ServedPlane:
    store: Store
    client: LocalClient
    rbac: Rbac

    async def bind(self, role: str, user: str, namespace: str) -> User:
        binding = {
            "apiVersion": f"{GROUP}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"{role}-{user}", "namespace": namespace},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": user}],
        }
        await self.client.create(binding)
        return User(user, (AUTHENTICATED,))

    def may(self, user: User, verb: str, resource: str, group: str = "", namespace: str = "default") -> bool:
        plural, _, subresource = resource.partition("/")
        return self.rbac.allows(user, Attributes(verb, group, "v1", plural, subresource, namespace))


@pytest.fixture
async def plane() -> AsyncIterator[ServedPlane]:
    clock = VirtualClock()
    async with await open_store(None, clock=clock) as store:
        client = LocalClient(open_engine(store, clock))
        await ensure_bootstrap(client)
        yield ServedPlane(store, client, Rbac(store))


async def test_a_second_start_writes_nothing(plane: ServedPlane) -> None:
    before = plane.store.revision
    assert before == len(bootstrap_objects())
    assert await ensure_bootstrap(plane.client) == 0
    assert plane.store.revision == before


async def test_a_fresh_plane_has_the_namespaces_that_clients_expect(plane: ServedPlane) -> None:
    found = await plane.client.list(gvk("v1", "Namespace"))
    assert [each["metadata"]["name"] for each in found.items] == [
        "crossplane-system",
        "default",
        "kube-node-lease",
        "kube-public",
        "kube-system",
    ]


async def test_what_was_deleted_comes_back_and_what_was_taken_away_is_restored(plane: ServedPlane) -> None:
    await plane.client.delete(BINDING, "system:discovery")
    role = await plane.client.get(ROLE, "system:basic-user")
    rules = role["rules"]
    role["rules"] = [{"apiGroups": ["x"], "resources": ["y"], "verbs": ["z"]}]
    await plane.client.update(role)
    assert await ensure_bootstrap(plane.client) == 2
    assert (await plane.client.get(ROLE, "system:basic-user"))["rules"] == [*role["rules"], *rules]
    assert plane.rbac.allows(ANYONE, Attributes("get", path="/apis"))


async def test_a_role_that_its_owner_took_over_stays_as_it_is(plane: ServedPlane) -> None:
    role = await plane.client.get(ROLE, "system:basic-user")
    role["metadata"]["annotations"][AUTOUPDATE] = "false"
    role["rules"] = []
    await plane.client.update(role)
    assert await ensure_bootstrap(plane.client) == 0


async def test_discovery_is_for_the_authenticated_and_health_for_everyone(plane: ServedPlane) -> None:
    for path in ("/api", "/apis", "/apis/apps/v1", "/openapi/v3", "/version"):
        assert plane.rbac.allows(ANYONE, Attributes("get", path=path)), path
    assert not plane.rbac.allows(ANONYMOUS, Attributes("get", path="/apis"))
    assert not plane.rbac.allows(ANYONE, Attributes("get", path="/metrics"))
    assert plane.rbac.allows(User("p", ("system:monitoring",)), Attributes("get", path="/metrics"))
    for path in ("/healthz", "/livez", "/readyz", "/version"):
        assert plane.rbac.allows(ANONYMOUS, Attributes("get", path=path)), path


async def test_everyone_known_may_ask_about_themselves(plane: ServedPlane) -> None:
    assert plane.may(ANYONE, "create", "selfsubjectaccessreviews", "authorization.k8s.io", "")
    assert plane.may(ANYONE, "create", "selfsubjectrulesreviews", "authorization.k8s.io", "")
    assert plane.may(ANYONE, "create", "selfsubjectreviews", "authentication.k8s.io", "")
    assert not plane.may(ANYONE, "create", "subjectaccessreviews", "authorization.k8s.io", "")
    assert not plane.may(ANONYMOUS, "create", "selfsubjectreviews", "authentication.k8s.io", "")


async def test_view_reads_edit_writes_and_admin_grants(plane: ServedPlane) -> None:
    viewer, editor, admin = [await plane.bind(role, role, "default") for role in ("view", "edit", "admin")]
    for user, expected in ((viewer, "y n n n"), (editor, "y y y n"), (admin, "y y y y")):
        answers = (
            plane.may(user, "list", "configmaps"),
            plane.may(user, "create", "deployments", "apps"),
            plane.may(user, "get", "secrets"),
            plane.may(user, "create", "rolebindings", GROUP),
        )
        assert " ".join("y" if answer else "n" for answer in answers) == expected, user.name
        assert not plane.may(user, "list", "configmaps", namespace="other")
        assert not plane.may(user, "create", "clusterroles", GROUP, "")
    assert plane.may(editor, "create", "serviceaccounts/token")
    assert not plane.may(editor, "escalate", "roles", GROUP)


async def test_a_new_api_joins_the_default_roles_by_its_label(plane: ServedPlane) -> None:
    viewer = await plane.bind("view", "viewer", "default")
    admin = await plane.bind("admin", "admin", "default")
    assert not plane.may(viewer, "list", "widgets", "example.org")
    await plane.client.create(
        {
            "apiVersion": f"{GROUP}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "widgets", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
            "rules": [{"apiGroups": ["example.org"], "resources": ["widgets"], "verbs": ["list"]}],
        }
    )
    assert plane.may(viewer, "list", "widgets", "example.org")
    assert plane.may(admin, "list", "widgets", "example.org")


async def test_cluster_admin_holds_everything_by_its_binding_too(plane: ServedPlane) -> None:
    rules = plane.rbac.rules_for(User("root", (MASTERS,)), "default")
    assert any(rule.resources == ("*",) for rule in rules)


def test_default_roles_name_only_resources_that_are_served() -> None:
    served = {(kind.group, plural) for kind in BUILTIN_KINDS for plural in _paths_of(kind.plural, kind.subresources)}
    named = {
        (group, resource)
        for role in bootstrap_objects()
        for rule in role.get("rules", ())
        for group in rule.get("apiGroups", ())
        for resource in rule["resources"]
        if resource != "*"
    }
    assert named <= served


def _paths_of(plural: str, subresources: tuple[str, ...]) -> list[str]:
    return [plural, *(f"{plural}/{subresource}" for subresource in subresources)]
