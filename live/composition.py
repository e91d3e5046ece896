"""Live joins, unions and queries over subqueries, split into parts of one stream (``analysis``)::

    FROM a [LEFT] JOIN b ON ...              join_form      two streams in a time window
                                                            or queries of one stream each
    FROM a RECENT [...] JOIN b ...           recent_form    two of any of these that have times
    SELECT ... UNION ALL SELECT ...          UnionForm      of any of these
    FROM (SELECT ...) [MATCH_RECOGNIZE ...]  NestedForm     over the results of any of these

Names and types of the columns are those of the SELECT when it is run ad hoc.

A query over a subquery: results of one live class are the events of another::

    inner result    _time = y, closed at W when y <= inner.closed(W)
    outer event     t = y + offset, for a column such as window_start at an offset from the time
    outer result    closed when the outer class's input is known up to inner.closed(W) + offset

Reaches add up.  The outer class reads a ``Derived`` snapshot, which evaluates the inner query over
the range read.

UNION ALL of live classes writes into one sink; identities include the number of the SELECT.

Views are expanded first, and stored with the live query, which replacing or dropping them does not
affect; those that only filter become conditions::

    FROM v AS x                             FROM s AS x WHERE (condition of v)
    FROM a LEFT JOIN v ON c                 FROM a LEFT JOIN s AS v ON c AND (condition of v)
    FROM v MATCH_RECOGNIZE (...)            FROM (SELECT * FROM s WHERE ...) MATCH_RECOGNIZE
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ..core.identity import digests, seed_of
from ..core.times import INT64_MAX, moved
from ..errors import ChronicleError, SqlError
from ..query.binding.scope import StreamNames, is_plain
from ..query.binding.views import Expansion, expand, only_filters, without_qualifier
from ..query.engine import QueryEngine
from ..query.pattern.binding import with_members
from ..query.sql.dialect import canonical, error_at, position_of
from ..query.sql.statement_clauses import MatchRelation, RecentRelation
from ..schema import StreamSchema
from ..store.aggregates import LightweightAggregates
from ..store.snapshot import Snapshot, StreamState
from ..store.tap import Spans, united
from ..store.views import StoredView
from .analysis import (
    Analysed,
    aggregate_in,
    check_live,
    columns_of,
    folder_of,
    form_of,
    refuse_aggregates,
    refuse_counted,
    refused,
    result_columns,
    without_stars,
)
from .changes import Results
from .forms import Form, Moment, Overlaid, StreamForm, engine_with, snapshot_of
from .join_binding import JoinedStream, bind_join, check_joins
from .join_form import JoinForm
from .pattern_form import PatternForm
from .recent_form import RecentAnalysis
from .row_form import TIME, RowForm
from .sink import conformed
from .window_form import SessionForm, WindowForm

ID = "#id"
"""Column with the identity of the inner result."""


class Relation:
    """Results of a query as rows, ``offset`` ticks after the result's time."""

    def __init__(self, name: str, inner: Form, schema: StreamSchema, offset: int) -> None:
        self.name = name
        self.inner = inner
        self.schema = schema
        self.offset = offset

    def read(self, moment: Moment, low: int, high: int, known: int) -> pa.RecordBatch:
        """Rows with ``low <= t <= high`` of results that are closed at ``known``."""
        back = -self.offset
        results = self.inner.results(moment, moved(low, back), moved(high, back), known)
        ties = np.arange(len(results)) if self.inner.in_order else results.id
        order = pc.sort_indices(
            pa.table({"time": results.time, "tie": ties}),
            [("time", "ascending"), ("tie", "ascending")],
        )
        arrays = []
        for field in self.schema.arrow:
            if field.name == ID:
                column: Any = results.id
            elif field.name in self.inner.columns:
                column = conformed(results.columns.column(field.name), field)
            else:
                column = pa.array(results.time + self.offset).cast(field.type)
            taken = column.take(order)
            arrays.append(taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema.arrow)

    def at(self, moment: Moment, known: int) -> Derived:
        begun = [s.time_range[0] for s in moment.values() if s.time_range is not None]
        last = moved(self.inner.closed(known), self.offset)
        first = moved(min(begun), self.offset - 1) if begun else INT64_MAX
        span = (first, last) if first <= last else None
        return Derived(self.schema, span, lambda low, high: self.read(moment, low, high, known))


class Derived(Snapshot):
    """Rows evaluated when read; ``span`` bounds their ticks, the first exclusive."""

    def __init__(
        self,
        schema: StreamSchema,
        span: tuple[int, int] | None,
        read: Callable[[int, int], pa.RecordBatch],
    ) -> None:
        super().__init__(StreamState(schema))
        self._span = span
        self._read = read
        self._held: tuple[int, int, Snapshot] | None = None

    @property
    def time_range(self) -> tuple[int, int] | None:
        return self._span

    @property
    def count(self) -> int:
        return int(self.aggregate(()).count)

    def _between(self, start: int | None, end: int | None) -> Snapshot:
        if self._span is None:
            return snapshot_of([], self.schema)
        low = self._span[0] if start is None else max(start, self._span[0])
        high = self._span[1] if end is None else min(end - 1, self._span[1])
        held = self._held
        if held is None or low < held[0] or high > held[1]:
            rows = [self._read(low, high)] if low <= high else []
            held = self._held = (low, high, snapshot_of(rows, self.schema))
        return held[2]

    def aggregate(
        self, attributes: Sequence[str], start: int | None = None, end: int | None = None,
        **options: Any,
    ) -> LightweightAggregates:  # fmt: skip
        return self._between(start, end).aggregate(attributes, start, end, **options)

    def scan(
        self, start: int | None = None, end: int | None = None, *columns: Any, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        return self._between(start, end).scan(start, end, *columns, **options)


class NestedForm(Form):
    """A class of queries over the results of a query."""

    def __init__(self, form: StreamForm, relation: Relation) -> None:
        self.form = form
        self.relation = relation
        self.parts = (form, relation.inner)
        self.columns = form.columns
        self.streams = relation.inner.streams
        self.appends = form.appends and relation.inner.appends
        self.incremental = form.incremental
        self.rebuilds = form.rebuilds
        self.in_order = False

    def _rows_watermark(self, watermark: int) -> int:
        if watermark >= INT64_MAX:
            return INT64_MAX
        return moved(self.relation.inner.closed(watermark), self.relation.offset)

    def results(self, moment: Moment, low: int, high: int, known: int) -> Results:
        rows = self.relation.at(moment, known)
        if rows.time_range is not None:
            low = max(low, moved(rows.time_range[0], 1))
        return self.form.results({self.form.stream: rows}, low, high, self._rows_watermark(known))

    def advanced(self, moment: Moment, since: int, known: int) -> Results | None:
        rows = self.relation.at(moment, known)
        return self.form.advanced(
            {self.form.stream: rows}, self._rows_watermark(since), self._rows_watermark(known)
        )

    def closed(self, watermark: int) -> int:
        return self.form.closed(self._rows_watermark(watermark))

    def begin(self, moment: Moment, watermark: int) -> int:
        rows = self.relation.at(moment, watermark)
        return self.form.begin({self.form.stream: rows}, self._rows_watermark(watermark))

    def changed(self, moment: Moment, late: Mapping[str, Spans], watermark: int) -> Spans:
        inner, offset = self.relation.inner, self.relation.offset
        top = inner.closed(watermark)
        spans = tuple(
            (moved(low, offset), moved(min(high, top), offset))
            for low, high in inner.changed(moment, late, watermark)
            if low <= top
        )
        if not spans:
            return ()
        rows, name = self.relation.at(moment, watermark), self.form.stream
        return self.form.changed({name: rows}, {name: spans}, self._rows_watermark(watermark))

    def explain(self, time: pa.DataType) -> list[tuple[str, str]]:
        lines = list(self.form.explain(time))
        return lines + [(f"of {name}", value) for name, value in self.relation.inner.explain(time)]


class UnionForm(Form):
    kind = "union"

    def __init__(self, parts: Sequence[Form], columns: tuple[str, ...]) -> None:
        self.parts = tuple(parts)
        self.columns = columns
        self.streams = tuple(dict.fromkeys(name for part in parts for name in part.streams))
        self.appends = all(part.appends and part.closed(0) == 0 for part in parts)
        self.emits_changes = all(part.emits_changes for part in parts)
        self.incremental = any(part.incremental for part in parts)
        self.rebuilds = all(part.rebuilds or not part.incremental for part in parts)
        self.in_order = all(part.in_order for part in parts)

    def results(self, moment: Moment, low: int, high: int, known: int) -> Results:
        return self._joined([part.results(moment, low, high, known) for part in self.parts])

    def advanced(self, moment: Moment, since: int, known: int) -> Results | None:
        return self._joined([part.closing(moment, since, known) for part in self.parts])

    def _joined(self, parts: Sequence[Results]) -> Results:
        tables = [each.columns.rename_columns(list(self.columns)) for each in parts]
        names = [
            digests(seed_of(f"union {number}"), [each.id]) for number, each in enumerate(parts)
        ]
        times = np.concatenate([each.time for each in parts])
        order = np.argsort(times, kind="stable")
        taken = pa.array(order)
        whole = pa.concat_tables(tables, promote_options="permissive").take(taken)
        return Results(times[order], pa.concat_arrays(names).take(taken), whole)

    def closed(self, watermark: int) -> int:
        return max(part.closed(watermark) for part in self.parts)

    def begin(self, moment: Moment, watermark: int) -> int:
        return min(part.begin(moment, watermark) for part in self.parts)

    def changed(self, moment: Moment, late: Mapping[str, Spans], watermark: int) -> Spans:
        return united(
            tuple(span for part in self.parts for span in part.changed(moment, late, watermark))
        )

    def explain(self, time: pa.DataType) -> list[tuple[str, str]]:
        lines = [("class", f"{self.kind} of {len(self.parts)}")]
        for number, part in enumerate(self.parts, 1):
            lines += [(f"{number}. {name}", value) for name, value in part.explain(time)]
        return lines


def analyse(
    engine: Callable[[], QueryEngine],
    snapshot: Callable[[str], Snapshot],
    tree: Any,
    text: str,
    frozen: Sequence[str] = (),
) -> Analysed:
    """Analyse a SELECT; parameters and errors as of ``analysis.form_of``."""
    for table in tree.find_all(exp.Table):
        if table.args.get("db") is not None:
            raise refused(text, table, "a system table has no events to follow")
    parts = _Parts(engine, snapshot, text)
    return parts.analyse(tree, frozen)


@dataclass(eq=False)
class _Parts:
    engine: Callable[[], QueryEngine]
    snapshot: Callable[[str], Snapshot]
    text: str

    def analyse(self, tree: Any, frozen: Sequence[str]) -> Analysed:
        if isinstance(tree, exp.SetOperation):
            return self._union(tree)
        if isinstance(tree, exp.Select) and tree.args.get("joins"):
            return self._join(tree, frozen)
        if isinstance(tree, exp.Select) and _recency_join(tree):
            recent = RecentAnalysis(
                self.engine, self.snapshot, self.text, lambda side: self.analyse(side, ())
            )
            return recent.analyse(tree, frozen)
        if isinstance(tree, exp.Select) and _inner(tree) is not None:
            return self._nested(tree, frozen)
        analysed = form_of(self.engine, self.snapshot, tree, self.text, frozen)
        return replace(analysed, times=_times(tree, analysed))

    # -- unions -------------------------------------------------------------------------------

    def _union(self, tree: Any) -> Analysed:
        text = self.text
        branches: list[Any] = []
        for node in _set_operations(tree):
            check_live(node, text, union=True)
            branches.insert(0, node.expression)
            if not isinstance(node.this, exp.SetOperation):
                branches.insert(0, node.this)
        parts = [
            self.analyse(branch.this if isinstance(branch, exp.Subquery) else branch, ())
            for branch in branches
        ]
        first = parts[0]
        for branch, other in zip(branches[1:], parts[1:], strict=True):
            mine, theirs = ([field.type for field in each.fields] for each in (first, other))
            if mine != theirs or first.time != other.time:
                raise refused(
                    text, branch, f"the SELECTs of a union have columns of the same types, found "
                    f"({_types(theirs)}) with times of {other.time} after ({_types(mine)}) with "
                    f"times of {first.time}: CAST them"
                )  # fmt: skip
        for branch, part in zip(branches, parts, strict=True):
            refuse_counted(part, text, branch)
        names = tuple(field.name for field in first.fields)
        times = dict(first.times)
        for other in parts[1:]:
            theirs = [other.times.get(field.name) for field in other.fields]
            times = {
                field.name: times[field.name]
                for field, offset in zip(first.fields, theirs, strict=True)
                if times.get(field.name, _NOWHERE) == offset
            }
        form = UnionForm([each.form for each in parts], names)
        return Analysed(form, first.fields, first.time, times)

    # -- subqueries ---------------------------------------------------------------------------

    def _nested(self, tree: Any, frozen: Sequence[str]) -> Analysed:
        text, query = self.text, _inner(tree)
        self.engine().prepared(tree.copy(), text)  # raises for a query that cannot run
        many = aggregate_in(tree)
        if many is not None or tree.args.get("group"):
            raise refused(
                text, many if many is not None else tree, "an aggregate over all rows of a "
                "subquery is never known for good: aggregate over a window, in the subquery"
            )  # fmt: skip
        inner = self.analyse(query, ())
        refuse_counted(inner, text, query)
        name = canonical(query)  # match identities do not depend on the outer query
        outer = tree.copy()
        item = outer.args["from_"].this
        fields = list(inner.fields)
        own: str | None = None
        if isinstance(item, exp.Subquery):
            own, time, offset = ID, TIME, 0
            fields += [pa.field(TIME, inner.time), pa.field(ID, pa.binary())]
            names = [field.name for field in inner.fields]
            shown = without_stars(
                outer.expressions, [(None, names)], text, "a live query over a subquery"
            )
            outer.set("expressions", shown)
            _rename(outer.args["from_"], item, name)
        else:
            time, offset = self._time_of(item, inner)
            _rename(item, item.this, name)
        try:
            schema = StreamSchema(pa.schema(fields), time)
        except ChronicleError as error:
            raise refused(text, query, f"{error}") from None
        relation = Relation(name, inner.form, schema, offset)
        engine = engine_with(self.engine, name, schema)
        analysed = form_of(engine, lambda _: snapshot_of([], schema), outer, text, frozen, own)
        assert isinstance(analysed.form, StreamForm)
        form = NestedForm(analysed.form, relation)
        times = {} if own is None else _picked(outer, inner.times)
        return replace(analysed, form=form, times=times)

    def _time_of(self, item: Any, inner: Analysed) -> tuple[str, int]:
        """The column that ORDER BY begins with, and its offset in ticks from the result's time."""
        order = item.args["match"].args.get("order")
        key = order.expressions[0] if order is not None else None
        column = key.this if key is not None and not key.args.get("desc") else None
        for name, offset in inner.times.items():
            if isinstance(column, exp.Column) and column.name.lower() == name.lower():
                return name, offset
        times = ", ".join(inner.times) or "select the time, window_start or window_end there"
        raise refused(
            self.text, order if order is not None else item, "a live pattern over a subquery is "
            f"in the order of its results' time: ORDER BY one of its columns for that ({times})"
        )  # fmt: skip

    # -- joins --------------------------------------------------------------------------------

    def _join(self, tree: Any, frozen: Sequence[str]) -> Analysed:
        text = self.text
        for table in _tables(tree):
            if isinstance(table, RecentRelation):
                raise error_at(
                    text, table.meta["recent_at"], "a recency join stands alone in a live query: "
                    "join its results where they are read, FROM NET(name)"
                )  # fmt: skip
        whole, tree = tree, tree.copy()
        check_joins(tree.args["joins"], text)
        fields = self._fields(whole)
        _take_filters_over(tree)
        sides = [self._side(table) for table in _tables(tree)]
        for holder, side in zip([tree.args["from_"], *tree.args["joins"]], sides, strict=True):
            table = exp.Table(this=exp.to_identifier(side.alias, quoted=True))
            table.meta["start"] = position_of(holder.this)
            holder.set("this", table)
        check_live(tree, text, join=True)
        refuse_aggregates(tree, text, "a live join")
        aliases = [{side.alias, side.alias.upper()} for side in sides]
        for side, own, others in zip(sides, aliases, reversed(aliases), strict=True):
            tree = with_members(tree, side.schema, own, self._refuse, others)
        bound = bind_join(tree, text, sides, folder_of(self.engine(), text))
        if not is_plain(tree):
            raise refused(text, tree, "a live join gives one row for each pair: unnest elsewhere")
        named = tree.copy()
        columns_by_side = [(side.alias, side.schema.names) for side in bound.sides]
        shown = without_stars(named.expressions, columns_by_side, text, "a live join")
        made, columns = result_columns(shown, fields, frozen, text, tree.expressions[0])
        named.set("expressions", made)
        names = tuple(field.name for field in columns)
        streams = " ".join(side.stream for side in bound.sides)
        seed = seed_of(f"{streams} {canonical(whole)}")
        form = JoinForm(self.engine, named, text, bound, names, seed)
        return Analysed(form, columns, bound.left.schema.time_type)

    def _side(self, item: Any) -> JoinedStream:
        """A stream, or a query that filters one and computes columns of its events."""
        if isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier):
            catalog = self.engine().catalog
            streams = StreamNames(catalog.streams())
            name = streams.find(item.name)
            if name is None:
                raise streams.missing(item, self.text)
            schema = catalog.stream_schema(name)
            source = exp.Table(this=exp.to_identifier(name, quoted=True))
            alias = item.alias_or_name
            return JoinedStream(name, alias, schema, _aliased(source, alias), {schema.time})
        if not isinstance(item, exp.Subquery) or not item.alias:
            raise self._refuse("a live join is of two streams, or queries of one each", item)
        inner = self.analyse(item.this, ())
        if not _gives_events(inner.form):
            raise self._refuse(
                "a live join is of two streams, or of queries and views that filter one and "
                "compute columns of its events", item.this
            )  # fmt: skip
        times = [name for name, offset in inner.times.items() if not offset]
        if not times:
            raise self._refuse("a live join compares times: select the time here", item.this)
        schema = StreamSchema(pa.schema(inner.fields), times[0])
        source = _aliased(exp.Subquery(this=item.this.copy()), item.alias)
        stream = inner.form.streams[0]
        plain = inner.form.plain if isinstance(inner.form, RowForm) else None
        return JoinedStream(stream, item.alias, schema, source, set(times), plain)

    def _refuse(self, message: str, node: Any) -> SqlError:
        return refused(self.text, node, message)

    def _fields(self, tree: Any) -> list[pa.Field]:
        prepared = self.engine().prepared(tree.copy(), self.text)
        return list(columns_of(self.engine(), prepared, self.snapshot))


def _tables(tree: Any) -> list[Any]:
    return [tree.args["from_"].this, *(join.this for join in tree.args["joins"])]


def _aliased(item: Any, alias: str) -> Any:
    item.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    return item


def _gives_events(form: Form) -> bool:
    if isinstance(form, NestedForm):
        return isinstance(form.form, RowForm) and _gives_events(form.relation.inner)
    return isinstance(form, RowForm)


def _set_operations(tree: Any) -> list[Any]:
    operations = []
    while isinstance(tree, exp.SetOperation):
        operations.append(tree)
        tree = tree.this
    return operations


def _types(types: Sequence[pa.DataType]) -> str:
    return ", ".join(map(str, types))


# -- subqueries ---------------------------------------------------------------------------------

_NOWHERE = object()


def _recency_join(tree: Any) -> bool:
    clause = tree.args.get("from_")
    item = None if clause is None else clause.this
    while isinstance(item, exp.Subquery) and not item.alias:
        item = item.this
    return isinstance(item, RecentRelation)


def _inner(tree: Any) -> Any:
    if tree.args.get("from_") is None:
        return None
    item = tree.args["from_"].this
    if isinstance(item, MatchRelation):
        item = item.this
        if isinstance(item, MatchRelation):
            return exp.select("*").from_(item.copy())
    return item.this if isinstance(item, exp.Subquery) else None


def _rename(parent: Any, item: Any, name: str) -> None:
    alias = item.args.get("alias")
    table = exp.Table(this=exp.to_identifier(name, quoted=True))
    if isinstance(item, exp.Subquery) and alias is not None:
        table.set("alias", alias.copy())
    elif isinstance(parent, exp.From):
        table.set("alias", exp.TableAlias(this=exp.to_identifier("subquery", quoted=True)))
    parent.set("this", table)


def _times(tree: Any, analysed: Analysed) -> dict[str, int]:
    """Result columns that are the result's time, with their offset in ticks."""
    form = analysed.form
    positions: dict[str, int] = {}
    if isinstance(form, RowForm):
        positions[analysed.attribute] = 0
    elif isinstance(form, WindowForm):
        positions.update(window_start=1 - form.windows.size, window_end=1)
    elif isinstance(form, SessionForm):
        positions["window_end"] = 1
    elif isinstance(form, PatternForm):
        match = tree.args["from_"].this.args["match"]
        rows = match.args.get("rows")
        for measure in match.args.get("measures") or () if rows is None else ():
            if _last_time(measure.unalias(), analysed.attribute):
                positions[measure.alias] = 0
    return _picked(tree, positions)


def _last_time(node: Any, attribute: str) -> bool:
    """Whether a measure is the time of the last event of a match."""
    if not isinstance(node, exp.Anonymous):
        return False
    name, arguments = node.name.lower(), node.expressions
    if name == "match_time":
        return True
    bare = len(arguments) == 1 and isinstance(arguments[0], exp.Column) and not arguments[0].table
    return name == "last" and bare and arguments[0].name.lower() == attribute.lower()


def _picked(tree: Any, known: Mapping[str, int]) -> dict[str, int]:
    folded = {name.lower(): offset for name, offset in known.items()}
    position: dict[str, int] = {}
    item = tree.args["from_"].this
    clause = item.args.get("match")
    relations = {"", item.alias_or_name.lower(), "" if clause is None else clause.alias.lower()}
    for node in tree.expressions:
        if type(node) is exp.Star:
            position |= known
        column = node.unalias()
        if (
            isinstance(column, exp.Column)
            and column.table.lower() in relations
            and column.name.lower() in folded
        ):
            position[node.alias_or_name] = folded[column.name.lower()]
    return position


@dataclass(frozen=True)
class ExpandedQuery:
    """A SELECT over streams, and the expanded views' queries by name."""

    tree: Any
    views: dict[str, str]
    _expansion: Expansion | None

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Make errors inside an expanded view name that view."""
        try:
            yield
        except SqlError as error:
            if self._expansion is None:
                raise
            raise self._expansion.explained(error) from None


def expand_views(tree: Any, text: str, views: Mapping[str, StoredView]) -> ExpandedQuery:
    """The SELECT with its views expanded; ``tree`` is not changed.  Raises SqlError."""
    root, expansion = expand(tree.copy(), text, views, frozenset())
    if expansion is None or not expansion.used:
        return ExpandedQuery(tree, {}, None)
    for select in reversed(list(root.find_all(exp.Select))):
        _take_filters_over(select)
    return ExpandedQuery(root, dict(expansion.used), expansion)


def stored_views(views: Mapping[str, str]) -> dict[str, StoredView]:
    return {name: StoredView(name, sql, (), pa.schema([])) for name, sql in views.items()}


def engine_with_views(engine: Callable[[], QueryEngine], views: Mapping[str, str]) -> QueryEngine:
    whole = engine()
    return whole.over_catalog(Overlaid(whole, views=stored_views(views)))


def _take_filters_over(select: Any) -> None:
    """Turn derived tables that only filter into conditions of the SELECT."""
    clause, joins = select.args.get("from_"), select.args.get("joins") or []
    for holder in [*([] if clause is None else [clause]), *joins]:
        derived = holder.this
        if not isinstance(derived, exp.Subquery) or not _is_filter(derived):
            continue
        query, alias = derived.this, derived.args["alias"]
        source = query.args["from_"].this
        where = query.args.get("where")
        condition = None if where is None else where.this
        if condition is not None:
            if joins and condition.find(exp.Lambda):
                continue
            names = (source.alias_or_name,)
            condition = without_qualifier(condition, names, alias.name if joins else None)
            condition = exp.paren(condition)
        table = exp.Table(this=source.this, alias=alias)
        table.meta.update(derived.meta)
        holder.set("this", table)
        if condition is None:
            continue
        if isinstance(holder, exp.Join) and holder.side:  # of the optional side of LEFT JOIN
            on = holder.args.get("on")
            holder.set("on", condition if on is None else exp.and_(on, condition, copy=False))
        else:
            select.where(condition, copy=False)


def _is_filter(derived: Any) -> bool:
    """Whether a derived table is ``(SELECT * FROM stream [WHERE ...]) AS name``."""
    alias: Any = derived.args.get("alias")
    decorated = any(derived.args.get(key) for key in ("joins", "sample", "laterals", "pivots"))
    if alias is None or alias.args.get("columns") or decorated or not only_filters(derived.this):
        return False
    source: Any = derived.this.args["from_"].this
    return isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier)
