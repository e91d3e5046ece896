"""Parsing of statements that change a stream, one node each.

::

    DELETE FROM s [WHERE condition]         TRUNCATE [TABLE | STREAM] s
    UPDATE s SET a = expression, ... [WHERE condition]
    ALTER STREAM s ADD [COLUMN] a TYPE [NOT NULL] [DEFAULT literal]
    ALTER STREAM s ALTER [COLUMN] a [SET DATA] TYPE TYPE
    ALTER STREAM s DROP COLUMN a
    ALTER STREAM s RENAME COLUMN a TO b
    ALTER STREAM s RENAME TO r
    ALTER STREAM s SET (option = value, ...)
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType

from .creation_clause import parse_stream_column
from .statement_nodes import AlterStream, DeleteEvents, UpdateEvents

__all__ = ["parse_alter_stream", "parse_delete", "parse_truncate", "parse_update"]


def parse_delete(parser: Any) -> DeleteEvents:
    parser._expect("FROM")
    name = parser._name("the stream")
    return DeleteEvents(this=name, where=parser._parse_where())


def parse_truncate(parser: Any) -> DeleteEvents:
    parser._match_texts(("STREAM", "TABLE"))
    return DeleteEvents(this=parser._name("the stream"))


def parse_update(parser: Any) -> UpdateEvents:
    name = parser._name("the stream")
    parser._expect("SET")
    assignments = parser._parse_csv(lambda: _assignment(parser))
    return UpdateEvents(this=name, assignments=assignments, where=parser._parse_where())


def _assignment(parser: Any) -> Any:
    column = parser._name("a column")
    if not parser._match(TokenType.EQ):
        parser.raise_error(f"expected = and an expression after {column.name!r}")
    value = parser._parse_disjunction()
    if value is None:
        parser.raise_error(f"expected the new value of {column.name!r}")
    return exp.EQ(this=column, expression=value)


def parse_alter_stream(parser: Any) -> AlterStream:
    """Parse what follows ``ALTER``, except live queries."""
    parser._expect("STREAM")
    name = parser._name("the stream")
    if parser._match_text_seq("ADD"):
        parser._match_text_seq("COLUMN")
        return AlterStream(this=name, action="add", column=parse_stream_column(parser))
    if parser._match(TokenType.ALTER):
        parser._match_text_seq("COLUMN")
        column = parser._name("the column")
        parser._match_text_seq("SET", "DATA")
        parser._expect("TYPE")
        token = parser._curr
        kind = parser._parse_types(schema=True)
        if kind is None:
            parser.raise_error(f"expected the new type of column {column.name!r}")
        kind.meta["start"] = token.start
        return AlterStream(this=name, action="type", column=column, kind=kind)
    if parser._match_text_seq("DROP"):
        parser._match_text_seq("COLUMN")
        return AlterStream(this=name, action="drop", column=parser._name("the column"))
    if parser._match_text_seq("RENAME", "TO"):
        return AlterStream(this=name, action="rename", to=parser._name("the stream"))
    if parser._match_text_seq("RENAME"):
        parser._match_text_seq("COLUMN")
        column = parser._name("the column")
        parser._expect("TO")
        to = parser._name("the column")
        return AlterStream(this=name, action="rename column", column=column, to=to)
    if parser._match_text_seq("SET"):
        if not parser._match(TokenType.L_PAREN):
            parser.raise_error("expected the options in parentheses: SET (retention = '90 days')")
        options = parser._parse_csv(parser._parse_option)
        parser._match_r_paren()
        return AlterStream(this=name, action="set", options=options)
    made: AlterStream = parser.raise_error(
        "expected ADD COLUMN, ALTER COLUMN, DROP COLUMN, RENAME COLUMN, RENAME TO or SET (...)"
    )
    return made
