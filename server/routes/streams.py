"""Routes of streams: list, create, describe, drop, delete from, update, index.  A stream out of the
token's reach answers 403 whether it exists or not.

A body that deletes or updates events without where, start and end is refused, so that a mistake
does not change every event.  A view is listed for clients that may read it by its name, as in
``SHOW VIEWS``; its columns are those of its creation, ``DESCRIBE`` gives the present ones.

A profile is a stream's history in as many buckets as a chart has pixels: TUMBLE windows of one
width, answered from the aggregate tree, so the cost depends on the buckets, not the events.  Empty
buckets are not sent.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar

import pyarrow as pa
from fastapi import Query, Response
from pydantic import BaseModel, ConfigDict, Field

from ...catalog.streams import FUNCTIONS, Stream, describe
from ...core.sql_text import quoted_name
from ...core.times import FOUR_DIGIT_YEARS, INT64_MAX, TICKS_PER_SECOND, time_text
from ...errors import ChronicleError, InvalidArgument
from ...formats.kinds import columns_of, parse_type
from ...query.contract.result import Result
from ...schema import StreamSchema
from ..access.auth import visible_to
from ..http.replies import jsonable, reply
from ..http.requests import address
from ..service.query_log import RunningQuery
from ..service.row_stream import open_statement
from . import answers
from .answers import EVENT_FILE, Json
from .parameters import EventEncoding, RangeSpec, TimeRange, column_names
from .route import Call, Called, Routes
from .row_responses import send_rows


class EventsSpec(RangeSpec, ABC):
    """Which events of a stream are meant, and how they change."""

    doing: ClassVar[str]
    """The verb, for messages."""

    where: str | None = Field(None, description="SQL predicate on one event; true for all.")

    def check(self) -> None:
        """Refuse a body that would mean every event by omission."""
        if self.where is None and self.start is None and self.end is None:
            raise InvalidArgument(
                f"give where, start or end; to {self.doing} every event of the stream say "
                '{"where": "true"}'
            )

    def expressions(self) -> list[str]:
        return [] if self.where is None else [self.where]

    @abstractmethod
    def apply(self, stream: Stream) -> dict[str, Any]:
        """Make the change in one commit; returns the answer.  Blocks."""


class DeleteSpec(EventsSpec):
    """Events of a stream to delete."""

    doing = "delete"
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"where": "altitude > 100000"}]}
    )

    def apply(self, stream: Stream) -> dict[str, Any]:
        return {"deleted": stream.delete(self.where, *self.bounds(stream.event_schema))}


class UpdateSpec(EventsSpec):
    """Events of a stream to update, and their new values."""

    doing = "update"
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"set": {"altitude": "NULL"}, "where": "altitude < -1000"}]
        },
    )

    set: dict[str, str] = Field(
        description="By column, a SQL expression over the event as it was; not the time."
    )

    def expressions(self) -> list[str]:
        return [*super().expressions(), *self.set.values()]

    def apply(self, stream: Stream) -> dict[str, Any]:
        bounds = self.bounds(stream.event_schema)
        return {"updated": stream.update(self.set, self.where, *bounds)}


routes = Routes("streams", "/v1")


class ColumnSpec(BaseModel):
    """A column of a new stream."""

    model_config = ConfigDict(extra="forbid")

    name: str
    type: str = Field(
        description="SQL or Arrow name: timestamp, double, varchar, decimal(10,2), ..."
    )
    nullable: bool = True
    default: str | int | float | bool | None = Field(
        None,
        description="What events that leave the column out have there; times, dates, decimals and "
        "large integers as text.",
    )

    def default_as(self, type_: pa.DataType) -> Any:
        value = self.default
        if (
            not isinstance(value, str)
            or pa.types.is_string(type_)
            or pa.types.is_large_string(type_)
        ):
            return value
        try:
            return pa.scalar(value).cast(type_)
        except (pa.ArrowException, ValueError, OverflowError):
            raise InvalidArgument(
                f"the default of {self.name!r} is a {type_}, which {value!r} is not"
            ) from None


class StreamSpec(BaseModel):
    """A new stream."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "name": "flights",
                    "time": "timestamp",
                    "schema": {"timestamp": "timestamp", "icao24": "varchar", "altitude": "double"},
                }
            ]
        },
    )

    name: str
    time: str = Field(description="Name of the time attribute.")
    columns: list[ColumnSpec] | dict[str, str] | None = Field(
        None, alias="schema", description="Columns: a list of objects, or types by name."
    )
    arrow_schema: str | None = Field(None, description="Instead: an Arrow IPC schema in base64.")
    retention: str | int | None = Field(None, description='"30 days" or "10 GB".')
    codec: str = Field("lz4", description="lz4, zstd or none.")
    unique: str | list[str] | None = Field(
        None, description="Columns of a key, of which each is stored once: device, seq."
    )
    within: str | int | None = Field(
        None, description='With unique: how near in time equal keys are one event, "1 hour".'
    )
    if_not_exists: bool = False
    options: dict[str, str | int | float | bool | list[str] | None] = Field(
        default_factory=dict, description="Further settings, as behind WITH in CREATE STREAM."
    )

    def arrow(self) -> pa.Schema:
        if (self.columns is None) == (self.arrow_schema is None):
            raise InvalidArgument("give the columns by either schema or arrow_schema")
        if self.arrow_schema is not None:
            try:
                return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.arrow_schema)))
            except (ValueError, pa.ArrowException, OSError) as error:
                raise InvalidArgument(
                    f"arrow_schema is not an Arrow IPC schema message in base64 ({error})"
                ) from None
        assert self.columns is not None
        if isinstance(self.columns, dict):
            fields = [pa.field(name, parse_type(type_)) for name, type_ in self.columns.items()]
        else:
            fields = [pa.field(c.name, parse_type(c.type), c.nullable) for c in self.columns]
        return pa.schema(fields)

    def events(self) -> pa.Schema | StreamSchema:
        arrow = self.arrow()
        if not isinstance(self.columns, list):
            return arrow
        columns = [c for c in self.columns if c.default is not None]
        if not columns:
            return arrow
        defaults = {c.name: c.default_as(parse_type(c.type)) for c in columns}
        return StreamSchema(arrow, self.time, defaults)


def _described(call: Called, name: str, *, full: bool) -> Json:
    described: Json = jsonable(describe(call.server.database.stream(name), full=full))
    return described


@routes.get("/streams", "List the streams", answers.Streams, runs="read")
def list_streams(call: Call) -> Json:
    """The streams that the token reaches."""
    server, token = call.server, call.principal.token
    described: list[Json] = []
    damaged = server.database.damaged()
    for name in server.database.streams():
        if token is not None and not token.reaches(name):
            continue
        if name in damaged:
            described.append({"name": name, "damage": damaged[name]})
            continue
        try:
            described.append(_described(call, name, full=False))
        except ChronicleError:
            if name in server.database.streams():  # else it was dropped meanwhile
                raise
    return {"streams": described}


@routes.post("/streams", "Create a stream", answers.StreamDescription, 201, also=200)
def create_stream(call: Call, spec: StreamSpec) -> Response:
    """Create a stream; with `if_not_exists` an equal existing one is answered with 200."""
    call.principal.require("write", spec.name)
    database = call.server.database
    existed = spec.name in database.streams()
    given = spec.model_dump(exclude={"name", "columns", "arrow_schema"})
    database.create_stream(spec.name, spec.events(), **given)
    described = _described(call, spec.name, full=True)
    where = str(call.request.scope.get("root_path", "")) + address("v1", "streams", spec.name)
    return reply(described, 200 if existed else 201, {"Location": where})


@routes.get("/streams/{stream}", "Describe a stream", answers.StreamDescription, runs="read")
def get_stream(call: Call, stream: str) -> Json:
    """Schema, count, time range, version, settings, indexes and statistics."""
    _require_any(call, stream)
    return _described(call, stream, full=True)


@routes.delete("/streams/{stream}", "Drop a stream", status=204, needs="admin")
def drop_stream(call: Call, stream: str) -> None:
    """Remove a stream, its events and its indexes."""
    with call.server.drops.dropping(stream):
        call.server.database.drop_stream(stream)
    call.server.forget_stream(stream)


@routes.post(
    "/streams/{stream}/delete", "Delete events", answers.Deleted, needs="admin", runs="build"
)
def delete_events(call: Call, stream: str, spec: DeleteSpec) -> Json:
    """Delete the events of a range that satisfy a predicate, for good, in one commit."""
    spec.check()
    return spec.apply(call.server.database.stream(stream))


@routes.post(
    "/streams/{stream}/update", "Update events", answers.Updated, needs="admin", runs="build"
)
def update_events(call: Call, stream: str, spec: UpdateSpec) -> Json:
    """Give new values to the events of a range that satisfy a predicate, in one commit."""
    spec.check()
    return spec.apply(call.server.database.stream(stream))


@routes.get(
    "/streams/{stream}/aggregate",
    "Aggregate attributes over a time range",
    answers.Aggregates,
    needs="read",
    runs="read",
)
def aggregate(
    call: Call,
    stream: str,
    times: TimeRange,
    attribute: Annotated[list[str], Query(description="Attributes; commas, or repeated.")],
    functions: Annotated[
        list[str] | None, Query(description="count, sum, min, max, avg, first, last; default: all.")
    ] = None,
) -> Json:
    """Answered from the aggregate tree: logarithmic in the stream's length, whatever the range."""
    names = column_names(attribute) or []
    chosen = [name.strip().lower() for part in functions or [] for name in part.split(",")]
    chosen = [name for name in chosen if name]
    unknown = [name for name in chosen if name not in FUNCTIONS]
    if unknown:
        raise InvalidArgument(
            f"functions are some of {', '.join(FUNCTIONS)}, found {', '.join(unknown)}"
        )
    target = call.server.database.stream(stream)
    schema: StreamSchema = target.event_schema
    wanted = {}
    for name in names:
        attribute_ = schema.attribute(name)
        default = [f for f in FUNCTIONS if attribute_.summable or f not in ("sum", "avg")]
        wanted[attribute_.name] = chosen or default
    first, last = times.bounds(schema)
    values = target.aggregate(wanted, start=first, end=last)
    return {
        "stream": stream,
        "start": times.start,
        "end": times.end,
        "aggregates": jsonable(values),
    }


@routes.get("/streams/{stream}/indexes", "List a stream's indexes", answers.Indexes)
def list_indexes(call: Call, stream: str) -> Json:
    """Indexed attributes and how far their indexes reach."""
    _require_any(call, stream)
    return {"indexes": jsonable(call.server.database.stream(stream).indexes())}


@routes.post(
    "/streams/{stream}/indexes/{attribute}",
    "Create an index",
    answers.Indexes,
    201,
    also=202,
    needs="admin",
    runs="build",
)
def create_index(
    call: Call,
    stream: str,
    attribute: str,
    wait: Annotated[bool, Query(description="Answer when it is built, else at once.")] = True,
    lag_events_max: Annotated[
        int | None,
        Query(
            ge=0,
            le=INT64_MAX,
            description="Events that may wait for it before appends wait for it.",
        ),
    ] = None,
) -> Response:
    """Index an attribute; with `wait=false` it is built in the background (202)."""
    indexes = call.server.database.stream(stream)
    indexes.create_index(attribute, wait=wait, lag_events_max=lag_events_max)
    return reply({"indexes": jsonable(indexes.indexes())}, 201 if wait else 202)


@routes.delete("/streams/{stream}/indexes/{attribute}", "Drop an index", status=204, needs="admin")
def drop_index(call: Call, stream: str, attribute: str) -> None:
    """Remove an attribute's index."""
    call.server.database.stream(stream).drop_index(attribute)


def _require_any(call: Called, stream: str) -> None:
    """A right to read or to write a stream includes the right to see its schema."""
    call.principal.require("read" if call.principal.may("read") else "ingest", stream)


@routes.get("/views", "List the views", answers.Views, needs="read", runs="read")
def list_views(call: Call) -> Json:
    """The views within the token's reach: their queries and columns."""
    visible = visible_to(call.principal) or (lambda _: True)
    listed = [
        {
            "name": view.name,
            "sql": view.sql,
            "reads": [name for name in view.sources if visible(name)],
            "schema": columns_of(view.columns),
        }
        for view in call.server.catalog.views().values()
        if visible(view.name)
    ]
    return {"views": listed}


BUCKETS_MAX = 4000
COUNT_MAX = 1_000_000_000


@routes.get(
    "/streams/{stream}/profile", "A stream's history in buckets", responses=EVENT_FILE, needs="read"
)
async def profile(
    call: Call,
    encoding: EventEncoding,
    stream: str,
    times: TimeRange,
    attributes: Annotated[
        list[str] | None, Query(description="Numeric attributes; commas, or repeated.")
    ] = None,
    buckets: Annotated[int, Query(ge=1, le=BUCKETS_MAX, description="About so many.")] = 400,
) -> Response:
    """Per bucket `start` and `count`, and `min_a`, `max_a`, `avg_a` of each attribute `a`."""
    server = call.server

    def open_rows(query: RunningQuery) -> Result:
        snapshot = server.catalog.snapshot(stream)
        schema, span = snapshot.schema, snapshot.time_range
        text = _text(
            schema, stream, column_names(attributes) or [], times.bounds(schema), span, buckets
        )
        timeout = server.settings.query_timeout
        return open_statement(server, call.principal, query, text, None, timeout, read_only=True)

    text = f"profile of {stream}"
    return await send_rows(call, server.queries, "query", text, open_rows, encoding)


def _text(
    schema: StreamSchema,
    stream: str,
    attributes: list[str],
    bounds: tuple[int | None, int | None],
    span: tuple[int, int] | None,
    buckets: int,
) -> str:
    columns = ["window_start AS start", "count(*) AS count"]
    for name in attributes:
        attribute = schema.attribute(name)
        if not attribute.summable or pa.types.is_boolean(attribute.type):
            raise InvalidArgument(f"a profile is of numbers; {name!r} is {attribute.type}")
        quoted = quoted_name(attribute.name)
        columns += [f"{f}({quoted}) AS {quoted_name(f'{f}_{name}')}" for f in ("min", "max", "avg")]
    time, unit = quoted_name(schema.time), schema.time_unit
    first, last = span or (0, 0)
    low, high = bounds
    conditions = []  # a bound beyond the events is none: SQL may have no literal of it
    if low is not None and (span is None or low > first):
        conditions.append(f"{time} >= {_literal(low, unit)}")
        first = low
    if high is not None and (span is None or high <= last):
        conditions.append(f"{time} < {_literal(high, unit)}")
        last = high - 1
    ticks = min(max(1, -(-(last + 1 - first) // buckets)), INT64_MAX)
    width = str(ticks) if unit is None else _interval(ticks, TICKS_PER_SECOND[unit])
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    return (
        f"SELECT {', '.join(columns)} FROM TUMBLE({quoted_name(stream)}, {time}, {width}) {where}"
        "GROUP BY window_start ORDER BY window_start"
    )


def _literal(tick: int, unit: str | None) -> str:
    if unit is None:
        return str(tick)
    if tick in (-INT64_MAX, INT64_MAX):
        return "'infinity'" if tick > 0 else "'-infinity'"  # their ticks in SQL
    if unit == "ns":
        return f"make_timestamp_ns({tick})"
    first, end = FOUR_DIGIT_YEARS
    if unit in ("s", "ms") and first <= tick // TICKS_PER_SECOND[unit] < end:
        return f"'{time_text(tick, pa.timestamp(unit))}'"
    micros = tick * (1_000_000 // TICKS_PER_SECOND[unit])
    if abs(micros) >= INT64_MAX:
        raise InvalidArgument("a bound among the events is of the years -290307 to 294246")
    return f"make_timestamp({micros})"


def _interval(ticks: int, per_second: int) -> str:
    """At least so many ticks, within 64 bits."""
    micros, most = -(-ticks * 1_000_000 // per_second), INT64_MAX * 1_000_000 // per_second
    for unit, size in (("MICROSECOND", 1), ("MILLISECOND", 1000), ("SECOND", 1_000_000)):
        if micros // size < COUNT_MAX:
            return f"INTERVAL '{-(-micros // size)}' {unit}"
    return f"INTERVAL '{min(-(-micros // 60_000_000), most // 60_000_000)}' MINUTE"
