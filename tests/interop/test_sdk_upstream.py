"""Our SDK and Crossplane's Python SDK, in one process, as each other's caller and function."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec
import pytest

from planform_sdk import Request, Response, Severity, function
from planform_sdk.proto import METHODS
from planform_sdk.server import FunctionServer, Settings
from planform_sdk.types import (
    Capability,
    RequestMeta,
    Resource,
    ResourceMap,
    ResourceSelector,
    RunFunctionRequest,
    State,
)
from planform_sdk.wire import Codec
from tests.interop.conftest import client_credentials

pytest.importorskip("crossplane.function")

UPSTREAM = "crossplane.function"
fnv1: Any = import_module(f"{UPSTREAM}.proto.v1.run_function_pb2")
grpcv1: Any = import_module(f"{UPSTREAM}.proto.v1.run_function_pb2_grpc")
fnv1beta1: Any = import_module(f"{UPSTREAM}.proto.v1beta1.run_function_pb2")
grpcv1beta1: Any = import_module(f"{UPSTREAM}.proto.v1beta1.run_function_pb2_grpc")
upstream_request: Any = import_module(f"{UPSTREAM}.request")
upstream_resource: Any = import_module(f"{UPSTREAM}.resource")
upstream_response: Any = import_module(f"{UPSTREAM}.response")
upstream_runtime: Any = import_module(f"{UPSTREAM}.runtime")

TRANSPORTS = pytest.mark.parametrize("tls", [False, True], ids=["insecure", "mutual TLS"])
STUBS: Any = {"v1": (fnv1, grpcv1), "v1beta1": (fnv1beta1, grpcv1beta1)}


class Input(msgspec.Struct):
    region: str


@function(name="function-buckets", input=Input)
def buckets(req: Request[Input], rsp: Response) -> None:
    vpc = req.require("vpc", api_version="ec2.example.org/v1", kind="VPC", labels={"net": "main"})
    size = req.xr["spec"]["size"]
    rsp.desired.resources["bucket"] = {
        "apiVersion": "s3.example.org/v1",
        "kind": "Bucket",
        "spec": {"region": req.input.region, "size": size, "vpc": vpc.name if vpc else None},
    }
    rsp.desired.resources["bucket"].ready = req.observed.resources["bucket"].is_true("Ready")
    rsp.xr.connection_details["token"] = req.credentials("cloud")["token"]
    rsp.context["seen"] = True
    rsp.normal("composed a bucket", reason="Composed")
    rsp.condition("BucketReady", True, reason="Available")


@asynccontextmanager
async def channel_to(port: int, certificates: Path | None) -> AsyncIterator[grpc.aio.Channel]:
    target = f"localhost:{port}"
    if certificates is None:
        async with grpc.aio.insecure_channel(target) as channel:
            yield channel
    else:
        async with grpc.aio.secure_channel(target, client_credentials(certificates)) as channel:
            yield channel


@TRANSPORTS
@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_our_function_answers_a_request_from_upstreams_stubs(
    tls: bool, version: str, issue: Callable[[str], Path]
) -> None:
    messages, stubs = STUBS[version]
    request = messages.RunFunctionRequest(meta=messages.RequestMeta(tag="t-1"))
    request.observed.composite.resource.update({"spec": {"size": 3}})
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    request.observed.resources["bucket"].resource.update(ready)
    request.desired.resources["earlier"].resource.update({"kind": "Earlier"})
    request.desired.resources["earlier"].ready = messages.READY_TRUE
    request.input.update({"apiVersion": "example.org/v1", "kind": "Input", "region": "eu"})
    request.context.update({"k": {"v": 1}})
    request.credentials["cloud"].credential_data.data["token"] = b"\x00secret"
    found = request.required_resources["vpc"].items.add()
    found.resource.update({"metadata": {"name": "vpc-1"}})

    settings = Settings(
        address="127.0.0.1:0", insecure=not tls, tls_certs_dir=issue("server") if tls else None, grace_seconds=1
    )
    server = FunctionServer(buckets, settings)
    await server.start()
    try:
        async with channel_to(server.port, issue("caller") if tls else None) as channel:
            answer = await stubs.FunctionRunnerServiceStub(channel).RunFunction(request, timeout=20)
    finally:
        await server.stop()

    assert answer.meta.tag == "t-1"
    assert answer.meta.ttl.seconds == 60
    assert set(answer.desired.resources) == {"earlier", "bucket"}
    assert answer.desired.resources["earlier"] == request.desired.resources["earlier"]
    bucket = upstream_resource.struct_to_dict(answer.desired.resources["bucket"].resource)
    assert bucket["spec"] == {"region": "eu", "size": 3, "vpc": "vpc-1"}
    assert answer.desired.resources["bucket"].ready == messages.READY_TRUE
    assert answer.desired.composite.connection_details["token"] == b"\x00secret"
    assert upstream_resource.struct_to_dict(answer.context) == {"k": {"v": 1}, "seen": True}
    assert answer.requirements.resources["vpc"].match_labels.labels == {"net": "main"}
    assert answer.requirements.extra_resources["vpc"].kind == "VPC"  # the stub's request says no capabilities
    assert [(each.severity, each.reason) for each in answer.results] == [(messages.SEVERITY_NORMAL, "Composed")]
    assert answer.conditions[0].status == messages.STATUS_CONDITION_TRUE


class UpstreamFunction(grpcv1.FunctionRunnerService):  # type: ignore[misc]  # upstream ships no types for its stubs
    """A function as upstream's documentation has authors write it."""

    async def RunFunction(self, req: Any, _: Any) -> Any:
        rsp = upstream_response.to(req)
        if not upstream_request.has_capability(req, fnv1.CAPABILITY_REQUIRED_RESOURCES):
            upstream_response.fatal(rsp, "too old")
            return rsp
        upstream_response.require_resources(
            rsp, "config", "v1", "ConfigMap", match_name="settings", namespace=str(req.input["namespace"])
        )
        found = upstream_request.get_required_resource(req, "config")
        name = found["metadata"]["name"] if found else "nobody"
        upstream_resource.update(
            rsp.desired.resources["pod"],
            {"kind": "Pod", "spec": {"replicas": req.observed.composite.resource["spec"]["size"], "config": name}},
        )
        upstream_resource.update(rsp.desired.composite, {"status": {"ok": True, "none": None}})
        rsp.context["seen"] = upstream_request.get_credentials(req, "cloud").data["token"]
        upstream_response.warning(rsp, "careful")
        return rsp


@TRANSPORTS
@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_upstreams_function_answers_a_request_of_ours(
    tls: bool, version: str, issue: Callable[[str], Path]
) -> None:
    codec = Codec()
    request = RunFunctionRequest(
        meta=RequestMeta("t-2", [Capability.CAPABILITIES, Capability.REQUIRED_RESOURCES]),
        observed=State(Resource({"spec": {"size": 3}})),
        desired=State(
            resources=ResourceMap({"earlier": Resource({"kind": "Earlier", "n": [1, 2.5, None]}, ready=True)})
        ),
        input={"namespace": "team-a"},
        context={"k": {"v": 1}},
        credentials={"cloud": {"token": b"secret"}},
        required_resources={"config": [Resource({"metadata": {"name": "settings"}})]},
    )
    server = grpc.aio.server()
    grpcv1.add_FunctionRunnerServiceServicer_to_server(UpstreamFunction(), server)
    beta = upstream_runtime.BetaFunctionRunner(wrapped=UpstreamFunction())
    grpcv1beta1.add_FunctionRunnerServiceServicer_to_server(beta, server)
    if tls:
        port = server.add_secure_port("127.0.0.1:0", upstream_runtime.load_credentials(str(issue("server"))))
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with channel_to(port, issue("caller") if tls else None) as channel:
            data = await channel.unary_unary(METHODS[version])(codec.encode_request(request), timeout=20)
    finally:
        await server.stop(1)

    response = codec.decode_response(data)
    assert response.meta.tag == "t-2"
    assert response.meta.ttl is not None and response.meta.ttl.total_seconds() == 60
    assert response.desired.resources["earlier"] == request.desired.resources["earlier"]
    assert response.desired.resources["pod"].resource == {"kind": "Pod", "spec": {"replicas": 3, "config": "settings"}}
    assert type(response.desired.resources["pod"]["spec"]["replicas"]) is int
    assert response.desired.composite.resource == {"status": {"ok": True, "none": None}}
    assert response.context == {"k": {"v": 1}, "seen": "secret"}
    assert response.requirements.resources == {
        "config": ResourceSelector("v1", "ConfigMap", match_name="settings", namespace="team-a")
    }
    assert [(each.severity, each.message) for each in response.results] == [(Severity.WARNING, "careful")]


async def test_the_added_requirement_is_skipped_by_upstream_and_survives_its_passing_on() -> None:
    @function
    def watches(req: Request[Any], rsp: Response) -> None:
        req.watch(api_version="v1", kind="ConfigMap", name="a")

    codec = Codec()
    data = codec.encode_response(await watches.run(RunFunctionRequest()))
    message = fnv1.RunFunctionResponse.FromString(data)
    assert not message.requirements.resources
    assert codec.decode_response(message.SerializeToString()).requirements.watch_resources[0].name == "a"
