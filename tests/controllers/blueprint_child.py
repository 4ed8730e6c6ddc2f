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
from planform.blueprints.contract import Surroundings
from planform.blueprints.functions import Policy, builtin_functions
from planform.blueprints.registry import PhaseFunctionRegistry
from planform.controllers.actionsets import ActionSetController
from planform.controllers.workbench import Workbench
from tests.harness.planes import embedded_bench


@asynccontextmanager
async def acting(directory: Path) -> AsyncIterator[Workbench]:
    """An embedded control plane that runs ActionSets with the functions that come with it."""
    registry = PhaseFunctionRegistry(plugins=lambda: ())
    registry.register(builtin_functions(Policy(directories=(directory / "backups",))))
    async with embedded_bench(directory / "data") as bench:
        here = Surroundings(engine="embedded", data=directory / "data")
        ActionSetController(bench, PhaseCatalogue(registry), here=here).start()
        yield bench


async def main(directory: Path) -> None:
    async with acting(directory):
        await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
