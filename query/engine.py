"""The query engine: statements in, results out.

Purpose
    :class:`QueryEngine` is what a database calls with SQL text.  It keeps prepared queries by text,
    gathers snapshots, decides what the tree answers, and hands the rest to the executor.

Guarantee
    All relations of one query see one snapshot per stream, and one moment as ``now()``.  A
    prepared query is used again only while the streams it names have the schemas it was prepared
    for.  Queries may run from any number of threads.

Cost
    A SELECT of bare aggregates over a range of time touches neither the executor nor an event
    outside of two boundary leaves; planned before, it costs about the tree walk.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from ..errors import SqlError, StreamNotFound
from ..ownership import LOADING
from ..store.segment import ScanMetrics
from ..store.snapshot import Snapshot
from . import statements
from .binding.operators import BoundOperator, Relation, RunContext
from .binding.tree_aggregates import Candidate, result_table
from .conditions.constants import Folder
from .conditions.ranges import half_open, tail_start
from .contract.access import Access, VisibleStreams
from .contract.cancellation import Cancellation, QueryControl
from .contract.catalog import Catalog
from .contract.explanation import Operator, Plan
from .contract.result import Result
from .plan.nodes import ScanSpec
from .plan.planner import Prepared, Written, moment, prepare, row_bounds, scan_spec
from .relational.evaluation import Evaluated, evaluated_by
from .relational.interface import Answer, RelationalExecutor
from .relational.scans import FailureBox
from .run.relational_plan import Leaf, plan_of
from .run.relations import (
    AggregateRelation,
    OperatorRelation,
    StreamRelation,
    figures_of,
    tree_aggregate_operator,
)
from .sql.dialect import Explain, StatementNode, error_at, parse_predicate, parse_statement
from .sql.nesting import headroom
from .sql.parameters import NOW, bind_values
from .sql.sql_types import conform, declared_types, settle_types
from .statement_cache import StatementCache

if TYPE_CHECKING:
    from .relational.datasets import ScanDataset

__all__ = ["QueryEngine"]

Parameters = Mapping[str, Any] | Sequence[Any] | None


class QueryEngine:
    """Runs SQL against a catalog of streams.

    Parameters
    ----------
    catalog : Catalog
    memory_bytes : int
        Memory limit of the executor.
    threads : int
    isolation : {"none", "process"}
        Where the executor runs: in this process, or in workers.
    """

    def __init__(
        self, catalog: Catalog, *, memory_bytes: int, threads: int, isolation: str = "none"
    ) -> None:
        self.catalog = catalog
        self.executor = _executor(isolation, memory_bytes, threads)
        self._prepared = StatementCache()

    def warm(self, count: int) -> None:
        """Have the executor ready for so many queries at once; blocks."""
        self.executor.warm(count)

    def serves(self, seconds: float) -> bool:
        """Whether the executor answers, within so long."""
        return self.executor.serves(seconds)

    def close(self) -> None:
        """End the executor; results that are still open end with an error."""
        self.executor.close()

    def seen_by(self, visible: Callable[[str], bool] | None) -> QueryEngine:
        """The engine for a caller to whom only some streams exist; it shares everything else."""
        if visible is None:
            return self
        view = copy.copy(self)
        view.catalog = VisibleStreams(self.catalog, visible)
        return view

    # ------------------------------------------------------------------- statements

    def access(self, text: str) -> Access:
        """What a statement reads and changes, without running it.

        Raises
        ------
        SqlError
            As running it would, for what is wrong with the text or with names in it.
        """
        prepared = self._known(text)
        if prepared is not None:
            return Access(type(prepared.root).__name__, "read", None, frozenset(prepared.streams))
        tree = parse_statement(text)
        declared = statements.declared(tree)
        query = statements.query_of(tree)
        if query is None:
            return declared
        if query is tree:
            prepared = self._prepared.keep(text, self._prepare(tree, text))
        else:
            prepared = self._prepare(query, text)
        return dataclasses.replace(declared, reads=frozenset(prepared.streams))

    def run(
        self,
        text: str,
        params: Parameters = None,
        timeout: float | None = None,
        *,
        read_only: bool = False,
        cancellation: Cancellation | None = None,
    ) -> Result:
        """Run one statement; see :meth:`chronicle.database.Database.sql`."""
        control = QueryControl(timeout, cancellation)
        begun = time.perf_counter()
        prepared = self._known(text)
        if prepared is None:
            tree = parse_statement(text)
            if isinstance(tree, Explain):
                plan = self._explain(tree.this, text, params, control, bool(tree.args["analyze"]))
                return statements.result_of_plan(plan)
            if isinstance(tree, (StatementNode, exp.Insert)):
                return statements.execute(self, tree, text, params, control, read_only)
            prepared = self._prepared.keep(text, self._prepare(tree, text, control))
        return Execution(self, prepared, params, control, begun).result()

    def explain(
        self,
        text: str,
        params: Parameters = None,
        *,
        analyze: bool = False,
        timeout: float | None = None,
    ) -> Plan:
        """Plan a query, and with ``analyze`` run it."""
        tree = parse_statement(text)
        if isinstance(tree, Explain):
            analyze = analyze or bool(tree.args["analyze"])
            tree = tree.this
        if isinstance(tree, (StatementNode, exp.Insert)):
            raise error_at(text, 0, "EXPLAIN explains queries")
        return self._explain(tree, text, params, QueryControl(timeout), analyze)

    def _explain(
        self, tree: Any, text: str, params: Parameters, control: QueryControl, analyze: bool
    ) -> Plan:
        begun = time.perf_counter()
        prepared = self._prepare(tree, text, control)
        return Execution(self, prepared, params, control, begun, analyze).plan()

    def _prepare(self, tree: Any, text: str, control: QueryControl | None = None) -> Prepared:
        try:
            with headroom(text), evaluated_by(self.executor, control or QueryControl()):
                return prepare(tree, text, self.catalog)
        except RecursionError:
            raise SqlError("the statement is nested too deeply") from None

    def query(self, tree: Any, text: str, params: Parameters, control: QueryControl) -> Result:
        """Run a query tree that is part of another statement."""
        prepared = self._prepare(tree, text, control)
        return Execution(self, prepared, params, control, time.perf_counter()).result()

    def scan(
        self,
        name: str,
        snapshot: Snapshot,
        predicate: str,
        start: int | None,
        end: int | None,
        columns: Sequence[str],
        limit: int | None,
        control: QueryControl | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Events of a stream that satisfy a SQL predicate, in time order; ticks in, batches out."""
        key = (name, predicate, tuple(columns), limit)
        prepared = self._known(key)
        if prepared is None:
            condition = parse_predicate(predicate)
            projections = [exp.column(exp.to_identifier(c, quoted=True)) for c in columns]
            select = exp.select(*projections).from_(
                exp.Table(this=exp.to_identifier(name, quoted=True))
            )
            select.set("where", exp.Where(this=condition))
            if limit is not None:
                select.set("limit", exp.Limit(expression=exp.Literal.number(limit)))
            prepared = self._prepared.keep(key, self._prepare(select, predicate))
        execution = Execution(self, prepared, None, control or QueryControl(), time.perf_counter())
        execution.fix(name, snapshot, start, end)
        schema = snapshot.schema.arrow
        output = pa.schema([schema.field(column) for column in columns])
        for batch in execution.result().batches():
            yield conform(batch, output)

    # ---------------------------------------------------------------------- prepared

    def _known(self, key: Any) -> Prepared | None:
        prepared = self._prepared.get(key)
        if prepared is None:
            return None
        try:
            for name, schema in prepared.streams.items():
                current = self.catalog.stream_schema(name)
                if current is not schema and current != schema:
                    return None
        except StreamNotFound:
            return None
        return prepared


def _executor(isolation: str, memory_bytes: int, threads: int) -> RelationalExecutor:
    if isolation == "process":
        from .conditions.pushed_filters import read_filter
        from .relational.isolated import IsolatedExecutor, pool_of_queries

        return IsolatedExecutor(pool_of_queries(memory_bytes, threads), read_filter)
    from .relational.executor import Executor

    return Executor(memory_bytes, threads)


class Execution:
    """One run of a prepared query.

    Parameters
    ----------
    engine : QueryEngine
    prepared : Prepared
    params : mapping or sequence, optional
    control : QueryControl
    begun : float
        ``time.perf_counter()`` when planning began.
    analyze : bool
    """

    def __init__(
        self,
        engine: QueryEngine,
        prepared: Prepared,
        params: Parameters,
        control: QueryControl,
        begun: float,
        analyze: bool = False,
    ) -> None:
        self._engine = engine
        self._prepared = prepared
        self._control = control
        self._begun = begun
        self._analyze = analyze
        self._failures = FailureBox()
        self._snapshots: dict[str, Snapshot] = {}
        self._bounds: dict[str, tuple[int | None, int | None]] = {}
        if params or prepared.parameters:
            self._values = bind_values(prepared.parameters, params)
        else:
            self._values = {}
        self._now = None if prepared.static else moment()
        if not prepared.static:
            self._values[NOW] = self._now
        self._folder = Folder(self._values, self._now or moment(), self._evaluate)
        self._leaves: list[Leaf] = []

    def fix(self, name: str, snapshot: Snapshot, start: int | None, end: int | None) -> None:
        """Read a stream as of a snapshot, and only ``[start, end)`` of it."""
        self._snapshots[name] = snapshot
        self._bounds[name] = (start, end)

    # ------------------------------------------------------------------------ answers

    def result(self) -> Result:
        """Start the query."""
        self._control.check()
        try:
            with headroom(self._prepared.text), self._evaluated():
                return self._result()
        except RecursionError:
            raise SqlError("the statement is nested too deeply") from None

    def _result(self) -> Result:
        specs = self._specs()
        answered = self._answered(specs)
        direct = self._prepared.direct(answered)
        if direct is not None:
            table = self._aggregate(direct, specs[0], None)
            return Result.of_table(table, lambda: self._direct_plan(direct, specs[0], (), False))
        picked = self._prepared.picked
        if picked is not None:
            return self._straight(picked)[1]
        written = self._prepared.write(answered, self._names_of(specs))
        datasets = self._datasets(specs, answered)
        answer = self._engine.executor.run(
            written.sql,
            datasets,
            self._given(written.parameters),
            self._prepared.text,
            self._control,
            self._failures,
        )
        return self._normalised(answer)

    def _straight(self, picked: list[tuple[str, str]]) -> tuple[Relation, Result]:
        """The only operator, and its rows as it delivers them; see :mod:`.plan.pass_through`."""
        operator = self._prepared.sites[0].operator
        assert operator is not None
        relation = self._opened(operator)
        columns = list(dict.fromkeys(column for _, column in picked))
        schema = pa.schema(
            [pa.field(name, relation.schema.field(column).type) for name, column in picked]
        )

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in relation.batches(columns):
                self._control.check()
                arrays = [batch.column(columns.index(column)) for _, column in picked]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

        def plan() -> Plan:
            return Plan(self._prepared.text, relation.explain())

        return relation, Result(schema, batches(), plan)

    def plan(self) -> Plan:
        """Explain the query; run it first when it is to be analyzed."""
        with self._evaluated():
            return self._plan()

    def _evaluated(self) -> AbstractContextManager[None]:
        return evaluated_by(self._engine.executor, self._control)

    def _plan(self) -> Plan:
        specs = self._specs()
        answered = self._answered(specs)
        direct = self._prepared.direct(answered)
        if direct is not None:
            metrics = ScanMetrics()
            planning = (time.perf_counter() - self._begun) * 1000
            begun = time.perf_counter()
            if self._analyze:
                self._aggregate(direct, specs[0], metrics)
            spent = (time.perf_counter() - begun) * 1000
            figures = (("rows", 1), ("time_ms", spent), *figures_of(metrics))
            plan = self._direct_plan(
                direct, specs[0], figures if self._analyze else (), self._analyze
            )
            return self._timed(plan, planning, spent)
        picked = self._prepared.picked
        if picked is not None:
            relation, result = self._straight(picked)
            planning = (time.perf_counter() - self._begun) * 1000
            begun = time.perf_counter()
            if self._analyze:
                for _ in result.batches():
                    pass
            spent = (time.perf_counter() - begun) * 1000
            plan = Plan(self._prepared.text, relation.explain(), self._analyze)
            return self._timed(plan, planning, spent)
        written = self._prepared.write(answered, self._names_of(specs))
        datasets = self._datasets(specs, answered)
        planning = (time.perf_counter() - self._begun) * 1000
        begun = time.perf_counter()
        document = self._engine.executor.explain(
            written.sql,
            datasets,
            self._given(written.parameters),
            self._prepared.text,
            self._control,
            self._failures,
            self._analyze,
        )
        spent = (time.perf_counter() - begun) * 1000
        root = plan_of(document, self._leaves, self._analyze)
        plan = Plan(self._prepared.text, root, self._analyze)
        return self._timed(plan, planning, spent)

    def _timed(self, plan: Plan, planning: float, spent: float) -> Plan:
        figures: tuple[tuple[str, int | float], ...] = (("planning_ms", round(planning, 3)),)
        if self._analyze:
            figures = (*figures, ("total_ms", round(planning + spent, 3)))
        return Plan(plan.statement, plan.root, plan.analyzed, figures)

    def _direct_plan(
        self,
        candidate: Candidate,
        spec: ScanSpec,
        figures: tuple[tuple[str, int | float], ...],
        analyzed: bool,
    ) -> Plan:
        name = self._prepared.sites[0].name
        root: Operator = tree_aggregate_operator(name, spec, candidate, figures)
        return Plan(self._prepared.text, root, analyzed)

    # ---------------------------------------------------------------------- relations

    def _snapshot(self, name: str) -> Snapshot:
        found = self._snapshots.get(name)
        if found is None:
            found = self._snapshots[name] = self._engine.catalog.snapshot(name)
        return found

    def _specs(self) -> dict[int, ScanSpec]:
        specs = {}
        for site in self._prepared.sites:
            if site.schema is None:
                continue
            spec = scan_spec(self._prepared, site, self._folder)
            bounds = self._bounds.get(site.name)
            if bounds is not None:
                start, end = bounds
                spec = ScanSpec(
                    spec.low if start is None else max(spec.low, start),
                    spec.high if end is None else min(spec.high, end - 1),
                    spec.prune,
                    spec.exact,
                )
            specs[site.index] = spec
        return specs

    def _answered(self, specs: dict[int, ScanSpec]) -> frozenset[int]:
        """Candidates that the tree answers under the bounds of this execution."""
        if not self._prepared.candidates:
            return frozenset()
        return frozenset(i for i in self._prepared.candidates if specs[i].exact)

    def _aggregate(
        self, candidate: Candidate, spec: ScanSpec, metrics: ScanMetrics | None
    ) -> pa.Table:
        start, end = half_open(spec.low, spec.high)
        snapshot = self._snapshot(self._prepared.sites[candidate.site].name)
        answer = snapshot.aggregate(candidate.attributes, start, end, metrics=metrics)
        return result_table(candidate, answer)

    def _datasets(
        self, specs: dict[int, ScanSpec], answered: frozenset[int]
    ) -> dict[str, ScanDataset]:
        with LOADING:
            from .relational.datasets import ScanDataset

        datasets = {}
        for site in self._prepared.sites:
            relation: StreamRelation | AggregateRelation | OperatorRelation
            if site.operator is not None:
                relation = OperatorRelation(self._opened(site.operator))
            elif site.index in answered:
                relation = AggregateRelation(
                    site.name,
                    self._snapshot(site.name),
                    specs[site.index],
                    self._prepared.candidates[site.index],
                )
            else:
                relation = self._stream(site.index, site.name, specs[site.index])
            dataset = ScanDataset(relation, self._control, self._failures)
            self._leaves.append((relation, dataset))
            datasets[site.relation] = dataset
        return datasets

    def _stream(self, index: int, name: str, spec: ScanSpec) -> StreamRelation:
        snapshot = self._snapshot(name)
        rows = self._prepared.rows.get(index)
        limit = None
        if rows is not None and spec.exact:
            limit = row_bounds(rows, self._folder)
            if limit is not None and rows.newest:
                low = tail_start(snapshot, spec.low, spec.high, limit)
                spec = ScanSpec(low, spec.high, spec.prune, spec.exact)
                limit = None
        indexes = getattr(self._engine.catalog, "indexes_of", lambda _: None)(name)
        return StreamRelation(name, snapshot, spec, self._control, limit, indexes)

    def _context(self) -> RunContext:
        return RunContext(
            self._control,
            self._folder,
            self._snapshot,
            self._subquery,
            self._analyze,
            getattr(self._engine.catalog, "indexes_of", None),
            getattr(self._engine.catalog, "path", None),
            getattr(self._engine.catalog, "division", None),
        )

    def _opened(self, operator: BoundOperator) -> Relation:
        """An operator under the values of this execution."""
        return Evaluated(
            lambda: operator.open(self._context()), self._engine.executor, self._control
        )

    def _subquery(self, tree: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Run a query that feeds an operator, on the snapshots of this execution."""
        prepared = prepare(tree.copy(), self._prepared.text, self._engine.catalog, inner=True)
        inner = Execution(self._engine, prepared, None, self._control, time.perf_counter(), False)
        inner._snapshots = self._snapshots
        inner._values.update(self._values)
        inner._folder = self._folder
        result = inner.result()
        return result.schema, result.batches()

    def _evaluate(self, node: Any) -> pa.Scalar | None:
        try:
            written = Written.of(node, self._prepared.text)
        except SqlError:
            return None
        values = self._given(written.parameters)
        return self._engine.executor.constant(written.sql, values, self._control)

    def _given(self, names: frozenset[str]) -> dict[str, Any]:
        """Values of the parameters that occur in what the executor is given."""
        return {name: self._values[name] for name in names if name in self._values}

    # ------------------------------------------------------------------------ results

    def _normalised(self, answer: Answer) -> Result:
        schema, batches = settle_types(answer.batches, answer.schema, answer.hugeints)
        outputs = self._prepared.outputs
        schema = declared_types(schema, None if outputs is None else [o.type for o in outputs])
        if schema.equals(answer.schema):
            final = batches
        else:
            final = (conform(batch, schema) for batch in batches)
        return Result(schema, final, self._plan_later, answer.close)

    def _plan_later(self) -> Plan:
        """The plan of a query that ran, without running it again."""
        specs = self._specs()
        answered = self._answered(specs)
        written = self._prepared.write(answered, self._names_of(specs))
        document = self._engine.executor.explain(
            written.sql,
            {name: ds for name, (_, ds) in zip(self._names(), self._leaves, strict=True)},
            self._given(written.parameters),
            self._prepared.text,
            QueryControl(),
            FailureBox(),
            False,
        )
        return Plan(self._prepared.text, plan_of(document, self._leaves, False))

    def _names_of(self, specs: dict[int, ScanSpec]) -> Callable[[Written], list[str]]:
        """What names the executor gives to the columns of a query over our relations."""

        def names(written: Written) -> list[str]:
            with LOADING:
                from .relational.datasets import ScanDataset

            control, failures = QueryControl(), FailureBox()
            datasets = {
                site.relation: ScanDataset(
                    self._stream(site.index, site.name, specs[site.index])
                    if site.operator is None
                    else OperatorRelation(self._opened(site.operator)),
                    control,
                    failures,
                )
                for site in self._prepared.sites
            }
            text = self._prepared.text
            columns = self._engine.executor.columns(
                written.sql, datasets, self._given(written.parameters), text
            )
            return [name for name, _ in columns]

        return names

    def _names(self) -> list[str]:
        return [site.relation for site in self._prepared.sites]
