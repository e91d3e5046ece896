"""Checks that a token may run a SQL statement: ``read`` to query, ``write`` to insert and create,
``admin`` to drop, delete, alter and index.  ``VisibleStreams`` hides all other streams from a
restricted token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...query.contract.access import Access
    from .auth import Principal

__all__ = ["authorize", "check_predicate", "visible_to"]


def visible_to(principal: Principal) -> Callable[[str], bool] | None:
    """Which streams exist for a principal; None for all."""
    token = principal.token
    return None if token is None or principal.everywhere else token.reaches


def authorize(principal: Principal, access: Access) -> None:
    """Raise ``SqlError`` or ``Forbidden`` unless a principal may run a statement."""
    principal.require(access.scope, access.target)
    if access.renamed is not None:
        principal.require(access.scope, access.renamed)
    if principal.token is None:
        return
    for name in sorted(access.reads):
        principal.require("read", name)


def check_predicate(text: str) -> None:
    """Raise ``SqlError`` for a ``where`` that is more than a condition on one event."""
    from sqlglot import exp

    from ...query.sql.dialect import error_at, parse_predicate, position_of

    node: Any = parse_predicate(text)
    inner = node.find(exp.Query, exp.Subquery, exp.Table)
    if inner is not None:
        raise error_at(
            text,
            position_of(inner),
            "where is a condition on one event; write a query for anything more",
        )
