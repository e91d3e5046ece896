"""MATCH_RECOGNIZE and MATCH_SITUATIONS in FROM: bound to their stream or subquery.

A clause without parameters is compiled once.  The rows of a subquery are sorted in memory by ORDER
BY, whose first key, if ascending and a timestamp or integer, is the time for WITHIN.

Some SELECTs need only the number of matches, or matches from an offset: those from the clause
alone, with ``count``, ``count(DISTINCT x)``, ``min``, ``max`` and ``sum`` of integers (others
depend on the order), over columns that a match's first event decides.  Counts beyond 2^63 - 1 are
an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ...core.caches import lazy
from ...core.identity import seed_of
from ...core.times import time_text
from ...errors import SqlError
from ..conditions.constants import Constant, Folder, Kind, time_of_nanoseconds
from ..pattern.any_choice import Selecting, choose
from ..pattern.automaton import ACCEPT, Automaton
from ..pattern.binding import CLASSIFIER, Bound, Navigation
from ..pattern.compiled import CompiledMatch, InputColumns, compile_match
from ..relational.interface import evaluate
from ..situations.compiled import CompiledSituations, compile_situations
from ..sql.dialect import canonical, canonical_pattern, error_on, to_text
from ..sql.forms import AGGREGATES
from ..sql.gate import check_query, is_volatile
from ..sql.match_clause import OrderKey, match_clause
from ..sql.situation_clause import Lasting, situation_clause
from ..sql.statement_clauses import MatchRelation
from .binder import BoundQuery, conjuncts
from .scope import BoundOperator, OperatorSite

WEIGHT = "@matches"
"""Number of matches that a row represents."""


def of_first_event(bound: Bound, automaton: Automaton) -> bool:
    """Whether a match's first event alone decides a measure."""
    names = automaton.names
    first = {names[edge.target] for edge in automaton.edges[0] if edge.target != ACCEPT}
    later = {
        names[edge.target]
        for edges in automaton.edges[1:]
        for edge in edges
        if edge.target != ACCEPT
    }
    for leaf in bound.leaves:
        if not isinstance(leaf, Navigation) or CLASSIFIER in leaf.row.columns or leaf.offset:
            return False
        chosen = leaf.variables
        if chosen is not None and not first <= chosen:
            return False
        if not leaf.first and (chosen is None or later & chosen):
            return False
    return True


def count_by_start(select: Any, item: Any, columns: Sequence[str], schema: pa.Schema) -> bool:
    """Rewrite a counting SELECT to sum ``WEIGHT`` per first event; False if it does more."""
    parts = _parts_of(select, item)
    if parts is None or select.args.get("distinct"):
        return False
    called = [call for part in parts for call in part.find_all(exp.Anonymous)]
    calls = [call for call in called if call.name.lower() in AGGREGATES]
    integers = {f.name.lower() for f in schema if pa.types.is_integer(f.type)}
    if not calls or not all(_is_countable(call, integers) for call in calls):
        return False
    if any(is_volatile(call.name.lower()) for call in called if call not in calls):
        return False
    lowered = {name.lower() for name in columns}
    alias = item.args["match"].args.get("alias")
    relations = ("", "" if alias is None else alias.name.lower())
    for part in parts:
        for column in part.find_all(exp.Column):
            if column.name.lower() not in lowered or column.table.lower() not in relations:
                return False
        if any(star.parent not in calls for star in part.find_all(exp.Star)):
            return False
    names = _names_of(select, item, schema)
    for call in calls:
        argument = call.expressions[0] if call.expressions else exp.Star()
        if call.name.lower() == "count" and not isinstance(argument, exp.Distinct):
            call.replace(_summed(argument))
        elif call.name.lower() == "sum":  # sums of integers are HUGEINT
            wide = exp.cast(argument.copy(), "HUGEINT", dialect="duckdb")
            call.set("expressions", [exp.Mul(this=wide, expression=_weight())])
    projections = [
        shown if name is None else exp.alias_(shown, name, quoted=True)
        for shown, name in zip(select.expressions, names, strict=True)
    ]
    select.set("expressions", projections)
    return True


def _parts_of(select: Any, item: Any) -> list[Any] | None:
    """The SELECT's clauses except FROM; None unless it is plain and reads the clause alone."""
    clause = select.args.get("from_")
    if clause is None or clause.this is not item or select.args.get("laterals"):
        return None
    if select.args.get("joins") or item.args.get("joins") or item.args.get("sample"):
        return None
    alias = item.args["match"].args.get("alias")
    if alias is not None and alias.args.get("columns"):
        return None
    parts = []
    for key, child in select.args.items():
        if key in ("from_", "with_", "hint"):
            continue
        listed = child if isinstance(child, list) else [child]
        parts += [part for part in listed if isinstance(part, exp.Expression)]
    strange = (exp.Query, exp.Window, exp.Filter, exp.Qualify, exp.Lambda, exp.WithinGroup)
    return None if any(part.find(*strange) for part in parts) else parts


def _is_countable(call: Any, integers: set[str]) -> bool:
    name, arguments = call.name.lower(), call.expressions
    if name == "count":
        return len(arguments) <= 1
    if name == "sum" and len(arguments) == 1:
        return isinstance(arguments[0], exp.Column) and arguments[0].name.lower() in integers
    return name in ("min", "max") and len(arguments) == 1


def _weight() -> Any:
    return exp.column(exp.to_identifier(WEIGHT, quoted=True))


def _summed(argument: Any) -> Any:
    weight = _weight()
    if not isinstance(argument, exp.Star):
        present = exp.Not(this=exp.Is(this=argument.copy(), expression=exp.Null()))
        weight = exp.Case(ifs=[exp.If(this=present, true=weight)])
    total = exp.Anonymous(this="sum", expressions=[weight])
    total = exp.Anonymous(this="coalesce", expressions=[total, exp.Literal.number(0)])
    return exp.cast(total, "BIGINT", dialect="duckdb")


def _names_of(select: Any, item: Any, schema: pa.Schema) -> list[str | None]:
    named = [bool(shown.alias) or isinstance(shown, exp.Column) for shown in select.expressions]
    if all(named):
        return [None] * len(named)
    alias = item.args["match"].args.get("alias")
    table = alias.name if alias is not None and alias.name else "match"
    bare = exp.select(*(shown.copy() for shown in select.expressions)).from_(
        exp.Table(this=exp.to_identifier(table, quoted=True))
    )
    for parameter in list(bare.find_all(exp.Placeholder)):
        parameter.replace(exp.Null())
    group = select.args.get("group")
    if group is not None:
        bare.set("group", group.copy())
    names = evaluate(to_text(bare), **{table: schema.empty_table()}).schema.names
    return [None if keeps else name for keeps, name in zip(named, names, strict=True)]


def take_offset(select: Any, item: Any, literal: Callable[[Any], int | None]) -> int:
    """Remove OFFSET if each row is a match; the number of rows to skip."""
    parts = _parts_of(select, item)
    clauses = ("where", "group", "having", "order", "distinct", "qualify", "sample")
    if parts is None or any(select.args.get(name) for name in clauses):
        return 0
    called = [call.name.lower() for part in parts for call in part.find_all(exp.Anonymous)]
    if any(name in AGGREGATES or name == "unnest" for name in called):
        return 0
    offset = select.args.get("offset")
    offset_value = None if offset is None else literal(offset.expression)
    if offset_value is None:
        return 0
    select.set("offset", None)
    return offset_value


_DURATIONS = {"within", "gap", "low", "high"}
_WITH_DURATIONS = (exp.MatchRecognize, Lasting)


@dataclass(frozen=True)
class BoundClause(BoundOperator):
    """A clause bound to its input; ``compiled`` has NULL for parameters."""

    clause: Any
    columns: InputColumns
    stream: str | None
    query: Any
    strategy: str
    compiled: CompiledMatch | CompiledSituations

    @property
    def schema(self) -> pa.Schema:
        return self.compiled.output_schema

    @property
    def streams(self) -> Sequence[str]:
        return () if self.stream is None else (self.stream,)


@dataclass(frozen=True)
class BoundMatch(BoundClause):
    """``counted``: the SELECT reads no column."""

    compiled: CompiledMatch
    counted: bool = False

    @lazy
    def _asks(self) -> bool:
        return self.clause.find(exp.Placeholder) is not None

    def compiled_with(self, folder: Folder) -> CompiledMatch:
        """The clause with one execution's parameter values."""
        if not self._asks:
            return self.compiled
        clause = with_values(self.clause, folder)
        compiled = compile_match(match_clause(clause), self.columns)
        seed = _seed(self.stream, self.query, clause)
        return replace(compiled, selecting=self.compiled.selecting, seed=seed)


def _strategy(site: OperatorSite) -> str:
    strategy = site.hint("strategy")
    return "all" if strategy == "index" else strategy


def bind_match(site: OperatorSite) -> BoundMatch:
    """Bind the clause; raises SqlError with position."""
    clause = _countable(site.item.args["match"], site.select)
    columns, name, query = input_of(
        site, lambda arrow: time_of(match_clause(bare(clause)).order_by, arrow)
    )
    strategy = _strategy(site)
    site.settle(clause, columns.arrow)
    clause, selecting = _selecting(site, clause, columns)
    compiled = compile_match(match_clause(bare(clause)), columns)
    seed = _seed(name, query, clause)
    compiled = replace(compiled, selecting=selecting, seed=seed)
    counted = _reads_nothing(site.select, site.item)  # as the SELECT is rewritten by now
    return BoundMatch(clause, columns, name, query, strategy, compiled, counted)


def _seed(stream: str | None, query: Any, clause: Any) -> bytes:
    return seed_of(canonical_pattern(stream or canonical(query), clause))


def input_of(
    site: OperatorSite, time: Callable[[pa.Schema], str | None]
) -> tuple[InputColumns, str | None, Any]:
    """Columns, stream name and query of a clause's input; ``time`` picks the time of a query."""
    source = site.item.this
    if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
        name, schema = site.stream(source)
        return InputColumns(schema.arrow, schema.time), name, None
    query = source.this if isinstance(source, exp.Subquery) else None
    if query is None or query.alias or isinstance(source, MatchRelation):
        query = exp.select("*").from_(source.copy())
    query = query.copy()
    check_query(query, site.text, site.functions)
    bound = site.bound(query.copy())
    fields = [(output.name or "", output.type) for output in bound.outputs or ()]
    if not fields or any(type_ is None or not name for name, type_ in fields):
        fields = _types_of(site, bound)
    arrow = pa.schema([pa.field(name, type_) for name, type_ in fields])
    return InputColumns(arrow, time(arrow), ordered=False), None, query


def with_values(node: Any, folder: Folder) -> Any:
    clause = node.copy()
    for placeholder in list(clause.find_all(exp.Placeholder)):
        placeholder.replace(_literal(folder.fold(placeholder), placeholder))
    return clause


def _countable(node: Any, select: Any) -> Any:
    """Add MATCH_NUMBER to a clause without output columns, so that ``count(*)`` works."""
    rows = node.args.get("rows")
    if node.args.get("measures") or node.args.get("partition_by"):
        return node
    if rows is not None and rows.name != "one":
        return node
    if not _only_counted(select.expressions):
        return node
    numbered = node.copy()
    number = exp.Anonymous(this="MATCH_NUMBER", expressions=[])
    numbered.set("measures", [exp.alias_(number, "match_number")])
    return numbered


def _only_counted(parts: Sequence[Any]) -> bool:
    """Whether stars are in ``count(*)`` alone."""
    stars = (star for part in parts for star in part.find_all(exp.Star))
    return all(star.parent is not None and star.parent.name.lower() == "count" for star in stars)


def _reads_nothing(select: Any, item: Any) -> bool:
    parts = _parts_of(select, item)
    return parts is not None and _only_counted(parts) and not any(p.find(exp.Column) for p in parts)


def _selecting(site: OperatorSite, node: Any, columns: InputColumns) -> tuple[Any, Selecting]:
    """The clause to run, and how; of a SELECT that only counts, one row per first event."""
    selecting = Selecting()
    if node.args.get("selection") is None:
        return node, selecting
    clause = match_clause(bare(node))
    if clause.selection != "any" or clause.rows != "one":
        return node, selecting
    compiled = compile_match(clause, columns)
    if not choose(compiled.automaton, compiled.conditions).diagram:
        return node, selecting
    measures = node.args.get("measures") or []
    shown = [
        measure
        for measure, bound in zip(measures, compiled.measures, strict=True)
        if of_first_event(bound, compiled.automaton)
    ]
    names = [*compiled.partition_by, *(measure.alias for measure in shown)]
    if count_by_start(site.select, site.item, names, compiled.output_schema):
        node = node.copy()
        number = exp.alias_(exp.Anonymous(this="MATCH_NUMBER", expressions=[]), WEIGHT, quoted=True)
        node.set("measures", [*(measure.copy() for measure in shown), number])
        return node, replace(selecting, weighted=True)
    return node, replace(selecting, skip=take_offset(site.select, site.item, _whole_number))


def _whole_number(node: Any) -> int | None:
    plain = isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()
    return int(node.name) if plain and int(node.name) < 2**63 else None


def _types_of(site: OperatorSite, bound: BoundQuery) -> list[tuple[str, pa.DataType]]:
    """Columns of a subquery, found by running it over empty relations."""
    tables = {site.relation: site.columns.empty_table() for site in bound.sites}
    bare = bound.root
    for parameter in list(bare.find_all(exp.Placeholder)):
        parameter.replace(exp.Null())
    try:
        answer = evaluate(to_text(bare), **tables)
    except SqlError as error:
        raise error_on(
            site.text,
            site.item,
            f"the types of the subquery's columns are not known ({error.reason}); CAST them",
        ) from None
    return [(field.name, field.type) for field in answer.schema]


def time_of(order_by: Sequence[OrderKey], arrow: pa.Schema) -> str | None:
    """The first key of ORDER BY, if it can be the time."""
    if not order_by or order_by[0].descending:
        return None
    wanted = order_by[0].column.lower()
    for field in arrow:
        if field.name.lower() == wanted and (
            pa.types.is_timestamp(field.type) or pa.types.is_integer(field.type)
        ):
            return str(field.name)
    return None


def bare(node: Any) -> Any:
    """A clause with parameters as NULL, and durations with parameters removed; the clause itself
    where it has no parameters.
    """
    if node.find(exp.Placeholder) is None:
        return node
    copied = node.copy()
    for part in list(copied.walk()):
        for key in _DURATIONS & part.args.keys() if isinstance(part, _WITH_DURATIONS) else ():
            if part.args[key] is not None and part.args[key].find(exp.Placeholder):
                part.set(key, None)
    for placeholder in list(copied.find_all(exp.Placeholder)):
        placeholder.replace(exp.Null())
    return copied


def _literal(value: Constant, node: Any) -> Any:
    kind = value.kind
    if kind is Kind.NULL:
        return exp.Null()
    if kind is Kind.BOOL:
        return exp.Boolean(this=bool(value.value))
    if kind is Kind.EXACT:
        return exp.Literal.number(str(value.value))
    if kind is Kind.FLOAT:
        return exp.cast(exp.Literal.string(repr(value.value)), "DOUBLE", dialect="duckdb")
    if kind is Kind.TEXT:
        return exp.Literal.string(str(value.value))
    if kind is Kind.TIME:
        time = time_of_nanoseconds(int(value.value))
        name = "TIMESTAMP_NS" if value.value % 1000 else "TIMESTAMP"
        text = time_text(time.value, time.type)
        return exp.cast(exp.Literal.string(text), name, dialect="duckdb")
    if kind is Kind.INTERVAL:
        micros = int(value.value) // 1000
        return exp.Interval(this=exp.Literal.string(str(micros)), unit=exp.var("MICROSECOND"))
    raise SqlError(f"the parameter ${node.name} has a type that a row pattern cannot use")


@dataclass(frozen=True)
class BoundSituations(BoundClause):
    """``asked`` are conjuncts of WHERE on a single measure, which narrow the input."""

    compiled: CompiledSituations
    asked: Mapping[str, tuple[Any, ...]]

    def compiled_with(self, folder: Folder) -> CompiledSituations:
        if self.clause.find(exp.Placeholder) is None:
            return self.compiled
        clause = situation_clause(with_values(self.clause, folder))
        return compile_situations(clause, self.columns, self.stream or "")


def bind_situations(site: OperatorSite) -> BoundSituations:
    """Bind the clause; raises SqlError with position."""
    node = site.item.args["match"]
    order_by = situation_clause(bare(node)).order_by
    columns, stream, query = input_of(site, lambda arrow: time_of(order_by, arrow))
    site.settle(node, columns.arrow)
    compiled = compile_situations(situation_clause(bare(node)), columns, stream or "")
    strategy = _strategy(site)
    return BoundSituations(
        node, columns, stream, query, strategy, compiled, _asked(site, node, compiled)
    )


def _asked(
    site: OperatorSite, clause: Any, compiled: CompiledSituations
) -> dict[str, tuple[Any, ...]]:
    select = site.select
    where = select.args.get("where") if isinstance(select, exp.Select) else None
    if where is None or any(select.args.get(key) for key in ("joins", "laterals")):
        return {}
    alias = clause.args["alias"].name.lower() if clause.args.get("alias") else ""
    outputs = {name.lower(): name for name in compiled.outputs}
    conditions: dict[str, tuple[Any, ...]] = {}
    for part in conjuncts(where.this):
        columns = list(part.find_all(exp.Column))
        names = {column.name.lower() for column in columns}
        mine = all(column.table.lower() in ("", alias) for column in columns)
        if len(names) == 1 and mine and part.find(exp.Query) is None:
            name = outputs.get(names.pop())
            if name is not None:
                site.settle(part, compiled.output_schema)
                conditions[name] = (*conditions.get(name, ()), part.copy())
    return conditions
