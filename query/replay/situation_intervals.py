"""Plan and run a pattern of situations over intervals around looked-up starts, or the whole stream.

An interval is a range of one partition (without PARTITION BY: of the stream), of whole ticks, wide
enough for every match with a start in its middle; each runs by itself.  Guarantee: rows and order
are those of a full replay.  A run that begins with an interval's first row counts only if
*certified*: the row of its partition before does not satisfy the condition, is further away than
GAP, or does not exist.  This is tested only where a match uses the run.  A run that lasts to the
end of its interval has no end there.  While late events wait for compaction, and with PREV,
intervals are read as time ranges with the rows of all partitions.

A pattern of situations becomes outlines: events that every match has, in order.  The first row of a
situation satisfies its condition, so it can be looked up like a symbol; a chain of starts that must
follow one another is an outline::

    A OVERLAPS B AND B BEFORE C        starts of A < B < C      (A) gap (B) gap (C)
    A INTERSECTS B                     none comes first         (A)     (B)

The row at the end of a situation does not satisfy its condition; each end is an outline of one
symbol, in case the condition nearly always holds.  Every match has an event for each symbol, in
this order, within the greatest distance of a start from the instant of the match.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlglot import exp

from ...core.native import kernel
from ...core.sorting import distinct, order_of
from ...core.times import INT64_MAX, INT64_MIN
from ...indexes.stream_indexes import StreamIndexes
from ...schema import StreamSchema
from ...store.prune import AnyOf, IsNull, Never, Prune
from ...store.snapshot import Snapshot
from ..conditions.constants import Folder
from ..contract.operator import InstantRange, MatchLimits, PartRun
from ..pattern.binding import Bound, Navigation
from ..pattern.buffers import row_words
from ..situations.compiled import CompiledSituations
from ..situations.deriving import SPAN, Stretches
from ..situations.stream import Before, Certifier, SituationStream
from .applicability import Demands
from .context import PlanContext
from .partitions import PartitionKeys
from .planning import Considered, consider, located_plan, retrying
from .replay_plan import ReplayPlan
from .run_plan import ReplayRun, read_numbered
from .spans import Spans
from .symbols import Block, Outline, Symbol, condition_prune
from .terms import index_terms
from .timeline import read_positions

_UNDERSTOOD = (
    exp.And, exp.Or, exp.Not, exp.Paren, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.EQ, exp.NEQ,
    exp.Between, exp.Column, exp.Identifier, exp.Literal, exp.Neg, exp.Boolean,
)  # fmt: skip


def chains(
    compiled: CompiledSituations, schema: StreamSchema, folder: Folder | None = None
) -> tuple[Outline, ...]:
    """Outlines of a clause whose matches are bounded in time; empty for others."""
    count = len(compiled.names)
    reach = [compiled.reach_of(i) for i in range(count)]
    bounded = [ticks for ticks in reach if ticks is not None]
    if len(bounded) < count:
        return ()
    folder = folder or Folder({}, dt.datetime.now(dt.timezone.utc))
    symbols = []
    for name, bound in zip(compiled.names, compiled.conditions, strict=True):
        prune = condition_prune(bound, name, schema, folder)
        symbols.append(Symbol(name, prune, index_terms(prune, schema)))
    impossible = any(isinstance(symbol.prune, Never) for symbol in symbols)
    whole = dict.fromkeys(_chain(compiled, i) for i in range(count) if symbols[i].prune is not None)
    longest = max(bounded)
    rows = [tuple(symbols[i] for i in chain) for chain in whole]
    for i, bound in enumerate(compiled.conditions):
        false = contrary(bound, compiled.names[i], schema, folder) if _tells(compiled, i) else None
        if false is not None:
            ending = Symbol(f"end of {compiled.names[i]}", false, index_terms(false, schema))
            rows.append((ending,))

    def outline(chain: tuple[Symbol, ...]) -> Outline:
        blocks = tuple(Block((symbol,)) for symbol in chain)
        return Outline(blocks, True, True, None, longest, False, impossible)

    return tuple(map(outline, rows))


def _tells(compiled: CompiledSituations, name: int) -> bool:
    """Whether a match has a row that ends the situation of a name, no later than its instant."""
    leaves = compiled.conditions[name].leaves
    shifted = any(leaf.shift for leaf in leaves if isinstance(leaf, Navigation))
    by_then = int(compiled.distances[-1, len(compiled.names) + name]) <= 0
    return compiled.gap is None and not shifted and by_then


def _chain(compiled: CompiledSituations, through: int) -> tuple[int, ...]:
    """The longest chain of names through one, each of which begins before the next."""
    names = range(len(compiled.names))

    def longest(name: int, forward: bool) -> tuple[int, ...]:
        best: tuple[int, ...] = ()
        for other in names:
            first, second = (name, other) if forward else (other, name)
            if other != name and compiled.distances[second, first] < 0:
                tail = longest(other, forward)
                best = max(best, (other, *tail), key=len)
        return best

    return (*reversed(longest(through, False)), through, *longest(through, True))


def contrary(bound: Bound, name: str, schema: StreamSchema, folder: Folder) -> Prune | None:
    """What holds where a condition is false or unknown; None if unsupported."""
    if not all(isinstance(node, _UNDERSTOOD) for node in bound.scalar.walk()):
        return None
    negated = Bound(exp.Not(this=exp.Paren(this=bound.scalar.copy())), bound.leaves, bound.at)
    false = condition_prune(negated, name, schema, folder)
    if false is None:
        return None
    columns = {leaf.row.column for leaf in bound.leaves if isinstance(leaf, Navigation)}
    nulls = [IsNull(column) for column in sorted(c for c in columns if c is not None)]
    return AnyOf((false, *nulls))


Ints = npt.NDArray[np.int64]
BY_TIME_MOST = 0.7
"""Share of the stream beyond which time ranges are replaced by a full replay."""
NEAR = 10_000.0
"""Events whose keys are read to find that of one start: most of those between two."""
WALKED = 1 << 16
"""Rows read at a time to find the row before an interval."""


def plan_situations_replay(
    snapshot: Snapshot,
    compiled: CompiledSituations,
    indexes: StreamIndexes | None,
    strategy: str,
    folder: Folder,
    check: Callable[[], None],
) -> ReplayPlan:
    if strategy == "replay":
        return ReplayPlan(strategy, "asked for")
    begun = time.perf_counter()
    outlines = chains(compiled, snapshot.schema, folder)
    reason = _obstacle(compiled, outlines)
    if reason:
        return ReplayPlan(strategy, reason)
    wants = Demands(compiled.partition_by, True, False, 0, 0)
    phases = {"outline_ms": (time.perf_counter() - begun) * 1000}

    def plan() -> ReplayPlan:
        context = PlanContext.of(snapshot, outlines[0], wants, indexes, None, check)
        context = replace(context, near=NEAR)
        choices = [
            consider(replace(context, pattern=one), strategy, evaluating=False) for one in outlines
        ]
        return located_plan([min(choices, key=_rarest)])

    replay = retrying(plan) or ReplayPlan(strategy, "the indexes kept changing")
    return _by_time_pays(snapshot, compiled, replace(replay, phases=phases))


def _rarest(way: Considered) -> float:
    """Events that satisfy the rarest term of an outline, or may without one."""
    if way.model is None:
        return 0.0
    entries = (offer.entries for offer in way.plan.choice.offers)
    return min(entries, default=float(way.plan.allowed))


def _obstacle(compiled: CompiledSituations, outlines: tuple[Outline, ...]) -> str:
    if not outlines:
        if any(compiled.reach_of(i) is None for i in range(len(compiled.names))):
            return "neither WITHIN nor durations bound how long a match takes"
        return "no condition says which leaves can satisfy it"
    return ""


# ------------------------------------------------------------------------------- by time


def by_time(snapshot: Snapshot, compiled: CompiledSituations) -> bool:
    """Whether intervals are time ranges with all partitions: with late events, or with PREV."""
    return bool(compiled.history or snapshot.dirty_ranges())


def instants_of(
    snapshot: Snapshot, compiled: CompiledSituations, plan: ReplayPlan
) -> list[tuple[int, int]]:
    """Disjoint, inclusive tick ranges in which the matches of a plan become known."""
    intervals, timeline, span = plan.intervals, plan.timeline, snapshot.time_range
    reach = compiled.reach
    assert intervals is not None
    assert reach is not None
    if timeline is None or span is None:
        return []
    ranges: list[tuple[int, int]] = []
    spans = intervals.spans
    for number, (start, end) in enumerate(zip(spans.starts.tolist(), spans.ends.tolist(),
                                              strict=True)):  # fmt: skip
        low, high = intervals.by_time.get(number, (timeline.tick(start), INT64_MIN))
        # a match can become known between events
        high = max(high, timeline.tick(end) - 1 if end < timeline.total else span[1])
        if ranges and low - reach <= ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], max(ranges[-1][1], high))
        else:
            ranges.append((low, high))
    return ranges


def _by_time_pays(snapshot: Snapshot, compiled: CompiledSituations, plan: ReplayPlan) -> ReplayPlan:
    if plan.intervals is None or not by_time(snapshot, compiled):
        return plan
    reach = compiled.reach
    assert reach is not None
    events = sum(
        snapshot.events_between(max(INT64_MIN, low - reach), min(high, INT64_MAX - 1) + 1)
        for low, high in instants_of(snapshot, compiled, plan)
    )
    if events <= BY_TIME_MOST * snapshot.count:
        return plan
    why = "late events have no place" if snapshot.dirty_ranges() else "PREV looks at rows before"
    return replace(
        plan, intervals=None, picked=(),
        reason=f"{why}, and the times around what was found are most of the stream",
    )  # fmt: skip


# ------------------------------------------------------------------------------- running


@dataclass
class SituationRun(ReplayRun):
    """Metrics of a run; valid when the run has ended."""

    figures: tuple[tuple[str, int | float], ...] = ()


def run_replayed(
    snapshot: Snapshot,
    compiled: CompiledSituations,
    plan: ReplayPlan,
    run: SituationRun,
    check: Callable[[], None],
    limits: MatchLimits,
) -> Iterator[pa.RecordBatch]:
    columns = compiled.input_columns
    if plan.intervals is None:
        stream = SituationStream(compiled, limits, check)
        for batch in snapshot.scan(columns=columns, metrics=run.metrics, check=check):
            run.events += batch.num_rows
            yield from stream.feed(batch)
        yield from stream.finish()
        run.figures = stream.figures()
        run.ended = True
        return
    if by_time(snapshot, compiled):
        for instants in instants_of(snapshot, compiled, plan):
            yield from InstantRange.of(snapshot, compiled, *instants).run(
                PartRun(snapshot, compiled, run.metrics, check, limits)
            )
        run.ended = True
        return
    pieces = _Pieces.of(plan)
    if not len(pieces.spans):
        run.ended = True
        return
    shared = bool(compiled.partition_by) and plan.partitions is None
    stretches = Stretches(compiled.columns.arrow, compiled.partition_by, pieces.until, shared)
    borders = _Borders(compiled, pieces, stretches)
    stream = SituationStream(compiled, limits, check, stretches, borders.certified)
    for batch, numbers in pieces.read(columns, run, check):
        run.events += batch.num_rows
        yield from stream.feed(batch.append_column(SPAN, pa.array(numbers)))
    bounds = snapshot.time_range
    assert bounds is not None
    yield from stream.finish(last=bounds[1])
    run.figures = stream.figures()
    run.ended = True


@dataclass(frozen=True)
class _Pieces:
    """The ranges to read; ``until``: last tick of which each holds all rows."""

    plan: ReplayPlan
    spans: Spans
    starts: Ints
    until: Ints

    @classmethod
    def of(cls, plan: ReplayPlan) -> _Pieces:
        intervals, timeline = plan.intervals, plan.timeline
        assert intervals is not None
        if not len(intervals.spans):
            none = np.zeros(0, np.int64)
            return cls(plan, intervals.spans, none, none)
        assert timeline is not None
        starts, ends = intervals.spans.starts, intervals.spans.ends
        if intervals.partitions is not None:
            inside, stride = intervals.partitions.inside, intervals.partitions.stride
            base = inside.starts // stride * stride
            starts, ends = inside.starts - base, inside.ends - base
        order = order_of(ends)
        until = np.full(len(ends), INT64_MAX, np.int64)
        closed = order[ends[order] < timeline.total]
        until[closed] = timeline.ticks_at(ends[closed]) - 1
        return cls(plan, intervals.spans, starts, until)

    def read(
        self, columns: list[str], run: SituationRun, check: Callable[[], None]
    ) -> Iterator[tuple[pa.RecordBatch, Ints]]:
        intervals, timeline = self.plan.intervals, self.plan.timeline
        assert intervals is not None
        assert timeline is not None
        if intervals.partitions is not None:
            yield from read_numbered(
                timeline, self.spans, intervals.partitions, columns, run.metrics, check
            )
            return
        output = pa.schema([timeline.schema.arrow.field(name) for name in columns])
        bounds = zip(self.spans.starts.tolist(), self.spans.ends.tolist(), strict=True)
        for number, (start, end) in enumerate(bounds):
            check()
            for batch in read_positions(timeline, columns, output, start, end, run.metrics):
                yield batch, np.full(batch.num_rows, number, np.int64)


@kernel
def _rows_before(codes, base, asked, at, active, out):  # type: ignore[no-untyped-def]
    """Scan rows backward; give each query (position, code; descending) the last row of its
    partition before it.  ``active``: per code the waiting query, or -1.  Returns new ``at``, and
    answers.
    """
    answered = 0
    for i in range(codes.shape[0] - 1, -1, -1):
        while at < asked.shape[0] and asked[at, 0] > base + i:
            active[asked[at, 1]] = at
            at += 1
        code = codes[i]
        if code >= 0 and active[code] >= 0:
            out[active[code]] = base + i
            active[code] = -1
            answered += 1
    return at, answered


class _Borders(Certifier):
    def __init__(self, compiled: CompiledSituations, pieces: _Pieces, stretches: Stretches) -> None:
        super().__init__(compiled)
        self.pieces = pieces
        self.stretches = stretches

    def rows_before(self, groups: Ints, rows: Ints) -> list[Before]:
        timeline = self.pieces.plan.timeline
        assert timeline is not None
        positions = self._positions(self.stretches.numbers(groups), rows)
        wanted = {self.compiled.time, *self.compiled.condition_columns}
        names = [name for name in timeline.schema.arrow.names if name in wanted]
        output = pa.schema([timeline.schema.arrow.field(name) for name in names])
        there = distinct(positions[positions >= 0])
        read = [
            batch
            for at in there.tolist()
            for batch in read_positions(timeline, names, output, at, at + 1)
        ]
        table = pa.Table.from_batches(read, output)
        words = row_words(self.compiled.tests, table, np.array([0, len(there)], np.int64))
        ticks = timeline.ticks_at(there)
        place = np.searchsorted(there, positions)
        return [
            (int(words[i]), int(ticks[i])) if position >= 0 else None
            for i, position in zip(place.tolist(), positions.tolist(), strict=True)
        ]

    def _positions(self, numbers: Ints, first: Ints) -> Ints:
        """Position of the last row of its partition before each range; -1 if none matters."""
        pieces, timeline = self.pieces, self.pieces.plan.timeline
        assert timeline is not None
        starts, partitions = pieces.starts[numbers], pieces.plan.partitions
        if not self.compiled.partition_by:
            return starts - 1
        if partitions is not None:
            keys, codes = partitions.keys, partitions.inside.starts[numbers] // partitions.stride
        else:  # the spans hold all rows, so each range's first row gives the key
            lengths = pieces.spans.ends - pieces.spans.starts
            rows = starts + first - (np.cumsum(lengths) - lengths)[numbers]
            keys = PartitionKeys(timeline, self.compiled.partition_by, timeline.schema)
            codes = np.empty(len(rows), np.int64)
            ascending = order_of(rows)
            codes[ascending] = keys.learn(rows[ascending])
        order = order_of(-starts)
        borders = np.stack([starts, codes], axis=1)[order]
        out = np.full(len(order), -1, np.int64)
        active = np.full(keys.count, -1, np.int64)
        lowest = self._lowest(starts)
        end, at, left = int(starts.max(initial=0)), 0, len(order)
        while end > lowest and left:
            low = max(lowest, end - WALKED)
            at, answered = _rows_before(
                keys.codes_at(np.arange(low, end)), low, borders, at, active, out
            )
            left -= answered
            end = low
        in_order = np.empty(len(order), np.int64)
        in_order[order] = out
        return in_order

    def _lowest(self, starts: Ints) -> int:
        timeline, gap = self.pieces.plan.timeline, self.compiled.gap
        assert timeline is not None
        if gap is None or not len(starts):
            return 0
        first = timeline.tick(int(starts.min()))
        return int(timeline.lower(np.array([max(INT64_MIN, first - gap)], np.int64))[0])
