"""Read many short ranges of positions together, with the flag of each range.  Rows, order and flags
are those of reading the ranges one after the other.

Intervals in object storage are read ahead.  Each request has a latency, and batches begin small for
queries with a LIMIT, so what many batches read together is requested at once, of all segments in
parallel, and the next group while rows are matched.  Only a hint: whatever fails is requested
again, and reported, by the reader.  At most two groups of about ``GROUP_BYTES`` (the first:
``FIRST_BYTES``) are in memory.

The rows around intervals are read too, all in the order of a full scan.  Spans near late events are
read by time.  Rows next to intervals are neighbours in the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.ownership import OwnThreads
from ...core.times import INT64_MAX
from ...errors import ChronicleError
from ...store.columns import Ranges
from ...store.layout import SECTION_BYTES
from ...store.leaf_map import LeafMap
from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot
from ..pattern.columns import decoded
from .replay_plan import ReplayIntervals
from .spans import Spans
from .timeline import Timeline, hulls, leaf_rows, read_positions, rows_at

FIRST_BYTES = 8 << 20
GROUP_BYTES = 32 << 20

SEGMENTS_AT_ONCE = 16

_asking = OwnThreads(SEGMENTS_AT_ONCE, "chronicle-ahead")

Ints = npt.NDArray[np.int64]
Cuts = Sequence[tuple[int, int]]


def _ahead(timeline: Timeline, ranges: Ints, cuts: Cuts, names: Sequence[str]) -> Iterator[Ints]:
    """Positions of ranges (int64[n, 2], grouped by ``cuts``), each when its data is in."""
    groups = _groups(ranges, cuts, len(names))
    coming: list[Future[None]] = []
    try:
        for number, group in enumerate(groups):
            if not number:
                coming = _ask(timeline, ranges, group, names)
            for answer in coming:
                answer.result()
            if number + 1 < len(groups):
                coming = _ask(timeline, ranges, groups[number + 1], names)
            for low, high in group:
                yield _positions(ranges[low:high])
    finally:
        for answer in coming:
            answer.cancel()


def _positions(ranges: Ints) -> Ints:
    lengths = ranges[:, 1] - ranges[:, 0]
    before = np.cumsum(lengths) - lengths
    return np.repeat(ranges[:, 0] - before, lengths) + np.arange(lengths.sum())


def _groups(ranges: Ints, cuts: Cuts, columns: int) -> list[Cuts]:
    rows = ranges[:, 1] - ranges[:, 0]
    size = np.cumsum(columns * (8 * rows + SECTION_BYTES))
    groups: list[list[tuple[int, int]]] = []
    done, most = 0, FIRST_BYTES
    for low, high in cuts:
        if not groups:
            groups.append([])
        elif int(size[high - 1]) - done > most:
            done, most = int(size[low - 1]), GROUP_BYTES
            groups.append([])
        groups[-1].append((low, high))
    return list(groups)


def _ask(timeline: Timeline, ranges: Ints, group: Cuts, names: Sequence[str]) -> list[Future[None]]:
    """Request the rows that lie in objects."""
    if not timeline.moved:
        return []
    positions = _positions(ranges[group[0][0] : group[-1][1]])
    return [
        _asking.pool().submit(_fetch, part.leaves, hulls(groups), names)
        for part, _, _, groups in leaf_rows(timeline, positions)
        if part.leaves is not None and part.leaves.view.file.moved
    ]


def _fetch(leaves: LeafMap, rows: Sequence[tuple[int, Ranges]], names: Sequence[str]) -> None:
    with suppress(ChronicleError):  # the reader reports the error
        for _ in leaves.ahead(rows, names):
            pass


Piece = tuple[pa.RecordBatch, "bool | npt.NDArray[np.bool_]"]
"""A batch, and whether its rows, or which of them, belong to an interval."""

GATHERED_FIRST, GATHERED_MAX = 1 << 12, 1 << 16
"""Events in the first and in the largest batch: a small LIMIT should not wait for a large one."""


def read_stretches(
    timeline: Timeline,
    columns: pa.Schema,
    stretches: Ints,
    metrics: ScanMetrics | None = None,
    check: Callable[[], None] | None = None,
    coded: str | None = None,
) -> Iterator[Piece]:
    """Rows of intervals and rows around them, many in a batch; ``check`` is called before each.
    ``stretches`` int64[n, 4] are ascending positions ``first, low, high, end``: rows [first, end)
    are read, of which [low, high) belong to an interval.  ``coded``: see ``read_rows``.
    """
    stretches = stretches[stretches[:, 3] > stretches[:, 0]]
    cuts = list(_cuts(np.cumsum(stretches[:, 3] - stretches[:, 0])))
    coming = _ahead(timeline, stretches[:, ::3], cuts, columns.names)
    for (at, stop), positions in zip(cuts, coming, strict=True):
        if check is not None:
            check()
        batch = read_rows(timeline, columns, positions, metrics, coded)
        inside = np.zeros(3 * (stop - at), np.bool_)
        inside[1::3] = True
        yield batch, np.repeat(inside, np.diff(stretches[at:stop], axis=1).ravel())


def _cuts(upto: Ints) -> Iterator[tuple[int, int]]:
    at, done, full = 0, 0, GATHERED_FIRST
    while at < len(upto):
        stop = min(len(upto), int(np.searchsorted(upto, done + full)) + 1)
        yield at, stop
        at, done, full = stop, int(upto[stop - 1]), min(GATHERED_MAX, 4 * full)


def read_ranges(
    timeline: Timeline, columns: pa.Schema, ranges: Ints, metrics: ScanMetrics | None = None
) -> pa.RecordBatch:
    """Base events of ascending, disjoint ranges int64[n, 2] as one batch."""
    return read_rows(timeline, columns, _positions(ranges), metrics)


def read_rows(
    timeline: Timeline,
    columns: pa.Schema,
    positions: Ints,
    metrics: ScanMetrics | None = None,
    coded: str | None = None,
) -> pa.RecordBatch:
    """Base events at ascending positions as one batch; the column ``coded`` may be a dictionary
    array, in which values may be repeated.
    """
    gathered = [arrays for _, _, arrays in rows_at(timeline, columns, positions, metrics)]
    if not gathered:
        return pa.RecordBatch.from_pylist([], schema=columns)
    fields, arrays = [], []
    for field, *parts in zip(columns, *gathered, strict=True):
        if field.name == coded and len(parts) > 1:
            parts = [_joined_codes(parts, len(positions))]
        elif field.name != coded:
            parts = [decoded(part) for part in parts]
        arrays.append(parts[0] if len(parts) == 1 else pa.concat_arrays(parts))
        fields.append(field.with_type(arrays[-1].type))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _joined_codes(parts: Sequence[pa.Array], rows: int) -> pa.Array:
    """Parts as one dictionary array unless their dictionaries have more values than ``rows``."""
    coded = [pa.types.is_dictionary(part.type) for part in parts]
    values = [p.dictionary if own else p for p, own in zip(parts, coded, strict=True)]
    starts = np.cumsum([0, *map(len, values)])
    if not any(coded) or starts[-1] > rows:
        return pa.concat_arrays([decoded(part) for part in parts])
    indices = [
        (part.indices.to_numpy() if own else np.arange(len(part), dtype=np.int32)) + start
        for part, own, start in zip(parts, coded, starts[:-1].astype(np.int32), strict=True)
    ]
    numbers = pa.array(np.concatenate(indices))
    return pa.DictionaryArray.from_arrays(numbers, pa.concat_arrays(values), safe=False)


BATCH_EVENTS = 1 << 17
ALONE_EVENTS = 1 << 14
"""Spans from this length on are passed on leaf by leaf, not copied into larger batches."""


def read_spans(
    snapshot: Snapshot,
    timeline: Timeline,
    intervals: ReplayIntervals,
    columns: Sequence[str],
    metrics: ScanMetrics | None = None,
    check: Callable[[], None] | None = None,
    ties: bool = False,
    dictionary: bool = False,
    coded: str | None = None,
) -> Iterator[Piece]:
    """Batches in stream order, with flags of interval rows.  With ``ties``, surrounding rows come
    with all others of their time, whose order may still change; ``dictionary`` allows codes in
    long spans, and for the column ``coded`` in all.
    """
    spans = intervals.spans
    output = pa.schema([snapshot.schema.arrow.field(name) for name in columns])
    if intervals.deciding is not None and not intervals.by_time:
        rows = intervals.deciding[Spans(intervals.deciding, intervals.deciding + 1).touches(spans)]
        rows = np.stack([rows + edge for edge in (0, 0, 1, 1)], axis=1)
        yield from read_stretches(timeline, output, rows, metrics, check, coded)
        return
    first, last = _around(timeline, intervals, ties)
    alone = spans.ends - spans.starts >= ALONE_EVENTS
    alone[list(intervals.by_time)] = True
    stretches = np.stack([first, spans.starts, spans.ends, last], axis=1)
    # of long spans and spans by time only the surrounding rows are gathered here
    none = np.zeros((0, 4), np.int64)
    at, behind = 0, none
    for number in [*np.flatnonzero(alone).tolist(), len(spans)]:
        ahead = stretches[number : number + 1, [0, 1, 1, 1]]
        waiting = np.concatenate([behind, stretches[at:number], ahead])
        yield from read_stretches(timeline, output, waiting, metrics, check, coded)
        if number == len(spans):
            break
        start, end = int(spans.starts[number]), int(spans.ends[number])
        ticks = intervals.by_time.get(number)
        if check is not None:
            check()
        if ticks is not None:
            stop = None if ticks[1] >= INT64_MAX else ticks[1] + 1
            for batch in snapshot.scan(ticks[0], stop, columns, metrics=metrics, check=check):
                yield batch, True
        else:
            for low in range(start, end, BATCH_EVENTS):
                if check is not None:
                    check()
                high = min(end, low + BATCH_EVENTS)
                for batch in read_positions(
                    timeline, columns, output, low, high, metrics, dictionary
                ):
                    yield batch, True
        at, behind = number + 1, stretches[number : number + 1, [2, 2, 2, 3]]


def _around(timeline: Timeline, intervals: ReplayIntervals, ties: bool) -> tuple[Ints, Ints]:
    spans, total = intervals.spans, timeline.total
    first = np.maximum(spans.starts - intervals.before, 0)
    last = np.minimum(spans.ends + intervals.after, total)
    if ties and len(spans):
        lower = timeline.lower(timeline.ticks_at(first))
        first = np.where(first < spans.starts, lower, first)
        upper = timeline.upper(timeline.ticks_at(last - 1))
        last = np.where(last > spans.ends, upper, last)
    last[:-1] = np.minimum(last[:-1], spans.starts[1:])
    first[1:] = np.maximum(first[1:], last[:-1])
    return first, last
