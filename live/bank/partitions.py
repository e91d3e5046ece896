"""Partitions that a bank has seen: their numbers and positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.sorting import firsts
from ...core.times import INT64_MIN
from ...query.pattern.columns import KeyCodes, flat, group_rows, numbers
from ...query.pattern.retained import ranks
from .searching import Fresh

__all__ = ["Partitions"]

IntArray = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Partitions:
    """Per partition: keys, number of events, and the last one's tick and rank within that tick."""

    def __init__(self, schema: pa.Schema, time: str, partition_by: Sequence[str]) -> None:
        self.time = time
        self.partition_by = list(partition_by)
        self.keys = pa.schema([schema.field(name) for name in partition_by]).empty_table()
        self._codes = KeyCodes(max(1, len(self.partition_by)))
        one = 0 if self.partition_by else 1
        self.count = np.zeros(one, np.int64)
        self.tick = np.full(one, INT64_MIN)
        self.rank = np.full(one, -1)

    def __len__(self) -> int:
        return len(self.count)

    @property
    def nbytes(self) -> int:
        return int(self.count.nbytes + self.tick.nbytes + self.rank.nbytes + self.keys.nbytes)

    def numbers_of(self, table: pa.Table) -> IntArray:
        """The partition of each row; new ones are added."""
        if not self.partition_by or not table.num_rows:
            return np.zeros(table.num_rows, np.int64)
        codes = self._codes.encode([table.column(name) for name in self.partition_by])
        more = self._codes.count - len(self.count)
        if more:
            new, first = firsts(codes)
            rows = pa.array(first[new >= len(self.count)])
            keys = table.select(self.partition_by).take(rows)
            self.keys = pa.concat_tables([self.keys, keys]).combine_chunks()
            self.count = np.concatenate([self.count, np.zeros(more, np.int64)])
            self.tick = np.concatenate([self.tick, np.full(more, INT64_MIN)])
            self.rank = np.concatenate([self.rank, np.full(more, -1)])
        return codes

    def arrange(self, table: pa.Table) -> tuple[Fresh, IntArray]:
        """The next events sorted by partition, and the table row of each."""
        count = table.num_rows
        ticks, _ = numbers(flat(table.column(self.time)), "i")
        tick = np.ascontiguousarray(ticks, np.int64)
        codes = self.numbers_of(table)
        order, offsets = group_rows(codes, len(self.count))
        codes, tick = codes[order], tick[order]
        among = np.empty(count, np.int64)
        ranks(np.arange(len(self.count)), offsets, tick, self.tick, self.rank, among)
        rank = self.count[codes] + np.arange(count) - offsets[codes]
        self.count += np.diff(offsets)
        return Fresh(codes, rank, tick, among, self.count), order

    def keys_at(self, partition: IntArray) -> pa.Table:
        return self.keys.take(pa.array(partition)) if self.partition_by else pa.table({})

    def keep(self, lasting: Bools) -> IntArray:
        """Drop the other partitions; maps old numbers to new ones."""
        self.keys = self.keys.filter(pa.array(lasting)).combine_chunks()
        self._codes = KeyCodes(len(self.partition_by))
        self._codes.encode([self.keys.column(name) for name in self.partition_by])
        self.count, self.tick, self.rank = (
            column[lasting] for column in (self.count, self.tick, self.rank)
        )
        number: IntArray = np.cumsum(lasting) - 1
        return number
