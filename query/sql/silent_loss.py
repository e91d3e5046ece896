"""Conversions that the executor would do with silent loss: refused.

These are numbers beyond DOUBLE (read as infinity) and digits that a time type cannot hold
(``time_texts``).  Rounding to DECIMAL's digits and to integers, except the time, is allowed.
"""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ...schema import Attribute
from .dialect import error_at, position_of
from .sql_types import sql_type
from .time_texts import DIGITS

__all__ = ["check_literals", "is_text", "lost_by_cast"]


def check_literals(root: Any, text: str) -> None:
    """Raise SqlError for number literals that the executor would change."""
    for node in root.find_all(exp.Literal):
        if not node.is_string:
            _check_number(node, text)


def is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def lost_by_cast(
    column: str, given: pa.DataType, attribute: Attribute, is_time: bool
) -> tuple[str, str] | None:
    """SQL condition under which INSERT would lose information, and its message; else None."""
    type_ = attribute.type
    text = is_text(given)
    if pa.types.is_timestamp(type_):
        found = [f"isinf(TRY_CAST({column} AS {sql_type(type_)}))"]
        digits = DIGITS[type_.unit]
        if text:
            found.append(f"regexp_matches({column}, '{_finer_than(digits)}')")
        elif pa.types.is_timestamp(given) and DIGITS[given.unit] > digits:
            found.append(
                f"epoch_{given.unit}({column}) % {10 ** (DIGITS[given.unit] - digits)} <> 0"
            )
        return " OR ".join(found), f"the type {sql_type(type_)} cannot hold it"
    if pa.types.is_floating(type_) and text:
        infinite = f"isinf(CAST({column} AS {sql_type(type_)}))"
        named = f"regexp_full_match(lower(trim({column})), '[+-]?inf(inity)?')"
        return f"{infinite} AND NOT {named}", f"it is beyond what a {sql_type(type_)} holds"
    if is_time and not pa.types.is_integer(given):
        number = f"TRY_CAST({column} AS DECIMAL(38, 9))" if text else column
        return f"{number} <> CAST({column} AS {sql_type(type_)})", "times are whole numbers here"
    return None


def _finer_than(digits: int) -> str:
    return rf":\d\d[.,]\d{{{digits}}}\d*[1-9]"


def _check_number(node: Any, text: str) -> None:
    digits = str(node.this).replace("_", "")
    try:
        value = float(digits)
    except ValueError:
        return
    if math.isinf(value):
        shown = digits if len(digits) <= 20 else f"{digits[:8]}... ({len(digits)} characters)"
        raise error_at(
            text,
            position_of(node),
            f"the number {shown} is beyond what a DOUBLE holds (1.8e308); infinity is written "
            "'inf'::DOUBLE",
        )
