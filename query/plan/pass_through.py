"""SELECTs that only pick columns of one relation: answered without the relational executor.

Purpose
    After an operator has taken a SELECT's aggregates over, what is left is often a list of its
    columns, or all of them; a SELECT of events that a scan alone can find leaves no more.
    :func:`picked_columns` recognises that, so the rows go to the caller as they are: a query that
    takes a millisecond is not made to wait two for an executor that would copy it.

Guarantee
    Rows, their order, names and types are those that the executor would give.

Limits
    An ORDER BY passes only where the relation delivers in that order.  Whether a scan finds the
    events of a WHERE, and how many rows a LIMIT wants, depends on values: :mod:`.scans` decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

__all__ = ["picked_columns"]

_OTHER_CLAUSES = (
    "with_", "group", "having", "qualify", "windows", "distinct", "joins", "laterals", "sample",
)  # fmt: skip
_OF_SCANS = ("where", "limit", "offset")


def picked_columns(
    root: Any, schema: pa.Schema, ordered_by: Sequence[str], *, scanned: bool = False
) -> tuple[tuple[str, str], ...] | None:
    """Name and column of each projection; None when the SELECT does more than pick.

    Parameters
    ----------
    root : sqlglot tree
        The bound statement.
    schema : pyarrow.Schema
        Of the only relation in it.
    ordered_by : sequence of str
        Its columns that its rows are ordered by, from the most significant on, ascending.
    scanned : bool
        Whether WHERE, LIMIT and OFFSET are somebody else's matter.
    """
    others = _OTHER_CLAUSES if scanned else (*_OTHER_CLAUSES, *_OF_SCANS)
    if not isinstance(root, exp.Select) or any(root.args.get(key) for key in others):
        return None
    item = root.args["from_"].this if root.args.get("from_") is not None else None
    if not isinstance(item, exp.Table) or item.args.get("joins") or item.args.get("sample"):
        return None
    if item.args.get("alias") is not None and item.args["alias"].args.get("columns"):
        return None
    names = {name.lower(): name for name in schema.names}
    if len(names) < len(schema.names):
        return None
    picked: list[tuple[str, str]] = []
    for projection in root.expressions:
        column = projection.this if isinstance(projection, exp.Alias) else projection
        star = column.this if isinstance(column, exp.Column) else column
        if isinstance(star, exp.Star):
            if any(star.args.values()):  # EXCLUDE, REPLACE, RENAME
                return None
            picked += [(name, name) for name in schema.names]
            continue
        found = names.get(column.name.lower()) if isinstance(column, exp.Column) else None
        if found is None:
            return None
        picked.append((projection.alias or found, found))
    types = [schema.field(column).type for _, column in picked]
    if any(pa.types.is_decimal(type_) or pa.types.is_date64(type_) for type_ in types):
        return None
    order = root.args.get("order")
    if order is not None and not _delivered(order, picked, ordered_by):
        return None
    return tuple(picked)


def _delivered(order: Any, picked: list[tuple[str, str]], given: Sequence[str]) -> bool:
    """Whether the relation's own order is the one asked for."""
    aliases: dict[str, set[str]] = {}
    for name, column in picked:
        aliases.setdefault(name.lower(), set()).add(column)
    for position, key in enumerate(order.expressions):
        if not isinstance(key, exp.Ordered) or key.args.get("desc"):
            return False
        node = key.this
        if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit():
            place = int(node.this)
            column = picked[place - 1][1] if 1 <= place <= len(picked) else ""
        elif isinstance(node, exp.Column):
            meant = aliases.get(node.name.lower(), {node.name.lower()})
            column = next(iter(meant)) if len(meant) == 1 else ""
        else:
            return False
        if position >= len(given) or column != given[position]:
            return False
    return True
