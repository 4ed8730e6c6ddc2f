"""Who is logged in: one-time codes that become cookies. Nothing of it is ever written to disk.

A code works once and for a minute, so that somebody who finds it later, in a history or a terminal, has nothing. What
is kept of codes and cookies is their digest: a dump of this process holds no cookie that works.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import Final, Generic, TypeVar

from planform.clock import Clock

CODE_LIFETIME: Final = timedelta(minutes=1)
SESSION_LIFETIME: Final = timedelta(hours=12)
MAX_SESSIONS: Final = 256
MAX_CODES: Final = 64

T = TypeVar("T")


@dataclass(slots=True)
class Session(Generic[T]):
    """A browser that has logged in, and for whom it asks."""

    who: T
    csrf: str
    until: float
    key: bytes
    streams: int = 0
    used: float = 0.0


@dataclass(slots=True)
class Sessions(Generic[T]):
    """All that is open. `T` is whatever the server needs to act for the user."""

    clock: Clock
    _codes: dict[bytes, tuple[T, float]] = field(default_factory=dict)
    _open: dict[bytes, Session[T]] = field(default_factory=dict)

    def mint(self, who: T) -> str:
        """A code that opens one session for `who`."""
        now = self.clock.monotonic()
        self._codes = {key: code for key, code in self._codes.items() if code[1] > now}
        while len(self._codes) >= MAX_CODES:  # the oldest goes: a flood of links makes older ones useless, no more
            del self._codes[next(iter(self._codes))]
        code = secrets.token_urlsafe(32)
        self._codes[_digest(code)] = (who, now + CODE_LIFETIME.total_seconds())
        return code

    def redeem(self, code: str) -> str | None:
        """The cookie for a code that was never used and is young enough. A code that was tried is gone."""
        found = self._codes.pop(_digest(code), None)
        if found is None or found[1] <= self.clock.monotonic():
            return None
        return self.open(found[0])

    def open(self, who: T) -> str:
        """A new session; returns its cookie."""
        now = self.clock.monotonic()
        self._open = {key: each for key, each in self._open.items() if each.until > now}
        while len(self._open) >= MAX_SESSIONS:
            del self._open[min(self._open, key=lambda key: self._open[key].used)]
        cookie = secrets.token_urlsafe(32)
        key = _digest(cookie)
        self._open[key] = Session(who, secrets.token_urlsafe(24), now + SESSION_LIFETIME.total_seconds(), key, used=now)
        return cookie

    def find(self, cookie: str) -> Session[T] | None:
        key = _digest(cookie)
        session = self._open.get(key)
        if session is None:
            return None
        now = self.clock.monotonic()
        if session.until <= now:
            del self._open[key]
            return None
        session.used = now
        return session

    def close(self, session: Session[T]) -> None:
        self._open.pop(session.key, None)

    def close_all(self, who: T) -> None:
        """End all sessions of somebody, and their codes."""
        self._codes = {key: code for key, code in self._codes.items() if code[0] != who}
        self._open = {key: each for key, each in self._open.items() if each.who != who}

    def in_use(self) -> list[Session[T]]:
        return list(self._open.values())


def is_csrf(session: Session[T], token: str) -> bool:
    """Whether a request brought the token that only a page of this origin can have read."""
    return hmac.compare_digest(session.csrf.encode(), token.encode("utf-8", "replace"))


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "replace")).digest()
