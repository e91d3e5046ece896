"""Partitions at query time: the keys of candidates, and which events have one of them.

Index entries hold positions, not partitions.  The partitions of the rarest symbol's occurrences are
numbered; other events get -1, because a partition without an occurrence of every symbol has no
match::

    position                 4    9   17   18   23
    occurrences of GROUND    x         x         x
    icao24                   a         b         a        learned:  a = 0, b = 1
    any event's code         0   -1    1   -1    0

Keys are equal when they are for the matcher (``pattern.groups.KeyCodes``); nulls are equal.  Each
stretch of the partition columns is read once and cached, up to ``KEPT_BYTES``; dictionary codes are
looked up once per dictionary.
"""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.sorting import firsts, numbered
from ...schema import StreamSchema
from ..conditions.key_values import comparable
from .base_reader import read_arrays
from .timeline import Timeline, near

__all__ = ["PartitionKeys"]

Ints = npt.NDArray[np.int64]
NEAR_EVENTS = 16_384
"""Occurrences nearer than this are read as one stretch of the column."""
FEW = 4
"""If fewer than one in so many events is wanted, only these get a code."""
PIECE_EVENTS = 1 << 18
"""Events whose codes are held at a time."""
KEPT_BYTES = 32 << 20
"""Cache size for the columns."""
KEPT_EVENTS = 512
"""Shorter stretches are not cached: finding them would cost more than reading them."""


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
        self._kept = _KeptStretches()
        self._output = pa.schema([schema.arrow.field(name) for name in columns])
        self._values: list[pa.Array] = []
        self._pairs: list[Ints] = []
        self._mapped: list[tuple[pa.Array, Ints] | None] = [None] * len(self.columns)

    def on(self, timeline: Timeline | None) -> PartitionKeys:
        """The same numbers for another timeline of the same events, or for none, to be sent."""
        moved = copy.copy(self)
        moved._timeline = timeline  # type: ignore[assignment]
        moved._kept = _KeptStretches()
        moved._mapped = [None] * len(self.columns)
        return moved

    # -- learning -----------------------------------------------------------------------------

    def learn(self, positions: Ints) -> Ints:
        """Number the partitions of the events at ascending positions; returns the code of each."""
        parts: list[list[pa.Array]] = [[] for _ in self.columns]
        for low, high in near(positions, NEAR_EVENTS):
            wanted = positions[low:high]
            for at, arrays in self._read(int(wanted[0]), int(wanted[-1]) + 1):
                inside = wanted[(wanted >= at) & (wanted < at + len(arrays[0]))] - at
                for part, array in zip(parts, arrays, strict=True):
                    taken = array.take(pa.array(inside))
                    if pa.types.is_dictionary(taken.type):
                        taken = taken.dictionary_decode()
                    part.append(taken)
        codes = self.number(
            [
                pa.concat_arrays(part) if part else pa.array([], field.type)
                for field, part in zip(self._output, parts, strict=True)
            ]
        )
        self.places = positions[firsts(codes)[1]]
        return codes

    def number(self, columns: Sequence[pa.Array]) -> Ints:
        codes: Ints = np.zeros(len(columns[0]), np.int64)
        self._values, self._pairs = [], []
        self._mapped = [None] * len(self.columns)
        for column in columns:
            values = comparable(column)
            encoded = pc.dictionary_encode(values, null_encoding="encode")
            self._values.append(encoded.dictionary)
            own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            pairs, codes = numbered(codes * max(1, len(encoded.dictionary)) + own)
            self._pairs.append(pairs)
        self.count = len(self._pairs[-1])
        return codes.astype(np.int64)

    def key(self, code: int) -> tuple[Any, ...]:
        found = []
        for field, values, pairs in zip(
            reversed(self._output), reversed(self._values), reversed(self._pairs), strict=True
        ):
            code, own = divmod(int(pairs[code]), max(1, len(values)))
            value = values.slice(own, 1)
            found.append((value if value.type == field.type else value.view(field.type))[0].as_py())
        return tuple(reversed(found))

    # -- codes of events ----------------------------------------------------------------------

    def codes(self, arrays: Sequence[pa.Array]) -> Ints:
        """Codes of events given their partition columns; -1 for other partitions."""
        known: Ints = np.zeros(len(arrays[0]), np.int64)
        for i, array in enumerate(arrays):
            own = self._own(i, array)
            pair = known * max(1, len(self._values[i])) + own
            distinct = self._pairs[i]
            if not len(distinct):
                return np.full(len(known), -1, np.int64)
            if len(self._values) == 1:
                return own  # one column: its own codes are the partition codes
            place = np.minimum(np.searchsorted(distinct, pair), len(distinct) - 1)
            hit = (known >= 0) & (own >= 0) & (distinct[place] == pair)
            known = np.where(hit, place, -1)
        return known

    def pieces(self, first: int, end: int) -> Iterator[tuple[int, Ints]]:
        """Codes of the base events at positions [first, end), with the position of the first."""
        for start in range(first, end, PIECE_EVENTS):
            for at, arrays in self._read(start, min(end, start + PIECE_EVENTS)):
                yield at, self.codes(arrays)

    def codes_at(self, positions: Ints) -> Ints:
        out = np.empty(len(positions), np.int64)
        for low, high in near(positions, NEAR_EVENTS):
            done = low
            for at, arrays in self._read(int(positions[low]), int(positions[high - 1]) + 1):
                stop = low + int(np.searchsorted(positions[low:high], at + len(arrays[0])))
                rows = positions[done:stop] - at
                if len(rows) * FEW < len(arrays[0]):
                    wanted = pa.array(rows)
                    out[done:stop] = self.codes([array.take(wanted) for array in arrays])
                else:
                    out[done:stop] = self.codes(arrays)[rows]
                done = stop
        return out

    def _read(self, first: int, end: int) -> Iterator[tuple[int, list[pa.Array]]]:
        while first < end:
            known, stop = self._kept.at(first, end)
            if known is not None:
                yield first, known
                first = stop
                continue
            for at, arrays in read_arrays(
                self._timeline, self.columns, self._output, first, stop, dictionary=True
            ):
                self.events_read += len(arrays[0])
                self._kept.add(at, arrays)
                yield at, arrays
            first = stop

    def _own(self, number: int, array: pa.Array) -> Ints:
        values = self._values[number]
        if not pa.types.is_dictionary(array.type):
            return _found(comparable(array), values)
        kept = self._mapped[number]
        if kept is None or kept[0] is not array.dictionary:
            same = kept is not None and _same_buffers(kept[0], array.dictionary)
            mapping = kept[1] if same and kept is not None else None
            if mapping is None:
                null = _found(pa.nulls(1, values.type), values)
                mapping = np.concatenate([_found(array.dictionary, values), null])
            kept = array.dictionary, mapping
            self._mapped[number] = kept
        indices = array.indices
        if indices.null_count:
            indices = indices.fill_null(len(kept[1]) - 1)
        codes: Ints = kept[1][indices.to_numpy(zero_copy_only=False)]
        return codes


class _KeptStretches:
    def __init__(self) -> None:
        self._left = KEPT_BYTES
        self._starts: list[int] = []
        self._arrays: list[list[pa.Array]] = []

    def at(self, first: int, end: int) -> tuple[list[pa.Array] | None, int]:
        """The cached columns and their end; or None and the end of the uncached part."""
        number = bisect_right(self._starts, first)
        if number:
            start, arrays = self._starts[number - 1], self._arrays[number - 1]
            stop = min(end, start + len(arrays[0]))
            if first < stop:
                return [array.slice(first - start, stop - first) for array in arrays], stop
        return None, min([end, *self._starts[number : number + 1]])

    def add(self, at: int, arrays: list[pa.Array]) -> None:
        size = sum(map(_bytes_of, arrays))
        if len(arrays[0]) < KEPT_EVENTS or size > self._left:
            return
        self._left -= size
        number = bisect_right(self._starts, at)
        self._starts.insert(number, at)
        self._arrays.insert(number, arrays)


def _bytes_of(array: pa.Array) -> int:
    """Memory of an array without its dictionary, which belongs to a leaf."""
    return int((array.indices if pa.types.is_dictionary(array.type) else array).nbytes)


def _found(array: pa.Array, values: pa.Array) -> Ints:
    if array.type != values.type:
        array = array.cast(values.type)
    found = pc.index_in(array, value_set=values)
    places: Ints = found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return places


def _same_buffers(a: pa.Array, b: pa.Array) -> bool:
    if len(a) != len(b) or a.offset != b.offset:
        return False
    mine = [buffer.address if buffer is not None else 0 for buffer in a.buffers()]
    theirs = [buffer.address if buffer is not None else 0 for buffer in b.buffers()]
    return mine == theirs
