"""Kernels of merging: the columns of two sorted batches become those of one.

Purpose
    The kernels of :mod:`~chronicle.store.merge`.  Where each row of the second batch goes is found
    once, from the times; every column of plain words is then merged in the same call.
    :func:`sort_late` is the same for a batch of which some rows are late: they are taken out and
    merged in again.

Guarantee
    Ties are the first batch's: it arrived earlier.  A column of any fixed width of 1, 2, 4 or 8
    bytes is moved as words of that width, bit for bit.

Layout
    ::

        first     a b c d e f g          places: how many of the first
        second      X     Y   Z          come before each of the second,
        out       a b X c d e Y f Z g    here 2 5 6

Limits
    The kernel is given addresses, so that one call takes columns of all widths and there is one
    compiled form: who calls it must hold the arrays.
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
"""Values that are copied at once."""

QUARTERS = 4
"""Parts whose places are looked for side by side."""

__all__ = ["BatchMerger", "Side", "sort_late"]


@machine_operation()
def _pointer(typing_context, address):  # type: ignore[no-untyped-def]
    """An address as a pointer."""
    from numba.core import cgutils, types

    del typing_context, address

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        del context, signature
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.uint64), generate


@machine_operation()
def _move(typing_context, out, at, first, i):  # type: ignore[no-untyped-def]
    """Copy :data:`MOVED` neighbouring values of one array to another."""
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
    """How many rows of the first come before each of the second; ties are the first's.

    Both are sorted.  Goes on from place to place in steps of 32 and halves the last step without a
    branch, which a processor could not foresee.  The second is cut in four: their halvings wait
    for memory side by side.  Unsigned positions need no test for a sign.
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
                continue  # the last has what a cut in four leaves over
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
    """Merge one column.

    Between two places a constant number of values is copied at once, more than lie there as a rule:
    to copy too many costs less than a loop whose end the processor cannot foresee.  What is copied
    beyond the next place is written again behind it, so that many must still be there: near the
    end they go one by one.
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
    """Find the places, then merge columns given by address and width in bytes.

    Rows [first, end) of the one side and [low, high) of the other.
    """
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
    """Leave some rows, given by rising positions, out; copies as :func:`_merge_words` does."""
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
    """Sort one column: take the late rows out and merge them in again, in their order."""
    _without(column, late, fresh)
    for j in range(order.size):
        picked[j] = column[order[j]]
    _merge_words(fresh, picked, places, out)


@kernel
def _sort_ticks(ticks, late, order, places, fresh, picked):  # type: ignore[no-untyped-def]
    """Where the late rows go among the others."""
    _without(ticks, late, fresh)
    for j in range(order.size):
        picked[j] = ticks[order[j]]
    _places(fresh, picked, places)


@kernel
def _sort_columns(ticks, late, order, places, ours, outs, widths, scratch):  # type: ignore[no-untyped-def]
    """Find the places, then sort columns given by address and width in bytes.

    The scratch space has room for a column of eight bytes.
    """
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
    """A batch as one side of a merge, looked at once and merged from piece by piece.

    Attributes
    ----------
    batch : pyarrow.RecordBatch
        Held, because the kernel reads by address.
    ticks : int64[rows]
        Its times, sorted.
    addresses : uint64[columns]
        Where the values of each column lie; 0 for one that is not of plain words or has nulls.
    plain : bool
        Whether no address is 0.
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
    """Merges batches of one schema.

    Parameters
    ----------
    time : str
        Name of the column that the rows of every batch are sorted by.
    """

    def __init__(self, time: str) -> None:
        self._time = time
        self._schema: pa.Schema | None = None

    def side(self, batch: pa.RecordBatch) -> Side:
        """Make a batch with rows ready to be merged."""
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
        """Merge rows [first, end) of one side with [low, high) of another; ties are the one's."""
        plain: list[int] | None = None
        ours, theirs, widths, each = one.addresses, other.addresses, self._widths, self._each
        if not (one.plain and other.plain):
            plain = np.flatnonzero((ours != 0) & (theirs != 0)).tolist()
            ours, theirs, widths = ours[plain], theirs[plain], widths[plain]
            each = [each[i] for i in plain]
        total = end - first + high - low
        places = np.empty(high - low, np.int64)
        # One buffer for each column: larger ones would come as fresh pages every time.
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
    """Sort a batch of which all but some rows are in order.

    Parameters
    ----------
    ticks : int64[rows]
        Its times.
    late : int64[n]
        Positions of the other rows, rising.
    order : int64[n]
        The same in the order in which they are to come; each goes behind all of its time that are
        not late.
    """
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
    """Bytes of a value, where it is a plain word; 0 for other types."""
    types = pa.types
    if types.is_integer(type_) or types.is_floating(type_) or types.is_temporal(type_):
        return int(type_.bit_width // 8)
    return 0


def _order_of(places: npt.NDArray[np.int64], rows: int) -> npt.NDArray[np.int64]:
    """The merge as positions in both sides joined."""
    order = np.empty(rows + places.size, np.int64)
    second = np.zeros(order.size, np.bool_)
    second[places + np.arange(places.size)] = True
    order[~second] = np.arange(rows)
    order[second] = np.arange(rows, order.size)
    return order
