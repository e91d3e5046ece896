"""Live filters and projections: one result per event, final with the event.

Simple filters are evaluated without the executor, whose planning would take longer than a step
may::

    WHERE part AND part ...     column op number, column BETWEEN numbers, column op column,
                                a truth value                            -> row tests
                                column = | <> text, column [NOT] IN (texts),
                                column IS [NOT] NULL                     -> Arrow

Only plain columns may be selected; rows, order and types are the executor's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ..core.identity import digests
from ..core.times import half_open
from ..errors import AttributeNotFound, SqlError
from ..query.pattern.binding import Binder, special
from ..query.pattern.buffers import row_words
from ..query.pattern.columns import flat
from ..query.pattern.compiled import RowTypes
from ..query.pattern.conditions import RowTests
from ..schema import StreamSchema
from ..store.snapshot import Snapshot
from ..store.tap import Spans
from .changes import Results
from .forms import Evaluator, Moment, StreamForm, Ticks, chosen, ticks_of

EVENTS_MAX = 1 << 20
"""Larger regions use the SELECT's plan."""

_CLAUSES = {"expressions", "from_", "where"}
_ONE_ROW = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.EQ, exp.NEQ, exp.Between, exp.Column)


@dataclass(frozen=True)
class _Among:
    column: str
    texts: tuple[str, ...] | None
    wanted: bool

    def holds(self, column: pa.Array) -> pa.BooleanArray:
        if self.texts is None:
            return column.is_null() if self.wanted else column.is_valid()
        found = pc.is_in(column, value_set=pa.array(self.texts, column.type))
        return found if self.wanted else pc.and_(pc.invert(found), column.is_valid())


@dataclass(frozen=True)
class PlainRows:
    """``shown`` are the selected attributes, ``read`` all used, the time first."""

    names: tuple[str, ...]
    shown: tuple[str, ...]
    read: tuple[str, ...]
    tests: RowTests
    among: tuple[_Among, ...]

    def over(self, snapshot: Snapshot, start: int | None, end: int | None, time: str) -> pa.Table:
        schema = pa.schema([snapshot.schema.arrow.field(name) for name in self.read])
        return self.rows_of(
            pa.Table.from_batches(snapshot.scan(start, end, self.read), schema), time
        )

    def rows_of(self, events: pa.Table, time: str) -> pa.Table:
        chosen = self._chosen(events)
        if not chosen.any():
            events = events.slice(0, 0)
        elif not chosen.all():
            events = events.filter(pa.array(chosen))
        shown = [events.column(name) for name in (*self.shown, self.read[0])]
        return pa.table(shown, names=[*self.names, time])

    def _chosen(self, events: pa.Table) -> npt.NDArray[np.bool_]:
        count = events.num_rows
        words = row_words(self.tests, events, np.array([0, count], np.int64))
        chosen = words.astype(np.bool_)
        for each in self.among:
            holds = each.holds(flat(events.column(each.column)))
            chosen &= holds.to_numpy(zero_copy_only=False)
        return chosen


def plain_rows(tree: Any, fields: Sequence[pa.Field], schema: StreamSchema) -> PlainRows | None:
    """The plain form of a live SELECT from one stream; None if it has another form."""
    item = tree.args["from_"].this
    named = item.args.get("alias")
    used = {key for key, value in tree.args.items() if value}
    inside = {key for key, value in item.args.items() if value}
    if not used <= _CLAUSES or not inside <= {"this", "alias"} or (named and named.columns):
        return None
    relation = item.alias_or_name.lower()
    for column in tree.find_all(exp.Column):
        if len(column.parts) > 2 or column.table.lower() not in ("", relation):
            return None  # struct member
    try:
        return _compiled(tree, fields, schema)
    except (AttributeNotFound, SqlError):  # an alias, or a column of the executor
        return None


def _compiled(tree: Any, fields: Sequence[pa.Field], schema: StreamSchema) -> PlainRows | None:
    nodes = [node.unalias() for node in tree.expressions]
    if len(nodes) == 1 and type(nodes[0]) is exp.Star and not any(nodes[0].args.values()):
        shown = [schema.resolve(field.name) for field in fields]
    elif all(_is_column(node) for node in nodes):
        shown = [schema.resolve(node.name) for node in nodes]
    else:
        return None
    if [schema.arrow.field(name).type for name in shown] != [field.type for field in fields]:
        return None
    where = tree.args.get("where")
    tests, among = RowTests(RowTypes(schema.arrow), initial=1), []
    binder = Binder(schema, {}, "")
    for node in _parts(where.this) if where is not None else ():
        found = _among(node, schema)
        if found is not None:
            among.append(found)
        elif isinstance(node, _ONE_ROW) and not any(special(part) for part in node.walk()):
            bound = binder.bind(node.transform(_unqualified), 0, define=True)
            tests.add(1, bound.scalar, bound)
        else:
            return None
    if tests.queries:
        return None
    asked = where.find_all(exp.Column) if where is not None else ()
    read = (schema.time, *shown, *(schema.resolve(column.name) for column in asked))
    names = tuple(field.name for field in fields)
    return PlainRows(names, tuple(shown), tuple(dict.fromkeys(read)), tests, tuple(among))


def _parts(node: Any) -> list[Any]:
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.And):
        return [part for side in (node.this, node.expression) for part in _parts(side)]
    return [node]


def _is_column(node: Any) -> bool:
    return isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier)


def _unqualified(node: Any) -> Any:
    """A column without its table name, as there is only one stream."""
    return exp.column(node.this.copy()) if _is_column(node) else node


def _among(node: Any, schema: StreamSchema) -> _Among | None:
    wanted = True
    while isinstance(node, exp.Not | exp.Paren):
        wanted ^= isinstance(node, exp.Not)
        node = node.this
    if not isinstance(node, exp.EQ | exp.NEQ | exp.In | exp.Is) or not _is_column(node.this):
        return None
    column = schema.resolve(node.this.name)
    if isinstance(node, exp.Is):
        return _Among(column, None, wanted) if isinstance(node.expression, exp.Null) else None
    if isinstance(node, exp.In):
        values = node.expressions if not node.args.get("query") else []
    else:
        values = [node.expression]
        wanted ^= isinstance(node, exp.NEQ)
    texts = [v.this for v in values if isinstance(v, exp.Literal) and v.is_string]
    if not texts or len(texts) < len(values) or not _is_text(schema, column):
        return None
    return _Among(column, tuple(texts), wanted)


def _is_text(schema: StreamSchema, column: str) -> bool:
    return bool(pa.types.is_string(schema.arrow.field(column).type))


TIME = "#time"
PLAIN_REGION_EVENTS = 1 << 16
"""See ``Form.region_events``; row tests cost less than the executor."""
TICKS_FEW = 64


class RowForm(StreamForm):
    """Rows of one stream, identified by tick and rank within it, which never change."""

    kind = "rows"
    in_order = True
    hits: int = 0

    def __init__(
        self,
        evaluator: Evaluator,
        columns: tuple[str, ...],
        seed: bytes,
        plain: PlainRows | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(evaluator, columns)
        self._seed = seed
        self._plain = plain
        self._name = name
        self._none: Results | None = None
        self.by_event = plain is not None
        if plain is not None:
            self.region_events = PLAIN_REGION_EVENTS

    def results(self, moment: Moment, low: int, high: int, known: int) -> Results:
        start, end = half_open(low, min(high, known))
        table = self._rows(moment[self.stream], start, end)
        if self._none is not None and not table.num_rows:
            return self._none
        ticks = ticks_of(table, TIME)
        return self._named(table, ticks, ranks(ticks))

    def _named(self, table: pa.Table, ticks: Ticks, rank: Ticks) -> Results:
        self.hits += len(ticks)
        held = [pa.array(ticks), pa.array(rank)]
        if self._name is not None:
            held = [table.column(self._name)]
        names = digests(self._seed, held)
        found = Results(ticks, names, chosen(table, self.columns))
        if not len(found):
            self._none = found
        return found

    def added_by(self, moment: Moment, events: Mapping[str, pa.Table]) -> Results | None:
        """Rows of the events that pass, ranked behind the earlier rows of their ticks."""
        plain, snapshot, new_events = self._plain, moment[self.stream], events[self.stream]
        if plain is None:
            return None
        table = plain.rows_of(new_events, TIME)
        ticks = ticks_of(table, TIME)
        distinct, first, new = np.unique(ticks, return_index=True, return_counts=True)
        come = ticks_of(new_events, snapshot.schema.time)
        had = self._had(snapshot, plain, distinct, new, come)
        if had is None:
            return None
        return self._named(table, ticks, np.arange(len(ticks)) + np.repeat(had - first, new))

    def _had(
        self, snapshot: Snapshot, plain: PlainRows, distinct: Ticks, new: Ticks, come: Ticks
    ) -> Ticks | None:
        if len(distinct) > TICKS_FEW:
            start, end = half_open(int(distinct[0]), int(distinct[-1]))
            if snapshot.aggregate((), start, end).count > EVENTS_MAX:
                return None
            every = ticks_of(plain.over(snapshot, start, end, TIME), TIME)
            return every.searchsorted(distinct, "right") - every.searchsorted(distinct) - new
        had = np.zeros(len(distinct), np.int64)
        events = come.searchsorted(distinct, "right") - come.searchsorted(distinct)
        for i, tick in enumerate(distinct.tolist()):
            start, end = half_open(tick, tick)
            if snapshot.aggregate((), start, end).count > events[i]:  # it had events before
                had[i] = plain.over(snapshot, start, end, TIME).num_rows - new[i]
        return had

    def _rows(self, snapshot: Snapshot, start: int | None, end: int | None) -> pa.Table:
        plain = self._plain
        if plain is not None and snapshot.aggregate((), start, end).count <= EVENTS_MAX:
            return plain.over(snapshot, start, end, TIME)
        return self.evaluator.over(snapshot, start, end).arrow()

    def changed(self, moment: Moment, late: Mapping[str, Spans], watermark: int) -> Spans:
        return late.get(self.stream, ())

    def explain(self) -> list[tuple[str, str]]:
        how = "the executor" if self._plain is None else "row tests, where events are few"
        return [("class", self.kind), ("reach", "none"), ("closed", "with the event"),
                ("evaluated", f"by {how}"), ("state", "none")]  # fmt: skip


def ranks(ticks: Ticks) -> Ticks:
    """The rank of each row within its tick; ticks ascend."""
    begins = np.ones(len(ticks), np.bool_)
    begins[1:] = ticks[1:] != ticks[:-1]
    first = np.flatnonzero(begins)
    return np.arange(len(ticks)) - first[np.cumsum(begins) - 1] if len(ticks) else ticks
