"""The kernels of the recency join: which live row is paired with which archive row::

    live rows, by (key, te)      . . . [ te in (a.te, a.ts + P] ] . . .     of those ts > a.ts
    blocks of 64                 greatest ts each: a block of long matches is skipped
    archive rows, by (ts, place in their relation)
          a       pairs of a, by (l.te, place of l)
          a' = a  pairs of rows that begin at one tick are merged by l.te

``a`` is before ``l`` where both its ends are (strictly); recent where ``l.te - a.ts <= P``,
computed as ``l.te <= a.ts + P`` without wrapping.  Pairs are ordered by a.ts, l.te, place of a,
place of l.  Rows without times or with key -1 have no partner.  Cost: ``O(M_a log M_l + pairs)``,
and 1/64 of the rows skipped.  ``LAST``, ``SEMI`` and ``ANTI`` look for the archive rows of each
live row backwards from its start, and only as far as needed.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ...core.caches import lazy
from ...core.native import kernel
from ...core.sorting import order_of
from ...core.times import INT64_MAX, INT64_MIN, moved

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

Satisfying = Callable[[Ints, Ints], Mask]
"""Which pairs of live and archive rows satisfy a condition."""

BLOCK = 64
BEGIN = -2
CANDIDATES = 4
"""Archive rows that are looked at first for each that is asked for, where there is a condition."""
BATCH_PAIRS = 1 << 16
PIECE_ROWS = 1 << 10


@dataclass(frozen=True)
class Events:
    """Rows of one side, in ticks of the same unit on both sides.  ``key`` is equal where keys are,
    -1 for what equals nothing; ``known``: whether a row has times (an empty match has none).
    """

    start: Ints
    end: Ints
    key: Ints
    known: Mask

    def __len__(self) -> int:
        return len(self.start)

    def taking_part(self) -> Ints:
        return np.flatnonzero(self.known & (self.key >= 0))


def ahead(ticks: Ints, distance: int | None) -> Ints:
    """Ticks so much later, saturating; the maximum without a distance."""
    return np.full(len(ticks), INT64_MAX) if distance is None else moved(ticks, distance)


def back(ticks: Ints, distance: int | None) -> Ints:
    """Ticks so much earlier, saturating; the minimum without a distance."""
    return np.full(len(ticks), INT64_MIN) if distance is None else moved(ticks, -distance)


@kernel
def _count(starts, ends, reach, keys, offsets, live_ts, live_te, block_ts, counts):
    """Number of partners of each archive row."""
    for i in range(starts.shape[0]):
        low = offsets[keys[i]]
        high = offsets[keys[i] + 1]
        j = low + np.searchsorted(live_te[low:high], ends[i], side="right")
        stop = low + np.searchsorted(live_te[low:high], reach[i], side="right")
        count = 0
        while j < stop:
            if j % BLOCK == 0 and block_ts[j // BLOCK] <= starts[i]:
                j += BLOCK
                continue
            if live_ts[j] > starts[i]:
                count += 1
            j += 1
        counts[i] = count


@kernel
def _fill(
    first, last, starts, ends, reach, keys, offsets, live_ts, live_te, block_ts, archive, live, work
):
    """Pairs of the archive rows [first, last), as numbers in the sorted rows; those with one start
    are merged by the end of the live row.
    """
    at = 0
    i = first
    while i < last:
        tick = starts[i]
        begin = at
        runs = 0
        while i < last and starts[i] == tick:
            low = offsets[keys[i]]
            high = offsets[keys[i] + 1]
            j = low + np.searchsorted(live_te[low:high], ends[i], side="right")
            stop = low + np.searchsorted(live_te[low:high], reach[i], side="right")
            before = at
            while j < stop:
                if j % BLOCK == 0 and block_ts[j // BLOCK] <= tick:
                    j += BLOCK
                    continue
                if live_ts[j] > tick:
                    archive[at] = i
                    live[at] = j
                    at += 1
                j += 1
            runs += at > before
            i += 1
        if runs > 1:
            _merge(begin, at, live_te, archive, live, work)
    return at


@kernel
def _merge(begin, end, live_te, archive, live, work):
    """Sort pairs stably by the end of the live row, by a bottom-up merge of runs."""
    width = 1
    while width < end - begin:
        low = begin
        while low + width < end:
            middle = low + width
            high = min(end, middle + width)
            if live_te[live[middle - 1]] > live_te[live[middle]]:
                left, right, out = low, middle, low
                while left < middle or right < high:
                    if right >= high or (
                        left < middle and live_te[live[left]] <= live_te[live[right]]
                    ):
                        work[0, out] = archive[left]
                        work[1, out] = live[left]
                        left += 1
                    else:
                        work[0, out] = archive[right]
                        work[1, out] = live[right]
                        right += 1
                    out += 1
                for i in range(low, high):  # a slice takes a second to compile
                    archive[i] = work[0, i]
                    live[i] = work[1, i]
            low = high
        width *= 2


@kernel
def _backwards(
    live_ts, live_te, floor, keys, offsets, starts, ends, block_te, width, place, taken, archive
):
    """Take up to ``width`` partners of each live row, newest first, from ``place`` on: BEGIN, or
    where the call before stopped, -1 where no more can come.  Archive rows by (key, start, end).
    """
    at = 0
    for i in range(live_ts.shape[0]):
        low = offsets[keys[i]]
        j = place[i]
        if j == BEGIN:
            own = starts[low : offsets[keys[i] + 1]]
            j = low + np.searchsorted(own, live_ts[i], side="left") - 1
        begin = at
        while j >= low and starts[j] >= floor[i] and at < begin + width:
            if (j + 1) % BLOCK == 0 and block_te[j // BLOCK] >= live_te[i]:
                j -= BLOCK
                continue
            if ends[j] < live_te[i]:
                archive[at] = j
                at += 1
            j -= 1
        place[i] = j if j >= low and starts[j] >= floor[i] else -1
        taken[i] = at - begin
    return at


class Pairing:
    """The pairs of two sides; ``distance``: P in ticks, None for unbounded.  ``check`` raises if
    the query is to end.
    """

    def __init__(
        self,
        live: Events,
        archive: Events,
        distance: int | None,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        self._distance, self._check = distance, check
        self._live, self._archive = live, archive
        mine = live.taking_part()
        order = order_of(live.end[mine], live.key[mine])
        self._live_rows = mine[order]
        check()
        theirs = archive.taking_part()
        self._keys = int(live.key.max(initial=-1)) + 1
        shared = np.zeros(max(self._keys, int(archive.key.max(initial=-1)) + 1), np.bool_)
        shared[live.key[mine]] = True
        self._archive_rows = theirs[shared[archive.key[theirs]]]
        key = live.key[self._live_rows]
        self._offsets = np.searchsorted(key, np.arange(self._keys + 1)).astype(np.int64)
        self._live_ts = live.start[self._live_rows]
        self._live_te = live.end[self._live_rows]

    @lazy
    def _by_start(self) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints]:
        """Archive rows by start; their starts, ends, last ends of partners and keys; and the
        greatest start of each block of live rows.
        """
        archive, rows = self._archive, self._archive_rows
        rows = rows[order_of(archive.start[rows])]
        self._check()
        start, end, key = archive.start[rows], archive.end[rows], archive.key[rows]
        return rows, start, end, ahead(start, self._distance), key, _block_max(self._live_ts)

    def counts(self) -> Ints:
        """Partners of the archive rows that can have any, by their starts."""
        _, start, end, reach, key, blocks = self._by_start
        counts = np.zeros(len(start), np.int64)
        for some in self._pieces(len(counts)):
            _count(
                start[some], end[some], reach[some], key[some], self._offsets, self._live_ts,
                self._live_te, blocks, counts[some],
            )  # fmt: skip
        return counts

    def _pieces(self, rows: int) -> Iterator[slice]:
        """Rows whose search, each among all of the other side, takes less than a moment."""
        for low in range(0, rows, PIECE_ROWS):
            self._check()
            yield slice(low, low + PIECE_ROWS)

    def batches(self) -> Iterator[tuple[Ints, Ints]]:
        """Batches of (live, archive) row numbers."""
        archive_rows, start, end, reach, key, blocks = self._by_start
        counts = self.counts()
        ends = np.concatenate(([0], np.cumsum(counts)))
        for first, last in pairwise(self._cuts(ends)):
            size = int(ends[last] - ends[first])
            if not size:
                continue
            archive, live = np.empty(size, np.int64), np.empty(size, np.int64)
            _fill(
                first, last, start, end, reach, key, self._offsets, self._live_ts, self._live_te,
                blocks, archive, live, np.empty((2, size), np.int64),
            )  # fmt: skip
            yield _rows(self._live_rows, live), _rows(archive_rows, archive)

    def _cuts(self, ends: Ints) -> list[int]:
        start = self._by_start[1]
        count = len(start)
        borders = np.flatnonzero(np.diff(start)) + 1
        borders = np.concatenate((borders, [count])) if count else borders
        cuts = [0]
        while cuts[-1] < count:
            wanted = np.searchsorted(ends, ends[cuts[-1]] + BATCH_PAIRS, side="left")
            cuts.append(int(borders[np.searchsorted(borders, min(int(wanted), count), "left")]))
            if cuts[-1] == cuts[-2]:  # one start has more pairs than a batch
                cuts[-1] = int(borders[np.searchsorted(borders, cuts[-2], "right")])
        return cuts

    def newest(self, last: int, satisfying: Satisfying | None = None) -> tuple[Ints, Ints]:
        """The pairs with the ``last`` archive rows of each live row, by start, end, place, of those
        that satisfy a condition.
        """
        live, archive, none = self._live, self._archive, np.zeros(0, np.int64)
        found = list(self._from_the_newest(last, satisfying))
        ours, theirs = (np.concatenate([none, *(each[i] for each in found)]) for i in range(2))
        te, ts = live.end[ours], archive.start[theirs]
        order = order_of(te, ts)
        te, ts = te[order], ts[order]
        if ((te[1:] == te[:-1]) & (ts[1:] == ts[:-1])).any():
            order = order_of(ours, theirs, live.end[ours], archive.start[theirs])
        return ours[order], theirs[order]

    def partnered(self, satisfying: Satisfying | None = None) -> Mask:
        """Whether each live row has a partner."""
        result = np.zeros(len(self._live), np.bool_)
        for ours, _ in self._from_the_newest(1, satisfying):
            result[ours] = True
        return result

    def _from_the_newest(
        self, last: int, satisfying: Satisfying | None
    ) -> Iterator[tuple[Ints, Ints]]:
        """Batches of the pairs with the last archive rows.  Candidates of the live rows are taken
        in rounds, twice as many in each, until enough satisfy the condition.
        """
        rows, offsets, least = self._by_key()
        by_end = order_of(self._live_te)  # so pairs are nearly in order
        mine, ts, te = self._live_rows[by_end], self._live_ts[by_end], self._live_te[by_end]
        floor = back(te, self._distance)
        key, starts, ends = self._live.key[mine], self._archive.start[rows], self._archive.end[rows]
        first = min(last if satisfying is None else CANDIDATES * last, BLOCK)
        step = max(1, BATCH_PAIRS // first)
        for low in range(0, len(mine), step):
            active, width = np.arange(low, min(low + step, len(mine))), first
            place, left = np.full(len(active), BEGIN), np.full(len(active), last)
            while len(active):
                archive = np.empty(len(active) * width, np.int64)
                taken, count = np.empty(len(active), np.int64), 0
                for some in self._pieces(len(active)):
                    at = active[some]
                    count += _backwards(
                        ts[at], te[at], floor[at], key[at], offsets, starts, ends, least, width,
                        place[some], taken[some], archive[count:],
                    )  # fmt: skip
                at = np.arange(len(active)).repeat(taken)
                ours, theirs = mine[active[at]], rows[archive[:count]]
                if satisfying is not None:
                    true = satisfying(ours, theirs)
                    at, ours, theirs = at[true], ours[true], theirs[true]
                counts = np.bincount(at, minlength=len(active))
                rank = np.arange(len(at)) - (np.cumsum(counts) - counts)[at]
                wanted = rank < left[at]
                yield ours[wanted], theirs[wanted]
                going_on = (counts < left) & (place >= 0)
                active, place = active[going_on], place[going_on]
                left = (left - counts)[going_on]
                width = min(2 * width, max(BATCH_PAIRS // max(1, len(active)), 1))

    def _by_key(self) -> tuple[Ints, Ints, Ints]:
        """Archive rows by key, start and end; where keys begin, and the least end of each block."""
        archive, rows = self._archive, self._archive_rows
        rows = rows[order_of(archive.end[rows], archive.start[rows], archive.key[rows])]
        offsets = np.searchsorted(archive.key[rows], np.arange(self._keys + 1)).astype(np.int64)
        return rows, offsets, ~_block_max(~archive.end[rows])


def _rows(numbers: Ints, places: Ints) -> Ints:
    """Row numbers at some places; the places themselves if the numbers are the identity."""
    if len(numbers) < BATCH_PAIRS and not (numbers - np.arange(len(numbers))).any():
        return places
    return numbers[places]


def _block_max(values: Ints) -> Ints:
    if not len(values):
        return np.zeros(1, np.int64)
    return np.maximum.reduceat(values, np.arange(0, len(values), BLOCK))
