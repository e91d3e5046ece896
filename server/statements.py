"""What a SQL text is about to do, and whether its token allows that.

Purpose
    :func:`authorize` stands before every SQL text of the API.  Queries, ``SHOW``, ``DESCRIBE`` and
    ``EXPLAIN`` need ``read``; ``INSERT`` and ``CREATE STREAM`` need ``write``; whatever drops,
    alters or indexes needs ``admin``.

Guarantee
    What a statement changes is looked at here, by scope and name, and what it reads, as the bound
    statement has it (:class:`chronicle.query.contract.access.Access`).  What it may know of at all
    is the business of :class:`chronicle.query.contract.access.VisibleStreams`, against which it
    then runs: to a token that is restricted to some streams the others do not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ..database import Database
    from .guard import Principal

__all__ = ["Statement", "authorize", "check_predicate", "statement_of", "visible_to"]


class Statement(NamedTuple):
    """What a text does.

    Attributes
    ----------
    kind : str
        Class of the syntax tree, such as ``Select`` or ``DropStream``.
    scope : {"read", "write", "admin"}
    target : str or None
        Stream that is changed.
    reads : bool
        Whether it also reads streams (``INSERT ... SELECT``).
    """

    kind: str
    scope: str
    target: str | None = None
    reads: bool = True


KEPT_CHARACTERS_MAX = 4096
"""Longer texts are not kept: what clients send must not fill the memory."""


def statement_of(text: str) -> Statement:
    """Classify a text; raises :class:`SqlError` when it cannot be read."""
    return _kept(text) if len(text) <= KEPT_CHARACTERS_MAX else _classified(text)


@lru_cache(maxsize=512)
def _kept(text: str) -> Statement:
    return _classified(text)


def _classified(text: str) -> Statement:
    from sqlglot import exp

    from ..query.sql import dialect

    node: Any = dialect.parse_statement(text)
    kind = type(node).__name__
    if isinstance(node, exp.Insert):
        target = node.this.find(exp.Table) or node.this
        source = node.expression
        reads = not isinstance(source, exp.Values) or source.find(exp.Query, exp.Table) is not None
        return Statement(kind, "write", str(target.name), reads)
    if isinstance(node, dialect.CreateStream):
        return Statement(kind, "write", str(node.this.name), False)
    readers = (dialect.ShowStreams, dialect.ShowIndexes, dialect.DescribeStream, dialect.Explain)
    if isinstance(node, (exp.Query, exp.Values, *readers)):
        return Statement(kind, "read")
    target = node.this if isinstance(node, dialect.StatementNode) else None
    return Statement(kind, "admin", str(target.name) if target is not None else None, False)


def visible_to(principal: Principal) -> Callable[[str], bool] | None:
    """Which streams exist for a principal; None for all."""
    token = principal.token
    return None if token is None or principal.everywhere else token.reaches


def authorize(database: Database, principal: Principal, text: str) -> Statement:
    """Check that a principal may run a text.

    Raises
    ------
    SqlError, Forbidden
    """
    statement = statement_of(text)
    if principal.token is None:
        return statement
    principal.require(statement.scope, statement.target)
    if statement.scope != "read" and statement.reads:
        principal.require("read")
    for name in sorted(database.access(text, visible_to(principal)).reads):
        principal.require("read", name)
    return statement


def check_predicate(text: str) -> None:
    """Refuse a ``where`` that is more than a condition on one event.

    Raises
    ------
    SqlError
        When it cannot be read, or asks another stream.
    """
    from sqlglot import exp

    from ..query.sql.dialect import error_at, parse_predicate, position_of

    node: Any = parse_predicate(text)
    inner = node.find(exp.Query, exp.Subquery, exp.Table)
    if inner is not None:
        raise error_at(
            text,
            position_of(inner),
            "where is a condition on one event; write a query for what asks further",
        )
