"""Late events between two snapshots of a stream."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..core.times import INT64_MIN
from ..query.pattern.late_region import Late, late_events
from ..store.snapshot import Snapshot
from ..store.tail import ticks_of_column
from ..store.tap import Spans, tick_ranges
from .combined import fewer
from .forms import half_open

__all__ = ["late_among", "late_between"]

TICKS_FEW = 32
"""Up to this many ticks, events are counted tick by tick."""


def late_between(old: Snapshot, new: Snapshot, spans: Spans) -> Late | None:
    """Events in ranges of ticks that only ``new`` has; None when events were removed."""
    spans = fewer({"": new}, _shown(spans, old, new))
    return late_events(_ticks(new, spans), _ticks(old, spans))


def _shown(spans: Spans, old: Snapshot, new: Snapshot) -> Spans:
    """The parts of the ranges that retention hides in neither snapshot."""
    floors = [each.state.floor for each in (old, new) if each.state.floor is not None]
    floor = max(floors, default=INT64_MIN)
    return tuple((max(low, floor), high) for low, high in spans if high >= floor)


def late_among(new: Snapshot, ticks: npt.NDArray[np.int64]) -> Late:
    """Late events, given their ascending ticks; ``new`` contains them."""
    tick, count = np.unique(ticks, return_counts=True)
    if len(tick) <= TICKS_FEW:
        each = [new.aggregate((), *half_open(t, t)).count for t in tick.tolist()]
        return Late(tick, np.array(each, np.int64) - count)
    every = _ticks(new, fewer({"": new}, tick_ranges(tick)))
    return Late(tick, every.searchsorted(tick, "right") - every.searchsorted(tick) - count)


def _ticks(snapshot: Snapshot, spans: Spans) -> npt.NDArray[np.int64]:
    time = snapshot.schema.time
    none = np.zeros(0, np.int64)
    return np.concatenate(
        [
            none,
            *(
                ticks_of_column(batch.column(0))
                for low, high in spans
                for batch in snapshot.scan(*half_open(low, high), [time])
            ),
        ]
    )
