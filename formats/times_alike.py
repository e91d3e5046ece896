"""Times that are written alike, read by columns of their digits.

Purpose
    Until there is machine code of :mod:`.isotime`, a first file should not wait for it, and Python
    would read a time in twenty microseconds.  The times of one file are mostly written alike: of
    texts of one length with digits at the same places and the same characters between them, NumPy
    reads the years, months and so on of all of them at once.

Guarantee
    What is read here is what :mod:`.isotime` reads.  A text of another form, and each one with a
    field out of range, is left to it: this module refuses nothing, and takes no liberties.

Limits
    The extended form with ``-`` or ``/`` and colons, up to nine digits behind the second.  No more
    than :data:`FORMS_MAX` forms are looked for; what has another is left.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

__all__ = ["HAS_CLOCK", "HAS_OFFSET", "OK", "read_alike"]

OK = 1
HAS_OFFSET = 2
HAS_CLOCK = 4
FORMS_MAX = 8
LENGTH_MIN = 10
"""No shorter text is a time."""
LENGTH_MAX = 40

_FORM = re.compile(
    rb"(?P<year>\d{4})([-/])(?P<month>\d\d)\2(?P<day>\d\d)"
    rb"(?:[Tt ](?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<nanos>\d{1,9}))?)?"
    rb"(?: ?[Zz]| ?(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d))?)?"
)
_MAX = {"hour": 23, "minute": 59, "second": 59, "hours": 23, "minutes": 59}

Integers = npt.NDArray[np.int64]


def read_alike(
    data: npt.NDArray[np.uint8],
    offsets: Integers,
    seconds: Integers,
    nanos: Integers,
    flags: npt.NDArray[np.uint8],
) -> Integers:
    """Read what has one of the first forms; gives the numbers of the others that may be times.

    Parameters
    ----------
    data, offsets : arrays
        Texts, as Arrow has them.
    seconds, nanos, flags : arrays
        One entry for each; those of the others are zero.
    """
    for found in (seconds, nanos, flags):
        found[:] = 0
    lengths = offsets[1:] - offsets[:-1]
    left = np.flatnonzero((lengths >= LENGTH_MIN) & (lengths <= LENGTH_MAX))
    others = [np.flatnonzero(lengths > LENGTH_MAX)]
    for _ in range(FORMS_MAX):
        if not left.size:
            break
        length = int(lengths[left[0]])
        same = lengths[left] == length
        rows, left = left[same], left[~same]
        texts = data[offsets[rows][:, None] + np.arange(length)]
        form = texts[0]
        is_digit = (form >= 48) & (form <= 57)
        digits = texts - np.uint8(48)  # wraps around: what is no digit is above nine
        alike = (digits[:, is_digit] <= 9).all(axis=1)
        alike &= (texts[:, ~is_digit] == form[~is_digit]).all(axis=1)
        left = np.concatenate((left, rows[~alike]))
        rows, digits = rows[alike], digits[alike]
        fields = _FORM.fullmatch(form.tobytes())
        if fields is None:
            others.append(rows)
            continue
        good = _read(fields, digits, rows, seconds, nanos, flags)
        others.append(rows[~good])
    return np.sort(np.concatenate((*others, left)))


def _read(
    fields: re.Match[bytes],
    digits: npt.NDArray[np.uint8],
    rows: Integers,
    seconds: Integers,
    nanos: Integers,
    flags: npt.NDArray[np.uint8],
) -> npt.NDArray[np.bool_]:
    """Read texts of one form; says which have nothing out of range."""

    def field(name: str) -> Integers:
        found = np.zeros(len(rows), np.int64)
        for place in range(*fields.span(name)) if fields[name] is not None else ():
            found = found * 10 + digits[:, place]
        return found

    numbers = {name: field(name) for name in ("year", "month", "day", *_MAX, "nanos")}
    good = (numbers["month"] >= 1) & (numbers["month"] <= 12) & (numbers["day"] >= 1)
    for name, most in _MAX.items():
        good &= numbers[name] <= most
    months = (numbers["year"] - 1970) * 12 + np.where(good, numbers["month"], 1) - 1
    first, end = (_days_before(months + more) for more in (0, 1))
    good &= numbers["day"] <= end - first
    total = (first + numbers["day"] - 1) * 86_400
    total += numbers["hour"] * 3600 + numbers["minute"] * 60 + numbers["second"]
    offset = numbers["hours"] * 3600 + numbers["minutes"] * 60
    total -= -offset if fields["sign"] == b"-" else offset
    fraction = numbers["nanos"] * 10 ** (9 - len(fields["nanos"] or b"0" * 9))
    flag = OK
    if fields["hour"] is not None:
        flag |= HAS_CLOCK
    if fields["sign"] is not None or fields[0].endswith((b"Z", b"z")):
        flag |= HAS_OFFSET
    seconds[rows[good]] = total[good]
    nanos[rows[good]] = fraction[good]
    flags[rows[good]] = flag
    return good


def _days_before(months: Integers) -> Integers:
    """Days from 1970-01-01 to the first day of months that are counted from 1970, too."""
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
