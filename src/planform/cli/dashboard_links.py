"""Where the dashboard that a control plane serves shows what a command just printed."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from planform.cli.output import say
from planform.errors import PlanformError

if TYPE_CHECKING:
    from planform.api.kinds import GroupVersionKind
    from planform.cli.connection import Connected

_PATIENCE: Final = 1.0


def xr_path(kind: GroupVersionKind, namespace: str, name: str) -> str:
    return "/".join(quote(part, safe="") for part in ("xr", f"{kind.kind}.{kind.group}", namespace or "-", name))


def rollout_path(name: str) -> str:
    return f"rollout/{quote(name, safe='')}"


async def link_to(connected: Connected, path: str) -> str:
    """The address of a screen; empty where the server itself serves no dashboard, or does not say so at once."""
    try:
        async with asyncio.timeout(_PATIENCE):
            answer = await connected.transport.request("GET", "/ui/", accept="text/html")
    except (PlanformError, TimeoutError):
        return ""
    # Some proxy before an API server may answer everything: this page is ours.
    return f"{connected.server.rstrip('/')}/ui/{path}" if b"<title>planform" in answer.body else ""


async def say_link(connected: Connected, path: str) -> None:
    """Tell somebody at a terminal; programs are told nothing, and wait for nothing."""
    if sys.stderr.isatty() and (link := await link_to(connected, path)):
        say(f"dashboard: {link}")
