"""What a server refuses to the controllers of live XRs, and what it does a moment too late, on both engines.

A client that stands between the controllers of XRs and the engine brings it about; all else is real.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final, cast

import pytest

from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.names import COMPOSITE_FINALIZER, RECONCILE_REQUESTED_ANNOTATION, SECRET
from planform.api.xr import COMPOSITE_LABEL, RESOURCE_NAME_ANNOTATION
from planform.apiserver.auth.rbac import GROUP as RBAC_GROUP
from planform.apiserver.auth.rbac import Rbac
from planform.apiserver.local import LocalClient
from planform.apiserver.verbs.requests import Attributes, User
from planform.client.kubeconfig import find_connection
from planform.client.kubernetes import KubernetesClient
from planform.client.protocol import Client
from planform.clock import SystemClock
from planform.errors import ApiError, Conflict, Forbidden, ServiceUnavailable
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import (
    CONFIG_MAP,
    NAMESPACE,
    Platform,
    a_platform,
    annotated,
    config_map,
    from_xr,
    templates,
)
from tests.controllers.test_xr_composer import desiring, named_config_map, problems, references
from tests.controllers.test_xr_selection import name
from tests.harness.contexts import condition_of, eventually, read, until_condition
from tests.harness.kubernetes import USER, RealKubernetes

pytestmark = pytest.mark.timeout(180)


@dataclass(frozen=True)
class Call:
    """One call of a controller: which verb, on what."""

    verb: str
    kind: GroupVersionKind
    name: str
    subresource: str = ""
    key: str = ""
    """The name in the composition of what is applied."""


Before = Callable[[Call], Awaitable[None]]


class Intercepting:
    """A client that lets somebody do something before a call, such as refusing it."""

    VERBS: Final = frozenset({"apply", "create", "delete", "get", "patch", "update"})

    def __init__(self, client: Client) -> None:
        self._client = client
        self.before: Before | None = None

    def __getattr__(self, verb: str) -> Any:
        call: Callable[..., Awaitable[Any]] = getattr(self._client, verb)
        if verb not in self.VERBS:
            return call

        async def asked(about: GroupVersionKind | Object, *rest: Any, **options: Any) -> Any:
            if self.before is not None:
                await self.before(_call(verb, about, rest, options.get("subresource") or ""))
            return await call(about, *rest, **options)

        return asked


def _call(verb: str, about: GroupVersionKind | Object, rest: tuple[Any, ...], subresource: str) -> Call:
    if not isinstance(about, dict):
        return Call(verb, about, rest[0], subresource)
    metadata = about["metadata"]
    key = (metadata.get("annotations") or {}).get(RESOURCE_NAME_ANNOTATION) or ""
    return Call(verb, gvk_of(about), metadata.get("name") or "", subresource, key)


class Refusal:
    """Refuses what `meant` means with an error, at most so many times, and counts."""

    def __init__(self, meant: Callable[[Call], object], error: ApiError, *, times: int = 1_000_000) -> None:
        self._meant = meant
        self._error = error
        self._times = times
        self.count = 0

    async def __call__(self, call: Call) -> None:
        if self._meant(call) and self.count < self._times:
            self.count += 1
            raise self._error


@asynccontextmanager
async def an_intercepted_platform(
    context: ControllerContext, unique: str, **more: Any
) -> AsyncIterator[tuple[Platform, Intercepting]]:
    """A platform whose XRs are looked after by way of a client that can be told to misbehave."""
    client = Intercepting(context.xr_client or context.client)
    async with a_platform(replace(context, xr_client=cast(Client, client)), unique, **more) as platform:
        try:
            yield platform, client
        finally:
            client.before = None


async def wake(platform: Platform, xr: Object) -> None:
    """Have the XR looked at now, and not only when its error has been waited for."""
    token = str((await platform.get(xr))["metadata"]["resourceVersion"])
    await platform.merge(xr, annotated(**{RECONCILE_REQUESTED_ANNOTATION: token}))


def legacy_references(xr: Object) -> list[Object]:
    return list(xr["spec"].get("resourceRefs") or ())


def at_home(obj: Object) -> Object:
    return {**obj, "metadata": {"namespace": NAMESPACE}}


async def test_what_a_server_refuses_is_told_for_each_point_and_references_hold_all_that_exists(
    context: ControllerContext, unique: str
) -> None:
    def steps() -> Object:
        return templates(at_home(config_map("a", from_xr("spec.x", "data.x"))), at_home(config_map("b")))

    async with an_intercepted_platform(context, unique, scope="LegacyCluster") as (platform, client):
        await platform.compose(steps())

        def refuse(words: str, meant: Callable[[Call], object]) -> Refusal:
            client.before = refusal = Refusal(meant, ServiceUnavailable(words))
            return refusal

        async def recovers(xr: Object, x: str) -> None:
            client.before = None
            await wake(platform, xr)

            async def all_is_there() -> bool:
                found = await platform.composed(xr)
                return found.keys() == {"a", "b"} and found["a"]["data"] == {"x": x}

            await eventually(all_is_there, f"{xr['metadata']['name']} has all of its resources, with {x}")
            found = await platform.ready(await until_condition(platform.client, xr, "Synced"))
            composed = await platform.composed(xr)
            assert sorted(each["name"] for each in legacy_references(found)) == sorted(map(name, composed.values()))

        # What is read before functions are asked: nothing changes.
        secret = {"name": f"{unique}-details", "namespace": NAMESPACE}
        xr = await platform.ready(await platform.create(spec={"x": "1"}, writeConnectionSecretToRef=secret))
        before, composed = legacy_references(xr), await platform.composed(xr)
        assert len(before) == 2
        for x, words, meant in (
            ("2", "no observing", lambda call: call.verb == "get" and call.name == name(composed["a"])),
            ("3", "no details", lambda call: call.verb == "get" and call.kind == SECRET),
        ):
            refuse(words, meant)
            await platform.merge(xr, {"spec": {"x": x}})
            assert legacy_references(await platform.failed(xr, words)) == before
            assert (await platform.composed(xr))["a"]["data"] == {"x": str(int(x) - 1)}
            await recovers(xr, x)

        # What the composition requires.
        odd = {"requirementName": "odd", "apiVersion": "v1", "kind": "ConfigMap", "matchLabels": {"a": "no label!"}}
        required = {**steps(), "requirements": {"requiredResources": [odd]}}
        await platform.compose(required, name=f"{unique}-odd")
        xr = await platform.create("odd", spec={"x": "1"}, compositionRef={"name": f"{unique}-odd"})
        found = await platform.failed(xr, 'requirement "odd"')
        assert not legacy_references(found) and not await platform.composed(xr)
        await platform.compose(steps(), name=f"{unique}-odd")
        await recovers(xr, "1")

        # References and finalizer are saved before anything is made.
        ours: dict[str, Any] = {"compositionRef": {"name": f"{unique}-apps"}}
        refuse("no saving", lambda call: call.verb == "patch" and call.kind == platform.kind and not call.subresource)
        xr = await platform.create("saving", spec={"x": "1"}, **ours)
        found = await platform.failed(xr, "no saving")
        assert not legacy_references(found) and not await platform.composed(xr)
        assert COMPOSITE_FINALIZER not in (found["metadata"].get("finalizers") or ())
        await recovers(xr, "1")

        # One resource that cannot be applied has its reference, and the others are made.
        refuse("no applying", lambda call: call.verb == "apply" and call.key == "a")
        xr = await platform.create("applying", spec={"x": "1"}, **ours)
        found = await platform.failed(xr, "Unsynced resources: a")
        assert problems(found)[0] == {"resource": "a", "message": "no applying"}
        assert len(legacy_references(found)) == 2 and (await platform.composed(xr)).keys() == {"b"}
        await recovers(xr, "1")

        # A status that cannot be written changes nothing of what was made.
        refusal = refuse(
            "no telling",
            lambda call: call.verb in ("apply", "patch") and call.kind == platform.kind and call.subresource,
        )
        xr = await platform.create("telling", spec={"x": "1"}, **ours)

        async def refused() -> bool:
            return refusal.count > 0 and len(await platform.composed(xr)) == 2

        await eventually(refused, "the resources are there, and nothing is told")
        found = await platform.get(xr)
        assert len(legacy_references(found)) == 2 and not (found.get("status") or {}).get("conditions")
        await recovers(xr, "1")


@pytest.mark.parametrize("verb", ["patch", "delete"])
async def test_a_label_or_an_object_that_cannot_be_taken_away_is_told_and_its_reference_stays(
    context: ControllerContext, unique: str, verb: str
) -> None:
    async with an_intercepted_platform(context, unique) as (platform, client):
        await platform.compose(templates(config_map("keep"), config_map("old")))
        xr = await platform.ready(await platform.create())
        old = (await platform.composed(xr))["old"]
        client.before = Refusal(
            lambda call: call.verb == verb and call.name == name(old), ServiceUnavailable("not now")
        )
        await platform.compose(templates(config_map("keep")))
        found = await platform.failed(xr, "Unsynced resources: old")
        assert problems(found) == [{"resource": "old", "message": "not now"}]
        assert {each["name"] for each in references(found)} >= {name(old)} and len(references(found)) == 2
        there = await platform.client.get(CONFIG_MAP, name(old), namespace=NAMESPACE)
        assert "deletionTimestamp" not in there["metadata"]
        assert (COMPOSITE_LABEL in (there["metadata"].get("labels") or {})) is (verb == "patch")
        client.before = None
        await wake(platform, xr)
        await platform.until(xr, lambda xr: len(references(xr)) == 1, "the old one is gone")
        assert await read(platform.client, CONFIG_MAP, name(old), NAMESPACE) is None


async def test_a_namesake_that_took_the_place_of_what_was_to_be_deleted_stays(
    context: ControllerContext, unique: str
) -> None:
    async with an_intercepted_platform(context, unique) as (platform, client):
        await platform.compose(templates(config_map("keep"), config_map("old")))
        xr = await platform.ready(await platform.create())
        old = (await platform.composed(xr))["old"]
        taken: list[Object] = []

        async def replaced(call: Call) -> None:
            """Between the decision and the deletion, somebody replaces the object by one of their own."""
            if call.verb == "delete" and call.name == name(old) and not taken:
                await context.client.delete(CONFIG_MAP, name(old), namespace=NAMESPACE)
                taken.append(await context.client.create(named_config_map(name(old), namespace=NAMESPACE)))

        client.before = replaced
        await platform.compose(templates(config_map("keep")))
        await platform.until(xr, lambda xr: len(references(xr)) == 1, "the XR has nothing to do with it any more")
        await until_condition(platform.client, xr, "Synced")
        assert await context.client.get(CONFIG_MAP, name(old), namespace=NAMESPACE) == taken[0]


async def test_finalizers_that_cannot_be_written_are_written_later_and_a_conflict_is_no_news(
    context: ControllerContext, unique: str
) -> None:
    async with an_intercepted_platform(context, unique) as (platform, client):
        await platform.compose(templates(config_map("a")))

        def a_write(call: Call) -> bool:
            return call.verb == "patch" and call.kind == platform.kind and not call.subresource

        async def deleted(xr: Object) -> None:
            await platform.client.delete(platform.kind, name(xr), namespace=NAMESPACE)

        conflict = client.before = Refusal(a_write, Conflict("somebody else wrote first"), times=2)
        xr = await platform.ready(await platform.create("conflict"))
        assert COMPOSITE_FINALIZER in xr["metadata"]["finalizers"] and conflict.count == 2
        assert not [each for each in await platform.events(xr) if each["type"] == "Warning"]
        conflict = client.before = Refusal(a_write, Conflict("somebody else wrote first"), times=2)
        await deleted(xr)
        await platform.gone(xr)
        assert conflict.count == 2

        error = client.before = Refusal(a_write, ServiceUnavailable("not now"), times=1)
        xr = await platform.ready(await platform.create("error"))
        assert error.count == 1 and COMPOSITE_FINALIZER in xr["metadata"]["finalizers"]
        error = client.before = Refusal(a_write, ServiceUnavailable("not now"))
        await deleted(xr)

        async def refused() -> bool:
            return error.count > 0

        await eventually(refused, "the finalizer could not be removed")
        assert COMPOSITE_FINALIZER in (await platform.get(xr))["metadata"]["finalizers"]
        client.before = None
        await platform.gone(xr)


# Permissions


class Permitted:
    """What the embedded engine lets a user do whom RBAC binds, without the wire in between."""

    def __init__(self, client: LocalClient, rbac: Rbac, user: User) -> None:
        self._client = client
        self._rbac = rbac
        self._user = user

    async def get(self, kind: GroupVersionKind, name: str, *, namespace: str = "") -> Object:
        await self._check("get", kind, namespace, name)
        return await self._client.get(kind, name, namespace=namespace)

    async def apply(self, obj: Object, **options: Any) -> Object:
        metadata = obj["metadata"]
        await self._check("patch", gvk_of(obj), metadata["namespace"], metadata["name"])
        return await self._client.apply(obj, **options)

    async def _check(self, verb: str, kind: GroupVersionKind, namespace: str, name: str) -> None:
        plural = (await self._client.kind(kind)).plural
        attributes = Attributes(verb, kind.group, kind.version, plural, namespace=namespace, name=name)
        self._rbac.authorize(self._user, attributes)


@asynccontextmanager
async def plain_user(context: ControllerContext, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """A client of somebody who may do nothing but what roles allow."""
    if isinstance(context.client, LocalClient):
        rbac = Rbac(context.client._core.store)
        yield Permitted(context.client, rbac, User(USER))
        rbac.close()
        return
    cluster: RealKubernetes = request.getfixturevalue("kubernetes_engine")
    connection = find_connection(clock=SystemClock(), path=cluster.user_kubeconfig)
    async with KubernetesClient(connection, clock=SystemClock(), rng=Random(7)) as client:
        yield client


class OfTwo:
    """A client that asks in the name of another for ConfigMaps."""

    def __init__(self, client: Client, other: Any) -> None:
        self._client = client
        self._other = other

    def __getattr__(self, verb: str) -> Any:
        if verb not in ("get", "apply"):
            return getattr(self._client, verb)

        async def asked(about: GroupVersionKind | Object, *rest: Any, **options: Any) -> Any:
            kind = gvk_of(about) if isinstance(about, dict) else about
            return await getattr(self._other if kind == CONFIG_MAP else self._client, verb)(about, *rest, **options)

        return asked


async def test_what_rbac_denies_is_named_with_its_verb_until_it_is_allowed(
    context: ControllerContext, unique: str, request: pytest.FixtureRequest
) -> None:
    metadata = {"name": unique, "namespace": NAMESPACE}
    role: Object = {"apiVersion": f"{RBAC_GROUP}/v1", "kind": "Role", "metadata": metadata, "rules": []}
    binding: Object = {
        **role,
        "kind": "RoleBinding",
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role", "name": unique},
        "subjects": [{"apiGroup": RBAC_GROUP, "kind": "User", "name": USER}],
    }
    del binding["rules"]
    await context.client.create(role)
    await context.client.create(binding)
    async with plain_user(context, request) as user:
        fleet = cast(Client, OfTwo(context.xr_client or context.client, user))
        async with a_platform(replace(context, xr_client=fleet), unique) as platform:
            await platform.compose(desiring(a=named_config_map(f"{unique}-a")))
            xr = await platform.create()
            allowed: list[str] = []

            async def may_look() -> bool:
                """A cluster takes a moment to hear of a role, and what may not be looked at is not tried again soon."""
                try:
                    return await read(user, CONFIG_MAP, f"{unique}-a", NAMESPACE) is None
                except Forbidden:
                    return False

            for verb in ("get", "patch"):
                denied = f'User "{USER}" cannot {verb} resource "configmaps" in API group "" in the namespace "default"'

                def names_it(found: Object, denied: str = denied) -> bool:
                    told = ((found.get("status") or {}).get("planform") or {}).get("problems") or ()
                    return any(denied in each["message"] for each in told)

                found = await platform.until(xr, names_it, f"{verb} is denied")
                assert (condition_of(found, "Synced") or {})["status"] == "False"
                await platform.until_event(xr, "ComposeResources", denied)
                allowed += [verb] if verb == "get" else [verb, "create"]
                rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": allowed}]
                await platform.edit(gvk_of(role), role, {"rules": rules})
                await eventually(may_look, "the role has come into effect")
                await wake(platform, xr)
            await platform.ready(await until_condition(platform.client, xr, "Synced"))
    for obj in (role, binding):
        await context.client.delete(gvk_of(obj), unique, namespace=NAMESPACE)


async def test_a_finalizer_that_cannot_be_removed_is_told(context: ControllerContext, unique: str) -> None:
    async with an_intercepted_platform(context, unique) as (platform, client):
        await platform.compose(templates(config_map("a")))
        xr = await platform.ready(await platform.create())

        def a_write(call: Call) -> bool:
            return call.verb == "patch" and call.kind == platform.kind and not call.subresource

        client.before = Refusal(a_write, ServiceUnavailable("not now"))
        await platform.client.delete(platform.kind, name(xr), namespace=NAMESPACE)
        found = await platform.failed(xr, "not now")
        assert COMPOSITE_FINALIZER in found["metadata"]["finalizers"]
        await platform.until_event(xr, "ServiceUnavailable", "not now")
        client.before = None
        await platform.gone(xr)
