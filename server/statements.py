"""What a SQL text is about to do, and whether its token allows that.

Purpose
    :func:`authorize` stands before every SQL text of the API.  Queries, ``SHOW``, ``DESCRIBE`` and
    ``EXPLAIN`` need ``read``; ``INSERT`` and ``CREATE STREAM`` need ``write``; whatever drops,
    alters or indexes needs ``admin``.

Guarantee
    A token that is restricted to some streams cannot touch another one by any way of writing SQL:
    the text is refused when one of its *tokens* (a name, quoted or not, or a string) is the name
    of a stream out of reach.  This does not depend on where in the grammar names of streams may
    stand.

Limits
    So a column or alias that is called like a stream out of reach is refused too; rename the alias.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ..errors import Forbidden

if TYPE_CHECKING:
    from .guard import Principal
    from .state import Server

__all__ = ["Statement", "authorize", "check_predicate", "only_visible", "statement_of"]


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


@lru_cache(maxsize=512)
def statement_of(text: str) -> Statement:
    """Classify a text; raises :class:`SqlError` when it cannot be read."""
    from sqlglot import exp

    from ..query import dialect

    node: Any = dialect.parse_statement(text)
    kind = type(node).__name__
    if isinstance(node, exp.Insert):
        target = node.this.find(exp.Table) or node.this
        reads = not isinstance(node.expression, exp.Values)
        return Statement(kind, "write", str(target.name), reads)
    if isinstance(node, dialect.CreateStream):
        return Statement(kind, "write", str(node.this.name), False)
    readers = (dialect.ShowStreams, dialect.ShowIndexes, dialect.DescribeStream, dialect.Explain)
    if isinstance(node, (exp.Query, exp.Values, *readers)):
        return Statement(kind, "read")
    target = node.this if isinstance(node, dialect.StatementNode) else None
    return Statement(kind, "admin", str(target.name) if target is not None else None, False)


def authorize(server: Server, principal: Principal, text: str) -> Statement:
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
    if not principal.everywhere:
        _check_mentions(server, principal, text)
    return statement


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


def _check_mentions(server: Server, principal: Principal, text: str) -> None:
    from ..query.dialect import Chronicle

    mentioned = {token.text.casefold() for token in Chronicle().tokenize(text)}
    for name in server.database.streams():
        if name.casefold() in mentioned and not principal.may("read", name):
            token = principal.token
            assert token is not None
            if token.reaches(name):
                continue  # within reach, only not for reading: the scopes were checked
            raise Forbidden(
                f"the token {token.name!r} reaches the streams {', '.join(token.streams)}, not "
                f"{name!r}"
            )


def only_visible(
    principal: Principal, text: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Leave out of ``SHOW STREAMS`` and ``SHOW INDEXES`` what the token does not reach."""
    token = principal.token
    if token is None or principal.everywhere:
        return batches
    if statement_of(text).kind not in ("ShowStreams", "ShowIndexes"):
        return batches

    def visible() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            column = batch.column("stream" if "stream" in batch.schema.names else 0)
            keep = [token.reaches(str(name)) for name in column.to_pylist()]
            yield batch.filter(pa.array(keep, pa.bool_()))

    return visible()
