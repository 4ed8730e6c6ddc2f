"""Sharing keys between processes: each key belongs to one shard, and each shard to one process at a time.

Which shard a key belongs to follows from the key alone, by rendezvous hashing: with one shard more, only the keys that
go to it move. Who holds which shard is decided elsewhere, by a Lease each; here stands what follows from it. A process
hears of every key and reconciles those of its shards. A shard is released only when none of its reconciles is running.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, TypeVar

from planform.errors import UsageError
from planform.reconcile.controller import Result

K = TypeVar("K", bound=Hashable)

MAX_SHARDS: Final = 64


@dataclass(frozen=True, slots=True)
class Share:
    """A process' part of the work: `home` is the shard it is meant for, of `count` in all."""

    home: int = 0
    count: int = 1


def parse_share(text: str) -> Share:
    """`0/3`: home is shard 0 of 3. Raises UsageError for what cannot be."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= int(match[2]) <= MAX_SHARDS or int(match[1]) >= int(match[2]):
        raise UsageError(
            f'"{text}" is no share of the work',
            hint=f"write N/M, where N counts from 0 and is less than M, and M is {MAX_SHARDS} at most: 0/3, 1/3, 2/3",
        )
    return Share(int(match[1]), int(match[2]))


def shard_of(key: str, count: int) -> int:
    """The shard whose lot for this key is the highest."""
    return max(range(count), key=lambda shard: blake2b(f"{shard} {key}".encode(), digest_size=8).digest())


class Shards:
    """The shards that this process holds. Only controllers whose name begins with `prefix` share their keys."""

    def __init__(self, count: int, *, prefix: str) -> None:
        self.count = count
        self._prefix = prefix
        self._held: set[int] = set()
        self._running: Counter[int] = Counter()
        self._less = asyncio.Event()
        self._begun: list[Callable[[], None]] = []

    @property
    def held(self) -> frozenset[int]:
        return frozenset(self._held)

    def shares(self, controller: str) -> bool:
        """Whether a controller's keys are divided at all."""
        return controller.startswith(self._prefix)

    def owns(self, controller: str, key: Hashable) -> bool:
        """Whether this process is to reconcile a key."""
        return self._shard(controller, key) in self._held

    def on_begin(self, begun: Callable[[], None]) -> None:
        """Call this whenever there are more keys to look at than before."""
        self._begun.append(begun)

    def begin(self, shard: int) -> None:
        """Reconcile this shard's keys from now on; those that were passed over are looked at again."""
        self._held.add(shard)
        for begun in self._begun:
            begun()

    async def end(self, shard: int) -> None:
        """Begin no more reconciles of this shard, and wait for those in hand."""
        self._held.discard(shard)
        while self._running[shard]:
            self._less.clear()
            await self._less.wait()

    def guarded(self, controller: str, reconcile: Callable[[K], Awaitable[Result]]) -> Callable[[K], Awaitable[Result]]:
        """The same, for keys of shards that are held; others are passed over."""
        if not self.shares(controller):
            return reconcile

        async def guarded(key: K) -> Result:
            shard = self._shard(controller, key)
            if shard not in self._held:
                return Result()
            self._running[shard] += 1
            try:
                return await reconcile(key)
            finally:
                self._running[shard] -= 1
                self._less.set()

        return guarded

    def shard_of(self, controller: str, key: Hashable) -> int:
        """The shard that a controller's key belongs to, whoever holds it."""
        return self._shard(controller, key)

    def _shard(self, controller: str, key: Hashable) -> int:
        return shard_of(f"{controller} {key}", self.count)
