"""Weaving: the columns of two sorted batches become those of one.

Purpose
    The kernels of :mod:`~chronicle.store.merge`.  Where each row of the second batch goes is found
    once, from the times; every column of plain words is then woven in the same call.

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
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba.core import cgutils
from numba.extending import intrinsic

from ..compiled import kernel

__all__ = ["places_of", "plain_widths", "weave"]


@intrinsic
def _pointer(typing_context, address):  # type: ignore[no-untyped-def]
    """An address as a pointer."""
    del typing_context, address

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        del context, signature
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return numba.types.voidptr(numba.types.uint64), generate


@kernel
def _places(first, second, places):  # type: ignore[no-untyped-def]
    """How many rows of the first come before each of the second; ties are the first's.

    Both are sorted.  Goes on from place to place in steps of 16 and halves the last step without a
    branch, which a processor could not foresee.  Unsigned positions need no test for a sign.
    """
    one = np.uint64(1)
    size = np.uint64(first.size)
    i = np.uint64(0)
    for j in range(second.size):
        tick = second[j]
        while i + np.uint64(16) <= size and first[i + np.uint64(15)] <= tick:
            i += np.uint64(16)
        place = i
        if i + np.uint64(16) <= size:
            place += np.uint64(8) * np.uint64(first[place + np.uint64(7)] <= tick)
            place += np.uint64(4) * np.uint64(first[place + np.uint64(3)] <= tick)
            place += np.uint64(2) * np.uint64(first[place + one] <= tick)
            place += np.uint64(first[place] <= tick)
        else:
            while place < size and first[place] <= tick:
                place += one
        places[j] = place


@kernel
def _weave_words(first, second, places, out):  # type: ignore[no-untyped-def]
    """Weave one column.

    Between two places values are copied in eights.  What is copied beyond the next place is
    written again behind it, so eight must still be there: near the end they go one by one.
    """
    one = np.uint64(1)
    size = np.uint64(first.size)
    others = np.uint64(second.size)
    eights = first.size - 16
    i = np.uint64(0)
    j = np.uint64(0)
    while j < others and places[j] <= eights:
        stop = np.uint64(places[j])
        at = i + j
        while i < stop:
            a = first[i]
            b = first[i + np.uint64(1)]
            c = first[i + np.uint64(2)]
            d = first[i + np.uint64(3)]
            e = first[i + np.uint64(4)]
            f = first[i + np.uint64(5)]
            g = first[i + np.uint64(6)]
            h = first[i + np.uint64(7)]
            out[at] = a
            out[at + np.uint64(1)] = b
            out[at + np.uint64(2)] = c
            out[at + np.uint64(3)] = d
            out[at + np.uint64(4)] = e
            out[at + np.uint64(5)] = f
            out[at + np.uint64(6)] = g
            out[at + np.uint64(7)] = h
            i += np.uint64(8)
            at += np.uint64(8)
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
def _weave_columns(firsts, seconds, outs, widths, rows, places):  # type: ignore[no-untyped-def]
    """Weave columns given by address and width in bytes."""
    more = places.size
    for column in range(widths.size):
        first = _pointer(firsts[column])
        second = _pointer(seconds[column])
        out = _pointer(outs[column])
        width = widths[column]
        if width == 8:
            _weave_words(
                numba.carray(first, rows, np.uint64),
                numba.carray(second, more, np.uint64),
                places,
                numba.carray(out, rows + more, np.uint64),
            )
        elif width == 4:
            _weave_words(
                numba.carray(first, rows, np.uint32),
                numba.carray(second, more, np.uint32),
                places,
                numba.carray(out, rows + more, np.uint32),
            )
        elif width == 2:
            _weave_words(
                numba.carray(first, rows, np.uint16),
                numba.carray(second, more, np.uint16),
                places,
                numba.carray(out, rows + more, np.uint16),
            )
        else:
            _weave_words(
                numba.carray(first, rows, np.uint8),
                numba.carray(second, more, np.uint8),
                places,
                numba.carray(out, rows + more, np.uint8),
            )


def places_of(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many of the first sorted times come before each of the second; ties are the first's."""
    places = np.empty(second.size, np.int64)
    _places(first, second, places)
    places.flags.writeable = False
    return places


def plain_widths(schema: pa.Schema) -> list[int]:
    """Bytes of a value of each column, where it is a plain word; 0 for other types."""
    return [
        field.type.bit_width // 8
        if pa.types.is_integer(field.type)
        or pa.types.is_floating(field.type)
        or pa.types.is_temporal(field.type)
        else 0
        for field in schema
    ]


def weave(
    firsts: Sequence[pa.Array],
    seconds: Sequence[pa.Array],
    widths: Sequence[int],
    places: npt.NDArray[np.int64],
) -> list[pa.Array]:
    """Weave columns of plain words without nulls.

    Parameters
    ----------
    firsts, seconds : sequences of pyarrow.Array
        Column by column of one type; each side of one length.
    widths : sequence of int
        Bytes of a value of each column: 1, 2, 4 or 8.
    places : int64[rows of the second]
        From :func:`places_of`.

    Returns
    -------
    list of pyarrow.Array
    """
    if not firsts:
        return []
    rows = len(firsts[0])
    total = rows + places.size
    # One buffer for each column: larger ones would come as fresh pages every time.
    outs = [pa.allocate_buffer(total * width) for width in widths]
    table = np.empty((4, len(widths)), np.uint64)
    table[0] = [_address(one, width) for one, width in zip(firsts, widths, strict=True)]
    table[1] = [_address(other, width) for other, width in zip(seconds, widths, strict=True)]
    table[2] = [out.address for out in outs]
    table[3] = widths
    _weave_columns(table[0], table[1], table[2], table[3], rows, places)
    return [
        pa.Array.from_buffers(one.type, total, [None, out])
        for one, out in zip(firsts, outs, strict=True)
    ]


def _address(array: pa.Array, width: int) -> Any:
    return array.buffers()[1].address + array.offset * width
