"""Localised numbers: ``plain_numbers`` rewrites ``1.234,56`` as ``1234.56``, still as text.

Only regular groups of three with one separator are joined, without a leading zero.  With a decimal
comma ``1.5`` is not a number.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from .convert import FLOAT_TEXT
from .infer import NUMERIC_SHARE

__all__ = ["decimal_of", "is_number", "kept_as_text", "plain_numbers", "way_out"]

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
