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
import pyarrow.compute as pc

from ..errors import UnsupportedType
from ..schema import Attribute, Storage
from ..store.prune import Range, prefix_of
from .kernels import float_keys

__all__ = ["DICTIONARY_VALUES", "KEY_MAX", "Keys", "encode", "indexable", "key_range", "prefixes"]

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
    bits.flags.writeable = False
    keys = np.empty(len(bits), np.uint64)
    float_keys(bits, keys)
    return keys


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
    return prefixes(values)[codes], None


def prefixes(values: pa.Array) -> npt.NDArray[np.uint64]:
    """First eight bytes of each value as a big-endian number."""
    parts = pc.binary_slice(values, 0, 8).to_pylist()
    raw = np.frombuffer(b"".join(part.ljust(8, b"\0") for part in parts), ">u8")
    return raw.astype(np.uint64)


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
        bound = _whole(condition.low, False, condition.low_open)
        low = least if bound is None else max(least, bound)
    if condition.high is not None:
        bound = _whole(condition.high, True, condition.high_open)
        high = most if bound is None else min(most, bound)
    return None if low > high else (low + offset, high + offset)


def _whole(value: Any, upper: bool, is_open: bool) -> int | None:
    """The closed integer bound equivalent to a bound; None when it excludes nothing."""
    if isinstance(value, (str, bytes)):
        return None
    if isinstance(value, float):
        if math.isnan(value):
            return None if upper else 2**65  # NaN is above every integer
        if math.isinf(value):
            return 2**65 if value > 0 else -(2**65)
        whole = math.floor(value) if upper else math.ceil(value)
        if whole != value:
            return whole
        value = whole
    number = int(value)
    if is_open:
        return number - 1 if upper else number + 1
    return number


def _float_key(value: float) -> int:
    if math.isnan(value):
        return 0xFFF8 << 48
    (word,) = _WORD.unpack(_DOUBLE.pack(value + 0.0))  # -0.0 becomes 0.0
    return int(word ^ KEY_MAX if word >> 63 else word | 1 << 63)


def _float_range(condition: Range) -> tuple[int, int] | None:
    low, high = 0, KEY_MAX
    if condition.low is not None and not isinstance(condition.low, (str, bytes)):
        low, exact = _nearest(condition.low, False)
        low += int(condition.low_open and exact)
    if condition.high is not None and not isinstance(condition.high, (str, bytes)):
        high, exact = _nearest(condition.high, True)
        high -= int(condition.high_open and exact)
    return None if low > high else (low, high)


def _nearest(value: Any, upper: bool) -> tuple[int, bool]:
    """Key of the double nearest to a bound, on its outer side; whether it is exact."""
    try:
        number = float(value)
    except OverflowError:
        return _float_key(math.inf if value > 0 else -math.inf), False
    if isinstance(value, int) and math.isfinite(number) and int(number) != value:
        return _float_key(math.nextafter(number, math.inf if upper else -math.inf)), False
    return _float_key(number), True


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
