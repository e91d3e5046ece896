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

The recent output of a query is cached, by identity, to avoid reading the sink::

    identity --PairNumbers--> entry     last revision, newest row, latest time
                                |
    row   time, revision, entry, next older row of the entry; whether it holds
    and the result columns of each row, as stored in the sink

From ``Recollection.since`` on the cache equals the sink; a restart, a failure or any other change
of the sink invalidates it.  Retracted rows stay until compaction.  Beyond ``ROWS_MAX`` rows the
earlier half is dropped; the queries of a store share ``BYTES_MAX`` (LRU).  With ``store = false`` a
sink is in a temporary directory.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.identity import words_of
from ..core.json_text import is_json, read_json
from ..core.native import kernel
from ..core.pair_numbers import PairNumbers, Pairs
from ..core.sorting import distinct
from ..core.times import INT64_MAX, INT64_MIN
from ..errors import ChronicleError, InvalidArgument, InvalidData, ResourceLimit, UnsupportedType
from ..query.conditions.row_filters import PredicateFilter
from ..query.contract.catalog import LiveRequest
from ..query.relations import CHANGELOG, DIFFERENCE
from ..query.sql.dialect import error_at
from ..schema import StreamSchema
from ..store.files import ScratchFiles
from ..store.options import StreamOptions
from ..store.prune import AllOf, Prune, Range
from ..store.snapshot import Snapshot
from ..store.store import Store
from ..store.stream import EventStream, StreamReader
from ..store.tail import ticks_of_column
from .analysis import Analysed
from .changes import Changes, Emitted, Removals, Results
from .definition import LiveDefinition

# mypy: disable-error-code="no-untyped-def"


IntArray = npt.NDArray[np.int64]
ROWS_MAX = 1 << 17
ROWS_FEW = 1 << 12
BYTES_MAX = 64 << 20


@kernel
def _noted(entry, time, revision, sign, first, entries, rows, holds):
    """Apply changes in order of emission; returns the number of rows."""
    count = first
    for i in range(entry.shape[0]):
        e = entry[i]
        entries[e, 0] = max(entries[e, 0], revision[i])
        entries[e, 2] = max(entries[e, 2], time[i])
        if sign[i] > 0:
            rows[count, 0] = time[i]
            rows[count, 1] = revision[i]
            rows[count, 2] = e
            rows[count, 3] = entries[e, 1]
            holds[count] = True
            entries[e, 1] = count
            count += 1
            continue
        row = entries[e, 1]
        while row >= 0:
            if holds[row] and rows[row, 0] == time[i] and rows[row, 1] == revision[i]:
                holds[row] = False
                break
            row = rows[row, 3]
    return count


@kernel
def _holding(entry, entries, rows, holds, low, high, out):
    """Rows of entries that hold and have a time in a range; returns their number."""
    count = 0
    for i in range(entry.shape[0]):
        row = entries[entry[i], 1] if entry[i] >= 0 else np.int64(-1)
        while row >= 0:
            if holds[row] and low <= rows[row, 0] <= high:
                if count < out.shape[0]:
                    out[count] = row
                count += 1
            row = rows[row, 3]
    return count


class Recollection:
    """All output from ``since`` on must be passed to ``note``."""

    def __init__(self, since: int, columns: Sequence[pa.Field]) -> None:
        self.since = since
        self._schema = pa.schema(columns)
        self._numbers = PairNumbers()
        self._entries = np.empty((0, 3), np.int64)
        self._count = 0
        self._rows = np.empty((0, 4), np.int64)
        self._holds = np.empty(0, np.bool_)
        self._columns: list[pa.RecordBatch] = []

    @property
    def nbytes(self) -> int:
        own = self._rows.nbytes + self._holds.nbytes + self._entries.nbytes + self._numbers.nbytes
        return int(own + sum(part.nbytes for part in self._columns))

    def note(
        self,
        time: IntArray,
        ids: pa.Array,
        revision: IntArray,
        sign: IntArray,
        rows: pa.RecordBatch,
    ) -> None:
        """Apply emitted changes in order; ``rows`` has the columns of all of them."""
        if time.min(initial=self.since) < self.since:
            held = time >= self.since
            mask = pa.array(held)
            time, ids, revision, sign = time[held], ids.filter(mask), revision[held], sign[held]
            rows = rows.filter(mask)
        if self._put(self._numbers.take(words_of(ids)), time, revision, sign):
            some = sign > 0
            self._columns.append(rows if some.all() else rows.filter(pa.array(some)))
            self._columns = _levelled(self._columns)
        most = min(ROWS_MAX, ROWS_FEW + 4 * int(self._holds[: self._count].sum()))
        if self._count > most or self._numbers.count > 2 * ROWS_MAX:
            self._pack()

    def _put(self, entry: IntArray, time: IntArray, revision: IntArray, sign: IntArray) -> int:
        first = self._count
        self._rows = _longer(self._rows, first + len(time), -1)
        self._holds = _longer(self._holds, first + len(time), False)
        self._entries = _longer(self._entries, self._numbers.count, [-1, -1, INT64_MIN])
        self._count = int(
            _noted(entry, time, revision, sign, first, self._entries, self._rows, self._holds)
        )
        return self._count - first

    def _pack(self) -> None:
        rows, holds = self._rows[: self._count], self._holds[: self._count].copy()
        latest = self._entries[: self._numbers.count, 2]
        if 2 * max(int(holds.sum()), self._numbers.count // 2) > ROWS_MAX:
            self.since = int(np.median(latest)) + 1
            holds &= rows[:, 0] >= self.since
        stays = latest >= self.since
        number = np.cumsum(stays) - 1
        self._numbers.keep(stays)
        self._entries = self._entries[: len(stays)][stays]
        self._entries[:, 1] = -1
        self._columns = [self._take(np.flatnonzero(holds))]
        time, revision, entry, _ = rows[holds].T.copy()
        self._count = 0
        self._put(number[entry], time, revision, np.ones(len(time), np.int64))

    def _take(self, rows: IntArray) -> pa.RecordBatch:
        table = pa.Table.from_batches(self._columns, self._schema).take(pa.array(rows))
        whole = table.combine_chunks().to_batches()
        return whole[0] if whole else pa.RecordBatch.from_pylist([], schema=self._schema)

    # -- what was emitted --------------------------------------------------------------------------

    def emitted(self, low: int, high: int) -> Emitted:
        """The output with times ``low`` to ``high``."""
        time, holds = self._rows[: self._count, 0], self._holds[: self._count]
        return self._emitted(np.flatnonzero(holds & (time >= low) & (time <= high)))

    def emitted_of(self, ids: pa.Array, low: int, high: int) -> Emitted:
        entry = distinct(self._numbers.find(words_of(ids)))
        out = np.empty(len(entry), np.int64)
        while (count := self._rows_of(entry, low, high, out)) > len(out):
            out = np.empty(count, np.int64)
        return self._emitted(np.sort(out[:count]))

    def _rows_of(self, entry: IntArray, low: int, high: int, out: IntArray) -> int:
        return int(_holding(entry, self._entries, self._rows, self._holds, low, high, out))

    def _emitted(self, rows: IntArray) -> Emitted:
        rows = rows[np.argsort(self._rows[rows, 0], kind="stable")]
        time, revision, entry, _ = self._rows[rows].T.copy()
        net = Results(
            time, ids_of(self._numbers.pairs[entry]), pa.Table.from_batches([self._take(rows)])
        )
        return Emitted(net, revision, self._last_of)

    def _last_of(self, ids: pa.Array) -> IntArray:
        number = self._numbers.find(words_of(ids))
        last: IntArray = np.append(self._entries[: self._numbers.count, 0], -1)[number]
        return last


class Forgetful(Protocol):
    def forget(self) -> None:
        """Drop the cache."""


class RecollectionBudget:
    """LRU budget of the recollections of a store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: OrderedDict[int, tuple[Forgetful, int]] = OrderedDict()
        self._bytes = 0

    def hold(self, owner: Forgetful, size: int) -> None:
        with self._lock:
            _, before = self._held.pop(id(owner), (owner, 0))
            self._held[id(owner)] = owner, size
            self._bytes += size - before
            old = []
            while self._bytes > BYTES_MAX and len(self._held) > 1:
                _, (other, least) = self._held.popitem(last=False)
                self._bytes -= least
                old.append(other)
        for other in old:
            other.forget()

    def release(self, owner: Forgetful) -> None:
        with self._lock:
            _, size = self._held.pop(id(owner), (owner, 0))
            self._bytes -= size


def ids_of(words: Pairs) -> pa.Array:
    held = pa.py_buffer(np.ascontiguousarray(words))
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(words), [None, held])
    return fixed.cast(pa.binary())


def _longer(array: npt.NDArray[Any], needed: int, rest: object) -> npt.NDArray[Any]:
    """An array with at least ``needed`` rows."""
    had = len(array)
    if needed <= had:
        return array
    longer = np.empty((max(needed, 2 * had), *array.shape[1:]), array.dtype)
    longer[:had], longer[had:] = array, rest
    return longer


def _levelled(parts: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The rows in few batches, each more than twice as long as the next."""
    while len(parts) > 1 and parts[-2].num_rows <= 2 * parts[-1].num_rows:
        parts[-2:] = [pa.concat_batches(parts[-2:])]
    return parts


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

    def at(self, other: Mark) -> Mark:
        """These counters at the progress of another mark."""
        return dataclasses.replace(
            self, positions=other.positions, watermark=other.watermark, events=other.events
        )

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "positions": dict(self.positions), "events": dict(self.events)}

    @classmethod
    def of(cls, document: Mapping[str, Any], sources: Sequence[str]) -> Mark:
        """Read a mark, also in the earlier format with a single source."""
        fields = dict(document)
        if "position" in fields:
            fields["positions"] = {sources[0]: fields.pop("position")}
            fields["events"] = {sources[0]: fields["events"]}
        return cls(**fields)


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

    def emitted(self, low: int, high: int) -> Emitted:
        return self._fold(self._own_changes(low, high))

    def _own_changes(self, low: int, high: int) -> pa.Table:
        changes = self._changes(low, high)
        return changes.filter(pc.field(QUERY) == self.query) if self.shared else changes

    def emitted_of(self, ids: pa.Array, low: int, high: int) -> Emitted:
        changes = self._own_changes(low, high)
        return self._fold(changes.filter(pc.is_in(changes.column("_id"), value_set=ids)))

    def emitted_of_all(self, low: int, high: int) -> Callable[[str], Emitted]:
        """As ``emitted`` for every query of a shared sink, reading it once."""
        changes = self._changes(low, high)
        if not self.shared:
            return lambda _: self._fold(changes)
        coded = pc.dictionary_encode(changes.column(QUERY).combine_chunks())
        number = {name: i for i, name in enumerate(coded.dictionary.to_pylist())}
        codes = coded.indices.to_numpy(zero_copy_only=False)
        order = np.argsort(codes, kind="stable")
        ends = np.searchsorted(codes[order], np.arange(len(number) + 1))

        def emitted_by(query: str) -> Emitted:
            at = number.get(query)
            mine = order[:0] if at is None else order[ends[at] : ends[at + 1]]
            return self._fold(changes.take(pa.array(mine, pa.int64())))

        return emitted_by

    def _changes(self, low: int, high: int) -> pa.Table:
        names = ["_time", "_id", "_rev", *self.columns]
        names += [DIFFERENCE] if self.revokes else []
        names += [QUERY] if self.shared else []
        end = None if high >= 2**63 - 1 else high + 1
        fields = [self._source.schema.arrow.field(name) for name in names]
        return pa.Table.from_batches(self.snapshot().scan(low, end, names), pa.schema(fields))

    def _fold(self, table: pa.Table) -> Emitted:
        return Emitted.of(self._whole(table), self.columns)

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
            newest = snapshot.aggregate(["_seq"])["_seq"].max
            if newest is None or int(newest) <= after:
                return
            upto = min(int(newest), after + CHUNK)
            wanted: Prune = Range("_seq", after + 1, upto)
            if self.shared:
                wanted = AllOf((wanted, Range(QUERY, self.query, self.query)))
            passing = PredicateFilter(wanted, snapshot.schema)
            batches = list(snapshot.scan(prune=wanted, filter=passing))
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
        self._recollection: Recollection | None = None
        self._noted_schema: StreamSchema | None = None
        self._gone = Removals(0, 0, 0, 0)
        self.numbered = (-1, 1)
        """A commit by this sink and the ``_seq`` that follows it."""
        self._woken = threading.Condition()
        self._ended = False

    def mark(self, sources: Sequence[str]) -> Mark | None:
        stored = self.stream.marks().get(self.query)
        return None if stored is None else Mark.of(stored, sources)

    # -- what was emitted --------------------------------------------------------------------------

    @property
    def stored(self) -> SinkReader:
        return SinkReader(self.stream, self.query, self.columns)

    def emitted(self, low: int, high: int) -> Emitted:
        recollected = self._recollected(low)
        return super().emitted(low, high) if recollected is None else recollected.emitted(low, high)

    def emitted_of(self, ids: pa.Array, low: int, high: int) -> Emitted:
        recollected = self._recollected(low)
        return (
            super().emitted_of(ids, low, high)
            if recollected is None
            else recollected.emitted_of(ids, low, high)
        )

    def _recollected(self, low: int) -> Recollection | None:
        """The cache from ``low`` on, built if necessary; None if too large."""
        if self._budget is None:
            return None
        snapshot = self.stream.snapshot()
        state, recollection = snapshot.state, self._recollection
        if (
            recollection is None
            or recollection.since > low
            or state.schema != self._noted_schema
            or not self._gone.spare(state, recollection.since)
        ):
            newest = low if state.last is None else max(low, state.last)
            since = max(INT64_MIN, low - (newest - low))  # twice as far back, for later calls
            if snapshot.aggregate((), since, None).count > ROWS_MAX // 2:
                self.forget()
                return None
            recollection = Recollection(
                since, [self.schema.arrow.field(name) for name in self.columns]
            )
            changes = self._whole(self._own_changes(since, INT64_MAX))
            recollection.note(
                ticks_of_column(changes.column("_time")), changes.column("_id"),
                changes.column("_rev").to_numpy(zero_copy_only=False).astype(np.int64),
                changes.column(DIFFERENCE).to_numpy(zero_copy_only=False).astype(np.int64),
                changes.select(list(self.columns)),
            )  # fmt: skip
            self._recollection = recollection
            self._noted_schema, self._gone = state.schema, Removals.of(state)
            self._budget.hold(self, recollection.nbytes)
        return recollection

    def noted(self, changes: Changes, batch: pa.RecordBatch) -> None:
        recollection, results = self._recollection, changes.results
        if recollection is not None and self._budget is not None:
            rows = batch.select(list(self.columns))
            recollection.note(results.time, results.id, changes.revision, changes.sign, rows)
            self._budget.hold(self, recollection.nbytes)

    def forget(self) -> None:
        self._recollection = None
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
        written: list[tuple[Sink, Changes, pa.RecordBatch]] = []
        first = None
        for sink, changes, mark in parts:
            left[sink.query] = None if mark is None else mark.to_json()
            if changes is not None and len(changes):
                first = _next(stream, sink) if first is None else first
                batches.append(sink.batch(changes, first))
                written.append((sink, changes, batches[-1]))
                first += len(changes)
        if first is not None:
            left[SEQUENCE] = first
        table = pa.Table.from_batches(batches, stream.schema.arrow).combine_chunks()
        try:
            stream.append(table, owner=OWNER, marks=left)
        except BaseException:  # the commit may or may not have happened
            for sink, _, _ in written:
                sink.forget()
            raise
        if first is not None:
            version = stream.snapshot().version
            for sink, _, _ in written:
                sink.numbered = version, first
        for each in written:
            each[0].noted(*each[1:])


def leave_marks(stream: EventStream, marks: Mapping[str, Any]) -> None:
    """Write marks without results; not durable, so a crash may lose them."""
    nothing = stream.schema.arrow.empty_table()
    stream.append(nothing, durability="none", owner=OWNER, marks=marks)


def _next(stream: EventStream, sink: Sink) -> int:
    if sink.numbered[0] == stream.snapshot().version:
        return sink.numbered[1]
    sequence = int(stream.marks().get(SEQUENCE, 1))
    newest = stream.snapshot().aggregate(["_seq"])["_seq"].max
    return max(sequence, 1 if newest is None else int(newest) + 1)


def _as(column: pa.ChunkedArray, field: pa.Field) -> pa.Array:
    if is_json(field.type) and not is_json(column.type):
        values = read_json(pa.concat_arrays(getattr(column, "chunks", None) or [column]))
        if values.faults is not None:
            raise InvalidData(f"a value of column {field.name!r} is no JSON; cast it in the SELECT")
        return values.values
    if column.type != field.type:
        try:
            column = column.cast(field.type)
        except pa.ArrowInvalid as error:
            raise ResourceLimit(
                f"a value of column {field.name!r} does not fit the type that it has in the sink, "
                f"{field.type} ({error}); cast it in the SELECT, to DECIMAL(38, 0) for instance"
            ) from None
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


PASSING = StreamOptions(
    leaf_bytes=1 << 16, segment_bytes=1 << 20, retention="8 MB", durability="none",
    late_events_max=1 << 12, kept_bytes_max=0,
)  # fmt: skip


def wrong(request: LiveRequest, what: str) -> ChronicleError:
    """An error in a request, with its position if it has a text."""
    return error_at(request.text, request.at, what) if request.text else InvalidArgument(what)


class Sinks:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._scratch: Store | None = None
        self._budget = RecollectionBudget()
        self._lock = threading.Lock()

    def opened(self, definition: LiveDefinition, analysed: Analysed) -> Sink:
        if not definition.store:
            return self._passing(definition, analysed)
        schema = sink_schema(
            analysed.time, analysed.fields, revokes=definition.revokes, shared=definition.shared
        )
        if definition.sink in self._store.streams():
            stream = self._writer(definition.sink)
            if stream.schema != schema:
                raise InvalidArgument(
                    f"the stream {definition.sink!r} does not have the columns that results of "
                    f"{definition.name!r} have now; drop the live query and create it again"
                )
        else:
            stream = self._store.create_stream(
                definition.sink, schema, StreamOptions(**definition.options), owner=OWNER
            )
        return Sink(stream, definition.name, definition.columns, self._budget)

    def _passing(self, definition: LiveDefinition, analysed: Analysed) -> Sink:
        schema = sink_schema(
            analysed.time, analysed.fields, revokes=definition.revokes, shared=False
        )
        self.drop_passing(definition.name)
        with self._lock:
            if self._scratch is None:
                self._scratch = Store.open("live", files=ScratchFiles())
            stream = self._scratch.create_stream(definition.name, schema, PASSING, owner=OWNER)
        return Sink(stream, definition.name, definition.columns)

    def drop_passing(self, name: str) -> None:
        with self._lock:
            if self._scratch is not None and name in self._scratch.streams():
                self._scratch.drop_stream(name)

    def close(self) -> None:
        with self._lock:
            if self._scratch is not None:
                self._scratch.close()

    def _writer(self, name: str) -> EventStream:
        stream = self._store.stream(name)
        assert isinstance(stream, EventStream)
        return stream

    def check(self, request: LiveRequest, definition: LiveDefinition, analysed: Analysed) -> None:
        """Raise an error for a sink that a request cannot have."""
        schema = sink_schema(
            analysed.time, analysed.fields, revokes=definition.revokes, shared=definition.shared
        )
        streams = self._store.streams()
        taken = definition.sink in streams
        if definition.shared and definition.name in streams:
            raise wrong(request, f"there is a stream {definition.name!r} already")
        if not taken:
            return
        if not definition.shared:
            raise wrong(
                request, f"there is a stream {definition.sink!r} already; choose another name"
            )
        stream = self._writer(definition.sink)
        if stream.owner != OWNER or QUERY not in stream.schema:
            raise wrong(
                request, f"{definition.sink!r} is no stream that live queries share; choose another"
            )
        if stream.schema != schema:
            columns = ", ".join(stream.schema.names)
            raise wrong(
                request, f"the sink {definition.sink!r} has other columns ({columns}): those that "
                "share one have the same, in name and type"
            )  # fmt: skip
