"""The kernels of the recency join against the definitions, on random events."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.query.recent import pairs as kernels
from chronicle.query.recent.narrowing import Regions, regions_for_archive, regions_for_live
from chronicle.query.recent.pairs import Events, Pairing, ahead, back
from chronicle.tests.rounds import rounds

from ... import oracles_recent as oracle

EVENT = st.tuples(st.integers(0, 12), st.integers(0, 6), st.integers(-1, 1), st.integers(0, 9))
"""Start, length, key, and whether it has times at all."""
SIDE = st.lists(EVENT, max_size=14)


def events(side: list[tuple[int, int, int, int]]) -> Events:
    start = np.array([s for s, _, _, _ in side], np.int64)
    length = np.array([n for _, n, _, _ in side], np.int64)
    key = np.array([k for _, _, k, _ in side], np.int64)
    return Events(start, start + length, key, np.array([z > 0 for *_, z in side], np.bool_))


def plain(side: list[tuple[int, int, int, int]]) -> list[tuple[int | None, int, int]]:
    return [(s if z > 0 else None, s + n, k) for s, n, k, z in side]


def same_key(live: tuple[int, int, int], archive: tuple[int, int, int]) -> bool:
    return live[2] == archive[2] >= 0


@pytest.fixture(autouse=True, scope="module")
def small_batches() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "BATCH_PAIRS", 5)
        patch.setattr(kernels, "PIECE_ROWS", 3)
        patch.setattr(kernels, "CANDIDATES", 1)
        yield


@settings(max_examples=rounds(15, 150), deadline=None)
@given(SIDE, SIDE, st.one_of(st.none(), st.integers(0, 15)), st.integers(1, 3))
def test_pairs(live, archive, distance, last):  # type: ignore[no-untyped-def]
    pairing = Pairing(events(live), events(archive), distance)
    options = {"distance": distance, "condition": same_key}
    wanted = oracle.joined(plain(archive), plain(live), **options)
    found = [pair for mine, theirs in pairing.batches() for pair in zip(mine, theirs, strict=True)]
    assert found == wanted
    assert int(pairing.counts().sum()) == len(wanted)
    partnered = np.flatnonzero(pairing.partnered()).tolist()
    assert partnered == sorted({i for i, _ in wanted})
    found = list(zip(*pairing.newest(last), strict=True))
    assert found == oracle.joined(plain(archive), plain(live), last=last, **options)
    ends = events(live).end, events(archive).end
    chosen = pairing.newest(last, lambda i, j: (ends[0][i] + ends[1][j]) % 3 == 0)
    options["condition"] = lambda one, other: same_key(one, other) and (one[1] + other[1]) % 3 == 0
    wanted = oracle.joined(plain(archive), plain(live), last=last, **options)
    assert list(zip(*chosen, strict=True)) == wanted


@settings(max_examples=rounds(10, 100), deadline=None)
@given(SIDE, SIDE, st.one_of(st.none(), st.integers(0, 15)))
def test_partners_lie_in_the_regions(live, archive, distance):  # type: ignore[no-untyped-def]
    mine, theirs = events(live), events(archive)
    for_archive = Regions.of(*regions_for_archive(mine, distance))
    for_live = Regions.of(*regions_for_live(theirs, distance))
    for regions in (for_archive, for_live):
        at = np.flatnonzero(regions.key[1:] == regions.key[:-1])
        assert (regions.low[at + 1] > regions.high[at] + 1).all(), "disjoint, and apart"
    options = {"distance": distance, "condition": same_key}
    for i, j in oracle.joined(plain(archive), plain(live), **options):
        for regions, side, number in ((for_archive, theirs, j), (for_live, mine, i)):
            low, high = side.start[number], side.end[number]
            inside = (regions.low <= low) & (high <= regions.high)
            assert (inside & (regions.key == side.key[number])).any()


def test_many_rows_pass_over_blocks() -> None:
    r = np.random.default_rng(7)
    start = np.sort(r.integers(0, 3000, 1500))
    length = np.where(r.random(1500) < 0.05, 2000, r.integers(0, 5, 1500))
    mine = Events(start, start + length, r.integers(0, 2, 1500), np.ones(1500, np.bool_))
    begin = np.sort(r.integers(0, 3000, 300))
    theirs = Events(
        begin, begin + r.integers(0, 9, 300), r.integers(0, 2, 300), np.ones(300, np.bool_)
    )
    pairing = Pairing(mine, theirs, 40)
    before = (theirs.start[None] < mine.start[:, None]) & (theirs.end[None] < mine.end[:, None])
    near = mine.end[:, None] <= theirs.start[None] + 40
    wanted = before & near & (mine.key[:, None] == theirs.key[None])
    found = np.zeros_like(wanted)
    for ours, others in pairing.batches():
        found[ours, others] = True
    assert (found == wanted).all()
    assert (pairing.partnered() == wanted.any(axis=1)).all()
    wanted &= np.add.outer(np.arange(1500), np.arange(300)) % 5 == 0
    chosen = pairing.newest(1, lambda ours, others: wanted[ours, others])
    assert np.array_equal(np.sort(chosen[0]), np.flatnonzero(wanted.any(axis=1)))
    assert wanted[chosen].all()
    looks = [None, None, *[TimeoutError] * 3]  # two while it sorts, one in each search
    stopped = Pairing(mine, theirs, 40, Mock(side_effect=looks))
    for search in (stopped.counts, stopped.partnered, lambda: stopped.newest(1)):
        with pytest.raises(TimeoutError):
            search()


def test_sums_do_not_wrap() -> None:
    edge = 2**63 - 1
    assert ahead(np.array([edge - 1, -edge, 0]), 5).tolist() == [edge, -edge + 5, 5]
    assert ahead(np.array([0, -edge]), None).tolist() == [edge, edge]
    assert back(np.array([0, 4 - edge]), 5).tolist() == [-5, -edge - 1]
    assert back(np.array([0, edge]), None).tolist() == [-edge - 1, -edge - 1]
    low, high, _ = regions_for_archive(events([(3, 2, 0, 1)]), edge)
    assert (low.tolist(), high.tolist()) == ([-(2**63) + 6], [4])
