"""The fast path for small JSON bodies, read on the event loop; all others go to a worker process.

``SmallReader.columns`` takes the values of a body in microseconds, ``SmallReader.batch`` makes one
Arrow batch from many bodies.  What this reader accepts, the full parser (``event_parsing``) reads
as the same events.  It declines whatever it is not certain of: names or types that are not the
stream's, duplicate names, text where a number is expected, digits that a type does not hold, a time
without its unit, times with an offset mixed with times without, a signed zero that the type lacks;
also decimals, dates, binaries, and bodies beyond ``BYTES_MAX`` or ``VALUES_MAX``.  The full parser
words all errors.  Only orjson sees the bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from ...formats.convert import convert
from ...formats.time_rules import TimeRule, parse_time_format
from ...schema import StreamSchema

__all__ = ["BYTES_MAX", "VALUES_MAX", "SmallBody", "SmallReader"]

BYTES_MAX = 32 << 10
"""Longest body: about a millisecond of the event loop."""

VALUES_MAX = 16 << 10

_NULL = type(None)
_OFFSET = re.compile(r"[Tt ].*[Zz+-]")
_NEGATIVE_ZERO = re.compile(rb"[\s:,\[]-0")


class SmallBody(NamedTuple):
    rows: int
    columns: tuple[list[Any], ...]


class _Column(NamedTuple):
    name: str
    target: pa.DataType
    found: pa.DataType  # type of the JSON values
    kinds: frozenset[type]  # Python types of the values
    required: bool
    rule: TimeRule | None


class SmallReader:
    """Reads bodies for one schema and ``time_format`` (what numbers mean as times); thread-safe."""

    def __init__(self, schema: StreamSchema, time_format: str) -> None:
        self.schema = schema
        rule = parse_time_format(time_format)
        columns = [_column_of(schema, position, rule) for position in range(len(schema.names))]
        self._columns = [column for column in columns if column is not None]
        self.usable = len(self._columns) == len(columns)
        self._names = frozenset(schema.names)
        self._unsigned = any(pa.types.is_unsigned_integer(a.type) for a in schema.attributes)

    def columns(self, body: bytes, *, lines: bool) -> SmallBody | None:
        """The values of a body; None: the full parser must read it.  ``lines``: NDJSON."""
        if not self.usable or (self._unsigned and _NEGATIVE_ZERO.search(body)):
            return None
        try:
            if lines:
                texts = body.split(b"\n")
                records = [orjson.loads(text) for text in texts if text and not text.isspace()]
            else:
                records = orjson.loads(body)
                if type(records) is dict:
                    records = [records]
        except orjson.JSONDecodeError:
            return None
        if type(records) is not list or not records:
            return None
        if len(records) * len(self._columns) > VALUES_MAX:
            return None
        strings = 0
        for record in records:
            if type(record) is not dict or not record.keys() <= self._names:
                return None
            strings += len(record)
        columns = []
        for column in self._columns:
            name = column.name
            values = [record.get(name) for record in records]
            kinds = set(map(type, values))
            if not kinds <= column.kinds:
                return None
            if str in kinds:
                strings += sum(type(value) is str for value in values)
                if column.rule is not None and len(values) > 1 and _mixes_offsets(values):
                    return None
            columns.append(values)
        # Of a duplicate name only the last value is seen, but its quotes still count.
        if not _has_strings(body, strings):
            return None
        return SmallBody(len(records), tuple(columns))

    def batch(self, bodies: Sequence[SmallBody]) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
        """Concatenate bodies into a batch, with a mask of bad rows, whose unconvertible values are
        null.  Raises ValueError or OverflowError if a value exceeds every type that its column can
        be read as.
        """
        rows = sum(body.rows for body in bodies)
        bad = np.zeros(rows, np.bool_)
        arrays = []
        for position, column in enumerate(self._columns):
            if len(bodies) == 1:
                values = bodies[0].columns[position]
            else:
                values = list(chain.from_iterable(body.columns[position] for body in bodies))
            found = pa.array(values, column.found)
            if pa.types.is_float64(column.found):
                bad |= _inexact(found, column.target)
            done = convert(
                found, column.target, rule=column.rule, required=column.required, exact=True
            )
            if done.codes is not None:
                bad |= done.codes != 0
            arrays.append(done.values)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema.arrow), bad


def _column_of(schema: StreamSchema, position: int, rule: TimeRule) -> _Column | None:
    """How to read a column; None where only the full parser can: some types, defaults."""
    attribute = schema.attributes[position]
    if attribute.default is not None:
        return None
    target, is_time = attribute.type, attribute.name == schema.time
    kinds: set[type] = {int}
    own: TimeRule | None = rule if is_time else None
    found = pa.int64()
    if pa.types.is_timestamp(target):
        own = rule if rule.kind == "epoch" else TimeRule("iso")
        if own.kind == "iso":
            kinds, found = {str}, pa.string()
    elif pa.types.is_uint64(target):
        found = pa.uint64()
    elif pa.types.is_float32(target) or pa.types.is_float64(target):
        kinds, found = {int, float}, pa.float64()
    elif pa.types.is_boolean(target):
        kinds, found = {bool}, pa.bool_()
    elif pa.types.is_string(target) or pa.types.is_large_string(target):
        kinds, found = {str}, target
    elif not pa.types.is_integer(target):
        return None
    if attribute.nullable:
        kinds.add(_NULL)
    return _Column(attribute.name, target, found, frozenset(kinds), not attribute.nullable, own)


def _mixes_offsets(texts: list[str | None]) -> bool:
    return len({_OFFSET.search(text) is None for text in texts if text is not None}) > 1


def _has_strings(body: bytes, count: int) -> bool:
    """Whether a body holds exactly ``count`` strings, names included."""
    quotes = body.count(b'"')
    if b"\\" in body:
        if b"\\\\" in body:
            return False  # declined: which quotes are escaped is not worth parsing
        quotes -= body.count(b'\\"')
    return quotes == 2 * count


def _inexact(values: pa.Array, target: pa.DataType) -> npt.NDArray[np.bool_]:
    """Numbers that the full parser might read differently: out of range; for ``float32``, which it
    parses from the digits, half-way between two values, or subnormal.
    """
    numbers = values.fill_null(0.0).to_numpy(zero_copy_only=False)
    bad: npt.NDArray[np.bool_] = ~np.isfinite(numbers)
    if pa.types.is_float32(target):
        size = np.abs(numbers)
        bad |= (size > np.finfo(np.float32).max) | ((size < np.finfo(np.float32).tiny) & (size > 0))
        bad |= (numbers.view(np.int64) & 0x1FFF_FFFF) == 0x1000_0000
    return bad
