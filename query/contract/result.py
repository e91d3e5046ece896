"""Results: batches on demand, in the form the caller likes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import pyarrow as pa

from ...errors import InvalidArgument
from .data_frames import pandas_frame, polars_frame
from .explanation import Plan
from .html_table import html_table

__all__ = ["Result", "changed_events"]

_CHANGED = ("count", "deleted", "updated")

HTML_ROWS = 20


class Result:
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

    @classmethod
    def of_table(cls, table: pa.Table, plan: Plan | Callable[[], Plan] | None = None) -> Result:
        """A result that is computed already."""
        result = cls(table.schema, iter(()), plan)
        result._table = table
        return result

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def columns(self) -> list[str]:
        return list(self._schema.names)

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
        return pa.RecordBatchReader.from_batches(self._schema, self.batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        return self.reader().__arrow_c_stream__(requested_schema)

    def arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        if self._table is None:
            self._start()
            try:
                self._table = pa.Table.from_batches(list(self._batches), self._schema)
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
        return _tuples(self.arrow())

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The rows of ``fetchall`` one by one, once, in bounded memory."""
        for batch in self.batches():
            yield from _tuples(pa.Table.from_batches([batch]))

    def fetchone(self) -> tuple[Any, ...] | None:
        """The first row; None if there is none."""
        rows = Result.of_table(self.arrow().slice(0, 1)).fetchall()
        return rows[0] if rows else None

    def close(self) -> None:
        """End the query; may be called more than once."""
        if self._close is not None:
            close, self._close = self._close, None
            close()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def __enter__(self) -> Result:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _repr_html_(self) -> str:
        return html_table(*self._first(HTML_ROWS), HTML_ROWS)

    def _first(self, rows: int) -> tuple[pa.Table, bool]:
        if self._table is not None:
            return self._table.slice(0, rows), self._table.num_rows <= rows
        if self._started:
            return self._schema.empty_table(), False
        taken: list[pa.RecordBatch] = []
        while sum(batch.num_rows for batch in taken) <= rows:
            batch = next(self._batches, None)
            if batch is None:
                break
            taken.append(batch)
        self._batches = chain(taken, self._batches)
        table = pa.Table.from_batches(taken, self._schema)
        return table.slice(0, rows), table.num_rows <= rows

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name} {field.type}" for field in self._schema)
        rows = "" if self._table is None else f", {self._table.num_rows} rows"
        return f"<chronicle.Result ({columns}){rows}>"


def _tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [_python_values(column) for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def _python_values(column: pa.ChunkedArray) -> list[Any]:
    type_ = column.type
    if pa.types.is_timestamp(type_):
        return _moments(column)
    if pa.types.is_interval(type_):
        return [
            None
            if value is None
            else dt.timedelta(
                days=value.months * 30 + value.days, microseconds=value.nanoseconds // 1000
            )
            for value in column.to_pylist()
        ]
    return list(column.to_pylist())


def _moments(column: pa.ChunkedArray) -> list[Any]:
    type_ = column.type
    if type_.unit == "ns":
        try:
            return list(column.cast(pa.timestamp("us", type_.tz)).to_pylist())
        except (pa.ArrowInvalid, ValueError, OverflowError):
            return [_moment(scalar) for scalar in column]
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):
        return [_moment(scalar) for scalar in column]


def _moment(scalar: pa.Scalar) -> Any:
    try:
        if scalar.type.unit == "ns":
            return scalar.cast(pa.timestamp("us", scalar.type.tz)).as_py()
        return scalar.as_py()
    except (pa.ArrowInvalid, ValueError, OverflowError):
        return scalar


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
