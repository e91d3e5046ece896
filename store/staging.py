"""Staging: segments written in parallel outside of the writer, and published in one commit.

Guarantee: staged data is invisible before ``commit_staged``, which is atomic, durable, and
idempotent per job and per version of an application.  After a crash the job can be committed again
or aborted; a task of an aborted job cannot recreate its directory.

Layout: ``<stream>/staging/<job>/<part>-<segment id>.seg``: sealed segments, one or more per part.
A job's name begins with its creation time in seconds, in hexadecimal.  Segment identifiers are
random, from ``IDENTIFIERS_FROM`` upwards, so tasks need no coordination, and none collides with the
writer's counter.  ``placing`` decides where segments go; ``replacing`` replaces a time range.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from ..errors import StorageFailed
from ..schema import StreamSchema
from .bulk_duplicates import without_duplicates
from .bulk_jobs import BulkCommit, committed
from .catalog import SegmentEntry, SegmentList, segment_name
from .commits import Commits
from .compaction import spill
from .draft import seal
from .edit import Edit
from .file_contract import Files
from .options import StreamOptions
from .placing import StagedSegment, check_staged, link, placed, unlink
from .recent import LargeCommit
from .replacing import replace_range
from .segment import SegmentView
from .segment_writer import SegmentWriter
from .snapshot import Snapshot, StreamState
from .stream import EventStream
from .tail import Tail, concat_batches
from .tap import Arrival, united

__all__ = [
    "IDENTIFIERS_FROM",
    "StagedSegment",
    "StagingPlan",
    "abort_staged",
    "commit_staged",
    "new_job",
    "prepare_staging",
    "stage",
    "staged_jobs",
    "sweep_staging",
]

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
    files: Files,
    plan: StagingPlan,
    part: int,
    runs: Iterable[Iterator[pa.RecordBatch]],
    draw: Callable[[], int] = lambda: secrets.randbits(61),
) -> list[StagedSegment]:
    """Write sealed, durable, invisible segments of time-ordered ``runs``; ``part`` orders equal
    times.
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
                    first = _fill(writer, first, run, options.sealed_bytes)
                    if writer.events:
                        staged.append(StagedSegment(part, path, _sealed(writer, plan)))
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


def _sealed(writer: SegmentWriter, plan: StagingPlan) -> SegmentEntry:
    length = writer.seal()
    assert writer.first is not None
    assert writer.last is not None
    return SegmentEntry(
        writer.segment_id,
        writer.events,
        writer.first,
        writer.last,
        length,
        len(plan.schema.attributes),
        plan.layout,
    )


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

    def sift(
        staged: Sequence[StagedSegment], stored: Snapshot | None
    ) -> tuple[list[StagedSegment], int]:
        commits, now = stream.commits, stream.commits.manifest
        plan = StagingPlan(commits.directory, job, now.schema, now.options, len(now.layouts))
        return without_duplicates(
            commits, staged, stored, lambda runs: stage(commits.files, plan, 0, runs)
        )

    if over is not None:
        result = replace_range(stream, over, job, order, application, version, sift)
        if result is not None:
            _remove_staged(stream, job)
            return result
    with stream.commits.lock:
        stream.commits.check_writable()
        stream.commits.check_owner(None)
        before = committed(stream.commits.manifest.jobs, job, application, version)
        if before is not None:
            abort_staged(stream.commits.files, stream.commits.directory, job)
            return before
        check_staged(stream.commits, order)
        stored = None if truncate else Snapshot(stream.commits.state())
        order, duplicates = sift(order, stored)
        if not truncate:
            if order and (stream.commits.journal.tail.rows or stream.commits.active is not None):
                seal(stream.commits)
            if order and stream.commits.journal.late:
                spill(stream.commits)
        linked = link(stream.commits, order)
        earlier = stream.commits.state()
        try:
            result = _publish(
                stream, job, order, linked, truncate, application, version, duplicates
            )
        except BaseException:
            unlink(stream.commits, linked)
            raise
        state = stream.commits.state()
        _tell(stream.commits, result, order, truncate, earlier, state)
    stream.commits.publish(state)
    _remove_staged(stream, job)
    return result


def _remove_staged(stream: EventStream, job: str) -> None:
    with suppress(Exception):  # swept later otherwise
        abort_staged(stream.commits.files, stream.commits.directory, job)


def _tell(
    commits: Commits,
    result: BulkCommit,
    staged: Sequence[StagedSegment],
    truncate: bool,
    before: StreamState,
    after: StreamState,
) -> None:
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


def _publish(
    stream: EventStream,
    job: str,
    staged: Sequence[StagedSegment],
    views: dict[int, SegmentView],
    truncate: bool,
    application: str | None,
    version: int | None,
    duplicates: int,
) -> BulkCommit:
    manifest, journal = stream.commits.manifest, stream.commits.journal
    if truncate:
        state = stream.commits.state()  # also removes hidden events
        gone = Snapshot(state).count + state.dropped - manifest.dropped_events
        manifest = replace(
            manifest, segments=SegmentList.of(()), runs=(),
            dropped_events=manifest.dropped_events + gone,
        )  # fmt: skip
        journal = replace(journal, extent=None, last=None, late=(), tail=Tail(stream.schema))
    journal, manifest, result = placed(
        manifest, journal, job, staged, application, version, duplicates
    )
    if truncate:  # followers cannot continue across this
        jobs = {**manifest.jobs, "truncated": {"position": result.position}}
        manifest = replace(manifest, jobs=jobs)
    active = None if truncate else stream.commits.active
    stream.commits.apply(Edit(journal, active, manifest, views))
    return result


def abort_staged(files: Files, directory: str, job: str) -> None:
    """Remove a job's files; idempotent."""
    files.remove_tree(f"{directory}/{STAGING}/{job}")


def staged_jobs(files: Files, directory: str) -> list[str]:
    place = f"{directory}/{STAGING}"
    return list(files.list(place)) if files.exists(place) else []


def sweep_staging(
    files: Files,
    directory: str,
    *,
    ttl_seconds: float = STAGING_TTL_SECONDS,
    clock: Callable[[], float] = time.time,
) -> list[str]:
    """Remove jobs that were neither committed nor aborted for too long; returns their names."""
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
