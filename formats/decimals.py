"""Decimal text, read exactly: epoch numbers, plain ticks and decimals.

Purpose
    :func:`parse_decimals` turns text such as ``-1533101250.125`` or ``1.5e3`` into whole numbers of
    some power of ten, in one pass of a compiled kernel over whole columns.  Nothing goes through a
    float, so that digits that do not fit are found, not rounded.

Layout
    Understood, blanks around it ignored: a sign, digits with a point anywhere among them, and an
    exponent.  A value is ``high`` x 2**64 + ``low`` with its sign beside it: at most 38 digits.

Limits
    Arrow's own parser is not used: beyond 38 digits it wraps, and exponents far below zero end the
    process (libarrow 26).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..compiled import interpretable, kernel

__all__ = ["DIGITS_MAX", "GOOD", "TOO_FINE", "TOO_LARGE", "UNREAD", "Decimals", "parse_decimals"]

GOOD, UNREAD, TOO_FINE, TOO_LARGE = range(4)
DIGITS_MAX = 38
_EXPONENT_MAX = 9999


@kernel
def _parse_one(data, start, end, power, digits_max, low, high, negative, status, at):  # type: ignore[no-untyped-def]
    """Parse one text into slot `at`; its status is UNREAD unless it turns out otherwise."""
    while start < end and (data[start] == 32 or (data[start] >= 9 and data[start] <= 13)):
        start += 1
    while end > start and (data[end - 1] == 32 or (data[end - 1] >= 9 and data[end - 1] <= 13)):
        end -= 1
    if start < end and (data[start] == 43 or data[start] == 45):
        negative[at] = data[start] == 45
        start += 1
    point = -1
    stop = end
    digits = 0
    for i in range(start, end):
        c = data[i]
        if c >= 48 and c <= 57:
            digits += 1
        elif c == 46 and point < 0:
            point = i
        elif c == 101 or c == 69:  # e E
            stop = i
            break
        else:
            return
    if digits == 0:
        return
    exponent = 0
    if stop < end:
        i = stop + 1
        sign = 1
        if i < end and (data[i] == 43 or data[i] == 45):
            sign = -1 if data[i] == 45 else 1
            i += 1
        if i == end:
            return
        while i < end:
            if data[i] < 48 or data[i] > 57:
                return
            exponent = min(exponent * 10 + (data[i] - 48), _EXPONENT_MAX)
            i += 1
        exponent *= sign
    # The place of the first digit: what power of ten it counts.
    place = (stop if point < 0 else point) - start - 1 + power + exponent
    if exponent == _EXPONENT_MAX:  # or beyond: whatever the digits, too large unless all are zero
        place = max(place, digits_max + 1)
    ten = np.uint64(10)
    half = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    lo = np.uint64(0)
    hi = np.uint64(0)
    taken = 0
    for i in range(start, stop):
        if data[i] == 46:
            continue
        digit = data[i] - 48
        if place < 0:
            if digit != 0:
                status[at] = TOO_FINE
                return
        elif taken > 0 or digit != 0:
            taken += 1
            if taken + (place if i + 1 == stop else 0) > digits_max or place >= digits_max:
                status[at] = TOO_LARGE
                return
            below = (lo & half) * ten + np.uint64(digit)
            above = (lo >> shift) * ten + (below >> shift)
            lo = (above << shift) | (below & half)
            hi = hi * ten + (above >> shift)
        place -= 1
    if taken > 0:
        while place >= 0:  # zeros that the exponent stands for
            taken += 1
            if taken > digits_max:
                status[at] = TOO_LARGE
                return
            below = (lo & half) * ten
            above = (lo >> shift) * ten + (below >> shift)
            lo = (above << shift) | (below & half)
            hi = hi * ten + (above >> shift)
            place -= 1
    low[at] = lo
    high[at] = hi
    status[at] = GOOD


@interpretable(plain=True)
@kernel
def _parse_all(data, offsets, power, digits_max, low, high, negative, status):  # type: ignore[no-untyped-def]
    for i in range(len(status)):
        low[i] = 0
        high[i] = 0
        negative[i] = False
        status[i] = UNREAD
        _parse_one(
            data, offsets[i], offsets[i + 1], power, digits_max, low, high, negative, status, i
        )


class Decimals(NamedTuple):
    """Numbers read from text; the arrays have one entry per value.

    Attributes
    ----------
    low, high : uint64 array
        The magnitude; zero where the status is not GOOD.
    status : uint8 array
        GOOD, UNREAD (no decimal number, or null), TOO_FINE (digits below the power of ten that are
        not zero) or TOO_LARGE (more digits than asked for).
    """

    low: npt.NDArray[np.uint64]
    high: npt.NDArray[np.uint64]
    negative: npt.NDArray[np.bool_]
    status: npt.NDArray[np.uint8]

    def as_int64(self) -> npt.NDArray[np.int64]:
        """The values as int64; what does not fit becomes zero and gets the status TOO_LARGE."""
        beyond = (self.high != 0) | (self.low > np.uint64(2**63 - 1) + self.negative)
        self.status[beyond & (self.status == GOOD)] = TOO_LARGE
        magnitude = np.where(beyond, np.uint64(0), self.low)
        signed = magnitude.view(np.int64)
        return np.where(self.negative, -signed, signed)

    def as_decimal128(self, type_: pa.DataType) -> pa.Array:
        """The values as decimals of a type whose scale is the power; null where not GOOD."""
        words = np.empty((len(self.status), 2), np.uint64)
        borrow = (self.low != 0).astype(np.uint64)
        words[:, 0] = np.where(self.negative, -self.low, self.low)
        words[:, 1] = np.where(self.negative, -self.high - borrow, self.high)
        good = self.status == GOOD
        valid = pa.py_buffer(np.packbits(good, bitorder="little"))
        return pa.Array.from_buffers(type_, len(good), [valid, pa.py_buffer(words)])


def parse_decimals(texts: pa.Array, power: int, digits_max: int = DIGITS_MAX) -> Decimals:
    """Read text as whole numbers of 10**-power.

    Parameters
    ----------
    digits_max : int
        Most digits of such a number, 38 at most.
    """
    if not pa.types.is_large_string(texts.type):
        texts = texts.cast(pa.large_string())
    count = len(texts)
    low, high = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
    negative, status = np.zeros(count, np.bool_), np.full(count, UNREAD, np.uint8)
    if count:
        _, offset_buffer, data_buffer = texts.buffers()
        offsets = np.frombuffer(offset_buffer, np.int64, count + 1, texts.offset * 8)
        data = np.frombuffer(data_buffer if data_buffer is not None else b"", np.uint8)
        for array in (offsets, data):
            array.flags.writeable = False
        _parse_all(data, offsets, power, digits_max, low, high, negative, status)
        if texts.null_count:
            status[texts.is_null().to_numpy(zero_copy_only=False)] = UNREAD
    return Decimals(low, high, negative, status)
