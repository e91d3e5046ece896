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
for bit.  Kernels take addresses, so that one compiled form handles all widths: callers must keep
the arrays alive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.native import carray, kernel, machine_operation
from ..core.sorting import order_of
from ..schema import StreamSchema
from .tail import ticks_of_column

MOVED = 32

MERGED_MIN = 4096
"""Below this many events, sorting all of them takes less time than merging late ones in."""

QUARTERS = 4
"""Searches that are interleaved to overlap memory latency."""


@machine_operation()
def _pointer(typing_context, address):  # type: ignore[no-untyped-def]
    from numba.core import cgutils, types

    del typing_context, address

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        del context, signature
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.uint64), generate


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
def _places(first, second, places):  # type: ignore[no-untyped-def]
    """How many rows of the first come before each of the second; ties are the first's.  Advances in
    steps of 32, then a branchless binary search; four interleaved parts overlap memory accesses.
    """
    one = np.uint64(1)
    size = np.uint64(first.size)
    quarter = second.size // QUARTERS
    reached = np.zeros(QUARTERS, np.uint64)
    for part in range(1, QUARTERS):
        if quarter:
            reached[part] = np.searchsorted(first, second[part * quarter])
    for step in range(quarter + second.size % QUARTERS):
        for part in range(QUARTERS):
            if step >= quarter and part < QUARTERS - 1:
                continue  # the last part has the remainder
            j = part * quarter + step
            tick = second[j]
            place = reached[part]
            while place + np.uint64(32) <= size and first[place + np.uint64(31)] <= tick:
                place += np.uint64(32)
            if place + np.uint64(32) <= size:
                place += np.uint64(16) * np.uint64(first[place + np.uint64(15)] <= tick)
                place += np.uint64(8) * np.uint64(first[place + np.uint64(7)] <= tick)
                place += np.uint64(4) * np.uint64(first[place + np.uint64(3)] <= tick)
                place += np.uint64(2) * np.uint64(first[place + one] <= tick)
                place += np.uint64(first[place] <= tick)
            else:
                while place < size and first[place] <= tick:
                    place += one
            reached[part] = place
            places[j] = place


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


@kernel
def _merge_columns(ticks, first, end, other_ticks, low, high, places, ours, theirs, outs, widths):  # type: ignore[no-untyped-def]
    """Find the places, then merge columns given by address and width in bytes."""
    _places(ticks[first:end], other_ticks[low:high], places)
    rows = end - first
    more = high - low
    for column in range(widths.size):
        width = widths[column]
        one = _pointer(ours[column] + np.uint64(first) * width)
        other = _pointer(theirs[column] + np.uint64(low) * width)
        out = _pointer(outs[column])
        if width == 8:
            _merge_words(
                carray(one, rows, np.uint64),
                carray(other, more, np.uint64),
                places,
                carray(out, rows + more, np.uint64),
            )
        elif width == 4:
            _merge_words(
                carray(one, rows, np.uint32),
                carray(other, more, np.uint32),
                places,
                carray(out, rows + more, np.uint32),
            )
        elif width == 2:
            _merge_words(
                carray(one, rows, np.uint16),
                carray(other, more, np.uint16),
                places,
                carray(out, rows + more, np.uint16),
            )
        else:
            _merge_words(
                carray(one, rows, np.uint8),
                carray(other, more, np.uint8),
                places,
                carray(out, rows + more, np.uint8),
            )


class Side:
    """A batch prepared for merging; ``addresses`` are 0 for columns with nulls or without a word
    width.
    """

    __slots__ = ("addresses", "batch", "plain", "ticks")

    def __init__(
        self, batch: pa.RecordBatch, widths: Sequence[int], ticks: npt.NDArray[np.int64]
    ) -> None:
        columns = batch.columns
        addresses = [
            column.buffers()[1].address + column.offset * width
            if width and not column.null_count
            else 0
            for column, width in zip(columns, widths, strict=True)
        ]
        self.batch = batch
        self.ticks = ticks
        self.addresses = np.array(addresses, np.uint64)
        self.plain = 0 not in addresses


class BatchMerger:
    """Merges batches of one schema, sorted by the column ``time``."""

    def __init__(self, time: str = "") -> None:
        self._time = time
        self._schema: pa.Schema | None = None

    def side(self, batch: pa.RecordBatch, ticks: npt.NDArray[np.int64] | None = None) -> Side:
        """A batch with its ticks, by default those of its time column."""
        if self._schema is None:
            self._schema = batch.schema
            self._position = batch.schema.get_field_index(self._time)
            self._types = batch.schema.types
            self._each = [_plain_width(type_) for type_ in self._types]
            self._widths = np.array(self._each, np.uint64)
        if ticks is None:
            ticks = ticks_of_column(batch.column(self._position))
        return Side(batch, self._each, ticks)

    def merge(
        self, one: Side, first: int, end: int, other: Side, low: int, high: int
    ) -> pa.RecordBatch:
        """Merge rows [first, end) of one side with [low, high) of another; ties are ``one``'s."""
        plain: list[int] | None = None
        ours, theirs, widths, each = one.addresses, other.addresses, self._widths, self._each
        if not (one.plain and other.plain):
            plain = np.flatnonzero((ours != 0) & (theirs != 0)).tolist()
            ours, theirs, widths = ours[plain], theirs[plain], widths[plain]
            each = [each[i] for i in plain]
        total = end - first + high - low
        places = np.empty(high - low, np.int64)
        # One buffer per column: the allocator would take larger ones as fresh pages each time.
        buffers = [pa.allocate_buffer(total * width) for width in each]
        outs = np.array([buffer.address for buffer in buffers], np.uint64)
        _merge_columns(
            *(one.ticks, first, end, other.ticks, low, high), places, ours, theirs, outs, widths
        )
        types = self._types if plain is None else [self._types[i] for i in plain]
        merged = [
            pa.Array.from_buffers(type_, total, [None, buffer])
            for type_, buffer in zip(types, buffers, strict=True)
        ]
        if plain is not None:
            columns = dict(zip(plain, merged, strict=True))
            order = pa.array(_order_of(places, end - first))
            for i in range(len(self._each)):
                if i not in columns:
                    pair = [
                        one.batch.column(i).slice(first, end - first),
                        other.batch.column(i).slice(low, high - low),
                    ]
                    columns[i] = pc.take(pa.concat_arrays(pair), order)
            merged = [columns[i] for i in range(len(self._each))]
        return pa.RecordBatch.from_arrays(merged, schema=self._schema)


def _plain_width(type_: pa.DataType) -> int:
    types = pa.types
    if types.is_integer(type_) or types.is_floating(type_) or types.is_temporal(type_):
        return int(type_.bit_width // 8)
    return 0


def _order_of(places: npt.NDArray[np.int64], rows: int) -> npt.NDArray[np.int64]:
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
    merger = BatchMerger(schema.time)
    while len(result) > 1 and result[-2].num_rows < 2 * result[-1].num_rows:
        result[-2:] = [_pair(result[-2], result[-1], merger)]
    return tuple(result)


def join_late(buffer: Sequence[pa.RecordBatch], schema: StreamSchema) -> pa.RecordBatch:
    """A non-empty late buffer as one sorted batch."""
    merger = BatchMerger(schema.time)
    joined = buffer[-1]
    for batch in reversed(buffer[:-1]):  # the smallest first
        joined = _pair(batch, joined, merger)
    return joined


def _pair(earlier: pa.RecordBatch, later: pa.RecordBatch, merger: BatchMerger) -> pa.RecordBatch:
    one, other = merger.side(earlier), merger.side(later)
    return merger.merge(one, 0, earlier.num_rows, other, 0, later.num_rows)


def sort_nearly(batch: pa.RecordBatch, ticks: npt.NDArray[np.int64]) -> pa.RecordBatch:
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
    one = merger.side(batch.filter(pa.array(fresh)), _frozen(ticks[fresh]))
    other = merger.side(batch.take(pa.array(late)), _frozen(ticks[late]))
    return merger.merge(one, 0, ticks.size - late.size, other, 0, late.size)


def _frozen(ticks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    ticks.flags.writeable = False  # kernels are compiled for read-only arrays
    return ticks


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
