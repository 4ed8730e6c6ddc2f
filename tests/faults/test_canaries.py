"""Canary secrets: functions are given them and say them in every way they can; no surface shows them.

A whole control plane, its command line, its files and what it sends to a collector of traces. Only Secrets hold what is
secret: objects of other kinds, events, log, journal, audit log, metrics, traces, trees, explanations, the doctor's
findings, the support bundle and archives do not.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import io
import json
import logging
import os
import sys
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from planform.api.kinds import GroupVersionKind, Object
from planform.apiserver.wire.handler import refusal
from planform.apiserver.wire.http import HttpRequest, HttpResponse, HttpServer, Limits
from planform.app import ControlPlane, Settings, open_control_plane
from planform.telemetry.logs import set_up_logging
from tests.controllers.composing import Platform
from tests.faults.test_large_answers import ALLOWED
from tests.harness.contexts import eventually
from tests.harness.function_server import function_server

CANARY = "c4nary-Pa55word/with+odd=chars"
SECOND = "s3cond-c4nary-line-one\ns3cond-c4nary-line-two"
WRAPPED = CANARY[::-1]
"""Of a Secret that is not here: an object wraps its manifest, which then is in that object, and in what exports it."""
WITH_WRAPPED = ("objects Wrapper", "export", "sealed export")
HOW = ("say", "fatal", "abort", "raise", "invalid", "wrap")
SCRIPT = {
    "apiVersion": "python.fn.crossplane.io/v1beta1",
    "kind": "Script",
    "script": "import sys\ndef compose(req, rsp):\n"
    "  password = req.credentials['c'].credential_data.data['password'].decode()\n"
    "  print('using', password, file=sys.stderr)\n"
    "  raise RuntimeError('cannot log in with ' + password)\n",
}
WIDGETS: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.canary.example.org"},
    "spec": {
        "group": "canary.example.org",
        "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"size": {"type": "string", "enum": ["small", "large"]}},
                            }
                        },
                    }
                },
            }
        ],
    },
}


WRAPPERS = json.loads(json.dumps(WIDGETS).replace("widget", "wrapper").replace("Widget", "Wrapper"))
WRAPPERS["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = {
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
}


def needles(surface: str) -> list[bytes]:
    """The canaries as they may be written: as they are, line by line, in base64 and in JSON."""
    whole = [CANARY, SECOND] if surface in WITH_WRAPPED else [CANARY, SECOND, WRAPPED]
    found = [line.encode() for text in whole for line in text.splitlines()]
    return found + [base64.b64encode(text.encode()) for text in whole]


@dataclass
class Collector:
    """What a collector of traces was sent."""

    port: int = 0
    bodies: list[bytes] = field(default_factory=list)


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    collector = Collector()

    async def handle(request: HttpRequest) -> HttpResponse:
        body = request.body
        collector.bodies.append(gzip.decompress(body) if request.header(b"content-encoding") == "gzip" else body)
        return HttpResponse(200)

    server = HttpServer(handle, refusal, limits=Limits(body_bytes=ALLOWED))
    collector.port = await server.start("127.0.0.1", 0)
    try:
        yield collector
    finally:
        await server.stop(grace=0.1)


@dataclass
class Surfaces:
    """Everything that people read, by what it is."""

    seen: dict[str, bytes] = field(default_factory=dict)

    def add(self, name: str, content: bytes | str) -> None:
        self.seen[name] = content.encode() if isinstance(content, str) else content

    def holding(self) -> dict[str, list[str]]:
        return {
            f"{name}: ...{content[max(0, content.index(hits[0]) - 80) : content.index(hits[0]) + 60]!r}": [
                each.decode() for each in hits
            ]
            for name, content in self.seen.items()
            if (hits := [each for each in needles(name) if each in content])
        }


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logger = logging.getLogger("planform")
    before = list(logger.handlers), logger.level, logger.propagate
    set_up_logging(stream, format="text", level="debug")
    yield stream
    logger.handlers[:], logger.level, logger.propagate = before


async def command(plane: ControlPlane, *words: str, codes: tuple[int, ...] = (0, 1)) -> str:
    """What the command line says, errors included."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "planform",
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "KUBECONFIG": str(plane.kubeconfig), "NO_COLOR": "1"},
    )
    output, _ = await process.communicate()
    assert b"Traceback" not in output, output.decode()
    assert process.returncode in codes, output.decode()
    return output.decode()


def leaking(how: str) -> Object:
    """A step that says what it was given."""
    credentials = [{"name": "c", "source": "Secret", "secretRef": {"namespace": "default", "name": "canary"}}]
    step: Object = {"step": "leak", "credentials": credentials}
    if how == "script":
        return step | {"functionRef": {"name": "function-python"}, "input": SCRIPT}
    given = {"apiVersion": "canary.example.org/v1", "kind": "Input", "mode": "leak", "how": how}
    return step | {"functionRef": {"name": "leaky"}, "input": given}


async def preview(plane: ControlPlane, target: str, directory: Path, surfaces: Surfaces) -> None:
    """Previews, in every form, of Compositions whose functions would say it in another way than now."""
    platform = Platform(plane.client, "canary")
    ways = (*HOW, "script")
    change = directory / "change.yaml"
    made = [platform.composition(leaking(ways[place - 1]), name=f"leak-{how}") for place, how in enumerate(ways)]
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "canary", "namespace": "default"}}
    change.write_text(yaml.safe_dump_all([*made, {**secret, "stringData": {"password": CANARY, "second": SECOND}}]))
    here = ("--here", "--function", f"leaky={target}")
    for where, forms in (((), ("text", "json", "markdown", "junit", "html")), (here, ("json",))):
        for form in forms:
            words = ("preview", "-f", str(change), "-o", form, *where)
            surfaces.add(" ".join(("preview", "-o", form, *where[:1])), await command(plane, *words, codes=(0, 3)))


async def leak(plane: ControlPlane, target: str) -> list[Object]:
    """XRs whose functions say what they were given, each in its own way; waits until all have said it."""
    client = plane.client
    await client.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "canary", "namespace": "default"},
            "stringData": {"password": CANARY, "second": SECOND},
        }
    )
    await client.create(WIDGETS)
    await client.create(WRAPPERS)
    function = {
        "apiVersion": "pkg.crossplane.io/v1",
        "kind": "Function",
        "metadata": {"name": "leaky", "annotations": {"planform.dev/endpoint": target}},
        "spec": {"package": "example.org/acme/leaky:v1"},
    }
    await client.create(function)
    platform = Platform(client, "canary")
    await platform.define()
    xrs = []
    for how in (*HOW, "script"):
        await platform.compose(leaking(how), name=f"leak-{how}")
        xrs.append(await platform.create(how, compositionRef={"name": f"leak-{how}"}))
    for xr in xrs:
        await platform.until(xr, _has_spoken, "it has said what it has to say")
    return xrs


def _has_spoken(xr: Object) -> bool:
    conditions = {each["type"]: each for each in (xr.get("status") or {}).get("conditions") or ()}
    synced = conditions.get("Synced") or {}
    return "LoggedIn" in conditions or "******" in str(synced.get("message")) or synced.get("status") == "False"


async def test_no_surface_shows_a_canary(tmp_path: Path, log: io.StringIO) -> None:
    surfaces = Surfaces()
    (tmp_path / "phrase").write_text("correct horse battery staple")
    with function_server(tmp_path, "leaky") as server:
        async with collecting() as collector:
            settings = Settings(
                data=tmp_path / "data",
                audit_log=tmp_path / "audit.log",
                otlp_endpoint=f"http://127.0.0.1:{collector.port}/v1/traces",
            )
            async with open_control_plane(settings) as plane:
                xrs = await leak(plane, server.target)
                await eventually_told(plane)
                await preview(plane, server.target, tmp_path, surfaces)
                for served in plane.core.registry:
                    if served.kind.kind != "Secret" and "list" in served.kind.verbs:
                        kind = GroupVersionKind(served.kind.group, served.kind.version, served.kind.kind)
                        found = await plane.client.list(kind)
                        surfaces.add(f"objects {kind.kind}", str(found.items))
                surfaces.add("metrics", plane.metrics.render())
                for xr in xrs:
                    name, kind_name = xr["metadata"]["name"], f"app.{Platform(plane.client, 'canary').group}"
                    surfaces.add(f"trace {name}", await command(plane, "trace", kind_name, name, "-o", "wide"))
                    told = await command(plane, "explain-run", kind_name, name, "-o", "json")
                    surfaces.add(f"explain-run {name}", told)
                    surfaces.add(f"describe {name}", await command(plane, "describe", kind_name, name))
                bundle = tmp_path / "bundle.tar.gz"
                surfaces.add("doctor", await command(plane, "doctor", "--bundle", str(bundle)))
                surfaces.add("bundle", gzip.decompress(bundle.read_bytes()))
                exported = tmp_path / "archive.tar.gz"
                surfaces.add("export says", await command(plane, "export", str(exported), "--without-secrets"))
                surfaces.add("export", gzip.decompress(exported.read_bytes()))
                sealed = tmp_path / "sealed.tar.gz"
                words = ("export", str(sealed), "--passphrase-file", str(tmp_path / "phrase"))
                surfaces.add("sealed export says", await command(plane, *words))
                with tarfile.open(sealed) as archive:
                    members = [archive.extractfile(each) for each in archive.getmembers() if each.isfile()]
                    surfaces.add("sealed export", b"\n".join(each.read() for each in members if each is not None))
        surfaces.add("traces", b"\n".join(collector.bodies))
    surfaces.add("log", log.getvalue())
    surfaces.add("audit log", (tmp_path / "audit.log").read_bytes())
    for path in (tmp_path / "data").rglob("*"):
        if path.is_file() and "journal" in path.name:
            surfaces.add(f"journal {path.name}", path.read_bytes())
    assert surfaces.holding() == {}
    for name in ("preview -o json", "preview -o json --here", "objects PreviewReport"):
        assert b"******" in surfaces.seen[name], "it would have been said"
    assert b"******" in surfaces.seen["objects Event"] and b"******" in surfaces.seen["objects App"], "it was said"
    assert b"******" in surfaces.seen["log"] + surfaces.seen["traces"]
    assert WRAPPED.encode() in surfaces.seen["objects Wrapper"], "it was wrapped"
    assert surfaces.seen["audit log"] and surfaces.seen["traces"]
    assert any(name.startswith("journal") for name in surfaces.seen)


async def eventually_told(plane: ControlPlane) -> None:
    """Events are written some time after they are recorded."""

    async def told() -> bool:
        events = await plane.client.list(GroupVersionKind("", "v1", "Event"))
        names: set[Any] = {each["involvedObject"]["name"] for each in events.items}
        return {f"{how}-canary" for how in (*HOW, "script")} <= names

    await eventually(told, "an event of every XR")
