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

The recent changes of a query are cached, to avoid reading the sink, for as long as the cache equals
it; a restart, a failure or any other change of the sink invalidates it.  The queries of a store
share ``BYTES_MAX`` (LRU).  With ``store = false`` a
sink is in a temporary directory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.caches import Lru
from ..core.json_text import is_json, read_json
from ..core.ownership import Condition, OwnThreads
from ..core.times import INT64_MAX, INT64_MIN, half_open
from ..errors import ChronicleError, InvalidArgument, InvalidData, ResourceLimit, UnsupportedType
from ..query.conditions.row_filters import PredicateFilter
from ..query.contract.catalog import LiveRequest
from ..query.relations import CHANGELOG, DIFFERENCE
from ..query.sql.dialect import error_at
from ..query.sql.sql_types import HUGEINT, fits_int64
from ..schema import StreamSchema
from ..store.files import ScratchFiles
from ..store.options import StreamOptions
from ..store.prune import AllOf, Prune, Range
from ..store.schema_change import widen_attribute
from ..store.snapshot import Snapshot
from ..store.store import Store
from ..store.stream import EventStream, StreamReader
from ..store.tail import concat_batches
from .analysis import Analysed
from .changes import Changes, Emitted, Removals
from .definition import LiveDefinition
from .forms import ticks_of

OWNER = "live"
QUERY = "_query"
CHUNK = 1 << 16
SEQUENCE = ""
"""Name of the mark with the next ``_seq``."""
CACHED_ROWS_MAX = 1 << 17
CHUNKS_MAX = 16
BYTES_MAX = 64 << 20
PUTS_MAX = 8
_PUTTING = OwnThreads(PUTS_MAX, "chronicle-live-put")


@dataclass(frozen=True)
class Mark:
    """Progress of a live query: processed commits by source, watermark, and events up to it
    (including removed ones).  ``windows``: number of the next count window; ``group``: mark in the
    same sink that counts for this one where it is further.
    """

    positions: Mapping[str, int] = field(default_factory=dict)
    watermark: int | None = None
    events: Mapping[str, int] = field(default_factory=dict)
    windows: int = 0
    step: int = 0
    rows: int = 0
    retractions: int = 0
    late: int = 0
    ignored: int = 0
    group: str = ""

    def at(self, other: Mark) -> Mark:
        """These counters at the progress of another mark."""
        return replace(
            self, positions=other.positions, watermark=other.watermark, events=other.events
        )

    def counted(self, changes: Changes | None, step: int, **progress: Any) -> Mark:
        """With the rows and retractions of a step, and other fields."""
        count = 0 if changes is None else len(changes)
        gone = 0 if changes is None or not count else int((changes.sign < 0).sum())
        rows, retractions = self.rows + count - gone, self.retractions + gone
        fields = {**vars(self), "step": step, "rows": rows, "retractions": retractions, **progress}
        return Mark(**fields)

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
    for column in fields:
        if column.name.lower() in taken:
            raise InvalidArgument(
                f"two columns of the results would be called {column.name!r}; give one an alias"
            )
        taken.add(column.name.lower())
        if pa.types.is_nested(column.type):
            raise UnsupportedType(
                f"column {column.name!r} of the results is a {column.type}, and rows with lists or "
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

    def emitted_of(self, ids: pa.Array, low: int, high: int) -> Emitted:
        return self._fold(self._own_changes(low, high, ids))

    def _own_changes(self, low: int, high: int, ids: pa.Array | None = None) -> pa.Table:
        """This query's changes in a range of times, of the given results only."""
        changes = self._changes(low, high)
        if self.shared:
            changes = changes.filter(pc.field(QUERY) == self.query)
        return changes if ids is None else changes.filter(pc.field("_id").isin(ids))

    def emitted_of_all(self, low: int, high: int) -> Callable[[str], Emitted]:
        """As ``emitted`` for every query of a shared sink, reading it once."""
        changes = self._changes(low, high)
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
        snapshot = self.snapshot()
        schema = self._change_schema(snapshot)
        return pa.Table.from_batches(snapshot.scan(*half_open(low, high), schema.names), schema)

    def _change_schema(self, snapshot: Snapshot) -> pa.Schema:
        names = ["_time", "_id", "_rev", *self.columns]
        names += [DIFFERENCE] if self.revokes else []
        names += [QUERY] if self.shared else []
        return pa.schema([snapshot.schema.arrow.field(name) for name in names])

    def _fold(self, table: pa.Table) -> Emitted:
        whole = table.combine_chunks().to_batches()
        changes = whole[0] if whole else pa.RecordBatch.from_pylist([], schema=table.schema)
        if not self.revokes:
            ones = pa.array(np.ones(changes.num_rows, np.int8))
            changes = changes.append_column(DIFFERENCE, ones)
        return Emitted.of(changes, self.columns)

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
            table = pa.Table.from_batches(batches, snapshot.schema.arrow)
            for batch in table.sort_by("_seq").combine_chunks().to_batches():
                if batch.num_rows:
                    yield batch
            after = upto


@dataclass(frozen=True)
class RecentChanges:
    """A query's changes with times from ``since`` on, and some earlier ones, in order of emission;
    of several changes of one result at one time at least the last.  ``removals``: those from the
    sink so far.
    """

    since: int
    rows: pa.Table
    removals: Removals
    nbytes: int

    def followed_by(self, changes: pa.RecordBatch) -> RecentChanges:
        rows, since = pa.concat_tables([self.rows, pa.Table.from_batches([changes])]), self.since
        if rows.column(0).num_chunks <= CHUNKS_MAX:
            return replace(self, rows=rows, nbytes=self.nbytes + changes.nbytes)
        rows = rows.combine_chunks()
        ids = rows.column("_id").chunk(0).dictionary_encode().indices.to_numpy()
        ticks = ticks_of(rows, "_time")
        order = np.lexsort((ticks, ids))
        last = np.append(np.diff(ids[order]) | np.diff(ticks[order]), 1) != 0
        lasting = np.sort(order[last])
        if len(lasting) > CACHED_ROWS_MAX:
            since = max(since, int(np.median(ticks[lasting])) + 1)
        rows = rows.take(pa.array(lasting[ticks[lasting] >= since]))
        return replace(self, since=since, rows=rows, nbytes=rows.nbytes)

    def between(self, low: int, high: int, ids: pa.Array | None = None) -> pa.Table:
        """Changes with times ``low`` to ``high``, by time, then emission; of the given results."""
        ticks = ticks_of(self.rows, "_time")
        wanted = (ticks >= low) & (ticks <= high)
        if ids is not None:
            wanted &= pc.is_in(self.rows.column("_id"), value_set=ids).to_numpy()
        rows = self.rows.filter(pa.array(wanted)).combine_chunks()
        return rows.take(pa.array(np.argsort(ticks[wanted], kind="stable")))


ChangeCache = Lru["Sink", RecentChanges]


class Sink(SinkReader):
    """Sink of a running query; with a ``cache``, recent changes are cached."""

    def __init__(
        self,
        stream: EventStream,
        query: str,
        columns: tuple[str, ...],
        cache: ChangeCache | None = None,
    ) -> None:
        super().__init__(stream, query, columns)
        self.stream = stream
        self._cache = cache
        self.numbered = (-1, 1)
        """A commit by this sink and the ``_seq`` that follows it."""
        self._woken = Condition()
        self._ended = False

    def mark(self, sources: Sequence[str]) -> Mark | None:
        stored = self.stream.marks().get(self.query)
        return None if stored is None else Mark.of(stored, sources)

    # -- what was emitted --------------------------------------------------------------------------

    @property
    def stored(self) -> SinkReader:
        return SinkReader(self.stream, self.query, self.columns)

    def _own_changes(self, low: int, high: int, ids: pa.Array | None = None) -> pa.Table:
        recent = self._recent(low)
        if recent is None:
            return super()._own_changes(low, high, ids)
        return recent.between(low, high, ids)

    def _recent(self, low: int) -> RecentChanges | None:
        """The cached changes from ``low`` on, read if necessary; None if they are too many."""
        if self._cache is None:
            return None
        snapshot = self.stream.snapshot()
        state, recent = snapshot.state, self._cache.get(self)
        if (
            recent is None
            or recent.since > low
            or recent.rows.schema != self._change_schema(snapshot)
            or not recent.removals.spare(state, recent.since)
        ):
            newest = low if state.last is None else max(low, state.last)
            since = max(INT64_MIN, low - (newest - low))  # twice as far back, for later calls
            if snapshot.events_between(since, None) > CACHED_ROWS_MAX // 2:
                self.forget()
                return None
            rows = super()._own_changes(since, INT64_MAX)
            recent = RecentChanges(since, rows, Removals.of(state), rows.nbytes)
            self._cache.put(self, recent)
        return recent

    def note(self, batch: pa.RecordBatch) -> None:
        """Add a batch that was committed to the cache."""
        recent = None if self._cache is None else self._cache.get(self)
        if recent is not None and self._cache is not None:
            changes = batch.select(recent.rows.schema.names)
            if changes.schema != recent.rows.schema:
                self.forget()
            else:
                self._cache.put(self, recent.followed_by(changes))

    def forget(self) -> None:
        if self._cache is not None:
            self._cache.drop(self)

    # -- putting out ------------------------------------------------------------------------------

    def put(self, changes: Changes | None, mark: Mark | None) -> None:
        """Commit a step's changes and mark; None removes the mark."""
        put_together(self.stream, [(self, changes, mark)])

    def widen(self, columns: pa.Table) -> None:
        """Let columns hold integer sums beyond 64 bits, as those of an ad-hoc result."""
        for name in self.columns:
            narrow = self.schema.arrow.field(name).type == pa.int64()
            column = columns.column(name)
            if narrow and column.type == HUGEINT and not all(map(fits_int64, column.chunks)):
                self.stream.alter(widen_attribute, name, HUGEINT, owner=OWNER)

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
                arrays.append(conformed(results.columns.column(name), schema.arrow.field(name)))
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
        self.forget()
        with self._woken:
            self._ended = True
            self._woken.notify_all()


def put_together(
    stream: EventStream,
    parts: Sequence[tuple[Sink, Changes | None, Mark | None]],
    marks: Mapping[str, Any] | None = None,
) -> None:
    """Commit changes and marks of several live queries in one sink."""
    for sink, changes, _ in parts:
        if changes is not None:
            sink.widen(changes.results.columns)
    with stream.quiet():  # numbers follow the order of commits
        left: dict[str, Any] = dict(marks or {})
        batches: list[pa.RecordBatch] = []
        written: list[Sink] = []
        first = None
        for sink, changes, mark in parts:
            left[sink.query] = None if mark is None else mark.to_json()
            if changes is not None and len(changes):
                first = _next(stream, sink) if first is None else first
                batches.append(sink.batch(changes, first))
                written.append(sink)
                first += len(changes)
        if first is not None:
            left[SEQUENCE] = first
        arrow = stream.schema.arrow
        events = concat_batches(batches, arrow) if batches else arrow.empty_table()
        try:
            stream.append(events, owner=OWNER, marks=left)
        except BaseException:  # the commit may or may not have happened
            for sink in written:
                sink.forget()
            raise
        version = stream.snapshot().version
        for sink, batch in zip(written, batches, strict=True):
            sink.numbered = version, first or 1
            sink.note(batch)


Put = tuple[EventStream, Sequence[tuple[Sink, Changes | None, Mark | None]], Mapping[str, Any]]
"""Arguments of ``put_together``."""


def put_at_once(puts: Sequence[Put]) -> list[BaseException | None]:
    """Commit each, those of one sink in turn; the disk syncs those of others together.  Returns the
    error of each.
    """
    errors: list[BaseException | None] = [None] * len(puts)
    by_sink: dict[EventStream, list[int]] = {}
    for number, (stream, *_) in enumerate(puts):
        by_sink.setdefault(stream, []).append(number)

    def commit(numbers: Sequence[int]) -> None:
        for number in numbers:
            try:
                put_together(*puts[number])
            except BaseException as error:
                errors[number] = error

    if len(by_sink) > 1:
        list(_PUTTING.pool().map(commit, by_sink.values()))
    else:
        commit(range(len(puts)))
    return errors


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


def conformed(column: pa.ChunkedArray, field: pa.Field) -> pa.Array:
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
                f"a value of column {field.name!r} does not fit the type that it has, {field.type} "
                f"({error}); cast it in the SELECT, to DECIMAL(38, 0) for instance"
            ) from None
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


PASSING = StreamOptions(
    leaf_bytes=1 << 16, segment_bytes=1 << 20, retention="8 MB", durability="none",
    late_events_max=1 << 12, kept_bytes_max=0,
)  # fmt: skip


def _holds(sink: StreamSchema, results: StreamSchema) -> bool:
    """Whether a sink has the columns of results, or wider ones (``Sink.widen``)."""
    for column in results.arrow:
        name, narrow = column.name, column.type == pa.int64()
        if narrow and name in sink and sink.arrow.field(name).type == HUGEINT:
            results = results.with_type(name, HUGEINT)
    return sink == results


def wrong(request: LiveRequest, what: str) -> ChronicleError:
    """An error in a request, with its position if it has a text."""
    return error_at(request.text, request.at, what) if request.text else InvalidArgument(what)


def _schema_of(definition: LiveDefinition, analysed: Analysed) -> StreamSchema:
    return sink_schema(
        analysed.time, analysed.fields, revokes=definition.revokes, shared=definition.shared
    )


class Sinks:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._scratch: Store | None = None
        self._cache: ChangeCache = Lru(BYTES_MAX, lambda recent: recent.nbytes)
        self._lock = threading.Lock()

    def opened(self, definition: LiveDefinition, analysed: Analysed) -> Sink:
        if not definition.store:
            return self._passing(definition, analysed)
        schema = _schema_of(definition, analysed)
        if definition.sink in self._store.streams():
            stream = self._store.writer(definition.sink)
            if not _holds(stream.schema, schema):
                raise InvalidArgument(
                    f"the stream {definition.sink!r} does not have the columns that results of "
                    f"{definition.name!r} have now; drop the live query and create it again"
                )
        else:
            stream = self._store.create_stream(
                definition.sink, schema, StreamOptions(**definition.options), owner=OWNER
            )
        return Sink(stream, definition.name, definition.columns, self._cache)

    def _passing(self, definition: LiveDefinition, analysed: Analysed) -> Sink:
        schema = _schema_of(definition, analysed)
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

    def check(self, request: LiveRequest, definition: LiveDefinition, analysed: Analysed) -> None:
        """Raise an error for a sink that a request cannot have."""
        schema = _schema_of(definition, analysed)
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
        stream = self._store.writer(definition.sink)
        if stream.owner != OWNER or QUERY not in stream.schema:
            raise wrong(
                request, f"{definition.sink!r} is no stream that live queries share; choose another"
            )
        if not _holds(stream.schema, schema):
            columns = ", ".join(stream.schema.names)
            raise wrong(
                request, f"the sink {definition.sink!r} has other columns ({columns}): those that "
                "share one have the same, in name and type"
            )  # fmt: skip
