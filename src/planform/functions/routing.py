"""One runner over all transports: each call goes to where its revision serves."""

from __future__ import annotations

from planform.functions.endpoints import Endpoints, InProcess
from planform.functions.errors import FunctionUnavailable
from planform.functions.inprocess import InProcessRunner
from planform.functions.runner import FunctionRevision, FunctionRunner
from planform.functions.values import FunctionRequest, FunctionResponse


class RoutingRunner:
    """Built-ins in this process; everything else by `remote`, if there is one."""

    def __init__(self, endpoints: Endpoints, builtins: InProcessRunner, remote: FunctionRunner | None = None) -> None:
        self._endpoints = endpoints
        self._builtins = builtins
        self._remote = remote

    async def run(self, revision: FunctionRevision, request: FunctionRequest, /, *, timeout: float) -> FunctionResponse:
        endpoint = self._endpoints.endpoint(revision)
        if isinstance(endpoint, InProcess):
            return await self._builtins.run_builtin(endpoint.name, revision, request, timeout=timeout)
        if self._remote is None:
            raise FunctionUnavailable(
                "functions over gRPC are not available here",
                revision=revision,
                hint="install grpcio, protobuf and planform-sdk beside planform",
            )
        return await self._remote.run(revision, request, timeout=timeout)
