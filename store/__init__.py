"""The store: event streams in append-only TAB+-trees.

Reading order, bottom up.

::

    the disk      file_contract  files  memory_files  faulty_files  group_commit  write_behind
    one block     layout  block  packing  aggregates  columns  dictionary  prune
    one tree      residency  leaf  node  segment_writer  segment_file  segment  leaf_map
                  inspect
    in memory     tail  late_merge  merge  tap
    on disk       options  catalog  atomic_file  manifest  log  journal  lock  losses
    reading       snapshot  difference  recovery  recent  check  pins  pin_files
    writing       conform  append_queue  retention  garbage  edit  commits  draft  leaf_append
                  compaction  background  repair  schema_change  figures  stream
    the store     staging  store  changes  backup
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
