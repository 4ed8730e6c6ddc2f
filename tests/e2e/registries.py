"""A real OCI registry on loopback, for the length of a test: Debian's docker-registry, or the one built from source."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.processes import free_ports, running
from tests.harness.programs import programs

USER, PASSWORD = "ada", "secret"
_HTPASSWD = f"{USER}:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n"  # bcrypt of the password
_PATIENCE_SECONDS = 20.0


@contextmanager
def serving_registry(directory: Path, *, with_login: bool = False, port: int = 0) -> Iterator[str]:
    """Serve a registry with what the directory has, at any port or at this one; gives its HOST:PORT."""
    program = programs("docker-registry") / "docker-registry"
    port = port or free_ports(1)[0]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "htpasswd").write_text(_HTPASSWD)
    auth = f"auth:\n  htpasswd:\n    realm: test\n    path: {directory / 'htpasswd'}\n" if with_login else ""
    (directory / "config.yml").write_text(
        "version: 0.1\n"
        "log:\n  level: warn\n"
        f"storage:\n  filesystem:\n    rootdirectory: {directory / 'data'}\n  delete:\n    enabled: true\n"
        f"http:\n  addr: 127.0.0.1:{port}\n{auth}"
    )
    with running([str(program), "serve", str(directory / "config.yml")], directory / "registry.log") as child:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not _answers(port):
            assert not child.has_ended(), child.output_tail()
            assert time.monotonic() < deadline, child.output_tail()
            time.sleep(0.02)
        yield f"127.0.0.1:{port}"


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/v2/")
        return connection.getresponse().status in (200, 401)
    except OSError:
        return False
    finally:
        connection.close()
