"""Rollouts beside a GitOps controller that applies, prunes and heals without end: no field is fought over.

What the controller here does is what Argo CD and Flux do: server-side apply of everything in Git with force, again and
again, and deletion of what carries its tracking label, belongs to nobody else and is no longer in Git.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.names import (
    CLAIM_MANAGER,
    COMPOSITE_MANAGER,
    COMPOSITION,
    COMPOSITION_REVISION,
    ROLLOUT,
    ROLLOUT_ACTION,
    ROLLOUT_POLICY,
)
from planform.api.owners import controller_of
from planform.client.protocol import Client
from planform.errors import NotFound
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import Platform, a_platform
from tests.harness.contexts import condition_of, eventually
from tests.rollouts.oracle import judged
from tests.rollouts.rolling import act, all_on, fleet, good, revision_of, revisions_used, rollouts, until_phase

pytestmark = pytest.mark.timeout(240)

GIT = "argocd-controller"
TRACKED = "app.kubernetes.io/instance"
INTERVAL_SECONDS = 0.1
"""Argo CD looks every three minutes; here it is as if every look came at the worst moment."""
CANARY = {"name": "canary", "xrs": {"matchLabels": {"canary": "true"}}, "soak": "1h"}


class GitOps:
    """Keeps what is in the cluster as it is in Git; `rounds` counts how often it looked."""

    def __init__(self, client: Client, instance: str, kinds: tuple[GroupVersionKind, ...]) -> None:
        self._client = client
        self._instance = instance
        self._kinds = kinds
        self.git: dict[tuple[GroupVersionKind, str], Object] = {}
        self.rounds = 0
        self.pruned: list[str] = []

    def commit(self, obj: Object) -> None:
        metadata = obj["metadata"]
        labels = {**(metadata.get("labels") or {}), TRACKED: self._instance}
        self.git[gvk_of(obj), metadata["name"]] = {**obj, "metadata": {**metadata, "labels": labels}}

    def remove(self, obj: Object) -> None:
        del self.git[gvk_of(obj), obj["metadata"]["name"]]

    async def run(self) -> None:
        while True:
            for obj in list(self.git.values()):
                await self._client.apply(obj, manager=GIT, force=True)
            await self._prune()
            self.rounds += 1
            await asyncio.sleep(INTERVAL_SECONDS)

    async def _prune(self) -> None:
        for kind in self._kinds:
            for obj in (await self._client.list(kind, labels=f"{TRACKED}={self._instance}")).items:
                metadata = obj["metadata"]
                # A revision has its Composition's labels; who belongs to somebody else is not looked at.
                if (kind, metadata["name"]) in self.git or controller_of(obj) or metadata.get("deletionTimestamp"):
                    continue
                try:
                    await self._client.delete(kind, metadata["name"], namespace=metadata.get("namespace") or "")
                except NotFound:
                    continue
                self.pruned.append(metadata["name"])

    async def looked(self, times: int = 3) -> None:
        """Wait until it has looked at everything so often from now on."""
        wanted = self.rounds + times + 1

        async def enough() -> bool:
            return self.rounds >= wanted

        await eventually(enough, f"{times} rounds of the GitOps controller")


class Hands:
    """Whose each field is, by managed fields: Git's, the control plane's, or somebody else's."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, str, str], frozenset[str]] = {}
        self.changes: Counter[tuple[str, str, str]] = Counter()

    def see(self, obj: Object) -> None:
        owners: dict[tuple[str, str, str], set[str]] = {}
        for entry in obj["metadata"].get("managedFields") or ():
            for path in _leaves(entry.get("fieldsV1") or {}):
                key = (obj["kind"], obj["metadata"]["name"], path)
                owners.setdefault(key, set()).add(_side(str(entry.get("manager") or "")))
        for key, found in owners.items():
            before = self._owners.get(key)
            self.changes[key] += before is not None and before != found
            self._owners[key] = frozenset(found)

    def fought_over(self) -> dict[tuple[str, str, str], int]:
        return {key: count for key, count in self.changes.items() if count > 1}


def _side(manager: str) -> str:
    ours = manager.startswith("planform") or manager in (COMPOSITE_MANAGER, CLAIM_MANAGER)
    return "git" if manager == GIT else "plane" if ours else manager


def _leaves(fields: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for name, below in fields.items():
        if name != ".":
            yield from _leaves(below, f"{path}.{name}") if below else iter((f"{path}.{name}",))


@asynccontextmanager
async def watched(client: Client, kinds: tuple[GroupVersionKind, ...]) -> AsyncIterator[list[Object]]:
    """Every state that objects of these kinds were stored in, in the order of each."""
    seen: list[Object] = []

    async def record(kind: GroupVersionKind, version: str) -> None:
        async with client.watch(kind, resource_version=version) as events:
            async for event in events:
                if event.type in ("ADDED", "MODIFIED"):
                    seen.append({"apiVersion": kind.api_version, "kind": kind.kind, **event.object})

    tasks = []
    for kind in kinds:
        listed = await client.list(kind)
        seen += [{"apiVersion": kind.api_version, "kind": kind.kind, **each} for each in listed.items]
        tasks.append(asyncio.create_task(record(kind, listed.resource_version)))
    try:
        yield seen
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def manifest(obj: Object, **labels: str) -> Object:
    """As it stands in Git: what people write, and nothing that a server adds."""
    metadata = {key: obj["metadata"][key] for key in ("name", "namespace") if obj["metadata"].get(key)}
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "metadata": {**metadata, "labels": labels},
        "spec": {},
    }


def policy_of(platform: Platform) -> Object:
    return {
        "apiVersion": ROLLOUT_POLICY.api_version,
        "kind": ROLLOUT_POLICY.kind,
        "metadata": {"name": f"{platform.unique}-policy"},
        "spec": {"for": {"compositions": {"names": [f"{platform.unique}-apps"]}}, "waves": [CANARY]},
    }


async def test_gitops_loop_through_wave_abort_undo_and_revert_changes_no_hands(
    context: ControllerContext, unique: str
) -> None:
    async with a_platform(context, unique) as platform:
        kinds = (platform.kind, COMPOSITION, ROLLOUT_POLICY, COMPOSITION_REVISION, ROLLOUT, ROLLOUT_ACTION)
        loop = GitOps(context.client, unique, kinds)
        one = await platform.compose(good("1"))
        xrs = await fleet(platform, 4, {0: {"canary": "true"}})
        for number, xr in enumerate(xrs):
            loop.commit(manifest(xr, **({"canary": "true"} if number == 0 else {})))
        loop.commit(platform.composition(good("1")))
        loop.commit(policy_of(platform))
        syncing = asyncio.create_task(loop.run())
        try:
            await loop.looked()  # everything is Git's from here on
            await platform.at_rest(*xrs)
            async with watched(context.client, kinds[:3]) as seen, judged(context.client, platform.kind):
                await story(platform, loop, xrs, one)
                await loop.looked()
            assert not syncing.done(), "an apply was refused"
        finally:
            syncing.cancel()
            await asyncio.wait([syncing])
    assert loop.pruned == [xrs[3]["metadata"]["name"]]
    hands = Hands()
    for obj in seen:
        hands.see(obj)
    assert hands.fought_over() == {}
    check_moves(seen, xrs)


async def story(platform: Platform, loop: GitOps, xrs: list[Object], one: Object) -> None:
    """Every way forth and back, with Git at odds with what people decided for a few rounds each time."""
    first = str(one["metadata"]["name"])
    # A wave, and a stop that Git does not know of.
    loop.commit(platform.composition(good("2")))
    running = await soaking(platform, 2)
    await loop.looked()
    await act(platform, running, "Abort", reason="not this one")
    await until_phase(platform, "Aborted")
    await all_on(platform, xrs, one)
    await loop.looked()
    assert len(await rollouts(platform)) == 1, "what Git still says does not begin again"
    assert set(await revisions_used(platform, xrs)) == {first}
    # The next one goes through; somebody is taken out of Git in the middle of it.
    loop.commit(platform.composition(good("3")))
    running = await soaking(platform, 3)
    loop.remove(manifest(xrs[3]))
    await platform.gone(xrs[3])
    left = xrs[:3]
    await act(platform, running, "Promote", wave="canary")
    done = await until_phase(platform, "Completed")
    # Taken back by hand, while Git goes on to say otherwise.
    await act(platform, done, "Undo", reason="p99 doubled")
    await until_phase(platform, "Undone")
    await all_on(platform, left, one)
    await loop.looked()
    assert len(await rollouts(platform)) == 2
    assert set(await revisions_used(platform, left)) == {first}
    # The revert in Git: everybody is there already, and nobody moves.
    loop.commit(platform.composition(good("1")))
    await eventually(lambda: is_newest(platform, first), "the first revision is the newest again")
    await loop.looked()
    assert set(await revisions_used(platform, left)) == {first}
    # The same change once more is a change like any other; its revert reaches everybody at once.
    loop.commit(platform.composition(good("3")))
    running = await soaking(platform, 5)
    await act(platform, running, "Promote", wave="canary")
    await until_phase(platform, "Completed")
    loop.commit(platform.composition(good("1")))
    await all_on(platform, left, one)
    for xr in left:
        await platform.ready(xr)
    kept = [each["spec"]["action"] for each in (await platform.client.list(ROLLOUT_ACTION)).items]
    assert {"Abort", "Promote", "Undo", "Complete"} <= set(kept), "actions survive"


async def soaking(platform: Platform, number: int) -> Object:
    """The Rollout to the revision of this number, when its canary has moved and settled and is watched."""

    async def look() -> Object | None:
        found = [each for each in await rollouts(platform) if each["spec"]["changes"][0]["toNumber"] == number]
        status = (found[-1].get("status") or {}) if found else {}
        return found[-1] if (status.get("wave") or {}).get("state") == "Soaking" else None

    return await eventually(look, f"the canary of revision {number} soaks")


async def is_newest(platform: Platform, revision: str) -> bool:
    found = await platform.revisions()
    return bool(found[-1]["metadata"]["name"] == revision)


def check_moves(seen: list[Object], xrs: list[Object]) -> None:
    """Every move was somebody's decision: forth and back so often as the story says, and never to and fro."""
    for number, xr in enumerate(xrs):
        name = xr["metadata"]["name"]
        used = [revision_of(each) for each in seen if each["kind"] == "App" and each["metadata"]["name"] == name]
        moves = sum(now != before for before, now in pairwise(used))
        # The canary goes with each of the three changes and comes back; the others with the two that go through.
        expected = {0: 6, 1: 4, 2: 4, 3: 0}[number]
        assert moves == expected, (name, used)
    generations = [each["metadata"]["generation"] for each in seen if each["kind"] == "Composition"]
    assert generations == sorted(generations) and generations[-1] - generations[0] <= 5, "one for each commit"
    policies = {each["metadata"]["generation"] for each in seen if each["kind"] == "RolloutPolicy"}
    assert len(policies) <= 1


async def test_gitops_health_follows_the_rollout_and_not_what_git_says(context: ControllerContext, unique: str) -> None:
    async with a_platform(context, unique) as platform:
        loop = GitOps(context.client, unique, (COMPOSITION, ROLLOUT_POLICY))
        await platform.compose(good("1"))
        xrs = await fleet(platform, 2, {0: {"canary": "true"}})
        loop.commit(platform.composition(good("1")))
        loop.commit(policy_of(platform))
        syncing = asyncio.create_task(loop.run())

        async def says(type_: str) -> bool:
            found = await context.client.get(COMPOSITION, f"{unique}-apps")
            return (condition_of(found, type_) or {}).get("status") == "True"

        try:
            await eventually(lambda: says("RolledOut"), "the Composition is healthy")
            loop.commit(platform.composition(good("2")))
            running = await soaking(platform, 2)
            await eventually(lambda: says("Reconciling"), "Argo CD shows Progressing")
            await act(platform, running, "Abort")
            await eventually(lambda: says("Stalled"), "Argo CD shows Degraded")
            await loop.looked()
            assert await says("Stalled") and not await says("RolledOut")
            loop.commit(platform.composition(good("1")))
            await eventually(lambda: says("RolledOut"), "it is healthy once Git is back")
            assert len(set(await revisions_used(platform, xrs))) == 1
        finally:
            syncing.cancel()
            await asyncio.wait([syncing])
