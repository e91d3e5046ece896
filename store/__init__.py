"""The store: event streams in append-only TAB+-trees.

Reading order, bottom up.

::

    the disk      progress  file_contract  read_plan  files  memory_files  faulty_files
                  group_commit  write_behind  direct_file  object_store  cold_stub  cold_file
                  cold_files
    one block     layout  block  lent_memory  packing  aggregates  columns  dictionary  prune
    one tree      residency  sections  leaf  node  segment_writer  leaf_line  evolution
                  open_files  segment_list  segment_file  sealed_tree  segment  leaf_map  inspect
    in memory     tail  late_merge  merge  tap  deletions  key_hash  key_window
    on disk       options  atomic_file  manifest  views  manifest_pages  catalog  bulk_jobs  log
                  journal  lock  losses
    reading       root_runs  segment_views  cut_views  snapshot  difference  retention  floor
                  recovery  recent  check  pins  pin_files
    writing       conform  append_queue  garbage  edit  manifest_commit  commits  duplicates
                  append_jobs  draft  leaf_append  creation  fold  rewriting  compaction
                  leaving_out  deleting  pace  low_priority  moving  background  tiering  repair
                  schema_change  figures  stream  stream_reader
    the store     mover  placing  bulk_duplicates  replacing  staging  sorted_segments  filling
                  store  changes  backups  object_backups  backup  object_backup  restoring
"""

from __future__ import annotations

from .check import CheckReport
from .inspect import describe_block, describe_segment
from .options import StreamOptions
from .prune import AllOf, AnyOf, IsNull, Never, NotNull, Prune, Range
from .segment import ScanMetrics
from .snapshot import Snapshot
from .store import Store
from .stream import EventStream
from .stream_reader import StreamReader

__all__ = [
    "AllOf",
    "AnyOf",
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
