"""Rewriting: neighbouring base segments written anew, with what belongs to them, without what goes.

Purpose
    The part of a :class:`~.fold.Fold` that takes long.  :func:`write_group` reads some neighbours
    and the late events that fall between them, and writes segments that take their place.

Algorithm
    ::

        leaves       decoded in threads, in their order, a few ahead
        merged       with late events, if there are any
        kept         what the fold leaves of them; codes of strings are given anew, in order
        leaves       encoded in threads (:mod:`.leaf_line`), written in their order

    Strings stay codes on the way unless late events are merged in.  What is left of a leaf of which
    little has gone becomes a leaf as it stands: to fill it up from the next one would copy every
    event once more.  What is left below half of a leaf is joined with what comes after it.

Guarantee
    Written is what one thread would write.  The file is durable when its segment is sealed, and
    nothing names it before the fold is committed.

Limits
    Two leaves for each thread and two more are in memory, plain or encoded.  Groups below
    :data:`SMALL_BYTES` are rewritten without threads.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import numpy as np
import pyarrow as pa

from ..in_order import Check, Done, Task, in_order
from ..schema import StreamSchema
from .catalog import SegmentEntry
from .commits import Commits
from .fold import Fold, Interrupted
from .leaf import LeafReader
from .leaf_line import LeafLine
from .merge import merge_sources
from .segment import TICK_MAX, TICK_MIN, SegmentView
from .segment_writer import BULK_LEAVES, SegmentWriter, leaf_events, plain_row_bytes
from .tail import ticks_of

__all__ = ["merge_runs", "write_group"]

SMALL_BYTES = 4 << 20


def merge_runs(views: Sequence[SegmentView], writer: SegmentWriter, schema: StreamSchema) -> None:
    """Write the events of several late runs, oldest run first, into one segment."""
    sources = [view.scan(schema.names, schema.arrow, TICK_MIN, TICK_MAX) for view in views]
    line = LeafLine(writer, None, 0)
    carry: list[pa.RecordBatch] = []
    for batch in merge_sources(sources, schema):
        carry = _write_leaves(line, carry, batch)
    _write_rest(line, carry)


def _write_leaves(
    line: LeafLine, carry: list[pa.RecordBatch], batch: pa.RecordBatch
) -> list[pa.RecordBatch]:
    """Write leaves of what was carried over and a batch; give back what fills none.

    They are as large as those of a bulk load: what is rewritten is mostly read in bulk afterwards.
    """
    bulk = line.writer.leaf_bytes * BULK_LEAVES
    step = leaf_events(plain_row_bytes(line.writer.schema), bulk)
    if not carry and step <= 2 * batch.num_rows <= 2 * step and _own_bytes(batch) <= bulk:
        line.put(batch, single=True)
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


def _own_bytes(batch: pa.RecordBatch) -> int:
    """Bytes of a batch without the dictionaries that its strings share with others."""
    return sum((a.indices if _is_encoded(a) else a).nbytes for a in batch.columns)


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


def write_group(
    commits: Commits,
    fold: Fold,
    group: Sequence[SegmentEntry],
    first: int,
    last: int,
    stopped: Callable[[], bool],
) -> None:
    """Write neighbouring base segments, with the late events that belong to them, anew.

    Parameters
    ----------
    group : sequence of SegmentEntry
        May be empty: then all that there is are late events.
    first, last : int
        Ticks, inclusive, of the late events that belong to them.
    stopped : callable
        Asked between batches; True raises :class:`.fold.Interrupted`.
    """
    schema = fold.schema
    late = [e for e in fold.runs if e.last >= first and e.first <= last]
    encoded = fold.keeps_codes and not late  # merging wants plain strings
    large = sum(entry.bytes for entry in (*group, *late)) >= SMALL_BYTES
    threads = fold.threads if large else 0

    base = _leaves([fold.views[entry.id] for entry in group], schema, encoded, threads)
    runs = [fold.views[e.id].scan(schema.names, schema.arrow, first, last) for e in late]
    outputs: list[SegmentEntry] = []
    line: LeafLine | None = None
    carry: list[pa.RecordBatch] = []
    with ExitStack() as stack:
        pool = None
        stack.callback(base.close)  # which ends its threads
        if threads:
            pool = ThreadPoolExecutor(threads, thread_name_prefix="chronicle-leaf")
            stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        try:
            for batch in fold.kept(group, merge_sources([base, *runs], schema)):
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
                    line.settle()  # which is shorter, mostly, than it may have been
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


def _leaves(
    views: Sequence[SegmentView], schema: StreamSchema, encoded: bool, threads: int
) -> Generator[pa.RecordBatch]:
    """The events of neighbouring segments, leaf by leaf, decoded in threads."""
    if threads:
        yield from in_order(_decoding(views, schema, encoded), threads, None)
        return
    for view in views:
        yield from view.scan(schema.names, schema.arrow, TICK_MIN, TICK_MAX, dictionary=encoded)


def _decoding(
    views: Sequence[SegmentView], schema: StreamSchema, encoded: bool
) -> Iterator[Task[pa.RecordBatch]]:
    """A task for each leaf."""

    def decoded(view: SegmentView, leaf: LeafReader, check: Check) -> Done[pa.RecordBatch]:
        check()
        return Done((view.batch(leaf, 0, leaf.events, schema.names, schema.arrow, encoded),))

    for view in views:
        for name, pages in view.pages.items():  # once, not by several threads
            if name in schema and name in view.file.schema:
                view.file.dictionary(name, pages)
        for leaf in view.leaves(TICK_MIN, TICK_MAX, None, None):
            yield partial(decoded, view, leaf)


def _before_horizon(
    fold: Fold, line: LeafLine, carry: list[pa.RecordBatch], batch: pa.RecordBatch
) -> int | None:
    """Rows of a batch that belong to the cold segment which ends with them; None to go on."""
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
