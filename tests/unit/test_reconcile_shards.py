"""Keys divided into shards: which is whose, what is passed over, and that a shard is released once none of its
reconciles is running."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from planform.errors import UsageError
from planform.reconcile.controller import Result
from planform.reconcile.shards import Shards, Share, parse_share, shard_of
from tests.unit.memory_engine import settle

KEYS = [f"composite/apps.example.org default/app-{number}" for number in range(3000)]


def test_shards_are_about_equally_large() -> None:
    sizes = Counter(shard_of(key, 3) for key in KEYS)
    assert set(sizes) == {0, 1, 2}
    assert max(sizes.values()) - min(sizes.values()) < len(KEYS) * 0.1


def test_one_shard_more_takes_keys_and_moves_none_between_the_others() -> None:
    moved = [(shard_of(key, 3), shard_of(key, 4)) for key in KEYS if shard_of(key, 3) != shard_of(key, 4)]
    assert {to for _, to in moved} == {3}
    assert len(moved) < len(KEYS) / 3


@pytest.mark.parametrize("text", ["", "1", "3/3", "0/0", "-1/2", "0/65", "a/b", "0/2/3"])
def test_a_share_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no share of the work"):
        parse_share(text)


def test_a_share_names_its_home_and_the_whole() -> None:
    assert parse_share("2/3") == Share(home=2, count=3)


class CountingReconciler:
    """A reconciler whose reconciles end when they are told to."""

    def __init__(self, shards: Shards) -> None:
        self.begun: list[str] = []
        self.done = asyncio.Event()
        self.reconcile = shards.guarded("composite/x", self._reconcile)

    async def _reconcile(self, key: str) -> Result:
        self.begun.append(key)
        await self.done.wait()
        return Result(requeue_after=1)


def key_in(shard: int) -> str:
    return next(key for key in map(str, range(100)) if shard_of(f"composite/x {key}", 2) == shard)


async def test_keys_of_shards_that_are_not_held_are_passed_over() -> None:
    shards = Shards(2, prefix="composite/")
    reconciler, woken = CountingReconciler(shards), list[frozenset[int]]()
    shards.on_begin(lambda: woken.append(shards.held))
    reconciler.done.set()
    assert await reconciler.reconcile(key_in(0)) == Result()
    shards.begin(0)
    assert woken == [frozenset({0})]
    assert await reconciler.reconcile(key_in(0)) == Result(requeue_after=1)
    assert await reconciler.reconcile(key_in(1)) == Result()
    assert reconciler.begun == [key_in(0)]


async def test_a_shard_ends_when_its_last_reconcile_has_and_no_other_is_waited_for() -> None:
    shards = Shards(2, prefix="composite/")
    reconciler = CountingReconciler(shards)
    shards.begin(0)
    shards.begin(1)
    running = [asyncio.ensure_future(reconciler.reconcile(key_in(shard))) for shard in (0, 1)]
    await settle()
    ending = asyncio.create_task(shards.end(0))
    await settle()
    assert not ending.done()
    assert not shards.owns("composite/x", key_in(0))
    running[0].cancel()
    await settle()
    assert ending.done()
    assert not running[1].done()
    reconciler.done.set()
    await running[1]


async def test_controllers_of_other_kinds_share_nothing() -> None:
    shards = Shards(2, prefix="composite/")

    async def reconcile(key: str) -> Result:
        return Result()

    assert shards.guarded("definitions", reconcile) is reconcile
