"""Query parameters that several routes share.  ``+`` in a query string means a space; in a time it
can only have been an offset's sign, so ``2018-08-01T06:00:00+02:00`` works unquoted.  Dependencies
are coroutines, since FastAPI would run each other one in a thread.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field

from ...core.suggestion import did_you_mean
from ...core.times import INT64_MAX, TICKS_PER_SECOND
from ...errors import InvalidArgument
from ...formats.dialect import TextOptions
from ...schema import StreamSchema
from ..access.auth import Requester
from ..http.negotiation import answer_format, wants_gzip
from ..service.encoding import RowEncoding

__all__ = [
    "Columns",
    "End",
    "EventEncoding",
    "FeedFormatName",
    "Flatten",
    "Follow",
    "FormatName",
    "Int64AsString",
    "Limit",
    "Marks",
    "Precision",
    "RangeSpec",
    "ResultEncoding",
    "Start",
    "Text",
    "column_names",
    "event_encoding",
    "only_known",
    "result_encoding",
    "to_ticks",
]

Precision = Annotated[
    Literal["s", "ms", "us", "ns"] | None,
    Query(description="Unit of times that are numbers."),
]
Start = Annotated[
    str | None, Query(description="First time, inclusive: ISO 8601 or an integer of ticks.")
]
End = Annotated[str | None, Query(description="Last time, exclusive: ISO 8601 or an integer.")]
Columns = Annotated[
    list[str] | None, Query(description="Columns in the order wanted; commas, or repeated.")
]
Limit = Annotated[int | None, Query(ge=0, le=INT64_MAX, description="Most rows to send.")]
FormatName = Annotated[
    str | None,
    Query(description="json, ndjson, csv, arrow or parquet; wins over the Accept header."),
]
Compression = Annotated[
    Literal["none", "lz4", "zstd"], Query(description="Of the buffers in an Arrow stream.")
]
EndMarker = Annotated[
    bool, Query(description='NDJSON: end with a line {"$end": {"rows": n, "truncated": false}}.')
]
Int64AsString = Annotated[
    bool, Query(description="JSON and NDJSON: write 64-bit integers as text, for JavaScript.")
]

TimeFormat = Annotated[
    Literal["iso", "rfc3339", "epoch_s", "epoch_ms", "epoch_us", "epoch_ns"],
    Query(description="JSON, NDJSON, CSV: times as RFC 3339 with Z, or as integers."),
]

Flatten = Annotated[
    str | None,
    Query(description="JSON: what joins the names of nested members into columns, such as _."),
]


async def text_options(
    encoding: Annotated[
        str | None, Query(description="Of text: latin-1, windows-1252, utf-16; else UTF-8.")
    ] = None,
    delimiter: Annotated[
        str | None, Query(description="Of CSV: one character, or tab; else told from the header.")
    ] = None,
    separator: Annotated[str | None, Query(include_in_schema=False)] = None,
    quote: Annotated[str, Query(description="Of CSV; empty where quotes have no meaning.")] = '"',
    skip: Annotated[
        int, Query(ge=0, description="Of CSV: lines to pass over, before the header.")
    ] = 0,
    header: Annotated[
        bool | None, Query(description="Of CSV: whether a header names the columns.")
    ] = None,
    columns: Annotated[
        list[str] | None, Query(description="Of CSV: names of the columns, instead of a header's.")
    ] = None,
    null: Annotated[
        list[str] | None, Query(description="Of CSV: a further spelling of null.")
    ] = None,
    decimal: Annotated[
        Literal[",", "."] | None,
        Query(description="Of CSV: the decimal separator; the other one may group digits."),
    ] = None,
    sheet: Annotated[
        str | None, Query(description="Of an Excel workbook; the first by default.")
    ] = None,
) -> TextOptions:
    return TextOptions(
        encoding=encoding, delimiter=delimiter, separator=separator, quote=quote, skip=skip,
        header=header, columns=column_names(columns), nulls=null or (), decimal=decimal,
        sheet=sheet,
    )  # fmt: skip


Text = Annotated[TextOptions, Depends(text_options)]

FeedFormatName = Annotated[
    str | None, Query(description="sse, ndjson or arrow; wins over the Accept header.")
]
Follow = Annotated[bool, Query(description="Wait for more at the end, or end there.")]
Marks = Annotated[
    bool, Query(description='NDJSON: lines {"$mark": {...}} that say up to where all was sent.')
]

_SPACED_OFFSET = re.compile(r"(:\d\d(?:\.\d+)?) (\d\d:?\d\d)$")


class RangeSpec(BaseModel):
    """A range of times in the body of a request."""

    model_config = ConfigDict(extra="forbid")

    start: str | int | None = Field(None, description="First time, as in a read of events.")
    end: str | int | None = Field(None, description="Time before which they lie.")
    precision: Literal["s", "ms", "us", "ns"] | None = Field(
        None, description="Unit of times that are numbers."
    )

    def bounds(self, schema: StreamSchema) -> tuple[int | None, int | None]:
        texts = (None if at is None else str(at) for at in (self.start, self.end))
        start, end = (to_ticks(schema, at, self.precision) for at in texts)
        return start, end


def to_ticks(schema: StreamSchema, text: str | None, precision: str | None = None) -> int | None:
    """Ticks of a time; ``precision`` is the unit of an integer, None the stream's own."""
    if text is None or not text.strip():
        return None
    text = text.strip()
    if not re.fullmatch(r"[+-]?[0-9]{1,40}", text):
        return schema.to_ticks(_SPACED_OFFSET.sub(r"\1+\2", text))
    value = int(text)
    if precision is not None:
        per_second = schema.ticks_per_second
        if per_second is None:
            raise InvalidArgument(
                f"precision={precision} makes no sense here: the time attribute {schema.time!r} "
                "counts plain integers"
            )
        value, rest = divmod(value * per_second, TICKS_PER_SECOND[precision])
        if rest:
            raise InvalidArgument(
                f"{text} {precision} is finer than the stream's time unit {schema.time_unit}; "
                "round it"
            )
    return schema.to_ticks(value)


def column_names(given: list[str] | None) -> list[str] | None:
    """Names of ``?columns=a,b`` or ``?columns=a&columns=b``; quote a name that has a comma."""
    if given is None:
        return None
    try:
        rows = list(csv.reader(given, skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise InvalidArgument(
            f"columns={','.join(given)!r} cannot be read ({error}); separate names by commas, and "
            "quote one that has a comma or a line break"
        ) from None
    names = [name.strip() for row in rows for name in row if name.strip()]
    if not names:
        raise InvalidArgument("columns is empty; leave it out to get every column")
    return names


def _encoding(*, envelope: bool) -> Callable[..., Awaitable[RowEncoding]]:

    async def read(
        request: Request,
        format: FormatName = None,
        end_marker: EndMarker = False,
        int64_as_string: Int64AsString = False,
        compression: Compression = "none",
        time_format: TimeFormat = "iso",
    ) -> RowEncoding:
        headers = request.headers
        name = answer_format(format, headers.get("accept", ""))
        if time_format != "iso" and name in ("arrow", "parquet"):
            raise InvalidArgument(
                f"time_format={time_format} is for json, ndjson and csv; {name} has typed times"
            )
        return RowEncoding(
            name,
            envelope=envelope and name == "json",
            end_marker=end_marker and name == "ndjson",
            int64_as_string=int64_as_string,
            time_format=time_format,
            compression=None if compression == "none" else compression,
            gzip=name in ("json", "ndjson", "csv")
            and wants_gzip(headers.get("accept-encoding", "")),
        )

    return read


event_encoding, result_encoding = _encoding(envelope=False), _encoding(envelope=True)
EventEncoding = Annotated[RowEncoding, Depends(event_encoding)]
ResultEncoding = Annotated[RowEncoding, Depends(result_encoding)]


async def only_known(request: Request, principal: Requester) -> None:
    """Raise ``RequestValidationError`` for unknown parameters, after authentication."""
    del principal
    if not request.query_params:
        return
    dependant = getattr(request.scope.get("route"), "dependant", None)
    if dependant is None:
        return
    known = sorted(set(_declared(dependant)))
    errors = []
    for name in request.query_params:
        if name not in known:
            hint = did_you_mean(name, known, quoted=False)
            hint = hint or f"; known are {', '.join(known) or 'none'}"
            errors.append(
                {"type": "unknown", "loc": ("query", name), "msg": f"no such parameter{hint}"}
            )
    if errors:
        raise RequestValidationError(errors)


def _declared(dependant: Any) -> Iterator[str]:
    yield from (parameter.alias for parameter in dependant.query_params)
    for below in dependant.dependencies:
        yield from _declared(below)
