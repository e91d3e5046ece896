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

    Late events keep falling into the newest stretch of a stream, as far back as they have been late
    so far (:attr:`Commits.reach`).  What is folded is therefore cut there, at the *horizon*: the
    next folding rewrites what lies behind it and leaves what lies before it alone.  Where that has
    left a crowd of small segments, they are joined with what is being rewritten.

    ::

        folded   |======= cold =======|= hot =|
        later    |======= cold =======|= hot =|====== new ======|
        folded   |======= cold =======|===== cold =====|= hot =|

    A delete is the same rewriting, of the segments that hold what is deleted (:mod:`.deleting`).

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

import numpy as np
import pyarrow as pa

from ..errors import CorruptStore
from ..schema import StreamSchema
from .catalog import SegmentEntry, StreamManifest
from .cold_files import ColdFiles
from .commits import Commits
from .draft import seal
from .edit import Edit
from .merge import join_late, merge_sources
from .progress import each
from .retention import first_kept
from .segment import TICK_MAX, TICK_MIN, AggregatedColumns, SegmentView
from .segment_writer import BULK_LEAVES, SegmentWriter, leaf_events, plain_row_bytes
from .tail import ticks_of

__all__ = [
    "Fold",
    "Interrupted",
    "active_first",
    "compact",
    "events_between",
    "merge_runs",
    "rewritten",
    "show",
    "spill",
]

logger = logging.getLogger("chronicle.store")

ATTEMPTS = 5

COLD_BYTES = 8 << 20

CROWD = 8
"""So many small neighbours before what is being rewritten are joined with it."""

SMALL_SHARE = 8
"""A segment is small below this part of ``segment_bytes``."""

RUNS_MAX = 8
"""Late runs, beside those that are being folded: one more, and two neighbours are merged."""


class Interrupted(Exception):
    """The compaction was asked to stop; the stream is as it was."""


def _never() -> bool:
    return False


def merge_runs(views: Sequence[SegmentView], writer: SegmentWriter, schema: StreamSchema) -> None:
    """Write the events of several late runs, oldest run first, into one segment."""
    sources = [view.scan(schema.names, schema.arrow, TICK_MIN, TICK_MAX) for view in views]
    carry: list[pa.RecordBatch] = []
    for batch in merge_sources(sources, schema):
        carry = _write_leaves(writer, carry, batch)
    _write_rest(writer, carry)


def _write_leaves(
    writer: SegmentWriter, carry: list[pa.RecordBatch], batch: pa.RecordBatch
) -> list[pa.RecordBatch]:
    """Write leaves of what was carried over and a batch; give back what fills none.

    They are as large as those of a bulk load: what is rewritten is mostly read in bulk afterwards.
    """
    carry.append(batch)
    bulk = writer.leaf_bytes * BULK_LEAVES
    step = leaf_events(plain_row_bytes(writer.schema), bulk)
    rows = sum(piece.num_rows for piece in carry)
    if rows < step and sum(piece.nbytes for piece in carry) < 2 * bulk:
        return carry
    batch = _joined(carry)
    whole = rows // step * step or rows
    written = writer.write(batch.slice(0, whole), whole_leaves=True)
    return [batch.slice(written)] if written < rows else []


def _write_rest(writer: SegmentWriter, carry: list[pa.RecordBatch]) -> None:
    if carry:
        writer.write(_joined(carry))


def _is_encoded(array: pa.Array) -> bool:
    return bool(pa.types.is_dictionary(array.type))


def _joined(pieces: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches as one; a column that some hold encoded and others do not is decoded."""
    if len(pieces) == 1:
        return pieces[0]
    columns = []
    for i in range(pieces[0].num_columns):
        arrays = [piece.column(i) for piece in pieces]
        if any(array.type != arrays[0].type for array in arrays):
            arrays = [a.dictionary_decode() if _is_encoded(a) else a for a in arrays]
        columns.append(pa.concat_arrays(arrays))
    return pa.RecordBatch.from_arrays(columns, names=pieces[0].schema.names)


@dataclass
class Fold:
    """A compaction under way; a delete says what is different there.

    Attributes
    ----------
    runs, segments : tuple of SegmentEntry
        Late runs to fold, and the base, as they were when it began.
    made : list of (SegmentEntry, SegmentView)
        Segments written.
    replaced : dict of int to list of SegmentEntry
        What takes the place of a base segment; the first of a joined group has all of it.
    horizon : int or None
        Tick from which late events are to be expected still.
    cold_bytes : int
        What lies before the horizon becomes a segment of its own when it is at least so large.
    purged : frozenset of int
        Segments to be rewritten because they hold values of a dropped column, or were written
        before one was added with a default or widened.
    expires : int or None
        Retention keeps no event before this tick.
    expired : int
        Events that were left out for that.
    """

    schema: StreamSchema
    runs: tuple[SegmentEntry, ...]
    segments: tuple[SegmentEntry, ...]
    views: dict[int, SegmentView]
    made: list[tuple[SegmentEntry, SegmentView]] = field(default_factory=list)
    replaced: dict[int, list[SegmentEntry]] = field(default_factory=dict)
    identifiers: list[int] = field(default_factory=list)
    horizon: int | None = None
    cold_bytes: int = field(default_factory=lambda: COLD_BYTES)
    purged: frozenset[int] = frozenset()
    expires: int | None = None
    expired: int = 0

    @property
    def keeps_codes(self) -> bool:
        """Whether strings may stay encoded on their way from one segment to the next."""
        return True

    @property
    def sources(self) -> frozenset[int]:
        """Late runs that are gone when it is done."""
        return frozenset(entry.id for entry in self.runs)

    def drops(self, entry: SegmentEntry) -> bool:
        """Whether nothing is left of a base segment that no late event falls into."""
        return False

    def touches(self, entry: SegmentEntry) -> bool:
        """Whether a base segment is rewritten though no late event falls into it."""
        return entry.id in self.purged or (self.expires is not None and entry.first < self.expires)

    def kept(
        self, group: Sequence[SegmentEntry], batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """What is written of the events of neighbouring base segments, in order."""
        if self.expires is None:
            yield from batches
            return
        for batch in batches:
            old = int(ticks_of(batch, self.schema).searchsorted(self.expires))
            self.expired += old
            if old < batch.num_rows:
                yield batch.slice(old)

    def ready(self, commits: Commits) -> None:
        """Everything is rewritten, and is to be committed now; the lock is held."""

    def edit(self, commits: Commits, manifest: StreamManifest) -> Edit:
        """The change of the stream, to this manifest; the lock is held."""
        views = {entry.id: view for entry, view in self.made}
        if self.expires is not None:
            manifest = manifest.dropping(self.expired, self.expires)
        return Edit(commits.journal, commits.active, manifest, views)

    def applied(self, commits: Commits) -> None:
        """It has happened, and readers do not see it yet; the lock is held."""


def compact(
    commits: Commits, stopped: Callable[[], bool] = _never, *, buffered: bool = True
) -> None:
    """Fold the late events of a stream; see the module.

    Parameters
    ----------
    stopped : callable
        Asked between batches; True raises :class:`Interrupted`.
    buffered : bool
        Fold what waits in the buffer too, not only the late runs, and rewrite segments that hold
        values of dropped columns, are read by an :class:`~.evolution.Evolution`, or have events
        that are older than retention keeps them.
    """
    if not rewritten(commits, lambda: _begin(commits, buffered), stopped):
        logger.warning(
            "%s: the base changed during each of %d compactions", commits.directory, ATTEMPTS
        )


def rewritten(
    commits: Commits, begin: Callable[[], Fold | None], stopped: Callable[[], bool]
) -> bool:
    """Rewrite what is chosen, and commit it; False when the base has changed each time.

    The stream's lock is held while files are chosen and while the result is committed, not while
    segments are rewritten.

    Parameters
    ----------
    begin : callable
        Chooses; None when there is nothing to do, which is done then.
    stopped : callable
        As for :func:`compact`.
    """
    for _ in range(ATTEMPTS):
        began = time.perf_counter()
        fold = begin()
        if fold is None:
            return True
        done = False
        try:
            _rewrite(commits, fold, stopped)
            done = _finish(commits, fold)
        finally:
            with commits.lock:
                commits.fold()
            if not done and commits.failed is None:
                commits.discard(fold.identifiers)
        if done:
            commits.count(
                compactions=1,
                compaction_seconds=time.perf_counter() - began,
                events_rewritten=sum(entry.events for entry, _ in fold.made),
            )
            return True
    return False


def _begin(commits: Commits, buffered: bool = True) -> Fold | None:
    """Choose what to fold; None when there is nothing."""
    with commits.lock:
        commits.check_writable()
        before = commits.manifest.version
        if commits.journal.late and buffered:
            spill(commits)
        runs = commits.manifest.runs
        purged = frozenset(
            entry.id
            for entry in (commits.manifest.segments if buffered else ())
            if commits.manifest.holds_dropped(entry) or commits.manifest.read_as(entry).evolution
        )
        active_from = active_first(commits)
        expires = None
        if buffered:
            stored = [commits.views[entry.id] for entry in commits.manifest.segments]
            expires = first_kept(commits.manifest, stored, commits.journal.last, commits.held())
        if expires is not None and active_from is not None and active_from < expires:
            seal(commits)
            runs, active_from = commits.manifest.runs, None
        old = expires is not None and any(e.first < expires for e in commits.manifest.segments)
        if not (runs or purged or old):  # retention may have taken them while they were spilled
            show(commits, before)
            return None
        newest = max((entry.last for entry in runs), default=TICK_MIN)
        if not commits.manifest.segments or (active_from is not None and newest >= active_from):
            seal(commits)
            runs = commits.manifest.runs
            if not (runs or purged or old):
                show(commits, before)
                return None
        segments = commits.manifest.segments
        commits.fold(runs)
        views = {entry.id: commits.views[entry.id] for entry in (*runs, *segments)}
        fold = Fold(commits.schema, runs, segments, views, purged=purged, expires=expires)
        if commits.reach and commits.journal.last is not None:
            fold.horizon = commits.journal.last - int(commits.reach)
        return fold


def show(commits: Commits, before: int) -> None:
    """Show what the commits on the way have done: no other one follows."""
    if commits.manifest.version != before:  # a commit makes everything before it durable
        commits.publish(commits.state())


def _rewrite(commits: Commits, fold: Fold, stopped: Callable[[], bool]) -> None:
    """Write the segments that take the place of those that late events fall into."""
    if not fold.segments:  # retention has dropped the base: the late events are all there is
        if fold.runs:
            _write_group(commits, fold, [], TICK_MIN, TICK_MAX, stopped)
        return
    group: list[SegmentEntry] = []
    group_first = group_last = 0
    size = 0
    spans: list[tuple[int, int]] = []
    wanted: list[bool] = []
    for number, entry in enumerate(fold.segments):
        newest = number == len(fold.segments) - 1
        first = TICK_MIN if number == 0 else entry.first
        last = TICK_MAX if newest else fold.segments[number + 1].first - 1
        spans.append((first, last))
        late = any(events_between(fold.views[e.id], first, last) for e in fold.runs)
        if not late and fold.drops(entry):
            fold.replaced[entry.id] = []
            wanted.append(False)
        else:
            wanted.append(late or fold.touches(entry))
    _join_crowd(commits, fold, wanted)
    for entry, (first, last), touched in each(list(zip(fold.segments, spans, wanted, strict=True))):
        if group and (not touched or size + entry.bytes > commits.options.sealed_bytes):
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


def _join_crowd(commits: Commits, fold: Fold, wanted: list[bool]) -> None:
    """Rewrite also a crowd of small segments just before the last ones that are rewritten.

    Not under retention, which drops segment by segment, and none that has moved to objects.
    """
    if commits.options.retention is not None or True not in wanted:
        return
    end = len(wanted) - 1 - wanted[::-1].index(True)
    while end > 0 and wanted[end - 1]:
        end -= 1
    small = commits.options.segment_bytes // SMALL_SHARE
    start, files = end, commits.files
    cold = files.cold(commits.directory) if isinstance(files, ColdFiles) else frozenset()
    while start > 0 and not wanted[start - 1]:
        entry = fold.segments[start - 1]
        if entry.bytes >= small or entry.id in fold.replaced or entry.file in cold:
            break
        start -= 1
    if end - start >= CROWD:
        wanted[start:end] = [True] * (end - start)


def _write_group(
    commits: Commits,
    fold: Fold,
    group: Sequence[SegmentEntry],
    first: int,
    last: int,
    stopped: Callable[[], bool],
) -> None:
    """Write neighbouring base segments, with the late events that belong to them, anew."""
    schema = fold.schema

    late = [e for e in fold.runs if e.last >= first and e.first <= last]
    encoded = fold.keeps_codes and not late  # merging wants plain strings

    def scan(entry: SegmentEntry, low: int, high: int) -> Iterator[pa.RecordBatch]:
        view = fold.views[entry.id]
        return view.scan(schema.names, schema.arrow, low, high, dictionary=encoded)

    sources: list[Iterator[pa.RecordBatch]] = [
        chain.from_iterable(scan(entry, TICK_MIN, TICK_MAX) for entry in group)
    ]
    sources += [scan(e, first, last) for e in late]
    outputs: list[SegmentEntry] = []
    writer: SegmentWriter | None = None
    carry: list[pa.RecordBatch] = []
    try:
        for batch in fold.kept(group, merge_sources(sources, schema)):
            if stopped():
                raise Interrupted
            if writer is None:
                writer = _new_segment(commits, fold)
            cold = _before_horizon(fold, writer, carry, batch)
            if cold is not None:
                _write_rest(writer, [*carry, batch.slice(0, cold)])
                carry = []
                outputs.append(_seal(commits, fold, writer))
                writer = _new_segment(commits, fold)
                batch = batch.slice(cold)
            carry = _write_leaves(writer, carry, batch)
            if writer.events and writer.length >= commits.options.sealed_bytes:
                outputs.append(_seal(commits, fold, writer))
                writer = None
        if carry:
            writer = writer or _new_segment(commits, fold)
            _write_rest(writer, carry)
        if writer is not None:
            outputs.append(_seal(commits, fold, writer))
            writer = None
    finally:
        if writer is not None:
            writer.close()
    for number, entry in enumerate(group):
        fold.replaced[entry.id] = outputs if number == 0 else []


def _before_horizon(
    fold: Fold, writer: SegmentWriter, carry: list[pa.RecordBatch], batch: pa.RecordBatch
) -> int | None:
    """Rows of a batch that belong to the cold segment which ends with them; None to go on."""
    if fold.horizon is None or writer.length < fold.cold_bytes:
        return None
    ticks = ticks_of(batch, fold.schema)
    if ticks[-1] < fold.horizon:
        return None
    newest = int(ticks_of(carry[-1], fold.schema)[-1]) if carry else writer.last
    if newest is None:
        newest = int(ticks[0])
    if newest >= fold.horizon:
        return None  # cut already, or begun behind it
    return int(np.searchsorted(ticks, fold.horizon, "left"))


def _new_segment(commits: Commits, fold: Fold) -> SegmentWriter:
    with commits.lock:
        writer = commits.new_segment(fold.schema).writer
    fold.identifiers.append(writer.segment_id)
    return writer


def _seal(commits: Commits, fold: Fold, writer: SegmentWriter) -> SegmentEntry:
    fold.made.append(commits.seal_writer(writer))
    return fold.made[-1][0]


def _finish(commits: Commits, fold: Fold) -> bool:
    """Commit the result unless the base has changed so that it no longer fits."""
    with commits.lock:
        commits.check_writable()
        fold.ready(commits)
        manifest = commits.manifest
        named = {entry.id for entry in (*manifest.segments, *manifest.runs)}
        gone = fold.sources
        if not named.issuperset({*fold.replaced, *gone}):
            return False
        if not fold.segments and manifest.segments:
            return False
        present: list[SegmentEntry] = []
        for entry in manifest.segments:
            present += fold.replaced.get(entry.id, [entry])
        if not fold.segments:
            present = [entry for entry, _ in fold.made]
        manifest = replace(
            manifest,
            segments=tuple(present),
            runs=tuple(entry for entry in manifest.runs if entry.id not in gone),
        )
        commits.apply(fold.edit(commits, manifest))
        fold.applied(commits)
        state = commits.state()
    commits.publish(state)
    return True


def active_first(commits: Commits) -> int | None:
    """First tick of the active segment and the tail; None when both are empty."""
    view = commits.active_view()
    if view is not None and view.events:
        return view.first
    return commits.journal.tail.first


def events_between(view: SegmentView, first: int, last: int) -> int:
    """How many events of a segment have first <= t <= last."""
    if first > last or view.last < first or view.first > last:
        return 0
    selection = AggregatedColumns(view.file.schema, ())
    words = selection.words()
    view.aggregate(selection, first, last, words, None)
    return int(words[0])


def spill(commits: Commits) -> None:
    """Write the late buffer as a late run, and merge runs when there would be too many.

    Merged are the two neighbours that are smallest together, so that there are never more than
    :data:`RUNS_MAX` and each late event is rewritten seldom: the more runs there may be, the
    slower that grows with the load.  Runs that a compaction is folding are left alone and do not
    count, and so are damaged ones.
    """
    schema = commits.schema
    first_id = commits.next_id
    kept: set[int] = set()
    try:
        writer = commits.new_segment().writer
        writer.write(join_late(commits.journal.late, schema))
        entry, view = commits.seal_writer(writer)
        views = {entry.id: view}
        # those that are being folded are the oldest: they were all there were
        folding = [e for e in commits.manifest.runs if e.id in commits.folding]
        runs = [e for e in commits.manifest.runs if e.id not in commits.folding] + [entry]
        damaged: set[tuple[int, int]] = set()
        while len(runs) > RUNS_MAX:
            pairs = [
                (runs[i].events + runs[i + 1].events, -i)
                for i in range(len(runs) - 1)
                if (runs[i].id, runs[i + 1].id) not in damaged
            ]
            if not pairs:
                break
            at = -min(pairs)[1]
            pair = [views.get(e.id) or commits.views[e.id] for e in runs[at : at + 2]]
            merged = commits.new_segment().writer
            try:
                merge_runs(pair, merged, schema)
            except CorruptStore as error:
                merged.close()
                logger.error("%s: cannot merge late runs: %s", commits.directory, error)
                damaged.add((runs[at].id, runs[at + 1].id))
                continue
            entry, view = commits.seal_writer(merged)
            runs[at : at + 2] = [entry]
            views[entry.id] = view
        runs = [*folding, *runs]
        kept = {entry.id for entry in runs}
        commits.apply(
            Edit(
                replace(commits.journal, late=()),
                commits.active,
                replace(commits.manifest, runs=tuple(runs)),
                {i: view for i, view in views.items() if i in kept},
            )
        )
    except BaseException:
        if commits.failed is None:
            commits.discard(range(first_id, commits.next_id))
        raise
    commits.count(spills=1)
    # intermediate runs of this very spill
    commits.discard(i for i in range(first_id, commits.next_id) if i not in kept)
