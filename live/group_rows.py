"""Result rows for matches of a bank: one scan for all, then each query's SELECT."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.identity import digests
from ..core.native import kernel
from ..query.pattern.columns import take_ranges
from ..query.pattern.results import RANK
from ..store.snapshot import Snapshot
from ..store.tap import Spans, united
from .bank.arranged import Arranged
from .bank.matches import BankMatches
from .bank.partitions import Partitions
from .changes import Changes, Results, Said, difference, newly
from .combined import OneStream, fewer
from .late_history import LateHistory
from .pattern_form import PatternForm
from .query import LiveQuery

__all__ = ["SaidBy", "added_rows", "corrected_rows", "form_of_member", "rows_of", "span_of"]

IntArray = npt.NDArray[np.int64]


def form_of_member(query: LiveQuery) -> PatternForm:
    assert isinstance(query.form, OneStream)
    assert isinstance(query.form.form, PatternForm)
    return query.form.form


@kernel
def _places(offsets, tick, partition, wanted, rank, out):
    """Rows of events given by partition, tick and rank; ticks of a partition ascend."""
    for i in range(partition.shape[0]):
        left = offsets[partition[i]]
        right = offsets[partition[i] + 1]
        while left < right:
            middle = (left + right) // 2
            if tick[middle] < wanted[i]:
                left = middle + 1
            else:
                right = middle
        out[i] = left + rank[i]


@dataclass(frozen=True)
class _Events:
    table: pa.Table
    rank: IntArray
    order: IntArray
    first: IntArray
    end: IntArray


def _read(
    snapshot: Snapshot, matches: BankMatches, partition_by: list[str], columns: list[str]
) -> _Events:
    schema = snapshot.schema
    pairs = np.unique(np.stack([matches.first_tick, matches.last_tick], axis=1), axis=0)
    spans: Spans = united(tuple(zip(*pairs.T.tolist(), strict=True)))
    spans = fewer({"": snapshot}, spans)
    batches = [batch for low, high in spans for batch in snapshot.scan(low, high + 1, columns)]
    table = pa.Table.from_batches(batches, pa.schema([schema.arrow.field(n) for n in columns]))
    places = Partitions(schema.arrow, schema.time, partition_by)
    partition = np.zeros(len(matches), np.int64)
    if partition_by:
        partition = places.numbers_of(matches.keys)
    fresh, order = places.arrange(table)
    offsets = np.concatenate([[0], np.cumsum(places.count)]).astype(np.int64)
    first, last = np.empty((2, len(matches)), np.int64)
    _places(offsets, fresh.tick, partition, matches.first_tick, matches.first_rank, first)
    _places(offsets, fresh.tick, partition, matches.last_tick, matches.last_rank, last)
    return _Events(table, fresh.among, order, first, last + 1)


def _looked_up(history: Arranged, matches: BankMatches, columns: list[str]) -> _Events:
    partition = history.partitions.numbers_of(matches.keys)
    if not matches.keys.num_columns:
        partition = np.zeros(len(matches), np.int64)
    first = history.places(partition, matches.first_tick) + matches.first_rank
    last = history.places(partition, matches.last_tick) + matches.last_rank
    rows = history.read(partition, first, last + 1)
    table = history.table(columns, rows)
    every = np.arange(table.num_rows)
    return _Events(table, rows.among, every, rows.offsets[:-1], rows.offsets[1:])


def rows_of(
    matches: BankMatches,
    queries: Mapping[str, LiveQuery],
    snapshot: Snapshot,
    history: LateHistory,
) -> dict[str, Results | Exception]:
    """Results or the exception, by query; an error affects only its query."""
    if not len(matches):
        return {}
    asked = [queries[str(name)] for name in matches.names]
    schema, partition_by = snapshot.schema, list(matches.keys.schema.names)
    read = {c for q in asked for c in form_of_member(q).compiled.input_columns}
    columns = [n for n in schema.names if n in {*read, *partition_by, schema.time}]
    held = history.held(snapshot, int(matches.first_tick.min()), columns)
    if held is None:
        events = _read(snapshot, matches, partition_by, columns)
    else:
        events = _looked_up(held, matches, columns)
    found: dict[str, Results | Exception] = {}
    for i, query in enumerate(asked):
        mine = np.flatnonzero(matches.query == i)
        first, end = events.first[mine], events.end[mine]
        rows = take_ranges(first, end)
        table = events.table.take(pa.array(events.order[rows]))
        table = table.append_column(RANK, pa.array(events.rank[rows]))
        offsets = np.concatenate([[0], np.cumsum(end - first)]).astype(np.int64)
        try:
            found[str(matches.names[i])] = form_of_member(query).known(snapshot, table, offsets)
        except Exception as error:  # the other queries continue
            found[str(matches.names[i])] = error
    return found


def added_rows(query: LiveQuery, rows: Results, said: Said | None) -> Changes:
    """Changes for newly decided matches; ``said``: output that may already contain them."""
    rows = _wanted(query, rows)
    return Changes.added(rows) if said is None or not len(rows) else newly(rows, said)


def corrected_rows(
    query: LiveQuery,
    rows: Results,
    gone: BankMatches,
    found: BankMatches,
    floor: int,
    said: SaidBy,
) -> Changes:
    ids = pa.concat_arrays([_names(query, each) for each in (gone, found)])
    some = said.of(query, ids)
    some = some.where(some.net.time >= floor)
    rows = _wanted(query, rows)
    return difference(rows.where(rows.time >= floor), some)


class SaidBy:
    """Output of queries over a range of times; a shared sink is read once."""

    def __init__(self, low: int, high: int) -> None:
        self._range = low, high
        self._read: dict[int, Callable[[str], Said]] = {}

    def __call__(self, query: LiveQuery) -> Said:
        key = id(query.sink.stream)
        if key not in self._read:
            self._read[key] = query.sink.said_of_all(*self._range)
        return self._read[key](query.definition.name)

    def of(self, query: LiveQuery, ids: pa.Array) -> Said:
        if query.sink.shared:
            return self(query).named(ids)
        return query.sink.said_of(ids, *self._range)


def span_of(*parts: BankMatches) -> tuple[int, int]:
    some = [part for part in parts if len(part)]
    low = min(int(part.first_tick.min()) for part in some)
    return low, max(int(part.last_tick.max()) for part in some)


def _wanted(query: LiveQuery, rows: Results) -> Results:
    start = query.definition.start
    return rows if start is None else rows.where(rows.time >= start)


def _names(query: LiveQuery, matches: BankMatches) -> pa.Array:
    if not len(matches):
        return pa.array([], pa.binary())
    keys = [column.combine_chunks() for column in matches.keys.columns]
    events = [pa.array(matches.first_tick), pa.array(matches.first_rank)]
    return digests(form_of_member(query).compiled.seed, [*keys, *events]).cast(pa.binary())
