"""Packed times and positions: looked up and marked as plain arrays would be."""

from __future__ import annotations

import numpy as np
import pytest

from chronicle.indexes.keys import first_not_below, mark, pack_positions, ticks_at
from chronicle.indexes.runs import build_times


@pytest.mark.parametrize("scale", [0, 1, 5, 1000, 10**6, 10**15])
def test_packed_times_answer_as_arrays_do(scale: int) -> None:
    rng = np.random.default_rng(scale % 97)
    for count in (1, 2, 511, 512, 513, int(rng.integers(1000, 4000))):
        steps = rng.integers(0, scale + 1, count)
        if count % 2:
            steps[:] = scale  # packed to no bits
        times = np.cumsum(steps) - 10**9
        packed = np.frombuffer(build_times(times), np.int64)
        places = np.unique(rng.integers(0, count, 60))
        out = np.empty(len(places), np.int64)
        ticks_at(packed, count, places, out)
        assert (out == times[places]).all()
        near = rng.choice(times, 60) + rng.integers(-1, 2, 60)
        wanted = np.concatenate((near, times[[0, -1]], times[[0]] - 5, times[[-1]] + 5))
        for ticks in (wanted, np.sort(wanted)):
            for side in ("left", "right"):
                found = np.empty(len(ticks), np.int64)
                first_not_below(packed, count, ticks, side == "right", False, found)
                assert (found == np.searchsorted(times, ticks, side=side)).all()


@pytest.mark.parametrize("width", [1, 7, 20, 33, 62])
def test_positions_outside_of_the_bitmap_are_not_marked(width: int) -> None:
    rng = np.random.default_rng(width)
    positions = rng.integers(0, min(300, 1 << width), 200)
    positions[-1] = (1 << width) - 1
    words = np.zeros((200 * width + 63) // 64, np.uint64)
    pack_positions(positions, width, words)
    for base in (-310, -100, 0, 50):
        for size in (-5, 0, 1, 130, 256):
            bits = np.zeros(4, np.uint64)
            mark(words, width, 3, 200, base, bits, size)
            found = np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little"))
            places = base + positions[3:]
            wanted = np.unique(places[(places >= 0) & (places < size)])
            assert found.tolist() == wanted.tolist(), (base, size)
