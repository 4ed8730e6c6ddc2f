"""With whose rights a composed resource is written.

The control plane's own, as on Crossplane, with two exceptions. Where a ServiceAccount is named, by the Composition or
the XR's namespace, it writes everything. And what gives rights away or acts by itself (roles and bindings, webhooks and
admission policies, packages, Usages of other namespaces, and the kinds that record their author) is written as the
author of the revision, so that nobody composes what they could not create.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planform.api.annotations import annotation
from planform.api.authors import (
    AUTHOR_ANNOTATION,
    SERVICE_ACCOUNT_ANNOTATION,
    author_of,
    is_authored,
    service_account,
    service_account_of,
)
from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.metadata import name_of
from planform.api.names import PACKAGES_GROUP
from planform.api.usages import holds_in_another_namespace
from planform.client.informer import InformerEvent
from planform.client.protocol import Client
from planform.client.remembering import RememberingClient
from planform.client.rights import Access, Rights
from planform.functions.errors import CredentialsUnavailable
from planform.functions.runner import CredentialSource
from planform.reconcile.manager import Manager
from planform.reconcile.sources import Subscription
from planform.xrs.composed_kinds import ComposedKinds

_NAMESPACE: Final = GroupVersionKind("", "v1", "Namespace")
_GUARDED_GROUPS: Final = frozenset({"rbac.authorization.k8s.io", "admissionregistration.k8s.io", PACKAGES_GROUP})


class NamespaceAccounts:
    """The ServiceAccounts that namespaces name for the XRs in them, as the watch last told."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._named: dict[str, tuple[str, str]] = {}
        self._subscription: Subscription | None = None

    def start(self) -> None:
        if self._subscription is None:
            self._subscription = self._manager.subscribe(_NAMESPACE, self._changed)

    async def synced(self) -> None:
        if self._subscription is not None:
            await self._subscription.synced()

    def get(self, namespace: str) -> tuple[str, str] | None:
        return self._named.get(namespace)

    def _changed(self, change: InformerEvent) -> None:
        name = name_of(change.object)
        named = None if change.type == "DELETED" else service_account_of(change.object, name)
        if named is None:
            self._named.pop(name, None)
        else:
            self._named[name] = named


class Writers:
    """Chooses the client for each composed resource of one reconcile. Nothing is asked before something is written."""

    def __init__(
        self,
        client: Client,
        rights: Rights,
        revision: Mapping[str, Any],
        account: tuple[str, str] | None,
        kinds: ComposedKinds,
    ) -> None:
        self._client = client
        self._rights = rights
        self._revision = revision
        self._account = service_account_of(revision) or account
        self._kinds = kinds

    def writer(self, obj: Object) -> Client:
        """Raises ComposedKindDenied for what nobody may compose here."""
        self._kinds.check(gvk_of(obj))
        if self._account is not None:
            return self._remembering(self._rights.acting(service_account(*self._account)))
        author = author_of(self._revision) if is_guarded(obj) else None
        return self._client if author is None else self._remembering(self._rights.acting(author))

    def _remembering(self, client: Client) -> Client:
        return self._client.over(client) if isinstance(self._client, RememberingClient) else client


class ConfinedCredentials:
    """Credentials of one XR's steps, for a control plane with several tenants. Secrets of the XR's own namespace are
    its own; those of others are given if whoever wrote the Composition, or its ServiceAccount, may read them."""

    def __init__(self, source: CredentialSource, rights: Rights, revision: Mapping[str, Any], home: str) -> None:
        self._source = source
        self._rights = rights
        self._revision = revision
        self._home = home

    async def read(self, namespace: str, name: str, /) -> Mapping[str, bytes] | None:
        """Raises CredentialsUnavailable. Whether there is such a Secret is not told to those who may not read it."""
        if namespace != self._home:
            await self._check(Access("get", "", "secrets", namespace, name))
        return await self._source.read(namespace, name)

    async def _check(self, access: Access) -> None:
        account = service_account_of(self._revision)
        author = author_of(self._revision) if account is None else service_account(*account)
        if author is None or await self._rights.allows(author, access):
            return
        what = "that the Composition names" if account is not None else "who wrote the Composition"
        raise CredentialsUnavailable(
            f'user "{author.user}", {what}, cannot {access}',
            hint="keep the Secret in the XR's namespace, grant the right, or have an administrator write the"
            " Composition; the feature gate is ConfineNamespacedReads",
        )


def is_guarded(obj: Mapping[str, Any]) -> bool:
    kind = gvk_of(obj)
    if kind.group in _GUARDED_GROUPS or is_authored(kind.group, kind.kind):
        return True
    if holds_in_another_namespace(obj):
        return True
    return bool(annotation(obj, SERVICE_ACCOUNT_ANNOTATION) or annotation(obj, AUTHOR_ANNOTATION))
