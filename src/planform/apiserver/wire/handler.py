"""From an HTTP request to a verb and back: authenticate, route, authorise, decode, act, encode."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import orjson

from planform.api.kinds import Object
from planform.apiserver.auth.open_watches import Credentials, OpenWatches, Rights
from planform.apiserver.crds.registry import ServedKind
from planform.apiserver.verbs import applies, deletes, reads, subresources, writes
from planform.apiserver.verbs.core import Core, decode, decode_any, key_of, raw
from planform.apiserver.verbs.requests import ANONYMOUS, Attributes, Request, Selection, User
from planform.apiserver.verbs.selection import single_name
from planform.apiserver.wire import tables
from planform.apiserver.wire.http import HttpRequest, HttpResponse, Stream
from planform.apiserver.wire.lists import list_chunks, slices_of
from planform.apiserver.wire.negotiation import APPLY_YAML, JSON, Form, accepted, decode_body, encode_value
from planform.apiserver.wire.nonresource import NonResourceEndpoints
from planform.apiserver.wire.offload import Offload
from planform.apiserver.wire.options import (
    Query,
    bad_option,
    is_true,
    list_options,
    one,
    wants_indent,
    watch_options,
    write_request,
)
from planform.apiserver.wire.routes import OtherPath, ResourcePath, parse_target
from planform.apiserver.wire.streams import watch_lines
from planform.client.protocol import PatchType
from planform.errors import (
    ApiError,
    BadRequest,
    InternalError,
    MethodNotAllowed,
    NotFound,
    PlanformError,
    RequestTooLarge,
    StoreError,
    TooManyRequests,
    UnsupportedMediaType,
)
from planform.store import Entry

log = logging.getLogger(__name__)

_PUBLIC = frozenset({"healthz", "livez", "readyz", "version"})
_PATCH_TYPES = {patch_type.value: patch_type for patch_type in PatchType}
_NO_METHOD = "the server does not allow this method on the requested resource"
_NO_RESOURCE = "the server could not find the requested resource"
_LIST_CHUNK = 500
_SUBRESOURCE_METHODS: Mapping[str, tuple[str, ...]] = {
    "status": ("GET", "PUT", "PATCH"),
    "scale": ("GET", "PUT", "PATCH"),
    "finalize": ("PUT",),
    "token": ("POST",),
}
_CHUNK_BYTES = 256 * 1024
_CONVERTED = 50
"""Objects that a webhook has converted and that are written at once."""


class Authenticator(Credentials, Protocol):
    """Says who sends a request."""

    async def authenticate(self, request: HttpRequest, /) -> User:
        """The user, ANONYMOUS without credentials; raises Unauthorized for bad ones."""
        ...


class Authorizer(Rights, Protocol):
    """Says what a user may do."""

    def authorize(self, user: User, attributes: Attributes, /) -> None:
        """Raises Forbidden."""
        ...


class Virtual(Protocol):
    """Kinds and subresources that are answered, not stored: reviews and tokens."""

    async def create(self, served: ServedKind, path: ResourcePath, body: Object, request: Request, /) -> Object | None:
        """The answer, or None if this kind is an ordinary one."""
        ...


class Observer(Protocol):
    """Sees every request once it is answered: metrics and the audit log."""

    def answered(
        self, request: HttpRequest, user: User, attributes: Attributes | None, response: HttpResponse, /
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request for a resource, authorised and about to be carried out."""

    request: HttpRequest
    user: User
    served: ServedKind
    path: ResourcePath
    query: Query
    notices: _Notices


@dataclass(frozen=True, slots=True)
class _Notices:
    """What is said beside the answer: warnings to the client, annotations to the audit log."""

    warnings: list[str] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)


def _call(asked: _Asked, kind: str) -> Request:
    """The options of a write; `kind` names them in errors."""
    agent = asked.request.header(b"user-agent")
    call = write_request(asked.query, asked.user, agent, asked.notices.warnings, kind)
    call.annotations = asked.notices.annotations
    return call


class Handler:
    """The wire's one entry."""

    def __init__(
        self,
        core: Core,
        non_resource: NonResourceEndpoints,
        *,
        authenticator: Authenticator,
        authorizer: Authorizer,
        virtual: Virtual,
        observers: tuple[Observer, ...] = (),
        offload: Offload | None = None,
    ) -> None:
        self._core = core
        self._non_resource = non_resource
        self.authenticator = authenticator
        self._authorizer = authorizer
        self._virtual = virtual
        self._observers = observers
        self._offload = offload
        self._watches = OpenWatches(authenticator, authorizer, core.clock)

    async def handle(self, request: HttpRequest) -> HttpResponse:
        user, attributes = ANONYMOUS, None
        notices = _Notices()
        try:
            user = await self.authenticator.authenticate(request)
            path, query = parse_target(request.target)
            if isinstance(path, ResourcePath):
                attributes = _attributes(request.method, path, query)
                response = await self._resource(request, user, path, query, attributes, notices)
            else:
                attributes = Attributes(request.method.lower(), path=path.path)
                response = await self._other(request, user, path, query, attributes)
        except ApiError as error:
            response = failure(error)
        except StoreError as error:
            response = failure(InternalError(str(error)))
        except PlanformError as error:
            response = failure(BadRequest(str(error)))
        response.annotations = notices.annotations
        if response.stream is not None and attributes is not None:
            response.stream.on_end(self._watches.add(request, attributes, response.stream))
        for text in notices.warnings:
            response.headers.append((b"warning", _warning(text)))
        for observer in self._observers:
            observer.answered(request, user, attributes, response)
        return response

    # -- what is not a resource

    async def _other(
        self, request: HttpRequest, user: User, path: OtherPath, query: Query, attributes: Attributes
    ) -> HttpResponse:
        first = path.parts[0] if path.parts else ""
        if first not in _PUBLIC:
            self._authorizer.authorize(user, attributes)
        if request.method != "GET" and not (request.method == "HEAD" and first in _PUBLIC):
            raise MethodNotAllowed(_NO_METHOD)
        return await self._non_resource.answer(request, path, query)

    # -- resources

    async def _resource(
        self,
        request: HttpRequest,
        user: User,
        path: ResourcePath,
        query: Query,
        attributes: Attributes,
        notices: _Notices,
    ) -> HttpResponse:
        self._authorizer.authorize(user, attributes)
        served = self._core.registry.at_path(path.group, path.version, path.plural)
        if served is None:
            if not self._core.registry.has_group_version(path.group, path.version):
                return _page_not_found()
            raise NotFound(_NO_RESOURCE)
        if path.namespace and not served.kind.namespaced:
            raise NotFound(_NO_RESOURCE)
        if served.kind.namespaced and path.name and not path.namespace:
            raise NotFound(_NO_RESOURCE)
        if path.subresource and path.subresource not in served.kind.subresources:
            raise NotFound(_NO_RESOURCE)
        if served.kind.namespaced and not path.namespace and request.method not in ("GET", "HEAD", "OPTIONS"):
            if served.builtin:  # across all namespaces one can only read
                raise MethodNotAllowed(_NO_METHOD)
            return _page_not_found()
        if request.method not in _SUBRESOURCE_METHODS.get(path.subresource, (request.method,)):
            raise MethodNotAllowed(_NO_METHOD)
        if served.deprecation:
            notices.warnings.append(served.deprecation)
        if attributes.verb not in served.kind.verbs and not path.subresource:
            raise MethodNotAllowed(_NO_METHOD)
        act = _VERBS.get((request.method, bool(path.name)))
        if act is None:
            raise MethodNotAllowed(_NO_METHOD)
        return await act(self, _Asked(request, user, served, path, query, notices))

    async def get_one(self, asked: _Asked) -> HttpResponse:
        request, served, path, query = asked.request, asked.served, asked.path, asked.query
        form = accepted(request.header(b"accept"))
        if path.watching:
            return self._watch(
                served, path, query, form, Selection(path.namespace, fields=f"metadata.name={path.name}")
            )
        if path.subresource not in ("", "status"):
            value = await subresources.get(self._core, served, path.namespace, path.name, path.subresource)
            return HttpResponse(
                200, encode_value(value, form, pretty=wants_indent(query)), content_type=form.content_type
            )
        stored = await reads.get(self._core, served, path.namespace, path.name)
        return self._object(served, stored, form, query)

    async def get_many(self, asked: _Asked) -> HttpResponse:
        request, served, path, query = asked.request, asked.served, asked.path, asked.query
        form = accepted(request.header(b"accept"))
        selection = Selection(path.namespace, one(query, "labelSelector"), one(query, "fieldSelector"))
        if path.watching or is_true(query, "watch"):
            return self._watch(served, path, query, form, selection)
        options = list_options(query)
        page = await reads.list_entries(self._core, served, selection, options)
        metadata: dict[str, Any] = {"resourceVersion": str(page.rv)}
        if page.continue_token:
            metadata["continue"] = page.continue_token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
        # What a webhook converts, it converts at once, and its failure must be known before the answer begins.
        if form.shape == "" and not form.yaml and not wants_indent(query) and served.conversion is None:
            return self._plain_list(served, page, metadata)
        return await self._shaped_list(served, page, metadata, form, query)

    async def _shaped_list(
        self, served: ServedKind, page: reads.Page, metadata: dict[str, Any], form: Form, query: Query
    ) -> HttpResponse:
        """A list in any other form, decoded and written slice by slice."""
        entries = [entry for _, entry in page.entries]
        slices: Iterator[Callable[[], list[Object]]]
        if served.conversion is None:
            slices = (partial(_decoded, served, each) for each in slices_of(entries, form))
        else:
            objects = await decode_any(self._core, served, entries)
            slices = (partial(list, objects[at : at + _CONVERTED]) for at in range(0, len(objects), _CONVERTED))
        field = "rows" if form.shape == "Table" else "items"

        def show(objects: list[Object]) -> Object:
            if form.shape == "Table":
                return self._table(served, objects, query, metadata, form)
            if form.shape:
                return tables.partial_list(objects, metadata)
            return _list_head(served, metadata) | {"items": [_as_item(served, obj) for obj in objects]}

        head = show([])  # what is wrong with the request is known before the answer begins
        del head[field]
        chunks = list_chunks(
            head, field, (partial(_items, show, field, each) for each in slices), form, pretty=wants_indent(query)
        )
        return HttpResponse(200, chunks=chunks, content_type=form.content_type)

    def _plain_list(self, served: ServedKind, page: reads.Page, metadata: dict[str, Any]) -> HttpResponse:
        """A list from stored bytes, in chunks: a long one neither blocks the loop nor doubles the memory."""
        head = orjson.dumps(_list_head(served, metadata))[:-1] + b',"items":['
        skip = len(served.prefix) if served.builtin else 0

        async def chunks() -> AsyncIterator[bytes]:
            parts, size = [head], 0
            for index, (_, entry) in enumerate(page.entries):
                value = raw(served, entry)
                if index:
                    parts.append(b",")
                parts.append(b"{" + value[skip:] if skip and value.startswith(served.prefix) else value)
                size += len(value)
                if size > _CHUNK_BYTES or index % _LIST_CHUNK == _LIST_CHUNK - 1:
                    yield b"".join(parts)
                    parts, size = [], 0
            yield b"".join([*parts, b"]}\n"])

        return HttpResponse(200, chunks=chunks())

    def _watch(
        self, served: ServedKind, path: ResourcePath, query: Query, form: Form, selection: Selection
    ) -> HttpResponse:
        options = watch_options(query, self._core)
        lines = watch_lines(self._core, served, selection, options, form, one(query, "includeObject"))
        return HttpResponse(200, chunks=lines, content_type=form.content_type, stream=Stream())

    async def create(self, asked: _Asked) -> HttpResponse:
        request, served, path, query = asked.request, asked.served, asked.path, asked.query
        form = accepted(request.header(b"accept"))
        call = _call(asked, "CreateOptions")
        obj = await self._object_body(request, call)
        answer = await self._virtual.create(served, path, obj, call)
        if answer is not None:
            return HttpResponse(201, encode_value(answer, form), content_type=form.content_type)
        if path.name:
            raise MethodNotAllowed(_NO_METHOD)
        written = await writes.create(self._core, served, obj, call, namespace=path.namespace)
        return self._object(served, written.value, form, query, status=201)

    async def update(self, asked: _Asked) -> HttpResponse:
        request, served, path, query = asked.request, asked.served, asked.path, asked.query
        form = accepted(request.header(b"accept"))
        call = _call(asked, "UpdateOptions")
        obj = await self._object_body(request, call)
        if path.subresource not in ("", "status"):
            value = await subresources.update(
                self._core, served, path.namespace, path.name, path.subresource, obj, call
            )
            return HttpResponse(200, encode_value(value, form), content_type=form.content_type)
        written = await writes.update(
            self._core, served, obj, call, namespace=path.namespace, name=path.name, subresource=path.subresource
        )
        return self._object(served, written.value, form, query)

    async def patch(self, asked: _Asked) -> HttpResponse:
        request, served, path, query = asked.request, asked.served, asked.path, asked.query
        form = accepted(request.header(b"accept"))
        media = request.header(b"content-type").partition(";")[0].strip().lower()
        call = _call(asked, "PatchOptions")
        if media == APPLY_YAML:
            return await self._apply(asked, call, form)
        if "force" in query:
            raise bad_option("PatchOptions", "force", "Forbidden: may not be specified for non-apply patch")
        patch_type = _PATCH_TYPES.get(media)
        if patch_type is None:
            raise UnsupportedMediaType(
                "the body of the request was in an unknown format - accepted media types include: "
                + ", ".join([*_PATCH_TYPES, APPLY_YAML])
            )
        body = await decode_body(request.body, JSON, validation=call.validation, offload=self._offload)
        call.duplicates = body.duplicates
        if patch_type is not PatchType.JSON and type(body.value) is not dict:
            raise BadRequest("error decoding patch: a merge patch must be an object")
        if path.subresource not in ("", "status"):
            value = await subresources.patch(
                self._core, served, path.namespace, path.name, path.subresource, patch_type, body.value, call
            )
            return HttpResponse(200, encode_value(value, form), content_type=form.content_type)
        written = await writes.patch(
            self._core,
            served,
            path.namespace,
            path.name,
            patch_type,
            body.value,
            call,
            subresource=path.subresource,
        )
        return self._object(served, written.value, form, query)

    async def _apply(self, asked: _Asked, call: Request, form: Form) -> HttpResponse:
        request, served, path, query = asked.request, asked.served, asked.path, asked.query
        if not one(query, "fieldManager"):
            raise bad_option("PatchOptions", "fieldManager", "Required value: is required for apply patch")
        body = await decode_body(request.body, APPLY_YAML, validation=call.validation, offload=self._offload)
        call.duplicates = body.duplicates
        if type(body.value) is not dict:
            raise BadRequest("error decoding patch: an apply patch must be an object")
        force = is_true(query, "force")
        if path.subresource not in ("", "status"):
            value = await subresources.apply_scale(
                self._core, served, path.namespace, path.name, body.value, call, force=force
            )
            return HttpResponse(200, encode_value(value, form), content_type=form.content_type)
        key = key_of(served, path.namespace, path.name)
        if self._core.store.head(key) is None:
            create = Attributes(
                "create", path.group, path.version, path.plural, path.subresource, path.namespace, path.name
            )
            self._authorizer.authorize(asked.user, create)
        written = await applies.apply(
            self._core,
            served,
            path.namespace,
            path.name,
            body.value,
            call,
            force=force,
            subresource=path.subresource,
        )
        return self._object(served, written.value, form, query, status=201 if written.created else 200)

    async def delete_one(self, asked: _Asked) -> HttpResponse:
        request, served, path, query = asked.request, asked.served, asked.path, asked.query
        if path.subresource:
            raise MethodNotAllowed(_NO_METHOD)
        form = accepted(request.header(b"accept"))
        call = _call(asked, "DeleteOptions")
        options = await self._delete_options(request, query, call)
        deleted = await deletes.delete(self._core, served, path.namespace, path.name, options, call)
        if not deleted.gone:
            return self._object(served, deleted.value, form, query)
        metadata = orjson.loads(deleted.value)["metadata"]
        details = {
            "name": path.name,
            "group": served.kind.group,
            "kind": served.kind.plural,
            "uid": metadata["uid"],
        }
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {name: value for name, value in details.items() if value},
        }
        return HttpResponse(200, encode_value(status, Form(yaml=form.yaml)), content_type=Form(form.yaml).content_type)

    async def delete_many(self, asked: _Asked) -> HttpResponse:
        request, served, path, query = asked.request, asked.served, asked.path, asked.query
        call = _call(asked, "DeleteOptions")
        options = await self._delete_options(request, query, call)
        selection = Selection(path.namespace, one(query, "labelSelector"), one(query, "fieldSelector"))
        deleted = await deletes.delete_collection(self._core, served, selection, options, call)
        head = orjson.dumps(_list_head(served, {"resourceVersion": str(self._core.store.revision)}))[:-1]
        return HttpResponse(200, head + b',"items":[' + b",".join(deleted) + b"]}\n")

    # -- bodies

    async def _object_body(self, request: HttpRequest, call: Request) -> Object:
        content_type = request.header(b"content-type")
        body = await decode_body(request.body, content_type, validation=call.validation, offload=self._offload)
        call.duplicates = body.duplicates
        if type(body.value) is not dict:
            raise BadRequest("the body of the request must be one object")
        return body.value

    async def _delete_options(self, request: HttpRequest, query: Query, call: Request) -> deletes.DeleteOptions:
        body: Any = {}
        if request.body.strip():
            decoded = await decode_body(request.body, request.header(b"content-type"), offload=self._offload)
            body = decoded.value or {}
            if type(body) is not dict:
                raise BadRequest("the body of a DELETE must be DeleteOptions")
        options, dry_run = deletes.parse_options(body, {name: values[0] for name, values in query.items()})
        call.options = deletes.given_options(body, options, dry_run=call.dry_run or dry_run)
        call.dry_run = call.dry_run or dry_run
        return options

    # -- answers

    def _object(self, served: ServedKind, value: bytes, form: Form, query: Query, *, status: int = 200) -> HttpResponse:
        if form.shape == "" and not form.yaml and not wants_indent(query):
            return HttpResponse(status, value + b"\n")
        obj: Object = orjson.loads(value)
        if form.shape == "Table":
            obj = self._table(
                served, [obj], query, {"resourceVersion": obj["metadata"].get("resourceVersion", "")}, form
            )
        elif form.shape:
            obj = tables.partial_object(obj)
        return HttpResponse(status, encode_value(obj, form, pretty=wants_indent(query)), content_type=form.content_type)

    def _table(
        self, served: ServedKind, objects: list[Object], query: Query, metadata: Mapping[str, Any], form: Form
    ) -> Object:
        table = tables.table_for(
            served.kind,
            served.columns,
            objects,
            now=self._core.clock.now(),
            include_object=one(query, "includeObject"),
            metadata=metadata,
        )
        return table | {"apiVersion": f"meta.k8s.io/{form.version}"}


_Act = Callable[[Handler, _Asked], Awaitable[HttpResponse]]
_VERBS: Mapping[tuple[str, bool], _Act] = {
    ("GET", True): Handler.get_one,
    ("GET", False): Handler.get_many,
    ("POST", False): Handler.create,
    ("POST", True): Handler.create,
    ("PUT", True): Handler.update,
    ("PATCH", True): Handler.patch,
    ("DELETE", True): Handler.delete_one,
    ("DELETE", False): Handler.delete_many,
}


def _page_not_found() -> HttpResponse:
    return HttpResponse(404, b"404 page not found\n", content_type=b"text/plain; charset=utf-8")


def failure(error: ApiError) -> HttpResponse:
    """A Status, with Retry-After where waiting helps."""
    headers: list[tuple[bytes, bytes]] = []
    retry = error.details.get("retryAfterSeconds")
    if retry:
        headers.append((b"retry-after", str(retry).encode()))
    return HttpResponse(error.code, orjson.dumps(error.to_status()) + b"\n", headers)


def refusal(code: int, text: str) -> HttpResponse:
    """The answer to something that never became a request."""
    kinds: dict[int, type[ApiError]] = {413: RequestTooLarge, 429: TooManyRequests, 500: InternalError}
    error = kinds.get(code, BadRequest)(text)
    error.code = code
    return failure(error)


def _attributes(method: str, path: ResourcePath, query: Query) -> Attributes:
    name, namespace = path.name, path.namespace
    if method in ("GET", "HEAD"):
        if name and not path.watching:
            verb = "get"
        elif path.watching or is_true(query, "watch"):
            verb = "watch"
        else:
            verb = "list"
        if not name and verb != "get":
            name = single_name(Selection(fields=one(query, "fieldSelector")))
    elif method == "DELETE":
        verb = "delete" if name else "deletecollection"
    else:
        verb = {"POST": "create", "PUT": "update", "PATCH": "patch"}.get(method, method.lower())
    if path.plural == "namespaces" and path.group == "" and path.name:
        namespace = path.name
    return Attributes(verb, path.group, path.version, path.plural, path.subresource, namespace, name)


def _list_head(served: ServedKind, metadata: Mapping[str, Any]) -> Object:
    return {
        "apiVersion": served.api_version,
        "kind": served.kind.list_kind or f"{served.kind.kind}List",
        "metadata": metadata,
    }


def _decoded(served: ServedKind, entries: Iterable[Entry]) -> list[Object]:
    return [decode(served, entry) for entry in entries]


def _items(show: Callable[[list[Object]], Object], field: str, objects: Callable[[], list[Object]]) -> list[Any]:
    items: list[Any] = show(objects())[field]
    return items


def _as_item(served: ServedKind, obj: Object) -> Object:
    if not served.builtin:
        return obj
    return {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}


def _warning(text: str) -> bytes:
    """A Warning header; control characters would end it early."""
    clean = "".join(char if char.isprintable() else " " for char in text)
    escaped = clean.replace("\\", "\\\\").replace('"', '\\"')
    return b'299 - "%s"' % escaped.encode("utf-8", "replace")[:2048]
