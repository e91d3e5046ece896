"""The binder: FROM items to relations, names to columns.

Relation ``i`` becomes the table ``chronicle_i`` under the user's alias.  A name is refused only
when every possible source is known and lacks it.  A condition is attached to a stream only where
filtering by it cannot change the result; it passes derived tables and CTEs only where these merely
rename.

A query that runs apart from its statement, such as an operator's input, gets the CTEs that it uses.
Plan hints of a SELECT, such as ``/*+ strategy(replay) */``, serve experiments.

Aggregates that depend on row order get an explicit order by time, because the executor's threads do
not preserve row order.  ``first``, ``last``, ``any_value``, lists, joined strings, ``DISTINCT ON``,
and ``arg_max`` and ``mode`` (among equals), without explicit order are ordered by the time of the
first source that has one, also through derived tables and CTEs.  DISTINCT inside an aggregate
orders by value.  Calls over ``COLUMNS(...)`` are not changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from sqlglot import exp
from sqlglot.errors import ParseError

from ...errors import StreamNotFound
from ...schema import StreamSchema
from ..contract.cancellation import checkpoint
from ..contract.catalog import SYSTEM_TABLES, Catalog
from ..contract.frames import Frame
from ..sql.dialect import error_at, error_on, to_text
from ..sql.sql_types import TimeUse
from ..sql.statement_clauses import MatchRelation, RecentRelation
from ..sql.trees import nodes_of
from .scope import (
    Binders,
    BoundOperator,
    ColumnUse,
    Condition,
    Names,
    OperatorSite,
    OutputColumn,
    Scope,
    Site,
    Source,
    StreamNames,
    in_order,
    leaves_of,
    outputs_of,
    own_nodes,
    renamed,
    resolve,
    source_of,
    spell_out,
    take_time,
    unwrapped,
    values_of,
)
from .views import OF_VIEW


@dataclass(frozen=True)
class Cte:
    outputs: list[OutputColumn] | None
    node: Any
    recursive: bool


Ctes = dict[str, Cte]


def bringing(query: Any, ctes: Ctes) -> Any:
    needed = _needed(query, ctes)
    if not needed:
        return query
    if query.args.get("with_") is not None:  # its own names take precedence
        query = exp.select("*").from_(query.subquery("input"))
    query.set(
        "with_",
        exp.With(
            expressions=[cte.node.copy() for cte in needed],
            recursive=any(cte.recursive for cte in needed),
        ),
    )
    return query


def hide(name: str, written: Any, ctes: Ctes) -> None:
    """Before a CTE's name is redefined, copy the old one into the queries that use it."""
    old = ctes[name]
    for node in [written, *(cte.node for other, cte in ctes.items() if other != name)]:
        if node is not None and old in _needed(node.this, ctes):
            node.set("this", bringing(node.this, ctes))


def _needed(query: Any, ctes: Ctes) -> list[Cte]:
    """CTEs used by a query, directly or indirectly, in textual order."""
    names: set[str] = set()
    waiting = [query]
    while waiting:
        for table in waiting.pop().find_all(exp.Table):
            name = table.name.lower()
            if name in ctes and name not in names:
                names.add(name)
                waiting.append(ctes[name].node)
    return [cte for name, cte in ctes.items() if name in names]


_ALL_HINT = re.compile(r"strategy\s*\(\s*all\s*\)", re.IGNORECASE)
_HINTS = {
    "strategy": ("auto", "replay", "index", "all"),
    "recent": ("auto", "eager", "live_first", "archive_first", "both"),
    "rollups": ("auto", "none", "always"),
}
_REMOVED_HINTS = {
    "strategy": ("greedy", "optimal", "none"),
    "selection": ("auto", "lists", "tree", "search"),
}
"""Values that had a meaning once; they are ignored, and a note says so."""


def take_hints(select: Any, text: str, notes: list[str]) -> dict[str, str]:
    """Remove and return a SELECT's hints; SqlError for unknown ones."""
    hint = select.args.get("hint")
    if hint is None:
        return {}
    select.set("hint", None)
    hints: dict[str, str] = {}
    for item in hint.expressions:
        call = isinstance(item, exp.Anonymous)  # unparsable hints are one text
        name = item.name.lower() if call else str(item).lower()
        value = item.expressions[0].name.lower() if call and item.expressions else ""
        if not value and _ALL_HINT.search(text):  # ALL is a keyword: parsed without argument
            value = "all"
        if name == "threads" or value in _REMOVED_HINTS.get(name, ()):
            notes.append(f"the plan hint {name}({value}) no longer exists and is ignored")
            continue
        if value not in _HINTS.get(name, ()):
            choices = [f"{h}(x) with x one of {', '.join(x)}" for h, x in _HINTS.items()]
            message = f"the plan hint is {' or '.join(choices)}"
            raise error_at(text, max(text.find("/*+"), 0), message)
        hints[name] = value
    return hints


_STRINGS = frozenset(("group_concat", "listagg", "string_agg"))
_EXTREMES = frozenset(
    ("arg_max", "arg_max_null", "arg_min", "arg_min_null", "argmax", "argmin", "max_by", "min_by")
)
_AGGREGATES = (
    _STRINGS | _EXTREMES | {"any_value", "arbitrary", "array_agg", "first", "last", "list", "mode"}
)
_ARGUMENTS_OF_WINDOWS = _AGGREGATES | {"first_value", "last_value", "nth_value"}
_ORDERS_OF_WINDOWS = frozenset(("lag", "lead", "row_number"))
_FIRST_LAST = re.compile(r"\b(first|last)\(")  # the executor quotes these


class OrderSensitive(NamedTuple):
    """A call, the window around it, or a SELECT, and what to order by: source alias, column,
    whether descending, whether nulls come first.
    """

    select: Any
    node: Any
    columns: tuple[tuple[str, str, bool, bool], ...]


def order_sensitive(select: Any, scope: Scope, sites: Sequence[Site]) -> list[OrderSensitive]:
    """The parts of a bound SELECT that depend on an unspecified row order."""
    parts = [*select.expressions, *(select.args.get(key) for key in ("having", "qualify", "order"))]
    selects = [
        node
        for part in parts
        if part is not None and not _of_many_columns(part)
        for node in own_nodes(part)
        if _is_sensitive(node)
    ]
    distinct = select.args.get("distinct")
    settled = select.args.get("order") or select.args.get("group")
    if distinct is not None and distinct.args.get("on") and not settled:
        selects.append(select)
    columns = _order_of(scope, sites) if selects else ()
    stated = any(each.sort for source in scope.sources for each in source.outputs)
    times = set() if stated else {name.lower() for _, name, *_ in columns}
    return [
        OrderSensitive(select, node, columns)
        for node in selects
        if columns and not _is_extreme_of(node, times)
    ]


def _is_extreme_of(node: Any, times: set[str]) -> bool:
    """Whether a call takes the row of the greatest or least time, which no order changes."""
    if node.name.lower() not in _EXTREMES or len(node.expressions) < 2:
        return False
    of = node.expressions[1]
    return isinstance(of, exp.Column) and of.name.lower() in times


def _of_many_columns(part: Any) -> bool:
    return any(call.name.lower() == "columns" for call in part.find_all(exp.Anonymous))


def _is_ordered(argument: Any) -> bool:
    while isinstance(argument, (exp.IgnoreNulls, exp.RespectNulls)):
        argument = argument.this
    return isinstance(argument, exp.Order)


def _is_sensitive(node: Any) -> bool:
    if not isinstance(node, exp.Anonymous):
        return False
    if any(map(_is_ordered, node.expressions)):
        return False
    name = node.name.lower()
    around = node.parent
    while isinstance(around, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls)):
        around = around.parent
    if isinstance(around, exp.Window):
        if around.args.get("order") or around.args.get("alias"):
            return False
        if name in _ORDERS_OF_WINDOWS:
            return True
        sensitive = _ARGUMENTS_OF_WINDOWS
    else:
        sensitive = _AGGREGATES
    return name in sensitive and bool(node.expressions)


def _order_of(scope: Scope, sites: Sequence[Site]) -> tuple[tuple[str, str, bool, bool], ...]:
    """The order of the first source that has one: that of its ORDER BY, then of its time."""
    for source in scope.sources:
        if source.relation or source.nullable:
            continue
        stated = sorted(
            (each.sort, each.name) for each in source.outputs if each.sort and each.name
        )
        alias = source.alias
        if not alias and [each.alias for each in scope.sources].count("") == 1:
            alias = "unnamed_subquery"  # the executor's name for it
        columns = [(alias, name, *sort[1:]) for sort, name in stated]
        columns += [(alias, name, False, False) for name in _times(source, sites)]
        if columns:
            return tuple(columns)
    return ()


def _times(source: Source, sites: Sequence[Site]) -> Sequence[str]:
    if source.site is not None and source.site.operator is not None:
        return source.site.operator.ordered_by
    for output in source.outputs:
        use = output.use
        if use is None or use.nullable or output.name is None:
            continue
        schema = sites[use.site].schema
        if schema is not None and use.attribute == schema.time:
            return (output.name,)
    return ()


def add_order(
    parts: Sequence[OrderSensitive], copies: dict[int, Any], root: Any, names: Callable[[], Any]
) -> None:
    """Add the order to a copy of a query; ``copies`` maps ids of nodes to the copies."""
    for part in parts:
        node, select = copies[id(part.node)], copies[id(part.select)]
        order = [
            exp.Ordered(
                this=exp.column(
                    exp.to_identifier(name, quoted=True),
                    exp.to_identifier(alias, quoted=True) if alias else None,
                ),
                desc=descending,
                nulls_first=nulls_first,
            )
            for alias, name, descending, nulls_first in part.columns
        ]
        if node is select:
            select.set("order", exp.Order(expressions=order))
            continue
        _keep_names(node, copies[id(root)], names)
        around = node.find_ancestor(exp.Window) if node.name.lower() in _ORDERS_OF_WINDOWS else None
        if around is not None:
            around.set("order", exp.Order(expressions=order))
            continue
        last = node.expressions[-1]
        distinct = next((a for a in node.expressions if isinstance(a, exp.Distinct)), None)
        if distinct is not None and not distinct.expressions:
            continue  # the executor says what is wrong with it
        if distinct is not None:
            order = [exp.Ordered(this=distinct.expressions[0].copy(), nulls_first=False)]
        wrapped = exp.Order(expressions=order)
        last.replace(wrapped)
        wrapped.set("this", last)


def _keep_names(node: Any, root: Any, names: Callable[[], Any]) -> None:
    while node is not root:
        select = node.parent
        projected = isinstance(select, exp.Select) and node.arg_key == "expressions"
        if projected and not isinstance(node, exp.Alias):
            try:
                name = _FIRST_LAST.sub(r'"\1"(', node.sql("duckdb", normalize_functions="lower"))
            except ParseError:  # a call without the arguments that it needs
                name = to_text(node)
            if select is root and len(names()) == len(select.expressions):
                name = names()[node.index]
            alias = exp.Alias(alias=exp.to_identifier(name, quoted=True))
            node.replace(alias)
            alias.set("this", node)
        node = select


@dataclass
class BoundQuery:
    """A bound query: the changed tree, its relations, and what its columns are."""

    root: Any
    sites: list[Site]
    outputs: list[OutputColumn] | None
    streams: dict[str, StreamSchema]
    frames: dict[str, Frame]
    names: Names
    unordered: list[OrderSensitive] = field(default_factory=list)
    times: list[TimeUse] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def conjuncts(node: Any) -> Iterator[Any]:
    """The operands of AND in a condition."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.And):
        yield from conjuncts(node.this)
        yield from conjuncts(node.expression)
    elif node is not None:
        yield node


def bind(root: Any, text: str, catalog: Catalog, operators: Binders) -> BoundQuery:
    """Bind a query that has passed the gate, in place; raises SqlError."""
    binder = _Binder(root, text, catalog, operators)
    outputs = binder.query(root, {}, None)
    parts = binder.streams, binder.frames, binder.names, binder.unordered, binder.times
    return BoundQuery(root, binder.sites, outputs, *parts, binder.notes)


class _Binder:
    def __init__(self, root: Any, text: str, catalog: Catalog, operators: Binders) -> None:
        self.text = text
        self.catalog = catalog
        self.operators = operators
        self.names = Names()
        self.sites: list[Site] = []
        self.streams: dict[str, StreamSchema] = {}
        self.frames: dict[str, Frame] = {}
        self.unordered: list[OrderSensitive] = []
        self.times: list[TimeUse] = []
        self.notes: list[str] = []
        self._names = StreamNames(catalog.streams())
        self._scopes = 0
        self._prefix = "chronicle_"
        self._references: dict[str, int] = {}
        ctes = ""  # including those of views
        for node in nodes_of(root):
            if isinstance(node, exp.Table):
                name = node.name.lower()
                self._references[name] = self._references.get(name, 0) + 1
            elif isinstance(node, exp.CTE):
                ctes += f" {node.alias.lower()}"
        while self._prefix in text.lower() or self._prefix in ctes:  # avoid capture
            self._prefix += "_"

    # ----------------------------------------------------------------------- queries

    def query(self, node: Any, ctes: Ctes, outer: Scope | None) -> list[OutputColumn] | None:
        """Bind a query; its columns, or None if unknown."""
        ctes = self._with(node, ctes, outer)
        if isinstance(node, exp.Select):
            return self._select(node, ctes, outer)
        if isinstance(node, exp.SetOperation):
            left = self.query(node.this, ctes, outer)
            right = self.query(node.expression, ctes, outer)
            self._modifiers(node, ctes, outer)
            if left is None or right is None or node.args.get("by_name"):
                return None
            if len(left) != len(right):
                return None
            outputs = [
                OutputColumn(one.name, one.type if one.type == other.type else None)
                for one, other in zip(left, right, strict=True)
            ]
            return in_order(outputs, node, self.names)
        if isinstance(node, exp.Subquery):
            inner = self.query(node.this, ctes, outer)
            self._modifiers(node, ctes, outer)
            return in_order(inner, node, self.names)
        for child in node.iter_expressions():
            self._nested(child, ctes, outer)
        return None

    def _with(self, node: Any, ctes: Ctes, outer: Scope | None) -> Ctes:
        clause = node.args.get("with_")
        if clause is None:
            return ctes
        ctes = dict(ctes)
        for cte in clause.expressions:
            name, written = cte.alias.lower(), cte.copy()
            recursive = bool(clause.args.get("recursive"))
            if name in ctes:
                hide(name, None if recursive else written, ctes)
            if recursive:
                ctes.pop(name, None)
                ctes[name] = Cte(None, written, True)  # columns unknown while it is bound
            outputs = self.query(cte.this, ctes, outer)
            if recursive:
                outputs = None
            if outputs is not None and self._references.get(name, 0) > 1:
                outputs = [replace(column, use=None) for column in outputs]
            ctes.pop(name, None)  # keep textual order
            ctes[name] = Cte(renamed(outputs, cte.args.get("alias")), written, recursive)
        return ctes

    def _modifiers(self, node: Any, ctes: Ctes, outer: Scope | None) -> None:
        for key in ("order", "limit", "offset"):
            if node.args.get(key) is not None:
                self._nested(node.args[key], ctes, outer)

    def _nested(self, node: Any, ctes: Ctes, outer: Scope | None) -> None:
        if isinstance(node, exp.Query):
            self.query(node, ctes, outer)
            return
        for child in node.iter_expressions():
            self._nested(child, ctes, outer)

    # ------------------------------------------------------------------------ SELECT

    def _select(self, node: Any, ctes: Ctes, outer: Scope | None) -> list[OutputColumn] | None:
        self._scopes += 1
        hints = take_hints(node, self.text, self.notes)
        scope = Scope(self._scopes, outer, node, ctes, hints)
        self._from(node, scope)
        spell_out(node, scope, self.text)
        for projection in node.expressions:
            if projection.alias:
                scope.aliases.add(projection.alias.lower())
        for key, child in node.args.items():
            if key in ("with_", "from_", "joins", "laterals", "hint"):
                continue
            for part in child if isinstance(child, list) else [child]:
                if isinstance(part, exp.Expression):
                    self._expression(part, scope)
        for on in scope.ons:
            self._expression(on, scope)
        self._conditions(node, scope)
        if len(scope.sources) == 1 and scope.sources[0].site is not None:
            scope.sources[0].site.select = node
        self.unordered += order_sensitive(node, scope, self.sites)
        return in_order(outputs_of(node, scope, self.names), node, self.names)

    def _from(self, node: Any, scope: Scope) -> None:
        clause = node.args.get("from_")
        if clause is not None:
            self._item(clause.this, scope)
        self._joins(node.args.get("joins") or (), scope)
        for lateral in node.args.get("laterals") or ():
            self._item(lateral, scope)
        if node.args.get("sample") is not None:
            for source in scope.sources:
                source.pushable = False

    def _joins(self, joins: Any, scope: Scope) -> None:
        for join in joins:
            before = list(scope.sources)
            self._item(join.this, scope)
            if join.args.get("on") is not None:
                scope.ons.append(join.args["on"])
            added = scope.sources[len(before) :]
            side, method = str(join.side).upper(), str(join.method).upper()
            if method not in ("", "NATURAL"):  # ASOF, POSITIONAL: pairing depends on all rows
                for source in scope.sources:
                    source.pushable = False
            if side in ("LEFT", "FULL"):
                for source in added:
                    source.nullable = True
            if side in ("RIGHT", "FULL"):
                for source in before:
                    source.nullable = True

    def _item(self, item: Any, scope: Scope) -> None:
        inner = unwrapped(item, self.text)
        if isinstance(inner, RecentRelation) and inner is not item:
            item = item.replace(inner)
        if isinstance(item, MatchRelation):
            self._match(item, scope)
        elif isinstance(item, RecentRelation):
            self._recent(item, scope)
        elif isinstance(item, exp.Table):
            self._table(item, scope)
        elif isinstance(item, exp.Subquery):
            inside = item.this
            joined = bool(inside.args.get("joins")) and not isinstance(inside, exp.Select)
            if joined or isinstance(inside, exp.Table):  # parenthesised join
                self._item(item.this, scope)
            else:
                outputs = self.query(item.this, scope.ctes, scope)
                outputs = renamed(outputs, item.args.get("alias"))
                self._add(scope, item.alias, outputs, item)
        elif isinstance(item, exp.Lateral):
            if isinstance(item.this, exp.Query):
                outputs = renamed(self.query(item.this, scope.ctes, scope), item.args.get("alias"))
                self._add(scope, item.alias, outputs, item)
            else:
                self._expression(item.this, scope)
                self._add(scope, item.alias, None, item)
        else:
            for child in item.iter_expressions():
                if not isinstance(child, exp.TableAlias):
                    self._expression(child, scope)
            self._add(scope, item.alias, None, item)
        self._joins(item.args.get("joins") or (), scope)

    def _add(
        self, scope: Scope, alias: str, outputs: list[OutputColumn] | None, item: Any
    ) -> Source:
        opaque = outputs is None or any(output.name is None for output in outputs)
        source = Source(alias.lower(), outputs or [], opaque)
        source.pushable = item.args.get("sample") is None
        scope.sources.append(source)
        return source

    def _table(self, item: Any, scope: Scope) -> None:
        call = isinstance(item.this, exp.Anonymous)
        name = item.this.name if call else item.name
        if call or item.args.get("db") is not None:
            function = self.operators.get(name.lower() if call else exp.Table)
            if function is not None:
                self._operator(item, function(self._at(item, scope)), name, scope)
                return
            for argument in item.this.expressions:
                self._expression(argument, scope)
            self._add(scope, item.alias or name, None, item)
            return
        outside = not item.meta.get(OF_VIEW)
        cte = scope.ctes.get(name.lower()) if outside else None
        if cte is not None:
            outputs = renamed(cte.outputs, item.args.get("alias"))
            self._add(scope, item.alias or name, outputs, item)
            return
        frame = self.catalog.frames.get(name.lower()) if outside else None
        if frame is not None:
            self.frames[name.lower()] = frame
            self._operator(item, self.operators[Frame](self._at(item, scope)), name, scope)
            return
        stream, schema = self._stream(item)
        site = self._site(stream, schema)
        outputs = renamed(
            [
                OutputColumn(each.name, each.type, ColumnUse(site.index, each.name, False, 0))
                for each in schema.attributes
            ],
            item.args.get("alias"),
        )
        source = self._add(scope, item.alias or name, outputs, item)
        source.site = site
        self._rename_item(item, site, item.alias or name)

    def _site(
        self, name: str, schema: StreamSchema | None = None, operator: BoundOperator | None = None
    ) -> Site:
        site = Site(len(self.sites), name, f"{self._prefix}{len(self.sites)}", schema, operator)
        self.sites.append(site)
        return site

    def _rename_item(self, item: Any, site: Site, alias: str) -> None:
        columns = item.args["alias"].args.get("columns") if item.args.get("alias") else None
        item.set("this", exp.to_identifier(site.relation, quoted=True))
        named = exp.TableAlias(this=exp.to_identifier(alias, quoted=True), columns=columns)
        item.set("alias", named)

    def _stream(self, item: Any) -> tuple[str, StreamSchema]:
        name = self._names.find(item.name)
        if name is None and item.name.lower() in self.catalog.frames:
            what = f"{item.name!r} is a registered frame; append it to a stream to have this"
            raise error_on(self.text, item, what)
        if name is None:
            raise self._names.missing(item, self.text)
        try:
            schema = self.catalog.stream_schema(name)
        except StreamNotFound as error:  # dropped concurrently
            raise error_on(self.text, item, str(error)) from None
        self.streams[name] = schema
        return name, schema

    def _match(self, item: Any, scope: Scope) -> None:
        self._bring(item.this, scope.ctes, "input")
        bound = self.operators[type(item)](self._at(item, scope))
        table = exp.Table(this=exp.to_identifier("match"))
        clause_alias = item.args["match"].args.get("alias")
        if clause_alias is not None:
            table.set("alias", clause_alias.copy())
        item.replace(table)
        self._operator(table, bound, "match", scope)

    def _bring(self, source: Any, ctes: Ctes, alias: str) -> None:
        query = self._input_query(source, ctes)
        if query is None:
            self._stream(source)  # position of the error
            return
        apart = query.subquery(alias)
        apart.meta.update(source.meta)
        source.replace(apart)

    def _recent(self, item: Any, scope: Scope) -> None:
        """Bind a recency join: one relation, each side a source."""
        for side in leaves_of(item, self.text):
            match = isinstance(side, MatchRelation)
            source, alias = (side.this, "input") if match else (side, side.alias_or_name)
            self._bring(source, scope.ctes, alias)
        bound: Any = self.operators[type(item)](self._at(item, scope))
        table = exp.Table(this=exp.to_identifier("recent"))
        item.replace(table)
        self._operator(table, bound, "recent", scope)
        whole = scope.sources.pop()
        for named in bound.named_sides:
            source = source_of(named, table.alias)
            source.site = whole.site
            scope.sources.append(source)

    def _at(self, item: Any, scope: Scope) -> OperatorSite:

        def bound(query: Any) -> BoundQuery:
            inner = bind(query, self.text, self.catalog, self.operators)
            self.streams.update(inner.streams)
            self.frames.update(inner.frames)
            self.notes += inner.notes
            return inner

        functions = frozenset(name for name in self.operators if isinstance(name, str))
        return OperatorSite(
            item, scope.select, self.text, scope.hints, functions, self._names.all,
            self.catalog.frames, self._stream, bound, self.times,
        )  # fmt: skip

    def _input_query(self, source: Any, ctes: Ctes) -> Any:
        """The input of a match clause as a separate query with its CTEs; None for a stream."""
        is_table = isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier)
        here = is_table and source.args.get("db") is None
        if here and source.meta.get(OF_VIEW):
            return None
        if here and not any(source.name.lower() in names for names in (ctes, self.catalog.frames)):
            return None
        alias = source.args.get("alias")
        renamed = alias is not None and alias.args.get("columns")
        inner = source.this if isinstance(source, exp.Subquery) else None
        if isinstance(inner, exp.Query) and not inner.alias and not renamed:
            query = inner.copy()
        else:
            query = exp.select("*").from_(source.copy())
        return bringing(query, ctes)

    def _operator(self, item: Any, bound: BoundOperator, name: str, scope: Scope) -> None:
        site = self._site(name, operator=bound)
        for stream in bound.streams:
            self.streams[stream] = self.catalog.stream_schema(stream)
        outputs: list[OutputColumn] | None = [OutputColumn(f.name, f.type) for f in bound.schema]
        alias = item.alias or name
        outputs = renamed(outputs, item.args.get("alias"))
        source = self._add(scope, alias, outputs, item)
        source.site = site
        self._rename_item(item, site, alias)

    # -------------------------------------------------------------------- expressions

    def _expression(self, node: Any, scope: Scope) -> None:
        checkpoint()
        if isinstance(node, exp.Query):
            self.query(node, scope.ctes, scope)
            return
        if isinstance(node, exp.Column):
            if len(node.parts) == 3 and node.parts[0].name.lower() in SYSTEM_TABLES:
                node.set("db", None)  # chronicle.streams.events: sources have one-part names
            resolve(node, scope, self.text, self.names)
            return
        if isinstance(node, exp.Lambda):
            names = [argument.name.lower() for argument in node.expressions]
            scope.ignored.extend(names)
            self._expression(node.this, scope)
            del scope.ignored[len(scope.ignored) - len(names) :]
            return
        if isinstance(node, exp.Anonymous) and take_time(node, scope, self.text):
            return
        for child in values_of(node):
            self._expression(child, scope)

    # --------------------------------------------------------------------- conditions

    def _conditions(self, node: Any, scope: Scope) -> None:
        where = node.args.get("where")
        if where is not None:
            for part in conjuncts(where.this):
                self._attach(part, scope, where=True, only=None)
        for join in node.args.get("joins") or ():
            on = join.args.get("on")
            if on is None or str(join.method):
                continue
            side, kind = str(join.side).upper(), str(join.kind).upper()
            if not side and kind in ("", "INNER", "CROSS"):
                only = None
            elif side in ("", "LEFT") and kind in ("", "OUTER", "SEMI", "ANTI"):
                alias = join.this.alias_or_name.lower()
                only = {s.site.index for s in scope.sources if s.alias == alias and s.site}
            else:
                continue
            for part in conjuncts(on):
                self._attach(part, scope, where=False, only=only)

    def _attach(self, part: Any, scope: Scope, *, where: bool, only: set[int] | None) -> None:
        condition = Condition(part, scope.number, where)
        sites = {
            use.site
            for use in self.names.uses(part)
            if use.scope == scope.number and (only is None or use.site in only)
        }
        constant = not sites and not any(True for _ in part.find_all(exp.Column, exp.Query))
        if constant and where and only is None:
            sites = {
                source.site.index
                for source in scope.sources
                if source.site is not None and source.pushable
            }
        for site in sites:
            self.sites[site].conditions.append(condition)
