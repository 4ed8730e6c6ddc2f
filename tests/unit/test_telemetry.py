"""Metrics, logs, masking, traces and the loop-lag probe."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import math
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from planform.clock import VirtualClock
from planform.errors import UsageError
from planform.telemetry.logs import fields, set_up_logging
from planform.telemetry.looplag import LoopLag
from planform.telemetry.masking import MASK, SecretMask
from planform.telemetry.metrics import MAX_SERIES, MetricsRegistry
from planform.telemetry.tracing import (
    PropagatingTracer,
    SpanContext,
    TelemetryTracer,
    format_traceparent,
    open_telemetry_tracer,
    parse_traceparent,
)

TRACE = SpanContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", True)


def test_metrics_render_as_prometheus_text() -> None:
    registry = MetricsRegistry()
    registry.counter("runs_total", "Runs.", ["controller"]).labels('a"\\\n').inc(2)
    registry.gauge("depth", "Line one\nline two.").labels().set(1.5)
    took = registry.histogram("took_seconds", "Time.", buckets=[0.1, 1]).labels()
    for value in (0.1, 0.5, 7):
        took.observe(value)
    assert registry.render() == (
        "# HELP depth Line one\\nline two.\n# TYPE depth gauge\ndepth 1.5\n"
        '# HELP runs_total Runs.\n# TYPE runs_total counter\nruns_total{controller="a\\"\\\\\\n"} 2\n'
        "# HELP took_seconds Time.\n# TYPE took_seconds histogram\n"
        'took_seconds_bucket{le="0.1"} 1\ntook_seconds_bucket{le="1.0"} 2\ntook_seconds_bucket{le="+Inf"} 3\n'
        "took_seconds_sum 7.6\ntook_seconds_count 3\n"
    )


def test_openmetrics_names_the_family_of_a_counter_without_total_and_ends_with_eof() -> None:
    registry = MetricsRegistry()
    registry.counter("runs_total", "Runs.").labels().inc()
    assert registry.render(openmetrics=True) == "# HELP runs Runs.\n# TYPE runs counter\nruns_total 1\n# EOF\n"


@pytest.mark.parametrize(
    ("value", "text"), [(math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN"), (1e300, "1e+300")]
)
def test_extreme_values_have_their_own_spelling(value: float, text: str) -> None:
    registry = MetricsRegistry()
    registry.gauge("g", "G.").labels().set(value)
    assert registry.render().splitlines()[-1] == f"g {text}"


def test_one_name_is_one_metric() -> None:
    registry = MetricsRegistry()
    first = registry.counter("runs_total", "Runs.", ["a"])
    assert registry.counter("runs_total", "Runs.", ["a"]) is first
    with pytest.raises(ValueError, match="already a counter"):
        registry.gauge("runs_total", "Runs.", ["a"])
    with pytest.raises(ValueError, match="already a counter"):
        registry.counter("runs_total", "Runs.", ["b"])


@pytest.mark.parametrize("wrong", ["0x", "a-b", ""])
def test_names_that_prometheus_cannot_read_are_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="not a metric name"):
        MetricsRegistry().gauge(wrong, "X.")
    with pytest.raises(ValueError, match="not a label name"):
        MetricsRegistry().gauge("x", "X.", [wrong])


def test_wrong_use_of_a_metric_is_refused() -> None:
    registry = MetricsRegistry()
    with pytest.raises(ValueError, match="_total"):
        registry.counter("runs", "Runs.")
    with pytest.raises(ValueError, match="cannot go down"):
        registry.counter("runs_total", "Runs.").labels().inc(-1)
    with pytest.raises(ValueError, match="has labels"):
        registry.counter("runs_total", "Runs.").labels("x")
    with pytest.raises(ValueError, match="strictly increasing"):
        registry.histogram("h", "H.", buckets=[2, 1])
    with pytest.raises(ValueError, match="not a label name"):
        registry.histogram("h", "H.", ["le"])


def test_a_flood_of_label_values_cannot_exhaust_memory() -> None:
    metric = MetricsRegistry().counter("runs_total", "Runs.", ["key"])
    for number in range(MAX_SERIES + 50):
        metric.labels(str(number)).inc()
    assert metric.labels("overflow").value == 50
    assert len(list(metric.series())) == MAX_SERIES + 1


def test_a_removed_series_is_no_longer_shown() -> None:
    registry = MetricsRegistry()
    metric = registry.gauge("depth", "Depth.", ["controller"])
    metric.labels("gone").set(1)
    metric.remove("gone")
    assert "gone" not in registry.render()


def test_gauges_are_refreshed_when_somebody_asks() -> None:
    registry = MetricsRegistry()
    gauge = registry.gauge("depth", "Depth.").labels()
    registry.before_render(lambda: gauge.inc(2))
    registry.render()
    assert "depth 4\n" in registry.render()


def test_telemetry_imports_no_client_of_a_vendor() -> None:
    modules = "planform.telemetry.metrics, planform.telemetry.tracing, planform.telemetry.logs"
    code = f"import sys, {modules}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not [name for name in loaded if name.startswith(("prometheus_client", "opentelemetry", "aiohttp"))]


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    yield io.StringIO()
    logging.getLogger("planform.logtest").handlers.clear()


def test_a_json_line_has_the_message_and_every_field(stream: io.StringIO) -> None:
    set_up_logging(stream, format="json", root="planform.logtest")
    with fields(controller="xr", key="outer"):
        logging.getLogger("planform.logtest").info("planned %d", 3, extra={"key": "default/a", "writes": 2})
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "planform.logtest",
        "message": "planned 3",
        "controller": "xr",
        "key": "default/a",
        "writes": 2,
    }


def test_a_text_line_quotes_only_what_needs_it(stream: io.StringIO) -> None:
    set_up_logging(stream, format="text", root="planform.logtest")
    logging.getLogger("planform.logtest").warning("slow", extra={"key": "default/a", "why": "two words"})
    assert stream.getvalue()[13:] == 'WARNING logtest: slow  key=default/a why="two words"\n'


def test_a_field_cannot_overwrite_the_message_of_a_json_line(stream: io.StringIO) -> None:
    set_up_logging(stream, format="json", root="planform.logtest")
    with fields(level="forged"):
        logging.getLogger("planform.logtest").info("x")
    assert json.loads(stream.getvalue())["level"] == "info"


@pytest.mark.parametrize("format", ["json", "text"])
def test_secrets_appear_in_no_part_of_a_line(stream: io.StringIO, format: str) -> None:
    mask = SecretMask()
    mask.add(["hunter22"])
    set_up_logging(stream, format="json" if format == "json" else "text", mask=mask, root="planform.logtest")
    try:
        raise RuntimeError("refused hunter22")
    except RuntimeError:
        logging.getLogger("planform.logtest").exception(
            "login hunter22",
            extra={"url": "https://a:hunter22@b", "dbPassword": "unknown-value", "h": "Bearer abcdefgh"},
        )
    text = stream.getvalue()
    assert not any(secret in text for secret in ("hunter22", "unknown-value", "abcdefgh"))
    assert text.count(MASK) >= 5


async def test_fields_follow_the_task(stream: io.StringIO) -> None:
    set_up_logging(stream, format="json", root="planform.logtest")
    log = logging.getLogger("planform.logtest")

    async def work(name: str) -> None:
        with fields(task=name):
            await asyncio.sleep(0)
            log.info(name)

    await asyncio.gather(work("a"), work("b"))
    assert [(line["message"], line["task"]) for line in map(json.loads, stream.getvalue().splitlines())] == [
        ("a", "a"),
        ("b", "b"),
    ]


def test_an_unknown_log_level_is_named() -> None:
    with pytest.raises(ValueError, match="'loud'"):
        set_up_logging(io.StringIO(), format="text", level="loud", root="planform.logtest")


def test_the_longest_secret_is_masked_whole_and_short_ones_are_left() -> None:
    mask = SecretMask()
    mask.add(["secret", "secret-and-more", "5432"])
    assert mask.text("secret-and-more secret 5432") == f"{MASK} {MASK} 5432"


def test_the_mask_keeps_the_newest_values() -> None:
    mask = SecretMask(capacity=2)
    mask.add(["value-one", "value-two"])
    mask.add(["value-one", "value-three"])
    assert mask.text("value-one value-two value-three") == f"{MASK} value-two {MASK}"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-extra",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
    ],
)
def test_what_is_not_a_traceparent_is_ignored(header: str) -> None:
    assert parse_traceparent(header) is None


def test_a_traceparent_is_read_and_written_alike() -> None:
    header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert parse_traceparent(header) == TRACE
    assert format_traceparent(TRACE) == header
    assert parse_traceparent("cc" + header[2:] + "-what-the-future-brings") == TRACE


def test_without_a_collector_a_trace_passes_through() -> None:
    tracer = PropagatingTracer()
    with tracer.span("outer") as outer:
        assert outer.context is None
        with tracer.span("request", parent=TRACE), tracer.span("inner") as inner:
            inner.set(a=1)
            assert inner.context == TRACE
    with tracer.span("after") as after:
        assert after.context is None


def test_an_endpoint_without_opentelemetry_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)  # as if it were not there
    with pytest.raises(UsageError, match=r"opentelemetry\.sdk\.trace is not installed") as caught:
        open_telemetry_tracer("http://127.0.0.1:4318/v1/traces")
    assert "opentelemetry-sdk" in str(caught.value.hint)


async def test_a_held_loop_shows_as_lag() -> None:
    clock, registry = VirtualClock(), MetricsRegistry()
    lag = LoopLag(registry, clock)
    task = asyncio.create_task(lag.run())
    await asyncio.sleep(0)
    await clock.advance(0.1)  # on time
    clock._elapsed += 0.25  # the loop was held: time passed and nobody woke
    await clock.advance(0)
    assert lag.reset() == pytest.approx(0.15)
    assert lag.worst == 0
    assert 'planform_event_loop_lag_seconds_bucket{le="0.1"} 1' in registry.render()
    assert "planform_event_loop_lag_seconds_count 2" in registry.render()
    task.cancel()


async def test_a_loop_that_computes_little_again_and_again_is_at_rest() -> None:
    clock, calls, computed = VirtualClock(), list[float](), 0.0
    begun = clock.monotonic()
    lag = LoopLag(
        MetricsRegistry(), clock, when_idle=lambda: calls.append(clock.monotonic() - begun), computed=lambda: computed
    )
    task = asyncio.create_task(lag.run())
    await asyncio.sleep(0)
    await clock.advance(0.2)
    assert calls == []
    await clock.advance(0.2)
    assert calls == pytest.approx([0.3, 0.4])
    for _ in range(10):
        computed += 0.05  # busy, and on time all the same
        await clock.advance(0.1)
    assert len(calls) == 2
    await clock.advance(0.15)
    assert len(calls) == 2
    await clock.advance(0.2)
    assert len(calls) == 3
    task.cancel()


async def test_a_late_loop_is_probed_more_often() -> None:
    clock, registry = VirtualClock(), MetricsRegistry()
    task = asyncio.create_task(LoopLag(registry, clock).run())
    await asyncio.sleep(0)
    for _ in range(50):
        clock._elapsed += 0.06  # the loop was held
        await clock.advance(0)
    busy = _probes(registry)
    assert busy >= 45
    await clock.advance(1.0)
    assert 10 <= _probes(registry) - busy <= 12
    task.cancel()


def _probes(registry: MetricsRegistry) -> int:
    [count] = re.findall(r"planform_event_loop_lag_seconds_count (\d+)", registry.render())
    return int(count)


def test_with_opentelemetry_spans_nest_below_the_incoming_trace_and_carry_their_failure() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter").InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(memory))
    tracer = TelemetryTracer(provider)
    with pytest.raises(ZeroDivisionError), tracer.span("outer", parent=TRACE, attributes={"key": "a"}):
        with tracer.span("inner") as inner:
            inner.set(step="one")
            assert inner.context is not None and inner.context.trace_id == TRACE.trace_id
        raise ZeroDivisionError
    first, second = memory.get_finished_spans()
    assert (first.name, dict(first.attributes)) == ("inner", {"step": "one"})
    assert (second.name, dict(second.attributes), second.status.is_ok) == ("outer", {"key": "a"}, False)
    assert first.parent.span_id == second.context.span_id
    assert f"{second.parent.span_id:016x}" == TRACE.span_id
    tracer.close()
