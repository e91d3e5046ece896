"""Scaled numbers come back bit for bit, from any row to any other, and zone by zone."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.store.layout import ZONE_EVENTS
from chronicle.store.scaled import (
    FLOAT32,
    FLOAT64,
    INTEGERS,
    Scaled,
    decode_scaled,
    decode_zones,
    packed_starts,
    scaled_floats,
    scaled_integers,
    tabulated,
)
from chronicle.tests.rounds import rounds

BORDERS = [-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1]
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, -1e-310, 1e308, 2.0**53, 0.1 + 0.2]


def frozen(numbers: object, dtype: type = np.int64) -> npt.NDArray[np.generic]:
    array = np.array(numbers, dtype)
    array.flags.writeable = False
    return array


def chunk_of(scaled: Scaled) -> memoryview:
    raw = b"".join(part.tobytes() for part in scaled.parts())
    assert len(raw) == scaled.nbytes
    return memoryview(frozen(np.frombuffer(raw, np.int64))).cast("B")


def comes_back(scaled: Scaled, values: npt.NDArray[np.generic], first: int, end: int) -> None:
    chunk = chunk_of(scaled)
    prefix, count = scaled.prefix_words, values.size
    words = np.frombuffer(chunk, np.int64)
    decoded = decode_scaled(words, prefix, values.dtype, count, first, end)
    assert decoded.dtype == values.dtype
    assert decoded.tobytes() == values[first:end].tobytes()
    out = np.zeros(ZONE_EVENTS, np.int64)
    wide = values.astype(np.float64 if values.dtype.kind == "f" else np.int64).view(np.int64)
    for zone in range(-(-count // ZONE_EVENTS)):
        decode_zones(words, 0, prefix, count, zone, True, out[: count - zone * ZONE_EVENTS])
        own = wide[zone * ZONE_EVENTS : (zone + 1) * ZONE_EVENTS]
        assert out[: own.size].tolist() == own.tolist()
    starts = packed_starts(words[:prefix], prefix, count)
    assert prefix + int(starts[-1]) == words.size


near = st.integers(-50, 50)
integers = st.one_of(
    st.lists(st.one_of(near, st.sampled_from(BORDERS)), min_size=1, max_size=40),
    st.lists(near.map(lambda each: 1_000_000 * each + 7), min_size=1, max_size=40),
    st.lists(st.one_of(near, near, near, st.integers(-(2**63), 2**63 - 1)), min_size=1),
)


@settings(max_examples=rounds(60, 600), deadline=None)
@given(integers, st.integers(1, 60), st.booleans(), st.data())
def test_integers(numbers: list[int], copies: int, rising: bool, data: st.DataObject) -> None:
    values = frozen(numbers * copies)
    if rising:
        values = frozen(np.cumsum(values))
    first = data.draw(st.integers(0, values.size))
    end = data.draw(st.integers(first, values.size))
    comes_back(scaled_integers(values), values, first, end)


@settings(max_examples=rounds(60, 600), deadline=None)
@given(
    st.lists(st.integers(-9999, 9999).map(lambda each: each / 100), min_size=3),
    st.lists(st.one_of(st.sampled_from(SPECIAL), st.floats()), max_size=4),
    st.sampled_from([np.float32, np.float64]),
    st.integers(20, 90),
    st.data(),
)
def test_decimals_with_others_among_them(
    common: list[float], rare: list[float], dtype: type, copies: int, data: st.DataObject
) -> None:
    numbers = common * copies
    for other in rare:
        numbers.insert(data.draw(st.integers(0, len(numbers))), other)
    with np.errstate(over="ignore"):
        values = frozen(numbers, dtype)
    scaled = scaled_floats(values)
    if scaled is None:
        return
    first = data.draw(st.integers(0, values.size))
    end = data.draw(st.integers(first, values.size))
    comes_back(scaled, values, first, end)


@settings(max_examples=rounds(60, 600), deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from(BORDERS), st.integers(-(2**63), 2**63 - 1)), min_size=1),
    st.sampled_from([np.int64, np.float32, np.float64]),
    st.integers(100, 3000),
    st.integers(0, 2**32 - 1),
    st.data(),
)
def test_few_different_numbers(
    bits: list[int], dtype: type, count: int, seed: int, data: st.DataObject
) -> None:
    different = np.array(bits).view(dtype)
    values = frozen(np.random.default_rng(seed).choice(different, count), dtype)
    kind = {np.int64: INTEGERS, np.float32: FLOAT32, np.float64: FLOAT64}[dtype]
    words = values.view(f"i{values.itemsize}").astype(np.int64)
    scaled = tabulated(words, kind, values.nbytes)
    if len(set(words.tolist())) * 16 < count:
        assert scaled is not None
    if scaled is None:
        return
    assert scaled.nbytes < values.nbytes
    first = data.draw(st.integers(0, values.size))
    end = data.draw(st.integers(first, values.size))
    with np.errstate(invalid="ignore"):
        comes_back(scaled, values, first, end)


def test_exceptions_at_the_borders_of_zones() -> None:
    values = np.round(np.random.default_rng(1).random(3 * ZONE_EVENTS), 2)
    values[[0, ZONE_EVENTS - 1, ZONE_EVENTS, 2 * ZONE_EVENTS]] = math.nan
    scaled = scaled_floats(frozen(values, np.float64))
    assert scaled is not None
    comes_back(scaled, values, 0, len(values))


def test_many_different_numbers_have_no_table() -> None:
    noise = np.random.default_rng(0).integers(0, 2**62, 200_000)
    assert tabulated(noise, INTEGERS, noise.nbytes) is None
    noise[::10] = 7  # too few the same
    assert tabulated(noise, INTEGERS, noise.nbytes) is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bits_of_nan_and_signs_of_zero_are_kept(dtype: type) -> None:
    values = np.round(np.random.default_rng(1).random(3000) * 90, 2).astype(dtype)
    bits = values.view(np.int32 if dtype is np.float32 else np.int64)
    values[5:8] = -0.0
    bits[700], bits[2999] = -1, 0x7F800001 if dtype is np.float32 else 0x7FF0000000000001
    values = frozen(values, dtype)
    scaled = scaled_floats(values)
    assert scaled is not None
    first, end = 5, 3000
    decoded = decode_scaled(
        np.frombuffer(chunk_of(scaled), np.int64), scaled.prefix_words, dtype, 3000, first, end
    )
    assert decoded.tobytes() == values[first:end].tobytes()


def test_noise_is_not_scaled() -> None:
    assert scaled_floats(frozen(np.random.default_rng(0).random(5000), np.float64)) is None
    assert scaled_floats(frozen([math.nan] * 2000, np.float64)) is None


def test_sizes() -> None:
    """Prices take their digits, steady times nothing, few far values what they are."""
    rng = np.random.default_rng(2)
    count = 100 * ZONE_EVENTS
    prices = scaled_floats(frozen(rng.integers(0, 1000, count) / 100, np.float64))
    assert prices is not None
    assert prices.nbytes < count * 10 / 8 + 100 * 10 + 100
    seconds = scaled_integers(frozen(np.arange(count) * 1_000_000))
    assert seconds.nbytes < 100 * 18 + 100
    far = rng.integers(0, 8, count)
    far[::64] = 2**40
    assert scaled_integers(frozen(far)).nbytes < count * 3 / 8 + count / 64 * 12 + 5000
    assert scaled_integers(frozen(-far)).nbytes < count * 3 / 8 + count / 64 * 12 + 5000
    cycle = scaled_integers(frozen(np.arange(count) % 200))
    assert cycle.nbytes < count / 200 * 12 + 100 * 18 + 1000
    jumps = frozen(np.cumsum(far))
    scaled = scaled_integers(jumps)
    assert scaled.nbytes < count * 3 / 8 + count / 64 * 12 + 5000
    comes_back(scaled, jumps, 700, count)
