"""Bytecode for conditions that look at what is already matched.

Purpose
    ``C.x >= A.x + 5`` compares rows that only the partial match knows.  Such a condition becomes a
    few instructions of a stack machine that runs inside the matcher (:func:`.machine.holds`): typed
    operators over numbers, truth values, times and strings (as codes), CASE, and loads of columns,
    labels and running aggregates.  :class:`BytecodeBuilder` holds those of a whole pattern, and
    names what they read.

Layout
    Three layers write the code of one condition, each on top of the one before:
    :mod:`.load_code` (constants, and values of rows and of the match), :mod:`.operator_code`
    (operators), :mod:`.function_code` (functions and parts of times).

Guarantee
    SQL semantics: three-valued logic, NULL in, NULL out, integer overflow is an error, NaN is the
    greatest value.  What can be computed from one row alone is not compiled here: it becomes a
    column (:class:`Column`) that DuckDB evaluates; functions of several rows that have no
    instruction become cells (:class:`Cells`) that DuckDB evaluates.  So every scalar function may
    be used.

Limits
    Integers compute in 64 bits, decimals as floating-point numbers, times in microseconds
    (nanoseconds when a column has them).  Aggregates: count, sum, min, max, avg, bool_and, bool_or,
    arbitrary; functions of them are those that have an instruction (see :mod:`.typed`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from . import machine as m
from .binding import RowExpression
from .cells import Tabulated

__all__ = ["BytecodeBuilder", "Cells", "Codes", "Column", "MatchRow"]

LOADS = (m.LOAD_I, m.LOAD_F, m.LABEL)


@dataclass(frozen=True)
class Column:
    """A column that bytecode reads: an expression over one row, as ``i``, ``f``, ``s`` or ``t``.

    Kind ``n``: only whether it is null counts.
    """

    row: RowExpression
    kind: str


@dataclass(frozen=True)
class Codes:
    """A column that bytecode reads: the codes of a dimension of a tabulated function."""

    table: int
    dimension: int


@dataclass(frozen=True)
class Cells:
    """A column that bytecode reads by number of cell: a tabulated function, as ``kind``."""

    table: int
    kind: str


@dataclass(frozen=True)
class MatchRow:
    """Which row of the partial match: FIRST or LAST of a set, some steps on.

    May it be the current one.
    """

    first: bool
    chosen: int
    steps: int
    inside: bool


@dataclass
class BytecodeBuilder:
    """Collects the bytecode of all conditions of a pattern, and what it reads.

    Parameters
    ----------
    row_type : callable
        Arrow type of a row expression.
    unit : str
        Unit of times: ``us`` or ``ns``.
    """

    row_type: Callable[[RowExpression], pa.DataType]
    unit: str = "us"
    code: list[tuple[int, int, int, int]] = field(default_factory=list)
    begin: list[int] = field(default_factory=lambda: [0])
    constants: list[int] = field(default_factory=list)
    strings: list[tuple[int, str]] = field(default_factory=list)  # index into constants, text
    sizes: list[tuple[int, int, int]] = field(default_factory=list)  # constant, table, dimension
    columns: list[Column | Codes | Cells] = field(default_factory=list)
    tables: list[Tabulated] = field(default_factory=list)
    sets: list[frozenset[str] | None] = field(default_factory=list)
    places: list[MatchRow] = field(default_factory=list)
    sum_slots: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, code: list[tuple[int, int, int, int]]) -> int:
        """Add the code of a condition; returns its number."""
        self.code.extend(code)
        self.begin.append(len(self.code))
        return len(self.begin) - 2

    @property
    def trackers(self) -> int:
        """Words that a column of the path takes, besides position, parent and row."""
        fixed = self.arrays()
        slots = len(fixed["last_slot"]) + len(fixed["first_slot"]) + 2 * len(fixed["sum_slot"])
        return slots + len(self.sets)

    @staticmethod
    def slot(entries: list[Any], entry: Any) -> int:
        """Number of an entry, added when new."""
        if entry not in entries:
            entries.append(entry)
        return entries.index(entry)

    def arrays(self) -> dict[str, npt.NDArray[np.int64]]:
        """The fixed parts as arrays: code with its loads bound to tracker slots, and the slots."""
        farthest: dict[int, int] = {}
        first_slots: list[tuple[int, int]] = []
        for place in self.places:
            if place.first:
                self.slot(first_slots, (place.chosen, place.steps))
            else:
                farthest[place.chosen] = max(farthest.get(place.chosen, 0), place.steps)
        last_slots = [(chosen, s) for chosen, top in farthest.items() for s in range(top + 1)]
        code = []
        for op, a, b, c in self.code:
            if op in LOADS and b >= 0:
                place = self.places[b]
                entries = first_slots if place.first else last_slots
                slot = entries.index((place.chosen, place.steps))
                b = (slot << 2) | (place.inside << 1) | place.first
            code.append((op, a, b, c))

        def table(rows: list[Any], width: int) -> npt.NDArray[np.int64]:
            return np.array(rows, np.int64).reshape(len(rows), width)

        return {
            "code": table(code, 4),
            "begin": np.array(self.begin, np.int64),
            "last_slot": table(last_slots, 2),
            "first_slot": table(first_slots, 2),
            "sum_slot": table(self.sum_slots, 3),
        }
