"""The cost model: how much of the stream a choice of index terms would replay, in nanoseconds.

Thesis section 3.4.3.  Each block occurs at each position independently.  The distance from an
occurrence of the rarest chosen block to the position where all others have followed is then
hypoexponential; an urn model turns number and length of intervals into the fraction covered.
``_within`` computes the distribution on a grid of ``GRID`` steps of the window, one geometric
filter per block, which stays exact for equal rates, where the closed form cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from ..contract.constants import ConstantsFile

Table = npt.NDArray[np.float64]

GRID = 64
READ_GAP = 2048
"""Events between two intervals that are decoded rather than skipped: a seek costs about as much."""
PAIRS_PER_EVENT = 4.0
"""Pairs of occurrences that may be compared per replayed event."""
READ_NEAR = 16.0
"""Events whose column is read to get the value at one occurrence."""
SEARCH_GRID = 24
"""Grid steps while choices are compared; they differ by more than a finer grid would show."""


@dataclass(frozen=True)
class Weights:
    """Nanoseconds of each operation on this machine; ``chronicle calibrate`` measures them.

    - event: reading and matching one event
    - interval: starting an interval far from others (with LZ4; a third of that without)
    - near: starting one within ``READ_GAP`` of another
    - decoded: decoding one event between two such intervals
    - entry: turning an index entry into a bit
    - run: opening a run for one range
    - occurrence: carrying one occurrence of a block through the merge
    - word: a pass over 64 positions of a bitmap
    - query: planning, before anything is read; outline: one more outline of the same pattern
    - grouped: replaying one event under PARTITION BY, key encoding and grouping included
    - key: reading one event's PARTITION BY columns and finding its code
    - picked: filtering one event of a partition out of others
    - walk: testing a condition between events on one more row
    - condition: evaluating one more condition that is not a plain comparison of numbers
    - around: one event's share of the passes that find the rows around intervals
    """

    event: float = 12.0
    interval: float = 30_000.0
    near: float = 600.0
    decoded: float = 3.0
    entry: float = 2.5
    run: float = 30_000.0
    occurrence: float = 12.0
    word: float = 0.6
    query: float = 1_500_000.0
    grouped: float = 60.0
    key: float = 4.0
    picked: float = 60.0
    walk: float = 40.0
    condition: float = 20.0
    around: float = 40.0
    outline: float = 600_000.0


_FILE = ConstantsFile("pattern-weights.json", Weights, "CHRONICLE_CALIBRATION")
load_weights = _FILE.load
save_weights = _FILE.save


@dataclass(frozen=True)
class Estimate:
    """Expected work of a choice of terms.  ``intervals`` before and ``spans`` after merging;
    ``events`` replayed; index ``entries`` and ``runs`` read; ``primary_ns`` replay (CPIO and
    matching), ``secondary_ns`` indexes (CSIO, merging).
    """

    intervals: float
    spans: float
    events: float
    entries: float
    runs: float
    primary_ns: float
    secondary_ns: float

    @property
    def total_ns(self) -> float:
        return self.primary_ns + self.secondary_ns


@kernel
def _within(rates, used, skip, window, mass):  # type: ignore[no-untyped-def]
    """Probability that the waits for all blocks but ``skip`` sum to at most the window."""
    grid = mass.shape[0]
    step = window / grid
    mass[:] = 0.0
    fresh = True
    for b in range(used):
        if b == skip or rates[b] >= 0.999:
            continue
        pace = -step * math.log1p(-rates[b])
        stay = math.exp(-pace)
        # an arrival within a step waits for the rest of the step
        at_once = 1.0 - (1.0 - stay) / pace if pace > 1e-6 else 0.5 * pace
        waiting = 1.0 if fresh else 0.0
        for g in range(grid):
            arrived = 0.0 if fresh else mass[g]
            served = waiting * (1.0 - stay) + arrived * at_once
            waiting = waiting * stay + arrived * (1.0 - at_once)
            mass[g] = served
        fresh = False
    if fresh:
        return 1.0
    return min(1.0, mass.sum())


@dataclass(frozen=True)
class BlockCosts:
    """Costs and rates of looking up the ``k`` rarest terms of each block ``b``.
    ``events[strata]``; ``rates[strata, b, k]`` probability that the block begins at a position of
    the stratum, given ``k`` terms; ``entries``, ``runs``, ``passes`` ``[b, k]`` index entries and
    runs read, and bitmap positions passed over; ``lengths[b]`` symbols; ``fits[b, b]`` above the
    diagonal, the fraction of pairs of occurrences that satisfy the conditions between them (no
    rows: 1); ``rooms[b, b]`` above the diagonal, about the most events between two blocks (infinite
    or no rows: bounded by the window alone).
    """

    events: Table
    rates: Table
    entries: Table
    runs: Table
    passes: Table
    lengths: npt.NDArray[np.int64]
    fits: Table = field(default_factory=lambda: np.ones((0, 0)))
    rooms: Table = field(default_factory=lambda: np.ones((0, 0)))


@kernel
def _replayed(rates, used, before, after, symbols, slack, mass, out):  # type: ignore[no-untyped-def]
    """Write to ``out`` the candidates per position and the probability that no interval covers one.
    A gap is covered when the waits back to the blocks before it and on to those after it fit into
    the window; gaps correlate the more, the more often the block between them occurs.
    """
    rarest = np.int64(0)
    waits = 0.0
    for b in range(used):
        waits += 1.0 / max(rates[b], 1e-12)
        if rates[b] < rates[rarest]:
            rarest = b  # type: ignore[assignment]  # an int64 all the time
    window = max(slack, 0.5)
    found = rates[rarest] * _within(rates, used, rarest, window, mass)
    gaps = used - 1 + before + after
    missed = -found * symbols
    if gaps > 0:
        ways = 1.0
        for b in range(0 if before else 1, used if after else used - 1):
            room = min(window, waits - 1.0 / max(rates[b], 1e-12) + before + after)
            ways += 1.0 / (1.0 + rates[b] * room / 3.0)
        if used + before + after <= 2:
            ways = 1.0
        chance = _within(rates, used, np.int64(-1), window, mass)
        missed += ways * math.log1p(-min(chance, 1.0 - 1e-12))
    out[0] = found
    out[1] = math.exp(missed)


@kernel
def _thinned(fits, number, used, window, rates, out):  # type: ignore[no-untyped-def]
    """Rates after band conditions, of the more frequent block of a pair; returns events to read."""
    read = 0.0
    for i in range(used):
        out[i] = rates[i]
    for i in range(used):
        for j in range(i + 1, used):
            fit = fits[number[i], number[j]]
            # more pairs are not compared, see `fitting`
            if fit >= 1.0 or rates[i] * rates[j] * window > PAIRS_PER_EVENT:
                continue
            many = i if rates[i] > rates[j] else j
            out[many] = min(out[many], rates[many] * fit)
            read += min(1.0, READ_NEAR * rates[i]) + min(1.0, READ_NEAR * rates[j])
    return read


@kernel
def _estimate(  # type: ignore[no-untyped-def]
    counts, events, rates, entries, runs, passes, lengths, fits, rooms, window, leading, trailing,
    gap, weights, mass, chosen, number, thin, out,
):  # fmt: skip
    """Write the fields of ``Estimate``.  ``weights``: event, interval, entry, run, occurrence,
    word, key, near, decoded.
    """
    blocks = counts.shape[0]
    used = np.int64(0)  # no literals (see `compiled.py`)
    first = 0
    last = 0
    symbols = np.int64(0)
    read = 0.0
    opened = 0.0
    swept = 0.0
    for b in range(blocks):
        symbols += lengths[b]
        if counts[b] > 0:
            if used == 0:
                first = b
            last = b
            used += 1
            read += entries[b, counts[b]]
            opened += runs[b, counts[b]]
            swept += passes[b, counts[b]]
    out[:] = 0.0
    out[3] = read
    out[4] = opened
    secondary = read * weights[2] + opened * weights[3] + swept / 64.0 * weights[5]
    if used == 0:
        out[0] = 1.0
        out[1] = 1.0
        out[2] = events.sum()
        out[5] = out[2] * weights[0]
        return
    before = 1 if leading or first > 0 else 0
    after = 1 if trailing or last < blocks - 1 else 0
    joined = 0.0
    stretches = 0.0
    decoded = 0.0
    previous = 0
    pair = np.empty(2)
    for s in range(events.shape[0]):
        at = np.int64(0)
        for b in range(blocks):
            if counts[b] > 0:
                rate = min(1.0, rates[s, b, counts[b]])
                secondary += rate * events[s] * weights[4]
                if at > 0 and rooms.shape[0] > 0 and rooms[previous, b] < window:
                    # a bounded distance: both count as one block, if the other is near
                    fit = fits[previous, b] if fits.shape[0] > 0 else 1.0
                    chosen[at - 1] *= 1.0 - math.exp(-(rooms[previous, b] + 1.0) * rate * fit)
                else:
                    chosen[at] = rate
                    number[at] = b
                    at += 1
                previous = b
        if fits.shape[0] > 0:
            looked = _thinned(fits, number, at, window, chosen, thin)
            secondary += looked * events[s] * weights[6]
            chosen[:at] = thin[:at]
        _replayed(chosen, at, before, after, symbols, window - symbols, mass, pair)
        found = pair[0]
        missed = pair[1]
        apart = math.exp(-found * gap)
        out[0] += events[s] * found
        out[1] += events[s] * found * missed * apart
        out[2] += events[s] * (1.0 - missed)
        # events between neighbours are replayed, or only decoded if the neighbours are apart
        between = events[s] * missed * (1.0 - apart * (1.0 + found * gap))
        wide = math.exp(-found * max(gap, READ_GAP))
        apart_from = 1.0 - wide * (1.0 + found * max(gap, READ_GAP))
        stretches += events[s] * found * missed * wide
        decoded += max(0.0, events[s] * missed * apart_from - between)
        joined += between
    out[1] = max(1.0, out[1])
    stretches = max(1.0, stretches)
    out[5] = (out[2] + joined) * weights[0] + stretches * weights[1]
    out[5] += max(0.0, out[1] - stretches) * weights[7] + decoded * weights[8]
    out[6] = secondary


@kernel
def _estimate_all(  # type: ignore[no-untyped-def]
    choices, events, rates, entries, runs, passes, lengths, fits, rooms, window, leading, trailing,
    gap, weights, grid, out,
):  # fmt: skip
    """``_estimate`` of many choices, row by row."""
    mass = np.empty(grid)
    chosen = np.empty(lengths.shape[0])
    thin = np.empty(lengths.shape[0])
    number = np.empty(lengths.shape[0], np.int64)
    for i in range(choices.shape[0]):
        _estimate(
            choices[i], events, rates, entries, runs, passes, lengths, fits, rooms, window, leading,
            trailing, gap, weights, mass, chosen, number, thin, out[i],
        )  # fmt: skip


class Model(Protocol):
    """Estimates the cost of choices of terms."""

    def table(self, choices: npt.NDArray[np.int64]) -> Table:
        """Estimates (columns: the fields of ``Estimate``) of choices int64[n, blocks]."""


def priced(model: Model, counts: Sequence[int]) -> Estimate:
    return Estimate(*model.table(np.array([counts], np.int64))[0].tolist())


@dataclass(frozen=True)
class CostModel:
    """The model without PARTITION BY.  ``window`` is the number of events that a match can span;
    ``leading`` and ``trailing`` say whether events may come before the first or after the last
    block; intervals nearer than ``gap`` events are merged; ``grid`` is the number of steps of the
    wait distribution.
    """

    costs: BlockCosts
    window: float
    leading: bool
    trailing: bool
    weights: Weights
    gap: float
    grid: int = GRID

    def table(self, choices: npt.NDArray[np.int64]) -> Table:
        out = np.empty((len(choices), 7))
        weights = self.weights
        told = np.array(
            [
                weights.event, weights.interval, weights.entry, weights.run, weights.occurrence,
                weights.word, weights.key, weights.near, weights.decoded,
            ]
        )  # fmt: skip
        costs = self.costs
        _estimate_all(
            np.ascontiguousarray(choices, np.int64), costs.events, costs.rates, costs.entries,
            costs.runs, costs.passes, costs.lengths, costs.fits, costs.rooms, float(self.window),
            self.leading, self.trailing, float(self.gap), told, self.grid, out,
        )  # fmt: skip
        return out


@dataclass(frozen=True)
class PartitionedModel:
    """The model under PARTITION BY: keys are read in all spans, only one partition's rows are
    replayed.  ``about`` is the model without partitions; ``crowd`` the number of interleaved
    partitions; ``allowed`` the events that the coarse map leaves; ``passes_ns`` the fixed passes
    over all keys; ``near`` the events whose keys are read per occurrence; ``beside_ns`` and
    ``beside_most_ns`` the cost of finding the rows around one interval, and the limit for all.
    """

    about: CostModel
    crowd: float
    allowed: float
    passes_ns: float
    near: float = 16.0
    beside_ns: float = 0.0
    beside_most_ns: float = 0.0

    def table(self, choices: npt.NDArray[np.int64]) -> Table:
        about, weights = self.about, self.about.weights
        wide = replace(about, weights=replace(weights, event=weights.key)).table(choices)
        narrow = replace(about, window=about.window / self.crowd).table(choices)
        out = wide.copy()
        out[:, 0], out[:, 2] = narrow[:, 0], narrow[:, 2]
        first = self._rarest(choices)
        keys = np.minimum(self.allowed, first * self.near) * weights.key + first * weights.picked
        event = weights.grouped + weights.picked
        beside = np.minimum(self.beside_most_ns, narrow[:, 1] * self.beside_ns)
        out[:, 5] = wide[:, 5] + narrow[:, 2] * event + keys + beside + self.passes_ns
        nothing = ~choices.any(axis=1)
        if nothing.any():
            grouped = replace(about, weights=replace(weights, event=weights.grouped))
            out[nothing] = grouped.table(choices[nothing])
        return out

    def _rarest(self, choices: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        costs = self.about.costs
        held = np.einsum("s,sbk->bk", costs.events, costs.rates)
        chosen = held[np.arange(held.shape[0]), choices]
        found: npt.NDArray[np.float64] = np.where(choices > 0, chosen, np.inf).min(axis=1)
        return np.where(np.isfinite(found), found, 0.0)


def coarser(model: Model) -> Model:
    """The same model on a grid of ``SEARCH_GRID`` steps, to compare many choices."""
    if isinstance(model, PartitionedModel):
        return replace(model, about=replace(model.about, grid=SEARCH_GRID))
    return replace(model, grid=SEARCH_GRID) if isinstance(model, CostModel) else model
