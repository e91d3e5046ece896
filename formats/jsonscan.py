"""Finding the records of a JSON array, byte by byte, in compiled code.

Purpose
    :func:`scan` follows quotes, escapes and brackets through a text that comes in pieces, and
    turns the array into one record a line *in place*: the brackets of the array become blanks, the
    commas between records line breaks, line breaks inside records blanks.  :func:`record_spans`
    finds the records in such text again.  :func:`survey` looks at records before a decoder does:
    how deep they are nested, how many different keys they have, whether each stands on its line.

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
    are not matched with each other.  Keys are distinguished by a hash of 64 bits and of their path,
    so that two of them may rarely count as one.
"""

from __future__ import annotations

import numpy as np

from ..compiled import interpretable, kernel

__all__ = [
    "AFTER_END",
    "DEEP",
    "DEPTH",
    "DONE",
    "IN_ARRAY",
    "IN_STRING",
    "NO_COMMA",
    "NO_RECORD",
    "ODD_NUMBER",
    "RECORDS",
    "STATES",
    "STRAY_COMMA",
    "STRAY_LINE",
    "record_spans",
    "scan",
    "survey",
]

DEPTH, IN_STRING, ESCAPED, IN_ARRAY, DONE, NEED_COMMA, RECORDS = range(7)
STATES = 7
NOTHING_WRONG, NO_RECORD, AFTER_END, NO_COMMA, STRAY_COMMA = range(5)
DEEP, STRAY_LINE, ODD_NUMBER = 1, 2, 4
NUMBER_MAX = 36


@interpretable(plain=True)
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


@interpretable(plain=True)
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


@interpretable(wraps=True, plain=True)
@kernel
def survey(data, lines, seed, paths, keys):  # type: ignore[no-untyped-def]
    """Look over records before they are decoded.

    Parameters
    ----------
    data : uint8 array
        Complete records.
    lines : bool
        Whether each is to stand on a line of its own.
    seed : uint64
        Of the hashes.
    paths : uint64 array
        Scratch; its length is how deep records may be nested.
    keys : uint64 array
        Scratch of zeros, a power of two long: the hashes of the keys.  When it is half full, no
        more are counted.

    Returns
    -------
    flags : int
        DEEP; STRAY_LINE for a line that is not exactly one object; ODD_NUMBER for numbers with an
        exponent or more than NUMBER_MAX characters.
    records, different : int
        Numbers of records and of different keys.
    """
    one = np.uint64(1)
    prime = np.uint64(1099511628211)
    mask = np.uint64(len(keys) - 1)
    deepest = len(paths)
    flags = 0
    records = 0
    different = 0
    depth = 0
    in_string = False
    is_key = False
    wants_key = False
    escaped = False
    closed = False
    skipped = False
    number = 0
    path = seed
    hashed = seed
    for i in range(len(data)):
        c = data[i]
        if lines and c == 10:
            if in_string or depth > 0:
                flags |= STRAY_LINE
            in_string = escaped = closed = skipped = wants_key = False
            depth = 0
            path = seed
            continue
        if skipped:
            continue
        if in_string:
            if escaped:
                escaped = False
            elif c == 92:
                escaped = True
            elif c == 34:
                in_string = False
                if is_key and len(keys) > 0 and 2 * different < len(keys):
                    found = hashed | one
                    at = (hashed >> np.uint64(20)) & mask
                    while keys[at] != 0 and keys[at] != found:
                        at = (at + one) & mask
                    if keys[at] == 0:
                        keys[at] = found
                        different += 1
                path = hashed if is_key else path
                continue
            if is_key:
                hashed = (hashed ^ np.uint64(c)) * prime
            continue
        if c == 34:
            if depth == 0:
                flags |= STRAY_LINE
                skipped = lines
                continue
            in_string = True
            is_key = wants_key
            wants_key = False
            if is_key:
                hashed = (paths[min(depth, deepest) - 1] ^ np.uint64(35)) * prime
        elif c == 123 or c == 91:
            if depth == 0:
                if lines and (closed or c == 91):
                    flags |= STRAY_LINE
                    skipped = True
                    continue
                records += 1
                path = seed
            depth += 1
            if depth > deepest:
                flags |= DEEP
            else:
                # The lowest bit says whether it is an object.
                paths[depth - 1] = (path | one) if c == 123 else (path & ~one)
            wants_key = c == 123
        elif c == 125 or c == 93:
            if depth == 0:
                flags |= STRAY_LINE
                continue
            depth -= 1
            wants_key = False
            if depth == 0:
                closed = True
            else:
                path = paths[min(depth, deepest) - 1]
        elif c == 44:
            wants_key = depth > 0 and paths[min(depth, deepest) - 1] & one == one
        elif depth == 0 and lines and c != 32 and c != 9 and c != 13:
            flags |= STRAY_LINE
            skipped = True
        elif c >= 48 and c <= 57:
            number += 1
            if number > NUMBER_MAX:
                flags |= ODD_NUMBER
            continue
        elif number > 0 and (c == 101 or c == 69):
            flags |= ODD_NUMBER
        elif number > 0 and c == 46:
            continue
        number = 0
    if lines and (in_string or depth > 0):
        flags |= STRAY_LINE
    return flags, records, different
