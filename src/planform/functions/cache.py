"""Answers that need not be asked for again.

The key is the digest of the function's revision and the request's tag, which covers all that is sent: another revision,
a changed required resource or a new credential cannot meet an old answer. The answer of a deterministic function stays
valid as long as it is kept; any other only as long as its TTL says. Fatal answers, and answers that name another
request, are never kept.
"""

from __future__ import annotations

import dataclasses
import math
from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum

from planform.clock import Clock
from planform.functions.runner import FunctionRevision
from planform.functions.sending import canonical
from planform.functions.values import FunctionRequest, FunctionResponse
from planform.telemetry.metrics import MetricsRegistry

MAX_TTL = 24 * 3600.0
_ENTRY_OVERHEAD = 512


class CacheOutcome(StrEnum):
    """Whether the cache answered, or why it did not. The names of upstream, where it has one."""

    HIT = "Hit"
    OFF = "Off"
    EMPTY_TAG = "EmptyRequestTag"
    NOT_CACHED = "NotCached"
    EXPIRED = "DeadlineExpired"


class Kept(StrEnum):
    """Whether an answer was kept, or why not."""

    KEPT = "Kept"
    EMPTY_TAG = "EmptyRequestTag"
    OTHER_TAG = "OtherTag"
    FATAL = "Fatal"
    NO_TTL = "NoTTL"
    TOO_LARGE = "TooLarge"


@dataclass(slots=True)
class _Entry:
    response: FunctionResponse
    size: int
    deadline: float  # monotonic; infinite for deterministic functions


class ResponseCache:
    """Bounded by bytes and entries; what was used least lately goes first. Answers are shared: nobody changes them."""

    def __init__(
        self,
        clock: Clock,
        *,
        max_bytes: int = 64 << 20,
        max_entries: int = 20_000,
        metrics: MetricsRegistry | None = None,
    ) -> None:
        self._clock = clock
        self._max_bytes = max_bytes
        self._max_entries = max_entries
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()
        self._bytes = 0
        metrics = metrics or MetricsRegistry()
        labels = ("function_name", "reason")
        self._lookups = metrics.counter(
            "function_run_function_response_cache_lookups_total", "Lookups by how they ended.", labels
        )
        self._writes = metrics.counter(
            "function_run_function_response_cache_writes_total", "Answers kept, or why they were not.", labels
        )
        self._bytes_gauge = metrics.gauge("function_run_function_response_cache_bytes", "Bytes of kept answers.")
        self._entries_gauge = metrics.gauge("function_run_function_response_cache_entries", "Kept answers.")
        metrics.before_render(self._show_size)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bytes(self) -> int:
        return self._bytes

    def get(self, revision: FunctionRevision, request: FunctionRequest) -> tuple[FunctionResponse | None, CacheOutcome]:
        """The kept answer, with the rest of its TTL, or why there is none."""
        response, outcome = self._find(revision, request)
        self._lookups.labels(revision.function, outcome).inc()
        return response, outcome

    def _find(
        self, revision: FunctionRevision, request: FunctionRequest
    ) -> tuple[FunctionResponse | None, CacheOutcome]:
        if not request.tag:
            return None, CacheOutcome.EMPTY_TAG
        key = revision.digest, request.tag
        entry = self._entries.get(key)
        if entry is None:
            return None, CacheOutcome.NOT_CACHED
        if entry.deadline == math.inf:
            self._entries.move_to_end(key)
            return entry.response, CacheOutcome.HIT
        left = entry.deadline - self._clock.monotonic()
        if left <= 0:
            self._drop(key)
            return None, CacheOutcome.EXPIRED
        self._entries.move_to_end(key)
        return dataclasses.replace(entry.response, ttl=left), CacheOutcome.HIT

    def put(self, revision: FunctionRevision, request: FunctionRequest, response: FunctionResponse) -> Kept:
        kept = self._put(revision, request, response)
        self._writes.labels(revision.function, kept).inc()
        return kept

    def _put(self, revision: FunctionRevision, request: FunctionRequest, response: FunctionResponse) -> Kept:
        if not request.tag:
            return Kept.EMPTY_TAG
        if response.tag != request.tag:
            return Kept.OTHER_TAG
        if response.fatal is not None:
            return Kept.FATAL
        deadline = math.inf
        if not (revision.deterministic or response.deterministic):
            if response.ttl is None or response.ttl <= 0:
                return Kept.NO_TTL
            deadline = self._clock.monotonic() + min(response.ttl, MAX_TTL)
        size = _size_of(response)
        if size > self._max_bytes:
            return Kept.TOO_LARGE
        key = revision.digest, request.tag
        self._drop(key)
        self._entries[key] = _Entry(response, size, deadline)
        self._bytes += size
        while self._bytes > self._max_bytes or len(self._entries) > self._max_entries:
            self._drop(next(iter(self._entries)))
        return Kept.KEPT

    def sweep(self) -> int:
        """Let go of what has expired; give how many."""
        now = self._clock.monotonic()
        expired = [key for key, entry in self._entries.items() if entry.deadline <= now]
        for key in expired:
            self._drop(key)
        return len(expired)

    def _show_size(self) -> None:
        self._bytes_gauge.labels().set(self._bytes)
        self._entries_gauge.labels().set(len(self._entries))

    def _drop(self, key: tuple[str, str]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size


def _size_of(response: FunctionResponse) -> int:
    try:
        return _ENTRY_OVERHEAD + len(canonical(response))
    except TypeError:
        return 1 << 62
