"""HTTPRequest: call a web service, but none that only this machine can reach.

Options of an ActionSet end up in addresses, so a request may go to public addresses only, unless the operator opens
others: see `guarded_http`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from planform.blueprints.arguments import Arguments
from planform.blueprints.contract import PhaseContext, phase_function
from planform.blueprints.errors import ArgumentInvalid, PhaseFailed
from planform.blueprints.functions.durations import seconds_of
from planform.blueprints.functions.policy import Policy

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
MAX_BYTES: Final = 1 << 20
MAX_SECONDS: Final = 3600.0


@phase_function(
    "HTTPRequest",
    required=["url"],
    arguments=["method", "headers", "body", "expectedStatus", "timeout", "maxBytes", "followRedirects"],
)
async def http_request(
    context: PhaseContext,
    args: Arguments,
    *,
    policy: Policy = Policy(),  # noqa: B008  # frozen
) -> dict[str, Any]:
    """Calls a web service; gives `status`, `body` and, if the body is JSON, `json`."""
    from planform.blueprints.functions.guarded_http import WebRequest, send, shown  # takes long to import

    method = args.text("method", "GET").upper()
    if method not in METHODS:
        raise ArgumentInvalid(f'{args.of}: method "{method}" is not one of {", ".join(METHODS)}')
    headers = {key: str(value) for key, value in args.table("headers", {}).items()}
    request = WebRequest(
        url=args.text("url"),
        method=method,
        body=_body(args, headers),
        headers=headers,
        follow=args.flag("followRedirects", True),
        seconds=min(seconds_of(args, "timeout", 30.0), MAX_SECONDS),
        max_bytes=min(args.integer("maxBytes", MAX_BYTES), MAX_BYTES),
    )
    status, content = await send(request, policy)
    expected = {int(each) for each in args.texts("expectedStatus", [])}
    if status not in expected and (expected or not 200 <= status < 300):
        raise PhaseFailed(
            f"{method} {shown(request.url)} answered {status}: {content[:200].decode(errors='replace')}",
            details={"status": status},
        )
    return {"status": status, "body": content.decode(errors="replace"), **_json(content)}


def _body(args: Arguments, headers: dict[str, str]) -> bytes | None:
    given = args.get("body")
    if given is None:
        return None
    if isinstance(given, Mapping | list):
        headers.setdefault("Content-Type", "application/json")
        return orjson.dumps(given)
    return args.text("body").encode()


def _json(content: bytes) -> dict[str, Any]:
    try:
        return {"json": orjson.loads(content)}
    except orjson.JSONDecodeError:
        return {}
