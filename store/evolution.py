"""Schema evolution on read: leaves and nodes of old segments are converted to the current columns::

    written     t  a INTEGER                      aggregates of a  n, min, max, sum
    read as     t  a BIGINT   b DEFAULT 7         the same, as BIGINT   |   of b  n, 7, 7, 7 n

Lossless: a new type holds every value of the old (``widens``), and aggregates equal those of values
written in the new type, except for the last bits of float sums.  Checksums cover the bytes as they
were written.  A column without a default is not added here: readers find it missing and use nulls.
Code that reads leaf bytes directly must ask ``Evolution.changes`` first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.caches import lazy
from ..schema import Attribute, StreamSchema
from .columns import ChunkEntry, ColumnView, Ranges
from .layout import (
    ROW_ATTRIBUTES,
    ROW_COUNT,
    ROWS_PER_ATTRIBUTE,
    Codec,
    Encoding,
    ValueKind,
    table_rows,
    value_kind,
)
from .leaf import LeafReader, Need

Table = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int64]
_WORD = (1 << 64) - 1
_CONSTANT = ChunkEntry(Encoding.PLAIN, Codec.NONE, 0, 0, 0, 0, 1, 0)


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether every value of ``old`` is exactly a value of ``new``."""
    types = pa.types
    if types.is_integer(old) and types.is_integer(new):
        if types.is_signed_integer(old):
            return bool(types.is_signed_integer(new) and new.bit_width > old.bit_width)
        return bool(new.bit_width > old.bit_width)
    if types.is_integer(old) and types.is_decimal128(new):
        return bool(new.precision - new.scale >= len(str(1 << old.bit_width)))
    if types.is_integer(old) and types.is_floating(new):  # 24 and 53 bits hold them exactly
        return bool(old.bit_width <= (32 if types.is_float64(new) else 16))
    if types.is_float32(old):
        return bool(types.is_float64(new))
    if types.is_decimal128(old) and types.is_decimal128(new):
        return bool(new.scale == old.scale and new.precision > old.precision)
    return False


@dataclass(frozen=True)
class Evolution:
    """Converts columns ``written`` in a file (current names) to those of ``now``, with later
    defaults.
    """

    written: StreamSchema
    now: StreamSchema

    @lazy
    def added(self) -> dict[str, Attribute]:
        return {a.name: a for a in self.now.attributes[len(self.written.attributes) :]}

    @lazy
    def cast(self) -> dict[str, Attribute]:
        pairs = zip(self.written.attributes, self.now.attributes, strict=False)
        return {now.name: now for was, now in pairs if was.type != now.type}

    def changes(self, names: Iterable[str]) -> bool:
        return any(name in self.added or name in self.cast for name in names)

    @lazy
    def _steps(self) -> list[tuple[int, Callable[[Rows, Rows], None]]]:
        steps: list[tuple[int, Callable[[Rows, Rows], None]]] = []
        written = {attribute.name: attribute for attribute in self.written.payload}
        for position, attribute in enumerate(self.now.payload):
            was = written.get(attribute.name)
            row = ROW_ATTRIBUTES + ROWS_PER_ATTRIBUTE * position
            if was is None:
                steps.append((row, partial(_constant, attribute, _summary_of(attribute))))
            elif value_kind(attribute) is ValueKind.FLOAT is not value_kind(was):
                steps.append((row, _as_floats))
        return steps  # all other types have unchanged words

    def table(self, table: Table) -> Table:
        if not self._steps:
            return table
        wide = np.zeros((table_rows(self.now), table.shape[1]), np.int64)
        wide[: len(table)] = table
        for row, change in self._steps:
            change(wide[row : row + ROWS_PER_ATTRIBUTE], wide[ROW_COUNT])
        return wide


def evolution_of(written: StreamSchema, stream: StreamSchema) -> Evolution | None:
    """The conversion of a segment's columns to the current ones; None when they are equal."""
    now, changed = written, False
    for attribute in written.attributes:
        if attribute.name in stream:
            type_ = stream.attribute(attribute.name).type
            if type_ != attribute.type:
                now, changed = now.with_type(attribute.name, type_), True
    for attribute in stream.attributes:
        if attribute.default is not None and attribute.name not in written:
            now = now.with_attribute(
                attribute.name, attribute.type, attribute.nullable, attribute.default
            )
            changed = True
    return Evolution(written, now) if changed else None


class EvolvedLeaf(LeafReader):
    """A ``LeafReader`` with current columns; the evolution gives the schema."""

    __slots__ = ("_evolution",)

    def __init__(
        self,
        data: memoryview,
        offset: int,
        segment_id: int,
        evolution: Evolution,
        file: str,
        need: Need | None = None,
        holes: bool = False,
    ) -> None:
        super().__init__(data, offset, segment_id, evolution.written, file, need=need, holes=holes)
        self._evolution = evolution
        self.schema = evolution.now
        self.zones = evolution.table(self.zones)

    def chunk_bytes(self, name: str) -> int:
        """Stored bytes of a column; 0 for a constant one."""
        return 0 if name in self._evolution.added else super().chunk_bytes(name)

    def chunk_entry(self, name: str) -> ChunkEntry:
        return _CONSTANT if name in self._evolution.added else super().chunk_entry(name)

    def column(
        self,
        name: str,
        first: int,
        end: int,
        dictionary: pa.Array | None = None,
        keep_dictionary: bool = False,
        ranges: Ranges | None = None,
    ) -> pa.Array:
        added = self._evolution.added.get(name)
        if added is not None:
            return added.missing(end - first)
        cast = self._evolution.cast.get(name)
        if cast is None:
            return super().column(name, first, end, dictionary, keep_dictionary, ranges)
        return super().column(name, first, end, dictionary, keep_dictionary).cast(cast.type)

    def uses_dictionary(self, name: str) -> bool:
        return name not in self._evolution.added and super().uses_dictionary(name)

    def verify_column(self, name: str) -> None:
        if name not in self._evolution.added:
            super().verify_column(name)


def _summary_of(attribute: Attribute) -> Rows:
    rows = np.zeros((ROWS_PER_ATTRIBUTE, 1), np.int64)
    ends = np.array([0, 1], np.int64)
    ColumnView(attribute, attribute.missing(1)).aggregate(ends, rows, 0)
    return rows[:, 0]


def _constant(attribute: Attribute, one: Rows, rows: Rows, events: Rows) -> None:
    rows[0] = events
    rows[1], rows[2] = one[1], one[2]
    for count in np.unique(events).tolist():
        rows[3:, events == count] = _times(one, count, value_kind(attribute))[:, None]


def _times(one: Rows, count: int, kind: ValueKind) -> Rows:
    """The words of ``count`` times a sum: exact for integers, two doubles for floats."""
    if kind is ValueKind.FLOAT:
        value = float(one.view(np.float64)[3])
        if not np.isfinite(value):
            return np.array([value, 0.0]).view(np.int64)
        exact = Fraction(value) * count
        try:
            high = float(exact)
        except OverflowError:
            return np.array([np.copysign(np.inf, value), 0.0]).view(np.int64)
        return np.array([high, float(exact - Fraction(high))]).view(np.int64)
    total = ((int(one[4]) << 64) + (int(one[3]) & _WORD)) * count
    return np.array([total & _WORD, (total >> 64) & _WORD], np.uint64).view(np.int64)


def _as_floats(rows: Rows, _: Rows) -> None:
    floats = rows.view(np.float64)
    floats[1:3] = rows[1:3].astype(np.float64)
    high = rows[3].astype(np.float64)  # 2**31 values stay below 2**63, so the low word is the sum
    low = (rows[3] - high.astype(np.int64)).astype(np.float64)
    floats[3], floats[4] = high, low
