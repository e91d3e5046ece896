"""Dense codes for partition keys, stable across batches, and stable grouping by counting sort.
Keys are equal as in GROUP BY: nulls, zeros of both signs, and all NaNs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.native import kernel
from ..conditions.key_values import comparable
from .columns import flat

__all__ = ["KeyCodes", "group_rows", "present_groups", "take_ranges"]

IntArray = npt.NDArray[np.int64]


class _Codes:
    def __init__(self) -> None:
        self.known: pa.Array | None = None

    def encode(self, column: pa.Array) -> IntArray:
        encoded = pc.dictionary_encode(comparable(column), null_encoding="encode")
        fresh = encoded.dictionary
        if self.known is None:
            self.known = fresh
            codes = np.arange(len(fresh), dtype=np.int64)
        else:
            found = pc.index_in(fresh, value_set=self.known)
            missing = found.is_null()
            codes = found.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
            absent = np.flatnonzero(missing.to_numpy(zero_copy_only=False))
            if len(absent):
                codes[absent] = len(self.known) + np.arange(len(absent))
                self.known = pa.concat_arrays([self.known, fresh.take(pa.array(absent))])
        indices = encoded.indices.to_numpy(zero_copy_only=False)
        return codes[indices] if len(codes) else np.zeros(0, np.int64)


class KeyCodes:
    """Codes of partition keys of one or more columns."""

    def __init__(self, columns: int) -> None:
        self.columns = [_Codes() for _ in range(columns)]
        self.pairs = [_Codes() for _ in range(columns - 1)]
        self.count = 0

    def encode(self, keys: list[pa.ChunkedArray]) -> IntArray:
        """Dense codes of the rows of a batch; ``count`` is the number of codes so far."""
        codes = self.columns[0].encode(flat(keys[0]))
        known = self.columns[0]
        for i, key in enumerate(keys[1:]):
            other = self.columns[i + 1].encode(flat(key))
            pair = (codes << 31) | other
            known = self.pairs[i]
            codes = known.encode(pa.array(pair))
        self.count = len(known.known) if known.known is not None else 0
        return codes


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


def group_rows(codes: IntArray, count: int) -> tuple[IntArray, IntArray]:
    """Row numbers sorted by code, and ``count + 1`` offsets of the codes."""
    offsets = np.zeros(count + 1, np.int64)
    order = np.empty(len(codes), np.int64)
    _counting_sort(codes, offsets, order)
    return order, offsets


def present_groups(codes: IntArray, count: int) -> tuple[IntArray, IntArray, IntArray]:
    """Rows by code (stable), the codes that occur in ascending order, and their offsets."""
    if count == 1:
        return np.arange(len(codes)), codes[:1].copy(), np.array([0, len(codes)], np.int64)
    if len(codes) > count:
        order, offsets = group_rows(codes, count)
        some = np.flatnonzero(offsets[1:] > offsets[:-1])
        return order, some, np.append(offsets[some], len(codes))
    order = np.argsort(codes, kind="stable")
    in_order = codes[order]
    first = np.flatnonzero(np.diff(in_order, prepend=in_order[0] - 1))
    return order, in_order[first], np.append(first, len(codes)).astype(np.int64)


@kernel
def _fill_ranges(begin, end, out):  # type: ignore[no-untyped-def]
    at = 0
    for g in range(begin.shape[0]):
        for i in range(begin[g], end[g]):
            out[at] = i
            at += 1


def take_ranges(begin: IntArray, end: IntArray) -> IntArray:
    """Concatenation of the ranges ``begin[g] .. end[g]``."""
    total = int(np.maximum(end - begin, 0).sum())
    out = np.empty(total, np.int64)
    _fill_ranges(begin, end, out)
    return out
