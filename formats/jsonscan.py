"""A compiled scan of JSON text: the records of an array in pieces of text, the members of objects.

Only strings, brackets, commas and colons are recognised, and kinds of brackets are not matched:
invalid JSON stays invalid, and ``core/json_text.py`` refuses it.  Arrow's and DuckDB's parsers read
neither an array from a pipe in bounded memory nor the digits of a number as they are written.
Kernels never read outside the given text.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..core.native import kernel

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

NO_RECORD, NO_COMMA, AFTER_END = range(3)
QUOTE, BACKSLASH, COMMA = 34, 92, 44
OPEN, CLOSE, OPEN_LIST, CLOSE_LIST = 123, 125, 91, 93
TAB, LF, CR, BLANK = 9, 10, 13, 32


@kernel
def after_string(data, i, stop):  # type: ignore[no-untyped-def]
    """Position of the quote that ends the string whose text begins at ``i``, or beyond the end."""
    while i < stop and data[i] != QUOTE:
        i += 2 if data[i] == BACKSLASH else 1
    return i


# ------------------------------------------------------------------------------ records in pieces


class Cut(NamedTuple):
    """Records that end in a piece of text (``spans``: n x 2; one that began earlier begins at 0).

    ``last`` is the position after them and their separator, ``wrong`` that of invalid text, or -1.
    """

    last: int
    spans: Int64s
    wrong: int
    kind: int


AT_DEPTH, AT_STRING, AT_ARRAY, AT_BEFORE = range(4)
NOTHING, BRACKET, RECORD, SEPARATOR, END = range(5)
"""What came last outside of records."""


class Cutter:
    """Finds records in pieces of text; only the last piece may end in a backslash."""

    def __init__(self) -> None:
        self._state = np.zeros(4, np.int64)

    @property
    def in_record(self) -> bool:
        return bool(self._state[AT_DEPTH])

    @property
    def begun(self) -> bool:
        return bool(self._state[AT_BEFORE] != NOTHING)

    @property
    def in_array(self) -> bool:
        """Whether an array was begun and not closed."""
        return bool(self._state[AT_ARRAY] and self._state[AT_BEFORE] != END)

    def cut(self, text: bytes) -> Cut:
        spans = np.empty((text.count(b"{") + 1, 2), np.int64)
        count, last, wrong, kind = cut_records(np.frombuffer(text, np.uint8), self._state, spans)
        return Cut(last, spans[:count], wrong, kind)


@kernel
def cut_records(data, state, spans):  # type: ignore[no-untyped-def]
    """Spans of the records that end here; returns their number and the other parts of a ``Cut``."""
    depth, string = state[AT_DEPTH], state[AT_STRING]
    array, before = state[AT_ARRAY], state[AT_BEFORE]
    count = last = begin = 0
    wrong, kind = -1, 0
    i = 0
    while i < len(data) and wrong < 0:
        c = data[i]
        if string:
            i = after_string(data, i, len(data))
            string = 1 if i >= len(data) else 0
        elif depth > 0:
            if c == QUOTE:
                string = 1
            elif c in (OPEN, OPEN_LIST):
                depth += 1
            elif c in (CLOSE, CLOSE_LIST):
                depth -= 1
                if depth == 0:
                    spans[count, 0], spans[count, 1] = begin, i + 1
                    count += 1
                    last = i + 1
        elif c in (BLANK, LF, CR, TAB):
            last = i + 1
        elif before == END:
            wrong, kind = i, AFTER_END
        elif c == OPEN and not (array and before == RECORD):
            depth, begin, before = 1, i, RECORD
        elif c == OPEN:
            wrong, kind = i, NO_COMMA
        elif before == NOTHING and c == OPEN_LIST:
            array, before, last = 1, BRACKET, i + 1
        elif array and before == RECORD and (c in (COMMA, CLOSE_LIST)):
            before, last = SEPARATOR if c == COMMA else END, i + 1
        elif array and before == BRACKET and c == CLOSE_LIST:
            before, last = END, i + 1
        else:
            wrong, kind = i, NO_RECORD
        i += 1
    state[AT_DEPTH], state[AT_STRING] = depth, string
    state[AT_ARRAY], state[AT_BEFORE] = array, before
    return count, last, wrong, kind


# --------------------------------------------------------------------------------------- members


class Members(NamedTuple):
    """Members of objects in the order of the text: which object, which key, where the value stands.

    ``keys`` are numbers of spellings, which stand at ``key_starts``; equal ones may have several.
    """

    objects: Int32s
    keys: Int32s
    starts: Int32s
    ends: Int32s
    key_starts: Int32s
    key_ends: Int32s


_PLACES = 256
"""Members of an object whose keys are compared with those of the object before."""


def members_of(text: npt.NDArray[np.uint8], starts: Int32s, ends: Int32s, most: int) -> Members:
    """The members of the objects at these spans of compact JSON; there are ``most`` at most."""
    parts = np.empty((6, most), np.int32)
    before = np.full(_PLACES, -1, np.int32)
    count, spellings = list_members(text, starts, ends, before, parts)
    return Members(*parts[:4, :count], *parts[4:, :spellings])


@kernel
def list_members(data, starts, ends, before, found):  # type: ignore[no-untyped-def]
    """Fill the parts of ``Members``; returns the numbers of members and of spellings.

    ``before`` has the keys of the object before, by place.
    """
    count = spellings = 0
    for row in range(len(starts)):
        i, stop = np.int64(starts[row]) + 1, np.int64(ends[row])
        place = 0
        while i < stop and data[i] == QUOTE:
            key = i + 1
            end = key
            number = before[place] if place < len(before) else -1
            if number >= 0:
                other, other_end = found[4, number], found[5, number]
                while end < stop and other < other_end and data[end] == data[other]:
                    end += 1
                    other += 1
                if other < other_end or end >= stop or data[end] != QUOTE:
                    number = -1
            if number < 0:
                end = after_string(data, key, stop)
                number = spellings
                found[4, number], found[5, number] = key, end
                spellings += 1
                if place < len(before):
                    before[place] = number
            place += 1
            i = begin = end + 2
            depth = 0
            while i < stop and (depth > 0 or (data[i] != COMMA and data[i] != CLOSE)):
                c = data[i]
                if c == QUOTE:
                    i = after_string(data, i + 1, stop)
                elif c in (OPEN, OPEN_LIST):
                    depth += 1
                elif c in (CLOSE, CLOSE_LIST):
                    depth -= 1
                i += 1
            found[0, count], found[1, count] = row, number
            found[2, count], found[3, count] = begin, i
            count += 1
            i += 1
    return count, spellings
