"""Reading JSON: records cut out of an array of any size, or lines of NDJSON, parsed in chunks.

Purpose
    A JSON array cannot be parsed piece by piece with an ordinary parser.  ``jsonscan.py`` follows
    quotes and brackets byte by byte, in compiled code, and turns the array into one record a line
    *in place*; chunks of such lines go to Arrow's JSON parser.

Guarantee
    One array of objects, objects one after another, pretty-printed or not: ``json``.  One object a
    line: ``ndjson``.  An array that is not closed is an error, as is anything but white space
    after it.  A broken line of NDJSON costs that line only; a broken record of an array is
    reported, and the rest read as far as its brackets balance.

    No bytes reach a decoder before ``survey`` has looked at them: what is nested deeper than
    :data:`~chronicle.formats.limits.DEPTH_MAX` or is no object is a broken record, more different
    keys than the limit an error; where many rows meet many keys, a chunk is cut into smaller ones.
    A number that no ``float64`` holds is a bad value, never infinity.

Limits
    Nested objects and arrays can be in the records but not be stored.  A record must fit into 64
    MB. A field that is a number in one record and text in the next is read the slow way, in
    Python.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from ..errors import InvalidData
from ..lazy import lazy
from .badrows import BadRow, shown
from .chunks import CHUNK_BYTES, SAMPLE_BYTES, LineNumbers, Texts
from .flattening import Rewriting
from .jsonmembers import Enclosed
from .jsonscan import (
    AFTER_END,
    DEEP,
    DEPTH,
    DONE,
    IN_ARRAY,
    IN_STRING,
    NO_COMMA,
    NO_RECORD,
    ODD_NUMBER,
    RECORDS,
    STATES,
    STRAY_COMMA,
    STRAY_LINE,
    record_spans,
    scan,
    survey,
)
from .limits import DEPTH_MAX, Limits, Meter
from .sources import ByteSource

__all__ = ["JsonLines", "JsonRecords", "looks_like_lines"]

RECORD_BYTES_MAX = 64 << 20
_BLOCK_BYTES = 1 << 20
_CELLS_MAX = 16 << 20
"""Rows times keys of a chunk: a decoder fills in a null for every key that a row does not have."""

_SEED = np.uint64(int.from_bytes(os.urandom(8), "little"))
_NO_KEYS = np.zeros(0, np.uint64)


class JsonChunk:
    """Some complete JSON records; see :class:`~chronicle.formats.chunks.RecordChunk`.

    ``given`` is what they were rewritten from, where people are to be shown that.
    """

    def __init__(
        self,
        source: str,
        data: bytes,
        first_row: int,
        first_line: int | None,
        ignore_new: bool,
        given: bytes | None = None,
    ) -> None:
        self.source = source
        self.data = data
        self._given = given
        self.first_row = first_row
        self.first_line = first_line
        self._ignore_new = ignore_new
        self.flags = 0
        self._spans: npt.NDArray[np.int64] | None = None

    def surveyed(self, meter: Meter) -> Iterator[JsonChunk]:
        """The chunk after a look at what it would cost to decode, in pieces that cost little."""
        self.flags, records, different = self._survey(_scratch(meter.limits.columns))
        meter.columns(different, "different keys")
        if records > 1 and records * different > _CELLS_MAX:
            spans = self._records()
            if len(spans) > 1:
                half = len(spans) // 2
                cut = int(spans[half, 0])
                line = self.first_line
                after = None if line is None else line + self.data.count(b"\n", 0, cut)
                before, behind = None, None
                if self._given is not None:
                    place = int(self._given_records[half, 0])
                    before, behind = self._given[:place], self._given[place:]
                for data, row, at, given in (
                    (self.data[:cut], self.first_row, line, before),
                    (self.data[cut:], self.first_row + half, after, behind),
                ):
                    part = JsonChunk(self.source, data, row, at, self._ignore_new, given)
                    yield from part.surveyed(meter)
                return
        yield self

    def _survey(self, keys: npt.NDArray[np.uint64]) -> tuple[int, int, int]:
        data = np.frombuffer(self.data, np.uint8)
        paths = np.empty(DEPTH_MAX, np.uint64)
        flags, records, different = survey(data, self.first_line is not None, _SEED, paths, keys)
        return int(flags), int(records), int(different)

    def parse(self, types: Mapping[str, pa.DataType | None] | None) -> dict[str, pa.Array]:
        """Columns parsed fast; fields that ``types`` does not name as Arrow sees fit.

        Text that looks like a time stays text: what it means is decided elsewhere.  Whole numbers
        that only ``uint64`` holds are not made floats of.
        """
        if self.flags & DEEP:
            raise pa.ArrowInvalid("some record is nested too deeply")
        if self.flags & STRAY_LINE:
            raise pa.ArrowInvalid("some line does not hold exactly one object")
        if self.flags & ODD_NUMBER and any(
            type_ is not None and pa.types.is_decimal(type_) for type_ in (types or {}).values()
        ):  # which Arrow reads wrongly; see decimals.py
            raise pa.ArrowInvalid("some number is to be read digit by digit")
        if not self.data.isascii():
            try:
                self.data.decode()
            except UnicodeDecodeError as error:
                raise pa.ArrowInvalid(str(error)) from None
        table = self._parse(types)
        names = table.schema.names
        stamps = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
        if stamps:
            table = self._parse({**(types or {}), **dict.fromkeys(stamps, pa.string())})
        large = [
            field.name
            for field in table.schema
            if pa.types.is_float64(field.type)
            and (types or {}).get(field.name) is None
            and _only_large_integers(table.column(field.name))
        ]
        if large:
            explicit = {**(types or {}), **dict.fromkeys(stamps, pa.string())}
            with contextlib.suppress(pa.ArrowInvalid):
                table = self._parse({**explicit, **dict.fromkeys(large, pa.uint64())})
        columns = {name: table.column(name).combine_chunks() for name in names}
        if any(
            pa.types.is_floating(column.type) and pc.any(pc.is_inf(column)).as_py()
            for column in columns.values()
        ):  # JSON cannot say infinity
            raise pa.ArrowInvalid("some number is beyond the range of its type")
        return columns

    def _parse(self, types: Mapping[str, pa.DataType | None] | None) -> pa.Table:
        explicit = None
        ignore = False
        if types is not None:
            fields = [(name, type_) for name, type_ in types.items() if type_ is not None]
            explicit = pa.schema(fields) if fields else None
            ignore = self._ignore_new and 0 < len(fields) == len(types)
        options = pa_json.ParseOptions(
            explicit_schema=explicit,
            unexpected_field_behavior="ignore" if ignore else "infer",
        )
        block = _BLOCK_BYTES
        while True:
            try:
                table = pa_json.read_json(
                    pa.BufferReader(self.data),
                    read_options=pa_json.ReadOptions(block_size=block),
                    parse_options=options,
                )
                break
            except pa.ArrowInvalid as error:
                if block > len(self.data) or "straddling" not in str(error):
                    raise
                block = len(self.data) + 1
        if table.num_rows != self.rows:
            raise pa.ArrowInvalid("some record is not exactly one object")
        return table

    def texts(self) -> Texts:
        """Every field as text, record by record in Python; only for chunks with a bad record."""
        values: dict[str, list[str | None]] = {}
        strings: dict[str, int] = {}
        others: dict[str, int] = {}
        records: list[int] = []
        broken: list[tuple[int, str]] = []
        spans = self._records()
        for record, (start, end) in enumerate(spans.tolist()):
            try:
                found = _load(self.data[start:end])
            except ValueError as error:
                broken.append((record, str(error)))
                continue
            row = len(records)
            records.append(record)
            for name, value in found.items():
                column = values.get(name)
                if column is None:
                    column = values[name] = [None] * row
                    strings[name] = others[name] = 0
                text: str | None
                if value is None:
                    text = None
                elif isinstance(value, _Number):
                    text = value
                    others[name] += 1
                elif isinstance(value, str):
                    text = value
                    strings[name] += 1
                elif isinstance(value, bool):
                    text = "true" if value else "false"
                    others[name] += 1
                else:
                    text = _dump(value)
                    strings[name] += 1
                column.append(text)
            if len(values) != len(found):
                for column in values.values():
                    if len(column) == row:
                        column.append(None)
        return Texts(
            {name: pa.array(column, pa.string()) for name, column in values.items()},
            np.asarray(records, np.int64),
            frozenset(name for name in values if strings[name] > others[name]),
            broken,
        )

    def describe(self, record: int) -> BadRow:
        """Row, line and text of a record."""
        start, end = self._records()[record].tolist()
        line = None if self._lines is None else self._lines.at(start)
        text = self.data[start:end].strip().decode(errors="replace")
        if self._given is not None:
            begin, stop = self._given_records[record].tolist()
            text = self._given[begin:stop].strip().decode(errors="replace")
        return BadRow(self.source, self.first_row + record, "", line=line, record=text)

    @lazy
    def _lines(self) -> LineNumbers | None:
        return None if self.first_line is None else LineNumbers(self.data, self.first_line)

    @lazy
    def _given_records(self) -> npt.NDArray[np.int64]:
        assert self._given is not None
        return self._find_records(self._given)

    def _records(self) -> npt.NDArray[np.int64]:
        if self._spans is None:
            self._spans = self._find_records(self.data)
        return self._spans

    def _find_records(self, data: bytes) -> npt.NDArray[np.int64]:
        if self.first_line is not None:
            return _line_spans(data)
        spans = np.empty((data.count(b"{") + 1, 2), np.int64)
        count = record_spans(np.frombuffer(data, np.uint8), spans)
        return spans[:count]

    @property
    def rows(self) -> int:
        """Number of records, broken ones included."""
        return len(self._records())


def _line_spans(data: bytes) -> npt.NDArray[np.int64]:
    """Start and end of each line that is not blank."""
    breaks = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)
    starts = np.concatenate(([0], breaks + 1))
    ends = np.concatenate((breaks, [len(data)]))
    spans = np.stack((starts, ends), axis=1)
    if b"\n\n" in data or b"\r" in data or b" \n" in data or data[:1].isspace():
        kept = [bool(data[start:end].strip()) for start, end in spans.tolist()]
        return spans[np.asarray(kept, np.bool_)]
    return spans[ends > starts]


class _Number(str):
    """Digits of a JSON number, kept as they are."""

    __slots__ = ()


def _only_large_integers(column: pa.ChunkedArray) -> bool:
    """Whether floats are whole numbers, at least one of them beyond what int64 holds."""
    low, high = pc.min_max(column).as_py().values()
    if low is None or low < 0 or not 2.0**63 <= high <= 2.0**64:
        return False
    return bool(pc.all(pc.equal(column, pc.floor(column))).as_py())


def _dump(value: object) -> str:
    """A nested value as JSON text again, with the digits of its numbers as they were."""
    if isinstance(value, _Number):
        return value
    if isinstance(value, dict):
        items = (f"{json.dumps(k, ensure_ascii=False)}: {_dump(v)}" for k, v in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_dump, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the field {twice!r} occurs twice")
    return record


def _scratch(columns: int) -> npt.NDArray[np.uint64]:
    """Room to tell so many keys apart, and to see that there are more."""
    return np.zeros(1 << (2 * columns + 2).bit_length(), np.uint64)


def _load(text: bytes) -> dict[str, Any]:
    """One record; a ValueError says what is wrong with it."""
    paths = np.empty(DEPTH_MAX, np.uint64)
    if survey(np.frombuffer(text, np.uint8), False, _SEED, paths, _NO_KEYS)[0] & DEEP:
        raise ValueError(f"expected at most {DEPTH_MAX} brackets inside each other, found more")
    try:
        value = json.loads(
            text.decode(),
            parse_float=_Number,
            parse_int=_Number,
            parse_constant=_Number,
            object_pairs_hook=_once,
        )
    except UnicodeDecodeError as error:
        raise ValueError(f"expected UTF-8 text, found {error.reason}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error.msg} at character {error.pos + 1}") from None
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, found {shown(json.dumps(value))}")
    if b"\\u" in text:
        try:
            _dump(value).encode()
        except UnicodeEncodeError:
            raise ValueError("expected Unicode text, found half of a surrogate pair") from None
    return cast("dict[str, Any]", value)


class _JsonText:
    """A source of JSON, and what becomes of its records."""

    typed = False

    def __init__(
        self,
        source: ByteSource,
        limits: Limits,
        *,
        ignore_new: bool = False,
        rewriting: Rewriting | None = None,
    ) -> None:
        self.source = source
        self._meter = Meter(limits, source.name)
        self._ignore_new = ignore_new
        self._rewriting = rewriting

    def _behind_mark(self) -> ByteSource:
        """The source, behind the mark of UTF-8 that it may begin with."""
        self.source.begin_text()
        return self.source


class JsonLines(_JsonText):
    """The records of an NDJSON source, one a line."""

    def chunks(self) -> Iterator[JsonChunk]:
        """Chunks of complete lines."""
        source = self._behind_mark()
        carry = b""
        row, line = 1, 1
        size = SAMPLE_BYTES
        while True:
            more = source.read(size)
            data = carry + more
            size = CHUNK_BYTES
            if not data:
                return
            if more:
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
            if data.strip():
                text = data if self._rewriting is None else self._rewriting(data, True)
                given = data if isinstance(self._rewriting, Enclosed) else None
                chunk = JsonChunk(source.name, text, row, line, self._ignore_new, given)
                yield from chunk.surveyed(self._meter)
                row += chunk.rows
            line += data.count(b"\n")


class JsonRecords(_JsonText):
    """The records of a JSON array (or of objects one after another)."""

    def chunks(self) -> Iterator[JsonChunk]:
        """Chunks of complete records, one a line."""
        source = self._behind_mark()
        state = np.zeros(STATES, np.int64)
        carry = b""
        row = 1
        size = SAMPLE_BYTES
        while more := source.read(size):
            size = CHUNK_BYTES
            before = int(state[RECORDS])
            fresh = np.frombuffer(bytearray(more), np.uint8)
            last, wrong, kind = scan(fresh, state)
            if last == 0 and wrong < 0:
                carry += fresh.tobytes()
                if len(carry) > RECORD_BYTES_MAX:
                    raise InvalidData(
                        f"{source.name}: record {row} does not end within {RECORD_BYTES_MAX >> 20} "
                        "MB; expected an array of records (objects), or one object a line"
                    )
                continue
            data = carry + fresh[:last].tobytes()
            carry = fresh[last:].tobytes()
            if data.strip():
                text = data if self._rewriting is None else self._rewriting(data, False)
                given = data if isinstance(self._rewriting, Enclosed) else None
                chunk = JsonChunk(source.name, text, row, None, self._ignore_new, given)
                yield from chunk.surveyed(self._meter)
            row += int(state[RECORDS]) - before
            if wrong >= 0:
                self._raise(kind, row, bytes(more[wrong : wrong + 40]))
        if state[DEPTH] or state[IN_STRING]:
            raise InvalidData(
                f"{source.name}: the file ends inside record {row}; it is cut off, or a quote or "
                "bracket is missing there",
                row=row,
            )
        if state[IN_ARRAY] and not state[DONE]:
            raise InvalidData(
                f"{source.name}: the array is not closed after record {row - 1}; the file is "
                "cut off",
                row=row,
            )
        if not state[IN_ARRAY] and not state[RECORDS]:
            raise InvalidData(f"{source.name} is empty; expected a JSON array of records")

    def _raise(self, kind: int, row: int, text: bytes) -> None:
        found = shown(text.decode(errors="replace"))
        what = {
            NO_RECORD: f"expected a record (an object) as number {row}, found {found}",
            AFTER_END: f"expected nothing after the end of the array, found {found}",
            NO_COMMA: f"expected a comma after record {row - 1}, found {found}",
            STRAY_COMMA: f"expected a record (an object) as number {row}, found {found}",
        }[kind]
        raise InvalidData(f"{self.source.name}: {what}", row=row)


def looks_like_lines(head: bytes) -> bool:
    """Whether text that starts with an object has that object on a line of its own."""
    line, newline, _ = head.lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")
    if not newline or not line.startswith(b"{"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
