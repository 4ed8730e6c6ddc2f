"""One call of a function: from the cache if it knows the answer, else by the runner, and within the deadline."""

from __future__ import annotations

import asyncio

import msgspec

from planform.clock import Clock
from planform.functions.cache import CacheOutcome, Kept, ResponseCache
from planform.functions.errors import FunctionTimedOut
from planform.functions.runner import FunctionRevision, FunctionRunner
from planform.functions.values import FunctionRequest, FunctionResponse

_GRACE = 0.25


class Call(msgspec.Struct, frozen=True):
    """What was asked, what was answered and how that came about."""

    request: FunctionRequest
    response: FunctionResponse
    seconds: float
    cache: CacheOutcome = CacheOutcome.OFF
    kept: Kept | None = None

    @property
    def warning(self) -> str:
        """What the user should hear about this call."""
        if self.cache is not CacheOutcome.HIT and self.request.tag and self.response.tag != self.request.tag:
            return "the function did not return the tag of the request; its answer is used but not cached"
        return ""


async def call_once(
    revision: FunctionRevision,
    request: FunctionRequest,
    *,
    runner: FunctionRunner,
    cache: ResponseCache | None,
    clock: Clock,
    timeout: float,
) -> Call:
    """Ask once. Raises FunctionTimedOut, and whatever the runner raises."""
    started = clock.monotonic()
    outcome = CacheOutcome.OFF
    if cache is not None:
        known, outcome = cache.get(revision, request)
        if known is not None:
            return Call(request, known, clock.monotonic() - started, outcome)
    if revision.quick:  # it does not wait, so that no timer could end it
        response = await runner.run(revision, request, timeout=timeout)
    else:
        response = await _within(timeout, revision, request, runner)
    kept = cache.put(revision, request, response) if cache is not None else None
    return Call(request, response, clock.monotonic() - started, outcome, kept)


async def _within(
    timeout: float, revision: FunctionRevision, request: FunctionRequest, runner: FunctionRunner
) -> FunctionResponse:
    """A runner keeps the deadline itself and knows what it was waiting for; this is for one that does not."""
    try:
        async with asyncio.timeout(timeout + _GRACE):
            return await runner.run(revision, request, timeout=timeout)
    except TimeoutError as error:
        raise FunctionTimedOut("no answer within the step's deadline", revision=revision) from error
