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
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ..errors import InvalidArgument
from ..store.changes import NewRange
from .backend import PARTITION_BYTES, rebatch
from .following import CommitSpan, commit_of, open_follower
from .options import Options
from .types import ReadConversion

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


EVENT_BYTES = 64
"""Assumed size of an event when a micro-batch is cut into partitions."""


@dataclass(frozen=True)
class Offset:
    pin: str = ""
    next: str = ""
    rows: int = 0
    last: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "v": 1,
            "pin": self.pin,
            "next": self.next,
            "rows": self.rows,
            "last": self.last,
        }

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
        self._found: dict[tuple[str, str], list[NewRange]] = {}
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
        found = self._found.get((before, after))
        if found is None:
            found = self._follower.ranges(before, after)
            self._found = {(before, after): found}
        return found

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
        for batch in rebatch(events, self.options.batch_size, names):
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
