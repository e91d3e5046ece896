"""MATCH_SITUATIONS as an operator over Arrow batches in time order.
An unsatisfiable pattern is an error; a written relation that the rest excludes is a note.  At most
``NAMES_MAX`` names; conditions read one event and, by PREV, earlier ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlglot import exp

from ...core.caches import lazy
from ...errors import AttributeNotFound, SqlError
from ..pattern.binding import Binder, Bound, Given, Navigation
from ..pattern.compiled import InputColumns, MatchLimits
from ..pattern.conditions import RowTests, row_tests
from ..pattern.interval_ticks import interval_ticks
from ..pattern.members import with_members
from ..pattern.row_types import RowTypes, checked_types, is_key, plain_type, unfit_key
from ..pattern.scalar import function_name
from ..sql.gate import AGGREGATES
from ..sql.pattern_parser import position_error
from ..sql.situation_clause import SituationClause, SituationDefinition
from .measures import MeasureBinder, row_columns, row_names
from .network import (
    FAR,
    Durations,
    Masks,
    Unsatisfiable,
    close,
    dead_relations,
    distances,
    unrestricted,
)
from .relations import ALL, RELATIONS, converse, describe, needs_an_end, union

__all__ = ["NAMES_MAX", "CompiledSituations", "compile_situations"]

NAMES_MAX = 16


@dataclass(frozen=True)
class CompiledSituations:
    """A clause that is ready to run.
    ``tests``: one bit per name, in the order of DEFINE.  ``history``: rows that conditions read
    before a row.  ``allowed``, ``implied``: relations as written, and as implied.  ``gap``: in
    ticks.  ``reach``: see ``network.distances``.  ``notes``: warnings.
    """

    clause: SituationClause
    columns: InputColumns
    names: tuple[str, ...]
    conditions: tuple[Bound, ...]
    tests: RowTests
    history: int
    allowed: Masks
    implied: Masks
    durations: Durations
    gap: int | None
    reach: npt.NDArray[np.int64]
    partition_by: tuple[str, ...]
    measures: tuple[Bound, ...]
    outputs: tuple[str, ...]
    types: RowTypes
    notes: tuple[str, ...] = ()
    order: tuple[str, ...] | None = None
    identity: bytes = field(default=b"", repr=False)

    @property
    def time(self) -> str:
        assert self.columns.time is not None
        return self.columns.time

    @property
    def early(self) -> bool:
        return self.durations.early

    @lazy
    def output_schema(self) -> pa.Schema:
        from .results import measured_types

        fields = [self.columns.arrow.field(name) for name in self.partition_by]
        fields += map(pa.field, self.outputs, measured_types(self))
        return pa.schema(fields)

    @property
    def condition_columns(self) -> frozenset[str]:
        found = {name for bound in self.conditions for name in _columns_of(bound)}
        return frozenset(found)

    @property
    def measured_columns(self) -> frozenset[str]:
        return row_columns(self.measures)

    @property
    def measured_names(self) -> frozenset[str]:
        return row_names(self.measures)

    @property
    def input_columns(self) -> list[str]:
        needed = {self.time, *self.partition_by, *self.condition_columns, *self.measured_columns}
        return [name for name in self.columns.arrow.names if name in needed]

    @property
    def ends_count(self) -> tuple[bool, ...]:
        """Per name, whether its end can complete a match."""
        count = len(self.names)
        if not self.early:
            return tuple(
                not any(
                    self.reach[count + q, count + p] <= (0 if q < p else -1)
                    for q in range(count)
                    if q != p
                )
                for p in range(count)
            )
        return tuple(
            any(needs_an_end(self.allowed[p][q]) for q in range(count) if q != p)
            for p in range(count)
        )

    def point_of(self, output: str) -> int | None:
        measure = self.measures[self.outputs.index(output)]
        leaf = measure.leaves[0] if len(measure.leaves) == 1 else None
        if not isinstance(leaf, Given) or not isinstance(measure.scalar, exp.Column):
            return None
        count = len(self.names)
        if leaf.function == ("detected" if self.early else "completed"):
            return 2 * count
        if leaf.function not in ("started", "ended"):
            return None
        return self.names.index(leaf.names[0]) + count * (leaf.function == "ended")

    def kept(self, name: int) -> int | None:
        """Ticks after its start in which a situation can join a new match; None: unbounded."""
        reach = int(self.reach[name, 2 * len(self.names)])
        return None if reach >= FAR // 2 else reach

    def run(
        self,
        batches: Iterable[pa.RecordBatch],
        *,
        check: Callable[[], None] | None = None,
        limits: MatchLimits | None = None,
    ) -> Iterator[pa.RecordBatch]:
        from .stream import SituationStream

        stream = SituationStream(self, limits or MatchLimits(), check)
        for batch in batches:
            yield from stream.feed(batch)
        yield from stream.finish()


def _columns_of(bound: Bound) -> list[str]:
    return [
        name for leaf in bound.leaves if isinstance(leaf, Navigation) for name in leaf.row.columns
    ]


# ------------------------------------------------------------------------------- binding


def compile_situations(
    clause: SituationClause, columns: InputColumns, stream: str = ""
) -> CompiledSituations:
    """Bind a clause to its input, named ``stream``; SqlError with line and column."""
    if columns.time is None:
        raise _error(clause, "situations need ORDER BY a timestamp or an integer: their time")
    plain = pa.schema([pa.field(f.name, plain_type(f.type), f.nullable) for f in columns.arrow])
    columns = InputColumns(plain, columns.time, columns.ordered)
    types = RowTypes(plain)
    _check_order(clause, columns)
    definitions = _definitions(clause)
    names = tuple(definition.name for definition in definitions)
    partition = tuple(_resolve(columns, name, clause) for name in clause.partition_by)
    for key in partition:
        found = plain.field(key).type
        if not is_key(found):
            raise _error(clause, unfit_key(key, found))
    conditions = [_condition(d, columns, names, clause) for d in definitions]
    for name, bound, found in zip(
        names, conditions, checked_types(types, conditions, clause.sql), strict=True
    ):
        if not (pa.types.is_boolean(found) or pa.types.is_null(found)):
            message = f"the condition of {name} must be true or false, it is of type {found}"
            raise _error(clause, message, bound.at)
    tests = row_tests(
        dict(zip(names, conditions, strict=True)), types,
        lambda name, bound: _error(clause, _LOCAL.format(name), bound.at),
    )  # fmt: skip
    shifts = [leaf.shift for c in conditions for leaf in c.leaves if isinstance(leaf, Navigation)]
    durations = _durations(clause, definitions, columns)
    allowed = _allowed(clause, names)
    implied, reach, notes = _closed(clause, names, allowed, durations)
    gap = None if clause.gap is None else _ticks(clause.gap, "GAP", clause, columns)
    outputs, measures = _measures(clause, columns, types, names, partition)
    texts = [
        *names, *(c.sql for c in conditions), *(repr(c.leaves) for c in conditions),
    ]  # fmt: skip
    identity = repr(
        (stream, partition, texts, durations.least, durations.most, durations.window, gap, allowed)
    )
    return CompiledSituations(
        clause, columns, names, tuple(conditions), tests, max([0, *(-s for s in shifts)]), allowed,
        implied, durations, gap, reach, partition, measures, outputs, types, notes,
        identity=hashlib.blake2b(identity.encode(), digest_size=16).digest(),
    )  # fmt: skip


_LOCAL = (
    "the condition of {} sees one event and, by PREV, those before it: no aggregate, FIRST, LAST, "
    "NEXT or other situation"
)


def _error(clause: SituationClause, message: str, at: int | None = None) -> SqlError:
    return position_error(message, clause.sql, clause.at if at is None else at)


def _resolve(
    columns: InputColumns, name: str, clause: SituationClause, at: int | None = None
) -> str:
    try:
        return columns.resolve(name)
    except AttributeNotFound as error:
        raise _error(clause, str(error), at) from None


def _check_order(clause: SituationClause, columns: InputColumns) -> None:
    for i, key in enumerate(clause.order_by):
        name = _resolve(columns, key.column, clause, key.at)
        if i or name != columns.time or key.descending:
            raise _error(
                clause, f"situations are found in the order of time: ORDER BY {columns.time}, "
                "ascending, and nothing else", key.at,
            )  # fmt: skip


def _definitions(clause: SituationClause) -> list[SituationDefinition]:
    known: set[str] = set()
    used = dict(clause.names)
    for definition in clause.definitions:
        if definition.name in known:
            raise _error(clause, f"{definition.name} is defined twice", definition.at)
        known.add(definition.name)
        if definition.name not in used:
            raise _error(
                clause, f"DEFINE names {definition.name}, which is not in PATTERN (it has "
                f"{', '.join(used)})", definition.at,
            )  # fmt: skip
    for name, at in used.items():
        if name not in known:
            raise _error(clause, f"{name} has no condition in DEFINE", at)
    if len(used) > NAMES_MAX:
        raise _error(clause, f"a pattern has up to {NAMES_MAX} situations, found {len(used)}")
    return list(clause.definitions)


def _condition(
    definition: SituationDefinition,
    columns: InputColumns,
    names: tuple[str, ...],
    clause: SituationClause,
) -> Bound:
    own = definition.name

    def refuse(message: str, node: Any) -> SqlError:
        starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
        return _error(clause, message, min(starts, default=definition.at))

    folded = {name.upper() for name in names}
    condition = with_members(definition.condition.copy(), columns, folded, refuse)
    for part in condition.walk():
        at = part.meta.get("start", definition.at)
        qualifier = part.args.get("table") if isinstance(part, exp.Column) else None
        if qualifier is not None and qualifier.name.upper() != own.upper():
            other = "another situation" if qualifier.name.upper() in names else "no situation"
            raise _error(
                clause, f"the condition of {own} sees events only; {qualifier.name} is {other}", at
            )
        if isinstance(part, exp.Func) and function_name(part) in AGGREGATES - {"first", "last"}:
            raise _error(clause, _LOCAL.format(own), at)
        if isinstance(part, exp.Anonymous) and part.name.lower() == "next":
            raise _error(clause, _LOCAL.format(own), at)
    binder = Binder(columns, {own: frozenset({own})}, clause.sql)
    return binder.bind(condition, definition.at, define=True)


def _ticks(
    node: Any, word: str, clause: SituationClause, columns: InputColumns, up: bool = False
) -> int:
    assert columns.time is not None
    time = columns.arrow.field(columns.time)
    return min(interval_ticks(node, time, word, clause.sql, clause.at, up=up), FAR)


def _durations(
    clause: SituationClause, definitions: list[SituationDefinition], columns: InputColumns
) -> Durations:
    least, most = [], []
    for definition in definitions:
        low, high = definition.least, definition.most
        least.append(0 if low is None else _ticks(low, "LASTING", clause, columns, up=True))
        most.append(FAR if high is None else _ticks(high, "LASTING", clause, columns))
        if least[-1] > most[-1]:
            raise _error(
                clause, f"{definition.name} lasts at least longer than it lasts at most: the lower "
                "bound comes first", definition.at,
            )  # fmt: skip
    window = FAR if clause.within is None else _ticks(clause.within, "WITHIN", clause, columns)
    return Durations(tuple(least), tuple(most), window, clause.early)


def _allowed(clause: SituationClause, names: tuple[str, ...]) -> Masks:
    place = {name: i for i, name in enumerate(names)}
    found = unrestricted(len(names))
    for constraint in clause.constraints:
        i, j = place[constraint.left], place[constraint.right]
        mask = union(RELATIONS[word] for word in constraint.relations)
        both = found[i][j] & mask
        if not both:
            raise _error(
                clause, f"{constraint.left} cannot be both {describe(found[i][j])} and "
                f"{describe(mask)} {constraint.right}", constraint.at,
            )  # fmt: skip
        found[i][j], found[j][i] = both, converse(both)
    if len(names) > 1:
        _check_connected(clause, names, found)
    return tuple(map(tuple, found))


def _check_connected(
    clause: SituationClause, names: tuple[str, ...], masks: list[list[int]]
) -> None:
    related = {name for c in clause.constraints for name in (c.left, c.right)}
    for name, at in clause.names:
        if name not in related:
            raise _error(clause, f"{name} is in no constraint", at)
    reached = {0}
    while True:
        more = {
            j for i in reached for j in range(len(names)) if masks[i][j] != ALL and j not in reached
        }
        if not more:
            break
        reached |= more
    if len(reached) < len(names) and clause.within is None:
        apart = [name for i, name in enumerate(names) if i not in reached]
        raise _error(
            clause, f"no constraint connects {', '.join(apart)} with {names[0]}; say WITHIN, so "
            "that not everything matches everything",
        )  # fmt: skip


def _closed(
    clause: SituationClause, names: tuple[str, ...], allowed: Masks, durations: Durations
) -> tuple[Masks, npt.NDArray[np.int64], tuple[str, ...]]:
    try:
        implied = close(allowed)
        reach = distances(implied, durations)
    except Unsatisfiable:
        raise _error(
            clause, "nothing can satisfy this pattern: its relations"
            + ("" if clause.within is None else ", WITHIN") + " and durations exclude each other; "
            "these are Allen's relations, and what some papers print as 'finishes' is FINISHED BY",
            clause.constraints[0].at if clause.constraints else None,
        ) from None  # fmt: skip
    place = {name: i for i, name in enumerate(names)}
    pairs = dict.fromkeys((place[c.left], place[c.right]) for c in clause.constraints)
    notes = []
    for i, j, dead in dead_relations(allowed, implied, durations, list(pairs)):
        note = f"{names[i]} {describe(dead)} {names[j]} can never be: the rest excludes it"
        if dead & (RELATIONS["FINISHES"] | RELATIONS["FINISHED BY"]):
            note += "; what some papers print as 'finishes' is FINISHED BY here"
        notes.append(note)
    return implied, reach, tuple(notes)


def _measures(
    clause: SituationClause,
    columns: InputColumns,
    types: RowTypes,
    names: tuple[str, ...],
    partition: tuple[str, ...],
) -> tuple[tuple[str, ...], tuple[Bound, ...]]:
    assert columns.time is not None
    binder = MeasureBinder(columns, names, clause.sql, columns.arrow.field(columns.time).type)
    bounds, outputs = [], []
    for measure in clause.measures:
        bounds.append(binder.bind_measure(measure.expression, measure.at))
        outputs.append((measure.name, measure.at))
    for name in names if not clause.measures else ():
        for function in ("STARTED", "ENDED"):
            argument = exp.column(exp.to_identifier(name, quoted=True))
            call = exp.Anonymous(this=function, expressions=[argument])
            bounds.append(binder.bind_measure(call, clause.at))
            outputs.append((f"{name}_{function}".lower(), clause.at))
    checked_types(types, bounds, clause.sql)
    taken = {name.lower() for name in partition}
    for name, at in outputs:
        if name.lower() in taken:
            message = f"the result has a column {name} already; name the measure differently"
            raise _error(clause, message, at)
        taken.add(name.lower())
    return tuple(name for name, _ in outputs), tuple(bounds)
