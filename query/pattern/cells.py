"""Functions of several rows' values, computed for all values that occur before the matcher runs.

Purpose
    The stack machine has no instruction for ``A.name || B.name LIKE 'x%'``.  But in a buffer of
    rows few values occur: DuckDB computes the function for every combination of them, and the
    matcher looks the answer up.  So any scalar function may be used over the columns of different
    variables.

Layout
    A :class:`Tabulated` function has a *dimension* per row that it reads (the current one, the last
    of A, ...).  A column of codes numbers the distinct values of a dimension, 0 for a row that is
    missing; the cells are a column too, numbered ``(code of dimension 1 * size of dimension 2 +
    code of dimension 2) * ...``.

Guarantee
    Only values of rows that can stand in their place count: those that pass the row-local
    conditions of their variables.

Limits
    :data:`CELLS_MAX` combinations in one buffer of rows; beyond that the query ends with a
    ResourceLimit that names the function.
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

__all__ = ["CELLS_MAX", "Dimension", "Tabulated", "Values", "tabulate"]

CELLS_MAX = 1 << 21
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Dimension:
    """A row that the function reads.

    Attributes
    ----------
    place : Navigation
        Which row.
    rows : tuple of RowExpression
        What is read there.
    names : tuple of str
        The columns of the function that stand for these.
    current : bool
        Whether it is the row that is being tried.
    """

    place: Navigation
    rows: tuple[RowExpression, ...]
    names: tuple[str, ...]
    current: bool


@dataclass(frozen=True)
class Tabulated:
    """A function over dimensions.

    Attributes
    ----------
    sql : str
        The function, over the names of the dimensions.
    type : pyarrow.DataType
        Of its values.
    variable : str
        The variable whose condition needs it.
    what : str
        The function in words, for errors.
    """

    dimensions: tuple[Dimension, ...]
    sql: str
    type: pa.DataType
    variable: str
    what: str


@dataclass(frozen=True)
class Values:
    """The values of a dimension in a buffer.

    Attributes
    ----------
    codes : int64[rows]
        Number of each row's value; 0 where it cannot stand in this place.
    columns : list of pyarrow.Array
        Distinct values by number, per row expression; number 0 is null.
    """

    codes: IntArray
    columns: list[pa.Array]


def distinct_values(arrays: list[pa.Array], usable: BoolArray) -> Values:
    """Number the distinct combinations of some columns in the rows that are usable."""
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
    """All cells of a function, which of them could not be computed (None: all could), and why.

    Raises
    ------
    ResourceLimit
        When there are more than :data:`CELLS_MAX`.
    """
    sizes = [len(found.columns[0]) for found in values]
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
    for dimension, found, size in zip(table.dimensions, values, sizes, strict=True):
        step //= size
        chosen = pa.array(numbers // step % size)
        for name, array in zip(dimension.names, found.columns, strict=True):
            columns[name] = array.take(chosen)
    arrays, failed, why = evaluate_all([table.sql], pa.table(columns))
    return arrays[0], failed[0], why
