"""What a SQL text is about to do, and whether its token allows that.

Purpose
    :func:`authorize` stands before every SQL text of the API.  Queries, ``SHOW``, ``DESCRIBE`` and
    ``EXPLAIN`` need ``read``; ``INSERT`` and ``CREATE STREAM`` need ``write``; whatever drops,
    deletes, alters or indexes needs ``admin``.

Guarantee
    What a statement changes is looked at here, by scope and name, and what it reads, as the bound
    statement says (:class:`chronicle.query.contract.access.Access`).  What it may know of at all
    is the business of :class:`chronicle.query.contract.access.VisibleStreams`, against which it
    then runs: to a token that is restricted to some streams the others do not exist.
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
    """Check that a principal may run a statement.

    Raises
    ------
    SqlError, Forbidden
    """
    principal.require(access.scope, access.target)
    if access.renamed is not None:
        principal.require(access.scope, access.renamed)
    if principal.token is None:
        return
    for name in sorted(access.reads):
        principal.require("read", name)


def check_predicate(text: str) -> None:
    """Refuse a ``where`` that is more than a condition on one event.

    Raises
    ------
    SqlError
        When it cannot be read, or asks another stream.
    """
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
