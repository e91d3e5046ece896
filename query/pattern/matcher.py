"""Drives the search kernels: allocates their scratch space, enforces budgets, reports errors.
A kernel returns when it runs out of room, or at the end of its time slice; ``check`` is then
called, and the search resumes.  A start that needs more room is searched again from its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from ...errors import ChronicleError, ResourceLimit, SqlError
from ..contract.operator import MatchLimits
from ..sql.pattern_tree import describe
from . import buffers as rt
from . import search as m
from .any_choice import choose
from .any_diagram import Context, DiagramSearch, Source
from .any_output import ListOutput
from .attempts import NOTHING, OpenAttempts
from .automaton import ACCEPT
from .binding import CLASSIFIER, Leaf, MatchAggregate, MatchNumber, Navigation
from .buffers import PreparedRows
from .contiguous import Stars, match_contiguous, match_sequence, stars_of
from .machine import with_path
from .matches import Matches, matches_of_sequence
from .search import Edges, MatchTable, Rows, Task
from .selection import CONTIGUOUS, SKIP_ANY, SKIP_NEXT, Strategy, match_selected

if TYPE_CHECKING:
    from .compiled import CompiledMatch

IntArray = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Result = TypeVar("Result")
STRATEGIES = {"contiguous": CONTIGUOUS, "next": SKIP_NEXT, "any": SKIP_ANY}
SKIPS = {"past last": m.PAST_LAST, "next": m.TO_NEXT, "first": m.TO_FIRST, "last": m.TO_LAST}
SLICE_STEPS = 20_000_000
SLOW_SLICE_STEPS = 1_000_000  # with conditions that are asked row by row
STEPS_A_ROW = 10_000
"""Average number of states that a query may try per row; few queries need ten."""
NOT_TAKEN = np.zeros(0, np.bool_)
NO_CONDITIONS = np.zeros(0, np.int64)


@dataclass
class Groups:
    """Rows sorted by partition: group ``g`` is ``offsets[g] .. offsets[g + 1]``.  ``position``:
    next row at which a match may begin; advanced.  ``seen``: there were earlier rows, so ``^`` does
    not hold.  ``time``: ticks, or zeros without a window; read-only.  ``now``: newest tick of the
    stream.  ``order``: place of each row in the input, or None.  ``taken``: INCREMENTAL MATCH, rows
    at which a match ended.
    """

    offsets: IntArray
    position: IntArray
    seen: npt.NDArray[np.bool_]
    number: IntArray
    time: IntArray
    now: int
    final: bool
    order: IntArray | None = None
    taken: npt.NDArray[np.bool_] = field(default_factory=lambda: NOT_TAKEN)


def reads_every_event(compiled: CompiledMatch) -> bool:
    """Whether a measure aggregates over the events of a match, except ``count(*)``."""
    leaves = [leaf for bound in compiled.measures for leaf in bound.leaves]
    return any(isinstance(leaf, MatchAggregate) and leaf.sql != "count(*)" for leaf in leaves)


def decided_by_start(compiled: CompiledMatch) -> bool:
    """Whether conditions see of a partial match only its first row, which has a variable of its
    own, and rows at a fixed distance from the current one.  A state of a row that failed fails then
    on every way to it from the same start.
    """
    automaton = compiled.automaton
    targets = [edge.target for edges in automaton.edges for edge in edges]
    first = automaton.edges[0][0].target
    alone = len(automaton.edges[0]) == 1 and targets.count(first) == 1 and first != ACCEPT
    start = {automaton.names[first]} if alone else set()
    if alone and automaton.names.count(automaton.names[first]) > 1:
        return False
    for name, bound in compiled.definitions.items():
        for leaf in bound.leaves:
            if not isinstance(leaf, Navigation) or CLASSIFIER in leaf.row.columns:
                return False
            current = not leaf.first and not leaf.offset
            if leaf.variables not in (None, start) and not (current and name in leaf.variables):
                return False
    return True


def _reads_star(leaf: Leaf, names: set[str]) -> bool:
    """Whether a measure can read or count rows of ``names``, none of which ends a match."""
    if isinstance(leaf, MatchNumber):
        return False
    chosen = getattr(leaf, "variables", None)
    if isinstance(leaf, Navigation):
        if leaf.shift:
            return True
        if not chosen:
            return leaf.offset > 0 or CLASSIFIER in leaf.row.columns
    return not chosen or bool(chosen & names)


def idle_bits(compiled: CompiledMatch, stars: Stars) -> int:
    """Bits of the stars whose rows can be left out of the search, or 0.  In ``A X* B`` a row that
    is nothing but an ``X`` changes no match that ends in ``B``: after ``A`` may follow what may
    follow after ``X``.  Results must not read or count rows of ``X``.
    """
    clause, automaton, plan = compiled.clause, compiled.automaton, compiled.conditions
    positions = set(stars.positions)
    names = {automaton.names[p] for p in positions}
    skipped: frozenset[str] = frozenset()
    if clause.skip is not None:
        skipped = compiled.variables.get(clause.skip.variable, skipped)
    others = {name for p, name in enumerate(automaton.names) if p not in positions}
    if clause.rows != "one" or clause.selection is not None or names & (skipped | others):
        return 0
    if any(_reads_star(leaf, names) for bound in compiled.measures for leaf in bound.leaves):
        return 0
    for p, edges in enumerate(automaton.edges):
        targets = [edge.target for edge in edges]
        if any(edge.anchor or edge.absent for edge in edges) or (p == 0 and ACCEPT in targets):
            return 0
        entered = positions.intersection(targets)
        if p == 0 or targets == [ACCEPT]:
            same = not entered
        else:
            same = len(entered) == 1 and ACCEPT not in targets
            same = same and automaton.edges[min(entered)] == edges
        if not same:
            return 0
    return sum(1 << int(plan.bit[p]) for p in positions)


class Matcher:
    """Finds the matches of one pattern in buffers of rows.
    ``window``: WITHIN in ticks, or -1.  ``labels``: every event of a match is read.  ``mode``:
    MAXIMAL or INCREMENTAL.  ``ordered``: the last buffer's matches are in the input order of first
    rows.
    """

    def __init__(
        self, compiled: CompiledMatch, limits: MatchLimits, describe_row: Callable[[int], str]
    ) -> None:
        clause, naming, skip = compiled.clause, compiled.naming, compiled.clause.skip
        self.automaton = automaton = compiled.automaton
        self.selecting = compiled.selecting
        self.ordered = False
        self.plan = plan = compiled.conditions
        text = describe(clause.pattern)
        self.text = text if len(text) <= 120 else text[:117] + "..."
        self.window = -1 if compiled.within is None else compiled.within
        self.steps = self.rows = 0
        self.selection = clause.selection
        self.mode = clause.mode
        self.limits = limits
        self.describe_row = describe_row
        every_event = naming is not None and naming.every_event
        self.labels = clause.rows != "one" or reads_every_event(compiled) or every_event
        first, target, flags = automaton.tables
        self.edges = Edges(first, target, flags, plan.bit)
        sequence = automaton.sequence and not flags.any()
        self.bits = np.uint64(1) << plan.bit[1:].astype(np.uint64) if sequence else None
        stars = stars_of(automaton, plan)
        timed = compiled.within is None or compiled.in_time_order
        self.stars = stars if timed else stars.without(first)
        self.idle = np.uint64(idle_bits(compiled, self.stars))
        self.skip = SKIPS[skip.mode if skip else "past last"]
        skip_names = compiled.variables.get(skip.variable, frozenset()) if skip else frozenset()
        self.skip_member = np.array([name in skip_names for name in automaton.names], np.bool_)
        follow = np.zeros(len(automaton.names), np.uint64)
        finals = 0
        for p, edges in enumerate(automaton.edges):
            bits = 0
            for edge in edges:
                if edge.target == ACCEPT:
                    finals |= 1 << (p - 1) if p else 0
                else:
                    bits |= 1 << int(plan.bit[edge.target])
            follow[p] = bits
        self.follow = follow
        self.finals = np.uint64(finals if plan.by_position else 0)
        # stars whose bits are not needed per row: they neither begin nor end a match
        lazy = sum(1 << (p - 1) for p in self.stars.positions) if plan.by_position else 0
        self.lazy = np.uint64(lazy & ~finals & ~int(follow[0]))
        self.lists: DiagramSearch | None = None
        self.output: ListOutput | None = None
        if self.selection == "any":
            self._use_diagram()
        self.by_start = decided_by_start(compiled)
        self.columns = 256
        self.match_capacity = 4096
        self.row_capacity = 1 << 16

    def _use_diagram(self) -> None:
        automaton, selecting = self.automaton, self.selecting
        chosen = choose(automaton, self.plan, selecting.search)
        if chosen.pairing is None:
            return
        context = Context(self.text, self.describe_row, self.limits.memory_bytes)
        self.lists = DiagramSearch(automaton, self.plan, chosen.pairing, context)
        width = automaton.positions if automaton.sequence else 0
        self.output = ListOutput(context, automaton.length_max, width)

    def run(
        self,
        prepared: PreparedRows,
        groups: Groups,
        finish: Callable[[Matches], Result],
        check: Callable[[], None] | None = None,
    ) -> Iterator[Result]:
        """Search all groups; yields ``finish`` of each batch, whose arrays are reused.  Raises
        ResourceLimit, and SqlError for an overflow or an invalid SKIP TO.
        """
        words = prepared.words
        begin, end = groups.offsets[:-1], groups.offsets[1:]
        rows = Rows(
            words, begin, end, end, groups.position, groups.seen, groups.number, groups.time
        )
        self.ordered = False
        source = self._listed(prepared, groups, rows)
        if source is not None and self.output is not None:
            self.ordered = True
            yield from self.output.put_out(source, rows, self.selecting.weighted, finish, check)
            self.selecting.entries = max(self.selecting.entries, source.entries)
            return
        starts = words
        if self.prunes(prepared):
            if self.selection == "next":
                starts = words.copy()
            self.prune(prepared, starts, rows, groups.position, groups.now, groups.final)
        batches = self.search(
            prepared, rows, groups.now, groups.final, starts=starts, taken=groups.taken,
            check=check, bounded=True,
        )  # fmt: skip
        yield from map(finish, batches)

    def prunes(self, prepared: PreparedRows) -> bool:
        return bool(self.plan.by_position and self.automaton.positions and not prepared.careful)

    def prune(
        self,
        prepared: PreparedRows,
        words: Words,
        rows: Rows,
        begin: IntArray,
        now: int,
        final: bool,
    ) -> None:
        """Clear bits that cannot be part of a complete match, of the rows from ``begin`` on."""
        follow, lookahead = self.follow[1:].copy(), self.plan.lookahead
        if self.selection in ("next", "any"):
            begin = np.maximum(rows.begin, begin)
            end = rows.end if final else np.maximum(begin, rows.end - lookahead)
            rt.completing(
                words, follow, self.finals, rows.time, self.window, begin, begin, end, rows.end,
                now, not final, True,
            )  # fmt: skip
            return
        dependent = bool((prepared.condition >= 0).any())
        rt.feasible(
            words, follow, self.finals, rows.time, self.window, rows.begin, rows.end, begin, now,
            final, lookahead, np.uint64(0) if dependent else self.lazy,
        )  # fmt: skip

    def search(
        self,
        prepared: PreparedRows,
        rows: Rows,
        now: int,
        final: bool,
        *,
        starts: Words | None = None,
        fresh: IntArray = NOTHING.start,
        taken: npt.NDArray[np.bool_] = NOT_TAKEN,
        attempts: OpenAttempts | None = None,
        check: Callable[[], None] | None = None,
        bounded: bool = False,
    ) -> Iterator[Matches]:
        """Search groups without pruning.
        ``starts``: bits for first rows, if they differ.  ``fresh``: see ``selection.Strategy``.
        ``attempts``: suspended; updated.  ``bounded``: charge the query's budget.
        """
        words = prepared.words
        starts = words if starts is None else starts
        condition, stars = NO_CONDITIONS, self.stars
        if (prepared.condition >= 0).any():  # they are asked row by row
            condition, stars = prepared.condition, stars.without(self.edges.first)
        bits = self.bits if condition is NO_CONDITIONS and attempts is None else None
        sequence = 0 if bits is None or self.selection is not None else len(bits)
        waiting = NOTHING if attempts is None else attempts.opened()
        state = np.zeros(m.STATE_WORDS, np.int64)
        self.rows += len(words) if bounded else 0
        output = self._output()
        image = with_path(prepared.image, self.columns + 2)
        visited, visited_words, memo = self._scratch(len(words))
        while True:
            slice_max = SLICE_STEPS if condition is NO_CONDITIONS else SLOW_SLICE_STEPS
            task = self._task(now, final, memo)._replace(slice_max=slice_max)
            floats = image.view(np.float64)
            if self.selection is not None:
                strategy = Strategy(
                    STRATEGIES[self.selection], not self.plan.path_dependent, self.follow, starts,
                    prepared.absent, fresh, self.mode == "maximal", taken,
                )  # fmt: skip
                status = match_selected(
                    self.edges, prepared.condition, image, floats, self.frames, self.thread_done,
                    self.stamp, strategy, rows, task, state, output,
                )  # fmt: skip
            elif bits is not None:
                room = min(self.match_capacity, self.row_capacity // len(bits))
                status = match_sequence(bits, rows, task, room, state, output)
            else:
                status = match_contiguous(
                    self.edges, stars, condition, image, floats, self.frames.reshape(-1), visited,
                    visited_words, self.known, rows, task, waiting, state, output,
                )  # fmt: skip
            if check is not None:
                check()
            if bounded:
                self._spend(int(state[m.STEPS]))
                state[m.STEPS] = 0
            if status == m.DONE:
                break
            if status == m.OUTPUT_FULL:
                if state[m.MATCHES]:
                    yield self._take(output, state, sequence)
                else:
                    self._grow_output()
                output = self._output()
            elif status == m.PATH_FULL:
                self._grow_path()
                image = with_path(image, self.columns + 2)
                visited, visited_words, memo = self._scratch(len(words), visited)
            elif status == m.STACKS_FULL:
                assert attempts is not None
                waiting = attempts.grown(waiting)
            elif status != m.SLICE:
                raise self._error(status, state, prepared.why)
        if attempts is not None:
            attempts.close(waiting)
        if state[m.MATCHES]:
            yield self._take(output, state, sequence)

    def _spend(self, steps: int) -> None:
        self.steps += steps
        limit = self.limits.query_steps_max + STEPS_A_ROW * self.rows
        if self.steps > limit:
            raise ResourceLimit(
                f"pattern {self.text} tried more than {limit:,} states for {self.rows:,} rows: "
                "matches that begin have too many ways to go on; add or shorten WITHIN, bound the "
                "quantifiers, or make conditions narrower"
            )

    def _listed(self, prepared: PreparedRows, groups: Groups, rows: Rows) -> Source | None:
        """Lists of a buffer; None where it must be searched."""
        if self.lists is None:
            return None
        source, why = None, f"a condition cannot be computed in some events ({prepared.why})"
        if not prepared.careful:
            self.prune(prepared, prepared.words, rows, groups.position, groups.now, groups.final)
            source = self.lists.open(prepared, groups, self._task(groups.now, groups.final, 0))
            why = self.lists.why
        if source is None:
            self.selecting.searched += 1
            self.selecting.fallback = why
        else:
            self.selecting.listed += 1
        return source

    def _task(self, now: int, final: bool, memo: int) -> Task:
        labels_max = self.row_capacity if self.labels and self.selection is None else 2**62
        return Task(
            self.window, now, final, self.plan.lookahead, self.follow[0],
            self.automaton.empty_match, memo, self.skip, self.skip_member, self.limits.steps_max,
            labels_max, SLICE_STEPS,
        )  # fmt: skip

    # -- room -----------------------------------------------------------------------------------

    def _output(self) -> MatchTable:
        n, r = self.match_capacity, self.row_capacity
        return MatchTable(*(np.empty(size, np.int64) for size in (n, n, n, n, n, r, r, r)))

    def _take(self, output: MatchTable, state: IntArray, sequence: int) -> Matches:
        n, r = int(state[m.MATCHES]), int(state[m.RUNS])
        labels = int(state[m.LABELS]) if self.labels else 0
        state[m.MATCHES] = state[m.RUNS] = state[m.LABELS] = 0
        busy = n * 2 > self.match_capacity or max(r, labels, n * sequence) * 2 > self.row_capacity
        if busy and self.row_capacity < 1 << 20:  # fewer, larger batches
            self._grow_output()
        group, start, number = output.group[:n], output.start[:n], output.number[:n]
        if sequence:
            return matches_of_sequence(group, start, number, sequence)
        runs = np.concatenate([[0], np.cumsum(output.runs[:n])]).astype(np.int64)
        if self.selecting.weighted:
            number = np.ones(n, np.int64)
        return Matches(  # no copies: the next batch gets new arrays
            group, start, output.length[:n], number, runs, output.row[:r], output.begin[:r],
            output.place[:r],
        )  # fmt: skip

    def _grow_output(self) -> None:
        self.match_capacity *= 4
        self.row_capacity *= 4
        size = self.match_capacity * 40 + self.row_capacity * 24
        if size > self.limits.memory_bytes:
            raise ResourceLimit(
                f"the matches of pattern {self.text} that begin with one event need more than "
                f"{self.limits.memory_bytes} bytes; narrow WITHIN or the conditions"
            )

    def _grow_path(self) -> None:
        self.columns *= 4
        per_column = 64 + 8 * self.plan.builder.trackers
        if self.columns * per_column > self.limits.memory_bytes:
            raise ResourceLimit(
                f"a partial match of pattern {self.text} needs more than "
                f"{self.limits.memory_bytes} bytes; add WITHIN, or bounds to its quantifiers"
            )

    def _scratch(
        self, rows: int, before: npt.NDArray[np.uint64] | None = None
    ) -> tuple[npt.NDArray[np.uint64], int, int]:
        n = self.columns + 2
        self.frames = np.zeros((4, n), np.int64)
        self.thread_done = np.zeros(n, np.int64)
        self.stamp = np.zeros(len(self.automaton.names), np.int64)
        self.known = np.zeros(2 * len(self.automaton.names), np.int64)
        visited_words = len(self.automaton.names) // 64 + 1
        if self.selection is not None or (self.plan.path_dependent and not self.by_start):
            memo, size = 0, 0
        elif self.window >= 0 or self.plan.path_dependent:
            memo, size = 2, n * visited_words
        elif self.plan.by_position:
            memo, size = 1, 0
        else:
            memo, size = 3, rows * visited_words
            if size * 8 > self.limits.memory_bytes:
                raise ResourceLimit(
                    f"pattern {self.text} has {self.automaton.positions} positions and no "
                    f"WITHIN; over "
                    f"{rows} rows its search needs more than {self.limits.memory_bytes} bytes"
                )
        if memo == 3 and before is not None:
            visited = before
        else:
            visited = np.zeros(size, np.uint64)
        return visited, visited_words, memo

    # -- errors ---------------------------------------------------------------------------------

    def _error(self, status: int, state: IntArray, why: str) -> ChronicleError:
        where = self.describe_row(int(state[m.ERROR_ROW]))
        if status == m.BUDGET:
            return ResourceLimit(
                f"pattern {self.text} tried more than {self.limits.steps_max} states for "
                f"matches that begin "
                f"{where}, {int(state[m.ERROR_DEPTH])} events deep; add or shorten WITHIN, make "
                f"conditions "
                "narrower, or raise the step limit"
            )
        if status == m.OVERFLOW and why and state[m.ERROR_DEPTH] != -1:
            return SqlError(
                f"a condition of pattern {self.text} cannot be computed {where}: {why}"
                + ("" if "; guard it" in why else "; guard it with CASE, or use TRY_CAST")
            )
        if status == m.OVERFLOW:
            return m.overflow(self.text, where)
        if status == m.SKIP_MISSING:
            return SqlError(
                f"AFTER MATCH SKIP TO a variable that matched no event, in the match that "
                f"begins {where}"
            )
        return SqlError(
            "AFTER MATCH SKIP would go back to the first event of the match, in the match that "
            f"begins {where}, and find it again without end"
        )
