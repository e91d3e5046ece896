"""Tick ranges to which a pattern is restricted, wide enough to hold every relevant match."""

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
    """Inclusive tick ranges, each for one ``key`` code; ``values``: by column, indexed by code."""

    low: Ints
    high: Ints
    key: Ints
    columns: Sequence[str]
    values: Sequence[pa.Array]

    def partitions(self, timeline: Timeline, schema: StreamSchema) -> PartitionSpans:
        keys = PartitionKeys(timeline, self.columns, schema)
        code = keys.number(self.values)[self.key]
        low, high = _positions(timeline, self.low, self.high)
        return PartitionSpans.of(keys, code, low, high, timeline.total + 1)


@dataclass(frozen=True)
class Near:
    """Inclusive, disjoint, ascending tick ranges, each with ``rows`` events around it.  ``keyed``:
    the same by key, if rows of other keys do not matter.
    """

    low: Ints
    high: Ints
    rows: int = 0
    keyed: KeyedRanges | None = None

    def spans(self, timeline: Timeline) -> Spans:
        low, high = _positions(timeline, self.low, self.high)
        return Spans.of(
            np.maximum(low - self.rows, 0), np.minimum(high + self.rows, timeline.total)
        )


def _positions(timeline: Timeline, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    first, last = numbered(low), numbered(high)
    return timeline.lower(first[0])[first[1]], timeline.upper(last[0])[last[1]]
