"""Finds matches as they become known between two watermarks, and stores situations for later ones.
A situation is stored while a later match can reach it, unless it needs a partner that began before
it ended and had none: for A STARTS B, a B that began without an A.

The next name to join is the cheapest, by the situations that there are of each (``n``)::

    cost           = 2 log2 n searches a constraint + what is found
    what is found  = n * product of the shares of the constraints to names joined before

No order joins an unconstrained name while a constrained one is left.  Changing the order needs no
migration.  EXPLAIN shows constraints, triggers, join orders and bounds of endpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from math import log2

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from ...core.sorting import counted_order
from ...core.times import INT64_MAX, INT64_MIN
from ...errors import ResourceLimit
from ..contract.operator import MatchLimits
from ..pattern.compiled import readable_condition
from .compiled import CompiledSituations
from .deriving import COLUMNS, CUT, FIRST, GROUP, LAST, NAME, OPEN, START, UNTIL, Derived, Deriver
from .join_kernels import (
    ENOUGH,
    TOO_MANY_RESULTS,
    certain_instants,
    find_lonely,
    find_triggers,
    join,
)
from .network import ALL, FAR, RELATIONS, Masks, describe, relations_in

_SHARES = (
    0.445, 0.0049, 0.01, 0.0049, 0.03, 0.0049, 0.0006, 0.0049, 0.03, 0.0049, 0.01, 0.0049, 0.445,
)  # fmt: skip
"""Selectivity of each relation: table 5.3 of the thesis."""

SIZE_FIRST = 100


def join_orders(implied: Masks, sizes: Sequence[int]) -> npt.NDArray[np.int64]:
    """Per trigger name, all names in join order."""
    return np.array([_order(first, implied, sizes) for first in range(len(implied))], np.int64)


def _order(first: int, implied: Masks, sizes: Sequence[int]) -> list[int]:
    order = [first]
    while len(order) < len(implied):
        left = [i for i in range(len(implied)) if i not in order]
        tied = [i for i in left if any(implied[i][j] != ALL for j in order)]
        costs = {i: _cost(order, i, implied, sizes) for i in tied or left}
        order.append(min(costs, key=lambda i: (costs[i], i)))
    return order


def _cost(joined: Sequence[int], name: int, implied: Masks, sizes: Sequence[int]) -> float:
    rows, searches = float(max(sizes[name], 1)), 1
    for other in joined:
        if implied[name][other] != ALL:
            rows *= min(1.0, sum(_SHARES[i] for i in relations_in(implied[name][other])))
            searches += 1
    return searches * 2 * log2(max(sizes[name], 1) + 1) + rows


IntArray = npt.NDArray[np.int64]
RESULTS_AT_ONCE = 1 << 17
_LATER = RELATIONS["BEFORE"] | RELATIONS["MEETS"]
"""Relations in which the other one begins when or after the first has ended."""


@dataclass(frozen=True)
class MatchBatch:
    """Matches by instant; per situation as in ``deriving``, and ``lasting``: still open."""

    group: IntArray
    starts: IntArray
    ends: IntArray
    lasting: npt.NDArray[np.bool_]
    first: IntArray
    last: IntArray
    cut: IntArray
    instant: IntArray
    detected: IntArray

    def only(self, kept: npt.NDArray[np.bool_]) -> MatchBatch:
        columns = (getattr(self, field.name)[kept] for field in fields(self))
        return MatchBatch(*columns)


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
        reach = [compiled.reach_of(i) for i in range(len(compiled.names))]
        self.reach = np.array([INT64_MAX if r is None else r for r in reach], np.int64)
        measured = compiled.measured_names
        self.measured = np.array([name in measured for name in compiled.names], np.bool_)
        self.kept = np.zeros((0, COLUMNS), np.int64)
        self.ended = self.kept
        self.plans = 0
        self._sizes: tuple[int, ...] = ()
        self._plan((SIZE_FIRST,) * len(compiled.names))

    @property
    def nbytes(self) -> int:
        return int(self.kept.nbytes)

    def _plan(self, sizes: tuple[int, ...]) -> None:
        """Choose the orders for so many situations of each name."""
        rounded = tuple(1 << size.bit_length() for size in sizes)
        if rounded == self._sizes:
            return
        self._sizes, self.plans = rounded, self.plans + 1
        names, forced = self.compiled.names, self.compiled.order
        if forced is None:
            self.orders = join_orders(self.compiled.implied, rounded)
        else:
            places = [names.index(name) for name in forced]
            orders = [[i, *(p for p in places if p != i)] for i in range(len(places))]
            self.orders = np.array(orders, np.int64)

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
    ) -> Iterator[MatchBatch]:  # fmt: skip
        """Matches that become known from ``since`` up to the watermark, by instant."""
        self.ended = derived.ended
        parts = [self.kept, derived.ended]
        if self.compiled.early:
            parts.append(deriver.lasting(watermark, self._oldest(since), True))
        runs = np.concatenate(parts)
        if len(runs) == len(self.kept):
            return
        count = len(self.compiled.names)
        order, offsets = counted_order(
            runs[:, GROUP] * count + runs[:, NAME], max(1, deriver.groups) * count
        )
        if self.closing.any() and len(derived.ended):
            order, offsets = self._without_lonely(runs, order, offsets, deriver)
        runs = runs[order]
        groups = max(1, deriver.groups)
        held = np.bincount(runs[:, NAME], minlength=count) // groups
        self._plan(tuple(held.tolist()))
        fresh = order >= len(self.kept)
        columns = [np.ascontiguousarray(runs[:, i]) for i in (NAME, GROUP, START, UNTIL)]
        where = np.empty(2 * len(runs), np.int64)
        instant = np.empty(2 * len(runs), np.int64)
        triggered = find_triggers(
            fresh, *columns, self.least, self.bounded, self.by_end, self.compiled.early, since,
            np.minimum(deriver.until, watermark), where, instant,
        )  # fmt: skip
        by_instant = np.argsort(instant[:triggered], kind="stable")
        where, instant = where[by_instant], instant[by_instant]
        at = 0
        while at < len(where):
            check()
            results, size, at, status = join(
                where, instant, at, *columns, offsets, count, self.orders, self.allowed,
                self.implied, self.least, self.bounded, self.by_end, self.window,
                self.compiled.early, RESULTS_AT_ONCE,
                self.limits.memory_bytes // (8 * (count + 1)), self.limits.steps_max,
            )  # fmt: skip
            if status != ENOUGH:
                raise self._too_much(status)
            if size:
                yield self._matches_of(runs, results[:size])

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

    def _matches_of(self, runs: IntArray, results: IntArray) -> MatchBatch:
        places = results[:, :-1]
        starts, untils = runs[:, START][places], runs[:, UNTIL][places]
        detected = np.empty(len(results), np.int64)
        certain_instants(starts, untils, self.least, self.bounded, self.allowed, detected)
        lasting = untils == OPEN
        return MatchBatch(
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


Detail = tuple[str, str | tuple[str, ...]]


def details(compiled: CompiledSituations) -> tuple[Detail, ...]:
    lines: list[Detail] = [("pattern", _constraints(compiled, implied=False) or compiled.names)]
    implied = _constraints(compiled, implied=True)
    if implied:
        lines.append(("implied", implied))
    durations = compiled.durations
    if durations.window < FAR:
        lines.append(("within", f"{compiled.columns.length(durations.window)}, inclusive"))
    if compiled.gap is not None:
        lines.append(("gap", compiled.columns.length(compiled.gap)))
    lines.append(("emit", "on detection" if compiled.early else "on completion"))
    if compiled.partition_by:
        lines.append(("partition_by", compiled.partition_by))
    lines.append(("conditions", tuple(_conditions(compiled))))
    lines.append(("triggers", tuple(_triggers(compiled))))
    if len(compiled.names) > 1:
        lines.append(("joins", tuple(_joins(compiled))))
        lines.append(("bounds", tuple(_bounds(compiled))))
    if compiled.notes:
        lines.append(("notes", compiled.notes))
    return tuple(lines)


def _constraints(compiled: CompiledSituations, implied: bool) -> tuple[str, ...]:
    names, texts = compiled.names, []
    for i in range(len(names)):
        for j in range(i + 1, len(names)):
            written, closed = compiled.allowed[i][j], compiled.implied[i][j]
            mask = closed if implied else written
            if mask != ALL and (not implied or closed != written):
                texts.append(f"{names[i]} {describe(mask)} {names[j]}")
    return tuple(texts)


def _conditions(compiled: CompiledSituations) -> list[str]:
    texts, length = [], compiled.columns.length
    durations = compiled.durations
    for i, (name, bound) in enumerate(zip(compiled.names, compiled.conditions, strict=True)):
        least, most = durations.least[i], durations.most[i]
        lasting = ""
        if most < FAR:
            lasting = f", lasting {length(least)} to {length(most)}"
        elif least:
            lasting = f", lasting {length(least)} or more"
        texts.append(f"{name}: {readable_condition(bound, name, [bound.scalar])}{lasting}")
    return texts


def _triggers(compiled: CompiledSituations) -> list[str]:
    triggers, length = [], compiled.columns.length
    for i, name in enumerate(compiled.names):
        least, bounded = compiled.durations.least[i], compiled.durations.most[i] < FAR
        if compiled.early:
            start = f"{name} has lasted {length(least)}" if least else f"start of {name}"
            triggers.append(f"end of {name}" if bounded else start)
        if compiled.ends_count[i] and not (compiled.early and bounded):
            triggers.append(f"end of {name}")
    return triggers


def _joins(compiled: CompiledSituations) -> list[str]:
    orders = join_orders(compiled.implied, (SIZE_FIRST,) * len(compiled.names))
    return [" > ".join(compiled.names[i] for i in order) for order in orders]


def _bounds(compiled: CompiledSituations) -> list[str]:
    texts = []
    for i, name in enumerate(compiled.names):
        most = compiled.reach_of(i)
        shown = "without bound" if most is None else f"at most {compiled.columns.length(most)}"
        texts.append(f"start of {name} to the match: {shown}")
    return texts
