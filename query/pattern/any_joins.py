"""Joins the rows of one buffer: rows by position, and the pairs that satisfy each condition.
A row that is part of a match, or whose partner may still arrive, is never cleared.  Pairs that do
not fit into memory are not stored; their condition is evaluated again where needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...core.threads import Busy, Done, in_order
from ...core.threads import Task as PartTask
from . import any_partners as partners
from . import machine as m
from .any_asking import Asking, CannotAsk, Pairs
from .any_diagram import Domain
from .any_pairs import Pairing
from .image import with_path
from .search import Rows, Task

if TYPE_CHECKING:
    from .conditions import ConditionPlan, PreparedRows

__all__ = ["JoinPlan", "PairedRows"]

IntArray = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Check = Callable[[], None] | None

PART_TESTS, PARTS_MAX = 1_000_000, 1 << 10
"""Pairs to test that make a part, and most parts per condition."""
ROUNDS = 2
_COMPARED = {m.LT_F: "f", m.LE_F: "f", m.EQ_F: "f", m.LT_I: "i", m.LE_I: "i", m.EQ_I: "i"}


class JoinPlan:
    def __init__(self, plan: ConditionPlan, pairing: Pairing, memory_bytes: int) -> None:
        self.pairing = pairing
        self.pairs_max = memory_bytes // 16
        self.spec = _specs(plan, pairing)
        self.positions = len(plan.names)
        arrays, sets = plan.builder.arrays(), plan.builder.sets
        slots = {frozenset({plan.names[p]}): s for s, p in enumerate(pairing.places)}

        def of(name: str) -> IntArray:
            chosen = [(sets[i], steps) for i, steps in arrays[name].tolist()]
            known = [slots.get(c, -1) if c is not None and not s else -1 for c, s in chosen]
            return np.array(known, np.int64)

        # slot of each tracker of the image
        self.last, self.first = of("last_slot"), of("first_slot")


class PairedRows:
    """Rows of one buffer and their pairs; clears bits in the words of ``prepared``.
    ``image``: holds a path with bound slots.  ``group``: partition of each row, or None.
    ``before``, ``after``: rows of each position before and after narrowing.  ``failed``: a
    condition could not be computed for some pair.
    """

    def __init__(self, plan: JoinPlan, prepared: PreparedRows, rows: Rows, task: Task) -> None:
        self.plan = plan
        self.rows, self.task = rows, task
        self.words, self.absent = prepared.words, prepared.absent
        count, conditions = len(self.words), len(plan.spec)
        self.offsets = np.append(rows.begin, rows.end[-1:])
        single = len(self.offsets) <= 2
        self.group = None if single else np.repeat(np.arange(len(rows.end)), np.diff(self.offsets))
        self.image = with_path(prepared.image, len(plan.pairing.places) + 2)
        partners.know(self.image, plan.last, plan.first)
        none = np.zeros(0, np.int64)
        self.domain = Domain(
            self.words, rows.time, none, none, none, np.zeros((0, count), np.int64),
            np.zeros(conditions, np.bool_), np.empty((conditions, count + 1), np.int64),
            np.zeros(0, np.int32), plan.spec,
        )  # fmt: skip
        self.tested = self.pairs = 0
        self.before: dict[int, int] = {}
        self.after: dict[int, int] = {}
        self.failed = False
        asked = plan.pairing.asked
        self._single = [c for c, one in enumerate(asked) if len(one.slots) == 1]
        self.place_rows()

    def place_rows(self) -> None:
        place = np.zeros(self.plan.positions + 1, np.int64)
        row = np.empty(len(self.words), np.int64)
        while not partners.rows_by_place(self.words, place, row):
            row = np.empty(int(place[-1]), np.int64)
        self.domain = self.domain._replace(place=place, row=row)

    def rows_of(self, p: int) -> IntArray:
        place = self.domain.place
        return self.domain.row[place[p] : place[p + 1]]

    def groups_of(self, rows: IntArray) -> IntArray:
        return np.zeros(len(rows), np.int64) if self.group is None else self.group[rows]

    @property
    def counts(self) -> IntArray:
        return np.diff(self.domain.place)

    def shares(self, sampled: npt.NDArray[np.float64], within: float) -> npt.NDArray[np.float64]:
        """Selectivities among rows with partners; ``sampled``: where pairs were not made."""
        counts, found = self.counts, sampled.copy()
        for c in np.flatnonzero(self.domain.joined):
            one, first = self.plan.pairing.asked[c], self.domain.pairs[c]
            asked = counts[self.plan.pairing.places[one.slots[0]]] * counts[one.place] * within
            found[c] = min(1.0, (first[-1] - first[0]) / max(1.0, asked))
        return found

    def _asking(self, c: int) -> Asking:
        pairing, one = self.plan.pairing, self.plan.pairing.asked[c]
        left = self.rows_of(pairing.places[one.slots[0]])
        return Asking(
            one, self.plan.spec[c], len(pairing.places), left, self.groups_of(left),
            self.rows_of(one.place), self.image, self.offsets, self.rows, self.task,
        )  # fmt: skip

    def sample(self) -> npt.NDArray[np.float64]:
        """Estimated selectivity of each condition; 1 where a sampled pair cannot be computed."""
        shares = np.ones(len(self.plan.spec))
        for c in self._single:
            shares[c] = self._asking(c).share()
        return shares

    def join(self, within: float, threads: int, check: Check, busy: Busy) -> None:
        """Compute all pairs; ``within``: fraction of a position's rows in a window."""
        asked: dict[int, list[Asking]] = {}
        for c in self._single:
            asking = self._asking(c).by_keys()
            tests = len(asking.left) * len(asking.right) * within if threads > 1 else 0
            asked[c] = list(asking.parts(int(min(1 + tests // PART_TESTS, PARTS_MAX))))
        most = self.plan.pairs_max

        def task(part: Asking) -> PartTask[Pairs | None]:
            return lambda check: Done([part.pairs(most, check)])

        each = chain(*asked.values())
        found: Iterator[Pairs | None]
        if any(len(parts) > 1 for parts in asked.values()):
            found = in_order(map(task, each), threads, check, busy)
        else:
            found = (part.pairs(most - self.pairs, check) for part in each)
        blocks: list[npt.NDArray[np.int32]] = []
        try:
            for c, parts in asked.items():
                made = [one for one in islice(found, len(parts)) if one is not None]
                pairs = sum(len(one.partner) for one in made)
                if len(made) < len(parts) or pairs > most - self.pairs:
                    continue  # evaluated again where needed
                counts = np.concatenate([one.counts for one in made])
                left = self.rows_of(self.plan.pairing.places[parts[0].one.slots[0]])
                partners.first_of_rows(left, counts, self.pairs, self.domain.pairs[c])
                self.domain.joined[c] = True
                self.tested += sum(one.tested for one in made)
                self.pairs += pairs
                blocks += [one.partner for one in made]
        except CannotAsk:
            self.failed = True
        if blocks:
            self.domain = self.domain._replace(partner=np.concatenate(blocks))

    def narrow(self, prune: Callable[[Words], None]) -> None:
        pairing, task, rows = self.plan.pairing, self.task, self.rows
        places = sorted({a.place for a in pairing.asked} | set(pairing.places))
        of = {p: self.rows_of(p) for p in places}
        self.before = {p: len(r) for p, r in of.items()}
        mark = np.zeros(len(self.words), np.uint8)
        usable = np.maximum(rows.end - task.lookahead, rows.begin)
        known = np.full(len(usable), task.now, np.int64)
        there = usable < rows.end
        known[there] = rows.time[usable[there]]
        for _ in range(ROUNDS):
            cleared = 0
            for c in np.flatnonzero(self.domain.joined):
                one = pairing.asked[c]
                p = pairing.places[one.slots[0]]
                cleared += partners.narrow(
                    self.words, p, one.place, (p, one.place) in pairing.always, of[p],
                    self.groups_of(of[p]), self.domain.pairs[c], self.domain.partner,
                    of[one.place], known, rows.time, task, mark,
                )  # fmt: skip
            if not cleared:
                break
            prune(self.words)
        self.place_rows()
        self.after = {p: int(self.counts[p]) for p in places}


def _specs(plan: ConditionPlan, pairing: Pairing) -> IntArray:
    arrays = plan.builder.arrays()
    found = np.zeros((len(pairing.asked), 7), np.int64)
    for spec, one in zip(found, pairing.asked, strict=True):
        spec[partners.KIND], spec[partners.NUMBER] = partners.PROGRAM, one.number
        begin, end = arrays["begin"][one.number : one.number + 2]
        code = arrays["code"][begin:end].tolist()
        negated = code[-1][0] == m.NOT
        code = code[:-1] if negated else code
        if len(code) != 3 or len(one.slots) != 1 or code[2][0] not in _COMPARED or code[2][2]:
            continue
        load = m.LOAD_F if _COMPARED[code[2][0]] == "f" else m.LOAD_I
        (a, left, where, shift), (b, right, other, moved) = code[:2]
        if a != load or b != load or shift or moved or (where < 0) == (other < 0):
            continue
        turned = where < 0
        x, y = (right, left) if turned else (left, right)
        spec[:] = (partners.COMPARE, one.number, code[2][0], x, y, turned, negated)
    return found
