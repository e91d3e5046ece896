r"""Staging: segments written in parallel outside of the writer, and published in one commit.

Guarantee: staged data is invisible before ``commit_staged``, which is atomic, durable, and
idempotent per job and per version of an application.  After a crash the job can be committed again
or aborted; a task of an aborted job cannot recreate its directory.

Layout: ``<stream>/staging/<job>/<part>-<segment id>.seg``: sealed segments, one or more per part.
A job's name begins with its creation time in seconds, in hexadecimal.  Segment identifiers are
random, from ``IDENTIFIERS_FROM`` upwards, so tasks need no coordination, and none collides with the
writer's counter.

Placing: how staged segments become part of a stream::

    base       |==== 1 ====|==== 2 ====|      |==== 3 ====|
    staged                               |A|                |=== B ===|
    staged                       |==== C ====|

A and B overlap no stored event: they become base segments.  C overlaps and becomes a late run.  At
equal times, events of a job come after all that was committed before it, and later parts of a job
after earlier ones.  A staged file keeps its name until the outcome of the commit is known: it is
linked under its name in the stream, and unlinked when the commit fails.

Deduplication in bulk loads: merges the keys of a job with those of the stream, before its commit::

    staged   ----|=== batch ===|---------------------->   in time order
    stored   ---------------------|                       read ahead of it by ``within``
                  \                                         both into one window of keys
                   kept events of the batches before it

Without a duplicate, the usual case, the job is committed as it was staged, and only the key columns
have been read.  Otherwise the remaining events are written again, in time order.

The stream's lock is held from the first read to the commit: appends wait meanwhile.  The keys of
twice ``within`` are in memory.

Replacing a time range by a bulk-load job, in one commit: a delete that names staged segments::

    base     |==== 1 ====|==== 2 ====|==== 3 ====|== active ==| tail
    range          |-------------------|
    staged         |== A ==|== B ==|
    after    |= 4 =|== A ==|== B ==|   |== 5 ====|== 6 =======| tail of later events

The events removed are those committed when it began: late events that arrive in the range meanwhile
stay, before new ones of their tick.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import pyarrow as pa
from sortedcontainers import SortedKeyList

from ..core.times import INT64_MAX, INT64_MIN, moved, time_text
from ..errors import InvalidArgument, SchemaMismatch, StorageFailed
from ..schema import StreamSchema, Uniqueness
from .catalog import BulkCommit, StreamManifest, committed, remembered
from .commits import Commits, Edit, seal
from .compaction import spill
from .duplicates import (
    KeyWindow,
    Ticks,
    compared_columns,
    duplicates_among,
    keys_of,
    stored_events,
    without,
)
from .file_contract import Files
from .journal import Journal
from .options import StreamOptions, uniqueness
from .prune import Prune
from .recent import LargeCommit
from .segment import TICK_MAX, SegmentView
from .segment_list import SegmentEntry, SegmentList, segment_name
from .segment_views import NO_SEGMENTS, SegmentViews, ViewSource, open_entry
from .segment_writer import SegmentWriter
from .snapshot import Snapshot, StreamState
from .stream import EventStream
from .tail import Tail, concat_batches, ticks_of
from .tap import Arrival, Spans, united


@dataclass(frozen=True)
class StagedSegment:
    part: int
    file: str
    entry: SegmentEntry


class _Repeated(Exception):
    def __init__(self, earlier: BulkCommit) -> None:
        super().__init__()
        self.earlier = earlier


@dataclass
class _Coming:
    """A job that is being committed, with the ``late`` events of its segments; an ``Addition`` to
    the delete of a range, or on its own.
    """

    commits: Commits
    job: str
    staged: Sequence[StagedSegment]
    application: str | None
    version: int | None
    duplicates: int = 0
    late: int = 0
    linked: dict[int, SegmentView] = field(default_factory=dict)
    result: BulkCommit | None = None
    done: bool = False

    @property
    def spans(self) -> Spans:
        return united(tuple((item.entry.first, item.entry.last) for item in self.staged))

    def check(self) -> None:
        """Raise ``_Repeated`` for a job that was committed; refuse missing files, and segments with
        other columns than the stream's.
        """
        manifest = self.commits.manifest
        earlier = committed(manifest.jobs, self.job, self.application, self.version)
        if earlier is not None:
            raise _Repeated(earlier)
        for item in self.staged:
            layout, schema = item.entry.layout, manifest.schema
            if layout < len(manifest.layouts):
                schema = manifest.layouts[layout].written
            columns = len(schema.names)
            if item.entry.columns > columns or layout > len(manifest.layouts):
                raise SchemaMismatch(
                    f"the staged segment {item.file} has {item.entry.columns} columns, the stream "
                    f"{manifest.name!r} has {columns}; start the job again"
                )
            if not self.commits.files.exists(item.file):
                raise InvalidArgument(
                    f"the staged segment {item.file} is gone: the job was aborted, or swept after "
                    "a day; nothing was committed, start the job again"
                )

    def sift(self, stored: Snapshot | None) -> None:
        """Leave out duplicates among themselves and of stored events."""
        self.staged, self.duplicates = without_duplicates(
            self.commits, self.job, self.staged, stored
        )

    def link(self) -> None:
        """Link the files under their names in the stream; the staged names stay for a retry."""
        commits = self.commits
        for item in self.staged:
            path = commits.path(item.entry.file)
            with suppress(FileNotFoundError):  # of an attempt that failed before its manifest
                commits.files.remove(path)
            commits.files.link(item.file, path)
            self.linked[item.entry.id] = open_entry(
                commits.files, commits.directory, commits.manifest, item.entry
            )

    def unlink(self) -> None:
        if self.done or self.commits.failed is not None:
            return
        for number, view in self.linked.items():
            view.close()
            with suppress(Exception):  # the next opening removes it otherwise
                self.commits.files.remove(self.commits.path(segment_name(number)))

    def placed(self, manifest: StreamManifest, journal: Journal) -> tuple[Journal, StreamManifest]:
        """Journal and manifest after the commit of the segments."""
        entries = [item.entry for item in self.staged]
        segments, runs = _by_time(manifest.segments, manifest.runs, entries)
        self.late = sum(entry.events for entry in runs)
        position, events = journal.position + 1, sum(entry.events for entry in entries)
        self.result = BulkCommit(
            events, self.late, len(entries) - len(runs), len(runs), position,
            duplicates=self.duplicates,
        )  # fmt: skip
        journal = replace(
            journal,
            position=position,
            last=_newest(journal.last, segments, runs),
            late_total=journal.late_total + self.late,
        )
        jobs = remembered(manifest.jobs, self.job, self.result, self.application, self.version)
        manifest = replace(manifest, segments=segments, runs=(*manifest.runs, *runs), jobs=jobs)
        return journal, manifest

    def join(self, commits: Commits, edit: Edit) -> Edit:
        assert edit.manifest is not None
        self.check()
        source = ViewSource(commits.files, commits.directory, edit.manifest)
        source.add(edit.views)
        runs = [source.view(run) for run in edit.manifest.runs]
        segments = source.sequence(edit.manifest.segments)
        self.sift(snapshot_of(edit.manifest.schema, runs, segments))
        self.link()
        journal, manifest = self.placed(edit.manifest, commits.journal)
        assert journal.position == edit.journal.position
        views = {**edit.views, **self.linked}
        return replace(edit, journal=journal, manifest=manifest, views=views)

    def applied(self) -> None:
        self.done = True


def _by_time(
    segments: SegmentList, runs: tuple[SegmentEntry, ...], added: Sequence[SegmentEntry]
) -> tuple[SegmentList, list[SegmentEntry]]:
    """Base segments in time order with the added ones that overlap nothing, and new late runs."""
    own = SortedKeyList(key=lambda entry: entry.last)  # added segments that fit
    late: list[SegmentEntry] = []
    for entry in added:
        neighbours: list[SegmentEntry] = []  # at most one stored and one added
        behind: list[SegmentEntry] = []
        for base, at in (
            (segments, int(np.searchsorted(segments.lasts, entry.first, "right"))),
            (own, own.bisect_key_right(entry.first)),
        ):
            neighbours += [base[at - 1]] if at else []
            behind += [base[at]] if at < len(base) else []
        before = max((each.last for each in neighbours), default=None)
        newest = not behind
        # Equal times may touch only at the end, since stored events came first.
        fits = all(entry.last < each.first for each in behind) and (
            before is None or before < entry.first or (newest and before == entry.first)
        )
        if fits and not any(
            run.first <= entry.last and entry.first <= run.last for run in (*runs, *late)
        ):
            own.add(entry)
        else:
            late.append(entry)
    joined = segments.after(own)
    return joined.ordered(np.argsort(joined.lasts, kind="stable")), late


def _newest(last: int | None, segments: SegmentList, runs: Sequence[SegmentEntry]) -> int | None:
    """The newest in-order tick after a commit.  A later event with the last time of a run beyond
    the base must go behind it, so it has to count as late.
    """
    stored = [int(segments.lasts.max())] if len(segments) else []
    newest = max(stored + ([] if last is None else [last]), default=None)
    behind = max((entry.last for entry in runs), default=None)
    if behind is None or (newest is not None and newest > behind):
        return newest
    return min(behind + 1, TICK_MAX)


KEYS_MIN = 1 << 18
"""The window is pruned only above this number of keys."""


def snapshot_of(
    schema: StreamSchema, runs: Sequence[SegmentView] = (), segments: SegmentViews = NO_SEGMENTS
) -> Snapshot:
    stored = sum(events for _, events, _ in segments.sizes) + sum(view.events for view in runs)
    return Snapshot(StreamState(schema, segments=segments, runs=tuple(runs), stored=stored))


def without_duplicates(
    commits: Commits, job: str, staged: Sequence[StagedSegment], stored: Snapshot | None
) -> tuple[list[StagedSegment], int]:
    """A job's segments without duplicates, written anew if there are any, and their number."""
    manifest = commits.manifest
    rule = uniqueness(manifest.options, manifest.schema)
    if rule is None or not staged:
        return list(staged), 0
    views = [
        SegmentView.open_sealed(
            commits.files, item.file, item.entry.id,
            manifest.schema_of(item.entry), manifest.written_as(item.entry),
        )
        for item in staged
    ]  # fmt: skip
    try:
        events = snapshot_of(manifest.schema, views)
        sweep = Sweep(events, stored, rule)
        keys = events.scan(columns=sweep.columns)
        if not any(sweep.duplicates(batch).size for batch in keys):
            return list(staged), 0
        sweep = Sweep(events, stored, rule)
        cut = commits.journal.last  # older events become a late run, the others do not
        halves = [sweep.sifted(events.scan(end=cut))] if cut is not None else []
        plan = StagingPlan(
            commits.directory, job, manifest.schema, manifest.options, len(manifest.layouts)
        )
        segments = stage(commits.files, plan, 0, [*halves, sweep.sifted(events.scan(start=cut))])
        return segments, sweep.left_out
    finally:
        for view in views:
            view.close()


class Sweep:
    """One pass over a job in time order; ``columns`` are the key's and the time."""

    def __init__(self, job: Snapshot, stored: Snapshot | None, rule: Uniqueness) -> None:
        self._rule, self._schema = rule, job.schema
        self.columns = compared_columns(rule, job.schema)
        self.left_out = 0
        self._window = KeyWindow()
        self._tidy_at = KEYS_MIN
        self._swept: deque[pa.RecordBatch] = deque()
        self._read_stored = None if stored is None else stored_events(stored, rule)
        self._ahead: Iterator[pa.RecordBatch] = iter(())
        self._met = INT64_MIN
        span = job.time_range
        if self._read_stored is not None and span is not None:
            first, last = moved(span[0], -rule.within), moved(span[1], rule.within)
            self._ahead = iter(self._read_stored(first, last, None))

    def sifted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            batch, _ = without(batch, self.duplicates(batch))
            if batch.num_rows:
                yield batch

    def duplicates(self, batch: pa.RecordBatch) -> Ticks:
        rule, schema = self._rule, self._schema
        ticks = ticks_of(batch, schema)
        self._meet(moved(int(ticks[-1]), rule.within))
        keys = keys_of(batch, ticks, rule, schema)
        out = duplicates_among(keys, self._window, INT64_MIN, self._stored, rule, schema)
        self.left_out += out.size
        keys_left, stays = without(batch.select(self.columns), out)
        self._window.add(*keys.selected(stays))
        self._swept.append(keys_left)
        self._forget(moved(int(ticks[-1]), -rule.within))
        return out

    def _meet(self, until: int) -> None:
        """Add the keys of stored events up to a tick, or slightly beyond, to the window."""
        while self._met < until:
            batch = next(self._ahead, None)
            if batch is None:
                self._met = INT64_MAX
                return
            ticks = ticks_of(batch, self._schema)
            keys = keys_of(batch, ticks, self._rule, self._schema)
            self._window.add(keys.hashes, keys.ticks)
            self._met = int(ticks[-1])

    def _stored(self, first: int, last: int, prune: Prune | None) -> Iterator[pa.RecordBatch]:
        stored = iter(()) if self._read_stored is None else self._read_stored(first, last, prune)
        return chain(stored, self._swept_between(first, last))

    def _swept_between(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        for batch in self._swept:
            ticks = ticks_of(batch, self._schema)
            start, end = np.searchsorted(ticks, first), np.searchsorted(ticks, last, "right")
            if end > start:
                yield batch.slice(start, end - start)

    def _forget(self, before: int) -> None:
        while self._swept and (
            not self._swept[0].num_rows or ticks_of(self._swept[0], self._schema)[-1] < before
        ):
            self._swept.popleft()
        if self._window.size >= self._tidy_at:
            self._window.forget(before)
            self._tidy_at = max(KEYS_MIN, 2 * self._window.size)


STAGING = "staging"
IDENTIFIERS_FROM = 1 << 61
STAGING_TTL_SECONDS = 24 * 3600


@dataclass(frozen=True)
class StagingPlan:
    """Input of a staging task; small and picklable."""

    directory: str
    job: str
    schema: StreamSchema
    options: StreamOptions
    layout: int = 0

    @property
    def place(self) -> str:
        return f"{self.directory}/{STAGING}/{self.job}"


def new_job(clock: Callable[[], float] = time.time) -> str:
    return f"{int(clock()):x}-{secrets.token_hex(8)}"


def prepare_staging(files: Files, plan: StagingPlan) -> None:
    """Create a job's directory; without it, tasks know that the job was aborted."""
    files.make_directory(plan.place)


def stage(
    files: Files, plan: StagingPlan, part: int, runs: Iterable[Iterator[pa.RecordBatch]]
) -> list[StagedSegment]:
    """Write sealed, durable, invisible segments of time-ordered ``runs``; ``part`` orders equal
    times.
    """
    staged: list[StagedSegment] = []
    try:
        for run in runs:
            first = next(run, None)
            while first is not None:
                segment_id = IDENTIFIERS_FROM | secrets.randbits(61)
                path = f"{plan.place}/{part:06d}-{segment_name(segment_id)}"
                options = plan.options
                writer = SegmentWriter(
                    files, path, segment_id, plan.schema, options.codec, options.leaf_bytes
                )
                try:
                    first = _fill(writer, first, run, options.sealed_bytes)
                    if writer.events:
                        staged.append(StagedSegment(part, path, writer.seal(plan.layout)))
                finally:
                    writer.close()
        if staged:
            files.sync_directory(plan.place)
    except FileNotFoundError:
        raise StorageFailed(
            f"{plan.place} is gone: the job was aborted, or swept after a day; start it again"
        ) from None
    return staged


def _fill(
    writer: SegmentWriter, first: pa.RecordBatch, run: Iterator[pa.RecordBatch], bytes_max: int
) -> pa.RecordBatch | None:
    batch: pa.RecordBatch | None = first
    carry: pa.RecordBatch | None = None
    while batch is not None:
        if carry is not None:
            batch = concat_batches([carry, batch], batch.schema)
        written = writer.write(batch, whole_leaves=True)
        carry = batch.slice(written) if written < batch.num_rows else None
        batch = next(run, None) if writer.length < bytes_max else None
    if carry is not None and writer.length < bytes_max:
        writer.write(carry)
        carry = None
    return carry if carry is not None else next(run, None)


def commit_staged(
    stream: EventStream,
    job: str,
    staged: Sequence[StagedSegment],
    *,
    truncate: bool = False,
    over: tuple[int, int] | None = None,
    application: str | None = None,
    version: int | None = None,
) -> BulkCommit:
    """Make the segments of a job part of the stream, atomically, durably, and once.

    ``truncate``: remove all earlier events in the same commit.
    ``over``: inclusive tick range whose present events are removed in the same commit.
    ``application``, ``version``: a version not greater than the last one does nothing.

    ``InvalidArgument`` when a file is gone or an event outside of ``over``.
    """
    order = sorted(staged, key=lambda item: item.part)  # stable: within a part, in staging order
    coming = _Coming(stream.commits, job, order, application, version)
    try:
        if over is not None:
            _replace(stream, over, coming)
        if not coming.done:  # there was nothing to replace
            _commit(coming, truncate)
        result = coming.result
    except _Repeated as repeated:
        result = repeated.earlier
    except BaseException:
        coming.unlink()
        raise
    with suppress(Exception):  # swept later otherwise
        abort_staged(stream.files, stream.directory, job)
    assert result is not None
    return result


def _replace(stream: EventStream, over: tuple[int, int], coming: _Coming) -> None:
    """Commit a job in place of an inclusive tick range, if that has events."""
    first, last = over
    for entry in (item.entry for item in coming.staged):
        if entry.first < first or entry.last > last:
            raise InvalidArgument(
                "only what lies in the range that is replaced can be written: it is "
                f"{_range(stream, first, last)}, found events from "
                f"{_range(stream, entry.first, entry.last)}; nothing was committed"
            )
    with stream.commits.lock:
        coming.check()
    stream.replace(first, last, coming)


def _range(stream: EventStream, first: int, last: int) -> str:
    schema = stream.schema
    if schema.time_unit is None:
        return f"{first} to {last}"
    return f"{time_text(first, schema.time_type)} to {time_text(last, schema.time_type)}"


def _commit(coming: _Coming, truncate: bool) -> None:
    commits = coming.commits
    with commits.lock:
        commits.check_writable()
        commits.check_owner(None)
        coming.check()
        coming.sift(None if truncate else Snapshot(commits.state()))
        if coming.staged and not truncate:
            if commits.journal.tail.rows or commits.active is not None:
                seal(commits)
            if commits.journal.late:
                spill(commits)
        coming.link()
        before = commits.state()
        manifest, journal = commits.manifest, commits.journal
        if truncate:  # also removes hidden events
            gone = Snapshot(before).count + before.dropped
            manifest = replace(manifest, segments=SegmentList.of(()), runs=(), dropped_events=gone)
            journal = replace(journal, extent=None, last=None, late=(), tail=Tail(commits.schema))
        journal, manifest = coming.placed(manifest, journal)
        position = journal.position
        if truncate:  # followers cannot continue across this
            jobs = {**manifest.jobs, "truncated": {"position": position}}
            manifest = replace(manifest, jobs=jobs)
        active = None if truncate else commits.active
        commits.apply(Edit(journal, active, manifest, coming.linked))
        coming.applied()
        state, tap, spans = commits.state(), commits.tap, coming.spans
        if tap is not None:
            commit = None if truncate else LargeCommit(position, coming.late, before, state, spans)
            if truncate:
                tap.cut(position)
            tap.note(Arrival(position - 1, position, spans, None, coming.late), commit)
    commits.publish(state)


def abort_staged(files: Files, directory: str, job: str) -> None:
    """Remove a job's files; idempotent."""
    files.remove_tree(f"{directory}/{STAGING}/{job}")


def staged_jobs(files: Files, directory: str) -> list[str]:
    place = f"{directory}/{STAGING}"
    return list(files.list(place)) if files.exists(place) else []


def sweep_staging(
    files: Files, directory: str, *, clock: Callable[[], float] = time.time
) -> list[str]:
    """Remove jobs that were neither committed nor aborted for too long; returns their names."""
    swept = []
    for job in staged_jobs(files, directory):
        try:
            made = int(job.split("-", 1)[0], 16)
        except ValueError:
            continue
        if made + STAGING_TTL_SECONDS < clock():
            abort_staged(files, directory, job)
            swept.append(job)
    return swept
