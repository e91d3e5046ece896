"""Bit-packing gives every 64-bit pattern back, from any row to any other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.store.layout import ZONE_EVENTS, Encoding
from chronicle.store.packing import fill_nulls, pack, unpack

INT64 = st.integers(-(2**63), 2**63 - 1)
values = st.one_of(
    st.lists(INT64, min_size=1, max_size=40),
    st.lists(st.integers(-5, 5), min_size=1, max_size=40),
    st.lists(st.sampled_from([-(2**63), 2**63 - 1, 0, -1, 1]), min_size=1, max_size=40),
)


def frozen(numbers: object) -> np.ndarray:
    array = np.array(numbers, np.int64)
    array.flags.writeable = False
    return array


@settings(deadline=None)
@given(values, st.integers(1, 60), st.sampled_from([Encoding.DELTA, Encoding.PACKED]), st.data())
def test_every_pattern_comes_back(
    numbers: list[int], copies: int, encoding: Encoding, data: st.DataObject
) -> None:
    array = frozen(numbers * copies)
    packed = pack(array, encoding)
    first = data.draw(st.integers(0, array.size))
    end = data.draw(st.integers(first, array.size))
    found = unpack(memoryview(packed), encoding, array.size, first, end)
    assert found.tolist() == array[first:end].tolist()


@pytest.mark.parametrize("width", [0, 1, 9, 17, 31])
@pytest.mark.parametrize("first", [0, 5, ZONE_EVENTS, 2 * ZONE_EVENTS + 3])
def test_narrow_values_come_back_as_narrow_numbers(width: int, first: int) -> None:
    array = frozen(np.random.default_rng(width).integers(0, 2**width, 3000))
    packed = pack(array, Encoding.PACKED)
    found = unpack(memoryview(packed), Encoding.PACKED, 3000, first, 2900, np.int32)
    assert found.dtype == np.int32
    assert np.array_equal(found, array[first:2900])


def test_the_size_is_what_the_widest_value_needs() -> None:
    array = frozen(np.arange(ZONE_EVENTS) % 8)
    packed = pack(array, Encoding.PACKED)
    assert len(packed) == 5 * 8 + ZONE_EVENTS * 3 // 8
    steady = pack(frozen(np.arange(ZONE_EVENTS) * 1000), Encoding.DELTA)
    assert len(steady) == 5 * 8


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=40), st.integers(0, 9))
def test_nulls_take_the_value_before_them(numbers: list[int | None], offset: int) -> None:
    bits = [False] * offset + [number is not None for number in numbers]
    validity = np.packbits(np.array(bits + [False] * 8, np.bool_), bitorder="little")
    array = frozen([7 if number is None else number for number in numbers])
    out = np.empty_like(array)
    fill_nulls(array, validity, offset, out)
    last, expected = 0, []
    for number in numbers:
        last = last if number is None else number
        expected.append(last)
    assert out.tolist() == expected


@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 16, 24, *range(31, 37), 48, *range(56, 65)])
@pytest.mark.parametrize("encoding", [Encoding.DELTA, Encoding.PACKED])
def test_values_lie_where_the_layout_says(width: int, encoding: Encoding) -> None:
    """Read as the format is written down: each zone one long number, from the lowest bit on."""
    rng = np.random.default_rng(width)
    for count in (1, 2, 5, ZONE_EVENTS - 1, ZONE_EVENTS, ZONE_EVENTS + 1, 2 * ZONE_EVENTS + 131):
        stored = rng.integers(0, 2**width - 1, count, endpoint=True, dtype=np.uint64)
        stored[:: max(1, count // 2)] = 2**width - 1
        low = 2**64 - 17
        plain = [(int(each) + low) % 2**64 for each in stored]
        if encoding is Encoding.DELTA:
            plain = [int(each) % 2**64 for each in np.cumsum(np.array(plain, np.uint64))]
        array = frozen(np.array(plain, np.uint64).view(np.int64))
        packed = pack(array, encoding)
        assert np.array_equal(unpack(memoryview(packed), encoding, count, 0, count), array)
        words = np.frombuffer(packed, np.uint64).tolist()
        zones = -(-count // ZONE_EVENTS)
        bases, minimums, starts, widths = (
            words[at : at + size]
            for at, size in (
                (0, zones),
                (zones, zones),
                (2 * zones, zones + 1),
                (3 * zones + 1, zones),
            )
        )
        body = words[4 * zones + 1 :]
        assert len(body) == starts[-1]
        found = []
        for zone in range(zones):
            events = min(ZONE_EVENTS, count - zone * ZONE_EVENTS)
            own = body[starts[zone] : starts[zone + 1]]
            whole = sum(word << 64 * at for at, word in enumerate(own))
            value, bits = bases[zone], widths[zone]
            steps = events - 1 if encoding is Encoding.DELTA else events
            assert len(own) == -(-steps * bits // 64)
            assert not whole >> steps * bits
            cut = [(whole >> at * bits) & (2**bits - 1) for at in range(steps)]
            if encoding is Encoding.DELTA:
                found.append(value)
                for each in cut:
                    value = (value + each + minimums[zone]) % 2**64
                    found.append(value)
            else:
                found += [(value + each) % 2**64 for each in cut]
        assert found == plain
