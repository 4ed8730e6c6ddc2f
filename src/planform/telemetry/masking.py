"""Keeps secrets out of what people read later: logs, the journal, error messages.

Secrets are masked by value, wherever they turn up, and fields by the names that secrets go by. A value has to be told
with `add` when it is met (a token read from a file, the data of a Secret).
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextvars import ContextVar

MASK = "******"
MIN_LENGTH = 6
"""Shorter values are not masked: replacing every `on` or `5432` would destroy the text and hide nothing."""

_SECRET_FIELD = re.compile(
    r"(?i)(pass(word|wd|phrase)|secret|token|authorization|api[_-]?key|private[_-]?key|credential)"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic) [A-Za-z0-9._~+/=-]{6,}")


_MASK: ContextVar[Callable[[str], str] | None] = ContextVar("mask", default=None)


class masked_by:  # a function with a `yield` would do, but every run enters one
    """Have everything that is logged or traced inside the block pass this mask, also by tasks started in it."""

    __slots__ = ("_mask", "_token")

    def __init__(self, mask: Callable[[str], str]) -> None:
        self._mask = mask

    def __enter__(self) -> None:
        self._token = _MASK.set(self._mask)

    def __exit__(self, *_: object) -> None:
        _MASK.reset(self._token)


def masked(text: str) -> str:
    """The text without what is secret to the block that we are in."""
    mask = _MASK.get()
    return text if mask is None else mask(text)


class SecretMask:
    """The secret values met lately, newest kept, at most `capacity` of them."""

    def __init__(self, *, capacity: int = 4096) -> None:
        self._capacity = capacity
        self._values: OrderedDict[str, None] = OrderedDict()
        self._pattern: re.Pattern[str] | None = None

    def add(self, values: Iterable[str]) -> None:
        """Mask these from now on. Lines of a long value (a PEM file) are masked one by one too."""
        for value in values:
            for part in {value, *value.splitlines()}:
                if len(part) < MIN_LENGTH:
                    continue
                if part not in self._values:
                    self._pattern = None
                self._values[part] = None
                self._values.move_to_end(part)
        while len(self._values) > self._capacity:
            self._values.popitem(last=False)
            self._pattern = None

    def text(self, text: str) -> str:
        """The same text with every known value, and every bearer or basic credential, replaced."""
        text = masked(text)
        if self._values:
            if self._pattern is None:
                longest_first = sorted(self._values, key=len, reverse=True)
                self._pattern = re.compile("|".join(map(re.escape, longest_first)))
            text = self._pattern.sub(MASK, text)
        return _BEARER.sub(rf"\1 {MASK}", text)

    def field(self, name: str, value: str) -> str:
        """A named value; one whose name says that it is a secret is masked whole."""
        return MASK if _SECRET_FIELD.search(name) else self.text(value)
