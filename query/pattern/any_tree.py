"""Finds matches of SKIP TILL ANY MATCH whose conditions compare events: joins, then diagrams.
A buffer with few expected partial matches is left to the search unless a hint says otherwise, and
so is one where a condition fails for a pair that the search may never evaluate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...core.caches import lazy
from ...core.threads import Busy
from .any_diagram import JoinPlan, PairedRows
from .any_drawing import EVENT_COST, ROW_COST, WORTH, Drawing, Drawn, Starts, search_cost
from .any_lists import decide
from .any_pairs import Pairing, count_by_place
from .automaton import ACCEPT, Automaton
from .search import Rows, Task

if TYPE_CHECKING:
    from .buffers import PreparedRows
    from .conditions import ConditionPlan
    from .matcher import Groups


IntArray = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Check = Callable[[], None] | None

SURE = 4.0
"""Once pairs exist, lists must be this factor cheaper: the sample underestimates selectivities."""
FEW = "few partial matches are to be expected"


class PairSearch:
    """Finds matches where conditions compare events; ``why``: as in ``ListSearch``."""

    def __init__(
        self,
        automaton: Automaton,
        plan: ConditionPlan,
        pairing: Pairing,
        text: str,
        memory_bytes: int,
        describe_row: Callable[[int], str],
        threads: int,
        busy: Busy,
    ) -> None:
        self._pairing = pairing
        self._text = text
        self._memory_bytes = memory_bytes
        self._describe_row = describe_row
        self._threads = threads
        self._busy = busy
        self._longest = automaton.length_max
        self.why = ""
        self.drawn = Drawn()
        self._plan = plan
        self._sampled = np.zeros(0)
        self._entry = np.arange(len(automaton.names), dtype=np.int64)
        self._follow = [[e.target for e in es if e.target != ACCEPT] for es in automaton.edges]

    @lazy
    def _join(self) -> JoinPlan:
        return JoinPlan(self._plan, self._pairing, self._memory_bytes)

    def reduce(
        self,
        prepared: PreparedRows,
        rows: Rows,
        task: Task,
        prune: Callable[[Words], None],
        choose: bool,
        check: Check = None,
    ) -> PairedRows | None:
        """Join a buffer and clear bits without partner; None if the search is cheaper."""
        self.why = ""
        prune(prepared.words)
        within, counts = _within(rows, task), np.zeros(len(self._entry), np.int64)
        count_by_place(prepared.words, counts)
        enough = max(WORTH, ROW_COST * len(prepared.words) + EVENT_COST * int(counts.sum()))
        self._sampled = np.ones(len(self._pairing.asked))
        if choose and self._expected(counts, len(prepared.words), within) < enough:
            self.why = FEW
            return None
        paired = PairedRows(self._join, prepared, rows, task)
        if choose:
            self._sampled = paired.sample()
            if self._expected(counts, len(prepared.words), within) < enough:
                self.why = FEW
                return None
        paired.join(within, self._threads, check, self._busy)
        if not paired.failed:
            paired.narrow(prune)
        return paired

    def _expected(self, counts: IntArray, rows: int, within: float) -> float:
        return search_cost(self._follow, counts, self._pairing.asked, self._sampled, rows, within)

    def open(self, paired: PairedRows, groups: Groups, task: Task, choose: bool) -> Drawing | None:
        """Lists of a buffer, some starts at a time; advances the groups.  None: see ``why``."""
        shape = self._pairing.shape
        assert shape is not None
        if paired.failed:
            self.why = "a condition cannot be computed for some pairs of events"
            return None
        words, count = paired.words, len(paired.words)
        if not self._pairing.plain and count and int(np.bitwise_count(words).max()) > 1:
            self.why = "events can stand for several variables of a pattern of varying length"
            return None
        classes = np.full(count, -1, np.int32)
        for p in self._follow[0]:
            classes[paired.rows_of(p)] = p
        position = groups.position.copy()
        begin, stop = np.empty_like(position), np.empty_like(position)
        one_row = self._longest == 1 and not (shape.ends > 0).any()
        decide(
            classes, self._entry, groups.offsets, position, groups.time, task, False, one_row,
            begin, stop,
        )  # fmt: skip
        none = np.zeros(0, np.int64)
        rows = np.sort(np.concatenate([none, *map(paired.rows_of, self._follow[0])]))
        owners = paired.groups_of(rows)
        rows = rows[(rows >= begin[owners]) & (rows < position[owners])]
        if groups.order is not None:
            rows = rows[np.argsort(groups.order[rows], kind="stable")]
        starts = Starts(rows, paired.groups_of(rows), classes, stop)
        drawing = Drawing(
            self._pairing, paired, starts, task, self._memory_bytes, self._text,
            self._describe_row, self.drawn,
        )  # fmt: skip
        if choose and len(rows):
            within = _within(paired.rows, task)
            self._sampled = paired.shares(self._sampled, within)
            if self._expected(paired.counts, count, within) * SURE < drawing.cost:
                self.why = FEW
                return None
        groups.position[:] = position
        return drawing


def _within(rows: Rows, task: Task) -> float:
    """Fraction of a buffer that a window covers."""
    if task.window < 0 or not len(rows.time):
        return 1.0
    # partitions are concatenated, each with the whole time span
    span = max(1, int(rows.time.max()) - int(rows.time.min())) * max(1, len(rows.end))
    return float(min(1.0, task.window / span))
