"""Pairs of words have numbers: those of a dict, however they come."""

from __future__ import annotations

import random

import numpy as np

from chronicle.core.pair_numbers import PairNumbers, Pairs


def words(pairs: list[tuple[int, int]]) -> Pairs:
    return np.array(pairs, np.uint64).reshape(-1, 2)


def test_numbers_are_those_of_a_dict() -> None:
    rng = random.Random(3)
    edges = [0, 1, 2**64 - 1]
    for _ in range(20):
        values = [rng.choice([*edges, rng.randrange(50), rng.getrandbits(64)]) for _ in range(90)]
        numbers, known = PairNumbers(), dict[tuple[int, int], int]()
        for _ in range(12):
            some = [(rng.choice(values), rng.choice(values)) for _ in range(rng.randrange(120))]
            wanted = [known.setdefault(pair, len(known)) for pair in some]
            assert numbers.take(words(some)).tolist() == wanted
            assert numbers.count == len(known)
            assert list(map(tuple, numbers.pairs.tolist())) == list(known)
            if rng.random() < 0.3:
                kept = np.array([rng.random() < 0.5 for _ in known], np.bool_)
                numbers.keep(kept)
                known = {pair: i for i, pair in enumerate(
                    pair for pair, stays in zip(known, kept, strict=True) if stays
                )}  # fmt: skip


def test_pairs_that_differ_in_one_word_only() -> None:
    numbers = PairNumbers()
    left = words([(i, 7) for i in range(10_000)])
    right = words([(7, i << 32) for i in range(10_000)])
    assert numbers.take(left).tolist() == list(range(10_000))
    assert len(set(numbers.take(right).tolist())) == 10_000
    assert numbers.take(left).tolist() == list(range(10_000))
