"""The output columns of a read: names, types, and how they were decided.

The readers of all files of an ingest share a ``Layout``.  With a ``target``, batches have exactly
its schema.  Else types are inferred from the first records and may widen later, never narrow:
integers to floats, microseconds to nanoseconds; given types never widen.  ``conform`` converts
earlier batches to the final schema without loss.  Renames apply first.  Names match exactly, else
case-insensitively.

A text column becomes

1. ``int64`` (or ``uint64``) if its values are whole numbers,
2. else ``float64`` if they are numbers, or ``decimal128(38, s)`` if a whole number among them has
   no exact ``float64``,
3. else ``bool``, ``date`` or ``timestamp`` if **all** of them are,
4. else ``string``.

Four numbers in five suffice; the other values are bad.  A column without values stays undecided.

Localised numbers: ``plain_numbers`` rewrites ``1.234,56`` as ``1234.56``, still as text.  Only
regular groups of three with one separator are joined, without a leading zero.  With a decimal comma
``1.5`` is not a number.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.json_text import JSON
from ..core.nested_types import decided, is_list, is_nested
from ..core.suggestion import did_you_mean
from ..errors import InvalidArgument, InvalidData, SchemaMismatch, UnsupportedType
from ..schema import StreamSchema, storage_of, stored_decimal, stored_nested
from .convert import (
    FLOAT_TEXT,
    convert,
    inexact_wholes,
    may_be_rounded,
    parsed,
    read_numbers,
)
from .dialect import ColumnOptions, Limits, Meter
from .kinds import name_of_type, parse_types
from .times import Offsets, TimeRule, is_text, parse_iso, parse_time_formats

NUMERIC_SHARE = 0.8

_BOOL_TEXT = r"^(?i:true|false)$"
_PLAIN_NUMBER = r"^[+-]?(?P<w>\d*)\.?(?P<f>\d*)$"


def infer_text(values: pa.Array, *, numbers: bool = True) -> pa.DataType | None:
    """Type of a text column, None without values; JSON strings are not inferred as numbers."""
    values = values.drop_null()
    if not len(values):
        return None
    for type_ in (pa.int64(), pa.uint64(), pa.float64()) if numbers else ():
        numeric = read_numbers(values, type_)
        if numeric is not None and not may_be_rounded(numeric):
            return type_
    trimmed = pc.utf8_trim_whitespace(values)
    if numbers:
        enough = NUMERIC_SHARE * len(values)
        decimal = pc.match_substring_regex(trimmed, FLOAT_TEXT)
        if pc.sum(decimal).as_py() >= enough:
            digits = trimmed.filter(decimal)
            return _whole_type(digits) or _exact_type(digits) or pa.float64()
        if pc.all(pc.match_substring_regex(trimmed, _BOOL_TEXT)).as_py():
            return pa.bool_()
    times = parse_iso(trimmed)
    if times.ok.all():
        if not times.has_clock.any():
            return pa.date32()
        return pa.timestamp("ns" if np.any(times.nanos % 1000) else "us")
    return pa.string()


_CELLS_MAX = 16 << 20
"""Most rows times members of nested values to parse together: each has a null for what it lacks."""


def infer_nested(text: pa.Array, most: int) -> pa.DataType:
    """Type of the JSON text of lists and objects: JSON if irregular; times stay text.

    ResourceLimit for more than ``most`` members.
    """
    text = text.drop_null()
    colons = pc.sum(pc.count_substring(text, ":"), min_count=0).as_py()
    if len(text) > 1 and len(text) * colons > _CELLS_MAX:
        half = len(text) // 2
        first = infer_nested(text.slice(0, half), most)
        type_ = wider(first, infer_nested(text.slice(half), most)) or JSON
    else:
        type_ = _parsed_type(text)
    Meter(Limits(most), "nested values").columns(members_of(type_), "different keys")
    return type_


def _parsed_type(text: pa.Array) -> pa.DataType:
    try:
        values = parsed(text)
    except pa.ArrowInvalid:
        return JSON
    type_ = _regular(values.type)
    if not is_nested(type_) or _may_be_rounded_inside(values):
        return JSON
    return JSON if stored_nested(decided(type_)) is None else type_


def members_of(type_: pa.DataType | None) -> int:
    """How many members a type has, with those inside of each other."""
    if type_ is None or not is_nested(type_):
        return 0
    if is_list(type_):
        return members_of(type_.value_type)
    return sum(1 + members_of(each.type) for each in type_)


def _regular(type_: pa.DataType) -> pa.DataType:
    if is_list(type_):
        return pa.list_(_regular(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([(each.name, _regular(each.type)) for each in type_])
    return pa.string() if pa.types.is_timestamp(type_) else type_


def _may_be_rounded_inside(values: pa.Array) -> bool:
    if is_list(values.type):
        return _may_be_rounded_inside(values.flatten())
    if pa.types.is_struct(values.type):
        return any(map(_may_be_rounded_inside, values.flatten()))
    return may_be_rounded(values)


def _whole_type(digits: pa.Array) -> pa.DataType | None:
    if pc.any(pc.match_substring(digits, ".")).as_py():
        return None
    return next((t for t in (pa.int64(), pa.uint64()) if not convert(digits, t).bad), None)


def _exact_type(digits: pa.Array) -> pa.DataType | None:
    """The decimal type for numbers in text, if floats would lose digits of a whole number."""
    if not inexact_wholes(digits, digits.cast(pa.float64())).any():
        return None
    if not pc.all(pc.match_substring_regex(digits, _PLAIN_NUMBER)).as_py():
        return None
    parts = pc.extract_regex(digits, _PLAIN_NUMBER)
    whole, fraction = (
        pc.max(pc.utf8_length(pc.struct_field(parts, name))).as_py() for name in ("w", "f")
    )
    return pa.decimal128(38, fraction) if whole + fraction <= 38 else None


def infer_typed(values: pa.Array) -> pa.DataType | None:
    """Type of a typed column; None if it has no values or the type null."""
    type_ = values.type
    if pa.types.is_null(type_):
        return None
    if is_text(type_):
        if values.null_count == len(values):
            return None
        return pa.large_string() if pa.types.is_large_string(type_) else pa.string()
    if pa.types.is_time(type_) or pa.types.is_duration(type_):
        return pa.string() if pa.types.is_time(type_) else pa.int64()
    if pa.types.is_float16(type_):
        return pa.float32()
    if pa.types.is_decimal(type_):
        return stored_decimal(type_)
    if pa.types.is_fixed_size_binary(type_):
        return pa.binary()
    if is_nested(type_):
        return stored_nested(type_) or type_
    return type_


_GROUPING = ("'", "\u2019", " ", "\u00a0", "\u202f")
"""Group separators besides whichever of ``.`` and ``,`` is not the decimal separator."""


def _grouped(decimal: str) -> str:
    marks = ("." if decimal == "," else ",", *_GROUPING)
    groups = "|".join(rf"(?:{re.escape(mark)}\d{{3}})+" for mark in marks)
    return rf"^[+-]?[1-9]\d{{0,2}}(?:{groups})(?:{re.escape(decimal)}\d*)?$"


_GROUPED = {decimal: _grouped(decimal) for decimal in ",."}
_MARKS = {
    decimal: f"[{'.' if decimal == ',' else ','}{''.join(_GROUPING)}]" for decimal in _GROUPED
}
_COMMA = r"^([+-]?\d*),(\d*(?:[eE][+-]?\d+)?)$"
_WITH_COMMA = r"^[+-]?(?:\d+|[1-9]\d{0,2}(?:\.\d{3})+)(?:,\d+(?:[eE][+-]?\d+)?)?$"
_PROOF = (
    r"^[+-]?(?:\d+,\d{1,2}|\d+,\d{4,}|0\d*,\d+|\d{4,},\d+|[1-9]\d{0,2}(?:\.\d{3})+,\d+"
    r"|\d+,\d+[eE][+-]?\d+)$"
)
"""Numbers in which the comma cannot be a group separator."""


def plain_numbers(values: pa.Array, decimal: str) -> pa.Array:
    """Text with decimal points and no groups; ambiguous text is made unreadable as a number."""
    trimmed = pc.utf8_trim_whitespace(values)
    if not pc.any(pc.match_substring_regex(trimmed, _MARKS[decimal])).as_py():
        return trimmed if decimal == "." else pc.replace_substring(trimmed, ",", ".")
    grouped = pc.match_substring_regex(trimmed, _GROUPED[decimal])
    joined = pc.replace_substring_regex(trimmed, _MARKS[decimal], "")
    text = pc.if_else(grouped, joined, trimmed)
    if decimal == ".":
        return text
    misread = pc.and_(pc.match_substring_regex(text, FLOAT_TEXT), pc.match_substring(text, "."))
    text = pc.if_else(misread, pc.replace_substring(text, ".", ".."), text)
    return pc.replace_substring_regex(text, _COMMA, r"\1.\2")


def decimal_of(values: pa.Array) -> str | None:
    """ "," if every number may have a decimal comma and at least one must have it; else None."""
    trimmed = pc.utf8_trim_whitespace(values.drop_null())
    if not pc.any(pc.match_substring(trimmed, ",")).as_py():
        return None
    if not pc.all(pc.match_substring_regex(trimmed, _WITH_COMMA)).as_py():
        return None
    return "," if pc.any(pc.match_substring_regex(trimmed, _PROOF)).as_py() else None


def text_number_note(name: str, values: pa.Array) -> str | None:
    """A note for a text column that ``--decimal`` would make numeric; None for others."""
    sample = values.drop_null().slice(0, 1000)
    for decimal in _GROUPED:
        is_numeric = pc.match_substring_regex(plain_numbers(sample, decimal), FLOAT_TEXT)
        if len(sample) and pc.sum(is_numeric).as_py() >= NUMERIC_SHARE * len(sample):
            first = next(
                (text for text in sample.filter(is_numeric).to_pylist() if way_out(text)), None
            )
            return first and f"{name}: numbers such as {first} are kept as text{way_out(first)}"
    return None


def leading_zeros_note(name: str, values: pa.Array) -> str | None:
    """A note for whole numbers such as 01067, of which only text keeps the zeros."""
    sample = values.drop_null().slice(0, 1000)
    padded = sample.filter(pc.match_substring_regex(sample, r"^\s*0\d+\s*$"))
    first = padded[0].as_py() if len(padded) else None
    return (
        first
        and f"{name}: the leading zeros of {first} are not kept; --types {name}=string keeps them"
    )


def way_out(text: str) -> str:
    """A hint at the option that would read this number; "" if none does."""
    text = text.strip()
    fits = [d for d in _GROUPED if re.match(_GROUPED[d], text) or (d == "," and _comma(text))]
    if len(fits) > 1 and re.search(r"[.,]", text):
        return "; --decimal , or --decimal . says how it is to be read"
    return f"; --decimal {fits[0]} reads it" if fits else ""


def _comma(text: str) -> bool:
    return re.match(_COMMA, text) is not None and text != ","


def wider(old: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    """The smallest type that holds the values of both; None if there is none."""
    if old == new or pa.types.is_null(new):
        return old
    types = pa.types
    if types.is_null(old):
        return new
    if is_nested(old) or is_nested(new):
        return _wider_nested(old, new)
    both = (old, new)
    if all(types.is_integer(each) or types.is_floating(each) for each in both):
        if any(map(types.is_floating, both)):
            return pa.float64()
        if types.is_signed_integer(old) == types.is_signed_integer(new):
            return max(both, key=lambda each: each.bit_width)
        return pa.float64() if pa.uint64() in both else pa.int64()
    if all(types.is_string(each) or types.is_large_string(each) for each in both):
        return pa.large_string()
    times = [each for each in both if types.is_timestamp(each)]
    if len(times) == 1 and any(map(types.is_date, both)):
        return times[0]
    if len(times) == 2 and (old.tz is None) == (new.tz is None):
        return pa.timestamp(max(old.unit, new.unit, key=("s", "ms", "us", "ns").index), old.tz)
    return None


def widenings(type_: pa.DataType) -> tuple[pa.DataType, ...]:
    if pa.types.is_integer(type_):
        return (pa.int64(), pa.float64())
    if pa.types.is_timestamp(type_):
        finer = {"s": ("ms", "us", "ns"), "ms": ("us", "ns"), "us": ("ns",), "ns": ()}
        return tuple(pa.timestamp(unit, type_.tz) for unit in finer[type_.unit])
    if pa.types.is_date(type_):
        return (pa.timestamp("us"),)
    return ()


def _wider_nested(old: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    if is_list(old) and is_list(new):
        item = wider(old.value_type, new.value_type)
        return None if item is None else pa.list_(item)
    if not (pa.types.is_struct(old) and pa.types.is_struct(new)):
        return None
    fields: dict[str, pa.DataType] = {each.name: each.type for each in old}
    for each in new:
        wide = wider(fields.get(each.name, pa.null()), each.type)
        if wide is None:
            return None
        fields[each.name] = wide
    both = pa.struct(list(fields.items()))
    return None if storage_of(decided(both)) is None else both


@dataclass
class Field:
    """An output column; ``type`` is None until a value shows it, ``fixed`` if given.

    ``default`` fills absent values; ``decimal`` is a decimal separator seen in CSV, if no point.
    """

    name: str
    type: pa.DataType | None = None
    fixed: bool = False
    required: bool = False
    default: pa.Scalar | None = None
    decimal: str | None = None


class Layout:
    """Which columns of a source are read, under which names, as which types.

    ``options`` or ``named`` are ``ColumnOptions``; ``timeless``: the source is only inspected.
    """

    def __init__(
        self,
        options: ColumnOptions | None = None,
        *,
        target: StreamSchema | None = None,
        timeless: bool = False,
        **named: Any,
    ) -> None:
        options = options or ColumnOptions(**named)
        self.timeless = timeless
        rule, time = options.time_format, options.time
        if not isinstance(rule, TimeRule):
            rule = parse_time_formats(rule, zone=options.time_zone, ambiguous=options.ambiguous)
        self.rule = rule
        self.time_of_day = options.time_of_day
        self.target = target
        self.rename = dict(options.rename or {})
        self.select = None if options.select is None else list(dict.fromkeys(options.select))
        self.types = parse_types(options.types)
        self.file_column = file_column = options.file_column
        self.fields: dict[str, Field] = {}
        self._folded: dict[str, str] = {}
        self.offsets: defaultdict[str, Offsets] = defaultdict(Offsets)
        """Whether times have offsets, by column."""
        self.notes: dict[str, str] = {}
        """Assumptions by subject."""
        if target is not None:
            if time is not None and time.lower() != target.time.lower():
                raise InvalidArgument(
                    f"the stream's time attribute is {target.time!r}, not {time!r}; rename the "
                    f"column ({time}={target.time}) if it holds the time"
                )
            self.time = target.time
            for attribute in target.attributes:
                required = not attribute.nullable
                self.fields[attribute.name] = Field(
                    attribute.name, attribute.type, True, required, attribute.default
                )
            for name, type_ in self.types.items():
                field = self.fields.get(self._key(name))
                if field is None:
                    raise self._unknown_name(name, "types")
                if field.type != type_:
                    raise SchemaMismatch(
                        f"column {name!r} is a {name_of_type(field.type)} in the stream, not a "
                        f"{name_of_type(type_)}"
                    )
        else:
            if time is None and not timeless:
                raise InvalidArgument(
                    "which column is the time of the events? give its name (time)"
                )
            self.time = time or ""
        if file_column is not None and target is None:
            self.fields[file_column] = Field(file_column, pa.string(), True)
        elif file_column is not None and self._key(file_column) not in self.fields:
            raise self._unknown_name(file_column, "file column")
        if self.time_of_day is not None:
            self._check_time_of_day(self.time_of_day)
        if self.select is not None:
            self._selected = {name.lower() for name in self.select} | {self.time.lower()}

    def _check_time_of_day(self, name: str) -> None:
        if self.rule.counting is not None or self.rule.kind == "ticks":
            raise InvalidArgument(
                f"a time of day in a column of its own ({name}) goes with dates: the time format "
                f"is auto, iso or patterns, found {', '.join(self.rule.texts())}"
            )
        folded = name.lower()
        if folded == self.time.lower():
            raise InvalidArgument(
                f"time and time of day are two columns, found {name!r} for both; one that holds "
                "both is the time alone"
            )
        other_columns = [
            *(self.select or ()),
            *self.types,
            *(() if self.target is None else self.fields),
        ]
        if self.file_column is not None:
            other_columns.append(self.file_column)
        if folded in (other.lower() for other in other_columns):
            raise InvalidArgument(
                f"the time of day ({name}) becomes part of the time, and is no column of its own: "
                "it can have no type, be selected, or be one of the stream's; rename it where the "
                "stream has another column of that name"
            )

    # ---------------------------------------------------------------------------------- names

    def is_time_of_day(self, raw: str) -> bool:
        name = self.time_of_day
        return name is not None and self.rename.get(raw, raw).lower() == name.lower()

    def _key(self, name: str) -> str:
        if name in self.fields:
            return name
        if len(self._folded) != len(self.fields):
            self._folded = {each.lower(): each for each in reversed(self.fields)}
        return self._folded.get(name.lower(), name)

    def _unknown_name(self, name: str, what: str, names: Iterable[str] = ()) -> InvalidArgument:
        candidates = list(names) or list(self.fields)
        hint = did_you_mean(name, candidates)
        return InvalidArgument(
            f"{what}: there is no column {name!r}{hint} (columns are {', '.join(candidates)})"
        )

    def output(self, raw: str, source: str) -> str | None:
        """Output name of a source column, None if not selected; may raise ``SchemaMismatch``."""
        name = self.rename.get(raw, raw)
        if self.is_time_of_day(raw):
            return None
        if self.select is not None and name.lower() not in self._selected:
            return None
        key = self._key(name)
        if key in self.fields:
            if self.file_column is not None and key.lower() == self.file_column.lower():
                raise SchemaMismatch(
                    f"{source}: has a column {raw!r} itself; give the file name another column"
                )
            return key
        if self.target is not None:
            hint = did_you_mean(name, self.fields) or ";"
            raise SchemaMismatch(
                f"{source}: the stream has no attribute {name!r}{hint} rename the column, or "
                f"select the ones to read (the stream has {', '.join(self.fields)})"
            )
        if name.lower() == self.time.lower():
            self.time = name
        fixed = next((t for n, t in self.types.items() if n.lower() == name.lower()), None)
        self.fields[name] = Field(name, fixed, fixed is not None, name == self.time)
        self._folded[name.lower()] = name
        if self.file_column is not None:  # stays last
            self.fields[self.file_column] = self.fields.pop(self.file_column)
        return name

    def bind(
        self, names: Sequence[str], source: str, way_out: Callable[[], str] = str
    ) -> dict[str, str]:
        """Map a source's columns to output names; raises for duplicate, unknown or missing ones."""
        counts = Counter(names)
        if len(counts) != len(names):
            doubled, times = min((name, times) for name, times in counts.items() if times > 1)
            raise InvalidData(
                f"{source}: the column name {doubled!r} occurs {times} times; each column needs a "
                "name of its own"
            )
        bound: dict[str, str] = {}
        by_output: dict[str, str] = {}
        for raw in names:
            out = self.output(raw, source)
            if out is None:
                continue
            other = by_output.setdefault(out.lower(), raw)
            if other != raw:
                raise InvalidData(
                    f"{source}: the columns {other!r} and {raw!r} would both become {out!r}; "
                    "rename or leave out one"
                )
            bound[raw] = out
        present = {out.lower() for out in bound.values()}
        if not self.timeless and self.time.lower() not in present:
            raise self._no_column("time column", self.time, names, source, way_out())
        wanted = self.time_of_day
        if wanted is not None and not any(self.is_time_of_day(raw) for raw in names):
            raise self._no_column("column of the time of day", wanted, names, source)
        return bound

    def _no_column(
        self, what: str, name: str, names: Sequence[str], source: str, way_out: str = ""
    ) -> InvalidData:
        shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        hint = did_you_mean(name, names)
        return InvalidData(
            f"{source}: there is no {what} {name!r}{hint} (columns are {shown}){way_out}"
        )

    def type_of(self, raw: str) -> pa.DataType | None:
        """Type of a source column, None if unknown."""
        name = self.rename.get(raw, raw)
        field = self.fields.get(self._key(name))
        if field is not None:
            return field.type
        return next((t for n, t in self.types.items() if n.lower() == name.lower()), None)

    def check_names(self, names: Sequence[str], source: str) -> None:
        """Refuse options that name columns which the source lacks."""
        for old in self.rename:
            if old not in names:
                raise self._unknown_name(old, f"{source}: rename", names)
        present = {self.rename.get(name, name).lower() for name in names}
        if self.file_column is not None:
            present.add(self.file_column.lower())
        for what, wanted in (("select", self.select or ()), ("types", self.types)):
            for name in wanted:
                if name.lower() not in present and self._key(name) not in self.fields:
                    raise self._unknown_name(name, f"{source}: {what}", names)

    # ---------------------------------------------------------------------------------- types

    def check(self, field: Field, source: str, typed: bool) -> None:
        type_ = field.type
        if type_ is None or storage_of(decided(type_)) is not None:
            return
        if typed:
            raise UnsupportedType(
                f"{source}: column {field.name!r} holds {type_}, which a stream cannot store; "
                "cast it, or select the other columns"
            )
        if pa.types.is_nested(type_):
            what = "arrays" if pa.types.is_list(type_) else "objects"
            raise UnsupportedType(
                f"{source}: column {field.name!r} holds {what} ({type_}); give it the type json, "
                "or that of a list or struct, to store them whole, or select the other columns"
            )

    def schema(self) -> pa.Schema:
        """The output columns known so far; undecided ones as text."""
        if self.target is not None:
            return self.target.arrow
        return pa.schema(
            [
                pa.field(field.name, decided(field.type or pa.null()), field.name != self.time)
                for field in self.fields.values()
            ]
        )

    def settle(self) -> None:
        """Fix the types: later values that do not fit are bad."""
        for field in self.fields.values():
            field.type = decided(field.type or pa.null())
            field.fixed = True

    def adopt(self, schema: pa.Schema, time: str) -> None:
        """Take over columns found by a copy in a worker."""
        if self.target is None:
            self.time = time
            self.fields = {f.name: Field(f.name, f.type, required=f.name == time) for f in schema}

    def note(self, about: str, text: str | None) -> None:
        if text:
            self.notes.setdefault(about, text)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert an earlier batch to a wider schema; InvalidData for an integer without float."""
    if batch.schema.equals(schema):
        return batch
    arrays = []
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(at)
        if column.type != field.type:
            rule = TimeRule("iso") if pa.types.is_timestamp(field.type) else None
            result = convert(column, field.type, rule=rule)
            if result.codes is not None:
                value = column[int(result.codes.argmax())].as_py()
                raise InvalidData(
                    f"column {field.name!r} shows fractions and also the whole number {value}, "
                    f"which no {name_of_type(field.type)} holds exactly; give the column a type"
                )
            column = result.values
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
