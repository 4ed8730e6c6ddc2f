"""What a user may do, asked of the control plane itself (SelfSubjectAccessReview), remembered for a few seconds."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from planform.clock import Clock
from planform.errors import PlanformError
from planform.web import rows
from planform.web.upstream import Upstream

_SECONDS: Final = 5.0
_MAX: Final = 4096
_REVIEW: Final = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}


class Right(NamedTuple):
    """To do `verb` to a resource."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"verb {self.verb} on {self.resource}{'.' + self.group if self.group else ''}{where}"


class Access:
    """The answers for one user."""

    def __init__(self, upstream: Upstream, clock: Clock) -> None:
        self._upstream = upstream
        self._clock = clock
        self._known: dict[Right, tuple[float, str]] = {}

    async def missing(self, *rights: Right) -> str:
        """Empty if the user has all of these rights, else what they need."""
        answers = await asyncio.gather(*(self._refusal(right) for right in rights))
        return next((answer for answer in answers if answer), "")

    async def _refusal(self, right: Right) -> str:
        now = self._clock.monotonic()
        known = self._known.get(right)
        if known is not None and now - known[0] < _SECONDS:
            return known[1]
        attributes = {name: value for name, value in right._asdict().items() if value}
        try:
            review = await self._upstream.client.create(
                {
                    **_REVIEW,
                    "spec": {"resourceAttributes": attributes},
                }  # never stored: a question in the form of a write
            )
            allowed = rows.mapping(review.get("status")).get("allowed") is True
            answer = "" if allowed else f"needs {right}"
        except PlanformError as error:
            answer = f"cannot say whether you may ({error.message})"
        if len(self._known) >= _MAX:
            self._known.clear()
        self._known[right] = (now, answer)
        return answer
