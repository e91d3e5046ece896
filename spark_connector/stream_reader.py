"""The streaming source: every event of a stream, once, in the order of commits.

Purpose
    :class:`EventStreamReader` follows a stream by commit position.  A micro-batch holds what a
    later commit has beyond an earlier one: events in order, late events and bulk loads alike.

Guarantee
    Exactly once into a sink that is idempotent: offsets name commits whose files are kept, so a
    batch that is run again, also after a restart from the checkpoint, holds the same events.

Layout
    An offset is JSON, its keys in this order::

        {"v": 1, "pin": "41-9f...", "next": "57-03...", "rows": 20000}

    ``pin`` is a commit that was read completely (empty: none), ``rows`` how many of the events that
    ``next`` adds have been read, in time order.  When all of them have, ``next`` takes the place of
    ``pin`` and ``rows`` is 0.

Limits
    By path only: the pins lie in the stream's directory (see :mod:`chronicle.store.kept_pins`) for
    seven days after their last use.  A query that stopped for longer, or whose stream was
    truncated, ends with an error and needs a new checkpoint.  Events within a batch come in time
    order for each partition; a batch as a whole is a step in commit order.
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
from ..store import Store
from ..store.changes import NewRange, new_events, new_ranges
from ..store.kept_pins import drop_pin, keep_pin, load_pin, renew_pin, sweep_pins
from ..store.pinned import Pin
from ..store.recovery import load
from .backend import PARTITION_BYTES, rebatch
from .local import local_path
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

    def to_json(self) -> dict[str, Any]:
        """The form that Spark keeps."""
        return {"v": 1, "pin": self.pin, "next": self.next, "rows": self.rows}

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
            return cls(str(document["pin"]), str(document["next"]), int(document["rows"]))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidArgument(
                f"the checkpoint does not hold an offset of this format ({error!r}): {document!r}"
            ) from None


class ChangePartition(InputPartition):
    """New events of a time range; the first `skip` of them are left out, `take` are taken."""

    def __init__(
        self, before: str, after: str, start: int | None, end: int | None, skip: int, take: int
    ) -> None:
        super().__init__(None)
        self.before = before
        self.after = after
        self.start = start
        self.end = end
        self.skip = skip
        self.take = take


class EventStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a stream; lives in a process of the driver.

    Parameters
    ----------
    options : Options
    wanted : StructType
        Schema of the DataFrame: the stream's, or the user's.
    """

    def __init__(self, options: Options, wanted: StructType) -> None:
        if options.path is None:
            raise InvalidArgument(
                "readStream follows a stream by its 'path'; a server keeps no positions of "
                "followers"
            )
        self.options = options
        self._path = local_path(options.path)
        with Store.open(self._path, mode="r") as store:
            schema = store.stream(options.stream or "").schema
            self._directory = store.directory_of(options.stream or "")
        if options.columns is not None:
            schema.select(options.columns)  # raises for a column that does not exist
        self.conversion = ReadConversion(schema.arrow, wanted)
        self._initial: Offset | None = None
        self._target: str | None = None
        self._found: dict[tuple[str, str], list[NewRange]] = {}
        self._made: list[str] = []

    def _store(self) -> Store:
        return Store.open(self._path, mode="r")

    def _keep(self, store: Store, position: int | None = None) -> str:
        name = keep_pin(store.files, self._directory, position=position)
        self._made.append(name)
        return name

    def _drop(self, store: Store, name: str) -> None:
        if name in self._made and name != self._target:
            drop_pin(store.files, self._directory, name)
            self._made.remove(name)

    # ------------------------------------------------------------------ offsets

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query begins; asked for once or twice, and answered alike."""
        if self._initial is None:
            where = self.options.starting_position
            with self._store() as store:
                sweep_pins(store.files, self._directory)
                if where == "earliest" or where == 0:
                    self._initial = Offset()
                else:
                    name = self._keep(store, None if where == "latest" else int(where))
                    self._initial = Offset(name, name)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The option ``maxRowsPerTrigger``."""
        rows = self.options.max_rows_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember the last commit: what comes after it is left to the next run."""
        with self._store() as store:
            self._target = self._keep(store)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next micro-batch goes."""
        offset = Offset.from_json(start)
        with self._store() as store:
            if offset.rows == 0:
                following = self._following(store, offset.pin)
                if following is None:
                    return start
                offset = Offset(offset.pin, following, 0)
            ranges = self._ranges(store, offset.pin, offset.next)
            total = sum(part.events for part in ranges)
            if total == 0:  # commits without events, such as a new column
                self._drop(store, offset.next)
                return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else total
        reached = offset.rows + most
        if reached < total:
            return Offset(offset.pin, offset.next, reached).to_json()
        return Offset(offset.next, offset.next, 0).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Not known without pinning it."""
        return None

    def _following(self, store: Store, pin: str) -> str | None:
        """A pin of a later commit than that of a pin; None when there is none."""
        known = _position(pin)
        if self._target is not None:
            return self._target if _position(self._target) > known else None
        if pin:
            renew_pin(store.files, self._directory, pin)
        if load(store.files, self._directory).journal.position <= known:
            return None
        return self._keep(store)

    def _ranges(self, store: Store, before: str, after: str) -> list[NewRange]:
        found = self._found.get((before, after))
        if found is None:
            found = new_ranges(
                store.files, self._pin(store, before), _required(self._pin(store, after))
            )
            self._found = {(before, after): found}
        return found

    def _pin(self, store: Store, name: str) -> Pin | None:
        return load_pin(store.files, self._directory, name) if name else None

    # --------------------------------------------------------------- partitions

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Cut what lies between two offsets."""
        first, last = Offset.from_json(start), Offset.from_json(end)
        if first == last:
            return []
        after = last.next
        with self._store() as store:
            ranges = self._ranges(store, first.pin, after)
        return _cut(ranges, first, last, after, self.options.num_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition; runs on an executor."""
        if not isinstance(partition, ChangePartition):
            return iter(())
        return self._batches(partition)

    def _batches(self, part: ChangePartition) -> Iterator[pa.RecordBatch]:
        names = list(dict.fromkeys(self.conversion.columns))
        skip, left = part.skip, part.take
        with self._store() as store:
            before = self._pin(store, part.before)
            after = _required(self._pin(store, part.after))
            events = new_events(store.files, before, after, part.start, part.end, names)
            for batch in rebatch(events, self.options.batch_size, names):
                if skip >= batch.num_rows:
                    skip -= batch.num_rows
                    continue
                chosen = batch.slice(skip, left)
                skip = 0
                left -= chosen.num_rows
                yield self.conversion(chosen)
                if left == 0:
                    return

    # --------------------------------------------------------------- end of use

    def commit(self, end: dict[str, Any]) -> None:
        """Give up the pins that no batch needs any more: Spark asks for nothing before `end`."""
        offset = Offset.from_json(end)
        needed = {offset.pin, offset.next}
        oldest = _position(offset.pin)
        with self._store() as store:
            for name in list(self._made):
                if name not in needed and _position(name) < oldest:
                    self._drop(store, name)

    def stop(self) -> None:
        """Nothing to release: pins must outlive the query for its restart."""


def _position(pin: str) -> int:
    return int(pin.split("-", 1)[0]) if pin else 0


def _required(pin: Pin | None) -> Pin:
    if pin is None:
        raise InvalidArgument("the checkpoint holds an offset that leads nowhere; use a new one")
    return pin


def _cut(
    ranges: list[NewRange], first: Offset, last: Offset, after: str, wanted: int | None
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
            cut.append(ChangePartition(first.pin, after, group[0].start, group[-1].end, skip, take))
        row += events
        group, weight = [], 0
    return cut


def _adjacent(one: NewRange, other: NewRange) -> bool:
    """Whether two ranges touch, so that one partition can read both without what lies between."""
    return one.end is not None and one.end == other.start
