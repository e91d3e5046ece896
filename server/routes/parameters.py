"""Query parameters that several routes share.  ``+`` in a query string means a space; in a time it
can only have been an offset's sign, so ``2018-08-01T06:00:00+02:00`` works unquoted.

JSON bodies become pydantic models; accepted are also what ``curl -d`` sends without a Content-Type,
and plain SQL for models with a field ``sql``.  Size, nesting depth, pace and memory are bounded.
"""

from __future__ import annotations

import asyncio
import csv
import inspect
import json
import re
import urllib.parse
from collections.abc import Callable, Collection, Iterable
from typing import Annotated, Any, Literal, TypeVar

import orjson
from fastapi import Depends, Header, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...core.options import Parameter, options_from, parameters_of
from ...core.times import INT64_MAX, TICKS_PER_SECOND
from ...errors import InvalidArgument
from ...formats.dialect import TextOptions
from ...formats.kinds import parse_pairs
from ...schema import StreamSchema
from ..http.replies import Problem
from ..http.requests import answer_format, wants_gzip
from ..http.streamed import Pace
from ..service.bodies import pieces_of
from ..service.row_stream import RowEncoding
from ..service.state import server_of

T = TypeVar("T")

Precision = Annotated[
    Literal["s", "ms", "us", "ns"] | None, Query(description="Unit of times that are numbers.")
]
Start = Annotated[
    str | None, Query(description="First time, inclusive: ISO 8601 or an integer of ticks.")
]
End = Annotated[str | None, Query(description="Last time, exclusive: ISO 8601 or an integer.")]
Columns = Annotated[
    list[str] | None, Query(description="Columns in the order wanted; commas, or repeated.")
]
Limit = Annotated[int | None, Query(ge=0, le=INT64_MAX, description="Most rows to send.")]
Where = Annotated[str | None, Query(description="SQL predicate, such as altitude > 10000.")]
LastEventId = Annotated[
    str | None, Header(description="The last id that was read; wins over `after`.")
]
IdempotencyKey = Annotated[
    str | None, Header(description="Ask again with the same key without storing twice.")
]
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

BadRows = Literal["fail", "skip"]


def _on_error(
    on_error: Annotated[BadRows, Query(description="What a row that is no event does.")] = "fail",
    bad_rows: Annotated[BadRows | None, Query(description="Another name of on_error.")] = None,
) -> str:
    return bad_rows or on_error


OnError = Annotated[str, Depends(_on_error)]


def from_query(
    schema: type[T], without: Collection[str] = (), hidden: Collection[str] = ()
) -> Callable[..., T]:
    """A dependency that makes the options of a dataclass (``core.options``) from the query.

    ``hidden`` are further parameters of the dataclass, which the document does not show.
    """
    parameters = [each for each in parameters_of(schema) if each.field not in without]
    defaults = {each.name: each.default for each in parameters} | dict.fromkeys(hidden)
    usual = schema()

    def read(**values: Any) -> T:
        if values == defaults:
            return usual
        more = {name: values[name] for name in hidden}
        return options_from(schema, values, {"names": _names, "pairs": _pairs}, more)

    shown = [(each.name, each.default, _as_query(each)) for each in parameters]
    hide = Annotated[str | None, Query(include_in_schema=False)]
    keyword = inspect.Parameter.KEYWORD_ONLY
    vars(read)["__signature__"] = inspect.Signature(
        [
            inspect.Parameter(name, keyword, default=default, annotation=kind)
            for name, default, kind in (*shown, *((name, None, hide) for name in hidden))
        ]
    )
    return read


def _as_query(each: Parameter) -> Any:
    option, kind = each.option, each.type
    if option.choices:
        kind = Literal[option.choices]
        kind = kind | None if each.default is None else kind
    query = Query(description=option.help, ge=option.minimum, max_length=option.longest)
    return Annotated[kind, query]


def _names(texts: Iterable[str], _: Parameter) -> list[str] | None:
    return column_names(list(texts))


def _pairs(texts: Iterable[str], parameter: Parameter) -> dict[str, str]:
    return parse_pairs(texts, parameter.name)


Text = Annotated[TextOptions, Depends(from_query(TextOptions, hidden=("separator",)))]

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


def time_range(start: Start = None, end: End = None, precision: Precision = None) -> RangeSpec:
    return RangeSpec(start=start, end=end, precision=precision)


TimeRange = Annotated[RangeSpec, Depends(time_range)]


def feed_options(
    format: FeedFormatName = None, marks: Marks = False, int64_as_string: Int64AsString = False
) -> dict[str, bool]:
    """How a feed is written, besides its format."""
    del format
    return {"marks": marks, "int64_as_string": int64_as_string}


FeedStyle = Annotated[dict[str, bool], Depends(feed_options)]


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


def column_names(values: list[str] | None) -> list[str] | None:
    """Names of ``?columns=a,b`` or ``?columns=a&columns=b``; quote a name that has a comma."""
    if values is None:
        return None
    try:
        rows = list(csv.reader(values, skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise InvalidArgument(
            f"columns={','.join(values)!r} cannot be read ({error}); separate names by commas, and "
            "quote one that has a comma or a line break"
        ) from None
    names = [name.strip() for row in rows for name in row if name.strip()]
    if not names:
        raise InvalidArgument("columns is empty; leave it out to get every column")
    return names


def _encoding(*, envelope: bool) -> Callable[..., RowEncoding]:

    def read(
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


BYTES_MAX = 1 << 20
DEPTH_MAX = 32
FIELDS_MAX = 1000
LONG_BYTES = 1 << 16
_FORM = "application/x-www-form-urlencoded"
_TEXT = ("application/sql", "text/plain", "text/sql")

_LONG_DIGITS = re.compile(rb"\d{19}")

Model = TypeVar("Model", bound=BaseModel)


async def read_spec(request: Request, model: type[Model], bytes_max: int) -> Model:
    """Read a request's body; raises ``Problem`` or ``RequestValidationError``."""
    server = server_of(request)
    body = bytearray()
    with server.uploads.account(request.state.principal.client) as account:
        async for piece in pieces_of(request, bytes_max, Pace.of(server.settings)):
            account.hold(len(piece))
            body += piece
        if len(body) < LONG_BYTES:
            return _parsed(request, bytes(body), model)
        return await asyncio.to_thread(_parsed, request, bytes(body), model)


def _parsed(request: Request, body: bytes, model: type[Model]) -> Model:
    content_type = request.headers.get("content-type", "")
    content = _content(content_type, body, sql="sql" in model.model_fields)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        faults = [{**item, "loc": ("body", *item["loc"])} for item in error.errors()]
        raise RequestValidationError(faults) from None


def _content(content_type: str, body: bytes, *, sql: bool) -> Any:
    media_type = content_type.partition(";")[0].strip().lower()
    text = body.strip()
    if sql and media_type in _TEXT:
        return {"sql": _decoded(text)}
    if sql and media_type in ("", _FORM) and not text.startswith((b"{", b"[")):
        fields = {}
        if text.startswith((b"sql=", b"q=")):
            try:
                fields = urllib.parse.parse_qs(_decoded(text), max_num_fields=FIELDS_MAX)
            except ValueError:
                raise Problem("bad-request", f"a form has at most {FIELDS_MAX} fields") from None
        if fields:
            return {"sql": (fields.get("sql") or fields["q"])[0]}
        return {"sql": _decoded(text)}
    if media_type in ("", _FORM, "application/json", "text/json") or media_type.endswith("+json"):
        try:
            content = orjson.loads(text)
        except ValueError as error:
            raise Problem("bad-request", f"the body is not valid JSON: {error}") from None
        if isinstance(content, (dict, list)):
            _check_depth(content)
        # orjson turns integers beyond 64 bits into floats
        return json.loads(text) if _LONG_DIGITS.search(text) else content
    raise Problem(
        "unsupported-media-type",
        f"expected application/json{' or application/sql' if sql else ''}, found Content-Type "
        f"{content_type!r}",
    )


def _check_depth(content: Any, left: int = DEPTH_MAX) -> None:
    if not left:
        raise Problem("bad-request", f"the values of the body nest deeper than {DEPTH_MAX}")
    for inner in content.values() if isinstance(content, dict) else content:
        if isinstance(inner, (dict, list)):
            _check_depth(inner, left - 1)


def _decoded(text: bytes) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Problem("bad-request", f"the body is not valid UTF-8 ({error})") from None
