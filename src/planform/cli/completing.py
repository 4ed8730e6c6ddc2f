"""What a shell offers after the Tab key: kinds, names and namespaces of the control plane that the command would ask.

Called while somebody types, so it waits five seconds at most and is silent about whatever goes wrong. Nothing but click
is imported until the key is pressed: every command names these functions.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from planform.api.kinds import Kind
    from planform.cli.connection import Connected

_PATIENCE: Final = 5.0
_MAX_NAMES: Final = 1000
"""Names that are read; more than that nobody reads, and a fleet may have a hundred thousand."""
_METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def objects(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """For `KIND NAME...`, `KIND/NAME...` and the arguments kind and name: a kind first, then names of it."""
    if parameter.name == "name":
        before = [str(context.params.get("kind") or "")]
    else:
        before = [str(word) for word in context.params.get("what") or ()]
    word, slash, _ = incomplete.partition("/")

    async def offer(connected: Connected) -> list[str]:
        if slash:
            return [f"{word}/{name}" for name in await _names(connected, word, context)]
        if not before:
            return _words(await connected.client.kinds())
        if "/" in before[0] or not before[0]:
            return []
        return [name for name in await _names(connected, before[0], context) if name not in before[1:]]

    return _asked(context, incomplete, offer)


def names_of(kind: str) -> Complete:
    """For an argument that names an object of one kind."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        return _asked(context, incomplete, lambda connected: _names(connected, kind, context))

    return complete


namespaces: Final = names_of("namespaces")


def _asked(context: click.Context, incomplete: str, offer: Callable[[Connected], Awaitable[list[str]]]) -> list[str]:
    """What begins with the letters that are there; nothing where nobody answers."""
    from planform.cli.connection import connect, hush_warnings
    from planform.errors import PlanformError

    async def ask() -> list[str]:
        given: dict[str, Any] = context.params
        async with (
            asyncio.timeout(_PATIENCE),
            connect(given.get("kubeconfig"), context=given.get("context") or "", timeout=_PATIENCE) as connected,
        ):
            return await offer(connected)

    hush_warnings()
    try:
        found = asyncio.run(ask())
    except (PlanformError, OSError, TimeoutError):
        return []
    return sorted(word for word in found if word.startswith(incomplete))


def _words(kinds: Iterable[Kind]) -> list[str]:
    """One word for each kind that can be listed, with its group where several groups serve a plural."""
    found = {(kind.plural, kind.group) for kind in kinds if "list" in kind.verbs}
    times = Counter(plural for plural, _ in found)
    return [plural if times[plural] == 1 or not group else f"{plural}.{group}" for plural, group in found]


async def _names(connected: Connected, word: str, context: click.Context) -> list[str]:
    from planform.client.discovery import path_of

    kind = await connected.find_kind(word)
    where = (context.params.get("namespace") or connected.namespace) if kind.namespaced else ""
    query = {"limit": str(_MAX_NAMES)}
    answer = await connected.transport.request("GET", path_of(kind, where), query=query, accept=_METADATA)
    return [str(item["metadata"]["name"]) for item in answer.json()["items"]]
