"""The cost model: how much of the stream a choice of indexes would replay, and what that costs.

Purpose
    Thesis section 3.4.3.  Under the assumptions that a block occurs at each position with its own probability,
    independently, the distance from an occurrence of the first chosen block to the first place where all others
    have followed is hypoexponential; an urn model turns the number and length of intervals into the fraction
    of the stream that they cover.  Costs are in nanoseconds.

Guarantee
    Estimates steer the choice between plans that give the same rows; they never touch the rows.

Notes
    :func:`_spread` is the distribution on a grid of :data:`GRID` steps of the window, one geometric filter per
    block, which stays exact where closed forms of the hypoexponential distribution cancel (equal rates).
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from ...compiled import kernel

__all__ = ["Estimate", "Weights", "estimate", "load_weights", "save_weights"]

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
        # what arrives within a step may be served in the same step: shift by half a step on average
    total = 0.0
    mean = 0.0
    for g in range(grid + 1):
        total += mass[g]
        mean += mass[g] * max(0.0, g - 0.5) * step
    if total > 0.0:
        mean /= total
    return total, mean


def estimate(
    rates: list[float],
    lengths: list[int],
    entries: float,
    runs: float,
    passes: float,
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
    rates : list of float
        Chance that a chosen block begins at a position of the region, for each chosen block in order.
    lengths : list of int
        Symbols of the blocks.
    entries, runs : float
        Index entries and runs that the choice reads.
    passes : float
        Positions that its bitmaps go over.
    region : float
        Events left by the coarse pattern map.
    window : float
        Events that a match can span.
    leading, trailing : bool
        Whether the match may begin before the first, end after the last chosen block.
    weights : Weights
    gap : float
        Intervals nearer than that are read as one.
    """
    secondary = entries * weights.entry + runs * weights.run + passes / 64 * weights.word
    if not rates or region <= 0:
        primary = region * weights.event
        return Estimate(1, 1, max(region, 0.0), 0.0, 0.0, primary, secondary)
    occurrences = sum(rate * region for rate in rates)
    secondary += occurrences * weights.occurrence
    chance, mean = 1.0, 0.0
    if len(rates) > 1:
        found = _spread(np.array(rates[1:]), float(window), GRID)
        chance, mean = float(found[0]), float(found[1])
    count = region * rates[0] * chance
    own = sum(lengths[:1])
    if leading and trailing:
        extent = 2 * window - mean
    elif leading or trailing:
        extent = window
    else:
        last = rates[-1]
        # from the first to the last occurrence of the last block within the window
        rest = max(0.0, window - mean)
        slack = (1 - math.exp(-last * rest)) / last if last > 0 else rest
        extent = own if len(rates) == 1 else mean + max(0.0, rest - slack)
    extent = min(max(1.0, extent), region)
    covered = -math.expm1(count * math.log1p(-min(extent / region, 1 - 1e-12)))
    spans = max(1.0, count * math.exp(-count * min(1.0, (extent + gap) / region))) if count else 0.0
    # joining neighbours reads the gaps between them
    read = region * covered + max(0.0, min(count, region / max(gap, 1.0)) - spans) * gap / 2
    events = min(region, region * covered)
    primary = min(read, region) * weights.event + spans * weights.interval
    return Estimate(count, spans, events, entries, runs, primary, secondary)
