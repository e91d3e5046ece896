"""MATCH_RECOGNIZE in FROM: the planner's side of the row pattern operator.

Purpose
    :class:`MatchFactory` binds a FROM item under MATCH_RECOGNIZE to a :class:`CompiledMatch`; an
    execution fixes its parameters and runs it over a snapshot of the stream, or over the rows of a
    subquery.

Guarantee
    Only the columns that the clause needs are read.  A clause without parameters is compiled once
    per statement.

Limits
    A subquery has no time order of its own: ORDER BY sorts its rows in memory, and its first key,
    when it is a timestamp or an integer in ascending order, is the time that WITHIN refers to.
    Conditions outside of the clause are applied to its result; conditions on events belong into
    DEFINE or into a subquery.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ...errors import SqlError, StreamNotFound
from ..binding.binder import bind
from ..binding.operators import OperatorSite, RunContext, register_match, table_function_names
from ..conditions.constants import Constant, Folder, Kind
from ..contract.explanation import Operator
from ..pattern.compiled import CompiledMatch, InputColumns, MatchLimits, compile_match
from ..pattern.scalar import evaluate
from ..replay.cost import load_weights
from ..replay.planning import plan_match
from ..replay.replay_plan import ReplayPlan
from ..replay.running import ReplayRun, run_match
from ..replay.subqueries import local_stream, plan_subquery, restricted
from ..sql.dialect import MatchRelation, error_at, position_of, to_text
from ..sql.gate import check_query
from ..sql.match_clause import MatchClause, match_clause
from .relations import figures_of

__all__ = ["BoundMatch", "MatchFactory", "MatchResult"]

LIMITS = MatchLimits()
"""Budgets of every pattern query."""


class MatchFactory:
    """Binds MATCH_RECOGNIZE."""

    def bind(self, site: OperatorSite) -> BoundMatch:
        """Bind the clause to its stream or subquery; raises SqlError with position."""
        item = site.item
        source = item.this
        node = _countable(item.args["match"], site.select)
        if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
            name = _stream_name(site, source)
            schema = site.stream(name)
            columns = InputColumns(schema.arrow, schema.time)
            strategy = site.hints.get("strategy", "auto")
            return BoundMatch(node.copy(), columns, name, None, strategy)
        query = source.this if isinstance(source, exp.Subquery) else None
        if query is None or isinstance(source, MatchRelation):
            query = exp.select("*").from_(source.copy())
        query = query.copy()
        check_query(query, site.text, table_function_names())
        if site.outputs_of is None:
            raise error_at(site.text, position_of(item), "MATCH_RECOGNIZE takes a stream here")
        fields = site.outputs_of(query)
        if not fields or any(type_ is None or not name for name, type_ in fields):
            fields = _types_of(site, query)
        arrow = pa.schema([pa.field(name, type_) for name, type_ in fields])
        columns = InputColumns(arrow, _time_of(match_clause(_bare(node)), arrow), ordered=False)
        strategy = site.hints.get("strategy", "auto")
        under = local_stream(query, site.catalog.streams())
        return BoundMatch(node.copy(), columns, None, query, strategy, under)


def _countable(node: Any, select: Any) -> Any:
    """Number the matches of a clause that gives no column out, where none is asked for either.

    ``SELECT count(*)`` then counts them; ``SELECT *`` asks for columns that there are not, and
    stays an error.
    """
    rows = node.args.get("rows")
    if node.args.get("measures") or node.args.get("partition_by"):
        return node
    if rows is not None and rows.name != "one":
        return node
    stars = (star for shown in select.expressions for star in shown.find_all(exp.Star))
    if any(star.parent is None or star.parent.name.lower() != "count" for star in stars):
        return node
    numbered = node.copy()
    number = exp.Anonymous(this="MATCH_NUMBER", expressions=[])
    numbered.set("measures", [exp.alias_(number, "match_number")])
    return numbered


def _stream_name(site: OperatorSite, source: Any) -> str:
    names = site.catalog.streams()
    if source.name in names:
        return str(source.name)
    folded = {name.lower(): name for name in names}
    found = folded.get(source.name.lower())
    if found is None:
        raise StreamNotFound(f"there is no stream {source.name!r}")
    return found


def _types_of(site: OperatorSite, query: Any) -> list[tuple[str, pa.DataType]]:
    """Columns of a subquery, found by running it over relations without rows."""
    bound = bind(query.copy(), site.text, site.catalog)
    tables = {}
    for found in bound.sites:
        known = found.schema.arrow if found.schema is not None else None
        arrow = found.operator.schema if found.operator is not None else known
        if arrow is not None:
            tables[found.relation] = arrow.empty_table()
    bare = bound.root
    for parameter in list(bare.find_all(exp.Placeholder)):
        parameter.replace(exp.Null())
    try:
        answer = evaluate(to_text(bare), **tables)
    except SqlError as error:
        raise error_at(
            site.text, position_of(site.item),
            f"the types of the subquery's columns are not known ({error.reason}); CAST them",
        ) from None  # fmt: skip
    return [(field.name, field.type) for field in answer.schema]


def _time_of(clause: MatchClause, arrow: pa.Schema) -> str | None:
    """The first key of ORDER BY, when it can count as time."""
    if not clause.order_by or clause.order_by[0].descending:
        return None
    wanted = clause.order_by[0].column.lower()
    for field in arrow:
        if field.name.lower() == wanted and (
            pa.types.is_timestamp(field.type) or pa.types.is_integer(field.type)
        ):
            return str(field.name)
    return None


def _bare(node: Any) -> Any:
    """The clause with parameters that are not known yet as NULL (in WITHIN: as nothing)."""
    bare = node.copy()
    within = bare.args.get("within")
    if within is not None and within.find(exp.Placeholder):
        bare.set("within", None)
    for found in list(bare.find_all(exp.Placeholder)):
        found.replace(exp.Null())
    return bare


def _literal(value: Constant, node: Any) -> Any:
    """The literal that stands for a parameter's value."""
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
        scalar = pa.scalar(int(value.value), pa.timestamp("ns"))
        text = str(scalar.cast(pa.string()).as_py())
        return exp.cast(exp.Literal.string(text), "TIMESTAMP_NS", dialect="duckdb")
    if kind is Kind.INTERVAL:
        micros = int(value.value) // 1000
        return exp.Interval(this=exp.Literal.string(str(micros)), unit=exp.var("MICROSECOND"))
    raise SqlError(f"the parameter ${node.name} has a type that a row pattern cannot use")


class BoundMatch:
    """A clause bound to its input, good for any number of executions."""

    def __init__(
        self,
        node: Any,
        columns: InputColumns,
        stream: str | None,
        query: Any | None,
        strategy: str = "auto",
        under: str | None = None,
    ) -> None:
        self._under = under  # the stream of which the subquery takes rows
        self._strategy = {"index": "optimal"}.get(strategy, strategy)
        self._node = node
        self._columns = columns
        self._stream = stream
        self._query = query
        self._parameters = node.find(exp.Placeholder) is not None
        self._compiled = compile_match(match_clause(_bare(node)), columns)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the result."""
        return self._compiled.output_schema

    @property
    def streams(self) -> Sequence[str]:
        """The stream that is read."""
        return [self._stream] if self._stream is not None else []

    def open(self, run: RunContext) -> MatchResult:
        """Fix parameters and snapshot."""
        compiled = self._compiled
        if self._parameters:
            compiled = compile_match(match_clause(self._with_values(run.folder)), self._columns)
        return MatchResult(compiled, run, self._stream, self._query, self._strategy, self._under)

    def _with_values(self, folder: Folder) -> Any:
        node = self._node.copy()
        for found in list(node.find_all(exp.Placeholder)):
            found.replace(_literal(folder.fold(found), found))
        return node


class MatchResult:
    """The matches as a relation of one execution."""

    def __init__(
        self,
        compiled: CompiledMatch,
        run: RunContext,
        stream: str | None,
        query: Any | None,
        strategy: str = "auto",
        under: str | None = None,
    ) -> None:
        self._strategy = strategy
        self._under = under
        self._replay: ReplayPlan | None = None
        self._compiled = compiled
        self._run = run
        self._stream = stream
        self._query = query
        self._done = ReplayRun()
        self._rows = 0
        self._seconds = 0.0

    @property
    def schema(self) -> pa.Schema:
        """Columns of the result."""
        return self._compiled.output_schema

    def _input(self) -> Iterator[pa.RecordBatch]:
        """Rows of the subquery."""
        assert self._query is not None
        query = self._query.copy()
        plan = self._planned_subquery()
        if plan is not None and plan.spans is not None:
            assert self._under is not None
            query = restricted(query, plan, self._run.snapshot(self._under).schema)
        _, batches = self._run.subquery(query)
        names = self._compiled.columns.arrow.names
        for batch in batches:
            self._done.events += batch.num_rows
            yield pa.RecordBatch.from_arrays(batch.columns, names=names)
        self._done.ended = True

    def _planned_subquery(self) -> ReplayPlan | None:
        """When rows of a subquery can match; None for one that is not plain rows of a stream."""
        if self._replay is None and self._under is not None:
            find = self._run.indexes
            self._replay = plan_subquery(
                self._run.snapshot(self._under),
                self._compiled,
                self._query,
                None if find is None else find(self._under),
                self._strategy,
                self._run.folder,
                load_weights(self._run.store),
                self._run.control.check,
            )
        return self._replay

    def _planned(self) -> ReplayPlan:
        """Which parts of the stream are replayed; planned once per execution."""
        if self._replay is None:
            assert self._stream is not None
            indexes = None if self._run.indexes is None else self._run.indexes(self._stream)
            self._replay = plan_match(
                self._run.snapshot(self._stream),
                self._compiled,
                indexes,
                self._strategy,
                folder=self._run.folder,
                weights=load_weights(self._run.store),
                check=self._run.control.check,
            )
            if self._run.division is not None:
                self._run.division.planned(self._stream, self._compiled, self._replay)
        return self._replay

    def _results(self) -> Iterator[pa.RecordBatch]:
        check = self._run.control.check
        if self._stream is None:
            return self._compiled.run(self._input(), check=check, limits=LIMITS)
        snapshot = self._run.snapshot(self._stream)
        division = self._run.division
        part = None if division is None else division.part(self._stream)
        if part is not None:
            found: Iterator[pa.RecordBatch] = part.run(
                snapshot, self._compiled, self._done.metrics, check=check, limits=LIMITS
            )
            return found
        plan = self._planned()
        return run_match(snapshot, self._compiled, plan, run=self._done, check=check, limits=LIMITS)

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Run the matcher from the start; rows of the named columns."""
        wanted = list(self.schema.names if columns is None else columns)
        begun = time.perf_counter()
        for batch in self._results():
            self._rows += batch.num_rows
            self._seconds += time.perf_counter() - begun
            yield batch.select(wanted)
            begun = time.perf_counter()
        self._seconds += time.perf_counter() - begun

    def explain(self) -> Operator:
        """Pattern, program, how conditions are evaluated; with figures when it has run."""
        compiled = self._compiled
        scan = (("stream", self._stream or "subquery"), ("columns", tuple(compiled.input_columns)))
        figures: tuple[tuple[str, int | float], ...] = ()
        below: tuple[tuple[str, int | float], ...] = ()
        if self._run.analyze:
            figures = (("rows", self._rows), ("time_ms", self._seconds * 1000))
            below = figures_of(self._done.metrics) if self._stream is not None else ()
        plan = self._planned_subquery() if self._stream is None else self._planned()
        if plan is None:
            return Operator(
                "MatchRecognize", compiled.details(), figures, (Operator("Subquery", scan, below),)
            )
        given = self._done.given if plan.spans is not None else None
        found = plan.figures(given) if self._run.analyze else ()
        source = Operator("Subquery" if self._stream is None else "Scan", scan, below)
        replay = Operator("Replay", plan.details(given), found, (source,))
        return Operator("MatchRecognize", compiled.details(), figures, (replay,))


register_match(MatchFactory())
