"""MEASURES of situations: functions of a match, and expressions over the rows of its situations.

===============  ==============================================================  ===============
STARTED(A)       start of A                                                      time
ENDED(A)         its end; null when that is not known yet                        time
DURATION(A)      ENDED(A) - STARTED(A)                                           as SQL has it
COMPLETED()      the last end; null when one is not known yet                    time
DETECTED()       when the match was certain                                      time
RELATION(A, B)   the name of the relation of A to B; null when not known yet     text
MATCH_ID()       the same for every run that finds the match                     16 bytes
===============  ==============================================================  ===============

"Known" means at the instant of the match: its completion, or with EMIT ON DETECTION its detection.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlglot import exp

from ..pattern.binding import Binder, Bound, Given, Leaf, Navigation, RowExpression
from ..pattern.leaves import IDENTITIES, PSEUDO, MatchNumber
from .relations import NAMES, SIGNS

__all__ = ["FoundMatches", "MeasureBinder", "match_values"]

IntArray = npt.NDArray[np.int64]

_FUNCTIONS = {
    "started": 1, "ended": 1, "duration": 1, "completed": 0, "detected": 0, "relation": 2,
    "match_id": 0,
}  # fmt: skip
ID_BYTES = 16


class MeasureBinder(Binder):
    def __init__(self, columns: Any, names: tuple[str, ...], sql: str, time: pa.DataType) -> None:
        super().__init__(columns, {name: frozenset({name}) for name in names}, sql)
        self.time = time
        self.given: dict[str, tuple[Given, str]] = {}

    def bind_measure(self, node: exp.Expression, at: int) -> Bound:
        self.at = at
        bound = self.bind(node.copy().transform(self._marked), at, define=False)
        for leaf in bound.leaves:
            self._check(leaf)
        return bound

    def _check(self, leaf: Leaf) -> None:
        if isinstance(leaf, Given):
            if leaf.function in IDENTITIES and leaf not in [
                given for given, _ in self.given.values()
            ]:
                raise self.fail(f"{leaf.function.upper()}() belongs to MATCH_RECOGNIZE")
            return
        if isinstance(leaf, MatchNumber):
            raise self.fail("situations have no MATCH_NUMBER; MATCH_ID() tells matches apart")
        columns = leaf.row.columns if isinstance(leaf, Navigation) else leaf.columns
        if not PSEUDO.isdisjoint(columns):
            raise self.fail("CLASSIFIER and MATCH_NUMBER belong to MATCH_RECOGNIZE")
        if leaf.variables is None:
            raise self.fail("a measure says whose rows it means: A.x, avg(A.x), count(A.*)")
        if isinstance(leaf, Navigation) and leaf.shift:
            raise self.fail("PREV and NEXT of a situation are not among its rows")

    def _marked(self, node: Any) -> Any:
        name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
        if name not in _FUNCTIONS:
            return node
        names = []
        for argument in node.expressions:
            if not isinstance(argument, exp.Column) or argument.table:
                raise self.fail(f"{name.upper()} takes names of situations", node)
            names.append(self._variable(argument.this))
        if len(names) != _FUNCTIONS[name]:
            wanted = ("no argument", "one name", "two names")[_FUNCTIONS[name]]
            raise self.fail(f"{name.upper()} takes {wanted}", node)
        if name == "duration":
            ends = [self._mark(part, tuple(names), node) for part in ("ended", "started")]
            return exp.Paren(this=exp.Sub(this=ends[0], expression=ends[1]))
        return self._mark(name, tuple(names), node)

    def _mark(self, function: str, names: tuple[str, ...], node: Any) -> Any:
        types = {"relation": pa.string(), "match_id": pa.binary()}
        given = Given(function, names, types.get(function, self.time))
        marker = f"@given{len(self.given)}"
        self.given[marker] = (given, f"{function.upper()}({', '.join(names)})")
        column = exp.column(exp.to_identifier(marker, quoted=True))
        column.meta.update(node.meta)
        return column

    def _transform(
        self, node: Any, leaves: list[Leaf], final: bool, marked: bool
    ) -> exp.Expression:
        if isinstance(node, exp.Column) and node.name in self.given and not node.table:
            return self.place(self.given[node.name][0], leaves)
        return super()._transform(node, leaves, final, marked)

    def _column(self, part: Any) -> str:
        if part.name in self.given:
            text = self.given[part.name][1]
            raise self.fail(
                f"{text} is one value of the match, not of the rows of a situation", part
            )
        return super()._column(part)


@dataclass(frozen=True)
class FoundMatches:
    """Matches in output order.  ``lasting``: an end is unknown, later than any time."""

    starts: IntArray
    ends: IntArray
    lasting: npt.NDArray[np.bool_]
    instant: IntArray
    detected: IntArray


def match_values(
    given: Given, found: FoundMatches, places: Mapping[str, int], identity: bytes, keys: pa.Table
) -> pa.Array:
    """Values of a function of the match; ``places``: column of each name."""
    columns = [places[name] for name in given.names]
    unknown = np.asarray(found.lasting | (found.ends > found.instant[:, None]))
    if given.function == "started":
        return _times(found.starts[:, columns[0]], None, given.type)
    if given.function == "ended":
        return _times(found.ends[:, columns[0]], unknown[:, columns[0]], given.type)
    if given.function == "completed":
        return _times(found.ends.max(axis=1), np.asarray(unknown.any(axis=1)), given.type)
    if given.function == "detected":
        return _times(found.detected, None, given.type)
    if given.function == "relation":
        return _relations(found, unknown, *columns)
    return _ids(found, identity, keys)


def _times(ticks: IntArray, mask: npt.NDArray[np.bool_] | None, type_: pa.DataType) -> pa.Array:
    values = pa.array(np.ascontiguousarray(ticks), pa.int64(), mask=mask)
    if pa.types.is_timestamp(type_):
        return values.view(type_)
    return values.cast(type_)


@cache
def _by_signs() -> tuple[pa.Array, pa.Array]:
    """Relation number by its four signs as a base-3 number; and the names of relations."""
    found: list[int | None] = [None] * 3**4
    for number, code in enumerate(SIGNS):
        found[sum((sign + 1) * 3 ** (3 - i) for i, sign in enumerate(code))] = number
    return pa.array(found, pa.int64()), pa.array(NAMES, pa.string())


def _relations(found: FoundMatches, unknown: npt.NDArray[np.bool_], a: int, b: int) -> pa.Array:
    code = np.zeros(len(found.instant), np.int64)
    begun = np.zeros(len(code), np.bool_)
    points = [
        ((found.starts[:, x], begun), (found.ends[:, x], found.lasting[:, x])) for x in (a, b)
    ]
    for (p, p_lasts), (q, q_lasts) in product(*points):
        later = (p > q) | (p_lasts & ~q_lasts)
        sooner = (p < q) | (q_lasts & ~p_lasts)
        code = 3 * code + np.sign(later.astype(np.int64) - sooner) + 1
    lasting = unknown[:, a] & unknown[:, b]
    relations, names = _by_signs()
    return names.take(relations.take(pa.array(code, mask=lasting)))


def _ids(found: FoundMatches, identity: bytes, keys: pa.Table) -> pa.Array:
    ids = []
    rows = keys.to_pylist() if keys.num_columns else [{}] * len(found.instant)
    for key, starts in zip(rows, found.starts.tolist(), strict=True):
        text = repr((*key.values(), *starts)).encode()
        ids.append(hashlib.blake2b(identity + text, digest_size=ID_BYTES).digest())
    return pa.array(ids, pa.binary())


def row_names(bounds: tuple[Bound, ...]) -> frozenset[str]:
    found: set[str] = set()
    for bound in bounds:
        for leaf in bound.leaves:
            found |= getattr(leaf, "variables", None) or frozenset()
    return frozenset(found)


def row_columns(bounds: tuple[Bound, ...]) -> frozenset[str]:
    found: set[str] = set()
    for bound in bounds:
        for leaf in bound.leaves:
            row: RowExpression | None = getattr(leaf, "row", None)
            found |= set(row.columns if row is not None else getattr(leaf, "columns", ()))
    return frozenset(found)
