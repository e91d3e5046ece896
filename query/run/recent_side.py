"""A side of a recency join as it runs: its rows in memory, their times as ticks, their keys.

Purpose
    :class:`SideRun` reads the rows of one side; :func:`events_of` makes what the kernels of
    :mod:`..recent.pairs` work on of two sides that were read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import ResourceLimit, SqlError
from ...store.segment import ScanMetrics
from ...ticks import INT64_MAX, INT64_MIN, TICKS_PER_SECOND
from ..conditions.key_values import comparable
from ..conditions.ranges import half_open, range_text
from ..contract.explanation import Operator
from ..plan.nodes import QueryPlan, RecentSide, Scan
from ..recent.pairs import Events
from .clause_operator import LIMITS
from .context import Relation, RunContext
from .scan_relations import figures_of

__all__ = ["SideRun", "events_of", "ticks_in"]

Ints = npt.NDArray[np.int64]


class SideRun:
    """One side of one execution."""

    def __init__(self, side: RecentSide, run: RunContext) -> None:
        self.side = side
        self._run = run
        self._metrics = ScanMetrics()
        self._relation: Relation | None = None
        if not isinstance(side.input, Scan | QueryPlan):
            self._relation = run.open(side.input)
        self.rows: pa.Table | None = None

    def read(self, wanted: Sequence[str]) -> pa.Table:
        """Rows of the named columns of the relation, in the order of the side."""
        side, check = self.side, self._run.control.check
        own = dict(side.columns)
        names = [name for name in own if name in wanted]
        columns = list(dict.fromkeys([*(own[name] for name in names), side.start, side.end]))
        batches = []
        size = 0
        for batch in self._batches(columns):
            check()
            size += batch.nbytes
            if size > LIMITS.memory_bytes:
                raise ResourceLimit(
                    f"a side of the recency join has more than {LIMITS.memory_bytes} bytes of "
                    "rows; narrow its pattern, or select fewer columns"
                )
            batches.append(batch)
        if batches:
            table = pa.Table.from_batches(batches).combine_chunks()
        else:
            table = self._schema(columns).empty_table()
        self.rows = table
        return pa.table({name: table.column(own[name]) for name in names}) if names else table

    def times(self, unit: pa.DataType) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
        """Start and end of each row in ticks of a unit, and whether it has both."""
        assert self.rows is not None
        start, end = (self.rows.column(name) for name in (self.side.start, self.side.end))
        known = pc.and_(start.is_valid(), end.is_valid())
        found = np.asarray(known.to_numpy(zero_copy_only=False), np.bool_)
        return ticks_in(start, unit), ticks_in(end, unit), found

    def _schema(self, columns: Sequence[str]) -> pa.Schema:
        node = self.side.input
        if isinstance(node, Scan):
            schema = node.schema.arrow
        elif isinstance(node, QueryPlan):
            schema, _ = self._run.rows(node)
        else:
            assert self._relation is not None
            schema = self._relation.schema
        return pa.schema([schema.field(name) for name in columns])

    def _batches(self, columns: list[str]):  # type: ignore[no-untyped-def]
        node = self.side.input
        if self._relation is not None:
            yield from self._relation.batches(columns)
        elif isinstance(node, QueryPlan):
            _, batches = self._run.rows(node)
            for batch in batches:
                yield batch.select(columns)
        else:
            assert isinstance(node, Scan)
            if node.low <= node.high:
                start, end = half_open(node.low, node.high)
                yield from self._run.snapshot(node.stream).scan(
                    start, end, columns, metrics=self._metrics, check=self._run.control.check
                )

    def explain(self) -> Operator:
        """The node below."""
        node = self.side.input
        if self._relation is not None:
            return self._relation.explain()
        if isinstance(node, QueryPlan):
            return Operator("Subquery", ())
        assert isinstance(node, Scan)
        details = (
            ("stream", node.stream),
            ("range", range_text(node.low, node.high, node.schema) or "all of time"),
        )
        return Operator("Scan", details, figures_of(self._metrics) if self._run.analyze else ())


def ticks_in(column: pa.ChunkedArray, unit: pa.DataType) -> Ints:
    """Times of any unit as ticks of a finer one; what goes beyond 64 bits is their bound."""
    type_ = column.type
    try:
        values = column.fill_null(0) if not pa.types.is_timestamp(type_) else column
        ticks = values.cast(pa.int64()).fill_null(0).to_numpy()
    except pa.ArrowInvalid as error:
        raise SqlError(f"a time of a recency join does not fit into 64 bits: {error}") from None
    ticks = np.ascontiguousarray(ticks, np.int64)
    if not pa.types.is_timestamp(type_) or type_.unit == unit.unit:
        return ticks
    factor = TICKS_PER_SECOND[unit.unit] // TICKS_PER_SECOND[type_.unit]
    bound = INT64_MAX // factor
    scaled = np.where(np.abs(ticks) <= bound, ticks, 0) * factor
    scaled[ticks > bound] = INT64_MAX
    scaled[ticks < -bound] = INT64_MIN
    return scaled


def events_of(
    live: SideRun, archive: SideRun, unit: pa.DataType,
    live_keys: Sequence[pa.ChunkedArray], archive_keys: Sequence[pa.ChunkedArray],
) -> tuple[Events, Events]:  # fmt: skip
    """Times and keys of the rows of both sides; equal codes stand for equal keys."""
    mine, theirs = live.times(unit), archive.times(unit)
    count = len(mine[0])
    codes = np.zeros(count + len(theirs[0]), np.int64)
    for one, other in zip(live_keys, archive_keys, strict=True):
        parts = [comparable(chunk) for chunk in (*one.chunks, *other.chunks)]
        if not parts:
            continue
        encoded = pc.dictionary_encode(pa.concat_arrays(parts), null_encoding="mask")
        own = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        joint = codes * max(1, len(encoded.dictionary)) + own
        _, numbered = np.unique(joint, return_inverse=True)
        codes = np.where((own < 0) | (codes < 0), -1, numbered)
    return (
        Events(mine[0], mine[1], codes[:count], mine[2]),
        Events(theirs[0], theirs[1], codes[count:], theirs[2]),
    )
