"""One memory block for the stack machine: bytecode, constants, columns, and partial matches.

Compiled code counts references for every array passed to a function, which costs more than a
condition.  So all inputs are 64-bit words of one block, with a second view of it as floats::

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
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["build_image", "with_path"]

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
