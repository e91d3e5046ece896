"""Rewriting: ``write_group`` merges adjacent base segments with late events, without removed ones::

    leaves       decoded in threads, in order, a few ahead
    merged       with late events, if there are any
    kept         filtered by the fold; string codes are assigned again, in order
    leaves       encoded in threads (``leaf_line``), written in order

The output equals that of one thread.  Strings stay dictionary-encoded unless late events are merged
in.  A leaf that loses few events is written as it is: filling it up from the next one would copy
every event again.  Two leaves per thread and two more are in memory, in reused buffers
(``lent_memory``).  Groups below ``SMALL_BYTES`` are rewritten without threads.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial

import numpy as np
import pyarrow as pa

from ..core.threads import Check, Done, Task, in_order
from ..schema import StreamSchema
from .catalog import SegmentEntry
from .commits import Commits
from .deletions import TickRun
from .fold import Fold, Interrupted
from .layout import ROW_FIRST, ROW_LAST
from .leaf import LeafReader
from .leaf_line import LeafLine
from .lent_memory import Lender, lending
from .merge import merge_sources
from .segment import TICK_MAX, TICK_MIN, SegmentView
from .segment_writer import BULK_LEAVES, SegmentWriter, leaf_events, plain_row_bytes
from .tail import ticks_of

__all__ = ["merge_runs", "write_group"]

SMALL_BYTES = 4 << 20


def merge_runs(views: Sequence[SegmentView], writer: SegmentWriter, schema: StreamSchema) -> None:
    sources = [view.scan(schema.names, schema.arrow, TICK_MIN, TICK_MAX) for view in views]
    line = LeafLine(writer, None, 0)
    carry: list[pa.RecordBatch] = []
    for batch in merge_sources(sources, schema):
        carry = _write_leaves(line, carry, batch)
    _write_rest(line, carry)


def _write_leaves(
    line: LeafLine, carry: list[pa.RecordBatch], batch: pa.RecordBatch
) -> list[pa.RecordBatch]:
    """Write bulk-sized leaves from carried batches and a new one; returns the rest."""
    bulk = line.writer.leaf_bytes * BULK_LEAVES
    step = leaf_events(plain_row_bytes(line.writer.schema), bulk)
    if step <= 2 * batch.num_rows and _fits(batch, step, bulk):
        if carry:
            before = _joined(carry)
            if before.num_rows * BULK_LEAVES < step:  # too small for a separate leaf
                batch = _joined([before, batch])
            else:
                line.put(before, single=_fits(before, step, bulk))
        line.put(batch, single=_fits(batch, step, bulk))
        return []
    carry.append(batch)
    rows = sum(piece.num_rows for piece in carry)
    if rows < step and sum(piece.nbytes for piece in carry) < 2 * bulk:
        return carry
    batch = _joined(carry)
    whole = rows // step * step or rows
    written = line.put(batch.slice(0, whole), whole_leaves=True)
    return [batch.slice(written)] if written < rows else []


def _write_rest(line: LeafLine, carry: list[pa.RecordBatch]) -> None:
    if carry:
        line.put(_joined(carry))
    line.settle()


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
    large = sum(entry.bytes for entry in (*group, *late)) >= SMALL_BYTES
    threads = fold.threads if large else 0

    kept = _kept(fold, group, late, first, last, threads)
    outputs: list[SegmentEntry] = []
    line: LeafLine | None = None
    carry: list[pa.RecordBatch] = []
    with ExitStack() as stack:
        stack.enter_context(lending(Lender()))
        pool = None
        stack.callback(kept.close)  # ends its threads
        if threads:
            pool = ThreadPoolExecutor(threads, thread_name_prefix="chronicle-leaf")
            stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        try:
            for batch in kept:
                if stopped():
                    raise Interrupted
                if line is None:
                    line = LeafLine(_new_segment(commits, fold), pool, threads)
                cold = _before_horizon(fold, line, carry, batch)
                if cold is not None:
                    _write_rest(line, [*carry, batch.slice(0, cold)])
                    carry = []
                    outputs.append(_seal(commits, fold, line.writer))
                    line = LeafLine(_new_segment(commits, fold), pool, threads)
                    batch = batch.slice(cold)
                carry = _write_leaves(line, carry, batch)
                if line.length >= commits.options.sealed_bytes:
                    line.settle()  # usually shorter than estimated
                    if line.writer.events and line.length >= commits.options.sealed_bytes:
                        outputs.append(_seal(commits, fold, line.writer))
                        line = None
            if carry:
                line = line or LeafLine(_new_segment(commits, fold), pool, threads)
            if line is not None:
                _write_rest(line, carry)
                outputs.append(_seal(commits, fold, line.writer))
                line = None
        finally:
            if line is not None:
                line.writer.close()
    for number, entry in enumerate(group):
        fold.replaced[entry.id] = outputs if number == 0 else []


def _kept(
    fold: Fold,
    group: Sequence[SegmentEntry],
    late: Sequence[SegmentEntry],
    first: int,
    last: int,
    threads: int,
) -> Generator[pa.RecordBatch]:
    schema = fold.schema
    views = [fold.views[entry.id] for entry in group]
    encoded = fold.keeps_codes and not late  # merging needs plain strings
    run = fold.begun_tick(group)
    if threads and not late and not fold.in_turn:
        for batch, gone, old in in_order(_tasks(fold, views, run), threads, None):
            fold.note(gone)
            fold.note_old(old)
            if batch.num_rows:
                yield batch
        return
    base = _decoded(views, schema, encoded, threads)
    runs = [fold.views[e.id].scan(schema.names, schema.arrow, first, last) for e in late]
    with closing(base):
        for batch in merge_sources([base, *runs], schema):
            batch, gone, old = fold.kept(batch, run.before(ticks_of(batch, schema)))
            fold.note(gone)
            fold.note_old(old)
            if batch.num_rows:
                yield batch


def _decoded(
    views: Sequence[SegmentView], schema: StreamSchema, encoded: bool, threads: int
) -> Generator[pa.RecordBatch]:
    if threads:
        yield from in_order(
            (
                partial(_decode, view, leaf, schema, encoded)
                for view in views
                for leaf in _leaves(view, schema)
            ),
            threads,
            None,
        )
        return
    for view in views:
        yield from view.scan(schema.names, schema.arrow, TICK_MIN, TICK_MAX, dictionary=encoded)


def _leaves(view: SegmentView, schema: StreamSchema) -> Iterator[LeafReader]:
    for name, pages in view.pages.items():
        if name in schema and name in view.file.schema:
            view.file.dictionary(name, pages)
    return view.leaves(TICK_MIN, TICK_MAX, None, None)


def _decode(
    view: SegmentView, leaf: LeafReader, schema: StreamSchema, encoded: bool, check: Check
) -> Done[pa.RecordBatch]:
    check()
    return Done((view.batch(leaf, 0, leaf.events, schema.names, schema.arrow, encoded),))


def _tasks(
    fold: Fold, views: Sequence[SegmentView], run: TickRun
) -> Iterator[Task[tuple[pa.RecordBatch, int, int]]]:
    schema = fold.schema

    def left(
        view: SegmentView, leaf: LeafReader, before: int, check: Check
    ) -> Done[tuple[pa.RecordBatch, int, int]]:
        (batch,) = _decode(view, leaf, schema, fold.keeps_codes, check).found
        return Done((fold.kept(batch, before, given=True),))

    previous: LeafReader | None = None
    for view in views:
        for leaf in _leaves(view, schema):
            tick = int(leaf.zones[ROW_FIRST, 0])
            if previous is not None and previous.zones[ROW_LAST, -1] == tick:
                run.before(previous.ticks())  # rare: a tick that spans leaves
            elif previous is not None:
                run = TickRun()
            yield partial(left, view, leaf, run.so_far(tick))
            previous = leaf


def _before_horizon(
    fold: Fold, line: LeafLine, carry: list[pa.RecordBatch], batch: pa.RecordBatch
) -> int | None:
    if fold.horizon is None:
        return None
    ticks = ticks_of(batch, fold.schema)
    if ticks[-1] < fold.horizon:
        return None
    line.settle()
    writer = line.writer
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
