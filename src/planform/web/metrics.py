"""The control plane's metrics as numbers: the Prometheus text format, read once for a few seconds of questions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from planform.errors import PlanformError
from planform.web.context import Looker

_SECONDS: Final = 2.0
_SAMPLE: Final = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Metrics:
    """Samples by name. Asking for what is not there gives nothing."""

    def __init__(self, text: str) -> None:
        self._samples: dict[str, list[tuple[Mapping[str, str], float]]] = {}
        for line in text.splitlines():
            if not line or line[0] == "#":
                continue
            found = _SAMPLE.match(line)
            if found is None:
                continue
            try:
                value = float(found[3])
            except ValueError:
                continue
            labels = dict(_LABEL.findall(found[2] or ""))
            self._samples.setdefault(found[1], []).append((labels, value))

    def __bool__(self) -> bool:
        return bool(self._samples)

    def all(self, name: str, **labels: str) -> Iterator[tuple[Mapping[str, str], float]]:
        for found, value in self._samples.get(name, ()):
            if all(found.get(label) == wanted for label, wanted in labels.items()):
                yield found, value

    def total(self, name: str, **labels: str) -> float:
        return sum(value for _, value in self.all(name, **labels))

    def mean(self, name: str, **labels: str) -> float:
        """The mean of a histogram."""
        count = self.total(f"{name}_count", **labels)
        return self.total(f"{name}_sum", **labels) / count if count else 0.0

    def quantile(self, name: str, share: float) -> float:
        """The bucket in which so much of a histogram lies, as its upper bound."""
        buckets: dict[float, float] = {}
        for labels, value in self.all(f"{name}_bucket"):
            bound = float(labels.get("le", "inf"))
            buckets[bound] = buckets.get(bound, 0.0) + value
        total = max(buckets.values(), default=0.0)
        for bound in sorted(buckets):
            if total and buckets[bound] >= share * total:
                return bound if bound != float("inf") else max((each for each in buckets if each != bound), default=0.0)
        return 0.0


async def read_metrics(looker: Looker) -> Metrics:
    """What /metrics says; empty where it cannot be read, as on a cluster whose API server is not ours."""
    now = looker.mirror.now().timestamp()
    known = looker.remembered.get("metrics")
    if known is not None and now - known[0] < _SECONDS:
        found: Metrics = known[1]
        return found
    try:
        text = (await looker.upstream.raw("/metrics")).decode(errors="replace")
    except PlanformError:
        text = ""
    metrics = Metrics(text if "planform_" in text else "")
    looker.remembered["metrics"] = (now, metrics)
    return metrics
