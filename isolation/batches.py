"""Arrow schemas and record batches between processes, validated on receipt.

``unpack`` returns a sound batch or raises ``Garbage``: buffers lie inside the data, and Arrow's
full validation has passed (offsets, dictionary indices, UTF-8, decimals) or could find nothing
more: numbers need only long enough buffers, and offsets and ASCII text are checked here at a tenth
of the cost.  Arrow's IPC reader, which trusts lengths in a message, is not used.

A node is ``[length, [[offset, bytes] or null, ...], [node, ...]]``: the buffers in the array's own
layout, then its children; the only child of a dictionary array is its dictionary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import UnsupportedType
from .channel import Garbage

NESTED_MAX = 64
Node = list[Any]

_PLAIN: dict[str, pa.DataType] = {
    str(type_): type_
    for type_ in (
        *(pa.null(), pa.bool_(), pa.float16(), pa.float32(), pa.float64()),
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.string(), pa.binary(), pa.large_string(), pa.large_binary()),
        *(pa.date32(), pa.date64(), pa.month_day_nano_interval()),
        *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
        *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
        *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    )
}
_DECIMALS = {"decimal32": pa.decimal32, "decimal64": pa.decimal64}
_DECIMALS |= {"decimal128": pa.decimal128, "decimal256": pa.decimal256}
_EXTENSIONS: dict[str, Callable[[], pa.DataType]] = {"arrow.uuid": pa.uuid, "arrow.bool8": pa.bool8}
_EXTENSIONS |= {"arrow.json": pa.json_}


# ------------------------------------------------------------------------------------- schemas


def describe(schema: pa.Schema) -> list[Any]:
    """A schema as JSON, without metadata."""
    return [_field(field) for field in schema]


def _field(field: pa.Field) -> list[Any]:
    return [field.name, _described(field.type), field.nullable]


def _described(type_: pa.DataType) -> Any:
    types = pa.types
    plain = _PLAIN.get(str(type_))
    if plain is not None and plain == type_:
        return str(type_)
    if isinstance(type_, pa.BaseExtensionType):
        if type_.extension_name in _EXTENSIONS:
            return ["extension", type_.extension_name]
    elif types.is_timestamp(type_):
        return ["timestamp", type_.unit, type_.tz]
    elif types.is_decimal(type_):
        return [str(type_).partition("(")[0], type_.precision, type_.scale]
    elif types.is_fixed_size_binary(type_):
        return ["fixed_size_binary", type_.byte_width]
    elif types.is_list(type_):
        return ["list", _field(type_.value_field)]
    elif types.is_large_list(type_):
        return ["large_list", _field(type_.value_field)]
    elif types.is_fixed_size_list(type_):
        return ["fixed_size_list", _field(type_.value_field), type_.list_size]
    elif types.is_struct(type_):
        return ["struct", [_field(type_.field(i)) for i in range(type_.num_fields)]]
    elif types.is_map(type_):
        return ["map", _field(type_.key_field), _field(type_.item_field), type_.keys_sorted]
    elif types.is_dictionary(type_):
        index, value = _described(type_.index_type), _described(type_.value_type)
        return ["dictionary", index, value, type_.ordered]
    raise UnsupportedType(f"a column of the type {type_} cannot leave the query; cast it to text")


def schema_of(described: Any) -> pa.Schema:
    """The schema of a description; raises ``Garbage``."""
    try:
        return pa.schema([_read_field(field, 0) for field in described])
    except (TypeError, ValueError, KeyError, IndexError, OverflowError) as error:
        raise Garbage(f"the worker's schema is none ({type(error).__name__})") from None


def _read_field(described: Any, depth: int) -> pa.Field:
    name, type_, nullable = described
    if not isinstance(name, str) or not isinstance(nullable, bool):
        raise TypeError
    name.encode()  # refuses lone surrogates
    return pa.field(name, _read_type(type_, depth + 1), nullable)


def _read_type(described: Any, depth: int) -> pa.DataType:
    if depth > NESTED_MAX:
        raise ValueError
    if isinstance(described, str):
        return _PLAIN[described]
    kind, *rest = described
    if kind == "extension":
        return _EXTENSIONS[rest[0]]()
    if kind == "timestamp":
        unit, zone = rest
        if zone is not None and not (isinstance(zone, str) and zone.isascii() and len(zone) < 65):
            raise ValueError
        return pa.timestamp(unit, zone)
    if kind in _DECIMALS:
        return _DECIMALS[kind](*rest)
    if kind == "fixed_size_binary":
        return pa.binary(_size(rest[0]))
    if kind == "list":
        return pa.list_(_read_field(rest[0], depth))
    if kind == "large_list":
        return pa.large_list(_read_field(rest[0], depth))
    if kind == "fixed_size_list":
        return pa.list_(_read_field(rest[0], depth), _size(rest[1]))
    if kind == "struct":
        return pa.struct([_read_field(field, depth) for field in rest[0]])
    if kind == "map":
        key, item, ordered = rest
        return pa.map_(_read_field(key, depth), _read_field(item, depth), bool(ordered))
    if kind == "dictionary":
        index, value, ordered = rest
        index_type = _read_type(index, depth + 1)
        if not pa.types.is_integer(index_type):
            raise ValueError
        return pa.dictionary(index_type, _read_type(value, depth + 1), bool(ordered))
    raise ValueError


def _size(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise ValueError
    return value


# ------------------------------------------------------------------------------------- batches


def pack(batch: pa.RecordBatch, begin: int = 0) -> tuple[Node, list[memoryview]]:
    """A batch as a tree of nodes and its buffers, padded to 64 bytes, from ``begin`` on."""
    pieces: list[memoryview] = []
    end = [begin]
    nodes = [_packed(column, pieces, end) for column in batch.columns]
    return [batch.num_rows, nodes], pieces


def _packed(array: pa.Array, pieces: list[memoryview], end: list[int]) -> Node:
    type_, types = array.type, pa.types
    if isinstance(array, pa.ExtensionArray):
        return _packed(array.storage, pieces, end)
    if array.offset:
        array = _from_its_beginning(array)
    length = len(array)
    buffers = array.buffers()
    places: list[list[int] | None] = []

    def place(buffer: pa.Buffer | None, size: int) -> None:
        if buffer is None or (not size and buffer is buffers[0]):
            places.append(None)
            return
        places.append([end[0], size])
        pieces.append(memoryview(buffer).cast("B")[:size] if size else memoryview(b""))
        end[0] += -(-size // 64) * 64

    if types.is_null(type_):
        return [length, [None], []]
    place(buffers[0] if array.null_count else None, -(-length // 8))
    if types.is_struct(type_):
        fields = [array.field(i) for i in range(type_.num_fields)]
        return [length, places, [_packed(field, pieces, end) for field in fields]]
    if types.is_fixed_size_list(type_):
        values = array.values.slice(0, length * type_.list_size)
        return [length, places, [_packed(values, pieces, end)]]
    if types.is_dictionary(type_):
        place(buffers[1], length * type_.index_type.bit_width // 8)
        return [length, places, [_packed(array.dictionary, pieces, end)]]
    wide = (
        types.is_large_string(type_) or types.is_large_binary(type_) or types.is_large_list(type_)
    )
    if wide or types.is_string(type_) or types.is_binary(type_) or types.is_list(type_):
        return _with_offsets(array, 8 if wide else 4, place, places, pieces, end)
    if types.is_map(type_):
        return _with_offsets(array, 4, place, places, pieces, end)
    if buffers[1] is None:
        places.append(None)
    else:
        place(buffers[1], -(-length * type_.bit_width // 8))
    return [length, places, []]


def _from_its_beginning(array: pa.Array) -> pa.Array:
    """An equal array without offset; copies only where necessary."""
    type_, types, start, length = array.type, pa.types, array.offset, len(array)
    text = types.is_string(type_) or types.is_binary(type_)
    plain = text or (types.is_primitive(type_) and not types.is_null(type_))
    if not plain or start % 8 or not length:
        return pa.concat_arrays([array, array.slice(0, 0)])
    nulls, values, *data = array.buffers()
    nulls = nulls.slice(start // 8, -(-length // 8)) if nulls is not None else None
    if text:
        offsets = np.frombuffer(values, np.int32)[start : start + length + 1]
        values = pa.py_buffer(offsets - offsets[0])
        if data[0] is not None:
            data[0] = data[0].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    else:
        values = values.slice(start * type_.bit_width // 8, -(-length * type_.bit_width // 8))
    return pa.Array.from_buffers(type_, length, [nulls, values, *data])


def _with_offsets(
    array: pa.Array,
    width: int,
    place: Callable[[pa.Buffer | None, int], None],
    places: list[list[int] | None],
    pieces: list[memoryview],
    end: list[int],
) -> Node:
    length, offsets = len(array), array.buffers()[1]
    nested = pa.types.is_nested(array.type)
    if offsets is None or not length:
        places.append([end[0], width])  # one offset, zero
        pieces.append(memoryview(bytes(width)))
        end[0] += 64
        last = 0
    else:
        place(offsets, (length + 1) * width)
        raw = memoryview(offsets).cast("B")[length * width : (length + 1) * width]
        last = int.from_bytes(raw, "little")
    if nested:
        if pa.types.is_map(array.type):
            entries = pa.StructArray.from_arrays(
                [array.keys, array.items], fields=[array.type.key_field, array.type.item_field]
            )
            return [length, places, [_packed(entries.slice(0, last), pieces, end)]]
        return [length, places, [_packed(array.values.slice(0, last), pieces, end)]]
    data = array.buffers()[2]
    if data is None or not last:
        places.append([end[0], 0])
        pieces.append(memoryview(b""))
    else:
        place(data, last)
    return [length, places, []]


def unpack(
    schema: pa.Schema, packed: Any, data: pa.Buffer | None, *, trusted: bool = False
) -> pa.RecordBatch:
    """The packed batch, or ``Garbage``; only a worker may trust, and not validate, the owner's."""
    try:
        rows, nodes = packed
        if len(nodes) != len(schema):
            raise ValueError
        whole = data if data is not None else pa.py_buffer(b"")
        arrays = [_unpacked(f.type, n, whole) for f, n in zip(schema, nodes, strict=True)]
        if any(len(array) != rows for array in arrays):
            raise ValueError
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * _size(rows), pa.struct([])))
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        if not trusted:
            batch.validate()
            for array in batch.columns:
                if not _is_sound(array):
                    array.validate(full=True)
    except (TypeError, ValueError, KeyError, IndexError, OverflowError, pa.ArrowException) as error:
        raise Garbage(f"the worker's rows are none ({type(error).__name__})") from None
    return batch


def _unpacked(type_: pa.DataType, node: Node, data: pa.Buffer) -> pa.Array:
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, _unpacked(type_.storage_type, node, data))
    length, places, children = node
    buffers = [None if place is None else _slice(data, *place) for place in places]
    types = pa.types
    nulls = 0 if not buffers or buffers[0] is None else -1
    if types.is_dictionary(type_):
        (values,) = children
        dictionary = _unpacked(type_.value_type, values, data)
        dictionary.validate(full=True)
        return pa.DictionaryArray.from_buffers(
            type_, _size(length), buffers, dictionary, null_count=nulls
        )
    if types.is_map(type_):
        inner = [pa.struct([type_.key_field, type_.item_field])]
    else:
        inner = [type_.field(i).type for i in range(type_.num_fields)]
    arrays = [_unpacked(t, n, data) for t, n in zip(inner, children, strict=True)]
    return pa.Array.from_buffers(
        type_, _size(length), buffers, null_count=length if types.is_null(type_) else nulls,
        children=arrays or None,
    )  # fmt: skip


def _is_sound(array: pa.Array) -> bool:
    """Whether full validation could find nothing more in an array with long enough buffers."""
    type_, types = array.type, pa.types
    if types.is_integer(type_) or types.is_floating(type_) or types.is_boolean(type_):
        return True
    if types.is_timestamp(type_) or types.is_duration(type_):
        return True
    large = types.is_large_string(type_) or types.is_large_binary(type_)
    if not (large or types.is_string(type_) or types.is_binary(type_)):
        return False
    _, places, data = array.buffers()
    if not len(array) or places is None or data is None:
        return False
    kind: npt.DTypeLike = np.int64 if large else np.int32
    offsets: npt.NDArray[np.int64] = np.frombuffer(places, kind, len(array) + 1)
    if offsets[0] < 0 or offsets[-1] > data.size or (offsets[1:] < offsets[:-1]).any():
        return False
    if types.is_binary(type_) or types.is_large_binary(type_):
        return True
    used = np.frombuffer(data, np.int8, offsets[-1])
    return not used.size or bool(used.min() >= 0)


def _slice(data: pa.Buffer, offset: Any, size: Any) -> pa.Buffer:
    if type(offset) is not int or type(size) is not int or offset % 64 or offset < 0 or size < 0:
        raise ValueError
    if offset + size > data.size:
        raise ValueError
    return data.slice(offset, size)
