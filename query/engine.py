"""The query engine: statements in, results out.

Prepared queries are cached by text and reused while their streams have the same schemas.  All
relations of one query see one snapshot per stream and one ``now()``.  Thread-safe.  A SELECT of
bare aggregates over a time range needs no executor, and no events but those of two boundary leaves.

The cache of prepared statements is LRU, bounded by number and bytes.  A statement of more than an
eighth of ``BYTES_MAX`` is not cached.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ..core.caches import Lru
from ..core.ownership import LOADING
from ..errors import InvalidArgument, SqlError, StreamNotFound
from ..store.snapshot import Snapshot
from .contract.access import Access, Tell, VisibleStreams
from .contract.cancellation import Cancellation, QueryControl, checked_by
from .contract.catalog import Catalog
from .contract.explanation import Plan
from .contract.operator import Clause
from .contract.result import Result
from .modification import NO_CONDITION, Deletion, Update, check_condition
from .operators import BINDERS, OPENERS, PLANNERS
from .plan.nodes import Match, PassThrough, QueryPlan, SituationMatch
from .plan.planner import Planning, Region, plan_query
from .plan.prepared import Picked, PreparedQuery, prepare
from .relational.interface import RelationalExecutor, evaluated_by
from .run.context import RunContext
from .run.execution import Execution, answer
from .sql.dialect import error_at, parse_predicate, parse_statement
from .sql.nesting import headroom, turn
from .sql.sql_types import conform
from .sql.statement_clauses import Explain, StatementNode

ENTRIES_MAX = 512
BYTES_MAX = 64 << 20


class StatementCache(Lru[Any, PreparedQuery]):
    def __init__(self) -> None:
        super().__init__(BYTES_MAX, lambda prepared: max(prepared.bytes, BYTES_MAX // ENTRIES_MAX))

    def keep(self, key: Any, prepared: PreparedQuery) -> PreparedQuery:
        if prepared.bytes <= BYTES_MAX // 8:
            self.put(key, prepared)
        return prepared


Parameters = Mapping[str, Any] | Sequence[Any] | None


class PickedClause(NamedTuple):
    compiled: Clause
    columns: tuple[Picked, ...]

    def rows(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        """The columns of results of the clause."""
        schema = batches[0].schema if batches else self.compiled.output_schema
        table = pa.Table.from_batches(batches, schema)
        names = [picked.name for picked in self.columns]
        return pa.table([table.column(picked.column) for picked in self.columns], names)


class _Careful:
    """Nested contexts; a RecursionError inside becomes a SqlError."""

    __slots__ = ("_contexts",)

    def __init__(self, *contexts: AbstractContextManager[None]) -> None:
        self._contexts = contexts

    def __enter__(self) -> None:
        for context in self._contexts:  # entering never fails
            context.__enter__()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for context in reversed(self._contexts):
            context.__exit__(None, None, None)
        if kind is not None and issubclass(kind, RecursionError):
            raise SqlError("the statement is nested too deeply") from None


class QueryEngine:
    """Runs SQL against a catalog of streams.  ``memory_bytes``: the executor's limit;
    ``isolation``: ``none`` (in process) or ``process`` (workers).
    """

    def __init__(
        self, catalog: Catalog, *, memory_bytes: int, threads: int, isolation: str = "none"
    ) -> None:
        self.catalog = catalog
        self.executor = _executor(isolation, memory_bytes, threads)
        self._prepared = StatementCache()

    def close(self) -> None:
        self.executor.close()

    def seen_by(
        self, visible: Callable[[str], bool] | None, tell: Tell | None = None
    ) -> QueryEngine:
        """The engine for a caller who sees only some streams; it shares everything else."""
        if visible is None and tell is None:
            return self
        view = copy.copy(self)
        view.catalog = VisibleStreams(self.catalog, visible or (lambda _: True), tell)
        return view

    def over_catalog(self, catalog: Catalog) -> QueryEngine:
        """The engine for another catalog; it shares everything but prepared queries."""
        view = copy.copy(self)
        view.catalog = catalog
        view._prepared = StatementCache()
        return view

    # ------------------------------------------------------------------- statements

    def access(self, text: str) -> Access:
        """What a statement reads and changes; raises SqlError as running it would."""
        accesses: list[Access] = []

        def look(access: Access) -> None:
            accesses.append(access)
            access.reads  # noqa: B018

        self._read(text, QueryControl(), look)
        return accesses[0]

    def _read(
        self, text: str, control: QueryControl, allowed: Callable[[Access], None] | None
    ) -> Any:
        """A prepared query, or another statement's tree, after ``allowed`` has seen its access."""
        cached = self._still_valid(text)
        if cached is not None:
            if allowed is not None:
                kind, streams = type(cached.bound.root).__name__, frozenset(cached.streams)
                allowed(Access(kind, "read", None, lambda: streams))
            return cached
        with turn(text, control):
            tree = parse_statement(text)
        is_query = not isinstance(tree, (Explain, StatementNode, exp.Insert))

        @cache
        def prepared() -> PreparedQuery:
            if is_query:
                return self._prepared.keep(text, self._prepare(tree, text, control))
            with LOADING:
                from . import statements

            return self._prepare(statements.query_of(tree), text, control)

        if allowed is not None:
            with LOADING:
                from . import statements

            access = statements.declared(tree)
            if statements.query_of(tree) is not None:
                reads = lambda: frozenset(prepared().streams)  # noqa: E731
                access = dataclasses.replace(access, find_reads=reads)
            allowed(access)
        return prepared() if is_query else tree

    def run(
        self,
        text: str,
        params: Parameters = None,
        timeout: float | None = None,
        *,
        read_only: bool = False,
        cancellation: Cancellation | None = None,
        allowed: Callable[[Access], None] | None = None,
    ) -> Result:
        """Run one statement; see ``chronicle.api.database.Database.sql``."""
        control = QueryControl(timeout, cancellation)
        read = self._read(text, control, allowed)
        if isinstance(read, PreparedQuery):
            return self._run(read, params, control)
        with LOADING:
            from . import statements

        if isinstance(read, Explain):
            plan = self._explain(read.this, text, params, control, bool(read.args["analyze"]))
            return statements.result_of_plan(plan)
        statement = statements.Statement(self, read, text, params, control)
        return statements.execute(statement, read_only)

    def explain(
        self,
        text: str,
        params: Parameters = None,
        *,
        analyze: bool = False,
        timeout: float | None = None,
        allowed: Callable[[Access], None] | None = None,
    ) -> Plan:
        control = QueryControl(timeout)
        read = self._read(text, control, allowed)
        if isinstance(read, Explain):
            analyze = analyze or bool(read.args["analyze"])
            read = read.this
        if isinstance(read, (StatementNode, exp.Insert)):
            raise error_at(text, 0, "EXPLAIN explains queries")
        return self._explain(read, text, params, control, analyze)

    def _explain(
        self, query: Any, text: str, params: Parameters, control: QueryControl, analyze: bool
    ) -> Plan:
        begun = time.perf_counter()
        if not isinstance(query, PreparedQuery):
            query = self._prepare(query, text, control)
        with self.careful(text, control):
            planning = self._planning(query, params, control)
            execution = self._execution(*planning, control, analyze)
            return execution.explained(begun)

    def plan(
        self,
        tree: Any,
        text: str,
        params: Parameters = None,
        control: QueryControl | None = None,
    ) -> QueryPlan:
        """Plan a parsed query (the tree is modified); without parameters it may be sent."""
        control = control or QueryControl()
        with self.careful(text, control):
            prepared = self._prepare(tree, text, control)
            plan, _ = self._planning(prepared, params, control, rollups=False)
        return plan

    def run_plan(self, plan: QueryPlan, control: QueryControl | None = None) -> Result:
        """Run a plan, maybe from another process, on the catalog's current streams."""
        control = control or QueryControl()
        with self.careful(plan.text, control):
            return self._execution(plan, self.catalog.snapshot, control).result()

    def careful(self, text: str, control: QueryControl) -> _Careful:
        """The contexts of planning or starting a statement: stack headroom, control, evaluator."""
        return _Careful(headroom(text), checked_by(control), evaluated_by(self.executor, control))

    def _prepare(self, tree: Any, text: str, control: QueryControl) -> PreparedQuery:
        with turn(text, control), self.careful(text, control):
            return prepare(tree, text, self.catalog, BINDERS)

    def _planning(
        self,
        prepared: PreparedQuery,
        params: Parameters,
        control: QueryControl,
        region: Region | None = None,
        *,
        rollups: bool = True,
    ) -> tuple[QueryPlan, Callable[[str], Snapshot]]:
        planning = Planning.of(
            prepared, params, self.catalog, self.executor, BINDERS, PLANNERS, control
        )
        planning.rollups = rollups and region is None
        if region is not None:
            planning.snapshots.update(region.snapshots)
            planning.bounds.update(region.bounds)
            planning.part = region.part
            planning.hook = region.hook
        return plan_query(prepared, planning), planning.snapshot

    def _execution(
        self,
        plan: QueryPlan,
        snapshot: Callable[[str], Snapshot],
        control: QueryControl,
        analyze: bool = False,
    ) -> Execution:
        run = RunContext(
            self.executor, OPENERS, snapshot, self.catalog.indexes_of, control, answer, analyze
        )
        return Execution(plan, run)

    def _run(
        self,
        prepared: PreparedQuery,
        params: Parameters,
        control: QueryControl,
        region: Region | None = None,
    ) -> Result:
        control.check()
        with self.careful(prepared.text, control):
            planned = self._planning(prepared, params, control, region)
            return self._execution(*planned, control).result()

    def query(self, tree: Any, text: str, params: Parameters, control: QueryControl) -> Result:
        return self._run(self._prepare(tree, text, control), params, control)

    def prepared(self, tree: Any, text: str) -> PreparedQuery:
        """Prepare a query tree (modified) for regions; SqlError if it reads a frame."""
        prepared = self._prepare(tree, text, QueryControl())
        for frame in prepared.bound.frames.values():
            raise error_at(text, 0, f"{frame.name!r} is a frame; only streams may be read here")
        return prepared

    def over(
        self,
        prepared: PreparedQuery,
        region: Region,
        control: QueryControl | None = None,
        params: Parameters = None,
    ) -> Result:
        return self._run(prepared, params, control or QueryControl(), region)

    def picked_clause(
        self, prepared: PreparedQuery, region: Region, control: QueryControl
    ) -> PickedClause | None:
        """The clause of a query that only picks columns of its results; None for other queries."""
        with self.careful(prepared.text, control):
            plan, _ = self._planning(prepared, None, control, region)
        root, static = plan.root, prepared.static
        if not isinstance(root, PassThrough) or not isinstance(root.input, Match | SituationMatch):
            return None
        if root.skip or not static or any(picked.form for picked in root.columns):
            return None
        return PickedClause(root.input.compiled, root.columns)

    def delete(self, name: str, predicate: str | None, start: int | None, end: int | None) -> int:
        """Delete events by a SQL predicate between two ticks; returns their number."""
        return self._deletion(name, predicate).run(start, end)

    def time_range(self, name: str, predicate: str) -> tuple[int | None, int | None]:
        """The half-open ticks that satisfy a predicate on time alone; SqlError for others."""
        return self._deletion(name, predicate).time_range()

    def _deletion(self, name: str, predicate: str | None) -> Deletion:
        control, condition = QueryControl(), None
        if predicate is not None:
            with turn(predicate, control):
                condition = parse_predicate(predicate)
        schema = self.catalog.stream_schema(name)
        return Deletion(self, name, schema, predicate or "", None, control, condition)

    def update(
        self,
        name: str,
        assignments: Mapping[str, str],
        predicate: str | None,
        start: int | None,
        end: int | None,
    ) -> int:
        """Update events by a SQL predicate and SQL expressions; returns their number."""
        control = QueryControl()
        if not assignments:
            raise InvalidArgument("an update says at least one column and its new value")
        texts = [*assignments.values(), *([] if predicate is None else [predicate])]
        whole, trees = "", []
        for text in texts:  # parsed at its offset in the whole text, so that positions are right
            placed = " " * len(whole) + text
            with turn(placed, control):
                trees.append(parse_predicate(placed))
            whole += f"{text}\n"
        condition = None if predicate is None else trees.pop()
        columns = [exp.to_identifier(column, quoted=True) for column in assignments]
        schema = self.catalog.stream_schema(name)
        pairs = list(zip(columns, trees, strict=True))
        update = Update(self, name, schema, whole, None, control, pairs, condition)
        return update.run(start, end)

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
        control = control or QueryControl()
        prepared = self._selecting(name, predicate, tuple(columns), limit, control)
        result = self.over(prepared, Region({name: snapshot}, {name: (start, end)}), control)
        schema = snapshot.schema.arrow
        output = pa.schema([schema.field(column) for column in columns])
        for batch in result.batches():
            yield conform(batch, output)

    def passing(
        self, name: str, snapshot: Snapshot, predicate: str, control: QueryControl | None = None
    ) -> pa.BooleanArray:
        """For each event of a snapshot whether it satisfies a SQL predicate on one event."""
        control = control or QueryControl()
        prepared = self._selecting(name, predicate, None, None, control)
        result = self.over(prepared, Region({name: snapshot}), control)
        parts = [batch.column(1) for batch in result.batches()]
        if sum(map(len, parts)) != snapshot.count:
            raise error_at(predicate, 0, NO_CONDITION)
        return pc.fill_null(pa.concat_arrays([*parts, pa.array([], pa.bool_())]), False)

    def _selecting(
        self,
        name: str,
        predicate: str,
        columns: tuple[str, ...] | None,
        limit: int | None,
        control: QueryControl,
    ) -> PreparedQuery:
        """Columns of the events that satisfy a predicate; None: the time and whether each does."""
        key = (name, predicate, columns, limit)
        prepared = self._still_valid(key)
        if prepared is not None:
            return prepared
        with turn(predicate, control):
            condition = parse_predicate(predicate)
        chosen = (self.catalog.stream_schema(name).time,) if columns is None else columns
        projections = [exp.column(exp.to_identifier(c, quoted=True)) for c in chosen]
        select = exp.select(*projections).from_(
            exp.Table(this=exp.to_identifier(name, quoted=True))
        )
        if columns is None:
            check_condition(condition, predicate)
            truth = exp.Cast(this=exp.paren(condition), to=exp.DataType.build("boolean"))
            select = select.select(exp.alias_(truth, "passes", quoted=True))
        else:
            select.set("where", exp.Where(this=condition))
        if limit is not None:
            select.set("limit", exp.Limit(expression=exp.Literal.number(limit)))
        return self._prepared.keep(key, self._prepare(select, predicate, control))

    # ---------------------------------------------------------------------- prepared

    def _still_valid(self, key: Any) -> PreparedQuery | None:
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
        if prepared.views:
            views = self.catalog.views()
            if any(n not in views or views[n].sql != sql for n, sql in prepared.views.items()):
                return None
        frames = self.catalog.frames
        if any(frames.get(name) is not frame for name, frame in prepared.bound.frames.items()):
            return None
        return prepared


def _executor(isolation: str, memory_bytes: int, threads: int) -> RelationalExecutor:
    with LOADING:
        if isolation == "process":
            from .relational.isolated import IsolatedExecutor, pool_of_queries

            return IsolatedExecutor(pool_of_queries(memory_bytes, threads))
        from .relational.executor import Executor

        return Executor(memory_bytes, threads)
