"""Snapshots: a stream at one moment, immutable and cheap, for any number of readers.

Every answer is that of a stable sort by time of the committed events, in base segments, late runs,
the late buffer and the tail.  ``Snapshot.aggregate`` is logarithmic in the stream, once for the
base and once per late run in the range.  ``Snapshot.scan`` reads only leaves that bounds and
predicate do not exclude, and holds a batch per source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from ..core.caches import lazy
from ..core.times import half_open
from ..schema import StreamSchema
from .aggregates import LightweightAggregates
from .layout import ROW_LENGTH
from .leaf_map import leaf_map
from .merge import merge_sources
from .prune import Prune, RowFilter
from .segment import TICK_MAX, TICK_MIN, Aggregation, Scan, ScanMetrics, SegmentView
from .segment_views import NO_SEGMENTS, RootRun, SegmentViews
from .tail import MemoryLeaf
from .tap import disjoint

Source = TypeVar("Source", SegmentView, MemoryLeaf)


@dataclass(frozen=True)
class StreamState:
    """The content of a stream after a commit.

    ``segments``: base segments in time order, the active one last.
    ``runs``, ``late``: late runs, oldest first; the late buffer in arrival order.
    ``dropped``: events that retention has removed, or hides.
    ``last``: newest in-order tick.
    ``stored``: visible events in segments and runs.
    ``rewritten``, ``truncated``: position of the newest delete or update, and truncation; or 0.
    ``dropped_before``: exclusive upper bound of dropped events' ticks; None if none, or unknown.
    ``floor``: retention shows nothing before this tick; None if it hides nothing.
    ``notes``: what readers computed from this state; another state has none.
    """

    schema: StreamSchema
    position: int = 0
    manifest_version: int = 0
    segments: SegmentViews = NO_SEGMENTS
    runs: tuple[SegmentView, ...] = ()
    late: tuple[MemoryLeaf, ...] = ()
    tail: Callable[[], MemoryLeaf] | None = None
    tail_events: int = 0
    dropped: int = 0
    last: int | None = None
    stored: int = 0
    deleted: int = 0
    rewritten: int = 0
    dropped_before: int | None = None
    truncated: int = 0
    marks: Mapping[str, Any] = field(default_factory=dict)
    floor: int | None = None
    notes: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def gone(self) -> int:
        return self.dropped + self.deleted

    @lazy
    def range_shown(self) -> tuple[int, int] | None:
        """First and last tick, where some events are hidden."""
        span = Snapshot(self).aggregate(())
        return None if span.first is None or span.last is None else (span.first, span.last)

    def close(self) -> None:
        self.segments.close()
        for view in self.runs:
            view.close()


class Snapshot:
    def __init__(self, state: StreamState) -> None:
        self.state = state
        self.schema = state.schema

    @property
    def version(self) -> int:
        """Commit position: grows by one with every commit."""
        return self.state.position

    @property
    def count(self) -> int:
        state = self.state
        count: int = state.stored + sum(leaf.events for leaf in state.late) + state.tail_events
        return count

    @lazy
    def time_range(self) -> tuple[int, int] | None:
        """First and last tick, both inclusive; None without events."""
        spans = self.state.segments.spans
        spans += [(view.first, view.last) for view in self.state.runs]
        spans += [(leaf.first, leaf.last) for leaf in self._leaves()]
        if not spans:
            return None
        first, last = min(first for first, _ in spans), max(last for _, last in spans)
        if self.state.floor is not None and first < self.state.floor:
            return self.state.range_shown
        return first, last

    def _leaves(self) -> list[MemoryLeaf]:
        tail = self.state.tail
        return [*self.state.late, *([tail()] if tail is not None else [])]

    def dirty_ranges(self) -> list[tuple[int, int]]:
        """Inclusive, disjoint time ranges of late events that are not folded yet."""
        sources: list[SegmentView | MemoryLeaf] = [*self.state.runs, *self.state.late]
        floor = TICK_MIN if self.state.floor is None else self.state.floor
        return disjoint((max(floor, each.first), each.last) for each in sources)

    def events_between(self, start: int | None, end: int | None) -> int:
        """Number of events with start <= t < end, in ticks."""
        return self.aggregate((), start, end).count

    def aggregate(
        self,
        attributes: Sequence[str],
        start: int | None = None,
        end: int | None = None,
        *,
        metrics: ScanMetrics | None = None,
    ) -> LightweightAggregates:
        """Aggregate events with start <= t < end, in ticks; ``attributes`` may be empty."""
        low, high = self._shown(start, end)
        sums = Aggregation(self.schema, attributes, low, high, metrics)
        if low > high:
            return sums
        state = self.state
        for part in chain(state.segments.parts(low, high), _within(state.runs, low, high)):
            schema = part.schema if isinstance(part, RootRun) else part.file.schema
            if schema.names == self.schema.names:
                _aggregate(part, sums)
            else:
                older = Aggregation(schema, sums.names, low, high, sums.metrics)
                _aggregate(part, older)
                sums.add_part(older)
        for leaf in _within(self._leaves(), low, high):
            if not sums.names:
                sums.add_ticks(leaf.ticks(*leaf.rows(low, high)))
                continue
            zones = leaf.zones_of(sums.names)
            sums.add_zones(leaf, zones, sums.order, leaf.column)
        return sums

    def scan(
        self,
        start: int | None = None,
        end: int | None = None,
        columns: Sequence[str] | None = None,
        *,
        prune: Prune | None = None,
        filter: RowFilter | None = None,
        limit: int | None = None,
        dictionary: bool = False,
        metrics: ScanMetrics | None = None,
        check: Callable[[], None] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the events with start <= t < end, in ticks, in time order, ties in arrival order.
        ``prune`` skips blocks; ``filter`` is exact and may use other columns; ``dictionary`` allows
        encoded strings; ``check`` is called between blocks and may raise.
        """
        low, high = self._shown(start, end)
        wanted = self.schema.select(columns)
        needed = list(wanted)
        if filter is not None:
            needed += [name for name in filter.columns if name not in needed]
        remaining = limit
        if low > high or remaining == 0:
            return
        output = pa.schema([self.schema.arrow.field(name) for name in needed])
        exact = filter is None
        most = limit if exact else None
        counts = metrics or ScanMetrics()
        scan = Scan(needed, output, low, high, prune, dictionary and exact, most, counts)
        for batch in self._raw(scan):
            if check is not None:
                check()
            if filter is not None:
                batch = filter(batch)
            if len(needed) != len(wanted):
                batch = batch.select(wanted)
            if remaining is not None and batch.num_rows >= remaining:
                if remaining:
                    yield batch.slice(0, remaining)
                return
            if batch.num_rows:
                if remaining is not None:
                    remaining -= batch.num_rows
                yield batch

    def _shown(self, start: int | None, end: int | None) -> tuple[int, int]:
        low, high = closed(start, end)
        floor = self.state.floor
        return low if floor is None else max(low, floor), high

    def _raw(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        """Pruned, merged batches."""
        state, low, high = self.state, scan.first, scan.last
        runs, buffers = _within(state.runs, low, high), _within(state.late, low, high)
        if not runs and not buffers:
            yield from self._base(scan)
            return
        columns, merged = scan.columns, replace(scan, dictionary=False)
        if self.schema.time not in columns:
            output = scan.output.append(self.schema.arrow.field(self.schema.time))
            merged = replace(merged, columns=output.names, output=output)
        sources = [self._base(merged), *(view.scan(merged) for view in runs)]
        sources += [_scan_memory(leaf, merged) for leaf in buffers]
        for batch in merge_sources(sources, self.schema):
            yield batch if merged.columns is columns else batch.select(columns)

    def _base(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        for view in self.state.segments.within(scan.first, scan.last):
            yield from view.scan(scan)
        tail = self.state.tail
        if tail is not None:
            yield from _scan_memory(tail(), scan)

    def first_last(
        self, attribute: str, start: int | None = None, end: int | None = None
    ) -> tuple[pa.Scalar | None, pa.Scalar | None]:
        """Value of an attribute in the first and last event of a range; None without events."""
        span = self.aggregate((), start, end)
        if span.first is None or span.last is None:
            return None, None
        first = last = None
        for batch in self.scan(span.first, span.first + 1, [attribute], limit=1):
            first = batch.column(0)[0]
        stop = None if span.last == TICK_MAX else span.last + 1
        for batch in self.scan(span.last, stop, [attribute]):
            last = batch.column(0)[-1]
        return first, last

    def ranges(
        self, parts: int, start: int | None = None, end: int | None = None
    ) -> list[tuple[int | None, int | None]]:
        """Cut [start, end) at leaf boundaries into at most ``parts`` ranges of similar size."""
        low, high = self._shown(start, end)
        leaves = [leaf_map(view) for view in self.state.segments.within(low, high)]
        if not leaves or parts <= 1:
            return [(start, end)]
        shown = np.concatenate([each.last_ticks for each in leaves]) >= low
        ticks = np.concatenate([each.first_ticks for each in leaves])[shown]
        weight = np.concatenate([each.table[ROW_LENGTH] for each in leaves])[shown].cumsum()
        goals = weight[-1] * np.arange(1, parts) / parts
        cuts = np.unique(ticks[np.searchsorted(weight, goals, side="left").clip(0, ticks.size - 1)])
        inside = (int(cut) for cut in cuts if cut > ticks[0] and low < cut <= high)
        return list(pairwise([start, *inside, end]))


def _within(sources: Sequence[Source], first: int, last: int) -> list[Source]:
    return [each for each in sources if each.last >= first and each.first <= last]


def _aggregate(part: SegmentView | RootRun, sums: Aggregation) -> None:
    if isinstance(part, RootRun):
        sums.add(part.table, part.skipped, part.skipped + part.end - part.first)
    else:
        part.aggregate(sums)


def closed(start: int | None, end: int | None) -> tuple[int, int]:
    """The inclusive range of ticks [start, end)."""
    return TICK_MIN if start is None else start, TICK_MAX if end is None else end - 1


def _scan_memory(leaf: MemoryLeaf, scan: Scan) -> Iterator[pa.RecordBatch]:
    first, end = leaf.rows(scan.first, scan.last)
    if end > first:
        batch = leaf.batch.slice(first, end - first)
        if not scan.columns:
            yield batch.select([])
            return
        arrays = [batch.column(leaf.schema.names.index(name)) for name in scan.columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=scan.output)


def tail_start(snapshot: Snapshot, low: int, high: int, rows: int) -> int:
    """The latest tick from which on, up to ``high``, there are at least ``rows`` events."""
    span = snapshot.time_range
    if span is None or low > high:
        return low
    first, last = max(low, span[0]), min(high, span[1])
    if first > last or rows <= 0:
        return low

    def events(tick: int) -> int:
        start, end = half_open(tick, high)
        return snapshot.events_between(start, end)

    total = events(first)
    if total <= rows:
        return low
    # find the greatest tick with enough events: start where it would be for a uniform
    # distribution, go back exponentially until there are enough, then bisect
    good, bad = first, last + 1
    width = max(1, (last - first + 1) * rows // total)
    while last + 1 - width > first:
        tick, width = last + 1 - width, 4 * width
        if events(tick) >= rows:
            good = tick
            break
        bad = tick
    while bad - good > 1:
        middle = (good + bad) // 2
        if events(middle) >= rows:
            good = middle
        else:
            bad = middle
    return good
