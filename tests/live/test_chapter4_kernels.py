"""Kernels of chapter 4 against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from chronicle.live.kernels.filters import compact, norm_below
from chronicle.live.kernels.sliding import sliding_max, sliding_sum
from chronicle.live.kernels.window_join import join_near, window_join


@pytest.mark.parametrize("seed", range(40))
def test_a_window_join_finds_the_pairs_of_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    left, right = (np.sort(rng.integers(0, 40, rng.integers(0, 30))) for _ in range(2))
    before, behind = (int(v) for v in rng.integers(-4, 9, 2))
    keys = rng.integers(1, 5)
    codes = (
        [rng.integers(-1, keys, len(side)) for side in (left, right)] if seed % 3 else [None] * 2
    )
    for keep in (False, True):
        found = window_join(left, right, before, behind, *codes, keep_left=keep)
        wanted = []
        for i, a in enumerate(left):
            mine = [
                j
                for j, b in enumerate(right)
                if a - before <= b <= a + behind
                and (codes[0] is None or codes[0][i] == codes[1][j] >= 0)
            ]
            wanted += [(i, j) for j in mine] or ([(i, -1)] if keep else [])
        assert list(zip(found.left.tolist(), found.right.tolist(), strict=True)) == wanted


def test_a_window_join_at_the_ends_of_time() -> None:
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    found = window_join(np.array([low, high]), np.array([low, 0, high]), 5, 5)
    assert found.right.tolist() == [0, 2]


@pytest.mark.parametrize("window", [1, 2, 3, 7, 16, 100])
@pytest.mark.parametrize("count", [0, 1, 15, 16, 100, 257])
def test_sliding_aggregates(window: int, count: int) -> None:
    values = np.random.default_rng(count).integers(-9, 9, count).astype(np.float64)
    out = np.zeros(max(0, count - window + 1))
    for scan, exact in ((sliding_sum, np.sum), (sliding_max, np.max)):
        scan(values, window, out)
        assert out.tolist() == [exact(values[i : i + window]) for i in range(len(out))]


def test_a_sum_that_passes_infinity_recovers() -> None:
    values = np.array([1.0, np.inf, 2.0, 3.0, 4.0, 5.0])
    out = np.zeros(5)
    sliding_sum(values, 2, out)
    assert out.tolist() == [np.inf, np.inf, 5.0, 7.0, 9.0]


def test_filters_keep_the_order() -> None:
    columns = np.random.default_rng(1).random((6, 1000)).astype(np.float32)
    holds, out = np.empty(1000, np.bool_), np.empty(1001, np.int64)
    norm_below(columns, np.float32(1.0), np.empty(1000, np.float32), holds)
    n = compact(holds, out)
    wanted = np.flatnonzero((columns * columns).sum(axis=0) < 1.0)
    assert out[:n].tolist() == wanted.tolist()
    assert n > 5


def test_points_that_are_near() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.random((3, 50)), rng.random((3, 70))
    left, right = np.zeros(5000, np.int64), np.zeros(5000, np.int64)
    n = join_near(a, b, 0.3, 16, np.zeros(16), left, right)
    far = np.sqrt(((a[:, :, None] - b[:, None, :]) ** 2).sum(axis=0))
    pairs = set(zip(left[:n].tolist(), right[:n].tolist(), strict=True))
    assert pairs == set(zip(*(side.tolist() for side in np.nonzero(far < 0.3)), strict=True))
    assert join_near(a, b, 0.3, 16, np.zeros(16), left[:3], right[:3]) == n
