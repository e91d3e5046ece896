"""The cost model of recency joins: which side runs first, and whether the other is narrowed.

Equations (1) to (4) of the paper, with the union of regions in place of ``M min(P, D)``::

    eager           N_l c_l + N_a c_a
    live first      N_l c_l + min(U_a, N_a) c_a      U_a: union of the regions of live rows
    archive first   N_a c_a + min(U_l, N_l) c_l
    U = n (1 - exp(-M P / n))     M rows, thrown at random into n events; P in events

``N`` is what the side would replay alone, ``c`` the cost of an event.  Before running ``M`` is
estimated from a sample; after the first side has run, the union is known.

The sample is a few pieces of the stream, in which matches are counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...store.snapshot import Snapshot
from ..pattern.compiled import CompiledMatch
from ..replay.timeline import Timeline

SMALL_EVENTS = 1 << 15
"""Events of both sides up to which nothing is narrowed: planning would cost as much."""
WORTH = 0.75
"""A side is narrowed if its regions are at most this fraction of what it would replay."""
SELDOM = 0.25
"""Both sides narrow each other if intervals leave at most this fraction of each stream."""


@dataclass(frozen=True)
class SideCost:
    """What is known of a side before it runs.  It would replay ``events`` of its stream's ``total``
    alone, each for ``event_cost`` (same unit on both sides); ``rows()`` estimates its results and
    may take a sample; ``region``: events of the other stream per row; ``obstacle``: why it cannot
    be narrowed.
    """

    events: float
    event_cost: float
    total: int
    rows: Callable[[], float]
    region: float
    obstacle: str = ""

    @property
    def cost(self) -> float:
        return self.events * self.event_cost

    def narrowed(self, other: SideCost) -> float:
        if not self.total:
            return 0.0
        union = self.total * -math.expm1(-other.rows() * other.region / self.total)
        return self.event_cost * min(union, self.events)


@dataclass(frozen=True)
class Choice:
    order: str
    why: str


def choose(hint: str, kind: str, live: SideCost, archive: SideCost) -> Choice:
    """The order of evaluation; ``kind`` LEFT and ANTI need all live rows."""
    if hint != "auto":
        return Choice(hint, "asked for")
    if live.total + archive.total <= SMALL_EVENTS:
        return Choice("eager", "the streams are small")
    whole = kind in ("left", "anti")
    if archive.obstacle and (live.obstacle or whole):
        why = f"a {kind.upper()} join asks for all live rows" if whole else live.obstacle
        return Choice("eager", f"neither side can be narrowed: {archive.obstacle}; {why}")
    if archive.obstacle:
        return Choice("archive_first", f"the archive side cannot be narrowed: {archive.obstacle}")
    if whole or live.obstacle:
        why = f"a {kind.upper()} join asks for all live rows" if whole else live.obstacle
        return Choice("live_first", why)
    if _few(live) and _few(archive):
        return Choice("both", "indexes and the coarse map leave little of either side")
    sides = {"live_first": (live, archive), "archive_first": (archive, live)}
    costs: dict[str, float] = {}
    for order in sorted(sides, key=lambda order: sides[order][0].cost):
        first, second = sides[order]
        if costs and min(costs.values()) <= first.cost:
            break  # its first side alone costs more than the other order
        costs[order] = first.cost + second.narrowed(first)
    best = min(costs, key=lambda order: costs[order])
    costs["eager"] = live.cost + archive.cost
    if costs[best] > WORTH * costs["eager"]:
        best = "eager"  # narrowing would cost what it saves
    listed = ", ".join(f"{order.replace('_', ' ')} {cost:.3g}" for order, cost in costs.items())
    return Choice(best, f"expected cost: {listed}")


def _few(side: SideCost) -> bool:
    return side.events <= SELDOM * side.total


def worthwhile(union: float, alone: float) -> bool:
    return union <= WORTH * alone


PIECES = 4
PIECE_EVENTS = 2048


def rows_per_event(
    snapshot: Snapshot, compiled: CompiledMatch, check: Callable[[], None] | None = None
) -> float:
    """Result rows per event in a sample; without a match, half a match is assumed."""
    timeline = Timeline(snapshot)
    if not timeline.total:
        return 1.0
    size = min(PIECE_EVENTS, max(1, timeline.total // PIECES))
    starts = np.linspace(0, timeline.total - size, PIECES).astype(np.int64)
    lows, highs = timeline.ticks_at(starts), timeline.ticks_at(starts + size - 1)
    events = 0

    def batches() -> Iterator[pa.RecordBatch]:
        """The pieces one after the other; false matches across a seam do not matter."""
        nonlocal events
        before = None
        for low, high in zip(lows.tolist(), highs.tolist(), strict=True):
            low = low if before is None else max(low, before + 1)
            before = high
            if low > high:
                continue
            for batch in snapshot.scan(low, high + 1, compiled.input_columns, check=check):
                events += batch.num_rows
                yield batch

    rows = sum(batch.num_rows for batch in compiled.run(batches(), check=check))
    return float(max(rows, 0.5) / max(events, 1))
