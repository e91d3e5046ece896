"""Finds matches as they become known between two watermarks, and stores situations for later ones.
A situation is stored while a later match can reach it, unless it needs a partner that began before
it ended and had none: for A STARTS B, a B that began without an A.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from ...core.times import INT64_MAX, INT64_MIN
from ...errors import ResourceLimit
from ..pattern.compiled import MatchLimits
from ..pattern.groups import group_rows
from .compiled import CompiledSituations
from .derive_kernels import COLUMNS, CUT, FIRST, GROUP, LAST, NAME, OPEN, START, UNTIL
from .deriving import Derived, Deriver
from .join_kernels import (
    ENOUGH,
    TOO_MANY_RESULTS,
    certain_instants,
    find_lonely,
    find_triggers,
    join,
)
from .network import FAR
from .ordering import ALPHA, Statistics, join_orders
from .relations import ALL, RELATIONS

__all__ = ["Found", "Matching"]

IntArray = npt.NDArray[np.int64]
RESULTS_AT_ONCE = 1 << 17
_LATER = RELATIONS["BEFORE"] | RELATIONS["MEETS"]
"""Relations in which the other one begins when or after the first has ended."""


@dataclass(frozen=True)
class Found:
    """Matches by instant; per situation as in ``derive_kernels``, and ``lasting``: still open."""

    group: IntArray
    starts: IntArray
    ends: IntArray
    lasting: npt.NDArray[np.bool_]
    first: IntArray
    last: IntArray
    cut: IntArray
    instant: IntArray
    detected: IntArray

    def only(self, kept: npt.NDArray[np.bool_]) -> Found:
        columns = (getattr(self, field.name)[kept] for field in fields(self))
        return Found(*columns)


@kernel
def _oldest_rows(runs, measured, oldest):  # type: ignore[no-untyped-def]
    """Smallest first row that is needed, per partition."""
    for i in range(runs.shape[0]):
        if measured[runs[i, NAME]]:
            g = runs[i, GROUP]
            oldest[g] = min(oldest[g], runs[i, FIRST])


class Matching:
    """The matches of one run; ``plans``: how often join orders were chosen."""

    def __init__(self, compiled: CompiledSituations, limits: MatchLimits) -> None:
        self.compiled = compiled
        self.limits = limits
        durations = compiled.durations
        self.allowed = np.array(compiled.allowed, np.int64)
        self.implied = np.array(compiled.implied, np.int64)
        self.closing = (self.allowed != ALL) & (self.allowed & _LATER == 0)
        self.least = np.array(durations.least, np.int64)
        self.bounded = np.array([most < FAR for most in durations.most], np.bool_)
        self.by_end = np.array(compiled.ends_count, np.bool_)
        self.window = OPEN if durations.window >= FAR else np.int64(durations.window)
        reach = [compiled.kept(i) for i in range(len(compiled.names))]
        self.reach = np.array([INT64_MAX if r is None else r for r in reach], np.int64)
        measured = compiled.measured_names
        self.measured = np.array([name in measured for name in compiled.names], np.bool_)
        self.kept = np.zeros((0, COLUMNS), np.int64)
        self.ended = self.kept
        self.statistics = Statistics.first(compiled.allowed)
        self.plans = 0
        self.orders = self._planned()

    @property
    def nbytes(self) -> int:
        return int(self.kept.nbytes)

    def _planned(self) -> IntArray:
        self.plans += 1
        self.statistics.remember()
        forced = self.compiled.order
        if forced is None:
            return join_orders(self.compiled.implied, self.statistics)
        places = [self.compiled.names.index(name) for name in forced]
        return np.array([[i, *(p for p in places if p != i)] for i in range(len(places))], np.int64)

    def _oldest(self, instant: int) -> IntArray:
        """Per name, the earliest start in a match at or after an instant."""
        limit = np.where(self.reach > INT64_MAX // 2, INT64_MIN, 0)
        near = self.reach <= INT64_MAX // 2
        for i in np.flatnonzero(near):
            limit[i] = max(INT64_MIN, instant - int(self.reach[i]))
        return limit

    def find(
        self, derived: Derived, deriver: Deriver, since: int, watermark: int,
        check: Callable[[], None],
    ) -> Iterator[Found]:  # fmt: skip
        """Matches that become known from ``since`` up to the watermark, by instant."""
        self.ended = derived.ended
        parts = [self.kept, derived.ended]
        if self.compiled.early:
            parts.append(deriver.lasting(watermark, self._oldest(since), True))
        runs = np.concatenate(parts)
        if len(runs) == len(self.kept):
            return
        count = len(self.compiled.names)
        order, offsets = group_rows(
            runs[:, GROUP] * count + runs[:, NAME], max(1, deriver.groups) * count
        )
        if self.closing.any() and len(derived.ended):
            order, offsets = self._without_lonely(runs, order, offsets, deriver)
        runs = runs[order]
        fresh = order >= len(self.kept)
        columns = [np.ascontiguousarray(runs[:, i]) for i in (NAME, GROUP, START, UNTIL)]
        where = np.empty(2 * len(runs), np.int64)
        instant = np.empty(2 * len(runs), np.int64)
        found = find_triggers(
            fresh, *columns, self.least, self.bounded, self.by_end, self.compiled.early, since,
            np.minimum(deriver.until, watermark), where, instant,
        )  # fmt: skip
        by_instant = np.argsort(instant[:found], kind="stable")
        where, instant = where[by_instant], instant[by_instant]
        at = 0
        while at < len(where):
            check()
            results, size, at, status = join(
                where, instant, at, *columns, offsets, count, self.orders, self.allowed,
                self.implied, self.least, self.bounded, self.by_end, self.window,
                self.compiled.early, self.statistics.sizes, self.statistics.shares, ALPHA,
                RESULTS_AT_ONCE, self.limits.memory_bytes // (8 * (count + 1)),
                self.limits.steps_max,
            )  # fmt: skip
            if status != ENOUGH:
                raise self._too_much(status)
            if self.statistics.drifted:
                self.orders = self._planned()
            if size:
                yield self._found(runs, results[:size])

    def _without_lonely(
        self, runs: IntArray, order: IntArray, offsets: IntArray, deriver: Deriver
    ) -> tuple[IntArray, IntArray]:
        columns = [np.ascontiguousarray(runs[order, i]) for i in (NAME, GROUP, START, UNTIL)]
        lonely = np.zeros(len(order), np.bool_)
        find_lonely(
            order >= len(self.kept), *columns, offsets, len(self.compiled.names), self.closing,
            self.allowed, deriver.word, deriver.start, lonely,
        )  # fmt: skip
        left = np.ones(len(runs), np.bool_)
        left[order[lonely]] = False
        first = len(self.kept)
        self.ended = runs[first : first + len(self.ended)][left[first : first + len(self.ended)]]
        return order[~lonely], np.concatenate([[0], np.cumsum(~lonely)])[offsets]

    def absorb(self, derived: Derived) -> None:
        self.ended = derived.ended

    def _found(self, runs: IntArray, results: IntArray) -> Found:
        places = results[:, :-1]
        starts, untils = runs[:, START][places], runs[:, UNTIL][places]
        detected = np.empty(len(results), np.int64)
        certain_instants(starts, untils, self.least, self.bounded, self.allowed, detected)
        lasting = untils == OPEN
        return Found(
            runs[:, GROUP][places[:, 0]], starts, np.where(lasting, OPEN, untils + ~lasting),
            lasting, runs[:, FIRST][places], runs[:, LAST][places], runs[:, CUT][places],
            results[:, -1], detected,
        )  # fmt: skip

    def _too_much(self, status: int) -> ResourceLimit:
        if status == TOO_MANY_RESULTS:
            what = f"more than {self.limits.memory_bytes} bytes of matches end at one instant"
        else:
            what = f"more than {self.limits.steps_max} combinations are tried at one instant"
        return ResourceLimit(f"{what}; add WITHIN, or narrow the relations and conditions")

    def retain(self, watermark: int, deriver: Deriver) -> IntArray | None:
        """Forget situations; returns the first row that measures may read, per partition."""
        both = np.concatenate([self.kept, self.ended]) if len(self.ended) else self.kept
        self.ended = self.ended[:0]
        oldest = self._oldest(min(watermark, INT64_MAX - 1) + 1)
        if len(self.compiled.names) == 1:
            self.kept = both[:0]  # a single situation is complete when it ends
        else:
            lasts = deriver.until[both[:, GROUP]] > watermark
            self.kept = both[lasts & (both[:, START] >= oldest[both[:, NAME]])]
        if not self.measured.any():
            return None
        needed = np.full(max(1, deriver.groups), INT64_MAX, np.int64)
        _oldest_rows(self.kept, self.measured, needed)
        _oldest_rows(deriver.lasting(watermark, oldest, False), self.measured, needed)
        return needed
