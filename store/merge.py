"""Merging of time-ordered sources: base, late runs and buffers become one sequence.

Guarantee: events of one time come in the order of the sources, which is that of arrival (base
first, then late runs oldest first, then the buffer): an event is late only because a newer one had
arrived, so every base event of the same time came before it.

Algorithm: binary merges: the late sources in a balanced tree, and the result with the base, so that
each base batch is merged once.  Of two overlapping batches the one that ends first is merged whole,
with the part of the other up to there.  More events of its last tick may follow in its next batch,
so a later source holds back its events of that tick.  Holds at most two batches of each source.

The late buffer (``add_late``) is a tuple of sorted batches in arrival order, each at least twice as
large as the next, so an insertion costs O(log n) amortised.

The kernels merge the columns of two sorted batches; at equal times the first's events come first::

    first     a b c d e f g          places: how many of the first
    second      X     Y   Z          come before each of the second,
    out       a b X c d e Y f Z g    here 2 5 6

Places are computed once, from the times; columns of 1, 2, 4 or 8 bytes are then moved as words, bit
for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.native import kernel, machine_operation
from ..core.sorting import order_of, places_in
from ..schema import StreamSchema
from .tail import sort_batch, ticks_of_column

MOVED = 32

MERGED_MIN = 4096
"""Below this many events, sorting all of them takes less time than merging late ones in."""

Ints = npt.NDArray[np.int64]
_WORDS = {8 * size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


@machine_operation()
def _move(typing_context, out, at, first, i):  # type: ignore[no-untyped-def]
    from numba.core import cgutils, types

    del typing_context

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        to_type, _, from_type, _ = signature.args
        target = context.make_array(to_type)(context, builder, arguments[0]).data
        source = context.make_array(from_type)(context, builder, arguments[2]).data
        width = context.get_abi_sizeof(context.get_data_type(from_type.dtype))
        cgutils.raw_memcpy(
            builder,
            builder.gep(target, [arguments[1]]),
            builder.gep(source, [arguments[3]]),
            context.get_constant(types.intp, MOVED),
            width,
        )
        return context.get_dummy_value()

    return types.void(out, at, first, i), generate


@kernel
def _merge_words(first, second, places, out):  # type: ignore[no-untyped-def]
    """Merge one column.  A fixed number of values is copied between two places: the surplus,
    overwritten later, is cheaper than a loop with an unpredictable end.  Near the end values are
    copied singly.
    """
    one = np.uint64(1)
    step = np.uint64(MOVED)
    size = np.uint64(first.size)
    others = np.uint64(second.size)
    safe = first.size - MOVED
    i = np.uint64(0)
    j = np.uint64(0)
    while j < others and places[j] <= safe:
        stop = np.uint64(places[j])
        _move(out, i + j, first, i)
        i += step
        while i < stop:
            _move(out, i + j, first, i)
            i += step
        i = stop
        out[stop + j] = second[j]
        j += one
    while j < others:
        stop = np.uint64(places[j])
        while i < stop:
            out[i + j] = first[i]
            i += one
        out[stop + j] = second[j]
        j += one
    while i < size:
        out[i + others] = first[i]
        i += one


class Side:
    """A batch prepared for merging; ``words`` are the values of columns without nulls and of a word
    width, None for the others.
    """

    __slots__ = ("batch", "ticks", "words")

    def __init__(self, batch: pa.RecordBatch, types: Sequence[Any], ticks: Ints) -> None:
        self.batch = batch
        self.ticks = ticks
        self.words = [
            None
            if word is None or column.null_count
            else np.frombuffer(
                column.buffers()[1], word, len(column), column.offset * word.itemsize
            )
            for column, word in zip(batch.columns, types, strict=True)
        ]


class BatchMerger:
    """Merges batches of one schema, sorted by the column ``time``."""

    def __init__(self, time: str = "") -> None:
        self._time = time
        self._schema: pa.Schema | None = None

    def side(self, batch: pa.RecordBatch, ticks: Ints | None = None) -> Side:
        """A batch with its ticks, by default those of its time column."""
        if self._schema is None:
            self._schema = batch.schema
            self._position = batch.schema.get_field_index(self._time)
            self._types = batch.schema.types
            self._words = [_word_type(type_) for type_ in self._types]
        if ticks is None:
            ticks = ticks_of_column(batch.column(self._position))
        return Side(batch, self._words, ticks)

    def merge(
        self, one: Side, first: int, end: int, other: Side, low: int, high: int
    ) -> pa.RecordBatch:
        """Merge rows [first, end) of one side with [low, high) of another; ties are ``one``'s."""
        total = end - first + high - low
        places = places_in(one.ticks[first:end], other.ticks[low:high], "right")
        order: pa.Array | None = None
        columns = []
        for i, (ours, theirs) in enumerate(zip(one.words, other.words, strict=True)):
            if ours is not None and theirs is not None:
                # One buffer per column: the allocator would take larger ones as fresh pages.
                buffer = pa.allocate_buffer(total * ours.itemsize)
                out = np.frombuffer(buffer, ours.dtype)
                _merge_words(ours[first:end], theirs[low:high], places, out)
                columns.append(pa.Array.from_buffers(self._types[i], total, [None, buffer]))
                continue
            if order is None:
                order = pa.array(_order_of(places, end - first))
            pair = [
                one.batch.column(i).slice(first, end - first),
                other.batch.column(i).slice(low, high - low),
            ]
            columns.append(pc.take(pa.concat_arrays(pair), order))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _word_type(type_: pa.DataType) -> Any:
    types = pa.types
    if types.is_integer(type_) or types.is_floating(type_) or types.is_temporal(type_):
        return _WORDS.get(type_.bit_width)
    return None


def _order_of(places: Ints, rows: int) -> Ints:
    order = np.empty(rows + places.size, np.int64)
    second = np.zeros(order.size, np.bool_)
    second[places + np.arange(places.size)] = True
    order[~second] = np.arange(rows)
    order[second] = np.arange(rows, order.size)
    return order


class _MergeSource:
    """A source with its current batch, whose rows before ``at`` have been consumed."""

    def __init__(self, batches: Iterator[pa.RecordBatch], merger: BatchMerger) -> None:
        self._batches = batches
        self._merger = merger
        self._side: Side | None = None

    @property
    def side(self) -> Side:
        assert self._side is not None
        return self._side

    def fill(self) -> bool:
        while self._side is None:
            batch = next(self._batches, None)
            if batch is None:
                return False
            if batch.num_rows:
                self._side = self._merger.side(batch)
                self.at, self.rows = 0, batch.num_rows
                self.first, self.last = int(self._side.ticks[0]), int(self._side.ticks[-1])
        return True

    def position(self, tick: int, side: Literal["left", "right"]) -> int:
        return self.at + int(self.side.ticks[self.at :].searchsorted(tick, side))

    def advance(self, end: int) -> None:
        if end == self.rows:
            self._side = None
        else:
            self.at, self.first = end, int(self.side.ticks[end])

    def rest(self) -> pa.RecordBatch:
        batch = self.side.batch
        self._side = None
        return batch.slice(self.at) if self.at else batch


def merge_sources(
    sources: Sequence[Iterator[pa.RecordBatch]], schema: StreamSchema
) -> Iterator[pa.RecordBatch]:
    """Merge time-ordered sources, given in order of arrival, with one Arrow schema."""
    merger = BatchMerger(schema.time)
    if len(sources) < 3:
        return _tree(sources, merger)
    return _merged(sources[0], _tree(sources[1:], merger), merger)


def _tree(
    sources: Sequence[Iterator[pa.RecordBatch]], merger: BatchMerger
) -> Iterator[pa.RecordBatch]:
    if len(sources) < 2:
        return sources[0] if sources else iter(())
    middle = len(sources) // 2
    return _merged(_tree(sources[:middle], merger), _tree(sources[middle:], merger), merger)


def _merged(
    earlier: Iterator[pa.RecordBatch], later: Iterator[pa.RecordBatch], merger: BatchMerger
) -> Iterator[pa.RecordBatch]:
    one, other = _MergeSource(earlier, merger), _MergeSource(later, merger)
    while one.fill() and other.fill():
        if one.last <= other.first:
            yield one.rest()
        elif other.last < one.first:
            yield other.rest()
        else:
            if other.last < one.last:
                end, high = one.position(other.last, "right"), other.rows
            else:  # hold back events of the last tick: ``one`` may have more of them
                end, high = one.rows, other.position(one.last, "left")
            merged = merger.merge(one.side, one.at, end, other.side, other.at, high)
            one.advance(end)
            other.advance(high)
            yield merged
    for source in (one, other):
        while source.fill():
            yield source.rest()


def add_late(
    buffer: tuple[pa.RecordBatch, ...], batch: pa.RecordBatch, schema: StreamSchema
) -> tuple[pa.RecordBatch, ...]:
    """Add a sorted batch to the late buffer, merging neighbours to keep it short."""
    result = [*buffer, batch]
    while len(result) > 1 and result[-2].num_rows < 2 * result[-1].num_rows:
        result[-2:] = [merge_batches(result[-2], result[-1], schema)]
    return tuple(result)


def join_late(buffer: Sequence[pa.RecordBatch], schema: StreamSchema) -> pa.RecordBatch:
    """A non-empty late buffer as one sorted batch."""
    joined = buffer[-1]
    for batch in reversed(buffer[:-1]):  # the smallest first
        joined = merge_batches(batch, joined, schema)
    return joined


def merge_batches(
    earlier: pa.RecordBatch, later: pa.RecordBatch, schema: StreamSchema
) -> pa.RecordBatch:
    """Merge two sorted batches; the events of the first come before those of their ticks."""
    if earlier.num_rows + later.num_rows < MERGED_MIN:
        return sort_batch(pa.concat_batches([earlier, later]), schema)
    merger = BatchMerger(schema.time)
    one, other = merger.side(earlier), merger.side(later)
    return merger.merge(one, 0, earlier.num_rows, other, 0, later.num_rows)


def sort_nearly(batch: pa.RecordBatch, ticks: Ints) -> pa.RecordBatch:
    """The batch in time order, stable; fast if large and nearly sorted.  Only events older than one
    before them are sorted, and merged in again; they come behind those of their time, since the
    sequence had gone on to a newer time.
    """
    late = np.empty(ticks.size, np.int64)
    late = late[: _stragglers(ticks, late)]
    if ticks.size < MERGED_MIN or 2 * late.size > ticks.size:
        return batch.take(pa.array(order_of(ticks)))
    late = late[order_of(ticks[late])]
    fresh = np.ones(ticks.size, np.bool_)
    fresh[late] = False
    merger = BatchMerger()
    one = merger.side(batch.filter(pa.array(fresh)), ticks[fresh])
    other = merger.side(batch.take(pa.array(late)), ticks[late])
    return merger.merge(one, 0, ticks.size - late.size, other, 0, late.size)


@kernel
def _stragglers(ticks, late):  # type: ignore[no-untyped-def]
    """Positions of events that are older than one before them; returns their number."""
    count = 0
    newest = ticks[0]
    for i in range(ticks.size):
        if ticks[i] < newest:
            late[count] = i
            count += 1
        else:
            newest = ticks[i]
    return count
