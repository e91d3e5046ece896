"""What a bound expression of DEFINE or MEASURES reads: navigations, aggregates, match numbers.

Purpose
    The values that conditions and measures are made of, apart from how they are bound
    (:mod:`.binding`) and computed (:mod:`.measures`, :mod:`.typed`).

Guarantee
    Leaves are frozen and equal when they read the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

__all__ = [
    "CLASSIFIER",
    "IDENTITIES",
    "NUMBER",
    "PSEUDO",
    "Given",
    "Leaf",
    "MatchAggregate",
    "MatchNumber",
    "Navigation",
    "RowExpression",
    "special",
]

CLASSIFIER = "@classifier"
NUMBER = "@match_number"
PSEUDO = frozenset({CLASSIFIER, NUMBER})
"""Columns that a row has by its match: what CLASSIFIER() and MATCH_NUMBER() are there."""


@dataclass(frozen=True)
class RowExpression:
    """A scalar expression over the columns of one row.

    Attributes
    ----------
    sql : str
        The expression in DuckDB's SQL; column names are quoted.
    columns : tuple of str
        The columns it reads; :data:`CLASSIFIER` among them stands for the row's variable,
        :data:`NUMBER` for the number of its match (in aggregates only).
    column : str or None
        The column's name, when the expression is nothing but a column.
    """

    sql: str
    columns: tuple[str, ...]
    column: str | None = None


@dataclass(frozen=True)
class Navigation:
    """The value of an expression in a row found from the match; see the module's docstring."""

    row: RowExpression
    variables: frozenset[str] | None
    first: bool = False
    offset: int = 0
    final: bool = False
    shift: int = 0


@dataclass(frozen=True)
class MatchAggregate:
    """An aggregate over the rows of the match that carry one of ``variables``.

    Attributes
    ----------
    function : str
        Its name, lower case.
    sql : str
        The whole call in DuckDB's SQL, over the columns of the rows.
    argument : RowExpression or None
        The only argument of a basic call; None for ``count(*)`` and for calls of other forms.
    columns : tuple of str
    plain : bool
        Neither DISTINCT, FILTER, ORDER BY nor a second argument.
    basic : bool
        As ``plain``, but perhaps with DISTINCT or FILTER.
    distinct : bool
    condition : RowExpression or None
        What FILTER says.
    head : str
        ``sql`` without FILTER.
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
"""Functions of a match that say what it is called, see :mod:`.match_identity`."""


@dataclass(frozen=True)
class Given:
    """What an operator itself knows of a match: a function of names, and the type of its values."""

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
