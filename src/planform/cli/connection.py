"""How commands reach a control plane: any Kubernetes API, found through a kubeconfig."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import click

from planform.api.kinds import GroupVersionKind, Kind
from planform.api.names import JOURNAL_REVIEW, LEGACY_USAGE
from planform.cli import completing
from planform.cli.paths import find_kubeconfig
from planform.clock import SystemClock
from planform.errors import Forbidden, NotFound, ServiceUnavailable, UsageError

if TYPE_CHECKING:  # half of the time that help and wrong usage would take
    from planform.client.kubernetes import KubernetesClient
    from planform.client.transport import Transport

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
MANAGER = "planform-cli"


@dataclass(frozen=True)
class Connected:
    """A client, the namespace that commands use unless told otherwise, and the transport for what is no object."""

    client: KubernetesClient
    transport: Transport
    namespace: str
    server: str

    async def raw(self, path: str) -> Any:
        return (await self.transport.request("GET", path)).json()

    async def ask_control_plane(self, path: str, *, namespace: str = "", **query: str) -> bytes:
        """A path below /planform/v1: of an embedded control plane itself; on a cluster by a JournalReview, which the
        API server passes to the controllers. Raises NotFound if nobody there answers such questions."""
        try:
            return (await self.transport.request("GET", path, query=query, repeatable=True)).body
        except (NotFound, Forbidden):
            if not await self._has_journal_reviews():
                raise
        review = {
            "apiVersion": JOURNAL_REVIEW.api_version,
            "kind": JOURNAL_REVIEW.kind,
            "metadata": {"generateName": "read-", "namespace": namespace or "default"},
            "spec": {"path": path, "query": query},
        }
        answer = (await self.client.create(review, dry_run=True)).get("status") or {}
        code, body = int(answer.get("code") or 404), str(answer.get("body") or "").encode()
        if code != 200:
            from planform.client.transport import error_of

            raise error_of(code, body, f"GET {path}")
        return body

    async def _has_journal_reviews(self) -> bool:
        try:
            await self.client.kind(JOURNAL_REVIEW)
        except NotFound:
            return False
        return True

    async def text(self, path: str) -> str:
        """A document that is no JSON, as the metrics."""
        return (await self.transport.request("GET", path, accept="*/*")).body.decode(errors="replace")

    async def find_kind(self, word: str) -> Kind:
        """The kind that a user means by `cm`, `configmap`, `ConfigMap`, `widgets.example.org` and the like."""
        name, _, group = word.lower().partition(".")
        kinds = [kind for kind in await self.client.kinds() if "get" in kind.verbs or "list" in kind.verbs]
        found = [
            kind
            for kind in kinds
            if name in (kind.plural, kind.singular, kind.kind.lower(), *kind.short_names)
            and (not group or group in (kind.group, f"{kind.version}.{kind.group}"))
        ]
        if not found:
            hint = _nearest(name, [kind.plural for kind in kinds])
            raise UsageError(f'the control plane serves no kind "{word}"', hint=hint)
        return min(found, key=_is_superseded)

    async def nearest_kind(self, wanted: GroupVersionKind) -> str:
        """A hint for who wrote an apiVersion and kind that are not served."""
        kinds = await self.client.kinds()
        if served := [kind.api_version for kind in kinds if kind.kind == wanted.kind]:
            return f"{wanted.kind} is served in {', '.join(served)}"
        return _nearest(wanted.kind, [kind.kind for kind in kinds])


def _is_superseded(kind: Kind) -> bool:
    """Whether another group serves the same kind, and this one only for those who have objects of it."""
    return (kind.group, kind.kind) == (LEGACY_USAGE.group, LEGACY_USAGE.kind)


def _nearest(word: str, known: Sequence[str]) -> str:
    import difflib

    close = difflib.get_close_matches(word, known, n=1)
    return (f'did you mean "{close[0]}"? ' if close else "") + "planform get --kinds lists all"


@asynccontextmanager
async def connect(kubeconfig: Path | None, *, context: str = "", timeout: float = 30.0) -> AsyncIterator[Connected]:
    """Open a connection; errors of reaching it come with the first request."""
    from planform.client.kubeconfig import find_connection
    from planform.client.kubernetes import KubernetesClient
    from planform.client.wire import Limits

    clock, rng, limits = SystemClock(), Random(), Limits(request_seconds=timeout)
    connection = find_connection(clock=clock, path=find_kubeconfig(kubeconfig), context=context)
    async with KubernetesClient(
        connection, clock=clock, rng=rng, manager=MANAGER, user_agent=MANAGER, limits=limits, short_lived=True
    ) as client:
        yield Connected(client, client.transport, connection.namespace, connection.server)


def hush_warnings() -> None:
    """For commands that choose themselves which version of a kind to ask for: that it is an old one helps nobody."""
    logging.getLogger("planform.client.transport").setLevel(logging.ERROR)


def connection_options(command: F) -> F:
    """--kubeconfig and --context."""
    command = click.option("--context", default="", help="Which context of the kubeconfig to use.")(command)
    return click.option(
        "--kubeconfig",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Which control plane.  [default: PLANFORM_KUBECONFIG, KUBECONFIG, the local one, ~/.kube/config]",
    )(command)


def namespace_options(command: F) -> F:
    command = click.option("-A", "--all-namespaces", is_flag=True, help="In every namespace.")(command)
    return click.option(
        "-n",
        "--namespace",
        default="",
        help="Namespace.  [default: the context's]",
        shell_complete=completing.namespaces,
    )(command)


def run(
    kubeconfig: Path | None, context: str, action: Callable[[Connected], Awaitable[T]], *, timeout: float = 30.0
) -> T:
    """Connect, act, and disconnect."""

    async def connected() -> T:
        async with connect(kubeconfig, context=context, timeout=timeout) as connection:
            try:
                return await action(connection)
            except ServiceUnavailable as error:
                error.hint = error.hint or "is it running? `planform up` starts one; --kubeconfig names another"
                raise

    return asyncio.run(connected())
