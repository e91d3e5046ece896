"""The OpenAPI document: parameters, answers and errors of every route.  Routes read bodies and
write answers themselves, so ``ROUTES`` describes these by the route function's name (the
``operationId``).  Every parameter and body has an example, and a value for a later request (a
position) has the same name in the earlier answer, so a program can drive all routes from
``/openapi.json`` alone.  Tests and schemathesis check that every route and status is in it, but
405.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ..formats.kinds import media_type_of
from .http import answers
from .http.replies import MEDIA_TYPE, TITLES

JSON = "application/json"
FORMATS = ("json", "ndjson", "csv", "arrow", "parquet")
BINARY = {"type": "string", "format": "binary"}
TEXT = {"type": "string"}
SERVER_SENT_EVENT = {
    "type": "object",
    "description": "Of each event of the stream; `data` holds JSON.",
    "properties": dict.fromkeys(("event", "id", "data"), TEXT),
}
EVENT = {"timestamp": "2018-08-01T05:00:00Z", "icao24": "4b1803", "altitude": 1024.5}
REF = "#/components/schemas/{model}"

EVERYWHERE = (400, 401, 403, 422, 429, 431, 500, 503)
WITH_BODY = (408, 413, 415)
OF_ROWS = (404, 406, 409, 410, 413, 499, 501, 504, 507)

EXAMPLES: dict[str, Any] = {
    "stream": "flights",
    "attribute": "altitude",
    "columns": ["timestamp", "altitude"],
    "functions": ["min", "max"],
    "name": "high",
    "transaction": "load-1",
    "part": "0",
    "position": "17-03ab5c7d9e1f2a4b6c8d0e2f",
    "until": "17-03ab5c7d9e1f2a4b6c8d0e2f",
    "job_id": "5c1c8a7e0b1e4f6e",
    "token_id": "3f9c1a52",
    "query_id": "5c1c8a7e0b1e4f6e9a53c6d2f3f0a9b1",
    "q": "SELECT timestamp, icao24, altitude FROM flights",
    "where": "altitude > 1000",
    "start": "2018-08-01T05:00:00Z",
    "end": "2018-08-02T00:00:00Z",
    "follow": False,
    "limit": 100,
}


@dataclass(frozen=True)
class Described:
    """What a route answers: ``by_status`` has each success's model (None: no body), ``media``
    further media types, ``rows`` says that rows are in an object ("rows") or an array ("events"),
    ``refuses`` adds error statuses to the general ones, ``takes`` is "events" or "lines" (line
    protocol).
    """

    by_status: Mapping[int, type[BaseModel] | None] = field(default_factory=dict)
    media: tuple[str, ...] = ()
    rows: str = ""
    refuses: tuple[int, ...] = ()
    takes: str = ""
    example: Any = None


def _ok(model: type[BaseModel], *refuses: int, example: Any = None) -> Described:
    return Described({200: model}, refuses=refuses, example=example)


_NOTHING = Described({204: None})
_FEED = ("text/event-stream", "application/x-ndjson", media_type_of("arrow"))
_SQL = {"sql": EXAMPLES["q"]}
_LINES = Described(
    {204: None}, refuses=(*EVERYWHERE, *WITH_BODY, 404, 409, 507), takes="lines",
    example="flights,icao24=4b1803 altitude=1024.5 1533099600000000000",
)  # fmt: skip
_LONG = (409, 410, 413, 504, 507)

ROUTES: dict[str, Described] = {
    "healthz": _ok(answers.Health),
    "readyz": _ok(answers.Ready),
    "metrics": Described({200: None}, media=("text/plain",)),
    "list_streams": _ok(answers.Streams),
    "create_stream": Described(
        {201: answers.StreamDescription, 200: answers.StreamDescription}, refuses=(507,)
    ),
    "get_stream": _ok(answers.StreamDescription),
    "drop_stream": _NOTHING,
    "delete_events": _ok(
        answers.Deleted, *_LONG, example={"where": "altitude > 100000", "end": EXAMPLES["start"]}
    ),
    "update_events": _ok(
        answers.Updated, *_LONG, example={"set": {"altitude": "NULL"}, "where": "altitude < -1000"}
    ),
    "aggregate": _ok(answers.Aggregates, 504),
    "list_indexes": _ok(answers.Indexes),
    "create_index": Described({201: answers.Indexes, 202: answers.Indexes}, refuses=_LONG),
    "drop_index": _NOTHING,
    "append_events": Described(
        {200: answers.Appended}, ("application/x-ndjson",), "", (507,), "events", [EVENT]
    ),
    "read_stream": Described(rows="events"),
    "partitions": _ok(answers.Partitions, 410),
    "preview_file": Described(
        {200: answers.LookedAt}, refuses=(404, 507), takes="events", example=[EVENT]
    ),
    "ingest": Described(
        {200: answers.Ingested}, refuses=(404, 507), takes="events", example=[EVENT]
    ),
    "tail": Described({200: None}, _FEED, refuses=(406, 410, 413)),
    "list_live": _ok(answers.LiveList),
    "create_live": Described(
        {201: answers.LiveStatus, 200: answers.LiveStatus},
        refuses=(404, *_LONG),
        example={
            "name": "high",
            "sql": "SELECT timestamp, icao24, altitude FROM flights",
            "if_not_exists": True,
        },
    ),
    "preview": Described(rows="rows", example=_SQL),
    "catch_up": _ok(answers.LiveList, 504),
    "describe_live": _ok(answers.LiveStatus),
    "drop_live": _NOTHING,
    "pause_live": _ok(answers.LiveStatus),
    "resume_live": _ok(answers.LiveStatus),
    "refresh_live": _ok(answers.LiveStatus, *_LONG),
    "verify_live": _ok(answers.Differences, *_LONG),
    "live_rows": Described({200: None}, _FEED, refuses=(406, 410, 413)),
    "keep_position": Described(
        {201: answers.Position, 200: answers.Position}, refuses=(410, 507), example={}
    ),
    "drop_position": _NOTHING,
    "changes": _ok(answers.Changes, 410),
    "read_changes": Described(rows="events"),
    "write": _LINES,
    "write_v2": _LINES,
    "write_v3": _LINES,
    "put_part": Described({200: answers.Part}, refuses=(507,), takes="events", example=[EVENT]),
    "commit": _ok(answers.Committed, 410, 507, example={"parts": ["0"]}),
    "abort": _NOTHING,
    "post_query": Described(rows="rows", example=_SQL),
    "get_query": Described(rows="rows"),
    "explain": _ok(answers.Explained, 404, 413, 499, 504, example=_SQL),
    "check": _ok(answers.Checked, 404, example=_SQL),
    "dialect": Described({200: answers.Dialect, 304: None}),
    "matches": _ok(answers.Matches, 404, 499, 504),
    "list_views": _ok(answers.Views),
    "profile": Described(rows="events"),
    "session": _ok(answers.Session),
    "status": _ok(answers.Status),
    "begin_job": Described({202: answers.Job}, refuses=(404, 507), example={"kind": "check"}),
    "list_jobs": _ok(answers.Jobs),
    "describe_job": _ok(answers.Job),
    "cancel_job": _NOTHING,
    "backups": _ok(answers.Backups),
    "tokens": _ok(answers.Tokens),
    "make_token": Described(
        {201: answers.TokenMade},
        refuses=(507,),
        example={"name": "deploy", "scopes": ["admin"], "expires": "90d"},
    ),
    "rotate": Described({201: answers.TokenMade}, refuses=(507,), example={"overlap": "1h"}),
    "revoke_all": _ok(answers.TokensRevoked, 507),
    "revoke": Described({204: None}, refuses=(507,)),
    "list_queries": _ok(answers.Queries),
    "cancel_query": _NOTHING,
}


def describe(app: FastAPI) -> None:

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    models = {m for route in ROUTES.values() for m in route.by_status.values() if m is not None}
    models |= {answers.ProblemDocument, answers.Rows}
    by_name = sorted(models, key=lambda model: model.__name__)
    _, found = models_json_schema([(m, "serialization") for m in by_name], ref_template=REF)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(found["$defs"])
    schemas["ProblemDocument"]["properties"]["code"]["enum"] = sorted(TITLES)
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _complete(operation, path, method)
    return document


def _complete(operation: dict[str, Any], path: str, method: str) -> None:
    said = ROUTES.get(operation["operationId"], Described({200: None}))
    operation["responses"] = _answers(said)
    for parameter in operation.get("parameters", ()):
        if parameter["name"] in EXAMPLES:
            parameter["example"] = EXAMPLES[parameter["name"]]
    if said.takes == "events":
        content = _binary()
        content[media_type_of("lineprotocol")] = {"schema": TEXT}
        content[JSON] = {"schema": {"type": "array", "items": {"type": "object"}}}
        content["application/cloudevents+json"] = {"schema": {"type": "object"}}
        content["application/cloudevents-batch+json"] = dict(content[JSON])
        operation["requestBody"] = {"required": True, "content": content}
    if said.takes == "lines":
        lines = {"schema": TEXT, "example": said.example}
        operation["requestBody"] = {"required": True, "content": {"text/plain": lines}}
    body = operation.get("requestBody")
    if body is not None and said.example is not None and JSON in body["content"]:
        body["content"][JSON]["example"] = said.example
    if said.rows and method == "get":
        whole = operation["responses"]["200"]
        operation["responses"]["206"] = {**whole, "description": "A range of the answer's bytes."}
        operation["responses"]["304"] = {"description": "The answer is the one of If-None-Match."}
    for status in sorted(_refusals(said, path, method, body is not None)):
        operation["responses"][str(status)] = {
            "description": HTTPStatus(status).phrase if status != 499 else "Cancelled",
            "content": {MEDIA_TYPE: {"schema": {"$ref": REF.format(model="ProblemDocument")}}},
        }


def _binary() -> dict[str, Any]:
    return {media_type_of(name).partition(";")[0]: {"schema": BINARY} for name in FORMATS}


def _answers(said: Described) -> dict[str, Any]:
    if said.rows:
        array = {"type": "array", "items": {"type": "object"}}
        whole = {"$ref": REF.format(model="Rows")} if said.rows == "rows" else array
        content = _binary() | {JSON: {"schema": whole}, "application/x-ndjson": {"schema": TEXT}}
        return {"200": {"description": "The rows.", "content": content}}
    found = {}
    for status, model in said.by_status.items():
        content = {
            kind: {"schema": SERVER_SENT_EVENT if kind == "text/event-stream" else TEXT}
            for kind in said.media
        }
        if model is not None:
            content[JSON] = {"schema": {"$ref": REF.format(model=model.__name__)}}
        answer: dict[str, Any] = {"description": HTTPStatus(status).phrase}
        if content:
            answer["content"] = content
        found[str(status)] = answer
    return found


def _refusals(said: Described, path: str, method: str, body: bool) -> set[int]:
    found = {*said.refuses, *(OF_ROWS if said.rows else ())}
    if not path.startswith("/v1"):
        return {401, 403, 503} | found
    found |= {*EVERYWHERE, *(WITH_BODY if body else ())}
    if "{" in path:
        found.add(404)
    if method != "get":
        found |= {409, 413}
    elif said.rows:
        found |= {412, 416}
    return found
