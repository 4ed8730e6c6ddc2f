"""Which versions a piece of work wrote itself, so that hearing of them is not taken for news.

A resource version belongs to one write of one object. Clients note the versions that come out of their writes; whoever
began the work, such as a controller with one reconcile, asks for them at its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar, Token
from typing import Any

from planform.api.metadata import resource_version_of

_VERSIONS: ContextVar[set[str] | None] = ContextVar("own_writes", default=None)


class collect_written_versions:  # a function with a `yield` would do, but every reconcile enters one
    """Gives the set of resource versions that this block writes, and tasks started in it."""

    __slots__ = ("_token",)

    _token: Token[set[str] | None]

    def __enter__(self) -> set[str]:
        versions: set[str] = set()
        self._token = _VERSIONS.set(versions)
        return versions

    def __exit__(self, *_: object) -> None:
        _VERSIONS.reset(self._token)


def note_written_version(written: Mapping[str, Any]) -> None:
    """A client has stored this."""
    versions = _VERSIONS.get()
    if versions is not None:
        version = resource_version_of(written)
        if version:
            versions.add(version)
