"""Rollouts of one Composition over three XRs, and everything that must hold of them whatever happened in between.

Two stories, each of which begins where it ended. `forward`: a change waits behind its canary, is approved, undone,
tried again and promoted. `stopped`: one change is aborted, one fails by itself, one is superseded, and the last is
paused and taken back in Git. Each act may be repeated: a user who got no answer tries again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import orjson

from planform.api.kinds import Object, gvk
from planform.api.names import COMPOSITION, COMPOSITION_REVISION, ROLLOUT, ROLLOUT_ACTION, ROLLOUT_POLICY, XRD
from planform.app import ControlPlane
from planform.errors import AlreadyExists
from planform.journal.journal import WAIT_SECONDS
from planform.store import Change
from tests.controllers.composing import config_map, from_xr, script, templates
from tests.harness.contexts import condition_of, eventually, until_condition
from tests.rollouts.oracle import Oracle, Stored

STORIES: Final[Mapping[str, tuple[str, ...]]] = {
    "forward": ("wave", "approve", "undo", "retry", "promote"),
    "stopped": ("wave", "abort", "fail", "newer", "supersede", "pause", "revert"),
}
GROUP: Final = "waves.example.org"
APP: Final = gvk(f"{GROUP}/v1", "App")
CONFIG_MAP: Final = gvk("v1", "ConfigMap")
XRS: Final = ("canary", "one", "two")
STABLE: Final = "stable"
SECONDS: Final = 40.0
POLICY: Final[Object] = {
    "for": {"compositions": {"names": ["apps"]}},
    "concurrency": 1,
    "waves": [
        {"name": "canary", "xrs": {"matchLabels": {"canary": "true"}}},
        {"name": "all", "percent": [50, 100], "approval": {"count": 1}},
    ],
    "gates": [{"name": "named", "cel": "wave.xrs.all(x, has(x.metadata.name))"}],
}
_ACTIONS: Final = {"approve": "Approve", "undo": "Undo", "promote": "PromoteFull", "abort": "Abort", "pause": "Pause"}
_SETTLED: Final = {
    "wave": ("Running", "canary"),
    "approve": ("Completed", "all"),
    "undo": ("Undone", "none"),
    "retry": ("Running", "canary"),
    "promote": ("Completed", "all"),
    "abort": ("Aborted", "none"),
    "fail": ("Aborted", "none"),
    "newer": ("Running", "canary"),
    "supersede": ("Running", "canary"),
    "pause": ("Paused", "canary"),
    "revert": ("Aborted", "none"),
}
"""The phase that the latest Rollout must come to, and who is on its target then."""


class RolloutCycle:
    """A story on a running control plane."""

    def __init__(self, plane: ControlPlane, story: str) -> None:
        self.plane = plane
        self.client = plane.client
        self.store = plane.core.store
        self.story = story
        self.last = STORIES[story][-1]

    # -- the platform

    async def define(self) -> None:
        free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": free}}}
        version = {"name": "v1", "served": True, "referenceable": True, "schema": schema}
        spec = {"group": GROUP, "names": {"kind": "App", "plural": "apps"}, "versions": [version]}
        metadata = {"name": f"apps.{GROUP}"}
        await self.client.create(
            {"apiVersion": f"{XRD.group}/v2", "kind": XRD.kind, "metadata": metadata, "spec": spec}
        )
        await until_condition(self.client, await self.client.get(XRD, metadata["name"]), "Established")
        await self._compose(STABLE)
        await self._note(0, self.last)
        for name in XRS:
            labels = {"canary": "true"} if name == "canary" else {}
            xr: Object = {
                "apiVersion": APP.api_version,
                "kind": APP.kind,
                "metadata": {"name": name, "namespace": "default", "labels": labels},
                "spec": {},
            }
            await until_condition(self.client, await self.client.create(xr), "Ready")
        policy = {"metadata": {"name": "apps"}, "spec": POLICY}
        await self.client.create({"apiVersion": ROLLOUT_POLICY.api_version, "kind": ROLLOUT_POLICY.kind, **policy})

        async def released() -> bool:
            return [each[0] for each in await self._releases()] == ["True"]

        await eventually(released, "the stable revision is released", seconds=SECONDS)

    async def _compose(self, text: str) -> None:
        step = templates(config_map("it", from_xr("metadata.name", "data.xr"), version=text))
        if text.startswith("bad"):
            step = script(f"def main(req):\n    fail('broken on purpose: {text}')\n")
        await self.client.apply(
            {
                "apiVersion": COMPOSITION.api_version,
                "kind": COMPOSITION.kind,
                "metadata": {"name": "apps"},
                "spec": {
                    "compositeTypeRef": {"apiVersion": APP.api_version, "kind": APP.kind},
                    "mode": "Pipeline",
                    "pipeline": [step],
                },
            },
            manager="author",
            force=True,
        )

    # -- what the user does

    async def act(self, phase: str) -> None:
        """What begins a phase; it may have been done before."""
        number = await self._number(phase)
        if phase in ("wave", "newer", "supersede"):
            await self._compose(f"{phase}-{number}")
        elif phase == "fail":
            await self._compose(f"bad-{number}")
        elif phase == "revert":
            await self._compose(STABLE)
        elif phase == "retry":
            latest = await self._latest()
            if latest["spec"].get("attempt", 1) == 1:
                await self._decide(latest, "Retry")
        else:
            await self._decide(await self._latest(), _ACTIONS[phase])

    async def _number(self, phase: str) -> int:
        """Which cycle this is: the first act of one counts it, once."""
        found = (await self.client.get(CONFIG_MAP, "cycles", namespace="default"))["data"]
        number, last = int(found["number"]), found["phase"]
        if phase == "wave" and last == self.last:
            number += 1
        if last != phase:
            await self._note(number, phase)
        return number

    async def _note(self, number: int, phase: str) -> None:
        metadata, data = {"name": "cycles", "namespace": "default"}, {"number": str(number), "phase": phase}
        wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        await self.client.apply(wanted, manager="author")

    async def _decide(self, rollout: Object, action: str) -> None:
        name = rollout["metadata"]["name"]
        wanted = {
            "apiVersion": ROLLOUT_ACTION.api_version,
            "kind": ROLLOUT_ACTION.kind,
            "metadata": {"name": f"{name}-{action.lower()}"},
            "spec": {"rollout": name, "action": action, "wave": "all" if action == "Approve" else ""},
        }
        with suppress(AlreadyExists):
            await self.client.create(wanted)

    # -- what must come of it

    async def settle(self, phase: str) -> None:
        deadline = self.plane.core.clock.monotonic() + SECONDS
        while True:
            try:
                await self.check(phase)
                break
            except AssertionError:
                if self.plane.core.clock.monotonic() > deadline:
                    raise
            await asyncio.sleep(0.02)
        await self.rest()
        await self.check(phase)

    async def rest(self) -> None:
        """Wait until nothing is written for a moment."""
        await self.plane.controllers.events.written()
        before = -1
        while before != self.store.revision:
            before = self.store.revision
            await asyncio.sleep(WAIT_SECONDS + 0.1)

    async def check(self, phase: str) -> None:
        """Everybody is where the phase leaves them, is well there, and the revisions say so."""
        latest, (wanted, moved) = await self._latest(), _SETTLED[phase]
        status = latest.get("status") or {}
        assert status.get("phase") == wanted, status
        if wanted == "Running":
            assert (status.get("waiting") or {}).get("for") == "Approval", status
        change = latest["spec"]["changes"][0]
        there = {"canary": XRS[:1], "all": XRS, "none": ()}[moved]
        for name in XRS:
            xr = await self.client.get(APP, name, namespace="default")
            revision = xr["spec"]["crossplane"]["compositionRevisionRef"]["name"]
            assert revision == change["to" if name in there else "from"], (name, revision, change)
            for type_ in ("Synced", "Ready"):
                condition = condition_of(xr, type_)
                assert condition is not None and condition["status"] == "True", xr
            assert await self._composed(xr) == [await self._text(revision)], (name, revision)
        released = {name: (state, reason) for state, reason, name in await self._releases()}
        expected = {"Running": "InRollout", "Paused": "InRollout", "Completed": "Released"}.get(wanted, wanted)
        assert released[change["to"]] == ("True" if expected == "Released" else "False", expected), released
        assert released[change["from"]] == ("True", "Released"), released

    async def check_history(self, since: int) -> None:
        """Over a whole cycle, from before it began, by the store's own log, which the crash is part of."""
        oracle = Oracle(APP.kind)
        resources = [each for each in self.store.resources() if each.startswith(("apps.", "composition", "rollout"))]
        for resource in resources:
            for _, entry in await self.store.list_at(resource, None, since):
                oracle.see(Stored(orjson.loads(entry.value)), at_first=True)
        for change in await self._changes(since):
            if change.key.resource in resources:
                oracle.see(Stored(orjson.loads(change.value), deleted=change.type == "DELETED"))
        oracle.judge()

    async def _latest(self) -> Object:
        found = (await self.client.list(ROLLOUT)).items
        newest, composition = (await self._revisions())[0], await self.client.get(COMPOSITION, "apps")
        assert found, "there is no Rollout"
        same = [each["spec"]["pipeline"][0]["input"] for each in (newest, composition)]
        assert same[0] == same[1], "there is no revision yet"
        latest = max(found, key=lambda each: (each["spec"]["changes"][0]["toNumber"], each["spec"].get("attempt", 1)))
        text = await self._text(newest["metadata"]["name"])
        # Going back to what is stable makes no Rollout: the one before it is aborted for that.
        assert text == STABLE or latest["spec"]["changes"][0]["to"] == newest["metadata"]["name"], "not begun yet"
        return latest

    async def _revisions(self) -> Sequence[Object]:
        found = (await self.client.list(COMPOSITION_REVISION)).items
        return sorted(found, key=lambda each: -each["spec"]["revision"])

    async def _releases(self) -> list[tuple[str, str, str]]:
        found = []
        for each in await self._revisions():
            condition: Mapping[str, Any] = condition_of(each, "Released") or {}
            found.append((condition.get("status", ""), condition.get("reason", ""), each["metadata"]["name"]))
        return found

    async def _text(self, revision: str) -> str:
        found = await self.client.get(COMPOSITION_REVISION, revision)
        pipeline_input = found["spec"]["pipeline"][0]["input"]
        if "resources" not in pipeline_input:
            return "bad"
        return str(pipeline_input["resources"][0]["base"]["data"]["version"])

    async def _composed(self, xr: Object) -> list[str]:
        found = await self.client.list(CONFIG_MAP, labels=f"crossplane.io/composite={xr['metadata']['name']}")
        return [each["data"]["version"] for each in found.items]

    async def _changes(self, since: int) -> list[Change]:
        changes: list[Change] = []
        position = since
        while position < self.store.revision:
            changes += await self.store.recall(position, 512)
            position = changes[-1].rv
        return changes
