"""The option ``query``: one SQL text, planned once, run inside the executors in parts.

Purpose
    :func:`divided` parses, plans and divides a query on the driver, over streams that are pinned as
    it names them.  A :class:`QueryPartition` takes one part of the plan and the pins to an
    executor, which runs it as it is (:mod:`chronicle.query.plan.division`).

Guarantee
    The parts are disjoint and their union is the query's result, each row once.  Nothing is parsed
    or planned on executors.

Limits
    Parts come in no order.  How a query was cut, and why not further, is logged under
    ``chronicle.spark`` (level INFO) and told by :mod:`.query_plan`.
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
    """One part of a query on pinned streams."""

    def __init__(self, part: Part, pins: dict[str, Pin]) -> None:
        super().__init__(None)
        self.part = part
        self.pins = pins


def query_tree(text: str) -> Any:
    """The tree of a query.

    Raises
    ------
    SqlError
        For anything that is not a query.
    """
    tree = parse_statement(text)
    if isinstance(tree, StatementNode | exp.Insert) or not isinstance(tree, exp.Query):
        raise SqlError("option 'query' takes a SELECT; change the store with chronicle sql")
    return tree


def divided(
    text: str, engine: QueryEngine, catalog: PinnedCatalog, wanted: int | None
) -> tuple[QueryPlan, Division]:
    """Plan a query and cut it (driver).

    Parameters
    ----------
    engine : QueryEngine
        Over the catalogue.
    catalog : PinnedCatalog
        A growing one: it pins the streams that the query names.
    wanted : int, optional
        Parts to aim for; by the stream's size unless given.
    """
    plan = engine.plan(query_tree(text), text)
    return plan, divide(plan, catalog.snapshot, lambda size: partition_count(wanted, size))
