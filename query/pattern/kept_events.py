"""Column store for the events that a stream of matches still needs, addressed by input number.
When there are more than ``CHUNKS_MAX`` chunks, the newest are merged, shorter ones first, so an
event is copied a logarithmic number of times.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.sorting import distinct, order_of
from .columns import flat

__all__ = ["KeptEvents"]

IntArray = npt.NDArray[np.int64]
CHUNKS_MAX = 12


class KeptEvents:
    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.rows = 0
        self._tables: list[pa.Table] = []
        self._numbers: list[IntArray] = []

    @property
    def nbytes(self) -> int:
        return int(sum(t.nbytes for t in [*self._tables, *self._numbers]))

    def append(self, table: pa.Table, numbers: IntArray) -> None:
        """Append rows whose numbers are larger than all before."""
        if not table.num_rows:
            return
        self._tables.append(table.combine_chunks())
        self._numbers.append(numbers)
        self.rows += table.num_rows
        while len(self._tables) > CHUNKS_MAX:
            cut, behind = len(self._tables) - 2, self._tables[-1].num_rows
            while cut and self._tables[cut].num_rows <= behind:
                behind += self._tables[cut].num_rows
                cut -= 1
            self._merge(cut)

    def _merge(self, cut: int) -> None:
        self._tables[cut:] = [pa.concat_tables(self._tables[cut:]).combine_chunks()]
        self._numbers[cut:] = [np.concatenate(self._numbers[cut:])]

    def retain(self, numbers: IntArray) -> None:
        """Drop all rows except these (ascending numbers)."""
        kept = self.table(self.schema.names, numbers)
        self._tables = [kept.combine_chunks()] if len(numbers) else []
        self._numbers = [numbers] if len(numbers) else []
        self.rows = len(numbers)

    def take(self, name: str, numbers: IntArray) -> pa.Array:
        return flat(self.table([name], numbers).column(0))

    def table(self, names: Sequence[str], numbers: IntArray) -> pa.Table:
        """Columns of rows; null where the number is negative."""
        schema = pa.schema([self.schema.field(name) for name in names])
        absent = numbers < 0
        nowhere = bool(absent.any())
        if not len(numbers) or not self._tables or (nowhere and absent.all()):
            nulls = [pa.nulls(len(numbers), field.type) for field in schema]
            return pa.table(nulls, names=list(names))
        firsts = np.array([chunk[0] for chunk in self._numbers], np.int64)
        chunk = np.searchsorted(firsts, numbers, side="right") - 1
        if nowhere:
            chunk = np.where(absent, chunk.max(), chunk)
        used = distinct(chunk)
        if len(used) == 1:
            return self._of_chunk(int(used[0]), names, numbers, absent if nowhere else None)
        order = order_of(chunk)
        parts = []
        for c in used.tolist():
            mine = order[np.searchsorted(chunk[order], c) : np.searchsorted(chunk[order], c + 1)]
            lacking = absent[mine] if nowhere else None
            parts.append(self._of_chunk(c, names, numbers[mine], lacking))
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return pa.concat_tables(parts).combine_chunks().take(pa.array(back))

    def _of_chunk(
        self, c: int, names: Sequence[str], numbers: IntArray, absent: npt.NDArray[np.bool_] | None
    ) -> pa.Table:
        known = self._numbers[c]
        if known[-1] - known[0] == len(known) - 1:
            places = numbers - known[0]
        else:
            places = np.searchsorted(known, numbers)
        if absent is not None:
            places = np.where(absent, 0, places)
        return self._tables[c].select(list(names)).take(pa.array(places, mask=absent))
