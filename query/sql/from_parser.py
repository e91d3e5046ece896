"""FROM items that DuckDB lacks: row patterns, situations, recency joins, and SESSION's keys::

    side RECENT [LAST n] [LEFT | SEMI | ANTI] JOIN side [ON condition] [WITHIN duration]
    side    a FROM item [PERIOD (start, end)], or another recency join on the left
    SESSION(stream PARTITION BY key, ..., time, gap)  ->  SESSION(stream, time, gap, key, ...)

``RECENT`` before such a join and ``WITHIN`` behind it are aliases only if quoted or after AS.

Expressions follow DuckDB where sqlglot, which accepts many dialects, parses differently.  For
example, ``5 ! IN (120)`` is true in DuckDB (a factorial), not ``5 NOT IN (120)``.  Limit: ``->``
binds as other JSON operators do, tighter than in DuckDB.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.tokens import TokenType

from .forms import UNITS
from .match_clause import parse_match_clause
from .situation_clause import parse_situation_clause
from .statement_clauses import MatchRelation, RecentRelation, SituationRelation

_ONE_UNIT = re.compile(r"\s*-?\d+\s*([A-Za-z]+)\s*", re.ASCII)
_QUANTIFIERS = {"ALL": exp.All, "SOME": exp.Any}
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
        quantified = node.expression if isinstance(node, _COMPARED) else None
        if isinstance(quantified, exp.Anonymous) and len(quantified.expressions) == 1:
            kind = _QUANTIFIERS.get(quantified.name.upper())
            if kind is not None:  # sqlglot knows them before a SELECT only
                values = exp.Paren(this=quantified.expressions[0])
                node.set("expression", kind(this=values).update_positions(quantified))
        return node

    def _parse_interval(self, require_interval: bool = True, **kwargs: Any) -> Any:
        """An interval of one unit; a following ``+ 5`` is a sum."""
        if not require_interval:  # sqlglot looks for the rest of INTERVAL '1' DAY [+] '2' HOUR
            self._retreat(self._index - (self._prev.token_type == TokenType.PLUS))
            return exp.Null()
        node = super()._parse_interval(require_interval, **kwargs)
        return node.this if isinstance(node, exp.Add) else node

    def _parse_interval_span(self, this: Any, parse_function_unit: bool = True) -> Any:
        """sqlglot takes the first number and unit of a text for all of it: one day of
        ``'1 day 02:00:00'``, an hour after of ``'1 hour ago'``.
        """
        text = this.name if isinstance(this, exp.Literal) and this.is_string else ""
        one = _ONE_UNIT.fullmatch(text)
        if not re.search(r"[A-Za-z]", text) or (one is not None and one[1].upper() in UNITS):
            return super()._parse_interval_span(this, parse_function_unit)
        unit = self._match_texts(UNITS) and exp.var(self._prev.text.upper())
        return self.expression(exp.Interval(this=this, unit=unit or None))

    def _parse_ordered(self, parse_method: Any = None) -> Any:
        """``ORDER BY "all"`` and ``a.all`` are columns; sqlglot looks at the name only."""
        columns: list[Any] = []

        def parse() -> Any:
            node = parse_method() if parse_method else self._parse_disjunction()
            if self._match_pair(TokenType.ASC, TokenType.DESC, advance=False):
                self.raise_error("ASC and DESC exclude each other", self._next)
            if isinstance(node, exp.Column) and (node.table or node.this.quoted):
                columns.append(node)
                return exp.Null()
            return node

        ordered = super()._parse_ordered(parse)
        last = self._tokens[max(0, self._index - 4) : self._index]
        if [token.text.upper() for token in last] == ["NULLS", "FIRST", "NULLS", "LAST"]:
            self.raise_error("NULLS FIRST and NULLS LAST exclude each other", self._prev)
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


_ITEMS = (
    exp.Table, exp.Subquery, exp.Values, exp.Unnest, exp.Lateral, MatchRelation, SituationRelation,
)  # fmt: skip
_KINDS = ("LEFT", "SEMI", "ANTI")
_WINDOWS = ("TUMBLE", "HOP", "SESSION")
_OTHER_KINDS = ("RIGHT", "FULL", "INNER", "CROSS", "NATURAL", "ASOF", "POSITIONAL", "OUTER")


class _Partitioned(exp.Expression):  # type: ignore[misc]
    """A stream and the first key of its PARTITION BY, until all arguments are parsed."""

    arg_types = {"this": True, "expression": True}  # noqa: RUF012


def _in_standard_form(item: Any) -> Any:
    """Remove parentheses around FROM items; a named join becomes ``(SELECT * FROM ...)``."""
    if type(item) is not exp.Subquery:
        return item
    inner, alias, sample = (item.args.get(key) for key in ("this", "alias", "sample"))
    if isinstance(inner, exp.Table) and isinstance(inner.this, exp.Values):  # named VALUES
        inner = exp.Subquery(**inner.args)
        item.set("this", inner)
    if not isinstance(inner, _ITEMS) or _is_query(inner):
        return item
    if alias is None and sample is None:
        return item if inner.args.get("joins") else inner
    plain = isinstance(inner, (exp.Table, exp.Subquery)) and not (
        inner.args.get("joins") or inner.args.get("sample")
    )
    if plain and not (inner.alias and inner.args["alias"].columns):
        inner.set("alias", alias or inner.args.get("alias"))
        inner.set("sample", sample)
        return _in_standard_form(inner)
    item.set("this", exp.Select(expressions=[exp.Star()], from_=exp.From(this=inner)))
    return item


def _is_query(node: Any) -> bool:
    if any(node.args.get(key) for key in ("alias", "sample")):
        return False
    if type(node) is exp.Subquery:
        return not node.args.get("joins") and _is_query(node.this)
    return isinstance(node, (exp.Query, exp.Values))


class FromParser(ExpressionParser):
    _right_side = False  # parsing the right side of a recency join
    _of_session = False  # parsing the arguments of SESSION

    def _parse_function_args(self, alias: bool = False) -> list[Any]:
        outer, name = self._of_session, self._tokens[self._index - 2].text.upper()
        self._of_session = name == "SESSION"
        if name in _WINDOWS and self._is_word("TABLE") and self._next.text not in (",", ")"):
            self.raise_error(
                f"{name} takes the names of a stream and of its time column, without TABLE and "
                f"DESCRIPTOR: {name}(stream, time, ...)"
            )
        try:
            args = super()._parse_function_args(alias)
        finally:
            self._of_session = outer
        if not any(isinstance(arg, _Partitioned) for arg in args):
            return list(args)
        first, *rest = args
        if not isinstance(first, _Partitioned) or len(rest) < 2:
            self.raise_error("expected SESSION(stream PARTITION BY key, ..., time, gap)")
        *keys, time, gap = rest
        return [first.this, time, gap, first.expression, *keys]

    def _parse_lambda(self, alias: bool = False) -> Any:
        try:
            node = super()._parse_lambda(alias)
        except ValueError:
            self.raise_error("expected a name before =>", self._prev)
        if node is not None and self._of_session and self._match(TokenType.PARTITION_BY):
            key = super()._parse_lambda(alias) or self.raise_error("expected a key of sessions")
            return _Partitioned(this=node, expression=key)
        return node

    def _parse_table(self, *args: Any, **kwargs: Any) -> Any:
        first = self._curr
        table = self._parse_side(*args, **kwargs)
        while table is not None and self._starts_recent_join():
            table = self._parse_recent_join(table)
            table.meta["recent_span"] = (first.start, self._prev.end + 1)
        if table is not None and "period" in table.meta:
            self.raise_error("PERIOD stands behind a side of a recency join", self._prev)
        return table

    def _parse_side(self, *args: Any, **kwargs: Any) -> Any:
        table = _in_standard_form(super()._parse_table(*args, **kwargs))
        while table is not None and self._curr.token_type == TokenType.MATCH_RECOGNIZE:
            token = self._curr
            if token.text.upper() == "MATCH_SITUATIONS":
                clause = parse_situation_clause(self)
                table = self.expression(SituationRelation(this=table, match=clause))
            else:
                clause = parse_match_clause(self)
                table = self.expression(MatchRelation(this=table, match=clause))
            table.update_positions(token)
        if table is not None and self._is_word("PERIOD") and self._next.text == "(":
            token = self._curr
            self._advance()
            columns = self._parse_wrapped_csv(lambda: self._parse_id_var(any_token=True))
            if len(columns) != 2:
                self.raise_error("PERIOD takes the columns of start and end: (a, b)", token)
            table.meta["period"] = tuple(column.name for column in columns)
            table.meta["period_at"] = token.start
        return table

    def _parse_table_alias(self, alias_tokens: Any = None) -> Any:
        if self._starts_recent_join() or (self._right_side and self._is_word("WITHIN")):
            return None
        token = self._curr
        alias = super()._parse_table_alias(alias_tokens)
        if alias is not None and isinstance(alias.this, exp.Placeholder | exp.Parameter):
            self.raise_error("expected a name, found a parameter", token)
        return alias

    def _parse_join(self, *args: Any, **kwargs: Any) -> Any:
        listed = self._curr.token_type == TokenType.COMMA
        join = super()._parse_join(*args, **kwargs)
        if join is None or listed:
            return join
        if isinstance(join.this, RecentRelation):
            at = join.this.meta["recent_at"]
            self.raise_error(
                "a recency join stands first in FROM, or in parentheses: an ordinary join cannot "
                "be its left side",
                next(token for token in self._tokens if token.start == at),
            )
        given = join.args.get
        if not (given("on") or given("using") or given("kind") == "CROSS") and (
            given("method") not in ("NATURAL", "POSITIONAL")
        ):
            self.raise_error("a join needs ON or USING; all pairs are a CROSS JOIN", self._prev)
        return join

    def _is_word(self, word: str) -> bool:
        token = self._curr
        quoted = token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)
        return not quoted and token.text.upper() == word

    def _starts_recent_join(self) -> bool:
        """Whether RECENT begins a join here."""
        if not self._is_word("RECENT"):
            return False
        words = [token.text.upper() for token in self._tokens[self._index + 1 : self._index + 4]]
        if words[:1] == ["LAST"]:
            return True
        while words and words[0] in (*_KINDS, *_OTHER_KINDS):
            del words[0]
        return words[:1] == ["JOIN"]

    def _parse_recent_join(self, live: Any) -> Any:
        token = self._curr
        self._advance()
        last = None
        if self._match_text_seq("LAST"):
            last = self._parse_primary() or self._parse_placeholder()
            if last is None:
                self.raise_error("expected a number after RECENT LAST")
        kind = "inner"
        word = self._curr.text.upper()
        if word in _KINDS:
            kind = word.lower()
            self._advance()
            self._match_text_seq("OUTER") if kind == "left" else None
        elif not self._match_text_seq("INNER") and word != "JOIN":
            self.raise_error("a recency join is RECENT [LAST n] [LEFT | SEMI | ANTI] JOIN")
        if not self._match_text_seq("JOIN"):
            self.raise_error("expected JOIN")
        before, self._right_side = self._right_side, True
        try:
            archive = self._parse_side()
        finally:
            self._right_side = before
        if archive is None:
            self.raise_error("expected the right side of the recency join")
        on = self._parse_disjunction() if self._match(TokenType.ON) else None
        within = self._parse_unary() if self._match_text_seq("WITHIN") else None
        if self._curr.token_type == TokenType.ON:
            self.raise_error("ON stands before WITHIN")
        if self._curr.token_type == TokenType.USING:
            self.raise_error("a recency join takes its condition behind ON")
        node = self.expression(
            RecentRelation(
                this=live, expression=archive, kind=kind, last=last, on=on, within=within
            )
        )
        node.meta["recent_at"] = token.start
        return node
