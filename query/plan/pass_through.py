"""SELECTs that only pick columns of one relation, which avoid the executor's latency.

ORDER BY must be the relation's own order; WHERE and LIMIT of scans are decided in ``scans``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from sqlglot import exp

_OTHER_CLAUSES = (
    "with_", "group", "having", "qualify", "windows", "distinct", "joins", "laterals", "sample",
)  # fmt: skip
_OF_SCANS = ("where", "limit", "offset")
_SUM = pa.decimal128(38, 0)
_INTEGERS = {exp.DataType.Type.INT128: "HUGEINT", exp.DataType.Type.BIGINT: "BIGINT"}


class Picked(NamedTuple):
    """A result column; ``form`` is '' or the type of an integer sum, 'HUGEINT' or 'BIGINT'."""

    name: str
    column: str
    form: str = ""


def picked_columns(
    root: Any, schema: pa.Schema, ordered_by: Sequence[str], *, scanned: bool = False
) -> tuple[Picked, ...] | None:
    """Each projection as a column; None if the SELECT does more.  ``scanned``: ignore filters."""
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
    relation = item.alias_or_name.lower()
    picked: list[Picked] = []
    for projection in root.expressions:
        column, form = _summed(projection.unalias())
        star = column.this if isinstance(column, exp.Column) else column
        if isinstance(star, exp.Star):
            if any(star.args.values()):  # EXCLUDE, REPLACE, RENAME
                return None
            picked += [Picked(name, name) for name in schema.names]
            continue
        found = names.get(column.name.lower()) if _is_own(column, relation) else None
        if found is None or (form and not projection.alias):
            return None
        picked.append(Picked(projection.alias or found, found, form))
    for _, name, form in picked:
        type_ = schema.field(name).type
        if type_ != _SUM if form else pa.types.is_decimal(type_) or pa.types.is_date64(type_):
            return None
    order = root.args.get("order")
    if order is not None and not _delivered(order, picked, ordered_by, relation):
        return None
    return tuple(picked)


def _is_own(node: Any, relation: str) -> bool:
    if not isinstance(node, exp.Column) or len(node.parts) > 2:
        return False
    return node.table.lower() in ("", relation)


def _summed(node: Any) -> tuple[Any, str]:
    """The operand and type of a cast of an integer sum; else the node."""
    inner, form = node, ""
    while type(inner) is exp.Cast or type(inner) is exp.Paren:
        if type(inner) is exp.Cast:
            cast = _INTEGERS.get(inner.to.this, "")
            if not cast or (form and cast != "HUGEINT"):
                return node, ""
            form = form or cast
        inner = inner.this
    return (inner, form) if form else (node, "")


def _delivered(order: Any, picked: list[Picked], given: Sequence[str], relation: str) -> bool:
    aliases: dict[str, set[str]] = {}
    for name, column, _ in picked:
        aliases.setdefault(name.lower(), set()).add(column)
    for position, key in enumerate(order.expressions):
        if not isinstance(key, exp.Ordered) or key.args.get("desc"):
            return False
        node = key.this
        if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit():
            place = int(node.this)
            column = picked[place - 1].column if 1 <= place <= len(picked) else ""
        elif _is_own(node, relation):
            meant = aliases.get(node.name.lower(), {node.name.lower()})
            column = next(iter(meant)) if len(meant) == 1 else ""
        else:
            return False
        if position >= len(given) or column != given[position]:
            return False
    return True
