"""Where the work of SKIP TILL ANY MATCH lies: events, and the matches that begin there.

Purpose
    Equal numbers of events are no equal work where matches grow with a power of what a window
    holds.  :func:`expected_work` counts the matches that begin in each stretch of time, and
    :meth:`Work.ranges` cuts time so that events and matches together are about the same in each
    range.

Layout
    ::

        stretches     |    |  |    |||    |      borders of leaves, and times at which much begins
        matches        10   2  9  900 800  3     counted, or taken from the nearest that is counted
        ranges        |          |   |    |      of about equal weight; a stretch that is heavier
        shares         1          3   3    1     than a range is to be divided by the number of the
                                                 match

Guarantee
    What is said here decides how work is shared out and never what is found.

Limits
    A stream of more than :class:`.reach.Budget` events is sampled: what lies between the
    stretches that are counted can hold more than they do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.sorting import order_of
from ...errors import ResourceLimit, SqlError
from ...store.segment import ScanMetrics
from ...store.snapshot import Snapshot
from ..pattern.any_choice import choose
from ..pattern.compiled import CompiledMatch, MatchLimits
from .index_parts import weigh
from .parts import Cut, PartRun, RangePart
from .reach import MOST, Budget, Reach, reach_of

__all__ = ["Stretch", "Work", "expected_work"]

Ints = npt.NDArray[np.int64]
Check = Callable[[], None] | None

STRETCHES = 256
SAMPLES_LEAST = 16
HEAVY = 1.5
"""From so many times the weight of a range on, a stretch is divided by the number of the match."""
LIMITS = MatchLimits(steps_max=20_000_000, memory_bytes=512 << 20)


class Stretch(NamedTuple):
    """A range of ticks, None where it is open, and in how many shares its matches are taken."""

    low: int | None
    high: int | None
    shares: int


class Work(NamedTuple):
    """Events and matches of stretches of time; stretch ``i`` is ``edges[i] .. edges[i + 1]``."""

    reach: Reach
    edges: Ints
    events: Ints
    matches: npt.NDArray[np.float64]

    @property
    def share(self) -> float:
        """All there is to do, in reads of the stream."""
        return 1.0 + float(self.matches.sum()) / max(1, int(self.events.sum()))

    def ranges(self, wanted: int) -> list[Stretch]:
        """About so many ranges of about equal weight, which cover all time."""
        weight = self.events + self.matches
        goal = max(1.0, float(weight.sum()) / wanted)
        found: list[Stretch] = []
        begin, held = None, 0.0
        for i, (low, own) in enumerate(zip(self.edges.tolist(), weight.tolist(), strict=False)):
            heavy = own > HEAVY * goal
            if held and (heavy or held + own / 2 > goal):
                found.append(Stretch(begin, low, 1))
                begin, held = low, 0.0
            held += own
            if heavy:
                high = int(self.edges[i + 1])
                found.append(Stretch(begin, high, math.ceil(own / goal)))
                begin, held = high, 0.0
        if held or not found:
            found.append(Stretch(begin, None, 1))
        found[-1] = found[-1]._replace(high=None)
        return found


def expected_work(snapshot: Snapshot, compiled: CompiledMatch, check: Check = None) -> Work | None:
    """Where matches begin; None where that cannot be counted, or is no work.

    Parameters
    ----------
    check : callable, optional
        Called now and then; may raise.
    """
    selecting, clause = compiled.selecting, compiled.clause
    if clause.selection != "any" or selecting.weighted:
        return None
    reach = reach_of(snapshot, compiled)
    if isinstance(reach, str) or reach.last >= MOST:
        return None
    chosen = choose(clause.selection, compiled.automaton, compiled.conditions, selecting.wanted)
    if chosen.regime == "search":
        return None
    run = PartRun(snapshot, compiled, ScanMetrics(), check, LIMITS)
    events = Budget(snapshot).left
    try:
        if snapshot.count <= events:
            return _counted(run, reach)
        return _sampled(run, reach, events)
    except (ResourceLimit, SqlError):  # the query itself will say so
        return None


def _counted(run: PartRun, reach: Reach) -> Work:
    """By all events."""
    ticks, weights = weigh(RangePart(None, None, reach.first, MOST, MOST), run)
    order = order_of(ticks)
    ticks, upto = ticks[order], np.cumsum(weights[order].astype(np.float64))
    edges = _borders(run.snapshot, reach)
    if len(upto):  # much begins at these: they are stretches of their own
        at = np.searchsorted(upto, upto[-1] * (np.arange(STRETCHES) + 0.5) / STRETCHES)
        often, times = np.unique(ticks[at], return_counts=True)
        hot = often[times > 1]
        edges = np.unique(np.concatenate([edges, ticks[at], hot + 1]))
        edges = edges[(edges > reach.first) & (edges <= reach.last)]
        edges = np.concatenate([[reach.first], edges, [reach.last + 1]])
    whole = np.concatenate([[0.0], upto])
    matches = np.diff(whole[np.searchsorted(ticks, edges)])
    return Work(reach, edges, _events(edges, reach), matches)


def _sampled(run: PartRun, reach: Reach, events: float) -> Work | None:
    """By some stretches."""
    snapshot, within = run.snapshot, run.compiled.within
    assert within is not None
    edges = _borders(snapshot, reach)
    count = len(edges) - 1
    window = snapshot.count * min(1.0, within / max(1, reach.last - reach.first))
    taken = int(min(count, events // (snapshot.count / count + window)))
    if taken < SAMPLES_LEAST:
        return None
    chosen = np.unique(np.linspace(0, count - 1, taken).astype(np.int64))
    found = np.zeros(len(chosen))
    for i, stretch in enumerate(chosen.tolist()):
        low, high = (int(edge) for edge in edges[stretch : stretch + 2])
        stop = reach.ahead(high - 1)
        part = RangePart(
            Cut(low, last=low - 1), Cut(high, last=high - 1), reach.before(low), stop,
            reach.after(stop),
        )  # fmt: skip
        found[i] = weigh(part, run)[1].sum(dtype=np.float64)
    matches = np.interp(np.arange(count), chosen, found)
    return Work(reach, edges, _events(edges, reach), matches)


def _borders(snapshot: Snapshot, reach: Reach) -> Ints:
    """Ticks between which the events of the stream lie, in stretches of similar size."""
    borders = [low for low, _ in snapshot.ranges(STRETCHES) if low is not None]
    found = np.array(borders, np.int64)
    if len(found) < STRETCHES // 4:  # few leaves
        even = np.linspace(float(reach.first), float(reach.last), STRETCHES)
        found = np.unique(np.concatenate([found, even.astype(np.int64)]))
    found = found[(found > reach.first) & (found <= reach.last)]
    return np.concatenate([[reach.first], found, [reach.last + 1]]).astype(np.int64)


def _events(edges: Ints, reach: Reach) -> Ints:
    counted = [reach.events(low, high - 1) for low, high in pairwise(edges.tolist())]
    return np.array(counted, np.int64)
