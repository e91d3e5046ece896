"""Prepared queries: everything that a statement's text decides, cached by text.

Rewrites: SELECTs answered by the tree read one row, ``ORDER BY time`` over one stream is dropped,
order-dependent aggregates are ordered by time, ``now()`` becomes a parameter.

A SELECT that only picks columns of one relation, in the relation's own order, avoids the executor's
latency (``picked_columns``).

The text also decides how a query may be divided into parts; ``division`` divides the plan.

============  ====================================================  ==========================
a cut         query                                                 a part
============  ====================================================  ==========================
``rows``      filter and projection of one stream                   a time range, cut at leaf
                                                                    borders
``windows``   aggregation over TUMBLE or HOP in time, grouped by    windows that start in a
              ``window_start`` or ``window_end``                    time range
``match``     MATCH_RECOGNIZE, MATCH_SITUATIONS or another          replay intervals, a time
              operator of the contract over a stream                range, or partitions
                                                                    (``query.split``)
``recent``    RECENT JOIN whose live side is                        live rows that end in a
              MATCH_RECOGNIZE with WITHIN over a stream             range of time
``whole``     everything else                                       the query
============  ====================================================  ==========================

A query with ORDER BY, LIMIT, DISTINCT, an aggregate or window function over all rows, or the
current time is never divided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa
from sqlglot import exp

from ...core.caches import lazy
from ...errors import SqlError
from ...schema import StreamSchema
from ..binding.binder import BoundQuery, bind
from ..binding.scope import Binders, Names, Site, is_plain
from ..binding.tree_aggregates import Candidate, find_candidate, rewritten
from ..binding.views import WINDOW_FUNCTIONS, expand
from ..contract.cancellation import checkpoint
from ..contract.catalog import Catalog
from ..sql.dialect import to_text
from ..sql.forms import DISTANCES
from ..sql.gate import TIMES_OF_SIDES, check_query
from ..sql.parameters import NOW, number_placeholders
from ..sql.sql_types import TimeUse, settle_times
from ..sql.statement_clauses import MatchRelation, RecentRelation, SituationRelation
from ..sql.trees import nodes_of
from .nodes import QueryPlan, Scan

_OTHER_CLAUSES = (
    "with_", "group", "having", "qualify", "windows", "distinct", "joins", "laterals", "sample",
)  # fmt: skip
_OF_SCANS = ("where", "limit", "offset")
_SUM = pa.decimal128(38, 0)
_INTEGERS = {exp.DataType.Type.INT128: "HUGEINT", exp.DataType.Type.BIGINT: "BIGINT"}


class Picked(NamedTuple):
    """A result column; ``form`` is '' or the type of an integer sum, 'HUGEINT' or 'BIGINT'."""

    name: str
    column: str
    form: str = ""


def picked_columns(
    root: Any, schema: pa.Schema, ordered_by: Sequence[str], *, scanned: bool = False
) -> tuple[Picked, ...] | None:
    """Each projection as a column; None if the SELECT does more.  ``scanned``: ignore filters."""
    others = _OTHER_CLAUSES if scanned else (*_OTHER_CLAUSES, *_OF_SCANS)
    if not isinstance(root, exp.Select) or any(root.args.get(key) for key in others):
        return None
    item = root.args["from_"].this if root.args.get("from_") is not None else None
    if not isinstance(item, exp.Table) or item.args.get("joins") or item.args.get("sample"):
        return None
    if item.args.get("alias") is not None and item.args["alias"].args.get("columns"):
        return None
    names = {name.lower(): name for name in schema.names}
    if len(names) < len(schema.names):
        return None
    relation = item.alias_or_name.lower()
    picked: list[Picked] = []
    for projection in root.expressions:
        column, form = _summed(projection.unalias())
        star = column.this if isinstance(column, exp.Column) else column
        if isinstance(star, exp.Star):
            if any(star.args.values()):  # EXCLUDE, REPLACE, RENAME
                return None
            picked += [Picked(name, name) for name in schema.names]
            continue
        source = names.get(column.name.lower()) if _is_own(column, relation) else None
        if source is None or (form and not projection.alias):
            return None
        picked.append(Picked(projection.alias or source, source, form))
    for _, name, form in picked:
        type_ = schema.field(name).type
        if type_ != _SUM if form else pa.types.is_decimal(type_) or pa.types.is_date64(type_):
            return None
    order = root.args.get("order")
    if order is not None and not _delivered(order, picked, ordered_by, relation):
        return None
    return tuple(picked)


def _is_own(node: Any, relation: str) -> bool:
    if not isinstance(node, exp.Column) or len(node.parts) > 2:
        return False
    return node.table.lower() in ("", relation)


def _summed(node: Any) -> tuple[Any, str]:
    """The operand and type of a cast of an integer sum; else the node."""
    inner, form = node, ""
    while type(inner) is exp.Cast or type(inner) is exp.Paren:
        if type(inner) is exp.Cast:
            cast = _INTEGERS.get(inner.to.this, "")
            if not cast or (form and cast != "HUGEINT"):
                return node, ""
            form = form or cast
        inner = inner.this
    return (inner, form) if form else (node, "")


def _delivered(order: Any, picked: list[Picked], given: Sequence[str], relation: str) -> bool:
    aliases: dict[str, set[str]] = {}
    for name, column, _ in picked:
        aliases.setdefault(name.lower(), set()).add(column)
    for position, key in enumerate(order.expressions):
        if not isinstance(key, exp.Ordered) or key.args.get("desc"):
            return False
        node = key.this
        if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit():
            place = int(node.this)
            column = picked[place - 1].column if 1 <= place <= len(picked) else ""
        elif _is_own(node, relation):
            columns = aliases.get(node.name.lower(), {node.name.lower()})
            column = next(iter(columns)) if len(columns) == 1 else ""
        else:
            return False
        if position >= len(given) or column != given[position]:
            return False
    return True


_CLAUSES = ("limit", "offset", "order", "distinct", "qualify", "sort", "with_", "joins", "laterals")
_WHOLE = ("whole", "its rows depend on each other")


def cut_of(tree: Any) -> tuple[str, str]:
    """The cut of a parsed query, and the reason for ``whole``."""
    if not isinstance(tree, exp.Select) or any(tree.args.get(name) for name in _CLAUSES):
        return _WHOLE
    source = tree.args["from_"].this if tree.args.get("from_") else None
    if isinstance(source, RecentRelation):
        return ("recent", "") if _row_wise(tree) else _WHOLE
    if isinstance(source, MatchRelation | SituationRelation):
        inner = source.this
        plain = isinstance(inner, exp.Table) and isinstance(inner.this, exp.Identifier)
        return ("match", "") if plain and _row_wise(tree) else _WHOLE
    if not isinstance(source, exp.Table) or source.args.get("joins"):
        return _WHOLE
    if isinstance(source.this, exp.Anonymous):
        name = source.this.name.lower()
        if name in WINDOW_FUNCTIONS:
            return _windows(tree, source.this)
        return ("match", "") if name != "net" and _row_wise(tree) else _WHOLE
    return ("rows", "") if source.name and _row_wise(tree) else _WHOLE


def _nested(tree: Any) -> bool:
    return any(isinstance(n, (exp.Query, exp.Window)) for n in nodes_of(tree)[1:])


def _row_wise(tree: Any) -> bool:
    if tree.args.get("group") or tree.args.get("having") or _nested(tree):
        return False
    return not any(
        isinstance(node, exp.AggFunc)
        or (isinstance(node, exp.Anonymous) and node.name.lower() not in TIMES_OF_SIDES)
        for expression in tree.expressions
        for node in expression.walk()
    )


def _windows(tree: Any, call: Any) -> tuple[str, str]:
    group = tree.args.get("group")
    keys = {node.name.lower() for node in group.expressions} if group is not None else set()
    timed = len(call.expressions) == {"tumble": 3, "hop": 4}.get(call.name.lower())
    if timed and keys & {"window_start", "window_end"} and not _nested(tree):
        return "windows", ""
    return _WHOLE


NODE_BYTES = 1200

_TODAY = ("current_date", "today")
_NOW = ("now", "current_timestamp", "transaction_timestamp", "get_current_timestamp")
_LOCAL = ("localtimestamp", "current_localtimestamp")


@dataclass(frozen=True)
class RowLimit:
    """LIMIT and OFFSET over one stream; ``newest``: counted from the end (descending time)."""

    limit: Any
    offset: Any
    newest: bool


@dataclass(frozen=True)
class Written:
    """SQL for the executor, and the names of its parameters."""

    sql: str
    parameters: frozenset[str]

    @classmethod
    def of(cls, root: Any, text: str) -> Written:
        asked = (node.name for node in nodes_of(root) if isinstance(node, exp.Placeholder))
        return cls(to_text(root, text), frozenset(asked))


@dataclass
class PreparedQuery:
    """``parameters`` are offsets of first uses; ``candidates`` and ``rows`` are by site;
    ``static``: no parameters and no current time; ``scans`` and ``plan`` cache a static query's
    first execution (``plan`` only if independent of the streams' contents); ``times``: types of
    time parameters.
    """

    text: str
    bound: BoundQuery
    parameters: dict[str, int]
    candidates: dict[int, Candidate]
    rows: dict[int, RowLimit]
    static: bool
    cut: str
    reason: str
    bytes: int
    views: dict[str, str] = field(default_factory=dict)
    times: list[TimeUse] = field(default_factory=list)
    scans: dict[int, Scan] = field(default_factory=dict)
    plan: QueryPlan | None = None
    _written: dict[frozenset[int], Written] = field(default_factory=dict)

    @property
    def streams(self) -> dict[str, StreamSchema]:
        return self.bound.streams

    def write(self, answered: frozenset[int], names: Callable[[Written], list[str]]) -> Written:
        """SQL with candidates answered by the tree; ``names`` gives the column names to keep."""
        written = self._written.get(answered)
        if written is None:
            root = self.bound.root
            if answered or self.bound.unordered:
                chosen = [self.candidates[i] for i in sorted(answered)]
                before = Written.of(root, self.text)
                root = rewritten(root, chosen, self.bound.unordered, cache(lambda: names(before)))
            written = self._written[answered] = Written.of(root, self.text)
        return written

    @lazy
    def picked(self) -> tuple[Picked, ...] | None:
        (site, *more), root = self.bound.sites or (None,), self.bound.root
        if site is None or more:
            return None
        if site.operator is not None:
            return picked_columns(root, site.operator.schema, site.operator.ordered_by)
        limited = root.args.get("limit") or root.args.get("offset")
        if site.schema is None or site.select is not root or (limited and not self.rows):
            return None
        return picked_columns(root, site.schema.arrow, (site.schema.time,), scanned=True)


def prepare(
    root: Any, text: str, catalog: Catalog, operators: Binders, *, inner: bool = False
) -> PreparedQuery:
    """Prepare a query, changing its tree; ``inner``: its parameters are already named."""
    functions = frozenset(name for name in operators if isinstance(name, str))
    if not inner:
        root, views = expand(root, text, catalog.views(), frozenset(catalog.frames))
        if views is not None and views.used:
            try:
                return _prepared(root, text, catalog, operators, functions, views.used)
            except SqlError as error:
                raise views.explained(error) from None
    return _prepared(root, text, catalog, operators, functions, {}, inner=inner)


def _prepared(
    root: Any,
    text: str,
    catalog: Catalog,
    operators: Binders,
    functions: frozenset[str],
    views: dict[str, str],
    *,
    inner: bool = False,
) -> PreparedQuery:
    check_query(root, text, functions)
    checkpoint()
    parameters = {} if inner else number_placeholders(root, text)
    cut, reason = cut_of(root)
    uses_now = _fix_now(root)
    if uses_now and cut != "whole":
        cut, reason = "whole", "it asks for the time, which is one for all rows"
    bound = bind(root, text, catalog, operators)
    times = bound.times + settle_times(bound.root, bound.names.declared_type, text)
    rows: dict[int, RowLimit] = {}
    candidates: dict[int, Candidate] = {}
    for site in bound.sites:
        candidate = find_candidate(site, bound.names)
        if candidate is not None:
            candidates[site.index] = candidate
        elif site.schema is not None and site.select is not None:
            relation_rows = _rows(site, bound.names)
            if relation_rows is not None:
                rows[site.index] = relation_rows
    checkpoint()
    size = NODE_BYTES * len(nodes_of(bound.root)) + 8 * len(text)
    static = not parameters and not uses_now
    prepared = PreparedQuery(
        text, bound, parameters, candidates, rows, static, cut, reason, size, views, times
    )
    if bound.unordered:  # names come from the executor
        Written.of(bound.root, text)
    else:
        prepared.write(frozenset(), lambda _: [])  # refuse unsupported nodes early
    return prepared


def _fix_now(root: Any) -> bool:
    """Replace time functions by one parameter; whether there were any.  Distances keep their name
    from before they are guarded.
    """
    changed = False
    for node in nodes_of(root):
        name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
        if name in DISTANCES:
            _keep_name(node)
        if isinstance(node, exp.Anonymous) and (node.expressions or not name):
            continue
        made: Any = None
        if isinstance(node, exp.CurrentTimestamp) or name in _NOW:
            made = exp.cast(exp.Placeholder(this=NOW), "TIMESTAMPTZ", dialect="duckdb")
        elif isinstance(node, exp.CurrentDate) or name in _TODAY:
            made = exp.cast(exp.Placeholder(this=NOW), "DATE", dialect="duckdb")
        elif isinstance(node, exp.Localtimestamp) or name in _LOCAL:
            made = exp.cast(exp.Placeholder(this=NOW), "TIMESTAMP", dialect="duckdb")
        if made is None:
            continue
        changed = True
        _keep_name(node)
        node.replace(made)
    return changed


def _keep_name(node: Any) -> None:
    """Alias the projection around a node with its present name."""
    projection = node
    while not (
        isinstance(projection.parent, (exp.Query, type(None)))
        or projection.arg_key == "expressions"
    ):
        projection = projection.parent
    if not isinstance(projection.parent, exp.Select) or projection.arg_key != "expressions":
        return
    if not isinstance(projection, (exp.Alias, exp.Star)):
        name = projection.sql("duckdb", normalize_functions="lower").lower()
        alias = exp.Alias(alias=exp.to_identifier(name, quoted=True))
        projection.replace(alias)
        alias.set("this", projection)


def _rows(site: Site, names: Names) -> RowLimit | None:
    """Limit of a SELECT over one stream; drops an ORDER BY that scans satisfy."""
    select, schema = site.select, site.schema
    assert schema is not None
    if select.args.get("joins") or select.args.get("laterals"):
        return None
    limit, offset, order = (select.args.get(key) for key in ("limit", "offset", "order"))
    if select.args["from_"].this.args.get("sample") is not None:
        return None
    select.set("limit", None)
    select.set("offset", None)
    plain = is_plain(select)
    select.set("limit", limit)
    select.set("offset", offset)
    if not plain:
        return None
    newest = False
    if order is not None:
        if any(node is not select and isinstance(node, exp.Query) for node in select.walk()):
            return None  # a subquery becomes a join, which may reorder rows
        key: Any = order.expressions[0] if len(order.expressions) == 1 else None
        column: Any = key.this if isinstance(key, exp.Ordered) else None
        use = names.use(column)
        if use is None or use.site != site.index or use.attribute != schema.time:
            return None
        if not column.table and _hidden(select, column, names):
            return None
        newest = bool(key.args.get("desc"))
        if not newest:
            select.set("order", None)
    if limit is None or not isinstance(limit, exp.Limit) or limit.args.get("limit_options"):
        return None
    if limit.expression is None or limit.args.get("expressions"):
        return None
    return RowLimit(limit.expression, None if offset is None else offset.expression, newest)


def _hidden(select: Any, column: Any, names: Names) -> bool:
    for projection in select.expressions:
        if isinstance(projection, exp.Alias) and projection.alias.lower() == column.name.lower():
            inner = projection.this
            if names.use(inner) != names.use(column):
                return True
    return False
