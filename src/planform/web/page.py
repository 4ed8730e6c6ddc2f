"""The built page: files read once, when the server starts. A path is a key among them, never a place on the disk."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Final

from planform.apiserver.wire.http import HttpRequest, HttpResponse
from planform.web.guard import HEADERS

_TYPES: Final = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
    ".png": b"image/png",
    ".json": b"application/json",
    ".txt": b"text/plain; charset=utf-8",
}
_MISSING: Final = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>planform</title>
<h1>The dashboard's page is not built</h1>
<p>Run <code>make ui</code> in the source tree (it needs Node 20.19 or newer, or takes Node from PyPI), or install a
wheel of planform. The API below <code>/ui/api/v1/</code> works without it.</p></html>
"""


@dataclass(frozen=True, slots=True)
class _File:
    content_type: bytes
    plain: bytes
    small: bytes
    tag: bytes
    lasting: bool


class Page:
    """Every file of the page in memory, as it is and compressed."""

    def __init__(self, directory: Path | None = None) -> None:
        root = directory or Path(str(resources.files("planform.web") / "page"))
        self._files = dict(_read(root)) if (root / "index.html").is_file() else {}

    @property
    def built(self) -> bool:
        return bool(self._files)

    def answer(self, request: HttpRequest, path: str) -> HttpResponse:
        """A file, or for everything that is not one the page itself, which shows the screen that the path names."""
        if not self._files:
            return HttpResponse(503, _MISSING, list(HEADERS), content_type=_TYPES[".html"])
        found = self._files.get(path)
        if found is None and path.startswith("assets/"):
            return HttpResponse(404, b"not found\n", list(HEADERS), content_type=_TYPES[".txt"])
        file = found or self._files["index.html"]
        headers = [
            *HEADERS,
            (b"etag", file.tag),
            (b"vary", b"accept-encoding"),
            (b"cache-control", b"public, max-age=31536000, immutable" if file.lasting else b"no-cache"),
        ]
        if request.header(b"if-none-match").encode() == file.tag:
            return HttpResponse(304, b"", headers, content_type=file.content_type)
        if "gzip" in request.header(b"accept-encoding"):
            return HttpResponse(200, file.small, [*headers, (b"content-encoding", b"gzip")], file.content_type)
        return HttpResponse(200, file.plain, headers, file.content_type)


def _read(root: Path) -> list[tuple[str, _File]]:
    found = []
    for path in sorted(root.rglob("*")):
        kind = _TYPES.get(path.suffix)
        if not path.is_file() or kind is None:
            continue
        name = path.relative_to(root).as_posix()
        plain = path.read_bytes()
        tag = b'"%s"' % sha256(plain).hexdigest()[:20].encode()
        found.append((name, _File(kind, plain, gzip.compress(plain, 9, mtime=0), tag, name.startswith("assets/"))))
    return found
