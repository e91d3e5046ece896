"""Merge kernels: the columns of two sorted batches become those of one; the first's ties come
first::

    first     a b c d e f g          places: how many of the first
    second      X     Y   Z          come before each of the second,
    out       a b X c d e Y f Z g    here 2 5 6

Places are computed once, from the times; columns of 1, 2, 4 or 8 bytes are then moved as words, bit
for bit.  ``sort_late`` extracts the late rows of a batch and merges them in again.  Kernels take
addresses, so that one compiled form handles all widths: callers must keep the arrays alive.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.native import carray, kernel, machine_operation
from .tail import ticks_of_column

MOVED = 32

QUARTERS = 4
"""Searches that are interleaved to overlap memory latency."""

__all__ = ["BatchMerger", "Side", "sort_late"]


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


@kernel
def _without(column, late, fresh):  # type: ignore[no-untyped-def]
    """Remove the rows at ascending positions; copies as ``_merge_words`` does."""
    i = 0
    for j in range(late.size):
        stop = late[j]
        at = i - j
        if stop + MOVED <= column.size and stop - j + MOVED <= fresh.size:
            _move(fresh, np.uint64(at), column, np.uint64(i))
            i += MOVED
            at += MOVED
            while i < stop:
                _move(fresh, np.uint64(at), column, np.uint64(i))
                i += MOVED
                at += MOVED
        else:
            while i < stop:
                fresh[at] = column[i]
                i += 1
                at += 1
        i = stop + 1
    while i < column.size:
        fresh[i - late.size] = column[i]
        i += 1


@kernel
def _sort_words(column, late, order, places, fresh, picked, out):  # type: ignore[no-untyped-def]
    """Sort one column: extract the late rows and merge them in again, in ``order``."""
    _without(column, late, fresh)
    for j in range(order.size):
        picked[j] = column[order[j]]
    _merge_words(fresh, picked, places, out)


@kernel
def _sort_ticks(ticks, late, order, places, fresh, picked):  # type: ignore[no-untyped-def]
    """Compute the places of the late rows among the others."""
    _without(ticks, late, fresh)
    for j in range(order.size):
        picked[j] = ticks[order[j]]
    _places(fresh, picked, places)


@kernel
def _sort_columns(ticks, late, order, places, ours, outs, widths, scratch):  # type: ignore[no-untyped-def]
    """Find the places, then sort columns; ``scratch`` has space for 8 bytes per row."""
    rows = ticks.size
    more = late.size
    fresh = rows - more
    at = scratch + np.uint64(8 * fresh)
    _sort_ticks(
        ticks,
        late,
        order,
        places,
        carray(_pointer(scratch), fresh, np.int64),
        carray(_pointer(at), more, np.int64),
    )
    for column in range(widths.size):
        width = widths[column]
        one = _pointer(ours[column])
        kept = _pointer(scratch)
        picked = _pointer(at)
        out = _pointer(outs[column])
        if width == 8:
            _sort_words(
                *(carray(one, rows, np.uint64), late, order, places),
                carray(kept, fresh, np.uint64),
                carray(picked, more, np.uint64),
                carray(out, rows, np.uint64),
            )
        elif width == 4:
            _sort_words(
                *(carray(one, rows, np.uint32), late, order, places),
                carray(kept, fresh, np.uint32),
                carray(picked, more, np.uint32),
                carray(out, rows, np.uint32),
            )
        elif width == 2:
            _sort_words(
                *(carray(one, rows, np.uint16), late, order, places),
                carray(kept, fresh, np.uint16),
                carray(picked, more, np.uint16),
                carray(out, rows, np.uint16),
            )
        else:
            _sort_words(
                *(carray(one, rows, np.uint8), late, order, places),
                carray(kept, fresh, np.uint8),
                carray(picked, more, np.uint8),
                carray(out, rows, np.uint8),
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
        found = [
            column.buffers()[1].address + column.offset * width
            if width and not column.null_count
            else 0
            for column, width in zip(columns, widths, strict=True)
        ]
        self.batch = batch
        self.ticks = ticks
        self.addresses = np.array(found, np.uint64)
        self.plain = 0 not in found


class BatchMerger:
    """Merges batches of one schema, sorted by the column ``time``."""

    def __init__(self, time: str) -> None:
        self._time = time
        self._schema: pa.Schema | None = None

    def side(self, batch: pa.RecordBatch) -> Side:
        if self._schema is None:
            self._schema = batch.schema
            self._position = batch.schema.get_field_index(self._time)
            self._types = batch.schema.types
            self._each = [_plain_width(type_) for type_ in self._types]
            self._widths = np.array(self._each, np.uint64)
        return Side(batch, self._each, ticks_of_column(batch.column(self._position)))

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
            found = dict(zip(plain, merged, strict=True))
            order = pa.array(_order_of(places, end - first))
            for i in range(len(self._each)):
                if i not in found:
                    pair = [
                        one.batch.column(i).slice(first, end - first),
                        other.batch.column(i).slice(low, high - low),
                    ]
                    found[i] = pc.take(pa.concat_arrays(pair), order)
            merged = [found[i] for i in range(len(self._each))]
        return pa.RecordBatch.from_arrays(merged, schema=self._schema)


def sort_late(
    batch: pa.RecordBatch,
    ticks: npt.NDArray[np.int64],
    late: npt.NDArray[np.int64],
    order: npt.NDArray[np.int64],
) -> pa.RecordBatch:
    """Sort a batch, in order except for the rows ``late``, whose final order is ``order``."""
    each = [_plain_width(type_) for type_ in batch.schema.types]
    side = Side(batch, each, ticks)
    plain = np.flatnonzero(side.addresses).tolist()
    places = np.empty(late.size, np.int64)
    buffers = [pa.allocate_buffer(ticks.size * each[i]) for i in plain]
    outs = np.array([buffer.address for buffer in buffers], np.uint64)
    widths = np.array([each[i] for i in plain], np.uint64)
    scratch = pa.allocate_buffer(8 * ticks.size)
    ours = side.addresses[plain]
    _sort_columns(ticks, late, order, places, ours, outs, widths, np.uint64(scratch.address))
    found = {
        i: pa.Array.from_buffers(batch.schema.field(i).type, ticks.size, [None, buffer])
        for i, buffer in zip(plain, buffers, strict=True)
    }
    if len(found) < len(each):
        joined = np.concatenate((np.delete(np.arange(ticks.size), late), order))
        rows = pa.array(joined[_order_of(places, ticks.size - late.size)])
        for i in range(len(each)):
            if i not in found:
                found[i] = pc.take(batch.column(i), rows)
    return pa.RecordBatch.from_arrays([found[i] for i in range(len(each))], schema=batch.schema)


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
