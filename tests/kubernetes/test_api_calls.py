"""How many write calls the control plane costs an API server, counted by the server's own audit log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.controllers.composing import Platform, config_map, templates
from tests.harness.auditing import counted
from tests.harness.contexts import eventually
from tests.kubernetes.conftest import Audited
from tests.kubernetes.replicas import connected, replica, until_works, withdraw

pytestmark = [pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes"), pytest.mark.timeout(280)]

MAX_WRITES = 9
"""Of an XR with four composed resources, from its creation to Ready."""


@pytest.mark.parametrize(
    ("xrs", "rest_seconds"), [(10, 10), pytest.param(200, 60, marks=pytest.mark.long)], ids=["short", "long"]
)
async def test_an_xr_costs_few_writes_and_none_at_rest(
    audited: Audited,
    unique: str,
    tmp_path: Path,
    xrs: int,
    rest_seconds: int,
    record_property: Callable[[str, object], None],
) -> None:
    async with connected(audited.cluster) as client:
        with replica(audited.cluster, f"only-{unique}", directory=tmp_path) as only:
            await until_works(only)
            platform = Platform(client, unique)
            await platform.define()
            await platform.compose(templates(*(config_map(key, x="1") for key in "abcd")))
            await until_quiet(audited)
            mark = audited.audit.mark()
            made = await asyncio.gather(*(platform.create(f"x{number}") for number in range(xrs)))
            await asyncio.gather(*(platform.ready(xr) for xr in made))
            await until_quiet(audited)
            writes = audited.audit.work(mark)
            record_property("write calls of an XR with 4 composed resources", len(writes) / xrs)
            assert len(writes) <= MAX_WRITES * xrs, str(counted(writes))
            mark = audited.audit.mark()
            await asyncio.sleep(rest_seconds)  # the claim is about time that passes
            assert not counted(audited.audit.work(mark))
            await withdraw(client, f"apps.{platform.group}")


async def until_quiet(audited: Audited) -> None:
    """Wait until nothing was written for a while."""

    async def quiet() -> bool:
        mark = audited.audit.mark()
        await asyncio.sleep(1.5)
        return not audited.audit.work(mark)

    await eventually(quiet, "no replica writes any more")
