"""A real Prometheus on loopback for one test: it scrapes what it is told to, many times a second."""

from __future__ import annotations

import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml

from tests.harness.processes import Child, free_ports, running
from tests.harness.programs import programs

_PATIENCE = 30.0


@dataclass(frozen=True)
class Prometheus:
    """A running server."""

    address: str
    child: Child

    def query(self, text: str, **more: str) -> list[dict[str, Any]]:
        """The series that an instant query gives; raises AssertionError with Prometheus' own words if it gives none."""
        asked = urllib.parse.urlencode({"query": text, **more}).encode()
        try:
            with urllib.request.urlopen(f"{self.address}/api/v1/query", asked, timeout=10) as answer:
                body = orjson.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{text}: {error.read().decode()}") from error
        assert body["status"] == "success", body
        result = body["data"]["result"]
        return result if isinstance(result, list) and body["data"]["resultType"] == "vector" else [{"value": result}]

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.address}{path}", timeout=10) as answer:
            return orjson.loads(answer.read())

    def until(self, text: str, *, seconds: float = _PATIENCE) -> list[dict[str, Any]]:
        """The series of a query as soon as there are any."""
        deadline = time.monotonic() + seconds
        while not (found := self.query(text)):
            assert time.monotonic() < deadline, f"no data within {seconds:g} s: {text}"
            time.sleep(0.1)
        return found


@contextmanager
def prometheus(
    directory: Path,
    targets: Sequence[str] = (),
    *,
    rules: Path | None = None,
    interval: str = "500ms",
    scrape: Mapping[str, Any] | None = None,
) -> Iterator[Prometheus]:
    """Run a server that scrapes /metrics of these `host:port`. Raises ProgramMissing (a skip) where none can be had."""
    program = programs("prometheus") / "prometheus"
    [port] = free_ports(1)
    config = directory / "prometheus.yml"
    settings: dict[str, Any] = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "scrape_configs": [{"job_name": "planform", "static_configs": [{"targets": list(targets)}], **(scrape or {})}],
    }
    if rules is not None:
        settings["rule_files"] = [str(rules)]
    config.write_text(yaml.safe_dump(settings))
    command = [
        str(program),
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with running(command, directory / "prometheus.log", name="prometheus") as child:
        address = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                urllib.request.urlopen(f"{address}/-/ready", timeout=5).close()
                break
            except OSError:
                assert time.monotonic() < deadline, (directory / "prometheus.log").read_text()[-2000:]
                time.sleep(0.05)
        yield Prometheus(address, child)
