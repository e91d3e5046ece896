"""Sinks: changelog streams of live queries.

::

    _time   of the result: the greatest time that counts     the stream's time attribute
    _seq    1, 2, ... in the order of emission                where a reader continues
    _id     identity of the result, 16 bytes
    _rev    0, 1, ...: its revisions
    _diff   +1 added, -1 retracted                            absent if nothing is ever retracted
    _query  name of the live query                            only in a shared sink
    ...     the query's columns

A query's ``Mark`` is in the same commit as its results.  ``_seq`` has no gaps or duplicates.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.json_text import is_json, read_json
from ..core.times import INT64_MAX, INT64_MIN
from ..errors import InvalidArgument, InvalidData, ResourceLimit, UnsupportedType
from ..query.binding.net_binding import CHANGELOG, DIFFERENCE
from ..schema import StreamSchema
from ..store import EventStream, Range, Snapshot, StreamReader
from ..store.tail import ticks_of_column
from .changes import Changes, Said
from .recollection import ROWS_MAX, Recollection, RecollectionBudget
from .removals import Removals

__all__ = [
    "OWNER",
    "Mark",
    "Sink",
    "SinkReader",
    "leave_marks",
    "put_together",
    "sink_schema",
]

OWNER = "live"
QUERY = "_query"
CHUNK = 1 << 16
SEQUENCE = ""
"""Name of the mark with the next ``_seq``."""


@dataclass(frozen=True)
class Mark:
    """Progress of a live query: processed commits by source, watermark, and events up to it
    (including removed ones).  ``windows``: number of the next count window; ``group``: mark in the
    same sink that counts for this one where it is further.
    """

    positions: Mapping[str, int] = dataclasses.field(default_factory=dict)
    watermark: int | None = None
    events: Mapping[str, int] = dataclasses.field(default_factory=dict)
    windows: int = 0
    step: int = 0
    rows: int = 0
    retractions: int = 0
    late: int = 0
    ignored: int = 0
    group: str = ""

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "positions": dict(self.positions), "events": dict(self.events)}

    @classmethod
    def of(cls, found: Mapping[str, Any], sources: Sequence[str]) -> Mark:
        """Read a mark, also in the earlier format with a single source."""
        known = dict(found)
        if "position" in known:
            known["positions"] = {sources[0]: known.pop("position")}
            known["events"] = {sources[0]: known["events"]}
        return cls(**known)


def sink_schema(
    time: pa.DataType, fields: Sequence[pa.Field], *, revokes: bool, shared: bool
) -> StreamSchema:
    """Schema of a sink; InvalidArgument for a name clash, UnsupportedType for a column."""
    own = [
        pa.field("_time", time, nullable=False),
        pa.field("_seq", pa.int64(), nullable=False),
        pa.field("_id", pa.binary(), nullable=False),
        pa.field("_rev", pa.int32(), nullable=False),
    ]
    if revokes:
        own.append(pa.field(DIFFERENCE, pa.int8(), nullable=False))
    if shared:
        own.append(pa.field(QUERY, pa.string(), nullable=False))
    taken = {name.lower() for name in (*CHANGELOG, DIFFERENCE, QUERY)}
    for field in fields:
        if field.name.lower() in taken:
            raise InvalidArgument(
                f"two columns of the results would be called {field.name!r}; give one an alias"
            )
        taken.add(field.name.lower())
    for field in fields:
        if pa.types.is_nested(field.type):
            raise UnsupportedType(
                f"column {field.name!r} of the results is a {field.type}, and rows with lists or "
                "structs have no identity; cast that column in the SELECT"
            )
    try:
        return StreamSchema(pa.schema([*own, *fields]), "_time")
    except UnsupportedType as error:
        raise UnsupportedType(f"{error}; cast that column in the SELECT") from None


class SinkReader:
    """Reader of one live query's output."""

    def __init__(
        self, stream: EventStream | StreamReader, query: str, columns: tuple[str, ...]
    ) -> None:
        self._source = stream
        self.query = query
        self.columns = columns
        self.revokes = DIFFERENCE in stream.schema
        self.shared = QUERY in stream.schema

    @property
    def schema(self) -> StreamSchema:
        return self._source.schema

    def snapshot(self) -> Snapshot:
        if isinstance(self._source, StreamReader):
            self._source.refresh()
        return self._source.snapshot()

    def said(self, low: int, high: int) -> Said:
        return self._fold(self._own_changes(low, high))

    def _own_changes(self, low: int, high: int) -> pa.Table:
        changes = self._changes(low, high)
        return changes.filter(pc.field(QUERY) == self.query) if self.shared else changes

    def said_of(self, ids: pa.Array, low: int, high: int) -> Said:
        return self.said(low, high).named(ids)

    def said_of_all(self, low: int, high: int) -> Callable[[str], Said]:
        """As ``said`` for every query of a shared sink, reading it once."""
        changes = self._changes(low, high)
        if not self.shared:
            return lambda _: self._fold(changes)
        coded = pc.dictionary_encode(changes.column(QUERY).combine_chunks())
        number = {name: i for i, name in enumerate(coded.dictionary.to_pylist())}
        codes = coded.indices.to_numpy(zero_copy_only=False)
        order = np.argsort(codes, kind="stable")
        ends = np.searchsorted(codes[order], np.arange(len(number) + 1))

        def said(query: str) -> Said:
            at = number.get(query)
            mine = order[:0] if at is None else order[ends[at] : ends[at + 1]]
            return self._fold(changes.take(pa.array(mine, pa.int64())))

        return said

    def _changes(self, low: int, high: int) -> pa.Table:
        names = ["_time", "_id", "_rev", *self.columns]
        names += [DIFFERENCE] if self.revokes else []
        names += [QUERY] if self.shared else []
        end = None if high >= 2**63 - 1 else high + 1
        fields = [self._source.schema.arrow.field(name) for name in names]
        return pa.Table.from_batches(self.snapshot().scan(low, end, names), pa.schema(fields))

    def _fold(self, table: pa.Table) -> Said:
        return Said.of(self._whole(table), self.columns)

    def _whole(self, table: pa.Table) -> pa.RecordBatch:
        whole = table.combine_chunks().to_batches()
        changes = whole[0] if whole else pa.RecordBatch.from_pylist([], schema=table.schema)
        if not self.revokes:
            ones = pa.array(np.ones(changes.num_rows, np.int8))
            changes = changes.append_column(DIFFERENCE, ones)
        return changes

    def rows(self, after: int) -> Iterator[pa.RecordBatch]:
        """This query's changes after a ``_seq``, in order."""
        while True:
            snapshot = self.snapshot()
            found = snapshot.aggregate(["_seq"])["_seq"].max
            if found is None or int(found) <= after:
                return
            upto = min(int(found), after + CHUNK)
            wanted = (pc.field("_seq") > after) & (pc.field("_seq") <= upto)
            if self.shared:
                wanted &= pc.field(QUERY) == self.query
            batches = list(snapshot.scan(prune=Range("_seq", after + 1, upto), filter=wanted))
            table = pa.Table.from_batches(batches, self._source.schema.arrow)
            for batch in table.sort_by("_seq").combine_chunks().to_batches():
                if batch.num_rows:
                    yield batch
            after = upto


class Sink(SinkReader):
    """Sink of a running query; with a ``budget``, recent output is cached."""

    def __init__(
        self,
        stream: EventStream,
        query: str,
        columns: tuple[str, ...],
        budget: RecollectionBudget | None = None,
    ) -> None:
        super().__init__(stream, query, columns)
        self.stream = stream
        self._budget = budget
        self._known: Recollection | None = None
        self._noted_schema: StreamSchema | None = None
        self._gone = Removals(0, 0, 0, 0)
        self.numbered = (-1, 1)
        """A commit by this sink and the ``_seq`` that follows it."""
        self._woken = threading.Condition()
        self._ended = False

    def mark(self, sources: Sequence[str]) -> Mark | None:
        found = self.stream.marks().get(self.query)
        return None if found is None else Mark.of(found, sources)

    # -- what was said ----------------------------------------------------------------------------

    @property
    def stored(self) -> SinkReader:
        return SinkReader(self.stream, self.query, self.columns)

    def said(self, low: int, high: int) -> Said:
        known = self._recollected(low)
        return super().said(low, high) if known is None else known.said(low, high)

    def said_of(self, ids: pa.Array, low: int, high: int) -> Said:
        known = self._recollected(low)
        return super().said_of(ids, low, high) if known is None else known.said_of(ids, low, high)

    def _recollected(self, low: int) -> Recollection | None:
        """The cache from ``low`` on, built if necessary; None if too large."""
        if self._budget is None:
            return None
        snapshot = self.stream.snapshot()
        state, known = snapshot.state, self._known
        if (
            known is None
            or known.since > low
            or state.schema != self._noted_schema
            or not self._gone.spare(state, known.since)
        ):
            newest = low if state.last is None else max(low, state.last)
            since = max(INT64_MIN, low - (newest - low))  # twice as far back, for later calls
            if snapshot.aggregate((), since, None).count > ROWS_MAX // 2:
                self.forget()
                return None
            known = Recollection(since, [self.schema.arrow.field(name) for name in self.columns])
            changes = self._whole(self._own_changes(since, INT64_MAX))
            known.note(
                ticks_of_column(changes.column("_time")), changes.column("_id"),
                changes.column("_rev").to_numpy(zero_copy_only=False).astype(np.int64),
                changes.column(DIFFERENCE).to_numpy(zero_copy_only=False).astype(np.int64),
                changes.select(list(self.columns)),
            )  # fmt: skip
            self._known = known
            self._noted_schema, self._gone = state.schema, Removals.of(state)
            self._budget.hold(self, known.nbytes)
        return known

    def noted(self, changes: Changes, batch: pa.RecordBatch) -> None:
        known, results = self._known, changes.results
        if known is not None and self._budget is not None:
            rows = batch.select(list(self.columns))
            known.note(results.time, results.id, changes.revision, changes.sign, rows)
            self._budget.hold(self, known.nbytes)

    def forget(self) -> None:
        self._known = None
        if self._budget is not None:
            self._budget.release(self)

    # -- putting out ------------------------------------------------------------------------------

    def put(self, changes: Changes | None, mark: Mark | None) -> None:
        """Commit a step's changes and mark; None removes the mark."""
        put_together(self.stream, [(self, changes, mark)])

    def batch(self, changes: Changes, first: int) -> pa.RecordBatch:
        results, count = changes.results, len(changes)
        schema = self.stream.schema
        own: dict[str, Any] = {
            "_time": pa.array(results.time).cast(schema.time_type),
            "_seq": pa.array(np.arange(first, first + count)),
            "_id": results.id,
            "_rev": pa.array(changes.revision.astype(np.int32)),
            DIFFERENCE: pa.array(changes.sign.astype(np.int8)),
            QUERY: pa.repeat(pa.scalar(self.query), count),
        }
        arrays = []
        for name in schema.names:
            if name in self.columns:
                arrays.append(_as(results.columns.column(name), schema.arrow.field(name)))
            else:
                arrays.append(own[name])
        return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)

    def following(self, after: int, closed: threading.Event) -> Iterator[pa.RecordBatch]:
        """As ``rows``, then new changes until ``closed`` is set or ``end`` is called."""
        self.stream.subscribe(self._committed)
        try:
            while True:
                position = self.stream.snapshot().version
                for batch in self.rows(after):
                    after = batch.column("_seq")[-1].as_py()
                    yield batch
                with self._woken:
                    while self.stream.snapshot().version == position:
                        if closed.is_set() or self._ended:
                            return
                        self._woken.wait()
        finally:  # also when the generator is closed
            self.stream.unsubscribe(self._committed)

    def _committed(self, _: object) -> None:
        self.wake()

    def wake(self) -> None:
        with self._woken:
            self._woken.notify_all()

    def end(self) -> None:
        """Let followers finish after the existing rows."""
        with self._woken:
            self._ended = True
            self._woken.notify_all()


def put_together(
    stream: EventStream,
    parts: Sequence[tuple[Sink, Changes | None, Mark | None]],
    marks: Mapping[str, Any] | None = None,
) -> None:
    """Commit changes and marks of several live queries in one sink."""
    with stream.quiet():  # numbers follow the order of commits
        left: dict[str, Any] = dict(marks or {})
        batches: list[pa.RecordBatch] = []
        told: list[tuple[Sink, Changes, pa.RecordBatch]] = []
        first = None
        for sink, changes, mark in parts:
            left[sink.query] = None if mark is None else mark.to_json()
            if changes is not None and len(changes):
                first = _next(stream, sink) if first is None else first
                batches.append(sink.batch(changes, first))
                told.append((sink, changes, batches[-1]))
                first += len(changes)
        if first is not None:
            left[SEQUENCE] = first
        table = pa.Table.from_batches(batches, stream.schema.arrow).combine_chunks()
        try:
            stream.append(table, owner=OWNER, marks=left)
        except BaseException:  # the commit may or may not have happened
            for sink, _, _ in told:
                sink.forget()
            raise
        if first is not None:
            version = stream.snapshot().version
            for sink, _, _ in told:
                sink.numbered = version, first
        for each in told:
            each[0].noted(*each[1:])


def leave_marks(stream: EventStream, marks: Mapping[str, Any]) -> None:
    """Write marks without results; not durable, so a crash may lose them."""
    nothing = stream.schema.arrow.empty_table()
    stream.append(nothing, durability="none", owner=OWNER, marks=marks)


def _next(stream: EventStream, sink: Sink) -> int:
    if sink.numbered[0] == stream.snapshot().version:
        return sink.numbered[1]
    told = int(stream.marks().get(SEQUENCE, 1))
    newest = stream.snapshot().aggregate(["_seq"])["_seq"].max
    return max(told, 1 if newest is None else int(newest) + 1)


def _as(column: pa.ChunkedArray, field: pa.Field) -> pa.Array:
    if is_json(field.type) and not is_json(column.type):
        found = read_json(pa.concat_arrays(getattr(column, "chunks", None) or [column]))
        if found.faults is not None:
            raise InvalidData(f"a value of column {field.name!r} is no JSON; cast it in the SELECT")
        return found.values
    if column.type != field.type:
        try:
            column = column.cast(field.type)
        except pa.ArrowInvalid as error:
            raise ResourceLimit(
                f"a value of column {field.name!r} does not fit the type that it has in the sink, "
                f"{field.type} ({error}); cast it in the SELECT, to DECIMAL(38, 0) for instance"
            ) from None
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
