"""Compaction: folding late runs into the segments that they belong to.

Purpose
    Late events cost every reader a merge.  Folding rewrites the base segments that late events fall into,
    and only those, and removes the late runs.

Guarantee
    Scans, aggregates and the order of ties are the same before and after.  The rewriting works on immutable files
    while appends go on; one replacement of the manifest makes it visible.  A crash before that leaves
    files that nothing names, which the next opening removes.

Algorithm
    An event at time t belongs to the last base segment that begins at or before t (the first, when there is
    none): there it comes after all base events of its time, which arrived before it did.

Limits
    Needs free space for the rewritten segments before the old ones can go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from ..schema import StreamSchema
from .catalog import SegmentEntry
from .merge import merge_sources
from .segment import TICK_MAX, TICK_MIN, SegmentView, Selection
from .segment_writer import SegmentWriter
from .tail import concat_batches

if TYPE_CHECKING:
    from .stream import EventStream

__all__ = ["compact", "merge_runs"]


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


def compact(stream: EventStream) -> None:
    """Fold every late event of a stream; see the module.

    The stream's lock is held while files are chosen and while the result is committed, not while
    segments are rewritten.
    """
    with stream._lock:
        stream._writable()
        if not stream._journal.late and not stream._manifest.runs:
            return
        if stream._journal.late:
            stream._spill()
        runs = stream._manifest.runs
        views = [stream._views[entry.id] for entry in runs]
        newest = max(entry.last for entry in runs)
        active_from = _active_first(stream)
        if not stream._manifest.segments or (active_from is not None and newest >= active_from):
            stream._seal()
        schema = stream.schema
        segments = stream._manifest.segments
        bases = {entry.id: stream._views[entry.id] for entry in segments}
        stream.folding = frozenset(entry.id for entry in runs)
    try:
        _fold(stream, runs, views, segments, bases, schema)
    finally:
        stream.folding = frozenset()


def _fold(
    stream: EventStream,
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
        with stream._lock:
            writer, _ = stream._new_segment()
        merge_runs(views, writer, schema)
        made.append(stream._seal_writer(writer))
    for number, entry in enumerate(segments):
        first = TICK_MIN if number == 0 else entry.first
        last = TICK_MAX if number == len(segments) - 1 else segments[number + 1].first - 1
        if first > last:
            continue
        if not any(_holds(view, first, last) for view in views):
            continue
        with stream._lock:
            writer, _ = stream._new_segment()
        base = bases[entry.id]
        sources = [base.scan(schema.names, schema.arrow, TICK_MIN, TICK_MAX)]
        sources += [
            view.scan(schema.names, schema.arrow, first, last)
            for view in views
            if view.last >= first and view.first <= last
        ]
        _write(merge_sources(sources, schema), writer)
        made.append(stream._seal_writer(writer))
        replaced[entry.id] = made[-1][0]
    with stream._lock:
        stream._writable()
        stream._files.sync_directory(stream._directory)
        gone = {entry.id for entry in runs}
        present = [replaced.get(entry.id, entry) for entry in stream._manifest.segments]
        if not segments:
            present = [made[0][0], *present]
        stream._commit(
            replace(
                stream._manifest,
                segments=tuple(present),
                runs=tuple(entry for entry in stream._manifest.runs if entry.id not in gone),
            ),
            stream._journal,
            {entry.id: view for entry, view in made if entry in present},
        )
        state = stream._state()
    stream._publish(state)


def _active_first(stream: EventStream) -> int | None:
    """First tick of the active segment and the tail; None when both are empty."""
    view = stream._active_view()
    if view is not None and view.events:
        return view.first
    tail = stream._journal.tail
    return tail.leaf(tail.rows).first if tail.rows else None


def _holds(view: SegmentView, first: int, last: int) -> bool:
    """Whether a run has an event with first <= t <= last."""
    selection = Selection(view.file.schema, ())
    words = selection.words()
    view.aggregate(selection, first, last, words, None)
    return bool(words[0])
