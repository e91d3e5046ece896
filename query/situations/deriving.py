"""Derives runs from rows, across batches, with a few words of state per partition.  A batch costs
its rows plus the number of partitions.  Rows are numbered in arrival order.

The kernels handle all names (bits of a word) at once::

    word of p   00 01 01 11 11 10 10 00          bit 0:     [2 .. 6)
    time         1  2  3  4  5  6  7  8          bit 1:        [4 .... 8)

A finished run is a row of ``out``: partition, name, first tick, last tick (the one before its end),
numbers of its first and last row, and whether earlier rows may belong to it.  A run ends at the
first row of its partition that does not satisfy, or one gap after its last row.  Runs of zero
length or outside their duration bounds are omitted.  A finished run has a last tick below ``OPEN``.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.native import kernel, trailing_zeros
from ...core.sorting import counted_order
from ...core.times import INT64_MAX
from ..pattern.buffers import row_words
from ..pattern.columns import KeyCodes, StoredKeys, flat, new_rows, numbers
from .compiled import CompiledSituations
from .network import FAR

OPEN = np.int64(2**63 - 1)
"""Last tick of an open run."""

COLUMNS = 7
GROUP, NAME, START, UNTIL, FIRST, LAST, CUT = range(COLUMNS)


@kernel
def span_of(begin, end):
    """``end - begin``, saturated; requires begin <= end."""
    # compiled code may assume that a signed difference does not overflow
    return OPEN if begin < 0 and end > OPEN + begin else end - begin


@kernel
def _room(out, count):
    """The same rows with room for at least one word more of them."""
    if count + 64 <= out.shape[0]:
        return out
    larger = np.empty((2 * out.shape[0] + 64, COLUMNS), np.int64)
    for i in range(count):
        for j in range(COLUMNS):
            larger[i, j] = out[i, j]
    return larger


@kernel
def _finish(out, count, g, bits, end, last, start, first, cut, least, most):
    """Output the runs of some names of a partition; returns the new row count."""
    one = np.uint64(1)
    while bits:
        p = trailing_zeros(bits)
        bit = one << np.uint64(p)
        bits &= bits - one
        length = span_of(start[g, p], end)
        if length > 0 and least[p] <= length <= most[p]:
            out[count, GROUP] = g
            out[count, NAME] = p
            out[count, START] = start[g, p]
            out[count, UNTIL] = end - 1  # the length is positive
            out[count, FIRST] = first[g, p]
            out[count, LAST] = last
            out[count, CUT] = np.int64(cut[g] & bit != 0)
            count += 1
    return count


@kernel
def derive_runs(
    order, begin, stop, words, time, base, gap, least, most,
    word, seen, last_time, last_row, start, first, cut, out,
):  # fmt: skip
    """Process a batch; returns ``out``, possibly reallocated, and its row count.  ``order``: rows
    by partition (empty: one partition), ``begin[g] .. stop[g]``; arrays from ``word`` on: state.
    """
    count = np.int64(0)
    one = np.uint64(1)
    zero = np.uint64(0)
    grouped = order.shape[0] > 0
    for g in range(begin.shape[0]):
        low = begin[g]
        high = stop[g]
        if low >= high:
            continue
        word_before = word[g]
        row_before = last_row[g]
        time_before = last_time[g]
        started = seen[g]
        k = low
        while k < high:
            if gap < 0:  # skip rows with an unchanged word
                if grouped:
                    while k < high and words[order[k]] == word_before:
                        k += 1
                else:
                    while k < high and words[k] == word_before:
                        k += 1
                if k == high:
                    break
                if k > low:
                    row_before = base + (order[k - 1] if grouped else k - 1)
            r = order[k] if grouped else k
            now = time[r]
            if gap >= 0 and started and word_before and span_of(time_before, now) > gap:
                out = _room(out, count)
                count = _finish(
                    out, count, g, word_before, time_before + gap, row_before, start, first, cut,
                    least, most,
                )  # fmt: skip
                word_before = zero
            changed = words[r] ^ word_before
            if changed:
                ended = changed & word_before
                if ended:
                    out = _room(out, count)
                    count = _finish(
                        out, count, g, ended, now, row_before, start, first, cut, least, most
                    )
                    cut[g] &= ~ended
                begun = changed & ~word_before
                if not started and k == low:
                    cut[g] |= begun
                while begun:
                    p = trailing_zeros(begun)
                    begun &= begun - one
                    start[g, p] = now
                    first[g, p] = base + r
                word_before = words[r]
            started = True
            time_before = now
            row_before = base + r
            k += 1
        r = order[high - 1] if grouped else high - 1
        word[g] = word_before
        seen[g] = True
        last_time[g] = time[r]
        last_row[g] = base + r
    return out, count


@kernel
def expire_runs(
    until, gap, least, most, word, last_time, last_row, start, first, cut, out
):  # fmt: skip
    """End the runs that no row has continued for a gap by ``until[g]``; as ``derive_runs``."""
    count = np.int64(0)
    for g in range(word.shape[0]):
        if word[g] and last_time[g] <= until[g] and span_of(last_time[g], until[g]) >= gap:
            out = _room(out, count)
            count = _finish(
                out, count, g, word[g], last_time[g] + gap, last_row[g], start, first, cut, least,
                most,
            )  # fmt: skip
            word[g] = np.uint64(0)
            cut[g] = np.uint64(0)
    return out, count


@kernel
def open_runs(until, oldest, known, least, most, word, last_row, start, first, cut, out):
    """Open runs begun at ``oldest[p]`` or later; ``known``: only if sure to count by ``until``."""
    count = np.int64(0)
    one = np.uint64(1)
    for g in range(word.shape[0]):
        bits = word[g]
        if bits:
            out = _room(out, count)
        while bits:
            p = trailing_zeros(bits)
            bit = one << np.uint64(p)
            bits &= bits - one
            began = start[g, p]
            if began < oldest[p] or began > until[g]:
                continue
            if known and (most[p] != OPEN or span_of(began, until[g]) < least[p]):
                continue
            out[count, GROUP] = g
            out[count, NAME] = p
            out[count, START] = began
            out[count, UNTIL] = OPEN
            out[count, FIRST] = first[g, p]
            out[count, LAST] = last_row[g]
            out[count, CUT] = np.int64(cut[g] & bit != 0)
            count += 1
    return out, count


IntArray = npt.NDArray[np.int64]
_NONE = np.zeros(0, np.int64)
ROWS_FIRST = 1024


@kernel
def _last_rows(order, offsets, behind, kept):
    """Mark up to ``behind`` last rows of each partition."""
    for g in range(offsets.shape[0] - 1):
        for k in range(max(offsets[g], offsets[g + 1] - behind), offsets[g + 1]):
            kept[order[k] if order.shape[0] else k] = True


class Partitions(StoredKeys):
    @property
    def grouped(self) -> bool:
        return bool(self.columns)

    def until(self, first: int, count: int) -> IntArray:
        """The last relevant tick of ``count`` partitions from number ``first`` on."""
        return np.full(count, INT64_MAX, np.int64)

    def values(self, codes: IntArray) -> pa.Table:
        """Keys of partitions, normalised so that equal keys are identical."""
        taken = self.at(codes)
        for i, field in enumerate(taken.schema):
            if pa.types.is_floating(field.type):  # turn -0.0 into 0.0
                plain = pc.add(taken.column(i), pa.scalar(0.0, field.type))
                taken = taken.set_column(i, field, plain)
        return taken

    def ranks(self, codes: IntArray) -> IntArray:
        """Rank of each of some partitions in the order of keys."""
        keys = self.values(codes)
        sortable = {}
        for i, column in enumerate(keys.columns):
            values = flat(column)
            sortable[str(i)] = (
                values.cast(pa.int8()) if pa.types.is_boolean(values.type) else values
            )
        by = [(name, "ascending", "at_start") for name in sortable]
        order = pc.sort_indices(pa.table(sortable), sort_keys=by)
        place = np.empty(len(codes), np.int64)
        place[order.to_numpy()] = np.arange(len(codes))
        same = KeyCodes(len(self.columns)).encode(list(keys.columns))
        least = np.full(len(codes), len(codes), np.int64)
        np.minimum.at(least, same, place)
        return least[same]


SPAN = "@span"
"""Column with the number of each row's part of the input."""


class Stretches(Partitions):
    """Parts of partitions that no run crosses.  ``until``: last relevant tick of each part of the
    input.  ``shared``: a part holds rows of several partitions, each with a stretch of its own.
    """

    def __init__(
        self, schema: pa.Schema, columns: tuple[str, ...], until: IntArray, shared: bool = False
    ) -> None:
        super().__init__(schema, columns)
        self._until = until
        self._pairs = KeyCodes(1) if shared else None
        self._number = np.arange(0 if shared else len(until))
        self._place = np.full(len(self._number), -1, np.int64)

    @property
    def grouped(self) -> bool:
        return True

    @property
    def count(self) -> int:
        return len(self._number)

    def until(self, first: int, count: int) -> IntArray:
        return self._until[self._number[first : first + count]]

    def numbers(self, codes: IntArray) -> IntArray:
        return self._number[codes]

    def encode(self, rows: pa.Table) -> IntArray:
        spans = np.asarray(flat(rows.column(SPAN)).to_numpy(zero_copy_only=False), np.int64)
        if not self.columns:
            return spans
        keys = super().encode(rows)
        if self._pairs is not None:
            pairs = (spans << 31) | keys
            numbers, before = spans, self._pairs.count
            spans = self._pairs.encode([pa.chunked_array([pa.array(pairs)])])
            fresh = new_rows(spans, before, self._pairs.count)
            self._number = np.concatenate([self._number, numbers[fresh]])
            self._place = np.concatenate([self._place, keys[fresh]])
        else:
            self._place[spans] = keys
        return spans

    def values(self, codes: IntArray) -> pa.Table:
        return super().values(self._place[codes] if self.columns else codes)


@dataclass(frozen=True)
class Derived:
    """Finished runs, partition of each row (None: one partition), and number of the first row."""

    ended: IntArray
    codes: IntArray | None
    base: int


class Deriver:
    """Runs of all names of a clause; ``until``: last relevant tick of each partition."""

    def __init__(self, compiled: CompiledSituations, keys: Partitions | None = None) -> None:
        self.compiled = compiled
        self.keys = keys or Partitions(compiled.columns.arrow, compiled.partition_by)
        self.gap = -1 if compiled.gap is None else compiled.gap
        durations = compiled.durations
        self.least = np.array(durations.least, np.int64)
        self.most = np.array([OPEN if m >= FAR else m for m in durations.most], np.int64)
        self.base = 0
        count = len(compiled.names)
        self.word = np.zeros(0, np.uint64)
        self.cut = np.zeros(0, np.uint64)
        self.seen = np.zeros(0, np.bool_)
        self.last_time = np.zeros(0, np.int64)
        self.last_row = np.zeros(0, np.int64)
        self.until = np.zeros(0, np.int64)
        self.start = np.zeros((0, count), np.int64)
        self.first = np.zeros((0, count), np.int64)
        self.out = np.empty((ROWS_FIRST, COLUMNS), np.int64)
        wanted = {compiled.time, *compiled.condition_columns}
        self.looked_at = [name for name in compiled.columns.arrow.names if name in wanted]
        self.behind: pa.Table | None = None  # rows that PREV may still read
        self.behind_codes = _NONE
        self._grow(self.keys.count)

    @property
    def groups(self) -> int:
        return len(self.word)

    @property
    def nbytes(self) -> int:
        words = self.word.nbytes + self.cut.nbytes + self.seen.nbytes + self.until.nbytes
        return words + 2 * (self.last_time.nbytes + self.start.nbytes)

    def take(self, rows: pa.Table, watermark: int) -> Derived:
        """Process rows up to a watermark; returns the runs that have ended by then."""
        codes = self.keys.encode(rows) if self.keys.grouped and rows.num_rows else None
        return self.follow(rows, codes, watermark)

    def follow(self, rows: pa.Table, codes: IntArray | None, watermark: int) -> Derived:
        base, parts = self.base, []
        self._grow(self.keys.count)
        if rows.num_rows:
            parts.append(self._runs(rows, codes))
            self.base += rows.num_rows
        if self.gap >= 0:
            out, count = expire_runs(
                np.minimum(self.until, watermark), self.gap, self.least, self.most, self.word,
                self.last_time, self.last_row, self.start, self.first, self.cut, self.out,
            )  # fmt: skip
            self.out = out
            parts.append(out[:count].copy())
        ended = np.concatenate(parts) if parts else np.zeros((0, COLUMNS), np.int64)
        return Derived(ended, codes, base)

    def follow_words(self, ticks: IntArray, words: npt.NDArray[np.uint64]) -> Derived:
        """Process rows of the only partition of which only the words are known."""
        base, none = self.base, np.zeros(1, np.int64)
        ended = self._flips(_NONE, none, none + len(ticks), words, ticks, 0)
        self.base += len(ticks)
        return Derived(ended, None, base)

    def lasting(self, watermark: int, oldest: IntArray, known: bool) -> IntArray:
        """Open runs that began at ``oldest`` of their name or later; see ``open_runs``."""
        out, count = open_runs(
            np.minimum(self.until, watermark), oldest, known, self.least, self.most, self.word,
            self.last_row, self.start, self.first, self.cut, self.out,
        )  # fmt: skip
        self.out = out
        return np.asarray(out[:count].copy(), np.int64)

    def _runs(self, rows: pa.Table, codes: IntArray | None) -> IntArray:
        looked_at = rows.select(self.looked_at)
        lead = 0
        if self.compiled.history:
            looked_at, codes = self._with_those_behind(looked_at, codes)
            lead = looked_at.num_rows - rows.num_rows
        count = looked_at.num_rows
        order, offsets = _NONE, np.array([0, count], np.int64)
        if codes is not None:
            order, offsets = counted_order(codes, self.groups)
        begin = offsets[:-1]
        if lead:
            behind = self.behind_codes
            begin = begin + np.bincount(behind, minlength=self.groups).astype(np.int64)
        words = self._words(looked_at, order, offsets)
        if self.compiled.history:
            self._keep_behind(looked_at, codes, order, offsets)
        ticks, _ = numbers(flat(looked_at.column(self.compiled.time)), "i")
        return self._flips(order, begin, offsets[1:], words, np.asarray(ticks, np.int64), lead)

    def _flips(
        self, order: IntArray, begin: IntArray, stop: IntArray, words: npt.NDArray[np.uint64],
        ticks: IntArray, lead: int,
    ) -> IntArray:  # fmt: skip
        out, count = derive_runs(
            order, begin, stop, words, ticks, self.base - lead, self.gap, self.least, self.most,
            self.word, self.seen, self.last_time, self.last_row, self.start, self.first, self.cut,
            self.out,
        )  # fmt: skip
        self.out = out
        return np.asarray(out[:count].copy(), np.int64)

    def _words(self, rows: pa.Table, order: IntArray, offsets: IntArray) -> npt.NDArray[np.uint64]:
        tests = self.compiled.tests
        if not self.compiled.history:  # row-local: order does not matter
            return row_words(tests, rows, np.array([0, rows.num_rows], np.int64))
        if not len(order):
            return row_words(tests, rows, offsets)
        words = np.empty(rows.num_rows, np.uint64)
        words[order] = row_words(tests, rows.take(pa.array(order)), offsets)
        return words

    def _with_those_behind(
        self, rows: pa.Table, codes: IntArray | None
    ) -> tuple[pa.Table, IntArray | None]:
        if self.behind is None or not self.behind.num_rows:
            return rows, codes
        both = pa.concat_tables([self.behind, rows])
        return both, None if codes is None else np.concatenate([self.behind_codes, codes])

    def _keep_behind(
        self, rows: pa.Table, codes: IntArray | None, order: IntArray, offsets: IntArray
    ) -> None:
        last_rows = np.zeros(rows.num_rows, np.bool_)
        _last_rows(order, offsets, self.compiled.history, last_rows)
        self.behind = rows.filter(pa.array(last_rows)).combine_chunks()
        own = np.zeros(len(last_rows), np.int64) if codes is None else codes
        self.behind_codes = own[last_rows]

    def _grow(self, count: int) -> None:
        more = count - len(self.word)
        if more <= 0:
            return
        self.word = np.concatenate([self.word, np.zeros(more, np.uint64)])
        self.cut = np.concatenate([self.cut, np.zeros(more, np.uint64)])
        self.seen = np.concatenate([self.seen, np.zeros(more, np.bool_)])
        self.last_time = np.concatenate([self.last_time, np.zeros(more, np.int64)])
        self.last_row = np.concatenate([self.last_row, np.zeros(more, np.int64)])
        self.until = np.concatenate([self.until, self.keys.until(len(self.until), more)])
        names = self.start.shape[1]
        self.start = np.concatenate([self.start, np.zeros((more, names), np.int64)])
        self.first = np.concatenate([self.first, np.zeros((more, names), np.int64)])
