"""Late events under AFTER MATCH SKIP: where the search must be made again, and where it need not.

Purpose
    One match at a time means that a late event may change matches far behind it: a match that it
    lengthens skips the start of the next.  :func:`late_regions` says for each partition from which
    row to which the search with the late events may go another way than the one without them.

Layout
    ::

        old search   o-[====]-o-o-[=====]-o----[===]-o      o  a row where a search looked for
        late event               x                              a match, [==] rows it skipped
        new search   o-[====]-o-o-o-[======]-o-[===]-o
                              |              |
                            begin           end

    *begin*: matches that begin more than the window before the late event are over before it, so
    both searches find them; the new one begins behind the last of them.  *end*: the first row
    behind the last late event that both searches come by.

Guarantee
    Matches that begin before ``begin``, or at ``end`` and behind, are the same with the late events
    and without; a search that begins at ``begin`` finds those in between.  With NEXT and ``$`` as
    many rows before the late event change their conditions, with PREV and ``^`` as many behind it.

Limits
    One match at a time; under EVENT SELECTION the region is the window on both sides.  Both
    searches are made over the rows that are given.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...compiled import kernel
from ...errors import InvalidArgument
from .columns import flat, numbers
from .groups import KeyCodes, group_rows
from .match_stream import MatchStream
from .matcher import Groups, Matches, MatchLimits

if TYPE_CHECKING:
    from .compiled import CompiledMatch

__all__ = ["LateRegions", "late_regions"]

IntArray = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LateRegions:
    """Per partition with late events, in rows of the table that was given.

    Attributes
    ----------
    begin : int64 array
        Row at which the new search begins.
    end : int64 array
        First row from which on both searches are the same; the number of rows where they do not
        meet within the table.
    """

    begin: IntArray
    end: IntArray


class _Found(MatchStream):
    """Matches as rows of the input: where each begins and where the search goes on."""

    def __init__(self, compiled: CompiledMatch) -> None:
        clause = replace(compiled.clause, rows="all", measures=())  # every event has its label
        super().__init__(replace(compiled, clause=clause, measures=(), _schema=None), MatchLimits())
        self.mode = "all"
        self.begins: list[IntArray] = []
        self.lasts: list[IntArray] = []
        skip = clause.skip
        self._next = skip is not None and skip.mode == "next"
        self._to = skip.mode if skip is not None and skip.mode in ("first", "last") else ""

    def _results(self, matches: Matches, groups: Groups) -> tuple[IntArray, pa.Table]:
        full = np.flatnonzero(matches.length > 0)
        last = matches.last_row[full]
        if self._to:
            member = self.matcher.skip_member[matches.places]
            match = np.searchsorted(matches.first, np.arange(len(member)), side="right") - 1
            entries = np.flatnonzero(member)
            target = np.zeros(len(matches.start), np.int64)
            if self._to == "first":
                entries = entries[::-1]
            target[match[entries]] = matches.rows[entries]  # the last write counts
            last = target[full]
        elif self._next:
            last = matches.start[full]
        self.begins.append(self._sequence_of(matches.start[full]))
        self.lasts.append(self._sequence_of(last))
        return np.zeros(0, np.int64), pa.table({})

    def _put_out(self, watermark: int) -> Iterator[pa.RecordBatch]:
        self.pending = []
        return iter(())

    def matches(self, rows: pa.Table) -> tuple[IntArray, IntArray]:
        """First row of each match, and the last one skipped (that to be gone on from, for TO)."""
        for batch in rows.to_batches():
            for _ in self.feed(batch):
                pass
        for _ in self.finish():
            pass
        none = np.zeros(0, np.int64)
        return np.concatenate([none, *self.begins]), np.concatenate([none, *self.lasts])


@kernel
def _regions(
    offsets, order, tick, late, old_last, new_last, window, length, ahead, behind, to, begin, end
):
    """See :func:`late_regions`; ``old_last[row]``: where the old match from a row ends, or -1."""
    for g in range(offsets.shape[0] - 1):
        low = offsets[g]
        high = offsets[g + 1]
        first = low
        while first < high and not late[order[first]]:
            first += 1
        begin[g] = -1
        if first == high:
            continue
        last = high - 1
        while not late[order[last]]:
            last -= 1
        # rows whose conditions, or whose matches, a late event can change
        touched = max(low, first - ahead)
        start = low
        if window >= 0:
            start = touched
            while start > low and tick[order[start - 1]] >= tick[order[touched]] - window:
                start -= 1
        elif length >= 0:
            start = max(low, touched - length + 1)
        # both searches up to there; then each by itself, until they meet
        at = low
        while at < start:
            found = old_last[order[at]]
            if found < 0:
                at += 1
                continue
            at += 1
            while order[at - 1] < found:  # to the last row of the match, and behind it
                at += 1
            if to:  # the search goes on with that row
                at -= 1
        begin[g] = order[at] if at < high else -2
        old = at
        new = at
        safe = last + 1 + behind
        while (old != new or new < safe) and min(old, new) < high:
            # the one that is behind takes the next step
            mine = new_last if new <= old else old_last
            p = new if new <= old else old
            row = order[p]
            if new > old and late[row]:  # the old search has not seen it
                old += 1
                continue
            found = mine[row]
            p += 1
            if found >= 0:
                while order[p - 1] < found:
                    p += 1
                if to:
                    p -= 1
            if new <= old:
                new = p
            else:
                old = p
        met = min(old, new)
        end[g] = order[met] if old == new and met < high else order.shape[0]


def late_regions(compiled: CompiledMatch, rows: pa.Table, late: Bools) -> LateRegions:
    """Where a search with late events differs from the one without.

    Parameters
    ----------
    compiled : CompiledMatch
        One match at a time.
    rows : pyarrow.Table
        Columns of the clause's input in the order of time, late events in their places.  It begins
        where the search of each of its partitions is known to begin.
    late : bool array
        Which rows are late.

    Raises
    ------
    InvalidArgument
        Under EVENT SELECTION.
    """
    if compiled.clause.selection is not None:
        raise InvalidArgument("under EVENT SELECTION matches do not depend on each other")
    count = rows.num_rows
    known = np.flatnonzero(~late)
    old_last, new_last = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    begins, lasts = _Found(compiled).matches(rows)
    new_last[begins] = lasts
    begins, lasts = _Found(compiled).matches(rows.take(pa.array(known)))
    old_last[known[begins]] = known[lasts]
    codes, partitions = np.zeros(count, np.int64), 1
    if compiled.partition_by:
        keys = KeyCodes(len(compiled.partition_by))
        codes = keys.encode([rows.column(name) for name in compiled.partition_by])
        partitions = keys.count
    order, offsets = group_rows(codes, partitions)
    tick: npt.NDArray[np.generic] = np.zeros(count, np.int64)
    if compiled.columns.time is not None:
        tick, _ = numbers(flat(rows.column(compiled.columns.time)), "i")
    _, _, flags = compiled.automaton.tables
    ahead = max(compiled.lookahead, int((flags & 2).any()))
    behind = max(compiled.history, int((flags & 1).any()))
    longest = compiled.automaton.length_max
    skip = compiled.clause.skip
    begin, end = np.full(partitions, -1, np.int64), np.full(partitions, -1, np.int64)
    _regions(
        offsets, order, np.array(tick, np.int64), late, old_last, new_last,
        -1 if compiled.within is None else compiled.within, -1 if longest is None else longest,
        ahead, behind, skip is not None and skip.mode in ("first", "last"), begin, end,
    )  # fmt: skip
    some = begin != -1
    return LateRegions(np.where(begin[some] < 0, count, begin[some]), end[some])
