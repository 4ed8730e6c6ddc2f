"""Providers: packages of managed resources, whose controller runs beside the control plane and talks to its API.

Each has an account of its own, which may do everything with the kinds that came with its package, and little else. On
this machine it proves who it is with a certificate of the control plane's authority for that account; in a cluster, its
pods have the account.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from planform.api.extensions.packages import RevisionSpec
from planform.api.kinds import Object, gvk_of
from planform.api.metadata import labels_of, name_of, namespace_of, uid_of
from planform.api.names import (
    CLUSTER_ROLE,
    CRD,
    MANAGED_DEFINITION,
    PACKAGE_LABEL,
    PACKAGES_GROUP,
    PROVIDER,
    PROVIDER_REVISION,
    SYSTEM_NAMESPACE,
)
from planform.api.objects import spec_of
from planform.api.owners import owners_of
from planform.apiserver.auth.private_files import make_private_directory
from planform.client.informer import InformerEvent, ObjectKey
from planform.client.kubeconfig import write_kubeconfig
from planform.errors import AlreadyExists, NotFound
from planform.packages.contents import Installed
from planform.packages.controller import Content, Examined, PackageController
from planform.packages.errors import PackageError
from planform.packages.fetching import Fetched
from planform.packages.function_controller import Packaging
from planform.packages.runtimes.certificates import CALLER, Authority
from planform.packages.runtimes.deployments import PORT, SERVICE_ACCOUNT, covers, identified, stamped
from planform.packages.runtimes.executables import WEBHOOK_PORT, NotRunnable
from planform.packages.runtimes.host import RuntimeStatus
from planform.packages.runtimes.kubernetes import KubernetesHost
from planform.packages.runtimes.launching import Wanted
from planform.packages.safe_start import AWAITING, AWAITING_ACTIVATION, RUNTIME_ACTIVE, is_safe_start, waiting_of
from planform.packages.shown_deployments import ShownDeployments
from planform.packages.webhooks import WebhookService
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Controller, Result
from planform.reconcile.sources import Source, to_owner

NAME: Final = "providers"
_NOT_LISTENING: Final = "the control plane does not listen yet"
_NOT_HERE: Final = "providers run in the cluster: start the controllers with --function-runtime kubernetes"
_SOON: Final = 0.2
_ALL: Final = ["*"]


class ProviderController(PackageController):
    """Keeps the revisions of every Provider, and runs the active one. `server` is where the control plane listens;
    empty as long as it does not. `authority` signs for providers that run on this machine; without a server that trusts
    it, none do."""

    def __init__(
        self,
        context: ControllerContext,
        packaging: Packaging,
        authority: Authority | None,
        data: Path,
        server: Callable[[], str] | None,
    ) -> None:
        super().__init__(context, NAME, PROVIDER, PROVIDER_REVISION, packaging.contents.source)
        self._packaging = packaging
        self._authority = authority
        self._accounts = data / "accounts"
        self._server = server
        self._hosted: dict[str, str] = {}  # the Provider of each revision that runs here
        self._waiting: set[str] = set()  # Providers that are not started before kinds of theirs are served
        self._shown = ShownDeployments(context, packaging.contents, self._manager)

    def _started(self, controller: Controller[ObjectKey]) -> None:
        def runs_otherwise(revision: str) -> None:
            if provider := self._hosted.get(revision):
                controller.queue.add(ObjectKey("", provider))

        self._packaging.host.subscribe(runs_otherwise)
        self._packaging.contents.deliveries.subscribe(self._look_again_on(controller))
        if self._packaging.lock is not None:
            self._packaging.lock.subscribe(self._look_again_on(controller))

    def _more_sources(self) -> Sequence[Source[ObjectKey]]:
        to_package = to_owner(PACKAGES_GROUP, PROVIDER.kind, cluster_scoped=True, controller=False)

        def to_waiting(definition: InformerEvent) -> Iterable[ObjectKey]:
            return [key for key in to_package(definition) if key.name in self._waiting]

        return (Source(MANAGED_DEFINITION, to_waiting),)

    async def reconcile(self, key: ObjectKey) -> Result:
        result = await super().reconcile(key)
        return Result(requeue_after=_SOON) if self._not_yet() == _NOT_LISTENING else result

    def _not_yet(self) -> str:
        """Why no provider can be run; empty if they can."""
        if isinstance(self._packaging.host, KubernetesHost):
            return ""
        if self._server is None:
            return _NOT_HERE
        return "" if self._server() else _NOT_LISTENING

    async def _content(self, package: Object, revisions: Mapping[str, Object]) -> Content:
        return await self._packaging.contents.content(package, revisions)

    async def _examine(self, revision: Object) -> Examined:
        name, host = name_of(revision), self._packaging.host
        if not spec_of(revision, RevisionSpec).is_active:
            host.release(name)
            self._packaging.contents.rest(revision)
            await self._show(revision, replicas=0)
            return Examined()
        service = await self._webhook_service(revision)
        installed = await self._packaging.contents.install(revision, PROVIDER.kind, service)
        if installed.fetched is None:
            return Examined(installed.problem, "its package is not installed", installed.status_fields)
        provider = str(labels_of(revision)[PACKAGE_LABEL])
        self._hosted[name] = provider
        if (waits := await self._waits(revision, provider, installed)) is not None:
            return waits
        if problem := self._not_yet():
            return Examined("", problem, installed.status_fields)
        if other := self._runs_besides(name, provider):
            return Examined("", f'it starts once revision "{other}" has ended', installed.status_fields)
        try:
            if isinstance(host, KubernetesHost):
                deployed = await self._packaging.contents.deployed(revision, provider=True)
                await self._allow(revision, provider, installed.fetched, deployed.account, host.namespace)
                return _running(host.ensure(deployed), installed)
            await self._ensure_account(revision, provider)
            await self._allow(revision, provider, installed.fetched, provider, SYSTEM_NAMESPACE)
            wanted = await self._wanted(revision, provider, installed.fetched)
        except NotRunnable as error:
            return Examined("", error.message, installed.status_fields)
        runtime_status = host.ensure(wanted)
        await self._show(revision, replicas=1, available=int(runtime_status.ready))
        return _running(runtime_status, installed)

    async def _waits(self, revision: Object, provider: str, installed: Installed) -> Examined | None:
        """How a revision is that is not started yet; None if nothing is in its way."""
        assert installed.fetched is not None
        self._waiting.discard(provider)
        if not is_safe_start(installed.fetched.package):
            return None
        self._waiting.add(provider)  # before anything is read: what changes meanwhile is heard of
        waiting = await waiting_of(self._client, revision)
        if waiting.problem:
            return Examined("", waiting.problem, installed.status_fields)
        if not waiting.for_activation:
            self._waiting.discard(provider)
            return None
        await self._show(revision, replicas=0)
        rests = (AWAITING, AWAITING_ACTIVATION.message)
        return Examined("", "", installed.status_fields, conditions=[AWAITING_ACTIVATION], rests=rests)

    async def _show(self, revision: Object, *, replicas: int, available: int = 0) -> None:
        """Have the Deployment of a revision say how it is; a cluster has one that runs it."""
        if isinstance(self._packaging.host, KubernetesHost) or self._server is None:
            return
        if not spec_of(revision, RevisionSpec).is_active:
            await self._shown.hide(revision)
            return
        try:
            await self._shown.show(revision, replicas=replicas, available=available)
        except NotRunnable:
            pass  # which is said of the revision

    async def _webhook_service(self, revision: Object) -> WebhookService | None:
        """Where the provider serves webhooks; None if it does not run, or it is not known how."""
        host, provider = self._packaging.host, str(labels_of(revision)[PACKAGE_LABEL])
        if isinstance(host, KubernetesHost):
            try:
                deployed = await self._packaging.contents.deployed(revision, provider=True)
            except (NotRunnable, PackageError):
                return None  # which is said when it shall run
            return WebhookService(provider, host.namespace, deployed.service, PORT, await host.authority())
        if self._authority is None or self._server is None:
            return None
        authority = await asyncio.to_thread(self._authority.kept_client, "functions", CALLER, ())
        return WebhookService(provider, SYSTEM_NAMESPACE, provider, WEBHOOK_PORT, authority.authority.encode())

    def _runs_besides(self, revision: str, provider: str) -> str:
        """Another revision of the provider that has not ended: two would both create what is missing."""
        others = (each for each, owner in sorted(self._hosted.items()) if owner == provider and each != revision)
        return next((each for each in others if self._packaging.host.runtime_status(each) is not None), "")

    async def _wanted(self, revision: Object, provider: str, fetched: Fetched) -> Wanted:
        if fetched.executable is None:
            raise NotRunnable("the package has no program to run: its image has neither an entrypoint nor our label")
        settings = await self._packaging.contents.settings(revision)
        kubeconfig = await asyncio.to_thread(self._write_account, provider)
        return Wanted(
            provider,
            name_of(revision),
            uid_of(revision),
            fetched.executable,
            settings,
            fetched.digest,
            kubeconfig,
        )

    def _write_account(self, provider: str) -> Path:
        """The kubeconfig of a provider's account; its certificate is issued anew before it ends."""
        user = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{provider}"
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{SYSTEM_NAMESPACE}", "system:authenticated")
        assert self._authority is not None  # without, nothing runs on this machine
        credential = self._authority.kept_client(f"provider-{provider}", user, groups)
        make_private_directory(self._accounts / provider)
        path = self._accounts / provider / "kubeconfig"
        write_kubeconfig(
            path,
            name="planform",
            server=self._server() if self._server is not None else "",
            ca=credential.authority.encode(),
            certificate=credential.certificate.encode(),
            key=credential.key.encode(),
        )
        return path

    async def _ensure_account(self, revision: Object, provider: str) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}}
        try:
            await self._client.create(namespace, manager=self._manager)
        except AlreadyExists:
            pass
        about = {"name": provider, "namespace": SYSTEM_NAMESPACE, "ownerReferences": [_package_of(revision)]}
        await self._bring({"apiVersion": SERVICE_ACCOUNT.api_version, "kind": SERVICE_ACCOUNT.kind, "metadata": about})

    async def _allow(self, revision: Object, provider: str, fetched: Fetched, account: str, namespace: str) -> None:
        """Give the account its rights."""
        role = f"crossplane:provider:{provider}:system"
        about = {"name": role, "ownerReferences": [_package_of(revision)]}
        kind = {"apiVersion": CLUSTER_ROLE.api_version, "kind": CLUSTER_ROLE.kind}
        await self._bring({**kind, "metadata": about, "rules": list(_rules(fetched))})
        await self._bring(
            {
                **kind,
                "kind": "ClusterRoleBinding",
                "metadata": about,
                "roleRef": {"apiGroup": CLUSTER_ROLE.group, "kind": CLUSTER_ROLE.kind, "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
            }
        )

    async def _bring(self, wanted: Object) -> None:
        """Apply an object unless it is there as it was applied."""
        obj = stamped(wanted)
        present: Object | None = None
        try:
            namespace = namespace_of(wanted)
            present = await self._client.get(gvk_of(obj), name_of(wanted), namespace=namespace)
        except NotFound:
            pass  # then it is made
        if not covers(present, obj):
            await self._client.apply(identified(obj, present), manager=self._manager, force=True)

    async def _gone(self, name: str) -> None:
        """Nothing of a Provider that was uninstalled goes on running."""
        self._packaging.contents.deliveries.gone(PROVIDER.kind, name)
        for revision in [each for each, provider in self._hosted.items() if provider == name]:
            del self._hosted[revision]
            self._packaging.host.forget(revision)


def _running(runtime_status: RuntimeStatus, installed: Installed) -> Examined:
    """How a revision is that was told to run."""
    conditions = [] if runtime_status.problem else [RUNTIME_ACTIVE]
    return Examined(
        "", runtime_status.problem, installed.status_fields, conditions=conditions, remark=runtime_status.remark
    )


def _package_of(revision: Object) -> Object:
    return next(each for each in owners_of(revision) if each.get("controller"))


def _rules(fetched: Fetched) -> Iterable[dict[str, Any]]:
    """Everything with the kinds of the package; events, leases and secrets, which every provider works with; and a
    look at definitions, by which some find out what they serve."""
    found: dict[str, set[str]] = {}
    for obj in fetched.package.objects:
        if gvk_of(obj) in (CRD, MANAGED_DEFINITION):
            plural = str(obj["spec"]["names"]["plural"])
            found.setdefault(str(obj["spec"]["group"]), set()).update(
                (plural, f"{plural}/status", f"{plural}/finalizers")
            )
    for group, resources in sorted(found.items()):
        yield {"apiGroups": [group], "resources": sorted(resources), "verbs": _ALL}
    yield {"apiGroups": [""], "resources": ["events", "secrets", "configmaps"], "verbs": _ALL}
    yield {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": _ALL}
    yield {
        "apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"],
        "verbs": ["get", "list", "watch"],
    }
