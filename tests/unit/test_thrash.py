"""When the thrash guard holds an XR back, for how long, and whom it names."""

from __future__ import annotations

from typing import Any

from planform.clock import VirtualClock
from planform.xrs.thrash import (
    BURST,
    BURST_PER_RESOURCE,
    COOLDOWN_SECONDS,
    PROBE_SECONDS,
    REFILL_PER_SECOND,
    TOKENS_PER_FAILED_CALL,
    ThrashGuard,
    dispute,
)


def exhausted(guard: ThrashGuard[str], *, resources: int = 1) -> int:
    """Write until the XR is held back; gives how many writes that took."""
    for count in range(1, 1000):
        guard.wrote("xr", resources=resources, why="two writers")
        if guard.wait("xr"):
            return count
    raise AssertionError("never held back")


def test_the_burst_grows_with_the_number_of_resources() -> None:
    clock = VirtualClock()
    assert exhausted(ThrashGuard(clock)) == BURST + BURST_PER_RESOURCE
    assert exhausted(ThrashGuard(clock), resources=100) == BURST + 100 * BURST_PER_RESOURCE


async def test_one_that_writes_seldom_is_never_held_back() -> None:
    clock = VirtualClock()
    guard: ThrashGuard[str] = ThrashGuard(clock)
    for _ in range(500):
        guard.wrote("xr", resources=1, why="a slow change")
        assert not guard.wait("xr") and not guard.reason("xr") and guard.quiet_in("xr") is None
        await clock.advance(1 / REFILL_PER_SECOND)


async def test_one_that_is_held_back_is_probed_now_and_then_and_free_once_it_was_quiet() -> None:
    clock = VirtualClock()
    guard: ThrashGuard[str] = ThrashGuard(clock)
    exhausted(guard)
    assert guard.wait("xr") == PROBE_SECONDS and guard.reason("xr") == "two writers"
    assert guard.quiet_in("xr") == COOLDOWN_SECONDS
    assert not guard.wait("another")
    await clock.advance(PROBE_SECONDS)
    assert not guard.wait("xr") and guard.reason("xr")
    guard.wrote("xr", resources=1, why="still two writers")
    assert guard.wait("xr") == PROBE_SECONDS and guard.reason("xr") == "still two writers"
    await clock.advance(COOLDOWN_SECONDS)
    assert not guard.wait("xr") and not guard.reason("xr") and guard.quiet_in("xr") is None


def test_one_that_is_forgotten_starts_afresh() -> None:
    guard: ThrashGuard[str] = ThrashGuard(VirtualClock())
    exhausted(guard)
    guard.forget("xr")
    assert not guard.wait("xr") and not guard.reason("xr")
    assert exhausted(guard) == BURST + BURST_PER_RESOURCE


async def test_one_that_fails_at_the_rate_of_its_backoff_is_not_held_back() -> None:
    clock = VirtualClock()
    guard: ThrashGuard[str] = ThrashGuard(clock)
    for delay in (1, 2, 4, 8, 16, 30, 30, 30):
        guard.failed("xr", generation=2, calls=1)
        assert not guard.wait("xr", generation=2)
        await clock.advance(delay)


async def test_one_that_fails_and_is_woken_each_time_is_held_back_until_its_user_changes_it() -> None:
    guard: ThrashGuard[str] = ThrashGuard(VirtualClock())
    failures = 0
    while not guard.wait("xr", generation=2):
        guard.failed("xr", generation=2, calls=1)
        failures += 1
    assert failures == BURST / TOKENS_PER_FAILED_CALL
    assert guard.reason("xr") == "it fails again and again, and is woken each time", "which says the same each time"
    assert not guard.wait("xr", generation=3)
    guard.failed("xr", generation=3, calls=1)
    assert not guard.wait("xr", generation=3), "it begins anew"


def test_one_that_asks_its_function_often_in_vain_is_held_back_sooner() -> None:
    guard: ThrashGuard[str] = ThrashGuard(VirtualClock())
    guard.failed("xr", generation=2, calls=6)
    assert not guard.wait("xr", generation=2)
    guard.failed("xr", generation=2, calls=6)
    assert guard.wait("xr", generation=2) == PROBE_SECONDS


def test_the_dispute_names_the_field_and_the_other_writer() -> None:
    wanted: dict[str, Any] = {"spec": {"size": 1, "tags": ["a"]}}
    found: dict[str, Any] = {
        "kind": "Bucket",
        "metadata": {
            "name": "b",
            "managedFields": [
                {"manager": "ours", "fieldsV1": {"f:spec": {"f:tags": {}}}},
                {"manager": "autoscaler", "fieldsV1": {"f:spec": {"f:size": {}}}},
                {"manager": "bystander", "fieldsV1": {"f:metadata": {"f:labels": {}}}},
            ],
        },
        "spec": {"size": 2, "tags": ["a"]},
    }
    text = dispute(wanted, found, ours="ours")
    assert text.startswith("field spec.size of Bucket b is changed back and forth") and text.endswith(
        'and "autoscaler"'
    )
    assert dispute({"spec": {"tags": ["a"]}}, found, ours="ours") == ""
    found["metadata"]["managedFields"] = []
    assert dispute(wanted, found, ours="ours").endswith("and somebody")
