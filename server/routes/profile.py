"""A stream's history in as many buckets as a chart has pixels: TUMBLE windows of one width,
answered from the aggregate tree, so the cost depends on the buckets, not the events.  Empty buckets
are not sent.
"""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
from fastapi import APIRouter, Query, Request, Response

from ...core.times import TICKS_PER_SECOND, time_text
from ...errors import InvalidArgument
from ...schema import StreamSchema
from ..access.auth import Requester
from ..access.statement_rights import visible_to
from ..http.request_head import PathName
from ..service.running_queries import RunningQuery
from ..service.state import server_of
from .parameters import End, EventEncoding, Precision, Start, column_names, to_ticks
from .row_responses import RowSource, send_rows

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["streams"])
BUCKETS_MAX = 4000
COUNT_MAX = 1_000_000_000


@router.get("/streams/{stream}/profile", summary="A stream's history in buckets")
async def profile(
    request: Request,
    principal: Requester,
    encoding: EventEncoding,
    stream: PathName,
    attributes: Annotated[
        list[str] | None, Query(description="Numeric attributes; commas, or repeated.")
    ] = None,
    start: Start = None,
    end: End = None,
    precision: Precision = None,
    buckets: Annotated[int, Query(ge=1, le=BUCKETS_MAX, description="About so many.")] = 400,
) -> Response:
    """Per bucket `start` and `count`, and `min_a`, `max_a`, `avg_a` of each attribute `a`."""
    principal.require("read", stream)
    server = server_of(request)

    def open_rows(query: RunningQuery) -> RowSource:
        with server.database.snapshot(stream) as snapshot:
            schema, span = snapshot.schema, snapshot.time_range
        low, high = (to_ticks(schema, text, precision) for text in (start, end))
        if span is not None:
            low = span[0] if low is None else low
            high = span[1] + 1 if high is None else high
        text = _text(schema, stream, column_names(attributes) or [], low or 0, high or 1, buckets)
        result = server.database.sql(
            text,
            timeout=server.settings.query_timeout,
            read_only=True,
            cancellation=query.cancellation,
            visible=visible_to(principal),
        )
        return RowSource(result.schema, result.batches(), result.close)

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
        quoted = _quoted(attribute.name)
        columns += [f"{f}({quoted}) AS {_quoted(f'{f}_{name}')}" for f in ("min", "max", "avg")]
    time = _quoted(schema.time)
    type_ = schema.attribute(schema.time).type
    ticks = max(1, -(-(high - low) // buckets))
    if schema.time_unit is None:
        width, bounds = str(ticks), [str(low), str(high)]
    else:
        width = _interval(-(-ticks * 1_000_000 // TICKS_PER_SECOND[schema.time_unit]))
        name = "TIMESTAMPTZ" if type_.tz else "TIMESTAMP"
        bounds = [f"{name} '{time_text(tick, type_)}'" for tick in (low, high)]
    return (
        f"SELECT {', '.join(columns)} FROM TUMBLE({_quoted(stream)}, {time}, {width}) "
        f"WHERE {time} >= {bounds[0]} AND {time} < {bounds[1]} GROUP BY window_start "
        "ORDER BY window_start"
    )


def _interval(micros: int) -> str:
    for unit, size in (("MICROSECOND", 1), ("MILLISECOND", 1000), ("SECOND", 1_000_000)):
        if micros // size < COUNT_MAX:
            return f"INTERVAL '{-(-micros // size)}' {unit}"
    return f"INTERVAL '{-(-micros // 60_000_000)}' MINUTE"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
