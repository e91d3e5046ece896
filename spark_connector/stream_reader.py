"""The streaming source: every event of a stream, once, in the order of commits.

Purpose
    :class:`EventStreamReader` follows a stream by commit position.  A micro-batch holds what a
    later commit has beyond an earlier one: events in order, late events and bulk loads alike.

Guarantee
    Exactly once into a sink that is idempotent: offsets name commits whose files are kept, so a
    batch that is run again, also after a restart from the checkpoint, holds the same events.

Layout
    An offset is JSON, its keys in this order::

        {"v": 1, "pin": "41-9f...", "next": "57-03...", "rows": 20000, "last": ""}

    ``pin`` is a commit that was read completely (empty: none), ``rows`` how many of the events that
    ``next`` adds have been read, in time order.  When all of them have, ``next`` takes the place of
    ``pin``, ``rows`` is 0, and ``last`` is the pin before, which is given up as soon as Spark says
    that the batch is done, be it in another run.

Limits
    The commits that an offset names are kept for seven days after their last use (see
    :mod:`chronicle.spark_connector.following`).  A query that stopped for longer, or whose stream
    was truncated, ends with an error and needs a new checkpoint.  Events within a batch come in
    time order for each partition; a batch as a whole is a step in commit order.
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

__all__ = ["ChangePartition", "EventStreamReader", "Offset"]

EVENT_BYTES = 64
"""What an event is taken to weigh when a micro-batch is cut into partitions."""


@dataclass(frozen=True)
class Offset:
    """How far a query has read; see the module."""

    pin: str = ""
    next: str = ""
    rows: int = 0
    last: str = ""

    def to_json(self) -> dict[str, Any]:
        """The form that Spark keeps."""
        return {
            "v": 1,
            "pin": self.pin,
            "next": self.next,
            "rows": self.rows,
            "last": self.last,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Offset:
        """Read what :meth:`to_json` wrote.

        Raises
        ------
        InvalidArgument
            When it was written by something else.
        """
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
    """What one task reads of a micro-batch."""

    def __init__(self, piece: CommitSpan) -> None:
        super().__init__(None)
        self.piece = piece


class EventStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a stream; lives in a process of the driver.

    Parameters
    ----------
    wanted : StructType
        Schema of the DataFrame: the stream's, or the user's.
    """

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
        """Where a new query begins; asked for once or twice, and answered alike."""
        if self._initial is None:
            where = self.options.starting_position
            if where == "earliest" or where == 0:
                self._initial = Offset()
            else:
                name = self._keep(None if where == "latest" else int(where))
                self._initial = Offset(name, name)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The option ``maxRowsPerTrigger``."""
        rows = self.options.max_rows_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember the last commit: what comes after it is left to the next run."""
        self._target = self._keep()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next micro-batch goes."""
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
        """Not known without keeping it."""
        return None

    def _following(self, pin: str) -> str | None:
        """A later commit than that of a pin; None when there is none."""
        if self._target is not None:
            if commit_of(self._target) > commit_of(pin):
                return self._target
            if self._target != pin and self._target in self._made:  # nothing came since
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
        """Cut what lies between two offsets."""
        first, last = Offset.from_json(start), Offset.from_json(end)
        if first == last:
            return []
        ranges = self._ranges(first.pin, last.next)
        return _cut(ranges, first, last, self.options.num_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition; runs on an executor."""
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
        """Give up the pins that no batch needs any more: Spark asks for nothing before `end`."""
        offset = Offset.from_json(end)
        needed = {offset.pin, offset.next}
        oldest = commit_of(offset.pin)
        made = [name for name in self._made if commit_of(name) < oldest]
        for name in {*made, offset.last} - needed - {""}:
            self._drop(name)

    def stop(self) -> None:
        """Nothing to release: pins must outlive the query for its restart."""


def _cut(
    ranges: list[NewRange], first: Offset, last: Offset, wanted: int | None
) -> list[InputPartition]:
    """Partitions of the rows between two offsets, by what reading them costs."""
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
    """Whether two ranges touch, so that one partition can read both without what lies between."""
    return one.end is not None and one.end == other.start
