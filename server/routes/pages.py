"""Static pages: the web console (``/console/``, and ``docs/`` for its Help), and the API reference
(``/docs``), a page without scripts that is generated from the OpenAPI document.

The console's files are read once, at the start; an address is a key of a dict, not a path.  Each
answer has a strong ETag and the headers of ``POLICY``: resources of this server only, no inline
scripts, Trusted Types, no frames.  The files hold no secret and need no token.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import FastAPI, Request
from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response

from ...core.caches import lazy
from ..http.replies import Problem
from ..http.route import OpenRoute, api_router

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
        tags = {
            tag.strip().removeprefix("W/") for tag in headers.get("if-none-match", "").split(",")
        }
        more = {**HEADERS, "ETag": self.etag}
        if self.etag in tags:
            return Response(status_code=304, headers=more)
        content = self.content
        if "gzip" in headers.get("accept-encoding", "") and len(self.packed) < len(content):
            content = self.packed
            more["Content-Encoding"] = "gzip"
        return Response(content, headers=more, media_type=self.media_type)


def load_assets(package: Path = _PACKAGE) -> dict[str, Asset]:
    console, docs = package / "server" / "console", package / "docs"
    assets = {
        path.name: Asset.of(path.read_bytes(), path.suffix)
        for path in sorted(console.iterdir())
        if path.suffix in TYPES
    }
    pages = sorted(docs.glob("*.md"))
    for path in pages:
        assets[f"docs/{path.name}"] = Asset.of(path.read_bytes(), path.suffix)
    assets["docs/"] = Asset.of("\n".join(path.stem for path in pages).encode(), ".txt")
    return assets


def wants_page(headers: Headers) -> bool:
    return "text/html" in headers.get("accept", "")


def mount_console(app: FastAPI) -> None:
    assets = load_assets()

    async def console(request: Request) -> Response:
        name = request.path_params["name"] or "index.html"
        asset = assets.get(name)
        if asset is None:
            raise Problem("not-found", f"the console has no file {name!r}")
        return asset.answer(request.headers)

    async def to_console(request: Request) -> Response:
        return RedirectResponse(request.url.path + "/", 308)

    app.add_route("/console", to_console, ["GET", "HEAD"], include_in_schema=False)
    app.add_route("/console/{name:path}", console, ["GET", "HEAD"], include_in_schema=False)


router = api_router(tags=["service"], route_class=OpenRoute)
JSON = "application/json"

STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
details { border: 1px solid #8886; border-radius: 6px; margin: .4rem 0; padding: .4rem .8rem; }
summary { cursor: pointer; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { overflow-x: auto; padding: .6rem; background: #8882; border-radius: 4px; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0; }
tr + tr td { border-top: 1px solid #8884; }
b.method { display: inline-block; min-width: 4.2rem; }
"""
_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
REFERENCE_HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_DIGEST}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    state = request.app.state
    if not hasattr(state, "reference"):
        text = page(request.app.openapi()).encode()
        state.reference = text, f'"{hashlib.sha256(text).hexdigest()[:32]}"'
    text, etag = state.reference
    headers = {**REFERENCE_HEADERS, "ETag": etag}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(text, headers=headers, media_type="text/html")


def page(document: Mapping[str, Any]) -> str:
    title = escape(f"{document['info']['title']} {document['info']['version']}")
    return "\n".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{title}</title><style>{STYLE}</style></head><body>",
            f"<h1>{title}</h1>",
            *(f"<p>{escape(part)}</p>" for part in document["info"]["description"].split("\n\n")),
            "<p>Commands below want the address of the server, and a token where it has any:</p>",
            "<pre>CHRONICLE=http://127.0.0.1:8000 TOKEN=...</pre>",
            '<p><a href="openapi.json">openapi.json</a> says the same to programs.</p>',
            *_routes(document),
            "<h2>Objects</h2>",
            *_objects(document["components"]["schemas"]),
            "</body></html>\n",
        )
    )


def _routes(document: Mapping[str, Any]) -> Iterator[str]:
    groups: dict[str, list[tuple[str, str, Any]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            groups.setdefault(operation["tags"][0], []).append((path, method.upper(), operation))
    for tag, routes in groups.items():
        yield f"<h2>{escape(tag.capitalize())}</h2>"
        for path, method, operation in routes:
            yield f'<details id="{escape(operation["operationId"])}"><summary>'
            yield f'<b class="method">{method}</b> <code>{escape(path)}</code> '
            yield f"{escape(operation.get('summary', ''))}</summary>"
            yield from _route(path, method, operation)
            yield "</details>"


def _route(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<p>{escape(operation.get('description', ''))}</p>"
    yield f"<pre>{escape(_command(path, method, operation))}</pre>"
    if parameters := operation.get("parameters"):
        rows = (
            (f"<code>{escape(p['name'])}</code>", p["in"], _type(p["schema"]),
             escape(p.get("description", "")) or ("required" if p["required"] else ""))
            for p in parameters
        )  # fmt: skip
        yield _table(("parameter", "in", "type", ""), rows)
    if body := operation.get("requestBody"):
        kinds = ", ".join(f"<code>{escape(kind)}</code>" for kind in body["content"])
        yield f"<p>Body: {kinds}</p>"
        schema = body["content"].get(JSON, {}).get("schema", {})
        for each in schema.get("oneOf", [schema]):
            if each is not schema:
                yield f"<p>{escape(each['description'])}</p>"
            if members := each.get("properties"):
                yield _members(members)
    good = {s: a for s, a in operation["responses"].items() if s < "400"}
    for status, answer in good.items():
        content = answer.get("content", {})
        kinds = ", ".join(
            f"<code>{escape(kind)}</code> {_type(described['schema']) if kind == JSON else ''}"
            for kind, described in content.items()
        )
        yield f"<p>Answers <b>{status}</b> {kinds}</p>"
    yield '<p>Errors: <a href="#ProblemDocument">ProblemDocument</a></p>'


def _command(path: str, method: str, operation: Mapping[str, Any]) -> str:
    parameters = operation.get("parameters", ())
    named = {p["name"]: quote(str(p.get("example", "...")), safe="") for p in parameters}
    examples = {p["name"]: p["example"] for p in parameters if p["in"] == "query" and p["required"]}
    query = f"?{urlencode(examples, doseq=True)}" if examples else ""
    words = ["curl -sN", "-X " + method] if method != "GET" else ["curl -sN"]
    words += ['"$CHRONICLE"' + shlex.quote(path.format(**named) + query)]
    if "security" in operation:
        words.append('-H "Authorization: Bearer $TOKEN"')
    body = operation.get("requestBody", {}).get("content", {}).get(JSON)
    if body is not None:
        example = body.get("example", (body["schema"].get("examples") or [{}])[0])
        words += [f"-H 'Content-Type: {JSON}'", "-d " + shlex.quote(json.dumps(example))]
    return " ".join(words)


def _objects(schemas: Mapping[str, Any]) -> Iterator[str]:
    for name, schema in sorted(schemas.items()):
        yield f'<details id="{escape(name)}"><summary><code>{escape(name)}</code> '
        yield f"{escape(schema.get('description', ''))}</summary>"
        yield _members(schema.get("properties", {}))
        yield "</details>"


def _members(members: Mapping[str, Any]) -> str:
    rows = (
        (f"<code>{escape(name)}</code>", _type(schema), escape(schema.get("description", "")))
        for name, schema in members.items()
    )
    return _table(("member", "type", ""), rows)


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "const" in schema:
        return f"<code>{escape(json.dumps(schema['const']))}</code>"
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if len(schema.get("enum", ())) in range(1, 9):
        return " ".join(f"<code>{escape(str(each))}</code>" for each in schema["enum"])
    return escape(str(schema.get("type", "any")))


def _table(heads: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    first = "".join(f"<th>{head}</th>" for head in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{first}</tr>{body}</table>"
