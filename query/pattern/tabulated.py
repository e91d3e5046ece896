"""Functions of several rows that have no instruction, such as ``A.name || B.name LIKE 'x%'``.

A buffer has few distinct values, so DuckDB computes the function for every combination, and the
search looks it up.  A *dimension* is a row that the function reads; its distinct values have codes
from 1, 0 for a missing row.  Cells are numbered ``(code 1 * size of dimension 2 + code 2) * ...``.
Only rows that pass the row-local conditions of their variables contribute values.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.sorting import numbered
from ...errors import ResourceLimit
from .binding import Navigation, RowExpression
from .scalar import evaluate_all

CELLS_MAX = 1 << 21
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Dimension:
    """A row that the function reads: expressions ``rows`` and their column ``names`` in it."""

    place: Navigation
    rows: tuple[RowExpression, ...]
    names: tuple[str, ...]
    current: bool


@dataclass(frozen=True)
class Tabulated:
    """A function ``sql`` over dimensions, for ``variable``; ``what``: for errors."""

    dimensions: tuple[Dimension, ...]
    sql: str
    type: pa.DataType
    variable: str
    what: str


@dataclass(frozen=True)
class Values:
    """Code of each row (0: cannot occur there), and distinct values by code; code 0 is null."""

    codes: IntArray
    columns: list[pa.Array]


def distinct_values(arrays: list[pa.Array], usable: BoolArray) -> Values:
    """Number the distinct combinations of some columns in the usable rows."""
    codes = np.zeros(len(usable), np.int64)
    for array in arrays:
        encoded = pc.dictionary_encode(array, null_encoding="encode")
        own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = codes * max(1, len(encoded.dictionary)) + own
        _, codes = numbered(codes)
    numbers, first, inverse = np.unique(codes[usable], return_index=True, return_inverse=True)
    out = np.zeros(len(usable), np.int64)
    out[usable] = inverse + 1
    taken = pa.array(
        np.concatenate([[0], np.flatnonzero(usable)[first]]),
        mask=np.arange(len(numbers) + 1) == 0,
    )
    return Values(out, [array.take(taken) for array in arrays])


def tabulate(table: Tabulated, values: list[Values]) -> tuple[pa.Array, BoolArray | None, str]:
    """All cells, a mask of failures (or None), and the first error; raises ResourceLimit."""
    sizes = [len(domain.columns[0]) for domain in values]
    total = prod(sizes)
    if total > CELLS_MAX:
        shown = " x ".join(f"{size - 1:,}" for size in sizes)
        raise ResourceLimit(
            f"the condition of {table.variable} needs {table.what}, which is computed ahead for "
            f"all values that occur together: {shown}, above {CELLS_MAX:,}; narrow the variables "
            "by conditions on one event, shorten the values (a prefix, a rounding), or compute "
            "them in a subquery"
        )
    columns = {}
    numbers = np.arange(total)
    step = total
    for dimension, domain, size in zip(table.dimensions, values, sizes, strict=True):
        step //= size
        chosen = pa.array(numbers // step % size)
        for name, array in zip(dimension.names, domain.columns, strict=True):
            columns[name] = array.take(chosen)
    arrays, failed, why = evaluate_all([table.sql], pa.table(columns))
    return arrays[0], failed[0], why
