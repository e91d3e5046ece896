"""Reading JSON in chunks of complete records of at most 64 MB.

``json``: one array of objects, or objects one after another; ``ndjson``: one object a line.  An
unclosed array is an error.  A broken line costs that line only; after a broken record of an array
the rest is read while brackets balance.

Records are validated and compacted (``core/json_text.py``), and the texts of each member, digit by
digit, become a column; ``convert.py`` reads them.  Python's parser reads the records that are no
strict JSON: it takes ``NaN`` and ``Infinity``, or says what is wrong.  Members that occur twice and
nesting beyond ``DEPTH_MAX`` make a record broken; too many keys are an error.  A chunk with too
many records times keys is split.

``flatten`` opens all objects and joins the names; a CloudEvent becomes the members of its ``data``
and the attributes that the stream has columns for::

    {"a": {"b": 1, "c": {"d": 2}}, "e": [3]}     a_b: 1, a_c_d: 2, e: [3]

    {"specversion": "1.0", "id": "7", "time": "2026-...", "data": {"x": 1}}
                                                 x: 1, id: "7", timestamp: "2026-..."

Members of ``data`` override attributes; a missing time is the time at which reading began.  A
stream's column ``data`` gets it whole.  Required attributes are not checked; objects inside arrays
stay.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.json_text import DEEP, is_json, read_json
from ..core.nested_types import is_nested
from ..errors import InvalidArgument, InvalidData, ResourceLimit
from ..schema import StreamSchema
from .chunks import CHUNK_BYTES, SAMPLE_BYTES, BadRow, Columns, shown
from .dialect import DEPTH_MAX, Meter
from .jsonscan import (
    AFTER_END,
    NO_COMMA,
    NO_RECORD,
    OPEN,
    OPEN_LIST,
    QUOTE,
    Cutter,
    Int32s,
    members_of,
)
from .sources import ByteSource
from .times import is_text

RECORD_BYTES_MAX = 64 << 20
NAME_BYTES = 1 << 16
_NAMES_BYTES = 16 << 20
_CELLS_MAX = 16 << 20
"""Rows times columns of a chunk: a column has a null for every record that lacks it."""

_DEEP = f"expected at most {DEPTH_MAX} brackets inside each other, found more"
_NULL = ord("n")
_ITEM = r'((?:"(?:[^"\\]|\\.)*"|[^",:])*)([,:]|$)'
_BLANK = np.zeros(256, np.bool_)
_BLANK[list(b" \t\r\n")] = True

Int64s = npt.NDArray[np.int64]


class Values(NamedTuple):
    """JSON values in a text, each with the record that it is of, in their order."""

    rows: Int32s
    starts: Int32s
    ends: Int32s

    def at(self, where: Any) -> Values:
        return Values(self.rows[where], self.starts[where], self.ends[where])

    def repeated(self) -> npt.NDArray[np.bool_]:
        """Which are of a record that has several."""
        again = np.zeros(len(self.rows) + 1, np.bool_)
        again[1:-1] = np.diff(self.rows) == 0
        return again[1:] | again[:-1]


Members = dict[str, list[Values]]
Kind = Callable[[str], pa.DataType | None]
"""A column's type; None if it is unknown."""


class JsonText:
    """A buffer of compact JSON."""

    def __init__(self, data: bytes | pa.Buffer, meter: Meter) -> None:
        self.data = data
        self.meter = meter
        self.bytes = np.frombuffer(data, np.uint8)

    def members(self, of: Values) -> dict[str, Values]:
        """The members of objects by name."""
        most = 0 if not len(of.rows) else int(np.count_nonzero(self.bytes == ord(":")))
        listed = members_of(self.bytes, of.starts, of.ends, most)
        keys = self.between(listed.key_starts, listed.key_ends).dictionary_encode()
        self.meter.columns(len(keys.dictionary), "different keys")
        names = [
            json.loads(f'"{key}"') if "\\" in key else key for key in keys.dictionary.to_pylist()
        ]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        kind = np.uint16 if len(names) < 1 << 16 else np.int32  # 16 bits are sorted faster
        spellings = np.array([numbers[name] for name in names], kind)[keys.indices.to_numpy()]
        codes = spellings[listed.keys]
        order = np.argsort(codes, kind="stable")
        values = Values(of.rows[listed.objects], listed.starts, listed.ends).at(order)
        ends = np.cumsum(np.bincount(codes, minlength=len(numbers)))
        return {
            name: values.at(slice(ends[number - 1] if number else 0, ends[number]))
            for name, number in numbers.items()
        }

    def opened(self, of: Values, separator: str | None, kind: Kind, before: str = "") -> Members:
        """Columns of the members of objects, and with a separator of those inside."""
        columns: Members = {}
        for member, values in self.members(of).items():
            name = before + member
            if before and len(name) > NAME_BYTES:
                raise ResourceLimit(f"the names of nested members are longer than {NAME_BYTES:,}")
            kinds = self.bytes[values.starts]
            objects = kinds == OPEN
            if separator is None or not objects.any() or _is_whole(kind(name)):
                columns.setdefault(name, []).append(values)
                continue
            inner = self.opened(values.at(objects), separator, kind, name + separator)
            rest = values.repeated()  # what occurs twice is seen in a column of its own
            if not (objects | (kinds == _NULL)).all():
                rest |= ~objects
            if rest.any():
                columns.setdefault(name, []).append(values.at(rest))
            for path, parts in inner.items():
                columns.setdefault(path, []).extend(parts)
        return columns

    def between(self, starts: Int32s, ends: Int32s) -> pa.Array:
        return slices(self.data, starts, ends, pa.string())


def _is_whole(type_: pa.DataType | None) -> bool:
    """Whether a column of this type takes the JSON text of a value."""
    return type_ is not None and (is_json(type_) or is_nested(type_))


def slices(data: bytes | pa.Buffer, starts: Any, ends: Any, type_: pa.DataType) -> pa.Array:
    """Spans of a buffer."""
    if not len(starts):
        return pa.array([], type_)
    borders = np.stack((starts, ends), axis=1).astype(np.int32).ravel()
    borders = np.append(borders, np.int32(len(data)))  # Arrow looks at the first and last one
    buffers = [None, pa.py_buffer(borders), pa.py_buffer(data)]
    both = pa.Array.from_buffers(type_, len(borders) - 1, buffers)
    return both.take(pa.array(np.arange(0, len(borders) - 2, 2)))


class Form:
    """What columns the members of records become: see ``flatten`` and CloudEvents above."""

    def __init__(self, separator: str | None = None) -> None:
        if separator is not None and not re.fullmatch(r"[A-Za-z0-9_.:/-]{1,8}", separator):
            raise InvalidArgument(
                "flatten takes what is to stand between names, 1 to 8 letters, digits, '_', '.', "
                f"':', '/' or '-', such as flatten=_; found {separator!r}"
            )
        self._separator = separator

    def columns(self, text: JsonText, records: Values, kind: Kind) -> tuple[JsonText, Members]:
        """The columns, and the text in which their values are."""
        return text, text.opened(records, self._separator, kind)


CONTEXT = ("id", "source", "type", "subject", "datacontenttype", "dataschema")
"""Attributes that become columns of a stream created from CloudEvents, besides the time."""


class CloudEvents(Form):
    """Events as records of a stream; without a ``target`` attributes keep their names."""

    def __init__(self, target: StreamSchema | None, time: str, separator: str | None) -> None:
        super().__init__(separator)
        columns = {name.lower(): name for name in (CONTEXT if target is None else target.names)}
        self._opens = target is None or "data" not in columns
        self._strict = target is not None
        unit = "us" if target is None else target.time_unit
        self._now = None if unit is None else _now(unit)
        self._time = time or "time"
        named: dict[str, str | None] = {"time": self._time}
        named |= {name: to for name, to in columns.items() if name != "time"}
        named.setdefault("data_base64", columns.get("data", "data_base64"))
        named.setdefault("data", "data")
        if target is None:
            named["specversion"] = None
        self._named = named

    def columns(self, text: JsonText, records: Values, kind: Kind) -> tuple[JsonText, Members]:
        attributes = text.members(records)
        columns: Members = {}
        if self._opens and "data" in attributes:
            values = attributes["data"]
            objects = text.bytes[values.starts] == OPEN
            columns = text.opened(values.at(objects), self._separator, kind)
            attributes["data"] = values.at(~objects)
            if (twice := values.repeated()).any():
                columns.setdefault("data", []).append(values.at(twice))
        for member, values in attributes.items():
            name = self._named.get(member, None if self._strict else member)
            if name is None or not len(values.rows):
                continue
            if name in columns and name in self._named.values():  # that of the data is taken
                taken = np.concatenate([part.rows for part in columns[name]])
                values = values.at(~np.isin(values.rows, taken))
            columns.setdefault(name, []).append(values)
        if self._now is not None:
            times = columns.setdefault(self._time, [])
            present = np.concatenate([part.rows for part in times] or [records.rows[:0]])
            absent = np.setdiff1d(records.rows, present)
            size, now = len(text.data), f'"{self._now}"'.encode()
            ends = (np.full(len(absent), size + at, np.int32) for at in (0, len(now)))
            text = JsonText(b"".join((text.data, now)), text.meter)
            times.append(Values(absent, *ends))
        return text, columns


def form_of(
    format: str, flatten: str | None, target: StreamSchema | None, time: str, source: str
) -> Form:
    if format == "cloudevents":
        return CloudEvents(target, time, flatten)
    if flatten is not None and format not in ("json", "ndjson"):
        raise InvalidArgument(f"flatten is for json and ndjson; {source} is {format}")
    return Form(flatten)


def _now(unit: str) -> str:
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[unit]
    seconds, nanos = divmod(time.time_ns(), 10**9)
    text = dt.datetime.fromtimestamp(seconds, dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    return text + (f".{nanos:09d}"[: digits + 1] if digits else "") + "Z"


class Reading(NamedTuple):
    """What the chunks of a source share."""

    source: str
    meter: Meter
    form: Form
    kind: Kind


class JsonChunk:
    """Some records, parsed when the chunk is made; ``lines`` are their line numbers, if known."""

    def __init__(
        self, reading: Reading, records: pa.Array, first_row: int, lines: Int64s | None
    ) -> None:
        self._reading = reading
        self._records = records
        self._lines = lines
        self.first_row = first_row
        valid, self._broken = _valid(records)
        _, places, data = valid.buffers()
        offsets = np.frombuffer(places, np.int32)[valid.offset : valid.offset + len(valid) + 1]
        text = JsonText(b"" if data is None else data, reading.meter)
        rows = np.flatnonzero(offsets[1:] > offsets[:-1]).astype(np.int32)
        whole = Values(rows, offsets[rows], offsets[rows + 1])
        self._text, columns = reading.form.columns(text, whole, reading.kind)
        if sum(map(len, columns)) > _NAMES_BYTES:
            raise ResourceLimit(
                f"the names of nested members take more than {_NAMES_BYTES >> 20} MB when they are "
                "joined; they repeat too much, send them flat"
            )
        reading.meter.columns(len(columns), "different keys")
        ordered = {name: self._in_order(name, parts) for name, parts in columns.items()}
        broken = list(self._broken)
        self._columns = {
            name: values
            for name, values in ordered.items()
            if not broken or not np.isin(values.rows, broken).all()
        }

    def _in_order(self, name: str, parts: list[Values]) -> Values:
        values = parts[0]
        if len(parts) > 1:
            joined = Values(*map(np.concatenate, zip(*parts, strict=True)))
            values = joined.at(np.argsort(joined.rows, kind="stable"))
        for row in np.unique(values.rows[1:][np.diff(values.rows) == 0]).tolist():
            self._broken.setdefault(row, f"the field {name!r} occurs twice")
        return values

    def parts(self) -> Iterator[Columns]:
        count = len(self._records)
        step = max(1, _CELLS_MAX // max(1, len(self._columns)))
        for first in range(0, count, step):
            yield self._part(first, min(first + step, count))

    def _part(self, first: int, end: int) -> Columns:
        broken = sorted((r, why) for r, why in self._broken.items() if first <= r < end)
        good = np.ones(end - first, np.bool_)
        good[[record - first for record, _ in broken]] = False
        columns: dict[str, pa.Array] = {}
        quoted: set[str] = set()
        nested: set[str] = set()
        for name, values in self._columns.items():
            part = values.at(slice(*np.searchsorted(values.rows, (first, end))))
            column, of_strings, of_brackets = self._column(name, part, first, end - first)
            columns[name] = column.filter(pa.array(good)) if broken else column
            if of_strings:
                quoted.add(name)
            if of_brackets:
                nested.add(name)
        return Columns(columns, first + np.flatnonzero(good), quoted, broken, nested)

    def _column(
        self, name: str, values: Values, first: int, count: int
    ) -> tuple[pa.Array, bool, bool]:
        """The texts of a column, whether most are strings, and whether some are nested."""
        kinds = self._text.bytes[values.starts]
        strings, filled = kinds == QUOTE, kinds != _NULL
        brackets = (kinds == OPEN) | (kinds == OPEN_LIST)
        nested, some = bool(brackets.any()), int(np.count_nonzero(filled))
        quoted = 2 * int(np.count_nonzero(strings | brackets)) > some
        type_ = self._reading.kind(name)
        whole = nested if type_ is None else _is_whole(type_)
        if whole or not strings.any():
            texts = self._text.between(values.starts, values.ends)
        else:
            texts = self._text.between(values.starts + strings, values.ends - strings)
            texts = _unescaped(texts, strings)
        if nested and not whole and is_text(type_):
            texts = _spaced(texts, brackets)
        if not (some == count == len(kinds) and not self._broken):
            at = np.full(count, -1, np.int64)
            at[values.rows[filled] - first] = np.flatnonzero(filled)
            texts = texts.take(pa.array(at, mask=at < 0))
        return texts, quoted, nested

    def describe(self, record: int) -> BadRow:
        line = None if self._lines is None else int(self._lines[record])
        text = self._records[record].as_py().strip().decode(errors="replace")
        return BadRow(self._reading.source, self.first_row + record, "", line=line, record=text)


def _unescaped(texts: pa.Array, strings: npt.NDArray[np.bool_]) -> pa.Array:
    """The texts with the escapes of those that were strings replaced."""
    escaped = pc.match_substring(texts, "\\")
    if not pc.any(escaped).as_py():
        return texts
    escaped = pc.and_(escaped, pa.array(strings))
    plain = [json.loads(f'"{text}"') for text in texts.filter(escaped).to_pylist()]
    return pc.replace_with_mask(texts, escaped, pa.array(plain, pa.string()))


def _spaced(texts: pa.Array, nested: npt.NDArray[np.bool_]) -> pa.Array:
    """The texts, with a blank after each comma and colon of those that are lists or objects."""
    spaced = pc.replace_substring_regex(texts.filter(pa.array(nested)), _ITEM, r"\1\2 ")
    return pc.replace_with_mask(texts, pa.array(nested), pc.utf8_rtrim(spaced, " "))


# ------------------------------------------------------------------------------------ validation


def _valid(records: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    """Records as compact JSON, empty where they are no objects, and what is wrong with those."""
    broken: dict[int, str] = {}
    try:
        texts = records.cast(pa.string())
    except pa.ArrowInvalid:
        decoded = [_decoded(each, row, broken) for row, each in enumerate(records.to_pylist())]
        texts = pa.array(decoded, pa.string())
    checked = read_json(texts, DEPTH_MAX)
    valid = checked.values.storage
    if checked.faults is not None:
        faulty = np.flatnonzero(checked.faults).tolist()
        read = [_read(texts[row].as_py(), checked.faults[row] == DEEP) for row in faulty]
        broken |= {row: why for row, (_, why) in zip(faulty, read, strict=True) if why}
        valid = pc.replace_with_mask(
            valid, pa.array(checked.faults != 0), pa.array([text for text, _ in read], pa.string())
        )
    objects = pc.fill_null(pc.starts_with(valid, "{"), False)
    if not pc.all(objects).as_py():
        for row in np.flatnonzero(~objects.to_numpy(zero_copy_only=False)).tolist():
            broken.setdefault(
                row, f"expected an object, found {shown((texts[row].as_py() or '').strip())}"
            )
        valid = pc.if_else(objects, valid, "")
    return valid, broken


def _decoded(record: bytes, row: int, broken: dict[int, str]) -> str | None:
    try:
        return record.decode()
    except UnicodeDecodeError as error:
        broken[row] = f"expected UTF-8 text, found {error.reason}"
        return None


class _Number(str):
    """A number or a constant as it is written."""

    __slots__ = ()


def _read(text: str, deep: bool) -> tuple[str, str | None]:
    """A record that is not strict JSON as compact text, and what is wrong with it otherwise."""
    if deep:
        return "", _DEEP
    try:
        value = json.loads(
            text, parse_float=_Number, parse_int=_Number, parse_constant=_Number,
            object_pairs_hook=_once,
        )  # fmt: skip
        compact = _dump(value)
        compact.encode()
    except json.JSONDecodeError as error:
        return "", f"not valid JSON: {error.msg} at character {error.pos + 1}"
    except UnicodeEncodeError:
        return "", "expected Unicode text, found half of a surrogate pair"
    except RecursionError:
        return "", _DEEP
    except ValueError as error:
        return "", str(error)
    return compact, None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the field {twice!r} occurs twice")
    return record


def _dump(value: object, depth: int = 0) -> str:
    if isinstance(value, _Number):
        return value
    if not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    if depth == DEPTH_MAX:
        raise RecursionError
    if isinstance(value, list):
        return "[" + ",".join(_dump(each, depth + 1) for each in value) + "]"
    return "{" + ",".join(f"{_dump(n)}:{_dump(v, depth + 1)}" for n, v in value.items()) + "}"


# ---------------------------------------------------------------------------------------- chunks


def split_lines(data: bytes, first_line: int) -> tuple[pa.Array, Int64s]:
    """The lines that are not blank, and their numbers."""
    text = np.frombuffer(data, np.uint8)
    offsets = np.concatenate(([0], np.flatnonzero(text == ord("\n")) + 1, [len(text)]))
    if offsets[-2] == len(text):
        offsets = offsets[:-1]
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    lines = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
    numbers = first_line + np.arange(len(lines))
    if not _BLANK[text[offsets[:-1]]].any():
        return lines, numbers
    filled = np.logical_or.reduceat(~_BLANK[text], offsets[:-1])
    return lines.filter(pa.array(filled)), numbers[filled]


class JsonLines:
    typed = False

    def __init__(self, source: ByteSource, reading: Reading) -> None:
        self._source = source
        self._reading = reading

    def chunks(self) -> Iterator[JsonChunk]:
        source = self._source
        source.begin_text()
        carry = b""
        row, line = 1, 1
        size = SAMPLE_BYTES
        while True:
            more = source.read(size)
            data = carry + more
            # decoded text has another length than the bytes that were asked for
            goes_on = bool(more) if source.is_live else len(more) == size or bool(source.peek(1))
            size = CHUNK_BYTES
            if not data:
                return
            if goes_on:
                end = data.rfind(b"\n") + 1
                if end == 0:
                    if len(data) > RECORD_BYTES_MAX:
                        raise InvalidData(
                            f"{source.name}, line {line}: the line does not end within "
                            f"{RECORD_BYTES_MAX >> 20} MB; is this NDJSON?"
                        )
                    carry = data
                    continue
                data, carry = data[:end], data[end:]
            else:
                carry = b""
            records, numbers = split_lines(data, line)
            if len(records):
                yield JsonChunk(self._reading, records, row, numbers)
                row += len(records)
            line += data.count(b"\n")


class JsonRecords:
    typed = False

    def __init__(self, source: ByteSource, reading: Reading) -> None:
        self._source = source
        self._reading = reading

    def chunks(self) -> Iterator[JsonChunk]:
        source, cutter = self._source, Cutter()
        source.begin_text()
        carry = held = b""
        row = 1
        size = SAMPLE_BYTES
        while more := source.read(size):
            size = CHUNK_BYTES
            more = held + more
            text = more.rstrip(b"\\")  # a trailing backslash escapes what follows
            held = more[len(text) :]
            begun = cutter.in_record
            last, spans, wrong, kind = cutter.cut(text)
            if len(spans):
                spans += len(carry)
                if begun:
                    spans[0, 0] = 0
                records = slices(carry + text[:last], spans[:, 0], spans[:, 1], pa.binary())
                yield JsonChunk(self._reading, records, row, None)
            carry = (b"" if last else carry) + text[last:]
            row += len(spans)
            if wrong >= 0:
                self._raise(kind, row, text[wrong : wrong + 40])
            if len(carry) + len(held) > RECORD_BYTES_MAX:
                raise InvalidData(
                    f"{source.name}: record {row} does not end within {RECORD_BYTES_MAX >> 20} "
                    "MB; expected an array of records (objects), or one object a line"
                )
        if cutter.in_record:
            raise InvalidData(
                f"{source.name}: the file ends inside record {row}; it is cut off, or a quote or "
                "bracket is missing there",
                row=row,
            )
        if cutter.in_array:
            raise InvalidData(
                f"{source.name}: the array is not closed after record {row - 1}; the file is "
                "cut off",
                row=row,
            )
        if not cutter.begun:
            raise InvalidData(f"{source.name} is empty; expected a JSON array of records")

    def _raise(self, kind: int, row: int, text: bytes) -> None:
        excerpt = shown(text.decode(errors="replace"))
        what = {
            NO_RECORD: f"expected a record (an object) as number {row}, found {excerpt}",
            AFTER_END: f"expected nothing after the end of the array, found {excerpt}",
            NO_COMMA: f"expected a comma after record {row - 1}, found {excerpt}",
        }[kind]
        raise InvalidData(f"{self._source.name}: {what}", row=row)


def looks_like_lines(head: bytes) -> bool:
    """Whether the text's first object stands on a line of its own."""
    line, newline, _ = head.lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")
    if not newline or not line.startswith(b"{"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
