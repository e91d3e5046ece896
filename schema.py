"""Stream schemas: attributes, their types and storage, and the time attribute.

A constructed ``StreamSchema`` is storable: the time attribute exists, is a timestamp or an integer
and not nullable; names are unique and not empty; every type has a ``Storage``.

Time inside the engine is ``int64`` *ticks*: the time attribute's own unit since 1970-01-01 00:00
UTC, or the plain integer.  Zoned timestamps are stored as UTC instants; the zone belongs to the
schema.  Maps, durations, intervals and time-of-day are refused; dictionary columns are declared by
their value type.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pyarrow as pa

from .core.caches import lazy
from .core.json_text import JSON, is_json, json_value, repeated
from .core.nested_types import is_nested, normal
from .core.sql_text import quoted_name
from .core.suggestion import did_you_mean
from .core.times import TICKS_PER_SECOND, ticks_of, time_of
from .errors import AttributeNotFound, InvalidArgument, SchemaMismatch, UnsupportedType


class Storage(Enum):
    """How values are stored in a column chunk, and which aggregates it has."""

    SIGNED = "signed"  # int8..int64, date32, date64, timestamps: int64 min, max; 128-bit sum
    UNSIGNED = "unsigned"  # uint8..uint64: uint64 min, max; 128-bit sum
    FLOAT = "float"  # float32, float64: float64 min, max; double-double sum
    BOOL = "bool"  # one byte in memory, one bit in Arrow: 0/1 min, max; sum counts true
    STRING = "string"  # dictionary codes or offsets and bytes: prefix min, max; no sum
    BINARY = "binary"  # as strings
    DECIMAL = "decimal"  # 16 bytes each: count only
    JSON = "json"  # offsets and bytes, as strings, of compact text: count only
    NESTED = "nested"  # lists and structs, an Arrow message a chunk: count only


def storage_of(type_: pa.DataType) -> Storage | None:
    if pa.types.is_signed_integer(type_) or pa.types.is_timestamp(type_) or pa.types.is_date(type_):
        return Storage.SIGNED
    if pa.types.is_unsigned_integer(type_):
        return Storage.UNSIGNED
    if pa.types.is_float32(type_) or pa.types.is_float64(type_):
        return Storage.FLOAT
    if pa.types.is_boolean(type_):
        return Storage.BOOL
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return Storage.STRING
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return Storage.BINARY
    if pa.types.is_decimal128(type_) and type_.scale >= 0:
        return Storage.DECIMAL
    if is_json(type_):
        return Storage.JSON
    if is_nested(type_) and stored_nested(type_) is not None:
        return Storage.NESTED
    return None


def stored_decimal(type_: pa.DataType) -> pa.DataType:
    """The type of a stream for values of a decimal type: 128 bits, no negative scale."""
    digits, scale = type_.precision - min(type_.scale, 0), max(type_.scale, 0)
    return pa.decimal128(min(digits, 38), scale) if scale <= 38 else type_


def stored_nested(type_: pa.DataType) -> pa.DataType | None:
    """A list or struct type in stored form; None if it cannot be stored."""
    return normal(type_, _stored_part)


def _stored_part(type_: pa.DataType) -> pa.DataType | None:
    if pa.types.is_decimal(type_):
        type_ = stored_decimal(type_)
    elif pa.types.is_string_view(type_):
        type_ = pa.string()
    elif pa.types.is_binary_view(type_) or pa.types.is_fixed_size_binary(type_):
        type_ = pa.binary()
    return type_ if not is_json(type_) and storage_of(type_) is not None else None


def require_zones(schema: StreamSchema) -> None:
    """Refuse time zones by which no value could be shown."""
    for attribute in schema.attributes:
        zone = getattr(attribute.type, "tz", None)
        try:
            pa.lib.string_to_tzinfo(zone or "UTC")
        except (KeyError, ValueError, OSError):
            raise UnsupportedType(
                f"attribute {attribute.name!r} has the unknown time zone {zone!r}; cast it to one "
                "such as 'UTC', 'Europe/Berlin' or '+02:00'"
            ) from None


@dataclass(frozen=True)
class Attribute:
    """One column; ``default`` is for events from before it was added and appends that omit it."""

    name: str
    type: pa.DataType
    nullable: bool
    storage: Storage
    default: pa.Scalar | None = field(default=None, compare=False)

    def missing(self, events: int) -> pa.Array:
        """Default values for ``events`` events."""
        if self.default is None:
            return pa.nulls(events, self.type)
        return repeated(self.default, events)

    @property
    def comparable(self) -> bool:
        """Whether values are ordered, as minima, keys and indexes need."""
        return self.storage not in (Storage.JSON, Storage.NESTED)

    @property
    def type_name(self) -> str:
        """The type as messages name it."""
        return "JSON" if self.storage is Storage.JSON else str(self.type)

    @property
    def summable(self) -> bool:
        """Whether sum and average are defined (numbers and booleans; not dates or times)."""
        if self.storage is Storage.SIGNED:
            return bool(pa.types.is_integer(self.type))
        return self.storage in (Storage.UNSIGNED, Storage.FLOAT, Storage.BOOL)


class StreamSchema:
    """The columns of a stream, one of which is time.

    Parameters
    ----------
    arrow : pyarrow.Schema
        Columns in order.  Dictionary types are replaced by their value types.
    time : str
        The time attribute: ``timestamp`` of any unit or an integer of at most 64 bits (stored as
        ``int64`` ticks).
    defaults : mapping of str to value, optional
        Default values by column, other than the time.

    Raises
    ------
    InvalidArgument, UnsupportedType
        If the columns cannot form a stream.
    """

    def __init__(
        self, arrow: pa.Schema, time: str, defaults: Mapping[str, Any] | None = None
    ) -> None:
        names = arrow.names
        if not names:
            raise InvalidArgument(
                "a stream needs at least its time attribute; the schema has no columns"
            )
        for name in names:
            if not name or "\x00" in name:
                raise InvalidArgument(
                    f"attribute names must not be empty or hold NUL characters, found {name!r}"
                )
        doubled = sorted(name for name, times in Counter(names).items() if times > 1)
        if doubled:
            raise InvalidArgument(
                f"each attribute name may occur once, found more than once: {', '.join(doubled)}"
            )
        folded: dict[str, str] = {}
        for name in names:
            other = folded.setdefault(name.lower(), name)
            if other != name:
                raise InvalidArgument(
                    f"attributes {other!r} and {name!r} differ only in case; SQL could not tell "
                    "them apart, rename one"
                )
        if time not in names:
            raise InvalidArgument(
                f"the time attribute {time!r} is not among the columns {', '.join(names)}"
            )
        attributes = []
        remaining = {key: value for key, value in (defaults or {}).items() if value is not None}
        if time in remaining:
            raise InvalidArgument(f"{time!r} is the time of the events and can have no default")
        for column in arrow:
            type_ = column.type
            if pa.types.is_dictionary(type_):
                type_ = type_.value_type
            if is_json(type_):
                type_ = JSON
            elif is_nested(type_):
                type_ = stored_nested(type_) or type_
            nullable = column.nullable
            if column.name == time:
                nullable = False
                if pa.types.is_integer(type_) and not pa.types.is_uint64(type_):
                    type_ = pa.int64()
                elif not pa.types.is_timestamp(type_):
                    raise UnsupportedType(
                        f"the time attribute {time!r} must be a timestamp or an integer, found "
                        f"{type_}; cast it"
                    )
            storage = storage_of(type_)
            if storage is None:
                raise UnsupportedType(
                    f"attribute {column.name!r} has type {type_}, which a stream cannot store; use "
                    "bool, integers, float32/64, string, binary, date, timestamp, decimal128, "
                    "arrow.json, or lists and structs of these but JSON"
                )
            default = _default(column.name, type_, remaining.pop(column.name, None))
            attributes.append(Attribute(column.name, type_, nullable, storage, default))
        if remaining:
            raise InvalidArgument(f"there is no column {next(iter(remaining))!r} to have a default")
        self.attributes: tuple[Attribute, ...] = tuple(attributes)
        self.time = time
        self._by_name = {attribute.name: attribute for attribute in attributes}
        self._folded = folded

    @lazy
    def arrow(self) -> pa.Schema:
        """The Arrow schema of scanned batches."""
        return pa.schema([pa.field(a.name, a.type, a.nullable) for a in self.attributes])

    @property
    def names(self) -> list[str]:
        """Column names in order, including time."""
        return [attribute.name for attribute in self.attributes]

    @property
    def time_type(self) -> pa.DataType:
        return self._by_name[self.time].type

    @property
    def time_unit(self) -> str | None:
        """``s``, ``ms``, ``us`` or ``ns``; None for plain integers."""
        type_ = self.time_type
        return str(type_.unit) if pa.types.is_timestamp(type_) else None

    @lazy
    def ticks_per_second(self) -> int | None:
        """Ticks in a second; None for plain integers."""
        unit = self.time_unit
        return None if unit is None else TICKS_PER_SECOND[unit]

    @lazy
    def payload(self) -> tuple[Attribute, ...]:
        return tuple(a for a in self.attributes if a.name != self.time)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, StreamSchema)
            and self.attributes == other.attributes
            and self.time == other.time
        )

    def __hash__(self) -> int:
        return hash((self.time, self.attributes))

    def __repr__(self) -> str:
        columns = ", ".join(f"{a.name} {a.type_name}" for a in self.attributes)
        return f"StreamSchema({columns}; time {self.time})"

    def resolve(self, name: str) -> str:
        """Find a column by name: exactly, else case-insensitively; raises AttributeNotFound."""
        if name in self._by_name:
            return name
        column = self._folded.get(name.lower())
        if column is None:
            hint = did_you_mean(name, self.names)
            raise AttributeNotFound(
                f"no attribute {name!r}{hint} (the stream has {', '.join(self.names)})"
            )
        return column

    def attribute(self, name: str) -> Attribute:
        return self._by_name[self.resolve(name)]

    def select(self, columns: Iterable[str] | None) -> list[str]:
        """Resolve column names; None stands for all columns in order."""
        if columns is None:
            return self.names
        return [self.resolve(name) for name in columns]

    def tick_range(self, start: object, end: object) -> tuple[int | None, int | None]:
        """Both ends of a range of times in ticks; None is open."""
        low = None if start is None else self.to_ticks(start)
        return low, None if end is None else self.to_ticks(end)

    def to_ticks(self, value: object) -> int:
        """Convert a time to ticks of the time attribute's unit.

        Parameters
        ----------
        value : int, str, datetime, date, numpy.datetime64, pyarrow.Scalar
            An integer is in ticks, a string ISO 8601, a naive datetime in UTC.

        Raises
        ------
        InvalidArgument
            If the value is no time, is finer than the unit, or exceeds 64 bits.
        """
        return ticks_of(value, self.time, self.time_unit)

    def from_ticks(self, ticks: int) -> object:
        """Convert ticks to the time attribute's declared type (datetime or int).

        Timestamps that ``datetime`` cannot represent exactly (years outside 1–9999, nanoseconds)
        become ``pyarrow`` scalars.
        """
        return time_of(ticks, self.time_type)

    @lazy
    def defaults(self) -> dict[str, pa.Scalar]:
        """Defaults by attribute, without attributes that have none."""
        return {a.name: a.default for a in self.attributes if a.default is not None}

    def with_attribute(
        self, name: str, type_: pa.DataType, nullable: bool = True, default: Any = None
    ) -> StreamSchema:
        """The schema with another attribute at the end."""
        if name.lower() in self._folded:
            raise SchemaMismatch(
                f"the stream has an attribute {self._folded[name.lower()]!r} already"
            )
        arrow = self.arrow.append(pa.field(name, type_, nullable))
        return StreamSchema(arrow, self.time, {**self.defaults, name: default})

    def with_type(self, name: str, type_: pa.DataType) -> StreamSchema:
        """The schema with a wider type for an attribute."""
        position = self.names.index(name)
        arrow = self.arrow.set(position, self.arrow.field(position).with_type(type_))
        return StreamSchema(arrow, self.time, self.defaults)

    def renamed(self, names: Sequence[str]) -> StreamSchema:
        """The same columns with new names, in order."""
        fields = [field.with_name(name) for field, name in zip(self.arrow, names, strict=True)]
        now = dict(zip(self.names, names, strict=True))
        defaults = {now[name]: default for name, default in self.defaults.items()}
        return StreamSchema(pa.schema(fields), now[self.time], defaults)

    def without(self, name: str) -> StreamSchema:
        """The schema without an attribute other than time."""
        defaults = {key: default for key, default in self.defaults.items() if key != name}
        return StreamSchema(self.arrow.remove(self.names.index(name)), self.time, defaults)

    def head(self, columns: int) -> StreamSchema:
        defaults = {a.name: a.default for a in self.attributes[:columns]}
        return StreamSchema(pa.schema(list(self.arrow)[:columns]), self.time, defaults)

    def to_json(self) -> dict[str, str]:
        """A form for manifests and messages; ``from_json`` reads it."""
        ipc = self.arrow.serialize().to_pybytes()
        described = {"time": self.time, "arrow": base64.b64encode(ipc).decode("ascii")}
        return described | self.defaults_json()

    def defaults_json(self) -> dict[str, str]:
        """The defaults as in ``to_json``; empty if there are none."""
        if not self.defaults:
            return {}
        return {"defaults": base64.b64encode(_written(self.defaults)).decode("ascii")}

    @classmethod
    def from_json(cls, document: dict[str, str]) -> StreamSchema:
        buffer = pa.py_buffer(base64.b64decode(document["arrow"]))
        defaults = None
        if "defaults" in document:
            with pa.ipc.open_stream(base64.b64decode(document["defaults"])) as reader:
                row = reader.read_next_batch()
            defaults = {name: row.column(i)[0] for i, name in enumerate(row.schema.names)}
        return cls(pa.ipc.read_schema(buffer), document["time"], defaults)


def _default(name: str, type_: pa.DataType, value: Any) -> pa.Scalar | None:
    """A default in its column's type; InvalidArgument if it does not fit exactly."""
    if value is None:
        return None
    if is_json(type_):
        text = value.as_py() if isinstance(value, pa.Scalar) else value
        parsed = json_value(text)
        if parsed is None and text is not None:
            raise InvalidArgument(f"the default of {name!r} is JSON text, found {text!r}")
        return parsed
    if is_nested(type_):
        raise InvalidArgument(f"{name!r} is a {type_}, and such a column has no default but null")
    scalar = value
    try:
        if not isinstance(value, pa.Scalar):  # integers above int64 need an explicit type
            plain = isinstance(value, int) and pa.types.is_integer(type_)
            scalar = pa.scalar(value, type_) if plain else pa.scalar(value)
        if not scalar.is_valid:
            return None
        cast = scalar.cast(type_)
        same = scalar.type == type_ or _same(scalar, cast)
    except (pa.ArrowException, ValueError, OverflowError, TypeError):
        same = False
    if not same:
        shown = scalar.as_py() if isinstance(scalar, pa.Scalar) else value
        raise InvalidArgument(
            f"the default of {name!r} is a {type_}, which does not hold {shown!r} as it is"
        )
    return cast


def _same(original: pa.Scalar, cast: pa.Scalar) -> bool:
    if pa.types.is_floating(cast.type):
        value = float(original.as_py())
        if pa.types.is_float64(cast.type) or value != value:
            return True  # a decimal literal stands for the nearest double
        return bool(abs(value) == float("inf") or abs(cast.as_py()) != float("inf"))
    if pa.types.is_floating(original.type):
        return bool(cast.as_py() == original.as_py())
    return True  # other casts raise if they would lose anything


def _written(values: Mapping[str, pa.Scalar]) -> bytes:
    """Values by name as one row of an Arrow stream, which preserves types and bits."""
    row = pa.record_batch([repeated(value, 1) for value in values.values()], names=list(values))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as writer:
        writer.write_batch(row)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def stream_schema(name: str, schema: pa.Schema | StreamSchema, time: str | None) -> StreamSchema:
    """The schema for a new stream; InvalidArgument if it is none or lacks the time attribute."""
    if isinstance(schema, StreamSchema):
        if time is not None and time != schema.time:
            raise InvalidArgument(f"time is {schema.time!r} in the schema but {time!r} was given")
        return schema
    if time is None:
        raise InvalidArgument("create_stream needs time=, the name of the time attribute")
    if not isinstance(schema, pa.Schema):
        raise InvalidArgument(
            f"the schema of stream {name!r} must be a pyarrow.Schema, such as "
            f"pyarrow.schema([('t', pyarrow.timestamp('us'))]); found a {type(schema).__name__}"
        )
    return StreamSchema(schema, time)


_NAME = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^",]+?))\s*(,|$)')


@dataclass(frozen=True)
class Uniqueness:
    """What makes an event a duplicate.

    Attributes
    ----------
    columns : tuple of str
        The key, in the schema's names.
    within : int
        Ticks, inclusive.
    """

    columns: tuple[str, ...]
    within: int


def key_names(setting: str | Sequence[str]) -> tuple[str, ...]:
    """The columns that a setting names: a list, or a text with commas between them.

    In a text, a name that holds a comma stands in double quotes.

    Raises
    ------
    InvalidArgument
        There is none, one is there twice, or it is no list of names.
    """
    names: tuple[str, ...]
    if isinstance(setting, str):
        names = split_names(setting)
    elif isinstance(setting, Sequence) and all(isinstance(name, str) for name in setting):
        names = tuple(setting)
    else:
        names = ()
    if not names or not all(names):
        raise InvalidArgument(
            f"unique names the columns of a key, such as 'device, seq'; found {setting!r}"
        )
    folded = [name.lower() for name in names]
    twice = next((name for i, name in enumerate(names) if name.lower() in folded[:i]), None)
    if twice is not None:
        raise InvalidArgument(f"unique names {twice!r} twice")
    return names


def key_text(names: Sequence[str]) -> str:
    """The text that :func:`key_names` reads as these names."""
    plain = re.compile(r'[^",\s]+')
    return ", ".join(name if plain.fullmatch(name) else quoted_name(name) for name in names)


def stream_settings(
    options: Mapping[str, Any] | None,
    unique: str | Sequence[str] | None,
    within: str | int | None,
) -> dict[str, Any]:
    """Settings of a stream with those two, where they are given."""
    settings = dict(options or {})
    if unique is not None:
        settings["unique"] = unique
    if within is not None:
        settings["within"] = within
    return settings


def split_names(text: str) -> tuple[str, ...]:
    """Names between commas; one that holds a comma is quoted.  Empty if the text is no list."""
    names, at = [], 0
    while True:
        match = _NAME.match(text, at)
        if match is None:
            return ()
        names.append(match[2] if match[1] is None else match[1].replace('""', '"'))
        if not match[3]:
            return tuple(names)
        at = match.end()


def resolved(names: Sequence[str], schema: StreamSchema) -> tuple[str, ...]:
    """Columns as the schema calls them.

    Raises
    ------
    AttributeNotFound, InvalidArgument
    """
    columns = tuple(schema.resolve(name) for name in names)
    for name in columns:
        attribute = schema.attribute(name)
        if not attribute.comparable:
            raise InvalidArgument(
                f"unique names {name!r}, which is {attribute.type_name}: such values are not "
                "compared; keep what makes an event unique in columns of its own"
            )
    return columns
