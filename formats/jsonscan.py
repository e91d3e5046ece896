"""Finding the records of a JSON array, byte by byte, in compiled code.

Purpose
    :func:`scan` follows quotes, escapes and brackets through a text that comes in pieces, and
    turns the array into one record a line *in place*: the brackets of the array become blanks, the
    commas between records line breaks, line breaks inside records blanks.  :func:`record_spans`
    finds the records in such text again.

Layout
    The state between pieces is a vector of int64::

        DEPTH       brackets open inside the record
        IN_STRING   between quotes
        ESCAPED     after a backslash
        IN_ARRAY    an array is around the records
        DONE        that array has been closed
        NEED_COMMA  a record ended, the next may begin after a comma only
        RECORDS     records completed so far

Limits
    The inside of a record is not judged here, except that its brackets count; kinds of brackets
    are not matched with each other.
"""

from __future__ import annotations

from ..compiled import kernel

__all__ = [
    "AFTER_END",
    "DEPTH",
    "DONE",
    "IN_ARRAY",
    "IN_STRING",
    "NO_COMMA",
    "NO_RECORD",
    "RECORDS",
    "STATES",
    "STRAY_COMMA",
    "record_spans",
    "scan",
]

DEPTH, IN_STRING, ESCAPED, IN_ARRAY, DONE, NEED_COMMA, RECORDS = range(7)
STATES = 7
NOTHING_WRONG, NO_RECORD, AFTER_END, NO_COMMA, STRAY_COMMA = range(5)


@kernel
def scan(data, state):  # type: ignore[no-untyped-def]
    """Turn an array into lines in place.

    Returns (position after the last complete record, position of an error or -1, its kind).
    """
    depth = state[DEPTH]
    in_string = state[IN_STRING]
    escaped = state[ESCAPED]
    in_array = state[IN_ARRAY]
    done = state[DONE]
    need_comma = state[NEED_COMMA]
    records = state[RECORDS]
    last = 0
    wrong = -1
    kind = NOTHING_WRONG
    for i in range(len(data)):
        c = data[i]
        if in_string:
            if escaped:
                escaped = 0
            elif c == 92:
                escaped = 1
            elif c == 34:
                in_string = 0
            continue
        if depth > 0:
            if c == 34:
                in_string = 1
            elif c == 123 or c == 91:
                depth += 1
            elif c == 125 or c == 93:
                depth -= 1
                if depth == 0:
                    last = i + 1
                    records += 1
                    need_comma = in_array
            elif c == 10 or c == 13:
                data[i] = 32
            continue
        if c == 32 or c == 9 or c == 10 or c == 13:
            if c == 10 or c == 13:
                data[i] = 10 if not in_array else 32
        elif done:
            wrong = i
            kind = AFTER_END
            break
        elif c == 123:
            if need_comma:
                wrong = i
                kind = NO_COMMA
                break
            depth = 1
        elif c == 44 and in_array:
            if not need_comma:
                wrong = i
                kind = STRAY_COMMA
                break
            need_comma = 0
            data[i] = 10
            last = i + 1
        elif c == 91 and in_array == 0 and records == 0:
            in_array = 1
            data[i] = 32
        elif c == 93 and in_array:
            if records > 0 and not need_comma:
                wrong = i
                kind = STRAY_COMMA
                break
            done = 1
            data[i] = 10
            last = i + 1
        else:
            wrong = i
            kind = NO_RECORD
            break
    state[DEPTH] = depth
    state[IN_STRING] = in_string
    state[ESCAPED] = escaped
    state[IN_ARRAY] = in_array
    state[DONE] = done
    state[NEED_COMMA] = need_comma
    state[RECORDS] = records
    return last, wrong, kind


@kernel
def record_spans(data, spans):  # type: ignore[no-untyped-def]
    """Start and end of each top-level object in scanned text; gives their number."""
    depth = 0
    in_string = False
    escaped = False
    count = 0
    start = 0
    for i in range(len(data)):
        c = data[i]
        if in_string:
            if escaped:
                escaped = False
            elif c == 92:
                escaped = True
            elif c == 34:
                in_string = False
        elif c == 34 and depth > 0:
            in_string = True
        elif c == 123 or c == 91:
            if depth == 0:
                start = i
            depth += 1
        elif (c == 125 or c == 93) and depth > 0:
            depth -= 1
            if depth == 0:
                if count < len(spans):
                    spans[count, 0] = start
                    spans[count, 1] = i + 1
                count += 1
    return count
