"""The cost model: how much of the stream a choice of indexes would replay, and what that costs.

Purpose
    Thesis section 3.4.3.  Under the assumptions that a block occurs at each position with its own
    probability, independently, the distance from an occurrence of the first chosen block to the
    first place where all others have followed is hypoexponential; an urn model turns the number
    and length of intervals into the fraction of the stream that they cover.  Costs are in
    nanoseconds.

Guarantee
    Estimates steer the choice between plans that give the same rows; they never touch the rows.

Notes
    :func:`_spread` is the distribution on a grid of :data:`GRID` steps of the window, one
    geometric filter per block, which stays exact where closed forms of the hypoexponential
    distribution cancel (equal rates).
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

__all__ = [
    "PAIRS_PER_EVENT",
    "READ_GAP",
    "BlockCosts",
    "CostModel",
    "Estimate",
    "Model",
    "PartitionedModel",
    "Weights",
    "coarser",
    "load_weights",
    "priced",
    "save_weights",
]

Table = npt.NDArray[np.float64]

GRID = 64
READ_GAP = 2048
"""Events between two intervals that are decoded: beginning anew costs about as much."""
PAIRS_PER_EVENT = 4.0
"""Pairs of occurrences that are compared in place of an event that is replayed."""
READ_NEAR = 16.0
"""Events of which a column is read to know it of one occurrence."""
SEARCH_GRID = 24
"""Steps while choices are compared, which differ by far more than a finer grid would tell."""


@dataclass(frozen=True)
class Weights:
    """What things cost on a machine, in nanoseconds; ``chronicle calibrate`` measures them.

    Attributes
    ----------
    event : float
        Reading and matching one event.
    interval : float
        Beginning one interval far from others.  The default is that of columns compressed with LZ4:
        a page of each is decompressed for an event of it; stored as they are, they take a third.
    near : float
        Beginning one interval within :data:`READ_GAP` of another, whose columns are decoded anyway.
    decoded : float
        Decoding the columns of one event that is not replayed, between two such intervals.
    entry : float
        Turning one index entry into a bit.
    run : float
        Opening one run for one range.
    occurrence : float
        Carrying one occurrence of a block through the merge.
    word : float
        One pass over 64 positions of a bitmap.
    query : float
        What planning costs before anything is read.
    outline : float
        The same of one more outline of a pattern, which has much in common with the first.
    grouped : float
        Replaying one event under PARTITION BY: it is read, its key is encoded, rows are grouped.
    key : float
        Reading the PARTITION BY columns of one event and finding its code.
    picked : float
        Picking one event of a partition out of those of others, before it is replayed.
    walk : float
        Asking a condition between events of one more row, in a search from row to row.
    condition : float
        Evaluating one more condition of an event that is more than a comparison of numbers.
    around : float
        One event's part of the passes over all keys that find the rows around intervals.
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
    """What a choice of terms is expected to do.

    Attributes
    ----------
    intervals : float
        Before merging.
    spans : float
        After merging.
    events : float
        Events replayed.
    entries, runs : float
        Index entries and runs read.
    primary_ns, secondary_ns : float
        Cost of replaying (CPIO and evaluation) and of the indexes (CSIO, bits and merging).
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
        """Both costs."""
        return self.primary_ns + self.secondary_ns


@kernel
def _within(rates, used, skip, window, mass):  # type: ignore[no-untyped-def]
    """Chance that the waits for all blocks but ``skip`` add up to at most ``window`` positions.

    The sum is hypoexponential; its distribution is carried along a grid, one block at a time.
    """
    grid = mass.shape[0]
    step = window / grid
    mass[:] = 0.0
    fresh = True
    for b in range(used):
        if b == skip or rates[b] >= 0.999:
            continue
        pace = -step * math.log1p(-rates[b])
        stay = math.exp(-pace)
        # who arrives within a step waits for the rest of it
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
    """What taking the 0, 1, 2, ... rarest terms of each block means; block ``b``, terms ``k``.

    Attributes
    ----------
    events : float64[strata]
        Events of each stratum: parts of the stream in which rates are about the same.
    rates : float64[strata, blocks, terms + 1]
        Chance that the block begins at a position of the stratum, as far as ``k`` terms tell.
    entries, runs, passes : float64[blocks, terms + 1]
        Index entries and runs read, and positions that bitmaps go over.
    lengths : int64[blocks]
        Symbols of each block.
    fits : float64[blocks, blocks]
        Above the diagonal, the part of the pairs of two blocks' occurrences that belong together,
        by what conditions between their events say; without rows, all do.
    rooms : float64[blocks, blocks]
        Above the diagonal, how many events lie at most between two blocks, or about; infinite where
        the window alone says.  Without rows it does for all.
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
    """Candidates per position, and the chance that a position is in no interval; into ``out``.

    A position between two events of a candidate is covered when the waits back to the blocks
    before it and on to the blocks after it fit into the window; there is one such event for each
    gap, and they are the more alike the more often the block between two gaps occurs.
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
    """Rates of the chosen blocks' occurrences that fit another; gives what is read to know.

    Of two blocks the more frequent one is thinned: whether one of its occurrences is there for an
    occurrence of the other is what the waits ask.  ``number``: which blocks the rates are of.
    """
    read = 0.0
    for i in range(used):
        out[i] = rates[i]
    for i in range(used):
        for j in range(i + 1, used):
            fit = fits[number[i], number[j]]
            # more pairs are not asked, see `fitting`
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
    """Fill ``out`` with intervals, spans, events, entries, runs, primary and secondary cost.

    ``weights``: event, interval, entry, run, occurrence, word, key, near, decoded.
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
                    # both or none: one block, where the other one is near
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
        # joining neighbours replays what lies between them, or decodes it where they are farther
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
    """:func:`_estimate` of many choices: row by row."""
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
    """Prices choices of terms."""

    def table(self, choices: npt.NDArray[np.int64]) -> Table:
        """Estimates of choices, one a row, with the fields of :class:`Estimate` in their order.

        Parameters
        ----------
        choices : int64[n, blocks]
            Terms taken of each block.
        """


def priced(model: Model, counts: Sequence[int]) -> Estimate:
    """The estimate of one choice: terms taken of each block."""
    return Estimate(*model.table(np.array([counts], np.int64))[0].tolist())


@dataclass(frozen=True)
class CostModel:
    """Estimates choices of terms.

    Attributes
    ----------
    window : float
        Events that a match can span.
    leading, trailing : bool
        Whether events may come before the first, after the last block of the pattern.
    gap : float
        Intervals nearer than that are replayed as one.
    grid : int
        Steps of the distribution of waits.
    """

    costs: BlockCosts
    window: float
    leading: bool
    trailing: bool
    weights: Weights
    gap: float
    grid: int = GRID

    def table(self, choices: npt.NDArray[np.int64]) -> Table:
        """See :class:`Model`."""
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
    """Estimates under PARTITION BY.

    Spans are those of all partitions together, and of their events the keys are read; what is
    replayed is one partition's share of the window.

    Attributes
    ----------
    about : CostModel
        Of the same clause without partitions.
    crowd : float
        Partitions whose events lie between one another.
    allowed : float
        Events that the coarse map leaves.
    passes_ns : float
        What is done once, as passes over the keys of all events.
    near : float
        Events of which the keys are read to find that of one occurrence.
    beside_ns, beside_most_ns : float
        Finding the rows around one interval, and those around all, at most.
    """

    about: CostModel
    crowd: float
    allowed: float
    passes_ns: float
    near: float = 16.0
    beside_ns: float = 0.0
    beside_most_ns: float = 0.0

    def table(self, choices: npt.NDArray[np.int64]) -> Table:
        """See :class:`Model`."""
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
        """Occurrences of each choice's rarest block, whose partitions are looked at one by one."""
        costs = self.about.costs
        held = np.einsum("s,sbk->bk", costs.events, costs.rates)
        chosen = held[np.arange(held.shape[0]), choices]
        found: npt.NDArray[np.float64] = np.where(choices > 0, chosen, np.inf).min(axis=1)
        return np.where(np.isfinite(found), found, 0.0)


def coarser(model: Model) -> Model:
    """The same model for comparing many choices: on a grid of :data:`SEARCH_GRID` steps."""
    if isinstance(model, PartitionedModel):
        return replace(model, about=replace(model.about, grid=SEARCH_GRID))
    return replace(model, grid=SEARCH_GRID) if isinstance(model, CostModel) else model
