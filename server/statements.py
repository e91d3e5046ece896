"""Whether a token allows what a SQL text is about to do.

Purpose
    :func:`authorize` stands before every SQL text of the API.  Queries, ``SHOW``, ``DESCRIBE`` and
    ``EXPLAIN`` need ``read``; ``INSERT`` and ``CREATE STREAM`` need ``write``, and ``read`` when
    any part of them reads a stream; whatever drops, alters or indexes needs ``admin``.

Guarantee
    To a token that is restricted to some streams the others do not exist: a text that names one is
    answered as if there were none, with the names within reach as suggestions.  What is read is
    computed from the bound statement (:mod:`chronicle.query.access`), so it does not depend on
    where in the grammar names of streams may stand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..query.access import Access
    from .guard import Principal
    from .state import Server

__all__ = ["authorize", "check_predicate", "visible_to"]


def visible_to(principal: Principal) -> Callable[[str], bool] | None:
    """Which streams exist for a principal; None for all."""
    token = principal.token
    return None if token is None or principal.everywhere else token.reaches


def authorize(server: Server, principal: Principal, text: str) -> Access:
    """Check that a principal may run a text.

    Raises
    ------
    SqlError, Forbidden
    """
    from ..query import dialect, statements

    if principal.token is not None:
        claimed = statements.declared(dialect.parse_statement(text))
        principal.require(claimed.scope, claimed.target)  # before any name is looked up
    access = server.database.access(text, visible_to(principal))
    for name in sorted(access.reads):
        principal.require("read", name)
    return access


def check_predicate(text: str) -> None:
    """Refuse a ``where`` that is more than a condition on one event.

    Raises
    ------
    SqlError
        When it cannot be read, or asks another stream.
    """
    from sqlglot import exp

    from ..query.dialect import error_at, parse_predicate, position_of

    node: Any = parse_predicate(text)
    inner = node.find(exp.Query, exp.Subquery, exp.Table)
    if inner is not None:
        raise error_at(
            text,
            position_of(inner),
            "where is a condition on one event; write a query for what asks further",
        )
