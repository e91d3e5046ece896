"""Lists and structs as JSON text, in both directions.

Missing members are null; additional ones, or values of another type, make a bad value.  Times,
dates and binaries inside are strings.  If some value is bad, halves are parsed recursively.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from ..core.json_text import read_json
from ..core.nested_types import as_list, is_list, is_nested, rebuilt
from ..errors import UnsupportedType
from .decimals import Converted
from .kinds import name_of_type

_TEXT = pa.large_string()
_DIRECT = ("bool", "int", "uint", "float", "double", "decimal", "string", "large_string")
Leaf = Callable[[pa.Array, pa.DataType], Converted]


class _Bad(Exception):
    """Some value does not fit the type."""


def _parsed_as(type_: pa.DataType) -> pa.DataType:
    if is_list(type_):
        return pa.list_(_parsed_as(type_.value_type))
    if pa.types.is_struct(type_):
        fields = [type_.field(i) for i in range(type_.num_fields)]
        return pa.struct([pa.field(field.name, _parsed_as(field.type)) for field in fields])
    return type_ if str(type_).startswith(_DIRECT) else pa.string()


def read_nested(text: pa.Array, type_: pa.DataType, leaf: Leaf) -> Converted:
    """Read a column of JSON text; ``leaf`` converts parts that are neither list nor struct."""
    checked = read_json(text)
    parsed_as = _parsed_as(type_)
    found, good = _halved(
        checked.values.storage, type_, lambda part: _values(part, type_, parsed_as, leaf)
    )
    if checked.faults is not None:
        good &= checked.faults == 0
    return _outcome(found, good, type_)


def conform_nested(values: pa.Array, type_: pa.DataType, leaf: Leaf) -> Converted:
    """Lists and structs in another type; raises ``UnsupportedType`` if the shapes differ."""
    try:
        found, good = _halved(values, type_, lambda part: _rebuilt(part, type_, leaf))
    except TypeError as error:
        raise UnsupportedType(f"expected {name_of_type(type_)}, found {error}") from None
    return _outcome(found, good, type_)


def _rebuilt(values: pa.Array, type_: pa.DataType, leaf: Leaf) -> pa.Array:
    def converted(part: pa.Array, wanted: pa.DataType) -> pa.Array:
        found = leaf(part, wanted)
        if found.bad:
            raise _Bad
        return found.values

    return rebuilt(values, type_, converted)


def _outcome(found: pa.Array, good: npt.NDArray[np.bool_], type_: pa.DataType) -> Converted:
    if good.all():
        return Converted(found)
    reason = f"expected {name_of_type(type_)}, found {{value}}"
    return Converted(found, (~good).astype(np.uint8), (reason,))


def _halved(
    values: pa.Array, type_: pa.DataType, read: Callable[[pa.Array], pa.Array]
) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    good = np.ones(len(values), np.bool_)
    pieces: list[pa.Array] = [pa.nulls(0, type_)]
    waiting = [(0, len(values))]
    while waiting:
        first, end = waiting.pop()
        try:
            pieces.append(read(values.slice(first, end - first)))
        except (_Bad, pa.ArrowInvalid):
            if end - first == 1:
                good[first] = False
                pieces.append(pa.nulls(1, type_))
            else:
                half = (first + end) // 2
                waiting += [(half, end), (first, half)]
    return pa.concat_arrays(pieces), good


def _values(text: pa.Array, type_: pa.DataType, parsed_as: pa.DataType, leaf: Leaf) -> pa.Array:
    if not len(text):
        return pa.nulls(0, type_)
    return _rebuilt(parsed(text, parsed_as), type_, leaf)


def parsed(text: pa.Array, type_: pa.DataType | None = None) -> pa.Array:
    """JSON text parsed by Arrow as ``type_``, without additional members, or inferred."""
    lines = _joined('{"v":', pc.fill_null(text, "null").cast(_TEXT), "}\n")
    _, offsets, data = lines.buffers()
    borders = np.frombuffer(offsets, np.int64)[lines.offset : lines.offset + len(lines) + 1]
    body = data.slice(int(borders[0]), int(borders[-1] - borders[0]))
    table = pa_json.read_json(
        pa.BufferReader(body),
        read_options=pa_json.ReadOptions(block_size=body.size + 1, use_threads=False),
        parse_options=pa_json.ParseOptions(
            explicit_schema=None if type_ is None else pa.schema([("v", type_)]),
            unexpected_field_behavior="infer" if type_ is None else "error",
        ),
    )
    if table.num_rows != len(text):
        raise pa.ArrowInvalid("some text is not one value")
    return table.column("v").combine_chunks()


def nested_text(array: pa.Array, leaf: Callable[[pa.Array], tuple[pa.Array, bool]]) -> pa.Array:
    """Lists and structs as JSON text; ``leaf`` gives other values' text, and if it is quoted."""
    type_ = array.type
    if is_list(type_):
        array = as_list(array)
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        places = pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int64))
        items = pa.LargeListArray.from_arrays(places, _member(array.flatten(), leaf))
        text = _joined("[", pc.binary_join(items, _word(", ")), "]")
    elif not type_.num_fields:
        text = pa.repeat(_word("{}"), len(array))
    else:
        parts: list[pa.Array | str] = []
        for position in range(type_.num_fields):
            name = json.dumps(type_.field(position).name, ensure_ascii=False)
            parts.append(f"{', ' if position else '{'}{name}: ")
            parts.append(_member(array.field(position), leaf))
        text = _joined(*parts, "}")
    return text if not array.null_count else pc.if_else(array.is_valid(), text, None)


def _word(text: str) -> pa.Scalar:
    return pa.scalar(text, _TEXT)


def _joined(*parts: pa.Array | str) -> pa.Array:
    given = [_word(part) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*given, _word(""))


def _member(array: pa.Array, leaf: Callable[[pa.Array], tuple[pa.Array, bool]]) -> pa.Array:
    text, quoted = (nested_text(array, leaf), False) if is_nested(array.type) else leaf(array)
    text = text.cast(_TEXT)
    return pc.fill_null(_joined('"', text, '"') if quoted else text, _word("null"))
