"""Exact parsing of decimal text, never through a float: sign, digits, point, exponent.

A number has at most 38 digits, those before the point plus those requested after it; digits that do
not fit are reported.  Arrow casts texts that surely fit, Python's ``decimal`` the rest: beyond 38
digits Arrow wraps, and exponents far below zero crash the process (libarrow 26).

``Converted`` has the values of a converted column, and those that could not be converted, with
reasons.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

GOOD, UNREAD, TOO_FINE, TOO_LARGE = range(4)
DIGITS_MAX = 38
NUMBER = r"^[\t-\r ]*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[\t-\r ]*$"


class Decimals(NamedTuple):
    """Numbers read from text; null unless GOOD.

    UNREAD: null or no number; TOO_FINE: nonzero digits below the power of ten; TOO_LARGE: too many.
    """

    values: pa.Array
    status: npt.NDArray[np.uint8]

    def as_int64(self) -> npt.NDArray[np.int64]:
        """Whole numbers; 0 and status TOO_LARGE if one does not fit."""
        first = self.values.offset
        words = np.frombuffer(self.values.buffers()[1], np.int64).reshape(-1, 2)
        low, high = words[first : first + len(self.values)].T
        good = self.status == GOOD
        beyond = good & (high != low >> 63)
        self.status[beyond] = TOO_LARGE
        return np.where(good & ~beyond, low, 0)


def parse_decimals(texts: pa.Array, power: int, digits_max: int = DIGITS_MAX) -> Decimals:
    """Read text as whole numbers of 10**-power, of at most ``digits_max`` (up to 38) digits."""
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
    number = pc.fill_null(pc.match_substring_regex(texts, NUMBER), False)
    odd = pc.and_not(number, plain)
    status = np.where(plain.to_numpy(zero_copy_only=False), GOOD, UNREAD).astype(np.uint8)
    fitting = pc.if_else(plain, texts, pa.scalar(None, texts.type))
    if pc.any(odd).as_py():
        read = [_read(text, power, digits_max) for text in texts.filter(odd).to_pylist()]
        status[odd.to_numpy(zero_copy_only=False)] = [outcome for outcome, _ in read]
        fitting = pc.replace_with_mask(
            fitting, odd, pa.array([text for _, text in read], texts.type)
        )
    return Decimals(fitting.cast(type_), status)


def content(texts: pa.Array) -> npt.NDArray[np.uint8]:
    """The bytes of all texts."""
    ends, data = _offsets(texts), texts.buffers()[2]
    return np.frombuffer(b"" if data is None else data, np.uint8)[ends[0] : ends[-1]]


def _offsets(texts: pa.Array) -> npt.NDArray[Any]:
    width = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    return np.frombuffer(texts.buffers()[1], width)[texts.offset : texts.offset + len(texts) + 1]


def _is_harmless(texts: pa.Array) -> bool:
    """Whether no text has a letter (an exponent) or more digits than Arrow takes."""
    if np.diff(_offsets(texts)).max(initial=0) > DIGITS_MAX:
        return False
    return not (content(texts) > ord("9")).any()


def _read(text: str, power: int, digits_max: int) -> tuple[int, str | None]:
    mantissa, _, exponent = text.strip().lower().partition("e")
    sign, digits, place = Decimal(mantissa).as_tuple()
    figures = "".join(map(str, digits)).lstrip("0")
    figures, count = figures.rstrip("0"), len(figures)
    if not figures:
        return GOOD, "0"
    end = Decimal(10**6 + len(text))  # a power beyond all the digits
    lowest = int(min(max(Decimal(exponent or 0), -end), end)) + int(place) + count - len(figures)
    if lowest + power < 0:
        return TOO_FINE, None
    if len(figures) + lowest + max(power, 0) > digits_max:
        return TOO_LARGE, None
    return GOOD, f"{'-' * sign}{figures}e{lowest}"


Codes = npt.NDArray[np.uint8]
"""Per value 0 if good, else 1 + the index of its reason."""


@dataclass(frozen=True)
class Converted:
    """A conversion's result; values are null where bad, ``{value}`` in a reason stands for them."""

    values: pa.Array
    codes: Codes | None = None
    reasons: tuple[str, ...] = ()

    @property
    def bad(self) -> int:
        return 0 if self.codes is None else int(np.count_nonzero(self.codes))


def flag(codes: Codes, where: npt.NDArray[np.bool_], code: int) -> None:
    codes[where & (codes == 0)] = code
