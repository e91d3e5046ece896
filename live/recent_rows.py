"""Rows of the sides of a live recency join: their times, keys and names.

Purpose
    The results of a side, which is a live query of its own, become :class:`TimedRows`: rows with a
    start and an end in ticks.  Pairs of them are found by the kernels that answer the join over
    history (:mod:`chronicle.query.recent.pairs`), so that both say the same.

Layout
    ::

        a side     its form                 the query of the side
                   a result's time  + lead = the end of its row
                   a column                = its start; null for a match without events
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..query.pattern.groups import KeyCodes
from ..query.recent.pairs import Events
from .changes import Results
from .combined import Combined

__all__ = ["Side", "TimedRows"]

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Side:
    """One side of a live recency join.

    Attributes
    ----------
    form : Combined
        Its rows as results.
    columns : mapping of str to str
        Columns of the join that come from it, and what the results call them.
    start : str
        Column of the results: when a row begins.
    lead : int
        Ticks from the time of a result to the end of its row.
    keys : tuple of str
        Columns of the join that are equal in a pair.
    """

    form: Combined
    columns: Mapping[str, str]
    start: str
    lead: int
    keys: tuple[str, ...]

    def rows(self, found: Results, codes: KeyCodes | None) -> TimedRows:
        """Results as rows; ``codes`` number the keys of both sides."""
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
    """Rows of a side.

    Attributes
    ----------
    time : int64[n]
        Of the results that they are.
    start, end : int64[n]
        Ticks.
    code : int64[n]
        Equal for equal keys; negative where one is null, which is equal to nothing.
    known : bool[n]
        Whether a row has events.
    id : pyarrow.Array
    table : pyarrow.Table
        Columns of the join.
    """

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
        """Some of them."""
        if chosen.all():
            return self
        mask = pa.array(chosen)
        return TimedRows(
            self.time[chosen], self.start[chosen], self.end[chosen], self.code[chosen],
            self.known[chosen], self.id.filter(mask), self.table.filter(mask),
        )  # fmt: skip

    def followed_by(self, *more: TimedRows) -> TimedRows:
        """These, then others."""
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
        """Some of them, as the kernels take them."""
        return Events(self.start[rows], self.end[rows], self.code[rows], self.known[rows])

    @property
    def nbytes(self) -> int:
        """Memory."""
        ticks = 4 * self.time.nbytes + self.known.nbytes
        return int(ticks + self.id.nbytes + self.table.nbytes)
