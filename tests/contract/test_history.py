"""Sections 7 and 8: what is told about versions whose history is gone.

Each engine is made to forget: the real one by compacting its etcd, the embedded one by compacting its store, which runs
in a thread of this process for that reason.
"""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from planform.app import ControlPlane, Settings, open_control_plane
from tests.contract.conftest import ENGINES
from tests.contract.engines import Engine, case, on_kubernetes
from tests.contract.kinds import PLAINS, at, establish, plain
from tests.harness.kubernetes import ADMIN_TOKEN, RealKubernetes

Forgetful = tuple[Engine, Callable[[str], None]]


@contextmanager
def plane_in_a_thread(directory: Any) -> Iterator[Forgetful]:
    """A control plane on a loop of its own, and a way to make it forget everything before a version."""
    opened: Future[tuple[ControlPlane, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    tokens = directory / "tokens.csv"
    tokens.write_text(f'{ADMIN_TOKEN},admin,admin,"system:masters"\n')
    tokens.chmod(0o600)

    async def main() -> None:
        stopping = asyncio.Event()
        async with open_control_plane(Settings(data=None, token_file=tokens)) as plane:
            opened.set_result((plane, asyncio.get_running_loop(), stopping))
            await stopping.wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),), name="control plane")
    thread.start()
    plane, loop, stopping = opened.result(30)
    try:
        cluster = yaml.safe_load(plane.kubeconfig.read_text())["clusters"][0]["cluster"]
        ca_file = directory / "ca.crt"
        ca_file.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))

        def forget(version: str) -> None:
            asyncio.run_coroutine_threadsafe(plane.core.store.compact(int(version)), loop).result(15)

        engine = Engine("embedded", plane.url, ca_file, plane.kubeconfig)
        yield engine, forget
        engine.close()
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join(30)


def compact_etcd(cluster: RealKubernetes, version: str) -> None:
    """Compact over etcd's JSON gateway."""
    [flag] = [flag for flag in cluster.children[0].process.args if "--listen-client-urls=" in str(flag)]  # type: ignore[union-attr]
    url = str(flag).partition("=")[2] + "/v3/kv/compaction"
    body = json.dumps({"revision": version, "physical": True}).encode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, body, {"Content-Type": "application/json"}), timeout=15) as response:
        assert response.status == 200


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine that has forgotten what was before now; also the caches of a new kind know nothing older."""
    if request.param == "embedded":
        with plane_in_a_thread(tmp_path_factory.mktemp("history")) as (embedded, forget):
            establish(embedded, PLAINS)
            forget(embedded.get("/api/v1/namespaces").ok()["metadata"]["resourceVersion"])
            yield embedded
    else:
        cluster: RealKubernetes = request.getfixturevalue("kubernetes_engine")
        real = on_kubernetes(cluster)
        establish(real, PLAINS)
        compact_etcd(cluster, real.get("/api/v1/namespaces").ok()["metadata"]["resourceVersion"])
        yield real


@case("7-exact-too-old", "13-410")
def test_a_list_of_a_forgotten_version_is_expired(engine: Engine) -> None:
    query = {"resourceVersion": "5", "resourceVersionMatch": "Exact"}
    text = "The resourceVersion for the provided list is too old."
    engine.get(at("plains"), query=query).refused(410, "Expired", text)


@case("7-continue-expired", "13-410")
def test_an_expired_continuation_gives_a_token_that_works(engine: Engine, ns: str) -> None:
    path = at("plains", ns)
    for name in ("a", "b", "c"):
        engine.post(path, plain(name)).ok(201)
    token = engine.get(path, query={"limit": 1}).ok()["metadata"]["continue"]
    content = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    old = base64.urlsafe_b64encode(json.dumps(content | {"rv": 5}).encode()).decode().rstrip("=")
    engine.post(path, plain("d")).ok(201)
    expired = engine.get(path, query={"limit": 1, "continue": old}).refused(410, "Expired")
    rest = engine.get(path, query={"continue": expired["metadata"]["continue"]}).ok()
    assert [item["metadata"]["name"] for item in rest["items"]] == ["b", "c", "d"]


@case("8-too-old", "1-8-too-old-is-200")
def test_a_watch_of_a_forgotten_version_is_an_error_inside_the_stream(engine: Engine) -> None:
    with engine.watch(at("plains"), resourceVersion="5", timeoutSeconds=5) as events:
        assert events.status == 200
        [error] = events.rest()
    status = error["object"]
    assert (error["type"], status["kind"], status["code"], status["reason"]) == ("ERROR", "Status", 410, "Expired")
    assert status["message"].startswith("too old resource version: 5 (")
