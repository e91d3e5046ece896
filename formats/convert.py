"""Converting whole columns to the types of a stream, and finding the values that do not fit.

Purpose
    Whatever a reader produced (text from CSV, numbers from JSON, any type from Parquet) becomes
    the attribute's type here.  The fast way is one Arrow cast; only when it fails are the bad
    values looked for, by halving the set of distinct values.

Guarantee
    A conversion never changes a value silently: no integer wraps, no digits are cut off, no text
    is guessed at.  The exception is meant: ``float64`` to ``float32`` rounds, and so does decimal
    text to binary floats.

Layout
    text        becomes     by
    number      integers    decimal digits, a sign, ``.0`` allowed
    number      floats      decimal or scientific notation, nan, inf
    bool        bool        true, false, 1, 0 in any case
    times       timestamp   see ``times.py``
    date        date32      ISO date, or a time at midnight
    decimal     decimal128  digits that fit the scale
    binary      binary      base64
"""

from __future__ import annotations

import base64
import binascii
import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UnsupportedType
from .converted import Codes, Converted, flag
from .isotime import parse_iso
from .times import TimeRule, is_text
from .times import convert as convert_times
from .typenames import name_of_type

__all__ = ["FLOAT_TEXT", "INTEGER_TEXT", "convert", "flatten", "overflows"]

INTEGER_TEXT = r"^[+-]?\d+(\.0*)?$"
FLOAT_TEXT = r"^(?i:[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf|infinity))$"

_MISSING = "the value is missing, and the attribute is NOT NULL"


_LONG_NUMBER = re.compile(rb"[eE]\+?0*[3-9]\d|[eE]\+?0*\d{3}|\d{38}")


def overflows(table: pa.Table, data: bytes) -> bool:
    """Whether a reader of text made infinity of a number that is too great for its float."""
    if not any(
        pa.types.is_floating(column.type) and pc.any(pc.is_inf(column)).as_py()
        for column in table.columns
    ):
        return False
    return _LONG_NUMBER.search(data) is not None


def flatten(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One contiguous array; dictionaries decoded, views made plain strings."""
    array = column
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.large_string())
    return array


def convert(
    values: pa.Array, target: pa.DataType, *, rule: TimeRule | None = None, required: bool = False
) -> Converted:
    """Convert a column.

    Parameters
    ----------
    values : pyarrow.Array
        As given by :func:`flatten`.
    target : pyarrow.DataType
    rule : TimeRule, optional
        How numbers and text become timestamps; ISO text by default.
    required : bool
        Whether a null is a bad value.

    Raises
    ------
    UnsupportedType
        When no value of the one type can become the other.
    """
    type_ = values.type
    if pa.types.is_nested(type_):
        raise UnsupportedType(f"expected {name_of_type(target)}, found a column of {type_}")
    if pa.types.is_null(type_) and rule is not None:
        return convert_times(values.cast(pa.string()), rule, target, required=required)
    if pa.types.is_null(type_):
        result = Converted(pa.nulls(len(values), target))
    elif pa.types.is_timestamp(target) or rule is not None:
        rule = rule or TimeRule("iso")
        if type_ == target and not (required and values.null_count):
            return Converted(values)
        return convert_times(values, rule, target, required=required)
    elif type_ == target:
        result = Converted(values)
    elif is_text(type_):
        result = _from_text(values, target)
    else:
        result = _cast(values, target)
    if required and values.null_count:
        codes: Codes = result.codes if result.codes is not None else np.zeros(len(values), np.uint8)
        reasons = (*result.reasons, _MISSING)
        flag(codes, values.is_null().to_numpy(zero_copy_only=False), len(reasons))
        return Converted(result.values, codes, reasons)
    return result


def _expected(target: pa.DataType) -> str:
    name = name_of_type(target)
    if pa.types.is_integer(target):
        return f"a whole number ({name})"
    if pa.types.is_floating(target) or pa.types.is_decimal(target):
        return f"a number ({name})"
    if pa.types.is_boolean(target):
        return "true or false"
    if pa.types.is_date(target):
        return "a date such as 2018-08-01"
    if pa.types.is_binary(target) or pa.types.is_large_binary(target):
        return "base64 text"
    return name


def _outcome(values: pa.Array, bad: npt.NDArray[np.bool_], target: pa.DataType) -> Converted:
    if not bad.any():
        return Converted(values)
    return Converted(
        values, bad.astype(np.uint8), (f"expected {_expected(target)}, found {{value}}",)
    )


def _from_text(values: pa.Array, target: pa.DataType) -> Converted:
    if is_text(target):
        return Converted(values.cast(target))
    if pa.types.is_binary(target) or pa.types.is_large_binary(target):
        return _from_base64(values, target)
    if pa.types.is_date(target):
        times = parse_iso(values)
        days, rest = np.divmod(times.seconds, 86_400)
        nulls = values.is_null().to_numpy(zero_copy_only=False)
        good = times.ok & (rest == 0) & (times.nanos == 0)
        dates = pa.array(days.astype(np.int32), pa.int32(), mask=~good).cast(pa.date32())
        return _outcome(dates.cast(target), ~good & ~nulls, target)
    trimmed = pc.utf8_trim_whitespace(values)
    pattern = None
    if pa.types.is_integer(target):
        pattern = INTEGER_TEXT
    elif pa.types.is_floating(target) or pa.types.is_decimal(target):
        pattern = FLOAT_TEXT
    if pattern is None:
        return _cast(trimmed, target)
    plain = pc.replace_substring_regex(trimmed, r"^\+", "")
    if pa.types.is_integer(target):
        plain = pc.replace_substring_regex(plain, r"\.0*$", "")
    fits = pc.fill_null(pc.match_substring_regex(trimmed, pattern), True)
    if pc.all(fits).as_py() is False:
        plain = pc.if_else(fits, plain, pa.scalar(None, plain.type))
    result = _cast(plain, target)
    bad = ~fits.to_numpy(zero_copy_only=False)
    if result.codes is not None:
        bad |= result.codes != 0
    if pa.types.is_floating(target):  # infinity that was not written as such
        infinite = pc.and_(pc.is_inf(result.values), pc.match_substring_regex(plain, r"\d"))
        bad |= pc.fill_null(infinite, False).to_numpy(zero_copy_only=False)
    return _outcome(result.values, bad, target)


def _cast(values: pa.Array, target: pa.DataType) -> Converted:
    """One cast; when it fails, the distinct values that cause it become null."""
    try:
        found = values.cast(target)
        if pa.types.is_float32(target) and pa.types.is_float64(values.type):
            beyond = pc.and_(pc.is_inf(found), pc.is_finite(values))
            bad = pc.fill_null(beyond, False).to_numpy(zero_copy_only=False)
            return _outcome(found, bad, target)
        return Converted(found)
    except pa.ArrowNotImplementedError:
        raise UnsupportedType(
            f"expected {name_of_type(target)}, found a column of {values.type}"
        ) from None
    except pa.ArrowInvalid:
        pass
    encoded = values.dictionary_encode()
    distinct = encoded.dictionary
    good = np.ones(len(distinct), np.bool_)
    _find_bad(distinct, target, 0, good)
    kept = pc.if_else(pa.array(good), distinct, pa.scalar(None, distinct.type)).cast(target)
    indices = encoded.indices
    at = indices.fill_null(0).to_numpy(zero_copy_only=False)
    present = indices.is_valid().to_numpy(zero_copy_only=False)
    return _outcome(kept.take(indices), ~good[at] & present, target)


def _find_bad(
    values: pa.Array, target: pa.DataType, first: int, good: npt.NDArray[np.bool_]
) -> None:
    """Mark the values that do not cast, halving what fails."""
    try:
        values.cast(target)
    except pa.ArrowInvalid:
        if len(values) == 1:
            good[first] = False
            return
        half = len(values) // 2
        _find_bad(values.slice(0, half), target, first, good)
        _find_bad(values.slice(half), target, first + half, good)


def _from_base64(values: pa.Array, target: pa.DataType) -> Converted:
    out: list[bytes | None] = []
    bad = np.zeros(len(values), np.bool_)
    for at, text in enumerate(values.to_pylist()):
        try:
            out.append(None if text is None else base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError):
            out.append(None)
            bad[at] = True
    return _outcome(pa.array(out, target), bad, target)
