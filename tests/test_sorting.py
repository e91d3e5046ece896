"""Whole numbers in order, compared with NumPy's own answers."""

from __future__ import annotations

import numpy as np
import pytest

from chronicle.core.sorting import SMALL, distinct, firsts, numbered, order_of, places_in

KINDS = {
    "anything": lambda rng, n: rng.integers(0, 5 * n + 1, n),
    "few values": lambda rng, n: rng.integers(-3, 4, n),
    "ascending": lambda rng, n: np.sort(rng.integers(0, n + 1, n)),
    "wide": lambda rng, n: rng.integers(-(2**63), 2**63 - 1, n),
    "wide, with equal ones": lambda rng, n: rng.integers(-30, 30, n) * 2**58,
    "the widest that fit": lambda rng, n: rng.integers(0, 2 ** (63 - n.bit_length()), n),
    "a bit too wide": lambda rng, n: rng.integers(0, 2 ** min(63, 64 - n.bit_length()), n),
    "words": lambda rng, n: rng.integers(0, 2**64 - 1, n, dtype=np.uint64),
    "high words": lambda rng, n: rng.integers(0, 9, n, dtype=np.uint64) + np.uint64(2**63),
    "narrow": lambda rng, n: rng.integers(0, 2**32 - 1, n, dtype=np.uint32),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [0, 1, 2, SMALL, SMALL + 1, 20_000])
def test_they_are_as_numpy_has_them(kind: str, count: int) -> None:
    for seed in range(5):
        values = KINDS[kind](np.random.default_rng(seed), count)
        given = values.copy()
        assert order_of(values).tolist() == np.argsort(values, kind="stable").tolist()
        assert order_of(values).dtype == np.int64
        once, first, number = np.unique(values, return_index=True, return_inverse=True)
        for found in (distinct(values), firsts(values)[0], numbered(values)[0]):
            assert found.dtype == values.dtype
            assert np.array_equal(found, once)
        assert np.array_equal(firsts(values)[1], first)
        assert np.array_equal(numbered(values)[1], number)
        assert np.array_equal(values, given)


@pytest.mark.parametrize("count", [3, 3000])
def test_the_last_column_decides(count: int) -> None:
    rng = np.random.default_rng(count)
    columns = [rng.integers(0, 4, count), rng.integers(-5, 5, count), rng.integers(0, 3, count)]
    assert order_of(*columns).tolist() == np.lexsort(columns).tolist()


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", ["anything", "few values", "ascending", "wide"])
def test_places_are_as_numpy_has_them(kind: str, side: str) -> None:
    for seed, count in enumerate((0, 1, 7, 600, 9000, 40_000)):
        rng = np.random.default_rng(seed)
        values = np.sort(KINDS[kind](rng, count))
        asked = KINDS[kind](rng, 5000)
        runs = np.concatenate([np.sort(part) for part in np.split(asked, [10, 300, 4000])])
        for wanted in (asked, np.sort(asked), runs, asked[:3], values, values + 1, values - 1):
            found = places_in(values, wanted, side)
            assert np.array_equal(found, np.searchsorted(values, wanted, side=side))
