"""Runs a system table: the rows that its plan holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from ..contract.explanation import Operator
from ..plan.nodes import SystemRows
from .context import RunContext

__all__ = ["SystemTableOperator"]


class SystemTableOperator:
    def __init__(self, node: SystemRows, _: RunContext) -> None:
        self._node = node

    @property
    def schema(self) -> pa.Schema:
        return self._node.rows.schema

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        rows = self._node.rows
        yield from (rows if columns is None else rows.select(list(columns))).to_batches()

    def explain(self) -> Operator:
        return Operator("SystemTable", (("table", self._node.name),), ())
