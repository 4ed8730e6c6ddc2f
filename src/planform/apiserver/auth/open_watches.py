"""Watches that are open, and whether their clients may still have them.

A request is authorised when it comes, and a watch stays for an hour. So whenever something is taken away, every open
watch is asked again: who is this by the same credentials, and may they watch this. Those who may not are told so and
the stream ends; a change that only gives more ends nothing.

What could take something away is cheap to see: a counter of changes to roles and bindings, another of deletions of what
tokens rest on, the revocation list and the token file, and the time at which each credential ends. Only if one of them
moved are the watches asked, in slices, so that at rest nothing happens but a look at two files.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final, Protocol

import orjson

from planform.apiserver.verbs.requests import Attributes, User
from planform.clock import Clock
from planform.errors import ApiError, PlanformError, Unauthorized

if TYPE_CHECKING:
    from planform.apiserver.wire.http import HttpRequest, Stream

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.4
_SLICE: Final = 100


class Credentials(Protocol):
    """Says who sends a request, and what that rests on."""

    async def authenticate(self, request: HttpRequest, /) -> User: ...

    def generation(self) -> Hashable:
        """Another value once credentials that were good before may be so no more."""
        ...

    def expires(self, request: HttpRequest, /) -> float:
        """When the credentials of a request end by themselves, in seconds since 1970; infinite if never."""
        ...


class Rights(Protocol):
    """Says what a user may do, and what that rests on."""

    def authorize(self, user: User, attributes: Attributes, /) -> None: ...

    def generation(self) -> Hashable:
        """Another value once somebody may have lost a right."""
        ...


class OpenWatches:
    """Asks again for every open watch. It looks while there are any; `close` ends that."""

    def __init__(self, credentials: Credentials, rights: Rights, clock: Clock) -> None:
        self._credentials = credentials
        self._rights = rights
        self._clock = clock
        self._open: dict[int, tuple[HttpRequest, Attributes, Stream]] = {}
        self._expiring: list[tuple[float, int]] = []  # a heap; watches that have ended stay until their time
        self._numbers = itertools.count(1)
        self._generation: Hashable = None
        self._looking: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    def add(self, request: HttpRequest, attributes: Attributes, stream: Stream) -> Callable[[], None]:
        """Keep an eye on a watch that was just authorised; gives what to call when it has ended."""
        if not self._open:
            # It was authorised by files as they were up to a second ago: the first look asks in any case.
            self._generation = None
        number = next(self._numbers)
        self._open[number] = request, attributes, stream
        expires = self._credentials.expires(request)
        if expires != float("inf"):
            heapq.heappush(self._expiring, (expires, number))
            self._forget_ended()
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look(), name="open watches")

        def ended() -> None:
            self._open.pop(number, None)
            if not self._open and self._looking is not None:
                self._looking.cancel()
                self._looking = None

        return ended

    def _forget_ended(self) -> None:
        if len(self._expiring) > 2 * len(self._open) + _SLICE:
            self._expiring = [each for each in self._expiring if each[1] in self._open]
            heapq.heapify(self._expiring)

    def _state(self) -> Hashable:
        return self._credentials.generation(), self._rights.generation()

    async def _look(self) -> None:
        while True:  # until the last watch has ended, which cancels this
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._ask_again()
            except PlanformError:
                log.exception("open watches cannot be authorised again; this is tried anew")

    async def _ask_again(self) -> None:
        # Taken before the watches are asked: what changes meanwhile is then seen the next time.
        state = self._state()
        if state != self._generation:
            suspects = list(self._open)
        else:
            suspects = self._expired()
        for count, number in enumerate(suspects):
            if number in self._open:
                await self._ask(*self._open[number])
            if count % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
        self._generation = state

    def _expired(self) -> list[int]:
        now, found = self._clock.now().timestamp(), []
        while self._expiring and self._expiring[0][0] <= now:
            found.append(heapq.heappop(self._expiring)[1])
        return found

    async def _ask(self, request: HttpRequest, attributes: Attributes, stream: Stream) -> None:
        try:
            user = await self._credentials.authenticate(request)
            self._rights.authorize(user, attributes)
        except ApiError as error:
            if not isinstance(error, Unauthorized) and error.code >= 500:
                return  # it is not known: what was allowed stays so, as with a request that is under way
            stream.end(b'{"type":"ERROR","object":%b}\n' % orjson.dumps(error.to_status()))
