"""Which conditions hold of many events at once: events are sorted, and conditions look into them.

Purpose
    To look up where an event stands among the conditions pays for few events.  Of many, it is
    sooner done the other way round: with the values of a batch sorted, the events of a range lie
    side by side, and a condition finds them by its two ends.  :class:`Postings` does that for all
    conditions of a :class:`~.predicate_index.PredicateIndex`.

Layout
    ::

        values of a column, sorted    2   3   3   5   8   8   9        one way of the index
        their rows                    4   0   6   1   2   5   3
                                          [===========)                the span of BETWEEN 3 AND 7

        spans of the access atoms, by way | one for each symbol with more to test: its rows
        query -> pieces: a span, and the bits that a row in it may stand for

    One query after the other marks its rows, leaves out those that no match of it can have, sorts
    the few that are left and takes its marks back, so what is found comes sorted by query and row.

Guarantee
    The hits of :func:`~.predicate_index.find_hits`, in the order of
    :func:`~.searching.by_query`, but for two uses of a query that one row satisfies: they are one
    hit with the bits of both.

Cost
    A batch is sorted once per column, a condition costs two binary searches, and a hit a few
    instructions that wait for nothing: marks of a batch lie in the cache.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...core.native import kernel, trailing_zeros
from ...query.pattern.groups import take_ranges
from .predicate_index import PredicateIndex, Read, holds_all, in_order

__all__ = ["SPANS_FOR_ROW", "Postings"]

IntArray = npt.NDArray[np.int64]
Rows = npt.NDArray[np.uint32]
SPANS_FOR_ROW = 16
"""So many spans are looked up in the time in which one row is looked up among all of them."""
CANDIDATES_MAX = 1 << 24
"""Rows to be tested further that may be looked at in one batch; they are kept while it lasts."""
EDGE, HITS = np.uint8(128), np.uint8(127)
SORTED_BY_HAND = 24


@kernel
def _narrowed(symbol, first, span, begin, end, row, order, tests, keys, valid, base, ends, out):
    """Rows of symbols with more to test: those of their spans that pass; see ``Postings``."""
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
    """Hits by query; False when the output lacks room for those of the next one.

    ``row`` counts from 1, as ``marks`` and ``held`` do, which have a place more on both sides.
    ``marks``: of how many uses of the query a row is a hit, and :data:`EDGE`; ``held``: their bits.
    ``at``: next query, next hit.
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
    """See the module.

    Parameters
    ----------
    index : PredicateIndex
    query, bits : arrays
        Of each use of a condition, in the order of the index.
    strict : bool array
        Per query: whether hits may be left out that have no other beside them.
    """

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
            by_low = np.argsort(way.low, kind="stable")  # to look them up in this order is sooner
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
        number = np.cumsum(tested) - 1  # of a symbol among those
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
        """Whether it is sooner done for so many rows at once than for one after the other."""
        return not rows or rows * SPANS_FOR_ROW >= self.spans

    def hits(
        self,
        read: Read,
        order: IntArray,
        edges: npt.NDArray[np.bool_],
        alive: npt.NDArray[np.bool_],
        room: int,
    ) -> tuple[IntArray, npt.NDArray[np.int32], npt.NDArray[np.uint64]] | None:
        """Hits by query: the first of each query, and of each hit its place in ``order`` and bits.

        Parameters
        ----------
        read : Read
            The batch.
        order : int64 array
            Rows in the order in which they are neighbours.
        edges : bool array
            Which of these may be beside others that are not here.
        alive : bool array
            Queries that are asked.
        room : int
            Hits that there will be, about.

        Returns
        -------
        tuple or None
            None where too many rows are to be tested further.
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
        """Where the span of each access atom lies among the rows, sorted by way and value."""
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
