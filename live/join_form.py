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
of a side, by key and time, are found by their key and the number of rows of that side before either
end of the window::

    rows of the side      in time      0:a  1:b  2:a  3:a  4:b
                          by key       0:a  2:a  3:a | 1:b  4:b
    window, from 1 to 4   of a              '------'
                          of b                        '------'

Cost of a step: the rows within reach that have a key of a new row, and the pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlglot import exp

from ..core.identity import digests
from ..core.sorting import order_of, places_in
from ..core.times import half_open, length_text, moved
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

IntArray = npt.NDArray[np.int64]


class Pairs(NamedTuple):
    """Row numbers; ``right`` is -1 without a partner."""

    left: IntArray
    right: IntArray


def rows_upto(ticks: IntArray, others: IntArray, by: int) -> IntArray:
    """For each of ``others``, the number of ticks that are at most ``by`` later; both ascend."""
    if by >= 0:
        return places_in(ticks, moved(others, by), "right")
    return places_in(ticks, moved(others, by + 1), "left")  # clamped: none is earlier


def meeting(
    ticks: IntArray, codes: IntArray, others: IntArray, other_codes: IntArray, back: int, ahead: int
) -> Pairs:
    """Pairs of rows of two sides in time order, with equal codes, not negative, and the row of the
    other side at most ``back`` earlier and ``ahead`` later.
    """
    rows = order_of(codes)
    rows = rows[codes[rows] >= 0]
    sought = np.zeros(1 + max(codes.max(initial=0), other_codes.max(initial=0)), np.bool_)
    sought[codes] = True
    near = np.flatnonzero(sought[other_codes])
    near = near[order_of(other_codes[near])]
    size = len(others) + 1
    places = other_codes[near] * size + near
    first = codes[rows] * size
    begin = places_in(places, first + rows_upto(others, ticks, -back - 1)[rows])
    end = places_in(places, first + rows_upto(others, ticks, ahead)[rows])
    counts = np.maximum(end - begin, 0)
    return Pairs(np.repeat(rows, counts), near[take_ranges(begin, end)])


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
        table = pa.concat_tables([self.table, more.table])
        if table.column(0).num_chunks > CHUNKS_MAX:
            table = table.combine_chunks()
        return SideRows(
            np.concatenate([self.tick, more.tick]), np.concatenate([self.rank, more.rank]),
            table, self.keys, self.nbytes + more.nbytes,
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


class JoinState:
    """``met``: left rows that have had a partner.  ``none``: sides without rows."""

    def __init__(self, none: tuple[SideRows, SideRows], before: int, behind: int) -> None:
        self.watermark: int | None = None
        self.before, self.behind = before, behind
        self._none = none
        self._clear()

    def _clear(self) -> None:
        self._numbers = KeyCodes(len(self._none[0].keys))
        self.left, self.right = self._none
        self._left_codes = self._right_codes = np.zeros(0, np.int64)
        self.met = np.zeros(0, np.bool_)

    @property
    def first(self) -> int | None:
        ticks = [int(side.tick[0]) for side in (self.left, self.right) if len(side)]
        return min(ticks, default=None)

    @property
    def nbytes(self) -> int:
        codes = self._left_codes.nbytes + self._right_codes.nbytes
        return self.left.nbytes + self.right.nbytes + codes + self.met.nbytes

    def follow(self, left: SideRows, right: SideRows) -> Pairs:
        """Add new rows; returns the pairs that they complete, as row numbers."""
        old, old_right = len(self.left), len(self.right)
        self._add(left, right)
        codes, other_codes = self._left_codes, self._right_codes
        fresh = meeting(
            left.tick, codes[old:], self.right.tick, other_codes, self.before, self.behind
        )
        turned = meeting(
            right.tick, other_codes[old_right:], self.left.tick[:old], codes[:old],
            self.behind, self.before,
        )  # fmt: skip
        return Pairs(
            np.concatenate([fresh.left + old, turned.right]),
            np.concatenate([fresh.right, turned.left + old_right]),
        )

    def _add(self, left: SideRows, right: SideRows) -> None:
        codes, other_codes = (key_codes(self._numbers, s.table, s.keys) for s in (left, right))
        self._left_codes = np.concatenate([self._left_codes, codes])
        self._right_codes = np.concatenate([self._right_codes, other_codes])
        self.left, self.right = self.left.followed_by(left), self.right.followed_by(right)
        self.met = np.concatenate([self.met, np.zeros(len(left), np.bool_)])

    def let_go(self, watermark: int) -> None:
        """Advance the watermark; remove rows that no later event can meet, if that pays."""
        self.watermark = watermark
        dead_left, dead_right = (
            int(np.searchsorted(side.tick, moved(watermark, -reach), "right"))
            for side, reach in ((self.left, max(0, self.behind)), (self.right, max(0, self.before)))
        )
        total = len(self.left) + len(self.right)
        if 2 * (dead_left + dead_right) <= total or dead_left + dead_right < SPARE_ROWS:
            return
        rows = self.left.slice(dead_left), self.right.slice(dead_right)
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
        self._shown = self._pairs_query(engine, text, shown, after)
        self._picked = None if after else plain_columns(tree, bound.field_of)
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
        return self._held(state.left, state.right, pairs)

    def _held(self, left: SideRows, right: SideRows, pairs: Pairs) -> Pairs:
        """Pairs for which the rest of ON holds; an inner join evaluates it with WHERE."""
        if self._on is None or not len(pairs.left):
            return pairs
        times = np.maximum(left.tick[pairs.left], right.tick[pairs.right])
        order = np.argsort(times, kind="stable")
        pairs = Pairs(pairs.left[order], pairs.right[order])
        passing = self._on.of(left.table, right.table, pairs, times[order]).column(ROW).to_numpy()
        return Pairs(pairs.left[passing], pairs.right[passing])

    def _results(self, left: SideRows, right: SideRows, pairs: Pairs, alone: IntArray) -> Results:
        if self._none is not None and not len(pairs.left) and not len(alone):
            return self._none
        lefts = np.concatenate([pairs.left, alone])
        rights = np.concatenate([pairs.right, np.full(len(alone), -1, np.int64)])
        times = np.concatenate(
            [
                np.maximum(left.tick[pairs.left], right.tick[pairs.right]),
                moved(left.tick[alone], self._lead),
            ]
        )
        order = np.lexsort((rights, lefts, times))
        pairs, times = Pairs(lefts[order], rights[order]), times[order]
        lefts, rights = pairs
        if self._picked is not None:
            columns = picked_columns(self._picked, left.table, right.table, pairs)
            table = pa.table(columns, names=list(self.columns))
        else:
            table = self._shown.of(left.table, right.table, pairs, times)
            passing = table.column(ROW).to_numpy()
            lefts, rights, times = lefts[passing], rights[passing], times[passing]
        lonely = rights < 0
        other = [np.append(values, 0)[rights] for values in (right.tick, right.rank)]
        names = digests(
            self._seed,
            [
                pa.array(left.tick[lefts]), pa.array(left.rank[lefts]),
                *(pa.array(values, mask=lonely) for values in other),
            ],
        )  # fmt: skip
        results = Results(times, names, chosen(table, self.columns))
        if not len(results):
            self._none = results
        return results

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
            ends = moved(state.left.tick, self._lead)
            alone = np.flatnonzero(~state.met & (ends >= low) & (ends <= high))
        return self._results(state.left, state.right, pairs, alone)

    @property
    def state_bytes(self) -> int:
        return 0 if self._state is None else self._state.nbytes

    def drop_state(self) -> None:
        self._state = None

    # -- what late events change ------------------------------------------------------------------

    def corrected(self, late: LateEvents, known: int) -> Corrected | None:
        """The pairs with late rows: an inner join takes none back."""
        bound, moment, spans = self._bound, late.moment, []
        late_ticks = []
        for number, side in enumerate(bound.sides):
            plain, events = self._plain[number], late.events.get(side.stream)
            if bound.outer or (side.stream in late.events and (plain is None or events is None)):
                return None
            ticks = np.zeros(0, np.int64)
            if plain is not None and events is not None:
                ticks = ticks_of(plain.rows_of(events, TIME), TIME)
            late_ticks.append(ticks)
            back, ahead = (self._lead, self._back) if number else (self._back, self._lead)
            spans += [(moved(low, -back), moved(high, ahead)) for low, high in tick_ranges(ticks)]
        regions = coalesced(moment, united(tuple(spans)), PLAIN_REGION_EVENTS) or ((1, 0),)
        between = [half_open(*each) for each in regions]
        held = (s.aggregate((), *each).count for s in moment.values() for each in between)
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
        pairs = Pairs(*map(np.concatenate, zip(*parts, strict=True)))
        added = self._results(left, right, pairs, np.zeros(0, np.int64))
        self.drop_state()  # it lacks the late rows
        return Corrected(added.id[:0], added.time[:0], added)

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
