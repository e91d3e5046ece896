"""How a query may be divided into parts, as far as its text decides; ``division`` divides the plan.

============  ====================================================  ==========================
a cut         query                                                 a part
============  ====================================================  ==========================
``rows``      filter and projection of one stream                   a time range, cut at leaf
                                                                    borders
``windows``   aggregation over TUMBLE or HOP in time, grouped by    windows that start in a
              ``window_start`` or ``window_end``                    time range
``match``     MATCH_RECOGNIZE or MATCH_SITUATIONS over a stream     replay intervals, a time
                                                                    range, or partitions
                                                                    (``query.split``)
``recent``    RECENT JOIN whose live side is                        live rows that end in a
              MATCH_RECOGNIZE with WITHIN over a stream             range of time
``whole``     everything else                                       the query
============  ====================================================  ==========================

A query with ORDER BY, LIMIT, DISTINCT, an aggregate or window function over all rows, or the
current time is never divided.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from ..sql.dialect import MatchRelation, RecentRelation, SituationRelation
from ..sql.gate import TIMES_OF_SIDES

__all__ = ["cut_of"]

_CLAUSES = ("limit", "offset", "order", "distinct", "qualify", "sort", "with_", "joins", "laterals")
_WHOLE = ("whole", "its rows depend on each other")


def cut_of(tree: Any) -> tuple[str, str]:
    """The cut of a parsed query, and the reason for ``whole``."""
    if not isinstance(tree, exp.Select) or any(tree.args.get(name) for name in _CLAUSES):
        return _WHOLE
    source = tree.args["from_"].this if tree.args.get("from_") else None
    if isinstance(source, RecentRelation):
        return ("recent", "") if _row_wise(tree) else _WHOLE
    if isinstance(source, MatchRelation | SituationRelation):
        inner = source.this
        plain = isinstance(inner, exp.Table) and isinstance(inner.this, exp.Identifier)
        return ("match", "") if plain and _row_wise(tree) else _WHOLE
    if not isinstance(source, exp.Table) or source.args.get("joins"):
        return _WHOLE
    if isinstance(source.this, exp.Anonymous):
        return _windows(tree, source.this)
    return ("rows", "") if source.name and _row_wise(tree) else _WHOLE


def _nested(tree: Any) -> bool:
    return any(node is not tree for node in tree.find_all(exp.Query, exp.Window))


def _row_wise(tree: Any) -> bool:
    if tree.args.get("group") or tree.args.get("having") or _nested(tree):
        return False
    return not any(
        isinstance(node, exp.AggFunc)
        or (isinstance(node, exp.Anonymous) and node.name.lower() not in TIMES_OF_SIDES)
        for expression in tree.expressions
        for node in expression.walk()
    )


def _windows(tree: Any, call: Any) -> tuple[str, str]:
    group = tree.args.get("group")
    keys = {node.name.lower() for node in group.expressions} if group is not None else set()
    timed = len(call.expressions) == {"tumble": 3, "hop": 4}.get(call.name.lower())
    if timed and keys & {"window_start", "window_end"} and not _nested(tree):
        return "windows", ""
    return _WHOLE
