"""The Protocols around a function call; transports, caches and recorders implement them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from planform.functions.values import FunctionRequest, FunctionResponse, Object, ResourceSelector, SchemaSelector

MAX_ANSWER_SIZE: Final = 4 << 20


BUILTIN_DIGEST: Final = "builtin:"
"""How the digest of a built-in function begins; its name and its version follow."""


@dataclass(frozen=True, slots=True)
class FunctionRevision:
    """The revision of a function that a step was resolved to. Everything downstream is keyed by it, never by a name.

    `digest` identifies its content: two revisions with one digest behave alike, and the response cache relies on it.
    """

    function: str
    name: str
    digest: str
    deterministic: bool = False
    quick: bool = False
    """Whether it answers in this process, faster than a cache could."""
    max_answer_size: int = MAX_ANSWER_SIZE
    """Bytes of the largest answer that is taken."""


class FunctionRunner(Protocol):
    """Runs one function once. A cache, a recorder or a requirements loop is a runner around a runner."""

    async def run(self, revision: FunctionRevision, request: FunctionRequest, /, *, timeout: float) -> FunctionResponse:
        """Answer within `timeout` seconds. Raises a FunctionError that names the revision and what went wrong."""
        ...


class ResourceReader(Protocol):
    """Reads what functions ask for."""

    async def read(self, selector: ResourceSelector, /) -> Sequence[Object]:
        """The objects, sorted by namespace and name; empty if there are none or the kind is not served."""
        ...

    async def schema(self, selector: SchemaSelector, /) -> Object | None:
        """The OpenAPI v3 schema of a kind with references inlined; None if it is not served."""
        ...


class CredentialSource(Protocol):
    """Reads the Secrets that steps send to their functions."""

    async def read(self, namespace: str, name: str, /) -> Mapping[str, bytes] | None:
        """What the Secret holds, read anew each time; None if there is none."""
        ...


class BuiltinFunction(Protocol):
    """A function that ships with planform and runs in this process on plain values, without waiting."""

    name: str
    deterministic: bool

    def __call__(self, request: FunctionRequest, /) -> FunctionResponse: ...


class WaitingFunction(Protocol):
    """A function that ships with planform and waits for something, such as a child process that does the work."""

    name: str
    deterministic: bool

    async def run(
        self, request: FunctionRequest, /, *, timeout: float, max_answer_size: int = ...
    ) -> FunctionResponse: ...
