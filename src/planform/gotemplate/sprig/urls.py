"""URLs taken apart and put together."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import quote as percent_encode
from urllib.parse import unquote_to_bytes

from planform.gotemplate.errors import CallFailed
from planform.gotemplate.functions import Library
from planform.gotemplate.quoting import quote
from planform.gotemplate.values import from_bytes, kind_name, to_bytes

urls: Final = Library()

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)
_PORT: Final = re.compile(r":[0-9]*\Z")
_USER: Final = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:%@]*\Z")
_SAFE_PATH: Final = "-_.~$&+,/:;=@"
_SAFE_USER: Final = "-_.~$&+,;="
_SAFE_FRAGMENT: Final = "-_.~$&+,/:;=?@!()*'"


@urls.add("func(string) map[string]interface {}", "urlParse")
def url_parse(text: str) -> dict[str, Any]:
    def refuse(reason: str) -> CallFailed:
        return CallFailed(f"unable to parse url: parse {quote(text)}: {reason}")

    body, _, fragment = text.partition("#")
    if _CONTROL.search(text):
        raise refuse("net/url: invalid control character in URL")
    scheme, rest = _scheme(body, refuse)
    rest, _, query = rest.partition("?")
    parts = {"scheme": scheme, "query": query, "opaque": "", "host": "", "userinfo": "", "path": ""}
    if scheme and not rest.startswith("/"):
        parts["opaque"] = rest
        rest = ""
    elif not scheme and ":" in rest.partition("/")[0]:
        raise refuse("first path segment in URL cannot contain colon")
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        user, at, host = authority.rpartition("@")
        if at and not _USER.match(user):
            raise refuse("net/url: invalid userinfo")
        parts["host"] = _host(host, refuse)
        parts["userinfo"] = _userinfo(user, refuse) if at else ""
    parts["path"] = _unescaped(rest, refuse)
    parts["fragment"] = _unescaped(fragment, refuse)
    parts["hostname"] = _hostname(parts["host"])
    return dict(parts)


def _scheme(text: str, refuse: Any) -> tuple[str, str]:
    if text.startswith(":"):
        raise refuse("missing protocol scheme")
    match = _SCHEME.match(text)
    return (match[1].lower(), text[match.end() :]) if match else ("", text)


def _host(host: str, refuse: Any) -> str:
    tail = host[host.rfind("]") + 1 :] if host.startswith("[") else host
    if host.startswith("[") and "]" not in host:
        raise refuse("missing ']' in host")
    if ":" in tail and not _PORT.search(tail):
        raise refuse(f"invalid port {quote(tail[tail.rfind(':') :])} after host")
    if " " in host:
        raise refuse('invalid character " " in host name')
    return _unescaped(host, refuse)


def _hostname(host: str) -> str:
    without_port = _PORT.sub("", host) if not host.endswith("]") else host
    if without_port.startswith("[") and without_port.endswith("]"):
        return without_port[1:-1]
    return without_port


def _userinfo(user: str, refuse: Any) -> str:
    name, colon, password = user.partition(":")
    encoded = _escaped(_unescaped(name, refuse), _SAFE_USER)
    return f"{encoded}:{_escaped(_unescaped(password, refuse), _SAFE_USER)}" if colon else encoded


def _unescaped(text: str, refuse: Any) -> str:
    bad = _BAD_ESCAPE.search(text)
    if bad:
        raise refuse(f"invalid URL escape {quote(bad[0])}")
    return from_bytes(unquote_to_bytes(to_bytes(text)))


def _escaped(text: str, safe: str) -> str:
    return percent_encode(to_bytes(text), safe=safe)


@urls.add("func(map[string]interface {}) string", "urlJoin")
def url_join(parts: dict[str, Any]) -> str:
    scheme, host, path = _part(parts, "scheme"), _part(parts, "host"), _part(parts, "path")
    query, opaque, fragment = _part(parts, "query"), _part(parts, "opaque"), _part(parts, "fragment")
    user = _part(parts, "userinfo")
    text = f"{scheme}:" if scheme else ""
    if user:
        user = url_parse(f"proto://{user}@host")["userinfo"]
    if opaque:
        text += opaque
    else:
        text += _authority(scheme, host, path, user)
        encoded = _escaped(path, _SAFE_PATH)
        if path and not path.startswith("/") and host:
            text += "/"
        if not text and ":" in encoded.partition("/")[0]:
            text += "./"
        text += encoded
    text += f"?{query}" if query else ""
    return text + (f"#{_escaped(fragment, _SAFE_FRAGMENT)}" if fragment else "")


def _authority(scheme: str, host: str, path: str, user: str) -> str:
    if not (scheme or host or user):
        return ""
    if not host and not path and not user:
        return ""
    shown = "//" if host or path or user else ""
    shown += f"{user}@" if user else ""
    return shown + _escaped(host, "-_.~!$&'()*+,;=:[]<>\"")


def _part(parts: dict[str, Any], key: str) -> str:
    value = parts.get(key, "")
    if not isinstance(value, str):
        raise CallFailed(f"unable to parse {key} key, must be of type string, but {kind_name(value)} found")
    return value
