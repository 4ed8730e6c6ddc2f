"""A function written with our SDK says of itself that it is deterministic, and is then asked once."""

from __future__ import annotations

from planform.clock import VirtualClock
from planform.functions.cache import CacheOutcome, ResponseCache
from planform.functions.calling import call_once
from planform.functions.endpoints import FixedEndpoints, Remote
from planform.functions.grpc_transport import GrpcRunner
from planform.functions.runner import FunctionRevision
from planform.functions.values import FunctionRequest
from planform_sdk import Request as SdkRequest
from planform_sdk import Response, function
from planform_sdk.server import FunctionServer, Settings
from tests.harness.processes import free_ports

REVISION = FunctionRevision("greet", "greet-1", "sha256:1")
DAY = 24 * 3600.0


async def outcomes(deterministic: bool) -> list[CacheOutcome]:
    @function(deterministic=deterministic)
    def greet(req: SdkRequest[None], rsp: Response) -> None:
        rsp.normal("hello")

    [port] = free_ports(1)
    server = FunctionServer(greet, Settings(address=f"127.0.0.1:{port}", insecure=True))
    clock = VirtualClock()
    cache = ResponseCache(clock)
    await server.start()
    try:
        async with GrpcRunner(FixedEndpoints({"greet": Remote(f"ipv4:127.0.0.1:{port}")})) as runner:
            found = []
            for _ in range(2):
                call = await call_once(
                    REVISION, FunctionRequest(tag="t"), runner=runner, cache=cache, clock=clock, timeout=20
                )
                found.append(call.cache)
                await clock.advance(DAY)
            return found
    finally:
        await server.stop()


async def test_a_deterministic_function_is_asked_once_however_long_ago() -> None:
    first, second = await outcomes(deterministic=True)
    assert first is not CacheOutcome.HIT
    assert second is CacheOutcome.HIT


async def test_any_other_function_is_asked_again_once_its_answer_is_too_old() -> None:
    assert CacheOutcome.HIT not in await outcomes(deterministic=False)
