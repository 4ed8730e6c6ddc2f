"""In which namespaces a user may read kinds that they may not read everywhere.

Nobody can be asked for the namespaces of a user, so each is asked about: those that the user named (the kubeconfig's
own and `--namespace`), and those there are, if their names can be listed. `planform up` lists the names itself; a name
is shown only to a user who may read something in it. The rules in force in a namespace come in one answer. An
authoriser that lists no rules is asked kind by kind, about namespaces that were named or were readable before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from planform.api.kinds import GroupVersionKind
from planform.client.informer import list_pages
from planform.client.protocol import Client
from planform.clock import Clock
from planform.errors import PlanformError
from planform.web import rights
from planform.web.upstream import Upstream

_NAMESPACE: Final = GroupVersionKind("", "v1", "Namespace")
MAX_NAMES: Final = 2000
ROUND: Final = 20
"""Namespaces that are asked about at a time, once all have been: few make a revocation be seen in seconds."""
NAMES_SECONDS: Final = 10.0
"""Between two times that the names of all namespaces are listed."""
_AT_ONCE: Final = 8


class Namespaces:
    """What is known of one user's rights in each namespace."""

    def __init__(self, upstream: Upstream, clock: Clock) -> None:
        self._upstream = upstream
        self._clock = clock
        self._names: list[str] = []
        self._listed_at = float("-inf")
        self._readable: dict[str, frozenset[GroupVersionKind]] = {}
        self._asked: frozenset[GroupVersionKind] = frozenset()
        self._next = 0

    async def readable(self, kinds: Collection[GroupVersionKind]) -> dict[GroupVersionKind, tuple[str, ...]]:
        """For each of these namespaced kinds the namespaces it may be read in, those that the user named first."""
        asked = frozenset(kinds)
        if not asked:
            return {}
        if asked != self._asked:
            self._asked, self._readable = asked, {name: held & asked for name, held in self._readable.items()}
            self._next = -1  # all of them, for the new kinds
        await self._list_names()
        due = self._due()
        gate = asyncio.Semaphore(_AT_ONCE)

        async def ask(name: str) -> None:
            async with gate:
                await self._ask(name, asked)

        await asyncio.gather(*(ask(name) for name in due))
        return {kind: tuple(name for name in self._names if kind in self._readable.get(name, ())) for kind in asked}

    def _due(self) -> list[str]:
        new = [name for name in self._names if name not in self._readable]
        if self._next < 0 or len(self._names) <= ROUND:
            self._next = 0
            return list(self._names)
        begin, self._next = self._next, (self._next + ROUND) % len(self._names)
        return list(dict.fromkeys([*new, *(self._names * 2)[begin : begin + ROUND]]))

    async def _ask(self, name: str, kinds: frozenset[GroupVersionKind]) -> None:
        held = self._readable.get(name, frozenset())
        doubtful = kinds if name in self._upstream.named else held
        refused = await rights.lost(self._upstream, kinds, namespace=name, doubtful=doubtful)
        if refused is not None:
            self._readable[name] = kinds - refused

    async def _list_names(self) -> None:
        now = self._clock.monotonic()
        if now - self._listed_at < NAMES_SECONDS:
            return
        self._listed_at = now
        listed: list[str] = []
        directory: Client = self._upstream.directory or self._upstream.client
        try:
            async for page in list_pages(directory, _NAMESPACE):
                listed += [str(each["metadata"]["name"]) for each in page.items]
                if len(listed) >= MAX_NAMES:
                    break
        except PlanformError:
            listed = self._names  # not for this user, or not now: those that are known stay
        self._names = list(dict.fromkeys([*self._upstream.named, *listed]))[:MAX_NAMES]
        self._readable = {name: held for name, held in self._readable.items() if name in set(self._names)}
