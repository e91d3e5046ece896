"""The store: event streams in append-only TAB+-trees.  Reading order, bottom up:

*The disk:* ``progress`` (of long operations), ``file_contract`` (interface), ``read_plan`` (ranges
to requests), ``files`` (real), ``memory_files`` (power cut model),
``group_commit`` (shared syncs), ``write_behind``, ``direct_file`` (O_DIRECT),
``object_store`` (S3 or directory), ``cold_stub``, ``cold_file``, ``cold_files`` (moved segments).

*One block:* ``layout`` (constants), ``block`` (framing), ``lent_memory`` (buffer pool), ``packing``
(integers), ``aggregates`` (monoid), ``columns`` (chunks), ``dictionary`` (strings), ``prune``
(predicate pushdown).

*One tree:* ``residency`` (of mapped pages), ``sections`` (partial checksums), ``leaf``, ``node``,
``segment_writer``, ``leaf_line`` (parallel encoding), ``evolution`` (of schemas, on read),
``open_files`` (limit), ``segment_list`` (entries), ``segment_file`` (mapping), ``sealed_tree``
(footer), ``segment`` (view), ``leaf_map`` (positions), ``inspect``.

*In memory:* ``tail``, ``late_merge`` (kernels), ``merge``, ``tap`` (of commits), ``deletions``
(ticks and ranks), ``key_hash``, ``key_window`` (recent keys).

*On disk:* ``options``, ``atomic_file``, ``manifest``, ``views`` (named queries),
``manifest_pages``, ``catalog`` (manifest body), ``bulk_jobs``, ``log``, ``journal`` (log records),
``lock`` (writer, leases), ``losses``.

*Reading:* ``root_runs`` (roots of segments), ``segment_views``, ``cut_views``, ``snapshot``,
``difference`` (of snapshots), ``retention``, ``floor`` (hidden events), ``recovery``, ``recent``
(commits), ``check``, ``pins``, ``pin_files`` (stored versions).

*Writing:* ``conform`` (validation), ``append_queue``, ``garbage``, ``edit``, ``manifest_commit``,
``commits``, ``duplicates``, ``append_jobs``, ``draft`` (rollback), ``leaf_append`` (large),
``creation``, ``fold`` (policy), ``rewriting``, ``compaction``, ``leaving_out`` (rows),
``deleting``, ``pace`` and ``low_priority`` (throttling), ``moving`` (to objects), ``background``,
``tiering``, ``repair``, ``schema_change``, ``figures``, ``stream`` (writer), ``stream_reader``.

*The store:* ``mover`` (thread), ``placing`` (of staged segments), ``bulk_duplicates``,
``replacing`` (ranges), ``staging`` (bulk loads), ``sorted_segments`` (external sort), ``filling``,
``store``, ``changes`` (for followers), ``backups``, ``object_backups`` (lists), ``backup``,
``object_backup``, ``restoring`` (from objects).
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
