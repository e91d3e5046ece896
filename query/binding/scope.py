"""Name resolution: what a column of a query refers to.

Names ignore case; one is refused only when every possible source is known and lacks it.

The sides of a recency join are sources of one relation with columns ``alias.column``.  A column of
a query has a ``ColumnUse`` only where its values are an attribute's, row by row.

``OperatorSite`` and ``BoundOperator`` are between the binder and the operators in FROM (windows,
row patterns, ...).  A binding function (``query.operators``) may rewrite the surrounding SELECT,
for instance replace ``avg(x)`` by a column that the operator delivers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from sqlglot import exp

from ...core.suggestion import did_you_mean
from ...errors import SqlError
from ...schema import StreamSchema
from ..contract.frames import Frame
from ..sql.dialect import error_on
from ..sql.forms import AGGREGATES
from ..sql.sql_types import TimeUse, settle_times, type_in
from ..sql.statement_clauses import RecentRelation

if TYPE_CHECKING:
    from .binder import BoundQuery


class StreamNames:
    def __init__(self, names: Sequence[str]) -> None:
        self.all = list(names)
        self._folded = {name.lower(): name for name in names}

    def find(self, name: str) -> str | None:
        """The stream's name; None without one."""
        return name if name in self.all else self._folded.get(name.lower())

    def missing(self, node: Any, text: str, what: str = "stream") -> SqlError:
        """The error for an unknown name."""
        hint = did_you_mean(node.name, self.all, quoted=False)
        if not self.all:
            hint = f"; the store has no {what}s yet"
        error = error_on(text, node, f"no {what} {node.name!r}{hint}")
        error.unknown = node.name
        return error


class BoundOperator(Protocol):
    """An operator bound to its arguments, reusable for any number of executions."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of the relation."""

    @property
    def streams(self) -> Sequence[str]:
        """Streams read; a change of their schema requires binding again."""
        return ()

    @property
    def ordered_by(self) -> Sequence[str]:
        """Columns by which rows are sorted, most significant first."""
        return ()


@dataclass(frozen=True)
class OperatorSite:
    """An operator's FROM item, its SELECT, and plan hints.  ``stream`` resolves a node to a stream;
    ``bound`` binds a nested query in place.
    """

    item: Any
    select: Any
    text: str
    hints: Mapping[str, str]
    functions: frozenset[str]
    streams: Sequence[str]
    frames: Mapping[str, Frame]
    stream: Callable[[Any], tuple[str, StreamSchema]]
    bound: Callable[[Any], BoundQuery]
    times: list[TimeUse] = field(default_factory=list)

    def hint(self, name: str) -> str:
        return self.hints.get(name, "auto")

    def settle(self, node: Any, schema: pa.Schema) -> None:
        """Read texts that stand for times in a tree over columns; see :mod:`..sql.sql_types`."""
        self.times.extend(settle_times(node, type_in(schema), self.text))


Binders = Mapping[str | type, Callable[[OperatorSite], BoundOperator]]
"""Binding functions: table functions by name, clauses by node class."""


_TYPE_KEEPING = frozenset(
    (
        *("min", "max", "first", "last", "any_value", "arbitrary", "lag", "lead", "first_value"),
        *("last_value", "nth_value", "mode", "arg_min", "arg_max", "min_by", "max_by"),
    )
)  # result has the type of the first argument


@dataclass(frozen=True)
class ColumnUse:
    """An attribute of relation ``site``; ``nullable`` after an outer join."""

    site: int
    attribute: str
    nullable: bool
    scope: int


@dataclass(frozen=True)
class Condition:
    """A conjunct that rows must satisfy to have an effect; columns of other SELECTs than ``scope``
    do not belong to the stream.
    """

    node: Any
    scope: int
    where: bool


@dataclass
class Site:
    """A relation; ``select`` is its SELECT if it is the only source there; ``covered``: the
    conditions are all of WHERE.
    """

    index: int
    name: str
    relation: str
    schema: StreamSchema | None = None
    operator: BoundOperator | None = None
    conditions: list[Condition] = field(default_factory=list)
    select: Any = None
    covered: bool | None = None

    @property
    def columns(self) -> pa.Schema:
        if self.operator is not None:
            return self.operator.schema
        assert self.schema is not None
        return self.schema.arrow


@dataclass(frozen=True)
class OutputColumn:
    """``sort``: place in the query's ORDER BY, descending, nulls first."""

    name: str | None
    type: pa.DataType | None = None
    use: ColumnUse | None = None
    sort: tuple[int, bool, bool] | None = None


class Names:
    """What the columns of a bound query are, by node."""

    def __init__(self) -> None:
        # the entry keeps the node alive, so its id stays unique
        self._known: dict[int, tuple[Any, OutputColumn, ColumnUse | None]] = {}

    def note(self, node: Any, output: OutputColumn, use: ColumnUse | None) -> None:
        self._known[id(node)] = node, output, use

    def output(self, node: Any) -> OutputColumn | None:
        entry = self._known.get(id(node))
        return None if entry is None else entry[1]

    def use(self, node: Any) -> ColumnUse | None:
        entry = self._known.get(id(node))
        return None if entry is None else entry[2]

    def uses(self, node: Any) -> Iterator[ColumnUse]:
        for part in own_nodes(node):
            use = self.use(part)
            if use is not None:
                yield use

    def declared_type(self, node: Any) -> pa.DataType | None:
        """Declared type of an expression, if it is that of an attribute."""
        while isinstance(node, (exp.Paren, exp.Window, exp.Filter)):
            node = node.this
        if isinstance(node, exp.Column):
            output = self.output(node)
            return None if output is None else output.type
        name = node.name.lower() if isinstance(node, exp.Anonymous) and node.expressions else ""
        if name in _TYPE_KEEPING:
            if name in ("min", "max") and len(node.expressions) > 1:
                return None
            return self.declared_type(node.expressions[0])
        return None


@dataclass
class Source:
    """A FROM item's columns, not all known if ``opaque``; ``pushable``: conditions may precede
    joins.  For a side of a recency join, ``columns`` and ``times`` map names to columns of
    ``relation``.
    """

    alias: str
    outputs: list[OutputColumn]
    opaque: bool = False
    nullable: bool = False
    pushable: bool = True
    site: Site | None = None
    relation: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    times: Mapping[str, str] = field(default_factory=dict)

    def find(self, name: str) -> OutputColumn | None:
        folded = name.lower()
        for output in self.outputs:
            if output.name is not None and output.name.lower() == folded:
                return output
        return None


@dataclass
class Scope:
    """A SELECT with its sources, plan hints, and the CTEs that it sees."""

    number: int
    parent: Scope | None
    select: Any = None
    ctes: dict[str, Any] = field(default_factory=dict)
    hints: Mapping[str, str] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)
    aliases: set[str] = field(default_factory=set)
    ignored: list[str] = field(default_factory=list)
    ons: list[Any] = field(default_factory=list)

    def chain(self) -> Iterator[Scope]:
        """This scope and the outer ones, innermost first."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


def resolve(node: Any, scope: Scope, text: str, names: Names) -> None:
    """Record what a column is; SqlError if nothing can have that name."""
    parts = [part.name for part in node.parts]
    if isinstance(node.this, exp.Star):
        _check_alias(node, parts[0], scope, text)
        return
    opaque = False
    for level in scope.chain():
        opaque = opaque or any(source.opaque for source in level.sources)
        if _resolve(node, parts, level, text, names) or parts[0].lower() in level.ignored:
            return
    if opaque:
        return
    name = ".".join(parts)
    columns = _visible(scope)
    if len(parts) > 1 and parts[0].lower() in _aliases(scope):
        columns = [n for a, n in _qualified(scope) if a == parts[0].lower()]
        hint = did_you_mean(parts[1], columns, quoted=False, prefix=f"{parts[0]}.")
        raise error_on(text, node, f"{parts[0]} has no column {parts[1]!r}{hint}")
    if len(parts) > 1:
        _check_alias(node, parts[0], scope, text)
    hint = did_you_mean(parts[-1], columns, quoted=False)
    listed = f" (there are {', '.join(columns)})" if columns and not hint else ""
    raise error_on(text, node, f"no column {name!r}{hint}{listed}")


def _resolve(node: Any, parts: list[str], level: Scope, text: str, names: Names) -> bool:
    first = parts[0].lower()
    if len(parts) > 1:
        for source in level.sources:
            if source.alias == first:
                column = source.find(parts[1])
                if column is not None and len(parts) == 2:
                    _note(names, node, source, column, level)
                return column is not None or source.opaque
    matches = [(s, o) for s in level.sources if (o := s.find(parts[0])) is not None]
    if matches:
        if len(matches) > 1 and parts[0].lower() not in level.aliases and _sides(matches):
            either = " or ".join(f"{source.alias}.{parts[0]}" for source, _ in matches)
            raise error_on(text, node, f"{parts[0]} can be {either}: say which")
        if len(matches) == 1 and len(parts) == 1:
            _note(names, node, *matches[0], level)
        return True
    if first in level.aliases:
        return True
    return any(source.alias == first for source in level.sources) and len(parts) == 1


def _sides(matches: list[tuple[Source, OutputColumn]]) -> bool:
    return any(source.relation for source, _ in matches)


def _note(names: Names, node: Any, source: Source, output: OutputColumn, level: Scope) -> None:
    use = output.use if source.pushable else None
    if use is not None:
        nullable = source.nullable or use.nullable
        use = ColumnUse(use.site, use.attribute, nullable, level.number)
    names.note(node, output, use)
    if source.columns:
        _move(node, source.columns[str(output.name).lower()], source.relation)


def _move(node: Any, column: str, relation: str) -> None:
    meta = node.this.meta
    node.set("this", exp.to_identifier(column, quoted=True))
    node.set("table", exp.to_identifier(relation, quoted=True))
    node.this.meta.update(meta)


def take_time(node: Any, scope: Scope, text: str) -> bool:
    """Replace ``match_start(side)`` or ``match_end(side)`` by a column, if the call is one."""
    function = node.name.lower()
    if function not in ("match_start", "match_end"):
        return False
    named = node.expressions[0] if len(node.expressions) == 1 else None
    if not isinstance(named, exp.Column) or named.table:
        message = f"{function} takes the name of a side of a recency join: {function}(a)"
        raise error_on(text, node, message)
    sides = [s for level in scope.chain() for s in level.sources if s.times]
    for source in sides:
        if source.alias == named.name.lower():
            column = exp.Column(this=exp.to_identifier(""))
            column.this.meta.update(named.this.meta)
            _move(column, source.times[function], source.relation)
            node.replace(column)
            return True
    hint = did_you_mean(named.name, [source.alias for source in sides], quoted=False)
    message = f"{named.name!r} is no side of a recency join{hint}"
    raise error_on(text, named, message)


def _check_alias(node: Any, name: str, scope: Scope, text: str) -> None:
    aliases = _aliases(scope)
    opaque = any(source.opaque for level in scope.chain() for source in level.sources)
    if name == "*" or name.lower() in aliases or opaque:
        return
    hint = did_you_mean(name, aliases, quoted=False)
    raise error_on(text, node, f"nothing in FROM is called {name!r}{hint}")


def _aliases(scope: Scope) -> set[str]:
    return {source.alias for level in scope.chain() for source in level.sources}


def _qualified(scope: Scope) -> list[tuple[str, str]]:
    return [
        (source.alias, output.name)
        for level in scope.chain()
        for source in level.sources
        for output in source.outputs
        if output.name is not None
    ]


def _visible(scope: Scope) -> list[str]:
    return list(dict.fromkeys(name for _, name in _qualified(scope)))


def own_nodes(node: Any) -> Iterator[Any]:
    """A node and its descendants, without nested queries."""
    yield node
    for child in node.iter_expressions():
        if not isinstance(child, exp.Query):
            yield from own_nodes(child)


def values_of(node: Any) -> Iterator[Any]:
    """Parts of an expression that are values, not names of collations, fields or arguments."""
    if isinstance(node, exp.Collate):
        yield node.this
    elif isinstance(node, (exp.PropertyEQ, exp.Kwarg)):
        around = node.parent.parent if isinstance(node.parent, exp.Struct) else None
        while isinstance(around, exp.Bracket):
            around = around.parent
        if isinstance(around, exp.ToMap):
            yield node.this  # the key of a map
        yield node.expression
    else:
        yield from node.iter_expressions()


_TIMES = ("match_start", "match_end")


@dataclass(frozen=True)
class NamedSide:
    """A side under its name: ``columns`` are name, column of the relation and type."""

    alias: str
    columns: tuple[tuple[str, str, pa.DataType], ...]
    start: str
    end: str


def unwrapped(side: Any, text: str) -> Any:
    """The item without parentheses around a recency join."""
    if not isinstance(side, exp.Subquery) or not isinstance(side.this, RecentRelation):
        return side
    if side.alias:
        message = "a recency join has no name of its own: its sides keep theirs"
        raise error_on(text, side.args["alias"], message)
    return side.this


def leaves_of(item: Any, text: str) -> Iterator[Any]:
    for side in (unwrapped(item.this, text), unwrapped(item.expression, text)):
        if isinstance(side, RecentRelation):
            yield from leaves_of(side, text)
        else:
            yield side


def source_of(named: NamedSide, relation: str) -> Source:
    source = Source(
        named.alias.lower(), [OutputColumn(name, type_) for name, _, type_ in named.columns]
    )
    source.pushable = False
    source.relation = relation
    source.columns = {name.lower(): column for name, column, _ in named.columns}
    source.times = dict(zip(_TIMES, (named.start, named.end), strict=True))
    return source


def spell_out(select: Any, scope: Scope, text: str) -> None:
    """Expand a SELECT's projections before they are resolved."""
    if not any(source.relation for source in scope.sources):
        return
    shown: list[Any] = []
    for projection in select.expressions:
        star = projection.this if isinstance(projection, exp.Column) else projection
        if isinstance(star, exp.Star):
            shown += _columns(projection, star, scope, text)
        elif isinstance(projection, exp.Column):
            name = _declared(projection, scope)
            shown.append(projection if name is None else _named(projection, name))
        elif not isinstance(projection, exp.Alias) and _speaks_of_a_side(projection):
            name = projection.sql("duckdb", normalize_functions="lower").lower()
            shown.append(_named(projection, name))
        else:
            shown.append(projection)
    select.set("expressions", shown)


def _named(projection: Any, name: str) -> Any:
    return exp.Alias(this=projection, alias=exp.to_identifier(name, quoted=True))


def _speaks_of_a_side(projection: Any) -> bool:
    return any(isinstance(node, exp.Column) for node in own_nodes(projection))


def _declared(column: Any, scope: Scope) -> str | None:
    declared = [
        output.name
        for source in scope.sources
        if source.relation and column.table.lower() in ("", source.alias)
        if (output := source.find(column.name)) is not None
    ]
    return declared[0] if len(declared) == 1 else None


def _columns(projection: Any, star: Any, scope: Scope, text: str) -> list[Any]:
    alias = projection.table.lower() if isinstance(projection, exp.Column) else None
    left_out = {node.name.lower() for node in star.args.get("except_") or ()}
    replaced = {node.alias.lower(): node for node in star.args.get("replace") or ()}
    renamed = {node.this.name.lower(): node.alias for node in star.args.get("rename") or ()}
    columns: list[Any] = []
    names: set[str] = set()
    for source in scope.sources:
        if alias is not None and source.alias != alias:
            continue
        if not source.relation:
            if star.args.get("except_") or replaced or renamed or not source.alias:
                message = (
                    "beside a recency join, * with EXCLUDE, REPLACE or RENAME needs a name: a.*"
                )
                raise error_on(text, projection, message)
            columns.append(exp.column(exp.Star(), table=source.alias, quoted=True))
            continue
        for output in source.outputs:
            name = str(output.name)
            names.add(name.lower())
            if name.lower() in left_out:
                continue
            if name.lower() in replaced:
                columns.append(replaced[name.lower()])
                continue
            column = exp.column(name, table=source.alias, quoted=True)
            column.meta.update(projection.meta)
            columns.append(_named(column, renamed.get(name.lower(), name)))
    if alias is not None and not columns and not names:
        return [projection]  # not a side: left to the binder
    for name in (left_out | replaced.keys() | renamed.keys()) - names:
        raise error_on(text, projection, f"no column {name!r} that * stands for")
    return columns


def renamed(outputs: list[OutputColumn] | None, alias: Any) -> list[OutputColumn] | None:
    columns = alias.args.get("columns") if alias is not None else None
    if outputs is None or not columns:
        return outputs
    names = [column.name for column in columns]
    return [
        replace(output, name=names[i] if i < len(names) else output.name)
        for i, output in enumerate(outputs)
    ]


def in_order(
    outputs: list[OutputColumn] | None, query: Any, names: Names
) -> list[OutputColumn] | None:
    """The columns with the order that a query states over them."""
    order = query.args.get("order")
    if outputs is None or order is None:
        return outputs
    sorts: dict[int, tuple[int, bool, bool]] = {}
    for place, item in enumerate(order.expressions):
        found = _output_of(item.this, outputs, names)
        if found is None or outputs[found].name is None:
            break
        sort = (place, bool(item.args.get("desc")), bool(item.args.get("nulls_first")))
        sorts.setdefault(found, sort)
    return [replace(output, sort=sorts.get(i)) for i, output in enumerate(outputs)]


def _output_of(key: Any, outputs: list[OutputColumn], names: Names) -> int | None:
    if isinstance(key, exp.Literal) and key.name.isdigit() and not key.is_string:
        place = int(key.name) - 1
        return place if 0 <= place < len(outputs) else None
    if not isinstance(key, exp.Column):
        return None
    name, use = key.name.lower(), names.use(key)
    for i, output in enumerate(outputs):
        if (not key.table and name == (output.name or "").lower()) or (
            use is not None and use == output.use
        ):
            return i
    return None


def is_plain(select: Any) -> bool:
    """Whether each input row gives at most one output row."""
    for key in ("group", "having", "limit", "offset", "distinct", "qualify", "sample", "windows"):
        if select.args.get(key):
            return False
    return not any(
        isinstance(node, exp.Window)
        or (isinstance(node, exp.Anonymous) and node.name.lower() in (*AGGREGATES, "unnest"))
        for projection in select.expressions
        for node in own_nodes(projection)
    )


def outputs_of(node: Any, scope: Scope, names: Names) -> list[OutputColumn] | None:
    """The columns of a resolved SELECT; None if unknown."""
    transparent = is_plain(node)
    merged = any(
        join.args.get("using")
        or str(join.method).upper() == "NATURAL"
        or str(join.kind).upper() in ("SEMI", "ANTI")
        for join in node.args.get("joins") or ()
    )
    outputs: list[OutputColumn] = []
    for projection in node.expressions:
        column = projection.this if isinstance(projection, exp.Alias) else projection
        star = column.this if isinstance(column, exp.Column) else column
        if isinstance(star, exp.Star):
            alias = column.table.lower() if isinstance(column, exp.Column) else None
            expanded = None if merged else _star(star, alias, scope)
            if expanded is None:
                return None
            outputs.extend(expanded)
            continue
        name = projection.alias or (column.name if isinstance(column, exp.Column) else None)
        column_name = names.output(column)
        if isinstance(column, exp.Column) and not projection.alias and column_name is not None:
            name = column_name.name
        outputs.append(OutputColumn(name, names.declared_type(column), names.use(column)))
    if not transparent:
        return [OutputColumn(output.name, output.type) for output in outputs]
    return outputs


def _star(star: Any, alias: str | None, scope: Scope) -> list[OutputColumn] | None:
    if any(star.args.get(key) for key in ("rename",)):
        return None
    dropped = {node.name.lower() for node in star.args.get("except_") or ()}
    replaced = {node.alias.lower() for node in star.args.get("replace") or ()}
    outputs = []
    for source in scope.sources:
        if alias is not None and source.alias != alias:
            continue
        if source.opaque:
            return None
        for output in source.outputs:
            name = (output.name or "").lower()
            if name in dropped:
                continue
            if name in replaced:
                outputs.append(OutputColumn(output.name))
                continue
            use = output.use
            if use is not None:
                nullable = use.nullable or source.nullable
                use = (
                    ColumnUse(use.site, use.attribute, nullable, scope.number)
                    if source.pushable
                    else None
                )
            outputs.append(OutputColumn(output.name, output.type, use))
    return outputs
