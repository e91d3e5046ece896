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
from fastapi import Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from ...catalog.streams import FUNCTIONS, Stream
from ...core.sql_text import quoted_name
from ...core.times import INT64_MAX, TICKS_PER_SECOND, time_text
from ...errors import ChronicleError, InvalidArgument
from ...formats.kinds import parse_type
from ...schema import StreamSchema
from ..access.auth import Principal, Requester, visible_to
from ..http.replies import columns_of, jsonable, reply
from ..http.requests import PathName, address
from ..http.route import api_router
from ..service.query_log import RunningQuery
from ..service.row_stream import open_statement
from ..service.state import Server, server_of
from .parameters import (
    EventEncoding,
    RangeSpec,
    TimeRange,
    column_names,
    read_spec,
    spec_body,
)
from .row_responses import RowSource, send_rows


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
        extra="forbid", json_schema_extra={"examples": [{"where": "icao24 = '4b1803'"}]}
    )

    def apply(self, stream: Stream) -> dict[str, Any]:
        return {"deleted": stream.delete(self.where, *self.bounds(stream.event_schema))}


class UpdateSpec(EventsSpec):
    """Events of a stream to update, and their new values."""

    doing = "update"
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"set": {"altitude": "altitude * 0.3048"}, "where": "icao24 = '4b1803'"}]
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


router = api_router(prefix="/v1", tags=["streams"])


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


def describe(server: Server, name: str, *, full: bool) -> dict[str, Any]:
    stream = server.database.stream(name)
    schema: StreamSchema = stream.event_schema
    described: dict[str, Any] = {
        "name": stream.name,
        "time": schema.time,
        "schema": columns_of(schema.arrow),
    }
    with server.catalog.snapshot(name) as snapshot:
        described["count"] = snapshot.count
        described["version"] = snapshot.version
        span = snapshot.time_range
    described["time_range"] = (
        None
        if span is None
        else {
            "first": jsonable(schema.from_ticks(span[0])),
            "last": jsonable(schema.from_ticks(span[1])),
            "first_ticks": span[0],
            "last_ticks": span[1],
        }
    )
    if full:
        described["arrow_schema"] = base64.b64encode(schema.arrow.serialize()).decode()
        described |= schema.defaults_json()
        described["settings"] = jsonable(server.catalog.stream_options(name))
        described["indexes"] = jsonable(stream.indexes())
        described["stats"] = jsonable(stream.stats())
    return described


@router.get("/streams", summary="List the streams")
async def list_streams(request: Request, principal: Requester) -> Response:
    """The streams that the token reaches."""
    server = server_of(request)

    def listed() -> list[dict[str, Any]]:
        described: list[dict[str, Any]] = []
        damaged = server.database.damaged()
        for name in server.database.streams():
            if principal.token is not None and not principal.token.reaches(name):
                continue
            if name in damaged:
                described.append({"name": name, "damage": damaged[name]})
                continue
            try:
                described.append(describe(server, name, full=False))
            except ChronicleError:
                if name in server.database.streams():  # else it was dropped meanwhile
                    raise
        return described

    return reply({"streams": await server.read(principal.client, listed)})


@router.post(
    "/streams", status_code=201, summary="Create a stream", openapi_extra=spec_body(StreamSpec)
)
async def create_stream(request: Request, principal: Requester) -> Response:
    """Create a stream; with `if_not_exists` an equal existing one is answered with 200."""
    spec = await read_spec(request, StreamSpec)
    principal.require("write", spec.name)
    server = server_of(request)

    def create() -> tuple[bool, dict[str, Any]]:
        existed = spec.name in server.database.streams()
        server.database.create_stream(
            spec.name,
            spec.events(),
            time=spec.time,
            retention=spec.retention,
            codec=spec.codec,
            unique=spec.unique,
            within=spec.within,
            if_not_exists=spec.if_not_exists,
            options=spec.options,
        )
        return existed, describe(server, spec.name, full=True)

    existed, described = await server.call(create)
    where = str(request.scope.get("root_path", "")) + address("v1", "streams", spec.name)
    return reply(described, 200 if existed else 201, {"Location": where})


@router.get("/streams/{stream}", summary="Describe a stream")
async def get_stream(request: Request, principal: Requester, stream: PathName) -> Response:
    """Schema, count, time range, version, settings, indexes and statistics."""
    _require_any(principal, stream)
    server = server_of(request)
    described = await server.read(principal.client, lambda: describe(server, stream, full=True))
    return reply(described)


@router.delete("/streams/{stream}", status_code=204, summary="Drop a stream")
async def drop_stream(request: Request, principal: Requester, stream: PathName) -> Response:
    """Remove a stream, its events and its indexes."""
    principal.require("admin", stream)
    server = server_of(request)

    def drop() -> None:
        with server.drops.dropping(stream):
            server.database.drop_stream(stream)
        server.forget_stream(stream)

    await server.call(drop)
    return Response(status_code=204)


@router.post(
    "/streams/{stream}/delete", summary="Delete events", openapi_extra=spec_body(DeleteSpec)
)
async def delete_events(request: Request, principal: Requester, stream: PathName) -> Response:
    """Delete the events of a range that satisfy a predicate, for good, in one commit."""
    return await _changed(request, principal, stream, DeleteSpec)


@router.post(
    "/streams/{stream}/update", summary="Update events", openapi_extra=spec_body(UpdateSpec)
)
async def update_events(request: Request, principal: Requester, stream: PathName) -> Response:
    """Give new values to the events of a range that satisfy a predicate, in one commit."""
    return await _changed(request, principal, stream, UpdateSpec)


async def _changed(
    request: Request, principal: Principal, stream: str, kind: type[EventsSpec]
) -> Response:
    principal.require("admin", stream)
    spec = await read_spec(request, kind)
    server = server_of(request)
    spec.check()
    return reply(await server.build(lambda: spec.apply(server.database.stream(stream))))


@router.get("/streams/{stream}/aggregate", summary="Aggregate attributes over a time range")
async def aggregate(
    request: Request,
    principal: Requester,
    stream: PathName,
    times: TimeRange,
    attribute: Annotated[list[str], Query(description="Attributes; commas, or repeated.")],
    functions: Annotated[
        list[str] | None, Query(description="count, sum, min, max, avg, first, last; default: all.")
    ] = None,
) -> Response:
    """Answered from the aggregate tree: logarithmic in the stream's length, whatever the range."""
    principal.require("read", stream)
    server = server_of(request)
    names = column_names(attribute) or []
    chosen = [name.strip().lower() for part in functions or [] for name in part.split(",")]
    chosen = [name for name in chosen if name]
    unknown = [name for name in chosen if name not in FUNCTIONS]
    if unknown:
        raise InvalidArgument(
            f"functions are some of {', '.join(FUNCTIONS)}, found {', '.join(unknown)}"
        )

    def compute() -> dict[str, Any]:
        target = server.database.stream(stream)
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

    return reply(await server.read(principal.client, compute))


@router.get("/streams/{stream}/indexes", summary="List a stream's indexes")
async def list_indexes(request: Request, principal: Requester, stream: PathName) -> Response:
    """Indexed attributes and how far their indexes reach."""
    _require_any(principal, stream)
    server = server_of(request)
    indexes = await server.call(lambda: server.database.stream(stream).indexes())
    return reply({"indexes": jsonable(indexes)})


@router.post("/streams/{stream}/indexes/{attribute}", status_code=201, summary="Create an index")
async def create_index(
    request: Request,
    principal: Requester,
    stream: PathName,
    attribute: PathName,
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
    principal.require("admin", stream)
    server = server_of(request)

    def create() -> Any:
        indexes = server.database.stream(stream)
        indexes.create_index(attribute, wait=wait, lag_events_max=lag_events_max)
        return indexes.indexes()

    indexes = await server.build(create)
    return reply({"indexes": jsonable(indexes)}, 201 if wait else 202)


@router.delete("/streams/{stream}/indexes/{attribute}", status_code=204, summary="Drop an index")
async def drop_index(
    request: Request, principal: Requester, stream: PathName, attribute: PathName
) -> Response:
    """Remove an attribute's index."""
    principal.require("admin", stream)
    server = server_of(request)
    await server.call(lambda: server.database.stream(stream).drop_index(attribute))
    return Response(status_code=204)


def _require_any(principal: Principal, stream: str) -> None:
    """A right to read or to write a stream includes the right to see its schema."""
    principal.require("read" if principal.may("read") else "ingest", stream)


@router.get("/views", summary="List the views")
async def list_views(request: Request, principal: Requester) -> Response:
    """The views within the token's reach: their queries and columns."""
    principal.require("read")
    server = server_of(request)
    visible = visible_to(principal) or (lambda _: True)

    def listed() -> list[dict[str, Any]]:
        return [
            {
                "name": view.name,
                "sql": view.sql,
                "reads": [name for name in view.sources if visible(name)],
                "schema": columns_of(view.columns),
            }
            for view in server.catalog.views().values()
            if visible(view.name)
        ]

    return reply({"views": await server.read(principal.client, listed)})


BUCKETS_MAX = 4000
COUNT_MAX = 1_000_000_000


@router.get("/streams/{stream}/profile", summary="A stream's history in buckets")
async def profile(
    request: Request,
    principal: Requester,
    encoding: EventEncoding,
    stream: PathName,
    times: TimeRange,
    attributes: Annotated[
        list[str] | None, Query(description="Numeric attributes; commas, or repeated.")
    ] = None,
    buckets: Annotated[int, Query(ge=1, le=BUCKETS_MAX, description="About so many.")] = 400,
) -> Response:
    """Per bucket `start` and `count`, and `min_a`, `max_a`, `avg_a` of each attribute `a`."""
    principal.require("read", stream)
    server = server_of(request)

    def open_rows(query: RunningQuery) -> RowSource:
        with server.catalog.snapshot(stream) as snapshot:
            schema, span = snapshot.schema, snapshot.time_range
        low, high = times.bounds(schema)
        if span is not None:
            low = span[0] if low is None else low
            high = span[1] + 1 if high is None else high
        text = _text(schema, stream, column_names(attributes) or [], low or 0, high or 1, buckets)
        timeout = server.settings.query_timeout
        return RowSource.of(
            open_statement(server, principal, query, text, None, timeout, read_only=True)
        )

    return await send_rows(
        request, principal, server.queries, "query", f"profile of {stream}", open_rows, encoding
    )


def _text(
    schema: StreamSchema, stream: str, attributes: list[str], low: int, high: int, buckets: int
) -> str:
    columns = ["window_start AS start", "count(*) AS count"]
    for name in attributes:
        attribute = schema.attribute(name)
        if not attribute.summable or pa.types.is_boolean(attribute.type):
            raise InvalidArgument(f"a profile is of numbers; {name!r} is {attribute.type}")
        quoted = quoted_name(attribute.name)
        columns += [f"{f}({quoted}) AS {quoted_name(f'{f}_{name}')}" for f in ("min", "max", "avg")]
    time = quoted_name(schema.time)
    type_ = schema.attribute(schema.time).type
    ticks = max(1, -(-(high - low) // buckets))
    if schema.time_unit is None:
        width, bounds = str(ticks), [str(low), str(high)]
    else:
        width = _interval(-(-ticks * 1_000_000 // TICKS_PER_SECOND[schema.time_unit]))
        name = "TIMESTAMPTZ" if type_.tz else "TIMESTAMP"
        bounds = [f"{name} '{time_text(tick, type_)}'" for tick in (low, high)]
    return (
        f"SELECT {', '.join(columns)} FROM TUMBLE({quoted_name(stream)}, {time}, {width}) "
        f"WHERE {time} >= {bounds[0]} AND {time} < {bounds[1]} GROUP BY window_start "
        "ORDER BY window_start"
    )


def _interval(micros: int) -> str:
    for unit, size in (("MICROSECOND", 1), ("MILLISECOND", 1000), ("SECOND", 1_000_000)):
        if micros // size < COUNT_MAX:
            return f"INTERVAL '{-(-micros // size)}' {unit}"
    return f"INTERVAL '{-(-micros // 60_000_000)}' MINUTE"
