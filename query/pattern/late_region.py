"""Updates suspended searches for late events, and finds the matches that these change.

With one match at a time, a late event can change matches far behind it, because a longer match
skips the start of the next.  ``late_matches`` searches the affected partitions with and without the
late events, between rows where both searches agree, and corrects the suspended searches::

    old search   o-[====]-o-o-[=====]-o----[===]-o      o  a row where a search looked for
    late event               x                              a match, [==] rows it skipped
    new search   o-[====]-o-o-o-[======]-o-[===]-o
                          |              |
                        begin           end

*begin*: a row more than one window before the first late event that no match covers, whatever its
start, so every search passes it.  *end*: the row, after the last late event and the rows that read
it by PREV or ``^``, where both searches stand at the same position; if there is none, the
watermark.  Matches that begin outside ``begin .. end`` do not change.  Cost: the affected
partitions over some windows on both sides; only keys of the others.  Limits: clauses with WITHIN,
without NEXT or a match mode, over input ordered by time only.

Late events of a time range are found by comparing event counts per tick.  Within a tick, events
committed earlier always come first.

``GivenMatches`` computes the result rows of matches whose first and last events are given, for
example by a pattern bank.  A clause that takes one match at a time prefers the same match of a
first event whether or not it sees later events, so the events of the matches suffice.  Not for
clauses that read beyond a match.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import kernel
from ...core.times import INT64_MAX, INT64_MIN, moved
from ..contract.operator import MatchLimits, Part, PartRun
from ..sql.match_clause import Skip
from .advancing import AdvancingMatch
from .columns import KeyCodes, flat, group_rows, numbers, take_ranges
from .compiled import CompiledMatch
from .match_stream import MatchStream, condition_columns
from .matcher import Groups
from .matches import Matches
from .results import Decided
from .search import horizon

if TYPE_CHECKING:
    from .compiled import CompiledMatch

IntArray = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Late:
    """Ascending ticks with late events, which follow ``before`` others of the tick."""

    tick: IntArray
    before: IntArray

    def among(self, ticks: IntArray) -> Bools:
        found: Bools = np.zeros(len(ticks), np.bool_)
        begin = np.searchsorted(ticks, self.tick, side="left") + self.before
        found[take_ranges(begin, np.searchsorted(ticks, self.tick, side="right"))] = True
        return found


def late_events(now: IntArray, then: IntArray) -> Late | None:
    """The late events, from ascending ticks now and then; None if events were removed."""
    tick, count = _counted(now)
    had, times = _counted(then)
    before = np.zeros(len(tick), np.int64)
    at = np.searchsorted(tick, had)
    if len(had) and (at.max() >= len(tick) or not np.array_equal(tick[at], had)):
        return None
    before[at] = times
    if (before > count).any():
        return None
    some = before < count
    return Late(tick[some], before[some])


def _counted(ticks: IntArray) -> tuple[IntArray, IntArray]:
    first = np.flatnonzero(np.diff(ticks, prepend=ticks[:1] - 1))
    return ticks[first], np.diff(first, append=len(ticks))


Scan = Callable[[int, int], pa.Table]
"""Events with ``low <= t <= high`` in time order, with the columns of the clause's input."""
ROWS_FEW = 1 << 13
"""Rows that are always searched again, whatever share of the stream they are."""


def late_matches(
    stream: AdvancingMatch, scan: Scan, late: Late, first: int
) -> tuple[pa.Table, pa.Table] | None:
    """Result rows of matches that late events (``late``, at or before the watermark) ended or
    changed, and of those that replace them; updates ``stream``.  None, and no change, where a new
    search is cheaper.
    """
    compiled, watermark = stream.compiled, stream.watermark
    assert compiled.within is not None
    window = max(1, compiled.within)
    back = ahead = 2 * window
    while True:
        low = max(first, int(late.tick[0]) - back)
        high = min(watermark, int(late.tick[-1]) + ahead)
        whole = scan(low, high)
        rows = _Rows.of(compiled, whole, late)
        if rows.table.num_rows > max(ROWS_FEW, whole.num_rows // 4):
            return None
        begin = _begins(compiled, rows, window, None if low <= first else low)
        if begin is None:
            back *= 2
            continue
        after, found = _searched(stream, rows.table, high)
        before, gone = _searched(stream, rows.table.filter(pa.array(~rows.late)), high)
        if high >= watermark or _rejoined(compiled, rows, before, after, high):
            break
        ahead *= 2
    if high >= watermark:
        since = max(low, watermark - window)
        stream.forget(rows.table.filter(pa.array(rows.late)))
        stream.restore(after.export(since), watermark)
        stream.replay(rows.table.filter(pa.array(rows.tick >= since)), watermark)
    return rows.behind(begin, gone), rows.behind(begin, found)


def independent(compiled: CompiledMatch) -> bool:
    """Whether each match is found independently of other matches."""
    clause = compiled.clause
    skip = clause.skip
    return clause.selection is not None or (skip is not None and skip.mode == "next")


def _touches(compiled: CompiledMatch) -> int:
    """Number of rows after an event whose conditions it can affect."""
    _, _, flags = compiled.automaton.tables
    return max(compiled.history, int((flags & 1).any()))


@dataclass(frozen=True)
class _Rows:
    """Rows of the partitions of late events in time order; ``order``, ``offsets``: by partition."""

    table: pa.Table
    late: Bools
    tick: IntArray
    order: IntArray
    offsets: IntArray
    codes: KeyCodes | None
    keys: tuple[str, ...]

    @classmethod
    def of(cls, compiled: CompiledMatch, table: pa.Table, late: Late) -> _Rows:
        ticks, _ = numbers(flat(table.column(str(compiled.columns.time))), "i")
        tick = np.ascontiguousarray(ticks, np.int64)
        is_late = late.among(tick)
        keys = tuple(compiled.partition_by)
        code, codes, count = np.zeros(len(tick), np.int64), None, 1
        if keys:
            codes = KeyCodes(len(keys))
            events = table.filter(pa.array(is_late))
            codes.encode([events.column(name) for name in keys])
            count = codes.count
            code = codes.encode([table.column(name) for name in keys])
            mine = code < count
            table, code, tick, is_late = (
                table.filter(pa.array(mine)), code[mine], tick[mine], is_late[mine],
            )  # fmt: skip
        order, offsets = group_rows(code, count)
        return cls(table, is_late, tick, order, offsets, codes, keys)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def partition(self, keys: pa.Table, rows: int) -> IntArray:
        if self.codes is None:
            return np.zeros(rows, np.int64)
        return self.codes.encode([keys.column(name) for name in self.keys])

    def events(self, place: IntArray) -> tuple[IntArray, IntArray]:
        """Tick, and rank within partition and tick, of a row of each partition."""
        at = self.offsets[:-1] + place
        tick = self.tick[self.order]
        same = _first_at(self.offsets, tick, tick[at])
        return tick[at], place - same

    def behind(self, begin: IntArray, decided: Decided) -> pa.Table:
        """Rows of the matches that begin at or after row ``begin`` of their partition."""
        if not decided.matches:
            return decided.rows
        tick, rank = self.events(begin)
        mine = self.partition(decided.keys, decided.matches)
        first, least = decided.first_tick, tick[mine]
        kept = (first > least) | ((first == least) & (decided.first_rank >= rank[mine]))
        return decided.rows if kept.all() else decided.rows.filter(pa.array(kept[decided.match]))


@kernel
def _places_at(offsets, tick, wanted, out):
    for g in range(offsets.shape[0] - 1):
        left = offsets[g]
        right = offsets[g + 1]
        while left < right:
            middle = (left + right) // 2
            if tick[middle] < wanted[g]:
                left = middle + 1
            else:
                right = middle
        out[g] = left - offsets[g]


def _first_at(offsets: IntArray, tick: IntArray, wanted: IntArray) -> IntArray:
    """Place in its partition of the first row at or after a tick; ticks ascend."""
    out = np.empty(len(offsets) - 1, np.int64)
    _places_at(offsets, tick, wanted, out)
    return out


@kernel
def _uncover(offsets, tick, leads, window, place):
    """Move the place in each partition back until no match spans it from before."""
    for g in range(offsets.shape[0] - 1):
        low = offsets[g]
        at = low + place[g]
        row = at - 1
        while row >= low and tick[at] <= horizon(tick[row], window):
            if leads[row] >= at:
                at = row
            row -= 1
        place[g] = at - low


def _begins(compiled: CompiledMatch, rows: _Rows, window: int, low: int | None) -> IntArray | None:
    """Place of row *begin* of each partition, or None if before tick ``low`` where rows begin."""
    tick, late = rows.tick[rows.order], rows.late[rows.order]
    partition = np.repeat(np.arange(len(rows)), np.diff(rows.offsets))
    bound = np.full(len(rows), INT64_MAX)
    np.minimum.at(bound, partition[late], tick[late])
    place = _first_at(rows.offsets, tick, moved(bound, -window))
    if not independent(compiled):
        before = place.copy()
        near = np.sort(rows.order[tick < bound[partition]])
        starts, lasts = _Found(compiled).matches(rows.table.take(pa.array(near)))
        sorted_ = np.empty(len(rows.order), np.int64)
        sorted_[rows.order] = np.arange(len(rows.order))
        leads = np.full(len(rows.order), -1, np.int64)
        leads[sorted_[near[starts]]] = sorted_[near[lasts]]
        _uncover(rows.offsets, tick, leads, window, place)
        found = tick[rows.offsets[:-1] + place]
        if low is not None and ((place < before) & (found < moved(low, window))).any():
            return None
    read = place  # conditions must be right from here on
    if not independent(compiled):
        read = _first_at(rows.offsets, tick, moved(tick[rows.offsets[:-1] + place], -window))
    if low is not None and (read < _touches(compiled)).any():
        return None
    return place


class _Found(MatchStream):
    def __init__(self, compiled: CompiledMatch) -> None:
        clause = replace(compiled.clause, rows="all", measures=(), skip=Skip("next"))
        super().__init__(replace(compiled, clause=clause, measures=(), _schema=None), MatchLimits())
        self.mode = "all"
        self.inputs = compiled.input_columns  # columns of the rows: only labels are needed
        fields = [compiled.columns.arrow.field(name) for name in self.inputs]
        self.input_schema = self.waiting_schema = pa.schema(fields)
        self.rows = self.input_schema.empty_table()
        self.begins: list[IntArray] = []
        self.lasts: list[IntArray] = []

    def _results(self, matches: Matches, groups: Groups) -> tuple[IntArray, pa.Table]:
        full = np.flatnonzero(matches.length > 0)
        self.begins.append(self._sequence_of(matches.start[full]))
        self.lasts.append(self._sequence_of(matches.last_row[full]))
        return np.zeros(0, np.int64), pa.table({})

    def _put_out(self, watermark: int) -> Iterator[pa.RecordBatch]:
        self.pending = []
        return iter(())

    def matches(self, rows: pa.Table) -> tuple[IntArray, IntArray]:
        for batch in rows.to_batches():
            for _ in self.feed(batch):
                pass
        for _ in self.finish():
            pass
        none = np.zeros(0, np.int64)
        return np.concatenate([none, *self.begins]), np.concatenate([none, *self.lasts])


def _searched(stream: AdvancingMatch, table: pa.Table, high: int) -> tuple[AdvancingMatch, Decided]:
    search = AdvancingMatch(stream.compiled, stream.limits, stream.check, in_turn=True)
    return search, search.advance(table, high)


def _rejoined(
    compiled: CompiledMatch, rows: _Rows, before: AdvancingMatch, after: AdvancingMatch, high: int
) -> bool:
    late = rows.late[rows.order]
    last = np.zeros(len(rows), np.int64)
    at = np.flatnonzero(late)
    partition = np.searchsorted(rows.offsets, at, side="right") - 1
    np.maximum.at(last, partition, at - rows.offsets[partition])
    last += _touches(compiled)
    if (last >= np.diff(rows.offsets)).any():
        return False
    tick, rank = rows.events(last)
    if independent(compiled):
        assert compiled.within is not None
        return bool((moved(tick, max(1, compiled.within)) <= high).all())
    stands = []
    for search in (before, after):
        positions = search.export(INT64_MIN + 1).positions
        where = rows.partition(positions, positions.num_rows)
        found = np.full((2, len(rows)), INT64_MAX)  # after every event
        found[0, where] = positions.column("@tick").to_numpy()
        found[1, where] = positions.column("@rank").to_numpy()
        stands.append(found)
    mine, theirs = stands
    passed = (mine[0] > tick) | ((mine[0] == tick) & (mine[1] > rank))
    return bool(np.array_equal(mine, theirs) and passed.all())


class GivenMatches(Part):
    """Result rows of known matches.  Events of match ``i`` are
    ``offsets[i] .. offsets[i + 1]``, with the clause's input columns and ``@rank``.
    """

    def __init__(self, events: pa.Table, offsets: IntArray) -> None:
        self._events = events
        self._offsets = offsets
        self._found: list[pa.RecordBatch] | None = None

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        return 0, 0  # the events are here

    def run(self, run: PartRun) -> Iterator[pa.RecordBatch]:
        if self._found is None:  # cached
            stream = _Stream(run.compiled, run.limits, run.check)
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
