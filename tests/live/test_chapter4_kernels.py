"""Kernels of chapter 4 against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from chronicle.live.kernels.filters import compact, norm_below
from chronicle.live.kernels.partial_matches import follow
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


def followed(values: list[float], window: int, near: list[float], loop: list[float], once: bool):
    """Matches by the definition: first and last event of each."""
    open_: list[tuple[int, int, float]] = []  # first event, state, last value
    found = []
    for i, x in enumerate(values):
        left = []
        for first, state, last in open_:
            if first <= i - window:
                continue
            stays = True
            if abs(np.float32(last - x)) < near[state]:
                stays = not once
                if state + 1 == len(near):
                    found.append((first, i))
                else:
                    left.append((first, state + 1, x))
            elif abs(np.float32(last - x)) < loop[state]:
                last = x
            if stays:
                left.append((first, state, last))
        open_ = [*left, (i, 0, x)]
    return found


@pytest.mark.parametrize("seed", range(30))
def test_partial_matches_are_followed_as_by_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    states, once = int(rng.integers(1, 4)), bool(seed % 2)
    values = rng.integers(0, 40, int(rng.integers(0, 120))).astype(np.float32)
    window = int(rng.integers(1, 30))
    near = rng.choice([1.0, 2.0], states).astype(np.float32)
    loop = (near + rng.choice([0.0, 2.0], states) if once else np.zeros(states)).astype(np.float32)
    wanted = followed(values.tolist(), window, near.tolist(), loop.tolist(), once)
    room = 20_000
    last, begin = np.zeros((states, room), np.float32), np.zeros((states, room), np.int64)
    span, found = np.zeros((states, 2), np.int64), np.zeros(2, np.int64)
    shift = np.zeros(states, np.float32)
    assert follow(values, window, near, shift, loop, once, last, begin, span, found)
    assert found.tolist() == [len(wanted), sum(first + end for first, end in wanted)]


def test_partial_matches_close_up_when_their_room_is_used() -> None:
    values = np.random.default_rng(2).integers(0, 9, 5000).astype(np.float32)
    near = np.array([0.5, 0.5], np.float32)
    none = np.zeros(2, np.float32)
    answers = []
    for room in (40, 5000):
        last, begin = np.zeros((2, room), np.float32), np.zeros((2, room), np.int64)
        span, found = np.zeros((2, 2), np.int64), np.zeros(2, np.int64)
        assert follow(values, 20, near, none, none, True, last, begin, span, found)
        answers.append(found.tolist())
    assert answers[0] == answers[1]
    last, begin = np.zeros((1, 4), np.float32), np.zeros((1, 4), np.int64)
    span, found = np.zeros((1, 2), np.int64), np.zeros(2, np.int64)
    one = np.zeros(1, np.float32)
    assert not follow(values, 20, one, one, one, False, last, begin, span, found)
