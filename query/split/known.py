"""The matches that all events up to a tick decide, for live queries.

The part begins at a cut, so that the search is that of the whole stream, and ends at the watermark
without treating it as the end of the stream.  All matches found are matches of the whole stream,
whatever follows, and all that begin behind the cut and are decided are found.  Under EVENT
SELECTION a match is decided with its last event, else when all matches of its partition that begin
before it are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot
from ...store.tail import ticks_of_column
from ..pattern.advancing import AdvancingMatch
from ..pattern.compiled import CompiledMatch, MatchLimits
from ..pattern.decided import Decided
from .cuts import find_cut
from .parts import Cut, RangeStream
from .reach import Reach

__all__ = ["KnownPart", "known_part", "told_at_once"]

Check = Callable[[], None] | None


@dataclass(frozen=True, eq=False)
class KnownPart:
    """Decided matches that begin behind ``low`` (None: the stream begins).  ``before``: tick from
    which on context rows are read; ``known``: greatest tick that counts.
    """

    low: Cut | None
    before: int
    known: int

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        """Half-open range of ticks that it reads."""
        return (None if self.low is None else self.before), self.known + 1

    def run(
        self,
        snapshot: Snapshot,
        compiled: CompiledMatch,
        metrics: ScanMetrics,
        *,
        check: Check = None,
        limits: MatchLimits | None = None,
    ) -> Iterator[pa.RecordBatch]:
        columns = compiled.input_columns

        def scan(low: int | None, high: int) -> Iterator[pa.RecordBatch]:
            return snapshot.scan(low, high, columns, metrics=metrics, check=check)

        if told_at_once(compiled):
            advancing = AdvancingMatch(compiled, limits or MatchLimits(), check)
            low = None if self.low is None else self.before
            yield from self._told(advancing, scan(low, self.known + 1), snapshot.schema.time)
            return
        stream = RangeStream(compiled, limits or MatchLimits(), check)
        if self.low is None:
            yield from stream.matching(scan(None, self.known + 1))
        else:
            yield from stream.surrounding(scan(self.before, self.low.tick))
            stream.begin(self.low.carried)
            yield from stream.matching(scan(self.low.tick, self.known + 1))
        yield from stream.conclude(self.known + 1)

    def _told(
        self, stream: AdvancingMatch, batches: Iterator[pa.RecordBatch], time: str
    ) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                known = int(ticks_of_column(batch.column(time))[0]) - 1
                yield from self._behind(stream.advance(batch, known))
        yield from self._behind(stream.advance(None, self.known))

    def _behind(self, decided: Decided) -> Iterator[pa.RecordBatch]:
        rows = decided.rows
        if self.low is not None and rows.num_rows:
            rows = rows.filter(pa.array((decided.first_tick >= self.low.tick)[decided.match]))
        yield from rows.to_batches()

    def describe(self) -> str:
        low = "" if self.low is None else str(self.low.tick)
        return f"what is decided of time [{low}, {self.known}]"


def told_at_once(compiled: CompiledMatch) -> bool:
    """Whether each match is decided with its last event: independent matches in a known order."""
    return (
        compiled.clause.selection is not None
        and compiled.in_time_order
        and len(compiled.order_by) < 2
        and compiled.clause.rows != "all with unmatched"
        and not compiled.lookahead
    )


def known_part(
    snapshot: Snapshot, compiled: CompiledMatch, tick: int, known: int, check: Check = None
) -> KnownPart:
    """The part with the matches that begin at ``tick`` or later, from a cut before it."""
    reach = Reach(snapshot, compiled)
    at, step = tick, 1
    while at > reach.first:
        cut, _ = find_cut(snapshot, compiled, reach, at, check)
        if cut is not None and cut.last < tick:
            return KnownPart(cut, reach.before(reach.back(cut.tick)), known)
        at -= max(step, at - reach.back(at))
        step *= 2
    return KnownPart(None, reach.first, known)
