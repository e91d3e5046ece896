"""The streaming source: every event of a stream, once, in commit order.

A micro-batch holds the events that a later commit adds to an earlier one.  Offsets name commits
whose files are kept, so a repeated batch has the same events, also after a restart: exactly once
into an idempotent sink.  An offset is JSON, its keys in this order::

    {"v": 1, "pin": "41-9f...", "next": "57-03...", "rows": 20000, "last": ""}

``pin`` is a commit that was read completely (empty: none), ``rows`` how many of the events that
``next`` adds have been read, in time order.  When all have, ``next`` replaces ``pin``, ``rows`` is
0, and ``last`` is the previous pin, which is dropped once Spark reports the batch as done, even in
another run.  A query that stopped for over seven days, or whose stream was truncated, needs a new
checkpoint.

A kept commit stays readable in any process until it is dropped or expires, seven days after its
last use (by url: ``CHRONICLE_POSITION_TTL_HOURS``).  The events between two are always the same::

    path    <stream>/pins/<name>.pin, written by the driver, read by executors
    url     POST /positions, GET /changes, GET /changes/events: the same files, in the server
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ..client import calls
from ..errors import InvalidArgument, ResourceLimit
from ..formats.chunks import regroup
from ..store.changes import NewRange, new_events, new_ranges, rows_between
from ..store.pins import Pin, drop_pin, keep_pin, load_pin, renew_pin, sweep_pins
from ..store.recovery import load
from ..store.store import Store
from .backend import PARTITION_BYTES, LocalStream, ServerStream
from .options import Options
from .types import ReadConversion

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class CommitSpan:
    """New events between two kept commits, in half-open ticks: ``take`` of them after ``skip``."""

    before: str
    after: str
    start: int | None
    end: int | None
    skip: int
    take: int


def commit_of(name: str) -> int:
    """Commit position of a kept commit; 0 without a name."""
    return int(name.split("-", 1)[0]) if name else 0


def _leads_nowhere() -> InvalidArgument:
    return InvalidArgument("the checkpoint holds an offset that leads nowhere; use a new one")


class LocalFollower(LocalStream):
    def __init__(self, options: Options) -> None:
        super().__init__(options)
        with self._open() as store:
            store.stream(self._stream)  # raises, with the known names
            self._directory = store.directory_of(self._stream)

    def keep(self, position: int | None = None) -> str:
        """Keep the last commit, or the one at ``position``, and return its name (driver)."""
        with self._open() as store:
            sweep_pins(store.files, self._directory)
            return keep_pin(store.files, self._directory, position=position)

    def keep_later(self, name: str) -> str | None:
        """Keep the last commit if later than ``name``, which is renewed; else None (driver)."""
        with self._open() as store:
            if name:
                renew_pin(store.files, self._directory, name)
            if load(store.files, self._directory).journal.position <= commit_of(name):
                return None
            return keep_pin(store.files, self._directory)

    def drop(self, name: str) -> None:
        with self._open() as store:
            drop_pin(store.files, self._directory, name)

    def ranges(self, before: str, after: str) -> list[NewRange]:
        """Time ranges with new events between two kept commits (driver)."""
        with self._open() as store:
            return new_ranges(store.files, *self._pins(store, before, after))

    def events(self, piece: CommitSpan, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Exactly the new events of a span (executor)."""
        with self._open() as store:
            before, after = self._pins(store, piece.before, piece.after)
            events = new_events(store.files, before, after, piece.start, piece.end, columns)
            yield from rows_between(events, piece.skip, piece.take)

    def _pins(self, store: Store, before: str, after: str) -> tuple[Pin | None, Pin]:
        if not after:
            raise _leads_nowhere()
        earlier = load_pin(store.files, self._directory, before) if before else None
        return earlier, load_pin(store.files, self._directory, after)


class ServerFollower(ServerStream):
    def keep(self, position: int | None = None) -> str:
        return str(self._positions(at=position))

    def keep_later(self, name: str) -> str | None:
        if name:
            return self._positions(after=name)
        position = self.keep()
        if commit_of(position):
            return position
        self.drop(position)  # nothing was ever committed
        return None

    def _positions(self, **body: object) -> str | None:
        answer = self.transport.ask("POST", "streams", self.stream, "positions", body=body)
        name: str | None = answer["position"]
        return name

    def drop(self, name: str) -> None:
        self.transport.ask("DELETE", "streams", self.stream, "positions", name)

    def ranges(self, before: str, after: str) -> list[NewRange]:
        if not after:
            raise _leads_nowhere()
        between = {"after": before or None, "until": after}
        path = "streams", self.stream, "changes"
        return [
            NewRange(part["start"], part["end"], part["events"], part["stored"])
            for part in self.transport.ask("GET", *path, query=between)["ranges"]
        ]

    def events(self, piece: CommitSpan, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream the new events; ResourceLimit if the server sends too few."""
        left = piece.take
        call = calls.new_events(
            self.stream,
            piece.before or None,
            piece.after,
            columns,
            start=piece.start,
            end=piece.end,
            skip=piece.skip,
            limit=piece.take,
        )
        for batch in self.transport.batches(call):
            left -= batch.num_rows
            yield batch
        if left:
            raise ResourceLimit(
                f"{self.transport.where} sent {piece.take - left} events of {piece.take}; "
                "raise its CHRONICLE_MAX_ROWS, or read smaller pieces with the option "
                "'numPartitions'"
            )


def open_follower(options: Options) -> LocalFollower | ServerFollower:
    return LocalFollower(options) if options.path is not None else ServerFollower(options)


EVENT_BYTES = 64
"""Assumed size of an event when a micro-batch is cut into partitions."""


@dataclass(frozen=True)
class Offset:
    pin: str = ""
    next: str = ""
    rows: int = 0
    last: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"v": 1, **asdict(self)}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Offset:
        """Parse an offset; InvalidArgument if it has another format."""
        try:
            if document["v"] != 1:
                raise InvalidArgument(
                    f"the checkpoint's offset has version {document['v']}; this release knows 1"
                )
            return cls(
                str(document["pin"]),
                str(document["next"]),
                int(document["rows"]),
                str(document.get("last", "")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidArgument(
                f"the checkpoint does not hold an offset of this format ({error!r}): {document!r}"
            ) from None


class ChangePartition(InputPartition):
    def __init__(self, piece: CommitSpan) -> None:
        super().__init__(None)
        self.piece = piece


class EventStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a stream, in a process of the driver."""

    def __init__(self, options: Options, wanted: StructType) -> None:
        self.options = options
        self._follower = open_follower(options)
        schema = self._follower.describe()
        if options.columns is not None:
            schema.select(options.columns)  # raises for a column that does not exist
        self.conversion = ReadConversion(schema.arrow, wanted)
        self._initial: Offset | None = None
        self._target: str | None = None
        self._cached_ranges: dict[tuple[str, str], list[NewRange]] = {}
        self._made: list[str] = []

    def _keep(self, position: int | None = None) -> str:
        name = self._follower.keep(position)
        self._made.append(name)
        return name

    def _drop(self, name: str) -> None:
        self._follower.drop(name)
        if name in self._made:
            self._made.remove(name)

    # ------------------------------------------------------------------ offsets

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Start of a new query; idempotent, as Spark may ask twice."""
        if self._initial is None:
            where = self.options.starting_position
            if where == "earliest" or where == 0:
                self._initial = Offset()
            else:
                name = self._keep(None if where == "latest" else int(where))
                self._initial = Offset(name, name)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows = self.options.max_rows_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Keep the last commit as the end of this run."""
        self._target = self._keep()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        offset = Offset.from_json(start)
        if offset.rows == 0:
            following = self._following(offset.pin)
            if following is None:
                return start
            offset = Offset(offset.pin, following, 0)
        total = sum(part.events for part in self._ranges(offset.pin, offset.next))
        if total == 0:  # commits without events, such as a new column
            self._drop(offset.next)
            if offset.next == self._target:
                self._target = offset.pin
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else total
        reached = offset.rows + most
        if reached < total:
            return Offset(offset.pin, offset.next, reached).to_json()
        return Offset(offset.next, offset.next, 0, offset.pin).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """None: unknown without keeping a commit."""
        return None

    def _following(self, pin: str) -> str | None:
        if self._target is not None:
            if commit_of(self._target) > commit_of(pin):
                return self._target
            if self._target != pin and self._target in self._made:  # no later commit
                self._drop(self._target)
            return None
        name = self._follower.keep_later(pin)
        if name is not None:
            self._made.append(name)
        return name

    def _ranges(self, before: str, after: str) -> list[NewRange]:
        ranges = self._cached_ranges.get((before, after))
        if ranges is None:
            ranges = self._follower.ranges(before, after)
            self._cached_ranges = {(before, after): ranges}
        return ranges

    # --------------------------------------------------------------- partitions

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        first, last = Offset.from_json(start), Offset.from_json(end)
        if first == last:
            return []
        ranges = self._ranges(first.pin, last.next)
        return _cut(ranges, first, last, self.options.num_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, ChangePartition):
            return iter(())
        return self._batches(partition.piece)

    def _batches(self, piece: CommitSpan) -> Iterator[pa.RecordBatch]:
        names = list(dict.fromkeys(self.conversion.columns))
        events = self._follower.events(piece, names)
        for batch in regroup(events, self.options.batch_size):
            yield self.conversion(batch)

    # --------------------------------------------------------------- end of use

    def commit(self, end: dict[str, Any]) -> None:
        """Drop pins that no batch needs: Spark reads nothing before ``end`` again."""
        offset = Offset.from_json(end)
        needed = {offset.pin, offset.next}
        oldest = commit_of(offset.pin)
        made = [name for name in self._made if commit_of(name) < oldest]
        for name in {*made, offset.last} - needed - {""}:
            self._drop(name)

    def stop(self) -> None:
        """Nothing: pins must outlive the query for its restart."""


def _cut(
    ranges: list[NewRange], first: Offset, last: Offset, wanted: int | None
) -> list[InputPartition]:
    total = sum(part.events for part in ranges)
    start_row = first.rows
    end_row = last.rows if last.rows else total
    stored = sum(part.stored for part in ranges)
    parts = wanted or max(1, -(-stored * EVENT_BYTES // PARTITION_BYTES))
    goal = max(1, -(-stored // parts))
    cut: list[InputPartition] = []
    group: list[NewRange] = []
    row = weight = 0
    for number, part in enumerate(ranges):
        group.append(part)
        weight += part.stored
        closing = number == len(ranges) - 1
        if weight < goal and not closing and _adjacent(part, ranges[number + 1]):
            continue
        events = sum(item.events for item in group)
        skip = max(0, start_row - row)
        take = min(events, end_row - row) - skip
        if take > 0:
            span = group[0].start, group[-1].end
            cut.append(ChangePartition(CommitSpan(first.pin, last.next, *span, skip, take)))
        row += events
        group, weight = [], 0
    return cut


def _adjacent(one: NewRange, other: NewRange) -> bool:
    return one.end is not None and one.end == other.start
