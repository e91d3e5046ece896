"""Validation and compaction of JSON text.

Each result is one RFC 8259 value in UTF-8, as written except for white space between tokens:
digits, escapes, member order and duplicate members stay, since a canonical form would read numbers
as doubles and damage 64-bit identifiers.  White space is removed so that an NDJSON line that embeds
the value stays one line.  Lone surrogates and numbers beyond doubles are refused, as readers would
fail on them.

The type is ``arrow.json`` over ``string``: a missing value is null, JSON ``null`` a value.  Nesting
is limited to ``DEPTH_MAX``.  One pass of compiled code, without a copy if nothing changes.
"""

from __future__ import annotations

from typing import NamedTuple, TypeGuard

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .native import kernel

DEPTH_MAX = 62
JSON = pa.json_()
"""Type of a column of JSON values."""

REASONS = (
    "expected JSON, found {value}",
    f"expected JSON with at most {DEPTH_MAX} brackets inside each other, found {{value}}",
    "expected JSON of whole characters, found half of a surrogate pair in {value}",
    "expected JSON with numbers that a double can hold, found {value}",
)
"""Messages by fault - 1; ``{value}`` stands for the text."""

GOOD, NO_JSON, DEEP, HALF, HUGE = range(5)
QUOTE, BACKSLASH, COMMA, COLON, MINUS, PLUS, POINT, ZERO, NINE = 34, 92, 44, 58, 45, 43, 46, 48, 57
OPEN, CLOSE, OPEN_LIST, CLOSE_LIST = 123, 125, 91, 93
VALUE, FIRST_VALUE, KEY, FIRST_KEY, AFTER = range(5)
"""The expected next token; FIRST_* may also be the end of the list or object."""

EXPONENT_MAX = 308
TRUE, FALSE, NULL = (np.frombuffer(word, np.uint8) for word in (b"true", b"false", b"null"))


def is_json(type_: pa.DataType) -> TypeGuard[pa.JsonType]:
    return isinstance(type_, pa.JsonType)


class JsonTexts(NamedTuple):
    """A text column as JSON, null where invalid; faults are 0 or 1 + the reason's index."""

    values: pa.Array
    faults: npt.NDArray[np.uint8] | None


def json_column(text: pa.Array) -> pa.Array:
    """Text known to be compact JSON as values, unchecked."""
    return pa.ExtensionArray.from_storage(JSON, text)


def json_value(text: object) -> pa.Scalar | None:
    """A text as a JSON value; None if it is invalid."""
    try:
        parsed = read_json(pa.array([text], pa.string()))
    except (pa.ArrowException, TypeError, ValueError):
        return None
    return parsed.values[0] if parsed.faults is None and parsed.values[0].is_valid else None


def repeated(value: pa.Scalar, times: int) -> pa.Array:
    """A value of any type repeated; Arrow's ``repeat`` refuses extension types."""
    if isinstance(value, pa.ExtensionScalar):
        return json_column(pa.repeat(value.value, times))
    return pa.repeat(value, times)


def read_json(text: pa.Array, depth: int = DEPTH_MAX) -> JsonTexts:
    """Validate and compact a column of UTF-8 text, or of unchecked JSON values."""
    if is_json(text.type):
        text = text.storage
    if text.type != pa.string():
        text = text.cast(pa.string())
    rows = len(text)
    if text.null_count == rows:
        return JsonTexts(json_column(text), None)
    _, places, content = text.buffers()
    offsets = np.frombuffer(places, np.int32)[text.offset : text.offset + rows + 1]
    data = np.frombuffer(b"" if content is None else content, np.uint8)
    present = text.is_valid().to_numpy(zero_copy_only=False)
    faults = np.zeros(rows, np.uint8)
    ends = np.zeros(rows + 1, np.int32)
    out = np.empty(int(offsets[-1]) - int(offsets[0]), np.uint8)
    stack = np.empty(depth, np.uint8)
    bad = _compact(offsets, data, present, stack, faults, ends, out)
    if not bad and int(ends[-1]) == out.size:
        return JsonTexts(json_column(text), None)
    valid = present if not bad else present & (faults == GOOD)
    nulls = None if valid.all() else pa.array(valid).buffers()[1]
    buffers = [nulls, pa.py_buffer(ends), pa.py_buffer(out[: ends[-1]])]
    values = json_column(pa.Array.from_buffers(pa.string(), rows, buffers))
    return JsonTexts(values, faults if bad else None)


@kernel
def _blanks(data, i, stop):  # type: ignore[no-untyped-def]
    """Position after white space."""
    while i < stop and (data[i] == 32 or data[i] == 9 or data[i] == 10 or data[i] == 13):
        i += 1
    return i


@kernel
def _hex(data, i, stop):  # type: ignore[no-untyped-def]
    """Value of four hexadecimal digits, or -1."""
    if i + 4 > stop:
        return -1
    word = np.int64(0)
    for k in range(i, i + 4):
        c = np.int64(data[k])
        if ZERO <= c <= NINE:
            word = word * 16 + c - ZERO
        elif 65 <= c <= 70:
            word = word * 16 + c - 55
        elif 97 <= c <= 102:
            word = word * 16 + c - 87
        else:
            return -1
    return word


@kernel
def _string(data, i, stop):  # type: ignore[no-untyped-def]
    """Position after the string that begins here, or the negated fault."""
    half = False
    i += 1
    while i < stop:
        c = data[i]
        if c == BACKSLASH:
            if i + 1 >= stop:
                return -NO_JSON
            c = data[i + 1]
            if c == 117:
                word = _hex(data, i + 2, stop)
                if word < 0:
                    return -NO_JSON
                low = 0xDC00 <= word < 0xE000
                if half != low:
                    return -HALF
                half = 0xD800 <= word < 0xDC00
                i += 6
                continue
            if half:
                return -HALF
            if c not in (QUOTE, BACKSLASH, 47, 98, 102, 110, 114, 116):
                return -NO_JSON
            i += 2
            continue
        if half:
            return -HALF
        if c == QUOTE:
            return i + 1
        if c < 32:
            return -NO_JSON
        i += 1
    return -NO_JSON


@kernel
def _digits(data, i, stop):  # type: ignore[no-untyped-def]
    """Position after the digits."""
    while i < stop and ZERO <= data[i] <= NINE:
        i += 1
    return i


@kernel
def _number(data, i, stop):  # type: ignore[no-untyped-def]
    """Position after the number that begins here, or the negated fault; digits decide at 1e308."""
    if data[i] == MINUS:
        i += 1
    begin = i
    i = _digits(data, i, stop)
    if i == begin or (data[begin] == ZERO and i > begin + 1):
        return -NO_JSON
    whole = i
    end = i
    if i < stop and data[i] == POINT:
        end = _digits(data, i + 1, stop)
        if end == i + 1:
            return -NO_JSON
        i = end
    exponent = np.int64(0)
    if i < stop and (data[i] == 69 or data[i] == 101):
        i += 1
        negative = False
        if i < stop and (data[i] == PLUS or data[i] == MINUS):
            negative = data[i] == MINUS
            i += 1
        first = i
        i = _digits(data, i, stop)
        if i == first:
            return -NO_JSON
        for k in range(first, i):
            exponent = min(exponent * 10 + np.int64(data[k]) - ZERO, np.int64(1 << 40))
        if negative:
            exponent = -exponent
    if whole - begin + exponent <= EXPONENT_MAX:  # the usual case
        return i
    at = begin
    while at < end and (data[at] == ZERO or data[at] == POINT):
        at += 1
    if at == end:
        return i  # zero
    power = exponent + (whole - 1 - at if at < whole else whole - at)
    if power < EXPONENT_MAX:
        return i
    if power > EXPONENT_MAX:
        return -HUGE
    return i if _below_the_greatest(data, at, end) else -HUGE


@kernel
def _below_the_greatest(data, at, end):  # type: ignore[no-untyped-def]
    """Whether digits do not exceed the greatest double's; equal up to 17 digits rounds to it."""
    digits = np.uint64(0)
    taken = 0
    while taken < 17:
        if at < end:
            if data[at] == POINT:
                at += 1
                continue
            digits = digits * np.uint64(10) + np.uint64(data[at] - ZERO)
            at += 1
        else:
            digits *= np.uint64(10)
        taken += 1
    return digits <= np.uint64(17976931348623157)


@kernel
def _word(data, i, stop):  # type: ignore[no-untyped-def]
    """Position after true, false or null, or the negated fault."""
    word = TRUE if data[i] == TRUE[0] else FALSE if data[i] == FALSE[0] else NULL
    for k in range(len(word)):
        if i + k >= stop or data[i + k] != word[k]:
            return -NO_JSON
    return i + len(word)


@kernel
def _value(data, i, stop, stack, out, at):  # type: ignore[no-untyped-def]
    """Copy one value without white space; returns the output position and the fault."""
    depth = 0
    expected = VALUE
    while True:
        i = _blanks(data, i, stop)
        if i >= stop:
            return at, GOOD if expected == AFTER and depth == 0 else NO_JSON
        c = data[i]
        key = expected in (KEY, FIRST_KEY)
        if expected == AFTER:
            if depth == 0:
                return at, NO_JSON
            if c == COMMA:
                expected = KEY if stack[depth - 1] == CLOSE else VALUE
            elif c == stack[depth - 1]:
                depth -= 1
            else:
                return at, NO_JSON
        elif c in (CLOSE, CLOSE_LIST) and expected == (FIRST_KEY if c == CLOSE else FIRST_VALUE):
            depth -= 1
            expected = AFTER
        elif key and c != QUOTE:
            return at, NO_JSON
        elif c in (OPEN, OPEN_LIST):
            if depth == len(stack):
                return at, DEEP
            stack[depth] = CLOSE if c == OPEN else CLOSE_LIST
            expected = FIRST_KEY if c == OPEN else FIRST_VALUE
            depth += 1
        else:
            if c == QUOTE:
                end = _string(data, i, stop)
            elif c == MINUS or ZERO <= c <= NINE:
                end = _number(data, i, stop)
            else:
                end = _word(data, i, stop)
            if end < 0:
                return at, -end
            for k in range(i, end):
                out[at + k - i] = data[k]
            at += end - i
            i = end
            expected = AFTER
            if not key:
                continue
            i = _blanks(data, i, stop)
            if i >= stop or data[i] != COLON:
                return at, NO_JSON
            c = data[i]
            expected = VALUE
        out[at] = c
        at += 1
        i += 1


@kernel
def _compact(offsets, data, present, stack, faults, ends, out):  # type: ignore[no-untyped-def]
    """Copy the valid values one after the other; returns the number of invalid ones."""
    at = np.int64(0)
    bad = 0
    for row in range(len(offsets) - 1):
        if present[row]:
            behind, fault = _value(
                data, np.int64(offsets[row]), np.int64(offsets[row + 1]), stack, out, at
            )
            if fault == GOOD:
                at = behind
            else:
                faults[row] = fault
                bad += 1
        ends[row + 1] = at
    return bad
