"""The search kernel of a bank: the hits of every query and partition in one call.

Each (query, partition) is searched with ``query.pattern.contiguous``.  Its rows are hits, and one
*gap* row per run of other events, which only a star without condition passes::

    rank in partition   7  8  9 10 11 12 13        rows   A B gap A gap
    satisfied           A  B  -  -  A  -  -        (13 is the newest event of the partition)

Input and output are sorted by query, partition and rank.  A hit without an adjacent one is dropped
where no match can begin or continue with it, so most hits cost one comparison.
"""

# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from ...query.pattern.contiguous import Stars, match_contiguous
from ...query.pattern.machine import HEADER
from ...query.pattern.search import DONE, GROUP, MATCHES, RUNS, Edges, Rows, Task, horizon

IntArray = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
GAP = np.int64(-1)
"""Event rank of a gap row."""

BUFFER_FULL, KEPT_FULL = np.int64(-1), np.int64(-2)
SLICE_STEPS = 1 << 60


class Queries(NamedTuple):
    """Automaton, WITHIN in ticks or -1; limit of states tried from one start."""

    automaton: IntArray
    window: IntArray
    steps_max: int


class Hits(NamedTuple):
    """Those of ``q`` are ``first[q] .. first[q + 1]``; ``row`` counts in partition order."""

    first: IntArray
    row: npt.NDArray[np.int32]
    bits: Words


class Fresh(NamedTuple):
    """Events sorted by partition: partition, rank in it, tick, rank in the tick; and counts."""

    partition: IntArray
    rank: IntArray
    tick: IntArray
    among: IntArray
    count: IntArray


class OpenMatches(NamedTuple):
    """Rows ``first[k] .. first[k + 1]`` of (query, partition) ``k``; ``among`` may be ``GAP``."""

    query: IntArray
    partition: IntArray
    first: IntArray
    bits: Words
    rank: IntArray
    tick: IntArray
    among: IntArray


class Parts(NamedTuple):
    """Matches: ranks in the partition, ticks, and ranks in the tick of first and last event."""

    query: IntArray
    partition: IntArray
    first_row: IntArray
    last_row: IntArray
    first_tick: IntArray
    first_among: IntArray
    last_tick: IntArray
    last_among: IntArray


@kernel
def _put(buffers, n, bits, rank, tick, among):
    """Write a row; returns the number of rows."""
    words, ranks, ticks, amongs = buffers
    words[n] = bits
    ranks[n] = rank
    ticks[n] = tick
    amongs[n] = among
    return n + 1


@kernel
def search_bank(
    queries, tables, hits, fresh, kept, now, final, at, frame, visited, known, nothing, state,
    output, parts, kept_out, buffers,
):  # fmt: skip
    """Search every (query, partition) with hits, kept rows, or an elapsed window.

    ``now``: tick before which all events of a partition are known; ``at``: next query, hit and kept
    entry, entries and rows written.  Returns why it stopped, and the query or the number of rows
    for which a buffer is too small; the next call resumes there.
    """
    words, ranks, ticks, amongs = buffers
    count = queries.automaton.shape[0]
    kept_count = kept.query.shape[0]
    one_begin = np.zeros(1, np.int64)
    one_end = np.zeros(1, np.int64)
    position = np.zeros(1, np.int64)
    number = np.zeros(1, np.int64)
    seen = np.zeros(1, np.bool_)
    no_conditions = np.zeros(0, np.int64)
    image = np.zeros(HEADER, np.int64)
    q = at[0]
    h = at[1]
    k = at[2]
    while True:
        # the next (query, partition) of the hits, of the kept rows, or of both
        while q < count and h >= hits.first[q + 1]:
            q += 1
            if q < count:
                h = hits.first[q]
        query = count
        partition = np.int64(0)
        if q < count:
            query = q
            partition = fresh.partition[hits.row[h]]
        old = False
        if k < kept_count and (
            kept.query[k] < query or (kept.query[k] == query and kept.partition[k] <= partition)
        ):
            old = True
            query = kept.query[k]
            partition = kept.partition[k]
        if query == count:
            break
        at[0] = q
        at[1] = h
        at[2] = k
        a = queries.automaton[query]
        gap = tables.gap[a]
        first_bits = tables.first_bits[a]
        window = queries.window[query]
        stop = h
        if q == query:
            while stop < hits.first[q + 1] and fresh.partition[hits.row[stop]] == partition:
                stop += 1
        # the rows of the (query, partition)
        n = 0
        if old:
            for r in range(kept.first[k], kept.first[k + 1]):
                n = _put(buffers, n, kept.bits[r], kept.rank[r], kept.tick[r], kept.among[r])
        before = n
        i = h
        alone = tables.alone[a] or gap != 0
        newest = fresh.count[partition] - 1
        while i < stop:
            row = hits.row[i]
            bits = hits.bits[i]
            i += 1
            while i < stop and hits.row[i] == row:
                bits |= hits.bits[i]
                i += 1
            rank = fresh.rank[row]
            if n == 0 and bits & first_bits == 0:
                continue
            beside = n > 0 and ranks[n - 1] == rank - 1
            if not alone and not beside:
                followed = (i < stop and fresh.rank[hits.row[i]] == rank + 1) or rank == newest
                if not followed or bits & first_bits == 0:
                    # in no match: the rows behind it are not adjacent to those before
                    if n > 0 and amongs[n - 1] != GAP:
                        if n + 2 > words.shape[0]:
                            return BUFFER_FULL, n + 2
                        n = _put(buffers, n, gap, rank, ticks[n - 1], GAP)
                    elif n > 0:
                        ranks[n - 1] = rank
                    continue
            if n + 3 > words.shape[0]:
                return BUFFER_FULL, n + 3
            if n > 0 and not beside:
                if amongs[n - 1] == GAP:
                    ranks[n - 1] = rank - 1
                else:
                    n = _put(buffers, n, gap, rank - 1, ticks[n - 1], GAP)
            n = _put(buffers, n, gap | bits, rank, fresh.tick[row], fresh.among[row])
        if n > 0 and ranks[n - 1] < newest:
            if amongs[n - 1] == GAP:
                ranks[n - 1] = newest
            else:
                if n + 1 > words.shape[0]:
                    return BUFFER_FULL, n + 1
                n = _put(buffers, n, gap, newest, ticks[n - 1], GAP)
        until = now[partition]
        over = final or (n > 0 and window >= 0 and horizon(ticks[0], window) < until)
        position[0] = 0
        if n > before or over:
            # all matches of this (query, partition) are written, or none
            m = state[MATCHES]
            state[RUNS] = 0
            p0 = tables.place[a]
            p1 = tables.place[a + 1]
            e0 = tables.edge[a]
            e1 = tables.edge[a + 1]
            edges = Edges(
                tables.first[p0 + a : p1 + a + 1],
                tables.target[e0:e1],
                tables.flag[e0:e1],
                tables.bit[p0:p1],
            )
            stars = Stars(
                tables.star_bits[a],
                tables.kind[p0:p1],
                tables.exits[p0:p1],
                tables.star_first[p0:p1],
                tables.star_last[p0:p1],
            )
            one_end[0] = n
            number[0] = 0
            rows = Rows(words, one_begin, one_end, one_end, position, seen, number, ticks)
            task = Task(
                window,
                until,
                final,
                0,
                first_bits,
                False,
                2 if window >= 0 else 1,
                tables.skip[a],
                tables.member[p0:p1],
                queries.steps_max,
                SLICE_STEPS,
                SLICE_STEPS,
            )
            state[GROUP] = 0
            status = match_contiguous(
                edges,
                stars,
                no_conditions,
                image,
                image.view(np.float64),
                frame,
                visited,
                1,
                known[: 2 * (p1 - p0)],
                rows,
                task,
                nothing,
                state,
                output,
            )
            matches = state[MATCHES]
            if status != DONE:
                state[MATCHES] = m
                return np.int64(status), query
            for j in range(m, matches):
                begin = output.start[j]
                last = begin + output.length[j] - 1
                parts.query[j] = query
                parts.partition[j] = partition
                parts.first_row[j] = ranks[begin]
                parts.last_row[j] = ranks[last]
                parts.first_tick[j] = ticks[begin]
                parts.first_among[j] = amongs[begin]
                parts.last_tick[j] = ticks[last]
                parts.last_among[j] = amongs[last]
        # rows that may still be part of a match
        begin = n if final else min(n, position[0])
        while begin < n and words[begin] & first_bits == 0:
            begin += 1
        if begin < n:
            e = at[3]
            used = at[4]
            if e + 2 > kept_out.first.shape[0] or used + n - begin > kept_out.bits.shape[0]:
                return KEPT_FULL, n
            kept_out.query[e] = query
            kept_out.partition[e] = partition
            kept_out.first[e] = used
            for r in range(begin, n):
                kept_out.bits[used] = words[r]
                kept_out.rank[used] = ranks[r]
                kept_out.tick[used] = ticks[r]
                kept_out.among[used] = amongs[r]
                used += 1
            kept_out.first[e + 1] = used
            at[3] = e + 1
            at[4] = used
        h = stop
        if old:
            k += 1
        at[0] = q
        at[1] = h
        at[2] = k
    return np.int64(DONE), 0
