"""Events in any order become segments in order of time, in bounded memory.

Purpose
    :func:`sorted_segments` is for who makes a stream of events that may be more than memory holds:
    the result of a query.

How it goes
    ::

        batches   ~~~~~~~~~~~~~~~~~~~~     taken :data:`RUN_BYTES` at a time, and sorted
        runs      |======|====|  |=====|   a piece that goes on where the last one ended belongs to
                        |========|         its run; a run is segments, staged as a bulk load's are
        segments  |=========|=========|    one run: these; several: merged, :data:`FAN_IN` at a time

    What comes in order, as from a stream, is written once.

Guarantee
    The order is the stable sort by time of everything that came.  Memory is bounded by a few times
    :data:`RUN_BYTES` and, while merging, by two leaves of each run.  Of a stream with unique
    events, the duplicates among them are left out, as its appends would do (:mod:`.duplicates`).

Limits
    Runs that overlap take as much disk as the events, once more, until they are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise

import pyarrow as pa

from ..schema import StreamSchema
from .bulk_duplicates import Sweep, snapshot_of
from .catalog import StreamManifest
from .conform import AppendRules, conform
from .file_contract import Files
from .merge import merge_sources, sort_nearly
from .options import uniqueness
from .placing import StagedSegment
from .segment import TICK_MAX, TICK_MIN, SegmentView
from .staging import StagingPlan, stage
from .tail import concat_batches, is_sorted, ticks_of

__all__ = ["sorted_segments"]

RUN_BYTES = 64 << 20
FAN_IN = 16
PIECE_EVENTS = 1 << 20
"""Events that are encoded at a time."""

Run = list[StagedSegment]


def sorted_segments(
    files: Files, plan: StagingPlan, batches: Iterable[pa.RecordBatch]
) -> list[StagedSegment]:
    """Stage events as segments in order of time that do not overlap.

    Parameters
    ----------
    plan : StagingPlan
        Its place exists.
    batches : iterable of pyarrow.RecordBatch
        In the columns of the schema.

    Raises
    ------
    InvalidData
        A column that must not be null holds a null; with its row, from the first one on.
    """
    rules = AppendRules.of(StreamManifest("", plan.schema, plan.options))
    staged = stage(files, plan, 0, _in_order(_pieces(batches, rules), plan.schema))
    runs = _runs(staged)
    while len(runs) > FAN_IN:
        groups = [runs[at : at + FAN_IN] for at in range(0, len(runs), FAN_IN)]
        runs = [
            group[0]
            if len(group) == 1
            else _written(files, plan, group, _merged(files, plan, group))
            for group in groups
        ]
    rule = uniqueness(plan.options, plan.schema)
    if rule is not None and runs:
        sweep = Sweep(snapshot_of(plan.schema, (), ()), None, rule)
        keys = _merged(files, plan, runs, sweep.columns)
        if any(sweep.duplicates(batch).size for batch in keys):
            sweep = Sweep(snapshot_of(plan.schema, (), ()), None, rule)
            return _written(files, plan, runs, sweep.kept(_merged(files, plan, runs)))
    if len(runs) > 1:
        return _written(files, plan, runs, _merged(files, plan, runs))
    return runs[0] if runs else []


def _pieces(batches: Iterable[pa.RecordBatch], rules: AppendRules) -> Iterator[pa.RecordBatch]:
    """What comes, so much at a time, each piece in order of time."""
    waiting: list[pa.RecordBatch] = []
    size = rows = 0
    for given in batches:
        batch = conform(given, rules, rows)
        rows += batch.num_rows
        if not batch.num_rows:
            continue
        waiting.append(batch)
        size += batch.nbytes
        if size >= RUN_BYTES:
            yield from _sorted(waiting, rules)
            waiting, size = [], 0
    if waiting:
        yield from _sorted(waiting, rules)


def _sorted(waiting: Sequence[pa.RecordBatch], rules: AppendRules) -> Iterator[pa.RecordBatch]:
    batch = concat_batches(list(waiting), rules.arrow)
    ticks = ticks_of(batch, rules.schema)
    if not is_sorted(ticks):
        batch = sort_nearly(batch, ticks)
    for at in range(0, batch.num_rows, PIECE_EVENTS):
        yield batch.slice(at, PIECE_EVENTS)


def _in_order(
    pieces: Iterator[pa.RecordBatch], schema: StreamSchema
) -> Iterator[Iterator[pa.RecordBatch]]:
    """Runs of pieces each of which begins where the one before it ended, or later.

    Each run has to be taken to its end before the next.
    """
    ahead = next(pieces, None)

    def run() -> Iterator[pa.RecordBatch]:
        nonlocal ahead
        last = TICK_MIN
        while ahead is not None:
            ticks = ticks_of(ahead, schema)
            if ticks[0] < last:
                return
            last = int(ticks[-1])
            yield ahead
            ahead = next(pieces, None)

    while ahead is not None:
        yield run()


def _runs(staged: Sequence[StagedSegment]) -> list[Run]:
    """Segments, as they were staged, cut where one begins before the one ahead of it has ended."""
    runs = [list(staged[:1])] if staged else []
    for one, other in pairwise(staged):
        if other.entry.first < one.entry.last:
            runs.append([])
        runs[-1].append(other)
    return runs


def _merged(
    files: Files, plan: StagingPlan, runs: Sequence[Run], columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The events of some runs in order of time, those of one time in the order of the runs."""
    names = plan.schema.names if columns is None else list(columns)
    arrow = pa.schema([plan.schema.arrow.field(name) for name in names])

    def scan(item: StagedSegment) -> Iterator[pa.RecordBatch]:
        view = SegmentView.open_sealed(files, item.file, item.entry.id, plan.schema)
        try:
            yield from view.scan(names, arrow, TICK_MIN, TICK_MAX)
        finally:
            view.close()

    return merge_sources([chain.from_iterable(map(scan, run)) for run in runs], plan.schema)


def _written(
    files: Files, plan: StagingPlan, runs: Sequence[Run], batches: Iterator[pa.RecordBatch]
) -> Run:
    """Events in order of time as one run, in the place of others."""
    made = stage(files, plan, 0, [batches])
    for item in chain.from_iterable(runs):
        files.remove(item.file)
    return made
