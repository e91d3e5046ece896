"""SELECTs that cannot be live, as their results never become final, with suggestions."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from ..errors import SqlError
from ..query.sql.dialect import error_at, position_of
from ..query.sql.gate import AGGREGATES

__all__ = ["aggregate_in", "check_live", "refused"]

_CLAUSES = {
    "order": "results are put out as they become known; sort them where they are read: SELECT ... "
    "FROM NET(name) ORDER BY ...",
    "limit": "a live query has no end to count to; take the first rows where they are read",
    "offset": "a live query has no end to count to; take the first rows where they are read",
    "distinct": "whether a row is the first of its kind is never known for good; group by a window",
    "qualify": "row numbers and ranks change with every event; group by a window",
    "windows": "functions OVER rows change with every event; group by a window",
    "with_": "a live query is one SELECT; write what WITH names where it is used",
    "joins": "join two streams, FROM a JOIN b ON ..., without parentheses",
    "laterals": "a live query joins two streams, FROM a JOIN b ON ...",
    "sample": "which events a sample holds is not the same each time",
}
_CHANGING = (
    "now", "current_timestamp", "transaction_timestamp", "get_current_timestamp", "current_date",
    "today", "localtimestamp", "current_localtimestamp", "current_localtime", "get_current_time",
    "random", "uuid", "gen_random_uuid", "reservoir_quantile",
)  # fmt: skip


def refused(text: str, node: Any, what: str) -> SqlError:
    return error_at(text, position_of(node), what)


def check_live(tree: Any, text: str, *, join: bool = False, union: bool = False) -> None:
    """SqlError for what no live class supports; ``union``: ``tree`` is a set operation."""
    if union:
        if type(tree) is not exp.Union or tree.args.get("distinct") or tree.args.get("by_name"):
            raise refused(
                text, tree.expression, "whether a row occurs elsewhere, too, is never known for "
                "good: write UNION ALL, columns in the same order"
            )  # fmt: skip
        for clause in ("order", "limit", "offset", "with_"):
            if tree.args.get(clause):
                raise refused(text, tree.args[clause], _CLAUSES[clause])
        return
    if not isinstance(tree, exp.Select) or tree.args.get("from_") is None:
        raise refused(text, tree, "a live query is a SELECT from a stream")
    for clause, why in _CLAUSES.items():
        found = tree.args.get(clause)
        if found and not (join and clause == "joins"):
            node = found[0] if isinstance(found, list) else found
            name = "WITH" if clause == "with_" else type(node).__name__.upper()
            at = tree if position_of(node) is None else node
            raise refused(text, at, f"{name} cannot be live: {why}")
    item = tree.args["from_"].this
    if item.args.get("joins"):
        raise refused(text, item.args["joins"][0], f"a join cannot be live: {_CLAUSES['joins']}")
    for node in tree.walk():
        if isinstance(node, exp.Placeholder):
            raise refused(text, node, "a live query has no parameters; write the value")
        if isinstance(node, exp.Window):
            raise refused(text, node, f"OVER cannot be live: {_CLAUSES['windows']}")
        if node is not tree and isinstance(node, exp.Query):
            raise refused(
                text, node, "a live query reads one stream: it has no subqueries; put conditions "
                "into WHERE or DEFINE"
            )  # fmt: skip
        if isinstance(node, exp.CurrentTimestamp | exp.CurrentDate | exp.Localtimestamp) or (
            isinstance(node, exp.Anonymous) and node.name.lower() in _CHANGING
        ):
            raise refused(
                text, node, "a live query must give the same each time it is asked; use the time "
                "of the events"
            )  # fmt: skip


def aggregate_in(tree: Any) -> Any:
    """The first aggregate in a SELECT's own clauses; None without one."""
    for part in (*tree.expressions, tree.args.get("having")):
        for node in part.walk() if part is not None else ():
            if isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES:
                return node
    return None
