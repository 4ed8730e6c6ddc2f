"""Providers of the capability `safe-start`: they can start while some or all of their kinds are not served.

Their CRDs are installed as ManagedResourceDefinitions, so that activation policies decide which kinds are served, and
their program is not run before the first of these is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from planform.api.conditions import XrCondition, condition_status
from planform.api.kinds import Object, gvk_of
from planform.api.metadata import name_of, uid_of
from planform.api.names import ACTIVATION_POLICY, CRD, MANAGED_DEFINITION, PROVIDER
from planform.api.owners import controller_uid, owners_of
from planform.client.informer import list_pages
from planform.client.protocol import Client
from planform.errors import NotFound
from planform.packages.managed_definitions import ACTIVE, activates

if TYPE_CHECKING:
    from planform.packages.xpkg import Package

UNMANAGED_KINDS: Final = frozenset(
    {"ProviderConfig", "ClusterProviderConfig", "ProviderConfigUsage", "ClusterProviderConfigUsage"}
)
"""Kinds of providers that are no managed resources: a provider cannot do without them, and owes nothing to anybody for
their objects."""

AWAITING: Final = "AwaitingActivation"
AWAITING_ACTIVATION: Final = XrCondition(
    "RuntimeActive",
    "False",
    AWAITING,
    "it is started once a ManagedResourceActivationPolicy activates one of its ManagedResourceDefinitions",
)
RUNTIME_ACTIVE: Final = XrCondition("RuntimeActive", "True", "ActiveRuntime")

_SAFE_START: Final = "safestart"
_FIELDS: Final = ("group", "names", "scope", "versions", "conversion", "preserveUnknownFields")
_SHOWN: Final = 3


def is_safe_start(package: Package) -> bool:
    """Whether a package is a Provider of the capability, however it spells that."""
    spelled = (re.sub("[^a-z0-9]", "", each.lower()) for each in package.capabilities)
    return package.kind == PROVIDER.kind and _SAFE_START in spelled


def as_definitions(objects: Iterable[Object]) -> Iterator[Object]:
    """CRDs of managed resources as definitions of them, which say nothing of their state: that is for policies."""
    for obj in objects:
        if gvk_of(obj) != CRD or obj["spec"]["names"]["kind"] in UNMANAGED_KINDS:
            yield obj
        else:
            spec = {field: obj["spec"][field] for field in _FIELDS if field in obj["spec"]}
            about = {"apiVersion": MANAGED_DEFINITION.api_version, "kind": MANAGED_DEFINITION.kind}
            yield {**about, "metadata": obj["metadata"], "spec": spec}


class Waiting(NamedTuple):
    """What a provider waits for before it is started: that a kind of it is activated, or that kinds are served which
    are, or are about to be."""

    for_activation: bool = False
    for_kinds: tuple[str, ...] = ()

    @property
    def problem(self) -> str:
        """Empty unless something is still to come that nobody has to see to."""
        more = f" and {len(self.for_kinds) - _SHOWN} more" if len(self.for_kinds) > _SHOWN else ""
        return f"it waits until {', '.join(self.for_kinds[:_SHOWN])}{more} are served" if self.for_kinds else ""


async def waiting_of(client: Client, revision: Object) -> Waiting:
    """What an active revision waits for. Nothing, once it has been started: what it did so far has to go on."""
    if condition_status(revision, RUNTIME_ACTIVE.type) == "True":
        return Waiting()
    uid, found = uid_of(revision), list[Object]()
    async for page in list_pages(client, MANAGED_DEFINITION):
        found += [each for each in page.items if controller_uid(each) == uid]
    policies = (await client.list(ACTIVATION_POLICY)).items
    patterns = [pattern for policy in policies for pattern in policy["spec"]["activate"]]
    wanted = [each for each in found if _is_active(each) or activates(patterns, name_of(each))]
    unserved = (name_of(each) for each in wanted if condition_status(each, "Established") != "True")
    if wanted or not found:
        return Waiting(for_kinds=tuple(unserved))
    return Waiting(for_activation=not await _is_served(client, revision, found))


async def _is_served(client: Client, revision: Object, definitions: Iterable[Object]) -> bool:
    """Whether a kind is served though nothing activated it, as an older control plane left it behind."""
    package = controller_uid(revision)
    for each in definitions:
        try:
            crd = await client.get(CRD, name_of(each))
        except NotFound:
            continue
        if any(owner["uid"] == package for owner in owners_of(crd)):
            return True
    return False


def _is_active(definition: Object) -> bool:
    return bool(definition["spec"].get("state") == ACTIVE)
