"""Read many short ranges of positions together: one decoded stretch per column, not one per range::

    ranges      |--|   |-----|        |---|  ||                  |--|
    leaf        |---------------- stretch ---------------|      |- stretch -|
    batch       |--|-----|---|||--|      copied together, with the flag of each range

A plain column without a codec is mapped whole; only what is copied is read.  Rows, order and flags
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

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import kernel
from ...core.ownership import OwnThreads
from ...core.times import INT64_MAX
from ...errors import ChronicleError
from ...store.columns import Ranges
from ...store.layout import SECTION_BYTES, Codec, Encoding
from ...store.leaf import LeafReader
from ...store.leaf_map import LeafMap
from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot
from .replay_plan import ReplayIntervals
from .timeline import Timeline, TimelinePart, near, read_positions, rows_at

FIRST_BYTES = 8 << 20
GROUP_BYTES = 32 << 20

SEGMENTS_AT_ONCE = 16

_asking = OwnThreads(SEGMENTS_AT_ONCE, "chronicle-ahead")

Ints = npt.NDArray[np.int64]
Cuts = Sequence[tuple[int, int]]
Wanted = Callable[[Ints], Iterable[tuple[LeafMap, Sequence[tuple[int, Ranges]]]]]
"""Maps ranges of positions to the rows of leaves in object storage."""


def ahead(ranges: Ints, cuts: Cuts, names: Sequence[str], wanted: Wanted) -> Iterator[Ints]:
    """Batches of ranges (int64[n, 2] positions, grouped by ``cuts``), each when its data is in."""
    groups = _groups(ranges, cuts, len(names))
    coming: list[Future[None]] = []
    try:
        for number, group in enumerate(groups):
            if not number:
                coming = _ask(ranges, group, names, wanted)
            for answer in coming:
                answer.result()
            if number + 1 < len(groups):
                coming = _ask(ranges, groups[number + 1], names, wanted)
            for low, high in group:
                yield ranges[low:high]
    finally:
        for answer in coming:
            answer.cancel()


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


def _ask(ranges: Ints, group: Cuts, names: Sequence[str], wanted: Wanted) -> list[Future[None]]:
    return [
        _asking.pool().submit(_fetch, leaves, rows, names)
        for leaves, rows in wanted(ranges[group[0][0] : group[-1][1]])
    ]


def _fetch(leaves: LeafMap, rows: Sequence[tuple[int, Ranges]], names: Sequence[str]) -> None:
    with suppress(ChronicleError):  # the reader reports the error
        for _ in leaves.ahead(rows, names):
            pass


Piece = tuple[pa.RecordBatch, "bool | npt.NDArray[np.bool_]"]
"""A batch, and whether its rows, or which of them, belong to an interval."""

DECODED_GAP = 4096
"""Events between two ranges that are decoded and discarded: about the cost of another call."""
GATHERED_FIRST, GATHERED_MAX = 1 << 12, 1 << 16
"""Events in the first and in the largest batch: a small LIMIT should not wait for a large one."""

SLICED_EVENTS = 192
"""Average events per range from which on text ranges are sliced rather than taken row by row."""
_WORDS: dict[int, type] = {32: np.int32, 64: np.int64}


def read_stretches(
    timeline: Timeline,
    columns: pa.Schema,
    stretches: Ints,
    metrics: ScanMetrics | None = None,
    check: Callable[[], None] | None = None,
) -> Iterator[Piece]:
    """Rows of intervals and rows around them, many in a batch; ``check`` is called before each.
    ``stretches`` int64[n, 4] are ascending positions ``first, low, high, end``: rows [first, end)
    are read, of which [low, high) belong to an interval.
    """
    stretches = stretches[stretches[:, 3] > stretches[:, 0]]
    cuts = list(_cuts(np.cumsum(stretches[:, 3] - stretches[:, 0])))
    coming = ahead(
        stretches[:, ::3], cuts, columns.names, lambda ranges: _in_objects(timeline, ranges)
    )
    for (at, stop), ranges in zip(cuts, coming, strict=True):
        if check is not None:
            check()
        batch = read_ranges(timeline, columns, ranges, metrics)
        inside = np.zeros(3 * (stop - at), np.bool_)
        inside[1::3] = True
        yield batch, np.repeat(inside, np.diff(stretches[at:stop], axis=1).ravel())


def _cuts(upto: Ints) -> Iterator[tuple[int, int]]:
    at, done, full = 0, 0, GATHERED_FIRST
    while at < len(upto):
        stop = min(len(upto), int(np.searchsorted(upto, done + full)) + 1)
        yield at, stop
        at, done, full = stop, int(upto[stop - 1]), min(GATHERED_MAX, 4 * full)


def _in_objects(
    timeline: Timeline, ranges: Ints
) -> Iterator[tuple[LeafMap, list[tuple[int, Ranges]]]]:
    for part, here in _by_part(timeline.parts, ranges):
        if part.leaves is not None and part.leaves.view.file.moved:
            leaves = _by_leaf(part.leaves.starts, here)
            yield part.leaves, [(number, _hulls(rows)) for number, rows in leaves]


def read_ranges(
    timeline: Timeline,
    columns: pa.Schema,
    ranges: Ints,
    metrics: ScanMetrics | None = None,
) -> pa.RecordBatch:
    """Base events of ascending, disjoint, non-empty ranges int64[n, 2] as one batch."""
    gathered: list[list[pa.Array]] = [[] for _ in columns]
    for part, here in _by_part(timeline.parts, ranges):
        _read_part(part, columns, here, gathered, metrics)
    arrays = [
        some[0] if len(some) == 1 else pa.concat_arrays(some or [pa.array([], field.type)])
        for some, field in zip(gathered, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def read_rows(
    timeline: Timeline, columns: pa.Schema, positions: Ints, metrics: ScanMetrics | None = None
) -> pa.RecordBatch:
    """Base events at ascending positions as one batch."""
    gathered: list[list[pa.Array]] = [[] for _ in columns]
    for _, _, arrays in rows_at(timeline, columns, positions, metrics):
        for some, array in zip(gathered, arrays, strict=True):
            coded = pa.types.is_dictionary(array.type)
            some.append(array.dictionary_decode() if coded else array)
    return pa.RecordBatch.from_arrays(list(map(pa.concat_arrays, gathered)), schema=columns)


@kernel
def _copy(values, ranges, start, out, at):  # type: ignore[no-untyped-def]
    """Copy the values of ranges; returns the filled length of the output."""
    for r in range(ranges.shape[0]):
        for i in range(ranges[r, 0] - start, ranges[r, 1] - start):
            out[at] = values[i]
            at += 1
    return at


def _by_part(parts: Sequence[TimelinePart], ranges: Ints) -> Iterator[tuple[TimelinePart, Ints]]:
    at, first = 0, -1
    while at < len(ranges):
        first = max(first, int(ranges[at, 0]))
        part = parts[bisect_right(parts, first, key=_end_of)]
        stop = max(at + 1, int(np.searchsorted(ranges[:, 0], part.end)))
        here = np.clip(ranges[at:stop], part.start, part.end) - part.start
        yield part, here
        first = part.end
        at = stop - (int(ranges[stop - 1, 1]) > part.end)  # a range may continue in the next part


def _end_of(part: TimelinePart) -> int:
    return part.end


def _read_part(
    part: TimelinePart,
    columns: pa.Schema,
    ranges: Ints,
    gathered: list[list[pa.Array]],
    metrics: ScanMetrics | None,
) -> None:
    if part.tail is not None:
        for some, field in zip(gathered, columns, strict=True):
            some.extend(_rows_of(part.tail.batch.column(field.name), ranges))
        return
    leaves = part.leaves
    assert leaves is not None
    wanted = list(_by_leaf(leaves.starts, ranges))
    near_rows = [(number, _hulls(here)) for number, here in wanted]
    coming = leaves.ahead(near_rows, columns.names)
    for (_, here), (leaf, rows) in zip(wanted, coming, strict=True):
        assert rows is not None
        for some, field in zip(gathered, columns, strict=True):
            some.extend(_slices(leaves, leaf, field, here, rows))
        if metrics is not None:
            metrics.blocks_read += 1
            metrics.events_read += int((here[:, 1] - here[:, 0]).sum())


def _hulls(ranges: Ints) -> Ranges:
    """Few ranges around all: many short ones would cost more to check than to read."""
    breaks = np.flatnonzero(ranges[1:, 0] - ranges[:-1, 1] > DECODED_GAP)
    first = ranges[np.append(0, breaks + 1), 0].tolist()
    return list(zip(first, ranges[np.append(breaks, -1), 1].tolist(), strict=True))


def _by_leaf(starts: Ints, ranges: Ints) -> Iterator[tuple[int, Ints]]:
    first = np.searchsorted(starts, ranges[:, 0], side="right") - 1
    count = np.searchsorted(starts, ranges[:, 1], side="left") - first
    mine = np.repeat(np.arange(len(ranges)), count)
    numbers = first[mine] + np.arange(len(mine)) - np.repeat(np.cumsum(count) - count, count)
    within = ranges[mine]
    within[:, 0] = np.maximum(within[:, 0], starts[numbers])
    within[:, 1] = np.minimum(within[:, 1], starts[numbers + 1])
    within -= starts[numbers, None]
    for low, high in near(numbers, 0):
        yield int(numbers[low]), within[low:high]


def _slices(
    leaves: LeafMap, leaf: LeafReader, field: pa.Field, ranges: Ints, rows: Ranges
) -> Iterator[pa.Array]:
    view, name = leaves.view, field.name
    if name not in view.file.schema:  # the file is older than the attribute
        yield pa.nulls(int((ranges[:, 1] - ranges[:, 0]).sum()), field.type)
        return
    entry = leaf.chunk_entry(name)
    as_it_is = entry.codec is Codec.NONE and entry.encoding in (Encoding.PLAIN, Encoding.VARIABLE)
    apart = np.zeros(0, np.int64)
    if not as_it_is:
        apart = np.flatnonzero(ranges[1:, 0] - ranges[:-1, 1] > DECODED_GAP) + 1
    for begin, end in pairwise([0, *apart.tolist(), len(ranges)]):
        low, high = int(ranges[begin, 0]), int(ranges[end - 1, 1])
        array = view.column(leaf, name, low, high, encoded=True, ranges=rows if as_it_is else None)
        for some in _rows_of(array, ranges[begin:end] - low):
            yield some.dictionary_decode() if pa.types.is_dictionary(some.type) else some


def _rows_of(array: pa.Array, ranges: Ints) -> Iterator[pa.Array]:
    lengths = ranges[:, 1] - ranges[:, 0]
    rows = int(lengths.sum())
    if rows == len(array):
        yield array
        return
    copied = _copied(array, ranges, rows)
    if copied is not None:
        yield copied
    elif rows >= SLICED_EVENTS * len(ranges):
        for first, end in ranges.tolist():
            yield array.slice(first, end - first)
    else:
        before = np.cumsum(lengths) - lengths
        yield array.take(pa.array(np.repeat(ranges[:, 0] - before, lengths) + np.arange(rows)))


def _copied(array: pa.Array, ranges: Ints, rows: int) -> pa.Array | None:
    """Ranges of numbers or dictionary codes as one array; None for other types and nulls."""
    if pa.types.is_dictionary(array.type):
        codes = _copied(array.indices, ranges, rows)
        if codes is None:
            return None
        return pa.DictionaryArray.from_arrays(codes, array.dictionary, safe=False)
    word = _word_of(array.type)
    if word is None or array.null_count:
        return None
    begin = array.offset * np.dtype(word).itemsize
    values: npt.NDArray[Any] = np.frombuffer(array.buffers()[1], word, len(array), begin)
    values.flags.writeable = False
    out: npt.NDArray[Any] = np.empty(rows, word)
    _copy(values, ranges, 0, out, 0)
    return pa.Array.from_buffers(array.type, rows, [None, pa.py_buffer(out)])


def _word_of(type_: pa.DataType) -> type | None:
    if not pa.types.is_primitive(type_) or pa.types.is_boolean(type_):
        return None
    return _WORDS.get(type_.bit_width)


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
) -> Iterator[Piece]:
    """Batches in stream order, with flags of interval rows.  With ``ties``, surrounding rows come
    with all others of their time, whose order may still change; ``dictionary`` allows codes.
    """
    spans = intervals.spans
    output = pa.schema([snapshot.schema.arrow.field(name) for name in columns])
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
        yield from read_stretches(timeline, output, waiting, metrics, check)
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
