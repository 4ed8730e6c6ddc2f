"""Follows one XR on its way to Ready through the code: how many calls it takes, through which modules and folders.

A call counts from the nearest caller of ours to the callee, however many calls of libraries lie between them. It is a
folder switch if the two are in different folders below `planform`; a module at the top counts as a folder of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import planform
from planform.api.kinds import GroupVersionKind
from planform.api.names import CRD
from planform.app import Settings, open_control_plane
from planform.cli.control_plane import demo_platform

ROOT = str(Path(planform.__file__).parent) + "/"
CONFIG_MAPS = [
    {
        "name": name,
        "base": {"apiVersion": "v1", "kind": "ConfigMap"},
        "patches": [{"fromFieldPath": "spec.size", "toFieldPath": "data.size"}],
        "readinessChecks": [{"type": "None"}],
    }
    for name in ("a", "b", "c", "d")
]


class Calls:
    """What a profiler saw: calls by the module of the caller and of the callee."""

    def __init__(self) -> None:
        self.pairs: Counter[tuple[str, str]] = Counter()
        self._names: dict[str, str | None] = {}

    def _module(self, frame: FrameType) -> str | None:
        path = frame.f_code.co_filename
        if path not in self._names:
            self._names[path] = path[len(ROOT) : -3] if path.startswith(ROOT) else None
        return self._names[path]

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or (callee := self._module(frame)) is None:
            return
        caller = frame.f_back
        while caller is not None:
            if (module := self._module(caller)) is not None:
                self.pairs[(module, callee)] += 1
                return
            caller = caller.f_back

    @contextmanager
    def watched(self) -> Iterator[None]:
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)


def folder(module: str) -> str:
    return module.split("/", 1)[0]


async def follow() -> Calls:
    """Make one XR that composes four ConfigMaps, and watch until it is Ready."""
    calls = Calls()
    composition = demo_platform.composition()
    composition["spec"]["pipeline"][0]["input"]["resources"] = CONFIG_MAPS
    with tempfile.TemporaryDirectory() as directory:
        async with open_control_plane(Settings(data=Path(directory))) as plane:
            await plane.client.apply(demo_platform.definition(), manager="xr-path")
            await plane.client.apply(composition, manager="xr-path")
            await _ready(plane.client, "warm")
            await asyncio.sleep(1)
            with calls.watched():
                await _ready(plane.client, "traced")
    return calls


async def _ready(client: Any, name: str) -> None:
    xr = {
        "apiVersion": demo_platform.APP.api_version,
        "kind": demo_platform.APP.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {},
    }
    async with asyncio.timeout(60):
        await _served(client, demo_platform.APP)
        await client.create(xr)
        async with client.watch(
            demo_platform.APP, namespace="default", fields=f"metadata.name={name}", send_initial_events=True
        ) as changes:
            async for change in changes:
                conditions = change.object.get("status", {}).get("conditions", ())
                if any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
                    return


async def _served(client: Any, kind: GroupVersionKind) -> None:
    """Wait until the XRD's CRD is served."""
    name = f"apps.{kind.group}"
    async with client.watch(CRD, fields=f"metadata.name={name}", send_initial_events=True) as changes:
        async for change in changes:
            conditions = change.object.get("status", {}).get("conditions", ())
            if any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
                return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", choices=["text", "json"], default="text")
    arguments = parser.parse_args()
    calls = asyncio.run(follow())
    switches: Counter[tuple[str, str]] = Counter()
    for (caller, callee), count in calls.pairs.items():
        if folder(caller) != folder(callee):
            switches[(folder(caller), folder(callee))] += count
    modules = {module for pair in calls.pairs for module in pair}
    report = {
        "calls": calls.pairs.total(),
        "modules": len(modules),
        "folders": len({folder(module) for module in modules}),
        "folderSwitches": switches.total(),
    }
    if arguments.output == "json":
        print(json.dumps(report))
        return
    for name, number in report.items():
        print(f"{name:16}{number:8}")
    print()
    for (caller, callee), count in switches.most_common():
        print(f"{count:8}  {caller} -> {callee}")


if __name__ == "__main__":
    main()
