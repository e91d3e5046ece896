"""Builds result tables from matches, for ``match_stream`` and ``advancing``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...errors import ResourceLimit
from .leaves import Given
from .match_identity import Identities, Naming
from .matches import Matches
from .measures import Context, OutputRows, measure_columns

if TYPE_CHECKING:
    from .compiled import CompiledMatch

__all__ = ["Results"]

IntArray = npt.NDArray[np.int64]


class Results:
    """Result rows of one clause; ``take``: values of a column at row numbers (null for null)."""

    def __init__(
        self,
        compiled: CompiledMatch,
        take: Callable[[str, pa.Array], pa.Array],
        naming: Naming | None = None,
    ) -> None:
        self.compiled = compiled
        self.take = take
        self.naming = naming
        self.mode = compiled.clause.rows

    def of(
        self, matches: Matches, begin: IntArray, end: IntArray
    ) -> tuple[IntArray, IntArray, pa.Table]:
        """Match and row of each output row, and the table; ``begin``, ``end``: of partitions."""
        match, index, row = self.rows(matches)
        context = Context(
            matches, OutputRows(match, index), self.take, begin, end,
            self.compiled.automaton.names, self._given(matches, match, index),
        )  # fmt: skip
        compiled = self.compiled
        measures = measure_columns(
            compiled.measures, context, compiled.type_of, compiled.clause.sql
        )
        return match, row, self._assemble(measures, pa.array(row), len(match))

    def _given(
        self, matches: Matches, match: IntArray, index: IntArray
    ) -> Callable[[Given], pa.Array] | None:
        if self.naming is None:
            return None
        return Identities(self.naming, matches, match, index, self.take)

    def unmatched(self, rows: IntArray) -> pa.Table:
        """Rows without a match; measures are null."""
        schema = self.compiled.output_schema
        nulls = [
            pa.nulls(len(rows), schema.field(measure.name).type)
            for measure in self.compiled.clause.measures
        ]
        return self._assemble(nulls, pa.array(rows), len(rows))

    def rows(self, matches: Matches) -> tuple[IntArray, IntArray, IntArray]:
        count = len(matches.group)
        if self.mode == "one":
            match = np.arange(count)
            return match, matches.length - 1, matches.last_row
        excluded = np.array(self.compiled.automaton.excluded, np.bool_)
        kept = (
            np.flatnonzero(~excluded[matches.places]) if len(matches.row) else np.zeros(0, np.int64)
        )
        match = np.searchsorted(matches.first, kept, side="right") - 1
        index = kept - matches.first[match]
        row = matches.rows[kept]
        if self.mode != "all omit empty":
            empty = np.flatnonzero(matches.length == 0)
            if len(empty):
                match = np.concatenate([match, empty])
                index = np.concatenate([index, np.full(len(empty), -1)])
                row = np.concatenate([row, matches.start[empty]])
                arranged = np.argsort(match, kind="stable")
                match, index, row = match[arranged], index[arranged], row[arranged]
        return match, index, row

    def _assemble(self, measures: list[pa.Array], rows: pa.Array, count: int) -> pa.Table:
        compiled = self.compiled
        names: list[str] = []
        columns: list[Any] = []

        def add(name: str, values: Any) -> None:
            names.append(name)
            columns.append(values)

        for name in compiled.partition_by:
            add(name, self.take(name, rows))
        if self.mode != "one":
            for name, _, _ in compiled.order_by:
                if name not in names:
                    add(name, self.take(name, rows))
        for measure, values in zip(compiled.clause.measures, measures, strict=True):
            add(measure.name, values)
        if self.mode != "one":
            for name in compiled.columns.arrow.names:
                if name not in names:
                    add(name, self.take(name, rows))
        if not columns:
            raise ResourceLimit("the clause has neither measures nor columns to put out")
        return pa.table(dict(zip(names, columns, strict=True)))
