"""The store: event streams in append-only TAB+-trees.  Reading order, bottom up:

*The disk:* ``progress`` (of long operations), ``file_contract`` (interface, atomic replacement),
``files`` (real; read planning), ``object_store`` (S3 or directory), ``cold_file`` (moved segments).

*One block:* ``layout`` (constants), ``block`` (framing), ``packing`` (integers), ``scaled``
(decimals, exceptions), ``aggregates`` (monoid), ``columns`` (chunks, partial checksums),
``dictionary`` (strings), ``prune`` (predicate pushdown).

*One tree:* ``leaf``, ``node``, ``segment_writer`` (write-behind), ``evolution`` (of schemas, on
read), ``segment_list`` (entries), ``segment_file`` (mapping; limit of open files), ``segment``
(view), ``leaf_map`` (positions), ``inspect``.

*In memory:* ``tail``, ``merge`` (also kernels), ``tap`` (ranges of ticks), ``deletions`` (ticks and
ranks).

*On disk:* ``options``, ``catalog`` (manifest), ``views`` (named queries), ``manifest_pages``,
``log`` (group commit), ``journal`` (log records), ``lock`` (writer, leases).

*Reading:* ``segment_views`` (and their roots), ``snapshot``, ``floor`` (retention, hidden events),
``recovery``, ``recent`` (commits), ``check``, ``pins`` (versions that readers need; garbage).

*Writing:* ``conform`` (validation), ``commits`` (drafts; creation),
``duplicates`` (recent keys), ``compaction`` (policy, rewriting), ``deleting``, ``moving`` (to
objects; throttling; statistics), ``background``, ``repair`` (losses), ``schema_change``, ``stream``
(writer, reader).

*The store:* ``staging`` (bulk loads, range replacement), ``external_sort``, ``filling`` (CREATE
AS), ``store``, ``changes`` (for followers), ``backup`` (also restoring).
"""
