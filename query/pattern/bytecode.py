"""Bytecode for conditions on the partial match, such as ``C.x >= A.x + 5``; see ``machine.holds``.

``load_code``, ``operator_code`` and ``function_code`` write it.  What depends on one row only
becomes a ``Column``, and functions of several rows without an instruction become ``Cells``; DuckDB
evaluates both, so every scalar function can be used.  SQL semantics: three-valued logic, integer
overflow is an error, NaN is the greatest value.  Integers have 64 bits, decimals compute as floats,
times in microseconds (nanoseconds when a column has them).  Aggregates: count, sum, min, max, avg,
bool_and, bool_or, arbitrary; functions of them need an instruction (``typed``).
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
    """An input: an expression over one row, of kind ``i``, ``f``, ``s``, ``t`` or ``n`` (null
    mark).
    """

    row: RowExpression
    kind: str


@dataclass(frozen=True)
class Codes:
    """An input: codes of a dimension of a tabulated function."""

    table: int
    dimension: int


@dataclass(frozen=True)
class Cells:
    """An input indexed by cell: a tabulated function, of type ``kind``."""

    table: int
    kind: str


@dataclass(frozen=True)
class MatchRow:
    """FIRST or LAST of a set of variables, ``steps`` on; ``inside``: the current row counts."""

    first: bool
    chosen: int
    steps: int
    inside: bool


@dataclass
class BytecodeBuilder:
    """Collects the bytecode of a pattern and its inputs; ``unit`` of times: ``us`` or ``ns``."""

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
        self.code.extend(code)
        self.begin.append(len(self.code))
        return len(self.begin) - 2

    @property
    def trackers(self) -> int:
        """Words per column of the path, besides position, parent and row."""
        fixed = self.arrays()
        slots = len(fixed["last_slot"]) + len(fixed["first_slot"]) + 2 * len(fixed["sum_slot"])
        return slots + len(self.sets)

    @staticmethod
    def slot(entries: list[Any], entry: Any) -> int:
        if entry not in entries:
            entries.append(entry)
        return entries.index(entry)

    def arrays(self) -> dict[str, npt.NDArray[np.int64]]:
        """The code with loads bound to tracker slots, and the slots, as arrays."""
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
