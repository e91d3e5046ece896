"""Members of JSON records that go to JSON columns, made text before a parser sees them.

Purpose
    A record's member for a column of type JSON may be anything: an object, a list, text, a number.
    Arrow's parser wants one type a column.  :class:`Enclosed` rewrites the text of records in
    compiled code, so that it finds text there::

        {"t": 1, "payload": {"a": [1, "x"]}}     {"t": 1, "payload": "{\\"a\\": [1, \\"x\\"]}"}

    :mod:`chronicle.json_text` reads that text again.

Guarantee
    What is between the quotes is the member byte by byte, escaped; ``null`` stays, and is a missing
    value.  All other text of a record is copied as it is, and so is a record that is no JSON: the
    parser behind finds what is wrong with it.  Records and lines keep their numbers.

Layout
    Which keys go to JSON columns is a table: names that are renamed come first and are compared
    exactly, then the columns' own, without regard to the case of ASCII letters.

Limits
    Members of the record itself; what is inside of another object is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from ..compiled import kernel_calling
from . import flatscan
from .flatscan import (
    COMMA,
    FULL,
    NEWLINE,
    OPEN,
    QUOTE,
    copied,
    key_of,
    past_blanks,
    past_value,
)
from .flattening import Rewriting

__all__ = ["Enclosed"]

GROWTH = 6
"""A byte becomes at most so many: a control character is six letters."""

KEY_BYTES = 1 << 12
EXACT_OTHER, EXACT, FOLDED = range(3)
BACKSLASH = 92


class Enclosed:
    """Rewrites members for JSON columns as text.

    Parameters
    ----------
    columns : iterable of str
        The JSON columns.
    rename : mapping of str to str
        New names by those in the records.
    before, behind : Rewriting, optional
        Done to the records first, and afterwards.
    """

    def __init__(
        self,
        columns: Iterable[str],
        rename: Mapping[str, str],
        before: Rewriting | None = None,
        behind: Rewriting | None = None,
    ) -> None:
        wanted = list(columns)
        folded = {name.lower() for name in wanted}
        table = [
            (old, EXACT if new.lower() in folded else EXACT_OTHER) for old, new in rename.items()
        ]
        for name in wanted:
            table += [(each, FOLDED) for each in dict.fromkeys((name, name.lower(), name.upper()))]
        encoded = [name.encode() for name, _ in table]
        self._names = np.frombuffer(b"".join(encoded), np.uint8)
        self._ends = np.cumsum([0, *map(len, encoded)])
        self._kinds = np.array([kind for _, kind in table], np.uint8)
        self._before = before
        self._behind = behind

    def __call__(self, data: bytes, lines: bool) -> bytes:
        """The records, with text for these members."""
        if self._before is not None:
            data = self._before(data, lines)
        given = np.frombuffer(data, np.uint8)
        key = np.empty(KEY_BYTES, np.uint8)
        room = len(data) + len(data) // 4 + (1 << 12)
        while True:
            out = np.empty(room, np.uint8)
            written = enclose(given, lines, self._names, self._ends, self._kinds, key, out)
            if written >= 0:
                break
            room = min(GROWTH * len(data) + (1 << 12), 2 * room)
        text = out[:written].tobytes()
        return text if self._behind is None else self._behind(text, lines)


@kernel_calling(flatscan)
def hexadecimal(data, i):  # type: ignore[no-untyped-def]
    """The number of four hexadecimal digits; 0 where there are others."""
    word = np.int64(0)
    for k in range(i, i + 4):
        c = np.int64(data[k])
        if 48 <= c <= 57:
            word = word * 16 + c - 48
        elif 65 <= c <= 70 or 97 <= c <= 102:
            word = word * 16 + (c & 0xDF) - 55
        else:
            return np.int64(0)
    return word


@kernel_calling(flatscan)
def unescaped(data, begin, end, key):  # type: ignore[no-untyped-def]
    """Write a key without its escapes; gives its length, or -1 where it is too long."""
    at = 0
    i = begin
    while i < end:
        if at + 4 > len(key):
            return -1
        c = np.int64(data[i])
        if c != BACKSLASH or i + 1 >= end:
            key[at] = c
            at += 1
            i += 1
            continue
        c = np.int64(data[i + 1])
        i += 2
        if c != 117 or i + 4 > end:
            if c == 98:
                c = np.int64(8)
            elif c == 102:
                c = np.int64(12)
            elif c == 110:
                c = np.int64(10)
            elif c == 114:
                c = np.int64(13)
            elif c == 116:
                c = np.int64(9)
            key[at] = c
            at += 1
            continue
        word = hexadecimal(data, i)
        i += 4
        if 0xD800 <= word < 0xDC00 and i + 6 <= end and data[i] == BACKSLASH and data[i + 1] == 117:
            word = 0x10000 + ((word - 0xD800) << 10) + (hexadecimal(data, i + 2) - 0xDC00)
            i += 6
        if word < 0x80:
            key[at] = word
            at += 1
        elif word < 0x800:
            key[at] = 0xC0 | (word >> 6)
            key[at + 1] = 0x80 | (word & 0x3F)
            at += 2
        elif word < 0x10000:
            key[at] = 0xE0 | (word >> 12)
            key[at + 1] = 0x80 | ((word >> 6) & 0x3F)
            key[at + 2] = 0x80 | (word & 0x3F)
            at += 3
        else:
            key[at] = 0xF0 | ((word >> 18) & 7)
            key[at + 1] = 0x80 | ((word >> 12) & 0x3F)
            key[at + 2] = 0x80 | ((word >> 6) & 0x3F)
            key[at + 3] = 0x80 | (word & 0x3F)
            at += 4
    return at


@kernel_calling(flatscan)
def is_wanted(data, begin, end, names, ends, kinds):  # type: ignore[no-untyped-def]
    """Whether a key goes to a JSON column."""
    for row in range(len(kinds)):
        if ends[row + 1] - ends[row] != end - begin:
            continue
        same = True
        for k in range(end - begin):
            one = data[begin + k]
            other = names[ends[row] + k]
            if one != other:
                if kinds[row] != FOLDED or (one | 32) != (other | 32):
                    same = False
                    break
                if not 97 <= (one | 32) <= 122:
                    same = False
                    break
        if same:
            return kinds[row] != EXACT_OTHER
    return False


@kernel_calling(flatscan)
def quoted(data, i, stop, out, at):  # type: ignore[no-untyped-def]
    """Write text as a JSON string; the position behind it, or FULL."""
    if at + 2 > len(out):
        return np.int64(FULL)
    out[at] = QUOTE
    at += 1
    for k in range(i, stop):
        c = data[k]
        if at + 8 > len(out):
            return np.int64(FULL)
        if c in (QUOTE, BACKSLASH):
            out[at] = BACKSLASH
            out[at + 1] = c
            at += 2
        elif c < 32:
            out[at] = BACKSLASH
            out[at + 1] = 117
            out[at + 2] = 48
            out[at + 3] = 48
            out[at + 4] = 48 + (c >> 4)
            low = c & 15
            out[at + 5] = 48 + low if low < 10 else 87 + low
            at += 6
        else:
            out[at] = c
            at += 1
    if at >= len(out):
        return np.int64(FULL)
    out[at] = QUOTE
    return at + 1


@kernel_calling(flatscan)
def is_null(data, i, stop):  # type: ignore[no-untyped-def]
    """Whether a value is ``null``."""
    return (
        stop - i == 4
        and data[i] == 110
        and data[i + 1] == 117
        and data[i + 2] == 108
        and data[i + 3] == 108
    )


@kernel_calling(flatscan)
def record(data, i, stop, names, ends, kinds, key, out, at):  # type: ignore[no-untyped-def]
    """Write the record that begins here, and ends before ``stop``; the position behind, or FULL.

    As soon as it turns out to be no JSON the rest is copied as it is.
    """
    done = i
    i += 1
    while True:
        i = past_blanks(data, i, stop)
        begin = i + 1
        end, value = key_of(data, i, stop)
        if value < 0:
            break
        behind = past_value(data, value, stop)
        if behind < 0:
            break
        wanted = False
        escaped = False
        for k in range(begin, end):
            escaped |= data[k] == BACKSLASH
        if escaped:
            length = unescaped(data, begin, end, key)
            if length >= 0:
                wanted = is_wanted(key, 0, length, names, ends, kinds)
        else:
            wanted = is_wanted(data, begin, end, names, ends, kinds)
        if wanted and not is_null(data, value, behind):
            at = copied(data, done, value, out, at)
            if at < 0:
                return at
            at = quoted(data, value, behind, out, at)
            if at < 0:
                return at
            done = behind
        i = past_blanks(data, behind, stop)
        if i >= stop or data[i] != COMMA:
            break
        i += 1
    return copied(data, done, stop, out, at)


@kernel_calling(flatscan)
def enclose(data, lines, names, ends, kinds, key, out):  # type: ignore[no-untyped-def]
    """Rewrite records; gives the bytes written, or FULL.

    Parameters
    ----------
    data : uint8 array
        Complete records.
    lines : bool
        Whether each stands on a line of its own.
    names, ends, kinds : arrays
        Keys, one after the other, where each ends, and how it is compared.
    key : uint8 array
        Scratch.
    """
    at = np.int64(0)
    i = np.int64(0)
    size = np.int64(len(data))
    while i < size:
        stop = size
        if lines:
            stop = i
            while stop < size and data[stop] != NEWLINE:
                stop += 1
        while i < stop:
            if data[i] != OPEN:
                if at >= len(out):
                    return np.int64(FULL)
                out[at] = data[i]
                at += 1
                i += 1
                continue
            behind = past_value(data, i, stop)
            if behind < 0:  # it does not end
                at = copied(data, i, stop, out, at)
                i = stop
            else:
                at = record(data, i, behind, names, ends, kinds, key, out, at)
                i = behind
            if at < 0:
                return np.int64(FULL)
        if i < size:  # the end of a line
            if at >= len(out):
                return np.int64(FULL)
            out[at] = NEWLINE
            at += 1
            i += 1
    return at
