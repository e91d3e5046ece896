"""Estimates by sampling how many pairs of events satisfy a band (``bands``).

Pairs within each of ``PIECES`` pieces are compared, restricted to the symbol's range of the column;
its other conditions count as independent.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...store.prune import Range
from .bands import Band
from .base_reader import read_arrays
from .coarse import CoarseMap
from .context import PlanContext
from .symbols import Symbol
from .terms import merged

__all__ = ["agreements"]

PIECES = 4
PIECE_EVENTS = 1024
LEAST = 1e-4
"""Smallest fraction that a sample of that size can show."""

Floats = npt.NDArray[np.float64]


def agreements(context: PlanContext, coarse: CoarseMap) -> dict[Band, float]:
    """Fraction of the pairs of events in each other's neighbourhood that fit, by band."""
    bands = context.pattern.bands
    if not bands or not len(coarse.allowed):
        return {}
    symbols = context.pattern.symbols
    columns = sorted({name for b in bands for name in (b.condition.source, b.condition.column)})
    fit = dict.fromkeys(bands, 0.0)
    asked = dict.fromkeys(bands, 0.0)
    for piece in _pieces(context, coarse, columns):
        for band in bands:
            one = band.condition
            here, there = piece[one.source], piece[one.column]
            if one.equal:
                found, pairs = _equal(here)
            else:
                earlier = _values(here, symbols[band.earlier], one.source)
                later = np.sort(_values(there, symbols[band.later], one.column))
                low, high = one.own(earlier, earlier)
                upto = np.searchsorted(later, high, side="right")
                found = float(np.maximum(upto - np.searchsorted(later, low), 0).sum())
                pairs = float(len(earlier)) * float(len(later))
            fit[band] += found
            asked[band] += pairs
    return {b: max(LEAST, fit[b] / asked[b]) if asked[b] else 1.0 for b in bands}


def _pieces(
    context: PlanContext, coarse: CoarseMap, columns: list[str]
) -> Iterator[dict[str, pa.Array]]:
    allowed = coarse.allowed
    middles = np.linspace(0, allowed.total - 1, 2 * PIECES + 1).astype(np.int64)[1::2]
    behind = np.cumsum(allowed.ends - allowed.starts)
    for middle in np.unique(middles).tolist():
        number = int(np.searchsorted(behind, middle, side="right"))
        at = int(allowed.ends[number]) - (int(behind[number]) - middle)
        first = max(0, at - PIECE_EVENTS // 2)
        yield context.memo.once(("piece", first, *columns), partial(_read, context, first, columns))


def _read(context: PlanContext, first: int, columns: list[str]) -> dict[str, pa.Array]:
    output = pa.schema([context.schema.arrow.field(name) for name in columns])
    end = min(context.total, first + PIECE_EVENTS)
    parts = [a for _, a in read_arrays(context.timeline, columns, output, first, end)]
    return {
        name: pa.concat_arrays([arrays[i] for arrays in parts]) for i, name in enumerate(columns)
    }


def _equal(array: pa.Array) -> tuple[float, float]:
    """Number of pairs of equal values, and of all pairs."""
    encoded = array.drop_null().dictionary_encode()
    counts = np.bincount(encoded.indices.to_numpy(zero_copy_only=False), minlength=1)
    return float((counts.astype(np.float64) ** 2).sum()), float(counts.sum()) ** 2


def _values(array: pa.Array, symbol: Symbol, column: str) -> Floats:
    some = array.drop_null()
    if pa.types.is_timestamp(some.type):
        some = some.cast(pa.int64())
    values: Floats = some.to_numpy(zero_copy_only=False).astype(np.float64)
    values = values[np.isfinite(values)]
    for item in merged(symbol.prune):
        if isinstance(item, Range) and item.column == column:
            low, high = (
                otherwise if not isinstance(bound, int | float) else float(bound)
                for bound, otherwise in ((item.low, -np.inf), (item.high, np.inf))
            )
            values = values[(values >= low) & (values <= high)]
    return values
