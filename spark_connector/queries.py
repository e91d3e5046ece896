"""The option ``query``: SQL planned once on the driver, run in parts on executors.

The parts (``chronicle.query.plan.division``) are disjoint, unordered, and give each row once.  The
division and its reason are logged as ``chronicle.spark`` (INFO).
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import InputPartition
from sqlglot import exp

from ..errors import SqlError
from ..query.engine import QueryEngine
from ..query.plan.division import Division, Part, divide
from ..query.plan.nodes import QueryPlan
from ..query.sql.dialect import StatementNode, parse_statement
from ..store.pins import Pin
from .backend import partition_count
from .pinned_catalog import PinnedCatalog

__all__ = ["QueryPartition", "divided", "query_tree"]


class QueryPartition(InputPartition):
    def __init__(self, part: Part, pins: dict[str, Pin]) -> None:
        super().__init__(None)
        self.part = part
        self.pins = pins


def query_tree(text: str) -> Any:
    """The syntax tree of a query; SqlError for other statements."""
    tree = parse_statement(text)
    if isinstance(tree, StatementNode | exp.Insert) or not isinstance(tree, exp.Query):
        raise SqlError("option 'query' takes a SELECT; change the store with chronicle sql")
    return tree


def divided(
    text: str, engine: QueryEngine, catalog: PinnedCatalog, wanted: int | None
) -> tuple[QueryPlan, Division]:
    """Plan a query over a growing ``catalog``, and divide it into about ``wanted`` parts."""
    plan = engine.plan(query_tree(text), text)
    return plan, divide(plan, catalog.snapshot, lambda size: partition_count(wanted, size))
