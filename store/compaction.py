"""Compaction: folding late runs into the base segments, so that readers need not merge them.

Guarantee: scans, aggregates and the order of ties do not change.  Rewriting reads immutable files
while appends go on; one replacement of the manifest publishes it.  After a crash, the next opening
removes unnamed files.  If retention or truncation meanwhile drops an input, it begins again.

Algorithm: an event at time t belongs to the last base segment that begins at or before t (else the
first), after all base events of its time, which arrived earlier. ::

    base     |==== 1 ====|==== 2 ====|==== 3 ====|==== 4 ====|       1 and 4 stay
    runs                     |--|  |-----|                           2 and 3 are rewritten,
    after    |==== 1 ====|======= 5 =======|= 6 =|==== 4 ====|       joined, cut when full

Late events keep falling into the newest part of a stream, as far back as ``Commits.reach``.  So the
output is cut there, at the *horizon*: the next fold rewrites only what is behind it.  A crowd of
small segments before the horizon is joined with what is being rewritten. ::

    folded   |======= cold =======|= hot =|
    later    |======= cold =======|= hot =|====== new ======|
    folded   |======= cold =======|===== cold =====|= hot =|

A fold has inputs, outputs and a policy; deletes, updates and range replacements (``deleting``)
override the policy.

Rewriting (``write_group``) merges adjacent base segments with late events, and filters them by the
fold.  Strings stay dictionary-encoded unless late events are merged in.  A leaf that loses few
events is written as it is: filling it up from the next one would copy every event again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from ..errors import CorruptStore
from ..schema import StreamSchema
from .catalog import StreamManifest
from .cold_file import cold_segments
from .commits import Commits, Edit, seal
from .deletions import TickRun
from .merge import join_late, merge_sources
from .progress import each
from .segment import TICK_MAX, TICK_MIN, Aggregation, Scan, SegmentView
from .segment_list import SegmentEntry, SegmentList
from .segment_writer import BULK_LEAVES, SegmentWriter, leaf_events, plain_row_bytes
from .tail import ticks_of

COLD_BYTES = 8 << 20


class Interrupted(Exception):
    """The compaction was asked to stop; the stream is unchanged."""


@dataclass
class Fold:
    """A compaction in progress; subclassed by deletes.

    ``replaced``: replacements of a base segment; the first of a joined group has all of them.
    ``horizon``: tick from which on late events are still expected.
    ``cold_bytes``: minimum size of a separate segment for the part before the horizon.
    ``purged``: segments to be rewritten for a dropped, defaulted or widened column.
    ``expires``: drop events before this tick; ``expels``: also rewrite segments for that reason.
    """

    schema: StreamSchema
    runs: tuple[SegmentEntry, ...]
    segments: SegmentList
    view_of: Callable[[SegmentEntry], SegmentView]
    made: list[tuple[SegmentEntry, SegmentView]] = field(default_factory=list)
    replaced: dict[int, list[SegmentEntry]] = field(default_factory=dict)
    identifiers: list[int] = field(default_factory=list)
    horizon: int | None = None
    cold_bytes: int = field(default_factory=lambda: COLD_BYTES)
    purged: frozenset[int] = frozenset()
    expires: int | None = None
    expels: bool = False
    expired: int = 0

    @property
    def keeps_codes(self) -> bool:
        """Whether strings may stay dictionary-encoded between segments."""
        return True

    @property
    def sources(self) -> frozenset[int]:
        return frozenset(entry.id for entry in self.runs)

    def drops(self, entry: SegmentEntry) -> bool:
        return False

    def touches(self, entry: SegmentEntry) -> bool:
        old = self.expels and self.expires is not None and entry.first < self.expires
        return old or entry.id in self.purged

    def begun_tick(self, group: Sequence[SegmentEntry]) -> TickRun:
        """The tick run that precedes a group of base segments, for ``rest``."""
        return TickRun()

    def unexpired(self, batch: pa.RecordBatch, before: int) -> pa.RecordBatch:
        """What is written of base events; ``before`` counts earlier events of the first tick."""
        old = 0
        if self.expires is not None:
            old = int(ticks_of(batch, self.schema).searchsorted(self.expires))
        if not old:
            return self.rest(batch, before)
        self.expired += old
        batch = batch.slice(old)  # begins with another tick
        return self.rest(batch, 0) if batch.num_rows else batch

    def rest(self, batch: pa.RecordBatch, before: int) -> pa.RecordBatch:
        """A batch without removed events, and with changed ones; counts them."""
        return batch

    def ready(self, commits: Commits) -> None:
        """Called before the commit, with the lock held."""

    def edit(self, commits: Commits, manifest: StreamManifest) -> Edit:
        views = {entry.id: view for entry, view in self.made}
        if self.expires is not None:
            manifest = manifest.dropping(self.expired, self.expires)
        return Edit(commits.journal, commits.active, manifest, views)

    def applied(self, commits: Commits) -> None:
        """Called after the commit and before it is published; the lock is held."""


def events_between(view: SegmentView, first: int, last: int) -> int:
    if first > last or view.last < first or view.first > last:
        return 0
    sums = Aggregation(view.file.schema, (), first, last)
    view.aggregate(sums)
    return sums.count


def merge_runs(views: Sequence[SegmentView], writer: SegmentWriter, schema: StreamSchema) -> None:
    sources = [view.scan(Scan(schema.names, schema.arrow)) for view in views]
    carry: list[pa.RecordBatch] = []
    for batch in merge_sources(sources, schema):
        carry = _write_leaves(writer, carry, batch)
    _write_rest(writer, carry)


def _write_leaves(
    writer: SegmentWriter, carry: list[pa.RecordBatch], batch: pa.RecordBatch
) -> list[pa.RecordBatch]:
    """Write bulk-sized leaves from carried batches and a new one; returns the rest."""
    bulk = writer.leaf_bytes * BULK_LEAVES
    step = leaf_events(plain_row_bytes(writer.schema), bulk)
    if step <= 2 * batch.num_rows and _fits(batch, step, bulk):
        if carry:
            before = _joined(carry)
            if before.num_rows * BULK_LEAVES < step:  # too small for a separate leaf
                batch = _joined([before, batch])
            else:
                writer.write(before, single=_fits(before, step, bulk))
        writer.write(batch, single=_fits(batch, step, bulk))
        return []
    carry.append(batch)
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


def _fits(batch: pa.RecordBatch, step: int, bulk: int) -> bool:
    own: int = sum((a.indices if _is_encoded(a) else a).nbytes for a in batch.columns)
    rows: int = batch.num_rows
    return 4 * rows <= 5 * step and 4 * own <= 5 * bulk


def _is_encoded(array: pa.Array) -> bool:
    return bool(pa.types.is_dictionary(array.type))


def _joined(pieces: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenated batches; columns that are only partly dictionary-encoded are decoded."""
    if len(pieces) == 1:
        return pieces[0]
    columns = []
    for i in range(pieces[0].num_columns):
        arrays = [piece.column(i) for piece in pieces]
        if any(array.type != arrays[0].type for array in arrays):
            arrays = [a.dictionary_decode() if _is_encoded(a) else a for a in arrays]
        columns.append(pa.concat_arrays(arrays))
    return pa.RecordBatch.from_arrays(columns, names=pieces[0].schema.names)


def write_group(
    commits: Commits,
    fold: Fold,
    group: Sequence[SegmentEntry],
    first: int,
    last: int,
    stopped: Callable[[], bool],
) -> None:
    """Rewrite adjacent base segments (possibly none) with the late events of [first, last]."""
    late = [e for e in fold.runs if e.last >= first and e.first <= last]
    outputs: list[SegmentEntry] = []
    writer: SegmentWriter | None = None
    carry: list[pa.RecordBatch] = []
    try:
        for batch in _left(fold, group, late, first, last):
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
        if writer is not None:
            _write_rest(writer, carry)
            outputs.append(_seal(commits, fold, writer))
            writer = None
    finally:
        if writer is not None:
            writer.close()
    for number, entry in enumerate(group):
        fold.replaced[entry.id] = outputs if number == 0 else []


def _left(
    fold: Fold, group: Sequence[SegmentEntry], late: Sequence[SegmentEntry], first: int, last: int
) -> Iterator[pa.RecordBatch]:
    schema = fold.schema
    run = fold.begun_tick(group)
    encoded = fold.keeps_codes and not late  # merging needs plain strings
    whole = Scan(schema.names, schema.arrow, dictionary=encoded)
    base = (batch for entry in group for batch in fold.view_of(entry).scan(whole))
    scan = Scan(schema.names, schema.arrow, first, last)
    runs = [fold.view_of(entry).scan(scan) for entry in late]
    for batch in merge_sources([base, *runs], schema):
        batch = fold.unexpired(batch, run.before(ticks_of(batch, schema)))
        if batch.num_rows:
            yield batch


def _before_horizon(
    fold: Fold, writer: SegmentWriter, carry: list[pa.RecordBatch], batch: pa.RecordBatch
) -> int | None:
    if fold.horizon is None:
        return None
    ticks = ticks_of(batch, fold.schema)
    if ticks[-1] < fold.horizon:
        return None
    if writer.length < fold.cold_bytes:
        return None
    newest = int(ticks_of(carry[-1], fold.schema)[-1]) if carry else writer.last
    if newest is None:
        newest = int(ticks[0])
    if newest >= fold.horizon:
        return None  # cut already, or begun after the horizon
    return int(np.searchsorted(ticks, fold.horizon, "left"))


def _new_segment(commits: Commits, fold: Fold) -> SegmentWriter:
    with commits.lock:
        writer = commits.new_segment(fold.schema).writer
    fold.identifiers.append(writer.segment_id)
    return writer


def _seal(commits: Commits, fold: Fold, writer: SegmentWriter) -> SegmentEntry:
    fold.made.append(commits.seal_writer(writer))
    return fold.made[-1][0]


logger = logging.getLogger("chronicle.store")

ATTEMPTS = 5

CROWD = 8

SMALL_SHARE = 8
"""A segment is small below ``segment_bytes`` / this."""

RUNS_MAX = 8
"""Late runs, beside those being folded; above it, two neighbours are merged."""


def compact(
    commits: Commits, stopped: Callable[[], bool] = lambda: False, *, buffered: bool = True
) -> bool:
    """Fold the late events of a stream; ``stopped`` is polled and raises ``Interrupted``.
    ``buffered`` also folds the buffer, and rewrites outdated columns and hidden events.  False when
    the base changed in each attempt.
    """
    done = rewritten(commits, lambda: _begin(commits, buffered), stopped)
    if not done:
        logger.warning(
            "%s: the base changed during each of %d compactions", commits.directory, ATTEMPTS
        )
    return done


def rewritten(
    commits: Commits, begin: Callable[[], Fold | None], stopped: Callable[[], bool]
) -> bool:
    """Rewrite what ``begin`` chooses, and commit; False when the base changed in each attempt.  The
    lock is held only by ``begin`` (None: nothing to do) and during the commit.
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
        expires = commits.expires(exactly=buffered)
        if buffered and expires is not None and active_from is not None and active_from < expires:
            seal(commits)
            runs, active_from = commits.manifest.runs, None
        entries = commits.manifest.segments
        old = buffered and expires is not None and any(entries.firsts < expires)
        if not (runs or purged or old):  # retention may have dropped them during the spill
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
        view_of = commits.views.of_manifest(commits.manifest)
        fold = Fold(
            commits.schema, runs, segments, view_of, purged=purged, expires=expires, expels=buffered
        )
        if commits.reach and commits.journal.last is not None:
            fold.horizon = commits.journal.last - int(commits.reach)
        return fold


def show(commits: Commits, before: int) -> None:
    """Publish earlier commits when no further commit follows."""
    if commits.manifest.version != before:  # a commit makes everything before it durable
        commits.publish(commits.state())


def _rewrite(commits: Commits, fold: Fold, stopped: Callable[[], bool]) -> None:
    if not fold.segments:  # retention has dropped the base: only late events are left
        if fold.runs:
            write_group(commits, fold, [], TICK_MIN, TICK_MAX, stopped)
        return
    group: list[SegmentEntry] = []
    group_first = group_last = 0
    size = 0
    spans: list[tuple[int, int]] = []
    wanted: list[bool] = []
    segments = list(fold.segments)
    for number, entry in enumerate(segments):
        newest = number == len(segments) - 1
        first = TICK_MIN if number == 0 else entry.first
        last = TICK_MAX if newest else segments[number + 1].first - 1
        spans.append((first, last))
        late = any(events_between(fold.view_of(e), first, last) for e in fold.runs)
        if not late and fold.drops(entry):
            fold.replaced[entry.id] = []
            wanted.append(False)
        else:
            wanted.append(late or fold.touches(entry))
    _join_crowd(commits, fold, wanted)
    for entry, (first, last), touched in each(list(zip(segments, spans, wanted, strict=True))):
        if group and (not touched or size + entry.bytes > commits.options.sealed_bytes):
            write_group(commits, fold, group, group_first, group_last, stopped)
            group = []
        if touched:
            if not group:
                group_first, size = first, 0
            group.append(entry)
            group_last = last
            size += entry.bytes
    if group:
        write_group(commits, fold, group, group_first, group_last, stopped)


def _join_crowd(commits: Commits, fold: Fold, wanted: list[bool]) -> None:
    if commits.options.retention is not None or True not in wanted:
        return
    end = len(wanted) - 1 - wanted[::-1].index(True)
    while end > 0 and wanted[end - 1]:
        end -= 1
    small = commits.options.segment_bytes // SMALL_SHARE
    start, cold = end, cold_segments(commits.files, commits.directory)
    while start > 0 and not wanted[start - 1]:
        entry = fold.segments[start - 1]
        if entry.bytes >= small or entry.id in fold.replaced or entry.file in cold:
            break
        start -= 1
    if end - start >= CROWD:
        wanted[start:end] = [True] * (end - start)


def _finish(commits: Commits, fold: Fold) -> bool:
    with commits.lock:
        commits.check_writable()
        fold.ready(commits)
        manifest = commits.manifest
        named = {*manifest.segments.ids.tolist(), *(entry.id for entry in manifest.runs)}
        gone = fold.sources
        if not named.issuperset({*fold.replaced, *gone}):
            return False
        if not fold.segments and manifest.segments:
            return False
        present = manifest.segments.replaced(fold.replaced)
        if not fold.segments:
            present = SegmentList.of(entry for entry, _ in fold.made)
        manifest = replace(
            manifest,
            segments=present,
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


def spill(commits: Commits) -> None:
    """Write the late buffer as a late run.  Above ``RUNS_MAX``, the adjacent pair with the fewest
    events is merged, for low write amplification; runs being folded and damaged ones are skipped.
    """
    schema = commits.schema
    first_id = commits.next_id
    live_ids: set[int] = set()
    try:
        writer = commits.new_segment().writer
        writer.write(join_late(commits.journal.late, schema))
        entry, view = commits.seal_writer(writer)
        views = {entry.id: view}
        # runs being folded are the oldest
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
            pair = [views.get(e.id) or commits.views.view(e) for e in runs[at : at + 2]]
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
        live_ids = {entry.id for entry in runs}
        commits.apply(
            Edit(
                replace(commits.journal, late=()),
                commits.active,
                replace(commits.manifest, runs=tuple(runs)),
                {i: view for i, view in views.items() if i in live_ids},
            )
        )
    except BaseException:
        if commits.failed is None:
            commits.discard(range(first_id, commits.next_id))
        raise
    commits.count(spills=1)
    # intermediate runs of this spill
    commits.discard(i for i in range(first_id, commits.next_id) if i not in live_ids)
