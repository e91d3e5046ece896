"""Output of MATCH_SITUATIONS: order, partition keys and measures of matches.

Matches are passed to the measures of row patterns as one run of rows per name whose rows are read;
with EMIT ON DETECTION a run extends to the instant of the match::

    names           A            B
    rows            7  8  9 | 9 10 11       rows of the partition, by their place in it
    index in match  0  1  2 | 3  4  5
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import kernel
from ..pattern.binding import Given
from ..pattern.columns import flat, numbers
from ..pattern.compiled import MatchLimits
from ..pattern.groups import group_rows
from ..pattern.matches import Matches
from ..pattern.measures import Context, OutputRows, measure_columns
from .compiled import CompiledSituations
from .deriving import Derived, Partitions
from .matching import Found
from .measures import FoundMatches, match_values

__all__ = ["Results"]

IntArray = npt.NDArray[np.int64]
ROWS_AT_ONCE = 1 << 16


@kernel
def _locate(group, first, last, instant, offsets, sequence, time, row, length):  # type: ignore[no-untyped-def]
    """First row of each run among the rows by partition, and its number of rows."""
    for i in range(group.shape[0]):
        stop = offsets[group[i] + 1]
        low = offsets[group[i]]
        high = stop
        while low < high:
            middle = (low + high) >> 1
            if sequence[middle] < first[i]:
                low = middle + 1
            else:
                high = middle
        row[i] = low
        high = stop
        while low < high:  # the first row after it
            middle = (low + high) >> 1
            if sequence[middle] <= last[i] and time[middle] <= instant[i]:
                low = middle + 1
            else:
                high = middle
        length[i] = low - row[i]


class Results:
    def __init__(self, compiled: CompiledSituations, limits: MatchLimits) -> None:
        self.compiled = compiled
        self.limits = limits
        self.schema = compiled.output_schema
        self.places = {name: i for i, name in enumerate(compiled.names)}
        self.measured = [n for n in compiled.names if n in compiled.measured_names]
        names = {compiled.time, *compiled.measured_columns}
        self.columns = [n for n in compiled.columns.arrow.names if n in names]
        fields = [compiled.columns.arrow.field(name) for name in self.columns]
        self.rows = pa.schema(fields).empty_table()
        self.codes: IntArray = np.zeros(0, np.int64)
        self.sequence: IntArray = np.zeros(0, np.int64)
        self._sorted: tuple[pa.Table, IntArray, IntArray, IntArray] | None = None

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes)

    def add_rows(self, rows: pa.Table, derived: Derived) -> None:
        self._sorted = None
        if not self.measured or not rows.num_rows:
            return
        count = rows.num_rows
        codes = np.zeros(count, np.int64) if derived.codes is None else derived.codes
        self.rows = pa.concat_tables([self.rows, rows.select(self.columns)])
        self.codes = np.concatenate([self.codes, codes])
        self.sequence = np.concatenate(
            [self.sequence, np.arange(derived.base, derived.base + count)]
        )

    def forget(self, oldest: IntArray | None) -> None:
        if oldest is None or not len(self.codes):
            return
        kept = self.sequence >= oldest[self.codes]
        self._sorted = None
        self.rows = self.rows.filter(pa.array(kept)).combine_chunks()
        self.codes, self.sequence = self.codes[kept], self.sequence[kept]

    def rows_of(self, found: Found, keys: Partitions) -> Iterator[pa.RecordBatch]:
        order = self._order(found, keys)
        for begin in range(0, len(order), ROWS_AT_ONCE):
            yield self._batch(found, order[begin : begin + ROWS_AT_ONCE], keys)

    def _order(self, found: Found, keys: Partitions) -> IntArray:
        by = [found.starts[:, i] for i in range(found.starts.shape[1] - 1, -1, -1)]
        if keys.columns:
            groups, place = np.unique(found.group, return_inverse=True)
            by.append(keys.ranks(groups)[place])
        return np.asarray(np.lexsort([*by, found.instant]), np.int64)

    def _batch(self, found: Found, chosen: IntArray, keys: Partitions) -> pa.RecordBatch:
        group = found.group[chosen]
        values = FoundMatches(
            found.starts[chosen], found.ends[chosen], found.lasting[chosen], found.instant[chosen],
            found.detected[chosen],
        )  # fmt: skip
        partition = keys.values(group)

        def given(leaf: Given) -> pa.Array:
            return match_values(leaf, values, self.places, self.compiled.identity, partition)

        matches, table, offsets = self._matches(found, chosen)
        context = Context(
            matches, OutputRows(np.arange(len(chosen)), matches.length - 1),
            lambda name, indices: flat(table.column(name)).take(indices), offsets[group],
            offsets[group + 1], ["", *self.measured], given,
        )  # fmt: skip
        measures = measure_columns(
            self.compiled.measures, context, self.compiled.types, self.compiled.clause.sql
        )
        columns = [*(flat(column) for column in partition.columns), *measures]
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _matches(self, found: Found, chosen: IntArray) -> tuple[Matches, pa.Table, IntArray]:
        group = found.group[chosen]
        if self._sorted is None:
            self._sorted = self._by_partition(int(found.group.max()) + 1)
        table, sequence, time, offsets = self._sorted
        count, names = len(chosen), len(self.measured)
        none = np.zeros(0, np.int64)
        if not names:
            zeros = np.zeros(count, np.int64)
            runs = np.zeros(count + 1, np.int64)
            return Matches(group, zeros, zeros, zeros, runs, none, none, none), table, offsets
        places = [self.places[name] for name in self.measured]
        row, length = np.empty(count * names, np.int64), np.empty(count * names, np.int64)
        _locate(
            np.repeat(group, names), found.first[chosen][:, places].ravel(),
            found.last[chosen][:, places].ravel(), np.repeat(found.instant[chosen], names),
            offsets, sequence, time, row, length,
        )  # fmt: skip
        lengths = length.reshape(count, names)
        begin = np.cumsum(lengths, axis=1) - lengths
        matches = Matches(
            group, row.reshape(count, names)[:, 0].copy(), lengths.sum(axis=1),
            np.zeros(count, np.int64), np.arange(count + 1) * names, row, begin.ravel(),
            np.tile(np.arange(1, names + 1), count),
        )  # fmt: skip
        return matches, table, offsets

    def _by_partition(self, groups: int) -> tuple[pa.Table, IntArray, IntArray, IntArray]:
        groups = max(groups, int(self.codes.max(initial=0)) + 1)
        order, offsets = group_rows(self.codes, groups)
        ticks, _ = numbers(flat(self.rows.column(self.compiled.time)), "i")
        time = np.asarray(ticks, np.int64)[order]
        table = self.rows.take(pa.array(order)).combine_chunks()
        return table, self.sequence[order], time, offsets


def measured_types(compiled: CompiledSituations) -> list[pa.DataType]:
    """Types of the measures, from an evaluation over no matches."""
    none, table = np.zeros(0, np.int64), np.zeros((0, len(compiled.names)), np.int64)
    nothing = FoundMatches(table, table, table != 0, none, none)
    places = {name: i for i, name in enumerate(compiled.names)}
    rows = compiled.columns.arrow.empty_table()
    context = Context(
        Matches(none, none, none, none, np.zeros(1, np.int64), none, none, none),
        OutputRows(none, none), lambda name, indices: flat(rows.column(name)).take(indices), none,
        none, ["", *compiled.names],
        lambda leaf: match_values(leaf, nothing, places, b"", rows.select([])),
    )  # fmt: skip
    return [
        values.type
        for values in measure_columns(
            compiled.measures, context, compiled.types, compiled.clause.sql
        )
    ]
