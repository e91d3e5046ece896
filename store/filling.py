"""Creates a stream together with its first events, atomically: in a hidden directory, then renamed.

External sort: events in any order become segments in time order, in bounded memory::

    batches   ~~~~~~~~~~~~~~~~~~~~     collected up to ``RUN_BYTES``, and sorted
    runs      |======|====|  |=====|   a piece that continues the previous one belongs to its
                    |========|         run; a run is segments, staged like a bulk load's
    segments  |=========|=========|    one run: these; several: k-way merge by ``FAN_IN``

Sorted input is written once; overlapping runs take twice the disk space meanwhile.  The sort is
stable.  Memory is bounded by a few times ``RUN_BYTES`` and two leaves of each merged run.  With
unique events, duplicates are left out as in appends (``duplicates``).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, pairwise

import pyarrow as pa

from ..schema import StreamSchema
from .catalog import StreamManifest
from .conform import AppendRules, conform
from .creation import initialise
from .file_contract import Files
from .merge import merge_sources, sort_nearly
from .options import StreamOptions, uniqueness
from .segment import TICK_MAX, TICK_MIN, SegmentView
from .segment_list import SegmentEntry
from .staging import (
    StagedSegment,
    StagingPlan,
    Sweep,
    abort_staged,
    new_job,
    prepare_staging,
    snapshot_of,
    stage,
)
from .tail import concat_batches, is_sorted, ticks_of

RUN_BYTES = 64 << 20
FAN_IN = 16
PIECE_EVENTS = 1 << 20

Run = list[StagedSegment]


def sorted_segments(
    files: Files, plan: StagingPlan, batches: Iterable[pa.RecordBatch]
) -> list[StagedSegment]:
    """Stage events as disjoint segments in time order; ``InvalidData`` names the row."""
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
    runs = [list(staged[:1])] if staged else []
    for one, other in pairwise(staged):
        if other.entry.first < one.entry.last:
            runs.append([])
        runs[-1].append(other)
    return runs


def _merged(
    files: Files, plan: StagingPlan, runs: Sequence[Run], columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
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
    made = stage(files, plan, 0, [batches])
    for item in chain.from_iterable(runs):
        files.remove(item.file)
    return made


HIDDEN = ".dropped-"
"""Prefix of directories of streams being created or dropped."""


def hidden_directory() -> str:
    return f"streams/{HIDDEN}{uuid.uuid4().hex}"


@contextmanager
def filled_directory(
    files: Files,
    name: str,
    schema: StreamSchema,
    options: StreamOptions,
    events: pa.Table | Iterable[pa.RecordBatch],
) -> Iterator[str]:
    """A hidden directory with a complete stream, removed on exit if it is still there."""
    if isinstance(events, pa.Table):
        events = events.to_batches() or [pa.RecordBatch.from_pylist([], events.schema)]
    batches, hidden = events, hidden_directory()

    def fill() -> Sequence[SegmentEntry]:
        plan = StagingPlan(hidden, new_job(), schema, options)
        prepare_staging(files, plan)
        staged = sorted_segments(files, plan, batches)
        for item in staged:
            files.link(item.file, f"{hidden}/{item.entry.file}")
        abort_staged(files, hidden, plan.job)
        files.sync_directory(hidden)
        return [item.entry for item in staged]

    try:
        initialise(files, hidden, name, schema, options, fill=fill)
        yield hidden
    finally:
        with suppress(Exception):  # the next opening removes it otherwise
            files.remove_tree(hidden)
