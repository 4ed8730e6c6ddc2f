"""A control plane that several people use: each asks over the wire, by impersonation, and may do what was granted."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from planform.api.authors import Author, service_account
from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.names import ACTION_SET, BLUEPRINT, COMPOSITION, COMPOSITION_REVISION, XRD
from planform.app import Settings, open_control_plane
from planform.blueprints.actions import PhaseFunctions
from planform.client.kubeconfig import find_connection
from planform.client.kubernetes import KubernetesClient
from planform.client.rights import Access, ClusterRights, impersonation_headers, review
from planform.clock import SystemClock
from planform.errors import NotFound
from tests.harness.asking import asking_webhook
from tests.harness.contexts import all_controllers, condition_of, eventually, kubernetes_context, read, until_condition
from tests.harness.kubernetes import RealKubernetes

RBAC = "rbac.authorization.k8s.io"
NAMESPACE = GroupVersionKind("", "v1", "Namespace")
CONFIG_MAP = GroupVersionKind("", "v1", "ConfigMap")
SECRET = GroupVersionKind("", "v1", "Secret")
CLUSTER_ROLE_BINDING = GroupVersionKind(RBAC, "v1", "ClusterRoleBinding")

ALL = ["*"]
WRITE = ["get", "list", "watch", "create", "update", "patch", "delete"]


def rule(group: str, *resources: str, verbs: list[str] | None = None, names: list[str] | None = None) -> Object:
    """A policy rule: everything that can be done to these, unless `verbs` says less."""
    named = {"resourceNames": names} if names else {}
    return {"apiGroups": [group], "resources": list(resources), "verbs": verbs or WRITE, **named}


def obj(gvk: GroupVersionKind, name: str, namespace: str = "", **content: Any) -> Object:
    place = {"namespace": namespace} if namespace else {}
    metadata = {"name": name, **place, **content.pop("metadata", {})}
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata, **content}


def to_cluster_admin(user: str, name: str) -> Object:
    """What everybody would like to create."""
    return obj(
        CLUSTER_ROLE_BINDING,
        name,
        roleRef={"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
        subjects=[{"apiGroup": RBAC, "kind": "User", "name": user}],
    )


@dataclass
class Tenants:
    """Names of everything end in `unique`, since a real cluster is shared."""

    admin: KubernetesClient
    engine: str
    unique: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:8]}")
    _count: int = 0
    _grants: dict[str, str] = field(default_factory=dict)

    @property
    def team(self) -> str:
        return f"team-{self.unique}"

    @property
    def vault(self) -> str:
        """A namespace that is nobody's but the administrator's; its Secret `crown` has the data `jewels: secret`."""
        return f"vault-{self.unique}"

    @property
    def app(self) -> GroupVersionKind:
        return GroupVersionKind(f"{self.unique}.example.org", "v1", "App")

    @property
    def site(self) -> GroupVersionKind:
        """The kind of XRs that have no namespace."""
        return GroupVersionKind(self.app.group, "v1", "Site")

    def name(self, prefix: str = "x") -> str:
        self._count += 1
        return f"{prefix}-{self._count}-{self.unique}"

    def user(self, who: str) -> Author:
        return Author(f"{who}@{self.unique}", groups=("system:authenticated",))

    def of(self, who: str | Author) -> KubernetesClient:
        """A client of somebody: a word is a user of ours."""
        author = who if isinstance(who, Author) else self.user(who)
        return self.admin.with_headers(impersonation_headers(author))

    async def prepare(self) -> None:
        for space in (self.team, self.vault):
            await self.admin.create(obj(NAMESPACE, space))
        await self.admin.create(obj(SECRET, "crown", self.vault, data={"jewels": "c2VjcmV0"}))
        await self.admin.create(obj(CONFIG_MAP, "target", self.team, data={"colour": "red"}))
        free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        status = {"type": "object", "properties": {"found": {"type": "string"}}}
        schema = {"type": "object", "properties": {"spec": free, "status": status}}
        version = {"name": "v1", "served": True, "referenceable": True, "schema": {"openAPIV3Schema": schema}}
        for kind, plural, scope in ((self.app, "apps", "Namespaced"), (self.site, "sites", "Cluster")):
            spec = {
                "group": kind.group,
                "scope": scope,
                "names": {"kind": kind.kind, "plural": plural},
                "versions": [version],
            }
            made = await self.admin.create(obj(XRD, f"{plural}.{kind.group}", spec=spec))
            await until_condition(self.admin, made, "Established")

    async def grant(self, who: str | Author, *rules: Object, namespace: str = "") -> None:
        """Rights in a namespace, or everywhere; they count once the server says so."""
        author = who if isinstance(who, Author) else self.user(who)
        kinds = ("Role", "RoleBinding") if namespace else ("ClusterRole", "ClusterRoleBinding")
        role, binding = (GroupVersionKind(RBAC, "v1", kind) for kind in kinds)
        name = self._grants[_grant_key(author, rules, namespace)] = self.name("grant")
        await self.admin.create(obj(role, name, namespace, rules=list(rules)))
        await self.admin.create(
            obj(
                binding,
                name,
                namespace,
                roleRef={"apiGroup": RBAC, "kind": role.kind, "name": name},
                subjects=[{"apiGroup": RBAC, "kind": "User", "name": author.user}],
            )
        )
        access = _first_of(rules[0], namespace)

        async def counts() -> bool:
            return await review(self.admin, author, access)

        await eventually(counts, f"{author.user} may {access}")

    async def revoke(self, who: str | Author, *rules: Object, namespace: str = "") -> None:
        """Take rights away that were granted with the same words; the server knows when this returns."""
        author = who if isinstance(who, Author) else self.user(who)
        name, access = self._grants.pop(_grant_key(author, rules, namespace)), _first_of(rules[0], namespace)
        kind = "RoleBinding" if namespace else "ClusterRoleBinding"
        await self.admin.delete(GroupVersionKind(RBAC, "v1", kind), name, namespace=namespace)

        async def counts() -> bool:
            return not await review(self.admin, author, access)

        await eventually(counts, f"{author.user} may not {access}")

    async def service_account(self, name: str, *rules: Object, namespace: str = "", where: str = "") -> Author:
        """A ServiceAccount of the team's namespace, or `namespace`, with rights there, or in `where`."""
        home = namespace or self.team
        await self.admin.create(obj(GroupVersionKind("", "v1", "ServiceAccount"), name, home))
        account = service_account(home, name)
        if rules:
            await self.grant(account, *rules, namespace=where or home)
        return account

    # -- running

    async def run(
        self,
        who: str,
        *phases: Object,
        blueprint_by: str = "",
        annotations: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Object:
        """A Blueprint of these phases and an ActionSet that runs it, to its end. `more` is for the ActionSet."""
        name = self.name("run")
        actions = {"act": {"phases": list(phases)}}
        metadata = {"annotations": dict(annotations or {})}
        await self.of(blueprint_by or who).create(obj(BLUEPRINT, name, self.team, actions=actions, metadata=metadata))
        return await self.run_blueprint(who, name, **more)

    async def run_blueprint(
        self, who: str, blueprint: str, *, annotations: Mapping[str, str] | None = None, request: Object | None = None
    ) -> Object:
        target = {"apiVersion": "v1", "resource": "configmaps", "name": "target", "namespace": self.team}
        action = {"name": "act", "blueprint": blueprint, "object": target, **(request or {})}
        metadata = {"annotations": dict(annotations or {})}
        wanted = obj(ACTION_SET, self.name("set"), self.team, spec={"actions": [action]}, metadata=metadata)
        created = await self.of(who).create(wanted)

        async def ended() -> Object | None:
            found = await self.admin.get(ACTION_SET, created["metadata"]["name"], namespace=self.team)
            return found if (found.get("status") or {}).get("state") in ("complete", "failed") else None

        return await eventually(ended, "the ActionSet's end")

    # -- composing

    def composition(self, *objects: Object, annotations: Mapping[str, str] | None = None) -> Object:
        """What composes these very objects, for an XR that may: a Site if any of them has no namespace."""
        resources = [
            {"name": f"r{index}", "base": each, "readinessChecks": [{"type": "None"}]}
            for index, each in enumerate(objects)
        ]
        step = {
            "step": "compose",
            "functionRef": {"name": "function-patch-and-transform"},
            "input": {"apiVersion": "pt.fn.crossplane.io/v1beta1", "kind": "Resources", "resources": resources},
        }
        return obj(
            COMPOSITION,
            self.name("composition"),
            metadata={"annotations": dict(annotations or {})},
            spec={
                "compositeTypeRef": {"apiVersion": self.app.api_version, "kind": self._fitting(objects).kind},
                "mode": "Pipeline",
                "pipeline": [step],
            },
        )

    def _fitting(self, objects: Iterable[Object]) -> GroupVersionKind:
        return self.app if all(each["metadata"].get("namespace") == self.team for each in objects) else self.site

    async def revision_of(self, composition: Object) -> Object:
        async def made() -> Object | None:
            label = f"crossplane.io/composition-name={composition['metadata']['name']}"
            found = (await self.admin.list(COMPOSITION_REVISION, labels=label)).items
            return max(found, key=lambda each: int(each["spec"]["revision"])) if found else None

        return await eventually(made, "a revision")

    async def compose(
        self, who: str, *objects: Object, xr_by: str = "", annotations: Mapping[str, str] | None = None
    ) -> Object:
        """A Composition by somebody, or the administrator, and an XR of it, once it is known how that went."""
        writer = self.of(who) if who else self.admin
        composition = await writer.create(self.composition(*objects, annotations=annotations))
        kind = self._fitting(objects)
        wanted = self.xr(composition, kind)
        xr = await (self.of(xr_by) if xr_by else self.admin).create(wanted)
        return await self.settled(xr)

    def xr(self, composition: Object, kind: GroupVersionKind | None = None, namespace: str = "") -> Object:
        reference = {"crossplane": {"compositionRef": {"name": composition["metadata"]["name"]}}}
        kind = kind or self.app
        return obj(kind, self.name("xr"), (namespace or self.team) if kind == self.app else "", spec=reference)

    async def settled(self, xr: Object) -> Object:
        async def told() -> Object | None:
            metadata = xr["metadata"]
            found = await self.admin.get(gvk_of(xr), metadata["name"], namespace=metadata.get("namespace") or "")
            synced = condition_of(found, "Synced")
            return found if synced is not None and synced["reason"] != "ReconcilePaused" else None

        return await eventually(told, "the XR says how its composition went")

    async def until(self, check: Callable[[], Awaitable[Any]], what: str) -> Any:
        return await eventually(check, what)

    async def exists(self, wanted: Object) -> bool:
        metadata = wanted["metadata"]
        return await read(self.admin, gvk_of(wanted), metadata["name"], metadata.get("namespace") or "") is not None

    async def clean(self) -> None:
        for space in (self.team, self.vault):
            with suppress(NotFound):
                await self.admin.delete(NAMESPACE, space)


def _grant_key(author: Author, rules: Iterable[Object], namespace: str) -> str:
    return f"{author.user} {namespace} {list(rules)}"


def _first_of(rule: Object, namespace: str) -> Access:
    """The first thing that a rule allows, to ask about."""
    name = (rule.get("resourceNames") or ["x"])[0]
    return Access(rule["verbs"][0], rule["apiGroups"][0], rule["resources"][0].replace("*", "x"), namespace, name)


def said(found: Object) -> str:
    """All that an object's status says, for a look at its words."""
    return str(found.get("status") or {})


@asynccontextmanager
async def open_tenants(cluster: RealKubernetes | None, **settings: Any) -> AsyncIterator[Tenants]:
    """On a real cluster if there is one, else on a control plane of its own in this process."""
    clock = SystemClock()
    if cluster is None:
        async with open_control_plane(Settings(data=None, **settings)) as plane:
            connection = find_connection(clock=clock, path=plane.kubeconfig)
            async with KubernetesClient(connection, clock=clock, rng=Random(1)) as admin:
                tenants = Tenants(admin, "embedded")
                await tenants.prepare()
                yield tenants
        return
    async with kubernetes_context(cluster) as context, asking_webhook(context, cluster):
        assert isinstance(context.client, KubernetesClient)
        tenants = Tenants(context.client, "kubernetes")
        async with all_controllers(
            context,
            rights=ClusterRights(context.client),
            phase_functions=PhaseFunctions(engine="kubernetes"),
            **settings,
        ):
            await tenants.prepare()
            yield tenants
            await tenants.clean()
