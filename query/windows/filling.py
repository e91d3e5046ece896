"""Gap filling: adds rows for empty windows.

============  ================================================================================
``null``      what aggregates have over no events: counts 0, everything else NULL
``previous``  the previous row of the key; NULL before the first
``linear``    interpolated by window start between the previous and the next row of the key;
              integers are rounded; NULL at both ends and for non-numbers
a number      that number in numeric columns; else NULL
============  ================================================================================

Counts are always 0.  All input rows are held, because every key is in every window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.sorting import firsts
from ...core.times import INT64_MAX
from ...errors import InvalidArgument, ResourceLimit
from ...formats.kinds import is_number
from ..pattern.columns import KeyCodes, flat
from .aggregation import times_array
from .spec import Calendar, TimeWindows

Ticks = npt.NDArray[np.int64]
Grid = TimeWindows | Calendar

CHUNK_ROWS = 1 << 16
ROWS_MAX = 10_000_000
HELD_BYTES_MAX = 1 << 30


@dataclass(frozen=True)
class Fill:
    """Fill mode: ``null``, ``previous``, ``linear`` or ``value``."""

    how: str
    value: int | float | Decimal | None = None

    def __str__(self) -> str:
        return self.how if self.value is None else str(self.value)


@dataclass
class Filler:
    """Adds rows to rows in window order; InvalidArgument if the fill value does not fit."""

    fill: Fill
    schema: pa.Schema
    keys: int
    counts: Sequence[bool]
    _values: list[pa.Scalar | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        for column in list(self.schema)[2 + self.keys :]:
            value = None
            if self.fill.how == "value" and is_number(column.type):
                try:
                    given = self.fill.value
                    if isinstance(given, int) and abs(given) > INT64_MAX:
                        given = Decimal(given)
                    value = pa.scalar(given).cast(column.type)
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                    raise InvalidArgument(
                        f"fill => {self.fill.value} does not fit the type of an aggregate, "
                        f"{column.type}; cast what is aggregated to DOUBLE, or fill with another"
                    ) from None
            self._values.append(value)

    def batches(
        self, grid: Grid, rows: pa.Table, first: int | None, upto: int | None
    ) -> Iterator[pa.RecordBatch]:
        """The rows, and those of windows between them, from tick ``first`` and to tick ``upto``."""
        if not rows.num_rows and (self.keys or first is None or upto is None):
            return
        numbers = self._numbers(grid, rows)
        edges = [self._number(grid, tick) for tick in (first, upto) if tick is not None]
        if len(numbers):
            edges += [int(numbers[0]), int(numbers[-1])]
        codes = np.zeros(len(numbers), np.int64)
        if self.keys:
            codes = KeyCodes(self.keys).encode([flat(c) for c in rows.columns[2 : 2 + self.keys]])
        yield from self._filled(grid, rows, numbers, codes, min(edges), max(edges))

    def _filled(
        self, grid: Grid, rows: pa.Table, numbers: Ticks, codes: Ticks, begin: int, end: int
    ) -> Iterator[pa.RecordBatch]:
        keys = int(codes.max()) + 1 if len(codes) else 1
        span = end - begin + 1
        if span * keys > ROWS_MAX:
            each = f" for {keys:,} keys" if self.keys else ""
            raise ResourceLimit(
                f"filling would give {span * keys:,} rows, a window each{each}, and {ROWS_MAX:,} "
                "are the most: narrow the range of time in WHERE, or take longer windows"
            )
        own = np.full((span, keys), -1, np.int32)
        own[numbers - begin, codes] = np.arange(len(numbers))
        before = np.maximum.accumulate(own)  # rows are in window order
        behind = np.where(own < 0, len(numbers), own)[::-1]
        behind = np.minimum.accumulate(behind)[::-1]
        _, of_key = firsts(codes) if len(codes) else (None, np.zeros(1, np.int64))
        step = max(1, CHUNK_ROWS // keys)
        for low in range(0, span, step):
            there = own[low : low + step].ravel()
            missing = there < 0
            neighbours = tuple(
                _index(each[low : low + step].ravel(), missing, len(numbers))
                for each in (before, behind)
            )
            window = np.repeat(np.arange(begin + low, begin + low + len(there) // keys), keys)
            key = np.tile(of_key, len(there) // keys)
            yield self._chunk(grid, rows, window, key, there, neighbours)

    def _chunk(
        self,
        grid: Grid,
        rows: pa.Table,
        window: Ticks,
        key: Ticks,
        there: npt.NDArray[np.int32],
        neighbours: tuple[pa.Array, ...],
    ) -> pa.RecordBatch:
        """Rows by window and key: row ``there[i]``, or -1 and the rows before and behind it."""
        start, end = grid.bounds(window)
        time = self.schema.field(0).type
        arrays = [times_array(start, time), times_array(end, time)]
        arrays += [_taken(rows.column(2 + i), pa.array(key)) for i in range(self.keys)]
        own, seen = pa.array(there, mask=there < 0), pa.array(there >= 0)
        for i, counts in enumerate(self.counts):
            column = rows.column(2 + self.keys + i)
            values = _taken(column, own)
            if own.null_count:
                if counts:
                    values = pc.fill_null(values, pa.scalar(0, values.type))
                elif self.fill.how == "previous":
                    values = pc.if_else(seen, values, _taken(column, neighbours[0]))
                elif self.fill.how == "linear" and is_number(column.type):
                    between = self._between(rows, column, start, neighbours)
                    values = pc.if_else(seen, values, between)
                elif self._values[i] is not None:
                    values = pc.if_else(seen, values, self._values[i])
            arrays.append(values)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _between(
        self, rows: pa.Table, column: pa.ChunkedArray, start: Ticks, ends: tuple[pa.Array, ...]
    ) -> pa.Array:
        values, times = [], []
        for end in ends:
            value = _taken(column, end).cast(pa.float64())
            values.append(value.to_numpy(zero_copy_only=False))
            when = _taken(rows.column(0), end).cast(pa.int64()).fill_null(0)
            times.append(when.to_numpy())
        (one, other), (since, until) = values, times
        with np.errstate(invalid="ignore", divide="ignore"):
            share = (start - since) / (until - since)
            made = one + (other - one) * share
        missing = np.asarray(_taken(column, ends[0]).is_null())
        missing |= np.asarray(_taken(column, ends[1]).is_null())
        if pa.types.is_floating(column.type):
            return pa.array(made, mask=missing).cast(column.type)
        whole = pa.array(np.rint(np.where(missing, 0, made)), mask=missing)
        if pa.types.is_decimal(column.type):
            return whole.cast(column.type)
        return whole.cast(column.type, safe=False)

    def _numbers(self, grid: Grid, rows: pa.Table) -> Ticks:
        ticks = rows.column(0).cast(pa.int64()).combine_chunks().to_numpy()
        numbers: Ticks = grid.windows_of(ticks)[1]
        return numbers

    @staticmethod
    def _number(grid: Grid, tick: int) -> int:
        return int(grid.windows_of(np.array([tick], np.int64))[1][0])


def _index(rows: npt.NDArray[np.int32], missing: npt.NDArray[np.bool_], count: int) -> pa.Array:
    return pa.array(rows, mask=~missing | (rows < 0) | (rows == count))


def _taken(column: pa.ChunkedArray, index: pa.Array) -> pa.Array:
    taken = column.take(index)
    return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken
