"""The planner: from a statement's text to what will run, as far as the text alone decides.

Purpose
    :func:`prepare` parses nothing anew: it takes a tree through the gate, names its parameters,
    binds it, and finds ad-hoc aggregates and limits that the scans can use.  The
    :class:`Prepared` query is kept by text and run many times; :func:`scan_spec` then says, under
    the values of one execution, what range of time and which blocks each scan needs.

Guarantee
    Everything pushed into a scan is implied by the query; the executor still evaluates every
    condition.  Only these change what the executor is given: a SELECT that the tree answers reads
    one row, ``ORDER BY time`` over a single stream falls away because scans are in time order
    already, and ``now()`` becomes a parameter, so that all of the query sees one moment.

Limits
    A limit reaches a scan only where the time range is the whole condition.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sqlglot import exp

from ...schema import StreamSchema
from ...store.prune import AllOf, AnyOf, IsNull, Never, Prune, Range
from ..binding.binder import Bound, bind, conjuncts, is_plain
from ..binding.operators import table_function_names
from ..binding.scope import Condition, Output, Site
from ..binding.tree_aggregates import Candidate, find_candidate, rewrite
from ..conditions.bounds import Compiled, all_of
from ..conditions.constants import Folder, Kind
from ..conditions.predicates import PredicateCompiler
from ..conditions.ranges import time_bounds
from ..contract.catalog import Catalog
from ..sql.dialect import to_text
from ..sql.gate import check_query
from ..sql.parameters import NOW, number_placeholders
from ..sql.rendering.vocabulary import DISTANCES
from ..sql.silent_loss import check_literals
from .nodes import ScanSpec
from .pass_through import picked_columns

__all__ = ["Prepared", "Rows", "Written", "prepare", "row_bounds", "scan_spec"]

NODE_BYTES = 1200
"""About what a node of a tree takes, with its dictionaries."""

_TODAY = ("current_date", "today")
_NOW = ("now", "current_timestamp", "transaction_timestamp", "get_current_timestamp")
_LOCAL = ("localtimestamp", "current_localtimestamp")


@dataclass(frozen=True)
class Rows:
    """How many events a SELECT can need from its one stream.

    Attributes
    ----------
    limit, offset : sqlglot tree or None
    newest : bool
        Counted from the end (``ORDER BY time DESC``).
    """

    limit: Any
    offset: Any
    newest: bool


@dataclass(frozen=True)
class Written:
    """A query as the executor is given it.

    Attributes
    ----------
    sql : str
    parameters : frozenset of str
        Names of the parameters that occur in it; the executor refuses any other.
    """

    sql: str
    parameters: frozenset[str]

    @classmethod
    def of(cls, root: Any, text: str) -> Written:
        """Write a tree that was parsed from a text."""
        return cls(to_text(root, text), frozenset(p.name for p in root.find_all(exp.Placeholder)))


@dataclass
class Prepared:
    """A query that can be run; see :func:`prepare`.

    ``bytes`` is about what it takes in memory: its tree, and its text twice.
    """

    text: str
    root: Any
    sites: list[Site]
    streams: dict[str, StreamSchema]
    outputs: list[Output] | None
    parameters: tuple[str, ...]
    candidates: dict[int, Candidate]
    rows: dict[int, Rows]
    static: bool
    specs: dict[int, ScanSpec] = field(default_factory=dict)
    written: dict[frozenset[int], Written] = field(default_factory=dict)
    bytes: int = 0

    def write(self, answered: frozenset[int], names: Callable[[Written], list[str]]) -> Written:
        """The query for the executor, with these candidates answered by the tree.

        ``names`` gives the column names of a query, which a rewritten one must keep.
        """
        found = self.written.get(answered)
        if found is None:
            root = self.root
            if answered:
                holder = exp.Paren(this=self.root.copy())
                for select in list(holder.find_all(exp.Select)):
                    if select.meta.get("candidate") in answered:
                        whole = select is holder.this
                        rewrite(select, names(self.written[frozenset()]) if whole else None)
                root = holder.this
            found = self.written[answered] = Written.of(root, self.text)
        return found

    @cached_property
    def picked(self) -> list[tuple[str, str]] | None:
        """Columns that the query picks of its only operator, when that is all it does."""
        if len(self.sites) != 1 or self.sites[0].operator is None:
            return None
        return picked_columns(self.root, self.sites[0].operator)

    def direct(self, answered: frozenset[int]) -> Candidate | None:
        """The candidate that is the whole answer, if there is one."""
        if len(self.sites) == 1 and 0 in answered:
            candidate = self.candidates[0]
            if candidate.bare is not None:
                return candidate
        return None


def prepare(root: Any, text: str, catalog: Catalog, *, inner: bool = False) -> Prepared:
    """Prepare a query.

    Parameters
    ----------
    root : sqlglot tree
        As parsed; it is changed.
    text : str
        What it was parsed from, for positions.
    catalog : Catalog
    inner : bool
        Made of parts of a query that was prepared already: its parameters are named and bound.

    Raises
    ------
    SqlError
    """
    check_query(root, text, table_function_names())
    check_literals(root, text)
    parameters = () if inner else number_placeholders(root, text)
    uses_now = _fix_now(root)
    _name_distances(root)
    bound: Bound = bind(root, text, catalog)
    rows: dict[int, Rows] = {}
    candidates: dict[int, Candidate] = {}
    for site in bound.sites:
        candidate = find_candidate(site)
        if candidate is not None:
            candidates[site.index] = candidate
        elif site.schema is not None and site.select is not None:
            found = _rows(site)
            if found is not None:
                rows[site.index] = found
    return Prepared(
        text=text,
        root=bound.root,
        sites=bound.sites,
        streams=bound.streams,
        outputs=bound.outputs,
        parameters=parameters,
        candidates=candidates,
        rows=rows,
        static=not parameters and not uses_now,
        written={frozenset(): Written.of(bound.root, text)},  # what has no form is refused now
        bytes=NODE_BYTES * sum(1 for _ in bound.root.walk()) + 8 * len(text),
    )


def tells_the_time(root: Any) -> bool:
    """Whether a query, as parsed, depends on the moment at which it is run."""
    return _fix_now(root.copy())


def _fix_now(root: Any) -> bool:
    """Replace the functions that tell the time by one parameter; say whether there were any."""
    found = False
    for node in list(root.walk()):
        name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
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
        found = True
        _keep_name(node)
        node.replace(made)
    return found


def _name_distances(root: Any) -> None:
    """Keep the names of projections with calls that are written in another form."""
    for node in list(root.find_all(exp.Anonymous)):
        if node.name.lower() in DISTANCES:
            _keep_name(node)


def _keep_name(node: Any) -> None:
    """Give the projection around a node the name it would have had with its own text."""
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


def _rows(site: Site) -> Rows | None:
    """Order and limit of a SELECT over one stream; drops an ORDER BY that scans give anyway."""
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
            return None  # a subquery becomes a join, which may give its rows in another order
        key: Any = order.expressions[0] if len(order.expressions) == 1 else None
        column: Any = key.this if isinstance(key, exp.Ordered) else None
        use = column.meta.get("use") if isinstance(column, exp.Column) else None
        if use is None or use.site != site.index or use.attribute != schema.time:
            return None
        if not column.table and _hidden(select, column):
            return None
        newest = bool(key.args.get("desc"))
        if not newest:
            select.set("order", None)
    if limit is None or not isinstance(limit, exp.Limit) or limit.args.get("limit_options"):
        return None
    if limit.expression is None or limit.args.get("expressions"):
        return None
    return Rows(limit.expression, None if offset is None else offset.expression, newest)


def _hidden(select: Any, column: Any) -> bool:
    """Whether an alias of the SELECT takes a column's name for something else."""
    for projection in select.expressions:
        if isinstance(projection, exp.Alias) and projection.alias.lower() == column.name.lower():
            inner = projection.this
            same = isinstance(inner, exp.Column) and inner.meta.get("use") == column.meta["use"]
            if not same:
                return True
    return False


# ------------------------------------------------------------------------- one execution


def scan_spec(prepared: Prepared, site: Site, folder: Folder) -> ScanSpec:
    """What the conditions on a stream say under the values of one execution."""
    known = prepared.specs.get(site.index)
    if known is not None:
        return known
    schema = site.schema
    assert schema is not None
    parts = [_compiled(site, condition, schema, folder) for condition in site.conditions]
    whole = all_of(parts)
    low, high = time_bounds(whole.prune, schema.time)
    exact = _covers_where(site) and all(
        part.exact and _only_time(part.prune, schema) for part in parts
    )
    spec = ScanSpec(low, high, None if exact else _without_time(whole.prune, schema), exact)
    if prepared.static:
        prepared.specs[site.index] = spec
    return spec


def _compiled(site: Site, condition: Condition, schema: StreamSchema, folder: Folder) -> Compiled:
    nullable = False

    def column_of(node: Any) -> str | None:
        nonlocal nullable
        use = node.meta.get("use")
        if use is None or use.site != site.index or use.scope != condition.scope:
            return None
        nullable = nullable or use.nullable
        return str(use.attribute)

    compiled = PredicateCompiler(schema, folder, column_of).compile(condition.node)
    if nullable and condition.where:
        # an outer join puts NULLs in place of what is missing: only what they cannot satisfy counts
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
    """Whether every conjunct of the SELECT's WHERE is among the site's conditions."""
    if site.select is None:
        return False
    where = site.select.args.get("where")
    parts = list(conjuncts(where.this)) if where is not None else []
    attached = {id(condition.node) for condition in site.conditions}
    return all(id(part) in attached for part in parts)


def _only_time(prune: Prune | None, schema: StreamSchema) -> bool:
    if isinstance(prune, AllOf):
        return all(_only_time(item, schema) for item in prune.items)
    return isinstance(prune, Never) or (isinstance(prune, Range) and prune.column == schema.time)


def _without_time(prune: Prune | None, schema: StreamSchema) -> Prune | None:
    """A predicate without the ranges of time that the bounds of the scan say already."""
    items = prune.items if isinstance(prune, AllOf) else () if prune is None else (prune,)
    kept = tuple(
        item for item in items if not (isinstance(item, Range) and item.column == schema.time)
    )
    if not kept:
        return None
    return kept[0] if len(kept) == 1 else AllOf(kept)


def row_bounds(rows: Rows, folder: Folder) -> int | None:
    """How many events a SELECT needs at most; None when that cannot be told."""
    total = 0
    for node in (rows.limit, rows.offset):
        if node is None:
            continue
        value = folder.fold(node)
        if value.kind is not Kind.EXACT or not isinstance(value.value, int) or value.value < 0:
            return None
        total += value.value
    return total


def moment() -> dt.datetime:
    """The moment a query begins, as ``now()`` tells it."""
    return dt.datetime.now(dt.timezone.utc)
