"""From a browser's request to an answer: the guard, the session, the route. `Identities` says who may log in, and how.

Everything is below `/ui/`: the page at any path, its API below `/ui/api/v1/`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from http.cookies import CookieError, SimpleCookie
from typing import Final, Protocol
from urllib.parse import parse_qs, unquote

import msgspec

from planform import __version__
from planform.apiserver.wire.http import HttpRequest, HttpResponse, Stream
from planform.clock import Clock
from planform.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    MethodNotAllowed,
    NotFound,
    PlanformError,
    TooManyRequests,
    Unauthorized,
)
from planform.journal.serving import PATH as RUNS
from planform.web import actions, answers, api, guard, xr_views
from planform.web.access import Access
from planform.web.context import Looker
from planform.web.control_plane_views import engine_of, version_of
from planform.web.mirror import ROLLOUT
from planform.web.page import Page
from planform.web.sessions import SESSION_LIFETIME, Session, Sessions, is_csrf
from planform.web.stream import STREAMS, STREAMS_OF_SESSION, Subscription

MAX_PATH: Final = 2048
MAX_BODY: Final = 64 * 1024
MAX_TOPICS: Final = 24
MAX_TREES: Final = 16
"""XRs whose trees one stream follows: all tabs of a browser share it."""
IDLE_SECONDS: Final = 300.0
"""So long after its last page has gone, what an identity's mirror holds is let go."""
AGAIN_SECONDS: Final = 0.5
"""Between two times that open streams are asked for their credentials."""
_ENDED: Final = b"event: ended\ndata: {}\n\n"
_JSON: Final = b"application/json"
_NO_STORE: Final = (b"cache-control", b"no-store")
_encoder: Final = msgspec.json.Encoder()

log = logging.getLogger(__name__)


class Identities(Protocol):
    """Opens what a session needs to act for its user."""

    async def by_token(self, token: str, /) -> str:
        """The key of the identity that a bearer token means; raises Unauthorized."""
        ...

    async def by_request(self, request: HttpRequest, /) -> str:
        """The key of whoever asks with the API's own credentials, a certificate or a token; raises Unauthorized."""
        ...

    async def check(self, key: str, /) -> None:
        """Raises Unauthorized once what an identity rests on was revoked or is over. Cheap: every request asks it."""
        ...

    async def open(self, key: str, /) -> Looker:
        """A looker for an identity; it is closed by `close`."""
        ...

    async def close(self, looker: Looker, /) -> None: ...


class Dashboard:
    """Answers every request below /ui/. Use `serving` around it: leaving that ends its watches."""

    def __init__(
        self,
        identities: Identities,
        *,
        clock: Clock,
        page: Page,
        hosts: Callable[[], Collection[str]],
        scheme: str,
        cookie: Callable[[], str],
    ) -> None:
        self._identities = identities
        self._clock = clock
        self._page = page
        self._hosts = hosts
        self._scheme = scheme
        self._cookie = cookie
        self.sessions: Sessions[str] = Sessions(clock)
        self._lookers: dict[str, asyncio.Task[Looker]] = {}
        self._streams: dict[Stream, Session[str]] = {}
        self._openapi = _encoder.encode(api.openapi(__version__))

    # -- life

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        sweeper = asyncio.create_task(self._sweep(), name="dashboard sweep")
        guardian = asyncio.create_task(self._ask_again(), name="dashboard credentials")
        try:
            yield
        finally:
            for task in (sweeper, guardian):
                task.cancel()
            await asyncio.gather(sweeper, guardian, return_exceptions=True)
            for key in list(self._lookers):
                await self._drop(key)

    async def _sweep(self) -> None:
        while True:
            await self._clock.sleep(30.0)
            now = self._clock.monotonic()
            for key, task in list(self._lookers.items()):
                if not task.done() or task.cancelled() or task.exception() is not None:
                    continue
                looker = task.result()
                if looker.streams == 0 and now - looker.idle_since > IDLE_SECONDS:
                    await self._drop(key)

    async def _ask_again(self) -> None:
        """A request is asked when it comes; a stream stays for hours, so its identity is asked again and again."""
        while True:
            await self._clock.sleep(AGAIN_SECONDS)
            for key in {session.who for session in self._streams.values()}:
                try:
                    await self._check(key)
                except ApiError:
                    pass  # its streams are ended by now

    async def _check(self, key: str) -> None:
        """Raises Unauthorized for an identity that holds no longer, after all that it had was taken from it."""
        try:
            await self._identities.check(key)
        except Unauthorized:
            self.sessions.close_all(key)
            self._end_streams(lambda session: session.who == key)
            await self._drop(key)
            raise

    def _end_streams(self, of: Callable[[Session[str]], bool]) -> None:
        for stream in [stream for stream, session in self._streams.items() if of(session)]:
            stream.end(_ENDED)

    async def _drop(self, key: str) -> None:
        task = self._lookers.pop(key, None)
        if task is None:  # somebody else drops it
            return
        if not task.done():
            task.cancel()
        try:
            looker = await task
        except (asyncio.CancelledError, PlanformError):
            return
        await looker.mirror.close()
        await self._identities.close(looker)

    async def _looker(self, key: str) -> Looker:
        """One for each identity, however many pages ask for it at once."""
        task = self._lookers.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._lookers[key] = asyncio.create_task(self._opened(key), name="dashboard identity")
        looker = await asyncio.shield(task)
        looker.idle_since = self._clock.monotonic()
        return looker

    async def _opened(self, key: str) -> Looker:
        looker = await self._identities.open(key)
        looker.mirror.start()
        await looker.mirror.synced()
        return looker

    # -- requests

    async def handle(self, request: HttpRequest) -> HttpResponse:
        """The answer to anything; what is refused says why."""
        try:
            return await self._handle(request)
        except ApiError as error:
            return _refused(error.code, error)
        except PlanformError as error:
            return _refused(400, error)
        except msgspec.MsgspecError as error:
            return _refused(400, BadRequest(f"the body is not what this path takes: {error}"))

    async def _handle(self, request: HttpRequest) -> HttpResponse:
        guard.check(request, self._hosts(), scheme=self._scheme)
        path, query = _split(request.target)
        if path in ("/", "/ui"):
            return HttpResponse(302, headers=[*guard.HEADERS, (b"location", b"/ui/")])
        if not path.startswith("/ui/"):
            raise NotFound("the dashboard is at /ui/")
        if not path.startswith("/ui/api/"):
            if request.method not in guard.READS:
                raise MethodNotAllowed("pages are only read")
            return self._page.answer(request, path.removeprefix("/ui/") or "index.html")
        if not path.startswith(api.PREFIX + "/"):
            raise NotFound(f"the API is at {api.PREFIX}/")
        parts = tuple(unquote(part) for part in path.removeprefix(api.PREFIX + "/").split("/") if part)
        if parts == ("openapi.json",):
            return _answer_bytes(self._openapi)
        if len(request.body) > MAX_BODY:
            raise BadRequest(f"a body has at most {MAX_BODY} bytes here")
        if parts == ("session",) and request.method == "POST":
            return await self._login(request)
        if parts == ("links",) and request.method == "POST":
            return _answer(answers.Link(code=self.sessions.mint(await self._identities.by_request(request))))
        session = self._session(request)
        await self._check(session.who)
        if request.method not in guard.READS and not is_csrf(session, request.header(guard.CSRF_HEADER)):
            raise Forbidden("the request lacks the token of this session", hint="reload the page")
        return await self._authenticated(request, session, parts, query)

    async def _authenticated(
        self, request: HttpRequest, session: Session[str], parts: tuple[str, ...], query: Mapping[str, list[str]]
    ) -> HttpResponse:
        looker = await self._looker(session.who)
        match request.method, parts:
            case "GET", ("session",):
                return _answer(await self._who(looker, session))
            case "DELETE", ("session",):
                self.sessions.close(session)
                self._end_streams(lambda each: each is session)
                return _answer(answers.Done(message="logged out"))
            case "POST", ("actions",):
                asked = msgspec.json.decode(request.body, type=answers.Act)
                done = await actions.act(looker, asked)
                log.info("%s did %s to %s %s", looker.user, asked.action, asked.kind, asked.name)
                return _answer(done)
            case "GET", ("stream",):
                return self._stream(request, session, looker, query)
            case "GET" | "HEAD", _:
                route, found = api.route_of(parts)
                return _answer(await route.view(looker, found, query))
        raise MethodNotAllowed(f"{request.method} is not for this path")

    async def _login(self, request: HttpRequest) -> HttpResponse:
        # A form of another site can send text/plain without asking; JSON it cannot.
        if not request.header(b"content-type").startswith("application/json"):
            raise BadRequest("log in with JSON")
        login = msgspec.json.decode(request.body, type=answers.Login)
        if login.token:
            cookie: str | None = self.sessions.open(await self._identities.by_token(login.token))
        else:
            cookie = self.sessions.redeem(login.code)
        if cookie is None:
            raise Unauthorized(
                "this link was used already, or is older than a minute",
                hint="start `planform dashboard` again, or press Enter where it runs, for a new one",
            )
        session = self.sessions.find(cookie)
        assert session is not None
        await self._check(session.who)
        looker = await self._looker(session.who)
        response = _answer(await self._who(looker, session))
        secure = "; Secure" if self._scheme == "https" else ""
        lifetime = int(SESSION_LIFETIME.total_seconds())
        value = f"{self._cookie()}={cookie}; Path=/ui/; HttpOnly; SameSite=Strict; Max-Age={lifetime}{secure}"
        response.headers.append((b"set-cookie", value.encode()))
        return response

    def _session(self, request: HttpRequest) -> Session[str]:
        cookies: SimpleCookie = SimpleCookie()
        try:
            cookies.load(request.header(b"cookie"))
        except CookieError:
            pass
        found = cookies.get(self._cookie())
        session = self.sessions.find(found.value) if found is not None else None
        if session is None:
            raise Unauthorized("nobody is logged in here", hint="open the link that `planform dashboard` gives")
        return session

    async def _who(self, looker: Looker, session: Session[str]) -> answers.Session:
        try:
            await looker.upstream.raw(f"{RUNS}/none", {"limit": "1"})
            journal = True
        except PlanformError:
            journal = False
        engine = await engine_of(looker)
        return answers.Session(
            user=looker.user,
            groups=looker.groups,
            server=looker.upstream.server,
            engine="embedded" if engine == "embedded" else "kubernetes",
            version=await version_of(looker) or __version__,
            read_only=looker.read_only,
            csrf=session.csrf,
            journal=journal,
            rollouts=await looker.upstream.serves(ROLLOUT),
            links=dict(looker.links),
        )

    def _stream(
        self, request: HttpRequest, session: Session[str], looker: Looker, query: Mapping[str, list[str]]
    ) -> HttpResponse:
        if session.streams >= STREAMS_OF_SESSION or len(self._streams) >= STREAMS:
            raise TooManyRequests("too many pages are open", hint="close some of them")
        topics = query.get("topics", [""])[0].split(",")[:MAX_TOPICS]
        named = [each for each in query.get("xr", ()) if each]
        if len(named) > MAX_TREES:
            raise BadRequest(f"a stream follows at most {MAX_TREES} XRs")
        trees = []
        for each in named:
            parts = each.split("/")
            if len(parts) != 3:
                raise BadRequest("xr is KIND.GROUP/NAMESPACE/NAME")
            try:
                trees.append(xr_views.target_of(looker, *parts)[1])
            except NotFound:
                continue  # one tab may show what is gone: the others' stream does not fail for it
        if trees:
            topics.append("tree")
        last = request.header(b"last-event-id") or query.get("lastEventId", [""])[0]
        stream = Stream()
        chunks = self._counted(Subscription(looker.mirror, topics).events(last[:80], trees), session, looker, stream)
        return HttpResponse(
            200,
            headers=[*guard.HEADERS, _NO_STORE, (b"x-accel-buffering", b"no")],
            content_type=b"text/event-stream; charset=utf-8",
            chunks=chunks,
            stream=stream,
        )

    async def _counted(
        self, events: AsyncIterator[bytes], session: Session[str], looker: Looker, stream: Stream
    ) -> AsyncIterator[bytes]:
        """The events of a stream, counted while it is open; it ends with its session."""
        session.streams += 1
        looker.streams += 1
        self._streams[stream] = session
        try:
            async for event in events:
                yield event
                if session.until <= self._clock.monotonic():
                    return
        finally:
            session.streams -= 1
            looker.streams -= 1
            self._streams.pop(stream, None)
            looker.idle_since = self._clock.monotonic()
            close: Callable[[], Awaitable[None]] | None = getattr(events, "aclose", None)
            if close is not None:
                await close()


def _split(target: bytes) -> tuple[str, Mapping[str, list[str]]]:
    if len(target) > MAX_PATH:
        raise BadRequest(f"an address has at most {MAX_PATH} bytes here")
    path, _, query = target.decode("latin-1").partition("?")
    if not path.startswith("/"):
        raise BadRequest("the request's target is not a path")
    return path, parse_qs(query, keep_blank_values=True, max_num_fields=64) if query else {}


def _answer(value: object) -> HttpResponse:
    return _answer_bytes(_encoder.encode(value))


def _answer_bytes(body: bytes) -> HttpResponse:
    return HttpResponse(200, body, [*guard.HEADERS, _NO_STORE], content_type=_JSON)


def _refused(code: int, error: PlanformError) -> HttpResponse:
    refusal = answers.Refusal(code=code, reason=str(error.reason or ""), message=error.message, hint=error.hint or "")
    return HttpResponse(code, _encoder.encode(refusal), [*guard.HEADERS, _NO_STORE], content_type=_JSON)


def refusal(status: int, text: str) -> HttpResponse:
    """The answer to something that never became a request."""
    return _refused(status, PlanformError(text))


__all__ = ["Access", "Dashboard", "Identities", "refusal"]
