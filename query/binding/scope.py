"""Names in scope: what a column of a query refers to.

Purpose
    Each SELECT opens a :class:`Scope` over its sources; :func:`resolve` finds the source of a
    column, refuses names that nothing can have, and notes in :class:`Names` what the column is:
    which output of its source, and which attribute of a stream.

Guarantee
    A name is refused only when every source that could have it is known and lacks it.  Names are
    compared without regard to case, as in DuckDB.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ...core.suggestion import did_you_mean
from ...schema import StreamSchema
from ..sql.dialect import error_at, position_of
from .from_operator import BoundOperator

__all__ = [
    "ColumnUse",
    "Condition",
    "Names",
    "OutputColumn",
    "Scope",
    "Site",
    "Source",
    "own_nodes",
    "resolve",
    "take_time",
    "values_of",
]

_TYPE_KEEPING = frozenset(
    (
        *("min", "max", "first", "last", "any_value", "arbitrary", "lag", "lead", "first_value"),
        *("last_value", "nth_value", "mode", "arg_min", "arg_max", "min_by", "max_by"),
    )
)  # functions whose result has the type of their first argument


@dataclass(frozen=True)
class ColumnUse:
    """A column that is an attribute of a stream.

    Attributes
    ----------
    site : int
        Number of the relation.
    nullable : bool
        An outer join may put NULL in its place.
    scope : int
        The SELECT whose own sources it comes from.
    """

    site: int
    attribute: str
    nullable: bool
    scope: int


@dataclass(frozen=True)
class Condition:
    """A conjunct that every row of a stream must satisfy to have any effect.

    Attributes
    ----------
    node : sqlglot tree
    scope : int
        Only columns of this SELECT's own sources belong to the stream.
    where : bool
        From WHERE (else from ON).
    """

    node: Any
    scope: int
    where: bool


@dataclass
class Site:
    """One relation of a query.

    Attributes
    ----------
    name : str
        Stream or operator, as written.
    relation : str
        What the executor calls it; no name of the statement is like it.
    schema : StreamSchema or None
        None for operators.
    select : sqlglot tree
        The SELECT it stands in, when it is the only source there.
    covered : bool or None
        Whether the conditions are all that its SELECT says in WHERE; None until that was asked.
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
        """What the relation gives."""
        if self.operator is not None:
            return self.operator.schema
        assert self.schema is not None
        return self.schema.arrow


@dataclass(frozen=True)
class OutputColumn:
    """A column of a source or of a query; ``use`` where it is an attribute of a stream."""

    name: str | None
    type: pa.DataType | None = None
    use: ColumnUse | None = None


class Names:
    """What the columns of one bound query are, by the nodes of its tree."""

    def __init__(self) -> None:
        # a node is kept beside what it is: so its identity is not given to another one
        self._known: dict[int, tuple[Any, OutputColumn, ColumnUse | None]] = {}

    def note(self, node: Any, output: OutputColumn, use: ColumnUse | None) -> None:
        """Remember what a column is."""
        self._known[id(node)] = node, output, use

    def output(self, node: Any) -> OutputColumn | None:
        """The column of its source that a node names; None when that is not known."""
        found = self._known.get(id(node))
        return None if found is None else found[1]

    def use(self, node: Any) -> ColumnUse | None:
        """The attribute of a stream that a node names; None for anything else."""
        found = self._known.get(id(node))
        return None if found is None else found[2]

    def uses(self, node: Any) -> Iterator[ColumnUse]:
        """The attributes of streams that an expression names, nested queries left out."""
        for part in own_nodes(node):
            use = self.use(part)
            if use is not None:
                yield use

    def declared_type(self, node: Any) -> pa.DataType | None:
        """Declared type of an expression where it is that of an attribute."""
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
    """What a FROM item gives: named columns, perhaps not all known (``opaque``).

    ``nullable``: an outer join may leave it out.  ``pushable``: a condition on it may be applied
    before it is joined.

    A side of a recency join is part of a ``relation``: ``columns`` says what its columns are called
    there, by their names in lower case, and ``times`` which are its start and end.
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
        """The column of a name."""
        folded = name.lower()
        for output in self.outputs:
            if output.name is not None and output.name.lower() == folded:
                return output
        return None


@dataclass
class Scope:
    """The sources and names that one SELECT sees, and the SELECT around it.

    ``ons`` has the conditions of its joins, those in parentheses among them.
    """

    number: int
    parent: Scope | None
    sources: list[Source] = field(default_factory=list)
    aliases: set[str] = field(default_factory=set)
    ignored: list[str] = field(default_factory=list)
    ons: list[Any] = field(default_factory=list)

    def chain(self) -> Iterator[Scope]:
        """This scope and those around it, innermost first."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


def resolve(node: Any, scope: Scope, text: str, names: Names) -> None:
    """Note what a column is; raises :class:`SqlError` when nothing can have that name."""
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
    known = _visible(scope)
    if len(parts) > 1 and parts[0].lower() in _aliases(scope):
        known = [n for a, n in _qualified(scope) if a == parts[0].lower()]
        hint = did_you_mean(parts[1], known, quoted=False, prefix=f"{parts[0]}.")
        raise error_at(text, position_of(node), f"{parts[0]} has no column {parts[1]!r}{hint}")
    if len(parts) > 1:
        _check_alias(node, parts[0], scope, text)
    hint = did_you_mean(parts[-1], known, quoted=False)
    listed = f" (there are {', '.join(known)})" if known and not hint else ""
    raise error_at(text, position_of(node), f"no column {name!r}{hint}{listed}")


def _resolve(node: Any, parts: list[str], level: Scope, text: str, names: Names) -> bool:
    first = parts[0].lower()
    if len(parts) > 1:
        for source in level.sources:
            if source.alias == first:
                found = source.find(parts[1])
                if found is not None and len(parts) == 2:
                    _note(names, node, source, found, level)
                return found is not None or source.opaque
    matches = [(s, o) for s in level.sources if (o := s.find(parts[0])) is not None]
    if matches:
        if len(matches) > 1 and parts[0].lower() not in level.aliases and _sides(matches):
            either = " or ".join(f"{source.alias}.{parts[0]}" for source, _ in matches)
            raise error_at(text, position_of(node), f"{parts[0]} can be {either}: say which")
        if len(matches) == 1 and len(parts) == 1:
            _note(names, node, *matches[0], level)
        return True
    if first in level.aliases:
        return True
    return any(source.alias == first for source in level.sources) and len(parts) == 1


def _sides(matches: list[tuple[Source, OutputColumn]]) -> bool:
    """Whether one of the sources is a side of a recency join: the executor does not know it."""
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
    """Let a column name another one, where it stood."""
    found = node.this.meta
    node.set("this", exp.to_identifier(column, quoted=True))
    node.set("table", exp.to_identifier(relation, quoted=True))
    node.this.meta.update(found)


def take_time(node: Any, scope: Scope, text: str) -> bool:
    """Put a column in the place of ``match_start(side)`` or ``match_end(side)``.

    Returns
    -------
    bool
        Whether the call is one of these.
    """
    function = node.name.lower()
    if function not in ("match_start", "match_end"):
        return False
    named = node.expressions[0] if len(node.expressions) == 1 else None
    if not isinstance(named, exp.Column) or named.table:
        message = f"{function} takes the name of a side of a recency join: {function}(a)"
        raise error_at(text, position_of(node), message)
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
    raise error_at(text, position_of(named), message)


def _check_alias(node: Any, name: str, scope: Scope, text: str) -> None:
    aliases = _aliases(scope)
    opaque = any(source.opaque for level in scope.chain() for source in level.sources)
    if name == "*" or name.lower() in aliases or opaque:
        return
    hint = did_you_mean(name, aliases, quoted=False)
    raise error_at(text, position_of(node), f"nothing in FROM is called {name!r}{hint}")


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
    """A node and all below it, nested queries left out."""
    yield node
    for child in node.iter_expressions():
        if not isinstance(child, exp.Query):
            yield from own_nodes(child)


def values_of(node: Any) -> Iterator[Any]:
    """The parts of an expression that are values: collations, fields and names of arguments not."""
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
