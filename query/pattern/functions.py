"""Functions of the stack machine: numeric functions, aggregate steps, and column loads.
Results equal DuckDB's: IEEE arithmetic, rounding half away from zero.  NULL never gets here.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.native import kernel, machine_operation
from .image import H_COLUMN

__all__ = [
    "ONE",
    "TO_FLOAT32",
    "TWO",
    "all_borrowed",
    "borrowed",
    "combine",
    "of_one",
    "of_two",
    "value_at",
]

(
    SQRT, FLOOR, CEIL, ROUND, TRUNC, LN, EXP, LOG10, LOG2, SIN, COS, TAN, ASIN, ACOS, ATAN, COT,
    DEGREES, RADIANS, TO_FLOAT32,
) = range(19)  # fmt: skip
# Aggregates
COUNT, SUM_I, SUM_F, MIN_I, MIN_F, MAX_I, MAX_F, ANY_I, ANY_F = range(9)
POWER, ATAN2, LOG, ROUND_TO, TRUNC_TO = range(5)

ONE = {
    "sqrt": SQRT, "floor": FLOOR, "ceil": CEIL, "ceiling": CEIL, "round": ROUND, "trunc": TRUNC,
    "ln": LN, "exp": EXP, "log": LOG10, "log10": LOG10, "log2": LOG2, "sin": SIN, "cos": COS,
    "tan": TAN, "asin": ASIN, "acos": ACOS, "atan": ATAN, "cot": COT, "degrees": DEGREES,
    "radians": RADIANS,
}  # fmt: skip
TWO = {
    "pow": POWER, "power": POWER, "atan2": ATAN2, "log": LOG, "round": ROUND_TO,
    "trunc": TRUNC_TO,
}  # fmt: skip


def _same(array: Any) -> Any:
    return array


@machine_operation(_same)
def borrowed(context, array):
    """The same array without its reference count, which costs an atomic operation per call.
    The caller must keep the array alive.
    """

    def code(target, builder, signature, arguments):
        held = target.make_array(signature.args[0])(target, builder, arguments[0])
        held.meminfo = held.meminfo.type(None)
        held.parent = held.parent.type(None)
        return held._getvalue()

    return array(array), code


@machine_operation(_same)
def all_borrowed(context, bundle):
    """A named tuple with every array ``borrowed``."""
    from numba.core import types

    def code(target, builder, signature, arguments):
        parts = []
        for i, kind in enumerate(signature.args[0]):
            part = builder.extract_value(arguments[0], i)
            if isinstance(kind, types.Array):
                held = target.make_array(kind)(target, builder, part)
                held.meminfo = held.meminfo.type(None)
                held.parent = held.parent.type(None)
                part = held._getvalue()
            parts.append(part)
        return target.make_tuple(builder, signature.return_type, parts)

    return bundle(bundle), code


@kernel
def of_one(which, x):
    """Function ``which`` of one number."""
    if which == SQRT:
        return np.sqrt(x)
    if which == FLOOR:
        return np.floor(x)
    if which == CEIL:
        return np.ceil(x)
    if which == ROUND:
        whole = np.floor(abs(x))
        return np.copysign(whole + 1.0 if abs(x) - whole >= 0.5 else whole, x)
    if which == TRUNC:
        return np.trunc(x)
    if which == LN:
        return np.log(x)
    if which == EXP:
        return np.exp(x)
    if which == LOG10:
        return np.log10(x)
    if which == LOG2:
        return np.log2(x)
    if which == SIN:
        return np.sin(x)
    if which == COS:
        return np.cos(x)
    if which == TAN:
        return np.tan(x)
    if which == ASIN:
        return np.arcsin(x)
    if which == ACOS:
        return np.arccos(x)
    if which == ATAN:
        return np.arctan(x)
    if which == COT:
        return 1.0 / np.tan(x)
    if which == DEGREES:
        return x * (180.0 / np.pi)
    if which == RADIANS:
        return x * (np.pi / 180.0)
    return np.float64(np.float32(x))


@kernel
def of_two(which, x, y):
    """Function ``which`` of two numbers."""
    if which == POWER:
        return x**y
    if which == ATAN2:
        return np.arctan2(x, y)
    if which == LOG:  # of y to the base x
        return np.log10(y) / np.log10(x)
    scale = 10.0 ** abs(y)
    scaled = x * scale if y >= 0.0 else x / scale
    if which == ROUND_TO:
        whole = np.floor(abs(scaled))
        moved = np.copysign(whole + 1.0 if abs(scaled) - whole >= 0.5 else whole, scaled)
    else:
        moved = np.trunc(scaled)
    result = moved / scale if y >= 0.0 else moved * scale
    if result - result != 0.0:  # not finite: too many digits
        return x if y >= 0.0 else 0.0
    return result


@kernel
def combine(kind, value_i, value_f, count, x_i, x_f):
    """Add a value to a running aggregate: (integer state, float state, overflow)."""
    if kind == SUM_I:
        total = value_i + x_i
        bad = (value_i ^ total) & (x_i ^ total) < 0
        return total, value_f, bad
    if kind == SUM_F:
        return value_i, value_f + x_f, False
    if count == 0:
        return x_i, x_f, False
    if kind == MIN_I:
        return min(value_i, x_i), value_f, False
    if kind == MAX_I:
        return max(value_i, x_i), value_f, False
    if kind == MIN_F:  # NaN is the greatest value
        return value_i, x_f if x_f < value_f or value_f != value_f else value_f, False
    if kind == MAX_F:
        return value_i, x_f if x_f > value_f or x_f != x_f else value_f, False
    return value_i, value_f, False


@kernel
def value_at(words, floats, column, where):
    """A value of a column: integer, float, and 1 if it is null, 2 if it cannot be computed."""
    entry = words[H_COLUMN] + 3 * column
    bits = words[entry + 1]
    if bits < 0 or (words[bits + (where >> 6)] >> (where & 63)) & 1:
        at = words[entry] + where
        return words[at], floats[at], np.int64(0)
    failed = words[entry + 2]
    if failed >= 0 and (words[failed + (where >> 6)] >> (where & 63)) & 1:
        return np.int64(0), 0.0, np.int64(2)
    return np.int64(0), 0.0, np.int64(1)
