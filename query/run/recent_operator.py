"""Runs RECENT JOIN; the requested columns of both sides are in memory.

Pairs are ordered by start of the archive row, end of the live row, place of the archive row, place
of the live row; unpaired live rows (LEFT) follow.

A side is read whole or near regions, with times as ticks and key codes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.sorting import firsts, numbered
from ...core.threads import Check
from ...core.times import INT64_MAX, INT64_MIN, half_open, length_text
from ...errors import ResourceLimit, SqlError
from ...store.prune import RowFilter
from ...store.segment import ScanMetrics
from ..conditions.constants import comparable
from ..conditions.predicates import range_text
from ..conditions.row_filters import implied_on
from ..contract.explanation import Operator
from ..plan.nodes import Match, QueryPlan, RecentJoin, RecentSide, Scan
from ..recent.narrowing import (
    Regions,
    factor_of,
    narrow,
    regions_for_archive,
    regions_for_live,
    worthwhile,
)
from ..recent.pairs import Events, Pairing
from ..relational.interface import evaluate
from ..replay.planning import plan_match
from ..replay.spans import READ_GAP, Spans
from ..replay.timeline import Timeline
from .clause_operator import LIMITS
from .context import LeafOperator, Relation, RunContext

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
ROW = "#row"

SURELY_FEW = 0.1
"""Estimated share of a stream up to which reading regions alone is surely worth it."""


@dataclass
class _Narrowing:
    regions: int = 0
    share: float = 1.0
    why: str = ""


class SideRun:
    def __init__(self, side: RecentSide, run: RunContext) -> None:
        self.side = side
        self._run = run
        self._metrics = ScanMetrics()
        self._relation: Relation | None = None
        if not isinstance(side.input, Scan | QueryPlan):
            self._relation = run.open(side.input)
        self._narrowing: _Narrowing | None = None
        self.rows: pa.Table | None = None
        self.passing: RowFilter | None = None

    # -- reading ------------------------------------------------------------------------------

    def read(self, wanted: Sequence[str], regions: Regions | None = None) -> pa.Table:
        """Rows of the named columns in order; only those in ``regions`` (own ticks) and that pass
        the filter matter.
        """
        side, check = self.side, self._run.control.check
        if regions is not None:
            self._narrow(regions)
        own = dict(side.columns)
        names = [name for name in own if name in wanted]
        columns = list(dict.fromkeys([*(own[name] for name in names), side.start, side.end]))
        batches = []
        size = 0
        for batch in self._batches(columns, regions):
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
            table = pa.schema([self._schema().field(name) for name in columns]).empty_table()
        return self._taken(table, names)

    def ending(self, wanted: Sequence[str], ends: tuple[int | None, int | None]) -> pa.Table:
        """The rows of a pattern with WITHIN that end in a half-open range of ticks."""
        node = self.side.input
        assert isinstance(node, Match)
        within = node.compiled.within
        assert within is not None
        low = INT64_MIN if ends[0] is None else ends[0]
        high = INT64_MAX if ends[1] is None else ends[1] - 1
        region = Regions.of(np.array([low], np.int64), np.array([high], np.int64))
        self.read(wanted, region.widened(within, 0))
        assert self.rows is not None
        ticks = ticks_in(self.rows.column(self.side.end), self.time)
        ended = self.rows.column(self.side.end).is_valid().to_numpy()
        # a row without times belongs to the first part
        mine = np.where(ended, (ticks >= low) & (ticks <= high), ends[0] is None)
        own = dict(self.side.columns)
        names = [name for name in own if name in wanted]
        return self._taken(self.rows.filter(pa.array(mine)), names)

    def _taken(self, rows: pa.Table, names: Sequence[str]) -> pa.Table:
        own = dict(self.side.columns)
        table = pa.table({name: rows.column(own[name]) for name in names}) if names else rows
        if self.passing is not None and len(rows):
            numbered_rows = table.append_column(ROW, pa.array(np.arange(len(rows))))
            (batch,) = numbered_rows.combine_chunks().to_batches()
            chosen = self.passing(batch).column(ROW)
            rows, table = rows.take(chosen), table.take(chosen)
        self.rows, self._truths = rows, truths_of(self.side.condition, table)
        return table

    def _schema(self) -> pa.Schema:
        node = self.side.input
        if isinstance(node, Scan):
            return node.schema.arrow
        if isinstance(node, QueryPlan):
            return self._run.rows(node)[0]
        assert self._relation is not None
        return self._relation.schema

    def _batches(self, columns: list[str], regions: Regions | None) -> Iterator[pa.RecordBatch]:
        node = self.side.input
        if self._relation is not None:
            yield from self._relation.batches(columns)
        elif isinstance(node, QueryPlan):
            for batch in self._run.rows(node)[1]:
                yield batch.select(columns)
        else:
            assert isinstance(node, Scan)
            snapshot, check = self._run.snapshot(node.stream), self._run.control.check
            ranges = self._ranges(node, regions)
            self._run.control.progress.expect(
                [self._metrics], snapshot.count,
                lambda: sum(snapshot.events_between(*half_open(*one)) for one in ranges),
            )  # fmt: skip
            for low, high in ranges:
                start, end = half_open(low, high)
                yield from snapshot.scan(start, end, columns, metrics=self._metrics, check=check)

    def _ranges(self, node: Scan, regions: Regions | None) -> list[tuple[int, int]]:
        if regions is None:
            return [(node.low, node.high)] if node.low <= node.high else []
        snapshot = self._run.snapshot(node.stream)
        timeline = Timeline(snapshot)
        hull = regions.hull()
        if not len(hull):
            return []
        if snapshot.dirty_ranges() or not timeline.total:
            first, last = max(node.low, int(hull.low[0])), min(node.high, int(hull.high[-1]))
            return [(first, last)] if first <= last else []
        spans = Spans.of(timeline.lower(hull.low), timeline.upper(hull.high), READ_GAP)
        regions_ = Regions.of(timeline.ticks_at(spans.starts), timeline.ticks_at(spans.ends - 1))
        pairs = zip(regions_.low.tolist(), regions_.high.tolist(), strict=True)
        bounded = [(max(low, node.low), min(high, node.high)) for low, high in pairs]
        return [(low, high) for low, high in bounded if low <= high]

    # -- narrowing ----------------------------------------------------------------------------

    def _narrow(self, regions: Regions) -> None:
        node, side = self.side.input, self.side
        narrowing = self._narrowing = _Narrowing(len(regions))
        if isinstance(node, Scan):
            narrowing.share = self._share(node.stream, regions)
            return
        if not isinstance(node, Match) or side.obstacle or node.stream is None:
            narrowing.why = side.obstacle or "it is read whole"
            return
        snapshot, check = self._run.snapshot(node.stream), self._run.control.check
        narrowing.share = self._about(node.stream, regions)
        if self._run.analyze or narrowing.share > SURELY_FEW:
            narrowing.share = self._share(node.stream, regions)
        indexes = self._run.indexes(node.stream)
        planned = node.replay is not None and node.replay.intervals is not None
        if planned or node.part is not None:  # both sides were narrowed when planned
            alone = float(node.replay.needed) if node.replay is not None else 0.0
        else:
            alone = side.alone
        if worthwhile(narrowing.share * snapshot.count, alone):
            narrowed = narrow(snapshot, node.compiled, indexes, side.strategy, regions, check)
            narrowing.why = narrowed.why
            if narrowed.replay is not None or narrowed.part is not None:
                node = replace(node, replay=narrowed.replay, part=narrowed.part)
                self._relation = self._run.open(node)
                return
        else:
            narrowing.why = f"regions are {narrowing.share:.1%} of the stream"
        if node.replay is None and node.part is None:
            plan = plan_match(snapshot, node.compiled, indexes, side.strategy, check=check)
            self._relation = self._run.open(replace(node, replay=plan))

    def _about(self, stream: str, regions: Regions) -> float:
        """Fraction of the stream in regions if events were evenly distributed."""
        snapshot = self._run.snapshot(stream)
        span, hull = snapshot.time_range, regions.hull()
        if span is None or not len(hull):
            return 0.0
        length = float(span[1]) - span[0] + 1
        low, high = np.maximum(hull.low, span[0]), np.minimum(hull.high, span[1])
        inside = low <= high
        ticks = (high[inside].astype(np.float64) - low[inside] + 1).sum()
        return float(min(1.0, ticks / length + inside.sum() * READ_GAP / snapshot.count))

    def _share(self, stream: str, regions: Regions) -> float:
        timeline = Timeline(self._run.snapshot(stream))
        hull = regions.hull()
        if not timeline.total or not len(hull):
            return 0.0
        # regions are read together with narrow gaps
        spans = Spans.of(timeline.lower(hull.low), timeline.upper(hull.high), READ_GAP)
        return spans.total / timeline.total

    # -- what was read ------------------------------------------------------------------------

    def times(self, unit: pa.DataType) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
        """Start and end of each row in ticks of a unit, and whether it may have a partner."""
        assert self.rows is not None
        start, end = (self.rows.column(name) for name in (self.side.start, self.side.end))
        complete = pc.and_(start.is_valid(), end.is_valid())
        valid = np.asarray(complete.to_numpy(zero_copy_only=False), np.bool_)
        if self._truths is not None:
            valid = valid & self._truths
        return ticks_in(start, unit), ticks_in(end, unit), valid

    @property
    def time(self) -> pa.DataType:
        return self._schema().field(self.side.start).type

    def key_column(self, name: str) -> str | None:
        """Stream column of a key, if rows of other keys may be dropped; else None."""
        own = dict(self.side.columns)[name]
        node = self.side.input
        if not isinstance(node, Match) or own not in node.compiled.partition_by:
            return None
        return None if pa.types.is_floating(self._schema().field(own).type) else own

    def explain(self) -> Operator:
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
        return Operator("Scan", details, self._metrics.figures if self._run.analyze else ())

    def summary(self) -> str:
        narrowing = self._narrowing
        if narrowing is None:
            return ""
        text = f"{narrowing.regions} regions, {narrowing.share:.4%} of its stream"
        return f"{text}; read whole: {narrowing.why}" if narrowing.why else text


def truths_of(condition: str | None, table: pa.Table) -> Mask | None:
    """Which ``rows`` satisfy a condition."""
    if condition is None:
        return None
    true = evaluate(f"SELECT {condition} AS c FROM rows", rows=table)
    truth = true.column(0).cast(pa.bool_()).fill_null(False).to_numpy(zero_copy_only=False)
    return np.asarray(truth, np.bool_)


def ticks_in(column: pa.ChunkedArray, unit: pa.DataType) -> Ints:
    """Times of any unit as ticks of a finer one, saturating."""
    type_ = column.type
    try:
        values = column.cast(pa.int64()).fill_null(0).to_numpy()
    except pa.ArrowInvalid as error:
        raise SqlError(f"a time of a recency join does not fit into 64 bits: {error}") from None
    ticks: Ints = np.ascontiguousarray(values, np.int64)
    factor = factor_of(type_, unit)
    if factor == 1:
        return ticks
    bound = INT64_MAX // factor
    scaled: Ints = np.clip(ticks, -bound, bound) * factor
    scaled[ticks > bound] = INT64_MAX
    scaled[ticks < -bound] = INT64_MIN
    return scaled


def _codes(
    columns: Sequence[Sequence[pa.ChunkedArray]], count: int, check: Check = lambda: None
) -> Ints:
    """Equal numbers for equal rows of some columns, each given in parts; -1 with a null."""
    codes = np.zeros(count, np.int64)
    for column in columns:
        parts = [comparable(chunk) for part in column for chunk in part.chunks]
        if not parts:
            continue
        check()
        encoded = pc.dictionary_encode(pa.concat_arrays(parts), null_encoding="mask")
        own = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        check()
        if column is columns[0]:
            codes = own
            continue
        joint = codes * max(1, len(encoded.dictionary)) + own
        _, numbers = numbered(joint)
        codes = np.where((own < 0) | (codes < 0), -1, numbers)
    return codes


def events_of(
    live: SideRun, archive: SideRun, unit: pa.DataType,
    keys: Sequence[tuple[pa.ChunkedArray, pa.ChunkedArray]], check: Check,
) -> tuple[Events, Events]:  # fmt: skip
    """Times and keys of the rows of both sides; equal codes stand for equal keys."""
    mine, theirs = live.times(unit), archive.times(unit)
    count = len(mine[0])
    codes = _codes(keys, count + len(theirs[0]), check)
    return (
        Events(mine[0], mine[1], codes[:count], mine[2]),
        Events(theirs[0], theirs[1], codes[count:], theirs[2]),
    )


def regions_of(
    first: SideRun, second: SideRun, table: pa.Table, keys: Sequence[tuple[str, str]],
    distance: int | None, unit: pa.DataType, for_archive: bool,
) -> Regions:  # fmt: skip
    """Where partners of the first side's rows lie, in ticks of the second."""
    named = [(one, column) for one, other in keys if (column := second.key_column(other))]
    start, end, valid = first.times(unit)
    code = _codes([[table.column(one)] for one, _ in keys], len(start))
    own = _codes([[table.column(one)] for one, _ in named], len(start))
    rows = Events(start, end, np.where(code < 0, -1, own), valid)
    make = regions_for_archive if for_archive else regions_for_live
    low, high, key = make(rows, distance)
    values: tuple[pa.Array, ...] = ()
    if named and len(own):
        number, row = firsts(own)
        row = row[number >= 0]  # one row per code
        some = pa.array(row)
        values = tuple(table.column(one).take(some).combine_chunks() for one, _ in named)
        remap = np.full(int(own.max(initial=-1)) + 2, -1)
        remap[own[row]] = np.arange(len(row))
        key = remap[key]
    columns = tuple(column for _, column in named)
    regions = Regions.of(low, high, key if columns else np.zeros_like(key), columns, values)
    return regions.coarser(factor_of(second.time, unit))


BATCH_ROWS = 1 << 17


class RecentOperator(LeafOperator[RecentJoin]):
    def __init__(self, node: RecentJoin, run: RunContext) -> None:
        super().__init__(node, run)
        self._live = SideRun(node.live, run)
        self._archive = SideRun(node.archive, run)
        self._figures = {"live_rows": 0, "archive_rows": 0, "pairs": 0}

    def _passing(self, columns: list[str], filter: RowFilter) -> Iterator[pa.RecordBatch]:
        return self._results(columns, filter)

    def _results(
        self, wanted: list[str], filter: RowFilter | None = None
    ) -> Iterator[pa.RecordBatch]:
        node = self._node
        whole = node.kind == "inner" and node.last is None
        for side, asked in ((self._live, filter), (self._archive, filter if whole else None)):
            side.passing = implied_on(asked, node.schema, dict(side.side.columns))
        needed = [*wanted, *node.condition_columns, *(name for key in node.keys for name in key)]
        needed += [*node.live.condition_columns, *node.archive.condition_columns]
        live, archive = self._read(needed)
        self._figures["live_rows"], self._figures["archive_rows"] = len(live), len(archive)
        mine, theirs = events_of(
            self._live, self._archive, node.unit,
            [(live.column(one), archive.column(other)) for one, other in node.keys],
            self._run.control.check,
        )  # fmt: skip
        pairing = Pairing(mine, theirs, node.distance, self._run.control.check)
        rows, satisfying = _Rows(live, archive, wanted, node.schema), None
        if node.condition is not None:
            satisfying = functools.partial(self._satisfy, live, archive)
        if node.kind in ("semi", "anti"):
            partnered = pairing.partnered(satisfying)
            chosen = np.flatnonzero(partnered if node.kind == "semi" else ~partnered)
            yield from rows.alone(chosen)
            return
        partnered = np.zeros(len(mine), np.bool_)
        batches = (
            pairing.batches() if node.last is None else [pairing.newest(node.last, satisfying)]
        )
        for ours, others in batches:
            if node.last is None and satisfying is not None:
                true = satisfying(ours, others)
                ours, others = ours[true], others[true]
            self._figures["pairs"] += len(ours)
            if node.kind == "left":
                partnered[ours] = True
            yield from rows.paired(ours, others)
        if node.kind == "left":
            yield from rows.alone(np.flatnonzero(~partnered))

    def _read(self, needed: list[str]) -> tuple[pa.Table, pa.Table]:
        """The rows of both sides; unless eager, those of the second only near the first."""
        node = self._node
        if node.ends != (None, None):
            live = self._live.ending(needed, node.ends)
            regions = regions_of(
                self._live, self._archive, live, node.keys, node.distance, node.unit, True
            )
            return live, self._archive.read(needed, regions)
        if node.order == "archive_first":
            archive = self._archive.read(needed)
            keys = [(other, one) for one, other in node.keys]
            regions = regions_of(
                self._archive, self._live, archive, keys, node.distance, node.unit, False
            )
            return self._live.read(needed, regions), archive
        live = self._live.read(needed)
        if node.order == "eager":
            return live, self._archive.read(needed)
        regions = regions_of(
            self._live, self._archive, live, node.keys, node.distance, node.unit, True
        )
        return live, self._archive.read(needed, regions)

    def _satisfy(self, live: pa.Table, archive: pa.Table, ours: Ints, others: Ints) -> Mask:
        """Which pairs satisfy the join's condition."""
        self._run.control.check()
        columns = {
            name: live.column(name).take(pa.array(ours))
            if name in live.column_names
            else archive.column(name).take(pa.array(others))
            for name in self._node.condition_columns
        }
        if not columns:  # a condition of constants
            columns = {"one": pa.array(np.ones(len(ours), np.bool_))}
        truths = truths_of(self._node.condition, pa.table(columns))
        assert truths is not None
        return truths

    def explain(self) -> Operator:
        node = self._node
        details: list[tuple[str, str | tuple[str, ...]]] = [
            ("join", node.kind if node.last is None else f"{node.kind}, the last {node.last}"),
            (
                "within",
                "unbounded" if node.distance is None else length_text(node.distance, node.unit),
            ),
        ]
        details.append(("order", f"{node.order.replace('_', ' ')}: {node.why}"))
        for name, side in (("live_side", self._live), ("archive_side", self._archive)):
            if side.summary():
                details.append((name, side.summary()))
        if node.keys:
            details.append(("keys", tuple(f"{one} = {other}" for one, other in node.keys)))
        conditions = (node.condition, node.live.condition, node.archive.condition)
        details += [("condition", each.replace('"rows".', "")) for each in conditions if each]
        figures: tuple[tuple[str, int | float], ...] = ()
        if self._run.analyze:
            rows, spent = ("rows", self._rows), ("time_ms", self._seconds * 1000)
            figures = (rows, *self._figures.items(), spent)
        below = (self._live.explain(), self._archive.explain())
        return Operator("RecentJoin", tuple(details), figures, below)


class _Rows:
    def __init__(
        self, live: pa.Table, archive: pa.Table, wanted: Sequence[str], schema: pa.Schema
    ) -> None:
        self._live, self._archive = live, archive
        self._schema = pa.schema([schema.field(name) for name in wanted])

    def paired(self, ours: Ints, others: Ints) -> Iterator[pa.RecordBatch]:
        for low in range(0, len(ours), BATCH_ROWS):
            some = slice(low, low + BATCH_ROWS)
            yield self._batch(ours[some], pa.array(others[some]))

    def alone(self, ours: Ints) -> Iterator[pa.RecordBatch]:
        for low in range(0, len(ours), BATCH_ROWS):
            some = ours[low : low + BATCH_ROWS]
            yield self._batch(some, pa.nulls(len(some), pa.int64()))

    def _batch(self, ours: Ints, others: pa.Array) -> pa.RecordBatch:
        mine = pa.array(ours)
        arrays = []
        for field in self._schema:
            if field.name in self._live.column_names:
                column = self._live.column(field.name).take(mine)
            else:
                column = self._archive.column(field.name).take(others)
            arrays.append(column.combine_chunks().cast(field.type))
        if not arrays:
            raise AssertionError("a batch needs a column to have rows")
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
