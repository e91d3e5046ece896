r"""Numbers as small integers: decimals and coarse times are scaled, far values are exceptions, few
different ones stand in a table.

Purpose: doubles that were decimals (12.34), times that are multiples of a unit, integers of which
few are far from the others, and numbers that occur often take the bits that they need.

Steps, each reversible bit for bit::

    12.34, 12.4, nan, 7.1 --scale--> 1234, 1240, 1240, 710   exceptions: (2, nan)
    5, 7, 900000, 6       --flatten--> 5, 7, 5, 6            exceptions: (2, 900000)

1. Scale.  A float is ``integer / 10**digits``: IEEE division rounds correctly, so decimals of up to
   15 digits come back exactly; what does not (NaN, -0.0, more digits) is an exception.  An integer
   is ``origin + divisor * integer``, modulo 2**64.
2. Flatten.  By zone, values so far above or below the others that their bits do not pay become
   exceptions: PACKED keeps the value itself, DELTA the surplus of the step, which is added to the
   rest of its zone.
3. Pack the integers as ``packing`` does, with one byte for each width and no starts.

Or, where that is smaller, the integers are places in an ascending table of the different values.

Layout, in words of 64 bits: ``[head, divisor, origin][places][amounts][integers]``, or ``[head, 1,
0][table][integers]``.  The head has the encoding of the integers (byte 0), 0 for integers, 1 for
doubles, 2 for floats (byte 1), 1 for a table (byte 2), and the number of exceptions or of values
in the table (upper half).  Each block has bases, minimum deltas (DELTA only), widths
(bytes, padded to a word), packed words.  Places (rows, DELTA) and amounts (PACKED) are missing
without exceptions.

Source: ALP, Afroozeh, Kuffo and Boncz, SIGMOD 2024, which multiplies by two powers where this
divides by one; exceptions as in PFOR, Zukowski, Heman, Nes and Boncz, ICDE 2006.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.native import kernel, leading_zeros
from .layout import ZONE_EVENTS, Encoding
from .packing import Packing, pooled, unpack_zone

INTEGERS, FLOAT64, FLOAT32 = 0, 1, 2
HEAD_WORDS = 3
NO_ROWS: npt.NDArray[np.int64] = np.empty(0, np.int64)
DIGITS = 16
SAMPLE = 256
SAMPLED_ZONES = 16
"""One zone of so many tells whether exceptions pay."""
WORTHWHILE = 0.97
"""Exceptions must bring the sample below this share of its packed size."""
DECIMALS_WORTHWHILE = 0.9
"""Integers must bring a sample of floats below this share of its plain size."""
EXCEPTION_BITS = 96
"""Estimated size of an exception when the integers' width is chosen."""
TABLE_MAX = 1 << 14
TABLE_WORTHWHILE = 0.8
TABLE_SAMPLE = 1024
_SLOT_BITS = 15
_ODD = np.uint64(0x9E3779B97F4A7C15)

_SCALES = 10.0 ** np.arange(DIGITS)
_SCALES.flags.writeable = False
_EXACT = 2.0**53

Ints = npt.NDArray[np.int64]


@kernel
def _exact_counts(sample, scales, counts):  # type: ignore[no-untyped-def]
    """How many values each scale gives back."""
    for k in range(scales.size):
        scale = scales[k]
        exact = 0
        for i in range(sample.size):
            scaled = np.rint(np.float64(sample[i]) * scale)
            if abs(scaled) <= _EXACT and sample.dtype.type(scaled / scale) == sample[i]:
                exact += 1
        counts[k] = exact


@kernel
def _to_integers(values, bits, scale, integers, places):  # type: ignore[no-untyped-def]
    """Scale floats; exceptions take the integer before them.  Returns their number."""
    number = 0
    last = np.int64(0)
    for i in range(values.size):
        scaled = np.rint(np.float64(values[i]) * scale)
        exact = abs(scaled) <= _EXACT and values.dtype.type(scaled / scale) == values[i]
        if exact and not (scaled == 0.0 and bits[i] != 0):
            last = np.int64(scaled)
        else:
            places[number] = i
            number += 1
        integers[i] = last
    return number


@kernel
def _common_divisor(values):  # type: ignore[no-untyped-def]
    """Greatest common divisor of the distances to the first value, modulo 2**64; at least 1."""
    divisor = np.int64(0)
    for i in range(values.size):
        rest = values[i] - values[0]
        if rest < 0:
            rest = -rest
        if rest < 0:
            return np.int64(1)
        while rest != 0:
            divisor, rest = rest, divisor % rest
        if divisor == 1:
            return divisor
    return max(divisor, np.int64(1))


@kernel
def _number(values, slots, table, codes):  # type: ignore[no-untyped-def]
    """Number different values as they occur; returns how many, or -1 if the table is too small."""
    count = 0
    for i in range(values.size):
        slot = (np.uint64(values[i]) * _ODD) >> np.uint64(64 - _SLOT_BITS)
        while slots[slot] != 0 and table[slots[slot] - 1] != values[i]:
            slot = (slot + np.uint64(1)) & np.uint64(slots.size - 1)
        if slots[slot] == 0:
            if count == table.size:
                return -1
            table[count] = values[i]
            count += 1
            slots[slot] = count
        codes[i] = slots[slot] - 1
    return count


@kernel
def _flatten(values, delta, zone_events, exception_bits, out, places, amounts):  # type: ignore[no-untyped-def]
    """Take values far above or below the others out of each zone; returns how many.

    With DELTA, far steps.  What stays lies within some bits of the zone's least or greatest.
    """
    number = 0
    lengths = np.empty((2, 65), np.int64)  # by bits above the least, and below the greatest
    for first in range(0, values.size, zone_events):
        end = min(first + zone_events, values.size)
        begin = first + 1 if delta else first
        out[first] = values[first]
        if begin == end:
            continue
        before = np.int64(0)
        low = values[begin] - values[first] if delta else values[first]
        high = low
        for i in range(begin, end):
            before = values[i - 1] if delta else np.int64(0)
            low = min(low, values[i] - before)
            high = max(high, values[i] - before)
        lengths[:] = 0
        for i in range(begin, end):
            before = values[i - 1] if delta else np.int64(0)
            lengths[0, 64 - leading_zeros(np.uint64(values[i] - before - low))] += 1
            lengths[1, 64 - leading_zeros(np.uint64(high - (values[i] - before)))] += 1
        best = 64 - leading_zeros(np.uint64(high - low))
        least = best * (end - begin)
        below = False
        for side in range(2):
            far = 0
            for width in range(63, -1, -1):
                far += lengths[side, width + 1]
                size = width * (end - begin) + far * exception_bits
                if size < least:
                    best, least, below = width, size, side == 1
        surplus = np.int64(0)
        filler = high if below else low
        for i in range(begin, end):
            before = values[i - 1] if delta else np.int64(0)
            step = values[i] - before
            distance = np.uint64(high - step if below else step - low)
            if 64 - leading_zeros(distance) > best:
                places[number] = i
                amounts[number] = step - filler if delta else step
                number += 1
                surplus += step - filler
                out[i] = values[i] - surplus if delta else filler
            else:
                out[i] = values[i] - surplus if delta else step
    return number


@kernel
def _width_at(words, at, zone):  # type: ignore[no-untyped-def]
    """Width of a zone; the widths are bytes from a word on."""
    return (words[at + (zone >> 3)] >> (8 * (zone & 7))) & 255


@kernel
def _packed_before(words, at, count, zone, delta):  # type: ignore[no-untyped-def]
    """Packed words before a zone of a block of ``count`` values; the widths are at a word."""
    sum_ = np.int64(0)
    for before in range(zone):
        stored = min(ZONE_EVENTS, count - before * ZONE_EVENTS) - (1 if delta else 0)
        sum_ += (_width_at(words, at, before) * stored + 63) >> 6
    return sum_


@kernel
def _read_zone(words, at, count, zone, delta, out):  # type: ignore[no-untyped-def]
    """Decode a zone of the block at a word; returns how many values."""
    zones = (count + ZONE_EVENTS - 1) // ZONE_EVENTS
    widths = at + 2 * zones if delta else at + zones
    packed = widths + ((zones + 7) >> 3) + _packed_before(words, widths, count, zone, delta)
    size = min(ZONE_EVENTS, count - zone * ZONE_EVENTS)
    low = words[at + zones + zone] if delta else np.int64(0)
    width = _width_at(words, widths, zone)
    unpack_zone(words, packed, words[at + zone], low, width, delta, out[:size])
    return size


@kernel
def decode_zones(words, at, prefix_words, count, zone, wide, out):  # type: ignore[no-untyped-def]
    """Decode the chunk at a word from a zone on: integers or bits, ``wide`` those of doubles."""
    delta = words[at] & 255 == 1
    kind = (words[at] >> 8) & 255
    tabled = (words[at] >> 16) & 1 == 1
    last = np.uint64((words[at] >> 32) - 1)  # place in a table
    exceptions = 0 if tabled else words[at] >> 32
    divisor = words[at + 1]
    origin = words[at + 2]
    scale = np.float64(divisor)
    numbers = out.view(np.float64)
    narrow = np.empty(1, np.float32)
    bits = narrow.view(np.int32)
    zones = (count + ZONE_EVENTS - 1) // ZONE_EVENTS
    packed = at + prefix_words
    widths = packed - ((zones + 7) >> 3)
    bases = widths - (2 * zones if delta else zones)
    packed += _packed_before(words, widths, count, zone, delta)
    # the exceptions, a zone of them at a time
    places = at + HEAD_WORDS
    pages = (exceptions + ZONE_EVENTS - 1) // ZONE_EVENTS
    page = 0
    above = pages
    while above - page > 1:  # the last page that begins at or before the zone
        middle = (page + above) >> 1
        if words[places + middle] <= zone * ZONE_EVENTS:
            page = middle
        else:
            above = middle
    amounts = places + 2 * pages + ((pages + 7) >> 3)
    amounts += _packed_before(words, places + 2 * pages, exceptions, pages, True)
    rows = np.empty(ZONE_EVENTS if exceptions else 0, np.int64)
    values = np.empty(rows.size, np.int64)
    loaded = 0
    e = 0
    begin = 0
    while begin < out.size:
        first = zone * ZONE_EVENTS
        size = min(min(ZONE_EVENTS, count - first), out.size - begin)
        end = first + size
        part = out[begin : begin + size]
        low = words[bases + zones + zone] if delta else np.int64(0)
        width = _width_at(words, widths, zone)
        unpack_zone(words, packed, words[bases + zone], low, width, delta, part)
        stored = min(ZONE_EVENTS, count - first) - (1 if delta else 0)
        packed += (width * stored + 63) >> 6
        if tabled:
            for i in range(size):
                part[i] = words[np.uint64(places) + min(np.uint64(part[i]), last)]
        elif kind == FLOAT64:
            for i in range(size):
                numbers[begin + i] = np.float64(part[i]) / scale
        elif kind == FLOAT32:
            for i in range(size):
                narrow[0] = np.float64(part[i]) / scale
                part[i] = bits[0]
        elif divisor != 1 and not delta:
            for i in range(size):
                part[i] = part[i] * divisor + origin
        while page < pages:
            if e == loaded:
                loaded = _read_zone(words, places, exceptions, page, True, rows)
                _read_zone(words, amounts, exceptions, page, False, values)
                e = 0
            while e < loaded and rows[e] < end:
                i = rows[e] - first
                if i >= 0:
                    if kind or not delta:
                        part[i] = values[e]
                    else:
                        for after in range(i, size):
                            part[after] += values[e]
                e += 1
            if e < loaded:
                break
            page += 1
        if divisor != 1 and not kind and delta:
            for i in range(size):
                part[i] = part[i] * divisor + origin
        if wide and kind == FLOAT32:
            for i in range(size):
                bits[0] = part[i]
                numbers[begin + i] = narrow[0]
        begin += size
        zone += 1


@kernel
def packed_words(words, prefix_words, count, starts):  # type: ignore[no-untyped-def]
    """Packed words before each zone, and of all zones, of the chunk at the first word."""
    delta = words[0] & 255 == 1
    widths = prefix_words - (((count + ZONE_EVENTS - 1) // ZONE_EVENTS + 7) >> 3)
    starts[0] = 0
    for zone in range(starts.size - 1):
        stored = min(ZONE_EVENTS, count - zone * ZONE_EVENTS) - (1 if delta else 0)
        starts[zone + 1] = starts[zone] + ((_width_at(words, widths, zone) * stored + 63) >> 6)


class Scaled:
    """A chunk of scaled numbers before it is written; ``prefix_words`` precede the packed ones."""

    def __init__(
        self,
        integers: Packing,
        places: Ints,
        amounts: Ints,
        divisor: int,
        origin: int,
        kind: int,
        table: Ints = NO_ROWS,
    ) -> None:
        head = integers.encoding | kind << 8 | bool(len(table)) << 16
        head |= (len(places) + len(table)) << 32
        self._head = np.array([head, divisor, origin], np.int64)
        self._table = table
        self._exceptions: list[Packing] = []
        if len(places):
            self._exceptions = [Packing(places, Encoding.DELTA), Packing(amounts, Encoding.PACKED)]
        self._integers = integers
        self.prefix_words = HEAD_WORDS + len(table) + integers.table_words
        self.prefix_words += sum(each.compact_words for each in self._exceptions)
        self.nbytes = 8 * (self.prefix_words + integers.compact_words - integers.table_words)

    def parts(self) -> list[npt.NDArray[Any]]:
        blocks = (*self._exceptions, self._integers)
        return [self._head, self._table, *(part for block in blocks for part in block.compact())]


def scaled_floats(values: npt.NDArray[Any]) -> Scaled | None:
    """Decimals as integers; None where most of a sample are not decimals of few digits."""
    digits = _digits_of(values)
    if digits is None:
        return None
    integers, places = np.empty(values.size, np.int64), np.empty(values.size, np.int64)
    kind = FLOAT32 if values.itemsize == 4 else FLOAT64
    bits = values.view(np.int32 if kind == FLOAT32 else np.int64)
    count = _to_integers(values, bits, _SCALES[digits], integers, places)
    places = places[:count]
    steps = Packing(integers, Encoding.DELTA)
    candidates = [Scaled(steps, places, bits[places].astype(np.int64), 10**digits, 0, kind)]
    if not steps.ascends:
        packing, far, _ = _flattened(integers, Encoding.PACKED)
        rows = np.union1d(places, far)
        candidates.append(Scaled(packing, rows, bits[rows].astype(np.int64), 10**digits, 0, kind))
    return min(candidates, key=lambda each: each.nbytes)


def scaled_integers(values: Ints) -> Scaled:
    """Integers as multiples of their common divisor, with far values or steps as exceptions."""
    divisor, origin = int(_common_divisor(values)), 0
    if divisor > 1:
        origin = int(values[0])
        values = (values - origin) // divisor
    steps, places, amounts = _flattened(values, Encoding.DELTA)
    candidates = [Scaled(steps, places, amounts, divisor, origin, INTEGERS)]
    if not steps.ascends:
        packing, places, amounts = _flattened(values, Encoding.PACKED)
        amounts = amounts * divisor + origin
        candidates.append(Scaled(packing, places, amounts, divisor, origin, INTEGERS))
    return min(candidates, key=lambda each: each.nbytes)


def tabulated(values: Ints, kind: int, others: float) -> Scaled | None:
    """Integers, or bits of floats, by their places in a table; None unless that is much smaller
    than ``others``, the bytes that they take otherwise.
    """
    most = TABLE_WORTHWHILE * others
    sample, counts = np.unique(values[:: max(1, values.size // TABLE_SAMPLE)], return_counts=True)
    once, twice = np.count_nonzero(counts == 1), np.count_nonzero(counts == 2)
    estimate = max(1, sample.size) + once * (once - 1) / (2 * twice + 2)  # Chao, 1984
    if estimate > TABLE_MAX or values.size * math.log2(estimate) / 8 + 8 * estimate > most:
        return None
    table = np.empty(min(TABLE_MAX, int(most / 8)), np.int64)
    codes = np.empty(values.size, np.int64)
    count = _number(values, np.zeros(1 << _SLOT_BITS, np.int32), table, codes)
    if count < 0:
        return None
    order = table[:count].argsort()
    ranks = np.empty(count, np.int64)
    ranks[order] = np.arange(count)
    places = Packing(ranks[codes], Encoding.PACKED)
    scaled = Scaled(places, NO_ROWS, NO_ROWS, 1, 0, kind, table[order])
    return scaled if scaled.nbytes < most else None


def _digits_of(values: npt.NDArray[Any]) -> int | None:
    sample = np.ascontiguousarray(values[:: max(1, values.size // SAMPLE)])
    counts = np.empty(DIGITS, np.int64)
    _exact_counts(sample, _SCALES, counts)
    finite = sample[np.isfinite(sample)].astype(np.float64)
    if not finite.size:
        return None
    span = float(finite.max()) / 2 - float(finite.min()) / 2  # halves cannot overflow
    widths = np.log2(2 * _SCALES * span + 1) if span < _EXACT else np.full(DIGITS, 64.0)
    plain = 8 * values.itemsize
    bits = counts * np.minimum(widths, 64) + (sample.size - counts) * (plain + EXCEPTION_BITS)
    digits = int(bits.argmin())
    return digits if bits[digits] < DECIMALS_WORTHWHILE * plain * sample.size else None


def _flattened(values: Ints, encoding: Encoding) -> tuple[Packing, Ints, Ints]:
    """The packed values with places and amounts of exceptions, if those pay in some zones."""
    whole = values.size // ZONE_EVENTS // SAMPLED_ZONES
    if whole > 1:
        zones = values[: whole * SAMPLED_ZONES * ZONE_EVENTS].reshape(whole, -1)
        some = zones[:, :ZONE_EVENTS].ravel()
        flat, places, _ = _without_far(some, encoding)
        bits = 64 * Packing(flat, encoding).compact_words + EXCEPTION_BITS * places.size
        if bits > WORTHWHILE * 64 * Packing(some, encoding).compact_words:
            return Packing(values, encoding), NO_ROWS, NO_ROWS
    flat, places, amounts = _without_far(values, encoding)
    return Packing(flat, encoding), places, amounts


def _without_far(values: Ints, encoding: Encoding) -> tuple[Ints, Ints, Ints]:
    out, places, amounts = (np.empty(values.size, np.int64) for _ in range(3))
    delta = encoding is Encoding.DELTA
    count = _flatten(values, delta, ZONE_EVENTS, EXCEPTION_BITS, out, places, amounts)
    return out, places[:count], amounts[:count]


def decode_scaled(
    words: Ints, prefix_words: int, dtype: Any, count: int, first: int, end: int
) -> npt.NDArray[Any]:
    """Values [first, end) of a chunk of ``count`` as ``dtype``."""
    zone = first // ZONE_EVENTS
    out = pooled(end - zone * ZONE_EVENTS, np.int64)
    decode_zones(words, 0, prefix_words, count, zone, False, out)
    out = out[first - zone * ZONE_EVENTS :]
    dtype = np.dtype(dtype)
    if dtype == np.float32:
        return out.astype(np.int32).view(np.float32)
    return out.view(dtype) if dtype.itemsize == 8 else out.astype(dtype)


def packed_starts(words: Ints, prefix_words: int, count: int) -> Ints:
    """Packed words before each zone, and of all zones; only the prefix is read."""
    starts = np.empty(-(-count // ZONE_EVENTS) + 1, np.int64)
    packed_words(words, prefix_words, count, starts)
    return starts
