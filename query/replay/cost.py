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

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...compiled import kernel

__all__ = ["BlockCosts", "Estimate", "Weights", "estimate", "load_weights", "save_weights"]

Table = npt.NDArray[np.float64]

GRID = 64


@dataclass(frozen=True)
class Weights:
    """What things cost on a machine, in nanoseconds; ``chronicle calibrate`` measures them.

    Attributes
    ----------
    event : float
        Reading and matching one event.
    interval : float
        Beginning one interval.
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
    """

    event: float = 12.0
    interval: float = 60_000.0
    entry: float = 2.5
    run: float = 40_000.0
    occurrence: float = 12.0
    word: float = 0.6
    query: float = 1_500_000.0


def _weights_path() -> Path:
    base = os.environ.get("CHRONICLE_CALIBRATION")
    if base:
        return Path(base)
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(home) / "chronicle" / "pattern-weights.json"


def load_weights() -> Weights:
    """Calibrated weights, or the defaults where there are none."""
    try:
        told = json.loads(_weights_path().read_text())
        return replace(Weights(), **{k: float(v) for k, v in told.items()})
    except (OSError, ValueError, TypeError):
        return Weights()


def save_weights(weights: Weights) -> Path:
    """Keep calibrated weights for later processes; returns where."""
    path = _weights_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(weights), indent=1) + "\n")
    return path


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
def _spread(rates, window, grid):  # type: ignore[no-untyped-def]
    """Probability that all blocks follow within the window, and their mean distance given that.

    ``rates``: chance of each further block at a position; ``window`` in positions.
    """
    step = window / grid
    mass = np.zeros(grid + 1)
    mass[0] = 1.0
    for b in range(rates.shape[0]):
        rate = min(rates[b], 1.0 - 1e-12)
        stay = math.exp(step * math.log1p(-rate))
        waiting = 0.0
        for g in range(grid + 1):
            arrived = mass[g]
            # of those who wait since earlier steps, some are served within this step
            served = waiting * (1.0 - stay)
            waiting = waiting * stay + arrived
            if g == 0:
                mass[g] = 0.0
            else:
                mass[g] = served
    total = 0.0
    mean = 0.0
    for g in range(grid + 1):
        total += mass[g]
        mean += mass[g] * max(0.0, g - 0.5) * step
    if total > 0.0:
        mean /= total
    return total, mean


@dataclass(frozen=True)
class BlockCosts:
    """What taking the 0, 1, 2, ... rarest terms of each block means; row ``b``, column ``k``.

    Attributes
    ----------
    rates : float64[blocks, terms + 1]
        Chance that the block begins at a position of the region, as far as ``k`` terms tell.
    entries, runs, passes : float64[blocks, terms + 1]
        Index entries and runs read, and positions that bitmaps go over.
    lengths : int64[blocks]
        Symbols of each block.
    """

    rates: Table
    entries: Table
    runs: Table
    passes: Table
    lengths: npt.NDArray[np.int64]


@kernel
def _estimate(  # type: ignore[no-untyped-def]
    counts, rates, entries, runs, passes, lengths, region, window, leading, trailing, gap, weights,
    out,
):  # fmt: skip
    """Fill ``out`` with intervals, spans, events, entries, runs, primary and secondary cost.

    ``weights``: event, interval, entry, run, occurrence, word.
    """
    blocks = counts.shape[0]
    chosen = np.empty(blocks, np.float64)
    used = 0
    first = 0
    last = 0
    read = 0.0
    opened = 0.0
    swept = 0.0
    for b in range(blocks):
        if counts[b] > 0:
            if used == 0:
                first = b
            last = b
            chosen[used] = rates[b, counts[b]]
            used += 1
            read += entries[b, counts[b]]
            opened += runs[b, counts[b]]
            swept += passes[b, counts[b]]
    out[3] = read
    out[4] = opened
    secondary = read * weights[2] + opened * weights[3] + swept / 64.0 * weights[5]
    if used == 0:
        out[0] = 1.0
        out[1] = 1.0
        out[2] = region
        out[5] = region * weights[0]
        out[6] = 0.0
        return
    for i in range(used):
        secondary += chosen[i] * region * weights[4]
    chance = 1.0
    mean = 0.0
    if used > 1:
        chance, mean = _spread(chosen[1:used], window, GRID)
    count = region * chosen[0] * chance
    before = leading or first > 0
    after = trailing or last < blocks - 1
    rest = max(0.0, window - mean)
    if before and after:
        extent = 2.0 * window - mean
    elif before or after:
        extent = window
    elif used == 1:
        extent = float(lengths[first])
    else:
        # from the first to the last occurrence of the last block within the window
        rate = chosen[used - 1]
        slack = (1.0 - math.exp(-rate * rest)) / rate if rate > 0.0 else rest
        extent = mean + max(0.0, rest - slack)
    extent = min(max(1.0, extent), region)
    covered = -math.expm1(count * math.log1p(-min(extent / region, 1.0 - 1e-12)))
    spans = max(1.0, count * math.exp(-count * min(1.0, (extent + gap) / region)))
    # joining neighbours reads the gaps between them
    joined = max(0.0, min(count, region / max(gap, 1.0)) - spans) * gap / 2.0
    out[0] = count
    out[1] = spans
    out[2] = region * covered
    out[5] = min(region * covered + joined, region) * weights[0] + spans * weights[1]
    out[6] = secondary


def estimate(
    counts: Sequence[int],
    costs: BlockCosts,
    region: float,
    window: float,
    leading: bool,
    trailing: bool,
    weights: Weights,
    gap: float,
) -> Estimate:
    """Estimate one choice.

    Parameters
    ----------
    counts : sequence of int
        Terms taken of each block.
    costs : BlockCosts
    region : float
        Events left by the coarse pattern map.
    window : float
        Events that a match can span.
    leading, trailing : bool
        Whether events may come before the first, after the last block of the pattern.
    weights : Weights
    gap : float
        Intervals nearer than that are read as one.
    """
    out = np.empty(7)
    told = np.array(
        [
            weights.event, weights.interval, weights.entry, weights.run, weights.occurrence,
            weights.word,
        ]
    )  # fmt: skip
    _estimate(
        np.array(counts, np.int64), costs.rates, costs.entries, costs.runs, costs.passes,
        costs.lengths, max(1.0, region), window, leading, trailing, gap, told, out,
    )  # fmt: skip
    return Estimate(*out.tolist())
