"""Parsing of statements on views, one node each.

::

    CREATE [OR REPLACE] VIEW [IF NOT EXISTS] v AS SELECT ...
    DROP VIEW [IF EXISTS] v [CASCADE]
    SHOW VIEWS
    SHOW CREATE VIEW v
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from .statement_nodes import CreateView, DropView, ShowCreateView

__all__ = ["cascades", "parse_create_view", "parse_drop_view", "parse_show_create"]


def parse_create_view(parser: Any, *, replace: bool) -> CreateView:
    exists = not replace and bool(parser._match_text_seq("IF", "NOT", "EXISTS"))
    name = parser._name("the view")
    parser._expect("AS")
    token = parser._curr
    query = parser._parse_statement() if token else None
    if not isinstance(query, exp.Query):
        parser.raise_error("a view is a SELECT: expected one after AS", token or None)
    made = CreateView(this=name, query=query, replace=replace, exists=exists)
    made.meta["query"] = token.start
    made.meta["end"] = parser._prev.end + 1
    return made


def parse_drop_view(parser: Any) -> DropView:
    exists = bool(parser._match_text_seq("IF", "EXISTS"))
    name = parser._name("the view")
    return DropView(this=name, exists=exists, cascade=cascades(parser))


def cascades(parser: Any) -> bool:
    if parser._match_text_seq("CASCADE"):
        return True
    parser._match_text_seq("RESTRICT")
    return False


def parse_show_create(parser: Any) -> ShowCreateView:
    parser._expect("VIEW")
    return ShowCreateView(this=parser._name("the view"))
