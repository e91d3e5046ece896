"""Result rows of matches whose first and last events are known, from a pattern bank for example.
A clause that takes one match at a time prefers the same match of a first event whether or not it
sees later events, so the events of the matches suffice.  Not for clauses that read beyond a match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .columns import flat, numbers
from .compiled import CompiledMatch
from .match_stream import MatchStream, condition_columns
from .matcher import Groups, MatchLimits
from .matches import Matches

__all__ = ["KnownMatches"]

IntArray = npt.NDArray[np.int64]


class KnownMatches:
    """Result rows of known matches, as a source in a query plan.  Events of match ``i`` are
    ``offsets[i] .. offsets[i + 1]``, with the clause's input columns and ``@rank``.
    """

    def __init__(self, events: pa.Table, offsets: IntArray) -> None:
        self._events = events
        self._offsets = offsets
        self._found: list[pa.RecordBatch] | None = None

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        """Half-open range of ticks to read: none, the events are here."""
        return 0, 0

    def run(
        self,
        snapshot: object,
        compiled: CompiledMatch,
        metrics: object,
        *,
        check: Callable[[], None] | None = None,
        limits: MatchLimits | None = None,
    ) -> Iterator[pa.RecordBatch]:
        if self._found is None:  # cached
            stream = _Stream(compiled, limits or MatchLimits(), check)
            self._found = list(stream.matching(self._events, self._offsets))
        yield from self._found

    def describe(self) -> str:
        return f"the events of {len(self._offsets) - 1} matches"


class _Stream(MatchStream):
    def matching(self, events: pa.Table, offsets: IntArray) -> Iterator[pa.RecordBatch]:
        names = [name for name in self.input_schema.names if name in events.schema.names]
        self.rows = events.select(names).cast(self.input_schema)
        self.order, self.next_sequence, count = None, events.num_rows, len(offsets) - 1
        self.codes = np.repeat(np.arange(count), np.diff(offsets))
        tick: IntArray = np.zeros(events.num_rows, np.int64)
        if self.compiled.within is not None:
            found, _ = numbers(flat(self.rows.column(str(self.compiled.columns.time))), "i")
            tick = np.ascontiguousarray(found, np.int64)
        tick = tick.view()
        tick.flags.writeable = False  # kernels are compiled for read-only inputs
        now = int(tick.max()) if len(tick) else 0
        groups = Groups(
            offsets, offsets[:-1].copy(), np.zeros(count, np.bool_), np.zeros(count, np.int64),
            tick, now, True,
        )  # fmt: skip
        conditions = pa.table({n: self._column(n) for n in condition_columns(self.compiled)})
        prepared = self.compiled.conditions.prepare(conditions, offsets)

        def firsts(matches: Matches) -> pa.Table:
            first = matches.start == offsets[matches.group]
            return self._results(_of(matches, first), groups)[1]

        for table in self.matcher.run(prepared, groups, firsts, self.check):
            yield from table.to_batches()


def _of(matches: Matches, chosen: npt.NDArray[np.bool_]) -> Matches:
    """Some of the matches; SKIP TO NEXT ROW finds more after the first of a group."""
    if chosen.all():
        return matches
    sizes = np.diff(matches.runs)
    runs = np.repeat(chosen, sizes)
    return Matches(
        matches.group[chosen], matches.start[chosen], matches.length[chosen],
        matches.number[chosen], np.concatenate([[0], np.cumsum(sizes[chosen])]).astype(np.int64),
        matches.row[runs], matches.begin[runs], matches.place[runs],
    )  # fmt: skip
