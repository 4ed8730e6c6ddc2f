"""What a function answers. It starts as "everything stays as earlier steps want it", and the function changes that."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from planform_sdk.resource import copy_object
from planform_sdk.types import (
    Condition,
    Object,
    Requirements,
    Resource,
    ResponseMeta,
    Result,
    RunFunctionRequest,
    RunFunctionResponse,
    Severity,
    State,
    Status,
    Target,
    undecoded,
)

DEFAULT_TTL = timedelta(seconds=60)

_STATUSES = {True: Status.TRUE, False: Status.FALSE, None: Status.UNKNOWN}


class Response:
    """One answer. Desired state and context are passed through unless the function changes them."""

    def __init__(self, request: RunFunctionRequest, *, ttl: timedelta | None) -> None:
        self._ttl = ttl
        self.output: Object | None = None
        self.results: list[Result] = []
        self.conditions: list[Condition] = []
        self.requirements = Requirements()
        self._request = request
        self._desired: State | None = None
        self._context: Object | None = None

    @property
    def desired(self) -> State:
        """What should be wanted from now on; starts as what earlier steps want."""
        if self._desired is None:
            self._desired = self._request.desired.copy()
        return self._desired

    @property
    def xr(self) -> Resource:
        """The desired XR, of which only `status`, connection details and readiness take effect."""
        return self.desired.composite

    @property
    def ttl(self) -> timedelta | None:
        """How long the answer stays good; None says nothing about it. May be set in seconds."""
        return self._ttl

    @ttl.setter
    def ttl(self, value: timedelta | float | None) -> None:
        self._ttl = timedelta(seconds=value) if isinstance(value, int | float) else value

    @property
    def context(self) -> dict[str, Any]:
        """What later steps will find in the context; starts as what earlier steps left there."""
        if self._context is None:
            given = self._request.context
            self._context = copy_object(given) if given else {}
        return self._context

    @context.setter
    def context(self, value: dict[str, Any]) -> None:
        self._context = value

    def fatal(self, message: str, *, reason: str | None = None, target: Target | None = None) -> None:
        """Stop the pipeline: nothing is applied. The function itself goes on; raise `Fatal` to stop that too."""
        self.results.append(Result(Severity.FATAL, message, reason, target))

    def warning(self, message: str, *, reason: str | None = None, target: Target | None = None) -> None:
        """Tell the user of something that is not as it should be. Only when it changed, not on every call."""
        self.results.append(Result(Severity.WARNING, message, reason, target))

    def normal(self, message: str, *, reason: str | None = None, target: Target | None = None) -> None:
        """Tell the user of something that happened. Only when it happened, not on every call."""
        self.results.append(Result(Severity.NORMAL, message, reason, target))

    def condition(
        self,
        type: str,
        status: bool | None,
        *,
        reason: str,
        message: str | None = None,
        target: Target | None = None,
    ) -> None:
        """Set a condition of the XR; status None means unknown."""
        self.conditions.append(Condition(type, _STATUSES[status], reason, message, target))

    def undo(self) -> None:
        """Want again what earlier steps want: half a change is none. Results and conditions stay."""
        self._desired = None
        self._context = None
        self.output = None
        self.requirements = Requirements()

    def to_plain(self) -> RunFunctionResponse:
        """The answer as it goes to the caller."""
        return RunFunctionResponse(
            meta=ResponseMeta(self._request.meta.tag, self._ttl),
            desired=undecoded(self._request, "desired") if self._desired is None else self._desired,
            results=self.results,
            context=undecoded(self._request, "context") if self._context is None else self._context,
            requirements=self.requirements,
            conditions=self.conditions,
            output=self.output,
        )
