"""Lists and structs: their types as streams hold them, and how many bytes their values take.

Purpose
    A column may hold lists (``DOUBLE[]``), structs (``STRUCT(a BIGINT, b VARCHAR)``), and each
    within the other.  :func:`normal` gives the one form in which a stream has such a type,
    :func:`rebuilt` brings an array into another type leaf by leaf, :func:`value_bytes` is for
    cutting leaves.

Guarantee
    A type in normal form is made of lists with 32-bit offsets whose items may be null, of structs
    whose fields may be null, and of types that a column of their own could have.  Arrow calls two
    types equal then, whatever a format calls the items of a list.

Limits
    No JSON inside, no maps; names of fields differ in more than case, and are not empty.  At most
    :data:`DEPTH_MAX` lists and structs inside each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

DEPTH_MAX = 16
Int64s = npt.NDArray[np.int64]


def is_list(type_: pa.DataType) -> bool:
    """Whether a type is one of Arrow's kinds of lists."""
    types = pa.types
    return bool(
        types.is_list(type_)
        or types.is_large_list(type_)
        or types.is_fixed_size_list(type_)
        or types.is_list_view(type_)
        or types.is_large_list_view(type_)
    )


def is_nested(type_: pa.DataType) -> bool:
    """Whether a type is a list or a struct."""
    return is_list(type_) or bool(pa.types.is_struct(type_))


def decided(type_: pa.DataType) -> pa.DataType:
    """A type in which what has shown no value yet is text."""
    if pa.types.is_null(type_):
        return pa.string()
    if pa.types.is_list(type_):
        return pa.list_(decided(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(each.name, decided(each.type)) for each in type_])
    return type_


def normal(
    type_: pa.DataType, plain: Callable[[pa.DataType], pa.DataType | None], depth: int = 0
) -> pa.DataType | None:
    """A list or struct in the form that streams have; None where they have none.

    Parameters
    ----------
    plain : callable
        The form of a type that is neither; None if streams have none.
    """
    if depth > DEPTH_MAX:
        return None
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    if is_list(type_):
        item = normal(type_.value_type, plain, depth + 1)
        return None if item is None else pa.list_(item)
    if not pa.types.is_struct(type_):
        return plain(type_)
    fields = [type_.field(i) for i in range(type_.num_fields)]
    names = [field.name.lower() for field in fields]
    if not fields or not all(names) or len(set(names)) < len(names) or "\x00" in "".join(names):
        return None
    inner = [normal(field.type, plain, depth + 1) for field in fields]
    if any(each is None for each in inner):
        return None
    return pa.struct([pa.field(f.name, each) for f, each in zip(fields, inner, strict=True)])


def as_list(array: pa.Array) -> pa.Array:
    """Lists of any kind with 32-bit offsets, from the beginning of their items on."""
    if pa.types.is_list(array.type):
        return array
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    places = np.zeros(len(array) + 1, np.int32)
    np.cumsum(lengths, out=places[1:])
    buffers = [_validity(array), pa.py_buffer(places)]
    return pa.Array.from_buffers(
        pa.list_(array.type.value_type), len(array), buffers, children=[array.flatten()]
    )


def rebuilt(
    array: pa.Array, type_: pa.DataType, leaf: Callable[[pa.Array, pa.DataType], pa.Array]
) -> pa.Array:
    """An array in another type of the same shape.

    Parameters
    ----------
    type_ : pyarrow.DataType
        Its lists and structs are where the array's are.
    leaf : callable
        Gives the values of a part that is neither in another type.

    Raises
    ------
    TypeError
        The shapes differ: what was found, and what was expected.
    """
    bare = not is_nested(array.type) and array.null_count == len(array)
    if pa.types.is_null(array.type) or (bare and is_nested(type_)):
        return pa.nulls(len(array), type_)
    if is_list(type_):
        if not is_list(array.type):
            raise TypeError(f"{array.type} instead of a list")
        lists = as_list(array)
        offsets = (
            np.frombuffer(lists.buffers()[1], np.int32)[
                lists.offset : lists.offset + len(lists) + 1
            ]
            if len(lists)
            else np.zeros(1, np.int32)
        )
        first, last = int(offsets[0]), int(offsets[-1])
        items = rebuilt(lists.values.slice(first, last - first), type_.value_type, leaf)
        places = pa.array(offsets - offsets[0], pa.int32()).buffers()[1]
        return pa.Array.from_buffers(
            type_, len(lists), [_validity(lists), places], children=[items]
        )
    if pa.types.is_struct(type_):
        if not pa.types.is_struct(array.type):
            raise TypeError(f"{array.type} instead of a struct")
        wanted = [type_.field(i) for i in range(type_.num_fields)]
        names = {field.name.lower(): field.name for field in wanted}
        places_of: dict[str, int] = {}
        for position in range(array.type.num_fields):
            name = array.type.field(position).name
            match = names.get(name.lower())
            if match is None or match in places_of:
                raise TypeError(f"a field {name!r}, and the struct has {', '.join(names.values())}")
            places_of[match] = position
        children = [
            rebuilt(array.field(places_of[field.name]), field.type, leaf)
            if field.name in places_of
            else pa.nulls(len(array), field.type)
            for field in wanted
        ]
        return pa.Array.from_buffers(type_, len(array), [_validity(array)], children=children)
    if is_nested(array.type):
        raise TypeError(f"{array.type} instead of {type_}")
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    return leaf(array, type_)


def _validity(array: pa.Array) -> pa.Buffer | None:
    """A bitmap that begins with the array."""
    return array.is_valid().buffers()[1] if array.null_count else None


def value_bytes(array: pa.Array) -> Int64s:
    """Bytes of each value, those of its offsets included.

    Parameters
    ----------
    array : pyarrow.Array
        Of a type in normal form, or a part of one.
    """
    type_, types = array.type, pa.types
    if types.is_list(type_):
        if not len(array):
            return np.zeros(0, np.int64)
        offsets = np.frombuffer(array.buffers()[1], np.int32)[
            array.offset : array.offset + len(array) + 1
        ]
        items = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        before = np.concatenate(([0], np.cumsum(value_bytes(items))))
        ends: Int64s = before[offsets - offsets[0]]
        return np.diff(ends) + 4
    if types.is_struct(type_):
        total = np.zeros(len(array), np.int64)
        for position in range(type_.num_fields):
            total += value_bytes(array.field(position))
        return total
    if types.is_boolean(type_):
        return np.ones(len(array), np.int64)
    if _is_variable(type_):
        lengths: Any = pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)
        return np.asarray(lengths, np.int64) + 4
    return np.full(len(array), type_.bit_width // 8, np.int64)


def _is_variable(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(type_) or types.is_large_string(type_)
        or types.is_binary(type_) or types.is_large_binary(type_)
    )  # fmt: skip
