"""A function that misbehaves on request: a real gRPC server in a process of its own.

    python -m tests.harness.function_server [--address A] [--tls DIR] [--beta-only] [--max-receive BYTES]

It prints the address it serves at. What it does with a call is in the call's input, `{"mode": ..., ...}`; without an
input it answers with what it was sent. It reads and writes the protocol with bare protobuf, so that it can also break
it, and ends with its parent.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from planform_sdk.proto import SERVICES, v1
from tests.harness.processes import Child, running


@dataclass(frozen=True)
class FunctionServer:
    """A running server and where it serves."""

    target: str
    child: Child


@contextmanager
def function_server(directory: Path, name: str, *options: str) -> Iterator[FunctionServer]:
    """Run the server until the block ends."""
    command = [sys.executable, "-m", "tests.harness.function_server", *options]
    with running(command, directory / f"{name}.log", name=name) as child:
        yield FunctionServer(_address(child), child)


def _address(child: Child) -> str:
    """Where it says that it serves; it takes a moment to get there."""
    patience = time.monotonic() + 30
    while time.monotonic() < patience and not child.has_ended():
        for line in child.output().splitlines():
            if line.startswith("serving at "):
                return line.removeprefix("serving at ")
        time.sleep(0.01)
    raise AssertionError(f"the function server did not start:\n{child.output_tail()}")


class _Modes:
    """What the server can do with a call."""

    def __init__(self) -> None:
        self.calls = 0

    async def run(self, data: bytes, context: Any) -> bytes:
        request = v1.RunFunctionRequest.FromString(data)
        wanted: Any = dict(request.input.items()) if request.HasField("input") else {}
        mode: str = wanted.get("mode", "echo")
        self.calls += 1
        answer: bytes = await getattr(self, mode)(request, wanted, context)
        return answer

    async def echo(self, request: Any, wanted: Any, context: Any) -> bytes:
        return _pass_on(request)

    async def count(self, request: Any, wanted: Any, context: Any) -> bytes:
        response = v1.RunFunctionResponse.FromString(_pass_on(request))
        response.context["calls"] = self.calls
        return _bytes(response)

    async def who(self, request: Any, wanted: Any, context: Any) -> bytes:
        response = v1.RunFunctionResponse.FromString(_pass_on(request))
        response.context["pid"] = os.getpid()
        response.context["peer"] = [each.decode() for each in context.peer_identities() or ()]
        return _bytes(response)

    async def hang(self, request: Any, wanted: Any, context: Any) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError

    async def slow(self, request: Any, wanted: Any, context: Any) -> bytes:
        await asyncio.sleep(wanted["seconds"])
        response = v1.RunFunctionResponse.FromString(_pass_on(request))
        if "it" not in request.required_resources:
            response.requirements.resources["it"].api_version = "v1"
            response.requirements.resources["it"].kind = "ConfigMap"
        return _bytes(response)

    async def leak(self, request: Any, wanted: Any, context: Any) -> bytes:
        """Say the password it was sent in whatever way is wanted, and on the standard error."""
        password = request.credentials["c"].credential_data.data["password"].decode()
        print(f"connecting with {password}", file=sys.stderr, flush=True)
        response = v1.RunFunctionResponse.FromString(_pass_on(request))
        match wanted["how"]:
            case "abort":
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"cannot log in with {password}")
            case "raise":
                raise RuntimeError(f"cannot log in with {password}")
            case "fatal":
                response.results.add(severity=v1.SEVERITY_FATAL, message=f"cannot log in with {password}")
            case "invalid":
                response.desired.resources["it"].resource.update(
                    {"apiVersion": wanted["apiVersion"], "kind": "Widget", "spec": {"size": password}}
                )
            case "wrap":  # another secret, which is nowhere but in the manifest that an object wraps
                manifest = {"apiVersion": "v1", "kind": "Secret", "stringData": {"password": password[::-1]}}
                wrapper = {"apiVersion": wanted["apiVersion"], "kind": "Wrapper", "spec": {"manifests": [manifest]}}
                response.desired.resources["it"].resource.update(wrapper)
                response.results.add(severity=v1.SEVERITY_WARNING, message=f"made {password[::-1]}", reason="Made")
                response.conditions.add(
                    type="LoggedIn", status=v1.STATUS_CONDITION_TRUE, reason="Yes", message=f"by {password[::-1]}"
                )
            case "say":
                response.results.add(severity=v1.SEVERITY_NORMAL, message=f"logged in with {password}")
                response.results.add(severity=v1.SEVERITY_WARNING, message=f"weak: {password}", reason="Weak")
                response.conditions.add(
                    type="LoggedIn", status=v1.STATUS_CONDITION_TRUE, reason="Yes", message=f"by {password}"
                )
        return _bytes(response)

    async def die(self, request: Any, wanted: Any, context: Any) -> bytes:
        os._exit(7)

    async def refuse(self, request: Any, wanted: Any, context: Any) -> bytes:
        await context.abort(getattr(grpc.StatusCode, wanted["code"]), "not like this")
        raise AssertionError

    async def fail(self, request: Any, wanted: Any, context: Any) -> bytes:
        raise RuntimeError("a bug in the function")

    async def babble(self, request: Any, wanted: Any, context: Any) -> bytes:
        """Answer with a valid message of that many bytes."""
        response = v1.RunFunctionResponse.FromString(_pass_on(request))
        response.output["noise"] = "x" * int(wanted["size"])
        return _bytes(response)

    async def garbage(self, request: Any, wanted: Any, context: Any) -> bytes:
        return b"\xff\xfe this is no message"

    async def broken_object(self, request: Any, wanted: Any, context: Any) -> bytes:
        # Field 2 (desired) holding field 1 (composite) holding field 1 (resource), whose bytes are no Struct.
        return b"\x12\x06\x0a\x04\x0a\x02\xff\xff"

    async def silence(self, request: Any, wanted: Any, context: Any) -> bytes:
        return b""

    async def restless(self, request: Any, wanted: Any, context: Any) -> bytes:
        """Require something else in each call."""
        response = v1.RunFunctionResponse.FromString(_pass_on(request))
        selector = response.requirements.resources["it"]
        selector.api_version, selector.kind, selector.match_name = "v1", "ConfigMap", f"n{self.calls}"
        return _bytes(response)

    async def fickle(self, request: Any, wanted: Any, context: Any) -> bytes:
        """Desire something else in each call, with a long TTL."""
        response = v1.RunFunctionResponse.FromString(_pass_on(request))
        response.meta.ttl.seconds = 60
        response.desired.resources["a"].resource.update(
            {"apiVersion": "v1", "kind": "Bucket", "spec": {"call": self.calls}}
        )
        return _bytes(response)

    async def all_fields(self, request: Any, wanted: Any, context: Any) -> bytes:
        """Answer with every field of the protocol, and with what was sent in the output."""
        response = v1.RunFunctionResponse.FromString(_pass_on(request))
        response.meta.ttl.seconds, response.meta.ttl.nanos = 90, 500_000_000
        response.desired.composite.ready = v1.READY_TRUE
        response.desired.composite.connection_details["user"] = b"\x00me"
        big = response.desired.resources["big"]
        big.resource.update({"apiVersion": "v1", "kind": "A", "n": 3, "f": 1.5, "none": None, "l": [], "o": {}})
        big.ready = v1.READY_FALSE
        response.results.add(severity=v1.SEVERITY_WARNING, message="w", reason="R", target=2)
        response.results.add(severity=77, message="odd")
        response.conditions.add(type="T", status=v1.STATUS_CONDITION_TRUE, reason="R", message="m", target=1)
        requirements = response.requirements
        requirements.schemas["s"].api_version, requirements.schemas["s"].kind = "v1", "Pod"
        requirements.extra_resources["old"].match_labels.labels["a"] = "b"
        requirements.resources["new"].match_name = "n"
        requirements.resources["new"].namespace = "ns"
        requirements.resources["all"].match_labels.SetInParent()
        requirements.watch_resources.add(api_version="v1", kind="ConfigMap", name="n")
        response.output.update(
            {
                "capabilities": list(request.meta.capabilities),
                "credentials": request.credentials["c"].credential_data.data["k"].decode(),
                "required": {name: len(group.items) for name, group in request.required_resources.items()},
                "extra": {name: len(group.items) for name, group in request.extra_resources.items()},
                "schemas": {name: each.HasField("openapi_v3") for name, each in request.required_schemas.items()},
                "details": request.observed.resources["o"].connection_details["k"].decode(),
                "hasContext": request.HasField("context"),
            }
        )
        return _bytes(response)


def _pass_on(request: Any) -> bytes:
    response = v1.RunFunctionResponse()
    response.meta.tag = request.meta.tag
    response.desired.CopyFrom(request.desired)
    response.context.CopyFrom(request.context)
    return _bytes(response)


def _bytes(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


async def _serve(options: argparse.Namespace) -> None:
    modes = _Modes()
    handler = grpc.unary_unary_rpc_method_handler(modes.run)
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", options.max_receive),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
        ]
    )
    for version, service in SERVICES.items():
        if version == "v1beta1" or not options.beta_only:
            server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {"RunFunction": handler})])
    if options.tls:
        files = Path(options.tls)
        credentials = grpc.ssl_server_credentials(
            [((files / "tls.key").read_bytes(), (files / "tls.crt").read_bytes())],
            (files / "ca.crt").read_bytes(),
            require_client_auth=True,
        )
        port = server.add_secure_port(options.address, credentials)
    else:
        port = server.add_insecure_port(options.address)
    await server.start()
    address = options.address if options.address.startswith("unix:") else f"127.0.0.1:{port}"
    print(f"serving at {address}", flush=True)
    await server.wait_for_termination()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", default="127.0.0.1:0")
    parser.add_argument("--tls", default="")
    parser.add_argument("--beta-only", action="store_true")
    parser.add_argument("--max-receive", type=int, default=64 << 20)
    asyncio.run(_serve(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
