"""Binds expressions: a scalar part for DuckDB or the stack machine, over *leaves* ``@i``.

``Navigation(row, variables, first, offset, final, shift)``: among the rows of the match labelled
with one of ``variables`` (None: any), take the first or last, move ``offset`` of them, then
``shift`` rows in the partition, and evaluate ``row`` there.  The rules are those of ISO/IEC 9075-2:
one variable per argument, no nesting except PREV and NEXT around FIRST and LAST, no FINAL in
DEFINE, literal offsets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa
from sqlglot import exp

from ...errors import AttributeNotFound, SqlError
from ..sql.dialect import to_text
from ..sql.pattern_parser import position_error
from .leaves import (
    CLASSIFIER,
    IDENTITIES,
    NUMBER,
    PSEUDO,
    Given,
    Leaf,
    MatchAggregate,
    MatchNumber,
    Navigation,
    RowExpression,
    special,
)
from .members import with_members
from .scalar import AGGREGATES, check_functions, function_name, quote
from .spelled_out import spelled_out

__all__ = [
    "CLASSIFIER",
    "NUMBER",
    "PSEUDO",
    "Binder",
    "Bound",
    "Given",
    "Leaf",
    "MatchAggregate",
    "MatchNumber",
    "Navigation",
    "RowExpression",
]

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
        plain = self._comparison(node, at)
        if plain is not None:
            return plain
        node = node.copy()  # without a parent: the gate inspects a call's parent
        node = with_members(node, self.schema, self.variables, self.fail)
        check_functions(_without_navigation(node), self.sql, at)
        leaves: list[Leaf] = []
        scalar = self._transform(node, leaves, final=False, marked=False)
        return Bound(scalar, tuple(leaves), at)

    def _comparison(self, node: Any, at: int) -> Bound | None:
        """Fast path for ``x < 5`` and ``x BETWEEN 1 AND 2``; same result as ``_transform``."""
        bounds: tuple[str, ...]
        if type(node) is exp.Between:
            bounds = ("low", "high")
            if node.args.get("symmetric"):
                return None
        elif type(node) in _COMPARISONS:
            bounds = ("expression",)
        else:
            return None
        column = node.this
        if type(column) is not exp.Column or any(column.args.get(k) for k in ("table", "db")):
            return None
        if type(column.this) is not exp.Identifier:
            return None
        literals: dict[str, Any] = {}
        for key in bounds:
            literal = node.args[key]
            if type(literal) is not exp.Literal or literal.args.get("is_string"):
                return None
            literals[key] = exp.Literal(this=literal.args["this"], is_string=False)
            literals[key].meta.update(literal.meta)
        found = self._column(column)
        leaf = Navigation(RowExpression(quote(found), (found,), found), None)
        place = exp.Column(this=exp.Identifier(this="@0", quoted=True))
        scalar = type(node)(this=place, **literals)
        scalar.meta.update(node.meta)
        return Bound(scalar, (leaf,), at)

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
                found = spelled_out(self, node, leaf, leaves)
                if found is not None:
                    return found
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
                found = self._column(part)
                columns[found] = None
                lone = part is node
                return exp.column(exp.to_identifier(found, quoted=True))
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
            known = ", ".join(sorted(self.variables))
            raise self.fail(
                f"unknown pattern variable {name!r}; PATTERN and SUBSET have {known}", identifier
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
