"""Live queries over views, which are expanded; views that only filter become conditions::

    FROM v AS x                             FROM s AS x WHERE (condition of v)
    FROM a LEFT JOIN v ON c                 FROM a LEFT JOIN s AS v ON c AND (condition of v)
    FROM v MATCH_RECOGNIZE (...)            FROM (SELECT * FROM s WHERE ...) MATCH_RECOGNIZE

View queries are stored with the live query, which replacing or dropping a view does not affect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ..errors import SqlError
from ..query.binding.views import Expansion, expand, only_filters, without_qualifier
from ..query.contract.access import VisibleStreams
from ..query.engine import QueryEngine
from ..store.views import StoredView


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
    return whole.over_catalog(_WithViews(whole, stored_views(views)))


class _WithViews(VisibleStreams):
    def __init__(self, engine: QueryEngine, views: Mapping[str, StoredView]) -> None:
        super().__init__(engine.catalog, lambda _: True)
        self._views = views

    def views(self) -> Mapping[str, StoredView]:
        return self._views


def _take_filters_over(select: Any) -> None:
    """Turn derived tables that only filter into conditions of the SELECT."""
    clause = select.args.get("from_")
    joins = select.args.get("joins") or []
    places: list[tuple[Any, Any]] = [] if clause is None else [(clause, None)]
    places += [(join, join) for join in joins]
    for holder, join in places:
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
        table = exp.Table(this=source.this, alias=alias)
        table.meta.update(derived.meta)
        holder.set("this", table)
        if condition is None:
            continue
        if join is None or not join.side:
            select.where(exp.paren(condition), copy=False)
        else:
            asked = join.args.get("on")
            parts = [exp.paren(condition)] if asked is None else [asked, exp.paren(condition)]
            join.set("on", exp.and_(*parts, copy=False))


def _is_filter(derived: Any) -> bool:
    """Whether a derived table is ``(SELECT * FROM stream [WHERE ...]) AS name``."""
    alias: Any = derived.args.get("alias")
    decorated = any(derived.args.get(key) for key in ("joins", "sample", "laterals", "pivots"))
    if alias is None or alias.args.get("columns") or decorated or not only_filters(derived.this):
        return False
    source: Any = derived.this.args["from_"].this
    return isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier)
