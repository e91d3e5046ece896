"""Type inference from a sample of values.

A text column becomes

1. ``int64`` (or ``uint64``) if its values are whole numbers,
2. else ``float64`` if they are numbers, or ``decimal128(38, s)`` if a whole number among them has
   no exact ``float64``,
3. else ``bool``, ``date`` or ``timestamp`` if **all** of them are,
4. else ``string``.

Four numbers in five suffice; the other values are bad.  A column without values stays undecided.

Localised numbers: ``plain_numbers`` rewrites ``1.234,56`` as ``1234.56``, still as text.  Only
regular groups of three with one separator are joined, without a leading zero.  With a decimal comma
``1.5`` is not a number.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.json_text import JSON
from ..core.nested_types import decided, is_list, is_nested
from ..schema import storage_of, stored_nested
from .convert import (
    FLOAT_TEXT,
    INTEGER_TEXT,
    inexact_wholes,
    may_be_rounded,
    parsed,
    read_numbers,
)
from .limits import Limits, Meter
from .time_text import parse_iso
from .times import is_text

NUMERIC_SHARE = 0.8

_BOOL_TEXT = r"^(?i:true|false)$"
_PLAIN_NUMBER = r"^[+-]?(?P<w>\d*)\.?(?P<f>\d*)$"


def infer_text(values: pa.Array, *, numbers: bool = True) -> pa.DataType | None:
    """Type of a text column, None without values; JSON strings are not inferred as numbers."""
    values = values.drop_null()
    if not len(values):
        return None
    for type_ in (pa.int64(), pa.uint64(), pa.float64()) if numbers else ():
        found = read_numbers(values, type_)
        if found is not None and not may_be_rounded(found):
            return type_
    trimmed = pc.utf8_trim_whitespace(values)
    if numbers:
        enough = NUMERIC_SHARE * len(values)
        decimal = pc.match_substring_regex(trimmed, FLOAT_TEXT)
        if pc.sum(decimal).as_py() >= enough:
            digits = trimmed.filter(decimal)
            return _whole_type(digits) or _exact_type(digits) or pa.float64()
        if pc.all(pc.match_substring_regex(trimmed, _BOOL_TEXT)).as_py():
            return pa.bool_()
    times = parse_iso(trimmed)
    if times.ok.all():
        if not times.has_clock.any():
            return pa.date32()
        return pa.timestamp("ns" if np.any(times.nanos % 1000) else "us")
    return pa.string()


_CELLS_MAX = 16 << 20
"""Most rows times members of nested values to parse together: each has a null for what it lacks."""


def infer_nested(text: pa.Array, most: int) -> pa.DataType:
    """Type of the JSON text of lists and objects: JSON if irregular; times stay text.

    ResourceLimit for more than ``most`` members.
    """
    text = text.drop_null()
    colons = pc.sum(pc.count_substring(text, ":"), min_count=0).as_py()
    if len(text) > 1 and len(text) * colons > _CELLS_MAX:
        half = len(text) // 2
        first = infer_nested(text.slice(0, half), most)
        type_ = wider(first, infer_nested(text.slice(half), most)) or JSON
    else:
        type_ = _parsed_type(text)
    Meter(Limits(most), "nested values").columns(members_of(type_), "different keys")
    return type_


def _parsed_type(text: pa.Array) -> pa.DataType:
    try:
        values = parsed(text)
    except pa.ArrowInvalid:
        return JSON
    type_ = _regular(values.type)
    if not is_nested(type_) or _may_be_rounded_inside(values):
        return JSON
    return JSON if stored_nested(decided(type_)) is None else type_


def members_of(type_: pa.DataType | None) -> int:
    """How many members a type has, with those inside of each other."""
    if type_ is None or not is_nested(type_):
        return 0
    if is_list(type_):
        return members_of(type_.value_type)
    return sum(1 + members_of(each.type) for each in type_)


def _regular(type_: pa.DataType) -> pa.DataType:
    if is_list(type_):
        return pa.list_(_regular(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([(each.name, _regular(each.type)) for each in type_])
    return pa.string() if pa.types.is_timestamp(type_) else type_


def _may_be_rounded_inside(values: pa.Array) -> bool:
    if is_list(values.type):
        return _may_be_rounded_inside(values.flatten())
    if pa.types.is_struct(values.type):
        return any(map(_may_be_rounded_inside, values.flatten()))
    return may_be_rounded(values)


def _whole_type(digits: pa.Array) -> pa.DataType | None:
    if not pc.all(pc.match_substring_regex(digits, INTEGER_TEXT)).as_py():
        return None
    if pc.any(pc.match_substring(digits, ".")).as_py():
        return None
    plain = pc.replace_substring_regex(digits, r"^\+", "")
    for type_ in (pa.int64(), pa.uint64()):
        try:
            plain.cast(type_)
        except pa.ArrowInvalid:
            continue
        return type_
    return None


def _exact_type(digits: pa.Array) -> pa.DataType | None:
    """The decimal type for numbers in text, if floats would lose digits of a whole number."""
    if not inexact_wholes(digits, digits.cast(pa.float64())).any():
        return None
    if not pc.all(pc.match_substring_regex(digits, _PLAIN_NUMBER)).as_py():
        return None
    parts = pc.extract_regex(digits, _PLAIN_NUMBER)
    whole, fraction = (
        pc.max(pc.utf8_length(pc.struct_field(parts, name))).as_py() for name in ("w", "f")
    )
    return pa.decimal128(38, fraction) if whole + fraction <= 38 else None


def infer_typed(values: pa.Array) -> pa.DataType | None:
    """Type of a typed column; None if it has no values or the type null."""
    type_ = values.type
    if pa.types.is_null(type_):
        return None
    if is_text(type_):
        if values.null_count == len(values):
            return None
        return pa.large_string() if pa.types.is_large_string(type_) else pa.string()
    if pa.types.is_time(type_) or pa.types.is_duration(type_):
        return pa.string() if pa.types.is_time(type_) else pa.int64()
    if pa.types.is_float16(type_):
        return pa.float32()
    if is_nested(type_):
        return stored_nested(type_) or type_
    return type_


_GROUPING = ("'", "\u2019", " ", "\u00a0", "\u202f")
"""Group separators besides whichever of ``.`` and ``,`` is not the decimal separator."""


def _grouped(decimal: str) -> str:
    marks = ("." if decimal == "," else ",", *_GROUPING)
    groups = "|".join(rf"(?:{re.escape(mark)}\d{{3}})+" for mark in marks)
    return rf"^[+-]?[1-9]\d{{0,2}}(?:{groups})(?:{re.escape(decimal)}\d*)?$"


_GROUPED = {decimal: _grouped(decimal) for decimal in ",."}
_MARKS = {
    decimal: f"[{'.' if decimal == ',' else ','}{''.join(_GROUPING)}]" for decimal in _GROUPED
}
_COMMA = r"^([+-]?\d*),(\d*(?:[eE][+-]?\d+)?)$"
_WITH_COMMA = r"^[+-]?(?:\d+|[1-9]\d{0,2}(?:\.\d{3})+)(?:,\d+(?:[eE][+-]?\d+)?)?$"
_PROOF = (
    r"^[+-]?(?:\d+,\d{1,2}|\d+,\d{4,}|0\d*,\d+|\d{4,},\d+|[1-9]\d{0,2}(?:\.\d{3})+,\d+"
    r"|\d+,\d+[eE][+-]?\d+)$"
)
"""Numbers in which the comma cannot be a group separator."""


def plain_numbers(values: pa.Array, decimal: str) -> pa.Array:
    """Text with decimal points and no groups; ambiguous text is made unreadable as a number."""
    trimmed = pc.utf8_trim_whitespace(values)
    if not pc.any(pc.match_substring_regex(trimmed, _MARKS[decimal])).as_py():
        return trimmed if decimal == "." else pc.replace_substring(trimmed, ",", ".")
    grouped = pc.match_substring_regex(trimmed, _GROUPED[decimal])
    joined = pc.replace_substring_regex(trimmed, _MARKS[decimal], "")
    text = pc.if_else(grouped, joined, trimmed)
    if decimal == ".":
        return text
    misread = pc.and_(pc.match_substring_regex(text, FLOAT_TEXT), pc.match_substring(text, "."))
    text = pc.if_else(misread, pc.replace_substring(text, ".", ".."), text)
    return pc.replace_substring_regex(text, _COMMA, r"\1.\2")


def decimal_of(values: pa.Array) -> str | None:
    """ "," if every number may have a decimal comma and at least one must have it; else None."""
    trimmed = pc.utf8_trim_whitespace(values.drop_null())
    if not pc.any(pc.match_substring(trimmed, ",")).as_py():
        return None
    if not pc.all(pc.match_substring_regex(trimmed, _WITH_COMMA)).as_py():
        return None
    return "," if pc.any(pc.match_substring_regex(trimmed, _PROOF)).as_py() else None


def kept_as_text(name: str, values: pa.Array) -> str | None:
    """A note for a text column that ``--decimal`` would make numeric; None for others."""
    sample = values.drop_null().slice(0, 1000)
    for decimal in _GROUPED:
        found = pc.match_substring_regex(plain_numbers(sample, decimal), FLOAT_TEXT)
        if len(sample) and pc.sum(found).as_py() >= NUMERIC_SHARE * len(sample):
            first = next((text for text in sample.filter(found).to_pylist() if way_out(text)), None)
            return first and f"{name}: numbers such as {first} are kept as text{way_out(first)}"
    return None


def is_number(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
    )


def way_out(text: str) -> str:
    """A hint at the option that would read this number; "" if none does."""
    text = text.strip()
    fits = [d for d in _GROUPED if re.match(_GROUPED[d], text) or (d == "," and _comma(text))]
    if len(fits) > 1 and re.search(r"[.,]", text):
        return "; --decimal , or --decimal . says how it is to be read"
    return f"; --decimal {fits[0]} reads it" if fits else ""


def _comma(text: str) -> bool:
    return re.match(_COMMA, text) is not None and text != ","


def wider(old: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    """The smallest type that holds the values of both; None if there is none."""
    if old == new or pa.types.is_null(new):
        return old
    types = pa.types
    if types.is_null(old):
        return new
    if is_nested(old) or is_nested(new):
        return _wider_nested(old, new)
    if types.is_floating(old) and types.is_floating(new):
        return pa.float64()
    if types.is_integer(old) and types.is_integer(new):
        if types.is_uint64(old) or types.is_uint64(new):
            return (
                pa.uint64()
                if types.is_unsigned_integer(old) and types.is_unsigned_integer(new)
                else pa.float64()
            )
        widest = max(old.bit_width, new.bit_width)
        if types.is_signed_integer(old) == types.is_signed_integer(new):
            return old if old.bit_width == widest else new
        return pa.int64()
    if (types.is_integer(old) and types.is_floating(new)) or (
        types.is_floating(old) and types.is_integer(new)
    ):
        return pa.float64()
    if types.is_timestamp(old) and types.is_timestamp(new) and (old.tz is None) == (new.tz is None):
        order = ("s", "ms", "us", "ns")
        return pa.timestamp(max(old.unit, new.unit, key=order.index), old.tz)
    if types.is_date(old) and types.is_timestamp(new):
        return new
    if types.is_timestamp(old) and types.is_date(new):
        return old
    if types.is_string(old) and types.is_large_string(new):
        return new
    if types.is_large_string(old) and types.is_string(new):
        return old
    return None


def widenings(type_: pa.DataType) -> tuple[pa.DataType, ...]:
    if pa.types.is_integer(type_):
        return (pa.int64(), pa.float64())
    if pa.types.is_timestamp(type_):
        finer = {"s": ("ms", "us", "ns"), "ms": ("us", "ns"), "us": ("ns",), "ns": ()}
        return tuple(pa.timestamp(unit, type_.tz) for unit in finer[type_.unit])
    if pa.types.is_date(type_):
        return (pa.timestamp("us"),)
    return ()


def _wider_nested(old: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    if is_list(old) and is_list(new):
        item = wider(old.value_type, new.value_type)
        return None if item is None else pa.list_(item)
    if not (pa.types.is_struct(old) and pa.types.is_struct(new)):
        return None
    fields: dict[str, pa.DataType] = {each.name: each.type for each in old}
    for each in new:
        found = wider(fields.get(each.name, pa.null()), each.type)
        if found is None:
            return None
        fields[each.name] = found
    both = pa.struct(list(fields.items()))
    return None if storage_of(decided(both)) is None else both
