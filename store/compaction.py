"""Compaction: folding late runs into the segments that they belong to.

Purpose
    Late events cost every reader a merge.  Folding rewrites the base segments that late events
    fall into, and only those, and removes the late runs.

Guarantee
    Scans, aggregates and the order of ties are the same before and after.  The rewriting works on
    immutable files while appends go on; one replacement of the manifest makes it visible.  A crash
    before that leaves files that nothing names, which the next opening removes; an error or an
    interruption removes them at once.

Algorithm
    An event at time t belongs to the last base segment that begins at or before t (the first, when
    there is none): there it comes after all base events of its time, which arrived before it did.

    ::

        base     |==== 1 ====|==== 2 ====|==== 3 ====|==== 4 ====|       1 and 4 stay
        runs                     |--|  |-----|                           2 and 3 are rewritten,
        after    |==== 1 ====|======= 5 =======|= 6 =|==== 4 ====|       joined, cut when full

    Neighbours that are rewritten together are joined: folding often must not leave small segments.

    When the base changes meanwhile so that the result no longer fits (a segment that was rewritten
    or a run that was folded has been dropped by retention or truncation), it is thrown away and
    the compaction begins anew.

Limits
    Needs free space for the rewritten segments before the old ones can go.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import pyarrow as pa

from ..errors import CorruptStore
from ..schema import StreamSchema
from .catalog import SegmentEntry
from .commits import Commits
from .merge import merge_sources
from .segment import TICK_MAX, TICK_MIN, SegmentView, Selection
from .segment_writer import SegmentWriter
from .tail import concat_batches, sort_batch

__all__ = ["Interrupted", "active_first", "compact", "merge_runs", "spill"]

logger = logging.getLogger("chronicle.store")

ATTEMPTS = 5


class Interrupted(Exception):
    """The compaction was asked to stop; the stream is as it was."""


def _never() -> bool:
    return False


def merge_runs(views: Sequence[SegmentView], writer: SegmentWriter, schema: StreamSchema) -> None:
    """Write the events of several late runs, oldest run first, into one segment."""
    sources = [view.scan(schema.names, schema.arrow, TICK_MIN, TICK_MAX) for view in views]
    carry: pa.RecordBatch | None = None
    for batch in merge_sources(sources, schema):
        carry = _write_leaves(writer, carry, batch)
    if carry is not None:
        writer.write(carry)


def _write_leaves(
    writer: SegmentWriter, carry: pa.RecordBatch | None, batch: pa.RecordBatch
) -> pa.RecordBatch | None:
    """Write full leaves of what was carried over and a batch; give back what fills none."""
    if carry is not None:
        batch = concat_batches([carry, batch], batch.schema)
    written = writer.write(batch, whole_leaves=True)
    return batch.slice(written) if written < batch.num_rows else None


@dataclass
class _Fold:
    """A compaction under way.

    Attributes
    ----------
    runs, segments : tuple of SegmentEntry
        Late runs to fold, and the base, as they were when it began.
    made : list of (SegmentEntry, SegmentView)
        Segments written.
    replaced : dict of int to list of SegmentEntry
        What takes the place of a base segment; the first of a joined group has all of it.
    """

    schema: StreamSchema
    runs: tuple[SegmentEntry, ...]
    segments: tuple[SegmentEntry, ...]
    views: dict[int, SegmentView]
    made: list[tuple[SegmentEntry, SegmentView]] = field(default_factory=list)
    replaced: dict[int, list[SegmentEntry]] = field(default_factory=dict)
    identifiers: list[int] = field(default_factory=list)


def compact(commits: Commits, stopped: Callable[[], bool] = _never) -> None:
    """Fold every late event of a stream; see the module.

    The stream's lock is held while files are chosen and while the result is committed, not while
    segments are rewritten.

    Parameters
    ----------
    commits : Commits
    stopped : callable
        Asked between batches; True raises :class:`Interrupted`.
    """
    for _ in range(ATTEMPTS):
        began = time.perf_counter()
        fold = _begin(commits)
        if fold is None:
            return
        done = False
        try:
            _rewrite(commits, fold, stopped)
            done = _finish(commits, fold)
        finally:
            with commits.lock:
                commits.folding = frozenset()
            if not done and commits.failed is None:
                commits.discard(fold.identifiers)
        if done:
            figures = commits.figures
            figures["compactions"] += 1
            figures["compaction_seconds"] += time.perf_counter() - began
            figures["events_rewritten"] += sum(entry.events for entry, _ in fold.made)
            return
    logger.warning(
        "%s: the base changed during each of %d compactions", commits.directory, ATTEMPTS
    )


def _begin(commits: Commits) -> _Fold | None:
    """Choose what to fold; None when there is nothing."""
    with commits.lock:
        commits.check_writable()
        if not commits.journal.late and not commits.manifest.runs:
            return None
        if commits.journal.late:
            spill(commits)
        runs = commits.manifest.runs
        if not runs:
            return None  # retention took them while they were spilled
        newest = max(entry.last for entry in runs)
        active_from = active_first(commits)
        if not commits.manifest.segments or (active_from is not None and newest >= active_from):
            commits.seal()
            runs = commits.manifest.runs
            if not runs:
                return None
        segments = commits.manifest.segments
        commits.folding = frozenset(entry.id for entry in runs)
        views = {entry.id: commits.views[entry.id] for entry in (*runs, *segments)}
        return _Fold(commits.schema, runs, segments, views)


def _rewrite(commits: Commits, fold: _Fold, stopped: Callable[[], bool]) -> None:
    """Write the segments that take the place of those that late events fall into."""
    if not fold.segments:  # retention has dropped the base: the late events are all there is
        _write_group(commits, fold, [], TICK_MIN, TICK_MAX, stopped)
        return
    group: list[SegmentEntry] = []
    group_first = group_last = 0
    size = 0
    for number, entry in enumerate(fold.segments):
        newest = number == len(fold.segments) - 1
        first = TICK_MIN if number == 0 else entry.first
        last = TICK_MAX if newest else fold.segments[number + 1].first - 1
        touched = first <= last and any(_holds(fold.views[e.id], first, last) for e in fold.runs)
        if group and (not touched or size + entry.bytes > commits.options.segment_bytes):
            _write_group(commits, fold, group, group_first, group_last, stopped)
            group = []
        if touched:
            if not group:
                group_first, size = first, 0
            group.append(entry)
            group_last = last
            size += entry.bytes
    if group:
        _write_group(commits, fold, group, group_first, group_last, stopped)


def _write_group(
    commits: Commits,
    fold: _Fold,
    group: Sequence[SegmentEntry],
    first: int,
    last: int,
    stopped: Callable[[], bool],
) -> None:
    """Write neighbouring base segments, with the late events that belong to them, anew."""
    schema = fold.schema

    def scan(entry: SegmentEntry, low: int, high: int) -> Iterator[pa.RecordBatch]:
        return fold.views[entry.id].scan(schema.names, schema.arrow, low, high)

    sources: list[Iterator[pa.RecordBatch]] = [
        chain.from_iterable(scan(entry, TICK_MIN, TICK_MAX) for entry in group)
    ]
    sources += [scan(e, first, last) for e in fold.runs if e.last >= first and e.first <= last]
    outputs: list[SegmentEntry] = []
    writer: SegmentWriter | None = None
    carry: pa.RecordBatch | None = None
    try:
        for batch in merge_sources(sources, schema):
            if stopped():
                raise Interrupted
            if writer is None:
                writer = _new_segment(commits, fold)
            carry = _write_leaves(writer, carry, batch)
            if writer.events and writer.length >= commits.options.segment_bytes:
                outputs.append(_seal(commits, fold, writer))
                writer = None
        if carry is not None:
            writer = writer or _new_segment(commits, fold)
            writer.write(carry)
        if writer is not None:
            outputs.append(_seal(commits, fold, writer))
            writer = None
    finally:
        if writer is not None:
            writer.close()
    for number, entry in enumerate(group):
        fold.replaced[entry.id] = outputs if number == 0 else []


def _new_segment(commits: Commits, fold: _Fold) -> SegmentWriter:
    with commits.lock:
        writer, _ = commits.new_segment(fold.schema)
    fold.identifiers.append(writer.segment_id)
    return writer


def _seal(commits: Commits, fold: _Fold, writer: SegmentWriter) -> SegmentEntry:
    fold.made.append(commits.seal_writer(writer))
    return fold.made[-1][0]


def _finish(commits: Commits, fold: _Fold) -> bool:
    """Commit the result unless the base has changed so that it no longer fits."""
    with commits.lock:
        commits.check_writable()
        manifest = commits.manifest
        named = {entry.id for entry in (*manifest.segments, *manifest.runs)}
        if not named.issuperset({*fold.replaced, *(entry.id for entry in fold.runs)}):
            return False
        if not fold.segments and manifest.segments:
            return False
        present: list[SegmentEntry] = []
        for entry in manifest.segments:
            present += fold.replaced.get(entry.id, [entry])
        if not fold.segments:
            present = [entry for entry, _ in fold.made]
        gone = {entry.id for entry in fold.runs}
        commits.commit(
            replace(
                manifest,
                segments=tuple(present),
                runs=tuple(entry for entry in manifest.runs if entry.id not in gone),
            ),
            commits.journal,
            {entry.id: view for entry, view in fold.made},
        )
        state = commits.state()
    commits.publish(state)
    return True


def active_first(commits: Commits) -> int | None:
    """First tick of the active segment and the tail; None when both are empty."""
    view = commits.active_view()
    if view is not None and view.events:
        return view.first
    return commits.journal.tail.first


def _holds(view: SegmentView, first: int, last: int) -> bool:
    """Whether a run has an event with first <= t <= last."""
    if view.last < first or view.first > last:
        return False
    selection = Selection(view.file.schema, ())
    words = selection.words()
    view.aggregate(selection, first, last, words, None)
    return bool(words[0])


def spill(commits: Commits) -> None:
    """Write the late buffer as a late run; neighbours of similar size are merged.

    Each run is then at least twice as large as the next, so their number grows with the logarithm
    of the late events.  Runs that a compaction is folding are left alone, and so are damaged ones.
    """
    schema = commits.schema
    first_id = commits.next_id
    kept: set[int] = set()
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
            try:
                merge_runs(pair, merged, schema)
            except CorruptStore as error:
                merged.close()
                logger.error("%s: cannot merge late runs: %s", commits.directory, error)
                break
            entry, view = commits.seal_writer(merged)
            runs[-2:] = [entry]
            views[entry.id] = view
        kept = {entry.id for entry in runs}
        commits.commit(
            replace(commits.manifest, runs=tuple(runs)),
            replace(commits.journal, late=()),
            {i: view for i, view in views.items() if i in kept},
        )
    except BaseException:
        if commits.failed is None:
            commits.discard(range(first_id, commits.next_id))
        raise
    commits.figures["spills"] += 1
    # intermediate runs of this very spill
    commits.discard(i for i in range(first_id, commits.next_id) if i not in kept)
