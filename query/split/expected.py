"""The expected work of SKIP TILL ANY MATCH: events, and the matches that begin there.

Matches may grow with a power of the events in a window, so time is cut into ranges that balance
events plus matches, and a stretch heavier than a range is divided by match number.  The result
affects how work is divided, never the matches.  A stream of more than ``reach.Budget`` events is
sampled.
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
"""A stretch with so many times the weight of a range is divided by the number of the match."""
LIMITS = MatchLimits(steps_max=20_000_000, memory_bytes=512 << 20)


class Stretch(NamedTuple):
    """A range of ticks (None: open), and the number of shares of its matches."""

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
        """Total work, in reads of the stream."""
        return 1.0 + float(self.matches.sum()) / max(1, int(self.events.sum()))

    def ranges(self, wanted: int) -> list[Stretch]:
        """About ``wanted`` ranges of about equal weight, which cover all time."""
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
    """Where matches begin; None if that cannot be counted, or is no work."""
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
    except (ResourceLimit, SqlError):  # the query itself will report it
        return None


def _counted(run: PartRun, reach: Reach) -> Work:
    ticks, weights = weigh(RangePart(None, None, reach.first, MOST, MOST), run)
    order = order_of(ticks)
    ticks, upto = ticks[order], np.cumsum(weights[order].astype(np.float64))
    edges = _borders(run.snapshot, reach)
    if len(upto):  # many matches begin at these ticks: they get stretches of their own
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
