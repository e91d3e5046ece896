"""Packed times: looked up by position and by tick, against arrays."""

from __future__ import annotations

import numpy as np
import pytest

from chronicle.indexes.kernels import first_not_below, ticks_at
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
                first_not_below(packed, count, ticks, side == "right", found)
                assert (found == np.searchsorted(times, ticks, side=side)).all()
