"""The store: event streams in append-only TAB+-trees.

Reading order, bottom up: ``file_contract`` (the seam to the disk), ``layout``, ``block``,
``packing``, ``columns``, ``aggregates``, ``leaf``, ``node``, ``dictionary``, ``segment_writer``,
``segment_file`` and ``segment`` (one tree), ``tail``, ``weave`` and ``merge`` (events in memory,
late events), ``log``, ``journal``, ``manifest``, ``catalog`` and ``recovery`` (commits and
crashes), ``snapshot`` (readers), ``stream``, ``compaction`` and ``store`` (the writer).
"""

from __future__ import annotations

from .check import CheckReport
from .inspect import describe_block, describe_segment
from .options import StreamOptions
from .prune import AllOf, AnyOf, IsNull, Never, NotNull, Prune, Range
from .segment import ScanMetrics
from .snapshot import Snapshot
from .store import Store, StreamReader
from .stream import AppendResult, EventStream

__all__ = [
    "AllOf",
    "AnyOf",
    "AppendResult",
    "CheckReport",
    "EventStream",
    "IsNull",
    "Never",
    "NotNull",
    "Prune",
    "Range",
    "ScanMetrics",
    "Snapshot",
    "Store",
    "StreamOptions",
    "StreamReader",
    "describe_block",
    "describe_segment",
]
