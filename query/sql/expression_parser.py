"""DuckDB's expressions where sqlglot, which accepts many dialects, parses differently.

For example, ``5 ! IN (120)`` is true in DuckDB (a factorial), not ``5 NOT IN (120)``.  Limit:
``->`` binds as other JSON operators do, tighter than in DuckDB.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.tokens import TokenType

__all__ = ["ExpressionParser"]

_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


class ExpressionParser(DuckDB.Parser):  # type: ignore[misc]
    ARRAY_CONSTRUCTORS: ClassVar[dict[str, type]] = {"ARRAY": exp.Array}
    """Without LIST, which is the name of an aggregate."""

    TYPE_LITERAL_PARSERS = dict.fromkeys(
        exp.DType, lambda self, value, to: self._typed_literal(value, to)
    )

    def _parse(self, parse_method: Any, raw_tokens: Any, sql: Any = None) -> Any:
        """Refuse operators split by spaces (``> >``), and text with missing parts."""
        for token, after in pairwise(raw_tokens):
            kind, touches = token.token_type, after.start == token.end + 1
            if kind in (TokenType.GT, TokenType.LT):
                if after.token_type == kind and not touches:
                    self.raise_error("Unexpected token", after)
            elif kind == TokenType.NULLSAFE_EQ or (
                kind == TokenType.NOT
                and token.text == "!"
                and not (touches and after.text.startswith("~"))
            ):
                self.raise_error("Unexpected token", token)
        try:
            return super()._parse(parse_method, raw_tokens, sql)
        except (AttributeError, IndexError, KeyError, TypeError):
            # sqlglot assumes parts that may be missing: {: 1}
            return self.raise_error("something is missing near here")

    def _parse_equality(self, parse_is: bool = True) -> Any:
        """Refuse chained comparisons: ``1 < x < 3`` is not ``(1 < x) < 3``."""
        first = self._curr
        node = super()._parse_equality(parse_is)
        if isinstance(node, _COMPARED) and (
            isinstance(node.this, _COMPARED) or isinstance(node.expression, _COMPARED)
        ):
            self.raise_error(
                "comparisons do not chain: write a < b AND b < c, or parentheses", first
            )
        return node

    def _parse_interval(self, require_interval: bool = True, **kwargs: Any) -> Any:
        """An interval of one unit; a following ``+ 5`` is a sum."""
        if not require_interval:  # sqlglot looks for the rest of INTERVAL '1' DAY [+] '2' HOUR
            self._retreat(self._index - (self._prev.token_type == TokenType.PLUS))
            return exp.Null()
        node = super()._parse_interval(require_interval, **kwargs)
        return node.this if isinstance(node, exp.Add) else node

    def _parse_ordered(self, parse_method: Any = None) -> Any:
        """``ORDER BY "all"`` and ``a.all`` are columns; sqlglot looks at the name only."""
        columns: list[Any] = []

        def parse() -> Any:
            node = parse_method() if parse_method else self._parse_disjunction()
            if isinstance(node, exp.Column) and (node.table or node.this.quoted):
                columns.append(node)
                return exp.Null()
            return node

        ordered = super()._parse_ordered(parse)
        if columns:
            ordered.set("this", columns[0])
        return ordered

    def _typed_literal(self, value: Any, to: Any) -> Any:
        """In ``DATE '2020-01-01'::VARCHAR`` the type belongs to the literal."""
        literal = value
        while not isinstance(literal, exp.Literal):
            literal = literal.this
        typed = exp.Cast(this=literal.copy(), to=to)
        if literal is value:
            return typed
        literal.replace(typed)
        return value
