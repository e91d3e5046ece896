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

from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute
from starlette.routing import Route as PlainRoute

from ... import __version__
from ...core.caches import lazy
from ..http.replies import CODES, Problem
from .answers import EXAMPLES, JSON, Json, ProblemDocument, Rows, model_of
from .route import Routes

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
    ".json": "application/json",
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

    def answer(self, headers: Headers, with_headers: Mapping[str, str] = HEADERS) -> Response:
        tags = {
            tag.strip().removeprefix("W/") for tag in headers.get("if-none-match", "").split(",")
        }
        more = {**with_headers, "ETag": self.etag}
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


def console_routes() -> list[BaseRoute]:
    assets = load_assets()

    async def console(request: Request) -> Response:
        name = request.path_params["name"] or "index.html"
        asset = assets.get(name)
        if asset is None:
            raise Problem("not-found", f"the console has no file {name!r}")
        return asset.answer(request.headers)

    async def to_console(request: Request) -> Response:
        return RedirectResponse(request.url.path + "/", 308)

    return [PlainRoute("/console", to_console), PlainRoute("/console/{name:path}", console)]


routes = Routes("service", refuses_unknown=False)
DESCRIPTION = """\
An event store: events in, SQL with windows and row patterns out.

Errors are problem documents (RFC 9457) with a stable `type`. Times are ISO 8601 or integers in the
stream's own unit; ranges are half-open. `?format=` chooses json, ndjson, csv, arrow or parquet and
wins over `Accept`.
"""


def document_of(app: Starlette) -> Json:
    """The OpenAPI document."""
    document = get_openapi(
        title="Chronicle", version=__version__, description=DESCRIPTION, routes=app.routes
    )
    named: list[tuple[Any, Any]] = [(ProblemDocument, "serialization"), (Rows, "serialization")]
    _, models = models_json_schema(named, ref_template=model_of("{model}")["$ref"])
    schemas = document["components"]["schemas"]
    schemas |= models["$defs"]
    schemas["ProblemDocument"]["properties"]["code"]["enum"] = CODES
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] in EXAMPLES:
                    parameter["example"] = EXAMPLES[parameter["name"]]
    return document


@routes.get("/openapi.json", head=True)
async def openapi(request: Request) -> Json:
    return _described(request.app)[0]


def _described(app: Starlette) -> tuple[Json, Asset]:
    """The document and its page, made once."""
    if not hasattr(app.state, "described"):
        document = document_of(app)
        app.state.described = document, Asset.of(page(document).encode(), ".html")
    described: tuple[Json, Asset] = app.state.described
    return described


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
    "Vary": "Accept-Encoding",
}


@routes.get("/docs")
async def docs(request: Request) -> Response:
    return _described(request.app)[1].answer(request.headers, REFERENCE_HEADERS)


def page(document: Json) -> str:
    title = escape(f"{document['info']['title']} {document['info']['version']}")
    groups: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            name = f'<b class="method">{method.upper()}</b> <code>{escape(path)}</code>'
            inner = "".join(_operation(path, method.upper(), operation))
            shown = _details(
                operation["operationId"], f"{name} {escape(operation['summary'])}", inner
            )
            groups.setdefault(operation["tags"][0], []).append(shown)
    objects = (
        _details(name, f"<code>{escape(name)}</code> {escape(o.get('description', ''))}", _type(o))
        for name, o in sorted(document["components"]["schemas"].items())
    )
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>",
        *(f"<p>{escape(part)}</p>" for part in document["info"]["description"].split("\n\n")),
        "<p>Commands below want the address of the server, and a token where it has any:</p>",
        "<pre>CHRONICLE=http://127.0.0.1:8000 TOKEN=...</pre>",
        '<p><a href="openapi.json">openapi.json</a> says the same to programs.</p>',
    ]
    groups["objects"] = list(objects)
    for tag, group in groups.items():
        parts += [f"<h2>{escape(tag.capitalize())}</h2>", *group]
    return "\n".join((*parts, "</body></html>\n"))


def _details(name: str, summary: str, inner: str) -> str:
    return f'<details id="{escape(name)}"><summary>{summary}</summary>{inner}</details>'


def _operation(path: str, method: str, operation: Json) -> Iterator[str]:
    yield f"<p>{escape(operation.get('description', ''))}</p>"
    yield f"<pre>{escape(_command(path, method, operation))}</pre>"
    parameters = operation.get("parameters", ())
    yield _members({f"{p['name']} ({p['in']})": {**p["schema"], **p} for p in parameters})
    answers = {f"Answers <b>{status}</b>": a for status, a in operation["responses"].items()}
    for what, described in ({"Body": operation.get("requestBody", {})} | answers).items():
        kinds = described.get("content", {}).items()
        listed = (f"<code>{escape(kind)}</code> {_type(c['schema'])}" for kind, c in kinds)
        yield f"<p>{what}: {', '.join(listed) or 'nothing'}</p>"


def _command(path: str, method: str, operation: Json) -> str:
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
        example = shlex.quote(json.dumps(body.get("example", {})))
        words += [f"-H 'Content-Type: {JSON}'", "-d " + example]
    return " ".join(words)


def _members(members: Json) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{_type(schema)}</td>"
        f"<td>{escape(schema.get('description', ''))}</td></tr>"
        for name, schema in members.items()
    )
    return f"<table>{rows}</table>"


def _type(schema: Json) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    for one_of in ("anyOf", "oneOf"):
        if one_of in schema:
            return " or ".join(map(_type, schema[one_of]))
    if "properties" in schema:
        return _members(schema["properties"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    values = [schema["const"]] if "const" in schema else schema.get("enum", ())
    if len(values) in range(1, 9):
        return " ".join(f"<code>{escape(json.dumps(each))}</code>" for each in values)
    return escape(str(schema.get("type", "any")))
