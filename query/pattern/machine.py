"""The stack machine for conditions on the partial match: bytecode interpreter and trackers.  A
*column* is the state of a partial match: its length in the contiguous search, its thread in event
selection.  Trackers store the positions of FIRST and LAST and the running aggregates per column, so
a condition costs the same at any match length.

The *image* is one memory block: bytecode, constants, columns, and partial matches.  Compiled code
counts references for every array passed to a function, which costs more than a condition.  So all
inputs are 64-bit words of one block, with a second view of it as floats::

    header      | offsets and counts, by the H_ constants
    begin, code | bytecode: 4 words an instruction; condition i is begin[i] .. begin[i + 1]
    constants   | integers and floating-point numbers
    last, first | tracker slots: (set of variables, steps)
    sums        | running aggregates: (set of variables, kind, column)
    label       | per position: code of its variable's name; then number of its variable
    member      | sets x positions: 0 or 1
    columns     | per column: offset of its values, of its validity bits (-1: all valid), of the
                | bits of values that could not be computed (-1: none)
    stack       | integer, number and null mark of each value but the topmost
    values ...  | one word a row; validity: one bit a row
    path        | rows of `stride` words, one word a column of the search: position, parent, row by
                | depth; one row per last slot, first slot, set (count of rows), aggregate (state)
                | and aggregate (count of values)

Functions are numeric functions, aggregate steps, and column loads.  Results equal DuckDB's: IEEE
arithmetic, rounding half away from zero.  The functions never get NULL.
"""

# ruff: noqa: SIM109
# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.native import kernel, machine_operation

IntArray = npt.NDArray[np.int64]

(
    H_CODE, H_BEGIN, H_CONST, H_LAST, H_LAST_N, H_FIRST, H_FIRST_N, H_SUM, H_SUM_N, H_LABEL,
    H_MEMBER, H_SETS, H_PLACES, H_COLUMN, H_STACK, H_PATH, H_STRIDE, H_CONDITIONS,
) = range(18)  # fmt: skip
HEADER = 24
ROW_PLACE, ROW_PARENT, ROW_ROW, ROW_LAST = 0, 1, 2, 3


def _bits(valid: npt.NDArray[np.bool_]) -> IntArray:
    packed = np.packbits(valid, bitorder="little")
    out = np.zeros((len(valid) + 63) // 64 * 8, np.uint8)
    out[: len(packed)] = packed
    return out.view(np.int64)


def build_image(
    arrays: dict[str, IntArray],
    constants: IntArray,
    label: IntArray,
    member: npt.NDArray[np.bool_],
    columns: list[tuple[Any, ...]],
) -> IntArray:
    """Lay out everything except the path.  ``constants``: floats by their bits.  ``columns``:
    (values, valid) or (values, valid, failed); failed values are not valid, and an error when read.
    """
    header = np.zeros(HEADER, np.int64)
    parts: list[IntArray] = [header]
    at = HEADER

    def add(which: int, values: Any) -> int:
        nonlocal at
        words = np.ascontiguousarray(values).reshape(-1).view(np.int64)
        offset = at
        if which >= 0:
            header[which] = offset
        parts.append(words)
        at += len(words)
        return offset

    add(H_BEGIN, arrays["begin"])
    add(H_CODE, arrays["code"])
    add(H_CONST, constants)
    add(H_LAST, arrays["last_slot"])
    add(H_FIRST, arrays["first_slot"])
    add(H_SUM, arrays["sum_slot"])
    add(H_LABEL, label)
    add(H_MEMBER, member.astype(np.int64))
    table = np.full(3 * len(columns), -1, np.int64)
    add(H_COLUMN, table)
    # a condition has at most as many values on the stack as instructions, and one below them
    depth = int(np.diff(arrays["begin"]).max(initial=0)) + 1
    add(H_STACK, np.zeros(3 * depth, np.int64))
    header[H_LAST_N] = len(arrays["last_slot"])
    header[H_FIRST_N] = len(arrays["first_slot"])
    header[H_SUM_N] = len(arrays["sum_slot"])
    header[H_SETS], header[H_PLACES] = member.shape
    header[H_CONDITIONS] = len(arrays["begin"]) - 1
    entries = parts[9]
    for i, (values, *marks) in enumerate(columns):
        entries[3 * i] = add(-1, values)
        for k, mark in enumerate(marks):
            if mark is not None:
                entries[3 * i + 1 + k] = add(-1, _bits(mark))
    header[H_PATH] = at
    return np.concatenate(parts)


def path_rows(image: IntArray) -> int:
    slots = image[H_LAST_N] + image[H_FIRST_N] + image[H_SETS] + 2 * image[H_SUM_N]
    return int(ROW_LAST + slots)


def with_path(image: IntArray, columns: int) -> IntArray:
    path = int(image[H_PATH])
    out = np.zeros(path + path_rows(image) * columns, np.int64)
    out[:path] = image[:path]
    out[H_STRIDE] = columns
    return out


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


# Bytecode: what pushes a value; what changes the one on top; jumps (over instructions) and logic;
# two operands
(
    LOAD_I, LOAD_F, LABEL, CONST_I, CONST_F, CONST_NULL, AGG_I, AGG_F, NUMBER,
    NEG_F, ABS_F, CALL_F, CELL, FIT, TO_F, TO_I, NEG_I, ABS_I,
    NOT, IS_NULL, JUMP, JUMP_NOT_TRUE, JUMP_NOT_NULL, AND, OR,
    LEAST_I, LEAST_F, GREATEST_I, GREATEST_F,
    LT_F, LE_F, EQ_F, LT_I, LE_I, EQ_I,
    ADD_F, SUB_F, MUL_F, DIV_F, MOD_F, CALL2_F, ADD_I, SUB_I, MUL_I, DIV_I, MOD_I,
) = range(46)  # fmt: skip


@kernel
def aggregate_with(words, floats, slot, state, include, row):
    """An aggregate including the current row: integer and float state, count, overflow."""
    spec = words[H_SUM] + 3 * slot
    kind = words[spec + 1]
    a = words[state]
    f = floats[state]
    n = words[state + words[H_SUM_N] * words[H_STRIDE]]
    if not include:
        return a, f, n, False
    x_i = np.int64(0)
    x_f = 0.0
    source = words[spec + 2]
    if source >= 0:
        entry = words[H_COLUMN] + 3 * source
        bits = words[entry + 1]
        if bits >= 0 and (words[bits + (row >> 6)] >> (row & 63)) & 1 == 0:
            failed = words[entry + 2]
            bad = failed >= 0 and (words[failed + (row >> 6)] >> (row & 63)) & 1 == 1
            return a, f, n, bad
        x_i = words[words[entry] + row]
        x_f = floats[words[entry] + row]
    if kind == COUNT:
        return a, f, n + 1, False
    a, f, bad = combine(kind, a, f, n, x_i, x_f)
    return a, f, n + 1, bad


@kernel
def begin_path(words):
    """Initialise column 0: nothing matched yet."""
    path = words[H_PATH]
    stride = words[H_STRIDE]
    slots = words[H_LAST_N] + words[H_FIRST_N]
    total = ROW_LAST + slots + words[H_SETS] + 2 * words[H_SUM_N]
    for r in range(total):
        words[path + r * stride] = -1 if ROW_LAST <= r < ROW_LAST + slots else 0


@kernel
def extend_path(words, floats, column, new, depth, place, row):
    """Column ``new``: ``column`` plus ``row`` at index ``depth``.  True when a sum overflows."""
    stride = words[H_STRIDE]
    at = words[H_PATH] + ROW_LAST * stride
    places = words[H_PLACES]
    member = words[H_MEMBER] + place
    spec = words[H_LAST]
    for _ in range(words[H_LAST_N]):
        if words[member + words[spec] * places]:
            # slots of a set are adjacent: the previous slot is one step less
            words[at + new] = depth if words[spec + 1] == 0 else words[at - stride + column]
        else:
            words[at + new] = words[at + column]
        at += stride
        spec += 2
    spec = words[H_FIRST]
    counts = at + words[H_FIRST_N] * stride
    for _ in range(words[H_FIRST_N]):
        value = words[at + column]
        chosen = words[spec]
        if (
            value < 0
            and words[member + chosen * places]
            and words[counts + chosen * stride + column] == words[spec + 1]
        ):
            value = depth
        words[at + new] = value
        at += stride
        spec += 2
    if words[H_FIRST_N]:  # only FIRST needs counts
        for s in range(words[H_SETS]):
            words[at + new] = words[at + column] + words[member + s * places]
            at += stride
    else:
        at += words[H_SETS] * stride
    bad = False
    sums = words[H_SUM_N]
    spec = words[H_SUM]
    for s in range(sums):
        include = words[member + words[spec + 3 * s] * places] != 0
        a, f, n, overflow = aggregate_with(words, floats, s, at + column, include, row)
        kind = words[spec + 3 * s + 1]
        if kind == SUM_F or kind == MIN_F or kind == MAX_F or kind == ANY_F:
            floats[at + new] = f
        else:
            words[at + new] = a
        words[at + sums * stride + new] = n
        at += stride
        bad |= overflow
    return bad


@kernel
def holds(words, floats, which, column, depth, place, row, begin, end, number, threads):
    """Whether a condition holds for ``row`` as the next of a partial match: 1, 0, -1 (integer
    overflow) or -2 (a value could not be computed).  ``threads``: columns are threads with parents,
    not lengths.
    """
    stride = words[H_STRIDE]
    path = words[H_PATH]
    last = path + ROW_LAST * stride + column
    first = last + words[H_LAST_N] * stride
    counts = first + words[H_FIRST_N] * stride
    sums = counts + words[H_SETS] * stride
    constants = words[H_CONST]
    stack = words[H_STACK]
    code = words[H_CODE]
    at = code + 4 * words[words[H_BEGIN] + which]
    stop = code + 4 * words[words[H_BEGIN] + which + 1]
    # The value on top is in variables, the others in memory: integer, number, null mark
    i = np.int64(0)
    f = 0.0
    null = np.int64(0)
    lowest = np.int64(-9223372036854775808)
    while at < stop:
        op = words[at]
        a = words[at + 1]
        b = words[at + 2]
        c = words[at + 3]
        at += 4
        if op <= NUMBER:  # push; the first push saves an unused value
            words[stack] = i
            floats[stack + 1] = f
            words[stack + 2] = null
            stack += 3
            null = 0
            if op <= LABEL:
                # b: -1 the current row; even: LAST slot, odd: FIRST slot.  c: shift.  LABEL: a = 0
                # gives the code of the name, 1 the number of the variable
                index = depth
                if b >= 0:
                    slot = b >> 2
                    include = (b >> 1) & 1
                    if b & 1:
                        index = words[first + slot * stride]
                        spec = words[H_FIRST] + 2 * slot
                        if (
                            index < 0
                            and include
                            and words[counts + words[spec] * stride] == words[spec + 1]
                        ):
                            index = depth
                    elif include:
                        if words[words[H_LAST] + 2 * slot + 1] > 0:
                            index = words[last + (slot - 1) * stride]
                    else:
                        index = words[last + slot * stride]
                null = 1
                if index < 0:
                    continue
                where = c + (row if index == depth else words[path + ROW_ROW * stride + index])
                if op == LABEL:
                    if c != 0:  # only rows of the match have a label
                        near = max(0, index - abs(c))
                        far = min(depth, index + abs(c) + 1)
                        index = depth if where == row else np.int64(-1)
                        for k in range(near, far):
                            if words[path + ROW_ROW * stride + k] == where:
                                index = k
                        if index < 0:
                            continue
                    reached = place
                    if index < depth:
                        walk = index + 1
                        if threads:
                            walk = column
                            for _ in range(depth - index - 1):
                                walk = words[path + ROW_PARENT * stride + walk]
                        reached = words[path + walk]
                    i = words[words[H_LABEL] + a * words[H_PLACES] + reached]
                    null = 0
                    continue
                if where < begin or where >= end:
                    continue
                i, f, null = value_at(words, floats, a, where)
                if null == 2:
                    return -2
            elif op <= CONST_F:
                i = words[constants + a]
                f = floats[constants + a]
            elif op == CONST_NULL:
                null = 1
            elif op == NUMBER:
                i = number
            else:
                i, f, n, bad = aggregate_with(words, floats, a, sums + a * stride, b == 1, row)
                if bad:
                    return -1
                if words[words[H_SUM] + 3 * a + 1] == COUNT:
                    i = n
                elif n == 0:
                    null = 1
        elif op >= LT_F:  # two operands; b: the right one is a constant
            x_i = i
            x_f = f
            if b:
                i = words[constants + a]
                f = floats[constants + a]
            else:
                stack -= 3
                x_i = words[stack]
                x_f = floats[stack + 1]
                null |= words[stack + 2]
            if null:
                continue
            if op <= EQ_I:
                if op == LT_F:
                    truth = x_f < f or (f != f and x_f == x_f)
                elif op == LE_F:
                    truth = x_f <= f or f != f
                elif op == EQ_F:
                    truth = x_f == f or (x_f != x_f and f != f)
                elif op == LT_I:
                    truth = x_i < i
                elif op == LE_I:
                    truth = x_i <= i
                else:
                    truth = x_i == i
                i = 1 if truth else 0
            elif op == ADD_F:
                f = x_f + f
            elif op == SUB_F:
                f = x_f - f
            elif op == MUL_F:
                f = x_f * f
            elif op == DIV_F:
                f = x_f / f
            elif op == MOD_F:
                f = np.fmod(x_f, f)
            elif op == CALL2_F:
                f = of_two(c, x_f, f)
            elif op == ADD_I:
                z = x_i + i
                if (x_i ^ z) & (i ^ z) < 0:
                    return -1
                i = z
            elif op == SUB_I:
                z = x_i - i
                if (x_i ^ i) & (x_i ^ z) < 0:
                    return -1
                i = z
            elif op == MUL_I:
                z = x_i * i
                if x_i != 0 and ((x_i == -1 and i == lowest) or z // x_i != i):
                    return -1
                i = z
            else:  # division toward zero; the sign of a remainder is the dividend's
                if i == 0:
                    return -1
                q = -x_i
                z = np.int64(0)
                if i == -1:
                    if op == DIV_I and x_i == lowest:
                        return -1
                else:
                    q = x_i // i
                    z = x_i - q * i
                    if z != 0 and (z < 0) != (x_i < 0):
                        q += 1
                        z -= i
                i = q if op == DIV_I else z
        elif op >= NOT:
            if op == NOT:
                i = 1 - i
            elif op == IS_NULL:
                i = null
                null = 0
            elif op == JUMP:
                at += 4 * a
            elif op == AND or op == OR:
                stack -= 3
                x = -1 if words[stack + 2] else words[stack]
                y = -1 if null else i
                decisive = 0 if op == AND else 1
                null = 0
                if x == decisive or y == decisive:
                    i = decisive
                elif x < 0 or y < 0:
                    null = 1
                else:
                    i = 1 - decisive
            elif op >= LEAST_I:  # nulls are ignored
                stack -= 3
                less = words[stack] < i
                if op == LEAST_F or op == GREATEST_F:
                    x_f = floats[stack + 1]
                    less = x_f < f or (f != f and x_f == x_f)
                if null or (words[stack + 2] == 0 and less == (op <= LEAST_F)):
                    i = words[stack]
                    f = floats[stack + 1]
                    null = words[stack + 2]
            else:  # JUMP_NOT_TRUE drops the value, JUMP_NOT_NULL where it does not jump
                drop = True
                if op == JUMP_NOT_TRUE:
                    if null or i == 0:
                        at += 4 * a
                elif op == JUMP_NOT_NULL and not null:
                    at += 4 * a
                    drop = False
                if drop:
                    stack -= 3
                    i = words[stack]
                    f = floats[stack + 1]
                    null = words[stack + 2]
        elif null:
            continue
        elif op == NEG_F:
            f = -f
        elif op == ABS_F:
            f = abs(f)
        elif op == CALL_F:
            f = of_one(a, f)
        elif op == CELL:  # indexed by the value on top
            i, f, null = value_at(words, floats, a, i)
            if null == 2:
                return -2
        elif op == FIT:  # an integer from a to b
            if i < a or i > b:
                return -1
        elif op == TO_F:
            f = np.float64(i)
        elif op == TO_I:
            rounded = np.rint(f)
            if not (rounded >= -9.223372036854775e18 and rounded <= 9.223372036854775e18):
                return -1
            i = np.int64(rounded)
        else:
            if i == lowest:
                return -1
            if op == NEG_I or i < 0:
                i = -i
    return 1 if null == 0 and i == 1 else 0
