"""Large appends: full leaves are written directly, and the rest becomes the new tail, in one
commit::

    before    active segment |====|     tail |--|
    append                              events  |----------------------|
    after     active segment |====|==|======|== full |    active |==|  tail |-|
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from .commits import Commits, Edit
from .conform import AppendRules
from .draft import Draft
from .floor import expired, horizon, within_span
from .journal import Marks, RecordKind, encode_state
from .tail import Tail, concat_batches, ticks_of

PIECE_EVENTS = 1 << 20


def append_leaves(
    commits: Commits,
    rules: AppendRules,
    late: pa.RecordBatch | None,
    fresh: pa.RecordBatch,
    marks: Marks | None,
) -> None:
    """Write the leaves that tail and fresh events fill, then commit; the lock is held."""
    schema = rules.schema
    hold = commits.held()
    dropped = expired(ticks_of(fresh, schema), rules.retention_ticks, hold)
    fresh = fresh.slice(dropped)
    rows = fresh.num_rows + (0 if late is None else late.num_rows)
    last = int(ticks_of(fresh, schema)[-1])
    with Draft(commits) as draft:
        rest = _write_leaves(commits, rules, draft, fresh)
        active = draft.active
        extent = None
        if active is not None:
            active.writer.sync()
            extent = active.writer.extent()
        journal = commits.journal.after(late, rows, last, Tail(schema, [rest]), marks)
        journal = replace(journal, extent=extent)
        if draft.entries or dropped:
            manifest = commits.manifest
            if dropped and rules.retention_ticks is not None:
                manifest = manifest.dropping(dropped, horizon(last, rules.retention_ticks, hold))
            manifest = replace(manifest, segments=manifest.segments.grown(draft.entries))
            commits.apply(Edit(journal, active, manifest, draft.views))
        else:
            if draft.begun:
                commits.files.sync_directory(commits.directory)
            record = RecordKind.EXTENT, encode_state(journal, late)
            commits.apply(Edit(journal, active, record=record))


def _write_leaves(
    commits: Commits, rules: AppendRules, draft: Draft, fresh: pa.RecordBatch
) -> pa.RecordBatch:
    tail = commits.journal.tail
    arrow = rules.arrow
    rest = fresh
    events = 0 if draft.active is None else draft.active.writer.events
    if tail.rows:
        # fill up the tail to a leaf, so that most events are not copied
        wanted = max(1, rules.leaf_events - tail.rows % rules.leaf_events)
        head = concat_batches([tail.batch(), fresh.slice(0, wanted)], arrow)
        written = draft.writer().write(head, whole_leaves=True)
        left = head.num_rows - written
        consumed = min(wanted, fresh.num_rows)
        if left:
            rest = concat_batches([head.slice(written), fresh.slice(consumed)], arrow)
        else:
            rest = fresh.slice(consumed)
        _seal_when_full(rules, draft)
    while rest.num_rows:
        piece = rest.slice(0, PIECE_EVENTS)
        writer = draft.writer()
        span = within_span(ticks_of(piece, rules.schema), writer.first, rules.retention_ticks)
        written = writer.write(piece.slice(0, span), whole_leaves=span == piece.num_rows)
        rest = rest.slice(written)
        _seal_when_full(rules, draft, now=span < piece.num_rows)
        if written == 0:
            break
    if rest.num_rows and not draft.entries and draft.writer().events == events:
        # Repeated long strings are large here and small on disk: write them anyway.
        draft.writer().write(rest)
        rest = rest.slice(rest.num_rows)
    return rest


def _seal_when_full(rules: AppendRules, draft: Draft, *, now: bool = False) -> None:
    if draft.active is not None:
        writer = draft.active.writer
        if (now or writer.length >= rules.segment_bytes) and writer.events:
            draft.seal()
