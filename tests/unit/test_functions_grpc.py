"""Calling functions over gRPC: what goes over the wire, over which connections, and who waits for whom."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from planform.functions.endpoints import ClientTls, FixedEndpoints, InProcess, Remote
from planform.functions.errors import (
    FunctionFailed,
    FunctionNotFound,
    FunctionRefused,
    FunctionRequestTooLarge,
    FunctionTimedOut,
    FunctionUnavailable,
)
from planform.functions.grpc_transport import CallLimits, GrpcRunner
from planform.functions.inprocess import InProcessRunner
from planform.functions.routing import RoutingRunner
from planform.functions.runner import FunctionRevision
from planform.functions.values import (
    Condition,
    FunctionRequest,
    FunctionResponse,
    Ready,
    Requirements,
    Resource,
    ResourceSelector,
    Result,
    SchemaSelector,
    Severity,
    State,
    Status,
    Target,
    WatchedResource,
    respond,
)
from planform.telemetry.metrics import MetricsRegistry
from tests.harness.function_server import FunctionServer, function_server

FN = FunctionRevision("fn", "fn-1", "sha256:1")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FunctionServer]:
    with function_server(tmp_path_factory.mktemp("fn"), "server") as running:
        yield running


@pytest.fixture
async def runner(server: FunctionServer) -> AsyncIterator[GrpcRunner]:
    async with GrpcRunner(FixedEndpoints({"fn": Remote(server.target)})) as runner:
        yield runner


def asking(mode: str, *, uid: str = "u", **options: Any) -> FunctionRequest:
    return FunctionRequest(
        observed=State(Resource({"kind": "XR", "metadata": {"uid": uid}})),
        input={"apiVersion": "t/v1", "kind": "Mode", "mode": mode, **options},
        tag="the-tag",
    )


async def run(runner: GrpcRunner, request: FunctionRequest, timeout: float = 20) -> FunctionResponse:
    return await runner.run(FN, request, timeout=timeout)


# -- the wire


async def test_every_field_goes_there_and_comes_back(runner: GrpcRunner) -> None:
    request = asking("all_fields")
    request.observed.resources["o"] = Resource({"a": 1}, {"k": b"v"})
    request.credentials = {"c": {"k": b"secret"}}
    request.required_resources = {"two": [Resource({"a": 1}), Resource({"a": 2})], "none": []}
    request.extra_resources = {"one": [Resource({"a": 1})]}
    request.required_schemas = {"yes": {"type": "object"}, "no": None}
    request.context = {"key": [1, 2.5, None, "x", True, {}, 1 << 40]}
    response = await run(runner, request)
    assert response.output == {
        "capabilities": [1, 2, 3, 4, 5],
        "credentials": "secret",
        "required": {"two": 2, "none": 0},
        "extra": {"one": 1},
        "schemas": {"yes": True, "no": False},
        "details": "v",
        "hasContext": True,
    }
    assert response.context == request.context
    assert (response.tag, response.ttl) == ("the-tag", 90.5)
    assert response.desired.composite.ready is Ready.TRUE
    assert response.desired.composite.connection_details == {"user": b"\x00me"}
    assert response.desired.resources["big"] == Resource(
        {"apiVersion": "v1", "kind": "A", "n": 3, "f": 1.5, "none": None, "l": [], "o": {}}, {}, Ready.FALSE
    )
    assert type(response.desired.resources["big"].resource["n"]) is int
    assert response.results == [
        Result(Severity.WARNING, "w", "R", Target.COMPOSITE_AND_CLAIM),
        Result(Severity.UNSPECIFIED, "odd"),
    ]
    assert response.conditions == [Condition("T", Status.TRUE, "R", "m", Target.COMPOSITE)]
    assert response.requirements == Requirements(
        resources={
            "all": ResourceSelector("", "", "", {}),
            "new": ResourceSelector("", "", "n", None, "ns"),
        },
        extra_resources={"old": ResourceSelector("", "", "", {"a": "b"})},
        schemas={"s": SchemaSelector("v1", "Pod")},
        watch_resources=[WatchedResource("v1", "ConfigMap", "n")],
    )


async def test_resources_come_in_order_of_their_names(runner: GrpcRunner) -> None:
    request = asking("echo")
    names = [f"r{number}" for number in range(40)]
    request.desired = State(resources={name: Resource({"kind": "A"}) for name in reversed(names)})
    assert list((await run(runner, request)).desired.resources) == sorted(names)


async def test_a_request_beyond_four_megabytes_is_sent_and_answered(runner: GrpcRunner) -> None:
    request = asking("echo")
    request.desired = State(resources={f"r{n}": Resource({"text": "x" * 100_000}) for n in range(80)})
    large = dataclasses.replace(FN, max_answer_size=16 << 20)
    assert (await runner.run(large, request, timeout=20)).desired == request.desired


# -- connections


async def test_a_function_that_only_serves_v1beta1_is_remembered(tmp_path: Path) -> None:
    metrics = MetricsRegistry()
    with function_server(tmp_path, "beta", "--beta-only") as server:
        async with GrpcRunner(FixedEndpoints({"fn": Remote(server.target)}), metrics=metrics) as runner:
            for _ in range(3):
                assert (await run(runner, asking("echo"))).tag == "the-tag"
    labels = 'function_name="fn",function_revision="fn-1",grpc_method='
    text = metrics.render()
    assert f'function_run_function_request_total{{{labels}"v1"}} 1' in text
    assert f'function_run_function_request_total{{{labels}"v1beta1"}} 3' in text


async def test_a_unix_socket_is_as_good_as_an_address(tmp_path: Path) -> None:
    address = f"unix:{tmp_path / 's'}"
    with function_server(tmp_path, "unix", "--address", address) as server:
        async with GrpcRunner(FixedEndpoints({"fn": Remote(server.target)})) as runner:
            assert (await run(runner, asking("echo"))).tag == "the-tag"


async def test_calls_go_round_robin_over_replicas(server: FunctionServer, tmp_path: Path) -> None:
    with function_server(tmp_path, "other") as other:
        async with GrpcRunner(FixedEndpoints({"fn": Remote(f"ipv4:{server.target},{other.target}")})) as runner:
            pids: list[object] = []
            while len(set(pids)) < 2 and len(pids) < 500:  # the second one may take a moment to connect
                pids.append((await run(runner, asking("who"))).context["pid"])
            more = [(await run(runner, asking("who"))).context["pid"] for _ in range(6)]
    assert len(set(more)) == 2
    assert all(one != next_one for one, next_one in itertools.pairwise(more))


async def test_a_changed_endpoint_is_used_at_once_and_calls_on_the_old_one_end_in_peace(
    server: FunctionServer, tmp_path: Path
) -> None:
    places: dict[str, Any] = {"fn": Remote(server.target)}

    class Moving:
        def endpoint(self, revision: FunctionRevision, /) -> Remote | None:
            place: Remote | None = places.get(revision.function)
            return place

    with function_server(tmp_path, "moved") as moved:
        async with GrpcRunner(Moving()) as runner:
            first = (await run(runner, asking("who"))).context["pid"]
            assert (await run(runner, asking("who"))).context["pid"] == first
            slow = asyncio.create_task(run(runner, asking("slow", seconds=0.3)))
            await asyncio.sleep(0.05)
            places["fn"] = Remote(moved.target)
            assert (await run(runner, asking("who"))).context["pid"] != first
            assert (await slow).tag == "the-tag"
            runner.retain([])
            assert (await run(runner, asking("echo"))).tag == "the-tag", "a forgotten revision connects anew"
            places.clear()
            with pytest.raises(FunctionUnavailable, match="not known where it serves"):
                await run(runner, asking("echo"))


async def test_a_function_that_starts_late_gets_the_call(tmp_path: Path) -> None:
    address = f"unix:{tmp_path / 'late'}"
    limits = CallLimits(connect_timeout=20)
    async with GrpcRunner(FixedEndpoints({"fn": Remote(address)}), limits=limits) as runner:
        waiting = asyncio.create_task(run(runner, asking("echo")))
        await asyncio.sleep(0.05)
        with ExitStack() as stack:
            starting = function_server(tmp_path, "late", "--address", address)
            await asyncio.to_thread(stack.enter_context, starting)
            assert (await waiting).tag == "the-tag"


async def test_a_function_that_is_down_fails_soon_and_by_name(tmp_path: Path) -> None:
    limits = CallLimits(connect_timeout=0.2)
    async with GrpcRunner(FixedEndpoints({"fn": Remote(f"unix:{tmp_path / 'nobody'}")}), limits=limits) as runner:
        with pytest.raises(FunctionUnavailable) as caught:
            await run(runner, asking("echo"))
    assert str(caught.value) == 'function "fn" (revision "fn-1"): nobody answers at its endpoint'
    assert caught.value.retryable


# -- mutual TLS


def certificates(directory: Path, authority: str = "ca") -> tuple[Path, ClientTls]:
    """A directory as a function expects it, and what the caller shows."""
    directory.mkdir(exist_ok=True)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = issue(authority, ca_key, None, ca_key)
    server_key, client_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    (directory / "ca.crt").write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    (directory / "tls.crt").write_bytes(issue("fn-1", server_key, ca, ca_key).public_bytes(serialization.Encoding.PEM))
    (directory / "tls.key").write_bytes(pem(server_key))
    client = issue("control-plane", client_key, ca, ca_key).public_bytes(serialization.Encoding.PEM)
    return directory, ClientTls((directory / "ca.crt").read_bytes(), client, pem(client_key))


def issue(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: x509.Certificate | None, issuer_key: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )


def pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


async def test_both_sides_prove_who_they_are_and_strangers_are_refused(tmp_path: Path) -> None:
    files, ours = certificates(tmp_path / "tls")
    _, theirs = certificates(tmp_path / "other", "another authority")
    no_client = dataclasses.replace(ours, certificate=theirs.certificate, key=theirs.key)
    with function_server(tmp_path, "tls", "--tls", str(files)) as server:
        good = Remote(server.target, ours, server_name="fn-1")
        async with GrpcRunner(FixedEndpoints({"fn": good})) as runner:
            assert "control-plane" in (await run(runner, asking("who"))).context["peer"]
        for bad in (
            Remote(server.target, theirs, server_name="fn-1"),
            Remote(server.target, ours, server_name="fn-2"),
            Remote(server.target, no_client, server_name="fn-1"),
            Remote(server.target),
        ):
            limits = CallLimits(connect_timeout=0.2)
            async with GrpcRunner(FixedEndpoints({"fn": bad}), limits=limits) as runner:
                with pytest.raises(Exception, match='function "fn"') as caught:
                    await run(runner, asking("echo"), timeout=5)
                assert type(caught.value).__name__ in ("FunctionUnavailable", "FunctionCrashed")


# -- errors and turns


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("INVALID_ARGUMENT", FunctionRefused),
        ("PERMISSION_DENIED", FunctionRefused),
        ("UNIMPLEMENTED", FunctionRefused),
        ("INTERNAL", FunctionFailed),
        ("RESOURCE_EXHAUSTED", FunctionFailed),
    ],
)
async def test_a_status_has_a_name_of_ours(runner: GrpcRunner, code: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        await run(runner, asking("refuse", code=code))


async def test_a_request_larger_than_the_function_takes_is_told_apart(tmp_path: Path) -> None:
    with function_server(tmp_path, "small", "--max-receive", "10000") as server:
        async with GrpcRunner(FixedEndpoints({"fn": Remote(server.target)})) as runner:
            with pytest.raises(FunctionRequestTooLarge):
                await run(runner, asking("echo", padding="x" * 20_000))


async def test_what_the_wire_cannot_say_is_refused_before_it_is_sent(runner: GrpcRunner) -> None:
    with pytest.raises(FunctionRefused, match="cannot be sent"):
        await run(runner, asking("echo", odd=object()))


async def test_an_xr_with_many_calls_does_not_hold_up_one_with_a_single_call(server: FunctionServer) -> None:
    ended: list[str] = []
    limits = CallLimits(calls_per_revision=2)
    async with GrpcRunner(FixedEndpoints({"fn": Remote(server.target)}), limits=limits) as runner:

        async def call(uid: str) -> None:
            await run(runner, asking("slow", uid=uid, seconds=0.02))
            ended.append(uid)

        many = [asyncio.create_task(call("many")) for _ in range(20)]
        await asyncio.sleep(0)
        await call("single")
        assert len(ended) <= 7, "it came to its turn after those in flight, not after all"
        await asyncio.gather(*many)


async def test_when_no_turn_comes_free_the_error_says_so(server: FunctionServer) -> None:
    limits = CallLimits(calls_per_revision=1)
    async with GrpcRunner(FixedEndpoints({"fn": Remote(server.target)}), limits=limits) as runner:
        hanging = asyncio.create_task(run(runner, asking("hang"), timeout=5))
        await asyncio.sleep(0.05)
        with pytest.raises(FunctionTimedOut, match="no free turn"):
            await run(runner, asking("echo", uid="other"), timeout=0.1)
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
        assert (await run(runner, asking("echo", uid="other"))).tag == "the-tag", "a cancelled call gives its turn back"


# -- in-process, and routing between transports


class Greet:
    name = "greet"
    deterministic = True

    def __call__(self, request: FunctionRequest, /) -> FunctionResponse:
        if request.input == {"fail": True}:
            raise KeyError("bug")
        response = respond(request)
        response.context["greeting"] = "hello"
        return response


class Wait:
    name = "wait"
    deterministic = False

    async def run(self, request: FunctionRequest, /, *, timeout: float, max_answer_size: int = 0) -> FunctionResponse:
        await asyncio.sleep(0)
        return respond(request)


async def test_built_ins_run_in_this_process_and_all_else_over_grpc(runner: GrpcRunner) -> None:
    places = FixedEndpoints({"hi": InProcess("greet"), "w": InProcess("wait"), "x": InProcess("gone")})
    routing = RoutingRunner(places, InProcessRunner([Greet(), Wait()]), runner)

    async def call(function: str, request: FunctionRequest) -> Mapping[str, Any]:
        revision = FunctionRevision(function, f"{function}-1", "d")
        return (await routing.run(revision, request, timeout=5)).context

    assert await call("hi", FunctionRequest()) == {"greeting": "hello"}
    assert await call("w", FunctionRequest()) == {}
    assert "calls" in await call("fn", asking("count"))
    with pytest.raises(FunctionNotFound):
        await call("x", FunctionRequest())
    with pytest.raises(FunctionFailed, match="KeyError: 'bug'"):
        await call("hi", FunctionRequest(input={"fail": True}))
    with pytest.raises(FunctionUnavailable):
        await RoutingRunner(places, InProcessRunner([])).run(FN, FunctionRequest(), timeout=1)
