"""Scans: the time range and pruning that conditions imply; the executor evaluates them again.

A limit is pushed only if the time range is the whole condition.  Remainders prune no block; they
are in ``Scan.passing`` for users who need to know which events pass.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...schema import StreamSchema
from ...store.prune import AllOf, AnyOf, IsNull, Prune, Range, Remainder
from ..binding.binder import conjuncts
from ..binding.scope import Condition, Names, Site
from ..conditions.constants import Folder, Kind
from ..conditions.exact_filters import has_exact_filter
from ..conditions.predicates import Compiled, PredicateCompiler, all_of
from ..conditions.ranges import only_time, time_bounds
from .nodes import Scan
from .prepared import RowLimit

__all__ = ["passing_scan", "plan_scan", "row_bounds"]


def plan_scan(site: Site, names: Names, folder: Folder) -> Scan:
    """The scan of a stream, without limits."""
    schema = site.schema
    assert schema is not None
    parts = [_compiled(site, condition, schema, names, folder) for condition in site.conditions]
    whole = all_of(parts)
    low, high = time_bounds(whole.prune, schema.time)
    exact = _covers_where(site) and all(
        part.exact and only_time(part.prune, schema.time) for part in parts
    )
    decided = exact or (_covers_where(site) and all(part.exact for part in parts))
    known = _without_remainders(whole.prune)
    prune = None if exact else _without_time(known, schema)
    if known == whole.prune:
        return Scan(site.name, schema, low, high, prune, exact, decided)
    passing = whole.prune if decided else None
    return Scan(site.name, schema, low, high, prune, passing=passing, exact=False)


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

    compiled = PredicateCompiler(schema, folder, column_of, remainders=True).compile(condition.node)
    if nullable and condition.where:
        # an outer join adds NULLs: only conditions that reject them count
        compiled = PredicateCompiler(schema, folder, column_of, missing=True).compile(
            condition.node
        )
        return Compiled(_rejecting(compiled.prune), exact=False)
    return compiled


def _rejecting(prune: Prune | None) -> Prune | None:
    """The part of a predicate that a row of NULLs does not satisfy."""
    if isinstance(prune, AllOf):
        kept = tuple(item for item in prune.items if not _accepts_nulls(item))
        return AllOf(kept) if kept else None
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


def _without_remainders(prune: Prune | None) -> Prune | None:
    if isinstance(prune, Remainder):
        return None
    if isinstance(prune, AllOf | AnyOf):
        items = [_without_remainders(item) for item in prune.items]
        kept = tuple(item for item in items if item is not None)
        if len(kept) == len(items):
            return AllOf(kept) if isinstance(prune, AllOf) else AnyOf(kept)
        if isinstance(prune, AnyOf) or not kept:
            return None
        return kept[0] if len(kept) == 1 else AllOf(kept)
    return prune


def _without_time(prune: Prune | None, schema: StreamSchema) -> Prune | None:
    items = prune.items if isinstance(prune, AllOf) else () if prune is None else (prune,)
    kept = tuple(
        item for item in items if not (isinstance(item, Range) and item.column == schema.time)
    )
    if not kept:
        return None
    return kept[0] if len(kept) == 1 else AllOf(kept)


def passing_scan(scan: Scan, rows: RowLimit | None, folder: Folder) -> tuple[Scan, int] | None:
    """A scan whose rows are the result, and the number to skip; None if the executor is needed."""
    if not scan.decided or not has_exact_filter(scan.prune, scan.schema):
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
