"""The web console's static files (``/console/``, and ``docs/`` for its Help), and ``GET
/v1/session``.  Files are read once, at the start; an address is a key of a dict, not a path.  Each
answer has a strong ETag and the headers of ``POLICY``: resources of this server only, no inline
scripts, Trusted Types, no frames.  The files hold no secret and need no token.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response

from ... import __version__
from ...core.caches import lazy
from ..access.auth import Requester
from ..access.tokens import SCOPES
from ..http.problems import Problem, reply
from ..service.state import server_of

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types chronicle-worker",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".md": "text/markdown; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_PACKAGE = Path(__file__).parent.parent.parent
GZIP_LEAST = 1024

router = APIRouter(prefix="/v1", tags=["service"])


@dataclass(frozen=True)
class Asset:
    content: bytes
    media_type: str
    etag: str

    @classmethod
    def of(cls, content: bytes, suffix: str) -> Asset:
        return cls(content, TYPES[suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')

    @lazy
    def packed(self) -> bytes:
        """The content, compressed on first use; deterministic."""
        if len(self.content) < GZIP_LEAST:
            return self.content
        return gzip.compress(self.content, 9, mtime=0)

    def answer(self, headers: Headers) -> Response:
        known = {
            tag.strip().removeprefix("W/") for tag in headers.get("if-none-match", "").split(",")
        }
        more = {**HEADERS, "ETag": self.etag}
        if self.etag in known:
            return Response(status_code=304, headers=more)
        content = self.content
        if "gzip" in headers.get("accept-encoding", "") and len(self.packed) < len(content):
            content = self.packed
            more["Content-Encoding"] = "gzip"
        return Response(content, headers=more, media_type=self.media_type)


def load_assets(package: Path = _PACKAGE) -> dict[str, Asset]:
    console, docs = package / "server" / "console", package / "docs"
    found = {
        path.name: Asset.of(path.read_bytes(), path.suffix)
        for path in sorted(console.iterdir())
        if path.suffix in TYPES
    }
    pages = sorted(docs.glob("*.md"))
    for path in pages:
        found[f"docs/{path.name}"] = Asset.of(path.read_bytes(), path.suffix)
    found["docs/"] = Asset.of("\n".join(path.stem for path in pages).encode(), ".txt")
    return found


def wants_page(headers: Headers) -> bool:
    return "text/html" in headers.get("accept", "")


def mount_console(app: FastAPI) -> None:
    assets = load_assets()

    async def console(request: Request) -> Response:
        name = request.path_params["name"] or "index.html"
        asset = assets.get(name)
        if asset is None:
            raise Problem("not-found", 404, f"the console has no file {name!r}")
        return asset.answer(request.headers)

    async def to_console(request: Request) -> Response:
        return RedirectResponse(request.url.path + "/", 308)

    app.add_route("/console", to_console, ["GET", "HEAD"], include_in_schema=False)
    app.add_route("/console/{name:path}", console, ["GET", "HEAD"], include_in_schema=False)


@router.get("/session", summary="What this token may do")
async def session(request: Request, principal: Requester) -> Response:
    """Name, scopes and streams of the token; `open` where there are no tokens."""
    token = principal.token
    found: dict[str, Any] = {
        "version": __version__,
        "console": server_of(request).settings.console,
        "open": token is None,
        "name": None if token is None else token.name,
        "scopes": list(SCOPES) if token is None else list(token.scopes),
        "may": [scope for scope in SCOPES if principal.may(scope)],
        "streams": ["*"] if token is None else list(token.streams),
    }
    return reply(found)
