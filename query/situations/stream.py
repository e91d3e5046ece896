"""The running state of MATCH_SITUATIONS: events and watermarks in, matches out.

::

    rows up to a watermark -> words -> runs that ended  ┐
                                       runs that last   ├ sorted by partition, name, time
    situations kept                                     ┘   -> triggers -> matches -> rows

Output is ordered by instant, then partition key (nulls first), then starts in the order of DEFINE,
whatever the batches.  Memory holds the situations that a later match can reach (by WITHIN or
implied durations; else all, up to the memory limit) with their measured rows, and a word per
partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.times import INT64_MIN
from ...errors import ResourceLimit, SqlError
from ..pattern.columns import flat, numbers
from ..pattern.compiled import MatchLimits
from .compiled import CompiledSituations
from .deriving import SPAN, Derived, Deriver, Stretches
from .matching import Found, Matching
from .results import Results

__all__ = ["SituationStream"]

IntArray = npt.NDArray[np.int64]
ROWS_FIRST = 1 << 16
ROWS_MAX = 1 << 20
ROWS_PER_GROUP = 8


class SituationStream:
    """One run of a compiled clause.  ``stretches``: rows belong to stretches, given by column
    ``@span``.  ``certified``: filters matches to those whose situations begin where they seem to.
    ``since``: matches known before this tick are skipped, but their situations are stored.
    """

    def __init__(
        self,
        compiled: CompiledSituations,
        limits: MatchLimits,
        check: Callable[[], None] | None = None,
        stretches: Stretches | None = None,
        certified: Callable[[Found], Found] | None = None,
        since: int = INT64_MIN,
    ) -> None:
        self.compiled = compiled
        self.limits = limits
        self.check = check or (lambda: None)
        self.inputs = compiled.input_columns
        self.schema = pa.schema([compiled.columns.arrow.field(n) for n in self.inputs])
        if stretches is not None:
            self.inputs = [*self.inputs, SPAN]
            self.schema = self.schema.append(pa.field(SPAN, pa.int64()))
        self.certified = certified
        self.since = since
        self.deriver = Deriver(compiled, stretches)
        self.matching = Matching(compiled, limits)
        self.results = Results(compiled, limits)
        self.situations = 0
        self.matches = 0
        self.waiting: list[pa.RecordBatch] = []
        self.waiting_rows = 0
        self.target = ROWS_FIRST

    # -- input ----------------------------------------------------------------------------------

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take a batch; yields what is known by the tick before its last."""
        if batch.num_rows == 0:
            return
        self.check()
        self.waiting.append(batch.select(self.inputs))
        self.waiting_rows += batch.num_rows
        if not self.compiled.columns.ordered:
            self._check_memory()
        elif self.waiting_rows >= max(self.target, ROWS_PER_GROUP * self.deriver.groups):
            self.target = min(ROWS_MAX, self.target * 2)
            table = self._collected()
            ticks = self._ticks(table)
            cut = int(np.searchsorted(ticks, ticks[-1], side="left"))
            if not cut:  # all of one tick: more may follow
                self.target = max(self.target, 2 * self.waiting_rows)
                self._check_memory()
                return
            self.waiting = table.slice(cut).to_batches()
            self.waiting_rows = table.num_rows - cut
            yield from self.advance(table.slice(0, cut), int(ticks[-1]) - 1)

    def finish(self, last: int | None = None) -> Iterator[pa.RecordBatch]:
        """The input has ended; yields what is known at its last tick."""
        table = self._collected()
        self.waiting, self.waiting_rows = [], 0
        if not self.compiled.columns.ordered:
            table = table.take(pa.array(np.argsort(self._ticks(table), kind="stable")))
        ticks = self._ticks(table)
        if len(ticks) or last is not None:
            yield from self.advance(table, int(ticks[-1]) if last is None else last)

    def precede(self, rows: pa.Table) -> None:
        """Take the first rows of new partitions, earlier than any match begins."""
        self.deriver.take(rows.select(self.inputs).cast(self.schema), INT64_MIN)

    def advance(self, rows: pa.Table, watermark: int) -> Iterator[pa.RecordBatch]:
        """Take all rows up to a watermark (tick) in time order; yields new matches."""
        derived = self.deriver.take(rows, watermark)
        self.results.add_rows(rows, derived)
        yield from self._known(derived, watermark)

    def advance_words(
        self, ticks: IntArray, words: npt.NDArray[np.uint64], watermark: int
    ) -> Iterator[pa.RecordBatch]:
        """As ``advance``, for the times and words of rows where a word may change; for clauses
        without PARTITION BY and GAP, whose measures read no rows.
        """
        yield from self._known(self.deriver.follow_words(ticks, words), watermark)

    def _known(self, derived: Derived, watermark: int) -> Iterator[pa.RecordBatch]:
        self.situations += len(derived.ended)
        self.check()
        if watermark >= self.since:
            since, self.since = self.since, watermark + 1
            yield from self._matches(derived, since, watermark)
        else:
            self.matching.absorb(derived)
        oldest = self.matching.retain(watermark, self.deriver)
        self.results.forget(oldest)
        self._check_memory()

    def _matches(self, derived: Derived, since: int, watermark: int) -> Iterator[pa.RecordBatch]:
        for found in self.matching.find(derived, self.deriver, since, watermark, self.check):
            if self.certified is not None:
                found = self.certified(found)
            self.matches += len(found.instant)
            yield from self.results.rows_of(found, self.deriver.keys)

    def figures(self) -> tuple[tuple[str, int | float], ...]:
        return (
            ("situations", self.situations),
            ("matches", self.matches),
            ("partitions", self.deriver.groups),
            ("join_orders_chosen", self.matching.plans),
        )

    def _collected(self) -> pa.Table:
        table = pa.Table.from_batches(self.waiting, None if self.waiting else self.schema)
        return table.cast(self.schema) if table.schema != self.schema else table

    def _ticks(self, table: pa.Table) -> IntArray:
        ticks, valid = numbers(flat(table.column(self.compiled.time)), "i")
        if valid is not None:
            raise SqlError(
                f"an event without {self.compiled.time} has no place among the others; leave it "
                f"out: WHERE {self.compiled.time} IS NOT NULL"
            )
        return np.asarray(ticks, np.int64)

    @property
    def nbytes(self) -> int:
        size = self.deriver.nbytes + self.matching.nbytes + self.results.nbytes
        return size + int(sum(batch.nbytes for batch in self.waiting))

    def _check_memory(self) -> None:
        size = self.nbytes
        if size > self.limits.memory_bytes:
            raise ResourceLimit(
                f"more than {self.limits.memory_bytes} bytes of situations and their events may "
                "still be part of a match; add WITHIN, or bounds of their durations (LASTING)"
            )
