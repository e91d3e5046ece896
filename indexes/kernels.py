"""Kernels of the secondary indexes; keys compare as unsigned 64-bit integers.

A range query finds its ends in two key blocks (``lower_entry``, ``upper_entry``) and sets the
positions between in a bitmap (``mark``).  A key block is the result of ``store.packing.pack`` of
sorted keys with DELTA, in zones of 512; a position block holds position ``i`` at bit ``i * width``
of its 64-bit words.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..core.native import kernel

__all__ = [
    "count_bits",
    "first_not_below",
    "float_keys",
    "lower_entry",
    "mark",
    "pack_positions",
    "positions_of_bits",
    "settle",
    "ticks_at",
    "unpack_positions",
    "upper_entry",
]


@kernel
def float_keys(bits, keys):  # type: ignore[no-untyped-def]
    """Order-preserving keys of doubles given as their bits; one key for zero, one for NaN."""
    sign = np.uint64(1 << 63)
    infinity = np.uint64(0x7FF0000000000000)
    for i in range(bits.shape[0]):
        word = bits[i]
        size = word & ~sign
        if size > infinity:
            keys[i] = np.uint64(0xFFF8000000000000)
        elif size == np.uint64(0):
            keys[i] = sign
        elif word & sign:
            keys[i] = ~word
        else:
            keys[i] = word | sign


@kernel
def settle(keys, positions, budget):  # type: ignore[no-untyped-def]
    """Insertion sort of nearly sorted pairs; False when it takes over ``budget`` moves."""
    moves = 0
    for i in range(1, keys.shape[0]):
        key = keys[i]
        if keys[i - 1] <= key:
            continue
        position = positions[i]
        j = i
        while j > 0 and keys[j - 1] > key:
            keys[j] = keys[j - 1]
            positions[j] = positions[j - 1]
            j -= 1
            moves += 1
            if moves > budget:
                keys[j] = key
                positions[j] = position
                return False
        keys[j] = key
        positions[j] = position
    return True


@kernel
def pack_positions(positions, width, words):  # type: ignore[no-untyped-def]
    """Write positions as ``width`` bits each."""
    at = 0
    shift = 0
    gathered = np.uint64(0)
    for i in range(positions.shape[0]):
        value = np.uint64(positions[i])
        gathered |= value << np.uint64(shift)
        shift += width
        if shift >= 64:
            words[at] = gathered
            at += 1
            shift -= 64
            used = width - shift
            gathered = value >> np.uint64(used) if used < 64 else np.uint64(0)
    if shift > 0:
        words[at] = gathered


@kernel
def unpack_positions(words, width, first, end, out):  # type: ignore[no-untyped-def]
    """Read entries [first, end) of a position block."""
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    for i in range(first, end):
        bit = i * width
        word = bit >> 6
        shift = np.uint64(bit & 63)
        value = words[word] >> shift
        if (bit & 63) + width > 64:
            value |= words[word + 1] << (np.uint64(64) - shift)
        out[i - first] = np.int64(value & mask)


@kernel
def mark(words, width, first, end, base, bits, size):  # type: ignore[no-untyped-def]
    """Set bit ``base + position``, where in [0, size), for entries [first, end) of a block."""
    # all unsigned: a negative place exceeds ``size``, and indexing needs no sign check
    one = np.uint64(1)
    wide = np.uint64(width)
    mask = (one << wide) - one
    origin = np.uint64(base)
    limit = np.uint64(max(size, 0))
    bit = np.uint64(first) * wide
    for _ in range(first, end):
        word = bit >> np.uint64(6)
        shift = bit & np.uint64(63)
        bit += wide
        value = words[word] >> shift
        if shift + wide > np.uint64(64):
            value |= words[word + one] << (np.uint64(64) - shift)
        place = origin + (value & mask)
        if place < limit:
            bits[place >> np.uint64(6)] |= one << (place & np.uint64(63))


@kernel
def count_bits(bits):  # type: ignore[no-untyped-def]
    """Number of set bits."""
    total = np.int64(0)
    for i in range(bits.shape[0]):
        x = bits[i]
        x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
        y = (x >> np.uint64(2)) & np.uint64(0x3333333333333333)
        x = (x & np.uint64(0x3333333333333333)) + y
        x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
        total += np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))
    return total


@kernel
def positions_of_bits(bits, base, out):  # type: ignore[no-untyped-def]
    """Positions of the set bits, ascending, each plus ``base``."""
    at = 0
    for i in range(bits.shape[0]):
        word = bits[i]
        place = base + i * 64
        while word != np.uint64(0):
            low = word & (~word + np.uint64(1))
            index = 0
            if low & np.uint64(0xFFFFFFFF00000000):
                index += 32
            if low & np.uint64(0xFFFF0000FFFF0000):
                index += 16
            if low & np.uint64(0xFF00FF00FF00FF00):
                index += 8
            if low & np.uint64(0xF0F0F0F0F0F0F0F0):
                index += 4
            if low & np.uint64(0xCCCCCCCCCCCCCCCC):
                index += 2
            if low & np.uint64(0xAAAAAAAAAAAAAAAA):
                index += 1
            out[at] = place + index
            at += 1
            word &= word - np.uint64(1)


@kernel
def _entry(block, count, key, upper):  # type: ignore[no-untyped-def]
    """First entry of a key block with a key >= ``key`` (> ``key`` when ``upper``)."""
    zones = (count + 511) // 512
    low = 0
    high = zones
    while low < high:  # zones whose base is still below
        middle = (low + high) // 2
        base = np.uint64(block[middle])
        if base < key or (upper and base == key):
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return 0
    zone = low - 1
    events = min(count - zone * 512, 512)
    value = np.uint64(block[zone])
    step = np.uint64(block[zones + zone])
    start = 4 * zones + 1 + block[2 * zones + zone]
    width = np.uint64(block[3 * zones + 1 + zone])
    if width < np.uint64(64):
        mask = (np.uint64(1) << width) - np.uint64(1)
    else:
        mask = np.uint64(0xFFFFFFFFFFFFFFFF)
    bit = np.uint64(0)
    for i in range(1, events):
        part = np.uint64(0)
        if width > np.uint64(0):
            word = start + np.int64(bit >> np.uint64(6))
            shift = bit & np.uint64(63)
            part = np.uint64(block[word]) >> shift
            if shift + width > np.uint64(64):
                part |= np.uint64(block[word + 1]) << (np.uint64(64) - shift)
            part &= mask
            bit += width
        value += step + part
        if value > key or (value == key and not upper):
            return zone * 512 + i
    return zone * 512 + events


def lower_entry(block: npt.NDArray[np.int64], count: int, key: np.uint64) -> int:
    return int(_entry(block, count, key, False))


def upper_entry(block: npt.NDArray[np.int64], count: int, key: np.uint64) -> int:
    return int(_entry(block, count, key, True))


@kernel
def ticks_at(block, count, positions, out):  # type: ignore[no-untyped-def]
    """Ticks at ascending positions of a time block (packed like keys, in position order)."""
    zones = (count + 511) // 512
    last = block.shape[0] - 1
    zone = -1
    at = 0
    value = np.uint64(0)
    step = np.uint64(0)
    start = 0
    width = np.uint64(0)
    mask = np.uint64(0)
    for i in range(positions.shape[0]):
        p = positions[i]
        z = p // 512
        if z != zone:
            zone = z
            at = z * 512
            value = np.uint64(block[z])
            step = np.uint64(block[zones + z])
            start = 4 * zones + 1 + block[2 * zones + z]
            width = np.uint64(block[3 * zones + 1 + z])
            if width < np.uint64(64):
                mask = (np.uint64(1) << width) - np.uint64(1)
            else:
                mask = np.uint64(0xFFFFFFFFFFFFFFFF)
        if width == np.uint64(0):
            value += step * np.uint64(p - at)
            at = p
        else:
            bit = np.uint64(at - zone * 512) * width
            total = np.uint64(0)
            for _ in range(p - at):
                # always read both words: a branch here
                # costs more than the rest of the loop
                word = start + np.int64(bit >> np.uint64(6))
                shift = bit & np.uint64(63)
                part = np.uint64(block[word]) >> shift
                beyond = np.uint64(block[min(word + 1, last)])
                part |= (beyond << np.uint64(1)) << (np.uint64(63) - shift)
                total += part & mask
                bit += width
            value += step * np.uint64(p - at) + total
            at = p
        out[i] = np.int64(value)


@kernel
def first_not_below(block, count, ticks, upper, out):  # type: ignore[no-untyped-def]
    """For each tick the first position with a tick >= it (> it when ``upper``)."""
    zones = (count + 511) // 512
    last = block.shape[0] - 1
    zone = -1
    before = np.int64(0)
    i = 0
    value = np.uint64(0)
    for j in range(ticks.shape[0]):
        wanted = ticks[j]
        low = 0
        high = zones
        while low < high:
            middle = (low + high) // 2
            base = block[middle]
            if base < wanted or (upper and base == wanted):
                low = middle + 1
            else:
                high = middle
        if low == 0:
            out[j] = 0
            continue
        if low - 1 != zone or wanted < before:
            zone = low - 1
            i = 0
            value = np.uint64(block[zone])
        before = wanted
        events = min(count - zone * 512, 512)
        step = np.uint64(block[zones + zone])
        start = 4 * zones + 1 + block[2 * zones + zone]
        width = np.uint64(block[3 * zones + 1 + zone])
        if width < np.uint64(64):
            mask = (np.uint64(1) << width) - np.uint64(1)
        else:
            mask = np.uint64(0xFFFFFFFFFFFFFFFF)
        # the tick at position i of the zone is ``value``
        bit = np.uint64(i) * width
        while i < events:
            tick = np.int64(value)
            if tick > wanted or (tick == wanted and not upper):
                break
            i += 1
            if i == events:
                break
            part = np.uint64(0)
            if width > np.uint64(0):
                word = start + np.int64(bit >> np.uint64(6))
                shift = bit & np.uint64(63)
                part = np.uint64(block[word]) >> shift
                beyond = np.uint64(block[min(word + 1, last)])
                part |= (beyond << np.uint64(1)) << (np.uint64(63) - shift)
                part &= mask
                bit += width
            value += step + part
        out[j] = zone * 512 + i
        if i == events:
            zone = -1
