"""The planner: from a prepared query and one execution's values to a plan.

A plan uses one snapshot per stream and one ``now()``, as does its run.
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
from ...store.snapshot import Snapshot
from ..binding.from_operator import Binders, BoundOperator
from ..binding.scope import Site
from ..conditions.constants import Folder
from ..conditions.ranges import tail_start
from ..contract.cancellation import QueryControl
from ..contract.catalog import Catalog
from ..relational.interface import RelationalExecutor, RelationalQuery
from ..sql.parameters import NOW, bind_values
from ..sql.time_texts import settled
from .nodes import Leaf, PassThrough, QueryPlan, Relational, Root, Scan, TreeAggregate
from .prepared import PreparedQuery, Written, prepare
from .scans import passing_scan, plan_scan, row_bounds

if TYPE_CHECKING:
    from ..pattern.compiled import CompiledMatch
    from ..situations.compiled import CompiledSituations
    from ..split.parts import MatchPart
    from ..split.situation_parts import SituationPart
    from ..windows.kept_groups import GroupHook

__all__ = ["Planners", "Planning", "bounded", "plan_query"]

Planners = Mapping[type, Callable[[Any, "Planning"], Leaf]]
"""Planning functions by class of bound operator."""


@dataclass
class Planning:
    """Context of planning; ``executor`` only folds constants and names columns; ``bounds`` are
    half-open ticks by stream; ``part`` and ``situations`` restrict matches; ``hook`` transforms
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
    part: Callable[[Snapshot, CompiledMatch], MatchPart] | None = None
    situations: Callable[[Snapshot, CompiledSituations], SituationPart] | None = None
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
        found = self.snapshots.get(name)
        if found is None:
            found = self.snapshots[name] = self.catalog.snapshot(name)
        return found

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
        if isinstance(given := values.get(name), str):
            values[name] = settled(given, type_, prepared.text, at)


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
    plan = QueryPlan(prepared.text, root, prepared.cut, prepared.reason)
    if (
        prepared.static
        and not planning.bounds
        and not any(rows.newest for rows in prepared.rows.values())
        and all(isinstance(leaf, Scan | TreeAggregate) for leaf in leaves)
    ):
        prepared.plan = plan  # independent of values and of the streams' contents
    return plan


def _scan(prepared: PreparedQuery, site: Site, planning: Planning) -> Scan:
    known = prepared.scans.get(site.index)
    if known is None:
        known = plan_scan(site, prepared.bound.names, planning.folder)
        if prepared.static:
            prepared.scans[site.index] = known
    return known


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
            found = passing_scan(
                leaf, prepared.rows.get(prepared.bound.sites[0].index), planning.folder
            )
            if found is not None:
                return PassThrough(found[0], picked, found[1])
    sites = prepared.bound.sites

    def names(written: Written) -> list[str]:
        """The executor's column names of the query over its streams."""
        relations = {}
        if sites:  # imports datasets only if needed
            with LOADING:
                from ..relational.scans import without_rows

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
