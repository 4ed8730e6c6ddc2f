"""What a serving function counts, in Prometheus' text format, and the small HTTP endpoint that shows it."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from contextlib import suppress

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_READ_SECONDS = 5


class CallMetrics:
    """Calls by outcome, how long they took, and how many are under way."""

    def __init__(self, function: str) -> None:
        self._label = function.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        self._calls: Counter[str] = Counter()
        self._buckets = [0] * (len(BUCKETS) + 1)
        self._seconds = 0.0
        self.in_flight = 0

    def observe(self, outcome: str, seconds: float) -> None:
        """Count a call: `outcome` is the worst severity of its results, or the name of its gRPC status."""
        self._calls[outcome] += 1
        self._buckets[bisect_left(BUCKETS, seconds)] += 1
        self._seconds += seconds

    def text(self) -> str:
        label = f'function="{self._label}"'
        lines = ["# HELP function_calls_total Calls answered, by outcome.", "# TYPE function_calls_total counter"]
        lines += [f'function_calls_total{{{label},outcome="{name}"}} {n}' for name, n in sorted(self._calls.items())]
        lines += ["# HELP function_calls_in_flight Calls under way.", "# TYPE function_calls_in_flight gauge"]
        lines += [f"function_calls_in_flight{{{label}}} {self.in_flight}"]
        lines += ["# HELP function_call_seconds How long calls took.", "# TYPE function_call_seconds histogram"]
        total = 0
        for bound, count in zip([*map(str, BUCKETS), "+Inf"], self._buckets, strict=True):
            total += count
            lines.append(f'function_call_seconds_bucket{{{label},le="{bound}"}} {total}')
        lines.append(f"function_call_seconds_sum{{{label}}} {self._seconds:.6f}")
        lines.append(f"function_call_seconds_count{{{label}}} {total}")
        return "\n".join(lines) + "\n"


async def serve_metrics(metrics: CallMetrics, host: str, port: int) -> asyncio.Server:
    """Answer `GET /metrics` until the server is closed."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_READ_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                found = head.startswith(b"GET /metrics ")
                body = metrics.text().encode() if found else b"only /metrics is here\n"
                status = b"200 OK" if found else b"404 Not Found"
                writer.write(
                    b"HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %d\r\n"
                    b"Connection: close\r\n\r\n%s" % (status, len(body), body)
                )
                await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, host, port, limit=16384)
