"""Work of a phase that goes on side by side fails as one: with the first failure, and all the rest ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from planform.blueprints.errors import PhaseFailed


@asynccontextmanager
async def together() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group that raises a PhaseFailed of its tasks, or a TimeoutError of the block, as it is."""
    failure: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except* (PhaseFailed, TimeoutError) as errors:
        failure = errors
        while isinstance(failure, BaseExceptionGroup):
            failure = failure.exceptions[0]
    if failure is not None:
        raise failure
