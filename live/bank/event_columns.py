"""Columns of numbered events, read by number: fixed-width ones as arrays, others in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...query.pattern.columns import flat
from ...query.pattern.retained import KeptEvents

__all__ = ["EventColumns"]

IntArray = npt.NDArray[np.int64]


class _Bits:
    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._bits: npt.NDArray[Any] = np.empty(1024, f"i{type_.bit_width // 8}")
        self._valid: npt.NDArray[np.bool_] | None = None

    @property
    def nbytes(self) -> int:
        return self._bits.nbytes + (0 if self._valid is None else self._valid.nbytes)

    def append(self, column: pa.ChunkedArray, first: int) -> None:
        array = flat(column)
        end = first + len(array)
        if end > len(self._bits):
            self._bits = _longer(self._bits, first, 2 * end)
        if array.null_count and self._valid is None:
            self._valid = np.ones(len(self._bits), np.bool_)
        bits = np.frombuffer(array.buffers()[1], self._bits.dtype)
        self._bits[first:end] = bits[array.offset : array.offset + len(array)]
        if self._valid is not None:
            if end > len(self._valid):
                self._valid = _longer(self._valid, first, len(self._bits))
            self._valid[first:end] = array.is_valid().to_numpy(zero_copy_only=False)

    def take(self, numbers: IntArray) -> pa.Array:
        valid = None if self._valid is None else pa.array(self._valid[numbers]).buffers()[1]
        held = [valid, pa.py_buffer(self._bits[numbers])]
        return pa.Array.from_buffers(self._type, len(numbers), held)


class EventColumns:
    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.count = 0
        self._plain = {field.name: _Bits(field.type) for field in schema if _is_plain(field.type)}
        self._other = KeptEvents(pa.schema([f for f in schema if f.name not in self._plain]))

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self._plain.values()) + self._other.nbytes

    def append(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        for name, column in self._plain.items():
            column.append(table.column(name), self.count)
        numbers = self.count + np.arange(table.num_rows)
        if self._other.schema.names:
            self._other.append(table.select(self._other.schema.names), numbers)
        self.count += table.num_rows

    def table(self, names: Sequence[str], numbers: IntArray) -> pa.Table:
        others = [name for name in names if name not in self._plain]
        rest = self._other.table(others, numbers) if others else None
        columns = [
            self._plain[name].take(numbers) if rest is None or name in self._plain
            else rest.column(name)
            for name in names
        ]  # fmt: skip
        return pa.table(columns, schema=pa.schema([self.schema.field(name) for name in names]))


def _is_plain(type_: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(type_) and type_.bit_width >= 8)


def _longer(array: npt.NDArray[Any], used: int, room: int) -> npt.NDArray[Any]:
    longer = np.empty(room, array.dtype)
    longer[:used] = array[:used]
    return longer
