"""Staging: segments written in parallel outside of the writer, published by it in one commit.

Purpose
    A bulk load by many processes (Spark executors, parts of a transaction) writes finished segments
    beside the stream, and the one writer then names them in the manifest.  The events are written
    once, and by as many machines as there are.

Guarantee
    Nothing staged is visible before :func:`commit_staged`, and then all of it is, at once and
    durably. Committing the same job, or the same version of an application, again does nothing.
    After a crash anywhere in between the job can be committed again or aborted; a task that was
    aborted cannot bring its directory back.

Layout
    ::

        <stream>/staging/<job>/<part>-<segment id>.seg      sealed segments, one or more to a part

    A job's name begins with the second in which it was made, in hexadecimal: that is how
    :func:`sweep_staging` tells its age.  Segment identifiers are drawn at random from
    :data:`IDENTIFIERS_FROM` upwards, so that no two tasks need to agree on one and none meets those
    that the writer counts up.

Where a segment goes
    ::

        base       |==== 1 ====|==== 2 ====|      |==== 3 ====|
        staged                               |A|                |=== B ===|
        staged                       |==== C ====|

    A and B meet no event that is stored: they become base segments in their place.  C overlaps and
    becomes a late run, which readers merge and compaction folds in.  Events of a job are newer than
    whatever was committed before it, and older parts of a job than later ones, where times are
    equal.

Limits
    Staged files lie in the store's own file system.  The manifest remembers the last
    :data:`JOBS_REMEMBERED` jobs and the last version of every application.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from sortedcontainers import SortedKeyList

from ..errors import InvalidArgument, SchemaMismatch, StorageFailed
from ..schema import StreamSchema
from .catalog import SegmentEntry, segment_name
from .commits import Commits
from .compaction import spill
from .draft import seal
from .edit import Edit
from .file_contract import Files
from .options import StreamOptions
from .recent import LargeCommit
from .segment import TICK_MAX, SegmentView
from .segment_writer import SegmentWriter
from .snapshot import StreamState
from .stream import EventStream
from .tail import Tail, concat_batches
from .tap import Arrival, united

__all__ = [
    "IDENTIFIERS_FROM",
    "BulkCommit",
    "StagedSegment",
    "StagingPlan",
    "abort_staged",
    "commit_staged",
    "committed",
    "new_job",
    "prepare_staging",
    "stage",
    "staged_jobs",
    "sweep_staging",
    "truncated_at",
]

STAGING = "staging"
IDENTIFIERS_FROM = 1 << 61
JOBS_REMEMBERED = 256
STAGING_TTL_SECONDS = 24 * 3600


@dataclass(frozen=True)
class StagingPlan:
    """What a task needs to know to stage segments of a stream; small and picklable.

    Attributes
    ----------
    directory : str
        Of the stream, inside of the store.
    """

    directory: str
    job: str
    schema: StreamSchema
    options: StreamOptions

    @property
    def place(self) -> str:
        """Directory of the job's files."""
        return f"{self.directory}/{STAGING}/{self.job}"


@dataclass(frozen=True)
class StagedSegment:
    """A sealed segment that waits for its commit."""

    part: int
    file: str
    entry: SegmentEntry


@dataclass(frozen=True)
class BulkCommit:
    """What a commit of staged segments did.

    Attributes
    ----------
    events : int
        Events added.
    late : int
        Those among them in segments that became late runs.
    segments, runs : int
        Base segments and late runs added.
    position : int
        Commit position of the stream.
    repeated : bool
        The job had been committed before: the figures are those of then, and nothing was done.
    """

    events: int
    late: int
    segments: int
    runs: int
    position: int
    repeated: bool = False


def new_job(clock: Callable[[], float] = time.time) -> str:
    """A name for a job that no other job has."""
    return f"{int(clock()):x}-{secrets.token_hex(8)}"


def prepare_staging(files: Files, plan: StagingPlan) -> None:
    """Make room for a job's files; tasks find it there, or know that the job was aborted."""
    files.make_directory(plan.place)


def stage(
    files: Files,
    plan: StagingPlan,
    part: int,
    runs: Iterable[Iterator[pa.RecordBatch]],
    draw: Callable[[], int] = lambda: secrets.randbits(61),
) -> list[StagedSegment]:
    """Write events as sealed, durable segments that nobody sees yet.

    Parameters
    ----------
    files : Files
        Of the store.
    part : int
        Position of the part in the job; decides between equal times.
    runs : iterable of iterators of pyarrow.RecordBatch
        In the stream's schema; each of them in time order.

    Returns
    -------
    list of StagedSegment
        For :func:`commit_staged`.

    Raises
    ------
    StorageFailed
        When the job was aborted meanwhile.
    """
    staged: list[StagedSegment] = []
    try:
        for run in runs:
            first = next(run, None)
            while first is not None:
                segment_id = IDENTIFIERS_FROM | draw()
                path = f"{plan.place}/{part:06d}-{segment_name(segment_id)}"
                options = plan.options
                writer = SegmentWriter(
                    files, path, segment_id, plan.schema, options.codec, options.leaf_bytes
                )
                try:
                    first = _fill(writer, first, run, options.segment_bytes)
                    if writer.events:
                        staged.append(StagedSegment(part, path, _sealed(writer, plan.schema)))
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
    """Write a run until the segment is full; give back what was taken but not written."""
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


def _sealed(writer: SegmentWriter, schema: StreamSchema) -> SegmentEntry:
    length = writer.seal()
    assert writer.first is not None
    assert writer.last is not None
    return SegmentEntry(
        writer.segment_id,
        writer.events,
        writer.first,
        writer.last,
        length,
        len(schema.attributes),
    )


def committed(
    jobs: dict[str, Any], job: str, application: str | None = None, version: int | None = None
) -> BulkCommit | None:
    """What an earlier commit of a job, or of an application's version, did; None without one.

    Parameters
    ----------
    jobs : dict
        From the stream's manifest.
    """
    found = jobs.get(f"job:{job}")
    if found is None and application is not None and version is not None:
        last = jobs.get(f"app:{application}")
        if last is not None and last["version"] >= version:
            found = last
    if found is None:
        return None
    return BulkCommit(
        found["events"], found["late"], found["segments"], found["runs"], found["position"], True
    )


def truncated_at(jobs: dict[str, Any]) -> int:
    """Commit position of a stream's last truncation; 0 without one."""
    return int(jobs.get("truncated", {"position": 0})["position"])


def commit_staged(
    stream: EventStream,
    job: str,
    staged: Sequence[StagedSegment],
    *,
    truncate: bool = False,
    application: str | None = None,
    version: int | None = None,
) -> BulkCommit:
    """Make the segments of a job part of the stream, atomically, durably, and once.

    Parameters
    ----------
    stream : EventStream
        In the process that writes to the store.
    staged : sequence of StagedSegment
        From the attempts that count; files of other attempts are removed with the job's directory.
    truncate : bool
        Remove every event that the stream had, in the same commit.
    application, version : str and int, optional
        Who writes, and which of its writes this is: a version that is not greater than the last one
        committed does nothing.

    Raises
    ------
    InvalidArgument
        When a staged file is gone: the job was aborted or swept.
    SchemaMismatch
        When the stream's schema has changed since the job was prepared.
    """
    with stream.commits.lock:
        stream.commits.check_writable()
        stream.commits.check_owner(None)
        before = committed(stream.commits.manifest.jobs, job, application, version)
        if before is not None:
            abort_staged(stream.commits.files, stream.commits.directory, job)
            return before
        order = sorted(staged, key=lambda item: item.part)  # within a part, as they were staged
        _check(stream, order)
        if not truncate:
            if order and (stream.commits.journal.tail.rows or stream.commits.active is not None):
                seal(stream.commits)
            if order and stream.commits.journal.late:
                spill(stream.commits)
        linked = _link(stream, order)
        earlier = stream.commits.state()
        try:
            result = _publish(stream, job, order, linked, truncate, application, version)
        except BaseException:
            if stream.commits.failed is None:
                for view in linked.values():
                    view.close()
                for item in order:
                    with suppress(Exception):  # removed at the next opening if not now
                        stream.commits.files.remove(f"{stream.commits.directory}/{item.entry.file}")
            raise
        state = stream.commits.state()
        _tell(stream.commits, result, order, truncate, earlier, state)
    stream.commits.publish(state)
    with suppress(Exception):  # swept later if not now: the job is committed
        abort_staged(stream.commits.files, stream.commits.directory, job)
    return result


def _tell(
    commits: Commits,
    result: BulkCommit,
    staged: Sequence[StagedSegment],
    truncate: bool,
    before: StreamState,
    after: StreamState,
) -> None:
    """Let followers know of the commit; which segments count as late is for a tap's reader."""
    tap, recent, position = commits.tap, commits.recent, result.position
    if truncate:
        if tap is not None:
            tap.cut(position)
        if recent is not None:
            recent.cut(position)
    spans = united(tuple((item.entry.first, item.entry.last) for item in staged))
    if tap is not None:
        tap.note(Arrival(position - 1, position, spans, None, result.late))
    if recent is not None and not truncate:
        recent.note(LargeCommit(position, result.late, before, after, spans))


def _check(stream: EventStream, staged: Sequence[StagedSegment]) -> None:
    columns = len(stream.schema.attributes)
    for item in staged:
        if item.entry.columns > columns:
            raise SchemaMismatch(
                f"the staged segment {item.file} has {item.entry.columns} columns, the stream "
                f"{stream.name!r} has {columns}; start the job again"
            )
        if not stream.commits.files.exists(item.file):
            raise InvalidArgument(
                f"the staged segment {item.file} is gone: the job was aborted, or swept after a "
                "day; nothing was committed, start the job again"
            )


def _link(stream: EventStream, staged: Sequence[StagedSegment]) -> dict[int, SegmentView]:
    """Give the files their names in the stream; the staged names stay for another try."""
    views: dict[int, SegmentView] = {}
    for item in staged:
        path = f"{stream.commits.directory}/{item.entry.file}"
        with suppress(FileNotFoundError):  # of a try that did not get as far as the manifest
            stream.commits.files.remove(path)
        stream.commits.files.link(item.file, path)
        views[item.entry.id] = SegmentView.open_sealed(
            stream.commits.files,
            path,
            item.entry.id,
            stream.commits.manifest.schema_of(item.entry.columns),
        )
    return views


def _publish(
    stream: EventStream,
    job: str,
    staged: Sequence[StagedSegment],
    views: dict[int, SegmentView],
    truncate: bool,
    application: str | None,
    version: int | None,
) -> BulkCommit:
    manifest, journal = stream.commits.manifest, stream.commits.journal
    if truncate:
        gone = stream.snapshot().count
        manifest = replace(
            manifest, segments=(), runs=(), dropped_events=manifest.dropped_events + gone
        )
        journal = replace(journal, extent=None, last=None, late=(), tail=Tail(stream.schema))
    segments, runs = _placed(manifest.segments, manifest.runs, [item.entry for item in staged])
    late = sum(entry.events for entry in runs)
    position = journal.position + 1
    result = BulkCommit(
        sum(item.entry.events for item in staged),
        late,
        len(staged) - len(runs),
        len(runs),
        position,
    )
    journal = replace(
        journal,
        position=position,
        last=_newest(journal.last, segments, runs),
        late_total=journal.late_total + late,
    )
    jobs = _remembered(manifest.jobs, job, result, application, version)
    if truncate:
        jobs["truncated"] = {"position": position}  # nobody can follow the stream across this
    manifest = replace(manifest, segments=segments, runs=(*manifest.runs, *runs), jobs=jobs)
    active = None if truncate else stream.commits.active
    stream.commits.apply(Edit(journal, active, manifest, views))
    return result


def _placed(
    segments: tuple[SegmentEntry, ...],
    runs: tuple[SegmentEntry, ...],
    added: Sequence[SegmentEntry],
) -> tuple[tuple[SegmentEntry, ...], list[SegmentEntry]]:
    """Base segments in time order with those added that meet nothing, and the new late runs."""
    base = SortedKeyList(segments, key=lambda entry: entry.last)
    late: list[SegmentEntry] = []
    for entry in added:
        at = base.bisect_key_right(entry.first)
        newest = at == len(base)
        before = base[at - 1] if at else None
        # At the end equal times may touch, because what is there came first; elsewhere not.
        fits = (newest or entry.last < base[at].first) and (
            before is None or before.last < entry.first or (newest and before.last == entry.first)
        )
        if fits and not any(
            run.first <= entry.last and entry.first <= run.last for run in (*runs, *late)
        ):
            base.add(entry)
        else:
            late.append(entry)
    return tuple(base), late


def _newest(
    last: int | None, segments: Sequence[SegmentEntry], runs: Sequence[SegmentEntry]
) -> int | None:
    """The newest tick in order after a commit.

    A run may reach beyond the base.  An event that comes later with the run's last time must go
    behind it, so it has to count as late too.
    """
    newest = max(
        [entry.last for entry in segments] + ([] if last is None else [last]), default=None
    )
    behind = max((entry.last for entry in runs), default=None)
    if behind is None or (newest is not None and newest > behind):
        return newest
    return min(behind + 1, TICK_MAX)


def _remembered(
    jobs: dict[str, Any],
    job: str,
    result: BulkCommit,
    application: str | None,
    version: int | None,
) -> dict[str, Any]:
    record = {
        "events": result.events,
        "late": result.late,
        "segments": result.segments,
        "runs": result.runs,
        "position": result.position,
    }
    kept = dict(jobs)
    if application is not None and version is not None:
        kept[f"app:{application}"] = {**record, "version": version}
    kept[f"job:{job}"] = record
    names = sorted(
        (name for name in kept if name.startswith("job:")), key=lambda name: kept[name]["position"]
    )
    for name in names[:-JOBS_REMEMBERED]:
        del kept[name]
    return kept


def abort_staged(files: Files, directory: str, job: str) -> None:
    """Remove what a job has staged; doing so again does nothing."""
    files.remove_tree(f"{directory}/{STAGING}/{job}")


def staged_jobs(files: Files, directory: str) -> list[str]:
    """Names of the jobs that have a directory."""
    place = f"{directory}/{STAGING}"
    return list(files.list(place)) if files.exists(place) else []


def sweep_staging(
    files: Files,
    directory: str,
    *,
    ttl_seconds: float = STAGING_TTL_SECONDS,
    clock: Callable[[], float] = time.time,
) -> list[str]:
    """Remove the jobs that nobody has committed or aborted for too long; return their names."""
    swept = []
    for job in staged_jobs(files, directory):
        try:
            made = int(job.split("-", 1)[0], 16)
        except ValueError:
            continue
        if made + ttl_seconds < clock():
            abort_staged(files, directory, job)
            swept.append(job)
    return swept
