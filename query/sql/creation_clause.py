"""CREATE STREAM: columns, and ``s [TIMESTAMP BY t] [WITH (k = v, ...)] AS SELECT ...``."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from .statement_nodes import CreateStream

__all__ = ["parse_create_as", "parse_stream_column"]


def parse_create_as(parser: Any, name: Any, exists: bool) -> CreateStream:
    """Parse what follows the stream's name."""
    time = None
    if parser._match_text_seq("TIMESTAMP", "BY"):
        time = parser._name("the time attribute")
    options = parser._parse_options("codec = 'zstd'")
    if not parser._match_text_seq("AS"):
        parser.raise_error(
            "expected the columns in parentheses, (t TIMESTAMP, x DOUBLE), or AS and a SELECT"
        )
    token = parser._curr
    query: Any = parser._parse_statement() if token else None
    if not isinstance(query, exp.Query):
        parser.raise_error("expected a SELECT after AS", token or None)
    query.meta.setdefault("start", token.start)
    return CreateStream(this=name, time=time, options=options, exists=exists, query=query)


def parse_stream_column(parser: Any) -> Any:
    """Parse a column definition: name, type, NOT NULL, DEFAULT."""
    name = parser._name("a column")
    token = parser._curr
    kind = parser._parse_types(schema=True)
    if kind is None:
        parser.raise_error(f"expected the type of column {name.name!r}", token or None)
    kind.meta["start"] = token.start
    not_null, default = False, None
    while True:
        if parser._match_text_seq("NOT", "NULL"):
            not_null = True
        elif default is None and parser._match_text_seq("DEFAULT"):
            default = parser._parse_unary()
            if default is None:
                parser.raise_error(f"expected the default of column {name.name!r}")
        elif not parser._match_text_seq("NULL"):
            break
    definition = parser.expression(exp.ColumnDef(this=name, kind=kind, default=default))
    definition.meta["not_null"] = not_null
    return definition
