"""Parses a whole request body into events before anything is stored; an error lists the first
invalid rows.  A number is a time only if ``precision`` names its unit; its magnitude is never used
to guess.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...errors import InvalidArgument, InvalidData, in_words_of
from ...formats import BadRow, BadRowPolicy, EventReader, Layout, Limits, fail
from ...formats.dialect import TextOptions
from ...formats.packed import check_size
from ...schema import StreamSchema
from .bodies import Body

if TYPE_CHECKING:
    from ...formats.isolated import IsolatedReader

__all__ = [
    "ROWS_LISTED",
    "RefusedRows",
    "bad_row_json",
    "batches_of",
    "events_of",
    "read_events",
    "time_format_of",
]

ROWS_LISTED = 20


class RefusedRows(InvalidData):
    """Invalid rows: the first of them, and whether reading stopped early (``more``)."""

    def __init__(self, rows: list[BadRow], more: bool) -> None:
        first = rows[0]
        count = f"{len(rows)} rows" if len(rows) > 1 else "one row"
        if more:
            count = f"at least {count}"
        super().__init__(
            f"nothing was appended: {count} cannot be read as events; {first}",
            row=first.row,
        )
        self.errors = [bad_row_json(row) for row in rows]


def bad_row_json(row: BadRow) -> dict[str, Any]:
    found = {
        "row": row.row,
        "line": row.line,
        "column": row.column,
        "value": row.value,
        "reason": in_words_of("rest", row.reason),
    }
    return {key: value for key, value in found.items() if value is not None}


class _Listed(Exception):
    """Enough invalid rows were listed."""


def batches_of(
    body: Body,
    format: str,
    schema: StreamSchema,
    time_format: str,
    decoded_max: int,
    reader: IsolatedReader | None,
    **more: Any,
) -> Iterator[pa.RecordBatch]:
    """The events of a body in batches of a stream's schema; ``more`` as in ``events_of``."""
    layout = Layout(time_format=time_format, target=schema)
    return events_of(body, format, layout, decoded_max, reader, **more)


def events_of(
    body: Body,
    format: str | None,
    layout: Layout,
    decoded_max: int,
    reader: IsolatedReader | None,
    *,
    on_bad: BadRowPolicy = fail,
    name: str = "body",
    reading_s: float | None = None,
    **options: Any,
) -> Iterator[pa.RecordBatch]:
    """The events of a body in batches, read by a worker, or here if ``reader`` is None; ``layout``
    learns the inferred schema, ``options`` go to ``chronicle.formats.EventReader``.
    """
    if reader is None:
        yield from EventReader(
            body.open(decoded_max, seekable=format in ("parquet", None)),
            format,
            layout=layout,
            on_bad=on_bad,
            name=name,
            compression=None,
            **options,
        )
        return
    taken = 0
    with body.handed_over() as source:
        for batch in reader.events(
            source,
            format,
            layout=layout,
            on_bad=on_bad,
            name=name,
            encoding=body.encoding,
            decoded_max=decoded_max,
            reading_s=reading_s,
            **options,
        ):
            taken += batch.nbytes
            check_size(taken, decoded_max)
            body.hold(batch.nbytes)
            yield batch


def time_format_of(schema: StreamSchema, precision: str | None) -> str:
    if schema.time_unit is not None:
        return precision or "iso"
    if precision is not None:
        raise InvalidArgument(
            f"precision={precision} makes no sense here: the time attribute {schema.time!r} counts "
            "plain integers"
        )
    return "ticks"


def read_events(
    body: Body,
    format: str,
    schema: StreamSchema,
    precision: str | None,
    decoded_max: int,
    reader: IsolatedReader | None = None,
    *,
    columns_max: int = Limits.columns,
    skip: bool = False,
    flatten: str | None = None,
    text: TextOptions | None = None,
) -> tuple[pa.Table, list[BadRow], int]:
    """Parse a body: a table in the stream's schema, the first bad rows (only with ``skip``) and
    their total; blocks.  Raises ``RefusedRows``, ``InvalidData``, ``SchemaMismatch``,
    ``ResourceLimit``.
    """
    time_format = time_format_of(schema, precision)
    bad: list[BadRow] = []
    rejected = 0

    def note(row: BadRow) -> None:
        nonlocal rejected
        rejected += 1
        if len(bad) < ROWS_LISTED:
            bad.append(row)
        elif not skip:
            raise _Listed

    more = False
    batches: list[pa.RecordBatch] = []
    try:
        batches.extend(
            batches_of(
                body,
                format,
                schema,
                time_format,
                decoded_max,
                reader,
                on_bad=note,
                flatten=flatten,
                text=text,
                limits=Limits(columns_max, unpacked_bytes=decoded_max, total_bytes=decoded_max),
            )
        )
    except _Listed:
        more = True
    except pa.ArrowException as error:
        raise InvalidData(f"the body cannot be read as {format}: {error}") from None
    if bad and not skip:
        raise RefusedRows(bad, more)
    return pa.Table.from_batches(batches, schema=schema.arrow), bad, rejected
