"""Binds expressions: a scalar part for DuckDB or the stack machine, over *leaves* ``@i``.

``Navigation(row, variables, first, offset, final, shift)``: among the rows of the match labelled
with one of ``variables`` (None: any), take the first or last, move ``offset`` of them, then
``shift`` rows in the partition, and evaluate ``row`` there.  The rules are those of ISO/IEC 9075-2:
one variable per argument, no nesting except PREV and NEXT around FIRST and LAST, no FINAL in
DEFINE, literal offsets.

Members of structs and JSON are resolved in conditions and measures::

    A.at.b          struct_extract(A.at, 'b')            at is a struct
    A.at.b.c        struct_extract(struct_extract(A.at, 'b'), 'c')
    A.body.b.c      json_extract(A.body, '$."b"."c"')    body is JSON

A name that is a variable is a variable.  Struct members resolve exactly, else ignoring case; JSON
members exactly, and a missing one is NULL.  Other names are left for the binder to refuse.  Leaves
are equal when they read the same value.

Aggregates over CLASSIFIER() and MATCH_NUMBER() in DEFINE are rewritten for the matcher.
CLASSIFIER() is constant per variable: ``max(f(CLASSIFIER()))`` is the greatest of ``max(f('A'))``
over the rows of A and ``max(f('B'))`` over those of B.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from sqlglot import exp

from ...core.caches import lazy
from ...core.json_text import is_json
from ...core.suggestion import did_you_mean
from ...errors import AttributeNotFound, SqlError
from ..contract.cancellation import checkpoint
from ..sql.dialect import to_text
from ..sql.forms import AGGREGATES
from ..sql.pattern_tree import position_error
from ..sql.rendering import identifier as quote
from ..sql.sql_types import sql_type
from ..sql.trees import MANY_VALUES, several
from .scalar import check_functions, function_name

if TYPE_CHECKING:
    pass

Refuse = Callable[[str, Any], SqlError]


def with_members(
    node: Any,
    schema: Any,
    variables: Collection[str],
    refuse: Refuse,
    others: Collection[str] = (),
) -> Any:
    """Rewrite members to function calls; changes ``node``.  ``variables``: qualifiers of columns of
    ``schema``; ``others``: of other columns.  ``refuse`` makes the error for a node.
    """
    if not any(isinstance(part, exp.Dot) or _qualified(part) for part in node.walk()):
        return node

    def visit(part: Any) -> Any:
        names = _path(part)
        if names is None or len(names) < 2 or _folded(names[0]) in others:
            return part
        variable = names[0] if _folded(names[0]) in variables else None
        if variable is not None and len(names) == 2:
            return part
        column, *members = names if variable is None else names[1:]
        try:
            place = schema.resolve(column.name)
        except AttributeNotFound as error:
            if variable is None:
                return part
            raise refuse(str(error), part) from None
        if variable is None and not _has_members(schema.arrow.field(place).type):
            return part
        base = exp.Column(this=column.copy(), table=None if variable is None else variable.copy())
        base.meta.update(part.meta)
        return _taken(base, schema.arrow.field(place).type, members, part, refuse)

    return node.transform(visit)


def _taken(base: Any, type_: pa.DataType, members: list[Any], node: Any, refuse: Refuse) -> Any:
    shown = base.name
    for place, member in enumerate(members):
        if is_json(type_):
            path = _json_path([each.name for each in members[place:]])
            return _call("json_extract", base, path)
        if not pa.types.is_struct(type_):
            what = "take an element first, x[1]" if pa.types.is_list(type_) else "it is no struct"
            raise refuse(f"{shown} is {sql_type(type_)}, which has no member {member.name!r}: "
                         f"{what}", node)  # fmt: skip
        names = [field.name for field in type_]
        folded = [name for name in names if name.lower() == member.name.lower()]
        if member.name not in names and len(folded) != 1:
            hint = did_you_mean(member.name, names)
            raise refuse(f"{shown} has no member {member.name!r}{hint} (it has "
                         f"{', '.join(names)})", node)  # fmt: skip
        name = member.name if member.name in names else folded[0]
        base, type_ = _call("struct_extract", base, name), type_.field(name).type
        shown = f"{shown}.{name}"
    return base


def _call(function: str, base: Any, text: str) -> Any:
    made = exp.Anonymous(this=function, expressions=[base, exp.Literal.string(text)])
    made.meta.update(base.meta)
    return made


def _json_path(names: list[str]) -> str:
    if any('"' in name or "\\" in name for name in names):  # a JSON path cannot quote these
        return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in names)
    return "$" + "".join(f'."{name}"' for name in names)


def _has_members(type_: pa.DataType) -> bool:
    return bool(is_json(type_) or pa.types.is_struct(type_))


def _qualified(node: Any) -> bool:
    return isinstance(node, exp.Column) and node.args.get("table") is not None


def _folded(identifier: Any) -> str:
    return str(identifier.name if identifier.args.get("quoted") else identifier.name.upper())


def _path(node: Any) -> list[Any] | None:
    """The names of ``a.b.c``; None if the node is anything else."""
    if isinstance(node, exp.Column):
        return node.parts if all(isinstance(p, exp.Identifier) for p in node.parts) else None
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        before = _path(node.this.unnest())
        return None if before is None else [*before, node.expression]
    return None


CLASSIFIER = "@classifier"
NUMBER = "@match_number"
PSEUDO = frozenset({CLASSIFIER, NUMBER})


@dataclass(frozen=True)
class RowExpression:
    """Quoted SQL over the columns of one row; ``column``: its name, if it is just a column."""

    sql: str
    columns: tuple[str, ...]
    column: str | None = None


@dataclass(frozen=True)
class Navigation:
    """The value of an expression in a row found from the match; see ``binding``."""

    row: RowExpression
    variables: frozenset[str] | None
    first: bool = False
    offset: int = 0
    final: bool = False
    shift: int = 0


@dataclass(frozen=True)
class MatchAggregate:
    """An aggregate over the rows labelled with one of ``variables``.
    ``head``: ``sql`` without FILTER.  ``argument``: of a basic call.  ``plain``: no DISTINCT,
    FILTER, ORDER BY or second argument; ``basic``: the same but allows DISTINCT or FILTER.
    """

    function: str
    sql: str
    argument: RowExpression | None
    columns: tuple[str, ...]
    variables: frozenset[str] | None
    final: bool
    plain: bool
    basic: bool = False
    distinct: bool = False
    condition: RowExpression | None = None
    head: str = ""


@dataclass(frozen=True)
class MatchNumber:
    """MATCH_NUMBER()."""


IDENTITIES = ("match_id", "match_time", "match_event")


@dataclass(frozen=True)
class Given:
    """A value that an operator knows of a match: function, names, and result type."""

    function: str
    names: tuple[str, ...]
    type: pa.DataType


Leaf = Navigation | MatchAggregate | MatchNumber | Given


def special(node: Any) -> str:
    """Name of a row pattern function (FIRST, LAST, PREV, NEXT, CLASSIFIER, ...), else empty."""
    if isinstance(node, exp.First):
        return "first"
    if isinstance(node, exp.Last):
        return "last"
    if isinstance(node, exp.Anonymous):
        name = str(node.this).lower()
        if name in (
            "prev", "next", "classifier", "match_number", "running", "final", "first", "last",
            *IDENTITIES,
        ):  # fmt: skip
            return name
    return ""


_DIVISIBLE = frozenset(
    ("count", "sum", "min", "max", "bool_and", "bool_or", "arbitrary", "any_value")
)


def spelled_out(binder: Binder, node: Any, leaf: MatchAggregate, leaves: list[Leaf]) -> Any:
    """The rewritten aggregate, or None for other forms."""
    function = leaf.function
    if leaf.argument is not None and leaf.argument.column == NUMBER and leaf.plain:
        rows = binder.place(
            MatchAggregate("count", "count(*)", None, (), leaf.variables, False, True, True), leaves
        )
        number = binder.place(MatchNumber(), leaves)
        if function == "count":
            return rows
        some = exp.GT(this=rows.copy(), expression=exp.Literal.number(0))
        value = exp.Mul(this=number, expression=rows) if function == "sum" else number
        supported = function in ("sum", "min", "max", "arbitrary", "any_value")
        return exp.Case(ifs=[exp.If(this=some, true=value)]) if supported else None
    if NUMBER in leaf.columns or (leaf.distinct and function not in ("min", "max")):
        return None
    if function in ("avg", "mean"):
        parts = [_for_each_variable(binder, node, leaf, name, leaves) for name in ("sum", "count")]
        if None in parts:
            return None
        count = exp.Anonymous(this="nullif", expressions=[parts[1], exp.Literal.number(0)])
        return exp.Paren(this=exp.Div(this=exp.Paren(this=parts[0]), expression=count))
    return _for_each_variable(binder, node, leaf, function, leaves)


def _for_each_variable(
    binder: Binder, node: Any, leaf: MatchAggregate, function: str, leaves: list[Leaf]
) -> Any:
    if not leaf.basic or function not in _DIVISIBLE:
        return None
    chosen = leaf.variables
    if chosen is None:
        chosen = frozenset(name for name, own in binder.variables.items() if own == {name})
    parts = []
    for variable in sorted(chosen):
        copy = node.copy()
        for part in list(copy.walk()):
            if special(part) == "classifier":
                part.replace(exp.Literal.string(variable))
        inner = copy.this if isinstance(copy, exp.Filter) else copy
        if isinstance(inner, exp.Anonymous):
            inner.set("this", function)
        one = binder.aggregate(copy, False)
        parts.append(binder.place(replace(one, variables=frozenset({variable})), leaves))
    return exp.Paren(this=_added(function, parts))


def _added(function: str, values: list[Any]) -> Any:

    def call(name: str, arguments: list[Any]) -> Any:
        return exp.Anonymous(this=name, expressions=[value.copy() for value in arguments])

    if len(values) == 1:
        return values[0]
    if function in ("min", "bool_and"):
        return call("least", values)
    if function in ("max", "bool_or"):
        return call("greatest", values)
    if function in ("arbitrary", "any_value"):
        return call("coalesce", values)
    none = exp.Is(this=call("coalesce", values), expression=exp.Null())
    total = call("coalesce", [values[0], exp.Literal.number(0)])
    for value in values[1:]:
        total = exp.Add(this=total, expression=call("coalesce", [value, exp.Literal.number(0)]))
    return exp.Case(ifs=[exp.If(this=exp.Not(this=exp.Paren(this=none)), true=total)])


_OUR_COLUMNS = re.compile(r"@(classifier|match|match_number|order|row|s\d+)", re.IGNORECASE)
"""Reserved columns of the tables in which expressions are evaluated."""
SHIFT_MAX = 1_000_000


@dataclass(frozen=True)
class Bound:
    """A bound expression: the scalar part over columns ``@0``, ``@1``, ... and their leaves."""

    scalar: exp.Expression
    leaves: tuple[Leaf, ...]
    at: int

    @property
    def sql(self) -> str:
        return to_text(self.scalar)

    @lazy
    def leaf(self) -> Leaf | None:
        """The leaf that it is, if it is nothing else."""
        index = leaf_index(self.scalar)
        return None if index is None else self.leaves[index]


def leaf_index(node: Any) -> int | None:
    if isinstance(node, exp.Column):
        name = node.name
        if name.startswith("@") and name[1:].isdigit():
            return int(name[1:])
    return None


def leaves_of(node: Any) -> list[int]:
    indices = (leaf_index(part) for part in node.walk())
    return [index for index in indices if index is not None]


def substitute(sql: str, texts: dict[int, str]) -> str:
    """Replace the leaves ``"@0"``, ``"@1"``, ... in SQL, but not inside string literals."""

    def replaced(token: re.Match[str]) -> str:
        place = token.group("leaf")
        return texts.get(int(place), token.group()) if place else token.group()

    return _QUOTED.sub(replaced, sql)


_QUOTED = re.compile(r"'[^']*+(?:''[^']*+)*+'" r'|"(?:@(?P<leaf>\d+)"(?!")|[^"]*+(?:""[^"]*+)*+")')


_COMPARISONS = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.EQ, exp.NEQ)


class Columns(Protocol):
    @property
    def arrow(self) -> pa.Schema:
        """All of them."""

    def resolve(self, name: str) -> str:
        """The column that a name denotes; raises AttributeNotFound."""


class Binder:
    """Binds the expressions of a clause; ``variables``: what each variable or subset stands for."""

    def __init__(self, schema: Columns, variables: dict[str, frozenset[str]], sql: str) -> None:
        self.schema = schema
        self.variables = variables
        self.sql = sql
        self.at = 0
        self.in_define = False
        self.clock: pa.DataType = pa.null()  # the type of time, where there is one
        self.mixed: dict[RowExpression, Any] = {}

    def bind(self, node: exp.Expression, at: int, *, define: bool) -> Bound:
        self.at = at
        self.in_define = define
        plain = self._simple(node, at)
        if plain is not None:
            return plain
        node = node.copy()  # without a parent: the gate inspects a call's parent
        more = several(node)
        if more is not None and not isinstance(more, exp.Column):
            raise self.fail(MANY_VALUES, more)
        for cast in node.find_all(exp.Cast) if define else ():
            if cast.to.is_type("enum"):
                raise self.fail("values of an ENUM are texts in conditions; compare texts", cast)
        node = with_members(node, self.schema, self.variables, self.fail)
        check_functions(_without_navigation(node), self.sql, at)
        leaves: list[Leaf] = []
        scalar = self._transform(node, leaves, final=False, marked=False)
        return Bound(scalar, tuple(leaves), at)

    def _simple(self, node: Any, at: int) -> Bound | None:
        """Fast path for ``A.x``, ``x < 5`` and ``A.x BETWEEN 1 AND 2``; same result as
        ``_transform`` of what has passed the gate.
        """
        bounds: tuple[str, ...] = ()
        if type(node) is exp.Column and node.args.get("table") is not None:
            column: Any = node
        elif type(node) is exp.Between and not node.args.get("symmetric"):
            column, bounds = node.this, ("low", "high")
        elif type(node) in _COMPARISONS:
            column, bounds = node.this, ("expression",)
        else:
            return None
        literals: dict[str, Any] = {}
        for key in bounds:
            literal = node.args[key]
            if type(literal) is not exp.Literal or literal.args.get("is_string"):
                return None
            literals[key] = exp.Literal(this=literal.args["this"], is_string=False)
            literals[key].meta.update(literal.meta)
        leaf = self._plain_column(column)
        if leaf is None:
            return None
        scalar: Any = exp.Column(this=exp.Identifier(this="@0", quoted=True))
        if bounds:
            scalar = type(node)(this=scalar, **literals)
            scalar.meta.update(node.meta)
        return Bound(scalar, (leaf,), at)

    def _plain_column(self, column: Any) -> Navigation | None:
        """The leaf of ``x`` or ``A.x``; None for anything else."""
        if type(column) is not exp.Column or type(column.this) is not exp.Identifier:
            return None
        variable = column.args.get("table")
        if column.args.get("db") or (variable is not None and type(variable) is not exp.Identifier):
            return None
        if variable is not None and _folded(variable) not in self.variables:
            return None  # a member, or an error
        name = self._column(column)
        variables = None if variable is None else self.variables[_folded(variable)]
        return Navigation(RowExpression(quote(name), (name,), name), variables)

    def fail(self, message: str, node: Any = None) -> SqlError:
        at = self.at
        if node is not None:
            starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
            at = min(starts, default=at)
        return position_error(message, self.sql, at)

    # -- expressions ----------------------------------------------------------------------------

    def place(self, leaf: Leaf, leaves: list[Leaf]) -> exp.Expression:
        if leaf in leaves:
            index = leaves.index(leaf)
        else:
            index = len(leaves)
            leaves.append(leaf)
        return exp.column(exp.to_identifier(f"@{index}", quoted=True))

    def _transform(
        self, node: Any, leaves: list[Leaf], final: bool, marked: bool
    ) -> exp.Expression:
        checkpoint()
        name = special(node)
        if name in ("running", "final"):
            inner = node.expressions[0]
            kind = special(inner)
            if kind not in ("first", "last") and not _is_aggregate(inner):
                raise self.fail(f"{name.upper()} stands before FIRST, LAST or an aggregate", node)
            if name == "final" and self.in_define:
                raise self.fail("FINAL cannot be used in DEFINE: the match is not known yet", node)
            return self._transform(inner, leaves, final=name == "final", marked=True)
        if name in ("first", "last", "prev", "next", "classifier"):
            navigation = self._navigation(node, final)
            if navigation.row in self.mixed:
                return self._spread(navigation, leaves)
            return self.place(navigation, leaves)
        if name == "match_number":
            if node.expressions:
                raise self.fail("MATCH_NUMBER() takes no argument", node)
            return self.place(MatchNumber(), leaves)
        if name in IDENTITIES:
            return self.place(self._identity(name, node), leaves)
        if _is_aggregate(node):
            leaf = self.aggregate(node, final)
            if self.in_define and not PSEUDO.isdisjoint(leaf.columns):
                replacement = spelled_out(self, node, leaf, leaves)
                if replacement is not None:
                    return replacement
            return self.place(leaf, leaves)
        if isinstance(node, exp.Column):
            row, variables = self._row(node, "a column")
            return self.place(Navigation(row, variables, final=final), leaves)
        for key, value in list(node.args.items()):
            if isinstance(value, exp.Expr):
                node.set(key, self._transform(value, leaves, False, False))
            elif isinstance(value, list):
                node.set(
                    key,
                    [
                        self._transform(item, leaves, False, False)
                        if isinstance(item, exp.Expr)
                        else item
                        for item in value
                    ],
                )
        return node

    def _identity(self, name: str, node: Any) -> Given:
        if node.expressions:
            raise self.fail(f"{name.upper()}() takes no argument", node)
        if self.in_define:
            raise self.fail(f"{name.upper()}() is known of a whole match: not in DEFINE", node)
        return Given(name, (), self.clock if name == "match_time" else pa.binary())

    def _spread(self, navigation: Navigation, leaves: list[Leaf]) -> exp.Expression:
        """``FIRST(f(x, CLASSIFIER()))`` as ``f(FIRST(x), FIRST(CLASSIFIER()))``, or NULL."""

        def at_place(name: str) -> exp.Expression:
            column = RowExpression(quote(name), (name,), name)
            return self.place(replace(navigation, row=column), leaves)

        def visit(part: Any) -> Any:
            return at_place(part.name) if isinstance(part, exp.Column) else part

        value = self.mixed[navigation.row].copy().transform(visit)
        there = self.place(replace(navigation, row=RowExpression("true", ())), leaves)
        return exp.Case(ifs=[exp.If(this=there, true=value)])

    def _offset(self, node: Any, of: str) -> int:
        if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
            value = int(node.name)
            if value <= SHIFT_MAX:
                return value
            raise self.fail(f"the offset of {of} may go to {SHIFT_MAX}, found {value}", node)
        raise self.fail(f"the offset of {of} must be a literal integer, 0 or more", node)

    def _navigation(self, node: Any, final: bool) -> Navigation:
        name = special(node)
        if name in ("prev", "next"):
            arguments = node.expressions
            if not 1 <= len(arguments) <= 2:
                raise self.fail(f"{name.upper()} takes an expression and an offset", node)
            shift = self._offset(arguments[1], name.upper()) if len(arguments) == 2 else 1
            inner = arguments[0]
            kind = special(inner)
            if kind in ("running", "final"):
                if kind == "final" and self.in_define:
                    raise self.fail(
                        "FINAL cannot be used in DEFINE: the match is not known yet", node
                    )
                final = kind == "final"
                inner = inner.expressions[0]
                kind = special(inner)
                if kind not in ("first", "last"):
                    raise self.fail("RUNNING and FINAL stand before FIRST or LAST here", node)
            if kind in ("prev", "next"):
                raise self.fail(f"{name.upper()} cannot hold {kind.upper()}; add the offsets", node)
            if kind in ("first", "last"):
                base = self._navigation(inner, final)
            else:
                row, variables = self._argument(inner, name.upper())
                base = Navigation(row, variables, final=final)
            return Navigation(
                base.row,
                base.variables,
                base.first,
                base.offset,
                base.final,
                -shift if name == "prev" else shift,
            )
        if name == "classifier":
            row, variables = self._argument(node, "CLASSIFIER")
            return Navigation(row, variables, final=final)
        if isinstance(node, exp.Anonymous):
            arguments = node.expressions
        else:
            arguments = [node.this]
            if node.args.get("expression") is not None:
                arguments.append(node.args["expression"])
        if not 1 <= len(arguments) <= 2:
            raise self.fail(f"{name.upper()} takes an expression and an offset", node)
        offset = self._offset(arguments[1], name.upper()) if len(arguments) == 2 else 0
        row, variables = self._argument(arguments[0], name.upper())
        return Navigation(row, variables, name == "first", offset, final)

    def _argument(self, node: Any, of: str) -> tuple[RowExpression, frozenset[str] | None]:
        row, variables = self._row(node, of)
        if not row.columns:
            raise self.fail(f"the argument of {of} must read a column", node)
        return row, variables

    def _row(self, node: Any, of: str) -> tuple[RowExpression, frozenset[str] | None]:
        columns: dict[str, None] = {}
        qualifiers: set[str] = set()
        lone = False

        def visit(part: Any) -> Any:
            nonlocal lone
            kind = special(part)
            if kind == "classifier":
                arguments = part.expressions
                if len(arguments) > 1 or (
                    arguments and (not isinstance(arguments[0], exp.Column) or arguments[0].table)
                ):
                    raise self.fail("CLASSIFIER takes nothing or one pattern variable", part)
                qualifiers.add(self._variable(arguments[0].this) if arguments else "")
                columns[CLASSIFIER] = None
                lone = part is node
                return exp.column(exp.to_identifier(CLASSIFIER, quoted=True))
            if kind == "match_number" and (of.endswith("()") or of == "FILTER"):
                columns[NUMBER] = None
                lone = part is node
                return exp.column(exp.to_identifier(NUMBER, quoted=True))
            if kind:
                raise self.fail(f"{kind.upper()} cannot be used inside {of}", part)
            if _is_aggregate(part):
                raise self.fail(f"an aggregate cannot be used inside {of}", part)
            if isinstance(part, exp.Column):
                if isinstance(part.this, exp.Star):
                    raise self.fail(f"{part.sql()} can only be counted", part)
                if part.args.get("db"):
                    raise self.fail(
                        f"{part.sql()} is neither a column, nor variable.column, nor a member of "
                        "one",
                        part,
                    )
                qualifier = part.args.get("table")
                qualifiers.add(self._variable(qualifier) if qualifier is not None else "")
                name = self._column(part)
                columns[name] = None
                lone = part is node
                return exp.column(exp.to_identifier(name, quoted=True))
            return part

        if isinstance(node, exp.Column) or special(node):
            shaped = visit(node)
            lone = lone or isinstance(node, exp.Column)
        else:
            shaped = node.transform(visit)
        if len(qualifiers) > 1:
            shown = ", ".join(sorted(q or "(no variable)" for q in qualifiers))
            raise self.fail(f"the argument of {of} must use one variable, found {shown}", node)
        qualifier = next(iter(qualifiers), "")
        names = tuple(columns)
        column = names[0] if lone and len(names) == 1 else None
        text = to_text(shaped) if column is None else quote(column)
        row = RowExpression(text, names, column)
        if column is None and CLASSIFIER in columns:
            self.mixed[row] = shaped
        return row, self.variables[qualifier] if qualifier else None

    def _column(self, part: Any) -> str:
        try:
            name = self.schema.resolve(part.name)
        except AttributeNotFound as error:
            raise self.fail(str(error), part) from None
        if _OUR_COLUMNS.fullmatch(name):
            raise self.fail(
                f"MATCH_RECOGNIZE has a column {name!r} of its own; rename yours in a subquery: "
                f'FROM (SELECT *, "{name}" AS x FROM ...) MATCH_RECOGNIZE (...)',
                part,
            )
        return name

    def _variable(self, identifier: Any) -> str:
        name = identifier.name
        folded = name if identifier.args.get("quoted") else name.upper()
        if folded not in self.variables:
            names = ", ".join(sorted(self.variables))
            raise self.fail(
                f"unknown pattern variable {name!r}; PATTERN and SUBSET have {names}", identifier
            )
        return str(folded)

    def aggregate(self, node: Any, final: bool) -> MatchAggregate:
        call = node.copy()
        inner = call
        while isinstance(inner, exp.Filter | exp.WithinGroup):
            inner = inner.this
        function = function_name(inner)
        anonymous = isinstance(inner, exp.Anonymous)
        arguments = inner.expressions if anonymous else [inner.this]
        first = arguments[0] if arguments else None
        qualified = (
            isinstance(first, exp.Column)
            and isinstance(first.this, exp.Star)
            and first.args.get("table") is not None
        )
        if isinstance(first, exp.Star) or qualified or (function == "count" and first is None):
            if function != "count":
                raise self.fail(f"only count takes *, found {function}", node)
            starred = None
            if qualified and first is not None:
                starred = self.variables[self._variable(first.args["table"])]
            if call is inner:
                return MatchAggregate("count", "count(*)", None, (), starred, final, True, True)
            if anonymous:
                inner.set("expressions", [exp.Star()])
            else:
                inner.set("this", exp.Star())
            condition = self._condition(call)
            shaped, variables, columns = self._call(call, inner, function, {starred})
            return MatchAggregate(
                "count", to_text(shaped), None, tuple(columns), variables, final, False,
                condition is not None, False, condition, "count(*)",
            )  # fmt: skip
        extra = [
            value
            for key, value in inner.args.items()
            if key not in ("this", "expressions", "big_int") and value not in (None, [], False)
        ]
        condition = self._condition(call)
        distinct = isinstance(first, exp.Distinct) and len(first.expressions) == 1
        basic = (
            (call is inner or condition is not None)
            and len(arguments) == 1
            and not extra
            and (distinct or not isinstance(first, exp.Distinct | exp.Order))
        )
        argument = None
        if basic and first is not None:
            argument, _ = self._row(first.expressions[0] if distinct else first, f"{function}()")
        shaped, variables, columns = self._call(call, inner, function, set())
        return MatchAggregate(
            function, to_text(shaped), argument, tuple(columns), variables, final,
            basic and not distinct and call is inner, basic, distinct, condition, to_text(inner),
        )  # fmt: skip

    def _condition(self, call: Any) -> RowExpression | None:
        if not isinstance(call, exp.Filter) or isinstance(call.this, exp.Filter | exp.WithinGroup):
            return None
        return self._row(call.expression.this, "FILTER")[0]

    def _call(
        self, call: Any, inner: Any, function: str, chosen: set[frozenset[str] | None]
    ) -> tuple[Any, frozenset[str] | None, dict[str, None]]:
        columns: dict[str, None] = {}
        for part in list(call.walk(bfs=False)):
            if part is inner or part is call or (part.parent is None and part is not call):
                continue
            kind = special(part)
            if kind in ("classifier", "match_number") or isinstance(part, exp.Column):
                if isinstance(part, exp.Column) and special(part.parent) == "classifier":
                    continue
                row, variables = self._row(part, f"{function}()")
                if kind != "match_number":
                    chosen.add(variables)
                columns[row.columns[0]] = None
                part.replace(exp.column(exp.to_identifier(row.columns[0], quoted=True)))
            elif kind:
                raise self.fail(f"{kind.upper()} cannot be used inside an aggregate", part)
            elif _is_aggregate(part):
                raise self.fail("an aggregate cannot be used inside an aggregate", part)
        if len(chosen) > 1:
            raise self.fail(f"the arguments of {function}() must use one variable", call)
        return call, next(iter(chosen), None), columns


def _is_aggregate(node: Any) -> bool:
    if isinstance(node, exp.Filter | exp.WithinGroup):
        return True
    if isinstance(node, exp.AggFunc):
        return not isinstance(node, exp.First | exp.Last)
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower() in AGGREGATES
    if isinstance(node, exp.Func):
        return function_name(node) in AGGREGATES
    return False


def _without_navigation(node: exp.Expression) -> exp.Expression:
    """The expression with tuples for row pattern functions, to check all other functions."""

    if not any(special(part) for part in node.walk()):
        return node

    def visit(part: Any) -> Any:
        if special(part):
            inside = part.expressions if isinstance(part, exp.Anonymous) else [part.this]
            return exp.Tuple(expressions=[item.transform(visit) for item in inside])
        return part

    return node.transform(visit)
