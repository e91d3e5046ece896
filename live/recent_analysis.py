"""From a SELECT over a recency join to its live form: two live queries and conditions on pairs.

::

    side                        as a live query             the end of a row
    MATCH_RECOGNIZE             patterns, with times        the time of the result
    MATCH_SITUATIONS            situations, with times      the time of the result
    stream                      its events                  the time of the result
    (SELECT) AS x PERIOD(a, b)  the SELECT                  b, at a fixed offset from that
    a recency join              a recency join              that of its live row
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ..core.identity import seed_of
from ..errors import SqlError
from ..query.binding import recent_binding
from ..query.binding.match_binding import BoundMatch
from ..query.binding.recent_binding import BoundRecent, BoundRows, BoundSide, timed
from ..query.binding.scope import is_plain, unwrapped
from ..query.engine import QueryEngine
from ..query.plan.planner import Region
from ..query.sql.dialect import canonical, error_at
from ..query.sql.statement_clauses import RecentRelation
from ..schema import StreamSchema
from ..store.snapshot import Snapshot
from .analysis import (
    Analysed,
    aggregate_in,
    check_live,
    column_node,
    folder_of,
    refused,
    result_columns,
)
from .forms import Evaluator, engine_with
from .join_form import PAIRS, ROW, Asked
from .recent_form import Recency, RecentForm, Side
from .row_form import TIME

Shown = Asked | tuple[tuple[int, str], ...]


class RecentAnalysis:
    def __init__(
        self,
        engine: Callable[[], QueryEngine],
        snapshot: Callable[[str], Snapshot],
        text: str,
        understood: Callable[[Any], Analysed],
    ) -> None:
        self._engine = engine
        self._snapshot = snapshot
        self._text = text
        self._analyse = understood

    def analyse(self, tree: Any, frozen: Sequence[str]) -> Analysed:
        """The live form; SqlError, with position, where there is none."""
        text = self._text
        item = unwrapped(tree.args["from_"].this, text)
        self._check(tree, item)
        prepared = self._engine().prepared(tree.copy(), text)
        bound = prepared.bound.sites[0].operator
        assert isinstance(bound, BoundRecent)
        streams = prepared.streams
        nothing = Region({s: self._snapshot(s) for s in streams}, dict.fromkeys(streams, (0, 0)))
        schema = self._engine().over(prepared, nothing).arrow().schema
        select = prepared.bound.root.copy()
        made, fields = result_columns(select.expressions, schema, frozen, text, tree.expressions[0])
        select.set("expressions", list(made))  # more are appended
        seed = seed_of(f"{' '.join(streams)} {canonical(tree)}")
        form = self._form(bound, item, select, fields, seed)
        times = {}
        for node, field in zip(made, fields, strict=True):
            column = node.this
            if isinstance(column, exp.Column) and column.name == bound.end:
                times[field.name] = form.live.lead
        return Analysed(form, fields, bound.live.time, times)

    # -- what cannot be live ----------------------------------------------------------------------

    def _check(self, tree: Any, item: Any) -> None:
        text = self._text
        outer = tree.copy()
        over = exp.Table(this=exp.to_identifier(PAIRS, quoted=True))
        outer.args["from_"].set("this", over)
        check_live(outer, text)
        for part in self._asked_in(item):
            check_live(exp.select(part.copy()).from_(over.copy()), text)
        found = aggregate_in(tree)
        if found is not None or tree.args.get("group") or tree.args.get("having"):
            raise refused(
                text, found if found is not None else tree, "a live recency join gives a row for "
                "each pair: aggregate where it is read, FROM NET(name)"
            )  # fmt: skip
        if not is_plain(tree):
            raise refused(
                text, tree, "a live recency join gives one row for each pair: unnest where it is "
                "read"
            )  # fmt: skip

    def _asked_in(self, item: Any) -> Iterator[Any]:
        yield from (item.args[key] for key in ("on", "within", "last") if item.args.get(key))
        for side in (item.this, item.expression):
            inner = unwrapped(side, self._text)
            if isinstance(inner, RecentRelation):
                yield from self._asked_in(inner)

    def _refuse(self, item: Any, what: str) -> SqlError:
        return error_at(self._text, item.meta["recent_at"], what)

    # -- the join ---------------------------------------------------------------------------------

    def _form(
        self, bound: BoundRecent, item: Any, select: Any, fields: tuple[pa.Field, ...], seed: bytes
    ) -> RecentForm:
        folder = folder_of(self._engine(), self._text)
        distance = bound.distance(folder)
        if distance is None:
            raise self._refuse(
                item, "without a distance, every archive row would count for ever: a live recency "
                "join ends with WITHIN"
            )  # fmt: skip
        if bound.live.time != bound.archive.time:
            raise self._refuse(
                item, f"the times of the sides are {bound.live.time} and {bound.archive.time}: a "
                "live query reads streams whose times have one type"
            )  # fmt: skip
        relation = select.args["from_"].this.alias_or_name
        read = {c.name for c in select.find_all(exp.Column) if c.table == relation}
        condition = bound.condition
        if condition is not None:
            read |= {column.name for column in condition.find_all(exp.Column)}
        read |= {name for key in bound.keys for name in key}
        live = self._side(bound.live, item.this, read, tuple(one for one, _ in bound.keys))
        archive = self._side(
            bound.archive, item.expression, read, tuple(other for _, other in bound.keys)
        )
        greatest = bound.greatest(folder)
        at_once = bound.kind == "inner" and greatest is None  # ON is evaluated with WHERE
        on = None
        if condition is not None:
            if at_once:
                where = condition.copy()
                for column in where.find_all(exp.Column):
                    column.set("table", exp.to_identifier(relation, quoted=True))
                select = select.where(where, copy=False)
            else:
                on = self._asked(_over_pairs().where(condition.copy()), bound)
        shown = _picked(select, live) or self._asked(select, bound)
        recency = Recency(bound.kind, distance, greatest, on)
        return RecentForm(live, archive, recency, shown, fields, seed)

    def _asked(self, tree: Any, bound: BoundRecent) -> Asked:
        relation = tree.args["from_"].this.alias_or_name
        known = {
            field.name: (number, field)
            for number, side in enumerate((bound.live, bound.archive))
            for field in side.fields
        }
        columns: dict[str, tuple[int, str]] = {}
        fields = [
            pa.field(TIME, bound.live.time, nullable=False),
            pa.field(ROW, pa.int64(), nullable=False),
        ]
        for column in tree.find_all(exp.Column):
            if column.table == relation and column.name not in columns:
                number, field = known[column.name]
                columns[column.name] = number, field.name
                fields.append(field)
        tree.append("expressions", exp.alias_(column_node(ROW), ROW, quoted=True))
        table = exp.Table(
            this=exp.to_identifier(PAIRS, quoted=True),
            alias=exp.TableAlias(this=exp.to_identifier(relation, quoted=True)),
        )
        tree.args["from_"].set("this", table)
        schema = StreamSchema(pa.schema(fields), TIME)
        engine = engine_with(self._engine, PAIRS, schema)
        return Asked(
            Evaluator(engine, tree, self._text, PAIRS), schema, tuple(columns.values())
        )  # fmt: skip

    # -- sides ------------------------------------------------------------------------------------

    def _side(self, side: BoundSide, node: Any, read: set[str], keys: tuple[str, ...]) -> Side:
        item = unwrapped(node, self._text)
        columns = {name: own for name, own in side.columns if name in read}
        columns = columns or dict(side.columns[-1:])  # a table needs a column to have rows
        if isinstance(item, RecentRelation):
            form = self._nested(side, item, columns)
            return Side(form, columns, side.start, form.live.lead, keys)
        if isinstance(item, exp.Subquery):
            return self._query(side, item, columns, keys)
        if isinstance(side.source, BoundMatch):
            item = timed(item, str(side.source.compiled.columns.time))
        elif not isinstance(side.source, BoundRows):
            item = timed(item)
        names = dict.fromkeys((*columns.values(), side.start))
        shown = list(map(column_node, names))
        found = self._analyse(exp.select(*shown).from_(item.copy()))
        return Side(found.form, columns, side.start, 0, keys)

    def _nested(self, side: BoundSide, item: Any, columns: dict[str, str]) -> RecentForm:
        bound = side.source
        names = list(dict.fromkeys((*columns, side.start)))
        shown = [
            exp.alias_(exp.column(name, table=recent_binding.PAIRS, quoted=True), name, quoted=True)
            for name in names
        ]
        select = _over_pairs(*shown)
        fields = tuple(bound.schema.field(name) for name in names)
        return self._form(bound, item, select, fields, seed_of(canonical(item)))

    def _query(
        self, side: BoundSide, item: Any, columns: dict[str, str], keys: tuple[str, ...]
    ) -> Side:
        """A subquery whose rows have their times at fixed offsets from its results' times."""
        found = self._analyse(item.this)
        if not found.form.corrects:
            raise refused(
                self._text, item.this, "windows of so many events stand alone in a live query"
            )
        start, end = (found.times.get(name) for name in (side.start, side.end))
        if start is None or end is None or start > end:
            known = ", ".join(found.times) or "select the time, window_start or window_end there"
            raise error_at(
                self._text, item.meta["period_at"], "PERIOD of a live recency join names columns "
                f"at a fixed distance of the time of a result, the start before the end ({known})"
            )  # fmt: skip
        return Side(found.form, columns, side.start, end, keys)


def _over_pairs(*shown: Any) -> Any:
    table = exp.Table(this=exp.to_identifier(recent_binding.PAIRS, quoted=True))
    return exp.select(*shown).from_(table)


def _picked(select: Any, live: Side) -> tuple[tuple[int, str], ...] | None:
    """Side and column of each projection; None unless all are plain columns."""
    if select.args.get("where") is not None:
        return None
    found = []
    for node in select.expressions:
        column = node.unalias()
        if not isinstance(column, exp.Column):
            return None
        found.append((0 if column.name in live.columns else 1, column.name))
    return tuple(found)
