"""From a SELECT over one stream to its live form, by its FROM item.

Internal columns are added, which do not change the user's rows::

    FROM stream                          row_form       event's time
    FROM TUMBLE | HOP(...)               window_form    window_start, and the keys
    FROM TUMBLE_ROWS | HOP_ROWS(...)     window_form    window_id, window_end, and the keys
    FROM SESSION(...)                    window_form    start, end, keys, whether HAVING holds
    FROM stream MATCH_RECOGNIZE (...)    pattern_form   MATCH_TIME(), MATCH_ID(), MATCH_EVENT()

A SELECT whose results never become final cannot be live; it is refused with a suggestion.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ..core.identity import seed_of
from ..errors import SqlError
from ..query.binding.match_binding import BoundMatch, BoundSituations
from ..query.binding.scope import is_plain
from ..query.binding.views import WINDOW_FUNCTIONS
from ..query.binding.window_binding import BoundWindows, has_aggregate
from ..query.conditions.constants import Folder
from ..query.contract.cancellation import QueryControl
from ..query.engine import QueryEngine
from ..query.operators import BoundEvents
from ..query.plan.planner import Region
from ..query.plan.prepared import PreparedQuery
from ..query.split.parts import Reach
from ..query.sql.dialect import canonical, error_at, parse_statement, position_of, to_text
from ..query.sql.forms import AGGREGATES
from ..query.sql.statement_clauses import MatchRelation, SituationRelation
from ..query.windows.spec import CalendarWindows, CountWindows, SessionWindows, TimeWindows
from ..store.snapshot import Snapshot
from .forms import Evaluator, Form, StreamForm
from .instant_form import InstantForm
from .pattern_form import EVENT, MATCH, PatternForm
from .row_form import TIME, RowForm, plain_rows
from .window_form import END, KEPT, LAST, NUMBER, START, CountForm, SessionForm, WindowForm

_CLAUSES = {
    "order": "results are put out as they become known; sort them where they are read: SELECT ... "
    "FROM NET(name) ORDER BY ...",
    "limit": "a live query has no end to count to; take the first rows where they are read",
    "offset": "a live query has no end to count to; take the first rows where they are read",
    "distinct": "whether a row is the first of its kind is never known for good; group by a window",
    "qualify": "row numbers and ranks change with every event; group by a window",
    "windows": "functions OVER rows change with every event; group by a window",
    "with_": "a live query is one SELECT; write what WITH names where it is used",
    "joins": "join two streams, FROM a JOIN b ON ..., without parentheses",
    "laterals": "a live query joins two streams, FROM a JOIN b ON ...",
    "sample": "which events a sample holds is not the same each time",
}
_CHANGING = (
    "now", "current_timestamp", "transaction_timestamp", "get_current_timestamp", "current_date",
    "today", "localtimestamp", "current_localtimestamp", "current_localtime", "get_current_time",
    "random", "uuid", "gen_random_uuid", "reservoir_quantile",
)  # fmt: skip


def refused(text: str, node: Any, what: str) -> SqlError:
    return error_at(text, position_of(node), what)


def check_live(tree: Any, text: str, *, join: bool = False, union: bool = False) -> None:
    """SqlError for what no live class supports; ``union``: ``tree`` is a set operation."""
    if union:
        if type(tree) is not exp.Union or tree.args.get("distinct") or tree.args.get("by_name"):
            raise refused(
                text, tree.expression, "whether a row occurs elsewhere, too, is never known for "
                "good: write UNION ALL, columns in the same order"
            )  # fmt: skip
        for clause in ("order", "limit", "offset", "with_"):
            if tree.args.get(clause):
                raise refused(text, tree.args[clause], _CLAUSES[clause])
        return
    if not isinstance(tree, exp.Select) or tree.args.get("from_") is None:
        raise refused(text, tree, "a live query is a SELECT from a stream")
    for clause, why in _CLAUSES.items():
        clause_tree = tree.args.get(clause)
        if clause_tree and not (join and clause == "joins"):
            node = clause_tree[0] if isinstance(clause_tree, list) else clause_tree
            name = "WITH" if clause == "with_" else type(node).__name__.upper()
            at = tree if position_of(node) is None else node
            raise refused(text, at, f"{name} cannot be live: {why}")
    item = tree.args["from_"].this
    if item.args.get("joins"):
        raise refused(text, item.args["joins"][0], f"a join cannot be live: {_CLAUSES['joins']}")
    for node in tree.walk():
        if isinstance(node, exp.Placeholder):
            raise refused(text, node, "a live query has no parameters; write the value")
        if isinstance(node, exp.Window):
            raise refused(text, node, f"OVER cannot be live: {_CLAUSES['windows']}")
        if node is not tree and isinstance(node, exp.Query):
            raise refused(
                text, node, "a live query reads one stream: it has no subqueries; put conditions "
                "into WHERE or DEFINE"
            )  # fmt: skip
        if isinstance(node, exp.CurrentTimestamp | exp.CurrentDate | exp.Localtimestamp) or (
            isinstance(node, exp.Anonymous) and node.name.lower() in _CHANGING
        ):
            raise refused(
                text, node, "a live query must give the same each time it is asked; use the time "
                "of the events"
            )  # fmt: skip


def aggregate_in(tree: Any) -> Any:
    """The first aggregate in a SELECT's own clauses; None without one."""
    for part in (*tree.expressions, tree.args.get("having")):
        for node in part.walk() if part is not None else ():
            if isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES:
                return node
    return None


def refuse_aggregates(tree: Any, text: str, what: str) -> None:
    aggregate = aggregate_in(tree)
    if aggregate is not None or tree.args.get("group") or tree.args.get("having"):
        raise refused(
            text, tree if aggregate is None else aggregate, f"{what} gives a row for each pair: "
            "aggregate where it is read, FROM NET(name)"
        )  # fmt: skip


def refuse_counted(analysed: Analysed, text: str, node: Any) -> None:
    """SqlError for windows of a number of events inside another query."""
    if not analysed.form.corrects:
        raise refused(text, node, "windows of so many events stand alone in a live query")


def columns_of(
    engine: QueryEngine, prepared: PreparedQuery, snapshot: Callable[[str], Snapshot]
) -> pa.Schema:
    """The columns of a query's results; no event is read."""
    streams = list(prepared.streams)
    nothing = Region({name: snapshot(name) for name in streams}, dict.fromkeys(streams, (0, 0)))
    return engine.over(prepared, nothing).arrow().schema


@dataclass(frozen=True)
class Analysed:
    """A SELECT's form; ``times`` are result columns that are its time, with an offset in ticks."""

    form: Form
    fields: tuple[pa.Field, ...]
    time: pa.DataType
    times: Mapping[str, int] = field(default_factory=dict)
    attribute: str = ""


def form_of(
    engine: Callable[[], QueryEngine],
    snapshot: Callable[[str], Snapshot],
    tree: Any,
    text: str,
    frozen: Sequence[str] = (),
    name: str | None = None,
) -> Analysed:
    """The form of a SELECT; SqlError, with position, if it cannot be live.

    ``frozen``: columns that ``*`` meant at creation; ``name``: column with the identity of events
    that are results of a subquery.
    """
    check_live(tree, text)
    plain = engine().prepared(tree.copy(), text)
    if len(plain.streams) != 1:
        raise refused(text, tree, "a live query reads one stream")
    stream, schema = next(iter(plain.streams.items()))
    item = tree.args["from_"].this
    source = _Source(engine, snapshot(stream), tree, text, stream, schema.time, plain)
    fields = source.fields(frozen)
    columns = tuple(field.name for field in fields)
    if isinstance(item, SituationRelation):
        form = _situations(source, columns)
    elif isinstance(item, MatchRelation):
        form = _pattern(source, columns)
    elif isinstance(plain.bound.sites[0].operator, BoundEvents):
        form = _events(source, columns)
    elif isinstance(item, exp.Table) and isinstance(item.this, exp.Anonymous):
        form = _windows(source, columns)
    else:
        form = _rows(source, columns, fields, name)
    return Analysed(form, fields, schema.time_type, attribute=schema.time)


@dataclass(frozen=True)
class _Source:
    engine: Callable[[], QueryEngine]
    snapshot: Snapshot
    tree: Any
    text: str
    stream: str
    time: str
    plain: PreparedQuery

    @property
    def seed(self) -> bytes:
        return seed_of(f"{self.stream} {canonical(self.tree)}")

    def fields(self, frozen: Sequence[str]) -> tuple[pa.Field, ...]:
        schema = columns_of(self.engine(), self.plain, lambda _: self.snapshot)
        names = list(frozen) or schema.names
        doubled = [name for name in names if schema.names.count(name) > 1]
        if doubled:
            raise refused(
                self.text, self.tree.expressions[0],
                f"two columns of the results would be called {doubled[0]!r}; give one an alias",
            )  # fmt: skip
        return tuple(schema.field(name).with_nullable(True) for name in names)

    def evaluator(
        self, columns: Sequence[str], added: dict[str, Any], tree: Any = None
    ) -> Evaluator:
        """The SELECT plus added columns; ``*`` alone is expanded, so that it stays a projection."""
        made = (self.tree if tree is None else tree).copy()
        if len(made.expressions) == 1 and type(made.expressions[0]) is exp.Star:
            plain = not any(made.expressions[0].args.get(key) for key in _STAR)
            made.set(
                "expressions",
                [column_node(name) for name in columns] if plain else made.expressions,
            )
        for name, node in added.items():
            made.append("expressions", exp.alias_(node, name, quoted=True, copy=False))
        return Evaluator(self.engine, made, self.text, self.stream)

    def refuse(self, what: str, node: Any = None) -> SqlError:
        return refused(self.text, node if node is not None else self.tree, what)


_STAR = ("except_", "replace", "rename")


def column_node(name: str, table: str | None = None) -> Any:
    quoted = exp.to_identifier(name, quoted=True)
    return exp.column(
        quoted, table=None if table is None else exp.to_identifier(table, quoted=True)
    )


def without_stars(
    nodes: Sequence[Any],
    relations: Sequence[tuple[str | None, Sequence[str]]],
    text: str,
    what: str,
) -> list[Any]:
    """Projections with each star replaced by the columns of the relations (alias, columns)."""
    shown: list[Any] = []
    for node in nodes:
        star = node.this if isinstance(node, exp.Column) else node
        if not isinstance(star, exp.Star):
            shown.append(node)
            continue
        if any(star.args.values()):
            raise refused(text, node, f"{what} names its columns, or takes all with *")
        for alias, columns in relations:
            if star is node or alias is None or alias.lower() == node.table.lower():
                shown += [column_node(name, alias) for name in columns]
    return shown


def folder_of(engine: QueryEngine, text: str) -> Folder:
    """Constants of a live query are evaluated once, when it is created or opened."""

    def evaluate(node: Any) -> pa.Scalar | None:
        return engine.executor.constant(to_text(node, text), {}, QueryControl())

    return Folder({}, dt.datetime.now(dt.timezone.utc), evaluate)


def result_columns(
    nodes: Sequence[Any], fields: Sequence[pa.Field], frozen: Sequence[str], text: str, at: Any
) -> tuple[list[Any], tuple[pa.Field, ...]]:
    """Projections, each with its name, and their fields, of the columns that ``*`` meant at
    creation (``frozen``; empty: all); SqlError at ``at`` for two columns of one name.
    """
    pairs = [
        (node, field)
        for node, field in zip(nodes, fields, strict=True)
        if not frozen or field.name in frozen
    ]
    names = [field.name for _, field in pairs]
    for _, each in pairs:
        if names.count(each.name) > 1:
            raise refused(
                text, at, f"two columns of the results would be called {each.name!r}; give one "
                "an alias"
            )  # fmt: skip
    projections = [exp.alias_(node.unalias(), name, quoted=True) for (node, _), name in
                   zip(pairs, names, strict=True)]  # fmt: skip
    return projections, tuple(field.with_nullable(True) for _, field in pairs)


# -- rows -------------------------------------------------------------------------------------


def _rows(
    source: _Source, columns: tuple[str, ...], fields: Sequence[pa.Field], name: str | None
) -> StreamForm:
    tree = source.tree
    aggregate = aggregate_in(tree)
    if aggregate is not None or tree.args.get("group") or tree.args.get("having"):
        raise source.refuse(
            "an aggregate over all events is never known for good: aggregate over a window, FROM "
            f"TUMBLE({source.stream}, {source.time}, ...) GROUP BY window_start, window_end",
            aggregate
            if aggregate is not None
            else tree.args.get("group") or tree.args.get("having"),
        )
    if not is_plain(tree):
        raise source.refuse(
            "a live query of events gives one row for each: unnest where it is read"
        )
    item = tree.args["from_"].this
    added = {TIME: column_node(source.time, item.alias_or_name)}
    if name is not None:
        added[f"#{name}"] = column_node(name, item.alias_or_name)
    evaluator = source.evaluator(columns, added)
    if name is not None:
        return RowForm(evaluator, columns, source.seed, name=f"#{name}")
    plain = plain_rows(source.engine().plan(tree.copy(), source.text), fields)
    return RowForm(evaluator, columns, source.seed, plain)


# -- windows ----------------------------------------------------------------------------------


def _windows(source: _Source, columns: tuple[str, ...]) -> StreamForm:
    tree = source.tree
    call = tree.args["from_"].this.this
    name = call.name.lower()
    if name not in WINDOW_FUNCTIONS:
        raise source.refuse(f"{name.upper()} is no stream: a live query reads one", call)
    bound = source.plain.bound.sites[0].operator
    assert isinstance(bound, BoundWindows)
    windows = bound.call.windows(folder_of(source.engine(), source.text))
    if bound.call.fill is not None:
        raise source.refuse("results are of windows with events: fill gaps where they are read",
                            call)  # fmt: skip
    if isinstance(windows, CountWindows):
        return _counted(source, columns, bound, windows)
    group = tree.args.get("group")
    nodes = _groups(source, group)
    own = {n.name.lower() for n in nodes if isinstance(n, exp.Column)}
    if not own & {"window_start", "window_end"}:
        raise source.refuse("group by window_start and window_end, so that windows end", group)
    keys = _keys(nodes, _WINDOW)
    alias = tree.args["from_"].this.alias or None
    start, end = (column_node(each, alias) for each in ("window_start", "window_end"))
    if isinstance(windows, SessionWindows):
        if not {"window_start", "window_end"} <= own and not group.args.get("all"):
            raise source.refuse("sessions are grouped by window_start and window_end", group)
        made = tree.copy()
        having = made.args.get("having")
        own_columns = {START: start, END: end, **keys}
        if having is not None:
            made.set("having", None)
            own_columns[KEPT] = having.this.copy()
        evaluator = source.evaluator(columns, own_columns, made)
        return SessionForm(evaluator, columns, source.seed, windows.gap, tuple(keys))
    if isinstance(windows, CalendarWindows):
        raise source.refuse(
            "windows that follow the calendar have no fixed length: put windows of an hour or a "
            "day out, and ask for the months of the results",
            call,
        )
    assert isinstance(windows, TimeWindows)
    if windows.origin is None:
        raise source.refuse(
            "a late event before the first would move every window: give a time as origin", call
        )
    made = tree.copy()
    if not group.args.get("all"):
        for name, column in (("window_start", start), ("window_end", end)):
            if name not in own:
                made.args["group"].append("expressions", column.copy())
    evaluator = source.evaluator(columns, {START: start, END: end, **keys}, made)
    chooses = tree.args.get("having") is not None
    return WindowForm(evaluator, columns, source.seed, windows, tuple(keys), chooses=chooses)


def _counted(
    source: _Source, columns: tuple[str, ...], bound: BoundWindows, windows: CountWindows
) -> StreamForm:
    tree, group = source.tree, source.tree.args.get("group")
    if bound.conditions or tree.args.get("where") is not None:
        raise source.refuse(
            "windows of so many events count all events of a stream: put those that shall count "
            "into a stream of their own",
            tree.args.get("where"),
        )
    nodes = _groups(source, group)
    if not any(isinstance(node, exp.Column) and node.name.lower() == "window_id" for node in nodes):
        raise source.refuse("group by window_id", group)
    numbers = []
    for part in (*tree.expressions, tree.args.get("having")):
        for node in part.find_all(exp.Column) if part is not None else ():
            if node.name.lower() == "window_id":
                if part.unalias() is not node:
                    raise source.refuse("window_id may be selected, and nothing else", node)
                numbers.append(part.alias_or_name)
    keys = _keys(nodes, (*_WINDOW, "window_id"))
    made = tree.copy()
    if not group.args.get("all") and not any(
        isinstance(node, exp.Column) and node.name.lower() == "window_end" for node in nodes
    ):
        made.args["group"].append("expressions", column_node("window_end"))
    made.set("hint", parse_statement("SELECT /*+ strategy(replay) */ 1").args["hint"])
    added = {NUMBER: column_node("window_id"), LAST: column_node("window_end"), **keys}
    evaluator = source.evaluator(columns, added, made)
    return CountForm(evaluator, columns, source.seed, windows, tuple(keys), tuple(numbers))


_WINDOW = ("window_start", "window_end")


def _keys(nodes: Sequence[Any], window: Sequence[str]) -> dict[str, Any]:
    """The keys besides the columns of the window, by internal column."""
    return {
        f"#key{i}": node.copy()
        for i, node in enumerate(nodes)
        if not (isinstance(node, exp.Column) and node.name.lower() in window)
    }


def _groups(source: _Source, group: Any) -> list[Any]:
    """Nodes of GROUP BY, with positions, aliases and ALL resolved."""
    if group is None:
        raise source.refuse("a live query over windows groups by window_start and window_end")
    if any(group.args.get(key) for key in ("grouping_sets", "cube", "rollup", "totals")):
        raise source.refuse("a live query has one list of keys in GROUP BY", group)
    shown = source.tree.expressions
    if group.args.get("all"):
        return [part.unalias() for part in shown if not has_aggregate(part)]
    attributes = {name.lower() for name in source.snapshot.schema.names}
    names = []
    for node in group.expressions:
        if isinstance(node, exp.Literal) and not node.is_string:
            if not node.this.isdecimal() or not 1 <= int(node.this) <= len(shown):
                raise source.refuse(f"GROUP BY takes positions from 1 to {len(shown)}", node)
            node = shown[int(node.this) - 1].unalias()
        elif isinstance(node, exp.Column) and len(node.parts) == 1:
            named = [part for part in shown if part.alias.lower() == node.name.lower()]
            if len(named) == 1 and node.name.lower() not in (*attributes, *_WINDOW):
                node = named[0].unalias()
        names.append(node)
    return names


# -- patterns ---------------------------------------------------------------------------------


def _pattern(source: _Source, columns: tuple[str, ...]) -> StreamForm:
    relation = _row_for_each(source)
    bound = source.plain.bound.sites[0].operator
    assert isinstance(bound, BoundMatch)
    compiled = bound.compiled
    if bound.stream is None:
        raise source.refuse("a live pattern reads a stream; put conditions into DEFINE", relation)
    clause = compiled.clause
    for call in relation.find_all(exp.Anonymous):
        if call.name.lower() == "match_number":
            raise source.refuse(
                "MATCH_NUMBER() changes with every late match: use MATCH_ID()", call
            )
    if clause.rows == "all with unmatched":
        raise source.refuse("WITH UNMATCHED ROWS cannot be live: leave it out", relation)
    if compiled.lookahead:
        raise source.refuse(
            "NEXT waits for an event that may never come: look back with PREV", relation
        )
    if not compiled.in_time_order:
        raise source.refuse(f"ORDER BY begins with {source.time} in a live pattern", relation)
    if compiled.within is None and not _bounded(source.snapshot, compiled):
        raise source.refuse(
            "a match may reach over any time, and then never be known: add WITHIN", relation
        )
    functions = {TIME: "MATCH_TIME", MATCH: "MATCH_ID"}
    if clause.rows != "one":
        functions[EVENT] = "MATCH_EVENT"
    return PatternForm(_measuring(source, columns, functions), columns, compiled)


def _events(source: _Source, columns: tuple[str, ...]) -> StreamForm:
    item = _row_for_each(source)
    bound = source.plain.bound.sites[0].operator
    assert isinstance(bound, BoundEvents)
    if bound.operator.reach is None:
        raise source.refuse("its results depend on events of any age: give it a bound", item)
    alias = item.alias or item.this.name
    evaluator = source.evaluator(columns, {TIME: column_node(bound.instant, alias)})
    words = (
        ("class", f"{item.this.name.lower()} (instants)"),
        ("closed", "when the watermark passes the instant"),
    )
    return InstantForm(evaluator, columns, bound.operator, words, source.seed)


def _measuring(
    source: _Source, columns: tuple[str, ...], functions: dict[str, str], measures: Any = None
) -> Evaluator:
    made = source.tree.copy()
    node = made.args["from_"].this.args["match"]
    own = [
        exp.alias_(exp.Anonymous(this=function, expressions=[]), f"@{function}", quoted=True)
        for function in functions.values()
    ]
    node.set("measures", [*(node.args.get("measures") or measures or ()), *own])
    added = {name: column_node(f"@{function}") for name, function in functions.items()}
    return source.evaluator(columns, added, made)


def _row_for_each(source: _Source) -> Any:
    aggregate = aggregate_in(source.tree)
    if aggregate is not None or not is_plain(source.tree):
        raise source.refuse(
            "a live query of matches gives a row for each: aggregate in MEASURES, or where it is "
            "read",
            aggregate,
        )
    return source.tree.args["from_"].this


def _bounded(snapshot: Snapshot, compiled: Any) -> bool:
    if snapshot.time_range is None:
        plain = not compiled.partition_by and compiled.clause.selection in (None, "contiguous")
        return bool(plain and compiled.automaton.length_max is not None)
    return Reach(snapshot, compiled).bounded


# -- situations ---------------------------------------------------------------------------------


def _situations(source: _Source, columns: tuple[str, ...]) -> StreamForm:
    relation = _row_for_each(source)
    bound = source.plain.bound.sites[0].operator
    assert isinstance(bound, BoundSituations)
    compiled = bound.compiled
    if bound.stream is None:
        raise source.refuse("live situations are those of a stream; put conditions into DEFINE",
                            relation)  # fmt: skip
    if compiled.reach is None:
        raise source.refuse(
            "a match may take any time, and all of the past would have to be kept: add WITHIN, or "
            "upper bounds of durations (LASTING AT MOST)",
            relation,
        )
    functions = {TIME: "DETECTED" if compiled.early else "COMPLETED", MATCH: "MATCH_ID"}
    measures = None
    if not compiled.clause.measures:  # the default measures
        names = [(name, word) for name in compiled.names for word in ("started", "ended")]
        measures = [
            exp.alias_(
                exp.Anonymous(this=word.upper(), expressions=[column_node(name)]),
                f"{name}_{word}".lower(), quoted=True,
            )
            for name, word in names
        ]  # fmt: skip
    when = "detection" if compiled.early else "completion"
    words = (
        ("class", f"situations (on {when})"), ("closed", f"when the watermark passes the {when}"),
    )  # fmt: skip
    evaluator = _measuring(source, columns, functions, measures)
    return InstantForm(evaluator, columns, compiled, words, MATCH)
