"""Rows of a live recency join's sides, paired by the kernels of the historical join."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..query.pattern.columns import KeyCodes
from ..query.recent.pairs import Events
from .changes import Results
from .combined import Combined

__all__ = ["Side", "TimedRows"]

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Side:
    """``columns`` maps names in the join to result columns; a row ends ``lead`` ticks after its
    result's time and starts at column ``start``, null for a match without events.
    """

    form: Combined
    columns: Mapping[str, str]
    start: str
    lead: int
    keys: tuple[str, ...]

    def rows(self, found: Results, codes: KeyCodes | None) -> TimedRows:
        start = found.columns.column(self.start)
        known = np.asarray(start.is_valid().to_numpy(), np.bool_)
        ticks = start.cast(pa.int64()).fill_null(0).to_numpy().astype(np.int64)
        names = list(self.columns)
        table = found.columns.select([self.columns[name] for name in names]).rename_columns(names)
        code = np.zeros(len(found), np.int64)
        if codes is not None:
            columns = [table.column(name) for name in self.keys]
            code = codes.encode(columns).copy()
            for column in columns:
                if column.null_count:
                    code[column.is_null().to_numpy()] = -1
        ids = found.id.combine_chunks() if isinstance(found.id, pa.ChunkedArray) else found.id
        return TimedRows(found.time, ticks, found.time + self.lead, code, known, ids, table)


@dataclass(frozen=True)
class TimedRows:
    """Rows of a side; equal ``code`` for equal keys, negative for null; ``known``: has events."""

    time: Ints
    start: Ints
    end: Ints
    code: Ints
    known: Mask
    id: pa.Array
    table: pa.Table

    def __len__(self) -> int:
        return len(self.time)

    def where(self, chosen: Mask) -> TimedRows:
        if chosen.all():
            return self
        mask = pa.array(chosen)
        return TimedRows(
            self.time[chosen], self.start[chosen], self.end[chosen], self.code[chosen],
            self.known[chosen], self.id.filter(mask), self.table.filter(mask),
        )  # fmt: skip

    def followed_by(self, *more: TimedRows) -> TimedRows:
        parts = [each for each in (self, *more) if len(each)]
        if len(parts) < 2:
            return parts[0] if parts else self
        return TimedRows(
            np.concatenate([part.time for part in parts]),
            np.concatenate([part.start for part in parts]),
            np.concatenate([part.end for part in parts]),
            np.concatenate([part.code for part in parts]),
            np.concatenate([part.known for part in parts]),
            pa.concat_arrays([part.id for part in parts]),
            pa.concat_tables([part.table for part in parts]).combine_chunks(),
        )  # fmt: skip

    def events(self, rows: Ints) -> Events:
        return Events(self.start[rows], self.end[rows], self.code[rows], self.known[rows])

    @property
    def nbytes(self) -> int:
        ticks = 4 * self.time.nbytes + self.known.nbytes
        return int(ticks + self.id.nbytes + self.table.nbytes)
