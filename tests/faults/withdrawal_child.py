"""Control planes that offer an API with claims and withdraw it again, and live until their failpoint.

    python -m tests.faults.withdrawal_child DIRECTORY

See `composition_child`. Withdrawing takes the claim, its XR and all they own along, with the kinds of both.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

from planform.api.kinds import Object
from planform.api.names import XRD
from planform.apiserver.crds.registry import ServedKind
from planform.app import ControlPlane
from planform.engine.garbage import GarbageCollector
from planform.reconcile.controller import Result
from planform.store import Key
from tests.faults.composition_child import Life, Order, main
from tests.faults.composition_cycle import GROUP, Cycle
from tests.faults.failpoints import Failpoints
from tests.harness.contexts import read, until_condition

PHASES: Final = ("offer", "withdraw")
XRD_NAME: Final = f"xapps.{GROUP}"


class Withdrawal(Cycle):
    """An API that comes with a claim, and goes with it."""

    delete_policy = "Background"

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane, claimed=True)

    async def define(self) -> None:
        """The Composition, which waits for the API to come again."""
        await until_condition(self.client, await self.client.create(self.composition()), "Synced")

    async def act(self, phase: str) -> None:
        xrd = await read(self.client, XRD, XRD_NAME)
        if phase == "offer":
            xrd = xrd or await self.client.create(self.xrd())
            await until_condition(self.client, {**xrd, "apiVersion": XRD.api_version}, "Offered")
            await super().act("create")
        elif xrd is not None:
            await self.client.delete(XRD, XRD_NAME)

    async def settle(self, phase: str) -> None:
        await super().settle({"offer": "create", "withdraw": "delete"}[phase])

    async def check(self, phase: str) -> None:
        await super().check(phase)
        if phase == "delete":
            left = [str(key) for key in self._objects() if GROUP in key.resource or GROUP in key.name]
            assert not left, f"of the API there is still {left}"

    async def check_history(self, since: int) -> None:
        before = {key for each in self.store.resources() for key, _ in await self.store.list_at(each, None, since)}
        assert self._objects().keys() == {key for key in before if key.resource != "events"}


class WithdrawalOrder(Order):
    phases = PHASES

    def life(self, plane: ControlPlane) -> Life:
        return Withdrawal(plane)

    def prepare(self, points: Failpoints) -> None:
        """What is gone is collected late, as when a large fleet goes: the kinds of its owners could be gone by then."""
        super().prepare(points)
        collect = GarbageCollector._collect

        async def collect_late(garbage: GarbageCollector, served: ServedKind, key: Key, obj: Object) -> Result:
            await asyncio.sleep(0.2)
            return await collect(garbage, served, key, obj)

        GarbageCollector._collect = collect_late  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    main(Path(sys.argv[1]), WithdrawalOrder)
