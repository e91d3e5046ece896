"""INT96 times of Parquet (a day and nanoseconds in it), read without overflow.

Arrow wraps around: nanoseconds outside 1678 to 2261, microseconds beyond five-digit years.  Columns
are read in several units and compared: a batch has microseconds if exact, else nanoseconds, else
text (an error inside lists and structs), whose values that do not fit become bad rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.nested_types import is_nested
from ..errors import InvalidData

__all__ = ["Int96Columns", "names_of_int96"]

UNITS = ("ns", "us", "s")
Ticks = npt.NDArray[np.int64]


def names_of_int96(metadata: Any) -> set[str]:
    """Columns of a file with INT96 times, also inside lists and structs."""
    leaves = (metadata.schema.column(at) for at in range(metadata.num_columns))
    return {leaf.path.split(".", 1)[0] for leaf in leaves if leaf.physical_type == "INT96"}


class Int96Columns:
    """Reads columns in step with the file; ``batches`` reads them in a given unit."""

    def __init__(
        self, source: str, names: list[str], batches: Callable[[str], Iterable[pa.RecordBatch]]
    ) -> None:
        self._source = source
        self._names = names
        self._readers = {unit: _InStep(batches(unit)) for unit in UNITS}

    def into(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        read = {unit: reader.take(batch.num_rows) for unit, reader in self._readers.items()}
        for name in self._names:
            at = batch.schema.get_field_index(name)
            exact = self._exact(name, {unit: table.column(name) for unit, table in read.items()})
            batch = batch.set_column(at, pa.field(name, exact.type), exact)
        return batch

    def _exact(self, name: str, read: dict[str, pa.Array]) -> pa.Array:
        fits_us, fits_ns, fine = [], [], []
        for nanos, micros, seconds in _ticks_of([read[unit] for unit in UNITS]):
            fits_us.append(micros // 1_000_000 == seconds)
            fits_ns.append(fits_us[-1] & (nanos // 1000 == micros))
            fine.append(fits_ns[-1] & (nanos % 1000 != 0))
        if all(f.all() for f in fits_us) and not any(f.any() for f in fine):
            return read["us"]
        if all(f.all() for f in fits_ns):
            return read["ns"]
        if is_nested(read["ns"].type):
            raise InvalidData(
                f"{self._source}: column {name!r} holds times (INT96) of which neither "
                "microseconds nor nanoseconds hold all; write it with a unit"
            )
        texts = [read[unit].cast(pa.string()).to_pylist() for unit in UNITS]
        chosen = np.where(fits_ns[0], 0, np.where(fits_us[0], 1, 2)).tolist()
        return pa.array([texts[unit][row] for row, unit in enumerate(chosen)], pa.string())


class _InStep:
    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._held: list[pa.RecordBatch] = []

    def take(self, rows: int) -> pa.RecordBatch:
        while sum(batch.num_rows for batch in self._held) < rows:
            self._held.append(next(self._batches))
        table = pa.Table.from_batches(self._held).combine_chunks()
        whole = table.to_batches()[0] if rows else self._held[0].slice(0, 0)
        self._held = [whole.slice(rows)] if rows else self._held
        return whole.slice(0, rows)


def _ticks_of(read: list[pa.Array]) -> Iterator[list[Ticks]]:
    """Ticks in each unit of INT96 times, the only ones that come in seconds; 0 for nulls."""
    type_ = read[-1].type
    if pa.types.is_timestamp(type_) and type_.unit == UNITS[-1]:
        ticks = (values.cast(pa.int64()).fill_null(0) for values in read)
        yield [np.asarray(values.to_numpy(zero_copy_only=False)) for values in ticks]
    elif pa.types.is_struct(type_):
        for at in range(type_.num_fields):
            yield from _ticks_of([values.field(at) for values in read])
    elif pa.types.is_list(type_) or pa.types.is_large_list(type_):
        yield from _ticks_of([values.values for values in read])
