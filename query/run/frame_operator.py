"""Runs a frame: its rows, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from ..contract.explanation import Operator
from ..plan.nodes import FrameRows
from .context import RunContext

__all__ = ["FrameOperator"]


class FrameOperator:
    def __init__(self, node: FrameRows, run: RunContext) -> None:
        self._frame = node.frame
        self._rows = 0

    @property
    def schema(self) -> pa.Schema:
        return self._frame.schema

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        for batch in self._frame.batches(self.schema.names if columns is None else columns):
            self._rows += batch.num_rows
            yield batch

    def explain(self) -> Operator:
        details = (("name", self._frame.name), ("columns", tuple(self.schema.names)))
        return Operator("Frame", details, (("rows", self._rows),) if self._rows else ())
