"""Structure of JSON text, found by compiled code: records, nesting depth, keys, members.

Arrow's parser needs separated records and one type per member, is recursive, and stores a null for
every key that a record lacks: ``depths`` and ``count_keys`` bound that, ``Cutter`` finds the
records of an array in pieces, and ``take_out`` removes the members for JSON columns byte by byte,
leaving a ``0``::

    {"t": 1, "payload": {"a": [1, "x"]}}     {"t": 1, "payload":0}

Only strings, brackets, commas and colons are recognised, and kinds of brackets are not matched:
invalid JSON stays invalid and its consumer refuses it.  Kernels never read outside the given spans.
Memory: 28 bytes per member that is looked at.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.native import kernel
from .limits import DEPTH_MAX

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NO_RECORD, NO_COMMA, AFTER_END = range(3)
QUOTE, BACKSLASH, COLON, COMMA, ZERO = 34, 92, 58, 44, 48
OPEN, CLOSE, OPEN_LIST, CLOSE_LIST = 123, 125, 91, 93
TAB, LF, CR, BLANK = 9, 10, 13, 32


@kernel
def is_blank(c):  # type: ignore[no-untyped-def]
    """Whether a byte is white space."""
    return c in (BLANK, LF, CR, TAB)


@kernel
def after_string(data, i, stop):  # type: ignore[no-untyped-def]
    """Position of the quote that ends the string whose text begins at ``i``, or beyond the end."""
    while i < stop and data[i] != QUOTE:
        i += 2 if data[i] == BACKSLASH else 1
    return i


# ----------------------------------------------------------------------------------------- lines


def line_spans(data: bytes) -> Int64s:
    """Start and end of each nonblank line, without surrounding white space."""
    spans = np.empty((data.count(b"\n") + 1, 2), np.int64)
    return spans[: lines(np.frombuffer(data, np.uint8), spans)]


@kernel
def lines(data, spans):  # type: ignore[no-untyped-def]
    """Spans of the nonblank lines; returns their number."""
    count = 0
    i = 0
    while i < len(data):
        start = i
        while i < len(data) and data[i] != LF:
            i += 1
        end = i
        while start < end and is_blank(data[start]):
            start += 1
        while start < end and is_blank(data[end - 1]):
            end -= 1
        if start < end:
            spans[count, 0], spans[count, 1] = start, end
            count += 1
        i += 1
    return count


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

    def cut(self, text: bytearray) -> Cut:
        """Find the records; line breaks inside become blanks, commas between them line breaks."""
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
            elif c in (LF, CR):
                data[i] = BLANK
            elif c in (CLOSE, CLOSE_LIST):
                depth -= 1
                if depth == 0:
                    spans[count, 0], spans[count, 1] = begin, i + 1
                    count += 1
                    last = i + 1
        elif is_blank(c):
            last = i + 1
        elif before == END:
            wrong, kind = i, AFTER_END
        elif c == OPEN and not (array and before == RECORD):
            depth, begin, before = 1, i, RECORD
        elif c == OPEN:
            wrong, kind = i, NO_COMMA
        elif before == NOTHING and c == OPEN_LIST:
            array, before, last = 1, BRACKET, i + 1
            data[i] = BLANK
        elif array and before == RECORD and (c in (COMMA, CLOSE_LIST)):
            before, last = SEPARATOR if c == COMMA else END, i + 1
            data[i] = LF
        elif array and before == BRACKET and c == CLOSE_LIST:
            before, last = END, i + 1
        else:
            wrong, kind = i, NO_RECORD
        i += 1
    state[AT_DEPTH], state[AT_STRING] = depth, string
    state[AT_ARRAY], state[AT_BEFORE] = array, before
    return count, last, wrong, kind


# --------------------------------------------------------------------------------------- members


class Structure(NamedTuple):
    """Records, and the members of objects in the order of the text.

    Of a record ``deepest`` is the most open brackets, ``balanced`` whether brackets and quotes are
    closed.  Of a member ``rows`` is its record, ``owners`` the member whose value contains it (-1:
    none), ``levels`` counts from 1 how many do; the rest are the positions of key and value, of
    which ``ends`` is -1 without a value.
    """

    deepest: Int32s
    balanced: Bools
    rows: Int32s
    owners: Int32s
    levels: Int32s
    keys: Int32s
    key_ends: Int32s
    starts: Int32s
    ends: Int32s


def _structure(data: bytes, spans: Int64s, depth: int) -> Structure:
    """The members at most so many brackets deep."""
    deepest = np.empty(len(spans), np.int32)
    balanced = np.empty(len(spans), np.bool_)
    found = np.empty((7, data.count(b":") if depth else 0), np.int32)
    inner = np.full(depth + 1, -1, np.int64)
    text = np.frombuffer(data, np.uint8)
    count = list_members(text, spans, inner, found, deepest, balanced)
    return Structure(deepest, balanced, *found[:, :count])


@kernel
def list_members(data, spans, inner, found, deepest, balanced):  # type: ignore[no-untyped-def]
    """Fill the parts of a ``Structure``; returns the number of members.

    ``inner``: the member open at each depth.
    """
    count = 0
    for row in range(len(spans)):
        i, stop = spans[row, 0], spans[row, 1]
        depth = most = 0
        key, key_end = 0, -1  # a string, if nothing but white space follows yet
        while i < stop:
            c = data[i]
            if c == QUOTE:
                key = i + 1
                i = key_end = after_string(data, key, stop)
            elif c in (OPEN, OPEN_LIST):
                key_end = -1
                depth += 1
                most = max(most, depth)
                if depth < len(inner):
                    inner[depth] = -1
            elif c in (COMMA, CLOSE, CLOSE_LIST):
                key_end = -1
                if 0 < depth < len(inner) and inner[depth] >= 0:
                    end_member(data, i, found, inner[depth])
                    inner[depth] = -1
                if c != COMMA:
                    depth -= 1
            elif c == COLON:
                if key_end >= 0 and 0 < depth < len(inner):
                    around = depth - 1
                    while around > 0 and inner[around] < 0:
                        around -= 1
                    owner = inner[around] if around > 0 else -1
                    found[0, count], found[1, count] = row, owner
                    found[2, count] = found[2, owner] + 1 if owner >= 0 else 1
                    found[3, count], found[4, count] = key, key_end
                    found[5, count], found[6, count] = i + 1, -1
                    inner[depth] = count
                    count += 1
                key_end = -1
            i += 1
        deepest[row] = most
        balanced[row] = depth == 0 and i == stop
    return count


@kernel
def end_member(data, end, found, member):  # type: ignore[no-untyped-def]
    """Give a member its value, without surrounding white space."""
    start = found[5, member]
    while start < end and is_blank(data[start]):
        start += 1
    while start < end and is_blank(data[end - 1]):
        end -= 1
    if start < end:
        found[5, member], found[6, member] = start, end


def depths(data: bytes, spans: Int64s) -> Int32s:
    """Most open brackets in each record."""
    return _structure(data, spans, 0).deepest


def count_keys(data: bytes, spans: Int64s, most: int) -> int:
    """Distinct key paths, or any number above ``most``; broken records count, too."""
    found = _structure(data, spans, DEPTH_MAX)  # nothing deeper reaches a decoder
    keys = _between(data, found.keys, found.key_ends).dictionary_encode()
    different = len(keys.dictionary)
    if different > most:
        return different
    codes = keys.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    paths = np.zeros(len(codes) + 1, np.int64)  # the last element: the record itself
    count = 0
    for level in np.unique(found.levels).tolist():
        here = np.flatnonzero(found.levels == level)
        pairs, which = np.unique(
            paths[found.owners[here]] * different + codes[here], return_inverse=True
        )
        paths[here] = count + 1 + which
        count += len(pairs)
        if count > most:
            break
    return count


# --------------------------------------------------------------------------------- taking them out


class Member(NamedTuple):
    rows: Int32s
    values: pa.Array


class Taken(NamedTuple):
    """Text without some members, its records, and these members."""

    data: bytes
    spans: Int64s
    members: dict[str, Member]

    def text(self, name: str, rows: int) -> pa.Array:
        places, values = self.members[name]
        if len(places) == rows:
            return values
        at = np.full(rows, -1, np.int64)
        at[places] = np.arange(len(places))
        return values.take(pa.array(at, mask=at < 0))


Column = Callable[[tuple[str, ...]], str | None]


def take_out(data: bytes, spans: Int64s, column: Column, parent: str | None = None) -> Taken:
    """Remove members from the records at ``spans`` (n x 2).

    ``column`` maps a member's path to a column or None; members of ``parent`` are examined, too.
    """
    found = _structure(data, spans, 1 if parent is None else 2)
    sound = found.balanced
    if not _is_text(data):
        sound &= [_is_text(data[start:end]) for start, end in spans.tolist()]
    good = sound[found.rows] & (found.ends >= 0)
    keys = _between(data, found.keys, found.key_ends).dictionary_encode()
    codes = keys.indices.to_numpy(zero_copy_only=False)
    names = [_name(key) for key in keys.dictionary.to_pylist()]
    chosen: dict[str, Bools] = {}

    def choose(path: tuple[str, ...], among: Bools, code: int) -> None:
        name = column(path)
        if name is not None:
            before = chosen.get(name, False)
            chosen[name] = before | (among & (codes == code))

    top, inside = good & (found.levels == 1), None
    if parent is not None:
        is_object = np.frombuffer(data, np.uint8)[found.starts] == OPEN
        parents = [code for code, name in enumerate(names) if name == parent]
        opened = top & is_object & np.isin(codes, parents)
        inside = good & (found.levels == 2) & opened[found.owners]
    for code, name in enumerate(names):
        if name is not None and name != parent:
            choose((name,), top, code)
        if name is not None and parent is not None and inside is not None:
            choose((parent, name), inside, code)
    return _without(data, spans, found, chosen)


def _without(data: bytes, spans: Int64s, found: Structure, chosen: dict[str, Bools]) -> Taken:
    members: dict[str, Member] = {}
    removed = np.zeros(len(found.rows), np.bool_)
    for name, those in chosen.items():
        at = np.flatnonzero(those)
        if not len(at):
            continue
        removed |= those
        rows, values = found.rows[at], _between(data, found.starts[at], found.ends[at])
        values = values.cast(pa.string())
        if b"null" in data:
            values = pc.if_else(pc.equal(values, "null"), None, values)
        lasts = np.append(rows[1:] != rows[:-1], True)
        if not lasts.all():  # a duplicate member is refused elsewhere
            rows, values = rows[lasts], values.filter(pa.array(lasts))
        members[name] = Member(rows, values)
    if not members:
        return Taken(data, spans, members)
    starts, ends = found.starts[removed], found.ends[removed]
    steps = np.zeros(len(data) + 1, np.int8)
    steps[starts + 1] = 1
    steps[ends] -= 1
    text = np.frombuffer(data, np.uint8).copy()
    text[starts] = ZERO
    left: Any = text[np.cumsum(steps[:-1], dtype=np.int8) == 0]
    before = np.append(0, np.cumsum(ends - starts - 1, dtype=np.int64))
    return Taken(left.tobytes(), spans - before[np.searchsorted(starts, spans)], members)


def _is_text(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _between(data: bytes, starts: Int32s, ends: Int32s) -> pa.Array:
    borders = np.stack((starts, ends), axis=1).astype(np.int32).ravel()
    if not len(borders):
        return pa.array([], pa.binary())
    both = pa.Array.from_buffers(
        pa.binary(), len(borders) - 1, [None, pa.py_buffer(borders), pa.py_buffer(data)]
    )
    return both.take(pa.array(np.arange(0, len(borders) - 1, 2)))


def _name(key: bytes) -> str | None:
    try:
        return str(json.loads(b'"' + key + b'"')) if b"\\" in key else key.decode()
    except ValueError:
        return None
