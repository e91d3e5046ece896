"""The planner: from a prepared query and one execution's values to a plan.

A plan uses one snapshot per stream and one ``now()``, as does its run.

Conditions imply a scan's time range and pruning; the executor evaluates them again.  A limit is
pushed only if the time range is the whole condition.

A server runs queries without a thread if they are estimated to take about a millisecond.  For tree
aggregates: two zones of 512 events in each tree with a border of the range (at most two base
segments, all late runs), and the tail; for ranges: the tree's count, or the limit.  No block
skipping, no index, and no disk reads are assumed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...core.ownership import LOADING
from ...errors import SqlError
from ...schema import StreamSchema
from ...store.prune import AllOf, AnyOf, IsNull, Prune
from ...store.snapshot import Snapshot, tail_start
from ..binding.binder import conjuncts
from ..binding.scope import Binders, BoundOperator, Condition, Names, Site
from ..conditions.constants import Folder, Kind
from ..conditions.predicates import (
    Compiled,
    PredicateCompiler,
    all_of,
    is_of_time,
    only_time,
    time_bounds,
)
from ..conditions.row_filters import has_row_truths
from ..contract.cancellation import QueryControl
from ..contract.catalog import Catalog
from ..relational.interface import RelationalExecutor, RelationalQuery
from ..sql.parameters import NOW, bind_values
from ..sql.sql_types import settled
from .nodes import Leaf, PassThrough, QueryPlan, Relational, Root, Scan, TreeAggregate
from .prepared import PreparedQuery, RowLimit, Written, prepare

if TYPE_CHECKING:
    from ..contract.operator import Part
    from ..windows.group_cache import GroupHook


@dataclass(frozen=True)
class Region:
    """Restricts the evaluation of a query.  ``snapshots``: streams as they are to be seen;
    ``bounds``: half-open ticks outside of which events do not count; ``part`` makes the share of a
    clause's results from a snapshot and the clause; ``hook``: applied to groups of windows
    before output.
    """

    snapshots: Mapping[str, Snapshot]
    bounds: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    part: Callable[[Snapshot, Any], Part] | None = None
    hook: GroupHook | None = None


def plan_scan(site: Site, names: Names, folder: Folder) -> Scan:
    """The scan of a stream, without limits."""
    schema = site.schema
    assert schema is not None
    parts = [_compiled(site, condition, schema, names, folder) for condition in site.conditions]
    whole = all_of(parts).prune
    low, high = time_bounds(whole, schema.time)
    decided = _covers_where(site) and all(part.exact for part in parts)
    timed = decided and all(only_time(part.prune, schema.time) for part in parts)
    prune = None if timed else _without_time(whole, schema)
    return Scan(site.name, schema, low, high, prune, decided)


def _compiled(
    site: Site, condition: Condition, schema: StreamSchema, names: Names, folder: Folder
) -> Compiled:
    nullable = False

    def column_of(node: Any) -> str | None:
        nonlocal nullable
        use = names.use(node)
        if use is None or use.site != site.index or use.scope != condition.scope:
            return None
        nullable = nullable or use.nullable
        return str(use.attribute)

    compiled = PredicateCompiler(schema, folder, column_of).compile(condition.node)
    if nullable and condition.where:
        # an outer join adds NULLs: only conditions that reject them count
        return Compiled(_rejecting(compiled.prune), exact=False)
    return compiled


def _rejecting(prune: Prune | None) -> Prune | None:
    """The part of a predicate that a row of NULLs does not satisfy."""
    if isinstance(prune, AllOf):
        rejecting = tuple(item for item in prune.items if not _accepts_nulls(item))
        return AllOf(rejecting) if rejecting else None
    return None if prune is None or _accepts_nulls(prune) else prune


def _accepts_nulls(prune: Prune) -> bool:
    if isinstance(prune, AllOf):
        return all(_accepts_nulls(item) for item in prune.items)
    if isinstance(prune, AnyOf):
        return any(_accepts_nulls(item) for item in prune.items)
    return isinstance(prune, IsNull)


def _covers_where(site: Site) -> bool:
    """Whether the site's conditions include all of the SELECT's WHERE."""
    if site.covered is None:
        where = None if site.select is None else site.select.args.get("where")
        parts = [] if where is None else list(conjuncts(where.this))
        attached = {id(condition.node) for condition in site.conditions}
        site.covered = site.select is not None and all(id(part) in attached for part in parts)
    return site.covered


def _without_time(prune: Prune | None, schema: StreamSchema) -> Prune | None:
    items = prune.items if isinstance(prune, AllOf) else () if prune is None else (prune,)
    others = tuple(item for item in items if not is_of_time(item, schema.time))
    if not others:
        return None
    return others[0] if len(others) == 1 else AllOf(others)


def passing_scan(scan: Scan, rows: RowLimit | None, folder: Folder) -> tuple[Scan, int] | None:
    """A scan whose rows are the result, and the number to skip; None if the executor is needed."""
    if not scan.decided or not has_row_truths(scan.prune, scan.schema):
        return None
    limit, skip = None, 0
    if rows is not None:
        before = row_bounds(RowLimit(None, rows.offset, rows.newest), folder)
        limit = row_bounds(rows, folder)
        if rows.newest or limit is None or before is None:
            return None
        skip = before
    return replace(scan, applied=not scan.exact, limit=limit), skip


def row_bounds(rows: RowLimit, folder: Folder) -> int | None:
    """Upper bound of the events that a SELECT needs; None if unknown."""
    total = 0
    for node in (rows.limit, rows.offset):
        if node is None:
            continue
        value = folder.fold(node)
        if value.kind is not Kind.EXACT or not isinstance(value.value, int) or value.value < 0:
            return None
        total += value.value
    return total


Planners = Mapping[type, Callable[[Any, "Planning"], Leaf]]
"""Planning functions by class of bound operator."""


@dataclass
class Planning:
    """Context of planning; ``executor`` only folds constants and names columns; ``bounds`` are
    half-open ticks by stream; ``part`` makes a share of a clause's results; ``hook`` transforms
    groups of windows.
    """

    catalog: Catalog
    executor: RelationalExecutor
    binders: Binders
    planners: Planners
    control: QueryControl
    text: str
    values: dict[str, Any]
    folder: Folder = field(init=False)
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    bounds: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)
    part: Callable[[Snapshot, Any], Part] | None = None
    hook: GroupHook | None = None
    rollups: bool = True

    @classmethod
    def of(
        cls,
        prepared: PreparedQuery,
        params: Any,
        catalog: Catalog,
        executor: RelationalExecutor,
        binders: Binders,
        planners: Planners,
        control: QueryControl,
    ) -> Planning:
        values: dict[str, Any] = {}
        if params or prepared.parameters:
            values = bind_values(prepared.parameters, params, prepared.text)
            _settle(values, prepared)
        now = moment()
        if not prepared.static:
            values[NOW] = now
        made = cls(catalog, executor, binders, planners, control, prepared.text, values)
        made.folder = Folder(values, now, made._evaluate)
        return made

    def snapshot(self, name: str) -> Snapshot:
        snapshot = self.snapshots.get(name)
        if snapshot is None:
            snapshot = self.snapshots[name] = self.catalog.snapshot(name)
        return snapshot

    def query(self, tree: Any) -> QueryPlan:
        """Plan an operator's input query on the same snapshots and values."""
        inner = prepare(tree.copy(), self.text, self.catalog, self.binders, inner=True)
        _settle(self.values, inner)
        return plan_query(inner, self)

    @contextmanager
    def within(self, stream: str, start: int | None, end: int | None) -> Iterator[None]:
        """Context in which a stream is restricted to a half-open range of ticks."""
        before = self.bounds
        self.bounds = {**before, stream: (start, end)}
        try:
            yield
        finally:
            self.bounds = before

    def given(self, names: frozenset[str]) -> dict[str, Any]:
        return {name: self.values[name] for name in names if name in self.values}

    def _evaluate(self, node: Any) -> pa.Scalar | None:
        try:
            written = Written.of(node, self.text)
        except SqlError:
            return None
        return self.executor.constant(written.sql, self.given(written.parameters), self.control)


def _settle(values: dict[str, Any], prepared: PreparedQuery) -> None:
    """Read texts that were given for times as everywhere in the product."""
    for name, type_, at in prepared.times:
        if isinstance(value := values.get(name), str):
            values[name] = settled(value, type_, prepared.text, at)


def plan_query(prepared: PreparedQuery, planning: Planning) -> QueryPlan:
    if prepared.plan is not None and not planning.bounds:
        return prepared.plan
    scans = {
        site.index: bounded(_scan(prepared, site, planning), planning)
        for site in prepared.bound.sites
        if site.schema is not None
    }
    answered = frozenset(i for i in prepared.candidates if scans[i].exact)
    leaves = [_leaf(prepared, site, scans, answered, planning) for site in prepared.bound.sites]
    root = _root(prepared, leaves, answered, planning)
    notes = tuple(prepared.bound.notes)
    plan = QueryPlan(prepared.text, root, prepared.cut, prepared.reason, notes)
    if (
        prepared.static
        and not planning.bounds
        and not any(rows.newest for rows in prepared.rows.values())
        and all(isinstance(leaf, Scan | TreeAggregate) for leaf in leaves)
    ):
        prepared.plan = plan  # independent of values and of the streams' contents
    return plan


def _scan(prepared: PreparedQuery, site: Site, planning: Planning) -> Scan:
    scan = prepared.scans.get(site.index)
    if scan is None:
        scan = plan_scan(site, prepared.bound.names, planning.folder)
        if prepared.static:
            prepared.scans[site.index] = scan
    return scan


def bounded(scan: Scan, planning: Planning) -> Scan:
    """A scan restricted to its stream's bounds."""
    start, end = planning.bounds.get(scan.stream, (None, None))
    if start is None and end is None:
        return scan
    low = scan.low if start is None else max(scan.low, start)
    return replace(scan, low=low, high=scan.high if end is None else min(scan.high, end - 1))


def _leaf(
    prepared: PreparedQuery,
    site: Site,
    scans: dict[int, Scan],
    answered: frozenset[int],
    planning: Planning,
) -> Leaf:
    if site.operator is not None:
        return _operator(site.operator, planning)
    scan = scans[site.index]
    if site.index in answered:
        candidate = prepared.candidates[site.index]
        alone = len(prepared.bound.sites) == 1
        return TreeAggregate(scan, candidate.calls, candidate.bare if alone else None)
    rows = prepared.rows.get(site.index)
    if rows is None or not scan.exact:
        return scan
    limit = row_bounds(rows, planning.folder)
    if limit is None or not rows.newest:
        return replace(scan, limit=limit)
    return replace(scan, low=tail_start(planning.snapshot(scan.stream), scan.low, scan.high, limit))


def _operator(bound: BoundOperator, planning: Planning) -> Leaf:
    return planning.planners[type(bound)](bound, planning)


def _root(
    prepared: PreparedQuery, leaves: list[Leaf], answered: frozenset[int], planning: Planning
) -> Root:
    if len(leaves) == 1:
        leaf = leaves[0]
        if isinstance(leaf, TreeAggregate) and leaf.columns is not None:
            return leaf
        picked = prepared.picked
        if picked is not None and not isinstance(leaf, Scan):
            return PassThrough(leaf, picked)
        if picked is not None and isinstance(leaf, Scan):
            passing = passing_scan(
                leaf, prepared.rows.get(prepared.bound.sites[0].index), planning.folder
            )
            if passing is not None:
                return PassThrough(passing[0], picked, passing[1])
    sites = prepared.bound.sites

    def names(written: Written) -> list[str]:
        """The executor's column names of the query over its streams."""
        relations = {}
        if sites:  # imports datasets only if needed
            with LOADING:
                from ..relational.datasets import without_rows

            relations = {site.relation: without_rows(site.columns) for site in sites}
        values = planning.given(written.parameters)
        query = RelationalQuery(written.sql, relations, values, planning.text)
        return [name for name, _ in planning.executor.columns(query)]

    written = prepared.write(answered, names)
    outputs = prepared.bound.outputs
    return Relational(
        written.sql,
        planning.given(written.parameters),
        tuple((site.relation, leaf) for site, leaf in zip(sites, leaves, strict=True)),
        None if outputs is None else tuple(output.type for output in outputs),
    )


def moment() -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc)
