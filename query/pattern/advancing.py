"""Incremental MATCH_RECOGNIZE: each step takes events and a watermark; final matches come out.

A match is final when no event after the watermark can change it.  Three kinds of search:

======  ======================================================================================
one     one match at a time.  A search that reaches the last row is suspended and resumed
fresh   EVENT SELECTION: for each new event that can end a match, the sets that end with it
whole   EVENT SELECTION where a set is final only when its window ends (``$``, an absence at
        the end) or when no longer set can follow (MAXIMAL), or where conditions look at the
        partial match: starts are searched in order, once they are final
======  ======================================================================================

The steps together output exactly the rows of the batch query, whatever the division into steps;
within a step, rows are ordered by last event.  A step costs its events, their partitions and the
suspended attempts there, not the stored rows, with two exceptions: conditions that look at the
partial match prepare their columns of the partition's open rows again, and EVENT SELECTION passes
over the bits of the partition's window when an event can end a match.  Input must be in time order.
Without WITHIN the state can grow to ``memory_bytes``.  After an error the object is unusable.

Clauses with NEXT, further sort keys, MATCH_NUMBER or WITH UNMATCHED ROWS are not searched this way:
see ``live.pattern_form.keeps_state`` and ``query.split.cuts.decided_at_once``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.sorting import distinct
from ...core.times import INT64_MAX, INT64_MIN, moved, python_values, value_text
from ...errors import ResourceLimit
from ...store.tail import ticks_of_column
from ..contract.operator import InstantSearch, MatchLimits
from .any_choice import Selecting
from .attempts import OpenAttempts
from .automaton import ACCEPT, ANCHOR_END
from .buffers import completing
from .compiled import CompiledMatch
from .matcher import Matcher
from .matches import Matches
from .results import RANK as RANKS
from .results import Results
from .retained import (
    EVENT,
    FAR,
    MARKS,
    RANK,
    TAKEN,
    TIME,
    WORDS,
    RetainedInput,
    Space,
    expire,
    has_last_event,
    next_start,
)
from .search import Rows

IntArray = npt.NDArray[np.int64]


class Decided(NamedTuple):
    """Result rows by last event, and the tick of the first event of the match of each."""

    rows: pa.Table
    first_tick: IntArray


CHUNK_ROWS = 1 << 16


class AdvancingMatch(InstantSearch):
    """One clause over an unbounded stream.  A match waits for those of its partition that begin
    earlier, except under EVENT SELECTION.
    """

    def __init__(
        self,
        compiled: CompiledMatch,
        limits: MatchLimits | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        compiled = replace(compiled, selecting=Selecting(search=True))
        self.compiled = compiled
        self.limits = limits or MatchLimits()
        self.check = check
        self.matcher = Matcher(compiled, self.limits, self._describe_row)
        self.input = RetainedInput(compiled)
        self.results = Results(compiled, self._take, compiled.naming)
        self.window = compiled.within
        self.kind = _kind(compiled)
        self.attempts = OpenAttempts()
        self.watermark = INT64_MIN
        self._marks_ends = marks_ends(compiled)
        self._space: Space | None = None
        self._found: list[tuple[Decided, IntArray]] = []
        self._found_bytes = 0
        self._silent = False
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._nothing = Decided(compiled.output_schema.empty_table(), np.zeros(0, np.int64))

    # -- steps ----------------------------------------------------------------------------------

    def advance(self, batch: pa.RecordBatch | pa.Table | None, watermark: int) -> Decided:
        """Append events in time order (ties in arrival order) and advance the watermark, a tick at
        or before which no event will follow; returns what has become final.
        """
        self.watermark = max(self.watermark, watermark)
        if not self._silent:
            self.input.unbound()
        final = self.watermark == INT64_MAX  # nothing comes behind that
        return self._step(self._table(batch), final)

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if not batch.num_rows:
            return
        if self._waiting_rows >= CHUNK_ROWS:
            before = int(ticks_of_column(batch.column(str(self.compiled.columns.time)))[0]) - 1
            yield from self.finish(before)
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows

    def finish(self, last: int | None = None) -> Iterator[pa.RecordBatch]:
        batches, self._waiting, self._waiting_rows = self._waiting, [], 0
        table = pa.Table.from_batches(batches) if batches else None
        yield from self.advance(table, INT64_MAX if last is None else last).rows.to_batches()

    def replay(self, batches: Iterable[pa.RecordBatch], last: int) -> None:
        """Take events up to a tick whose results were already output."""
        self._silent = True
        for batch in batches:
            deque(self.feed(batch), 0)
        deque(self.finish(last), 0)
        self._silent, self.input.hits = False, 0

    def _table(self, batch: pa.RecordBatch | pa.Table | None) -> pa.Table:
        if batch is None:
            return self.input.schema.empty_table()
        if isinstance(batch, pa.RecordBatch):
            batch = pa.Table.from_batches([batch])
        table = batch.select(self.input.inputs)
        return table if table.schema == self.input.schema else table.cast(self.input.schema)

    def _step(self, table: pa.Table, final: bool) -> Decided:
        if self.check is not None:
            self.check()
        retained = self.input.rows
        self._found, self._found_bytes = [], 0
        self.matcher.steps = self.matcher.rows = 0  # a step has the budget of a query
        groups, ready = self.input.append(table)
        now = min(self.watermark + 1, INT64_MAX)
        if final:
            searched = (retained.end > retained.first).nonzero()[0]
        elif self.window is not None:
            searched = distinct(np.concatenate([groups, (retained.due < now).nonzero()[0]]))
        else:
            searched = groups
        before = retained.ready[searched]
        # of the last step, partitions none of whose rows is stored are not searched
        before[np.isin(searched, groups)] = ready[np.isin(groups, searched)]
        self.input.evaluate(searched)
        if len(searched):
            if self.kind == "one":
                self._search_one(searched, before, now, final)
            elif self.kind == "fresh":
                self._search_fresh(searched, before, now, final)
            else:
                self._search_whole(searched, now, final)
            self._drop(searched, final)
        moved = self.input.tidy(self.watermark)
        if moved is not None:
            self.attempts.renumber(moved)
        if self.nbytes > self.limits.memory_bytes:
            raise ResourceLimit(
                f"pattern {self.matcher.text} keeps more than {self.limits.memory_bytes} bytes of "
                "events, because partial matches stay open; add WITHIN, or bounds to its "
                "quantifiers"
            )
        parts, self._found = self._found, []
        if not parts:
            return self._nothing
        rows = pa.concat_tables([decided.rows for decided, _ in parts])
        first_tick = np.concatenate([decided.first_tick for decided, _ in parts])
        place = np.concatenate([where for _, where in parts])
        if (np.diff(place) < 0).any():
            order = np.argsort(place, kind="stable")
            rows, first_tick = rows.take(pa.array(order)), first_tick[order]
        return Decided(rows, first_tick)

    @property
    def hits(self) -> int:
        return self.input.hits

    @property
    def nbytes(self) -> int:
        return self.input.nbytes + self.attempts.nbytes

    @property
    def oldest_tick(self) -> int | None:
        columns = self.input.rows.all_columns()
        return int(self.input.rows.cells[TIME][columns].min()) if len(columns) else None

    # -- searches -------------------------------------------------------------------------------

    def _rows(
        self, space: Space, which: IntArray, position: IntArray, stop: IntArray, number: IntArray
    ) -> Rows:
        return Rows(
            space.prepared.words, space.begin[which], space.end[which], stop, position,
            space.seen[which], number, space.time,
        )  # fmt: skip

    def _search_one(self, groups: IntArray, before: IntArray, now: int, final: bool) -> None:
        retained, attempts = self.input.rows, self.attempts
        mine = np.zeros(retained.partitions, np.bool_)
        mine[groups] = True
        mine = mine[attempts.group]
        waiting = mine.nonzero()[0]
        gathers = self.input.must_gather(groups)
        if gathers and not self.matcher.automaton.empty_match:
            self._pass_idle(groups)
            open_ = retained.position[groups] < retained.end[groups]
            open_ |= np.isin(groups, attempts.group[waiting])
            groups, before = groups[open_], before[open_]
        if not len(groups):
            return
        owner = groups.searchsorted(attempts.group[waiting])
        low = retained.position[groups]  # an open attempt begins there
        if gathers:
            space = self.input.gathered(groups, low)
        else:
            space = self.input.where_they_lie(groups)
        prepared = space.prepared
        every, moved = np.arange(len(groups)), space.moved
        start, place = np.full((2, len(groups)), -1)
        start[owner], place[owner] = attempts.start[waiting] + moved[owner], waiting
        number = retained.number[groups]
        rows = self._rows(
            space, every, retained.position[groups] + moved, np.full(len(groups), FAR >> 1) + moved,
            number,
        )  # fmt: skip
        if not self.input.careful and self.matcher.prunes(prepared):
            begin = low if gathers else np.maximum(before, retained.position[groups])
            self.matcher.prune(prepared, prepared.words, rows, begin + moved, now, final)
        attempts.offer(start, place, keep=not prepared.careful and self._keeps(prepared))
        searching = self.matcher.search(
            prepared, rows, now, final, attempts=attempts, check=self.check, bounded=True
        )
        self._space = space
        for matches in searching:
            self._say(matches, space)
        retained.position[groups] = np.maximum(rows.position - moved, 0)
        retained.number[groups] = number
        entry = attempts.entries[:, 0]
        begun = attempts.entries[:, 1] - moved[entry]
        attempts.settle(mine, groups[entry], begun)

    def _keeps(self, prepared: Any) -> bool:
        """Whether stacks of this search stay valid for the next one."""
        if (prepared.condition >= 0).any():
            return self.compiled.conditions.path_dependent and self.compiled.conditions.portable
        return True

    def _pass_idle(self, groups: IntArray) -> None:
        retained = self.input.rows
        at = retained.place(groups, retained.position[groups])
        end = retained.place(groups, retained.end[groups])
        words = retained.cells[WORDS].view(np.uint64)
        moved = retained.position[groups] - at
        next_start(words, at, end, self.matcher.follow[0])
        retained.position[groups] = at + moved

    def _search_fresh(self, groups: IntArray, before: IntArray, now: int, final: bool) -> None:
        retained = self.input.rows
        end = retained.end[groups]
        ending = np.zeros(len(groups), np.bool_)
        fresh = np.minimum(np.maximum(before, retained.first[groups]), end)
        has_last_event(
            retained.cells[WORDS].view(np.uint64), retained.place(groups, fresh),
            retained.place(groups, end), self.matcher.finals, ending,
        )  # fmt: skip
        if ending.any():
            chosen = groups[ending]
            position = retained.position[chosen]
            space = self.input.gathered(chosen, position)
            prepared, moved = space.prepared, space.moved
            words = prepared.words
            new = fresh[ending] + moved
            at = position + moved
            starts = words.copy() if self.matcher.selection == "next" else words
            if not prepared.careful:
                window = -1 if self.window is None else self.window
                stop = end[ending] + moved
                completing(
                    starts, self.matcher.follow[1:].copy(), self.matcher.finals, space.time,
                    window, at, new, stop, stop, now, False,
                    self.matcher.selection != "contiguous",
                )  # fmt: skip
            every = np.arange(len(chosen))
            rows = self._rows(space, every, at, end[ending] + moved, retained.number[chosen])
            self._space = space
            # the first set found with a given last row is the longest
            taken = np.zeros(len(words) if self.compiled.clause.mode else 0, np.bool_)
            for matches in self.matcher.search(
                prepared,
                rows,
                now,
                final,
                starts=starts,
                fresh=new,
                taken=taken,
                check=self.check,
                bounded=True,
            ):
                self._say(matches, space)
        if final:
            retained.position[groups] = end
            return
        if self.window is not None:
            at = retained.place(groups, retained.position[groups])
            moved = retained.position[groups] - at
            expire(retained.cells[TIME], at, retained.place(groups, end), self.window, now)
            retained.position[groups] = at + moved
        longest = self.compiled.automaton.length_max
        if self.matcher.selection == "contiguous" and longest is not None:
            retained.position[groups] = np.maximum(
                retained.position[groups], end - max(0, longest - 1)
            )

    def _search_whole(self, groups: IntArray, now: int, final: bool) -> None:
        retained = self.input.rows
        self._pass_idle(groups)
        position = retained.position[groups]
        over = position < retained.end[groups]
        if self.window is not None and not final and self.compiled.clause.mode is None:
            first = retained.cells[TIME][retained.place(groups[over], position[over])]
            over[over] = moved(first, self.window) < now
        if not over.any():
            return
        groups, position = groups[over], position[over]
        space = self.input.gathered(groups, position)
        prepared = space.prepared
        words = prepared.words
        starts = words.copy() if self.matcher.selection == "next" else words
        number = retained.number[groups]
        at = position + space.moved
        every = np.arange(len(groups))
        rows = self._rows(space, every, at, np.full(len(groups), FAR), number)
        if self.matcher.prunes(prepared):
            self.matcher.prune(prepared, starts, rows, at.copy(), now, final)
        self._space = space
        taken = np.zeros(0, np.bool_)
        if self._marks_ends:
            marks = retained.cells[MARKS]
            taken = (marks[space.column(np.arange(len(words)))] & TAKEN) != 0
        for matches in self.matcher.search(
            prepared, rows, now, final, starts=starts, taken=taken, check=self.check, bounded=True
        ):
            self._say(matches, space)
        if self._marks_ends:
            marks[space.column(np.flatnonzero(taken))] |= TAKEN
        retained.position[groups] = at - space.moved
        retained.number[groups] = number

    def _drop(self, groups: IntArray, final: bool) -> None:
        """Drop rows that no later match can need; set when the partitions are due again."""
        retained, attempts = self.input.rows, self.attempts
        if self.kind == "whole":
            self._pass_idle(groups)
        low = retained.position[groups]  # an open attempt begins there
        if self.kind == "one":
            waiting = np.zeros(retained.partitions, np.bool_)
            waiting[attempts.group] = True
            open_ = waiting[groups]
        else:
            open_ = low < retained.end[groups]
        if final:
            low = retained.end[groups].copy()
            open_[:] = False
        due = np.full(len(groups), FAR)
        if self.window is not None and open_.any():
            first = retained.cells[TIME][retained.place(groups[open_], low[open_])]
            due[open_] = moved(first, self.window)
        retained.due[groups] = due
        needed = np.minimum(np.minimum(low, retained.ready[groups]), retained.end[groups])
        retained.drop(groups, needed - self.compiled.history)

    # -- results --------------------------------------------------------------------------------

    def _say(self, matches: Matches, space: Space) -> None:
        if self._silent:
            return
        cells = self.input.rows.cells
        begin, end = space.begin[matches.group], space.end[matches.group]
        match, _, table = self.results.of(matches, begin, end)
        first, last = space.column(matches.start[match]), space.column(matches.last_row[match])
        self._found.append((Decided(table, cells[TIME][first]), cells[EVENT][last]))
        self._found_bytes += table.nbytes
        if self._found_bytes > self.limits.memory_bytes:
            raise ResourceLimit(
                f"the matches of pattern {self.matcher.text} that end in one step need more than "
                f"{self.limits.memory_bytes} bytes; narrow WITHIN or the conditions"
            )

    def _take(self, name: str, indices: pa.Array) -> pa.Array:
        assert self._space is not None
        rows = indices.fill_null(-1).to_numpy(zero_copy_only=False)
        columns = self._space.column(np.maximum(rows, 0))
        if name == RANKS:
            return pa.array(self.input.rows.cells[RANK][columns])
        events = np.where(rows >= 0, self.input.rows.cells[EVENT][columns], -1)
        return self.input.events.take(name, events)

    def _describe_row(self, row: int) -> str:
        assert self._space is not None
        column = self._space.column(np.array([row]))
        number = self.input.rows.cells[EVENT][column]
        time = self.compiled.columns.time
        names = [*self.compiled.partition_by]
        names += [time] if time is not None and time in self.input.inputs else []
        table = self.input.events.table(names, number)
        parts = [f"{n} = {value_text(python_values(table.column(n))[0])}" for n in names]
        return "at " + (", ".join(parts) or f"row {int(number[0]) + 1} of the input")

    def begin_behind(self, keys: pa.Table, tick: IntArray, rank: IntArray) -> None:
        """Let no match begin before an event, in each of some partitions, of what is replayed."""
        self.input.bound(keys, tick, rank)


def final_with_last_event(compiled: CompiledMatch) -> bool:
    """Whether every match is final as soon as its last event arrives."""
    return _kind(compiled) == "fresh"


def marks_ends(compiled: CompiledMatch) -> bool:
    """Whether searches must remember the rows at which matches of earlier starts ended."""
    incremental = compiled.clause.mode == "incremental"
    return incremental and _kind(compiled) == "whole"


def _kind(compiled: CompiledMatch) -> str:
    if compiled.clause.selection is None:
        return "one"
    if compiled.clause.mode == "maximal":
        return "whole"
    ends = [edge for edges in compiled.automaton.edges for edge in edges if edge.target == ACCEPT]
    waits = any(edge.anchor & ANCHOR_END or edge.absent for edge in ends)
    return "whole" if waits or not compiled.conditions.by_position else "fresh"
