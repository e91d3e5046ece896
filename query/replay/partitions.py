"""Partitions at query time: the keys of candidates, and which events have one of them.

Index entries hold positions, not partitions.  The partitions of the rarest symbol's occurrences are
numbered; other events get -1, because a partition without an occurrence of every symbol has no
match::

    position                 4    9   17   18   23
    occurrences of GROUND    x         x         x
    icao24                   a         b         a        learned:  a = 0, b = 1
    any event's code         0   -1    1   -1    0

Keys are equal when they are for the matcher (``pattern.columns.KeyCodes``); nulls are equal.  Of
dictionary columns only the packed codes of the wanted rows are decoded, and looked up once per
dictionary.

``PartitionSpans`` says which rows of which partition are replayed.  One number per event, so that
``Spans`` does the set algebra; no span crosses a partition's end::

    place = code * stride + position          stride > every position

    partition 0        partition 1        partition 2
    |...xxx.....xx...||....xxxxx.......||xx..............|     sorted, disjoint spans

``^``, ``$``, NEXT and PREV need the rows of partitions right before and after intervals.  Keys are
read near the intervals first, and farther away only for partitions with missing rows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.native import kernel
from ...core.sorting import distinct, firsts, numbered, order_of
from ...core.times import moved
from ...schema import StreamSchema
from ..conditions.constants import comparable
from .spans import READ_GAP, Spans
from .timeline import Timeline, read_arrays, rows_at

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
FIRST_EVENTS, PIECE_EVENTS = 1 << 15, 1 << 16
"""Events whose codes are read at a time, at first and then: a small LIMIT should not wait."""
ROWS_HELD = 1 << 14
"""Rows of intervals, at most, whose positions are held for further runs of a plan."""


class PartitionKeys:
    """Numbers the partitions of PARTITION BY ``columns``.  ``count``: known partitions;
    ``places[count]``: an event of each, if learned from events.
    """

    def __init__(self, timeline: Timeline, columns: Sequence[str], schema: StreamSchema) -> None:
        self.columns = tuple(columns)
        self.count = 0
        self.events_read = 0
        self.places = np.zeros(0, np.int64)
        self._timeline = timeline
        self._output = pa.schema([schema.arrow.field(name) for name in columns])
        self._values: list[pa.Array] = []
        self._pairs: list[Ints] = []
        self._mapped: list[tuple[pa.Array, Ints] | None] = [None] * len(self.columns)
        self._held: tuple[Spans, Codes] | None = None

    def on(self, timeline: Timeline | None) -> PartitionKeys:
        """The same numbers for another timeline of the same events, or for none, to be sent."""
        moved = copy.copy(self)
        moved._timeline = timeline  # type: ignore[assignment]
        moved.events_read = 0
        moved.forget()
        moved._mapped = [None] * len(self.columns)
        return moved

    # -- learning -----------------------------------------------------------------------------

    def learn(self, positions: Ints) -> Ints:
        """Number the partitions of the events at ascending positions; returns the code of each."""
        parts: list[list[pa.Array]] = [[pa.array([], field.type)] for field in self._output]
        for _, _, arrays in rows_at(self._timeline, self._output, positions):
            for part, array in zip(parts, arrays, strict=True):
                part.append(array)
        self.events_read += len(positions)
        codes = self.number(list(map(_joined, parts)))
        self.places = positions[firsts(codes)[1]]
        return codes

    def number(self, columns: Sequence[pa.Array]) -> Ints:
        codes: Ints = np.zeros(len(columns[0]), np.int64)
        self.forget()
        self._values, self._pairs = [], []
        self._mapped = [None] * len(self.columns)
        for column in columns:
            coded = pa.types.is_dictionary(column.type)
            values = comparable(column.dictionary if coded else column)
            encoded = pc.dictionary_encode(values, null_encoding="encode")
            self._values.append(encoded.dictionary)
            own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            if coded:
                own = own[column.indices.to_numpy()]
            pairs, codes = numbered(codes * max(1, len(encoded.dictionary)) + own)
            self._pairs.append(pairs)
        self.count = len(self._pairs[-1])
        return codes.astype(np.int64)

    def key(self, code: int) -> tuple[Any, ...]:
        parts = []
        for output, values, pairs in zip(
            reversed(self._output), reversed(self._values), reversed(self._pairs), strict=True
        ):
            code, own = divmod(int(pairs[code]), max(1, len(values)))
            value = values.slice(own, 1)
            parts.append(
                (value if value.type == output.type else value.view(output.type))[0].as_py()
            )
        return tuple(reversed(parts))

    # -- codes of events ----------------------------------------------------------------------

    def codes(self, arrays: Sequence[pa.Array]) -> Ints:
        """Codes of events given their partition columns; -1 for other partitions."""
        if len(arrays) == 1:
            return self._own(0, arrays[0])  # its own codes are the partition codes
        numbers: Ints = np.zeros(len(arrays[0]), np.int64)
        for i, array in enumerate(arrays):
            own = self._own(i, array)
            pair = numbers * max(1, len(self._values[i])) + own
            distinct = self._pairs[i]
            if not len(distinct):
                return np.full(len(numbers), -1, np.int64)
            place = np.minimum(np.searchsorted(distinct, pair), len(distinct) - 1)
            hit = (numbers >= 0) & (own >= 0) & (distinct[place] == pair)
            numbers = np.where(hit, place, -1)
        return numbers

    def codes_at(self, positions: Ints) -> Ints:
        """Codes of the base events at ascending positions."""
        count, first = len(positions), int(positions[0]) if len(positions) else 0
        self.events_read += count
        out = np.empty(count, np.int64)
        if count and int(positions[-1]) - first + 1 == count:  # pages are decoded whole
            for low, arrays in read_arrays(
                self._timeline, self.columns, self._output, first, first + count, dictionary=True
            ):
                out[low - first : low - first + len(arrays[0])] = self.codes(arrays)
            return out
        for low, high, arrays in rows_at(self._timeline, self._output, positions):
            out[low:high] = self.codes(arrays)
        return out

    def codes_in(self, spans: Spans) -> Codes:
        """Codes of the base events in spans, held until ``forget`` or other spans are asked for."""
        held = self._held
        if held is None or not all(
            map(np.array_equal, (held[0].starts, held[0].ends), (spans.starts, spans.ends))
        ):
            pieces = spans.positions(PIECE_EVENTS, PIECE_EVENTS)
            codes = [self.codes_at(positions).astype(np.int32) for positions in pieces]
            held = self._held = spans, np.concatenate([np.zeros(0, np.int32), *codes])
        return held[1]

    def forget(self) -> None:
        self._held = None

    def _own(self, number: int, array: pa.Array) -> Ints:
        values = self._values[number]
        if not pa.types.is_dictionary(array.type):
            return _places_in(comparable(array), values)
        mapped = self._mapped[number]
        if mapped is None or mapped[0] is not array.dictionary:
            same = mapped is not None and _same_buffers(mapped[0], array.dictionary)
            mapping = mapped[1] if same and mapped is not None else None
            if mapping is None:
                null = _places_in(pa.nulls(1, values.type), values)
                mapping = np.concatenate([_places_in(array.dictionary, values), null])
            mapped = array.dictionary, mapping
            self._mapped[number] = mapped
        indices = array.indices
        if indices.null_count:
            indices = indices.fill_null(len(mapped[1]) - 1)
        codes: Ints = mapped[1][indices.to_numpy(zero_copy_only=False)]
        return codes


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    """Arrays as one dictionary array, with only the values that occur, perhaps repeatedly."""
    values, numbers, count = [], [], 0
    for part in parts:
        number = np.arange(len(part))
        if pa.types.is_dictionary(part.type):
            codes = part.indices.to_numpy()
            used = np.zeros(len(part.dictionary), np.bool_)
            used[codes] = True
            number = (np.cumsum(used) - 1)[codes]
            part = part.dictionary.take(pa.array(np.flatnonzero(used)))
        values.append(part)
        numbers.append(count + number)
        count += len(part)
    indices = pa.array(np.concatenate(numbers), pa.int64())
    return pa.DictionaryArray.from_arrays(indices, pa.concat_arrays(values), safe=False)


def _places_in(array: pa.Array, values: pa.Array) -> Ints:
    if array.type != values.type:
        array = array.cast(values.type)
    places_of = pc.index_in(array, value_set=values)
    places: Ints = places_of.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return places


def _same_buffers(a: pa.Array, b: pa.Array) -> bool:
    if len(a) != len(b) or a.offset != b.offset:
        return False
    mine = [buffer.address if buffer is not None else 0 for buffer in a.buffers()]
    theirs = [buffer.address if buffer is not None else 0 for buffer in b.buffers()]
    return mine == theirs


@kernel
def _flag_rows(codes, positions, stride, lows, highs, cursor, stops, flags, value):  # type: ignore[no-untyped-def]
    """Set the flags of ascending positions that lie in a span of their partition."""
    for i in range(codes.shape[0]):
        code = codes[i]
        if code < 0:
            continue
        place = code * stride + positions[i]
        j = cursor[code]
        stop = stops[code]
        while j < stop and highs[j] <= place:
            j += 1
        cursor[code] = j
        if j < stop and lows[j] <= place:
            flags[i] = value


@dataclass(frozen=True)
class PartitionSpans:
    """Places that may be part of a match (``inside``), and those only around them (``shown``).  The
    two may overlap; ``keys`` numbers the partitions; ``deciding``: ascending positions, with their
    codes, without which no event inside matters (None: all matter); ``chosen``: rows that earlier
    runs of the plan found in ranges of the stream.
    """

    keys: PartitionKeys
    inside: Spans
    shown: Spans
    stride: int
    deciding: tuple[Ints, Ints] | None = None
    chosen: dict[tuple[int, int, int], list[Any]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @classmethod
    def of(
        cls, keys: PartitionKeys, codes: Ints, low: Ints, high: Ints, stride: int
    ) -> PartitionSpans:
        """From ranges [low, high) of partitions, in any order."""
        at = codes * stride
        return cls(keys, Spans.of(at + low, at + high), Spans.empty(), stride)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.keys.columns

    @property
    def partitions(self) -> int:
        return len(distinct(self.inside.starts // self.stride))

    def hull(self) -> Spans:
        both = self.inside.union(self.shown)
        base = both.starts // self.stride * self.stride
        return Spans.of(both.starts - base, both.ends - base)

    def whole_ticks(self, timeline: Timeline) -> PartitionSpans:
        base = self.inside.starts // self.stride * self.stride
        low, high = self.inside.starts - base, self.inside.ends - base
        order = order_of(low)
        low[order] = timeline.lower(timeline.ticks_at(low[order]))
        order = order_of(high)
        high[order] = timeline.upper(timeline.ticks_at(high[order] - 1))
        return self._moved(Spans.of(base + low, base + high))

    def bridged(self, timeline: Timeline, within: int, others: Spans) -> PartitionSpans:
        """Without gaps shorter than the window, across which rows would look like neighbours."""
        code = self.inside.starts // self.stride
        low, high = self.inside.starts - code * self.stride, self.inside.ends - code * self.stride
        after = np.full(len(code), self.stride, np.int64)  # where the next rows are
        after[:-1][code[1:] == code[:-1]] = low[1:][code[1:] == code[:-1]]
        at = np.searchsorted(others.starts, high)
        after = np.minimum(after, np.append(others.starts, self.stride)[at])
        order = order_of(high)
        reach = np.empty(len(code), np.int64)
        reach[order] = timeline.upper(moved(timeline.ticks_at(high[order] - 1), within))
        high = np.where(after < reach, after, high)
        at = np.searchsorted(others.ends, low, side="right") - 1
        before = np.append(others.ends, 0)[at]
        order = order_of(low)
        reach[order] = timeline.lower(moved(timeline.ticks_at(low[order]), -within))
        low = np.where((at >= 0) & (before > reach), before, low)
        base = code * self.stride
        return self._moved(Spans.of(base + low, base + high))

    def intersect(self, positions: Spans) -> PartitionSpans:
        code = self.inside.starts // self.stride
        first = np.searchsorted(positions.ends, self.inside.starts - code * self.stride, "right")
        last = np.searchsorted(positions.starts, self.inside.ends - code * self.stride, "left")
        counts = np.maximum(last - first, 0)
        mine = np.repeat(np.arange(len(code)), counts)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        theirs = first[mine] + within
        at = code[mine] * self.stride
        low = np.maximum(self.inside.starts[mine], at + positions.starts[theirs])
        high = np.minimum(self.inside.ends[mine], at + positions.ends[theirs])
        return self._moved(Spans.of(low, high))

    def _moved(self, inside: Spans) -> PartitionSpans:
        return PartitionSpans(self.keys, inside, self.shown, self.stride, self.deciding)

    def events(
        self, spans: Spans, first: int, most: int, check: Callable[[], None]
    ) -> Iterator[tuple[Ints, Ints]]:
        """Positions in spans that may matter, and their codes, at most so many at a time."""
        if self.deciding is not None:
            positions, codes = self.deciding
            there = np.flatnonzero(Spans(positions, positions + 1).touches(spans))
            cuts = [0, *range(first, len(there), most), len(there)]
            for low, high in pairwise(cuts):
                check()
                yield positions[there[low:high]], codes[there[low:high]]
            return
        for positions in spans.positions(first, most):
            check()
            yield positions, self.keys.codes_at(positions)


def united_partitions(found: Sequence[PartitionSpans]) -> PartitionSpans:
    """The union of several sets, which may number their partitions differently."""
    if len(found) == 1:
        return found[0]
    first = found[0].keys
    if all(some.keys is first for some in found):
        inside, shown = Spans.empty(), Spans.empty()
        for some in found:
            inside, shown = inside.union(some.inside), shown.union(some.shown)
        return PartitionSpans(first, inside, shown, found[0].stride)
    keys = copy.copy(first)
    places = np.concatenate([some.keys.places for some in found])
    order = order_of(places)
    codes = np.empty(len(places), np.int64)
    codes[order] = keys.learn(places[order])
    others = {id(some.keys): some.keys.events_read for some in found if some.keys is not first}
    keys.events_read += sum(others.values())
    sets: list[Spans] = []
    stride, begin = found[0].stride, 0
    for some in found:
        code_of = codes[begin : begin + some.keys.count] * stride
        begin += some.keys.count
        for spans in (some.inside, some.shown):
            own = spans.starts // stride
            moved = code_of[own] - own * stride
            sets.append(Spans.of(spans.starts + moved, spans.ends + moved))
    inside, shown = Spans.empty(), Spans.empty()
    for one, other in zip(sets[::2], sets[1::2], strict=True):
        inside, shown = inside.union(one), shown.union(other)
    return PartitionSpans(keys, inside, shown, stride)


SHOWN, INSIDE = 1, 2


class RowFlags:
    """Flags rows by ascending position: ``INSIDE``, ``SHOWN``, or 0 for neither."""

    def __init__(self, spans: PartitionSpans) -> None:
        self._stride = spans.stride
        edges = np.arange(spans.keys.count + 1) * spans.stride
        self._sets = []
        for value, some in ((SHOWN, spans.shown), (INSIDE, spans.inside)):
            if len(some):
                at = np.searchsorted(some.starts, edges).astype(np.int64)
                self._sets.append((value, some, at[:-1].copy(), at[1:]))

    def of(self, codes: Ints, positions: Ints) -> npt.NDArray[np.uint8]:
        """Flags of ascending positions, given the codes of their partitions."""
        flags = np.zeros(len(codes), np.uint8)
        for value, some, cursor, stops in self._sets:
            _flag_rows(
                codes, positions, self._stride, some.starts, some.ends, cursor, stops, flags, value
            )
        return flags


FIRST_REACH = 1 << 10
"""Events on each side of an interval in which rows are searched first."""
FARTHER = 8
MUCH = 4
"""All rows are read if a search would begin with one of so many."""
REGION_MOST = 1 << 22
"""Events whose keys are held at a time."""


def rows_beside(
    keys: PartitionKeys,
    total: int,
    intervals: tuple[Ints, Ints, Ints],
    before: int,
    after: int,
) -> list[Ints] | None:
    """Positions of the ``before`` last rows before intervals (code, first, one past the last),
    nearest first, then of the rows after; -1 if there is none.  None if they may be far away.
    """
    code, low, high = intervals
    sides = _Side(code, low, before, total, False), _Side(code, high, after, total, True)
    reach = FIRST_REACH
    while any(len(side.open) for side in sides):
        spans = Spans.empty()
        for side in sides:
            spans = spans.union(side.stretches(reach))
        spans = spans.joined(READ_GAP)
        if total <= min(MUCH * spans.total, REGION_MOST):
            reach, spans = total, Spans.of([0], [total])
        if spans.total > REGION_MOST:
            return None
        codes = keys.codes_in(spans)
        for side in sides:
            side.look(spans, codes, reach, keys.count)
        reach *= FARTHER
    return [row for side in sides for row in side.found]


@kernel
def _nearest(codes, begin, order, steps, code, forward, last, out):  # type: ignore[no-untyped-def]
    """Steps from each beginning to the next rows of a partition, as many as ``out`` has rows.

    One pass, backward if ``forward``; ``order``: beginnings as the pass comes to them;
    ``last[partitions, rows]``: -1, for the last rows of each.
    """
    rows = out.shape[0]
    done = 0
    for passed in range(codes.shape[0]):
        at = codes.shape[0] - 1 - passed if forward else passed
        here = codes[at]
        if here >= 0:
            for row in range(rows - 1, 0, -1):
                last[here, row] = last[here, row - 1]
            last[here, 0] = at
        while done < order.shape[0] and begin[order[done]] == at:
            i = order[done]
            for row in range(rows):
                step = abs(last[code[i], row] - at)
                if last[code[i], row] < 0 or step >= steps[i]:
                    break
                out[row, i] = step
            done += 1


@dataclass
class _Side:
    """One side of intervals.  ``edge``: first position, or one past the last; ``found``: nearest
    first; ``open``: intervals with missing rows.
    """

    code: Ints
    edge: Ints
    count: int
    total: int
    forward: bool
    found: list[Ints] = field(init=False)
    open: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.found = [np.full(len(self.code), -1, np.int64) for _ in range(self.count)]
        self.open = np.arange(len(self.code) if self.count else 0)

    def stretches(self, reach: int) -> Spans:
        return Spans.of(*self._bounds(reach))

    def _bounds(self, reach: int) -> tuple[Ints, Ints]:
        edge = self.edge[self.open]
        if self.forward:
            return edge, np.minimum(edge + reach, self.total)
        return np.maximum(edge - reach, 0), edge

    def look(self, spans: Spans, codes: Codes, reach: int, partitions: int) -> None:
        if not len(self.open):
            return
        low, high = self._bounds(reach)
        first = low if self.forward else high - 1  # the event next to the interval
        inside = np.flatnonzero(high > low)
        number = np.searchsorted(spans.starts, first[inside], side="right") - 1
        before = np.concatenate(([0], np.cumsum(spans.ends - spans.starts)))
        begin = before[number] + first[inside] - spans.starts[number]
        steps = np.full((self.count, len(self.open)), -1, np.int64)
        some = np.full((self.count, len(inside)), -1, np.int64)
        wanted = self.code[self.open][inside]
        order = np.argsort(begin, kind="stable")[:: -1 if self.forward else 1].copy()
        last = np.full((partitions, self.count), -1, np.int64)
        _nearest(codes, begin, order, (high - low)[inside], wanted, self.forward, last, some)
        steps[:, inside] = some
        for occurrences, step in zip(self.found, steps, strict=True):
            there = step >= 0
            at = first + step if self.forward else first - step
            occurrences[self.open[there]] = at[there]
        farther = (high < self.total) if self.forward else (low > 0)
        self.open = self.open[(steps[-1] < 0) & farther]
