"""Creates a stream together with its first events, atomically: in a hidden directory, then renamed.

Events in any order become disjoint segments in time order, in bounded memory (``external_sort``)::

    batches   ~~~~~~~~~~~~~~~~~~~~
    runs      |======|                 as long as they come in order: staged as they come
                 |=============|       the rest, sorted: staged
    segments  |================|       both merged, where they overlap

Sorted input is written once.  The sort is stable.  With unique events, duplicates are left out as
in appends (``duplicates``).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain

import pyarrow as pa

from ..schema import StreamSchema
from .catalog import StreamManifest
from .commits import initialise
from .conform import AppendRules, conform
from .external_sort import runs_in_order
from .file_contract import Files
from .merge import merge_sources
from .options import StreamOptions, uniqueness
from .segment import Scan, SegmentView
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

RUN_BYTES = 64 << 20

Run = list[StagedSegment]


def sorted_segments(
    files: Files, plan: StagingPlan, batches: Iterable[pa.RecordBatch]
) -> list[StagedSegment]:
    """Stage events as disjoint segments in time order; ``InvalidData`` names the row."""
    rules = AppendRules.of(StreamManifest("", plan.schema, plan.options))
    ordered = runs_in_order(
        _conformed(batches, rules), plan.schema.time,
        directory=files.local_path(""), run_bytes=RUN_BYTES,
    )  # fmt: skip
    runs = [staged for run in ordered if (staged := stage(files, plan, 0, [run]))]
    rule = uniqueness(plan.options, plan.schema)
    if rule is not None and runs:
        sweep = Sweep(snapshot_of(plan.schema), None, rule)
        keys = _merged(files, plan, runs, sweep.columns)
        if any(sweep.duplicates(batch).size for batch in keys):
            sweep = Sweep(snapshot_of(plan.schema), None, rule)
            return _written(files, plan, runs, sweep.sifted(_merged(files, plan, runs)))
    if len(runs) > 1 and runs[1][0].entry.first < runs[0][-1].entry.last:
        return _written(files, plan, runs, _merged(files, plan, runs))
    return list(chain.from_iterable(runs))


def _conformed(batches: Iterable[pa.RecordBatch], rules: AppendRules) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in batches:
        yield conform(batch, rules, rows)
        rows += batch.num_rows


def _merged(
    files: Files, plan: StagingPlan, runs: Sequence[Run], columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    names = plan.schema.names if columns is None else list(columns)
    arrow = pa.schema([plan.schema.arrow.field(name) for name in names])

    def scan(item: StagedSegment) -> Iterator[pa.RecordBatch]:
        view = SegmentView.open_sealed(files, item.file, item.entry.id, plan.schema)
        try:
            yield from view.scan(Scan(names, arrow))
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
