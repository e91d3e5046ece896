"""Choosing terms: Algorithm 3.2 against trying everything, the estimate, and calibration."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest

from chronicle.query.replay.calibration import calibrate_patterns
from chronicle.query.replay.cost import (
    BlockCosts,
    Weights,
    estimate,
    load_weights,
    save_weights,
)
from chronicle.query.replay.selection import greedy, optimal


def costs(rng: random.Random, sizes: list[int], events: float) -> BlockCosts:
    shape = (len(sizes), max(sizes) + 1)
    rates, entries, runs = np.ones(shape), np.zeros(shape), np.zeros(shape)
    for b, size in enumerate(sizes):
        shares = sorted(rng.uniform(1e-4, 0.1) for _ in range(size))
        for k, share in enumerate(shares, 1):
            rates[b, k] = rates[b, k - 1] * share
            entries[b, k] = entries[b, k - 1] + share * events
            runs[b, k] = k
    return BlockCosts(rates, entries, runs, np.zeros(shape), np.array(sizes, np.int64))


@pytest.mark.parametrize("seed", range(6))
def test_the_frontiers_find_about_what_trying_everything_finds(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.randrange(1, 4) for _ in range(rng.randrange(1, 5))]
    told = costs(rng, sizes, 1e6)

    def evaluate(counts: tuple[int, ...]) -> object:
        return estimate(counts, told, 1e6, 300.0, False, False, Weights(), 100.0)

    every = list(itertools.product(*(range(size + 1) for size in sizes)))
    best = min(evaluate(counts).total_ns for counts in every)  # type: ignore[attr-defined]
    found = optimal(sizes, evaluate)  # type: ignore[arg-type]
    assert found.choice.estimate.total_ns <= 1.25 * best
    assert found.examined <= len(every)
    order = [b for b, size in enumerate(sizes) for _ in range(size)]
    assert greedy(order, sizes, evaluate).choice.estimate.total_ns >= best  # type: ignore[arg-type]


def test_the_estimate_agrees_with_a_simulation() -> None:
    rng = np.random.default_rng(11)
    events, window = 400_000, 200
    first, second = 0.002, 0.01
    a, b = rng.random(events) < first, rng.random(events) < second
    covered = np.zeros(events, np.bool_)
    after = np.flatnonzero(b)
    for place in np.flatnonzero(a):
        reach = after[
            np.searchsorted(after, place + 1) : np.searchsorted(after, place + window + 1)
        ]
        if len(reach):
            covered[place : reach[-1] + 1] = True
    rates = np.array([[1.0, first], [1.0, second]])
    none = np.zeros((2, 2))
    told = BlockCosts(rates, none, none, none, np.ones(2, np.int64))
    found = estimate((1, 1), told, events, window, False, False, Weights(), 0.0)
    assert found.events == pytest.approx(covered.sum(), rel=0.15)


def test_calibration_measures_and_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHRONICLE_CALIBRATION", str(tmp_path / "weights.json"))
    assert load_weights() == Weights()
    weights = calibrate_patterns(events=40_000)
    assert min(weights.event, weights.interval, weights.entry, weights.run) > 0
    save_weights(weights)
    assert load_weights() == weights
    (tmp_path / "weights.json").write_text("not JSON")
    assert load_weights() == Weights()
