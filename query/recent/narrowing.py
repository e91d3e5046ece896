"""How a side of a recency join is narrowed: a row pattern near some regions only, the regions in
which partners can lie, and the cost model that chooses the side to narrow.

==========================================  ================================================
clause                                      what is read for a region
==========================================  ================================================
independent matches, bounded                the region, widened by the reach of a match
matches depend on earlier ones, bounded     from a cut before it to a cut behind it
independent matches, unbounded              the region, and on until its matches are decided
else                                        the whole stream
==========================================  ================================================

All matches that lie in one region are found, and those are matches of the whole stream.  Others
that are found may be false, but have no partner as near as they would need.

Matches of a pattern without WITHIN and greatest length, near ranges of time::

    range                     [ low ........ high ]
    MAXIMAL, SKIP TO NEXT     [ read ............ and on ...) until all starts are decided
    INCREMENTAL      [ ....   [ read ............ and on ...)
                     '- all searches that are open here have died before low

Matches that begin (INCREMENTAL: end) in a range are those of the whole stream, each once, if the
clause's matches are independent.  ``back_to`` needs at most 64 positions, and fails if searches
stay open for long.

Where partners of some rows can lie: ranges of time, for all partitions or single keys::

    live rows      [ts ... te]            archive rows lie in   [te - P, te - 1]
    archive rows   [ts ... te]            live rows lie in      [ts + 1, ts + P]

The union replaces DejaVu's result cache: each event of the other side is read once, however regions
overlap (its equation 2).  Bounds are inclusive and saturate.

The cost model of recency joins: which side runs first, and whether the other is narrowed.

Equations (1) to (4) of the paper, with the union of regions in place of ``M min(P, D)``::

    eager           N_l c_l + N_a c_a
    live first      N_l c_l + min(U_a, N_a) c_a      U_a: union of the regions of live rows
    archive first   N_a c_a + min(U_l, N_l) c_l
    U = n (1 - exp(-M P / n))     M rows, thrown at random into n events; P in events

``N`` is what the side would replay alone, ``c`` the cost of an event.  Before running ``M`` is
estimated from a sample; after the first side has run, the union is known.

The sample is a few pieces of the stream, in which matches are counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.native import kernel
from ...core.sorting import counted_order, order_of
from ...core.times import INT64_MAX, INT64_MIN, TICKS_PER_SECOND, half_open, moved
from ...indexes.stream_indexes import StreamIndexes
from ...store.snapshot import Snapshot, tail_start
from ..contract.operator import Check, MatchLimits, Part, PartRun
from ..pattern.automaton import ACCEPT
from ..pattern.columns import KeyCodes, flat
from ..pattern.compiled import CompiledMatch
from ..pattern.match_stream import condition_columns
from ..pattern.matcher import Groups
from ..replay.applicability import demands, not_applicable
from ..replay.planning import KeyedRanges, Near, plan_match
from ..replay.replay_plan import ReplayIntervals, ReplayPlan
from ..replay.run_plan import IntervalStream
from ..replay.spans import READ_GAP
from ..replay.timeline import Timeline
from ..split.cuts import find_cut
from ..split.parts import Reach, independent
from .pairs import Events, ahead, back

Ints = npt.NDArray[np.int64]


@kernel
def _furthest(key, high, reach):
    """The running maximum of ends among the ranges of each key."""
    for i in range(key.shape[0]):
        reach[i] = high[i]
        if i and key[i] == key[i - 1] and reach[i - 1] > high[i]:
            reach[i] = reach[i - 1]


@dataclass(frozen=True)
class Regions:
    """Disjoint, inclusive tick ranges, by key and time.  ``key``: codes (0 without keys);
    ``columns`` and ``values``: key columns of the side that is read, and their values by code.
    """

    low: Ints
    high: Ints
    key: Ints
    columns: tuple[str, ...] = ()
    values: tuple[pa.Array, ...] = field(default=(), compare=False)

    def __len__(self) -> int:
        return len(self.low)

    @classmethod
    def of(
        cls,
        low: Ints,
        high: Ints,
        key: Ints | None = None,
        columns: tuple[str, ...] = (),
        values: tuple[pa.Array, ...] = (),
    ) -> Regions:
        """The union of ranges in any order; empty ones are dropped."""
        key = np.zeros(len(low), np.int64) if key is None else key
        filled = low <= high
        low, high, key = low[filled], high[filled], key[filled]
        if not len(low):
            return cls(low, high, key, columns, values)
        order = order_of(low, key)
        low, high, key = low[order], high[order], key[order]
        reach = np.empty_like(high)
        _furthest(key, high, reach)
        new = np.ones(len(low), np.bool_)  # starts of merged ranges
        new[1:] = (low[1:] > moved(reach[:-1], 1)) | (key[1:] != key[:-1])
        first = np.flatnonzero(new)
        last = np.append(first[1:], len(low)) - 1
        return cls(low[first], reach[last], key[first], columns, values)

    def hull(self) -> Regions:
        return self if not self.columns else Regions.of(self.low, self.high)

    def widened(self, before: int, after: int) -> Regions:
        low = moved(self.low, -before)
        return Regions.of(low, moved(self.high, after), self.key, self.columns, self.values)

    def coarser(self, factor: int) -> Regions:
        """The regions in ticks that are ``factor`` times as long."""
        if factor == 1:
            return self
        low = np.where(self.low == INT64_MIN, INT64_MIN, -(-self.low // factor))
        high = np.where(self.high == INT64_MAX, INT64_MAX, self.high // factor)
        return Regions.of(low, high, self.key, self.columns, self.values)


def factor_of(type_: pa.DataType, unit: pa.DataType) -> int:
    """Ticks of a finer unit in one of a type of time."""
    if not pa.types.is_timestamp(type_):
        return 1
    return TICKS_PER_SECOND[unit.unit] // TICKS_PER_SECOND[type_.unit]


def regions_for_archive(live: Events, distance: int | None) -> tuple[Ints, Ints, Ints]:
    rows = live.taking_part()
    end = live.end[rows]
    return back(end, distance), moved(end, -1), live.key[rows]


def regions_for_live(archive: Events, distance: int | None) -> tuple[Ints, Ints, Ints]:
    rows = archive.taking_part()
    start = archive.start[rows]
    return moved(start, 1), ahead(start, distance), archive.key[rows]


def regions_of_spans(
    intervals: ReplayIntervals, timeline: Timeline, distance: int | None, for_archive: bool
) -> Regions:
    """Where partners of the matches in replay intervals can lie, before any match is known.
    ``for_archive``: the partners are archive rows.
    """
    spans = intervals.spans
    if not len(spans):
        return Regions.of(np.zeros(0, np.int64), np.zeros(0, np.int64))
    low, high = timeline.ticks_at(spans.starts), timeline.ticks_at(spans.ends - 1)
    for number, (first, last) in intervals.by_time.items():
        low[number], high[number] = min(low[number], first), max(high[number], last)
    if not for_archive:
        return Regions.of(low, ahead(high, distance))
    return Regions.of(back(low, distance), high)


SMALL_EVENTS = 1 << 15
"""Events of both sides up to which nothing is narrowed: planning would cost as much."""
WORTH = 0.75
"""A side is narrowed if its regions are at most this fraction of what it would replay."""
SELDOM = 0.25
"""Both sides narrow each other if intervals leave at most this fraction of each stream."""


@dataclass(frozen=True)
class SideCost:
    """What is known of a side before it runs.  It would replay ``events`` of its stream's ``total``
    alone, each for ``event_cost`` (same unit on both sides); ``rows()`` estimates its results and
    may take a sample; ``region``: events of the other stream per row; ``obstacle``: why it cannot
    be narrowed.
    """

    events: float
    event_cost: float
    total: int
    rows: Callable[[], float]
    region: float
    obstacle: str = ""

    @property
    def cost(self) -> float:
        return self.events * self.event_cost

    def narrowed(self, other: SideCost) -> float:
        if not self.total:
            return 0.0
        union = self.total * -math.expm1(-other.rows() * other.region / self.total)
        return self.event_cost * min(union, self.events)


@dataclass(frozen=True)
class Choice:
    order: str
    why: str


def choose(hint: str, kind: str, live: SideCost, archive: SideCost) -> Choice:
    """The order of evaluation; ``kind`` LEFT and ANTI need all live rows."""
    if hint != "auto":
        return Choice(hint, "asked for")
    if live.total + archive.total <= SMALL_EVENTS:
        return Choice("eager", "the streams are small")
    whole = kind in ("left", "anti")
    if archive.obstacle and (live.obstacle or whole):
        why = f"a {kind.upper()} join asks for all live rows" if whole else live.obstacle
        return Choice("eager", f"neither side can be narrowed: {archive.obstacle}; {why}")
    if archive.obstacle:
        return Choice("archive_first", f"the archive side cannot be narrowed: {archive.obstacle}")
    if whole or live.obstacle:
        why = f"a {kind.upper()} join asks for all live rows" if whole else live.obstacle
        return Choice("live_first", why)
    if _few(live) and _few(archive):
        return Choice("both", "indexes and the coarse map leave little of either side")
    sides = {"live_first": (live, archive), "archive_first": (archive, live)}
    costs: dict[str, float] = {}
    for order in sorted(sides, key=lambda order: sides[order][0].cost):
        first, second = sides[order]
        if costs and min(costs.values()) <= first.cost:
            break  # its first side alone costs more than the other order
        costs[order] = first.cost + second.narrowed(first)
    best = min(costs, key=lambda order: costs[order])
    costs["eager"] = live.cost + archive.cost
    if costs[best] > WORTH * costs["eager"]:
        best = "eager"  # narrowing would cost what it saves
    listed = ", ".join(f"{order.replace('_', ' ')} {cost:.3g}" for order, cost in costs.items())
    return Choice(best, f"expected cost: {listed}")


def _few(side: SideCost) -> bool:
    return side.events <= SELDOM * side.total


def worthwhile(union: float, alone: float) -> bool:
    return union <= WORTH * alone


PIECES = 4
PIECE_EVENTS = 2048


def rows_per_event(
    snapshot: Snapshot, compiled: CompiledMatch, check: Callable[[], None] | None = None
) -> float:
    """Result rows per event in a sample; without a match, half a match is assumed."""
    timeline = Timeline(snapshot)
    if not timeline.total:
        return 1.0
    size = min(PIECE_EVENTS, max(1, timeline.total // PIECES))
    starts = np.linspace(0, timeline.total - size, PIECES).astype(np.int64)
    lows, highs = timeline.ticks_at(starts), timeline.ticks_at(starts + size - 1)
    events = 0

    def batches() -> Iterator[pa.RecordBatch]:
        """The pieces one after the other; false matches across a seam do not matter."""
        nonlocal events
        before = None
        for low, high in zip(lows.tolist(), highs.tolist(), strict=True):
            low = low if before is None else max(low, before + 1)
            before = high
            if low > high:
                continue
            for batch in snapshot.scan(low, high + 1, compiled.input_columns, check=check):
                events += batch.num_rows
                yield batch

    rows = sum(batch.num_rows for batch in compiled.run(batches(), check=check))
    return float(max(rows, 0.5) / max(events, 1))


# mypy: disable-error-code="no-untyped-def"


AHEAD_ROWS = 256
"""Rows read at first beyond a range; doubled each time."""
BACK_ROWS = (64, 1024, 1 << 14)
"""Rows before a range that are searched for a place to begin."""


@dataclass(frozen=True, eq=False)
class OpenEndedPart(Part):
    """The matches near disjoint, ascending, inclusive tick ranges.  Reading starts at ``begin``
    (``low`` or before); ``column``: the time that must lie in a range, start or end of a match;
    ``keys``: other values of these columns are dropped.
    """

    low: Ints
    high: Ints
    begin: Ints
    column: str
    keys: tuple[tuple[str, pa.Array], ...] = field(default=())

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        return None, None

    def run(self, run: PartRun) -> Iterator[pa.RecordBatch]:
        timeline = Timeline(run.snapshot)
        history = max(1, run.compiled.history)
        for low, high, begin in zip(self.low, self.high, self.begin, strict=True):
            for batch in self._near(run, timeline, int(high), int(begin), history):
                ticks = batch.column(self.column).cast(pa.int64())
                values = ticks.fill_null(low - 1).to_numpy(zero_copy_only=False)
                inside = (values >= low) & (values <= high)
                if inside.any():
                    yield batch.filter(pa.array(inside))

    def _near(
        self, run: PartRun, timeline: Timeline, high: int, begin: int, history: int
    ) -> Iterator[pa.RecordBatch]:
        stream = _Decided(run.compiled, run.limits, run.check)
        before = _history_from(run.snapshot, timeline, begin, history)
        if before < begin:
            for batch in self._scan(run, before, begin - 1):
                yield from stream.feed_piece(batch, False)
        for batch in self._scan(run, begin, high):
            yield from stream.feed_piece(batch, True)
        stream.edge = stream.fed
        if high < INT64_MAX:
            for batch in _growing(self._scan(run, high + 1, INT64_MAX)):
                yield from stream.settle()
                if stream.decided:
                    return
                yield from stream.feed_piece(batch, True)
        yield from stream.finish()

    def _scan(self, run: PartRun, low: int, high: int) -> Iterator[pa.RecordBatch]:
        if low > high:
            return
        for batch in run.scan_between(low, high):
            yield _of_keys(batch, self.keys)

    def describe(self) -> str:
        return f"{len(self.low)} ranges of time, and on until every match that counts is decided"


class _Decided(IntervalStream):
    def __init__(self, compiled: CompiledMatch, limits: MatchLimits, check: Check) -> None:
        super().__init__(compiled, limits, check)
        self.edge = INT64_MAX
        self._open_from = 0

    @property
    def decided(self) -> bool:
        return self._open_from >= self.edge

    def settle(self) -> Iterator[pa.RecordBatch]:
        yield from self._search(final=False)

    def _keep(self, groups: Groups) -> int:
        self._open_from = super()._keep(groups)
        return self._open_from


def _growing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    size = AHEAD_ROWS
    for batch in batches:
        at = 0
        while at < batch.num_rows:
            piece = batch.slice(at, size)
            yield piece
            at += piece.num_rows
            size *= 2


def _of_keys(batch: pa.RecordBatch, keys: tuple[tuple[str, pa.Array], ...]) -> pa.RecordBatch:
    for name, values in keys:
        batch = batch.filter(pc.is_in(batch.column(name), value_set=values))
    return batch


def _history_from(snapshot: Snapshot, timeline: Timeline, tick: int, rows: int) -> int:
    span = snapshot.time_range
    if span is None or tick <= span[0]:
        return tick
    if snapshot.dirty_ranges():
        return tail_start(snapshot, span[0], tick - 1, rows)
    place = int(timeline.lower(np.array([tick]))[0])
    return timeline.tick(max(0, place - rows)) if place else tick


# ------------------------------------------------------------------------------ back


@kernel
def _open_at(words, offsets, ticks, follow, every, history, low):
    """Whether a search that was open before the rows (at any position) may be open at a tick."""
    for g in range(offsets.shape[0] - 1):
        alive = every
        for row in range(offsets[g], offsets[g + 1]):
            if ticks[row] >= low:
                return True
            if row - offsets[g] < history:
                continue
            reached = np.uint64(0)
            left = alive
            p = 0
            while left:
                if left & np.uint64(1):
                    reached |= follow[p]
                left >>= np.uint64(1)
                p += 1
            alive = reached & words[row]
            if alive == 0:
                break
    return False


def back_to(
    snapshot: Snapshot,
    timeline: Timeline,
    compiled: CompiledMatch,
    low: int,
    high: int,
    keys: tuple[tuple[str, pa.Array], ...],
    check: Check = None,
) -> int | None:
    """A tick such that matches that end in [low, high] begin there or later; None if unknown."""
    plan = compiled.conditions
    if not plan.by_position:
        return None
    span = snapshot.time_range
    if span is None or low <= span[0]:
        return low
    late = bool(snapshot.dirty_ranges())
    place = int(timeline.lower(np.array([low]))[0])
    follow = np.zeros(64, np.uint64)
    for p, edges in enumerate(compiled.automaton.edges):
        if p:
            bits = sum(1 << int(plan.bit[e.target]) for e in edges if e.target != ACCEPT)
            follow[int(plan.bit[p])] = bits
    every = np.uint64(sum(1 << int(plan.bit[p]) for p in range(1, len(compiled.automaton.names))))
    columns = compiled.input_columns
    time = str(compiled.columns.time)
    for rows in BACK_ROWS:
        first = max(0, place - rows)
        begin = timeline.tick(first) if first else span[0]
        until = high if compiled.partition_by else low - 1
        start, end = half_open(begin, until)
        batches = [
            _of_keys(batch, keys) for batch in snapshot.scan(start, end, columns, check=check)
        ]
        if not batches:
            return begin
        table = pa.Table.from_batches(batches)
        order, offsets = None, np.array([0, table.num_rows], np.int64)
        if compiled.partition_by:
            coded = KeyCodes(len(compiled.partition_by))
            codes = coded.encode([table.column(name) for name in compiled.partition_by])
            order, offsets = counted_order(codes, coded.count)
            table = table.take(pa.array(order))
        words = plan.prepare(table.select(condition_columns(compiled)), offsets).words
        ticks = flat(table.column(time)).cast(pa.int64()).to_numpy()
        unknown = compiled.history if first or late else 0
        # without partitions the rows end before the range: a dummy row at low tests what is open
        if not compiled.partition_by:
            words = np.append(words, np.uint64(0))
            ticks = np.append(ticks, low)
            offsets = np.array([0, len(ticks)], np.int64)
        if not _open_at(words, offsets, ticks, follow, every, unknown, low):
            return begin
        if not first:
            return begin
    return None


CUTS_MAX = 64
"""Most regions, after near ones are merged, for which cuts are searched."""
CUT_TRIES = 4
RANGES_MAX = 4096
"""Most ranges that are read one by one."""


@dataclass(frozen=True)
class Narrowed:
    """How a side is read: by ``replay``, ``part``, or as it would be alone; ``why``: the reason."""

    replay: ReplayPlan | None = None
    part: OpenEndedPart | None = None
    why: str = ""


def obstacle(compiled: CompiledMatch) -> str:
    """Why a clause cannot be narrowed, judged by its text; empty if it can."""
    if compiled.numbered:
        return "MATCH_NUMBER counts all matches"
    reason = not_applicable(replace(compiled, order_by=compiled.order_by[:1]))
    if reason:
        return reason
    if compiled.partition_by and demands(compiled).neighbours:
        return "^, $, PREV or NEXT of a partition may look at events far away"
    if not _bounded(compiled) and not independent(compiled):
        return "nothing bounds a match, and matches depend on earlier ones"
    return ""


def _bounded(compiled: CompiledMatch) -> bool:
    if compiled.within is not None:
        return True
    return _longest(compiled) is not None


def _longest(compiled: CompiledMatch) -> int | None:
    if compiled.partition_by or compiled.clause.selection not in (None, "contiguous"):
        return None
    return compiled.automaton.length_max


def narrow(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    indexes: StreamIndexes | None,
    strategy: str,
    regions: Regions,
    check: Check = None,
) -> Narrowed:
    """How to find the matches in regions; the result has the columns ``@start`` and ``@end``."""
    if not len(regions) or snapshot.time_range is None:
        none = np.zeros(0, np.int64)
        return Narrowed(part=OpenEndedPart(none, none, none, "@start"), why="no region is left")
    if not _bounded(compiled):
        return _open_ended(snapshot, compiled, regions, check)
    if not independent(compiled):
        return _between_cuts(snapshot, compiled, indexes, strategy, regions, check)
    within, longest = compiled.within, _longest(compiled)
    if within is None:
        assert longest is not None
        hull, rows = regions.hull(), longest
    else:
        hull, rows = regions.hull().widened(within, within), 0
    keyed = None
    if regions.columns and within is not None:
        wide = regions.widened(within, within)
        keyed = KeyedRanges(wide.low, wide.high, wide.key, wide.columns, wide.values)
    near = Near(hull.low, hull.high, rows, keyed)
    return _planned(snapshot, compiled, indexes, strategy, near, check)


def _planned(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    indexes: StreamIndexes | None,
    strategy: str,
    near: Near,
    check: Check,
) -> Narrowed:
    plan = plan_match(snapshot, compiled, indexes, strategy, check=check, near=near)
    return Narrowed(replay=plan) if plan.intervals is not None else Narrowed(why=plan.reason)


def _between_cuts(
    snapshot: Snapshot,
    compiled: CompiledMatch,
    indexes: StreamIndexes | None,
    strategy: str,
    regions: Regions,
    check: Check,
) -> Narrowed:
    reach = Reach(snapshot, compiled)
    hull = regions.hull()
    # one pair of cuts for regions that are near by the length of a match
    apart = 8 * (compiled.within or 0)
    low, high = _joined(Timeline(snapshot), hull.low, hull.high, READ_GAP, apart)
    if len(low) > CUTS_MAX:
        return Narrowed(why=f"{len(low)} regions, and each would need cuts around it")
    lows, highs = [], []
    for first, last in zip(low.tolist(), high.tolist(), strict=True):
        tick = first
        for _ in range(CUT_TRIES):
            tick = reach.back(tick)
            if tick <= reach.first:
                tick = INT64_MIN
                break
            if _clean(snapshot, compiled, reach, tick, check):
                break
        else:
            return Narrowed(why="no place was found before a region that no match crosses")
        lows.append(tick)
        tick = last
        for _ in range(CUT_TRIES):
            tick = min(reach.ahead(tick), INT64_MAX - 1) + 1
            if tick > reach.last:
                tick = INT64_MAX
                break
            if _clean(snapshot, compiled, reach, tick, check):
                break
        else:
            return Narrowed(why="no place was found behind a region that no match crosses")
        highs.append(tick - 1 if tick < INT64_MAX else INT64_MAX)
    joined = Regions.of(np.array(lows, np.int64), np.array(highs, np.int64))
    near = Near(joined.low, joined.high)
    return _planned(snapshot, compiled, indexes, strategy, near, check)


def _clean(
    snapshot: Snapshot, compiled: CompiledMatch, reach: Reach, tick: int, check: Check
) -> bool:
    cut, _ = find_cut(snapshot, compiled, reach, tick, check)
    return cut is not None and not len(cut.carried)


def _open_ended(
    snapshot: Snapshot, compiled: CompiledMatch, regions: Regions, check: Check
) -> Narrowed:
    timeline = Timeline(snapshot)
    hull = regions.hull()
    low, high = _joined(timeline, hull.low, hull.high, READ_GAP, 0)
    span = snapshot.time_range
    if span is not None:
        inside = (low <= span[1]) & (high >= span[0])
        low, high = np.maximum(low[inside], span[0]), high[inside]
    if len(low) > RANGES_MAX:
        return Narrowed(why=f"{len(low)} regions, and nothing bounds a match")
    keys = tuple(zip(regions.columns, regions.values, strict=True))
    if compiled.clause.mode != "incremental":
        return Narrowed(part=OpenEndedPart(low, high, low, "@start", keys))
    begin = np.empty_like(low)
    for i, (first, last) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        begin_tick = back_to(snapshot, timeline, compiled, first, last, keys, check)
        if begin_tick is None:
            return Narrowed(why="matches may have begun long before a region")
        begin[i] = begin_tick
    return Narrowed(part=OpenEndedPart(low, high, begin, "@end", keys))


def _joined(
    timeline: Timeline, low: Ints, high: Ints, events: int, ticks: int
) -> tuple[Ints, Ints]:
    if len(low) < 2 or not timeline.total:
        return low, high
    gap = timeline.lower(low[1:]) - timeline.upper(high[:-1])
    near = (gap <= events) | (low[1:].astype(np.float64) - high[:-1] <= ticks)
    first = np.flatnonzero(np.concatenate(([True], ~near)))
    return low[first], high[np.append(first[1:], len(low)) - 1]
