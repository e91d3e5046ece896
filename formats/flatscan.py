"""Rewriting nested records as flat ones, byte by byte, in compiled code.

Purpose
    :func:`rewrite` is what :mod:`.flattening` runs over the text of records: it follows keys,
    values and brackets, and copies keys under a prefix of the names around them.

Guarantee
    The grammar of objects is followed strictly: what is no JSON is copied as it is, so that leaving
    out a bracket or a comma never makes JSON of it.  What values are is not looked at.  Whatever
    the bytes are, reads stay inside of the text, and each write comes after a look at the room that
    is left; the time grows with the text, as a record that does not end is looked through once.

Layout
    A position stands for success; below zero: WRONG (no JSON), FULL (no room), LONG (names).
"""

from __future__ import annotations

import numpy as np

from ..compiled import kernel

__all__ = ["FULL", "LONG", "rewrite"]

QUOTE, BACKSLASH, COMMA, COLON, NEWLINE = 34, 92, 44, 58, 10
OPEN, CLOSE, OPEN_LIST, CLOSE_LIST = 123, 125, 91, 93
WRONG, FULL, LONG = -1, -2, -3
BY_DATA, BY_ATTRIBUTE = 1, 2
FIRST, NEXT, MORE = 0, 1, 2
"""What may come in an object: a key or the end; a key; a comma or the end."""


@kernel
def past_blanks(data, i, stop):  # type: ignore[no-untyped-def]
    """Position of what is no white space."""
    while i < stop and (data[i] == 32 or data[i] == 9 or data[i] == 10 or data[i] == 13):
        i += 1
    return i


@kernel
def past_string(data, i, stop):  # type: ignore[no-untyped-def]
    """Position after the string that begins here, or WRONG."""
    i += 1
    while i < stop:
        if data[i] == BACKSLASH:
            i += 2
        elif data[i] == QUOTE:
            return i + 1
        else:
            i += 1
    return WRONG


@kernel
def past_value(data, i, stop):  # type: ignore[no-untyped-def]
    """Position after the value that begins here, or WRONG."""
    if data[i] == QUOTE:
        return past_string(data, i, stop)
    begin = i
    if data[i] == OPEN or data[i] == OPEN_LIST:
        depth = 0
        while i < stop:
            c = data[i]
            if c == QUOTE:
                i = past_string(data, i, stop)
                if i < 0:
                    return WRONG
                continue
            if c in (OPEN, OPEN_LIST):
                depth += 1
            elif c in (CLOSE, CLOSE_LIST):
                depth -= 1
                if depth == 0:
                    return i + 1
            i += 1
        return WRONG
    while i < stop:
        c = data[i]
        if c in (COMMA, CLOSE, CLOSE_LIST) or c == 32 or c == 9 or c == 10 or c == 13:
            break
        i += 1
    return i if i > begin else WRONG


@kernel
def key_of(data, i, stop):  # type: ignore[no-untyped-def]
    """End of the key in quotes that begins here, and position of its value, or WRONG."""
    if i >= stop or data[i] != QUOTE:
        return WRONG, WRONG
    i = past_string(data, i, stop)
    if i < 0:
        return WRONG, WRONG
    end = i - 1
    i = past_blanks(data, i, stop)
    if i >= stop or data[i] != COLON:
        return WRONG, WRONG
    i = past_blanks(data, i + 1, stop)
    return end, (i if i < stop else WRONG)


@kernel
def copied(data, i, stop, out, at):  # type: ignore[no-untyped-def]
    """Copy bytes; the position behind them, or FULL."""
    if at + stop - i > len(out):
        return FULL
    for k in range(i, stop):
        out[at + k - i] = data[k]
    return at + stop - i


@kernel
def member(  # type: ignore[no-untyped-def]
    data, begin, end, value, stop, prefix, length, some, out, at
):
    """Write a member: a prefix and a key in quotes, a value; the position behind, or FULL."""
    if at + length + (end - begin) + (stop - value) + 4 > len(out):
        return FULL
    if some:
        out[at] = COMMA
        at += 1
    out[at] = QUOTE
    at += 1
    for k in range(length):
        out[at + k] = prefix[k]
    at = copied(data, begin, end, out, at + length)
    out[at] = QUOTE
    out[at + 1] = COLON
    return copied(data, value, stop, out, at + 2)


@kernel
def find(data, begin, end, names, ends):  # type: ignore[no-untyped-def]
    """Number of a name in a table, or WRONG."""
    for row in range(len(ends) - 1):
        if ends[row + 1] - ends[row] == end - begin:
            same = True
            for k in range(end - begin):
                if names[ends[row] + k] != data[begin + k]:
                    same = False
                    break
            if same:
                return row
    return WRONG


@kernel
def members(  # type: ignore[no-untyped-def]
    data, i, stop, separator, to, to_ends, hits, prefix, marks, some, out, at
):
    """Write the members of the object that begins here, flat where there is a separator.

    Gives the position behind them in ``out`` (or WRONG, FULL, LONG), and whether there are any.
    """
    depth = 1
    nothing = np.int64(0)
    length = nothing
    expected = FIRST
    i += 1
    while True:
        i = past_blanks(data, i, stop)
        if i >= stop:
            return WRONG, some
        c = data[i]
        if c == CLOSE:
            if expected == NEXT:
                return WRONG, some
            depth -= 1
            i += 1
            if depth == 0:
                return at, some
            length = marks[depth]
            expected = MORE
            continue
        if expected == MORE:
            if c != COMMA:
                return WRONG, some
            expected = NEXT
            i += 1
            continue
        begin = i + 1
        end, i = key_of(data, i, stop)
        if i < 0:
            return WRONG, some
        if data[i] == OPEN and len(separator) > 0:
            if depth >= len(marks):
                return WRONG, some
            if length + (end - begin) + len(separator) > len(prefix):
                return LONG, some
            marks[depth] = length
            length = copied(data, begin, end, prefix, length)
            length = copied(separator, nothing, len(separator), prefix, length)
            depth += 1
            i += 1
            expected = FIRST
            continue
        if length == 0:
            row = find(data, begin, end, to, to_ends)
            if row >= 0:
                hits[row] = BY_DATA
        behind = past_value(data, i, stop)
        if behind < 0:
            return WRONG, some
        at = member(data, begin, end, i, behind, prefix, length, some, out, at)
        if at < 0:
            return at, some
        some = True
        i = behind
        expected = MORE


@kernel
def attributes(  # type: ignore[no-untyped-def]
    data, i, stop, names, ends, to, to_ends, unwraps, strict, ignored, now, hits, some, out, at
):
    """Write the attributes of the CloudEvent that begins here; as `members`."""
    expected = FIRST
    nothing = np.int64(0)
    i += 1
    while True:
        i = past_blanks(data, i, stop)
        if i >= stop:
            return WRONG, some
        if data[i] == CLOSE:
            if expected == NEXT:
                return WRONG, some
            break
        if expected == MORE:
            if data[i] != COMMA:
                return WRONG, some
            expected = NEXT
            i += 1
            continue
        begin = i + 1
        end, i = key_of(data, i, stop)
        if i < 0:
            return WRONG, some
        behind = past_value(data, i, stop)
        if behind < 0:
            return WRONG, some
        row = find(data, begin, end, names, ends)
        if unwraps and data[i] == OPEN and is_data(data, begin, end):
            i = behind
            expected = MORE
            continue
        if row >= 0 and hits[row] != BY_DATA and to_ends[row + 1] > to_ends[row]:
            hits[row] = BY_ATTRIBUTE
            if at + (to_ends[row + 1] - to_ends[row]) + (behind - i) + 4 > len(out):
                return FULL, some
            at = named(to, to_ends, row, some, out, at)
            at = copied(data, i, behind, out, at)
        else:
            length = np.int64(len(ignored)) if strict or row >= 0 else nothing
            at = member(data, begin, end, i, behind, ignored, length, some, out, at)
        some = True
        if at < 0:
            return at, some
        i = behind
        expected = MORE
    if len(now) > 0 and hits[0] == 0:
        if at + (to_ends[1] - to_ends[0]) + len(now) + 4 > len(out):
            return FULL, some
        at = named(to, to_ends, nothing, some, out, at)
        at = copied(now, nothing, len(now), out, at)
        some = True
    return at, some


@kernel
def named(to, to_ends, row, some, out, at):  # type: ignore[no-untyped-def]
    """Write a key of the table, for which there is room; the position behind its colon."""
    if some:
        out[at] = COMMA
        at += 1
    out[at] = QUOTE
    at = copied(to, to_ends[row], to_ends[row + 1], out, at + 1)
    out[at] = QUOTE
    out[at + 1] = COLON
    return at + 2


@kernel
def is_data(data, begin, end):  # type: ignore[no-untyped-def]
    """Whether a key is ``data``."""
    return (
        end - begin == 4
        and data[begin] == 100
        and data[begin + 1] == 97
        and data[begin + 2] == 116
        and data[begin + 3] == 97
    )


@kernel
def data_of(data, i, stop):  # type: ignore[no-untyped-def]
    """Position of the object under the key ``data`` in the record that begins here, or WRONG.

    The record need not be JSON: whether it is, is found when it is written.
    """
    i += 1
    while i < stop:
        i = past_blanks(data, i, stop)
        begin = i + 1
        end, i = key_of(data, i, stop)
        if i < 0:
            return WRONG
        if data[i] == OPEN and is_data(data, begin, end):
            return i
        i = past_value(data, i, stop)
        if i < 0:
            return WRONG
        i = past_blanks(data, i, stop)
        if i >= stop or data[i] != COMMA:
            return WRONG
        i += 1
    return WRONG


@kernel
def rewrite(  # type: ignore[no-untyped-def]
    data,
    lines,
    separator,
    names,
    ends,
    to,
    to_ends,
    unwraps,
    strict,
    ignored,
    now,
    prefix,
    marks,
    hits,
    out,
):
    """Rewrite records; gives the bytes written, or FULL or LONG.

    Parameters
    ----------
    data : uint8 array
        Complete records.
    lines : bool
        Whether each is to stand on a line of its own.
    separator : uint8 array
        What joins names; empty: nothing is flattened.
    names, ends, to, to_ends : uint8 and int64 arrays
        Tables of attributes, and of what each becomes, that of the time first; empty for records
        that are no CloudEvents.
    unwraps, strict : bool
        Of CloudEvents: the members of ``data`` become those of the record; attributes that are not
        in the table are to be ignored.
    ignored : uint8 array
        What comes before the names of attributes that are; they stay, so that the parser sees them.
    now : uint8 array
        Value of a missing time; empty for none.
    prefix, marks, hits : arrays
        Scratch.
    """
    cloud = len(ends) > 1
    at = np.int64(0)
    i = np.int64(0)
    while i < len(data):
        stop = np.int64(len(data))
        if lines:
            stop = i
            while stop < len(data) and data[stop] != NEWLINE:
                stop += 1
        while i < stop:
            begun = at
            if data[i] != OPEN:  # what stands between records, or is none
                if at >= len(out):
                    return np.int64(FULL)
                out[at] = data[i]
                at += 1
                i += 1
                continue
            behind = past_value(data, i, stop)
            if behind < 0:  # it does not end; nor does what is inside of it
                at = copied(data, i, stop, out, at)
                if at < 0:
                    return np.int64(FULL)
                i = stop
                continue
            if at >= len(out):
                return np.int64(FULL)
            out[at] = OPEN
            at += 1
            some = at < 0
            hits[:] = 0
            if not cloud:
                at, some = members(
                    data, i, behind, separator, to, to_ends, hits, prefix, marks, some, out, at
                )
            else:
                inner = data_of(data, i, behind) if unwraps else np.int64(WRONG)
                if inner >= 0:
                    at, some = members(
                        data, inner, behind, separator, to, to_ends, hits, prefix, marks, some,
                        out, at,
                    )  # fmt: skip
                if at >= 0:
                    at, some = attributes(
                        data, i, behind, names, ends, to, to_ends, unwraps, strict, ignored, now,
                        hits, some, out, at,
                    )  # fmt: skip
            if at in (FULL, LONG):
                return at
            if at >= 0 and at < len(out):
                out[at] = CLOSE
                at += 1
            elif at >= 0:
                return np.int64(FULL)
            else:  # it is no JSON: the parser says so
                at = copied(data, i, behind, out, begun)
                if at < 0:
                    return np.int64(FULL)
            i = behind
        if i < len(data):  # the end of a line
            if at >= len(out):
                return np.int64(FULL)
            out[at] = NEWLINE
            at += 1
            i += 1
    return at
