"""Parts of a stream that matter at all: what a pattern is asked for near something else.

Purpose
    A recency join knows from one side where matches of the other can lie.  :class:`Near` hands that
    to the planner, which looks up and replays nothing else: ranges of time, perhaps each for some
    keys only.

Guarantee
    Whoever makes one has widened its ranges, so that every match that matters lies in one of them
    and is found there as in the whole stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.sorting import numbered
from ...schema import StreamSchema
from .partition_keys import PartitionKeys
from .partition_spans import PartitionSpans
from .spans import Spans
from .timeline import Timeline

__all__ = ["KeyedRanges", "Near"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class KeyedRanges:
    """Ranges of single keys.

    Attributes
    ----------
    low, high, key : int64[n]
        Ticks, inclusive, and a code.
    columns : sequence of str
        Of the stream; keys are told apart by them.
    values : sequence of pyarrow.Array
        Of each column, by code.
    """

    low: Ints
    high: Ints
    key: Ints
    columns: Sequence[str]
    values: Sequence[pa.Array]

    def partitions(self, timeline: Timeline, schema: StreamSchema) -> PartitionSpans:
        """The rows that they hold."""
        keys = PartitionKeys(timeline, self.columns, schema)
        code = keys.number(self.values)[self.key]
        low, high = _positions(timeline, self.low, self.high)
        return PartitionSpans.of(keys, code, low, high, timeline.total + 1)


@dataclass(frozen=True)
class Near:
    """See the module.

    Attributes
    ----------
    low, high : int64[n]
        Ticks, inclusive, disjoint and in order.
    rows : int
        Events around each range that belong to it.
    keyed : KeyedRanges or None
        The same by key, where rows of other keys do not matter.
    """

    low: Ints
    high: Ints
    rows: int = 0
    keyed: KeyedRanges | None = None

    def spans(self, timeline: Timeline) -> Spans:
        """Positions of the ranges."""
        low, high = _positions(timeline, self.low, self.high)
        return Spans.of(
            np.maximum(low - self.rows, 0), np.minimum(high + self.rows, timeline.total)
        )


def _positions(timeline: Timeline, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Positions of ranges of ticks in any order, half-open."""
    first, last = numbered(low), numbered(high)
    return timeline.lower(first[0])[first[1]], timeline.upper(last[0])[last[1]]
