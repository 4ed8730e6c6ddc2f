"""A control plane that runs ActionSets until somebody kills it.

`python -m tests.controllers.blueprint_child DIRECTORY`
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from planform.blueprints.catalogue import PhaseCatalogue
from planform.blueprints.contract import PhaseEnvironment
from planform.blueprints.controller import ActionSetController
from planform.blueprints.functions import Policy, builtin_functions
from planform.blueprints.registry import PhaseFunctionRegistry
from planform.reconcile.context import ControllerContext
from tests.harness.contexts import embedded_context


@asynccontextmanager
async def acting(directory: Path) -> AsyncIterator[ControllerContext]:
    """An embedded control plane that runs ActionSets with the functions that come with it."""
    registry = PhaseFunctionRegistry(plugins=lambda: ())
    registry.register(builtin_functions(Policy(directories=(directory / "backups",))))
    async with embedded_context(directory / "data") as context:
        here = PhaseEnvironment(engine="embedded", data=directory / "data")
        ActionSetController(context, PhaseCatalogue(registry), here=here).start()
        yield context


async def main(directory: Path) -> None:
    async with acting(directory):
        await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
