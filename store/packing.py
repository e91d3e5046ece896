"""Integer compression: deltas or offsets, bit-packed by zone.

A zone of 512 values is stored as its first value and the deltas of neighbours (DELTA), or as its
minimum and the offsets from it (PACKED, frame of reference), with the bit width of the largest.
Exact for every 64-bit pattern: all arithmetic is modulo 2**64.  Zones decode independently.

Layout: for ``z`` zones: ``z`` bases (int64), ``z`` minimum deltas (int64; PACKED leaves them 0),
``z + 1`` starts in the packed words (int64), ``z`` bit widths (int64), then the packed words
(uint64).  Zone ``z`` owns words ``start[z]`` to ``start[z + 1]``; value ``i`` of it lies at bit ``i
* width``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.native import kernel, machine_operation
from .layout import ZONE_EVENTS, Encoding


@kernel
def _plan(values, zone_events, bases, minimums, widths, words, delta):  # type: ignore[no-untyped-def]
    """Base, minimum and width of each zone, and packed words before each; vectorises."""
    count = values.size
    words[0] = 0
    for zone in range(bases.size):
        first = zone * zone_events
        end = min(first + zone_events, count)
        stored = end - first
        low = values[first]
        high = low
        bases[zone] = low
        if delta:
            stored -= 1
            before = values[first : end - 1]
            after = values[first + 1 : end]
            low = after[0] - before[0] if stored else np.int64(0)
            high = low
            for i in range(before.size):
                step = after[i] - before[i]
                low = min(low, step)
                high = max(high, step)
            minimums[zone] = low
        else:
            part = values[first:end]
            for i in range(part.size):
                low = min(low, part[i])
                high = max(high, part[i])
            bases[zone] = low
            minimums[zone] = 0
        widest = np.uint64(high - low)
        width = 0
        while widest != np.uint64(0):
            width += 1
            widest >>= np.uint64(1)
        widths[zone] = width
        words[zone + 1] = words[zone] + (width * stored + 63) // 64


@kernel
def _pack(values, zone_events, bases, minimums, widths, words, delta, packed):  # type: ignore[no-untyped-def]
    """Write packed words; narrow values are merged pairwise first, for a short dependency chain."""
    count = values.size
    distances = np.empty(zone_events + 1, np.uint64)
    for zone in range(bases.size):
        used = np.uint64(widths[zone])
        if used == np.uint64(0):
            continue
        first = zone * zone_events
        end = min(first + zone_events, count)
        low = minimums[zone] if delta else bases[zone]
        size = end - first
        if delta:
            size -= 1
            before = values[first : end - 1]
            after = values[first + 1 : end]
            for i in range(before.size):
                distances[i] = np.uint64(after[i] - before[i] - low)
        else:
            part = values[first:end]
            for i in range(part.size):
                distances[i] = np.uint64(part[i] - low)
        while used <= np.uint64(32):
            distances[size] = np.uint64(0)
            size = (size + 1) >> 1
            for i in range(size):
                distances[i] = distances[2 * i] | (distances[2 * i + 1] << used)
            used += used
        out = packed[words[zone] : words[zone + 1]]
        at = 0
        shift = np.uint64(0)
        gathered = np.uint64(0)
        for i in range(size):
            value = distances[i]
            gathered |= value << shift
            shift += used
            if shift >= np.uint64(64):
                if at < out.size:  # the padding of the last pair may not fit
                    out[at] = gathered
                at += 1
                shift -= np.uint64(64)
                over = used - shift
                gathered = value >> over if over < np.uint64(64) else np.uint64(0)
        if at < out.size:
            out[at] = gathered


@machine_operation()
def word_at(typing_context, words, byte):  # type: ignore[no-untyped-def]
    from numba.core import cgutils, types

    del typing_context

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        at = builder.gep(builder.bitcast(data, cgutils.voidptr_t), [arguments[1]])
        word = context.get_value_type(signature.return_type).as_pointer()
        return builder.load(builder.bitcast(at, word), align=1)

    return types.uint64(words, types.uint64), generate


@kernel
def bits_at(words, bit, width):  # type: ignore[no-untyped-def]
    """``width`` bits, 1 to 64, from a bit on; reads two words always: a branch would cost more."""
    word = bit >> np.uint64(6)
    shift = bit & np.uint64(63)
    beyond = np.uint64(words[min(word + np.uint64(1), np.uint64(words.size - 1))])
    part = (np.uint64(words[word]) >> shift) | ((beyond << np.uint64(1)) << (np.uint64(63) - shift))
    return part & (~np.uint64(0) >> (np.uint64(64) - width))


@kernel
def unpack_zone(words, at, base, low, width, delta, out):  # type: ignore[no-untyped-def]
    """Decode the first values of a zone whose packed words begin at a word.

    Values of up to 57 bits are one load, but at the end of the words.
    """
    value = np.uint64(base)
    step = np.uint64(low) if delta else np.uint64(0)
    used = np.uint64(width)
    first = 0
    if delta:
        out[0] = np.int64(value)
        first = 1
    if used == np.uint64(0):
        for i in range(first, out.size):
            value += step
            out[i] = np.int64(value)
        return
    mask = ~np.uint64(0) >> (np.uint64(64) - used)
    bit = np.uint64(64 * at)
    bits = np.uint64(64 * words.size)
    quick = first
    if used <= np.uint64(57) and bit + np.uint64(64) <= bits:
        quick = min(out.size, first + np.int64((bits - np.uint64(64) - bit) // used))
    for i in range(first, quick):
        part = (word_at(words, bit >> np.uint64(3)) >> (bit & np.uint64(7))) & mask
        bit += used
        if delta:
            value += step + part
            out[i] = np.int64(value)
        else:
            out[i] = np.int64(value + part)
    for i in range(quick, out.size):
        part = bits_at(words, bit, used)
        bit += used
        if delta:
            value += step + part
            out[i] = np.int64(value)
        else:
            out[i] = np.int64(value + part)


@kernel
def _unpack(bases, minimums, words, widths, packed, zone_events, count, first_zone, delta, out):  # type: ignore[no-untyped-def]
    """Decode zones until ``out`` is full."""
    at = 0
    zone = first_zone
    while at < out.size:
        size = min(min(zone_events, count - zone * zone_events), out.size - at)
        unpack_zone(
            packed,
            words[zone],
            bases[zone],
            minimums[zone],
            widths[zone],
            delta,
            out[at : at + size],
        )
        at += size
        zone += 1


@kernel
def _unpack_at(bases, words, widths, packed, zone_events, rows, out):  # type: ignore[no-untyped-def]
    """Decode PACKED values at some rows."""
    for i in range(rows.size):
        zone = rows[i] // zone_events
        width = np.uint64(widths[zone])
        value = np.uint64(bases[zone])
        if width != np.uint64(0):
            bit = np.uint64(64 * words[zone]) + width * np.uint64(rows[i] - zone * zone_events)
            value += bits_at(packed, bit, width)
        out[i] = np.int64(value)


@kernel
def fill_nulls(values, validity, bit_offset, out):  # type: ignore[no-untyped-def]
    """Copy values, replacing each null by the valid value before it (0 at the start)."""
    last = values.dtype.type(0)
    for i in range(values.size):
        bit = i + bit_offset
        if (validity[bit >> 3] >> (bit & 7)) & 1:
            last = values[i]
        out[i] = last


def pooled(count: int, dtype: Any) -> npt.NDArray[Any]:
    """An array in Arrow's memory pool: fresh pages would dominate the decoding of a large leaf."""
    dtype = np.dtype(dtype)
    return np.frombuffer(pa.allocate_buffer(count * dtype.itemsize), dtype)


class Packing:
    """The size of integers in an encoding (DELTA or PACKED), before encoding them."""

    __slots__ = ("_bases", "_minimums", "_values", "_widths", "_words", "encoding", "nbytes")

    def __init__(self, values: npt.NDArray[np.int64], encoding: Encoding) -> None:
        zones = -(-values.size // ZONE_EVENTS)
        self._values = values
        self.encoding = encoding
        self._bases = np.empty(zones, np.int64)
        self._minimums = np.empty(zones, np.int64)
        self._widths = np.empty(zones, np.int64)
        self._words = np.empty(zones + 1, np.int64)
        _plan(
            values, ZONE_EVENTS, self._bases, self._minimums, self._widths, self._words,
            encoding is Encoding.DELTA,
        )  # fmt: skip
        self.nbytes = (4 * zones + 1 + int(self._words[-1])) * 8

    @property
    def table_words(self) -> int:
        """Words of the tables in the compact layout of ``store.scaled``."""
        return table_words(self._bases.size, self.encoding)

    @property
    def compact_words(self) -> int:
        return self.table_words + int(self._words[-1])

    def compact(self) -> tuple[npt.NDArray[Any], ...]:
        """Bases, minimum deltas (DELTA only), widths as bytes, packed words."""
        delta = self.encoding is Encoding.DELTA
        widths = np.zeros(-(-self._widths.size // 8) * 8, np.uint8)
        widths[: self._widths.size] = self._widths
        squeezed = np.empty(int(self._words[-1]), np.uint64)
        self._pack_into(squeezed)
        tables = (self._bases, self._minimums) if delta else (self._bases,)
        return (*tables, widths, squeezed)

    @property
    def ascends(self) -> bool:
        """Whether all zones ascend; then PACKED is not smaller: deltas never exceed offsets."""
        return self.encoding is Encoding.DELTA and not (self._minimums < 0).any()

    def packed(self) -> npt.NDArray[np.int64]:
        bases, minimums, widths, words = self._bases, self._minimums, self._widths, self._words
        chunk = pooled(self.nbytes // 8, np.int64)
        head = 4 * bases.size + 1
        np.concatenate((bases, minimums, words, widths), out=chunk[:head])
        self._pack_into(chunk[head:].view(np.uint64))
        return chunk

    def _pack_into(self, squeezed: npt.NDArray[np.uint64]) -> None:
        _pack(
            self._values, ZONE_EVENTS, self._bases, self._minimums, self._widths, self._words,
            self.encoding is Encoding.DELTA, squeezed,
        )  # fmt: skip


def pack(values: npt.NDArray[np.int64], encoding: Encoding) -> bytes:
    """Encode as DELTA or PACKED."""
    return Packing(values, encoding).packed().tobytes()


def unpack(
    chunk: memoryview, encoding: Encoding, count: int, first: int, end: int, dtype: Any = np.int64
) -> npt.NDArray[Any]:
    """Decode values [first, end) of an aligned chunk of ``count``; int32 keeps the lower half."""
    bases, minimums, words, widths, packed = _tables(chunk, count)
    first_zone = first // ZONE_EVENTS
    base = first_zone * ZONE_EVENTS
    out = pooled(end - base, dtype)
    delta = encoding is Encoding.DELTA
    _unpack(bases, minimums, words, widths, packed, ZONE_EVENTS, count, first_zone, delta, out)
    return out[first - base :]


def unpack_at(chunk: memoryview, count: int, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Lower halves of the values of an aligned PACKED chunk of ``count`` at some rows."""
    bases, _, words, widths, packed = _tables(chunk, count)
    out = np.empty(len(rows), np.int32)
    _unpack_at(bases, words, widths, packed, ZONE_EVENTS, rows, out)
    return out


def _tables(chunk: memoryview, count: int) -> tuple[npt.NDArray[Any], ...]:
    """Bases, minimum deltas, word starts and widths of the zones, and the packed words."""
    zones = -(-count // ZONE_EVENTS)
    words = np.frombuffer(chunk, np.int64)
    return (
        words[:zones],
        words[zones : 2 * zones],
        words[2 * zones : 3 * zones + 1],
        words[3 * zones + 1 : 4 * zones + 1],
        words[4 * zones + 1 :].view(np.uint64),
    )


def table_words(zones: int, encoding: Encoding) -> int:
    return zones * (2 if encoding is Encoding.DELTA else 1) + -(-zones // 8)
