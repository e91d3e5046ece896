r"""Numbers as small integers: decimals and coarse times are scaled, far values are exceptions.

Purpose: doubles that were decimals (12.34), times that are multiples of a unit, and integers of
which few are far from the others take the bits that their digits need.

Steps, each reversible bit for bit::

    12.34, 12.4, nan, 7.1 --scale--> 1234, 1240, 1240, 710   exceptions: (2, nan)
    5, 7, 900000, 6       --flatten--> 5, 7, 5, 6            exceptions: (2, 900000)

1. Scale.  A float is ``integer / 10**digits``: IEEE division rounds correctly, so decimals of up to
   15 digits come back exactly; what does not (NaN, -0.0, more digits) is an exception.  An integer
   is ``origin + divisor * integer``, modulo 2**64.
2. Flatten.  By zone, values that need more bits than pays become exceptions: PACKED keeps the value
   itself, DELTA the surplus of the step, which is added to the rest of its zone.
3. Pack the integers as ``packing`` does, with one byte for each width and no starts.

Layout, in words of 64 bits: ``[head, divisor, origin][places][amounts][integers]``.  The head has
the encoding of the integers (byte 0), 0 for integers, 1 for doubles, 2 for floats (byte 1), and
the number of exceptions (upper half).  Each block has bases, minimum deltas (DELTA only), widths
(bytes, padded to a word), packed words.  Places (rows, DELTA) and amounts (PACKED) are missing
without exceptions.

Source: ALP, Afroozeh, Kuffo and Boncz, SIGMOD 2024, which multiplies by two powers where this
divides by one; exceptions as in PFOR, Zukowski, Heman, Nes and Boncz, ICDE 2006.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.native import kernel, leading_zeros
from .layout import ZONE_EVENTS, Encoding
from .packing import (
    Packing,
    compact_size,
    compact_tables,
    frozen,
    pooled,
    table_words,
    unpack_zone,
    unpack_zones,
)

INTEGERS, FLOAT64, FLOAT32 = 0, 1, 2
HEAD_WORDS = 3
NO_ROWS: npt.NDArray[np.int64] = frozen(np.empty(0, np.int64))
DIGITS = 16
SAMPLE = 256
SAMPLED_ZONES = 16
"""One zone of so many tells whether exceptions pay."""
WORTHWHILE = 0.97
EXCEPTION_BITS = 96
"""Estimated size of an exception when the integers' width is chosen."""

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
def _to_numbers(integers, scale, out):  # type: ignore[no-untyped-def]
    for i in range(integers.size):
        out[i] = out.dtype.type(np.float64(integers[i]) / scale)


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
def _flatten(values, delta, zone_events, exception_bits, out, places, amounts):  # type: ignore[no-untyped-def]
    """Take far values out of each zone; returns how many.  With DELTA, far steps."""
    number = 0
    lengths = np.empty(65, np.int64)
    for first in range(0, values.size, zone_events):
        end = min(first + zone_events, values.size)
        begin = first + 1 if delta else first
        out[first] = values[first]
        if begin == end:
            continue
        before = np.int64(0)
        low = values[begin] - values[first] if delta else values[first]
        for i in range(begin, end):
            before = values[i - 1] if delta else np.int64(0)
            low = min(low, values[i] - before)
        lengths[:] = 0
        for i in range(begin, end):
            before = values[i - 1] if delta else np.int64(0)
            lengths[64 - leading_zeros(np.uint64(values[i] - before - low))] += 1
        width = 64
        while width > 0 and lengths[width] == 0:
            width -= 1
        best = width
        least = width * (end - begin)
        far = 0
        while width > 0:
            far += lengths[width]
            width -= 1
            size = width * (end - begin) + far * exception_bits
            if size < least:
                best, least = width, size
        surplus = np.int64(0)
        for i in range(begin, end):
            before = values[i - 1] if delta else np.int64(0)
            above = values[i] - before - low
            if 64 - leading_zeros(np.uint64(above)) > best:
                places[number] = i
                amounts[number] = above if delta else values[i]
                number += 1
                surplus += above
                out[i] = values[i] - surplus if delta else low
            else:
                out[i] = values[i] - surplus if delta else values[i]
    return number


@kernel
def _apply_steps(out, places, amounts, first, zone_events):  # type: ignore[no-untyped-def]
    """Add surpluses to the rest of their zones; ``out`` begins at row ``first``."""
    surplus = np.int64(0)
    for e in range(places.size):
        zone_end = (places[e] // zone_events + 1) * zone_events
        end = zone_end
        if e + 1 < places.size:
            end = min(end, places[e + 1])
        surplus += amounts[e]
        for i in range(places[e] - first, min(end - first, out.size)):
            out[i] += surplus
        if end == zone_end:
            surplus = np.int64(0)


@kernel
def _read_zone(words, at, count, zone, delta, out):  # type: ignore[no-untyped-def]
    """Decode a zone of the block at a word; returns how many values."""
    zones = (count + ZONE_EVENTS - 1) // ZONE_EVENTS
    widths = at + 2 * zones if delta else at + zones
    start = np.int64(0)
    full = ZONE_EVENTS - 1 if delta else ZONE_EVENTS
    for before in range(zone):
        width = (words[widths + (before >> 3)] >> (8 * (before & 7))) & 255
        start += (width * full + 63) >> 6
    width = (words[widths + (zone >> 3)] >> (8 * (zone & 7))) & 255
    packed = widths + ((zones + 7) >> 3) + start
    size = min(ZONE_EVENTS, count - zone * ZONE_EVENTS)
    low = words[at + zones + zone] if delta else np.int64(0)
    unpack_zone(words, packed, words[at + zone], low, width, delta, size, out)
    return size


@kernel
def _block_words(words, at, count, delta):  # type: ignore[no-untyped-def]
    zones = (count + ZONE_EVENTS - 1) // ZONE_EVENTS
    widths = at + 2 * zones if delta else at + zones
    size = widths - at + ((zones + 7) >> 3)
    for zone in range(zones):
        width = (words[widths + (zone >> 3)] >> (8 * (zone & 7))) & 255
        stored = min(ZONE_EVENTS, count - zone * ZONE_EVENTS) - (1 if delta else 0)
        size += (width * stored + 63) >> 6
    return size


@kernel
def scaled_zone(words, at, prefix_words, events, zone, out):  # type: ignore[no-untyped-def]
    """Decode a zone of the chunk at a word into integers, or the bits of doubles."""
    delta = words[at] & 255 == 1
    kind = (words[at] >> 8) & 255
    exceptions = words[at] >> 32
    divisor = words[at + 1]
    origin = words[at + 2]
    zones = (events + ZONE_EVENTS - 1) // ZONE_EVENTS
    tables = (2 * zones if delta else zones) + ((zones + 7) >> 3)
    size = _read_zone(words, at + prefix_words - tables, events, zone, delta, out)
    first = zone * ZONE_EVENTS
    numbers = out.view(np.float64)
    places = np.empty(ZONE_EVENTS if exceptions else 0, np.int64)
    amounts = np.empty(places.size, np.int64)
    near = 0  # exceptions of the zone
    if exceptions:
        near = _exceptions_near(words, at + HEAD_WORDS, exceptions, first, size, places, amounts)
    if kind:
        scale = np.float64(divisor)
        for i in range(size):
            number = np.float64(out[i]) / scale
            numbers[i] = np.float64(np.float32(number)) if kind == FLOAT32 else number
        narrow = np.empty(1, np.int32)
        for e in range(near):
            if kind == FLOAT32:
                narrow[0] = np.int32(amounts[e])
                numbers[places[e]] = np.float64(narrow.view(np.float32)[0])
            else:
                out[places[e]] = amounts[e]
        return
    if delta:
        for e in range(near):
            for i in range(places[e], size):
                out[i] += amounts[e]
    if divisor != 1:
        for i in range(size):
            out[i] = out[i] * divisor + origin
    if not delta:
        for e in range(near):
            out[places[e]] = amounts[e]


@kernel
def _exceptions_near(words, at, exceptions, first, size, places, amounts):  # type: ignore[no-untyped-def]
    """Places within a zone, and amounts, of its exceptions; returns how many."""
    block = 0  # the last block of places that begins at or before the zone
    blocks = (exceptions + ZONE_EVENTS - 1) // ZONE_EVENTS
    high = blocks
    while high - block > 1:
        middle = (block + high) >> 1
        if words[at + middle] <= first:
            block = middle
        else:
            high = middle
    rows = np.empty(ZONE_EVENTS, np.int64)
    sizes = np.empty(ZONE_EVENTS, np.int64)
    second = at + _block_words(words, at, exceptions, True)
    near = 0
    while block < blocks:
        count = _read_zone(words, at, exceptions, block, True, rows)
        if rows[0] >= first + size:
            break
        if rows[count - 1] >= first:
            _read_zone(words, second, exceptions, block, False, sizes)
            for e in range(count):
                if first <= rows[e] < first + size:
                    places[near] = rows[e] - first
                    amounts[near] = sizes[e]
                    near += 1
        block += 1
    return near


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
    ) -> None:
        head = integers.encoding | kind << 8 | len(places) << 32
        self._head = np.array([head, divisor, origin], np.int64)
        self._exceptions: list[Packing] = []
        if len(places):
            self._exceptions = [
                Packing(frozen(places), Encoding.DELTA),
                Packing(frozen(amounts), Encoding.PACKED),
            ]
        self._integers = integers
        self.prefix_words = HEAD_WORDS + integers.table_words
        self.prefix_words += sum(each.compact_words for each in self._exceptions)
        self.nbytes = 8 * (self.prefix_words + integers.compact_words - integers.table_words)

    def parts(self) -> list[npt.NDArray[Any]]:
        blocks = (*self._exceptions, self._integers)
        return [self._head, *(part for block in blocks for part in block.compact())]


def scaled_floats(values: npt.NDArray[Any]) -> Scaled | None:
    """Decimals as integers; None where most of a sample are not decimals of few digits."""
    digits = _digits_of(values)
    if digits is None:
        return None
    integers, places = np.empty(values.size, np.int64), np.empty(values.size, np.int64)
    kind = FLOAT32 if values.itemsize == 4 else FLOAT64
    bits = frozen(values.view(np.int32 if kind == FLOAT32 else np.int64))
    count = _to_integers(values, bits, _SCALES[digits], integers, places)
    places = places[:count]
    integers = frozen(integers)
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
        values = frozen((values - origin) // divisor)
    steps, places, amounts = _flattened(values, Encoding.DELTA)
    candidates = [Scaled(steps, places, amounts, divisor, origin, INTEGERS)]
    if not steps.ascends:
        packing, places, amounts = _flattened(values, Encoding.PACKED)
        amounts = amounts * divisor + origin
        candidates.append(Scaled(packing, places, amounts, divisor, origin, INTEGERS))
    return min(candidates, key=lambda each: each.nbytes)


def _digits_of(values: npt.NDArray[Any]) -> int | None:
    sample = frozen(np.ascontiguousarray(values[:: max(1, values.size // SAMPLE)]))
    counts = np.empty(DIGITS, np.int64)
    _exact_counts(sample, _SCALES, counts)
    finite = sample[np.isfinite(sample)].astype(np.float64)
    if not finite.size:
        return None
    span = float(finite.max()) / 2 - float(finite.min()) / 2  # halves cannot overflow
    widths = np.clip(np.log2(2 * _SCALES * span + 1), 0, 64) if span < _EXACT else np.full(16, 64)
    bits = counts * widths + (sample.size - counts) * (8 * values.itemsize + EXCEPTION_BITS)
    digits = int(bits.argmin())
    return digits if bits[digits] < 0.9 * 8 * values.nbytes / values.size * sample.size else None


def _flattened(values: Ints, encoding: Encoding) -> tuple[Packing, Ints, Ints]:
    """The packed values with places and amounts of exceptions, if those pay in some zones."""
    whole = values.size // ZONE_EVENTS // SAMPLED_ZONES
    if whole > 1:
        zones = values[: whole * SAMPLED_ZONES * ZONE_EVENTS].reshape(whole, -1)
        some = frozen(zones[:, :ZONE_EVENTS].ravel())
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
    return frozen(out), places[:count], amounts[:count]


def decode_scaled(
    chunk: memoryview, prefix_words: int, dtype: Any, count: int, first: int, end: int
) -> npt.NDArray[Any]:
    """Values [first, end) of a chunk of ``count`` as ``dtype``."""
    words = np.frombuffer(chunk, np.int64)
    encoding, kind, exceptions = _head(words)
    divisor, origin = int(words[1]), int(words[2])
    base = first // ZONE_EVENTS * ZONE_EVENTS
    dtype = np.dtype(dtype)
    tables = compact_tables(words, _tables_at(encoding, prefix_words, count), encoding, count)
    out = unpack_zones(tables, encoding, count, base, end)
    places = amounts = NO_ROWS
    if exceptions:
        places, amounts = _exceptions_of(words, exceptions, base, end)
    if encoding is Encoding.DELTA and kind == INTEGERS and len(places):
        _apply_steps(out, places, amounts, base, ZONE_EVENTS)
    if kind != INTEGERS:
        numbers = out.view(dtype) if dtype.itemsize == 8 else pooled(out.size, dtype)
        _to_numbers(frozen(out), float(divisor), numbers)
        bits = amounts if dtype.itemsize == 8 else amounts.astype(np.int32)
        numbers[places - base] = bits.view(dtype)
        return numbers[first - base :]
    if divisor != 1:
        out *= divisor
        out += origin
    if encoding is Encoding.PACKED:
        out[places - base] = amounts
    out = out[first - base :]
    return out.view(dtype) if dtype.itemsize == 8 else out.astype(dtype)


def packed_starts(chunk: memoryview, prefix_words: int, count: int) -> Ints:
    """Packed words before each zone, and of all zones; for a chunk with a verified prefix."""
    words = np.frombuffer(chunk[: 8 * prefix_words], np.int64)
    encoding = _head(words)[0]
    at = _tables_at(encoding, prefix_words, count)
    return compact_tables(words, at, encoding, count)[2]


def _head(words: Ints) -> tuple[Encoding, int, int]:
    head = int(words[0])
    return Encoding(head & 255), head >> 8 & 255, head >> 32


def _tables_at(encoding: Encoding, prefix_words: int, count: int) -> int:
    return prefix_words - table_words(-(-count // ZONE_EVENTS), encoding)


def _exceptions_of(words: Ints, exceptions: int, first: int, end: int) -> tuple[Ints, Ints]:
    """Rows and amounts of the exceptions in rows [first, end)."""
    tables = compact_tables(words, HEAD_WORDS, Encoding.DELTA, exceptions)
    places = unpack_zones(tables, Encoding.DELTA, exceptions, 0, exceptions)
    low, high = np.searchsorted(places, (first, end)).tolist()
    at = HEAD_WORDS + compact_size(tables, Encoding.DELTA)
    tables = compact_tables(words, at, Encoding.PACKED, exceptions)
    base = low // ZONE_EVENTS * ZONE_EVENTS
    amounts = unpack_zones(tables, Encoding.PACKED, exceptions, base, high)
    return frozen(places[low:high]), frozen(amounts[low - base :])
