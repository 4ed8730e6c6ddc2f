"""Webhooks of a provider are called where it serves them: by the embedded engine, and by a real API server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import CRD, PROVIDER, RUNTIME_CONFIG
from planform.app import Settings, open_control_plane
from planform.client.protocol import Client
from planform.errors import ApiError, Forbidden, NotFound
from planform.packages.blobs import BlobStore
from planform.packages.building import Source, assemble
from planform.packages.xpkg import package_of
from tests.controllers.test_function_deployments import open_machine
from tests.harness.contexts import all_controllers, eventually, until_condition
from tests.harness.kubelet import reach
from tests.harness.kubernetes import real_kubernetes
from tests.harness.packaging import meta, server_program

pytestmark = pytest.mark.timeout(240)

WIDGET = GroupVersionKind("widgets.example.org", "v1", "Widget")
SERVICE = GroupVersionKind("", "v1", "Service")
SLICE = GroupVersionKind("discovery.k8s.io", "v1", "EndpointSlice")
PROGRAM = r'''
"""Serves a webhook that refuses widgets whose name says that they are bad."""
import http.server
import json
import os
import ssl
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))["request"]
        answer = {"uid": asked["uid"], "allowed": not asked["name"].startswith("bad")}
        answer["status"] = {"code": 403, "message": f"{os.environ['PROVIDER_NAME']} says no at {self.path}"}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}
        body = json.dumps(review).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


address = next(each for each in reversed(sys.argv) if each.startswith("--address=")).partition("=")[2]
host, _, port = address.rpartition(":")
server = http.server.ThreadingHTTPServer((host, int(port)), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
directory = os.environ["WEBHOOK_TLS_CERT_DIR"]
context.load_cert_chain(f"{directory}/tls.crt", f"{directory}/tls.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
'''


def crd() -> Object:
    schema = {"openAPIV3Schema": {"type": "object"}}
    return {
        "apiVersion": CRD.api_version,
        "kind": CRD.kind,
        "metadata": {"name": f"widgets.{WIDGET.group}"},
        "spec": {
            "group": WIDGET.group,
            "names": {"kind": "Widget", "plural": "widgets"},
            "scope": "Cluster",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def configuration() -> Object:
    """As generators write it: the Service is a placeholder, and its port nobody's."""
    rule = {"apiGroups": [WIDGET.group], "apiVersions": ["v1"], "resources": ["widgets"], "operations": ["CREATE"]}
    placeholder = {"name": "webhook-service", "namespace": "system", "path": "/validate", "port": 443}
    webhook = {"name": "widgets.example.org", "clientConfig": {"service": placeholder}, "rules": [rule]}
    webhook |= {"sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail"}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "validating-webhook-configuration"},
        "webhooks": [webhook],
    }


def publish(blobs: BlobStore) -> str:
    """Gives the package's name."""
    documents = [("meta", meta("Provider", "provider-widgets")), ("crd", crd()), ("hooks", configuration())]
    image = assemble(blobs, Source(package_of(documents)), server_program("v1", PROGRAM))
    reference = "registry.example.org/acme/provider-widgets:v1"
    blobs.remember(reference, image.descriptor)
    return reference


async def install(client: Client, package: str, config: str) -> None:
    provider = {"apiVersion": PROVIDER.api_version, "kind": PROVIDER.kind, "metadata": {"name": "widgets"}}
    spec = {"package": package, "runtimeConfigRef": {"name": config}}
    await until_condition(client, await client.create({**provider, "spec": spec}), "Healthy")


async def is_refused_by_its_provider(client: Client) -> None:
    def widget(name: str) -> Object:
        return {"apiVersion": WIDGET.api_version, "kind": WIDGET.kind, "metadata": {"name": name}}

    async def refusal() -> str | None:
        try:
            await client.create(widget("bad-one"))
        except Forbidden as error:
            return error.message
        except ApiError:
            return None  # the provider, or its kind, is not there yet
        with contextlib.suppress(NotFound):
            await client.delete(WIDGET, "bad-one")
        return None

    assert "widgets says no at /validate" in await eventually(refusal, "the provider is asked, and refuses it")
    await client.create(widget("good-one"))


@pytest.mark.parametrize("port", [9443, 9553])
async def test_the_embedded_engine_calls_a_provider_at_the_port_that_its_runtime_configuration_names(
    tmp_path: Path, port: int
) -> None:
    container: dict[str, Any] = {"name": "package-runtime", "args": [f"--address=0.0.0.0:{port}"]}
    if port != 9443:
        container["ports"] = [{"name": "webhook", "containerPort": port}]
    template = {"spec": {"selector": {}, "template": {"spec": {"containers": [container]}}}}
    async with open_control_plane(Settings(data=tmp_path / "data")) as plane:
        about = {"apiVersion": RUNTIME_CONFIG.api_version, "kind": RUNTIME_CONFIG.kind, "metadata": {"name": "widgets"}}
        await plane.client.create({**about, "spec": {"deploymentTemplate": template}})
        blobs = BlobStore(tmp_path / "data" / "packages" / "blobs")
        await install(plane.client, publish(blobs), "widgets")
        await is_refused_by_its_provider(plane.client)


class Network:
    """A cluster's network, by which an API server reaches Services: what kube-proxy and the nodes do elsewhere.

    API servers can be told to reach everything in the cluster by a proxy. This one knows where the pods are.
    """

    def __init__(self) -> None:
        self.client: Client | None = None
        self.connected: list[str] = []

    @asynccontextmanager
    async def serving(self, path: Path) -> AsyncIterator[None]:
        async with await asyncio.start_unix_server(self._answer, path):
            yield

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, OSError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            host, _, port = head.split()[1].rpartition(":")
            self.connected.append(f"{host}:{port}")
            there = await asyncio.open_connection(*await self._place(host, int(port)))
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))
        writer.close()

    async def _place(self, host: str, port: int) -> tuple[str, int]:
        assert self.client is not None
        services = [each for each in (await self.client.list(SERVICE)).items if each["spec"].get("clusterIP") == host]
        for service in services:
            about = service["metadata"]
            name = next(each["name"] for each in service["spec"]["ports"] if each["port"] == port)
            found = await self.client.list(
                SLICE, namespace=about["namespace"], labels=f"kubernetes.io/service-name={about['name']}"
            )
            for piece in found.items:
                target = next((each["port"] for each in piece.get("ports") or () if each["name"] == name), None)
                if target is not None and piece["endpoints"]:
                    return reach(piece["endpoints"][0]["addresses"][0]), target
        return host, port


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
            await writer.drain()
    finally:
        writer.close()


@pytest.mark.long  # it starts a cluster of its own
@pytest.mark.kubernetes
@pytest.mark.xdist_group("kubernetes")
@pytest.mark.parametrize("port", [9443, 9553])
async def test_a_real_api_server_calls_a_provider_at_the_service_that_its_configuration_is_made_to_name(
    tmp_path: Path, unique: str, port: int
) -> None:
    network = Network()
    with tempfile.TemporaryDirectory() as short:  # paths of sockets are
        socket, config = Path(short) / "s", tmp_path / "egress.json"
        transport = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": str(socket)}}}
        selection = {"egressSelections": [{"name": "cluster", "connection": transport}]}
        about = {"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration"}
        config.write_text(json.dumps({**about, **selection}))
        flags = [f"--egress-selector-config-file={config}"]
        async with network.serving(socket):
            cluster = await asyncio.to_thread(
                contextlib.ExitStack.enter_context,
                stack := contextlib.ExitStack(),
                real_kubernetes(tmp_path / "kubernetes", api_flags=flags),
            )
            with stack:
                async with open_machine(cluster, unique, tmp_path) as machine:
                    network.client = machine.client
                    await machine.configure(ports=[{"name": "webhook", "containerPort": port}])
                    async with all_controllers(machine.context, data=machine.data, cluster=machine.runtime):
                        await install(machine.client, publish(machine.blobs), unique)
                        await is_refused_by_its_provider(machine.client)
                        [service] = [
                            each
                            for each in (await machine.client.list(SERVICE, namespace=unique)).items
                            if each["spec"]["ports"][0]["name"] == "webhook"
                        ]
                        assert f"{service['spec']['clusterIP']}:9443" in network.connected
                        await machine.client.delete(PROVIDER, "widgets")
