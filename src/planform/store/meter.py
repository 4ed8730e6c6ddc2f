"""What the store says about itself to whoever reads metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from planform.telemetry.metrics import MetricsRegistry


class Measured(Protocol):
    """What the gauges are read from."""

    @property
    def revision(self) -> int: ...

    @property
    def floor(self) -> int: ...

    @property
    def watches(self) -> int: ...

    def resources(self) -> Sequence[str]: ...

    def count(self, resource: str, namespace: str | None = None) -> int: ...


class Meter:
    """The store's metrics."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._commits = registry.histogram(
            "planform_store_commit_seconds", "How long a batch took from the queue to its publication."
        ).labels()
        self._writes = registry.counter("planform_store_writes_total", "Changes that were committed.").labels()
        self.failures = registry.counter("planform_store_failures_total", "Commits that failed.", ["reason"])
        self._registry = registry

    def follow(self, store: Measured) -> None:
        """Read the gauges off a store whenever somebody asks for the metrics."""
        registry = self._registry
        revision = registry.gauge("planform_store_revision", "The committed resource version.").labels()
        floor = registry.gauge("planform_store_history_floor", "History is kept after this resource version.").labels()
        objects = registry.gauge("planform_store_objects", "Current objects.", ["resource"])
        watches = registry.gauge("planform_store_watches", "Watches that are live.").labels()

        def refresh() -> None:
            revision.set(store.revision)
            floor.set(store.floor)
            watches.set(store.watches)
            present = store.resources()
            for (resource,), _ in tuple(objects.series()):
                if resource not in present:
                    objects.remove(resource)
            for resource in present:
                objects.labels(resource).set(store.count(resource))

        registry.before_render(refresh)

    def committed(self, writes: int, seconds: float) -> None:
        self._commits.observe(seconds)
        self._writes.inc(writes)
