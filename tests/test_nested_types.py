"""Types of lists and structs in normal form, and the bytes of their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.core.nested_types import DEPTH_MAX, is_nested, normal, rebuilt, value_bytes
from chronicle.schema import Storage, storage_of, stored_nested

INNER = pa.struct([("a", pa.int64()), ("b", pa.string())])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (pa.list_(pa.float64()), pa.list_(pa.float64())),
        (pa.large_list(pa.int8()), pa.list_(pa.int8())),
        (pa.list_(pa.int8(), 3), pa.list_(pa.int8())),
        (pa.list_view(pa.string()), pa.list_(pa.string())),
        (pa.list_(pa.field("element", pa.bool_(), False)), pa.list_(pa.bool_())),
        (pa.list_(pa.dictionary(pa.int8(), pa.string())), pa.list_(pa.string())),
        (pa.list_(pa.list_(INNER)), pa.list_(pa.list_(INNER))),
        (
            pa.struct([pa.field("x", pa.large_list(INNER), False)]),
            pa.struct([("x", pa.list_(INNER))]),
        ),
        (pa.list_(pa.json_()), None),
        (pa.list_(pa.time32("s")), None),
        (pa.struct([]), None),
        (pa.struct([("a", pa.int8()), ("A", pa.int8())]), None),
        (pa.struct([("", pa.int8())]), None),
        (pa.struct([("a\x00", pa.int8())]), None),
        (pa.map_(pa.string(), pa.int8()), None),
    ],
)  # fmt: skip
def test_normal_form(given: pa.DataType, expected: pa.DataType | None) -> None:
    assert stored_nested(given) == expected
    if expected is not None:
        assert str(stored_nested(given)) == str(expected)
    storage = storage_of(given)
    assert (storage is Storage.NESTED) == (expected is not None)


def test_depth_is_bounded() -> None:
    type_: pa.DataType = pa.int8()
    for _ in range(DEPTH_MAX):
        type_ = pa.list_(type_)
    assert normal(type_, lambda part: part) == type_
    assert normal(pa.list_(type_), lambda part: part) is None
    assert is_nested(type_)


def cast(part: pa.Array, type_: pa.DataType) -> pa.Array:
    return part.cast(type_)


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list, pa.list_view])
def test_lists_are_rebuilt(kind: Any) -> None:
    values = [[1, 2], None, [], [None, 5], [6]]
    array = pa.array(values, kind(pa.int32()))
    for first, count in ((0, 5), (1, 3), (4, 1), (2, 0)):
        part = array.slice(first, count)
        found = rebuilt(part, pa.list_(pa.int64()), cast)
        found.validate(full=True)
        assert found.type == pa.list_(pa.int64())
        assert found.to_pylist() == values[first : first + count]


def test_structs_are_rebuilt_by_name() -> None:
    array = pa.array([{"B": "x", "a": 1}, None, {"B": None, "a": 3}])
    found = rebuilt(array.slice(1), INNER, cast)
    found.validate(full=True)
    assert found.to_pylist() == [None, {"a": 3, "b": None}]
    wider = pa.struct([("a", pa.int64()), ("c", pa.bool_())])
    assert rebuilt(pa.array([{"a": 1}]), wider, cast).to_pylist() == [{"a": 1, "c": None}]
    for wrong, type_ in (
        (pa.array([{"z": 1}]), INNER),
        (pa.array([[1]]), INNER),
        (pa.array([1]), pa.list_(pa.int8())),
        (pa.array([[[1]]]), pa.list_(pa.int8())),
    ):
        with pytest.raises(TypeError):
            rebuilt(wrong, type_, cast)


def test_bytes_of_values() -> None:
    lists = pa.array([[1, 2, 3], None, [], [4]], pa.list_(pa.int32()))
    assert value_bytes(lists).tolist() == [16, 4, 4, 8]
    assert value_bytes(lists.slice(2)).tolist() == [4, 8]
    structs = pa.array([{"a": 1, "b": "xyz"}, {"a": 2, "b": None}], INNER)
    assert value_bytes(structs).tolist() == [15, 12]
    deep = pa.array([[{"a": 1, "b": "x"}], []], pa.list_(INNER))
    assert value_bytes(deep).tolist() == [17, 4]
    assert value_bytes(pa.array([], pa.list_(INNER))).tolist() == []
    rng = np.random.default_rng(1)
    large = pa.array(
        [rng.integers(0, 9, n).tolist() for n in rng.integers(0, 20, 500)], pa.list_(pa.int64())
    )
    assert abs(int(value_bytes(large).sum()) - large.nbytes) <= 64
