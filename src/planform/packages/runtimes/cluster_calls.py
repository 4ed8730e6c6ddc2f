"""Calls of revisions whose pods come and go."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from planform.clock import Clock
from planform.functions.endpoints import Remote
from planform.functions.errors import FunctionCrashed, FunctionError, FunctionUnavailable
from planform.functions.runner import FunctionRevision, FunctionRunner
from planform.functions.values import FunctionRequest, FunctionResponse
from planform.packages.runtimes.host import RuntimeStatus
from planform.packages.runtimes.launching import without_network


class Pods(Protocol):
    """Whoever knows the pods of revisions, and takes none away while a call is counted."""

    def runtime_status(self, revision: str) -> RuntimeStatus | None: ...

    def remote(self, revision: str) -> Remote | None: ...

    def why_no_network(self, revision: str) -> str: ...

    def calling(self, revision: str) -> AbstractContextManager[None]: ...

    async def answering(self, revision: str, seconds: float) -> None: ...


class ClusterRunner:
    """Passes calls on to where revisions serve, and counts those of revisions that run in the cluster."""

    def __init__(self, pods: Pods, otherwise: FunctionRunner, clock: Clock) -> None:
        self._pods = pods
        self._otherwise = otherwise
        self._clock = clock

    async def run(self, revision: FunctionRevision, request: FunctionRequest, /, *, timeout: float) -> FunctionResponse:
        pods, name = self._pods, revision.name
        if pods.runtime_status(name) is None:
            return await self._otherwise.run(revision, request, timeout=timeout)
        try:
            return without_network(await self._run(revision, request, timeout), pods.why_no_network(name))
        except FunctionError as error:
            if why := pods.why_no_network(name):
                error.detail = f"{error.detail} (it runs without network: {why})"
            raise

    async def _run(self, revision: FunctionRevision, request: FunctionRequest, timeout: float) -> FunctionResponse:
        pods, name = self._pods, revision.name
        deadline = self._clock.monotonic() + timeout
        with pods.calling(name):
            await pods.answering(name, timeout)
            before = pods.remote(name)
            try:
                return await self._otherwise.run(revision, request, timeout=self._left(deadline))
            except FunctionCrashed:
                # Its pod ended in the middle. Reconciles repeat calls anyway, so this one may be repeated at once; a
                # request that kills its function does so twice, and then it is said.
                await pods.answering(name, self._left(deadline))
            except FunctionUnavailable:
                if pods.remote(name) == before:
                    raise
            return await self._otherwise.run(revision, request, timeout=self._left(deadline))

    def _left(self, deadline: float) -> float:
        return max(deadline - self._clock.monotonic(), 0.001)
