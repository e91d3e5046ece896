"""Cache of the events around late ones, by partition, for a group of patterns::

             first                         watermark
    .........|==============================|- - - -       cached; steps append to it
        |==|======|                                        late event before it: read separately,
           late    two windows                             or the cache is rebuilt from there on

Invalid after any change of the stream other than commits.  It begins with ``EVENTS_FOR_LATE``
events per step with late ones; beyond ``EVENTS_MAX`` or ``BYTES_MAX`` half is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.times import INT64_MAX
from ..query.pattern.late_region import Late
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
        return 0 if self._held is None else self._held.nbytes

    def drop(self) -> None:
        self._held = None

    def read_by(self, columns: Iterable[str]) -> list[str]:
        """Columns that a step must read of its events, including those cached."""
        held = self._held
        names = {*columns, *(() if held is None else held.schema.names)}
        return [name for name in self._bank.schema.names if name in names]

    def advance(self, events: pa.Table, upto: int) -> None:
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
        """Corrections from the cache; None: call ``searched``."""
        ticks = ticks_of(events, self._bank.time)
        if not len(ticks):
            return None
        held = self.held(snapshot, int(ticks[0]), self._bank.columns)
        if held is None or held.last != watermark or snapshot.time_range is None:
            return None
        self._held, self._quiet = None, 0  # lost if the step fails
        late = held.insert(events.select(held.schema.names))
        found = correct(self._bank, held, late, snapshot.time_range[0], watermark)
        if found is not None:
            self._held = held
        return found

    def searched(self, snapshot: Snapshot, late: Late, watermark: int) -> Corrected | None:
        """Corrections, reading the events near ``late``; None if nothing changes."""
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
        columns = {*self._bank.columns, *self._asked}
        names = [name for name in snapshot.schema.names if name in columns]
        schema = pa.schema([snapshot.schema.arrow.field(name) for name in names])
        table = pa.Table.from_batches(snapshot.scan(*half_open(low, high), names), schema)
        is_late = late.among(ticks_of(table, self._bank.time))
        held = Arranged(schema, self._bank.time, self._bank.partition_by, low)
        held.append(table.filter(pa.array(~is_late)), min(high, INT64_MAX - 1))
        return held, held.insert(table.filter(pa.array(is_late)))
