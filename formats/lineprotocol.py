r"""InfluxDB line protocol (InfluxDB, Telegraf, QuestDB clients), translated to NDJSON.

``weather,city=Bonn temp=21.5,rain=t 1533099600000000000`` becomes, in compiled code,
``{"measurement":"weather","city":"Bonn","temp":21.5,"rain":true,"timestamp":1533...}``::

    measurement[,tag=value...] field=value[,field=value...] [time]

    1.5 1e3    number          "a \" b"      text
    1i  1u     whole number    t true f ...   truth value

In names and tags ``\,``, ``\=`` and ``\ `` are escapes; ``#`` lines and blank lines are skipped.
An invalid line becomes a JSON string, so that only it is refused.  Kernels never read outside the
given bytes.  A line break in a text makes later line numbers too low.  Times are integers, in
nanoseconds unless a format is given.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..core.native import kernel
from ..errors import InvalidData

if TYPE_CHECKING:
    from .sources import ByteSource


EXPECTED = "expected measurement[,tag=value...] field=value[,...] [time], in line protocol"

READ_BYTES = 1 << 20
LINE_BYTES_MAX = 64 << 20
MEASUREMENTS_MAX = 1000

COMMA, SPACE, EQUALS, QUOTE, BACKSLASH, REMARK = 44, 32, 61, 34, 92, 35
TAB, NEWLINE, RETURN = 9, 10, 13
MINUS, PLUS, POINT, ZERO, NINE, LETTER_E, LETTER_I, LETTER_U = 45, 43, 46, 48, 57, 101, 105, 117
FRACTION = np.frombuffer(b".0", np.uint8)
_ROOM = 6
"""Most output bytes per input byte: a control character becomes a six-byte escape."""


def json_lines(
    source: ByteSource, time: str, now: int | None, measurement: str | None
) -> Iterator[bytes]:
    """The lines of a source as NDJSON with these keys; ``now`` is the default time."""
    named = "" if measurement is None else f"{json.dumps(measurement)}:"
    key_texts = (f"{json.dumps(time)}:", "null" if now is None else str(now), named)
    keys = [np.frombuffer(text.encode(), np.uint8) for text in key_texts]
    per_line = 32 + sum(map(len, keys))
    rest = b""
    while True:
        piece = source.read(READ_BYTES)
        data = rest + piece
        if len(data) > LINE_BYTES_MAX:
            raise InvalidData(f"{source.name}: a line is longer than {LINE_BYTES_MAX:,} bytes")
        out = np.empty(_ROOM * len(data) + per_line * (data.count(b"\n") + 1), np.uint8)
        taken, written = translate(np.frombuffer(data, np.uint8), not piece, *keys, out)
        rest = data[taken:]
        if written:
            yield out[:written].tobytes()
        if not piece:
            return


def lines_by_measurement(body: bytes) -> dict[str, bytes]:
    """The lines of a body by measurement, in order of first occurrence."""
    body = body if body.endswith(b"\n") else body + b"\n"
    data = np.frombuffer(body, np.uint8)
    most = body.count(b"\n") + 1
    starts, ends, names = (np.empty(most, np.int64) for _ in range(3))
    count = int(outline(data, starts, ends, names))
    lines: dict[bytes, list[bytes]] = {}
    spans = (places[:count].data for places in (starts, names, ends))
    for start, name_end, end in zip(*spans, strict=True):
        lines.setdefault(body[start:name_end], []).append(body[start:end])
        if len(lines) > MEASUREMENTS_MAX:
            raise InvalidData(
                f"more than {MEASUREMENTS_MAX:,} measurements in one body; send several"
            )
    by_measurement: dict[str, bytes] = {}
    for name, those in lines.items():
        key = _unescaped(name)
        by_measurement[key] = by_measurement.get(key, b"") + b"".join(those)
    return by_measurement


def _unescaped(name: bytes) -> str:
    text = name.decode(errors="replace")
    return text.replace("\\,", ",").replace("\\ ", " ")


# ------------------------------------------------------------------------------------- kernels


@kernel
def put(out, at, c):  # type: ignore[no-untyped-def]
    """Write a character of a JSON string; returns the next position."""
    if c in (QUOTE, BACKSLASH):
        out[at] = BACKSLASH
        out[at + 1] = c
        return at + 2
    if c < 32:
        out[at] = BACKSLASH
        out[at + 1] = 117  # u
        out[at + 2] = out[at + 3] = 48
        out[at + 4] = 48 + c // 16
        low = c % 16
        out[at + 5] = 48 + low if low < 10 else 87 + low
        return at + 6
    out[at] = c
    return at + 1


@kernel
def put_all(out, at, text):  # type: ignore[no-untyped-def]
    """Write bytes unchanged; returns the next position."""
    for i in range(len(text)):
        out[at + i] = text[i]
    return at + len(text)


@kernel
def name(data, i, out, at, key):  # type: ignore[no-untyped-def]
    """Read a name, which ``=`` also ends if ``key``; returns the position after it (-1: empty)."""
    begin = i
    while i < len(data):
        c = data[i]
        if c in (NEWLINE, COMMA, SPACE) or (key and c == EQUALS):
            break
        if c == BACKSLASH and i + 1 < len(data):
            following = data[i + 1]
            if following in (COMMA, SPACE, EQUALS):
                at = put(out, at, following)
                i += 2
                continue
        at = put(out, at, c)
        i += 1
    return (i if i > begin else -1), at


@kernel
def is_digit(c):  # type: ignore[no-untyped-def]
    """Whether a byte is a decimal digit."""
    return ZERO <= c <= NINE


TRUE = np.frombuffer(b"true", np.uint8)
FALSE = np.frombuffer(b"false", np.uint8)


@kernel
def is_word(data, i, end, text):  # type: ignore[no-untyped-def]
    """Whether the bytes are this word or its first letter, in any case."""
    if end - i != 1 and end - i != len(text):
        return False
    same = True
    for k in range(end - i):
        same &= data[i + k] | 32 == text[k]
    return same


@kernel
def number(data, i, end, whole, out, at):  # type: ignore[no-untyped-def]
    """Write a number as JSON, with a fraction unless ``whole``; the new position, -1 if none."""
    if i < end and data[i] == MINUS:
        out[at] = MINUS
        at += 1
        i += 1
    while i + 1 < end and data[i] == ZERO and is_digit(data[i + 1]):  # JSON has no leading zeros
        i += 1
    if i < end and data[i] == POINT:
        out[at] = ZERO
        at += 1
    some = point = exponent = False  # some: a digit
    while i < end:
        c = data[i]
        if is_digit(c):
            some = True
        elif c == POINT and not (whole or point or exponent):
            point = True
            if i + 1 == end or not is_digit(data[i + 1]):
                out[at] = POINT
                at += 1
                c = ZERO
        elif c | 32 == LETTER_E and some and not (whole or exponent):
            exponent, some = True, False
            if not point:
                at = put_all(out, at, FRACTION)
            if i + 1 < end and (data[i + 1] == MINUS or data[i + 1] == PLUS):
                out[at] = c
                at += 1
                i += 1
                c = data[i]
        else:
            return -1
        out[at] = c
        at += 1
        i += 1
    if not some:
        return -1
    return at if whole or point or exponent else put_all(out, at, FRACTION)


@kernel
def value(data, i, out, at):  # type: ignore[no-untyped-def]
    """Read a field's value; returns the position after it (-1: invalid) and that in ``out``."""
    if i < len(data) and data[i] == QUOTE:
        out[at] = QUOTE
        at += 1
        i += 1
        while i < len(data) and data[i] != QUOTE:
            c = data[i]
            if c == BACKSLASH and i + 1 < len(data) and data[i + 1] in (QUOTE, BACKSLASH):
                i += 1
                c = data[i]
            at = put(out, at, c)
            i += 1
        if i >= len(data):
            return -1, at
        out[at] = QUOTE
        return i + 1, at + 1
    end = i
    while end < len(data):
        c = data[end]
        if c in (COMMA, SPACE, NEWLINE, RETURN):
            break
        end += 1
    if is_word(data, i, end, TRUE):
        return end, put_all(out, at, TRUE)
    if is_word(data, i, end, FALSE):
        return end, put_all(out, at, FALSE)
    whole = end > i and (data[end - 1] == LETTER_I or data[end - 1] == LETTER_U)
    at = number(data, i, end - 1 if whole else end, whole, out, at)
    return (-1 if at < 0 else end), at


@kernel
def line(data, i, time_key, now, name_key, out, at):  # type: ignore[no-untyped-def]
    """Read one line; returns its end (-1 if invalid) and the position in ``out``."""
    out[at] = 123
    at += 1
    begun = at
    if len(name_key):
        at = put_all(out, at, name_key)
        out[at] = QUOTE
        at += 1
    i, at = name(data, i, out, at, False)
    if i < 0:
        return -1, at
    if len(name_key):
        out[at] = QUOTE
        at += 1
    else:
        at = begun
    some = len(name_key) > 0
    while i < len(data) and data[i] == COMMA:  # tags
        if some:
            out[at] = COMMA
            at += 1
        some = True
        for part in range(2):
            out[at] = QUOTE
            i, at = name(data, i + 1, out, at + 1, True)
            if i < 0 or (part == 0 and (i >= len(data) or data[i] != EQUALS)):
                return -1, at
            out[at] = QUOTE
            at += 1
            if part == 0:
                out[at] = 58
                at += 1
    if i >= len(data) or data[i] != SPACE:
        return -1, at
    while i < len(data) and data[i] == SPACE:
        i += 1
    i -= 1
    while True:  # fields
        if some:
            out[at] = COMMA
            at += 1
        some = True
        out[at] = QUOTE
        i, at = name(data, i + 1, out, at + 1, True)
        if i < 0 or i >= len(data) or data[i] != EQUALS:
            return -1, at
        out[at] = QUOTE
        out[at + 1] = 58
        i, at = value(data, i + 1, out, at + 2)
        if i < 0:
            return i, at
        if i >= len(data) or data[i] != COMMA:
            break
    while i < len(data) and data[i] == SPACE:
        i += 1
    out[at] = COMMA
    at = put_all(out, at + 1, time_key)
    if i < len(data) and (data[i] == MINUS or is_digit(data[i])):
        end = i + 1
        while end < len(data) and is_digit(data[end]):
            end += 1
        at = number(data, i, end, True, out, at)
        if at < 0:
            return -1, at
        i = end
    else:
        at = put_all(out, at, now)
    while i < len(data) and (data[i] == SPACE or data[i] == RETURN):
        i += 1
    if i < len(data):
        return -1, at
    out[at] = 125
    return i, at + 1


@kernel
def ending(data, i):  # type: ignore[no-untyped-def]
    """End of the line that begins at ``i``: a newline outside a text, or the end of the data."""
    fields = False
    quoted = False
    opens = False  # a quote here begins a text
    while i < len(data) and (quoted or data[i] != NEWLINE):
        c = data[i]
        if c == BACKSLASH and i + 1 < len(data) and data[i + 1] != NEWLINE:
            i += 1
        elif c == SPACE:
            fields = True
        elif c == QUOTE and (quoted or opens):
            quoted = not quoted
        opens = fields and c == EQUALS
        i += 1
    return min(i, len(data))


@kernel
def translate(data, final, time_key, now, name_key, out):  # type: ignore[no-untyped-def]
    """Line protocol to JSON lines; returns the bytes read and written.

    Without ``final``, an incomplete last line is not read.
    """
    i = 0
    at = 0
    while i < len(data):
        begin, before = i, at
        while i < len(data) and data[i] in (SPACE, TAB, RETURN):
            i += 1
        remark = i < len(data) and data[i] == REMARK
        last = i
        while remark and last < len(data) and data[last] != NEWLINE:
            last += 1
        if not remark:
            last = ending(data, i)
        if last >= len(data) and not final:
            return begin, before
        if not remark and last > i:
            read, at = line(data[:last], i, time_key, now, name_key, out, at)
            if read < 0:  # write the line as a string, which is refused
                at = before
                out[at] = QUOTE
                at += 1
                last = begin
                while last < len(data) and data[last] != NEWLINE:
                    at = put(out, at, data[last])
                    last += 1
                out[at] = QUOTE
                at += 1
        out[at] = NEWLINE
        at += 1
        i = last + 1
    return min(i, len(data)), at


@kernel
def outline(data, starts, ends, names):  # type: ignore[no-untyped-def]
    """Start and end of each line that is no comment, contiguous, and the end of its first name."""
    i = 0
    count = 0
    while i < len(data):
        while i < len(data) and data[i] in (SPACE, TAB, RETURN):
            i += 1
        if i >= len(data):
            break
        start = i
        if data[i] == NEWLINE or data[i] == REMARK:
            while i < len(data) and data[i] != NEWLINE:
                i += 1
            i += 1
            continue
        last = ending(data, i)
        while i < last and data[i] != COMMA and data[i] != SPACE:
            i += 2 if data[i] == BACKSLASH else 1
        starts[count] = start
        names[count] = min(i, last)
        i = min(last + 1, len(data))
        ends[count] = i
        count += 1
    return count
