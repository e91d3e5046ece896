"""Compaction: folding late runs into the segments that they belong to.

Purpose
    Late events cost every reader a merge.  Folding rewrites the base segments that late events
    fall into, and only those, and removes the late runs.

Guarantee
    Scans, aggregates and the order of ties are the same before and after.  The rewriting works on
    immutable files while appends go on; one replacement of the manifest makes it visible.  A crash
    before that leaves files that nothing names, which the next opening removes.

Algorithm
    An event at time t belongs to the last base segment that begins at or before t (the first, when
    there is none): there it comes after all base events of its time, which arrived before it did.

Limits
    Needs free space for the rewritten segments before the old ones can go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from ..schema import StreamSchema
from .catalog import SegmentEntry, segment_name
from .commits import Commits
from .merge import merge_sources
from .segment import TICK_MAX, TICK_MIN, SegmentView, Selection
from .segment_writer import SegmentWriter
from .tail import concat_batches, sort_batch

__all__ = ["compact", "merge_runs", "spill"]


def merge_runs(views: Sequence[SegmentView], writer: SegmentWriter, schema: StreamSchema) -> None:
    """Write the events of several late runs, oldest run first, into one segment."""
    _write(_merged(views, schema, TICK_MIN, TICK_MAX), writer)


def _merged(
    views: Sequence[SegmentView], schema: StreamSchema, first: int, last: int
) -> Iterator[pa.RecordBatch]:
    sources = [
        view.scan(schema.names, schema.arrow, first, last)
        for view in views
        if view.last >= first and view.first <= last
    ]
    return merge_sources(sources, schema)


def _write(batches: Iterator[pa.RecordBatch], writer: SegmentWriter) -> None:
    """Write batches as full leaves, carrying what does not fill one over to the next batch."""
    carry: pa.RecordBatch | None = None
    for batch in batches:
        if carry is not None:
            batch = concat_batches([carry, batch], batch.schema)
        written = writer.write(batch, whole_leaves=True)
        carry = batch.slice(written) if written < batch.num_rows else None
    if carry is not None:
        writer.write(carry)


def compact(commits: Commits) -> None:
    """Fold every late event of a stream; see the module.

    The stream's lock is held while files are chosen and while the result is committed, not while
    segments are rewritten.
    """
    with commits.lock:
        commits.check_writable()
        if not commits.journal.late and not commits.manifest.runs:
            return
        if commits.journal.late:
            spill(commits)
        runs = commits.manifest.runs
        views = [commits.views[entry.id] for entry in runs]
        newest = max(entry.last for entry in runs)
        active_from = _active_first(commits)
        if not commits.manifest.segments or (active_from is not None and newest >= active_from):
            commits.seal()
        schema = commits.schema
        segments = commits.manifest.segments
        bases = {entry.id: commits.views[entry.id] for entry in segments}
        commits.folding = frozenset(entry.id for entry in runs)
    try:
        _fold(commits, runs, views, segments, bases, schema)
    finally:
        commits.folding = frozenset()


def _fold(
    commits: Commits,
    runs: tuple[SegmentEntry, ...],
    views: list[SegmentView],
    segments: tuple[SegmentEntry, ...],
    bases: dict[int, SegmentView],
    schema: StreamSchema,
) -> None:
    """Rewrite the segments that late events fall into, then commit."""
    replaced: dict[int, SegmentEntry] = {}
    made: list[tuple[SegmentEntry, SegmentView]] = []
    if not segments:  # retention has dropped the base: the late events are all there is
        with commits.lock:
            writer, _ = commits.new_segment()
        merge_runs(views, writer, schema)
        made.append(commits.seal_writer(writer))
    for number, entry in enumerate(segments):
        first = TICK_MIN if number == 0 else entry.first
        last = TICK_MAX if number == len(segments) - 1 else segments[number + 1].first - 1
        if first > last:
            continue
        if not any(_holds(view, first, last) for view in views):
            continue
        with commits.lock:
            writer, _ = commits.new_segment()
        base = bases[entry.id]
        sources = [base.scan(schema.names, schema.arrow, TICK_MIN, TICK_MAX)]
        sources += [
            view.scan(schema.names, schema.arrow, first, last)
            for view in views
            if view.last >= first and view.first <= last
        ]
        _write(merge_sources(sources, schema), writer)
        made.append(commits.seal_writer(writer))
        replaced[entry.id] = made[-1][0]
    with commits.lock:
        commits.check_writable()
        commits.files.sync_directory(commits.directory)
        gone = {entry.id for entry in runs}
        present = [replaced.get(entry.id, entry) for entry in commits.manifest.segments]
        if not segments:
            present = [made[0][0], *present]
        commits.commit(
            replace(
                commits.manifest,
                segments=tuple(present),
                runs=tuple(entry for entry in commits.manifest.runs if entry.id not in gone),
            ),
            commits.journal,
            {entry.id: view for entry, view in made if entry in present},
        )
        state = commits.state()
    commits.publish(state)


def _active_first(commits: Commits) -> int | None:
    """First tick of the active segment and the tail; None when both are empty."""
    view = commits.active_view()
    if view is not None and view.events:
        return view.first
    tail = commits.journal.tail
    return tail.leaf(tail.rows).first if tail.rows else None


def _holds(view: SegmentView, first: int, last: int) -> bool:
    """Whether a run has an event with first <= t <= last."""
    selection = Selection(view.file.schema, ())
    words = selection.words()
    view.aggregate(selection, first, last, words, None)
    return bool(words[0])


def spill(commits: Commits) -> None:
    """Write the late buffer as a late run; neighbours of similar size are merged.

    Each run is then at least twice as large as the next, so their number grows with the logarithm
    of the late events.  Runs that a compaction is folding are left alone.
    """
    schema = commits.schema
    first_id = commits.next_id
    try:
        writer, _ = commits.new_segment()
        late = concat_batches(commits.journal.late, schema.arrow)
        writer.write(sort_batch(late, schema))
        entry, view = commits.seal_writer(writer)
        runs = [*commits.manifest.runs, entry]
        views = {entry.id: view}
        while len(runs) > 1 and runs[-2].events < 2 * runs[-1].events:
            if runs[-2].id in commits.folding:
                break
            pair = [views.get(e.id) or commits.views[e.id] for e in runs[-2:]]
            merged, _ = commits.new_segment()
            merge_runs(pair, merged, schema)
            entry, view = commits.seal_writer(merged)
            runs[-2:] = [entry]
            views[entry.id] = view
        commits.files.sync_directory(commits.directory)
        kept = {entry.id for entry in runs}
        commits.commit(
            replace(commits.manifest, runs=tuple(runs)),
            replace(commits.journal, late=()),
            {i: view for i, view in views.items() if i in kept},
        )
    except BaseException:
        if commits.failed is None:
            for segment_id in range(first_id, commits.next_id):
                with suppress(Exception):
                    commits.files.remove(commits.path(segment_name(segment_id)))
        raise
    for segment_id in range(first_id, commits.next_id):
        if segment_id not in kept:  # an intermediate run of this very spill
            with suppress(FileNotFoundError):
                commits.files.remove(commits.path(segment_name(segment_id)))
