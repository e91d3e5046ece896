"""Joins of two streams in a time window: a pair is closed with the later of its events.

::

    a pair                        max(a.t, b.t) <= W         _time is that
    LEFT JOIN, unmatched row      a.t + q <= W               _time is that; q from the bounds
                                                             -p <= b.t - a.t <= q, at least 0

A region reads the rows that its results can depend on, finds pairs by key and time, and evaluates
conditions and SELECT on them; a step in order adds its events to the rows in the join's window, a
cache that is valid for one watermark.  Rows that no event can meet any more are removed once they
are half of all.  Identity: tick of each event and its rank within side and tick.

Pairs are those of thesis, Definitions 2.12 and 2.13, each found when its later event arrives.  Rows
of one key form a chain, newest first: ``head`` is the newest row per key, ``before`` the previous
one per row::

    head[k] -> 17 -> 12 -> 5 -> -1

New rows of both sides, in time order, walk the other side's chain down to the first row that is too
old, then become the head of their own.  Each pair is found once (equal times: at the right row).
Cost: new rows and pairs; rows that are too recent for shifted bounds are skipped one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlglot import exp

from ..core.identity import digests
from ..core.native import kernel
from ..core.times import INT64_MAX, INT64_MIN, half_open, length_text, moved
from ..query.engine import QueryEngine
from ..query.pattern.columns import KeyCodes, take_ranges
from ..schema import StreamSchema
from ..store.tap import Spans, tick_ranges, united
from .analysis import column_node
from .changes import Corrected, Removals, Results, removals_of, spared
from .forms import (
    Evaluator,
    Form,
    LateEvents,
    Moment,
    chosen,
    coalesced,
    engine_with,
    snapshot_of,
    ticks_of,
)  # fmt: skip
from .join_binding import BoundJoin, JoinedStream
from .row_form import (
    EVENTS_MAX,
    PLAIN_REGION_EVENTS,
    TIME,
    PlainRows,
    plain_rows,
    ranks,
    rows_between,
)

# mypy: disable-error-code="no-untyped-def"


IntArray = npt.NDArray[np.int64]
MOST, LEAST = np.int64(INT64_MAX), np.int64(INT64_MIN)


class Pairs(NamedTuple):
    """Row numbers; ``right`` is -1 without a partner."""

    left: IntArray
    right: IntArray

    def where(self, chosen: npt.NDArray[Any] | slice) -> Pairs:
        return Pairs(self.left[chosen], self.right[chosen])

    def and_alone(self, left: IntArray) -> Pairs:
        """Also left rows without a partner."""
        alone = np.full(len(left), -1, np.int64)
        return Pairs(np.concatenate([self.left, left]), np.concatenate([self.right, alone]))


@kernel
def at_least(tick, other, by):
    """Whether ``tick >= other + by``, without overflow."""
    if by >= 0:
        return other <= MOST - by and tick >= other + by
    return other < LEAST - by or tick >= other + by


@kernel
def at_most(tick, other, by):
    """Whether ``tick <= other + by``, without overflow."""
    if by >= 0:
        return other > MOST - by or tick <= other + by
    return other >= LEAST - by and tick <= other + by


@kernel
def follow(
    left_tick, left_code, left_head, left_before, right_tick, right_code, right_head, right_before,
    left_old, right_old, before, behind, left_from, right_from,
):  # fmt: skip
    """Add rows from ``left_old`` and ``right_old`` on; the number of pairs, and per new row its
    first partner (-1: none) in ``left_from`` and ``right_from`` for ``fill_pairs``.
    """
    i, j = left_old, right_old
    pairs = 0
    while i < left_tick.shape[0] or j < right_tick.shape[0]:
        from_left = j >= right_tick.shape[0] or (
            i < left_tick.shape[0] and left_tick[i] <= right_tick[j]
        )
        if from_left:
            k = left_code[i]
            left_from[i - left_old] = -1
            if k >= 0:
                x = right_head[k]
                while x >= 0 and not at_most(right_tick[x], left_tick[i], behind):
                    x = right_before[x]
                left_from[i - left_old] = x
                while x >= 0 and at_least(right_tick[x], left_tick[i], -before):
                    pairs += 1
                    x = right_before[x]
                left_before[i] = left_head[k]
                left_head[k] = i
            i += 1
        else:
            k = right_code[j]
            right_from[j - right_old] = -1
            if k >= 0:
                x = left_head[k]
                while x >= 0 and not at_most(left_tick[x], right_tick[j], before):
                    x = left_before[x]
                right_from[j - right_old] = x
                while x >= 0 and at_least(left_tick[x], right_tick[j], -behind):
                    pairs += 1
                    x = left_before[x]
                right_before[j] = right_head[k]
                right_head[k] = j
            j += 1
    return pairs


@kernel
def fill_pairs(
    left_tick, left_before, right_tick, right_before, left_old, right_old, before, behind,
    left_from, right_from, left, right,
):  # fmt: skip
    """The pairs that ``follow`` counted."""
    n = 0
    for i in range(left_from.shape[0]):
        tick = left_tick[left_old + i]
        x = left_from[i]
        while x >= 0 and at_least(right_tick[x], tick, -before):
            left[n] = left_old + i
            right[n] = x
            n += 1
            x = right_before[x]
    for j in range(right_from.shape[0]):
        tick = right_tick[right_old + j]
        x = right_from[j]
        while x >= 0 and at_least(left_tick[x], tick, -behind):
            left[n] = x
            right[n] = right_old + j
            n += 1
            x = left_before[x]
    return n


SPARE_ROWS = 1 << 10
CHUNKS_MAX = 16


@dataclass(frozen=True)
class SideRows:
    """Rows of a side in time order; ``rank`` is a position within a tick."""

    tick: IntArray
    rank: IntArray
    table: pa.Table
    keys: tuple[str, ...]
    nbytes: int

    @classmethod
    def of(cls, tick: IntArray, rank: IntArray, table: pa.Table, keys: tuple[str, ...]) -> SideRows:
        return cls(tick, rank, table, keys, int(tick.nbytes + rank.nbytes + table.nbytes))

    def __len__(self) -> int:
        return len(self.tick)

    def slice(self, begin: int) -> SideRows:
        table = self.table.slice(begin)
        return SideRows.of(self.tick[begin:], self.rank[begin:], table, self.keys)

    def where(self, chosen: npt.NDArray[np.bool_]) -> SideRows:
        table = self.table.filter(pa.array(chosen))
        return SideRows.of(self.tick[chosen], self.rank[chosen], table, self.keys)

    def late(self, ticks: IntArray) -> npt.NDArray[np.bool_]:
        """Which rows are late, given the ascending ticks of those: the last of each tick."""
        distinct, count = np.unique(ticks, return_counts=True)
        end = self.tick.searchsorted(distinct, "right")
        is_late = np.zeros(len(self), np.bool_)
        is_late[take_ranges(end - count, end)] = True
        return is_late

    def followed_by(self, more: SideRows) -> SideRows:
        return SideRows(
            np.concatenate([self.tick, more.tick]), np.concatenate([self.rank, more.rank]),
            pa.concat_tables([self.table, more.table]), self.keys, self.nbytes + more.nbytes,
        )  # fmt: skip


def key_codes(numbers: KeyCodes, table: pa.Table, keys: Sequence[str]) -> IntArray:
    """Key numbers of rows; negative where a key is null, which equals nothing."""
    codes = numbers.of_rows(table, keys).copy()
    for column in map(table.column, keys):
        if column.null_count:
            codes[column.is_null().to_numpy()] = -1
    return codes


def picked_columns(
    picked: Sequence[tuple[int, str]], left: pa.Table, right: pa.Table, pairs: Pairs
) -> list[pa.ChunkedArray]:
    """Columns, each of a side, of the rows of pairs."""
    takes = pa.array(pairs.left), pa.array(pairs.right, mask=pairs.right < 0)
    return [(left, right)[side].column(name).take(takes[side]) for side, name in picked]


class _Side:
    def __init__(self, rows: SideRows) -> None:
        self.rows = rows
        self.code = np.zeros(0, np.int64)
        self.before = np.zeros(0, np.int64)
        self.head = np.zeros(0, np.int64)

    def reserve(self, keys: int) -> None:
        if len(self.head) < keys:
            more = np.full(max(keys - len(self.head), len(self.head), SPARE_ROWS), -1, np.int64)
            self.head = np.concatenate([self.head, more])

    def add(self, rows: SideRows, codes: IntArray) -> None:
        self.rows = self.rows.followed_by(rows)
        if self.rows.table.column(0).num_chunks > CHUNKS_MAX:
            table = self.rows.table.combine_chunks()
            self.rows = replace(self.rows, table=table)
        self.code = np.concatenate([self.code, codes])
        self.before = np.concatenate([self.before, np.full(len(rows), -1, np.int64)])

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self.code.nbytes + self.before.nbytes + self.head.nbytes


class JoinState:
    """``met``: left rows that have had a partner.  ``none``: sides without rows."""

    def __init__(self, none: tuple[SideRows, SideRows], before: int, behind: int) -> None:
        self.watermark: int | None = None
        self.before, self.behind = before, behind
        self._none = none
        self._clear()

    def _clear(self) -> None:
        self._codes = KeyCodes(len(self._none[0].keys))
        self.left, self.right = map(_Side, self._none)
        self.met = np.zeros(0, np.bool_)

    @property
    def first(self) -> int | None:
        ticks = [int(side.rows.tick[0]) for side in (self.left, self.right) if len(side.rows)]
        return min(ticks, default=None)

    @property
    def nbytes(self) -> int:
        return self.left.nbytes + self.right.nbytes + self.met.nbytes

    def follow(self, left: SideRows, right: SideRows) -> Pairs:
        """Add new rows; returns the pairs that they complete, as row numbers."""
        old = len(self.left.rows), len(self.right.rows)
        count, begins = self._add(left, right)
        pairs = Pairs(np.empty(count, np.int64), np.empty(count, np.int64))
        one, other = self.left, self.right
        fill_pairs(
            one.rows.tick, one.before, other.rows.tick, other.before,
            *old, self.before, self.behind, *begins, *pairs,
        )  # fmt: skip
        return pairs

    def _add(self, left: SideRows, right: SideRows) -> tuple[int, tuple[IntArray, IntArray]]:
        """The number of pairs, and the first partner of each new row of both sides."""
        one, other = self.left, self.right
        old = len(one.rows), len(other.rows)
        codes = [key_codes(self._codes, rows.table, rows.keys) for rows in (left, right)]
        for side, rows, code in zip((one, other), (left, right), codes, strict=True):
            side.reserve(self._codes.count)
            side.add(rows, code)
        self.met = np.concatenate([self.met, np.zeros(len(left), np.bool_)])
        begins = np.empty(len(left), np.int64), np.empty(len(right), np.int64)
        count = follow(
            one.rows.tick, one.code, one.head, one.before,
            other.rows.tick, other.code, other.head, other.before,
            *old, self.before, self.behind, *begins,
        )  # fmt: skip
        return int(count), begins

    def let_go(self, watermark: int) -> None:
        """Advance the watermark; remove rows that no later event can meet, if that pays."""
        self.watermark = watermark
        dead_left, dead_right = (
            int(np.searchsorted(side.rows.tick, moved(watermark, -reach), "right"))
            for side, reach in ((self.left, max(0, self.behind)), (self.right, max(0, self.before)))
        )
        total = len(self.left.rows) + len(self.right.rows)
        if 2 * (dead_left + dead_right) <= total or dead_left + dead_right < SPARE_ROWS:
            return
        rows = self.left.rows.slice(dead_left), self.right.rows.slice(dead_right)
        met = self.met[dead_left:].copy()
        self._clear()
        self._add(*rows)
        self.met = met


PAIRS, ROW = "joined", "#row"


@dataclass(frozen=True)
class PairsQuery:
    """A condition or SELECT over pairs of rows: the stream ``PAIRS`` of time, ``ROW``, columns."""

    evaluator: Evaluator
    schema: StreamSchema
    columns: tuple[tuple[int, str], ...]

    def of(self, left: pa.Table, right: pa.Table, pairs: Pairs, time: IntArray) -> pa.Table:
        """Its rows, with ``ROW``; pairs are ordered by time."""
        arrays = [pa.array(time).cast(self.schema.time_type), pa.array(np.arange(len(time)))]
        columns = picked_columns(self.columns, left, right, pairs)
        arrays += [column.combine_chunks() for column in columns]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema.arrow)
        return self.evaluator.over(snapshot_of([batch], self.schema))


Shown = PairsQuery | tuple[tuple[int, str], ...]
"""What is shown of pairs: a SELECT, or plain columns, each of a side."""


def shown_pairs(
    shown: Shown, names: Sequence[str], left: pa.Table, right: pa.Table, pairs: Pairs,
    time: IntArray,
) -> tuple[pa.Table, Pairs, IntArray]:  # fmt: skip
    """The rows of pairs in order of time, and the pairs and times of these rows."""
    if isinstance(shown, PairsQuery):
        table = shown.of(left, right, pairs, time)
        passing = table.column(ROW).to_numpy()
        return table, pairs.where(passing), time[passing]
    return pa.table(picked_columns(shown, left, right, pairs), names=list(names)), pairs, time


FieldOf = Callable[[Any], tuple[int, pa.Field] | None]
"""The side and the field of a column; None for columns of neither side."""


def pairs_query(
    engine: Callable[[], QueryEngine], text: str, tree: Any, time: pa.DataType, field_of: FieldOf
) -> PairsQuery:
    """A SELECT over two sides as one over their pairs; changes ``tree``."""
    tree.append("expressions", _named(column_node(ROW), ROW))
    fields = [pa.field(TIME, time, nullable=False), pa.field(ROW, pa.int64(), nullable=False)]
    columns: list[tuple[int, str]] = []
    for column in list(tree.find_all(exp.Column)):
        found = field_of(column)
        if found is None:
            continue
        number, field = found
        name = f"{number}.{field.name}"
        if (number, field.name) not in columns:
            columns.append((number, field.name))
            fields.append(pa.field(name, field.type))
        column.set("this", exp.to_identifier(name, quoted=True))
        column.set("table", None)
    tree.set("from_", exp.From(this=exp.Table(this=exp.to_identifier(PAIRS, quoted=True))))
    schema = StreamSchema(pa.schema(fields), TIME)
    evaluator = Evaluator(engine_with(engine, PAIRS, schema), tree, text, PAIRS)
    return PairsQuery(evaluator, schema, tuple(columns))


def plain_columns(tree: Any, field_of: FieldOf) -> tuple[tuple[int, str], ...] | None:
    """Side and attribute of each projection; None unless all are plain columns."""
    picked = []
    for node in tree.expressions:
        column = node.unalias()
        found = field_of(column) if isinstance(column, exp.Column) else None
        if found is None:
            return None
        picked.append((found[0], found[1].name))
    return tuple(picked)


class JoinForm(Form):
    kind = "join"
    incremental = True
    rebuilds = True

    def __init__(
        self,
        engine: Callable[[], QueryEngine],
        tree: Any,
        text: str,
        bound: BoundJoin,
        columns: tuple[str, ...],
        seed: bytes,
    ) -> None:
        self.columns = columns
        self.streams = tuple(dict.fromkeys(side.stream for side in bound.sides))
        self._bound = bound
        self._seed = seed
        self._lead = max(0, bound.behind)
        self._back = max(0, bound.before)
        self._state: JoinState | None = None
        self._gone: dict[str, Removals] = {}
        self._none: Results | None = None
        expressions = [*tree.expressions, *bound.on, *bound.where]
        self._names = tuple(
            tuple(dict.fromkeys(
                name
                for node in expressions
                for column in node.find_all(exp.Column)
                if bound.side_of(column) == number
                and (name := side.attribute(column)) is not None
            ))
            for number, side in enumerate(bound.sides)
        )  # fmt: skip
        self._sides, self._plain = zip(
            *(self._side(engine, text, number) for number in (0, 1)), strict=True
        )
        shown = exp.select(*(node.copy() for node in tree.expressions))
        inner = not bound.outer
        after = [*bound.where, *(bound.on if inner else ())]
        picked = None if after else plain_columns(tree, bound.field_of)
        self._shown: Shown = picked or self._pairs_query(engine, text, shown, after)
        self._on = None
        if bound.outer and bound.on:
            self._on = self._pairs_query(engine, text, exp.Select(), bound.on)

    def _side(
        self, engine: Callable[[], QueryEngine], text: str, number: int
    ) -> tuple[Evaluator, PlainRows | None]:
        side = self._bound.sides[number]
        shown = [_named(column_node(name, side.alias), name) for name in self._names[number]]
        shown += [_named(node.copy(), f"#key{i}") for i, node in enumerate(side.keys)]
        shown.append(_named(column_node(side.schema.time, side.alias), TIME))
        tree = exp.select(*shown).from_(side.source.copy())
        if side.conditions:
            tree.set("where", exp.Where(this=_all(side.conditions)))
        named = {name: name for name in self._names[number]}
        named |= {f"#key{i}": str(side.attribute(node)) for i, node in enumerate(side.keys)}
        fields = [pa.field(as_, side.schema.attribute(name).type) for as_, name in named.items()]
        if side.plain is None:
            plain = plain_rows(engine().plan(tree.copy(), text), fields)
        else:
            plain = _plain_side(engine(), text, side, side.plain, fields, list(named.values()))
        return Evaluator(engine, tree, text, side.stream), plain

    def _pairs_query(
        self, engine: Callable[[], QueryEngine], text: str, tree: Any, conditions: Sequence[Any]
    ) -> PairsQuery:
        bound = self._bound
        if conditions:
            tree.set("where", exp.Where(this=_all(conditions)))
        return pairs_query(engine, text, tree, bound.left.schema.time_type, bound.field_of)

    # -- reading ----------------------------------------------------------------------------------

    def _read(self, moment: Moment, number: int, low: int, high: int) -> SideRows:
        side, evaluator = self._bound.sides[number], self._sides[number]
        keys = tuple(f"#key{i}" for i in range(len(side.keys)))
        table = rows_between(self._plain[number], evaluator, moment[side.stream], low, high)
        ticks = ticks_of(table, TIME)
        table = table.select([*self._names[number], *keys, TIME])
        return SideRows.of(ticks, ranks(ticks), table, keys)

    def results(self, moment: Moment, low: int, high: int, known: int) -> Results:
        return self._followed(self._before(moment, low), moment, low, min(high, known))

    def _empty(self, left: SideRows, right: SideRows) -> JoinState:
        """A state without rows, of the columns of two sides."""
        none = left.slice(len(left)), right.slice(len(right))
        return JoinState(none, self._bound.before, self._bound.behind)

    def _added(self, state: JoinState, left: SideRows, right: SideRows) -> Pairs:
        """Add rows to a state; the pairs that they complete and that satisfy the condition."""
        pairs = state.follow(left, right)
        return self._held(state.left.rows, state.right.rows, pairs)

    def _held(self, left: SideRows, right: SideRows, pairs: Pairs) -> Pairs:
        """Pairs for which the rest of ON holds; an inner join evaluates it with WHERE."""
        if self._on is None or not len(pairs.left):
            return pairs
        times = np.maximum(left.tick[pairs.left], right.tick[pairs.right])
        order = np.argsort(times, kind="stable")
        pairs = pairs.where(order)
        passing = self._on.of(left.table, right.table, pairs, times[order]).column(ROW).to_numpy()
        return pairs.where(passing)

    def _results(self, left: SideRows, right: SideRows, pairs: Pairs, alone: IntArray) -> Results:
        if self._none is not None and not len(pairs.left) and not len(alone):
            return self._none
        shown = pairs.and_alone(alone)
        times = np.concatenate(
            [
                np.maximum(left.tick[pairs.left], right.tick[pairs.right]),
                moved(left.tick[alone], self._lead),
            ]
        )
        order = np.lexsort((shown.right, shown.left, times))
        table, shown, times = shown_pairs(
            self._shown, self.columns, left.table, right.table, shown.where(order), times[order]
        )
        names = self._named(left, right, shown)
        results = Results(times, names, chosen(table, self.columns))
        if not len(results):
            self._none = results
        return results

    def _named(self, left: SideRows, right: SideRows, pairs: Pairs) -> pa.Array:
        lonely = pairs.right < 0
        other = [np.append(values, 0)[pairs.right] for values in (right.tick, right.rank)]
        mine = [pa.array(values[pairs.left]) for values in (left.tick, left.rank)]
        return digests(self._seed, [*mine, *(pa.array(values, mask=lonely) for values in other)])

    # -- steps in order ---------------------------------------------------------------------------

    def advanced(self, moment: Moment, since: int, known: int) -> Results | None:
        state, self._state = self._state, None  # lost if the step fails
        if state is None or state.watermark != since or not spared(self._gone, moment, state.first):
            state = self._before(moment, since + 1)
        results = self._followed(state, moment, since + 1, known)
        state.let_go(known)
        self._state = state
        self._gone = removals_of(moment, self.streams)
        return results

    def _before(self, moment: Moment, low: int) -> JoinState:
        """The rows that results from a tick on can depend on, of those before it."""
        bound = self._bound
        more = self._lead if bound.outer else 0
        left = self._read(moment, 0, moved(low, -self._lead), low - 1)
        right = self._read(moment, 1, moved(low, -self._back - more), low - 1)
        state = self._empty(left, right)
        pairs = self._added(state, left, right)
        if bound.outer:
            state.met[pairs.left] = True
        return state

    def _followed(self, state: JoinState, moment: Moment, low: int, high: int) -> Results:
        """The results with times in a range, whose rows are added to those before it."""
        sides = (self._read(moment, number, low, high) for number in (0, 1))
        pairs = self._added(state, *sides)
        alone = np.zeros(0, np.int64)
        if self._bound.outer:
            state.met[pairs.left] = True
            ends = moved(state.left.rows.tick, self._lead)
            alone = np.flatnonzero(~state.met & (ends >= low) & (ends <= high))
        return self._results(state.left.rows, state.right.rows, pairs, alone)

    @property
    def state_bytes(self) -> int:
        return 0 if self._state is None else self._state.nbytes

    def drop_state(self) -> None:
        self._state = None

    # -- what late events change ------------------------------------------------------------------

    def corrected(self, late: LateEvents, known: int) -> Corrected | None:
        """The pairs with late rows, and late rows alone; only rows alone are taken back, which a
        late row has given a partner.
        """
        bound, moment, spans = self._bound, late.moment, []
        late_ticks = []
        for number, side in enumerate(bound.sides):
            plain, events = self._plain[number], late.events.get(side.stream)
            if side.stream in late.events and (plain is None or events is None):
                return None
            ticks = np.zeros(0, np.int64)
            if plain is not None and events is not None:
                ticks = ticks_of(plain.rows_of(events, TIME), TIME)
            late_ticks.append(ticks)
            back, ahead = (self._lead, self._back) if number else (self._back, self._lead)
            spans += [(moved(low, -back), moved(high, ahead)) for low, high in tick_ranges(ticks)]
        regions = coalesced(moment, united(tuple(spans)), PLAIN_REGION_EVENTS) or ((1, 0),)
        between = [half_open(*each) for each in regions]
        held = (s.events_between(*each) for s in moment.values() for each in between)
        if sum(held) > EVENTS_MAX:
            return None
        left, right = (
            reduce(
                SideRows.followed_by,
                (self._read(moment, n, low, min(high, late.watermark)) for low, high in regions),
            )
            for n in (0, 1)
        )
        ours, theirs = left.late(late_ticks[0]), right.late(late_ticks[1])
        parts = []
        for mine, other in ((ours, np.ones(len(right), np.bool_)), (~ours, theirs)):
            one, two = left.where(mine), right.where(other)
            some = self._empty(one, two).follow(one, two)
            parts.append((np.flatnonzero(mine)[some.left], np.flatnonzero(other)[some.right]))
        pairs = self._held(left, right, Pairs(*map(np.concatenate, zip(*parts, strict=True))))
        alone = met = np.zeros(0, np.int64)
        ends = moved(left.tick, self._lead)
        if bound.outer:
            has_partner = np.zeros(len(left), np.bool_)
            has_partner[pairs.left] = True
            closed = ends <= late.watermark
            alone = np.flatnonzero(ours & ~has_partner & closed)
            met = np.flatnonzero(~ours & has_partner & closed)
        added = self._results(left, right, pairs, alone)
        self.drop_state()  # it lacks the late rows
        gone = self._named(left, right, Pairs(met, np.full(len(met), -1, np.int64)))
        return Corrected(gone, ends[met], added)

    def changed(self, moment: Moment, late: Mapping[str, Spans], watermark: int) -> Spans:
        spans: list[tuple[int, int]] = []
        for side, reach in zip(self._bound.sides, (self._lead, self._back), strict=True):
            if self._bound.outer and side is self._bound.right:
                reach += self._lead
            spans += [(low, moved(high, reach)) for low, high in late.get(side.stream, ())]
        return united(tuple(spans))

    def explain(self, time: pa.DataType) -> list[tuple[str, str]]:
        bound = self._bound
        left, right = (f"{side.alias}.{side.schema.time}" for side in bound.sides)
        keys = f"{len(bound.left.keys)} keys" if bound.left.keys else "no key"
        least, most = (length_text(one, time) for one in (-bound.before, bound.behind))
        closed = "with the later event of a pair"
        if bound.outer:
            closed += f"; a row alone {length_text(self._lead, time)} after it"
        return [
            ("class", f"{'left ' if bound.outer else ''}join in a time window ({keys})"),
            ("reach", f"{least} <= {right} - {left} <= {most}"),
            ("closed", closed),
            ("state", "incremental: events that others can still meet are kept; one with late "
             "events, or after a restart, those within reach are read again"),
        ]  # fmt: skip


def _plain_side(
    engine: QueryEngine, text: str, side: JoinedStream, query: PlainRows,
    fields: Sequence[pa.Field], columns: Sequence[str],
) -> PlainRows | None:  # fmt: skip
    """The plain form of columns of a query of plain form, under the side's conditions."""
    attributes = dict(zip(query.names, query.shown, strict=False))  # the time is shown besides

    def of_stream(node: Any) -> Any:
        name = side.attribute(node) if isinstance(node, exp.Column) else None
        return node if name is None else column_node(attributes[name])

    if any(node.find(exp.Lambda) for node in side.conditions):  # its names hide columns
        return None
    shown = [
        _named(column_node(attributes[name]), field.name)
        for name, field in zip(columns, fields, strict=True)
    ]
    tree = exp.select(*shown).from_(exp.Table(this=exp.to_identifier(side.stream, quoted=True)))
    if side.conditions:
        tree.set("where", exp.Where(this=_all([n.transform(of_stream) for n in side.conditions])))
    rows = plain_rows(engine.plan(tree, text), fields)
    return None if rows is None else rows.narrowed(query.passing)


def _named(node: Any, name: str) -> Any:
    return exp.alias_(node, name, quoted=True, copy=False)


def _all(conditions: Sequence[Any]) -> Any:
    copies = [exp.Paren(this=node.copy()) for node in conditions]
    return exp.and_(*copies, copy=False)
