"""Leaves of bound expressions in DEFINE and MEASURES; equal when they read the same value."""

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
