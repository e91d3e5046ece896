"""Sorting whole numbers, and finding the places of ascending ones.

Purpose
    Positions, codes and ticks are put in order by the hundred thousand while a pattern is looked up
    or a batch is stored.  NumPy sorts words several times as fast as it finds a stable order of
    them, and thirty times as fast as it finds the distinct ones, for which it hashes.  What is here
    gives the same answers by sorting words of value and place, in vector instructions::

        values   7 3 7 1      words   7|0 3|1 7|2 1|3      sorted   1|3 3|1 7|0 7|2

    Where value and place do not fit into one word, values are put in any order first, and the
    number of each, among those that differ, stands for it.

    Places of many numbers that ascend themselves are found in one pass over both.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .native import kernel

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[Any]

SMALL = 512
"""So few are as fast in NumPy's own stable order."""
DENSE = 8
"""Numbers that lie among less than so many times as many are counted, not compared."""
SPARSE = 64
"""Numbers that are looked for among more than so many times as many are looked for one by one."""
QUARTERS = 4
"""Searches that are interleaved to overlap memory latency."""
INT64_MIN = -(2**63)


def order_of(*columns: Words) -> Ints:
    """Places of rows in ascending order; equal ones stay in the order that they have.

    Parameters
    ----------
    columns : integers[n]
        The last one decides, the one before it where that is equal, and so on.

    Returns
    -------
    int64[n]
    """
    order = None
    for column in columns:
        ordered = column if order is None else column[order]
        if np.all(ordered[1:] >= ordered[:-1]):
            continue
        order = _order(ordered) if order is None else order[_order(ordered)]
    return np.arange(len(columns[0])) if order is None else order


def _order(values: Words) -> Ints:
    count = len(values)
    if count <= SMALL:
        return np.argsort(values, kind="stable")
    bits = (count - 1).bit_length()
    least = values.min()
    span = int(values.max()) - int(least)
    if span < DENSE * count:
        codes = np.subtract(values, least, dtype=np.int64, casting="unsafe")
        return counted_order(codes, span + 1)[0]
    if span.bit_length() + bits < 64:
        return _places(np.subtract(values, least, dtype=np.int64, casting="unsafe"), bits)
    order = np.argsort(values)
    begins = _begins(values[order])
    return order if begins.all() else _places(np.cumsum(begins), bits, order)


def _places(values: Ints, bits: int, places: Ints | None = None) -> Ints:
    """The places of values below 2 ** (63 - bits), in the order of both; overwrites them."""
    values <<= bits
    values |= np.arange(len(values)) if places is None else places
    values.sort()
    values &= (1 << bits) - 1
    return values


@kernel
def _counting_sort(codes, offsets, order):  # type: ignore[no-untyped-def]
    for i in range(codes.shape[0]):
        offsets[codes[i] + 1] += 1
    for g in range(1, offsets.shape[0]):
        offsets[g] += offsets[g - 1]
    cursor = offsets.copy()
    for i in range(codes.shape[0]):
        code = codes[i]
        order[cursor[code]] = i
        cursor[code] += 1


def counted_order(codes: Ints, count: int) -> tuple[Ints, Ints]:
    """Places of codes below ``count`` in ascending order (stable), and ``count + 1`` offsets of the
    codes in it.
    """
    offsets = np.zeros(count + 1, np.int64)
    order = np.empty(len(codes), np.int64)
    _counting_sort(codes, offsets, order)
    return order, offsets


def distinct(values: Words) -> Words:
    """The values, ascending, each once; as ``np.unique`` without hashing them."""
    ordered = np.sort(values)
    return ordered[_begins(ordered)]


def firsts(values: Words) -> tuple[Words, Ints]:
    """The values, ascending, each once, and where each is first."""
    order = order_of(values)
    ordered = values[order]
    begins = _begins(ordered)
    return ordered[begins], order[begins]


def numbered(values: Words) -> tuple[Words, Ints]:
    """The values, ascending, each once, and for each place which of them stands there."""
    order = order_of(values)
    ordered = values[order]
    begins = _begins(ordered)
    numbers = np.empty(len(values), np.int64)
    numbers[order] = np.cumsum(begins) - 1
    return ordered[begins], numbers


@kernel
def first_at_least(values, low, high, wanted):  # type: ignore[no-untyped-def]
    """The first place of an ascending range with a value of at least ``wanted``; else ``high``."""
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


def places_in(values: Ints, wanted: Ints, side: Literal["left", "right"] = "left") -> Ints:
    """As ``np.searchsorted``; several times as fast for many numbers that ascend themselves.

    Parameters
    ----------
    values : int64[n]
        Ascending.
    wanted : int64[m]
    """
    if len(wanted) <= SMALL or len(values) > SPARSE * len(wanted):
        return np.searchsorted(values, wanted, side=side)
    if np.any(wanted[1:] < wanted[:-1]):
        return np.searchsorted(values, wanted, side=side)
    places = np.empty(len(wanted), np.int64)
    _search(np.ascontiguousarray(values), np.ascontiguousarray(wanted), side == "right", places)
    return places


@kernel
def _search(values, wanted, right, places):  # type: ignore[no-untyped-def]
    """For each number how many values are below it, or not above it (``right``).  Advances in
    steps of 32, then a branchless binary search; four interleaved parts overlap memory accesses.
    """
    one = np.uint64(1)
    size = np.uint64(values.size)
    quarter = wanted.size // QUARTERS
    reached = np.zeros(QUARTERS, np.uint64)
    for part in range(1, QUARTERS):
        if quarter:
            reached[part] = np.searchsorted(values, wanted[part * quarter])
    for step in range(quarter + wanted.size % QUARTERS):
        for part in range(QUARTERS):
            if step >= quarter and part < QUARTERS - 1:
                continue  # the last part has the remainder
            j = part * quarter + step
            number = wanted[j]
            place = reached[part]
            if not right:
                if number == INT64_MIN:
                    places[j] = 0
                    continue
                number -= 1
            while place + np.uint64(32) <= size and values[place + np.uint64(31)] <= number:
                place += np.uint64(32)
            if place + np.uint64(32) <= size:
                place += np.uint64(16) * np.uint64(values[place + np.uint64(15)] <= number)
                place += np.uint64(8) * np.uint64(values[place + np.uint64(7)] <= number)
                place += np.uint64(4) * np.uint64(values[place + np.uint64(3)] <= number)
                place += np.uint64(2) * np.uint64(values[place + one] <= number)
                place += np.uint64(values[place] <= number)
            else:
                while place < size and values[place] <= number:
                    place += one
            reached[part] = place
            places[j] = place


def _begins(ordered: Words) -> npt.NDArray[np.bool_]:
    """Where a value is not the one before."""
    begins = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    return begins
