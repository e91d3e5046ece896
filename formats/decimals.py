"""Decimal text, read exactly: epoch numbers, plain ticks and decimals.

Purpose
    :func:`parse_decimals` turns text such as ``-1533101250.125`` or ``1.5e3`` into whole numbers of
    some power of ten.  Nothing goes through a float, so that digits that do not fit are found, not
    rounded.

Layout
    Understood, blanks around it ignored: a sign, digits with a point anywhere among them, and an
    exponent; at most 38 digits, those before the point and those asked for behind it.

    Arrow casts what is sure to fit.  The rest is read one by one, by Python's decimals.

Limits
    Arrow is given no other text: beyond 38 digits it wraps, and exponents far below zero end the
    process (libarrow 26).
"""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["DIGITS_MAX", "GOOD", "TOO_FINE", "TOO_LARGE", "UNREAD", "Decimals", "parse_decimals"]

GOOD, UNREAD, TOO_FINE, TOO_LARGE = range(4)
DIGITS_MAX = 38
_NUMBER = r"^[\t-\r ]*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[\t-\r ]*$"


class Decimals(NamedTuple):
    """Numbers read from text; one entry per value.

    Attributes
    ----------
    values : decimal128 array
        Null where the status is not GOOD.
    status : uint8 array
        GOOD, UNREAD (no decimal number, or null), TOO_FINE (digits below the power of ten that are
        not zero) or TOO_LARGE (more digits than asked for).
    """

    values: pa.Array
    status: npt.NDArray[np.uint8]

    def as_int64(self) -> npt.NDArray[np.int64]:
        """The whole numbers; what does not fit becomes zero and gets the status TOO_LARGE."""
        first = self.values.offset
        words = np.frombuffer(self.values.buffers()[1], np.int64).reshape(-1, 2)
        low, high = words[first : first + len(self.values)].T
        good = self.status == GOOD
        beyond = good & (high != low >> 63)
        self.status[beyond] = TOO_LARGE
        return np.where(good & ~beyond, low, 0)


def parse_decimals(texts: pa.Array, power: int, digits_max: int = DIGITS_MAX) -> Decimals:
    """Read text as whole numbers of 10**-power.

    Parameters
    ----------
    digits_max : int
        Most digits of such a number, 38 at most.
    """
    type_ = pa.decimal128(digits_max, power)
    if _is_harmless(texts):
        try:
            values = texts.cast(type_)
        except pa.ArrowInvalid:
            pass
        else:
            missing = values.is_null().to_numpy(zero_copy_only=False)
            return Decimals(values, np.where(missing, UNREAD, GOOD).astype(np.uint8))
    whole = digits_max - power
    fits = rf"^[+-]?\d{{1,{whole}}}(\.\d{{0,{power}}})?$" if power >= 0 < whole else "^$a"
    plain = pc.fill_null(pc.match_substring_regex(texts, fits), False)
    number = pc.fill_null(pc.match_substring_regex(texts, _NUMBER), False)
    odd = pc.and_not(number, plain)
    status = np.where(plain.to_numpy(zero_copy_only=False), GOOD, UNREAD).astype(np.uint8)
    fitting = pc.if_else(plain, texts, pa.scalar(None, texts.type))
    if pc.any(odd).as_py():
        read = [_read(text, power, digits_max) for text in texts.filter(odd).to_pylist()]
        status[odd.to_numpy(zero_copy_only=False)] = [found for found, _ in read]
        fitting = pc.replace_with_mask(
            fitting, odd, pa.array([text for _, text in read], texts.type)
        )
    return Decimals(fitting.cast(type_), status)


def _is_harmless(texts: pa.Array) -> bool:
    """Whether no text has a letter, as of an exponent, or more digits than Arrow takes."""
    _, offsets, data = texts.buffers()
    if data is None:
        return True
    width = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    ends = np.frombuffer(offsets, width)[texts.offset : texts.offset + len(texts) + 1]
    if np.diff(ends).max(initial=0) > DIGITS_MAX:
        return False
    return not (np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] > ord("9")).any()


def _read(text: str, power: int, digits_max: int) -> tuple[int, str | None]:
    """One number: its status, and where it fits, a text that Arrow may be given."""
    mantissa, _, exponent = text.strip().lower().partition("e")
    sign, digits, place = Decimal(mantissa).as_tuple()
    figures = "".join(map(str, digits)).lstrip("0")
    figures, count = figures.rstrip("0"), len(figures)
    if not figures:
        return GOOD, "0"
    end = Decimal(10**6 + len(text))  # a power that is out of reach of all the digits
    lowest = int(min(max(Decimal(exponent or 0), -end), end)) + int(place) + count - len(figures)
    if lowest + power < 0:
        return TOO_FINE, None
    if len(figures) + lowest + max(power, 0) > digits_max:
        return TOO_LARGE, None
    return GOOD, f"{'-' * sign}{figures}e{lowest}"
