"""The events around those that come late to a group of patterns, kept where that happens again.

Purpose
    To say what a late event changes takes the events near it in its partition.  A
    :class:`LateHistory` reads a stretch of the stream around it, arranged by partition, and keeps
    the stretch when it goes on to the watermark: the next late event finds its neighbours there,
    and matches the events that they are measured from.

Layout
    ::

                 first                         watermark
        .........|==============================|- - - -       kept: what steps bring is added
              |==|======|                                      an event before it: read for itself,
             late    two windows                               or all is kept from there on

Guarantee
    It is a cache.  Whatever happens to the stream but commits has it begin anew, and so do columns
    that are asked for and were not read.

Limits
    It begins with :data:`EVENTS_FOR_LATE` events for each step that had late ones, and at most
    :data:`EVENTS_MAX`; beyond these, or :data:`BYTES_MAX`, the earlier half is let go.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.times import INT64_MAX
from ..query.pattern.late_events import Late
from ..schema import StreamSchema
from ..store.snapshot import Snapshot
from .bank.arranged import Arranged
from .bank.corrections import Corrected, correct
from .bank.pattern_bank import PatternBank
from .forms import half_open, ticks_of
from .removals import Removals

__all__ = ["LateHistory"]

IntArray = npt.NDArray[np.int64]
EVENTS_MAX = 1 << 19
EVENTS_FOR_LATE = 1 << 16
BYTES_MAX = 96 << 20


class LateHistory:
    """See the module.

    Parameters
    ----------
    bank : PatternBank
        Of the group; what it has found is what late events change.
    """

    def __init__(self, bank: PatternBank) -> None:
        self._bank = bank
        self._held: Arranged | None = None
        self._schema: StreamSchema | None = None
        self._gone = Removals(0, 0, 0, 0)
        self._asked: set[str] = set()
        self._late_steps = 0
        self._quiet = 0

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return 0 if self._held is None else self._held.nbytes

    def drop(self) -> None:
        """Keep nothing."""
        self._held = None

    def read_by(self, columns: Iterable[str]) -> list[str]:
        """Columns that a step is to read of its events, beside others."""
        held = self._held
        names = {*columns, *(() if held is None else held.schema.names)}
        return [name for name in self._bank.schema.names if name in names]

    def advance(self, events: pa.Table, upto: int) -> None:
        """The events behind the last watermark have come, up to another."""
        held = self._held
        if held is None:
            return
        self._quiet += events.num_rows
        if self._quiet > EVENTS_MAX:
            self._held, self._late_steps = None, 0
            return
        held.append(events.select(held.schema.names), upto)
        if held.rows > EVENTS_MAX or held.nbytes > BYTES_MAX:
            held.forget()

    def held(self, snapshot: Snapshot, since: int, columns: Iterable[str]) -> Arranged | None:
        """The stretch from a time on, where it is kept with some columns."""
        held = self._held
        if held is None or since < held.first:
            return None
        if snapshot.schema != self._schema or not self._gone.spare(snapshot.state, held.first):
            self._held = None
            return None
        missing = set(columns) - set(held.schema.names)
        if missing:
            self._asked |= missing
            self._held = None
        return self._held

    # -- late events ------------------------------------------------------------------------------

    def corrected(self, snapshot: Snapshot, events: pa.Table, watermark: int) -> Corrected | None:
        """What late events change, by what is kept; None: they are to be :meth:`searched`.

        Parameters
        ----------
        events : pyarrow.Table
            All that have come since the last step, up to the watermark, in the order of time; ties
            in that of arrival.
        """
        ticks = ticks_of(events, self._bank.time)
        if not len(ticks):
            return None
        held = self.held(snapshot, int(ticks[0]), self._bank.columns)
        if held is None or held.last != watermark or snapshot.time_range is None:
            return None
        self._held, self._quiet = None, 0  # until all is well
        late = held.insert(events.select(held.schema.names))
        found = correct(self._bank, held, late, snapshot.time_range[0], watermark)
        if found is not None:
            self._held = held
        return found

    def searched(self, snapshot: Snapshot, late: Late, watermark: int) -> Corrected | None:
        """What late events change, read with what is near them; None: nothing.

        Parameters
        ----------
        late : Late
            Up to the watermark.
        """
        if not len(late.tick) or not self._bank.layers or snapshot.time_range is None:
            return None
        self._late_steps += 1
        first, reach = snapshot.time_range[0], 2 * max(1, self._bank.longest)
        self._held = None
        while True:
            low, high = self._stretch(snapshot, late, watermark, reach)
            held, places = self._read(snapshot, late, low, high)
            found = correct(self._bank, held, places, first, watermark)
            if found is not None:
                break
            reach *= 2
        if high == watermark and held.rows <= EVENTS_MAX:
            self._held, self._quiet = held, 0
            self._schema, self._gone = snapshot.schema, Removals.of(snapshot.state)
        return found

    def _stretch(
        self, snapshot: Snapshot, late: Late, watermark: int, reach: int
    ) -> tuple[int, int]:
        """What is read: all from a time on where that is to be kept, else what is near."""
        first = snapshot.time_range[0] if snapshot.time_range is not None else watermark
        most = min(EVENTS_MAX, self._late_steps * EVENTS_FOR_LATE)
        near = max(first, int(late.tick[0]) - reach)
        for low in (max(first, near - (watermark - near)), near):
            if snapshot.aggregate((), *half_open(low, watermark)).count <= most:
                return low, watermark
        return near, min(watermark, int(late.tick[-1]) + reach)

    def _read(
        self, snapshot: Snapshot, late: Late, low: int, high: int
    ) -> tuple[Arranged, tuple[IntArray, IntArray]]:
        """The events of a stretch, and where the late ones stand in it."""
        columns = {*self._bank.columns, *self._asked}
        names = [name for name in snapshot.schema.names if name in columns]
        schema = pa.schema([snapshot.schema.arrow.field(name) for name in names])
        table = pa.Table.from_batches(snapshot.scan(*half_open(low, high), names), schema)
        is_late = late.among(ticks_of(table, self._bank.time))
        held = Arranged(schema, self._bank.time, self._bank.partition_by, low)
        held.append(table.filter(pa.array(~is_late)), min(high, INT64_MAX - 1))
        return held, held.insert(table.filter(pa.array(is_late)))
