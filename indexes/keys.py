"""Keys: attribute values as unsigned 64-bit integers with the same order.

``encode`` turns a column into keys; ``key_range`` turns a range of values into a range of keys::

    integers, dates, times    the value plus 2**63 (unsigned ones unchanged)
    floats                    the bits, all flipped when negative, else the sign bit flipped;
                              ``-0.0`` is ``0.0``, every NaN is the one greatest key
    booleans                  0 and 1
    strings, binary           rank in the run's dictionary of distinct values, while there are at
                              most ``DICTIONARY_VALUES``; else the first eight bytes, big-endian

Guarantee: no false negatives; false positives only where strings are cut to eight bytes, and the
caller checks the events.  Decimals have no keys.

The kernels compare keys as unsigned 64-bit integers.  A range query finds its ends in two key
blocks (``entry_at``) and sets the positions between in a bitmap (``mark``).  A
key block is the result of ``store.packing.pack`` of sorted keys with DELTA, in zones of 512; a
position block holds position ``i`` at bit ``i * width`` of its 64-bit words.
"""

from __future__ import annotations

import bisect
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.native import kernel, trailing_zeros
from ..core.times import INT64_MIN
from ..errors import UnsupportedType
from ..schema import Attribute, Storage
from ..store.columns import prefix_words
from ..store.packing import bits_at
from ..store.prune import Range, float_bound, integer_bound, prefix_of


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
    wide = np.uint64(width)
    for i in range(first, end):
        out[i - first] = np.int64(bits_at(words, np.uint64(i) * wide, wide))


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
        if shift + wide > np.uint64(64):  # to load both always, as ``bits_at``, is slower here
            value |= words[word + one] << (np.uint64(64) - shift)
        place = origin + (value & mask)
        if place < limit:
            bits[place >> np.uint64(6)] |= one << (place & np.uint64(63))


@kernel
def positions_of_bits(bits, base, out):  # type: ignore[no-untyped-def]
    """Positions of the set bits, ascending, each plus ``base``."""
    at = 0
    for i in range(bits.shape[0]):
        word = bits[i]
        place = base + i * 64
        while word != np.uint64(0):
            out[at] = place + trailing_zeros(word)
            at += 1
            word &= word - np.uint64(1)


def entry_at(block: npt.NDArray[np.int64], count: int, key: int, *, upper: bool) -> int:
    """First entry of a key block with a key >= ``key`` (> ``key`` when ``upper``)."""
    out = np.empty(1, np.int64)
    first_not_below(block, count, np.array([key], np.uint64).view(np.int64), upper, True, out)
    return int(out[0])


@kernel
def ticks_at(block, count, positions, out):  # type: ignore[no-untyped-def]
    """Ticks at ascending positions of a time block (packed like keys, in position order)."""
    zones = (count + 511) // 512
    zone = -1
    at = 0
    value = np.uint64(0)
    step = np.uint64(0)
    start = 0
    width = np.uint64(0)
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
        if width == np.uint64(0):
            value += step * np.uint64(p - at)
            at = p
        else:
            bit = np.uint64(64 * start) + np.uint64(at - zone * 512) * width
            total = np.uint64(0)
            for _ in range(p - at):
                total += bits_at(block, bit, width)
                bit += width
            value += step * np.uint64(p - at) + total
            at = p
        out[i] = np.int64(value)


@kernel
def first_not_below(block, count, ticks, upper, unsigned, out):  # type: ignore[no-untyped-def]
    """For each tick the first position with a tick >= it (> it when ``upper``); ``unsigned`` ones
    are keys.
    """
    flip = np.int64(INT64_MIN if unsigned else 0)  # gives unsigned numbers the order of signed ones
    zones = (count + 511) // 512
    zone = -1
    before = np.int64(0)
    i = 0
    value = np.uint64(0)
    for j in range(ticks.shape[0]):
        wanted = ticks[j] ^ flip
        low = 0
        high = zones
        while low < high:
            middle = (low + high) // 2
            base = block[middle] ^ flip
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
        # the tick at position i of the zone is ``value``
        bit = np.uint64(64 * start) + np.uint64(i) * width
        while i < events:
            tick = np.int64(value) ^ flip
            if tick > wanted or (tick == wanted and not upper):
                break
            i += 1
            if i == events:
                break
            value += step
            if width > np.uint64(0):
                value += bits_at(block, bit, width)
                bit += width
        out[j] = zone * 512 + i
        if i == events:
            zone = -1


DICTIONARY_VALUES = 1 << 16
KEY_MAX = 2**64 - 1
_SIGN = np.uint64(1 << 63)
_DOUBLE, _WORD = struct.Struct("<d"), struct.Struct("<Q")

Keys = tuple[npt.NDArray[np.uint64], list[bytes] | None]
"""Keys of the non-null values, and the run's dictionary for strings that have one."""


def indexable(attribute: Attribute) -> None:
    """Raise ``UnsupportedType`` for an attribute whose values have no keys."""
    if not attribute.comparable:
        raise UnsupportedType(
            f"attribute {attribute.name!r} is {attribute.type_name}, whose values have no order to "
            "index them by; keep the member that is looked for in a column of its own"
        )
    if attribute.storage is Storage.DECIMAL:
        raise UnsupportedType(
            f"attribute {attribute.name!r} is a {attribute.type}; indexes cover booleans, "
            "integers, floats, dates, timestamps, strings and binary"
        )


def _float_keys(values: npt.NDArray[np.float64]) -> npt.NDArray[np.uint64]:
    bits = np.ascontiguousarray(values).view(np.uint64)
    keys = np.empty(len(bits), np.uint64)
    float_keys(bits, keys)
    return keys


def float_values(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """The doubles of keys."""
    sign = np.uint64(1 << 63)
    return np.where(keys & sign, keys ^ sign, ~keys).view(np.float64)


def _fixed(array: pa.Array) -> npt.NDArray[Any]:
    type_ = array.type
    if pa.types.is_boolean(type_):
        array = array.cast(pa.uint8())
    elif pa.types.is_date32(type_):
        array = array.cast(pa.int32())
    elif pa.types.is_date64(type_) or pa.types.is_timestamp(type_):
        array = array.cast(pa.int64())
    return np.asarray(array.to_numpy(zero_copy_only=False))


def encode(array: pa.Array, attribute: Attribute) -> Keys:
    """Keys of an array without nulls, and the sorted distinct values of strings, if few."""
    if attribute.storage in (Storage.STRING, Storage.BINARY):
        return _text_keys(array)
    values = _fixed(array)
    if attribute.storage is Storage.FLOAT:
        return _float_keys(values.astype(np.float64, copy=False)), None
    if attribute.storage is Storage.SIGNED:
        return values.astype(np.int64).view(np.uint64) ^ _SIGN, None
    return values.astype(np.uint64), None


def _text_keys(array: pa.Array) -> Keys:
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    values = encoded.dictionary.cast(pa.large_binary())
    used = np.zeros(len(values), np.bool_)
    used[codes] = True
    present = np.flatnonzero(used)
    if len(present) <= DICTIONARY_VALUES:
        listed = values.take(pa.array(present)).to_pylist()
        distinct = sorted(set(listed))
        rank = {value: i for i, value in enumerate(distinct)}
        rank_of = np.zeros(len(values), np.uint64)
        rank_of[present] = [rank[value] for value in listed]
        return rank_of[codes], distinct
    return prefix_words(encoded.dictionary)[codes], None


def key_range(
    condition: Range, attribute: Attribute, dictionary: Sequence[bytes] | None
) -> tuple[int, int] | None:
    """Inclusive keys of the values in a range, for a run's dictionary; None if there are none."""
    if attribute.storage in (Storage.STRING, Storage.BINARY):
        return _text_range(condition, dictionary)
    if attribute.storage is Storage.FLOAT:
        return _float_range(condition)
    signed = attribute.storage is Storage.SIGNED
    offset = 2**63 if signed else 0
    least, most = (-(2**63), 2**63 - 1) if signed else (0, 2**64 - 1)
    if attribute.storage is Storage.BOOL:
        most = 1
    low, high = least, most
    if condition.low is not None:
        bound = integer_bound(condition.low, False, condition.low_open)
        low = least if bound is None else max(least, bound)
    if condition.high is not None:
        bound = integer_bound(condition.high, True, condition.high_open)
        high = most if bound is None else min(most, bound)
    return None if low > high else (low + offset, high + offset)


def _float_key(value: float) -> int:
    if math.isnan(value):
        return 0xFFF8 << 48
    (word,) = _WORD.unpack(_DOUBLE.pack(value + 0.0))  # -0.0 becomes 0.0
    return int(word ^ KEY_MAX if word >> 63 else word | 1 << 63)


def _float_range(condition: Range) -> tuple[int, int] | None:
    low, high = condition.low, condition.high
    least, most = 0, KEY_MAX
    if low is not None and (bound := float_bound(low, upper=False)) is not None:
        least = _float_key(bound) + int(condition.low_open and _is_exact(bound, low))
    if high is not None and (bound := float_bound(high, upper=True)) is not None:
        most = _float_key(bound) - int(condition.high_open and _is_exact(bound, high))
    return None if least > most else (least, most)


def _is_exact(number: float, bound: Any) -> bool:
    return number == bound or math.isnan(number)


def _text_range(condition: Range, dictionary: Sequence[bytes] | None) -> tuple[int, int] | None:
    low = _bytes(condition.low)
    high = _bytes(condition.high)
    if dictionary is None:
        first = 0 if low is None else prefix_of(low)
        last = KEY_MAX if high is None else prefix_of(high)
        return None if first > last else (first, last)
    start, end = 0, len(dictionary)
    if low is not None:
        cut = bisect.bisect_right if condition.low_open else bisect.bisect_left
        start = cut(dictionary, low)
    if high is not None:
        cut = bisect.bisect_left if condition.high_open else bisect.bisect_right
        end = cut(dictionary, high)
    return None if start >= end else (start, end - 1)


def _bytes(value: Any) -> bytes | None:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return value if isinstance(value, bytes) else None
