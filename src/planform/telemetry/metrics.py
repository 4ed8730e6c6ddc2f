"""Counters, gauges and histograms, and the text that Prometheus reads.

A `Registry` is handed down from `app.py`; there is no default one. A series is looked up once, with `labels(...)`, and
then costs an addition. Series belong to the thread of the event loop: nothing here takes a lock.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

TEXT_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Buckets for how long something took."""

MAX_SERIES = 2000
"""Label sets one metric may have; those beyond it share one series whose label values are all `overflow`."""

_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
_LABEL_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*\Z")


class CounterSeries:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        if amount < 0:
            raise ValueError(f"a counter cannot go down (by {amount})")
        self.value += amount


class GaugeSeries:
    """A number that goes up and down."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def set(self, value: float) -> None:
        self.value = value

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount

    def dec(self, amount: float = 1.0) -> None:
        self.value -= amount


class HistogramSeries:
    """How often a value fell into each bucket; `counts[i]` is of bucket i alone, the last one is beyond all bounds."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)


S = TypeVar("S", CounterSeries, GaugeSeries, HistogramSeries)


class Metric(Generic[S]):
    """One name with its label names, and the series of every label set met so far."""

    def __init__(self, kind: str, name: str, help: str, label_names: tuple[str, ...], new: Callable[[], S]) -> None:
        self.kind = kind
        self.name = name
        self.help = help
        self.label_names = label_names
        self._new: Callable[[], S] = new
        self._series: dict[tuple[str, ...], S] = {}

    def labels(self, *values: str) -> S:
        """The series of these label values, in the order of the label names; keep it where it is used often."""
        series = self._series.get(values)
        if series is not None:
            return series
        if len(values) != len(self.label_names):
            raise ValueError(f"metric {self.name} has labels {self.label_names}, got {values}")
        if len(self._series) >= MAX_SERIES:
            values = ("overflow",) * len(values)
        return self._series.setdefault(values, self._new())

    def remove(self, *values: str) -> None:
        """Forget a series whose subject is gone, such as a stopped controller."""
        self._series.pop(values, None)

    def series(self) -> Iterator[tuple[tuple[str, ...], S]]:
        """Every label set and its series, sorted."""
        return iter(sorted(self._series.items(), key=lambda item: item[0]))


Counter = Metric[CounterSeries]
Gauge = Metric[GaugeSeries]
Histogram = Metric[HistogramSeries]


class MetricsRegistry:
    """All metrics of one process. Asking for a name twice gives the same metric, if kind and labels agree."""

    def __init__(self) -> None:
        self._metrics: dict[str, Counter | Gauge | Histogram] = {}
        self._refreshers: dict[Callable[[], None], None] = {}

    def counter(self, name: str, help: str, labels: Sequence[str] = ()) -> Counter:
        """`name` ends in `_total`, as both text formats want it."""
        if not name.endswith("_total"):
            raise ValueError(f'the name of a counter ends in "_total", not {name!r}')
        return self._register(Metric("counter", name, help, tuple(labels), CounterSeries))

    def gauge(self, name: str, help: str, labels: Sequence[str] = ()) -> Gauge:
        return self._register(Metric("gauge", name, help, tuple(labels), GaugeSeries))

    def histogram(
        self, name: str, help: str, labels: Sequence[str] = (), *, buckets: Sequence[float] = SECONDS
    ) -> Histogram:
        bounds = tuple(float(bound) for bound in buckets if bound != math.inf)
        if not bounds or list(bounds) != sorted(set(bounds)):
            raise ValueError(f"buckets of {name} are not strictly increasing: {tuple(buckets)}")
        return self._register(Metric("histogram", name, help, tuple(labels), lambda: HistogramSeries(bounds)))

    def before_render(self, refresh: Callable[[], None]) -> Callable[[], None]:
        """Have gauges that cost something to know (a queue's length, a file's size) set only when somebody asks.

        Gives a function that ends this.
        """
        self._refreshers[refresh] = None
        return lambda: self._refreshers.pop(refresh, None)

    def render(self, *, openmetrics: bool = False) -> str:
        """All metrics in the Prometheus text format 0.0.4, or as OpenMetrics 1.0."""
        for refresh in self._refreshers:
            refresh()
        lines: list[str] = []
        for name in sorted(self._metrics):
            metric = self._metrics[name]
            family = name.removesuffix("_total") if openmetrics and metric.kind == "counter" else name
            lines.append(f"# HELP {family} {_escape(metric.help, quote=openmetrics)}")
            lines.append(f"# TYPE {family} {metric.kind}")
            for values, series in metric.series():
                lines.extend(_samples(name, metric.label_names, values, series))
        if openmetrics:
            lines.append("# EOF")
        return "".join(f"{line}\n" for line in lines)

    def _register(self, metric: Metric[S]) -> Metric[S]:
        known = self._metrics.get(metric.name)
        if known is not None:
            if known.kind != metric.kind or known.label_names != metric.label_names:
                raise ValueError(
                    f"metric {metric.name} is already a {known.kind} with labels {known.label_names},"
                    f" not a {metric.kind} with {metric.label_names}"
                )
            return known  # type: ignore[return-value]  # the kind, just checked, tells the type of its series
        if not _METRIC_NAME.match(metric.name):
            raise ValueError(f"not a metric name: {metric.name!r}")
        for label in metric.label_names:
            if not _LABEL_NAME.match(label) or label in ("le", "quantile"):
                raise ValueError(f"not a label name for {metric.name}: {label!r}")
        self._metrics[metric.name] = metric
        return metric


def _samples(
    name: str,
    label_names: tuple[str, ...],
    values: tuple[str, ...],
    series: CounterSeries | GaugeSeries | HistogramSeries,
) -> Iterator[str]:
    pairs = [f'{label}="{_escape(value, quote=True)}"' for label, value in zip(label_names, values, strict=True)]
    if not isinstance(series, HistogramSeries):
        yield f"{name}{_braced(pairs)} {_number(series.value)}"
        return
    below = 0
    for bound, count in zip((*series.bounds, math.inf), series.counts, strict=True):
        below += count
        le = f'le="{_number(bound) if bound == math.inf else repr(bound)}"'
        yield f"{name}_bucket{_braced([*pairs, le])} {below}"
    yield f"{name}_sum{_braced(pairs)} {_number(series.sum)}"
    yield f"{name}_count{_braced(pairs)} {below}"


def _braced(pairs: Sequence[str]) -> str:
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)


def _escape(text: str, *, quote: bool) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote else text
