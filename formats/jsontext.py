"""Reading JSON in chunks of complete records of at most 64 MB.

``json``: one array of objects, or objects one after another; ``ndjson``: one object a line.  An
unclosed array is an error.  A broken line costs that line only; after a broken record of an array
the rest is read while brackets balance.

Arrow parses a chunk; Python parses it record by record if some record does not fit.  Members for
JSON columns, which may hold anything, are removed first (``jsonscan.py``) and preserved byte by
byte; a form (``flattening.py``) maps the rest to columns.  Duplicate members, numbers beyond
``float64`` and nesting beyond ``DEPTH_MAX`` make a record broken; too many keys are an error.  A
chunk is parsed by known members first and examined only if that fails; one with too many rows times
keys is split.  A column of objects in one record and numbers in another becomes JSON text.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from ..core.caches import lazy
from ..core.json_text import is_json
from ..core.nested_types import is_list, is_nested
from ..errors import InvalidData, ResourceLimit
from .chunks import CHUNK_BYTES, SAMPLE_BYTES, BadRow, LineNumbers, Texts, TooWide, shown
from .flattening import Form, Path, Plain, members, opened
from .jsonscan import (
    AFTER_END,
    NO_COMMA,
    NO_RECORD,
    Cutter,
    Taken,
    count_keys,
    depths,
    line_spans,
    take_out,
)
from .limits import DEPTH_MAX, Meter
from .sources import ByteSource

_BLOCK_BYTES = 1 << 20
_CELLS_MAX = 16 << 20
"""Rows times keys of a chunk: the decoder stores a null for every key that a row lacks."""

_NAMES_BYTES = 16 << 20
_TRIES_MAX = 16
"""Irregular columns found one by one; with more, the records are read one by one."""
_DEEP = f"expected at most {DEPTH_MAX} brackets inside each other, found more"
_ODD_NUMBER = re.compile(rb"[0-9][eE][-+0-9]|[0-9.]{37}")
_CHANGED = re.compile(r"Column\(/(.*)\) changed from (\w+) to (\w+)")
Spans = npt.NDArray[np.int64]
Types = Mapping[str, pa.DataType | None]


Kind = tuple[pa.DataType | None, bool]


def _undecided(name: str) -> Kind:
    del name
    return None, False


@dataclass
class Reading:
    """State that the chunks of a source share.

    ``kind`` gives a column's type (None: unknown) and whether it is fixed; ``irregular`` columns
    mix objects or lists with other values; ``shape`` is the members seen so far, as Arrow parses
    them.
    """

    source: str
    meter: Meter
    ignores_new: bool = False
    form: Form = field(default_factory=Plain)
    kind: Callable[[str], Kind] = _undecided
    has_whole: Callable[[], bool] = bool
    irregular: set[str] = field(default_factory=set)
    shape: pa.Schema | None = None

    def is_whole(self, name: str) -> bool:
        """Whether a column stores the JSON text of a member."""
        if name in self.irregular:
            return True
        type_, given = self.kind(name)
        return type_ is not None and (is_json(type_) or (given and is_nested(type_)))

    def is_nested(self, name: str) -> bool:
        type_ = self.kind(name)[0]
        return name in self.irregular or type_ is None or is_json(type_) or is_nested(type_)

    def taken(self, path: Path) -> str | None:
        name = self.form.column(path)
        return name if name is not None and self.is_whole(name) else None

    def learn(self, schema: pa.Schema) -> None:
        if self.shape is not None and self.shape.equals(schema):
            return
        known = pa.struct([] if self.shape is None else list(self.shape))
        merged = _merged(known, pa.struct(list(schema)))
        self.meter.columns(_leaves(merged), "different keys")
        self.shape = pa.schema(list(merged))


def _merged(old: pa.DataType, new: pa.DataType) -> pa.DataType:
    if pa.types.is_null(new):
        return old
    if is_list(old) and is_list(new):
        return pa.list_(_merged(old.value_type, new.value_type))
    if not (pa.types.is_struct(old) and pa.types.is_struct(new)):
        return new
    fields = {each.name: each.type for each in old}
    for each in new:
        fields[each.name] = _merged(fields.get(each.name, pa.null()), each.type)
    return pa.struct(list(fields.items()))


def _leaves(type_: pa.DataType) -> int:
    if is_list(type_):
        return _leaves(type_.value_type)
    if not pa.types.is_struct(type_):
        return 0
    return sum(1 + _leaves(each.type) for each in type_)


def _plain(type_: pa.DataType, null: pa.DataType | None) -> pa.DataType | None:
    """The type for the parser, given its own choice: times stay text; ``null`` if undecided."""
    if pa.types.is_null(type_):
        return null
    if pa.types.is_timestamp(type_):
        return pa.string()
    if is_list(type_):
        item = _plain(type_.value_type, null)
        return None if item is None else pa.list_(item)
    if pa.types.is_struct(type_):
        fields = [(each.name, _plain(each.type, null)) for each in type_]
        known = [(name, found) for name, found in fields if found is not None]
        return pa.struct(known) if known else None
    return type_


class JsonChunk:
    def __init__(
        self,
        reading: Reading,
        data: bytes,
        first_row: int,
        first_line: int | None,
        spans: Spans,
    ) -> None:
        self.reading = reading
        self.data = data
        self.first_row = first_row
        self.first_line = first_line
        self._spans = spans
        self._without: Taken | None = None
        self._counted = False
        self._tries = 0

    @property
    def rows(self) -> int:
        return len(self._spans)

    def _halves(self) -> tuple[JsonChunk, JsonChunk]:
        half = self.rows // 2
        cut = int(self._spans[half, 0])
        line = self.first_line
        after = None if line is None else line + self.data.count(b"\n", 0, cut)
        reading, row, spans = self.reading, self.first_row, self._spans
        return (
            JsonChunk(reading, self.data[:cut], row, line, spans[:half]),
            JsonChunk(reading, self.data[cut:], row + half, after, spans[half:] - cut),
        )

    # ---------------------------------------------------------------------------- before parsing

    def _check_records(self) -> None:
        text = np.frombuffer(self.data, np.uint8)
        starts, ends = self._spans[:, 0], self._spans[:, 1]
        if self.first_line is not None and not (
            (text[starts] == ord("{")).all() and (text[ends - 1] == ord("}")).all()
        ):  # so no record spans lines
            raise pa.ArrowInvalid("some line does not hold exactly one object")
        if not self.data.isascii():
            try:
                self.data.decode()
            except UnicodeDecodeError as error:
                raise pa.ArrowInvalid(str(error)) from None
        opening = self.data.count(b"{") + self.data.count(b"[")
        if opening > max(DEPTH_MAX, self.rows) and self._too_deep:
            raise pa.ArrowInvalid("some record is nested too deeply")

    @lazy
    def _too_deep(self) -> frozenset[int]:
        return frozenset(np.flatnonzero(depths(self.data, self._spans) > DEPTH_MAX).tolist())

    def _check_keys(self) -> None:
        most, colons = self.reading.meter.limits.columns, self.data.count(b":")
        if self._counted or (colons <= most and self.rows * colons <= _CELLS_MAX):
            return
        different = count_keys(self.data, self._spans, most)
        self.reading.meter.columns(different, "different keys")
        if self.rows > 1 and self.rows * different > _CELLS_MAX:
            raise TooWide(*self._halves())
        self._counted = True

    # ----------------------------------------------------------------------------------- parsing

    def parse(self, types: Types | None) -> dict[str, pa.Array]:
        """Columns parsed by type, or by Arrow's choice; times stay text, ``uint64`` stays exact."""
        self._check_records()
        if any(
            type_ is not None and pa.types.is_decimal(type_) for type_ in (types or {}).values()
        ) and _ODD_NUMBER.search(self.data):  # Arrow reads it wrongly; see decimals.py
            raise pa.ArrowInvalid("some number is to be read digit by digit")
        given = types or {}
        while True:
            try:
                columns = self._columns(self._read(given))
                break
            except pa.ArrowInvalid as error:
                if not self._is_irregular(str(error)):
                    raise
        large = [
            name
            for name, column in columns.items()
            if pa.types.is_float64(column.type)
            and given.get(name) is None
            and _only_large_integers(column)
        ]
        if large:
            wanted = {**given, **dict.fromkeys(large, pa.uint64())}
            with contextlib.suppress(pa.ArrowInvalid):
                columns = self._columns(self._read(wanted))
        if any(_is_infinite(column) for column in columns.values()):  # JSON has no infinity
            raise pa.ArrowInvalid("some number is beyond the range of its type")
        return columns

    def _is_irregular(self, reason: str) -> bool:
        """Whether the error shows a column of mixed kinds, which is then stored as JSON text."""
        found = _CHANGED.search(reason)
        reading = self.reading
        self._tries += 1
        if found is None or type(reading.form) is not Plain or self._tries > _TRIES_MAX:
            return False
        path, *kinds = found.groups()
        if "/" not in path and not {"object", "array"} & set(kinds):
            return False
        name = path
        while True:  # names may contain a slash
            if reading.kind(name)[0] is None and name not in reading.irregular:
                before = len(self._taken().members)
                reading.irregular.add(name)
                self._without = None
                if len(self._taken().members) > before:
                    return True
                reading.irregular.discard(name)
                self._without = None
            if "/" not in name:
                return False
            name = name.rpartition("/")[0]

    def _taken(self) -> Taken:
        if self._without is None:
            self._without = self._take_out()
        return self._without

    def _take_out(self) -> Taken:
        reading, spans, parent = self.reading, self._spans, self.reading.form.parent
        if not (reading.irregular or reading.has_whole()):
            return Taken(self.data, spans, {})
        return take_out(self.data, spans, reading.taken, parent)

    def _read(self, types: Types) -> pa.Table:
        reading, data, form = self.reading, self._taken().data, self.reading.form
        shape = pa.schema([]) if reading.shape is None else reading.shape
        if reading.ignores_new and type(form) is Plain and types and None not in types.values():
            told = {n: t for n, t in types.items() if not reading.is_whole(n)}
            return self._parsed(data, pa.schema(list(told.items())), "ignore")
        if len(shape) and self.rows * _leaves(pa.struct(list(shape))) <= _CELLS_MAX:
            with contextlib.suppress(pa.ArrowInvalid):
                return self._parsed(data, self._told(shape, types, pa.string()), "error")
        self._check_keys()
        known = self._told(shape, types, None, only_given=True)
        table = self._parsed(data, known, "infer")
        names = table.schema.names
        again = self._told(table.schema, types, None)
        if any(table.schema.field(each.name).type != each.type for each in again):
            table = self._parsed(data, again, "infer").select(names)
        reading.learn(table.schema)
        return table

    def _told(
        self, schema: pa.Schema, types: Types, null: pa.DataType | None, only_given: bool = False
    ) -> pa.Schema:
        reading, form = self.reading, self.reading.form

        def told(path: Path, type_: pa.DataType) -> pa.DataType | None:
            if pa.types.is_struct(type_) and form.opens(path):
                inner = [(each.name, told((*path, each.name), each.type)) for each in type_]
                known = [(name, found) for name, found in inner if found is not None]
                return pa.struct(known) if known else None
            name = form.column(path)
            wanted = types.get(name) if name is not None and not reading.is_whole(name) else None
            if wanted is not None and not is_nested(wanted):
                return wanted
            if only_given:
                return None
            return _plain(type_, null)

        fields = [(each.name, told((each.name,), each.type)) for each in schema]
        return pa.schema([(name, found) for name, found in fields if found is not None])

    def _parsed(self, data: bytes, schema: pa.Schema, unexpected: str) -> pa.Table:
        options = pa_json.ParseOptions(
            explicit_schema=schema if len(schema) else None, unexpected_field_behavior=unexpected
        )
        block = _BLOCK_BYTES
        while True:
            try:
                table = pa_json.read_json(
                    pa.BufferReader(data),
                    read_options=pa_json.ReadOptions(block_size=block),
                    parse_options=options,
                )
                break
            except pa.ArrowInvalid as error:
                if block > len(data) or "straddling" not in str(error):
                    raise
                block = len(data) + 1
        if table.num_rows != self.rows:
            raise pa.ArrowInvalid("some record is not exactly one object")
        return table

    def _columns(self, table: pa.Table) -> dict[str, pa.Array]:
        reading, taken = self.reading, self._taken()
        known = {each.name: each.type for each in reading.shape or ()}
        given = {
            name: _undone(table.column(name).combine_chunks(), known.get(name, pa.int64()))
            for name in table.schema.names
        }
        found = list(opened(given, reading.form))
        nulls = reading.form.parent is not None and b"null" in taken.data
        columns = reading.form.columns(found, self.rows, nulls)
        if sum(map(len, columns)) > _NAMES_BYTES:
            raise ResourceLimit(
                f"the names of nested members take more than {_NAMES_BYTES >> 20} MB when they are "
                "joined; they repeat too much, send them flat"
            )
        for name, column in columns.items():
            whole = name not in taken.members and reading.is_whole(name)
            if whole and not pa.types.is_null(column.type):
                raise pa.ArrowInvalid(f"the column {name!r} is the text of a member")
        return {**columns, **{name: taken.text(name, self.rows) for name in taken.members}}

    def texts(self) -> Texts:
        """Every field as text, record by record in Python."""
        self._check_keys()
        reading, taken = self.reading, self._taken()
        values: dict[str, list[str | None]] = {}
        strings: dict[str, int] = {}
        others: dict[str, int] = {}
        nested: set[str] = set()
        records: list[int] = []
        broken: list[tuple[int, str]] = []
        for record, (start, end) in enumerate(taken.spans.tolist()):
            try:
                if record in self._too_deep:
                    raise ValueError(_DEEP)
                found = reading.form.record(
                    list(members(_load(taken.data[start:end]), reading.form))
                )
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
                if isinstance(value, str) and not isinstance(value, _Text):
                    strings[name] += 1
                elif isinstance(value, dict | list):
                    value = _Text(_dump(value))
                    strings[name] += 1
                    nested.add(name)
                elif value is not None:
                    value = _Text(_dump(value))
                    others[name] += 1
                column.append(value)
            if len(values) != len(found):
                for column in values.values():
                    if len(column) == row:
                        column.append(None)
        columns: dict[str, pa.Array] = {}
        places = np.asarray(records, np.int64)
        for name, column in values.items():
            if name in taken.members:
                columns[name] = taken.text(name, self.rows).take(pa.array(places))
                continue
            decided = reading.kind(name)[0] is not None
            if reading.is_nested(name) and (decided or name in nested):
                column = [_dump(v) if type(v) is str else v for v in column]
            columns[name] = pa.array(column, pa.string())
        quoted = frozenset(name for name in values if strings[name] > others[name])
        return Texts(columns, places, quoted, broken, frozenset(nested))

    def describe(self, record: int) -> BadRow:
        start, end = self._spans[record].tolist()
        line = None if self._lines is None else self._lines.at(start)
        text = self.data[start:end].strip().decode(errors="replace")
        source = self.reading.source
        return BadRow(source, self.first_row + record, "", line=line, record=text)

    @lazy
    def _lines(self) -> LineNumbers | None:
        return None if self.first_line is None else LineNumbers(self.data, self.first_line)


def _undone(column: pa.Array, known: pa.DataType) -> pa.Array:
    """The column, with type null for parts that never had a value."""
    if pa.types.is_null(known):
        return pa.nulls(len(column)) if column.null_count == len(column) else column
    if pa.types.is_struct(known) and pa.types.is_struct(column.type):
        names = [each.name for each in column.type]
        types = {each.name: each.type for each in known}
        parts = [
            _undone(column.field(at), types.get(name, pa.int64())) for at, name in enumerate(names)
        ]
        if any(part.type != each.type for part, each in zip(parts, column.type, strict=True)):
            return pa.StructArray.from_arrays(parts, names, mask=column.is_null())
    elif is_list(known) and is_list(column.type):
        items = _undone(column.values, known.value_type)
        if items.type != column.type.value_type:
            return pa.ListArray.from_arrays(column.offsets, items, mask=column.is_null())
    return column


class _Text(str):
    """JSON text of a value that is not a string; a number keeps all digits."""

    __slots__ = ()


def _is_infinite(column: pa.Array) -> bool:
    if is_list(column.type):
        return _is_infinite(column.flatten())
    if pa.types.is_struct(column.type):
        return any(map(_is_infinite, column.flatten()))
    return pa.types.is_floating(column.type) and bool(pc.any(pc.is_inf(column)).as_py())


def _only_large_integers(column: pa.Array) -> bool:
    low, high = pc.min_max(column).as_py().values()
    if low is None or low < 0 or not 2.0**63 <= high <= 2.0**64:
        return False
    return bool(pc.all(pc.equal(column, pc.floor(column))).as_py())


def _dump(value: object) -> str:
    if isinstance(value, _Text):
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


def _load(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(
            text.decode(),
            parse_float=_Text,
            parse_int=_Text,
            parse_constant=_Text,
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


RECORD_BYTES_MAX = 64 << 20


class JsonLines:
    typed = False

    def __init__(self, source: ByteSource, reading: Reading) -> None:
        self.source = source
        self.reading = reading

    def chunks(self) -> Iterator[JsonChunk]:
        source = self.source
        source.begin_text()
        carry = b""
        row, line = 1, 1
        size = SAMPLE_BYTES
        while True:
            more = source.read(size)
            data = carry + more
            goes_on = len(more) == size or (source.is_live and bool(more))
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
            spans = line_spans(data)
            if len(spans):
                yield JsonChunk(self.reading, data, row, line, spans)
                row += len(spans)
            line += data.count(b"\n")


class JsonRecords:
    typed = False

    def __init__(self, source: ByteSource, reading: Reading) -> None:
        self.source = source
        self.reading = reading

    def chunks(self) -> Iterator[JsonChunk]:
        source, cutter = self.source, Cutter()
        source.begin_text()
        carry = held = b""
        row = 1
        size = SAMPLE_BYTES
        while more := source.read(size):
            size = CHUNK_BYTES
            more = held + more
            kept = more.rstrip(b"\\")  # a trailing backslash escapes what follows
            held = more[len(kept) :]
            text = bytearray(kept)
            begun = cutter.in_record
            last, spans, wrong, kind = cutter.cut(text)
            if len(spans):
                spans += len(carry)
                if begun:
                    spans[0, 0] = len(carry) - len(carry.lstrip())
                yield JsonChunk(self.reading, carry + bytes(text[:last]), row, None, spans)
            carry = (b"" if last else carry) + bytes(text[last:])
            row += len(spans)
            if wrong >= 0:
                self._raise(kind, row, kept[wrong : wrong + 40])
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
        found = shown(text.decode(errors="replace"))
        what = {
            NO_RECORD: f"expected a record (an object) as number {row}, found {found}",
            AFTER_END: f"expected nothing after the end of the array, found {found}",
            NO_COMMA: f"expected a comma after record {row - 1}, found {found}",
        }[kind]
        raise InvalidData(f"{self.source.name}: {what}", row=row)


def looks_like_lines(head: bytes) -> bool:
    """Whether the text's first object stands on a line of its own."""
    line, newline, _ = head.lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")
    if not newline or not line.startswith(b"{"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
