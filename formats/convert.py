"""Converting columns to the types of a stream, and finding the values that do not fit.

No value changes silently: no integer wraps, no digits are lost; only ``float64`` to ``float32`` and
decimal text to floats round.  If one Arrow cast fails, bisecting the distinct values finds the bad.

    text        to          accepted
    number      integers    decimal digits, a sign, ``.0``
    number      floats      decimal or scientific notation, nan, inf; where the type was inferred,
                            whole numbers only if exact
    bool        bool        true, false, 1, 0 in any case
    times       timestamp   see ``times.py``
    date        date32      ISO date, or a time at midnight
    decimal     decimal128  digits that fit the scale
    binary      binary      base64
    JSON        json        JSON text, without its white space
    JSON        nested      missing members are null; others, or values of another type, are bad

Times, dates and binaries inside of lists and structs are strings.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from ..core.json_text import REASONS, is_json, read_json
from ..core.nested_types import is_list, is_nested, rebuilt
from ..errors import UnsupportedType
from .decimals import GOOD, Codes, Converted, content, flag, parse_decimals
from .kinds import name_of_type
from .times import Offsets, TimeRule, is_text, parse_iso
from .times import convert as convert_times

EXACT_MAX = 2.0**53
"""Below this, a float64 stands for one whole number only."""
INTEGER_TEXT = r"^[+-]?\d+(\.0*)?$"
FLOAT_TEXT = r"^(?i:[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf|infinity))$"

_SAMPLE = 100
"""Values tried first: a failing Arrow cast of the whole column is expensive."""
_LONG_INTEGER = r"^[+-]?\d{16,}$"
_INEXACT = (
    "expected a number that a DOUBLE holds to the last digit, as the column was taken for one, "
    "found {value}; give the column a type: DECIMAL(38, s) keeps every digit, DOUBLE rounds"
)
_MISSING = "the value is missing, and the attribute is NOT NULL"


def flatten(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One contiguous array; dictionaries decoded, views and extension types made plain."""
    array = column
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    while True:
        if isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        elif pa.types.is_dictionary(array.type):
            array = flatten(array.dictionary).take(array.indices)
        elif pa.types.is_string_view(array.type):
            array = array.cast(pa.large_string())
        elif pa.types.is_binary_view(array.type):
            array = array.cast(pa.large_binary())
        else:
            return array


def decoded_bytes(array: pa.Array) -> int:
    """Bytes after ``flatten``, which may repeat dictionary or view values; valid arrays only."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        lengths = _value_bytes(array.dictionary)
        if lengths is None:
            return 0
        indices = array.indices.drop_null().to_numpy(zero_copy_only=False)
        return int(lengths[indices].sum())
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        lengths = _value_bytes(array)
        return 0 if lengths is None else int(lengths.sum())
    return 0


def _value_bytes(array: pa.Array) -> npt.NDArray[np.int64] | None:
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    type_ = array.type
    if pa.types.is_string_view(type_) or pa.types.is_binary_view(type_):
        views = np.frombuffer(array.buffers()[1], np.int32)[: 4 * (array.offset + len(array))]
        lengths = views.reshape(-1, 4)[array.offset :, 0].astype(np.int64)
        return np.where(array.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    if is_text(type_) or pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        lengths = pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)
        return np.asarray(lengths, np.int64)
    if pa.types.is_fixed_size_binary(type_):
        return np.full(len(array), type_.byte_width, np.int64)
    return None


def convert(
    values: pa.Array,
    target: pa.DataType,
    *,
    rule: TimeRule | None = None,
    required: bool = False,
    inferred: bool = False,
    offsets: Offsets | None = None,
) -> Converted:
    """Convert a flat column; ``rule`` is for timestamps, ISO by default.

    ``required``: a null is bad.  ``inferred``: the type is, from text, so integers that it cannot
    hold are bad.  UnsupportedType if no value could fit.
    """
    type_ = values.type
    if is_nested(target):
        return _nested(values, target, (rule or TimeRule("iso")).as_iso(), required, inferred)
    if pa.types.is_nested(type_):
        raise UnsupportedType(f"expected {name_of_type(target)}, found a column of {type_}")
    if is_json(target) and not (is_text(type_) or pa.types.is_null(type_)):
        raise UnsupportedType(f"expected JSON text, found a column of {type_}")
    if pa.types.is_null(type_) and rule is not None:
        return convert_times(values.cast(pa.string()), rule, target, required=required)
    if pa.types.is_null(type_):
        result = Converted(pa.nulls(len(values), target))
    elif pa.types.is_timestamp(target) or rule is not None:
        rule = rule or TimeRule("iso")
        local = rule.zone is not None and getattr(type_, "tz", None) is None
        if type_ == target and not local and not (required and values.null_count):
            return Converted(values)
        return convert_times(values, rule, target, required=required, offsets=offsets)
    elif type_ == target:
        result = Converted(values)
    elif is_text(type_):
        result = _from_text(values, target, inferred)
    else:
        result = _cast(values, target)
    return _required(values, result) if required else result


def _required(values: pa.Array, result: Converted) -> Converted:
    if not values.null_count:
        return result
    codes: Codes = result.codes if result.codes is not None else np.zeros(len(values), np.uint8)
    reasons = (*result.reasons, _MISSING)
    flag(codes, values.is_null().to_numpy(zero_copy_only=False), len(reasons))
    return Converted(result.values, codes, reasons)


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
    return Converted(values, bad.astype(np.uint8), (_expected_text(target),))


def _expected_text(target: pa.DataType) -> str:
    return f"expected {_expected(target)}, found {{value}}"


def _from_text(values: pa.Array, target: pa.DataType, inferred: bool) -> Converted:
    if is_text(target):
        return Converted(values.cast(target))
    if is_json(target):
        checked = read_json(values)
        return Converted(checked.values, checked.faults, () if checked.faults is None else REASONS)
    if pa.types.is_binary(target) or pa.types.is_large_binary(target):
        return _from_base64(values, target)
    if pa.types.is_date(target):
        times = parse_iso(values)
        days, rest = np.divmod(times.seconds, 86_400)
        nulls = values.is_null().to_numpy(zero_copy_only=False)
        good = times.ok & (rest == 0) & (times.nanos == 0)
        dates = pa.array(days.astype(np.int32), pa.int32(), mask=~good).cast(pa.date32())
        return _outcome(dates.cast(target), ~good & ~nulls, target)
    number = read_numbers(values, target)
    if number is not None and not (inferred and may_be_rounded(number)):
        return Converted(number)
    trimmed = pc.utf8_trim_whitespace(values)
    if pa.types.is_decimal(target):
        return _decimals_from_text(trimmed, target)
    whole = pa.types.is_integer(target)
    if not (whole or pa.types.is_floating(target)):
        return _cast(trimmed, target)
    fits = pc.match_substring_regex(trimmed, INTEGER_TEXT if whole else FLOAT_TEXT)
    fits = pc.fill_null(fits, True)
    digits = pc.replace_substring_regex(trimmed, r"^\+", "")
    if whole:
        digits = pc.replace_substring_regex(digits, r"\.0*$", "")
    result = _cast(pc.if_else(fits, digits, pa.scalar(None, digits.type)), target)
    bad = ~fits.to_numpy(zero_copy_only=False)
    if result.codes is not None:
        bad |= result.codes != 0
    if whole:
        return _outcome(result.values, bad, target)
    return _exact_floats(digits, result.values, bad, inferred)


def read_numbers(texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    """Texts as numbers by one cast; None if some has more than digits, signs, point, exponent."""
    if not (pa.types.is_integer(target) or pa.types.is_floating(target)):
        return None
    try:
        texts.slice(0, _SAMPLE).cast(target)
        values = texts.cast(target)
    except pa.ArrowInvalid:
        return None
    written = content(texts)
    letters = written[written > ord("9")]
    if letters.size and (pa.types.is_integer(target) or not np.isin(letters, (69, 101)).all()):
        return None
    if pa.types.is_floating(target) and pc.any(pc.is_inf(values)).as_py():
        return None
    return values


def may_be_rounded(values: pa.Array) -> bool:
    """Whether some float may stand for a whole number that no float holds."""
    large = pa.types.is_floating(values.type) and pc.greater_equal(pc.abs(values), EXACT_MAX)
    return bool(large is not False and pc.any(large).as_py())


def inexact_wholes(texts: pa.Array, values: pa.Array) -> npt.NDArray[np.bool_]:
    """Which numbers in text are whole numbers whose float value differs."""
    inexact = np.zeros(len(texts), np.bool_)
    long = pc.fill_null(pc.match_substring_regex(texts, _LONG_INTEGER), False)
    if not pc.any(long).as_py():
        return inexact
    at = np.flatnonzero(long.to_numpy(zero_copy_only=False))
    pairs = zip(texts.take(at).to_pylist(), values.take(at).to_pylist(), strict=True)
    inexact[at] = [
        value is not None and (not value.is_integer() or int(text) != int(value))
        for text, value in pairs
    ]
    return inexact


def _exact_floats(
    texts: pa.Array, values: pa.Array, bad: npt.NDArray[np.bool_], inferred: bool
) -> Converted:
    """Floats of texts; bad are those that are too large, and inexact ones if ``inferred``."""
    target = values.type
    infinite = pc.fill_null(pc.is_inf(values), False)
    if pc.any(infinite).as_py():
        written = pc.match_substring(texts, "inf", ignore_case=True)
        beyond = pc.and_(infinite, pc.invert(pc.fill_null(written, True)))
        values = pc.if_else(beyond, pa.scalar(None, target), values)
        bad |= beyond.to_numpy(zero_copy_only=False)
    lost = inexact_wholes(texts, values) if inferred else np.zeros(len(values), np.bool_)
    if not lost.any():
        return _outcome(values, bad, target)
    codes = np.where(bad, 1, np.where(lost, 2, 0)).astype(np.uint8)
    values = pc.if_else(pa.array(lost), pa.scalar(None, target), values)
    return Converted(values, codes, (_expected_text(target), _INEXACT))


def _decimals_from_text(texts: pa.Array, target: pa.DataType) -> Converted:
    parsed_decimals = parse_decimals(texts, target.scale, target.precision)
    nulls = texts.is_null().to_numpy(zero_copy_only=False)
    return _outcome(parsed_decimals.values, (parsed_decimals.status != GOOD) & ~nulls, target)


def _cast(values: pa.Array, target: pa.DataType) -> Converted:
    """One cast; if it fails, the distinct values that cause it become null."""
    if pa.types.is_decimal(target) and pa.types.is_integer(values.type):
        return _decimals_from_text(values.cast(pa.string()), target)
    if pa.types.is_floating(target) and pa.types.is_decimal(values.type):
        values = values.cast(pa.string())  # the nearest number, which Arrow's own cast misses
    try:
        cast = values.cast(target)
        if pa.types.is_float32(target) and pa.types.is_float64(values.type):
            beyond = pc.fill_null(pc.and_(pc.is_inf(cast), pc.is_finite(values)), False)
            return _outcome(cast, beyond.to_numpy(zero_copy_only=False), target)
        return Converted(cast)
    except pa.ArrowNotImplementedError:
        raise UnsupportedType(
            f"expected {name_of_type(target)}, found a column of {values.type}"
        ) from None
    except pa.ArrowInvalid:
        pass
    encoded = values.dictionary_encode()
    converted, good = _by_halves(encoded.dictionary, target, lambda part: part.cast(target))
    indices = encoded.indices
    at = indices.fill_null(0).to_numpy(zero_copy_only=False)
    present = indices.is_valid().to_numpy(zero_copy_only=False)
    return _outcome(converted.take(indices), ~good[at] & present, target)


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


# ------------------------------------------------------------------------------ lists and structs

_DIRECT = ("bool", "int", "uint", "float", "double", "decimal", "string", "large_string")


class _Bad(Exception):
    """Some value does not fit the type."""


def _nested(
    values: pa.Array, target: pa.DataType, times: TimeRule, required: bool, inferred: bool
) -> Converted:
    """Lists and structs, or their JSON text, in a type of the same shape."""

    def leaf(part: pa.Array, wanted: pa.DataType) -> pa.Array:
        rule = times if pa.types.is_timestamp(wanted) else None
        converted = convert(flatten(part), wanted, rule=rule)
        if converted.bad or (inferred and may_be_rounded(part)):
            raise _Bad
        return converted.values

    def read(text: pa.Array) -> pa.Array:
        return rebuilt(parsed(text, parsed_as), target, leaf) if len(text) else pa.nulls(0, target)

    if is_text(values.type):
        parsed_as = _parsed_as(target)
        text, faults = read_json(values)
        converted, good = _by_halves(text.storage, target, read)
        if faults is None:
            result = _outcome(converted, ~good, target)
        else:
            codes = np.where(faults != 0, faults + 1, ~good)
            result = Converted(converted, codes, (_expected_text(target), *REASONS))
    else:
        try:
            converted, good = _by_halves(values, target, lambda part: rebuilt(part, target, leaf))
        except TypeError as error:
            raise UnsupportedType(f"expected {name_of_type(target)}, found {error}") from None
        result = _outcome(converted, ~good, target)
    return _required(values, result) if required else result


def _parsed_as(type_: pa.DataType) -> pa.DataType:
    if is_list(type_):
        return pa.list_(_parsed_as(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(each.name, _parsed_as(each.type)) for each in type_])
    return type_ if str(type_).startswith(_DIRECT) else pa.string()


def _by_halves(
    values: pa.Array, type_: pa.DataType, read: Callable[[pa.Array], pa.Array]
) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Values read together, in halves where that fails; null where a value alone does."""
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


def parsed(text: pa.Array, type_: pa.DataType | None = None) -> pa.Array:
    """JSON text parsed by Arrow as ``type_``, without additional members, or inferred."""
    large = pa.large_string()
    ends = (pa.scalar(end, large) for end in ('{"v":', "}\n", ""))
    before, after, nothing = ends
    values = pc.fill_null(text, "null").cast(large)
    body = pa.py_buffer(content(pc.binary_join_element_wise(before, values, after, nothing)))
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
