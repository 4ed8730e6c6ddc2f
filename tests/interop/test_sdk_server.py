"""A served function, called over real sockets: TLS, rotation, health, reflection, metrics, limits, drain."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from planform_sdk import Request, Response, function
from planform_sdk.logs import trace_id, traceparent
from planform_sdk.proto import METHODS
from planform_sdk.server import Endpoint, FunctionServer, ServeError, Settings
from planform_sdk.types import RequestMeta, Resource, RunFunctionRequest, RunFunctionResponse, State
from planform_sdk.wire import Codec
from tests.interop.conftest import Authority, client_credentials

LOOPBACK = "127.0.0.1:0"
CODEC = Codec()
BIG = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
FRESH_SOCKET = (("grpc.use_local_subchannel_pool", 1),)


@function(deterministic=True)
def greet(req: Request[Any], rsp: Response) -> None:
    rsp.xr.set("status.greeting", f"Hello, {req.xr.get('spec.name')}")
    rsp.xr.set("status.trace", trace_id())
    rsp.xr.set("status.traceparent", traceparent.get())


REQUEST = RunFunctionRequest(meta=RequestMeta("tag"), observed=State(Resource({"spec": {"name": "you"}})))


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[FunctionServer]:
    server = FunctionServer(greet, settings)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def insecure(**fields: Any) -> Settings:
    return Settings(**{"address": LOOPBACK, "insecure": True, "grace_seconds": 1.0, **fields})


async def call(
    channel: grpc.aio.Channel, request: RunFunctionRequest = REQUEST, *, version: str = "v1", **options: Any
) -> RunFunctionResponse:
    data = await channel.unary_unary(METHODS[version])(CODEC.encode_request(request), timeout=20, **options)
    return CODEC.decode_response(data)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_both_protocol_versions_are_served(version: str) -> None:
    async with serving(insecure()) as server, grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        response = await call(channel, version=version)
    assert server.address == f"127.0.0.1:{server.port}", "not the port 0 that was asked for"
    assert response.meta.tag == "tag"
    assert response.desired.composite.get("status.greeting") == "Hello, you"


async def test_a_unix_socket_serves_too(tmp_path: Path) -> None:
    path = str(tmp_path / "f.sock")
    async with serving(insecure(network="unix", address=path)), grpc.aio.insecure_channel(f"unix:{path}") as channel:
        assert (await call(channel)).meta.tag == "tag"


async def test_insecure_wins_over_certificates(issue: Callable[[str], Path]) -> None:
    settings = insecure(tls_certs_dir=issue("server"))
    async with serving(settings) as server, grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        assert (await call(channel)).meta.tag == "tag"


async def test_with_tls_only_callers_whose_certificate_the_authority_signed_get_in(
    issue: Callable[[str], Path], tmp_path: Path
) -> None:
    settings = Settings(address=LOOPBACK, tls_certs_dir=issue("server"), grace_seconds=1.0)
    stranger = Authority("somebody else").issue(tmp_path / "stranger", "stranger")
    (stranger / "ca.crt").write_bytes((tmp_path / "server" / "ca.crt").read_bytes())
    no_certificate = grpc.ssl_channel_credentials((tmp_path / "server" / "ca.crt").read_bytes())
    async with serving(settings) as server:
        target = f"localhost:{server.port}"
        async with grpc.aio.secure_channel(target, client_credentials(issue("caller"))) as channel:
            assert (await call(channel)).meta.tag == "tag"
        for refused in (no_certificate, client_credentials(stranger)):
            async with grpc.aio.secure_channel(target, refused, options=FRESH_SOCKET) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await call(channel)
                assert error.value.code() == grpc.StatusCode.UNAVAILABLE


async def test_rotated_certificates_are_used_without_a_restart(tmp_path: Path) -> None:
    old, new = Authority("old"), Authority("new")
    directory = old.issue(tmp_path / "server", "server")
    settings = Settings(address=LOOPBACK, tls_certs_dir=directory, grace_seconds=1.0)
    old_caller = client_credentials(old.issue(tmp_path / "old-caller", "caller"))
    new_caller = client_credentials(new.issue(tmp_path / "new-caller", "caller"))
    async with serving(settings) as server:
        target = f"localhost:{server.port}"
        async with grpc.aio.secure_channel(target, old_caller, options=FRESH_SOCKET) as channel:
            assert (await call(channel)).meta.tag == "tag"
            new.issue(directory, "server")
            async with grpc.aio.secure_channel(target, new_caller, options=FRESH_SOCKET) as fresh:
                assert (await call(fresh)).meta.tag == "tag"
            assert (await call(channel)).meta.tag == "tag"  # the connection from before lives on


async def test_certificates_that_vanish_leave_the_old_ones_in_use(issue: Callable[[str], Path]) -> None:
    directory = issue("server")
    caller = client_credentials(issue("caller"))
    async with serving(Settings(address=LOOPBACK, tls_certs_dir=directory, grace_seconds=1.0)) as server:
        (directory / "tls.crt").unlink()
        async with grpc.aio.secure_channel(f"localhost:{server.port}", caller) as channel:
            assert (await call(channel)).meta.tag == "tag"


async def test_what_cannot_be_served_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ServeError, match="--tls-certs-dir"):
        await FunctionServer(greet, Settings(address=LOOPBACK)).start()
    with pytest.raises(ServeError, match=r"cannot read the certificates: .*tls\.key"):
        await FunctionServer(greet, Settings(address=LOOPBACK, tls_certs_dir=tmp_path)).start()
    async with serving(insecure()) as server:
        with pytest.raises(ServeError, match="cannot listen on"):
            await FunctionServer(greet, insecure(address=f"127.0.0.1:{server.port}")).start()


async def test_messages_above_four_mebibytes_pass_and_above_the_limit_do_not() -> None:
    big = RunFunctionRequest(observed=State(Resource({"data": "x" * (6 << 20)})))
    async with (
        serving(insecure(max_message_bytes=8 << 20)) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=BIG) as channel,
    ):
        assert (await call(channel, big)).desired.composite.get("status.greeting") == "Hello, None"
        bigger = RunFunctionRequest(observed=State(Resource({"data": "x" * (9 << 20)})))
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call(channel, bigger)
        assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_nonsense_is_an_invalid_argument_and_the_server_lives_on() -> None:
    async with serving(insecure()) as server, grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await channel.unary_unary(METHODS["v1"])(b"\xff\xff\xff", timeout=20)
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert (await call(channel)).meta.tag == "tag"


async def test_the_trace_of_the_caller_is_known_inside_and_ends_with_the_call() -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with serving(insecure()) as server, grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        traced = await call(channel, metadata=(("traceparent", parent),))
        plain = await call(channel)
    assert traced.desired.composite.get("status.trace") == "0af7651916cd43dd8448eb211c80319c"
    assert traced.desired.composite.get("status.traceparent") == parent
    assert plain.desired.composite.get("status.trace") == ""


async def test_a_deterministic_function_says_so_with_its_answer() -> None:
    async with serving(insecure()) as server, grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        pending = channel.unary_unary(METHODS["v1"])(CODEC.encode_request(REQUEST), timeout=20)
        await pending
        assert ("planform-deterministic", "true") in tuple(await pending.trailing_metadata())


async def test_health_is_checked_and_watched() -> None:
    serving_now, not_serving = b"\x08\x01", b"\x08\x02"
    named = b"\x0a" + bytes([len(METHODS["v1"].split("/")[1])]) + METHODS["v1"].split("/")[1].encode()
    async with serving(insecure()) as server, grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert await check(b"", timeout=20) == serving_now
        assert await check(named, timeout=20) == serving_now
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await check(b"\x0a\x01x", timeout=20)
        assert error.value.code() == grpc.StatusCode.NOT_FOUND
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=20)
        assert await watch.read() == serving_now
        server.health.set_serving(False)
        assert await watch.read() == not_serving
        server.health.set_serving(True)
        assert await watch.read() == serving_now
        last = asyncio.create_task(watch.read())
        await asyncio.sleep(0)  # let it ask before the end
        await server.stop()
        assert await last == not_serving
        assert await watch.read() is grpc.aio.EOF


async def test_an_answer_that_cannot_be_sent_is_a_fatal_result_with_the_reason() -> None:
    @function(name="careless")
    def careless(req: Request[Any], rsp: Response) -> None:
        if req.xr.get("details"):
            rsp.xr.connection_details["user"] = "text"  # type: ignore[assignment]  # authors need not use a type checker
        else:
            rsp.desired.resources["bad"] = {"spec": object()}

    endpoint = Endpoint(careless)
    for details, reason in ((False, 'resource "bad" cannot be encoded'), (True, "cannot be encoded: expected bytes")):
        given = RunFunctionRequest(meta=RequestMeta("t"), observed=State(Resource({"details": details})))
        response = CODEC.decode_response(await endpoint.answer(CODEC.encode_request(given)))
        assert response.meta.tag == "t"
        assert response.results[0].reason == "InvalidResponse"
        assert reason in response.results[0].message
        assert 'function "careless"' in response.results[0].message
    assert 'outcome="fatal"} 2' in endpoint.metrics.text()


async def test_reflection_lists_the_services_and_gives_their_file() -> None:
    pytest.importorskip("grpc_reflection")
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    messages: Any = reflection_pb2
    async with serving(insecure()) as server, grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        symbol = "apiextensions.fn.proto.v1.FunctionRunnerService"
        questions = [
            messages.ServerReflectionRequest(list_services=""),
            messages.ServerReflectionRequest(file_containing_symbol=symbol),
        ]
        services, file = [answer async for answer in stub.ServerReflectionInfo(iter(questions), timeout=20)]
    assert symbol in [each.name for each in services.list_services_response.service]
    assert b"RunFunctionRequest" in b"".join(file.file_descriptor_response.file_descriptor_proto)


async def test_metrics_count_calls_by_outcome() -> None:
    settings = insecure(metrics_address=LOOPBACK)
    async with serving(settings) as server, grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        await call(channel)
        await call(channel)
        url = f"http://127.0.0.1:{server.metrics_port}/metrics"
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=10).read().decode())
    assert 'function_calls_total{function="greet",outcome="ok"} 2' in text
    assert 'function_call_seconds_count{function="greet"} 2' in text
    assert 'function_calls_in_flight{function="greet"} 0' in text


SLOW = textwrap.dedent(
    """
    import asyncio, sys
    from planform_sdk import function, serve

    @function
    async def slow(req, rsp):
        print("called", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        rsp.xr.set("status.done", True)

    if __name__ == "__main__":
        serve(slow)
    """
)


async def test_a_served_process_drains_on_sigterm_and_logs_json(tmp_path: Path) -> None:
    program = tmp_path / "slow.py"
    program.write_text(SLOW)
    path = tmp_path / "s.sock"
    flags = ["--network", "unix", "--address", str(path), "--insecure", "--grace", "20"]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(program),
        *flags,
        stdin=-1,
        stdout=-1,
        stderr=-1,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdin and process.stdout and process.stderr
    try:
        async with asyncio.timeout(60):
            first = await process.stderr.readline()
            assert b'"msg":"serving"' in first
            async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
                pending = asyncio.create_task(call(channel))
                assert await process.stdout.readline() == b"called\n"
                process.send_signal(signal.SIGTERM)
                assert b'"msg":"draining","calls":1' in await process.stderr.readline()
                process.stdin.write(b"\n")
                assert (await pending).desired.composite.get("status.done") is True
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
