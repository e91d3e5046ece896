"""Incremental MATCH_RECOGNIZE: each step takes events and a watermark; final matches come out.

A match is final when no event after the watermark can change it.  Three kinds of search:

======  ======================================================================================
one     one match at a time.  A search that reaches the last row is suspended and resumed;
        with SKIP TO NEXT ROW every start has its own search
fresh   EVENT SELECTION: for each new event that can end a match, the sets that end with it
whole   EVENT SELECTION where a set is final only when its window ends (``$``, an absence at
        the end, MATCH_NUMBER) or when no longer set can follow (MAXIMAL), or where conditions
        look at the partial match: starts are searched in order, once they are final
======  ======================================================================================

The steps together output exactly the rows of the batch query, whatever the division into steps;
within a step, rows are ordered by last event.  A step costs its events, their partitions and the
suspended attempts there, not the stored rows, with two exceptions: conditions that look at the
partial match prepare their columns of the partition's open rows again, and EVENT SELECTION passes
over the bits of the partition's window when an event can end a match.  Input must be in time order.
Without WITHIN the state can grow to ``memory_bytes``.  After an error the object is unusable.

The state of a stream can be exported, except for what re-reading a bounded part of the input
restores.  Events are identified by tick and rank, so late events before them do not invalidate an
export.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.sorting import distinct
from ...core.times import INT64_MAX, INT64_MIN, moved, python_values, value_text
from ...errors import InvalidArgument, ResourceLimit
from ..contract.operator import MatchLimits
from .any_choice import Selecting
from .attempts import OpenAttempts
from .automaton import ACCEPT, ANCHOR_END
from .binding import NUMBER, MatchAggregate, MatchNumber
from .buffers import completing
from .compiled import CompiledMatch
from .matcher import Matcher
from .matches import Matches
from .results import RANK as RANKS
from .results import Decided, Results
from .retained import (
    COVERED,
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


@dataclass(frozen=True)
class Positions:
    """State of a stream.
    ``positions``: PARTITION BY columns; ``@tick`` and ``@rank`` of the first event at which a match
    may begin; ``@number`` of matches; ``@seen``: there were events.  ``rows``: events still needed.
    """

    positions: pa.Table
    rows: pa.Table


def export_positions(
    retained_input: RetainedInput, attempts: OpenAttempts, since: int, watermark: int, forgets: bool
) -> Positions:
    """State for a restart besides the events from ``since`` on; see ``AdvancingMatch.export``."""
    retained, cells = retained_input.rows, retained_input.rows.cells
    low = retained.position.copy()
    np.minimum.at(low, attempts.group, attempts.start)
    there = low < retained.end
    tick, rank = retained.tick.copy(), retained.rank + 1
    open_ = retained.place(np.flatnonzero(there), low[there])
    tick[there], rank[there] = cells[TIME][open_], cells[RANK][open_]
    named = (
        (retained.end > retained.first) | (retained.tick >= min(since, watermark)) | (not forgets)
    )
    columns: dict[str, Any] = {
        n: retained_input.keys.column(n) for n in retained_input.partition_by
    }
    columns |= {
        "@tick": tick, "@rank": rank, "@number": retained.number,
        "@seen": retained.seen | (retained.first > 0),
    }  # fmt: skip
    positions = pa.table(columns).filter(pa.array(named))
    chosen = retained.all_columns()
    chosen = chosen[cells[TIME][chosen] < since]
    chosen = chosen[np.argsort(cells[EVENT][chosen])]
    rows = retained_input.events.table(retained_input.inputs, cells[EVENT][chosen])
    rows = rows.append_column("@rank", pa.array(cells[RANK][chosen]))
    marks = cells[MARKS][chosen] & (COVERED | TAKEN)
    return Positions(positions, rows.append_column("@marks", pa.array(marks)))


def restore_positions(retained_input: RetainedInput, saved: Positions) -> None:
    retained, positions = retained_input.rows, saved.positions
    groups = retained_input.partitions_of(positions)
    bounds = {n: positions.column(n).to_numpy() for n in ("@tick", "@rank", "@number")}
    retained_input.bound(groups, bounds["@tick"], bounds["@rank"])
    retained.number[groups] = bounds["@number"]
    retained.seen[groups] = positions.column("@seen").to_numpy()
    before = retained_input.next_number
    retained_input.append(
        saved.rows.select(retained_input.inputs).cast(retained_input.schema),
        saved.rows.column("@rank").to_numpy(),
    )
    columns = retained.all_columns()
    columns = columns[retained.cells[EVENT][columns] >= before]
    columns = columns[np.argsort(retained.cells[EVENT][columns])]
    marks = saved.rows.column("@marks").to_numpy()
    if marks.any():  # then every given row is stored
        retained.cells[MARKS][columns] |= marks


IntArray = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
NONE: IntArray = np.zeros(0, np.int64)


class AdvancingMatch:
    """One clause over an unbounded stream; InvalidArgument if it would have to sort its input.
    ``in_turn``: with SKIP TO NEXT ROW, a match waits for matches of its partition that begin
    earlier.
    """

    def __init__(
        self,
        compiled: CompiledMatch,
        limits: MatchLimits | None = None,
        check: Callable[[], None] | None = None,
        *,
        in_turn: bool = False,
    ) -> None:
        if not compiled.in_time_order:
            raise InvalidArgument(
                "matches over a stream that goes on need ORDER BY its time attribute, ascending, "
                "as the first key"
            )
        compiled = replace(compiled, selecting=Selecting(search=True))
        self.compiled = compiled
        self.limits = limits or MatchLimits()
        self.check = check
        self.matcher = Matcher(compiled, self.limits, self._describe_row)
        self.input = RetainedInput(compiled)
        self.results = Results(compiled, self._take, compiled.naming)
        self.window = compiled.within
        counts = reads_number(compiled)
        self.kind = _kind(compiled, counts)
        skip = compiled.clause.skip
        each = self.kind == "one" and skip is not None and skip.mode == "next" and not counts
        self.attempts = OpenAttempts(go_on=each and not in_turn)
        self.watermark = INT64_MIN
        self._unmatched = compiled.clause.rows == "all with unmatched"
        self._marks_ends = marks_ends(compiled)
        self._forgets = not (counts or self.input.remembers_begin)
        self._space: Space | None = None
        self._held: pa.Table | None = None
        self._found: list[tuple[Decided, IntArray]] = []
        self._silent = False
        self._nothing = Decided(
            compiled.output_schema.empty_table(), NONE, NONE, NONE, compiled.partition_by, NONE,
            NONE, NONE, np.zeros(1, np.int64), NONE, NONE,
        )  # fmt: skip

    # -- steps ----------------------------------------------------------------------------------

    def advance(self, batch: pa.RecordBatch | pa.Table | None, watermark: int) -> Decided:
        """Append events in time order (ties in arrival order) and advance the watermark, a tick at
        or before which no event will follow; returns what has become final.
        """
        table = self._table(batch)
        if self.input.ties:  # their order may still change
            table = self._hold(table, watermark)
        self.watermark = max(self.watermark, watermark)
        if not self._silent:
            self.input.unbound()
        return self._step(table, final=self.watermark == INT64_MAX)  # nothing comes behind that

    def finish(self) -> Decided:
        table = self._held if self._held is not None else self._table(None)
        self._held = None
        return self._step(table, final=True)

    def replay(self, batch: pa.RecordBatch | pa.Table | None, watermark: int) -> None:
        """Like ``advance``, for events whose results were already output: returns nothing."""
        self._silent = True
        try:
            self.advance(batch, watermark)
        finally:
            self._silent = False

    def _table(self, batch: pa.RecordBatch | pa.Table | None) -> pa.Table:
        if batch is None:
            return self.input.schema.empty_table()
        if isinstance(batch, pa.RecordBatch):
            batch = pa.Table.from_batches([batch])
        table = batch.select(self.input.inputs)
        return table if table.schema == self.input.schema else table.cast(self.input.schema)

    def _hold(self, table: pa.Table, watermark: int) -> pa.Table:
        if self._held is not None:
            table = pa.concat_tables([self._held, table])
            self._held = None
        cut = int(np.searchsorted(self.input.ticks(table), watermark, side="right"))
        if cut < table.num_rows:
            self._held = table.slice(cut)
        return table.slice(0, cut)

    def _step(self, table: pa.Table, final: bool) -> Decided:
        if self.check is not None:
            self.check()
        retained = self.input.rows
        self._found = []
        groups, ready = self.input.append(table)
        now = min(self.watermark + 1, INT64_MAX)
        if final:
            searched = np.flatnonzero(retained.end > retained.first)
        elif self.window is not None:
            searched = distinct(np.concatenate([groups, np.flatnonzero(retained.due < now)]))
        else:
            searched = groups
        before = retained.ready[searched]
        before[np.isin(searched, groups)] = ready
        self.input.evaluate(searched, final)
        if len(searched):
            if self.kind == "one":
                self._search_one(searched, before, now, final)
            elif self.kind == "fresh":
                self._search_fresh(searched, before, now, final)
            else:
                self._search_whole(searched, now, final)
            self._drop(searched, final)
        moved = self.input.tidy(self.watermark, self._forgets)
        if moved is not None:
            self.attempts.renumber(moved)
        if self.nbytes > self.limits.memory_bytes:
            raise ResourceLimit(
                f"pattern {self.matcher.text} keeps more than {self.limits.memory_bytes} bytes of "
                "events, because partial matches stay open; add WITHIN, or bounds to its "
                "quantifiers"
            )
        parts, self._found = self._found, []
        return Decided.of(parts) if parts else self._nothing

    @property
    def hits(self) -> int:
        return self.input.hits

    @property
    def nbytes(self) -> int:
        return self.input.nbytes + self.attempts.nbytes

    @property
    def kept_from(self) -> int | None:
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
        waiting = np.flatnonzero(mine)
        gathers = self.input.must_gather(groups)
        if gathers and not self.matcher.automaton.empty_match:
            self._pass_idle(groups, final)
            open_ = retained.position[groups] < self.input.usable(groups, final)
            open_ |= np.isin(groups, attempts.group[waiting])
            groups, before = groups[open_], before[open_]
        if not len(groups):
            return
        owner = np.searchsorted(groups, attempts.group[waiting])
        low = retained.position[groups].copy()
        np.minimum.at(low, owner, attempts.start[waiting])
        if gathers:
            space = self.input.gathered(groups, low)
        else:
            space = self.input.where_they_lie(groups)
        prepared = space.prepared
        every = np.arange(len(groups))
        if attempts.go_on:
            which = np.concatenate([owner, every])
            begun = attempts.start[waiting]
            start = np.concatenate([begun, np.full(len(groups), -1)])
            place = np.concatenate([waiting, np.full(len(groups), -1)])
            position = np.concatenate([begun, retained.position[groups]])
            stop = np.concatenate([begun + 1, np.full(len(groups), FAR >> 1)])
        else:
            which, position, stop = every, retained.position[groups], np.full(len(groups), FAR >> 1)
            start, place = np.full(len(groups), -1), np.full(len(groups), -1)
            start[owner], place[owner] = attempts.start[waiting], waiting
        moved = space.moved[which]
        position = position + moved
        number = retained.number[groups][which]
        rows = self._rows(space, which, position, stop + moved, number)
        if not self.input.careful and self.matcher.prunes(prepared):
            begin = low if gathers else np.maximum(before, retained.position[groups])
            if len(which) > len(groups):  # prune each partition once
                once = self._rows(space, every, begin, begin, retained.number[groups])
            else:
                once = rows
            self.matcher.prune(prepared, prepared.words, once, begin + space.moved, now, final)
        start = np.where(start >= 0, start + moved, -1)
        attempts.offer(start, place, keep=not prepared.careful and self._keeps(prepared))
        searching = self.matcher.search(
            prepared, rows, now, final, attempts=attempts, check=self.check
        )
        self._space = space
        for matches in searching:
            self._say(matches, which, space)
        own = slice(len(which) - len(groups), None)
        retained.position[groups] = np.maximum(rows.position[own] - space.moved, 0)
        retained.number[groups] = number[own]
        entry = which[attempts.entries[:, 0]]
        begun = attempts.entries[:, 1] - space.moved[entry]
        attempts.settle(mine, groups[entry], begun)

    def _keeps(self, prepared: Any) -> bool:
        """Whether stacks of this search stay valid for the next one."""
        if (prepared.condition >= 0).any():
            return self.compiled.conditions.path_dependent and self.compiled.conditions.portable
        return True

    def _pass_idle(self, groups: IntArray, final: bool) -> None:
        retained = self.input.rows
        at = retained.place(groups, retained.position[groups])
        usable = retained.place(groups, self.input.usable(groups, final))
        words = retained.cells[WORDS].view(np.uint64)
        moved = retained.position[groups] - at
        next_start(words, at, usable, self.matcher.follow[0])
        retained.position[groups] = at + moved

    def _search_fresh(self, groups: IntArray, before: IntArray, now: int, final: bool) -> None:
        retained = self.input.rows
        usable = self.input.usable(groups, final)
        ending = np.zeros(len(groups), np.bool_)
        fresh = np.minimum(np.maximum(before, retained.first[groups]), usable)
        has_last_event(
            retained.cells[WORDS].view(np.uint64), retained.place(groups, fresh),
            retained.place(groups, usable), self.matcher.finals, ending,
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
                stop = usable[ending] + moved
                completing(
                    starts, self.matcher.follow[1:].copy(), self.matcher.finals, space.time,
                    window, at, new, stop, stop, now, False,
                    self.matcher.selection != "contiguous",
                )  # fmt: skip
            every = np.arange(len(chosen))
            rows = self._rows(space, every, at, usable[ending] + moved, retained.number[chosen])
            self._space = space
            # the first set found with a given last row is the longest
            taken = np.zeros(len(words) if self.compiled.clause.mode else 0, np.bool_)
            for matches in self.matcher.search(
                prepared, rows, now, final, starts=starts, fresh=new, taken=taken, check=self.check
            ):
                self._say(matches, every, space)
        if final:
            retained.position[groups] = usable
            return
        if self.window is not None:
            at = retained.place(groups, retained.position[groups])
            moved = retained.position[groups] - at
            expire(retained.cells[TIME], at, retained.place(groups, usable), self.window, now)
            retained.position[groups] = at + moved
        longest = self.compiled.automaton.length_max
        if self.matcher.selection == "contiguous" and longest is not None:
            retained.position[groups] = np.maximum(
                retained.position[groups], usable - max(0, longest - 1)
            )

    def _search_whole(self, groups: IntArray, now: int, final: bool) -> None:
        retained = self.input.rows
        self._pass_idle(groups, final)
        position = retained.position[groups]
        over = position < self.input.usable(groups, final)
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
            prepared, rows, now, final, starts=starts, taken=taken, check=self.check
        ):
            self._say(matches, every, space)
        if self._marks_ends:
            marks[space.column(np.flatnonzero(taken))] |= TAKEN
        retained.position[groups] = at - space.moved
        retained.number[groups] = number

    def _drop(self, groups: IntArray, final: bool) -> None:
        """Drop rows that no later match can need; set when the partitions are due again."""
        retained, attempts = self.input.rows, self.attempts
        low = retained.position[groups].copy()
        if self.kind == "whole":
            self._pass_idle(groups, final)
            low = retained.position[groups].copy()
        mine = np.zeros(retained.partitions, np.int64)
        mine[groups] = np.arange(len(groups)) + 1
        owner = mine[attempts.group] - 1
        own = owner >= 0
        np.minimum.at(low, owner[own], attempts.start[own])
        if self.kind == "one":
            open_ = np.zeros(len(groups), np.bool_)
            open_[owner[own]] = True
        else:
            open_ = low < self.input.usable(groups, final)
        if final:
            low = retained.end[groups].copy()
            open_[:] = False
        if self._unmatched:
            self._say_unmatched(groups, np.minimum(low, retained.end[groups]))
        due = np.full(len(groups), FAR)
        if self.window is not None and open_.any():
            first = retained.cells[TIME][retained.place(groups[open_], low[open_])]
            due[open_] = moved(first, self.window)
        retained.due[groups] = due
        needed = np.minimum(np.minimum(low, retained.ready[groups]), retained.end[groups])
        retained.drop(groups, needed - self.compiled.history)

    # -- results --------------------------------------------------------------------------------

    def _say(self, matches: Matches, which: IntArray, space: Space) -> None:
        cells = self.input.rows.cells
        if self._unmatched:
            covered = matches.start[matches.length == 0]
            if len(matches.row):
                covered = np.concatenate([matches.rows, covered])
            cells[MARKS][space.column(covered)] |= COVERED
        if self._silent:
            return
        owner = which[matches.group]
        begin, end = space.begin[owner], space.end[owner]
        match, row, table = self.results.of(matches, begin, end)
        first, last = space.column(matches.start), space.column(matches.last_row)
        row = space.column(row)
        events = NONE
        lengths = np.zeros(len(first), np.int64)
        if self.compiled.clause.selection is not None:
            events, lengths = space.column(matches.rows), matches.length
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        decided = Decided(
            table, match, cells[TIME][row], cells[RANK][row], self.compiled.partition_by,
            cells[TIME][first], cells[RANK][first], cells[TIME][last], offsets,
            cells[TIME][events], cells[RANK][events],
        )  # fmt: skip
        self._found.append((decided, cells[EVENT][last][match]))

    def _say_unmatched(self, groups: IntArray, upto: IntArray) -> None:
        retained = self.input.rows
        begin = np.maximum(retained.told[groups], retained.first[groups])
        columns = retained.columns(groups, begin, np.maximum(begin, upto))
        retained.told[groups] = np.maximum(begin, upto)
        columns = columns[(retained.cells[MARKS][columns] & COVERED) == 0]
        if self._silent or not len(columns):
            return
        self._space = self.input.where_they_lie(groups)
        cells = retained.cells
        decided = replace(
            self._nothing, rows=self.results.unmatched(columns),
            match=np.full(len(columns), -1), row_tick=cells[TIME][columns],
            row_rank=cells[RANK][columns],
        )  # fmt: skip
        self._found.append((decided, cells[EVENT][columns]))

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

    # -- from one process to the next -----------------------------------------------------------

    def export(self, since: int | None = None) -> Positions:
        """State that a restart needs besides the events from tick ``since`` on, which it replays
        (None: none).  A clause that outputs unmatched rows, or marks ends, exports all its state
        and needs no replay.
        """
        if since is None or self._unmatched or self._marks_ends:
            since = INT64_MAX
        return export_positions(self.input, self.attempts, since, self.watermark, self._forgets)

    def restore(self, given: Positions, watermark: int) -> None:
        """Load an export taken at ``watermark``; ``replay`` of the later events follows."""
        restore_positions(self.input, given)
        self.watermark = watermark


def reads_number(compiled: CompiledMatch) -> bool:
    bounds = [*compiled.definitions.values(), *compiled.measures]
    return any(
        isinstance(leaf, MatchNumber)
        or (isinstance(leaf, MatchAggregate) and NUMBER in leaf.columns)
        for bound in bounds
        for leaf in bound.leaves
    )


def final_with_last_event(compiled: CompiledMatch) -> bool:
    """Whether every match is final as soon as its last event arrives."""
    return _kind(compiled, reads_number(compiled)) == "fresh"


def marks_ends(compiled: CompiledMatch) -> bool:
    """Whether searches must remember the rows at which matches of earlier starts ended."""
    incremental = compiled.clause.mode == "incremental"
    return incremental and _kind(compiled, reads_number(compiled)) == "whole"


def _kind(compiled: CompiledMatch, counts: bool) -> str:
    if compiled.clause.selection is None:
        return "one"
    if compiled.clause.mode == "maximal":
        return "whole"
    ends = [edge for edges in compiled.automaton.edges for edge in edges if edge.target == ACCEPT]
    waits = any(edge.anchor & ANCHOR_END or edge.absent for edge in ends)
    return "whole" if waits or counts or not compiled.conditions.by_position else "fresh"
