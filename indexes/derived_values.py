"""Values derived from an event and those before it: expressions as data, and computing them.

Purpose
    :func:`evaluated` computes an expression of :mod:`.index_key` for whole columns at once, and
    says of which events the value is known.

Guarantee
    Numbers are those that a query computes for the same expression: doubles in the order that is
    written, 32-bit floats in their own precision, integers exactly or not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Node", "Number", "Operation", "Value", "evaluated", "previous"]

_WHOLE_MAX = 2.0**62
"""Integers are computed with while they, and what comes of them, are this small."""


@dataclass(frozen=True)
class Value:
    """A column of the event ``back`` places before, 0 for the event itself."""

    column: str
    back: int = 0


@dataclass(frozen=True)
class Number:
    """A literal."""

    value: int | float


@dataclass(frozen=True)
class Operation:
    """``+ - * /`` of two operands, ``-`` or ``ABS`` of one."""

    symbol: str
    operands: tuple[Node, ...]


Node = Value | Number | Operation


def previous(keys: list[pa.Array]) -> npt.NDArray[np.int64]:
    """Per event the place of the event before it with the same keys, -1 where there is none."""
    codes = np.zeros(len(keys[0]), np.int64)
    for key in keys:
        plain = key.dictionary_decode() if pa.types.is_dictionary(key.type) else key
        encoded = plain.dictionary_encode(null_encoding="encode")
        own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        _, codes = np.unique(codes * len(encoded.dictionary) + own, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    before = np.full(len(codes), -1, np.int64)
    same = codes[order[1:]] == codes[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    return before


def evaluated(
    tree: Node,
    columns: Mapping[str, pa.Array],
    before: npt.NDArray[np.int64] | None,
    whole: bool,
    count: int,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Values, and where they are known.

    Parameters
    ----------
    before : int64[n], optional
        Place of the event that PREV means; the one before without it.
    whole : bool
        Compute with 64-bit integers.
    """
    if isinstance(tree, Number):
        kind = np.int64 if whole else np.float64
        return np.full(count, tree.value, kind), np.ones(count, np.bool_)
    if isinstance(tree, Value):
        return _shifted(*_read(columns[tree.column], whole), before, tree.back)
    found = [evaluated(operand, columns, before, whole, count) for operand in tree.operands]
    known = np.logical_and.reduce([part[1] for part in found])
    parts = [part[0] for part in found]
    values = _operated(tree.symbol, parts)
    if whole:
        about = _operated(tree.symbol, [part.astype(np.float64) for part in parts])
        known &= np.abs(about) < _WHOLE_MAX
    return values, known


def _operated(symbol: str, parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    found: Any
    if symbol == "ABS":
        found = np.abs(parts[0])
    elif len(parts) == 1:
        found = -parts[0]
    elif symbol == "+":
        found = parts[0] + parts[1]
    elif symbol == "-":
        found = parts[0] - parts[1]
    elif symbol == "*":
        found = parts[0] * parts[1]
    else:
        found = parts[0] / parts[1]
    result: npt.NDArray[Any] = found
    return result


def _read(array: pa.Array, whole: bool) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    known = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    if array.null_count:
        filler = pa.array(np.zeros(1, np.int64)).cast(array.type)[0]
        array = array.fill_null(filler)
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    values = np.asarray(array.to_numpy(zero_copy_only=False))
    if whole:
        if values.dtype == np.uint64:
            known &= values < np.uint64(1 << 62)
        return values.astype(np.int64), known & (np.abs(values.astype(np.float64)) < _WHOLE_MAX)
    return (values if values.dtype == np.float32 else values.astype(np.float64)), known


def _shifted(
    values: npt.NDArray[Any],
    known: npt.NDArray[np.bool_],
    before: npt.NDArray[np.int64] | None,
    back: int,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Of each event what the event ``back`` places before it has."""
    if not back:
        return values, known
    if before is None:
        places = np.arange(len(values)) - back
    else:
        places = before
        for _ in range(back - 1):
            places = np.where(places < 0, -1, before[places])
    there = places >= 0
    return np.where(there, values[places], 0), there & known[places]
