"""Result tables of matches, for ``match_stream`` and ``advancing``, and identities of their events.

An event is identified by partition, tick, and *rank* among the partition's events of that tick in
arrival order, which no later event changes.  The input must be ordered by time and contain all rows
of a tick or none::

    MATCH_ID()      one match at a time    digest of the partition and the first event
                    EVENT SELECTION        digest of the partition and all events
    MATCH_TIME()    the time of the last event; of an empty match, of its position
    MATCH_EVENT()   tick and rank of the event of an output row, 16 bytes
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.identity import digests, event_bytes
from ...errors import ResourceLimit
from ..sql.pattern_tree import position_error
from .binding import IDENTITIES, Bound, Given
from .columns import KeyCodes, flat, numbers, ranks
from .matches import Matches
from .measures import Context, OutputRows, measure_columns

if TYPE_CHECKING:
    from .compiled import CompiledMatch

IntArray = npt.NDArray[np.int64]
RANK = "@rank"
NOTHING_WANTED = "@row"
"""A column of nulls in place of columns, where rows are only counted."""


@dataclass(frozen=True)
class Naming:
    """How matches are identified; ``every_event``: matches may share their first event."""

    seed: bytes
    partition_by: tuple[str, ...]
    time: str
    every_event: bool


def naming_of(
    measures: Sequence[Bound],
    seed: bytes,
    partition_by: tuple[str, ...],
    time: str,
    selection: str | None,
) -> Naming | None:
    functions = {leaf.function for leaf, _ in _identities(measures)}
    every = "match_id" in functions and selection is not None
    return Naming(seed, partition_by, time, every) if functions else None


def check_identities(measures: Sequence[Bound], sql: str, ordered: bool) -> None:
    """Refuse identities where events are not in time order: ranks count arrivals."""
    for leaf, at in () if ordered else _identities(measures):
        raise position_error(
            f"{leaf.function.upper()}() needs events in the order of time: match a stream, ordered "
            "by its time",
            sql,
            at,
        )


def _identities(measures: Sequence[Bound]) -> list[tuple[Given, int]]:
    return [
        (leaf, bound.at)
        for bound in measures
        for leaf in bound.leaves
        if isinstance(leaf, Given) and leaf.function in IDENTITIES
    ]


class EventRanks:
    def __init__(self, naming: Naming) -> None:
        self._naming = naming
        self._keys = KeyCodes(len(naming.partition_by))
        self._tick: IntArray = np.zeros(0, np.int64)  # newest tick of each partition
        self._rank: IntArray = np.zeros(0, np.int64)  # rank of its newest event

    def ranked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        codes = self._keys.of_rows(pa.Table.from_batches([batch]), self._naming.partition_by)
        ticks = batch.column(self._naming.time)
        return batch.append_column(RANK, self._ranks(ticks, codes, self._keys.count))

    def beside(self, table: pa.Table, codes: IntArray | None, total: int) -> pa.Table:
        """Rows with their ranks; ``codes``: partition of each row, None if there is only one."""
        ticks = flat(table.column(self._naming.time))
        return table.append_column(RANK, self._ranks(ticks, codes, total))

    def _ranks(self, column: pa.Array, codes: IntArray | None, total: int) -> pa.Array:
        ticks, _ = numbers(flat(column), "i")
        grown = total - len(self._tick)
        if grown > 0:
            self._tick = np.concatenate([self._tick, np.zeros(grown, np.int64)])
            self._rank = np.concatenate([self._rank, np.full(grown, -1)])
        out = np.empty(len(ticks), np.int64)
        if codes is None:
            codes = np.zeros(len(ticks), np.int64)
        ranks(codes, np.ascontiguousarray(ticks, np.int64), self._tick, self._rank, out)
        return pa.array(out)


@dataclass(frozen=True)
class Identities:
    """Identity functions for a batch of matches; ``index``: row in the match, -1 if empty."""

    naming: Naming
    matches: Matches
    match: IntArray
    index: IntArray
    take: Callable[[str, pa.Array], pa.Array]

    def __call__(self, leaf: Given) -> pa.Array:
        matches, match = self.matches, self.match
        if leaf.function == "match_time":
            return self.take(self.naming.time, pa.array(matches.last_row)).take(pa.array(match))
        if leaf.function == "match_event":
            at = matches.start[match]
            inside = self.index >= 0
            at[inside] = matches.rows[matches.first[match[inside]] + self.index[inside]]
            return event_bytes(*self._events(at), np.arange(len(at) + 1)).cast(pa.binary())
        columns = [self.take(name, pa.array(matches.start)) for name in self.naming.partition_by]
        if self.naming.every_event:
            columns.append(event_bytes(*self._events(matches.rows), matches.first))
        else:
            columns += [pa.array(part) for part in self._events(matches.start)]
        return digests(self.naming.seed, columns).take(pa.array(match))

    def _events(self, at: IntArray) -> tuple[IntArray, IntArray]:
        rows = pa.array(at)
        tick = numbers(flat(self.take(self.naming.time, rows)), "i")[0].astype(np.int64)
        return tick, self.take(RANK, rows).to_numpy(zero_copy_only=False)


class Results:
    """Result rows of one clause; ``take``: values of a column at row numbers (null for null),
    ``take_key``: of a key, or what is put out in their place.
    """

    def __init__(
        self,
        compiled: CompiledMatch,
        take: Callable[[str, pa.Array], pa.Array],
        naming: Naming | None = None,
        take_key: Callable[[str, pa.Array], pa.Array] | None = None,
    ) -> None:
        self.compiled = compiled
        self.take = take
        self.take_key = take_key or take
        self.naming = naming
        self.mode = compiled.clause.rows

    def of(
        self, matches: Matches, begin: IntArray, end: IntArray
    ) -> tuple[IntArray, IntArray, pa.Table]:
        """Match and row of each output row, and the table; ``begin``, ``end``: of partitions."""
        match, index, row = self.rows(matches)
        context = Context(
            matches, OutputRows(match, index), self.take, begin, end,
            self.compiled.automaton.names, self._given(matches, match, index),
        )  # fmt: skip
        compiled = self.compiled
        measures = measure_columns(
            compiled.measures, context, compiled.type_of, compiled.clause.sql
        )
        return match, row, self._assemble(measures, pa.array(row))

    def _given(
        self, matches: Matches, match: IntArray, index: IntArray
    ) -> Callable[[Given], pa.Array] | None:
        if self.naming is None:
            return None
        return Identities(self.naming, matches, match, index, self.take)

    def unmatched(self, rows: IntArray) -> pa.Table:
        """Rows without a match; measures are null."""
        schema = self.compiled.output_schema
        nulls = [
            pa.nulls(len(rows), schema.field(measure.name).type)
            for measure in self.compiled.clause.measures
        ]
        return self._assemble(nulls, pa.array(rows))

    def rows(self, matches: Matches) -> tuple[IntArray, IntArray, IntArray]:
        if self.mode == "one":
            return np.arange(len(matches.group)), matches.length - 1, matches.last_row
        excluded = np.array(self.compiled.automaton.excluded, np.bool_)
        places = (
            np.flatnonzero(~excluded[matches.places]) if len(matches.row) else np.zeros(0, np.int64)
        )
        match = np.searchsorted(matches.first, places, side="right") - 1
        index = places - matches.first[match]
        row = matches.rows[places]
        if self.mode != "all omit empty":
            empty = np.flatnonzero(matches.length == 0)
            if len(empty):
                match = np.concatenate([match, empty])
                index = np.concatenate([index, np.full(len(empty), -1)])
                row = np.concatenate([row, matches.start[empty]])
                arranged = np.argsort(match, kind="stable")
                match, index, row = match[arranged], index[arranged], row[arranged]
        return match, index, row

    def _assemble(self, measures: list[pa.Array], rows: pa.Array) -> pa.Table:
        compiled = self.compiled
        computed = {
            measure.name: values
            for measure, values in zip(compiled.clause.measures, measures, strict=True)
        }
        columns = {
            name: computed[name] if name in computed else self.take_key(name, rows)
            for name in compiled.output_names
        }
        if compiled.wanted == frozenset():
            return pa.table({NOTHING_WANTED: pa.nulls(len(rows))})
        if not columns:
            raise ResourceLimit("the clause has neither measures nor columns to put out")
        return pa.table(columns)
