"""What routes answer, for the document and generated clients: models of JSON answers, and other
answers and bodies.

Every parameter and body has an example, and a value for a later request (a position) has the same
name in the earlier answer, so a program can drive all routes from ``/openapi.json`` alone.  Tests
and schemathesis check that every status of success is in it; an error is a problem document,
whatever its status.  The models validate nothing at run time; ``tests/server/test_api_document.py``
compares real answers with them.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from ...formats.kinds import media_type_of
from ..http.replies import MEDIA_TYPE

Json = dict[str, Any]
Responses = dict[int | str, Any]
"""By status, as FastAPI takes them."""
JSON = "application/json"


class Health(BaseModel):
    """The process is alive."""

    status: Literal["ok"]
    version: str


class Ready(BaseModel):
    """The server can serve."""

    status: Literal["ready"]
    mode: str | None = None
    streams: int | None = None
    disk_free_bytes: int | None = None


class Column(BaseModel):
    """A column of a stream."""

    name: str
    type: str = Field(description="Arrow's name.")
    sql_type: str
    nullable: bool


class TimeRange(BaseModel):
    """Times of the first and of the last event, both inclusive."""

    first: str | int
    last: str | int
    first_ticks: int
    last_ticks: int


class Index(BaseModel):
    """A secondary index."""

    attribute: str
    state: str


class StreamSummary(BaseModel):
    """A stream in a list; one that cannot be opened has only its name and the damage."""

    name: str
    damage: str | None = None
    time: str | None = None
    columns: list[Column] | None = Field(None, alias="schema")
    count: int | None = None
    version: int | None = None
    time_range: TimeRange | None = None


class Streams(BaseModel):
    """The streams within reach."""

    streams: list[StreamSummary]


class View(BaseModel):
    """A named query."""

    name: str
    sql: str
    reads: list[str] = Field(description="Streams and views that it names, within reach.")
    columns: list[Column] = Field(alias="schema", description="As they were when it was made.")


class Views(BaseModel):
    """The views within reach."""

    views: list[View]


class StreamDescription(StreamSummary):
    """All about a stream."""

    arrow_schema: str = Field(description="An Arrow IPC schema message in base64.")
    defaults: str | None = Field(
        None, description="Defaults of columns: an Arrow IPC stream of one row in base64."
    )
    indexes: list[Index]
    stats: Json


class Aggregates(BaseModel):
    """Aggregates by attribute and function."""

    stream: str
    start: str | None
    end: str | None
    aggregates: dict[str, Json]


class Deleted(BaseModel):
    """Result of a delete."""

    deleted: int = Field(description="Events that are gone.")


class Updated(BaseModel):
    """Result of an update."""

    updated: int = Field(description="Events that hold the new values.")


class Indexes(BaseModel):
    """The indexes of a stream."""

    indexes: list[Index]


class BadRow(BaseModel):
    """A row that is not a valid event."""

    reason: str
    row: int | None = None
    line: int | None = None
    column: str | None = None
    value: Any = None


class Stored(BaseModel):
    """Events that were stored in one commit."""

    appended: int
    late: int = Field(description="Of these, older than what was stored.")
    count: int | None = Field(description="Events in the stream afterwards.")
    version: int | None = Field(description="The commit that this was.")


class Refused(BaseModel):
    """Rows left out, with on_error=skip."""

    rejected: int | None = None
    errors: list[BadRow] | None = None


class Appended(Stored, Refused):
    """Result of an append."""

    position: str = Field(description="The place behind it, from which `tail` goes on.")
    durable: bool = Field(description="Whether it survives a power cut.")


class LookedAt(Refused):
    """What an ingest would make of a file."""

    format: str
    compression: str | None
    time: str | None = Field(description="The time column; null where none is like one.")
    time_format: str | list[str] | None = Field(description="How its values were read.")
    time_formats: list[str] = Field(description="Patterns found; of several one has to be chosen.")
    time_of_day: str | None = Field(description="The column with the time of day, beside dates.")
    columns: list[Column]
    rows: list[Json] = Field(description="The first ones.")
    looked_at: int = Field(description="Rows that were read for this.")
    notes: list[str] = Field(description="What was assumed.")


class Ingested(Stored, Refused):
    """Result of an ingest."""

    stream: str
    created: bool
    dry_run: bool
    rows: int = Field(description="Rows of the file that are events.")
    columns: list[Column]
    notes: list[str] = Field(description="What was assumed.")


class TicksRange(BaseModel):
    """A half-open range of time; null is open."""

    start: int | None
    end: int | None


class Partitions(BaseModel):
    """A pinned version, cut into parts."""

    stream: str
    time: str
    version: int
    count: int
    bytes: int
    arrow_schema: str
    defaults: str | None = None
    partitions: list[TicksRange]


class Position(BaseModel):
    """A stored position; null when nothing is new."""

    position: str | None
    version: int | None


class NewRange(TicksRange):
    """A range of time with new events."""

    events: int = Field(description="New ones.")
    stored: int = Field(description="All that are there, which is what reading costs.")


class Changes(BaseModel):
    """Time ranges with new events between two positions."""

    stream: str
    events: int
    ranges: list[NewRange]


class Part(BaseModel):
    """A staged part of a transaction."""

    part: str
    rows: int
    bytes: int


class Committed(Stored):
    """Result of a transaction's commit."""

    replayed: bool = Field(description="It had been done before.")


class Rows(BaseModel):
    """The rows of a statement."""

    query_id: str
    columns: list[str]
    types: list[str] = Field(description="SQL's names.")
    rows: list[Json]
    row_count: int
    truncated: bool | None
    elapsed_ms: float


class Explained(BaseModel):
    """A plan."""

    statement: str
    analyzed: bool
    plan: Json = Field(description="For programs: operator, details, figures, inputs.")
    text: str = Field(description="For people.")


class Query(BaseModel):
    """A running query or read."""

    id: str
    kind: str
    text: str
    token: str | None
    running_ms: float


class Queries(BaseModel):
    """Running queries and reads."""

    queries: list[Query]


class LiveStatus(BaseModel):
    """A live query and its status."""

    name: str
    sink: str
    state: str
    sources: list[str]
    sql: str
    watermark: str | int | None
    lag_events: int | None
    rows: int | None
    retractions: int | None
    error: str | None
    rollup: bool
    definition: dict[str, str] | None = None


class LiveList(BaseModel):
    """Live queries."""

    live: list[LiveStatus]


class Differences(BaseModel):
    """Results that are missing or wrong."""

    differences: int


class Session(BaseModel):
    """What the token of a request may do."""

    version: str
    console: str
    open: bool = Field(description="There are no tokens: anybody may do anything.")
    name: str | None
    scopes: list[str]
    streams: list[str]


class Places(BaseModel):
    """Slots of one kind of work."""

    running: int
    waiting: int
    limit: int


class Status(BaseModel):
    """The server's state and load."""

    version: str
    state: str
    mode: str
    uptime_s: float
    memory_bytes: int | None
    disk_free_bytes: int | None
    flight_port: int | None = Field(description="Of Flight SQL, where it listens.")
    postgres_port: int | None = Field(description="Of PostgreSQL's protocol, where it listens.")
    gates: dict[str, Places]
    store: dict[str, float]
    trouble: str | None
    every_s: float = Field(description="Seconds between two values of the history.")
    history: dict[str, list[float | None]]


class Checked(BaseModel):
    """Properties of a statement that was not run."""

    kind: str
    scope: str
    target: str | None
    reads: list[str]
    parameters: list[str]


class Dialect(BaseModel):
    """The words of the dialect."""

    keywords: list[str]
    types: list[str]
    functions: dict[str, list[Any]]


class Matches(BaseModel):
    """Matches in outline (matches), or the events of one (columns and rows)."""

    truncated: bool
    time: str | None = None
    partition: list[str] | None = None
    variables: list[str] | None = None
    matches: list[Json] | None = None
    conditions: list[Json] | None = Field(None, description="Without a match: hits of each.")
    columns: list[str] | None = None
    rows: list[list[Any]] | None = None


class Job(BaseModel):
    """Long work and its progress, besides the members of the request that began it."""

    job_id: str
    kind: str
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    progress: float = Field(description="The share that is done, 0 to 1.")
    begun: int = Field(description="How often; more than once where the server ended meanwhile.")
    created_at: str
    started_at: str | None
    ended_at: str | None
    result: Json | None = Field(description="What it has come to, by kind.")
    error: str | None = Field(description="Why it failed.")


class Jobs(BaseModel):
    """Jobs."""

    jobs: list[Job]


class Backup(BaseModel):
    """A copy of the store."""

    name: str
    made_at: str | None = Field(description="When it began; what was deleted before is not in it.")
    state: Literal["whole", "unfinished", "damaged"]
    events: int
    streams: dict[str, int] = Field(description="Events of each stream.")
    bytes: int = Field(description="Of all its files, those that the store still has included.")
    problem: str | None = Field(description="Why it is damaged.")


class Backups(BaseModel):
    """The backups below CHRONICLE_BACKUP_DIRECTORY."""

    configured: bool = Field(description="Whether there is such a directory to be.")
    backups: list[Backup]


class TokenInfo(BaseModel):
    """A token, without its secret."""

    token_id: str
    name: str
    scopes: list[str]
    streams: list[str] = Field(description="Globs over the names of streams.")
    created_at: str
    expires_at: str | None
    last_used_at: str | None = Field(description="To the minute.")


class Tokens(BaseModel):
    """The tokens of the store."""

    tokens: list[TokenInfo]


class NewToken(TokenInfo):
    """A new token; the secret is shown once."""

    secret: str


class TokensRevoked(BaseModel):
    """The tokens that were revoked."""

    revoked: list[str]


class SqlPosition(BaseModel):
    """A position in a SQL text, both counted from 1."""

    line: int
    column: int | None


class ProblemDocument(BaseModel):
    """An error (RFC 9457)."""

    type: str = Field(description="urn:chronicle:<code>, stable.")
    code: str
    title: str
    status: int
    detail: str = Field(description="What was expected, found, and what to do.")
    request_id: str
    position: SqlPosition | None = None
    row: int | None = None
    errors: list[Json] | None = None


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
"""By the names of parameters."""
SQL = {"sql": EXAMPLES["q"]}

_EVENT = {"timestamp": "2018-08-01T05:00:00Z", "icao24": "4b1803", "altitude": 1024.5}
_TEXT = {"schema": {"type": "string"}}
_OBJECT = {"type": "object"}
_ARRAY: Json = {"schema": {"type": "array", "items": _OBJECT}}
_FORMATS = {
    media_type_of(name).partition(";")[0]: {"schema": {"type": "string", "format": "binary"}}
    for name in ("ndjson", "csv", "arrow", "parquet")
}
_NDJSON = {media_type_of("ndjson"): _TEXT}


def model_of(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _rows(json: Json) -> Responses:
    return {200: {"description": "The rows.", "content": {**_FORMATS, **_NDJSON, JSON: json}}}


UNCHANGED: Responses = {304: {"description": "The answer is the one of If-None-Match."}}


def _file(rows: Responses) -> Responses:
    """The answers of a route whose rows may be a file."""
    part = {**rows[200], "description": "A range of the answer's bytes."}
    return {**rows, 206: part, **UNCHANGED}


def _body(content: Json) -> Json:
    return {"requestBody": {"required": True, "content": content}}


ROWS = _rows({"schema": model_of("Rows")})
ROW_FILE, EVENT_FILE = _file(ROWS), _file(_rows(_ARRAY))
EVENTS = _body(
    {
        **_FORMATS,
        media_type_of("lineprotocol"): _TEXT,
        JSON: {**_ARRAY, "example": [_EVENT]},
        "application/cloudevents+json": {"schema": _OBJECT},
        "application/cloudevents-batch+json": _ARRAY,
    }
)
LINE = "flights,icao24=4b1803 altitude=1024.5 1533099600000000000"
LINES = _body({"text/plain": {**_TEXT, "example": LINE}})
_SERVER_SENT_EVENT = {
    **_OBJECT,
    "description": "Of each event of the stream; `data` holds JSON.",
    "properties": {name: {"type": "string"} for name in ("event", "id", "data")},
}
FEED: Responses = {
    200: {
        "content": {
            "text/event-stream": {"schema": _SERVER_SENT_EVENT},
            **_NDJSON,
            media_type_of("arrow"): _TEXT,
        }
    }
}
TEXT: Responses = {200: {"content": {"text/plain": _TEXT}}}
NDJSON: Responses = {200: {"content": _NDJSON}}
PROBLEM: Responses = {
    "default": {
        "description": "An error; the status tells its kind.",
        "content": {MEDIA_TYPE: {"schema": model_of("ProblemDocument")}},
    }
}
