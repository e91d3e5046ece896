"""Live queries over views: the queries of the views, put in where they are named.

Purpose
    :func:`put_in` makes of a SELECT that names views one that reads streams, as every query does
    (:mod:`chronicle.query.binding.views`), so that what is known of subqueries holds for views.
    What is left of a view that only filters is a condition::

        FROM v AS x                             FROM s AS x WHERE (condition of v)
        FROM a LEFT JOIN v ON c                 FROM a LEFT JOIN s AS v ON c AND (condition of v)
        FROM v MATCH_RECOGNIZE (...)            FROM (SELECT * FROM s WHERE ...) MATCH_RECOGNIZE

Guarantee
    A live query means for good what its views said when it was made: their queries are kept with
    its definition.  A view may be replaced or dropped, and the query goes on as it was.

Limits
    A view whose query could not be live by itself cannot be followed; the error names the view.
    What a join takes besides filters is said in :mod:`.join_columns`.
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
from ..store.views import KeptView

__all__ = ["Viewed", "engine_with_views", "kept", "put_in"]


@dataclass(frozen=True)
class Viewed:
    """A SELECT that reads streams.

    Attributes
    ----------
    tree : sqlglot tree
    views : dict of str to str
        The queries of the views that were put in, by name; of those within views, too.
    """

    tree: Any
    views: dict[str, str]
    _expansion: Expansion | None

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Errors at the place of a view name it."""
        try:
            yield
        except SqlError as error:
            if self._expansion is None:
                raise
            raise self._expansion.explained(error) from None


def put_in(tree: Any, text: str, views: Mapping[str, KeptView]) -> Viewed:
    """A SELECT with the queries of its views in their places.

    Parameters
    ----------
    tree : sqlglot tree
        It is left as it is.
    text : str
        What it was parsed from.

    Raises
    ------
    SqlError
    """
    root, expansion = expand(tree.copy(), text, views, frozenset())
    if expansion is None or not expansion.used:
        return Viewed(tree, {}, None)
    for select in reversed(list(root.find_all(exp.Select))):
        _take_filters_over(select)
    return Viewed(root, dict(expansion.used), expansion)


def kept(views: Mapping[str, str]) -> dict[str, KeptView]:
    """Views of which the queries are known."""
    return {name: KeptView(name, sql, (), pa.schema([])) for name, sql in views.items()}


def engine_with_views(engine: Callable[[], QueryEngine], views: Mapping[str, str]) -> QueryEngine:
    """The query engine with the views of a live query, as they were when it was made."""
    whole = engine()
    return whole.over_catalog(_WithViews(whole, kept(views)))


class _WithViews(VisibleStreams):
    def __init__(self, engine: QueryEngine, views: Mapping[str, KeptView]) -> None:
        super().__init__(engine.catalog, lambda _: True)
        self._views = views

    def views(self) -> Mapping[str, KeptView]:
        """Those that were given."""
        return self._views


def _take_filters_over(select: Any) -> None:
    """Make conditions of a SELECT of what its FROM only filters."""
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
