"""Where time can be cut without changing what a pattern finds.

After a match the search continues behind it, so matches may depend on all earlier ones.  Near a
tick, the match that a search from each row finds is computed (as with SKIP TO NEXT ROW), hence
where the search continues.  Whatever came before, a partition's search first arrives behind the
tick at its first row there, or where a match that crosses the tick leads.  These few places are
followed until they converge; rows before that place are *carried*, to the part before the cut::

    a search from   1 2 3 4 5 6 7 8 9           partition with the cut at 5
    goes on at      4 3 4 6 6 7 8 9 10          arrives at 5 or (from 4) at 6; 5 leads to 6:
                          |                     every search passes 6

Guarantee: a search that starts behind the carried rows of each partition finds what the search over
the whole stream finds from there on.  Without convergence there is no cut.  Limits: reads at most
``PROBE_EVENTS``, from one reach of a match before the tick to three behind.  AFTER MATCH SKIP TO a
variable is cut only where no match crosses.

For live queries, ``DecidedPart`` finds the matches that all events up to a tick decide.  The part
begins at a cut, so that the search is that of the whole stream, and ends at the watermark without
treating it as the end of the stream.  All matches found are matches of the whole stream, whatever
follows, and all that begin behind the cut and are decided are found.  Under EVENT SELECTION a match
is decided with its last event, else when all matches of its partition that begin before it are.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.sorting import distinct, order_of
from ...core.times import INT64_MAX
from ...errors import ResourceLimit, SqlError
from ...store.snapshot import Snapshot
from ...store.tail import ticks_of_column
from ..contract.operator import Check, MatchLimits, Part, PartRun
from ..pattern.advancing import AdvancingMatch, Decided
from ..pattern.compiled import CompiledMatch
from ..pattern.matcher import Groups
from ..pattern.matches import Matches
from ..replay.run_plan import IntervalStream
from ..sql.match_clause import Skip
from .parts import MOST, Cut, RangeStream, Reach, independent

Ints = npt.NDArray[np.int64]
PROBE_EVENTS = 1 << 20
NEAR = 8
"""Searches are first followed for this fraction of a match's reach."""
PROBE_LIMITS = MatchLimits(steps_max=20_000_000, memory_bytes=512 << 20)


def find_cut(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    reach: Reach,
    tick: int,
    check: Callable[[], None] | None = None,
) -> tuple[Cut | None, int]:
    """The cut at a tick, or None, and the number of events read; ``reach`` must be bounded."""
    if independent(compiled):
        return Cut(tick, last=tick - 1), 0
    once = reach.ahead(tick)
    twice, looked = reach.ahead(once), 0
    near = twice if twice >= MOST else min(twice, tick + (once - tick) // NEAR)
    for until in dict.fromkeys((near, twice)):  # most searches converge early
        cut, count, failed = _probed(snapshot, compiled, reach, tick, until, check)
        looked += count
        if cut is not None or failed:
            return cut, looked
    return None, looked


def _probed(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    reach: Reach,
    tick: int,
    until: int,
    check: Callable[[], None] | None,
) -> tuple[Cut | None, int, bool]:
    begin, end = reach.back(tick), reach.ahead(until)
    low, high = reach.before(begin), reach.after(end)
    count = reach.events(low, high)
    if count > PROBE_EVENTS:
        return None, 0, True
    probe = CutProbe(compiled, check)
    try:
        for first, last, within in (
            (low, begin - 1, False), (begin, end, True), (end + 1, high, False)
        ):  # fmt: skip
            if last < first:
                continue
            stop = None if last >= MOST else last + 1
            for batch in snapshot.scan(first, stop, probe.inputs, check=check):
                for _ in probe.feed_piece(batch, within):
                    pass
        for _ in probe.finish():
            pass
    except (ResourceLimit, SqlError):  # the query itself may never make this search
        return None, count, True
    skip = compiled.clause.skip
    follow = skip is None or skip.mode == "past last"
    return probe.cut(tick, until, follow), count, False


class CutProbe(IntervalStream):
    """Finds the match from every row, and where a search continues after it."""

    def __init__(self, compiled: CompiledMatch, check: Check) -> None:
        clause = replace(
            compiled.clause, skip=Skip("next"), rows="one", measures=()
        )  # the same patterns and conditions
        bare = replace(compiled, clause=clause, measures=(), _schema=None)
        super().__init__(bare, PROBE_LIMITS, check)
        self._rows_codes: list[Ints] = []
        self._rows_ticks: list[Ints] = []
        self._begins: list[Ints] = []
        self._lasts: list[Ints] = []

    def _buffer(self, fresh: pa.Table) -> None:
        super()._buffer(fresh)
        count = fresh.num_rows
        if count:
            self._rows_codes.append(self.codes[len(self.codes) - count :].copy())
            for chunk in fresh.column(str(self.compiled.columns.time)).chunks:
                self._rows_ticks.append(ticks_of_column(chunk))

    def _results(self, matches: Matches, groups: Groups) -> tuple[Ints, pa.Table]:
        full = matches.length > 0  # after an empty match a search goes on at the next row
        last = matches.last_row[full]
        self._begins.append(self._sequence_of(matches.start[full]))
        self._lasts.append(self._sequence_of(last))
        return np.zeros(0, np.int64), pa.table({})

    def _put_out(self, watermark: int) -> Iterator[pa.RecordBatch]:
        self.pending = []
        return iter(())

    def cut(self, tick: int, until: int, follow: bool) -> Cut | None:
        """The cut at a tick, or None; leads are known up to ``until``; ``follow``: may carry."""
        none: Ints = np.zeros(0, np.int64)
        codes = np.concatenate([none, *self._rows_codes])
        ticks = np.concatenate([none, *self._rows_ticks])
        begins = np.concatenate([none, *self._begins])
        lasts = np.concatenate([none, *self._lasts])
        count = len(codes)
        order = order_of(codes)
        after = np.full(count, count, np.int64)  # the next row of the partition, or the end
        same = codes[order[1:]] == codes[order[:-1]]
        after[order[:-1][same]] = order[1:][same]
        leads = after.copy()
        leads[begins] = after[lasts]
        middle = int(np.searchsorted(ticks, tick, side="left"))
        arrival = np.full(int(codes.max()) + 1 if count else 0, count, np.int64)
        behind = codes[middle:][::-1]
        arrival[behind] = np.arange(count - 1, middle - 1, -1)  # the last write is the first row
        crossing = begins[(begins < middle) & (leads[begins] > arrival[codes[begins]])]
        if not len(crossing):
            return Cut(tick, none, tick - 1)
        if not follow:
            return None
        mine = np.zeros(count - middle, np.bool_)
        for code in distinct(codes[crossing]).tolist():
            places = {int(arrival[code])}
            places.update(leads[crossing[codes[crossing] == code]].tolist())
            met = _meet(places, leads, ticks, until)
            if met is None:
                return None
            mine |= (codes[middle:] == code) & (np.arange(middle, count) < met)
        carried = np.flatnonzero(mine)
        last = int(ticks[middle + carried[-1]]) if len(carried) else tick - 1
        return Cut(tick, carried, last)


def _meet(places: set[int], leads: Ints, ticks: Ints, until: int) -> int | None:
    waiting = sorted(places)
    visited = set(waiting)
    while len(waiting) > 1:
        least = heapq.heappop(waiting)
        if int(ticks[least]) > until:
            return None
        target = int(leads[least])
        if target not in visited:
            visited.add(target)
            heapq.heappush(waiting, target)
    return waiting[0]


@dataclass(frozen=True, eq=False)
class DecidedPart(Part):
    """Decided matches that begin behind ``low`` (None: the stream begins).  ``before``: tick from
    which on context rows are read; ``known``: greatest tick that counts.
    """

    low: Cut | None
    before: int
    known: int

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        return (None if self.low is None else self.before), self._end

    @property
    def _end(self) -> int | None:
        """The tick after the last that counts; None where there is none."""
        return None if self.known == INT64_MAX else self.known + 1

    def run(self, run: PartRun) -> Iterator[pa.RecordBatch]:
        compiled, low = run.compiled, None if self.low is None else self.low.tick
        if decided_at_once(compiled):
            advancing = AdvancingMatch(compiled, run.limits, run.check)
            events = run.scan(None if low is None else self.before, self._end)
            yield from self._fed(advancing, events, run.snapshot.schema.time)
            return
        stream = RangeStream(compiled, run.limits, run.check)
        if self.low is not None:
            yield from stream.surrounding(run.scan(self.before, low))
            stream.begin(self.low.carried)
        yield from stream.matching(run.scan(low, self._end))
        if self._end is None:  # no event can follow
            yield from stream.finish()
        else:
            yield from stream.conclude(self._end)

    def _fed(
        self, stream: AdvancingMatch, batches: Iterator[pa.RecordBatch], time: str
    ) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                before = int(ticks_of_column(batch.column(time))[0]) - 1
                yield from self._behind(stream.advance(batch, before))
        yield from self._behind(stream.advance(None, self.known))

    def _behind(self, decided: Decided) -> Iterator[pa.RecordBatch]:
        rows = decided.rows
        if self.low is not None and rows.num_rows:
            rows = rows.filter(pa.array(decided.first_tick >= self.low.tick))
        yield from rows.to_batches()

    def describe(self) -> str:
        low = "" if self.low is None else str(self.low.tick)
        return f"what is decided of time [{low}, {self.known}]"


def decided_at_once(compiled: CompiledMatch) -> bool:
    """Whether each match is decided with its last event: independent matches in a known order."""
    return (
        compiled.clause.selection is not None
        and compiled.in_time_order
        and len(compiled.order_by) < 2
        and compiled.clause.rows != "all with unmatched"
        and not compiled.lookahead
    )


def decided_part(
    snapshot: Snapshot, compiled: CompiledMatch, tick: int, known: int, check: Check = None
) -> DecidedPart:
    """The part with the matches that begin at ``tick`` or later, from a cut before it."""
    reach = Reach(snapshot, compiled)
    at, step = tick, 1
    while at > reach.first:
        cut, _ = find_cut(snapshot, compiled, reach, at, check)
        if cut is not None and cut.last < tick:
            return DecidedPart(cut, reach.before(reach.back(cut.tick)), known)
        at -= max(step, at - reach.back(at))
        step *= 2
    return DecidedPart(None, reach.first, known)
