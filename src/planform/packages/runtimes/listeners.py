"""Those who want to hear when a revision stands differently, whoever runs it."""

from __future__ import annotations

from collections.abc import Callable

OnChange = Callable[[str], None]
"""Hears the name of a revision; called on the event loop, must not wait and not raise."""


class Listeners:
    """Called one after the other, in the order in which they came."""

    def __init__(self) -> None:
        self._callbacks: dict[object, OnChange] = {}

    def add(self, callback: OnChange) -> Callable[[], None]:
        """Gives what ends it; ending twice is harmless."""
        token = object()
        self._callbacks[token] = callback

        def remove() -> None:
            self._callbacks.pop(token, None)

        return remove

    def notify(self, revision: str) -> None:
        for callback in list(self._callbacks.values()):
            callback(revision)
