"""Results: batches on demand, in the form the caller likes.

Conversion to pandas and polars data frames loses no value.  pandas' own conversion turns integers
with nulls into floats and the first tick of a unit into a missing time; polars multiplies seconds
without an overflow check.  Columns that pandas' types cannot hold become nullable integers or Arrow
data (``pandas.ArrowDtype``).

Notebooks show rows as an HTML table of text and nothing else.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import suppress
from html import escape
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ...core.closing import Closing
from ...core.times import INT64_MIN, python_values, value_text
from ...errors import InvalidArgument, MissingDependency
from .explanation import Plan

if TYPE_CHECKING:
    from ...formats.plots import Series

_YEARS = (-719_162, 2_932_896)
"""First and last date of Python, in days from the epoch."""


def pandas_frame(table: pa.Table) -> Any:
    try:
        import pandas
    except ImportError:
        raise MissingDependency("df() needs pandas: pip install pandas") from None
    lossy = [i for i, column in enumerate(table.columns) if _loses(column)]
    plain = table
    for i in lossy:  # a placeholder, which keeps the order of the columns
        plain = plain.set_column(i, table.field(i).name, pa.nulls(table.num_rows, pa.bool_()))
    frame = plain.to_pandas()
    for i in lossy:
        column = table.column(i)
        dtype: Any = pandas.ArrowDtype(column.type)
        if pa.types.is_integer(column.type):
            dtype = pandas.api.types.pandas_dtype(_nullable(column.type))
        frame.isetitem(i, pandas.Series(dtype.__from_arrow__(column), index=frame.index))
    return frame


def polars_frame(table: pa.Table) -> Any:
    """A table as a polars DataFrame; raises InvalidArgument for duplicate names and wide times."""
    try:
        import polars
    except ImportError:
        raise MissingDependency("pl() needs polars: pip install polars") from None
    names = table.schema.names
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise InvalidArgument(
            f"a polars frame needs column names that differ; give {', '.join(doubled)} an alias"
        )
    for i, field in enumerate(table.schema):
        if "month_day_nano_interval" in str(field.type):
            raise InvalidArgument(
                f"column {field.name!r} holds intervals with months, or in lists or structs, which "
                "polars has no type for; cast it to VARCHAR in the query"
            )
        wanted = _without_seconds(field.type)
        if wanted == field.type:
            continue
        try:
            table = table.set_column(i, field.with_type(wanted), table.column(i).cast(wanted))
        except pa.ArrowInvalid as error:
            raise InvalidArgument(
                f"a polars frame counts milliseconds, which a time of {field.name} does not fit "
                f"({str(error).splitlines()[0]}); take arrow() or df()"
            ) from None
    return polars.from_arrow(table)


def _nullable(type_: pa.DataType) -> str:
    return str(type_).replace("uint", "UInt").replace("int", "Int")


def _loses(column: pa.ChunkedArray | pa.Array) -> bool:
    type_ = column.type
    if pa.types.is_integer(type_):
        return bool(column.null_count)
    if pa.types.is_timestamp(type_) or pa.types.is_duration(type_):
        least = pc.min(column.cast(pa.int64())).as_py() if len(column) else None
        return bool(least == INT64_MIN)
    if pa.types.is_date32(type_):
        ends = pc.min_max(column.cast(pa.int32())).as_py()
        return ends["min"] is not None and (ends["min"] < _YEARS[0] or ends["max"] > _YEARS[1])
    if pa.types.is_map(type_):
        plain = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        return any(map(_beyond_python, (plain.keys, plain.items)))
    if pa.types.is_struct(type_):
        return any(_loses(pc.struct_field(column, [i])) for i in range(type_.num_fields))
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if any(is_one(type_) for is_one in lists):
        return _loses(pc.list_flatten(column))
    return False


def _beyond_python(column: pa.Array) -> bool:
    """Whether Python cannot represent some key or value of maps exactly."""
    values = python_values(column)
    return any(isinstance(value, pa.Scalar) for value in values) or _loses(column)


def _without_seconds(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type_) and type_.unit == "s":
        return pa.timestamp("ms", type_.tz)
    if pa.types.is_duration(type_) and type_.unit == "s":
        return pa.duration("ms")
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_without_seconds(field.type)) for field in type_])
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        inner = type_.value_field.with_type(_without_seconds(type_.value_type))
        return pa.large_list(inner) if pa.types.is_large_list(type_) else pa.list_(inner)
    return type_


_CELL_MAX = 200


def html_table(rows: pa.Table, whole: bool, most: int) -> str:
    """An HTML table; ``whole``: whether these are all rows, else the foot says there are more."""
    head = "".join(
        f"<th>{escape(field.name)}<br><small>{escape(str(field.type))}</small></th>"
        for field in rows.schema
    )
    columns = [python_values(column) if _plain(column.type) else list(column) for column in rows]
    body = "".join(
        f"<tr>{''.join(f'<td>{_shown(value)}</td>' for value in row)}</tr>"
        for row in zip(*columns, strict=True)
    )
    foot = f"{rows.num_rows} rows" if whole else f"the first {most} rows; there are more"
    if not whole and not rows.num_rows:
        foot = "the rows were taken"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{foot}</p>"


def _plain(type_: pa.DataType) -> bool:
    return not pa.types.is_temporal(type_)


def _shown(value: object) -> str:
    if value is None or (isinstance(value, pa.Scalar) and not value.is_valid):
        return "<i>null</i>"
    text = value_text(value)
    return escape(text if len(text) <= _CELL_MAX else text[:_CELL_MAX] + "...")


_CHANGED = ("count", "deleted", "updated")

HTML_ROWS = 20


class Result(Closing):
    """Rows of one statement, computed lazily.

    ``batches`` holds bounded memory; little is computed ahead.  ``arrow``, ``df``, ``pl`` and
    ``fetchall`` keep the rows and may be called again.  Once batches were taken, the whole can no
    longer be taken.  A result that is dropped or closed ends its query.

    Attributes
    ----------
    notes : tuple of str
        Warnings: not errors, but probably not intended.
    """

    def __init__(
        self,
        schema: pa.Schema,
        batches: Iterator[pa.RecordBatch],
        plan: Plan | Callable[[], Plan] | None = None,
        close: Callable[[], None] | None = None,
    ) -> None:
        self._schema = schema
        self._batches = batches
        self._plan = plan
        self._close = close
        self._table: pa.Table | None = None
        self._started = False
        self.notes: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    @property
    def plan(self) -> Plan | None:
        """How the rows are computed; None for statements that are not queries."""
        if callable(self._plan):
            self._plan = self._plan()
        return self._plan

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in batches, once, in bounded memory."""
        if self._table is not None:
            yield from self._table.to_batches()
            return
        self._start()
        try:
            yield from self._batches
        finally:
            self.close()

    def _start(self) -> None:
        if self._started:
            raise InvalidArgument(
                "the rows of this result were taken as batches; run the statement again"
            )
        self._started = True

    def reader(self) -> pa.RecordBatchReader:
        """The rows as a ``RecordBatchReader``, once."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        return self.reader().__arrow_c_stream__(requested_schema)

    def arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        if self._table is None:
            self._start()
            try:
                self._table = pa.Table.from_batches(list(self._batches), self.schema)
            finally:
                self.close()
        return self._table

    def df(self) -> Any:
        """All rows as a pandas DataFrame, every value as it is.  Integers with a missing value are
        pandas' nullable ones (``Int64``); what its own types cannot hold comes as Arrow data
        (``pandas.ArrowDtype``).
        """
        return pandas_frame(self.arrow())

    def pl(self) -> Any:
        """All rows as a polars DataFrame."""
        return polars_frame(self.arrow())

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows as tuples of Python values.  Times are ``datetime`` (zoned ones in their zone);
        a time that ``datetime`` cannot hold (a fraction of a microsecond, a year outside of 1 to
        9999) stays a ``pyarrow`` scalar.  Intervals are ``timedelta``; in those with months, a
        month counts as 30 days.
        """
        return tuples(self.arrow())

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The rows of ``fetchall`` one by one, once, in bounded memory."""
        for batch in self.batches():
            yield from tuples(pa.Table.from_batches([batch]))

    def fetchone(self) -> tuple[Any, ...] | None:
        """The first row; None if there is none."""
        rows = result_of(self.arrow().slice(0, 1)).fetchall()
        return rows[0] if rows else None

    def show(self, rows: int = 20) -> None:
        """Print the first rows as a table, and how many rows and columns there are."""
        from ...formats.text_tables import print_table

        print_table(*self._first(rows))

    def plot(self) -> Series:
        """Lines over the first column of times or numbers, drawn where it is printed.

        Every other column of numbers is a line, and columns of text are keys with lines of their
        own.  ``save("name.svg")`` writes a file, also ``.html`` and ``.png``.
        """
        from ...formats.plots import series_of

        return series_of(self.arrow())

    def close(self) -> None:
        """End the query; may be called more than once."""
        if self._close is not None:
            close, self._close = self._close, None
            close()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def __del__(self) -> None:
        self.close()

    def _repr_html_(self) -> str:
        return html_table(*self._first(HTML_ROWS), HTML_ROWS)

    def _first(self, rows: int) -> tuple[pa.Table, bool]:
        if self._table is not None:
            return self._table.slice(0, rows), self._table.num_rows <= rows
        if self._started:
            return self.schema.empty_table(), False
        taken: list[pa.RecordBatch] = []
        while sum(batch.num_rows for batch in taken) <= rows:
            batch = next(self._batches, None)
            if batch is None:
                break
            taken.append(batch)
        self._batches = chain(taken, self._batches)
        table = pa.Table.from_batches(taken, self.schema)
        return table.slice(0, rows), table.num_rows <= rows

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name} {field.type}" for field in self.schema)
        rows = "" if self._table is None else f", {self._table.num_rows} rows"
        return f"<chronicle.Result ({columns}){rows}>"


def result_of(table: pa.Table, plan: Plan | Callable[[], Plan] | None = None) -> Result:
    """A result that is computed already."""
    result = Result(table.schema, iter(()), plan)
    result._table = table
    return result


def tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows of Python values; times that ``datetime`` cannot hold stay Arrow scalars."""
    columns = [_python_values(column) for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def _python_values(column: pa.ChunkedArray) -> list[Any]:
    type_ = column.type
    if pa.types.is_timestamp(type_) and type_.unit == "ns":
        with suppress(pa.ArrowInvalid, ValueError, OverflowError):
            return list(column.cast(pa.timestamp("us", type_.tz)).to_pylist())
    if pa.types.is_interval(type_):
        return list(map(_timedelta, column.to_pylist()))
    return python_values(column)


def _timedelta(value: Any) -> Any:
    """An interval as a ``timedelta``, with months of 30 days; as it is where that is too long."""
    if value is None:
        return None
    with suppress(OverflowError):
        days = value.months * 30 + value.days
        return dt.timedelta(days=days, microseconds=value.nanoseconds // 1000)
    return value


def changed_events(result: Result) -> int:
    """How many events a statement changed, read from its rows; -1 if they do not say."""
    first: pa.RecordBatch | None = None
    rows = 0
    for batch in result.batches():
        first = batch if first is None and batch.num_rows else first
        rows += batch.num_rows
    if rows != 1 or first is None or first.schema.names not in [[name] for name in _CHANGED]:
        return -1
    return int(first.column(0)[0].as_py())
