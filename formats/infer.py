"""Type inference from a sample of values.

A text column becomes

1. ``int64`` (or ``uint64``) if its values are whole numbers,
2. else ``float64`` if they are numbers, or ``decimal128(38, s)`` if a whole number among them has
   no exact ``float64``,
3. else ``bool``, ``date`` or ``timestamp`` if **all** of them are,
4. else ``string``.

Four numbers in five suffice; the other values are bad.  A column without values stays undecided.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.json_text import JSON
from ..core.nested_types import decided, is_list, is_nested
from ..schema import stored_nested
from .convert import EXACT_MAX, FLOAT_TEXT, INTEGER_TEXT, inexact_wholes
from .isotime import parse_iso
from .nestedtext import parsed
from .times import is_text

__all__ = [
    "NUMERIC_SHARE",
    "clock_type",
    "infer_nested",
    "infer_text",
    "infer_typed",
    "may_be_rounded",
]

NUMERIC_SHARE = 0.8

_BOOL_TEXT = r"^(?i:true|false)$"
_PLAIN_NUMBER = r"^[+-]?(?P<w>\d*)\.?(?P<f>\d*)$"


def infer_text(values: pa.Array, *, numbers: bool = True) -> pa.DataType | None:
    """Type of a text column, None without values; JSON strings are not inferred as numbers."""
    values = values.drop_null()
    if not len(values):
        return None
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


def clock_type(values: pa.Array | None, *, csv: bool) -> pa.DataType | None:
    """The parser's type for a time-of-day column: text."""
    if csv:
        return pa.string()
    if values is None or pa.types.is_null(values.type):
        return None
    shown = is_text(values.type) or pa.types.is_timestamp(values.type)
    return pa.string() if shown else values.type


def infer_nested(values: pa.Array) -> pa.DataType:
    """Type of parsed lists or objects, or of their text: JSON if irregular; times stay text."""
    if is_text(values.type):
        try:
            values = parsed(values)
        except pa.ArrowInvalid:
            return JSON
    type_ = _regular(values.type)
    if stored_nested(decided(type_)) is None or _may_be_rounded_inside(values):
        return JSON
    return type_


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
    return may_be_rounded([values])


def may_be_rounded(columns: Iterable[pa.Array]) -> bool:
    """Whether some float may stand for a whole number that no float holds."""
    floats = (values for values in columns if pa.types.is_float64(values.type))
    return any(pc.any(pc.greater_equal(pc.abs(values), EXACT_MAX)).as_py() for values in floats)


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
