"""What waves cost beside the same change without a policy, how fast the ways back are, and that rest is rest.

    python -m bench rollouts [--count 1000] [--quick]

XRs have four resources each. Times are from the apply of the Composition until the last XR has the new values and is
ready; orchestration writes are the admissions, as the metric counts them, and what is
written to Rollouts and RolloutActions.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import orjson
from tests.controllers.composing import Platform, a_platform, config_map, from_xr, templates
from tests.harness.contexts import embedded_context
from tests.rollouts.rolling import act, bad, policy, rollouts

from bench.report import Report
from planform.api.kinds import GroupVersionKind, Object, gvk
from planform.api.names import ROLLOUT, ROLLOUT_ACTION

CONFIG_MAP = gvk("v1", "ConfigMap")
REST_SECONDS = 60.0
MAX_ROLLOUT_BYTES = 64 * 1024


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench rollouts", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="XRs")
    parser.add_argument("--quick", action="store_true", help="60 XRs")
    options = parser.parse_args(arguments)
    return asyncio.run(_run(60, rest=10.0) if options.quick else _run(options.count, rest=REST_SECONDS))


async def _run(count: int, *, rest: float) -> int:
    report = Report(f"Rollouts of {count} XRs")
    async with embedded_context() as context, a_platform(context, "bench") as platform:
        await platform.compose(*_steps("1"))
        xrs = [await platform.create(f"x{number:05}") for number in range(count)]
        await asyncio.gather(*(platform.ready(xr) for xr in xrs))
        await _all_say(platform, count, "1")
        plain = await _timed(platform, count, "2")
        await policy(platform, waves=[{"name": "all", "percent": [1, 10, 100]}], concurrency=max(50, count // 4))
        await _until(_released(platform))
        written = asyncio.create_task(_rollout_writes(platform))
        waved = await _timed(platform, count, "3")
        done = await _until(_phase(platform, "Completed"))
        moved = _admissions(platform) + await _ended(written)
        report.note(f"without a policy {plain:.2f} s, in waves of 1, 9 and 90 % {waved:.2f} s")
        report.at_most("waves beside no policy", waved / plain, 1.3)
        report.at_most("waves", waved, max(30.0 * count / 1000, 3.0), "s")
        report.at_most("orchestration writes beyond one per XR", moved - count, 50, "writes")

        started = time.perf_counter()
        await act(platform, done, "Undo")
        await _all_say(platform, count, "2")
        await _until(_phase(platform, "Undone"))
        report.at_most(f"undo of {count} moved XRs", time.perf_counter() - started, max(15.0 * count / 1000, 2.0), "s")

        for some, bar in ((count, max(15.0 * count / 1000, 2.0)), (min(100, count // 2), 2.0)):
            await policy(platform, waves=[{"name": "some", "max": some, "soak": "1h"}], concurrency=max(50, count))
            await platform.compose(*_steps(f"{some} moved"))
            await _until(_soaking(platform))
            [*_, running] = await rollouts(platform)
            assert running["status"]["counts"]["target"] == some, running["status"]["counts"]
            started = time.perf_counter()
            await act(platform, running, "Abort")
            await _until(_phase(platform, "Aborted"))
            await _all_say(platform, count, "2")
            report.at_most(f"abort with {some} moved XRs", time.perf_counter() - started, bar, "s")

        failing = _first_failure(platform)
        await platform.compose(bad())
        first = await _until(failing)
        aborted = await _until(_aborted_at(platform))
        report.at_most("from the first failed XR to the abort", max(0.0, aborted - first), 1.0, "s")
        await _until(_phase(platform, "Aborted"))
        await _all_say(platform, count, "2")

        report.note(f"nothing is written any more {await _quiet(platform):.0f} s after the last XR was back")
        before = await _versions(platform)
        await asyncio.sleep(rest)
        largest = max(len(orjson.dumps(each)) for each in await rollouts(platform))
        report.at_most("the largest Rollout object", largest, MAX_ROLLOUT_BYTES, "bytes")
        report.at_most(f"writes at rest in {rest:g} s", await _versions(platform) - before, 0, "writes")
    return 1 if report.failures else 0


async def _timed(platform: Platform, count: int, word: str) -> float:
    started = time.perf_counter()
    await platform.compose(*_steps(word))
    await _all_say(platform, count, word)
    return time.perf_counter() - started


async def _all_say(platform: Platform, count: int, word: str) -> None:
    async def said() -> bool:
        listed = await platform.client.list(CONFIG_MAP, namespace=platform.namespace)
        says = [each for each in listed.items if (each.get("data") or {}).get("version") == word]
        return len(says) == 4 * count

    await _until(said)


async def _until(check: Callable[[], Awaitable[Any]]) -> Any:
    deadline = time.monotonic() + 300
    while not (found := await check()):
        assert time.monotonic() < deadline, "it took longer than 300 s"
        await asyncio.sleep(0.2)
    return found


def _phase(platform: Platform, phase: str) -> Callable[[], Awaitable[Object | None]]:
    async def look() -> Object | None:
        found = await rollouts(platform)
        return found[-1] if found and (found[-1].get("status") or {}).get("phase") == phase else None

    return look


def _soaking(platform: Platform) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        found = await rollouts(platform)
        status = found[-1].get("status") or {}
        return status.get("phase") == "Running" and (status.get("wave") or {}).get("state") == "Soaking"

    return look


def _released(platform: Platform) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        newest = (await platform.revisions())[-1]
        return any(each["type"] == "Released" for each in newest["status"]["conditions"])

    return look


def _first_failure(platform: Platform) -> Callable[[], Awaitable[float]]:
    """When the first XR was found to have failed as often as it takes."""

    async def look() -> float:
        listed = await platform.client.list(platform.kind, namespace=platform.namespace)
        for each in listed.items:
            own = ((each.get("status") or {}).get("planform") or {}).get("composedBy") or {}
            if own.get("failures", 0) >= 3:
                return time.time()
        found = await rollouts(platform)
        return time.time() if _has_ended(found[-1]) else 0.0

    return look


def _aborted_at(platform: Platform) -> Callable[[], Awaitable[float]]:
    async def look() -> float:
        found = await rollouts(platform)
        return time.time() if _has_ended(found[-1]) else 0.0

    return look


def _has_ended(rollout: Object) -> bool:
    return (rollout.get("status") or {}).get("phase") in ("Aborting", "Aborted")


async def _versions(platform: Platform) -> int:
    """The store's newest version: every write adds one."""
    listed = await platform.client.list(ROLLOUT)
    return int(listed.resource_version)


_WRITTEN: list[str] = []


async def _rollout_writes(platform: Platform) -> None:
    """Tells of every write to a Rollout or a RolloutAction until it is cancelled."""

    async def told(kind: GroupVersionKind) -> None:
        version = (await platform.client.list(kind)).resource_version
        async with platform.client.watch(kind, resource_version=version) as events:
            async for event in events:
                _WRITTEN.append(event.type)

    await asyncio.gather(told(ROLLOUT), told(ROLLOUT_ACTION))


async def _ended(task: asyncio.Task[None]) -> int:
    task.cancel()
    await asyncio.wait([task])
    return len(_WRITTEN)


def _admissions(platform: Platform) -> int:
    """XRs that were moved, one write each."""
    assert platform.controllers is not None
    lines = platform.controllers.context.metrics.render().splitlines()
    found = (each for each in lines if each.startswith("planform_rollout_admissions_total{"))
    return int(sum(float(each.rpartition(" ")[2]) for each in found))


async def _quiet(platform: Platform) -> float:
    """Wait until three seconds have gone by without a write; gives how long it took."""
    started = last = time.monotonic()
    version = await _versions(platform)
    while time.monotonic() - last < 3 and time.monotonic() - started < 60:
        await asyncio.sleep(0.25)
        if (found := await _versions(platform)) != version:
            version, last = found, time.monotonic()
    return last - started


def _steps(word: str) -> tuple[Object, ...]:
    return (
        templates(
            *(config_map(f"m{number}", from_xr("metadata.name", "data.xr"), version=word) for number in range(4))
        ),
    )
