"""The target of CREATE and DROP INDEX: one or two attributes, or an expression."""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType

__all__ = ["parse_index_target"]


def parse_index_target(parser: Any) -> tuple[Any, Any]:
    """The stream, and an identifier or a Var with the key's text for ``indexes.index_key``."""
    if not parser._match_text_seq("ON"):
        parser.raise_error("expected ON stream (attribute); an index has no name of its own")
    stream = parser._name("the stream")
    if not parser._match(TokenType.L_PAREN):
        parser.raise_error("expected the attribute in parentheses")
    if parser._next and parser._next.token_type == TokenType.R_PAREN:
        name = parser._name("the attribute")
        parser._match_r_paren()
        return stream, name
    return stream, _key(parser)


def _key(parser: Any) -> Any:
    first, depth = parser._curr, 1
    if first is None:
        parser.raise_error("expected an attribute, two of them, or an expression")
    while parser._curr and depth:
        token = parser._curr.token_type
        depth += (token == TokenType.L_PAREN) - (token == TokenType.R_PAREN)
        parser._advance()
    if depth:
        parser.raise_error("expected ) after what the index is on")
    text = parser.sql[first.start : parser._prev.start]
    if parser._match(TokenType.PARTITION_BY):
        begin = parser._curr
        parser._parse_csv(lambda: parser._name("an attribute"))
        text += f" PARTITION BY {parser.sql[begin.start : parser._prev.end + 1]}"
    key = exp.Var(this=text)
    key.meta["start"] = first.start
    return key
