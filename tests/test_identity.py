"""Identities: the bytes are those of hashlib, and equal values have equal ones."""

from __future__ import annotations

import datetime as dt
import hashlib
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.core.identity import digests, event_bytes, row_words, seed_of
from chronicle.errors import UnsupportedType

SEED = seed_of("a query")


def message(row: tuple[Any, ...]) -> bytes:
    parts = [SEED]
    for value in row:
        if value is None:
            parts.append(b"\0")
        elif isinstance(value, int):
            parts.append(b"\1" + struct.pack("<q", value))
        else:
            data = value.encode() if isinstance(value, str) else value
            parts.append(b"\2" + struct.pack("<q", len(data)) + data)
    return b"".join(parts)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.text(max_size=90),
            st.none() | st.binary(max_size=300),
        ),
        max_size=20,
    )
)
def test_digests_are_those_of_hashlib(rows: list[tuple[Any, ...]]) -> None:
    columns = [
        pa.array([row[i] for row in rows], type_)
        for i, type_ in enumerate((pa.int64(), pa.string(), pa.binary()))
    ]
    expected = [hashlib.blake2b(message(row), digest_size=16).digest() for row in rows]
    assert digests(SEED, columns).to_pylist() == expected
    sliced = [pa.concat_arrays([column.slice(0, 0), column]).slice(1) for column in columns]
    assert digests(SEED, sliced).to_pylist() == expected[1:]


def test_the_width_of_a_type_does_not_count() -> None:
    same = [
        pa.array([5, -7], type_)
        for type_ in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.timestamp("us"))
    ]
    assert len({tuple(digests(SEED, [column]).to_pylist()) for column in same}) == 1
    floats = pa.array([0.0, float("nan")]), pa.array([-0.0, -float("nan")], pa.float32())
    assert digests(SEED, [floats[0]]).equals(digests(SEED, [floats[1]]))
    assert len(set(digests(SEED, [pa.array([None, 0, 1])]).to_pylist())) == 3


@pytest.mark.parametrize(
    "column",
    [
        pa.array([True, False, None]),
        pa.array([dt.date(2020, 1, 1), None, dt.date(2020, 1, 2)]),
        pa.array([Decimal("1.50"), None, Decimal("2.50")]),
        pa.array(["a", "b", "a"]).dictionary_encode(),
        pa.array([2**64 - 1, 3, None], pa.uint64()),
        pa.chunked_array([["x"], ["y", None]]),
    ],
)
def test_values_of_all_types_that_streams_have(column: Any) -> None:
    found = digests(SEED, [column])
    assert [len(value) for value in found.to_pylist()] == [16, 16, 16]
    assert len(set(found.to_pylist())) == len(set(column.to_pylist()))


def test_lists_are_refused() -> None:
    with pytest.raises(UnsupportedType, match="VARCHAR"):
        digests(SEED, [pa.array([[1]])])


def test_events_of_a_row() -> None:
    found = event_bytes(np.array([1, 2, 9]), np.array([0, 0, 4]), np.array([0, 2, 3]))
    assert found.to_pylist() == [struct.pack("<4q", 1, 0, 2, 0), struct.pack("<2q", 9, 4)]


def test_row_words_are_equal_where_digests_are() -> None:
    """Of columns of a fixed width, whatever the width; others have none."""
    ids = digests(b"", [pa.array([1, 1, 1, 1, 1, 2, 2])])
    one = [
        pa.array([1, 1, 2, None, 0, 1, None], pa.int32()),
        pa.array([0.0, -0.0, 0.0, 0.0, None, float("nan"), 1.5]),
        pa.array([True, True, None, False, True, True, None]),
    ]
    other = [one[0].cast(pa.int64()), one[1].cast(pa.float32()), one[2]]
    words = [row_words(ids, columns) for columns in (one, other)]
    assert words[0] is not None
    assert words[0].equals(words[1])
    named = digests(b"", [ids, *one]).to_pylist()
    rows = words[0].to_pylist()
    assert [[a == b for b in rows] for a in rows] == [[a == b for b in named] for a in named]
    assert row_words(ids, [*one, pa.array(["x"] * 7)]) is None
