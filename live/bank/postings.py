"""Hits of many events at once: events are sorted, and each condition looks up its range.

For few events ``predicate_index`` is faster.  Layout::

    values of a column, sorted    2   3   3   5   8   8   9        one way of the index
    their rows                    4   0   6   1   2   5   3
                                      [===========)                span of BETWEEN 3 AND 7
    spans of the access atoms, by way | one for each symbol with more tests: its rows
    query -> pieces: a span, and the bits that a row in it may stand for

Hits are those of ``find_hits``, by query and row, but one row's uses by a query are one hit.  Cost:
a sort per column, two binary searches per condition, few instructions per hit.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...core.native import kernel, trailing_zeros
from ...query.pattern.columns import take_ranges
from .predicate_index import PredicateIndex, Read, holds_all, in_order

IntArray = npt.NDArray[np.int64]
Rows = npt.NDArray[np.uint32]
SPANS_FOR_ROW = 16
"""Span lookups that cost as much as looking up one row among all spans."""
CANDIDATES_MAX = 1 << 24
"""Limit of rows to test further per batch."""
EDGE, HITS = np.uint8(128), np.uint8(127)
SORTED_BY_HAND = 24


@kernel
def _narrowed(symbol, first, span, begin, end, row, order, tests, keys, valid, base, ends, out):
    """Rows of symbols with remaining tests: the rows of their spans that pass."""
    n = 0
    for i in range(symbol.shape[0]):
        for j in range(first[i], first[i + 1]):
            for h in range(begin[span[j]], end[span[j]]):
                k = row[h]
                if holds_all(tests, symbol[i], order[k - np.uint32(1)], keys, valid):
                    out[n] = k
                    n += 1
        ends[i] = base + n
    return n


@kernel
def _collected(
    first, piece, bits, strict, begin, end, row, at, marks, held, found, words, out_first, out_row,
    out_bits,
):  # fmt: skip
    """Hits by query; False when the output is too small for those of the next query.  ``row``,
    ``marks`` and ``held`` count from 1 with sentinels; ``marks``: uses that hold, and ``EDGE``;
    ``held``: their bits; ``at``: next query, next hit.
    """
    n = at[1]
    for q in range(at[0], strict.shape[0]):
        out_first[q] = n
        total = 0
        for p in range(first[q], first[q + 1]):
            s = piece[p]
            total += end[s] - begin[s]
            for h in range(begin[s], end[s]):
                marks[np.uint64(row[h])] += np.uint8(1)
        if total == 0:
            continue
        m = 0
        beside = strict[q]
        for p in range(first[q], first[q + 1]):
            s = piece[p]
            mine = bits[p]
            for h in range(begin[s], end[s]):
                k = np.uint64(row[h])
                if beside and marks[k] == 1:  # of one use, and no edge
                    near = marks[k - np.uint64(1)] | marks[k + np.uint64(1)]
                    if near & HITS == 0:
                        continue
                if held[k] == 0:
                    found[m] = row[h]
                    m += 1
                held[k] |= mine
        for p in range(first[q], first[q + 1]):
            s = piece[p]
            for h in range(begin[s], end[s]):
                marks[np.uint64(row[h])] &= EDGE
        if n + m > out_row.shape[0]:
            for i in range(m):
                held[np.uint64(found[i])] = 0
            at[0] = q
            at[1] = n
            return False
        if m <= SORTED_BY_HAND:
            for i in range(m):
                k = found[i]
                j = i - 1
                while j >= 0 and found[j] > k:
                    found[j + 1] = found[j]
                    j -= 1
                found[j + 1] = k
        else:
            for i in range(m):
                k = np.uint64(found[i])
                words[k >> np.uint64(6)] |= np.uint64(1) << (k & np.uint64(63))
            m = 0
            for w in range(words.shape[0]):
                word = words[w]
                if word == 0:
                    continue
                words[w] = 0
                while word != 0:
                    found[m] = np.uint32((w << 6) + trailing_zeros(word))
                    m += 1
                    word &= word - np.uint64(1)
        for i in range(m):
            k = np.uint64(found[i])
            out_row[n] = np.int32(found[i]) - 1
            out_bits[n] = held[k]
            held[k] = 0
            n += 1
    out_first[strict.shape[0]] = n
    at[0] = strict.shape[0]
    at[1] = n
    return True


class Postings:
    """``query`` and ``bits`` are per use; ``strict`` queries drop isolated hits."""

    def __init__(
        self,
        index: PredicateIndex,
        query: IntArray,
        bits: npt.NDArray[np.uint64],
        strict: npt.NDArray[np.bool_],
    ) -> None:
        self._index, self._strict = index, strict
        self._ways: list[tuple[IntArray, IntArray]] = []
        owners = [np.zeros(0, np.int64)]
        for way in index.ways:
            by_low = np.argsort(way.low, kind="stable")  # lookups in this order are faster
            self._ways.append((way.low[by_low], way.high[by_low]))
            owners.append(way.owner[by_low])
        owner = np.concatenate(owners)
        self.spans = len(owner)
        span = np.argsort(owner, kind="stable")
        symbols = len(index.use_first) - 1
        first = np.searchsorted(owner[span], np.arange(symbols + 1))
        tested = np.diff(index.tests.first) > 0
        self._tested = np.flatnonzero(tested)
        self._tested_first = np.concatenate(
            [[0], np.cumsum(first[self._tested + 1] - first[self._tested])]
        ).astype(np.int64)
        self._tested_span = span[take_ranges(first[self._tested], first[self._tested + 1])]
        number = np.cumsum(tested) - 1  # of a symbol among the tested ones
        every = np.concatenate([span, self.spans + np.arange(len(self._tested))])
        symbol = np.repeat(np.arange(symbols), np.diff(index.use_first))
        begin = np.where(tested, self.spans + number, first[:-1])[symbol]
        end = np.where(tested, self.spans + number + 1, first[1:])[symbol]
        use = np.repeat(np.arange(len(symbol)), end - begin)
        by_query = np.argsort(query[use], kind="stable")
        self._piece = every[take_ranges(begin, end)][by_query]
        self._bits = bits[use][by_query]
        self._first = np.searchsorted(query[use][by_query], np.arange(len(strict) + 1))

    def pays(self, rows: int) -> bool:
        """Whether postings are faster than row lookups for this many rows."""
        return not rows or rows * SPANS_FOR_ROW >= self.spans

    def hits(
        self,
        read: Read,
        order: IntArray,
        edges: npt.NDArray[np.bool_],
        alive: npt.NDArray[np.bool_],
        room: int,
    ) -> tuple[IntArray, npt.NDArray[np.int32], npt.NDArray[np.uint64]] | None:
        """Offsets per query, and per hit its position in ``order`` and bits; None with too many
        candidates.  ``order`` has rows in neighbour order; ``edges`` may have neighbours outside
        the batch.
        """
        begin, end, row = self._looked_up(read, order)
        own = slice(0, self.spans)
        candidates = int((end[own] - begin[own])[self._tested_span].sum())
        if candidates > CANDIDATES_MAX:
            return None
        if len(self._tested):
            more = np.empty(candidates, np.uint32)
            made = _narrowed(
                self._tested, self._tested_first, self._tested_span, begin, end, row, order,
                self._index.tests, read.keys, read.valid, len(row), end[self.spans :], more,
            )  # fmt: skip
            begin[self.spans :] = np.concatenate([[len(row)], end[self.spans : -1]])
            row = np.concatenate([row, more[: int(made)]])
        return self._by_query(begin, end, row, edges, alive, room)

    def _looked_up(self, read: Read, order: IntArray) -> tuple[IntArray, IntArray, Rows]:
        begin, end = np.zeros((2, self.spans + len(self._tested)), np.int64)
        rows, at, base = [np.zeros(0, np.uint32)], 0, 0
        ways = zip(self._index.ways, self._ways, read.access, strict=True)
        for way, (low, high), access in ways:
            if way.kind == "range":
                keys, by_key = read.columns.in_order(way.name, order)
            else:
                keys, by_key = in_order(*access, order)
            own = slice(at, at + len(low))
            begin[own] = base + np.searchsorted(keys, low, side="left")
            end[own] = base + np.searchsorted(keys, high, side="right")
            np.maximum(begin[own], end[own], out=end[own])  # of a range without values
            rows.append((by_key + 1).astype(np.uint32))
            at, base = at + len(low), base + len(keys)
        return begin, end, np.concatenate(rows)

    def _by_query(
        self,
        begin: IntArray,
        end: IntArray,
        row: Rows,
        edges: npt.NDArray[np.bool_],
        alive: npt.NDArray[np.bool_],
        room: int,
    ) -> tuple[IntArray, npt.NDArray[np.int32], npt.NDArray[np.uint64]]:
        count, queries = len(edges), len(self._strict)
        first, piece, bits = self._first, self._piece, self._bits
        if not alive.all():
            lasting = np.repeat(alive, np.diff(first))
            piece, bits = piece[lasting], bits[lasting]
            sizes = np.where(alive, np.diff(first), 0)
            first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        marks, held = np.zeros(count + 2, np.uint8), np.zeros(count + 2, np.uint64)
        marks[1:-1][edges] = EDGE
        found = np.empty(count, np.uint32)
        words = np.zeros((count >> 6) + 1, np.uint64)
        out_first, at = np.zeros(queries + 1, np.int64), np.zeros(2, np.int64)
        out_row, out_bits = np.empty(room + count, np.int32), np.empty(room + count, np.uint64)
        while not _collected(
            first, piece, bits, self._strict, begin, end, row, at, marks, held, found, words,
            out_first, out_row, out_bits,
        ):  # fmt: skip
            made = int(at[1])
            more = 2 * made + count
            out_row = np.concatenate([out_row[:made], np.empty(more, np.int32)])
            out_bits = np.concatenate([out_bits[:made], np.empty(more, np.uint64)])
        made = int(at[1])
        return out_first, out_row[:made], out_bits[:made]
