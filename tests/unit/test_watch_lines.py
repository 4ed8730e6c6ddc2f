"""Watches as the wire sends them, at the edges of a control plane's life."""

from __future__ import annotations

from pathlib import Path

from planform.api.kinds import GroupVersionKind
from planform.apiserver.verbs.reads import WatchOptions
from planform.apiserver.verbs.requests import Selection
from planform.apiserver.wire.negotiation import Form
from planform.apiserver.wire.streams import watch_lines
from tests.harness.embedded import embedded_engine


async def test_a_watch_that_begins_once_the_store_is_closed_ends_as_open_ones_do(tmp_path: Path) -> None:
    async with embedded_engine(tmp_path) as engine:
        served = engine.core.registry.find(GroupVersionKind("", "v1", "ConfigMap"))
        lines = watch_lines(engine.core, served, Selection(), WatchOptions(resource_version="1"), Form(), "")
    assert [line async for line in lines] == []
